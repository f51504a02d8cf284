//! Who may send again what was lost.
//!
//! When the server's machine has lost what was written and not flushed, its clients send it again
//! as they come back, some of them late. Meanwhile another one, or a program of this machine, may
//! have changed the same file and made that durable, and must not find it undone. So in a run that
//! follows a loss, the server notes who changes which file: data is taken again as long as nobody
//! else has.
//!
//! In the run after that one nobody knows any more who has changed what, and nothing is taken
//! again: whoever comes back only then hears that his data is lost.
//!
//! In a run that follows no loss nothing is sent again, and nothing is noted. So it is with
//! exports. Contents of parallel volumes are lost whenever one of the storage servers ends, while
//! this one goes on: what is written there is always noted, by bytes ([`parts`]).

mod parts;

use base::limits::CHANGED_FILES_MAX;
use base::{Extent, Handle, QuickMap, SessionId};
use parts::Written;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Table {
    /// Who has changed a file in this run; nobody in particular if more than one has, or a program
    /// of this machine.
    changers: QuickMap<Handle, Option<SessionId>>,
    /// Files that are not in the table may have been changed, too.
    is_incomplete: bool,
}

/// Who has changed what: of exports since the loss, of parallel volumes in this run.
pub(crate) struct Again {
    exports: Option<Mutex<Table>>,
    /// The loss was before an earlier run of which nothing is known.
    is_over: bool,
    parallel: Mutex<Written>,
}

impl Again {
    /// For a run before which something of exports may have been `lost`, or `earlier`: before a run
    /// that had the same verifier.
    pub(crate) fn new(lost: bool, earlier: bool) -> Self {
        Self {
            exports: lost.then(Mutex::default),
            is_over: earlier && !lost,
            parallel: Mutex::default(),
        }
    }

    /// A session has changed these bytes of a file of a parallel volume, or is about to; maybe
    /// earlier than now and than others, if it asks for that once more.
    pub(crate) fn changes_part(&self, by: SessionId, file: &Handle, extent: Extent, resent: bool) {
        let mut written = self.parallel();
        let is_last = !resent || written.are_own(by, file, extent);
        written.note(is_last.then_some(by), file, extent);
    }

    /// Whether a session may store these bytes of a file of a parallel volume again. If so, they
    /// count as its own.
    pub(crate) fn may_store_part(&self, by: SessionId, file: &Handle, extent: Extent) -> bool {
        let mut written = self.parallel();
        let is_own = written.are_own(by, file, extent);
        if is_own {
            written.note(Some(by), file, extent);
        }
        is_own
    }

    /// Whether a session is known to have written all of these bytes of a file of a parallel volume
    /// last, or was told that it may write them again.
    pub(crate) fn has_written_part(&self, by: SessionId, file: &Handle, extent: Extent) -> bool {
        self.parallel().are_known(by, file, extent)
    }

    /// A session is about to change the contents of a file, or has just done so.
    pub(crate) fn changes(&self, by: SessionId, file: &Handle) {
        if let Some(mut table) = self.lock() {
            table.note(Some(by), file);
        }
    }

    /// A program of this machine has changed a file.
    pub(crate) fn changed_outside(&self, file: &Handle) {
        if let Some(mut table) = self.lock() {
            table.note(None, file);
        }
    }

    /// Any file may have been changed by programs of this machine.
    pub(crate) fn changed_all(&self) {
        if let Some(mut table) = self.lock() {
            table.changers.clear();
            table.is_incomplete = true;
        }
    }

    /// Whether a session may store again what it had stored before the loss. If so, it counts as
    /// having changed the file.
    pub(crate) fn may_store(&self, by: SessionId, file: &Handle) -> bool {
        let noted = self.lock();
        !self.is_over && noted.is_none_or(|mut table| table.may_store(by, file))
    }

    fn parallel(&self) -> MutexGuard<'_, Written> {
        self.parallel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> Option<MutexGuard<'_, Table>> {
        let table = self.exports.as_ref()?;
        Some(table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Table {
    fn note(&mut self, by: Option<SessionId>, file: &Handle) {
        if let Some(known) = self.changers.get_mut(file) {
            if *known != by {
                *known = None;
            }
        } else if self.changers.len() < CHANGED_FILES_MAX {
            // Where others may have been before, nobody is the only one.
            let by = by.filter(|_| !self.is_incomplete);
            self.changers.insert(file.clone(), by);
        } else {
            self.is_incomplete = true;
        }
    }

    fn may_store(&mut self, by: SessionId, file: &Handle) -> bool {
        if !self.changers.contains_key(file) && !self.is_incomplete {
            self.note(Some(by), file);
        }
        self.changers.get(file) == Some(&Some(by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId([1; 16]);
    const TWO: SessionId = SessionId([2; 16]);

    fn file(number: usize) -> Handle {
        Handle::new(&number.to_le_bytes()).unwrap()
    }

    #[test]
    fn data_is_taken_again_until_somebody_else_has_changed_the_file() {
        let again = Again::new(true, false);
        assert!(again.may_store(ONE, &file(1)) && again.may_store(ONE, &file(1)));
        assert!(!again.may_store(TWO, &file(1)), "the first one has its own");
        again.changes(TWO, &file(1));
        assert!(!again.may_store(ONE, &file(1)) && !again.may_store(TWO, &file(1)));
        again.changes(TWO, &file(2));
        assert!(!again.may_store(ONE, &file(2)) && again.may_store(TWO, &file(2)));
        again.changed_outside(&file(3));
        again.changes(ONE, &file(3));
        assert!(!again.may_store(ONE, &file(3)));
        again.changed_all();
        again.changes(ONE, &file(4));
        assert!(!again.may_store(ONE, &file(4)) && !again.may_store(TWO, &file(5)));
    }

    #[test]
    fn files_that_cannot_be_noted_count_as_changed() {
        let again = Again::new(true, false);
        for number in 0..=CHANGED_FILES_MAX {
            again.changes(TWO, &file(number));
        }
        assert!(!again.may_store(ONE, &file(CHANGED_FILES_MAX)));
        assert!(!again.may_store(ONE, &file(CHANGED_FILES_MAX + 1)));
        assert!(again.may_store(TWO, &file(0)), "that one is known");
    }

    #[test]
    fn bytes_are_taken_again_from_whoever_had_them_last() {
        let again = Again::new(false, false);
        let [head, tail, all] = [(0, 10), (10, 10), (0, 20)].map(|(at, len)| Extent::new(at, len));
        again.changes_part(ONE, &file(1), all, false);
        again.changes_part(TWO, &file(1), head, false);
        assert!(!again.may_store_part(ONE, &file(1), head));
        assert!(!again.may_store_part(ONE, &file(1), all));
        assert!(again.may_store_part(ONE, &file(1), tail));
        assert!(again.may_store_part(TWO, &file(1), head));
        again.changes_part(ONE, &file(1), head, false);
        again.changes_part(ONE, &file(1), tail, true);
        assert!(again.may_store_part(ONE, &file(1), all), "the last one");
        // Who of them was the last is not known.
        again.changes_part(TWO, &file(1), tail, true);
        assert!(!again.may_store_part(ONE, &file(1), tail));
        assert!(!again.may_store_part(TWO, &file(1), tail));
        assert!(again.may_store_part(ONE, &file(1), head));
        // What was written in an earlier run is the first one's who sends it.
        assert!(again.may_store_part(TWO, &file(2), head));
        assert!(again.may_store_part(ONE, &file(2), tail));
        assert!(!again.may_store_part(ONE, &file(2), head));
        // What programs of this machine change is another file.
        again.changed_all();
        assert!(again.may_store_part(ONE, &file(1), head));
    }

    #[test]
    fn without_a_loss_nothing_is_noted() {
        let again = Again::new(false, false);
        again.changes(TWO, &file(1));
        assert!(again.may_store(ONE, &file(1)));
    }

    #[test]
    fn in_the_run_after_that_nothing_is_taken_again() {
        let file = Handle::new(&[1; 8]).expect("eight bytes");
        assert!(!Again::new(false, true).may_store(ONE, &file));
        assert!(Again::new(true, true).may_store(ONE, &file));
        assert!(Again::new(false, false).may_store(ONE, &file));
    }
}
