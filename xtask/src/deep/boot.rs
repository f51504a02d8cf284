//! A Debian machine boots from an image on a web server: on demand, trained by another boot, and
//! with what it writes, which becomes the next version, whose boot nobody has recorded.
//!
//! Between the machine and the web server is a line of 100 ms ([`Line`]). The machine is emulated,
//! so its processor hides most of that: what is told is how often the web server was asked, how
//! many bytes came, for how long reads of the disk waited, and when the prompt was there.

use super::Subject;
use crate::process;
use crate::tools::find;
use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Downloading a Debian over a slow line.
const MAKE_LIMIT: Duration = Duration::from_secs(20 * 60);
const STEP_LIMIT: Duration = Duration::from_secs(5 * 60);
/// A boot of an emulated machine takes about 40 s on an idle one.
const BOOT_LIMIT: Duration = Duration::from_secs(10 * 60);
/// From a request to its answer.
const ROUND_TRIP: Duration = Duration::from_millis(100);
const MARK: &str = "written by the machine";

const PROGRAMS: [&str; 6] = [
    "mmdebstrap",
    "qemu-system-x86_64",
    "busybox",
    "mkfs.ext4",
    "e2fsck",
    "debugfs",
];

pub(crate) fn prepare() -> Result<Option<String>> {
    let missing: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|name| find(name).is_none())
        .collect();
    Ok((!missing.is_empty()).then(|| format!("missing: {}", missing.join(" "))))
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let place = Place {
        directory: subject.scratch.clone(),
        azekura: workspace::build_azekura(true)?,
    };
    place.make_image()?;
    place.azekura(&[
        "publish",
        "root.img",
        "--to",
        "www/images",
        "--name",
        "debian:1",
    ])?;
    let mut web = Web::start(&place.path("www"), &place.path("web.log"))?;
    let line = Line::start(&web.address)?;
    web.url = format!("http://{}/images", line.address);

    let record = ["--record", "boot.profile"];
    let untrained = place.measured(&web, &line, "debian:1", "on demand", &record)?;
    place.azekura(&["train", "debian:1", "boot.profile", "--at", "www/images"])?;
    let map = place.azekura(&["map", "debian:1", "--profile", "boot", "--at", "www/images"])?;
    println!("{}", map.trim_end());
    let profile = ["--profile", "boot"];
    let trained = place.measured(&web, &line, "debian:1", "trained", &profile)?;
    trained.judged_beside(&untrained)?;
    place.written(&web)?;
    let carry = ["train", "debian:2", "--from", "debian:1"];
    place.azekura(&[&carry[..], &["--at", "www/images"]].concat())?;
    let next = place.measured(&web, &line, "debian:2", "the next version", &profile)?;
    next.judged_beside(&untrained)
}

/// Where everything lies.
struct Place {
    directory: PathBuf,
    azekura: PathBuf,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.directory)
            .env("AZEKURA_CONFIG_DIR", self.path("config"));
        command
    }

    fn azekura(&self, words: &[&str]) -> Result<String> {
        let mut command = self.command(&self.azekura);
        process::check(command.arg("disk").args(words), STEP_LIMIT)
    }

    fn shell(&self, script: &str, limit: Duration) -> Result<String> {
        let mut command = self.command("sh");
        process::check(command.args(["-e", "-c", script]), limit)
    }

    /// A Debian with a file system, its kernel and initial files beside it.
    fn make_image(&self) -> Result<()> {
        let script = "mmdebstrap --quiet --variant=minbase \
            --include=linux-image-cloud-amd64,systemd-sysv,udev \
            --customize-hook='chroot \"$1\" passwd -d root' \
            --customize-hook='echo machine > \"$1/etc/hostname\"' \
            --customize-hook='echo \"/dev/vda / ext4 defaults 0 1\" > \"$1/etc/fstab\"' \
            bookworm root.tar
            mkdir root && tar -xf root.tar -C root --exclude='./dev/*'
            cp root/boot/vmlinuz-* vmlinuz && cp root/boot/initrd.img-* initrd.img
            truncate -s 1G root.img && mkfs.ext4 -q -F -d root root.img
            rm -r root root.tar";
        self.shell(script, MAKE_LIMIT).map(drop)
    }

    /// Boots from the web server with an empty cache; what that was asked for.
    fn measured(
        &self,
        web: &Web,
        line: &Line,
        name: &str,
        what: &str,
        more: &[&str],
    ) -> Result<Asked> {
        let _ = fs::remove_dir_all(self.path("cache"));
        let (before, bytes_before) = (web.requests()?, line.bytes());
        self.serve(web, name, more)?;
        let machine = Machine::start(self, "ro", "snapshot=on")?;
        let took = machine.until("login:")?;
        drop(machine);
        let said = self.azekura(&["detach", "unix:disk.sock", "--json"])?;
        let used = |key: &str| number(&said, key).with_context(|| format!("no {key}: {said}"));
        let asked = Asked {
            requests: web.requests()? - before,
            bytes: line.bytes() - bytes_before,
            wait_seconds: used("wait_seconds")?,
        };
        println!(
            "{what}: {} requests, {:.1} MB, waited {:.1} s in {} waits, fill rate {:.0} %, \
             {:.0} s to the prompt",
            asked.requests,
            asked.bytes as f64 / 1e6,
            asked.wait_seconds,
            used("waits")?,
            100.0 * used("fill_rate")?,
            took.as_secs_f64()
        );
        Ok(asked)
    }

    fn serve(&self, web: &Web, name: &str, more: &[&str]) -> Result<()> {
        let at = ["--nbd", "unix:disk.sock", "--cache", "cache"];
        let words = [&["serve", &web.url, name][..], &at, more].concat();
        self.azekura(&words).map(drop)
    }

    /// A machine writes, and what it has synced is in the next version and in no other.
    fn written(&self, web: &Web) -> Result<()> {
        self.serve(web, "debian:1", &["--writable"])?;
        let mut machine = Machine::start(self, "rw", "cache=none")?;
        machine.until("login:")?;
        machine.say("root")?;
        machine.until("#")?;
        machine.say(&format!(
            "echo {MARK} > /srv/mark; sync; echo synced-$((40 + 2))"
        ))?;
        machine.until("synced-42")?;
        // As if somebody had pulled the plug.
        drop(machine);
        self.azekura(&["detach", "unix:disk.sock"])?;
        let commit = ["commit", &web.url, "debian:1", "--to", "www/images"];
        self.azekura(&[&commit[..], &["--name", "debian:2", "--cache", "cache"]].concat())?;
        for (name, has_mark) in [("debian:1", false), ("debian:2", true)] {
            let words = [
                "export",
                name,
                "out.img",
                "--at",
                "www/images",
                "--overwrite",
            ];
            self.azekura(&[&words[..], &["--cache", "cache"]].concat())?;
            // Exit status 1 means that the journal was replayed.
            self.shell(
                "e2fsck -p out.img || [ $? = 1 ]; e2fsck -fn out.img",
                STEP_LIMIT,
            )?;
            let mark = self.shell("debugfs -R 'cat /srv/mark' out.img", STEP_LIMIT)?;
            ensure!(mark.contains(MARK) == has_mark, "{name} says {mark:?}");
        }
        println!("written, synced, and there in the next version");
        Ok(())
    }
}

/// An emulated machine with the disk that is served; it ends with this.
struct Machine {
    child: Child,
    input: ChildStdin,
    screen: PathBuf,
}

impl Machine {
    fn start(place: &Place, root: &str, drive: &str) -> Result<Self> {
        let screen = place.path("screen");
        let output = File::create(&screen)?;
        let disk = place.path("disk.sock");
        let mut child = place
            .command("qemu-system-x86_64")
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
            .args(["-m", "1024", "-nographic", "-no-reboot", "-net", "none"])
            .args(["-kernel", "vmlinuz", "-initrd", "initrd.img", "-append"])
            // An emulated machine beside others may take minutes to find its terminal.
            .arg(format!(
                "root=/dev/vda {root} console=ttyS0 quiet systemd.default_timeout_start_sec=600"
            ))
            .arg("-drive")
            .arg(format!(
                "file=nbd:unix:{},format=raw,if=virtio,{drive}",
                disk.display()
            ))
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("qemu-system-x86_64")?;
        let input = child.stdin.take().context("its input")?;
        Ok(Self {
            child,
            input,
            screen,
        })
    }

    /// Waits until this stands on the screen.
    fn until(&self, text: &str) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            let screen = fs::read(&self.screen)?;
            let screen = String::from_utf8_lossy(&screen);
            if screen.contains(text) {
                return Ok(begin.elapsed());
            }
            if begin.elapsed() > BOOT_LIMIT {
                let from = screen.len().saturating_sub(2000);
                let end = screen.get(from..).unwrap_or_default();
                bail!("{text:?} does not come:\n{end}");
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Types a line, on an empty screen.
    fn say(&mut self, line: &str) -> Result<()> {
        // The machine goes on at the end of the file, before which there are zeros now.
        File::options().write(true).open(&self.screen)?.set_len(0)?;
        writeln!(self.input, "{line}").context("typing")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        process::kill_tree(&mut self.child);
    }
}

/// What a boot asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    requests: usize,
    /// That came, heads included.
    bytes: u64,
    /// For how long at least one read of the disk waited.
    wait_seconds: f64,
}

/// The number behind a key, in JSON that the program has printed.
fn number(json: &str, key: &str) -> Option<f64> {
    let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
    let end = rest.find([',', '}', '\n'])?;
    rest[..end].trim().parse().ok()
}

/// How much longer a boot waits of which nothing was known.
const WAITS_RATIO_MIN: f64 = 5.0;

impl Asked {
    /// A boot like one that was recorded asks less and waits a fifth as long at most.
    fn judged_beside(&self, untrained: &Self) -> Result<()> {
        ensure!(
            self.requests < untrained.requests && self.bytes < untrained.bytes,
            "a trained boot asks more than one on demand: {self:?}, {untrained:?}"
        );
        ensure!(
            self.wait_seconds * WAITS_RATIO_MIN <= untrained.wait_seconds,
            "a trained boot waits too long: {self:?}, {untrained:?}"
        );
        Ok(())
    }
}

/// A line to a server that takes half a round trip in each direction. Its threads end with the
/// process.
struct Line {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
}

impl Line {
    fn start(server: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let line = Self {
            address: listener.local_addr()?,
            bytes: Arc::default(),
        };
        let (server, bytes) = (server.to_owned(), Arc::clone(&line.bytes));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&server) else {
                    continue;
                };
                let ends = (near.try_clone(), far.try_clone());
                if let (Ok(near_again), Ok(far_again)) = ends {
                    carry(near, far, Arc::default());
                    carry(far_again, near_again, Arc::clone(&bytes));
                }
            }
        });
        Ok(line)
    }

    /// What has come from the server.
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Carries bytes in one direction, each for half a round trip, however many are under way.
fn carry(mut from: TcpStream, mut to: TcpStream, count: Arc<AtomicU64>) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from.read(&mut piece) {
            count.fetch_add(len as u64, Ordering::Relaxed);
            let due = Instant::now() + ROUND_TRIP / 2;
            if sender.send((due, piece[..len].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        while let Ok((due, piece)) = receiver.recv() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        // Whoever reads is told that nothing follows; he may have gone himself.
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// A plain web server that writes down what it is asked for.
struct Web {
    child: Child,
    address: String,
    url: String,
    log: PathBuf,
}

impl Web {
    fn start(directory: &Path, log: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let output = File::create(log)?;
        let child = Command::new("busybox")
            .args(["httpd", "-f", "-vv", "-p", &address, "-h"])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("busybox httpd")?;
        let web = Self {
            child,
            url: format!("http://{address}/images"),
            address: address.clone(),
            log: log.to_owned(),
        };
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(&address).is_err() {
            ensure!(Instant::now() < end, "the web server does not begin");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(web)
    }

    fn requests(&self) -> Result<usize> {
        let text = fs::read_to_string(&self.log)?;
        Ok(text.matches("url:").count())
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        process::kill_tree(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_keys() {
        let json = "{\n  \"waits\": 3,\n  \"wait_seconds\": 0.25\n}";
        assert_eq!(number(json, "waits"), Some(3.0));
        assert_eq!(number(json, "wait_seconds"), Some(0.25));
        assert_eq!(number(json, "reads"), None);
    }
}
