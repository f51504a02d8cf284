//! Starting a mount in the background and hearing how it went.

use super::Plan;
use crate::config::Span;
use crate::errors::{Code, Context, Failure, Result};
use crate::logging;
use base::ByteSize;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Time for everything that is not waiting for the server: loading the program, mounting.
const OWN_TIME_MAX: Duration = Duration::from_secs(20);

/// How long a mount with this time-out may take until it is ready: one time-out to connect, one to
/// enter the volume.
pub(super) fn ready_time_max(timeout: Duration) -> Duration {
    timeout * 2 + OWN_TIME_MAX
}

/// What a mount's process says when it is ready.
pub(super) fn ready_message() -> Value {
    json!({ "ready": true })
}

/// What it says when it cannot get ready.
pub(super) fn failed_message(failure: &Failure) -> Value {
    json!({ "failure": failure.to_json() })
}

/// Starts the process and waits at most `limit` until it is ready.
///
/// # Errors
/// What it says, or [`Code::MountEnded`].
pub(super) fn start(plan: &Plan, limit: Duration) -> Result<()> {
    let log = plan
        .options
        .log
        .clone()
        .expect("a mount in the background has a log");
    let errors = logging::open(&log).context(log.display())?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.arg0("azekura").args(arguments(plan));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let mut child = command
        .spawn()
        .context("cannot start the mount's process")?;
    let outcome = hear(&mut child, limit);
    if outcome.is_err() {
        // It ends by itself, unless it hangs.
        let _ = child.kill();
        let _ = child.wait();
    }
    outcome.map_err(|failure| match failure.code() {
        Code::MountEnded => failure.hint(format!("its log is {}", log.display())),
        _ => failure,
    })
}

fn hear(child: &mut Child, limit: Duration) -> Result<()> {
    let ended = || {
        Failure::new(
            Code::MountEnded,
            "the mount's process ended before it was ready",
        )
    };
    let pipe = child.stdout.take().ok_or_else(ended)?;
    let line = first_line(pipe, limit).ok_or_else(|| {
        let message = format!("the mount was not ready within {} s", limit.as_secs());
        Failure::new(Code::TimedOut, message)
    })?;
    let message: Value = serde_json::from_str(&line).map_err(|_| ended())?;
    if message == ready_message() {
        return Ok(());
    }
    let failure = message.get("failure").and_then(Failure::from_json);
    Err(failure.unwrap_or_else(ended))
}

/// The first line of the pipe, empty if it ends without one; `None` if nothing comes in time.
fn first_line(pipe: ChildStdout, limit: Duration) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        // An error reads like an end: the process is gone.
        let _ = BufReader::new(pipe).read_line(&mut line);
        let _ = sender.send(line);
    });
    receiver.recv_timeout(limit).ok()
}

/// The plan as arguments. Nothing secret is in a plan.
fn arguments(plan: &Plan) -> Vec<OsString> {
    let options = &plan.options;
    let mut arguments: Vec<OsString> = ["mount", "--foreground", "--report"].map(Into::into).into();
    let mut switch = |on: bool, name: &str| {
        if on {
            arguments.push(name.into());
        }
    };
    switch(options.read_only, "--read-only");
    switch(options.allow_other, "--allow-other");
    switch(options.plain, "--plain");
    for _ in 0..plan.verbose {
        switch(true, "-v");
    }
    let flags = [
        (options.suid, "suid"),
        (options.dev, "dev"),
        (options.no_exec, "noexec"),
    ];
    let words: Vec<&str> = flags
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, word)| *word)
        .collect();
    if !words.is_empty() {
        arguments.extend(["-o".into(), words.join(",").into()]);
    }
    if let Some(Span(time)) = options.timeout {
        arguments.push(format!("--timeout={}ms", time.as_millis()).into());
    }
    if let Some(ByteSize(bytes)) = plan.blocking {
        arguments.push(format!("--blocking={bytes}").into());
    }
    if let Some(ticket) = &options.ticket {
        // Its path, and nothing of what is in it.
        arguments.extend(["--ticket".into(), ticket.into()]);
    }
    if let Some(log) = &options.log {
        arguments.extend(["--log".into(), log.into()]);
    }
    arguments.extend([
        "--".into(),
        plan.volume.to_string().into(),
        (&plan.directory).into(),
    ]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::mount::Options;
    use std::path::PathBuf;

    #[test]
    fn the_process_is_given_the_whole_plan() {
        let plan = Plan {
            volume: "far:7700/lab".parse().expect("a volume"),
            directory: PathBuf::from("/mnt/-x"),
            options: Options {
                read_only: true,
                suid: true,
                no_exec: true,
                timeout: Some(Span(Duration::from_millis(1500))),
                log: Some(PathBuf::from("/var/log/x")),
                ..Options::default()
            },
            blocking: Some(ByteSize(64)),
            verbose: 2,
        };
        let words = arguments(&plan).into_iter();
        let words: Vec<String> = words
            .map(|word| word.into_string().expect("UTF-8"))
            .collect();
        let expected = "mount --foreground --report --read-only -v -v -o suid,noexec \
                        --timeout=1500ms --blocking=64 --log /var/log/x -- far:7700/lab /mnt/-x";
        assert_eq!(words.join(" "), expected);
    }
}
