//! The numbers and structures of the kernel's FUSE protocol, version 7.31 to 7.45, as
//! `include/uapi/linux/fuse.h` lays them out.
//!
//! The interface lies between a kernel and a process of the same machine, so everything is in the
//! machine's own byte order and the structures are plain `repr(C)`: zerocopy turns them into bytes
//! and back, and refuses at compile time a structure with padding. Names follow the kernel's, with
//! its prefixes dropped; fields are public within the crate only, because [`super::request`] and
//! [`super::reply`] say the same in types.

pub(crate) mod flags;
pub(crate) mod input;
pub(crate) mod opcode;
pub(crate) mod output;

/// The protocol's major version. There has been no other since 2001.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that this module speaks (Linux 6.18).
pub(crate) const MINOR_MAX: u32 = 45;
/// The oldest: Linux 5.4, before which requests of 1 MiB and other things taken for granted here
/// do not exist.
pub(crate) const MINOR_MIN: u32 = 31;

/// Set in [`input::InHeader::unique`] of a request that the kernel sends a second time.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::input::*;
    use super::output::*;

    #[test]
    fn structures_have_the_sizes_that_the_kernel_gives_them() {
        let sizes = [
            (size_of::<InHeader>(), 40),
            (size_of::<InitIn>(), 64),
            (size_of::<ForgetIn>(), 8),
            (size_of::<ForgetOne>(), 16),
            (size_of::<BatchForgetIn>(), 8),
            (size_of::<GetAttrIn>(), 16),
            (size_of::<SetAttrIn>(), 88),
            (size_of::<MkNodIn>(), 16),
            (size_of::<MkDirIn>(), 8),
            (size_of::<RenameIn>(), 8),
            (size_of::<Rename2In>(), 16),
            (size_of::<LinkIn>(), 8),
            (size_of::<OpenIn>(), 8),
            (size_of::<CreateIn>(), 16),
            (size_of::<ReleaseIn>(), 24),
            (size_of::<FlushIn>(), 24),
            (size_of::<ReadIn>(), 40),
            (size_of::<WriteIn>(), 40),
            (size_of::<FsyncIn>(), 16),
            (size_of::<SetXattrIn>(), 16),
            (size_of::<GetXattrIn>(), 8),
            (size_of::<FileLock>(), 24),
            (size_of::<LkIn>(), 48),
            (size_of::<AccessIn>(), 8),
            (size_of::<InterruptIn>(), 8),
            (size_of::<BMapIn>(), 16),
            (size_of::<IoctlIn>(), 32),
            (size_of::<PollIn>(), 24),
            (size_of::<FallocateIn>(), 32),
            (size_of::<LseekIn>(), 24),
            (size_of::<CopyFileRangeIn>(), 56),
            (size_of::<SyncFsIn>(), 8),
            (size_of::<StatxIn>(), 24),
            (size_of::<OutHeader>(), 16),
            (size_of::<InitOut>(), 64),
            (size_of::<AttrStruct>(), 88),
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<OpenOut>(), 16),
            (size_of::<WriteOut>(), 8),
            (size_of::<StatFsOut>(), 80),
            (size_of::<GetXattrOut>(), 8),
            (size_of::<LkOut>(), 24),
            (size_of::<BMapOut>(), 8),
            (size_of::<IoctlOut>(), 16),
            (size_of::<PollOut>(), 8),
            (size_of::<LseekOut>(), 8),
            (size_of::<CopyFileRangeOut>(), 8),
            (size_of::<StatxStruct>(), 256),
            (size_of::<StatxOut>(), 288),
            (size_of::<Dirent>(), 24),
            (size_of::<DirentPlus>(), 152),
            (size_of::<NotifyPollOut>(), 8),
            (size_of::<NotifyInvalInodeOut>(), 24),
            (size_of::<NotifyInvalEntryOut>(), 16),
            (size_of::<NotifyDeleteOut>(), 24),
            (size_of::<NotifyStoreOut>(), 24),
            (size_of::<NotifyPruneOut>(), 16),
        ];
        for (number, (ours, kernels)) in sizes.iter().enumerate() {
            assert_eq!(ours, kernels, "structure {number}");
        }
    }
}
