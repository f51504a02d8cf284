//! A calendar beside an array of seconds: every answer is the same, whatever has happened before
//! (R2), what is given back is exactly what was taken (R4), and every counter-offer can be taken
//! (R6).

use crate::model::{Model, Place, SECONDS};
use proptest::prelude::*;
use reservation::{Calendar, Moment};

const CAPACITY: u64 = 10;

#[derive(Clone, Debug)]
enum Step {
    Take(u64, u64, u64),
    /// Gives the n-th claim back from some moment on.
    GiveBack(usize, u64),
    /// Lengthens the n-th claim.
    Extend(usize, u64),
    SetCapacity(u64),
    Advance(u64),
}

/// Start and end of an interval, one in eight without an end.
fn interval() -> impl Strategy<Value = (u64, u64)> {
    (0..SECONDS - 20, 1..40_u64, 0..8_u8).prop_map(|(start, length, kind)| match kind {
        0 => (start, SECONDS),
        _ => (start, (start + length).min(SECONDS - 10)),
    })
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<prop::sample::Index>().prop_map(|at| at.index(1 << 16));
    prop_oneof![
        10 => (interval(), 0..=CAPACITY + 1)
            .prop_map(|((start, end), amount)| Step::Take(start, end, amount)),
        4 => (which.clone(), 0..SECONDS - 10).prop_map(|(which, from)| Step::GiveBack(which, from)),
        3 => (which, interval()).prop_map(|(which, (_, end))| Step::Extend(which, end)),
        1 => (0..=2 * CAPACITY).prop_map(Step::SetCapacity),
        1 => (0..SECONDS - 10).prop_map(Step::Advance),
    ]
}

fn occupied_end(model: &Model, end: u64) -> u64 {
    match end {
        SECONDS => end,
        _ => (end + model.guard).min(SECONDS),
    }
}

/// Calendar and model side by side, with what both have given out.
struct Pair {
    calendar: Calendar,
    model: Model,
    claims: Vec<(u64, u64, u64)>,
}

impl Pair {
    fn new(place: Place, guard: u64) -> Self {
        Self {
            calendar: Calendar::new(place.moment(0), CAPACITY, guard),
            model: Model::new(place, CAPACITY, guard),
            claims: Vec::new(),
        }
    }

    fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let place = self.model.place;
        match *step {
            Step::Take(start, end, amount) => {
                let answer = self.calendar.take(place.interval(start, end), amount);
                let short = self.model.first_short(start, end, amount);
                prop_assert_eq!(
                    answer.err().map(|shortage| (shortage.from, shortage.room)),
                    short.map(|from| (place.moment(from), self.model.room(start, end)))
                );
                if short.is_none() {
                    self.model.add(start, end, amount);
                    self.claims.push((start, end, amount));
                }
            }
            Step::GiveBack(which, from) if !self.claims.is_empty() => {
                let which = which % self.claims.len();
                let (start, end, amount) = self.claims.swap_remove(which);
                let interval = place.interval(start, end);
                self.calendar
                    .give_back(interval, amount, place.moment(from));
                self.model.remove(start, end, amount);
                let left = from.max(self.model.now);
                if start < left {
                    self.model.add(start, end.min(left), amount);
                    self.claims.push((start, end.min(left), amount));
                }
            }
            Step::Extend(which, new_end) if !self.claims.is_empty() => {
                let which = which % self.claims.len();
                let (start, end, amount) = self.claims[which];
                let new_end = new_end.max(end);
                // The added seconds begin where the guard ends, in front of a guard of their own.
                let (old, new) = (
                    occupied_end(&self.model, end),
                    occupied_end(&self.model, new_end),
                );
                let added = old.max(self.model.now)..new.max(self.model.now);
                let fits = |second: u64| {
                    amount == 0 || self.model.taken[second as usize] + amount <= self.model.capacity
                };
                let fits = old == new || (amount <= self.model.capacity && added.clone().all(fits));
                let answer =
                    self.calendar
                        .extend(place.interval(start, end), amount, place.moment(new_end));
                prop_assert_eq!(answer.is_ok(), fits);
                if fits {
                    added.for_each(|second| self.model.taken[second as usize] += amount);
                    self.claims[which].1 = new_end;
                }
            }
            Step::GiveBack(..) | Step::Extend(..) => {}
            Step::SetCapacity(capacity) => {
                self.calendar.set_capacity(capacity);
                self.model.capacity = capacity;
            }
            Step::Advance(now) => {
                self.calendar.advance(place.moment(now));
                self.model.now = self.model.now.max(now);
            }
        }
        Ok(())
    }

    /// Asks everything that can be asked about one interval and one amount.
    fn compare(&self, (start, end): (u64, u64), amount: u64) -> Result<(), TestCaseError> {
        let (calendar, model, place) = (&self.calendar, &self.model, self.model.place);
        let interval = place.interval(start, end);
        prop_assert_eq!(calendar.room(interval), model.room(start, end));
        let fits = model.first_short(start, end, amount).is_none();
        prop_assert_eq!(calendar.can_take(interval, amount), fits);
        let unguarded = Model {
            guard: 0,
            ..model.clone()
        };
        prop_assert_eq!(calendar.peak(interval), unguarded.peak(start, end));

        let duration = (end < SECONDS).then_some(end - start);
        for (duration, latest) in [
            (duration, SECONDS),
            (duration, end + 7),
            (None, SECONDS),
            (Some(0), SECONDS),
        ] {
            let latest = latest.min(SECONDS);
            let offer =
                calendar.first_fit(amount, duration, place.moment(start), place.moment(latest));
            prop_assert_eq!(offer, model.first_fit(amount, duration, start, latest));
            prop_assert!(offer.is_none_or(|offer| calendar.clone().take(offer, amount).is_ok()));
        }
        let longest = calendar.longest_fit(amount, place.moment(start));
        prop_assert_eq!(longest, model.longest_fit(amount, start));
        prop_assert!(longest.is_none_or(|offer| calendar.clone().take(offer, amount).is_ok()));
        let room = calendar.room(interval);
        prop_assert!(calendar.clone().take(interval, room).is_ok());
        Ok(())
    }

    /// The stretches above a capacity, and equality with a calendar made of what is held.
    fn compare_whole(&self, capacity: u64) -> Result<(), TestCaseError> {
        let (model, place) = (&self.model, self.model.place);
        let mut expected: Vec<(u64, u64, u64)> = Vec::new();
        for second in model.now..SECONDS {
            let taken = model.taken[second as usize];
            match expected.last_mut() {
                _ if taken <= capacity => {}
                Some((_, end, peak)) if *end == second => {
                    (*end, *peak) = (second + 1, taken.max(*peak));
                }
                _ => expected.push((second, second + 1, taken)),
            }
        }
        let expected = expected
            .into_iter()
            .map(|(start, end, peak)| (place.interval(start, end), peak));
        let found = self.calendar.overfull(capacity);
        let found: Vec<_> = found.map(|part| (part.interval, part.peak)).collect();
        prop_assert_eq!(found, expected.collect::<Vec<_>>());

        let mut rebuilt = Calendar::new(place.moment(0), 1 << 40, model.guard);
        for &(start, end, amount) in &self.claims {
            let taken = rebuilt.take(place.interval(start, end), amount);
            prop_assert!(taken.is_ok());
        }
        rebuilt.set_capacity(model.capacity);
        rebuilt.advance(place.moment(model.now));
        prop_assert_eq!(&rebuilt, &self.calendar);
        let (now, changes) = (place.moment(model.now), self.calendar.changes());
        let reloaded = Calendar::from_changes(now, model.capacity, model.guard, changes);
        prop_assert_eq!(reloaded.as_ref(), Ok(&self.calendar));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_answer_is_that_of_an_array_of_seconds(
        place in prop_oneof![Just(Place::Now), Just(Place::EndOfTime)],
        guard in 0..6_u64,
        steps in prop::collection::vec((step(), interval(), 0..=CAPACITY + 1), 1..80),
    ) {
        let mut pair = Pair::new(place, guard);
        for (step, interval, amount) in &steps {
            pair.apply(step)?;
            pair.compare(*interval, *amount)?;
            pair.compare_whole(*amount)?;
        }
    }
}

#[test]
fn a_claim_without_an_end_counts_at_every_later_second() {
    let start = Moment::from_secs(1_000);
    let mut calendar = Calendar::new(start, 5, 10);
    let unlimited = reservation::Interval::unlimited(start).unwrap();
    calendar.take(unlimited, 3).unwrap();
    for seconds in [0, 1, 86_400, 1 << 40, u64::MAX - 2_000] {
        let at = reservation::Interval::new(start.plus(seconds), start.plus(seconds + 1)).unwrap();
        assert_eq!(calendar.room(at), 2, "{at}");
    }
    calendar.advance(start.plus(1 << 50));
    assert_eq!(calendar.peak(unlimited), 3);
    calendar.give_back(unlimited, 3, start.plus(1 << 51));
    let after = reservation::Interval::unlimited(start.plus((1 << 51) + 10)).unwrap();
    assert_eq!((calendar.room(after), calendar.room(unlimited)), (5, 2));
}

#[test]
#[should_panic(expected = "was not taken")]
fn what_was_not_taken_cannot_be_given_back() {
    let mut calendar = Calendar::new(Moment::from_secs(0), 5, 0);
    let interval =
        |start, end| reservation::Interval::new(Moment::from_secs(start), Moment::from_secs(end));
    calendar.take(interval(10, 20).unwrap(), 2).unwrap();
    calendar.give_back(interval(10, 21).unwrap(), 2, Moment::from_secs(0));
}

#[test]
fn changes_are_not_believed_if_they_cannot_be() {
    let at = Moment::from_secs;
    let now = at(100);
    let made =
        |changes: &[(Moment, i64)]| Calendar::from_changes(now, 5, 0, changes.iter().copied());
    let mut calendar = made(&[(at(10), 3), (at(50), -2), (at(150), 4), (at(200), -5)]).unwrap();
    assert_eq!(
        calendar.changes().collect::<Vec<_>>(),
        [(now, 1), (at(150), 4), (at(200), -5)]
    );
    let interval = reservation::Interval::new(now, at(150)).unwrap();
    calendar.take(interval, 4).unwrap();
    for (damaged, from) in [
        (&[(at(10), 1), (at(10), 1)][..], at(10)),
        (&[(at(10), 1), (at(9), 1)], at(9)),
        (&[(at(110), -1)], at(110)),
        (&[(at(110), 1 << 62), (at(120), 1)], at(120)),
        (&[(at(110), i64::MAX), (at(120), 1)], at(110)),
        (&[(Moment::FOREVER, 1)], Moment::FOREVER),
    ] {
        let error = made(damaged).unwrap_err();
        assert_eq!(
            error,
            reservation::DamagedChanges { at: from },
            "{damaged:?}"
        );
    }
}
