//! Faults that are planted in a program, a file system, a disk or a recovery: `verify crash` finds
//! every one as what it is, and finds nothing in the same run without it.
//!
//! `cargo xtask deep faults` runs all of them, and prints what found which; without its variable
//! those run that take no time.

use crate::common::{Run, obstacle, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::{Command, Stdio};

/// Set to `all` by the long suite.
const ALL: &str = "AZEKURA_FAULTS";

/// A fault: what it is, the run it is planted in, how it is planted, and as what it may be found.
struct Planted {
    what: &'static str,
    target: &'static str,
    workload: &'static str,
    /// How the run is, with the fault and without it.
    mounted: &'static str,
    /// Mount options that are the fault, or a fault of `--plant`.
    fault: How,
    found_as: &'static [&'static str],
    is_quick: bool,
}

#[derive(Clone, Copy)]
enum How {
    Mounted(&'static str),
    Plant(&'static str),
}

const fn plant(
    what: &'static str,
    [target, workload, fault]: [&'static str; 3],
    found_as: &'static [&'static str],
) -> Planted {
    Planted {
        what,
        target,
        workload,
        mounted: "",
        fault: How::Plant(fault),
        found_as,
        is_quick: false,
    }
}

const fn mounted(
    what: &'static str,
    [target, workload, options]: [&'static str; 3],
    found_as: &'static [&'static str],
) -> Planted {
    Planted {
        fault: How::Mounted(options),
        ..plant(what, [target, workload, options], found_as)
    }
}

const fn with_options(mounted: &'static str, planted: Planted) -> Planted {
    Planted { mounted, ..planted }
}

const fn quick(planted: Planted) -> Planted {
    Planted {
        is_quick: true,
        ..planted
    }
}

/// What was durable is not there, or as before.
const LOST: &[&str] = &["missing", "stale", "truncated"];
/// A content is not what anybody wrote.
const WRONG: &[&str] = &["foreign", "stale", "zero_filled"];
/// A checksum did not fit, of data or of the file system's own records.
const REFUSED: &[&str] = &["unreadable", "unmountable"];
/// Records of a file system without their parts.
const BROKEN: &[&str] = &["unreadable", "unmountable", "missing", "stale", "foreign"];

const FAULTS: &[Planted] = &[
    // The file system: barriers off, and a journal that does not wait for data.
    mounted("barriers off", ["ext4", "write-rename", "nobarrier"], LOST),
    mounted(
        "barriers off",
        ["ext3", "write-rename", "nobarrier"],
        BROKEN,
    ),
    mounted(
        "barriers off",
        ["btrfs", "write-rename", "nobarrier"],
        BROKEN,
    ),
    mounted(
        "stale extents",
        ["ext3", "bystander", "data=writeback"],
        &["foreign"],
    ),
    // The disk: flushes.
    plant("no flush works", ["ext4", "write-rename", "no-flush"], LOST),
    plant("no flush works", ["xfs", "write-rename", "no-flush"], LOST),
    plant(
        "no flush works",
        ["btrfs", "write-rename", "no-flush"],
        BROKEN,
    ),
    quick(plant(
        "no flush works",
        ["store", "objects:0", "no-flush"],
        BROKEN,
    )),
    quick(plant(
        "FUA of a commit ignored",
        ["ext4", "write-rename", "lost-flush:commit.2"],
        LOST,
    )),
    plant(
        "FUA of a commit ignored",
        ["ext3", "write-rename", "lost-flush:commit.2"],
        LOST,
    ),
    plant(
        "FUA of a commit ignored",
        ["xfs", "write-rename", "lost-flush:commit.2"],
        LOST,
    ),
    plant(
        "FUA of a commit ignored",
        ["btrfs", "write-rename", "lost-flush:commit.2"],
        LOST,
    ),
    plant(
        "FUA of a commit ignored",
        ["store", "objects:0", "lost-flush:commit.2"],
        BROKEN,
    ),
    plant(
        "flush before a commit lost",
        ["ext3", "write-rename", "lost-flush:before.commit.2"],
        BROKEN,
    ),
    plant(
        "flush before a commit lost",
        ["btrfs", "write-rename", "lost-flush:before.commit.2"],
        BROKEN,
    ),
    // The disk: order.
    plant(
        "commit record late",
        ["ext4", "write-rename", "late-write:commit.3"],
        LOST,
    ),
    plant(
        "commit record late",
        ["xfs", "write-rename", "late-write:commit.3"],
        LOST,
    ),
    plant(
        "superblock late",
        ["btrfs", "write-rename", "late-write:commit.3"],
        LOST,
    ),
    plant(
        "commit record late",
        ["store", "objects:0", "late-write:commit.3"],
        LOST,
    ),
    plant(
        "commit record before what it commits",
        ["ext3", "write-rename", "early-write:commit.2"],
        BROKEN,
    ),
    plant(
        "superblock before what it points to",
        ["btrfs", "write-rename", "early-write:commit.2"],
        BROKEN,
    ),
    plant("data late", ["ext4", "pages", "late-write:data.2"], WRONG),
    // The disk: single writes.
    plant(
        "write lost",
        ["ext4", "pages", "lost-write:data.2"],
        &["stale"],
    ),
    plant(
        "write lost",
        ["xfs", "pages", "lost-write:data.2"],
        &["stale"],
    ),
    plant(
        "write lost",
        ["btrfs", "pages", "lost-write:data.2"],
        REFUSED,
    ),
    plant(
        "write lost",
        ["store", "objects:0", "lost-write:data.6"],
        BROKEN,
    ),
    plant("write torn", ["xfs", "pages", "torn-write:data.0"], WRONG),
    plant(
        "write misplaced",
        ["ext4", "pages", "shifted-write:data.2"],
        WRONG,
    ),
    plant(
        "sectors swapped",
        ["ext4", "pages", "swapped-write:data.2"],
        &["foreign"],
    ),
    quick(plant(
        "bit flipped",
        ["ext4", "pages", "flipped-write:data.2"],
        &["foreign"],
    )),
    // One bit alone would be put right: the store has what it needs for that.
    plant(
        "write torn",
        ["store", "objects:0", "torn-write:data.6"],
        BROKEN,
    ),
    plant(
        "write as zeros",
        ["xfs", "pages", "zeroed-write:data.2"],
        &["zero_filled"],
    ),
    plant(
        "old bytes back",
        ["ext4", "pages", "undone-write:data.2"],
        &["stale"],
    ),
    plant(
        "superblock torn",
        ["ext4", "write-rename", "torn-write:super"],
        &["unmountable"],
    ),
    plant(
        "superblock torn",
        ["btrfs", "write-rename", "torn-write:super"],
        &["unmountable"],
    ),
    // The disk: discards.
    with_options(
        "discard",
        plant(
            "discard too long",
            ["ext4", "write-rename", "wide-discard"],
            &["zero_filled"],
        ),
    ),
    with_options(
        "discard",
        plant(
            "discard too early",
            ["ext4", "write-rename", "early-discard"],
            &["zero_filled"],
        ),
    ),
    // The program.
    plant(
        "fsync forgotten",
        ["ext4", "write-rename", "skip:fsync"],
        LOST,
    ),
    plant(
        "fsync forgotten",
        ["xfs", "write-rename", "skip:fsync"],
        LOST,
    ),
    quick(plant(
        "fsync of the directory forgotten",
        ["ext4", "write-rename", "skip:fsync-dir"],
        &["stale"],
    )),
    plant(
        "fsync of the directory forgotten",
        ["xfs", "write-rename", "skip:fsync-dir"],
        &["stale"],
    ),
    plant(
        "fdatasync forgotten",
        ["ext4", "append-log", "skip:fdatasync"],
        LOST,
    ),
    plant(
        "fdatasync forgotten",
        ["btrfs", "append-log", "skip:fdatasync"],
        LOST,
    ),
    plant(
        "commit forgotten",
        ["store", "objects:0", "skip:sync"],
        LOST,
    ),
    // The recovery.
    quick(plant(
        "no recovery",
        ["ext4", "write-rename", "no-recovery"],
        LOST,
    )),
    plant("no recovery", ["xfs", "write-rename", "no-recovery"], LOST),
    plant("no recovery", ["btrfs", "append-log", "no-recovery"], LOST),
    plant(
        "flushes lost in recovery",
        ["ext4", "write-rename", "recovery-no-flush"],
        BROKEN,
    ),
    plant(
        "write lost in recovery",
        ["ext4", "write-rename", "recovery-lost-write:3"],
        BROKEN,
    ),
];

/// As what something was found, how often, and of how many states.
struct Found {
    states: u64,
    bad: u64,
    kinds: BTreeMap<String, u64>,
}

fn crash(planted: &Planted, fault: Option<How>) -> Found {
    let mut options = planted.mounted.to_owned();
    let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
    command.args(["verify", "crash", "--target", planted.target]);
    command.args(["--workload", planted.workload, "--points", "600", "--json"]);
    match fault {
        Some(How::Mounted(more)) if options.is_empty() => options = more.to_owned(),
        Some(How::Mounted(more)) => options = format!("{options},{more}"),
        Some(How::Plant(plant)) => _ = command.args(["--plant", plant]),
        None => {}
    }
    if !fault.is_some_and(|how| matches!(how, How::Plant(plant) if plant.starts_with("recovery"))) {
        command.arg("--no-recoveries");
    }
    command
        .args(["--mount-options", &options])
        .stdin(Stdio::null());
    found(&run(command.env_remove("RUST_LOG")))
}

fn found(run: &Run) -> Found {
    let parsed = serde_json::from_str(&run.stdout);
    let parsed: Value = parsed.unwrap_or_else(|error| panic!("{error}: {}", run.stderr));
    let count = |value: &Value| value.as_u64().expect("a count");
    let outcomes = parsed["targets"][0]["outcomes"].as_object().unwrap();
    let mut kinds: BTreeMap<String, u64> = outcomes
        .iter()
        .map(|(kind, value)| (kind.clone(), count(value)))
        .collect();
    kinds.insert("unmountable".to_owned(), count(&parsed["unmountable"]));
    kinds.retain(|_, count| *count > 0);
    let bad = count(&parsed["bad_states"]);
    assert_eq!(bad > 0, run.stderr.contains("AZ1201"), "{}", run.stderr);
    Found {
        states: count(&parsed["states"]),
        bad,
        kinds,
    }
}

#[test]
fn planted_faults_are_found_as_what_they_are_and_nothing_is_without_them() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let wanted = std::env::var(ALL).unwrap_or_default();
    let is_wanted = |planted: &&Planted| match wanted.as_str() {
        "" => planted.is_quick,
        "all" => true,
        target => planted.target == target,
    };
    let (mut table, mut clean) = (String::new(), BTreeMap::new());
    let (mut missed, mut alarms) = (Vec::new(), Vec::new());
    for planted in FAULTS.iter().filter(is_wanted) {
        let line = [planted.target, planted.workload, planted.mounted];
        let clean_states = *clean.entry(line).or_insert_with(|| {
            let without = crash(planted, None);
            if without.bad > 0 {
                alarms.push(format!("{line:?}: {:?}", without.kinds));
            }
            without.states
        });
        let with = crash(planted, Some(planted.fault));
        let is_found = planted
            .found_as
            .iter()
            .any(|kind| with.kinds.contains_key(*kind));
        let (How::Mounted(fault) | How::Plant(fault)) = planted.fault;
        let kinds: Vec<String> = with
            .kinds
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        let row = format!(
            "| {} | {} | {} | `{fault}` | {} of {} | {} | 0 of {clean_states} |",
            planted.what,
            planted.target,
            planted.workload,
            with.bad,
            with.states,
            kinds.join(", "),
        );
        let _ = writeln!(table, "{row}");
        if !is_found {
            missed.push(row);
        }
    }
    let count = table.lines().count();
    println!("| fault | target | workload | planted by | bad states | found as | without it |");
    println!("|---|---|---|---|---|---|---|\n{table}");
    println!("{} of {count} planted faults found", count - missed.len());
    assert!(alarms.is_empty(), "false alarms:\n{}", alarms.join("\n"));
    assert!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
}
