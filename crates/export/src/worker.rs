//! The caller's identity on a thread.
//!
//! Linux keeps the identity for which it judges file access per thread: file system uid and gid,
//! supplementary groups and capabilities (credentials(7)). A [`Worker`] owns those of its thread.
//! [`Worker::assume`] makes them the caller's; equal callers one after another cost a comparison.
//!
//! *Capabilities.* Leaving fsuid 0, the kernel drops the capabilities that override file
//! permissions but keeps the others, and some of those matter too: `CAP_SYS_RESOURCE` lets its
//! holder use a file system's reserved blocks and pass quotas, `CAP_SYS_ADMIN` opens the `trusted`
//! attributes, `CAP_SETFCAP` gives programs capabilities. For a caller who is not root a worker
//! therefore keeps only the two that it needs to become someone else. For uid 0 it has all that the
//! server has.
//!
//! *Failure.* If a step fails, the thread's identity counts as unknown, the request is refused with
//! [`FsError::AccessDenied`], and the next one begins from nothing. No request ever runs with the
//! server's own rights because the caller's could not be taken on.
//!
//! *Limits of it.* Between requests the thread stays whom it acted for last: whatever else it does
//! with files, it does as that user. Threads that it starts inherit its identity; start none. The
//! process also stops being dumpable once identities change: no core files, and its `/proc` entries
//! belong to root.

use crate::error::ExportError;
use crate::sys;
use base::{FsError, Principal, limits::GROUPS_MAX};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

thread_local! {
    static TAKEN: Cell<bool> = const { Cell::new(false) };
}

/// What a worker keeps while it acts for a user: the right to become another one.
const KEPT: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Everything without which no export works, with the names for the error message.
const NEEDED: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
];

/// Checks that the calling thread may act for callers.
pub(crate) fn check_privileges() -> Result<CapabilitySets, ExportError> {
    let sets = rustix::thread::capabilities(None).map_err(|e| ExportError::Thread {
        step: "read capabilities",
        source: e.into(),
    })?;
    match NEEDED
        .iter()
        .find(|(needed, _)| !sets.effective.contains(*needed))
    {
        Some((_, capability)) => Err(ExportError::Privilege { capability }),
        None => Ok(sets),
    }
}

/// The right of a thread to act for callers. There is at most one per thread, and it stays there.
pub struct Worker {
    /// `/proc/thread-self/fd`, through which `O_PATH` descriptors are opened for use.
    descriptors: OwnedFd,
    /// What the thread had when it became a worker; what it has while it acts for root.
    full: CapabilitySets,
    /// Whom the thread acts for; `None` if that is not certain.
    caller: RefCell<Option<Principal>>,
    umask: Cell<Option<u16>>,
    /// Room for directory listings, made at the first one.
    buffer: RefCell<Vec<MaybeUninit<u8>>>,
    /// Identity belongs to the thread, so its owner must not leave it.
    stays: PhantomData<*const ()>,
}

impl Worker {
    /// Prepares the calling thread.
    ///
    /// # Errors
    /// [`ExportError::Privilege`] if the process is not root, [`ExportError::WorkerExists`] if the
    /// thread has one already, [`ExportError::Thread`] if `/proc` is not mounted.
    pub fn new() -> Result<Self, ExportError> {
        if TAKEN.get() {
            return Err(ExportError::WorkerExists);
        }
        let full = check_privileges()?;
        let failed = |step| {
            move |e: rustix::io::Errno| ExportError::Thread {
                step,
                source: e.into(),
            }
        };
        sys::unshare_fs().map_err(failed("separate the umask"))?;
        let descriptors = rustix::fs::open(
            "/proc/thread-self/fd",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed("open /proc/thread-self/fd"))?;
        TAKEN.set(true);
        Ok(Self {
            descriptors,
            full,
            caller: RefCell::new(None),
            umask: Cell::new(None),
            buffer: RefCell::default(),
            stays: PhantomData,
        })
    }

    /// Makes the thread act for `principal`.
    pub(crate) fn assume(&self, principal: &Principal) -> Result<Assumed<'_>, FsError> {
        let mut caller = self.caller.borrow_mut();
        if caller.as_ref() != Some(principal) {
            let before = caller.take();
            self.become_caller(before.as_ref(), principal)?;
            *caller = Some(principal.clone());
        }
        Ok(Assumed {
            worker: self,
            is_root: principal.uid == 0,
        })
    }

    /// Runs `job` as the server itself, which its own files take: between two requests the thread
    /// stays who the last caller was.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if the thread cannot be root again; nothing has run then.
    pub fn as_server<T>(&self, job: impl FnOnce() -> T) -> Result<T, FsError> {
        let _root = self.assume(&Principal::root())?;
        Ok(job())
    }

    /// Changes what differs from `before`; everything if that is not known.
    fn become_caller(&self, before: Option<&Principal>, now: &Principal) -> Result<(), FsError> {
        // The kernel takes -1 as "no change" or refuses it silently; it is nobody's identity.
        let real = now.uid != u32::MAX && now.gid != u32::MAX && now.groups.len() <= GROUPS_MAX;
        if !real {
            return Err(FsError::AccessDenied);
        }
        if before.is_none_or(|b| b.groups != now.groups) {
            sys::set_groups(&now.groups).map_err(|e| refuse("groups", e))?;
        }
        if before.is_none_or(|b| b.gid != now.gid) && sys::set_fs_gid(now.gid) != now.gid {
            return Err(refuse("gid", "not taken on"));
        }
        if before.is_none_or(|b| b.uid != now.uid) && sys::set_fs_uid(now.uid) != now.uid {
            return Err(refuse("uid", "not taken on"));
        }
        if before.is_none_or(|b| (b.uid == 0) != (now.uid == 0)) {
            let effective = if now.uid == 0 {
                self.full.effective
            } else {
                KEPT
            };
            self.set_effective(effective)
                .map_err(|e| refuse("capabilities", e))?;
        }
        Ok(())
    }

    /// Lends the thread's buffer of `len` bytes.
    pub(crate) fn with_buffer<T>(
        &self,
        len: usize,
        job: impl FnOnce(&mut [MaybeUninit<u8>]) -> T,
    ) -> T {
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(len, MaybeUninit::uninit());
        job(&mut buffer)
    }

    fn set_effective(&self, effective: CapabilitySet) -> Result<(), rustix::io::Errno> {
        rustix::thread::set_capabilities(
            None,
            CapabilitySets {
                effective,
                ..self.full
            },
        )
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The thread goes back to root, for whatever its owner does next.
        if self.assume(&Principal::root()).is_ok() {
            TAKEN.set(false);
        }
    }
}

fn refuse(step: &str, why: impl std::fmt::Display) -> FsError {
    tracing::warn!(step, "cannot take on the caller's identity: {why}");
    FsError::AccessDenied
}

/// Proof that the thread acts for the caller.
pub(crate) struct Assumed<'w> {
    worker: &'w Worker,
    is_root: bool,
}

impl Assumed<'_> {
    /// The directory in which the descriptor `N` is the entry `N`.
    pub(crate) fn descriptors(&self) -> BorrowedFd<'_> {
        self.worker.descriptors.as_fd()
    }

    /// Sets the umask for what the thread creates next.
    pub(crate) fn set_umask(&self, umask: u16) {
        let umask = umask & 0o777;
        if self.worker.umask.replace(Some(umask)) != Some(umask) {
            rustix::process::umask(Mode::from_raw_mode(umask.into()));
        }
    }

    /// Runs `call`, one system call, with the right to search and read everything: to find an inode
    /// by its handle, which the kernel allows no user to do.
    pub(crate) fn privileged<T>(&self, call: impl FnOnce() -> T) -> Result<T, FsError> {
        self.with(CapabilitySet::DAC_READ_SEARCH, call)
    }

    /// Runs `call`, some system calls, with more rights than the caller has. Within another such
    /// run it would take that one's rights away at its end.
    pub(crate) fn with<T>(
        &self,
        more: CapabilitySet,
        call: impl FnOnce() -> T,
    ) -> Result<T, FsError> {
        if self.is_root {
            return Ok(call());
        }
        let raised = Raised(self.worker);
        self.worker
            .set_effective(KEPT | more)
            .map_err(|e| refuse("raise capabilities", e))?;
        let result = call();
        drop(raised);
        // If the right could not be given back, the rest of this request must not run.
        if self.worker.caller.borrow().is_none() {
            return Err(FsError::AccessDenied);
        }
        Ok(result)
    }
}

/// Takes the raised right back, whatever happens in between.
struct Raised<'w>(&'w Worker);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.set_effective(KEPT) {
            // The next request starts from an unknown identity, and fails if this fails again.
            tracing::warn!("cannot give capabilities back: {error}");
            self.0.caller.replace(None);
        }
    }
}
