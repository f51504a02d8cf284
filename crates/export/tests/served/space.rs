//! Full file systems: each caller meets the limits that a local user meets.

use crate::common::{Mounted, Served, is_root, name};
use base::{AttributeChange, FsError, Principal};
use export::{Access, Create, OpenFile, OpenOptions};

/// Bytes that `who` can write into a new file, and the error that ends it.
fn fill(served: &Served, who: &Principal, file: &str) -> (OpenFile, u64, FsError) {
    let open = OpenOptions::new(Access::ReadWrite);
    let how = Create {
        mode: 0o644,
        umask: 0,
        exclusive: true,
        open,
    };
    let made = served
        .export
        .create(&served.worker, who, &served.root(), &name(file), &how);
    let file = made.expect("a new file").file;
    let mut end = 0;
    loop {
        match file.write_at(&served.worker, who, end, &[1; 300_000]) {
            Ok(written) => end += written.bytes as u64,
            Err(error) => return (file, end, error),
        }
    }
}

fn open_top(served: &Served) {
    let change = AttributeChange {
        mode: Some(0o1777),
        ..Default::default()
    };
    let root = Principal::root();
    let top = served.root();
    served
        .export
        .set_attributes(&served.worker, &root, &top, &change, None)
        .expect("root may");
}

#[test]
fn a_full_file_system_says_no_space_after_the_last_byte_that_fits() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(1 << 20) else {
        return;
    };
    let served = Served::at(&mounted.path);
    let root = Principal::root();
    let (file, bytes, error) = fill(&served, &root, "f");
    assert_eq!((bytes, error), (1 << 20, FsError::NoSpace));
    assert_eq!(file.attributes().map(|a| a.size), Ok(1 << 20));
    // What is there stays writable, and space that is given back can be used again.
    assert_eq!(
        file.write_at(&served.worker, &root, 0, &[2; 4096])
            .map(|w| w.bytes),
        Ok(4096)
    );
    file.truncate(&served.worker, &root, 0).expect("root may");
    assert_eq!(
        file.write_at(&served.worker, &root, 0, &[2; 4096])
            .map(|w| w.bytes),
        Ok(4096)
    );
}

#[test]
fn reserved_blocks_are_for_root_only() {
    if !is_root() {
        return;
    }
    let mkfs = ["-q", "-m", "50", "-O", "^has_journal"];
    let Some(mounted) = Mounted::image("mkfs.ext4", &mkfs, 32 << 20, "nodelalloc") else {
        return;
    };
    let served = Served::at(&mounted.path);
    open_top(&served);
    let (_user_file, user, error) = fill(&served, &Principal::alone(2001, 2001), "user");
    assert_eq!(error, FsError::NoSpace);
    let (_root_file, root, error) = fill(&served, &Principal::root(), "root");
    assert_eq!(error, FsError::NoSpace);
    assert!(
        root > 12 << 20,
        "root found {root} bytes behind the user's {user}"
    );
}

#[test]
fn quotas_hold_for_users_of_the_export() {
    if !is_root() {
        return;
    }
    let mkfs = ["-q", "-O", "quota"];
    let Some(mounted) = Mounted::image("mkfs.ext4", &mkfs, 32 << 20, "usrquota") else {
        return;
    };
    let served = Served::at(&mounted.path);
    open_top(&served);
    if !quota::limit(&mounted.path, 2001, 2 << 20) {
        eprintln!("skipped: this kernel keeps no quotas");
        return;
    }
    let (_file, bytes, error) = fill(&served, &Principal::alone(2001, 2001), "limited");
    assert_eq!(error, FsError::QuotaExceeded);
    assert!((1 << 20..=2 << 20).contains(&bytes), "{bytes} bytes");
    let (_file, bytes, _) = fill(&served, &Principal::alone(2002, 2002), "free");
    assert!(bytes > 4 << 20, "{bytes} bytes without a limit");
}

mod quota {
    #![expect(unsafe_code, reason = "quotactl(2) has no safe wrapper")]

    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    /// Sets a user's hard limit of bytes on the file system of `path`, as setquota(8) would.
    pub(super) fn limit(path: &Path, uid: u32, bytes_max: u64) -> bool {
        const UNIT_BYTES: u64 = 1024;
        let top = std::fs::File::open(path).expect("there");
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut limits: libc::dqblk = unsafe { std::mem::zeroed() };
        limits.dqb_bhardlimit = bytes_max / UNIT_BYTES;
        limits.dqb_valid = libc::QIF_BLIMITS;
        let command = libc::QCMD(libc::Q_SETQUOTA, libc::USRQUOTA);
        // SAFETY: the descriptor is open and `limits` outlives the call, which only reads it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_quotactl_fd,
                top.as_raw_fd(),
                command,
                uid,
                std::ptr::from_mut(&mut limits),
            )
        };
        result == 0 || on_device(path, command, uid, &mut limits)
    }

    /// For kernels before 5.14, which know file systems by their device only.
    fn on_device(path: &Path, command: i32, uid: u32, limits: &mut libc::dqblk) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there");
        let line = mounts
            .lines()
            .find(|line| line.split(' ').nth(1) == path.to_str());
        let Some(device) = line.and_then(|line| line.split(' ').next()) else {
            return false;
        };
        let device = CString::new(device).expect("no NUL");
        // SAFETY: the device's name is NUL-terminated and both arguments outlive the call.
        unsafe {
            libc::quotactl(
                command,
                device.as_ptr(),
                uid.cast_signed(),
                std::ptr::from_mut(limits).cast(),
            ) == 0
        }
    }
}
