//! Watches: every change of a range, once, in order.
//!
//! A watch is asked for the next change; nothing is queued for one that does not ask. It goes on
//! from where it is as long as the engine keeps that much history: the change log of an embedded
//! engine, what a cluster has not compacted. After that it says [`MetaError::HistoryLost`], and its
//! owner reads the range again and watches from there.

use crate::MetaError;
use crate::engine::{Answer, Revision};
use crate::space;
use serde::{Deserialize, Serialize};

/// One entry that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changed {
    /// Key and new value.
    Put(Vec<u8>, Vec<u8>),
    /// The key of an entry that was there and is not any more.
    Deleted(Vec<u8>),
}

impl Changed {
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Deleted(key) => key,
        }
    }

    /// As the program calls it, from how the engine stores it.
    fn of_program(self) -> Self {
        match self {
            Self::Put(key, value) => Self::Put(space::key(&key).to_vec(), value),
            Self::Deleted(key) => Self::Deleted(space::key(&key).to_vec()),
        }
    }
}

/// All changes of the watched range at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The revision. A watch that begins after it goes on behind these.
    pub revision: Revision,
    /// What was changed, at least one; no key twice.
    pub changed: Vec<Changed>,
}

/// Where changes come from, with keys as the engine stores them.
pub(crate) trait Source: Send {
    /// The next ones. Dropping the future loses nothing.
    fn next(&mut self) -> Answer<'_, Changes>;
}

/// Every change of a range. Dropped, it ends.
pub struct Watch {
    source: Box<dyn Source>,
}

impl Watch {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self { source }
    }

    /// The next changes; waits for them without a limit. A cluster that cannot be reached is
    /// waited for, too: who must not miss its absence asks [`crate::Engine::status`]. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// [`MetaError::HistoryLost`]: this watch is over, there may have been changes that it does not
    /// tell. [`MetaError::Closed`], [`MetaError::Refused`], [`MetaError::Damaged`].
    pub async fn next(&mut self) -> Result<Changes, MetaError> {
        let Changes { revision, changed } = self.source.next().await?;
        let changed = changed.into_iter().map(Changed::of_program).collect();
        Ok(Changes { revision, changed })
    }
}
