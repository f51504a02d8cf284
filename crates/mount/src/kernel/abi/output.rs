//! Structures that the kernel is sent.

use super::input::FileLock;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! output {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $kind,)*
            }
        )*
    };
}

output! {
    /// Before every reply (`error` is a negated errno or 0) and every notification (`unique` is 0
    /// and `error` its code).
    OutHeader { len: u32, error: i32, unique: u64, }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    AttrStruct {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atime_nanos: u32,
        mtime_nanos: u32, ctime_nanos: u32, mode: u32, links: u32, uid: u32, gid: u32, rdev: u32,
        block_bytes: u32, flags: u32,
    }
    EntryOut {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nanos: u32,
        attr_valid_nanos: u32, attr: AttrStruct,
    }
    AttrOut { attr_valid: u64, attr_valid_nanos: u32, dummy: u32, attr: AttrStruct, }
    OpenOut { handle: u64, open_flags: u32, backing: i32, }
    CreateOut { entry: EntryOut, open: OpenOut, }
    WriteOut { size: u32, padding: u32, }
    StatFsOut {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        block_bytes: u32, name_bytes_max: u32, fragment_bytes: u32, padding: u32, spare: [u32; 6],
    }
    GetXattrOut { size: u32, padding: u32, }
    LkOut { lock: FileLock, }
    BMapOut { block: u64, }
    IoctlOut { result: i32, flags: u32, in_iovecs: u32, out_iovecs: u32, }
    PollOut { events: u32, padding: u32, }
    LseekOut { offset: u64, }
    CopyFileRangeOut { copied: u64, }
    SxTime { seconds: i64, nanos: u32, reserved: i32, }
    StatxStruct {
        mask: u32, block_bytes: u32, attributes: u64, links: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime,
        btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut {
        attr_valid: u64, attr_valid_nanos: u32, flags: u32, spare: [u64; 2], stat: StatxStruct,
    }
    /// Before a name in a directory's listing; each record is filled up to 8 bytes.
    Dirent { ino: u64, offset: u64, name_len: u32, kind: u32, }
    DirentPlus { entry: EntryOut, dirent: Dirent, }
    NotifyPollOut { poll_handle: u64, }
    NotifyInvalInodeOut { node: u64, offset: i64, len: i64, }
    NotifyInvalEntryOut { parent: u64, name_len: u32, flags: u32, }
    NotifyDeleteOut { parent: u64, child: u64, name_len: u32, padding: u32, }
    NotifyStoreOut { node: u64, offset: u64, size: u32, padding: u32, }
    NotifyPruneOut { count: u32, padding: u32, spare: u64, }
}

/// `notify_inval_entry` flag: the name is asked for again when it is used next, instead of being
/// dropped at once.
pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
