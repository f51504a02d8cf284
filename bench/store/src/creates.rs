//! Small objects, each durable before its thread goes on; files with fsync on ext4 beside them.

use crate::Cli;
use crate::place::{Place, id, noise};
use crate::report::{Report, median};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use store::{Store, Terms};

const THREADS: usize = 32;
const BYTES: usize = 4096;
/// Objects of one turn.
const OBJECTS: u64 = 40_000;
/// Files of one turn.
const FILES: u64 = 8_000;

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let place = Place::new(&cli.directory, 6 << 30, cli.unit)?;
    let files = cli
        .directory
        .join(format!("azekura-bench-files-{}", std::process::id()));
    let store = place.fresh()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..cli.repeat as u64 {
        theirs.push(ext4(&files)?);
        ours.push(objects(&store, turn * OBJECTS)?);
    }
    let status = store.status();
    let made = OBJECTS * cli.repeat as u64;
    report.rate(
        "4 KiB objects made durable by 32 threads",
        ("objects/s", &ours),
        ("ext4, create + fsync", &theirs),
        Some((20_000.0, "at least 20,000/s")),
    );
    report.note(format!(
        "creates: {made} objects with random identities in one store, first turn {:.0}/s, \
         last {:.0}/s; \
         {:.1} objects an entry, {} checkpoints, {:.2} bytes written for one of data",
        ours[0],
        ours[ours.len() - 1],
        made as f64 / status.commits.max(1) as f64,
        status.checkpoints,
        status.written_bytes as f64 / (made * BYTES as u64) as f64
    ));
    eprintln!(
        "creates: {:.0}/s, ext4 {:.0}/s",
        median(&ours),
        median(&theirs)
    );
    store.stop()?;
    Ok(())
}

/// Lets the threads do `each` for `count` numbers; how many a second.
fn together(count: u64, each: impl Fn(u64) -> Result<()> + Sync) -> Result<f64> {
    let next = AtomicU64::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                each(number)?;
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread does not panic"))
    })?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

fn objects(store: &Store, first: u64) -> Result<f64> {
    let data = noise(BYTES, first);
    together(OBJECTS, |number| {
        let object = id(first + number);
        store.transact(|t| {
            t.create(object, Terms::Default)?;
            t.write(object, 0, &data)
        })?;
        Ok(store.commit()?)
    })
}

fn ext4(directory: &Path) -> Result<f64> {
    fs::create_dir(directory).context("making the directory for files")?;
    let data = noise(BYTES, 1);
    let rate = together(FILES, |number| {
        let mut file = File::create_new(directory.join(format!("{number:08}")))?;
        file.write_all(&data)?;
        Ok(file.sync_all()?)
    });
    fs::remove_dir_all(directory)?;
    rate
}
