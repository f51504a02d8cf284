//! The oracle: the same operations as system calls, made by threads that are those users
//! altogether, on a file system of its own. Inodes are descriptors, so nothing is asked of the
//! directories above them, as with handles.

use crate::history::{Op, Outcome, sorted};
use base::{AttributeChange, FileKind, FsError, Principal, SetTime};
use meta::namespace::RenameMode;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};

/// A file system that is mounted for one test.
pub(crate) struct Mounted {
    pub(crate) path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Mounted {
    /// An ext4 in memory; none, with a reason, where that is not possible.
    pub(crate) fn ext4() -> Option<Self> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let directory = tempfile::tempdir_in(place).unwrap();
        let image = directory.path().join("image");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        let image = image.to_str().unwrap().to_owned();
        let mut mkfs = Command::new("mkfs.ext4");
        if !quiet(mkfs.args(["-q", "-b", "4096", "-I", "256", &image])) {
            println!("skipped: mkfs.ext4 does not run here");
            return None;
        }
        Self::mount(directory, &["-o", "loop,noatime", &image])
    }

    /// A tmpfs.
    pub(crate) fn tmpfs() -> Option<Self> {
        let options = ["-t", "tmpfs", "-o", "size=64m,mode=755,noatime", "tmpfs"];
        Self::mount(tempfile::tempdir().unwrap(), &options)
    }

    fn mount(directory: tempfile::TempDir, arguments: &[&str]) -> Option<Self> {
        let path = directory.path().join("mnt");
        std::fs::create_dir(&path).unwrap();
        if !rustix::process::geteuid().is_root()
            || !quiet(Command::new("mount").args(arguments).arg(&path))
        {
            println!("skipped: mounting takes root");
            return None;
        }
        Some(Self {
            path,
            _directory: directory,
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a failing test may still hold descriptors.
        quiet(Command::new("umount").arg("-l").arg(&self.path));
    }
}

fn quiet(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that is a user in every respect, as a process of that user would be.
pub(crate) struct LocalUser {
    jobs: mpsc::Sender<Job>,
}

impl LocalUser {
    pub(crate) fn new(principal: Principal) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            become_user(&principal);
            queue.into_iter().for_each(|job| job());
        });
        Self { jobs }
    }

    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (reply, result) = mpsc::channel();
        let job = move || reply.send(job()).unwrap();
        self.jobs.send(Box::new(job)).unwrap();
        result.recv().unwrap()
    }
}

fn become_user(who: &Principal) {
    use rustix::thread::{Gid, Uid};
    #[expect(
        deprecated,
        reason = "safe with the one flag that concerns no descriptor"
    )]
    rustix::thread::unshare(rustix::thread::UnshareFlags::FS).unwrap();
    let groups: Vec<_> = who.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups).unwrap();
    let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
    rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
}

/// What the kernel's numbers are called; those that can occur.
pub(crate) fn answer(errno: Errno) -> FsError {
    match errno {
        Errno::PERM => FsError::NotPermitted,
        Errno::ACCESS => FsError::AccessDenied,
        Errno::NOENT => FsError::NotFound,
        Errno::EXIST => FsError::Exists,
        Errno::NOTDIR => FsError::NotDirectory,
        Errno::ISDIR => FsError::IsDirectory,
        Errno::NOTEMPTY => FsError::NotEmpty,
        Errno::INVAL => FsError::Invalid,
        Errno::NODATA => FsError::NoData,
        Errno::OPNOTSUPP => FsError::NotSupported,
        Errno::LOOP => FsError::Loop,
        Errno::FBIG => FsError::FileTooLarge,
        Errno::NXIO => FsError::NoSuchAddress,
        other => panic!("not expected here: {other:?}"),
    }
}

/// A descriptor of an inode itself, without rights.
pub(crate) const PIN: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The inodes that are known, by number.
pub(crate) type Pins = Vec<Arc<OwnedFd>>;

fn path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

pub(crate) fn kind_of(fd: impl AsFd) -> FileKind {
    match FileType::from_raw_mode(rustix::fs::fstat(fd).unwrap().st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => panic!("no kind"),
    }
}

fn done<T>(result: Result<T, Errno>) -> Result<String, Errno> {
    result.map(|_| String::new())
}

fn bits(mode: u16) -> Mode {
    Mode::from_raw_mode(mode.into())
}

/// Carries an operation out; to be called by the user's own thread.
pub(crate) fn carry_out(op: &Op, pins: &Pins) -> Outcome {
    let result = match op {
        Op::Open(..) | Op::Set(..) | Op::Access(..) | Op::List(_) | Op::ReadLink(_) => {
            on_inode(op, pins)
        }
        Op::SetXattr(..)
        | Op::SetAcl(..)
        | Op::GetXattr(..)
        | Op::ListXattrs(_)
        | Op::RemoveXattr(..) => on_xattrs(op, pins),
        _ => on_names(op, pins),
    };
    result.map_err(answer)
}

fn on_names(op: &Op, pins: &Pins) -> Result<String, Errno> {
    let umask = |umask: u16| {
        rustix::process::umask(bits(umask));
    };
    done(match op {
        Op::Lookup(at, name) => {
            rustix::fs::openat(&pins[*at], name.as_bytes(), PIN, Mode::empty()).map(drop)
        }
        Op::Create(at, name, mode, mask) => {
            umask(*mask);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            rustix::fs::openat(&pins[*at], name.as_bytes(), flags, bits(*mode)).map(drop)
        }
        Op::MakeDirectory(at, name, mode, mask) => {
            umask(*mask);
            rustix::fs::mkdirat(&pins[*at], name.as_bytes(), bits(*mode))
        }
        Op::MakeNode(at, name, kind, mode, mask, device) => {
            umask(*mask);
            let kind = match kind {
                FileKind::File => FileType::RegularFile,
                FileKind::Fifo => FileType::Fifo,
                FileKind::Socket => FileType::Socket,
                FileKind::CharDevice => FileType::CharacterDevice,
                _ => FileType::BlockDevice,
            };
            rustix::fs::mknodat(&pins[*at], name.as_bytes(), kind, bits(*mode), *device)
        }
        Op::Symlink(at, name, target) => {
            rustix::fs::symlinkat(*target, &pins[*at], name.as_bytes())
        }
        Op::Link(node, at, name) => {
            let (source, follow) = (path(&pins[*node]), AtFlags::SYMLINK_FOLLOW);
            rustix::fs::linkat(CWD, source, &pins[*at], name.as_bytes(), follow)
        }
        Op::Unlink(at, name) => rustix::fs::unlinkat(&pins[*at], name.as_bytes(), AtFlags::empty()),
        Op::RemoveDirectory(at, name) => {
            rustix::fs::unlinkat(&pins[*at], name.as_bytes(), AtFlags::REMOVEDIR)
        }
        Op::Rename(at, name, to, to_name, mode) => {
            let flags = match mode {
                RenameMode::Replace => RenameFlags::empty(),
                RenameMode::NoReplace => RenameFlags::NOREPLACE,
                RenameMode::Exchange => RenameFlags::EXCHANGE,
            };
            let (old, new) = (name.as_bytes(), to_name.as_bytes());
            rustix::fs::renameat_with(&pins[*at], old, &pins[*to], new, flags)
        }
        other => unreachable!("{other:?}"),
    })
}

fn on_inode(op: &Op, pins: &Pins) -> Result<String, Errno> {
    match op {
        Op::Open(node, read, write, truncate) => {
            let mut flags = match (read, write) {
                (true, true) => OFlags::RDWR,
                (false, true) => OFlags::WRONLY,
                _ => OFlags::RDONLY,
            };
            match kind_of(&pins[*node]) {
                FileKind::File => {}
                FileKind::Directory => return Err(Errno::ISDIR),
                FileKind::Symlink => return Err(Errno::LOOP),
                _ => return Err(Errno::NXIO),
            }
            flags.set(OFlags::TRUNC, *truncate);
            done(rustix::fs::open(
                path(&pins[*node]),
                flags | OFlags::CLOEXEC,
                Mode::empty(),
            ))
        }
        Op::Set(node, change) => done(set(&pins[*node], change)),
        Op::Access(node, wanted) => {
            let mut access = Access::empty();
            access.set(Access::READ_OK, wanted & 4 != 0);
            access.set(Access::WRITE_OK, wanted & 2 != 0);
            access.set(Access::EXEC_OK, wanted & 1 != 0);
            done(rustix::fs::accessat(
                CWD,
                path(&pins[*node]),
                access,
                AtFlags::EACCESS,
            ))
        }
        Op::List(at) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if kind_of(&pins[*at]) != FileKind::Directory {
                return Err(Errno::NOTDIR);
            }
            let fd = rustix::fs::open(path(&pins[*at]), flags, Mode::empty())?;
            let entries = rustix::fs::Dir::new(fd)?.collect::<Result<Vec<_>, _>>()?;
            let names = entries
                .iter()
                .map(|entry| entry.file_name().to_bytes().to_vec());
            Ok(sorted(
                names.filter(|name| !matches!(&name[..], b"." | b"..")),
            ))
        }
        Op::ReadLink(node) => match kind_of(&pins[*node]) {
            FileKind::Symlink => {
                let target = rustix::fs::readlinkat(&pins[*node], c"", Vec::new())?;
                Ok(target.to_string_lossy().into_owned())
            }
            _ => Err(Errno::INVAL),
        },
        other => unreachable!("{other:?}"),
    }
}

fn set(fd: &OwnedFd, change: &AttributeChange) -> Result<(), Errno> {
    if let Some(size) = change.size {
        match kind_of(fd) {
            FileKind::File => {}
            FileKind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        // truncate(2) is judged as this is, and nothing safe calls it.
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::ftruncate(rustix::fs::open(path(fd), flags, Mode::empty())?, size)?;
    }
    if change.uid.is_some() || change.gid.is_some() {
        let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
        rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = change.mode {
        rustix::fs::chmodat(CWD, path(fd), bits(mode), AtFlags::empty())?;
    }
    if change.accessed.is_some() || change.modified.is_some() {
        let times = Timestamps {
            last_access: spec(change.accessed),
            last_modification: spec(change.modified),
        };
        rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

fn spec(time: Option<SetTime>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, UTIME_OMIT),
        Some(SetTime::Now) => (0, UTIME_NOW),
        Some(SetTime::To(time)) => (time.seconds, time.nanos.into()),
    };
    Timespec { tv_sec, tv_nsec }
}

fn on_xattrs(op: &Op, pins: &Pins) -> Result<String, Errno> {
    match op {
        Op::SetXattr(node, name, value, create) => {
            let flags = match create {
                None => XattrFlags::empty(),
                Some(true) => XattrFlags::CREATE,
                Some(false) => XattrFlags::REPLACE,
            };
            done(rustix::fs::setxattr(
                path(&pins[*node]),
                *name,
                value,
                flags,
            ))
        }
        Op::SetAcl(node, default, value) => {
            let name = if *default {
                "system.posix_acl_default"
            } else {
                "system.posix_acl_access"
            };
            done(rustix::fs::setxattr(
                path(&pins[*node]),
                name,
                value,
                XattrFlags::empty(),
            ))
        }
        Op::GetXattr(node, name) => {
            let mut value = vec![0; 4096];
            let len = rustix::fs::getxattr(path(&pins[*node]), *name, &mut value)?;
            Ok(format!("{:?}", &value[..len]))
        }
        Op::ListXattrs(node) => {
            let mut list = vec![0; 4096];
            let len = rustix::fs::listxattr(path(&pins[*node]), &mut list)?;
            let names = list[..len]
                .split(|byte| *byte == 0)
                .filter(|name| !name.is_empty());
            Ok(sorted(names.map(<[u8]>::to_vec)))
        }
        Op::RemoveXattr(node, name) => done(rustix::fs::removexattr(path(&pins[*node]), *name)),
        other => unreachable!("{other:?}"),
    }
}

/// All extended attributes of an inode, as root sees them.
pub(crate) fn xattrs(fd: impl AsFd) -> Vec<(Vec<u8>, Vec<u8>)> {
    let path = path(fd);
    let mut list = vec![0; 4096];
    let len = rustix::fs::listxattr(&path, &mut list).unwrap_or(0);
    let names = list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let mut all: Vec<_> = names
        .map(|name| {
            let mut value = vec![0; 4096];
            let len = rustix::fs::getxattr(&path, name, &mut value).unwrap();
            (name.to_vec(), value[..len].to_vec())
        })
        .collect();
    all.sort();
    all
}
