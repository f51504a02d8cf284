//! Mode and POSIX ACLs from before a rich ACL, with a good checksum.
#![no_main]

use acl::Before;
use base::limits::XATTR_BYTES_MAX;
use libfuzzer_sys::fuzz_target;

/// Where the checksum is.
const CHECKSUM: std::ops::Range<usize> = 4..8;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    if bytes.len() >= CHECKSUM.end {
        let sum = crc32c::crc32c(&bytes[..CHECKSUM.start]);
        let sum = crc32c::crc32c_append(sum, &bytes[CHECKSUM.end..]);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    }
    if let Some(before) = Before::from_bytes(&bytes) {
        assert!(bytes.len() <= XATTR_BYTES_MAX && before.mode <= 0o777);
        assert_eq!(before.to_bytes(), Some(bytes), "it has one form");
    }
});
