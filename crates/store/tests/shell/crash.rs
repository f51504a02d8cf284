//! Power is cut while several threads change a store, checkpoints going on beside their commits:
//! whatever was acknowledged is there.

use crate::work::{self, Worker};
use sim::{CrashDisk, Plant, Planted, Policy, Which};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use store::device::InOrder;
use store::{Core, Options, Store};

const THREADS: u8 = 4;
const DEVICE_BYTES: u64 = 16 << 20;
/// Crash states of one history that are judged.
const STATES: u64 = 400;

/// A thread's acknowledgements: the disk's position after each, and the version.
type Acknowledged = Vec<(u64, u64)>;

struct History {
    disk: CrashDisk,
    threads: Vec<(Acknowledged, u64)>,
    /// How far the log was known to be durable, and the disk's position then; of all threads.
    sequences: Vec<(u64, u64)>,
    checkpoints: u64,
}

fn run(versions: u64, plant: Option<Plant>) -> History {
    let disk = CrashDisk::new(DEVICE_BYTES);
    Core::format(&disk, &work::format()).unwrap();
    let open = |queue| Store::open_on(queue, work::options(), work::clock()).unwrap();
    let store = match plant {
        None => open(Box::new(InOrder::new(Arc::new(disk.clone())).unwrap())),
        Some(plant) => {
            let planted = Planted::new(disk.clone(), plant);
            open(Box::new(InOrder::new(Arc::new(planted)).unwrap()))
        }
    };
    let mut workers: Vec<_> = (0..THREADS)
        .map(|thread| Worker::begin(thread, &store).unwrap())
        .collect();
    disk.restart_log();
    let (threads, sequences) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for worker in &mut workers {
            let (store, disk) = (&store, &disk);
            let (threads, sequences) = (&threads, &sequences);
            scope.spawn(move || {
                let mut acknowledged = vec![(0, 0)];
                for _ in 0..versions {
                    worker.step(store).unwrap();
                    acknowledged.push((disk.position(), worker.version));
                    // Others commit meanwhile.
                    let sequence = store.durable_sequence();
                    let known = (disk.position(), sequence);
                    sequences.lock().unwrap().push(known);
                }
                threads
                    .lock()
                    .unwrap()
                    .push((worker.thread, acknowledged, worker.version));
            });
        }
    });
    let checkpoints = store.status().checkpoints;
    drop(store);
    let mut threads = threads.into_inner().unwrap();
    threads.sort_unstable();
    let threads = threads
        .into_iter()
        .map(|(_, acknowledged, begun)| (acknowledged, begun))
        .collect();
    History {
        disk,
        threads,
        sequences: sequences.into_inner().unwrap(),
        checkpoints,
    }
}

fn judge(history: &History, seed: u64) -> Result<u64, String> {
    let policy = Policy {
        exhaustive_states_max: 8,
        sampled_states: 4,
        ..Policy::new(seed)
    };
    let states = history.disk.crash_states(&policy);
    let count = states.state_count();
    let step = (count / STATES).max(1);
    let mut judged = 0;
    for number in (seed % step..count).step_by(step as usize) {
        let state = states.get(number).unwrap();
        let wrong = |wrong: String| format!("{state}: {wrong}");
        let known = history.sequences.iter();
        let known = known.filter(|(position, _)| *position <= state.position);
        let options = Options {
            least_sequence: known.map(|(_, sequence)| *sequence).max().unwrap_or(0),
            ..work::options()
        };
        let core = Core::open(Arc::new(state.disk()), options);
        let core = core.map_err(|error| wrong(format!("open: {error}")))?;
        work::check(&core).map_err(wrong)?;
        for (thread, (acknowledged, begun)) in history.threads.iter().enumerate() {
            let last = acknowledged.partition_point(|(position, _)| *position <= state.position);
            let last = acknowledged[..last]
                .last()
                .map_or(0, |(_, version)| *version);
            Worker::judge(thread as u8, &core, last, *begun).map_err(wrong)?;
        }
        judged += 1;
    }
    Ok(judged)
}

#[test]
fn what_threads_were_acknowledged_survives_every_loss_of_power() {
    let states = AtomicU64::new(0);
    for seed in 0..3 {
        let history = run(60, None);
        assert!(
            history.checkpoints > 2,
            "commits went on beside checkpoints"
        );
        match judge(&history, seed) {
            Ok(judged) => drop(states.fetch_add(judged, Ordering::Relaxed)),
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    let states = states.into_inner();
    println!("{states} crash states");
    assert!(states >= 1000, "{states} states are too few");
}

#[test]
fn a_flush_that_is_left_out_is_noticed() {
    let noticed = (0..6).any(|seed| {
        let history = run(40, Some(Plant::SkipFlush(Which::Every(2))));
        judge(&history, seed).is_err()
    });
    assert!(noticed);
}
