//! Every format on the wire or on a device is drawn in docs/formats/.
//!
//! The code names a format in one of two ways: by a type with the history of its versions
//! (`WireVersion` with the constants or variants `V1`, `V2`) or by a constant for a format that has
//! only ever had one (`JOURNAL_FORMAT_VERSION`). The first belongs to docs/formats/wire.md, the
//! second to docs/formats/journal.md. The page must name each version in a line with the word
//! "version". A page that belongs to neither describes nothing that exists.

use super::Finding;
use crate::tree::{File, Tree};

const TYPE_SUFFIX: &str = "Version";
const CONSTANT_SUFFIX: &str = "_FORMAT_VERSION";
const PAGES: &str = "docs/formats/";

/// One version of a format, where the code names it.
struct Format<'a> {
    file: &'a File,
    line: usize,
    page: String,
    version: &'a str,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.rust().filter(|file| file.crate_name().is_some());
    let formats: Vec<_> = sources.flat_map(versions).collect();
    let missing = formats.iter().filter_map(|format| {
        let message = match tree.get(&format.page) {
            None => format!("{} is missing", format.page),
            Some(page) if names_version(page, format.version) => return None,
            Some(_) => format!("{} does not draw version {}", format.page, format.version),
        };
        Some(Finding::new(format.file, format.line, message))
    });
    let pages = tree
        .with_extension("md")
        .filter(|file| file.path.starts_with(PAGES));
    let unused = pages.filter(|page| {
        page.name() != "README.md" && formats.iter().all(|format| format.page != page.path)
    });
    let message = format!("no type ...{TYPE_SUFFIX} and no constant ...{CONSTANT_SUFFIX} for it");
    missing
        .chain(unused.map(|page| Finding::new(page, 0, message.clone())))
        .collect()
}

/// The versions that a file names.
fn versions(file: &File) -> Vec<Format<'_>> {
    let mut found = Vec::new();
    // The page of the versioned type whose versions may follow.
    let mut current = None;
    for (line, text) in file.lines() {
        let text = text.trim_start();
        if let Some(noun) = versioned_type(text) {
            current = Some(page(&noun));
        } else if let (Some(page), Some(version)) = (&current, version_of_type(text)) {
            found.push(Format {
                file,
                line,
                page: page.clone(),
                version,
            });
        } else if let Some((noun, version)) = constant(text) {
            found.push(Format {
                file,
                line,
                page: page(&noun),
                version,
            });
        }
    }
    found
}

fn page(noun: &str) -> String {
    format!("{PAGES}{noun}.md")
}

/// The noun in `pub struct WireVersion(pub u16);`, in lower case with hyphens.
fn versioned_type(text: &str) -> Option<String> {
    let mut words = text
        .split(|c: char| !c.is_alphanumeric())
        .skip_while(|word| !matches!(*word, "struct" | "enum"));
    let name = words
        .nth(1)?
        .strip_suffix(TYPE_SUFFIX)
        .filter(|noun| !noun.is_empty())?;
    let mut noun = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !noun.is_empty() {
            noun.push('-');
        }
        noun.extend(c.to_lowercase());
    }
    (text.starts_with("pub ") || text.starts_with("struct") || text.starts_with("enum"))
        .then_some(noun)
}

/// The number in `pub const V1: Self = ...` or in the variant `V1 = 1,`.
fn version_of_type(text: &str) -> Option<&str> {
    let text = text.strip_prefix("pub ").unwrap_or(text);
    let rest = text
        .strip_prefix("const ")
        .unwrap_or(text)
        .strip_prefix('V')?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    (end > 0 && rest[end..].starts_with([':', ',', ' '])).then(|| &rest[..end])
}

/// The noun and the number in `pub const JOURNAL_FORMAT_VERSION: u16 = 1;`.
fn constant(text: &str) -> Option<(String, &str)> {
    let text = text
        .strip_prefix("pub ")
        .or(text.strip_prefix("pub(crate) "))
        .unwrap_or(text);
    let (name, value) = text.strip_prefix("const ")?.split_once(':')?;
    let noun = name
        .strip_suffix(CONSTANT_SUFFIX)?
        .to_lowercase()
        .replace('_', "-");
    let (_, version) = value.split_once('=')?;
    Some((noun, version.trim().trim_end_matches(';')))
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

    const JOURNAL: (&str, &str) = (
        "crates/server/src/journal.rs",
        "//! J.\npub const JOURNAL_FORMAT_VERSION: u16 = 2;\n",
    );
    const WIRE: (&str, &str) = (
        "crates/wire/src/version.rs",
        "pub struct WireVersion(pub u16);\nimpl WireVersion {\n    pub const V1: Self = Self(1);\n\
         pub const V2: Self = Self(2);\n    pub const NEWEST: Self = Self::V2;\n}\n",
    );

    #[test]
    fn missing_old_and_unused_pages_are_found() {
        let found = |page| crate::tidy::found(check, &[JOURNAL, page]);
        let place = "crates/server/src/journal.rs:2";
        assert_eq!(found(("docs/formats/README.md", "x")), [place]);
        assert_eq!(found(("docs/formats/journal.md", "Version 1\n")), [place]);
        let unused = [
            JOURNAL,
            ("docs/formats/journal.md", "version 2"),
            ("docs/formats/a.md", ""),
        ];
        assert_eq!(crate::tidy::found(check, &unused), ["docs/formats/a.md:0"]);
        let old = [WIRE, ("docs/formats/wire.md", "Version 1\n")];
        assert_eq!(
            crate::tidy::found(check, &old),
            ["crates/wire/src/version.rs:4"]
        );
    }

    #[test]
    fn drawn_formats_pass() {
        let pages = [
            (
                "docs/formats/journal.md",
                "# Journal\n\nVersion 2, little-endian.\n",
            ),
            (
                "docs/formats/wire.md",
                "# Wire\n\n| version | since |\n\nVersions 1 and 2.\n",
            ),
        ];
        let files = [JOURNAL, WIRE, pages[0], pages[1]];
        assert!(crate::tidy::found(check, &files).is_empty());
        let other = "// const X_FORMAT_VERSION: u8 = 1;\nstruct Version(u8);\nconst V1: u8 = 1;\n";
        assert!(crate::tidy::found(check, &[("crates/a/src/lib.rs", other)]).is_empty());
    }
}
