//! One direction of a line.
//!
//! ```text
//! send -> queue         drops at its end
//!      -> transmitter   one datagram at a time, at the rate
//!      -> flight        delay, jitter, loss, copies
//!      -> poll
//! ```
//! What was lost is reported too, at the time when it would have arrived: a layer that repeats
//! needs no timers of its own, and one that does not drops the report.

use crate::Random;
use base::{Rate, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What a lane is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Of every datagram.
    pub delay: Duration,
    /// Of each datagram up to this much more, evenly spread, so that one overtakes the other.
    pub jitter: Duration,
    /// How often a datagram vanishes, 0 to 1.
    pub loss: f64,
    /// How often it arrives twice, 0 to 1.
    pub duplication: f64,
    /// Bytes per second of the transmitter; above 0.
    pub rate: Rate,
    /// Bytes that wait for the transmitter at most; what does not fit is lost.
    pub queue_bytes: u64,
}

impl Shape {
    /// No delay, no loss, no bound.
    #[must_use]
    pub const fn ideal() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            duplication: 0.0,
            rate: Rate(u64::MAX),
            queue_bytes: u64::MAX,
        }
    }

    /// Ideal but for `delay` and `rate`.
    #[must_use]
    pub const fn line(delay: Duration, rate: Rate) -> Self {
        Self {
            delay,
            rate,
            ..Self::ideal()
        }
    }
}

/// What has passed a lane, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Datagrams given to it, and their bytes.
    pub sent: u64,
    /// Bytes given to it.
    pub sent_bytes: u64,
    /// Datagrams that did not fit into the queue.
    pub overflowed: u64,
    /// Datagrams lost by chance or by a cut.
    pub lost: u64,
    /// Datagrams that arrived twice.
    pub duplicated: u64,
}

/// A datagram at the end of its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<P> {
    /// What was sent.
    pub content: P,
    /// How many bytes it has.
    pub bytes: u64,
    /// Whether it is there; else it was lost.
    pub arrived: bool,
}

#[derive(Clone, Debug)]
struct Waiting<P> {
    content: P,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Transmission<P> {
    datagram: Waiting<P>,
    bytes_left: u64,
    /// When `bytes_left` was right.
    since: Time,
}

/// See the module's head. `P` is what a datagram carries; its bytes are stated, not made.
#[derive(Clone, Debug)]
pub struct Lane<P> {
    shape: Shape,
    random: Random,
    cut: bool,
    queue: VecDeque<Waiting<P>>,
    queued_bytes: u64,
    sending: Option<Transmission<P>>,
    flying: BTreeMap<(Time, u64), Outcome<P>>,
    launched: u64,
    counts: LaneCounts,
}

fn transfer_time(bytes: u64, rate: Rate) -> Duration {
    let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.0));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl<P: Clone> Lane<P> {
    /// A lane that stands.
    #[must_use]
    pub fn new(shape: Shape, random: Random) -> Self {
        assert!(shape.rate.0 > 0, "a lane without rate is a cut one");
        Self {
            shape,
            random,
            cut: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            sending: None,
            flying: BTreeMap::new(),
            launched: 0,
            counts: LaneCounts::default(),
        }
    }

    /// What it is like.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What has passed.
    #[must_use]
    pub fn counts(&self) -> LaneCounts {
        self.counts
    }

    /// Bytes that wait for the transmitter, without what it is working on.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Changes what it is like. What flies keeps its time of arrival; what is being transmitted
    /// goes on at the new rate. All that is due at `now` must have been polled.
    pub fn reshape(&mut self, now: Time, shape: Shape) {
        assert!(shape.rate.0 > 0, "a lane without rate is a cut one");
        if let Some(sending) = &mut self.sending {
            let elapsed_nanos = now.since(sending.since).as_nanos();
            let done = elapsed_nanos * u128::from(self.shape.rate.0) / 1_000_000_000;
            let done = u64::try_from(done).unwrap_or(u64::MAX);
            sending.bytes_left = sending.bytes_left.saturating_sub(done);
            sending.since = now;
        }
        self.shape = shape;
    }

    /// Cuts it: what is under way is lost, and so is all that is sent until [`Self::heal`].
    pub fn cut(&mut self, now: Time) {
        self.cut = true;
        let sending = self.sending.take().map(|sending| sending.datagram);
        let waiting: Vec<_> = sending.into_iter().chain(self.queue.drain(..)).collect();
        self.queued_bytes = 0;
        let flying = std::mem::take(&mut self.flying);
        for datagram in waiting {
            self.lose(now, datagram);
        }
        for outcome in flying.into_values() {
            let (content, bytes) = (outcome.content, outcome.bytes);
            self.lose(now, Waiting { content, bytes });
        }
    }

    /// Makes a cut lane stand again.
    pub fn heal(&mut self) {
        self.cut = false;
    }

    /// Gives it a datagram.
    pub fn send(&mut self, now: Time, bytes: u64, content: P) {
        self.counts.sent += 1;
        self.counts.sent_bytes += bytes;
        let datagram = Waiting { content, bytes };
        if self.cut {
            self.lose(now, datagram);
        } else if self.sending.is_none() {
            self.transmit(now, datagram);
        } else if self.queued_bytes.saturating_add(bytes) > self.shape.queue_bytes {
            self.counts.overflowed += 1;
            self.launch(now, datagram, false);
        } else {
            self.queued_bytes += bytes;
            self.queue.push_back(datagram);
        }
    }

    /// When [`Self::poll`] has something next.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        let landing = self.flying.first_key_value().map(|((at, _), _)| *at);
        // A datagram that leaves the transmitter may be the next to land.
        [landing, self.sent_at()].into_iter().flatten().min()
    }

    /// A datagram that has landed or is known to be lost by `now`; `None` if there is none left.
    pub fn poll(&mut self, now: Time) -> Option<Outcome<P>> {
        while let Some(at) = self.sent_at().filter(|at| *at <= now) {
            let landing = self
                .flying
                .first_key_value()
                .map(|((landing, _), _)| *landing);
            if landing.is_some_and(|landing| landing <= at) {
                break;
            }
            let sending = self.sending.take().expect("sent_at saw it");
            self.fly(at, sending.datagram);
            if let Some(next) = self.queue.pop_front() {
                self.queued_bytes -= next.bytes;
                self.transmit(at, next);
            }
        }
        let entry = self.flying.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    fn sent_at(&self) -> Option<Time> {
        let sending = self.sending.as_ref()?;
        Some(sending.since + transfer_time(sending.bytes_left, self.shape.rate))
    }

    fn transmit(&mut self, now: Time, datagram: Waiting<P>) {
        let bytes_left = datagram.bytes;
        self.sending = Some(Transmission {
            datagram,
            bytes_left,
            since: now,
        });
    }

    /// A datagram leaves the transmitter.
    fn fly(&mut self, now: Time, datagram: Waiting<P>) {
        let copies = if self.random.chance(self.shape.duplication) {
            self.counts.duplicated += 1;
            2
        } else {
            1
        };
        let lost = self.random.chance(self.shape.loss);
        self.counts.lost += u64::from(lost);
        for _ in 0..if lost { 1 } else { copies } {
            let at = now + self.shape.delay + self.random.up_to(self.shape.jitter);
            self.launch(at, datagram.clone(), !lost);
        }
    }

    fn lose(&mut self, now: Time, datagram: Waiting<P>) {
        self.counts.lost += 1;
        self.launch(now, datagram, false);
    }

    fn launch(&mut self, at: Time, datagram: Waiting<P>, arrived: bool) {
        let Waiting { content, bytes } = datagram;
        self.launched += 1;
        let outcome = Outcome {
            content,
            bytes,
            arrived,
        };
        self.flying.insert((at, self.launched), outcome);
    }
}

#[cfg(test)]
mod tests;
