//! The clock by which windows are judged: the wall's time, without its jumps.
//!
//! Tickets speak of seconds since 1970, so the wall's clock must be followed; but shares are paced
//! by time, and a clock that is set back would stop them. So time goes on with the kernel's
//! monotonic clock and is drawn towards the wall's, at most a tenth faster or slower than that. A
//! wall clock that was set by a minute is followed within ten. How far the two are apart is known
//! ([`Slewed::behind`]): while it is more than tickets are given as tolerance, no new ones are
//! believed.

use base::Time;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What is gained or lost in ten nanoseconds at most: one.
const SLEW_DIVISOR: u64 = 10;

/// See the module's head; a pure structure, times are arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slewed {
    /// The monotonic time that was seen last.
    monotonic: Time,
    now: Time,
    /// The wall's time then.
    wall: Time,
}

impl Slewed {
    /// Begins with the wall's time.
    pub(super) fn new(monotonic: Time, wall: Time) -> Self {
        Self {
            monotonic,
            now: wall,
            wall,
        }
    }

    /// The time now; never before what was said earlier.
    pub(super) fn advance(&mut self, monotonic: Time, wall: Time) -> Time {
        let passed = monotonic.since(self.monotonic);
        self.monotonic = self.monotonic.max(monotonic);
        self.wall = wall;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let slew_max = nanos(passed) / SLEW_DIVISOR;
        let on = self.now + passed;
        let forward = Duration::from_nanos(nanos(wall.since(on)).min(slew_max));
        let back = Duration::from_nanos(nanos(on.since(wall)).min(slew_max));
        self.now = on + forward - back;
        self.now
    }

    /// How far it is from the wall's time.
    pub(super) fn behind(&self) -> Duration {
        self.wall.since(self.now).max(self.now.since(self.wall))
    }
}

/// The clock of a storage server, for all its threads.
#[derive(Debug)]
pub(crate) struct StorageClock {
    begin: Instant,
    slewed: Mutex<Slewed>,
}

impl StorageClock {
    pub(super) fn start() -> Self {
        Self {
            begin: Instant::now(),
            slewed: Mutex::new(Slewed::new(Time::ZERO, wall())),
        }
    }

    /// Wall time as far as it can be trusted.
    pub(crate) fn now(&self) -> Time {
        let monotonic = Time::ZERO + self.begin.elapsed();
        let mut slewed = self.slewed.lock().unwrap_or_else(PoisonError::into_inner);
        slewed.advance(monotonic, wall())
    }

    /// See [`Slewed::behind`].
    pub(super) fn error(&self) -> Duration {
        self.now();
        let slewed = self.slewed.lock().unwrap_or_else(PoisonError::into_inner);
        slewed.behind()
    }
}

fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Time::ZERO + since.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_followed_slowly_and_never_back() {
        let second = Time::from_secs;
        let mut clock = Slewed::new(second(5), second(1000));
        assert_eq!(clock.advance(second(6), second(1001)), second(1001));
        // Set back by a minute: time goes on, a tenth slower.
        let slow = clock.advance(second(16), second(951));
        assert_eq!(slow, second(1010));
        assert_eq!(clock.behind(), Duration::from_secs(59));
        // Set forward: a tenth faster.
        let fast = clock.advance(second(26), second(1100));
        assert_eq!(fast, second(1021));
        let mut last = fast;
        for step in 27..2000 {
            let now = clock.advance(second(step), second(1074 + step));
            assert!(now > last);
            last = now;
        }
        assert_eq!(last, second(1074 + 1999), "and catches up");
        assert_eq!(clock.behind(), Duration::ZERO);
        // A monotonic clock does not step back; if it did, nothing would happen.
        assert_eq!(clock.advance(second(1), second(1)), last);
    }
}
