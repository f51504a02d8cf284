//! What the transport's lock guards: the session, the two link estimators and who waits.

use super::bulk::Bulk;
use super::{CallError, Response, UNKNOWN, warming};
use crate::clock::{boot_time, now};
use base::{BootId, RequestId, Time, WriteVerifier};
use readahead::{Changes, Line, LineMemory, LinkEstimator, Sent};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::sync::oneshot;
use wire::frame::{Frame, FrameKind};
use wire::message::{Expected, ExpectedObjects, Features, Welcome};
use wire::session::{ClientSession, ConnectionIndex, Windows};

/// Who waits for an answer.
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Result<Response, CallError>>,
    pub(super) recalls_seen: u64,
    /// What may be answered to steps and of objects; `None` for other requests.
    pub(super) expected: Option<Answers>,
    /// What a server must have to read the request.
    pub(super) needs: Features,
}

/// What may be answered.
pub(super) enum Answers {
    Files { expected: Expected, is_change: bool },
    Objects(ExpectedObjects),
}

/// How a request left the line.
#[derive(Clone, Copy)]
pub(super) struct Delivered {
    pub(super) bytes_received: u64,
    pub(super) bytes_written: u64,
    pub(super) server_time: Duration,
    /// Its time says nothing: it was sent twice.
    pub(super) resent: bool,
}

/// One session's state.
pub(super) struct State {
    pub(super) session: ClientSession,
    pub(super) waiters: HashMap<RequestId, Waiter>,
    /// Changes that were given up while they were on a line: the server may make them all the same.
    late: BTreeSet<RequestId>,
    /// Tokens of the two estimators for requests on the line.
    sent: HashMap<RequestId, (Option<Sent>, Option<Sent>)>,
    pub(super) download: LinkEstimator,
    pub(super) upload: LinkEstimator,
    pub(super) boot: Option<BootId>,
    /// What the main connection was told last of objects.
    pub(super) store_verifier: Option<WriteVerifier>,
    /// The run that a connection has found last.
    pub(super) last_run: Option<BootId>,
    /// What the server has, as it said last.
    pub(super) features: Features,
    /// Of the main connection: the round trip, before there is a better figure.
    greeting_time: Duration,
    /// By connection.
    pub(super) bulk: Vec<Bulk>,
    /// What the estimators last said of changes of the line: download, upload.
    changes: (Changes, Changes),
    /// The server is asked to end the session, or about to be.
    pub(super) is_parting: bool,
    /// The request that ends the session.
    pub(super) goodbye: Option<RequestId>,
    /// Nothing is carried any more.
    pub(super) closed: bool,
}

impl State {
    /// For `connections` connections, with windows of at most `window_bytes_max` and what is
    /// remembered of the line: download, upload.
    pub(super) fn new(
        connections: usize,
        window_bytes_max: u64,
        line: (Option<LineMemory>, Option<LineMemory>),
    ) -> Self {
        let estimator = |memory: Option<LineMemory>| match memory {
            Some(memory) => LinkEstimator::from_memory(window_bytes_max, memory),
            None => LinkEstimator::new(window_bytes_max),
        };
        Self {
            session: ClientSession::new(connections, RequestId(1)),
            waiters: HashMap::new(),
            late: BTreeSet::new(),
            sent: HashMap::new(),
            download: estimator(line.0),
            upload: estimator(line.1),
            boot: None,
            store_verifier: None,
            last_run: None,
            features: Features::default(),
            greeting_time: Duration::ZERO,
            bulk: (0..connections).map(|_| Bulk::default()).collect(),
            changes: (Changes::default(), Changes::default()),
            is_parting: false,
            goodbye: None,
            closed: false,
        }
    }

    /// The main connection is welcomed, `time` after it was asked.
    pub(super) fn on_greeted(&mut self, welcome: &Welcome, time: Duration) {
        self.boot = Some(welcome.boot);
        self.store_verifier = Some(welcome.store_verifier);
        self.greeting_time = time;
        self.download.expect_rtt(time);
        self.upload.expect_rtt(time);
    }

    /// A connection is welcomed by this run of the server. Whether it is another one than those of
    /// the connections before.
    pub(super) fn on_run(&mut self, run: BootId) -> bool {
        let last = self.last_run.replace(run);
        last.is_some_and(|last| last != run)
    }

    /// A connection is welcomed by a server that has these abilities. What it could not read is
    /// given up: it would end each connection that brought it such a request again.
    pub(super) fn on_features(&mut self, features: Features) {
        self.features = features;
        let unreadable = self
            .waiters
            .iter()
            .filter(|(_, it)| !features.have(it.needs));
        let unreadable: Vec<RequestId> = unreadable.map(|(id, _)| *id).collect();
        for id in unreadable {
            self.session.cancel(id);
            if let Some(waiter) = self.waiters.remove(&id) {
                let _ = waiter.answer.send(Err(UNKNOWN));
            }
        }
    }

    /// Ends everything; who still waits is told so.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.session.abort();
        for (_, waiter) in self.waiters.drain() {
            let _ = waiter.answer.send(Err(CallError::Closed));
        }
    }

    /// The server does not know the session: if it was asked to end it, that has happened. Says
    /// whether it was.
    pub(super) fn end_after_goodbye(&mut self) -> bool {
        if self.is_parting {
            self.close();
        }
        self.is_parting
    }

    /// Whether a connection that breaks is not made again. For the goodbye the main one is.
    pub(super) fn is_over(&self, connection: usize) -> bool {
        self.closed || (connection > 0 && self.is_parting)
    }

    /// The line towards the client. As long as no data has shown the round trip, it is that of the
    /// greeting.
    pub(super) fn line(&self) -> Line {
        let mut line = self.download.line();
        if line.rtt.is_zero() {
            line.rtt = self.greeting_time;
        }
        line
    }

    /// Whether slow start at the other end costs round trips that somebody would notice.
    pub(super) fn is_far(&self) -> bool {
        self.line().rtt >= warming::DISTANCE && self.session.connections() > 1
    }

    /// Tells the estimators that a request left the line; `None` if its reply was not wanted.
    pub(super) fn settle_link(&mut self, now: Time, id: RequestId, delivered: Option<Delivered>) {
        let Some((download, upload)) = self.sent.remove(&id) else {
            return;
        };
        match delivered {
            Some(delivered) if !delivered.resent => {
                let time = delivered.server_time;
                if let Some(sent) = download {
                    self.download
                        .on_reply(now, sent, delivered.bytes_received, time);
                }
                if let Some(sent) = upload {
                    self.upload
                        .on_reply(now, sent, delivered.bytes_written, time);
                }
                self.note_changes();
            }
            _ => {
                if let Some(sent) = download {
                    self.download.on_cancelled(now, sent);
                }
                if let Some(sent) = upload {
                    self.upload.on_cancelled(now, sent);
                }
            }
        }
    }

    /// Lets TCP know what the estimators found out.
    fn note_changes(&mut self) {
        let (download, upload) = (self.download.changes(), self.upload.changes());
        let (download_before, upload_before) = self.changes;
        if (download, upload) == self.changes {
            return;
        }
        self.changes = (download, upload);
        if !self.is_far() {
            return;
        }
        for bulk in self.bulk.iter_mut().skip(1) {
            if upload != upload_before {
                bulk.on_upload_changed(upload.longer > upload_before.longer);
            }
            if download != download_before {
                bulk.on_download_changed(download.longer > download_before.longer);
            }
        }
    }

    /// A request is given up that the session knows no more or will not answer. Returns who waits.
    pub(super) fn give_up(&mut self, id: RequestId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        let is_change = matches!(
            waiter.expected,
            Some(Answers::Files {
                is_change: true,
                ..
            })
        );
        if is_change && self.session.is_on_line(id) {
            self.late.insert(id);
        }
        Some(waiter)
    }

    /// A reply came for which nobody waits; whether it is that of a change that was given up.
    pub(super) fn is_late_change(&mut self, id: RequestId) -> bool {
        self.late.remove(&id)
    }

    /// After a connection broke: tokens of requests that are not on any line any more. Whether a
    /// change is among them that was given up before and may have been made.
    pub(super) fn forget_lost(&mut self) -> bool {
        let now = now();
        let lost: Vec<_> = self
            .sent
            .keys()
            .filter(|id| !self.session.is_on_line(**id))
            .copied()
            .collect();
        for id in lost {
            self.settle_link(now, id, None);
        }
        let known = self.late.len();
        self.late.retain(|id| self.session.is_on_line(*id));
        self.late.len() < known
    }

    /// What may be on the line, after the session was told of its distance.
    fn windows(&mut self) -> Windows {
        let is_far = self.is_far();
        self.session.spread_demand(is_far);
        Windows {
            read_bytes: self.download.window_bytes(),
            write_bytes: self.upload.window_bytes(),
        }
    }

    /// See [`wire::session::ClientSession::ready_connection`].
    pub(super) fn ready_connection(&mut self) -> Option<ConnectionIndex> {
        let windows = self.windows();
        self.session.ready_connection(windows)
    }

    /// The next frame for a connection, accounted for.
    pub(super) fn next_frame(&mut self, connection: ConnectionIndex) -> Option<Frame> {
        if self.session.is_up(connection) {
            let is_idle = self.session.is_idle(connection);
            if let Some(frame) = self.bulk[connection.0].next_frame(is_idle) {
                return Some(frame);
            }
        }
        let now = now();
        let windows = self.windows();
        // By this the leases are believed.
        let sent = boot_time();
        let frame = self.session.poll_transmit(sent, connection, windows)?;
        if frame.kind == FrameKind::Request {
            let expected = self.session.reply_bytes(frame.request);
            let download = (expected > 0).then(|| self.download.on_sent(now, expected));
            let written = frame.payload.len() as u64;
            let upload = (written > 0).then(|| self.upload.on_sent(now, written));
            if download.is_some() || upload.is_some() {
                self.sent.insert(frame.request, (download, upload));
            }
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::frame::Class;
    use wire::session::Submission;

    #[test]
    fn what_an_older_server_could_not_read_is_given_up_before_it_is_sent_there() {
        let mut state = State::new(2, 1 << 20, (None, None));
        state.on_features(Features::OURS);
        let mut heard = [Features::AFTER, Features::default()].map(|needs| {
            let submission = Submission {
                class: Class::Write,
                body: bytes::Bytes::from_static(b"body"),
                payload: bytes::Bytes::new(),
                reply_bytes: 0,
                deadline: Time::MAX,
            };
            let id = state.session.submit(submission).unwrap();
            let (answer, heard) = oneshot::channel();
            let waiter = Waiter {
                answer,
                recalls_seen: 0,
                expected: None,
                needs,
            };
            state.waiters.insert(id, waiter);
            heard
        });
        // It was on the line when the connection broke.
        state.session.handle_up(ConnectionIndex(1));
        assert_eq!(state.next_frame(ConnectionIndex(1)).unwrap().request.0, 1);
        state.session.handle_down(ConnectionIndex(1));
        state.on_features(Features::MANAGERS);
        state.session.handle_up(ConnectionIndex(1));
        let frames: Vec<_> = std::iter::from_fn(|| state.next_frame(ConnectionIndex(1))).collect();
        let sent: Vec<_> = frames.iter().map(|it| (it.kind, it.request.0)).collect();
        assert_eq!(sent, [(FrameKind::Cancel, 1), (FrameKind::Request, 2)]);
        assert!(matches!(heard[0].try_recv(), Ok(Err(error)) if error == UNKNOWN));
        assert!(heard[1].try_recv().is_err(), "this one goes on");
    }

    #[test]
    fn a_session_that_the_server_has_ended_as_asked_is_over() {
        let mut state = State::new(2, 1 << 20, (None, None));
        assert!(!state.end_after_goodbye() && !state.is_over(0));
        let goodbye = RequestId(7);
        state.is_parting = true;
        let (answer, mut heard) = oneshot::channel();
        let waiter = Waiter {
            answer,
            recalls_seen: 0,
            expected: None,
            needs: Features::default(),
        };
        state.waiters.insert(goodbye, waiter);
        assert!(!state.is_over(0) && state.is_over(1));
        assert!(state.end_after_goodbye() && state.is_over(0));
        // Who said goodbye waits no longer.
        assert!(matches!(heard.try_recv(), Ok(Err(CallError::Closed))));
    }
}
