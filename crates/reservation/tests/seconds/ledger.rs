//! A ledger beside arrays of seconds: admissions and amendments are judged alike (R2), done wholly
//! or not at all (R3), leave exactly what is held (R4), and what is offered is admitted (R6).

use crate::model::{Model, Place, SECONDS};
use proptest::prelude::*;
use reservation::{Claim, Ledger, Moment, OfferKind, Refusal};
use std::collections::BTreeMap;

/// Capacity and guard of each resource.
const RESOURCES: [(u64, u64); 3] = [(10, 0), (7, 3), (4, 5)];

/// A claim in entries of the array: resource, start, end, amount.
type Entry = (u8, u64, u64, u64);

fn entry() -> impl Strategy<Value = Entry> {
    (0..3_u8, 0..80_u64, 1..25_u64, 0..6_u64, 0..12_u8).prop_map(
        |(resource, start, length, amount, kind)| {
            let end = if kind == 0 { SECONDS } else { start + length };
            (resource, start, end, amount)
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let recurring = (entry(), 1..5_u64, 1..30_u64).prop_map(
        |((resource, start, end, amount), times, period)| {
            let again = (0..times)
                .map(|time| (resource, start + time * period, end + time * period, amount));
            again.filter(|(_, _, end, _)| *end < 105).collect()
        },
    );
    prop_oneof![prop::collection::vec(entry(), 0..6), recurring,]
}

#[derive(Clone, Debug)]
enum Step {
    Admit(u8, Vec<Entry>),
    Amend(u8, Vec<Entry>),
    Extend(u8, u64),
    Release(u8, u64),
    Withdraw(u8),
    Forget(u8),
    SetCapacity(u8, u64),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..8_u8;
    prop_oneof![
        8 => (id.clone(), entries()).prop_map(|(id, entries)| Step::Admit(id, entries)),
        3 => (id.clone(), entries()).prop_map(|(id, entries)| Step::Amend(id, entries)),
        3 => (id.clone(), 0..110_u64).prop_map(|(id, end)| Step::Extend(id, end)),
        3 => (id.clone(), 0..110_u64).prop_map(|(id, from)| Step::Release(id, from)),
        1 => id.clone().prop_map(Step::Withdraw),
        2 => id.prop_map(Step::Forget),
        1 => (0..3_u8, 0..14_u64).prop_map(|(which, capacity)| Step::SetCapacity(which, capacity)),
        1 => (0..100_u64).prop_map(Step::Advance),
    ]
}

/// What the array says to a change.
#[derive(Debug, PartialEq)]
enum Verdict {
    Done,
    Short(Refusal<u8>),
    Other,
}

/// The naive ledger.
#[derive(Clone)]
struct Naive {
    place: Place,
    now: u64,
    models: Vec<Model>,
    held: BTreeMap<u8, Vec<Entry>>,
}

impl Naive {
    fn new(place: Place) -> Self {
        let model = |(capacity, guard): (u64, u64)| Model::new(place, capacity, guard);
        Self {
            place,
            now: 0,
            models: RESOURCES.map(model).to_vec(),
            held: BTreeMap::new(),
        }
    }

    /// How much is taken at each second from now on, by these alone; earlier seconds are zero.
    fn staircase(&self, resource: u8, entries: &[Entry]) -> Vec<u64> {
        let mut model = self.models[resource as usize].clone();
        model.taken.fill(0);
        for &(_, start, end, amount) in entries.iter().filter(|entry| entry.0 == resource) {
            model.add(start, end, amount);
        }
        model.taken
    }

    /// What is held at each second before now, guards not included.
    fn past(&self, entries: &[Entry]) -> Vec<u64> {
        let seconds =
            (0..3).flat_map(|resource| (0..self.now).map(move |second| (resource, second)));
        seconds
            .map(|(resource, second)| {
                let at = entries
                    .iter()
                    .filter(|entry| entry.0 == resource && (entry.1..entry.2).contains(&second));
                at.map(|entry| entry.3).sum()
            })
            .collect()
    }

    /// Judges the change second by second; the stretches of equal need tell which is tightest.
    fn judge(&self, old: &[Entry], new: &[Entry]) -> Verdict {
        let mut tightest: Option<(u64, u64, Refusal<u8>)> = None;
        for resource in 0..3_u8 {
            let model = &self.models[resource as usize];
            let (old, new) = (self.staircase(resource, old), self.staircase(resource, new));
            let need = |second: usize| new[second].saturating_sub(old[second]);
            let mut start = self.now as usize;
            while start < SECONDS as usize {
                let net = |second: usize| new[second] as i64 - old[second] as i64;
                let mut end = start;
                while end < SECONDS as usize && net(end) == net(start) {
                    end += 1;
                }
                let amount = need(start);
                let peak = model.taken[start..end].iter().copied().max().unwrap_or(0);
                let room = model.capacity.saturating_sub(peak);
                if amount > room {
                    let short = |second: &usize| model.taken[*second] + amount > model.capacity;
                    let from = (start..end).find(short).expect("one is short") as u64;
                    let refusal = Refusal::Short {
                        resource,
                        interval: self.place.interval(start as u64, end as u64),
                        from: self.place.moment(from),
                        amount,
                        room,
                    };
                    if tightest
                        .as_ref()
                        .is_none_or(|(least, of, _)| room * of < least * amount)
                    {
                        tightest = Some((room, amount, refusal));
                    }
                }
                start = end;
            }
        }
        tightest.map_or(Verdict::Done, |(_, _, refusal)| Verdict::Short(refusal))
    }

    fn swap(&mut self, id: u8, new: Vec<Entry>) {
        let old = self.held.remove(&id).unwrap_or_default();
        for resource in 0..3_u8 {
            let (old, new) = (
                self.staircase(resource, &old),
                self.staircase(resource, &new),
            );
            for (second, taken) in self.models[resource as usize].taken.iter_mut().enumerate() {
                *taken = *taken + new[second] - old[second];
            }
        }
        if !new.is_empty() {
            self.held.insert(id, new);
        }
    }

    fn admit(&self, entries: &[Entry]) -> Verdict {
        if entries.is_empty() || entries.iter().any(|entry| entry.2 <= self.now) {
            return Verdict::Other;
        }
        self.judge(&[], entries)
    }

    fn amend(&self, id: u8, entries: &[Entry]) -> Verdict {
        let Some(old) = self.held.get(&id) else {
            return Verdict::Other;
        };
        let is_over = old.iter().all(|entry| entry.2 <= self.now);
        if is_over || entries.is_empty() || self.past(old) != self.past(entries) {
            return Verdict::Other;
        }
        self.judge(old, entries)
    }

    fn counts_until(&self, id: u8) -> Option<u64> {
        let entries = self.held.get(&id)?.iter();
        let ends = entries.map(|&(resource, _, end, _)| match end {
            SECONDS => SECONDS,
            _ => (end + self.models[resource as usize].guard).min(SECONDS),
        });
        ends.max()
    }

    fn claims(&self, entries: &[Entry]) -> Vec<Claim<u8>> {
        let claim = |&(resource, start, end, amount): &Entry| Claim {
            resource,
            amount,
            interval: self.place.interval(start, end),
        };
        entries.iter().map(claim).collect()
    }
}

fn verdict(answer: Result<(), Refusal<u8>>) -> Verdict {
    match answer {
        Ok(()) => Verdict::Done,
        Err(refusal @ Refusal::Short { .. }) => Verdict::Short(refusal),
        Err(_) => Verdict::Other,
    }
}

struct Pair {
    ledger: Ledger<u8, u8>,
    naive: Naive,
}

impl Pair {
    fn new(place: Place) -> Self {
        Self {
            ledger: empty(place, 0, &Naive::new(place)),
            naive: Naive::new(place),
        }
    }

    fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Admit(id, entries) => {
                let expected = match self.naive.held.contains_key(id) {
                    true => Verdict::Other,
                    false => self.naive.admit(entries),
                };
                let answer = self.ledger.admit(*id, &self.naive.claims(entries));
                self.settle(*id, entries.clone(), answer, expected)?;
            }
            Step::Amend(id, entries) => {
                // Half of them keep the past as it was.
                let mut entries = entries.clone();
                if let Some(old) = self.naive.held.get(id).filter(|_| entries.len() % 2 == 0) {
                    entries.retain(|entry| entry.1 >= self.naive.now);
                    entries.extend(old.iter().filter(|entry| entry.1 < self.naive.now));
                }
                let expected = self.naive.amend(*id, &entries);
                let answer = self.ledger.amend(*id, &self.naive.claims(&entries));
                self.settle(*id, entries, answer, expected)?;
            }
            Step::Extend(id, end) => {
                let mut entries = self.naive.held.get(id).cloned().unwrap_or_default();
                let last = entries.iter().map(|entry| entry.2).max().unwrap_or(0);
                for entry in entries.iter_mut().filter(|entry| entry.2 == last) {
                    entry.2 = last.max(*end);
                }
                let expected = self.naive.amend(*id, &entries);
                let answer = self.ledger.extend(*id, self.naive.place.moment(*end));
                self.settle(*id, entries, answer, expected)?;
            }
            Step::Release(id, from) => self.release(*id, *from)?,
            Step::Withdraw(id) => {
                let is_held = self.naive.held.contains_key(id);
                prop_assert_eq!(self.ledger.withdraw(*id).is_ok(), is_held);
                self.naive.swap(*id, Vec::new());
            }
            Step::Forget(id) => {
                let (until, now) = (self.naive.counts_until(*id), self.naive.now);
                let is_over = until.is_some_and(|until| until <= now && until < SECONDS);
                prop_assert_eq!(self.ledger.forget(*id).is_ok(), is_over);
                if is_over {
                    self.naive.held.remove(id);
                }
            }
            Step::SetCapacity(resource, capacity) => {
                let answer = self.ledger.set_capacity(*resource, *capacity);
                prop_assert_eq!(answer, Ok(()));
                self.naive.models[*resource as usize].capacity = *capacity;
            }
            Step::Advance(now) => self.advance(*now),
        }
        Ok(())
    }

    /// Compares what both say to a change, and makes the naive one follow.
    fn settle(
        &mut self,
        id: u8,
        entries: Vec<Entry>,
        answer: Result<(), Refusal<u8>>,
        expected: Verdict,
    ) -> Result<(), TestCaseError> {
        let answer = verdict(answer);
        prop_assert_eq!(&answer, &expected);
        if answer == Verdict::Done {
            self.naive.swap(id, entries);
        }
        Ok(())
    }

    fn release(&mut self, id: u8, from: u64) -> Result<(), TestCaseError> {
        let answer = self.ledger.release(id, self.naive.place.moment(from));
        let from = from.max(self.naive.now);
        let old = self.naive.held.get(&id).cloned();
        let cut = |entry: &Entry| (entry.0, entry.1, entry.2.min(from), entry.3);
        let left = old.iter().flatten().filter(|entry| entry.1 < from).map(cut);
        let left: Vec<_> = left.collect();
        let expected = old.map(|_| self.naive.claims(&left));
        prop_assert_eq!(answer.map(<[_]>::to_vec).ok(), expected);
        self.naive.swap(id, left);
        Ok(())
    }

    fn advance(&mut self, now: u64) {
        self.ledger.advance(self.naive.place.moment(now));
        self.naive.now = self.naive.now.max(now);
        for model in &mut self.naive.models {
            model.now = self.naive.now;
            model.taken[..self.naive.now as usize].fill(0);
        }
    }

    /// Every second of every calendar, the list of ends, and the same made anew.
    fn compare(&self) -> Result<(), TestCaseError> {
        let (ledger, naive, place) = (&self.ledger, &self.naive, self.naive.place);
        for (resource, model) in naive.models.iter().enumerate() {
            let calendar = ledger.calendar(resource as u8).expect("it was added");
            for second in naive.now..SECONDS {
                let peak = calendar.peak(place.interval(second, second + 1));
                prop_assert_eq!(
                    peak,
                    model.taken[second as usize],
                    "{} {}",
                    resource,
                    second
                );
            }
        }
        let last = |(id, entries): (&u8, &Vec<Entry>)| {
            (entries.iter().map(|entry| entry.2).max().unwrap_or(0), *id)
        };
        let mut ends: Vec<_> = naive.held.iter().map(last).collect();
        ends.retain(|(end, _)| *end <= naive.now);
        ends.sort_unstable();
        let ended = ledger.ended_by(place.moment(naive.now)).map(|(_, id)| id);
        prop_assert_eq!(
            ended.collect::<Vec<_>>(),
            ends.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
        );
        let mut anew = empty(place, naive.now, naive);
        for (id, entries) in &naive.held {
            prop_assert_eq!(anew.restore(*id, &naive.claims(entries)), Ok(()));
        }
        prop_assert_eq!(&anew, ledger);
        Ok(())
    }

    /// What is offered instead of `entries`, and whether it is the nearest.
    fn compare_offers(&self, entries: &[Entry], latest_end: u64) -> Result<(), TestCaseError> {
        let (ledger, naive, place) = (&self.ledger, &self.naive, self.naive.place);
        let claims = naive.claims(entries);
        let offers = ledger.counter_offers(&claims, place.moment(latest_end));
        let offered = |kind| {
            let offer = offers.iter().find(|offer| offer.kind == kind);
            offer.map(|offer| offer.claims.clone())
        };
        for offer in &offers {
            prop_assert_eq!(ledger.judge(&offer.claims), Ok(()), "{:?}", offer.kind);
        }
        let last = entries.iter().map(|entry| entry.2).max().unwrap_or(0);
        if last < SECONDS {
            let moved = |delay: u64| -> Vec<Entry> {
                let entries = entries.iter();
                entries
                    .map(|&(r, start, end, a)| (r, start + delay, end + delay, a))
                    .collect()
            };
            let first = entries.iter().map(|entry| entry.1).min().unwrap_or(0);
            let mut delays = naive.now.saturating_sub(first)..=latest_end.saturating_sub(last);
            let found = delays.find(|delay| {
                last + delay <= latest_end && naive.admit(&moved(*delay)) == Verdict::Done
            });
            let expected = found.map(|delay| naive.claims(&moved(delay)));
            prop_assert_eq!(offered(OfferKind::Later), expected);
        }
        // With one more of any of them, in proportion, it would not be admitted.
        let largest = offered(OfferKind::Smaller);
        let reduced = |thousandths: u64| -> Vec<Entry> {
            let entries = entries.iter();
            entries
                .map(|&(r, s, e, amount)| (r, s, e, amount * thousandths / 1000))
                .collect()
        };
        let is_nothing = |thousandths: u64| {
            let reduced = reduced(thousandths);
            reduced
                .iter()
                .zip(entries)
                .any(|(new, old)| new.3 == 0 && old.3 > 0)
        };
        let fits =
            |parts: &u64| !is_nothing(*parts) && naive.admit(&reduced(*parts)) == Verdict::Done;
        if let Some(best) = (1..=1000).rev().find(fits) {
            // The naive one tries amounts rounded down, the offer guarantees them before rounding;
            // so it may be smaller by rounding, if several are added up, and never larger.
            prop_assert!(entries.len() > 1 || largest == Some(naive.claims(&reduced(best))));
        } else {
            prop_assert_eq!(&largest, &None);
        }
        let shorter = offered(OfferKind::Shorter);
        if let [(resource, start, end, amount)] = *entries {
            let cut = |end: &u64| vec![(resource, start, *end, amount)];
            let longest = (start + 1..=end)
                .rev()
                .find(|end| naive.admit(&cut(end)) == Verdict::Done);
            prop_assert_eq!(shorter, longest.map(|end| naive.claims(&cut(&end))));
        }
        Ok(())
    }
}

/// A ledger with the resources of `naive` and no reservation.
fn empty(place: Place, now: u64, naive: &Naive) -> Ledger<u8, u8> {
    let mut ledger = Ledger::new(place.moment(now));
    for (resource, model) in naive.models.iter().enumerate() {
        ledger.add_resource(resource as u8, model.capacity, model.guard);
    }
    ledger
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_change_is_judged_as_by_arrays_of_seconds(
        place in prop_oneof![Just(Place::Now), Just(Place::EndOfTime)],
        steps in prop::collection::vec((step(), entries(), 0..SECONDS - 10), 1..50),
    ) {
        let mut pair = Pair::new(place);
        for (step, entries, latest_end) in &steps {
            pair.apply(step)?;
            pair.compare()?;
            pair.compare_offers(entries, *latest_end)?;
        }
    }
}

/// The interval of these seconds.
fn interval(start: u64, end: u64) -> reservation::Interval {
    reservation::Interval::new(Moment::from_secs(start), Moment::from_secs(end))
        .expect("start < end")
}

#[test]
fn a_year_of_evenings_is_admitted_as_a_whole_or_not_at_all() {
    const DAY: u64 = 86_400;
    let mut ledger = Ledger::<u32, &str>::new(Moment::from_secs(0));
    ledger.add_resource("disk", 900_000, 60);
    let evenings = |amount: u64| -> Vec<_> {
        let evening = |day: u64| Claim {
            resource: "disk",
            amount,
            interval: interval(day * DAY + 68_400, day * DAY + 75_600),
        };
        (0..365).map(evening).collect()
    };
    let other = Claim {
        resource: "disk",
        amount: 500_000,
        interval: interval(200 * DAY + 75_600 + 59, 200 * DAY + 80_000),
    };
    ledger.admit(1, &[other]).unwrap();
    let before = ledger.clone();
    let refusal = ledger.admit(2, &evenings(400_001)).unwrap_err();
    let expected = Refusal::Short {
        resource: "disk",
        interval: interval(200 * DAY + 68_400, 200 * DAY + 75_660),
        from: Moment::from_secs(200 * DAY + 75_659),
        amount: 400_001,
        room: 400_000,
    };
    assert_eq!(refusal, expected);
    assert!(ledger == before, "nothing has changed");
    let offers = ledger.counter_offers(&evenings(400_001), Moment::FOREVER);
    let kinds: Vec<_> = offers.iter().map(|offer| offer.kind).collect();
    assert_eq!(
        kinds,
        [OfferKind::Later, OfferKind::Smaller, OfferKind::Shorter]
    );
    assert_eq!(offers[1].claims, evenings(400_000));
    assert_eq!(offers[2].claims.len(), 201, "all evenings up to that one");
    ledger.admit(2, &evenings(400_000)).unwrap();
    assert_eq!(ledger.claims(2).unwrap().len(), 365);
}

#[test]
fn amounts_beyond_all_bounds_are_refused_and_not_added_up() {
    let mut ledger = Ledger::<u32, u8>::new(Moment::from_secs(0));
    ledger.add_resource(0, reservation::CAPACITY_MAX, 0);
    let claim = |amount| Claim {
        resource: 0,
        amount,
        interval: interval(0, 10),
    };
    let huge = vec![claim(u64::MAX); 16_384];
    assert!(matches!(ledger.admit(1, &huge), Err(Refusal::Short { .. })));
    assert!(matches!(
        ledger.restore(1, &huge),
        Err(Refusal::Short { .. })
    ));
    assert_eq!(ledger.largest_fit(&huge), None);
    let fitting = vec![claim(reservation::CAPACITY_MAX >> 14); 16_384];
    ledger.admit(1, &fitting).unwrap();
    assert_eq!(ledger.calendar(0).unwrap().room(interval(0, 10)), 0);
    assert!(ledger.restore(2, &[claim(1)]).is_err());
    let many = vec![claim(0); 16_385];
    assert_eq!(
        ledger.admit(3, &many),
        Err(Refusal::Claims { count: 16_385 })
    );
}
