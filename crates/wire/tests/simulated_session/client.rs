//! The client: the session, the two link estimators, and the book that is kept beside them.

use base::{Handle, LockOwner, OpenId, Principal, RequestId, Time};
use bytes::Bytes;
use readahead::{LinkEstimator, Sent};
use sim::ConnectionId;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frame::{Class, Frame, FrameKind};
use wire::message::{
    Compound, FileRef, LockKind, LockMode, LockRange, Reply, Request, Settled, Step, Target,
    WriteAt, decode, encode,
};
use wire::session::{ClientSession, ConnectionIndex, Submission, Windows};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Reads this many bytes: may run any number of times.
    Read(u32),
    /// Appends this many bytes: must not run twice.
    Append(u32),
    /// Closes an open: must not run twice, no data.
    Close,
    /// Waits for a lock, as long as it takes.
    Lock,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered { reply: Reply, payload_bytes: u64 },
    Expired,
    TakenBack,
}

/// A request as the client's book has it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) what: What,
    pub(crate) class: Class,
    pub(crate) at: Time,
    pub(crate) deadline: Time,
    pub(crate) end: Option<(Time, End)>,
}

pub(crate) struct Client {
    pub(crate) session: ClientSession,
    pub(crate) download: LinkEstimator,
    pub(crate) upload: LinkEstimator,
    tokens: BTreeMap<RequestId, (Option<Sent>, Option<Sent>)>,
    /// The connection of each slot, while it stands.
    pub(crate) slots: Vec<Option<ConnectionId>>,
    pub(crate) book: BTreeMap<RequestId, Asked>,
    settled: Settled,
    data: Bytes,
}

impl Client {
    pub(crate) fn new(connections: usize, window_bytes_cap: u64) -> Self {
        Self {
            session: ClientSession::new(connections, RequestId(1)),
            download: LinkEstimator::new(window_bytes_cap),
            upload: LinkEstimator::new(window_bytes_cap),
            tokens: BTreeMap::new(),
            slots: vec![None; connections],
            book: BTreeMap::new(),
            settled: Settled::default(),
            data: Bytes::from(vec![0; 1 << 20]),
        }
    }

    pub(crate) fn submit(
        &mut self,
        now: Time,
        class: Class,
        what: What,
        time_max: Option<Duration>,
    ) -> RequestId {
        let settled = self.session.settled();
        let mut known = self.settled.clone();
        known.advance(&settled);
        assert_eq!(known, settled, "after {:?}", self.settled);
        self.settled.clone_from(&settled);
        let body = encode(&Request::Files(Compound {
            who: Principal::root(),
            settled,
            steps: vec![step(what)],
        }));
        let (payload, reply_bytes) = match what {
            What::Append(bytes) => (self.data.slice(..bytes as usize), 0),
            What::Read(bytes) => (Bytes::new(), u64::from(bytes)),
            What::Close | What::Lock => (Bytes::new(), 0),
        };
        let deadline = time_max.map_or(Time::MAX, |time_max| now + time_max);
        let submission = Submission {
            class,
            body,
            payload,
            reply_bytes,
            deadline,
        };
        let id = self.session.submit(submission).unwrap();
        let asked = Asked {
            what,
            class,
            at: now,
            deadline,
            end: None,
        };
        assert!(self.book.insert(id, asked).is_none(), "{id} was used twice");
        id
    }

    /// Takes back what has not ended.
    pub(crate) fn take_back(&mut self, now: Time, id: RequestId) {
        if self.book[&id].end.is_none() {
            self.session.cancel(id);
            self.end(now, id, End::TakenBack);
        }
    }

    /// The next frame for a slot that stands. The rules of windows and connections are checked
    /// here, frame by frame.
    pub(crate) fn poll_transmit(&mut self, now: Time, slot: usize) -> Option<Frame> {
        let windows = Windows {
            read_bytes: self.download.window_bytes(),
            write_bytes: self.upload.window_bytes(),
        };
        let before = self.session.in_flight();
        let connection = ConnectionIndex(slot);
        let frame = self.session.poll_transmit(now, connection, windows)?;
        if frame.kind == FrameKind::Cancel {
            return Some(frame);
        }
        let id = frame.request;
        let reading = self.session.reply_bytes(id);
        let writing = frame.payload.len() as u64;
        assert!(self.book[&id].end.is_none(), "{id} is sent after its end");
        let bulk_up = self.slots[1..].iter().any(Option::is_some);
        match frame.class {
            Class::Metadata => assert!(slot == 0 || self.slots[0].is_none()),
            Class::Demand => {}
            Class::Write | Class::Prediction | Class::Background => {
                assert!(slot > 0 || !bulk_up, "bulk on the main connection");
                let read = (before.read_bytes, reading, windows.read_bytes);
                let write = (before.write_bytes, writing, windows.write_bytes);
                for (in_flight, more, window) in [read, write] {
                    let fits = in_flight + more <= window;
                    assert!(more == 0 || in_flight == 0 || fits, "{in_flight} + {more}");
                }
            }
        }
        let download = (reading > 0).then(|| self.download.on_sent(now, reading));
        let upload = (writing > 0).then(|| self.upload.on_sent(now, writing));
        if download.is_some() || upload.is_some() {
            self.tokens.insert(id, (download, upload));
        }
        self.check_accounts();
        Some(frame)
    }

    pub(crate) fn handle_frame(&mut self, now: Time, slot: usize, frame: &Frame) {
        assert_eq!(frame.kind, FrameKind::Reply);
        let id = frame.request;
        let reply: Reply = decode(&frame.body).unwrap();
        let server_time = match &reply {
            Reply::Files(files) => Duration::from_micros(u64::from(files.server_micros)),
            _ => Duration::ZERO,
        };
        let payload_bytes = frame.payload.len() as u64;
        let Some(answered) = self.session.handle_reply(ConnectionIndex(slot), id) else {
            self.settle_link(now, id, None);
            return self.check_accounts();
        };
        let outcome = (payload_bytes, answered.written_bytes, server_time);
        self.settle_link(now, id, (!answered.resent).then_some(outcome));
        self.check_accounts();
        let answer = End::Answered {
            reply,
            payload_bytes,
        };
        self.end(now, id, answer);
    }

    pub(crate) fn handle_up(&mut self, slot: usize, connection: ConnectionId) {
        self.slots[slot] = Some(connection);
        self.session.handle_up(ConnectionIndex(slot));
    }

    pub(crate) fn handle_down(&mut self, now: Time, slot: usize) {
        self.slots[slot] = None;
        self.session.handle_down(ConnectionIndex(slot));
        let lost = self.tokens.keys().copied();
        let lost: Vec<_> = lost.filter(|id| !self.session.is_on_line(*id)).collect();
        for id in lost {
            self.settle_link(now, id, None);
        }
        self.check_accounts();
    }

    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(id) = self.session.poll_expired(now) {
            assert!(self.book[&id].deadline <= now, "{id} expired early");
            self.end(now, id, End::Expired);
        }
    }

    fn end(&mut self, now: Time, id: RequestId, end: End) {
        let asked = self.book.get_mut(&id).unwrap();
        let before = asked.end.replace((now, end));
        assert!(
            before.is_none(),
            "{id} ended twice: {before:?} and {asked:?}"
        );
    }

    fn settle_link(&mut self, now: Time, id: RequestId, outcome: Option<(u64, u64, Duration)>) {
        let Some((download, upload)) = self.tokens.remove(&id) else {
            return;
        };
        let each = [(download, &mut self.download), (upload, &mut self.upload)];
        for (at, (sent, link)) in each.into_iter().enumerate() {
            match (sent, outcome) {
                (Some(sent), Some((read, written, server_time))) => {
                    link.on_reply(now, sent, [read, written][at], server_time);
                }
                (Some(sent), None) => link.on_cancelled(now, sent),
                (None, _) => {}
            }
        }
    }

    /// The session and the estimators count the same bytes.
    fn check_accounts(&self) {
        let in_flight = self.session.in_flight();
        let estimators = (
            self.download.in_flight_bytes(),
            self.upload.in_flight_bytes(),
        );
        assert_eq!((in_flight.read_bytes, in_flight.write_bytes), estimators);
    }
}

fn step(what: What) -> Step {
    let target = Target::Handle(Handle::new(b"file").unwrap());
    let file = FileRef {
        target: target.clone(),
        open: None,
    };
    match what {
        What::Read(bytes) => Step::Read {
            file,
            offset: 0,
            bytes,
        },
        What::Append(bytes) => Step::Write {
            file,
            at: WriteAt::End,
            bytes,
        },
        What::Close => Step::Close { open: OpenId(1) },
        What::Lock => Step::Lock {
            target,
            lock: LockRange {
                kind: LockKind::Flock,
                mode: LockMode::Exclusive,
                extent: base::Extent::new(0, u64::MAX),
                owner: LockOwner(1),
                pid: 1,
            },
            wait: true,
            reclaim: false,
        },
    }
}
