//! Answers to changes that show names otherwise than leases have them: another machine has made a
//! change just before, and the recall that says so is still on its way, on another connection.

use crate::alone;
use crate::leases::creation;
use crate::peer::{Lies, Peer, attributes, handle, look, name, results, root};
use base::{FileKind, FsError, Name, Principal};
use client::cache::NodeId;
use client::volume::{Invalidate, Volume};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::message::{Entry, Lease, RenameMode, StepReply};

/// Counts how often a kernel is told that nothing that it knows of names is to be believed.
#[derive(Default)]
struct Kernel(AtomicUsize);

impl Invalidate for Kernel {
    fn names(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn attributes(&self, _: NodeId) -> bool {
        true
    }

    fn data(&self, _: NodeId) -> bool {
        true
    }

    fn data_now(&self, _: NodeId) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

/// Another file than the one that is there at first.
fn other() -> Entry {
    Entry {
        handle: handle("other"),
        attributes: attributes(FileKind::File, 4),
        lease: Lease::Read,
    }
}

/// Leases all names that are asked for; what changes are answered is changed by `lie`.
fn leasing(lie: impl Fn(&mut Result<StepReply, FsError>) + Send + Sync + 'static) -> Lies {
    Lies {
        answer: results(move |_, said| {
            for result in said.results_or_none() {
                if let Ok(StepReply::Found {
                    entry,
                    parent_lease,
                    ..
                }) = result
                {
                    *parent_lease = Lease::Read;
                    if let Some(entry) = entry {
                        entry.lease = Lease::Read;
                    }
                }
                lie(result);
            }
        }),
        ..Lies::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Rename,
    RenameOver,
    Remove,
    MakeDirectory,
}

async fn change(volume: &Volume, change: Change) -> Result<(), FsError> {
    let (who, dir, file) = (Principal::root(), NodeId::ROOT, name("file"));
    let mode = RenameMode::Replace;
    match change {
        Change::Rename => {
            let to = name("third");
            volume.rename(&who, dir, &file, dir, &to, mode).await
        }
        Change::RenameOver => {
            let from = name("third");
            volume.rename(&who, dir, &from, dir, &file, mode).await
        }
        Change::Remove => volume.remove(&who, dir, &file, false).await,
        Change::MakeDirectory => {
            let made = volume.make_directory(&who, &creation("file")).await;
            made.map(drop)
        }
    }
}

/// Whether the kernel is told, and nothing is known of the name any more, after a change that is
/// answered so.
fn is_overtaken(
    kind: Change,
    lie: impl Fn(&mut Result<StepReply, FsError>) + Send + Sync + 'static,
) -> bool {
    let kernel = Arc::new(Kernel::default());
    let told = Arc::clone(&kernel);
    let known = Arc::new(AtomicUsize::new(0));
    let still_known = Arc::clone(&known);
    alone(async move {
        let peer = Peer::start(leasing(lie)).await;
        let volume = peer.volume().await;
        volume.set_invalidate(kernel);
        look(&volume).await.unwrap().expect("it is there");
        let cached = |name: Name| volume.lookup_cached(NodeId::ROOT, &name).is_some();
        assert!(cached(name("file")), "it is leased");
        // Of what is cached beside it nothing is to be believed either.
        volume
            .lookup(&Principal::root(), NodeId::ROOT, &name("beside"))
            .await
            .unwrap();
        assert!(cached(name("beside")), "it is leased");
        let _ = change(&volume, kind).await;
        let left = ["beside", "file"]
            .map(name)
            .into_iter()
            .filter(|n| cached(n.clone()));
        known.store(left.count(), Ordering::Relaxed);
    });
    let (told, known) = (
        told.0.load(Ordering::Relaxed),
        still_known.load(Ordering::Relaxed),
    );
    assert_eq!(told > 0, known == 0, "told {told} times, {known} known");
    told > 0
}

#[test]
fn a_rename_that_moved_another_inode_is_not_left_to_the_kernel() {
    assert!(is_overtaken(Change::Rename, |result| {
        if let Ok(StepReply::Renamed { entry, .. }) = result {
            *entry = other();
        }
    }));
    assert!(is_overtaken(Change::RenameOver, |result| {
        if let Ok(StepReply::Renamed {
            entry, replaced, ..
        }) = result
        {
            let mut lost = other();
            lost.attributes.links = 0;
            (*entry, *replaced) = (other(), Some(Box::new(lost)));
        }
    }));
    assert!(
        !is_overtaken(Change::Rename, |_| {}),
        "the one that was known"
    );
}

#[test]
fn a_removal_of_another_inode_shows_that_nothing_is_known() {
    let of = |entry: fn() -> Entry| {
        move |result: &mut Result<StepReply, FsError>| {
            if let Ok(StepReply::Removed {
                entry: there,
                parent_lease,
                ..
            }) = result
            {
                let mut lost = entry();
                lost.attributes.links = 0;
                (*there, *parent_lease) = (Some(lost), Lease::Read);
            }
        }
    };
    assert!(is_overtaken(Change::Remove, of(other)));
    assert!(!is_overtaken(Change::Remove, of(crate::peer::file)));
}

#[test]
fn what_is_made_where_something_was_known_to_be_shows_that_nothing_is_known() {
    assert!(is_overtaken(Change::MakeDirectory, |result| {
        if let Ok(StepReply::Created { entry, .. }) = result {
            *entry = other();
            entry.attributes = root().attributes;
        }
    }));
}

#[test]
fn a_refusal_that_leases_do_not_explain_shows_that_nothing_is_known() {
    let refusal = |error: FsError| {
        move |result: &mut Result<StepReply, FsError>| {
            if matches!(
                result,
                Ok(StepReply::Renamed { .. } | StepReply::Removed { .. })
            ) {
                *result = Err(error);
            }
        }
    };
    for error in [FsError::NotFound, FsError::Exists, FsError::TimedOut] {
        assert!(is_overtaken(Change::Rename, refusal(error)), "{error}");
        assert!(is_overtaken(Change::Remove, refusal(error)), "{error}");
    }
}
