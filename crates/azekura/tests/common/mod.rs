//! A server, a volume and mounts for one test, through the command line that users have.
//!
//! Everything lies in a temporary directory with a configuration of its own. Whatever happens to
//! the test, dropping the scene takes its mounts off and ends its server, by path and by number,
//! never by name: others run the same program.
//!
//! Servers are started by a shell that was started before anything was mounted. A process that a
//! test starts itself would be born with copies of the test's open files; closing them on the way
//! to the new program asks the server of their mount, and waits if that is the one about to be
//! started.

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No command of a test takes longer, also on a machine that is busy.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(120);
/// What a command that takes longer has to clean up after itself.
const CLEANING_TIME_MAX: Duration = Duration::from_secs(30);
/// From fork to exec, also on a busy machine.
const FORK_TIME_MAX: Duration = Duration::from_secs(5);
/// The volume that every scene has.
pub(crate) const VOLUME: &str = "v";

/// Why nothing can be served and mounted here, in one line, if so.
pub(crate) fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("skipped: serving and mounting need root");
    }
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    fuse.is_err()
        .then_some("skipped: /dev/fuse cannot be opened")
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The output of a command that must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        self.stdout
    }
}

/// Has a command end as Ctrl-C does, so that it leaves nothing mounted; kills it if it does not.
fn end_in_order(mut child: Child) {
    let _ = kill_process(Pid::from_child(&child), Signal::INT);
    let deadline = Instant::now() + CLEANING_TIME_MAX;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
}

/// Runs a command to its end, or fails the test when it takes too long.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Run {
    let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    command
        .stdout(out.try_clone().unwrap())
        .stderr(err.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + COMMAND_TIME_MAX;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() >= deadline {
            end_in_order(child);
            panic!("{command:?} takes too long: {}", read(err));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Run {
        status,
        stdout: read(out),
        stderr: read(err),
    }
}

fn read(mut file: File) -> String {
    use std::io::{Read, Seek};
    let mut text = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Starts a server for each line that it reads, says its process number, and that it has ended. A
/// line has an address and maybe a file that says which boot of the kernel the server is to see;
/// more arguments, none of them with a blank, are in a file.
const LAUNCHER: &str = r#"
while read -r address kernel; do
    if [ -n "$kernel" ]; then
        set -- unshare --mount sh -c \
            'mount --bind "$0" /proc/sys/kernel/random/boot_id &&
            umount -ailt fuse.azekura && exec "$@"' "$kernel" "$0"
    else
        set -- "$0"
    fi
    more=$(cat server.arguments)
    "$@" server --init --store-size "$STORE_SIZE" --with-parent --data srv --listen "$address" \
        $more >server.out 2>>server.log &
    echo $!
    wait $! 2>/dev/null
    echo ended
done
"#;
/// Time for a server to come up, also on a machine that is busy.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// See the module's head.
pub(crate) struct Scene {
    directory: TempDir,
    launcher: Child,
    launched: BufReader<ChildStdout>,
    server: Option<Pid>,
    address: String,
    /// See [`LAUNCHER`].
    kernel: Option<PathBuf>,
    mounts: Vec<PathBuf>,
    /// Arguments that every server has.
    lasting: Vec<String>,
}

impl Scene {
    /// Starts a server with a volume that is the export of `export/`.
    pub(crate) fn new() -> Self {
        Self::prepared(|_| None)
    }

    /// As [`Self::new`], of a server with a store of this size, on which there is a parallel volume
    /// `p`.
    pub(crate) fn with_store(size: &str) -> Self {
        Self::with_store_at(size, "127.0.0.1:0")
    }

    /// The same, of a server that listens there.
    pub(crate) fn with_store_at(size: &str, address: &str) -> Self {
        let scene = Self::made(size, address, |_| None);
        let volume = scene.parallel();
        scene.azekura(&["volume", "create", &volume]).ok();
        scene
    }

    /// As [`Self::new`], with two stores of this size, over which a parallel volume `p` is striped
    /// in small units.
    pub(crate) fn with_two_stores(size: &str) -> Self {
        let mut scene = Self::new();
        scene.end(Signal::TERM);
        for name in ["store-one", "store-other"] {
            let path = scene.path(name);
            let format = ["store", "format", text(&path), "--size", size];
            let quick = ["--unit", "64KiB", "--no-calibration"];
            scene.azekura(&[&format[..], &quick[..]].concat()).ok();
            let store = ["--store".to_owned(), text(&path).to_owned()];
            scene.lasting.extend(store);
        }
        scene.start();
        let volume = scene.parallel();
        let create = ["volume", "create", &volume, "--parallel"];
        let unit = ["--stripe-unit", "64KiB"];
        scene.azekura(&[&create[..], &unit[..]].concat()).ok();
        scene
    }

    /// The parallel volume of [`Self::with_store`].
    pub(crate) fn parallel(&self) -> String {
        format!("{}/p", self.address)
    }

    /// As [`Self::new`], after something has been done with the directory `export/`; the server
    /// sees the boot of the kernel that the returned file names.
    pub(crate) fn prepared(prepare: impl FnOnce(&Path) -> Option<PathBuf>) -> Self {
        Self::made("0", "127.0.0.1:0", prepare)
    }

    fn made(
        store_size: &str,
        address: &str,
        prepare: impl FnOnce(&Path) -> Option<PathBuf>,
    ) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("azekura-e2e-")
            .tempdir()
            .unwrap();
        let mut launcher = Command::new("sh");
        launcher
            .args(["-c", LAUNCHER, env!("CARGO_BIN_EXE_azekura")])
            .env("STORE_SIZE", store_size);
        let mut launcher = configured(&mut launcher, directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut scene = Self {
            launched: BufReader::new(launcher.stdout.take().unwrap()),
            launcher,
            directory,
            server: None,
            address: address.to_owned(),
            kernel: None,
            mounts: Vec::new(),
            lasting: Vec::new(),
        };
        let export = scene.path("export");
        fs::create_dir(&export).unwrap();
        scene.kernel = prepare(&export);
        scene.start();
        scene
            .azekura(&[
                "volume",
                "create",
                &scene.volume(),
                "--export",
                text(&export),
            ])
            .ok();
        scene
    }

    /// A path in the scene's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where the server listens, also after it was started again.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The volume that every scene has.
    pub(crate) fn volume(&self) -> String {
        format!("{}/{VOLUME}", self.address)
    }

    /// The program with the scene's configuration, in the scene's directory.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
        configured(&mut command, self.directory.path());
        command
    }

    /// Runs a command of the program.
    #[track_caller]
    pub(crate) fn azekura(&self, arguments: &[&str]) -> Run {
        run(self.command().args(arguments))
    }

    /// Starts the server, at the address that it had before.
    pub(crate) fn start(&mut self) {
        self.start_with(&[]);
    }

    /// The same with more arguments.
    pub(crate) fn start_with(&mut self, more: &[&str]) {
        if let Some(said) = self.try_start(more) {
            panic!("no server: {said}");
        }
    }

    /// The same; if the server ends instead, everything that it has said.
    pub(crate) fn try_start(&mut self, more: &[&str]) -> Option<String> {
        let all = self.lasting.iter().map(String::as_str);
        let all: Vec<&str> = all.chain(more.iter().copied()).collect();
        fs::write(self.path("server.arguments"), all.join(" ")).unwrap();
        let out = self.path("server.out");
        fs::write(&out, "").unwrap();
        let kernel = self.kernel.as_deref().map_or("", text);
        let line = format!("{} {kernel}\n", self.address);
        let mut launcher = self.launcher.stdin.as_ref().unwrap();
        launcher.write_all(line.as_bytes()).unwrap();
        let mut pid = String::new();
        self.launched.read_line(&mut pid).unwrap();
        self.server = Pid::from_raw(pid.trim().parse().unwrap());
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            let said = fs::read_to_string(&out).unwrap();
            let rest = said.split_once("ready on ").map(|(_, rest)| rest);
            if let Some((address, _)) = rest.and_then(|rest| rest.split_once(',')) {
                self.address = address.to_owned();
                return None;
            }
            if !self.is_running() {
                self.until_ended();
                return Some(self.log());
            }
            assert!(Instant::now() < deadline, "no server: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What all servers have said so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap()
    }

    fn is_running(&self) -> bool {
        let pid = self.server.map(Pid::as_raw_nonzero);
        pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
    }

    /// Sends a signal to the server. One that is stopped does nothing any more when this returns.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.server.expect("the server runs"), signal).unwrap();
        if signal == Signal::STOP {
            self.until_stopped();
        }
    }

    /// The signal alone leaves threads running for a while.
    fn until_stopped(&self) {
        let pid = self.server.expect("the server runs").as_raw_nonzero();
        let tasks = format!("/proc/{pid}/task");
        let is_stopped = |stat: String| stat.rsplit(") ").next().unwrap().starts_with('T');
        let stat = |task: fs::DirEntry| fs::read_to_string(task.path().join("stat")).unwrap();
        let deadline = Instant::now() + COMMAND_TIME_MAX;
        while !fs::read_dir(&tasks)
            .unwrap()
            .all(|task| is_stopped(stat(task.unwrap())))
        {
            assert!(Instant::now() < deadline, "the server does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills the server, which gets no chance to say or write anything.
    /// From the next start, the server may have so many open files.
    pub(crate) fn limit_open_files(&self, max: u64) {
        let launcher = i32::try_from(self.launcher.id()).unwrap();
        let limit = Rlimit {
            current: Some(max),
            maximum: Some(max),
        };
        prlimit(Pid::from_raw(launcher), Resource::Nofile, limit).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Ends the server by a signal: in order, or not.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.until_ended();
    }

    fn until_ended(&mut self) {
        // Only then are all its files closed, the lock on its data directory too.
        let mut ended = String::new();
        self.launched.read_line(&mut ended).unwrap();
        assert_eq!(ended, "ended\n");
        self.server = None;
    }

    /// Mounts the volume on a directory of this name.
    #[track_caller]
    pub(crate) fn mount(&mut self, name: &str, options: &[&str]) -> PathBuf {
        self.mount_volume(&self.volume(), name, options)
    }

    /// Mounts another volume on a directory of this name.
    #[track_caller]
    pub(crate) fn mount_volume(&mut self, volume: &str, name: &str, options: &[&str]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        let mut arguments = vec!["mount", volume, text(&path)];
        arguments.extend(options);
        self.mounts.push(path.clone());
        self.azekura(&arguments).ok();
        path
    }

    /// Takes a mount off in order. What another test's child, between fork and exec, has open of
    /// it for a moment, may be in the way.
    #[track_caller]
    pub(crate) fn umount(&mut self, path: &Path) {
        let begun = Instant::now();
        // Its server syncs a file system that other tests write much to.
        let umount = ["umount", text(path), "--timeout", "120s"];
        let mut done = self.azekura(&umount);
        while done.stderr.contains("AZ0505") && begun.elapsed() < FORK_TIME_MAX {
            std::thread::sleep(Duration::from_millis(20));
            done = self.azekura(&umount);
        }
        done.ok();
        self.mounts.retain(|mount| mount != path);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for path in std::mem::take(&mut self.mounts) {
            // A failure that a test is about may have taken it off already.
            let _ = self
                .command()
                .args(["umount", "--force"])
                .arg(path)
                .output();
        }
        if let Some(pid) = self.server {
            let _ = kill_process(pid, Signal::KILL);
        }
        // The end of its input ends it.
        drop(self.launcher.stdin.take());
        let _ = self.launcher.wait();
    }
}

/// A command with a scene's configuration, in its directory.
fn configured<'a>(command: &'a mut Command, directory: &Path) -> &'a mut Command {
    command
        .env("AZEKURA_CONFIG_DIR", directory.join("config"))
        .env_remove("RUST_LOG");
    command.current_dir(directory).stdin(Stdio::null())
}

/// A path as an argument; temporary directories have UTF-8 names.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str()
        .expect("temporary directories have names in UTF-8")
}
