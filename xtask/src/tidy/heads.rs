//! Every module begins with a `//!` head: at least a phrase that ends in a full stop, and the whole
//! design where there is one to tell.

use super::Finding;
use crate::tree::{File, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().filter_map(check_file).collect()
}

fn check_file(file: &File) -> Option<Finding> {
    let head = file
        .text()
        .lines()
        .map_while(|line| line.strip_prefix("//!"));
    let head = head.collect::<Vec<_>>().join(" ");
    let message = if head.is_empty() {
        "the first line must be a //! head that gives the design"
    } else if !head.contains(". ") && !head.ends_with('.') {
        "the //! head must be at least a phrase that ends in a full stop"
    } else if head.contains("to be written") {
        "the //! head is a placeholder"
    } else {
        return None;
    };
    Some(Finding::new(file, 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_empty_heads_are_found() {
        let files = [
            ("a.rs", "use std::fs;\n"),
            ("b.rs", "//! Stuff\n"),
            ("c.rs", "//! (head to be written, one day or another)\n"),
            ("d.rs", ""),
        ];
        assert_eq!(
            crate::tidy::found(check, &files),
            ["a.rs:1", "b.rs:1", "c.rs:1", "d.rs:1"]
        );
    }

    #[test]
    fn a_phrase_passes() {
        let files = [
            ("a.rs", "//! Extents: contiguous runs of bytes.\n"),
            ("b.md", "no head\n"),
        ];
        assert!(crate::tidy::found(check, &files).is_empty());
    }
}
