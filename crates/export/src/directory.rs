//! Paged listings.
//!
//! A page goes on where the last one ended by the file system's own cookie (`d_off`), which keeps its
//! meaning while entries come and go: whatever is there throughout is listed exactly once. Between
//! pages the open directory is kept, per caller, because the right to list was judged for the caller
//! who opened it; without it (too many, too long ago, server restarted) the next page opens the
//! directory again and seeks.
//!
//! With attributes, each entry is held by a descriptor while its attributes and its handle are taken:
//! two look-ups by name could find two different inodes, and a client would keep one's attributes
//! under the other's handle.

use crate::cache::Pin;
use crate::errno::fs_error;
use crate::export::{Export, Node};
use crate::stat::kind_of;
use crate::worker::{Assumed, Worker};
use base::limits::{DIRECTORY_ENTRIES_MAX, EXPORT_DIRECTORIES_MAX, EXPORT_DIRECTORY_IDLE_TIME_MAX};
use base::{FileKind, FsError, Handle, Name, Principal};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, RawDir, SeekFrom};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Room for the kernel's entries, about 40 bytes each with short names.
const BUFFER_BYTES: usize = 64 << 10;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Name,
    /// Where the listing goes on behind this entry.
    pub cookie: u64,
    /// Inode number, as the directory says.
    pub inode: u64,
    /// Kind, where the directory says it.
    pub kind: Option<FileKind>,
    /// Handle and attributes, if asked for and to be had: not for mount points, and not for callers
    /// who may list but not search the directory.
    pub node: Option<Node>,
}

/// A part of a directory's listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryPage {
    /// Entries in the file system's order, without `.` and `..`.
    pub entries: Vec<DirectoryEntry>,
    /// Whether there are no more.
    pub end: bool,
}

/// A directory that is open for a caller's next page.
struct OpenDirectory {
    handle: Handle,
    principal: Principal,
    fd: OwnedFd,
    cookie: u64,
    since: Instant,
}

/// The directories between two pages, oldest first.
#[derive(Default)]
pub(crate) struct OpenDirectories(Mutex<VecDeque<OpenDirectory>>);

impl OpenDirectories {
    /// Takes out the directory that this caller has open at `cookie`.
    fn take(&self, handle: &Handle, principal: &Principal, cookie: u64) -> Option<OwnedFd> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = all.iter().rposition(|open| {
            open.cookie == cookie && open.handle == *handle && open.principal == *principal
        })?;
        all.remove(place).map(|open| open.fd)
    }

    fn put(&self, open: OpenDirectory) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if all.len() >= EXPORT_DIRECTORIES_MAX {
            all.pop_front()
        } else {
            None
        };
        all.push_back(open);
        drop(all);
        drop(oldest);
    }

    /// Closes those whose reader has not come back.
    pub(crate) fn close_idle(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let living = all.partition_point(|o| o.since.elapsed() > EXPORT_DIRECTORY_IDLE_TIME_MAX);
        let idle: Vec<_> = all.drain(..living).collect();
        drop(all);
        drop(idle);
    }
}

impl Export {
    /// Lists a directory from `cookie` on (0 for the beginning, else that of the last entry seen), at
    /// most `entries_max` entries; with `plus` each with its handle and attributes.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`], [`FsError::AccessDenied`] if the caller may not list it; else the
    /// kernel's.
    pub fn read_directory(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        cookie: u64,
        entries_max: usize,
        plus: bool,
    ) -> Result<DirectoryPage, FsError> {
        let caller = worker.assume(principal)?;
        let directory = self.resolve(&caller, handle)?;
        let fd = self.open_listing(&caller, principal, handle, &directory, cookie)?;
        let entries_max = entries_max.clamp(1, DIRECTORY_ENTRIES_MAX);
        let page = worker.with_buffer(BUFFER_BYTES, |buffer| {
            self.fill_page(&fd, buffer, entries_max, plus)
        })?;
        if let Some(last) = page.entries.last().filter(|_| !page.end) {
            // The kernel has handed out more than was asked for; the position goes back there.
            if rustix::fs::seek(&fd, SeekFrom::Start(last.cookie)).is_ok() {
                self.directories.put(OpenDirectory {
                    handle: handle.clone(),
                    principal: principal.clone(),
                    cookie: last.cookie,
                    fd,
                    since: Instant::now(),
                });
            }
        }
        Ok(page)
    }

    fn open_listing(
        &self,
        caller: &Assumed<'_>,
        principal: &Principal,
        handle: &Handle,
        directory: &Pin,
        cookie: u64,
    ) -> Result<OwnedFd, FsError> {
        if directory.kind() != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if cookie != 0
            && let Some(fd) = self.directories.take(handle, principal, cookie)
        {
            return Ok(fd);
        }
        let fd = self.reopen(caller, directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        if cookie != 0 {
            rustix::fs::seek(&fd, SeekFrom::Start(cookie)).map_err(fs_error)?;
        }
        Ok(fd)
    }

    fn fill_page(
        &self,
        fd: &OwnedFd,
        buffer: &mut [std::mem::MaybeUninit<u8>],
        entries_max: usize,
        plus: bool,
    ) -> Result<DirectoryPage, FsError> {
        let mut entries = Vec::with_capacity(entries_max.min(64));
        let mut listing = RawDir::new(fd, buffer);
        while entries.len() < entries_max {
            let Some(entry) = listing.next() else {
                return Ok(DirectoryPage { entries, end: true });
            };
            let entry = entry.map_err(fs_error)?;
            let name = entry.file_name().to_bytes();
            let Ok(name) = Name::new(name) else {
                if !matches!(name, b"." | b"..") {
                    tracing::warn!(inode = entry.ino(), "a directory has an impossible name");
                }
                continue;
            };
            let node = match plus.then(|| self.peek(fd, &name)) {
                // It was removed after the kernel read it.
                Some(Err(FsError::NotFound)) => continue,
                Some(Ok((node, _))) => Some(node),
                Some(Err(_)) | None => None,
            };
            entries.push(DirectoryEntry {
                name,
                cookie: entry.next_entry_cookie(),
                inode: entry.ino(),
                kind: kind_of(entry.file_type()),
                node,
            });
        }
        Ok(DirectoryPage {
            entries,
            end: false,
        })
    }
}
