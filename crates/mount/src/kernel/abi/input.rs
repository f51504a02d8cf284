//! Structures that the kernel sends.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! input {
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

input! {
    /// Before every request. `extensions_len` counts units of 8 bytes at the request's end.
    InHeader {
        len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32,
        extensions_len: u16, padding: u16,
    }
    /// The kernel's offer. Kernels before 7.36 send the first four fields only.
    InitIn {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    ForgetIn { lookups: u64, }
    ForgetOne { node: u64, lookups: u64, }
    BatchForgetIn { count: u32, dummy: u32, }
    GetAttrIn { flags: u32, dummy: u32, handle: u64, }
    SetAttrIn {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64,
        ctime: i64, atime_nanos: u32, mtime_nanos: u32, ctime_nanos: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    MkNodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkDirIn { mode: u32, umask: u32, }
    RenameIn { directory: u64, }
    Rename2In { directory: u64, flags: u32, padding: u32, }
    LinkIn { node: u64, }
    OpenIn { flags: u32, open_flags: u32, }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    ReleaseIn { handle: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    FlushIn { handle: u64, unused: u32, padding: u32, lock_owner: u64, }
    ReadIn {
        handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn {
        handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    FsyncIn { handle: u64, flags: u32, padding: u32, }
    /// Without `SETXATTR_EXT` the first two fields only.
    SetXattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    GetXattrIn { size: u32, padding: u32, }
    FileLock { start: u64, end: u64, kind: u32, pid: u32, }
    LkIn { handle: u64, owner: u64, lock: FileLock, lk_flags: u32, padding: u32, }
    AccessIn { mask: u32, padding: u32, }
    InterruptIn { unique: u64, }
    BMapIn { block: u64, block_bytes: u32, padding: u32, }
    IoctlIn { handle: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32, }
    PollIn { handle: u64, poll_handle: u64, flags: u32, events: u32, }
    FallocateIn { handle: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    LseekIn { handle: u64, offset: u64, whence: u32, padding: u32, }
    CopyFileRangeIn {
        handle_in: u64, offset_in: u64, node_out: u64, handle_out: u64, offset_out: u64, len: u64,
        flags: u64,
    }
    SyncFsIn { padding: u64, }
    StatxIn { flags: u32, reserved: u32, handle: u64, sx_flags: u32, sx_mask: u32, }
    /// Before each extension; types up to 31 are a security context header, whose second field is
    /// their number.
    ExtensionHeader { size: u32, kind: u32, }
    /// Before each security context: the size of the value, which follows a name ended by NUL.
    SecurityContext { size: u32, padding: u32, }
}

/// The size of [`InitIn`] before 7.36.
pub(crate) const INIT_IN_BYTES_OLD: usize = 16;
/// The size of [`SetXattrIn`] without `SETXATTR_EXT`.
pub(crate) const SETXATTR_IN_BYTES_OLD: usize = 8;
/// [`ExtensionHeader::kind`] of the groups of the caller.
pub(crate) const EXTENSION_GROUPS: u32 = 32;
/// The largest [`ExtensionHeader::kind`] that stands for security contexts.
pub(crate) const EXTENSION_SECURITY_MAX: u32 = 31;
