//! A server one of whose stores is not there, or there in an older state; exports whose path leads
//! elsewhere.

use crate::checks::{fails, json};
use crate::common::{Scene, obstacle, text};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// EIO.
const IO_ERROR: i32 = 5;
/// ENOENT.
const NOT_FOUND: i32 = 2;

/// Bytes that tell where they belong, none of them zero.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let at = |at: usize| (at.wrapping_mul(31) ^ (at >> 12).wrapping_add(seed)) as u8 | 1;
    (0..len).map(at).collect()
}

#[track_caller]
fn write(path: &Path, data: &[u8]) {
    let file = File::create(path).unwrap();
    file.write_all_at(data, 0).unwrap();
    file.sync_all().unwrap();
}

/// A name that is not there: a mount believes that until it has noticed that the server runs anew.
#[track_caller]
fn becomes_io_error(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let read = || fs::read(path).expect_err("it cannot be read");
    while read().raw_os_error() == Some(NOT_FOUND) {
        assert!(Instant::now() < deadline, "it never notices");
        std::thread::sleep(Duration::from_millis(20));
    }
    is_io_error(fs::read(path));
}

#[track_caller]
fn is_io_error<T>(outcome: io::Result<T>) {
    let error = outcome.err().expect("it cannot be had");
    assert_eq!(error.raw_os_error(), Some(IO_ERROR), "{error}");
}

/// A server with a parallel volume over two stores, the second of which is a file beside its data
/// directory and has that allocation unit; in the volume, `one` lies in the first store alone.
fn two_stores(unit: &str) -> Option<(Scene, PathBuf)> {
    if let Some(why) = obstacle() {
        println!("{why}");
        return None;
    }
    let mut scene = Scene::with_store("64MiB");
    let mount = scene.mount_volume(&scene.parallel(), "before", &[]);
    write(&mount.join("one"), &pattern(1, 2 * MIB));
    scene.umount(&mount);
    scene.end(Signal::TERM);
    let second = scene.path("second");
    let made = ["store", "format", text(&second), "--size", "128MiB"];
    let quick = ["--unit", unit, "--calibration-time", "300ms"];
    scene.azekura(&[&made[..], &quick[..]].concat()).ok();
    scene.start_with(&["--store", text(&second)]);
    Some((scene, second))
}

fn stores(scene: &Scene) -> Vec<serde_json::Value> {
    let status = json(scene.azekura(&["status", scene.address(), "--json"]));
    status["stores"].as_array().unwrap().clone()
}

#[test]
fn a_server_works_without_a_store_and_with_all_of_it_again() {
    let Some((mut scene, second)) = two_stores("64KiB") else {
        return;
    };
    let volume = scene.parallel();
    let near = scene.mount_volume(&volume, "near", &["--timeout", "60s"]);
    let whole = pattern(2, 3 * MIB);
    for name in ["both", "shortened", "removed"] {
        write(&near.join(name), &whole);
    }
    // More than the first store has.
    let reserve = ["reserve", "create", &volume, "--space", "90MB"];
    let reserved = ["--write", "1MB/s", "--for", "1h", "--name", "r", "--json"];
    json(scene.azekura(&[&reserve[..], &reserved[..]].concat()));
    let held = File::open(near.join("both")).unwrap();
    all_are_there(&scene);

    scene.kill();
    let away = scene.path("away");
    fs::rename(&second, &away).unwrap();
    // As a unit of systemd would start it, every time.
    scene.start_with(&["--store", text(&second)]);
    is_said(&scene, &second);
    let far = scene.mount_volume(&volume, "far", &[]);
    work_without(&far, whole.len());
    scene.azekura(&["reserve", "report", &volume, "r"]).ok();

    scene.end(Signal::TERM);
    fs::rename(&away, &second).unwrap();
    scene.start();
    all_are_there(&scene);
    for mount in [&near, &far] {
        assert!(fs::read(mount.join("one")).unwrap() == pattern(1, 2 * MIB));
        assert!(fs::read(mount.join("both")).unwrap() == whole);
        assert!(fs::read(mount.join("new")).unwrap() == pattern(3, MIB));
        assert!(fs::read(mount.join("shortened")).unwrap() == whole[..MIB]);
        assert!(!mount.join("removed").exists());
    }
    // What was open all the time is open again.
    let mut bytes = [0; 4096];
    held.read_exact_at(&mut bytes, 2 * MIB as u64).unwrap();
    assert_eq!(bytes, whole[2 * MIB..][..4096]);
    // What was cut off is gone where it lay, and does not come back as the file becomes longer.
    let file = File::options().write(true).open(near.join("shortened"));
    file.unwrap().set_len(3 * MIB as u64).unwrap();
    let mut expected = whole[..MIB].to_vec();
    expected.resize(3 * MIB, 0);
    assert!(fs::read(far.join("shortened")).unwrap() == expected);
    scene.azekura(&["reserve", "release", &volume, "r"]).ok();
}

/// On a mount whose server lacks the second store: what it has is there, the rest is an error, and
/// names change as ever.
fn work_without(far: &Path, len: usize) {
    assert!(fs::read(far.join("one")).unwrap() == pattern(1, 2 * MIB));
    let both = far.join("both");
    assert_eq!(fs::metadata(&both).unwrap().len(), len as u64);
    is_io_error(fs::read(&both));
    let file = File::options().write(true).open(&both).unwrap();
    is_io_error(file.write_all_at(b"x", 0).and_then(|()| file.sync_all()));
    drop(file);
    write(&far.join("new"), &pattern(3, MIB));
    // Done at the names now, and at the stores when they are all there.
    let file = File::options().write(true).open(far.join("shortened"));
    file.unwrap().set_len(MIB as u64).unwrap();
    fs::remove_file(far.join("removed")).unwrap();
}

#[track_caller]
fn all_are_there(scene: &Scene) {
    let found = stores(scene);
    assert_eq!(found.len(), 2);
    assert!(
        found.iter().all(|store| store["is_missing"] == false),
        "{found:?}"
    );
}

/// The server says which store is missing, and why.
fn is_said(scene: &Scene, second: &Path) {
    let log = scene.log();
    let error = log.rsplit("error: store ").next().unwrap();
    assert!(error.contains("code: AZ0811"), "{log}");
    assert!(error.contains(text(second)), "{log}");
    let stores = stores(scene);
    assert_eq!(stores.len(), 2);
    let missing: Vec<_> = stores
        .iter()
        .filter(|store| store["is_missing"] == true)
        .collect();
    let [missing] = missing[..] else {
        panic!("{stores:?}")
    };
    assert_eq!(missing["path"], text(second));
    let why = missing["failure"].as_str().unwrap();
    assert!(why.contains("no such file or directory"), "{why}");
    let page = scene.azekura(&["status", scene.address()]).ok();
    assert!(page.contains(why) && page.contains("AZ0811"), "{page}");
}

#[test]
fn a_store_whose_unit_is_too_large_for_a_volume_is_left_to_others() {
    let Some((mut scene, second)) = two_stores("2MiB") else {
        return;
    };
    // A store of 64 MiB has units of 1 MiB at most, and its volume's stripes are like them.
    let volume = scene.parallel();
    let mount = scene.mount_volume(&volume, "after", &[]);
    assert_eq!(fs::read(mount.join("one")).unwrap(), pattern(1, 2 * MIB));
    write(&mount.join("two"), &pattern(2, 8 * MIB));
    let wide = format!("{}/wide", scene.address());
    scene.azekura(&["volume", "create", &wide]).ok();
    let both = scene.mount_volume(&wide, "both", &[]);
    write(&both.join("three"), &pattern(3, 8 * MIB));
    scene.umount(&mount);
    scene.umount(&both);
    scene.end(Signal::TERM);
    // Without it, what it has nothing of is there, and what lies in both is not.
    fs::rename(&second, scene.path("elsewhere")).unwrap();
    scene.start_with(&[]);
    let mount = scene.mount_volume(&volume, "again", &[]);
    assert_eq!(fs::read(mount.join("two")).unwrap(), pattern(2, 8 * MIB));
    let both = scene.mount_volume(&wide, "half", &[]);
    is_io_error(fs::read(both.join("three")));
}

#[test]
fn a_copy_of_a_store_is_refused_and_a_store_that_was_moved_is_taken() {
    let Some((mut scene, second)) = two_stores("64KiB") else {
        return;
    };
    scene.end(Signal::TERM);
    let copy = scene.path("copy");
    fs::copy(&second, &copy).unwrap();
    let start = ["server", "--data", "srv", "--listen", "127.0.0.1:0"];
    for more in [&["--dry-run"][..], &[]] {
        let refused = scene.azekura(&[&start[..], &["--store", text(&copy)], more].concat());
        fails(&refused, "AZ0810");
        assert!(refused.stderr.contains(text(&second)), "{refused:?}");
    }
    fs::remove_file(&second).unwrap();
    scene.start_with(&["--store", text(&copy)]);
    all_are_there(&scene);
    let found = stores(&scene);
    assert!(found.iter().any(|store| store["path"] == text(&copy)));
}

#[test]
fn an_older_copy_of_a_store_is_noticed_and_taken_only_if_that_is_said() {
    let Some((mut scene, second)) = two_stores("64KiB") else {
        return;
    };
    let volume = scene.parallel();
    let mount = scene.mount_volume(&volume, "mount", &["--timeout", "60s"]);
    let whole = pattern(4, 3 * MIB);
    write(&mount.join("both"), &whole);
    scene.end(Signal::TERM);
    let (older, newest) = (scene.path("older"), scene.path("newest"));
    fs::copy(&second, &older).unwrap();
    scene.start();
    write(&mount.join("later"), &whole);
    scene.umount(&mount);
    scene.end(Signal::TERM);
    fs::copy(&second, &newest).unwrap();

    fs::copy(&older, &second).unwrap();
    scene.start();
    let id = is_older(&scene);
    let mount = scene.mount_volume(&volume, "mount", &[]);
    assert!(fs::read(mount.join("one")).unwrap() == pattern(1, 2 * MIB));
    for name in ["both", "later"] {
        is_io_error(fs::read(mount.join(name)));
    }
    scene.umount(&mount);
    scene.end(Signal::TERM);
    fs::copy(&newest, &second).unwrap();
    scene.start();
    all_are_there(&scene);
    let mount = scene.mount_volume(&volume, "mount", &[]);
    for name in ["both", "later"] {
        assert!(fs::read(mount.join(name)).unwrap() == whole, "{name}");
    }
    scene.umount(&mount);
    scene.end(Signal::TERM);

    let accept = ["--accept-older-store", &id];
    let said = scene
        .try_start(&accept)
        .expect("there is nothing to accept");
    let error = said.rsplit("error: ").next().unwrap();
    assert!(error.contains("code: AZ0812"), "{said}");
    fs::copy(&older, &second).unwrap();
    scene.start_with(&accept);
    all_are_there(&scene);
    assert!(scene.log().contains("what was written since is lost"));
    let mount = scene.mount_volume(&volume, "mount", &[]);
    assert!(fs::read(mount.join("both")).unwrap() == whole);
    scene.umount(&mount);
    scene.end(Signal::KILL);
    scene.start();
    all_are_there(&scene);
}

#[test]
fn what_lay_in_a_store_that_was_given_up_can_be_removed_and_nothing_waits_for_it() {
    let Some((mut scene, second)) = two_stores("64KiB") else {
        return;
    };
    let volume = scene.parallel();
    let near = scene.mount_volume(&volume, "near", &["--timeout", "60s"]);
    for name in ["both", "removed", "held"] {
        write(&near.join(name), &pattern(2, 3 * MIB));
    }
    let found = stores(&scene);
    let lost = found.iter().find(|store| store["path"] == text(&second));
    let lost = lost.unwrap()["id"].as_str().unwrap().to_owned();
    let give_up = ["--give-up-store", &lost];
    scene.end(Signal::TERM);
    let said = scene
        .try_start(&give_up)
        .expect("there is nothing to give up");
    assert!(said.contains("code: AZ0811"), "{said}");
    fs::rename(&second, scene.path("away")).unwrap();
    scene.start();
    fs::remove_file(near.join("removed")).unwrap();
    // So that nothing of it is cached here.
    scene.umount(&near);
    let near = scene.mount_volume(&volume, "near", &["--timeout", "60s"]);
    let held = File::open(near.join("held")).unwrap();
    scene.end(Signal::TERM);
    scene.start_with(&give_up);
    assert_eq!(stores(&scene).len(), 1);
    for _ in 0..2 {
        assert!(fs::read(near.join("one")).unwrap() == pattern(1, 2 * MIB));
        assert_eq!(
            fs::metadata(near.join("both")).unwrap().len(),
            3 * MIB as u64
        );
        is_io_error(fs::read(near.join("both")));
        is_io_error(held.read_exact_at(&mut [0; 4096], 0));
        write(&near.join("new"), &pattern(3, MIB));
        assert!(fs::read(near.join("new")).unwrap() == pattern(3, MIB));
        // It is remembered.
        scene.kill();
        scene.start();
    }
    drop(held);
    for name in ["one", "both", "held", "new"] {
        fs::remove_file(near.join(name)).unwrap();
    }
    scene.umount(&near);
    nothing_is_to_be_done(&scene);
    scene.azekura(&["volume", "delete", &volume]).ok();
    let (away, data) = (scene.path("away"), scene.path("srv"));
    scene.end(Signal::TERM);
    let start = ["server", "--data", text(&data), "--listen", "127.0.0.1:0"];
    let refused = scene.azekura(&[&start[..], &["--store", text(&away)]].concat());
    fails(&refused, "AZ0811");
    assert!(refused.stderr.contains("given up"), "{refused:?}");
}

/// Waits until nothing is to be done at stores any more.
#[track_caller]
fn nothing_is_to_be_done(scene: &Scene) {
    let is_done = || {
        let status = json(scene.azekura(&["status", scene.address(), "--json"]));
        let workers = status["workers"].as_array().unwrap().clone();
        let of_chores =
            |worker: &serde_json::Value| worker["name"].as_str().unwrap().starts_with("chores");
        let mut chores = workers.iter().filter(|worker| of_chores(worker));
        chores.all(|worker| worker["state"] == "nothing to do")
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(std::time::Instant::now() < deadline, "it waits");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The server says that one of its stores is there in an older state; which.
#[track_caller]
fn is_older(scene: &Scene) -> String {
    let stores = stores(scene);
    let older: Vec<_> = stores
        .iter()
        .filter(|store| store["is_older"] == true)
        .collect();
    let [older] = older[..] else {
        panic!("{stores:?}")
    };
    assert_eq!(older["is_missing"], true);
    let id = older["id"].as_str().unwrap().to_owned();
    let log = scene.log();
    let error = log.rsplit("error: store ").next().unwrap();
    assert!(error.contains("code: AZ0812"), "{log}");
    assert!(
        error.contains(&format!("--accept-older-store {id}")),
        "{log}"
    );
    let page = scene.azekura(&["status", scene.address()]).ok();
    assert!(
        page.contains("older state") && page.contains("AZ0812"),
        "{page}"
    );
    id
}

#[test]
fn a_server_that_is_killed_takes_no_store_for_an_older_one() {
    let Some((mut scene, second)) = two_stores("64KiB") else {
        return;
    };
    scene.end(Signal::TERM);
    // Behind what is durable whenever it is noted.
    let often = ["--note-stores-every", "3ms"];
    scene.start_with(&often);
    let mount = scene.mount_volume(&scene.parallel(), "mount", &["--timeout", "60s"]);
    let over = scene.path("over");
    let writers = Writers::start(&mount, &over);
    let seen = scene.path("srv/seen.toml");
    for round in 0..10 {
        std::thread::sleep(Duration::from_millis(40 + 23 * round));
        scene.kill();
        look_after(&scene, &second, round);
        scene.start_with(&often);
        all_are_there(&scene);
    }
    let before = fs::read(&seen).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read(&seen).unwrap() == before {
        assert!(
            Instant::now() < deadline,
            "nothing is noted while the server runs"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    writers.end(&over);
    scene.umount(&mount);
    scene.end(Signal::TERM);
    scene.start();
    all_are_there(&scene);
}

/// Writes durably, again and again, in a process of its own: this one runs commands while there is
/// no server, and they would be born with copies of its open files.
struct Writers(Child);

impl Writers {
    fn start(mount: &Path, over: &Path) -> Self {
        const SCRIPT: &str = "
            write() {
                n=0
                until [ -e \"$1\" ]; do
                    dd if=/dev/zero of=\"$2$n\" bs=200k count=1 conv=fsync status=none || return 1
                    rm \"$2$n\"
                    n=$((n + 1))
                done
            }
            write \"$1\" \"$0/one-\" & one=$!
            write \"$1\" \"$0/two-\" && wait $one";
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, text(mount), text(over)]);
        Self(shell.spawn().unwrap())
    }

    #[track_caller]
    fn end(mut self, over: &Path) {
        File::create(over).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an administrator does to a store while no server has it.
fn look_after(scene: &Scene, store: &Path, round: u64) {
    let store = text(store);
    let size = format!("{}MiB", 128 + 8 * round);
    match round % 4 {
        0 => scene.azekura(&["store", "check", store, "--repair"]),
        1 => scene.azekura(&["store", "grow", store, "--size", &size]),
        2 => scene.azekura(&["store", "calibrate", store, "--calibration-time", "200ms"]),
        _ => return,
    }
    .ok();
}

/// An ext4 in a file of the scene, mounted beside it. Taken off at the end.
struct Disk(PathBuf);

impl Disk {
    fn new(scene: &Scene) -> Option<Self> {
        let (image, path) = (scene.path("image"), scene.path("disk"));
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        fs::create_dir(&path).unwrap();
        let disk = Self(path);
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F"])
            .arg(&image)
            .status();
        if !made.is_ok_and(|status| status.success()) || !disk.mount(&image) {
            println!("skipped: no ext4 in a loop device here");
            return None;
        }
        Some(disk)
    }

    fn mount(&self, image: &Path) -> bool {
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", "loop"]).arg(image).arg(&self.0).status();
        status.is_ok_and(|status| status.success())
    }

    fn umount(&self, options: &[&str]) -> bool {
        let status = Command::new("umount").args(options).arg(&self.0).status();
        status.is_ok_and(|status| status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.umount(&["-ql"]);
    }
}

/// What keeps each volume from being served.
fn troubles(scene: &Scene) -> Vec<(String, Option<String>)> {
    let list = json(scene.azekura(&["volume", "list", scene.address(), "--json"]));
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let trouble =
        |volume: &serde_json::Value| (text(&volume["name"]).unwrap(), text(&volume["trouble"]));
    list["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(trouble)
        .collect()
}

#[test]
fn an_export_whose_path_leads_elsewhere_is_not_served() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let Some(disk) = Disk::new(&scene) else {
        return;
    };
    let (other, away) = (scene.path("other"), scene.path("away"));
    fs::create_dir(&other).unwrap();
    let volume = |name: &str| format!("{}/{name}", scene.address());
    let (on_disk, linked) = (volume("disk"), volume("other"));
    for (volume, path) in [(&on_disk, &disk.0), (&linked, &other)] {
        let create = ["volume", "create", volume, "--export", text(path)];
        scene.azekura(&create).ok();
    }
    fs::write(scene.path("hello"), "hello").unwrap();
    let near = scene.mount_volume(&linked, "near", &["--timeout", "60s"]);
    fs::write(near.join("file"), "mine").unwrap();

    scene.end(Signal::TERM);
    assert!(disk.umount(&[]));
    fs::rename(&other, &away).unwrap();
    std::os::unix::fs::symlink("/etc", &other).unwrap();
    scene.start();
    let found = troubles(&scene);
    let begins = |at: usize, with: &str| found[at].1.as_ref().unwrap().starts_with(with);
    assert!(begins(0, "AZ0307: another "), "{found:?}");
    assert!(
        begins(1, "AZ0307: a symbolic link leads to /etc"),
        "{found:?}"
    );
    assert_eq!(found[2].1, None, "the rest is served");
    lists_say_where_more_is_said(&scene);
    let shown = scene.azekura(&["volume", "show", &linked]).ok();
    assert!(shown.contains("azekura volume delete"), "{shown}");
    assert!(
        scene
            .azekura(&["status", scene.address()])
            .ok()
            .contains("AZ0307")
    );
    assert!(scene.log().contains("AZ0307"), "{}", scene.log());
    let said = scene.azekura(&["doctor", scene.address()]).stdout;
    for name in ["disk", "other"] {
        let failed = format!("{name} is not served: AZ0307");
        assert!(said.contains(&failed), "{said}");
    }
    let target = format!("{on_disk}:/hello");
    fails(&scene.azekura(&["cp", "hello", &target]), "AZ0404");
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 0);
    fails(&scene.azekura(&["ls", &linked]), "AZ0404");
    becomes_io_error(&near.join("passwd"));

    scene.end(Signal::TERM);
    assert!(disk.mount(&scene.path("image")));
    fs::remove_file(&other).unwrap();
    fs::rename(&away, &other).unwrap();
    scene.start();
    assert!(
        troubles(&scene)
            .iter()
            .all(|(_, trouble)| trouble.is_none())
    );
    scene.azekura(&["cp", "hello", &target]).ok();
    assert_eq!(fs::read(disk.0.join("hello")).unwrap(), b"hello");
    assert_eq!(fs::read(near.join("file")).unwrap(), b"mine");
    the_new_one_is_meant(&mut scene, &disk, &on_disk);
}

#[test]
fn what_was_written_to_an_export_stays_here_while_its_directory_is_away() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let (mine, away) = (scene.path("mine"), scene.path("away"));
    fs::create_dir(&mine).unwrap();
    let volume = format!("{}/mine", scene.address());
    let create = ["volume", "create", &volume, "--export", text(&mine)];
    scene.azekura(&create).ok();
    let mount = scene.mount_volume(&volume, "near", &["--timeout", "2s"]);
    let data = pattern(1, 300_000);
    let open = File::create(mount.join("open")).unwrap();
    open.write_all_at(&data[..100_000], 0).unwrap();
    // The close has told that it is written.
    fs::write(mount.join("closed"), &data).unwrap();

    scene.end(Signal::KILL);
    open.write_all_at(&data[100_000..], 100_000).unwrap();
    fs::rename(&mine, &away).unwrap();
    fs::create_dir(&mine).unwrap();
    scene.start();
    becomes_io_error(&mount.join("elsewhere"));
    let refused = open.sync_all().expect_err("nothing can be durable");
    assert_ne!(refused.raw_os_error(), Some(IO_ERROR), "it is not lost");
    let umount = scene.azekura(&["umount", text(&mount), "--timeout", "2s"]);
    fails(&umount, "AZ0506");
    assert_eq!(fs::read_dir(&mine).unwrap().count(), 0);

    scene.end(Signal::TERM);
    fs::remove_dir(&mine).unwrap();
    fs::rename(&away, &mine).unwrap();
    scene.start();
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = open.sync_all() {
        assert!(Instant::now() < deadline, "{error}");
    }
    drop(open);
    scene.azekura(&["umount", text(&mount)]).ok();
    for name in ["open", "closed"] {
        assert!(fs::read(mine.join(name)).unwrap() == data, "{name}");
    }
}

/// What is wrong with two volumes is longer than lists show it.
fn lists_say_where_more_is_said(scene: &Scene) {
    let remedy = format!("azekura volume show {}/VOLUME says", scene.address());
    let list = scene.azekura(&["volume", "list", scene.address()]);
    assert!(list.stderr.contains(&remedy), "{list:?}");
    let status = scene.azekura(&["status", scene.address()]).ok();
    assert!(status.contains(&remedy), "{status}");
    for page in [&list.stdout, &status] {
        let cut: Vec<&str> = page
            .lines()
            .filter(|line| line.contains("AZ0307"))
            .collect();
        let is_marked = cut.iter().all(|line| line.ends_with(" ..."));
        assert!(cut.len() == 2 && is_marked, "{page}");
    }
}

/// An administrator says that the directory that is there now is the one to be served.
fn the_new_one_is_meant(scene: &mut Scene, disk: &Disk, volume: &str) {
    scene.end(Signal::TERM);
    assert!(disk.umount(&[]));
    scene.start();
    fails(&scene.azekura(&["ls", volume]), "AZ0404");
    scene.azekura(&["volume", "delete", volume]).ok();
    let create = ["volume", "create", volume, "--export", text(&disk.0)];
    scene.azekura(&create).ok();
    scene
        .azekura(&["cp", "hello", &format!("{volume}:/new")])
        .ok();
    assert!(disk.0.join("new").exists());
}

#[test]
fn a_store_with_lifetimes_beside_others_takes_no_volume_down() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_store("64MiB");
    let volume = scene.parallel();
    let mount = scene.mount_volume(&volume, "before", &[]);
    write(&mount.join("one"), &pattern(1, MIB));
    scene.umount(&mount);
    scene.end(Signal::TERM);
    let ending = scene.path("ending");
    let made = ["store", "format", text(&ending), "--size", "32MiB"];
    let how = ["--unit", "64KiB", "--no-calibration"];
    let lifetimes = ["--default-lifetime", "7d"];
    let format = [&made[..], &how[..], &lifetimes[..]].concat();
    scene.azekura(&format).ok();
    scene.start_with(&["--store", text(&ending)]);
    let mount = scene.mount_volume(&volume, "after", &[]);
    assert!(fs::read(mount.join("one")).unwrap() == pattern(1, MIB));
    write(&mount.join("two"), &pattern(2, MIB));
    scene.umount(&mount);
    scene.end(Signal::TERM);
    // Nothing of it lies where it would end.
    let shown = json(scene.azekura(&["store", "show", text(&ending), "--json"]));
    assert_eq!(shown["units"]["used"], 0, "{shown}");
}
