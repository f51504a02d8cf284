//! Lists in memory: which file has which, and each list once. A list is a file's truth, or what is
//! shown of its mode and POSIX ACL.
//!
//! *By file.* An answer is good for one `ctime`: whatever changes an inode's attributes, extended
//! ones included, moves that. But a clock has ticks, and two changes within one tick look like one.
//! So an answer is kept only if the `ctime` lay more than a tick back when it was read (as git(1)
//! does with its index). A file system that keeps whole seconds has ticks of a second. That an
//! inode has no list is an answer, too. A view is kept with it, for as long as the same rules for
//! storing views are in force: whoever changes these wants to have views stored, or not, and a look
//! that is answered from here asks for nothing.
//!
//! *By bytes.* Files mostly share few lists, and equal lists are equal bytes, so each is parsed, or
//! converted, and kept once (the paper's section 4: a cache of distinct ACLs).
//!
//! *Bounded* by two generations in each table: what is used moves into the young one, and when that
//! is full the old one is dropped. No entry is written down twice, and nothing is swept.
//!
//! An export can be opened without any of this ([`crate::ExportOptions::keeps_lists`]): then each
//! request reads what lies beside the file, which is what the paper calls *no cache*.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information, 4.2.

use super::StoredList;
use acl::RichAcl;
use base::limits::{ACL_CACHE_BYTES_MAX, ACL_CACHE_FILES_MAX};
use base::{FsError, Handle, QuickMap, Timestamp};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tables by file, so that threads seldom meet at a lock.
const SHARDS: usize = 16;
/// Longest tick of the clock that dates changes: 10 ms with 100 Hz, doubled.
const TICK: Duration = Duration::from_millis(20);
/// How much longer it is where times have no part of a second: ext4 with inodes of 128 bytes.
const WHOLE_SECOND: Duration = Duration::from_secs(1);
/// Bytes of a parsed entry for each byte of a stored one, at most.
const LIST_BYTES_FACTOR: usize = 12;

/// What is known of one file.
#[derive(Clone)]
struct OfFile {
    changed: Timestamp,
    list: Option<Arc<StoredList>>,
    /// What is shown of a file without a list, and under which rules for storing that was made.
    view: Option<(u64, Arc<RichAcl>)>,
}

/// A file at one time of change, of which the view may be in memory.
#[derive(Clone, Copy)]
pub(super) struct OfView<'a> {
    handle: &'a Handle,
    changed: Timestamp,
    /// The number of the rules for storing views that are in force.
    rules: u64,
    /// Whether what is read from now on may be kept.
    pub(super) is_settled: bool,
}

/// Two generations of entries, each of at most so much weight.
pub(super) struct Generations<K, V> {
    young: QuickMap<K, V>,
    old: QuickMap<K, V>,
    young_weight: usize,
    weight_max: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Generations<K, V> {
    pub(super) fn new(weight_max: usize) -> Self {
        Self {
            young: QuickMap::default(),
            old: QuickMap::default(),
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
    is_kept: bool,
    files: Box<[Mutex<Generations<Handle, OfFile>>]>,
    distinct: Mutex<Generations<Box<[u8]>, Arc<StoredList>>>,
    views: Mutex<Generations<Box<[u8]>, Arc<RichAcl>>>,
}

impl Lists {
    /// Keeps what it is asked for, or nothing.
    pub(super) fn new(is_kept: bool) -> Self {
        let of_shard = || Mutex::new(Generations::new(ACL_CACHE_FILES_MAX / SHARDS / 2));
        // Lists and views have a half each, in two generations.
        let bytes_max = ACL_CACHE_BYTES_MAX / 4;
        Self {
            is_kept,
            files: (0..SHARDS).map(|_| of_shard()).collect(),
            distinct: Mutex::new(Generations::new(bytes_max)),
            views: Mutex::new(Generations::new(bytes_max)),
        }
    }

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
        let is_settled = self.is_settled(changed);
        let list = read()?.map(|bytes| self.distinct(bytes));
        if is_settled {
            let known = OfFile {
                changed,
                list: list.clone(),
                view: None,
            };
            let weight = weight(&known);
            self.shard(handle).insert(handle.clone(), known, weight);
        }
        Ok(list)
    }

    /// Whether what is read of a file that was last changed at `changed` may be kept.
    fn is_settled(&self, changed: Timestamp) -> bool {
        self.is_kept && is_past(changed, SystemTime::now())
    }

    /// The view of a file that was last changed at `changed`, made under rules for storing with
    /// this number; or where to keep one that is made of what is read from now on.
    pub(super) fn view<'a>(
        &self,
        handle: &'a Handle,
        changed: Timestamp,
        rules: u64,
    ) -> Result<Arc<RichAcl>, OfView<'a>> {
        let known = self.shard(handle).get(handle, weight);
        let view = known.filter(|known| known.changed == changed);
        match view.and_then(|known| known.view) {
            Some((made_under, view)) if made_under == rules => Ok(view),
            _ => Err(OfView {
                handle,
                changed,
                rules,
                is_settled: self.is_settled(changed),
            }),
        }
    }

    /// Keeps the view of a file that is known to have no list, if that is settled; `made_of` are
    /// all the bytes that it depends on.
    pub(super) fn keep_view(&self, of: &OfView<'_>, made_of: Box<[u8]>, view: &Arc<RichAcl>) {
        if !of.is_settled {
            return;
        }
        let view = self.distinct_view(made_of, view);
        let mut shard = self.shard(of.handle);
        let is_known = |known: OfFile| known.changed == of.changed && known.list.is_none();
        if !shard.get(of.handle, weight).is_some_and(is_known) {
            return;
        }
        let more = entries_weight(&view);
        if let Some(known) = shard.young.get_mut(of.handle) {
            known.view = Some((of.rules, view));
            shard.young_weight += more;
        }
    }

    fn distinct_view(&self, made_of: Box<[u8]>, view: &Arc<RichAcl>) -> Arc<RichAcl> {
        let bytes = made_of.len();
        let weight = |view: &Arc<RichAcl>| bytes + size_of_val(view.aces());
        let mut views = lock(&self.views);
        match views.get(&*made_of, weight) {
            Some(known) if *known == **view => return known,
            // One of them was stored by somebody who deceives: it stays with its own file.
            Some(_) => return view.clone(),
            None => {}
        }
        views.insert(made_of, view.clone(), weight(view));
        view.clone()
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
    let own = own.map(acl::Stored::acl);
    let view = known.view.as_ref().map(|(_, view)| &**view);
    1 + own.or(view).map_or(0, entries_weight)
}

fn entries_weight(list: &RichAcl) -> usize {
    list.aces().len() / 8
}

/// Whether changes of this time can be told from those that come now.
fn is_past(changed: Timestamp, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Ok(seconds) = u64::try_from(changed.seconds) else {
        return true;
    };
    let tick = match changed.nanos {
        0 => TICK + WHOLE_SECOND,
        _ => TICK,
    };
    let changed = Duration::new(seconds, changed.nanos);
    // A time that is still to come is no reason to believe either.
    changed + tick < now
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::limits::XATTR_BYTES_MAX;
    use std::cell::Cell;

    fn handle(number: u32) -> Handle {
        Handle::new(&number.to_le_bytes()).expect("short")
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    #[test]
    fn an_answer_is_good_for_one_time_of_change_that_is_past() {
        let lists = Lists::new(true);
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
    fn whole_seconds_are_past_when_the_second_is() {
        let after = |millis| UNIX_EPOCH + Duration::from_secs(1000) + Duration::from_millis(millis);
        let [whole, part] = [0, 1].map(|nanos| Timestamp {
            seconds: 1000,
            nanos,
        });
        let found = [10, 500, 1010, 1500].map(|millis| is_past(whole, after(millis)));
        assert_eq!(found, [false, false, false, true]);
        let found = [10, 500].map(|millis| is_past(part, after(millis)));
        assert_eq!(found, [false, true]);
    }

    fn view(lists: &Lists, number: u32, changed: i64, rules: u64) -> Option<Arc<RichAcl>> {
        lists.view(&handle(number), at(changed), rules).ok()
    }

    /// As an export does it: whether there is a list is asked first.
    fn keep(lists: &Lists, number: u32, changed: i64, rules: u64, made_of: &[u8]) {
        let (handle, changed) = (handle(number), at(changed));
        lists.get(&handle, changed, || Ok(None)).expect("read");
        let of = lists.view(&handle, changed, rules);
        let list = Arc::new(RichAcl::new(Vec::new()).expect("short"));
        lists.keep_view(&of.expect_err("it is not kept"), made_of.into(), &list);
    }

    #[test]
    fn a_view_is_good_for_one_time_of_change_and_one_set_of_rules() {
        let lists = Lists::new(true);
        keep(&lists, 1, 1000, 7, b"a");
        keep(&lists, 2, 2000, 7, b"a");
        let [one, two] = [(1, 1000), (2, 2000)].map(|(number, changed)| {
            let view = view(&lists, number, changed, 7);
            view.expect("it is kept")
        });
        assert!(Arc::ptr_eq(&one, &two), "made of the same, and kept once");
        assert!(view(&lists, 1, 1001, 7).is_none(), "it was changed");
        assert!(view(&lists, 1, 1000, 8).is_none(), "other rules");
        keep(&lists, 1, 1000, 8, b"b");
        assert!(view(&lists, 1, 1000, 8).is_some());
        // Not known whether it has a list, and known no more.
        let third = handle(3);
        let of = lists.view(&third, at(1000), 7).expect_err("unknown");
        lists.keep_view(&of, (*b"c").into(), &one);
        assert!(view(&lists, 3, 1000, 7).is_none());
        let none = Lists::new(false);
        keep(&none, 1, 1000, 7, b"a");
        assert!(view(&none, 1, 1000, 7).is_none());
        assert_eq!(none.len(), 0);
    }

    #[test]
    fn memory_is_bounded_whatever_is_asked_for() {
        let lists = Lists::new(true);
        for number in 0..3 * ACL_CACHE_FILES_MAX as u32 {
            lists
                .get(&handle(number), at(1), || Ok(None))
                .expect("read");
        }
        assert!(lists.len() <= ACL_CACHE_FILES_MAX, "{}", lists.len());
        for number in 0..3 * ACL_CACHE_FILES_MAX as u32 {
            keep(&lists, number, 2, 1, &number.to_le_bytes());
        }
        assert!(lists.len() <= ACL_CACHE_FILES_MAX, "{}", lists.len());
        let mut made_of = vec![0; XATTR_BYTES_MAX];
        for number in 0..(ACL_CACHE_BYTES_MAX / XATTR_BYTES_MAX) as u32 {
            made_of[..4].copy_from_slice(&number.to_le_bytes());
            keep(&lists, number, 3, 1, &made_of);
        }
        let bytes = lock(&lists.views).young.len() * XATTR_BYTES_MAX;
        assert!(bytes > 0 && bytes <= ACL_CACHE_BYTES_MAX / 4, "{bytes}");
    }
}
