//! Mounts: what users do, several clients at once, servers that die.

use crate::checks::{fails, json, signal_mount};
use crate::common::{Scene, VOLUME, obstacle, run, text};
use base::limits::REPLIES_KEPT_MAX;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn bytes(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32)
        .map(|n| ((n ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

/// Whether bytes are the wanted ones, without printing millions of them.
#[track_caller]
fn same(found: &[u8], wanted: &[u8]) {
    if found == wanted {
        return;
    }
    let equal = found.iter().zip(wanted).take_while(|(a, b)| a == b).count();
    let (found, wanted) = (found.len(), wanted.len());
    assert!(
        equal == found && found == wanted,
        "{found} of {wanted} bytes, {equal} of them right"
    );
}

fn is_mounted(path: &Path) -> bool {
    let list = fs::read_to_string("/proc/self/mounts").unwrap();
    list.lines()
        .any(|line| line.split(' ').nth(1) == Some(text(path)))
}

/// The process behind a mount, by its figures, ends within 20 s of `begun`.
#[track_caller]
fn ends_soon(figures: &serde_json::Value, begun: Instant) {
    let process = format!("/proc/{}", figures["pid"]);
    while Path::new(&process).exists() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the process stays"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_done_on_the_mount_is_done_at_the_server() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let local = scene.path("export");
    let first = bytes(5_000_000, 1);
    fs::write(local.join("first"), &first).unwrap();
    let mount = scene.mount("mnt", &[]);
    assert_eq!(fs::read(mount.join("first")).unwrap(), first);

    let second = bytes(3_000_000, 2);
    fs::write(mount.join("second"), &second).unwrap();
    assert_eq!(
        fs::read(local.join("second")).unwrap(),
        second,
        "close is enough to be seen"
    );
    fs::create_dir_all(mount.join("a/b")).unwrap();
    fs::rename(mount.join("second"), mount.join("a/b/moved")).unwrap();
    fs::hard_link(mount.join("first"), mount.join("a/hard")).unwrap();
    symlink("../first", mount.join("a/soft")).unwrap();
    fs::set_permissions(mount.join("first"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::read(local.join("a/b/moved")).unwrap(), second);
    assert_eq!(fs::metadata(local.join("a/hard")).unwrap().nlink(), 2);
    assert_eq!(
        fs::read_link(local.join("a/soft")).unwrap(),
        Path::new("../first")
    );
    assert_eq!(fs::read(mount.join("a/soft")).unwrap(), first);
    assert_eq!(
        fs::metadata(local.join("first")).unwrap().mode() & 0o7777,
        0o640
    );

    let mut file = File::options()
        .read(true)
        .append(true)
        .open(mount.join("first"))
        .unwrap();
    file.write_all(b"end").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(local.join("first")).unwrap().len(), 5_000_003);
    file.set_len(10).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut start = Vec::new();
    file.read_to_end(&mut start).unwrap();
    assert_eq!(start, first[..10]);
    fs::remove_file(mount.join("a/hard")).unwrap();
    assert!(!local.join("a/hard").exists());
    drop(file);

    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&mount), names(&local));
    scene.umount(&mount);
    assert!(!is_mounted(&mount) && fs::read_dir(&mount).unwrap().next().is_none());
}

#[test]
fn a_large_file_created_ahead_is_at_the_server_when_close_returns() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let local = scene.path("export");
    let mount = scene.mount("mnt", &[]);
    fs::create_dir(mount.join("d")).unwrap();
    for size in [100_000, 1 << 20, 10 << 20] {
        let contents = bytes(size, 3);
        for round in 0..10 {
            let name = format!("d/{size}-{round}");
            fs::write(mount.join(&name), &contents).unwrap();
            same(&fs::read(local.join(&name)).unwrap_or_default(), &contents);
        }
    }
    let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    assert!(
        figures["created_ahead"].as_u64() > Some(10),
        "not created ahead: {figures}"
    );
}

#[test]
fn removals_answered_ahead_reach_the_server_and_protected_files_stay() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let local = scene.path("export/d");
    fs::create_dir(&local).unwrap();
    for number in 0..200 {
        fs::write(local.join(format!("{number}")), "x").unwrap();
    }
    fs::write(local.join("protected"), "x").unwrap();
    let chattr = |how: &str| {
        let mut chattr = Command::new("chattr");
        run(chattr.args([how, text(&local.join("protected"))]))
    };
    let is_protected = chattr("+i").status.success();
    let directory = scene.mount("mnt", &[]).join("d");
    let count = |path: &Path| fs::read_dir(path).unwrap().count();
    assert_eq!(count(&directory), 201);
    for number in 0..200 {
        fs::remove_file(directory.join(format!("{number}"))).unwrap();
        let again = fs::remove_file(directory.join(format!("{number}")));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(count(&directory), 1);
    // A name that has just gone is free at once, whatever it is to be.
    fs::write(directory.join("0"), "new").unwrap();
    let protected = fs::remove_file(directory.join("protected"));
    if is_protected {
        chattr("-i").ok();
        let error = protected.expect_err("it is immutable");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        fs::remove_file(directory.join("protected")).unwrap();
    }
    File::open(&directory).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(local.join("0")).unwrap(), b"new");
    assert_eq!(count(&local), 1);
    fs::remove_file(directory.join("0")).unwrap();
    fs::remove_dir(&directory).unwrap();
    assert!(!local.exists());
    let figures = json(scene.azekura(&["top", text(&scene.path("mnt")), "--once", "--json"]));
    assert!(
        figures["removed_ahead"].as_u64() > Some(150),
        "not removed ahead: {figures}"
    );
}

#[test]
fn the_mount_tells_its_figures() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("export/file"), bytes(4_000_000, 3)).unwrap();
    let mount = scene.mount("mnt", &[]);
    let idle = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    assert!(idle["rtt_micros"].as_u64().unwrap() > 0, "{idle}");
    fs::read(mount.join("file")).unwrap();
    let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    for key in [
        "window_bytes",
        "in_flight_bytes",
        "hit_rate",
        "wasted_bytes",
    ] {
        assert!(figures[key].is_number(), "{key}: {figures}");
    }
    assert!(
        figures["bytes_received"].as_u64().unwrap() >= 4_000_000,
        "{figures}"
    );
    assert_eq!(figures["connected"], true);
    let page = scene.azekura(&["top", text(&mount), "--once"]).ok();
    assert!(
        page.contains("round trip") && page.contains(&scene.volume()),
        "{page}"
    );
    let status = json(scene.azekura(&["status", scene.address(), "--json"]));
    let mounts = status["sessions"].as_array().unwrap().iter();
    assert!(
        mounts
            .map(|session| session["connections"].as_u64().unwrap())
            .max()
            .unwrap()
            > 1
    );
    let seen = json(scene.azekura(&["doctor", text(&mount), "--json"]));
    assert_eq!(seen["ok"], true, "{seen}");
    fs::write(mount.join("new"), "x").unwrap();
    scene.azekura(&["sync", text(&mount.join("new"))]).ok();
    let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    assert_eq!(figures["unwritten_bytes"], 0);
}

#[test]
fn the_names_of_the_root_come_with_the_mount() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("export/there"), "x").unwrap();
    let mount = scene.mount("mnt", &[]);
    assert_eq!(fs::metadata(mount.join("there")).unwrap().len(), 1);
    assert!(!mount.join("not-there").exists());
    let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    assert_eq!(figures["lookups"], 2, "{figures}");
    assert_eq!(figures["lookup_hit_rate"], 1.0, "{figures}");
    // It is a lease like every other: what is made elsewhere is seen here.
    fs::write(scene.path("export/later"), "x").unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !mount.join("later").exists() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn two_clients_see_what_the_other_has_closed() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let one = scene.mount("one", &[]);
    let two = scene.mount("two", &[]);
    for round in 0..50_u32 {
        let (writer, reader) = if round % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let content = bytes(1 + round as usize * 1_777, round);
        fs::write(writer.join("shared"), &content).unwrap();
        assert_eq!(
            fs::read(reader.join("shared")).unwrap(),
            content,
            "round {round}"
        );
        let name = format!("made-{round}");
        assert!(!reader.join(&name).exists());
        fs::write(writer.join(&name), "x").unwrap();
        assert!(reader.join(&name).exists(), "round {round}");
        fs::remove_file(writer.join(&name)).unwrap();
        assert!(!reader.join(&name).exists(), "round {round}");
    }
    // What changes at the server itself is seen too, within moments.
    fs::write(scene.path("export/shared"), "by the server").unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs::read(one.join("shared")).unwrap() != b"by the server" {
        assert!(
            Instant::now() < deadline,
            "a change at the server stays unseen"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What the server keeps of answered requests, in case they are sent again, is bounded; a request
/// that takes long must not make all that comes after it count.
#[test]
fn who_waits_for_a_lock_stops_nobody() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    let holder = File::create(mount.join("lock")).unwrap();
    holder.lock().unwrap();
    let directory = mount.join("many");
    fs::create_dir(&directory).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| File::open(mount.join("lock")).unwrap().lock());
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waits.is_finished(), "the lock is held");
        let changes = REPLIES_KEPT_MAX + REPLIES_KEPT_MAX / 4;
        let made = (0..changes).try_for_each(|n| fs::create_dir(directory.join(n.to_string())));
        assert!(!waits.is_finished());
        holder.unlock().unwrap();
        waits.join().unwrap().unwrap();
        made.unwrap();
    });
}

#[test]
fn a_read_only_mount_and_a_read_only_volume_refuse_changes() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("export/file"), "x").unwrap();
    let mount = scene.mount("mnt", &["--read-only", "-o", "noexec,_netdev"]);
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"x");
    let refused = fs::write(mount.join("file"), "y").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    scene.azekura(&["sync", text(&mount)]).ok();
    scene.umount(&mount);
    // One directory is one volume's; what lies in it stays.
    let own = scene.volume();
    scene.azekura(&["volume", "delete", &own]).ok();
    let volume = format!("{}/ro", scene.address());
    let export = [
        "volume",
        "create",
        &volume,
        "--export",
        "export",
        "--read-only",
    ];
    scene.azekura(&export).ok();
    let copied = scene.azekura(&["cp", "export/file", &format!("{volume}:/new")]);
    fails(&copied, "AZ0405");
}

#[test]
fn errors_before_it_is_ready_reach_the_terminal() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::create_dir(scene.path("mnt")).unwrap();
    let mnt = scene.path("mnt");
    let missing = format!("{}/missing", scene.address());
    fails(&scene.azekura(&["mount", &missing, text(&mnt)]), "AZ0301");
    fails(
        &scene.azekura(&["mount", &missing, text(&mnt), "--dry-run"]),
        "AZ0301",
    );
    scene
        .azekura(&["mount", &scene.volume(), text(&mnt), "--dry-run"])
        .ok();
    assert!(!is_mounted(&mnt));
    let export = scene.path("export");
    let over_itself = scene.azekura(&["mount", &scene.volume(), text(&export)]);
    fails(&over_itself, "AZ0502");
    assert!(over_itself.stderr.contains("what the volume exports"));
    assert!(!is_mounted(&export));
    let mount = scene.mount("mnt", &[]);
    let twice = scene.azekura(&["mount", &scene.volume(), text(&mount)]);
    fails(&twice, "AZ0502");
    assert!(
        twice.stderr.contains("is mounted there"),
        "{}",
        twice.stderr
    );
    scene.umount(&mount);
    scene.kill();
    let begun = Instant::now();
    let gone = scene.azekura(&["mount", &scene.volume(), text(&mnt), "--timeout", "2s"]);
    fails(&gone, "AZ0101");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(!is_mounted(&mnt));
}

#[test]
fn fstab_s_helper_mounts_and_unmounts() {
    use std::os::unix::process::CommandExt;
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let mnt = scene.path("mnt");
    fs::create_dir(&mnt).unwrap();
    fs::write(scene.path("export/file"), "x").unwrap();
    let mut helper = scene.command();
    helper
        .arg0("/sbin/mount.azekura")
        .arg(scene.volume())
        .arg(&mnt);
    run(helper.args([
        "-n",
        "-o",
        "rw,nosuid,nodev,_netdev,timeout=10s,x-systemd.automount",
    ]))
    .ok();
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"x");
    let line = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = line.lines().find(|line| line.contains(text(&mnt))).unwrap();
    assert!(
        line.starts_with(&scene.volume()) && line.contains("fuse.azekura"),
        "{line}"
    );
    let mut helper = scene.command();
    helper
        .arg0("/sbin/umount.fuse.azekura")
        .arg(&mnt)
        .args(["-n", "-t", "fuse.azekura"]);
    run(&mut helper).ok();
    assert!(!is_mounted(&mnt));
}

#[test]
fn a_killed_server_comes_back_and_the_mount_goes_on() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "60s"]);
    let durable = bytes(2_000_000, 7);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mount.join("file"))
        .unwrap();
    file.write_all(&durable).unwrap();
    file.sync_all().unwrap();
    // Written, not yet durable: the client sends it again when the server is another.
    let late = bytes(1_000_000, 8);
    file.write_all(&late).unwrap();
    scene.kill();
    let reader = std::thread::spawn({
        let path = mount.join("file");
        move || {
            // Waits for the server instead of failing.
            let file = File::open(path).unwrap();
            let mut start = vec![0; 1000];
            file.read_exact_at(&mut start, 0).unwrap();
            start
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    scene.start();
    file.sync_all().unwrap();
    let all = [durable.clone(), late].concat();
    same(&fs::read(scene.path("export/file")).unwrap(), &all);
    assert_eq!(reader.join().unwrap(), durable[..1000]);
    // A handle from before the restart still means the same file.
    let mut back = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut back).unwrap();
    same(&back, &all);
    drop(file);
    scene.umount(&mount);
}

#[test]
fn a_dead_server_ends_no_program_and_no_umount_in_a_hang() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("export/file"), bytes(100_000, 9)).unwrap();
    let mount = scene.mount("mnt", &["--timeout", "2s"]);
    fs::write(mount.join("unsafe"), bytes(300_000, 10)).unwrap();
    scene.kill();
    let begun = Instant::now();
    let outcome = fs::read(mount.join("file"));
    let elapsed = begun.elapsed();
    assert!(
        outcome.is_err() && elapsed < Duration::from_secs(20),
        "{elapsed:?}"
    );
    let begun = Instant::now();
    let refused = scene.azekura(&["umount", text(&mount), "--timeout", "3s"]);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    if refused.status.success() {
        // Nothing was left to write: then it is there.
        same(
            &fs::read(scene.path("export/unsafe")).unwrap(),
            &bytes(300_000, 10),
        );
    } else {
        fails(&refused, "AZ0506");
        assert!(
            refused.stderr.contains("KiB"),
            "it says how much: {}",
            refused.stderr
        );
        assert!(is_mounted(&mount), "nothing is lost yet");
        // When the server is back, it can be written after all.
        scene.start();
        scene.umount(&mount);
        let written = fs::read(scene.path("export/unsafe")).unwrap();
        assert!(
            written == bytes(300_000, 10),
            "what close acknowledged is lost"
        );
    }
    assert!(!is_mounted(&mount));
}

#[test]
fn umount_waits_for_what_is_unwritten_and_says_how_much_it_is() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "2s"]);
    let contents = bytes(3 << 20, 11);
    let mut file = File::create(mount.join("file")).unwrap();
    file.sync_all().unwrap();
    scene.signal(rustix::process::Signal::STOP);
    file.write_all(&contents).unwrap();
    // The close waits for the server, and fails; what was written stays.
    drop(file);
    let refused = scene.azekura(&["umount", text(&mount), "--timeout", "2s"]);
    fails(&refused, "AZ0506");
    assert!(refused.stderr.contains("3.0 MiB"), "{}", refused.stderr);
    assert!(is_mounted(&mount));
    let mut waiting = scene.command();
    waiting.args(["umount", text(&mount), "--timeout", "60s"]);
    let mut waiting = waiting.stderr(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(
        waiting.try_wait().unwrap().is_none(),
        "the server is silent"
    );
    scene.signal(rustix::process::Signal::CONT);
    assert!(waiting.wait().unwrap().success());
    assert!(!is_mounted(&mount));
    same(&fs::read(scene.path("export/file")).unwrap(), &contents);
}

#[test]
fn the_figures_of_the_file_system_are_those_of_the_export() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let disk = scene.path("disk");
    fs::create_dir(&disk).unwrap();
    let tmpfs = [
        "-t",
        "tmpfs",
        "-o",
        "size=8m,nr_inodes=1k",
        "tmpfs",
        text(&disk),
    ];
    run(Command::new("mount").args(tmpfs)).ok();
    let volume = format!("{}/small", scene.address());
    scene
        .azekura(&["volume", "create", &volume, "--export", text(&disk)])
        .ok();
    let mount = scene.mount_volume(&volume, "mnt", &[]);
    let figures = |path: &Path| {
        let found = rustix::fs::statvfs(path).unwrap();
        let bytes = |blocks: u64| blocks * found.f_frsize;
        let space = [found.f_blocks, found.f_bfree, found.f_bavail].map(bytes);
        (space, found.f_files, found.f_ffree)
    };
    assert_eq!(figures(&mount), figures(&disk));
    fs::write(mount.join("file"), bytes(5 << 20, 1)).unwrap();
    scene.azekura(&["sync", text(&mount)]).ok();
    let deadline = Instant::now() + Duration::from_secs(20);
    while figures(&mount) != figures(&disk) {
        assert!(
            Instant::now() < deadline,
            "{:?} {:?}",
            figures(&mount),
            figures(&disk)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let left = figures(&mount).0[1];
    assert!(left <= 3 << 20, "{left}");
    scene.umount(&mount);
    run(Command::new("umount").args(["-l", text(&disk)])).ok();
}

#[test]
fn a_mount_tells_its_figures_while_the_server_is_silent() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "60s"]);
    fs::write(mount.join("file"), "x").unwrap();
    scene.azekura(&["sync", text(&mount)]).ok();
    for kill in [false, true] {
        if kill {
            scene.kill();
        } else {
            scene.signal(rustix::process::Signal::STOP);
        }
        // Longer than anything about the server is believed.
        std::thread::sleep(base::limits::LEASE_TIME);
        let begun = Instant::now();
        let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
        assert_eq!(figures["has_unwritten"], false, "{figures}");
        assert!(figures["silence_millis"].as_u64().unwrap() > 1000);
        assert_eq!(figures["connected"], !kill);
        scene.azekura(&["umount", text(&mount), "--dry-run"]).ok();
        assert!(begun.elapsed() < Duration::from_secs(5));
        if !kill {
            scene.signal(rustix::process::Signal::CONT);
        }
    }
    let begun = Instant::now();
    scene.azekura(&["umount", text(&mount)]).ok();
    assert!(begun.elapsed() < Duration::from_secs(20), "nothing is lost");
    assert!(!is_mounted(&mount));
}

#[test]
fn a_mount_in_use_is_not_taken_off_unless_told_so() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("export/file"), "content").unwrap();
    let mount = scene.mount("mnt", &[]);
    let mut file = File::open(mount.join("file")).unwrap();
    fails(&scene.azekura(&["umount", text(&mount)]), "AZ0505");
    assert!(is_mounted(&mount));
    let dry = ["umount", text(&mount), "--dry-run"];
    fails(&scene.azekura(&dry), "AZ0505");
    scene.azekura(&[&dry[..], &["--lazy"]].concat()).ok();
    assert!(is_mounted(&mount));
    scene.azekura(&["umount", "--lazy", text(&mount)]).ok();
    assert!(!is_mounted(&mount));
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content", "who has it open, keeps it");
}

#[test]
fn a_mount_is_found_by_a_relative_path_from_within() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::create_dir_all(scene.path("export/deep/er")).unwrap();
    let mount = scene.mount("mnt", &[]);
    let within = |arguments: &[&str]| {
        let mut command = scene.command();
        run(command.current_dir(mount.join("deep/er")).args(arguments))
    };
    let figures = json(within(&["top", "../..", "--once", "--json"]));
    assert_eq!(figures["volume"], VOLUME);
    // Its own working directory keeps the mount busy.
    fails(&within(&["umount", "../../../mnt"]), "AZ0505");
    fails(&within(&["umount", "../..", "--dry-run"]), "AZ0505");
    scene.azekura(&["umount", text(&mount), "--dry-run"]).ok();
    within(&["umount", "--lazy", "../.."]).ok();
    assert!(!is_mounted(&mount));
}

#[test]
fn a_killed_mount_can_be_taken_off_and_mounted_again() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    signal_mount(&mount, Signal::KILL);
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read_dir(&mount).is_ok() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    let hint = format!("hint: azekura umount {} takes it off", mount.display());
    for asked in [
        &["top", text(&mount), "--once"][..],
        &["sync", text(&mount)],
    ] {
        let silent = scene.azekura(asked);
        fails(&silent, "AZ0508");
        assert!(silent.stderr.contains(&hint), "{silent:?}");
    }
    let over = scene.azekura(&["mount", &scene.volume(), text(&mount)]);
    fails(&over, "AZ0502");
    assert!(over.stderr.contains("its process has ended"), "{over:?}");
    assert!(over.stderr.contains(&hint), "{over:?}");
    scene.umount(&mount);
    assert!(!is_mounted(&mount));
    let mount = scene.mount("mnt", &[]);
    fs::write(mount.join("file"), "x").unwrap();
    // And a signal ends it in order.
    signal_mount(&mount, Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(30);
    while is_mounted(&mount) {
        assert!(Instant::now() < deadline, "SIGTERM does not unmount");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read(scene.path("export/file")).unwrap(), b"x");
}

#[test]
fn force_gives_up_at_once_and_leaves_no_process() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "60s"]);
    fs::write(mount.join("file"), bytes(1_000_000, 11)).unwrap();
    let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    scene.kill();
    // A program that waits for the dead server is let go.
    let waiting = std::thread::spawn({
        let path = mount.join("other");
        // The name may be promised without the server; that it is durable may not.
        move || File::create(path)?.sync_all()
    });
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    scene.azekura(&["umount", "--force", text(&mount)]).ok();
    assert!(waiting.join().unwrap().is_err());
    ends_soon(&figures, begun);
    assert!(!is_mounted(&mount) && begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_mount_with_nothing_unwritten_ends_without_its_server() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "60s"]);
    fs::write(mount.join("file"), "x").unwrap();
    scene.azekura(&["sync", text(&mount)]).ok();
    let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    scene.kill();
    let begun = Instant::now();
    // umount(8) would look at the directory first, and wait for the server.
    rustix::mount::unmount(&mount, UnmountFlags::empty()).unwrap();
    ends_soon(&figures, begun);
}

#[test]
fn what_was_created_before_a_directory_changes_is_not_touched_by_the_change() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    // Creations are answered ahead of the server as soon as the directory is known to be free.
    let script = "cd \"$0\"
        for round in 1 2 3 4 5; do
            mkdir d$round
            for file in $(seq 50); do echo x > d$round/$file; done
            setfacl -d -m u:4711:rwx d$round
            touch -d @1000000000 d$round
        done";
    run(std::process::Command::new("sh").args(["-ec", script, text(&mount)])).ok();
    scene.azekura(&["sync", text(&mount)]).ok();
    for round in 1..=5 {
        let directory = scene.path(&format!("export/d{round}"));
        assert_eq!(fs::metadata(&directory).unwrap().mtime(), 1_000_000_000);
        for file in 1..=50 {
            let path = directory.join(file.to_string());
            let acl = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut [0; 256][..]);
            assert!(acl.is_err(), "{} has inherited", path.display());
        }
    }
}
