//! Open files, inodes that are held, and those that have lost their last name.
//!
//! An inode without a name stays while somebody holds it: an open file, a request that knows that
//! clients may open it. Holders are in memory, the list of such inodes is in the engine: whoever
//! takes over after this manager keeps them until it has heard of all who have them open, and then
//! has the rest collected ([`Namespace::collect_orphans`]).

use super::core::Core;
use super::error::NamespaceError;
use super::key;
use super::layout::Layout;
use super::pipe::Status;
use super::tree::Namespace;
use super::turn::Turn;
use super::volume::entries;
use super::work::{Stop, Work, layout};
use crate::MetaError;
use base::{Access, Attributes, FsError, Handle, Principal};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// How long after a failed attempt inodes without a name are collected again.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// What for.
    pub access: Access,
    /// Cut to nothing first.
    pub truncate: bool,
    /// Only for bytes behind the end; takes less where a rich ACL is the truth.
    pub append: bool,
}

impl OpenOptions {
    /// For `access` alone.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self {
            access,
            truncate: false,
            append: false,
        }
    }
}

/// An inode that is held until this is dropped.
pub struct Held {
    core: Arc<Core>,
    inode: u64,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.inode)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        let holders = state.holders.get_mut(&self.inode).expect("it is held");
        *holders -= 1;
        if *holders > 0 {
            return;
        }
        state.holders.remove(&self.inode);
        let slot = state.cache.slot(self.inode);
        // One that is not in memory may be without a name.
        let is_named = slot.is_some_and(|slot| slot.inode.as_ref().is_none_or(|i| i.links > 0));
        if !is_named {
            state.abandoned.push(self.inode);
            drop(state);
            self.core.abandoned.notify_one();
        }
    }
}

/// An open regular file: the right that was judged when it was opened. Its bytes are in the stores.
#[derive(Debug)]
pub struct OpenInode {
    held: Held,
    access: Access,
    only_appends: bool,
}

impl OpenInode {
    /// Of an inode that the operation has counted as held.
    pub(super) fn new(core: &Arc<Core>, inode: u64, options: OpenOptions) -> Self {
        let core = Arc::clone(core);
        Self {
            held: Held { core, inode },
            access: options.access,
            only_appends: options.append,
        }
    }

    /// What it was opened for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether all of it may be written.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.access, Access::Write | Access::ReadWrite) && !self.only_appends
    }

    /// Whether what is written goes to the end.
    #[must_use]
    pub fn only_appends(&self) -> bool {
        self.only_appends
    }
}

impl Namespace {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::Loop`] for a symbolic link, [`FsError::NoSuchAddress`]
    /// for pipes, sockets and devices; else as the kernel judges.
    pub fn open_file(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        options: OpenOptions,
    ) -> Result<OpenInode, FsError> {
        let number = self.change(turn, |work| {
            let inode = work.find(handle)?;
            Ok(work.open(inode, who, options)?.number)
        })?;
        Ok(OpenInode::new(&self.core, number, options))
    }

    /// The attributes of an open file, also without a name.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn attributes_of(&self, turn: &Turn, file: &OpenInode) -> Result<Attributes, FsError> {
        let number = file.held.inode;
        self.look(turn, |work| Ok(work.inode(number)?.attributes()))
    }

    /// Where a file's bytes lie.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is no file.
    pub fn layout_of(&self, turn: &Turn, handle: &Handle) -> Result<Layout, FsError> {
        self.look(turn, |work| {
            let inode = work.find(handle)?;
            Ok(layout(&inode).cloned().ok_or(FsError::Invalid)?)
        })
    }

    /// Keeps an inode within reach while what is returned lives, also when it loses its last name.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn hold(&self, turn: &Turn, _who: &Principal, handle: &Handle) -> Result<Held, FsError> {
        let inode = self.look(turn, |work| {
            let number = work.find(handle)?.number;
            work.hold(number);
            Ok(number)
        })?;
        let core = Arc::clone(&self.core);
        Ok(Held { core, inode })
    }

    /// Has all inodes without a name that nobody holds removed; says how many. Called once after
    /// opening, when everybody who had one open has said so, and again after an error.
    ///
    /// # Errors
    /// What the engine says; [`NamespaceError::Lost`]; [`MetaError::Unavailable`] if some could not
    /// be removed yet.
    pub async fn collect_orphans(&self) -> Result<usize, NamespaceError> {
        let core = &self.core;
        let mut orphans = Vec::new();
        entries(&*core.engine, &core.rules.keys.all(b'o'), |entry| {
            let number = key::parts(&entry.key).and_then(|(_, rest)| key::number(rest));
            let (number, _) = number.ok_or_else(|| MetaError::Damaged("an orphan".to_owned()))?;
            orphans.push(number);
            Ok(())
        })
        .await?;
        let turn = Turn::new();
        let (mut collected, mut failed) = (0, None);
        for orphan in orphans {
            match core.run_in_task(&turn, |work| work.collect(orphan)).await {
                Ok(removed) => collected += usize::from(removed),
                Err(error) => failed = Some((orphan, error)),
            }
            // What concerns all of them.
            if let Some((_, FsError::WouldBlock | FsError::TimedOut)) = failed {
                break;
            }
        }
        core.wait(&turn).await?;
        match failed {
            None => Ok(collected),
            Some((orphan, error)) => {
                let why = format!("inode {orphan} without a name is not removed yet: {error}");
                Err(MetaError::Unavailable(why).into())
            }
        }
    }
}

impl Work<'_> {
    /// Counts a holder. Nothing may stop the operation afterwards.
    pub(super) fn hold(&mut self, inode: u64) {
        *self.state.holders.entry(inode).or_default() += 1;
    }

    /// Removes an inode if it has no name and nobody holds it; says whether.
    pub(super) fn collect(&mut self, number: u64) -> Result<bool, Stop> {
        let inode = match self.inode(number) {
            Err(Stop::Error(FsError::Stale)) => return Ok(false),
            other => other?,
        };
        if inode.links > 0 || self.state.holders.contains_key(&number) {
            return Ok(false);
        }
        self.orphan(number, false);
        self.bury(&inode)?;
        Ok(true)
    }
}

/// The task that collects what the last holder has let go of.
pub(super) async fn collect(core: Arc<Core>) {
    while !core.is_closing.load(Ordering::Acquire) {
        let mut abandoned = std::mem::take(&mut core.lock().abandoned);
        if abandoned.is_empty() {
            core.abandoned.notified().await;
            continue;
        }
        abandoned.sort_unstable();
        abandoned.dedup();
        let left = unless_closing(&core, try_to_collect(&core, abandoned)).await;
        let Some(left) = left.filter(|left| !left.is_empty()) else {
            continue;
        };
        {
            let mut state = core.lock();
            if matches!(state.pipe.status, Status::Over(_)) {
                // They stay in the list of the engine for the next manager.
                continue;
            }
            state.abandoned.extend(left);
        }
        unless_closing(&core, sleep(COLLECT_INTERVAL)).await;
    }
}

/// Removes inodes; says which ones have to be tried again.
async fn try_to_collect(core: &Core, abandoned: Vec<u64>) -> Vec<u64> {
    let turn = Turn::new();
    let mut left = Vec::new();
    for inode in &abandoned {
        let collected = core.run_in_task(&turn, |work| work.collect(*inode)).await;
        if let Err(error) = collected {
            tracing::debug!(inode, %error, "an inode without a name is not removed yet");
            left.push(*inode);
        }
    }
    match core.wait(&turn).await {
        Ok(()) => left,
        // What was removed is there again; of what was not, nothing is done twice.
        Err(error) => {
            tracing::debug!(%error, "inodes without a name are not removed yet");
            abandoned
        }
    }
}

/// Waits for `future`, but not when the namespace is closed. Whoever calls it looks at the list of
/// what is abandoned afterwards.
async fn unless_closing<T>(core: &Core, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    while !core.is_closing.load(Ordering::Acquire) {
        tokio::select! {
            done = &mut future => return Some(done),
            () = core.abandoned.notified() => {}
        }
    }
    None
}
