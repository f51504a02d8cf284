//! A document that names a test as its witness names one that exists: `` `crates/base/src/name.rs::
//! only_single_components_become_names` `` (in one piece) must be a function of that file. So an
//! invariant in ARCHITECTURE.md cannot outlive the test that holds it.

use super::Finding;
use crate::tree::Tree;

/// Between the file and the function.
const MARK: &str = ".rs::";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("md") {
        for (number, line) in file.lines() {
            // Odd pieces lie between two backquotes.
            let quoted = line.split('`').skip(1).step_by(2);
            for (path, name) in quoted.filter_map(|text| text.split_once(MARK)) {
                let path = format!("{path}.rs");
                let found = tree.get(&path).is_some_and(|source| {
                    let functions = source.code().tokens();
                    functions
                        .windows(2)
                        .any(|pair| pair[0].text == "fn" && pair[1].text == name)
                });
                if !found {
                    findings.push(Finding::new(
                        file,
                        number,
                        format!("{path} has no fn {name}"),
                    ));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: (&str, &str) = (
        "crates/a/src/lib.rs",
        "#[test]\nfn it_holds() {}\n// fn gone\n",
    );

    #[test]
    fn missing_witnesses_are_found() {
        let text = "`crates/a/src/lib.rs::gone`\n`crates/b/src/lib.rs::it_holds`\n";
        let found = crate::tidy::found(check, &[SOURCE, ("A.md", text)]);
        assert_eq!(found, ["A.md:1", "A.md:2"]);
    }

    #[test]
    fn existing_witnesses_pass() {
        let text = "| it holds | `crates/a/src/lib.rs::it_holds` |\nsee crates/x.rs::y\n";
        assert!(crate::tidy::found(check, &[SOURCE, ("A.md", text)]).is_empty());
    }
}
