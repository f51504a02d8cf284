//! All files that have a rich ACL, page by page.
//!
//! Records are read from the engine in the order of their keys, not by way of directories: each
//! page costs one reading, wherever the files lie. A file that gets another name meanwhile may be
//! met twice, or not at all.

use super::super::error::NamespaceError;
use super::super::read::{NameFound, named};
use super::super::record::{Inode, StoredPlace, decode};
use super::super::tree::Namespace;
use crate::{Entry, KeyRange, MetaError};
use base::Handle;

/// Records that are read at once.
const PAGE_ENTRIES: usize = 512;
/// Where inodes lie: in names, and by themselves.
const TAGS: [u8; 2] = [b'd', b'i'];

/// Where a scan is.
#[derive(Debug)]
pub struct RichScan {
    /// Ranges that are left, the next one first.
    rest: Vec<KeyRange>,
}

/// What a part of a scan has met.
#[derive(Debug, Default)]
pub struct Scanned {
    /// Inodes.
    pub inodes: u64,
    /// Those of them that have a rich ACL.
    pub rich: Vec<Handle>,
}

fn inode_in(tag: u8, entry: &Entry) -> Result<Option<Inode>, MetaError> {
    if tag == b'd' {
        let (_, _, _, found) = named(entry)?;
        return Ok(match found {
            NameFound::Inode(inode) => Some(*inode),
            NameFound::Reference(..) => None,
        });
    }
    let place: StoredPlace<'_> = decode("a place", &entry.value)?;
    Ok(place.here())
}

impl Namespace {
    /// Begins a scan.
    #[must_use]
    pub fn scan_rich(&self) -> RichScan {
        let keys = self.core.rules.keys;
        RichScan {
            rest: TAGS.iter().map(|tag| keys.all(*tag)).collect(),
        }
    }

    /// Goes on with a scan; `None` at its end. Blocks; not within a task.
    ///
    /// # Errors
    /// What the engine says. A record that cannot be read is passed by.
    pub fn scan_on(&self, scan: &mut RichScan) -> Result<Option<Scanned>, NamespaceError> {
        let Some(range) = scan.rest.first() else {
            return Ok(None);
        };
        let core = &self.core;
        let tag = TAGS[TAGS.len() - scan.rest.len()];
        let reading = core.engine.range(range, PAGE_ENTRIES, None);
        let page = core.runtime().block_on(reading)?;
        let mut scanned = Scanned::default();
        for entry in &page.entries {
            match inode_in(tag, entry) {
                Ok(Some(inode)) => {
                    scanned.inodes += 1;
                    let handle = || core.rules.seal.close(&inode);
                    scanned.rich.extend(inode.rich.is_some().then(handle));
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a record is passed by"),
            }
        }
        let next = page.entries.last().filter(|_| page.has_more);
        match next.map(|last| range.after(&last.key)) {
            Some(next) => scan.rest[0] = next,
            None => drop(scan.rest.remove(0)),
        }
        Ok(Some(scanned))
    }
}
