//! A request of the kernel, as the FUSE device gives it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mount::kernel::Parser;

fuzz_target!(|data: &[u8]| {
    for setxattr_ext in [false, true] {
        let parser = Parser { setxattr_ext };
        let copied = parser.parse(data);
        let shared = parser.parse_shared(&Bytes::copy_from_slice(data));
        assert_eq!(copied, shared);
    }
});
