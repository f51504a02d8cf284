//! Space of what is written; and a file that is written here and changed elsewhere, from one answer
//! to the next.

use super::super::{NodeId, NodeTable};
use super::{blocks_after, count_written};
use crate::file::{Cut, File, Order, Write};
use base::{Attributes, Extent, FileKind, Handle, Principal, Timestamp, WriteVerifier};
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::message::{Entry, Lease, WriteAt};

const VERIFIER: WriteVerifier = WriteVerifier([1; 16]);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// This machine writes so many bytes here, or to the end.
    Write(Option<u64>, usize),
    /// The server carries one of the pieces out that are under way, or so many bytes of it.
    Land(usize, u64),
    /// One of the answers arrives.
    Answer(usize),
    /// Another machine gives the file this size.
    Resize(u64),
    /// This machine asks for the file's attributes.
    Ask,
    /// The server reads them for one of the requests.
    Look(usize),
    /// One of these answers arrives.
    Hear(usize),
}

pub(in super::super) fn attributes(kind: FileKind, size: u64, ticks: i64) -> Attributes {
    let time = Timestamp {
        seconds: ticks,
        nanos: 0,
    };
    Attributes {
        kind,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        inode: 7,
        device: 0,
        size,
        blocks: 0,
        block_size: 4096,
        accessed: time,
        modified: time,
        changed: time,
        created: None,
        protected: false,
    }
}

pub(in super::super) fn entry(name: u8, attributes: Attributes) -> Entry {
    Entry {
        handle: Handle::new(&[name]).unwrap(),
        attributes,
        lease: Lease::None,
    }
}

struct World {
    table: NodeTable,
    node: NodeId,
    file: Arc<File>,
    /// At the server: the size, and how often the file was changed.
    size: u64,
    ticks: i64,
    /// Pieces, where they go and how long they are, and the events known when they were sent.
    under_way: Vec<(u64, WriteAt, u64, u64)>,
    /// Pieces, where they landed, of how many bytes, and how the file was then, with the events.
    answers: Vec<(u64, u64, u64, Attributes, u64)>,
    /// Events known when attributes were asked for.
    questions: Vec<u64>,
    /// How the file was when they were read, and those events.
    heard: Vec<(Attributes, u64)>,
    /// The latest state that was told.
    told: (i64, u64),
    events: Arc<AtomicU64>,
}

impl World {
    fn new(size: u64) -> Self {
        let root = entry(1, attributes(FileKind::Directory, 0, 0));
        let events = Arc::new(AtomicU64::new(0));
        let (mut table, _) = NodeTable::new(&root, events.clone());
        let node = table.apply(&entry(2, attributes(FileKind::File, size, 0)), 0);
        let file = File::new(Order::OldestFirst);
        table.get_mut(node).unwrap().file = Some(file.clone());
        Self {
            table,
            node,
            file,
            size,
            ticks: 0,
            under_way: Vec::new(),
            answers: Vec::new(),
            questions: Vec::new(),
            heard: Vec::new(),
            told: (0, size),
            events,
        }
    }

    fn shown(&self) -> u64 {
        self.table.get(self.node).unwrap().attributes.size
    }

    /// As the volume does.
    fn write(&mut self, at: Option<u64>, bytes: usize) {
        let offset = at.unwrap_or_else(|| self.shown());
        let known = self.table.get_mut(self.node).unwrap();
        count_written(&mut known.attributes, Extent::new(offset, bytes as u64));
        let write = Write {
            offset,
            data: Bytes::from(vec![7; bytes]),
            who: Principal::root(),
            open: None,
            append: at.is_none(),
            permits: Vec::new(),
        };
        let mut state = self.file.lock();
        state.written.push(write, Cut::Parts(1 << 20));
        state.written.seal();
        drop(state);
        self.send();
    }

    fn send(&mut self) {
        let mut state = self.file.lock();
        while let Some((id, piece)) = state.written.poll_send() {
            let seen = self.events.load(Ordering::Acquire);
            self.under_way
                .push((id, piece.at(), piece.part().len, seen));
        }
    }

    fn land(&mut self, nth: usize, bytes_max: u64) {
        if self.under_way.is_empty() {
            return;
        }
        let (id, at, len, seen) = self.under_way.remove(nth % self.under_way.len());
        let offset = match at {
            WriteAt::End => self.size,
            WriteAt::Offset(offset) | WriteAt::Again(offset) => offset,
        };
        let bytes = len.min(bytes_max);
        self.size = self.size.max(offset + bytes);
        self.ticks += 1;
        let after = attributes(FileKind::File, self.size, self.ticks);
        self.answers.push((id, offset, bytes, after, seen));
    }

    /// As the volume does.
    fn answer(&mut self, nth: usize) {
        if self.answers.is_empty() {
            return;
        }
        let (id, offset, bytes, after, seen) = self.answers.remove(nth % self.answers.len());
        self.told = self.told.max((after.changed.seconds, after.size));
        let mut state = self.file.lock();
        state.written.on_attributes(after, seen);
        let settled = state.written.take_settled(id, bytes);
        let told = state.written.told();
        drop(state);
        if let Some((after, seen)) = settled {
            self.table.refresh(self.node, &after, Lease::None, seen);
        }
        let end = || self.file.lock().written.end_after(id, bytes);
        self.table.settle_size(self.node, told, end);
        let mut state = self.file.lock();
        state.written.on_stored(id, offset, bytes, VERIFIER);
        drop(state);
        self.send();
    }

    fn look(&mut self, nth: usize) {
        if !self.questions.is_empty() {
            let seen = self.questions.remove(nth % self.questions.len());
            let now = attributes(FileKind::File, self.size, self.ticks);
            self.heard.push((now, seen));
        }
    }

    fn hear(&mut self, nth: usize) {
        if !self.heard.is_empty() {
            let (now, seen) = self.heard.remove(nth % self.heard.len());
            self.told = self.told.max((now.changed.seconds, now.size));
            self.table.refresh(self.node, &now, Lease::None, seen);
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Write(at, bytes) => self.write(at, bytes),
            Step::Land(nth, bytes_max) => self.land(nth, bytes_max),
            Step::Answer(nth) => self.answer(nth),
            Step::Resize(size) => {
                self.size = size;
                self.ticks += 1;
            }
            Step::Ask => self.questions.push(self.events.load(Ordering::Acquire)),
            Step::Look(nth) => self.look(nth),
            Step::Hear(nth) => self.hear(nth),
        }
    }

    /// What is to be shown, where that is not a guess.
    fn expected(&self) -> Option<u64> {
        let state = self.file.lock();
        let size = state
            .written
            .end()
            .map_or(self.told.1, |end| end.max(self.told.1));
        (!state.written.is_appending()).then_some(size)
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (prop::option::of(0..20_u64), 1..8_usize).prop_map(|(at, len)| Step::Write(at, len)),
        4 => (0..8_usize, prop_oneof![3 => Just(100), 1 => 1..4_u64])
            .prop_map(|(nth, bytes)| Step::Land(nth, bytes)),
        4 => (0..8_usize).prop_map(Step::Answer),
        1 => (0..20_u64).prop_map(Step::Resize),
        2 => Just(Step::Ask),
        2 => (0..8_usize).prop_map(Step::Look),
        2 => (0..8_usize).prop_map(Step::Hear),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn a_size_is_the_servers_or_reaches_as_far_as_what_it_has_not_got(
        size in 0..20_u64,
        steps in steps(),
    ) {
        let mut world = World::new(size);
        for step in steps {
            world.run(step);
            if let Some(expected) = world.expected() {
                prop_assert_eq!(world.shown(), expected, "after {:?}", step);
            }
        }
    }
}

#[test]
fn an_append_that_lands_elsewhere_counts_there_while_something_else_is_on_its_way() {
    let mut world = World::new(6);
    for step in [Step::Write(None, 6), Step::Write(Some(0), 4)] {
        world.run(step);
    }
    assert_eq!(world.shown(), 12);
    // Another machine has cut the file before the append arrives.
    for step in [Step::Resize(3), Step::Land(0, 6), Step::Answer(0)] {
        world.run(step);
    }
    assert_eq!(world.shown(), 9);
    for step in [Step::Land(0, 4), Step::Answer(0)] {
        world.run(step);
    }
    assert_eq!(world.shown(), 9);
}

#[test]
fn attributes_of_before_a_write_do_not_take_it_away_when_they_come_after_its_answer() {
    let mut world = World::new(3);
    // They are read at the server before it has the append; more is then on its way.
    for step in [Step::Ask, Step::Look(0), Step::Write(None, 3)] {
        world.run(step);
    }
    for step in [Step::Write(Some(0), 2), Step::Land(0, 3), Step::Answer(0)] {
        world.run(step);
    }
    assert_eq!(world.shown(), 6);
    world.run(Step::Hear(0));
    assert_eq!(world.shown(), 6);
    // Nor does a read of before it find the end.
    assert!(!world.table.shorten(world.node, 3, 0));
    for step in [Step::Land(0, 2), Step::Answer(0)] {
        world.run(step);
    }
    assert_eq!(world.shown(), 6);
}

#[test]
fn attributes_asked_for_after_a_write_was_answered_are_true_whatever_the_servers_clock_says() {
    let mut world = World::new(3);
    world.ticks = 9;
    for step in [
        Step::Write(None, 3),
        Step::Write(Some(0), 2),
        Step::Land(0, 3),
    ] {
        world.run(step);
    }
    world.run(Step::Answer(0));
    world.ticks = 4;
    for step in [Step::Resize(4), Step::Ask, Step::Look(0), Step::Hear(0)] {
        world.run(step);
    }
    assert_eq!(world.shown(), 4);
}

#[test]
fn what_is_written_takes_space_and_holes_take_none() {
    // Size, blocks, what is written, blocks then.
    let cases = [
        ((0, 0), (0, 1), 8),
        ((0, 0), (0, 10_000), 24),
        ((10, 8), (10, 10), 8),
        ((4096, 8), (4096, 4097), 24),
        // Over what is there, and over what the server has compressed.
        ((8192, 16), (0, 8192), 16),
        ((8192, 8), (0, 8192), 16),
        // Behind a hole, and into one.
        ((0, 0), (1 << 20, 1), 8),
        ((1 << 20, 0), (0, 8192), 16),
        ((1 << 20, 0), ((1 << 20) - 1, 2), 16),
        ((5, 8), (5, 0), 8),
    ];
    for ((size, blocks), (offset, len), expected) in cases {
        let after = blocks_after(size, blocks, Extent::new(offset, len));
        assert_eq!(after, expected, "{len} at {offset} of {size}");
    }
}
