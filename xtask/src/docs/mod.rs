//! The documents' examples, run as written.
//!
//! A fenced block that begins with ```` ```sh azekura ```` is run with the product's binary on
//! `PATH`. All such blocks of one document are one session, in the order of the text, in one
//! temporary directory: a document tells one story. A line `#=> text` after a command demands that
//! the command's output contains the text. A session runs in namespaces of its own
//! ([`crate::sandbox`]), so it may use fixed ports, mount, and leave servers running.

mod script;

use crate::args::Args;
use crate::process;
use crate::sandbox::{self, Network};
use crate::scratch::Scratch;
use crate::tools::skipped;
use crate::tree::Tree;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// For one document; an example that runs longer is no example.
const DOCUMENT_LIMIT: Duration = Duration::from_secs(180);
/// Sessions at once: they wait for most of their time.
const SESSIONS_AT_ONCE: usize = 3;

/// `cargo xtask docs [FILE...]`
pub(crate) fn run(args: Args) -> Result<()> {
    check(&args.finish()?, Duration::from_secs(3600))
}

/// Runs the examples of the files named, or of all documents, within `limit`.
pub(crate) fn check(wanted: &[String], limit: Duration) -> Result<()> {
    let tree = Tree::read(workspace::root())?;
    if let Some(unknown) = wanted.iter().find(|path| tree.get(path).is_none()) {
        bail!("{unknown} is no document of the project");
    }
    let documents: Vec<_> = tree
        .with_extension("md")
        .filter(|file| wanted.is_empty() || wanted.contains(&file.path))
        .filter_map(|file| Some((&*file.path, script::extract(file.text())?)))
        .collect();
    if let Some(why) = sandbox::obstacle() {
        skipped("docs", why);
        return Ok(());
    }
    let binary = workspace::build_azekura(false)?;
    let failures = run_sessions(&binary, &documents, limit)?;
    if failures > 0 {
        bail!("docs: examples of {failures} documents fail");
    }
    println!("docs: {} documents with examples", documents.len());
    Ok(())
}

/// Runs all sessions, some at once; returns how many have failed.
fn run_sessions(binary: &Path, documents: &[(&str, String)], limit: Duration) -> Result<usize> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let run_next = || {
        while let Some((document, script)) = documents.get(next.fetch_add(1, Ordering::Relaxed)) {
            let left = limit.saturating_sub(started.elapsed()).min(DOCUMENT_LIMIT);
            let outcome = run_session(binary, document, script, left);
            match &outcome {
                Ok(None) => println!("{document}: examples run"),
                Ok(Some(report)) => println!("{report}"),
                Err(_) => {}
            }
            let mut outcomes = outcomes.lock().expect("nothing panics under this lock");
            outcomes.push(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..SESSIONS_AT_ONCE {
            scope.spawn(run_next);
        }
    });
    let outcomes = outcomes.into_inner().expect("nothing panics under it");
    let reports: Vec<_> = outcomes.into_iter().collect::<Result<_>>()?;
    Ok(reports.iter().flatten().count())
}

/// Runs one document's session; returns the report of a failure.
fn run_session(
    binary: &Path,
    document: &str,
    script: &str,
    limit: Duration,
) -> Result<Option<String>> {
    let scratch = Scratch::new("docs")?;
    let (home, bin) = (scratch.directory("home")?, scratch.directory("bin")?);
    let session = scratch.directory("session")?;
    let (prelude, log) = (
        scratch.path().join("prelude.sh"),
        scratch.path().join("log"),
    );
    std::os::unix::fs::symlink(binary, bin.join("azekura")).context("azekura on PATH")?;
    fs::write(&prelude, script::PRELUDE)?;
    fs::write(scratch.path().join("script.sh"), script)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::iter::once(bin).chain(std::env::split_paths(&path));

    let mut command = sandbox::command(Network::Loopback, "bash");
    command
        .arg(scratch.path().join("script.sh"))
        .current_dir(session);
    command
        .env("PATH", std::env::join_paths(directories)?)
        .env("HOME", home);
    command.env("BASH_ENV", prelude).env("EXAMPLE_LOG", &log);
    for variable in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env_remove(variable);
    }
    let outcome = process::capture(&mut command, limit)?;
    if outcome.success {
        return Ok(None);
    }
    let bytes = fs::read(&log).unwrap_or_default();
    let output = String::from_utf8_lossy(&bytes) + outcome.output.as_str();
    Ok(Some(script::report(document, &output, &outcome.end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a document's examples with a stand-in for the product: `azekura WORDS` prints WORDS.
    fn check(text: &str) -> Option<String> {
        let scratch = Scratch::new("docs-test").unwrap();
        let binary = scratch.path().join("azekura");
        fs::write(&binary, "#!/bin/sh\necho azekura says \"$@\"\n").unwrap();
        fs::set_permissions(&binary, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let script = script::extract(text).unwrap();
        run_session(&binary, "docs/page.md", &script, Duration::from_secs(30)).unwrap()
    }

    fn without_sandbox() -> bool {
        let obstacle = sandbox::obstacle();
        if let Some(why) = obstacle {
            skipped("docs", why);
        }
        obstacle.is_some()
    }

    #[test]
    fn a_session_goes_through_all_blocks() {
        if without_sandbox() {
            return;
        }
        let text = "# Page\n```sh azekura\nword='two words'\nazekura one \\\n  more\n\
                    #=> one more\n```\n\
                    text\n```sh azekura\nsleep 1000 &\nazekura \"$word\" | tr a-z A-Z\n\
                    #=> TWO WORDS\n```\n";
        assert_eq!(check(text), None);
    }

    #[test]
    fn a_failing_command_is_named_with_its_line() {
        if without_sandbox() {
            return;
        }
        let report = check("# Page\n\n```sh azekura\nazekura fine\nfalse nothing\n```\n").unwrap();
        assert!(report.starts_with("docs/page.md:5: "), "{report}");
        assert!(report.contains("false nothing"), "{report}");
    }

    #[test]
    fn output_of_an_earlier_command_does_not_count() {
        if without_sandbox() {
            return;
        }
        let text = "```sh azekura\nazekura one\nazekura two\n#=> two\n#=> one\n```\n";
        let report = check(text).unwrap();
        assert!(report.starts_with("docs/page.md:5: expected"), "{report}");
    }
}
