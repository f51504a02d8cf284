//! Who asks for a file to be made durable, and what was done for whom.
//!
//! One at a time is done: of two flushes at once, one would be told of an error, and the other of
//! success. Who asked before a flush began needs none of his own. After an error nobody knows
//! which writes are lost, and the kernel tells it once; so it is told to everybody from then on.

use base::FsError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The flushes of one open file.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// How many have asked.
    asked: AtomicU64,
    done: Mutex<Done>,
}

/// What has been made durable, by who had asked first.
#[derive(Debug, Default)]
struct Done {
    /// So many of those who asked have all of it, as of when they asked.
    whole: u64,
    /// So many have the data and what it takes to read it.
    data: u64,
    failed: bool,
}

impl Syncs {
    /// Has the file made durable by `flush`, if nobody has done so since this was asked; a flush
    /// with `data_only` leaves out the attributes that reading does not need.
    ///
    /// # Errors
    /// That of `flush`; from then on [`FsError::Io`].
    pub(crate) fn sync(
        &self,
        data_only: bool,
        flush: impl FnOnce() -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        let asked = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.failed {
            return Err(FsError::Io);
        }
        if asked <= done.whole || data_only && asked <= done.data {
            return Ok(());
        }
        let covered = self.asked.load(Ordering::Acquire);
        match flush() {
            Ok(()) if data_only => done.data = covered,
            Ok(()) => (done.whole, done.data) = (covered, covered),
            Err(error) => {
                done.failed = true;
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A flush that says when it has begun, and ends as it is told to.
    struct Slow {
        begun: Sender<()>,
        outcome: Receiver<Result<(), FsError>>,
    }

    impl Slow {
        fn flush(self) -> Result<(), FsError> {
            self.begun.send(()).expect("somebody listens");
            self.outcome.recv().expect("somebody ends it")
        }
    }

    /// While a first flush is under way, others ask, each with or without attributes. When all
    /// have, the first one ends with `outcome`. What each was told, and how many flushed.
    fn beside(
        first_data_only: bool,
        outcome: Result<(), FsError>,
        others: &[bool],
    ) -> (Vec<Result<(), FsError>>, u64) {
        let (syncs, flushes) = (Syncs::default(), AtomicU64::new(0));
        let (begun, has_begun) = channel();
        let (end, ended) = channel();
        let told = std::thread::scope(|scope| {
            let slow = Slow {
                begun,
                outcome: ended,
            };
            let first = scope.spawn(|| syncs.sync(first_data_only, || slow.flush()));
            has_begun.recv().expect("it begins");
            let others: Vec<_> = others
                .iter()
                .map(|&data_only| {
                    scope.spawn({
                        let (syncs, flushes) = (&syncs, &flushes);
                        move || {
                            syncs.sync(data_only, || {
                                flushes.fetch_add(1, Ordering::AcqRel);
                                Ok(())
                            })
                        }
                    })
                })
                .collect();
            while syncs.asked.load(Ordering::Acquire) <= others.len() as u64 {
                std::thread::yield_now();
            }
            end.send(outcome).expect("it waits for that");
            let told = std::iter::once(first).chain(others);
            told.map(|one| one.join().expect("it ends")).collect()
        });
        (told, flushes.into_inner())
    }

    #[test]
    fn one_flush_is_enough_for_all_who_asked_before_it_and_none_for_who_asked_during_it() {
        let (told, flushes) = beside(false, Ok(()), &[false, true, false]);
        assert_eq!(told, [Ok(()); 4]);
        // None of the three is covered by the first; the first of them may be one of data alone.
        assert!((1..=2).contains(&flushes), "{flushes}");
        let (_, flushes) = beside(false, Ok(()), &[false, false, false]);
        assert_eq!(flushes, 1);
    }

    #[test]
    fn data_alone_is_not_enough_for_who_wants_attributes() {
        for (data_only, flushes) in [(true, 0), (false, 1)] {
            // One flush of data alone began after this one will have asked.
            let syncs = Syncs::default();
            syncs.done.lock().expect("nobody has panicked").data = 1;
            let mut flushed = 0;
            let flush = || {
                flushed += 1;
                Ok(())
            };
            assert_eq!(syncs.sync(data_only, flush), Ok(()));
            assert_eq!(flushed, flushes, "{data_only}");
        }
    }

    #[test]
    fn a_failure_is_told_to_all_who_wait_and_for_ever() {
        let (told, flushes) = beside(true, Err(FsError::NoSpace), &[false, true]);
        assert_eq!(
            told,
            [Err(FsError::NoSpace), Err(FsError::Io), Err(FsError::Io)]
        );
        assert_eq!(flushes, 0);
    }
}
