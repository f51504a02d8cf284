//! A machine that QEMU makes of nothing: started, or put back to where a snapshot was taken, told
//! one line, and killed.
//!
//! QEMU keeps no disk content in its own memory, so a killed machine is one whose power is cut,
//! with a disk that has no cache of its own: what it was given is in the file. Its flushes are not
//! carried out (`cache=unsafe`), because they would only make this machine's disk work. A disk with
//! a cache is served to it ([`super::cached`]), and is told to flush.

use super::PowercutError;
use super::message::{Message, parse};
use super::qmp::{Qmp, SOCKET};
use super::subject::DiskCache;
use crate::speed::job;
use base::limits::{VERIFY_POWERCUT_BOOT_TIME_MAX, VERIFY_POWERCUT_LINE_BYTES_MAX};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The program.
pub(super) const QEMU: &str = "qemu-system-x86_64";
/// Disks in the directory of a guest: the file system, what is to be written, what was found.
pub(super) const DISK: &str = "disk";
pub(super) const SOURCE: &str = "source";
pub(super) const OUT: &str = "out";
/// Where a disk with a cache is served in the directory of a guest, as QEMU finds it there.
pub(super) const DISK_SOCKET: &str = "nbd";
/// The snapshot, from the directory of a guest: a path that no shell takes apart.
const SNAPSHOT: &str = "../snapshot";
/// How often somebody who waits for a guest is asked whether it is still wanted.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// How often is looked whether QEMU is where it should be.
const LOOKS_EVERY: Duration = Duration::from_millis(5);
/// How long QEMU may take to end after its last word.
const END_TIME_MAX: Duration = Duration::from_secs(10);
/// The file in the directory of a guest with what QEMU says when it fails.
const SAID: &str = "said";
const SAID_BYTES_MAX: u64 = 4096;

/// Whether somebody still waits.
pub(super) type IsWanted<'a> = &'a (dyn Fn() -> bool + Sync);

/// Why nothing was heard of a guest.
#[derive(Debug)]
pub(super) enum Silence {
    /// It has ended by itself, as a machine does whose kernel has crashed.
    Crashed(String),
    /// It has not answered in time.
    Late(String),
    /// Whatever else; no word on what it was doing.
    Other(PowercutError),
}

impl From<PowercutError> for Silence {
    fn from(error: PowercutError) -> Self {
        Self::Other(error)
    }
}

impl From<Silence> for PowercutError {
    fn from(silence: Silence) -> Self {
        match silence {
            Silence::Crashed(why) | Silence::Late(why) => Self::Guest(why),
            Silence::Other(error) => error,
        }
    }
}

/// What all guests of a run have in common.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// The kernel's file.
    pub(super) kernel: PathBuf,
    /// Its first file system.
    pub(super) initrd: PathBuf,
    pub(super) memory_bytes: u64,
}

/// One that runs. Dropping it cuts its power.
#[derive(Debug)]
pub(super) struct Guest {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    qmp: Qmp,
    directory: PathBuf,
}

impl Machine {
    fn arguments(&self, is_restored: bool, disk_cache: DiskCache) -> Vec<String> {
        let mut words: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-machine",
            "q35",
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-smp",
            "1",
            "-chardev",
            "stdio,id=line,signal=off",
            "-serial",
            "chardev:line",
        ]
        .map(str::to_owned)
        .to_vec();
        let mut add = |word: &str, value: String| words.extend([word.to_owned(), value]);
        add("-m", format!("{}M", self.memory_bytes >> 20));
        add("-qmp", format!("unix:{SOCKET},server=on,wait=off"));
        add("-kernel", self.kernel.display().to_string());
        add("-initrd", self.initrd.display().to_string());
        let line = "console=ttyS0 quiet rdinit=/init panic=-1".to_owned();
        add("-append", line);
        for (name, more) in [(DISK, ""), (SOURCE, ",readonly=on"), (OUT, "")] {
            let file = match (name, disk_cache) {
                (DISK, DiskCache::Lost) => format!(
                    "file.driver=nbd,file.server.type=unix,file.server.path={DISK_SOCKET},\
                     cache=writeback"
                ),
                _ => format!("file={name},cache=unsafe"),
            };
            let drive = format!("if=none,id={name},format=raw,{file}{more}");
            add("-drive", drive);
            add("-device", format!("virtio-blk-pci,drive={name}"));
        }
        if is_restored {
            add("-incoming", format!("exec:cat {SNAPSHOT}"));
        }
        words
    }

    /// Starts a guest in this directory, where its disks are.
    fn start(
        &self,
        directory: &Path,
        (is_restored, disk_cache): (bool, DiskCache),
        is_wanted: IsWanted<'_>,
    ) -> Result<Guest, PowercutError> {
        let words = |error: std::io::Error| PowercutError::Guest(format!("{QEMU}: {error}"));
        let own = std::env::current_exe().map_err(words)?;
        let _ = std::fs::remove_file(directory.join(SOCKET));
        // It ends with this thread, whatever that dies of.
        let mut child = job(&own)
            .args(["--", QEMU])
            .args(self.arguments(is_restored, disk_cache))
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(directory.join(SAID)).map_err(words)?)
            // Ctrl-C is for the run.
            .process_group(0)
            .spawn()
            .map_err(words)?;
        let input = child.stdin.take().expect("it was piped");
        let lines = listen(child.stdout.take().expect("it was piped"));
        let lines = lines.inspect_err(|_| end(&mut child)).map_err(words)?;
        let qmp = connect(&mut child, directory, is_wanted);
        let qmp = qmp.inspect_err(|_| end(&mut child))?;
        Ok(Guest {
            child,
            input,
            lines,
            qmp,
            directory: directory.to_owned(),
        })
    }

    /// Starts a guest, waits until it is ready, and takes the snapshot.
    pub(super) fn take_snapshot(
        &self,
        directory: &Path,
        is_wanted: IsWanted<'_>,
    ) -> Result<(), PowercutError> {
        let mut guest = self.start(directory, (false, DiskCache::None), is_wanted)?;
        match guest.hear(VERIFY_POWERCUT_BOOT_TIME_MAX, is_wanted)? {
            Message::Ready => {}
            other => return Err(unexpected(&other)),
        }
        guest.qmp.execute("stop", json!({}))?;
        let to = json!({"uri": format!("exec:cat > {SNAPSHOT}")});
        guest.qmp.execute("migrate", to)?;
        let deadline = Instant::now() + VERIFY_POWERCUT_BOOT_TIME_MAX;
        loop {
            let state = guest.qmp.execute("query-migrate", json!({}))?;
            match state["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = state["error-desc"].as_str().unwrap_or_default();
                    return Err(PowercutError::Guest(format!("the snapshot failed: {why}")));
                }
                _ => guest.pause(deadline, is_wanted)?,
            }
        }
    }

    /// A guest as it was when the snapshot was taken, with the disks of this directory; one that
    /// has a cache is served there.
    pub(super) fn restore(
        &self,
        directory: &Path,
        disk_cache: DiskCache,
        is_wanted: IsWanted<'_>,
    ) -> Result<Guest, PowercutError> {
        let mut guest = self.start(directory, (true, disk_cache), is_wanted)?;
        let deadline = Instant::now() + VERIFY_POWERCUT_BOOT_TIME_MAX;
        loop {
            match guest.qmp.status()?.as_str() {
                // What it is told before is lost.
                "running" => return Ok(guest),
                // The snapshot was taken of a machine that stood still.
                "paused" => {
                    guest.qmp.execute("cont", json!({}))?;
                }
                _ => guest.pause(deadline, is_wanted)?,
            }
        }
    }
}

/// What is no answer to what a guest was asked for.
pub(super) fn unexpected(message: &Message) -> PowercutError {
    PowercutError::Guest(match message {
        Message::Failed(what) => format!("in the guest: {what} failed"),
        other => format!("the guest says {other:?}"),
    })
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Whether a process whose output has ended has come to its own end: a machine that restarts after
/// its kernel has crashed ends QEMU with exit code 0, and what is killed, for want of memory or by
/// somebody, does not.
fn ended_by_itself(child: &mut Child) -> bool {
    let deadline = Instant::now() + END_TIME_MAX;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOKS_EVERY),
            Ok(None) | Err(_) => return false,
        }
    }
}

/// Lines as they come, from a thread, so that nobody waits longer than it is wanted. It ends with
/// the guest.
fn listen(output: impl Read + Send + 'static) -> std::io::Result<Receiver<String>> {
    let (sender, lines) = channel();
    thread::Builder::new()
        .name("verify-guest".to_owned())
        .spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = Vec::new();
                let most = VERIFY_POWERCUT_LINE_BYTES_MAX;
                let read = Read::by_ref(&mut output)
                    .take(most)
                    .read_until(b'\n', &mut line);
                let line = String::from_utf8_lossy(&line).into_owned();
                if matches!(read, Ok(0) | Err(_)) || sender.send(line).is_err() {
                    return;
                }
            }
        })?;
    Ok(lines)
}

/// Waits a moment, unless it is too late for that.
fn wait(deadline: Instant, is_wanted: IsWanted<'_>) -> Result<(), PowercutError> {
    if !is_wanted() {
        return Err(PowercutError::Interrupted);
    }
    if Instant::now() >= deadline {
        return Err(PowercutError::Guest("QEMU does not go on".to_owned()));
    }
    thread::sleep(LOOKS_EVERY);
    Ok(())
}

fn connect(
    child: &mut Child,
    directory: &Path,
    is_wanted: IsWanted<'_>,
) -> Result<Qmp, PowercutError> {
    let deadline = Instant::now() + VERIFY_POWERCUT_BOOT_TIME_MAX;
    loop {
        if !matches!(child.try_wait(), Ok(None)) {
            return Err(PowercutError::Guest(said(directory)));
        }
        if let Some(qmp) = Qmp::connect(directory)? {
            return Ok(qmp);
        }
        wait(deadline, is_wanted)?;
    }
}

/// What QEMU has said before it ended.
fn said(directory: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(file) = File::open(directory.join(SAID)) {
        let _ = file.take(SAID_BYTES_MAX).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    format!("QEMU has ended: {}", text.trim())
}

impl Guest {
    fn pause(&mut self, deadline: Instant, is_wanted: IsWanted<'_>) -> Result<(), PowercutError> {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return Err(PowercutError::Guest(said(&self.directory)));
        }
        wait(deadline, is_wanted)
    }

    /// Sends it a line.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), PowercutError> {
        let sent = self.input.write_all(line.as_bytes());
        let sent = sent.and_then(|()| self.input.flush());
        sent.map_err(|error| PowercutError::Guest(format!("the guest's serial line: {error}")))
    }

    /// Waits for what it says next, at most so long, and only while it is wanted.
    pub(super) fn hear(
        &mut self,
        limit: Duration,
        is_wanted: IsWanted<'_>,
    ) -> Result<Message, Silence> {
        let deadline = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(ASKED_EVERY) {
                Ok(line) => {
                    if let Some(message) = parse(&line) {
                        return Ok(message);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let why = said(&self.directory);
                    return Err(match ended_by_itself(&mut self.child) {
                        true => Silence::Crashed(why),
                        false => Silence::Other(PowercutError::Guest(why)),
                    });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !is_wanted() {
                return Err(PowercutError::Interrupted.into());
            }
            if Instant::now() >= deadline {
                let seconds = limit.as_secs();
                let why = format!("the guest has not answered for {seconds} s");
                return Err(Silence::Late(why));
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_by_itself_and_well_is_a_machine_that_crashed() {
        let ended = |script: &str| {
            let mut child = std::process::Command::new("sh");
            let mut child = child.args(["-c", script]).spawn().unwrap();
            ended_by_itself(&mut child)
        };
        assert!(ended("exit 0") && !ended("exit 1") && !ended("kill -KILL $$"));
    }

    #[test]
    fn a_guest_that_is_restored_is_the_same_machine() {
        let machine = Machine {
            kernel: "/k/vmlinuz, 6.1".into(),
            initrd: "/run/initrd".into(),
            memory_bytes: 512 << 20,
        };
        let of = |is_restored| machine.arguments(is_restored, DiskCache::None);
        let (new, restored) = (of(false), of(true));
        assert_eq!(new, restored[..new.len()]);
        assert_eq!(restored[new.len()..], ["-incoming", "exec:cat ../snapshot"]);
        assert!(new.contains(&"512M".to_owned()));
        let drives = new.iter().filter(|word| word.contains("cache=unsafe"));
        assert_eq!(drives.count(), 3);
        // Of a disk with a cache nothing else is different, and flushes come to it.
        let served = machine.arguments(true, DiskCache::Lost);
        let mut differs = served.iter().zip(&restored).filter(|(one, two)| one != two);
        let (disk, _) = differs.next().expect("it is another disk");
        assert!(disk.starts_with("if=none,id=disk,") && disk.ends_with("cache=writeback"));
        assert!(differs.next().is_none() && served.len() == restored.len());
    }
}
