//! What a ticket got, second by second, and what was the cause if that was too little.
//!
//! A second is kept if it touches the ticket's interval. Promised is the share of what of the
//! second lies in the interval; served is the device time of what the device finished in it. Device
//! time and not bytes is compared, because it is what was reserved: who reads 4 KiB at a time gets
//! the whole share and few bytes. Bytes are counted beside it.
//!
//! Less than 95 % is a shortfall (one request that was cut by the end of the second counts as
//! served). Who did not let anything wait for at least the missing time's worth has caused it;
//! otherwise the device has. That the scheduler withholds a share is not a cause: it would be a
//! mistake in it, and counts as the device's.
//!
//! Seconds are closed when something happens to the ticket or when the record is taken, not by a
//! timer.

use super::device::Health;
use super::terms::WHOLE_PPM;
use base::limits::SCHEDULER_RECORD_SECONDS_MAX;
use std::collections::VecDeque;

/// Part of what was promised that makes a second good: Q1 of the design.
const GOOD_PERCENT: u64 = 95;
pub(super) const SECOND_NANOS: u64 = 1_000_000_000;

/// One second of a ticket at one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketSecond {
    /// Whole seconds of the caller's clock.
    pub second: u64,
    /// Bytes that the device moved for it.
    pub bytes: u64,
    /// Device time of these.
    pub served_nanos: u64,
    /// Device time that was promised.
    pub promised_nanos: u64,
    /// Why it was less than promised; `None` if it was not.
    pub shortfall: Option<Cause>,
}

/// Why a second brought less than promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nothing waited and nothing was at the device: nobody wanted anything.
    NoDemand,
    /// Something was at the device, but nothing waited behind it: the client has to have more
    /// requests under way.
    TooFewInFlight,
    /// The device was slower than it was measured to be.
    SlowDevice,
    /// The device had been too slow for what is promised for several seconds.
    Degraded,
    /// The server was not there. No scheduler says so: whoever keeps its records does.
    ServerAway,
}

/// What a ticket asks for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Nothing,
    InFlight,
    Waiting,
}

/// A second that is not over.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    bytes: u64,
    served_nanos: u64,
    /// In millionths of nanoseconds, so that nothing is lost by rounding.
    promised: u128,
    /// What of it was promised while nothing was wanted, and while nothing waited behind what was
    /// in flight.
    undemanded: u128,
    unqueued: u128,
}

/// See the module's head. Times are nanoseconds of the scheduler's clock.
#[derive(Debug)]
pub(super) struct Record {
    interval: (u64, u64),
    share_ppm: u32,
    demand: Demand,
    /// Until when it is accounted for.
    time: u64,
    open: Open,
    closed: VecDeque<TicketSecond>,
    request_cost_max: u64,
}

impl Record {
    pub(super) fn new(time: u64, interval: (u64, u64), share_ppm: u32) -> Self {
        Self {
            interval,
            share_ppm,
            demand: Demand::Nothing,
            time,
            open: Open::default(),
            closed: VecDeque::new(),
            request_cost_max: 0,
        }
    }

    /// Accounts for the time up to `time`. To be called before anything changes.
    pub(super) fn advance(&mut self, time: u64, health: &Health) {
        let kept = SCHEDULER_RECORD_SECONDS_MAX as u64 + 1;
        if (time / SECOND_NANOS).saturating_sub(self.time / SECOND_NANOS) > kept {
            // So long nothing happened that the seconds before would not be kept anyway.
            self.open = Open::default();
            self.time = (time / SECOND_NANOS - kept) * SECOND_NANOS;
        }
        while self.time / SECOND_NANOS < time / SECOND_NANOS {
            let end = (self.time / SECOND_NANOS + 1) * SECOND_NANOS;
            self.account(end, health);
            self.close(end / SECOND_NANOS - 1, health);
        }
        self.account(time, health);
    }

    fn account(&mut self, time: u64, health: &Health) {
        let start = self.time.max(self.interval.0);
        let end = time.min(self.interval.1);
        let promised = u128::from(end.saturating_sub(start)) * u128::from(self.share_ppm);
        let promised = promised / u128::from(health.sharers());
        self.open.promised += promised;
        match self.demand {
            Demand::Nothing => self.open.undemanded += promised,
            Demand::InFlight => self.open.unqueued += promised,
            Demand::Waiting => {}
        }
        self.time = self.time.max(time);
    }

    fn close(&mut self, second: u64, health: &Health) {
        let open = std::mem::take(&mut self.open);
        if open.promised == 0 && open.served_nanos == 0 {
            return;
        }
        if self.closed.len() == SCHEDULER_RECORD_SECONDS_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back(TicketSecond {
            second,
            bytes: open.bytes,
            served_nanos: open.served_nanos,
            promised_nanos: nanos_of(open.promised),
            shortfall: self.cause(&open, health.was_degraded(second)),
        });
    }

    fn cause(&self, open: &Open, was_degraded: bool) -> Option<Cause> {
        let enough = nanos_of(open.promised) / 100 * GOOD_PERCENT;
        let served = open.served_nanos.saturating_add(self.request_cost_max);
        let missing = enough.checked_sub(served).filter(|missing| *missing > 0)?;
        Some(if nanos_of(open.undemanded + open.unqueued) >= missing {
            if open.undemanded >= open.unqueued {
                Cause::NoDemand
            } else {
                Cause::TooFewInFlight
            }
        } else if was_degraded {
            Cause::Degraded
        } else {
            Cause::SlowDevice
        })
    }

    /// What the ticket asks for from now on.
    pub(super) fn set_demand(&mut self, waiting: usize, in_flight: usize) {
        self.demand = match (waiting, in_flight) {
            (0, 0) => Demand::Nothing,
            (0, _) => Demand::InFlight,
            _ => Demand::Waiting,
        };
    }

    /// The device has finished something.
    pub(super) fn serve(&mut self, bytes: u64, cost_nanos: u64) {
        self.open.bytes += bytes;
        self.open.served_nanos += cost_nanos;
        self.request_cost_max = self.request_cost_max.max(cost_nanos);
    }

    /// Another share or end from now on.
    pub(super) fn change(&mut self, share_ppm: u32, end: u64) {
        self.share_ppm = share_ppm;
        self.interval.1 = end;
    }

    /// The seconds that are over and were not taken yet, oldest first.
    pub(super) fn take(&mut self) -> Vec<TicketSecond> {
        self.closed.drain(..).collect()
    }

    /// All of them, with the one that is not over.
    pub(super) fn finish(&mut self, health: &Health) -> Vec<TicketSecond> {
        self.close(self.time / SECOND_NANOS, health);
        self.take()
    }
}

/// A second has too few nanoseconds for more than 64 bits.
fn nanos_of(millionths: u128) -> u64 {
    u64::try_from(millionths / u128::from(WHOLE_PPM)).unwrap_or(u64::MAX)
}
