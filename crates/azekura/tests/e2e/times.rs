//! Times of files: whose they are, and what reading does to them.

use crate::checks::figures;
use crate::common::{Scene, obstacle, run, text};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Time = (i64, i64);

fn accessed(metadata: &Metadata) -> Time {
    (metadata.atime(), metadata.atime_nsec())
}

fn modified(metadata: &Metadata) -> Time {
    (metadata.mtime(), metadata.mtime_nsec())
}

fn changed(metadata: &Metadata) -> Time {
    (metadata.ctime(), metadata.ctime_nsec())
}

#[track_caller]
fn times(path: &Path) -> [Time; 3] {
    let metadata = fs::symlink_metadata(path).unwrap();
    [accessed(&metadata), modified(&metadata), changed(&metadata)]
}

fn clock() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now.as_secs() as i64, i64::from(now.subsec_nanos()))
}

#[track_caller]
fn set_times(path: &Path, [last_access, last_modification]: [Time; 2]) {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(last_access),
        last_modification: time(last_modification),
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Changes of the server's tree are called back some milliseconds later.
#[track_caller]
fn soon_same(here: &Path, there: &Path) {
    let begun = Instant::now();
    while times(here) != times(there) {
        let late = begun.elapsed() > Duration::from_secs(10);
        assert!(!late, "{:?} and not {:?}", times(here), times(there));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn times_are_the_servers_to_the_nanosecond() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let export = scene.path("export");
    for name in ["early", "written"] {
        // Too long to come with a look-up, which counts as a read.
        fs::write(export.join(name), vec![b'x'; 10_000]).unwrap();
    }
    set_times(&export.join("early"), [(1, 1), (-7, 999_999_999)]);
    let mount = scene.mount("mnt", &[]);
    let [here, there] = [&mount, &export].map(|top| top.join("early"));
    assert_eq!(times(&here), times(&there));
    assert_eq!(times(&here)[..2], [(1, 1), (-7, 999_999_999)]);
    // Changed on either side.
    set_times(&there, [(5, 123_456_789), (6, 987_654_321)]);
    soon_same(&here, &there);
    set_times(&here, [(1_000, 7), (4_000_000_000, 8)]);
    assert_eq!(times(&here)[..2], [(1_000, 7), (4_000_000_000, 8)]);
    assert_eq!(times(&here), times(&there));
    // One alone, and the server's clock.
    set_times(&here, [(9, 9), (0, UTIME_OMIT)]);
    assert_eq!(times(&here)[..2], [(9, 9), (4_000_000_000, 8)]);
    set_times(&here, [(0, UTIME_OMIT), (0, UTIME_NOW)]);
    assert_eq!(times(&here)[0], (9, 9));
    assert_eq!(times(&here), times(&there));
    let [here, there] = [&mount, &export].map(|top| top.join("written"));
    for len in [10, 100_000, 3_000_000] {
        fs::write(&here, vec![1; len]).unwrap();
        assert_eq!(times(&here), times(&there), "after {len} bytes");
    }
    fs::set_permissions(&here, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(times(&here), times(&there));
}

#[test]
fn until_the_server_has_answered_a_long_write_this_machines_clock_is_shown() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let path = scene.path("export/file");
    fs::write(&path, "x").unwrap();
    set_times(&path, [(1, 1), (2, 2)]);
    let mount = scene.mount("mnt", &["--timeout", "20s"]);
    let file = File::options()
        .write(true)
        .open(mount.join("file"))
        .unwrap();
    scene.signal(Signal::STOP);
    let before = clock();
    file.write_all_at(&vec![1; 3 << 20], 0).unwrap();
    let after = clock();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), 3 << 20);
    for shown in [modified(&metadata), changed(&metadata)] {
        assert!(
            before <= shown && shown <= after,
            "{before:?} {shown:?} {after:?}"
        );
    }
    // Of little that is on its way who asks waits for the server's times.
    scene.signal(Signal::CONT);
    file.sync_all().unwrap();
    scene.signal(Signal::STOP);
    file.write_all_at(b"little", 0).unwrap();
    let asks = std::thread::spawn(move || file.metadata().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    assert!(!asks.is_finished(), "nobody knows the time yet");
    scene.signal(Signal::CONT);
    let metadata = asks.join().unwrap();
    assert_eq!(modified(&metadata), times(&path)[1]);
    assert_eq!(times(&mount.join("file")), times(&path));
}

#[test]
fn a_file_created_ahead_keeps_the_times_that_it_showed_until_it_changes() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    let directory = mount.join("dir");
    fs::create_dir(&directory).unwrap();
    // The first creation finds out that there is no default ACL.
    fs::write(directory.join("first"), "").unwrap();
    scene.azekura(&["sync", text(&mount)]).ok();
    let begun = clock();
    let names = || (0..8).map(|number| PathBuf::from(format!("dir/{number}")));
    let shown = names().map(|name| {
        let path = mount.join(&name);
        fs::write(&path, "contents").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        (metadata.ino() >= 1 << 63).then(|| (name, times(&path)))
    });
    let shown: Vec<_> = shown.flatten().collect();
    let ended = clock();
    assert!(
        !shown.is_empty(),
        "none was created ahead: {}",
        figures(&mount)
    );
    scene.azekura(&["sync", text(&mount)]).ok();
    for (name, before) in &shown {
        let (here, there) = (mount.join(name), scene.path("export").join(name));
        assert_eq!(&times(&here), before, "nobody has touched it");
        assert!(before.iter().all(|time| (&begun..=&ended).contains(&time)));
        assert_ne!(times(&here), times(&there), "the server has made it later");
    }
    for (number, (name, _)) in shown.iter().enumerate() {
        let (here, there) = (mount.join(name), scene.path("export").join(name));
        if number % 2 == 0 {
            fs::set_permissions(&here, Permissions::from_mode(0o640)).unwrap();
        } else {
            fs::write(&here, "other contents").unwrap();
        }
        assert_eq!(times(&here), times(&there));
    }
}

#[test]
fn a_file_created_ahead_has_one_inode_number_from_the_first_moment() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    let directory = mount.join("dir");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("first"), "").unwrap();
    scene.azekura(&["sync", text(&mount)]).ok();
    let files: Vec<_> = (0..8)
        .map(|number| {
            let path = directory.join(number.to_string());
            let file = File::create_new(&path).unwrap();
            let number = file.metadata().unwrap().ino();
            (path, file, number)
        })
        .collect();
    let numbers: BTreeSet<u64> = files.iter().map(|(_, _, number)| *number).collect();
    assert_eq!(numbers.len(), files.len(), "{numbers:?}");
    assert!(
        numbers.iter().any(|number| *number >= 1 << 63),
        "none was created ahead: {numbers:?}"
    );
    let same = || {
        for (path, file, number) in &files {
            assert_eq!(file.metadata().unwrap().ino(), *number);
            assert_eq!(fs::metadata(path).unwrap().ino(), *number);
        }
    };
    same();
    scene.azekura(&["sync", text(&mount)]).ok();
    same();
}

/// A file system of its own, whose options say what reading does.
struct Export(PathBuf);

impl Export {
    fn new(path: &Path) -> Self {
        let mut mount = Command::new("mount");
        run(mount.args([
            "-t",
            "tmpfs",
            "-o",
            "size=8m,strictatime",
            "tmpfs",
            text(path),
        ]))
        .ok();
        Self(path.to_owned())
    }

    fn remount(&self, option: &str) {
        let mut mount = Command::new("mount");
        run(mount.args(["-o", &format!("remount,{option}"), text(&self.0)])).ok();
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_read_counts_as_the_server_says_and_one_from_a_cache_does_not() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut made = None;
    let mut scene = Scene::prepared(|export| {
        made = Some(Export::new(export));
        None
    });
    let export = made.unwrap();
    let old = (1_000, 1);
    for name in ["one", "two"] {
        fs::write(export.0.join(name), vec![1; 200_000]).unwrap();
        set_times(&export.0.join(name), [old, old]);
    }
    let mount = scene.mount("mnt", &[]);
    let accessed = |name: &str| times(&export.0.join(name))[0];
    let read = |file: &File| file.read_exact_at(&mut vec![0; 200_000], 0).unwrap();

    let one = File::open(mount.join("one")).unwrap();
    read(&one);
    assert!(accessed("one") > old, "strictatime");
    // A cache answers what follows.
    set_times(&mount.join("one"), [old, (0, UTIME_OMIT)]);
    assert_eq!(accessed("one"), old);
    let received = figures(&mount)["read_bytes"].clone();
    read(&one);
    assert_eq!(figures(&mount)["read_bytes"], received, "the kernel has it");
    assert_eq!(accessed("one"), old);

    export.remount("noatime");
    read(&File::open(mount.join("two")).unwrap());
    assert_eq!(accessed("two"), old, "noatime");
}
