//! The body of a request frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::message::Request;

fuzz_target!(|data: &[u8]| azekura_fuzz::body::<Request>(data));
