//! Why an engine did not do it. What follows from each is said here once, for both engines.

use crate::engine::Revision;
use crate::transaction::TransactionId;

/// Why an engine did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetaError {
    /// A condition did not hold; nothing has happened. Read again.
    #[error("condition {condition} does not hold at {at}")]
    Conflict {
        /// Which one, counted from 0 in the order in which they were given; the first of several.
        condition: usize,
        /// The state that it was compared with.
        at: Revision,
    },
    /// Whoever guards the transaction has lost the seat; nothing has happened, and no transaction
    /// with this epoch ever will any more.
    #[error("the seat {seat:?} is not held any more with epoch {epoch}")]
    Deposed {
        /// The seat.
        seat: String,
        /// The epoch that is over.
        epoch: Revision,
    },
    /// Somebody else has the seat.
    #[error("the seat {seat:?} is held by {holder:?}")]
    Held {
        /// The seat.
        seat: String,
        /// How its holder calls himself.
        holder: String,
    },
    /// It is over a bound; nothing has happened.
    #[error("{size} {what}; the most there can be is {size_max}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        size: usize,
        /// How much there can be.
        size_max: usize,
    },
    /// It has no meaning: an empty key, a range without keys, two changes of one key.
    #[error("not a request: {0}")]
    Invalid(&'static str),
    /// It could not be done, and has not happened. It may be possible later.
    #[error("the metadata engine is unavailable: {0}")]
    Unavailable(String),
    /// There was no answer in time: the transaction has happened, or may still happen, or never
    /// will. [`crate::Engine::outcome`] finds out.
    #[error("transaction {0} was not answered in time; its outcome is unknown")]
    Unknown(TransactionId),
    /// Nobody can say any more whether it has happened: it was asked about before, or too late.
    #[error("the outcome of transaction {0} is not remembered")]
    Forgotten(TransactionId),
    /// What was asked for lies further back than the history that is kept. Read everything anew.
    #[error("history before {oldest} is not kept")]
    HistoryLost {
        /// The oldest revision after which everything is there; none if that is not known.
        oldest: Revision,
    },
    /// The engine has no room for more; nothing has happened.
    #[error("the metadata engine is full: {0}")]
    Full(String),
    /// A flush or a write failed before; nothing can be made durable until the engine is opened
    /// again. Whether the transaction that met the failure has happened shows then.
    #[error("the metadata engine takes no changes since its file failed: {0}")]
    Poisoned(String),
    /// It was written by a newer release.
    #[error("the metadata has format version {found}; this release reads up to {known}")]
    Newer {
        /// The version that it says.
        found: u64,
        /// The newest that this release reads.
        known: u64,
    },
    /// Something else lies there.
    #[error("this is no metadata of Azekura: {0}")]
    Foreign(String),
    /// Another process works with the file.
    #[error("the metadata is in use by another process")]
    InUse,
    /// What lies there is not what was written.
    #[error("damaged metadata: {0}")]
    Damaged(String),
    /// The cluster does not let us in: credentials, certificates, permissions.
    #[error("the metadata cluster refuses: {0}")]
    Refused(String),
    /// The engine was closed.
    #[error("the metadata engine is closed")]
    Closed,
}
