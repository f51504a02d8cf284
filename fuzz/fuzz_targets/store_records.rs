//! A store with records that contradict each other, opened, checked, repaired and used.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| store::fuzz::store(data));
