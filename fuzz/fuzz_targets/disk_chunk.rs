//! A packed chunk that is said to have a few bytes.
#![no_main]

use disk::chunk::unpack;
use disk::{ChunkSpec, Digest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bytes = vec![7; 4096];
    let spec = ChunkSpec {
        id: Digest::Sha256.id_of(&bytes),
        digest: Digest::Sha256,
        len_bytes: 4096,
    };
    if let Ok(unpacked) = unpack(&spec, data) {
        assert_eq!(unpacked, bytes);
    }
});
