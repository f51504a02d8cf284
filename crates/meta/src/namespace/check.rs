//! Whether everything in a namespace agrees: offline, on what the engine has.
//!
//! It goes through all records of the volume once, in one state of the engine, and keeps some tens
//! of bytes of each name and inode. It changes nothing.

use super::cookie::Cookies;
use super::error::NamespaceError;
use super::key;
use super::read::{NameFound, decode_list, named};
use super::record::{
    Chore, Content, Head, Inode, ROOT, StoredPlace, Xattrs, decode, decode_target,
};
use super::rich::{EditCounts, Rich, RichRecord};
use super::volume::{entries, find};
use crate::{Engine, Entry, MetaError};
use base::{FileKind, Name, QuickMap, VolumeId};
use std::collections::BTreeSet;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What does not agree, in words for administrators.
    pub findings: Vec<String>,
    /// Inodes, those without a name included.
    pub inodes: u64,
    /// Names.
    pub names: u64,
    /// Inodes without a name.
    pub orphans: u64,
    /// What stores have still to do.
    pub chores: u64,
}

/// What is kept of an inode.
#[derive(Clone, Copy)]
struct Known {
    kind: FileKind,
    links: u32,
    /// Names that a directory says it has.
    names: u64,
    has_xattrs: bool,
    has_list_apart: bool,
    /// The directory in whose entry it lies; 0 if it lies by itself.
    lies_in: u64,
}

#[derive(Default)]
struct Checking {
    report: Report,
    inodes: QuickMap<u64, Known>,
    /// Inodes that are said to lie at a name, and where.
    places: QuickMap<u64, (u64, Name)>,
    /// Names that lead to inodes elsewhere: directory, inode, kind.
    references: Vec<(u64, u64, FileKind)>,
    /// Where inodes lie that lie at names.
    lying: QuickMap<u64, (u64, Name)>,
    orphans: BTreeSet<u64>,
    xattrs: BTreeSet<u64>,
    lists: BTreeSet<u64>,
    heads: Vec<Head>,
    numbers_max: u64,
    objects_to_delete: Vec<u64>,
    objects: QuickMap<u64, u64>,
}

/// Checks the namespace of a volume. Nobody may change it meanwhile but through the engine's own
/// states: a page of a state that is not kept any more is an error.
///
/// # Errors
/// [`NamespaceError::Unknown`]; what the engine says. A record that cannot be read is a finding.
pub async fn check(engine: &dyn Engine, volume: VolumeId) -> Result<Report, NamespaceError> {
    let (keys, constants) = find(engine, volume).await?;
    let cookies = Cookies(constants.hash_key);
    let mut checking = Checking::default();
    entries(engine, &keys.whole(), |entry| {
        if let Err(error) = checking.see(cookies, &entry) {
            checking.find(format!("{error}, key {:02x?}", entry.key));
        }
        Ok(())
    })
    .await?;
    Ok(checking.judge())
}

impl Checking {
    fn find(&mut self, finding: String) {
        self.report.findings.push(finding);
    }

    fn see(&mut self, cookies: Cookies, entry: &Entry) -> Result<(), MetaError> {
        let damaged = || MetaError::Damaged("a key is cut off".to_owned());
        let (tag, rest) = key::parts(&entry.key).ok_or_else(damaged)?;
        match tag {
            b'c' | b'r' => return Ok(()),
            b'd' => return self.see_name(cookies, entry),
            _ => {}
        }
        let (number, _) = key::number(rest).ok_or_else(damaged)?;
        match tag {
            b'i' => match decode("a place", &entry.value)? {
                StoredPlace::At(directory, name) => {
                    self.places.insert(number, (directory, name));
                }
                here => {
                    let inode = here.here().expect("what lies nowhere else lies here");
                    if inode.number != number {
                        self.find(format!("inode {} lies at {number}", inode.number));
                    }
                    self.see_inode(&inode, 0);
                }
            },
            b'x' => {
                let xattrs: Xattrs = decode("extended attributes", &entry.value)?;
                if xattrs.is_empty() || !xattrs.is_sorted() {
                    self.find(format!("extended attributes of inode {number} are no list"));
                }
                self.xattrs.insert(number);
            }
            b'a' => {
                let list = decode_list(&entry.value)?;
                self.see_list(number, &list);
                self.lists.insert(number);
            }
            b'e' if number == 0 => drop(decode::<EditCounts>("edits", &entry.value)?),
            b'e' => {}
            b'o' => drop(self.orphans.insert(number)),
            b'h' => self.heads.push(decode("a head", &entry.value)?),
            b'w' => {
                self.report.chores += 1;
                self.numbers_max = self.numbers_max.max(number);
                if let Chore::Delete(layout) = decode("a chore", &entry.value)? {
                    self.objects_to_delete.push(layout.object);
                }
            }
            b't' => drop(decode_target(&entry.value)?),
            other => self.find(format!("a record of unknown kind {other}")),
        }
        Ok(())
    }

    fn see_name(&mut self, cookies: Cookies, entry: &Entry) -> Result<(), MetaError> {
        let (directory, hash, name, found) = named(entry)?;
        self.report.names += 1;
        if cookies.of(&name) != hash {
            self.find(format!(
                "the name {name} of directory {directory} has another hash"
            ));
        }
        match found {
            NameFound::Inode(inode) => {
                self.see_inode(&inode, directory);
                self.lying.insert(inode.number, (directory, name));
            }
            NameFound::Reference(inode, kind) => self.references.push((directory, inode, kind)),
        }
        Ok(())
    }

    fn see_list(&mut self, inode: u64, list: &RichRecord) {
        if !list.is_readable() {
            self.find(format!("the rich ACL of inode {inode} cannot be read"));
        }
    }

    fn see_inode(&mut self, inode: &Inode, lies_in: u64) {
        if let Some(Rich::Inline(list)) = &inode.rich {
            self.see_list(inode.number, list);
        }
        self.report.inodes += 1;
        self.numbers_max = self.numbers_max.max(inode.number);
        let names = match &inode.content {
            Content::Directory(names) => *names,
            Content::File(_, layout) => {
                self.objects.insert(layout.object, inode.number);
                self.numbers_max = self.numbers_max.max(layout.number());
                0
            }
            _ => 0,
        };
        let fits = matches!(
            (inode.kind, &inode.content),
            (FileKind::File, Content::File(..))
                | (FileKind::Directory, Content::Directory(_))
                | (FileKind::Symlink, Content::Link(_))
                | (FileKind::Fifo | FileKind::Socket, Content::Nothing)
                | (
                    FileKind::CharDevice | FileKind::BlockDevice,
                    Content::Device(_)
                )
        );
        if !fits {
            self.find(format!(
                "inode {} has the content of another kind",
                inode.number
            ));
        }
        let known = Known {
            kind: inode.kind,
            links: inode.links,
            names,
            has_xattrs: inode.has_xattrs,
            has_list_apart: inode.has_list_apart(),
            lies_in,
        };
        if self.inodes.insert(inode.number, known).is_some() {
            self.find(format!("inode {} is there twice", inode.number));
        }
    }

    fn judge(mut self) -> Report {
        self.judge_places();
        self.judge_counts();
        self.judge_ways();
        self.judge_lists();
        self.report.orphans = self.orphans.len() as u64;
        self.report.findings.sort();
        self.report
    }

    /// What lies at a name is said to, and the other way round.
    fn judge_places(&mut self) {
        let (lying, places) = (
            std::mem::take(&mut self.lying),
            std::mem::take(&mut self.places),
        );
        for (inode, at) in &lying {
            if places.get(inode) != Some(at) {
                self.find(format!("inode {inode} lies at {} and is not said to", at.1));
            }
        }
        for (inode, at) in &places {
            if lying.get(inode) != Some(at) {
                self.find(format!(
                    "inode {inode} is said to lie at {} and does not",
                    at.1
                ));
            }
        }
    }

    /// Links and names are counted right; every name leads to an inode of its kind.
    fn judge_counts(&mut self) {
        let mut links: QuickMap<u64, u32> = QuickMap::default();
        let mut names: QuickMap<u64, u64> = QuickMap::default();
        for known in self.inodes.values().filter(|known| known.lies_in != 0) {
            *names.entry(known.lies_in).or_default() += 1;
            if known.kind == FileKind::Directory {
                *links.entry(known.lies_in).or_default() += 1;
            }
        }
        for (number, known) in &self.inodes {
            *links.entry(*number).or_default() += match known.kind {
                FileKind::Directory => 2,
                _ => u32::from(known.lies_in != 0),
            };
        }
        for (directory, inode, kind) in std::mem::take(&mut self.references) {
            *names.entry(directory).or_default() += 1;
            *links.entry(inode).or_default() += 1;
            let known = self.inodes.get(&inode);
            let fits = known.is_some_and(|known| known.kind == kind && known.lies_in == 0);
            if !fits || kind == FileKind::Directory {
                self.find(format!(
                    "a name in directory {directory} leads to no inode {inode}"
                ));
            }
        }
        let mut findings = Vec::new();
        for (number, known) in &self.inodes {
            let found = links.remove(number).unwrap_or(0);
            if found != known.links {
                findings.push(format!(
                    "inode {number} says {} links and has {found}",
                    known.links
                ));
            }
            let found = names.remove(number).unwrap_or(0);
            if found != known.names {
                findings.push(format!(
                    "inode {number} says {} names, has {found}",
                    known.names
                ));
            }
        }
        let strays = names
            .keys()
            .map(|stray| format!("names in {stray}, which is no directory"));
        findings.extend(strays);
        self.report.findings.extend(findings);
    }

    /// Every directory lies below the top.
    fn judge_ways(&mut self) {
        let mut reached: BTreeSet<u64> = BTreeSet::from([ROOT]);
        let mut lost = Vec::new();
        let is_directory = |known: &Known| known.kind == FileKind::Directory;
        for (number, _) in self.inodes.iter().filter(|(_, known)| is_directory(known)) {
            let (mut way, mut at) = (BTreeSet::new(), *number);
            let is_reached = loop {
                if reached.contains(&at) {
                    break true;
                }
                if !way.insert(at) {
                    break false;
                }
                match self.inodes.get(&at) {
                    Some(known) if is_directory(known) && known.lies_in != 0 => at = known.lies_in,
                    _ => break false,
                }
            };
            match is_reached {
                true => reached.append(&mut way),
                false => lost.push(format!("directory {number} is not below the top")),
            }
        }
        if !self
            .inodes
            .get(&ROOT)
            .is_some_and(|known| is_directory(known) && known.lies_in == 0)
        {
            lost.push("there is no top directory".to_owned());
        }
        self.report.findings.extend(lost);
    }

    /// The lists and counters agree with the inodes.
    fn judge_lists(&mut self) {
        let mut findings = Vec::new();
        for (number, known) in &self.inodes {
            if (known.links == 0) != self.orphans.contains(number) {
                findings.push(format!(
                    "inode {number} with {} links and orphans",
                    known.links
                ));
            }
            if known.has_xattrs != self.xattrs.contains(number) {
                findings.push(format!("extended attributes of inode {number}"));
            }
            if known.has_list_apart != self.lists.contains(number) {
                findings.push(format!("the rich ACL of inode {number}"));
            }
        }
        let is_there = |number: &&u64| self.inodes.contains_key(number);
        let strays = self
            .orphans
            .iter()
            .chain(&self.xattrs)
            .chain(&self.lists)
            .filter(|number| !is_there(number));
        findings.extend(strays.map(|number| format!("a record of inode {number}, which is gone")));
        for object in &self.objects_to_delete {
            if let Some(inode) = self.objects.get(object) {
                findings.push(format!("object {object} of inode {inode} is to be deleted"));
            }
        }
        match self.heads[..] {
            [head] => {
                if head.next <= self.numbers_max {
                    findings.push(format!("number {} is given out again", head.next));
                }
                if head.inodes != self.report.inodes {
                    let there = self.report.inodes;
                    findings.push(format!("{} inodes are counted, {there} there", head.inodes));
                }
            }
            _ => findings.push(format!("{} heads in the place of one", self.heads.len())),
        }
        self.report.findings.extend(findings);
    }
}
