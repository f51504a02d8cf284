//! Locks on parts of files, between two machines and between the opens of one.

use crate::common::{Scene, VOLUME, obstacle};
use crate::far::{Far, ONE_WAY, log_in};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// A lock of this kind on bytes `from..to`.
fn range(kind: libc::c_int, from: i64, to: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: from,
        l_len: to - from,
        l_pid: 0,
    }
}

fn set(file: &File, kind: libc::c_int, (from, to): (i64, i64)) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_SETLK(&range(kind, from, to))).map(drop)
}

fn set_of_open(file: &File, kind: libc::c_int, (from, to): (i64, i64)) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&range(kind, from, to))).map(drop)
}

struct Two {
    scene: Scene,
    mounts: [PathBuf; 2],
}

fn two() -> Option<Two> {
    if let Some(why) = obstacle() {
        println!("{why}");
        return None;
    }
    let mut scene = Scene::new();
    let mounts = ["near", "far"].map(|name| scene.mount(name, &["--timeout", "60s"]));
    for name in ["a", "b"] {
        fs::write(mounts[0].join(name), "contents").unwrap();
    }
    Some(Two { scene, mounts })
}

const READ: libc::c_int = libc::F_RDLCK;
const WRITE: libc::c_int = libc::F_WRLCK;
const FREE: libc::c_int = libc::F_UNLCK;
const REFUSED: Result<(), Errno> = Err(Errno::EAGAIN);

#[test]
fn ranges_that_one_machine_has_locked_are_refused_to_the_other() {
    let Some(mut two) = two() else {
        return;
    };
    let [near, far] = [0, 1].map(|mount: usize| open(&two.mounts[mount].join("a")));
    set(&near, WRITE, (0, 10)).unwrap();
    assert_eq!(set(&far, WRITE, (5, 15)), REFUSED);
    assert_eq!(set(&far, READ, (9, 10)), REFUSED);
    set(&far, WRITE, (10, 20)).unwrap();
    // Who asks what is in the way is told.
    let mut asked = range(WRITE, 0, 100);
    fcntl(&far, FcntlArg::F_GETLK(&mut asked)).unwrap();
    assert_eq!(
        (asked.l_type, asked.l_start, asked.l_len),
        (WRITE as i16, 0, 10)
    );
    // A hole in it, and a part that only keeps writers out.
    set(&near, FREE, (4, 6)).unwrap();
    set(&far, WRITE, (4, 6)).unwrap();
    assert_eq!(set(&far, WRITE, (3, 4)), REFUSED);
    set(&near, READ, (0, 4)).unwrap();
    set(&far, READ, (0, 4)).unwrap();
    assert_eq!(set(&far, WRITE, (0, 4)), REFUSED);
    // A machine that is taken off lets go of what it had.
    drop(near);
    let mount = two.mounts[0].clone();
    two.scene.umount(&mount);
    set(&far, WRITE, (0, 20)).unwrap();
}

#[test]
fn locks_of_an_open_belong_to_it_and_not_to_its_process() {
    let Some(two) = two() else {
        return;
    };
    let near = two.mounts[0].join("a");
    let [one, other] = [(); 2].map(|()| open(&near));
    let far = open(&two.mounts[1].join("a"));
    set_of_open(&one, WRITE, (100, 110)).unwrap();
    assert_eq!(set_of_open(&other, WRITE, (105, 106)), REFUSED);
    assert_eq!(set_of_open(&far, READ, (109, 120)), REFUSED);
    // Another open that is closed takes nothing along.
    drop(other);
    assert_eq!(set_of_open(&far, WRITE, (100, 101)), REFUSED);
    drop(one);
    let deadline = Instant::now() + Duration::from_secs(20);
    while set_of_open(&far, WRITE, (100, 110)).is_err() {
        assert!(Instant::now() < deadline, "it is let go with its open");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn two_machines_that_would_wait_for_each_other_for_ever_are_told_so() {
    let Some(two) = two() else {
        return;
    };
    let file = |mount: usize, name: &str| open(&two.mounts[mount].join(name));
    let [near, far] = [0, 1].map(|mount| ["a", "b"].map(|name| file(mount, name)));
    set(&near[0], WRITE, (0, 1)).unwrap();
    set(&far[1], WRITE, (0, 1)).unwrap();
    let wait = |file: &File| fcntl(file, FcntlArg::F_SETLKW(&range(WRITE, 0, 1))).map(drop);
    let outcomes = std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let outcome = wait(&near[1]);
            // Whoever is refused gives way.
            set(&near[0], FREE, (0, 1)).unwrap();
            outcome
        });
        std::thread::sleep(Duration::from_millis(300));
        let outcome = wait(&far[0]);
        set(&far[1], FREE, (0, 1)).unwrap();
        [waits.join().unwrap(), outcome]
    });
    let refused = outcomes.iter().filter(|it| **it == Err(Errno::EDEADLK));
    assert_eq!(refused.count(), 1, "{outcomes:?}");
    assert!(outcomes.contains(&Ok(())), "{outcomes:?}");
}

/// A process that locks a file, waiting for it, and says before and after that it does.
const LOCKER: &str = r#"
    use Fcntl qw(:DEFAULT :flock :seek);
    $| = 1;
    my ($name, $kind, $waits) = @ARGV;
    open(my $file, "+<", $name) or die $!;
    print "w";
    <STDIN>;
    # Nobody is to wait for it for ever.
    alarm 60;
    if ($kind eq "flock") {
        flock($file, $waits ? LOCK_EX : LOCK_EX | LOCK_NB) or die $!;
    } else {
        my $lock = pack("ssx4qqlx4", F_WRLCK, SEEK_SET, 0, 0, 0);
        fcntl($file, $waits ? F_SETLKW : F_SETLK, $lock) or die $!;
    }
    alarm 0;
    print "h";
    sleep 600;
"#;

struct Locker(Child);

impl Locker {
    /// One that has the file open, and goes on when it is told.
    fn opens(path: &Path, kind: &str, waits: bool) -> Self {
        let mut perl = Command::new("perl");
        perl.args(["-e", LOCKER]).arg(path).arg(kind);
        perl.arg(if waits { "1" } else { "" }).stdin(Stdio::piped());
        let mut locker = Self(perl.stdout(Stdio::piped()).spawn().unwrap());
        locker.says(b'w');
        locker
    }

    fn goes_on(&mut self) {
        drop(self.0.stdin.take());
    }

    fn new(path: &Path, kind: &str) -> Self {
        let mut locker = Self::opens(path, kind, true);
        locker.goes_on();
        locker
    }

    #[track_caller]
    fn says(&mut self, what: u8) {
        let mut said = [0];
        self.0
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        assert_eq!(said[0], what);
    }

    /// That it waits can only be guessed.
    fn waits(path: &Path, kind: &str) -> Self {
        let locker = Self::new(path, kind);
        std::thread::sleep(Duration::from_millis(400));
        locker
    }

    fn holds(path: &Path, kind: &str) -> Self {
        let mut locker = Self::new(path, kind);
        locker.says(b'h');
        locker
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        // With a signal that nothing outlives.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lock can be had within moments, and not only when a session has ended.
#[track_caller]
fn is_free(path: &Path, kind: &str) {
    let begun = Instant::now();
    drop(Locker::holds(path, kind));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn locks_of_processes_that_are_killed_are_nobodys() {
    let Some(two) = two() else {
        return;
    };
    let [near, far] = two.mounts.each_ref().map(|mount| mount.join("a"));
    for kind in ["flock", "range"] {
        drop(Locker::holds(&near, kind));
        is_free(&far, kind);
        // Killed while it waits.
        let holder = Locker::holds(&far, kind);
        drop(Locker::waits(&near, kind));
        drop(holder);
        is_free(&far, kind);
        // Killed while it waits and nobody answers, as is the one that holds it.
        let holder = Locker::holds(&far, kind);
        let waiting = Locker::waits(&near, kind);
        two.scene.signal(Signal::STOP);
        let killed = std::thread::spawn(move || drop((waiting, holder)));
        std::thread::sleep(Duration::from_millis(300));
        two.scene.signal(Signal::CONT);
        killed.join().unwrap();
        is_free(&far, kind);
        is_free(&near, kind);
        // One that waits for nobody, and cannot be broken off.
        let mut asking = Locker::opens(&near, kind, false);
        two.scene.signal(Signal::STOP);
        asking.goes_on();
        std::thread::sleep(Duration::from_millis(300));
        let killed = std::thread::spawn(move || drop(asking));
        std::thread::sleep(Duration::from_millis(300));
        two.scene.signal(Signal::CONT);
        killed.join().unwrap();
        is_free(&far, kind);
    }
}

#[test]
fn a_lock_is_nobodys_if_its_process_is_killed_and_the_line_breaks_at_once() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let line = Far::new(scene.address().to_owned(), ONE_WAY);
    log_in(&scene, &line.address);
    fs::write(scene.path("export/a"), "").unwrap();
    let volume = format!("{}/{VOLUME}", line.address);
    let far = scene
        .mount_volume(&volume, "far", &["--timeout", "60s"])
        .join("a");
    let near = scene.mount("near", &["--timeout", "60s"]).join("a");
    for kind in ["flock", "range"] {
        for pause in [0, 20, 60] {
            let holder = Locker::holds(&near, kind);
            let waiting = Locker::waits(&far, kind);
            // Before, while and after it arrives that nobody waits any more.
            let killed = std::thread::spawn(move || drop(waiting));
            std::thread::sleep(Duration::from_millis(pause));
            line.cut();
            killed.join().unwrap();
            drop(holder);
            is_free(&near, kind);
            is_free(&far, kind);
        }
    }
}
