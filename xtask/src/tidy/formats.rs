//! Every format on the wire or on a device is drawn in docs/formats/.
//!
//! The code names a format by a constant whose name ends in `FORMAT_VERSION`:
//! `FRAME_FORMAT_VERSION` belongs to docs/formats/frame.md, and the page must have the constant's
//! value in a line with the word "version". A page without a constant describes nothing that
//! exists.

use super::Finding;
use crate::tree::{File, Tree};

const SUFFIX: &str = "FORMAT_VERSION";
const PAGES: &str = "docs/formats/";

/// A format's constant.
struct Format<'a> {
    file: &'a File,
    line: usize,
    page: String,
    version: &'a str,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let formats: Vec<_> = tree
        .rust()
        .filter(|file| file.crate_name().is_some())
        .flat_map(|file| {
            file.lines()
                .filter_map(move |(number, line)| constant(file, number, line))
        })
        .collect();
    let missing = formats
        .iter()
        .filter_map(|format| match tree.get(&format.page) {
            None => Some(Finding::new(
                format.file,
                format.line,
                format!("{} is missing", format.page),
            )),
            Some(page) if !names_version(page, format.version) => {
                let message = format!("{} does not draw version {}", format.page, format.version);
                Some(Finding::new(format.file, format.line, message))
            }
            Some(_) => None,
        });
    let pages = tree
        .with_extension("md")
        .filter(|file| file.path.starts_with(PAGES) && file.name() != "README.md");
    let unused = pages.filter(|page| formats.iter().all(|format| format.page != page.path));
    missing
        .chain(unused.map(|page| Finding::new(page, 0, format!("no constant ..._{SUFFIX} for it"))))
        .collect()
}

/// `pub const FRAME_FORMAT_VERSION: u16 = 1;`
fn constant<'a>(file: &'a File, line: usize, text: &'a str) -> Option<Format<'a>> {
    let (before, after) = text.split_once(':')?;
    let mut words = before.split_whitespace().rev();
    let name = words.next()?;
    if words.next() != Some("const") || text.trim_start().starts_with("//") {
        return None;
    }
    let noun = name.strip_suffix(SUFFIX)?.strip_suffix('_')?;
    let (_, value) = after.split_once('=')?;
    let page = format!("{PAGES}{}.md", noun.to_lowercase().replace('_', "-"));
    Some(Format {
        file,
        line,
        page,
        version: value.trim().trim_end_matches(';'),
    })
}

fn names_version(page: &File, version: &str) -> bool {
    page.lines().any(|(_, line)| {
        let mut words = line.split(|c: char| !c.is_alphanumeric());
        line.to_lowercase().contains("version") && words.any(|word| word == version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: (&str, &str) = (
        "crates/wire/src/frame.rs",
        "//! Frames.\n/// Now.\npub const FRAME_FORMAT_VERSION: u16 = 2;\n",
    );

    #[test]
    fn missing_old_and_unused_pages_are_found() {
        let found = |page| crate::tidy::found(check, &[CODE, page]);
        assert_eq!(
            found(("docs/formats/README.md", "x")),
            ["crates/wire/src/frame.rs:3"]
        );
        assert_eq!(
            found(("docs/formats/frame.md", "Version 1")),
            ["crates/wire/src/frame.rs:3"]
        );
        let unused = [
            CODE,
            ("docs/formats/frame.md", "version 2"),
            ("docs/formats/log.md", ""),
        ];
        assert_eq!(
            crate::tidy::found(check, &unused),
            ["docs/formats/log.md:0"]
        );
    }

    #[test]
    fn a_drawn_format_passes() {
        let files = [
            CODE,
            (
                "docs/formats/frame.md",
                "# Frame\n\nVersion 2, little-endian.\n",
            ),
        ];
        assert!(crate::tidy::found(check, &files).is_empty());
        let other = [(
            "crates/a/src/lib.rs",
            "// const X_FORMAT_VERSION: u8 = 1;\nlet x = 1;\n",
        )];
        assert!(crate::tidy::found(check, &other).is_empty());
    }
}
