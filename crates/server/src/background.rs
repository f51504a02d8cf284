//! Background work that administrators can see: name, state, progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use wire::message::WorkerSummary;

/// All background workers.
#[derive(Default)]
pub(crate) struct Background(Mutex<Vec<Arc<Task>>>);

/// One background worker, as it shows itself.
pub(crate) struct Task {
    name: String,
    state: Mutex<String>,
    progress: AtomicU64,
}

impl Background {
    /// Adds a worker. It is listed for as long as the value lives elsewhere.
    pub(crate) fn add(&self, name: impl Into<String>) -> Arc<Task> {
        let task = Arc::new(Task {
            name: name.into(),
            state: Mutex::new("starting".to_owned()),
            progress: AtomicU64::new(0),
        });
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|other| Arc::strong_count(other) > 1);
        tasks.push(task.clone());
        task
    }

    pub(crate) fn summaries(&self) -> Vec<WorkerSummary> {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|other| Arc::strong_count(other) > 1);
        let summary = |task: &Arc<Task>| WorkerSummary {
            name: task.name.clone(),
            state: task
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            progress: task.progress.load(Ordering::Relaxed),
        };
        tasks.iter().map(summary).collect()
    }
}

impl Task {
    /// Says what it does now.
    pub(crate) fn set_state(&self, state: impl Into<String>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state.into();
    }

    /// Counts something done.
    pub(crate) fn add(&self, done: u64) {
        self.progress.fetch_add(done, Ordering::Relaxed);
    }
}
