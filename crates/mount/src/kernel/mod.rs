//! Linux's FUSE protocol, typed, without anything about our file system.
//!
//! ```text
//!  application --syscall--> kernel --/dev/fuse--> Session threads --Request--> Handler
//!                                      ^                                          |
//!                                      +---- Replier (any thread or task) <-------+
//!                                      +---- Notifier (what the kernel caches is no longer so)
//! ```
//!
//! [`Session::mount`] mounts and agrees with the kernel on what is in force; [`Session::run`] reads
//! requests on some threads and gives each to the [`Handler`] together with a [`Replier`]. The
//! handler answers at once or hands the replier on to whoever will know the answer; a replier that
//! is dropped answers EIO. When the caller of a request gives up, the handler is told its number.
//!
//! Why not an existing library is told in `docs/decisions/0002-own-fuse-channel.md`.
//!
//! * [`request`](Request): what the kernel asks; [`Parser`] makes it from bytes
//! * [`answer`](Attr) and [`reply`](Replier): what it is told
//! * [`notify`](Notifier): what it is told unasked
//! * [`init`](Wishes): the agreement at the start
//! * [`mount`](MountOptions): attaching, detaching and aborting

mod abi;
mod answer;
mod backing;
mod buffer;
mod convert;
mod cursor;
mod device;
mod directory;
mod fusermount;
mod handler;
mod init;
mod mount;
mod notify;
mod operation;
mod parse;
mod process;
mod reply;
mod request;
mod session;
mod sys;

pub use abi::flags::{AttrFlags, FOpenFlags, InitFlags};
pub use answer::{Attr, Entry, Opened, StatFs, Statx};
pub use backing::{Backing, Backings};
pub use directory::{DirectoryBuilder, DirectoryPlusBuilder};
pub use handler::Handler;
pub use init::{Agreement, InitError, Wishes};
pub use mount::{MountError, MountMethod, MountOptions, MountPoint, Mounted, UnmountError, mounts};
pub use notify::{Notifier, NotifyError};
pub use parse::{Flaw, Forget, InitOffer, Message, ParseError, Parser};
pub use process::Process;
pub use reply::{Delivery, Replier};
pub use request::{
    CopyFileRange, Fh, Ioctl, Lock, LockFamily, LockKind, LockRequest, NodeId, Operation,
    PollHandle, Read, ReadDir, Release, Request, SecurityLabel, SetAttr, Unique, Whence, Write,
};
pub use rustix::io::Errno;
pub use session::{Session, SessionEnd, SessionError};
