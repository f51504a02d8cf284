//! 4 KiB at random places of a large object, so many to a commit; fio with as many to a flush.

use crate::Cli;
use crate::fio;
use crate::place::{MIB, Place, id, noise};
use crate::report::{Report, median};
use anyhow::Result;
use figures::spread;
use std::time::Instant;
use store::{Store, Terms};

const OBJECT_BYTES: u64 = 1 << 30;
const BYTES: u64 = 4096;
/// Overwrites of one turn.
const WRITES: u64 = 16_384;
/// Overwrites to a commit, and to a flush of fio's.
const RHYTHM: u64 = 32;

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let place = Place::new(&cli.directory, 4 << 30, cli.unit)?;
    let depth = format!("--iodepth={RHYTHM}");
    let flush = format!("--fdatasync={RHYTHM}");
    let bytes = format!("--io_size={}", WRITES * BYTES);
    let (mut ours, mut theirs, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    let mut amplification = Vec::new();
    for turn in 0..cli.repeat as u64 {
        let more = [&depth[..], &flush, &bytes];
        theirs.push(fio::run(&place, "randwrite", BYTES, OBJECT_BYTES, &more)?.per_second);
        let store = place.fresh()?;
        store.create(id(0), Terms::Default)?;
        for at in (0..OBJECT_BYTES).step_by(4 << 20) {
            store.write_buffer(id(0), at, &noise(4 * MIB as usize, at))?;
        }
        store.checkpoint()?;
        firsts.push(overwrite(&store, turn)?);
        // Most groups have a checksum for each piece by now.
        for part in 2..5 {
            overwrite(&store, turn + 100 * part)?;
        }
        let before = store.status().written_bytes;
        ours.push(overwrite(&store, turn + 1000)?);
        store.checkpoint()?;
        let written = store.status().written_bytes - before;
        amplification.push(written as f64 / (WRITES * BYTES) as f64);
        store.stop()?;
    }
    let goal = Some((0.5, "at least 50 % of fio"));
    report.ratio(
        "4 KiB random overwrite, 32 to a commit",
        ("writes/s", &ours),
        ("fio, 32 to an fdatasync", &theirs),
        goal,
    );
    report.ratio(
        "the same, first overwrites of large writes",
        ("writes/s", &firsts),
        ("fio, 32 to an fdatasync", &theirs),
        None,
    );
    report.note(format!(
        "overwrite: {:.2} bytes written to the device for one of data, checkpoints included",
        median(&amplification)
    ));
    Ok(())
}

fn overwrite(store: &Store, seed: u64) -> Result<f64> {
    let data = noise(BYTES as usize, seed);
    let begin = Instant::now();
    for number in 0..WRITES {
        let piece = spread(seed << 32 | number) % (OBJECT_BYTES / BYTES);
        store.write(id(0), piece * BYTES, &data)?;
        if (number + 1) % RHYTHM == 0 {
            store.commit()?;
        }
    }
    Ok(WRITES as f64 / begin.elapsed().as_secs_f64())
}
