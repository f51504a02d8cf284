//! A server that has done nothing of a request, for others to be answered first, or that answers
//! requests in an order that nobody wants: nothing is lost, and nothing is left there.

use crate::alone;
use crate::leases::{create_ahead, generous, notice};
use crate::peer::{
    Asked, END_TIME_MAX, Flood, Lies, Peer, REQUEST_TIME_MAX, Said, file, handle, look,
};
use base::{FsError, Principal};
use client::volume::{OpenFile, Volume};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use wire::frame::Frame;
use wire::message::{Access, Recall, RecallItem, Refusal, Reply, Step, StepReply};

/// What a peer was asked of one kind.
#[derive(Default)]
struct Log {
    /// To be put off so often.
    left: usize,
    /// Done.
    done: usize,
    kept: Vec<Frame>,
    /// What the next flush of the whole file system fails with.
    flush: Option<FsError>,
    recalls: bool,
}

type Shared = Arc<Mutex<Log>>;

/// A peer that puts off what `is_meant`, and does it when it was put off often enough.
fn puts_off(log: &Shared, is_meant: fn(&Step) -> bool) -> Lies {
    let (log, generous) = (Arc::clone(log), generous().answer);
    Lies {
        answer: Box::new(move |asked: &Asked, mut said: Said| {
            let mut log = log.lock().unwrap();
            if asked.steps().iter().any(is_meant) {
                if log.left > 0 {
                    log.left -= 1;
                    said.reply = Reply::Refused(Refusal::Overloaded);
                    return vec![said.frame(asked.id)];
                }
                log.done += 1;
            }
            for result in said.results_or_none() {
                if let Ok(StepReply::Created { entry, .. }) = result {
                    (entry.handle, entry.attributes.inode) = (handle("new"), 4);
                }
            }
            generous(asked, said)
        }),
        ..Lies::default()
    }
}

/// Until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < END_TIME_MAX, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Recalls everything of the peer's file when that is wanted.
fn recalls(log: &Shared) -> Flood {
    let log = log.clone();
    Box::new(move |_| {
        let recalls = std::mem::take(&mut log.lock().unwrap().recalls);
        let item = || RecallItem {
            handle: file().handle,
            what: Recall::Everything,
        };
        recalls.then(|| notice(1, vec![item()]))
    })
}

/// The peer's file, opened.
async fn opened(lies: Lies, access: Access) -> (Peer, Arc<Volume>, OpenFile) {
    let peer = Peer::start(lies).await;
    let volume = peer.volume_on_one().await;
    let node = look(&volume).await.unwrap().expect("the peer's file").node;
    let who = Principal::root();
    let open = volume.open(&who, node, access, false).await.unwrap();
    (peer, volume, open)
}

async fn sync(volume: &Volume) -> Result<(), FsError> {
    let who = Principal::root();
    let synced = timeout(END_TIME_MAX, volume.sync(&who));
    synced.await.expect("an end")
}

#[test]
fn what_was_made_ahead_and_is_put_off_is_sent_again() {
    for left in [1, 5] {
        alone(async {
            let log = Shared::default();
            log.lock().unwrap().left = left;
            let creates = |step: &Step| matches!(step, Step::CreateFile { .. });
            let peer = Peer::start(puts_off(&log, creates)).await;
            let volume = peer.volume_on_one().await;
            look(&volume).await.unwrap().expect("the peer's file");
            create_ahead(&volume, "second").await;
            assert_eq!(sync(&volume).await, Ok(()));
            let log = log.lock().unwrap();
            assert_eq!((log.left, log.done), (0, 1));
        });
    }
}

#[test]
fn a_close_that_is_put_off_is_sent_again() {
    alone(async {
        let log = Shared::default();
        log.lock().unwrap().left = 3;
        let closes = |step: &Step| matches!(step, Step::Close { .. });
        // One that grants no leases: every open is its own.
        let lies = Lies {
            answer: {
                let puts_off = puts_off(&log, closes).answer;
                Box::new(move |asked, said| match asked.steps() {
                    [Step::Close { .. }] => puts_off(asked, said),
                    _ => vec![said.frame(asked.id)],
                })
            },
            ..Lies::default()
        };
        let (_peer, volume, open) = opened(lies, Access::ReadWrite).await;
        volume.release(&open);
        until("it is closed", || log.lock().unwrap().done == 1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let log = log.lock().unwrap();
        assert_eq!((log.left, log.done), (0, 1), "once is enough");
    });
}

/// A recall has an open made at the server that was known here alone. If its close comes to the
/// server first, it closes nothing, and the open would stay for ever.
#[test]
fn an_open_that_comes_to_the_server_behind_its_close_is_closed_once_more() {
    alone(async {
        let log = Shared::default();
        let (answered, generous) = (log.clone(), generous().answer);
        let uses = |step: &Step| matches!(step, Step::Read { bytes: 0, .. });
        let lies = Lies {
            flood: Some(recalls(&log)),
            answer: Box::new(move |asked: &Asked, said: Said| {
                let mut log = answered.lock().unwrap();
                if asked.steps().iter().any(uses) && log.done == 0 {
                    log.kept = generous(asked, said);
                    return Vec::new();
                }
                let is_close = matches!(asked.steps(), [Step::Close { .. }]);
                let mut frames = generous(asked, said);
                if is_close {
                    log.done += 1;
                    frames.append(&mut log.kept);
                }
                frames
            }),
            ..Lies::default()
        };
        let (_peer, volume, open) = opened(lies, Access::Read).await;
        log.lock().unwrap().recalls = true;
        until("the open is made", || !log.lock().unwrap().kept.is_empty()).await;
        volume.release(&open);
        until("it is closed twice", || log.lock().unwrap().done == 2).await;
    });
}

/// A peer whose files are all new, and which answers commits as `answer` does, by how many there
/// were.
fn commits(
    log: &Shared,
    answer: impl Fn(&mut Log, Vec<Frame>) -> Vec<Frame> + Send + Sync + 'static,
) -> Lies {
    let (log, generous) = (log.clone(), generous().answer);
    let commits = |step: &Step| matches!(step, Step::Commit { .. });
    let flushes = |step: &Step| matches!(step, Step::SyncFileSystem { .. });
    Lies {
        answer: Box::new(move |asked: &Asked, mut said: Said| {
            for result in said.results_or_none() {
                if let Ok(StepReply::Created { entry, .. }) = result {
                    let inode = 100 + asked.id.0;
                    let made = handle(&format!("new {inode}"));
                    (entry.handle, entry.attributes.inode) = (made, inode);
                }
            }
            let mut log = log.lock().unwrap();
            if asked.steps().iter().any(flushes)
                && let Some(error) = log.flush.take()
            {
                *said.results() = vec![Err(error)];
            }
            let frames = generous(asked, said);
            if !asked.steps().iter().any(commits) {
                return frames;
            }
            log.done += 1;
            answer(&mut log, frames)
        }),
        ..Lies::default()
    }
}

/// Makes so many files and writes to each. They stay open.
async fn written(volume: &Volume, count: usize) -> Vec<OpenFile> {
    look(volume).await.unwrap().expect("the peer's file");
    let (who, access) = (Principal::root(), Access::ReadWrite);
    let mut opens = Vec::new();
    for number in 0..count {
        let creation = crate::leases::creation(&format!("file {number}"));
        let made = volume.create(&who, &creation, false, access, false, false);
        let open = made.await.unwrap().1;
        let write = crate::replies::write(&open.who, &open, b"xyz");
        volume.write(open.node, write).await.unwrap();
        opens.push(open);
    }
    opens
}

/// As [`sync`], of a peer whose next flush of its file system fails.
async fn sync_without_flush(volume: &Volume, log: &Shared, error: FsError) -> Result<(), FsError> {
    log.lock().unwrap().flush = Some(error);
    sync(volume).await
}

/// The first commit is never answered, and the second one not before the third one is asked for.
#[test]
fn a_sync_commits_files_side_by_side_when_one_keeps_it_waiting() {
    alone(async {
        let log = Shared::default();
        let peer = Peer::start(commits(&log, |log, frames| {
            match log.done {
                1 => {}
                2 => log.kept = frames,
                _ => return log.kept.drain(..).chain(frames).collect(),
            }
            Vec::new()
        }));
        let peer = peer.await;
        let volume = peer.volume().await;
        let _opens = written(&volume, 3).await;
        assert_eq!(
            sync_without_flush(&volume, &log, FsError::TimedOut).await,
            Err(FsError::TimedOut)
        );
        let log = log.lock().unwrap();
        assert_eq!((log.flush, log.kept.len(), log.done), (None, 0, 3));
    });
}

#[test]
fn a_sync_ends_however_many_files_keep_it_waiting() {
    alone(async {
        let log = Shared::default();
        let peer = Peer::start(commits(&log, |_, _| Vec::new())).await;
        let volume = peer.volume().await;
        let _opens = written(&volume, 200).await;
        let begun = Instant::now();
        assert_eq!(
            sync_without_flush(&volume, &log, FsError::TimedOut).await,
            Err(FsError::TimedOut)
        );
        // Those beside each other, and those that took their places.
        assert!(
            begun.elapsed() < 4 * REQUEST_TIME_MAX,
            "{:?}",
            begun.elapsed()
        );
        let asked = log.lock().unwrap().done;
        assert!((2..=128).contains(&asked), "{asked} commits");
    });
}

/// One flush makes all of them durable: over a line, each commit would take its round trip.
#[test]
fn a_sync_flushes_many_files_at_once() {
    alone(async {
        let log = Shared::default();
        let peer = Peer::start(commits(&log, |_, frames| frames)).await;
        let volume = peer.volume_on_one().await;
        // Some are stored, some are on their way, and some are gathered.
        let opens = written(&volume, 900).await;
        for open in opens.iter().step_by(2) {
            assert_eq!(volume.flush(open).await, Ok(()));
        }
        assert_eq!(sync(&volume).await, Ok(()));
        assert_eq!(log.lock().unwrap().done, 0);
        assert!(!volume.has_unwritten());
    });
}

#[test]
fn a_flush_that_fails_is_told_though_each_file_could_be_made_durable() {
    alone(async {
        let log = Shared::default();
        let peer = Peer::start(commits(&log, |_, frames| frames)).await;
        let volume = peer.volume_on_one().await;
        let opens = written(&volume, 3).await;
        assert_eq!(
            sync_without_flush(&volume, &log, FsError::Io).await,
            Err(FsError::Io)
        );
        assert_eq!(log.lock().unwrap().done, 3);
        assert_eq!(sync(&volume).await, Ok(()));
        for open in &opens {
            assert_eq!(
                volume
                    .commit(&open.who, open.node, Some(open.open), false)
                    .await,
                Ok(())
            );
        }
    });
}

#[test]
fn what_nobody_has_heard_of_is_told_once_more() {
    alone(async {
        let log = Shared::default();
        let peer = Peer::start(commits(&log, |_, frames| frames)).await;
        let volume = peer.volume_on_one().await;
        volume.on_unheard(FsError::TimedOut);
        assert!(!volume.has_unwritten());
        volume.on_unheard(FsError::NoSpace);
        assert!(volume.has_unwritten());
        assert_eq!(sync(&volume).await, Err(FsError::NoSpace));
        assert!(!volume.has_unwritten());
        assert_eq!(sync(&volume).await, Ok(()));
    });
}

/// A peer from which all files have been removed by others when they are committed, which happens
/// because somebody wants them; its flush of all ends so. What a sync says then, and how many
/// commits there were before the first flush.
async fn removed_by_others(flush: Option<FsError>) -> (Result<(), FsError>, Option<usize>) {
    let (log, before_flush) = (Shared::default(), Arc::new(OnceLock::new()));
    let (answered, flushed, generous) = (log.clone(), before_flush.clone(), generous().answer);
    let lies = Lies {
        flood: Some(recalls(&log)),
        answer: Box::new(move |asked: &Asked, mut said: Said| {
            let mut log = answered.lock().unwrap();
            for (step, result) in asked.steps().iter().zip(said.results_or_none()) {
                match (step, flush) {
                    (Step::Write { .. }, _) => log.left += 1,
                    (Step::Commit { .. }, _) => {
                        log.done += 1;
                        *result = Err(FsError::Stale);
                    }
                    (Step::SyncFileSystem { .. }, flush) => {
                        flushed.get_or_init(|| log.done);
                        if let Some(error) = flush {
                            *result = Err(error);
                        }
                    }
                    _ => {}
                }
            }
            drop(log);
            generous(asked, said)
        }),
        ..Lies::default()
    };
    let (_peer, volume, open) = opened(lies, Access::ReadWrite).await;
    let write = crate::replies::write(&open.who, &open, b"xyz");
    volume.write(open.node, write).await.unwrap();
    until("it is written", || log.lock().unwrap().left > 0).await;
    // The answer is heard.
    tokio::time::sleep(Duration::from_millis(200)).await;
    log.lock().unwrap().recalls = true;
    until("all is flushed", || before_flush.get().is_some()).await;
    (sync(&volume).await, before_flush.get().copied())
}

/// Whether what it had was durable, nobody can look any more.
#[test]
fn a_file_that_somebody_removes_before_its_commit_is_no_loss_if_a_flush_of_all_succeeds() {
    alone(async {
        assert_eq!(removed_by_others(None).await, (Ok(()), Some(1)));
        let failed = removed_by_others(Some(FsError::Io)).await;
        assert_eq!(failed, (Err(FsError::Io), Some(1)));
    });
}
