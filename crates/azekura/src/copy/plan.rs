//! What there is to copy: all directories and files below the sources, before the first byte.

use super::{Directory, Meta, Tree};
use crate::errors::{Code, Failure, Result};
use crate::progress::Progress;
use base::{FileKind, Name};
use std::collections::{HashMap, VecDeque};
use tokio::task::JoinSet;

/// Directories listed at once: at 100 ms, some hundreds a second.
const LISTINGS_MAX: usize = 32;
/// Entries of one copy, each about 200 bytes here: 2 GB.
const ENTRIES_MAX: usize = 10_000_000;

/// One source as the user named it, found.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) tree: Tree,
    /// The directory that holds it.
    pub(crate) parent: Directory,
    /// Its name there.
    pub(crate) name: Name,
    /// Its name at the target.
    pub(crate) target_name: Name,
    pub(crate) meta: Meta,
    /// Itself, if it is a directory.
    pub(crate) directory: Directory,
}

/// Where everything goes.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) tree: Tree,
    pub(crate) directory: Directory,
}

/// A directory to be made.
#[derive(Debug)]
pub(super) struct PlannedDirectory {
    /// Index into the trees of sources.
    pub(super) tree: usize,
    /// Index of the directory above; `None` for the target itself.
    pub(super) parent: Option<usize>,
    /// Directories above it within the copy.
    pub(super) depth: usize,
    pub(super) name: Name,
    pub(super) meta: Meta,
    /// At the source.
    pub(super) source: Directory,
}

/// A file or link to be copied.
#[derive(Clone, Debug)]
pub(super) struct PlannedFile {
    /// Index into the trees of sources.
    pub(super) tree: usize,
    /// Index of its directory at the target; `None` for the target itself.
    pub(super) parent: Option<usize>,
    /// Its directory at the source.
    pub(super) source: Directory,
    pub(super) name: Name,
    pub(super) target_name: Name,
    pub(super) meta: Meta,
}

/// Tree and identity.
type Inode = (usize, (u64, u64));

/// Everything.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(super) trees: Vec<Tree>,
    pub(super) directories: Vec<PlannedDirectory>,
    pub(super) files: Vec<PlannedFile>,
    /// Further names of files, each with the index of the first one.
    pub(super) names: Vec<(PlannedFile, usize)>,
    /// Inodes with several names, by tree and identity; kept if further names shall be names.
    inodes: Option<HashMap<Inode, usize>>,
    /// What could not be listed, with the reason.
    pub(super) skipped: Vec<(String, Failure)>,
    /// Pipes, sockets and devices.
    pub(super) specials: Vec<String>,
    pub(crate) bytes: u64,
}

/// Why none of [`Plan::specials`] is copied.
pub(super) fn special() -> Failure {
    Failure::new(
        Code::FileFailed,
        "pipes, sockets and devices are not copied",
    )
}

/// A directory that waits to be listed.
struct Unlisted {
    tree: usize,
    /// Its index among the planned directories.
    index: usize,
}

impl Plan {
    /// Lists the sources.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a directory without `recursive` or for too many entries. What cannot
    /// be listed below the sources is noted and passed over.
    pub(crate) async fn make(
        sources: Vec<Source>,
        recursive: bool,
        hard_links: bool,
    ) -> Result<Self> {
        let mut plan = Self {
            inodes: hard_links.then(HashMap::new),
            ..Self::default()
        };
        let mut waiting = VecDeque::new();
        for source in sources {
            let tree = plan.trees.len();
            plan.trees.push(source.tree.clone());
            if source.meta.kind == FileKind::Directory {
                if !recursive {
                    let message = format!("{} is a directory", source.name);
                    return Err(Failure::new(Code::Invalid, message).hint("copy it with -r"));
                }
                waiting.push_back(Unlisted {
                    tree,
                    index: plan.directories.len(),
                });
                plan.directories.push(PlannedDirectory {
                    tree,
                    parent: None,
                    depth: 0,
                    name: source.target_name,
                    meta: source.meta,
                    source: source.directory,
                });
            } else {
                plan.add_file(PlannedFile {
                    tree,
                    parent: None,
                    source: source.parent,
                    name: source.name,
                    target_name: source.target_name,
                    meta: source.meta,
                });
            }
        }
        plan.list(waiting).await?;
        Ok(plan)
    }

    async fn list(&mut self, mut waiting: VecDeque<Unlisted>) -> Result<()> {
        let progress = Progress::unknown("listing");
        let mut running = JoinSet::new();
        loop {
            while running.len() < LISTINGS_MAX
                && let Some(Unlisted { tree, index }) = waiting.pop_front()
            {
                let directory = self.directories[index].source.clone();
                let source = self.trees[tree].clone();
                running.spawn(async move { (tree, index, source.list(&directory).await) });
            }
            let Some(finished) = running.join_next().await else {
                break;
            };
            let (tree, index, listed) =
                finished.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
            match listed {
                Ok(entries) => {
                    progress.add(entries.len() as u64);
                    let directories = self.add_entries(tree, index, entries);
                    waiting.extend(directories);
                }
                Err(failure) => self.skipped.push((self.path(Some(index)), failure)),
            }
            if self.directories.len() + self.files.len() + self.names.len() > ENTRIES_MAX {
                let message = format!("there are more than {ENTRIES_MAX} files to copy");
                return Err(Failure::new(Code::Invalid, message).hint("copy in several parts"));
            }
        }
        progress.finish();
        Ok(())
    }

    /// Takes over what a directory contains; returns the directories in it.
    fn add_entries(
        &mut self,
        tree: usize,
        index: usize,
        entries: Vec<(Name, Meta, Directory)>,
    ) -> Vec<Unlisted> {
        let (source, depth) = {
            let parent = &self.directories[index];
            (parent.source.clone(), parent.depth + 1)
        };
        let mut directories = Vec::new();
        for (name, meta, below) in entries {
            if meta.kind == FileKind::Directory {
                directories.push(Unlisted {
                    tree,
                    index: self.directories.len(),
                });
                self.directories.push(PlannedDirectory {
                    tree,
                    parent: Some(index),
                    depth,
                    name,
                    meta,
                    source: below,
                });
            } else {
                self.add_file(PlannedFile {
                    tree,
                    parent: Some(index),
                    source: source.clone(),
                    target_name: name.clone(),
                    name,
                    meta,
                });
            }
        }
        directories
    }

    fn add_file(&mut self, file: PlannedFile) {
        match file.meta.kind {
            FileKind::File => {
                if file.meta.links > 1
                    && let Some(inodes) = &mut self.inodes
                {
                    let next = self.files.len();
                    let inode = (file.tree, file.meta.identity);
                    let first = *inodes.entry(inode).or_insert(next);
                    if first != next {
                        return self.names.push((file, first));
                    }
                }
                self.bytes = self.bytes.saturating_add(file.meta.size);
                self.files.push(file);
            }
            FileKind::Symlink => self.files.push(file),
            _ => self.specials.push(self.file_path(&file)),
        }
    }

    /// How a file is called in messages: its path below the target.
    pub(super) fn file_path(&self, file: &PlannedFile) -> String {
        match file.parent {
            None => file.target_name.to_string(),
            parent => format!("{}/{}", self.path(parent), file.target_name),
        }
    }

    /// How a directory is called in messages.
    pub(super) fn path(&self, mut index: Option<usize>) -> String {
        let mut names = Vec::new();
        while let Some(at) = index {
            let directory = &self.directories[at];
            names.push(directory.name.to_string());
            index = directory.parent;
        }
        names.reverse();
        names.join("/")
    }

    /// What will not be copied, with the reasons.
    pub(crate) fn skipped(&self) -> Vec<String> {
        let line = |path: &str, failure: &Failure| format!("{path}: {}", failure.message());
        let failed = self.skipped.iter().map(|(path, why)| line(path, why));
        let specials = self.specials.iter().map(|path| line(path, &special()));
        failed.chain(specials).collect()
    }

    /// Files, links and directories.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.files.len() + self.names.len(), self.directories.len())
    }
}
