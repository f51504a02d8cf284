//! What tickets got that are not open at a device: they were taken back or are over, or the server
//! was started anew since.
//!
//! Managers account for a window some seconds after its end, and a ticket that is shown again goes
//! on with its record. So this is kept for some minutes after the end that the ticket had
//! (`TICKET_KEPT_TIME`), in bounds: the first few with all their seconds, the others with the last
//! ones; beyond [`PAST_TICKETS_MAX`] what was split from tickets goes before whole ones, which
//! managers ask for, and of these what was over first, which they have asked for.

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
    /// Of the ticket that was shown.
    pub(crate) epoch: u64,
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

    /// It was taken back, in this second at the latest: nothing is missed from then on.
    pub(super) fn cut(&mut self, second: u64) {
        self.end = self.end.min(second.max(self.start));
        self.until = self.end;
    }

    /// The same, if it was taken back: nobody knows when, but not before what is noted of it.
    pub(crate) fn cut_if(&mut self, is_revoked: impl Fn(TicketId, u64) -> bool) {
        if self.is_one_of(is_revoked) {
            self.cut(self.until);
        }
    }

    fn is_one_of(&self, is_revoked: impl Fn(TicketId, u64) -> bool) -> bool {
        let mut lineage = self.lineage.iter();
        lineage.any(|ticket| is_revoked(*ticket, self.epoch))
    }

    fn place(&self) -> Place {
        let is_whole = self.lineage.len() == 1;
        (is_whole, self.until, self.lineage.clone())
    }

    fn end_place(&self) -> (u64, Lineage) {
        (self.kept_until, self.lineage.clone())
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

/// In which order they make room for others: whether it is a whole ticket, and until when it is
/// accounted for.
type Place = (bool, u64, Lineage);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Past {
    noted: BTreeMap<Lineage, Noted>,
    places: BTreeSet<Place>,
    /// When each is forgotten.
    ends: BTreeSet<(u64, Lineage)>,
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
        self.insert(noted);
        if self.noted.len() > PAST_TICKETS_MAX
            && let Some((.., lineage)) = self.places.first().cloned()
        {
            self.remove(&lineage);
        }
    }

    fn insert(&mut self, noted: Noted) {
        self.places.insert(noted.place());
        self.ends.insert(noted.end_place());
        self.noted.insert(noted.lineage.clone(), noted);
    }

    fn remove(&mut self, lineage: &[TicketId]) -> Option<Noted> {
        let noted = self.noted.remove(lineage)?;
        self.places.remove(&noted.place());
        self.ends.remove(&noted.end_place());
        Some(noted)
    }

    /// Tickets are taken back: also of those that were not shown yet since the server began,
    /// nothing is missed any more.
    pub(super) fn revoke(&mut self, now: Time, is_revoked: impl Fn(TicketId, u64) -> bool) {
        let second = seconds_up(now);
        let gone = self.noted.values();
        let gone = gone.filter(|noted| noted.end > second && noted.is_one_of(&is_revoked));
        for lineage in gone.map(|it| it.lineage.clone()).collect::<Vec<_>>() {
            if let Some(mut noted) = self.remove(&lineage) {
                noted.cut(second);
                self.insert(noted);
            }
        }
    }

    /// What a ticket got that is opened again.
    pub(super) fn take(&mut self, lineage: &[TicketId]) -> Option<History> {
        Some(self.remove(lineage)?.history)
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
        while let Some((kept_until, lineage)) = self.ends.first().cloned()
            && kept_until <= seconds_of(now)
        {
            self.remove(&lineage);
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
            epoch: 0,
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
        assert!(past.ends.is_empty());
    }

    #[test]
    fn what_was_over_first_makes_room_whenever_it_should_have_ended() {
        let (now, mut past) = (Time::from_secs(120), Past::default());
        for number in 0..PAST_TICKETS_MAX as u64 {
            let mut whole = noted(vec![id(number)], 1 << 20);
            whole.until += number % 7 + 1;
            past.keep(now, whole);
        }
        // Released a moment ago; its window would have ended before all others.
        let mut released = noted(vec![id(1 << 40)], 900);
        released.cut(118);
        past.keep(now, released);
        assert!(past.get(&[id(1 << 40)]).is_some());
        let gone = (0..PAST_TICKETS_MAX as u64).filter(|it| past.get(&[id(*it)]).is_none());
        assert!(gone.eq([0]), "the first of those that ended first");
        assert_eq!(past.places.len(), past.ends.len());
    }

    #[test]
    fn what_was_taken_back_misses_nothing_from_then_on() {
        let (now, mut past) = (Time::from_secs(150), Past::default());
        for whole in [1, 2] {
            past.keep(now, noted(vec![id(whole)], 200));
            past.keep(now, noted(vec![id(whole), id(9)], 200));
        }
        past.revoke(now, |ticket, epoch| ticket == id(1) && epoch == 0);
        for (lineage, seconds) in [
            (vec![id(1)], 0),
            (vec![id(1), id(9)], 0),
            (vec![id(2)], 90),
            (vec![id(2), id(9)], 90),
        ] {
            let mut noted = past.remove(&lineage).unwrap();
            noted.miss_until(1 << 30);
            assert_eq!(noted.history.from(0).1.seconds, seconds, "{lineage:?}");
        }
        assert!(past.places.is_empty() && past.ends.is_empty());
        let mut noted = noted(vec![id(1)], 200);
        noted.cut_if(|_, epoch| epoch == 1);
        assert_eq!(noted.end, 200);
        noted.cut_if(|_, epoch| epoch == 0);
        assert_eq!((noted.end, noted.until), (110, 110));
    }
}
