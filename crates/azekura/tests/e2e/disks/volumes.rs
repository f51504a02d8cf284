//! Repositories in volumes: in an export, and in a parallel volume.

use super::client::Client;
use super::{MIB, assert_same};
use crate::checks::{fails, json};
use crate::common::{Scene, obstacle, text};
use crate::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Stdio};

/// A disk that is served; it ends with this, also when the test fails.
struct Served(Pid);

impl Drop for Served {
    fn drop(&mut self) {
        // Usually it has ended.
        let _ = kill_process(self.0, Signal::TERM);
    }
}

/// A repository that is served over HTTP; it ends with this, and takes its mount off.
struct Given {
    child: Child,
    url: String,
}

impl Given {
    fn start(scene: &Scene, place: &str) -> Self {
        let mut child = scene
            .command()
            .args(["disk", "web", place, "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut said).unwrap();
        let url = said.trim_end().rsplit(' ').next().unwrap().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{said}");
        Self { child, url }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// What a server answers to one request, head and body.
fn asked(url: &str, request: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("{request}\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The repository is read over HTTP, and nothing else is.
fn it_is_given_away(scene: &Scene, at: &str, expected: &Path) {
    let given = Given::start(scene, at);
    let (out, url) = (scene.path("web.img"), &given.url);
    let export = ["disk", "export", "base:2", text(&out), "--at", url];
    let cache = scene.path("another cache");
    scene
        .azekura(&[&export[..], &["--overwrite", "--cache", text(&cache)]].concat())
        .ok();
    assert_same(&out, expected);
    fs::remove_dir_all(cache).unwrap();
    for (request, status) in [
        ("GET /tags/base@2.azt HTTP/1.1", "200 OK"),
        ("HEAD /tags/base@2.azt HTTP/1.1", "200 OK"),
        (
            "GET /tags/base@2.azt HTTP/1.1\r\nRange: bytes=0-7",
            "206 Partial",
        ),
        (
            "GET /tags/base@2.azt HTTP/1.1\r\nRange: bytes=99999-",
            "416 Range",
        ),
        ("PUT /tags/base@2.azt HTTP/1.1", "405 Method"),
        ("GET /tags.lock HTTP/1.1", "404 Not"),
        ("GET /tags/ HTTP/1.1", "404 Not"),
        ("GET /../../etc/passwd HTTP/1.1", "404 Not"),
        ("GET /tags/link HTTP/1.1", "404 Not"),
    ] {
        let answer = asked(url, request);
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{request}: {answer}");
    }
    let part = asked(url, "GET /tags/base@2.azt HTTP/1.1\r\nRange: bytes=0-7");
    assert!(part.ends_with("AZKDISKR"), "{part}");
}

fn disk(scene: &Scene, line: &str) -> Value {
    let words: Vec<_> = ["disk"].into_iter().chain(line.split(' ')).collect();
    json(scene.azekura(&[&words[..], &["--json"]].concat()))
}

/// Nothing that a command has mounted stays mounted.
#[track_caller]
fn nothing_is_mounted(scene: &Scene) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = text(&scene.path("")).to_owned();
    let mut mounts = mounts.lines().filter(|mount| mount.contains(&own));
    assert_eq!(mounts.find(|mount| mount.contains("disks/volumes")), None);
}

fn a_repository_is_in(scene: &Scene, volume: &str) {
    let at = format!("{volume}:/some/images");
    let path = |name: &str| text(&scene.path(name)).to_owned();
    let mut random = Random(9);
    let mut expected: Vec<u8> = (0..3 * MIB).map(|_| random.below(200) as u8).collect();
    expected.resize(6 << 20, 0);
    fs::write(path("base.img"), &expected).unwrap();
    let publish = format!(
        "publish {} --to {at} --name base:1 --chunk-size 64KiB",
        path("base.img")
    );
    let tried = disk(scene, &format!("{publish} --dry-run"));
    let published = disk(scene, &publish);
    assert_eq!(published["new_chunks"], 49);
    assert_eq!(tried["new_chunks"], published["new_chunks"]);
    assert_eq!(disk(scene, &publish)["new_chunks"], 0);
    nothing_is_mounted(scene);

    let socket = path("disk.sock");
    let cache = path("cache");
    let serve = format!("serve {at} base:1 --nbd unix:{socket} --cache {cache} --writable");
    let ready = disk(scene, &serve);
    let served = Served(Pid::from_raw(ready["pid"].as_i64().unwrap() as i32).unwrap());
    let mut client = Client::connect(&scene.path("disk.sock"));
    assert!(client.read(MIB, 300_000) == expected[1 << 20..][..300_000]);
    client.write(5 * MIB, &[8; 5000]);
    client.flush();
    expected[5 << 20..][..5000].fill(8);
    drop(client);
    scene
        .azekura(&["disk", "detach", &format!("unix:{socket}")])
        .ok();
    drop(served);
    let commit = format!("commit {at} base:1 --name base:2 --cache {cache}");
    assert_eq!(disk(scene, &commit)["new_chunks"], 1);
    let checked = disk(scene, "check");
    let versions = (&checked["versions"], &checked["finding_count"]);
    assert_eq!(versions, (&2.into(), &0.into()));
    let (out, wanted) = (path("out.img"), path("wanted"));
    let export = format!("export base:2 {out} --at {at} --overwrite");
    let words: Vec<_> = ["disk"].into_iter().chain(export.split(' ')).collect();
    scene.azekura(&words).ok();
    fs::write(&wanted, &expected).unwrap();
    assert_same(out.as_ref(), wanted.as_ref());
    it_is_given_away(scene, &at, wanted.as_ref());
    scene
        .azekura(&["disk", "tag", "base:1", "--remove", "--at", &at])
        .ok();
    // Published twice.
    assert_eq!(disk(scene, "gc --keep 1")["versions"], 2);
    nothing_is_mounted(scene);
}

#[test]
fn a_repository_in_an_export_or_a_parallel_volume_is_used_as_one_in_a_directory() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::with_store("256MiB");
    a_repository_is_in(&scene, &scene.volume());
    // It is one, for whoever is on that machine.
    let there = scene.path("export/some/images");
    symlink("/etc/passwd", there.join("tags/link")).unwrap();
    it_is_given_away(&scene, text(&there), &scene.path("wanted"));
    let checked = disk(&scene, &format!("check --at {}", text(&there)));
    assert_eq!(checked["finding_count"], 0);
    a_repository_is_in(&scene, &scene.parallel());
    let missing = format!("{}/nothing:/images", scene.address());
    let tried = scene.azekura(&["disk", "log", "base:1", "--at", &missing]);
    fails(&tried, "AZ1001");
    nothing_is_mounted(&scene);
}
