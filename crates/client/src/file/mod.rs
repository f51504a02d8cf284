//! One file's data at the client: what has been fetched and not yet used, what is under way, what
//! has been written and is not yet durable.
//!
//! [`File`] is shared by all opens of an inode. Its state is one structure behind one lock that is
//! held for state changes only; the asynchronous work around it is in [`crate::volume`].
//!
//! Consumed data is dropped at once: the kernel's page cache has it from then on, and would answer
//! a second read itself. What is kept here is what the kernel has not asked for yet.

mod append_waits;
mod completion;
mod errors;
mod held;
mod written;

pub use append_waits::AppendWaits;
pub use completion::Completion;
pub use errors::Errors;
pub(crate) use errors::lost;
pub use held::Held;
pub use written::{
    Behind, Covered, Cut, MemoryShare, Order, Piece, PieceState, Replacement, Write, Written,
};

use base::{Extent, FsError, OpenId, Principal, RequestId};
use readahead::{Account, FileStreams};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

/// A request for data that is under way.
#[derive(Debug)]
pub struct Fetching {
    /// The bytes asked for.
    pub extent: Extent,
    /// For cancelling and promoting.
    pub request: Option<RequestId>,
    /// Whether a reader waits for it, or it is a guess.
    pub demanded: bool,
    /// The file's epoch when it was asked for; its data is kept only if it still is this.
    pub epoch: u64,
    /// Tells waiting readers.
    pub completion: Completion,
}

/// What the lock guards.
#[derive(Debug)]
pub struct FileState {
    /// Reading: what will be wanted.
    pub streams: FileStreams,
    /// Reading: data that is here.
    pub held: Held,
    /// Reading: data that is under way, by offset; extents do not overlap.
    pub fetching: BTreeMap<u64, Fetching>,
    /// Reading: the kernel's requests that wait until it is known whether anybody wants them, by
    /// offset.
    pub overshoots: BTreeMap<u64, oneshot::Sender<()>>,
    /// Bumped whenever data known so far may be wrong.
    pub epoch: u64,
    /// The server has been asked for a lease and gave none: what is read is read without.
    pub lease_refused: bool,
    /// Last reader, for whom predictions are asked.
    pub reader: Option<(Principal, Option<OpenId>)>,
    /// Writing.
    pub written: Written,
    /// Opens at the server, by id, with the caller; to be made again if the server forgets them.
    pub opens: u32,
}

/// See the module's head.
#[derive(Debug)]
pub struct File {
    state: Mutex<FileState>,
    /// Woken when a piece of written data changes its state.
    pub progress: Notify,
    /// The file's account in the memory budget.
    pub account: Account,
    /// Requests that may wait at the manager for appends of others.
    pub append_waits: AppendWaits,
}

static NEXT_ACCOUNT: AtomicU64 = AtomicU64::new(1);

impl File {
    /// A file of which nothing is here; what is lost of it will be sent again in this order.
    #[must_use]
    pub fn new(order: Order) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(FileState {
                streams: FileStreams::new(),
                held: Held::default(),
                fetching: BTreeMap::new(),
                overshoots: BTreeMap::new(),
                epoch: 0,
                lease_refused: false,
                reader: None,
                written: Written::new(order),
                opens: 0,
            }),
            progress: Notify::new(),
            account: Account(NEXT_ACCOUNT.fetch_add(1, Ordering::Relaxed)),
            append_waits: AppendWaits::default(),
        })
    }

    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().expect("no panic happens under this lock")
    }

    /// How long the file is by what was written here and not yet confirmed.
    #[must_use]
    pub fn dirty_size(&self) -> Option<u64> {
        self.lock().written.end()
    }

    /// Whether anything is here that must not be lost. Of a file that does not last nobody is told
    /// any more what was lost of it.
    #[must_use]
    pub fn is_busy(&self, lasts: bool) -> bool {
        let state = self.lock();
        let written = &state.written;
        let is_due = !written.is_empty() || (lasts && written.errors.is_untold());
        state.opens > 0 || is_due || !state.fetching.is_empty()
    }
}

impl FileState {
    /// An open begins.
    pub fn on_open(&mut self, open: OpenId) {
        self.opens += 1;
        self.written.errors.on_open(open);
    }

    /// An open ends; whether it was the last.
    pub fn on_close(&mut self, open: OpenId) -> bool {
        self.opens -= 1;
        self.written.errors.on_close(open);
        self.opens == 0
    }

    /// What a read of `extent` lacks: neither here nor under way.
    #[must_use]
    pub fn missing(&self, extent: Extent) -> Vec<Extent> {
        let mut missing = Vec::new();
        for gap in self.held.missing(extent) {
            let mut position = gap.offset;
            for fetching in self.fetching_in(gap) {
                if fetching.extent.offset > position {
                    missing.push(Extent::between(position, fetching.extent.offset));
                }
                position = position.max(fetching.extent.end());
            }
            if position < gap.end() {
                missing.push(Extent::between(position, gap.end()));
            }
        }
        missing
    }

    /// Requests under way that overlap `extent`, in order.
    pub fn fetching_in(&self, extent: Extent) -> impl Iterator<Item = &Fetching> {
        let first = self
            .fetching
            .range(..=extent.offset)
            .next_back()
            .filter(|(_, fetching)| fetching.extent.overlaps(extent))
            .map_or(extent.offset, |(offset, _)| *offset);
        self.fetching
            .range(first..extent.end().max(first))
            .map(|(_, fetching)| fetching)
            .filter(move |fetching| fetching.extent.overlaps(extent))
    }

    /// Everything known of the contents may be wrong, also what is on its way. Returns the bytes
    /// freed.
    pub fn distrust(&mut self) -> u64 {
        self.epoch += 1;
        self.lease_refused = false;
        let mut freed = 0;
        for extent in self.held.clear() {
            self.streams.on_dropped(extent);
            freed += extent.len;
        }
        freed
    }

    /// What was known of `extent` is wrong: it has been written here. Returns the bytes freed.
    pub fn overwrite(&mut self, extent: Extent) -> u64 {
        let mut freed = 0;
        for gone in self.held.remove(extent) {
            self.streams.on_dropped(gone);
            freed += gone.len;
        }
        if self.fetching_in(extent).next().is_some() {
            // What is under way may hold the old bytes; nothing of it is kept.
            self.epoch += 1;
        }
        freed
    }
}

/// What became of data that a reader waits for.
pub type FetchOutcome = Result<(), FsError>;

#[cfg(test)]
mod tests {
    use super::*;
    use base::FsError;

    #[test]
    fn what_is_lost_of_a_removed_file_keeps_nothing_in_memory() {
        let file = File::new(Order::OldestFirst);
        file.lock().written.errors.record(FsError::NoSpace);
        assert_eq!(
            [true, false].map(|lasts| file.is_busy(lasts)),
            [true, false]
        );
        file.lock().on_open(OpenId(1));
        assert!(file.is_busy(false));
    }
}
