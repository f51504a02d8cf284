//! The value of `system.posix_acl_access`.
#![no_main]

use acl::PosixAcl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    if let Ok(Some(acl)) = PosixAcl::from_xattr(value) {
        let again = PosixAcl::from_xattr(&acl.to_xattr());
        assert_eq!(again, Ok(Some(acl)));
    }
});
