//! Who decides when a store's own I/O goes to the device.
//!
//! Commits, checkpoints and clearing up are written by the store's own threads, and a scrub reads
//! everything. Whoever shares the device among users gives the store a [`Gate`], which these ask
//! first; requests of users do not pass it: they were decided about before they came here. Without
//! a gate nothing waits.
//!
//! Writes of a checkpoint are pages at random places. Asking for each would cost more than the
//! write, so a *pass* is for some of them, and comes back when the last one is done.

use crate::device::Direction;
use std::cell::Cell;
use std::sync::Arc;

/// What one pass is for, at most.
const PASS_WRITES: u32 = 16;
const PASS_BYTES: u64 = 128 << 10;

/// See the module's head.
pub trait Gate: Send + Sync {
    /// Waits until so many bytes of the store's own may be read or written, not for ever. What is
    /// returned is dropped when the device has done them.
    fn enter(&self, direction: Direction, bytes: u64) -> Pass;

    /// Most bytes of one pass.
    fn pass_bytes_max(&self, direction: Direction) -> u64;

    /// The calling thread is about to wait, in the middle of a change, for a commit or a checkpoint
    /// and not for what it was let to the device for. Called with the store locked: must not wait
    /// for the store.
    fn on_stall(&self);
}

/// The right to some writes, as long as it is there.
pub type Pass = Box<dyn Send + Sync>;

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is one of the store's own from now on.
pub(super) fn mark_own_thread() {
    IS_OWN.set(true);
}

/// The pass that the store's threads write under.
#[derive(Default)]
pub(super) struct Passes {
    now: Option<Arc<Pass>>,
    writes_left: u32,
    bytes_left: u64,
}

impl Passes {
    /// Whether a pass is needed at all.
    pub(super) fn is_needed() -> bool {
        IS_OWN.get()
    }

    /// The pass for a write of so many bytes if the present one is good for it.
    pub(super) fn use_up(&mut self, bytes: u64) -> Option<Arc<Pass>> {
        let pass = self.now.clone()?;
        if self.writes_left == 0 || self.bytes_left < bytes {
            self.now = None;
            return None;
        }
        self.writes_left -= 1;
        self.bytes_left -= bytes;
        Some(pass)
    }

    /// How much a pass is to be for, whose first write has so many bytes.
    pub(super) fn wanted(bytes: u64) -> u64 {
        bytes.max(PASS_BYTES)
    }

    /// Takes a new pass, whose first write has so many bytes.
    pub(super) fn put(&mut self, pass: Pass, bytes: u64) -> Arc<Pass> {
        let pass = Arc::new(pass);
        self.now = Some(pass.clone());
        self.writes_left = PASS_WRITES - 1;
        self.bytes_left = Self::wanted(bytes) - bytes;
        pass
    }

    /// Nothing more comes for now: what is not used up goes back.
    pub(super) fn give_back(&mut self) {
        self.now = None;
    }
}
