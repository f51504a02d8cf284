//! What all operations of one namespace share, and how an operation is carried out.

use super::error::NamespaceError;
use super::pipe::Status;
use super::read::{Want, learn, read};
use super::turn::Turn;
use super::work::{Rules, State, Stop, Work};
use crate::{Engine, Leadership, MetaError};
use base::FsError;
use base::limits::{NAMESPACE_OUTCOMES_MAX, NAMESPACE_TIME_MAX};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

pub(super) struct Core {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) leadership: Arc<Leadership>,
    pub(super) rules: Rules,
    pub(super) in_flight_max: usize,
    state: Mutex<State>,
    /// Something is durable, lost or read anew.
    moved: Condvar,
    progress: watch::Sender<()>,
    /// For the tasks.
    pub(super) work_to_do: Notify,
    pub(super) abandoned: Notify,
    pub(super) is_closing: AtomicBool,
    /// Where the engine's futures run.
    runtime: Runtime,
}

/// What an operation may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    Look,
    Change,
}

enum Attempt<T> {
    Done(Result<T, FsError>),
    /// It needs this, whose reading has this number.
    Read(u64, Want),
}

impl Core {
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        leadership: Arc<Leadership>,
        rules: Rules,
        in_flight_max: usize,
        state: State,
        runtime: Runtime,
    ) -> Self {
        Self {
            engine,
            leadership,
            rules,
            in_flight_max,
            state: Mutex::new(state),
            moved: Condvar::new(),
            progress: watch::Sender::new(()),
            work_to_do: Notify::new(),
            abandoned: Notify::new(),
            is_closing: AtomicBool::new(false),
            runtime,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // An operation changes memory at its end only, in steps that do not fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state for all who wait for it.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.moved.notify_all();
        self.progress.send_replace(());
    }

    /// Whether no change is on its way.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.lock();
        state.pipe.newest() <= state.pipe.durable()
    }

    /// Carries an operation out. It may be called again and again until everything that it needs
    /// is in memory.
    pub(super) fn run<T>(
        &self,
        turn: &Turn,
        intent: Intent,
        mut operation: impl FnMut(&mut Work<'_>) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        let end = Instant::now() + NAMESPACE_TIME_MAX;
        while Instant::now() < end {
            match self.attempt(self.ready(intent, end)?, turn, &mut operation) {
                Attempt::Done(result) => return result,
                Attempt::Read(reading, want) => {
                    self.runtime.block_on(self.read(reading, want))?;
                }
            }
        }
        Err(FsError::TimedOut)
    }

    /// As [`Self::run`], for tasks; waits neither for room nor for what is read anew.
    pub(super) async fn run_in_task<T>(
        &self,
        turn: &Turn,
        mut operation: impl FnMut(&mut Work<'_>) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        let end = Instant::now() + NAMESPACE_TIME_MAX;
        while Instant::now() < end {
            let attempt = {
                let state = self.lock();
                match state.pipe.status {
                    Status::Running => self.attempt(state, turn, &mut operation),
                    Status::Reloading | Status::Over(_) => return Err(FsError::WouldBlock),
                }
            };
            match attempt {
                Attempt::Done(result) => return result,
                Attempt::Read(reading, want) => self.read(reading, want).await?,
            }
        }
        Err(FsError::TimedOut)
    }

    /// Waits until operations are taken, and changes if it is one.
    fn ready(&self, intent: Intent, end: Instant) -> Result<MutexGuard<'_, State>, FsError> {
        // What is in memory holds only as long as nobody else can have changed the volume.
        if !self.leadership.is_trusted() {
            return Err(FsError::WouldBlock);
        }
        let mut state = self.lock();
        loop {
            match &state.pipe.status {
                Status::Over(_) => return Err(FsError::WouldBlock),
                Status::Running if intent == Intent::Look || state.pipe.has_room() => {
                    return Ok(state);
                }
                Status::Running | Status::Reloading => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(FsError::TimedOut);
            }
            let waited = self.moved.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn attempt<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        turn: &Turn,
        operation: &mut impl FnMut(&mut Work<'_>) -> Result<T, Stop>,
    ) -> Attempt<T> {
        if turn.identity().is_some() && state.outcomes.len() > NAMESPACE_OUTCOMES_MAX {
            return Attempt::Done(Err(FsError::WouldBlock));
        }
        let mut work = Work::new(&mut state, &self.rules, turn);
        match operation(&mut work) {
            Ok(answer) => {
                let before = work.state.pipe.newest();
                let is_changed = work.finish();
                let is_first = state.pipe.newest() != before;
                drop(state);
                // Whoever is under way looks for more when it comes back.
                if is_changed && is_first {
                    self.work_to_do.notify_one();
                }
                Attempt::Done(Ok(answer))
            }
            Err(Stop::Error(error)) => Attempt::Done(Err(error)),
            Err(Stop::Missing(want)) => {
                let durable = state.pipe.durable();
                Attempt::Read(state.cache.begin_reading(durable), want)
            }
        }
    }

    async fn read(&self, reading: u64, want: Want) -> Result<(), FsError> {
        let rules = &self.rules;
        let found = read(&*self.engine, rules.keys, rules.cookies, want);
        let found = timeout(NAMESPACE_TIME_MAX, found).await;
        let mut state = self.lock();
        let is_worth = state.cache.end_reading(reading);
        match found {
            Ok(Ok(found)) if is_worth => {
                learn(&mut state.cache, rules.cookies, found);
                let durable = state.pipe.durable();
                state.cache.tidy(durable);
                Ok(())
            }
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(answer(&error)),
            Err(_) => Err(FsError::TimedOut),
        }
    }

    /// Waits until everything that a turn depends on is durable.
    pub(super) async fn wait(&self, turn: &Turn) -> Result<(), NamespaceError> {
        let Some((first, last)) = turn.seen() else {
            return Ok(());
        };
        let mut progress = self.progress.subscribe();
        let waiting = async {
            loop {
                if let Some(outcome) = self.lock().pipe.outcome(first, last) {
                    return outcome;
                }
                // The sender lives as long as this.
                let _ = progress.changed().await;
            }
        };
        let outcome = timeout(NAMESPACE_TIME_MAX, waiting).await;
        outcome
            .map_err(|_| NamespaceError::TimedOut)?
            .map_err(NamespaceError::Lost)
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

/// What a caller is told when the engine could not be read.
fn answer(error: &MetaError) -> FsError {
    tracing::warn!(%error, "a namespace could not be read");
    match error {
        MetaError::Unavailable(_) | MetaError::Unknown(_) => FsError::TimedOut,
        _ => FsError::Io,
    }
}
