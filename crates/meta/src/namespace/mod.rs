//! The namespace of a parallel volume: names, inodes and attributes of files whose bytes lie in
//! stores.
//!
//! ```text
//!  Namespace     look-ups, changes, listings: a thread of the server calls      tree.rs names.rs
//!    │                                        rename.rs attributes.rs xattr.rs listing.rs
//!    ├─ judge    may this caller do that: pure, as Linux on ext4 says           judge.rs acl.rs
//!    ├─ rich     the same where a rich ACL is the truth                         rich/
//!    ├─ work     one operation: what it sees, what it will change               work.rs
//!    ├─ cache    inodes and names in memory; what is missing is read            cache.rs read.rs
//!    └─ pipe     batches of changes on their way ──► a task ──► Engine          pipe.rs commit.rs
//! ```
//!
//! # Answers
//!
//! An operation is worked out in memory, on everything that was changed before it, durable or not,
//! and takes microseconds. Its answer is true at once and may be told when it is durable: a
//! [`Turn`] collects what the answers of one request depend on, its own changes and what it has
//! seen of others', and [`Namespace::wait`] waits for that. So changes pipeline: hundreds of files
//! are created by one request, and by others beside it, while a flush is under way. If a batch of
//! changes fails, everything behind it fails, nobody is told anything that depends on it, and the
//! namespace is read anew.
//!
//! # One manager
//!
//! Memory is right because one manager changes a volume: the holder of a seat. Its transactions are
//! guarded by the epoch of the seat; answers from memory are given while the seat is trusted.
//! Beside the guard stands a chain: each batch deletes the head record of the batch before, which
//! must be there, and writes its own, numbered. Whoever had read an older state, whatever he
//! believes to be, changes nothing: the chain has gone on. It also keeps batches in order of which
//! several are under way, where an engine might leave one out (its turn came too late) and do the
//! next.
//!
//! # Records
//!
//! A file with one name lies in the entry of its name, inode and all; a second entry says where the
//! inode lies, because handles outlive names. That are two entries for each file that is created,
//! about 150 bytes with their keys, and what is written anew once in a batch whatever its size: the
//! directory, the head, the request's outcome. A batch has up to 118 keys, so one transaction
//! creates some 57 files; four threads that create a hundred in each request make 8,000 in 144
//! transactions and 0.22 s, on two shared cores and not optimised. A listing with attributes is one
//! range. Inodes of several names or none lie by themselves. Directories are ordered by keyed
//! hashes of names, which are the cookies of listings ([`cookie`]). The bytes:
//! `docs/formats/namespace.md`.
//!
//! # Exactly once
//!
//! A change that says who repeats it ([`Identity`]) writes what it has done in the same batch.
//! Asked again, by a client that has lost an answer to a manager that has just taken over, it says
//! so and does nothing. Failures are not written: a step that failed has changed nothing and may be
//! tried again. What clients have settled is deleted along with later changes.
//!
//! # Last names
//!
//! An inode without a name is gone, unless somebody holds it ([`hold`]). What stores have to do for
//! it, and for files that became shorter, is written with the change that causes it ([`chores`]):
//! no object is forgotten by a crash, and none is deleted whose file is still there.
//!
//! # Rich ACLs
//!
//! A file's truth may be a rich ACL (NFSv4, Windows), which lies with the inode, or apart if it is
//! large ([`rich`]).
//!
//! # Not here
//!
//! The bytes of files, space, quotas, leases and locks. Access times are what clients set. A
//! directory says that it takes 4,096 bytes; blocks of a file are those that clients say they have
//! written ([`Written`]), not what allocation units of stores round them up to.

mod acl;
mod appends;
mod attributes;
mod cache;
mod check;
mod chores;
mod commit;
mod cookie;
mod core;
mod error;
mod hold;
mod identity;
mod judge;
mod key;
mod layout;
mod listing;
mod names;
mod pipe;
mod read;
mod record;
mod rename;
mod rich;
mod seal;
mod space;
mod tree;
mod turn;
mod volume;
mod work;
mod xattr;

pub use attributes::{Left, Placed, What, Written};
pub use base::{
    Access, DirectoryEntry, DirectoryPage, Node, RenameMode, Renamed, Rights, XattrMode,
};
pub use check::{Report, check};
pub use error::NamespaceError;
pub use hold::{Held, OpenInode, OpenOptions};
pub use identity::Identities;
pub use layout::{Layout, Redundancy, Striping, Target};
pub use names::{Create, Created};
pub use record::{Chore, NAMESPACE_FORMAT_VERSION, Numbers};
pub use rich::{EditCounts, RichFigures, RichScan, Scanned, Words};
pub use tree::{Namespace, NamespaceOptions};
pub use turn::{Identity, Turn};
pub use volume::{make, remove};
