//! The body of a welcome frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::message::Welcome;

fuzz_target!(|data: &[u8]| azekura_fuzz::body::<Welcome>(data));
