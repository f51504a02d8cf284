//! What programs do.

use super::{Step, Workload};

/// The names of these workloads.
pub const NAMES: [&str; 5] = ["write-rename", "append-log", "pages", "bystander", "sqlite"];

/// Rounds of replacing a file.
const RENAMES: u64 = 6;
/// Records of a log.
const RECORDS: u64 = 12;
/// Pages that are changed.
const PAGES: u64 = 10;
/// Files that nobody makes durable.
const BYSTANDERS: u64 = 6;
/// Transactions of a database.
const ROWS: u32 = 8;
/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// The workload of one of [`NAMES`].
#[must_use]
pub fn named(name: &str) -> Option<Workload> {
    let steps = match name {
        "write-rename" => write_rename(),
        "append-log" => append_log(),
        "pages" => pages(),
        "bystander" => bystander(),
        "sqlite" => sqlite(),
        _ => return None,
    };
    Some(Workload::on_small_tree(name, steps))
}

/// An editor that saves: a new file, made durable, takes the old one's name.
fn write_rename() -> Vec<Step> {
    let round = |round: u64| {
        let path = "A/new".to_owned();
        [
            Step::Create { path: path.clone() },
            Step::Write {
                path: path.clone(),
                offset: 0,
                len: 6000,
                tag: 100 + round,
            },
            Step::Fsync { path: path.clone() },
            Step::Rename {
                from: path,
                to: "A/foo".into(),
            },
            Step::FsyncDir { path: "A".into() },
        ]
    };
    (0..RENAMES).flat_map(round).collect()
}

/// A log that is appended to, each record durable before the next.
fn append_log() -> Vec<Step> {
    let path = || "B/log".to_owned();
    let mut steps = vec![
        Step::Create { path: path() },
        Step::Fsync { path: path() },
        Step::FsyncDir { path: "B".into() },
    ];
    for record in 0..RECORDS {
        steps.push(Step::Append {
            path: path(),
            len: 700 + 300 * record,
            tag: 200 + record,
        });
        steps.push(Step::Fdatasync { path: path() });
    }
    steps
}

/// A database that changes pages of its file in place, durable one by one.
fn pages() -> Vec<Step> {
    let path = || "B/db".to_owned();
    let mut steps = vec![
        Step::Create { path: path() },
        Step::Write {
            path: path(),
            offset: 0,
            len: 16 * PAGE_BYTES,
            tag: 300,
        },
        Step::Fsync { path: path() },
        Step::FsyncDir { path: "B".into() },
    ];
    for number in 0..PAGES {
        steps.push(Step::Write {
            path: path(),
            offset: number * 7 % 16 * PAGE_BYTES,
            len: PAGE_BYTES,
            tag: 301 + number,
        });
        steps.push(Step::Fdatasync { path: path() });
    }
    steps
}

/// A program that makes its own file durable, and one beside it that does not: what is in the
/// latter may be lost, but it must not have what somebody else has deleted.
fn bystander() -> Vec<Step> {
    let path = || "B/log".to_owned();
    let mut steps = vec![Step::Create { path: path() }];
    for round in 0..BYSTANDERS {
        let beside = format!("A/beside{round}");
        steps.push(Step::Create {
            path: beside.clone(),
        });
        steps.push(Step::Write {
            path: beside,
            offset: 0,
            len: 3 * PAGE_BYTES,
            tag: 400 + round,
        });
        steps.push(Step::Append {
            path: path(),
            len: 900,
            tag: 450 + round,
        });
        steps.push(Step::Fsync { path: path() });
    }
    steps.push(Step::Sync);
    steps
}

/// SQLite, a row for each transaction.
fn sqlite() -> Vec<Step> {
    let path = "B/rows".to_owned();
    let insert = |row| Step::Insert {
        path: path.clone(),
        row,
    };
    (1..=ROWS).map(insert).collect()
}
