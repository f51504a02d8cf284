//! Each operation through the export and by a local user, on two equal trees: same answer, same tree
//! afterwards.
//!
//! A case is a directory, a file in it, a user and an operation. The local side is a thread that is
//! that user altogether ([`LocalUser`]) and names things by path; the served side walks by handle
//! and name as the same user. Neither knows what the right answer is: the kernel gives it.

use crate::common::{LocalUser, Mounted, Served, ext4, is_root, name, shell};
use base::{AttributeChange, FileKind, FsError, Principal, SetTime, Timestamp};
use export::{Access, Create, OpenOptions, RenameMode, Rights, XattrMode};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const ALICE: u32 = 2001;
const BOB: u32 = 2002;
const STAFF: u32 = 3001;
const OTHERS: u32 = 3005;

fn users() -> Vec<Principal> {
    vec![
        Principal::root(),
        Principal::new(ALICE, 3011, vec![STAFF]),
        Principal::new(BOB, STAFF, vec![OTHERS, 3012]),
        Principal::alone(2003, 3013),
        // Uid 0 has root's rights whatever its groups; gid 0 alone has none.
        Principal::new(0, STAFF, vec![OTHERS]),
        Principal::alone(2004, 0),
    ]
}

/// Shell lines that make the directory `d` (owner alice, group staff) in which a case happens.
const DIRECTORIES: &[&str] = &[
    "chmod 755 d",
    "chmod 770 d",
    "chmod 1777 d",
    "chmod 2775 d",
    "chmod 777 d; setfacl -d -m u::rwx,g::rx,o::-,u:2002:rw,m::rwx d",
    "chmod 700 d; setfacl -m u:2003:rwx d",
    "chmod 333 d",
    "chmod 555 d",
    "chmod 3777 d; chown 2003:3005 d",
];

/// Shell lines that make the file `d/f`, the directory `d/s` and the link `d/l`.
const FILES: &[&str] = &[
    "chmod 644 f",
    "chmod 4755 f",
    "chmod 2755 f; chown 2002:3001 f; chmod 2755 f",
    "chmod 2745 f",
    "chmod 6777 f",
    "chmod 0 f; chown 0:0 f",
    "chmod 600 f; setfacl -m u:2002:rw,g:3013:r f",
    "chmod 460 f; chown 2003:3005 f",
    "chmod 6711 f; chown 2002:3005 f; chmod 6711 f",
];

#[derive(Clone, Copy, Debug)]
enum Op {
    Create {
        mode: u16,
        umask: u16,
        exclusive: bool,
        there: bool,
    },
    MakeDirectory {
        mode: u16,
        umask: u16,
    },
    MakeNode {
        kind: FileKind,
        mode: u16,
    },
    Symlink,
    Link,
    Unlink,
    UnlinkDirectory,
    RemoveDirectory,
    RemoveFile,
    Rename {
        to: &'static str,
        mode: RenameMode,
    },
    Chmod(u16),
    Chown(Option<u32>, Option<u32>),
    Truncate(u64),
    TruncateOpen,
    Times(Option<SetTime>, Option<SetTime>),
    Open {
        access: Access,
        truncate: bool,
    },
    Write {
        access: Access,
        append: bool,
    },
    Punch,
    MayDo(Rights),
    SetXattr(&'static str, &'static [u8]),
    SetAcl,
    GetXattr(&'static str),
    ListXattrs,
    RemoveXattr(&'static str),
    List,
    ReadLink,
    Attributes,
}

const OLD: SetTime = SetTime::To(Timestamp {
    seconds: 1_000_000_000,
    nanos: 123_456_789,
});
const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn operations() -> Vec<Op> {
    use FileKind::{BlockDevice, CharDevice, Fifo, File, Socket};
    let rights = |read, write, execute| {
        Op::MayDo(Rights {
            read,
            write,
            execute,
        })
    };
    let mut all = vec![
        Op::Create {
            mode: 0o6777,
            umask: 0o027,
            exclusive: true,
            there: false,
        },
        Op::Create {
            mode: 0o444,
            umask: 0,
            exclusive: false,
            there: false,
        },
        Op::Create {
            mode: 0o666,
            umask: 0o022,
            exclusive: true,
            there: true,
        },
        Op::Create {
            mode: 0o666,
            umask: 0o022,
            exclusive: false,
            there: true,
        },
        Op::MakeDirectory {
            mode: 0o1777,
            umask: 0o022,
        },
        Op::MakeDirectory {
            mode: 0o770,
            umask: 0,
        },
        Op::Symlink,
        Op::Link,
        Op::Unlink,
        Op::UnlinkDirectory,
        Op::RemoveDirectory,
        Op::RemoveFile,
        Op::Rename {
            to: "d/n",
            mode: RenameMode::Replace,
        },
        Op::Rename {
            to: "d/l",
            mode: RenameMode::Replace,
        },
        Op::Rename {
            to: "d/l",
            mode: RenameMode::NoReplace,
        },
        Op::Rename {
            to: "d/l",
            mode: RenameMode::Exchange,
        },
        Op::Rename {
            to: "d/n",
            mode: RenameMode::Exchange,
        },
        Op::Rename {
            to: "e/n",
            mode: RenameMode::Replace,
        },
        Op::Rename {
            to: "d/s",
            mode: RenameMode::Replace,
        },
        Op::Chown(Some(BOB), None),
        Op::Chown(None, Some(STAFF)),
        Op::Chown(None, Some(OTHERS)),
        Op::Chown(Some(ALICE), Some(STAFF)),
        Op::Truncate(0),
        Op::Truncate(100_000),
        Op::Truncate(u64::MAX >> 1),
        Op::TruncateOpen,
        Op::Times(Some(SetTime::Now), Some(SetTime::Now)),
        Op::Times(Some(OLD), Some(OLD)),
        Op::Times(None, Some(OLD)),
        Op::Times(Some(SetTime::Now), None),
        Op::Punch,
        rights(false, false, false),
        rights(true, false, false),
        rights(false, true, false),
        rights(false, false, true),
        rights(true, true, true),
        Op::SetXattr("user.colour", b"blue"),
        Op::SetXattr("trusted.colour", b"blue"),
        Op::SetXattr("security.capability", CAPABILITY),
        Op::SetAcl,
        Op::GetXattr("user.there"),
        Op::GetXattr("user.missing"),
        Op::GetXattr("system.posix_acl_access"),
        Op::ListXattrs,
        Op::RemoveXattr("user.there"),
        Op::RemoveXattr("system.posix_acl_access"),
        Op::List,
        Op::ReadLink,
        Op::Attributes,
    ];
    all.extend([0o644, 0o4755, 0o2755, 0o7777].map(Op::Chmod));
    for access in [Access::Read, Access::Write, Access::ReadWrite] {
        all.extend([false, true].map(|truncate| Op::Open { access, truncate }));
    }
    all.extend([false, true].map(|append| Op::Write {
        access: Access::Write,
        append,
    }));
    all.push(Op::Write {
        access: Access::Read,
        append: false,
    });
    for kind in [File, Fifo, Socket, CharDevice, BlockDevice] {
        all.push(Op::MakeNode { kind, mode: 0o666 });
    }
    all
}

/// What an operation said beside success: data, names.
type Outcome = Result<String, FsError>;

fn access_flags(access: Access) -> OFlags {
    match access {
        Access::Read | Access::Execute => OFlags::RDONLY,
        Access::Write => OFlags::WRONLY,
        Access::ReadWrite => OFlags::RDWR,
    }
}

/// The numbers that occur here, written down a second time so that the export's table is not its own
/// judge.
fn answer(errno: Errno) -> FsError {
    match errno {
        Errno::PERM => FsError::NotPermitted,
        Errno::ACCESS => FsError::AccessDenied,
        Errno::NOENT => FsError::NotFound,
        Errno::EXIST => FsError::Exists,
        Errno::NOTDIR => FsError::NotDirectory,
        Errno::ISDIR => FsError::IsDirectory,
        Errno::NOTEMPTY => FsError::NotEmpty,
        Errno::BADF => FsError::BadOpen,
        Errno::INVAL => FsError::Invalid,
        Errno::NODATA => FsError::NoData,
        Errno::OPNOTSUPP => FsError::NotSupported,
        Errno::FBIG => FsError::FileTooLarge,
        Errno::LOOP => FsError::Loop,
        other => panic!("not expected here: {other:?}"),
    }
}

/// The operation as a local process does it, below `base`.
fn locally(op: Op, base: &Path) -> Outcome {
    let path = |relative: &str| base.join(relative);
    let file = path("d/f");
    let done = |result: Result<(), Errno>| result.map(|()| String::new()).map_err(answer);
    match op {
        Op::Create { .. } | Op::Open { .. } | Op::Write { .. } | Op::TruncateOpen | Op::Punch => {
            open_locally(op, base).map_err(answer)
        }
        Op::MakeDirectory { mode, umask } => {
            rustix::process::umask(Mode::from_raw_mode(umask.into()));
            done(rustix::fs::mkdir(
                path("d/n"),
                Mode::from_raw_mode(mode.into()),
            ))
        }
        Op::MakeNode { kind, mode } => {
            rustix::process::umask(Mode::empty());
            let (kind, mode) = (file_type(kind), Mode::from_raw_mode(mode.into()));
            done(rustix::fs::mknodat(
                rustix::fs::CWD,
                path("d/n"),
                kind,
                mode,
                0x103,
            ))
        }
        Op::Symlink => done(rustix::fs::symlink("../../etc", path("d/n"))),
        Op::Link => done(rustix::fs::link(file, path("d/n"))),
        Op::Unlink => done(rustix::fs::unlink(file)),
        Op::UnlinkDirectory => done(rustix::fs::unlink(path("d/s"))),
        Op::RemoveDirectory => done(rustix::fs::rmdir(path("d/s"))),
        Op::RemoveFile => done(rustix::fs::rmdir(file)),
        Op::Rename { to, mode } => {
            let flags = match mode {
                RenameMode::Replace => RenameFlags::empty(),
                RenameMode::NoReplace => RenameFlags::NOREPLACE,
                RenameMode::Exchange => RenameFlags::EXCHANGE,
            };
            let cwd = rustix::fs::CWD;
            done(rustix::fs::renameat_with(cwd, file, cwd, path(to), flags))
        }
        Op::Chmod(mode) => done(rustix::fs::chmod(file, Mode::from_raw_mode(mode.into()))),
        Op::Chown(uid, gid) => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            done(rustix::fs::chown(file, uid, gid))
        }
        Op::Truncate(size) => truncate_locally(&file, size).map_err(answer),
        Op::Times(accessed, modified) => {
            let times = Timestamps {
                last_access: spec(accessed),
                last_modification: spec(modified),
            };
            done(rustix::fs::utimensat(
                rustix::fs::CWD,
                file,
                &times,
                AtFlags::empty(),
            ))
        }
        Op::MayDo(rights) => {
            let mut wanted = rustix::fs::Access::empty();
            wanted.set(rustix::fs::Access::READ_OK, rights.read);
            wanted.set(rustix::fs::Access::WRITE_OK, rights.write);
            wanted.set(rustix::fs::Access::EXEC_OK, rights.execute);
            done(rustix::fs::access(file, wanted))
        }
        Op::SetXattr(name, value) => {
            done(rustix::fs::setxattr(file, name, value, XattrFlags::empty()))
        }
        Op::SetAcl => {
            let acl = "system.posix_acl_access";
            done(rustix::fs::setxattr(
                file,
                acl,
                &acl_value(),
                XattrFlags::empty(),
            ))
        }
        Op::GetXattr(name) => {
            let mut value = vec![0; 1024];
            let len = rustix::fs::getxattr(file, name, &mut value).map_err(answer)?;
            Ok(format!("{:?}", &value[..len]))
        }
        Op::ListXattrs => {
            let mut list = vec![0; 1024];
            let len = rustix::fs::listxattr(file, &mut list).map_err(answer)?;
            let names = list[..len]
                .split(|b| *b == 0)
                .filter(|name| !name.is_empty());
            Ok(sorted(names.map(<[u8]>::to_vec)))
        }
        Op::RemoveXattr(name) => done(rustix::fs::removexattr(file, name)),
        Op::List => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let fd = rustix::fs::open(path("d"), flags, Mode::empty()).map_err(answer)?;
            let entries = rustix::fs::Dir::new(fd).expect("a directory");
            let names =
                entries.map(|entry| entry.expect("readable").file_name().to_bytes().to_vec());
            Ok(sorted(
                names.filter(|name| !matches!(&name[..], b"." | b"..")),
            ))
        }
        Op::ReadLink => {
            let target = rustix::fs::readlink(path("d/l"), Vec::new()).map_err(answer)?;
            Ok(format!("{target:?}"))
        }
        Op::Attributes => {
            let stat = rustix::fs::lstat(file).map_err(answer)?;
            Ok(format!(
                "{} {} {}",
                stat.st_mode & 0o7777,
                stat.st_uid,
                stat.st_gid
            ))
        }
    }
}

fn open_locally(op: Op, base: &Path) -> Result<String, Errno> {
    let file = base.join("d/f");
    let open = |path: &Path, flags| rustix::fs::open(path, flags, Mode::empty());
    match op {
        Op::Create {
            mode,
            umask,
            exclusive,
            there,
        } => {
            rustix::process::umask(Mode::from_raw_mode(umask.into()));
            let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
            flags.set(OFlags::EXCL, exclusive);
            let path = if there { file } else { base.join("d/n") };
            let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(mode.into()))?;
            rustix::io::pwrite(&fd, b"new", 0)?;
        }
        Op::Open { access, truncate } => {
            let mut flags = access_flags(access);
            flags.set(OFlags::TRUNC, truncate);
            open(&file, flags)?;
        }
        Op::Write { access, append } => {
            let mut flags = access_flags(access);
            flags.set(OFlags::APPEND, append);
            rustix::io::write(open(&file, flags)?, b"written")?;
        }
        Op::TruncateOpen => rustix::fs::ftruncate(open(&file, OFlags::RDWR)?, 2)?,
        Op::Punch => {
            let flags =
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(open(&file, OFlags::RDWR)?, flags, 0, 2)?;
        }
        _ => unreachable!("only operations that open"),
    }
    Ok(String::new())
}

/// truncate(2) by way of the shell's tool would open the file; the standard library has no such call,
/// so an open for writing and ftruncate stand in for it, which the kernel judges alike.
fn truncate_locally(file: &Path, size: u64) -> Result<String, Errno> {
    let fd = rustix::fs::open(file, OFlags::WRONLY, Mode::empty())?;
    rustix::fs::ftruncate(fd, size).map(|()| String::new())
}

/// The same operation through the export, as the same user.
fn served(op: Op, tree: &Served, top: &str, who: &Principal) -> Outcome {
    let (export, worker) = (&tree.export, &tree.worker);
    let base = tree.find(top).handle;
    let lookup = |parent, part| Ok(export.lookup(worker, who, parent, &name(part))?.handle);
    let directory = lookup(&base, "d")?;
    let file = || lookup(&directory, "f");
    let new = name("n");
    let done = |result: Result<(), FsError>| result.map(|()| String::new());
    let change = |change: AttributeChange| {
        let after = export.set_attributes(worker, who, &file()?, &change, None)?;
        assert_eq!(export.attributes(worker, who, &file()?), Ok(after));
        Ok(String::new())
    };
    match op {
        Op::Create { .. } | Op::Open { .. } | Op::Write { .. } | Op::TruncateOpen | Op::Punch => {
            open_served(op, tree, &directory, who)
        }
        Op::MakeDirectory { mode, umask } => done(
            export
                .make_directory(worker, who, &directory, &new, mode, umask)
                .map(drop),
        ),
        Op::MakeNode { kind, mode } => done(
            export
                .make_node(worker, who, &directory, &new, kind, mode, 0, 0x103)
                .map(drop),
        ),
        Op::Symlink => done(
            export
                .make_symlink(worker, who, &directory, &new, b"../../etc")
                .map(drop),
        ),
        Op::Link => done(
            export
                .link(worker, who, &file()?, &directory, &new)
                .map(drop),
        ),
        Op::Unlink => done(export.unlink(worker, who, &directory, &name("f")).map(drop)),
        Op::UnlinkDirectory => done(export.unlink(worker, who, &directory, &name("s")).map(drop)),
        Op::RemoveDirectory => done(
            export
                .remove_directory(worker, who, &directory, &name("s"))
                .map(drop),
        ),
        Op::RemoveFile => done(
            export
                .remove_directory(worker, who, &directory, &name("f"))
                .map(drop),
        ),
        Op::Rename { to, mode } => {
            let (parent, to) = to.split_once('/').expect("directory and name");
            let (parent, to) = (lookup(&base, parent)?, name(to));
            let from = name("f");
            done(
                export
                    .rename(worker, who, &directory, &from, &parent, &to, mode)
                    .map(drop),
            )
        }
        Op::Chmod(mode) => change(AttributeChange {
            mode: Some(mode),
            ..Default::default()
        }),
        Op::Chown(uid, gid) => change(AttributeChange {
            uid,
            gid,
            ..Default::default()
        }),
        Op::Truncate(size) => change(AttributeChange {
            size: Some(size),
            ..Default::default()
        }),
        Op::Times(accessed, modified) => change(AttributeChange {
            accessed,
            modified,
            ..Default::default()
        }),
        Op::MayDo(rights) => done(export.check_access(worker, who, &file()?, rights)),
        Op::SetXattr(name, value) => {
            let set = XattrMode::Set;
            done(export.set_xattr(worker, who, &file()?, name.as_bytes(), value, set))
        }
        Op::SetAcl => {
            let (acl, value) = (b"system.posix_acl_access", acl_value());
            done(export.set_xattr(worker, who, &file()?, acl, &value, XattrMode::Set))
        }
        Op::GetXattr(name) => {
            let value = export.get_xattr(worker, who, &file()?, name.as_bytes())?;
            Ok(format!("{value:?}"))
        }
        Op::ListXattrs => Ok(sorted(
            export.list_xattrs(worker, who, &file()?)?.into_iter(),
        )),
        Op::RemoveXattr(name) => done(export.remove_xattr(worker, who, &file()?, name.as_bytes())),
        Op::List => {
            let page = export.read_directory(worker, who, &directory, 0, 100, true)?;
            assert!(page.end);
            Ok(sorted(
                page.entries
                    .into_iter()
                    .map(|entry| entry.name.as_bytes().to_vec()),
            ))
        }
        Op::ReadLink => {
            let target = export.read_link(worker, who, &lookup(&directory, "l")?)?;
            Ok(format!(
                "{:?}",
                std::ffi::CString::new(target).expect("no NUL")
            ))
        }
        Op::Attributes => {
            let found = export.attributes(worker, who, &file()?)?;
            Ok(format!("{} {} {}", found.mode, found.uid, found.gid))
        }
    }
}

fn open_served(op: Op, tree: &Served, directory: &base::Handle, who: &Principal) -> Outcome {
    let (export, worker) = (&tree.export, &tree.worker);
    let open = |access, truncate, append| {
        let file = export.lookup(worker, who, directory, &name("f"))?.handle;
        export.open_file(
            worker,
            who,
            &file,
            OpenOptions {
                access,
                truncate,
                append,
            },
        )
    };
    match op {
        Op::Create {
            mode,
            umask,
            exclusive,
            there,
        } => {
            let open = OpenOptions::new(Access::ReadWrite);
            let how = Create {
                mode,
                umask,
                exclusive,
                open,
            };
            let path = name(if there { "f" } else { "n" });
            let created = export.create(worker, who, directory, &path, &how)?;
            assert_eq!(created.created, !there);
            created.file.write_at(worker, who, 0, b"new")?;
        }
        Op::Open { access, truncate } => drop(open(access, truncate, false)?),
        Op::Write { access, append } => {
            let written = open(access, false, append)?.write_at(worker, who, 0, b"written")?;
            assert_eq!(written.offset, if append { 4 } else { 0 });
        }
        Op::TruncateOpen => open(Access::ReadWrite, false, false)?.truncate(worker, who, 2)?,
        Op::Punch => {
            let (mode, extent) = (export::AllocateMode::PunchHole, base::Extent::new(0, 2));
            open(Access::ReadWrite, false, false)?.allocate(worker, who, mode, extent)?;
        }
        _ => unreachable!("only operations that open"),
    }
    Ok(String::new())
}

fn sorted(names: impl Iterator<Item = Vec<u8>>) -> String {
    let mut names: Vec<_> = names
        .map(|n| String::from_utf8_lossy(&n).into_owned())
        .collect();
    names.sort();
    names.join(" ")
}

/// `u::rw,u:2003:rwx,g::r,m::rwx,o::-` as the kernel's version 2 of it.
fn acl_value() -> Vec<u8> {
    let nobody = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (1, 6, nobody),
        (2, 7, 2003),
        (4, 4, nobody),
        (0x10, 7, nobody),
        (0x20, 0, nobody),
    ];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn spec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        Some(SetTime::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        },
        Some(SetTime::To(t)) => Timespec {
            tv_sec: t.seconds,
            tv_nsec: t.nanos.into(),
        },
    }
}

fn file_type(kind: FileKind) -> rustix::fs::FileType {
    match kind {
        FileKind::File => rustix::fs::FileType::RegularFile,
        FileKind::Fifo => rustix::fs::FileType::Fifo,
        FileKind::Socket => rustix::fs::FileType::Socket,
        FileKind::CharDevice => rustix::fs::FileType::CharacterDevice,
        FileKind::BlockDevice => rustix::fs::FileType::BlockDevice,
        FileKind::Directory | FileKind::Symlink => unreachable!("have calls of their own"),
    }
}

/// Everything about a tree that a user could see, except inode numbers and the time of day.
fn describe(base: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![PathBuf::from(".")];
    while let Some(relative) = todo.pop() {
        let path = base.join(&relative);
        let meta = std::fs::symlink_metadata(&path).expect("root sees everything");
        let xattrs = xattrs(&path);
        let contents = if meta.is_file() && meta.size() < 10_000 {
            std::fs::read(&path).expect("readable")
        } else {
            Vec::new()
        };
        let old = |time: i64| {
            if time == 1_000_000_000 {
                "old"
            } else {
                "recent"
            }
        };
        lines.push(format!(
            "{} {:o} {}:{} {} {} {} {} {} {contents:?} {xattrs:?}",
            relative.display(),
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.size(),
            meta.nlink(),
            meta.rdev(),
            old(meta.atime()),
            old(meta.mtime()),
        ));
        if meta.is_dir() {
            let entries = std::fs::read_dir(&path).expect("root lists everything");
            todo.extend(entries.map(|e| relative.join(e.expect("readable").file_name())));
        }
    }
    lines.sort();
    lines
}

/// Copies a tree with everything that [`describe`] looks at.
fn copy(from: &Path, to: &Path) {
    let meta = std::fs::symlink_metadata(from).expect("there");
    if meta.is_symlink() {
        let target = std::fs::read_link(from).expect("a link");
        std::os::unix::fs::symlink(target, to).expect("a free name");
    } else if meta.is_dir() {
        std::fs::create_dir(to).expect("a free name");
        for entry in std::fs::read_dir(from).expect("a directory") {
            let name = entry.expect("readable").file_name();
            copy(&from.join(&name), &to.join(&name));
        }
    } else {
        std::fs::write(to, std::fs::read(from).expect("readable")).expect("a free name");
    }
    let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(rustix::fs::CWD, to, Some(uid), Some(gid), flags).expect("root may");
    if !meta.is_symlink() {
        std::fs::set_permissions(to, meta.permissions()).expect("root may");
        for (name, value) in xattrs(from) {
            rustix::fs::setxattr(to, &*name, &value, XattrFlags::empty()).expect("root may");
        }
    }
}

fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut list).expect("listable");
    let names = list[..len]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty());
    let values = names.map(|name| {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(path, name, &mut value).expect("readable");
        (
            String::from_utf8_lossy(name).into_owned(),
            value[..len].to_vec(),
        )
    });
    values.collect()
}

/// One tree per side, made once for each directory and file; a case runs on copies.
struct Sides<'a> {
    tree: &'a Served,
    root: LocalUser,
    locals: Vec<LocalUser>,
    sets: usize,
    cases: usize,
    differences: Vec<String>,
    /// How many cases ended in each answer, to see that the table is worth something.
    refused: usize,
}

impl Sides<'_> {
    fn compare_all(&mut self, directory: &str, file: &str) {
        self.sets += 1;
        let set = format!("set{}", self.sets);
        let top = self.tree.path.join(&set);
        shell(&format!(
            "mkdir -p {0}/model && cd {0}/model && mkdir d e && chmod 777 e && cd d \
             && mkdir s && ln -s ../f l && printf text > f && chown 2001:3001 f s . \
             && setfattr -n user.there -v yes f && {file}; cd .. && {directory}",
            top.display()
        ));
        let cases = operations().len() * self.locals.len();
        self.root.run(move || {
            for case in 0..cases {
                copy(&top.join("model"), &top.join(format!("l{case}")));
                copy(&top.join("model"), &top.join(format!("s{case}")));
            }
        });
        let mut case = 0;
        for user in 0..self.locals.len() {
            for op in operations() {
                let sides = [format!("{set}/l{case}"), format!("{set}/s{case}")];
                self.compare(op, user, sides, &format!("{directory} / {file}"));
                case += 1;
            }
        }
    }

    fn compare(&mut self, op: Op, user: usize, [local, served_top]: [String; 2], setup: &str) {
        let (local_path, served_path) =
            (self.tree.path.join(local), self.tree.path.join(&served_top));
        let base = local_path.clone();
        let who = self.locals[user].principal.clone();
        let local = self.locals[user].run(move || locally(op, &base));
        let through = served(op, self.tree, &served_top, &who);
        self.cases += 1;
        self.refused += usize::from(local.is_err());
        // The test's own thread is whoever the worker acted for last.
        let describe_both = move || (describe(&local_path), describe(&served_path));
        let (a, b) = self.root.run(describe_both);
        if local != through || a != b {
            let trees: Vec<_> = a.iter().zip(&b).filter(|(a, b)| a != b).collect();
            self.differences.push(format!(
                "{setup}: {op:?} as {}:{}: locally {local:?}, served {through:?}, {trees:#?}",
                who.uid, who.gid
            ));
        }
    }
}

fn compare_on(tree: &Served, tables: &[(&[&str], &[&str])]) {
    // Threads take after the one that starts them, so these start before it acts for anybody.
    let locals = users().into_iter().map(LocalUser::new).collect();
    let root = LocalUser::new(Principal::root());
    let mut sides = Sides {
        tree,
        root,
        locals,
        sets: 0,
        cases: 0,
        differences: Vec::new(),
        refused: 0,
    };
    for (directories, files) in tables {
        for directory in *directories {
            files
                .iter()
                .for_each(|file| sides.compare_all(directory, file));
        }
    }
    let shown = sides
        .differences
        .iter()
        .take(20)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    let Sides { cases, refused, .. } = sides;
    eprintln!("{cases} cases, {refused} refused");
    assert!(
        sides.differences.is_empty(),
        "{} of {cases}:\n{shown}",
        sides.differences.len()
    );
    assert!(
        refused * 10 > cases && refused * 10 < cases * 9,
        "one-sided table: {refused}"
    );
}

#[test]
fn every_operation_is_judged_as_locally_on_ext4() {
    if !is_root() {
        return;
    }
    // Every directory with one file, every file in one directory: the pairs that interact.
    let tables = [
        (DIRECTORIES, &FILES[..1]),
        (&DIRECTORIES[2..3], &FILES[1..]),
    ];
    let Some(mounted) = ext4() else { return };
    compare_on(&Served::at(&mounted.path), &tables);
}

#[test]
fn every_operation_is_judged_as_locally_on_xfs() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::image("mkfs.xfs", &["-q"], 512 << 20, "noatime") else {
        return;
    };
    compare_on(
        &Served::at(&mounted.path),
        &[(&DIRECTORIES[3..4], &FILES[2..3])],
    );
}

#[test]
fn every_operation_is_judged_as_locally_on_tmpfs() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(256 << 20) else {
        return;
    };
    let tree = Served::at(&mounted.path);
    compare_on(&tree, &[(&DIRECTORIES[4..5], &FILES[4..7])]);
}
