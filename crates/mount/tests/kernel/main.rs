//! The FUSE channel with the real kernel: a file system in memory is mounted and used by the
//! system's own programs and calls. Needs root and `/dev/fuse`; without them each test says so.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says why by panicking"
)]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

mod cache;
mod files;
mod memory;
mod mounted;
mod trouble;
mod waiting;
