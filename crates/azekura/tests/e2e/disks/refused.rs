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
fn without_a_repository_or_an_image_nothing_is_made() {
    let scene = Scene::new();
    scene.image("base.img", MIB);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap();
    drop(free);
    for (line, code) in [
        ("log", "AZ1001"),
        (
            &*format!("log base:1 --at http://{nobody}/images"),
            "AZ1001",
        ),
        ("check --at nowhere", "AZ1001"),
        ("gc --at http://127.0.0.1:1/x", "AZ1001"),
        ("publish none --to www --name a:1", "AZ0002"),
        (
            "publish base.img --to www --name a:1 --chunk-size 1GiB",
            "AZ1005",
        ),
    ] {
        fails(&scene.line(line), code);
    }
    let usage = scene.line("publish base.img --to www --name ../a");
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    scene
        .line("publish base.img --to www --name a:1 --dry-run")
        .ok();
    assert!(!scene.path("www").exists() && !scene.path("config/disk.key").exists());
    let odd = scene.line("publish base.img --to www --name a:1 --chunk-size 100KiB");
    fails(&odd, "AZ1005");
}

#[test]
fn what_cannot_be_done_has_a_code_and_changes_nothing() {
    let scene = Scene::new();
    let image = scene.image("base.img", MIB);
    scene.publish(&image, "base:1");
    fs::write(scene.path("file"), b"").unwrap();
    fs::create_dir(scene.path("over")).unwrap();
    fs::write(scene.path("over/overlay"), vec![7; 10_000]).unwrap();
    let serve = "serve www/images base:1 --cache cache --nbd";
    for (line, code) in [
        ("log base:9 --at www/images", "AZ1002"),
        (
            &*format!("diff base:1 {} --at www/images", "ab".repeat(32)),
            "AZ1002",
        ),
        ("tag base:9 --remove --at www/images", "AZ1002"),
        ("rollback www/images base:1", "AZ1002"),
        ("commit www/images base:1 --name base:2", "AZ1009"),
        ("export base:1 base.img --at www/images", "AZ0002"),
        ("detach unix:none.sock", "AZ1011"),
        (
            "serve www/images base:9 --cache cache --nbd unix:a.sock",
            "AZ1002",
        ),
        (&*format!("{serve} unix:no/a.sock"), "AZ0604"),
        (&*format!("{serve} 192.0.2.1:1"), "AZ0604"),
        (&*format!("{serve} unix:file"), "AZ0604"),
        // An overlay that is none.
        (&*format!("{serve} unix:a.sock --overlay over"), "AZ1004"),
    ] {
        fails(&scene.line(line), code);
    }
    assert!(scene.path("file").exists() && !scene.path("a.sock").exists());
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
        let publish = "publish base.img --to www/images --name base:1";
        let published = scene.line(publish);
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
    let publish = "publish base.img --to www/images --name base:1";
    fails(
        &scene.disk_as("stranger", &publish.split(' ').collect::<Vec<_>>()),
        "AZ1003",
    );
    fs::remove_dir_all(scene.path("www/images/tags")).unwrap();
    scene
        .disk_as("stranger", &publish.split(' ').collect::<Vec<_>>())
        .ok();
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
    let published =
        |name: &str| json(scene.line(format!("publish {name} --to www --name base:1 --json")));
    let (first, second) = (published("base.img"), published("base.qcow2"));
    assert!(first["new_chunks"].as_u64().unwrap() > 0);
    assert_eq!(
        (&second["new_chunks"], &second["image_bytes"]),
        (&0.into(), &(4 * MIB).into())
    );
}

#[test]
fn a_disk_that_names_a_file_of_the_host_is_published_without_that_or_not_at_all() {
    if !has("qemu-img") {
        return;
    }
    let scene = Scene::new();
    let secret = scene.image("secret.img", MIB);
    let create = [
        "create",
        "-q",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "-b",
        text(&secret),
    ];
    let guest = scene.path("guest.img");
    tool("qemu-img", &[&create[..], &[text(&guest)]].concat());
    let publish = |format: &[&str]| {
        let arguments = [
            "publish",
            "guest.img",
            "--to",
            "www",
            "--name",
            "guest:1",
            "--json",
        ];
        scene.disk(&[&arguments[..], format].concat())
    };
    let refused = publish(&[]);
    fails(&refused, "AZ1010");
    assert!(refused.stderr.contains("secret.img"), "{}", refused.stderr);
    // As a raw disk it is what the guest wrote, and no more.
    let raw = json(publish(&["--format", "raw"]));
    let length = fs::metadata(&guest).unwrap().len();
    assert_eq!(raw["image_bytes"], length);
    let whole = json(publish(&["--format", "qcow2"]));
    assert_eq!(whole["image_bytes"], MIB);
}

#[test]
fn an_image_of_which_the_end_is_missing_is_not_published() {
    if !has("qemu-img") {
        return;
    }
    let scene = Scene::new();
    let image = scene.image("base.img", 4 * MIB);
    for format in ["qcow2", "vmdk", "vhdx"] {
        let whole = scene.path(&format!("base.{format}"));
        let convert = ["convert", "-O", format, text(&image), text(&whole)];
        tool("qemu-img", &convert);
        let length = fs::metadata(&whole).unwrap().len();
        let name = format!("cut.{format}");
        // Three quarters of a VHDX of this length have all that is in it.
        let quarters = if format == "vhdx" { 2..3 } else { 1..4 };
        for cut in quarters.map(|quarter| length * quarter / 4) {
            fs::copy(&whole, scene.path(&name)).unwrap();
            let file = fs::File::options().write(true).open(scene.path(&name));
            file.unwrap().set_len(cut).unwrap();
            let publish = ["publish", &name, "--to", "www", "--name", "cut:1"];
            fails(&scene.disk(&publish), "AZ1010");
        }
        let line = format!("publish base.{format} --to www --name {format}:1");
        scene.line(&line).ok();
    }
    fails(&scene.disk(&["log", "cut:1", "--at", "www"]), "AZ1002");
}
