//! Files whose truth is a rich ACL.
//!
//! # Origin
//!
//! A file has one truth. Until somebody sets a rich ACL that is its mode and POSIX ACL: the kernel
//! judges, nothing is stored, and the rich ACL that is shown is made from them at that moment. The
//! first edit makes the rich ACL the truth. From then on the server judges by it, for the caller,
//! and makes the call past the kernel's judgement ([`Way::Past`]) as that user all the same, so
//! that owners of new files, quotas and reserved blocks are as ever.
//!
//! None of this costs anything where it is not wanted: an export has one flag, and only where that
//! is set ([`Export::set_rich`]) is an inode asked for a stored list. Setting the flag is all that
//! turning rich ACLs on takes, whatever the number of files.
//!
//! # What lies beside a file
//!
//! | attribute | what | when |
//! |---|---|---|
//! | `security.azekura.acl` | the rich ACL ([`acl::Stored`]) | while it is the truth |
//! | `security.azekura.posix` | mode and POSIX ACLs from before ([`acl::Before`]) | from then on |
//! | `security.azekura.view` | a view of mode and POSIX ACL ([`view`]) | if the policy says so |
//! | mode, POSIX ACL | what they can say without allowing anybody more | while it is the truth |
//!
//! The names are not served, and to set them takes CAP_SYS_ADMIN; reading one takes none, and so no
//! change of identity. As mode and POSIX ACL allow no more than the list, whoever judges by them
//! (programs of this machine, kernels of clients that mounted before) is never too generous.
//!
//! # Order of writing
//!
//! First what was before; then the list, *unsettled*; then mode and POSIX ACL; then the list, with
//! the mode. The second step decides: one system call, all or nothing. A crash before it leaves the
//! POSIX truth, one behind it the rich one; an unsettled list is judged by as any other, only that
//! a chmod(2) behind the server's back is not noticed, and that mode and POSIX ACL may still be
//! those of before. Whoever reads such a list has it settled, soon, by the thread that stores views
//! ([`store`]). A view needs no order: it is used only if it is of what is there.
//!
//! # Behind the server's back
//!
//! What is kept in memory of a file's list, or of what is shown of its mode and POSIX ACL, is good
//! for one `ctime`, and only if that was not just before ([`cache`]). If the permission bits are
//! others than those stored with the list, somebody has called chmod(2); the list is then judged by
//! as if he had done it here.
//!
//! # Failing closed
//!
//! A stored list that cannot be read, of an unknown version or damaged, allows nothing; its owner
//! and root can set another one or go back to the POSIX ACL. What the disk does not say is an error
//! and not the POSIX truth.
//!
//! | file | owns |
//! |---|---|
//! | `cache` | lists and views in memory |
//! | `judge` | who may make, remove, rename and link names |
//! | `heir` | new files in directories with a rich ACL |
//! | `edit` | the list as clients see it; setting it; going back |
//! | `told` | what the file system is told of a list |
//! | `view` | the list of a file whose truth is POSIX; whether it is stored |
//! | `store` | storing it, off the request's way |
//! | `calibrate` | what looking at it costs, stored and not |
//! | `compact` | lists that say no more than mode and POSIX ACL do |
//! | `walk` | views of all files |
//! | `change` | chmod, chown and times of files with a rich ACL |
//! | `explain` | what of a file decides |
//! | `names` | who is meant by a name |

mod cache;
mod calibrate;
mod change;
mod compact;
mod edit;
mod explain;
mod heir;
mod judge;
mod names;
mod store;
mod told;
mod view;
mod walk;

pub(crate) use heir::Making;
pub(crate) use judge::Asking;

pub use acl::{Edit as AclEdit, Explained, Grounds};
pub use calibrate::{Calibration, ColdRead};
pub use edit::Note;
pub use names::{Known, Names};
pub use view::ViewFigures;
pub use walk::{ViewWalk, ViewWork, WalkFigures, Walked};

use crate::cache::Pin;
use crate::change::descriptor_path;
use crate::errno::fs_error;
use crate::export::Export;
use crate::stat::stat;
use crate::worker::Assumed;
use acl::{RichAcl, Rights, Stored, Target};
use base::{Attributes, FileKind, FsError, Handle, Principal};
use cache::Lists;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use view::Views;

/// Where a rich ACL lies.
const STORED: &str = "security.azekura.acl";
/// Where mode and POSIX ACLs from before lie.
const BEFORE: &str = "security.azekura.posix";
/// The attribute as which clients see it.
pub(crate) const NFS4: &[u8] = b"system.nfs4_acl";
/// Edits that go on at once.
const TURNS: usize = 16;
/// Room for most lists on the first try.
const STORED_BYTES_USUAL: usize = 1024;

/// What a call takes that a rich ACL has allowed and the kernel may refuse: permission bits, and
/// what is for owners.
const PAST: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FOWNER);
/// What the server takes to write down what it has decided.
const WRITING: CapabilitySet = PAST
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::FSETID);

/// What an export knows of rich ACLs.
pub(crate) struct RichTree {
    is_on: AtomicBool,
    lists: Lists,
    views: Views,
    figures: Figures,
    names: OnceLock<Arc<dyn Names>>,
    /// One edit of a file at a time.
    turns: [Mutex<()>; TURNS],
    /// One taking of a name from a directory at a time.
    takings: [Mutex<()>; TURNS],
}

impl RichTree {
    /// Of an export that keeps lists in memory, or does not.
    pub(crate) fn new(keeps_lists: bool) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            lists: Lists::new(keeps_lists),
            views: Views::default(),
            figures: Figures::default(),
            names: OnceLock::new(),
            turns: Default::default(),
            takings: Default::default(),
        }
    }

    /// Waits for its turn to edit a file's list. Held while a handful of system calls run; only
    /// edits wait for each other.
    pub(crate) fn turn(&self, handle: &Handle) -> MutexGuard<'_, ()> {
        let turn = self.turns[turn_of(handle)].lock();
        turn.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no name is taken from these directories that somebody else may not take: what
    /// was judged has its name until the kernel is told to take it. Without rich ACLs the kernel
    /// judges and takes in one.
    pub(crate) fn taking_turn<const N: usize>(
        &self,
        directories: [&Handle; N],
    ) -> Vec<MutexGuard<'_, ()>> {
        if !self.is_on.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut places = directories.map(turn_of).to_vec();
        places.sort_unstable();
        places.dedup();
        let turns = places.into_iter().map(|place| {
            let turn = self.takings[place].lock();
            turn.unwrap_or_else(PoisonError::into_inner)
        });
        turns.collect()
    }
}

fn turn_of(handle: &Handle) -> usize {
    let last = handle.as_bytes().last().copied().unwrap_or_default();
    usize::from(last) % TURNS
}

#[derive(Default)]
struct Figures {
    views: AtomicU64,
    judged: AtomicU64,
    refused: AtomicU64,
    edits: AtomicU64,
}

/// What was done with rich ACLs since the export was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RichFigures {
    /// Rich ACLs that were made from POSIX ACLs to be shown.
    pub views: u64,
    /// Decisions by rich ACLs.
    pub judged: u64,
    /// Of these, refusals.
    pub refused: u64,
    /// Rich ACLs that were set.
    pub edits: u64,
    /// Files whose list, or lack of one, is in memory.
    pub kept: u64,
}

/// Who judges a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The kernel.
    Kernel,
    /// A rich ACL has, and allows it.
    Past,
}

/// A file whose truth is a rich ACL, as it is now.
pub(crate) struct RichFile {
    /// None if it cannot be read.
    list: Option<Arc<RichAcl>>,
    target: Target,
    attributes: Attributes,
}

impl RichFile {
    /// Whether a caller may do all of `wanted`.
    fn allows(&self, who: &Principal, wanted: Rights) -> bool {
        acl::permits(self.list.as_deref(), who, &self.target, wanted)
    }
}

/// How often it is tried to see attributes and list of one moment.
const SEEN_TRIES: usize = 64;

/// What a file is, and its list.
struct Seen {
    attributes: Attributes,
    stored: Option<Arc<StoredList>>,
    /// It was not known before.
    is_read: bool,
}

/// Looks at attributes, and at the list that belongs to them, until both are of one moment. A list
/// that was known is that of its attributes.
fn at_one_moment(
    look: impl Fn() -> Result<Attributes, FsError>,
    list: impl Fn(&Attributes) -> Result<(Option<Arc<StoredList>>, bool), FsError>,
) -> Result<Seen, FsError> {
    let mut attributes = look()?;
    for _ in 0..SEEN_TRIES {
        let (stored, is_read) = list(&attributes)?;
        let now = match is_read && stored.is_some() {
            true => look()?,
            false => attributes.clone(),
        };
        let of_decisions = |of: &Attributes| (of.changed, of.mode, of.uid, of.gid);
        if of_decisions(&now) == of_decisions(&attributes) {
            return Ok(Seen {
                attributes,
                stored,
                is_read,
            });
        }
        attributes = now;
    }
    Err(FsError::Busy)
}

/// The target of decisions that attributes describe.
fn target_of(attributes: &Attributes) -> Target {
    Target {
        uid: attributes.uid,
        gid: attributes.gid,
        is_directory: attributes.kind == FileKind::Directory,
    }
}

impl Export {
    /// Turns rich ACLs on or off. Files whose truth is one are judged by the mode and POSIX ACL
    /// that lie under it while they are off.
    pub fn set_rich(&self, is_on: bool) {
        self.rich.is_on.store(is_on, Ordering::Release);
    }

    /// Says who finds users and groups by name; once.
    pub fn set_names(&self, names: Arc<dyn Names>) {
        let _ = self.rich.names.set(names);
    }

    /// Whether rich ACLs are on.
    #[must_use]
    pub fn is_rich(&self) -> bool {
        self.rich.is_on.load(Ordering::Acquire)
    }

    /// Whether rich ACLs could lie beside files here.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] if the file system has no such attributes,
    /// [`FsError::NotPermitted`] if this process may not set them.
    pub fn check_rich(&self) -> Result<(), FsError> {
        let mut value = Vec::with_capacity(STORED_BYTES_USUAL);
        let spare = rustix::buffer::spare_capacity(&mut value);
        match rustix::fs::fgetxattr(self.top(), STORED, spare) {
            Ok(_) | Err(Errno::NODATA | Errno::RANGE) => {}
            Err(errno) => return Err(fs_error(errno)),
        }
        let sets = rustix::thread::capabilities(None).map_err(fs_error)?;
        match sets.permitted.contains(WRITING) {
            true => Ok(()),
            false => Err(FsError::NotPermitted),
        }
    }

    /// What was done with rich ACLs since the export was opened.
    #[must_use]
    pub fn rich_figures(&self) -> RichFigures {
        let Figures {
            views,
            judged,
            refused,
            edits,
        } = &self.rich.figures;
        let [views, judged, refused, edits] =
            [views, judged, refused, edits].map(|figure| figure.load(Ordering::Relaxed));
        RichFigures {
            views,
            judged,
            refused,
            edits,
            kept: self.rich.lists.len() as u64,
        }
    }

    /// The rich ACL that is the truth of an inode; `None` if there is none, or none are on.
    pub(crate) fn rich_file(
        &self,
        handle: &Handle,
        fd: impl AsFd,
    ) -> Result<Option<RichFile>, FsError> {
        if !self.is_rich() {
            return Ok(None);
        }
        let Seen {
            attributes,
            stored,
            is_read,
        } = self.see(handle, fd.as_fd())?;
        let Some(stored) = stored else {
            return Ok(None);
        };
        let target = target_of(&attributes);
        let list = match stored.parsed() {
            None => None,
            Some(parsed) => match parsed.mode() {
                Some(mode) if mode != attributes.mode & 0o777 => {
                    // Somebody has called chmod(2) who knows nothing of the list.
                    let has_access = told::has_access(&descriptor_path(fd.as_fd()));
                    let list = parsed.acl();
                    let list = list.with_shown_mode(attributes.mode, &target, has_access);
                    Some(Arc::new(list))
                }
                mode => {
                    if mode.is_none() && is_read {
                        self.rich.views.queue.push_unsettled(handle);
                    }
                    Some(stored.list())
                }
            },
        };
        Ok(Some(RichFile {
            list,
            target,
            attributes,
        }))
    }

    /// Attributes and list of one moment: those of two would decide what neither list does, and
    /// look as if somebody had called chmod(2) in between.
    ///
    /// # Errors
    /// [`FsError::Busy`] for a file that is changed all the time; else the kernel's.
    fn see(&self, handle: &Handle, fd: BorrowedFd<'_>) -> Result<Seen, FsError> {
        let look = || Ok(stat(fd)?.attributes);
        at_one_moment(look, |attributes| {
            // The permissions of a link are nobody's concern, and its attributes cannot be named.
            if attributes.kind == FileKind::Symlink {
                return Ok((None, false));
            }
            let is_read = Cell::new(false);
            let read = || {
                is_read.set(true);
                self.read_stored(fd)
            };
            let stored = self.rich.lists.get(handle, attributes.changed, read)?;
            Ok((stored, is_read.get()))
        })
    }

    /// The stored bytes; `None` if there are none.
    fn read_stored(&self, fd: impl AsFd) -> Result<Option<Vec<u8>>, FsError> {
        self.read_own(fd, STORED)
    }

    /// Who judges whether a caller may do all of `wanted` with an inode.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if a rich ACL does, and does not allow it.
    pub(crate) fn way(
        &self,
        who: &Principal,
        handle: &Handle,
        fd: impl AsFd,
        wanted: Rights,
    ) -> Result<Way, FsError> {
        let rich = self.rich_file(handle, fd)?;
        self.way_by(rich.as_ref(), who, wanted)
    }

    /// The same of an inode of which it is known whether it has a rich ACL.
    pub(crate) fn way_by(
        &self,
        rich: Option<&RichFile>,
        who: &Principal,
        wanted: Rights,
    ) -> Result<Way, FsError> {
        match rich {
            None => Ok(Way::Kernel),
            Some(file) => self.judge_rich(file, who, wanted).map(|()| Way::Past),
        }
    }

    /// Judges by a rich ACL.
    fn judge_rich(&self, file: &RichFile, who: &Principal, wanted: Rights) -> Result<(), FsError> {
        let figures = &self.rich.figures;
        figures.judged.fetch_add(1, Ordering::Relaxed);
        match file.allows(who, wanted) {
            true => Ok(()),
            false => {
                figures.refused.fetch_add(1, Ordering::Relaxed);
                Err(FsError::AccessDenied)
            }
        }
    }

    /// Whether a caller may do what access(2) asks.
    pub(crate) fn access_way(
        &self,
        who: &Principal,
        handle: &Handle,
        pin: &Pin,
        wanted: base::Rights,
    ) -> Result<Way, FsError> {
        self.way(who, handle, pin, acl::rights_to_access(wanted))
    }
}

/// Runs a call as the caller, past the kernel's judgement where a rich ACL has allowed it.
pub(crate) fn by_way<T>(
    caller: &Assumed<'_>,
    way: Way,
    call: impl FnOnce() -> Result<T, FsError>,
) -> Result<T, FsError> {
    match way {
        Way::Kernel => call(),
        Way::Past => caller.with(PAST, call)?,
    }
}

/// A stored list as it lies in memory.
#[derive(Debug)]
pub(crate) struct StoredList {
    /// None if the bytes make no sense.
    parsed: Option<(Stored, Arc<RichAcl>)>,
}

impl StoredList {
    fn read(bytes: &[u8]) -> Self {
        let parsed = Stored::from_bytes(bytes);
        if let Err(error) = &parsed {
            tracing::warn!(%error, "a stored ACL cannot be read; the file is closed");
        }
        let truth = parsed.ok().filter(|stored| stored.source().is_none());
        Self {
            parsed: truth.map(|stored| {
                let list = Arc::new(stored.acl().clone());
                (stored, list)
            }),
        }
    }

    fn parsed(&self) -> Option<&Stored> {
        self.parsed.as_ref().map(|(stored, _)| stored)
    }

    fn list(&self) -> Arc<RichAcl> {
        let (_, list) = self.parsed.as_ref().expect("it was asked for before");
        list.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes of a file, with another mode.
    fn attributes(mode: u16) -> Attributes {
        let file = tempfile::tempfile().unwrap();
        Attributes {
            mode,
            ..stat(file.as_fd()).unwrap().attributes
        }
    }

    #[test]
    fn attributes_and_list_are_of_one_moment() {
        let (before, after) = (attributes(0o644), attributes(0o600));
        let stored = |mode| Arc::new(StoredList::read(&[mode]));
        let (looks, lists) = (Cell::new(0), Cell::new(0));
        let count = |of: &Cell<u32>| of.replace(of.get() + 1);
        // The file gets another list between the first look and the first reading.
        let look = || Ok(if count(&looks) == 0 { &before } else { &after }.clone());
        let list = |_: &Attributes| {
            count(&lists);
            Ok((Some(stored(1)), true))
        };
        let seen = at_one_moment(look, list).unwrap();
        assert_eq!((seen.attributes.mode, lists.get()), (0o600, 2));
        // One that was known belongs to what it was asked for.
        looks.set(0);
        let known = at_one_moment(look, |_| Ok((Some(stored(1)), false))).unwrap();
        assert_eq!((known.attributes.mode, looks.get()), (0o644, 1));
        let mode = Cell::new(0_u16);
        let restless = || Ok(attributes(mode.replace(mode.get() + 1)));
        assert_eq!(at_one_moment(restless, list).err(), Some(FsError::Busy));
    }
}
