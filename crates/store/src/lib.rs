//! The reservable object store: objects on a block device, in allocation units of fixed size.
//!
//! ```text
//! store        many threads, one core: group commit, reads         shell/
//!  objects       create, write, truncate, ... of any size            objects.rs
//!   transaction   some changes, all or none                         transaction/
//!    core           layers of state, batch, commit                   core.rs
//!     log             what was committed since a checkpoint          log/
//!     tree            records at the last checkpoint                 tree/
//!     pages, space    which pages and AUs are free, and when         pages.rs, space.rs
//!      device           base::BlockDevice: a file or a raw device    device/
//! ```
//!
//! * **Records** (onodes, places, checksums, the state of AUs) are a map from [keys](key) to small
//!   values. A commit is one entry of the log and one flush; a checkpoint moves what the log has
//!   into a tree of pages that are never written over, and a superblock says that it counts.
//!   Opening after a crash reads the superblock and the log: it is bounded by the log, not by the
//!   objects.
//! * **Data** is written in place before the commit that speaks of it, never over live bytes; small
//!   writes ride in the log and go into place at the checkpoint.
//! * **Checksums** are CRC32C in records of fixed reach ([`leaf`]), so an append costs the same
//!   whatever the object's length. Every byte that is read is verified, pages of records too.
//! * **Superblocks** are two, in turn. Nothing that the older one needs is used again before the
//!   next one is durable; either one finds everything.
//! * **Space** has a holder and an end: a reservation, or a pool of objects without one
//!   ([`reserve`]). What the calendar has promised is there, records included.
//!
//! The core is deterministic: no threads, no clock (`now` is an argument), all I/O through the
//! device. That is how its crash tests are made: `tests/`. Why records are in a tree of our
//! own: `docs/decisions/0009-records-in-a-tree-of-our-own.md`. The bytes: `docs/formats/store.md`.

mod bitmap;
mod bits;
mod check;
mod content;
mod core;
pub mod device;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod key;
mod layout;
mod leaf;
mod log;
mod lost;
#[cfg(any(test, feature = "fuzz"))]
mod memory;
mod objects;
mod pages;
mod planted;
mod promises;
mod read;
mod record;
mod repair;
mod reserve;
mod seek;
mod shell;
mod space;
mod superblock;
#[cfg(test)]
mod tests;
mod transaction;
mod tree;

pub use crate::core::{Core, Format, Options, Usage};
pub use check::{CheckProgress, Finding, Kind, Mend, Report};
pub use error::{Damage, Offer, StoreError};
pub use layout::{Layout, Sizes};
pub use objects::{ObjectInfo, Page};
pub use pages::Pointer;
pub use repair::Examination;
pub use reserve::{How, Payer, Request, ReservationInfo, Reserved, Terms};
pub use seek::{Sought, Wanted};
pub use shell::{Barrier, Clock, Gate, Pass, Reading, Status, Store, Writing, stopped_clock};
pub use superblock::{Counters, Lifetimes, LogHead, STORE_FORMAT_VERSION, Superblock};
pub use transaction::Transaction;
pub use transaction::allocate::Present;
pub use transaction::attribute::Attribute;
