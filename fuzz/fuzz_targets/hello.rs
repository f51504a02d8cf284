//! The body of a hello frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::message::Hello;

fuzz_target!(|data: &[u8]| azekura_fuzz::body::<Hello>(data));
