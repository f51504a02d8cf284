//! What programs hear when something that they wrote is lost.

use crate::checks::{fails, json};
use crate::common::{Scene, obstacle, run, text};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A volume with little space, mounted.
struct Small {
    scene: Scene,
    disk: PathBuf,
}

impl Small {
    fn new() -> (Self, PathBuf) {
        let mut scene = Scene::new();
        let disk = scene.path("disk");
        fs::create_dir(&disk).unwrap();
        let tmpfs = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", text(&disk)];
        run(Command::new("mount").args(tmpfs)).ok();
        let volume = format!("{}/small", scene.address());
        let create = ["volume", "create", &volume, "--export", text(&disk)];
        scene.azekura(&create).ok();
        let mount = scene.mount_volume(&volume, "mnt", &[]);
        (Self { scene, disk }, mount)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // The server has it open; it is gone when the server is.
        let _ = Command::new("umount").arg("-l").arg(&self.disk).output();
        assert!(!self.scene.path("disk/file").exists());
    }
}

fn is_full(outcome: io::Result<()>) -> bool {
    outcome.is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
}

/// A child of this process: its copies of open files are closed when it runs its program.
#[track_caller]
fn child() {
    run(&mut Command::new("true")).ok();
}

#[test]
fn no_close_takes_the_error_of_a_write_away_from_fsync() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let (_small, mount) = Small::new();
    let mut writer = File::create(mount.join("file")).unwrap();
    let other = File::open(mount.join("file")).unwrap();
    // It is taken here, or refused when the first part has failed already.
    let _ = writer.write_all(&vec![1; 4 << 20]);
    child();
    drop(writer.try_clone().unwrap());
    let told = [(); 2].map(|()| is_full(writer.sync_all()));
    assert_eq!(told, [true, false], "once, by fsync");
    let told = [(); 2].map(|()| is_full(other.sync_all()));
    assert_eq!(told, [true, false], "each open once");
}

#[test]
fn what_found_no_room_is_not_shown_as_if_it_had() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let (small, mount) = Small::new();
    let same = |name: &str| {
        let (here, there) = (mount.join(name), small.disk.join(name));
        let Ok(found) = fs::metadata(&there) else {
            // Created with its first bytes, it was refused with them.
            assert!(fs::metadata(&here).is_err(), "{name}");
            return 0;
        };
        let size = found.len();
        assert_eq!(fs::metadata(&here).unwrap().len(), size, "{name}");
        assert!(
            fs::read(&here).unwrap() == fs::read(&there).unwrap(),
            "{name}"
        );
        size
    };
    // One that gets some of the space, with holes maybe, and one that finds none.
    for name in ["file", "none"] {
        let path = mount.join(name);
        let script = ["-c", "head -c 4m /dev/urandom > \"$0\"", text(&path)];
        drop(run(Command::new("sh").args(script)));
        assert!(same(name) < 4 << 20, "{name}");
    }
}

#[test]
fn what_is_removed_again_after_a_full_disk_keeps_no_mount() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let (small, mount) = Small::new();
    for name in ["file", "none"] {
        let path = mount.join(name);
        let script = ["-c", "head -c 4m /dev/urandom > \"$0\"", text(&path)];
        drop(run(Command::new("sh").args(script)));
    }
    fs::remove_file(mount.join("file")).unwrap();
    // Created with its first bytes, it was refused with them, and may be known to be so by now.
    let removed = fs::remove_file(mount.join("none"));
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    assert!(removed.as_ref().err().is_none_or(is_gone), "{removed:?}");
    if removed.is_err() {
        // There was nothing to remove, and whoever syncs is told why (D6), once.
        assert!(is_full(File::open(&mount).unwrap().sync_all()));
    }
    small.scene.azekura(&["umount", text(&mount)]).ok();
}

#[test]
fn an_error_that_only_a_close_has_told_is_told_to_who_syncs_later() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let (_small, mount) = Small::new();
    let path = mount.join("file");
    // Like a shell that does not look at what close says.
    let copied = run(Command::new("sh").args(["-c", "head -c 4m /dev/zero > \"$0\"", text(&path)]));
    drop(copied);
    let holder = File::open(&path).unwrap();
    assert!(is_full(holder.sync_all()));
    let later = File::open(&path).unwrap();
    later.sync_all().unwrap();
}

/// The close is the kernel's, and nobody hears what it says.
#[test]
fn what_a_program_has_lost_that_ended_at_once_is_told_by_sync() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let (small, mount) = Small::new();
    fs::write(mount.join("file"), "x").unwrap();
    small.scene.azekura(&["sync", text(&mount)]).ok();
    // Whatever room there is.
    let _ = fs::write(small.disk.join("filler"), vec![1; 2 << 20]);
    let path = mount.join("file");
    let script = [
        "-c",
        "exec >> \"$0\"; printf %0300000d 7; kill -9 $$",
        text(&path),
    ];
    assert!(!run(Command::new("sh").args(script)).status.success());
    let sync = || small.scene.azekura(&["sync", text(&mount)]);
    let told = sync();
    assert!(
        !told.status.success() && told.stderr.contains("no space"),
        "{told:?}"
    );
    sync().ok();
    fs::remove_file(small.disk.join("filler")).unwrap();
    small.scene.azekura(&["umount", text(&mount)]).ok();
    // It is looked for where it is not to be.
    fs::remove_file(small.disk.join("file")).unwrap();
}

#[test]
fn a_copy_that_finds_no_room_says_what_is_left_and_goes_on_when_there_is_room() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let (small, _mount) = Small::new();
    let scene = &small.scene;
    let bytes: Vec<u8> = (0..4_000_000_u32).map(|n| (n / 7) as u8).collect();
    fs::create_dir(scene.path("from")).unwrap();
    fs::write(scene.path("from/little"), "little").unwrap();
    let target = format!("{}/small:/", scene.address());
    let copy = |more: &[&str]| {
        let all = [&["cp", "-r", "-p"], more, &["from", &target]].concat();
        scene.azekura(&all)
    };
    copy(&[]).ok();
    fs::write(scene.path("from/large"), &bytes).unwrap();
    let full = copy(&["--continue"]);
    fails(&full, "AZ0405");
    let said = "not copied: from/large: no space left; an incomplete file is left at the target \
                (AZ0403)";
    assert!(full.stderr.contains(said), "{}", full.stderr);
    assert!(!full.stderr.contains("WARN"), "{}", full.stderr);
    let left = small.disk.join("from/large");
    assert!(fs::metadata(&left).unwrap().len() < bytes.len() as u64);
    let room = ["-o", "remount,size=8m", text(&small.disk)];
    run(Command::new("mount").args(room)).ok();
    let rest = copy(&["--continue"]);
    assert!(rest.status.success(), "{rest:?}");
    assert!(rest.stderr.contains("1 there already"), "{rest:?}");
    assert!(fs::read(left).unwrap() == bytes);
}

#[test]
fn of_files_created_ahead_together_only_those_vanish_that_the_server_refuses() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let (small, mount) = Small::new();
    // 64 pages are left.
    let mut filler = File::create(mount.join("filler")).unwrap();
    filler.write_all(&vec![1; 768 << 10]).unwrap();
    filler.sync_all().unwrap();
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    // The first creation finds out that there is no default ACL.
    fs::write(dir.join("first"), "").unwrap();
    File::open(&dir).unwrap().sync_all().unwrap();
    let page = |number: u8| vec![number; if number % 4 == 3 { 62 << 10 } else { 9 }];
    let are_ahead: Vec<bool> = (0..24)
        .map(|number| {
            let mut file = File::create(dir.join(format!("{number:02}"))).unwrap();
            file.write_all(&page(number)).unwrap();
            file.metadata().unwrap().ino() >= 1 << 63
        })
        .collect();
    let ahead = are_ahead.iter().filter(|&&is_ahead| is_ahead).count();
    assert!(ahead > 12, "{ahead} files were created ahead");
    let synced = File::open(&dir).unwrap().sync_all();
    assert!(is_full(synced), "six files of 62 KiB have no room");
    let at_server = small.disk.join("dir");
    let mut refused = 0;
    for (number, is_ahead) in (0..).zip(are_ahead) {
        let name = format!("{number:02}");
        let here = fs::read(dir.join(&name)).ok();
        assert_eq!(here, fs::read(at_server.join(&name)).ok(), "{name}");
        match here {
            Some(contents) if contents == page(number) => {}
            // Created at the server after a first refusal was known here: its data had no room.
            Some(part) => assert!(
                !is_ahead && page(number).starts_with(&part),
                "{name}, created ahead {is_ahead}: {} bytes",
                part.len()
            ),
            None => refused += 1,
        }
    }
    assert!((1..=6).contains(&refused), "{refused} files were refused");
    File::open(&dir)
        .unwrap()
        .sync_all()
        .expect("it has been told");
}

/// An ext4 whose disk has no more room than a tmpfs, exported.
struct Failing {
    scene: Scene,
    room: PathBuf,
}

impl Failing {
    fn new() -> Option<Self> {
        let mut made = None;
        let scene = Scene::prepared(|export| {
            made = Self::make(export);
            None
        });
        made.map(|room| Self { scene, room })
    }

    fn make(export: &Path) -> Option<PathBuf> {
        let room = export.with_file_name("room");
        fs::create_dir(&room).unwrap();
        let tmpfs = ["-t", "tmpfs", "-o", "size=40m", "tmpfs", text(&room)];
        run(Command::new("mount").args(tmpfs)).ok();
        let image = room.join("image");
        File::create(&image).unwrap().set_len(128 << 20).unwrap();
        let mut format = Command::new("mkfs.ext4");
        format.args(["-q", "-O", "^has_journal"]).arg(&image);
        let mut mount = Command::new("mount");
        mount
            .args(["-o", "loop,errors=continue"])
            .arg(&image)
            .arg(export);
        let made = run(&mut format).status.success() && run(&mut mount).status.success();
        if !made {
            println!("skipped: no ext4 of our own here");
            Self::clear(export, &room);
        }
        made.then_some(room)
    }

    fn clear(export: &Path, room: &Path) {
        for place in [export, room] {
            let _ = Command::new("umount").arg("-l").arg(place).output();
        }
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        Self::clear(&self.scene.path("export"), &self.room);
    }
}

const LEN: usize = 8_000_000;

/// The kernel tells an error of the whole file system once.
#[test]
fn an_error_that_one_machine_hears_is_no_success_for_the_others() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let Some(mut failing) = Failing::new() else {
        return;
    };
    let scene = &mut failing.scene;
    let (one, two) = (scene.mount("one", &[]), scene.mount("two", &[]));
    let paths = [one.join("one"), two.join("two")];
    for path in &paths {
        fs::write(path, "before").unwrap();
    }
    scene.azekura(&["sync", text(&one)]).ok();
    scene.azekura(&["sync", text(&two)]).ok();
    let files = paths.each_ref().map(|path| {
        let file = File::options().write(true).open(path).unwrap();
        // More than the room that is left in what the tmpfs has given already.
        file.write_all_at(&vec![b'A'; LEN], 0).unwrap();
        file
    });
    for name in ["one", "two"] {
        let path = scene.path("export").join(name);
        let begun = Instant::now();
        while fs::metadata(&path).unwrap().len() != LEN as u64 {
            assert!(begun.elapsed() < Duration::from_secs(4), "not yet stored");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // It is not on its disk: that has no room now.
    let filled = fs::write(failing.room.join("fill"), vec![0; 64 << 20]);
    assert!(is_full(filled));
    let synced = scene.azekura(&["sync", text(&one)]);
    assert!(!synced.status.success());
    fs::remove_file(failing.room.join("fill")).unwrap();
    // The other one has made everything durable by itself, as far as it was possible.
    let begun = Instant::now();
    loop {
        let figures = json(scene.azekura(&["top", text(&two), "--once", "--json"]));
        if figures["unwritten_bytes"] == 0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{figures}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let synced = scene.azekura(&["sync", text(&two)]);
    assert!(!synced.status.success(), "its data is lost");
    drop(files);
}

/// A file system keeps what it did until there was no room, and so everybody sees that.
#[test]
fn what_an_allocation_without_room_has_done_is_there() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let Some(mut failing) = Failing::new() else {
        return;
    };
    let scene = &mut failing.scene;
    let mount = scene.mount("mnt", &[]);
    let export = scene.path("export");
    let zero = FallocateFlags::FALLOC_FL_ZERO_RANGE;
    for (name, mode) in [("zeroed", zero), ("longer", FallocateFlags::empty())] {
        let path = mount.join(name);
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).unwrap();
        file.write_all_at(&vec![b'A'; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        let mut before = vec![0; 1 << 20];
        file.read_exact_at(&mut before, 0).unwrap();
        let full = fallocate(&file, mode, 0, 1 << 30);
        assert_eq!(full, Err(Errno::ENOSPC), "{name}");
        let there = fs::read(export.join(name)).unwrap();
        assert!(there.len() > before.len(), "{name}: it did nothing");
        assert_eq!(file.metadata().unwrap().len(), there.len() as u64, "{name}");
        let mut found = vec![0; there.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == there, "{name}: old contents");
        drop(file);
        assert!(fs::read(&path).unwrap() == there, "{name}: opened anew");
        fs::remove_file(&path).unwrap();
        scene.azekura(&["sync", text(&mount)]).ok();
    }
    scene.umount(&mount);
}

/// Each was open at a server that had room for them all.
#[test]
fn writes_to_more_open_files_than_a_restarted_server_has_room_for_arrive() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    let names: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let opened: Vec<File> = names
        .iter()
        .map(|name| {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true);
            let file = options.open(mount.join(name)).unwrap();
            file.write_all_at(b"before", 0).unwrap();
            file
        })
        .collect();
    scene.azekura(&["sync", text(&mount)]).ok();
    scene.kill();
    // Of these three eighths are for opens of one credential.
    scene.limit_open_files(400);
    scene.start();
    for file in &opened {
        file.write_all_at(b"after!", 0).unwrap();
    }
    for (file, name) in opened.iter().zip(&names) {
        file.sync_all()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = fs::read(scene.path("export").join(name)).unwrap();
        assert_eq!(found, b"after!", "{name}");
    }
    drop(opened);
    scene.umount(&mount);
}
