//! Paged listings, in the order of cookies.
//!
//! A page comes from memory as far as names are known there without a gap; what is missing is read
//! in one piece of as many names as are asked for. With attributes, names of inodes that lie by
//! themselves may need one more reading each.

use super::judge::{EXECUTE, READ};
use super::read::Want;
use super::tree::Namespace;
use super::turn::Turn;
use super::work::{Stop, Work};
use acl::Rights;
use base::limits::DIRECTORY_ENTRIES_MAX;
use base::{DirectoryEntry, DirectoryPage, FileKind, FsError, Handle, Name, Node, Principal};
use std::ops::Bound;

impl Namespace {
    /// Lists a directory from `cookie` on (0 for the beginning, else that of the last entry seen),
    /// at most `entries_max` entries, or fewer; with `plus` each with its handle and attributes.
    /// What is there throughout is listed exactly once.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`], [`FsError::AccessDenied`] if the caller may not list it.
    pub fn read_directory(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        cookie: u64,
        entries_max: usize,
        plus: bool,
    ) -> Result<DirectoryPage, FsError> {
        let entries_max = entries_max.clamp(1, DIRECTORY_ENTRIES_MAX);
        self.look(turn, |work| {
            let directory = work.directory(handle)?;
            work.judge(&directory, who, Rights::READ_DATA, READ)?;
            let plus = plus && work.may(&directory, who, Rights::EXECUTE, EXECUTE)?;
            work.page(directory.number, cookie, entries_max, plus)
        })
    }
}

impl Work<'_> {
    fn page(
        &mut self,
        directory: u64,
        cookie: u64,
        entries_max: usize,
        plus: bool,
    ) -> Result<DirectoryPage, Stop> {
        let after = cookie.saturating_add(1);
        // What is read must find room beside what is in memory.
        let wanted = entries_max.min(self.state.cache.page_max());
        let missing = |after| Stop::Missing(Want::Names(directory, after, wanted + 1));
        let folder = self
            .state
            .cache
            .folder(directory)
            .ok_or_else(|| missing(cookie))?;
        let Some((_, to)) = folder.known.filter(|_| folder.is_known(after)) else {
            return Err(missing(cookie));
        };
        let mut found: Vec<(u64, Name, u64, FileKind)> = Vec::with_capacity(entries_max.min(64));
        let mut newest = 0;
        let mut end = to == u64::MAX;
        let begin = Bound::Included((after, None));
        for ((hash, name), link) in folder.names.range((begin, Bound::Unbounded)) {
            if *hash > to {
                break;
            }
            newest = newest.max(link.batch);
            let (Some((inode, kind)), Some(name)) = (link.inode, name) else {
                continue;
            };
            // Names of one hash have one cookie, so they stay together.
            let is_full = found.len() >= entries_max;
            if is_full && found.last().is_some_and(|(last, ..)| last != hash) {
                end = false;
                break;
            }
            found.push((*hash, name.clone(), inode, kind));
        }
        if found.len() < wanted && to != u64::MAX {
            return Err(missing(to));
        }
        if newest > self.state.pipe.durable() {
            self.turn.note(newest);
        }
        let entries = found.into_iter().map(|(cookie, name, inode, kind)| {
            let node = match plus {
                true => Some(self.listed(inode)?),
                false => None,
            };
            Ok(DirectoryEntry {
                name,
                cookie,
                inode,
                kind: Some(kind),
                node,
            })
        });
        let entries = entries.collect::<Result<Vec<_>, Stop>>()?;
        Ok(DirectoryPage { entries, end })
    }

    fn listed(&self, inode: u64) -> Result<Node, Stop> {
        let slot = self.slot(inode)?;
        let inode = slot.inode.as_ref().ok_or(FsError::Io)?;
        Ok(self.node(inode))
    }
}
