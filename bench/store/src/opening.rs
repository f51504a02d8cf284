//! Opening a store whose process was killed in the middle of its work.

use crate::Cli;
use crate::place::{self, Place, id, noise};
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use store::{Store, Terms};

const BYTES: usize = 4096;
/// Objects to a commit while the store is filled.
const TOGETHER: u64 = 256;

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let data_bytes = cli.objects * BYTES as u64;
    let place = Place::new(&cli.directory, data_bytes * 3 / 2 + (2 << 30), cli.unit)?;
    place.fresh()?.stop()?;
    let (mut times, mut replayed) = (Vec::new(), Vec::new());
    for _ in 0..cli.repeat {
        // Opened once, a store makes a checkpoint: the next time there would be nothing to replay.
        replayed.push(fill_and_kill(cli, &place.path)? >> 20);
        let device = place::device(&place.path)?;
        let begin = Instant::now();
        let store = Store::open(device, store::Options::default(), place::clock())?;
        times.push(begin.elapsed().as_secs_f64());
        ensure!(
            store.info(id(cli.objects - 1))?.size_bytes == BYTES as u64,
            "an object is lost"
        );
        store.stop()?;
    }
    report.time(
        &format!("opening after a kill, {} objects", cli.objects),
        &times,
        1.0,
    );
    report.note(format!("opening: {replayed:?} MiB of log replayed"));
    Ok(())
}

/// Lets a process of its own work on the store, and kills it when much of the log would be
/// replayed; how much.
fn fill_and_kill(cli: &Cli, path: &Path) -> Result<u64> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--fill")
        .arg(path)
        .args(["--objects", &cli.objects.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().context("it was asked for")?;
    let mut replay_bytes = 0;
    for line in BufReader::new(output).lines() {
        replay_bytes = line?.parse()?;
        child.kill()?;
    }
    child.wait()?;
    ensure!(replay_bytes > 0, "the process ended before it was killed");
    Ok(replay_bytes)
}

/// Makes the objects that are not there yet, then overwrites some for ever, and says how much of
/// the log is to be replayed when that is close to the most there can be.
pub(crate) fn fill(path: &Path, objects: u64) -> Result<()> {
    let store = place::open(path)?;
    let data = noise(BYTES, 1);
    let is_there = store.info(id(objects - 1)).is_ok();
    let first = if is_there { objects } else { 0 };
    // The most that is seen before it becomes less: there was a checkpoint.
    let (mut most, mut before) = (0, 0);
    for number in first.. {
        let object = id(number % objects);
        store.transact(|t| {
            if number < objects {
                t.create(object, Terms::Default)?;
            }
            t.write(object, 0, &data)
        })?;
        if number % TOGETHER == 0 {
            store.commit()?;
            let replay_bytes = store.status().replay_bytes;
            if replay_bytes < before {
                most = before.max(most);
            }
            before = replay_bytes;
            if number > objects && most > 0 && replay_bytes >= most / 10 * 9 {
                writeln!(std::io::stdout(), "{replay_bytes}")?;
            }
        }
    }
    Ok(())
}
