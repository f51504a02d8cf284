//! A server that is stopped: what is answered without it, for how long, and what waits for it.

use crate::checks::figures;
use crate::common::{Scene, obstacle, text};
use crate::mapping::Mapping;
use base::limits::LEASE_TRUST_TIME;
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// What is answered from here takes no longer, also on a machine that is busy.
const AT_ONCE: Duration = Duration::from_secs(2);
/// What has not ended by then waits for the server.
const WAITS: Duration = Duration::from_millis(700);
/// Any end of what waited.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does something on a thread of its own and tells what came of it.
fn begin<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(job()));
    receiver
}

/// What programs ask for all the time: names, attributes, listings, contents.
fn look(mount: &Path) -> (u64, usize, Vec<u8>, bool) {
    let len = fs::metadata(mount.join("dir/file")).unwrap().len();
    let entries = fs::read_dir(mount.join("dir")).unwrap().count();
    let contents = fs::read(mount.join("dir/file")).unwrap();
    (len, entries, contents, mount.join("dir/none").exists())
}

#[test]
fn what_is_cached_is_answered_while_the_server_is_trusted_and_no_longer() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let directory = scene.path("export/dir");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("file"), "contents").unwrap();
    fs::write(directory.join("open"), vec![7; 1 << 20]).unwrap();
    let mount = scene.mount("mnt", &["--timeout", "20s"]);
    let expected = (8, 2, b"contents".to_vec(), false);
    let open = File::open(mount.join("dir/open")).unwrap();
    let mut page = [0; 4096];
    open.read_exact_at(&mut page, 0).unwrap();
    // Twice: what is asked for once more is known, down to the name that is not there.
    assert_eq!(
        [look(&mount), look(&mount)],
        [expected.clone(), expected.clone()]
    );
    // The server's last word, just now.
    scene.azekura(&["sync", text(&mount)]).ok();
    let stopped = Instant::now();
    scene.signal(Signal::STOP);
    while stopped.elapsed() + Duration::from_secs(1) < LEASE_TRUST_TIME {
        let at = mount.clone();
        let looked = begin(move || look(&at)).recv_timeout(AT_ONCE);
        assert_eq!(
            looked.as_ref(),
            Ok(&expected),
            "{:?} after the last word",
            stopped.elapsed()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    std::thread::sleep(LEASE_TRUST_TIME + Duration::from_millis(300) - stopped.elapsed());
    let questions: [fn(PathBuf) -> u64; 4] = [
        |mount| fs::metadata(mount.join("dir/file")).unwrap().len(),
        |mount| fs::read(mount.join("dir/file")).unwrap().len() as u64,
        |mount| fs::read_dir(mount.join("dir")).unwrap().count() as u64,
        |mount| u64::from(mount.join("dir/none").exists()),
    ];
    let asked = questions.map(|question| {
        let mount = mount.clone();
        begin(move || question(mount))
    });
    std::thread::sleep(WAITS);
    let answers = asked.each_ref().map(Receiver::try_recv);
    assert_eq!(answers, [Err(TryRecvError::Empty); 4], "without the server");
    // Pages of what is open need nobody.
    let open = begin(move || (open.read_exact_at(&mut page, 0).map(|()| page), open));
    let (read, open) = open.recv_timeout(AT_ONCE).expect("the kernel has the page");
    assert_eq!(read.unwrap(), [7; 4096]);
    // Pages that it does not have do.
    let elsewhere = begin(move || {
        let mut page = [0; 4096];
        open.read_exact_at(&mut page, 900 << 10).unwrap();
        page
    });
    assert_eq!(
        elsewhere.recv_timeout(WAITS),
        Err(RecvTimeoutError::Timeout)
    );
    scene.signal(Signal::CONT);
    let answers = asked.map(|asked| asked.recv_timeout(PATIENCE));
    assert_eq!(answers, [Ok(8), Ok(8), Ok(2), Ok(0)]);
    assert_eq!(elsewhere.recv_timeout(PATIENCE).unwrap(), [7; 4096]);
}

/// Whatever was asked about the file before: the kernel wants to know more before it writes.
#[test]
fn a_write_waits_for_no_server() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("export/file"), "x").unwrap();
    let mount = scene.mount("mnt", &["--timeout", "20s"]);
    let path = mount.join("file");
    let mut file = File::options().write(true).open(&path).unwrap();
    for round in 0..3 {
        scene.signal(Signal::STOP);
        let written = begin(move || file.write_all_at(b"more", round * 4).map(|()| file));
        let written = written.recv_timeout(AT_ONCE);
        scene.signal(Signal::CONT);
        file = written.expect("it is held here").unwrap();
        match round {
            0 => drop(file.metadata().unwrap()),
            1 => file.sync_all().unwrap(),
            _ => {}
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), round * 4 + 4);
    }
    drop(file);
    assert_eq!(
        fs::read(scene.path("export/file")).unwrap(),
        b"moremoremore"
    );
}

/// More requests than the client lets wait at once.
#[test]
fn many_small_writes_wait_for_a_server_that_is_stopped() {
    const WRITES: u64 = 12_000;
    const APART: u64 = 8192;
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "60s"]);
    let file = File::create(mount.join("file")).unwrap();
    file.set_len(WRITES * APART).unwrap();
    file.sync_all().unwrap();
    scene.signal(Signal::STOP);
    let written = begin(move || {
        // From the end on: nothing continues anything.
        let mut numbers = (0..WRITES).rev();
        let written = numbers.try_for_each(|n| file.write_all_at(&n.to_le_bytes(), n * APART));
        written.map(|()| file)
    });
    // Those that are not held here wait.
    std::thread::sleep(Duration::from_secs(3));
    scene.signal(Signal::CONT);
    let file = written
        .recv_timeout(PATIENCE)
        .expect("nothing waits for ever");
    let file = file.unwrap();
    file.sync_all().unwrap();
    let stored = File::open(scene.path("export/file")).unwrap();
    for n in 0..WRITES {
        let mut found = [0; 8];
        stored.read_exact_at(&mut found, n * APART).unwrap();
        assert_eq!(u64::from_le_bytes(found), n);
    }
}

/// What Linux does: a kernel that passes it on makes the promise better than its word.
#[test]
fn syncfs_hands_dirty_pages_over_and_asks_no_server() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "20s"]);
    let create = |name: &str| {
        let mut options = File::options();
        options.read(true).write(true).create(true);
        options.open(mount.join(name)).unwrap()
    };
    let (written, mapped) = (create("written"), create("mapped"));
    mapped.set_len(4096).unwrap();
    let mut mapping = Mapping::new(&mapped, 4096);
    // From here on the page is in memory: who uses it asks nobody.
    assert_eq!(mapping.bytes()[0], 0);
    scene.azekura(&["sync", text(&mount)]).ok();
    scene.signal(Signal::STOP);
    written.write_all_at(&[1; 100_000], 0).unwrap();
    mapping.bytes().fill(2);
    let unwritten = || figures(&mount)["unwritten_bytes"].as_u64().unwrap();
    assert_eq!(unwritten(), 100_000, "a page that is dirty is the kernel's");
    let root = File::open(&mount).unwrap();
    let synced = begin(move || rustix::fs::syncfs(&root)).recv_timeout(AT_ONCE);
    assert_eq!(synced, Ok(Ok(())), "it does not wait for the server");
    let begun = Instant::now();
    while unwritten() < 100_000 + 4096 {
        assert!(
            begun.elapsed() < AT_ONCE,
            "the page has not been written back"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    // What does ask: it waits.
    let at = mount.clone();
    let synced = begin(move || rustix::fs::getxattr(at, "user.azekura.sync", &mut [0; 1][..]));
    assert_eq!(synced.recv_timeout(WAITS), Err(RecvTimeoutError::Timeout));
    scene.signal(Signal::CONT);
    assert_eq!(synced.recv_timeout(PATIENCE), Ok(Ok(1)));
    assert_eq!(unwritten(), 0);
    assert_eq!(fs::read(scene.path("export/mapped")).unwrap(), [2; 4096]);
}

/// What the mount and the server's machine say of what lies in a directory.
fn state(directory: &Path) -> Vec<(String, u32, u64)> {
    // Just after a silence the patience is short. It is compared again.
    let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut;
    let entries = match fs::read_dir(directory) {
        Err(error) if is_late(&error) => return Vec::new(),
        entries => entries.unwrap(),
    };
    let in_time = entries.filter(|entry| !entry.as_ref().is_err_and(is_late));
    let entries = in_time.map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // What is made late may take it away just then. It is compared again.
        let Ok(about) = fs::metadata(entry.path()) else {
            return (name, 0, 0);
        };
        let len = if about.is_dir() { 0 } else { about.len() };
        (name, about.permissions().mode(), len)
    });
    let mut all: Vec<_> = entries.collect();
    all.sort();
    all
}

/// A server that stands still for longer than a call may take, and does what was asked all the same
/// once it goes on.
#[test]
fn what_was_done_after_its_time_was_over_is_seen() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let export = scene.path("export/dir");
    fs::create_dir(&export).unwrap();
    let mount = scene.mount("mnt", &["--timeout", "1s"]).join("dir");
    let mut given_up = 0;
    for round in 0..4 {
        for name in ["mode", "len", "dir", "from", "gone"] {
            let path = export.join(format!("{name}{round}"));
            match name {
                "dir" => fs::create_dir(path).unwrap(),
                _ => fs::write(path, "contents").unwrap(),
            }
        }
        until_equal(&mount, &export);
        let at = |name: &str| mount.join(format!("{name}{round}"));
        let jobs: Vec<Box<dyn FnOnce() -> std::io::Result<()> + Send>> = vec![
            Box::new({
                let path = at("mode");
                move || fs::set_permissions(path, fs::Permissions::from_mode(0o400))
            }),
            Box::new({
                let path = at("len");
                move || nix::unistd::truncate(&path, 3).map_err(Into::into)
            }),
            Box::new({
                let path = at("made");
                move || fs::create_dir(path)
            }),
            Box::new({
                let path = at("dir");
                move || fs::remove_dir(path)
            }),
            Box::new({
                let (from, to) = (at("from"), at("to"));
                move || fs::rename(from, to)
            }),
        ];
        scene.signal(Signal::STOP);
        let ends: Vec<_> = jobs.into_iter().map(begin).collect();
        std::thread::sleep(Duration::from_millis(1300));
        scene.signal(Signal::CONT);
        for end in ends {
            given_up += usize::from(end.recv_timeout(PATIENCE).unwrap().is_err());
        }
        until_equal(&mount, &export);
        for name in ["mode", "len"] {
            let path = format!("{name}{round}");
            let [here, there] = [&mount, &export].map(|top| fs::read(top.join(&path)).unwrap());
            assert_eq!(here, there, "{path}");
        }
    }
    assert!(given_up > 0, "nothing took too long");
}

/// Changes of the server's machine are heard of a little later, and what was late is late.
#[track_caller]
fn until_equal(mount: &Path, export: &Path) {
    let begun = Instant::now();
    while state(mount) != state(export) {
        let (here, there) = (state(mount), state(export));
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "{here:?}\n{there:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn calls_that_the_kernel_lets_wait_for_each_other_do_not_add_up_their_times() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    const TIME: Duration = Duration::from_secs(3);
    let mut scene = Scene::new();
    fs::create_dir(scene.path("export/dir")).unwrap();
    fs::write(scene.path("export/large"), vec![7; 16 << 20]).unwrap();
    let mount = scene.mount("mnt", &["--timeout", "3s"]);
    let large = File::open(mount.join("large")).unwrap();
    fs::metadata(mount.join("dir")).unwrap();
    scene.signal(Signal::STOP);
    let stopped = Instant::now();
    // The kernel makes one change of a directory after the other.
    let mut calls: Vec<_> = (0..8)
        .map(|number| {
            let path = mount.join(format!("dir/{number}"));
            begin(move || (fs::create_dir(path), stopped.elapsed()))
        })
        .collect();
    calls.push(begin(move || {
        let read = large.read_exact_at(&mut [0; 4096], 12 << 20);
        (read, stopped.elapsed())
    }));
    for call in calls {
        let (made, when) = call.recv_timeout(PATIENCE).unwrap();
        let error = made.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!(when < TIME + AT_ONCE, "{when:?}");
    }
    // What comes now is answered with what the server says, and it may take its time again.
    scene.signal(Signal::CONT);
    let created = || fs::create_dir(mount.join("dir/at last"));
    while let Err(error) = created() {
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!(stopped.elapsed() < PATIENCE);
    }
    scene.signal(Signal::STOP);
    let path = mount.join("dir/later");
    let waits = begin(move || fs::create_dir(path));
    let waited = waits.recv_timeout(WAITS);
    assert!(matches!(waited, Err(RecvTimeoutError::Timeout)));
    scene.signal(Signal::CONT);
    waits.recv_timeout(PATIENCE).unwrap().unwrap();
}

/// Runs a program while the server is stopped and kills it; then the server goes on, and does what
/// the program has asked for, as `is_done` says. `meanwhile` is done between.
#[track_caller]
fn kill_in_silence(
    scene: &Scene,
    program: &mut Command,
    meanwhile: impl Fn(),
    is_done: impl Fn() -> bool,
) {
    // On a machine that is busy it may be killed before it has asked for anything.
    for _ in 0..10 {
        scene.signal(Signal::STOP);
        let mut running = program.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        running.kill().unwrap();
        let ended = running.wait().unwrap();
        meanwhile();
        scene.signal(Signal::CONT);
        assert!(!ended.success(), "{program:?} has ended before");
        let begun = Instant::now();
        while begun.elapsed() < AT_ONCE {
            if is_done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    panic!("{program:?} never gets to its work");
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[track_caller]
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The server makes it all the same, and the kernel has been told before that there is nothing, or
/// something.
#[test]
fn what_was_done_for_somebody_who_was_killed_is_seen() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    let export = scene.path("export");
    fs::write(mount.join("before"), b"x").unwrap();
    let makes: [&[&str]; 3] = [&["mkdir"], &["mkfifo"], &["ln", "-s", "nowhere"]];
    for words in makes {
        assert_eq!(fs::read_dir(&mount).unwrap().count(), 1, "all is known");
        let path = mount.join("made");
        assert!(!is_there(&path));
        let mut make = Command::new(words[0]);
        let make = make.args(&words[1..]).arg(&path);
        kill_in_silence(&scene, make, || {}, || is_there(&export.join("made")));
        soon("it is seen", || is_there(&path));
        match words[0] {
            "mkdir" => fs::remove_dir(&path).unwrap(),
            _ => fs::remove_file(&path).unwrap(),
        }
    }
    let [old, new] = ["old", "new"].map(|name| mount.join(name));
    fs::create_dir(&old).unwrap();
    scene.azekura(&["sync", text(&mount)]).ok();
    assert!(is_there(&old) && !is_there(&new));
    // It is still there as far as anybody knows.
    let look = || _ = fs::symlink_metadata(&old);
    let renamed = || is_there(&export.join("new"));
    let mut program = Command::new("mv");
    kill_in_silence(&scene, program.args([&old, &new]), look, renamed);
    soon("that is seen", || is_there(&new) && !is_there(&old));
    let look = || _ = fs::symlink_metadata(&new);
    let removed = || !is_there(&export.join("new"));
    kill_in_silence(&scene, Command::new("rmdir").arg(&new), look, removed);
    soon("that is seen", || !is_there(&new));
    scene.umount(&mount);
}
