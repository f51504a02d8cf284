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
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--fill")
        .arg(&place.path)
        .args(["--objects", &cli.objects.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().context("it was asked for")?;
    let mut replay_bytes = 0;
    for line in BufReader::new(output).lines() {
        // Killed when much of the log would be replayed.
        replay_bytes = line?.parse()?;
        if replay_bytes > 0 {
            child.kill()?;
        }
    }
    child.wait()?;
    let mut times = Vec::new();
    for _ in 0..cli.repeat {
        let device = place::device(&place.path)?;
        let begin = Instant::now();
        let store = Store::open(device, store::Options::default(), place::clock())?;
        times.push(begin.elapsed().as_secs_f64());
        ensure!(
            store.info(id(cli.objects - 1))?.size_bytes == BYTES as u64,
            "an object is lost"
        );
        // Not stopped: that would make a checkpoint, and the next opening would have no log.
        drop(store);
    }
    report.time(
        &format!("opening after a kill, {} objects", cli.objects),
        &times,
        1.0,
    );
    report.note(format!(
        "opening: {} MiB of log replayed",
        replay_bytes >> 20
    ));
    Ok(())
}

/// Makes the objects, then overwrites some for ever, and says how much of the log is to be
/// replayed whenever that is close to the most there can be.
pub(crate) fn fill(path: &Path, objects: u64) -> Result<()> {
    let store = place::open(path)?;
    let data = noise(BYTES, 1);
    let mut most = 0;
    for number in 0.. {
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
            most = if number < objects {
                replay_bytes.max(most)
            } else {
                most
            };
            if number > objects && replay_bytes >= most / 10 * 9 {
                writeln!(std::io::stdout(), "{replay_bytes}")?;
            }
        }
    }
    Ok(())
}
