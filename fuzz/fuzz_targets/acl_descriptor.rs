//! A security descriptor of Windows.
#![no_main]

use acl::{Descriptor, UnixIds};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // What was read can be too large to be written, as lists may lie over each other.
    if let Ok(descriptor) = Descriptor::from_bytes(bytes, &UnixIds)
        && let Ok(again) = descriptor.to_bytes(&UnixIds)
    {
        assert!(Descriptor::from_bytes(&again, &UnixIds).is_ok());
    }
});
