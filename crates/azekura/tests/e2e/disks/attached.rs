//! FUSE and loop devices.

use super::web::Web;
use super::{MIB, Scene, assert_same, has, tool};
use crate::checks::{fails, json};
use crate::common::{obstacle, run, text};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Taken off when the test ends in whatever way.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &str, on: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&on).unwrap();
        tool("mount", &["-o", options, device, text(&on)]);
        Self(on)
    }

    fn off(self) {
        tool("umount", &[text(&self.0)]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn an_image_is_a_file_of_a_mount() {
    if let Some(why) = obstacle() {
        eprintln!("{why}");
        return;
    }
    let scene = Scene::new();
    let image = scene.image("base.img", 10 * MIB);
    scene.publish(&image, "base:1");
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    fs::create_dir(scene.path("mnt")).unwrap();
    let attach = ["attach", &url, "base:1", "mnt", "--cache", "cache"];
    scene.disk(&[&attach[..], &["--dry-run"]].concat()).ok();
    let said = scene.disk(&attach).ok();
    assert!(said.starts_with("base:1 is attached at "), "{said}");
    let file = scene.path("mnt/disk.img");
    assert_same(&file, &image);
    assert!(fs::write(&file, b"x").is_err(), "read only");
    // Holes of the image are holes of the file.
    let sparse = scene.path("sparse");
    tool("cp", &["--sparse=auto", text(&file), text(&sparse)]);
    let blocks = |path| std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path).unwrap());
    assert!(blocks(&sparse) * 512 < 8 * MIB, "{}", blocks(&sparse));
    assert_same(&sparse, &image);
    fails(&scene.disk(&attach), "AZ0502");
    fs::create_dir(scene.path("other")).unwrap();
    let as_loop = [
        "attach", &url, "base:1", "other", "--cache", "cache", "--loop",
    ];
    let without_losetup = run(scene.command("config").args(as_loop).env("PATH", "nowhere"));
    fails(&without_losetup, "AZ1014");
    assert!(!scene.path("other/disk.img").exists(), "taken off again");
    let open = fs::File::open(&file).unwrap();
    fails(&scene.disk(&["detach", "mnt"]), "AZ0505");
    drop(open);
    scene.disk(&["detach", "mnt"]).ok();
    assert!(!file.exists());
    fails(&scene.disk(&["detach", "mnt"]), "AZ1011");
}

#[test]
fn a_file_system_in_an_image_is_mounted_changed_and_committed() {
    if let Some(why) = obstacle() {
        eprintln!("{why}");
        return;
    }
    let scene = Scene::new();
    let Some(image) = scene.file_system(32 * MIB) else {
        eprintln!("skipped: mkfs.ext4 cannot make a file system of a tree");
        return;
    };
    scene.publish(&image, "base:1");
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    fs::create_dir(scene.path("mnt")).unwrap();
    let attach = [
        "attach", &url, "base:1", "mnt", "--cache", "cache", "--loop", "--json",
    ];
    let first = scene.disk(&attach);
    if first.stderr.contains("AZ1014") {
        eprintln!("skipped: no loop device can be had");
        return;
    }
    let device = json(first)["device"].as_str().unwrap().to_owned();
    let mounted = Mounted::new(&device, scene.path("fs"), "ro,noload");
    tool(
        "diff",
        &[
            "-r",
            "-x",
            "lost+found",
            text(&scene.path("tree")),
            text(&mounted.0),
        ],
    );
    fails(&scene.disk(&["detach", "mnt"]), "AZ0505");
    mounted.off();
    scene.disk(&["detach", "mnt"]).ok();

    let device = json(scene.disk(&[&attach[..], &["--writable"]].concat()));
    assert_eq!(
        (&device["writable"], &device["changed_bytes"]),
        (&true.into(), &0.into())
    );
    let device = device["device"].as_str().unwrap().to_owned();
    let mounted = Mounted::new(&device, scene.path("fs"), "discard");
    fs::write(mounted.0.join("d3/new"), vec![7; 200_000]).unwrap();
    fs::remove_file(mounted.0.join("d4/f1")).unwrap();
    let tree = scene.path("changed");
    tool("cp", &["-r", text(&mounted.0), text(&tree)]);
    mounted.off();
    // In use: neither committed nor reset.
    let commit = [
        "commit",
        &url,
        "base:1",
        "--to",
        "www/images",
        "--cache",
        "cache",
    ];
    let commit = [&commit[..], &["--name", "base:2"]].concat();
    fails(&scene.disk(&commit), "AZ1006");
    fails(&scene.disk(&["reset", &url, "base:1"]), "AZ1006");
    scene.disk(&["detach", "mnt"]).ok();
    let tried = json(scene.disk(&[&commit[..], &["--dry-run", "--json"]].concat()));
    let committed = json(scene.disk(&[&commit[..], &["--json"]].concat()));
    assert_eq!(tried["new_chunks"], committed["new_chunks"]);
    let new = committed["new_chunks"].as_u64().unwrap();
    assert!((1..200).contains(&new), "{committed}");

    // What others make of it is a sound file system with all of that.
    let out = scene.path("out.img");
    if has("casync") {
        let store = "--store=www/images/default.castr";
        let mut casync = Command::new("casync");
        casync.current_dir(scene.path("")).args(["extract", store]);
        run(casync.args(["www/images/base@2.caibx", text(&out)])).ok();
        let own = [
            "export",
            "base:2",
            "own.img",
            "--at",
            "www/images",
            "--cache",
            "cache",
        ];
        scene.disk(&own).ok();
        assert_same(&out, &scene.path("own.img"));
    } else {
        let own = [
            "export",
            "base:2",
            "out.img",
            "--at",
            "www/images",
            "--cache",
            "cache",
        ];
        scene.disk(&own).ok();
    }
    tool("e2fsck", &["-fn", text(&out)]);
    let attach = [
        "attach", &url, "base:2", "mnt", "--cache", "cache", "--loop", "--json",
    ];
    let device = json(scene.disk(&attach));
    let device = device["device"].as_str().unwrap().to_owned();
    let mounted = Mounted::new(&device, scene.path("fs"), "ro,noload");
    tool("diff", &["-r", text(&tree), text(&mounted.0)]);
    mounted.off();
    scene.disk(&["detach", "mnt"]).ok();
}
