//! Lines have at most 100 columns in source files; no line of any file ends in blanks, no file
//! contains carriage returns, and every file ends in one line end. Markdown may be wider, because
//! a table's row cannot be broken.

use super::Finding;
use crate::tree::{File, Tree};

const COLUMNS_MAX: usize = 100;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let limited = matches!(file.extension(), Some("rs" | "py" | "sh")) || file.name() == "Makefile";
    for (number, line) in file
        .text()
        .split('\n')
        .enumerate()
        .map(|(at, line)| (at + 1, line))
    {
        let columns = line.chars().count();
        if limited && columns > COLUMNS_MAX {
            let message = format!("{columns} columns, at most {COLUMNS_MAX}");
            findings.push(Finding::new(file, number, message));
        }
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(
                file,
                number,
                "blank or carriage return at the line's end",
            ));
        }
    }
    let text = file.text();
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        let last = text.lines().count();
        findings.push(Finding::new(
            file,
            last,
            "a file ends in exactly one line end",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclean_lines_are_found() {
        let wide = format!("{}\n", "é".repeat(101));
        let files = [
            ("a.rs", wide.as_str()),
            ("b.md", "one \ntwo\t\nthree\r\n"),
            ("c.md", "no end"),
            ("d.md", "two ends\n\n"),
        ];
        let expected = ["a.rs:1", "b.md:1", "b.md:2", "b.md:3", "c.md:1", "d.md:2"];
        assert_eq!(crate::tidy::found(check, &files), expected);
    }

    #[test]
    fn clean_text_passes() {
        let (full, wide) = (
            format!("{}\n", "é".repeat(100)),
            format!("{}\n", "x".repeat(200)),
        );
        let files = [("a.rs", full.as_str()), ("b.md", &wide), ("empty", "")];
        assert!(crate::tidy::found(check, &files).is_empty());
    }
}
