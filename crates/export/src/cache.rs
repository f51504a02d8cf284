//! A bounded cache of `O_PATH` descriptors by handle.
//!
//! Sharded, so that workers seldom meet at a lock; each shard is a clock (second-chance) list: a
//! hit costs one flag, and a scan over many files that are each asked for once pushes out what was
//! not used since the hand last came by, not the directories that are used all the time.
//!
//! Only genuine handles are put in, and a hit compares all bytes of the handle, so a hit needs no
//! further check of the authentication code. For the same reason the last eight bytes of a handle
//! are as good as any hash of it: a client cannot choose them for a handle that gets in.

use base::{FileKind, Handle};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards; a power of two, several times the number of worker threads that run at once.
const SHARDS: usize = 32;

/// An inode held by an `O_PATH` descriptor. Its kind never changes.
#[derive(Debug)]
pub(crate) struct Pin {
    fd: OwnedFd,
    kind: FileKind,
}

impl Pin {
    pub(crate) fn new(fd: OwnedFd, kind: FileKind) -> Self {
        Self { fd, kind }
    }

    pub(crate) fn kind(&self) -> FileKind {
        self.kind
    }
}

impl AsFd for Pin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes the authentication code at the end of a handle as its hash.
#[derive(Default)]
struct CodeHasher(u64);

impl Hasher for CodeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .last_chunk()
            .map_or(self.0, |code| u64::from_le_bytes(*code));
    }

    fn write_usize(&mut self, _length: usize) {}
}

struct Slot {
    handle: Handle,
    pin: Arc<Pin>,
    used: bool,
}

#[derive(Default)]
struct Shard {
    index: HashMap<Handle, usize, BuildHasherDefault<CodeHasher>>,
    slots: Vec<Slot>,
    hand: usize,
}

impl Shard {
    /// Takes out the slot at `place`; the last one moves there.
    fn take(&mut self, place: usize) -> Arc<Pin> {
        let slot = self.slots.swap_remove(place);
        self.index.remove(&slot.handle);
        if let Some(moved) = self.slots.get(place) {
            *self
                .index
                .get_mut(&moved.handle)
                .expect("every slot is indexed") = place;
        }
        slot.pin
    }

    /// Moves the hand to the next slot that was not used since it last came by, and takes that out.
    fn evict(&mut self) -> Option<Arc<Pin>> {
        // One round clears every flag, so the second finds a slot.
        for _ in 0..=2 * self.slots.len() {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = self.slots.get_mut(self.hand)?;
            if !std::mem::take(&mut slot.used) {
                return Some(self.take(self.hand));
            }
            self.hand += 1;
        }
        None
    }
}

/// See the module's head.
pub(crate) struct DescriptorCache {
    shards: Box<[Mutex<Shard>]>,
    shard_slots_max: usize,
}

impl DescriptorCache {
    /// A cache of at most `descriptors_max` descriptors, rounded down to a multiple of the shards
    /// and at least one per shard.
    pub(crate) fn new(descriptors_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_slots_max: (descriptors_max / SHARDS).max(1),
        }
    }

    fn shard(&self, handle: &Handle) -> MutexGuard<'_, Shard> {
        let last = handle.as_bytes().last().copied().unwrap_or(0);
        // A panic elsewhere cannot leave a shard half changed: nothing in here runs foreign code.
        self.shards[usize::from(last) % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, handle: &Handle) -> Option<Arc<Pin>> {
        let mut shard = self.shard(handle);
        let place = *shard.index.get(handle)?;
        let slot = &mut shard.slots[place];
        slot.used = true;
        Some(Arc::clone(&slot.pin))
    }

    /// Keeps `pin` under `handle`, unless one is there already; returns the one that is kept.
    pub(crate) fn insert(&self, handle: &Handle, pin: Pin) -> Arc<Pin> {
        let pin = Arc::new(pin);
        let mut shard = self.shard(handle);
        if let Some(&place) = shard.index.get(handle) {
            return Arc::clone(&shard.slots[place].pin);
        }
        let evicted = if shard.slots.len() >= self.shard_slots_max {
            shard.evict()
        } else {
            None
        };
        let place = shard.slots.len();
        shard.index.insert(handle.clone(), place);
        shard.slots.push(Slot {
            handle: handle.clone(),
            pin: Arc::clone(&pin),
            used: false,
        });
        drop(shard);
        // Closing a descriptor can free an inode, which takes time that belongs outside the lock.
        drop(evicted);
        pin
    }

    pub(crate) fn remove(&self, handle: &Handle) {
        let mut shard = self.shard(handle);
        let removed = shard
            .index
            .get(handle)
            .copied()
            .map(|place| shard.take(place));
        drop(shard);
        drop(removed);
    }

    /// Drops an eighth of all descriptors, for when the process has run out of them.
    pub(crate) fn shrink(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let count = shard.slots.len().div_ceil(8);
            let evicted: Vec<_> = (0..count).map_while(|_| shard.evict()).collect();
            drop(shard);
            drop(evicted);
        }
    }

    /// Drops every descriptor for which `dead` holds. `dead` runs without a lock being held.
    pub(crate) fn retain_living(&self, dead: impl Fn(&Pin) -> bool) {
        for shard in &self.shards {
            let lock = || shard.lock().unwrap_or_else(PoisonError::into_inner);
            let pins: Vec<_> = lock()
                .slots
                .iter()
                .map(|s| (s.handle.clone(), Arc::clone(&s.pin)))
                .collect();
            for (handle, pin) in pins {
                if dead(&pin) {
                    self.remove(&handle);
                }
            }
        }
    }

    /// How many descriptors there are.
    pub(crate) fn len(&self) -> usize {
        let count = |shard: &Mutex<Shard>| {
            shard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .slots
                .len()
        };
        self.shards.iter().map(count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u64) -> Handle {
        // Spread like the codes that real handles end with.
        let code = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        Handle::new(&[&b"handle"[..], &code.to_le_bytes()].concat()).expect("short")
    }

    fn pin() -> Pin {
        let fd = std::fs::File::open("/dev/null")
            .expect("there is a null device")
            .into();
        Pin::new(fd, FileKind::CharDevice)
    }

    #[test]
    fn it_never_holds_more_than_its_bound() {
        let cache = DescriptorCache::new(64);
        for number in 0..1000 {
            cache.insert(&handle(number), pin());
            assert!(cache.len() <= 64);
        }
        assert!(
            cache.len() > 32,
            "all shards are in use, {} slots",
            cache.len()
        );
    }

    #[test]
    fn what_is_used_stays_while_a_scan_goes_by() {
        let cache = DescriptorCache::new(128);
        let hot: Vec<_> = (0..16).map(handle).collect();
        for handle in &hot {
            cache.insert(handle, pin());
        }
        for number in 100..5000 {
            cache.insert(&handle(number), pin());
            if number % 8 == 0 {
                hot.iter().for_each(|handle| drop(cache.get(handle)));
            }
        }
        let kept = hot
            .iter()
            .filter(|handle| cache.get(handle).is_some())
            .count();
        assert_eq!(kept, hot.len());
    }

    #[test]
    fn the_index_agrees_with_the_slots_after_any_removal() {
        let cache = DescriptorCache::new(4096);
        for number in 0..500 {
            cache.insert(&handle(number), pin());
        }
        for number in (0..500).step_by(3) {
            cache.remove(&handle(number));
        }
        for number in 0..500 {
            assert_eq!(
                cache.get(&handle(number)).is_some(),
                number % 3 != 0,
                "{number}"
            );
        }
        let before = cache.len();
        cache.shrink();
        assert!(cache.len() < before);
        cache.retain_living(|_| true);
        assert_eq!(cache.len(), 0);
    }
}
