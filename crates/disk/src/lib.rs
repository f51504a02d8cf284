//! Virtual disks from content-addressed chunks.
//!
//! ```text
//! index        an image's chunks by position, as casync's .caibx        index.rs
//!  source        files of a repository: a directory, a web server      source/
//!  chunk         ids, compression, verification: casync's .cacnk        chunk.rs
//!   file name     where files lie in a repository                       name.rs
//! ```
//!
//! An image is cut into chunks; each is stored once under the digest of its bytes, and an index
//! says which chunk is where. Index and chunks are files that Debian's casync and desync read and
//! write as well; what this project adds lies beside them, in files that those ignore. Every
//! published chunk is immutable, so any web server serves a repository and any cache may keep what
//! it has seen.
//!
//! Source: LB-CAS, "Access analysis on OS boot using LB-CAS", sections 1 and 2. The bytes:
//! `docs/formats/disk.md`.

pub mod chunk;
mod error;
pub mod index;
pub mod name;
pub mod source;

pub use chunk::{ChunkId, ChunkSpec, Digest};
pub use error::Damage;
pub use index::{ChunkSizes, Index, Placed};
pub use name::FileName;
pub use source::{Directory, Http, HttpOptions, Source};

/// The version of how files are laid out in a repository, and of those that are not casync's.
pub const DISK_FORMAT_VERSION: u16 = 1;
