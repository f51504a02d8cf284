//! Power is cut at every point of random histories: the store opens, its check is clean, what was
//! acknowledged is there, and nothing is there that never was (S7).

use crate::world::{self, Model, Step};
use base::{BlockDevice, ObjectId, Time};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sim::{CrashDisk, CrashState, Plant, Planted, Policy, Which};
use std::sync::Arc;
use store::{Core, Terms};

/// A store's history: what it had after each step, and what was acknowledged when.
struct History {
    disk: CrashDisk,
    /// The store's contents before the first step, after it, and so on.
    models: Vec<Model>,
    /// The disk's position when a commit had returned, and how many steps it covers.
    acknowledged: Vec<(u64, usize)>,
    /// The disk's position at the end of each step.
    ends: Vec<u64>,
    mistakes: u64,
}

const DEVICE_BYTES: u64 = 5 << 20;

fn steps(seed: u64, count_max: usize) -> Vec<Step> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = world::steps(count_max).new_tree(&mut runner).unwrap();
    tree.current()
}

/// Runs the steps on a fresh store, with a mistake between it and the disk if there is one.
fn run(steps: &[Step], plant: Option<Plant>) -> History {
    let disk = CrashDisk::clone(&world::formatted(DEVICE_BYTES));
    let planted = plant.map(|plant| Arc::new(Planted::new(disk.clone(), plant)));
    let device: Arc<dyn BlockDevice> = match &planted {
        Some(planted) => planted.clone(),
        None => Arc::new(disk.clone()),
    };
    let mut store = Core::open(device.clone(), world::options()).unwrap();
    let mut history = History {
        models: vec![Model::new()],
        acknowledged: vec![(disk.position(), 0)],
        ends: Vec::new(),
        mistakes: 0,
        disk,
    };
    let mut model = Model::new();
    for (index, step) in steps.iter().enumerate() {
        world::apply(&mut store, &mut model, step).unwrap();
        history.models.push(model.clone());
        history.ends.push(history.disk.position());
        if matches!(step, Step::Commit | Step::Checkpoint | Step::Reopen) {
            history
                .acknowledged
                .push((history.disk.position(), index + 1));
        }
        if matches!(step, Step::Reopen) {
            drop(store);
            store = Core::open(device.clone(), world::options()).unwrap();
        }
    }
    history.mistakes = planted.map_or(0, |planted| planted.mistakes());
    history
}

/// What is wrong with a state, if anything is.
fn judge(history: &History, state: &CrashState) -> Result<(), String> {
    let acknowledged = history.acknowledged.iter().rev();
    let (_, first) = acknowledged
        .clone()
        .find(|(position, _)| *position <= state.position)
        .copied()
        .unwrap_or_default();
    let device = Arc::new(state.disk());
    let store =
        Core::open(device.clone(), world::options()).map_err(|error| format!("open: {error}"))?;
    let report = store
        .check(true)
        .map_err(|error| format!("check: {error}"))?;
    if !report.findings.is_empty() {
        return Err(format!("{:?}", report.findings));
    }
    let found = world::contents(&store).map_err(|error| format!("read: {error}"))?;
    // The step that was under way when power was lost may be there, too.
    let last = history.ends.partition_point(|end| *end <= state.position) + 1;
    let last = last.min(history.models.len() - 1);
    let whole = history.models[first..=last].contains(&found);
    let part = || {
        (first..last)
            .any(|step| is_between(&found, &history.models[step], &history.models[step + 1]))
    };
    if !whole && !part() {
        return Err(format!(
            "not what was after any of the steps {first} to {last}"
        ));
    }
    drop(store);
    go_on(device)
}

/// Whether `found` is on the way from one model to the next: a change too large for one transaction
/// may be there in part.
fn is_between(found: &Model, before: &Model, after: &Model) -> bool {
    found
        .keys()
        .all(|object| before.contains_key(object) && after.contains_key(object))
        && before.keys().all(|object| found.contains_key(object))
        && found.iter().all(|(object, bytes)| {
            let (old, new) = (&before[object], &after[object]);
            let shorter = old.len().min(new.len());
            let longer = old.len().max(new.len());
            (shorter..=longer).contains(&bytes.len())
                && bytes
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| old.get(at) == Some(byte) || new.get(at) == Some(byte))
        })
}

/// A store that was opened after a crash can be used and opened again.
fn go_on(device: Arc<CrashDisk>) -> Result<(), String> {
    let again = || -> Result<(), store::StoreError> {
        let (object, data) = (ObjectId([99; 16]), world::pattern(9, 0, 5000));
        let mut store = Core::open(device.clone(), world::options())?;
        store.create(Time::ZERO, object, Terms::Default)?;
        store.write(Time::ZERO, object, 100, &data)?;
        store.commit()?;
        drop(store);
        let store = Core::open(device.clone(), world::options())?;
        let mut bytes = vec![0; 5100];
        store.read(Time::ZERO, object, 0, &mut bytes)?;
        assert_eq!(bytes[100..], data);
        Ok(())
    };
    again().map_err(|error| format!("after the crash: {error}"))
}

fn judge_all(history: &History, policy: &Policy) -> Result<u64, String> {
    let states = history.disk.crash_states(policy);
    let count = states.state_count();
    for state in states {
        judge(history, &state).map_err(|wrong| format!("{state}: {wrong}"))?;
    }
    Ok(count)
}

fn policy(seed: u64) -> Policy {
    Policy {
        exhaustive_states_max: 32,
        sampled_states: 16,
        ..Policy::new(seed)
    }
}

#[test]
fn no_crash_loses_what_was_acknowledged() {
    let mut states = 0;
    for seed in 0..160 {
        let history = run(&steps(seed, 40), None);
        match judge_all(&history, &policy(seed)) {
            Ok(count) => states += count,
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    println!("{states} crash states");
    assert!(
        states >= 10_000,
        "{states} states are too few to say anything"
    );
}

#[test]
fn mistakes_above_the_device_are_noticed() {
    let plants = [
        Plant::SkipFlush(Which::Every(1)),
        Plant::SkipFlush(Which::Every(2)),
        Plant::SkipFlush(Which::Every(3)),
        Plant::SwapWrites(Which::Every(2)),
        Plant::LoseWrite(Which::Nth(3)),
    ];
    for plant in plants {
        let noticed = (0..24).any(|seed| {
            let outcome = std::panic::catch_unwind(|| {
                let history = run(&steps(seed, 40), Some(plant));
                history.mistakes > 0 && judge_all(&history, &policy(seed)).is_err()
            });
            // A store that finds the mistake itself, while it runs, has noticed it as well.
            outcome.unwrap_or(true)
        });
        assert!(noticed, "{plant:?}");
    }
}
