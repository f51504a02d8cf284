//! A server with some stores in files of one directory, a volume over them, and mounts.

use crate::Cli;
use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// For the server to begin, and to end.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How long each store is measured.
const CALIBRATION: &str = "5s";
const VOLUME: &str = "bench";

/// See the module's head. What it has started ends with it.
pub(crate) struct Site {
    server: Child,
    address: String,
    program: PathBuf,
    is_plain: bool,
    directory: TempDir,
}

/// A mount; it is gone when this is dropped.
pub(crate) struct Mount<'a> {
    site: &'a Site,
    pub(crate) point: PathBuf,
    is_there: bool,
}

impl Site {
    /// Stores together have `room` bytes.
    pub(crate) fn new(cli: &Cli, room: u64) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("azekura-bench-")
            .tempdir_in(&cli.directory)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let of_directory = |name: &str| directory.path().join(name);
        let command = || {
            let mut command = Command::new(&cli.azekura);
            command.env("AZEKURA_CONFIG_DIR", of_directory("config"));
            command
        };
        let mut serve = command();
        serve
            .args([
                "server",
                "--init",
                "--store-size",
                "0",
                "--listen",
                &address,
            ])
            .arg("--data")
            .arg(of_directory("server"))
            .args((!cli.tls).then_some("--plain"));
        for number in 0..cli.stores {
            let store = of_directory(&format!("store-{number}"));
            let mut format = command();
            format
                .args(["store", "format", "--unit", "1MiB"])
                .args(["--calibration-time", CALIBRATION])
                .args(["--size", &(room / cli.stores as u64).to_string()])
                .arg(&store);
            run(format)?;
            serve.arg("--store").arg(store);
        }
        let log = File::create(of_directory("server.log"))?;
        let server = serve
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting a server")?;
        let mut site = Self {
            server,
            address,
            program: cli.azekura.clone(),
            is_plain: !cli.tls,
            directory,
        };
        site.wait()?;
        site.run(&["volume", "create", &site.volume()])?;
        Ok(site)
    }

    fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + TIME_MAX;
        while TcpStream::connect(&self.address).is_err() {
            if let Some(status) = self.server.try_wait()? {
                let log = std::fs::read_to_string(self.path("server.log"))?;
                bail!("the server has ended with {status}: {log}");
            }
            ensure!(Instant::now() < end, "the server does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn volume(&self) -> String {
        format!("{}/{VOLUME}", self.address)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("AZEKURA_CONFIG_DIR", self.path("config"));
        command
    }

    /// Runs the program; what it says.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        let mut command = self.command();
        command.args(words).args(self.is_plain.then_some("--plain"));
        run(command)
    }

    /// Mounts the volume under a name, nicer to others than the server if `is_nice`.
    pub(crate) fn mount(
        &self,
        name: &str,
        ticket: Option<&Path>,
        is_nice: bool,
    ) -> Result<Mount<'_>> {
        let point = self.path(name);
        std::fs::create_dir_all(&point)?;
        let mut command = match is_nice {
            true => {
                let mut nice = Command::new("nice");
                nice.args(["-n", "10"]).arg(&self.program);
                nice.env("AZEKURA_CONFIG_DIR", self.path("config"));
                nice
            }
            false => self.command(),
        };
        command
            .args(["mount", &self.volume()])
            .arg(&point)
            .args(self.is_plain.then_some("--plain"));
        if let Some(ticket) = ticket {
            command.arg("--ticket").arg(ticket);
        }
        run(command)?;
        Ok(Mount {
            site: self,
            point,
            is_there: true,
        })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Errors mean that it has ended by itself.
        let _ = kill_process(Pid::from_child(&self.server), Signal::TERM);
        let end = Instant::now() + TIME_MAX;
        while matches!(self.server.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Mount<'_> {
    /// Everything is at the server when this returns.
    pub(crate) fn end(mut self) -> Result<()> {
        self.is_there = false;
        let mut command = self.site.command();
        command.arg("umount").arg(&self.point);
        run(command).map(drop).inspect_err(|_| {
            let _ = unmount(&self.point, UnmountFlags::DETACH);
        })
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        if self.is_there {
            // Something has failed that is told already.
            let _ = unmount(&self.point, UnmountFlags::DETACH);
        }
    }
}

fn run(mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().context("azekura")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}", errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
