//! The text says what the system is, not on which machine or with which tools it was written: no
//! home directories, no machine's own addresses, no trailers that tools leave.
//!
//! Each pattern is kept in two pieces, because this file is checked too.

use super::Finding;
use crate::tree::{File, Tree};

/// Pieces of a pattern, and what is wrong with it. Letter case does not matter.
const PATTERNS: [([&str; 2], &str); 14] = [
    (["/ro", "ot/"], "a path of somebody's machine"),
    (["/ho", "me/"], "a path of somebody's machine"),
    (["/use", "rs/"], "a path of somebody's machine"),
    (["/wo", "rk/"], "a path of somebody's machine"),
    (["/tmp/", "t-"], "a path of somebody's machine"),
    (
        ["index.crat", "es.io"],
        "a registry's host name: cargo knows it",
    ),
    (
        ["static.crat", "es.io"],
        "a registry's host name: cargo knows it",
    ),
    (["pypi.o", "rg"], "a registry's host name: pip knows it"),
    (["proxy.gol", "ang"], "a registry's host name: go knows it"),
    (["co-auth", "ored-by"], "a trailer of a tool"),
    (["ai-gene", "rated"], "the text is about the system"),
    (["generated wi", "th "], "the text is about the system"),
    (["language mo", "del"], "the text is about the system"),
    (["file:/", "//"], "a path of somebody's machine"),
];
/// Ends of host names that only one network knows.
const PRIVATE_HOSTS: [[&str; 2]; 3] = [[".inter", "nal"], [".co", "rp"], [".l", "an"]];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        let lower = line.to_lowercase();
        for (pieces, why) in PATTERNS {
            let pattern = pieces.concat();
            if lower
                .match_indices(&pattern)
                .any(|(at, _)| stands_alone(&lower, at))
            {
                findings.push(Finding::new(file, number, format!("{pattern:?}: {why}")));
            }
        }
        if let Some(host) = hosts(&lower).find(|host| is_private(host)) {
            findings.push(Finding::new(
                file,
                number,
                format!("{host}: a private host name"),
            ));
        }
    }
    findings
}

/// Whether a match is no part of a longer word or path: `netns/ro…` is not a home directory.
fn stands_alone(line: &str, at: usize) -> bool {
    !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '$'))
}

/// Host names in the URLs of a line.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '-'));
        &rest[..end.unwrap_or(rest.len())]
    })
}

fn is_private(host: &str) -> bool {
    PRIVATE_HOSTS
        .iter()
        .any(|pieces| host.ends_with(&pieces.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_found() {
        for (pieces, _) in PATTERNS {
            let text = format!("fine\nsee {}\n", pieces.concat());
            assert_eq!(
                crate::tidy::found(check, &[("a.md", &text)]),
                ["a.md:2"],
                "{pieces:?}"
            );
        }
        for pieces in PRIVATE_HOSTS {
            let text = format!("from https://mirror{}/x\n", pieces.concat());
            assert_eq!(
                crate::tidy::found(check, &[("a.md", &text)]),
                ["a.md:1"],
                "{pieces:?}"
            );
        }
    }

    #[test]
    fn honest_paths_pass() {
        let text = format!(
            "../framew{}\n$HO{} run/ro{}\nhttps://example.org/internal\n",
            "ork/", "ME/x", "ot/"
        );
        assert!(crate::tidy::found(check, &[("a.md", &text)]).is_empty());
    }
}
