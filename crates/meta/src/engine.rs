//! The trait that both engines implement, and what it speaks of.

use crate::leadership::Leadership;
use crate::transaction::{Transaction, TransactionId};
use crate::watch::Watch;
use crate::{KeyRange, MetaError};
use std::fmt;
use std::pin::Pin;

/// How far an engine is: greater means later. Revisions of two engines have nothing to do with each
/// other, and they may have gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {}", self.0)
    }
}

/// What an engine answers, some time: within `META_TIME_MAX`, unless a method says otherwise.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, MetaError>> + Send + 'a>>;

/// One key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of the transaction that wrote it.
    pub revision: Revision,
}

/// The first entries of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// Whether there are more after the last one: ask for [`KeyRange::after`] its key.
    pub has_more: bool,
    /// The state that this was read from; the next page can be read from it, too.
    pub revision: Revision,
}

/// A transaction has happened and is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its revision; that of the entries that it wrote. Transactions that do not touch each other
    /// may share one. Of a transaction without changes: the state in which its conditions held.
    pub revision: Revision,
}

/// Who has a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// How he calls himself.
    pub holder: String,
    /// The revision at which he took it.
    pub epoch: Revision,
}

/// How an engine is, for administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// `embedded` or `etcd`.
    pub engine: &'static str,
    /// How far it is.
    pub revision: Revision,
    /// Bytes of its file, or of the database of the member that answered.
    pub size_bytes: u64,
    /// Transactions that this engine has answered as durable since it was opened.
    pub transactions: u64,
    /// Durable commits, or requests of the cluster, in which they went.
    pub groups: u64,
    /// Why it takes no changes, if so.
    pub failure: Option<String>,
}

/// A transactional map from keys to values. See the head of this crate for what it promises.
///
/// Dropping a future gives the question up, not the transaction: one that waits for its turn or is
/// under way goes on.
pub trait Engine: Send + Sync {
    /// The entry with this key in a state not older than the question, and that state.
    ///
    /// # Errors
    /// [`MetaError::Unavailable`]; [`MetaError::Invalid`], [`MetaError::TooLarge`] for no key.
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, (Option<Entry>, Revision)>;

    /// Up to `entries_max` entries of a range, or fewer than there are if they are large:
    /// [`Page::has_more`] says so. Without `at` from a state not older than the question; with it,
    /// from the state of an earlier page.
    ///
    /// # Errors
    /// [`MetaError::HistoryLost`] if the state `at` is not kept any more. An embedded engine keeps
    /// those of pages with more after them, for `META_SNAPSHOT_TIME_MAX`.
    fn range<'a>(
        &'a self,
        range: &'a KeyRange,
        entries_max: usize,
        at: Option<Revision>,
    ) -> Answer<'a, Page>;

    /// Carries a transaction out, as a whole or not at all; answers when that is durable.
    ///
    /// # Errors
    /// [`MetaError::Unknown`] and [`MetaError::Poisoned`] mean that it may have happened; every
    /// other error, that it has not and will not.
    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed>;

    /// What has become of a transaction whose outcome was unknown. It can be asked once with a
    /// definite answer; one that has not happened by then never will.
    ///
    /// # Errors
    /// [`MetaError::Unknown`]: ask again. [`MetaError::Forgotten`]: it cannot be said any more.
    /// [`MetaError::Poisoned`] as from `commit`. Every other error: it has not happened.
    fn outcome(&self, transaction: TransactionId) -> Answer<'_, Committed>;

    /// Every change in `range` after the state `after`, and those to come.
    ///
    /// # Errors
    /// As from [`Watch::next`], which may also be the first to say it.
    fn watch<'a>(&'a self, range: &'a KeyRange, after: Revision) -> Answer<'a, Watch>;

    /// Takes a seat that nobody has. The seat is kept until it is resigned, dropped, or silent for
    /// `META_SEAT_TIME`.
    ///
    /// # Errors
    /// [`MetaError::Held`] if somebody has it.
    fn lead<'a>(&'a self, seat: &'a str, holder: &'a str) -> Answer<'a, Leadership>;

    /// Who has a seat.
    ///
    /// # Errors
    /// As [`Engine::get`].
    fn leader<'a>(&'a self, seat: &'a str) -> Answer<'a, Option<Leader>>;

    /// Takes a seat away from whoever has it with this epoch; nothing if that is over already.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    fn depose<'a>(&'a self, seat: &'a str, epoch: Revision) -> Answer<'a, ()>;

    /// How the engine is.
    ///
    /// # Errors
    /// [`MetaError::Unavailable`].
    fn status(&self) -> Answer<'_, Status>;
}
