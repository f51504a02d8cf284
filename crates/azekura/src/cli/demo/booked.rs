//! The second part of the demonstration: a stream that records at a steady rate beside greedy
//! writers, first without a reservation and then with one.
//!
//! All of it goes through mounts and counts when it is durable at the server. Nothing is asserted:
//! what a second brought is shown as it was.

use super::Stop;
use super::disk;
use super::scene::Scene;
use crate::errors::{Code, Context, Failure, Result};
use base::Rate;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The volume whose files lie in the server's store.
const VOLUME: &str = "booked";
/// Writers that take what they get.
const GREEDY: u64 = 48;
/// Each of these overwrites a file of this size, at once, and makes it durable.
const GREEDY_BYTES: usize = 2 << 20;
/// The stream begins anew in its file after so many bytes.
const STREAM_BYTES: u64 = 64 << 20;
/// Times a second at which the stream makes durable what it has.
const STEPS_PER_SECOND: u64 = 32;
/// Part of what the store promises that is reserved.
const PROMISED_PART: u64 = 3;
/// A stream with a reservation that gets less of it than this, in percent, did not get it.
const KEPT_PERCENT: u64 = 90;
/// Processors that are idle for less of the time than this, in percent, are what everything waits
/// for.
const IDLE_PERCENT: u64 = 10;
/// Cells of a bar.
const BAR: u64 = 20;

/// Bytes that became durable in one second.
#[derive(Clone, Copy)]
struct Second {
    stream: u64,
    others: u64,
}

/// What was measured.
pub(super) struct Booked {
    rate: u64,
    without: Vec<Second>,
    with: Vec<Second>,
    /// So much of the time of all processors was left in the half with a reservation, if known.
    idle_percent: Option<u64>,
}

/// What the threads share.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    stream: AtomicU64,
    others: AtomicU64,
}

/// Runs both halves, `seconds` each; what happens is told as it does.
pub(super) fn run(
    scene: &mut Scene,
    seconds: u64,
    stop: &Stop,
    say: &dyn Fn(std::fmt::Arguments<'_>),
) -> Result<Booked> {
    let volume = format!("{}/{VOLUME}", scene.address());
    scene.ask(&["volume", "create", &volume])?;
    let rate = rate(scene)?;
    let others = scene.mount_volume(VOLUME, "others", None)?;
    let near = scene.mount_volume(VOLUME, "stream", None)?;
    say(format_args!(
        "\na stream records {} beside {GREEDY} writers who take what they get, on a disk of {}",
        Rate(rate),
        Rate(disk::BYTES_PER_SECOND)
    ));
    let (without, with, idle_percent) =
        halves(scene, (&near, &others), (rate, seconds), stop, say)?;
    Ok(Booked {
        rate,
        without,
        with,
        idle_percent,
    })
}

fn crashed() -> Failure {
    Failure::new(Code::Local, "a thread of the demonstration crashed")
}

/// What is reserved: a part of what the store promises.
fn rate(scene: &Scene) -> Result<u64> {
    let status = scene.ask(&["status", scene.address()])?;
    let promised = &status["stores"][0]["write_bytes_per_second"];
    let part = promised.as_u64().unwrap_or(0) / PROMISED_PART;
    // Of whole hundred kilobytes, to be read by people.
    Ok((part / 100_000).max(1) * 100_000)
}

fn halves(
    scene: &mut Scene,
    (near, others): (&Path, &Path),
    (rate, seconds): (u64, u64),
    stop: &Stop,
    say: &dyn Fn(std::fmt::Arguments<'_>),
) -> Result<(Vec<Second>, Vec<Second>, Option<u64>)> {
    let half = || half((near, others), (rate, seconds), stop, say);
    say(format_args!("without a reservation"));
    let without = half()?;
    scene.unmount_volume(near)?;
    let ticket = reserve(scene, rate, seconds)?;
    scene.mount_volume(VOLUME, "stream", Some(&ticket))?;
    say(format_args!("with {} reserved", Rate(rate)));
    let before = Processors::now();
    let with = half()?;
    let idle_percent = Processors::now().and_then(|now| now.idle_percent_since(&before?));
    Ok((without, with, idle_percent))
}

/// Time of all processors since the machine began, in ticks.
struct Processors {
    idle: u64,
    all: u64,
}

impl Processors {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line is of all of them: user, nice, system, idle, waiting for devices, interrupts
    /// (twice), stolen by others of the same machine; what follows is part of the first two.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks = line.split_whitespace().take(8).map(str::parse::<u64>);
        let ticks = ticks.collect::<Result<Vec<_>, _>>().ok()?;
        Some(Self {
            idle: ticks.get(3)? + ticks.get(4)?,
            all: ticks.iter().sum(),
        })
    }

    fn idle_percent_since(&self, before: &Self) -> Option<u64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(percent(self.idle.saturating_sub(before.idle), all))
    }
}

/// Reserves the rate from now on; the file with the ticket.
fn reserve(scene: &Scene, rate: u64, seconds: u64) -> Result<PathBuf> {
    let volume = format!("{}/{VOLUME}", scene.address());
    let (write, window) = (rate.to_string(), format!("{}s", seconds + 60));
    let words = ["reserve", "create", &volume, "--name", "recording"];
    let terms = ["--write", &write, "--for", &window];
    let made = scene.ask(&[&words[..], &terms[..]].concat())?;
    let path = scene.path().join("ticket.json");
    fs::write(&path, made.to_string()).context(path.display())?;
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&path, private).context(path.display())?;
    // A window begins with a whole second.
    thread::sleep(Duration::from_millis(1100));
    Ok(path)
}

/// Records for so many seconds beside greedy writers and says what each of them brought.
fn half(
    (near, others): (&Path, &Path),
    (rate, seconds): (u64, u64),
    stop: &Stop,
    say: &dyn Fn(std::fmt::Arguments<'_>),
) -> Result<Vec<Second>> {
    let load = &Load::default();
    let recording = near.join("recording");
    thread::scope(|scope| {
        let writers: Vec<_> = (0..GREEDY)
            .map(|number| {
                let path = others.join(format!("greedy{number}"));
                scope.spawn(move || greedy(&path, load))
            })
            .collect();
        let recorder = scope.spawn(|| record(&recording, rate, load));
        let is_recording = || !recorder.is_finished();
        let told = watch((rate, seconds), load, &is_recording, stop, say);
        // Whatever happened, they end.
        load.is_over.store(true, Ordering::Relaxed);
        let recorded = recorder.join().map_err(|_| crashed())?;
        for writer in writers {
            let wrote = writer.join().map_err(|_| crashed())?;
            wrote.context("a greedy writer")?;
        }
        let told = told?;
        recorded.context(recording.display())?;
        Ok(told)
    })
}

fn watch(
    (rate, seconds): (u64, u64),
    load: &Load,
    is_recording: &dyn Fn() -> bool,
    stop: &Stop,
    say: &dyn Fn(std::fmt::Arguments<'_>),
) -> Result<Vec<Second>> {
    let (mut at, mut before, mut told) = (Instant::now(), load.now(), Vec::new());
    for second in 0..=seconds {
        at += Duration::from_secs(1);
        thread::sleep(at.saturating_duration_since(Instant::now()));
        stop.check()?;
        if !is_recording() {
            break;
        }
        let now = load.now();
        let brought = Second {
            stream: now.stream - before.stream,
            others: now.others - before.others,
        };
        before = now;
        // In the first one it gets under way.
        if second > 0 {
            say(format_args!("{}", line(second, rate, brought)));
            told.push(brought);
        }
    }
    Ok(told)
}

impl Load {
    fn now(&self) -> Second {
        Second {
            stream: self.stream.load(Ordering::Relaxed),
            others: self.others.load(Ordering::Relaxed),
        }
    }
}

/// Writes what is due and makes it durable; what came too late is made up for.
fn record(path: &Path, rate: u64, load: &Load) -> io::Result<()> {
    let file = File::create(path)?;
    let step = vec![0x5a; (rate / STEPS_PER_SECOND) as usize];
    let begin = Instant::now();
    for number in 0_u64.. {
        let due = begin + Duration::from_secs(1) / STEPS_PER_SECOND as u32 * (number as u32 + 1);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if load.is_over.load(Ordering::Relaxed) {
            break;
        }
        let offset = number * step.len() as u64 % STREAM_BYTES;
        file.write_all_at(&step, offset)?;
        file.sync_data()?;
        load.stream.fetch_add(step.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Overwrites a file as fast as that goes.
fn greedy(path: &Path, load: &Load) -> io::Result<()> {
    let file = File::create(path)?;
    let step = vec![0xa5; GREEDY_BYTES];
    while !load.is_over.load(Ordering::Relaxed) {
        file.write_all_at(&step, 0)?;
        file.sync_data()?;
        load.others.fetch_add(step.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn line(second: u64, rate: u64, brought: Second) -> String {
    let (stream, others) = (
        Rate(brought.stream).to_string(),
        Rate(brought.others).to_string(),
    );
    let percent = percent(brought.stream, rate);
    let bar = bar(brought.stream, rate);
    format!("{second:>4} s  stream |{bar}| {percent:>3} %  {stream:>10}   others {others:>10}")
}

/// So much of the whole, drawn.
fn bar(part: u64, whole: u64) -> String {
    let full = (part * BAR / whole.max(1)).min(BAR) as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(BAR as usize - full))
}

fn percent(part: u64, whole: u64) -> u64 {
    part * 100 / whole.max(1)
}

/// Of one half.
struct Summary {
    /// Of what was due, in all seconds together.
    whole: u64,
    /// In the second that brought least.
    worst: u64,
    others: u64,
}

impl Booked {
    fn summary(&self, seconds: &[Second]) -> Summary {
        let count = seconds.len().max(1) as u64;
        let sum = |of: fn(&Second) -> u64| seconds.iter().map(of).sum::<u64>();
        let worst = seconds.iter().map(|second| second.stream).min();
        Summary {
            whole: percent(sum(|second| second.stream), count * self.rate),
            worst: percent(worst.unwrap_or(0), self.rate),
            others: sum(|second| second.others) / count,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let half = |seconds: &[Second]| {
            let summary = self.summary(seconds);
            json!({
                "seconds": seconds.len(),
                "stream_bytes": seconds.iter().map(|second| second.stream).sum::<u64>(),
                "percent": summary.whole,
                "percent_worst_second": summary.worst,
                "others_bytes_per_second": summary.others,
            })
        };
        json!({
            "rate_bytes_per_second": self.rate,
            "without": half(&self.without),
            "with": half(&self.with),
        })
    }

    pub(super) fn page(&self) -> String {
        let line = |what: &str, seconds: &[Second]| {
            let Summary {
                whole,
                worst,
                others,
            } = self.summary(seconds);
            let others = Rate(others);
            format!(
                "{what:<10} {whole} % of {}, {worst} % in the worst second; the others {others}\n",
                Rate(self.rate)
            )
        };
        format!(
            "\n{}{}{}",
            line("unreserved", &self.without),
            line("reserved", &self.with),
            self.remark()
        )
    }

    /// Why there is nothing to see, or why a reservation was not kept, where it shows: it is of the
    /// device, and where the processors have no time for the stream, server and writers, nothing is
    /// said of it.
    fn remark(&self) -> String {
        let is_kept = |seconds: &[Second]| self.summary(seconds).whole >= KEPT_PERCENT;
        if is_kept(&self.without) && is_kept(&self.with) {
            return "remark     this device had enough for all also without a reservation, so there \
                    was nothing to keep\n"
                .to_owned();
        }
        let is_kept = is_kept(&self.with);
        match self.idle_percent.filter(|idle| *idle < IDLE_PERCENT) {
            Some(idle) if !is_kept => format!(
                "remark     the processors ({idle} % idle) were the limit and not the device: no \
                 measure; try again on an idle machine\n"
            ),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn booked(without: u64, with: u64, idle_percent: Option<u64>) -> Booked {
        let second = |stream| Second { stream, others: 1 };
        Booked {
            rate: 100,
            without: vec![second(without)],
            with: vec![second(with); 2],
            idle_percent,
        }
    }

    #[test]
    fn a_promise_that_the_processors_broke_is_no_measure() {
        let page = booked(70, 80, Some(3)).page();
        assert!(
            page.contains("remark     the processors (3 % idle)"),
            "{page}"
        );
        for (stream, idle) in [(80, Some(40)), (80, None), (100, Some(3)), (90, Some(0))] {
            let page = booked(70, stream, idle).page();
            assert!(!page.contains("remark"), "{page}");
        }
    }

    #[test]
    fn a_device_that_has_enough_for_all_shows_nothing() {
        for (without, with, is_said) in [(90, 100, true), (89, 100, false), (100, 89, false)] {
            let page = booked(without, with, Some(50)).page();
            let remark = "remark     this device had enough for all";
            assert_eq!(page.contains(remark), is_said, "{page}");
        }
    }

    #[test]
    fn what_processors_have_left_is_read() {
        let before = Processors::parse("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1").expect("figures");
        let now = Processors::parse("cpu  60 0 55 72 13 0 0 0 5 5\n").expect("figures");
        assert_eq!((before.idle, before.all), (80, 100));
        assert_eq!(now.idle_percent_since(&before), Some(5));
        assert_eq!(now.idle_percent_since(&now), None);
        assert!(Processors::parse("cpu  1 2").is_none() && Processors::now().is_some());
    }
}
