//! The project's files in memory, so that a rule is a function from text to findings.
//!
//! Only the project's own directories are read: a checkout may hold a server's data or a mounted
//! volume as well, if somebody tried the examples right there.

use crate::source::Code;
use anyhow::{Context, Result};
use std::cell::OnceCell;
use std::fs;
use std::path::Path;

/// Directories of the project; everything else at the root is ignored, except plain files.
const DIRECTORIES: [&str; 9] = [
    ".cargo", ".ci", "bench", "crates", "docs", "examples", "fuzz", "python", "xtask",
];
/// Directories below them that tools write.
const MADE_BY_TOOLS: [&str; 7] = [
    "target",
    "artifacts",
    "corpus",
    "coverage",
    "__pycache__",
    ".venv",
    "node_modules",
];
/// Files at the root that belong to a tool.
const TOOL_FILES: [&str; 1] = ["Cargo.lock"];

/// All files of the project.
pub(crate) struct Tree {
    files: Vec<File>,
}

/// One file.
pub(crate) struct File {
    /// Relative to the root, with slashes.
    pub(crate) path: String,
    /// `None` if it is not UTF-8: pictures, golden files.
    pub(crate) text: Option<String>,
    code: OnceCell<Code>,
}

impl Tree {
    /// Reads the project at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self { files: Vec::new() };
        for entry in sorted(root)? {
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_file() && !TOOL_FILES.contains(&name.as_str()) {
                tree.add(&name, &entry.path())?;
            } else if kind.is_dir() && DIRECTORIES.contains(&name.as_str()) {
                tree.descend(&name, &entry.path())?;
            }
        }
        Ok(tree)
    }

    /// A tree made up for a test.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.to_owned(),
            text: Some(text.to_owned()),
            code: OnceCell::new(),
        };
        Self {
            files: files.iter().map(file).collect(),
        }
    }

    fn descend(&mut self, path: &str, directory: &Path) -> Result<()> {
        for entry in sorted(directory)? {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{path}/{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && !MADE_BY_TOOLS.contains(&name.as_str()) {
                self.descend(&path, &entry.path())?;
            } else if kind.is_file() && name != "Cargo.lock" {
                self.add(&path, &entry.path())?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, file: &Path) -> Result<()> {
        let bytes = fs::read(file).with_context(|| path.to_owned())?;
        self.files.push(File {
            path: path.to_owned(),
            text: String::from_utf8(bytes).ok(),
            code: OnceCell::new(),
        });
        Ok(())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// Files whose name ends in `.extension`.
    pub(crate) fn with_extension<'a>(
        &'a self,
        extension: &'a str,
    ) -> impl Iterator<Item = &'a File> {
        self.files()
            .filter(move |file| file.extension() == Some(extension))
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.with_extension("rs")
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files().find(|file| file.path == path)
    }

    /// Whether `path` is a file, or a directory with a file in it.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        path.is_empty()
            || TOOL_FILES.contains(&path)
            || self
                .files()
                .any(|file| file.path == path || file.path.starts_with(&below))
    }
}

impl File {
    /// The text, or nothing for a binary file.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text()
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    /// Rust code without comments and literals.
    pub(crate) fn code(&self) -> &Code {
        self.code.get_or_init(|| Code::of(self.text()))
    }

    pub(crate) fn extension(&self) -> Option<&str> {
        Path::new(&self.path).extension()?.to_str()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The crate that a file below `crates/` belongs to.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

fn sorted(directory: &Path) -> Result<Vec<fs::DirEntry>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_project_is_read() {
        let scratch = crate::scratch::Scratch::new("tree").unwrap();
        for path in [
            "crates/a/src",
            "crates/a/target/debug",
            "srv/volumes",
            "docs",
        ] {
            scratch.directory(path).unwrap();
        }
        for path in [
            "README.md",
            "Cargo.lock",
            "crates/a/src/lib.rs",
            "srv/volumes/data",
        ] {
            fs::write(scratch.path().join(path), "text\n").unwrap();
        }
        fs::write(scratch.path().join("crates/a/target/debug/x.rs"), "").unwrap();
        fs::write(scratch.path().join("docs/picture.png"), [0x89, 0xff]).unwrap();
        let tree = Tree::read(scratch.path()).unwrap();
        let paths: Vec<_> = tree.files().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            ["README.md", "crates/a/src/lib.rs", "docs/picture.png"]
        );
        assert!(tree.get("docs/picture.png").unwrap().text.is_none());
        assert!(tree.contains("crates/a/") && !tree.contains("crates/b"));
        assert_eq!(
            tree.get("crates/a/src/lib.rs").unwrap().crate_name(),
            Some("a")
        );
    }
}
