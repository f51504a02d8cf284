//! What many tests look for.

use crate::common::{Run, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The JSON that a command printed; every key of it must be in the reference.
#[track_caller]
pub(crate) fn json(run: Run) -> Value {
    let text = run.ok();
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/json.md");
    let reference = std::fs::read_to_string(reference).unwrap();
    for key in keys(&value) {
        assert!(
            reference.contains(&format!("`{key}`")),
            "docs/reference/json.md lacks {key:?}"
        );
    }
    value
}

fn keys(value: &Value) -> Vec<String> {
    match value {
        Value::Object(map) => {
            let below = map.values().flat_map(keys);
            map.keys().cloned().chain(below).collect()
        }
        Value::Array(list) => list.iter().flat_map(keys).collect(),
        _ => Vec::new(),
    }
}

/// A command that must have failed with this code: message, hint and code are on standard error and
/// nothing is on standard output.
#[track_caller]
pub(crate) fn fails(run: &Run, code: &str) {
    assert_eq!(run.status.code(), Some(1), "{run:#?}");
    let stderr = &run.stderr;
    assert!(stderr.contains("error: "), "{stderr}");
    let last = format!("\n  code: {code} (docs/errors/{code}.md)");
    assert!(stderr.contains(&last), "{stderr}");
    assert_eq!(run.stdout, "");
}

/// The figures of a mount. No process is started for it, which would be born with copies of the
/// test's open files.
#[track_caller]
pub(crate) fn figures(mount: &std::path::Path) -> Value {
    let mut text = vec![0; 1 << 16];
    let len = rustix::fs::getxattr(mount, "system.azekura.status", &mut text[..]).unwrap();
    serde_json::from_slice(&text[..len]).unwrap()
}

/// Sends a signal to the process of a mount.
pub(crate) fn signal_mount(mount: &Path, signal: rustix::process::Signal) {
    let pid = figures(mount)["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Copies a program that is run afterwards. By another process: children of other tests, between
/// fork and exec, have open what is open here, and what is open for writing cannot be run.
#[track_caller]
pub(crate) fn copy_program(from: &str, to: &Path) {
    run(Command::new("cp").arg(from).arg(to)).ok();
}
