//! The naive calendar: an array with one entry for each second.

use reservation::{Interval, Moment};

/// Seconds that the array has; what is tested begins and ends within.
pub(crate) const SECONDS: u64 = 120;

/// Where the array lies in time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Its last entry stands for ever after.
    Now,
    /// Behind its last entry there is no time.
    EndOfTime,
}

impl Place {
    /// The moment of an entry; the one behind the last is for ever.
    pub(crate) fn moment(self, index: u64) -> Moment {
        match self {
            _ if index == SECONDS => Moment::FOREVER,
            Self::Now => Moment::from_secs(1_800_000_000 + index),
            Self::EndOfTime => Moment::from_secs((u64::MAX - SECONDS).saturating_add(index)),
        }
    }

    /// The interval between two entries; `start < end <= SECONDS`.
    pub(crate) fn interval(self, start: u64, end: u64) -> Interval {
        Interval::new(self.moment(start), self.moment(end)).expect("start < end")
    }
}

/// One resource.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) place: Place,
    pub(crate) now: u64,
    pub(crate) capacity: u64,
    pub(crate) guard: u64,
    pub(crate) taken: Vec<u64>,
}

impl Model {
    pub(crate) fn new(place: Place, capacity: u64, guard: u64) -> Self {
        Self {
            place,
            now: 0,
            capacity,
            guard,
            taken: vec![0; SECONDS as usize],
        }
    }

    /// The entries from now on that count for a claim.
    pub(crate) fn occupied(&self, start: u64, end: u64) -> std::ops::Range<usize> {
        let end = if end >= SECONDS {
            SECONDS
        } else {
            end + self.guard
        };
        start.max(self.now) as usize..end.min(SECONDS) as usize
    }

    pub(crate) fn peak(&self, start: u64, end: u64) -> u64 {
        let seconds = self.taken.get(self.occupied(start, end));
        seconds
            .unwrap_or_default()
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn room(&self, start: u64, end: u64) -> u64 {
        self.capacity.saturating_sub(self.peak(start, end))
    }

    pub(crate) fn add(&mut self, start: u64, end: u64, amount: u64) {
        for second in self.occupied(start, end) {
            self.taken[second] += amount;
        }
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64, amount: u64) {
        for second in self.occupied(start, end) {
            self.taken[second] -= amount;
        }
    }

    /// The first entry of an interval at which `amount` does not fit.
    pub(crate) fn first_short(&self, start: u64, end: u64, amount: u64) -> Option<u64> {
        if amount > self.capacity {
            return Some(start.max(self.now));
        }
        let is_short = |second: &usize| amount > 0 && self.taken[*second] + amount > self.capacity;
        self.occupied(start, end)
            .find(is_short)
            .map(|second| second as u64)
    }

    /// The first interval that fits, second by second.
    pub(crate) fn first_fit(
        &self,
        amount: u64,
        duration: Option<u64>,
        earliest: u64,
        latest_end: u64,
    ) -> Option<Interval> {
        (earliest.max(self.now)..SECONDS).find_map(|start| {
            let end = match duration {
                Some(seconds) => start + seconds,
                None => SECONDS,
            };
            let ends = match (duration, self.place) {
                (None, _) => latest_end == SECONDS,
                (Some(0), _) => false,
                (Some(_), Place::Now) => latest_end == SECONDS || end <= latest_end,
                (Some(_), Place::EndOfTime) => end <= latest_end.min(SECONDS - 1),
            };
            let fits = self.first_short(start, end, amount).is_none();
            let interval = match duration {
                Some(seconds) => Interval::new(
                    self.place.moment(start),
                    self.place.moment(start).plus(seconds),
                ),
                None => Interval::unlimited(self.place.moment(start)),
            };
            (ends && fits).then(|| interval.expect("it has seconds"))
        })
    }

    /// The longest interval that fits, second by second.
    pub(crate) fn longest_fit(&self, amount: u64, start: u64) -> Option<Interval> {
        let start = start.max(self.now);
        let fits = |end: &u64| self.first_short(start, *end, amount).is_none();
        let end = (start + 1..=SECONDS).rev().find(fits)?;
        Some(self.place.interval(start, end))
    }
}
