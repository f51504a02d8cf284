//! The device below a store: opening it, keeping it busy, knowing how fast it is.
//!
//! # One device, one owner
//!
//! [`FileDevice`] is a raw block device or a file that was written once from end to end. Opening
//! takes an exclusive lock (and, on a block device, the kernel's claim, so that nothing mounted is
//! overwritten); who only reads takes a shared one. Where the path allows it, the page cache is
//! passed by (`O_DIRECT`): a store has its own cache and wants to know when the device has worked.
//! Where not (some file systems refuse), it goes through the cache and [`FileDevice::describe`]
//! says so.
//!
//! # Promised space stays there
//!
//! A new file is allocated and then written with zeros. Allocation alone would promise the space,
//! but the first write of every unwritten extent costs a journal entry of the file system below: a
//! device measured before would be slower afterwards, and a rate promised from it a lie. For the
//! same reason **trim does nothing by default**: a hole in a file gives its space to others, and
//! so does a discard on thin provision or on a loop device. Only who opens a block device with
//! [`DeviceOptions::discard`] says that discarded space stays its own, as on a whole SSD.
//!
//! # Many requests, few bytes
//!
//! A [`Queue`] takes requests with their buffers and gives both back when done. [`Ring`] keeps many
//! under way at once with io_uring, from one thread that owns the ring; [`InOrder`] carries out one
//! after the other on any [`base::BlockDevice`], so that a simulated disk sees what the engine
//! does. Both hold to the same rules:
//!
//! * requests are whole blocks at block borders, in [`AlignedBuffer`]s: nothing is copied;
//! * reads and writes under way at the same time must not overlap;
//! * a flush covers every write that was submitted before it, answered or not; it is answered after
//!   them;
//! * bytes under way are bounded (`DEVICE_IN_FLIGHT_BYTES_MAX`): a device's own queue is served in
//!   an order that knows no reservations, so what waits there must be little. Who submits beyond
//!   waits.
//!
//! Errors belong to one request. An error of a flush stays: every later flush of the same
//! [`FileDevice`] fails as well, because Linux reports a lost write once and forgets it.
//!
//! # How fast
//!
//! [`calibrate()`] measures reads and writes of 64 KiB to 8 MiB in several depths and mixtures and
//! chooses the allocation unit. What came of it has [bytes](table) for the superblock.

mod buffer;
mod calibrate;
mod contents;
mod disk;
mod error;
mod file;
mod inorder;
mod loops;
mod open;
mod queue;
mod ring;
mod sample;
mod sys;
mod table;
#[cfg(test)]
mod tests;
mod unit;

pub use buffer::AlignedBuffer;
pub use calibrate::{CalibrateError, Calibration, Capability, Direction, MeasuredRate, calibrate};
pub use contents::{Contents, LOOKED_AT_BYTES, ensure_whole};
pub use disk::{Disk, disk_of};
pub use error::OpenError;
pub use file::FileDevice;
pub use inorder::InOrder;
pub use open::{DeviceOptions, Progress};
pub use queue::{Completion, Done, Pending, Queue, Request};
pub use ring::Ring;
pub use table::TableError;

/// The unit of requests, buffers and lengths, in bytes: a page, and no smaller than the logical
/// block of any disk that Linux accepts.
pub const BLOCK_BYTES: u32 = 4096;
