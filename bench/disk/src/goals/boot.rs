//! A Debian that boots at a distance from the disk, on demand and trained by another boot.
//!
//! The machine is emulated, and its processor hides the network: what counts is how often one read
//! waited after another (serial round trips), for how long, and what came over the line. It ends
//! when its prompt is there; what it writes stays in its own memory.

use super::Options;
use super::peers::Raw;
use super::report::{Goal, Report};
use super::site::{How, Site, has, output};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// An emulated machine takes about 40 s on an idle one.
const BOOT_TIME_MAX: Duration = Duration::from_secs(10 * 60);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const PROMPT: &str = "login:";
const PROFILE: &str = "boot";
/// A Debian with a file system, its kernel and initial files beside it.
const MAKE: &str = "mmdebstrap --quiet --variant=minbase \
    --include=linux-image-cloud-amd64,systemd-sysv,udev \
    --customize-hook='chroot \"$1\" passwd -d root' \
    --customize-hook='echo machine > \"$1/etc/hostname\"' \
    --customize-hook='echo \"/dev/vda / ext4 defaults 0 1\" > \"$1/etc/fstab\"' \
    bookworm root.tar
    mkdir tree && tar -xf root.tar -C tree --exclude='./dev/*'
    cp tree/boot/vmlinuz-* vmlinuz && cp tree/boot/initrd.img-* initrd.img
    truncate -s 1G root.img && mkfs.ext4 -q -F -d tree root.img
    rm -r tree root.tar";

/// One boot.
#[derive(Debug, Serialize)]
struct Row {
    how: &'static str,
    rtt_ms: u64,
    /// Until the disk was there, and from then to the prompt.
    ready_seconds: f64,
    seconds: f64,
    wait_seconds: f64,
    waits: u64,
    requests: u64,
    wire_bytes: u64,
    fill_rate: f64,
}

/// Where the machine's files are.
struct Files {
    directory: PathBuf,
}

impl Files {
    /// Those that were named, or new ones; none if that cannot be here, and why.
    fn find(site: &Site, options: &Options) -> Result<Result<Self, String>> {
        if !has("qemu-system-x86_64") {
            return Ok(Err("there is no qemu-system-x86_64 here".to_owned()));
        }
        if let Some(directory) = &options.machine {
            let directory = directory.canonicalize();
            let directory = directory.context("the directory of a machine")?;
            return Ok(Ok(Self { directory }));
        }
        if !has("mmdebstrap") {
            return Ok(Err("there is no mmdebstrap here".to_owned()));
        }
        let directory = site.path("machine");
        fs::create_dir(&directory)?;
        let mut command = Command::new("sh");
        command.args(["-e", "-c", MAKE]).current_dir(&directory);
        let made = output(&mut command).map(|_| Self { directory });
        Ok(made.map_err(|error| format!("no Debian can be made: {error:#}")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// An emulated machine; it ends with this.
struct Machine {
    child: Child,
    screen: PathBuf,
}

impl Machine {
    /// With this as its disk: a file, or an address that QEMU knows.
    fn start(site: &Site, files: &Files, disk: &str) -> Result<Self> {
        let screen = site.path("screen");
        let shown = File::create(&screen)?;
        let mut command = site.near("qemu-system-x86_64");
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]);
        command.args(["-m", "1024", "-nographic", "-no-reboot", "-net", "none"]);
        command.arg("-kernel").arg(files.path("vmlinuz"));
        command.arg("-initrd").arg(files.path("initrd.img"));
        // An emulated machine beside others may take minutes to find its terminal.
        let line = "root=/dev/vda ro console=ttyS0 quiet systemd.default_timeout_start_sec=600";
        command.args(["-append", line, "-drive"]);
        command.arg(format!("file={disk},format=raw,if=virtio,snapshot=on"));
        command.stdin(Stdio::null()).stdout(shown.try_clone()?);
        let child = command.stderr(shown).spawn();
        Ok(Self {
            child: child.context("qemu-system-x86_64")?,
            screen,
        })
    }

    /// Waits for the prompt.
    fn until_prompt(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            let screen = fs::read(&self.screen)?;
            let screen = String::from_utf8_lossy(&screen);
            if screen.contains(PROMPT) {
                return Ok(begin.elapsed());
            }
            let has_ended = self.child.try_wait()?.is_some();
            if has_ended || begin.elapsed() > BOOT_TIME_MAX {
                let last = screen.lines().last().unwrap_or_default();
                bail!("no prompt comes; the last line is {last:?}");
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A boot from what is served.
struct Boot {
    ready: Duration,
    took: Duration,
    /// How the disk was used.
    used: Value,
}

fn boot(site: &Site, files: &Files, repository: &str, how: How<'_>) -> Result<Boot> {
    let served = site.serve(repository, "debian:1", how)?;
    let mut machine = Machine::start(site, files, &format!("nbd:unix:{}", path(&served.socket)))?;
    let (ready, took) = (served.ready, machine.until_prompt()?);
    drop(machine);
    let used = served.end()?;
    Ok(Boot { ready, took, used })
}

fn path(socket: &Path) -> String {
    socket.to_string_lossy().into_owned()
}

fn measured(site: &Site, files: &Files, rtt_ms: u64, is_trained: bool) -> Result<Row> {
    site.far(rtt_ms);
    let how = How {
        profile: is_trained.then_some(PROFILE),
        ..How::default()
    };
    let before = site.requests();
    let Boot { ready, took, used } = boot(site, files, &site.url("boot"), how)?;
    let row = Row {
        how: if is_trained { "trained" } else { "on demand" },
        rtt_ms,
        ready_seconds: ready.as_secs_f64(),
        seconds: took.as_secs_f64(),
        wait_seconds: used["wait_seconds"].as_f64().unwrap_or(f64::NAN),
        waits: used["waits"].as_u64().unwrap_or_default(),
        requests: site.requests() - before,
        wire_bytes: site.wire_bytes(),
        fill_rate: used["fill_rate"].as_f64().unwrap_or_default(),
    };
    eprintln!("{row:?}");
    Ok(row)
}

pub(super) fn measure(site: &Site, options: &Options, report: &mut Report) -> Result<()> {
    let files = match Files::find(site, options)? {
        Ok(files) => files,
        Err(why) => {
            report.note(format!("no machine boots: {why}"));
            return Ok(());
        }
    };
    let far = site.farthest(options)?;
    site.publish(&files.path("root.img"), "boot", "debian:1")?;
    let on_demand = measured(site, &files, far, false)?;
    // A boot of its own, on a disk that is near.
    let record = site.path("boot.profile");
    let how = How {
        record: Some(&record),
        ..How::default()
    };
    boot(site, &files, "www/boot", how)?;
    let file = record.to_string_lossy();
    site.disk(&[
        "train", "debian:1", &file, "--as", PROFILE, "--at", "www/boot",
    ])?;
    let trained = measured(site, &files, far, true)?;
    judge(report, &trained, &on_demand);
    peer(site, &files, far, report)?;
    report.section("boot", &[on_demand, trained])
}

fn judge(report: &mut Report, trained: &Row, on_demand: &Row) {
    let what = format!(
        "Debian boots at {} ms, trained by another boot",
        trained.rtt_ms
    );
    let text = format!(
        "{}, {} requests, ready in {:.2} s, {:.0} s to the prompt; on demand {} and {}, {:.0} s",
        trained.waits,
        trained.requests,
        trained.ready_seconds,
        trained.seconds,
        on_demand.waits,
        on_demand.requests,
        on_demand.seconds
    );
    let name = |figure: &str| format!("{what}, {figure}");
    let goal = Goal::at_most(3.0, "<= 3");
    report.row(
        &name("serial round trips"),
        goal,
        trained.waits as f64,
        text,
    );
    let text = format!(
        "{:.2} s; on demand {:.2} s",
        trained.wait_seconds, on_demand.wait_seconds
    );
    let goal = Goal::at_most(1.0, "<= 1 s");
    report.row(&name("reads waited"), goal, trained.wait_seconds, text);
    let megabytes = |row: &Row| row.wire_bytes as f64 / 1e6;
    let text = format!(
        "{:.1} MB; on demand {:.1} MB",
        megabytes(trained),
        megabytes(on_demand)
    );
    let goal = Goal::at_most(10.5, "<= 10.5 MB");
    report.row(&name("over the line"), goal, megabytes(trained), text);
    let text = format!(
        "{:.1} %; on demand {:.1} %",
        100.0 * trained.fill_rate,
        100.0 * on_demand.fill_rate
    );
    let goal = Goal::at_least(0.95, ">= 95 %");
    report.row(&name("fill rate"), goal, trained.fill_rate, text);
}

/// QEMU with the raw image and its own curl.
fn peer(site: &Site, files: &Files, rtt_ms: u64, report: &mut Report) -> Result<()> {
    let raw = Raw::new(site, &files.path("root.img"))?;
    site.far(rtt_ms);
    let before = site.requests();
    let machine = Machine::start(site, files, &raw.url());
    report.note(match machine.and_then(|mut machine| machine.until_prompt()) {
        Ok(took) => format!(
            "QEMU's own curl, the raw image at {rtt_ms} ms: {} requests, {:.1} MB, {:.0} s to the \
             prompt",
            site.requests() - before,
            site.wire_bytes() as f64 / 1e6,
            took.as_secs_f64()
        ),
        Err(error) => format!("QEMU's own curl, the same boot: {error:#}"),
    });
    Ok(())
}
