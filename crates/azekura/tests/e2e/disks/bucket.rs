//! Repositories in a bucket, at a real server of S3. There is none in Debian: `cargo xtask deep
//! bucket` builds one and runs these; elsewhere they are skipped without it.

use super::client::Client;
use super::{MIB, Scene, assert_same, has, tool};
use crate::checks::{fails, json};
use crate::common::text;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const AT: &str = "s3://bucket/some/images";

/// A server of S3 that keeps objects as files. It ends with this.
struct Server {
    child: Child,
    port: u16,
    root: PathBuf,
}

impl Server {
    fn start(root: &Path) -> Option<Self> {
        if !has("s3s-fs") {
            return None;
        }
        fs::create_dir_all(root.join("bucket")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let child = Command::new("s3s-fs")
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", "someone", "--secret-key", "a secret"])
            .arg(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            child,
            port,
            root: root.to_owned(),
        };
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the server does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    fn variables(&self, secret: &str) -> Vec<(&'static str, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        vec![
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "someone".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
        ]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scene whose programs know the server; none without one.
fn scene() -> Option<(Scene, Server)> {
    let mut scene = Scene::new();
    let server = Server::start(&scene.path("s3"))?;
    scene.variables = server.variables("a secret");
    Some((scene, server))
}

#[test]
fn an_image_in_a_bucket_is_published_served_changed_and_committed() {
    let Some((scene, server)) = scene() else {
        return;
    };
    let image = scene.image("base.img", 10 * MIB);
    let publish = |name: &str, more: &str| {
        let line = format!("publish base.img --to {AT} --name {name} --chunk-size 64KiB --json");
        json(scene.line(format!("{line}{more}")))
    };
    let tried = publish("base:1", " --dry-run");
    let objects = server.root.join("bucket/some/images");
    assert!(!objects.join("default.castr").exists());
    let published = publish("base:1", "");
    assert_eq!(tried["new_chunks"], published["new_chunks"]);
    assert!(
        published["new_chunks"].as_u64().unwrap() > 30,
        "{published}"
    );
    assert_eq!(publish("base:again", "")["new_chunks"], 0);

    let mut expected = fs::read(&image).unwrap();
    let serve = [AT, "base:1", "--writable", "--record", "run.profile"];
    scene.serve(serve[0], serve[1], &serve[2..]);
    let mut client = Client::connect(&scene.path("disk.sock"));
    assert!(client.read(3 * MIB, 100_000) == expected[3 << 20..][..100_000]);
    client.write(5 * MIB + 7, &[9; 1000]);
    client.flush();
    expected[(5 << 20) + 7..][..1000].fill(9);
    drop(client);
    scene.line("detach unix:disk.sock").ok();
    let commit = format!("commit {AT} base:1 --name base:2 --cache cache --json");
    assert_eq!(json(scene.line(commit))["new_chunks"], 1);
    let diff = json(scene.line("diff base:1 base:2 --json"));
    assert_eq!(diff["changed_bytes"], 65536);
    let trained = json(scene.line("train base:1 run.profile --json"));
    assert_eq!(trained["profiles"], serde_json::json!(["run"]));
    let checked = json(scene.line("check --json"));
    let versions = (&checked["versions"], &checked["finding_count"]);
    assert_eq!(versions, (&3.into(), &0.into()));

    let out = scene.path("out.img");
    fs::write(scene.path("expected"), &expected).unwrap();
    scene.line(format!("export base:2 out.img --at {AT}")).ok();
    assert_same(&out, &scene.path("expected"));
    // What lies there is what lies in a directory: others read it.
    if has("casync") {
        let store = format!("--store={}", text(&objects.join("default.castr")));
        let index = objects.join("base@2.caibx");
        fs::remove_file(&out).unwrap();
        tool("casync", &["extract", &store, text(&index), text(&out)]);
        assert_same(&out, &scene.path("expected"));
    }
    fails(&scene.line("gc"), "AZ1001");
    scene.line("tag base:again --remove").ok();
    let names = json(scene.line(format!("log --at {AT} --json")));
    assert_eq!(names["images"].as_array().unwrap().len(), 2);
}

/// This server looks at a condition first and writes then, so between these two a name's history
/// may lose a version here; that a condition is heeded is tested where it is made.
#[test]
fn publishers_of_one_name_beside_each_other_leave_what_can_be_read() {
    let Some((scene, _server)) = scene() else {
        return;
    };
    const PUBLISHERS: u8 = 4;
    // The key is there before they begin.
    fs::write(scene.path("0.img"), [0; 100_000]).unwrap();
    let line = |number| format!("publish {number}.img --to {AT} --name base:1");
    scene.line(line(0)).ok();
    std::thread::scope(|scope| {
        for number in 1..=PUBLISHERS {
            let (scene, line) = (&scene, line(number));
            fs::write(scene.path(&format!("{number}.img")), [number; 100_000]).unwrap();
            scope.spawn(move || scene.line(line).ok());
        }
    });
    let log = json(scene.line(format!("log base:1 --at {AT} --json")));
    let versions = log["versions"].as_array().unwrap();
    let all = 2..=usize::from(PUBLISHERS) + 1;
    assert!(all.contains(&versions.len()), "{log}");
    let checked = json(scene.line("check --json"));
    assert_eq!(checked["finding_count"], 0);
}

#[test]
fn whoever_may_not_use_a_bucket_is_told() {
    let Some((mut scene, server)) = scene() else {
        return;
    };
    fs::write(scene.path("base.img"), [1; 100_000]).unwrap();
    let publish =
        |scene: &Scene, at: &str| scene.line(format!("publish base.img --to {at} --name base:1"));
    publish(&scene, AT).ok();
    fails(&scene.line(format!("log base:7 --at {AT}")), "AZ1002");
    scene.variables = server.variables("another secret");
    fails(&publish(&scene, AT), "AZ1001");
    fails(&scene.line(format!("log base:1 --at {AT}")), "AZ1001");
    scene.variables.clear();
    let without = publish(&scene, AT);
    fails(&without, "AZ1001");
    assert!(without.stderr.contains("AWS_ACCESS_KEY_ID"), "{without:?}");
}
