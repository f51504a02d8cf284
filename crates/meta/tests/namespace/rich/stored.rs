//! Lists as they are stored: beside a model, large and small, after transactions that were lost.

use super::{World, alice, bob, rich, target, words};
use crate::gate::Gate;
use crate::history::Random;
use crate::world::{list as listed, name, options, runtime};
use acl::{Ace, RichAcl, Rights, UnixIds, Who};
use base::{AttributeChange, FsError, Handle, Principal};
use meta::namespace::{Access, Namespace, RenameMode, Turn};
use meta::{Embedded, Engine};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A list of so many users.
fn users(count: u32) -> RichAcl {
    let allow = |uid| Ace::allow(Who::User(uid), Rights::READ_DATA);
    RichAcl::new((0..count).map(|user| allow(5000 + user)).collect()).unwrap()
}

/// What a file is to be.
#[derive(Clone)]
struct Expected {
    handle: Handle,
    /// Its list, if that is the truth.
    list: Option<RichAcl>,
    /// Its mode while that is the truth.
    mode: u16,
}

/// Files by name, and what is said of edits.
#[derive(Default)]
struct Model {
    files: BTreeMap<String, Expected>,
    edits: [u64; 3],
}

fn mode(mode: u16) -> AttributeChange {
    AttributeChange {
        mode: Some(mode),
        ..AttributeChange::default()
    }
}

impl Model {
    fn expects(&self, world: &World) {
        for (file, expected) in &self.files {
            let found = world.find(&world.top(), file).unwrap();
            assert_eq!(found.handle, expected.handle, "{file}");
            let shown = world.shown(&expected.handle).unwrap();
            let of = target(&found.attributes);
            let Some(list) = &expected.list else {
                assert_eq!(found.attributes.mode & 0o777, expected.mode, "{file}");
                continue;
            };
            assert_eq!(shown, list.to_nfs4(&of, &UnixIds).unwrap(), "{file}");
            let told = match list.posix_below(&of).unwrap() {
                // More users than a POSIX ACL of a parallel volume holds.
                below if list.aces().len() > 500 => below.mode & 0o700,
                below => below.mode,
            };
            assert_eq!(found.attributes.mode & 0o777, told, "{file}");
        }
        let (counts, _) = world.namespace.edits_here().unwrap();
        assert_eq!(
            [counts.edits, counts.became_rich, counts.went_back],
            self.edits
        );
    }

    fn step(&mut self, world: &World, random: &mut Random) {
        let file = format!("f{}", random.below(5));
        let Some(mut found) = self.files.get(&file).cloned() else {
            let made = world.made(&alice(), &world.top(), &file, 0o640);
            let made = Expected {
                handle: made.handle,
                list: None,
                mode: 0o640,
            };
            self.files.insert(file, made);
            return;
        };
        let handle = found.handle.clone();
        match random.below(7) {
            0..=2 => {
                let list = users(random.of(&[0, 1, 3, 29, 33, 200, 1400]));
                world.set_list(&alice(), &handle, &list).unwrap();
                let is_same = found.list.as_ref() == Some(&list);
                self.edits[0] += u64::from(!is_same);
                self.edits[1] += u64::from(found.list.is_none());
                found.list = Some(list);
            }
            3 => {
                world.go_back(&alice(), &handle).unwrap();
                let was_rich = u64::from(found.list.take().is_some());
                self.edits[0] += was_rich;
                self.edits[2] += was_rich;
            }
            4 => {
                let bits = random.of(&[0o600, 0o640, 0o644, 0o755]);
                let changed = world.durably(|namespace, turn| {
                    namespace.set_attributes(turn, &alice(), &handle, &mode(bits), None)
                });
                let of = target(&changed.unwrap());
                match &found.list {
                    Some(list) => {
                        // Of more users the mode does not show what they have.
                        let has_access = list.aces().len() <= 500;
                        found.list = Some(list.with_shown_mode(bits, &of, has_access));
                    }
                    None => found.mode = bits,
                }
            }
            5 => {
                world.remove(&alice(), &world.top(), &file).unwrap();
                self.files.remove(&file);
                return;
            }
            _ => {
                let to = format!("f{}", random.below(5));
                let (top, old, new) = (world.top(), name(&file), name(&to));
                let renamed = world.durably(|namespace, turn| {
                    let replace = RenameMode::Replace;
                    namespace.rename(turn, &alice(), &top, &old, &top, &new, replace)
                });
                renamed.unwrap();
                self.files.remove(&file);
                self.files.insert(to, found);
                return;
            }
        }
        self.files.insert(file, found);
    }
}

#[test]
fn random_edits_are_those_of_a_model_read_again_and_again() {
    for seed in 1..=4 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meta");
        let (mut model, mut random) = (Model::default(), Random::new(seed));
        let mut world = rich(World::at(&path));
        world.open_top();
        for step in 0..120 {
            model.step(&world, &mut random);
            if step % 20 == 19 {
                model.expects(&world);
                world.checked();
                world.close();
                world = rich(World::at(&path));
                model.expects(&world);
            }
        }
    }
}

#[test]
fn a_large_list_lies_apart_moves_with_its_file_and_goes_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let world = rich(World::at(&path));
    world.open_top();
    let top = world.top();
    let file = world.made(&alice(), &top, "f", 0o640).handle;
    let large = users(3000);
    world.set_list(&alice(), &file, &large).unwrap();
    let other =
        world.durably(|namespace, turn| namespace.link(turn, &alice(), &file, &top, &name("g")));
    other.unwrap();
    world.checked();
    world.close();
    let world = rich(World::at(&path));
    // A listing brings inodes without their large lists, and a judgement reads one.
    let all = world.durably(|namespace, turn| listed(namespace, turn, &alice(), &top));
    assert_eq!(all.unwrap().len(), 2);
    assert_eq!(world.namespace.rich_figures().kept, 0);
    let reads = |uid| world.open(&Principal::alone(uid, 9), &file, Access::Read, false);
    assert_eq!(reads(5000 + 2999), Ok(()));
    assert_eq!(reads(5000 + 3000), super::DENIED);
    assert_eq!(world.namespace.rich_figures().kept, 1);
    for name in ["f", "g"] {
        world.remove(&alice(), &top, name).unwrap();
    }
    let report = world.checked();
    assert_eq!((report.inodes, report.names), (1, 0));
}

#[test]
fn a_list_that_is_too_large_is_refused_and_nothing_has_changed() {
    let directory = tempfile::tempdir().unwrap();
    let world = rich(World::at(&directory.path().join("meta")));
    world.open_top();
    let file = world.made(&alice(), &world.top(), "f", 0o640).handle;
    let shown = world.shown(&file).unwrap();
    let set = world.set_list(&alice(), &file, &users(20_000));
    assert_eq!(set.err(), Some(FsError::TooBig));
    assert_eq!(world.shown(&file).unwrap(), shown);
    assert_eq!(world.namespace.edits_here().unwrap().0.edits, 0);
}

fn gated(path: &Path) -> (World, Arc<Gate>) {
    let runtime = runtime();
    let engine: Arc<dyn Engine> = runtime.block_on(Embedded::open(path)).unwrap();
    let gate = Gate::before(engine);
    let engine: Arc<dyn Engine> = Arc::clone(&gate) as Arc<dyn Engine>;
    (rich(World::on(runtime, engine, options())), gate)
}

#[test]
fn an_edit_that_is_lost_leaves_the_truth_from_before_and_no_word() {
    let directory = tempfile::tempdir().unwrap();
    let (world, gate) = gated(&directory.path().join("meta"));
    world.open_top();
    let file = world.made(&alice(), &world.top(), "f", 0o640).handle;
    let shown = world.shown(&file).unwrap();
    for (lists, kept) in [(users(2), None), (users(500), Some(users(2)))] {
        if let Some(kept) = &kept {
            world.set_list(&alice(), &file, kept).unwrap();
        }
        let before = world.shown(&file).unwrap();
        let (counts, _) = world.namespace.edits_here().unwrap();
        gate.turn_away(1);
        let turn = Turn::new();
        let set = world
            .namespace
            .set_acl(&turn, &alice(), &file, &lists, &words);
        set.unwrap();
        assert!(
            world.namespace.wait_here(&turn).is_err(),
            "it was turned away"
        );
        // What is read anew is what there was.
        assert_eq!(world.shown(&file).unwrap(), before);
        assert_eq!(world.namespace.edits_here().unwrap().0, counts);
    }
    world.go_back(&alice(), &file).unwrap();
    assert_eq!(world.shown(&file).unwrap(), shown);
    world.checked();
}

#[test]
fn edits_are_written_down_with_where_and_what_and_outlive_the_manager() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let world = rich(World::at(&path));
    world.open_top();
    let at = world.made_directory(&alice(), "plans", 0o755).handle;
    let file = world.made(&alice(), &at, "q3", 0o640).handle;
    for entries in [["A::2002:r", "A::OWNER@:rw"], ["A::2003:r", "A::OWNER@:rw"]] {
        world.set(&alice(), &file, &entries).unwrap();
    }
    // The same once more is no edit; bob's is none, because he may not.
    world
        .set(&alice(), &file, &["A::2003:r", "A::OWNER@:rw"])
        .unwrap();
    assert_eq!(world.set(&bob(), &file, &["A::2002:rw"]), super::DENIED);
    world.go_back(&alice(), &file).unwrap();
    world
        .set(&Principal::root(), &world.top(), &["A::EVERYONE@:rwax"])
        .unwrap();
    world.close();
    let world = rich(World::at(&path));
    let (counts, last) = world.namespace.edits_here().unwrap();
    assert_eq!(
        (counts.edits, counts.became_rich, counts.went_back),
        (4, 2, 1)
    );
    let expected = [
        "/plans/q3 posix>rich",
        "/plans/q3 rich>rich",
        "/plans/q3 rich>posix",
        "/ posix>rich",
    ];
    assert_eq!(last, expected);
    // Of many, the last are said.
    for edit in 0..40 {
        let user = format!("A::{}:r", 7000 + edit);
        world.set(&alice(), &file, &[&user]).unwrap();
    }
    let (counts, last) = world.namespace.edits_here().unwrap();
    assert_eq!((counts.edits, last.len()), (44, 32));
}

#[test]
fn lists_that_say_what_the_mode_says_are_found_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let world = rich(World::at(&directory.path().join("meta")));
    world.open_top();
    let at = world.made_directory(&alice(), "d", 0o755).handle;
    let mut handles = Vec::new();
    for index in 0..6 {
        let file = world
            .made(&alice(), &at, &format!("f{index}"), 0o644)
            .handle;
        let view = RichAcl::from_nfs4(&world.shown(&file).unwrap(), &UnixIds).unwrap();
        let set = |list: &RichAcl| {
            world.set_list(&alice(), &file, list).unwrap();
        };
        match index % 3 {
            // As a restored backup leaves it: first another list, then the one that is shown.
            0 => [&users(1), &view].into_iter().for_each(set),
            1 => set(&users(40)),
            _ => {}
        }
        handles.push(file);
    }
    let compact = |dry_run| {
        let (mut scan, mut inodes, mut compacted) = (world.namespace.scan_rich(), 0, 0);
        while let Some(part) = world.namespace.scan_on(&mut scan).unwrap() {
            inodes += part.inodes;
            for handle in part.rich {
                let done = world.durably(|namespace: &Namespace, turn| {
                    namespace.compact_acl(turn, &handle, dry_run, &words)
                });
                compacted += u32::from(done.unwrap());
            }
        }
        (inodes, compacted)
    };
    assert_eq!(compact(true), (8, 2));
    assert_eq!(compact(false), (8, 2));
    assert_eq!(compact(false), (8, 0));
    for (index, handle) in handles.iter().enumerate() {
        let names = world.namespace.list_xattrs(&Turn::new(), &alice(), handle);
        let is_rich = names.unwrap().contains(&b"system.nfs4_acl".to_vec());
        assert_eq!(is_rich, index % 3 == 1, "{index}");
        let mode = world.attributes(handle).mode;
        assert!(index % 3 == 1 || mode == 0o644, "{index}: {mode:o}");
    }
    world.checked();
}
