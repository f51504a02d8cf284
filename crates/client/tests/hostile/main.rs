//! A client and servers that lie: whatever they send, each call ends with its data or with an error
//! within its time, memory stays bounded, and nothing panics.
//!
//! | file | what |
//! |---|---|
//! | `peer` | a server that can lie, on real sockets |
//! | `memory` | an allocator that counts |
//! | `greetings` | how connections begin and end |
//! | `replies` | which requests are answered, and with what |
//! | `listings` | directories without end, names that are none |
//! | `behind` | commits that are sent behind writes |
//! | `again` | data that is lost, and asked for again |
//! | `leases` | leases and recalls that contradict each other |
//! | `room` | a file system that is full |
//! | `put_off` | requests of which nothing was done, or too late |
//!
//! Tests run one after another: they measure the memory of the whole process.

#[cfg(test)]
mod again;
#[cfg(test)]
mod behind;
#[cfg(test)]
mod greetings;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod listings;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod overtaken;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod put_off;
#[cfg(test)]
mod replies;
#[cfg(test)]
mod room;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

static ALONE: Mutex<()> = Mutex::new(());
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Runs a test alone, on threads of its own. A task that panics fails it: what only takes its own
/// task along would otherwise go unnoticed.
#[cfg(test)]
fn alone(test: impl Future<Output = ()>) {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = PANICS.load(Ordering::Relaxed);
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        eprintln!("{panic}");
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    std::panic::set_hook(shown);
    assert_eq!(PANICS.load(Ordering::Relaxed), before, "something panicked");
}
