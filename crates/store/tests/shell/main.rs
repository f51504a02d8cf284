//! The store as many threads use it: on a file, on a disk whose power is cut, in a process that is
//! killed.

#![expect(
    clippy::unwrap_used,
    reason = "a test's helpers end it as its own lines do"
)]

mod alone;
mod beside;
mod crash;
mod file;
mod gate;
mod given_back;
mod killed;
mod poisoned;
mod scrub;
mod used;
mod work;
