//! Files that stay open here while another machine changes them, always to the same length: what is
//! read through the open of before.

use crate::checks::figures;
use crate::common::{Scene, obstacle};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LEN: usize = 20_000;
/// Longer than an open file without a lease is not looked at, on a busy machine.
const SEEN: Duration = Duration::from_secs(20);

/// Two machines and a file that the first has open.
struct Kept {
    scene: Scene,
    file: File,
    path: PathBuf,
    other: PathBuf,
    mount: PathBuf,
}

impl Kept {
    fn new(volume: impl FnOnce(&Scene) -> String, mut scene: Scene) -> Self {
        let volume = volume(&scene);
        let [mount, other] = ["one", "two"].map(|name| scene.mount_volume(&volume, name, &[]));
        fs::write(other.join("file"), [b'0'; LEN]).unwrap();
        let path = mount.join("file");
        let file = File::open(&path).unwrap();
        let other = other.join("file");
        let kept = Self {
            scene,
            file,
            path,
            other,
            mount,
        };
        assert_eq!(kept.read(), b'0');
        kept
    }

    /// What the file is full of.
    #[track_caller]
    fn read(&self) -> u8 {
        let mut bytes = [0; LEN];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        let different = bytes.iter().position(|byte| *byte != bytes[0]);
        assert_eq!(different, None, "{} and others", bytes[0]);
        bytes[0]
    }

    #[track_caller]
    fn until_read(&self, expected: u8) {
        let begun = Instant::now();
        while self.read() != expected {
            assert!(begun.elapsed() < SEEN, "{} is old", self.read());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn refill(&self, with: u8) {
        refill(&self.other, with);
    }
}

/// Writes the file full anew without making it shorter.
fn refill(path: &Path, with: u8) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[with; LEN], 0).unwrap();
}

fn is_seen_by_who_keeps_it_open(kept: &mut Kept) {
    // Leased: at once. Twice, and more: a lease that was taken back is given again.
    for round in b'e'..b'h' {
        // The server hears of the close before; then a look brings the lease.
        std::thread::sleep(Duration::from_millis(2500));
        kept.refill(round);
        assert_eq!(kept.read(), round, "leased");
    }
    // Open for writing elsewhere, so not leased.
    let writing = File::options().write(true).open(&kept.other).unwrap();
    for round in b'h'..b'k' {
        writing.write_all_at(&[round; LEN], 0).unwrap();
        writing.sync_all().unwrap();
        kept.until_read(round);
        assert_eq!(fs::read(&kept.path).unwrap(), vec![round; LEN], "opened");
    }
    drop(writing);
}

#[test]
fn a_change_is_seen_by_who_keeps_the_file_open() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut kept = Kept::new(Scene::volume, Scene::new());
    is_seen_by_who_keeps_it_open(&mut kept);
    // Nobody but this process knows of the other's lease; its machine was asleep.
    kept.until_read(b'j');
    let pid = figures(&kept.mount)["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    kept.refill(b'k');
    kept.refill(b'l');
    kill_process(pid, Signal::CONT).unwrap();
    kept.until_read(b'l');
    kept.refill(b'm');
    kept.until_read(b'm');
    // A server that does not know of leases any more.
    kept.scene.kill();
    kept.scene.start();
    kept.refill(b'n');
    kept.until_read(b'n');
}

#[test]
fn a_change_on_a_parallel_volume_is_seen_by_who_keeps_the_file_open() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::with_two_stores("64MiB");
    let mut kept = Kept::new(Scene::parallel, scene);
    is_seen_by_who_keeps_it_open(&mut kept);
}

/// A file that is read while it grows, through one open: each reader's read-ahead goes on.
#[test]
fn a_file_that_grows_is_followed_to_its_end() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    const PART: usize = 300_000;
    let kept = Kept::new(Scene::volume, Scene::new());
    let writing = File::options().append(true).open(&kept.other).unwrap();
    let mut whole = vec![b'0'; LEN];
    for round in 0..20_u8 {
        std::io::Write::write_all(&mut (&writing), &vec![round; PART]).unwrap();
        writing.sync_data().unwrap();
        whole.resize(whole.len() + PART, round);
        let begun = Instant::now();
        let mut seen = vec![0; whole.len()];
        while kept.file.read_exact_at(&mut seen, 0).is_err() || seen != whole {
            assert!(begun.elapsed() < SEEN, "round {round}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
