//! An entry of a store's log, replayed into a new store.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| store::fuzz::replay(data));
