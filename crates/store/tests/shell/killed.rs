//! A process that is killed at any moment: whatever it said to be durable is there.

use crate::file;
use crate::work::{self, Worker};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use store::{Core, Options, Store};

const THREADS: u8 = 4;
const ROUNDS: u64 = 6;
/// Where the killed process finds its store.
const PATH: &str = "AZEKURA_STORE_KILLED";

/// Works and says so, line by line: until it is killed, or a few versions on a store of its own if
/// nobody named one.
#[test]
fn a_process_works_until_it_is_killed() {
    if let Some(path) = std::env::var_os(PATH) {
        return run(&file::open(&PathBuf::from(path)), u64::MAX);
    }
    let versions = 20;
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("store");
    run(&begun(&own), versions);
    let core = Core::open(file::device(&own), work::options()).unwrap();
    for thread in 0..THREADS {
        Worker::judge(thread, &core, versions, versions).unwrap();
    }
}

/// So many versions; says so if that is for ever.
fn run(store: &Store, versions: u64) {
    let output = Mutex::new(std::io::stdout());
    let say = |line: String| {
        if versions == u64::MAX {
            output.lock().unwrap().write_all(line.as_bytes()).unwrap();
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let say = &say;
            scope.spawn(move || {
                let mut worker = Worker::resume(thread, store).unwrap();
                for _ in 0..versions {
                    say(format!("\nbegin {thread} {}\n", worker.version + 1));
                    worker.step(store).unwrap();
                    say(format!("\ndone {thread} {}\n", worker.version));
                    say(format!("\nknown {thread} {}\n", store.durable_sequence()));
                }
            });
        }
    });
}

fn begun(path: &Path) -> Store {
    file::create(path, 48 << 20);
    let store = file::open(path);
    for thread in 0..THREADS {
        Worker::begin(thread, &store).unwrap();
    }
    store
}

#[test]
fn what_a_killed_process_said_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    drop(begun(&path));
    let mut said: BTreeMap<u8, (u64, u64)> = (0..THREADS).map(|t| (t, (0, 0))).collect();
    let (mut acknowledgements, mut least_sequence) = (0, 0);
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "killed::a_process_works_until_it_is_killed",
                "--nocapture",
            ])
            .env(PATH, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut end = None;
        while let Some(Ok(line)) = lines.next() {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, thread, version] = words[..] else {
                continue;
            };
            let (Ok(thread), Ok(version)) = (thread.parse(), version.parse()) else {
                continue;
            };
            let (done, begun) = said.entry(thread).or_default();
            match kind {
                "begin" => *begun = version,
                "done" => {
                    *done = version;
                    acknowledgements += 1;
                    let life = Duration::from_millis(60 + 70 * round);
                    end.get_or_insert_with(|| Instant::now() + life);
                }
                "known" => least_sequence = version.max(least_sequence),
                _ => {}
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                // What is in the pipe is still read; a second kill does no harm.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let options = Options {
            least_sequence,
            ..work::options()
        };
        let core = Core::open(file::device(&path), options).unwrap();
        work::check(&core).unwrap();
        for (thread, (done, begun)) in &mut said {
            // The line that says which was begun is lost with the process, its work may not be.
            if let Err(wrong) = Worker::judge(*thread, &core, *done, *begun + 1) {
                panic!("round {round}: {wrong}");
            }
        }
    }
    println!("{acknowledgements} acknowledgements");
    assert!(acknowledgements > 100, "only {acknowledgements}");
    assert!(least_sequence > 20, "only {least_sequence}");
}
