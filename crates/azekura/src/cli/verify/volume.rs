//! A volume as what a crash run uses: a server whose data directory lies on the device under
//! judgement, and a mount of its volume.
//!
//! ```text
//! step -> mount of the volume -> server -> store, lists -> ext4 -> loop device -> recorder
//! ```
//!
//! What is on the device after a loss of power is everything that the server has: the server is
//! started again on what ext4 recovers, the volume is mounted anew, and what a program was promised
//! by `fsync` on the old mount must be there. Addresses are those of a network of its own, so that
//! no other server is met; what the user keeps of it is in the run's directory.

use ::verify::actor::{Kernel, MountAs, Tool, Underneath, look, output};
use ::verify::oracle::Entry;
use ::verify::programs::command;
use ::verify::speed::job;
use ::verify::workload::Step;
use nix::sched::{CloneFlags, unshare};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// In a network where nobody else is.
const ADDRESS: &str = "127.0.0.1:7700";
const VOLUME: &str = "127.0.0.1:7700/crash";
/// A store of this size leaves room on the device for everything else.
const STORE_SIZE: &str = "24MiB";
/// The file system that the server lies on.
const GROUND: &str = "ext4";
/// A server that is not there by then does not come.
const START_TIME_MAX: Duration = Duration::from_secs(30);
const LOOKED_EVERY: Duration = Duration::from_millis(5);

/// See the module's head.
#[derive(Default)]
pub(super) struct Volumes {
    ground: Kernel,
    /// The run's directory.
    directory: PathBuf,
    server: Option<Child>,
    /// There while the volume is mounted.
    mount: Option<Child>,
}

impl Volumes {
    /// What is in the run's directory beside the mount of the ground.
    pub(super) const PARTS: [&str; 2] = ["volume", "home"];

    fn point(&self) -> PathBuf {
        self.directory.join(Self::PARTS[0])
    }

    /// This program, which ends with this process if it stays.
    fn program(&self, stays: bool) -> Result<Command, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(&program);
        if stays {
            command = job(&program);
            command.arg("--").arg(&program);
        }
        let home = self.directory.join(Self::PARTS[1]);
        command
            .env("AZEKURA_CONFIG_DIR", home)
            .env_remove("RUST_LOG");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command)
    }

    /// Starts the server, with a new cluster and a volume if there is none yet.
    fn start(&mut self) -> Result<(), String> {
        let data = self.directory.join("mnt").join("server");
        let is_new = !data.exists();
        let mut command = self.program(true)?;
        command.arg("server").arg("--data").arg(&data);
        command.args(["--listen", ADDRESS]);
        if is_new {
            command.args(["--init", "--store-size", STORE_SIZE]);
        }
        let server = command.spawn().map_err(|error| error.to_string())?;
        let server = self.server.insert(server);
        wait_for("the server", server, || TcpStream::connect(ADDRESS).is_ok())?;
        if is_new {
            output(self.program(false)?.args(["volume", "create", VOLUME]), 0)?;
        }
        let point = self.point();
        let mut command = self.program(true)?;
        command.args(["mount", VOLUME, "--foreground"]).arg(&point);
        let mount = command.spawn().map_err(|error| error.to_string())?;
        let mount = self.mount.insert(mount);
        wait_for("the mount", mount, || is_mounted(&point))
    }

    /// Unmounts the volume and ends the server.
    fn stop(&mut self) -> Result<(), String> {
        let mut unmounted = Ok(());
        if let Some(mut mount) = self.mount.take() {
            let point = self.point();
            if is_mounted(&point) {
                let taken_off = rustix::mount::unmount(&point, UnmountFlags::NOFOLLOW);
                unmounted = taken_off.map_err(|errno| format!("unmounting the volume: {errno}"));
            }
            end(&mut mount, unmounted.is_ok());
        }
        if let Some(mut server) = self.server.take() {
            terminate(&server);
            end(&mut server, true);
        }
        unmounted
    }
}

/// Waits until something is there that a program is to make.
fn wait_for(
    what: &str,
    child: &mut Child,
    mut is_there: impl FnMut() -> bool,
) -> Result<(), String> {
    let deadline = Instant::now() + START_TIME_MAX;
    while !is_there() {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("{what} has ended: {status}"));
        }
        if Instant::now() >= deadline {
            return Err(format!("{what} does not start"));
        }
        thread::sleep(LOOKED_EVERY);
    }
    Ok(())
}

fn terminate(child: &Child) {
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Waits for the end of a program; one that does not end is killed.
fn end(child: &mut Child, is_awaited: bool) {
    let deadline = Instant::now() + START_TIME_MAX;
    while is_awaited && matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        thread::sleep(LOOKED_EVERY);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.any(|mounted| Path::new(mounted) == point)
}

impl Underneath for Volumes {
    fn attach(&mut self, file: &Path, directory: &Path) -> Result<(), String> {
        directory.clone_into(&mut self.directory);
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| format!("a network: {errno}"))?;
        output(command("ip").args(["link", "set", "lo", "up"]), 0)?;
        for part in Self::PARTS {
            let path = directory.join(part);
            std::fs::create_dir(&path).map_err(|error| format!("{part}: {error}"))?;
        }
        self.ground.attach(file, directory)
    }

    fn tool(&mut self, tool: &Tool) -> Result<(), String> {
        self.ground.tool(tool)
    }

    fn mount(&mut self, mount: &MountAs) -> Result<(), String> {
        let fs_type = GROUND.to_owned();
        let options = mount.options.clone();
        self.ground.mount(&MountAs { fs_type, options })?;
        let started = self.start();
        if started.is_err() {
            // What is judged next is mounted anew.
            let _ = self.stop();
            self.ground.unmount()?;
        }
        started
    }

    fn unmount(&mut self) -> Result<(), String> {
        let stopped = self.stop();
        self.ground.unmount()?;
        stopped
    }

    fn run(&mut self, step: &Step) -> Result<(), String> {
        step.run(&self.point()).map_err(|error| error.to_string())
    }

    fn look(&mut self, databases: &[String]) -> Result<Vec<Entry>, String> {
        look(&self.point(), databases).map_err(|error| error.to_string())
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        let _ = self.stop();
        if self.directory.as_os_str().is_empty() {
            return;
        }
        remove_parts(&self.directory);
    }
}

/// Removes what is in the directory of a run, in which nothing is mounted any more.
pub(super) fn remove_parts(directory: &Path) {
    let [volume, home] = Volumes::PARTS.map(|part| directory.join(part));
    let _ = std::fs::remove_dir(volume);
    let _ = std::fs::remove_dir_all(home);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_is_not_waited_for() {
        let mut child = Command::new("false").spawn().unwrap();
        let said = wait_for("it", &mut child, || false).unwrap_err();
        assert!(said.contains("has ended"), "{said}");
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        wait_for("it", &mut child, || true).unwrap();
        terminate(&child);
        end(&mut child, true);
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(Path::new("/proc/self")));
    }
}
