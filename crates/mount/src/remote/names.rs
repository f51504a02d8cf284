//! Names: look-up, creation, removal, renaming, listing.

use super::convert::name_valid;
use super::errno::name_errno;
use super::handles::Handles;
use super::{Call, RemoteFs};
use crate::kernel::{
    DirectoryBuilder, DirectoryPlusBuilder, FOpenFlags, Fh, NodeId as KernelNode, Opened, ReadDir,
};
use base::{FileKind, FsError, Name};
use bytes::Bytes;
use client::cache::NodeId;
use client::volume::{Creation, Listing, ListingEntry, View, Volume};
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use std::sync::Arc;
use wire::message::RenameMode;

/// Offsets of the two entries that every directory has; those of the listing follow.
const OFFSET_SELF: u64 = 1;
const OFFSET_PARENT: u64 = 2;

/// The entry of the listing with which a page goes on.
fn first_entry(offset: u64) -> usize {
    usize::try_from(offset.saturating_sub(OFFSET_PARENT)).unwrap_or(usize::MAX)
}

/// Answers a removal or a rename. If the caller was killed meanwhile, the kernel has names as they
/// were, or has been told so since.
fn answer_changed(volume: &Volume, call: Call, outcome: Result<(), FsError>) {
    if !call.answer.outcome(outcome) {
        volume.tell_names();
    }
}

impl RemoteFs {
    /// A name from the kernel, or the answer that it cannot be.
    pub(super) fn name(call: Call, name: &Bytes) -> Option<(Call, Name)> {
        match Name::new(name) {
            Ok(name) => Some((call, name)),
            Err(error) => {
                call.answer.error(name_errno(error));
                None
            }
        }
    }

    pub(super) fn lookup(&self, call: Call, name: &Bytes) {
        let Some((mut call, name)) = Self::name(call, name) else {
            return;
        };
        match self.volume.lookup_cached(call.node, &name) {
            Some(Some(view)) => return self.answer_found(call, view),
            Some(None) => return call.answer.negative(name_valid(true, self.names_kept)),
            None => {}
        }
        let who = call.who();
        call.answer.wait(None);
        let this = self.part();
        self.runtime.spawn(async move {
            match this.volume.lookup(&who, call.node, &name).await {
                Ok(Some(view)) => this.answer_judged(call, &who, &view).await,
                // A name that is not there is known by the same lease; the next look-up says so.
                Ok(None) => call.answer.error(Errno::NOENT),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn mkdir(&self, call: Call, name: &Bytes, mode: u16, umask: u16) {
        let Some((mut call, name)) = Self::name(call, name) else {
            return;
        };
        let who = call.who();
        call.answer.wait(None);
        let this = self.part();
        let creation = Creation {
            parent: call.node,
            name,
            mode,
            umask,
        };
        self.runtime.spawn(async move {
            let made = this.volume.make_directory(&who, &creation).await;
            this.answer_made(call, made);
        });
    }

    pub(super) fn mknod(
        &self,
        call: Call,
        name: &Bytes,
        kind: FileKind,
        mode: u16,
        umask: u16,
        device: u64,
    ) {
        let Some((mut call, name)) = Self::name(call, name) else {
            return;
        };
        let who = call.who();
        call.answer.wait(None);
        let this = self.part();
        let creation = Creation {
            parent: call.node,
            name,
            mode,
            umask,
        };
        self.runtime.spawn(async move {
            let made = this.volume.make_node(&who, &creation, kind, device).await;
            this.answer_made(call, made);
        });
    }

    pub(super) fn symlink(&self, call: Call, name: &Bytes, target: Bytes) {
        let Some((mut call, name)) = Self::name(call, name) else {
            return;
        };
        let who = call.who();
        call.answer.wait(None);
        let this = self.part();
        self.runtime.spawn(async move {
            let made = this
                .volume
                .make_symlink(&who, call.node, &name, &target)
                .await;
            this.answer_made(call, made);
        });
    }

    pub(super) fn link(&self, call: Call, target: KernelNode, name: &Bytes) {
        let Some((mut call, name)) = Self::name(call, name) else {
            return;
        };
        let who = call.who();
        call.answer.wait(None);
        let this = self.part();
        self.runtime.spawn(async move {
            let made = this
                .volume
                .link(&who, NodeId(target.0), call.node, &name)
                .await;
            this.answer_made(call, made);
        });
    }

    pub(super) fn remove(&self, call: Call, name: &Bytes, directory: bool) {
        let Some((mut call, name)) = Self::name(call, name) else {
            return;
        };
        let who = call.who();
        if !directory && self.volume.try_remove_ahead(&who, call.node, &name) {
            return call.answer.done();
        }
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let outcome = volume.remove(&who, call.node, &name, directory).await;
            answer_changed(&volume, call, outcome);
        });
    }

    pub(super) fn rename(
        &self,
        call: Call,
        name: &Bytes,
        to_parent: KernelNode,
        to_name: &Bytes,
        flags: RenameFlags,
    ) {
        let Some((call, name)) = Self::name(call, name) else {
            return;
        };
        let Some((mut call, to_name)) = Self::name(call, to_name) else {
            return;
        };
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::NOREPLACE {
            RenameMode::NoReplace
        } else if flags == RenameFlags::EXCHANGE {
            RenameMode::Exchange
        } else {
            return call.answer.error(Errno::INVAL);
        };
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let to_parent = NodeId(to_parent.0);
            let outcome = volume
                .rename(&who, call.node, &name, to_parent, &to_name, mode)
                .await;
            answer_changed(&volume, call, outcome);
        });
    }

    pub(super) fn open_dir(&self, call: Call) {
        let fh = self.handles.insert_directory(self.volume.open_directory());
        if !call.answer.opened(&Opened::new(fh, FOpenFlags::empty())) {
            self.handles.remove(fh);
        }
    }

    pub(super) fn fsync_dir(&self, mut call: Call, fh: Fh) {
        let Some(directory) = self.handles.directory(fh) else {
            return call.answer.error(Errno::BADF);
        };
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let outcome = volume
                .sync_directory(&who, call.node, &directory.told)
                .await;
            call.answer.outcome(outcome);
        });
    }

    pub(super) fn read_dir(&self, mut call: Call, page: ReadDir, plus: bool) {
        let Some(directory) = self.handles.directory(page.fh) else {
            return call.answer.error(Errno::BADF);
        };
        // The kernel asks for a page when it has taken over the one before.
        self.volume.on_listing_taken(page.fh.0);
        let known = directory.listing();
        let known = if page.offset > 0 {
            known
        } else {
            // From the start: what is read now must be as it is now.
            self.volume.list_cached(call.node).inspect(|listing| {
                directory.set_listing(Arc::clone(listing));
            })
        };
        // Listing also says that the tree is walked, so the first page always passes the volume.
        let first = first_entry(page.offset);
        let known = known.filter(|_| page.offset > 0);
        if let Some(listing) = known.as_ref().filter(|listing| listing.at(first).is_some()) {
            return self.part().answer_page(call, page, plus, listing);
        }
        let who = call.who();
        call.answer.wait(None);
        let this = self.part();
        self.runtime.spawn(async move {
            let listing = match known {
                Some(listing) => Ok(listing),
                None => this.volume.list_open(&who, call.node).await,
            };
            match listing {
                Ok(listing) => {
                    directory.set_listing(Arc::clone(&listing));
                    // What became of it is looked at by the answer.
                    let _ = listing.reach(first).await;
                    this.answer_page(call, page, plus, &listing);
                }
                Err(error) => call.answer.fail(error),
            }
        });
    }

    /// What a task needs of the file system.
    pub(super) fn part(&self) -> Part {
        Part {
            volume: Arc::clone(&self.volume),
            handles: Arc::clone(&self.handles),
            names_kept: self.names_kept,
            has_devices: self.has_devices,
        }
    }
}

/// The part of the file system that tasks take along.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) volume: Arc<Volume>,
    pub(super) handles: Arc<Handles>,
    pub(super) names_kept: bool,
    pub(super) has_devices: bool,
}

impl Part {
    pub(super) fn entry(&self, view: &View) -> crate::kernel::Entry {
        super::convert::entry(view, self.names_kept)
    }

    /// Tells the kernel of an inode. It counts as known from before the answer is sent, because the
    /// kernel may forget it before the call returns.
    pub(super) fn answer_entry(&self, call: Call, view: &View) {
        self.give_entry(call, view);
    }

    /// As [`Self::answer_entry`]; whether the kernel has heard it.
    fn give_entry(&self, call: Call, view: &View) -> bool {
        let view = self.volume.introduce(view);
        let is_taken = call.answer.entry(&self.entry(&view));
        if !is_taken {
            self.volume.forget(&[(view.node, 1)]);
        }
        is_taken
    }

    /// As with changed attributes, the kernel compares no versions with what it has of the inode: a
    /// link has another name, and what is new may have been found and changed by others since.
    fn answer_made(&self, call: Call, made: Result<View, FsError>) {
        match made {
            Ok(view) => {
                let attributes_leased = false;
                let view = View {
                    attributes_leased,
                    ..view
                };
                if !self.give_entry(call, &view) {
                    // The caller was killed meanwhile, and the kernel still believes that nothing
                    // has the name.
                    self.volume.tell_names();
                }
            }
            Err(error) => call.answer.fail(error),
        }
    }

    fn answer_page(&self, call: Call, page: ReadDir, plus: bool, listing: &Listing) {
        let first = first_entry(page.offset);
        // An empty page says that the listing has ended, which must be true.
        if let Some(Err(error)) = listing.at(first) {
            return call.answer.fail(error);
        }
        if plus {
            self.answer_page_plus(call, page, first, listing);
        } else {
            self.answer_page_bare(call, page, first, listing);
        }
    }

    fn answer_page_bare(&self, call: Call, page: ReadDir, first: usize, listing: &Listing) {
        let mut builder = DirectoryBuilder::new(page.size);
        let full = self.dots(call.node, page.offset, |inode, offset, name| {
            builder.add(inode, offset, FileKind::Directory, name)
        });
        if !full {
            listing.each_from(first, |place, entry| {
                let offset = place as u64 + OFFSET_PARENT + 1;
                builder.add(entry.inode, offset, entry.kind, entry.name.as_bytes())
            });
        }
        call.answer.directory(&builder);
    }

    fn answer_page_plus(&self, call: Call, page: ReadDir, first: usize, listing: &Listing) {
        let mut builder = DirectoryPlusBuilder::new(page.size);
        // Before it is looked whether they may be kept: a recall from then on knows of the page.
        self.volume.on_listing_told(page.fh.0);
        let full = self.dots(call.node, page.offset, |inode, offset, name| {
            builder.add_bare(inode, offset, FileKind::Directory, name)
        });
        let mut told = Vec::new();
        if !full {
            let tell = |place: usize, entry: &ListingEntry, view: Option<&View>| {
                let offset = place as u64 + OFFSET_PARENT + 1;
                let name = entry.name.as_bytes();
                match view {
                    Some(view) => builder.add(&self.entry(view), offset, name),
                    None => builder.add_bare(entry.inode, offset, entry.kind, name),
                }
            };
            told = self.volume.tell_listing(call.node, listing, first, tell);
        }
        if told.is_empty() {
            self.volume.on_listing_taken(page.fh.0);
        }
        if !call.answer.directory_plus(&builder) {
            self.volume.on_listing_taken(page.fh.0);
            let untold: Vec<_> = told.into_iter().map(|node| (node, 1)).collect();
            self.volume.forget(&untold);
        }
    }

    /// Adds `.` and `..` where the page begins before them; whether the page is full.
    fn dots(
        &self,
        node: NodeId,
        offset: u64,
        mut add: impl FnMut(u64, u64, &[u8]) -> bool,
    ) -> bool {
        let inode = self.volume.inode(node).unwrap_or(node.0);
        let parent = self.volume.parent_inode(node).unwrap_or(inode);
        (offset < OFFSET_SELF && add(inode, OFFSET_SELF, b"."))
            || (offset < OFFSET_PARENT && add(parent, OFFSET_PARENT, b".."))
    }
}
