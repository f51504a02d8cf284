//! `azekura demo`: a server, a volume and a mount on this machine, with real files going through.
//!
//! Everything is done by the command line that users have, in a temporary directory with a
//! configuration of its own, and taken away at the end, also after a failure or Ctrl-C.

mod booked;
mod disk;
mod files;
mod scene;

use crate::errors::{Code, Failure, Result};
use crate::output::{self, rate, size, span};
use crate::progress::Progress;
use files::{Picked, pick};
use scene::Scene;
use serde_json::{Value, json};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Files that go through: some tens of megabytes, of this machine's own.
const BYTES: u64 = 48 << 20;

/// See it work: serve, mount, copy files in, read them back, reserve, on this machine
///
/// Starts a server on a free port of the loopback address and mounts a volume of it, in a temporary
/// directory. Then a stream records beside greedy writers, without a reservation and with one, on a
/// disk of 100 MB/s that takes 256 MiB of memory; that is left out where less than 1 GiB is free.
/// Needs root, because a server acts for the users who ask it.
#[derive(Debug, clap::Args)]
pub(super) struct Demo {
    /// End after the figures and clean up, instead of waiting for Enter; so it does, too, where
    /// standard input is no terminal
    #[arg(long)]
    once: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// How long the stream records without a reservation, and with one; 0 to leave that out
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=600))]
    seconds: u64,
    /// Leave the temporary directory with the copied files behind
    #[arg(long)]
    keep: bool,
    /// Be the process that serves the disk of a demonstration on this directory
    #[arg(long, hide = true, requires = "disk_bytes")]
    serve_disk: Option<PathBuf>,
    /// Of this size
    #[arg(long, hide = true, requires = "serve_disk")]
    disk_bytes: Option<u64>,
}

/// What was measured.
struct Figures {
    files: usize,
    bytes: u64,
    /// Half of the files are not larger.
    median_bytes: u64,
    write: Duration,
    read: Duration,
    round_trip: Duration,
}

/// Whether the user wants it to end.
#[derive(Clone, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::new(Code::Interrupted, "interrupted").hint("all is cleaned up"));
        }
        Ok(())
    }
}

impl Demo {
    pub(super) fn run(self) -> Result<()> {
        if let (Some(mount_point), Some(bytes)) = (&self.serve_disk, self.disk_bytes) {
            return disk::serve(mount_point, bytes);
        }
        if !rustix::process::geteuid().is_root() {
            let message = "a server acts for the users who ask it, which takes root";
            return Err(Failure::new(Code::ServerRights, message).hint("sudo azekura demo"));
        }
        let (sender, events) = mpsc::channel();
        let stop = Stop::default();
        let _runtime = watch_signals(stop.clone(), sender.clone())?;
        let mut scene = Scene::set(self.keep, self.seconds > 0, &stop)?;
        self.say(format_args!(
            "server     {} in {}",
            scene.address(),
            scene.path().display()
        ));
        scene.mount()?;
        let mount = scene.mount_point();
        self.say(format_args!(
            "mount      {}/demo on {}",
            scene.address(),
            mount.display()
        ));
        let figures = measure(&mut scene, &stop)?;
        if !self.json {
            output::write(&figures.page())?;
        }
        let booked = self.book(&mut scene, &stop)?;
        if self.json {
            let mut all = figures.to_json();
            all["reserved"] = booked.map_or(Value::Null, |booked| booked.to_json());
            output::json(&all)?;
        } else if let Some(booked) = booked {
            output::write(&booked.page())?;
        }
        if !self.once && !io::stdin().is_terminal() {
            self.say(format_args!(
                "\nIt ends here, for standard input is no terminal. In one it goes on until you \
                 press Enter."
            ));
        } else if !self.once {
            output::write(&next(&scene))?;
            std::thread::spawn(move || {
                let mut line = String::new();
                // Enter, the end of the input and an error all mean: enough.
                let _ = io::stdin().read_line(&mut line);
                let _ = sender.send(());
            });
            let _ = events.recv();
        }
        scene.clear()
    }

    /// The second part, where there is room for a store.
    fn book(&self, scene: &mut Scene, stop: &Stop) -> Result<Option<booked::Booked>> {
        if self.seconds == 0 {
            return Ok(None);
        }
        if !scene.has_store() {
            self.say(format_args!(
                "skipped: a reservation, for which less than 1 GiB of memory is free"
            ));
            return Ok(None);
        }
        let say = |text: std::fmt::Arguments<'_>| self.say(text);
        booked::run(scene, self.seconds, stop, &say).map(Some)
    }

    /// Says how far it is; with `--json`, only the figures are said.
    fn say(&self, text: std::fmt::Arguments<'_>) {
        if !self.json {
            output::note(text);
        }
    }
}

/// Notes a signal, and ends the waiting for Enter.
fn watch_signals(stop: Stop, sender: mpsc::Sender<()>) -> Result<tokio::runtime::Runtime> {
    let runtime = crate::connect::runtime()?;
    let mut signals = runtime.block_on(async { super::server::Signals::new() })?;
    runtime.spawn(async move {
        signals.wait().await;
        stop.0.store(true, Ordering::Relaxed);
        let _ = sender.send(());
    });
    Ok(runtime)
}

/// Copies files in until they are safe at the server, mounts anew so that nothing is cached here,
/// and reads every byte back.
fn measure(scene: &mut Scene, stop: &Stop) -> Result<Figures> {
    let picked = pick(BYTES);
    if picked.is_empty() {
        return Err(Failure::new(
            Code::Local,
            "there are no readable files below /usr",
        ));
    }
    let bytes = picked.iter().map(|file| file.bytes).sum();
    let progress = Progress::bytes("writing", bytes);
    let begun = Instant::now();
    for file in &picked {
        stop.check()?;
        file.copy_to(&scene.mount_point())?;
        progress.add(file.bytes);
    }
    scene.sync()?;
    let write = begun.elapsed();
    progress.finish();

    scene.remount()?;
    let progress = Progress::bytes("reading back", bytes);
    let mut read = Duration::ZERO;
    for file in &picked {
        stop.check()?;
        read += file.verify(&scene.mount_point())?;
        progress.add(file.bytes);
    }
    progress.finish();
    Ok(Figures {
        files: picked.len(),
        bytes,
        median_bytes: median(&picked),
        write,
        read,
        round_trip: scene.round_trip()?,
    })
}

/// The size of the file in the middle.
fn median(files: &[Picked]) -> u64 {
    let mut sizes: Vec<u64> = files.iter().map(|file| file.bytes).collect();
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or(0)
}

/// What the figures must not be taken for.
const REMARK: &str = if IS_DEVELOPMENT {
    "a development build, and small files on one machine;"
} else {
    "small files on one machine;"
};
/// Built with little optimisation and many checks, as for tests.
const IS_DEVELOPMENT: bool = cfg!(debug_assertions);

impl Figures {
    fn to_json(&self) -> Value {
        let per_second = |time: Duration| self.files as f64 / time.as_secs_f64();
        json!({
            "files": self.files,
            "bytes": self.bytes,
            "verified": true,
            "development_build": IS_DEVELOPMENT,
            "write_seconds": self.write.as_secs_f64(),
            "write_bytes_per_second": rate(self.bytes, self.write).0,
            "write_files_per_second": per_second(self.write),
            "read_seconds": self.read.as_secs_f64(),
            "read_bytes_per_second": rate(self.bytes, self.read).0,
            "read_files_per_second": per_second(self.read),
            "rtt_micros": u64::try_from(self.round_trip.as_micros()).unwrap_or(u64::MAX),
        })
    }

    fn page(&self) -> String {
        let line = |what: &str, time: Duration| {
            let files = self.files as f64 / time.as_secs_f64();
            let rate = rate(self.bytes, time);
            format!("{what:<10} {rate}, {files:.0} files/s ({})\n", span(time))
        };
        format!(
            "files      {} of this machine, {}, half of them up to {}\n{}{}round trip {}\n\
             verified   every byte\nremark     {REMARK}\n           the rates of a \
             line are measured in docs/performance.md\n",
            self.files,
            size(self.bytes),
            size(self.median_bytes),
            line("written", self.write),
            line("read back", self.read),
            span(self.round_trip),
        )
    }
}

/// What to try while it runs.
fn next(scene: &Scene) -> String {
    let (address, mount) = (scene.address(), scene.mount_point());
    let (mount, export) = (mount.display(), scene.export());
    let mut lines = vec![(
        format!("export AZEKURA_CONFIG_DIR={}", scene.config().display()),
        "",
    )];
    // Who runs it from where it was built has it on no path.
    let program = std::env::current_exe().ok();
    if let Some(directory) = program.as_deref().and_then(Path::parent) {
        lines.push((format!("PATH={}:$PATH", directory.display()), ""));
    }
    lines.extend([
        (format!("ls {mount}"), "the volume"),
        (
            format!("ls {}", export.display()),
            "the same files at the server",
        ),
        (format!("azekura top {mount}"), "window, in flight, hits"),
        (format!("azekura status {address}"), "the server's view"),
        (
            format!("azekura cp -r /etc {address}/demo:/"),
            "without a mount",
        ),
        (format!("azekura doctor {mount}"), "what could be better"),
        (
            format!("azekura reserve list {address}"),
            "what is reserved",
        ),
        (
            "unset AZEKURA_CONFIG_DIR".to_owned(),
            "at the end: of the demonstration alone",
        ),
    ]);
    let explained = lines.iter().filter(|(_, what)| !what.is_empty());
    let width = explained
        .map(|(command, _)| command.len())
        .max()
        .unwrap_or(0);
    let mut page =
        "\nIt goes on until you press Enter. In another terminal, as root:\n\n".to_owned();
    for (command, what) in lines {
        let line = match what {
            "" => format!("  {command}\n"),
            what => format!("  {command:<width$}  # {what}\n"),
        };
        page.push_str(&line);
    }
    page.push('\n');
    page
}

/// Whether a file's bytes are others than they were.
fn mismatch(file: &Picked, at: u64) -> Failure {
    let name = output::plain(&file.name.to_string_lossy());
    Failure::new(
        Code::Mismatch,
        format!("{name} differs from its original at byte {at}"),
    )
}
