//! What the kernel's file handles stand for.

use crate::kernel::Fh;
use base::LockOwner;
use client::volume::{DirectoryTold, Listing, OpenFile};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// An open directory: its entries as they were when it was read from the start.
#[derive(Debug, Default)]
pub(super) struct OpenDirectory {
    listing: Mutex<Option<Arc<Listing>>>,
    /// Of what was refused in it.
    pub(super) told: DirectoryTold,
}

impl OpenDirectory {
    fn new(told: DirectoryTold) -> Self {
        Self {
            told,
            ..Self::default()
        }
    }

    pub(super) fn listing(&self) -> Option<Arc<Listing>> {
        self.listing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set_listing(&self, listing: Arc<Listing>) {
        *self.listing.lock().unwrap_or_else(PoisonError::into_inner) = Some(listing);
    }
}

#[derive(Clone, Debug)]
enum Handle {
    File(Arc<OpenFile>),
    Directory(Arc<OpenDirectory>),
}

/// All open files and directories of a mount.
#[derive(Debug, Default)]
pub(super) struct Handles {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Handle>>,
    /// Owners that have taken byte-range locks through a handle and not closed a descriptor of it
    /// since.
    lockers: Mutex<HashMap<u64, HashSet<LockOwner>>>,
}

impl Handles {
    fn insert(&self, handle: Handle) -> Fh {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, handle);
        Fh(number)
    }

    fn get(&self, fh: Fh) -> Option<Handle> {
        self.open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&fh.0)
            .cloned()
    }

    pub(super) fn insert_file(&self, file: OpenFile) -> Fh {
        self.insert(Handle::File(Arc::new(file)))
    }

    pub(super) fn insert_directory(&self, told: DirectoryTold) -> Fh {
        self.insert(Handle::Directory(Arc::new(OpenDirectory::new(told))))
    }

    pub(super) fn file(&self, fh: Fh) -> Option<Arc<OpenFile>> {
        match self.get(fh) {
            Some(Handle::File(file)) => Some(file),
            _ => None,
        }
    }

    pub(super) fn directory(&self, fh: Fh) -> Option<Arc<OpenDirectory>> {
        match self.get(fh) {
            Some(Handle::Directory(directory)) => Some(directory),
            _ => None,
        }
    }

    /// An owner takes a byte-range lock through a handle.
    pub(super) fn on_lock(&self, fh: Fh, owner: LockOwner) {
        let mut lockers = self.lockers.lock().unwrap_or_else(PoisonError::into_inner);
        lockers.entry(fh.0).or_default().insert(owner);
    }

    /// Whether that owner may still hold locks that it took through a handle.
    pub(super) fn locks(&self, fh: Fh, owner: LockOwner) -> bool {
        let lockers = self.lockers.lock().unwrap_or_else(PoisonError::into_inner);
        let owners = lockers.get(&fh.0);
        owners.is_some_and(|owners| owners.contains(&owner))
    }

    /// A process closes a descriptor of a handle, which releases its locks.
    pub(super) fn on_flush(&self, fh: Fh, owner: LockOwner) {
        let mut lockers = self.lockers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owners) = lockers.get_mut(&fh.0) {
            owners.remove(&owner);
            if owners.is_empty() {
                lockers.remove(&fh.0);
            }
        }
    }

    /// The handle is gone. Owners of locks that are left are no processes but the open file itself
    /// (`F_OFD_SETLK`): the kernel says nothing of these when it is closed.
    pub(super) fn take_lockers(&self, fh: Fh) -> HashSet<LockOwner> {
        let mut lockers = self.lockers.lock().unwrap_or_else(PoisonError::into_inner);
        lockers.remove(&fh.0).unwrap_or_default()
    }

    pub(super) fn remove(&self, fh: Fh) -> Option<Arc<OpenFile>> {
        match self
            .open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&fh.0)
        {
            Some(Handle::File(file)) => Some(file),
            _ => None,
        }
    }
}
