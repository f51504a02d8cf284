//! What was answered ahead and refused, by directory, and who has been told.
//!
//! As with the errors of a file's writes ([`crate::file`]): each open of a directory hears of it
//! once by fsync, whatever another one has heard before; one that came later, if no fsync has told
//! it yet; and a sync of the volume, if nobody was told.

use crate::cache::NodeId;
use crate::file::lost;
use base::{FsError, QuickMap};
use std::sync::atomic::{AtomicU64, Ordering};

/// Directories of which it is remembered; of more, those are forgotten that have been told.
const DIRECTORIES_MAX: usize = 4096;

/// Up to which refusal an open directory has been told.
#[derive(Debug, Default)]
pub struct DirectoryTold(AtomicU64);

/// The last refusal in a directory.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// Of all of the volume.
    number: u64,
    /// The first that no fsync has told yet; if all are told, the last.
    error: FsError,
    /// Whether an fsync has told it.
    seen: bool,
    /// Whether anybody was told.
    told: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(in crate::volume) struct Refusals {
    of: QuickMap<NodeId, Refusal>,
    count: u64,
}

impl Refusals {
    /// What was answered ahead about a name of a directory is not so.
    pub(in crate::volume) fn record(&mut self, directory: NodeId, error: FsError) {
        if self.of.len() >= DIRECTORIES_MAX && !self.of.contains_key(&directory) {
            self.of.retain(|_, refusal| !refusal.told);
        }
        self.count += 1;
        let refusal = self.of.entry(directory).or_insert(Refusal {
            number: 0,
            error,
            seen: true,
            told: true,
        });
        if refusal.seen {
            refusal.error = error;
        }
        refusal.number = self.count;
        (refusal.seen, refusal.told) = (false, false);
    }

    /// A directory is opened.
    pub(in crate::volume) fn open(&self) -> DirectoryTold {
        DirectoryTold(AtomicU64::new(self.count))
    }

    /// For an fsync through an open directory.
    ///
    /// # Errors
    /// What it is to tell.
    pub(in crate::volume) fn take(
        &mut self,
        directory: NodeId,
        told: &DirectoryTold,
    ) -> Result<(), FsError> {
        let Some(refusal) = self.of.get_mut(&directory) else {
            return Ok(());
        };
        let before = told.0.fetch_max(refusal.number, Ordering::AcqRel);
        if before >= refusal.number && refusal.seen {
            return Ok(());
        }
        (refusal.seen, refusal.told) = (true, true);
        Err(refusal.error)
    }

    /// For a sync of the volume.
    ///
    /// # Errors
    /// One that nobody was told of; all of them count as told.
    pub(in crate::volume) fn take_all(&mut self) -> Result<(), FsError> {
        let untold = self.of.values_mut().filter(|refusal| !refusal.told);
        let first = untold.fold(None, |first: Option<Refusal>, refusal| {
            refusal.told = true;
            Some(*refusal)
                .filter(|it| first.is_none_or(|first| it.number < first.number))
                .or(first)
        });
        first.map_or(Ok(()), |refusal| Err(lost(refusal.error)))
    }

    /// Whether nobody was told of one.
    pub(in crate::volume) fn is_untold(&self) -> bool {
        self.of.values().any(|refusal| !refusal.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Result<(), FsError> = Err(FsError::NoSpace);
    const DENIED: Result<(), FsError> = Err(FsError::AccessDenied);

    #[test]
    fn each_open_directory_hears_of_it_once_whatever_others_have_heard() {
        let mut refusals = Refusals::default();
        let [one, other] = [refusals.open(), refusals.open()];
        refusals.record(NodeId(7), FsError::NoSpace);
        refusals.record(NodeId(7), FsError::AccessDenied);
        let [later, last] = [refusals.open(), refusals.open()];
        assert!(refusals.is_untold());
        assert_eq!(refusals.take(NodeId(8), &one), Ok(()));
        assert_eq!(refusals.take_all(), FULL);
        assert_eq!(refusals.take_all(), Ok(()));
        assert!(!refusals.is_untold());
        for (open, told) in [(&later, FULL), (&later, Ok(())), (&last, Ok(()))] {
            assert_eq!(refusals.take(NodeId(7), open), told);
        }
        for open in [&one, &other] {
            assert_eq!(refusals.take(NodeId(7), open), FULL);
            assert_eq!(refusals.take(NodeId(7), open), Ok(()));
        }
        refusals.record(NodeId(7), FsError::AccessDenied);
        assert_eq!(refusals.take(NodeId(7), &one), DENIED);
        assert_eq!(refusals.take_all(), Ok(()), "one was told");
        assert_eq!(refusals.take(NodeId(7), &last), DENIED);
    }

    #[test]
    fn what_has_been_told_is_forgotten_before_there_is_too_much() {
        let mut refusals = Refusals::default();
        for node in 0..3 * DIRECTORIES_MAX as u64 {
            refusals.record(NodeId(node), FsError::NoSpace);
            assert_eq!(refusals.take_all(), FULL);
        }
        assert!(refusals.of.len() <= DIRECTORIES_MAX);
    }
}
