//! File operations.
//!
//! A request is a list of steps that run in order at the server and stop at the first failure, so
//! that a look-up, an open and a first read take one round trip. A step names its file by handle or
//! as the result of an earlier step. Data travels in the payload of the frame: the parts of all
//! steps one after another, each of the length that its step states.

use super::access::Access;
use super::layout::{FileLayout, LayoutPurpose, StoredWhat};
use base::limits::{
    AFTER_REQUESTS_MAX, COMPOUND_STEPS_MAX, DIRECTORY_ENTRIES_MAX, PLACE_PARTS_MAX, STRAGGLERS_MAX,
};
use base::{
    AttributeChange, Attributes, Extent, FileKind, FileSystemStat, FsError, Handle, LockOwner,
    Name, OpenId, Principal, RequestId, VolumeId,
};
use serde::{Deserialize, Serialize};

/// Steps for one caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compound {
    /// For whom the server judges.
    #[serde(deserialize_with = "crate::bounded::principal")]
    pub who: Principal,
    /// What the server kept in order to answer it again, and can forget.
    pub settled: Settled,
    /// What to do, in order.
    #[serde(deserialize_with = "crate::bounded::list::<COMPOUND_STEPS_MAX, _, _>")]
    pub steps: Vec<Step>,
}

/// Which requests of a session have been answered to the client's satisfaction: those below a
/// number, but for some. A request may wait for a lock for hours, and thousands overtake it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Requests with smaller ids are settled...
    pub below: RequestId,
    /// ... except these, in order.
    #[serde(deserialize_with = "crate::bounded::list::<STRAGGLERS_MAX, _, _>")]
    pub except: Vec<RequestId>,
}

impl Settled {
    /// Everything below `below`.
    #[must_use]
    pub const fn all_below(below: RequestId) -> Self {
        let except = Vec::new();
        Self { below, except }
    }

    /// Whether a request is settled.
    #[must_use]
    pub fn covers(&self, id: RequestId) -> bool {
        id < self.below && self.except.binary_search(&id).is_err()
    }

    /// Takes over what another message of the session says, which may be older. Returns whether
    /// that is news.
    pub fn advance(&mut self, other: &Self) -> bool {
        if other.below < self.below {
            return false;
        }
        if other.below > self.below {
            self.clone_from(other);
            return true;
        }
        // What was settled once stays settled.
        let before = self.except.len();
        self.except
            .retain(|id| other.except.binary_search(id).is_ok());
        self.except.len() < before
    }
}

/// Results of the steps up to and including the first failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompoundReply {
    /// One result per step carried out.
    #[serde(deserialize_with = "crate::bounded::list::<COMPOUND_STEPS_MAX, _, _>")]
    pub results: Vec<Result<StepReply, FsError>>,
    /// Time at the server from the request's arrival to this reply, in microseconds; the client
    /// takes it out of the round-trip time.
    pub server_micros: u32,
}

/// Which file a step means.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// By handle.
    Handle(Handle),
    /// The inode that step number `n` (from 0) of this request found or made.
    Result(u8),
}

/// A file and the open through which it is used. Without an open, and for an open that the server
/// does not know (it has restarted), the server opens for the caller on the spot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// The file.
    pub target: Target,
    /// The open.
    pub open: Option<OpenId>,
}

/// Right to cache, granted with attributes. It lasts until it is recalled, returned, or the session
/// has not been heard of for the lease time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lease {
    /// The answer is true now and not longer.
    None,
    /// Attributes, data and (of a directory) entries may be cached.
    Read,
    /// Of a directory: as `Read`, and nobody else uses it, so that creations in it may be answered
    /// ahead.
    Exclusive,
}

/// An inode as a look-up or a creation shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// Right to cache them, and its data.
    pub lease: Lease,
}

/// Where a write lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteAt {
    /// At this offset.
    Offset(u64),
    /// At the end, wherever it is then.
    End,
    /// At this offset, what a server of an earlier write verifier has stored before. Refused with
    /// `Io` if others may have changed the file since.
    Again(u64),
}

/// What to do with space (fallocate(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocateMode {
    /// Allocate; the file grows if need be.
    Extend,
    /// Allocate; the size stays.
    KeepSize,
    /// Free; reads as zeros; the size stays.
    PunchHole,
    /// Make zeros; the file grows if need be.
    ZeroRange,
    /// Make zeros; the size stays.
    ZeroRangeKeepSize,
}

/// What to look for (lseek(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeekWhat {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file counts as one.
    Hole,
}

/// What a rename does with an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail.
    NoReplace,
    /// Swap the two.
    Exchange,
}

/// The two kinds of advisory locks, which do not see each other (flock(2), fcntl(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Whole file, held by an open file description.
    Flock,
    /// Byte range, held by a process.
    Posix,
}

/// What a lock request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockMode {
    /// Shared with other readers.
    Shared,
    /// Alone.
    Exclusive,
    /// None.
    Unlock,
}

/// A lock: held or wanted. `extent` to the end of the address space means "to the end of the file,
/// however it grows".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// Which kind.
    pub kind: LockKind,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// The bytes; the whole address space for flock.
    pub extent: Extent,
    /// The holder within its session.
    pub owner: LockOwner,
    /// Process id at the client, for `F_GETLK`.
    pub pid: u32,
}

/// One step of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Enter a volume by name. Answer: `Attached`.
    Attach {
        /// Its name.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        volume: String,
    },
    /// Find a name. Answer: `Found`. A file of at most `inline_bytes_max` bytes that the caller may
    /// read comes with its contents.
    Lookup {
        /// The directory.
        parent: Target,
        /// The name.
        name: Name,
        /// Largest contents wanted; 0 for none.
        inline_bytes_max: u32,
    },
    /// Answer: `Attributes`.
    Attributes {
        /// The inode.
        target: Target,
    },
    /// Answer: `Attributes`, as they are after the change.
    SetAttributes {
        /// The inode.
        target: Target,
        /// What changes.
        change: AttributeChange,
        /// An open through which a size may be changed without asking the mode bits again.
        open: Option<OpenId>,
    },
    /// Answer: `LinkTarget`.
    ReadLink {
        /// The symbolic link.
        target: Target,
    },
    /// Open a file. Answer: `Attributes`.
    Open {
        /// The file.
        target: Target,
        /// The id that the client gives to it.
        open: OpenId,
        /// What for.
        access: Access,
        /// Whether its contents go.
        truncate: bool,
    },
    /// Make a regular file, or open what is there. Answer: `Created`.
    Create {
        /// The directory.
        parent: Target,
        /// The name.
        name: Name,
        /// Permission bits before the mask.
        mode: u16,
        /// The caller's mask; without effect where the directory has a default ACL.
        umask: u16,
        /// Whether an existing file is an error.
        exclusive: bool,
        /// Open it: id, what for, and whether its contents go.
        open: Option<(OpenId, Access, bool)>,
    },
    /// Make a regular file with its contents and close it: a creation that the client answered
    /// ahead. An existing name is an error. `bytes` of payload. Answer: `Created`.
    CreateFile {
        /// The directory.
        parent: Target,
        /// The name.
        name: Name,
        /// Permission bits before the mask.
        mode: u16,
        /// The caller's mask.
        umask: u16,
        /// Attributes to set after the contents are in.
        change: AttributeChange,
        /// Length of the contents.
        bytes: u32,
    },
    /// Forget an open. Answer: `Done`.
    Close {
        /// The open.
        open: OpenId,
    },
    /// Answer: `Data`, the bytes in the payload.
    Read {
        /// The file.
        file: FileRef,
        /// First byte.
        offset: u64,
        /// Most bytes wanted.
        bytes: u32,
    },
    /// Write `bytes` of payload, unstable: durable after a `Commit` under the same write
    /// verifier.
    /// Answer: `Written`.
    Write {
        /// The file.
        file: FileRef,
        /// Where.
        at: WriteAt,
        /// How many bytes.
        bytes: u32,
    },
    /// Make all that was written to the file durable. Answer: `Attributes`.
    Commit {
        /// The file.
        file: FileRef,
        /// Contents only, as fdatasync(2).
        data_only: bool,
    },
    /// Answer: `Attributes`.
    Allocate {
        /// The file.
        file: FileRef,
        /// What to do.
        mode: AllocateMode,
        /// Where.
        extent: Extent,
    },
    /// Answer: `Position`.
    Seek {
        /// The file.
        file: FileRef,
        /// From where.
        offset: u64,
        /// For what.
        what: SeekWhat,
    },
    /// Copy within the server. Answer: `Written`.
    CopyRange {
        /// From this file.
        source: FileRef,
        /// From this byte.
        source_offset: u64,
        /// To this file.
        target: FileRef,
        /// To this byte.
        target_offset: u64,
        /// At most this many; the server may stop earlier.
        bytes: u64,
    },
    /// Answer: `Created`.
    MakeDirectory {
        /// The directory that gets it.
        parent: Target,
        /// Its name.
        name: Name,
        /// Permission bits before the mask.
        mode: u16,
        /// The caller's mask.
        umask: u16,
    },
    /// Make a pipe, socket or device. Answer: `Created`.
    MakeNode {
        /// The directory.
        parent: Target,
        /// The name.
        name: Name,
        /// What.
        kind: FileKind,
        /// Permission bits before the mask.
        mode: u16,
        /// The caller's mask.
        umask: u16,
        /// Device number (makedev(3)) for devices.
        device: u64,
    },
    /// Answer: `Created`.
    MakeSymlink {
        /// The directory.
        parent: Target,
        /// The name.
        name: Name,
        /// What it points to; not interpreted.
        #[serde(deserialize_with = "crate::bounded::list::<4095, _, _>")]
        link_target: Vec<u8>,
    },
    /// Another name for an inode. Answer: `Created`.
    Link {
        /// The inode.
        target: Target,
        /// The directory.
        parent: Target,
        /// The new name.
        name: Name,
    },
    /// Take a name that is not a directory's away. Answer: `Removed`.
    Remove {
        /// The directory.
        parent: Target,
        /// The name.
        name: Name,
        /// Only if it leads to this file; else `NotFound`. So a removal that the client answered
        /// ahead does not hit what others have put there since.
        file: Option<Handle>,
    },
    /// Take an empty directory away. Answer: `Removed`.
    RemoveDirectory {
        /// The directory that has it.
        parent: Target,
        /// Its name.
        name: Name,
    },
    /// Answer: `Renamed`.
    Rename {
        /// From this directory.
        parent: Target,
        /// This name.
        name: Name,
        /// To this directory.
        to_parent: Target,
        /// Under this name.
        to_name: Name,
        /// What happens to an existing target.
        mode: RenameMode,
    },
    /// Entries after `cookie` (0 for the first), with handles and attributes. Answer: `Directory`.
    ReadDirectory {
        /// The directory.
        target: Target,
        /// Where to go on.
        cookie: u64,
        /// Most entries wanted.
        entries_max: u32,
    },
    /// Contents of small files by handle. Answer: `Contents`; what does not fit into one payload,
    /// is larger than `bytes_max` or may not be read by the caller is left out.
    Fetch {
        /// The files.
        #[serde(deserialize_with = "crate::bounded::list::<DIRECTORY_ENTRIES_MAX, _, _>")]
        handles: Vec<Handle>,
        /// Largest file wanted.
        bytes_max: u32,
    },
    /// Answer: `FileSystem`.
    StatFileSystem {
        /// Any inode of it.
        target: Target,
    },
    /// Answer: `Xattr`.
    GetXattr {
        /// The inode.
        target: Target,
        /// The attribute.
        #[serde(deserialize_with = "crate::bounded::list::<255, _, _>")]
        name: Vec<u8>,
    },
    /// Answer: `Attributes`.
    SetXattr {
        /// The inode.
        target: Target,
        /// The attribute.
        #[serde(deserialize_with = "crate::bounded::list::<255, _, _>")]
        name: Vec<u8>,
        /// Its value.
        #[serde(deserialize_with = "crate::bounded::list::<65536, _, _>")]
        value: Vec<u8>,
        /// `Some(true)`: must be new. `Some(false)`: must exist.
        create: Option<bool>,
    },
    /// Answer: `XattrNames`.
    ListXattrs {
        /// The inode.
        target: Target,
    },
    /// Answer: `Attributes`.
    RemoveXattr {
        /// The inode.
        target: Target,
        /// The attribute.
        #[serde(deserialize_with = "crate::bounded::list::<255, _, _>")]
        name: Vec<u8>,
    },
    /// Make a directory's entries durable. Answer: `Done`.
    SyncDirectory {
        /// The directory.
        target: Target,
    },
    /// Make everything of the file system durable. Answer: `Done`.
    SyncFileSystem {
        /// Any inode of it.
        target: Target,
    },
    /// Take, change or release a lock. Answer: `Done`, or `WouldBlock` at once if `wait` is not
    /// set; else the reply comes when the lock is there.
    Lock {
        /// The file.
        target: Target,
        /// The lock.
        lock: LockRange,
        /// Whether to wait.
        wait: bool,
        /// Taken again after a restart of the server, by a client that had it.
        reclaim: bool,
    },
    /// Which lock stands in the way? Answer: `Lock`.
    TestLock {
        /// The file.
        target: Target,
        /// The lock that would be taken.
        lock: LockRange,
    },
    /// Release all POSIX locks of an owner on a file (one of its descriptors was closed). Answer:
    /// `Done`.
    ReleaseLocks {
        /// The file.
        target: Target,
        /// The owner.
        owner: LockOwner,
        /// Which kind.
        kind: LockKind,
    },
    /// Where the contents of a parallel volume's file lie. `WouldBlock` while it is being cut.
    /// Answer: `Layout`.
    Layout {
        /// The file.
        file: FileRef,
        /// What for.
        purpose: LayoutPurpose,
    },
    /// As `Stored` with `Data` or `Hole` and no place.
    Wrote {
        /// The file.
        file: FileRef,
        /// That of the layout under which it was written.
        generation: u64,
        /// The byte behind the last one that the file has at least from now on.
        end: u64,
        /// What was written, or given space, or made a hole.
        extent: Extent,
        /// Whether it was made a hole.
        is_hole: bool,
    },
    /// As `Place`, but the file is longer at once, and the place stays open. Answer: `Written`,
    /// where the bytes begin.
    Extend {
        /// The file.
        file: FileRef,
        /// How many bytes.
        bytes: u32,
    },
    /// Waits until these requests of the session have run: a commit can be sent right behind the
    /// writes that it is to cover, on whichever connections they travel. They must be earlier ones,
    /// and change something. `WouldBlock` if too many wait already, `TimedOut` if they do not come.
    /// Only for servers that have [`Features::AFTER`](super::Features::AFTER). Answer: `Done`.
    After {
        /// Whom to wait for. One that the client has settled has run.
        #[serde(deserialize_with = "crate::bounded::list::<AFTER_REQUESTS_MAX, _, _>")]
        requests: Vec<RequestId>,
    },
    /// Whether the caller may do all of `rights` with an inode; else `AccessDenied`. For clients
    /// whose kernel does not judge. Answer: `Access`.
    Access {
        /// The inode.
        target: Target,
        /// 4 reading, 2 writing, 1 executing or searching; none to learn about the volume alone.
        rights: u8,
    },
    /// Whether somebody may do all of `rights` with an inode, and what decides; for who may read
    /// its ACL. Answer: `Explained`.
    Explain {
        /// The inode.
        target: Target,
        /// The directory that has its name; what it says about a removal counts, too.
        directory: Option<Target>,
        /// Who.
        #[serde(deserialize_with = "crate::bounded::principal")]
        who: Principal,
        /// As in NFSv4.
        rights: u32,
    },
    /// Gives `bytes` a place at the end of a parallel volume's file, where they are to be written.
    /// The file is longer when they are (`Stored`). Answer: `Placed`.
    Place {
        /// The file.
        file: FileRef,
        /// How many bytes.
        bytes: u32,
    },
    /// What is still to be written of an append's place, because others have not cut it off or
    /// written there since. `Io` if nobody knows any more. Answer: `PlaceLeft`.
    PlaceLeft {
        /// The file.
        file: FileRef,
        /// The place.
        place: u64,
    },
    /// A parallel volume's file was changed at its stores. Waits for appends that were given places
    /// before it. `WouldBlock` if a new generation of the file's layout has begun since: it is to
    /// be written again, under a new layout; of an append, what is left. Answer: `Attributes`,
    /// without a lease.
    Stored {
        /// The file.
        file: FileRef,
        /// That of the layout under which it was written.
        generation: u64,
        /// The byte behind the last one that the file has at least from now on.
        end: u64,
        /// Which bytes.
        extent: Extent,
        /// What they have become.
        what: StoredWhat,
        /// The place, if it is an append: all that was left of it is there.
        place: Option<u64>,
    },
    /// An append cannot be written, and its place is not waited for any longer. If nothing came
    /// after it, the file ends there as if it had never been; else what was not written of it are
    /// zeros. Nothing happens if the place is not open. Only for servers that have
    /// [`Features::GIVE_PLACE_UP`](super::Features::GIVE_PLACE_UP). Answer: `Attributes`, without a
    /// lease.
    GivePlaceUp {
        /// The file.
        file: FileRef,
        /// The place.
        place: u64,
    },
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Name,
    /// Its inode number.
    pub inode: u64,
    /// Its kind.
    pub kind: FileKind,
    /// Where to go on after it.
    pub cookie: u64,
    /// Handle, attributes and lease; `None` where the entry vanished meanwhile or is a mount point.
    pub entry: Option<Entry>,
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepReply {
    /// Nothing to say.
    Done,
    /// The volume's root.
    Attached {
        /// The volume.
        volume: VolumeId,
        /// Its root directory.
        root: Entry,
        /// Whether the volume refuses every change.
        read_only: bool,
        /// Whether contents of files lie in stores.
        parallel: bool,
    },
    /// A look-up's outcome.
    Found {
        /// The inode; `None` if there is no such name.
        entry: Option<Entry>,
        /// Lease on the directory: how long the answer, present or absent, may be believed.
        parent_lease: Lease,
        /// Length of the contents in the payload, if they came along.
        inline_bytes: Option<u32>,
    },
    /// Attributes.
    Attributes {
        /// As they are now.
        attributes: Attributes,
        /// Right to cache them.
        lease: Lease,
    },
    /// Where a symbolic link points.
    LinkTarget(#[serde(deserialize_with = "crate::bounded::list::<4095, _, _>")] Vec<u8>),
    /// A creation's outcome.
    Created {
        /// The inode.
        entry: Entry,
        /// Whether it is new.
        new: bool,
        /// The directory's attributes afterwards.
        parent: Attributes,
        /// Lease on the directory.
        parent_lease: Lease,
    },
    /// Data in the payload.
    Data {
        /// How much of the payload belongs to this step.
        bytes: u32,
        /// Whether the file ends there.
        end_of_file: bool,
    },
    /// A write's outcome.
    Written {
        /// Where it landed.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The file's attributes afterwards.
        attributes: Attributes,
    },
    /// An offset.
    Position(u64),
    /// A name is gone.
    Removed {
        /// The directory's attributes afterwards.
        parent: Attributes,
        /// Lease on the directory.
        parent_lease: Lease,
        /// The inode as it is without the name, maybe without any; `None` if it is not known.
        entry: Option<Entry>,
    },
    /// A rename's outcome.
    Renamed {
        /// The source directory's attributes afterwards.
        parent: Attributes,
        /// The target directory's attributes afterwards.
        to_parent: Attributes,
        /// The inode that moved.
        entry: Entry,
        /// What had the new name before, as it is now; `None` if nothing did or it is not known.
        replaced: Option<Box<Entry>>,
    },
    /// Entries.
    Directory {
        /// In the directory's order.
        #[serde(deserialize_with = "crate::bounded::list::<DIRECTORY_ENTRIES_MAX, _, _>")]
        entries: Vec<DirectoryEntry>,
        /// Whether there are no more.
        end: bool,
        /// Lease on the directory.
        lease: Lease,
    },
    /// Small files.
    Contents {
        /// Per handle asked for: length in the payload and attributes, or `None` where it is left
        /// out.
        #[serde(deserialize_with = "crate::bounded::list::<DIRECTORY_ENTRIES_MAX, _, _>")]
        files: Vec<Option<(u32, Attributes, Lease)>>,
    },
    /// The file system.
    FileSystem(FileSystemStat),
    /// An attribute's value.
    Xattr(#[serde(deserialize_with = "crate::bounded::list::<65536, _, _>")] Vec<u8>),
    /// Names, each ended by a NUL.
    XattrNames(#[serde(deserialize_with = "crate::bounded::list::<65536, _, _>")] Vec<u8>),
    /// The lock that stands in the way; `None` if none.
    Lock(Option<LockRange>),
    /// Where a file's contents lie.
    Layout(FileLayout),
    /// It is allowed.
    Access {
        /// Whether the volume has rich ACLs: then mode bits and POSIX ACLs do not say all.
        is_rich: bool,
    },
    /// What decides.
    Explained(super::Explanation),
    /// An append has its place.
    Placed {
        /// Its number.
        place: u64,
        /// The generation of the file's layout when it was given.
        generation: u64,
        /// Where it begins.
        offset: u64,
        /// The file with it.
        attributes: Attributes,
    },
    /// What is still to be written of an append's place.
    PlaceLeft {
        /// Under this generation of the file's layout.
        generation: u64,
        /// In order, apart from each other.
        #[serde(deserialize_with = "crate::bounded::list::<PLACE_PARTS_MAX, _, _>")]
        parts: Vec<Extent>,
    },
}
