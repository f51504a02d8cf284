//! What a ticket got at one device, for who asks: the last seconds one by one, all of them in sum.
//!
//! The scheduler closes seconds; they are taken from it before it forgets them. A request that
//! stood still in the middle of a change was not at the device any more when it was done: its
//! bytes are added to the newest second that is closed.

use base::limits::TICKET_RECORD_SECONDS_MAX;
use reservation::scheduler::{Cause, TicketSecond};
use std::collections::VecDeque;

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
#[derive(Debug, Default)]
pub(super) struct History {
    seconds: VecDeque<TicketSecond>,
    totals: Totals,
}

impl History {
    pub(super) fn add(&mut self, seconds: Vec<TicketSecond>) {
        for second in seconds {
            let is_kept = matches!(
                second.shortfall,
                None | Some(Cause::NoDemand | Cause::TooFewInFlight)
            );
            self.totals.seconds += 1;
            self.totals.kept += u64::from(is_kept);
            self.totals.bytes += second.bytes;
            if self.seconds.len() == TICKET_RECORD_SECONDS_MAX {
                self.seconds.pop_front();
            }
            self.seconds.push_back(second);
        }
    }

    pub(super) fn credit(&mut self, bytes: u64) {
        self.totals.bytes += bytes;
        if let Some(last) = self.seconds.back_mut() {
            last.bytes += bytes;
        }
    }

    /// The seconds from one on, oldest first, and the sums over all of them.
    pub(super) fn from(&self, second: u64) -> (Vec<TicketSecond>, Totals) {
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
