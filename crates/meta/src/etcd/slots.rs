//! Slots: how it is found out whether a transaction has happened that was not answered.
//!
//! ```text
//!  transaction 7 takes slot 3, last written at revision 100
//!    compare: slot 3 was written at 100     write: slot 3 = 7 of this engine      and all the rest
//!  no answer, so the same again:
//!    happened before  -> slot 3 is 7, written at 104: it was committed at 104, and nothing more
//!    did not          -> it happens now, at most once: the first request can come late and finds
//!                        that slot 3 was written
//!  no time any more:
//!    compare: slot 3 was written at 100     write: slot 3 = nobody's: now it never happens
//! ```
//! A slot is used by one transaction after the other, each when the outcome of the one before is
//! certain. So there are as many as transactions under way, and none has to be cleared. They go
//! with a lease when the engine is gone for `META_SLOT_TIME`.

use super::call::{Trouble, once, patiently};
use crate::MetaError;
use crate::transaction::TransactionId;
use base::limits::{META_SLOT_TIME, META_SLOTS_MAX};
use etcd_client::Client;
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const SLOT: u8 = b't';

/// The slots of this engine.
pub(super) struct Slots {
    /// Drawn when the engine was opened.
    instance: [u8; 8],
    /// Under which slots are written; another one after it was lost.
    lease: AtomicI64,
    free: Mutex<Vec<Free>>,
    permits: Arc<Semaphore>,
}

#[derive(Clone, Copy)]
struct Free {
    index: u16,
    /// The revision at which it was last written, as far as we know; 0 before.
    written: i64,
}

/// A slot that one transaction has.
pub(super) struct Slot {
    pub(super) key: Vec<u8>,
    pub(super) written: i64,
    index: u16,
    _permit: OwnedSemaphorePermit,
}

impl Slots {
    /// Begins a lease for slots.
    pub(super) async fn begin(client: &Client) -> Result<Self, MetaError> {
        let mut instance = [0; 8];
        SystemRandom::new()
            .fill(&mut instance)
            .map_err(|_| MetaError::Unavailable("there is no randomness".to_owned()))?;
        let free = (0..META_SLOTS_MAX).map(|index| Free {
            index: u16::try_from(index).expect("META_SLOTS_MAX is far below"),
            written: 0,
        });
        Ok(Self {
            instance,
            lease: AtomicI64::new(grant(client, META_SLOT_TIME).await?),
            free: Mutex::new(free.collect()),
            permits: Arc::new(Semaphore::new(META_SLOTS_MAX)),
        })
    }

    /// What a slot says when the transaction has happened.
    pub(super) fn mark(&self, id: TransactionId) -> Vec<u8> {
        [self.instance, id.0.to_le_bytes()].concat()
    }

    /// What it says when its transaction never happens any more.
    pub(super) fn nobodys(&self) -> Vec<u8> {
        self.mark(TransactionId(0))
    }

    pub(super) fn lease(&self) -> i64 {
        self.lease.load(Ordering::Relaxed)
    }

    /// A free slot below `prefix`; waits for one.
    pub(super) async fn take(&self, prefix: &[u8]) -> Result<Slot, MetaError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| MetaError::Closed)?;
        let free = self.free().pop();
        let Free { index, written } = free.expect("there are as many as permits");
        Ok(Slot {
            key: [prefix, &[SLOT], &self.instance, &index.to_le_bytes()].concat(),
            written,
            index,
            _permit: permit,
        })
    }

    /// Gives a slot back that was last written at `written`.
    pub(super) fn give_back(&self, slot: Slot, written: i64) {
        let Slot { index, .. } = slot;
        self.free().push(Free { index, written });
    }

    fn free(&self) -> MutexGuard<'_, Vec<Free>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that the engine is there; with a new lease if the old one is over. Its slots are gone
    /// then, which each transaction finds out by itself.
    pub(super) async fn renew(&self, client: &Client) -> Result<(), MetaError> {
        if is_renewed(client, self.lease()).await? {
            return Ok(());
        }
        self.lease
            .store(grant(client, META_SLOT_TIME).await?, Ordering::Relaxed);
        Ok(())
    }
}

/// Renews a lease once; false if it is over.
pub(super) async fn is_renewed(client: &Client, lease: i64) -> Result<bool, MetaError> {
    let mut client = client.lease_client();
    // What this makes is a stream for further renewals; it has carried the first one.
    match once(client.keep_alive(lease)).await {
        Ok(_) => Ok(true),
        Err(Trouble::NoLease) => Ok(false),
        Err(trouble) => Err(trouble.into()),
    }
}

/// Begins a lease of so many seconds.
pub(super) async fn grant(client: &Client, time: Duration) -> Result<i64, MetaError> {
    let seconds = time.as_secs().cast_signed();
    let granted = patiently(|| {
        let mut client = client.lease_client();
        async move { client.grant(seconds, None).await }
    });
    Ok(granted.await?.id())
}
