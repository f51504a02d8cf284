//! FUSE and loop devices.

use super::web::Web;
use super::{MIB, Scene, assert_same, has, tool};
use crate::checks::{fails, json};
use crate::common::{obstacle, run, text};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Taken off when the test ends in whatever way.
pub(super) struct Mounted(pub(super) PathBuf);

impl Mounted {
    pub(super) fn new(device: &str, on: PathBuf, options: &str) -> Self {
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
    let said = scene.disk(&["detach", "mnt"]).ok();
    assert!(
        said.starts_with("base:1: ") && said.contains(" read; "),
        "{said}"
    );
    assert!(!file.exists());
    fails(&scene.disk(&["detach", "mnt"]), "AZ1011");
}

/// A disk that is attached as a loop device, and its file system, mounted.
fn mounted(scene: &Scene, url: &str, name: &str, more: &str, options: &str) -> Mounted {
    let attach = format!("attach {url} {name} mnt --cache cache --loop --json{more}");
    let ready = json(scene.line(attach));
    assert_eq!(
        (&ready["writable"] == true, &ready["changed_bytes"]),
        (!more.is_empty(), &0.into())
    );
    let device = ready["device"].as_str().unwrap();
    Mounted::new(device, scene.path("fs"), options)
}

/// Takes it off again.
fn take_off(scene: &Scene, mounted: Mounted) {
    mounted.off();
    scene.line("detach mnt").ok();
}

/// An image with a file system, published; none if that, or a loop device, cannot be had here.
pub(super) fn published_file_system(scene: &Scene) -> Option<()> {
    let Some(image) = scene.file_system(32 * MIB) else {
        eprintln!("skipped: mkfs.ext4 cannot make a file system of a tree");
        return None;
    };
    scene.publish(&image, "base:1");
    fs::create_dir(scene.path("mnt")).unwrap();
    let tried = scene.line("attach www/images base:1 mnt --cache cache --loop");
    if tried.stderr.contains("AZ1014") {
        eprintln!("skipped: no loop device can be had");
        return None;
    }
    tried.ok();
    scene.line("detach mnt").ok();
    Some(())
}

#[test]
fn a_file_system_in_an_image_is_mounted_changed_and_committed() {
    if let Some(why) = obstacle() {
        eprintln!("{why}");
        return;
    }
    let scene = Scene::new();
    let Some(()) = published_file_system(&scene) else {
        return;
    };
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    let first = mounted(&scene, &url, "base:1", "", "ro,noload");
    let tree = scene.path("tree");
    tool(
        "diff",
        &["-r", "-x", "lost+found", text(&tree), text(&first.0)],
    );
    fails(&scene.line("detach mnt"), "AZ0505");
    take_off(&scene, first);

    let changed = mounted(&scene, &url, "base:1", " --writable", "discard");
    fs::write(changed.0.join("d3/new"), vec![7; 200_000]).unwrap();
    fs::remove_file(changed.0.join("d4/f1")).unwrap();
    let tree = scene.path("changed");
    tool("cp", &["-r", text(&changed.0), text(&tree)]);
    changed.off();
    // In use: neither committed nor reset.
    let commit = format!("commit {url} base:1 --to www/images --cache cache --name base:2 --json");
    fails(&scene.line(&commit), "AZ1006");
    fails(&scene.line(format!("reset {url} base:1")), "AZ1006");
    scene.line("detach mnt").ok();
    let tried = json(scene.line(format!("{commit} --dry-run")));
    let committed = json(scene.line(&commit));
    assert_eq!(tried["new_chunks"], committed["new_chunks"]);
    let new = committed["new_chunks"].as_u64().unwrap();
    assert!((1..200).contains(&new), "{committed}");

    // What others make of it is a sound file system with all of that.
    scene
        .line("export base:2 own.img --at www/images --cache cache")
        .ok();
    let own = scene.path("own.img");
    if has("casync") {
        let out = scene.path("out.img");
        let mut casync = Command::new("casync");
        casync.current_dir(scene.path(""));
        casync.args(["extract", "--store=www/images/default.castr"]);
        run(casync.args(["www/images/base@2.caibx", text(&out)])).ok();
        assert_same(&out, &own);
    }
    tool("e2fsck", &["-fn", text(&own)]);
    let second = mounted(&scene, &url, "base:2", "", "ro,noload");
    tool("diff", &["-r", text(&tree), text(&second.0)]);
    take_off(&scene, second);
}

#[test]
fn where_the_disk_of_the_cache_is_full_every_byte_is_right() {
    if let Some(why) = obstacle() {
        eprintln!("{why}");
        return;
    }
    let scene = Scene::new();
    let image = scene.image("base.img", 10 * MIB);
    scene.publish(&image, "base:1");
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    let cache = scene.path("cache");
    fs::create_dir(&cache).unwrap();
    tool(
        "mount",
        &["-t", "tmpfs", "-o", "size=1m", "cache", text(&cache)],
    );
    let mounted = Mounted(cache.clone());
    fs::create_dir(scene.path("mnt")).unwrap();
    // Twice: with what has found room, and with nothing of the rest.
    for _ in 0..2 {
        let attach = format!("attach {url} base:1 mnt --cache cache");
        scene.line(attach).ok();
        assert_same(&scene.path("mnt/disk.img"), &image);
        scene.line("detach mnt").ok();
    }
    let asked = web.chunk_counts();
    let twice = asked.iter().filter(|count| **count == 2).count();
    assert!((1..asked.len()).contains(&twice), "{asked:?}");
    mounted.off();
}
