//! A server whose file system is full: what is tried again because space is about to become free,
//! and who hears of what was lost.

use crate::alone;
use crate::leases::{creation, generous, remove_ahead};
use crate::peer::{Answerer, END_TIME_MAX, Lies, Peer, file, handle, look, name};
use base::{AttributeChange, FsError, Principal};
use client::cache::NodeId;
use client::volume::{OpenFile, Volume};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use wire::frame::Frame;
use wire::message::{Access, Refusal, Reply, Step, StepReply};

/// What a full server was asked.
#[derive(Default)]
struct Log {
    /// Answers to removals that were answered ahead.
    kept: Vec<Frame>,
    /// Writes and creations with contents.
    tries: usize,
}

type Shared = Arc<Mutex<Log>>;

/// Has no room for the first `refused` writes, and answers removals that were answered ahead after
/// the first of these.
fn full(log: &Shared, refused: usize) -> Lies {
    let (log, generous) = (Arc::clone(log), generous().answer);
    let answer = move |asked: &crate::peer::Asked, mut said: crate::peer::Said| {
        let mut log = log.lock().unwrap();
        let mut is_removal = false;
        let mut release = false;
        for (step, result) in asked.steps().iter().zip(said.results_or_none()) {
            if let Ok(StepReply::Created { entry, .. }) = result {
                (entry.handle, entry.attributes.inode) = (handle("new"), 4);
            }
            is_removal |= matches!(step, Step::Remove { file: Some(_), .. });
            if matches!(step, Step::CreateFile { .. } | Step::Write { .. }) {
                log.tries += 1;
                release = true;
                if log.tries <= refused {
                    *result = Err(FsError::NoSpace);
                }
            }
        }
        // The first step that fails is the last one.
        if let Some(failed) = said.results_or_none().iter().position(Result::is_err) {
            said.results().truncate(failed + 1);
        }
        let mut frames = generous(asked, said);
        if is_removal && log.tries == 0 {
            log.kept.append(&mut frames);
        }
        if release {
            frames.append(&mut log.kept);
        }
        frames
    };
    Lies {
        answer: Box::new(answer),
        ..Lies::default()
    }
}

/// A volume of a server that answers like this, and the node of its file.
async fn answered_by(answer: Answerer) -> (Peer, Arc<Volume>, NodeId) {
    let peer = Peer::start(Lies {
        answer,
        ..Lies::default()
    });
    let peer = peer.await;
    let volume = peer.volume_on_one().await;
    let node = look(&volume).await.unwrap().expect("the peer's file").node;
    (peer, volume, node)
}

async fn create(volume: &Volume) -> OpenFile {
    let (who, access) = (Principal::root(), Access::ReadWrite);
    let creation = creation("first");
    let made = volume.create(&who, &creation, false, access, false, false);
    made.await.unwrap().1
}

async fn write(volume: &Volume, open: &OpenFile) {
    let write = crate::replies::write(&open.who, open, b"xyz");
    volume.write(open.node, write).await.unwrap();
}

async fn commit(volume: &Volume, open: &OpenFile) -> Result<(), FsError> {
    let commit = volume.commit(&open.who, open.node, Some(open.open), false);
    timeout(END_TIME_MAX, commit).await.expect("an end")
}

#[test]
fn what_finds_no_room_while_a_removal_is_on_its_way_is_tried_once_more() {
    for (refused, tries, outcome) in [(1, 2, Ok(())), (9, 2, Err(FsError::NoSpace))] {
        for flushes in [true, false] {
            alone(async {
                let log = Shared::default();
                let peer = Peer::start(full(&log, refused)).await;
                let volume = peer.volume_on_one().await;
                look(&volume).await.unwrap().expect("the peer's file");
                let open = create(&volume).await;
                remove_ahead(&volume, &name("file")).await;
                write(&volume, &open).await;
                // At once, with the commit in the same request, or by itself.
                let closed = match flushes {
                    true => commit(&volume, &open).await,
                    false => volume.flush(&open).await,
                };
                assert_eq!(closed, outcome);
                assert_eq!(log.lock().unwrap().tries, tries);
            });
        }
    }
}

#[test]
fn a_creation_that_finds_no_room_while_a_removal_is_on_its_way_is_tried_once_more() {
    for (refused, outcome) in [(1, Ok(())), (9, Err(FsError::NoSpace))] {
        alone(async {
            let log = Shared::default();
            let peer = Peer::start(full(&log, refused)).await;
            let volume = peer.volume_on_one().await;
            look(&volume).await.unwrap().expect("the peer's file");
            let (who, access) = (Principal::root(), Access::ReadWrite);
            volume.list(&who, NodeId::ROOT).await.unwrap();
            create(&volume).await;
            remove_ahead(&volume, &name("file")).await;
            let (creation, begun) = (creation("second"), Instant::now());
            while volume
                .try_create_ahead(&who, &creation, access, false)
                .is_none()
            {
                assert!(begun.elapsed() < END_TIME_MAX, "nothing is created ahead");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let told = volume.open_directory();
            let synced = volume.sync_directory(&who, NodeId::ROOT, &told);
            assert_eq!(
                timeout(END_TIME_MAX, synced).await.expect("an end"),
                outcome
            );
            assert_eq!(log.lock().unwrap().tries, 2);
        });
    }
}

/// What was made ahead and is refused keeps nothing else from being made durable.
#[test]
fn a_creation_that_is_refused_stands_in_no_others_way() {
    alone(async {
        let (log, generous) = (Arc::new(Mutex::new((0, 0))), generous().answer);
        let counted = Arc::clone(&log);
        let answer = move |asked: &crate::peer::Asked, mut said: crate::peer::Said| {
            for (step, result) in asked.steps().iter().zip(said.results_or_none()) {
                if let Ok(StepReply::Created { entry, .. }) = result {
                    (entry.handle, entry.attributes.inode) = (handle("new"), 4);
                }
                let mut counted = counted.lock().unwrap();
                match step {
                    Step::CreateFile { name: made, .. } if *made == name("second") => {
                        *result = Err(FsError::AccessDenied);
                    }
                    Step::Commit { .. } => counted.0 += 1,
                    Step::SyncFileSystem { .. } => counted.1 += 1,
                    _ => {}
                }
            }
            if let Some(failed) = said.results_or_none().iter().position(Result::is_err) {
                said.results().truncate(failed + 1);
            }
            generous(asked, said)
        };
        let (_peer, volume, node) = answered_by(Box::new(answer)).await;
        let who = Principal::root();
        let told = [volume.open_directory(), volume.open_directory()];
        crate::leases::create_ahead(&volume, "second").await;
        let open = volume.open(&who, node, Access::ReadWrite, false);
        let open = open.await.unwrap();
        write(&volume, &open).await;
        let synced = timeout(END_TIME_MAX, volume.sync(&who))
            .await
            .expect("an end");
        assert_eq!(synced, Err(FsError::AccessDenied));
        // The flush is enough for the other one.
        assert_eq!(*log.lock().unwrap(), (0, 1), "commits and syncs");
        assert_eq!(volume.unwritten_bytes(), 0);
        let synced = timeout(END_TIME_MAX, volume.sync(&who))
            .await
            .expect("an end");
        assert_eq!(synced, Ok(()), "it has been told");
        for told in &told {
            let synced = volume.sync_directory(&who, NodeId::ROOT, told);
            assert_eq!(synced.await, Err(FsError::AccessDenied), "not to this one");
        }
    });
}

/// Whoever ends the session looks whether there is something to be told.
#[test]
fn what_was_refused_is_known_until_somebody_is_told() {
    alone(async {
        let generous = generous().answer;
        let answer = move |asked: &crate::peer::Asked, mut said: crate::peer::Said| {
            for (step, result) in asked.steps().iter().zip(said.results_or_none()) {
                match step {
                    Step::CreateFile { name: made, .. } if *made == name("second") => {
                        *result = Err(FsError::AccessDenied);
                    }
                    Step::SyncFileSystem { .. } => return Vec::new(),
                    _ => {}
                }
            }
            generous(asked, said)
        };
        let (_peer, volume, _) = answered_by(Box::new(answer)).await;
        crate::leases::create_ahead(&volume, "second").await;
        let syncing = std::sync::Arc::clone(&volume);
        let sync = tokio::spawn(async move { syncing.sync(&Principal::root()).await });
        // It waits for the flush.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert!(volume.has_unwritten() && !sync.is_finished());
        let told = timeout(END_TIME_MAX, sync).await.expect("an end");
        assert_eq!(told.unwrap(), Err(FsError::AccessDenied));
        assert!(!volume.has_unwritten());
    });
}

/// Nothing of it was done, for others to be answered first.
#[test]
fn what_is_put_off_is_sent_again() {
    for refused in [1, 5] {
        alone(async {
            let shared = Arc::new(Mutex::new(refused));
            let left = Arc::clone(&shared);
            let answer = move |asked: &crate::peer::Asked, mut said: crate::peer::Said| {
                let stores = |step: &Step| {
                    matches!(
                        step,
                        Step::Write { bytes: 1.., .. }
                            | Step::Commit { .. }
                            | Step::SyncFileSystem { .. }
                            | Step::SetAttributes { .. }
                            | Step::Lock { .. }
                    )
                };
                let mut left = left.lock().unwrap();
                if *left > 0 && asked.steps().iter().any(stores) {
                    *left -= 1;
                    said.reply = Reply::Refused(Refusal::Overloaded);
                }
                vec![said.frame(asked.id)]
            };
            let (_peer, volume, node) = answered_by(Box::new(answer)).await;
            let who = Principal::root();
            let open = volume.open(&who, node, Access::ReadWrite, false);
            let open = open.await.unwrap();
            write(&volume, &open).await;
            let put_off = |step: &str| {
                let left = std::mem::replace(&mut *shared.lock().unwrap(), refused);
                assert_eq!(left, 0, "{step} was put off {refused} times");
            };
            assert_eq!(commit(&volume, &open).await, Ok(()));
            put_off("a write with its commit");
            write(&volume, &open).await;
            assert_eq!(volume.flush(&open).await, Ok(()));
            put_off("a write");
            assert_eq!(commit(&volume, &open).await, Ok(()));
            put_off("a commit");
            // Nothing is left but the whole file system.
            let synced = timeout(END_TIME_MAX, volume.sync(&open.who));
            assert_eq!(synced.await.expect("an end"), Ok(()));
            put_off("a sync");
            let longer = AttributeChange {
                size: Some(file().attributes.size),
                ..AttributeChange::default()
            };
            let changed = volume.set_attributes(&open.who, node, longer, Some(open.open));
            changed.await.unwrap();
            put_off("a size");
            let lock = crate::replies::exclusive();
            let never = std::future::pending();
            let locked = volume.lock(&open.who, node, lock, false, never);
            assert_eq!(timeout(END_TIME_MAX, locked).await.expect("an end"), Ok(()));
            put_off("a lock");
        });
    }
}

#[test]
fn what_was_lost_through_one_open_fails_no_close_of_a_later_one() {
    for empties in [false, true] {
        alone(async {
            let log = Shared::default();
            let peer = Peer::start(full(&log, 1)).await;
            let volume = peer.volume_on_one().await;
            let node = look(&volume).await.unwrap().expect("the peer's file").node;
            let who = Principal::root();
            let open = async || {
                let open = volume.open(&who, node, Access::ReadWrite, false);
                open.await.unwrap()
            };
            let first = open().await;
            write(&volume, &first).await;
            assert_eq!(volume.flush(&first).await, Err(FsError::NoSpace));
            volume.release(&first);
            let second = open().await;
            if empties {
                let change = AttributeChange {
                    size: Some(0),
                    ..AttributeChange::default()
                };
                let emptied = volume.set_attributes(&who, node, change, Some(second.open));
                assert_eq!(
                    emptied.await.unwrap().attributes.size,
                    file().attributes.size
                );
            }
            write(&volume, &second).await;
            let closed = [volume.flush(&second).await, volume.flush(&second).await];
            assert_eq!(closed, [Ok(()); 2], "all of it is stored");
            let told = [
                commit(&volume, &second).await,
                commit(&volume, &second).await,
            ];
            let lost = if empties {
                Ok(())
            } else {
                Err(FsError::NoSpace)
            };
            assert_eq!(told, [lost, Ok(())], "no fsync has told it");
        });
    }
}
