//! Virtual disks from content-addressed chunks.
//!
//! ```text
//! check, gc    is everything there, and what is not needed             check.rs, gc.rs
//! diff         what differs between two versions                       diff.rs
//! commit       what was written onto a version becomes the next        commit.rs
//!  overlay       a writable block device over one that is not           overlay/
//! device       an image as a base::BlockDevice, read on demand          device.rs, device/
//!  keep          for use without a network                            keep.rs, keep/
//!  ahead         what will be read next is fetched meanwhile             ahead/
//!  observe       what was asked for, what came, how long was waited      observe.rs
//!  fetch         each chunk once: memory, cache, repository             fetch.rs
//!   cache         verified chunks on a local disk                       cache.rs
//! training     a version is cut along what its profiles touch           training/
//!  pack          the chunks of a profile in one file                     pack.rs
//!  profile       what is read of an image, in order                      profile/
//! publish      an image becomes a version                              publish.rs
//!  repository    chunks, indexes, manifests and tags, written to        repository/
//!   manifest      versions, and the tags that point to them             manifest.rs
//!    signed        who says so                                          signed.rs
//! index        an image's chunks by position, as casync's .caibx        index.rs
//!  source        files of a repository: a directory, a web server      source/
//!  bucket        a repository in a bucket of S3                        bucket/
//!  web           a repository over HTTP, given away                    web.rs
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

pub mod ahead;
pub mod bucket;
pub mod cache;
pub mod check;
pub mod chunk;
pub mod commit;
pub mod device;
pub mod diff;
mod error;
pub mod fetch;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod gc;
mod holes;
pub mod index;
pub mod keep;
pub mod manifest;
pub mod name;
pub mod observe;
pub mod overlay;
pub mod pack;
pub mod profile;
pub mod publish;
mod recent;
pub mod repository;
pub mod signed;
pub mod source;
pub mod training;
pub mod web;

pub use ahead::{AheadCounts, Foresight, Plan};
pub use bucket::{Bucket, BucketOptions};
pub use cache::Cache;
pub use chunk::{ChunkId, ChunkSpec, Digest};
pub use commit::commit;
pub use device::ImageDevice;
pub use diff::{Diff, diff};
pub use error::{Damage, DiskError};
pub use fetch::{FetchCounts, Fetcher};
pub use index::{ChunkSizes, Index, Placed};
pub use keep::{KeptReport, Missing, Share, Unread};
pub use manifest::{Manifest, Tag, TagEntry, TagRecord, VersionId};
pub use name::FileName;
pub use observe::{ChunkUse, Use};
pub use overlay::Overlay;
pub use pack::{Front, Pack};
pub use profile::{Profile, Trace};
pub use publish::{Published, Publishing, publish};
pub use repository::{Progress, Repository};
pub use signed::{PublicKey, SigningKey, Trust};
pub use source::{Directory, Http, HttpOptions, Mirrors, Source};
pub use training::{HowToTrain, Trained, Training, TrainingReport, train};

/// The version of how files are laid out in a repository, and of those that are not casync's.
pub const DISK_FORMAT_VERSION: u16 = 1;
