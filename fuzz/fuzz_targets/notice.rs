//! The body of a notice frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::message::Notice;

fuzz_target!(|data: &[u8]| azekura_fuzz::body::<Notice>(data));
