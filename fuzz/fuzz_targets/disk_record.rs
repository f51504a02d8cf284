//! The body of a manifest, of a name's record, or of a training, signed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| disk::fuzz::record(data));
