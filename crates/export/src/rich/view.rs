//! The rich ACL that is shown of a file whose truth is POSIX: a view, made when somebody looks, or
//! read where it was stored.
//!
//! A stored view ([`VIEW`]) is a copy and nothing else. It says what it was made of, permission
//! bits and a digest of the POSIX ACLs, and is used only if that is what is there now; both are
//! read each time. So it does not matter who has changed what behind the server's back, in which
//! order, or whether a view was written before or after: a view that is not of the present ACLs is
//! as good as none, and so is one that is damaged. For the same reason nothing is written in any
//! order: storing is one system call, and takes nothing from anybody.
//!
//! Whether a view is stored is the policy's to say ([`acl::Policy`]), by how often it was asked
//! for. Counting and asking happen on the request's way and take no system call; storing does not
//! (`store`).
//!
//! Stored or not, what was shown is kept in memory ([`super::cache`]), and is shown from there
//! while the file's time of change is the same. Such a look is no access in the policy's sense.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information, 3.3.

use super::cache::Generations;
use super::edit::refused;
use super::store::{Queue, Rest};
use super::{RichFile, STORED_BYTES_USUAL, target_of};
use crate::change::descriptor_path;
use crate::errno::fs_error;
use crate::export::Export;
use acl::{Before, Costs, Policy, PosixAcl, PosixFile, RichAcl, Rights, Source, Stored, UnixIds};
use base::limits::{ACL_VIEWS_COUNTED_MAX, XATTR_BYTES_MAX};
use base::{Attributes, FileKind, FsError, Handle};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Where a view is stored. It is another name than that of a truth, so that a view that is damaged,
/// or of a newer release, is known to be one and closes nothing.
pub(super) const VIEW: &str = "security.azekura.view";
pub(super) const ACCESS: &str = "system.posix_acl_access";
pub(super) const DEFAULT: &str = "system.posix_acl_default";
/// Tables of counts by file, so that threads seldom meet at a lock.
const SHARDS: usize = 16;
/// Entries that a mode has.
const MODE_ENTRIES: u32 = 3;

/// Mode and POSIX ACLs of a file.
pub(super) struct Posix {
    pub(super) values: Values,
    access: Option<PosixAcl>,
    default: Option<PosixAcl>,
}

/// POSIX ACLs as the kernel gives them.
pub(super) struct Values {
    pub(super) access: Option<Vec<u8>>,
    pub(super) default: Option<Vec<u8>>,
}

/// All that a view depends on; whose the file is it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MadeOf {
    mode: u16,
    source: Source,
}

impl Values {
    pub(super) fn made_of(&self, attributes: &Attributes) -> MadeOf {
        MadeOf {
            mode: attributes.mode & 0o777,
            source: Source::of_values(self.access.as_deref(), self.default.as_deref()),
        }
    }

    /// All that a view depends on, as bytes that no other values have.
    fn bytes(&self, attributes: &Attributes) -> Box<[u8]> {
        let is_directory = attributes.kind == FileKind::Directory;
        let mut bytes = (attributes.mode & 0o777).to_le_bytes().to_vec();
        bytes.push(u8::from(is_directory));
        for value in [&self.access, &self.default] {
            bytes.push(u8::from(value.is_some()));
            let value = value.as_deref().unwrap_or_default();
            bytes.extend(value.len().to_le_bytes());
            bytes.extend(value);
        }
        bytes.into()
    }

    /// How many entries there are to convert.
    pub(super) fn entries(&self) -> u32 {
        let count = |value: &Option<Vec<u8>>| {
            let bytes = value
                .as_ref()
                .map_or(0, |value| value.len().saturating_sub(4));
            u32::try_from(bytes / 8).unwrap_or(u32::MAX)
        };
        count(&self.access).max(MODE_ENTRIES) + count(&self.default)
    }

    pub(super) fn parse(self) -> Result<Posix, FsError> {
        // What the kernel has cannot be wrong; if it is, nothing is shown that could be wider.
        let parse = |value: &Option<Vec<u8>>| match value {
            Some(value) => PosixAcl::from_xattr(value).map_err(|_| FsError::Io),
            None => Ok(None),
        };
        Ok(Posix {
            access: parse(&self.access)?,
            default: parse(&self.default)?,
            values: self,
        })
    }
}

impl Posix {
    /// As they were before a file got its first rich ACL.
    pub(super) fn of_before(before: &Before) -> Result<Self, FsError> {
        let values = Values {
            access: before.access.clone(),
            default: before.default.clone(),
        };
        values.parse()
    }

    pub(super) fn file<'a>(&'a self, attributes: &Attributes) -> PosixFile<'a> {
        PosixFile {
            uid: attributes.uid,
            gid: attributes.gid,
            mode: attributes.mode & 0o777,
            access: self.access.as_ref(),
        }
    }

    pub(super) fn view(&self, attributes: &Attributes) -> RichAcl {
        let is_directory = attributes.kind == FileKind::Directory;
        RichAcl::view(&self.file(attributes), self.default.as_ref(), is_directory)
    }

    /// Whether a list that is the truth says what the view would.
    pub(super) fn is_shown_by(&self, list: &RichAcl, attributes: &Attributes) -> bool {
        let is_directory = attributes.kind == FileKind::Directory;
        list.is_view_of(&self.file(attributes), self.default.as_ref(), is_directory)
    }
}

impl MadeOf {
    /// A view that was made of this, as bytes.
    pub(super) fn stored(self, view: RichAcl) -> Result<Vec<u8>, FsError> {
        let stored = Stored::view(view, self.mode, self.source);
        stored.to_bytes().map_err(|error| refused(&error))
    }

    /// The list in `bytes`, if it is a view of this, of a file or of a directory.
    fn read(self, bytes: &[u8], is_directory: bool) -> Option<RichAcl> {
        let stored = Stored::from_bytes(bytes).ok()?;
        if (stored.mode(), stored.source()) != (Some(self.mode), Some(self.source)) {
            return None;
        }
        // Whoever copies attributes from a directory to a file with equal ACLs copies this one.
        let fits = stored.acl().aces().iter().all(|ace| {
            !ace.rights.contains(Rights::WRITE_DATA)
                || ace.rights.contains(Rights::DELETE_CHILD) == is_directory
        });
        fits.then(|| stored.into_acl())
    }
}

/// When views are stored, and what is known for that.
#[derive(Default)]
pub(super) struct Storing {
    pub(super) policy: Policy,
    pub(super) costs: Costs,
    /// Which rules these are, counted from those at the beginning.
    number: u64,
}

impl Storing {
    /// Whether a view of so many entries is ever stored; else none is looked for.
    pub(super) fn may_store(&self, entries: u32) -> bool {
        self.policy.judge(entries, u64::MAX, &self.costs)
    }
}

/// What is known of a file's view.
#[derive(Clone, Default)]
struct Seen {
    made_of: Option<MadeOf>,
    /// How often it was made.
    accesses: u64,
    /// Whether somebody has been told to store it. Whatever came of that, it is not tried again.
    is_tried: bool,
}

/// Why a view that was made is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unstored {
    /// The policy says so.
    Policy,
    /// Too many wait.
    Busy,
    /// The file system cannot be written.
    ReadOnly,
    /// It is full, or its owner's quota is.
    Full,
    /// The file system keeps no attribute of that size.
    TooLarge,
    /// The file is immutable.
    Protected,
    /// It failed for another reason.
    Failed,
}

const UNSTORED: usize = 7;

/// What an export knows of views.
pub(super) struct Views {
    storing: RwLock<Arc<Storing>>,
    seen: Box<[Mutex<Generations<Handle, Seen>>]>,
    pub(super) queue: Queue,
    remembered: AtomicU64,
    used: AtomicU64,
    stored: AtomicU64,
    unstored: [AtomicU64; UNSTORED],
}

impl Default for Views {
    fn default() -> Self {
        let of_shard = || Mutex::new(Generations::new(ACL_VIEWS_COUNTED_MAX / SHARDS / 2));
        let storing = Storing {
            policy: Policy::Never,
            costs: Costs::default(),
            number: 0,
        };
        Self {
            storing: RwLock::new(Arc::new(storing)),
            seen: (0..SHARDS).map(|_| of_shard()).collect(),
            queue: Queue::default(),
            remembered: AtomicU64::new(0),
            used: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            unstored: Default::default(),
        }
    }
}

/// What was done with views of POSIX ACLs since the export was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewFigures {
    /// Made to be shown.
    pub made: u64,
    /// Shown as they were stored.
    pub used: u64,
    /// Shown from memory.
    pub remembered: u64,
    /// Stored, on access and with all files.
    pub stored: u64,
    /// Waiting to be stored.
    pub waiting: u64,
    /// Files whose views are counted.
    pub counted: u64,
    /// Not stored because the policy says so.
    pub not_by_policy: u64,
    /// Because too many waited.
    pub not_busy: u64,
    /// Because the file system cannot be written.
    pub not_read_only: u64,
    /// Because it is full, or a quota is.
    pub not_full: u64,
    /// Because it keeps no attribute of that size.
    pub not_large: u64,
    /// Because the file is immutable.
    pub not_protected: u64,
    /// For another reason.
    pub not_failed: u64,
}

impl Views {
    pub(super) fn storing(&self) -> Arc<Storing> {
        let storing = self.storing.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&storing)
    }

    fn set_storing(&self, policy: Policy, costs: Costs) {
        let mut storing = self.storing.write().unwrap_or_else(PoisonError::into_inner);
        let number = storing.number + 1;
        *storing = Arc::new(Storing {
            policy,
            costs,
            number,
        });
    }

    fn shard(&self, handle: &Handle) -> MutexGuard<'_, Generations<Handle, Seen>> {
        // The end of a handle is an authentication code, as good as any hash.
        let last = handle.as_bytes().last().copied().unwrap_or_default();
        let shard = &self.seen[usize::from(last) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count_stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_unstored(&self, why: Unstored) {
        self.unstored[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A view was made of so many entries; whoever stores views is told if it is to be. Whether
    /// there is nothing to come back for: one that was refused for now is asked for again only if
    /// it is not in memory.
    fn note(&self, handle: &Handle, storing: &Storing, entries: u32, made_of: MadeOf) -> bool {
        if storing.policy == Policy::Never {
            self.count_unstored(Unstored::Policy);
            return true;
        }
        let unstored = self.shard(handle).update(handle, |seen| {
            if seen.made_of != Some(made_of) {
                // What was counted is of another view, and what failed may succeed now.
                *seen = Seen {
                    made_of: Some(made_of),
                    ..Seen::default()
                };
            }
            seen.accesses = seen.accesses.saturating_add(1);
            if seen.is_tried {
                return None;
            }
            if !storing.policy.judge(entries, seen.accesses, &storing.costs) {
                return Some(Unstored::Policy);
            }
            let refused = self.queue.push(handle);
            seen.is_tried = refused.is_none();
            refused
        });
        if let Some(why) = unstored {
            self.count_unstored(why);
        }
        let is_for_now =
            |why: Unstored| matches!(why, Unstored::Busy | Unstored::ReadOnly | Unstored::Full);
        !unstored.is_some_and(is_for_now)
    }

    /// These are to be tried again, some time later: what was in the way is not theirs.
    pub(super) fn forgive<'a>(&self, handles: impl IntoIterator<Item = &'a Handle>) {
        for handle in handles {
            let forgive = |seen: &mut Seen| seen.is_tried = false;
            self.shard(handle).update(handle, forgive);
        }
    }

    fn counted(&self) -> usize {
        let count = |shard: &Mutex<Generations<Handle, Seen>>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).len()
        };
        self.seen.iter().map(count).sum()
    }
}

impl From<Rest> for Unstored {
    fn from(rest: Rest) -> Self {
        match rest {
            Rest::ReadOnly => Self::ReadOnly,
            Rest::Full => Self::Full,
        }
    }
}

impl Export {
    /// Says when views of POSIX ACLs are stored; at first never. Those that lie there already are
    /// looked for only if the policy would store them. Of those in memory none is shown any more.
    pub fn set_storing(&self, policy: Policy, costs: Costs) {
        self.rich.views.set_storing(policy, costs);
    }

    /// What was done with views since the export was opened.
    #[must_use]
    pub fn view_figures(&self) -> ViewFigures {
        let views = &self.rich.views;
        let of = |why: Unstored| views.unstored[why as usize].load(Ordering::Relaxed);
        ViewFigures {
            made: self.rich.figures.views.load(Ordering::Relaxed),
            used: views.used.load(Ordering::Relaxed),
            remembered: views.remembered.load(Ordering::Relaxed),
            stored: views.stored.load(Ordering::Relaxed),
            waiting: views.queue.len() as u64,
            counted: views.counted() as u64,
            not_by_policy: of(Unstored::Policy),
            not_busy: of(Unstored::Busy),
            not_read_only: of(Unstored::ReadOnly),
            not_full: of(Unstored::Full),
            not_large: of(Unstored::TooLarge),
            not_protected: of(Unstored::Protected),
            not_failed: of(Unstored::Failed),
        }
    }

    pub(super) fn read_values(
        &self,
        fd: BorrowedFd<'_>,
        attributes: &Attributes,
    ) -> Result<Values, FsError> {
        let default = match attributes.kind == FileKind::Directory {
            true => self.read_own(fd, DEFAULT)?,
            false => None,
        };
        Ok(Values {
            access: self.read_own(fd, ACCESS)?,
            default,
        })
    }

    pub(super) fn read_posix(
        &self,
        fd: BorrowedFd<'_>,
        attributes: &Attributes,
    ) -> Result<Posix, FsError> {
        self.read_values(fd, attributes)?.parse()
    }

    /// The list that is shown of a file.
    pub(super) fn shown(
        &self,
        (handle, fd): (&Handle, BorrowedFd<'_>),
        rich: Option<&RichFile>,
        attributes: &Attributes,
    ) -> Result<Arc<RichAcl>, FsError> {
        match rich {
            Some(rich) => rich.list.clone().ok_or(FsError::Io),
            None => self.view((handle, fd), attributes),
        }
    }

    /// The view of a file, from memory, stored or made.
    fn view(
        &self,
        (handle, fd): (&Handle, BorrowedFd<'_>),
        attributes: &Attributes,
    ) -> Result<Arc<RichAcl>, FsError> {
        let (views, lists) = (&self.rich.views, &self.rich.lists);
        let storing = views.storing();
        let unknown = match lists.view(handle, attributes.changed, storing.number) {
            Ok(view) => {
                views.remembered.fetch_add(1, Ordering::Relaxed);
                return Ok(view);
            }
            Err(unknown) => unknown,
        };
        let values = self.read_values(fd, attributes)?;
        let made_of = unknown.is_settled.then(|| values.bytes(attributes));
        let (view, keep) = self.read_or_made((handle, fd), attributes, &storing, values)?;
        let view = Arc::new(view);
        if let Some(made_of) = made_of.filter(|_| keep) {
            lists.keep_view(&unknown, made_of, &view);
        }
        Ok(view)
    }

    /// The view of a file that is not in memory, and whether it may be kept there.
    fn read_or_made(
        &self,
        (handle, fd): (&Handle, BorrowedFd<'_>),
        attributes: &Attributes,
        storing: &Storing,
        values: Values,
    ) -> Result<(RichAcl, bool), FsError> {
        let views = &self.rich.views;
        let entries = values.entries();
        let may_store = storing.may_store(entries);
        let made_of = may_store.then(|| values.made_of(attributes));
        let stored = made_of.and_then(|made_of| self.stored_view(fd, made_of, attributes));
        if let Some(view) = stored {
            views.used.fetch_add(1, Ordering::Relaxed);
            return Ok((view, true));
        }
        let view = values.parse()?.view(attributes);
        self.rich.figures.views.fetch_add(1, Ordering::Relaxed);
        let keep = match made_of {
            Some(made_of) => views.note(handle, storing, entries, made_of),
            None => {
                views.count_unstored(Unstored::Policy);
                true
            }
        };
        Ok((view, keep))
    }

    /// The view that is stored, if it is of what is there now. Whatever is wrong with it, it is as
    /// if there were none.
    pub(super) fn stored_view(
        &self,
        fd: BorrowedFd<'_>,
        made_of: MadeOf,
        attributes: &Attributes,
    ) -> Option<RichAcl> {
        let bytes = self.read_own(fd, VIEW).ok()??;
        made_of.read(&bytes, attributes.kind == FileKind::Directory)
    }

    /// A list as clients are given it.
    pub(super) fn as_sent(list: &RichAcl, attributes: &Attributes) -> Result<Vec<u8>, FsError> {
        let sent = list.to_nfs4(&target_of(attributes), &UnixIds);
        sent.map_err(|error| refused(&error))
    }

    /// An attribute that only the server knows.
    pub(super) fn read_own(&self, fd: impl AsFd, name: &str) -> Result<Option<Vec<u8>>, FsError> {
        let path = descriptor_path(fd);
        let mut bytes_max = STORED_BYTES_USUAL;
        loop {
            let mut value = Vec::with_capacity(bytes_max);
            let spare = rustix::buffer::spare_capacity(&mut value);
            match rustix::fs::getxattr(&*path, name, spare) {
                Ok(_) => return Ok(Some(value)),
                Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
                Err(Errno::RANGE) if bytes_max < XATTR_BYTES_MAX => bytes_max = XATTR_BYTES_MAX,
                Err(errno) => return Err(fs_error(errno)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acl::Point;
    use base::limits::ACL_VIEWS_WAITING_MAX;

    fn handle(number: u32) -> Handle {
        // The last byte says in which table it is counted.
        let [first, rest @ ..] = number.to_le_bytes();
        Handle::new(&[&rest[..], &[first]].concat()).expect("short")
    }

    fn made_of(mode: u16) -> MadeOf {
        MadeOf {
            mode,
            source: Source::of_values(None, None),
        }
    }

    /// It pays from the access number `first` on.
    fn paying_from(first: u64) -> Storing {
        let point = Point {
            entries: 3,
            stored_nanos: 1000,
            converted_nanos: 2000,
            storing_nanos: 1000 + 1000 * first,
            stored_reads: 0,
            converted_reads: 0,
        };
        Storing {
            policy: Policy::Measured,
            costs: Costs::new(vec![point]),
            number: 0,
        }
    }

    #[test]
    fn what_is_counted_is_bounded_and_so_is_what_waits() {
        let views = Views::default();
        for number in 0..2 * ACL_VIEWS_COUNTED_MAX as u32 {
            views.note(&handle(number), &paying_from(1000), 3, made_of(0o600));
        }
        assert!(
            views.counted() <= ACL_VIEWS_COUNTED_MAX,
            "{}",
            views.counted()
        );
        assert!(views.counted() > ACL_VIEWS_COUNTED_MAX / 4);
        assert_eq!(views.queue.len(), 0);
        for number in 0..2 * ACL_VIEWS_WAITING_MAX as u32 {
            views.note(&handle(number), &paying_from(1), 3, made_of(0o640));
        }
        assert_eq!(views.queue.len(), ACL_VIEWS_WAITING_MAX);
        let busy = views.unstored[Unstored::Busy as usize].load(Ordering::Relaxed);
        assert_eq!(busy, ACL_VIEWS_WAITING_MAX as u64);
    }

    #[test]
    fn a_view_is_asked_for_once_when_it_pays_and_again_when_it_is_another_one() {
        let views = Views::default();
        let storing = paying_from(3);
        let waits = |made_of| {
            views.note(&handle(1), &storing, 3, made_of);
            views.queue.len()
        };
        let first: Vec<usize> = (0..4).map(|_| waits(made_of(0o600))).collect();
        assert_eq!(first, [0, 0, 1, 1]);
        assert_eq!(
            waits(made_of(0o640)),
            1,
            "it waits already, and is counted anew"
        );
        let taken = views.queue.begin_rest(Rest::Full);
        assert_eq!(taken, [handle(1)]);
        let during: Vec<usize> = (0..4).map(|_| waits(made_of(0o640))).collect();
        assert_eq!(during, [0; 4], "nothing is taken in while it rests");
        let full = views.unstored[Unstored::Full as usize].load(Ordering::Relaxed);
        assert_eq!(full, 3, "from the third access on");
    }

    #[test]
    fn only_a_view_of_what_is_there_is_read() {
        let file = PosixFile {
            uid: 1,
            gid: 1,
            mode: 0o660,
            access: None,
        };
        let view = RichAcl::view(&file, None, false);
        let bytes = made_of(0o660).stored(view.clone()).expect("small");
        assert_eq!(made_of(0o660).read(&bytes, false), Some(view));
        assert_eq!(made_of(0o640).read(&bytes, false), None, "another mode");
        let other = MadeOf {
            source: Source::of_values(Some(&[2, 0, 0, 0]), None),
            ..made_of(0o660)
        };
        assert_eq!(other.read(&bytes, false), None, "another ACL");
        assert_eq!(made_of(0o660).read(&bytes, true), None, "of a file");
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut altered = bytes.clone();
                altered[index] ^= 1 << bit;
                assert_eq!(made_of(0o660).read(&altered, false), None, "{index}.{bit}");
            }
            assert_eq!(made_of(0o660).read(&bytes[..index], false), None, "{index}");
        }
        let truth = RichAcl::new(Vec::new()).expect("short");
        let truth = Stored::truth(truth, 0o660).to_bytes().expect("small");
        assert_eq!(
            made_of(0o660).read(&truth, false),
            None,
            "a truth is no view"
        );
    }
}
