//! The body of a farewell frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::message::Farewell;

fuzz_target!(|data: &[u8]| azekura_fuzz::body::<Farewell>(data));
