//! What a namespace has in memory: inodes, names, extended attributes.
//!
//! What is here is the truth, because this manager alone changes the volume; it is ahead of the
//! engine by what is not durable yet. Two rules keep it so:
//!
//! 1. What is read from the engine never replaces what is here.
//! 2. What was changed stays here until it is durable, and until every reading of the engine that
//!    began before that is over: until the [horizon](Cache::horizon) has passed it. So what such a
//!    reading brings is either unchanged since it began or refused by rule 1. A name that was
//!    removed stays as a name without an inode.
//!
//! Of the names of a directory, those whose hashes lie in one interval are known to be all here
//! ([`Folder::known`]): a listing extends it page by page, and a new directory is known as a whole.
//! Within it a name that is not here does not exist. Memory is bounded by letting go of the
//! directories that were used longest ago.

use super::record::{Inode, Place, ROOT, Xattrs};
use super::rich::{Known, RichRecord};
use base::limits::NAMESPACE_CACHE_ENTRIES_MAX;
use base::{FileKind, Name, QuickMap};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a rich ACL that count as much as an inode.
const LIST_BYTES: usize = 256;
/// How much room is made when there is none: an eighth.
const ROOM_PARTS: usize = 8;

/// An inode, or that there is none any more.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) inode: Option<Inode>,
    pub(super) place: Place,
    /// The batch that changed it last; 0 if it is as it was read.
    pub(super) batch: u64,
}

/// What a name leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// None: the name is not there.
    pub(super) inode: Option<(u64, FileKind)>,
    pub(super) batch: u64,
}

/// Where a name is in its directory. None comes before all names of a hash.
pub(super) type Spot = (u64, Option<Name>);

/// Names of a directory.
#[derive(Debug, Default)]
pub(super) struct Folder {
    pub(super) names: BTreeMap<Spot, Link>,
    /// Hashes from, to: every name between, both included, is here.
    pub(super) known: Option<(u64, u64)>,
    used: u64,
}

impl Folder {
    pub(super) fn is_known(&self, hash: u64) -> bool {
        self.known
            .is_some_and(|(from, to)| (from..=to).contains(&hash))
    }

    /// Names of one more interval are here.
    pub(super) fn learn(&mut self, from: u64, to: u64) {
        self.known = Some(match self.known {
            Some((begin, end))
                if from <= end.saturating_add(1) && begin <= to.saturating_add(1) =>
            {
                (begin.min(from), end.max(to))
            }
            _ => (from, to),
        });
    }
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) inodes: QuickMap<u64, Slot>,
    folders: QuickMap<u64, Folder>,
    xattrs: QuickMap<u64, (Arc<Xattrs>, u64)>,
    /// Rich ACLs that do not lie in their inodes; none: there is none any more.
    lists: QuickMap<u64, (Option<Arc<RichRecord>>, u64)>,
    /// What these count as.
    lists_len: usize,
    /// Rich ACLs that lie in inodes.
    known: Known,
    /// Names in all folders.
    names: usize,
    /// Names that are not there, and the batch that took them away.
    removed: std::collections::VecDeque<(u64, u64, Spot)>,
    uses: u64,
    /// Readings of the engine under way: what was durable when they began.
    readings: BTreeMap<u64, u64>,
    reading: u64,
    entries_max: Option<usize>,
}

impl Cache {
    /// With room for so many inodes and names.
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            entries_max: Some(entries_max),
            ..Self::default()
        }
    }

    /// Begins to read the engine.
    pub(super) fn begin_reading(&mut self, durable: u64) -> u64 {
        self.reading += 1;
        self.readings.insert(self.reading, durable);
        self.reading
    }

    /// A reading is over; false if what it brings is worth nothing: everything is read anew.
    pub(super) fn end_reading(&mut self, reading: u64) -> bool {
        self.readings.remove(&reading).is_some()
    }

    /// What was changed by this batch or before need not be kept.
    fn horizon(&self, durable: u64) -> u64 {
        self.readings.values().copied().fold(durable, u64::min)
    }

    pub(super) fn slot(&self, inode: u64) -> Option<&Slot> {
        self.inodes.get(&inode)
    }

    pub(super) fn put_slot(&mut self, inode: u64, mut slot: Slot) {
        if let Some(inode) = &mut slot.inode {
            self.known.share(&mut inode.rich);
        }
        self.inodes.insert(inode, slot);
    }

    /// As it was read from the engine.
    pub(super) fn learn_slot(&mut self, inode: u64, mut found: Option<Inode>, place: Place) {
        if let Some(found) = &mut found {
            self.known.share(&mut found.rich);
        }
        self.inodes.entry(inode).or_insert(Slot {
            inode: found,
            place,
            batch: 0,
        });
    }

    pub(super) fn folder(&mut self, directory: u64) -> Option<&Folder> {
        self.uses += 1;
        let folder = self.folders.get_mut(&directory)?;
        folder.used = self.uses;
        Some(folder)
    }

    fn folder_mut(&mut self, directory: u64) -> &mut Folder {
        self.uses += 1;
        let folder = self.folders.entry(directory).or_default();
        folder.used = self.uses;
        folder
    }

    /// A directory that was made just now.
    pub(super) fn put_folder(&mut self, directory: u64) {
        self.folder_mut(directory).known = Some((0, u64::MAX));
    }

    /// A directory that is gone.
    pub(super) fn remove_folder(&mut self, directory: u64) {
        if let Some(folder) = self.folders.remove(&directory) {
            self.names -= folder.names.len();
        }
    }

    pub(super) fn put_name(&mut self, directory: u64, spot: Spot, link: Link) {
        if link.inode.is_none() {
            self.removed
                .push_back((link.batch, directory, spot.clone()));
        }
        let replaced = self.folder_mut(directory).names.insert(spot, link);
        self.names += usize::from(replaced.is_none());
    }

    /// As it was read from the engine.
    pub(super) fn learn_name(
        &mut self,
        directory: u64,
        spot: Spot,
        found: Option<(u64, FileKind)>,
    ) {
        let folder = self.folder_mut(directory);
        let before = folder.names.len();
        folder.names.entry(spot).or_insert(Link {
            inode: found,
            batch: 0,
        });
        let after = folder.names.len();
        self.names += after - before;
    }

    pub(super) fn learn_names(&mut self, directory: u64, from: u64, to: u64) {
        self.folder_mut(directory).learn(from, to);
    }

    pub(super) fn xattrs(&self, inode: u64) -> Option<&(Arc<Xattrs>, u64)> {
        self.xattrs.get(&inode)
    }

    pub(super) fn put_xattrs(&mut self, inode: u64, xattrs: Option<Arc<Xattrs>>, batch: u64) {
        match xattrs {
            Some(xattrs) => drop(self.xattrs.insert(inode, (xattrs, batch))),
            None => drop(self.xattrs.insert(inode, (Arc::default(), batch))),
        }
    }

    /// As it was read from the engine.
    pub(super) fn learn_xattrs(&mut self, inode: u64, found: Xattrs) {
        self.xattrs.entry(inode).or_insert((Arc::new(found), 0));
    }

    /// The rich ACL of an inode that has one apart, and the batch that changed it.
    pub(super) fn list(&self, inode: u64) -> Option<&(Option<Arc<RichRecord>>, u64)> {
        self.lists.get(&inode)
    }

    pub(super) fn put_list(&mut self, inode: u64, list: Option<Arc<RichRecord>>, batch: u64) {
        self.lists_len += list_len(&list);
        if let Some((before, _)) = self.lists.insert(inode, (list, batch)) {
            self.lists_len -= list_len(&before);
        }
    }

    /// As it was read from the engine.
    pub(super) fn learn_list(&mut self, inode: u64, found: Option<Arc<RichRecord>>) {
        if !self.lists.contains_key(&inode) {
            self.put_list(inode, found, 0);
        }
    }

    /// How many rich ACLs are in memory that do not lie in their inodes.
    pub(super) fn lists_apart(&self) -> usize {
        self.lists.len()
    }

    /// Names that can be read at once and are still there when they are looked for.
    pub(super) fn page_max(&self) -> usize {
        let entries_max = self.entries_max.unwrap_or(NAMESPACE_CACHE_ENTRIES_MAX);
        (entries_max / (2 * ROOM_PARTS)).max(2)
    }

    /// Inodes and names in memory.
    pub(super) fn len(&self) -> usize {
        self.inodes.len() + self.names + self.xattrs.len() + self.lists_len
    }

    /// Lets go of names that were removed, and makes room if there is none.
    pub(super) fn tidy(&mut self, durable: u64) {
        let horizon = self.horizon(durable);
        while self
            .removed
            .front()
            .is_some_and(|(batch, ..)| *batch <= horizon)
        {
            let Some((batch, directory, spot)) = self.removed.pop_front() else {
                break;
            };
            // Only where it is known that what is not here does not exist.
            if let Some(folder) = self.folders.get_mut(&directory)
                && folder.is_known(spot.0)
                && folder
                    .names
                    .get(&spot)
                    .is_some_and(|l| l.inode.is_none() && l.batch == batch)
            {
                folder.names.remove(&spot);
                self.names -= 1;
            }
        }
        let entries_max = self.entries_max.unwrap_or(NAMESPACE_CACHE_ENTRIES_MAX);
        if self.len() > entries_max {
            self.make_room(entries_max - entries_max / ROOM_PARTS, horizon);
        }
    }

    fn make_room(&mut self, entries_max: usize, horizon: u64) {
        self.xattrs.retain(|_, (_, batch)| *batch > horizon);
        self.lists.retain(|_, (_, batch)| *batch > horizon);
        self.lists_len = self.lists.values().map(|(list, _)| list_len(list)).sum();
        // Inodes without a place in a directory, and those that are gone.
        self.inodes.retain(|number, slot| {
            let is_here = slot.place == Place::Here || slot.inode.is_none();
            slot.batch > horizon || !is_here || *number == ROOT
        });
        let mut by_use: Vec<_> = self.folders.iter().map(|(at, f)| (f.used, *at)).collect();
        by_use.sort_unstable();
        for (_, directory) in by_use {
            if self.len() <= entries_max {
                return;
            }
            self.let_go(directory, horizon);
        }
        // Inodes that were found by their handles alone.
        if self.len() > entries_max {
            self.inodes
                .retain(|number, slot| slot.batch > horizon || *number == ROOT);
        }
    }

    fn let_go(&mut self, directory: u64, horizon: u64) {
        let Some(folder) = self.folders.get_mut(&directory) else {
            return;
        };
        let before = folder.names.len();
        let inodes = &mut self.inodes;
        folder.names.retain(|_, link| {
            if let Some((inode, _)) = link.inode
                && inodes.get(&inode).is_some_and(|slot| slot.batch <= horizon)
            {
                inodes.remove(&inode);
            }
            link.batch > horizon
        });
        folder.known = None;
        self.names -= before - folder.names.len();
        if folder.names.is_empty() {
            self.folders.remove(&directory);
        }
    }

    /// Everything is read anew.
    pub(super) fn clear(&mut self) {
        let (reading, entries_max) = (self.reading, self.entries_max);
        *self = Self {
            reading,
            entries_max,
            ..Self::default()
        };
    }
}

/// As how many inodes a rich ACL counts.
fn list_len(list: &Option<Arc<RichRecord>>) -> usize {
    1 + list.as_ref().map_or(0, |list| list.weight() / LIST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(hash: u64) -> Spot {
        (hash, Some(Name::new(format!("n{hash}")).unwrap()))
    }

    fn link(inode: u64, batch: u64) -> Link {
        Link {
            inode: Some((inode, FileKind::File)),
            batch,
        }
    }

    #[test]
    fn what_is_read_never_replaces_what_was_changed_since_the_reading_began() {
        let mut cache = Cache::new(100);
        let reading = cache.begin_reading(4);
        let gone = Link {
            inode: None,
            batch: 5,
        };
        cache.put_name(1, spot(7), gone);
        cache.tidy(5);
        cache.learn_name(1, spot(7), Some((70, FileKind::File)));
        assert!(cache.folder(1).unwrap().names[&spot(7)].inode.is_none());
        assert!(cache.end_reading(reading));
        cache.learn_names(1, 0, 10);
        cache.put_name(
            1,
            spot(8),
            Link {
                inode: None,
                batch: 6,
            },
        );
        cache.tidy(5);
        assert!(cache.folder(1).unwrap().names.contains_key(&spot(8)));
        cache.tidy(6);
        assert!(!cache.folder(1).unwrap().names.contains_key(&spot(8)));
    }

    #[test]
    fn memory_is_bounded_and_keeps_what_is_not_durable() {
        let mut cache = Cache::new(80);
        for directory in 1..=10 {
            for hash in 0..10 {
                let batch = if directory == 1 { 9 } else { 3 };
                cache.put_name(directory, spot(hash), link(100 * directory + hash, batch));
            }
            cache.learn_names(directory, 0, 10);
            cache.tidy(5);
            assert!(cache.len() <= 80);
        }
        assert_eq!(cache.folder(1).unwrap().names.len(), 10);
        assert!(cache.folder(1).unwrap().known.is_none() || cache.folder(2).is_none());
        assert!(cache.folder(2).is_none() && cache.folder(10).is_some());
        let reading = cache.begin_reading(5);
        cache.clear();
        assert!(!cache.end_reading(reading) && cache.len() == 0);
    }

    #[test]
    fn intervals_grow_where_they_meet() {
        let mut folder = Folder::default();
        folder.learn(0, 10);
        folder.learn(11, 20);
        assert_eq!(folder.known, Some((0, 20)));
        folder.learn(30, 40);
        assert_eq!(folder.known, Some((30, 40)));
        folder.learn(0, u64::MAX);
        assert!(folder.is_known(u64::MAX) && folder.is_known(0));
    }
}
