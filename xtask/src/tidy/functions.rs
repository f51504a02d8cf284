//! A function has at most 70 lines, from `fn` to its closing brace: it fits a screen.

use super::Finding;
use crate::tree::Tree;

const LINES_MAX: usize = 70;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for function in file.code().functions() {
            let lines = function.last_line - function.first_line + 1;
            if lines > LINES_MAX {
                let message = format!("fn {}: {lines} lines, at most {LINES_MAX}", function.name);
                findings.push(Finding::new(file, function.first_line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!(
            "//! Head.\nfn f() {{\n{}}}\n",
            "    g();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn the_71st_line_is_found() {
        let (fits, long) = (function(70), function(71));
        let files = [("a.rs", fits.as_str()), ("b.rs", &long)];
        assert_eq!(crate::tidy::found(check, &files), ["b.rs:2"]);
    }
}
