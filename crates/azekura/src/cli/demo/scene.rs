//! What the demonstration plays on: a directory, a server, a mount, and their end.

use super::Stop;
use super::disk::{self, Disk};
use crate::errors::{Code, Context, Failure, Result};
use crate::mounts::Mounted;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time for the server to come up, also on a machine that is busy.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Time for the server to end in order.
const END_TIME_MAX: Duration = Duration::from_secs(10);
/// Time for the mount to answer about itself.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
const VOLUME: &str = "demo";
/// For measuring the store's device, which does not change.
const CALIBRATION_TIME: &str = "3s";

/// Time for what has been taken off or stopped to write its last words into the directory.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_secs(10);

/// See the module's head. Dropping it ends everything.
pub(super) struct Scene {
    program: PathBuf,
    directory: Option<TempDir>,
    path: PathBuf,
    keep: bool,
    server: Option<Child>,
    address: String,
    /// What the server's store is on, if there is one. Dropped when the server has ended.
    disk: Option<Disk>,
    /// What is mounted besides the first volume.
    others: Vec<PathBuf>,
}

impl Scene {
    /// Makes the directory, starts the server, with a store if that is wanted and there is memory,
    /// makes the volume.
    pub(super) fn set(keep: bool, wants_store: bool, stop: &Stop) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("azekura-demo-").tempdir();
        let directory = directory.context("no temporary directory")?;
        let mut scene = Self {
            program: std::env::current_exe().context("cannot find this program")?,
            path: directory.path().to_owned(),
            directory: Some(directory),
            keep,
            server: None,
            address: String::new(),
            disk: None,
            others: Vec::new(),
        };
        for below in ["export", "mnt"] {
            let path = scene.path.join(below);
            std::fs::create_dir(&path).context(path.display())?;
        }
        if wants_store {
            scene.make_store()?;
        }
        stop.check()?;
        scene.start_server()?;
        stop.check()?;
        let volume = scene.volume();
        let export = scene.export();
        scene.run(&["volume", "create", &volume, "--export"], &export)?;
        Ok(scene)
    }

    /// Makes a store on a disk of its own, where there is memory for one.
    fn make_store(&mut self) -> Result<()> {
        let Some(bytes) = disk::size() else {
            return Ok(());
        };
        let mut server = self.command();
        server.arg("demo");
        let disk = Disk::start(server, &self.path.join("disk"), bytes)?;
        let disk = self.disk.insert(disk).file();
        let words = ["store", "format", "--calibration-time", CALIBRATION_TIME];
        self.run(&words, &disk)
    }

    fn start_server(&mut self) -> Result<()> {
        let mut command = self.command();
        command.args(["server", "--listen", "127.0.0.1:0", "--init"]);
        command.args(["--with-parent", "--store-size", "0"]);
        if let Some(disk) = &self.disk {
            command.arg("--store").arg(disk.file());
        }
        command
            .arg("--data")
            .arg(self.path.join("srv"))
            .stdout(Stdio::piped());
        let mut server = command.spawn().context("cannot start the server")?;
        let pipe = server.stdout.take();
        self.server = Some(server);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            if let Some(pipe) = pipe {
                // An error reads like an end: the server is gone.
                let _ = BufReader::new(pipe).read_line(&mut line);
            }
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(START_TIME_MAX).unwrap_or_default();
        let address = line
            .split_once("ready on ")
            .and_then(|(_, rest)| rest.split(',').next());
        let address = address.ok_or_else(|| {
            Failure::new(Code::Local, "the server did not start; it says why above")
        })?;
        self.address = address.to_owned();
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("AZEKURA_CONFIG_DIR", self.config())
            .stdin(Stdio::null())
            // Ctrl-C is for the demonstration, which then ends all in order.
            .process_group(0);
        command
    }

    /// Runs a command of ours; what it says, it says itself.
    fn run(&self, words: &[&str], path: &Path) -> Result<()> {
        let mut command = self.command();
        let status = command.args(words).arg(path).stdout(Stdio::null()).status();
        if status.context("cannot run this program")?.success() {
            return Ok(());
        }
        Err(failed(words))
    }

    pub(super) fn mount(&mut self) -> Result<()> {
        self.run(&["mount", &self.volume()], &self.mount_point())
    }

    /// Asks something that is answered in JSON.
    pub(super) fn ask(&self, words: &[&str]) -> Result<Value> {
        let mut command = self.command();
        let output = command.args(words).arg("--json").stderr(Stdio::inherit());
        let output = output.output().context("cannot run this program")?;
        let answer = serde_json::from_slice(&output.stdout).ok();
        answer
            .filter(|_| output.status.success())
            .ok_or_else(|| failed(words))
    }

    /// Mounts another volume below the directory, with a ticket or without; says where.
    pub(super) fn mount_volume(
        &mut self,
        volume: &str,
        below: &str,
        ticket: Option<&Path>,
    ) -> Result<PathBuf> {
        let point = self.path.join(below);
        if !point.exists() {
            std::fs::create_dir(&point).context(point.display())?;
        }
        let volume = format!("{}/{volume}", self.address);
        let ticket = ticket.map(|path| path.display().to_string());
        let mut words = vec!["mount", &volume];
        words.extend(ticket.iter().flat_map(|path| ["--ticket", path]));
        self.run(&words, &point)?;
        self.others.push(point.clone());
        Ok(point)
    }

    /// Unmounts what [`Self::mount_volume`] has mounted.
    pub(super) fn unmount_volume(&mut self, point: &Path) -> Result<()> {
        self.run(&["umount"], point)?;
        self.others.retain(|other| other != point);
        Ok(())
    }

    /// Whether the server has a store, for volumes that can be reserved.
    pub(super) fn has_store(&self) -> bool {
        self.disk.is_some()
    }

    /// Mounts anew: nothing is cached in the client or the kernel.
    pub(super) fn remount(&mut self) -> Result<()> {
        self.run(&["umount"], &self.mount_point())?;
        self.mount()
    }

    /// Waits until everything is safe at the server.
    pub(super) fn sync(&self) -> Result<()> {
        self.run(&["sync"], &self.mount_point())
    }

    /// The line's round trip as the mount measured it.
    pub(super) fn round_trip(&self) -> Result<Duration> {
        let status = Mounted::at(&self.mount_point())?.status(ANSWER_TIME_MAX)?;
        let micros = status
            .get("rtt_micros")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        Ok(Duration::from_micros(micros))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn mount_point(&self) -> PathBuf {
        self.path.join("mnt")
    }

    pub(super) fn export(&self) -> PathBuf {
        self.path.join("export")
    }

    pub(super) fn config(&self) -> PathBuf {
        self.path.join("config")
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    fn volume(&self) -> String {
        format!("{}/{VOLUME}", self.address)
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// If something does not end; what can be ended, is.
    pub(super) fn clear(mut self) -> Result<()> {
        let unmounted = self.unmount();
        self.end_server();
        self.disk = None;
        if let Some(directory) = self.directory.take() {
            if self.keep {
                let kept = directory.keep();
                crate::output::note(format_args!("kept       {}", kept.display()));
            } else {
                let path = directory.keep();
                remove(&path).context(path.display())?;
            }
        }
        unmounted
    }

    /// Unmounts everything; the first failure is told when all has been tried.
    fn unmount(&self) -> Result<()> {
        let mut outcome = Ok(());
        for point in self.others.iter().chain([&self.mount_point()]) {
            if Mounted::at(point).is_ok() {
                let unmounted = self.run(&["umount"], point).or_else(|failure| {
                    let forced = self.run(&["umount", "--force"], point);
                    forced.and(Err(failure))
                });
                outcome = outcome.and(unmounted);
            }
        }
        outcome
    }

    fn end_server(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        if let Some(pid) = Pid::from_raw(server.id().cast_signed()) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_TIME_MAX;
        while Instant::now() < deadline {
            if !matches!(server.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = server.kill();
        let _ = server.wait();
    }
}

fn failed(words: &[&str]) -> Failure {
    let message = format!(
        "azekura {} failed",
        words.first().copied().unwrap_or_default()
    );
    Failure::new(Code::Local, message).hint("the reason is above")
}

impl Drop for Scene {
    fn drop(&mut self) {
        // After a failure. There is nobody left to tell about another one.
        let _ = self.unmount();
        self.end_server();
        // Before its directory.
        self.disk = None;
    }
}

/// Removes a directory in which somebody may still make a last file.
fn remove(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + LAST_WORDS_TIME_MAX;
    loop {
        match fs::remove_dir_all(path) {
            Err(error)
                if error.kind() == ErrorKind::DirectoryNotEmpty && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_done_yet_does_not_keep_the_directory_there() {
        let directory = tempfile::tempdir().unwrap().keep();
        let lines = directory.join("state/lines");
        fs::create_dir_all(&lines).unwrap();
        let first = lines.join("0");
        let writer = std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_millis(300);
            let mut made = 0;
            while Instant::now() < end {
                made += u32::from(fs::write(lines.join(made.to_string()), "line").is_ok());
            }
            made
        });
        while !first.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        remove(&directory).unwrap();
        assert!(!directory.exists());
        assert!(writer.join().unwrap() > 0);
    }
}
