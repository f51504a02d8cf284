//! What was asked for on a guess and is not used yet, and for whom.

use crate::streams::StreamId;
use base::Extent;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) extent: Extent,
    pub(crate) stream: StreamId,
    /// Whether the data arrived.
    pub(crate) fetched: bool,
    /// Whether the stream had not proven itself when it asked.
    pub(crate) doubted: bool,
}

/// Disjoint extents in order, each with the stream that it was fetched for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<u64, Entry>,
}

impl Ledger {
    /// Adds `extent`, which overlaps nothing in the ledger.
    pub(crate) fn insert(&mut self, extent: Extent, stream: StreamId, doubted: bool) {
        debug_assert!(
            !self.overlapping(extent).any(|_| true),
            "{extent} is in the ledger"
        );
        self.entries.insert(
            extent.offset,
            Entry {
                extent,
                stream,
                fetched: false,
                doubted,
            },
        );
    }

    /// Takes the bytes of `extent` out and returns the pieces that were there.
    pub(crate) fn take(&mut self, extent: Extent) -> Vec<Entry> {
        let touched: Vec<Entry> = self.overlapping(extent).collect();
        for entry in &touched {
            self.entries.remove(&entry.extent.offset);
            let before = Extent::between(entry.extent.offset, extent.offset);
            let after = Extent::between(extent.end(), entry.extent.end());
            for rest in [before, after] {
                if !rest.is_empty() {
                    self.entries.insert(
                        rest.offset,
                        Entry {
                            extent: rest,
                            ..*entry
                        },
                    );
                }
            }
        }
        let cut = |entry: Entry| Entry {
            extent: entry.extent.intersection(extent),
            ..entry
        };
        touched.into_iter().map(cut).collect()
    }

    /// Marks what of `extent` is in the ledger as arrived. A piece that arrives in part stays in
    /// flight: it can still be cancelled.
    pub(crate) fn mark_fetched(&mut self, extent: Extent) {
        for entry in self
            .entries
            .range_mut(..extent.end())
            .rev()
            .map(|(_, entry)| entry)
        {
            if entry.extent.end() <= extent.offset {
                break;
            }
            entry.fetched |= extent.covers(entry.extent);
        }
    }

    /// The entries of one stream.
    pub(crate) fn of(&self, stream: StreamId) -> impl Iterator<Item = Entry> + '_ {
        self.entries
            .values()
            .filter(move |entry| entry.stream == stream)
            .copied()
    }

    /// Hands the entry that starts at `offset` over to another stream.
    pub(crate) fn hand_over(&mut self, offset: u64, stream: StreamId) {
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.stream = stream;
        }
    }

    /// Takes the doubt from a stream's entries; how many bytes it was about.
    pub(crate) fn trust(&mut self, stream: StreamId) -> u64 {
        self.entries
            .values_mut()
            .filter(|entry| entry.stream == stream && entry.doubted)
            .map(|entry| {
                entry.doubted = false;
                entry.extent.len
            })
            .sum()
    }

    fn overlapping(&self, extent: Extent) -> impl Iterator<Item = Entry> + '_ {
        self.entries
            .range(..extent.end())
            .rev()
            .map(|(_, entry)| *entry)
            .take_while(move |entry| entry.extent.end() > extent.offset)
            .filter(move |_| !extent.is_empty())
    }
}
