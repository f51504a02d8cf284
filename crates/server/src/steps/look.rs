//! Steps that change nothing.

use super::room::ENTRY_BYTES;
use super::{Execution, Place, Stop};
use crate::lease::Moment;
use crate::opens::Use;
use base::limits::{DIRECTORY_ENTRIES_MAX, INLINE_BYTES_MAX, XATTR_LIST_BYTES_MAX};
use base::{Access, Attributes, FileKind, FsError, Handle, Name, Node, Principal, Rights};
use export::{OpenOptions, Worker};
use wire::message::{self, DirectoryEntry, Entry, Lease, Step, StepReply, Target};

impl Execution {
    pub(super) fn look(&mut self, worker: &Worker, step: &Step) -> Result<StepReply, Stop> {
        match step {
            Step::Attach { volume } => self.attach(worker, volume),
            Step::Lookup {
                parent,
                name,
                inline_bytes_max,
            } => self.lookup(worker, parent, name, *inline_bytes_max),
            Step::Attributes { target } => self.attributes(worker, target),
            Step::ReadLink { target } => {
                let place = self.target(target)?;
                let link = place.volume.tree.read_link(self.by(worker), &place.inner)?;
                self.take_body(link.len())?;
                Ok(StepReply::LinkTarget(link))
            }
            Step::ReadDirectory {
                target,
                cookie,
                entries_max,
            } => self.read_directory(worker, target, *cookie, *entries_max),
            Step::Fetch { handles, bytes_max } => self.fetch(worker, handles, *bytes_max),
            Step::StatFileSystem { target } => {
                let place = self.target(target)?;
                let stat = place.volume.tree.statfs(self.by(worker), &place.inner)?;
                Ok(StepReply::FileSystem(stat))
            }
            Step::GetXattr { target, name } => {
                let place = self.target(target)?;
                let value = place
                    .volume
                    .tree
                    .get_xattr(self.by(worker), &place.inner, name)?;
                self.take_body(value.len())?;
                Ok(StepReply::Xattr(value))
            }
            Step::ListXattrs { target } => self.list_xattrs(worker, target),
            Step::Access { target, rights } => self.access(worker, target, *rights),
            Step::Explain {
                target,
                directory,
                who,
                rights,
            } => self.explain(worker, target, directory.as_ref(), who, *rights),
            _ => unreachable!("the dispatcher sends only these here"),
        }
    }

    fn attach(&mut self, worker: &Worker, name: &str) -> Result<StepReply, Stop> {
        let volume = self.core.volumes.by_name(name)?;
        self.enter_parallel(&volume)?;
        let root = volume.outer(volume.tree.root());
        self.contest([&root])?;
        let then = self.core.caching.moment();
        let handle = volume.tree.root().clone();
        let attributes = volume.tree.attributes(self.by(worker), &handle)?;
        // Before its first lease: the note of that says which volume it is.
        self.session.attach(volume.id);
        let node = Node { handle, attributes };
        let entry = self.entry(worker, &volume, node, Lease::Read, then)?;
        self.note(entry.handle.clone());
        Ok(StepReply::Attached {
            volume: volume.id,
            root: entry,
            read_only: volume.read_only,
            parallel: volume.tree.parallel().is_some(),
        })
    }

    fn attributes(&mut self, worker: &Worker, target: &Target) -> Result<StepReply, Stop> {
        let place = self.target(target)?;
        let (lease, _) = self.enter(&place, Lease::Read)?;
        let attributes = self.attributes_of(worker, &place)?;
        self.note(place.outer);
        Ok(StepReply::Attributes { attributes, lease })
    }

    /// The attributes of an inode, by handle or, if it has no name any more, by an open of it.
    pub(super) fn attributes_of(
        &self,
        worker: &Worker,
        place: &Place,
    ) -> Result<Attributes, FsError> {
        match place.volume.tree.attributes(self.by(worker), &place.inner) {
            Err(FsError::Stale) => {
                let file = self.session.opens.any(&place.outer).ok_or(FsError::Stale)?;
                file.attributes(&self.turn)
            }
            other => other,
        }
    }

    fn lookup(
        &mut self,
        worker: &Worker,
        parent: &Target,
        name: &Name,
        inline_bytes_max: u32,
    ) -> Result<StepReply, Stop> {
        let parent = self.target(parent)?;
        let (parent_lease, then) = self.enter(&parent, Lease::Read)?;
        let volume = &parent.volume;
        let node = match volume.tree.lookup(self.by(worker), &parent.inner, name) {
            Ok(node) => node,
            Err(FsError::NotFound) => {
                return Ok(StepReply::Found {
                    entry: None,
                    parent_lease,
                    inline_bytes: None,
                });
            }
            Err(error) => return Err(error.into()),
        };
        let outer = volume.outer(&node.handle);
        if node.attributes.kind == FileKind::Directory {
            self.contest([&outer])?;
        }
        let place = Place {
            volume: volume.clone(),
            outer,
            inner: node.handle,
        };
        let mut attributes = node.attributes;
        let before = self.out.len();
        let mut inline_bytes = self.inline(worker, &place, &attributes, inline_bytes_max);
        let (lease, fresh) = self.grant_found(volume, &place.outer, Lease::Read, then);
        if !fresh {
            // Somebody changed it meanwhile. Under the lease what is read now stays true.
            self.out.truncate(before);
            attributes = volume.tree.attributes(self.by(worker), &place.inner)?;
            inline_bytes = self.inline(worker, &place, &attributes, inline_bytes_max);
        }
        self.note(place.outer.clone());
        let entry = Some(Entry {
            handle: place.outer,
            attributes,
            lease,
        });
        Ok(StepReply::Found {
            entry,
            parent_lease,
            inline_bytes,
        })
    }

    /// Adds the contents of a small file to the payload if the caller may read it.
    fn inline(
        &mut self,
        worker: &Worker,
        place: &Place,
        attributes: &Attributes,
        bytes_max: u32,
    ) -> Option<u32> {
        let bytes_max = u64::from(bytes_max.min(INLINE_BYTES_MAX));
        let is_here = place.volume.tree.export().is_some();
        let fits = is_here
            && attributes.kind == FileKind::File
            && attributes.size <= bytes_max
            && attributes.size <= self.payload_left() as u64;
        if bytes_max == 0 || !fits {
            return None;
        }
        let options = OpenOptions::new(Access::Read);
        let tree = &place.volume.tree;
        let file = tree
            .open_file(self.by(worker), &place.inner, options)
            .ok()?;
        let bytes = usize::try_from(attributes.size).ok()?;
        self.reserve(bytes);
        let before = self.out.len();
        match file.read_at(0, bytes, &mut self.out) {
            Ok(read) if read == bytes => u32::try_from(bytes).ok(),
            // It shrinks at this moment, or its disk fails: the client asks in the usual way.
            Ok(_) | Err(_) => {
                self.out.truncate(before);
                None
            }
        }
    }

    fn read_directory(
        &mut self,
        worker: &Worker,
        target: &Target,
        cookie: u64,
        entries_max: u32,
    ) -> Result<StepReply, Stop> {
        let place = self.target(target)?;
        let (lease, then) = self.enter(&place, Lease::Read)?;
        let volume = &place.volume;
        let entries_max = (entries_max as usize).clamp(1, DIRECTORY_ENTRIES_MAX);
        let page =
            volume
                .tree
                .read_directory(self.by(worker), &place.inner, cookie, entries_max)?;
        let mut end = page.end;
        let mut entries = Vec::with_capacity(page.entries.len());
        for found in page.entries {
            let handle = found.node.as_ref().map(|node| volume.outer(&node.handle));
            let bytes = ENTRY_BYTES
                + found.name.as_bytes().len()
                + handle.as_ref().map_or(0, |h| h.as_bytes().len());
            if bytes > self.body_left {
                end = false;
                break;
            }
            self.body_left -= bytes;
            let attributes = found.node.map(|node| node.attributes);
            let kind = attributes.as_ref().map(|a| a.kind).or(found.kind);
            entries.push(DirectoryEntry {
                name: found.name,
                inode: found.inode,
                kind: kind.unwrap_or(FileKind::File),
                cookie: found.cookie,
                entry: handle.zip(attributes).map(|(handle, attributes)| Entry {
                    handle,
                    attributes,
                    lease: Lease::None,
                }),
            });
        }
        if entries.is_empty() && !end {
            return Err(FsError::Overflow.into());
        }
        if volume.is_watched() && lease > Lease::None {
            self.lease_entries(worker, &place, &mut entries, then);
        }
        self.note(place.outer);
        Ok(StepReply::Directory {
            entries,
            end,
            lease,
        })
    }

    /// Leases on all entries of a page at once. Attributes that changed while the page was read are
    /// read again.
    fn lease_entries(
        &self,
        worker: &Worker,
        directory: &Place,
        entries: &mut [DirectoryEntry],
        then: Moment,
    ) {
        let found = entries.iter().filter_map(|e| e.entry.as_ref());
        let wanted = found.map(|entry| (&entry.handle, Lease::Read));
        let leases = self.core.caching.grant_found(&self.session, wanted, then);
        let found = entries.iter_mut().filter(|e| e.entry.is_some());
        for (listed, (lease, fresh)) in found.zip(leases) {
            let Some(entry) = &mut listed.entry else {
                continue;
            };
            entry.lease = lease;
            if fresh {
                continue;
            }
            let again = self
                .core
                .volumes
                .by_handle(&entry.handle)
                .and_then(|(volume, inner)| volume.tree.attributes(self.by(worker), &inner));
            match again {
                Ok(attributes) => entry.attributes = attributes,
                Err(error) => {
                    tracing::debug!(volume = directory.volume.name, %error, "an entry vanished");
                    listed.entry = None;
                }
            }
        }
    }

    fn fetch(
        &mut self,
        worker: &Worker,
        handles: &[Handle],
        bytes_max: u32,
    ) -> Result<StepReply, Stop> {
        let mut files = Vec::with_capacity(handles.len());
        for handle in handles {
            let file = if self.body_left < ENTRY_BYTES {
                None
            } else {
                self.body_left -= ENTRY_BYTES;
                self.fetch_one(worker, handle, bytes_max)
            };
            files.push(file);
        }
        Ok(StepReply::Contents { files })
    }

    fn fetch_one(
        &mut self,
        worker: &Worker,
        handle: &Handle,
        bytes_max: u32,
    ) -> Option<(u32, Attributes, Lease)> {
        let place = self.place(handle.clone()).ok()?;
        let lease = self.grant(&place, Lease::Read);
        let attributes = place
            .volume
            .tree
            .attributes(self.by(worker), &place.inner)
            .ok()?;
        // The lease was recorded first: whoever changes the file from here on recalls it. It stays
        // if the contents are left out: the client may have had it before, and goes on believing.
        let bytes = self.inline(worker, &place, &attributes, bytes_max)?;
        Some((bytes, attributes, lease))
    }

    /// Whether the caller may, for clients whose kernel does not judge.
    fn access(&mut self, worker: &Worker, target: &Target, rights: u8) -> Result<StepReply, Stop> {
        let place = self.target(target)?;
        let tree = &place.volume.tree;
        let wanted = Rights {
            read: rights & 4 != 0,
            write: rights & 2 != 0,
            execute: rights & 1 != 0,
        };
        if wanted != Rights::default() {
            tree.check_access(self.by(worker), &place.inner, wanted)?;
        }
        let is_rich = tree.is_rich();
        Ok(StepReply::Access { is_rich })
    }

    fn explain(
        &mut self,
        worker: &Worker,
        target: &Target,
        directory: Option<&Target>,
        who: &Principal,
        rights: u32,
    ) -> Result<StepReply, Stop> {
        let place = self.target(target)?;
        let directory = directory.map(|target| self.target(target)).transpose()?;
        let rights = acl::Rights::from_bits(rights).ok_or(FsError::Invalid)?;
        let tree = &place.volume.tree;
        let directory = directory.as_ref().map(|place| &place.inner);
        let explained = tree.explain(self.by(worker), (&place.inner, directory), who, rights)?;
        let explanation = crate::rich::explanation(explained);
        let entry = explanation.entry.as_ref();
        self.take_body(entry.map_or(0, |entry| entry.text.len()))?;
        Ok(StepReply::Explained(explanation))
    }

    fn list_xattrs(&mut self, worker: &Worker, target: &Target) -> Result<StepReply, Stop> {
        let place = self.target(target)?;
        let names = place
            .volume
            .tree
            .list_xattrs(self.by(worker), &place.inner)?;
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        if list.len() > XATTR_LIST_BYTES_MAX {
            return Err(FsError::TooBig.into());
        }
        self.take_body(list.len())?;
        Ok(StepReply::XattrNames(list))
    }
}

/// What an open must allow for an access that the client asks for.
pub(super) fn use_of(access: message::Access) -> Use {
    match access {
        message::Access::Read => Use::Read,
        message::Access::Write | message::Access::ReadWrite => Use::Write,
        message::Access::Append | message::Access::ReadAppend => Use::Append,
    }
}
