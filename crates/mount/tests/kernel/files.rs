//! What applications do with files arrives typed and whole, and what is answered arrives at them.

use crate::memory::Memory;
use crate::mounted::{Mounted, mounted};
use mount::kernel::{Operation, SetAttr};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags,
    XattrFlags,
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap())
        .collect()
}

#[test]
fn contents_of_any_size_survive() {
    let Some(mounted) = mounted() else { return };
    for name in ["cached", "direct"] {
        let path = mounted.path(name);
        for len in [0, 1, 4096, 70_000, 300_000, 1 << 20, (3 << 20) + 17] {
            let data = pattern(len);
            fs::write(&path, &data).unwrap();
            assert!(fs::read(&path).unwrap() == data, "{name} of {len} bytes");
            let node = mounted.memory.state().tree.node_of(name);
            assert!(
                mounted.memory.state().tree.inode(node).data == data,
                "{name} of {len} bytes"
            );
        }
        // In the middle, over the border of two pages.
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(b"across", 8190).unwrap();
        let mut found = [0; 8];
        file.read_exact_at(&mut found, 8189).unwrap();
        assert_eq!(&found[1..7], b"across");
    }
    // Data of every size class came by both ways: copied and shared.
    let sizes = mounted
        .memory
        .count(|operation| matches!(operation, Operation::Write(_)));
    assert!(sizes >= 14, "{sizes} writes");
}

#[test]
fn the_names_of_a_tree() {
    let Some(mounted) = mounted() else { return };
    let path = |name: &str| mounted.path(name);
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("dir/a"), "a").unwrap();
    fs::hard_link(path("dir/a"), path("b")).unwrap();
    assert_eq!(fs::metadata(path("b")).unwrap().nlink(), 2);
    std::os::unix::fs::symlink("dir/a", path("link")).unwrap();
    assert_eq!(
        fs::read_link(path("link")).unwrap(),
        std::path::Path::new("dir/a")
    );
    assert_eq!(fs::read(path("link")).unwrap(), b"a");
    rustix::fs::mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let device = rustix::fs::makedev(300, 70_000);
    let kind = FileType::CharacterDevice;
    rustix::fs::mknodat(CWD, path("device"), kind, Mode::from(0o600), device).unwrap();
    assert_eq!(fs::metadata(path("device")).unwrap().rdev(), device);

    fs::rename(path("b"), path("c")).unwrap();
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags)
    };
    let exists = rename("c", "link", RenameFlags::NOREPLACE);
    assert_eq!(exists, Err(rustix::io::Errno::EXIST));
    rename("c", "dir", RenameFlags::EXCHANGE).unwrap();
    assert!(fs::metadata(path("c")).unwrap().is_dir());
    assert_eq!(fs::read(path("dir")).unwrap(), b"a");

    assert!(fs::remove_dir(path("c")).is_err(), "not empty");
    fs::remove_file(path("c/a")).unwrap();
    fs::remove_dir(path("c")).unwrap();
    let error = fs::metadata(path("c")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_long_listing_comes_whole() {
    let Some(mounted) = mounted() else { return };
    let names: BTreeSet<String> = (0..3000)
        .map(|number| format!("{number:05}-{}", "x".repeat(number % 200)))
        .collect();
    for name in &names {
        mounted.memory.state().tree.put(name, b"12345");
    }
    let mut listed = BTreeSet::new();
    for entry in fs::read_dir(mounted.point.path()).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.file_type().unwrap().is_file());
        assert!(
            listed.insert(entry.file_name().into_string().unwrap()),
            "listed twice"
        );
    }
    assert_eq!(listed, names);
    let plus = mounted
        .memory
        .count(|operation| matches!(operation, Operation::ReadDirPlus(_)));
    assert!(plus > 1, "attributes come along");
    // They do: no lookup is needed for an entry of the first page.
    let first = names.first().unwrap();
    assert_eq!(fs::metadata(mounted.path(first)).unwrap().len(), 5);
    assert_eq!(mounted.memory.lookups(first), 0);
}

#[test]
fn attributes_and_their_changes() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, pattern(10_000)).unwrap();
    let node = mounted.memory.state().tree.node_of("file");
    let found = fs::metadata(&path).unwrap();
    // What applications see is not what kernel and file system call it.
    assert_eq!(found.ino(), node.0 + 1_000_000);
    assert_eq!(
        (found.len(), found.mtime_nsec(), found.mode()),
        (10_000, 123_456_789, 0o100_644)
    );

    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(5).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o4711))
        .unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(77, 88);
    file.set_modified(time).unwrap();
    std::os::unix::fs::chown(&path, Some(1000), Some(2000)).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.len(), found.modified().unwrap()), (5, time));
    assert_eq!((found.uid(), found.gid()), (1000, 2000));

    let changes = changes(&mounted.memory);
    assert!(
        changes
            .iter()
            .any(|change| change.size == Some(5) && change.fh.is_some())
    );
    assert!(changes.iter().any(|change| change.mode == Some(0o4711)));
    let chown = changes
        .iter()
        .find(|change| change.uid == Some(1000))
        .unwrap();
    assert!(
        chown.kill_suidgid || chown.mode.is_some(),
        "a new owner drops the set-id bits"
    );

    let statx = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
    assert_eq!(
        (statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec),
        (1_000_000, 7)
    );
}

fn changes(memory: &Memory) -> Vec<SetAttr> {
    let state = memory.state();
    let changes = state
        .log
        .iter()
        .filter_map(|request| match request.operation {
            Operation::SetAttr(change) => Some(change),
            _ => None,
        });
    changes.collect()
}

#[test]
fn space_holes_and_copies() {
    let Some(mounted) = mounted() else { return };
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(mounted.path("direct"))
        .unwrap();
    (&file).write_all(&pattern(8192)).unwrap();
    let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, mode, 4096, 4096).unwrap();
    let mut zeroed = [1; 4096];
    file.read_exact_at(&mut zeroed, 4096).unwrap();
    assert_eq!(zeroed, [0; 4096]);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(100)), Ok(8192));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(100)), Ok(100));
    let to = File::create(mounted.path("direct2")).unwrap();
    let length = 1 << 33;
    let (mut from_at, mut to_at) = (0, 0);
    let copied =
        rustix::fs::copy_file_range(&file, Some(&mut from_at), &to, Some(&mut to_at), length);
    assert!(copied.unwrap() > 0);
    let asked = mounted.memory.count(
        |operation| matches!(operation, Operation::CopyFileRange(copy) if copy.offset_in == 0),
    );
    assert_eq!(asked, 1);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    let state = mounted.memory.state();
    let syncs: Vec<bool> = state
        .log
        .iter()
        .filter_map(|request| match request.operation {
            Operation::Fsync { data_only, .. } => Some(data_only),
            _ => None,
        })
        .collect();
    assert_eq!(syncs, [false, true]);
    drop(state);
    let space = rustix::fs::statvfs(mounted.point.path()).unwrap();
    assert_eq!(
        (space.f_blocks, space.f_bfree, space.f_bavail),
        (1000, 600, 500)
    );
}

#[test]
fn extended_attributes() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, "").unwrap();
    let value = pattern(65_536);
    rustix::fs::setxattr(&path, "user.large", &value, XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "user.small", b"s\0s", XattrFlags::empty()).unwrap();
    let mut room = vec![0; 70_000];
    let len = rustix::fs::getxattr(&path, "user.large", &mut room[..]).unwrap();
    assert!(room[..len] == value);
    let len = rustix::fs::listxattr(&path, &mut room[..]).unwrap();
    assert_eq!(&room[..len], b"user.large\0user.small\0");
    assert_eq!(rustix::fs::getxattr_query(&path, "user.small"), Ok(3));
    let short = rustix::fs::getxattr(&path, "user.small", &mut [0u8; 2][..]);
    assert_eq!(short, Err(rustix::io::Errno::RANGE));
    rustix::fs::removexattr(&path, "user.small").unwrap();
    let gone = rustix::fs::getxattr(&path, "user.small", &mut room[..]);
    assert_eq!(gone, Err(rustix::io::Errno::NODATA));
}

#[test]
fn a_file_without_a_name() {
    let Some(mounted) = mounted() else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let fd = rustix::fs::open(mounted.point.path(), flags, Mode::from(0o600)).unwrap();
    let mut file = File::from(fd);
    file.write_all(b"nameless").unwrap();
    let mut found = [0; 8];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"nameless");
    assert_eq!(fs::read_dir(mounted.point.path()).unwrap().count(), 0);
}

#[test]
fn callers_are_known_with_umask_and_group() {
    let Some(mounted) = mounted() else { return };
    fs::create_dir(mounted.path("shared")).unwrap();
    let shared = mounted.path("shared");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::chown(&shared, None, Some(2222)).unwrap();
    let script = "umask 027; touch shared/file; chmod 4755 shared/file; echo more >> shared/file";
    run_as_user(&mounted, script);
    let state = mounted.memory.state();
    let created = state
        .log
        .iter()
        .find_map(|request| match &request.operation {
            Operation::Create { umask, mode, .. } => Some((request, *umask, *mode)),
            _ => None,
        });
    let (request, umask, mode) = created.expect("a file was created");
    assert_eq!((request.uid, request.gid), (1111, 1111));
    // The group that matters, and only that one of three.
    assert_eq!(request.groups, [2222]);
    assert_eq!((umask, mode), (0o027, 0o666));
    assert_ne!(request.pid, 0);
    let kill = state.log.iter().any(|request| match &request.operation {
        Operation::Write(write) => write.kill_suidgid,
        _ => false,
    });
    assert!(kill, "a write by a user drops the set-id bits");
}

fn run_as_user(mounted: &Mounted, script: &str) {
    let status = Command::new("setpriv")
        .args([
            "--reuid=1111",
            "--regid=1111",
            "--groups=2222,3333,4444",
            "sh",
            "-c",
            script,
        ])
        .current_dir(mounted.point.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn many_threads_at_once() {
    let Some(mounted) = mounted() else { return };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let mounted = &mounted;
            scope.spawn(move || {
                let directory = mounted.path(&format!("d{thread}"));
                fs::create_dir(&directory).unwrap();
                for number in 0..100 {
                    let path = directory.join(number.to_string());
                    let data = pattern(number * 97 + thread);
                    fs::write(&path, &data).unwrap();
                    let mut found = Vec::new();
                    File::open(&path).unwrap().read_to_end(&mut found).unwrap();
                    assert!(found == data);
                }
                assert_eq!(fs::read_dir(&directory).unwrap().count(), 100);
            });
        }
    });
}

#[test]
fn reads_passed_through_do_not_ask() {
    let Some(mounted) = mounted() else { return };
    mounted
        .memory
        .state()
        .tree
        .put("passed", b"from this file system");
    let flags = mount::kernel::InitFlags::PASSTHROUGH;
    if !mounted.agreement.flags.contains(flags) {
        eprintln!("skipped: the kernel has no passthrough");
        return;
    }
    let mut found = [0; 20];
    let file = File::open(mounted.path("passed")).unwrap();
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"from the file behind");
    assert_eq!(
        mounted
            .memory
            .count(|operation| matches!(operation, Operation::Read(_))),
        0
    );
}
