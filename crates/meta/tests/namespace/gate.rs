//! An engine with a gate before it: transactions wait there, or are turned away.

use meta::{
    Answer, Committed, Engine, Entry, KeyRange, Leader, Leadership, MetaError, Page, Revision,
    Status, Transaction, TransactionId, Watch,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::watch;

/// See the module's head.
pub(crate) struct Gate {
    inner: Arc<dyn Engine>,
    is_open: watch::Sender<bool>,
    turn_away: AtomicUsize,
    is_blind: AtomicBool,
}

impl Gate {
    pub(crate) fn before(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            is_open: watch::Sender::new(true),
            turn_away: AtomicUsize::new(0),
            is_blind: AtomicBool::new(false),
        })
    }

    pub(crate) fn open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }

    /// The next that come are not carried out, as if their turn had come too late.
    pub(crate) fn turn_away(&self, count: usize) {
        self.turn_away.store(count, Ordering::Relaxed);
    }

    /// Whether no range can be read.
    pub(crate) fn blind(&self, is_blind: bool) {
        self.is_blind.store(is_blind, Ordering::Relaxed);
    }
}

impl Engine for Gate {
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, (Option<Entry>, Revision)> {
        self.inner.get(key)
    }

    fn range<'a>(
        &'a self,
        range: &'a KeyRange,
        entries_max: usize,
        at: Option<Revision>,
    ) -> Answer<'a, Page> {
        if self.is_blind.load(Ordering::Relaxed) {
            let error = MetaError::Unavailable("nothing is read".to_owned());
            return Box::pin(async { Err(error) });
        }
        self.inner.range(range, entries_max, at)
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        let left = |left: usize| left.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_turned_away = self.turn_away.fetch_update(set, get, left).is_ok();
        Box::pin(async move {
            let mut is_open = self.is_open.subscribe();
            is_open.wait_for(|is_open| *is_open).await.unwrap();
            match is_turned_away {
                true => Err(MetaError::Unavailable("turned away".to_owned())),
                false => self.inner.commit(transaction).await,
            }
        })
    }

    fn outcome(&self, transaction: TransactionId) -> Answer<'_, Committed> {
        self.inner.outcome(transaction)
    }

    fn watch<'a>(&'a self, range: &'a KeyRange, after: Revision) -> Answer<'a, Watch> {
        self.inner.watch(range, after)
    }

    fn lead<'a>(&'a self, seat: &'a str, holder: &'a str) -> Answer<'a, Leadership> {
        self.inner.lead(seat, holder)
    }

    fn leader<'a>(&'a self, seat: &'a str) -> Answer<'a, Option<Leader>> {
        self.inner.leader(seat)
    }

    fn depose<'a>(&'a self, seat: &'a str, epoch: Revision) -> Answer<'a, ()> {
        self.inner.depose(seat, epoch)
    }

    fn status(&self) -> Answer<'_, Status> {
        self.inner.status()
    }
}
