//! How many bytes may be in flight to one server, from what its replies show.
//!
//! # Model
//!
//! A path has a round trip time without queue (`rtt`) and a bottleneck rate. With less than their
//! product (BDP) in flight the line idles; with more, a queue grows and every request waits in it.
//! Neither figure can be seen at the same moment as the other, so, as BBR does, the estimator keeps
//! the smallest round trip of the last ten seconds and the largest delivery rate of the last ten
//! rounds (of 10 ms each at least), and moves the window so that each is measured anew in time. A
//! round is the time until a request sent after the last round's end is answered.
//!
//! ```text
//! StartUp   the window grows by every byte that was answered without waiting in a queue, so
//!           doubles each round, up to twice what the line has shown to carry, until the rate
//!           has risen by less than 25 % for three rounds
//! Cruise    twelve rounds each: two at 1.5 x BDP (probe), one below the BDP (drain: it sees
//!           the true round trip; while that falls, each further round drains by a quarter),
//!           then nine at 1.25 x BDP
//! Trial     one round with half the window, when the path seems to be another
//! ```
//!
//! One estimator serves all connections to a server: what overruns a queue is the sum.
//!
//! # When the path changes
//!
//! With `x` bytes in flight a reply comes after the round trip or after `x / rate`, whichever is
//! longer. A round in which *every* reply came a quarter later than that says that the path is
//! another one, but not which figure changed: a longer line and a slower one look the same. So for
//! one round half the window is used (`Trial`). If the line became slower, the round trips shrink
//! with the queue, and the rate of that round is the line's. If they stay, the round trip grew: it
//! is believed at once, and the window is what the rate before would fill. If they are as before,
//! it was a hiccup.
//!
//! A shorter round trip is believed as soon as it is seen, at the next drain at the latest. A rate
//! that rises by a fifth in `Cruise`, or in a probe by half of what the bytes in flight rose by,
//! leads back to `StartUp` for as long as that pays.
//!
//! Source: paper section 3.3 (pending requests against delay); Cardwell et al., BBR, for the
//! filters, the round count and the treatment of application-limited samples.

use crate::filter::SlidingBest;
use base::{Rate, Time};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::time::Duration;

/// Smallest request for bulk data. On a line of 100 Mbit/s and 25 ms, two of 128 KiB beyond the BDP
/// overflow a queue of one BDP.
const EXTENT_BYTES_MIN: u64 = 32 << 10;
/// Smallest where the rate is not known, or so high that requests would be too many; also the unit
/// of what a window must hold.
const EXTENT_BYTES_MIN_FAST: u64 = 128 << 10;
/// Rate from which on it is the latter, bytes per second.
const RATE_FAST: u64 = 50_000_000;
/// Largest request for bulk data: the largest payload of one frame.
const EXTENT_BYTES_MAX: u64 = 1 << 20;
/// Window before anything is known: enough that TCP's slow start below is the only one that counts.
/// What is too much of it for a slow line waits at the server, behind what is demanded.
const WINDOW_BYTES_INITIAL: u64 = 4 << 20;
/// The same over a long line: as much as a gigabit holds there.
const WINDOW_BYTES_INITIAL_FAR: u64 = 12 << 20;
/// Rate that the first window allows over any distance, bytes per second.
const RATE_INITIAL: u64 = 120_000_000;
/// Two requests: with one the line idles between a reply and the next request.
const WINDOW_BYTES_MIN: u64 = 2 * EXTENT_BYTES_MIN_FAST;
/// Upper end of the floor of the window. Above, a memory copy is the bottleneck, not the window.
const WINDOW_FLOOR_BYTES_MAX: u64 = 4 << 20;
/// The floor in time: how late the two ends' threads may run without the line falling idle. Costs
/// as much delay for a request on demand, so it is no larger than need be.
const WINDOW_FLOOR_TIME: Duration = Duration::from_millis(8);
/// The same where the server's answers come from devices, several of them at once: what these work
/// on, 4 ms of each, and as much that is ready for them, is in flight besides.
const WINDOW_FLOOR_TIME_DEVICES: Duration = Duration::from_millis(16);
/// Upper end of that floor: four requests of the largest size for each of four devices.
const WINDOW_FLOOR_BYTES_MAX_DEVICES: u64 = 16 << 20;
/// How long a round trip is remembered as the smallest.
const RTT_SPAN: Duration = Duration::from_secs(10);
/// How many rounds a delivery rate is remembered as the largest.
const RATE_SPAN_ROUNDS: u64 = 10;
/// Least time that counts as one of these rounds. Threads and disks are late for longer than the
/// rounds of a line without distance last, and the line is no slower for that.
const RATE_ROUND_TIME_MIN: Duration = Duration::from_millis(10);
/// Round trips differ by this much for reasons of their own (threads, wake-ups).
const RTT_NOISE: Duration = Duration::from_millis(2);
/// Rounds of one turn of `Cruise`: two to probe, one to drain, the others even. Two, because the
/// rate follows the window a round later.
const CRUISE_ROUNDS: u64 = 12;
/// Round of the turn that drains.
const DRAIN_ROUND: u64 = 2;
const FIRST_EVEN_ROUND: u64 = DRAIN_ROUND + 1;
/// Window during start-up, of what the line has shown to carry. The rest would be a queue, and at
/// twice the BDP a queue that holds one more overflows.
const START_UP_PERCENT: u64 = 175;
/// Rounds without growth that end the first start-up. A TCP connection in its own slow start below
/// may lag for a round or two.
const START_UP_PATIENCE_ROUNDS: u32 = 3;
/// Rounds without growth that end a later start-up, entered on a sign of growth. The rate follows
/// the window a round later.
const RESTART_PATIENCE_ROUNDS: u32 = 2;

/// What the client keeps with a request that is in flight and hands back with its reply.
#[derive(Clone, Copy, Debug)]
#[must_use = "every request sent must be reported as answered or lost"]
pub struct Sent {
    sent_at: Time,
    bytes: u64,
    /// Bytes in flight with this request.
    in_flight_bytes: u64,
    /// Bytes answered when this request was sent, when the last of them was, and when the request
    /// for that had been sent.
    delivered_bytes: u64,
    delivered_at: Time,
    delivered_sent_at: Time,
}

impl Sent {
    /// Bytes that the request was announced with.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The figures of a link at one moment, as the fetch planner uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Round trip time without queue and server time; zero while unknown.
    pub rtt: Duration,
    /// Mean deviation of the round trips from their mean.
    pub rtt_deviation: Duration,
    /// Within what time the server has usually worked on a request, its disks included: the mean
    /// and twice the mean deviation.
    pub server_time: Duration,
    /// Bytes per second that the line delivers; zero while unknown.
    pub rate: Rate,
    /// Bytes that may be in flight.
    pub window_bytes: u64,
    /// Advised size of one request, a power of two.
    pub extent_bytes: u64,
}

impl Line {
    /// Bandwidth-delay product in bytes; zero while unknown.
    #[must_use]
    pub fn bdp_bytes(&self) -> u64 {
        product(self.rate.0, self.rtt)
    }
}

/// What is worth keeping of a line between two mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineMemory {
    /// Round trip time without queue, nanoseconds.
    pub rtt_nanos: u64,
    /// Delivery rate, bytes per second.
    pub rate_bytes_per_second: u64,
}

impl LineMemory {
    /// Bytes that the line holds.
    #[must_use]
    pub fn bdp_bytes(&self) -> u64 {
        product(
            self.rate_bytes_per_second,
            Duration::from_nanos(self.rtt_nanos),
        )
    }
}

/// Changes of a line that its transport may not notice by itself for a long time: TCP is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Times that the round trip had grown.
    pub longer: u64,
    /// Times that the rate seemed to have grown.
    pub faster: u64,
}

/// Bytes that pass in `time` at `rate` bytes per second.
fn product(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Bytes per second; a time below a microsecond counts as one.
fn rate_of(bytes: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1000);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

fn percent(value: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    StartUp {
        still_rounds: u32,
        patience_rounds: u32,
    },
    Cruise {
        since_round: u64,
    },
    /// What the round before showed, and the window to go back to.
    Trial {
        rtt: Duration,
        window_bytes: u64,
    },
}

/// What one round showed.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    rate: u64,
    /// Whether even the best reply came later than line and bytes in flight explain.
    unexplained: bool,
    in_flight_bytes_max: u64,
}

impl Round {
    const NEW: Self = Self {
        rate: 0,
        unexplained: true,
        in_flight_bytes_max: 0,
    };
}

/// Window, round trip and rate of one direction to one server. See the module head.
#[derive(Clone, Debug)]
pub struct LinkEstimator {
    window_bytes_cap: u64,
    window_bytes_initial: u64,
    window_bytes: u64,
    in_flight_bytes: u64,
    delivered_bytes: u64,
    delivered_at: Time,
    delivered_sent_at: Time,
    phase: Phase,
    round: Round,
    round_count: u64,
    /// The round ends with the reply to a request sent after this many bytes were answered.
    round_end_bytes: u64,
    rtt_min: SlidingBest<u64>,
    server_time_min: SlidingBest<u64>,
    rate_max: SlidingBest<Reverse<u64>>,
    /// Rounds as rates are remembered by, and when the last of them began.
    rate_rounds: (u64, Time),
    /// Best rate when growth was last judged.
    rate_judged: u64,
    rtt_mean: Option<Duration>,
    rtt_deviation: Duration,
    server_time_mean: Duration,
    server_time_deviation: Duration,
    /// The last even round before a probe.
    reference: Round,
    /// The smallest round trip before the drain.
    drain_rtt: Duration,
    changes: Changes,
    /// Answers come from devices: see [`Self::expect_devices`].
    has_devices: bool,
}

impl LinkEstimator {
    /// An estimator that knows nothing yet. The window never exceeds `window_bytes_cap`, nor is it
    /// ever less than the cap or two small requests, whichever is less.
    #[must_use]
    pub fn new(window_bytes_cap: u64) -> Self {
        let cap = window_bytes_cap.max(1);
        Self {
            window_bytes_cap: cap,
            window_bytes_initial: WINDOW_BYTES_INITIAL,
            window_bytes: WINDOW_BYTES_INITIAL.min(cap),
            in_flight_bytes: 0,
            delivered_bytes: 0,
            delivered_at: Time::ZERO,
            delivered_sent_at: Time::ZERO,
            phase: Phase::StartUp {
                still_rounds: 0,
                patience_rounds: START_UP_PATIENCE_ROUNDS,
            },
            round: Round::NEW,
            round_count: 0,
            round_end_bytes: 0,
            rtt_min: SlidingBest::new(nanos(RTT_SPAN)),
            server_time_min: SlidingBest::new(nanos(RTT_SPAN)),
            rate_max: SlidingBest::new(RATE_SPAN_ROUNDS),
            rate_rounds: (0, Time::ZERO),
            rate_judged: 0,
            rtt_mean: None,
            rtt_deviation: Duration::ZERO,
            server_time_mean: Duration::ZERO,
            server_time_deviation: Duration::ZERO,
            reference: Round::NEW,
            drain_rtt: Duration::ZERO,
            changes: Changes::default(),
            has_devices: false,
        }
    }

    /// What is asked for comes from the server's devices: what they have under way, the window has
    /// room for, too. Else they would rest while answers are on the line.
    pub fn expect_devices(&mut self) {
        self.has_devices = true;
    }

    /// An estimator that starts with the window of a line known from an earlier mount. What it
    /// remembers sets only the first window: the figures are measured anew.
    #[must_use]
    pub fn from_memory(window_bytes_cap: u64, memory: LineMemory) -> Self {
        let rtt = Duration::from_nanos(memory.rtt_nanos);
        let mut link = Self::new(window_bytes_cap);
        let bdp_bytes = product(memory.rate_bytes_per_second, rtt);
        link.window_bytes = bdp_bytes
            .max(WINDOW_BYTES_INITIAL)
            .min(link.window_bytes_cap);
        link
    }

    /// Tells how long a round trip is at most, before the first request: over a long line the first
    /// window is larger.
    pub fn expect_rtt(&mut self, rtt: Duration) {
        self.window_bytes_initial =
            product(RATE_INITIAL, rtt).clamp(WINDOW_BYTES_INITIAL, WINDOW_BYTES_INITIAL_FAR);
        let first_bytes = self.window_bytes.max(self.window_bytes_initial);
        if self.rate_max.best().is_none() {
            self.window_bytes = first_bytes.min(self.window_bytes_cap);
        }
    }

    /// What [`from_memory`](Self::from_memory) wants; `None` before the first measurement.
    #[must_use]
    pub fn remember(&self) -> Option<LineMemory> {
        let rtt_nanos = self.rtt_min.best()?;
        let Reverse(rate_bytes_per_second) = self.rate_max.best()?;
        Some(LineMemory {
            rtt_nanos,
            rate_bytes_per_second,
        })
    }

    /// Changes the cap of the window, for instance when memory is short.
    pub fn set_window_bytes_cap(&mut self, window_bytes_cap: u64) {
        self.window_bytes_cap = window_bytes_cap.max(1);
        self.window_bytes = self.window_bytes.min(self.window_bytes_cap);
    }

    /// A request was sent whose transfer will be `bytes`: of the reply for a read, of the request
    /// for a write.
    pub fn on_sent(&mut self, now: Time, bytes: u64) -> Sent {
        if self.in_flight_bytes == 0 {
            // The time without requests is the application's, not the line's.
            self.delivered_at = now;
            self.delivered_sent_at = now;
        }
        self.in_flight_bytes = self.in_flight_bytes.saturating_add(bytes);
        self.round.in_flight_bytes_max = self.round.in_flight_bytes_max.max(self.in_flight_bytes);
        Sent {
            sent_at: now,
            bytes,
            in_flight_bytes: self.in_flight_bytes,
            delivered_bytes: self.delivered_bytes,
            delivered_at: self.delivered_at,
            delivered_sent_at: self.delivered_sent_at,
        }
    }

    /// A request was answered: `bytes` really came (fewer at the end of a file), and the server
    /// says that it worked on it for `server_time`.
    pub fn on_reply(&mut self, now: Time, sent: Sent, bytes: u64, server_time: Duration) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(sent.bytes);
        self.delivered_bytes = self.delivered_bytes.saturating_add(bytes);
        self.delivered_at = now;
        self.delivered_sent_at = self.delivered_sent_at.max(sent.sent_at);
        let rtt = now.since(sent.sent_at).saturating_sub(server_time);
        // Judged against the figures before this reply, which is what the reply may contradict.
        let explained = self.rtt_is_explained(rtt, &sent);
        self.measure_rtt(now, rtt, server_time);
        self.measure_rate(now, &sent);
        self.round.unexplained &= !explained;
        if matches!(self.phase, Phase::StartUp { .. })
            && self.window_was_used(&self.round)
            && rtt <= self.rtt() * 5 / 4 + self.transfer_time(sent.bytes) + RTT_NOISE
        {
            let shown_bytes = self.bdp_bytes().max(product(self.round.rate, self.rtt()));
            let most_bytes = percent(shown_bytes, START_UP_PERCENT).max(self.window_bytes_initial);
            if self.window_bytes < most_bytes {
                self.set_window(self.window_bytes.saturating_add(bytes).min(most_bytes));
            }
        }
        if sent.delivered_bytes >= self.round_end_bytes {
            self.end_round(now, rtt, sent.in_flight_bytes);
        }
    }

    /// A request was given up: timed out, cancelled, or its connection broke. The window halves for
    /// a loss by the line; a cancelled request is [`on_cancelled`](Self::on_cancelled).
    pub fn on_lost(&mut self, now: Time, sent: Sent) {
        self.on_cancelled(now, sent);
        self.resume_cruise(DRAIN_ROUND);
        self.set_window(self.window_bytes / 2);
    }

    /// A request was taken back before its reply. It says nothing about the line.
    pub fn on_cancelled(&mut self, _now: Time, sent: Sent) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(sent.bytes);
    }

    /// Bytes that may be in flight; at least 1.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Bytes of requests that are neither answered nor lost.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Bytes that may be asked for now on a guess.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        self.window_bytes.saturating_sub(self.in_flight_bytes)
    }

    /// Size of one bulk request: a sixteenth of the BDP, so that a window has enough requests to
    /// flow evenly, or a millisecond of a fast line, which bounds the requests per second;
    /// a power of two in 128 KiB ..= 1 MiB, down to 32 KiB on a line that is known to be slow, and
    /// less where the cap of the window asks for it.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        let even = (self.bdp_bytes() / 16).max(self.rate() / 1000);
        // At least two must fit into the largest window.
        let most_bytes = (self.window_bytes_cap / 2).clamp(4096, EXTENT_BYTES_MAX);
        let least_bytes = if (1..RATE_FAST).contains(&self.rate()) {
            EXTENT_BYTES_MIN
        } else {
            EXTENT_BYTES_MIN_FAST
        };
        let bounded = even.max(least_bytes).min(most_bytes);
        1 << bounded.ilog2()
    }

    /// Size of one part of what is written on a line without distance: twice
    /// [`Self::extent_bytes`], for fewer requests, of which the window still holds several, so that
    /// the line has something to carry while one is answered; the largest while the rate is
    /// unknown.
    #[must_use]
    pub fn near_part_bytes(&self) -> u64 {
        if self.rate() == 0 {
            return EXTENT_BYTES_MAX;
        }
        (2 * self.extent_bytes()).min(EXTENT_BYTES_MAX)
    }

    /// How often the line has become another one since the beginning.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// The figures of this moment.
    #[must_use]
    pub fn line(&self) -> Line {
        Line {
            rtt: self.rtt(),
            rtt_deviation: self.rtt_deviation,
            server_time: self.server_time_mean + self.server_time_deviation * 2,
            rate: Rate(self.rate()),
            window_bytes: self.window_bytes,
            extent_bytes: self.extent_bytes(),
        }
    }

    fn rate(&self) -> u64 {
        self.rate_max.best().map_or(0, |Reverse(rate)| rate)
    }

    fn rtt(&self) -> Duration {
        self.rtt_min
            .best()
            .map_or(Duration::ZERO, Duration::from_nanos)
    }

    /// How long the line takes for `bytes`, at the rate known; zero while unknown.
    fn transfer_time(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate().max(1));
        let known = self.rate() > 0;
        Duration::from_nanos(if known {
            u64::try_from(nanos).unwrap_or(u64::MAX)
        } else {
            0
        })
    }

    /// What must be in flight for the line not to idle. A server that always needs some time is
    /// part of the pipe, though not of the round trip.
    fn bdp_bytes(&self) -> u64 {
        let server_time = self
            .server_time_min
            .best()
            .map_or(Duration::ZERO, Duration::from_nanos);
        product(self.rate(), self.rtt() + server_time)
    }

    /// Whether the round did use the window, so that its rate is the line's and not the
    /// application's. Twice the BDP in flight means the same: what is transferred for twice the
    /// round trip waits somewhere, for a line or for a TCP that lets no more go.
    fn window_was_used(&self, round: &Round) -> bool {
        let in_flight_bytes = round.in_flight_bytes_max;
        in_flight_bytes >= percent(self.window_bytes, 75)
            || (self.rate() > 0 && in_flight_bytes >= 2 * self.bdp_bytes())
    }

    /// Whether a reply came no later than a known line with our own bytes in flight makes it.
    fn rtt_is_explained(&self, rtt: Duration, sent: &Sent) -> bool {
        if self.rate() == 0 {
            return true;
        }
        let alone = self.rtt() + self.transfer_time(sent.bytes);
        let expected = alone.max(self.transfer_time(sent.in_flight_bytes));
        // As late as threads run, which the floor of the window covers, says nothing either.
        rtt <= (expected * 5 / 4 + RTT_NOISE).max(WINDOW_FLOOR_TIME)
    }

    fn measure_rtt(&mut self, now: Time, rtt: Duration, server_time: Duration) {
        self.rtt_min.insert(now.as_nanos(), nanos(rtt));
        self.server_time_min
            .insert(now.as_nanos(), nanos(server_time));
        let mean = self.rtt_mean.unwrap_or(rtt);
        self.rtt_deviation = (self.rtt_deviation * 3 + mean.abs_diff(rtt)) / 4;
        self.rtt_mean = Some((mean * 7 + rtt) / 8);
        let mean = self.server_time_mean;
        self.server_time_deviation =
            (self.server_time_deviation * 3 + mean.abs_diff(server_time)) / 4;
        self.server_time_mean = (mean * 7 + server_time) / 8;
    }

    fn measure_rate(&mut self, now: Time, sent: &Sent) {
        // Replies that were held up come at once: no line delivers faster than it was asked.
        let asked = sent.sent_at.since(sent.delivered_sent_at);
        let elapsed = now.since(sent.delivered_at).max(asked);
        // Shorter than a round trip it would be a burst, not a rate (BBR, rate sample).
        if elapsed >= self.rtt() {
            let rate = rate_of(self.delivered_bytes - sent.delivered_bytes, elapsed);
            // The last one spans the round. Their largest would count replies that come in clumps.
            self.round.rate = rate;
        }
    }

    /// The round ends with a reply after `rtt` to a request that made `in_flight_bytes`.
    fn end_round(&mut self, now: Time, rtt: Duration, in_flight_bytes: u64) {
        let round = std::mem::replace(&mut self.round, Round::NEW);
        let used = self.window_was_used(&round);
        self.round.in_flight_bytes_max = self.in_flight_bytes;
        self.round_count += 1;
        let (rounds, since) = self.rate_rounds;
        if now.since(since) >= RATE_ROUND_TIME_MIN {
            self.rate_rounds = (rounds + 1, now);
        }
        self.round_end_bytes = self.delivered_bytes;
        if round.rate == 0 {
            return;
        }
        match self.phase {
            Phase::Trial {
                rtt: rtt_before,
                window_bytes,
            } if round.unexplained => {
                let rate = rate_of(in_flight_bytes, rtt);
                self.judge_trial(now, rate, rtt, rtt_before, window_bytes);
                return;
            }
            Phase::Trial { window_bytes, .. } => {
                self.resume_cruise(FIRST_EVEN_ROUND);
                self.set_window(window_bytes);
            }
            Phase::Cruise { .. } if round.unexplained && used => {
                self.phase = Phase::Trial {
                    rtt,
                    window_bytes: self.window_bytes,
                };
                self.set_window(self.window_bytes / 2);
                return;
            }
            // With little in flight there was no queue of ours: the line is longer.
            Phase::Cruise { .. } if round.unexplained => {
                self.rtt_min.reset(now.as_nanos(), nanos(rtt));
            }
            Phase::Cruise { .. } | Phase::StartUp { .. } => {}
        }
        // An application-limited round says only that the line is at least that fast.
        if used || round.rate >= self.rate() {
            self.rate_max
                .insert(self.rate_rounds.0, Reverse(round.rate));
        }
        self.rtt_min.expire(now.as_nanos());
        if used {
            self.judge_growth(&round);
        }
        if let Phase::Cruise { since_round } = self.phase {
            self.cruise(self.round_count - since_round, &round);
        }
    }

    /// Decides which figure of the path changed: see the module head. `rtt` and `rate` are of a
    /// request that was sent during the trial.
    fn judge_trial(
        &mut self,
        now: Time,
        rate: u64,
        rtt: Duration,
        rtt_before: Duration,
        window_bytes: u64,
    ) {
        let rate_before = self.rate();
        self.rate_max.reset(self.rate_rounds.0, Reverse(rate));
        self.rate_judged = rate;
        if rtt <= rtt_before * 3 / 4 {
            self.resume_cruise(DRAIN_ROUND);
            self.cruise(DRAIN_ROUND, &Round::NEW);
            return;
        }
        self.rtt_min.reset(now.as_nanos(), nanos(rtt));
        // The rate is most likely what it was: what limits it now is TCP, which begins anew.
        let first_bytes = product(rate_before, rtt);
        self.window_bytes_initial =
            first_bytes.clamp(WINDOW_BYTES_INITIAL, WINDOW_BYTES_INITIAL_FAR);
        self.set_window(window_bytes.max(self.window_bytes_initial.min(first_bytes)));
        self.changes.longer += 1;
        self.start_up(START_UP_PATIENCE_ROUNDS);
    }

    /// Goes on in `Cruise` as if `round` of its turn had come.
    fn resume_cruise(&mut self, round: u64) {
        self.phase = Phase::Cruise {
            since_round: self.round_count.saturating_sub(round),
        };
        self.reference = Round::NEW;
    }

    fn judge_growth(&mut self, round: &Round) {
        let rate = self.rate();
        match &mut self.phase {
            Phase::StartUp {
                still_rounds,
                patience_rounds,
            } => {
                if round.rate >= percent(self.rate_judged, 125) {
                    *still_rounds = 0;
                    self.rate_judged = rate;
                    return;
                }
                *still_rounds += 1;
                if *still_rounds >= *patience_rounds {
                    self.rate_judged = rate;
                    // The drain takes away the queue of the last doubling.
                    self.resume_cruise(DRAIN_ROUND);
                }
            }
            Phase::Cruise { .. } => {
                let grown = round.rate >= percent(self.rate_judged, 120);
                self.rate_judged = rate;
                if grown {
                    self.changes.faster += 1;
                    self.start_up(RESTART_PATIENCE_ROUNDS);
                }
            }
            Phase::Trial { .. } => {}
        }
    }

    fn start_up(&mut self, patience_rounds: u32) {
        self.phase = Phase::StartUp {
            still_rounds: 0,
            patience_rounds,
        };
    }

    /// Sets the window for this round of the turn.
    fn cruise(&mut self, rounds: u64, round: &Round) {
        let turn = rounds % CRUISE_ROUNDS;
        match turn {
            0 => self.reference = *round,
            // Our own queue hid how short the line is.
            FIRST_EVEN_ROUND if self.rtt() < self.drain_rtt * 97 / 100 => {
                self.resume_cruise(DRAIN_ROUND);
                self.drain_rtt = self.rtt();
                self.set_window(percent(self.bdp_bytes(), 75) + self.extent_bytes());
                return;
            }
            DRAIN_ROUND if self.probe_paid(round) => {
                self.changes.faster += 1;
                self.start_up(RESTART_PATIENCE_ROUNDS);
                return;
            }
            _ => {}
        }
        if turn == DRAIN_ROUND {
            self.drain_rtt = self.rtt();
        }
        let bdp_bytes = self.bdp_bytes();
        // The request that is being transferred is not yet part of what fills the pipe.
        let slack_bytes = 2 * self.extent_bytes();
        let window_bytes = match turn {
            0..DRAIN_ROUND => (percent(bdp_bytes, 150) + slack_bytes).max(self.floor_bytes()),
            DRAIN_ROUND => percent(bdp_bytes, 88) + self.extent_bytes(),
            _ => (percent(bdp_bytes, 125) + slack_bytes).max(self.floor_bytes()),
        };
        self.set_window(window_bytes);
    }

    /// Whether more bytes in flight brought more rate: then the line was not full.
    fn probe_paid(&self, round: &Round) -> bool {
        let before = &self.reference;
        let more_bytes = round
            .in_flight_bytes_max
            .saturating_sub(before.in_flight_bytes_max);
        let more_percent = more_bytes.saturating_mul(100) / before.in_flight_bytes_max.max(1);
        before.rate > 0
            && more_percent >= 10
            && round.rate >= percent(before.rate, 100 + more_percent / 2)
    }

    fn floor_bytes(&self) -> u64 {
        let (time, bytes_max) = match self.has_devices {
            true => (WINDOW_FLOOR_TIME_DEVICES, WINDOW_FLOOR_BYTES_MAX_DEVICES),
            false => (WINDOW_FLOOR_TIME, WINDOW_FLOOR_BYTES_MAX),
        };
        product(self.rate(), time).clamp(WINDOW_BYTES_MIN, bytes_max)
    }

    fn set_window(&mut self, window_bytes: u64) {
        let least_bytes = WINDOW_BYTES_MIN.max(2 * self.extent_bytes());
        self.window_bytes = window_bytes.max(least_bytes).min(self.window_bytes_cap);
    }
}
