//! One image for many machines behind a thin line, as it is told: published, patched, used by a
//! machine that boots, trained by that, kept for a machine without a network, committed, and then
//! used by all of them.

use super::boots::{Machine, prepared};
use super::client::Client;
use super::served::socket;
use super::web::Web;
use super::{MIB, Scene, assert_same, has, tool};
use crate::checks::json;
use crate::common::text;
use crate::random::Random;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;
use verify::powercut::Kernel;

const LEN_BYTES: u64 = 64 * MIB;
/// Of what nothing is used by the file system: its last two MiB.
const PATCHED_AT: u64 = 62 * MIB;
const PATCH_BYTES: u64 = 100_000;
const MACHINES: usize = 6;

/// `base.img` and, with another hundred kilobytes, `patched.img`; with what boots from either of
/// them, if that can be had here.
fn images(scene: &Scene) -> Option<Kernel> {
    let kernel = prepared(scene);
    let base = scene.path("base.img");
    match kernel {
        Some(_) => fs::rename(scene.path("root.img"), &base).unwrap(),
        None => drop(scene.image("base.img", LEN_BYTES)),
    }
    let patched = scene.path("patched.img");
    tool("cp", &["--sparse=always", text(&base), text(&patched)]);
    let mut random = Random(12);
    let patch: Vec<u8> = (0..PATCH_BYTES).map(|_| random.below(256) as u8).collect();
    let file = File::options().write(true).open(&patched).unwrap();
    file.write_all_at(&patch, PATCHED_AT).unwrap();
    kernel
}

/// A machine does its work on the scene's disk, and writes onto it.
fn work(scene: &Scene, kernel: Option<&Kernel>) {
    if let Some(kernel) = kernel {
        let machine = Machine::start(scene, &kernel.image, "cache=writeback");
        assert_eq!(machine.says(), "found nothing");
        assert_eq!(machine.says(), "synced");
        return;
    }
    let mut client = Client::connect(&scene.path("disk.sock"));
    client.read(0, 1 << 20);
    client.write(5 * MIB, &[1; 100_000]);
    client.flush();
}

/// What a key of an answer counts.
fn count(said: &Value, key: &str) -> u64 {
    said[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {said}"))
}

/// Machines of one site use a version at once, each with a disk of its own, and one cache.
fn all_machines(scene: &Scene, url: &str, content: &[u8]) {
    let machine = |number: usize| {
        let name = format!("pc-{number}.sock");
        let serve = format!("serve {url} base:3 --nbd unix:{name} --cache ./site");
        scene.line(serve).ok();
        let mut client = Client::connect(&scene.path(&name));
        for offset in (0..LEN_BYTES).step_by(1 << 20) {
            let read = client.read(offset, 1 << 20);
            assert!(read == content[offset as usize..][..1 << 20], "at {offset}");
        }
        drop(client);
        scene.line(format!("detach unix:{name}")).ok();
    };
    let machine = &machine;
    thread::scope(|scope| {
        for number in 0..MACHINES {
            scope.spawn(move || machine(number));
        }
    });
}

#[test]
fn one_image_is_for_many_machines_behind_a_thin_line() {
    let scene = Scene::new();
    let kernel = images(&scene);
    let publish = "publish base.img --to ./www/images --name base:1";
    scene.line(publish).ok();
    let publish = "publish patched.img --to ./www/images --name base:2 --json";
    let published = json(scene.line(publish));
    assert_eq!(count(&published, "new_chunks"), 1);
    let new = count(&published, "new_bytes");
    assert!((PATCH_BYTES..2 * PATCH_BYTES).contains(&new), "{published}");

    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    let serve = format!("serve {url} base:2 --nbd unix:disk.sock --cache ./cache --writable");
    scene.line(format!("{serve} --record boot.profile")).ok();
    if has("nbdinfo") {
        let said = tool("nbdinfo", &[&socket(&scene)]);
        assert!(said.contains("export-size: 67108864"), "{said}");
    }
    work(&scene, kernel.as_ref());
    let ended = json(scene.line("detach unix:disk.sock --json"));
    assert!(count(&ended["used"], "reads") > 0);
    let trained = json(scene.line("train base:2 boot.profile --at ./www/images --json"));
    assert_eq!(trained["profiles"], serde_json::json!(["boot"]));

    // Another machine has what it needs for that, then all of it, and then no network.
    let prefetch = format!("prefetch {url} base:2 --cache ./other --then-offline --json");
    let needed = json(scene.line(format!("{prefetch} --profile boot")));
    let whole = json(scene.line(prefetch));
    for kept in [&needed, &whole] {
        assert_eq!(kept["missing"], serde_json::json!([]));
    }
    assert!(count(&needed, "bytes") < count(&whole, "bytes"));
    let away = scene.path("away");
    fs::rename(scene.path("www"), &away).unwrap();
    let export = format!("export base:2 kept.img --at {url} --cache ./other --offline");
    scene.line(export).ok();
    assert_same(&scene.path("kept.img"), &scene.path("patched.img"));
    fs::rename(&away, scene.path("www")).unwrap();

    // What the first one has written is the third version, and everybody's.
    let commit = format!("commit {url} base:2 --to ./www/images --cache ./cache --name base:3");
    let committed = json(scene.line(format!("{commit} --json")));
    let (new, all) = (count(&committed, "new_chunks"), count(&committed, "chunks"));
    assert!((1..all / 4).contains(&new), "{committed}");
    let diff = json(scene.line("diff base:1 base:3 --at ./www/images --json"));
    let changed = count(&diff, "changed_bytes");
    assert!((PATCH_BYTES..LEN_BYTES / 4).contains(&changed), "{diff}");
    let export = "export base:3 third.img --at ./www/images --cache ./cache";
    scene.line(export).ok();
    let site = Web::of(&scene.path("www"));
    let third = fs::read(scene.path("third.img")).unwrap();
    all_machines(&scene, &site.url("images"), &third);
    // Over the line each chunk comes once, for all of them.
    let counts = site.chunk_counts();
    assert!(counts.iter().all(|count| *count == 1), "{counts:?}");
}
