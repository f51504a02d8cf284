//! What went wrong with a file's writes, and who has been told.
//!
//! As Linux does it for a file of its own (`errseq_t`): an error stays with the file, and every
//! open has a mark up to which it has been told. So a close by one process, also one that a program
//! does not know of (close-on-exec in a child), cannot take an error away from the fsync of
//! another.
//!
//! | who | hears of | and then |
//! |---|---|---|
//! | write | what happened since the open, once | fsync tells it again |
//! | close | what happened since the open, until an fsync tells it | fsync tells it again |
//! | fsync | what happened since its last fsync; before it, if no fsync told it | is at peace |
//! | sync of the volume | what neither fsync nor another sync has told | is at peace |
//!
//! A close or a write that fails is not counted as told: most closes are those of the kernel, when
//! a program ends, and nobody hears them; nor does anybody hear pages of a mapping written back.
//! So a close by somebody who came later does not fail for what others have lost, though an fsync
//! does, if no fsync has told it. When the file has been emptied, who comes later does not hear any
//! more of what was lost of its contents before.

use base::{FsError, OpenId};
use std::collections::HashMap;

/// What who syncs is told of something that is lost. That it takes too long would mean that it is
/// still on its way, and if a handle is stale, kernels ask by the path once more and tell nobody.
pub(crate) const fn lost(error: FsError) -> FsError {
    match error {
        FsError::TimedOut | FsError::Stale => FsError::Io,
        _ => error,
    }
}

/// Up to which error an open has been told.
#[derive(Clone, Copy, Debug)]
struct Told {
    by_fsync: u64,
    by_close: u64,
    by_write: u64,
}

/// See the module's head.
#[derive(Debug, Default)]
pub struct Errors {
    /// How many there were.
    count: u64,
    /// The first one that no fsync has told yet; if all are told, the last.
    last: Option<FsError>,
    /// Whether an fsync has told the last one.
    seen: bool,
    /// Whether an fsync or a sync of the volume has told the last one.
    told: bool,
    opens: HashMap<OpenId, Told>,
}

impl Errors {
    /// How many errors there were so far, for [`Self::since`].
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Something written is lost.
    pub fn record(&mut self, error: FsError) {
        if self.seen || self.last.is_none() {
            self.last = Some(error);
        }
        self.count += 1;
        self.seen = false;
        self.told = false;
    }

    /// An open begins.
    pub fn on_open(&mut self, open: OpenId) {
        let unseen = self.count > 0 && !self.seen;
        let told = Told {
            by_fsync: self.count - u64::from(unseen),
            by_close: self.count,
            by_write: self.count,
        };
        self.opens.insert(open, told);
    }

    /// An open ends.
    pub fn on_close(&mut self, open: OpenId) {
        self.opens.remove(&open);
    }

    /// The file has been emptied after there had been `count` errors: what was lost of it is not
    /// missing any more. Who has had it open when it was lost still hears of it, and if there have
    /// been others since, everybody of all.
    pub fn on_emptied(&mut self, count: u64) {
        if self.count != count {
            return;
        }
        self.seen = true;
        self.told = true;
        let came_later = self
            .opens
            .values_mut()
            .filter(|told| told.by_close == count);
        for told in came_later {
            told.by_fsync = count;
        }
    }

    /// What happened after there had been `count` errors.
    ///
    /// # Errors
    /// Just that.
    pub fn since(&self, count: u64) -> Result<(), FsError> {
        self.outcome(self.count > count)
    }

    /// Whether [`Self::look`] would say something.
    #[must_use]
    pub fn waits_for(&self, open: OpenId) -> bool {
        let told = self.opens.get(&open);
        told.is_some_and(|told| told.by_close < self.count)
    }

    /// For a close: what happened since the open, and it has not been told by fsync.
    ///
    /// # Errors
    /// Just that.
    pub fn look(&self, open: OpenId) -> Result<(), FsError> {
        self.outcome(self.waits_for(open))
    }

    /// Whether [`Self::take_for_write`] would say something.
    #[must_use]
    pub fn waits_for_write(&self, open: Option<OpenId>) -> bool {
        let told = open.and_then(|open| self.opens.get(&open));
        told.is_some_and(|told| told.by_write < self.count)
    }

    /// For a write: what an open has been told neither by write nor by fsync.
    ///
    /// # Errors
    /// Just that, once.
    pub fn take_for_write(&mut self, open: Option<OpenId>) -> Result<(), FsError> {
        let waits = self.waits_for_write(open);
        if let Some(told) = open.and_then(|open| self.opens.get_mut(&open)) {
            told.by_write = self.count;
        }
        self.outcome(waits)
    }

    /// For an fsync through an open, or for a sync of the volume.
    ///
    /// # Errors
    /// What has not been told, once.
    pub fn take(&mut self, open: Option<OpenId>) -> Result<(), FsError> {
        let Some(told) = open.and_then(|open| self.opens.get_mut(&open)) else {
            let untold = self.is_untold();
            self.told = true;
            return self.outcome(untold).map_err(lost);
        };
        let waits = told.by_fsync < self.count;
        *told = Told {
            by_fsync: self.count,
            by_close: self.count,
            by_write: self.count,
        };
        self.seen |= waits;
        self.told |= waits;
        self.outcome(waits)
    }

    /// Whether there is an error that no fsync has told.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        self.last.is_some() && !self.seen
    }

    /// Whether there is an error that nobody can be sure to have heard of.
    #[must_use]
    pub fn is_untold(&self) -> bool {
        self.last.is_some() && !self.told
    }

    fn outcome(&self, waits: bool) -> Result<(), FsError> {
        match self.last {
            Some(error) if waits => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OpenId = OpenId(1);
    const B: OpenId = OpenId(2);
    const FULL: Result<(), FsError> = Err(FsError::NoSpace);

    #[test]
    fn every_open_is_told_once_by_fsync_whoever_closes_before() {
        let mut errors = Errors::default();
        errors.on_open(A);
        errors.on_open(B);
        errors.record(FsError::NoSpace);
        assert_eq!([errors.look(A), errors.look(A)], [FULL, FULL]);
        assert_eq!([errors.take(Some(A)), errors.take(Some(A))], [FULL, Ok(())]);
        assert_eq!(errors.look(A), Ok(()), "it has been told");
        assert_eq!([errors.take(Some(B)), errors.take(Some(B))], [FULL, Ok(())]);
    }

    #[test]
    fn a_later_open_is_told_what_no_fsync_has_told() {
        let mut errors = Errors::default();
        errors.on_open(A);
        errors.record(FsError::NoSpace);
        assert_eq!(errors.look(A), FULL);
        errors.on_close(A);
        errors.on_open(B);
        assert_eq!(errors.take_for_write(Some(B)), Ok(()), "not its own write");
        assert_eq!(errors.take(Some(B)), FULL);
        errors.on_open(A);
        assert_eq!(errors.take(Some(A)), Ok(()));
    }

    #[test]
    fn a_later_open_is_closed_in_peace_though_its_fsync_tells() {
        let mut errors = Errors::default();
        errors.on_open(A);
        errors.record(FsError::NoSpace);
        errors.on_open(B);
        assert_eq!([errors.look(B), errors.look(A)], [Ok(()), FULL]);
        errors.record(FsError::NoSpace);
        assert_eq!([errors.look(B), errors.look(B)], [FULL, FULL], "its own");
        assert_eq!([errors.take(Some(B)), errors.look(B)], [FULL, Ok(())]);
    }

    #[test]
    fn who_comes_after_what_was_lost_is_at_peace_when_the_file_is_emptied() {
        let mut errors = Errors::default();
        errors.on_open(A);
        errors.record(FsError::NoSpace);
        // Who empties has opened before.
        errors.on_open(B);
        errors.on_emptied(0);
        assert!(errors.is_untold());
        errors.on_emptied(errors.count());
        assert!(!errors.is_untold(), "nothing is missing that a sync tells");
        let late = OpenId(3);
        errors.on_open(late);
        assert_eq!([errors.take(Some(B)), errors.take(Some(late))], [Ok(()); 2]);
        assert_eq!(errors.take(Some(A)), FULL, "it was open then");
        errors.record(FsError::Io);
        assert_eq!(errors.take(Some(late)), Err(FsError::Io));
    }

    #[test]
    fn a_write_is_told_once_and_takes_nothing_from_fsync() {
        let mut errors = Errors::default();
        errors.on_open(A);
        errors.record(FsError::NoSpace);
        let told = [(); 2].map(|()| errors.take_for_write(Some(A)));
        assert_eq!(told, [FULL, Ok(())]);
        assert_eq!(errors.take(Some(A)), FULL);
    }

    /// Who syncs asks again as long as something is under way: he would never hear of it.
    #[test]
    fn a_sync_of_the_volume_is_not_told_that_what_is_lost_is_late() {
        let mut errors = Errors::default();
        errors.on_open(A);
        errors.record(FsError::TimedOut);
        assert_eq!(
            [errors.take(None), errors.take(None)],
            [Err(FsError::Io), Ok(())]
        );
        assert_eq!(errors.take(Some(A)), Err(FsError::TimedOut));
    }

    #[test]
    fn a_sync_of_the_volume_is_told_what_nobody_is_sure_to_have_heard() {
        let mut errors = Errors::default();
        errors.on_open(A);
        errors.record(FsError::NoSpace);
        assert_eq!([errors.take(None), errors.take(None)], [FULL, Ok(())]);
        assert_eq!(errors.take(Some(A)), FULL);
        // Nobody may have heard the close: it is a kernel's when a program ends.
        errors.record(FsError::Io);
        assert_eq!(errors.look(A), Err(FsError::Io));
        assert_eq!(errors.take_for_write(Some(A)), Err(FsError::Io));
        assert_eq!(
            [errors.take(None), errors.take(None)],
            [Err(FsError::Io), Ok(())]
        );
        errors.record(FsError::Io);
        assert_eq!(errors.take(Some(A)), Err(FsError::Io));
        assert_eq!(errors.take(None), Ok(()), "an fsync has told it");
    }
}
