//! Changes that others make to the exported file system.
//!
//! A server that lets clients cache must learn when another process of its machine changes a file.
//! fanotify(7) marks the whole file system (marks per directory would cost memory per directory)
//! and reports the kernel's file handle of what changed, and for names the directory's handle and
//! the name: just what clients' leases are kept under. Events of this process are left out; it
//! knows what it does.
//!
//! Reports concern the whole file system, also what lies outside the exported tree. Their handles
//! are good, so they are for comparing with handles that clients hold, never for sending to one
//! that does not.
//!
//! Not reported, because the kernel does not: writes through a shared memory mapping, access times
//! that are set alone (to the kernel they are reads), and what a network or cluster file system
//! changes on other machines. The kernel's queue is bounded (16,384 events by default); if it
//! overflows, the report is [`LocalChange::Everything`].

use crate::error::ExportError;
use crate::export::Export;
use crate::seal::Seal;
use crate::sys::{self, KernelHandle};
use base::limits::WATCH_CHANGES_MAX;
use base::{FsError, Handle, Name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Names that come and go.
const NAMES: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
/// Contents and attributes, extended ones and link counts included, of files and directories.
const INODES: u64 = libc::FAN_MODIFY | libc::FAN_ATTRIB;
const MASK: u64 = NAMES | INODES | libc::FAN_ONDIR;

const INIT: u32 = libc::FAN_CLASS_NOTIF
    | libc::FAN_CLOEXEC
    | libc::FAN_NONBLOCK
    | libc::FAN_REPORT_FID
    | libc::FAN_REPORT_DFID_NAME;

/// How long events are left to gather after some were taken. Taken one by one they cost a wake-up
/// each, which whoever changes a file pays as well. The kernel's queue holds what comes meanwhile a
/// hundred times over, and a client learns of further changes this much later.
const GATHER_TIME: Duration = Duration::from_millis(2);
/// Room for about 700 events at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Something that another process changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LocalChange {
    /// A name in a directory means something else now, and the directory's attributes changed.
    Entry {
        /// The directory.
        directory: Handle,
        /// The name.
        name: Name,
    },
    /// Contents, attributes, extended attributes or link count of an inode changed.
    Inode(Handle),
    /// Too much changed to say what.
    Everything,
}

/// The changes that others make to an export's file system. See the module's head.
pub struct Watch {
    group: OwnedFd,
    seal: Seal,
    pid: u32,
    buffer: Box<[u8]>,
    /// When events were taken last, if nobody has waited since.
    taken: Option<Instant>,
}

impl Watch {
    /// Begins to watch; changes from now on are reported. Takes root, so a thread that works for
    /// callers is the wrong one to call this.
    ///
    /// # Errors
    /// [`ExportError::Watch`] if the kernel or the file system cannot. A server should then let
    /// clients cache nothing.
    pub fn new(export: &Export) -> Result<Self, ExportError> {
        let failed = |e: Errno| ExportError::Watch { source: e.into() };
        // Before Linux 5.17 an event about a name does not tell which inode has or had it.
        let group = match sys::fanotify_init(INIT | libc::FAN_REPORT_TARGET_FID) {
            Err(Errno::INVAL) => sys::fanotify_init(INIT),
            result => result,
        }
        .map_err(failed)?;
        sys::fanotify_watch(group.as_fd(), MASK, export.top()).map_err(failed)?;
        Ok(Self {
            group,
            seal: export.seal.clone(),
            pid: std::process::id(),
            buffer: vec![0; BUFFER_BYTES].into(),
            taken: None,
        })
    }

    /// Waits up to `timeout` for changes and returns them, none if there were none.
    ///
    /// # Errors
    /// [`FsError::Io`] and the like if the kernel ends the watch; nothing is reported from then on.
    pub fn next(&mut self, timeout: Duration) -> Result<Vec<LocalChange>, FsError> {
        let deadline = Instant::now() + timeout;
        let mut changes = Vec::new();
        self.gather();
        loop {
            match rustix::io::read(&self.group, &mut self.buffer[..]) {
                Ok(len) => {
                    self.take_events(len, &mut changes);
                    self.taken = Some(Instant::now());
                    if changes.len() >= WATCH_CHANGES_MAX {
                        return Ok(changes);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !changes.is_empty() => return Ok(changes),
                Err(Errno::AGAIN) => {
                    // All of them were our own, and there are more where they came from.
                    self.gather();
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() || !self.wait(left)? {
                        return Ok(changes);
                    }
                }
                Err(errno) => return Err(crate::errno::fs_error(errno)),
            }
        }
    }

    /// Leaves events to gather, if some were taken a moment ago.
    fn gather(&mut self) {
        if let Some(taken) = self.taken.take() {
            std::thread::sleep(GATHER_TIME.saturating_sub(taken.elapsed()));
        }
    }

    /// Whether there are events before `left` is over.
    fn wait(&self, left: Duration) -> Result<bool, FsError> {
        let left = Timespec::try_from(left).map_err(|_| FsError::Invalid)?;
        match poll(&mut [PollFd::new(&self.group, PollFlags::IN)], Some(&left)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(crate::errno::fs_error(errno)),
        }
    }

    fn take_events(&self, len: usize, changes: &mut Vec<LocalChange>) {
        let mut rest = &self.buffer[..len];
        while let Some(event) = Event::cut(&mut rest) {
            if event.mask & libc::FAN_Q_OVERFLOW != 0 {
                tracing::warn!("the kernel's queue of local changes overflowed");
                changes.push(LocalChange::Everything);
            } else if event.pid != self.pid {
                self.report(&event, changes);
            }
        }
    }

    fn report(&self, event: &Event<'_>, changes: &mut Vec<LocalChange>) {
        let mut push = |change| {
            if changes.last() != Some(&change) {
                changes.push(change);
            }
        };
        let mut records = event.records;
        while let Some(record) = Record::cut(&mut records) {
            let handle = self.seal.close(&record.handle);
            match record.name {
                // An inode itself; a directory's own events come under the name ".".
                None | Some(b".") => push(LocalChange::Inode(handle)),
                Some(name) if event.mask & NAMES != 0 => {
                    if let Ok(name) = Name::new(name) {
                        push(LocalChange::Entry {
                            directory: handle,
                            name,
                        });
                    }
                }
                // Where a changed inode was reached; its own record follows.
                Some(_) => {}
            }
        }
    }
}

/// One event (`struct fanotify_event_metadata`, 24 bytes) with its records.
struct Event<'b> {
    mask: u64,
    pid: u32,
    records: &'b [u8],
}

impl<'b> Event<'b> {
    fn cut(rest: &mut &'b [u8]) -> Option<Self> {
        let len = number::<4>(rest, 0)? as usize;
        let head = number::<2>(rest, 6)? as usize;
        let event = rest.get(..len)?;
        let mask = number::<8>(event, 8)?;
        let pid = number::<4>(event, 20)? as u32;
        let records = event.get(head..)?;
        *rest = &rest[len..];
        Some(Self { mask, pid, records })
    }
}

/// One record: an inode's handle, maybe with the name under it.
struct Record<'b> {
    handle: KernelHandle,
    name: Option<&'b [u8]>,
}

impl<'b> Record<'b> {
    /// The next record with a handle; others are passed over.
    fn cut(rest: &mut &'b [u8]) -> Option<Self> {
        loop {
            let kind = *rest.first()?;
            let len = number::<2>(rest, 2)? as usize;
            let record = rest.get(..len).filter(|record| record.len() >= 4)?;
            *rest = &rest[len..];
            if let Some(found) = Self::parse(kind, record) {
                return Some(found);
            }
        }
    }

    /// Head (4), file system id (8), length of the handle (4), its type (4), the handle, the name.
    fn parse(kind: u8, record: &'b [u8]) -> Option<Self> {
        let len = number::<4>(record, 12)? as usize;
        let bytes = record
            .get(20..)?
            .get(..len)
            .filter(|bytes| !bytes.is_empty())?;
        let handle = KernelHandle::new((number::<4>(record, 16)? as u32).cast_signed(), bytes)?;
        let name = match kind {
            libc::FAN_EVENT_INFO_TYPE_FID | libc::FAN_EVENT_INFO_TYPE_DFID => None,
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                let name = &record[20 + len..];
                Some(name.split(|byte| *byte == 0).next().unwrap_or(name))
            }
            _ => return None,
        };
        Some(Self { handle, name })
    }
}

/// The number of `N` bytes at `offset`, in this machine's order, as the kernel wrote it.
fn number<const N: usize>(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..)?.first_chunk::<N>()?;
    let mut number = [0; 8];
    if cfg!(target_endian = "little") {
        number[..N].copy_from_slice(field);
    } else {
        number[8 - N..].copy_from_slice(field);
    }
    #[expect(
        clippy::host_endian_bytes,
        reason = "the kernel speaks the machine's order"
    )]
    Some(u64::from_ne_bytes(number))
}
