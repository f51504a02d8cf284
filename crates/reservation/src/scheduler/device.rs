//! What is at the device, and whether it is as fast as it was measured to be.

use super::record::SECOND_NANOS;
use super::terms::{RequestKey, Shape, Source, WHOLE_PPM, Work, nanos};
use base::limits::SCHEDULER_RECORD_SECONDS_MAX;
use std::collections::{BTreeMap, VecDeque};

/// Seconds in a row that make a device degraded, or sound again.
const VERDICT_SECONDS: u32 = 3;

/// A request at the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flying {
    pub(super) source: Source,
    pub(super) work: Work,
}

/// What the device holds at the moment.
#[derive(Debug)]
pub(super) struct InFlight {
    requests: BTreeMap<RequestKey, Flying>,
    nanos: u64,
    nanos_max: u64,
    quantum_nanos: u64,
    count_max: usize,
    /// Schedulers that have something for the device now, this one included.
    busy: u32,
}

impl InFlight {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            requests: BTreeMap::new(),
            nanos: 0,
            nanos_max: nanos(shape.in_flight),
            quantum_nanos: nanos(shape.quantum),
            count_max: shape.requests_in_flight,
            busy: 1,
        }
    }

    pub(super) fn set_busy(&mut self, busy: u32) {
        self.busy = busy.max(1);
    }

    pub(super) fn nanos(&self) -> u64 {
        self.nanos
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether the device can be given this as well. If it has nothing, it can be given anything.
    pub(super) fn has_room(&self, cost_nanos: u64) -> bool {
        let nanos_max = (self.nanos_max / u64::from(self.busy)).max(self.quantum_nanos);
        let count_max = self.count_max.div_ceil(self.busy as usize);
        let fits = self.nanos.saturating_add(cost_nanos) <= nanos_max;
        self.requests.is_empty() || (fits && self.requests.len() < count_max)
    }

    pub(super) fn add(&mut self, key: RequestKey, flying: Flying) {
        self.nanos += flying.work.cost_nanos;
        self.requests.insert(key, flying);
    }

    pub(super) fn remove(&mut self, key: RequestKey) -> Option<Flying> {
        let flying = self.requests.remove(&key)?;
        self.nanos -= flying.work.cost_nanos;
        Some(flying)
    }
}

/// The device's seconds: a second counts if requests waited for at least half of it, because then
/// the device had all the work that it could do. Of a device that several schedulers have, each has
/// what it was promised as long as it has its equal part.
#[derive(Debug, Default)]
pub(super) struct Health {
    time: u64,
    /// See [`Shape::sharers`].
    sharers: u32,
    open: Second,
    /// In a row that were slower than what is promised, and that were not.
    slow_seconds: u32,
    sound_seconds: u32,
    is_degraded: bool,
    speed_ppm: Option<u32>,
    /// The last seconds in which the device was degraded.
    degraded: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct Second {
    /// Time with something at the device.
    busy_nanos: u64,
    /// Time with something waiting behind it.
    saturated_nanos: u64,
    /// Device time of what was finished.
    done_nanos: u64,
}

impl Health {
    pub(super) fn new(time: u64, sharers: u32) -> Self {
        Self {
            time,
            sharers,
            ..Self::default()
        }
    }

    /// Accounts for the time up to `time`, in which the device had something (`busy`) and something
    /// waited (`waits`), and in which `promised_ppm` of it were promised.
    pub(super) fn advance(&mut self, time: u64, busy: bool, waits: bool, promised_ppm: u64) {
        let kept = SCHEDULER_RECORD_SECONDS_MAX as u64 + 1;
        if (time / SECOND_NANOS).saturating_sub(self.time / SECOND_NANOS) > kept {
            self.open = Second::default();
            self.time = (time / SECOND_NANOS - kept) * SECOND_NANOS;
        }
        while self.time / SECOND_NANOS < time / SECOND_NANOS {
            let end = (self.time / SECOND_NANOS + 1) * SECOND_NANOS;
            self.account(end, busy, waits);
            self.close(end / SECOND_NANOS - 1, promised_ppm);
        }
        self.account(time, busy, waits);
    }

    fn account(&mut self, time: u64, busy: bool, waits: bool) {
        let step = time.saturating_sub(self.time);
        if busy {
            self.open.busy_nanos += step;
            if waits {
                self.open.saturated_nanos += step;
            }
        }
        self.time = self.time.max(time);
    }

    fn close(&mut self, second: u64, promised_ppm: u64) {
        let closed = std::mem::take(&mut self.open);
        let is_full = closed.saturated_nanos >= SECOND_NANOS / 2;
        let speed = u128::from(closed.done_nanos) * u128::from(WHOLE_PPM)
            / u128::from(closed.busy_nanos.max(1));
        let speed = u32::try_from(speed).unwrap_or(u32::MAX);
        if is_full {
            self.speed_ppm = Some(speed);
        }
        if is_full && u64::from(speed) * u64::from(self.sharers) < promised_ppm {
            self.slow_seconds += 1;
            self.sound_seconds = 0;
        } else {
            self.sound_seconds += 1;
            self.slow_seconds = 0;
        }
        if self.slow_seconds >= VERDICT_SECONDS {
            self.is_degraded = true;
        } else if self.sound_seconds >= VERDICT_SECONDS {
            self.is_degraded = false;
        }
        if self.is_degraded {
            if self.degraded.len() == SCHEDULER_RECORD_SECONDS_MAX {
                self.degraded.pop_front();
            }
            self.degraded.push_back(second);
        }
    }

    pub(super) fn finish(&mut self, cost_nanos: u64) {
        self.open.done_nanos += cost_nanos;
    }

    pub(super) fn sharers(&self) -> u32 {
        self.sharers
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    pub(super) fn speed_ppm(&self) -> Option<u32> {
        self.speed_ppm
    }

    pub(super) fn was_degraded(&self, second: u64) -> bool {
        self.degraded.binary_search(&second).is_ok()
    }
}
