//! Holds what was found against what must and may be there.

use super::content::{self, Version};
use super::floor::Floors;
use super::tree::Meaning;
use super::{Entry, EntryKind, History};
use crate::outcome::Outcome;
use crate::states::Said;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub path: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Whether it had been made durable, so that an acknowledgement was wrong; otherwise something
    /// is there that may never be.
    pub was_promised: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.outcome)
    }
}

/// What a judge says of what was found after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Names that had to be there, and are what they had to be with every byte.
    pub intact: u64,
}

/// What is right and wrong with what was found after a crash when so much had been said.
#[must_use]
pub fn judge(history: &History, said: Said, found: &[Entry]) -> Judgement {
    // Nothing is done that has not begun.
    let said = Said {
        done: said.done.min(said.begun),
        ..said
    };
    let judge = Judge {
        history,
        begun: (said.begun as usize).min(history.workload.steps.len()),
        floors: Floors::new(history, said),
        found: found
            .iter()
            .map(|entry| (entry.path.as_str(), &entry.kind))
            .collect(),
    };
    let (mut findings, mut intact) = (Vec::new(), 0);
    let known: BTreeSet<&String> = history.known_names().collect();
    for name in &known {
        match judge.name(name) {
            Some(finding) => findings.push(finding),
            None => intact += u64::from(!judge.may_be_missing(name)),
        }
    }
    if history.promises.rename_is_atomic {
        findings.extend(judge.moved_files());
        findings.extend(judge.doubled_files());
    }
    for entry in found.iter().filter(|entry| !known.contains(&entry.path)) {
        findings.push(Finding {
            path: entry.path.clone(),
            outcome: Outcome::Foreign,
            was_promised: false,
        });
    }
    Judgement { findings, intact }
}

/// The same of a state in which power can be lost at several moments, when so much had been said
/// ([`crate::states::Plan::said`]): it must be right at each of them. What was found at the last
/// one, or if nothing is wrong there, at the one before it at which something is; and which.
#[must_use]
pub fn judge_at_each(history: &History, said: &[Said], found: &[Entry]) -> (Judgement, Said) {
    let at = |said: &Said| (judge(history, *said, found), *said);
    let last = at(said.last().unwrap_or(&Said::default()));
    if !last.0.findings.is_empty() {
        return last;
    }
    let mut earlier = said.iter().rev().skip(1).map(at);
    earlier
        .find(|(judgement, _)| !judgement.findings.is_empty())
        .unwrap_or(last)
}

struct Judge<'a> {
    history: &'a History,
    begun: usize,
    floors: Floors,
    found: BTreeMap<&'a str, &'a EntryKind>,
}

impl Judge<'_> {
    /// What is wrong with one name, if anything.
    fn name(&self, name: &str) -> Option<Finding> {
        let finding = |outcome, was_promised| {
            let path = name.to_owned();
            Some(Finding {
                path,
                outcome,
                was_promised,
            })
        };
        let Some(kind) = self.found.get(name) else {
            return match self.may_be_missing(name) {
                true => None,
                false => finding(Outcome::Missing, true),
            };
        };
        let floor = self.name_floor(name);
        let mut why = None;
        for meaning in self.meanings(name).flatten() {
            match (meaning, kind) {
                (Meaning::Directory, EntryKind::Directory) => return None,
                (Meaning::File(file), EntryKind::File(bytes)) => match self.content(file, bytes) {
                    None => return None,
                    wrong => why = why.or(wrong),
                },
                (_, EntryKind::Unreadable(_)) => why = Some((Outcome::Unreadable, true)),
                _ => {}
            }
        }
        // It is there and may not be, or is what it was once.
        let (outcome, was_promised) = match why {
            Some((_, true)) if self.was_earlier(name, floor, kind) => (Outcome::Stale, true),
            why => why.unwrap_or((Outcome::Stale, true)),
        };
        finding(outcome, was_promised)
    }

    /// The step after which a name is certain.
    fn name_floor(&self, name: &str) -> usize {
        self.floors.names.get(name).copied().unwrap_or(0)
    }

    /// What a name may mean, after each of the steps that may be the last.
    fn meanings(&self, name: &str) -> impl Iterator<Item = Option<Meaning>> {
        let last = self.name_floor(name)..=self.begun;
        let trees = self.history.trees.get(last).unwrap_or_default();
        trees.iter().map(move |tree| tree.names.get(name).copied())
    }

    /// Whether nothing need be there: a name may also have vanished with its directory.
    fn may_be_missing(&self, name: &str) -> bool {
        let mut meanings = self.meanings(name);
        meanings.any(|meaning| meaning.is_none()) || self.parent_may_be_missing(name)
    }

    /// Whether a name meant exactly this before it was made durable as something else.
    fn was_earlier(&self, name: &str, floor: usize, kind: &EntryKind) -> bool {
        let EntryKind::File(bytes) = kind else {
            return false;
        };
        let mut earlier = self.history.trees[..=floor].iter();
        earlier.any(|tree| {
            let file = tree.file(name);
            file.is_some_and(|file| tree.contents[&file].as_slice() == bytes)
        })
    }

    fn parent_may_be_missing(&self, name: &str) -> bool {
        let Some((parent, _)) = name.rsplit_once('/') else {
            return false;
        };
        self.may_be_missing(parent)
    }

    /// What is wrong with a file's content, and whether that was promised.
    fn content(&self, file: u32, bytes: &[u8]) -> Option<(Outcome, bool)> {
        let floor = self.floors.contents.get(&file).copied();
        let versions = self.versions(file, floor.unwrap_or(0));
        if versions.iter().any(|version| version.as_slice() == bytes) {
            return None;
        }
        let was_promised = floor.is_some();
        let lengths = || versions.iter().map(|version| version.len());
        let least = if was_promised { lengths().min() } else { None };
        if bytes.len() < least.unwrap_or(0) {
            return Some((Outcome::Truncated, was_promised));
        }
        if bytes.len() > lengths().max().unwrap_or(0) {
            return Some((Outcome::Foreign, was_promised));
        }
        let earlier = || self.versions(file, 0);
        let outcome = content::wrong(bytes, &versions, was_promised, earlier)?;
        Some((outcome, was_promised))
    }

    /// The contents of a file after the steps from `first` to the last that had begun.
    fn versions(&self, file: u32, first: usize) -> Vec<&Version> {
        let mut versions: Vec<&Version> = Vec::new();
        for tree in &self.history.trees[first..=self.begun] {
            if let Some(content) = tree.contents.get(&file)
                && versions.last() != Some(&content)
            {
                versions.push(content);
            }
        }
        versions
    }

    /// Files that always had a name and now have none.
    fn moved_files(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let files = self.history.trees[self.begun].contents.keys();
        for file in files {
            let names_after = |number: usize| self.history.trees[number].names_of(*file);
            // From when on it is certain to have a name: from the start, or when one was made so.
            let certain = (0..=self.begun).find(|number| {
                names_after(*number)
                    .any(|name| *number == 0 || self.floors.names.get(name) == Some(number))
            });
            let Some(first) = certain else {
                continue;
            };
            let steps = || first..=self.begun;
            if steps().any(|number| names_after(number).next().is_none()) {
                continue;
            }
            let is_there = steps().flat_map(names_after).any(|name| {
                matches!(self.found.get(name), Some(EntryKind::File(bytes))
                    if self.content(*file, bytes).is_none())
            });
            let name = names_after(self.begun).next().expect("looked at above");
            let is_told = findings.iter().any(|told: &Finding| told.path == name);
            if !is_there && !is_told && self.name(name).is_none() {
                findings.push(Finding {
                    path: name.to_owned(),
                    outcome: Outcome::Missing,
                    was_promised: true,
                });
            }
        }
        findings
    }

    /// Files that were moved and are at both places: of each, the name that it lost first.
    fn doubled_files(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for file in self.history.trees[self.begun].contents.keys() {
            let mut names: Vec<(usize, &str)> = self.names_of(*file).into_iter().collect();
            names.retain(|(_, name)| self.is_file_alone(name, *file));
            for pair in names.windows(2) {
                let [(_, old), (_, new)] = [pair[0], pair[1]];
                let first = self.name_floor(old).max(self.name_floor(new));
                let steps = self.history.trees.get(first..=self.begun);
                let mut steps = steps.unwrap_or_default().iter();
                // Links have several names, and which of them is lost first nobody promises.
                let is_moved = steps.all(|tree| tree.names_of(*file).count() < 2);
                if is_moved && self.name(old).is_none() {
                    findings.push(Finding {
                        path: old.to_owned(),
                        outcome: Outcome::Stale,
                        was_promised: true,
                    });
                }
            }
        }
        findings
    }

    /// All names that a file had until the last step that had begun, each with the step after which
    /// it had it last, in this order.
    fn names_of(&self, file: u32) -> BTreeSet<(usize, &str)> {
        let mut last = BTreeMap::new();
        for (tree, number) in self.history.trees[..=self.begun].iter().zip(0..) {
            last.extend(tree.names_of(file).map(|name| (name, number)));
        }
        last.into_iter()
            .map(|(name, number)| (number, name))
            .collect()
    }

    /// Whether what was found at a name is this file, and no other one that may be there.
    fn is_file_alone(&self, name: &str, file: u32) -> bool {
        let Some(EntryKind::File(bytes)) = self.found.get(name) else {
            return false;
        };
        let is_other = |meaning| match meaning {
            Meaning::File(other) => other != file && self.content(other, bytes).is_none(),
            Meaning::Directory => false,
        };
        self.content(file, bytes).is_none() && !self.meanings(name).flatten().any(is_other)
    }
}
