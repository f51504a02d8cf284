//! One part of a profile: a command of its own, whose result goes into a file.
//!
//! It is run as anybody would run it, so it sets up, guards and cleans up as always; what it needs
//! and does not have it says itself. Its result gets its name when it is whole and durable. It ends
//! with this process, whatever that dies of, and takes back what it did then as it does when it is
//! killed.

use crate::errors::{Context, Result};
use ::verify::profile::Part;
use ::verify::results::Run;
use ::verify::speed::job;
use base::limits::{VERIFY_PART_SAID_BYTES_MAX, VERIFY_RESULT_BYTES_MAX};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often is looked whether it has ended, or is to.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// What a command has said when it failed: as every failure of this program is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) message: String,
    pub(super) hint: String,
    pub(super) code: String,
}

impl Said {
    /// From standard error; `None` if there is no failure in it.
    fn parse(text: &str) -> Option<Self> {
        let start = text
            .rfind("error: ")
            .filter(|at| *at == 0 || text.as_bytes()[*at - 1] == b'\n')?;
        let mut said = Self::default();
        for line in text[start..].lines() {
            if let Some(message) = line.strip_prefix("error: ") {
                said.message = message.to_owned();
            } else if let Some(hint) = line.strip_prefix("  hint: ") {
                said.hint = hint.to_owned();
            } else if let Some(code) = line.strip_prefix("  code: ") {
                said.code = code.split(' ').next().unwrap_or_default().to_owned();
            }
        }
        Some(said)
    }
}

/// What became of it.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its result, which is in its file.
    pub(super) run: Option<Run>,
    /// Why it failed, if it did.
    pub(super) said: Option<Said>,
    /// It was ended because its time was over.
    pub(super) is_over: bool,
    pub(super) time: Duration,
}

/// How long it may take, and who is asked and told meanwhile.
pub(super) struct Bounds<'a> {
    pub(super) share: Option<Duration>,
    /// How long it may take to end.
    pub(super) grace: Duration,
    pub(super) is_wanted: &'a dyn Fn() -> bool,
    pub(super) tell: &'a dyn Fn(),
}

/// A process that does not outlive its part.
struct Running(Child);

impl Running {
    fn end(&self) {
        // It may have ended. Interrupts are ignored by what a script starts in the background.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is left alone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The file for the result while it is being written.
fn partial(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.part"))
}

/// Removes what a run that was killed has left of it.
pub(super) fn clean_up(file: &Path) {
    let _ = std::fs::remove_file(partial(file));
}

/// Runs it; its result is `file` then.
///
/// # Errors
/// Of this machine; what the part itself fails of is in the outcome.
pub(super) fn run(part: &Part, file: &Path, bounds: &Bounds<'_>) -> Result<Ended> {
    let program = std::env::current_exe().context("this program")?;
    // Becomes the part, and is killed with this process.
    let mut command = job(&program);
    command.arg("--").arg(&program);
    command.args(&part.arguments);
    run_command(&mut command, file, bounds)
}

fn run_command(command: &mut Command, file: &Path, bounds: &Bounds<'_>) -> Result<Ended> {
    let partial = partial(file);
    let out = File::create(&partial).context(partial.display())?;
    let mut err = tempfile::tempfile().context("a temporary file")?;
    let started = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(out.try_clone().context(partial.display())?)
        .stderr(err.try_clone().context("a temporary file")?)
        // Ctrl-C is for this process, which then ends the part.
        .process_group(0)
        .spawn()
        .context("a part")?;
    let is_over = wait(Running(child), started, bounds)?;
    let run = keep(&partial, &out, file)?;
    Ok(Ended {
        run,
        said: Said::parse(&last_words(&mut err)),
        is_over,
        time: started.elapsed(),
    })
}

/// Waits for its end, which is asked for when its time is over or nobody wants it any more; whether
/// its time was over.
fn wait(mut running: Running, started: Instant, bounds: &Bounds<'_>) -> Result<bool> {
    let mut is_over = false;
    let mut asked: Option<Instant> = None;
    while running.0.try_wait().context("a part")?.is_none() {
        if asked.is_none() {
            is_over = bounds.share.is_some_and(|share| started.elapsed() >= share);
            if is_over || !(bounds.is_wanted)() {
                running.end();
                asked = Some(Instant::now());
            }
        }
        if asked.is_some_and(|since| since.elapsed() >= bounds.grace) {
            break;
        }
        (bounds.tell)();
        std::thread::sleep(LOOKS_EVERY);
    }
    Ok(is_over)
}

/// Gives a result its name if it is whole.
fn keep(partial: &Path, out: &File, file: &Path) -> Result<Option<Run>> {
    let mut text = Vec::new();
    let read = File::open(partial).context(partial.display())?;
    let mut read = read.take(VERIFY_RESULT_BYTES_MAX);
    read.read_to_end(&mut text).context(partial.display())?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Ok(run) = Run::read(&name, &text) else {
        std::fs::remove_file(partial).context(partial.display())?;
        return Ok(None);
    };
    out.sync_all().context(partial.display())?;
    std::fs::rename(partial, file).context(file.display())?;
    let directory = file.parent().unwrap_or(Path::new("."));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.context(directory.display())?;
    Ok(Some(run))
}

/// The end of what it said.
fn last_words(err: &mut File) -> String {
    let len = err.metadata().map_or(0, |found| found.len());
    let from = len.saturating_sub(VERIFY_PART_SAID_BYTES_MAX);
    let mut text = Vec::new();
    // What cannot be read was not said.
    let _ = err.seek(SeekFrom::Start(from));
    let _ = err.take(VERIFY_PART_SAID_BYTES_MAX).read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_as_they_are_told() {
        let text = "left out: jfs: no\nerror: mkfs.xfs is not installed\n  hint: apt-get install \
                    xfsprogs\n  code: AZ1202 (docs/errors/AZ1202.md)\n";
        let said = Said::parse(text).unwrap();
        assert_eq!(said.message, "mkfs.xfs is not installed");
        assert_eq!(
            (&*said.hint, &*said.code),
            ("apt-get install xfsprogs", "AZ1202")
        );
        assert_eq!(Said::parse("all is well\n"), None);
        assert_eq!(Said::parse("no error: here\n"), None);
    }

    /// A result, as short as there is one.
    const WHOLE: &str = r#"{"kind":"crash","version":1,"kernel":"Linux 6","seed":1,"targets":[]}"#;

    /// What becomes of a script that has so long.
    fn ended(script: &str, share: Duration, grace: Duration) -> (Ended, bool) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.json");
        let bounds = Bounds {
            share: Some(share),
            grace,
            is_wanted: &|| true,
            tell: &|| {},
        };
        let mut command = Command::new("sh");
        let ended = run_command(command.args(["-c", script]), &file, &bounds).unwrap();
        let others = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(others, usize::from(file.exists()), "something is left");
        (ended, file.exists())
    }

    #[test]
    fn a_part_has_its_time_and_then_tells_what_it_has() {
        let long = Duration::from_secs(60);
        let (done, is_there) = ended(&format!("echo '{WHOLE}'"), long, long);
        assert!(done.run.is_some() && is_there && !done.is_over);
        // As one that is asked to end does.
        let told = format!(
            "tell() {{ echo '{WHOLE}'; exit 1; }}; trap tell TERM; while :; do sleep 0.1; done"
        );
        let (early, is_there) = ended(&told, Duration::from_millis(500), long);
        assert!(early.run.is_some() && is_there && early.is_over);
        let failed = "echo half; printf 'error: no\\n  code: AZ1202 (x)\\n' >&2; exit 1";
        let (failed, is_there) = ended(failed, long, long);
        assert!(failed.run.is_none() && !is_there && !failed.is_over);
        assert_eq!(failed.said.unwrap().code, "AZ1202");
    }

    #[test]
    fn a_part_that_does_not_end_is_killed() {
        let script = "trap '' INT; while :; do sleep 0.1; done";
        let moment = Duration::from_millis(200);
        let (killed, is_there) = ended(script, moment, moment);
        assert!(killed.run.is_none() && !is_there && killed.is_over);
        assert!(killed.time < Duration::from_secs(30), "{:?}", killed.time);
    }

    #[test]
    fn only_a_whole_result_gets_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.json");
        let whole = WHOLE.as_bytes();
        for len in 0..=whole.len() {
            let partial = partial(&file);
            std::fs::write(&partial, &whole[..len]).unwrap();
            let out = File::open(&partial).unwrap();
            let kept = keep(&partial, &out, &file).unwrap();
            assert_eq!(
                (kept.is_some(), file.exists()),
                (len == whole.len(), len == whole.len())
            );
            assert!(!partial.exists(), "at {len}");
        }
    }
}
