//! The tree beside an array with one entry for each second.

use super::*;
use proptest::prelude::*;

/// Seconds of the array; its last one stands for ever after.
const SECONDS: usize = 200;

#[derive(Clone, Debug)]
enum Step {
    Add(u64, i64),
    /// Takes back the change that was added as the n-th.
    Undo(usize),
    Forget(u64),
    /// Goes on with a tree that was made at once.
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..SECONDS as u64, -4..=4_i64).prop_map(|(at, delta)| Step::Add(at, delta)),
        6 => any::<prop::sample::Index>().prop_map(|at| Step::Undo(at.index(1 << 16))),
        1 => (0..SECONDS as u64).prop_map(Step::Forget),
        1 => Just(Step::Reload),
    ]
}

/// The level at each second, and what has been added.
struct Model {
    origin: u64,
    level: Vec<i64>,
    added: Vec<(u64, i64)>,
}

impl Model {
    fn new() -> Self {
        Self {
            origin: 0,
            level: vec![0; SECONDS],
            added: Vec::new(),
        }
    }

    fn add(&mut self, at: u64, delta: i64) {
        for level in &mut self.level[at as usize..] {
            *level += delta;
        }
    }

    /// The seconds of `[from, to)` that are still known.
    fn seconds(&self, from: u64, to: u64) -> std::ops::Range<usize> {
        from.max(self.origin) as usize..(to as usize).min(SECONDS)
    }

    fn first(&self, from: u64, is_met: impl Fn(i64) -> bool) -> Option<Moment> {
        self.seconds(from, u64::MAX)
            .find(|at| is_met(self.level[*at]))
            .map(|at| Moment::from_secs(at as u64))
    }

    fn first_run(&self, from: u64, last: u64, limit: i64, length: u64) -> Option<Moment> {
        let fits = |at: usize| {
            let end = at.saturating_add(length as usize).min(SECONDS);
            self.level[at..end.max(at + 1)]
                .iter()
                .all(|level| *level <= limit)
        };
        self.seconds(from, last + 1)
            .find(|at| fits(*at))
            .map(|at| Moment::from_secs(at as u64))
    }
}

fn apply<const FAN: usize>(levels: &mut Levels<FAN>, model: &mut Model, step: &Step) {
    match *step {
        Step::Add(at, delta) => {
            levels.add(Moment::from_secs(at), delta);
            model.add(at.max(model.origin), delta);
            model.added.push((at, delta));
        }
        Step::Undo(which) if !model.added.is_empty() => {
            let which = which % model.added.len();
            let (at, delta) = model.added.swap_remove(which);
            levels.add(Moment::from_secs(at), -delta);
            model.add(at.max(model.origin), -delta);
        }
        Step::Undo(_) => {}
        Step::Reload => {
            let origin = levels.origin();
            let (base, later): (Vec<_>, Vec<_>) =
                levels.changes().partition(|change| change.at <= origin);
            let base = base.iter().map(|change| change.delta).sum();
            *levels = Levels::from_changes(origin, base, later);
        }
        Step::Forget(now) => {
            levels.forget_before(Moment::from_secs(now));
            model.origin = model.origin.max(now);
        }
    }
}

/// What every node must be.
fn check<const FAN: usize>(node: &Node<FAN>, bound: Moment, is_root: bool) -> usize {
    assert!(node.len() <= FAN, "{} of {FAN}", node.len());
    match node {
        Node::Leaf(changes) => {
            assert!(is_root || !changes.is_empty());
            assert!(changes.iter().all(|change| change.delta != 0));
            assert!(changes.is_sorted_by_key(|change| change.at));
            assert!(changes.last().is_none_or(|change| change.at < bound));
            0
        }
        Node::Inner(children) => {
            assert!(children.len() > usize::from(is_root));
            let bounds = children[1..].iter().map(|next| next.first).chain([bound]);
            let depths = children.iter().zip(bounds).map(|(child, bound)| {
                assert_eq!(child.node.describe(), Some((child.first, child.summary)));
                check(&child.node, bound, false)
            });
            let depths: Vec<_> = depths.collect();
            assert!(depths.iter().all(|depth| *depth == depths[0]));
            depths[0] + 1
        }
    }
}

fn agrees<const FAN: usize>(
    steps: &[Step],
    questions: &[(u64, u64, i64)],
) -> Result<(), TestCaseError> {
    let mut levels = Levels::<FAN>::new(Moment::from_secs(0));
    let mut model = Model::new();
    for (count, step) in steps.iter().enumerate() {
        apply(&mut levels, &mut model, step);
        check(&levels.root, Moment::FOREVER, true);
        let (from, to, limit) = questions[count % questions.len()];
        let (start, end) = (Moment::from_secs(from), Moment::from_secs(to));
        if let Ok(interval) = Interval::new(start, end) {
            let seconds = model.seconds(from, to);
            let known = model.level.get(seconds).unwrap_or_default();
            prop_assert_eq!(
                levels.high(interval),
                known.iter().copied().max().unwrap_or(0)
            );
            prop_assert_eq!(
                levels.low(interval),
                known.iter().copied().min().unwrap_or(0)
            );
        }
        let above = model.first(from, |level| level > limit);
        prop_assert_eq!(levels.first_above(start, limit), above);
        let at_most = model.first(from, |level| level <= limit);
        prop_assert_eq!(levels.first_at_most(start, limit), at_most);
        for length in [1, to / 8 + 1, to, u64::MAX] {
            let last = (from + to).min(SECONDS as u64 - 1);
            let found = levels.first_run((start, Moment::from_secs(last)), limit, length);
            prop_assert_eq!(found, model.first_run(from, last, limit, length));
        }
    }
    let mut rebuilt = Levels::<FAN>::new(levels.origin());
    for change in levels.changes() {
        rebuilt.add(change.at, change.delta);
    }
    prop_assert!(rebuilt == levels);
    let known = model.origin as usize;
    let mut level = 0;
    let mut changes = levels.changes().peekable();
    for at in known..SECONDS {
        while let Some(change) = changes.next_if(|change| change.at.as_secs() <= at as u64) {
            level += change.delta;
        }
        prop_assert_eq!(level, model.level[at], "at {}", at);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_answer_is_that_of_an_array_of_seconds(
        steps in prop::collection::vec(step(), 1..300),
        questions in prop::collection::vec(
            (0..SECONDS as u64, 0..2 * SECONDS as u64, -8..=8_i64), 1..20),
    ) {
        agrees::<8>(&steps, &questions)?;
        agrees::<FAN_DEFAULT>(&steps, &questions)?;
    }
}

#[test]
fn memory_follows_what_is_in_it() {
    let mut levels = Levels::<FAN_DEFAULT>::new(Moment::from_secs(0));
    assert!(levels.memory_bytes() < 128);
    let at = |index: u64| Moment::from_secs(1 + index * 7919 % 100_003);
    for index in 0..100_000 {
        levels.add(at(index), 1 + (index % 5) as i64);
    }
    let full = levels.memory_bytes();
    assert!(full < 100_000 * 40, "{full}");
    // Nine of ten go in an order of no use, and their memory with them.
    for index in (0..100_000).filter(|index| index % 10 != 0) {
        levels.add(at(index), -(1 + (index % 5) as i64));
    }
    let rest = levels.memory_bytes();
    assert!(rest < full / 3, "{rest} of {full}");
    levels.forget_before(Moment::from_secs(200_000));
    assert!(levels.memory_bytes() < 128, "{}", levels.memory_bytes());
}
