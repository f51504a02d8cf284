//! A directory tree of this machine, served by handle and judged by the kernel for each caller.
//!
//! # Design
//!
//! **No path ever crosses the border.** A request names an inode by [`base::Handle`] and at most
//! one component below it by [`base::Name`]. A handle carries the kernel's own file handle under an
//! authentication code (`seal`), so it survives renames and restarts of the server, never comes to
//! mean another file, and cannot be made up. A component is looked up with `openat2`, which refuses
//! symbolic links, magic links and mount points; `..` is not a [`base::Name`]. So there is nothing
//! that a swapped symbolic link could redirect. The one path that there is, the tree's own, is
//! opened with the identity that the directory had ([`Export::open_known`]).
//!
//! **The kernel judges.** A thread takes on the caller's file system uid, gid and groups and gives
//! up every capability a user does not have ([`Worker`]); then it makes the same system call that a
//! local process would make. Modes, POSIX ACLs, sticky and set-gid directories, the dropping of
//! set-uid bits, quotas, reserved blocks and each error number are those of the file system itself.
//! Nothing in this crate decides for a caller, with three exceptions that only deny: names of
//! extended attributes that are not served ([`Export::get_xattr`]), opens of anything but regular
//! files ([`Export::open_file`]), and a combined change of attributes whose parts would not all be
//! allowed ([`Export::set_attributes`]). And with one that is asked for: where rich ACLs are on,
//! files whose truth is one are judged by it (`rich`).
//!
//! What a handle cannot carry is the search permission of the directories above it: as with NFS,
//! who holds a handle got it by a look-up that was judged, and may go on using it. The same holds
//! for an inode that somebody moves out of the exported tree within its file system: its handle
//! stays good, as an open descriptor would.
//!
//! **Descriptors, bounded.** An inode in use is an `O_PATH` descriptor in a bounded cache; any
//! other is opened by its handle in a microsecond or two. `O_PATH` descriptors carry no rights:
//! files are opened for reading or writing through `/proc/thread-self/fd`, where the kernel judges
//! the open for the calling thread like any other. A descriptor of a deleted inode would keep its
//! space occupied, so removal drops it and [`Export::sweep`] finds those removed by others.
//!
//! **Blocking calls.** Every method is a handful of system calls on the calling thread; the server
//! owns the threads. Reads of an open file need no identity, because the right to read was judged
//! when it was opened; everything else takes a [`Worker`] and a [`Principal`](base::Principal).
//!
//! **Others change the tree too.** [`Watch`] reports what other processes of this machine do to the
//! file system, so that the server can call back what it let clients cache.
//!
//! | file | owns |
//! |---|---|
//! | `export` | opening a tree, finding inodes, attributes |
//! | `namespace` | names: create, link, unlink, rename and their kin |
//! | `change` | changes of attributes |
//! | `directory` | paged listings |
//! | `file` | open files: data, space, copies |
//! | `syncs` | who asks for a file to be made durable |
//! | `hold` | inodes whose last name goes |
//! | `identity` | which directory a tree is, over restarts |
//! | `xattr` | extended attributes |
//! | `rich` | files whose truth is a rich ACL |
//! | `watch` | changes made by others |
//! | `worker` | the caller's identity on a thread |
//! | `seal` | handles |
//! | `cache` | descriptors |
//! | `errno`, `error` | the kernel's numbers; why a tree cannot be exported |
//! | `sys` | system calls |

mod cache;
mod change;
mod directory;
mod errno;
mod error;
mod export;
mod file;
mod hold;
mod identity;
mod namespace;
mod rich;
mod seal;
mod stat;
mod syncs;
mod sys;
mod watch;
mod worker;
mod xattr;

pub use base::{
    Access, DirectoryEntry, DirectoryPage, Node, RenameMode, Renamed, Rights, XattrMode,
};
pub use error::ExportError;
pub use export::{Export, ExportOptions};
pub use file::{AllocateMode, OpenFile, OpenOptions, Written};
pub use hold::Held;
pub use identity::{Difference, NoIdentity, RootIdentity};
pub use namespace::{Create, Created};
pub use rich::{
    AclEdit, Calibration, ColdRead, Explained, Grounds, Known, Names, Note, RichFigures,
    ViewFigures, ViewWalk, ViewWork, WalkFigures, Walked,
};
pub use seal::HandleKey;
pub use watch::{LocalChange, Watch};
pub use worker::Worker;
