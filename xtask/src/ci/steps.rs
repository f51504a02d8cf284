//! The steps: first what costs seconds, then what tries the programs, then tests that take minutes
//! by themselves, and last what only looks at the programs' text: first at that of the fuzz
//! targets, which is compiled nowhere else and must keep step with the programs. A machine that is
//! too slow for all of it leaves out what comes last, and says so.

use super::{Verdict, lanes};
use crate::process;
use crate::tools::find;
use crate::tree::{File, Tree};
use crate::{docs, floors, tidy, workspace};
use anyhow::Result;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

/// One step: what it is called, what it may take, what it does with its limit.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) limit_s: u64,
    /// Where less time than this is left it may be left out.
    pub(crate) needs_s: Option<u64>,
    pub(crate) work: fn(Duration) -> Result<Verdict>,
}

impl Step {
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_s)
    }
}

pub(crate) const STEPS: [Step; 12] = [
    Step {
        name: "fmt",
        limit_s: 120,
        needs_s: None,
        work: fmt,
    },
    Step {
        name: "tidy",
        limit_s: 60,
        needs_s: None,
        work: |_| own(tidy::check()),
    },
    Step {
        name: "floors",
        limit_s: 60,
        needs_s: None,
        work: |_| own(floors::check()),
    },
    Step {
        name: "build",
        limit_s: 900,
        needs_s: None,
        work: lanes::build,
    },
    Step {
        name: "test",
        limit_s: 900,
        needs_s: None,
        work: lanes::run,
    },
    Step {
        name: "doctest",
        limit_s: 300,
        needs_s: None,
        work: doctest,
    },
    Step {
        name: "docs",
        limit_s: 600,
        needs_s: None,
        work: |limit| own(docs::check(&[], limit)),
    },
    Step {
        name: "long",
        limit_s: 700,
        needs_s: Some(500),
        work: lanes::long,
    },
    Step {
        name: "fuzz",
        limit_s: 240,
        needs_s: Some(30),
        work: fuzz,
    },
    Step {
        name: "clippy",
        limit_s: 600,
        needs_s: Some(30),
        work: clippy,
    },
    Step {
        name: "rustdoc",
        limit_s: 300,
        needs_s: Some(30),
        work: rustdoc,
    },
    Step {
        name: "bench",
        limit_s: 240,
        needs_s: Some(30),
        work: bench,
    },
];

/// Workspaces beside the main one, with their own lock files.
const ASIDE: [&str; 2] = ["bench", "fuzz"];

fn own(result: Result<()>) -> Result<Verdict> {
    result.map(|()| Verdict::Passed)
}

fn fmt(limit: Duration) -> Result<Verdict> {
    let verdict = quiet(workspace::cargo(&["fmt", "--all", "--check"]), limit)?;
    for directory in ASIDE {
        let manifest = format!("{directory}/Cargo.toml");
        if !matches!(verdict, Verdict::Passed) || !workspace::root().join(&manifest).exists() {
            continue;
        }
        let check = ["fmt", "--manifest-path", &manifest, "--all", "--check"];
        let verdict = quiet(workspace::cargo(&check), limit)?;
        if !matches!(verdict, Verdict::Passed) {
            return Ok(verdict);
        }
    }
    Ok(verdict)
}

fn clippy(limit: Duration) -> Result<Verdict> {
    let arguments = [
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    if_in_time(workspace::cargo(&arguments), limit)
}

/// Of crates whose documentation has examples: others say in their manifests that they have none,
/// which saves reading each once more. By itself a library has other features of what it depends on
/// than with the programs, and most of that would be compiled anew.
fn doctest(limit: Duration) -> Result<Verdict> {
    let tree = Tree::read(workspace::root())?;
    let with_examples = tree.rust().filter(|file| has_example(file.text()));
    let crates: BTreeSet<&str> = with_examples.filter_map(File::crate_name).collect();
    for name in &crates {
        let manifest = tree.get(&format!("crates/{name}/Cargo.toml"));
        if manifest.is_some_and(|file| file.text().contains("doctest = false")) {
            let why = format!("{name} has examples, and its manifest says \"doctest = false\"");
            return Ok(Verdict::Failed(why));
        }
    }
    if crates.is_empty() {
        return Ok(Verdict::Skipped("no crate has examples".to_owned()));
    }
    let command = workspace::cargo(&["test", "--locked", "--workspace", "--doc"]);
    loud(command, limit)
}

/// Whether comments of documentation have a block that is compiled: one without a language, or in
/// Rust.
fn has_example(source: &str) -> bool {
    let lines = source.lines().map(str::trim_start);
    let comments = lines.filter_map(|line| {
        let text = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))?;
        text.trim_start().strip_prefix("```")
    });
    // Every second fence ends a block.
    comments.step_by(2).any(|language| {
        let words = ["rust", "should_panic", "no_run", "compile_fail", "edition"];
        let first = language.split(',').next().unwrap_or_default().trim();
        words.iter().any(|word| first.starts_with(word)) || first.is_empty()
    })
}

/// The documentation is that of the developers: private items are in it, and heads may link to
/// them.
fn rustdoc(limit: Duration) -> Result<Verdict> {
    let mut command = workspace::cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
    command.arg("--document-private-items").env(
        "RUSTDOCFLAGS",
        "-D warnings -A rustdoc::private-intra-doc-links",
    );
    if_in_time(command, limit)
}

/// The measuring programs compile.
fn bench(limit: Duration) -> Result<Verdict> {
    aside("bench", "--all-targets", limit)
}

/// The fuzz targets compile, without what finds their ways.
fn fuzz(limit: Duration) -> Result<Verdict> {
    if find("c++").is_none() {
        return Ok(Verdict::Skipped("no C++ compiler for libFuzzer".to_owned()));
    }
    aside("fuzz", "--bins", limit)
}

/// They have dependency trees of their own, so this is done only as far as the time allows; nothing
/// that users run is in there.
fn aside(directory: &str, targets: &str, limit: Duration) -> Result<Verdict> {
    let manifest = format!("{directory}/Cargo.toml");
    if !workspace::root().join(&manifest).exists() {
        return Ok(Verdict::Skipped(format!("{manifest} does not exist")));
    }
    let check = ["check", "--locked", "--manifest-path", &manifest, targets];
    let mut command = workspace::cargo(&check);
    // Most of what they depend on has been checked for the main workspace.
    command.arg("--target-dir").arg(workspace::target());
    if_in_time(command, limit)
}

/// Output only upon failure; what is not done in time is left out.
fn if_in_time(mut command: Command, limit: Duration) -> Result<Verdict> {
    let outcome = process::capture(&mut command, limit)?;
    Ok(late(&outcome, limit).unwrap_or_else(|| verdict(outcome)))
}

/// That a step had no time to come to an end.
pub(super) fn late(outcome: &process::Outcome, limit: Duration) -> Option<Verdict> {
    (!outcome.success && outcome.elapsed >= limit)
        .then(|| Verdict::Skipped(format!("not done within {} s", limit.as_secs())))
}

/// Output only upon failure.
fn quiet(mut command: Command, limit: Duration) -> Result<Verdict> {
    process::capture(&mut command, limit).map(verdict)
}

/// Output on the terminal.
fn loud(mut command: Command, limit: Duration) -> Result<Verdict> {
    process::stream(&mut command, limit).map(verdict)
}

pub(super) fn verdict(outcome: process::Outcome) -> Verdict {
    if outcome.success {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("{}\n{}", outcome.output.trim_end(), outcome.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_found_and_drawings_are_none() {
        let drawn = "//! ```text\n//! a --> b\n//! ```\n\n/// More.\nfn f() {}\n";
        assert!(!has_example(drawn));
        let with = |fence: &str| format!("{drawn}    /// {fence}\n    /// f();\n    /// ```\n");
        for fence in ["```", "```rust", "```no_run", "```should_panic"] {
            assert!(has_example(&with(fence)), "{fence}");
        }
        assert!(!has_example(&with("```toml")));
        let tree = Tree::read(workspace::root()).unwrap();
        let manifest = tree.get("crates/base/Cargo.toml").unwrap();
        assert!(manifest.text().contains("doctest = false"));
        let seeds = tree.get("crates/sim/src/seeds.rs").unwrap();
        assert!(has_example(seeds.text()));
    }
}
