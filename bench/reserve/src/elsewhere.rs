//! Threads of clients that stand for another machine.

use anyhow::{Context, Result};
use std::future::Future;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Two threads with a runtime of their own.
pub(crate) struct Elsewhere(Runtime);

impl Elsewhere {
    /// Threads with this name, and this much nicer to others than the server.
    pub(crate) fn new(name: &str, nice: i32) -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).thread_name(name).enable_all();
        builder.on_thread_start(move || {
            // On Linux it is the calling thread that this is about.
            let set = rustix::process::setpriority_process(None, nice);
            debug_assert!(set.is_ok(), "{set:?}");
        });
        Ok(Self(builder.build().context("threads for clients")?))
    }

    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.spawn(work)
    }

    pub(crate) fn end(self) {
        self.0.shutdown_background();
    }
}
