//! A stored list, with a good checksum, and what is decided by it.
#![no_main]

use acl::{Caller, Rights, Stored, Target};
use base::Principal;
use libfuzzer_sys::fuzz_target;

/// Where the checksum is.
const CHECKSUM: std::ops::Range<usize> = 8..12;
const TARGET: Target = Target {
    uid: 1,
    gid: 10,
    is_directory: true,
};

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    if bytes.len() >= CHECKSUM.end {
        let sum = crc32c::crc32c(&bytes[..CHECKSUM.start]);
        let sum = crc32c::crc32c_append(sum, &bytes[CHECKSUM.end..]);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(stored) = Stored::from_bytes(&bytes) else {
        return;
    };
    assert_eq!(stored.to_bytes(), Ok(bytes), "a stored list has one form");
    let acl = stored.acl();
    for who in [
        Principal::alone(1, 10),
        Principal::new(2, 10, vec![11]),
        Principal::alone(3, 99),
    ] {
        let caller = Caller::new(&who);
        let one_by_one = (0..32).filter_map(|bit| Rights::from_bits(1 << bit));
        let had = one_by_one.filter(|right| acl.allows(&caller, &TARGET, *right));
        let had = had.fold(Rights::NONE, |all, right| all | right);
        assert!(!acl.allows(&caller, &TARGET, Rights::ALL) || had == Rights::ALL);
    }
    let _ = acl.effective(&TARGET);
});
