//! What is written onto a disk: over kills, commits, and going back.

use super::client::Client;
use super::web::Web;
use super::{MIB, Scene, assert_same};
use crate::checks::{fails, json};
use crate::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;

pub(super) fn kill(ready: &Value) {
    let pid = Pid::from_raw(ready["pid"].as_i64().unwrap() as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    // It may be nobody's child that waits for it; dead is enough. Its first thread may be so before
    // another one, which waits for a device.
    let is_alive = || {
        let threads = fs::read_dir(format!("{process}/task"))
            .into_iter()
            .flatten();
        let stat = fs::read_to_string(format!("{process}/stat"));
        threads.count() > 1 || stat.is_ok_and(|stat| !stat.contains(") Z") && !stat.contains(") X"))
    };
    while is_alive() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn what_was_flushed_is_there_after_the_server_was_killed() {
    let scene = Scene::new();
    let image = scene.image("base.img", 8 * MIB);
    scene.publish(&image, "base:1");
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    let mut expected = fs::read(&image).unwrap();
    let mut random = Random(5);
    for round in 0..4_u8 {
        let ready = scene.serve(&url, "base:1", &["--writable"]);
        let mut client = Client::connect(&scene.path("disk.sock"));
        // Everything that was flushed before.
        for offset in (0..8 * MIB).step_by(1 << 20) {
            let read = client.read(offset, 1 << 20);
            let expected = &expected[offset as usize..][..1 << 20];
            assert!(read == expected, "round {round}, at {offset}");
        }
        let mut unflushed = Vec::new();
        for number in 0..60 {
            let len = random.below(20_000) + 1;
            let offset = random.below(8 * MIB - len);
            let bytes = vec![round * 60 + number; len as usize];
            client.write(offset, &bytes);
            unflushed.push((offset, bytes));
            if number % 7 == 6 {
                client.flush();
                for (offset, bytes) in unflushed.drain(..) {
                    expected[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
        kill(&ready);
        // Killed, not a loss of power: what was written may be there, too. It is written again.
        let again = scene.serve(&url, "base:1", &["--writable"]);
        assert!(again["changed_bytes"].as_u64().unwrap() > 0);
        let mut client = Client::connect(&scene.path("disk.sock"));
        for (offset, bytes) in unflushed {
            client.write(offset, &bytes);
            expected[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        drop(client);
        // Its end makes durable what nobody has flushed.
        scene.disk(&["detach", "unix:disk.sock"]).ok();
    }
    let export = ["export", "base:1", "out.img", "--at", &url, "--written"];
    scene
        .disk(&[&export[..], &["--cache", "cache"]].concat())
        .ok();
    assert!(fs::read(scene.path("out.img")).unwrap() == expected);
}

#[test]
fn a_disk_whose_process_ends_without_a_word_is_not_said_to_have_ended_well() {
    let scene = Scene::new();
    let image = scene.image("base.img", MIB);
    scene.publish(&image, "base:1");
    let ready = scene.serve("www/images", "base:1", &["--writable"]);
    let pid = Pid::from_raw(ready["pid"].as_i64().unwrap() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let detach = || scene.disk(&["detach", "unix:disk.sock"]);
    std::thread::scope(|scope| {
        let ended = scope.spawn(detach);
        // It waits when it has asked for the end.
        let status = format!("/proc/{}/status", pid.as_raw_nonzero());
        let is_asked = || {
            let status = fs::read_to_string(&status).unwrap();
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
            let pending = u64::from_str_radix(pending.unwrap().trim(), 16).unwrap();
            pending & (1 << (Signal::TERM.as_raw() - 1)) != 0
        };
        while !is_asked() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        kill(&ready);
        fails(&ended.join().unwrap(), "AZ1013");
    });
}

fn write(scene: &Scene, url: &str, name: &str, byte: u8) {
    scene.serve(url, name, &["--writable"]);
    let mut client = Client::connect(&scene.path("disk.sock"));
    client.write(100_000, &[byte; 10]);
    drop(client);
    scene.disk(&["detach", "unix:disk.sock"]).ok();
}

fn byte(scene: &Scene, url: &str, name: &str, more: &[&str]) -> u8 {
    scene.serve(url, name, more);
    let byte = Client::connect(&scene.path("disk.sock")).read(100_000, 1)[0];
    scene.disk(&["detach", "unix:disk.sock"]).ok();
    byte
}

/// Commits what was written onto a disk of the repository `www/images`.
fn commit(scene: &Scene, url: &str, from: &str, to: &str) -> Value {
    let commit = format!("commit {url} {from} --to www/images --cache cache --name {to}");
    json(scene.line(format!("{commit} --note two --json")))
}

/// A scene with an image of one byte, repeated, in a repository on a web server.
fn ones() -> (Scene, String) {
    let scene = Scene::new();
    let image = scene.path("base.img");
    fs::write(&image, vec![1; 300_000]).unwrap();
    scene.publish(&image, "base:1");
    let url = Web::of(&scene.path("www")).url("images");
    (scene, url)
}

#[test]
fn changes_become_versions_and_are_taken_back() {
    let (scene, url) = ones();
    let byte = |name: &str, more: &[&str]| byte(&scene, &url, name, more);
    let writable = &["--writable"][..];
    write(&scene, &url, "base:1", 2);
    assert_eq!(byte("base:1", &[]), 1, "read only, it is what it was");
    assert_eq!(byte("base:1", writable), 2);
    let committed = commit(&scene, &url, "base:1", "base:2");
    assert_eq!(
        (&committed["new_chunks"], &committed["chunks"]),
        (&1.into(), &5.into())
    );
    assert_eq!(byte("base:2", &[]), 2);
    let diff = json(scene.line("diff base:1 base:2 --json"));
    assert_eq!(diff["changed_bytes"], 65536);
    assert_eq!(diff["changed"][0]["offset_bytes"], 65536);
    let log = json(scene.line(format!("log base:2 --at {url} --json")));
    assert_eq!(log["versions"][0]["note"], "two");

    scene.line(format!("reset {url} base:1")).ok();
    assert_eq!(byte("base:1", writable), 1);
    write(&scene, &url, "base:2", 3);
    commit(&scene, &url, "base:2", "base:2");
    assert_eq!(byte("base:2", &[]), 3);
    let behind = scene.serve(&url, "base:2", writable);
    assert_eq!(behind["is_behind"], true);
    scene.line("detach unix:disk.sock").ok();
    // To the version from which it was made, and to any other.
    scene.line(format!("rollback {url} base:2")).ok();
    assert_eq!(byte("base:2", writable), 1);
    let to_newest = format!("rollback {url} base:2 --to base:2");
    let tried = scene.line(format!("{to_newest} --dry-run")).ok();
    assert!(tried.contains("would be version"), "{tried}");
    scene.line(to_newest).ok();
    assert_eq!(byte("base:2", writable), 3);
}

#[test]
fn what_was_written_is_not_thrown_away_for_a_version_that_cannot_be_read() {
    let (scene, url) = ones();
    write(&scene, &url, "base:1", 2);
    let mut indexes = fs::read_dir(scene.path("www/images/indexes")).unwrap();
    let index = indexes.next().unwrap().unwrap().path();
    let good = fs::read(&index).unwrap();
    fs::remove_file(&index).unwrap();
    fs::write(&index, &good[..200]).unwrap();
    for command in ["reset", "rollback --to base:1"] {
        fails(&scene.line(format!("{command} {url} base:1")), "AZ1004");
    }
    fs::write(&index, good).unwrap();
    assert_eq!(byte(&scene, &url, "base:1", &["--writable"]), 2);
}

#[test]
fn names_move_and_what_nothing_points_to_goes() {
    let (scene, url) = ones();
    for byte in [2, 3] {
        scene.line(format!("reset {url} base:1")).ok();
        write(&scene, &url, "base:1", byte);
        commit(&scene, &url, "base:1", "base:2");
    }
    let log = json(scene.line(format!("log base:2 --at {url} --json")));
    let first = log["versions"][0]["parents"][0].as_str().unwrap();
    scene
        .line(format!("tag base:old {first} --at www/images"))
        .ok();
    scene.line("tag base:2 base:old").ok();
    assert_eq!(byte(&scene, &url, "base:2", &[]), 1);
    let names = json(scene.line("log --json --at www/images"));
    let names = names["images"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|image| image["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["base:1", "base:2", "base:old"]);
    let gc = |more: &str| json(scene.line(format!("gc --json --keep 1{more}")));
    let counted = gc(" --dry-run");
    assert_eq!(
        (&counted["versions"], &counted["chunks"]),
        (&2.into(), &2.into())
    );
    assert_eq!(gc(""), counted);
    assert_eq!(gc("")["chunks"], 0);
    let log = scene.line("log base:2").ok();
    assert!(log.contains("collected"), "{log}");
    scene.line("tag base:old --remove").ok();
    let checked = json(scene.line("check --json"));
    assert_eq!(
        (&checked["versions"], &checked["finding_count"]),
        (&2.into(), &0.into())
    );
    scene.line("export base:2 out.img").ok();
    assert_same(&scene.path("out.img"), &scene.path("base.img"));
}
