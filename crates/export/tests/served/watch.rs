//! Changes that others make are reported; our own are not.

use crate::common::{Mounted, Served, is_root, name, open_to_all, shell};
use base::{AttributeChange, Handle, Principal};
use export::{Access, Create, LocalChange, OpenOptions, RenameMode, Watch, XattrMode};
use std::collections::HashSet;
use std::time::{Duration, Instant};

const SHORTLY: Duration = Duration::from_millis(100);

/// Everything that is reported until nothing more comes.
fn collect(watch: &mut Watch) -> HashSet<LocalChange> {
    let mut all = HashSet::new();
    loop {
        let more = watch.next(SHORTLY).expect("the watch goes on");
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

fn entry(directory: &Handle, entry: &str) -> LocalChange {
    LocalChange::Entry {
        directory: directory.clone(),
        name: name(entry),
    }
}

/// Each thing another process can do, with what must be reported for it.
fn reports_what_others_do(served: &Served) {
    let top = served.path.display();
    let mut watch = Watch::new(&served.export).expect("can be watched");
    shell(&format!(
        "cd {top} && mkdir d && echo text > d/f && ln d/f d/other"
    ));
    collect(&mut watch);
    let (directory, file) = (served.find("d").handle, served.find("d/f").handle);
    let inode = LocalChange::Inode(file.clone());
    let cases = [
        ("echo more >> f", vec![inode.clone()]),
        ("truncate -s 1 f", vec![inode.clone()]),
        ("chmod 600 f", vec![inode.clone()]),
        ("chown 5 f", vec![inode.clone()]),
        ("touch -d 2001-01-01 f", vec![inode.clone()]),
        ("setfattr -n user.x -v y f", vec![inode.clone()]),
        (
            "ln f third",
            vec![entry(&directory, "third"), inode.clone()],
        ),
        (
            "mv f g",
            vec![
                entry(&directory, "f"),
                entry(&directory, "g"),
                inode.clone(),
            ],
        ),
        (
            "mv g ../f",
            vec![entry(&directory, "g"), entry(&served.root(), "f")],
        ),
        ("rm other", vec![entry(&directory, "other"), inode.clone()]),
        (
            "echo > n && mv n third",
            vec![entry(&directory, "third"), inode.clone()],
        ),
        ("chmod 700 .", vec![LocalChange::Inode(directory.clone())]),
        ("mkdir sub", vec![entry(&directory, "sub")]),
        ("rmdir sub", vec![entry(&directory, "sub")]),
        ("ln -s x link", vec![entry(&directory, "link")]),
        ("rm ../f", vec![entry(&served.root(), "f"), inode]),
    ];
    for (script, expected) in cases {
        shell(&format!("cd {top}/d && {script}"));
        let reported = collect(&mut watch);
        for change in expected {
            assert!(
                reported.contains(&change),
                "{script}: no {change:?} in {reported:#?}"
            );
        }
    }
}

#[test]
fn what_others_do_is_reported_on_tmpfs() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(4 << 20) else {
        return;
    };
    reports_what_others_do(&Served::at(&mounted.path));
}

#[test]
fn what_others_do_is_reported_on_disk_file_systems() {
    if !is_root() {
        return;
    }
    let kinds: [(&str, &[&str], u64); 3] = [
        ("mkfs.ext4", &["-q"], 32),
        ("mkfs.xfs", &["-q"], 320),
        ("mkfs.btrfs", &["-q"], 128),
    ];
    for (mkfs, arguments, mebibytes) in kinds {
        if let Some(mounted) = Mounted::image(mkfs, arguments, mebibytes << 20, "rw") {
            std::thread::scope(|scope| {
                scope.spawn(|| reports_what_others_do(&Served::at(&mounted.path)));
            });
        }
    }
}

#[test]
fn a_change_is_reported_within_a_tenth_of_a_second() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(4 << 20) else {
        return;
    };
    let served = Served::at(&mounted.path);
    let file = mounted.path.join("f");
    shell(&format!("echo text > {}", file.display()));
    let handle = served.find("f").handle;
    let mut watch = Watch::new(&served.export).expect("can be watched");
    let waiting = std::thread::spawn(move || {
        let changes = watch
            .next(Duration::from_secs(10))
            .expect("the watch goes on");
        (Instant::now(), changes)
    });
    std::thread::sleep(SHORTLY);
    shell(&format!("echo more >> {}", file.display()));
    let written = Instant::now();
    let (reported, changes) = waiting.join().expect("no panic");
    assert_eq!(changes, [LocalChange::Inode(handle)]);
    assert!(reported.saturating_duration_since(written) < SHORTLY);
}

#[test]
fn what_the_server_does_for_its_clients_is_not_reported() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(4 << 20) else {
        return;
    };
    open_to_all(&mounted.path);
    let served = Served::at(&mounted.path);
    let (root, worker, export, top) = (
        Principal::root(),
        &served.worker,
        &served.export,
        served.root(),
    );
    let mut watch = Watch::new(export).expect("can be watched");
    let open = OpenOptions::new(Access::ReadWrite);
    let how = Create {
        mode: 0o644,
        umask: 0,
        exclusive: true,
        open,
    };
    let made = export
        .create(worker, &root, &top, &name("f"), &how)
        .unwrap();
    made.file.write_at(worker, &root, 0, b"text").unwrap();
    let change = AttributeChange {
        mode: Some(0o600),
        ..Default::default()
    };
    export
        .set_attributes(worker, &root, &made.node.handle, &change, None)
        .unwrap();
    export
        .set_xattr(
            worker,
            &root,
            &made.node.handle,
            b"user.x",
            b"y",
            XattrMode::Set,
        )
        .unwrap();
    let (from, to) = (name("f"), name("g"));
    export
        .rename(worker, &root, &top, &from, &top, &to, RenameMode::Replace)
        .unwrap();
    export.unlink(worker, &root, &top, &to).unwrap();
    assert_eq!(collect(&mut watch), HashSet::new());
}

#[test]
fn a_waiting_watch_ends_at_its_time_and_an_overflow_is_told() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(4 << 20) else {
        return;
    };
    let served = Served::at(&mounted.path);
    let mut watch = Watch::new(&served.export).expect("can be watched");
    let begin = Instant::now();
    assert_eq!(watch.next(SHORTLY), Ok(Vec::new()));
    assert!((SHORTLY..20 * SHORTLY).contains(&begin.elapsed()));
    let queued = std::fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let events: usize = queued.trim().parse().expect("a number");
    // Each name is an event of its own, which nothing can be merged with.
    let names = events + 1000;
    shell(&format!(
        "cd {} && seq {names} | xargs sh -c 'for f; do : > x$f; done' sh",
        mounted.path.display()
    ));
    assert!(collect(&mut watch).contains(&LocalChange::Everything));
}
