//! Crash states against an enumeration that knows nothing of keys, sums or shared images.

use super::*;
use crate::log::Mark;
use base::Extent;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A disk of so few sectors that every state is a short array of numbers.
const SECTORS: usize = 8;
const LEN_BYTES: u64 = SECTORS as u64 * SECTOR_BYTES;

/// A write of whole sectors, each full of one number; 0 stands for zeros.
fn write(first: usize, numbers: &[u8]) -> Entry {
    let data: Vec<u8> = numbers
        .iter()
        .flat_map(|number| [*number; SECTOR_BYTES as usize])
        .collect();
    Entry::Write {
        offset: first as u64 * SECTOR_BYTES,
        data: data.into(),
    }
}

/// A state as one number for each sector.
type Sectors = Vec<u8>;

fn sectors(image: &Image) -> Sectors {
    let mut bytes = vec![0; LEN_BYTES as usize];
    image.read_at(0, &mut bytes);
    let parts = bytes.chunks(SECTOR_BYTES as usize);
    parts.map(|part| part[0]).collect()
}

/// For each stretch all its states, made one by one as the table in the module's head says.
fn by_hand(entries: &[Entry]) -> Vec<BTreeSet<Sectors>> {
    let mut stretches = vec![Vec::new()];
    for entry in entries {
        let last = stretches.last_mut().unwrap();
        match entry {
            Entry::Write { offset, data } => {
                let parts = data.chunks(SECTOR_BYTES as usize);
                let numbers: Vec<u8> = parts.map(|part| part[0]).collect();
                last.push(((offset / SECTOR_BYTES) as usize, numbers));
            }
            Entry::Flush if last.is_empty() => {}
            Entry::Flush => stretches.push(Vec::new()),
            _ => {}
        }
    }
    let mut base = vec![0; SECTORS];
    let mut all = Vec::new();
    let count = stretches.len();
    for (number, stretch) in stretches.iter().enumerate() {
        let arrived = |has: &dyn Fn(usize, usize) -> bool| {
            let mut state = base.clone();
            for (change, (first, numbers)) in stretch.iter().enumerate() {
                for (part, new) in numbers.iter().enumerate() {
                    if has(change, part) {
                        state[first + part] = *new;
                    }
                }
            }
            state
        };
        let mut states = BTreeSet::new();
        for end in 0..=stretch.len() {
            states.insert(arrived(&|change, _| change < end));
        }
        for (one, (_, numbers)) in stretch.iter().enumerate() {
            states.insert(arrived(&|change, _| change != one));
            for other in 0..one {
                states.insert(arrived(&|change, _| change != one && change != other));
            }
            for cut in 1..numbers.len() {
                let before = |change: usize| change < one;
                let is = |change: usize| change == one;
                states.insert(arrived(&|c, part| before(c) || (is(c) && part < cut)));
                states.insert(arrived(&|c, part| before(c) || (is(c) && part >= cut)));
            }
        }
        let whole = arrived(&|_, _| true);
        if number + 1 < count && !stretch.is_empty() {
            states.remove(&whole);
        }
        all.push(states);
        base = whole;
    }
    all
}

/// What the plan finds: for each stretch its states, none of them twice.
fn planned(entries: &[Entry]) -> Vec<BTreeSet<Sectors>> {
    let base = Image::new(LEN_BYTES);
    let plan = Plan::new(&base, entries, &Policy::new(1));
    let mut all = vec![BTreeSet::new(); plan.stretches.len()];
    for state in plan.states() {
        let image = plan.image(state).unwrap();
        let is_new = all[state.stretch as usize].insert(sectors(&image));
        assert!(is_new, "{state} equals a state before it");
        assert_eq!(state.to_string().parse(), Ok(state.clone()));
    }
    assert_eq!(plan.possible(), plan.pruned() + plan.states().len() as u64);
    assert_eq!(plan.by_chance(), 0);
    all
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    // Few numbers, so that many states are equal.
    let numbers = prop::collection::vec(0..3u8, 1..4);
    let write = (0..SECTORS - 3, numbers).prop_map(|(first, numbers)| write(first, &numbers));
    let entry = prop_oneof![4 => write, 1 => Just(Entry::Flush)];
    prop::collection::vec(entry, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_states_are_those_that_an_independent_enumeration_finds(entries in entries()) {
        prop_assert_eq!(planned(&entries), by_hand(&entries));
    }
}

/// What had been said at which moments, by hand: for each state of each stretch, at every moment
/// from its last change to the flush; those of a stretch whose changes all arrived count as the
/// next one's beginning.
fn said_by_hand(entries: &[Entry]) -> Vec<BTreeMap<Sectors, Moments>> {
    // After each entry what had been said; each stretch as its first moment and its changes, each
    // with its moment.
    let (mut said, mut now) = (vec![Said::default()], Said::default());
    let mut stretches: Vec<(usize, Timed)> = vec![(0, Vec::new())];
    for (entry, moment) in entries.iter().zip(1..) {
        let open = stretches.last_mut().unwrap();
        match entry {
            Entry::Mark(Mark::Begun(step)) => now.begun = *step,
            Entry::Mark(Mark::Done(step)) => now.done = *step,
            Entry::Write { offset, data } => {
                let parts = data.chunks(SECTOR_BYTES as usize);
                let numbers = parts.map(|part| part[0]).collect();
                open.1
                    .push((moment, (offset / SECTOR_BYTES) as usize, numbers));
            }
            Entry::Flush if !open.1.is_empty() => stretches.push((moment, Vec::new())),
            _ => {}
        }
        said.push(now);
    }
    let mut base = vec![0; SECTORS];
    let mut all = vec![BTreeMap::new(); stretches.len()];
    for (number, (first, changes)) in stretches.iter().enumerate() {
        let end = stretches.get(number + 1).map_or(said.len(), |next| next.0);
        let has_next = number + 1 < stretches.len();
        let last = changes.last().map_or(*first, |change| change.0);
        let mut add = |has: &dyn Fn(usize, usize) -> bool| {
            let (mut state, mut from) = (base.clone(), *first);
            for (change, (moment, place, numbers)) in changes.iter().enumerate() {
                for (part, new) in numbers.iter().enumerate() {
                    if has(change, part) {
                        state[place + part] = *new;
                        from = *moment;
                    }
                }
            }
            let moments: &mut Moments = all[number].entry(state).or_default();
            moments.extend(said[from..end].iter().map(|said| (said.begun, said.done)));
        };
        for (one, (_, _, numbers)) in changes.iter().enumerate() {
            add(&|change, _| change < one);
            add(&|change, _| change != one);
            (0..one).for_each(|other| add(&|change, _| change != one && change != other));
            for cut in 1..numbers.len() {
                add(&|change, part| change < one || (change == one && part < cut));
                add(&|change, part| change < one || (change == one && part >= cut));
            }
        }
        add(&|_, _| true);
        let mut whole = base.clone();
        for (_, place, numbers) in changes {
            whole[*place..place + numbers.len()].copy_from_slice(numbers);
        }
        if has_next {
            let late: Moments = said[last..end].iter().map(|s| (s.begun, s.done)).collect();
            if most(&all[number][&whole]) == most(&late) {
                all[number].remove(&whole);
            }
            all[number + 1].insert(whole.clone(), late);
        }
        base = whole;
    }
    all
}

/// Changes, each with its moment, its first sector and its numbers.
type Timed = Vec<(usize, usize, Vec<u8>)>;

/// What had been said at some moments: begun and done.
type Moments = BTreeSet<(u32, u32)>;

/// Of moments at which the same step had begun, that at which the most was done.
fn most(moments: &Moments) -> Vec<(u32, u32)> {
    let most: BTreeMap<u32, u32> = moments.iter().copied().collect();
    most.into_iter().collect()
}

fn entries_with_marks() -> impl Strategy<Value = Vec<Entry>> {
    let mark = || Entry::Mark(Mark::Begun(0));
    let entry = prop_oneof![
        4 => entries().prop_map(|mut entries| entries.pop().unwrap_or(Entry::Flush)),
        2 => Just(mark()),
    ];
    prop::collection::vec(entry, 0..12).prop_map(move |mut entries| {
        let marks = entries.iter_mut().filter(|entry| **entry == mark());
        for (number, entry) in (0..).zip(marks) {
            let step = number / 2 + 1;
            *entry = Entry::Mark(match number % 2 {
                0 => Mark::Begun(step),
                _ => Mark::Done(step),
            });
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_state_is_judged_at_every_moment_at_which_power_can_be_lost_so(
        entries in entries_with_marks()
    ) {
        let by_hand = said_by_hand(&entries);
        let plan = Plan::new(&Image::new(LEN_BYTES), &entries, &Policy::new(1));
        let mut planned = vec![BTreeMap::new(); by_hand.len()];
        for state in plan.states() {
            let said = plan.said(state).iter().map(|said| (said.begun, said.done));
            let image = sectors(&plan.image(state).unwrap());
            planned[state.stretch as usize].insert(image, said.collect::<Vec<_>>());
        }
        let all = by_hand.iter().map(|stretch| {
            let states = stretch.iter();
            let states = states.map(|(state, moments)| (state.clone(), most(moments)));
            states.collect::<BTreeMap<_, _>>()
        });
        prop_assert_eq!(planned, all.collect::<Vec<_>>());
    }
}

#[test]
fn what_was_begun_later_excuses_nothing_before() {
    let entries = [
        Entry::Mark(Mark::Begun(1)),
        write(0, &[1]),
        Entry::Mark(Mark::Done(1)),
        Entry::Mark(Mark::Begun(2)),
        write(1, &[2]),
    ];
    let plan = Plan::new(&Image::new(LEN_BYTES), &entries, &Policy::new(1));
    let said = |text: &str| plan.said(&text.parse().unwrap()).to_vec();
    let [none, first, second] = [(0, 0), (1, 1), (2, 1)].map(|(begun, done)| Said { begun, done });
    assert_eq!(said("0/prefix:0"), [none, first, second]);
    assert_eq!(said("0/prefix:1"), [first, second]);
    // Its write was made when the second step had begun.
    for late in ["0/prefix:2", "0/without:0", "0/only:1"] {
        assert_eq!(said(late), [second], "{late}");
    }
}

#[test]
fn an_enumeration_that_leaves_something_out_is_noticed() {
    let two = [write(0, &[1, 2]), write(1, &[3])];
    let both = by_hand(&two);
    assert_eq!(
        both[0].len(),
        6,
        "none, torn in two ways, first, second, both"
    );
    assert_eq!(planned(&two), both);
    // The same without the second write has fewer states.
    assert_ne!(planned(&two[..1]), both);
}

#[test]
fn what_is_promised_is_what_was_done_before_the_flush() {
    let entries = [
        Entry::Mark(Mark::Begun(1)),
        write(0, &[1]),
        Entry::Flush,
        Entry::Mark(Mark::Done(1)),
        Entry::Mark(Mark::Begun(2)),
        write(1, &[2]),
    ];
    let plan = Plan::new(&Image::new(LEN_BYTES), &entries, &Policy::new(1));
    let last = |text: &str| *plan.said(&text.parse().unwrap()).last().unwrap();
    assert_eq!(last("0/prefix:0"), Said { begun: 1, done: 0 });
    assert_eq!(last("1/prefix:0"), Said { begun: 2, done: 1 });
    assert_eq!(plan.said(&"9/prefix:0".parse().unwrap()), []);
    let missing = plan.missing(&"1/prefix:0".parse().unwrap());
    assert_eq!(missing, [0]);
    let place = plan.place(&"1/prefix:0".parse().unwrap(), 0);
    assert_eq!(place, Some((SECTOR_BYTES, SECTOR_BYTES)));
}

#[test]
fn parts_of_sectors_keep_what_is_around_them() {
    let entries = [
        Entry::Write {
            offset: 100,
            data: Arc::from([1; 10]),
        },
        Entry::Write {
            offset: 500,
            data: Arc::from([2; 30]),
        },
        Entry::Zeros(Extent::new(105, 2000)),
    ];
    let plan = Plan::new(&Image::new(4096), &entries, &Policy::new(1));
    let read = |state: &str, offset: u64| {
        let mut byte = [9];
        let image = plan.image(&state.parse().unwrap()).unwrap();
        image.read_at(offset, &mut byte);
        byte[0]
    };
    // The range of zeros is the whole sectors 1 to 3 and a part of sectors 0 and 4.
    assert_eq!(plan.change_count(&"0/prefix:0".parse().unwrap()), 5);
    assert_eq!((read("0/prefix:2", 104), read("0/prefix:2", 515)), (1, 2));
    assert_eq!((read("0/prefix:5", 104), read("0/prefix:5", 105)), (1, 0));
    assert_eq!((read("0/prefix:5", 505), read("0/prefix:5", 515)), (0, 0));
    // Sector 1 of the second write arrives without its sector 0.
    assert_eq!((read("0/tail:1:1", 505), read("0/tail:1:1", 515)), (0, 2));
    assert_eq!((read("0/tail:1:1", 104)), 1);
}

#[test]
fn samples_are_as_large_as_asked_for_and_made_again_from_their_seed() {
    let entries: Vec<Entry> = (0..7).map(|at| write(at, &[at as u8 + 1])).collect();
    let plan = Plan::new(&Image::new(LEN_BYTES), &entries, &Policy::new(1));
    let ten = plan.sample(10, 7);
    assert_eq!(ten.len(), 10);
    assert_eq!(ten, plan.sample(10, 7));
    assert_ne!(ten, plan.sample(10, 8));
    assert_eq!(plan.sample(1000, 7), plan.states());
}

/// Who stops after the first few has tried what may be anywhere in the log.
#[test]
fn what_is_drawn_is_in_no_order() {
    let entries: Vec<Entry> = (0..7).map(|at| write(at, &[at as u8 + 1])).collect();
    let plan = Plan::new(&Image::new(LEN_BYTES), &entries, &Policy::new(1));
    let place = |state: &State| plan.states().iter().position(|one| one == state).unwrap();
    let all = plan.states().len();
    let mut firsts = BTreeSet::new();
    for seed in 0..100 {
        let drawn = plan.sample(all as u64 / 2, seed);
        let places: BTreeSet<usize> = drawn.iter().map(place).collect();
        assert_eq!(places.len(), drawn.len(), "one is drawn twice");
        firsts.insert(place(&drawn[0]));
    }
    assert!(firsts.len() > all / 2, "{firsts:?}");
}

/// Records of zeros over the whole of a large disk take no room in a log; some hundred of them
/// would take more memory than a machine has, if all their sectors were compared.
#[test]
fn a_stretch_with_too_many_sectors_is_drawn_and_not_compared() {
    let len_bytes = 1 << 30;
    let zeros = || Entry::Zeros(Extent::new(0, len_bytes));
    let plan = Plan::new(&Image::new(len_bytes), &[zeros(), zeros()], &Policy::new(1));
    // All are as the disk was before, which nobody looked at.
    assert!(plan.states().len() > 10, "{:?}", plan.states());
    assert_eq!(plan.pruned(), 0);
    let few = [Entry::Zeros(Extent::new(0, 1 << 20))];
    let compared = Plan::new(&Image::new(len_bytes), &few, &Policy::new(1));
    assert!(compared.pruned() > 10 && compared.states().len() == 1);
}

#[test]
fn what_is_too_much_is_drawn_and_counted() {
    let numbers: Vec<u8> = (1..=60).collect();
    let data: Vec<u8> = numbers.iter().flat_map(|n| [*n; 512]).collect();
    let entries = [Entry::Write {
        offset: 0,
        data: data.into(),
    }];
    let policy = Policy {
        tears_max: 4,
        ..Policy::new(1)
    };
    let plan = Plan::new(&Image::new(64 << 10), &entries, &policy);
    assert_eq!(plan.by_chance(), 8);
    let drawn = plan.states().iter().filter(|one| plan.is_by_chance(one));
    assert_eq!(drawn.count(), 8);
    assert_eq!(plan.states().len(), 10);
}

#[test]
fn writes_are_torn_where_the_disk_tears() {
    // Sectors 6 to 19 of 512 bytes: borders of 4,096 bytes are behind 2 and behind 10 of them.
    let data: Vec<u8> = (1..=14).flat_map(|number| [number; 512]).collect();
    let entries = [Entry::Write {
        offset: 6 * SECTOR_BYTES,
        data: data.into(),
    }];
    let policy = Policy {
        sector_bytes: 4096,
        ..Policy::new(1)
    };
    let plan = Plan::new(&Image::new(64 << 10), &entries, &policy);
    let states: Vec<String> = plan.states().iter().map(ToString::to_string).collect();
    let torn = ["0/head:0:2", "0/tail:0:2", "0/head:0:10", "0/tail:0:10"];
    assert_eq!(
        states,
        [&["0/prefix:0"], &torn[..], &["0/prefix:1"]].concat()
    );
}

#[test]
fn pairs_are_counted_without_gaps() {
    let pairs: BTreeSet<Vec<u32>> = (0..45).map(stretch::pair_of).collect();
    assert_eq!(pairs.len(), 45);
    assert!(pairs.iter().all(|pair| pair[0] < pair[1] && pair[1] < 10));
}

#[test]
fn names_of_states_that_are_none_are_refused() {
    for text in [
        "",
        "3",
        "3/prefix",
        "3/prefix:x",
        "x/prefix:1",
        "3/head:1",
        "3/missing:2,1",
    ] {
        assert!(text.parse::<State>().is_err(), "{text}");
    }
}
