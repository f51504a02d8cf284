//! What becomes of a run whose actor is of no use any more.

use super::*;
use crate::actor::{Actor, Answer};
use crate::log::{Entry, Log};
use crate::oracle::{Entry as FoundEntry, EntryKind};
use crate::states::State;
use crate::workload::content;
use crate::{Medium, Recorder};
use sim::Image;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LEN_BYTES: u64 = 1 << 20;

fn log() -> Log {
    let subject = Subject {
        target: Target::Ext4,
        mount_options: String::new(),
        workload: "pages".into(),
        seed: 7,
    };
    Log {
        subject: subject.to_text(),
        base: Image::new(LEN_BYTES),
        entries: vec![Entry::Write {
            offset: 0,
            data: Arc::from([1; 512]),
        }],
    }
}

fn options(keep: Option<&Path>) -> Options {
    Options {
        points: 10,
        seed: 7,
        sector_bytes: SECTOR_BYTES_DEFAULT,
        mount_options: String::new(),
        workload: None,
        recoveries: false,
        plant: None,
        keep: keep.map(Path::to_owned),
    }
}

/// How a run ends whose actor has ended before the first state is tried.
fn ended(keep: Option<&Path>) -> CrashError {
    let options = options(keep);
    let medium = Arc::new(Medium::new(LEN_BYTES));
    let recorder = Recorder::new(medium.clone());
    let mut actor: Actor = Actor::start(&mut Command::new("true")).unwrap();
    let stage = Stage {
        medium: &medium,
        recorder: &recorder,
        actor: &mut actor,
        second: None,
        states: None,
    };
    replay(&log(), None, stage, &options, &mut |_, _| true).unwrap_err()
}

/// What is told of the first three states of a log, or of one, of which this is found in the first
/// one, and nothing in the others.
fn found(
    first: &[Answer],
    log: &Log,
    only: Option<(&State, Option<&State>)>,
    options: &Options,
) -> Outcome {
    found_while(first, log, only, options, &mut |states, _| states < 3)
}

/// The same of as many states as are wanted.
fn found_while(
    first: &[Answer],
    log: &Log,
    only: Option<(&State, Option<&State>)>,
    options: &Options,
    watch: Watch<'_>,
) -> Outcome {
    let message = |answer: &Answer| {
        let body = postcard::to_allocvec(answer).unwrap();
        [&(body.len() as u32).to_le_bytes(), &body[..]].concat()
    };
    let directory = std::env::temp_dir();
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = |what: &str| directory.join(format!("{what}-{}-{number}", std::process::id()));
    let (one, others) = (name("first"), name("others"));
    let first: Vec<u8> = first.iter().flat_map(message).collect();
    std::fs::write(&one, first).unwrap();
    std::fs::write(&others, message(&Answer::Found(Vec::new()))).unwrap();
    // Answers until its input ends, whatever it is asked.
    let script = r#"(cat "$1"; while cat "$2"; do :; done) & cat > /dev/null; kill $!"#;
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", script, "sh"]).args([&one, &others]);
    let mut actor: Actor = Actor::start(shell).unwrap();
    let medium = Arc::new(Medium::new(LEN_BYTES));
    let recorder = Recorder::new(medium.clone());
    let stage = Stage {
        medium: &medium,
        recorder: &recorder,
        actor: &mut actor,
        second: None,
        states: None,
    };
    let outcome = replay(log, only, stage, options, watch);
    drop(actor);
    for file in [one, others] {
        std::fs::remove_file(file).unwrap();
    }
    outcome.unwrap()
}

#[test]
fn what_is_wrong_in_an_interrupted_recovery_is_tried_again_by_its_command() {
    let file = |path: &str, tag, len| FoundEntry {
        path: path.into(),
        kind: EntryKind::File(content(tag, len)),
    };
    let directory = |path: &str| FoundEntry {
        path: path.into(),
        kind: EntryKind::Directory,
    };
    let whole = vec![
        directory("A"),
        directory("B"),
        file("A/foo", 1, 8192),
        file("A/bar", 2, 5000),
    ];
    let state: State = "0/prefix:0".parse().unwrap();
    let only = Some((&state, Some(&state)));
    let kept = Options {
        keep: Some(std::env::temp_dir()),
        ..options(None)
    };
    let outcome = found(&[Answer::Found(whole)], &log(), only, &kept);
    let totals = &outcome.totals;
    assert_eq!(
        (totals.states, totals.recovery_states, totals.bad_states),
        (2, 1, 1)
    );
    let [failure] = &outcome.failures[..] else {
        panic!("{:?}", outcome.failures);
    };
    assert_eq!(failure.recovery.as_ref(), Some(&state));
    let again = "ext4-pages.azkc --state 0/prefix:0 --recovery 0/prefix:0";
    assert!(failure.replay.ends_with(again), "{}", failure.replay);
}

/// Drawn states that were not tried are in no sample.
#[test]
fn only_what_was_tried_counts_as_drawn() {
    let write = |at: u64| Entry::Write {
        offset: at * 512,
        data: Arc::from([at as u8 + 1; 512]),
    };
    let long = Log {
        entries: (0..40).map(write).collect(),
        ..log()
    };
    let totals = found(&[], &long, None, &options(None)).totals;
    assert_eq!((totals.states, totals.sampled), (3, 3), "{totals:?}");
    assert!(totals.distinct > 10);
}

/// Whoever ends a run may have ended what it needs: then nothing is to be read on its device.
#[test]
fn what_goes_wrong_when_a_run_is_to_end_is_no_finding() {
    let broken = [Answer::Unmountable("Input/output error".into())];
    let outcome = found_while(&broken, &log(), None, &options(None), &mut |_, _| false);
    let totals = &outcome.totals;
    assert!(outcome.was_interrupted);
    assert_eq!((totals.states, totals.bad_states), (0, 0), "{totals:?}");
    // One that is wanted has it.
    let totals = found(&broken, &log(), None, &options(None)).totals;
    assert_eq!(totals.unmountable, 1, "{totals:?}");
}

#[test]
fn the_log_of_what_hangs_is_kept_and_named() {
    let directory = std::env::temp_dir().join(format!("stuck-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let error = ended(Some(&directory));
    let path = directory.join("ext4-pages.azkc");
    let words = error.to_string();
    assert!(words.contains(&path.display().to_string()), "{words}");
    assert!(words.contains("0/prefix:0 of pages"), "{words}");
    let CrashError::Stuck { source, again, .. } = error else {
        panic!("{words}");
    };
    assert!(
        matches!(
            *source,
            CrashError::Actor(ActorError::Io(_) | ActorError::Ended)
        ),
        "{source:?}"
    );
    assert!(
        again.ends_with("ext4-pages.azkc --state 0/prefix:0"),
        "{again}"
    );
    let mut kept = std::fs::File::open(&path).unwrap();
    assert_eq!(Log::read_from(&mut kept).unwrap().entries, log().entries);
    std::fs::remove_dir_all(&directory).unwrap();
    // It cannot be kept: nobody takes what was found for a fault of that.
    let words = ended(Some(&directory)).to_string();
    assert!(words.contains("could not be kept"), "{words}");
    let CrashError::Stuck { log, again, .. } = ended(None) else {
        panic!("it ends otherwise");
    };
    assert_eq!(log, "whose log was not kept");
    assert!(
        again.ends_with("--workload pages --seed 7 --keep DIR"),
        "{again}"
    );
}
