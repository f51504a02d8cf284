//! A list that a server keeps between runs: in a state file of its own directory, or with the other
//! managers of the cluster.

use super::shared::Shared;
use super::{DataError, file};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A line of a list.
pub(crate) trait Line: Serialize + DeserializeOwned {
    /// Name of the list, and of its state file without the ending.
    const LIST: &'static str;
    /// What a line is called in the file.
    const LINE: &'static str;
    /// Whether the file may be missing: nothing was ever written.
    const MAY_BE_MISSING: bool = false;
    /// What tells it from the others.
    fn name(&self) -> String;
}

/// Where lists are kept.
#[derive(Clone)]
pub(crate) enum Lists {
    /// In state files.
    Directory(PathBuf),
    /// With the other managers.
    Shared(Arc<Shared>),
}

impl Lists {
    /// A list; one that was never written is empty. Blocks; not within a task.
    ///
    /// # Errors
    /// [`DataError`].
    pub(crate) fn read<L: Line>(&self) -> Result<Vec<L>, DataError> {
        match self {
            Self::Directory(directory) => {
                let path = directory.join(format!("{}.toml", L::LIST));
                if L::MAY_BE_MISSING && !path.exists() {
                    return Ok(Vec::new());
                }
                let mut contents: BTreeMap<String, Vec<L>> = file::read(directory, L::LIST)?;
                Ok(contents.remove(L::LINE).unwrap_or_default())
            }
            Self::Shared(shared) => {
                let lines = shared.read(L::LIST)?.into_iter();
                let line = |plain: Vec<u8>| {
                    let text = String::from_utf8(plain).ok();
                    let line = text.and_then(|text| toml::from_str(&text).ok());
                    line.ok_or_else(|| DataError::Entry(L::LIST.to_owned()))
                };
                lines.map(line).collect()
            }
        }
    }

    /// Replaces a list; durable when it returns. Blocks; not within a task.
    ///
    /// # Errors
    /// [`DataError`].
    pub(crate) fn write<L: Line>(&self, lines: impl Iterator<Item = L>) -> Result<(), DataError> {
        match self {
            Self::Directory(directory) => {
                let lines: Vec<L> = lines.collect();
                let contents = BTreeMap::from([(L::LINE, lines)]);
                file::write(directory, L::LIST, &contents)
            }
            Self::Shared(shared) => {
                shared.write(L::LIST, lines.map(|line| (line.name(), plain(&line))))
            }
        }
    }
}

/// A line as it is sealed.
pub(crate) fn plain<L: Line>(line: &L) -> Vec<u8> {
    let text = toml::to_string(line).expect("a line is plain data");
    text.into_bytes()
}
