//! What is written down of edits of rich ACLs: in the transaction that makes them, so that none is
//! made and not written down, nor the other way round, whoever is the manager.
//!
//! How many there were is counted for ever; of the last [`NAMESPACE_EDITS_MAX`] it is kept in words
//! what they were.

use super::super::core::Core;
use super::super::error::NamespaceError;
use super::super::key::Keys;
use super::super::pipe::Write;
use super::super::record::{decode, encode};
use super::super::tree::Namespace;
use super::super::work::Work;
use crate::{Engine, KeyRange, MetaError};
use acl::Origin;
use base::limits::{ACL_AUDIT_LINES_PER_REPLY_MAX, ACL_TEXT_BYTES_MAX, NAMESPACE_EDITS_MAX};
use serde::{Deserialize, Serialize};

/// How many edits there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditCounts {
    /// All of them.
    pub edits: u64,
    /// Those that made a rich ACL the truth of a file.
    pub became_rich: u64,
    /// Those that took one away.
    pub went_back: u64,
}

impl EditCounts {
    fn count(&mut self, before: Origin, after: Origin) {
        self.edits += 1;
        match (before, after) {
            (Origin::Posix, _) => self.became_rich += 1,
            (Origin::Rich, Origin::Posix) => self.went_back += 1,
            (Origin::Rich, Origin::Rich) => {}
        }
    }

    /// Those of a volume. There is no record of a volume without edits.
    pub(in crate::namespace) async fn load(
        engine: &dyn Engine,
        keys: Keys,
    ) -> Result<Self, MetaError> {
        let (entry, _) = engine.get(&keys.edit(0)).await?;
        let counts = entry.map(|entry| decode("the number of edits", &entry.value));
        Ok(counts.transpose()?.unwrap_or_default())
    }

    /// The records that are written with an edit, which is the last one counted.
    pub(in crate::namespace) fn writes(&self, keys: Keys, words: String) -> Vec<Write> {
        let mut writes = vec![
            (keys.edit(0), Some(encode(self))),
            (keys.edit(self.edits), Some(words.into_bytes())),
        ];
        if self.edits > NAMESPACE_EDITS_MAX {
            writes.push((keys.edit(self.edits - NAMESPACE_EDITS_MAX), None));
        }
        writes
    }
}

impl Work<'_> {
    /// Writes an edit down.
    pub(super) fn note_edit(&mut self, before: Origin, after: Origin, mut words: String) {
        words.truncate(words.floor_char_boundary(ACL_TEXT_BYTES_MAX));
        self.edits.count(before, after);
        self.words = Some(words);
    }
}

async fn last(core: &Core, counts: EditCounts) -> Result<Vec<String>, MetaError> {
    let count = counts.edits.min(ACL_AUDIT_LINES_PER_REPLY_MAX as u64);
    if count == 0 {
        return Ok(Vec::new());
    }
    let keys = core.rules.keys;
    let first = keys.edit(counts.edits - count + 1);
    let range = KeyRange::new(first, keys.edit(counts.edits + 1));
    let page = core
        .engine
        .range(&range, ACL_AUDIT_LINES_PER_REPLY_MAX, None);
    let entries = page.await?.entries.into_iter();
    let words = entries.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
    Ok(words.collect())
}

impl Namespace {
    /// How many edits of rich ACLs there were, and the last of them in words, the newest at the
    /// end. Blocks; not within a task.
    ///
    /// # Errors
    /// What the engine says.
    pub fn edits_here(&self) -> Result<(EditCounts, Vec<String>), NamespaceError> {
        let core = &self.core;
        core.runtime().block_on(async {
            self.sync_all().await?;
            let counts = core.lock().edits;
            Ok((counts, last(core, counts).await?))
        })
    }
}
