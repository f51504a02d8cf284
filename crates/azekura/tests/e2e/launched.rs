//! Servers beside that of a scene: storage servers and managers, started and killed one by one.

use crate::checks::json;
use crate::common::Scene;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Until another server has come to know something, or the test fails.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(60);

/// Starts a server for each line of arguments, none of them with a blank; says its process number,
/// and that it has ended. See the head of `common`.
const LAUNCHER: &str = r#"
while read -r line; do
    "$0" server --with-parent $line >"$NAME.out" 2>>"$NAME.log" &
    echo $!
    wait $!
    echo ended
done
"#;

/// A server beside that of a scene.
pub(crate) struct Launched {
    directory: PathBuf,
    pub(crate) name: &'static str,
    launcher: Child,
    launched: BufReader<ChildStdout>,
    pub(crate) pid: Option<Pid>,
    pub(crate) address: String,
}

impl Launched {
    /// Before anything is mounted.
    pub(crate) fn new(scene: &Scene, name: &'static str) -> Self {
        Self::configured(scene, name, &format!("{name}.config"))
    }

    /// The same, of a server that listens there.
    pub(crate) fn at(scene: &Scene, name: &'static str, address: &str) -> Self {
        let mut this = Self::new(scene, name);
        address.clone_into(&mut this.address);
        this
    }

    /// The same with the configuration in this directory of the scene.
    pub(crate) fn configured(scene: &Scene, name: &'static str, config: &str) -> Self {
        let directory = scene.path(".");
        let mut launcher = Command::new("sh")
            .args(["-c", LAUNCHER, env!("CARGO_BIN_EXE_azekura")])
            .env("NAME", name)
            .env("AZEKURA_CONFIG_DIR", directory.join(config))
            .env_remove("RUST_LOG")
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            launched: BufReader::new(launcher.stdout.take().unwrap()),
            launcher,
            directory,
            name,
            pid: None,
            address: "127.0.0.1:0".to_owned(),
        }
    }

    /// Joins the scene's cluster with a store of this size.
    pub(crate) fn join(&mut self, scene: &Scene, size: &str) {
        let join = join_string(scene, "storage");
        let manager = scene.address();
        self.start(&format!("--store-size {size} --join {manager} {join}"));
        self.until_known(scene);
    }

    pub(crate) fn until_known(&self, scene: &Scene) {
        until("the server is known", || {
            let servers = servers(scene);
            servers.iter().any(|server| {
                server["addresses"][0] == self.address && server["seconds_away"].is_null()
            })
        });
    }

    /// Starts it, at the address that it had before.
    pub(crate) fn start(&mut self, more: &str) {
        let said = self.try_start(more);
        assert!(said.is_none(), "no server: {}", said.unwrap_or_default());
    }

    /// The same; if it ends instead, everything that it has said.
    pub(crate) fn try_start(&mut self, more: &str) -> Option<String> {
        let (name, address) = (self.name, &self.address);
        let out = self.directory.join(format!("{name}.out"));
        fs::write(&out, "").unwrap();
        let line = format!("--data {name} --listen {address} {more}\n");
        let mut launcher = self.launcher.stdin.as_ref().unwrap();
        launcher.write_all(line.as_bytes()).unwrap();
        let mut pid = String::new();
        self.launched.read_line(&mut pid).unwrap();
        self.pid = Pid::from_raw(pid.trim().parse().unwrap());
        let deadline = Instant::now() + TIME_MAX;
        loop {
            let said = fs::read_to_string(&out).unwrap();
            // One of several managers may stand by.
            let rest = said
                .split_once("ready on ")
                .or(said.split_once("standing by on "));
            let rest = rest.map(|(_, rest)| rest);
            if let Some((address, _)) = rest.and_then(|rest| rest.split_once(',')) {
                self.address = address.to_owned();
                return None;
            }
            let pid = self.pid.unwrap().as_raw_nonzero();
            if !Path::new(&format!("/proc/{pid}")).exists() {
                self.until_ended();
                let log = self.directory.join(format!("{name}.log"));
                return Some(fs::read_to_string(log).unwrap());
            }
            assert!(Instant::now() < deadline, "no server");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has said since it was started.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.directory.join(format!("{}.out", self.name))).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        kill_process(self.pid.expect("it runs"), Signal::KILL).unwrap();
        self.until_ended();
    }

    pub(crate) fn until_ended(&mut self) {
        let mut ended = String::new();
        self.launched.read_line(&mut ended).unwrap();
        assert_eq!(ended, "ended\n");
        self.pid = None;
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            let _ = kill_process(pid, Signal::KILL);
        }
        drop(self.launcher.stdin.take());
        let _ = self.launcher.wait();
    }
}

#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIME_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn join_string(scene: &Scene, kind: &str) -> String {
    let made = scene.azekura(&["join", "create", scene.address(), "--kind", kind, "--json"]);
    let made: Value = serde_json::from_str(&made.ok()).unwrap();
    made["join_string"].as_str().unwrap().to_owned()
}

/// The servers of a cluster, as its manager knows them.
pub(crate) fn servers(scene: &Scene) -> Vec<Value> {
    let status = json(scene.azekura(&["status", scene.address(), "--json"]));
    status["servers"].as_array().unwrap().clone()
}
