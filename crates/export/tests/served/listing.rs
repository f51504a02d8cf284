//! Paged listings.

use crate::common::{Mounted, Served, StopAtEnd, ext4, is_root, name};
use base::{FileKind, FsError, Name, Principal};
use export::{DirectoryEntry, Export, Worker};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

fn list(
    export: &Export,
    worker: &Worker,
    who: &Principal,
    page_entries_max: usize,
    plus: bool,
) -> Vec<DirectoryEntry> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let root = export.root();
        let page = export.read_directory(worker, who, root, cookie, page_entries_max, plus);
        let page = page.expect("may be listed");
        assert!(page.entries.len() <= page_entries_max);
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        all.extend(page.entries);
        if page.end {
            return all;
        }
    }
}

#[test]
fn ten_thousand_entries_come_once_each_in_pages_of_any_size() {
    if !is_root() {
        return;
    }
    let Some(mounted) = ext4() else { return };
    let served = Served::at(&mounted.path);
    let (root, worker, export) = (Principal::root(), &served.worker, &served.export);
    std::fs::remove_dir(mounted.path.join("lost+found")).unwrap();
    let inodes: HashMap<Name, u64> = (0..10_000)
        .map(|number| {
            use std::os::unix::fs::MetadataExt;
            let file = format!("file-{number}");
            let meta = std::fs::File::create(served.path.join(&file))
                .unwrap()
                .metadata()
                .unwrap();
            (name(&file), meta.ino())
        })
        .collect();
    for (page_entries_max, plus) in [(1, false), (7, false), (100, true), (4096, true)] {
        let entries = list(export, worker, &root, page_entries_max, plus);
        assert_eq!(entries.len(), inodes.len(), "{page_entries_max} a page");
        for entry in &entries {
            assert_eq!(inodes.get(&entry.name), Some(&entry.inode));
            assert_eq!(entry.kind, Some(FileKind::File));
            assert_eq!(entry.node.is_some(), plus);
        }
        let distinct: HashSet<_> = entries.iter().map(|entry| &entry.name).collect();
        assert_eq!(distinct.len(), entries.len());
        for node in entries
            .iter()
            .filter_map(|entry| entry.node.as_ref())
            .step_by(500)
        {
            let now = export.attributes(worker, &root, &node.handle).unwrap();
            assert_eq!(now, node.attributes);
        }
    }
}

/// What is there throughout is listed exactly once while other entries come and go.
fn is_stable_under_change(served: &Served) {
    const STAYING: usize = 2000;
    for number in 0..STAYING {
        std::fs::File::create(served.path.join(format!("stays-{number}"))).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for who in 0..2 {
            let (stop, path) = (&stop, &served.path);
            scope.spawn(move || {
                for number in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let file = path.join(format!("comes-{who}-{}", number % 700));
                    if std::fs::remove_file(&file).is_err() {
                        std::fs::File::create(&file).unwrap();
                    }
                }
            });
        }
        for round in 0..10 {
            let (page_entries_max, plus) = ([13, 64, 300][round % 3], round % 2 == 0);
            let root = Principal::root();
            let entries = list(
                &served.export,
                &served.worker,
                &root,
                page_entries_max,
                plus,
            );
            let mut times = HashMap::new();
            for entry in entries {
                *times.entry(entry.name).or_insert(0) += 1;
            }
            for number in 0..STAYING {
                let count = times.get(&name(&format!("stays-{number}")));
                assert_eq!(count, Some(&1), "stays-{number} in round {round}");
            }
            // A new process that lists with a cookie finds the same place.
            served.export.sweep();
        }
    });
}

#[test]
fn a_changing_directory_is_listed_without_gaps_on_ext4() {
    if !is_root() {
        return;
    }
    let Some(mounted) = ext4() else { return };
    is_stable_under_change(&Served::at(&mounted.path));
}

#[test]
fn a_changing_directory_is_listed_without_gaps_on_tmpfs() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(16 << 20) else {
        return;
    };
    is_stable_under_change(&Served::at(&mounted.path));
}

#[test]
fn a_page_goes_on_where_the_last_one_ended_even_in_another_server() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    for number in 0..300 {
        std::fs::File::create(served.path.join(number.to_string())).unwrap();
    }
    let first = served
        .export
        .read_directory(worker, &root, &served.root(), 0, 120, false)
        .unwrap();
    let cookie = first.entries.last().unwrap().cookie;
    let again = Export::open(&served.path, &crate::common::options()).unwrap();
    // Asked twice, as a client does whose reply was lost.
    for export in [&again, &served.export, &served.export] {
        let rest = export
            .read_directory(worker, &root, export.root(), cookie, 4096, false)
            .unwrap();
        let names: HashSet<_> = first
            .entries
            .iter()
            .chain(&rest.entries)
            .map(|e| &e.name)
            .collect();
        assert_eq!(
            (rest.end, rest.entries.len(), names.len()),
            (true, 180, 300)
        );
    }
}

#[test]
fn the_right_to_list_is_judged_for_each_caller_at_each_opening() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (worker, export, top) = (&served.worker, &served.export, served.root());
    for number in 0..10 {
        std::fs::File::create(served.path.join(number.to_string())).unwrap();
    }
    let chmod = |mode| {
        let change = base::AttributeChange {
            mode: Some(mode),
            ..Default::default()
        };
        export
            .set_attributes(worker, &Principal::root(), &top, &change, None)
            .unwrap();
    };
    let user = Principal::alone(2001, 2001);
    let page = |who: &Principal, cookie| {
        export
            .read_directory(worker, who, &top, cookie, 4, true)
            .map(|page| page.entries)
    };
    chmod(0o700);
    let cookie = page(&Principal::root(), 0).unwrap()[3].cookie;
    // What root has open between its pages is not the user's.
    assert_eq!(page(&user, cookie), Err(FsError::AccessDenied));
    // Listing without searching shows names only, as ls(1) does.
    chmod(0o744);
    let entries = page(&user, 0).unwrap();
    assert!(entries.len() == 4 && entries.iter().all(|entry| entry.node.is_none()));
    // A page goes on for who began when it was allowed, as with an open directory.
    chmod(0o700);
    assert_eq!(
        page(&user, entries[3].cookie).map(|entries| entries.len()),
        Ok(4)
    );
    assert_eq!(page(&user, 0), Err(FsError::AccessDenied));
    let file = served.find("0").handle;
    let on_file = export.read_directory(worker, &Principal::root(), &file, 0, 4, true);
    assert_eq!(on_file, Err(FsError::NotDirectory));
}

#[test]
fn attributes_and_handle_of_an_entry_are_of_one_inode() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(16 << 20) else {
        return;
    };
    let served = Served::at(&mounted.path);
    for number in 0..64 {
        std::fs::write(mounted.path.join(number.to_string()), vec![0; number]).unwrap();
    }
    let stop = AtomicBool::new(false);
    let mut mixed = HashSet::new();
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        scope.spawn(|| {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            let top = std::fs::File::open(&mounted.path).unwrap();
            for number in (0..63)
                .cycle()
                .take_while(|_| !stop.load(Ordering::Relaxed))
            {
                let (a, b) = (number.to_string(), (number + 1).to_string());
                rustix::fs::renameat_with(&top, a, &top, b, exchange).unwrap();
            }
        });
        let root = Principal::root();
        let mut inode_of = HashMap::new();
        for _ in 0..1500 {
            for entry in list(&served.export, &served.worker, &root, 4096, true) {
                let node = entry.node.expect("no entry is removed");
                let inode = node.attributes.inode;
                if *inode_of.entry(node.handle).or_insert(inode) != inode {
                    mixed.insert(inode);
                }
            }
        }
    });
    assert!(
        mixed.is_empty(),
        "handles with attributes of two inodes: {mixed:?}"
    );
}
