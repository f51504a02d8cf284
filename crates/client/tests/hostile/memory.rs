//! An allocator that counts what the whole process has and had: connections and volumes work on
//! many threads.
#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`; the memory is the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Memory as it was when a measurement began.
pub(crate) struct Measured(usize);

impl Measured {
    pub(crate) fn begin() -> Self {
        let now = IN_USE.load(Ordering::Relaxed);
        MOST.store(now, Ordering::Relaxed);
        Self(now)
    }

    /// The most bytes that the process has had since beyond what it had.
    pub(crate) fn most_bytes(&self) -> usize {
        MOST.load(Ordering::Relaxed).saturating_sub(self.0)
    }

    /// What it has now beyond what it had.
    pub(crate) fn bytes(&self) -> usize {
        IN_USE.load(Ordering::Relaxed).saturating_sub(self.0)
    }
}
