//! Tools of file systems, run on the image of a guest's disk.
//!
//! What a check says of a file system is a finding, and may be kept in a state file for ever. So it
//! counts only if the check has come to its own end: one that was killed, cancelled or could not be
//! run says nothing of what it was to look at.

use super::PowercutError;
use super::guest::{DISK, IsWanted};
use crate::actor::Tool;
use crate::programs;
use crate::speed::job;
use base::limits::VERIFY_TEXT_BYTES_MAX;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

/// How often is looked whether a tool has ended, or is not wanted any more.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
/// Files in the directory of a guest with what a tool says, and what it complains of.
const SAID: [&str; 2] = ["tool.out", "tool.err"];
/// Of the exit code of a check: it was used wrongly (16) or cancelled (32), says fsck(8).
const UNFINISHED_BITS: i32 = 16 | 32;
/// From this exit code on a program was not run at all, as shells say it; or a library of it is
/// missing (128).
const NOT_RUN_MIN: i32 = 126;

/// How a tool has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It has done what it is to do.
    Done,
    /// It could not do that with this file system.
    Failed,
    /// It has come to no end of its own.
    Unfinished,
}

impl End {
    fn of(status: ExitStatus, code_max: i32) -> Self {
        match status.code() {
            Some(code) if code <= code_max => Self::Done,
            Some(code) if code < NOT_RUN_MIN && code & UNFINISHED_BITS == 0 => Self::Failed,
            // By a signal it has none.
            _ => Self::Unfinished,
        }
    }
}

/// Runs a tool; what it said, or what it says against the file system.
///
/// # Errors
/// [`PowercutError::Interrupted`], and [`PowercutError::Guest`] if it came to no end of its own.
pub(super) fn run(
    tool: &Tool,
    lane: &Path,
    is_wanted: IsWanted<'_>,
) -> Result<Result<String, String>, PowercutError> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| PowercutError::Guest(error.to_string()))?;
    // It ends with this thread, whatever that dies of.
    let mut job = job(&own);
    job.arg("--");
    run_by(&mut job, tool, lane, is_wanted)
}

/// The same; `runs` runs what is appended to it.
fn run_by(
    runs: &mut Command,
    tool: &Tool,
    lane: &Path,
    is_wanted: IsWanted<'_>,
) -> Result<Result<String, String>, PowercutError> {
    let program = &tool.program;
    let words = |error: io::Error| PowercutError::Guest(format!("{program}: {error}"));
    runs.arg(program);
    for argument in &tool.arguments {
        runs.arg(if argument == "{}" { DISK } else { argument });
    }
    let [out, err] = SAID.map(|name| File::create(lane.join(name)));
    programs::find_all(runs);
    let mut child = runs
        .current_dir(lane)
        .stdin(Stdio::null())
        .stdout(out.map_err(words)?)
        .stderr(err.map_err(words)?)
        // Ctrl-C is for the run.
        .process_group(0)
        .spawn()
        .map_err(words)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(words)? {
            break status;
        }
        if !is_wanted() {
            stop(&mut child);
            return Err(PowercutError::Interrupted);
        }
        thread::sleep(LOOKS_EVERY);
    };
    let said = |name: &str| said(&lane.join(name)).map_err(words);
    let end = End::of(status, tool.code_max);
    if end == End::Done {
        return Ok(Ok(said(SAID[0])?));
    }
    let mut why = said(SAID[1])?;
    if why.is_empty() {
        why = said(SAID[0])?;
    }
    let why = format!("{program}: {status}: {why}");
    match end {
        End::Failed => Ok(Err(why)),
        // Whoever has ended the run may have ended this, too.
        _ if !is_wanted() => Err(PowercutError::Interrupted),
        _ => Err(PowercutError::Guest(why)),
    }
}

/// Kills a program with everything that it has started.
fn stop(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

fn said(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(VERIFY_TEXT_BYTES_MAX as u64)
        .read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text
        .trim()
        .chars()
        .take(VERIFY_TEXT_BYTES_MAX / 4)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;
    use std::time::Instant;

    /// The directory of a guest with a disk.
    fn lane(name: &str) -> PathBuf {
        let lane = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&lane).unwrap();
        fs::write(lane.join(DISK), "").unwrap();
        lane
    }

    fn of(program: &str, words: &[&str], code_max: i32) -> Tool {
        Tool {
            program: program.to_owned(),
            arguments: words.iter().map(|word| (*word).to_owned()).collect(),
            code_max,
        }
    }

    fn ran(tool: &Tool, lane: &Path) -> Result<Result<String, String>, PowercutError> {
        run_by(&mut Command::new("env"), tool, lane, &|| true)
    }

    #[test]
    fn a_tool_works_on_the_image_of_its_guest() {
        let lane = lane("lane");
        let found = |option| ran(&of("test", &[option, "{}"], 0), &lane).unwrap();
        assert_eq!(found("-f"), Ok(String::new()));
        assert!(found("-d").is_err_and(|why| why.starts_with("test: exit status: 1")));
        let fails = "echo said; echo broken >&2; exit 4";
        let why = ran(&of("sh", &["-c", fails], 1), &lane).unwrap();
        assert_eq!(why, Err("sh: exit status: 4: broken".to_owned()));
        fs::remove_dir_all(&lane).unwrap();
    }

    #[test]
    fn only_a_check_that_has_come_to_its_end_says_something() {
        let ended = |code: i32| End::of(ExitStatus::from_raw(code << 8), 1);
        // Corrected.
        assert_eq!((ended(0), ended(1)), (End::Done, End::Done));
        // Corrected, and the machine is to be started again; not corrected; not readable as such.
        for code in [2, 4, 8, 12] {
            assert_eq!(ended(code), End::Failed, "{code}");
        }
        // Used wrongly, cancelled, cancelled after something was corrected, not run.
        for code in [16, 32, 33, 36, 126, 127, 128] {
            assert_eq!(ended(code), End::Unfinished, "{code}");
        }
        for signal in [Signal::INT, Signal::KILL, Signal::SEGV] {
            let status = ExitStatus::from_raw(signal.as_raw());
            assert_eq!(End::of(status, 1), End::Unfinished, "{signal:?}");
        }
    }

    #[test]
    fn what_ends_with_the_run_is_no_finding() {
        let lane = lane("ended");
        // Not SIGINT: where tests run in the background, that is ignored.
        let killed = of("sh", &["-c", "kill -TERM $$"], 1);
        let failed = ran(&killed, &lane);
        assert!(matches!(failed, Err(PowercutError::Guest(why)) if why.contains("signal: 15")));
        let ended = run_by(&mut Command::new("env"), &killed, &lane, &|| false);
        assert!(matches!(ended, Err(PowercutError::Interrupted)));
        let missing = ran(&of("no-such-tool", &[], 1), &lane);
        assert!(matches!(missing, Err(PowercutError::Guest(_))));
        // Nobody waits for one that takes its time.
        let begun = Instant::now();
        let long = of("sleep", &["60"], 0);
        let ended = run_by(&mut Command::new("env"), &long, &lane, &|| false);
        assert!(matches!(ended, Err(PowercutError::Interrupted)));
        assert!(begun.elapsed() < Duration::from_secs(30));
        fs::remove_dir_all(&lane).unwrap();
    }

    #[test]
    fn a_tool_is_not_among_those_whom_a_terminal_interrupts() {
        let lane = lane("group");
        let group = ran(
            &of("cut", &["-d", " ", "-f", "5", "/proc/self/stat"], 0),
            &lane,
        );
        let group = group.unwrap().unwrap();
        let own = rustix::process::getpgrp().as_raw_nonzero().to_string();
        assert_ne!(group, own);
        fs::remove_dir_all(&lane).unwrap();
    }
}
