//! The body of a reply frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::message::Reply;

fuzz_target!(|data: &[u8]| azekura_fuzz::body::<Reply>(data));
