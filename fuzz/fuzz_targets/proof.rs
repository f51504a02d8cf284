//! The body of a proof frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::message::Proof;

fuzz_target!(|data: &[u8]| azekura_fuzz::body::<Proof>(data));
