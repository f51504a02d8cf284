//! The body of each kind of request, from bytes to an [`Operation`].

use super::abi::flags::{self, SetAttrValid};
use super::abi::input::{self, InHeader};
use super::abi::opcode::Opcode;
use super::convert::{file_kind, rdev_from_kernel};
use super::cursor::Cursor;
use super::parse::{Flaw, Parser};
use super::request::{
    CopyFileRange, Fh, Ioctl, Lock, LockFamily, LockKind, LockRequest, NodeId, Operation,
    PollHandle, Read, ReadDir, Release, SetAttr, Whence, Write,
};
use base::{FileKind, LockOwner, SetTime, Timestamp};
use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, StatxFlags, XattrFlags};

/// Permission bits and set-id bits of a mode.
const MODE_BITS: u32 = 0o7777;
/// Bits of a umask.
const UMASK_BITS: u32 = 0o777;

/// Parses the body of a request that is answered by the file system.
pub(crate) fn parse(
    parser: Parser,
    opcode: Opcode,
    header: &InHeader,
    cursor: &mut Cursor<'_>,
) -> Result<Operation, Flaw> {
    Ok(match opcode {
        Opcode::Lookup => Operation::Lookup {
            name: cursor.name()?,
        },
        Opcode::GetAttr => {
            let body: input::GetAttrIn = cursor.take()?;
            Operation::GetAttr {
                fh: optional_fh(body.flags, body.handle),
            }
        }
        Opcode::Statx => {
            let body: input::StatxIn = cursor.take()?;
            Operation::Statx {
                fh: optional_fh(body.flags, body.handle),
                sync: body.sx_flags,
                mask: StatxFlags::from_bits_retain(body.sx_mask),
            }
        }
        Opcode::SetAttr => Operation::SetAttr(set_attr(cursor)?),
        Opcode::ReadLink => Operation::ReadLink,
        Opcode::StatFs => Operation::StatFs,
        Opcode::Access => {
            let body: input::AccessIn = cursor.take()?;
            Operation::Access {
                mask: Access::from_bits_retain(body.mask),
            }
        }
        Opcode::SyncFs => {
            let _: input::SyncFsIn = cursor.take()?;
            Operation::SyncFs
        }
        Opcode::Symlink
        | Opcode::MkNod
        | Opcode::MkDir
        | Opcode::Unlink
        | Opcode::RmDir
        | Opcode::Rename
        | Opcode::Rename2
        | Opcode::Link
        | Opcode::Create
        | Opcode::TmpFile => entries(opcode, cursor)?,
        Opcode::SetXattr | Opcode::GetXattr | Opcode::ListXattr | Opcode::RemoveXattr => {
            xattr(parser, opcode, cursor)?
        }
        Opcode::Open
        | Opcode::OpenDir
        | Opcode::Release
        | Opcode::ReleaseDir
        | Opcode::Flush
        | Opcode::Fsync
        | Opcode::FsyncDir => open_files(opcode, cursor)?,
        Opcode::GetLk | Opcode::SetLk | Opcode::SetLkW => locks(opcode, cursor)?,
        Opcode::Init
        | Opcode::Destroy
        | Opcode::Forget
        | Opcode::BatchForget
        | Opcode::Interrupt => unreachable!("the caller handles {opcode:?} of {header:?}"),
        _ => contents(opcode, cursor)?,
    })
}

/// Operations that make, move or remove entries.
fn entries(opcode: Opcode, cursor: &mut Cursor<'_>) -> Result<Operation, Flaw> {
    Ok(match opcode {
        Opcode::Symlink => Operation::Symlink {
            name: cursor.name()?,
            target: cursor.string()?,
        },
        Opcode::MkNod => {
            let body: input::MkNodIn = cursor.take()?;
            Operation::MkNod {
                // As in mknod(2), no kind is a regular file.
                kind: match body.mode & !MODE_BITS {
                    0 => FileKind::File,
                    _ => file_kind(body.mode).ok_or(Flaw::BadNumber)?,
                },
                mode: mode(body.mode),
                rdev: rdev_from_kernel(body.rdev),
                umask: umask(body.umask),
                name: cursor.name()?,
            }
        }
        Opcode::MkDir => {
            let body: input::MkDirIn = cursor.take()?;
            Operation::MkDir {
                mode: mode(body.mode),
                umask: umask(body.umask),
                name: cursor.name()?,
            }
        }
        Opcode::Unlink => Operation::Unlink {
            name: cursor.name()?,
        },
        Opcode::RmDir => Operation::RmDir {
            name: cursor.name()?,
        },
        Opcode::Rename => {
            let body: input::RenameIn = cursor.take()?;
            rename(body.directory, 0, cursor)?
        }
        Opcode::Rename2 => {
            let body: input::Rename2In = cursor.take()?;
            rename(body.directory, body.flags, cursor)?
        }
        Opcode::Link => {
            let body: input::LinkIn = cursor.take()?;
            Operation::Link {
                target: NodeId(body.node),
                name: cursor.name()?,
            }
        }
        Opcode::Create | Opcode::TmpFile => create(opcode, cursor)?,
        _ => unreachable!("{opcode:?} is not about entries"),
    })
}

/// Operations that make a file and open it.
fn create(opcode: Opcode, cursor: &mut Cursor<'_>) -> Result<Operation, Flaw> {
    let body: input::CreateIn = cursor.take()?;
    let (mode, umask) = (mode(body.mode), umask(body.umask));
    let flags = OFlags::from_bits_retain(body.flags);
    if opcode == Opcode::TmpFile {
        // The kernel sends a name here too: that of the dentry it made up, "/".
        cursor.string()?;
        return Ok(Operation::TmpFile { mode, umask, flags });
    }
    let kill_suidgid = body.open_flags & flags::OPEN_KILL_SUIDGID != 0;
    let name = cursor.name()?;
    Ok(Operation::Create {
        name,
        mode,
        umask,
        flags,
        kill_suidgid,
    })
}

fn rename(directory: u64, flags: u32, cursor: &mut Cursor<'_>) -> Result<Operation, Flaw> {
    Ok(Operation::Rename {
        new_parent: NodeId(directory),
        flags: RenameFlags::from_bits_retain(flags),
        name: cursor.name()?,
        new_name: cursor.name()?,
    })
}

/// Operations on extended attributes.
fn xattr(parser: Parser, opcode: Opcode, cursor: &mut Cursor<'_>) -> Result<Operation, Flaw> {
    Ok(match opcode {
        Opcode::SetXattr => {
            let mut body = input::SetXattrIn::default();
            if parser.setxattr_ext {
                body = cursor.take()?;
            } else {
                let old: [u32; input::SETXATTR_IN_BYTES_OLD / 4] = cursor.take()?;
                [body.size, body.flags] = old;
            }
            Operation::SetXattr {
                flags: XattrFlags::from_bits_retain(body.flags),
                acl_kill_sgid: body.setxattr_flags & flags::SETXATTR_ACL_KILL_SGID != 0,
                name: cursor.string()?,
                value: cursor.data(length(body.size)?)?,
            }
        }
        Opcode::GetXattr => {
            let body: input::GetXattrIn = cursor.take()?;
            Operation::GetXattr {
                size: body.size,
                name: cursor.string()?,
            }
        }
        Opcode::ListXattr => {
            let body: input::GetXattrIn = cursor.take()?;
            Operation::ListXattr { size: body.size }
        }
        Opcode::RemoveXattr => Operation::RemoveXattr {
            name: cursor.string()?,
        },
        _ => unreachable!("{opcode:?} is not about extended attributes"),
    })
}

/// Operations on open files as such.
fn open_files(opcode: Opcode, cursor: &mut Cursor<'_>) -> Result<Operation, Flaw> {
    Ok(match opcode {
        Opcode::Open => {
            let body: input::OpenIn = cursor.take()?;
            Operation::Open {
                flags: OFlags::from_bits_retain(body.flags),
                kill_suidgid: body.open_flags & flags::OPEN_KILL_SUIDGID != 0,
            }
        }
        Opcode::OpenDir => {
            let body: input::OpenIn = cursor.take()?;
            Operation::OpenDir {
                flags: OFlags::from_bits_retain(body.flags),
            }
        }
        Opcode::Release => {
            let body: input::ReleaseIn = cursor.take()?;
            Operation::Release(Release {
                fh: Fh(body.handle),
                flags: OFlags::from_bits_retain(body.flags),
                lock_owner: LockOwner(body.lock_owner),
                flush: body.release_flags & flags::RELEASE_FLUSH != 0,
                flock_unlock: body.release_flags & flags::RELEASE_FLOCK_UNLOCK != 0,
            })
        }
        Opcode::ReleaseDir => {
            let body: input::ReleaseIn = cursor.take()?;
            Operation::ReleaseDir {
                fh: Fh(body.handle),
                flags: OFlags::from_bits_retain(body.flags),
            }
        }
        Opcode::Flush => {
            let body: input::FlushIn = cursor.take()?;
            Operation::Flush {
                fh: Fh(body.handle),
                lock_owner: LockOwner(body.lock_owner),
            }
        }
        Opcode::Fsync | Opcode::FsyncDir => {
            let body: input::FsyncIn = cursor.take()?;
            let fh = Fh(body.handle);
            let data_only = body.flags & flags::FSYNC_DATA_ONLY != 0;
            match opcode {
                Opcode::Fsync => Operation::Fsync { fh, data_only },
                _ => Operation::FsyncDir { fh, data_only },
            }
        }
        _ => unreachable!("{opcode:?} is not about open files"),
    })
}

/// Operations on the contents of files and directories.
fn contents(opcode: Opcode, cursor: &mut Cursor<'_>) -> Result<Operation, Flaw> {
    Ok(match opcode {
        Opcode::Read => {
            let body: input::ReadIn = cursor.take()?;
            Operation::Read(Read {
                fh: Fh(body.handle),
                offset: body.offset,
                size: body.size,
                lock_owner: owner(body.read_flags & flags::READ_LOCKOWNER, body.lock_owner),
                flags: OFlags::from_bits_retain(body.flags),
            })
        }
        Opcode::Write => {
            let body: input::WriteIn = cursor.take()?;
            Operation::Write(Write {
                fh: Fh(body.handle),
                offset: body.offset,
                data: cursor.data(length(body.size)?)?,
                from_cache: body.write_flags & flags::WRITE_CACHE != 0,
                kill_suidgid: body.write_flags & flags::WRITE_KILL_SUIDGID != 0,
                lock_owner: owner(body.write_flags & flags::WRITE_LOCKOWNER, body.lock_owner),
                flags: OFlags::from_bits_retain(body.flags),
            })
        }
        Opcode::ReadDir | Opcode::ReadDirPlus => {
            let body: input::ReadIn = cursor.take()?;
            let page = ReadDir {
                fh: Fh(body.handle),
                offset: body.offset,
                size: body.size,
            };
            match opcode {
                Opcode::ReadDir => Operation::ReadDir(page),
                _ => Operation::ReadDirPlus(page),
            }
        }
        Opcode::Fallocate => {
            let body: input::FallocateIn = cursor.take()?;
            Operation::Fallocate {
                fh: Fh(body.handle),
                offset: body.offset,
                length: body.length,
                mode: FallocateFlags::from_bits_retain(body.mode),
            }
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            let body: input::CopyFileRangeIn = cursor.take()?;
            Operation::CopyFileRange(CopyFileRange {
                fh_in: Fh(body.handle_in),
                offset_in: body.offset_in,
                node_out: NodeId(body.node_out),
                fh_out: Fh(body.handle_out),
                offset_out: body.offset_out,
                length: body.len,
                flags: body.flags,
                wide: opcode == Opcode::CopyFileRange64,
            })
        }
        _ => places(opcode, cursor)?,
    })
}

/// Operations that ask about places in a file, or pass by its contents.
fn places(opcode: Opcode, cursor: &mut Cursor<'_>) -> Result<Operation, Flaw> {
    Ok(match opcode {
        Opcode::Lseek => {
            let body: input::LseekIn = cursor.take()?;
            Operation::Lseek {
                fh: Fh(body.handle),
                offset: body.offset,
                whence: match body.whence {
                    2 => Whence::End,
                    3 => Whence::Data,
                    4 => Whence::Hole,
                    _ => return Err(Flaw::BadNumber),
                },
            }
        }
        Opcode::BMap => {
            let body: input::BMapIn = cursor.take()?;
            Operation::BMap {
                block: body.block,
                block_bytes: body.block_bytes,
            }
        }
        Opcode::Ioctl => {
            let body: input::IoctlIn = cursor.take()?;
            Operation::Ioctl(Ioctl {
                fh: Fh(body.handle),
                command: body.command,
                argument: body.argument,
                input: cursor.data(length(body.in_size)?)?,
                output_size: body.out_size,
                flags: body.flags,
            })
        }
        Opcode::Poll => {
            let body: input::PollIn = cursor.take()?;
            Operation::Poll {
                fh: Fh(body.handle),
                poll_handle: PollHandle(body.poll_handle),
                notify: body.flags & flags::POLL_SCHEDULE_NOTIFY != 0,
                events: body.events,
            }
        }
        _ => unreachable!("{opcode:?} is parsed elsewhere"),
    })
}

fn locks(opcode: Opcode, cursor: &mut Cursor<'_>) -> Result<Operation, Flaw> {
    let body: input::LkIn = cursor.take()?;
    let lock = LockRequest {
        fh: Fh(body.handle),
        owner: LockOwner(body.owner),
        family: match body.lk_flags & flags::LK_FLOCK {
            0 => LockFamily::Posix,
            _ => LockFamily::Flock,
        },
        lock: Lock {
            kind: LockKind::from_number(body.lock.kind).ok_or(Flaw::BadNumber)?,
            start: body.lock.start,
            end: body.lock.end,
            pid: body.lock.pid,
        },
    };
    Ok(match opcode {
        Opcode::GetLk => Operation::GetLk(lock),
        Opcode::SetLk => Operation::SetLk { lock, wait: false },
        _ => Operation::SetLk { lock, wait: true },
    })
}

fn set_attr(cursor: &mut Cursor<'_>) -> Result<SetAttr, Flaw> {
    let body: input::SetAttrIn = cursor.take()?;
    let valid = SetAttrValid::from_bits_retain(body.valid);
    let has = |flag| valid.contains(flag);
    let time = |flag, now, seconds, nanos| match (has(flag), has(now)) {
        (true, true) => Ok(Some(SetTime::Now)),
        (true, false) => Ok(Some(SetTime::To(timestamp(seconds, nanos)?))),
        (false, _) => Ok(None),
    };
    Ok(SetAttr {
        fh: has(SetAttrValid::HANDLE).then_some(Fh(body.handle)),
        mode: has(SetAttrValid::MODE).then_some(mode(body.mode)),
        uid: has(SetAttrValid::UID).then_some(body.uid),
        gid: has(SetAttrValid::GID).then_some(body.gid),
        size: has(SetAttrValid::SIZE).then_some(body.size),
        atime: time(
            SetAttrValid::ATIME,
            SetAttrValid::ATIME_NOW,
            body.atime,
            body.atime_nanos,
        )?,
        mtime: time(
            SetAttrValid::MTIME,
            SetAttrValid::MTIME_NOW,
            body.mtime,
            body.mtime_nanos,
        )?,
        ctime: match has(SetAttrValid::CTIME) {
            true => Some(timestamp(body.ctime, body.ctime_nanos)?),
            false => None,
        },
        lock_owner: has(SetAttrValid::LOCK_OWNER).then_some(LockOwner(body.lock_owner)),
        kill_suidgid: has(SetAttrValid::KILL_SUIDGID),
    })
}

fn timestamp(seconds: i64, nanos: u32) -> Result<Timestamp, Flaw> {
    if nanos >= 1_000_000_000 {
        return Err(Flaw::BadNumber);
    }
    Ok(Timestamp { seconds, nanos })
}

fn optional_fh(flags: u32, handle: u64) -> Option<Fh> {
    (flags & flags::GETATTR_HANDLE != 0).then_some(Fh(handle))
}

fn owner(present: u32, owner: u64) -> Option<LockOwner> {
    (present != 0).then_some(LockOwner(owner))
}

fn length(size: u32) -> Result<usize, Flaw> {
    usize::try_from(size).map_err(|_| Flaw::Truncated)
}

fn mode(mode: u32) -> u16 {
    u16::try_from(mode & MODE_BITS).expect("12 bits fit")
}

fn umask(umask: u32) -> u16 {
    u16::try_from(umask & UMASK_BITS).expect("9 bits fit")
}
