//! A virtual device and its clients.
//!
//! The device has a few lanes and takes what it is given in that order; a request takes its cost
//! times the number of lanes, times chance, times however slow the device is at the moment. Clients
//! keep so many requests outstanding while they are active. Everything follows from one seed.

use base::Time;
use reservation::scheduler::{
    Dispatch, RequestKey, Right, Scheduler, Shape, Source, TicketKey, TicketTerms, UserKey, Work,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MILLI: u64 = 1_000_000;
pub(crate) const QUANTUM: u64 = MILLI;
pub(crate) const IN_FLIGHT: u64 = 4 * MILLI;
/// Of a byte, so that bytes and costs can be told apart.
pub(crate) const BYTE_NANOS: u64 = 4;

pub(crate) fn shape(unreserved_floor_ppm: u32, background_floor_ppm: u32) -> Shape {
    Shape {
        quantum: Duration::from_nanos(QUANTUM),
        in_flight: Duration::from_nanos(IN_FLIGHT),
        requests_in_flight: 128,
        unreserved_floor_ppm,
        background_floor_ppm,
        sharers: 1,
    }
}

/// Terms of a ticket whose holder has its number and which lasts for ever.
pub(crate) fn terms(key: u64, share_ppm: u32) -> TicketTerms {
    TicketTerms {
        holder: UserKey(key),
        share_ppm,
        burst: Duration::from_millis(10),
        start: Time::ZERO,
        end: Time::MAX,
        parent: None,
    }
}

pub(crate) fn work(cost_nanos: u64) -> Work {
    Work {
        bytes: (cost_nanos / BYTE_NANOS) as u32,
        cost_nanos,
    }
}

/// Chance from a seed (xorshift; Marsaglia 2003).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) source: Source,
    /// Requests outstanding while it is active.
    pub(crate) depth: usize,
    /// Least and largest cost of a request.
    pub(crate) costs: (u64, u64),
    /// Time between the end of a request and the next one.
    pub(crate) think: u64,
    /// When it is active: from, to; always if empty.
    pub(crate) active: Vec<(u64, u64)>,
}

impl Client {
    pub(crate) fn new(source: Source, depth: usize, costs: (u64, u64)) -> Self {
        Self {
            source,
            depth,
            costs,
            think: 0,
            active: Vec::new(),
        }
    }

    pub(crate) fn ticket(key: u64, depth: usize, costs: (u64, u64)) -> Self {
        Self::new(Source::Ticket(TicketKey(key)), depth, costs)
    }

    pub(crate) fn user(key: u64, depth: usize, costs: (u64, u64)) -> Self {
        Self::new(Source::User(UserKey(key)), depth, costs)
    }

    fn is_active(&self, time: u64) -> bool {
        let mut active = self.active.iter();
        self.active.is_empty() || active.any(|(from, to)| (*from..*to).contains(&time))
    }
}

/// Something that the device did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) time: u64,
    pub(crate) cost: u64,
    pub(crate) right: Right,
    /// From submission to the device.
    pub(crate) wait: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Lane(usize),
    Client(usize),
}

/// How the device differs from its calibration.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) lanes: usize,
    /// Service times as a percentage of what was calibrated, least and largest.
    pub(crate) percent: (u64, u64),
    /// From, to, and by how many times everything takes longer then.
    pub(crate) slow: Vec<(u64, u64, u64)>,
}

impl Device {
    /// As calibrated, always.
    pub(crate) fn exact() -> Self {
        Self {
            lanes: 3,
            percent: (100, 100),
            slow: Vec::new(),
        }
    }

    /// Service times from a third to five thirds; as fast as calibrated in the mean.
    pub(crate) fn noisy() -> Self {
        Self {
            percent: (33, 163),
            ..Self::exact()
        }
    }
}

/// A request with its client and when it came.
type Request = Dispatch<(usize, u64)>;

pub(crate) struct World {
    pub(crate) scheduler: Scheduler<(usize, u64)>,
    pub(crate) clients: Vec<Client>,
    /// By client.
    pub(crate) done: Vec<Vec<Done>>,
    pub(crate) time: u64,
    /// What is added to the time that the scheduler is told.
    pub(crate) clock_offset: i64,
    device: Device,
    chance: Chance,
    queue: VecDeque<Request>,
    /// What is being done, and how long it waited.
    lanes: Vec<Option<(Request, u64)>>,
    events: BTreeSet<(u64, Event)>,
    outstanding: Vec<usize>,
    waiting: BTreeMap<RequestKey, usize>,
    /// Whether an idle device beside a queue is a mistake.
    pub(crate) must_work: bool,
}

impl World {
    pub(crate) fn new(seed: u64, shape: &Shape, device: Device, clients: Vec<Client>) -> Self {
        let events = (0..clients.len()).map(|client| (0, Event::Client(client)));
        Self {
            scheduler: Scheduler::new(Time::ZERO, shape),
            done: vec![Vec::new(); clients.len()],
            time: 0,
            clock_offset: 0,
            chance: Chance::new(seed),
            queue: VecDeque::new(),
            lanes: (0..device.lanes).map(|_| None).collect(),
            events: events.collect(),
            outstanding: vec![0; clients.len()],
            waiting: BTreeMap::new(),
            must_work: true,
            device,
            clients,
        }
    }

    pub(crate) fn now(&self) -> Time {
        let time = i64::try_from(self.time).expect("some seconds") + self.clock_offset;
        Time::from_nanos(u64::try_from(time).expect("no clock goes below zero"))
    }

    pub(crate) fn open(&mut self, key: u64, terms: &TicketTerms) {
        let opened = self
            .scheduler
            .open_ticket(self.now(), TicketKey(key), terms);
        opened.unwrap_or_else(|rejection| panic!("ticket {key}: {rejection}"));
    }

    /// Runs until `end`.
    pub(crate) fn run(&mut self, end: u64) {
        while let Some(&(at, event)) = self.events.first()
            && at <= end
        {
            self.events.pop_first();
            self.time = at;
            match event {
                Event::Lane(lane) => self.finish(lane),
                Event::Client(client) => self.act(client),
            }
            self.feed();
        }
        self.time = end;
        self.feed();
    }

    /// The client asks for as much as it is going to.
    fn act(&mut self, client: usize) {
        let description = self.clients[client].clone();
        if !description.is_active(self.time) {
            let starts = description.active.iter().map(|(from, _)| *from);
            if let Some(next) = starts.filter(|from| *from > self.time).min() {
                self.events.insert((next, Event::Client(client)));
            }
            return;
        }
        while self.outstanding[client] < description.depth {
            let (low, high) = description.costs;
            let cost = self.chance.within(low, high);
            let content = (client, self.time);
            let now = self.now();
            match self
                .scheduler
                .submit(now, description.source, work(cost), content)
            {
                Ok(key) => self.waiting.insert(key, client),
                Err(_) => break,
            };
            self.outstanding[client] += 1;
        }
    }

    fn finish(&mut self, lane: usize) {
        let (dispatch, wait) = self.lanes[lane].take().expect("the lane was busy");
        let now = self.now();
        let bytes = u64::from(dispatch.work.bytes);
        self.scheduler.complete(now, dispatch.key, bytes);
        let (client, _) = dispatch.content;
        self.done[client].push(Done {
            time: self.time,
            cost: dispatch.work.cost_nanos,
            right: dispatch.right,
            wait,
        });
        self.outstanding[client] -= 1;
        let think = self.clients[client].think;
        self.events
            .insert((self.time + think, Event::Client(client)));
    }

    /// Gives the device whatever it should have, and its lanes whatever it has.
    fn feed(&mut self) {
        let now = self.now();
        while let Some(dispatch) = self.scheduler.poll(now) {
            self.waiting
                .remove(&dispatch.key)
                .expect("each request goes once");
            self.queue.push_back(dispatch);
        }
        let in_flight = self.scheduler.in_flight().as_nanos();
        assert!(in_flight <= u128::from(IN_FLIGHT), "{in_flight}");
        let is_idle = self.queue.is_empty() && self.lanes.iter().all(Option::is_none);
        assert!(
            !(self.must_work && is_idle && self.scheduler.waiting() > 0),
            "the device is idle at {} while {} wait",
            self.time,
            self.scheduler.waiting()
        );
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].is_some() {
                continue;
            }
            let Some(dispatch) = self.queue.pop_front() else {
                break;
            };
            let (_, since) = dispatch.content;
            let service = self.service_time(dispatch.work.cost_nanos);
            self.events.insert((self.time + service, Event::Lane(lane)));
            self.lanes[lane] = Some((dispatch, self.time - since));
        }
    }

    fn service_time(&mut self, cost: u64) -> u64 {
        let (low, high) = self.device.percent;
        let percent = self.chance.within(low, high);
        let here = |(from, to, _): &&(u64, u64, u64)| (*from..*to).contains(&self.time);
        let times = self.device.slow.iter().find(here).map_or(1, |slow| slow.2);
        (cost * self.lanes.len() as u64 * percent / 100 * times).max(1)
    }

    /// Device time that a client had in an interval.
    pub(crate) fn served(&self, client: usize, from: u64, to: u64) -> u64 {
        let done = &self.done[client];
        let start = done.partition_point(|done| done.time < from);
        let within = done[start..].iter().take_while(|done| done.time < to);
        within.map(|done| done.cost).sum()
    }

    /// Device time of all clients in an interval.
    pub(crate) fn served_all(&self, from: u64, to: u64) -> u64 {
        (0..self.clients.len())
            .map(|client| self.served(client, from, to))
            .sum()
    }
}

/// Jain's index of fairness: one if all are the same, 1 / n if one has everything.
pub(crate) fn jain(values: &[u64]) -> f64 {
    let sum: f64 = values.iter().map(|value| *value as f64).sum();
    let squares: f64 = values.iter().map(|value| (*value as f64).powi(2)).sum();
    sum * sum / (values.len() as f64 * squares)
}
