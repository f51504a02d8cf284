//! Lists in memory: which file has which, and each list once.
//!
//! *By file.* An answer is good for one `ctime`: whatever changes an inode's attributes, extended
//! ones included, moves that. But a clock has ticks, and two changes within one tick look like one.
//! So an answer is kept only if the `ctime` lay more than a tick back when it was read (as git(1)
//! does with its index). That an inode has no list is an answer, too.
//!
//! *By bytes.* Files mostly share few lists, and equal lists are equal bytes, so each is parsed and
//! kept once (the paper's section 4: a cache of distinct ACLs).
//!
//! *Bounded* by two generations in each table: what is used moves into the young one, and when that
//! is full the old one is dropped. No entry is written down twice, and nothing is swept.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information, 4.2.

use super::StoredList;
use base::limits::{ACL_CACHE_BYTES_MAX, ACL_CACHE_FILES_MAX};
use base::{FsError, Handle, Timestamp};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tables by file, so that threads seldom meet at a lock.
const SHARDS: usize = 16;
/// Longest tick of the clock that dates changes: 10 ms with 100 Hz, doubled.
const TICK: Duration = Duration::from_millis(20);
/// Bytes of a parsed entry for each byte of a stored one, at most.
const LIST_BYTES_FACTOR: usize = 12;

/// What is known of one file.
#[derive(Clone)]
struct OfFile {
    changed: Timestamp,
    list: Option<Arc<StoredList>>,
}

/// Two generations of entries, each of at most so much weight.
pub(super) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    young_weight: usize,
    weight_max: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Generations<K, V> {
    pub(super) fn new(weight_max: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            young_weight: 0,
            weight_max,
        }
    }

    fn get<Q>(&mut self, key: &Q, weight: impl FnOnce(&V) -> usize) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        let weight = weight(&value);
        self.insert(key, value.clone(), weight);
        Some(value)
    }

    fn insert(&mut self, key: K, value: V, weight: usize) {
        if self.young_weight + weight > self.weight_max {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
        self.old.remove(&key);
        // What is replaced counts until the next generation; that is at most too early.
        self.young_weight += weight;
        self.young.insert(key, value);
    }

    /// Changes what is kept under a key, which begins as the default; each counts as one.
    pub(super) fn update<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        if let Some(value) = self.young.get_mut(key) {
            return change(value);
        }
        let mut value = self.old.remove(key).unwrap_or_default();
        let result = change(&mut value);
        self.insert(key.clone(), value, 1);
        result
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// See the module's head.
pub(crate) struct Lists {
    files: Box<[Mutex<Generations<Handle, OfFile>>]>,
    distinct: Mutex<Generations<Box<[u8]>, Arc<StoredList>>>,
}

impl Default for Lists {
    fn default() -> Self {
        let of_shard = || Mutex::new(Generations::new(ACL_CACHE_FILES_MAX / SHARDS / 2));
        Self {
            files: (0..SHARDS).map(|_| of_shard()).collect(),
            distinct: Mutex::new(Generations::new(ACL_CACHE_BYTES_MAX / 2)),
        }
    }
}

impl Lists {
    /// The list of a file that was last changed at `changed`; `read` gets its bytes if need be.
    ///
    /// # Errors
    /// Those of `read`; nothing is remembered then.
    pub(crate) fn get(
        &self,
        handle: &Handle,
        changed: Timestamp,
        read: impl FnOnce() -> Result<Option<Vec<u8>>, FsError>,
    ) -> Result<Option<Arc<StoredList>>, FsError> {
        let known = self.shard(handle).get(handle, weight);
        if let Some(known) = known
            && known.changed == changed
        {
            return Ok(known.list);
        }
        let is_settled = is_past(changed, SystemTime::now());
        let list = read()?.map(|bytes| self.distinct(bytes));
        if is_settled {
            let known = OfFile {
                changed,
                list: list.clone(),
            };
            let weight = weight(&known);
            self.shard(handle).insert(handle.clone(), known, weight);
        }
        Ok(list)
    }

    /// How many files something is known of.
    pub(crate) fn len(&self) -> usize {
        self.files.iter().map(|shard| lock(shard).len()).sum()
    }

    fn distinct(&self, bytes: Vec<u8>) -> Arc<StoredList> {
        let mut distinct = lock(&self.distinct);
        if let Some(known) = distinct.get(&*bytes, |_| bytes.len() * LIST_BYTES_FACTOR) {
            return known;
        }
        let list = Arc::new(StoredList::read(&bytes));
        let weight = bytes.len() * LIST_BYTES_FACTOR;
        distinct.insert(bytes.into(), list.clone(), weight);
        list
    }

    fn shard(&self, handle: &Handle) -> MutexGuard<'_, Generations<Handle, OfFile>> {
        // The end of a handle is an authentication code, as good as any hash.
        let last = handle.as_bytes().last().copied().unwrap_or_default();
        lock(&self.files[usize::from(last) % SHARDS])
    }
}

/// An entry of a file counts as one; a list that only it has is bounded with it, because a file's
/// own list has at most as many bytes as an attribute.
fn weight(known: &OfFile) -> usize {
    let own = known.list.as_ref().and_then(|list| list.parsed());
    1 + own.map_or(0, |stored| stored.acl().aces().len() / 8)
}

/// Whether changes of this time can be told from those that come now.
fn is_past(changed: Timestamp, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Ok(seconds) = u64::try_from(changed.seconds) else {
        return true;
    };
    let changed = Duration::new(seconds, changed.nanos);
    // A time that is still to come is no reason to believe either.
    changed + TICK < now
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn handle(number: u32) -> Handle {
        Handle::new(&number.to_le_bytes()).expect("short")
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    #[test]
    fn an_answer_is_good_for_one_time_of_change_that_is_past() {
        let lists = Lists::default();
        let reads = Cell::new(0);
        let read = || {
            reads.set(reads.get() + 1);
            Ok(None)
        };
        for _ in 0..3 {
            lists.get(&handle(1), at(1000), read).expect("read");
        }
        assert_eq!(reads.get(), 1);
        lists.get(&handle(1), at(1001), read).expect("read");
        assert_eq!(reads.get(), 2);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let now = at(i64::try_from(now.as_secs()).expect("soon") + 60);
        for _ in 0..3 {
            lists.get(&handle(2), now, read).expect("read");
        }
        assert_eq!(reads.get(), 5, "a change of this moment is not believed");
        let failed = lists.get(&handle(3), at(1000), || Err(FsError::Io));
        assert_eq!(failed.err(), Some(FsError::Io));
        lists.get(&handle(3), at(1000), read).expect("read");
        assert_eq!(reads.get(), 6, "an error is not remembered");
    }

    #[test]
    fn memory_is_bounded_whatever_is_asked_for() {
        let lists = Lists::default();
        for number in 0..3 * ACL_CACHE_FILES_MAX as u32 {
            lists
                .get(&handle(number), at(1), || Ok(None))
                .expect("read");
        }
        assert!(lists.len() <= ACL_CACHE_FILES_MAX, "{}", lists.len());
    }
}
