//! An allocator that counts what the present thread has and had.
#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn add(bytes: usize) {
    // A thread that ends frees its last memory after its counters are gone.
    let _ = IN_USE.try_with(|in_use| {
        let now = in_use.get().wrapping_add(bytes);
        in_use.set(now);
        let _ = MOST.try_with(|most| most.set(most.get().max(now)));
    });
}

fn subtract(bytes: usize) {
    // Memory may come from another thread, so the count may pass below zero.
    let _ = IN_USE.try_with(|in_use| in_use.set(in_use.get().wrapping_sub(bytes)));
}

// SAFETY: every call goes to the system's allocator unchanged; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`; the memory is the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The most bytes that `work` had allocated at one time, and its result.
pub(crate) fn most_allocated<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = IN_USE.get();
    MOST.set(before);
    let result = work();
    (MOST.get().wrapping_sub(before), result)
}
