//! Where a name is in its directory: the hash of the name, which is also the cookie of a listing.
//!
//! A listing goes on behind a hash, so what is there throughout is listed once, whatever comes and
//! goes, whoever is the manager. Names of one hash come in one page; there are none in practice,
//! because nobody outside knows the key.

use base::Name;

/// Hashes below are no name's: listings have `.` and `..` there.
const COOKIE_MIN: u64 = 16;
/// Cookies are positive in a signed number, as programs expect (readdir(3)).
const COOKIE_MAX: u64 = i64::MAX as u64 - 1;

/// Hashes the names of one volume.
#[derive(Clone, Copy)]
pub(super) struct Cookies(pub(super) [u8; 32]);

impl Cookies {
    pub(super) fn of(&self, name: &Name) -> u64 {
        let hash = blake3::keyed_hash(&self.0, name.as_bytes());
        let (first, _) = hash
            .as_bytes()
            .split_first_chunk()
            .expect("it has 32 bytes");
        (u64::from_le_bytes(*first) >> 1).clamp(COOKIE_MIN, COOKIE_MAX)
    }
}
