//! Mounting and unmounting both ways, files in use, handlers that fail, mounts that hang.

use crate::mounted::{Mounted, eventually, mounted, mounted_as, options, possible, wishes};
use mount::kernel::{
    MountError, MountMethod, MountOptions, Session, SessionEnd, SessionError, UnmountError,
};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;

/// The line of the mount in the list, without the numbers in front.
fn listed(mounted: &Mounted) -> Option<String> {
    let path = mounted.point.path().to_str().unwrap();
    let list = fs::read_to_string("/proc/self/mounts").unwrap();
    list.lines()
        .find(|line| line.split(' ').nth(1) == Some(path))
        .map(str::to_owned)
}

#[test]
fn both_ways_of_mounting() {
    if !possible() {
        return;
    }
    for method in [MountMethod::Direct, MountMethod::Helper] {
        let options = MountOptions {
            method,
            read_only: true,
            exec: false,
            ..options()
        };
        let helper = std::process::Command::new("fusermount3").arg("-V").output();
        if method == MountMethod::Helper && helper.is_err() {
            eprintln!("skipped: no fusermount3");
            continue;
        }
        let mounted = mounted_as(&options).unwrap();
        let line = listed(&mounted).expect("it is in the list");
        let fields: Vec<&str> = line.split(' ').collect();
        assert_eq!(
            (fields[0], fields[2]),
            ("memory:1/test", "fuse.azekura"),
            "{method:?}"
        );
        for option in [
            "ro",
            "nosuid",
            "nodev",
            "noexec",
            "allow_other",
            "default_permissions",
        ] {
            assert!(
                fields[3].split(',').any(|found| found == option),
                "{method:?}: {line}"
            );
        }
        assert_eq!(fs::read_dir(mounted.point.path()).unwrap().count(), 0);
        // Another test that starts a process holds the directory just read until the child has
        // its own program, and a mount that somebody holds is busy.
        let unmounted = || match mounted.point.unmount(false) {
            Err(UnmountError::Busy { .. }) => false,
            answer => {
                answer.unwrap();
                true
            }
        };
        eventually("unmounted", unmounted);
        assert_eq!(listed(&mounted), None);
        mounted.point.unmount(false).expect("it is gone already");
    }
}

#[test]
fn unmounting_with_open_files() {
    let Some(mut mounted) = mounted() else { return };
    fs::write(mounted.path("file"), "contents").unwrap();
    let mut file = File::open(mounted.path("file")).unwrap();
    let busy = mounted.point.unmount(false);
    assert!(matches!(busy, Err(UnmountError::Busy { .. })), "{busy:?}");
    assert!(listed(&mounted).is_some());
    mounted.point.unmount(true).unwrap();
    assert_eq!(listed(&mounted), None);
    let mut found = String::new();
    file.read_to_string(&mut found).unwrap();
    assert_eq!(found, "contents", "what is open goes on");
    drop(file);
    assert_eq!(mounted.end(), SessionEnd::Unmounted);
}

#[test]
fn a_handler_that_fails_fails_one_request() {
    let Some(mounted) = mounted() else { return };
    for name in ["dropped", "panics", "refused", "fine"] {
        mounted.memory.state().tree.put(name, b"contents");
    }
    for name in ["dropped", "panics", "panics", "refused"] {
        let error = fs::read(mounted.path(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "{name}: {error}");
    }
    assert_eq!(fs::read(mounted.path("fine")).unwrap(), b"contents");
}

#[test]
fn a_session_that_is_not_run_leaves_nothing_mounted() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let session = Session::mount(directory.path(), &options(), &wishes()).unwrap();
    let point = session.mount_point().clone();
    assert!(point.is_mounted().unwrap());
    drop(session);
    assert!(!point.is_mounted().unwrap());
}

#[test]
fn a_mount_that_hangs_can_be_aborted() {
    let Some(mut mounted) = mounted() else { return };
    let node = mounted.memory.state().tree.put("stuck", b"");
    let path = mounted.path("stuck");
    assert!(mounted.exists("stuck"));
    mounted.notifier.inval_inode(node, -1, 0).unwrap();
    let waiter = std::thread::spawn(move || fs::metadata(path).unwrap_err());
    eventually("the server is asked", || mounted.memory.stuck() == 1);
    mounted.point.abort().unwrap();
    let error = waiter.join().unwrap();
    assert!(error.raw_os_error().is_some(), "{error}");
    let end = mounted.end();
    let listed_by_kernel = fs::exists("/sys/fs/fuse/connections").unwrap()
        && fs::metadata("/sys/fs/fuse/connections").unwrap().dev()
            != fs::metadata("/sys/fs/fuse").unwrap().dev();
    // Where the list of connections is not mounted, the mount is taken off in the same call.
    assert!(end == SessionEnd::Aborted || !listed_by_kernel, "{end:?}");
    assert_eq!(listed(&mounted), None, "nothing is left of it");
    // Too late, but no harm.
    mounted.memory.release_all();
}

#[test]
fn a_mount_whose_server_has_ended_is_called_so() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // A server that ended without a word: its device is closed, its mount stands.
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0",
        fd_number(&device)
    );
    let data = std::ffi::CString::new(data).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("x", directory.path(), "fuse.x", flags, data.as_c_str()).unwrap();
    drop(device);
    let error = Session::mount(directory.path(), &options(), &wishes()).unwrap_err();
    let detach = rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(directory.path(), detach).unwrap();
    assert!(
        matches!(error, SessionError::Mount(MountError::Stale { .. })),
        "{error}"
    );
}

fn fd_number(file: &File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}
