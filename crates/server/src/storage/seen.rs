//! How far each store has been: so that an older state of it is noticed.
//!
//! A disk, a file or a volume below a store may be set back: a snapshot is restored, a copy put in
//! its place. What such a store says is consistent, and everything since is gone from it, though
//! clients were told that it is durable, and names and reservations speak of it. Nothing on the
//! device tells. So the server remembers, beside its other state, how many entries the store's log
//! has had ([`store::Core::durable_sequence`]), and a store that has had fewer is not opened.
//!
//! What is remembered is a bound from below: it is written when the server starts, when it ends in
//! order and now and then in between, always behind what is durable in the store. So an ending of
//! whatever kind is never taken for an older state; an older state from within the last interval
//! of a run that ended out of order is not noticed.
//!
//! One state file of the data directory, `seen.toml`, like the others there.

use crate::data::{DataError, file, from_hex, to_hex};
use base::StoreId;
use base::limits::SERVER_STORES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name of the state file, without its ending.
const NAME: &str = "seen";

/// The state file's contents.
#[derive(Debug, Serialize, Deserialize)]
struct SeenFile {
    #[serde(default)]
    store: Vec<SeenRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SeenRecord {
    id: String,
    sequence: u64,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Seen {
    directory: PathBuf,
    sequences: BTreeMap<StoreId, u64>,
}

impl Seen {
    /// What was seen by earlier runs of the server whose data directory this is.
    ///
    /// # Errors
    /// [`DataError`].
    pub(super) fn open(directory: &Path) -> Result<Self, DataError> {
        let path = directory.join(format!("{NAME}.toml"));
        let mut sequences = BTreeMap::new();
        if path.exists() {
            let file: SeenFile = file::read(directory, NAME)?;
            let one = |record: &SeenRecord| Some((StoreId(from_hex(&record.id)?), record.sequence));
            let all: Option<_> = file.store.iter().map(one).collect();
            let all = all.filter(|_| file.store.len() <= SERVER_STORES_MAX);
            sequences = all.ok_or_else(|| DataError::Damaged {
                path,
                why: "a value has the wrong form".to_owned(),
            })?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            sequences,
        })
    }

    /// How far a store has been at least.
    pub(super) fn least_sequence(&self, store: StoreId) -> u64 {
        self.sequences.get(&store).copied().unwrap_or(0)
    }

    /// Forgets the stores that the server does not have any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(StoreId) -> bool) {
        self.sequences.retain(|store, _| is_there(*store));
    }

    /// Stores are so far, durably. Durable when it returns; nothing is written if that is known.
    ///
    /// # Errors
    /// [`DataError::Io`]; it is written with the next note.
    pub(super) fn note(
        &mut self,
        sequences: impl Iterator<Item = (StoreId, u64)>,
    ) -> Result<(), DataError> {
        let mut noted = self.sequences.clone();
        noted.extend(sequences);
        if noted == self.sequences {
            return Ok(());
        }
        let record = |(id, sequence): (&StoreId, &u64)| SeenRecord {
            id: to_hex(&id.0),
            sequence: *sequence,
        };
        let store = noted.iter().map(record).collect();
        file::write(&self.directory, NAME, &SeenFile { store })?;
        self.sequences = noted;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_outlives_a_run_and_damage_of_it_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (StoreId([1; 16]), StoreId([2; 16]));
        let mut seen = Seen::open(directory.path()).unwrap();
        assert_eq!(seen.least_sequence(one), 0);
        seen.note([(one, 7), (two, 9)].into_iter()).unwrap();
        // What is accepted to be older is so from then on.
        seen.note([(two, 4)].into_iter()).unwrap();
        let path = directory.path().join("seen.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        seen.note([(one, 7), (two, 4)].into_iter()).unwrap();
        assert!(!path.exists(), "nothing new is not written");
        std::fs::write(&path, &text).unwrap();
        let mut seen = Seen::open(directory.path()).unwrap();
        let known = [one, two].map(|store| seen.least_sequence(store));
        assert_eq!(known, [7, 4]);
        seen.retain(|store| store == one);
        assert_eq!(seen.least_sequence(two), 0);
        std::fs::write(&path, text.replace("= 7", "= 1")).unwrap();
        let damaged = Seen::open(directory.path());
        assert!(matches!(damaged, Err(DataError::Damaged { .. })));
    }
}
