//! Opening a tree, finding inodes by handle and by name, their attributes.

use crate::cache::{DescriptorCache, Pin};
use crate::directory::OpenDirectories;
use crate::errno::fs_error;
use crate::error::ExportError;
use crate::file::{OpenFile, OpenOptions};
use crate::hold::{Held, Holdings};
use crate::identity::{Difference, RootIdentity};
use crate::rich::{RichTree, Way, by_way};
use crate::seal::{HandleKey, Seal};
use crate::stat::{Stat, stat};
use crate::sys::{self, KernelHandle};
use crate::worker::{Assumed, Worker, check_privileges};
use base::limits::{EXPORT_DESCRIPTORS_MAX, LINK_TARGET_BYTES_MAX};
use base::{
    Access, Attributes, FileKind, FileSystemStat, FsError, Handle, Name, Node, Principal, Rights,
    VolumeId,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::DecInt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::sync::Arc;

/// How a component is looked up: this directory's own entry, whatever it is, and nothing behind it.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// An `O_PATH` descriptor of the inode itself, also of a symbolic link.
pub(crate) const PIN_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How the top of a tree is opened.
const TOP_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// `RESOLVE_BENEATH` reports a component that is renamed into another directory during the look-up
/// like a mount point, so an answer that a look-up crosses file systems is believed at the third
/// time.
const LOOKUP_TRIES: usize = 3;

/// What an export is opened with.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The volume that the tree is served as. Handles are good for this volume only.
    pub volume: VolumeId,
    /// The server's secret for handles.
    pub key: HandleKey,
    /// Most descriptors kept for inodes in use. Never more than a quarter of the process's limit.
    pub descriptors_max: usize,
    /// Whether it is kept in memory which rich ACL a file has, and what is shown of its POSIX ACL.
    /// Without, each request reads what lies beside the file; that is for comparison.
    pub keeps_lists: bool,
}

impl ExportOptions {
    /// With the default number of descriptors, and lists in memory.
    #[must_use]
    pub fn new(volume: VolumeId, key: HandleKey) -> Self {
        Self {
            volume,
            key,
            descriptors_max: EXPORT_DESCRIPTORS_MAX,
            keeps_lists: true,
        }
    }
}

fn failed(path: &Path, error: Errno) -> ExportError {
    ExportError::Open {
        path: path.to_owned(),
        source: error.into(),
    }
}

/// A directory tree, served by handle. See the crate's head.
///
/// Every method may be called from any number of threads at once, each with its own [`Worker`].
/// Common errors: [`FsError::Stale`] for a handle that is not one of this volume's or whose inode
/// is gone, [`FsError::AccessDenied`] if the caller's identity cannot be taken on, and whatever the
/// kernel answers to the caller.
pub struct Export {
    top: OwnedFd,
    root: Handle,
    identity: RootIdentity,
    file_system: (u32, u32),
    /// The mount in which the top lies, as name_to_handle_at(2) numbers it.
    pub(crate) mount: u64,
    pub(crate) seal: Seal,
    pub(crate) cache: DescriptorCache,
    holdings: Holdings,
    pub(crate) directories: OpenDirectories,
    pub(crate) rich: Box<RichTree>,
}

impl Export {
    /// Opens the tree below the directory `path`, which may itself lie behind symbolic links.
    /// Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// [`ExportError`] names what is missing: the directory, root's rights, or persistent handles.
    pub fn open(path: &Path, options: &ExportOptions) -> Result<Self, ExportError> {
        check_privileges()?;
        let top = rustix::fs::open(path, TOP_FLAGS, Mode::empty());
        Self::below(top.map_err(|e| failed(path, e))?, path, options)
    }

    /// As [`Self::open`], where `path` was a real one when the tree was first opened, without
    /// symbolic links; and only if it is still that directory, as far as `known` says. A link is
    /// followed if its end is that directory without doubt.
    ///
    /// # Errors
    /// As [`Self::open`], and [`ExportError::Another`].
    pub fn open_known(
        path: &Path,
        options: &ExportOptions,
        known: Option<&RootIdentity>,
    ) -> Result<Self, ExportError> {
        let another = |what| ExportError::Another {
            path: path.to_owned(),
            what: match path.canonicalize() {
                Ok(real) if real != path => Difference::Link(real),
                _ => what,
            },
        };
        let links = match known.is_some_and(RootIdentity::is_certain) {
            true => ResolveFlags::empty(),
            false => ResolveFlags::NO_SYMLINKS,
        };
        check_privileges()?;
        let resolve = links | ResolveFlags::NO_MAGICLINKS;
        let top = rustix::fs::openat2(CWD, path, TOP_FLAGS, Mode::empty(), resolve);
        let top = top.map_err(|e| match e {
            Errno::LOOP => another(Difference::Directory),
            other => failed(path, other),
        })?;
        let export = Self::below(top, path, options)?;
        match known.and_then(|known| known.difference(&export.identity)) {
            Some(what) => Err(another(what)),
            None => Ok(export),
        }
    }

    fn below(top: OwnedFd, path: &Path, options: &ExportOptions) -> Result<Self, ExportError> {
        // A file system can have handles and yet not find an inode by them.
        let (kernel, mount) = sys::name_to_handle_in(top.as_fd(), c".")
            .and_then(|(kernel, mount)| {
                sys::open_by_handle(top.as_fd(), &kernel, PIN_FLAGS.bits().cast_signed())?;
                Ok((kernel, mount))
            })
            .map_err(|e| ExportError::Handles {
                path: path.to_owned(),
                source: e.into(),
            })?;
        let file_system = stat(&top).map_err(|_| failed(path, Errno::IO))?.file_system;
        let identity = RootIdentity::of(top.as_fd(), &kernel).map_err(|e| failed(path, e))?;
        let seal = Seal::new(&options.key, options.volume);
        let descriptors_max = options.descriptors_max.min(raise_descriptor_limit() / 4);
        Ok(Self {
            root: seal.close(&kernel),
            identity,
            top,
            file_system,
            mount,
            seal,
            cache: DescriptorCache::new(descriptors_max),
            holdings: Holdings::default(),
            directories: OpenDirectories::default(),
            rich: Box::new(RichTree::new(options.keeps_lists)),
        })
    }

    /// The handle of the tree's top directory.
    #[must_use]
    pub fn root(&self) -> &Handle {
        &self.root
    }

    /// Which directory the tree is, over restarts of the machine.
    #[must_use]
    pub fn identity(&self) -> &RootIdentity {
        &self.identity
    }

    /// The top directory, for calls that concern the file system as a whole.
    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// How many inodes are held by a descriptor at this moment.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.cache.len()
    }

    /// Finds `name` in the directory `parent`.
    ///
    /// # Errors
    /// [`FsError::CrossDevice`] if another file system is mounted there; else the kernel's.
    pub fn lookup(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
    ) -> Result<Node, FsError> {
        let caller = worker.assume(principal)?;
        let directory = self.resolve(&caller, parent)?;
        let way = self.way_to_search(principal, (parent, &*directory))?;
        by_way(&caller, way, || self.lookup_in(&directory, name))
    }

    /// [`Export::lookup`] in an open directory, for callers whose identity is taken on.
    pub(crate) fn lookup_in(&self, directory: &Pin, name: &Name) -> Result<Node, FsError> {
        let (node, fd) = self.peek(directory, name)?;
        self.cache
            .insert(&node.handle, Pin::new(fd, node.attributes.kind));
        Ok(node)
    }

    /// Looks `name` up without keeping the descriptor.
    pub(crate) fn peek(
        &self,
        directory: impl AsFd,
        name: &Name,
    ) -> Result<(Node, OwnedFd), FsError> {
        let fd = self.open_child(directory, name.as_bytes())?;
        Ok((self.describe(&fd)?, fd))
    }

    fn open_child(&self, directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, FsError> {
        let directory = directory.as_fd();
        let mut tries = 0;
        let open = || rustix::fs::openat2(directory, name, PIN_FLAGS, Mode::empty(), RESOLVE);
        loop {
            tries += 1;
            match self.with_room(open) {
                Err(Errno::XDEV | Errno::AGAIN) if tries < LOOKUP_TRIES => {}
                result => return result.map_err(fs_error),
            }
        }
    }

    /// Refuses a directory of another file system: a Btrfs subvolume has inode numbers of its own
    /// without being a mount.
    pub(crate) fn check_device(&self, stat: &Stat) -> Result<(), FsError> {
        let same = stat.file_system == self.file_system;
        if same || stat.attributes.kind != FileKind::Directory {
            Ok(())
        } else {
            Err(FsError::CrossDevice)
        }
    }

    /// Handle and attributes of the inode behind `fd`.
    pub(crate) fn describe(&self, fd: impl AsFd) -> Result<Node, FsError> {
        let fd = fd.as_fd();
        let Stat {
            attributes,
            file_system,
        } = stat(fd)?;
        if attributes.kind == FileKind::Directory && file_system != self.file_system {
            return Err(FsError::CrossDevice);
        }
        let kernel = sys::name_to_handle(fd).map_err(fs_error)?;
        Ok(Node {
            handle: self.seal.close(&kernel),
            attributes,
        })
    }

    /// The inode that `handle` names.
    pub(crate) fn resolve(
        &self,
        caller: &Assumed<'_>,
        handle: &Handle,
    ) -> Result<Arc<Pin>, FsError> {
        if let Some(pin) = self.cache.get(handle).or_else(|| self.holdings.get(handle)) {
            return Ok(pin);
        }
        let kernel = self.seal.open(handle)?;
        let fd = self.open_by_handle(caller, &kernel, PIN_FLAGS)?;
        let attributes = stat(&fd)?.attributes;
        let pin = Pin::new(fd, attributes.kind);
        // An inode without names lives only as long as somebody has it open: not because of us.
        if attributes.links == 0 {
            return Ok(Arc::new(pin));
        }
        Ok(self.cache.insert(handle, pin))
    }

    /// Keeps an inode within reach while what is returned lives, also when it loses its last name.
    ///
    /// # Errors
    /// See [`Export`].
    pub fn hold(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
    ) -> Result<Held, FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        Ok(self.holdings.hold(handle, pin))
    }

    /// Opens an inode with the server's rights, whatever the caller's are.
    fn open_by_handle(
        &self,
        caller: &Assumed<'_>,
        kernel: &KernelHandle,
        flags: OFlags,
    ) -> Result<OwnedFd, FsError> {
        let flags = flags.bits().cast_signed();
        let open = || {
            self.with_room(|| {
                retry_on_intr(|| sys::open_by_handle(self.top.as_fd(), kernel, flags))
            })
        };
        caller.privileged(open)?.map_err(|errno| match errno {
            // The handle is genuine, so what it named is gone; file systems differ in saying so.
            Errno::NOENT | Errno::INVAL => FsError::Stale,
            other => fs_error(other),
        })
    }

    /// Runs a call that makes a descriptor; if there is none left, drops some and tries once more.
    pub(crate) fn with_room<T>(&self, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match call() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.cache.shrink();
                call()
            }
            result => result,
        }
    }

    /// Opens the inode behind an `O_PATH` descriptor for use; the kernel judges for the caller.
    pub(crate) fn reopen(
        &self,
        caller: &Assumed<'_>,
        pin: &Pin,
        flags: OFlags,
    ) -> Result<OwnedFd, FsError> {
        let number = DecInt::from_fd(pin);
        let flags = flags | OFlags::CLOEXEC;
        let open = || {
            let open = || {
                rustix::fs::openat(
                    caller.descriptors(),
                    number.as_c_str(),
                    flags,
                    Mode::empty(),
                )
            };
            retry_on_intr(open)
        };
        self.with_room(open).map_err(fs_error)
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// See [`Export`].
    pub fn attributes(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
    ) -> Result<Attributes, FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        self.attributes_of(handle, &pin)
    }

    /// Attributes, and no descriptor kept of an inode that turns out to be deleted.
    pub(crate) fn attributes_of(
        &self,
        handle: &Handle,
        fd: impl AsFd,
    ) -> Result<Attributes, FsError> {
        let attributes = stat(fd)?.attributes;
        if attributes.links == 0 {
            self.cache.remove(handle);
        }
        Ok(attributes)
    }

    /// Whether the caller may do all of `wanted` with an inode, by the kernel's judgement, ACLs
    /// included.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if not, [`FsError::ReadOnly`] for writing where nobody may.
    pub fn check_access(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        wanted: Rights,
    ) -> Result<(), FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        match self.access_way(principal, handle, &pin, wanted)? {
            Way::Kernel => self.judge(&caller, &pin, wanted),
            // What no right helps against: a file system for reading only, an immutable file.
            Way::Past if wanted.write => {
                let writes = Rights {
                    write: true,
                    ..Rights::default()
                };
                by_way(&caller, Way::Past, || self.judge(&caller, &pin, writes))
            }
            Way::Past => Ok(()),
        }
    }

    /// The kernel's judgement about an inode.
    pub(crate) fn judge(
        &self,
        caller: &Assumed<'_>,
        pin: &Pin,
        wanted: Rights,
    ) -> Result<(), FsError> {
        self.judge_fd(caller, pin.as_fd(), wanted)
    }

    /// [`Self::judge`] of an inode that is only held by a descriptor.
    pub(crate) fn judge_fd(
        &self,
        caller: &Assumed<'_>,
        fd: BorrowedFd<'_>,
        wanted: Rights,
    ) -> Result<(), FsError> {
        use rustix::fs::Access as Bits;
        let bit = |wanted, bit| if wanted { bit } else { Bits::empty() };
        let bits = bit(wanted.read, Bits::READ_OK)
            | bit(wanted.write, Bits::WRITE_OK)
            | bit(wanted.execute, Bits::EXEC_OK);
        let number = DecInt::from_fd(fd);
        rustix::fs::accessat(
            caller.descriptors(),
            number.as_c_str(),
            bits,
            AtFlags::EACCESS,
        )
        .map_err(fs_error)
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::Loop`] for a symbolic link, [`FsError::NoSuchAddress`]
    /// for pipes, sockets and devices: those live on the machine that opens them, not here.
    pub fn open_file(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        options: OpenOptions,
    ) -> Result<OpenFile, FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        self.open_pinned(&caller, principal, (handle, &pin), options)
    }

    /// [`Export::open_file`] of an inode that is at hand.
    pub(crate) fn open_pinned(
        &self,
        caller: &Assumed<'_>,
        principal: &Principal,
        (handle, pin): (&Handle, &Pin),
        options: OpenOptions,
    ) -> Result<OpenFile, FsError> {
        match pin.kind() {
            FileKind::File => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            FileKind::Symlink => return Err(FsError::Loop),
            _ => return Err(FsError::NoSuchAddress),
        }
        let only_appends = options.append;
        let rights = acl::rights_to_open(options.access, options.truncate, only_appends);
        let way = self.way(principal, handle, pin, rights)?;
        let fd = if way == Way::Past {
            by_way(caller, way, || self.reopen(caller, pin, options.flags()))?
        } else if options.access == Access::Execute {
            self.judge(
                caller,
                pin,
                Rights {
                    execute: true,
                    ..Rights::default()
                },
            )?;
            caller.privileged(|| self.reopen(caller, pin, OFlags::RDONLY))??
        } else {
            self.reopen(caller, pin, options.flags())?
        };
        Ok(OpenFile::new(fd, options))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is something else.
    pub fn read_link(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
    ) -> Result<Vec<u8>, FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        // The kernel's answer for an empty path to something else would be ENOENT.
        if pin.kind() != FileKind::Symlink {
            return Err(FsError::Invalid);
        }
        let mut target = Vec::with_capacity(LINK_TARGET_BYTES_MAX + 1);
        let spare = rustix::buffer::spare_capacity(&mut target);
        rustix::fs::readlinkat_raw(&*pin, c"", spare).map_err(fs_error)?;
        target.shrink_to_fit();
        Ok(target)
    }

    /// Size and use of the file system, as they apply at this inode (a project quota can show
    /// here).
    ///
    /// # Errors
    /// See [`Export`].
    pub fn statfs(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
    ) -> Result<FileSystemStat, FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        let stat = rustix::fs::fstatvfs(&*pin).map_err(fs_error)?;
        Ok(FileSystemStat {
            block_size: u32::try_from(stat.f_frsize).unwrap_or(4096),
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            blocks_available: stat.f_bavail,
            files: stat.f_files,
            files_free: stat.f_ffree,
            name_max: u32::try_from(stat.f_namemax).unwrap_or(255),
        })
    }

    /// Makes the entries of a directory durable. Done with the server's rights, because a caller
    /// who may create in a directory need not be able to read it.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; what the device reports.
    pub fn sync_directory(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
    ) -> Result<(), FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = caller.privileged(|| self.reopen(&caller, &pin, flags))??;
        retry_on_intr(|| rustix::fs::fsync(&fd)).map_err(fs_error)
    }

    /// Makes everything in the file system durable. A write-back error since the last call is
    /// reported once, to whoever calls first.
    ///
    /// # Errors
    /// What the devices report.
    pub fn sync_all(&self) -> Result<(), FsError> {
        retry_on_intr(|| rustix::fs::syncfs(&self.top)).map_err(fs_error)
    }

    /// Drops the descriptor of an inode that was removed, so that its space becomes free.
    pub fn forget(&self, handle: &Handle) {
        self.cache.remove(handle);
    }

    /// Looks for descriptors of inodes that others have removed, and for directories that nobody
    /// lists any more, and drops them. Half a microsecond per descriptor; once a second is enough.
    pub fn sweep(&self) {
        self.cache
            .retain_living(|pin| stat(pin).is_ok_and(|stat| stat.attributes.links == 0));
        self.directories.close_idle();
    }
}

/// Raises the soft limit of open files to the hard one and returns it.
fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!("cannot raise the limit of open files: {error}");
            limit.current
        }
    };
    current.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}
