//! Style as a test.
//!
//! A rule is a name and a function from the project's files to findings. Rules know no exceptions:
//! what a rule cannot judge without a list of exceptions is not a rule. Each has a test that it
//! finds what it looks for and one that it leaves honest text alone. What rustfmt and clippy check
//! is left to them.

mod error_pages;
mod formats;
mod functions;
mod glossary;
mod heads;
mod leftovers;
mod length;
mod links;
mod text;
mod witnesses;
mod workplace;

use crate::args::Args;
use crate::tree::{File, Tree};
use crate::workspace;
use anyhow::{Result, bail};
use std::fmt;

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// From 1; 0 when the file as a whole is meant.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(file: &File, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: file.path.clone(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// A name and a judge.
type Rule = (&'static str, fn(&Tree) -> Vec<Finding>);

const RULES: [Rule; 11] = [
    ("length", length::check),
    ("functions", functions::check),
    ("text", text::check),
    ("leftovers", leftovers::check),
    ("heads", heads::check),
    ("glossary", glossary::check),
    ("workplace", workplace::check),
    ("formats", formats::check),
    ("error-pages", error_pages::check),
    ("links", links::check),
    ("witnesses", witnesses::check),
];

/// `cargo xtask tidy`
pub(crate) fn run(args: Args) -> Result<()> {
    args.finish_empty()?;
    check()
}

/// Applies every rule and prints every finding.
pub(crate) fn check() -> Result<()> {
    let tree = Tree::read(workspace::root())?;
    let mut count = 0;
    for (name, judge) in RULES {
        for finding in judge(&tree) {
            println!("{finding} [{name}]");
            count += 1;
        }
    }
    if count > 0 {
        bail!("tidy: {count} findings");
    }
    println!(
        "tidy: {} files, {} rules, no findings",
        tree.files().count(),
        RULES.len()
    );
    Ok(())
}

/// Lines with findings, for the rules' tests.
#[cfg(test)]
fn found(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    let place = |finding: &Finding| format!("{}:{}", finding.path, finding.line);
    rule(&Tree::of(files)).iter().map(place).collect()
}
