//! Where figures go: JSON, charts, and a table in the marked part of a document.

use crate::{Chart, svg};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Writes figures as JSON.
///
/// # Errors
/// The file cannot be written, or the figures are nothing that JSON can say.
pub fn save_json(path: &Path, figures: &impl Serialize) -> Result<()> {
    write_whole(path, &serde_json::to_vec_pretty(figures)?)
}

/// Writes charts below one another as SVG.
///
/// # Errors
/// The file cannot be written.
pub fn save_charts(path: &Path, charts: &[Chart]) -> Result<()> {
    write_whole(path, svg::document(charts).as_bytes())
}

/// Puts the table of the measurement `name` into its marked part of a document, at the end if there
/// is none yet; prints it if there is no document.
///
/// # Errors
/// The document cannot be read or written.
pub fn publish(document: Option<&Path>, name: &str, table: &str) -> Result<()> {
    let Some(path) = document else {
        return Ok(writeln!(io::stdout(), "{table}")?);
    };
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.with_context(|| format!("reading {}", path.display())),
    }?;
    write_whole(path, with_marked(&text, name, table).as_bytes())
}

/// The text with `table` between the markers of `name`, or with markers and table after it.
fn with_marked(text: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- bench {name}: begin -->");
    let end = format!("<!-- bench {name}: end -->");
    let block = format!("{begin}\n{table}\n{end}");
    let marked = text
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    match marked {
        Some((before, after)) => format!("{before}{block}{after}"),
        None if text.is_empty() => format!("{block}\n"),
        None => format!("{text}\n{block}\n"),
    }
}

/// Replaces a file whole or not at all, so that a broken run leaves the last good one. What is no
/// file, as a terminal, is written to.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let is_file = fs::symlink_metadata(path).map_or(true, |there| there.is_file());
    let written = if is_file {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".part");
        fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path))
    } else {
        fs::write(path, bytes)
    };
    written.with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_only_what_is_between_its_own_markers() {
        let first = with_marked("# Head\n", "wan", "old");
        let both = with_marked(&first, "store", "other") + "tail\n";
        assert_eq!(
            with_marked(&both, "wan", "new"),
            "# Head\n\n<!-- bench wan: begin -->\nnew\n<!-- bench wan: end -->\n\
             \n<!-- bench store: begin -->\nother\n<!-- bench store: end -->\ntail\n"
        );
    }

    #[test]
    fn markers_that_are_no_pair_are_left_alone() {
        for odd in [
            "<!-- bench wan: begin -->\nx\n",
            "<!-- bench wan: end --><!-- bench wan: begin -->\n",
        ] {
            let text = with_marked(odd, "wan", "new");
            assert!(text.starts_with(odd) && text.contains("\nnew\n"), "{text}");
        }
    }

    #[test]
    fn a_document_is_made_or_replaced_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("performance.md");
        for table in ["old", "new"] {
            publish(Some(&path), "wan", table).unwrap();
        }
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "<!-- bench wan: begin -->\nnew\n<!-- bench wan: end -->\n"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        fs::write(&path, b"\xff").unwrap();
        publish(Some(&path), "wan", "lost").expect_err("a document that is no text stays");
        assert_eq!(fs::read(&path).unwrap(), b"\xff");
    }

    #[test]
    fn a_link_is_written_through() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        save_json(&link, &[1, 2]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "[\n  1,\n  2\n]");
    }
}
