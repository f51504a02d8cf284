//! The value of `system.nfs4_acl`.
#![no_main]

use acl::{RichAcl, Target, UnixIds};
use libfuzzer_sys::fuzz_target;

const TARGET: Target = Target {
    uid: 1,
    gid: 10,
    is_directory: false,
};

fuzz_target!(|value: &[u8]| {
    if let Ok(acl) = RichAcl::from_nfs4(value, &UnixIds) {
        let again = acl.to_nfs4(&TARGET, &UnixIds);
        let again = again.expect("it came from as many bytes");
        assert_eq!(RichAcl::from_nfs4(&again, &UnixIds), Ok(acl));
    }
});
