//! What `azekura sync` and `azekura umount` say of what servers and their users do meanwhile.

use crate::checks::{fails, figures};
use crate::common::{Run, Scene, obstacle, text};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the process of a mount may take to end, on a machine that is busy.
const END_TIME_MAX: Duration = Duration::from_secs(15);

fn contents(number: usize) -> Vec<u8> {
    format!("file {number}\n").repeat(200).into_bytes()
}

fn make(directory: &Path, numbers: std::ops::Range<usize>) {
    for number in numbers {
        fs::write(directory.join(number.to_string()), contents(number)).unwrap();
    }
}

#[track_caller]
fn ends(process: u64) {
    let begun = Instant::now();
    while Path::new(&format!("/proc/{process}")).exists() {
        assert!(begun.elapsed() < END_TIME_MAX, "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The server goes down with what it has not made durable, and three quarters of the files are
/// removed there before it is back.
#[test]
fn files_removed_at_the_server_keep_no_mount_from_its_end() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let log = scene.path("log");
    let mount = scene.mount("mnt", &["--log", text(&log)]);
    let process = figures(&mount)["pid"].as_u64().unwrap();
    make(&mount, 0..500);
    scene.azekura(&["sync", text(&mount)]).ok();
    for number in 0..500 {
        fs::write(mount.join(number.to_string()), contents(number + 1)).unwrap();
    }
    make(&mount, 500..1000);
    scene.kill();
    for number in (0..1000).filter(|number| number % 4 > 0) {
        // What only the mount has yet is not there.
        let _ = fs::remove_file(scene.path("export").join(number.to_string()));
    }
    scene.start();
    let umount = ["umount", text(&mount)];
    let first = scene.azekura(&umount);
    if !first.status.success() {
        // What was written to them is lost, and that is said once.
        fails(&first, "AZ0506");
        assert!(first.stderr.contains("some of it is lost"), "{first:?}");
        scene.umount(&mount);
    }
    ends(process);
    let log = fs::read_to_string(log).unwrap();
    assert!(!log.contains("makes no sense"), "{log}");
    for number in (0..1000).step_by(4) {
        let found = fs::read(scene.path("export").join(number.to_string())).unwrap();
        let expected = contents(number + usize::from(number < 500));
        let (found, whole) = (found.len(), found == expected);
        assert!(whole, "file {number}: {found} bytes; {first:?}");
    }
}

#[test]
fn what_has_no_file_any_more_is_told_once() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "1s"]);
    make(&mount, 0..20);
    let open = |number: usize| {
        let path = mount.join(number.to_string());
        File::options().write(true).open(path).unwrap()
    };
    let files: Vec<File> = (0..20).map(open).collect();
    scene.azekura(&["sync", text(&mount)]).ok();
    scene.kill();
    for file in &files {
        file.write_all_at(b"later", 0).unwrap();
    }
    // A close that hears of a loss has told it, also one by a child that runs another program.
    drop(files);
    for number in 0..10 {
        fs::remove_file(scene.path("export").join(number.to_string())).unwrap();
    }
    scene.start();
    let sync = ["sync", text(&mount)];
    let (begun, mut told) = (Instant::now(), Vec::new());
    // On a machine that is busy some of them may not be known to be lost yet.
    while told.last().is_none_or(|last: &Run| !last.status.success()) {
        assert!(begun.elapsed() < END_TIME_MAX, "{told:?}");
        told.push(scene.azekura(&sync));
    }
    fails(&told[0], "AZ0506");
    assert!(told[0].stderr.contains("some of it is lost"), "{told:?}");
    for number in 10..20 {
        let found = fs::read(scene.path("export").join(number.to_string())).unwrap();
        assert!(found.starts_with(b"later"), "file {number}");
    }
    scene.umount(&mount);
}

/// The mount's own patience is next to none after a long silence.
#[test]
fn a_sync_waits_for_a_server_that_comes_back() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &["--timeout", "1s"]);
    make(&mount, 0..20);
    scene.kill();
    make(&mount, 20..40);
    std::thread::sleep(Duration::from_secs(3));
    let gives_up = scene.azekura(&["sync", text(&mount), "--timeout", "500ms"]);
    fails(&gives_up, "AZ0506");
    assert!(gives_up.stderr.contains("is not connected"), "{gives_up:?}");
    let mut sync = scene.command();
    let waiting = sync.args(["sync", text(&mount)]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    scene.start();
    let synced = waiting.wait_with_output().unwrap();
    assert!(synced.status.success(), "{synced:?}");
    for number in 0..40 {
        let found = fs::read(scene.path("export").join(number.to_string())).unwrap();
        assert!(found == contents(number), "file {number}");
    }
    scene.umount(&mount);
}

/// All that was written to them was at the server by then.
#[test]
fn files_that_another_machine_removes_are_no_loss() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let (one, two) = (scene.mount("one", &[]), scene.mount("two", &[]));
    for round in 0..5 {
        let names = round * 100..(round + 1) * 100;
        make(&one, names.clone());
        for number in names.clone() {
            let path = one.join(number.to_string());
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(b"later", 0).unwrap();
        }
        for number in names {
            fs::remove_file(two.join(number.to_string())).unwrap();
        }
        for mount in [&one, &two] {
            scene.azekura(&["sync", text(mount)]).ok();
        }
    }
    scene.umount(&one);
    scene.umount(&two);
}
