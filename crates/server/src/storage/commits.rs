//! Commits of clients: one after the other, each for all who have asked by then.
//!
//! A commit takes nothing of the device by itself: what it writes is the store's own I/O, which
//! passes the gate. So it waits on a thread of its own and not in the order, where it would hold
//! the place of a request while the store waits for one. While somebody with a share waits for a
//! commit, that I/O goes before what has no share ([`Dispatcher::hurry`]).
//!
//! [`Dispatcher::hurry`]: super::dispatch::Dispatcher::hurry

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use store::{Store, StoreError};

/// Is told why the commit has failed, if it has. Must not block.
pub(super) type Told = Box<dyn FnOnce(Option<&StoreError>) + Send>;

#[derive(Default)]
struct State {
    waiting: Vec<Told>,
    is_stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

/// The commits of one store.
pub(super) struct Commits {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Commits {
    pub(super) fn start(store: Arc<Store>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = thread::Builder::new().name("commits".into());
        let thread = thread.spawn(move || own.run(&store))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Makes durable what was changed before. Their number is bounded by the requests that
    /// connections may have at work.
    pub(super) fn push(&self, told: Told) {
        let state = self.shared.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.is_stopping {
            drop(state);
            return told(Some(&StoreError::ReadOnly));
        }
        state.waiting.push(told);
        drop(state);
        self.shared.work.notify_one();
    }

    /// Ends the thread when it has done what it is at.
    pub(super) fn stop(&self) {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).is_stopping = true;
        self.shared.work.notify_all();
        let thread = self.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        // Whoever is told last may hold the last share of the store, and end it from there.
        if let Some(thread) = thread.filter(|own| own.thread().id() != thread::current().id()) {
            // A panic there has been printed there.
            drop(thread.join());
        }
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self, store: &Store) {
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            while state.waiting.is_empty() && !state.is_stopping {
                let waited = self.work.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
            let waiting = std::mem::take(&mut state.waiting);
            if waiting.is_empty() {
                return;
            }
            drop(state);
            let committed = store.commit();
            for told in waiting {
                told(committed.as_ref().err());
            }
        }
    }
}
