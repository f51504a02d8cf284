//! `azekura disk detach`.

use super::attach::take_off_loop;
use super::running::{Entry, list};
use crate::config::{Config, Span};
use crate::errors::{Code, Context, Failure, Result};
use crate::mounts::Mounted;
use crate::output;
use ::mount::disk::FILE_NAME;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often it is looked whether a loop device is gone.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A loop device that nobody uses goes within this time.
const LOOP_TIME_MAX: Duration = Duration::from_secs(2);

/// End the use of a disk: make durable what was written, and take it off
///
/// What a disk is attached as must not be in use any more; of one that is served, requests that
/// are under way are answered. What was written stays, for the next time or for `disk commit`. What
/// was read is said, what came over the network for it, and how long programs waited for that.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk detach mnt/disk
  azekura disk detach unix:disk.sock")]
pub(in crate::cli) struct Detach {
    /// Where it is: a directory, unix:PATH, or HOST:PORT
    #[arg(value_name = "WHERE")]
    place: String,
    /// Give up, with the disk still there, after this time
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Span,
    /// Only say what would be ended
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Detach {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = place(&self.place)?;
        let entries = list(config)?;
        let found = entries
            .into_iter()
            .find(|entry| entry.running.place == place);
        let entry = found.ok_or_else(|| {
            let shown = output::plain(&self.place);
            Failure::new(Code::NotAttached, format!("no disk is in use at {shown}"))
        })?;
        let (name, pid) = (&entry.running.name, entry.running.pid);
        if self.dry_run {
            return output::line(format_args!("{name}, process {pid}, would be ended"));
        }
        if entry.running.kind == "file" {
            self.take_off(&entry)?;
        } else {
            // Its file is locked: it is that process and no other.
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let signalled = pid.map(|pid| kill_process(pid, Signal::TERM));
            signalled.transpose().context("cannot end its process")?;
        }
        match entry.until_ended(self.timeout.0)? {
            Some(used) => self.print(name, &used),
            None => {
                let seconds = self.timeout.0.as_secs();
                let message = format!("{name} is still in use after {seconds} s");
                Err(Failure::new(Code::DiskBusy, message))
            }
        }
    }

    /// Says how it was used.
    fn print(&self, name: &str, used: &Value) -> Result<()> {
        if self.json {
            return output::json(&json!({ "name": name, "used": used }));
        }
        // A process of another release, or one that was killed, has left no word.
        if used.is_null() {
            return Ok(());
        }
        let number = |key: &str| used.get(key).and_then(Value::as_u64).unwrap_or_default();
        let float = |key: &str| used.get(key).and_then(Value::as_f64).unwrap_or_default();
        let waited = Duration::try_from_secs_f64(float("wait_seconds")).unwrap_or_default();
        output::line(format_args!(
            "{name}: {} read; {} came for that in {}, fill rate {:.0} %; programs waited {}",
            output::size(number("asked_bytes")),
            output::size(number("fetched_bytes")),
            output::count(number("requests"), "request"),
            100.0 * float("fill_rate"),
            output::span(waited),
        ))
    }

    /// Makes durable what was written and takes loop device and mount off.
    fn take_off(&self, entry: &Entry) -> Result<()> {
        let directory = Path::new(&entry.running.place);
        let own = |device: &&String| is_own_loop(device, directory);
        if let Some(device) = entry.running.device.as_ref().filter(own) {
            if is_mounted(device)? {
                let message = format!("{device} is mounted");
                return Err(Failure::new(Code::MountBusy, message).hint(format!(
                    "findmnt -S {device} shows where; unmount that first"
                )));
            }
            take_off_loop(device)?;
            let deadline = Instant::now() + LOOP_TIME_MAX;
            while is_own_loop(device, directory) {
                if Instant::now() >= deadline {
                    let message = format!("{device} is in use by programs");
                    return Err(Failure::new(Code::MountBusy, message).hint(format!(
                        "fuser -v {device} shows which; it goes when they are done"
                    )));
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        if entry.running.writable {
            let file = directory.join(FILE_NAME);
            let synced = File::open(&file).and_then(|file| file.sync_all());
            synced.map_err(|error| {
                let message = format!("what was written is not safe: {error}");
                Failure::new(Code::DiskUnwritten, message)
                    .hint("it is still attached; the log of its process says more")
            })?;
        }
        let unmounted = Mounted::disk_at(directory)?.unmount(false);
        unmounted.map_err(|failure| match failure.code() {
            Code::MountBusy => {
                let shown = directory.display();
                failure.hint(format!("fuser -vm {shown} shows which programs"))
            }
            _ => failure,
        })
    }
}

/// Where a disk is, as its process has noted it.
fn place(text: &str) -> Result<String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = std::path::absolute(path).context(text)?;
        return Ok(format!("unix:{}", path.display()));
    }
    if text.parse::<std::net::SocketAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return Ok(format!("127.0.0.1:{port}"));
    }
    let path = Path::new(text);
    let real = path.canonicalize().or_else(|_| std::path::absolute(path));
    Ok(real.context(text)?.to_string_lossy().into_owned())
}

/// Whether a loop device or a partition of it is mounted.
fn is_mounted(device: &str) -> Result<bool> {
    const MOUNTS: &str = "/proc/self/mounts";
    let mounts = std::fs::read_to_string(MOUNTS).context(MOUNTS)?;
    Ok(mounts.lines().any(|line| {
        let rest = line.strip_prefix(device);
        rest.is_some_and(|rest| rest.starts_with([' ', 'p']))
    }))
}

/// Whether a loop device has the disk that is attached at `directory`. One that was taken off
/// before may be somebody else's by now.
pub(super) fn is_own_loop(device: &str, directory: &Path) -> bool {
    let name = device.trim_start_matches("/dev/");
    let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
    let Ok(backing) = backing else {
        return false;
    };
    // The kernel says it without symbolic links.
    let resolved = directory
        .parent()
        .and_then(|parent| parent.canonicalize().ok());
    let resolved = resolved
        .zip(directory.file_name())
        .map(|(parent, name)| parent.join(name));
    let backing = backing.trim_end_matches('\n');
    let is_it = |directory: &Path| Path::new(backing) == directory.join(FILE_NAME);
    is_it(directory) || resolved.is_some_and(|directory| is_it(&directory))
}
