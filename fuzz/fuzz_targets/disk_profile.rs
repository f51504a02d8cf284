//! A profile: a file, and a body to which a good head is made.
#![no_main]

use disk::{ChunkId, ChunkSizes, Digest, Index, Profile};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let Ok(profile) = Profile::from_bytes(bytes) else {
        return;
    };
    assert_eq!(profile.to_bytes(), bytes);
    // A few entries may stand for gigabytes, which take their time and nothing else.
    if profile.hot().bytes() > 1 << 20 {
        return;
    }
    let twice = profile.merged(&profile);
    assert_eq!(twice.hot(), profile.hot());
    assert!(Profile::from_bytes(&twice.to_bytes()).is_ok());
    assert!(Profile::from_bytes(&profile.fitted(5000).to_bytes()).is_ok());
    let chunks = (1..=16_u64).map(|n| (n << 16, ChunkId([n as u8; 32])));
    let index = Index::new(Digest::Sha256, ChunkSizes::fixed(1 << 16), chunks);
    assert!(profile.chunks(&index.expect("a grid")).len() <= 16);
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let head = [
        &b"AZKDPROF\x01\0\0\0"[..],
        &crc32c::crc32c(data).to_le_bytes(),
    ];
    check(&[&head.concat(), data].concat());
});
