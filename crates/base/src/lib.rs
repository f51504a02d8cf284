//! Ground floor: the words and measures that every other crate speaks.
//!
//! Nothing here does I/O, reads a clock or spawns. A type is here when two crates of the same floor
//! must agree on it (the export that produces attributes and the wire that carries them), and only
//! then; everything else lives with its owner.
//!
//! * measures: [`Time`], [`ByteSize`], [`Rate`], [`Extent`]
//! * identity: [`SessionId`], [`BootId`], [`WriteVerifier`], [`VolumeId`], [`Handle`],
//!   [`Principal`], [`StoreId`], [`ObjectId`], [`ServerId`], [`TicketId`]
//! * names: [`Name`], the only way a path component crosses a border
//! * files: [`Attributes`], [`FileKind`], [`AttributeChange`], [`FileSystemStat`]
//! * trees: [`Node`], [`Rights`], [`Access`], [`RenameMode`], [`DirectoryPage`]
//! * tables: [`QuickMap`], for what is looked up once per entry or request
//! * storage: [`BlockDevice`], the one door to it
//! * promises: [`ticket`], what the holder of a reservation shows to a server
//! * trouble: [`FsError`], the closed set of answers a file operation can fail with
//! * [`limits`]: every bound of the system, with its reason

mod attributes;
mod block;
mod error;
mod extent;
mod handle;
mod hash;
mod ids;
pub mod limits;
mod name;
mod principal;
mod text;
pub mod ticket;
mod time;
mod tree;
mod units;

pub use attributes::{
    AttributeChange, Attributes, FileKind, FileSystemStat, SetTime, Timestamp, mode,
};
pub use block::{BlockDevice, DeviceAction, DeviceError};
pub use error::FsError;
pub use extent::{Extent, ExtentSet};
pub use handle::Handle;
pub use hash::{QuickHasher, QuickMap, QuickState};
pub use ids::{
    BootId, ClusterId, LockOwner, ObjectId, OpenId, RequestId, ServerId, SessionId, StoreId,
    TicketId, VolumeId, WriteVerifier,
};
pub use name::{Name, NameError};
pub use principal::Principal;
pub use text::is_unseen;
pub use time::Time;
pub use tree::{
    Access, DirectoryEntry, DirectoryPage, Node, RenameMode, Renamed, Rights, XattrMode,
};
pub use units::{ByteSize, ParseUnitError, Rate};
