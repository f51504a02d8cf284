//! A file that is striped over all stores, written and read from end to end.

use crate::processors::Ticks;
use crate::report::{Pair, Report};
use crate::site::Site;
use crate::{Cli, data, devices};
use anyhow::Result;
use std::fs;
use std::time::{Duration, Instant};

/// Until what was removed is free again.
const SETTLING: Duration = Duration::from_secs(2);

/// Runs `work` and says at which rate, and how busy the processors were.
fn timed(bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<(f64, f64, f64)> {
    let (begin, before) = (Instant::now(), Ticks::now()?);
    work()?;
    let rate = bytes as f64 / begin.elapsed().as_secs_f64();
    let (busy, stolen) = Ticks::now()?.since(before);
    Ok((rate, busy, stolen))
}

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    // Room for what is written while what was removed is not free yet.
    let site = Site::new(cli, 3 * cli.size)?;
    let beside = site.path("fio");
    fs::create_dir(&beside)?;
    let fio = |direction: &str| devices::run(&beside, direction, cli.stores, cli.size);
    // Lays the files out, so that later runs write over them.
    fio("write")?;
    for round in 0..cli.rounds as u64 {
        let name = format!("file-{round}");
        let mount = site.mount("mount", None, false)?;
        let path = mount.point.join(&name);
        let of_fio = fio("write")?;
        let ours = timed(cli.size, || data::write(&path, round, cli.size))?;
        report.writes.push(Pair::new(ours, of_fio));
        mount.end()?;
        data::drop_caches()?;
        // A new mount has nothing in memory.
        let mount = site.mount("mount", None, false)?;
        let ours = timed(cli.size, || data::read(&path, round, cli.size))?;
        let of_fio = fio("read")?;
        report.reads.push(Pair::new(ours, of_fio));
        fs::remove_file(&path)?;
        mount.end()?;
        std::thread::sleep(SETTLING);
    }
    Ok(())
}
