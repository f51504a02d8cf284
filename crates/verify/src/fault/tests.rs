//! Each fault against a log that fits on a page.

use super::*;
use crate::log::{Entry, Mark};
use crate::workload::{Workload, content};
use base::Extent;
use sim::Image;

const BLOCK: u64 = 4096;
const LEN_BYTES: u64 = 32 * BLOCK;

/// The first two steps of `pages` that write, and what makes them durable.
fn workload() -> Workload {
    let mut workload = Workload::by_name("pages", 1).unwrap();
    workload.steps.truncate(6);
    workload
}

fn write(block: u64, data: Vec<u8>) -> Entry {
    let offset = block * BLOCK;
    let data = data.into();
    Entry::Write { offset, data }
}

/// Superblock, data, flush, commit record, flush: twice, with a discard.
fn log() -> Vec<Entry> {
    let plain = |block, byte| write(block, vec![byte; BLOCK as usize]);
    vec![
        plain(0, 1),
        Entry::Mark(Mark::Begun(2)),
        Entry::Mark(Mark::Done(2)),
        Entry::Mark(Mark::Begun(3)),
        write(5, content(300, 2 * BLOCK)),
        Entry::Flush,
        plain(9, 2),
        Entry::Flush,
        Entry::Mark(Mark::Done(3)),
        Entry::Zeros(Extent::new(20 * BLOCK, BLOCK)),
        Entry::Mark(Mark::Begun(6)),
        write(5, content(301, BLOCK)),
        Entry::Flush,
        Entry::Mark(Mark::Done(6)),
        plain(0, 3),
    ]
}

fn damaged(fault: &str) -> Vec<Entry> {
    let fault: Fault = fault.parse().unwrap();
    let about = About::new(&workload(), Some(1024));
    fault.on_log(&Image::new(LEN_BYTES), log(), &about)
}

/// A letter or two of each entry: writes by their block.
fn words(entries: &[Entry]) -> String {
    let word = |entry: &Entry| match entry {
        Entry::Write { offset, data } => {
            let blocks = data.len() as f64 / BLOCK as f64;
            let first = offset / BLOCK;
            if blocks == 1.0 {
                format!("w{first}")
            } else {
                format!("w{first}+{blocks}")
            }
        }
        Entry::Zeros(extent) => format!("z{}+{}", extent.offset / BLOCK, extent.len / BLOCK),
        Entry::Flush => "f".to_owned(),
        Entry::Mark(Mark::Begun(step)) => format!("({step}"),
        Entry::Mark(Mark::Done(step)) => format!("{step})"),
    };
    entries.iter().map(word).collect::<Vec<_>>().join(" ")
}

const CLEAN: &str = "w0 (2 2) (3 w5+2 f w9 f 3) z20+1 (6 w5 f 6) w0";

/// What becomes of that log.
#[rustfmt::skip]
const DAMAGED: [(&str, &str); 23] = [
    ("no-flush", "w0 (2 2) (3 w5+2 w9 3) z20+1 (6 w5 6) w0"),
    ("lost-flush:1", "w0 (2 2) (3 w5+2 f w9 3) z20+1 (6 w5 f 6) w0"),
    ("lost-flush:commit.0", "w0 (2 2) (3 w5+2 f w9 3) z20+1 (6 w5 f 6) w0"),
    ("lost-flush:before.commit.0", "w0 (2 2) (3 w5+2 w9 f 3) z20+1 (6 w5 f 6) w0"),
    ("lost-flush:data.1", "w0 (2 2) (3 w5+2 f w9 f 3) z20+1 (6 w5 6) w0"),
    ("lost-write:data.0", "w0 (2 2) (3 f w9 f 3) z20+1 (6 w5 f 6) w0"),
    ("lost-write:super", "w0 (2 2) (3 w5+2 f w9 f 3) z20+1 (6 w5 f 6)"),
    ("late-write:commit.0", "w0 (2 2) (3 w5+2 f f w9 3) z20+1 (6 w5 f 6) w0"),
    ("late-write:4", "w0 (2 2) (3 w5+2 f w9 f 3) z20+1 (6 w5 f 6) w0"),
    ("early-write:commit.0", "w0 (2 2) (3 w5+2 w9 f f 3) z20+1 (6 w5 f 6) w0"),
    ("early-write:0", CLEAN),
    ("torn-write:data.0", "w0 (2 2) (3 w5 f w9 f 3) z20+1 (6 w5 f 6) w0"),
    ("shifted-write:data.0", "w0 (2 2) (3 w7+2 f w9 f 3) z20+1 (6 w5 f 6) w0"),
    ("zeroed-write:data.1", "w0 (2 2) (3 w5+2 f w9 f 3) z20+1 (6 z5+1 f 6) w0"),
    ("undone-write:data.1", "w0 (2 2) (3 w5+2 f w9 f 3) z20+1 (6 w5 f w5 6) w0"),
    ("wide-discard", "w0 (2 2) (3 w5+2 f w9 f 3) z20+2 (6 w5 f 6) w0"),
    ("early-discard", "w0 (2 2) (3 w5+2 f w9 z20+1 f 3) (6 w5 f 6) w0"),
    // What the log does not have does nothing.
    ("lost-write:data.7", CLEAN),
    ("lost-write:99", CLEAN),
    ("lost-flush:commit.7", CLEAN),
    ("skip:fsync", CLEAN),
    ("no-recovery", CLEAN),
    ("recovery-no-flush", CLEAN),
];

#[test]
fn every_fault_does_to_the_log_what_it_says() {
    assert_eq!(words(&log()), CLEAN);
    for (fault, expected) in DAMAGED {
        assert_eq!(words(&damaged(fault)), expected, "{fault}");
    }
}

fn data_of(entry: &Entry) -> &[u8] {
    match entry {
        Entry::Write { data, .. } => data,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_are_damaged_where_the_workload_wrote_and_nowhere_else() {
    let old = content(300, 2 * BLOCK);
    let half = BLOCK as usize;
    let swapped = damaged("swapped-write:data.0");
    assert_eq!(data_of(&swapped[4]), [&old[half..], &old[..half]].concat());
    let flipped = damaged("flipped-write:data.0");
    let differing = data_of(&flipped[4]).iter().zip(&old);
    assert_eq!(differing.filter(|(a, b)| a != b).count(), 1);
    let undone = damaged("undone-write:data.1");
    assert_eq!(data_of(&undone[13]), &old[..half]);
    // The superblock is in sectors 2 and 3: of these the first is new.
    let torn = damaged("torn-write:super");
    assert_eq!(data_of(torn.last().unwrap()).len(), 3 * 512);
}

#[test]
fn recoveries_go_wrong_on_their_own() {
    let base = Image::new(LEN_BYTES);
    let recovered = |fault: &str| {
        let fault: Fault = fault.parse().unwrap();
        words(&fault.on_recovery(&base, log()))
    };
    let lost = recovered("recovery-lost-write:1");
    assert_eq!(lost, "w0 (2 2) (3 f w9 f 3) z20+1 (6 w5 f 6) w0");
    assert!(!recovered("recovery-no-flush").contains('f'));
    assert_eq!(recovered("no-flush"), words(&log()));
}

#[test]
fn what_a_program_forgets_is_what_was_named() {
    let skips = |fault: &str, step: &Step| fault.parse::<Fault>().unwrap().skips(step);
    let path = || "A".to_owned();
    let fsync = Step::Fsync { path: path() };
    let directory = Step::FsyncDir { path: path() };
    assert!(skips("skip:fsync", &fsync) && !skips("skip:fsync", &directory));
    assert!(skips("skip:fsync-dir", &directory) && skips("skip:sync", &Step::Sync));
    assert!(!skips("no-flush", &fsync));
}

#[test]
fn faults_are_read_as_they_are_written() {
    for text in [
        "no-flush",
        "lost-flush:3",
        "lost-flush:commit.2",
        "lost-flush:before.data.0",
        "lost-write:0",
        "late-write:super",
        "undone-write:data.12",
        "wide-discard",
        "early-discard",
        "skip:fsync-dir",
        "no-recovery",
        "recovery-no-flush",
        "recovery-lost-write:4",
    ] {
        assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "no-flush:1",
        "lost-flush",
        "lost-write:x",
        "skip:",
        "lost-write:data",
    ] {
        assert!(text.parse::<Fault>().is_err(), "{text}");
    }
}
