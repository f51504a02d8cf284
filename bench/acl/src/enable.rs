//! Turning rich ACLs on under users: a server and a mount of the program itself, a tree of few
//! files or of many, and requests that go on meanwhile.
//!
//! The users are two threads on the mount: one looks at files all over the tree, which are in no
//! cache, one makes files, writes and removes them. What counts is the longest of all their
//! requests from a second before the command until a second after it, in all rounds, beside the
//! longest of as long a time without it. A request that fails ends the measurement.

use crate::Cli;
use crate::place::{Image, Kind, check, permissions};
use crate::report::{Goal, Report};
use anyhow::{Context, Result, bail, ensure};
use figures::Random;
use serde::Serialize;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PER_DIRECTORY: u64 = 1_000;
/// Room of a file system; what is not used takes none.
const ROOM_BYTES: u64 = 16 << 30;
const SETTLED: Duration = Duration::from_secs(1);
const TIME_MAX: Duration = Duration::from_secs(60);
const ENABLE_GOAL_SECONDS: f64 = 1.0;
const REQUEST_GOAL_MILLIS: f64 = 100.0;

#[derive(Debug, Serialize)]
struct Enabled {
    file_system: Kind,
    files: u64,
    made_seconds: f64,
    enable_seconds: Vec<f64>,
    longest_millis: Vec<f64>,
    quiet_longest_millis: Vec<f64>,
    requests: usize,
}

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let kind = *cli.file_systems.first().context("no file system")?;
    let mut all = Vec::new();
    for files in &cli.enabled {
        let enabled = Enabled::measure(cli, kind, *files)?;
        let what = format!("`acl enable` with {files} files, {kind}, the command as a whole");
        let times = &enabled.enable_seconds;
        let text = format!("**{:.3} s**", crate::report::median(times));
        let goal = Goal::at_most(ENABLE_GOAL_SECONDS, "at most 1 s");
        report.row(&what, times, goal, text);
        let what = format!("the longest request meanwhile, {files} files");
        let [longest, quiet] = [&enabled.longest_millis, &enabled.quiet_longest_millis];
        let median = crate::report::median;
        let text = format!(
            "**{:.1} ms** of all rounds, {:.1} ms of the middle one; of as long a time without \
             it: {:.1} ms and {:.1} ms",
            worst(longest),
            median(longest),
            worst(quiet),
            median(quiet)
        );
        let goal = Goal::at_most(REQUEST_GOAL_MILLIS, "at most 100 ms");
        report.row(&what, &[worst(longest)], goal, text);
        report.note(format!(
            "enable: making {files} files took {:.0} s; {} requests in all",
            enabled.made_seconds, enabled.requests
        ));
        all.push(enabled);
    }
    if let [few, .., many] = &all[..] {
        let [fewer, more] = [few, many].map(|one| crate::report::median(&one.enable_seconds));
        report.note(format!(
            "enable: {fewer:.3} s with {} files and {more:.3} s with {}: no file is touched, so \
             10,000,000 are not made for this; by these two they would take {:.3} s",
            few.files,
            many.files,
            extrapolated((few.files, fewer), (many.files, more), 10_000_000)
        ));
    }
    report.section("enable", &all)
}

/// The longest of some times.
fn worst(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::NAN, f64::max)
}

/// Seconds for so many files, on the line through two measurements, and never less than with
/// fewer.
fn extrapolated(few: (u64, f64), many: (u64, f64), files: u64) -> f64 {
    let slope = (many.1 - few.1) / many.0.saturating_sub(few.0).max(1) as f64;
    many.1 + slope.max(0.0) * files.saturating_sub(many.0) as f64
}

impl Enabled {
    fn measure(cli: &Cli, kind: Kind, files: u64) -> Result<Self> {
        eprintln!("enable: making {files} files");
        let image = Image::new(&cli.directory, kind, ROOM_BYTES, files)?;
        let mounted = image.mount()?;
        let begin = Instant::now();
        make(mounted.path(), files)?;
        mounted.sync()?;
        let mut enabled = Self {
            file_system: kind,
            files,
            made_seconds: begin.elapsed().as_secs_f64(),
            enable_seconds: Vec::new(),
            longest_millis: Vec::new(),
            quiet_longest_millis: Vec::new(),
            requests: 0,
        };
        let site = Site::new(cli, mounted.path())?;
        let mount = site.mount()?;
        for _ in 0..cli.repeat {
            let (longest, requests) = users(&mount, files, || {
                thread::sleep(SETTLED);
                Ok(())
            })?;
            enabled.quiet_longest_millis.push(longest);
            enabled.requests += requests;
            let mut seconds = 0.0;
            let (longest, requests) = users(&mount, files, || {
                let begin = Instant::now();
                site.run(&["acl", "enable", &site.volume()])?;
                seconds = begin.elapsed().as_secs_f64();
                Ok(())
            })?;
            enabled.longest_millis.push(longest);
            enabled.enable_seconds.push(seconds);
            enabled.requests += requests;
            site.run(&["acl", "disable", &site.volume()])?;
        }
        site.run(&["umount", &mount.to_string_lossy()])?;
        drop(site);
        Ok(enabled)
    }
}

fn path_of(top: &Path, number: u64) -> PathBuf {
    let directory = top.join(format!("d{:05}", number / PER_DIRECTORY));
    directory.join(format!("f{number:08}"))
}

fn make(top: &Path, files: u64) -> Result<()> {
    for number in 0..files {
        let path = path_of(top, number);
        if number.is_multiple_of(PER_DIRECTORY) {
            fs::create_dir(path.parent().context("it has one")?)?;
        }
        File::create_new(path)?;
    }
    let own = top.join("own");
    fs::create_dir(&own)?;
    Ok(fs::set_permissions(own, permissions(0o777))?)
}

/// Two users go on before, during and after `work`; their longest request in milliseconds, and how
/// many there were.
fn users(mount: &Path, files: u64, work: impl FnOnce() -> Result<()>) -> Result<(f64, usize)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let repeat = |request: &dyn Fn(u64) -> Result<()>| -> Result<(f64, usize)> {
            let (mut longest, mut count) = (0.0_f64, 0);
            while !is_over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                request(count as u64)?;
                longest = longest.max(begin.elapsed().as_secs_f64() * 1e3);
                count += 1;
            }
            Ok((longest, count))
        };
        let reader = scope.spawn(move || {
            repeat(&|number| {
                let which = Random::new(number).below(files);
                fs::metadata(path_of(mount, which)).context("looking at a file")?;
                fs::read(path_of(mount, which)).context("reading a file")?;
                Ok(())
            })
        });
        let writer = scope.spawn(move || {
            repeat(&|number| {
                let path = mount.join(format!("own/{number}"));
                fs::write(&path, "some words").context("writing a file")?;
                fs::remove_file(path).context("removing a file")
            })
        });
        thread::sleep(SETTLED);
        let worked = work();
        thread::sleep(SETTLED);
        is_over.store(true, Ordering::Relaxed);
        let both = [reader, writer].map(|user| user.join().expect("a thread does not panic"));
        worked?;
        let [reader, writer] = both;
        let ((one, reads), (other, writes)) = (reader?, writer?);
        ensure!(reads > 0 && writes > 0, "nobody was at work");
        Ok((one.max(other), reads + writes))
    })
}

/// A server of the program; it ends with this.
struct Site {
    server: Child,
    address: String,
    program: PathBuf,
    directory: TempDir,
}

impl Site {
    fn new(cli: &Cli, export: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("azekura-bench-")
            .tempdir_in(&cli.directory)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let log = File::create(directory.path().join("server.log"))?;
        let program = cli.azekura.canonicalize();
        let program = program.with_context(|| format!("{}: build it", cli.azekura.display()))?;
        let mut command = Command::new(&program);
        command.env("AZEKURA_CONFIG_DIR", directory.path().join("config"));
        command.args(["server", "--init", "--store-size", "0"]);
        command.args(["--listen", &address, "--data"]);
        command.arg(directory.path().join("server"));
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let server = command.spawn().context("starting a server")?;
        let mut site = Self {
            server,
            address,
            program,
            directory,
        };
        site.wait()?;
        let export = export.to_string_lossy();
        site.run(&["volume", "create", &site.volume(), "--export", &export])?;
        Ok(site)
    }

    fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + TIME_MAX;
        while TcpStream::connect(&self.address).is_err() {
            if let Some(status) = self.server.try_wait()? {
                let log = fs::read_to_string(self.directory.path().join("server.log"))?;
                bail!("the server has ended with {status}: {log}");
            }
            ensure!(Instant::now() < end, "the server does not begin");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn volume(&self) -> String {
        format!("{}/office", self.address)
    }

    fn mount(&self) -> Result<PathBuf> {
        let point = self.directory.path().join("mount");
        fs::create_dir(&point)?;
        self.run(&["mount", &self.volume(), &point.to_string_lossy()])?;
        Ok(point)
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.env("AZEKURA_CONFIG_DIR", self.directory.path().join("config"));
        check(command.args(arguments))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It may have ended by itself; what is mounted ends with the namespace.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::{extrapolated, worst};

    #[test]
    fn one_long_request_counts_whatever_the_others_took() {
        assert_eq!(worst(&[1.0, 400.0, 2.0]), 400.0);
        assert!(worst(&[]).is_nan());
    }

    #[test]
    fn equal_times_stay_equal_and_growing_ones_grow() {
        let same = extrapolated((1_000, 0.5), (1_000_000, 0.5), 10_000_000);
        assert!((same - 0.5).abs() < 1e-9, "{same}");
        let less = extrapolated((1_000, 0.6), (1_000_000, 0.5), 10_000_000);
        assert!((less - 0.5).abs() < 1e-9, "{less}");
        let more = extrapolated((0, 0.0), (1_000_000, 1.0), 10_000_000);
        assert!((more - 10.0).abs() < 1e-9, "{more}");
    }
}
