//! What becomes of a run whose actor is of no use any more.

use super::*;
use crate::actor::Actor;
use crate::log::{Entry, Log};
use crate::{Medium, Recorder};
use sim::Image;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

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

/// How a run ends whose actor has ended before the first state is tried.
fn ended(keep: Option<&Path>) -> CrashError {
    let options = Options {
        points: 10,
        seed: 7,
        sector_bytes: SECTOR_BYTES_DEFAULT,
        mount_options: String::new(),
        workload: None,
        recoveries: false,
        plant: None,
        keep: keep.map(Path::to_owned),
    };
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
