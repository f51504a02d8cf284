//! Commits that are sent behind writes: when they are, what is made of any answer, and what becomes
//! of them where the server cannot do with them.

use crate::alone;
use crate::peer::{Answerer, Asked, END_TIME_MAX, Lies, Peer, Said, look};
use base::{FsError, Principal, RequestId};
use client::volume::{OpenFile, Volume};
use std::sync::{Arc, Mutex};
use tokio::time::timeout;
use wire::frame::{Frame, FrameKind};
use wire::message::{Access, Farewell, Features, Step, StepReply, WriteAt};

/// What a server was asked: which writes, and which commits behind which of them.
#[derive(Default)]
struct Log {
    /// Answers to writes that are kept back.
    kept: Vec<Frame>,
    writes: Vec<RequestId>,
    behind: Vec<Vec<RequestId>>,
    /// Other commits.
    commits: usize,
}

type Shared = Arc<Mutex<Log>>;

/// Keeps answers to writes back until a commit behind them comes. That is answered first, by
/// `answer`, then they are, the last one first.
fn keeps_writes(
    log: &Shared,
    answer: impl Fn(&Asked, &mut Said) -> Option<Frame> + Send + Sync + 'static,
) -> Answerer {
    let log = Arc::clone(log);
    Box::new(move |asked, mut said| {
        let mut log = log.lock().unwrap();
        match asked.steps() {
            [Step::Write { bytes, .. }] if *bytes > 0 => {
                log.writes.push(asked.id);
                log.kept.push(said.frame(asked.id));
                Vec::new()
            }
            [Step::After { requests }, Step::Commit { .. }] => {
                log.behind.push(requests.clone());
                let frame = answer(asked, &mut said);
                let mut frames = vec![frame.unwrap_or_else(|| said.frame(asked.id))];
                frames.extend(log.kept.drain(..).rev());
                frames
            }
            [.., Step::Commit { .. }] => {
                log.commits += 1;
                vec![said.frame(asked.id)]
            }
            _ => vec![said.frame(asked.id)],
        }
    })
}

/// A volume and a file of it, open.
struct Opened {
    _peer: Peer,
    volume: Arc<Volume>,
    open: OpenFile,
}

impl Opened {
    async fn new(lies: Lies) -> Self {
        let peer = Peer::start(lies).await;
        let volume = peer.volume_on_one().await;
        let who = Principal::root();
        let node = look(&volume).await.unwrap().unwrap().node;
        let open = volume.open(&who, node, Access::ReadWrite, false);
        let open = open.await.unwrap();
        Self {
            _peer: peer,
            volume,
            open,
        }
    }

    /// Writes three pieces that do not touch.
    async fn write(&self) {
        for offset in [0, 100_000, 200_000] {
            let mut write = crate::replies::write(&Principal::root(), &self.open, b"xyz");
            write.offset = offset;
            self.volume.write(self.open.node, write).await.unwrap();
        }
    }

    async fn sync(&self) -> Result<(), FsError> {
        let who = Principal::root();
        let commit = self
            .volume
            .commit(&who, self.open.node, Some(self.open.open), false);
        timeout(END_TIME_MAX, commit).await.expect("an end")
    }
}

fn lies(log: &Shared, answer: impl Fn(&mut Said) + Send + Sync + 'static) -> Lies {
    Lies {
        answer: keeps_writes(log, move |_, said| {
            answer(said);
            None
        }),
        ..Lies::default()
    }
}

#[test]
fn a_commit_goes_behind_writes_that_are_not_answered_and_is_heard_with_them() {
    alone(async {
        let log = Shared::default();
        let opened = Opened::new(lies(&log, |_| {})).await;
        for round in 1..=3 {
            opened.write().await;
            assert_eq!(opened.sync().await, Ok(()));
            let log = log.lock().unwrap();
            // Exactly what was on its way, and nothing more had to be asked.
            assert_eq!((log.behind.len(), log.commits), (round, 0));
            assert_eq!(log.behind[round - 1], log.writes[3 * (round - 1)..]);
            assert_eq!(opened.volume.unwritten_bytes(), 0);
        }
    });
}

#[test]
fn a_write_that_has_failed_is_not_durable_because_the_commit_behind_it_succeeded() {
    alone(async {
        let log = Shared::default();
        let inner = keeps_writes(&log, |_, _| None);
        let answer: Answerer = Box::new(move |asked, mut said| {
            let second = WriteAt::Offset(100_000);
            if let ([Step::Write { at, .. }], [result]) = (asked.steps(), said.results_or_none())
                && *at == second
            {
                *result = Err(FsError::NoSpace);
            }
            inner(asked, said)
        });
        let opened = Opened::new(Lies {
            answer,
            ..Lies::default()
        })
        .await;
        opened.write().await;
        assert_eq!(opened.sync().await, Err(FsError::NoSpace));
        assert_eq!(opened.sync().await, Ok(()), "it is told once");
        assert_eq!(log.lock().unwrap().behind.len(), 1);
    });
}

#[test]
fn what_was_stored_in_part_is_committed_once_more() {
    alone(async {
        let log = Shared::default();
        let inner = keeps_writes(&log, |_, _| None);
        let counted = Arc::clone(&log);
        let answer: Answerer = Box::new(move |asked, mut said| {
            let begun = counted.lock().unwrap().behind.is_empty();
            if let [Ok(StepReply::Written { bytes, .. })] = said.results_or_none()
                && begun
            {
                *bytes = (*bytes).min(2);
            }
            // Later writes are not kept back.
            match asked.steps() {
                [Step::Write { .. }] if !begun => vec![said.frame(asked.id)],
                _ => inner(asked, said),
            }
        });
        let opened = Opened::new(Lies {
            answer,
            ..Lies::default()
        })
        .await;
        opened.write().await;
        assert_eq!(opened.sync().await, Ok(()));
        assert_eq!(opened.volume.unwritten_bytes(), 0);
        let log = log.lock().unwrap();
        assert!(log.behind.len() + log.commits >= 2, "the rest came later");
    });
}

#[test]
fn a_flush_that_has_failed_is_told_and_one_that_was_refused_follows_the_writes() {
    alone(async {
        for (step, error, wanted) in [
            (1, FsError::Io, Err(FsError::Io)),
            (0, FsError::WouldBlock, Ok(())),
            (0, FsError::TimedOut, Ok(())),
        ] {
            let log = Shared::default();
            let refuse = move |said: &mut Said| {
                said.results().truncate(step);
                said.results().push(Err(error));
            };
            let opened = Opened::new(lies(&log, refuse)).await;
            opened.write().await;
            assert_eq!(opened.sync().await, wanted, "{error}");
            assert_eq!(opened.volume.unwritten_bytes(), 0, "{error}");
            let log = log.lock().unwrap();
            assert_eq!((log.behind.len(), log.commits), (1, 1 - step), "{error}");
        }
    });
}

#[test]
fn a_server_that_does_not_know_it_is_not_asked() {
    alone(async {
        let log = Shared::default();
        let inner = keeps_writes(&log, |_, _| None);
        let asked_for = Arc::clone(&log);
        let opened = Opened::new(Lies {
            welcome: |_, welcome| welcome.features = Features::MANAGERS,
            answer: Box::new(move |asked, said| {
                let mut frames = inner(asked, said);
                frames.append(&mut asked_for.lock().unwrap().kept);
                frames
            }),
            ..Lies::default()
        })
        .await;
        opened.write().await;
        assert_eq!(opened.sync().await, Ok(()));
        let log = log.lock().unwrap();
        assert_eq!((log.behind.len(), log.commits), (0, 1));
    });
}

#[test]
fn a_server_that_knows_it_no_more_is_not_asked_again() {
    alone(async {
        // The connection breaks in the answer to it, and the next one is to an older server.
        let log = Shared::default();
        let farewell = |_: &Asked, _: &mut Said| {
            let farewell = Farewell::Stopping;
            Some(wire::message::frame(
                FrameKind::Farewell,
                RequestId(0),
                &farewell,
            ))
        };
        let inner = keeps_writes(&log, farewell);
        let asked_for = Arc::clone(&log);
        let opened = Opened::new(Lies {
            welcome: |number, welcome| {
                if number > 0 {
                    welcome.features = Features::default();
                }
            },
            answer: Box::new(move |asked, said| {
                let is_old = !asked_for.lock().unwrap().behind.is_empty();
                let mut frames = inner(asked, said);
                if is_old {
                    frames.append(&mut asked_for.lock().unwrap().kept);
                }
                frames
            }),
            ..Lies::default()
        })
        .await;
        opened.write().await;
        assert_eq!(opened.sync().await, Ok(()));
        assert_eq!(opened.volume.unwritten_bytes(), 0);
        let log = log.lock().unwrap();
        assert_eq!((log.behind.len(), log.commits), (1, 1));
    });
}
