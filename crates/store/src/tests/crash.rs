//! Power is cut at every point of random histories: the store opens, its check is clean, what was
//! acknowledged is there, and nothing is there that never was (S7).

use super::doubt;
use super::world::{self, Model, Step};
use crate::layout::SUPERBLOCK_OFFSETS;
use crate::{Core, Options, Superblock, Terms};
use base::{BlockDevice, ObjectId, Time};
use sim::{CrashDisk, CrashState, Image, Plant, Planted, Policy};
use std::sync::Arc;

/// A store's history: what it had after each step, and what was acknowledged when.
pub(super) struct History {
    disk: CrashDisk,
    /// The store's contents before the first step, after it, and so on.
    models: Vec<Model>,
    /// The disk's position when a commit had returned, and how many steps it covers.
    acknowledged: Vec<(u64, usize)>,
    /// The disk's position at the end of each step.
    ends: Vec<u64>,
    /// How far the log was known to be durable, and the disk's position then.
    sequences: Vec<(u64, u64)>,
    mistakes: u64,
}

impl History {
    /// The disk's position when this step had returned.
    pub(super) fn end_of(&self, step: usize) -> u64 {
        self.ends[step]
    }

    pub(super) fn states(&self, policy: &Policy) -> impl Iterator<Item = CrashState> {
        self.disk.crash_states(policy)
    }
}

/// Runs the steps on a fresh store, with a mistake between it and the disk if there is one.
fn run(seed: u64, steps: &[Step], plant: Option<Plant>) -> History {
    run_on(&world::formatted_for(seed), steps, plant)
}

/// The same on the store of this disk.
pub(super) fn run_on(disk: &CrashDisk, steps: &[Step], plant: Option<Plant>) -> History {
    let disk = disk.clone();
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
        sequences: Vec::new(),
        mistakes: 0,
        disk,
    };
    let mut model = Model::new();
    for (index, step) in steps.iter().enumerate() {
        if let Step::FlushFails(nth) = step {
            store = doubt::fail_a_flush(&history.disk, &device, store, *nth);
            model = world::contents(&store).unwrap();
        } else {
            world::apply(&mut store, &mut model, step).unwrap();
        }
        history.models.push(model.clone());
        let sequence = store.durable_sequence();
        history.sequences.push((history.disk.position(), sequence));
        history.ends.push(history.disk.position());
        if !matches!(
            step,
            Step::Commit | Step::Checkpoint | Step::Reopen | Step::Grow | Step::FlushFails(_)
        ) {
            continue;
        }
        let position = history.disk.position();
        history.acknowledged.push((position, index + 1));
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
    let device = Arc::new(state.disk());
    let superblocks = Superblocks::of(&state.image);
    superblocks.check()?;
    judge_disk(history, state, device.clone())?;
    // Either superblock finds everything; the newer one goes bad besides.
    if state.number.is_multiple_of(8) && superblocks.are_two() {
        let older = superblocks.without_newer();
        let judged = judge_disk(history, state, Arc::new(older));
        judged.map_err(|wrong| format!("by the older superblock: {wrong}"))?;
    }
    go_on(device)
}

fn judge_disk(history: &History, state: &CrashState, device: Arc<CrashDisk>) -> Result<(), String> {
    let acknowledged = history.acknowledged.iter().rev();
    let (_, first) = acknowledged
        .clone()
        .find(|(position, _)| *position <= state.position)
        .copied()
        .unwrap_or_default();
    let known = history.sequences.iter().rev();
    let known = known
        .clone()
        .find(|(position, _)| *position <= state.position);
    let options = Options {
        least_sequence: known.map_or(0, |(_, sequence)| *sequence),
        ..world::options()
    };
    let store = Core::open(device, options).map_err(|error| format!("open: {error}"))?;
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
    if !is_of(&found, history, first, last) {
        return Err(format!(
            "not what was after any of the steps {first} to {last}"
        ));
    }
    Ok(())
}

/// Whether this is what there was after one of these steps, or in the middle of one.
fn is_of(found: &Model, history: &History, first: usize, last: usize) -> bool {
    let models = &history.models;
    models[first..=last].contains(found)
        || (first..last).any(|step| is_between(found, &models[step], &models[step + 1]))
}

/// Whether `found` is on the way from one model to the next: a change too large for one transaction
/// may be there in part.
fn is_between(found: &Model, before: &Model, after: &Model) -> bool {
    found
        .keys()
        .all(|object| before.contains_key(object) && after.contains_key(object))
        && before.keys().all(|object| found.contains_key(object))
        && found
            .iter()
            .all(|(object, bytes)| world::is_between_bytes(bytes, &before[object], &after[object]))
}

/// A store that was opened after a crash can be used and opened again.
fn go_on(device: Arc<CrashDisk>) -> Result<(), String> {
    let again = || -> Result<(), crate::StoreError> {
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

/// A disk and its two superblocks.
struct Superblocks<'a> {
    image: &'a Image,
    epochs: [u64; 2],
}

impl<'a> Superblocks<'a> {
    fn of(image: &'a Image) -> Self {
        let epoch = |offset| {
            let mut page = vec![0; 4096];
            image.read_at(offset, &mut page);
            Superblock::decode(&page).map_or(0, |superblock| superblock.epoch)
        };
        let epochs = SUPERBLOCK_OFFSETS.map(epoch);
        Self { image, epochs }
    }

    /// Whether none is torn.
    fn are_two(&self) -> bool {
        self.epochs.iter().all(|epoch| *epoch > 0)
    }

    /// Two intact ones are one epoch apart.
    fn check(&self) -> Result<(), String> {
        let [even, odd] = self.epochs;
        match self.are_two() && even.abs_diff(odd) != 1 {
            true => Err(format!("superblocks of the epochs {even} and {odd}")),
            false => Ok(()),
        }
    }

    fn without_newer(&self) -> CrashDisk {
        let newer = usize::from(self.epochs[1] > self.epochs[0]);
        let mut image = self.image.clone();
        image.write_at(SUPERBLOCK_OFFSETS[newer] + 100, &[0xFF; 50]);
        CrashDisk::from_image(image)
    }
}

/// What is done under this seed: with AUs of several groups, first what chance hardly comes upon.
fn steps(seed: u64) -> Vec<Step> {
    let write = |offset, len| Step::Write {
        object: 1,
        offset,
        len,
        fill: (seed + offset + len as u64) as u8,
    };
    let punch = |offset, len| Step::Punch {
        object: 1,
        offset,
        len,
    };
    let groups = 3 * world::AU;
    let mut steps = match seed % 6 {
        // What ceases to be live is written over before that is durable.
        1 => vec![
            Step::Create(1),
            write(0, 262_144),
            Step::Commit,
            punch(0, groups),
            write(0, 180_000),
        ],
        // A small write, a hole in its place, and a large one into the hole.
        4 => vec![
            Step::Create(1),
            write(0, 262_144),
            write(1_000, 3_000),
            Step::Commit,
            punch(0, groups),
            Step::Commit,
            write(0, 180_000),
            Step::Commit,
            Step::Checkpoint,
        ],
        // The log and the pages of records are used again and again.
        2 => (0..40)
            .flat_map(|round| {
                let small = write(round * 17 % 5 * 1_000, 27_000 + round as usize);
                let end = match round % 4 {
                    3 if seed % 12 == 2 => Step::Checkpoint,
                    _ => Step::Commit,
                };
                [Step::Create(round as u8 % 6), small, end]
            })
            .collect(),
        // Records take AUs and give them back, and data is written there, beside records that stay.
        3 if seed % 12 == 3 => return records_come_and_go(seed / 12),
        _ => Vec::new(),
    };
    steps.extend(world::drawn(world::steps(40), seed));
    steps
}

/// Fills a small store with records, deletes them, fills it with data, and once more with records
/// that stay.
fn records_come_and_go(seed: u64) -> Vec<Step> {
    let attributes = 50 - (seed / 4 % 8) as u8;
    let records = |object: u8| [Step::Create(object), Step::Attributes(object, attributes)];
    let data = |object: u8| {
        let write = move |au: u64| Step::Write {
            object,
            offset: au * world::AU,
            len: world::AU as usize,
            fill: object,
        };
        (0..27).map(write)
    };
    let mut steps = Vec::new();
    for round in 0..2 {
        steps.extend((0..4).flat_map(records));
        steps.push(Step::Commit);
        steps.extend((round..4).map(Step::Delete));
        // Pages are free after two checkpoints, their AUs after two more.
        steps.extend((0..2 + seed % 4).map(|_| Step::Checkpoint));
        // More than all that is free, in turns: AUs are drawn from one end to the other.
        for object in [4, 5] {
            steps.push(Step::Create(object));
            for (at, write) in data(object).enumerate() {
                steps.push(write);
                steps.extend((at % 7 == 6).then_some(Step::Commit));
            }
            steps.extend([Step::Delete(object), Step::Reclaim, Step::Checkpoint]);
        }
    }
    steps
}

/// Runs the steps of a seed with a mistake above the disk, if there is one, and judges every
/// state; says how many there were, and how often the mistake was made.
pub(super) fn prove(seed: u64, plant: Option<Plant>) -> Result<(u64, u64), String> {
    let history = run(seed, &steps(seed), plant);
    let states = judge_all(&history, &policy(seed))?;
    Ok((states, history.mistakes))
}

pub(super) fn judge_all(history: &History, policy: &Policy) -> Result<u64, String> {
    let states = history.disk.crash_states(policy);
    let count = states.state_count();
    for state in states {
        judge(history, &state).map_err(|wrong| format!("{state}: {wrong}"))?;
    }
    Ok(count)
}

/// Some states of each stretch.
pub(super) fn policy(seed: u64) -> Policy {
    Policy {
        exhaustive_states_max: 32,
        sampled_states: 16,
        ..Policy::new(seed)
    }
}

#[test]
fn no_crash_loses_what_was_acknowledged() {
    let mut states = 0;
    for seed in world::seeds(32) {
        match prove(seed, None) {
            Ok((count, _)) => states += count,
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
fn data_gets_the_space_that_records_have_left_each_time() {
    for seed in 0..32 {
        let seed = 12 * seed + 3;
        let history = run(seed, &steps(seed), None);
        assert!(history.models.len() > 100, "seed {seed}");
    }
}
