//! Inodes that stay within reach although they lose their last name.
//!
//! A client that was told that nobody changes a file may have opened it without asking. When
//! somebody else removes the file, that client must still be able to open it here, until it has
//! heard of the removal and done so. Whoever removes holds the inode for that time.

use crate::cache::Pin;
use base::Handle;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Holding {
    pin: Arc<Pin>,
    holders: usize,
}

/// All inodes held in an export.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings(Arc<Mutex<HashMap<Handle, Holding>>>);

impl Holdings {
    fn lock(&self) -> MutexGuard<'_, HashMap<Handle, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, handle: &Handle) -> Option<Arc<Pin>> {
        self.lock()
            .get(handle)
            .map(|holding| Arc::clone(&holding.pin))
    }

    pub(crate) fn hold(&self, handle: &Handle, pin: Arc<Pin>) -> Held {
        let mut holdings = self.lock();
        let holders = 0;
        let holding = holdings
            .entry(handle.clone())
            .or_insert(Holding { pin, holders });
        holding.holders += 1;
        Held {
            handle: handle.clone(),
            holdings: self.clone(),
        }
    }
}

/// An inode that is held until this is dropped.
#[derive(Debug)]
pub struct Held {
    handle: Handle,
    holdings: Holdings,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut holdings = self.holdings.lock();
        let holding = holdings.get_mut(&self.handle).expect("it is held");
        holding.holders -= 1;
        let last = (holding.holders == 0).then(|| holdings.remove(&self.handle));
        drop(holdings);
        // Closing the descriptor can free the inode, which belongs outside the lock.
        drop(last);
    }
}
