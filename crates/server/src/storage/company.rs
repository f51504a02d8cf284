//! Stores of this server that lie on one disk.
//!
//! Each has a calibration of its own and a dispatcher of its own, and knows nothing of the others'
//! requests. What was measured of each alone is there once for all of them: an equal part is
//! promised of each ([`super::Plan::shared_by`]), and those that have something to do have equal
//! parts of what the disk holds at once. So up to four of them give it no more than one store does,
//! and each has its part whatever is asked of the others. Idle ones leave theirs to the rest; one
//! that has just become busy finds at the disk what the others have given it before.
//!
//! Stores of different servers, exports, and whatever else uses the disk are not seen.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::device::{Disk, disk_of};

/// The stores of one disk.
#[derive(Debug)]
pub(super) struct Company {
    sharers: u32,
    /// How many of them have something for the disk.
    busy: AtomicU32,
}

impl Company {
    fn new(sharers: u32) -> Arc<Self> {
        Arc::new(Self {
            sharers,
            busy: AtomicU32::new(0),
        })
    }

    /// That of a device which shares its disk with none.
    pub(super) fn alone() -> Arc<Self> {
        Self::new(1)
    }

    /// For each path of a store its company. One whose disk is not known has one of its own.
    pub(super) fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<Arc<Self>> {
        let disks: Vec<Option<Disk>> = paths.map(|path| disk_of(path).ok()).collect();
        let mut counts = BTreeMap::new();
        for disk in disks.iter().flatten() {
            *counts.entry(*disk).or_insert(0) += 1;
        }
        let companies = counts.into_iter();
        let companies: BTreeMap<Disk, Arc<Self>> = companies
            .map(|(disk, count)| (disk, Self::new(count)))
            .collect();
        let company = |disk: Option<Disk>| disk.and_then(|disk| companies.get(&disk).cloned());
        let all = disks.into_iter();
        all.map(|disk| company(disk).unwrap_or_else(Self::alone))
            .collect()
    }

    /// How many there are.
    pub(super) fn sharers(&self) -> u32 {
        self.sharers
    }
}

/// One store's word in its company.
#[derive(Debug)]
pub(super) struct Companion {
    company: Arc<Company>,
    is_busy: bool,
}

impl Companion {
    pub(super) fn new(company: Arc<Company>) -> Self {
        Self {
            company,
            is_busy: false,
        }
    }

    /// Says whether it has something to do; hears how many have.
    pub(super) fn say(&mut self, is_busy: bool) -> u32 {
        let busy = &self.company.busy;
        if std::mem::replace(&mut self.is_busy, is_busy) != is_busy {
            match is_busy {
                true => busy.fetch_add(1, Ordering::Relaxed),
                false => busy.fetch_sub(1, Ordering::Relaxed),
            };
        }
        busy.load(Ordering::Relaxed)
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.say(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_of_one_disk_are_a_company_and_hear_who_is_busy() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "none"].map(|name| directory.path().join(name));
        for path in &paths[..2] {
            std::fs::write(path, "").unwrap();
        }
        let found = Company::of(paths.iter().map(|path| path.as_path()));
        let sharers: Vec<u32> = found.iter().map(|company| company.sharers()).collect();
        assert_eq!(sharers, [2, 2, 1]);
        assert!(Arc::ptr_eq(&found[0], &found[1]));
        let [mut one, mut other] = [0, 1].map(|at: usize| Companion::new(found[at].clone()));
        assert_eq!((one.say(true), one.say(true)), (1, 1));
        assert_eq!((other.say(false), other.say(true)), (1, 2));
        drop(one);
        assert_eq!((other.say(true), other.say(false)), (1, 0));
    }
}
