//! A model of a server, from its documented rules (`docs/formats/wire.md`, "Again, and never
//! twice").
//!
//! Every request is carried out at one moment, some time after it arrived. One that changes
//! something is entered in the table when its first copy arrives, whichever that is; the reply goes
//! to all connections on which copies come, because the first copy may come last and its connection
//! be dead. What the client has settled is forgotten, and a copy that comes after that is dropped.
//! A server that has restarted cannot tell whether a change that is sent again has run, and says
//! so.

use base::{Attributes, FileKind, RequestId, Time, Timestamp};
use bytes::Bytes;
use sim::{Agenda, ConnectionId, Random};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frame::{Class, Frame, FrameKind};
use wire::message::{
    CompoundReply, Refusal, Reply, Request, Settled, Step, StepReply, decode, encode,
};

/// A frame, and the connections that it goes on.
pub(crate) type Sending = (Vec<ConnectionId>, Frame);

enum Remembered {
    /// The connections on which copies came. The client hears only the right one.
    Running(Vec<ConnectionId>),
    Done(Frame),
}

struct Job {
    id: RequestId,
    to: ConnectionId,
    class: Class,
    step: Step,
    arrived: Time,
    changes: bool,
}

pub(crate) struct Server {
    random: Random,
    /// How long an ordinary request takes at most, and how long somebody waits for a lock at most.
    service_time_max: Duration,
    lock_time_max: Duration,
    jobs: Agenda<Job>,
    waiting: BTreeMap<(RequestId, ConnectionId), sim::EventId>,
    table: BTreeMap<RequestId, Remembered>,
    settled: Settled,
    /// Which requests that change something have run, and as the how manieth change.
    pub(crate) executed: BTreeMap<RequestId, u64>,
    pub(crate) late_copies: u64,
    pub(crate) kept_replies: u64,
    pub(crate) unknown_outcomes: u64,
    /// Whether the session began in this run of the server, so that the table knows all its
    /// changes.
    began_here: bool,
    data: Bytes,
}

impl Server {
    pub(crate) fn new(random: Random, service_time_max: Duration, lock_time_max: Duration) -> Self {
        Self {
            random,
            service_time_max,
            lock_time_max,
            jobs: Agenda::new(),
            waiting: BTreeMap::new(),
            table: BTreeMap::new(),
            settled: Settled::default(),
            executed: BTreeMap::new(),
            late_copies: 0,
            kept_replies: 0,
            unknown_outcomes: 0,
            began_here: true,
            data: Bytes::from(vec![0; 1 << 20]),
        }
    }

    /// A frame has arrived. Some are answered at once.
    pub(crate) fn handle_frame(
        &mut self,
        now: Time,
        connection: ConnectionId,
        frame: &Frame,
    ) -> Option<Sending> {
        match frame.kind {
            FrameKind::Request => self.handle_request(now, connection, frame),
            FrameKind::Cancel => self.handle_cancel(connection, frame.request),
            kind => panic!("a client sends no {kind:?} here"),
        }
    }

    fn handle_request(&mut self, now: Time, to: ConnectionId, frame: &Frame) -> Option<Sending> {
        let Ok(Request::Files(mut compound)) = decode(&frame.body) else {
            panic!("a body that is no compound");
        };
        let id = frame.request;
        let step = compound.steps.remove(0);
        let changes = !matches!(step, Step::Read { .. });
        self.settle(&compound.settled);
        if changes {
            if self.settled.covers(id) {
                self.late_copies += 1;
                return None;
            }
            match self.table.get_mut(&id) {
                Some(Remembered::Running(destinations)) => {
                    destinations.push(to);
                    return None;
                }
                Some(Remembered::Done(reply)) => {
                    self.kept_replies += 1;
                    return Some((vec![to], reply.clone()));
                }
                None if frame.resent && !self.began_here => {
                    self.unknown_outcomes += 1;
                    let reply = Reply::Refused(Refusal::OutcomeUnknown);
                    let frame = reply_frame(id, frame.class, &reply, Bytes::new());
                    return Some((vec![to], frame));
                }
                None => _ = self.table.insert(id, Remembered::Running(vec![to])),
            }
        }
        let time = match step {
            Step::Lock { .. } => self.random.up_to(self.lock_time_max),
            _ => self.random.up_to(self.service_time_max),
        };
        let job = Job {
            id,
            to,
            class: frame.class,
            step,
            arrived: now,
            changes,
        };
        let event = self.jobs.at(now + time, job);
        self.waiting.insert((id, to), event);
        None
    }

    /// Another run: what was being done and what was remembered is gone, what was done is done.
    pub(crate) fn restart(&mut self) {
        self.jobs = Agenda::new();
        self.waiting.clear();
        self.table.clear();
        self.settled = Settled::default();
        self.began_here = false;
    }

    fn settle(&mut self, settled: &Settled) {
        self.settled.advance(settled);
        let settled = &self.settled;
        self.table
            .retain(|id, entry| !settled.covers(*id) || matches!(entry, Remembered::Running(_)));
    }

    /// What has not begun is refused, and answered so: every request has one reply.
    fn handle_cancel(&mut self, connection: ConnectionId, id: RequestId) -> Option<Sending> {
        // The first copy may have come on another connection; only one of a change is waiting.
        let same = |at: &(RequestId, ConnectionId)| at.0 == id;
        let key = match self.waiting.keys().find(|at| **at == (id, connection)) {
            Some(key) => *key,
            None => *self
                .waiting
                .keys()
                .filter(|at| same(at))
                .find(|at| self.table.contains_key(&at.0))?,
        };
        let event = self.waiting.remove(&key)?;
        let job = self.jobs.cancel(event)?;
        let reply = reply_frame(
            id,
            job.class,
            &Reply::Refused(Refusal::Cancelled),
            Bytes::new(),
        );
        let to = match self.table.remove(&id) {
            Some(Remembered::Running(to)) => to,
            Some(Remembered::Done(_)) | None => vec![job.to],
        };
        Some((to, reply))
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.jobs.next_time()
    }

    /// Carries out what is due; the reply and its connection, which may be gone.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Sending> {
        let job = self.jobs.poll(now)?;
        self.waiting.remove(&(job.id, job.to));
        let ordinal = self.executed.len() as u64;
        if job.changes {
            let before = self.executed.insert(job.id, ordinal);
            assert_eq!(before, None, "{} ran twice", job.id);
        }
        let (reply, payload) = match job.step {
            Step::Read { bytes, .. } => {
                let data = StepReply::Data {
                    bytes,
                    end_of_file: false,
                };
                (data, self.data.slice(..bytes as usize))
            }
            Step::Write { bytes, .. } => (written(ordinal, bytes), Bytes::new()),
            _ => (StepReply::Done, Bytes::new()),
        };
        let micros = now.since(job.arrived).as_micros();
        let reply = Reply::Files(CompoundReply {
            results: vec![Ok(reply)],
            server_micros: u32::try_from(micros).unwrap(),
        });
        let frame = reply_frame(job.id, job.class, &reply, payload);
        if !job.changes {
            return Some((vec![job.to], frame));
        }
        let entry = if self.settled.covers(job.id) {
            self.table.remove(&job.id)
        } else {
            self.table.insert(job.id, Remembered::Done(frame.clone()))
        };
        match entry {
            Some(Remembered::Running(to)) => Some((to, frame)),
            Some(Remembered::Done(_)) | None => panic!("{} ran without its entry", job.id),
        }
    }

    /// How many replies are kept.
    pub(crate) fn remembered(&self) -> usize {
        self.table.len()
    }
}

fn reply_frame(request: RequestId, class: Class, reply: &Reply, payload: Bytes) -> Frame {
    Frame {
        kind: FrameKind::Reply,
        class,
        resent: false,
        request,
        body: encode(reply),
        payload: payload.into(),
    }
}

fn written(offset: u64, bytes: u32) -> StepReply {
    let time = Timestamp::default();
    StepReply::Written {
        offset,
        bytes: u64::from(bytes),
        attributes: Attributes {
            kind: FileKind::File,
            mode: 0o644,
            links: 1,
            uid: 0,
            gid: 0,
            inode: 1,
            device: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            accessed: time,
            modified: time,
            changed: time,
            created: None,
            protected: false,
        },
    }
}
