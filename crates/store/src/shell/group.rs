//! The two threads of a store: one commits, one makes checkpoints and gives space back.
//!
//! ```text
//!  transactions ──► batch ──► committer: entry, flush ──► who waits for it goes on
//!                                │ freezes, if a checkpoint is due
//!                                ▼
//!                             keeper: pieces, pages, superblock; reclaims what is over
//! ```
//! What comes while an entry is being written is the next batch. An entry is begun when
//! somebody waits for it, when it is half an entry long or when it is a second old. After a group
//! of several, the committer waits a moment for those whose next transactions are on their way:
//! a fraction of what a flush costs, and no longer than it takes them to come.

use super::{Shared, State};
use crate::StoreError;
use crate::core::{Checkpoint, Due};
use base::limits::{
    STORE_BATCH_TIME_MAX, STORE_GATHER_TIME_MAX, STORE_RECLAIM_INTERVAL, STORE_RECLAIM_TIME_MAX,
};
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// When what is over is looked at again after something else had to come first.
const RECLAIM_AGAIN_INTERVAL: Duration = Duration::from_millis(20);

impl Shared {
    /// The committer, until the store is stopped.
    pub(super) fn run_committer(&self) {
        super::gate::mark_own_thread();
        let mut state = self.lock();
        while !state.core.is_poisoned() {
            if state.is_commit_due() || state.is_checkpoint_due() {
                state = self.gather(state);
                state = self.commit_once(state);
                continue;
            }
            if state.is_stopping && !state.core.has_batch() {
                break;
            }
            let left = match state.batch_since {
                Some(since) if state.core.has_batch() => {
                    STORE_BATCH_TIME_MAX.saturating_sub(since.elapsed())
                }
                _ => STORE_BATCH_TIME_MAX,
            };
            state = wait(&self.committer, state, left);
        }
        state.has_committer = false;
        self.tell(&state);
        drop(state);
        self.keeper.notify_all();
    }

    /// Waits a moment for as many as were in the last group.
    fn gather<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let limit = (state.flush_time / 2).min(STORE_GATHER_TIME_MAX);
        let end = Instant::now() + limit;
        while state.waiters < state.waiters_before && !state.is_stopping {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state.is_gathering = true;
            state = wait(&self.committer, state, left);
        }
        state.is_gathering = false;
        state
    }

    /// Writes one entry, if there is a batch, and begins a checkpoint, if one is due.
    fn commit_once<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let group = match state.core.begin_commit() {
            Ok(group) => group,
            Err(StoreError::Due(_)) => return wait(&self.committer, state, STORE_BATCH_TIME_MAX),
            Err(error) => {
                state.fail(&error);
                return state;
            }
        };
        let checkpoint = state.is_checkpoint_due().then(|| {
            state.wants_checkpoint = false;
            state.core.freeze()
        });
        if let Some(group) = group {
            state.batch += 1;
            state.batch_since = None;
            state.waiters_before = std::mem::take(&mut state.waiters);
            drop(state);
            let begin = Instant::now();
            // Its flush follows at once: nothing is gained by another thread.
            let write = |offset, bytes: &[u8]| self.device.write_now(offset, bytes);
            let written = group.write_by(write, || self.device.flush_now());
            let flush_time = begin.elapsed();
            state = self.lock();
            state.flush_time = flush_time;
            match state.core.finish_commit(written) {
                Ok(()) => {
                    state.durable = state.batch;
                    state.commits += 1;
                }
                Err(error) => state.fail(&error),
            }
            self.tell(&state);
        }
        if checkpoint.is_some() && !state.core.is_poisoned() {
            state.checkpoint = checkpoint;
            self.keeper.notify_all();
        }
        state
    }

    /// The keeper, until the committer has ended and no checkpoint is left.
    pub(super) fn run_keeper(&self) {
        super::gate::mark_own_thread();
        let mut reclaim_at = Instant::now() + STORE_RECLAIM_INTERVAL;
        let mut state = self.lock();
        loop {
            let left = reclaim_at.saturating_duration_since(Instant::now());
            if let Some(checkpoint) = state.checkpoint.take() {
                drop(state);
                state = self.carry_out(checkpoint);
            } else if !state.has_committer {
                return;
            } else if left.is_zero() && !state.is_stopping {
                let (after, interval) = self.reclaim_without_waiting(state);
                state = after;
                reclaim_at = Instant::now() + interval;
            } else {
                let left = if left.is_zero() {
                    STORE_RECLAIM_INTERVAL
                } else {
                    left
                };
                state = wait(&self.keeper, state, left);
            }
        }
    }

    /// Gives back what is over as far as that needs nothing first: who carries out checkpoints must
    /// not wait for one. Says when to go on.
    fn reclaim_without_waiting<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, Duration) {
        let mut interval = STORE_RECLAIM_INTERVAL;
        while !state.is_alone && !state.is_stopping && state.checkpoint.is_none() {
            let now = (self.clock)();
            state.core.advance(now);
            match state.reclaim_for_a_while() {
                Ok(true) => {
                    // In between, others have the store, and not only if they are quicker.
                    state = wait(&self.keeper, state, STORE_RECLAIM_TIME_MAX);
                    continue;
                }
                // What was given back is free after a checkpoint, also if nobody asks for it: what
                // a store says that it has shall be so.
                Ok(false) if state.core.has_limbo() => {
                    state.wants_checkpoint = true;
                    self.committer.notify_one();
                }
                // What cannot be given back now will be; whoever needs it is told why not.
                Ok(false) => {}
                Err(error) => {
                    if let Some(due) = due(&error) {
                        state.wanted = state.wanted.max(state.batch + 1);
                        state.wants_checkpoint |=
                            due == Due::Checkpoint && !state.core.has_frozen();
                        self.committer.notify_one();
                        interval = RECLAIM_AGAIN_INTERVAL;
                    }
                }
            }
            break;
        }
        if state.checkpoint.is_some() {
            interval = RECLAIM_AGAIN_INTERVAL;
        }
        (state, interval)
    }

    fn carry_out(&self, checkpoint: Checkpoint) -> MutexGuard<'_, State> {
        let carried_out = checkpoint.carry_out();
        let mut state = self.lock();
        match state.core.finish_checkpoint(carried_out) {
            Ok(()) => state.checkpoints += 1,
            Err(error) => state.fail(&error),
        }
        self.tell(&state);
        self.committer.notify_all();
        state
    }

    /// Gives back what is over, in steps between which others have the store.
    pub(super) fn reclaim(&self) -> Result<(), StoreError> {
        let mut begin = Instant::now();
        while self.change(|core, now| {
            core.advance(now);
            core.reclaim_some()
        })? {
            if begin.elapsed() >= STORE_RECLAIM_TIME_MAX {
                thread::sleep(STORE_RECLAIM_TIME_MAX);
                begin = Instant::now();
            }
        }
        Ok(())
    }
}

impl State {
    /// Gives some of what is over back, for as long as others may be kept waiting by that; false if
    /// there is nothing more.
    pub(super) fn reclaim_for_a_while(&mut self) -> Result<bool, StoreError> {
        let begin = Instant::now();
        let mut reclaimed = self.core.reclaim_some();
        while matches!(reclaimed, Ok(true)) && begin.elapsed() < STORE_RECLAIM_TIME_MAX {
            reclaimed = self.core.reclaim_some();
        }
        self.note_batch();
        reclaimed
    }

    fn is_commit_due(&self) -> bool {
        let is_old = || {
            self.batch_since
                .is_some_and(|since| since.elapsed() >= STORE_BATCH_TIME_MAX)
        };
        self.core.has_batch()
            && (self.wanted > self.batch
                || self.is_stopping
                || self.core.is_batch_large()
                || is_old())
    }

    fn is_checkpoint_due(&self) -> bool {
        (self.wants_checkpoint || self.core.wants_checkpoint()) && !self.core.has_frozen()
    }

    /// Whether a superblock was lost before the store was opened, and no scrub has told so.
    pub(super) fn is_loss_untold(&mut self) -> bool {
        let is_told = std::mem::replace(&mut self.is_loss_told, true);
        self.core.is_one_superblock_lost() && !is_told
    }

    fn fail(&mut self, error: &StoreError) {
        if self.core.is_poisoned() && self.failure.is_none() {
            let source = std::error::Error::source(error).map(|source| format!(": {source}"));
            self.failure = Some(format!("{error}{}", source.unwrap_or_default()));
        }
    }
}

/// What has to come first, as far as the shell sees to it.
pub(super) fn due(error: &StoreError) -> Option<Due> {
    match error {
        StoreError::Due(due) => Some(*due),
        _ => None,
    }
}

pub(super) fn wait<'a>(
    condition: &std::sync::Condvar,
    state: MutexGuard<'a, State>,
    time: Duration,
) -> MutexGuard<'a, State> {
    let waited = condition.wait_timeout(state, time);
    waited.unwrap_or_else(PoisonError::into_inner).0
}
