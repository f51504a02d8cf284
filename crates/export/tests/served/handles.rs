//! Handles name what they were made for, and nothing else.

use crate::common::{Mounted, Served, StopAtEnd, eventually, is_root, name, options, shell};
use base::{FileKind, FsError, Handle, Principal, VolumeId};
use export::{
    Access, Difference, Export, ExportError, ExportOptions, HandleKey, OpenOptions, RenameMode,
    RootIdentity, Worker,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_handle_survives_renames_and_another_opening_of_the_tree() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    shell(&format!(
        "cd {} && mkdir -p a/b && echo text > a/b/file",
        served.path.display()
    ));
    let (file, directory) = (served.find("a/b/file"), served.find("a/b"));
    let top = served.root();
    served
        .export
        .rename(
            worker,
            &root,
            &top,
            &name("a"),
            &top,
            &name("z"),
            RenameMode::NoReplace,
        )
        .expect("free name");
    let again = Export::open(&served.path, &options()).expect("exportable");
    for export in [&served.export, &again] {
        let found = export
            .lookup(worker, &root, &directory.handle, &name("file"))
            .expect("there");
        assert_eq!(found.handle, file.handle);
        let attributes = export
            .attributes(worker, &root, &file.handle)
            .expect("there");
        assert_eq!(
            (attributes.inode, attributes.size),
            (file.attributes.inode, 5)
        );
    }
    assert_eq!(again.root(), served.export.root());
}

/// After a restart of the machine the kernel has to find each inode on the disk, and knows a file
/// without knowing any of its names.
#[test]
fn a_handle_is_good_for_everything_after_the_file_system_was_mounted_anew() {
    if !is_root() {
        return;
    }
    for (mkfs, mebibytes) in [("mkfs.ext4", 32), ("mkfs.xfs", 320), ("mkfs.btrfs", 128)] {
        if let Some(mounted) = Mounted::image(mkfs, &["-q"], mebibytes << 20, "rw") {
            // A worker's thread is not the same afterwards; each gets its own.
            std::thread::scope(|scope| {
                scope.spawn(|| use_handles_after_remount(&mounted));
            });
        }
    }
}

fn use_handles_after_remount(mounted: &Mounted) {
    let user = Principal::alone(2001, 2001);
    let served = Served::at(&mounted.path);
    shell(&format!(
        "cd {} && mkdir -p a/b/c && echo text > a/b/c/f && ln -s x a/b/c/l && chown -R 2001 a",
        mounted.path.display()
    ));
    let (directory, file) = (served.find("a/b/c").handle, served.find("a/b/c/f").handle);
    let link = served.find("a/b/c/l").handle;
    drop(served);
    mounted.remount();
    let Served { export, worker, .. } = &Served::at(&mounted.path);
    let open = export.open_file(worker, &user, &file, OpenOptions::new(Access::ReadWrite));
    assert_eq!(open.unwrap().attributes().unwrap().size, 5);
    let change = base::AttributeChange {
        mode: Some(0o600),
        size: Some(1),
        ..Default::default()
    };
    let after = export
        .set_attributes(worker, &user, &file, &change, None)
        .unwrap();
    assert_eq!((after.mode, after.size), (0o600, 1));
    export
        .set_xattr(
            worker,
            &user,
            &file,
            b"user.x",
            b"y",
            export::XattrMode::Create,
        )
        .unwrap();
    assert_eq!(
        export.get_xattr(worker, &user, &file, b"user.x"),
        Ok(b"y".to_vec())
    );
    assert_eq!(export.read_link(worker, &user, &link), Ok(b"x".to_vec()));
    export
        .link(worker, &user, &file, &directory, &name("g"))
        .unwrap();
    let found = export
        .lookup(worker, &user, &directory, &name("g"))
        .unwrap();
    assert_eq!((found.handle, found.attributes.links), (file, 2));
    let page = export
        .read_directory(worker, &user, &directory, 0, 10, true)
        .unwrap();
    assert_eq!(page.entries.len(), 3);
    export
        .unlink(worker, &user, &directory, &name("f"))
        .unwrap();
}

#[test]
fn forged_foreign_and_truncated_handles_are_stale() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    shell(&format!("echo text > {}/file", served.path.display()));
    let genuine = served.find("file").handle;
    let stale = |export: &Export, handle: &Handle| {
        let answers = [
            export.attributes(worker, &root, handle).err(),
            export
                .open_file(worker, &root, handle, OpenOptions::new(Access::Read))
                .err(),
            export.lookup(worker, &root, handle, &name("x")).err(),
        ];
        assert_eq!(answers, [Some(FsError::Stale); 3]);
    };
    for bit in 0..genuine.as_bytes().len() * 8 {
        let mut bytes = genuine.as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        stale(&served.export, &Handle::new(&bytes).unwrap());
    }
    for len in 1..genuine.as_bytes().len() {
        stale(
            &served.export,
            &Handle::new(&genuine.as_bytes()[..len]).unwrap(),
        );
    }
    let other_volume = ExportOptions {
        volume: VolumeId([8; 16]),
        ..options()
    };
    let other_key = ExportOptions {
        key: HandleKey::new([43; 32]),
        ..options()
    };
    for options in [other_volume, other_key] {
        let other = Export::open(&served.path, &options).expect("exportable");
        stale(&other, &genuine);
        stale(&served.export, other.root());
    }
}

#[test]
fn a_handle_of_a_removed_inode_is_stale_and_never_means_its_successor() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    for round in 0..50 {
        shell(&format!(
            "cd {} && rm -rf x && echo {round} > x",
            served.path.display()
        ));
        let node = served.find("x");
        let removed = served
            .export
            .unlink(worker, &root, &served.root(), &name("x"))
            .unwrap();
        let removed = removed.expect("nobody else changes the name");
        assert_eq!(
            (removed.handle, removed.attributes.links),
            (node.handle.clone(), 0)
        );
        // File systems give a freed inode number to the next file; its generation differs.
        std::fs::create_dir(served.path.join("x")).unwrap();
        let answer = || served.export.attributes(worker, &root, &node.handle);
        assert!(
            eventually(|| answer() == Err(FsError::Stale)),
            "{:?}",
            answer()
        );
    }
}

#[test]
fn an_open_file_without_a_name_is_served_until_it_is_closed() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker, export) = (Principal::root(), &served.worker, &served.export);
    std::fs::write(served.path.join("x"), "text").unwrap();
    let handle = served.find("x").handle;
    let open = OpenOptions::new(Access::ReadWrite);
    let file = export.open_file(worker, &root, &handle, open).unwrap();
    export
        .unlink(worker, &root, &served.root(), &name("x"))
        .unwrap();
    assert_eq!(file.attributes().unwrap().links, 0);
    assert_eq!(export.attributes(worker, &root, &handle).unwrap().size, 4);
    let change = base::AttributeChange {
        size: Some(1),
        mode: Some(0o600),
        ..Default::default()
    };
    let after = export
        .set_attributes(worker, &root, &handle, &change, Some(&file))
        .unwrap();
    assert_eq!((after.size, after.mode, after.links), (1, 0o600, 0));
    drop(file);
    // Programs that other tests begin hold every open file until they have begun.
    let answer = || export.attributes(worker, &root, &handle);
    assert!(
        eventually(|| answer() == Err(FsError::Stale)),
        "{:?}",
        answer()
    );
}

#[test]
fn the_space_of_removed_files_is_free_at_once_or_after_a_sweep() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(64 << 20) else {
        return;
    };
    let served = Served::at(&mounted.path);
    let (root, worker, export) = (Principal::root(), &served.worker, &served.export);
    let free = || {
        export
            .statfs(worker, &root, export.root())
            .unwrap()
            .blocks_free
    };
    let before = free();
    let make = |file: &str| {
        std::fs::write(mounted.path.join(file), vec![1; 8 << 20]).unwrap();
        served.find(file)
    };
    make("unlinked");
    export
        .unlink(worker, &root, export.root(), &name("unlinked"))
        .unwrap();
    assert!(eventually(|| free() == before), "unlinked by a client");

    make("over");
    std::fs::write(mounted.path.join("new"), "").unwrap();
    let renamed = export
        .rename(
            worker,
            &root,
            export.root(),
            &name("new"),
            export.root(),
            &name("over"),
            RenameMode::Replace,
        )
        .unwrap();
    assert_eq!(renamed.replaced.map(|node| node.attributes.links), Some(0));
    assert!(eventually(|| free() == before), "renamed over by a client");

    make("local");
    std::fs::remove_file(mounted.path.join("local")).unwrap();
    assert_ne!(free(), before, "the cache still holds it");
    export.sweep();
    assert!(
        eventually(|| free() == before),
        "removed by another process"
    );
}

#[test]
fn more_files_than_descriptors_are_served_within_the_bound() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    let export = Export::open(
        &served.path,
        &ExportOptions {
            descriptors_max: 64,
            ..options()
        },
    );
    let export = export.expect("exportable");
    let nodes: Vec<_> = (0..1000)
        .map(|number| {
            std::fs::write(served.path.join(number.to_string()), number.to_string()).unwrap();
            export
                .lookup(worker, &root, export.root(), &name(&number.to_string()))
                .unwrap()
        })
        .collect();
    for node in nodes.iter().chain(nodes.iter().rev()) {
        let attributes = export.attributes(worker, &root, &node.handle).unwrap();
        assert_eq!(attributes.inode, node.attributes.inode);
        assert!(
            export.descriptors() <= 64,
            "{} descriptors",
            export.descriptors()
        );
    }
}

/// Set in the process that the next test starts; the limit of open files is a process's.
const CHILD: &str = "EXPORT_TEST_FEW_DESCRIPTORS";

#[test]
fn a_process_out_of_descriptors_drops_some_and_goes_on() {
    if !is_root() {
        return;
    }
    if std::env::var_os(CHILD).is_none() {
        let test = "handles::a_process_out_of_descriptors_drops_some_and_goes_on";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child
            .args(["--exact", test])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        return;
    }
    let served = Served::temporary();
    let (root, worker, export) = (Principal::root(), &served.worker, &served.export);
    let few = rustix::process::Rlimit {
        current: Some(100),
        maximum: Some(100),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    for number in 0..500 {
        std::fs::write(served.path.join(number.to_string()), "text").unwrap();
        let node = export
            .lookup(worker, &root, export.root(), &name(&number.to_string()))
            .unwrap();
        let options = OpenOptions::new(Access::Read);
        export
            .open_file(worker, &root, &node.handle, options)
            .unwrap();
        export.forget(&node.handle);
        export.attributes(worker, &root, &node.handle).unwrap();
    }
    assert!(export.descriptors() < 100);
}

#[test]
fn symbolic_links_and_mount_points_lead_nowhere() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(1 << 20) else {
        return;
    };
    let served = Served::at(&mounted.path);
    let (root, worker, export) = (Principal::root(), &served.worker, &served.export);
    shell(&format!(
        "cd {} && mkdir sub dir bound && touch file bound-file && mount -t tmpfs tmpfs sub \
         && mount --bind dir bound && mount --bind file bound-file && ln -s /etc out \
         && ln -s .. up && ln -s /proc/self/root magic && ln -s /proc/self/cwd/../.. dir/cwd",
        mounted.path.display()
    ));
    for link in ["out", "up", "magic", "dir/cwd"] {
        let node = served.find(link);
        assert_eq!(node.attributes.kind, FileKind::Symlink, "{link}");
        let below = export.lookup(worker, &root, &node.handle, &name("passwd"));
        assert_eq!(below.err(), Some(FsError::NotDirectory), "{link}");
        let open = export.open_file(worker, &root, &node.handle, OpenOptions::new(Access::Read));
        assert_eq!(open.err(), Some(FsError::Loop), "{link}");
    }
    let target = export.read_link(worker, &root, &served.find("magic").handle);
    assert_eq!(target, Ok(b"/proc/self/root".to_vec()));
    let page = export
        .read_directory(worker, &root, export.root(), 0, 100, true)
        .unwrap();
    for mount in ["sub", "bound", "bound-file"] {
        let across = export.lookup(worker, &root, export.root(), &name(mount));
        assert_eq!(across, Err(FsError::CrossDevice), "{mount}");
        let entry = page.entries.iter().find(|entry| entry.name == name(mount));
        assert!(entry.expect("is listed").node.is_none(), "{mount}");
    }
    shell(&format!(
        "cd {} && umount sub bound bound-file",
        mounted.path.display()
    ));
}

#[test]
fn no_lookup_escapes_while_directories_and_links_change_places() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "longer, as it is outside").unwrap();
    shell(&format!(
        "cd {} && mkdir -p top/swap && echo inside > top/swap/file && ln -s {} top/link",
        served.path.display(),
        outside.path().display()
    ));
    let stop = AtomicBool::new(false);
    let (mut reached, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for _ in 0..2 {
            scope.spawn(|| swap_until(&served.path.join("top"), &stop));
        }
        let (root, worker, export) = (Principal::root(), &served.worker, &served.export);
        let top = served.find("top").handle;
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            let file = export
                .lookup(worker, &root, &top, &name("swap"))
                .and_then(|node| export.lookup(worker, &root, &node.handle, &name("file")));
            match file {
                Ok(node) => {
                    assert_eq!(node.attributes.size, "inside\n".len() as u64, "escaped");
                    reached += 1;
                }
                Err(FsError::NotDirectory) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert!(
        reached > 100 && refused > 100,
        "both happened: {reached} and {refused}"
    );
}

#[test]
fn a_name_that_moves_between_directories_is_there_or_not() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(1 << 20) else {
        return;
    };
    let served = Served::at(&mounted.path);
    shell(&format!(
        "cd {} && mkdir -p a b && touch a/f",
        mounted.path.display()
    ));
    let stop = AtomicBool::new(false);
    let (mut there, mut elsewhere) = (0, 0);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        scope.spawn(|| {
            let (a, b) = (mounted.path.join("a/f"), mounted.path.join("b/f"));
            while !stop.load(Ordering::Relaxed) {
                std::fs::rename(&a, &b).unwrap();
                std::fs::rename(&b, &a).unwrap();
            }
        });
        let (root, a) = (Principal::root(), served.find("a").handle);
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            match served.export.lookup(&served.worker, &root, &a, &name("f")) {
                Ok(_) => there += 1,
                Err(FsError::NotFound) => elsewhere += 1,
                // RESOLVE_BENEATH takes the move for an escape, now and then.
                Err(error) => panic!("{error} after {there} and {elsewhere}"),
            }
        }
    });
    assert!(
        there > 100 && elsewhere > 100,
        "both happened: {there} and {elsewhere}"
    );
}

fn swap_until(directory: &Path, stop: &AtomicBool) {
    let flags = rustix::fs::OFlags::PATH;
    let fd = rustix::fs::open(directory, flags, rustix::fs::Mode::empty()).expect("there");
    while !stop.load(Ordering::Relaxed) {
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(&fd, "swap", &fd, "link", exchange).expect("both are there");
    }
}

#[test]
fn a_tree_whose_top_is_gone_answers_with_errors() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    let top = served.path.join("top");
    shell(&format!("mkdir {0} && echo text > {0}/file", top.display()));
    let export = Export::open(&top, &options()).expect("exportable");
    let file = export
        .lookup(worker, &root, export.root(), &name("file"))
        .unwrap()
        .handle;
    std::fs::rename(&top, served.path.join("moved")).unwrap();
    assert!(export.attributes(worker, &root, &file).is_ok(), "moved");
    std::fs::remove_dir_all(served.path.join("moved")).unwrap();
    export.sweep();
    assert!(eventually(
        || export.attributes(worker, &root, &file) == Err(FsError::Stale)
    ));
    let lookup = export.lookup(worker, &root, export.root(), &name("file"));
    assert_eq!(lookup, Err(FsError::NotFound));
    let made = export.make_directory(worker, &root, export.root(), &name("d"), 0o755, 0);
    assert_eq!(made, Err(FsError::NotFound));
    let missing = Export::open(&top, &options()).err();
    assert!(matches!(missing, Some(ExportError::Open { .. })));
    let no_handles = Export::open(Path::new("/proc"), &options()).err();
    assert!(
        matches!(no_handles, Some(ExportError::Handles { .. })),
        "{no_handles:?}"
    );
}

#[test]
fn a_tree_is_known_again_after_a_remount_and_another_one_is_not_taken_for_it() {
    if !is_root() {
        return;
    }
    let kinds = [
        ("mkfs.ext4", vec!["-q", "-F"], 32 << 20),
        ("mkfs.xfs", vec!["-q"], 320 << 20),
        ("mkfs.btrfs", vec!["-q"], 128 << 20),
    ];
    for (mkfs, arguments, bytes) in kinds {
        let make = || Mounted::image(mkfs, &arguments, bytes, "rw");
        let (Some(mounted), Some(other)) = (make(), make()) else {
            continue;
        };
        let open = |path: &Path, known| Export::open_known(path, &options(), known);
        let export = open(&mounted.path, None).expect("exportable");
        let known: RootIdentity = export.identity().to_string().parse().expect("its text");
        let handle = export.root().clone();
        drop(export);
        mounted.remount();
        let again = open(&mounted.path, Some(&known)).expect("the same");
        assert_eq!((again.root(), again.identity()), (&handle, &known));
        let what = |path: &Path| match open(path, Some(&known)).err() {
            Some(ExportError::Another { what, .. }) => what,
            other => panic!("{mkfs}: {other:?}"),
        };
        // The same inode number there.
        assert_eq!(what(&other.path), Difference::FileSystem, "{mkfs}");
        let below = mounted.path.join("below");
        std::fs::create_dir(&below).unwrap();
        assert_eq!(what(&below), Difference::Directory, "{mkfs}");
        let link = mounted.path.join("link");
        std::os::unix::fs::symlink(&below, &link).unwrap();
        assert_eq!(what(&link), Difference::Link(below), "{mkfs}");
    }
}

#[test]
fn a_tree_in_memory_is_known_by_its_kind_and_no_link_leads_there() {
    let Some(mounted) = is_root().then(|| Mounted::tmpfs(1 << 20)).flatten() else {
        return;
    };
    let open = |path: &Path, known| Export::open_known(path, &options(), known);
    let known = open(&mounted.path, None)
        .expect("exportable")
        .identity()
        .clone();
    let other = Mounted::tmpfs(1 << 20).expect("as the first");
    open(&other.path, Some(&known)).expect("as after a start of the machine");
    let below = mounted.path.join("below");
    std::fs::create_dir(&below).unwrap();
    let link = other.path.join("link");
    std::os::unix::fs::symlink(&mounted.path, &link).unwrap();
    for known in [Some(&known), None] {
        let refused = open(&link, known).err();
        let what = Difference::Link(mounted.path.clone());
        assert!(
            matches!(&refused, Some(ExportError::Another { what: w, .. }) if *w == what),
            "{refused:?}"
        );
    }
    let refused = open(&below, Some(&known)).err();
    assert!(matches!(
        refused,
        Some(ExportError::Another {
            what: Difference::Directory,
            ..
        })
    ));
}

#[test]
fn a_thread_has_one_worker_at_a_time() {
    if !is_root() {
        return;
    }
    let first = Worker::new().expect("the thread's first");
    assert!(matches!(Worker::new(), Err(ExportError::WorkerExists)));
    drop(first);
    Worker::new().expect("the first one is gone");
}

#[test]
fn a_process_without_privilege_is_told_what_it_lacks() {
    if !is_root() {
        return;
    }
    let user = crate::common::LocalUser::new(Principal::alone(2001, 2001));
    let (worker, export) = user.run(|| {
        (
            Worker::new().err(),
            Export::open(Path::new("/"), &options()).err(),
        )
    });
    for error in [worker, export] {
        let error = error.expect("not root");
        assert!(
            matches!(
                error,
                ExportError::Privilege {
                    capability: "CAP_SETUID"
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("run the server as root"));
    }
}

#[test]
fn an_identity_that_cannot_be_taken_on_is_refused() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let too_many = Principal::new(1, 1, (0..70_000).collect());
    for nobody in [
        Principal::alone(u32::MAX, 0),
        Principal::alone(0, u32::MAX),
        too_many,
    ] {
        let answer = served
            .export
            .attributes(&served.worker, &nobody, &served.root());
        assert_eq!(answer, Err(FsError::AccessDenied));
    }
    let root = Principal::root();
    assert!(
        served
            .export
            .attributes(&served.worker, &root, &served.root())
            .is_ok()
    );
}
