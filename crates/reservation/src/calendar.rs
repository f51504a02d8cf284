//! The calendar of one resource: how much of it there is, and how much is taken when.
//!
//! Amounts are whole numbers of a unit that the owner chooses: allocation units of space,
//! millionths of a device's time. The calendar knows neither claims nor holders; who takes has to
//! remember what and gives back exactly that.
//!
//! # The guard
//!
//! What was taken for [start, end) is free for others `guard_seconds` after the end, because the
//! holder's clock may be behind and what it leaves has to be cleared. The interval with its guard
//! is called *occupied* ([`Calendar::occupied`]); it counts in every question that is about
//! admission. One guard behind each interval keeps two holders as far apart as half of it on both
//! sides would, so a bound on clocks that are wrong in both directions is given here twice.
//!
//! Who leaves early leaves a guard too, counted from then; who never came leaves none.
//!
//! # The past
//!
//! A calendar begins at its `now` ([`Calendar::advance`]), and what was before is not known any
//! more. Of an interval that began earlier the rest counts. Taking needs no room in the past, and
//! giving back gives nothing back there.

use crate::levels::{Change, Levels};
use crate::{Interval, Moment};

/// Largest capacity: sums of levels then fit into 64 bits with their sign.
pub const CAPACITY_MAX: u64 = 1 << 62;

/// Capacity over time. Cost of a question or a change: a few hundred nanoseconds, growing with the
/// logarithm of the changes that are known, whatever their length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    capacity: u64,
    guard_seconds: u64,
    levels: Levels,
}

/// Where there is too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only {room} is left, short from {from} on")]
pub struct Shortage {
    /// The first moment at which it does not fit.
    pub from: Moment,
    /// The largest amount that fits all the time.
    pub room: u64,
}

/// A stretch in which more is taken than there is, as after a loss of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overfull {
    /// When; it cannot be made longer.
    pub interval: Interval,
    /// The most that is taken within it.
    pub peak: u64,
}

/// Changes that no calendar has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is taken from {at} on does not follow from what was before")]
pub struct DamagedChanges {
    /// The first change that cannot be.
    pub at: Moment,
}

impl Calendar {
    /// A resource of which `capacity` is free from `now` on.
    ///
    /// # Panics
    /// If `capacity` is above [`CAPACITY_MAX`].
    #[must_use]
    pub fn new(now: Moment, capacity: u64, guard_seconds: u64) -> Self {
        assert!(capacity <= CAPACITY_MAX, "{capacity} is no capacity");
        Self {
            capacity,
            guard_seconds,
            levels: Levels::new(now),
        }
    }

    /// The calendar of which these are the [`Self::changes`], with `now` as its beginning: what was
    /// before is added up. Much faster than taking claim by claim.
    ///
    /// # Errors
    /// [`DamagedChanges`] if they are not in the order of time, if less than nothing would be
    /// taken, or more than [`CAPACITY_MAX`].
    ///
    /// # Panics
    /// If `capacity` is above [`CAPACITY_MAX`].
    pub fn from_changes(
        now: Moment,
        capacity: u64,
        guard_seconds: u64,
        changes: impl IntoIterator<Item = (Moment, i64)>,
    ) -> Result<Self, DamagedChanges> {
        let mut calendar = Self::new(now, capacity, guard_seconds);
        let (mut before, mut base, mut level) = (None, 0, 0_i64);
        let mut later = Vec::new();
        for (at, delta) in changes {
            let in_order = before < Some(at) && at < Moment::FOREVER;
            let sum = level.checked_add(delta).filter(|_| in_order);
            level = sum
                .filter(|level| (0..=signed(CAPACITY_MAX)).contains(level))
                .ok_or(DamagedChanges { at })?;
            before = Some(at);
            if at <= now {
                base = level;
            } else if delta != 0 {
                later.push(Change { at, delta });
            }
        }
        calendar.levels = Levels::from_changes(now, base, later);
        Ok(calendar)
    }

    /// The moment at which it begins.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.levels.origin()
    }

    /// How much there is.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Seconds after the end of an interval in which it still counts.
    #[must_use]
    pub fn guard_seconds(&self) -> u64 {
        self.guard_seconds
    }

    /// What counts for a claim to `interval`: it and its guard.
    #[must_use]
    pub fn occupied(&self, interval: Interval) -> Interval {
        let end = interval.end().plus(self.guard_seconds);
        Interval::new(interval.start(), end).expect("a guard makes nothing shorter")
    }

    /// Forgets what was before `now`. A `now` before that of the calendar changes nothing.
    pub fn advance(&mut self, now: Moment) {
        self.levels.forget_before(now);
    }

    /// The most that is taken at one moment of `interval`, without its guard.
    #[must_use]
    pub fn peak(&self, interval: Interval) -> u64 {
        amount(self.levels.high(interval))
    }

    /// The largest amount that can be taken for `interval`: its guard is looked at, too.
    #[must_use]
    pub fn room(&self, interval: Interval) -> u64 {
        self.room_within(self.occupied(interval))
    }

    /// Whether `amount` can be taken for `interval`.
    #[must_use]
    pub fn can_take(&self, interval: Interval, amount: u64) -> bool {
        amount <= self.room(interval)
    }

    /// Takes `amount` for `interval`, or nothing.
    ///
    /// # Errors
    /// [`Shortage`] if it does not fit everywhere.
    pub fn take(&mut self, interval: Interval, amount: u64) -> Result<(), Shortage> {
        let occupied = self.occupied(interval);
        self.judge(occupied, amount, self.capacity)?;
        self.raise(occupied, signed(amount));
        Ok(())
    }

    /// Lengthens what was taken for `interval` to `end`: only what is added has to fit. An `end`
    /// that is not later changes nothing.
    ///
    /// # Errors
    /// [`Shortage`] if it does not fit everywhere.
    pub fn extend(&mut self, interval: Interval, amount: u64, end: Moment) -> Result<(), Shortage> {
        let old_end = self.occupied(interval).end();
        let new_end = end.plus(self.guard_seconds);
        if let Ok(added) = Interval::new(old_end, new_end) {
            self.judge(added, amount, self.capacity)?;
            self.raise(added, signed(amount));
        }
        Ok(())
    }

    /// Gives back what was taken for `interval`, from `from` on or from now on, if that is later.
    /// What had begun by then keeps its guard; the new interval is [start, `from`).
    ///
    /// # Panics
    /// If so much was not taken, which is a mistake in the caller's accounts.
    pub fn give_back(&mut self, interval: Interval, amount: u64, from: Moment) {
        let occupied = self.occupied(interval);
        let from = from.max(self.now());
        let returned = match interval.before(from) {
            Some(kept) => Interval::new(self.occupied(kept).end(), occupied.end()).ok(),
            None => Some(occupied),
        };
        if let Some(returned) = returned.and_then(|interval| interval.from_on(self.now())) {
            assert!(
                self.levels.low(returned) >= signed(amount),
                "{amount} was not taken for {returned}"
            );
            self.raise(returned, -signed(amount));
        }
    }

    /// Changes how much there is. Nothing is taken from anybody: if there is less, there may be
    /// moments that are [`Self::overfull`], at which nothing can be taken until enough is given
    /// back.
    ///
    /// # Panics
    /// If `capacity` is above [`CAPACITY_MAX`].
    pub fn set_capacity(&mut self, capacity: u64) {
        assert!(capacity <= CAPACITY_MAX, "{capacity} is no capacity");
        self.capacity = capacity;
    }

    /// The stretches in which more is taken than `capacity`, one after another: the present one or
    /// one that is planned.
    pub fn overfull(&self, capacity: u64) -> impl Iterator<Item = Overfull> {
        let limit = signed(capacity.min(CAPACITY_MAX));
        let mut from = Some(self.now());
        std::iter::from_fn(move || {
            let start = self.levels.first_above(from?, limit)?;
            let end = self.levels.first_at_most(start, limit);
            from = end;
            let interval = Interval::new(start, end.unwrap_or(Moment::FOREVER)).ok()?;
            let peak = self.peak(interval);
            Some(Overfull { interval, peak })
        })
    }

    /// The first interval of `duration_seconds` (for ever if `None`) that begins at `earliest` or
    /// later, ends by `latest_end`, and for which `amount` can be taken.
    ///
    /// `None` if there is none, as for a duration of zero. Costs as much as a question if there is
    /// room soon. In the worst case, if all gaps but the
    /// last are too short, it looks at every change once.
    #[must_use]
    pub fn first_fit(
        &self,
        amount: u64,
        duration_seconds: Option<u64>,
        earliest: Moment,
        latest_end: Moment,
    ) -> Option<Interval> {
        let length = duration_seconds.unwrap_or(u64::MAX);
        let last_start = match (duration_seconds, latest_end) {
            // Who ends at all ends before the end of time.
            (Some(seconds), end) => {
                let end = end.as_secs().min(u64::MAX - 1);
                Moment::from_secs(end.checked_sub(seconds)?)
            }
            (None, Moment::FOREVER) => Moment::from_secs(u64::MAX - 1),
            (None, _) => return None,
        };
        let occupied = length.saturating_add(self.guard_seconds);
        let start = self.first_run((earliest, last_start), amount, Some(occupied))?;
        Interval::new(start, start.plus(length)).ok()
    }

    /// The longest interval from `start` (or from now, if that is later) for which `amount` can be
    /// taken.
    #[must_use]
    pub fn longest_fit(&self, amount: u64, start: Moment) -> Option<Interval> {
        let limit = limit(amount, self.capacity)?;
        let start = start.max(self.now());
        match self.levels.first_above(start, limit) {
            None => Interval::unlimited(start).ok(),
            Some(full) => Interval::new(start, full.minus(self.guard_seconds)).ok(),
        }
    }

    /// What is taken, as changes in the order of time; the first is what is taken now, if anything
    /// is. It can be drawn, or kept for [`Self::from_changes`]: to take something for an interval
    /// changes two rows.
    pub fn changes(&self) -> impl Iterator<Item = (Moment, i64)> {
        self.levels
            .changes()
            .map(|change| (change.at, change.delta))
    }

    /// Memory that it holds, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<Levels>() + self.levels.memory_bytes()
    }

    /// Whether `amount` fits all the time in `occupied`, which has its guard already, if there were
    /// `capacity`.
    pub(crate) fn judge(
        &self,
        occupied: Interval,
        amount: u64,
        capacity: u64,
    ) -> Result<(), Shortage> {
        let room = capacity.saturating_sub(self.peak(occupied));
        if amount <= room {
            return Ok(());
        }
        let limit = limit(amount, capacity).unwrap_or(-1);
        let from = self.levels.first_above(occupied.start(), limit);
        let from = from.expect("what does not fit in an interval has a first moment");
        Err(Shortage { from, room })
    }

    /// The largest amount that fits all the time in `occupied`, which has its guard already.
    pub(crate) fn room_within(&self, occupied: Interval) -> u64 {
        self.capacity.saturating_sub(self.peak(occupied))
    }

    /// The first moment from `from` on at which `amount` does not fit.
    pub(crate) fn first_short(&self, from: Moment, amount: u64) -> Option<Moment> {
        let limit = limit(amount, self.capacity).unwrap_or(-1);
        self.levels.first_above(from, limit)
    }

    /// The first of `starts`, a first and a last one, from which on `amount` fits for
    /// `length_seconds`, guards included, or for ever.
    pub(crate) fn first_run(
        &self,
        starts: (Moment, Moment),
        amount: u64,
        length_seconds: Option<u64>,
    ) -> Option<Moment> {
        let limit = limit(amount, self.capacity)?;
        let length = length_seconds.unwrap_or(u64::MAX);
        self.levels.first_run(starts, limit, length)
    }

    fn raise(&mut self, occupied: Interval, delta: i64) {
        self.change(occupied.start(), delta);
        self.change(occupied.end(), -delta);
    }

    /// Raises the level from `at` on, unjudged.
    pub(crate) fn change(&mut self, at: Moment, delta: i64) {
        self.levels.add(at, delta);
    }
}

/// The highest level to which `amount` can be added; `None` if that is more than there is.
fn limit(amount: u64, capacity: u64) -> Option<i64> {
    match amount {
        // Nothing fits everywhere, also where more is taken than there is.
        0 => Some(i64::MAX),
        _ => capacity.checked_sub(amount).map(signed),
    }
}

/// An amount or a capacity as a level. What is above every capacity is refused before it is taken.
fn signed(amount: u64) -> i64 {
    i64::try_from(amount.min(2 * CAPACITY_MAX - 1)).expect("below 2^63")
}

/// A level as an amount.
fn amount(level: i64) -> u64 {
    u64::try_from(level).expect("nobody gives back more than was taken")
}
