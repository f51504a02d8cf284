//! A source file has at most 800 lines, tests included: a file is a noun, and a noun that needs
//! more is two.

use super::Finding;
use crate::tree::Tree;

const LINES_MAX: usize = 800;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree
        .files()
        .filter(|file| matches!(file.extension(), Some("rs" | "py" | "sh")));
    let long = sources.map(|file| (file, file.text().lines().count()));
    long.filter(|&(_, lines)| lines > LINES_MAX)
        .map(|(file, lines)| {
            Finding::new(file, lines, format!("{lines} lines, at most {LINES_MAX}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_801st_line_is_found() {
        let (fits, long) = ("x\n".repeat(800), "x\n".repeat(801));
        let files = [("a.rs", fits.as_str()), ("b.rs", &long), ("c.md", &long)];
        assert_eq!(crate::tidy::found(check, &files), ["b.rs:801"]);
    }
}
