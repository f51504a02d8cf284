//! Versions of the wire, with their history.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A version of frames and messages. Both sides state a span and speak the newest common one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WireVersion(pub u16);

impl WireVersion {
    /// Frames of 32 header bytes, compound file requests, leases with recall. What came later is
    /// used by peers that both have it ([`crate::message::Features`]): which managers there are
    /// (bit 0), requests that wait for others (bit 1), data that is written again on request (bit
    /// 2), opens that only append (bit 3), places of appends that are given up (bit 4).
    pub const V1: Self = Self(1);

    /// Oldest version that this build speaks.
    pub const OLDEST: Self = Self::V1;
    /// Newest version that this build speaks.
    pub const NEWEST: Self = Self::V1;

    /// The newest version in both spans.
    #[must_use]
    pub fn negotiate(peer_min: Self, peer_max: Self) -> Option<Self> {
        let newest = Self::NEWEST.min(peer_max);
        (newest >= Self::OLDEST && newest >= peer_min).then_some(newest)
    }
}

impl fmt::Display for WireVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_spoken_or_none() {
        let v = WireVersion;
        assert_eq!(WireVersion::negotiate(v(1), v(1)), Some(v(1)));
        assert_eq!(
            WireVersion::negotiate(v(1), v(9)),
            Some(WireVersion::NEWEST)
        );
        assert_eq!(WireVersion::negotiate(v(8), v(9)), None);
        assert_eq!(WireVersion::negotiate(v(0), v(0)), None);
        assert_eq!(WireVersion::negotiate(v(9), v(1)), None);
    }
}
