//! NBD, by other programs.

use super::web::Web;
use super::{MIB, Scene, assert_same, has, tool};
use crate::checks::json;
use crate::common::text;
use serde_json::Value;
use std::fs;

const SOCKET: &str = "nbd+unix:///?socket=disk.sock";

/// The URL of the scene's socket, from whichever directory it is looked at.
pub(super) fn socket(scene: &Scene) -> String {
    SOCKET.replace("disk.sock", text(&scene.path("disk.sock")))
}

/// What nbdinfo says of a disk of 20 MiB and a sector that is only read.
fn look_at(scene: &Scene) {
    let socket = socket(scene);
    let said = tool("nbdinfo", &["--json", &socket]);
    let info: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(info["protocol"], "newstyle-fixed", "{info}");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], 20 * MIB + 512);
    for (what, is_so) in [
        ("is_read_only", true),
        ("can_multi_conn", true),
        ("can_flush", true),
        ("can_df", true),
        ("can_trim", false),
    ] {
        assert_eq!(export[what], is_so, "{what}: {info}");
    }
    assert_eq!(export["contexts"][0], "base:allocation");
    tool("nbdinfo", &["--size", &socket.replace("///", "///base:1")]);
    let map = tool("nbdinfo", &["--map", "--json", &socket]);
    let runs: Value = serde_json::from_str(&map).unwrap();
    let runs = runs.as_array().unwrap().iter();
    let holes = runs.filter(|run| run["type"] == 3);
    let bytes: u64 = holes.map(|run| run["length"].as_u64().unwrap()).sum();
    assert!((10 * MIB..16 * MIB).contains(&bytes), "{bytes}");
}

#[test]
fn a_disk_on_a_web_server_is_a_disk_for_other_programs() {
    let scene = Scene::new();
    // Not a whole number of sectors.
    let image = scene.image("base.img", 20 * MIB + 300);
    let published = scene.publish(&image, "base:1");
    assert_eq!(published["image_bytes"], 20 * MIB + 300);
    assert_eq!(published["chunks"], 321);
    let new = published["new_chunks"].as_u64().unwrap();
    assert!((70..100).contains(&new), "{published}");
    let web = Web::of(&scene.path("www"));
    let ready = scene.serve(&web.url("images"), "base:1", &[]);
    assert!(ready["where"].as_str().unwrap().ends_with("/disk.sock"));
    assert_eq!(
        (&ready["writable"], &ready["changed_bytes"]),
        (&false.into(), &0.into())
    );
    let listed = json(scene.line("list --json"));
    assert_eq!(listed["disks"][0]["name"], "base:1");

    let mut padded = fs::read(&image).unwrap();
    padded.resize((20 * MIB + 512) as usize, 0);
    let (copy, expected) = (scene.path("copy"), scene.path("expected"));
    fs::write(&expected, padded).unwrap();
    if has("nbdinfo") {
        look_at(&scene);
    }
    if has("nbdcopy") {
        tool("nbdcopy", &[&socket(&scene), text(&copy)]);
        assert_same(&copy, &expected);
    }
    if has("qemu-img") {
        let raw = ["compare", "-f", "raw", "-F", "raw"];
        tool(
            "qemu-img",
            &[&raw[..], &[&socket(&scene), text(&expected)]].concat(),
        );
    }
    // Each chunk once, whoever asked; those of zeros never.
    let counts = web.chunk_counts();
    assert!(counts.iter().all(|count| *count == 1), "{counts:?}");
    assert!(counts.len() as u64 <= new, "{} of {new}", counts.len());
    scene.line("detach unix:disk.sock").ok();
    assert!(!scene.path("disk.sock").exists());
    let listed = json(scene.line("list --json"));
    assert_eq!(listed["disks"].as_array().unwrap().len(), 0);

    // From the cache, whose next user is another process, and without a server that has it.
    fs::rename(
        scene.path("www/images/default.castr"),
        scene.path("elsewhere"),
    )
    .unwrap();
    scene.serve(&web.url("images"), "base:1", &[]);
    if has("nbdcopy") {
        tool("nbdcopy", &[&socket(&scene), text(&copy)]);
        assert_same(&copy, &expected);
    }
    scene.line("detach unix:disk.sock").ok();
}

#[test]
fn other_programs_write_read_and_discard_over_tcp() {
    let scene = Scene::new();
    let image = scene.image("base.img", 16 * MIB);
    scene.publish(&image, "base:1");
    let serve = "serve www/images base:1 --nbd 127.0.0.1:0 --cache cache --overlay written --json";
    let ready = json(scene.line(serve));
    let place = ready["where"].as_str().unwrap().to_owned();
    let url = format!("nbd://{place}");
    if has("fio") {
        let job = [
            "--name=verify",
            "--ioengine=nbd",
            &format!("--uri={url}"),
            "--rw=randwrite",
            "--bs=16k",
            "--size=16M",
            "--iodepth=16",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--fsync=32",
            "--randseed=7",
        ];
        let engines = crate::common::run(std::process::Command::new("fio").arg("--enghelp=nbd"));
        if engines.status.success() {
            tool("fio", &job);
        } else {
            eprintln!("skipped: fio has no engine nbd");
        }
    }
    if has("nbdcopy") && has("nbdinfo") {
        // With holes, which are zeros there: the disk is what the image is.
        tool("nbdcopy", &[text(&image), &url]);
        let copy = scene.path("copy");
        tool("nbdcopy", &[&url, text(&copy)]);
        assert_same(&copy, &image);
        let map = tool("nbdinfo", &["--map", "--totals", &url]);
        assert!(map.contains("hole,zero"), "{map}");
    }
    scene.disk(&["detach", &place]).ok();
    // It is as it was left.
    scene
        .line("export base:1 again.img --at www/images --overlay written --cache cache")
        .ok();
    if has("nbdcopy") {
        assert_same(&scene.path("again.img"), &image);
    }
}
