//! An embedded engine whose process is killed at any moment: what it answered is there, whole.

use crate::entries::{Shared, read};
use meta::{Condition, Embedded, Transaction};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const WRITERS: usize = 4;
const ROUNDS: u64 = 8;
/// Where the killed process finds its engine.
const PATH: &str = "AZEKURA_META_KILLED";

/// Three entries of a writer that always say the same.
fn keys(writer: usize) -> [String; 3] {
    ["a", "b", "c"].map(|part| format!("{part}{writer}"))
}

/// The last version of a writer, the same in all its entries; 0 before the first.
pub(crate) async fn version(engine: &Shared, writer: usize) -> u64 {
    let mut versions = Vec::new();
    for key in keys(writer) {
        let found = read(engine, key.as_bytes()).await;
        let text = found.map_or_else(
            || "0".to_owned(),
            |(value, _)| {
                let text = String::from_utf8(value).unwrap();
                text.split(' ').next().unwrap().to_owned()
            },
        );
        versions.push(text.parse::<u64>().unwrap());
    }
    assert!(
        versions.iter().all(|version| *version == versions[0]),
        "{versions:?} is half"
    );
    versions[0]
}

/// Writes the next version, if the one before is still there.
pub(crate) async fn write(
    engine: &Shared,
    writer: usize,
    version: u64,
) -> Result<meta::Committed, meta::MetaError> {
    let value = format!("{version} {}", "x".repeat(500));
    let mut writing = Transaction::new();
    for key in keys(writer) {
        writing = writing.put(key, value.clone());
    }
    let marker = |version: u64| format!("m{writer}-{version}");
    writing = writing.when(Condition::Absent(marker(version).into()));
    if version > 1 {
        writing = writing.when(Condition::Present(marker(version - 1).into()));
        writing = writing.delete(marker(version - 1));
    }
    engine.commit(writing.put(marker(version), b"")).await
}

async fn work(path: &Path, versions: Option<u64>) {
    let engine: Shared = Embedded::open(path).await.unwrap();
    let writers = (0..WRITERS).map(|writer| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            let begin = version(&engine, writer).await;
            let end = versions.map_or(u64::MAX, |versions| begin + versions);
            for version in begin + 1..=end {
                say(versions, &format!("\nbegin {writer} {version}\n"));
                write(&engine, writer, version).await.unwrap();
                say(versions, &format!("\ndone {writer} {version}\n"));
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

fn say(versions: Option<u64>, line: &str) {
    if versions.is_none() {
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

/// Works and says so until it is killed, or for a while on an engine of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_works_until_it_is_killed() {
    match std::env::var_os(PATH) {
        Some(path) => work(&PathBuf::from(path), None).await,
        None => {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("meta");
            work(&path, Some(20)).await;
            work(&path, Some(20)).await;
            let engine: Shared = Embedded::open(&path).await.unwrap();
            assert_eq!(version(&engine, 0).await, 40);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_answered_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let mut said = [(0, 0); WRITERS];
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        acknowledged += run_and_kill(&path, round, &mut said);
        let engine: Shared = Embedded::open(&path).await.unwrap();
        for (writer, (done, begun)) in said.iter_mut().enumerate() {
            let found = version(&engine, writer).await;
            // The line that says which was begun is lost with the process, its work may not be.
            let possible = *done..=*begun + 1;
            assert!(
                possible.contains(&found),
                "{found} in round {round}, {possible:?}"
            );
            (*done, *begun) = (found, found);
        }
    }
    println!("{acknowledged} acknowledgements in {ROUNDS} rounds");
    assert!(acknowledged > 100, "only {acknowledged}");
}

/// How often it said that something was done.
fn run_and_kill(path: &Path, round: u64, said: &mut [(u64, u64); WRITERS]) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killed::a_process_works_until_it_is_killed",
            "--nocapture",
        ])
        .env(PATH, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut end, mut acknowledged) = (None, 0);
    while let Some(Ok(line)) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, writer, version] = words[..] else {
            continue;
        };
        let (Ok(writer), Ok(version)) = (writer.parse::<usize>(), version.parse()) else {
            continue;
        };
        match kind {
            "begin" => said[writer].1 = version,
            "done" => {
                said[writer].0 = version;
                acknowledged += 1;
                let life = Duration::from_millis(40 + 60 * round);
                end.get_or_insert_with(|| Instant::now() + life);
            }
            _ => {}
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            // What is in the pipe is still read; a second kill does no harm.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    acknowledged
}
