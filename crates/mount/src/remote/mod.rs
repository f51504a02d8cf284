//! A volume as a file system of the machine.
//!
//! ```text
//! FUSE thread -> RemoteFs::handle -> answered here, from what is known under leases
//!                                 -> or a task: Volume's operation, then the answer
//! ```
//!
//! The FUSE threads never wait for the network. What is known (names, attributes, data fetched
//! ahead) is answered on the spot; the rest becomes a task that owns the answer.
//!
//! Permissions: the kernel judges every caller by mode and ACL (`default_permissions`,
//! `POSIX_ACL`), which it keeps only as long as the lease stands; the server judges again whatever
//! reaches it. So what is answered from here is never more than the caller may have. Whom a user's
//! credential does not speak for may have nothing: he is refused here, before any answer.
//!
//! Where the volume has rich ACLs when it is mounted, mode bits do not say all, so the kernel
//! judges nothing and keeps no names: it asks about each, and the server's verdict comes before any
//! answer (`rich`). A mount from before they were turned on goes on as it is; its kernel judges by
//! what a mode and POSIX ACL can say, which is never more than the rich ACL.
//!
//! What the kernel keeps is dropped through `invalidate` when a lease goes: names by raising the
//! epoch, which takes no lock in the kernel and so cannot wait for a request that waits for us;
//! attributes without touching pages; pages from a thread of its own.

mod answer;
mod attributes;
mod caller;
mod convert;
mod data;
mod errno;
mod handles;
mod invalidate;
mod locks;
mod names;
mod rich;
mod status;
mod xattr;

pub use xattr::extents;

use crate::kernel::{
    Forget, Handler, InitFlags, MountMethod, MountOptions, MountPoint, Operation, Replier, Request,
    Session, SessionEnd, SessionError, Unique, Wishes,
};
use answer::{Answer, Waiting};
use base::Principal;
use client::cache::NodeId;
use client::volume::Volume;
use handles::Handles;
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long the kernel may keep what is under a lease; it is told when the lease goes.
pub const LEASED: Duration = Duration::from_secs(3600);

/// Threads that read requests from the kernel. They hand requests on and never wait for the
/// network, so a few serve any number of programs.
pub const THREADS: usize = 4;

/// What is asked of the kernel for a mount.
///
/// Not `ATOMIC_O_TRUNC`, which would save the round trip of emptying a file at its opening: the
/// kernel then sets the size to 0 when it sees the reply, beside no lock, over what another change
/// of size or another machine's write has told it meanwhile.
///
/// On a volume with rich ACLs the kernel is not to judge by POSIX ACLs. Nor may a file be mapped
/// and shared through an open for appending, which is one past the page cache: the kernel writes
/// such pages by whatever open of the file it finds, and who may only append would write anywhere.
#[must_use]
pub fn wishes(is_rich: bool) -> Wishes {
    let judging = match is_rich {
        true => InitFlags::empty(),
        false => InitFlags::POSIX_ACL | InitFlags::DIRECT_IO_ALLOW_MMAP,
    };
    Wishes {
        flags: InitFlags::ASYNC_READ
            | InitFlags::POSIX_LOCKS
            | InitFlags::FLOCK_LOCKS
            | InitFlags::BIG_WRITES
            | InitFlags::DONT_MASK
            | InitFlags::DO_READDIRPLUS
            | InitFlags::ASYNC_DIO
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::HANDLE_KILLPRIV_V2
            | judging
            | InitFlags::MAX_PAGES
            | InitFlags::CACHE_SYMLINKS
            | InitFlags::SETXATTR_EXT
            | InitFlags::INIT_EXT,
        max_write_bytes: base::limits::DATA_BYTES_MAX,
        // The kernel's read-ahead blurs the pattern; ours does the work. This is its default.
        max_readahead_bytes: 128 << 10,
        max_background: 256,
        congestion_threshold: 192,
    }
}

/// How a volume is mounted.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// What `mount` and `df` show as the source: `ADDR/VOLUME`.
    pub source: String,
    /// Users other than the one who mounts may enter.
    pub allow_other: bool,
    /// No change.
    pub read_only: bool,
    /// Set-id bits count. Root only.
    pub suid: bool,
    /// Device files work. Root only.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Threads that read requests.
    pub threads: usize,
}

/// A mounted volume that does not answer yet.
pub struct RemoteMount {
    session: Session,
    handler: Arc<RemoteFs>,
    threads: usize,
}

impl RemoteMount {
    /// Mounts `volume` on `path`. Requests wait until [`Self::run`].
    ///
    /// # Errors
    /// [`SessionError`]: what stands in the way of mounting; nothing stays mounted.
    pub fn mount(
        volume: Arc<Volume>,
        path: &Path,
        config: &MountConfig,
        runtime: tokio::runtime::Handle,
    ) -> Result<Self, SessionError> {
        let is_rich = volume.is_rich();
        let options = MountOptions {
            fs_name: config.source.clone(),
            subtype: "azekura".to_owned(),
            allow_other: config.allow_other,
            default_permissions: !is_rich,
            read_only: config.read_only || volume.is_read_only(),
            suid: config.suid,
            dev: config.dev,
            exec: config.exec,
            max_read_bytes: None,
            method: MountMethod::default(),
        };
        let session = Session::mount(path, &options, &wishes(is_rich))?;
        let notifier = session.notifier();
        // The kernel shows the names that it keeps to whoever gets in.
        let strangers_enter = config.allow_other && volume.transport().sole_user().is_some();
        let handler = Arc::new_cyclic(|this| RemoteFs {
            this: this.clone(),
            names_kept: notifier.inc_epoch().is_ok() && !strangers_enter && !is_rich,
            volume: Arc::clone(&volume),
            runtime,
            handles: Arc::default(),
            waiting: Waiting::default(),
            source: config.source.clone(),
            has_devices: config.dev,
        });
        volume.set_invalidate(Arc::new(invalidate::ToKernel::new(notifier)));
        Ok(Self {
            session,
            handler,
            threads: config.threads.max(1),
        })
    }

    /// Where it is mounted, to unmount or abort it from elsewhere.
    #[must_use]
    pub fn mount_point(&self) -> &MountPoint {
        self.session.mount_point()
    }

    /// Answers until the volume is unmounted.
    ///
    /// # Errors
    /// [`SessionError`] of threads or the device.
    pub fn run(self) -> Result<SessionEnd, SessionError> {
        self.session.run(self.threads, self.handler)
    }
}

/// See the module's head.
struct RemoteFs {
    /// For tasks that go on with an operation.
    this: Weak<Self>,
    volume: Arc<Volume>,
    runtime: tokio::runtime::Handle,
    handles: Arc<Handles>,
    waiting: Waiting,
    source: String,
    /// Whether the kernel keeps names: if it drops all of them on request, and they are nobody
    /// else's.
    names_kept: bool,
    /// Whether the kernel opens devices that are named here.
    has_devices: bool,
}

/// Whether an operation uses what somebody has opened before, or ends it. Who was handed a
/// descriptor may do that, whoever he is.
fn is_through_open(operation: &Operation) -> bool {
    match operation {
        Operation::GetAttr { fh } | Operation::Statx { fh, .. } => fh.is_some(),
        Operation::SetAttr(change) => change.fh.is_some(),
        Operation::Read(_)
        | Operation::Write(_)
        | Operation::Flush { .. }
        | Operation::Release(_)
        | Operation::Fsync { .. }
        | Operation::Fallocate { .. }
        | Operation::Lseek { .. }
        | Operation::CopyFileRange(_)
        | Operation::ReadDir(_)
        | Operation::ReadDirPlus(_)
        | Operation::ReleaseDir { .. }
        | Operation::FsyncDir { .. }
        | Operation::GetLk(_)
        | Operation::SetLk { .. } => true,
        _ => false,
    }
}

/// A request on its way to an answer.
struct Call {
    node: NodeId,
    uid: u32,
    gid: u32,
    pid: u32,
    /// The caller, if it was asked who that is.
    who: Option<Principal>,
    answer: Answer,
}

impl Handler for RemoteFs {
    fn handle(&self, request: Request, replier: Replier) {
        let Request {
            node,
            uid,
            gid,
            pid,
            operation,
            ..
        } = request;
        let answer = self.waiting.answer(replier, pid);
        let sole_user = self.volume.transport().sole_user();
        let is_stranger = sole_user.is_some_and(|user| uid != user && uid != 0);
        if is_stranger && !is_through_open(&operation) {
            return answer.error(Errno::ACCESS);
        }
        let Ok(who) = self.known(&operation, (uid, gid, pid)) else {
            return answer.error(Errno::ACCESS);
        };
        let (uid, gid) = self.volume.transport().acting(uid, gid);
        let call = Call {
            node: NodeId(node.0),
            uid,
            gid,
            pid,
            who,
            answer,
        };
        // What is answered here may still begin work that goes on in tasks.
        let _guard = self.runtime.enter();
        match self.volume.is_rich() {
            true => self.dispatch_judged(call, operation),
            false => self.dispatch(call, operation),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        let forgotten: Vec<(NodeId, u64)> = forgets
            .iter()
            .map(|forget| (NodeId(forget.node.0), forget.lookups))
            .collect();
        // What leases it had are given back in tasks.
        let _guard = self.runtime.enter();
        self.volume.forget(&forgotten);
    }

    fn interrupt(&self, unique: Unique) {
        self.waiting.interrupt(unique, &self.runtime);
    }
}

impl RemoteFs {
    fn dispatch(&self, call: Call, operation: Operation) {
        match operation {
            Operation::Lookup { name } => self.lookup(call, &name),
            Operation::GetAttr { fh } => self.get_attr(call, fh.is_some()),
            Operation::Statx { .. } => self.statx(call),
            Operation::SetAttr(change) => self.set_attr(call, change),
            Operation::ReadLink => self.read_link(call),
            Operation::StatFs => self.stat_fs(call),
            Operation::Read(read) => self.read(call, read),
            Operation::Write(write) => self.write(call, write),
            Operation::Open { flags, .. } => self.open(call, flags),
            Operation::Create {
                name,
                mode,
                umask,
                flags,
                ..
            } => {
                self.create(call, &name, mode, umask, flags);
            }
            Operation::Release(release) => self.release(call, release),
            Operation::Flush { fh, lock_owner } => self.flush(call, fh, lock_owner),
            Operation::Fsync { fh, data_only } => self.fsync(call, fh, data_only),
            Operation::Fallocate {
                fh,
                offset,
                length,
                mode,
            } => {
                self.fallocate(call, fh, offset, length, mode);
            }
            Operation::Lseek { fh, offset, whence } => self.lseek(call, fh, offset, whence),
            Operation::CopyFileRange(copy) => self.copy_file_range(call, copy),
            Operation::OpenDir { .. } => self.open_dir(call),
            Operation::ReadDir(page) => self.read_dir(call, page, false),
            Operation::ReadDirPlus(page) => self.read_dir(call, page, true),
            Operation::ReleaseDir { fh, .. } => {
                self.volume.on_listing_taken(fh.0);
                self.handles.remove(fh);
                call.answer.done();
            }
            Operation::FsyncDir { fh, .. } => self.fsync_dir(call, fh),
            Operation::GetXattr { name, size } => self.get_xattr(call, name, size),
            Operation::ListXattr { size } => self.list_xattr(call, size),
            Operation::SetXattr {
                name, value, flags, ..
            } => {
                self.set_xattr(call, name, value, flags);
            }
            Operation::RemoveXattr { name } => self.remove_xattr(call, name),
            Operation::GetLk(lock) => self.get_lock(call, lock),
            Operation::SetLk { lock, wait } => self.set_lock(call, lock, wait),
            Operation::SyncFs => self.sync_fs(call),
            change => self.change(call, change),
        }
    }

    /// Operations that make, move or remove entries; the rest is not supported.
    fn change(&self, call: Call, operation: Operation) {
        match operation {
            Operation::MkDir { name, mode, umask } => self.mkdir(call, &name, mode, umask),
            Operation::MkNod {
                name,
                kind,
                mode,
                rdev,
                umask,
            } => {
                self.mknod(call, &name, kind, mode, umask, rdev);
            }
            Operation::Symlink { name, target } => self.symlink(call, &name, target),
            Operation::Link { target, name } => self.link(call, target, &name),
            Operation::Unlink { name } => self.remove(call, &name, false),
            Operation::RmDir { name } => self.remove(call, &name, true),
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                self.rename(call, &name, new_parent, &new_name, flags);
            }
            Operation::TmpFile { .. } => call.answer.error(Errno::OPNOTSUPP),
            _ => call.answer.error(Errno::NOSYS),
        }
    }

    fn sync_fs(&self, call: Call) {
        let (volume, who) = (Arc::clone(&self.volume), call.who());
        self.runtime.spawn(async move {
            let synced = volume.sync(&who).await;
            if let (false, Err(error)) = (call.answer.outcome(synced), synced) {
                volume.on_unheard(error);
            }
        });
    }
}
