//! A mount of the file system in memory for the length of a test.

use crate::memory::Memory;
use mount::kernel::{
    Agreement, Backings, InitFlags, MountOptions, MountPoint, Notifier, Session, SessionEnd,
    SessionError, Wishes,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything in these tests may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Taken off when dropped.
pub(crate) struct Mounted {
    pub(crate) memory: Arc<Memory>,
    pub(crate) point: MountPoint,
    pub(crate) notifier: Notifier,
    pub(crate) agreement: Agreement,
    run: Option<JoinHandle<Result<SessionEnd, SessionError>>>,
    _directory: TempDir,
    /// Dropped with this, which ends the watchdog.
    _watched: Sender<()>,
}

/// Whether the tests can run here; says why not.
pub(crate) fn possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = Path::new("/dev/fuse").exists();
    if !(root && device) {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    root && device
}

/// The features that the tests are about.
pub(crate) fn wishes() -> Wishes {
    let flags = InitFlags::ASYNC_READ
        | InitFlags::ATOMIC_O_TRUNC
        | InitFlags::POSIX_LOCKS
        | InitFlags::FLOCK_LOCKS
        | InitFlags::DO_READDIRPLUS
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::DONT_MASK
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::SETXATTR_EXT
        | InitFlags::CREATE_SUPP_GROUP
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::HAS_EXPIRE_ONLY
        | InitFlags::PASSTHROUGH;
    Wishes {
        flags,
        ..Wishes::default()
    }
}

pub(crate) fn options() -> MountOptions {
    MountOptions {
        fs_name: "memory:1/test".to_owned(),
        subtype: "azekura".to_owned(),
        allow_other: true,
        default_permissions: true,
        ..MountOptions::default()
    }
}

/// Mounts with two threads, or says why that is not possible.
pub(crate) fn mounted() -> Option<Mounted> {
    mounted_as(&options())
}

pub(crate) fn mounted_as(options: &MountOptions) -> Option<Mounted> {
    if !possible() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let session = Session::mount(directory.path(), options, &wishes()).unwrap();
    let memory = Arc::new(Memory::new(session.backings()));
    let point = session.mount_point().clone();
    let notifier = session.notifier();
    let agreement = *session.agreement();
    let handler = Arc::clone(&memory);
    let run = thread::spawn(move || session.run(2, handler));
    // This process asks and answers. If one of the two is wrong, its threads can wait for each
    // other where no signal reaches them; aborting the mount does.
    let (watched, end) = std::sync::mpsc::channel();
    let hung = point.clone();
    thread::spawn(move || {
        if end.recv_timeout(PATIENCE * 3) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{} hangs and is aborted", hung.path().display());
            hung.abort().unwrap();
        }
    });
    Some(Mounted {
        memory,
        point,
        notifier,
        agreement,
        run: Some(run),
        _directory: directory,
        _watched: watched,
    })
}

impl Mounted {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    /// Whether `name` is there, judged by the oldest form of stat(2). The newest asks for the time
    /// of birth, which comes with no lookup.
    pub(crate) fn exists(&self, name: &str) -> bool {
        rustix::fs::lstat(self.path(name)).is_ok()
    }

    /// How the session ended; waits for it.
    pub(crate) fn end(&mut self) -> SessionEnd {
        let run = self.run.take().expect("ends once");
        eventually("the session ends", || run.is_finished());
        run.join().unwrap().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.memory.release_all();
        let _ = self.point.unmount(true);
        let start = Instant::now();
        while !run.is_finished() && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        let finished = run.is_finished();
        if !finished {
            let _ = self.point.abort();
        }
        let result = run.join();
        if !thread::panicking() {
            assert!(finished, "the session did not end after unmounting");
            assert_eq!(result.unwrap().unwrap(), SessionEnd::Unmounted);
        }
    }
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        thread::sleep(Duration::from_millis(2));
    }
}

/// Also used by the throughput example's check of the environment.
#[test]
fn the_kernel_has_what_the_tests_are_about() {
    let Some(mounted) = mounted() else { return };
    let agreement = mounted.agreement;
    assert!(agreement.minor >= 31);
    assert_eq!(agreement.max_write_bytes, 1 << 20);
    assert!(
        agreement
            .flags
            .contains(InitFlags::FLOCK_LOCKS | InitFlags::POSIX_LOCKS)
    );
    let _: Backings = mounted.memory.backings().clone();
}
