//! A deterministic model: an application behind a kernel, a client that obeys the crate, and a line
//! with a rate, a round trip and a first-in first-out queue.
//!
//! The client holds no cache: what was answered is dropped at once, so that a byte fetched twice
//! shows on the wire.
#![allow(
    clippy::allow_attributes,
    dead_code,
    clippy::unwrap_used,
    reason = "each test binary uses its part of the model; a panic is a failed test"
)]

pub(crate) mod near;

use base::{Extent, ExtentSet, Rate, Time};
use readahead::{FileStreams, Line, LinkEstimator, Sent, Tally};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
/// Goodput of a gigabit line.
pub(crate) const GIGABIT: u64 = 117_700_000;
/// One request of the kernel.
pub(crate) const READ_BYTES: u64 = 128 * KIB;

/// A gigabit line at 100 ms, as the estimator would describe it.
pub(crate) fn gigabit_far() -> Line {
    Line {
        rtt: Duration::from_millis(100),
        rtt_deviation: Duration::from_millis(1),
        server_time: Duration::ZERO,
        rate: Rate(GIGABIT),
        window_bytes: 14 * MIB,
        extent_bytes: 512 * KIB,
    }
}

/// From a moment on, the line is like this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) from: Time,
    pub(crate) rtt: Duration,
    pub(crate) rate: u64,
}

/// A line whose figures may change.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) steps: Vec<Step>,
    free_at: Time,
    /// Order of replies is the order of requests, whatever the round trip does.
    last_arrival: Time,
    /// Every so long, the receiver sleeps for so long, as on a busy machine.
    pub(crate) stall: Option<(Duration, Duration)>,
    /// Congestion window of the transport below, which doubles each round trip from this.
    pub(crate) slow_start_bytes: Option<u64>,
    /// The server works on each request for so long, on all at once, as on disks.
    pub(crate) server_time: Duration,
    pub(crate) wire_bytes: u64,
}

impl Path {
    pub(crate) fn fixed(rtt_millis: u64, rate: u64) -> Self {
        let rtt = Duration::from_millis(rtt_millis);
        Self::stepping(vec![Step {
            from: Time::ZERO,
            rtt,
            rate,
        }])
    }

    pub(crate) fn stepping(steps: Vec<Step>) -> Self {
        Self {
            steps,
            free_at: Time::ZERO,
            last_arrival: Time::ZERO,
            stall: None,
            slow_start_bytes: None,
            server_time: Duration::ZERO,
            wire_bytes: 0,
        }
    }

    pub(crate) fn at(&self, now: Time) -> Step {
        *self
            .steps
            .iter()
            .rev()
            .find(|step| step.from <= now)
            .unwrap()
    }

    /// When the reply to a request for `bytes` sent now will be there. A tenth of a millisecond is
    /// the two ends' own time.
    pub(crate) fn request(&mut self, now: Time, bytes: u64) -> Time {
        let step = self.at(now);
        let at_server = now + step.rtt / 2 + Duration::from_micros(100) + self.server_time;
        let start = at_server.max(self.free_at);
        let mut rate = self.at(start).rate;
        if let Some(bytes) = self.slow_start_bytes {
            let rtt_nanos = step.rtt.as_nanos().max(1) as u64;
            let doublings = (start.as_nanos() / rtt_nanos).min(14);
            rate = rate.min((bytes << doublings) * 1_000_000_000 / rtt_nanos);
        }
        self.free_at = start + Duration::from_nanos(bytes * 1_000_000_000 / rate);
        self.wire_bytes += bytes;
        self.last_arrival = self
            .last_arrival
            .max(self.free_at + self.at(self.free_at).rtt / 2);
        self.last_arrival
    }
}

/// How the application reads.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) calls: Vec<Extent>,
    pub(crate) file_size: u64,
    /// Through the page cache: requests of 128 KiB and one ahead of adjoining ones. Otherwise each
    /// call arrives as it is.
    pub(crate) cached: bool,
    /// Bytes per second that the application can process.
    pub(crate) speed: u64,
}

impl App {
    pub(crate) fn new(calls: Vec<Extent>, file_size: u64) -> Self {
        Self {
            calls,
            file_size,
            cached: true,
            speed: 2_000_000_000,
        }
    }

    pub(crate) fn useful_bytes(&self) -> u64 {
        self.calls.iter().map(|call| call.len).sum()
    }
}

/// The requests that the kernel makes of the application's calls.
struct Kernel {
    cached: bool,
    size: u64,
    pages: ExtentSet,
    last_end: u64,
}

impl Kernel {
    /// Requests for `call`; the first answers it, a second is read-ahead.
    fn reads(&mut self, call: Extent) -> Vec<Extent> {
        let mut reads = Vec::new();
        if !self.cached {
            reads.push(call);
            return reads;
        }
        let adjoining = self.last_end == call.offset && call.offset > 0;
        self.last_end = call.end();
        let ahead = Extent::new(call.end(), READ_BYTES);
        for (extent, wanted) in [(call, true), (ahead, adjoining)] {
            let within = extent.intersection(Extent::new(0, self.size));
            if wanted && !self.pages.covers(within) {
                reads.push(within);
                self.pages.insert(within);
            }
        }
        reads
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Reply(u64),
    AppContinues,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) wire_bytes: u64,
    pub(crate) useful_bytes: u64,
    pub(crate) tally: Tally,
    /// When how many bytes had been consumed.
    pub(crate) progress: Vec<(Time, u64)>,
    pub(crate) pipe_bytes_max: u64,
    /// Most bytes asked for on a guess and not used yet, in the second half of the work.
    pub(crate) unread_bytes_max: u64,
}

impl Outcome {
    /// Bytes per second between two fractions of the work.
    pub(crate) fn rate_between(&self, from: f64, to: f64) -> f64 {
        let total = self.progress.last().unwrap().1 as f64;
        let at = |part: f64| {
            *self
                .progress
                .iter()
                .find(|p| p.1 as f64 >= total * part)
                .unwrap()
        };
        let (start, end) = (at(from), at(to));
        (end.1 - start.1) as f64 / end.0.since(start.0).as_secs_f64()
    }

    /// Bytes per second consumed in `[from, to)`.
    pub(crate) fn rate_in(&self, from: Time, to: Time) -> f64 {
        let at = |time: Time| {
            self.progress
                .iter()
                .rev()
                .find(|p| p.0 <= time)
                .map_or(0, |p| p.1)
        };
        (at(to) - at(from)) as f64 / to.since(from).as_secs_f64()
    }

    pub(crate) fn wire_per_useful(&self) -> f64 {
        self.wire_bytes as f64 / self.useful_bytes as f64
    }
}

pub(crate) struct World {
    pub(crate) path: Path,
    app: App,
    kernel: Kernel,
    pub(crate) link: LinkEstimator,
    pub(crate) streams: FileStreams,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    requests: BTreeMap<u64, (Extent, Sent)>,
    in_flight: ExtentSet,
    held: ExtentSet,
    waiting: VecDeque<Extent>,
    call: Option<Extent>,
    next_call: usize,
    consumed: u64,
    outcome: Outcome,
}

impl World {
    pub(crate) fn new(path: Path, app: App) -> Self {
        let kernel = Kernel {
            cached: app.cached,
            size: app.file_size,
            pages: ExtentSet::new(),
            last_end: u64::MAX,
        };
        let outcome = Outcome {
            wire_bytes: 0,
            useful_bytes: app.useful_bytes(),
            tally: Tally::default(),
            progress: vec![(Time::ZERO, 0)],
            pipe_bytes_max: 0,
            unread_bytes_max: 0,
        };
        let mut world = Self {
            path,
            app,
            kernel,
            link: LinkEstimator::new(256 * MIB),
            streams: FileStreams::new(),
            now: Time::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            requests: BTreeMap::new(),
            in_flight: ExtentSet::new(),
            held: ExtentSet::new(),
            waiting: VecDeque::new(),
            call: None,
            next_call: 0,
            consumed: 0,
            outcome,
        };
        world.schedule(Time::ZERO, Event::AppContinues);
        world
    }

    /// Runs until the application has read everything.
    pub(crate) fn run(mut self) -> Outcome {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            assert!(
                time.as_nanos() < 3_600_000_000_000,
                "the model's application hangs"
            );
            self.now = time;
            match event {
                Event::Reply(id) => self.on_reply(id),
                Event::AppContinues => self.on_app(),
            }
            if self.next_call == self.app.calls.len() && self.call.is_none() {
                break;
            }
        }
        self.outcome.wire_bytes = self.path.wire_bytes;
        self.outcome.tally = self.streams.tally();
        self.outcome
    }

    fn schedule(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn on_app(&mut self) {
        if let Some(call) = self.call.take() {
            self.consumed += call.len;
            self.outcome.progress.push((self.now, self.consumed));
        }
        let Some(&call) = self.app.calls.get(self.next_call) else {
            return;
        };
        self.next_call += 1;
        self.call = Some(call);
        for read in self.kernel.reads(call) {
            self.on_read(read);
        }
        self.answer();
    }

    fn on_read(&mut self, read: Extent) {
        self.streams.on_read(self.now, read, self.app.file_size);
        self.waiting.push_back(read);
        for gap in self.held.missing(read) {
            for missing in self.in_flight.missing(gap) {
                self.streams.on_demanded(missing);
                self.send(missing);
            }
        }
        self.fetch_ahead();
    }

    fn send(&mut self, extent: Extent) {
        let sent = self.link.on_sent(self.now, extent.len);
        let arrival = self.path.request(self.now, extent.len);
        self.sequence += 1;
        let id = self.sequence;
        self.requests.insert(id, (extent, sent));
        self.in_flight.insert(extent);
        self.schedule(arrival, Event::Reply(id));
    }

    fn fetch_ahead(&mut self) {
        let size = self.app.file_size;
        loop {
            let line = self.link.line();
            let pipe_bytes = (2 * line.bdp_bytes()).max(line.window_bytes);
            self.outcome.pipe_bytes_max = self.outcome.pipe_bytes_max.max(pipe_bytes);
            let room_bytes = self.link.room_bytes();
            let Some(fetch) = self.streams.poll_fetch(self.now, &line, room_bytes) else {
                break;
            };
            assert!(fetch.extent.len <= room_bytes, "beyond the room: {fetch:?}");
            assert!(fetch.extent.end() <= size, "past the end: {fetch:?}");
            assert!(!self.held.overlaps(fetch.extent), "held already: {fetch:?}");
            assert!(
                !self.in_flight.overlaps(fetch.extent),
                "under way already: {fetch:?}"
            );
            self.send(fetch.extent);
        }
        if 2 * self.next_call > self.app.calls.len() {
            let unread_bytes = self.streams.tally().unread_bytes;
            self.outcome.unread_bytes_max = self.outcome.unread_bytes_max.max(unread_bytes);
        }
        while let Some(extent) = self.streams.poll_cancel(self.now) {
            // A cancelled request still crosses the line here: the dearest case.
            self.held.remove(extent);
            self.in_flight.remove(extent);
        }
    }

    fn on_reply(&mut self, id: u64) {
        let (extent, sent) = self.requests.remove(&id).unwrap();
        self.link
            .on_reply(self.now, sent, extent.len, self.path.server_time);
        // What was cancelled meanwhile is thrown away; the rest is kept.
        for wanted in intersection(&self.in_flight, extent) {
            self.in_flight.remove(wanted);
            self.held.insert(wanted);
            self.streams.on_fetched(self.now, wanted);
        }
        self.answer();
        self.fetch_ahead();
    }

    fn answer(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|&read| {
            if !self.held.covers(read) {
                return true;
            }
            self.streams.on_used(self.now, read);
            self.held.remove(read);
            self.streams.on_dropped(read);
            false
        });
        self.waiting = waiting;
        let Some(call) = self.call else { return };
        if !self.waiting.iter().any(|read| read.overlaps(call)) {
            let nanos = call.len * 1_000_000_000 / self.app.speed;
            let pending = self.events.iter().any(|e| e.0.2 == Event::AppContinues);
            if !pending {
                self.schedule(self.now + Duration::from_nanos(nanos), Event::AppContinues);
            }
        }
    }
}

fn intersection(set: &ExtentSet, extent: Extent) -> Vec<Extent> {
    set.iter()
        .map(|run| run.intersection(extent))
        .filter(|run| !run.is_empty())
        .collect()
}

/// Calls of 128 KiB through `run`.
pub(crate) fn calls_of(run: Extent) -> impl Iterator<Item = Extent> {
    (0..run.len.div_ceil(READ_BYTES)).map(move |at| {
        let start = run.offset + at * READ_BYTES;
        Extent::between(start, run.end().min(start + READ_BYTES))
    })
}
