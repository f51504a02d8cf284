//! Every kind of request as bytes, with what it says.

use super::super::abi::input::InHeader;
use super::super::abi::opcode::Opcode;
use super::super::request::{
    CopyFileRange, Fh, Ioctl, Lock, LockFamily, LockKind, LockRequest, Operation, PollHandle, Read,
    ReadDir, Release, SetAttr, Whence, Write,
};
use super::*;
use base::{FileKind, LockOwner, SetTime, Timestamp};
use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, StatxFlags, XattrFlags, makedev};
use zerocopy::IntoBytes;

pub(super) const UNIQUE: u64 = 0x1234;
pub(super) const NODE: u64 = 77;

/// A body, field by field.
#[derive(Clone, Default)]
pub(super) struct Body(pub(super) Vec<u8>);

impl Body {
    pub(super) fn u32(mut self, values: &[u32]) -> Self {
        self.0.extend_from_slice(values.as_bytes());
        self
    }

    pub(super) fn u64(mut self, values: &[u64]) -> Self {
        self.0.extend_from_slice(values.as_bytes());
        self
    }

    pub(super) fn text(mut self, text: &[u8]) -> Self {
        self.0.extend_from_slice(text);
        self
    }
}

pub(super) fn u32s(values: &[u32]) -> Body {
    Body::default().u32(values)
}

pub(super) fn u64s(values: &[u64]) -> Body {
    Body::default().u64(values)
}

pub(super) fn text(text: &[u8]) -> Body {
    Body::default().text(text)
}

/// A whole message.
pub(super) fn message(opcode: u32, body: &[u8], extensions: &[u8]) -> Vec<u8> {
    assert_eq!(extensions.len() % 8, 0);
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + body.len() + extensions.len()).unwrap(),
        opcode,
        unique: UNIQUE,
        node: NODE,
        uid: 1000,
        gid: 100,
        pid: 4321,
        extensions_len: u16::try_from(extensions.len() / 8).unwrap(),
        padding: 0,
    };
    [header.as_bytes(), body, extensions].concat()
}

pub(super) fn request(operation: Operation) -> Message {
    Message::Request(Request {
        unique: Unique(UNIQUE),
        resent: false,
        node: NodeId(NODE),
        uid: 1000,
        gid: 100,
        pid: 4321,
        groups: Vec::new(),
        security: Vec::new(),
        operation,
    })
}

pub(super) fn bytes(text: &'static [u8]) -> Bytes {
    Bytes::from_static(text)
}

pub(super) type Fixture = (Opcode, Body, Message);

/// One of each kind, with every field different from its neighbours.
pub(super) fn fixtures() -> Vec<Fixture> {
    let mut all = fixtures_of_the_session();
    let operations = [
        fixtures_of_new_entries(),
        fixtures_of_entries(),
        fixtures_of_attributes(),
        fixtures_of_extended_attributes(),
        fixtures_of_open_files(),
        fixtures_of_contents(),
        fixtures_of_ranges(),
        fixtures_of_places(),
        fixtures_of_locks(),
    ];
    for (opcode, body, operation) in operations.into_iter().flatten() {
        all.push((opcode, body, request(operation)));
    }
    all
}

fn fixtures_of_the_session() -> Vec<Fixture> {
    let forget = |node, lookups| Forget {
        node: NodeId(node),
        lookups,
    };
    let offer = InitOffer {
        unique: Unique(UNIQUE),
        major: 7,
        minor: 45,
        max_readahead: 131_072,
        flags: InitFlags::INIT_EXT | InitFlags::POSIX_LOCKS | InitFlags::PASSTHROUGH,
    };
    vec![
        (
            Opcode::Init,
            u32s(&[7, 45, 131_072, (1 << 30) | 2, 1 << 5]).u32(&[0; 11]),
            Message::Init(offer),
        ),
        (
            Opcode::Destroy,
            Body::default(),
            Message::Destroy {
                unique: Unique(UNIQUE),
            },
        ),
        (
            Opcode::Forget,
            u64s(&[3]),
            Message::Forget(vec![forget(NODE, 3)]),
        ),
        (
            Opcode::BatchForget,
            u32s(&[2, 0]).u64(&[5, 1, 6, 9]),
            Message::Forget(vec![forget(5, 1), forget(6, 9)]),
        ),
        (
            Opcode::Interrupt,
            u64s(&[42]),
            Message::Interrupt { target: Unique(42) },
        ),
    ]
}

fn fixtures_of_new_entries() -> Vec<(Opcode, Body, Operation)> {
    let name = bytes(b"name");
    vec![
        (
            Opcode::Symlink,
            text(b"name\0../target\0"),
            Operation::Symlink {
                name: name.clone(),
                target: bytes(b"../target"),
            },
        ),
        (
            Opcode::MkNod,
            u32s(&[0o060_640, 0x1234_5678, 0o022, 0]).text(b"name\0"),
            Operation::MkNod {
                name: name.clone(),
                kind: FileKind::BlockDevice,
                mode: 0o640,
                rdev: makedev(0x456, 0x1_2378),
                umask: 0o022,
            },
        ),
        (
            Opcode::MkDir,
            u32s(&[0o1755, 0o027]).text(b"name\0"),
            Operation::MkDir {
                name: name.clone(),
                mode: 0o1755,
                umask: 0o027,
            },
        ),
        (
            Opcode::Link,
            u64s(&[9]).text(b"name\0"),
            Operation::Link {
                target: NodeId(9),
                name: name.clone(),
            },
        ),
        (
            Opcode::Create,
            u32s(&[0o1102, 0o100_644, 0o002, 1]).text(b"name\0"),
            Operation::Create {
                name,
                mode: 0o644,
                umask: 0o002,
                flags: OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
                kill_suidgid: true,
            },
        ),
        (
            Opcode::TmpFile,
            u32s(&[2, 0o100_600, 0o077, 0]).text(b"/\0"),
            Operation::TmpFile {
                mode: 0o600,
                umask: 0o077,
                flags: OFlags::RDWR,
            },
        ),
    ]
}

fn fixtures_of_entries() -> Vec<(Opcode, Body, Operation)> {
    let name = bytes(b"name");
    let rename = |flags| Operation::Rename {
        name: bytes(b"old"),
        new_parent: NodeId(8),
        new_name: bytes(b"new"),
        flags,
    };
    vec![
        (
            Opcode::Lookup,
            text(b"name\0"),
            Operation::Lookup { name: name.clone() },
        ),
        (
            Opcode::Unlink,
            text(b"name\0"),
            Operation::Unlink { name: name.clone() },
        ),
        (Opcode::RmDir, text(b"name\0"), Operation::RmDir { name }),
        (
            Opcode::Rename,
            u64s(&[8]).text(b"old\0new\0"),
            rename(RenameFlags::empty()),
        ),
        (
            Opcode::Rename2,
            u64s(&[8]).u32(&[2, 0]).text(b"old\0new\0"),
            rename(RenameFlags::EXCHANGE),
        ),
    ]
}

fn fixtures_of_attributes() -> Vec<(Opcode, Body, Operation)> {
    // Mode, size, access time now, modification time given, handle, lock owner, kill.
    let valid = 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 9 | 1 << 11;
    let set_attr = u32s(&[valid, 0])
        .u64(&[11, 12, 13, 14, 15, 16])
        .u32(&[17, 18, 19, 0o104_755, 0, 1000, 100, 0]);
    vec![
        (
            Opcode::GetAttr,
            u32s(&[1, 0]).u64(&[5]),
            Operation::GetAttr { fh: Some(Fh(5)) },
        ),
        (
            Opcode::Statx,
            u32s(&[0, 0]).u64(&[5]).u32(&[0x2000, 0x800]),
            Operation::Statx {
                fh: None,
                sync: 0x2000,
                mask: StatxFlags::BTIME,
            },
        ),
        (
            Opcode::SetAttr,
            set_attr,
            Operation::SetAttr(SetAttr {
                fh: Some(Fh(11)),
                mode: Some(0o4755),
                size: Some(12),
                atime: Some(SetTime::Now),
                mtime: Some(SetTime::To(Timestamp {
                    seconds: 15,
                    nanos: 18,
                })),
                lock_owner: Some(LockOwner(13)),
                kill_suidgid: true,
                ..SetAttr::default()
            }),
        ),
        (Opcode::ReadLink, Body::default(), Operation::ReadLink),
        (
            Opcode::Access,
            u32s(&[5, 0]),
            Operation::Access {
                mask: Access::from_bits_retain(5),
            },
        ),
    ]
}

fn fixtures_of_extended_attributes() -> Vec<(Opcode, Body, Operation)> {
    vec![
        (
            Opcode::SetXattr,
            u32s(&[3, 1, 1, 0]).text(b"user.a\0a\0b"),
            Operation::SetXattr {
                name: bytes(b"user.a"),
                value: bytes(b"a\0b"),
                flags: XattrFlags::CREATE,
                acl_kill_sgid: true,
            },
        ),
        (
            Opcode::GetXattr,
            u32s(&[99, 0]).text(b"user.a\0"),
            Operation::GetXattr {
                name: bytes(b"user.a"),
                size: 99,
            },
        ),
        (
            Opcode::ListXattr,
            u32s(&[98, 0]),
            Operation::ListXattr { size: 98 },
        ),
        (
            Opcode::RemoveXattr,
            text(b"user.a\0"),
            Operation::RemoveXattr {
                name: bytes(b"user.a"),
            },
        ),
    ]
}

fn fixtures_of_open_files() -> Vec<(Opcode, Body, Operation)> {
    vec![
        (
            Opcode::Open,
            u32s(&[0o1001, 1]),
            Operation::Open {
                flags: OFlags::WRONLY | OFlags::TRUNC,
                kill_suidgid: true,
            },
        ),
        (
            Opcode::OpenDir,
            u32s(&[0, 0]),
            Operation::OpenDir {
                flags: OFlags::RDONLY,
            },
        ),
        (
            Opcode::Release,
            u64s(&[5]).u32(&[2, 2]).u64(&[6]),
            Operation::Release(Release {
                fh: Fh(5),
                flags: OFlags::RDWR,
                lock_owner: LockOwner(6),
                flush: false,
                flock_unlock: true,
            }),
        ),
        (
            Opcode::ReleaseDir,
            u64s(&[5]).u32(&[0, 0]).u64(&[0]),
            Operation::ReleaseDir {
                fh: Fh(5),
                flags: OFlags::RDONLY,
            },
        ),
        (
            Opcode::Flush,
            u64s(&[5]).u32(&[0, 0]).u64(&[6]),
            Operation::Flush {
                fh: Fh(5),
                lock_owner: LockOwner(6),
            },
        ),
        (
            Opcode::Fsync,
            u64s(&[5]).u32(&[1, 0]),
            Operation::Fsync {
                fh: Fh(5),
                data_only: true,
            },
        ),
        (
            Opcode::FsyncDir,
            u64s(&[5]).u32(&[0, 0]),
            Operation::FsyncDir {
                fh: Fh(5),
                data_only: false,
            },
        ),
    ]
}

fn fixtures_of_contents() -> Vec<(Opcode, Body, Operation)> {
    let page = u64s(&[5, 7]).u32(&[4096, 0]).u64(&[0]).u32(&[0, 0]);
    let read_dir = ReadDir {
        fh: Fh(5),
        offset: 7,
        size: 4096,
    };
    vec![
        (
            Opcode::Read,
            u64s(&[5, 1 << 40])
                .u32(&[8192, 2])
                .u64(&[6])
                .u32(&[0o40000, 0]),
            Operation::Read(Read {
                fh: Fh(5),
                offset: 1 << 40,
                size: 8192,
                lock_owner: Some(LockOwner(6)),
                flags: OFlags::DIRECT,
            }),
        ),
        (
            Opcode::Write,
            u64s(&[5, 9])
                .u32(&[4, 1 | 4])
                .u64(&[6])
                .u32(&[1, 0])
                .text(b"data"),
            Operation::Write(Write {
                fh: Fh(5),
                offset: 9,
                data: bytes(b"data"),
                from_cache: true,
                kill_suidgid: true,
                lock_owner: None,
                flags: OFlags::WRONLY,
            }),
        ),
        (Opcode::ReadDir, page.clone(), Operation::ReadDir(read_dir)),
        (Opcode::ReadDirPlus, page, Operation::ReadDirPlus(read_dir)),
        (Opcode::SyncFs, u64s(&[0]), Operation::SyncFs),
        (Opcode::StatFs, Body::default(), Operation::StatFs),
    ]
}

fn fixtures_of_ranges() -> Vec<(Opcode, Body, Operation)> {
    let copy = |wide| {
        Operation::CopyFileRange(CopyFileRange {
            fh_in: Fh(1),
            offset_in: 2,
            node_out: NodeId(3),
            fh_out: Fh(4),
            offset_out: 5,
            length: 6,
            flags: 7,
            wide,
        })
    };
    vec![
        (
            Opcode::CopyFileRange,
            u64s(&[1, 2, 3, 4, 5, 6, 7]),
            copy(false),
        ),
        (
            Opcode::CopyFileRange64,
            u64s(&[1, 2, 3, 4, 5, 6, 7]),
            copy(true),
        ),
        (
            Opcode::Fallocate,
            u64s(&[5, 6, 7]).u32(&[3, 0]),
            Operation::Fallocate {
                fh: Fh(5),
                offset: 6,
                length: 7,
                mode: FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
            },
        ),
    ]
}

fn fixtures_of_places() -> Vec<(Opcode, Body, Operation)> {
    vec![
        (
            Opcode::Lseek,
            u64s(&[5, 6]).u32(&[4, 0]),
            Operation::Lseek {
                fh: Fh(5),
                offset: 6,
                whence: Whence::Hole,
            },
        ),
        (
            Opcode::BMap,
            u64s(&[5]).u32(&[512, 0]),
            Operation::BMap {
                block: 5,
                block_bytes: 512,
            },
        ),
        (
            Opcode::Ioctl,
            u64s(&[5])
                .u32(&[16, 0x6601])
                .u64(&[6])
                .u32(&[2, 8])
                .text(b"in"),
            Operation::Ioctl(Ioctl {
                fh: Fh(5),
                command: 0x6601,
                argument: 6,
                input: bytes(b"in"),
                output_size: 8,
                flags: 16,
            }),
        ),
        (
            Opcode::Poll,
            u64s(&[5, 6]).u32(&[1, 4]),
            Operation::Poll {
                fh: Fh(5),
                poll_handle: PollHandle(6),
                notify: true,
                events: 4,
            },
        ),
    ]
}

fn fixtures_of_locks() -> Vec<(Opcode, Body, Operation)> {
    let body = |kind, flags| u64s(&[5, 6, 10, u64::MAX >> 1]).u32(&[kind, 4321, flags, 0]);
    let lock = |kind, family| LockRequest {
        fh: Fh(5),
        owner: LockOwner(6),
        family,
        lock: Lock {
            kind,
            start: 10,
            end: Lock::END,
            pid: 4321,
        },
    };
    vec![
        (
            Opcode::GetLk,
            body(0, 0),
            Operation::GetLk(lock(LockKind::Read, LockFamily::Posix)),
        ),
        (
            Opcode::SetLk,
            body(2, 1),
            Operation::SetLk {
                lock: lock(LockKind::Unlock, LockFamily::Flock),
                wait: false,
            },
        ),
        (
            Opcode::SetLkW,
            body(1, 0),
            Operation::SetLk {
                lock: lock(LockKind::Write, LockFamily::Posix),
                wait: true,
            },
        ),
    ]
}
