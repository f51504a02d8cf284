//! Paged listings.
//!
//! A page goes on where the last one ended by the file system's own cookie (`d_off`), which keeps
//! its meaning while entries come and go: whatever is there throughout is listed exactly once.
//! Between pages the open directory is kept, per caller, because the right to list was judged for
//! the caller who opened it; without it (too many, too long ago, server restarted) the next page
//! opens the directory again and seeks.
//!
//! With attributes, an entry takes two look-ups by name, one for the handle and one for the
//! attributes, and another process may put another inode there in between. A client would then keep
//! one inode's attributes under another's handle. So the inode number in the handle, whose place is
//! known for the usual file systems, must be that of the attributes. (The number alone could be
//! that of a successor under the same number; but then the handle, which was taken first, is stale
//! for ever, and whoever uses it learns that.) Where the numbers differ or the place is not known,
//! the entry is held by a descriptor while both are taken; that costs 3.9 us an entry instead of
//! 2.9.

use crate::cache::Pin;
use crate::errno::fs_error;
use crate::export::Export;
use crate::rich::{Way, by_way};
use crate::stat::{kind_of, stat_in};
use crate::sys;
use crate::worker::{Assumed, Worker};
use base::limits::{DIRECTORY_ENTRIES_MAX, EXPORT_DIRECTORIES_MAX, EXPORT_DIRECTORY_IDLE_TIME_MAX};
use base::{DirectoryEntry, DirectoryPage, FileKind, FsError, Handle, Name, Node, Principal};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, RawDir, SeekFrom};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Room for the kernel's entries. It fills all of it, so a short page gets less.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Room for three entries with the longest names.
const BUFFER_BYTES_MIN: usize = 1 << 10;
/// An entry with a name of 20 to 27 bytes.
const ENTRY_BYTES_USUAL: usize = 48;

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
    /// Lists a directory from `cookie` on (0 for the beginning, else that of the last entry seen),
    /// at most `entries_max` entries; with `plus` each with its handle and attributes.
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
        let rich = self.rich_file(handle, &*directory)?;
        let listing = self.way_by(rich.as_ref(), principal, acl::Rights::READ_DATA)?;
        let fd = by_way(&caller, listing, || {
            self.open_listing(&caller, principal, handle, &directory, cookie)
        })?;
        // Attributes of what is in it are for who may search it.
        let search = self.way_by(rich.as_ref(), principal, acl::Rights::EXECUTE);
        let (search, plus) = match search {
            Err(FsError::AccessDenied) => (Way::Kernel, false),
            search => (search?, plus),
        };
        let entries_max = entries_max.clamp(1, DIRECTORY_ENTRIES_MAX);
        let buffer_bytes =
            (entries_max * ENTRY_BYTES_USUAL).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        let page = worker.with_buffer(buffer_bytes, |buffer| {
            by_way(&caller, search, || {
                self.fill_page(&fd, buffer, entries_max, plus)
            })
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
            let node = match plus.then(|| self.entry_node(fd, entry.file_name(), &name)) {
                // It was removed after the kernel read it.
                Some(Err(FsError::NotFound)) => continue,
                Some(Ok(node)) => Some(node),
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

    /// Handle and attributes of an entry; see the module's head.
    fn entry_node(&self, fd: &OwnedFd, c_name: &CStr, name: &Name) -> Result<Node, FsError> {
        let (kernel, mount) = sys::name_to_handle_in(fd.as_fd(), c_name).map_err(fs_error)?;
        if mount == self.mount {
            let (stat, mount) = stat_in(fd, c_name)?;
            if mount == self.mount && kernel.inode() == Some(stat.attributes.inode) {
                self.check_device(&stat)?;
                return Ok(Node {
                    handle: self.seal.close(&kernel),
                    attributes: stat.attributes,
                });
            }
        }
        self.peek(fd, name).map(|(node, _)| node)
    }
}
