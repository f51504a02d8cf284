//! From which step on something is certain.

use super::History;
use crate::states::Said;
use crate::workload::Step;
use std::collections::BTreeMap;

/// What is certain when this much had been said: the number of the step after which a name had its
/// meaning, or a file its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Floors {
    pub(super) names: BTreeMap<String, usize>,
    pub(super) contents: BTreeMap<u32, usize>,
}

impl Floors {
    pub(super) fn new(history: &History, said: Said) -> Self {
        let mut floors = Self::default();
        floors.raise_all(history, 0);
        let done = (said.done as usize).min(history.workload.steps.len());
        for number in 1..=done {
            floors.follow(history, number);
        }
        floors
    }

    /// What step `number` makes certain.
    fn follow(&mut self, history: &History, number: usize) {
        let tree = &history.trees[number];
        match &history.workload.steps[number - 1] {
            Step::Sync => self.raise_all(history, number),
            Step::Fsync { path } => {
                let Some(file) = tree.file(path) else {
                    return;
                };
                self.contents.insert(file, number);
                if history.promises.fsync_keeps_names {
                    let names = tree.names_of(file);
                    names.for_each(|name| self.raise_with_parents(name, number));
                }
            }
            Step::Insert { path, .. } => {
                if let Some(file) = tree.file(path) {
                    self.contents.insert(file, number);
                    self.names.insert(path.clone(), number);
                }
            }
            Step::Fdatasync { path } => {
                if let Some(file) = tree.file(path) {
                    self.contents.insert(file, number);
                }
            }
            Step::FsyncDir { path } => {
                // Names that are not there any more are certain not to be.
                let known: Vec<&String> = history.known_names().collect();
                for name in known {
                    let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
                    if parent == path {
                        self.names.insert(name.clone(), number);
                    }
                }
                if history.promises.fsync_keeps_names {
                    self.raise_with_parents(path, number);
                }
            }
            _ => {}
        }
    }

    fn raise_all(&mut self, history: &History, number: usize) {
        let names = history.known_names();
        self.names = names.map(|name| (name.clone(), number)).collect();
        let files = history.trees[number].contents.keys();
        self.contents.extend(files.map(|file| (*file, number)));
    }

    /// A name, and the directories in which it is.
    fn raise_with_parents(&mut self, name: &str, number: usize) {
        let mut rest = name;
        while !rest.is_empty() {
            self.names.insert(rest.to_owned(), number);
            rest = rest.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
    }
}

impl History {
    /// Every name that ever is, some of them several times.
    pub(super) fn known_names(&self) -> impl Iterator<Item = &String> {
        self.trees.iter().flat_map(|tree| tree.names.keys())
    }
}
