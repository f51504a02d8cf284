//! Which stores have something that was not committed there.

use super::Place;
use std::collections::BTreeMap;

/// Of each store, the number of the last write there. A commit covers what was answered before it
/// was sent, and nothing that is noted later.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    writes: u64,
    last: BTreeMap<Place, u64>,
}

impl Dirty {
    /// A write is about to be sent there, or was answered: a commit in between may not cover it.
    pub(super) fn on_write(&mut self, place: Place) {
        self.writes += 1;
        self.last.insert(place, self.writes);
    }

    /// What a commit of everything covers if it is sent now.
    pub(super) fn all(&self) -> Vec<(Place, u64)> {
        self.last
            .iter()
            .map(|(place, last)| (*place, *last))
            .collect()
    }

    /// It was committed there, as of `last`.
    pub(super) fn on_committed(&mut self, place: Place, last: u64) {
        if self.last.get(&place) == Some(&last) {
            self.last.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ServerId, StoreId};

    #[test]
    fn a_store_is_committed_until_a_commit_covers_its_last_answer() {
        let [one, two] = [1, 2].map(|byte| (ServerId([byte; 16]), StoreId([byte; 16])));
        let mut dirty = Dirty::default();
        dirty.on_write(one);
        dirty.on_write(two);
        let [first, second] = dirty.all()[..] else {
            panic!("two stores have been written to");
        };
        // The write to the first is answered while the commit is on its way.
        dirty.on_write(one);
        dirty.on_committed(first.0, first.1);
        dirty.on_committed(second.0, second.1);
        let again = dirty.all();
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].0, one);
        dirty.on_committed(one, again[0].1);
        assert!(dirty.all().is_empty());
    }
}
