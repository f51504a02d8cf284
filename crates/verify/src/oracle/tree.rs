//! A tree of a few files, as a model.

use crate::workload::{Step, content, line};
use base::limits::VERIFY_FILE_BYTES_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names and what they mean. Copies share contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub(super) names: BTreeMap<String, Meaning>,
    pub(super) contents: BTreeMap<u32, Arc<Vec<u8>>>,
    files_made: u32,
}

/// What a name is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Directory,
    /// A file by number; no number is used twice.
    File(u32),
}

/// A step that makes no sense on a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the step makes no sense: {0}")]
pub struct Invalid(pub String);

impl Tree {
    /// Does a step.
    ///
    /// # Errors
    /// [`Invalid`] if a file system would refuse it; the tree is as before.
    pub fn apply(&mut self, step: &Step) -> Result<(), Invalid> {
        self.try_apply(step)
            .ok_or_else(|| Invalid(step.to_string()))
    }

    /// The files with their contents.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.names.iter().filter_map(|(path, meaning)| {
            let Meaning::File(file) = meaning else {
                return None;
            };
            Some((path.as_str(), self.contents[file].as_slice()))
        })
    }

    /// The names of a file.
    pub(super) fn names_of(&self, file: u32) -> impl Iterator<Item = &str> {
        let names = self.names.iter();
        let its = names.filter(move |(_, meaning)| **meaning == Meaning::File(file));
        its.map(|(name, _)| name.as_str())
    }

    fn try_apply(&mut self, step: &Step) -> Option<()> {
        match step {
            Step::Create { path } => {
                self.is_free(path)?;
                let file = self.files_made;
                self.files_made += 1;
                self.contents.insert(file, Arc::default());
                self.names.insert(path.clone(), Meaning::File(file));
            }
            Step::Write {
                path,
                offset,
                len,
                tag,
            } => self.write(path, *offset, *len, *tag)?,
            Step::Append { path, len, tag } => {
                let end = self.contents[&self.file(path)?].len() as u64;
                self.write(path, end, *len, *tag)?;
            }
            Step::Allocate { path, offset, len } => {
                let end = offset.checked_add(*len)?;
                let bytes = self.content_mut(path)?;
                let old = bytes.len() as u64;
                resize(bytes, old.max(end))?;
            }
            Step::Truncate { path, len } => resize(self.content_mut(path)?, *len)?,
            Step::Link { from, to } => {
                self.is_free(to)?;
                let file = self.file(from)?;
                self.names.insert(to.clone(), Meaning::File(file));
            }
            Step::Unlink { path } => {
                self.file(path)?;
                self.names.remove(path);
            }
            Step::Rename { from, to } => self.rename(from, to)?,
            Step::Mkdir { path } => {
                self.is_free(path)?;
                self.names.insert(path.clone(), Meaning::Directory);
            }
            Step::Rmdir { path } => {
                let inside = format!("{path}/");
                let is_empty = !self.names.keys().any(|name| name.starts_with(&inside));
                let is_directory = self.names.get(path) == Some(&Meaning::Directory);
                (is_empty && is_directory).then_some(())?;
                self.names.remove(path);
            }
            Step::Fsync { path } | Step::Fdatasync { path } => _ = self.file(path)?,
            Step::FsyncDir { path } => self.is_directory(path)?,
            Step::Sync => {}
            Step::Insert { path, row } => {
                if !self.names.contains_key(path) {
                    self.try_apply(&Step::Create { path: path.clone() })?;
                }
                let rows = self.content_mut(path)?;
                rows.extend_from_slice(line(*row).as_bytes());
            }
        }
        Some(())
    }

    /// Only if a new name can be made there.
    fn is_free(&self, path: &str) -> Option<()> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.is_directory(parent)?;
        (!path.is_empty() && !self.names.contains_key(path)).then_some(())
    }

    fn is_directory(&self, path: &str) -> Option<()> {
        let is_one = path.is_empty() || self.names.get(path) == Some(&Meaning::Directory);
        is_one.then_some(())
    }

    pub(super) fn file(&self, path: &str) -> Option<u32> {
        match self.names.get(path)? {
            Meaning::File(file) => Some(*file),
            Meaning::Directory => None,
        }
    }

    fn content_mut(&mut self, path: &str) -> Option<&mut Vec<u8>> {
        let file = self.file(path)?;
        self.contents.get_mut(&file).map(Arc::make_mut)
    }

    fn write(&mut self, path: &str, offset: u64, len: u64, tag: u64) -> Option<()> {
        let end = offset.checked_add(len)?;
        let bytes = self.content_mut(path)?;
        let old = bytes.len() as u64;
        resize(bytes, old.max(end))?;
        bytes[offset as usize..end as usize].copy_from_slice(&content(tag, len));
        Some(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Option<()> {
        let file = self.file(from)?;
        match self.names.get(to) {
            None => self.is_free(to)?,
            // Two names of one file stay as they are, as rename(2) has it.
            Some(Meaning::File(other)) if *other == file => return Some(()),
            Some(Meaning::File(_)) => {}
            Some(Meaning::Directory) => return None,
        }
        self.names.remove(from);
        self.names.insert(to.to_owned(), Meaning::File(file));
        Some(())
    }
}

fn resize(bytes: &mut Vec<u8>, len: u64) -> Option<()> {
    let is_small = len <= VERIFY_FILE_BYTES_MAX;
    is_small.then(|| bytes.resize(len as usize, 0))
}
