//! What goes on at once through an export: nobody takes what he may not, and nothing is done that
//! is not written down.

use super::stored::STORED;
use super::{NOTED, World, alice, bob, carol};
use crate::common::{Served, is_root, name};
use base::{Access, FsError, Principal, RenameMode};
use export::{Create, OpenOptions, ViewWalk, ViewWork, Worker};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Everybody makes files in a directory, and takes his own away. Carol's are in the way of Bob's,
/// and she takes the name away twice at once.
#[test]
fn a_name_is_taken_from_whom_it_was_judged_to_be_taken_from() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let shared = world.directory("shared", "700");
    let entries = ["A:fi:OWNER@:rwatTnNcCdy", "A::EVERYONE@:wxtncy"];
    let root = Principal::root();
    world.set(&root, &shared, &entries).expect("root may");
    let (export, parent) = (&world.tree.export, &shared.handle);
    let how = Create {
        mode: 0o600,
        umask: 0,
        exclusive: true,
        open: OpenOptions::new(Access::ReadWrite),
    };
    let is_over = AtomicBool::new(false);
    let until_over = |work: &dyn Fn(&Worker)| {
        let worker = Worker::new().expect("one worker per thread");
        while !is_over.load(Ordering::Relaxed) {
            work(&worker);
        }
    };
    let unlink = |worker: &Worker, who: &Principal, file: &str| {
        export.unlink(worker, who, parent, &name(file)).map(drop)
    };
    thread::scope(|scope| {
        scope.spawn(|| until_over(&|worker| _ = unlink(worker, &carol(), "n")));
        scope.spawn(|| {
            until_over(&|worker| {
                let made = export.create(worker, &carol(), parent, &name("n"), &how);
                drop(made);
                let (old, new, mode) = (name("n"), name("carol"), RenameMode::Replace);
                drop(export.rename(worker, &carol(), parent, &old, parent, &new, mode));
            });
        });
        let worker = &world.tree.worker;
        let (mut made, mut lost) = (0, 0);
        for _ in 0..4000 {
            if export
                .create(worker, &bob(), parent, &name("n"), &how)
                .is_ok()
            {
                made += 1;
                lost += u64::from(unlink(worker, &bob(), "n").is_err());
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(made > 10, "{made}");
        assert_eq!(lost, 0, "of {made} files that are Bob's");
    });
}

#[test]
fn a_list_is_given_back_when_that_is_written_down_and_not_before() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let [source, file] = ["source", "file"].map(|path| world.file(path, "640"));
    let Served { export, worker, .. } = &world.tree;
    let list = export.get_xattr(worker, &alice(), &source.handle, b"system.nfs4_acl");
    let list = list.expect("hers");
    world.locally("chmod 600 file");
    let set = export.set_acl(worker, &alice(), &file.handle, &list, NOTED);
    set.expect("hers");
    let is_rich = || {
        world.locally(&format!(
            "getfattr -n {STORED} file >/dev/null && echo yes || true"
        ))
    };
    assert_eq!(is_rich(), "yes\n");
    let compact = |note: export::Note<'_>| {
        let mut walk = ViewWalk::new(export, ViewWork::Compact, false, Vec::new());
        let walked = export.walk_views(worker, &mut walk, Duration::from_secs(60), note);
        assert!(walk.is_over());
        (walked, walk.figures())
    };
    let (walked, figures) = compact(&|_| Err(FsError::Io));
    assert_eq!((figures.changed, figures.failed), (0, 1));
    assert!(walked.changed.is_empty() && walked.unmade.is_empty());
    assert_eq!(is_rich(), "yes\n", "it could not be written down");
    let is_told = AtomicBool::new(false);
    let (walked, figures) = compact(&|edit| {
        assert_eq!((edit.path.as_str(), is_rich().as_str()), ("/file", "yes\n"));
        is_told.store(true, Ordering::Relaxed);
        Ok(())
    });
    assert!(is_told.load(Ordering::Relaxed));
    assert_eq!((figures.changed, figures.failed), (1, 0));
    assert_eq!(walked.changed, [file.handle]);
    assert_eq!(is_rich(), "");
}
