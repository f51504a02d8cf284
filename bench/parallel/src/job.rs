//! A parallel job: workers that compute, and meanwhile read what the next step needs and write what
//! the last one made; a step is over when all of them are done with both.
//!
//! So it is with programs that put their I/O beside the computation. Alone, such a job takes as
//! long as its computation. Beside others it takes longer as soon as a step's I/O does.
//!
//! Computation is sleep here: the processors are the server's, the job's stand elsewhere.
//!
//! Source: the experiment of Tanimura, Filgueira, Kojima and Atkinson (SC12): run time grows 3 to
//! 12 % on PVFS2 and 6 to 40 % on Lustre.

use crate::others::{self, Others};
use crate::report::{Report, Run};
use crate::site::Site;
use crate::{Cli, data};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A step's I/O takes this share of its computation at the rate that is reserved.
const FILLED: f64 = 0.8;
/// Others are at work before the job begins.
const LEAD: Duration = Duration::from_secs(2);

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let each = bytes_each(cli);
    let input = each * cli.steps * cli.workers as u64;
    // Input, output twice over, and the files of others, written anew again and again.
    let room = 4 * input + 6 * cli.users as u64 * others::FILE_BYTES + (1 << 30);
    let site = Site::new(cli, room)?;
    let ticket = reserve(cli, &site)?;
    let mount = site.mount("setup", None, false)?;
    others::prepare(&mount.point, cli.users)?;
    for worker in 0..cli.workers {
        let path = mount.point.join(format!("input-{worker}"));
        data::write(&path, worker as u64, each * cli.steps)?;
    }
    mount.end()?;
    for _ in 0..cli.rounds {
        for is_reserved in [true, false] {
            for is_beside in [false, true] {
                let ticket = is_reserved.then_some(ticket.as_path());
                let steps = run(cli, &site, ticket, is_beside)?;
                report.runs.push(Run {
                    is_reserved,
                    is_beside,
                    seconds: steps.iter().sum(),
                    steps,
                });
            }
        }
    }
    Ok(())
}

/// What a worker reads in a step, and as much as it writes: whole calls.
fn bytes_each(cli: &Cli) -> u64 {
    let of_all = cli.rate as f64 * cli.compute().as_secs_f64() * FILLED;
    let calls = of_all as u64 / cli.workers as u64 / data::CALL_BYTES;
    calls.max(1) * data::CALL_BYTES
}

/// Makes the reservation; the file with its tickets.
fn reserve(cli: &Cli, site: &Site) -> Result<PathBuf> {
    let rate = format!("{}B/s", cli.rate);
    let words = ["reserve", "create", &site.volume(), "--name", "job"];
    let terms = ["--read", &rate, "--write", &rate, "--for", "2h", "--json"];
    let answer = site.run(&[&words[..], &terms[..]].concat())?;
    let path = site.path("job.json");
    fs::write(&path, answer)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&path, mode)?;
    Ok(path)
}

/// One run of the job; seconds of each step.
fn run(cli: &Cli, site: &Site, ticket: Option<&Path>, is_beside: bool) -> Result<Vec<f64>> {
    let beside = match is_beside {
        true => {
            let mount = site.mount("others", None, true)?;
            let others = Others::start(&mount.point, cli.users)?;
            Some((mount, others))
        }
        false => None,
    };
    data::drop_caches()?;
    let mount = site.mount("job", ticket, false)?;
    thread::sleep(LEAD);
    let steps = steps(cli, &mount.point)?;
    for worker in 0..cli.workers {
        fs::remove_file(mount.point.join(format!("output-{worker}")))?;
    }
    mount.end()?;
    if let Some((mount, others)) = beside {
        others.end()?;
        mount.end()?;
    }
    Ok(steps)
}

fn steps(cli: &Cli, point: &Path) -> Result<Vec<f64>> {
    let each = bytes_each(cli);
    let together = Barrier::new(cli.workers);
    let steps = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cli.workers as u64)
            .map(|worker| {
                let (together, steps) = (&together, &steps);
                scope.spawn(move || work(cli, point, (together, steps), worker, each))
            })
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(done) => done?,
                Err(_) => bail!("a worker panicked"),
            }
        }
        Ok(())
    })?;
    Ok(steps.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn work(
    cli: &Cli,
    point: &Path,
    (together, steps): (&Barrier, &Mutex<Vec<f64>>),
    worker: u64,
    each: u64,
) -> Result<()> {
    let files = || {
        let input = File::open(point.join(format!("input-{worker}")))?;
        let output = File::create_new(point.join(format!("output-{worker}")))?;
        anyhow::Ok((input, output))
    };
    let files = files().context("opening its files");
    let mut outcome = Ok(());
    for step in 0..cli.steps {
        let begin = Instant::now();
        // Who fails goes on with the others, so that none of them waits for ever.
        if let (Ok((input, output)), true) = (&files, outcome.is_ok()) {
            let from = step * each;
            outcome = thread::scope(|scope| {
                let reading = scope.spawn(|| data::read_part(input, worker, from, each));
                let written = data::write_part(output, worker, from, each);
                match reading.join() {
                    Ok(read) => read.and(written),
                    Err(_) => bail!("a reader panicked"),
                }
            });
        }
        thread::sleep(cli.compute().saturating_sub(begin.elapsed()));
        if together.wait().is_leader() {
            let mut steps = steps.lock().unwrap_or_else(PoisonError::into_inner);
            steps.push(begin.elapsed().as_secs_f64());
        }
    }
    files?;
    outcome
}
