//! Chunks that were used a moment ago, unpacked, in bounded memory.
//!
//! A file system reads 4 KiB here and there; without this each such read would unpack and verify a
//! whole chunk. What was used longest ago goes first.

use crate::chunk::ChunkSpec;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

/// The chunks used last.
#[derive(Debug)]
pub(crate) struct Recent {
    bytes_max: u64,
    bytes: u64,
    /// Counts uses.
    now: u64,
    chunks: HashMap<ChunkSpec, (u64, Bytes)>,
    /// Which chunk had which use.
    uses: BTreeMap<u64, ChunkSpec>,
}

impl Recent {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            now: 0,
            chunks: HashMap::new(),
            uses: BTreeMap::new(),
        }
    }

    pub(crate) fn get(&mut self, spec: &ChunkSpec) -> Option<Bytes> {
        let (used, bytes) = self.chunks.get_mut(spec)?;
        self.uses.remove(used);
        self.now += 1;
        *used = self.now;
        self.uses.insert(self.now, *spec);
        Some(bytes.clone())
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether a chunk is here. That is no use of it.
    pub(crate) fn has(&self, spec: &ChunkSpec) -> bool {
        self.chunks.contains_key(spec)
    }

    pub(crate) fn insert(&mut self, spec: ChunkSpec, bytes: Bytes) {
        let len = bytes.len() as u64;
        if len > self.bytes_max || self.get(&spec).is_some() {
            return;
        }
        while self.bytes + len > self.bytes_max {
            let (_, oldest) = self.uses.pop_first().expect("what takes room has a use");
            let (_, gone) = self
                .chunks
                .remove(&oldest)
                .expect("what has a use is there");
            self.bytes -= gone.len() as u64;
        }
        self.now += 1;
        self.bytes += len;
        self.uses.insert(self.now, spec);
        self.chunks.insert(spec, (self.now, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{ChunkId, Digest};
    use proptest::prelude::*;

    fn spec(number: u8) -> ChunkSpec {
        ChunkSpec {
            id: ChunkId([number; 32]),
            digest: Digest::Sha256,
            len_bytes: u32::from(number),
        }
    }

    proptest! {
        #[test]
        fn it_keeps_what_a_list_in_order_of_use_keeps(
            uses in prop::collection::vec((1_u8..20, any::<bool>()), 0..200),
        ) {
            let mut recent = Recent::new(50);
            let mut naive: Vec<u8> = Vec::new();
            for (number, insert) in uses {
                let at = naive.iter().position(|&known| known == number);
                prop_assert_eq!(recent.has(&spec(number)), at.is_some());
                let found = recent.get(&spec(number));
                prop_assert_eq!(found.is_some(), at.is_some());
                if let Some(at) = at {
                    naive.remove(at);
                    naive.push(number);
                } else if insert {
                    recent.insert(spec(number), vec![0; number.into()].into());
                    naive.push(number);
                    while naive.iter().map(|&len| u64::from(len)).sum::<u64>() > 50 {
                        naive.remove(0);
                    }
                }
                prop_assert_eq!(recent.chunks.len(), naive.len());
                prop_assert_eq!(recent.uses.len(), naive.len());
                prop_assert!(recent.bytes <= 50);
            }
        }
    }
}
