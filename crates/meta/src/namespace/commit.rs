//! The task that sends batches to the engine, and what it does when one fails.
//!
//! Full batches go as soon as there are some, up to [`Core::in_flight_max`] at once; one that is
//! not full goes when nothing is under way, so that many small changes share a transaction. If a
//! batch fails, those behind it fail by the chain. When all are answered, everything that is in
//! memory is dropped and read anew; or, if the seat or the engine is lost, the namespace is over.

use super::core::Core;
use super::pipe::{Batch, Status};
use super::record::encode;
use super::volume::load;
use super::work::State;
use crate::engine::Committed;
use crate::{Condition, MetaError, Transaction, TransactionId};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::time::sleep;

/// How long after a failed attempt everything is read anew again.
const RELOAD_INTERVAL: Duration = Duration::from_millis(250);

type Outcome = Result<Committed, MetaError>;

/// A batch under way.
struct Sent {
    number: u64,
    answer: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    outcome: Option<Outcome>,
}

pub(super) struct Committer {
    core: Arc<Core>,
    /// The batch that the next one follows.
    chain: u64,
    sent: VecDeque<Sent>,
}

impl Committer {
    pub(super) fn new(core: Arc<Core>, chain: u64) -> Self {
        Self {
            core,
            chain,
            sent: VecDeque::new(),
        }
    }

    /// Sends batches until the namespace is closed and nothing is left, or it is over.
    pub(super) async fn run(mut self) {
        loop {
            self.send();
            if self.sent.is_empty() {
                if self.core.is_closing.load(Ordering::Acquire) && self.core.is_settled() {
                    return;
                }
                self.core.work_to_do.notified().await;
                continue;
            }
            let work_to_do = self.core.work_to_do.notified();
            tokio::select! {
                () = poll_fn(|context| first(&mut self.sent, context)) => {}
                () = work_to_do => continue,
            }
            let Some(front) = self.sent.pop_front() else {
                continue;
            };
            let outcome = match front.outcome.unwrap_or(Err(MetaError::Closed)) {
                Err(MetaError::Unknown(id)) => find_out(&self.core, id).await,
                other => other,
            };
            match outcome {
                Ok(_) => self
                    .core
                    .change(|state| state.pipe.made_durable(front.number)),
                Err(error) => {
                    if self.recover(error).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn send(&mut self) {
        while self.sent.len() < self.core.in_flight_max {
            let is_idle = self.sent.is_empty();
            let batch = {
                let mut state = self.core.lock();
                let head = state.head;
                state.pipe.take(is_idle, head)
            };
            let Some(batch) = batch else { return };
            let number = batch.number;
            let transaction = self.transaction(batch);
            let engine = Arc::clone(&self.core.engine);
            self.sent.push_back(Sent {
                number,
                answer: Box::pin(async move { engine.commit(transaction).await }),
                outcome: None,
            });
            self.chain = number;
        }
    }

    fn transaction(&self, batch: Batch) -> Transaction {
        let keys = self.core.rules.keys;
        let before = keys.head(self.chain);
        let mut transaction = Transaction::new()
            .guarded_by(&self.core.leadership)
            .when(Condition::Present(before.clone()))
            .delete(before)
            .put(keys.head(batch.number), encode(&batch.head));
        for (key, value) in batch.writes {
            transaction = match value {
                Some(value) => transaction.put(key, value),
                None => transaction.delete(key),
            };
        }
        transaction
    }

    /// A batch has failed. An error: no change will ever be taken again.
    async fn recover(&mut self, why: MetaError) -> Result<(), ()> {
        tracing::warn!(%why, "changes of a namespace are lost");
        self.core.change(|state| {
            state.pipe.lose(&why);
            state.pipe.status = Status::Reloading;
            state.cache.clear();
        });
        // The others fail by the chain; who is unknown must be found out before anything is read.
        while let Some(mut sent) = self.sent.pop_front() {
            let outcome = match sent.outcome.take() {
                Some(outcome) => outcome,
                None => sent.answer.await,
            };
            if let Err(MetaError::Unknown(id)) = outcome {
                let _ = find_out(&self.core, id).await;
            }
        }
        if is_final(&why) {
            self.end(&why);
            return Err(());
        }
        loop {
            match load(&*self.core.engine, self.core.rules.keys).await {
                Ok(loaded) => {
                    self.chain = loaded.batch;
                    self.core.change(|state: &mut State| {
                        state.cache.clear();
                        state.pipe.go_on(loaded.batch);
                        state.head = loaded.head;
                        state.outcomes = loaded.outcomes;
                        state.edits = loaded.edits;
                    });
                    return Ok(());
                }
                Err(error) if is_final(&error) => {
                    self.end(&error);
                    return Err(());
                }
                Err(error) => {
                    tracing::warn!(%error, "a namespace cannot be read anew yet");
                    sleep(RELOAD_INTERVAL).await;
                }
            }
            if self.core.is_closing.load(Ordering::Acquire) {
                self.end(&MetaError::Closed);
                return Err(());
            }
        }
    }

    fn end(&self, why: &MetaError) {
        tracing::error!(%why, "a namespace takes no changes any more");
        self.core
            .change(|state| state.pipe.status = Status::Over(why.clone()));
    }
}

/// Asks until it is certain what has become of a batch.
async fn find_out(core: &Core, mut id: TransactionId) -> Outcome {
    loop {
        match core.engine.outcome(id).await {
            Err(MetaError::Unknown(again)) => id = again,
            certain => return certain,
        }
    }
}

/// Whether no later transaction of this manager can succeed.
fn is_final(error: &MetaError) -> bool {
    !matches!(
        error,
        MetaError::Unavailable(_) | MetaError::Conflict { .. } | MetaError::Full(_)
    )
}

/// Ready when the first batch is answered. Each time all are polled in their order, which is how
/// they come into the engine's queue.
fn first(sent: &mut VecDeque<Sent>, context: &mut std::task::Context<'_>) -> Poll<()> {
    for sent in sent.iter_mut().filter(|sent| sent.outcome.is_none()) {
        if let Poll::Ready(outcome) = sent.answer.as_mut().poll(context) {
            sent.outcome = Some(outcome);
        }
    }
    match sent.front().is_some_and(|front| front.outcome.is_some()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    }
}
