//! Child processes with a time limit.
//!
//! A child stays in this program's process group, so that Ctrl-C reaches it. When its time is over
//! it is killed with everything below it, found through `/proc`.

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a child ended and what it said.
pub(crate) struct Outcome {
    pub(crate) success: bool,
    /// "exit status: 1", "killed after 60 s" and the like.
    pub(crate) end: String,
    /// Both output streams in the order written; empty when they went to the terminal.
    pub(crate) output: String,
    pub(crate) elapsed: Duration,
}

impl Outcome {
    /// An error that carries the output, unless the child succeeded.
    pub(crate) fn check(self, what: &str) -> Result<String> {
        if self.success {
            return Ok(self.output);
        }
        anyhow::bail!("{what}: {}\n{}", self.end, self.output.trim_end())
    }
}

/// Runs with both outputs on this program's own.
pub(crate) fn stream(command: &mut Command, limit: Duration) -> Result<Outcome> {
    let started = Instant::now();
    let mut child = spawn(command.stdin(Stdio::null()))?;
    let status = wait(&mut child, limit)?;
    Ok(outcome(status, started, limit, String::new()))
}

/// Runs and keeps both outputs, in one file: no pipe can fill up and stop the child.
pub(crate) fn capture(command: &mut Command, limit: Duration) -> Result<Outcome> {
    keep(command, limit, |_| ())
}

/// Runs, shows both outputs as they come, and keeps them.
pub(crate) fn tee(command: &mut Command, limit: Duration) -> Result<Outcome> {
    keep(command, limit, |bytes| {
        // Where nobody listens any more, the outcome still has it.
        let _ = std::io::stdout().write_all(bytes);
    })
}

/// `show` gets what has been written since it was called last.
fn keep(command: &mut Command, limit: Duration, show: impl Fn(&[u8])) -> Result<Outcome> {
    let started = Instant::now();
    let file = unnamed_file()?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file.try_clone()?);
    let mut child = spawn(command)?;
    let mut bytes = Vec::new();
    let mut follow = || {
        // The child's writes move the offset that it shares with this file.
        let mut part = [0; 1 << 16];
        loop {
            let count = file.read_at(&mut part, bytes.len() as u64)?;
            if count == 0 {
                return Ok(());
            }
            show(&part[..count]);
            bytes.extend_from_slice(&part[..count]);
        }
    };
    let status = wait_with(&mut child, limit, &mut follow)?;
    follow()?;
    Ok(outcome(
        status,
        started,
        limit,
        String::from_utf8_lossy(&bytes).into_owned(),
    ))
}

/// Runs and returns the output, or fails with it.
pub(crate) fn check(command: &mut Command, limit: Duration) -> Result<String> {
    let what = describe(command);
    capture(command, limit)?.check(&what)
}

/// Waits for at most `limit`; `None` when the child had to be killed.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    wait_with(child, limit, || Ok(()))
}

fn wait_with(
    child: &mut Child,
    limit: Duration,
    mut meanwhile: impl FnMut() -> Result<()>,
) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        meanwhile()?;
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            kill_tree(child);
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills a child and everything below it, and reaps the child.
pub(crate) fn kill_tree(child: &mut Child) {
    let mut pids = descendants(child.id(), &parents());
    pids.push(child.id());
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // A process that has ended meanwhile makes `kill` complain; that is no trouble.
    let _ = Command::new("kill")
        .arg("-KILL")
        .args(&pids)
        .stderr(Stdio::null())
        .status();
    let _ = child.kill();
    let _ = child.wait();
}

/// The command as a user would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn spawn(command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .with_context(|| format!("cannot start {:?}", command.get_program()))
}

fn outcome(
    status: Option<ExitStatus>,
    started: Instant,
    limit: Duration,
    output: String,
) -> Outcome {
    Outcome {
        success: status.is_some_and(|status| status.success()),
        end: match status {
            Some(status) => status.to_string(),
            None => format!("killed after its limit of {} s", limit.as_secs()),
        },
        output,
        elapsed: started.elapsed(),
    }
}

/// A temporary file that has no name any more when this returns.
fn unnamed_file() -> Result<File> {
    let scratch = crate::scratch::Scratch::new("output")?;
    let path = scratch.path().join("output");
    // Append: parent and child share no offset trouble when both outputs go here.
    Ok(File::options()
        .create_new(true)
        .read(true)
        .append(true)
        .open(path)?)
}

/// Parent of each process.
fn parents() -> HashMap<u32, u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parent_of(&stat)?))
    })
    .collect()
}

/// The parent in a line of `/proc/PID/stat`. The name before it can contain blanks and brackets.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn descendants(pid: u32, parents: &HashMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(
            parents
                .iter()
                .filter(|&(_, &p)| p == parent)
                .map(|(&child, _)| child),
        );
        next += 1;
    }
    found.remove(0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_kept() {
        let outcome = capture(
            Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]),
            Duration::from_secs(10),
        )
        .unwrap();
        assert!(!outcome.success);
        assert_eq!(outcome.output, "out\nerr\n");
        assert!(
            outcome
                .check("sh")
                .unwrap_err()
                .to_string()
                .contains("exit status: 3")
        );
    }

    #[test]
    fn a_hanging_child_is_killed_with_its_children() {
        let outcome = capture(
            Command::new("sh").args(["-c", "sleep 1000 & echo $!; wait"]),
            Duration::from_secs(2),
        )
        .unwrap();
        assert!(!outcome.success);
        // The limit ended it: neither of the two ends by itself before it.
        assert_eq!(outcome.end, "killed after its limit of 2 s");
        let grandchild: u32 = outcome.output.trim().parse().unwrap();
        let patience = Instant::now() + Duration::from_secs(10);
        while is_running(grandchild) {
            assert!(Instant::now() < patience, "{grandchild} survived");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A killed process dies some time after the signal, and may stay as a zombie until its new
    /// parent reaps it.
    fn is_running(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
    }

    #[test]
    fn names_with_brackets_do_not_hide_the_parent() {
        assert_eq!(parent_of("12 (a) b) S 7 12 0"), Some(7));
    }
}
