//! What is sent again to a server that was killed, or whose machine lost power: all that may be
//! lost, and nothing that would undo what came after it.

use crate::checks::json;
use crate::common::{Scene, obstacle, text};
use crate::disk::Disk;
use base::limits::LEASE_TRUST_TIME;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use rustix::fs::copy_file_range;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of every file at first.
const LEN: usize = 600_000;

/// Two mounts of one export, and a file system that can lose power if there is one.
struct Place {
    /// It goes first: the scene removes its directories, and this one is mounted there.
    disk: Option<Disk>,
    scene: Scene,
    near: PathBuf,
    far: PathBuf,
}

impl Place {
    fn new(disk: bool) -> Option<Self> {
        let mut made = None;
        let mut scene = Scene::prepared(|export| {
            made = disk.then(|| Disk::new(export)).flatten();
            made.as_ref().map(|disk| disk.kernel.clone())
        });
        if disk && made.is_none() {
            println!("skipped: no ext4 of our own here");
            return None;
        }
        let near = scene.mount("near", &["--timeout", "60s"]);
        let far = scene.mount("far", &["--timeout", "60s"]);
        let disk = made;
        let place = Self {
            disk,
            scene,
            near,
            far,
        };
        Some(place)
    }

    /// A file with a durable zero in it and all `A` on top, which is at the server and not durable.
    fn file(&self, name: &str) -> File {
        let path = self.near.join(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap();
        file.write_all_at(b"0", 0).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(&[b'A'; LEN], 0).unwrap();
        file
    }

    /// Waits until the server has all that was written.
    fn stored(&self, name: &str) {
        for _ in 0..500 {
            let found = fs::read(self.scene.path("export").join(name)).unwrap();
            if found.len() == LEN && found[0] == b'A' {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{name} does not come to the server");
    }

    fn open_far(&self, name: &str, truncate: bool) -> File {
        let mut options = File::options();
        options.write(true).truncate(truncate);
        options.open(self.far.join(name)).unwrap()
    }

    /// Another machine and a program of the server's own write and sync.
    fn change_from_elsewhere(&self) {
        let local = self.scene.path("export/local");
        let local = File::options().write(true).open(local).unwrap();
        let elsewhere = self.open_far("elsewhere", false);
        for file in [elsewhere, self.open_far("emptied", true), local] {
            file.write_all_at(&[b'B'; 4096], 0).unwrap();
            file.sync_all().unwrap();
        }
        // What a program of the server's machine does is heard of a moment later.
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Ends the server while `acts` are under way, with its machine if it has a disk of its own.
    fn die(&mut self, acts: Vec<Box<dyn FnOnce() + Send>>) {
        self.scene.signal(Signal::STOP);
        let acting: Vec<_> = acts.into_iter().map(std::thread::spawn).collect();
        std::thread::sleep(Duration::from_millis(300));
        self.scene.kill();
        if let Some(disk) = &mut self.disk {
            disk.lose_power();
        }
        self.scene.start();
        for act in acting {
            act.join().unwrap();
        }
        for mount in [&self.near, &self.far] {
            let synced = self.scene.azekura(&["sync", text(mount)]);
            // What cannot be sent again is told, then.
            assert!(synced.status.success() || self.disk.is_some());
        }
    }

    /// The server has these bytes at the beginning of a file of that length, and so both mounts.
    #[track_caller]
    fn holds(&self, name: &str, wanted: &[u8], len: usize) {
        for place in [&self.scene.path("export"), &self.near, &self.far] {
            let found = fs::read(place.join(name)).unwrap();
            let begin = &found[..wanted.len().min(found.len())];
            let right = begin.iter().zip(wanted).take_while(|(a, b)| a == b).count();
            assert!(
                right == wanted.len() && found.len() == len,
                "{} in {}: {right} of {} bytes are right, then {:?}; {} bytes of {len}",
                name,
                place.display(),
                wanted.len(),
                found.get(right),
                found.len()
            );
        }
    }

    /// A part of a file is as the loss of power has left it; where the file has grown, a hole.
    #[track_caller]
    fn is_untouched(&self, name: &str, part: Range<usize>) {
        let found = fs::read(self.scene.path("export").join(name)).unwrap();
        let mut left = self.disk.as_ref().unwrap().left[name].clone();
        left.resize(found.len(), 0);
        let part = part.start.min(left.len())..part.end.min(left.len());
        assert!(found[part.clone()] == left[part], "{name} was written to");
    }

    /// What lies behind the first 8 KiB is all there.
    #[track_caller]
    fn holds_behind(&self, name: &str) {
        let found = fs::read(self.scene.path("export").join(name)).unwrap();
        assert!(found[8192..] == [b'A'; LEN - 8192], "{name}");
    }

    fn end(mut self) {
        for mount in [self.near.clone(), self.far.clone()] {
            self.scene.umount(&mount);
        }
    }
}

/// A process that does nothing until this is dropped.
struct Stopped(Pid);

impl Stopped {
    /// The process behind a mount.
    fn mount(scene: &Scene, mount: &Path) -> Self {
        let figures = json(scene.azekura(&["top", text(mount), "--once", "--json"]));
        let pid = i32::try_from(figures["pid"].as_i64().unwrap()).unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn punch(file: &File) {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(file, flags, 0, 8192).unwrap();
}

/// What changes after something was stored and before the server dies is not undone by what is sent
/// again.
fn changes_stand(place: &mut Place) {
    let names = ["elsewhere", "emptied", "local"];
    let from_elsewhere: Vec<File> = names.iter().map(|name| place.file(name)).collect();
    names.iter().for_each(|name| place.stored(name));
    drop(from_elsewhere);
    place.change_from_elsewhere();
    let names = [
        "overwritten",
        "truncated",
        "cut",
        "punched",
        "copied",
        "opened",
    ];
    let mut files: Vec<File> = names.iter().map(|name| place.file(name)).collect();
    names.iter().for_each(|name| place.stored(name));
    files.truncate(5);
    let [overwritten, truncated, cut, punched, copied] = &files[..] else {
        unreachable!("there are five")
    };
    overwritten.write_all_at(&[b'B'; 4096], 0).unwrap();
    truncated.set_len(0).unwrap();
    cut.set_len(5).unwrap();
    cut.set_len(100).unwrap();
    punch(punched);
    let source = place.near.join("source");
    fs::write(&source, [b'B'; 8192]).unwrap();
    let source = File::open(source).unwrap();
    source.sync_all().unwrap();
    copy_file_range(&source, Some(&mut 0), copied, Some(&mut 0), 8192).unwrap();
    let mut opened = File::create(place.near.join("opened")).unwrap();
    opened.write_all(b"B").unwrap();
    drop(opened);
    place.die(Vec::new());

    let behind = |begin: &[u8]| [begin, &[b'A'; 100]].concat();
    place.holds("overwritten", &behind(&[b'B'; 4096]), LEN);
    overwritten.sync_all().unwrap();
    if place.disk.is_some() {
        // Nobody can repeat these. What they changed is as it was before, or as they made it, and
        // who syncs hears of it.
        for (file, name) in files.iter().zip(names).skip(1) {
            let error = file.sync_all().expect_err(name);
            assert_eq!(error.raw_os_error(), Some(Errno::EIO as i32), "{name}");
            file.sync_all().expect(name);
        }
        place.is_untouched("truncated", 0..LEN);
        place.is_untouched("cut", 5..LEN);
        place.is_untouched("copied", 0..8192);
        place.is_untouched("punched", 0..8192);
        place.holds_behind("copied");
        place.holds_behind("punched");
    } else {
        place.holds("truncated", b"", 0);
        place.holds("cut", &[b"AAAAA", &[0; 95][..]].concat(), 100);
        place.holds("copied", &behind(&[b'B'; 8192]), LEN);
        place.holds("punched", &behind(&[0; 8192]), LEN);
    }
    place.holds("opened", b"B", 1);
    place.holds("elsewhere", &behind(&[b'B'; 4096]), LEN);
    place.holds("emptied", &[b'B'; 4096], 4096);
    place.holds("local", &behind(&[b'B'; 4096]), LEN);
}

/// Nor is what was under way.
fn changes_under_way_stand(place: &mut Place) {
    let names = ["one", "two", "fallen", "holed", "grown"];
    let files: Vec<File> = names.iter().map(|name| place.file(name)).collect();
    names.iter().for_each(|name| place.stored(name));
    let grown = place.near.join("grown");
    let mut grown = File::options().append(true).open(grown).unwrap();
    let Ok([one, two, fallen, holed, _]) = <[File; 5]>::try_from(files) else {
        unreachable!("there are five")
    };
    place.die(vec![
        Box::new(move || {
            one.write_all_at(&[b'B'; 4096], 0).unwrap();
            one.sync_all().unwrap();
        }),
        Box::new(move || {
            two.write_all_at(&[b'B'; 4096], LEN as u64 / 2).unwrap();
            two.write_all_at(&[b'B'; 4096], 0).unwrap();
            two.sync_all().unwrap();
        }),
        Box::new(move || fallen.set_len(0).unwrap()),
        Box::new(move || punch(&holed)),
        Box::new(move || {
            grown.write_all(&[b'B'; 3000]).unwrap();
            grown.sync_all().unwrap();
        }),
    ]);
    let behind = |begin: &[u8]| [begin, &[b'A'; 100]].concat();
    place.holds("one", &behind(&[b'B'; 4096]), LEN);
    place.holds("two", &behind(&[b'B'; 4096]), LEN);
    place.holds("fallen", b"", 0);
    place.holds("holed", &behind(&[0; 8192]), LEN);
    let grown = [&[b'A'; LEN][..], &[b'B'; 3000]].concat();
    place.holds("grown", &grown, grown.len());
}

/// How often the server falls silent until enough is created meanwhile.
const ROUNDS_STOPPED: usize = 5;

#[test]
fn what_was_created_ahead_outlives_a_silence_longer_than_a_call() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "2s"]);
    let directory = mount.join("own");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("before"), b"x").unwrap();
    let create = |scene: &Scene, round: usize| {
        // The server is heard of a moment before it falls silent.
        scene.azekura(&["sync", text(&mount)]).ok();
        scene.signal(Signal::STOP);
        // As many as a machine makes while leases of a silent server are believed.
        let stopped = Instant::now();
        let names = (0..100).take_while(|_| stopped.elapsed() < LEASE_TRUST_TIME / 2);
        let create = |number| {
            let name = format!("f{round}-{number}");
            let begun = Instant::now();
            fs::write(directory.join(&name), &name).map(|()| (name, begun.elapsed()))
        };
        let created: std::io::Result<Vec<_>> = names.map(create).collect();
        println!("round {round}: {:?} after {created:?}", stopped.elapsed());
        let created = created.unwrap_or_default().into_iter();
        created.map(|(name, _)| name).collect::<Vec<String>>()
    };
    // A machine may stand still in that time.
    let names = (0..ROUNDS_STOPPED).find_map(|round| {
        let names = create(&scene, round);
        if names.len() <= 20 {
            scene.signal(Signal::CONT);
        }
        (names.len() > 20).then_some(names)
    });
    let names = names.expect("enough are created while the server is silent");
    std::thread::sleep(Duration::from_secs(5));
    scene.signal(Signal::CONT);
    // It goes on by itself; a call that ends meanwhile ends with an error.
    let synced = (0..20).any(|_| scene.azekura(&["sync", text(&mount)]).status.success());
    assert!(synced);
    for name in &names {
        let found = fs::read(scene.path("export/own").join(name)).unwrap();
        assert_eq!(found, name.as_bytes());
    }
    scene.umount(&mount);
}

/// Who comes back after others does not undo what they have done since the loss.
fn who_comes_back_late_undoes_nothing(place: &mut Place) {
    let names = ["late-far", "late-local", "late-alone"];
    let files: Vec<File> = names.iter().map(|name| place.file(name)).collect();
    names.iter().for_each(|name| place.stored(name));
    let late = Stopped::mount(&place.scene, &place.near);
    place.scene.kill();
    place.disk.as_mut().unwrap().lose_power();
    place.scene.start();
    // What was written is made durable some seconds later, and then nothing is lost.
    let is_whole = |name| fs::read(place.scene.path("export").join(name)).unwrap() == [b'A'; LEN];
    let whole = names.map(is_whole);
    let far = place.open_far("late-far", false);
    let local = place.scene.path("export/late-local");
    let local = File::options().write(true).open(local).unwrap();
    for file in [far, local] {
        file.write_all_at(&[b'B'; 4096], 0).unwrap();
        file.sync_all().unwrap();
    }
    drop(late);
    for ((file, name), was_whole) in files.iter().zip(names).zip(whole) {
        let synced = file.sync_all();
        match name {
            "late-alone" => synced.unwrap(),
            _ => assert!(synced.is_err() || was_whole, "{name}: bytes are lost"),
        }
        if name != "late-alone" {
            let path = place.scene.path("export").join(name);
            let found = fs::read(path).unwrap();
            assert!(found[..4096] == [b'B'; 4096], "{name} has been undone");
        }
    }
    place.holds("late-alone", &[b'A'; LEN], LEN);
}

#[test]
fn what_is_sent_again_to_a_killed_server_undoes_nothing() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut place = Place::new(false).expect("needs no disk");
    changes_stand(&mut place);
    changes_under_way_stand(&mut place);
    place.end();
}

#[test]
fn a_machine_that_lost_power_gets_everything_again_and_no_more() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let Some(mut place) = Place::new(true) else {
        return;
    };
    let file = place.file("plain");
    place.stored("plain");
    changes_stand(&mut place);
    place.holds("plain", &[b'A'; LEN], LEN);
    file.write_all_at(&[b'C'; LEN], 0).unwrap();
    changes_under_way_stand(&mut place);
    place.holds("plain", &[b'C'; LEN], LEN);
    drop(file);
    who_comes_back_late_undoes_nothing(&mut place);
    place.end();
}
