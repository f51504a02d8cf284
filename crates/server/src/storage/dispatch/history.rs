//! What a ticket got at one device, for who asks: the last seconds one by one, all of them in sum.
//!
//! The scheduler closes seconds; they are taken from it before it forgets them. A request that
//! stood still in the middle of a change was not at the device any more when it was done: its
//! bytes are added to the newest second that is closed. A second that comes in two halves, because
//! its ticket was shown again in the middle of it, counts once. So does one of a ticket and of what
//! was split from it, whose seconds are its own as well.

use base::limits::TICKET_RECORD_SECONDS_MAX;
use reservation::scheduler::{Cause, TicketSecond};
use std::collections::VecDeque;
use std::ops::Range;

/// Sums over the seconds of a ticket that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many there were.
    pub seconds: u64,
    /// Those in which it had what was promised, or did not want it.
    pub kept: u64,
    /// Bytes that were moved.
    pub bytes: u64,
}

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    seconds: VecDeque<TicketSecond>,
    totals: Totals,
}

/// Whether the server has done its part in a second.
fn is_kept(shortfall: Option<Cause>) -> bool {
    rank(shortfall) < rank(Some(Cause::SlowDevice))
}

/// The server's fault before the client's.
fn rank(shortfall: Option<Cause>) -> u8 {
    match shortfall {
        None => 0,
        Some(Cause::NoDemand) => 1,
        Some(Cause::TooFewInFlight) => 2,
        Some(Cause::SlowDevice) => 3,
        Some(Cause::Degraded) => 4,
        Some(Cause::ServerAway) => 5,
    }
}

impl History {
    /// What was noted: the last seconds, oldest first, and the sums over all.
    pub(crate) fn of(seconds: Vec<TicketSecond>, totals: Totals) -> Self {
        let seconds = seconds.into();
        Self { seconds, totals }
    }

    pub(super) fn add(&mut self, seconds: Vec<TicketSecond>) {
        for second in seconds {
            // One that is not there and before the last, after the clock was set back between two
            // runs, had been counted when it was there first.
            match self.place(second.second) {
                Ok(place) => self.add_at(place, second),
                Err(place) if place < self.seconds.len() => {
                    self.add_at(self.seconds.len() - 1, second);
                }
                Err(place) => self.insert(place, second),
            }
        }
    }

    /// Adds seconds of what was split from the ticket: it may have had none of its own then.
    pub(super) fn add_parts(&mut self, seconds: Vec<TicketSecond>) {
        for second in seconds {
            match self.place(second.second) {
                Ok(place) => self.add_at(place, second),
                Err(place) => self.insert(place, second),
            }
        }
    }

    fn place(&self, second: u64) -> Result<usize, usize> {
        self.seconds
            .binary_search_by_key(&second, |known| known.second)
    }

    fn add_at(&mut self, place: usize, second: TicketSecond) {
        let known = &mut self.seconds[place];
        let was_kept = is_kept(known.shortfall);
        known.bytes += second.bytes;
        known.served_nanos += second.served_nanos;
        known.promised_nanos += second.promised_nanos;
        if rank(second.shortfall) > rank(known.shortfall) {
            known.shortfall = second.shortfall;
        }
        self.totals.kept -= u64::from(was_kept && !is_kept(known.shortfall));
        self.totals.bytes += second.bytes;
    }

    fn insert(&mut self, place: usize, second: TicketSecond) {
        self.totals.seconds += 1;
        self.totals.kept += u64::from(is_kept(second.shortfall));
        self.totals.bytes += second.bytes;
        self.seconds.insert(place, second);
        self.forget();
    }

    /// The first one, if there are too many.
    fn forget(&mut self) {
        if self.seconds.len() > TICKET_RECORD_SECONDS_MAX {
            self.seconds.pop_front();
        }
    }

    /// Seconds in which there was no server. Those up to the last one that is known were counted:
    /// there was one in a part of it, or the clock was set back since.
    pub(super) fn miss(&mut self, seconds: Range<u64>, promised_nanos: u64) {
        let last = self.seconds.back();
        let fresh = last.map_or(0, |last| last.second.saturating_add(1));
        let count = seconds.end.saturating_sub(seconds.start.max(fresh));
        self.totals.seconds += count;
        let shown = count.min(TICKET_RECORD_SECONDS_MAX as u64);
        for second in seconds.end - shown..seconds.end {
            self.seconds.push_back(TicketSecond {
                second,
                bytes: 0,
                served_nanos: 0,
                promised_nanos,
                shortfall: Some(Cause::ServerAway),
            });
            self.forget();
        }
    }

    /// The same with the last seconds only.
    pub(crate) fn last(&self, seconds_max: usize) -> Self {
        let surplus = self.seconds.len().saturating_sub(seconds_max);
        Self {
            seconds: self.seconds.range(surplus..).copied().collect(),
            totals: self.totals,
        }
    }

    pub(super) fn credit(&mut self, bytes: u64) {
        self.totals.bytes += bytes;
        if let Some(last) = self.seconds.back_mut() {
            last.bytes += bytes;
        }
    }

    /// The seconds from one on, oldest first, and the sums over all of them.
    pub(crate) fn from(&self, second: u64) -> (Vec<TicketSecond>, Totals) {
        let first = self.seconds.partition_point(|known| known.second < second);
        (self.seconds.range(first..).copied().collect(), self.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64, shortfall: Option<Cause>) -> TicketSecond {
        TicketSecond {
            second,
            bytes: 10,
            served_nanos: 1,
            promised_nanos: 1,
            shortfall,
        }
    }

    #[test]
    fn a_second_in_two_halves_counts_once_and_those_without_a_server_were_not_kept() {
        let mut history = History::default();
        history.add(vec![second(7, None), second(8, Some(Cause::NoDemand))]);
        history.add(vec![second(8, None), second(9, None)]);
        history.miss(10..12, 5);
        history.add(vec![second(11, None), second(3, None), second(12, None)]);
        let (all, totals) = history.from(0);
        let expected = Totals {
            seconds: 6,
            kept: 4,
            bytes: 70,
        };
        assert_eq!(totals, expected);
        let seen: Vec<_> = all.iter().map(|one| (one.second, one.bytes)).collect();
        let bytes = [(7, 10), (8, 20), (9, 10), (10, 0), (11, 20), (12, 10)];
        assert_eq!(seen, bytes);
        assert_eq!(all[3].promised_nanos, 5);
        assert_eq!(all[4].shortfall, Some(Cause::ServerAway));
        // One that was kept by its first half alone.
        history.add(vec![second(12, Some(Cause::SlowDevice))]);
        assert_eq!(history.from(0).1.kept, 3);
        let last = history.last(2);
        assert_eq!(last.from(0).0, history.from(11).0);
        assert_eq!(last.from(0).1, history.from(0).1);
    }

    #[test]
    fn seconds_that_are_known_are_not_missed_again() {
        let mut history = History::default();
        history.add(vec![second(7, None), second(10, None)]);
        history.miss(5..10, 5);
        history.miss(10..11, 5);
        assert_eq!(history.from(0).0.len(), 2);
        history.miss(8..13, 5);
        let (all, totals) = history.from(0);
        let seen: Vec<_> = all.iter().map(|one| one.second).collect();
        assert_eq!((seen, totals.seconds), (vec![7, 10, 11, 12], 4));
        history.add(vec![second(u64::MAX, None)]);
        history.miss(13..u64::MAX, 5);
        assert_eq!(history.from(0).0.len(), 5);
    }

    #[test]
    fn the_last_seconds_are_kept_and_all_are_counted() {
        let mut history = History::default();
        history.credit(3);
        let many = TICKET_RECORD_SECONDS_MAX as u64 + 5;
        let cause = |at| match at % 4 {
            0 => Some(Cause::SlowDevice),
            1 => Some(Cause::NoDemand),
            2 => Some(Cause::Degraded),
            _ => None,
        };
        history.add((0..many).map(|at| second(at, cause(at))).collect());
        history.credit(4);
        let (all, totals) = history.from(0);
        assert_eq!(all.len(), TICKET_RECORD_SECONDS_MAX);
        assert_eq!((all[0].second, all.last().unwrap().bytes), (5, 14));
        let short = (0..many).filter(|at| at % 2 == 0).count() as u64;
        let expected = Totals {
            seconds: many,
            kept: many - short,
            bytes: 10 * many + 7,
        };
        assert_eq!(totals, expected);
        assert_eq!(history.from(many - 2).0.len(), 2);
        assert!(history.from(many).0.is_empty());
    }
}
