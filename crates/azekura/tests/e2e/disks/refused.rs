//! Errors, each with its code; and whose word counts.

use super::web::Web;
use super::{MIB, Scene, has, tool};
use crate::checks::{fails, json};
use crate::common::{Run, text};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

fn chunk_files(scene: &Scene) -> Vec<PathBuf> {
    let directories = fs::read_dir(scene.path("www/images/default.castr")).unwrap();
    let files = directories.flat_map(|directory| fs::read_dir(directory.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn what_cannot_be_done_has_a_code_and_changes_nothing() {
    let scene = Scene::new();
    let image = scene.image("base.img", MIB);
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr();
    let nobody = format!("http://{}/images", free.unwrap());
    // Without a repository.
    fails(&scene.disk(&["log"]), "AZ1001");
    fails(&scene.disk(&["log", "base:1", "--at", &nobody]), "AZ1001");
    fails(&scene.disk(&["check", "--at", "nowhere"]), "AZ1001");
    fails(
        &scene.disk(&["gc", "--at", "http://127.0.0.1:1/x"]),
        "AZ1001",
    );
    let publish = [
        "publish",
        "base.img",
        "--to",
        "www/images",
        "--name",
        "base:1",
    ];
    scene.disk(&[&publish[..], &["--dry-run"]].concat()).ok();
    assert!(!scene.path("www").exists() && !scene.path("config/disk.key").exists());
    fails(
        &scene.disk(&[&publish[..], &["--chunk-size", "100KiB"]].concat()),
        "AZ1005",
    );
    fails(
        &scene.disk(&["publish", "none", "--to", "www/images", "--name", "a:1"]),
        "AZ0002",
    );
    let usage = scene.disk(&[
        "publish",
        "base.img",
        "--to",
        "www/images",
        "--name",
        "../a",
    ]);
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    scene.publish(&image, "base:1");
    let images = ["--at", "www/images"];
    let at = |arguments: &[&str]| scene.disk(&[arguments, &images[..]].concat());
    fails(&at(&["log", "base:9"]), "AZ1002");
    fails(&at(&["diff", "base:1", &"ab".repeat(32)]), "AZ1002");
    fails(&at(&["tag", "base:9", "--remove"]), "AZ1002");
    fails(&scene.disk(&["rollback", "www/images", "base:1"]), "AZ1002");
    fails(
        &scene.disk(&["commit", "www/images", "base:1", "--name", "base:2"]),
        "AZ1009",
    );
    fails(&at(&["export", "base:1", "base.img"]), "AZ0002");
    fails(&scene.disk(&["detach", "unix:none.sock"]), "AZ1011");
    let serve = |place: &str, name: &str, nbd: &str| {
        scene.disk(&["serve", place, name, "--nbd", nbd, "--cache", "cache"])
    };
    fails(&serve("www/images", "base:9", "unix:a.sock"), "AZ1002");
    fails(&serve("www/images", "base:1", "unix:no/a.sock"), "AZ0604");
    fails(&serve("www/images", "base:1", "192.0.2.1:1"), "AZ0604");
    fs::write(scene.path("file"), b"").unwrap();
    fails(&serve("www/images", "base:1", "unix:file"), "AZ0604");
    assert!(scene.path("file").exists());
    // An overlay that is none.
    fs::create_dir(scene.path("over")).unwrap();
    fs::write(scene.path("over/overlay"), vec![7; 10_000]).unwrap();
    let over = [
        "serve",
        "www/images",
        "base:1",
        "--nbd",
        "unix:a.sock",
        "--overlay",
        "over",
    ];
    fails(&scene.disk(&over), "AZ1004");
    assert!(!scene.path("a.sock").exists());
}

#[test]
fn an_image_that_changes_is_not_published() {
    let scene = Scene::new();
    let image = scene.image("base.img", 4 * MIB);
    let file = fs::File::options().write(true).open(&image).unwrap();
    let is_over = AtomicBool::new(false);
    let published = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.write_all_at(b"x", 5).unwrap();
            }
        });
        let publish = [
            "publish",
            "base.img",
            "--to",
            "www/images",
            "--name",
            "base:1",
        ];
        let published = scene.disk(&publish);
        is_over.store(true, Ordering::Relaxed);
        published
    });
    fails(&published, "AZ1008");
    fails(
        &scene.disk(&["log", "base:1", "--at", "www/images"]),
        "AZ1002",
    );
}

#[test]
fn a_damaged_chunk_is_an_error_is_found_and_is_published_again() {
    let scene = Scene::new();
    let image = scene.image("base.img", MIB);
    let first = scene.publish(&image, "base:1");
    let chunks = chunk_files(&scene);
    fs::write(&chunks[0], b"something else").unwrap();
    let export = [
        "export",
        "base:1",
        "out.img",
        "--at",
        "www/images",
        "--cache",
        "cache",
    ];
    let failed = scene.disk(&export);
    fails(&failed, "AZ1004");
    assert!(!scene.path("out.img").exists());
    let check = |more: &[&str]| scene.disk(&[&["check", "--at", "www/images"], more].concat());
    let found = |run: &Run| {
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        assert!(run.stderr.contains("AZ1007"), "{run:?}");
        assert!(run.stdout.contains("1 finding"), "{run:?}");
    };
    found(&check(&[]));
    check(&["--records"]).ok();
    found(&check(&["--remove-damaged", "--dry-run"]));
    assert!(chunks[0].exists());
    found(&check(&["--remove-damaged"]));
    assert!(!chunks[0].exists());
    let again = scene.publish(&image, "base:1");
    assert_eq!(
        (&again["new_chunks"], &again["chunks"]),
        (&1.into(), &first["chunks"])
    );
    check(&[]).ok();
}

#[test]
fn the_first_key_is_believed_and_another_one_is_not() {
    let scene = Scene::new();
    let image = scene.image("base.img", MIB);
    scene.publish(&image, "base:1");
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    let log = |config: &str, more: &[&str]| {
        scene.disk_as(config, &[&["log", "base:1", "--at", &url], more].concat())
    };
    let met = log("other", &[]);
    assert!(
        met.stderr.contains("who is believed from now on"),
        "{met:?}"
    );
    let key = met.stderr.split("is signed by ").nth(1).unwrap()[..64].to_owned();
    met.ok();
    assert!(!log("other", &[]).stderr.contains("believed"));
    // Somebody else puts another image there.
    let publish = [
        "publish",
        "base.img",
        "--to",
        "www/images",
        "--name",
        "base:1",
    ];
    fails(&scene.disk_as("stranger", &publish), "AZ1003");
    fs::remove_dir_all(scene.path("www/images/tags")).unwrap();
    scene.disk_as("stranger", &publish).ok();
    let refused = log("other", &[]);
    fails(&refused, "AZ1003");
    let stranger = refused.stderr.split("--key ").nth(1).unwrap()[..64].to_owned();
    assert_ne!(stranger, key);
    log("other", &["--key", &stranger]).ok();
    log("other", &[]).ok();
    // Who names the key first believes no other.
    let named = scene.disk_as("careful", &["log", "base:1", "--at", &url, "--key", &key]);
    fails(&named, "AZ1003");
}

#[test]
fn other_formats_are_published_by_qemu_img_where_it_is() {
    let scene = Scene::new();
    let image = scene.image("base.img", 4 * MIB);
    fs::write(scene.path("x.qcow2"), b"QFI\xfbnot really").unwrap();
    let publish = |name: &str| scene.disk(&["publish", name, "--to", "www", "--name", "x:1"]);
    fails(&publish("x.qcow2"), "AZ1010");
    fs::create_dir(scene.path("directory")).unwrap();
    fails(&publish("directory"), "AZ1010");
    if !has("qemu-img") {
        return;
    }
    let qcow2 = scene.path("base.qcow2");
    let convert = ["convert", "-O", "qcow2", text(&image), text(&qcow2)];
    tool("qemu-img", &convert);
    let published = |name: &str| {
        let publish = ["publish", name, "--to", "www", "--name", "base:1", "--json"];
        json(scene.disk(&publish))
    };
    let (first, second) = (published("base.img"), published("base.qcow2"));
    assert!(first["new_chunks"].as_u64().unwrap() > 0);
    assert_eq!(
        (&second["new_chunks"], &second["image_bytes"]),
        (&0.into(), &(4 * MIB).into())
    );
}
