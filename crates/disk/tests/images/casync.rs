//! Debian's casync reads what is written here, and the other way round.

use crate::common::Scene;
use disk::chunk::unpack;
use disk::{Digest, FileName, Index, Publishing};
use std::fs;
use std::process::{Command, Stdio};

/// Runs casync; none if this machine has no such program.
pub(crate) fn casync(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("casync")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = ran else {
        println!("skipped: there is no casync here");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "casync {arguments:?}: {errors}");
    Some(errors)
}

/// Bytes that repeat nowhere, a hole, bytes that repeat, and an end off every grid.
fn image() -> Vec<u8> {
    let mut random = sim::Random::new(7);
    let mut image: Vec<u8> = (0..700_001).map(|_| random.below(256) as u8).collect();
    image.resize(2_000_000, 0);
    let repeated = image[100_000..400_000].to_vec();
    image.extend(repeated);
    image.extend(b"the end");
    image
}

#[test]
fn casync_extracts_what_was_published_here() {
    for (digest, kib) in [
        (Digest::Sha512Half, 64),
        (Digest::Sha512Half, 256),
        (Digest::Sha512Half, 512),
        (Digest::Sha256, 128),
    ] {
        let scene = Scene::new();
        let path = |name: &str| scene.path(name).to_str().unwrap().to_owned();
        let image = image();
        let how = Publishing {
            chunk_bytes: kib << 10,
            digest,
            ..Scene::how("base:1")
        };
        scene.publish(&scene.image(&image), &how);
        // The chunks are found because they lie beside the index.
        let ran = casync(&["extract", &path("images/base@1.caibx"), &path("out.raw")]);
        if ran.is_some() {
            assert_eq!(
                fs::read(path("out.raw")).unwrap(),
                image,
                "{digest:?} {kib} KiB"
            );
        }
    }
}

#[test]
fn what_casync_made_is_read_here_and_cut_into_the_same_chunks() {
    for (name, digest) in [
        ("sha512-256", Digest::Sha512Half),
        ("sha256", Digest::Sha256),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let image = image();
        fs::write(path("image.raw"), &image).unwrap();
        let digest_is = format!("--digest={name}");
        let made = casync(&[
            "make",
            &digest_is,
            "--chunk-size=65536:65536:65536",
            &format!("--store={}", path("default.castr")),
            &path("image.caibx"),
            &path("image.raw"),
        ]);
        if made.is_none() {
            return;
        }
        let index = Index::from_bytes(&fs::read(path("image.caibx")).unwrap()).unwrap();
        let mut read = Vec::new();
        for number in 0..index.chunk_count() {
            let spec = index.spec(number);
            let packed = fs::read(path(FileName::of_chunk(&spec.id).as_str())).unwrap();
            read.extend_from_slice(&unpack(&spec, &packed).unwrap());
        }
        assert_eq!(read, image, "{name}");
        let scene = Scene::new();
        let how = Publishing {
            digest,
            ..Scene::how("base:1")
        };
        scene.publish(&scene.image(&image), &how);
        assert_eq!(index, scene.index("base:1"), "{name}");
    }
}
