//! Whether a history could have happened on one file system that everybody shares.
//!
//! The history is walked in the order of its marks (a call begins, a call returns). Between them a
//! set of *worlds* is kept: states of the model together with how far each operation under way has
//! got in it. When a call returns, every world in which it cannot have returned is dropped, after
//! all orders of the operations under way have been tried; if no world is left, nothing that the
//! promises allow explains the answer. The search is exact: an order that would explain it is found
//! (Wing and Gong, 1993; Lowe, 2017).
//!
//! A change is seen by everybody when the call that makes it returns; while it is under way, one
//! machine may show it already and another, or the same a moment later, not yet (C3). So a world
//! also keeps how names and files were before the changes under way.
//!
//! Stores of a parallel volume have one place for a byte, and who writes there has asked nobody: a
//! write that meets an append or a truncation of another machine is written once more, and until it
//! is answered others may see any of its bytes, or what is there without it (V2).
//!
//! An operation takes place in steps, as a kernel does it: names are looked up, then the inode is
//! used. So another operation may come between the two, as on a local file system.

use crate::history::{Action, Id, NAMES, Operation, Outcome, Renaming, Slot, Text};
use crate::model::{File, Inode, Part, Tree};
use base::QuickState;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Worlds in which a history is not followed further: it is given up, not judged.
const WORLDS_MAX: usize = 50_000;

/// States that a report shows.
const STATES_SHOWN: usize = 3;

/// How far an operation has got in one world.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Progress {
    /// Inodes that its name has led to since it began.
    candidates: BTreeSet<Inode>,
    /// Inodes that have had the new name of a rename after they had the old one.
    moved: BTreeSet<Inode>,
    /// The inode it uses.
    inode: Option<Inode>,
    /// Steps done.
    steps: usize,
    /// Whether its first call has returned.
    opened: bool,
    /// Lengths that the contents have had since a reader began.
    lengths: BTreeSet<usize>,
    /// Names of a listing that have been explained.
    names: [bool; NAMES],
    /// Whether another machine has appended to the file or cut it since a writer began.
    met: bool,
}

/// Where the files of a volume are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// At one server.
    Export,
    /// In stores.
    Parallel,
}

/// A write that is being written once more.
struct Again {
    client: usize,
    inode: Inode,
    text: Text,
}

/// What was before a step of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Old {
    by: Id,
    step: usize,
    part: Part,
}

impl Progress {
    fn uses(&self, inode: Inode) -> bool {
        self.inode == Some(inode) || self.candidates.contains(&inode)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    tree: Tree,
    /// What was before changes that are under way, oldest first.
    old: Vec<Old>,
    under_way: BTreeMap<Id, Progress>,
}

/// What is wrong with a history.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing.
    Consistent,
    /// This operation's answer cannot be explained; some of the states in which it is not.
    Inconsistent(Id, Vec<Tree>),
    /// Too many operations at once to tell.
    Undecided,
}

/// Steps that an operation has.
fn steps(operation: &Operation) -> usize {
    match (&operation.action, &operation.outcome) {
        (Action::Overwrite { .. } | Action::Append { .. }, Outcome::Done) => 3,
        _ => 1,
    }
}

/// The name by which an operation finds the inode that it uses.
fn looked_up(action: &Action) -> Option<Slot> {
    match *action {
        Action::Link { from: name, .. }
        | Action::Chmod { name, .. }
        | Action::Truncate { name, .. }
        | Action::SetXattr { name, .. }
        | Action::GetXattr { name }
        | Action::Stat { name }
        | Action::Read { name }
        | Action::Overwrite { name, .. }
        | Action::Append { name, .. } => Some(name),
        _ => None,
    }
}

/// Names whose absence explains "not found", and the one whose presence explains "exists".
fn failing_names(action: &Action) -> (Vec<Slot>, Option<Slot>) {
    match *action {
        Action::Create { name, .. } => (vec![], Some(name)),
        Action::Unlink { name } => (vec![name], None),
        Action::Rename { from, to, renaming } => match renaming {
            Renaming::Replace => (vec![from], None),
            Renaming::NoReplace => (vec![from], Some(to)),
            Renaming::Exchange => (vec![from, to], None),
        },
        Action::Link { from, to } => (vec![from], Some(to)),
        _ => (looked_up(action).into_iter().collect(), None),
    }
}

impl World {
    /// Lets every operation under way that only looks see this state. Seeing early is never a
    /// disadvantage, so this needs no second world.
    fn look(&mut self, history: &[Operation], kind: Kind) {
        let shortened = self.shortened(history);
        let again = match kind {
            Kind::Export => Vec::new(),
            Kind::Parallel => self.again(history),
        };
        for (id, progress) in &mut self.under_way {
            let operation = &history[*id];
            if progress.steps > 0 {
                continue;
            }
            let view = View {
                tree: &self.tree,
                old: &self.old,
                again: &again,
            };
            if let Some(name) = looked_up(&operation.action) {
                progress.candidates.extend(view.name(name).flatten());
            }
            if let Action::Rename { from, to, .. } = operation.action {
                progress.candidates.extend(view.name(from).flatten());
                let there = view.name(to).flatten();
                let moved = there.filter(|inode| progress.candidates.contains(inode));
                progress.moved.extend(moved);
            }
            let reads = matches!(operation.action, Action::Read { .. });
            let frozen = progress
                .candidates
                .iter()
                .any(|inode| shortened.contains(&(operation.client, *inode)));
            if explained(&view, operation, progress) || reads && frozen {
                *progress = Progress::default();
                progress.steps = 1;
            }
        }
        let (under_way, old) = (&self.under_way, &self.old);
        self.tree.forget_unused(|inode| {
            let leads = |part: &Part| matches!(part, Part::Name(_, Some(old)) if *old == inode);
            old.iter().any(|old| leads(&old.part))
                || under_way.values().any(|progress| progress.uses(inode))
        });
    }

    /// An operation has been answered so far: what was before its first `steps` is over.
    fn settle(&mut self, id: Id, steps: usize) {
        let old = std::mem::take(&mut self.old);
        let is_over = |at: usize, part: &Part| {
            let mut later = old[at..].iter();
            later.any(|old| old.by == id && old.step <= steps && old.part.is_same(part))
        };
        let left = old.iter().enumerate();
        let left = left.filter(|(at, old)| !is_over(*at, &old.part));
        self.old = left.map(|(_, old)| old.clone()).collect();
    }

    /// Inodes that a machine may be truncating: until that is answered, its kernel shows the size
    /// that it knew before, whatever others do.
    fn shortened(&self, history: &[Operation]) -> BTreeSet<(usize, Inode)> {
        let truncating = self.under_way.iter().filter(|(id, progress)| {
            let action = &history[**id].action;
            let opens = matches!(action, Action::Overwrite { empty: true, .. });
            opens && !progress.opened || matches!(action, Action::Truncate { .. })
        });
        let inodes = truncating.flat_map(|(id, progress)| {
            let client = history[*id].client;
            let inodes = progress.candidates.iter().chain(&progress.inode);
            inodes.map(move |inode| (client, *inode))
        });
        inodes.collect()
    }

    /// Writes that are being written once more.
    fn again(&mut self, history: &[Operation]) -> Vec<Again> {
        let cuts = |action: &Action| {
            matches!(action, Action::Append { .. } | Action::Truncate { .. })
                || matches!(action, Action::Overwrite { empty: true, .. })
        };
        let under_way = self.under_way.iter();
        let cutting = under_way.filter(|(id, _)| cuts(&history[**id].action));
        let cutting = cutting.flat_map(|(id, progress)| {
            let inodes = progress.candidates.iter().chain(&progress.inode);
            inodes.map(move |inode| (history[*id].client, *inode))
        });
        let cutting: BTreeSet<(usize, Inode)> = cutting.collect();
        let mut writes = Vec::new();
        for (id, progress) in &mut self.under_way {
            let client = history[*id].client;
            let Action::Overwrite { text, .. } = history[*id].action else {
                continue;
            };
            let mut others = cutting.iter().filter(|(other, _)| *other != client);
            progress.met |= others.any(|(_, inode)| progress.uses(*inode));
            if progress.met && progress.steps > 1 {
                writes.extend(progress.inode.map(|inode| Again {
                    client,
                    inode,
                    text,
                }));
            }
        }
        writes
    }

    /// All worlds that one step of a changing operation leads to.
    fn next(&self, history: &[Operation], kind: Kind) -> Vec<Self> {
        let mut worlds = Vec::new();
        for (id, progress) in &self.under_way {
            let operation = &history[*id];
            // V2: what was cut off of a write is there once more before it is answered.
            let comes_again = kind == Kind::Parallel && progress.met;
            let steps_max = steps(operation) + usize::from(comes_again);
            if operation.outcome != Outcome::Done || progress.steps >= steps_max {
                continue;
            }
            let (action, client) = (&operation.action, operation.client);
            let mut advance = |tree: Tree, inode: Option<Inode>| {
                let mut world = self.clone();
                let old = self.tree.changed_until(&tree);
                let (by, step) = (*id, steps(operation).min(progress.steps + 1));
                let old = old.into_iter().map(|part| Old { by, step, part });
                world.old.extend(old);
                world.tree = tree;
                let progress = world.under_way.get_mut(id).expect("it is under way");
                progress.steps += 1;
                progress.inode = inode;
                progress.candidates.clear();
                world.look(history, kind);
                worlds.push(world);
            };
            match (progress.steps, progress.inode) {
                (0, _) if looked_up(action).is_some() => {
                    for inode in &progress.candidates {
                        if let Some(tree) = self.tree.change_inode(*inode, action) {
                            advance(tree, Some(*inode));
                        }
                    }
                }
                (0, _) => {
                    if let Some(tree) = self.tree.change_names(*id, action) {
                        advance(tree, None);
                    }
                    // The kernel looks both names up, finds one file, and has nothing to do.
                    if !progress.moved.is_empty() {
                        advance(self.tree.clone(), None);
                    }
                }
                (1, Some(inode)) => {
                    let tree = self.tree.write_here(client, inode, *id, action);
                    advance(tree, Some(inode));
                }
                (2, Some(inode)) => {
                    advance(self.tree.write_there(client, inode, *id), Some(inode));
                }
                (_, Some(inode)) => {
                    let tree = self.tree.write_here(client, inode, *id, action);
                    advance(tree.write_there(client, inode, *id), Some(inode));
                }
                (_, None) => unreachable!("the first step finds the inode"),
            }
        }
        worlds
    }
}

/// What a machine may believe in a world.
struct View<'a> {
    tree: &'a Tree,
    old: &'a [Old],
    again: &'a [Again],
}

impl View<'_> {
    fn name(&self, name: Slot) -> impl Iterator<Item = Option<Inode>> {
        let old = self.old.iter().filter_map(move |old| match &old.part {
            Part::Name(old, inode) if *old == name => Some(*inode),
            _ => None,
        });
        old.chain([self.tree.name(name)])
    }

    fn file(&self, inode: Inode) -> impl Iterator<Item = &File> {
        let old = self.old.iter().filter_map(move |old| match &old.part {
            Part::File(old, file) if *old == inode => Some(file),
            _ => None,
        });
        old.chain([self.tree.file(inode)])
    }

    /// What a machine may see of writes of others that are written once more.
    fn again(&self, client: usize, inode: Inode) -> impl Iterator<Item = &Text> {
        let others = self.again.iter();
        let others = others.filter(move |again| again.client != client && again.inode == inode);
        others.map(|again| &again.text)
    }

    fn may_be(&self, name: Slot, present: bool) -> bool {
        self.name(name).any(|inode| inode.is_some() == present)
    }
}

/// Whether this state explains the answer of an operation that changed nothing.
fn explained(view: &View<'_>, operation: &Operation, progress: &mut Progress) -> bool {
    let candidates = progress.candidates.iter();
    let mut files = candidates.flat_map(|inode| view.file(*inode));
    let client = operation.client;
    match &operation.outcome {
        Outcome::Attributes(seen) => files.any(|file| {
            let mut attributes = file.attributes(client);
            if file.is_appending(client) {
                attributes.size = seen.size;
            }
            attributes == *seen
        }),
        Outcome::Xattr(seen) => files.any(|file| file.xattr() == *seen),
        Outcome::Bytes(seen) => {
            let lengths = &mut progress.lengths;
            progress.candidates.iter().any(|inode| {
                let again: Vec<_> = view.again(client, *inode).collect();
                view.file(*inode).any(|file| {
                    let bytes = file.bytes(client);
                    lengths.insert(bytes.len());
                    file.is_appending(client) || is_read(seen, &bytes, lengths, &again)
                })
            })
        }
        Outcome::Names(seen) => {
            for (name, listed) in seen.iter().enumerate() {
                progress.names[name] |= view.may_be(name, *listed);
            }
            progress.names == [true; NAMES]
        }
        Outcome::NotFound => {
            let (absent, _) = failing_names(&operation.action);
            // A file without a name gets no new one; all else finds its file by then. The kernel
            // counts names itself and may have one too few when another machine makes one.
            let links = matches!(operation.action, Action::Link { .. });
            absent.iter().any(|name| view.may_be(*name, false))
                || links && files.any(File::is_nearly_removed)
        }
        Outcome::Exists => {
            let (_, present) = failing_names(&operation.action);
            present.is_some_and(|name| view.may_be(name, true))
        }
        // What the name led to was removed before it was used, twice: the kernel tries once more.
        Outcome::Stale => files.any(File::is_removed),
        Outcome::Done | Outcome::Failed(_) => false,
    }
}

/// Whether a read can have shown this of the contents. The kernel learns the length first, so while
/// it changes the bytes may come in a length of a moment before, filled up with zeros.
fn is_read(seen: &[u8], bytes: &[u8], lengths: &BTreeSet<usize>, again: &[&Text]) -> bool {
    let mut here = seen.iter().enumerate();
    lengths.contains(&seen.len())
        && here.all(|(at, byte)| {
            *byte == bytes.get(at).copied().unwrap_or(0)
                || again.iter().any(|text| text.get(at) == Some(byte))
        })
}

/// Judges a history. All names are free at its beginning.
pub(crate) fn check(history: &[Operation], kind: Kind) -> Verdict {
    let mut marks: Vec<_> = history
        .iter()
        .enumerate()
        .flat_map(|(id, operation)| {
            let marks = operation.marks.iter().enumerate();
            marks.map(move |(mark, time)| (*time, id, mark))
        })
        .collect();
    // Of simultaneous marks beginnings come first: that leaves more orders open.
    marks.sort_by_key(|(time, id, mark)| (*time, *mark > 0, *id));
    let mut worlds = vec![World::default()];
    for (_, id, mark) in marks {
        let operation = &history[id];
        if mark == 0 {
            for world in &mut worlds {
                world.under_way.insert(id, Progress::default());
                world.look(history, kind);
            }
            continue;
        }
        let last = mark + 1 == operation.marks.len();
        let needed = if last { steps(operation) } else { mark };
        let before = worlds.iter().take(STATES_SHOWN);
        let before = before.map(|world| world.tree.clone()).collect();
        let Some(mut reached) = reach(worlds, (history, kind), id, needed) else {
            return Verdict::Undecided;
        };
        if reached.is_empty() {
            return Verdict::Inconsistent(id, before);
        }
        let met = reached.iter().filter(|world| world.under_way[&id].met);
        let met: Vec<_> = met.filter(|_| last).cloned().collect();
        // It may have come once more in the last moment.
        let Some(more) = reach(met, (history, kind), id, needed + 1) else {
            return Verdict::Undecided;
        };
        reached.extend(more);
        for world in &mut reached {
            world.settle(id, needed);
            if last {
                world.under_way.remove(&id);
            } else if let Some(progress) = world.under_way.get_mut(&id) {
                progress.opened = true;
            }
        }
        let distinct: HashSet<World, QuickState> = reached.into_iter().collect();
        worlds = distinct.into_iter().collect();
    }
    Verdict::Consistent
}

/// All worlds that can come of these in which an operation has done so many steps, and nothing
/// else that could as well come later.
fn reach(
    worlds: Vec<World>,
    (history, kind): (&[Operation], Kind),
    id: Id,
    needed: usize,
) -> Option<Vec<World>> {
    let mut reached = Vec::new();
    let mut seen: HashSet<World, QuickState> = worlds.iter().cloned().collect();
    let mut open = worlds;
    while let Some(world) = open.pop() {
        if world.under_way[&id].steps >= needed {
            reached.push(world);
            continue;
        }
        for next in world.next(history, kind) {
            if seen.len() > WORLDS_MAX {
                return None;
            }
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Some(reached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Attributes;
    use std::time::{Duration, Instant};

    const TEXT: [u8; 6] = *b"first.";
    const OTHER: [u8; 6] = *b"second";

    /// Makes histories of operations at given times.
    struct Story {
        begin: Instant,
        history: Vec<Operation>,
    }

    impl Story {
        fn new() -> Self {
            Self {
                begin: Instant::now(),
                history: Vec::new(),
            }
        }

        /// Of a client, with the times of its marks.
        fn tell(mut self, client: usize, times: &[u64], action: Action, outcome: Outcome) -> Self {
            let at = |time: &u64| self.begin + Duration::from_millis(*time);
            let marks = times.iter().map(at).collect();
            self.history.push(Operation {
                client,
                action,
                outcome,
                marks,
            });
            self
        }

        fn made(self) -> Self {
            let create = Action::Create {
                name: 0,
                mode: 0o644,
            };
            self.tell(0, &[0, 1], create, Outcome::Done)
        }

        fn is_consistent(&self) -> bool {
            self.is_consistent_on(Kind::Export)
        }

        fn is_consistent_on(&self, kind: Kind) -> bool {
            match check(&self.history, kind) {
                Verdict::Consistent => true,
                Verdict::Inconsistent(id, _) => {
                    assert_eq!(id, self.history.len() - 1, "the last one is the wrong one");
                    false
                }
                Verdict::Undecided => panic!("far too many worlds"),
            }
        }
    }

    fn attributes(mode: u16, links: u8, size: usize) -> Outcome {
        Outcome::Attributes(Attributes { mode, links, size })
    }

    fn rename(from: Slot, to: Slot) -> Action {
        let renaming = Renaming::Replace;
        Action::Rename { from, to, renaming }
    }

    fn overwrite(text: [u8; 6]) -> Action {
        Action::Overwrite {
            name: 0,
            empty: true,
            text,
        }
    }

    /// A lease that was not called back: the other machine goes on showing what it had.
    #[test]
    fn a_kept_lease_is_found_out() {
        let chmod = || {
            Story::new().made().tell(
                0,
                &[2, 5],
                Action::Chmod {
                    name: 0,
                    mode: 0o600,
                },
                Outcome::Done,
            )
        };
        let stat = Action::Stat { name: 0 };
        let old = attributes(0o644, 1, 0);
        let during = chmod().tell(1, &[4, 6], stat.clone(), old.clone());
        assert!(during.is_consistent());
        let after = chmod().tell(1, &[6, 7], stat.clone(), old);
        assert!(!after.is_consistent());
        let new = chmod().tell(1, &[6, 7], stat, attributes(0o600, 1, 0));
        assert!(new.is_consistent());
    }

    #[test]
    fn old_names_are_found_out() {
        let renamed = || {
            Story::new()
                .made()
                .tell(0, &[2, 3], rename(0, 1), Outcome::Done)
        };
        let stat = |name| Action::Stat { name };
        let here = attributes(0o644, 1, 0);
        assert!(
            !renamed()
                .tell(1, &[4, 5], stat(0), here.clone())
                .is_consistent()
        );
        assert!(
            !renamed()
                .tell(1, &[4, 5], stat(1), Outcome::NotFound)
                .is_consistent()
        );
        assert!(renamed().tell(1, &[4, 5], stat(1), here).is_consistent());
        let listed = |a, b| Outcome::Names([a, b, false, false]);
        assert!(
            !renamed()
                .tell(1, &[4, 5], Action::List, listed(true, false))
                .is_consistent()
        );
        assert!(
            renamed()
                .tell(1, &[4, 5], Action::List, listed(false, true))
                .is_consistent()
        );
    }

    #[test]
    fn contents_before_the_last_close_are_found_out() {
        let written = || {
            Story::new()
                .made()
                .tell(0, &[2, 3, 4, 5], overwrite(TEXT), Outcome::Done)
                .tell(0, &[6, 7, 8, 9], overwrite(OTHER), Outcome::Done)
        };
        let read = |story: Story, client, times: [u64; 2], bytes: &[u8]| {
            let outcome = Outcome::Bytes(bytes.to_vec());
            story.tell(client, &times, Action::Read { name: 0 }, outcome)
        };
        for (client, times, bytes, right) in [
            (1, [10, 11], &TEXT, false),
            (1, [10, 11], &OTHER, true),
            // While it is being written there may be either; here only the new.
            (1, [8, 11], &TEXT, false),
            (1, [6, 11], &TEXT, true),
        ] {
            let story = read(written(), client, times, bytes);
            assert_eq!(story.is_consistent(), right, "{client} {times:?}");
        }
        // Between write and close: the writer's machine has it, the other need not.
        let open = |times: &[u64]| {
            let story = Story::new().made();
            story.tell(0, times, overwrite(TEXT), Outcome::Done)
        };
        assert!(read(open(&[2, 3, 4, 20]), 1, [5, 6], b"").is_consistent());
        assert!(!read(open(&[2, 3, 4, 20]), 0, [5, 6], b"").is_consistent());
    }

    #[test]
    fn a_second_exclusive_creation_is_found_out() {
        let create = || Action::Create {
            name: 0,
            mode: 0o600,
        };
        let twice = Story::new().tell(0, &[0, 9], create(), Outcome::Done).tell(
            1,
            &[0, 10],
            create(),
            Outcome::Done,
        );
        assert!(!twice.is_consistent());
        let once = Story::new().tell(0, &[0, 9], create(), Outcome::Done).tell(
            1,
            &[0, 10],
            create(),
            Outcome::Exists,
        );
        assert!(once.is_consistent());
        let removed_between = Story::new()
            .tell(0, &[0, 9], create(), Outcome::Done)
            .tell(0, &[0, 10], Action::Unlink { name: 0 }, Outcome::Done)
            .tell(1, &[0, 11], create(), Outcome::Done);
        assert!(removed_between.is_consistent());
    }

    #[test]
    fn a_rename_in_two_halves_is_found_out() {
        // Both files are always there, so "not found" has no explanation while they change places.
        let two = Story::new()
            .made()
            .tell(
                0,
                &[2, 3],
                Action::Create {
                    name: 1,
                    mode: 0o600,
                },
                Outcome::Done,
            )
            .tell(0, &[4, 9], rename(0, 1), Outcome::Done)
            .tell(1, &[5, 6], Action::Stat { name: 1 }, Outcome::NotFound);
        // The stat ends first, so it is the operation that has no explanation.
        assert!(matches!(
            check(&two.history, Kind::Export),
            Verdict::Inconsistent(3, _)
        ));
    }

    #[test]
    fn an_overwritten_append_is_found_out() {
        let append = |text| Action::Append { name: 0, text };
        let both = || {
            Story::new()
                .made()
                .tell(0, &[2, 3, 4, 8], append(TEXT), Outcome::Done)
                .tell(1, &[2, 3, 4, 9], append(OTHER), Outcome::Done)
        };
        let read = |bytes: &[u8]| Outcome::Bytes(bytes.to_vec());
        for (bytes, right) in [
            (&b"first.second"[..], true),
            (b"secondfirst.", true),
            (b"second", false),
            (b"first.", false),
        ] {
            let story = both().tell(0, &[10, 11], Action::Read { name: 0 }, read(bytes));
            assert_eq!(story.is_consistent(), right, "{bytes:?}");
        }
    }

    fn write_over() -> Action {
        Action::Overwrite {
            name: 0,
            empty: false,
            text: OTHER,
        }
    }

    /// V2: a write that has met another machine's append comes, goes and comes again.
    #[test]
    fn a_write_seen_in_part_is_found_out_where_it_is_not_written_once_more() {
        let write = write_over();
        let append = Action::Append {
            name: 0,
            text: TEXT,
        };
        let shorter = Action::Truncate { name: 0, size: 3 };
        let story = |appended: [u64; 4], read: [u64; 2], bytes: &[u8]| {
            let bytes = Outcome::Bytes(bytes.to_vec());
            Story::new()
                .made()
                .tell(1, &[2, 3], shorter.clone(), Outcome::Done)
                .tell(0, &[4, 5, 6, 20], write.clone(), Outcome::Done)
                .tell(1, &appended, append.clone(), Outcome::Done)
                .tell(1, &read, Action::Read { name: 0 }, bytes)
        };
        let met = [7, 8, 9, 10];
        for (read, bytes, on_export, on_parallel) in [
            ([11, 12], &b"\0\0\0first."[..], true, true),
            ([11, 12], b"secondfirst.", true, true),
            ([11, 12], b"secondst.", true, true),
            ([11, 12], b"s\0\0first.", false, true),
            ([11, 12], b"x\0\0first.", false, false),
            ([11, 12], b"s\0\0firsx.", false, false),
            // After its answer it is there, all of it.
            ([21, 22], b"s\0\0first.", false, false),
            ([21, 22], b"secondst.", true, true),
        ] {
            let story = story(met, read, bytes);
            assert_eq!(story.is_consistent(), on_export, "{bytes:?}");
            assert_eq!(
                story.is_consistent_on(Kind::Parallel),
                on_parallel,
                "{bytes:?}"
            );
        }
        // It has met nothing.
        let bytes = Outcome::Bytes(b"s\0\0".to_vec());
        let alone = Story::new()
            .made()
            .tell(1, &[2, 3], shorter, Outcome::Done)
            .tell(0, &[4, 5, 6, 20], write, Outcome::Done)
            .tell(1, &[11, 12], Action::Read { name: 0 }, bytes);
        assert!(!alone.is_consistent_on(Kind::Parallel));
    }

    #[test]
    fn a_write_that_was_cut_off_is_there_again_before_it_is_answered_and_not_afterwards() {
        let cut = Action::Truncate { name: 0, size: 0 };
        let seen = [(5, &b"second"[..]), (9, b""), (21, b""), (23, b"second")];
        for (readings, is_right) in [([0, 1, 3].as_slice(), true), (&[0, 1, 2, 3], false)] {
            let mut story = Story::new().made();
            story = story.tell(0, &[2, 3, 4, 20], write_over(), Outcome::Done);
            story = story.tell(1, &[7, 8], cut.clone(), Outcome::Done);
            for (at, bytes) in readings.iter().map(|number| seen[*number]) {
                let bytes = Outcome::Bytes(bytes.to_vec());
                story = story.tell(1, &[at, at + 1], Action::Read { name: 0 }, bytes);
            }
            assert!(!story.is_consistent());
            assert_eq!(story.is_consistent_on(Kind::Parallel), is_right);
        }
    }

    #[test]
    fn an_unexpected_error_is_found_out() {
        let failed = Outcome::Failed("EIO".to_owned());
        let story = Story::new().tell(0, &[0, 1], Action::List, failed);
        assert!(!story.is_consistent());
    }
}
