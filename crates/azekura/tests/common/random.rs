//! Random numbers that a seed repeats.

use std::time::SystemTime;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A number from the environment.
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seed in the environment, or the clock's.
pub(crate) fn seed(name: &str) -> u64 {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    setting(name).unwrap_or_else(|| clock.map_or(0, |time| time.as_nanos() as u64))
}
