//! Starting a mount in the background.

use super::Plan;
use crate::background::Start;
use crate::config::Span;
use crate::errors::{Code, Result};
use base::ByteSize;
use std::ffi::OsString;
use std::time::Duration;

/// Time for everything that is not waiting for the server: loading the program, mounting.
const OWN_TIME_MAX: Duration = Duration::from_secs(20);

/// How long a mount with this time-out may take until it is ready: one time-out to connect, one to
/// enter the volume.
pub(super) fn ready_time_max(timeout: Duration) -> Duration {
    timeout * 2 + OWN_TIME_MAX
}

/// Starts the process, which reads `input`, and waits at most `limit` until it is ready.
///
/// # Errors
/// What it says, or [`Code::MountEnded`].
pub(super) fn start(plan: &Plan, input: Option<String>, limit: Duration) -> Result<()> {
    let log = plan.options.log.as_deref();
    let start = Start {
        what: "mount",
        ended: Code::MountEnded,
        arguments: arguments(plan),
        input,
        log: log.expect("a mount in the background has a log"),
        limit,
    };
    start.run().map(drop)
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
