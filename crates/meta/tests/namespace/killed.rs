//! A process that is killed in the middle: what it answered is there, and everything agrees.

use crate::history::Random;
use crate::world::{World, name, root};
use base::{FileKind, FsError, RequestId, SessionId};
use meta::namespace::{Identity, RenameMode, Turn};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const WORKERS: usize = 3;
const ROUNDS: u64 = 5;
/// Changes that one request makes.
const STEPS: usize = 8;
/// Where the killed process finds its engine, and which round it is.
const PATH: &str = "AZEKURA_NAMESPACE_KILLED";

/// What a worker does as its change of this number, in a directory of its own: known to both
/// processes, so that it need not be told.
fn change(worker: usize, number: u64) -> (usize, String, String) {
    let mut random = Random::new(number * 31 + worker as u64 + 1);
    let file = |random: &mut Random| format!("f{}", random.below(12));
    (random.below(5), file(&mut random), file(&mut random))
}

/// What names there are after so many changes; each says which change made its file. A request ends
/// with its first change that fails.
fn expected(worker: usize, changes: u64) -> BTreeMap<String, u64> {
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let mut has_failed = false;
    for number in 0..changes {
        has_failed &= !number.is_multiple_of(STEPS as u64);
        if has_failed {
            continue;
        }
        let (kind, one, other) = change(worker, number);
        let (made, there) = (names.get(&one).copied(), names.get(&other).copied());
        has_failed = match (kind, made, there) {
            (0..=1, made, _) => made.is_some(),
            (_, None, _) | (4, Some(_), Some(_)) => true,
            _ => false,
        };
        match (kind, made) {
            _ if has_failed => {}
            (0..=1, _) => drop(names.insert(one, number)),
            (2, _) => drop(names.remove(&one)),
            // Two names of one file stay two.
            (3, Some(_)) if there == made => {}
            (3, Some(made)) => {
                names.remove(&one);
                names.insert(other, made);
            }
            (_, Some(made)) => drop(names.insert(other, made)),
            (_, None) => {}
        }
    }
    names
}

/// All changes of a request, up to the first that fails. What an earlier copy of it has done does
/// not fail, though it may not be possible any more: a later change has removed what it made.
fn request(world: &World, turn: &Turn, worker: usize, request: u64) {
    let steps = STEPS as u64;
    for number in request * steps..(request + 1) * steps {
        let failed = carry_out(world, turn, worker, number).is_err();
        if failed && !world.namespace.is_done(turn).unwrap() {
            return;
        }
    }
}

fn carry_out(world: &World, turn: &Turn, worker: usize, number: u64) -> Result<(), FsError> {
    let (namespace, root) = (&world.namespace, root());
    turn.begin(Some(Identity {
        session: SessionId([worker as u8; 16]),
        request: RequestId(number / STEPS as u64),
        step: (number % STEPS as u64) as u8,
    }));
    let at = world
        .namespace
        .lookup(turn, &root, &world.top(), &name(&format!("w{worker}")))?;
    let at = &at.handle;
    let (kind, one, other) = change(worker, number);
    let (one, other) = (name(&one), name(&other));
    match kind {
        0..=1 => {
            let (kind, uid) = (FileKind::Fifo, u32::try_from(number).unwrap());
            let who = base::Principal::alone(uid, 0);
            let who = if uid == 0 { root } else { who };
            namespace
                .make_node(turn, &who, at, &one, kind, 0o600, 0, 0)
                .map(drop)
        }
        2 => namespace.unlink(turn, &root, at, &one).map(drop),
        3 => {
            let mode = RenameMode::Replace;
            namespace
                .rename(turn, &root, at, &one, at, &other, mode)
                .map(drop)
        }
        _ => {
            let file = namespace.lookup(turn, &root, at, &one)?;
            namespace
                .link(turn, &root, &file.handle, at, &other)
                .map(drop)
        }
    }
}

fn prepare(world: &World) {
    for worker in 0..WORKERS {
        let directory = format!("w{worker}");
        if world.find(&world.top(), &directory).is_err() {
            let made = world.directory(&world.top(), &directory);
            let change = base::AttributeChange {
                mode: Some(0o777),
                ..Default::default()
            };
            world
                .durably(|namespace, turn| {
                    namespace.set_attributes(turn, &root(), &made.handle, &change, None)
                })
                .unwrap();
        }
    }
}

/// Works and says so until it is killed, or for a few requests. `from` are the requests to begin
/// with: some of them may have been done.
fn work(world: &World, from: [u64; WORKERS], requests: Option<u64>) {
    std::thread::scope(|scope| {
        for (worker, from) in from.into_iter().enumerate() {
            scope.spawn(move || {
                let end = requests.map_or(u64::MAX, |requests| from + requests);
                for number in from..end {
                    let turn = Turn::new();
                    request(world, &turn, worker, number);
                    world.namespace.wait_here(&turn).unwrap();
                    if requests.is_none() {
                        let line = format!("\ndone {worker} {number}\n");
                        std::io::stdout().write_all(line.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn a_manager_works_until_it_is_killed() {
    match std::env::var(PATH) {
        Ok(what) => {
            let (path, from) = what.split_once('|').unwrap();
            let mut numbers = from.split(',').map(|number| number.parse().unwrap());
            let from = std::array::from_fn(|_| numbers.next().unwrap());
            let world = World::at(&PathBuf::from(path));
            prepare(&world);
            work(&world, from, None);
        }
        Err(_) => {
            let directory = tempfile::tempdir().unwrap();
            let world = World::at(&directory.path().join("meta"));
            prepare(&world);
            for number in 0..300 {
                // The second time there is nothing left to do.
                for _ in 0..2 {
                    work(&world, [number; WORKERS], Some(1));
                    for worker in 0..WORKERS {
                        compare(&world, worker, (number + 1) * STEPS as u64).unwrap();
                    }
                }
            }
            world.checked();
            world.close();
        }
    }
}

/// Whether a worker's directory is as after so many changes.
fn compare(world: &World, worker: usize, changes: u64) -> Result<(), String> {
    let at = world.find(&world.top(), &format!("w{worker}")).unwrap();
    let page = world.durably(|namespace, turn| {
        namespace.read_directory(turn, &root(), &at.handle, 0, 100, true)
    });
    let names = page.unwrap().entries.into_iter().map(|entry| {
        (
            entry.name.to_string(),
            u64::from(entry.node.unwrap().attributes.uid),
        )
    });
    let found: BTreeMap<_, _> = names.collect();
    let expected = expected(worker, changes);
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?} and not {expected:?}")),
    }
}

/// A killed process has answered some requests of each worker; one more may be done in part. It is
/// asked for again, and then everything is as if nobody had been killed.
#[test]
fn what_a_killed_manager_answered_is_there_and_what_is_asked_again_is_done_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let mut answered = [0; WORKERS];
    let mut sum = 0;
    for round in 0..ROUNDS {
        let before = answered;
        run_and_kill(&path, round, &mut answered);
        let world = World::at(&path);
        world.checked();
        for (worker, done) in answered.iter_mut().enumerate() {
            // Of the request that was not answered some changes may be there.
            let steps = STEPS as u64;
            let mut possible = *done * steps..=(*done + 1) * steps;
            let outcome = compare(&world, worker, *done * steps);
            let fits = possible.any(|changes| compare(&world, worker, changes).is_ok());
            assert!(
                fits,
                "round {round}, worker {worker}, request {done}: {outcome:?}"
            );
            // It is sent again.
            let turn = Turn::new();
            request(&world, &turn, worker, *done);
            world.namespace.wait_here(&turn).unwrap();
            *done += 1;
            compare(&world, worker, *done * steps).unwrap();
            sum += *done - before[worker];
        }
        world.checked();
        world.close();
    }
    println!("{sum} requests in {ROUNDS} rounds");
    assert!(sum > 100, "only {sum}");
}

/// Counts the answered requests of each worker.
fn run_and_kill(path: &Path, round: u64, answered: &mut [u64; WORKERS]) {
    let from = answered.map(|from| from.to_string()).join(",");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killed::a_manager_works_until_it_is_killed",
            "--nocapture",
        ])
        .env(PATH, format!("{}|{from}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut end = None;
    while let Some(Ok(line)) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["done", worker, request] = words[..] else {
            continue;
        };
        let (Ok(worker), Ok(request)) = (worker.parse::<usize>(), request.parse::<u64>()) else {
            continue;
        };
        answered[worker] = request + 1;
        let life = Duration::from_millis(60 + 70 * round);
        end.get_or_insert_with(|| Instant::now() + life);
        if end.is_some_and(|end| Instant::now() >= end) {
            // What is in the pipe is still read; a second kill does no harm.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
}
