//! Crashes between an intent, its execution and its end, against a real tree.

use super::*;
use crate::data::{VolumePlace, VolumeRecord, new_volume_id};
use crate::volume::Volume;
use base::{FileKind, Handle, Name, Principal};
use export::Worker;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

const SESSION: SessionId = SessionId([7; 16]);

struct World {
    directory: tempfile::TempDir,
    tree: PathBuf,
    volumes: Volumes,
    volume: Arc<Volume>,
}

impl World {
    /// `None` where exports cannot work.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: exports need root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        let record = VolumeRecord {
            id: new_volume_id(),
            name: "lab".to_owned(),
            place: VolumePlace::Export {
                path: tree.clone(),
                read_only: false,
                rich: false,
                store: acl::Policy::default(),
                root: None,
            },
        };
        let volumes = Volumes::default();
        let volume = volumes.add_export(&record).unwrap();
        Some(Self {
            directory,
            tree,
            volumes,
            volume,
        })
    }

    fn journal(&self) -> Journal {
        Journal::open(self.directory.path(), &self.volumes, false).unwrap()
    }

    fn root(&self) -> Handle {
        self.volume.outer(self.volume.tree.root())
    }

    /// The handle of a name; on a thread of its own, as workers are.
    fn handle(&self, text: &str) -> Option<Handle> {
        let find = || {
            let worker = Worker::new().unwrap();
            let export = self.volume.tree.export().unwrap();
            let found = export.lookup(&worker, &Principal::root(), export.root(), &name(text));
            found.ok().map(|node| self.volume.outer(&node.handle))
        };
        std::thread::scope(|scope| scope.spawn(find).join().unwrap())
    }

    /// What a step of this request finds after a restart.
    fn past(&self, request: u64) -> Past {
        self.journal()
            .begin(key(request), remove(&self.root(), "probe", None), true)
            .unwrap()
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key(request: u64) -> Key {
    Key {
        session: SESSION,
        request: RequestId(request),
        step: 0,
    }
}

fn make(parent: &Handle, text: &str, uid: u32) -> Intent {
    let (parent, name) = (parent.clone(), name(text));
    Intent::new(Act::Make {
        parent,
        name,
        kind: FileKind::File,
        uid,
        fills: false,
    })
}

fn remove(parent: &Handle, text: &str, victim: Option<Handle>) -> Intent {
    Intent::new(Act::Remove {
        parent: parent.clone(),
        name: name(text),
        victim,
    })
}

fn begin(world: &World, intents: Vec<Intent>) {
    let journal = world.journal();
    for (request, intent) in intents.into_iter().enumerate() {
        assert_eq!(
            journal.begin(key(request as u64), intent, true),
            Ok(Past::NotDone)
        );
    }
}

#[test]
fn a_creation_is_told_from_one_that_did_not_happen() {
    let Some(world) = World::new() else { return };
    std::fs::write(world.tree.join("old"), "").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let root = world.root();
    begin(
        &world,
        vec![
            make(&root, "made", 0),
            make(&root, "never", 0),
            make(&root, "old", 0),
            make(&root, "foreign", 55),
        ],
    );
    std::fs::write(world.tree.join("made"), "").unwrap();
    std::fs::write(world.tree.join("foreign"), "").unwrap();
    let made = Done::inode(world.handle("made").unwrap());
    let pasts: Vec<_> = (0..4).map(|request| world.past(request)).collect();
    assert_eq!(
        pasts,
        [
            Past::Done(made),
            Past::NotDone,
            Past::NotDone,
            Past::NotDone
        ]
    );
}

#[test]
fn a_verdict_once_given_stands_whatever_happens_to_the_tree() {
    let Some(world) = World::new() else { return };
    begin(
        &world,
        vec![make(&world.root(), "a", 0), make(&world.root(), "b", 0)],
    );
    std::fs::write(world.tree.join("a"), "").unwrap();
    drop(world.journal());
    // Somebody else removes the one and makes the other after the restart.
    std::fs::remove_file(world.tree.join("a")).unwrap();
    std::fs::write(world.tree.join("b"), "").unwrap();
    drop(world.journal());
    let journal = world.journal();
    let probe = || remove(&world.root(), "probe", None);
    assert!(matches!(
        journal.begin(key(0), probe(), true),
        Ok(Past::Done(_))
    ));
    assert_eq!(journal.begin(key(1), probe(), true), Ok(Past::NotDone));
}

impl World {
    fn write(&self, files: &[&str]) {
        for file in files {
            std::fs::write(self.tree.join(file), "12345").unwrap();
        }
        // What happens next is younger by any clock of the kernel.
        std::thread::sleep(Duration::from_millis(20));
    }

    fn rename(&self, from: &str, to: &str, exchange: bool) -> Intent {
        Intent::new(Act::Rename {
            parent: self.root(),
            name: name(from),
            to_parent: self.root(),
            to_name: name(to),
            exchange,
            moved: self.handle(from),
            replaced: self.handle(to),
        })
    }

    fn pasts<const N: usize>(&self) -> [Past; N] {
        std::array::from_fn(|request| self.past(request as u64))
    }
}

#[test]
fn removals_and_renames_are_told_apart() {
    let Some(world) = World::new() else { return };
    world.write(&["gone", "stays", "from", "unmoved", "x", "y"]);
    let root = world.root();
    let (from, x) = (world.handle("from").unwrap(), world.handle("x").unwrap());
    let intents = vec![
        remove(&root, "gone", world.handle("gone")),
        remove(&root, "stays", world.handle("stays")),
        remove(&root, "missing", None),
        world.rename("from", "to", false),
        world.rename("unmoved", "anywhere", false),
        world.rename("x", "y", true),
    ];
    begin(&world, intents);
    std::fs::remove_file(world.tree.join("gone")).unwrap();
    std::fs::rename(world.tree.join("from"), world.tree.join("to")).unwrap();
    let (flags, cwd) = (rustix::fs::RenameFlags::EXCHANGE, rustix::fs::CWD);
    let (old, new) = (world.tree.join("x"), world.tree.join("y"));
    rustix::fs::renameat_with(cwd, old, cwd, new, flags).unwrap();
    let expected = [
        Past::Done(Done::default()),
        Past::NotDone,
        Past::NotDone,
        Past::Done(Done::inode(from)),
        Past::NotDone,
        Past::Done(Done::inode(x)),
    ];
    assert_eq!(world.pasts(), expected);
}

#[test]
fn appends_and_links_are_told_apart() {
    let Some(world) = World::new() else { return };
    world.write(&["target", "log", "quiet", "cut"]);
    let append = |file: &str, bytes| {
        let file = world.handle(file).unwrap();
        Intent::new(Act::Append {
            file,
            size: 5,
            bytes,
        })
    };
    let target = world.handle("target").unwrap();
    let link = |text: &str| {
        let (parent, target) = (world.root(), target.clone());
        Intent::new(Act::Link {
            parent,
            name: name(text),
            target,
        })
    };
    let intents = vec![
        append("log", 3),
        append("quiet", 3),
        append("cut", 3),
        link("linked"),
        link("unlinked"),
    ];
    begin(&world, intents);
    std::fs::write(world.tree.join("log"), "1234567").unwrap();
    std::fs::write(world.tree.join("cut"), "1").unwrap();
    std::fs::hard_link(world.tree.join("target"), world.tree.join("linked")).unwrap();
    let expected = [
        Past::Done(Done {
            written: Some((5, 2)),
            ..Done::default()
        }),
        Past::NotDone,
        Past::Unknown,
        Past::Done(Done::inode(target)),
        Past::NotDone,
    ];
    assert_eq!(world.pasts(), expected);
}

#[test]
fn a_file_whose_filling_is_interrupted_again_and_again_is_not_taken_for_one_that_others_changed() {
    let Some(world) = World::new() else { return };
    let make = || {
        Intent::new(Act::Make {
            parent: world.root(),
            name: name("a"),
            kind: FileKind::File,
            uid: 0,
            fills: true,
        })
    };
    assert_eq!(
        world.journal().begin(key(0), make(), true),
        Ok(Past::NotDone)
    );
    let path = world.tree.join("a");
    let changed = || {
        let found = std::fs::metadata(&path).unwrap();
        base::Timestamp {
            seconds: found.ctime(),
            nanos: found.ctime_nsec() as u32,
        }
    };
    let mut last = None;
    for contents in ["", "1", "1234"] {
        // The server is killed in the middle of filling it.
        std::fs::write(&path, contents).unwrap();
        let journal = world.journal();
        let Ok(Past::Done(done)) = journal.begin(key(0), make(), true) else {
            panic!("it was made");
        };
        assert_eq!(done.unfilled, Some(changed()));
        assert_ne!(done.unfilled, last);
        last = done.unfilled;
        journal.again(key(0)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let journal = world.journal();
    journal.begin(key(0), make(), true).unwrap();
    journal.again(key(0)).unwrap();
    let done = Done::inode(world.handle("a").unwrap());
    journal.end(key(0), Ok(done.clone()));
    std::fs::write(&path, "what others write").unwrap();
    assert_eq!(
        world.journal().begin(key(0), make(), true),
        Ok(Past::Done(done))
    );
}

/// A machine that has lost power may have a file and its record, and not what was written to it.
#[test]
fn contents_are_looked_at_anew_where_the_machine_may_have_lost_them() {
    let Some(world) = World::new() else { return };
    let filling = |text: &str| {
        let (parent, name) = (world.root(), name(text));
        Intent::new(Act::Make {
            parent,
            name,
            kind: FileKind::File,
            uid: 0,
            fills: true,
        })
    };
    let journal = world.journal();
    for (request, text) in [(0, "a"), (1, "b")] {
        journal.begin(key(request), filling(text), false).unwrap();
        std::fs::write(world.tree.join(text), "1234").unwrap();
        let done = Done::inode(world.handle(text).unwrap());
        journal.end(key(request), Ok(done));
    }
    drop(journal);
    let past = |journal: &Journal, request, text| journal.begin(key(request), filling(text), true);
    let killed = world.journal();
    let Ok(Past::Done(done)) = past(&killed, 0, "a") else {
        panic!("it was made");
    };
    assert_eq!(done.unfilled, None);
    drop(killed);
    std::fs::write(world.tree.join("a"), "").unwrap();
    std::fs::remove_file(world.tree.join("b")).unwrap();
    let lost = Journal::open(world.directory.path(), &world.volumes, true).unwrap();
    let Ok(Past::Done(done)) = past(&lost, 0, "a") else {
        panic!("it is there");
    };
    assert!(done.unfilled.is_some());
    assert_eq!(past(&lost, 1, "b"), Ok(Past::NotDone));
}

#[test]
fn two_interrupted_steps_about_one_name_are_not_told_apart() {
    let Some(world) = World::new() else { return };
    let root = world.root();
    begin(
        &world,
        vec![
            make(&root, "a", 0),
            make(&root, "a", 0),
            make(&root, "b", 0),
        ],
    );
    std::fs::write(world.tree.join("a"), "").unwrap();
    let pasts: Vec<_> = (0..3).map(|request| world.past(request)).collect();
    assert_eq!(pasts, [Past::Unknown, Past::Unknown, Past::NotDone]);
}

#[test]
fn ended_steps_are_answered_and_settled_ones_forgotten() {
    let Some(world) = World::new() else { return };
    let root = world.root();
    let journal = world.journal();
    for request in 0..4 {
        assert_eq!(
            journal.begin(key(request), make(&root, "n", 0), true),
            Ok(Past::NotDone)
        );
    }
    let done = Done::inode(root.clone());
    journal.end(key(0), Ok(done.clone()));
    journal.end(key(1), Err(FsError::Exists));
    journal.end(key(2), Ok(done.clone()));
    journal.end(key(3), Ok(done.clone()));
    let again = |journal: &Journal, request| journal.begin(key(request), make(&root, "n", 0), true);
    assert_eq!(again(&journal, 1), Ok(Past::Failed(FsError::Exists)));
    drop(journal);
    let journal = world.journal();
    assert_eq!(again(&journal, 0), Ok(Past::Done(done.clone())));
    assert_eq!(again(&journal, 1), Ok(Past::Failed(FsError::Exists)));
    journal.settle(SESSION, &Settled::all_below(RequestId(3)));
    assert_eq!(journal.lock().count, 1);
    assert_eq!(again(&journal, 3), Ok(Past::Done(done)));
    journal.settle(SESSION, &Settled::all_below(RequestId(9)));
    assert!(journal.lock().entries.is_empty());
}

#[test]
fn what_clients_have_settled_is_not_open_in_the_next_run() {
    let Some(world) = World::new() else { return };
    let root = world.root();
    for session in [7, 8] {
        let journal = world.journal();
        let first = journal.lock().ring.sequence();
        // Beyond the room for open ones, and into the third file.
        let mut request = 0;
        while request < 2 * JOURNAL_ENTRIES_MAX as u64 || journal.lock().ring.sequence() < first + 2
        {
            request += 1;
            let key = Key {
                session: SessionId([session; 16]),
                ..key(request)
            };
            let begun = journal.begin(key, make(&root, "n", 0), false);
            assert_eq!(begun, Ok(Past::NotDone), "step {request}");
            journal.end(key, Ok(Done::inode(root.clone())));
            let mut settled = Settled::all_below(RequestId(request));
            // The first waits for something.
            let except = BTreeSet::from([1, request - 1]).into_iter();
            settled.except = except.filter(|id| *id < request).map(RequestId).collect();
            journal.settle(key.session, &settled);
        }
        drop(journal);
        let journal = world.journal();
        let open = journal.lock().count;
        assert!((2..=2 * SETTLED_STEPS).contains(&open), "{open} are open");
        let first = Key {
            session: SessionId([session; 16]),
            ..key(1)
        };
        let past = journal.begin(first, make(&root, "n", 0), true);
        assert_eq!(past, Ok(Past::Done(Done::inode(root.clone()))));
        drop(journal);
        let all = Settled::all_below(RequestId(u64::MAX));
        world.journal().settle(SessionId([session; 16]), &all);
        assert_eq!(world.journal().lock().count, 0);
    }
}

#[test]
fn the_files_are_used_in_turns_and_what_is_open_is_carried_over() {
    let Some(world) = World::new() else { return };
    let root = world.root();
    let journal = world.journal();
    assert_eq!(
        journal.begin(key(1), make(&root, "first", 0), true),
        Ok(Past::NotDone)
    );
    journal.end(key(1), Ok(Done::inode(root.clone())));
    let first = journal.lock().ring.sequence();
    let mut request = 1000;
    while journal.lock().ring.sequence() < first + 3 {
        request += 1;
        let key = Key {
            session: SessionId([8; 16]),
            ..key(request)
        };
        journal.begin(key, make(&root, "n", 0), true).unwrap();
        journal.end(key, Err(FsError::Exists));
        journal.settle(SessionId([8; 16]), &Settled::all_below(RequestId(request)));
    }
    for file in ["journal.0", "journal.1"] {
        let length = std::fs::metadata(world.directory.path().join(file))
            .unwrap()
            .len();
        assert!(length <= base::limits::JOURNAL_BYTES_MAX, "{length}");
    }
    drop(journal);
    assert_eq!(world.past(1), Past::Done(Done::inode(root)));
}

#[test]
fn a_torn_tail_is_the_end_of_the_log() {
    let Some(world) = World::new() else { return };
    let root = world.root();
    begin(&world, vec![make(&root, "a", 0), make(&root, "b", 0)]);
    std::fs::write(world.tree.join("a"), "").unwrap();
    std::fs::write(world.tree.join("b"), "").unwrap();
    // The journal was opened once, so its records are in the second file, the intents last.
    let path = world.directory.path().join("journal.1");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap();
    bytes[end - 1] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(world.past(0), Past::Done(_)));
    assert_eq!(world.past(1), Past::NotDone, "its intent was not on record");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever lies in the files, opening does not panic, and what is read was written.
    #[test]
    fn damaged_files_give_fewer_records_never_others(
        flips in prop::collection::vec((0usize..4096, any::<u8>()), 1..8),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let volumes = Volumes::default();
        let root = Handle::new(&[1, 2, 3, 4, 5]).unwrap();
        let journal = Journal::open(directory.path(), &volumes, false).unwrap();
        for request in 0..20 {
            journal.begin(key(request), make(&root, "n", 0), true).unwrap();
            journal.end(key(request), Err(FsError::Exists));
        }
        drop(journal);
        let path = directory.path().join("journal.1");
        let mut bytes = std::fs::read(&path).unwrap();
        for (place, value) in flips {
            bytes[place] = value;
        }
        std::fs::write(&path, bytes).unwrap();
        match Journal::open(directory.path(), &volumes, false) {
            Ok(journal) => {
                for entry in journal.lock().entries.values().flat_map(BTreeMap::values) {
                    prop_assert!(matches!(
                        entry.state,
                        State::Failed(FsError::Exists) | State::Unknown
                    ));
                }
            }
            Err(error) => prop_assert!(matches!(error, DataError::Format { .. }), "{error}"),
        }
    }
}
