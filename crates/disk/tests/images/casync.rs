//! Debian's casync reads what is written here, and the other way round.

use disk::chunk::{Packer, unpack};
use disk::{ChunkSizes, Digest, FileName, Index};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs casync; none if this machine has no such program.
fn casync(arguments: &[&str]) -> Option<String> {
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

fn publish(directory: &Path, image: &[u8], digest: Digest, chunk_bytes: u32) -> Index {
    let mut packer = Packer::new(3).unwrap();
    let mut end = 0;
    let chunks = image.chunks(chunk_bytes as usize).map(|chunk| {
        let id = digest.id_of(chunk);
        let path = directory.join(FileName::of_chunk(&id).as_str());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, packer.pack(chunk).unwrap()).unwrap();
        end += chunk.len() as u64;
        (end, id)
    });
    Index::new(digest, ChunkSizes::fixed(chunk_bytes), chunks).unwrap()
}

#[test]
fn casync_extracts_what_was_published_here() {
    for (digest, kib) in [
        (Digest::Sha512Half, 64),
        (Digest::Sha512Half, 256),
        (Digest::Sha512Half, 512),
        (Digest::Sha256, 128),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let image = image();
        let index = publish(directory.path(), &image, digest, kib << 10);
        fs::write(path("image.caibx"), index.to_bytes()).unwrap();
        // The chunks are found because they lie beside the index.
        let ran = casync(&["extract", &path("image.caibx"), &path("out.raw")]);
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
        let other = tempfile::tempdir().unwrap();
        assert_eq!(
            index,
            publish(other.path(), &image, digest, 64 << 10),
            "{name}"
        );
    }
}
