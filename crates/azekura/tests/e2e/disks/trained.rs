//! Runs that are recorded, versions that are trained by them, images that are kept for use without
//! a network, mirrors.

use super::client::Client;
use super::web::Web;
use super::{MIB, Scene};
use crate::checks::{fails, json};
use crate::random::Random;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const PIECE: u32 = 4096;

/// A disk, and places in it that a program reads: a page here and a page there.
fn used() -> (Scene, Vec<u8>, Vec<u64>) {
    let scene = Scene::new();
    let image = scene.path("base.img");
    let mut random = Random(3);
    let bytes: Vec<u8> = (0..16 * MIB).map(|_| random.below(64) as u8).collect();
    fs::write(&image, &bytes).unwrap();
    scene.publish(&image, "base:1");
    let pages = 16 * MIB / u64::from(PIECE);
    let places = (0..40).map(|_| random.below(pages) * u64::from(PIECE));
    (scene, bytes, places.collect())
}

/// Serves the disk, reads these places, and ends; how it was used.
#[track_caller]
fn run(scene: &Scene, url: &str, more: &[&str], bytes: &[u8], places: &[u64]) -> Value {
    scene.serve(url, "base:1", more);
    let mut client = Client::connect(&scene.path("disk.sock"));
    for &place in places {
        let read = client.read(place, PIECE);
        let expected = &bytes[place as usize..][..PIECE as usize];
        assert!(read == expected, "at {place}");
    }
    drop(client);
    json(scene.line("detach unix:disk.sock --json"))["used"].take()
}

/// Bytes of all these places, each once.
fn bytes_at(places: &[u64]) -> u64 {
    let all: BTreeSet<_> = places.iter().collect();
    all.len() as u64 * u64::from(PIECE)
}

fn forget_chunks(scene: &Scene) {
    fs::remove_dir_all(scene.path("cache")).unwrap();
}

#[test]
fn a_run_that_was_recorded_is_fetched_ahead_the_next_time() {
    let (scene, bytes, places) = used();
    let before = Web::of(&scene.path("www"));
    let url = before.url("images");
    let used = run(&scene, &url, &["--record", "boot.profile"], &bytes, &places);
    let asked_before = before.chunk_counts().len();
    assert!(asked_before >= 30, "{asked_before}");
    assert_eq!(
        (&used["requests"], &used["reads"]),
        (&asked_before.into(), &40.into())
    );
    assert_eq!(used["asked_bytes"], bytes_at(&places));
    assert!(used["wait_seconds"].as_f64() > Some(0.0), "{used}");
    let failure = "serve www/images base:1 --nbd unix:disk.sock --record boot.profile";
    fails(&scene.line(failure), "AZ0002");

    let at = "--at www/images";
    let untrained = json(scene.line(format!("map base:1 boot.profile {at} --json")));
    let would = json(scene.line(format!("train base:1 boot.profile {at} --dry-run --json")));
    assert_eq!(would["pack_bytes"], 0);
    let trained = json(scene.line(format!("train base:1 boot.profile {at} --json")));
    assert_eq!(trained["profiles"], serde_json::json!(["boot"]));
    assert_eq!(trained["cut_chunks"], would["cut_chunks"]);
    assert!(
        trained["pack_bytes"].as_u64() > Some(40 * 1000),
        "{trained}"
    );
    let known = json(scene.line(format!("train base:1 {at} --json")));
    let read_bytes = bytes_at(&places);
    assert_eq!(known["profiles"][0]["read_bytes"], read_bytes);

    let map = json(scene.line(format!(
        "map base:1 --profile boot {at} --svg map.svg --json"
    )));
    assert_eq!(
        map["maps"][0], untrained["maps"][0],
        "the version is what it was"
    );
    let fill = |at: usize| map["maps"][at]["fill_rate"].as_f64().unwrap();
    assert!(fill(0) < 0.12 && fill(1) > 0.95, "{} {}", fill(0), fill(1));
    assert_eq!(map["maps"][1]["asked_bytes"], read_bytes);
    let drawn = fs::read_to_string(scene.path("map.svg")).unwrap();
    let chunks = map["maps"][1]["chunks"].as_array().unwrap().len();
    assert_eq!(drawn.matches("<rect x=").count(), 256 + chunks);

    // One pack instead of forty chunks; and what nobody foresaw is right as well.
    forget_chunks(&scene);
    let after = Web::of(&scene.path("www"));
    let used = run(
        &scene,
        &after.url("images"),
        &["--profile", "boot"],
        &bytes,
        &places,
    );
    let asked_after = after.chunk_counts().len();
    assert!(
        asked_after * 5 <= asked_before,
        "{asked_after} of {asked_before}"
    );
    assert!(used["fill_rate"].as_f64() > Some(0.95), "{used}");
    let whole: Vec<u64> = (0..16 * MIB).step_by(1 << 17).collect();
    run(&scene, &after.url("images"), &[], &bytes, &whole);
    let unknown = "serve www/images base:1 --nbd unix:disk.sock --profile shutdown";
    fails(&scene.line(unknown), "AZ1002");
}

#[test]
fn how_a_run_has_used_a_disk_is_shown_chunk_by_chunk() {
    let (scene, bytes, places) = used();
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    let used = run(&scene, &url, &["--map", "run.json"], &bytes, &places);
    let map: Value = serde_json::from_slice(&fs::read(scene.path("run.json")).unwrap()).unwrap();
    let in_run = &map["maps"][0];
    assert_eq!(in_run["index"], "in this run");
    assert_eq!(in_run["fetched_bytes"], used["chunk_bytes"]);
    assert_eq!(in_run["asked_bytes"], used["asked_bytes"]);
    let chunks = in_run["chunks"].as_array().unwrap();
    for (number, chunk) in chunks.iter().enumerate() {
        let extent = number as u64 * 65_536..(number as u64 + 1) * 65_536;
        let own: Vec<_> = places
            .iter()
            .copied()
            .filter(|at| extent.contains(at))
            .collect();
        assert_eq!(chunk["asked_bytes"], bytes_at(&own), "{chunk}");
        assert_eq!(chunk["fetched"], !own.is_empty(), "{chunk}");
    }
    // All of it comes, and is shown though nobody has read it.
    forget_chunks(&scene);
    let after = Web::of(&scene.path("www"));
    let more = ["--fetch-all", "--map", "run.svg"];
    scene.serve(&after.url("images"), "base:1", &more);
    let all = chunks.len();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while after.chunk_counts().len() < all {
        assert!(std::time::Instant::now() < deadline, "not all of it comes");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    scene.line("detach unix:disk.sock").ok();
    let drawn = fs::read_to_string(scene.path("run.svg")).unwrap();
    assert_eq!(drawn.matches("<rect x=").count(), all);
    assert!(!drawn.contains("#e8e8e8"), "every chunk was fetched");
    let nowhere = "serve www/images base:1 --nbd unix:disk.sock --map no/run.svg";
    fails(&scene.line(nowhere), "AZ0002");
}

#[test]
fn runs_are_merged_carried_over_and_forgotten() {
    let (scene, bytes, places) = used();
    let web = Web::of(&scene.path("www"));
    let (first, second) = places.split_at(25);
    let both = &places[20..];
    run(
        &scene,
        &web.url("images"),
        &["--record", "one.profile"],
        &bytes,
        first,
    );
    run(
        &scene,
        &web.url("images"),
        &["--record", "two.profile"],
        &bytes,
        both,
    );
    let at = "--at www/images --json";
    scene
        .line(format!("train base:1 one.profile --as tool {at}"))
        .ok();
    scene
        .line(format!("train base:1 two.profile --as tool {at}"))
        .ok();
    let known = json(scene.line(format!("train base:1 {at}")));
    assert_eq!(known["profiles"][0]["runs"], 2);
    assert_eq!(known["profiles"][0]["read_bytes"], bytes_at(&places));
    assert!(second.len() < both.len());

    // The next version has them by asking for them.
    let image = scene.path("base.img");
    let mut next = bytes.clone();
    next[5..10].fill(0xff);
    fs::write(&image, next).unwrap();
    scene.publish(&image, "base:2");
    let other = json(scene.line(format!("train base:2 {at}")));
    assert_eq!(other["profiles"].as_array().unwrap().len(), 0);
    let carried = json(scene.line(format!("train base:2 --from base:1 {at}")));
    assert_eq!(carried["profiles"], serde_json::json!(["tool"]));
    let common = "train base:2 one.profile two.profile --as tool --replace --common 2";
    scene.line(format!("{common} {at}")).ok();
    let other = json(scene.line(format!("train base:2 {at}")));
    let in_both = bytes_at(&first[20..]);
    assert!(
        other["profiles"][0]["read_bytes"].as_u64() >= Some(in_both),
        "{other}"
    );
    assert!(
        other["profiles"][0]["read_bytes"].as_u64() < Some(bytes_at(&places)),
        "{other}"
    );
    let forgotten = json(scene.line(format!("train base:2 --forget tool {at}")));
    assert_eq!(forgotten["profiles"], serde_json::json!([]));
    fails(
        &scene.line(format!("train base:2 --forget tool {at}")),
        "AZ1002",
    );
    fs::write(scene.path("odd.profile"), b"neither a profile nor short").unwrap();
    fails(
        &scene.line(format!("train base:2 odd.profile {at}")),
        "AZ1004",
    );
    let checked = json(scene.line(format!("check {at}")));
    assert_eq!(checked["finding_count"], 0);
}

#[test]
fn what_is_kept_needs_no_network_and_what_is_missing_is_named() {
    let (scene, bytes, places) = used();
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");
    run(&scene, &url, &["--record", "boot.profile"], &bytes, &places);
    scene.line("train base:1 boot.profile --at www/images").ok();
    forget_chunks(&scene);
    let prefetch = format!("prefetch {url} base:1 --cache cache --json");
    fails(&scene.line(format!("{prefetch} --offline")), "AZ1002");
    let kept = json(scene.line(format!("{prefetch} --profile boot --then-offline")));
    assert_eq!(kept["missing"].as_array().unwrap().len(), 0);
    assert!(kept["bytes"].as_u64() < Some(MIB), "{kept}");

    // Nobody is there any more.
    let (www, away) = (scene.path("www"), scene.path("away"));
    fs::rename(&www, &away).unwrap();
    run(
        &scene,
        &url,
        &["--offline", "--profile", "boot"],
        &bytes,
        &places,
    );
    fs::rename(&away, &www).unwrap();

    // All of it, from a server that has lost its chunks: what is not here is named, all of it.
    let (castr, hidden) = (scene.path("www/images/default.castr"), scene.path("hidden"));
    fs::rename(&castr, &hidden).unwrap();
    let incomplete = scene.line(&prefetch);
    assert_eq!(incomplete.status.code(), Some(1), "{incomplete:?}");
    let report: Value = serde_json::from_str(&incomplete.stdout).unwrap();
    assert_eq!(report["bytes"], 16 * MIB);
    let missing = report["missing"].as_array().unwrap();
    let missing_bytes: u64 = missing
        .iter()
        .map(|one| one["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(missing_bytes + kept["bytes"].as_u64().unwrap(), 16 * MIB);
    for one in missing {
        let name = one["chunk"].as_str().unwrap();
        assert!(
            hidden
                .join(&name[..4])
                .join(format!("{name}.cacnk"))
                .exists(),
            "{name}"
        );
    }
    assert!(incomplete.stderr.contains("AZ1015"), "{incomplete:?}");
    let said = scene.line(prefetch.trim_end_matches(" --json")).stdout;
    assert!(said.contains("\nmissing: bytes 0 to ") && said.contains("more; --json has all"));
    fs::rename(&hidden, &castr).unwrap();
    let whole = json(scene.line(format!("{prefetch} --then-offline")));
    assert_eq!(whole["missing"].as_array().unwrap().len(), 0);
    fs::rename(&www, &away).unwrap();
    let all: Vec<u64> = (0..16 * MIB).step_by(1 << 16).collect();
    run(&scene, &url, &["--offline"], &bytes, &all);
    let again = json(scene.line(format!("{prefetch} --dry-run")));
    assert_eq!(again, whole);
    scene.line(format!("{prefetch} --release")).ok();
    fails(&scene.line(format!("{prefetch} --dry-run")), "AZ1002");
}

#[test]
fn a_mirror_has_what_the_first_one_has_not() {
    let (scene, bytes, places) = used();
    let first = Web::of(&scene.path("www"));
    let copied = std::process::Command::new("cp")
        .args(["-r", "www", "copy"])
        .current_dir(scene.path("."))
        .status()
        .unwrap();
    assert!(copied.success());
    fs::remove_dir_all(scene.path("www/images/default.castr")).unwrap();
    let second = Web::of(&scene.path("copy"));
    let mirror = format!("--mirror={}", second.url("images"));
    run(&scene, &first.url("images"), &[&mirror], &bytes, &places);
    let served: u64 = second.chunk_counts().iter().sum();
    assert!(served >= 30, "{served}");
    forget_chunks(&scene);
    let refused = scene.line(format!(
        "export base:1 out.img --at {} --cache cache",
        first.url("images")
    ));
    fails(&refused, "AZ1002");
    fs::create_dir(scene.path("www/images/default.castr")).unwrap();
    run(
        &scene,
        "www/images",
        &["--mirror", "copy/images"],
        &bytes,
        &places,
    );
}
