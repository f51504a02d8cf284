//! A machine that stops while rich ACLs are being stored: what its disk has then, mounted again,
//! is for each file one of the truths that it had, whole: who may do what is never a mixture.
//!
//! A file system lies in a file of another one that can clone files at a moment. While files in it
//! get lists, other lists, and their POSIX ACLs back, and it commits all the while, clones are
//! taken: each is what a loss of power leaves of it. How many, a variable of the environment can
//! say (`AZEKURA_ACL_CRASHES=200`).

use super::{NOTED, World, alice, bob, carol};
use crate::common::{Mounted, Served, is_root, quiet};
use base::{Access, Handle};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const CRASHES: &str = "AZEKURA_ACL_CRASHES";
const CRASHES_DEFAULT: usize = 6;
const FILES: usize = 12;
/// Between two losses of power.
const EDITS: usize = 7;
/// The first takes from Bob what the POSIX ACL gives, and gives Carol what that does not; the
/// second is another way round, and too long for the inode of ext4.
const FIRST: [&str; 4] = [
    "D::2002:rwa",
    "A::2003:rwatncy",
    "A::OWNER@:rwatTnNcCy",
    "A::EVERYONE@:tncy",
];
const SECOND: [&str; 14] = [
    "D::2003:rwa",
    "A::2002:wa",
    "A::4001:r",
    "A::4002:r",
    "A::4003:r",
    "A::4004:r",
    "A::4005:r",
    "A::4006:r",
    "A::4007:r",
    "A::4008:r",
    "A::4009:r",
    "A::4010:r",
    "A::OWNER@:rwatTnNcCy",
    "A::EVERYONE@:tncy",
];
/// Bob's and Carol's reading and writing by the POSIX ACL, the first and the second list.
type May = [[bool; 2]; 2];
const TRUTHS: [May; 3] = [
    [[true, false], [false, false]],
    [[false, false], [true, true]],
    [[false, true], [false, false]],
];

/// Takes clones of an image, with commits of the file system in it in between, until told to stop.
struct Cloner {
    thread: JoinHandle<()>,
    stops: Arc<AtomicBool>,
}

impl Cloner {
    /// Begins, on a thread that never acts for anybody.
    fn new(image: &Path, top: &Path, clones: Vec<PathBuf>, edits: Arc<AtomicUsize>) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let (image, top, ends) = (image.to_owned(), top.to_owned(), stops.clone());
        let thread = thread::spawn(move || {
            let top = File::open(top).expect("it is mounted");
            for (place, clone) in clones.into_iter().enumerate() {
                while edits.load(Ordering::Acquire) < (place + 1) * EDITS {
                    thread::sleep(Duration::from_micros(100));
                }
                // A commit in the middle of whatever is being stored.
                rustix::fs::syncfs(&top).expect("it is written");
                let mut command = Command::new("cp");
                command.arg("--reflink=always").arg(&image).arg(&clone);
                assert!(quiet(&mut command), "a clone of {}", image.display());
            }
            ends.store(true, Ordering::Release);
        });
        Self { thread, stops }
    }
}

fn opens(world: &World, handle: &Handle) -> May {
    [bob(), carol()].map(|who| {
        [Access::Read, Access::Write].map(|access| world.open(&who, handle, access).is_ok())
    })
}

fn name(file: usize) -> String {
    format!("f{file}")
}

/// Files as they are in the beginning: Bob may read.
fn make_files(world: &World) {
    for file in 0..FILES {
        world.file(&name(file), "600");
        world.locally(&format!("setfacl -m u:2002:r {}", name(file)));
    }
}

/// One edit of each file, another one for each round.
fn edit_all(world: &World, round: usize, edits: &AtomicUsize) {
    let Served { export, worker, .. } = &world.tree;
    for file in 0..FILES {
        let node = world.tree.find(&name(file));
        match (round + file) % 3 {
            0 => drop(world.set(&alice(), &node, &FIRST).expect("hers")),
            1 => drop(world.set(&alice(), &node, &SECOND).expect("hers")),
            _ => {
                let back = export.remove_acl(worker, &alice(), &node.handle, NOTED);
                back.expect("hers");
            }
        }
        edits.fetch_add(1, Ordering::Release);
    }
}

/// Which of the truths each file has in a clone.
fn judged(clone: &Path, options: &str) -> Vec<usize> {
    let mounted = Mounted::of_image(clone, options).expect("it is sound");
    let world = World::at(|| Served::at(&mounted.path));
    let truths = (0..FILES).map(|file| {
        let node = world.tree.find(&name(file));
        let may = opens(&world, &node.handle);
        let truth = TRUTHS.iter().position(|truth| *truth == may);
        let truth = truth.unwrap_or_else(|| panic!("{file} of {}: {may:?}", clone.display()));
        assert!(world.get(&alice(), &node.handle).is_ok(), "no half list");
        truth
    });
    let truths: Vec<usize> = truths.collect();
    let Served { export, worker, .. } = &world.tree;
    export.store_views(worker, Duration::ZERO);
    // Who judges by mode and POSIX ACL now, as programs of this machine do, allows nobody more.
    export.set_rich(false);
    for (file, truth) in truths.iter().enumerate() {
        let node = world.tree.find(&name(file));
        let below = opens(&world, &node.handle).into_iter().flatten();
        let mut pairs = below.zip(TRUTHS[*truth].into_iter().flatten());
        assert!(
            pairs.all(|(below, may)| may || !below),
            "{file} of {}: wider below than truth {truth}",
            clone.display()
        );
    }
    truths
}

fn crash(mkfs: &str, arguments: &[&str], bytes: u64, options: &str, crashes: usize) -> [usize; 3] {
    let mut found = [0; 3];
    let Some(outer) = Mounted::image("mkfs.btrfs", &["-q"], 2 << 30, "noatime") else {
        return found;
    };
    let image = outer.path.join("image");
    File::create(&image)
        .and_then(|file| file.set_len(bytes))
        .expect("there is room");
    assert!(
        quiet(Command::new(mkfs).args(arguments).arg(&image)),
        "{mkfs}"
    );
    let Some(inner) = Mounted::of_image(&image, options) else {
        return found;
    };
    let clones = (0..crashes).map(|clone| outer.path.join(format!("clone{clone}")));
    let clones: Vec<PathBuf> = clones.collect();
    let edits = Arc::new(AtomicUsize::new(0));
    let cloner = Cloner::new(&image, &inner.path, clones.clone(), edits.clone());
    let world = World::at(|| Served::at(&inner.path));
    make_files(&world);
    world.locally("sync -f .");
    let mut round = 0;
    while !cloner.stops.load(Ordering::Acquire) && !cloner.thread.is_finished() {
        edit_all(&world, round, &edits);
        round += 1;
    }
    cloner.thread.join().expect("clones were taken");
    drop(world);
    for clone in clones {
        for truth in judged(&clone, options) {
            found[truth] += 1;
        }
        std::fs::remove_file(clone).expect("it is ours");
    }
    eprintln!("{mkfs}: {crashes} losses of power, truths of files {found:?}");
    found
}

#[test]
fn a_machine_that_stops_while_lists_are_stored_has_one_of_the_truths() {
    if !is_root() {
        return;
    }
    let crashes = std::env::var(CRASHES).ok();
    let crashes = crashes.map_or(CRASHES_DEFAULT, |count| count.parse().expect("a number"));
    let quickly = ["-q", "-b", "4096", "-I", "256"];
    let found = [
        crash("mkfs.ext4", &quickly, 64 << 20, "noatime", crashes),
        // The clone has the same identity as what it is of.
        crash("mkfs.xfs", &["-q"], 320 << 20, "noatime,nouuid", crashes),
        crash("mkfs.btrfs", &["-q"], 256 << 20, "noatime", crashes),
    ];
    for found in found {
        let seen = found.iter().filter(|count| **count > 0).count();
        assert!(found.iter().sum::<usize>() == 0 || seen > 1, "{found:?}");
    }
}
