//! Two machines on one volume, judged by the promises of `docs/semantics.md`.
//!
//! Two real mounts of one real server stand for the machines. On each, several threads do random
//! things to a few names at once; what they were answered, and when, is checked against a model of
//! one shared file system ([`checker`]): names and attributes are never old after an answered
//! change (C1, C3), a machine sees its own writes at once (C2), others after the `close` (C1),
//! appends do not overwrite each other (C7), names change whole and exclusive creations are won
//! once (C8). Besides, all threads append to one file and count under a lock in another that they
//! keep open (C4, C7).
//!
//! `AZEKURA_CONSISTENCY_SECONDS` says for how long, `AZEKURA_CONSISTENCY_SEED` from which seed;
//! both are printed. A seed repeats what the threads do, not how they meet.

#[cfg(test)]
mod actor;
#[cfg(test)]
mod checker;
#[cfg(test)]
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "nothing is killed here")]
mod common;
#[cfg(test)]
mod history;
#[cfg(test)]
mod model;
#[cfg(test)]
#[path = "../common/random.rs"]
mod random;
#[cfg(test)]
mod shared;

#[cfg(test)]
mod rounds {
    use crate::actor::Actor;
    use crate::checker::{Kind, Verdict, check};
    use crate::common::{Scene, obstacle};
    use crate::history::{CLIENTS, Id, Operation};
    use crate::random::{Random, seed, setting};
    use crate::shared;
    use std::fmt::Write as _;
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    const SECONDS: u64 = 6;
    /// Rounds, at least: of fewer, one that is too wide to judge is too many. A machine that takes
    /// ever so long for them has ten times the seconds.
    const ROUNDS_MIN: usize = 12;
    /// Each of two stores of a parallel volume.
    const STORE_SIZE: &str = "64MiB";
    /// Threads of one machine, at most: the fewer, the easier to read a history is.
    const THREADS: usize = 2;
    /// Operations of one thread in one round: short histories are read by people.
    const OPERATIONS: usize = 60;
    /// Operations before the wrong one that a report shows.
    const SHOWN: usize = 400;

    /// One pair of machines at a time. Whatever is started while the other pair has files open has
    /// these, too, until it runs, and closing them takes as long as their machine's writing: so
    /// long their mount is in use.
    static TURN: Mutex<()> = Mutex::new(());

    /// One directory, fought for by all threads.
    fn fight(mounts: &[PathBuf], round: usize, random: &mut Random) -> Vec<Operation> {
        let name = format!("round-{round}");
        std::fs::create_dir(mounts[0].join(&name)).unwrap();
        let threads = 1 + round % THREADS;
        let actors = (0..CLIENTS * threads).map(|number| Actor {
            client: number % CLIENTS,
            random: Random(random.below(u64::MAX)),
            directory: mounts[number % CLIENTS].join(&name),
            texts: (number * OPERATIONS) as u32,
        });
        let threads: Vec<_> = actors
            .map(|mut actor| std::thread::spawn(move || actor.work(OPERATIONS)))
            .collect();
        let histories = threads.into_iter().map(|thread| thread.join().unwrap());
        histories.flatten().collect()
    }

    /// The wrong operation and what was going on before it, in the order of their ends.
    fn report(history: &[Operation], wrong: Id) -> String {
        let begin = history.iter().map(|operation| operation.marks[0]).min();
        let begin = begin.expect("a history has operations");
        let end = |operation: &Operation| *operation.marks.last().expect("two at least");
        let mut before: Vec<_> = history
            .iter()
            .filter(|operation| operation.marks[0] <= end(&history[wrong]))
            .collect();
        before.sort_by_key(|operation| end(operation));
        let skipped = before.len().saturating_sub(SHOWN);
        let mut text = String::new();
        for operation in before.into_iter().skip(skipped) {
            let times: Vec<u128> = operation
                .marks
                .iter()
                .map(|mark| (*mark - begin).as_micros())
                .collect();
            let Operation {
                client,
                action,
                outcome,
                ..
            } = operation;
            let here = if std::ptr::eq(operation, &history[wrong]) {
                "WRONG: "
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "{here}{times:?} us, client {client}: {action:?} -> {outcome:?}"
            );
        }
        text
    }

    #[test]
    fn two_machines_see_one_file_system() {
        match obstacle() {
            Some(why) => println!("{why}"),
            None => {
                let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
                let scene = Scene::new();
                let volume = scene.volume();
                fight_for(scene, &volume, Kind::Export);
            }
        }
    }

    /// As long as it was shown before its bytes were there (V3), no order explained what was read.
    #[test]
    fn two_machines_see_one_file_system_on_a_parallel_volume() {
        match obstacle() {
            Some(why) => println!("{why}"),
            None => {
                let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
                let scene = Scene::with_two_stores(STORE_SIZE);
                let volume = scene.parallel();
                fight_for(scene, &volume, Kind::Parallel);
            }
        }
    }

    /// Runs rounds on two mounts of a volume, and judges them.
    fn fight_for(mut scene: Scene, volume: &str, kind: Kind) {
        let seconds = setting("AZEKURA_CONSISTENCY_SECONDS").unwrap_or(SECONDS);
        let seed = seed("AZEKURA_CONSISTENCY_SEED");
        println!("consistency: {seconds} s; AZEKURA_CONSISTENCY_SEED={seed} repeats the threads");
        let mut random = Random(seed);
        let mounts = ["one", "two"].map(|name| scene.mount_volume(volume, name, &[]));
        let (begun, seconds) = (Instant::now(), Duration::from_secs(seconds));
        let (mut rounds, mut operations, mut undecided) = (0, 0, 0);
        while begun.elapsed() < seconds || (rounds < ROUNDS_MIN && begun.elapsed() < seconds * 10) {
            let history = fight(&mounts, rounds, &mut random);
            match check(&history, kind) {
                Verdict::Consistent => {}
                Verdict::Inconsistent(wrong, states) => panic!(
                    "round {rounds} of AZEKURA_CONSISTENCY_SEED={seed}: no order explains\n{}\
                     possible before it: {states:#?}",
                    report(&history, wrong)
                ),
                Verdict::Undecided => undecided += 1,
            }
            rounds += 1;
            operations += history.len();
        }
        assert!(
            undecided * 10 <= rounds,
            "{undecided} of {rounds} histories are too wide to judge"
        );
        shared::times_of_directories(&mounts);
        shared::append_and_count(&mounts, THREADS);
        for mount in mounts {
            scene.umount(&mount);
        }
        println!("consistency: {rounds} rounds, {operations} operations, {undecided} undecided");
    }
}
