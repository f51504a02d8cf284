//! The note that locks are held: from it the next run, or the next manager, learns that it has to
//! give their holders time to take them again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Whether it is noted that locks are held: should this run end suddenly, the next one gives their
/// holders time to take them again. Nobody is told that he has a lock before it is certain.
pub(crate) struct LocksNoted {
    /// It is noted. Changed while `writing` is held.
    is_certain: AtomicBool,
    /// It may be noted.
    is_possible: AtomicBool,
    /// How many locks were taken back because of what could not be noted.
    taken_back: AtomicU64,
    /// Held while it is noted, or is not any more.
    writing: Mutex<()>,
}

/// What became of the note for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoteOutcome {
    /// The lock's holder may be told.
    Noted,
    /// The lock was taken back.
    Failed,
    /// It is noted, but locks were taken back meanwhile, perhaps this one: it is to be asked for
    /// again.
    Again,
}

impl LocksNoted {
    pub(crate) fn new(had_locks: bool) -> Self {
        Self {
            is_certain: AtomicBool::new(had_locks),
            is_possible: AtomicBool::new(had_locks),
            taken_back: AtomicU64::new(0),
            writing: Mutex::new(()),
        }
    }

    /// How many locks were taken back; to be asked before a lock is taken.
    pub(crate) fn taken_back(&self) -> u64 {
        self.taken_back.load(Ordering::SeqCst)
    }

    /// Whether a lock that has been taken may be told of whenever that was.
    pub(crate) fn was_always_certain(&self) -> bool {
        self.is_certain.load(Ordering::SeqCst) && self.taken_back() == 0
    }

    /// A lock was taken, before which so many were `taken_back`. Makes the note if it is not there
    /// and waits for whoever is at it; of those only the first one tries. Without the note the lock
    /// is taken back before anybody else can rely on it. Blocks.
    pub(crate) fn note(
        &self,
        taken_back: u64,
        write: impl FnOnce() -> bool,
        take_back: impl FnOnce(),
    ) -> NoteOutcome {
        // In this order: no lock is taken back while it is certain.
        if self.is_certain.load(Ordering::SeqCst) && self.taken_back() == taken_back {
            return NoteOutcome::Noted;
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = self.taken_back() == taken_back;
        if self.is_certain.load(Ordering::SeqCst) {
            return if is_fresh {
                NoteOutcome::Noted
            } else {
                NoteOutcome::Again
            };
        }
        self.is_possible.store(true, Ordering::SeqCst);
        if is_fresh && write() {
            self.is_certain.store(true, Ordering::SeqCst);
            return NoteOutcome::Noted;
        }
        take_back();
        self.taken_back.fetch_add(1, Ordering::SeqCst);
        NoteOutcome::Failed
    }

    /// Whether there may be a note to be taken back.
    pub(crate) fn is_possible(&self) -> bool {
        self.is_possible.load(Ordering::SeqCst)
    }

    /// Takes the note back if there are no locks, unless somebody is at it. Blocks.
    pub(crate) fn clear(&self, is_empty: impl FnOnce() -> bool, write: impl FnOnce() -> bool) {
        let _writing = match self.writing.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Whoever takes a lock after the look at them finds it uncertain, and waits.
        let was_certain = self.is_certain.swap(false, Ordering::SeqCst);
        if !is_empty() {
            self.is_certain.store(was_certain, Ordering::SeqCst);
        } else if write() {
            self.is_possible.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn nobody_has_a_lock_before_it_is_noted_that_locks_are_held() {
        let noted = LocksNoted::new(false);
        let (begin, has_begun) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        thread::scope(|scope| {
            let (noted, other) = (&noted, answer.clone());
            scope.spawn(move || {
                let write = || {
                    begin.send(()).expect("it is waited for");
                    may_finish.recv().expect("it is told")
                };
                let noting = noted.note(0, write, || panic!("it is noted"));
                answer.send(noting).expect("it is waited for");
            });
            has_begun.recv().expect("it writes");
            scope.spawn(move || {
                let noting = noted.note(0, || panic!("it is noted"), || panic!("it is noted"));
                other.send(noting).expect("it is waited for");
            });
            let early = answers.recv_timeout(Duration::from_millis(100));
            assert!(early.is_err(), "{early:?}");
            finish.send(true).expect("it waits");
            for _ in 0..2 {
                assert_eq!(answers.recv(), Ok(NoteOutcome::Noted));
            }
        });
    }

    #[test]
    fn what_could_not_be_noted_is_taken_back_and_noted_for_the_next_one() {
        let noted = LocksNoted::new(false);
        let mut taken_back = 0;
        assert_eq!(
            noted.note(0, || false, || taken_back += 1),
            NoteOutcome::Failed
        );
        // It was asked for before that, and waited.
        let no = || panic!("it is not tried again for this one");
        assert_eq!(noted.note(0, no, || taken_back += 1), NoteOutcome::Failed);
        assert!(noted.is_possible() && !noted.was_always_certain());
        let before = noted.taken_back();
        assert_eq!((before, taken_back), (2, 2));
        assert_eq!(noted.note(before, || true, never_back), NoteOutcome::Noted);
        let never = || panic!("it is noted");
        assert_eq!(noted.note(before, never, never_back), NoteOutcome::Noted);
        assert_eq!(noted.note(0, never, never_back), NoteOutcome::Again);
    }

    fn never_back() {
        panic!("nothing is taken back");
    }

    #[test]
    fn the_note_goes_only_when_no_lock_is_held() {
        let noted = LocksNoted::new(true);
        noted.clear(|| false, || panic!("a lock is held"));
        assert!(noted.is_possible() && noted.was_always_certain());
        // It may be gone, so the next lock makes it anew.
        noted.clear(|| true, || false);
        assert!(noted.is_possible() && !noted.was_always_certain());
        assert_eq!(noted.note(0, || true, never_back), NoteOutcome::Noted);
        noted.clear(|| true, || true);
        assert!(!noted.is_possible());
        let mut is_written = false;
        let write = || {
            is_written = true;
            true
        };
        assert_eq!(noted.note(0, write, never_back), NoteOutcome::Noted);
        assert!(is_written);
    }
}
