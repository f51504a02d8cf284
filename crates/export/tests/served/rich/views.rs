//! Views that are stored beside files: never of what is no more, whatever is done behind the
//! server's back; not where storing would harm; and the same bytes under each policy.

use super::{ALICE, NOTED, STAFF, World, alice, bob, carol};
use crate::common::{Mounted, Served, eventually, is_root};
use acl::{Costs, Point, Policy, PosixAcl, PosixEntry, PosixWho};
use base::{Access, FsError, Node, Principal, XattrMode};
use export::{Calibration, Export, ViewWalk, ViewWork};
use std::path::Path;
use std::time::Duration;

const VIEW: &str = "security.azekura.view";

/// A number that looks drawn, from where it stands in a row.
fn drawn(seed: u64) -> u64 {
    let mixed = seed
        .wrapping_add(0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) >> 17
}

/// Costs by which storing pays from this access on, whatever the length.
fn paying_from(first: u64) -> Costs {
    Costs::new(vec![Point {
        entries: 3,
        stored_nanos: 1000,
        converted_nanos: 2000,
        storing_nanos: 1000 + 1000 * first,
        stored_reads: 0,
        converted_reads: 0,
    }])
}

impl World {
    fn bytes(&self, node: &Node) -> Vec<u8> {
        self.bytes_of(&self.tree.export, node)
    }

    /// What another opening of the same tree shows.
    fn bytes_of(&self, export: &Export, node: &Node) -> Vec<u8> {
        let (worker, root) = (&self.tree.worker, Principal::root());
        let value = export.get_xattr(worker, &root, &node.handle, b"system.nfs4_acl");
        value.expect("root may look")
    }

    fn store(&self) -> usize {
        let Served { export, worker, .. } = &self.tree;
        export.store_views(worker, Duration::ZERO).len()
    }

    /// Whether a view lies beside a file.
    fn has_view(&self, path: &str) -> bool {
        let value = self.locally(&format!("getfattr -h -n {VIEW} {path} 2>&1 || true"));
        value.contains(&format!("{VIEW}="))
    }

    fn says(&self, policy: Policy, costs: &Costs) {
        self.tree.export.set_storing(policy, costs.clone());
    }
}

/// Something that is done to one of three files and a directory without the server, or by it.
fn disturb(world: &World, nodes: &[(&str, Node)], draw: u64) {
    let (path, node) = &nodes[(draw % 4) as usize];
    let (other, _) = &nodes[(draw >> 4) as usize % 4];
    let is_directory = *path == "d";
    let (uid, bits) = (2002 + (draw >> 8) % 3, (draw >> 12) % 8);
    let default = if is_directory { "-d" } else { "" };
    let copy = format!(
        "v=$(getfattr -h -n {VIEW} -e hex {other} 2>/dev/null | sed -n 's/^{VIEW}=//p'); \
         [ -z \"$v\" ] || setfattr -h -n {VIEW} -v \"$v\" {path}"
    );
    let root = Principal::root();
    let script = match draw >> 20 & 15 {
        0..3 => format!("chmod {:o} {path}", 0o400 + (draw >> 24) % 0o400),
        3..6 => format!("setfacl -m u:{uid}:{bits} {path}"),
        6 => format!("setfacl -m g:3002:{bits},m::{} {path}", (draw >> 28) % 8),
        7 => format!("setfacl -b {path}"),
        8 => format!("setfacl {default} -m u:{uid}:{bits} {path}"),
        9 => format!("chown {uid}:{STAFF} {path}; chown {ALICE}:{STAFF} {path}"),
        // A view of another file, an old one, or none: all that can be done with the attribute.
        10 => copy,
        11 => format!("setfattr -h -n {VIEW} -v 0x4152010100 {path}"),
        12 => format!("setfattr -h -x {VIEW} {path} 2>/dev/null || true"),
        13 => format!("mv {path} moved; mv moved {path}"),
        14 if (draw >> 44).is_multiple_of(3) => {
            let entries = ["A::2002:r", "A::OWNER@:rwatTcCy", "A::EVERYONE@:tcy"];
            world.set(&root, node, &entries).expect("root may");
            return;
        }
        _ => {
            let (export, worker) = (&world.tree.export, &world.tree.worker);
            let removed = export.remove_acl(worker, &root, &node.handle, NOTED);
            removed.expect("root may");
            return;
        }
    };
    world.locally(&script);
}

fn four(world: &World) -> [(&'static str, Node); 4] {
    [
        ("one", world.file("one", "640")),
        ("two", world.file("two", "664")),
        ("three", world.file("three", "604")),
        ("d", world.directory("d", "751")),
    ]
}

#[test]
fn a_stored_view_is_never_of_what_is_no_more_and_no_policy_shows_anything_else() {
    if !is_root() {
        return;
    }
    let world = World::at(Served::forgetful);
    let nodes = four(&world);
    let policies = [
        (Policy::Always, Costs::default()),
        (Policy::Entries { from: 4, to: None }, Costs::default()),
        (Policy::Measured, paying_from(2)),
    ];
    let opens = |node: &Node| {
        [bob(), carol()].map(|who| {
            let accesses = [Access::Read, Access::Write, Access::ReadWrite];
            accesses.map(|access| world.open(&who, &node.handle, access))
        })
    };
    for round in 0..240 {
        let draw = drawn(round);
        disturb(&world, &nodes, draw);
        let (policy, costs) = &policies[(draw >> 40) as usize % policies.len()];
        for (path, node) in &nodes {
            world.says(Policy::Never, &Costs::default());
            let (truth, verdicts) = (world.bytes(node), opens(node));
            world.says(*policy, costs);
            // Before it is stored, and after it may have been.
            for _ in 0..3 {
                assert_eq!(world.bytes(node), truth, "{round} {path} {policy}");
                world.store();
            }
            assert_eq!(opens(node), verdicts, "{round} {path} {policy}");
        }
    }
    let figures = world.tree.export.view_figures();
    assert!(figures.used > 200 && figures.stored > 20, "{figures:?}");
}

#[test]
fn what_is_in_memory_is_never_of_what_is_no_more() {
    if !is_root() {
        return;
    }
    let world = World::new();
    nothing_in_memory_is_of_what_is_no_more(&world);
    let figures = world.tree.export.view_figures();
    assert!(
        figures.remembered > 300 && figures.stored > 0,
        "{figures:?}"
    );
}

/// As ext4 keeps them in inodes of 128 bytes.
#[test]
fn nor_where_times_of_change_are_whole_seconds() {
    if !is_root() {
        return;
    }
    let small = ["-q", "-I", "128"];
    let Some(mounted) = Mounted::image("mkfs.ext4", &small, 16 << 20, "noatime") else {
        return;
    };
    let world = World::at(|| Served::at(&mounted.path));
    nothing_in_memory_is_of_what_is_no_more(&world);
    let file = world.file("last", "640");
    let remembered = || world.tree.export.view_figures().remembered;
    std::thread::sleep(Duration::from_millis(2100));
    let before = remembered();
    (0..2).for_each(|_| drop(world.bytes(&file)));
    assert_eq!(remembered(), before + 1, "when the second is over");
}

fn nothing_in_memory_is_of_what_is_no_more(world: &World) {
    let nodes = four(world);
    let forgetful = Served::forgetful_export(&world.tree.path);
    forgetful.set_rich(true);
    for round in 0..240 {
        match round % 80 {
            0 => world.says(Policy::Always, &Costs::default()),
            40 => world.says(Policy::Never, &Costs::default()),
            _ => {}
        }
        disturb(world, &nodes, drawn(round));
        if round % 4 == 0 {
            // Longer than a change of this moment is not believed.
            std::thread::sleep(Duration::from_millis(25));
        }
        for (path, node) in &nodes {
            let truth = world.bytes_of(&forgetful, node);
            for _ in 0..3 {
                assert_eq!(world.bytes(node), truth, "{round} {path}");
                world.store();
            }
        }
    }
    // Several changes in one tick of the file system's clock.
    let (_, node) = &nodes[0];
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let posix = export.remove_acl(worker, &Principal::root(), &node.handle, NOTED);
    posix.expect("root may");
    for round in 0..400 {
        let path = world.path("one");
        let mode = rustix::fs::Mode::from_raw_mode(0o600 + round % 0o100);
        let set = world.root.run(move || rustix::fs::chmod(path, mode));
        set.expect("root may");
        if round % 50 == 0 {
            std::thread::sleep(Duration::from_millis(25));
        }
        let truth = world.bytes_of(&forgetful, node);
        for _ in 0..2 {
            assert_eq!(world.bytes(node), truth, "{round}");
        }
    }
    assert_eq!(forgetful.view_figures().remembered, 0);
}

#[test]
fn what_a_policy_says_is_stored_when_it_says_so_and_else_nothing_is() {
    if !is_root() {
        return;
    }
    let world = World::at(Served::forgetful);
    let [short, long] = ["short", "long"].map(|path| world.file(path, "640"));
    world.locally("setfacl -m u:2002:r short; setfacl -m u:2002:r,u:2003:r,g:3002:r long");
    let look = |node: &Node, times: usize| {
        let stored = (0..times).map(|_| {
            world.bytes(node);
            world.store()
        });
        stored.collect::<Vec<_>>()
    };
    let none = Costs::default();
    for policy in [Policy::Never, Policy::Measured] {
        world.says(policy, &none);
        assert_eq!(look(&long, 5), [0; 5], "{policy}");
    }
    // As the paper's first condition.
    world.says(Policy::Entries { from: 6, to: None }, &none);
    assert_eq!(look(&short, 3), [0; 3]);
    assert_eq!(look(&long, 3), [1, 0, 0]);
    assert!(world.has_view("long") && !world.has_view("short"));
    world.says(Policy::Measured, &paying_from(3));
    assert_eq!(look(&short, 5), [0, 0, 1, 0, 0]);
    let figures = world.tree.export.view_figures();
    assert_eq!((figures.stored, figures.used), (2, 4), "{figures:?}");
    // Not listed, and not given out under its own name.
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let root = Principal::root();
    let names = export
        .list_xattrs(worker, &root, &long.handle)
        .expect("root may");
    assert!(
        !names.iter().any(|name| name.ends_with(b"view")),
        "{names:?}"
    );
    let read = export.get_xattr(worker, &root, &long.handle, VIEW.as_bytes());
    assert_eq!(read.err(), Some(FsError::NotSupported));
    // An edit makes another truth, of which there is no view.
    world
        .set(&alice(), &long, &["A::2002:r", "A::OWNER@:rw"])
        .expect("hers");
    assert!(!world.has_view("long"));
    world.says(Policy::Always, &none);
    assert_eq!(look(&long, 2), [0; 2]);
    assert!(!world.has_view("long"));
}

#[test]
fn the_time_of_change_moves_once_and_nothing_else_of_the_file() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "640");
    world.locally("setfacl -m u:2002:r f");
    let before = world.attributes(&file.handle);
    world.says(Policy::Always, &Costs::default());
    std::thread::sleep(Duration::from_millis(30));
    world.bytes(&file);
    assert_eq!(
        world.attributes(&file.handle),
        before,
        "looking stores nothing"
    );
    assert_eq!(world.store(), 1);
    let after = world.attributes(&file.handle);
    assert!(after.changed > before.changed);
    let same = base::Attributes {
        changed: before.changed,
        blocks: before.blocks,
        ..after.clone()
    };
    assert_eq!(same, before);
    for _ in 0..3 {
        world.bytes(&file);
        assert_eq!(world.store(), 0);
    }
    assert_eq!(world.attributes(&file.handle), after);
}

#[test]
fn nothing_is_stored_on_what_is_full_read_only_or_immutable_and_looking_goes_on() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::image("mkfs.ext4", &["-q"], 32 << 20, "noatime") else {
        return;
    };
    let mut world = World::at(|| Served::at(&mounted.path));
    world.tree.export = Served::forgetful_export(&mounted.path);
    world.tree.export.set_rich(true);
    let [fixed, free] = ["fixed", "free"].map(|path| world.file(path, "640"));
    world.locally("setfacl -m u:2002:r fixed free; chattr +i fixed");
    let shown = [&fixed, &free].map(|node| world.bytes(node));
    world.says(Policy::Always, &Costs::default());
    let look = || {
        let now = [&fixed, &free].map(|node| world.bytes(node));
        assert_eq!(now, shown);
        world.store()
    };
    let figures = || world.tree.export.view_figures();
    world.locally("dd if=/dev/zero of=filler bs=64k 2>/dev/null || true");
    assert_eq!((look(), look()), (0, 0));
    let full = figures();
    // The immutable one first, then the one that found it full; then nobody is let in.
    assert_eq!(
        (full.not_protected, full.not_full, full.stored),
        (1, 2, 0),
        "{full:?}"
    );
    assert!(!world.has_view("free"));

    let at = mounted.path.clone();
    assert_eq!(asked_again(&world, &at), [1, 2, 3]);
    world.locally("rm filler");
    world.make_read_only();
    assert_eq!(rests(&world, &at), (0, 1));
    world.locally("mount -o remount,rw $PWD");
    assert_eq!(rests(&world, &at), (1, 0));
    assert!(world.has_view("free") && !world.has_view("fixed"));
    world.locally("chattr -i fixed");
}

/// How often a full file system was in the way, after each look at files of an export that keeps
/// views in memory: one that is not let in is not kept there, so it is asked for again.
fn asked_again(world: &World, path: &Path) -> [u64; 3] {
    let path = path.to_owned();
    // On another thread, because each has one worker.
    world.root.run(move || {
        let tree = Served::at(&path);
        tree.export.set_rich(true);
        tree.export.set_storing(Policy::Always, Costs::default());
        let [free, filler] = ["free", "filler"].map(|name| tree.find(name));
        // What has changed in the tick of a file system's clock is not kept anyway.
        std::thread::sleep(Duration::from_millis(200));
        [&free, &filler, &filler].map(|node| {
            let (worker, root) = (&tree.worker, Principal::root());
            let value = tree
                .export
                .get_xattr(worker, &root, &node.handle, b"system.nfs4_acl");
            value.expect("root may");
            tree.export.store_views(worker, Duration::ZERO);
            tree.export.view_figures().not_full
        })
    })
}

/// What becomes of the view of `free` in an export that does not rest: stored, and
/// not stored for a file system that cannot be written.
fn rests(world: &World, path: &Path) -> (u64, u64) {
    let path = path.to_owned();
    // On another thread, because each has one worker.
    world.root.run(move || {
        let tree = Served::at(&path);
        tree.export.set_rich(true);
        tree.export.set_storing(Policy::Always, Costs::default());
        let free = tree.find("free");
        for _ in 0..2 {
            let (worker, root) = (&tree.worker, Principal::root());
            let value = tree
                .export
                .get_xattr(worker, &root, &free.handle, b"system.nfs4_acl");
            value.expect("root may");
            tree.export.store_views(worker, Duration::ZERO);
        }
        let figures = tree.export.view_figures();
        (figures.stored, u64::from(figures.not_read_only > 0))
    })
}

#[test]
fn what_the_file_system_keeps_no_attribute_for_is_tried_once_and_views_give_way() {
    if !is_root() {
        return;
    }
    // A block of 1 KiB is all that ext4 has for attributes.
    let small = [
        "-q",
        "-b",
        "1024",
        "-I",
        "256",
        "-O",
        "^has_journal,^ea_inode",
    ];
    let Some(mounted) = Mounted::image("mkfs.ext4", &small, 16 << 20, "noatime") else {
        return;
    };
    let world = World::at(|| Served::at(&mounted.path));
    let file = world.file("f", "640");
    let users: Vec<String> = (0..75)
        .map(|user| format!("u:{}:r", 10_000 + user))
        .collect();
    world.locally(&format!("setfacl -m {} f", users.join(",")));
    let shown = world.bytes(&file);
    world.says(Policy::Always, &Costs::default());
    for _ in 0..4 {
        assert_eq!(world.bytes(&file), shown);
        assert_eq!(world.store(), 0);
    }
    let figures = world.tree.export.view_figures();
    assert_eq!((figures.not_large, figures.not_full), (1, 0), "{figures:?}");
    // With another ACL it may fit; and it goes when there is no room for something else.
    let users = |count: u32| {
        let entry = |who, bits| PosixEntry { who, bits };
        let mut entries = vec![entry(PosixWho::Owner, 6)];
        entries.extend((0..count).map(|user| entry(PosixWho::User(10_000 + user), 4)));
        entries.push(entry(PosixWho::OwningGroup, 4));
        entries.push(entry(PosixWho::Mask, 4));
        entries.push(entry(PosixWho::Others, 0));
        PosixAcl::new(entries).expect("in order").to_xattr()
    };
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let set = |count| {
        let (name, mode) = (b"system.posix_acl_access", XattrMode::Set);
        export.set_xattr(worker, &alice(), &file.handle, name, &users(count), mode)
    };
    set(50).expect("there is room");
    world.bytes(&file);
    assert_eq!(world.store(), 1);
    assert!(world.has_view("f"));
    set(75).expect("the view gives way");
    assert!(!world.has_view("f"));
    assert_eq!(world.bytes(&file), shown);
    set(20).expect("there is room");
    world.bytes(&file);
    assert_eq!(world.store(), 1);
    // Beside the ACL, what it was, and the list there is no room for the view.
    let entries: Vec<String> = (0..50)
        .map(|user| format!("A::{}:rwa", 20_000 + user))
        .collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    world
        .set(&alice(), &file, &entries)
        .expect("an edit is always stored");
}

#[test]
fn all_files_are_converted_in_parts_and_compacted_again() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.locally(
        "for d in a a/b a/b/c e; do mkdir $d; for f in 1 2 3 4 5; do echo > $d/$f; done; done; \
         for n in $(seq 150); do echo > e/n$n; done; ln -s 1 a/link; \
         setfacl -m u:2002:r,u:2003:r a/1 e/2; \
         touch count; find . -type f -o -type d | wc -l > count",
    );
    let all: u64 = world.locally("cat count").trim().parse().expect("a number");
    let rich = world.tree.find("a/2");
    let entries = ["A::2002:r", "A::OWNER@:rwatTcCy"];
    world
        .set(&Principal::root(), &rich, &entries)
        .expect("root may");
    let Served { export, worker, .. } = &world.tree;
    let walk = |work, dry_run, time| {
        let mut walk = ViewWalk::new(export, work, dry_run, Vec::new());
        let mut parts = 0;
        while !walk.is_over() {
            let walked = export.walk_views(worker, &mut walk, time, NOTED);
            assert_eq!(walked.stopped_by, None);
            parts += 1;
        }
        (walk.figures(), parts)
    };
    let long = Duration::from_secs(60);
    world.says(Policy::Entries { from: 5, to: None }, &Costs::default());
    let (few, _) = walk(ViewWork::Convert { all: false }, false, long);
    assert_eq!(
        (few.files - 1, few.changed, few.failed),
        (all, 2, 0),
        "a link is seen, too"
    );
    assert!(world.has_view("a/1") && world.has_view("e/2") && !world.has_view("e/1"));
    let work = ViewWork::Convert { all: true };
    let (would, _) = walk(work, true, long);
    assert_eq!(would.changed, all - 3);
    assert!(!world.has_view("e/1"), "it was only counted");

    // It is ended in the middle, and another one goes on from there.
    let mut first = ViewWalk::new(export, work, false, Vec::new());
    while first.figures().changed < all / 2 {
        let part = Duration::from_micros(200);
        let walked = export.walk_views(worker, &mut first, part, NOTED);
        assert_eq!(walked.stopped_by, None);
    }
    assert!(!first.is_over());
    let mut second = ViewWalk::new(export, work, false, first.places());
    let walked = export.walk_views(worker, &mut second, long, NOTED);
    assert_eq!(walked.stopped_by, None);
    assert!(second.is_over() && second.figures().files < all);
    assert_eq!(first.figures().changed + second.figures().changed, all - 3);
    assert_eq!(walk(work, false, long).0.changed, 0, "all is done");
    assert!(!world.has_view("a/2"), "its truth is rich");
    let list = world.get(&Principal::root(), &rich.handle);
    assert_eq!(list.expect("it can be read").len(), 2);

    let (would, _) = walk(ViewWork::Compact, true, long);
    let (done, parts) = walk(ViewWork::Compact, false, Duration::from_micros(500));
    assert_eq!((would.changed, done.changed), (all - 1, all - 1));
    assert!(parts > 1);
    let left = world.locally("getfattr -R -h -d -m security.azekura.view . 2>/dev/null");
    assert_eq!(left, "");
}

#[test]
fn a_list_that_says_what_the_posix_acl_says_is_given_back_and_no_other() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let Served { export, worker, .. } = &world.tree;
    let list_of = |path: &str, entries: &str| {
        let node = world.file(path, "640");
        world.locally(&format!("setfacl -m {entries} {path}"));
        world.bytes(&node)
    };
    let list = list_of("source", "u:2002:rw,u:2003:-,g:3002:r");
    // Bob is in both groups; the kernel refuses him both at once.
    let wide = list_of("wide", "g:3001:r,g:3002:w");
    // As a program restores them: made anew, then the list.
    let [restored, wider, more, changed] =
        ["restored", "wider", "more", "changed"].map(|path| world.file(path, "600"));
    for (node, list) in [(&restored, &list), (&changed, &list), (&wider, &wide)] {
        export
            .set_acl(worker, &alice(), &node.handle, list, NOTED)
            .expect("hers");
    }
    world.locally("chmod 600 changed");
    world
        .set(&alice(), &more, &["A::2002:rd", "A::OWNER@:rwatTcCy"])
        .expect("hers");
    let nodes = [&restored, &wider, &more, &changed];
    let opens = || {
        nodes.map(|node| {
            [bob(), carol()].map(|who| {
                let accesses = [Access::Read, Access::Write, Access::ReadWrite];
                accesses.map(|access| world.open(&who, &node.handle, access).is_ok())
            })
        })
    };
    let before = (opens(), nodes.map(|node| world.bytes(node)));
    assert!(before.0[1][0][2], "by the list he may do both at once");
    let mut edits = Vec::new();
    for dry_run in [true, false, false] {
        let mut walk = ViewWalk::new(export, ViewWork::Compact, dry_run, Vec::new());
        let long = Duration::from_secs(60);
        let told = std::cell::Cell::new(0);
        let note = |_: &export::AclEdit| {
            told.set(told.get() + 1);
            Ok(())
        };
        let walked = export.walk_views(worker, &mut walk, long, &note);
        assert_eq!(walked.stopped_by, None);
        edits.push((walk.figures().changed, told.get()));
        assert_eq!((opens(), nodes.map(|node| world.bytes(node))), before);
    }
    assert_eq!(edits, [(1, 0), (1, 1), (0, 0)]);
    let left = world.locally("getfattr -h -d -m security.azekura * 2>/dev/null | grep file:");
    assert_eq!(left, "# file: changed\n# file: more\n# file: wider\n");
    let acls = world.locally("for f in source restored; do getfacl -cn $f; done | sort | uniq -u");
    assert_eq!(acls, "", "the same POSIX ACL as the source's");
}

/// What is measured of an empty file system, which is empty afterwards.
fn calibrated(path: &Path) -> Calibration {
    let tree = Served::at(path);
    let before = tree.export.files_used();
    let began = std::time::Instant::now();
    let calibration = tree.export.calibrate_views(&tree.worker);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    let left = std::fs::read_dir(path).expect("it is there");
    let left = left.filter(|entry| {
        let name = entry.as_ref().expect("an entry").file_name();
        name != "lost+found"
    });
    assert_eq!(left.count(), 0);
    assert!(eventually(|| tree.export.files_used() <= before));
    calibration.expect("it is measured")
}

/// The last length before a step and the first after it, if there is one.
type Step = Option<(u32, u32)>;

/// Where XFS with inodes of 512 bytes and ext4 with 256 begin to keep a POSIX ACL elsewhere was
/// measured by reads of the device; what is counted here agrees.
#[test]
fn calibration_finds_the_steps_of_file_systems_and_leaves_nothing_behind() {
    if !is_root() {
        return;
    }
    let systems: [(&str, &[&str], u64, Step); 3] = [
        (
            "mkfs.ext4",
            &["-q", "-b", "4096", "-I", "256"],
            64,
            Some((10, 14)),
        ),
        ("mkfs.xfs", &["-q", "-i", "size=512"], 320, Some((20, 21))),
        ("mkfs.btrfs", &["-q"], 128, None),
    ];
    for (mkfs, arguments, mebibytes, step) in systems {
        let Some(mounted) = Mounted::image(mkfs, arguments, mebibytes << 20, "noatime") else {
            continue;
        };
        let calibration = calibrated(&mounted.path);
        let points = calibration.costs.points();
        assert!(points.len() >= 10, "{mkfs} {points:?}");
        assert!(
            mkfs.ends_with(&calibration.file_system),
            "{}",
            calibration.file_system
        );
        for point in points {
            assert!(
                point.stored_reads >= point.converted_reads,
                "{mkfs} {point:?}"
            );
            assert!(
                point.storing_nanos > 0 && point.converted_nanos > 0,
                "{mkfs} {point:?}"
            );
        }
        let found = points
            .windows(2)
            .find(|two| two[1].converted_reads > two[0].converted_reads);
        let found = found.map(|two| (two[0].entries, two[1].entries));
        match step {
            Some((last, first)) => {
                let (before, after) = found.unwrap_or_else(|| panic!("{mkfs} {points:?}"));
                assert!(before >= last && after <= first, "{mkfs} {before} {after}");
            }
            None => assert_eq!(found, None, "{mkfs}"),
        }
    }
}
