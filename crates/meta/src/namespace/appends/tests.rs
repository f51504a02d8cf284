//! Places beside a set of bytes each, and the whole protocol of one file beside a file that is
//! changed in one moment by each operation.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Change {
    Give(u64, u64),
    Told(usize),
    Replace(u64, u64),
    Cut(u64),
    Supersede,
    GiveUp,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        4 => (0..90_u64, 0..12_u64).prop_map(|(offset, len)| Change::Give(offset, len)),
        2 => (0..8_usize).prop_map(Change::Told),
        2 => (0..100_u64, 1..9_u64).prop_map(|(offset, len)| Change::Replace(offset, len)),
        1 => (0..100_u64).prop_map(Change::Cut),
        1 => Just(Change::Supersede),
        1 => Just(Change::GiveUp),
    ];
    prop::collection::vec(change, 1..50)
}

/// A set of bytes for each open place, and one for all that were given.
#[derive(Default)]
struct Naive {
    open: BTreeMap<u64, BTreeSet<u64>>,
    given: BTreeSet<u64>,
    given_up: BTreeSet<u64>,
}

impl Naive {
    fn replace(&mut self, is_hit: impl Fn(u64) -> bool) {
        for bytes in self.open.values_mut() {
            bytes.retain(|byte| !is_hit(*byte));
        }
        self.open.retain(|_, bytes| !bytes.is_empty());
    }
}

fn bytes(extents: &[Extent]) -> BTreeSet<u64> {
    let each = extents
        .iter()
        .flat_map(|extent| extent.offset..extent.end());
    each.collect()
}

proptest! {
    #[test]
    fn what_is_left_of_a_place_is_what_nobody_has_replaced(changes in changes()) {
        let (mut appends, mut naive) = (Appends::default(), Naive::default());
        for (number, change) in (1..).zip(&changes) {
            match *change {
                Change::Give(offset, len) if !appends.is_full() => {
                    appends.give(number, Extent::new(offset, len));
                    if len > 0 {
                        let place: BTreeSet<u64> = (offset..offset + len).collect();
                        naive.given.extend(&place);
                        naive.open.insert(number, place);
                    }
                }
                Change::Give(..) => {}
                Change::Told(nth) => {
                    if let Some(number) = naive.open.keys().nth(nth).copied() {
                        appends.on_told(number);
                        naive.open.remove(&number);
                    }
                }
                Change::Replace(offset, len) => {
                    appends.replace(Extent::new(offset, len));
                    naive.replace(|byte| (offset..offset + len).contains(&byte));
                }
                Change::Cut(size) => {
                    appends.cut(size);
                    naive.replace(|byte| byte >= size);
                }
                Change::Supersede => {
                    appends.supersede();
                    naive.given = naive.open.values().flatten().copied().collect();
                }
                Change::GiveUp => {
                    appends.give_up_oldest();
                    if let Some((number, _)) = naive.open.pop_first() {
                        naive.given_up.insert(number);
                    }
                }
            }
            for byte in 0..110 {
                let meets = appends.meets(Extent::new(byte, 1));
                prop_assert_eq!(meets, naive.given.contains(&byte), "byte {}", byte);
            }
            for number in 1..=number {
                match (appends.left(number), naive.open.get(&number)) {
                    (Ok(left), Some(place)) => prop_assert_eq!(bytes(&left), place.clone()),
                    (Ok(left), None) => {
                        prop_assert!(left.is_empty());
                        prop_assert!(!naive.given_up.contains(&number));
                    }
                    (Err(_), _) => prop_assert!(!naive.open.contains_key(&number)),
                }
            }
        }
    }
}

#[test]
fn a_place_that_is_in_too_many_parts_is_given_up_and_nothing_grows_without_bound() {
    let mut appends = Appends::default();
    let len = 4 * (PLACE_PARTS_MAX as u64 + 2);
    appends.give(7, Extent::new(0, len));
    for part in 1..=PLACE_PARTS_MAX as u64 {
        assert!(appends.left(7).is_ok());
        appends.replace(Extent::new(4 * part, 1));
    }
    assert_eq!(appends.left(7), Err(FsError::Io));
    let mut appends = Appends::default();
    for number in 0..5 * NAMESPACE_APPENDED_MAX as u64 {
        if appends.is_full() {
            appends.give_up_oldest();
        }
        appends.give(number, Extent::new(1000 * number, 1));
        assert!(appends.meets(Extent::new(1000 * number, 1)));
        assert!(appends.open.len() <= NAMESPACE_PLACES_MAX);
        assert!(appends.given.len() <= NAMESPACE_APPENDED_MAX);
    }
    assert_eq!(appends.left(0), Err(FsError::Io));
}

mod protocol {
    //! Appends, writes and truncations of one file, in any order of their steps: each append is
    //! given a place, written in two parts at the stores, and told; each write is written and told;
    //! a truncation is noted, and then carried out at the stores before anybody gets a layout. When
    //! all are over, the stores have what the operations make of a file one after the other, an
    //! append at the moment of its place, a truncation when it is noted, and a write when it is
    //! told. And at every moment they have that of what is shown, but where a write is under way.

    use super::super::Appends;
    use base::Extent;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// What a client is to do.
    #[derive(Clone, Copy, Debug)]
    enum Operation {
        Append(u64),
        /// As an append, but only its first byte can be written.
        Fail(u64),
        Write(u64, u64),
        Truncate(u64),
        /// Nobody waits any longer.
        Show,
    }

    /// How far it is.
    #[derive(Clone, Debug)]
    enum State {
        Begin,
        /// It has a place and a layout of this generation; so many of its bytes are written.
        Placed(u64, u64, Vec<u64>, usize),
        /// It has a layout.
        LaidOut(u64, usize),
        /// It waits for its turn, behind places up to the last one; all that is to be written is.
        Behind(u64, u64),
        /// It is noted, and to be carried out.
        Noted(u64, u64),
        /// It has come in its turn, and the file is not so long for everybody: there are places up
        /// to the last one before.
        Unseen(u64, u64),
        Over,
    }

    struct World {
        /// At the manager.
        size: u64,
        generation: u64,
        appends: Appends,
        number: u64,
        /// Fences that are not carried out.
        under_way: usize,
        /// At the store.
        object: Vec<u8>,
        fence: u64,
        /// As it should be.
        model: Vec<u8>,
        /// Bytes of places that were given up, of which some may be there.
        unsure: BTreeSet<u64>,
        /// One plain write at a time: two that overlap may be in either order.
        is_writing: bool,
        broken: Option<Broken>,
    }

    /// Something that is left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Broken {
        /// The store refuses nothing.
        Fence,
        /// Who has written where an append was given a place does not write again.
        Overtaking,
        /// A file is as long as its places make it, and nobody waits.
        Hiding,
        /// Who has waited for his turn is answered before everybody sees what he has done.
        Seeing,
        /// Of an append that is given up, what is on its way may still arrive.
        GivingUp,
    }

    impl World {
        fn supersede(&mut self) -> u64 {
            self.generation += 1;
            self.appends.supersede();
            self.under_way += 1;
            self.generation
        }

        fn fence(&mut self, generation: u64, size: u64) {
            self.under_way -= 1;
            if self.broken != Some(Broken::Fence) {
                self.fence = self.fence.max(generation);
            }
            self.object.truncate(size as usize);
        }

        /// The last place for which whoever makes the file so long has to wait.
        fn last_before(&self, end: u64, through: u64) -> Option<u64> {
            match self.broken {
                Some(Broken::Hiding) => None,
                _ => self.appends.last_before(end, through),
            }
        }

        fn shown(&self) -> u64 {
            match self.broken {
                Some(Broken::Hiding) => self.size,
                _ => self.appends.shown_size(self.size),
            }
        }

        /// It has come in its turn.
        fn done(&self, end: u64) -> State {
            match self.last_before(end, u64::MAX) {
                Some(last) if self.broken != Some(Broken::Seeing) => State::Unseen(end, last),
                _ => State::Over,
            }
        }

        fn until_seen(&self, (end, last): (u64, u64)) -> State {
            match self.last_before(end, last) {
                Some(last) => State::Unseen(end, last),
                None => State::Over,
            }
        }

        /// What is wrong with what anybody sees now: where no write is under way, and no append
        /// that is shown, and while no cut is, it is what it should be.
        fn look(&self, operations: &[Operation], states: &[State]) -> Option<String> {
            let shown = self.shown();
            let is_being_written = |at: u64| {
                let mut all = operations.iter().zip(states);
                all.any(|(operation, state)| match (operation, state) {
                    (_, State::Over | State::Unseen(..)) => false,
                    (Operation::Write(offset, len), _) => (*offset..offset + len).contains(&at),
                    _ => false,
                })
            };
            let (open, shown_below) = (&self.appends.open, self.appends.shown_below);
            let is_to_come = |at: u64| {
                let late = open.iter().filter(|place| place.number < shown_below);
                let mut left = late.flat_map(|place| place.left.iter());
                left.any(|(begin, end)| (*begin..*end).contains(&at))
            };
            let byte = |bytes: &[u8], at: u64| bytes.get(at as usize).copied().unwrap_or(0);
            let is_wrong = |at: &u64| byte(&self.object, *at) != byte(&self.model, *at);
            let is_sure =
                |at: &u64| !is_being_written(*at) && !is_to_come(*at) && !self.unsure.contains(at);
            let wrong = match self.under_way {
                0 => (0..shown).find(|at| is_wrong(at) && is_sure(at)),
                _ => None,
            };
            wrong.map(|at| format!("byte {at} of {shown}: {:?}", self.object))
        }

        fn write(&mut self, generation: u64, at: u64, byte: u8) -> bool {
            if generation < self.fence {
                return false;
            }
            put(&mut self.object, at, byte);
            true
        }

        fn append(&mut self, state: &State, len: u64, byte: u8) -> State {
            match state {
                State::Begin => {
                    let at = self.size;
                    self.number += 1;
                    self.appends.give(self.number, Extent::new(at, len));
                    self.size += len;
                    self.model.resize(at as usize, 0);
                    self.expect((at, len), byte);
                    let left = (at..at + len).collect();
                    State::Placed(self.number, self.generation, left, 0)
                }
                State::Placed(number, generation, left, done) => {
                    let again = |world: &Self| {
                        let left = world.appends.left(*number).unwrap();
                        let left = left.iter().flat_map(|part| part.offset..part.end());
                        State::Placed(*number, world.generation, left.collect(), 0)
                    };
                    if left.is_empty() {
                        return State::Over;
                    }
                    if *done < left.len() {
                        if self.under_way > 0 && *generation == self.generation {
                            // Nobody gets this layout yet.
                            return state.clone();
                        }
                        return match self.write(*generation, left[*done], byte) {
                            true => State::Placed(*number, *generation, left.clone(), done + 1),
                            false => again(self),
                        };
                    }
                    if *generation != self.generation {
                        return again(self);
                    }
                    let end = left.last().map_or(0, |last| last + 1);
                    if self.last_before(end, number - 1).is_some() {
                        return state.clone();
                    }
                    self.appends.on_told(*number);
                    State::Over
                }
                other => other.clone(),
            }
        }

        fn expect(&mut self, (at, len): (u64, u64), byte: u8) {
            for at in at..at + len {
                put(&mut self.model, at, byte);
                self.unsure.remove(&at);
            }
        }

        /// An append that cannot be written.
        fn fail(&mut self, state: &State, len: u64, byte: u8) -> State {
            match state {
                State::Placed(number, _, left, done) if *done > 0 || left.is_empty() => {
                    let left = self.appends.left(*number).unwrap();
                    let left = left.iter().flat_map(|part| part.offset..part.end());
                    self.unsure.extend(left);
                    let Some(end) = self.appends.give_up(*number, self.size) else {
                        return State::Over;
                    };
                    self.cut_to(end);
                    match self.broken {
                        Some(Broken::GivingUp) => State::Over,
                        _ => State::Noted(self.supersede(), end),
                    }
                }
                State::Noted(generation, kept) => {
                    self.fence(*generation, *kept);
                    State::Over
                }
                other => self.append(other, len, byte),
            }
        }

        fn cut_to(&mut self, size: u64) {
            self.size = size;
            self.model.resize(size as usize, 0);
            self.unsure.retain(|at| *at < size);
        }

        fn plain(&mut self, state: &State, (at, len): (u64, u64), byte: u8) -> State {
            match state {
                State::Begin if self.is_writing || self.under_way > 0 => State::Begin,
                State::Begin => {
                    self.is_writing = true;
                    State::LaidOut(self.generation, 0)
                }
                State::LaidOut(generation, done) if (*done as u64) < len => {
                    match self.write(*generation, at + *done as u64, byte) {
                        true => State::LaidOut(*generation, done + 1),
                        false => self.once_more(),
                    }
                }
                State::LaidOut(generation, _) => {
                    self.plain(&State::Behind(*generation, u64::MAX), (at, len), byte)
                }
                State::Behind(generation, through) => {
                    if *generation != self.generation {
                        return self.once_more();
                    }
                    let extent = Extent::new(at, len);
                    if let Some(last) = self.last_before(extent.end(), *through) {
                        return State::Behind(*generation, last);
                    }
                    let is_met = self.appends.meets(extent);
                    self.size = self.size.max(at + len);
                    self.expect((at, len), byte);
                    if is_met && self.broken != Some(Broken::Overtaking) {
                        self.appends.replace(extent);
                        let generation = self.supersede();
                        // Carried out before it is answered.
                        self.fence(generation, u64::MAX);
                        return self.once_more();
                    }
                    self.is_writing = false;
                    self.done(extent.end())
                }
                State::Unseen(end, last) => self.until_seen((*end, *last)),
                other => other.clone(),
            }
        }

        fn once_more(&mut self) -> State {
            self.is_writing = false;
            State::Begin
        }

        fn truncate(&mut self, state: &State, size: u64) -> State {
            match state {
                State::Begin => self.truncate(&State::Behind(0, u64::MAX), size),
                State::Behind(_, through) => {
                    if let Some(last) = self.last_before(size, *through) {
                        return State::Behind(0, last);
                    }
                    if size == self.size {
                        self.appends.show(size, u64::MAX);
                        return self.done(size);
                    }
                    let kept = size.min(self.size);
                    self.appends.cut(kept);
                    self.cut_to(size);
                    State::Noted(self.supersede(), kept)
                }
                State::Noted(generation, kept) => {
                    self.fence(*generation, *kept);
                    self.done(size)
                }
                State::Unseen(end, last) => self.until_seen((*end, *last)),
                other => other.clone(),
            }
        }
    }

    fn put(bytes: &mut Vec<u8>, at: u64, byte: u8) {
        let at = at as usize;
        bytes.resize(bytes.len().max(at + 1), 0);
        bytes[at] = byte;
    }

    /// What is wrong in the end.
    fn run(operations: &[Operation], turns: &[usize], broken: Option<Broken>) -> Option<String> {
        let mut world = World {
            size: 0,
            generation: 0,
            appends: Appends::default(),
            number: 0,
            under_way: 0,
            object: Vec::new(),
            fence: 0,
            model: Vec::new(),
            unsure: BTreeSet::new(),
            is_writing: false,
            broken,
        };
        let mut states = vec![State::Begin; operations.len()];
        let rounds = (0..1000).flat_map(|_| 0..operations.len());
        for turn in turns.iter().copied().chain(rounds) {
            let turn = turn % operations.len();
            let (state, byte) = (states[turn].clone(), turn as u8 + 1);
            states[turn] = match operations[turn] {
                Operation::Append(len) => world.append(&state, len, byte),
                Operation::Fail(len) => world.fail(&state, len, byte),
                Operation::Write(at, len) => world.plain(&state, (at, len), byte),
                Operation::Truncate(size) => world.truncate(&state, size),
                Operation::Show => {
                    world.appends.show(u64::MAX, u64::MAX);
                    State::Over
                }
            };
            if let Some(wrong) = world.look(operations, &states) {
                return Some(wrong);
            }
            if let (Operation::Write(at, len), State::Over) = (operations[turn], &states[turn]) {
                let is_just_done = matches!(state, State::LaidOut(..) | State::Behind(..));
                let is_cut = |operation: &Operation| matches!(operation, Operation::Truncate(_));
                let is_whole = is_just_done || !operations.iter().any(is_cut);
                if is_whole && world.shown() < at + len && !matches!(state, State::Over) {
                    return Some(format!("{} are shown of {at} and {len}", world.shown()));
                }
            }
            if states.iter().all(|state| matches!(state, State::Over)) {
                break;
            }
        }
        if !states.iter().all(|state| matches!(state, State::Over)) {
            return Some(format!("it does not end: {states:?}"));
        }
        let mut found = world.object.clone();
        found.resize(world.size as usize, 0);
        world.model.resize(world.size as usize, 0);
        for at in &world.unsure {
            found[*at as usize] = world.model[*at as usize];
        }
        (found != world.model).then(|| format!("{found:?} and not {:?}", world.model))
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let operation = prop_oneof![
            3 => (1..6_u64).prop_map(Operation::Append),
            1 => (1..6_u64).prop_map(Operation::Fail),
            2 => (0..14_u64, 1..6_u64).prop_map(|(at, len)| Operation::Write(at, len)),
            2 => prop_oneof![Just(0), 0..12_u64].prop_map(Operation::Truncate),
            1 => Just(Operation::Show),
        ];
        prop::collection::vec(operation, 1..8)
    }

    fn turns() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(0..8_usize, 0..80)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn whatever_meets_comes_to_be_in_one_order(operations in operations(), turns in turns()) {
            prop_assert_eq!(run(&operations, &turns, None), None);
        }
    }

    #[test]
    fn what_is_left_out_is_noticed() {
        use Operation::{Append, Fail, Truncate, Write};
        // Emptied and written while the bytes of an append are on their way.
        let cut = [Append(3), Truncate(0), Write(0, 4)];
        let turns = [0, 1, 1, 2, 2, 2, 2, 2, 2];
        assert_eq!(run(&cut, &turns, None), None);
        assert!(run(&cut, &turns, Some(Broken::Fence)).is_some());
        // An append is given its place where somebody has written and not told so.
        let met = [Write(0, 4), Append(3)];
        let turns = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1];
        assert_eq!(run(&met, &turns, None), None);
        assert!(run(&met, &turns, Some(Broken::Overtaking)).is_some());
        // An append begins while a write waits for the one before.
        let steady = [Append(3), Write(8, 3), Append(3)];
        let turns = [0, 1, 1, 1, 1, 1, 2, 0, 0, 0, 0, 1, 1];
        assert_eq!(run(&steady, &turns, None), None);
        assert!(run(&steady, &turns, Some(Broken::Seeing)).is_some());
        // What is written of an append that is given up is not in what becomes longer later.
        let failed = [Fail(3), Write(5, 2)];
        let turns = [0, 0, 0, 0, 1, 1, 1, 1];
        assert_eq!(run(&failed, &turns, None), None);
        assert!(run(&failed, &turns, Some(Broken::GivingUp)).is_some());
        // An append has its place, and none of its bytes is there.
        let append = [Append(3)];
        assert_eq!(run(&append, &[0], None), None);
        assert!(run(&append, &[0], Some(Broken::Hiding)).is_some());
    }
}
