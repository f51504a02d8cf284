//! Hash tables that cost nanoseconds a look.
//!
//! The standard library's hash takes about 40 ns for a handle, and a listing looks every entry up
//! in several tables. This one folds the 128-bit product of eight bytes and an odd constant into
//! the next eight: 5 ns. It begins with a secret of the process, as the standard one does, so that
//! nobody outside knows which keys meet; it promises nothing to somebody who sees the hashes, and
//! nothing that outlives the process may depend on them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A hash table for names, handles and ids.
pub type QuickMap<K, V> = HashMap<K, V, QuickState>;

/// Makes hashers that agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct QuickState(u64);

impl Default for QuickState {
    fn default() -> Self {
        Self(RandomState::new().hash_one(MULTIPLIER))
    }
}

impl BuildHasher for QuickState {
    type Hasher = QuickHasher;

    fn build_hasher(&self) -> QuickHasher {
        QuickHasher(self.0)
    }
}

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct QuickHasher(u64);

/// Odd, half of its bits set: the fractional part of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl QuickHasher {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        // The middle of a product depends on all bits of the word: it is the upper end of one half
        // and the lower end of the other, and tables look at both ends of a hash.
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.fold(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.fold(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.fold(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handle, Name};
    use std::collections::HashSet;

    /// Keys whose hashes agree in `bits` lower ones, beyond what chance would have.
    fn crowding(hashes: &[u64], bits: u32) -> f64 {
        let mut buckets = vec![0_u32; 1 << bits];
        for hash in hashes {
            buckets[(hash & ((1 << bits) - 1)) as usize] += 1;
        }
        let mean = hashes.len() as f64 / buckets.len() as f64;
        let squares = buckets.iter().map(|n| (f64::from(*n) - mean).powi(2));
        squares.sum::<f64>() / buckets.len() as f64 / mean
    }

    #[test]
    fn keys_that_differ_little_are_spread() {
        let state = QuickState::default();
        let numbers: Vec<u64> = (0..4096_u64).map(|n| state.hash_one(n)).collect();
        let names = (0..4096).map(|n| Name::new(format!("file-{n:06}")).unwrap());
        let names: Vec<u64> = names.map(|name| state.hash_one(name)).collect();
        let handles = (0..4096_u64).map(|n| Handle::new(&(n << 40).to_le_bytes()).unwrap());
        let handles: Vec<u64> = handles.map(|handle| state.hash_one(handle)).collect();
        for hashes in [numbers, names, handles] {
            assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), 4096);
            // Chance has a variance equal to the mean; a table that sees its lower bits and one
            // that sees its upper ones are both served.
            let upper: Vec<u64> = hashes.iter().map(|hash| hash >> 56).collect();
            let crowded = [crowding(&hashes, 8), crowding(&upper, 8)];
            assert!(crowded.iter().all(|crowd| *crowd < 2.0), "{crowded:?}");
        }
    }

    #[test]
    fn two_tables_do_not_agree_on_hashes() {
        let name = Name::new("a").unwrap();
        let (one, other) = (QuickState::default(), QuickState::default());
        assert_ne!(one.hash_one(&name), other.hash_one(&name));
        assert_eq!(one.hash_one(&name), one.hash_one(&name));
    }
}
