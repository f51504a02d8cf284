//! A block device as a file, with the real kernel. Needs root and `/dev/fuse`.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says why by panicking"
)]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use base::BlockDevice;
use mount::disk::{DiskConfig, DiskMount};
use mount::kernel::{MountPoint, SessionEnd};
use rustix::fs::FallocateFlags;
use sim::CrashDisk;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;

const LEN_BYTES: u64 = 1 << 20;

/// A disk that is served.
struct Served {
    disk: CrashDisk,
    point: MountPoint,
    thread: Option<JoinHandle<SessionEnd>>,
    directory: TempDir,
}

impl Served {
    fn new() -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        if !root || !std::path::Path::new("/dev/fuse").exists() {
            eprintln!("skipped: needs root and /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let disk = CrashDisk::new(LEN_BYTES);
        let config = DiskConfig {
            source: "test".to_owned(),
            allow_other: false,
            read_only: false,
        };
        let device = Arc::new(disk.clone());
        let served = DiskMount::direct(device, directory.path(), &config, "disk").unwrap();
        let point = served.mount_point().clone();
        let thread = std::thread::spawn(move || served.run().unwrap());
        Some(Self {
            disk,
            point,
            thread: Some(thread),
            directory,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .open(self.path("disk"))
            .unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.point.unmount(true).unwrap();
        let end = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            assert_eq!(end.unwrap(), SessionEnd::Unmounted);
        }
    }
}

#[test]
fn a_file_is_what_its_device_is_and_only_fsync_flushes() {
    let Some(served) = Served::new() else {
        return;
    };
    let mut entries = fs::read_dir(served.directory.path()).unwrap();
    assert_eq!(entries.next().unwrap().unwrap().file_name(), "disk");
    assert!(entries.next().is_none());
    let file = served.open();
    assert_eq!(file.metadata().unwrap().len(), LEN_BYTES);
    file.write_all_at(b"written", 5000).unwrap();
    let mut bytes = [0; 7];
    served.disk.read_at(5000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"written");
    assert_eq!(served.disk.counts().flushes, 0);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(served.disk.counts().flushes, 2);
    drop(file);
    assert_eq!(served.disk.counts().flushes, 2, "closing promises nothing");
}

#[test]
fn what_is_punched_or_zeroed_reads_as_zeros() {
    let Some(served) = Served::new() else {
        return;
    };
    let file = served.open();
    file.write_all_at(&[7; 20_000], 0).unwrap();
    let keep = FallocateFlags::KEEP_SIZE;
    let punch = FallocateFlags::PUNCH_HOLE | keep;
    rustix::fs::fallocate(&file, punch, 1000, 3000).unwrap();
    let zero = FallocateFlags::ZERO_RANGE | keep;
    rustix::fs::fallocate(&file, zero, 8192, 4096).unwrap();
    let mut bytes = vec![1; 20_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let is_zero = |at: usize| (1000..4000).contains(&at) || (8192..12_288).contains(&at);
    let wrong = (0..bytes.len()).find(|at| (bytes[*at] == 0) != is_zero(*at));
    assert_eq!(wrong, None);
}

#[test]
fn a_file_keeps_its_length_and_its_name() {
    let Some(served) = Served::new() else {
        return;
    };
    let file = served.open();
    assert!(file.set_len(10).is_err());
    file.set_len(LEN_BYTES).unwrap();
    let error = file.write_all_at(&[1; 10], LEN_BYTES).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let mut end = [0; 10];
    assert_eq!(file.read_at(&mut end, LEN_BYTES - 4).unwrap(), 4);
    assert!(File::create_new(served.path("more")).is_err());
    assert!(fs::rename(served.path("disk"), served.path("other")).is_err());
    assert!(fs::remove_file(served.path("disk")).is_err());
}

#[test]
fn an_error_of_the_device_reaches_the_program() {
    let Some(served) = Served::new() else {
        return;
    };
    let file = served.open();
    served.disk.power_off();
    assert!(file.write_all_at(&[1; 512], 0).is_err());
    assert!(file.sync_all().is_err());
    assert!(file.read_at(&mut [0; 512], 0).is_err());
}
