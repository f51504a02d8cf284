//! Open files of a session.
//!
//! The client numbers them, so that it need not wait for an open. An open that the server does not
//! know (it has restarted, or the first request that mentions it overtook the open) is made on the
//! spot, for the caller, for what the request needs. An owner whom the mode bits no longer allow
//! what they allowed when he opened the file gets it nevertheless: git(1) writes through an open of
//! a file that it made with mode 0444, and a restart of the server must not make that an error. The
//! owner could change the mode anyway.
//!
//! A request may also be overtaken by the close of its open (they travel on different connections).
//! It is served, but the open is not made again: nobody would close it.
//!
//! Each takes a descriptor of this process, of which connections and look-ups need some, too. So
//! all opens together have a part of them, and those of one credential a part of that: whoever
//! hoards opens gets an error, and the others go on. A request that can be served without that its
//! open stays is: after a restart there may be less room than there was for the same opens.

use crate::tree::{By, File};
use crate::volume::Volume;
use base::limits::OPENS_PER_SESSION_MAX;
use base::{Access, FsError, Handle, OpenId, Principal};
use export::OpenOptions;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The descriptors that this process may have: its soft limit is raised to the hard one.
pub(crate) fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.maximum.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Descriptors for opens.
#[derive(Clone)]
pub(crate) struct Room {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    own_max: usize,
}

/// What one descriptor takes of a [`Room`].
type RoomPermits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl Room {
    /// For a process that may have `descriptors_max`: half of them, as a quarter is the export's
    /// for look-ups and an eighth is for connections that begin; and three quarters of that for one
    /// credential.
    pub(crate) fn new(descriptors_max: usize) -> Self {
        let all = (descriptors_max / 2).min(Semaphore::MAX_PERMITS);
        let own_max = all - all / 4;
        Self {
            all: Arc::new(Semaphore::new(all)),
            own: Arc::new(Semaphore::new(own_max)),
            own_max,
        }
    }

    /// As much for another credential, out of the same whole.
    pub(crate) fn of_another(&self) -> Self {
        Self {
            all: self.all.clone(),
            own: Arc::new(Semaphore::new(self.own_max)),
            own_max: self.own_max,
        }
    }

    fn take(&self) -> Result<RoomPermits, FsError> {
        let take = |from: &Arc<Semaphore>| from.clone().try_acquire_owned();
        let permits = take(&self.own).and_then(|own| Ok((own, take(&self.all)?)));
        permits.map_err(|_| FsError::TooManyOpen)
    }
}

/// One open file: up to one descriptor for each of reading, writing and appending.
pub(crate) struct Opened {
    /// Kept so that the volume stays while a file of it is open.
    _volume: Arc<Volume>,
    /// The handle as the client knows it.
    pub(crate) handle: Handle,
    read: Option<Arc<File>>,
    write: Option<Arc<File>>,
    /// Only for bytes behind the end.
    append: Option<Arc<File>>,
    /// Whether the client has said what it is open for; one made on the spot learns as it is used.
    is_explicit: bool,
    /// One for each descriptor, given back with it.
    room: Vec<RoomPermits>,
}

/// What a request wants to do with an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    /// Writing behind the end, which may be allowed alone.
    Append,
    /// Only that it is this inode: durability, attributes.
    Any,
}

impl Opened {
    pub(crate) fn new(volume: Arc<Volume>, handle: Handle, file: File) -> Self {
        let mut opened = Self {
            _volume: volume,
            handle,
            read: None,
            write: None,
            append: None,
            is_explicit: true,
            room: Vec::new(),
        };
        opened.add(Arc::new(file));
        opened
    }

    fn add(&mut self, file: Arc<File>) {
        if !matches!(file.access(), Access::Write) {
            self.read = Some(file.clone());
        }
        if matches!(file.access(), Access::Write | Access::ReadWrite) {
            match file.only_appends() {
                true => self.append = Some(file),
                false => self.write = Some(file),
            }
        }
    }

    pub(crate) fn file(&self, what: Use) -> Option<&Arc<File>> {
        match what {
            Use::Read => self.read.as_ref(),
            Use::Write => self.write.as_ref(),
            Use::Append => self.write.as_ref().or(self.append.as_ref()),
            Use::Any => self.file(Use::Append).or(self.read.as_ref()),
        }
    }

    pub(crate) fn writes(&self) -> bool {
        self.file(Use::Append).is_some()
    }
}

/// Whether an open that a request mentions and nobody knows has to be there afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is what is asked for.
    Surely,
    /// What is asked for can be done by itself. After a restart more opens may be mentioned again
    /// than there is room for: none of their writes is refused for that.
    IfRoom,
}

/// Numbers of opens that are remembered after their close: as many as requests of one session can
/// be overtaken.
const CLOSED_MAX: usize = 4096;

#[derive(Default)]
struct Table {
    open: HashMap<OpenId, Opened>,
    /// The numbers that were closed last, the newest at the back.
    closed: VecDeque<OpenId>,
}

/// Open files by number.
pub(crate) struct Opens {
    table: Mutex<Table>,
    pub(crate) room: Room,
}

impl Opens {
    /// None yet, and what there may be.
    pub(crate) fn new(room: Room) -> Self {
        Self {
            table: Mutex::default(),
            room,
        }
    }

    /// The descriptor with which `open` does `what`, if it is known and of this file.
    ///
    /// # Errors
    /// [`FsError::BadOpen`] if the number means another file, or the file is not open for this.
    pub(crate) fn get(
        &self,
        open: OpenId,
        handle: &Handle,
        what: Use,
    ) -> Result<Option<Arc<File>>, FsError> {
        match self.lock().open.get(&open) {
            Some(opened) if opened.handle != *handle => Err(FsError::BadOpen),
            Some(opened) => match opened.file(what) {
                None if opened.is_explicit => Err(FsError::BadOpen),
                file => Ok(file.cloned()),
            },
            None => Ok(None),
        }
    }

    /// Notes an open file. Returns what had the number before, and whether the session now has the
    /// file open for writing through this number for the first time.
    ///
    /// # Errors
    /// [`FsError::TooManyOpen`].
    pub(crate) fn put(&self, open: OpenId, mut opened: Opened) -> Result<Option<Opened>, FsError> {
        opened.room.push(self.room.take()?);
        let table = &mut self.lock().open;
        if table.len() >= OPENS_PER_SESSION_MAX && !table.contains_key(&open) {
            return Err(FsError::TooManyOpen);
        }
        Ok(table.insert(open, opened))
    }

    /// Adds a descriptor to an open that may be known already. Returns whether the open could not
    /// write before and can now.
    ///
    /// # Errors
    /// [`FsError::BadOpen`] if the number means another file, [`FsError::TooManyOpen`].
    pub(crate) fn merge(
        &self,
        open: OpenId,
        volume: &Arc<Volume>,
        handle: &Handle,
        file: &Arc<File>,
    ) -> Result<bool, FsError> {
        let Table {
            open: table,
            closed,
        } = &mut *self.lock();
        if closed.contains(&open) {
            return Ok(false);
        }
        if table.len() >= OPENS_PER_SESSION_MAX && !table.contains_key(&open) {
            return Err(FsError::TooManyOpen);
        }
        let room = self.room.take()?;
        let opened = table.entry(open).or_insert_with(|| Opened {
            _volume: volume.clone(),
            handle: handle.clone(),
            read: None,
            write: None,
            append: None,
            is_explicit: false,
            room: Vec::new(),
        });
        if opened.handle != *handle {
            return Err(FsError::BadOpen);
        }
        let wrote = opened.writes();
        opened.room.truncate(2);
        opened.room.push(room);
        opened.add(file.clone());
        Ok(!wrote && opened.writes())
    }

    /// Forgets an open.
    pub(crate) fn take(&self, open: OpenId) -> Option<Opened> {
        let mut table = self.lock();
        if table.closed.len() == CLOSED_MAX {
            table.closed.pop_front();
        }
        table.closed.push_back(open);
        table.open.remove(&open)
    }

    /// Forgets all.
    pub(crate) fn take_all(&self) -> Vec<Opened> {
        std::mem::take(&mut self.lock().open)
            .into_values()
            .collect()
    }

    /// Whether the session has this file open for that.
    pub(crate) fn has(&self, handle: &Handle, what: Use) -> bool {
        let table = self.lock();
        let mut opens = table.open.values();
        opens.any(|opened| opened.handle == *handle && opened.file(what).is_some())
    }

    /// A descriptor of this file, whatever it is open for.
    pub(crate) fn any(&self, handle: &Handle) -> Option<Arc<File>> {
        let table = self.lock();
        let opened = table
            .open
            .values()
            .find(|opened| opened.handle == *handle)?;
        opened.file(Use::Any).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().open.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a file for the caller; for its owner also against the mode bits.
pub(crate) fn open_again(
    volume: &Volume,
    by: By<'_>,
    handle: &Handle,
    options: OpenOptions,
) -> Result<File, FsError> {
    match volume.tree.open_file(by, handle, options) {
        Err(FsError::AccessDenied) => {
            let attributes = volume.tree.attributes(by, handle)?;
            if attributes.uid != by.who.uid {
                return Err(FsError::AccessDenied);
            }
            volume
                .tree
                .open_file(by.with(&Principal::root()), handle, options)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hoards_opens_gets_an_error_and_leaves_room_for_other_credentials() {
        let room = Room::new(80);
        let other = room.of_another();
        let mut hoard: Vec<_> = std::iter::from_fn(|| room.take().ok()).collect();
        assert_eq!(hoard.len(), 30);
        assert!(room.clone().take().is_err(), "another session of the same");
        let others: Vec<_> = std::iter::from_fn(|| other.take().ok()).collect();
        assert_eq!(others.len(), 10);
        hoard.pop();
        assert!(other.take().is_ok());
        // An attempt that fails takes nothing.
        drop(others);
        let others: Vec<_> = std::iter::from_fn(|| other.take().ok()).collect();
        assert_eq!(others.len(), 11);
    }
}
