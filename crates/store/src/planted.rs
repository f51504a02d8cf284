//! Mistakes on purpose: what a programmer could have got wrong here.
//!
//! A test that finds nothing may be blind. In the tests of this crate a mistake can be planted, and
//! some test has to fail then (`tests/blind.rs`); in everything that is delivered [`planted`] is
//! `false` before the compiler looks further.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// The entry is written before the data that it speaks of is durable.
    NoDataFlush,
    /// A commit returns before its entry is durable.
    NoEntryFlush,
    /// A superblock is written before the records that it speaks of are durable.
    NoCheckpointFlush,
    /// Superblocks are not made durable before what they replace is used again.
    NoSuperblockFlush,
    /// Both superblocks are at the same place.
    OneSuperblock,
    /// A page is free as soon as the newest records do not need it.
    PagesFreeAtOnce,
    /// A page is free though the older superblock needs it.
    PagesFreeTooEarly,
    /// An AU is free as soon as it is given back.
    SpaceFreeAtOnce,
    /// A transaction that failed keeps what it drew.
    SpaceLost,
    /// Checkpoints do not write which AUs are in use.
    SpaceNotWritten,
    /// Bytes that a crash makes live again are written over.
    CutIsForgotten,
    /// Live bytes are written over in place.
    DirectOverLive,
    /// A checkpoint leaves small writes where they were.
    PiecesNotWritten,
    /// A checkpoint writes small writes over later large ones.
    StalePieces,
    /// Replay leaves out what makes numbers unique.
    CountersNotReplayed,
    /// Replay takes an entry of which not every sector is there.
    TornEntries,
    /// The log writes over what the older superblock needs.
    LogTooLong,
    /// The clock is not asked.
    NothingIsOver,
    /// A reservation's use is not limited.
    UseWithoutLimit,
    /// Opening forgets what was promised.
    PromisesForgotten,
    /// A lost flush is taken for a good one.
    NotPoisoned,
    /// A clone does not count among the users of an AU.
    UsersNotCounted,
    /// A shared AU is written in place.
    SharedInPlace,
    /// Data is not held against its checksum.
    DataUnverified,
    /// An AU of the records is free as soon as they give it back.
    RecordAusFreeAtOnce,
    /// An AU of the records is free though the older superblock's map has it.
    RecordAusFreeTooEarly,
    /// Pages of records are not held against their checksum.
    PagesUnverified,
    /// An opening takes for durable what it can read, though its flush may have failed.
    DoubtForgotten,
}

/// Whether this mistake is planted on this thread.
#[cfg(not(test))]
pub(crate) const fn planted(_: Mistake) -> bool {
    false
}

#[cfg(test)]
pub(crate) use in_tests::{plant, planted};

#[cfg(test)]
mod in_tests {
    use super::Mistake;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Mistake>> = const { Cell::new(None) };
        static MADE: Cell<u64> = const { Cell::new(0) };
    }

    /// Whether this mistake is planted on this thread.
    pub(crate) fn planted(mistake: Mistake) -> bool {
        let is = PLANTED.get() == Some(mistake);
        MADE.set(MADE.get() + u64::from(is));
        is
    }

    /// Plants a mistake on this thread, or none; says how often the one before was met.
    pub(crate) fn plant(mistake: Option<Mistake>) -> u64 {
        PLANTED.set(mistake);
        MADE.take()
    }
}
