//! What stores still have to do because of changes: objects to delete, objects to cut.
//!
//! A chore is written with the change that causes it and removed when the stores have done it, so
//! none is forgotten, and one may be done twice, also long after the first time: what is listed is
//! what is durable, and that a chore is done may not be yet. So a store takes a cut once for each
//! generation. A file that is being cut must not be written before that is done the first time, or
//! what was written is cut, too: the manager does a cut before it answers the truncation, and those
//! that it finds when it begins before it lets anybody open the file.

use super::error::NamespaceError;
use super::key;
use super::record::{Chore, decode};
use super::tree::Namespace;
use super::turn::Turn;
use crate::MetaError;
use base::FsError;
use base::limits::META_PAGE_ENTRIES_MAX;

impl Namespace {
    /// Chores that are durable, the oldest first, after the one with this number, at most
    /// `count_max`.
    ///
    /// # Errors
    /// What the engine says.
    pub async fn chores(
        &self,
        after: u64,
        count_max: usize,
    ) -> Result<Vec<(u64, Chore)>, NamespaceError> {
        let keys = self.core.rules.keys;
        let range = keys.all(b'w').after(&keys.chore(after));
        let count = count_max.clamp(1, META_PAGE_ENTRIES_MAX);
        let page = self.core.engine.range(&range, count, None).await?;
        let chores = page.entries.iter().map(|entry| {
            let number = key::parts(&entry.key).and_then(|(_, rest)| key::number(rest));
            let (number, _) = number.ok_or_else(|| MetaError::Damaged("a chore".to_owned()))?;
            Ok((number, decode("a chore", &entry.value)?))
        });
        Ok(chores.collect::<Result<Vec<_>, MetaError>>()?)
    }

    /// The stores have done these, durably.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn chores_done(&self, turn: &Turn, numbers: &[u64]) -> Result<(), FsError> {
        for some in numbers.chunks(super::pipe::BATCH_KEYS_MAX / 2) {
            self.change(turn, |work| {
                some.iter().for_each(|number| work.finish_chore(*number));
                Ok(())
            })?;
        }
        Ok(())
    }
}
