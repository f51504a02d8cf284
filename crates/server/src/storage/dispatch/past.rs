//! What tickets got that are not open at a device: they were taken back or are over, or the server
//! was started anew since.
//!
//! Managers account for a window some seconds after its end, and a ticket that is shown again goes
//! on with its record. So this is kept for some minutes after the end that the ticket had
//! (`TICKET_KEPT_TIME`), in bounds: the first few with all their seconds, the others with the last
//! ones; beyond [`PAST_TICKETS_MAX`] what was split from tickets goes before whole ones, which
//! managers ask for.

use super::history::History;
use base::limits::{PAST_FULL_TICKETS_MAX, PAST_SECONDS_MAX, PAST_TICKETS_MAX};
use base::{TicketId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The tickets from the reservation's own to one that was split from it.
pub(crate) type Lineage = Vec<TicketId>;

/// What is noted of a ticket at a device. Times are whole seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) lineage: Lineage,
    /// Its window; of one that was taken back, until then.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Seconds before this one are accounted for.
    pub(crate) until: u64,
    /// When it is forgotten.
    pub(crate) kept_until: u64,
    /// Millionths of the device's time.
    pub(crate) share_ppm: u32,
    pub(crate) history: History,
}

impl Noted {
    /// The seconds of its window from the last one that is accounted for to `second` were missed.
    pub(super) fn miss_until(&mut self, second: u64) {
        let missed = self.until.max(self.start)..self.end.min(second);
        if !missed.is_empty() {
            self.until = missed.end;
            // A second has a thousand nanoseconds for each millionth.
            self.history.miss(missed, u64::from(self.share_ppm) * 1000);
        }
    }

    /// The same with the last seconds only: the server has been there until `now`.
    pub(super) fn seen(&self, now: Time, seconds_max: usize) -> Self {
        Self {
            lineage: self.lineage.clone(),
            until: self.until.max(seconds_of(now).min(self.end)),
            history: self.history.last(seconds_max),
            ..*self
        }
    }

    fn place(&self) -> Place {
        (
            self.lineage.len() == 1,
            self.kept_until,
            self.lineage.clone(),
        )
    }
}

/// The second that a moment lies in.
pub(super) fn seconds_of(time: Time) -> u64 {
    time.as_nanos() / 1_000_000_000
}

/// The first second that does not begin before a moment.
pub(super) fn seconds_up(time: Time) -> u64 {
    time.as_nanos().div_ceil(1_000_000_000)
}

/// In which order they are forgotten: whether it is a whole ticket, and when.
type Place = (bool, u64, Lineage);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Past {
    noted: BTreeMap<Lineage, Noted>,
    places: BTreeSet<Place>,
}

impl Past {
    pub(super) fn keep(&mut self, now: Time, mut noted: Noted) {
        if noted.kept_until <= seconds_of(now) {
            return;
        }
        self.take(&noted.lineage);
        if self.noted.len() >= PAST_FULL_TICKETS_MAX {
            noted.history = noted.history.last(PAST_SECONDS_MAX);
        }
        self.places.insert(noted.place());
        self.noted.insert(noted.lineage.clone(), noted);
        if self.noted.len() > PAST_TICKETS_MAX
            && let Some((.., lineage)) = self.places.pop_first()
        {
            self.noted.remove(&lineage);
        }
    }

    /// What a ticket got that is opened again.
    pub(super) fn take(&mut self, lineage: &[TicketId]) -> Option<History> {
        let noted = self.noted.remove(lineage)?;
        self.places.remove(&noted.place());
        Some(noted.history)
    }

    pub(super) fn get(&self, lineage: &[TicketId]) -> Option<&Noted> {
        self.noted.get(lineage)
    }

    /// The lineages after one, in order.
    pub(super) fn after(&self, lineage: Option<&[TicketId]>) -> impl Iterator<Item = &Lineage> {
        let from = lineage.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.noted.range::<[TicketId], _>((from, Bound::Unbounded));
        range.map(|(lineage, _)| lineage)
    }

    /// Forgets what was kept for long enough.
    pub(super) fn forget(&mut self, now: Time) {
        for is_whole in [false, true] {
            let first = (is_whole, 0, Lineage::new());
            while let Some(place) = self.places.range(first.clone()..).next().cloned()
                && place.0 == is_whole
                && place.1 <= seconds_of(now)
            {
                self.noted.remove(&place.2);
                self.places.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Totals;
    use super::*;
    use base::limits::{TICKET_KEPT_TIME, TICKET_RECORD_SECONDS_MAX};

    fn noted(lineage: Lineage, end: u64) -> Noted {
        Noted {
            lineage,
            start: 100,
            end,
            until: 110,
            kept_until: end + TICKET_KEPT_TIME.as_secs(),
            share_ppm: 500_000,
            history: History::default(),
        }
    }

    fn id(number: u64) -> TicketId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        TicketId(bytes)
    }

    #[test]
    fn seconds_without_a_server_are_missed_within_the_window_alone() {
        let missed = |mut noted: Noted, second| {
            noted.miss_until(second);
            noted.miss_until(second);
            let (seconds, totals) = noted.history.from(0);
            let last = seconds
                .last()
                .map(|last| (last.second, last.promised_nanos));
            (seconds.len(), totals.seconds, totals.kept, last)
        };
        let one = noted(vec![id(1)], 200);
        let some = (10, 10, 0, Some((119, 500_000_000)));
        assert_eq!(missed(one.clone(), 120), some);
        let rest = (90, 90, 0, Some((199, 500_000_000)));
        assert_eq!(missed(one.clone(), 5000), rest, "not beyond its end");
        assert_eq!(missed(one, 90).1, 0, "nor with a clock that was set back");
        let later = Noted {
            start: 150,
            ..noted(vec![id(1)], 200)
        };
        assert_eq!(missed(later, 120).1, 0, "nor before its start");
        let long = missed(noted(vec![id(1)], 1 << 40), 1 << 39);
        assert_eq!(long.1, (1 << 39) - 110);
        assert_eq!(long.0, TICKET_RECORD_SECONDS_MAX);
    }

    #[test]
    fn what_is_kept_has_bounds_and_parts_go_before_whole_tickets() {
        let (now, mut past) = (Time::from_secs(120), Past::default());
        past.keep(now, noted(vec![id(1)], 130));
        for number in 0..PAST_TICKETS_MAX as u64 + 9 {
            let mut part = noted(vec![id(1), id(number)], 200 + number);
            part.miss_until(300);
            past.keep(now, part);
        }
        assert_eq!(
            (past.noted.len(), past.places.len()),
            (PAST_TICKETS_MAX, PAST_TICKETS_MAX)
        );
        assert!(past.get(&[id(1)]).is_some() && past.get(&[id(1), id(9)]).is_none());
        let last = past.get(&[id(1), id(PAST_TICKETS_MAX as u64)]).unwrap();
        let (seconds, totals) = last.history.from(0);
        assert_eq!((seconds.len(), totals.seconds), (PAST_SECONDS_MAX, 190));
        past.forget(Time::from_secs(130 + TICKET_KEPT_TIME.as_secs()));
        assert!(past.get(&[id(1)]).is_none());
        past.forget(Time::from_secs(1 << 33));
        assert!(past.noted.is_empty() && past.places.is_empty());
        past.keep(now, noted(vec![id(1)], 130));
        assert_eq!(past.take(&[id(1)]).unwrap().from(0).1, Totals::default());
        assert!(past.take(&[id(1)]).is_none() && past.places.is_empty());
    }
}
