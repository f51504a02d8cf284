//! Every error code that a user can meet has a page that says cause and remedy, and no page
//! describes a code that the product does not have.

use super::Finding;
use crate::tree::{File, Tree};
use std::collections::BTreeMap;

const PAGES: &str = "docs/errors/";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut first_use = BTreeMap::new();
    for file in tree.rust().filter(|file| file.crate_name().is_some()) {
        for (number, line) in file.lines() {
            for code in codes(line) {
                first_use.entry(code).or_insert((file, number));
            }
        }
    }
    let mut findings = Vec::new();
    for (code, (file, line)) in &first_use {
        let page = format!("{PAGES}{code}.md");
        if tree.get(&page).is_none() {
            findings.push(Finding::new(file, *line, format!("{page} is missing")));
        }
    }
    for page in tree.files().filter(|file| is_page(file)) {
        let code = page.name().trim_end_matches(".md");
        if codes(code).next() != Some(code) || code.len() != CODE_LENGTH {
            findings.push(Finding::new(
                page,
                0,
                "a page's name is a code: AZ and four digits",
            ));
        } else if !first_use.contains_key(code) {
            findings.push(Finding::new(page, 0, format!("no code gives {code}")));
        } else if !page
            .text()
            .lines()
            .next()
            .is_some_and(|title| title.contains(code))
        {
            findings.push(Finding::new(page, 1, format!("the title must name {code}")));
        }
    }
    findings
}

fn is_page(file: &File) -> bool {
    file.path.starts_with(PAGES) && file.name() != "README.md"
}

const CODE_LENGTH: usize = 6;

/// `AZ` and exactly four digits, standing alone.
fn codes(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| {
        let digits = word.strip_prefix("AZ").unwrap_or_default();
        digits.len() == CODE_LENGTH - 2 && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: (&str, &str) = ("crates/azekura/src/error.rs", "x\nError::new(\"AZ0412\")\n");

    #[test]
    fn missing_unused_and_mistitled_pages_are_found() {
        let found = |page| crate::tidy::found(check, &[CODE, page]);
        let good = ("docs/errors/AZ0412.md", "# AZ0412: refused\n");
        assert_eq!(
            found(("docs/errors/README.md", "")),
            ["crates/azekura/src/error.rs:2"]
        );
        assert_eq!(
            found(("docs/errors/AZ0412.md", "# Refused\n")),
            ["docs/errors/AZ0412.md:1"]
        );
        for path in ["docs/errors/AZ0001.md", "docs/errors/misc.md"] {
            assert_eq!(
                crate::tidy::found(check, &[CODE, good, (path, "#\n")]),
                [format!("{path}:0")]
            );
        }
    }

    #[test]
    fn matching_pages_pass() {
        let files = [CODE, ("docs/errors/AZ0412.md", "# AZ0412: refused\n")];
        assert!(crate::tidy::found(check, &files).is_empty());
        let other = [("crates/a/src/lib.rs", "\"AZ12345 HAZ0412 AZ041\"")];
        assert!(crate::tidy::found(check, &other).is_empty());
    }
}
