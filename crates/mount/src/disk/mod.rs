//! A disk as one file, which loop devices and virtual machines take as their medium.
//!
//! The mount has a directory with one file as long as the disk. Reads and writes are the device's:
//! what was written is seen by later reads at once, and durable after fsync(2), as on a raw device.
//! The file cannot be cut, made longer or removed; a punched hole is zeros and gives its space
//! back, which is what a loop device makes of a discard.
//!
//! The threads that read requests hand them on: a device call may wait for a distant server, so it
//! has a thread of the runtime's. Reads and writes have their own, as many as the NBD server has
//! and for the same reasons. Requests that wait are bounded by the kernel, which has so many of
//! them under way and no more.
//!
//! A device that only waits for memory, or wants one request after the other, needs none of that
//! ([`DiskMount::direct`]): the thread that reads a request carries it out, and the kernel keeps
//! nothing of the file, so that requests reach the device as they are made and in their order.
//! Whoever serves such a file must not be the process that uses it: killed in the middle of a call,
//! that would wait for itself.

mod answer;

use crate::kernel::{
    Forget, Handler, InitFlags, MountMethod, MountOptions, MountPoint, Operation, Replier, Request,
    Session, SessionEnd, SessionError, Unique, Wishes,
};
use base::BlockDevice;
use base::limits::{DATA_BYTES_MAX, NBD_READERS_MAX, NBD_WRITERS_MAX};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Type of these mounts in the kernel's list, behind `fuse.`; not that of volumes, which are
/// unmounted in another way.
pub const SUBTYPE: &str = "azekura-disk";
/// The file's name.
pub const FILE_NAME: &str = "disk.img";
/// Threads that read requests, if they hand them on.
const THREADS: usize = 2;
/// Threads that read requests, if they carry them out: several would let requests pass each other.
const DIRECT_THREADS: usize = 1;
/// Requests that nobody waits for: the kernel reads ahead and writes back with them.
const BACKGROUND_MAX: u16 = 64;

/// How a disk is mounted.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// What `mount` and `df` show as the source.
    pub source: String,
    /// Users other than the one who mounts may read, and write if the disk can be written.
    pub allow_other: bool,
    /// Every change is refused.
    pub read_only: bool,
}

/// A mounted disk that does not answer yet.
pub struct DiskMount {
    session: Session,
    handler: Arc<DiskFs>,
}

impl DiskMount {
    /// Mounts `device` on the directory `path`. Requests wait until [`Self::run`].
    ///
    /// # Errors
    /// [`SessionError`]: what stands in the way of mounting; nothing stays mounted.
    pub fn mount(
        device: Arc<dyn BlockDevice>,
        path: &Path,
        config: &DiskConfig,
        runtime: Handle,
    ) -> Result<Self, SessionError> {
        let pool = Pool {
            runtime,
            readers: Arc::new(Semaphore::new(NBD_READERS_MAX)),
            writers: Arc::new(Semaphore::new(NBD_WRITERS_MAX)),
        };
        Self::with(device, path, config, FILE_NAME, Some(pool))
    }

    /// Mounts a device whose requests are carried out one after the other, as a file of this name,
    /// uncached.
    ///
    /// # Errors
    /// As [`Self::mount`].
    pub fn direct(
        device: Arc<dyn BlockDevice>,
        path: &Path,
        config: &DiskConfig,
        file_name: &str,
    ) -> Result<Self, SessionError> {
        Self::with(device, path, config, file_name, None)
    }

    fn with(
        device: Arc<dyn BlockDevice>,
        path: &Path,
        config: &DiskConfig,
        file_name: &str,
        pool: Option<Pool>,
    ) -> Result<Self, SessionError> {
        let options = MountOptions {
            fs_name: config.source.clone(),
            subtype: SUBTYPE.to_owned(),
            allow_other: config.allow_other,
            default_permissions: true,
            read_only: config.read_only,
            method: MountMethod::default(),
            ..MountOptions::default()
        };
        let wishes = Wishes {
            flags: InitFlags::ASYNC_READ
                | InitFlags::ASYNC_DIO
                | InitFlags::BIG_WRITES
                | InitFlags::MAX_PAGES
                | InitFlags::PARALLEL_DIROPS,
            max_write_bytes: DATA_BYTES_MAX,
            max_readahead_bytes: 128 << 10,
            max_background: BACKGROUND_MAX,
            congestion_threshold: BACKGROUND_MAX / 4 * 3,
        };
        let session = Session::mount(path, &options, &wishes)?;
        let handler = DiskFs {
            device,
            file_name: file_name.to_owned(),
            read_only: config.read_only,
            allow_other: config.allow_other,
            pool,
        };
        Ok(Self {
            session,
            handler: Arc::new(handler),
        })
    }

    /// Where it is mounted, to unmount it from elsewhere.
    #[must_use]
    pub fn mount_point(&self) -> &MountPoint {
        self.session.mount_point()
    }

    /// Answers until it is unmounted. The device is not flushed by that.
    ///
    /// # Errors
    /// [`SessionError`] of threads or the device.
    pub fn run(self) -> Result<SessionEnd, SessionError> {
        let threads = match self.handler.pool {
            Some(_) => THREADS,
            None => DIRECT_THREADS,
        };
        self.session.run(threads, self.handler)
    }
}

/// See the module's head.
struct DiskFs {
    device: Arc<dyn BlockDevice>,
    file_name: String,
    read_only: bool,
    allow_other: bool,
    /// Without it, whoever reads a request carries it out, and the file is not cached.
    pool: Option<Pool>,
}

/// Where requests wait for the device.
struct Pool {
    runtime: Handle,
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
}

impl Handler for DiskFs {
    fn handle(&self, request: Request, replier: Replier) {
        let is_read = match &request.operation {
            Operation::Read(_) | Operation::Lseek { .. } => true,
            Operation::Write(_) | Operation::Fallocate { .. } | Operation::Fsync { .. } => false,
            _ => return self.answer(&request, replier),
        };
        match &self.pool {
            None => answer::work(&*self.device, request.operation, replier),
            Some(pool) if is_read => self.work(pool, &pool.readers, request, replier),
            Some(pool) => self.work(pool, &pool.writers, request, replier),
        }
    }

    fn forget(&self, _: &[Forget]) {}

    /// Whoever is killed is waited for: a device call ends, with an error if need be.
    fn interrupt(&self, _: Unique) {}
}

impl DiskFs {
    /// Does what is asked on a thread that may wait. If the device panics, the replier is dropped
    /// and answers EIO.
    fn work(&self, pool: &Pool, workers: &Arc<Semaphore>, request: Request, replier: Replier) {
        let (device, workers) = (Arc::clone(&self.device), Arc::clone(workers));
        pool.runtime.spawn(async move {
            let permit = workers.acquire_owned().await;
            let work = move || {
                let _permit = permit;
                answer::work(&*device, request.operation, replier);
            };
            // Who is told is told through the replier.
            drop(tokio::task::spawn_blocking(work));
        });
    }

    fn is_file(&self, request: &Request) -> Result<(), Errno> {
        match request.node {
            answer::FILE => Ok(()),
            _ => Err(Errno::ISDIR),
        }
    }
}
