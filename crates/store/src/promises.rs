//! What is promised of the space, and when.
//!
//! There are two calendars. One counts all that was claimed: allocation units for data, and what
//! the records of that data may come to; admission asks this one. The other one counts the data
//! alone, and what the records have taken is missing from its capacity. So records can take what
//! was claimed for records and what nobody has claimed, and nobody's data.

use reservation::{CAPACITY_MAX, Calendar, Interval, Moment, Shortage};

/// Seconds after an end before which nothing new is promised the same space: as long as marking,
/// removing and two superblocks take on a busy device.
pub(crate) const GUARD_SECONDS: u64 = 5;

/// Allocation units that somebody claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// For data.
    pub(crate) data: u64,
    /// For data and its records.
    pub(crate) all: u64,
}

/// What is promised.
#[derive(Debug)]
pub(crate) struct Promises {
    all: Calendar,
    data: Calendar,
}

/// What somebody has of an interval and is going to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) interval: Interval,
    pub(crate) before: Claim,
    pub(crate) after: Claim,
}

/// Turns whose larger claims are taken and whose smaller ones are not given back yet.
#[derive(Debug, Default)]
#[must_use = "it is to be finished or undone"]
pub(crate) struct Turned {
    all: Moves,
    data: Moves,
}

/// The same in one calendar.
#[derive(Debug, Default)]
struct Moves {
    taken: Vec<(Interval, u64)>,
    lengthened: Vec<(Interval, Interval, u64)>,
    returned: Vec<(Interval, u64)>,
}

impl Promises {
    /// None, and no space to promise.
    pub(crate) fn new() -> Self {
        let calendar = || Calendar::new(Moment::from_secs(0), 0, GUARD_SECONDS);
        Self {
            all: calendar(),
            data: calendar(),
        }
    }

    /// Forgets what was before `now`.
    pub(crate) fn advance(&mut self, now: Moment) {
        self.all.advance(now);
        self.data.advance(now);
    }

    /// There are so many allocation units, of which records have taken some.
    pub(crate) fn set_capacity(&mut self, au_count: u64, taken: u64) {
        self.all.set_capacity(au_count);
        self.data.set_capacity(au_count.saturating_sub(taken));
    }

    /// Whatever was promised is promised.
    pub(crate) fn set_unlimited(&mut self) {
        self.all.set_capacity(CAPACITY_MAX);
        self.data.set_capacity(CAPACITY_MAX);
    }

    /// Allocation units that records may take for ever without taking anybody's data.
    pub(crate) fn spare(&self) -> u64 {
        Interval::unlimited(self.data.now()).map_or(0, |interval| self.data.room(interval))
    }

    /// Whether `claim` can be taken for `interval`.
    pub(crate) fn has_room(&self, interval: Interval, claim: Claim) -> bool {
        self.all.room(interval) >= claim.all && self.data.room(interval) >= claim.data
    }

    /// Takes `claim` for `interval`, or nothing.
    ///
    /// # Errors
    /// [`Shortage`] if it does not fit everywhere.
    pub(crate) fn take(&mut self, interval: Interval, claim: Claim) -> Result<(), Shortage> {
        self.all.take(interval, claim.all)?;
        let taken = self.data.take(interval, claim.data);
        if taken.is_err() {
            self.all.give_back(interval, claim.all, interval.start());
        }
        taken
    }

    /// Lengthens what was taken for `interval` to `end`.
    ///
    /// # Errors
    /// [`Shortage`] if what is added does not fit everywhere.
    pub(crate) fn extend(
        &mut self,
        interval: Interval,
        claim: Claim,
        end: Moment,
    ) -> Result<(), Shortage> {
        self.all.extend(interval, claim.all, end)?;
        let extended = self.data.extend(interval, claim.data, end);
        if let (Err(_), Ok(longer)) = (&extended, Interval::new(interval.start(), end)) {
            self.all.give_back(longer, claim.all, interval.end());
        }
        extended
    }

    /// Gives back what was taken for `interval`, from `from` on.
    pub(crate) fn give_back(&mut self, interval: Interval, claim: Claim, from: Moment) {
        self.all.give_back(interval, claim.all, from);
        self.data.give_back(interval, claim.data, from);
    }

    /// The first interval of that length from `asked` on for which `claim` can be taken.
    pub(crate) fn first_fit(&self, claim: Claim, asked: Interval) -> Option<Interval> {
        if claim.all > self.all.capacity() || claim.data > self.data.capacity() {
            return None;
        }
        let length = asked.duration_seconds();
        let mut start = asked.start().max(self.all.now());
        // Each turn goes on in time, from one gap to a later one.
        loop {
            let fit = |calendar: &Calendar, amount, start| {
                calendar.first_fit(amount, length, start, Moment::FOREVER)
            };
            let in_all = fit(&self.all, claim.all, start)?;
            let in_both = fit(&self.data, claim.data, in_all.start())?;
            if in_both.start() == in_all.start() {
                return Some(in_both);
            }
            start = in_both.start();
        }
    }

    /// Takes what becomes more in these turns, or nothing. What is claimed for records, too, may go
    /// beyond what there is by `slack_aus`.
    ///
    /// # Errors
    /// How much was wanted, and the [`Shortage`], if it does not fit everywhere.
    pub(crate) fn turn(
        &mut self,
        turns: &[Turn],
        slack_aus: u64,
    ) -> Result<Turned, (u64, Shortage)> {
        let of = |amount: fn(&Claim) -> u64| {
            let turns = turns.iter();
            turns.map(move |turn| (turn.interval, amount(&turn.before), amount(&turn.after)))
        };
        let capacity = self.all.capacity();
        self.all
            .set_capacity((capacity + slack_aus).min(CAPACITY_MAX));
        let all = Moves::make(&mut self.all, of(|claim| claim.all));
        self.all.set_capacity(capacity);
        let all = all?;
        match Moves::make(&mut self.data, of(|claim| claim.data)) {
            Ok(data) => Ok(Turned { all, data }),
            Err(short) => {
                all.undo(&mut self.all);
                Err(short)
            }
        }
    }

    /// Gives back what becomes less.
    pub(crate) fn finish(&mut self, turned: Turned) {
        turned.all.finish(&mut self.all);
        turned.data.finish(&mut self.data);
    }

    /// Makes everything as it was.
    pub(crate) fn undo(&mut self, turned: Turned) {
        turned.all.undo(&mut self.all);
        turned.data.undo(&mut self.data);
    }
}

impl Moves {
    fn make(
        calendar: &mut Calendar,
        turns: impl Iterator<Item = (Interval, u64, u64)>,
    ) -> Result<Self, (u64, Shortage)> {
        let (mut moves, mut wanted) = (Self::default(), Vec::new());
        for (interval, before, after) in turns {
            match before.checked_sub(after) {
                Some(amount) => moves.returned.push((interval, amount)),
                None => wanted.push((interval, after - before)),
            }
        }
        // What one gives and a later one takes is one claim that is lengthened.
        for (interval, wanted) in &mut wanted {
            for (before, amount) in &mut moves.returned {
                let both = (*wanted).min(*amount);
                if both > 0
                    && interval.end() >= before.end()
                    && calendar.extend(*before, both, interval.end()).is_ok()
                {
                    moves.lengthened.push((*before, *interval, both));
                    *wanted -= both;
                    *amount -= both;
                }
            }
        }
        for (interval, amount) in wanted {
            if let Err(short) = calendar.take(interval, amount) {
                moves.undo(calendar);
                return Err((amount, short));
            }
            moves.taken.push((interval, amount));
        }
        Ok(moves)
    }

    fn finish(self, calendar: &mut Calendar) {
        for (interval, amount) in self.returned {
            calendar.give_back(interval, amount, interval.start());
        }
    }

    fn undo(self, calendar: &mut Calendar) {
        for (interval, amount) in self.taken {
            calendar.give_back(interval, amount, interval.start());
        }
        for (before, longer, amount) in self.lengthened {
            calendar.give_back(longer, amount, before.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_may_take_what_was_claimed_for_records_and_what_nobody_claimed() {
        let mut promises = Promises::new();
        promises.set_capacity(10, 0);
        let secs = Moment::from_secs;
        let (early, late) = (
            Interval::new(secs(0), secs(50)).unwrap(),
            Interval::new(secs(100), secs(200)).unwrap(),
        );
        promises.take(early, Claim { data: 2, all: 3 }).unwrap();
        promises.take(late, Claim { data: 7, all: 10 }).unwrap();
        assert_eq!(promises.spare(), 3, "as few as there will be at any time");
        promises.set_capacity(10, 3);
        assert_eq!(promises.spare(), 0);
        let one = Claim { data: 1, all: 1 };
        let more = promises.first_fit(one, Interval::new(secs(60), secs(110)).unwrap());
        assert_eq!(more.unwrap().start(), secs(200 + GUARD_SECONDS));
        assert!(promises.take(late, one).is_err());
        promises.set_capacity(10, 8);
        let wide = Claim { data: 1, all: 4 };
        assert!(promises.take(early, wide).is_err(), "records have taken it");
        promises.set_capacity(10, 0);
        promises.take(early, Claim { data: 7, all: 7 }).unwrap();
        assert!(promises.take(early, one).is_err());
    }
}
