//! Data that has arrived and waits for its reader.

use base::Extent;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Non-overlapping runs of data by offset.
#[derive(Debug, Default)]
pub struct Held {
    runs: BTreeMap<u64, Bytes>,
    bytes: u64,
}

impl Held {
    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn runs_in(&self, extent: Extent) -> impl Iterator<Item = (u64, &Bytes)> {
        let first = self
            .runs
            .range(..=extent.offset)
            .next_back()
            .map_or(extent.offset, |(offset, _)| *offset);
        self.runs
            .range(first..extent.end().max(first))
            .map(|(offset, data)| (*offset, data))
            .filter(move |(offset, data)| Extent::new(*offset, data.len() as u64).overlaps(extent))
    }

    /// The parts of `extent` that are not here.
    #[must_use]
    pub fn missing(&self, extent: Extent) -> Vec<Extent> {
        let mut missing = Vec::new();
        let mut position = extent.offset;
        for (offset, data) in self.runs_in(extent) {
            if offset > position {
                missing.push(Extent::between(position, offset));
            }
            position = position.max(offset + data.len() as u64);
        }
        if position < extent.end() {
            missing.push(Extent::between(position, extent.end()));
        }
        missing
    }

    /// The data of `extent`, all of it, in pieces; `None` if a part is missing. No byte is copied.
    #[must_use]
    pub fn get(&self, extent: Extent) -> Option<Vec<Bytes>> {
        let mut pieces = Vec::new();
        let mut position = extent.offset;
        for (offset, data) in self.runs_in(extent) {
            if offset > position {
                return None;
            }
            let start = (position - offset) as usize;
            let end = ((extent.end() - offset) as usize).min(data.len());
            pieces.push(data.slice(start..end));
            position = offset + end as u64;
        }
        (position >= extent.end()).then_some(pieces)
    }

    /// Takes `extent` out; the parts of it that were here.
    pub fn remove(&mut self, extent: Extent) -> Vec<Extent> {
        let touched: Vec<u64> = self.runs_in(extent).map(|(offset, _)| offset).collect();
        let mut removed = Vec::new();
        for offset in touched {
            let data = self.runs.remove(&offset).expect("listed above");
            let run = Extent::new(offset, data.len() as u64);
            let gone = run.intersection(extent);
            if gone.offset > run.offset {
                self.runs.insert(
                    run.offset,
                    data.slice(..(gone.offset - run.offset) as usize),
                );
            }
            if gone.end() < run.end() {
                self.runs
                    .insert(gone.end(), data.slice((gone.end() - run.offset) as usize..));
            }
            self.bytes -= gone.len;
            removed.push(gone);
        }
        removed
    }

    /// Puts data in; what was there before is replaced. Returns the bytes that were.
    pub fn insert(&mut self, offset: u64, data: Bytes) -> u64 {
        if data.is_empty() {
            return 0;
        }
        let extent = Extent::new(offset, data.len() as u64);
        let replaced = self.remove(extent).iter().map(|extent| extent.len).sum();
        self.bytes += extent.len;
        self.runs.insert(offset, data);
        replaced
    }

    /// Puts data in that follows each other, as [`Self::insert`].
    pub fn insert_all(&mut self, offset: u64, pieces: Vec<Bytes>) -> u64 {
        let (mut at, mut replaced) = (offset, 0);
        for piece in pieces {
            let len = piece.len() as u64;
            replaced += self.insert(at, piece);
            at += len;
        }
        replaced
    }

    /// Takes everything out.
    pub fn clear(&mut self) -> Vec<Extent> {
        self.bytes = 0;
        std::mem::take(&mut self.runs)
            .into_iter()
            .map(|(offset, data)| Extent::new(offset, data.len() as u64))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_behaves_like_an_array(
            ops in prop::collection::vec((any::<bool>(), 0u64..48, 1u64..16), 0..40),
            probe in (0u64..48, 1u64..32),
        ) {
            let mut held = Held::default();
            let mut model: Vec<Option<u8>> = vec![None; 96];
            for (turn, (add, offset, len)) in ops.into_iter().enumerate() {
                let range = offset as usize..(offset + len) as usize;
                if add {
                    held.insert(offset, Bytes::from(vec![turn as u8; len as usize]));
                    model[range].fill(Some(turn as u8));
                } else {
                    held.remove(Extent::new(offset, len));
                    model[range].fill(None);
                }
            }
            let extent = Extent::new(probe.0, probe.1);
            let slice = &model[probe.0 as usize..(probe.0 + probe.1) as usize];
            let expected: Option<Vec<u8>> = slice.iter().copied().collect();
            let got = held.get(extent).map(|pieces| pieces.concat());
            prop_assert_eq!(got, expected);
            let missing: u64 = held.missing(extent).iter().map(|gap| gap.len).sum();
            prop_assert_eq!(missing, slice.iter().filter(|byte| byte.is_none()).count() as u64);
            prop_assert_eq!(held.bytes(), model.iter().flatten().count() as u64);
        }
    }
}
