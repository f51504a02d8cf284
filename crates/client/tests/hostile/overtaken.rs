//! Answers to changes that show names otherwise than leases have them: another machine has made a
//! change just before, and the recall that says so is still on its way, on another connection.

use crate::alone;
use crate::leases::creation;
use crate::peer::{Lies, Peer, attributes, handle, look, name, results, root};
use base::{FileKind, FsError, Principal};
use client::cache::NodeId;
use client::volume::{Invalidate, Volume};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
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

/// What becomes of what is known.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// It is believed, by the kernel as well.
    All,
    /// The name that the change was about is not, and the kernel believes no names.
    Others,
    /// Nothing is.
    Nothing,
}

/// What is left of what is known of two names after a change of one that is answered so.
fn left_after(
    kind: Change,
    lie: impl Fn(&mut Result<StepReply, FsError>) + Send + Sync + 'static,
) -> Left {
    let kernel = Arc::new(Kernel::default());
    let told = Arc::clone(&kernel);
    let left = Arc::new(OnceLock::new());
    let of_names = Arc::clone(&left);
    alone(async move {
        let peer = Peer::start(leasing(lie)).await;
        let volume = peer.volume().await;
        volume.set_invalidate(kernel);
        look(&volume).await.unwrap().expect("it is there");
        let (who, beside) = (Principal::root(), name("beside"));
        let found = volume.lookup(&who, NodeId::ROOT, &beside).await;
        assert!(found.unwrap().is_none(), "that is known, too");
        let cached = |text: &str| volume.lookup_cached(NodeId::ROOT, &name(text)).is_some();
        assert!(cached("file") && cached("beside"), "they are leased");
        let _ = change(&volume, kind).await;
        of_names.set((cached("file"), cached("beside"))).unwrap();
    });
    match (told.0.load(Ordering::Relaxed), left.get()) {
        (0, Some((true, true))) => Left::All,
        (1.., Some((false, true))) => Left::Others,
        (1.., Some((false, false))) => Left::Nothing,
        otherwise => panic!("{otherwise:?}"),
    }
}

#[test]
fn a_rename_that_moved_another_inode_is_not_left_to_the_kernel() {
    let moved = left_after(Change::Rename, |result| {
        if let Ok(StepReply::Renamed { entry, .. }) = result {
            *entry = other();
        }
    });
    assert_eq!(moved, Left::Nothing);
    let replaced = left_after(Change::RenameOver, |result| {
        if let Ok(StepReply::Renamed {
            entry, replaced, ..
        }) = result
        {
            let mut lost = other();
            lost.attributes.links = 0;
            (*entry, *replaced) = (other(), Some(Box::new(lost)));
        }
    });
    assert_eq!(replaced, Left::Nothing);
    let known = left_after(Change::Rename, |_| {});
    assert_eq!(known, Left::All, "the one that was known");
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
    assert_eq!(left_after(Change::Remove, of(other)), Left::Nothing);
    assert_eq!(left_after(Change::Remove, of(crate::peer::file)), Left::All);
}

#[test]
fn what_is_made_where_something_was_known_to_be_shows_that_nothing_is_known() {
    let made = left_after(Change::MakeDirectory, |result| {
        if let Ok(StepReply::Created { entry, .. }) = result {
            *entry = other();
            entry.attributes = root().attributes;
        }
    });
    assert_eq!(made, Left::Nothing);
}

#[test]
fn a_refusal_that_leases_do_not_explain_ends_what_is_known_of_the_name() {
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
        assert_eq!(
            left_after(Change::Rename, refusal(error)),
            Left::Others,
            "{error}"
        );
        assert_eq!(
            left_after(Change::Remove, refusal(error)),
            Left::Others,
            "{error}"
        );
    }
}
