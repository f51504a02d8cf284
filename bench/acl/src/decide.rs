//! One decision by a list of 1,000 entries for somebody in 500 groups; and the same answer from a
//! mount's cache, where a look-up finds it: among ten thousand files with verdicts for eight
//! callers each, the file's node is found and the caller's verdict in it.

use crate::Cli;
use crate::report::{Goal, Report};
use acl::{Ace, Caller, RichAcl, Rights, Target, Who};
use base::{Attributes, FileKind, Handle, Principal, Timestamp};
use client::cache::{NodeId, NodeTable};
use figures::Random;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use wire::message::{Entry, Lease};

const ENTRIES: u32 = 1_000;
const GROUPS: u32 = 500;
/// Decisions of one figure.
const DECISIONS: u32 = 20_000;
/// Different callers.
const CALLERS: u32 = 16;
const GOAL_NANOS: f64 = 5_000.0;
const HIT_GOAL_NANOS: f64 = 100.0;
/// Files in the cache, and callers of whom it knows something of each.
const KNOWN_FILES: u32 = 10_000;
const KNOWN_CALLERS: u32 = 8;
/// Groups of those.
const KNOWN_GROUPS: u32 = 16;
/// Reading, as access(2) has it.
const READ: u8 = 4;

pub(crate) fn measure(cli: &Cli, report: &mut Report) {
    let named = [
        ("that no entry is for: all are looked at", false),
        ("in the last entry's group", true),
    ];
    for (who, is_last) in named {
        let list = list(is_last);
        let figures: Vec<f64> = (0..cli.repeat as u64)
            .map(|round| nanos(&list, round))
            .collect();
        let what = format!(
            "decision, {ENTRIES} entries, {GROUPS} groups, for somebody {who}, nanoseconds"
        );
        report.row_of_less(&what, &figures, Goal::at_most(GOAL_NANOS, "at most 5 us"));
    }
    let cache = Cache::new();
    let hits: Vec<f64> = (0..cli.repeat as u64)
        .map(|round| cache.hit(round))
        .collect();
    let what = format!(
        "a verdict from a mount's cache of {KNOWN_FILES} files with {KNOWN_CALLERS} callers each, \
         nanoseconds"
    );
    report.row_of_less(
        &what,
        &hits,
        Goal::at_most(HIT_GOAL_NANOS, "at most 100 ns"),
    );
    let making: Vec<f64> = (0..cli.repeat as u64).map(making).collect();
    let what = format!("preparing a caller with {GROUPS} groups for decisions, nanoseconds");
    report.row_of_less(&what, &making, Goal::none());
}

/// Entries for users and groups that nobody here is or is in, the last maybe for everybody's.
fn list(has_last: bool) -> RichAcl {
    let aces = (0..ENTRIES).map(|entry| {
        let who = match entry % 2 {
            0 => Who::User(1_000_000 + entry),
            _ if has_last && entry == ENTRIES - 1 => Who::Group(200_000),
            _ => Who::Group(1_000_000 + entry),
        };
        Ace::allow(who, Rights::READ_DATA | Rights::EXECUTE)
    });
    RichAcl::new(aces.collect()).expect("it is not too long")
}

fn somebody(seed: u64) -> Principal {
    let mut random = Random::new(seed);
    let groups = (0..GROUPS).map(|group| 200_000 + group * 7 + random.below(7) as u32);
    let groups = groups.chain([200_000]).take(GROUPS as usize);
    Principal::new(70_000 + seed as u32, 70_000, groups.collect())
}

fn nanos(list: &RichAcl, round: u64) -> f64 {
    let people = (0..CALLERS).map(|who| somebody(round * 100 + u64::from(who)));
    let people: Vec<Principal> = people.collect();
    let callers: Vec<Caller<'_>> = people.iter().map(Caller::new).collect();
    let target = Target {
        uid: 1,
        gid: 1,
        is_directory: false,
    };
    let begin = Instant::now();
    for number in 0..DECISIONS {
        let caller = &callers[(number % CALLERS) as usize];
        black_box(list.decide(black_box(caller), &target, Rights::READ_DATA));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(DECISIONS)
}

/// A cache that has been asked for everything before.
struct Cache {
    table: NodeTable,
    files: Vec<NodeId>,
    callers: Vec<Principal>,
}

impl Cache {
    fn new() -> Self {
        let entry = |number: u32, kind| Entry {
            handle: Handle::new(&number.to_le_bytes()).expect("short"),
            attributes: attributes(number.into(), kind),
            lease: Lease::Read,
        };
        let root = entry(0, FileKind::Directory);
        let (mut table, _) = NodeTable::new(&root, Arc::new(AtomicU64::new(1)));
        let callers = (0..KNOWN_CALLERS).map(|caller| {
            let groups = (0..KNOWN_GROUPS).map(|group| 3_000 + caller * 100 + group);
            Principal::new(70_000 + caller, 3_000, groups.collect())
        });
        let callers: Vec<Principal> = callers.collect();
        let files = (1..=KNOWN_FILES).map(|number| {
            let id = table.apply(&entry(number, FileKind::File), u64::MAX);
            let node = table.get_mut(id).expect("it was just put there");
            let asked = node.asking().expect("it is leased");
            for caller in &callers {
                node.note_verdict(asked, caller, READ, number % 3 != 0);
            }
            id
        });
        Self {
            files: files.collect(),
            table,
            callers,
        }
    }

    /// Nanoseconds of one answer.
    fn hit(&self, round: u64) -> f64 {
        let mut random = Random::new(round);
        let asked = (0..DECISIONS).map(|_| {
            let file = self.files[random.below(KNOWN_FILES.into()) as usize];
            (file, random.below(KNOWN_CALLERS.into()) as usize)
        });
        let asked: Vec<(NodeId, usize)> = asked.collect();
        let begin = Instant::now();
        let mut known = 0;
        for (file, caller) in &asked {
            let node = self.table.get(black_box(*file));
            let verdict = node.and_then(|node| node.verdict(&self.callers[*caller], READ));
            known += usize::from(black_box(verdict).is_some());
        }
        let nanos = begin.elapsed().as_nanos() as f64 / f64::from(DECISIONS);
        assert_eq!(known, asked.len(), "everything is known");
        nanos
    }
}

fn attributes(inode: u64, kind: FileKind) -> Attributes {
    let time = Timestamp {
        seconds: 1,
        nanos: 0,
    };
    Attributes {
        kind,
        mode: 0o640,
        links: 1,
        uid: 1,
        gid: 1,
        inode,
        device: 0,
        size: 0,
        blocks: 0,
        block_size: 4096,
        accessed: time,
        modified: time,
        changed: time,
        created: None,
        protected: false,
    }
}

fn making(round: u64) -> f64 {
    let somebody = somebody(round);
    let begin = Instant::now();
    for _ in 0..DECISIONS {
        black_box(Caller::new(black_box(&somebody)));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(DECISIONS)
}
