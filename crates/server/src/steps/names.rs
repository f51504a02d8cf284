//! Names: creations, links, removals, renames, and appends, which share with them that they must
//! not run twice.
//!
//! Each goes through [`Execution::once`].

use super::copies::unknown;
use super::data::options_of;
use super::{Execution, Place, Stop};
use crate::journal::{Act, Done};
use crate::lease::{Change, Moment};
use crate::opens::open_again;
use crate::tree::File;
use crate::volume::Volume;
use base::{Access, AttributeChange, Attributes, FileKind, FsError, Handle, Name, Node, OpenId};
use bytes::BytesMut;
use export::{Create, OpenOptions, Worker, Written};
use meta::namespace::Identity;
use wire::message::{self, Entry, Lease, RenameMode, Step, StepReply, Target};

/// In which pieces contents are lost with a machine.
const PAGE_BYTES: usize = 4096;

/// Whose name is taken away.
#[derive(Clone, Copy)]
enum Removing<'s> {
    /// A file's; this one's, if one is stated.
    File(Option<&'s Handle>),
    /// A directory's.
    Directory,
}

/// What a name is made into.
enum Making<'s> {
    Directory {
        mode: u16,
        umask: u16,
    },
    Node {
        kind: FileKind,
        mode: u16,
        umask: u16,
        device: u64,
    },
    Symlink {
        target: &'s [u8],
    },
}

impl<'s> Making<'s> {
    /// What a step makes, where and under which name.
    fn of(step: &'s Step) -> Option<(&'s Target, &'s Name, Self)> {
        Some(match step {
            Step::MakeDirectory {
                parent,
                name,
                mode,
                umask,
            } => {
                let (mode, umask) = (*mode, *umask);
                (parent, name, Self::Directory { mode, umask })
            }
            Step::MakeNode {
                parent,
                name,
                kind,
                mode,
                umask,
                device,
            } => {
                let (kind, mode, umask, device) = (*kind, *mode, *umask, *device);
                (
                    parent,
                    name,
                    Self::Node {
                        kind,
                        mode,
                        umask,
                        device,
                    },
                )
            }
            Step::MakeSymlink {
                parent,
                name,
                link_target,
            } => (
                parent,
                name,
                Self::Symlink {
                    target: link_target,
                },
            ),
            _ => return None,
        })
    }
}

fn how(mode: u16, umask: u16, exclusive: bool, access: Access) -> Create {
    Create {
        mode,
        umask,
        exclusive,
        open: OpenOptions::new(access),
    }
}

impl Execution {
    pub(super) fn names(&mut self, worker: &Worker, step: &Step) -> Result<StepReply, Stop> {
        if let Some((parent, name, making)) = Making::of(step) {
            return self.make(worker, parent, name, &making);
        }
        match step {
            Step::Create {
                parent,
                name,
                mode,
                umask,
                exclusive,
                open,
            } => {
                let how = how(*mode, *umask, *exclusive, Access::Read);
                self.create(worker, parent, name, how, *open)
            }
            Step::CreateFile {
                parent,
                name,
                mode,
                umask,
                change,
                bytes,
            } => {
                let how = how(*mode, *umask, true, Access::Write);
                self.create_file(worker, parent, name, how, change, *bytes)
            }
            Step::Link {
                target,
                parent,
                name,
            } => self.link(worker, target, parent, name),
            Step::Remove { parent, name, file } => {
                let kind = Removing::File(file.as_ref());
                self.remove(worker, parent, name, kind)
            }
            Step::RemoveDirectory { parent, name } => {
                self.remove(worker, parent, name, Removing::Directory)
            }
            Step::Rename {
                parent,
                name,
                to_parent,
                to_name,
                mode,
            } => self.rename(worker, (parent, name), (to_parent, to_name), *mode),
            _ => unreachable!("the dispatcher sends only these here"),
        }
    }

    /// The inode that an earlier copy of this request made, as it is now.
    fn made_before(&self, worker: &Worker, parent: &Place, done: Done) -> Result<Node, Stop> {
        let place = self.place(done.handle.ok_or_else(unknown)?)?;
        let tree = &parent.volume.tree;
        let attributes = tree.attributes(self.by(worker), &place.inner)?;
        Ok(Node {
            handle: place.inner,
            attributes,
        })
    }

    fn create(
        &mut self,
        worker: &Worker,
        parent: &Target,
        name: &Name,
        mut how: Create,
        open: Option<(OpenId, message::Access, bool)>,
    ) -> Result<StepReply, Stop> {
        let parent = self.changing(parent)?;
        let (parent_lease, then) = self.enter(&parent, Lease::Exclusive)?;
        if let Some((_, access, truncate)) = open {
            how.open = OpenOptions {
                truncate,
                ..options_of(access)
            };
        }
        let outer = |node: &Node| parent.volume.outer(&node.handle);
        let (node, file, new) = self.once(
            make(&parent, name, FileKind::File, self.who.uid, false),
            |this| this.create_now(worker, &parent, name, &how, open.is_some()),
            |(node, ..)| Done::inode(outer(node)),
            |this, done| Ok((this.made_before(worker, &parent, done)?, None, true)),
        )?;
        let place = self.place_of(&parent, &node);
        let changes = if new {
            vec![Change::Entry(parent.outer.clone(), name.clone())]
        } else if open.is_some_and(|(_, _, truncate)| truncate) {
            self.changes(&place);
            vec![Change::Inode(place.outer.clone())]
        } else {
            Vec::new()
        };
        let lease = (parent_lease, then);
        let made = self.created(worker, &parent, node, &changes, lease, Lease::Read)?;
        // After the change is on its way to everybody: should the open fail, the file is there.
        if let Some((open, access, _)) = open {
            match file {
                Some(file) => self.put_open(open, &place, file)?,
                None => self.open_made(worker, &place, open, access)?,
            }
        }
        Ok(match made {
            StepReply::Created {
                entry,
                parent,
                parent_lease,
                ..
            } => StepReply::Created {
                entry,
                new,
                parent,
                parent_lease,
            },
            other => other,
        })
    }

    fn create_file(
        &mut self,
        worker: &Worker,
        parent: &Target,
        name: &Name,
        how: Create,
        change: &AttributeChange,
        bytes: u32,
    ) -> Result<StepReply, Stop> {
        let parent = self.changing(parent)?;
        let (parent_lease, then) = self.enter_ahead(&parent, Lease::Exclusive)?;
        if bytes > 0 && parent.volume.tree.parallel().is_some() {
            return Err(FsError::NotSupported.into());
        }
        // Only now: a step that had to wait for a recall begins again from its start.
        let data = self.payload.split_to(bytes as usize);
        let outer = |node: &Node| parent.volume.outer(&node.handle);
        let outcome = self.once(
            make(&parent, name, FileKind::File, self.who.uid, true),
            |this| {
                let tree = &parent.volume.tree;
                let made = tree.create(this.by(worker), &parent.inner, name, &how, None)?;
                let filled = this.fill(worker, &parent, made.node, &made.file, change, &data);
                if filled.is_err() {
                    // All or nothing: a full disk leaves no file with half of its contents.
                    tree.unlink(this.by(worker), &parent.inner, name).ok();
                }
                filled
            },
            |node| Done::inode(outer(node)),
            |this, done| this.fill_again(worker, (&parent, name), change, &data, done),
        );
        let entry = Change::Entry(parent.outer.clone(), name.clone());
        let node = match outcome {
            Ok(node) => node,
            Err(stop) => {
                // The name may have been there for a moment.
                self.changed(&[entry]);
                return Err(stop);
            }
        };
        self.created(
            worker,
            &parent,
            node,
            &[entry],
            (parent_lease, then),
            Lease::Read,
        )
    }

    /// Puts contents and attributes into a file that was just made.
    fn fill(
        &self,
        worker: &Worker,
        parent: &Place,
        node: Node,
        file: &File,
        change: &AttributeChange,
        data: &[u8],
    ) -> Result<Node, FsError> {
        // What follows is done again by a copy of the request that finds the file made.
        self.turn.begin(None);
        let mut done = 0;
        while done < data.len() {
            let written = file.write_at(self.by(worker), done as u64, &data[done..])?;
            if written.bytes == 0 {
                return Err(FsError::Io);
            }
            done += written.bytes;
        }
        let attributes = if change.is_empty() {
            file.attributes(&self.turn)?
        } else {
            let tree = &parent.volume.tree;
            tree.set_attributes(self.by(worker), &node.handle, change, Some(file))?
        };
        Ok(Node { attributes, ..node })
    }

    /// An earlier copy of this request made the file. If the server was killed on the way, or its
    /// machine has lost power, the contents may not be in. They go in now if nobody has touched the
    /// file: neither since that was found out, nor before, as far as its contents tell.
    fn fill_again(
        &self,
        worker: &Worker,
        (parent, name): (&Place, &Name),
        change: &AttributeChange,
        data: &[u8],
        done: Done,
    ) -> Result<Node, Stop> {
        let unfilled = done.unfilled;
        let node = self.made_before(worker, parent, done)?;
        let Some(unfilled) = unfilled else {
            return Ok(node);
        };
        if unfilled != node.attributes.changed {
            return Err(unknown());
        }
        let volume = &parent.volume;
        let options = OpenOptions::new(Access::ReadWrite);
        let file = open_again(volume, self.by(worker), &node.handle, options)?;
        let mut found = BytesMut::new();
        file.read_at(0, data.len() + 1, &mut found)?;
        if !is_part_of(&found, data) {
            return Err(unknown());
        }
        let emptied = file.truncate(self.by(worker), 0);
        let handle = node.handle.clone();
        let filled = emptied.and_then(|()| self.fill(worker, parent, node, &file, change, data));
        if filled.is_err() {
            // As if it had not been made, unless others have put something there.
            let there = volume.tree.lookup(self.by(worker), &parent.inner, name);
            if there.is_ok_and(|there| there.handle == handle) {
                volume
                    .tree
                    .unlink(self.by(worker), &parent.inner, name)
                    .ok();
            }
        }
        Ok(filled?)
    }

    fn make(
        &mut self,
        worker: &Worker,
        parent: &Target,
        name: &Name,
        making: &Making<'_>,
    ) -> Result<StepReply, Stop> {
        let parent = self.changing(parent)?;
        let (parent_lease, then) = self.enter(&parent, Lease::Exclusive)?;
        let (kind, lease) = match making {
            // Nobody else can know a directory that is only now made.
            Making::Directory { .. } => (FileKind::Directory, Lease::Exclusive),
            Making::Node { kind, .. } => (*kind, Lease::Read),
            Making::Symlink { .. } => (FileKind::Symlink, Lease::Read),
        };
        let outer = |node: &Node| parent.volume.outer(&node.handle);
        let node = self.once(
            make(&parent, name, kind, self.who.uid, false),
            |this| this.make_now(worker, &parent, name, making),
            |node| Done::inode(outer(node)),
            |this, done| this.made_before(worker, &parent, done),
        )?;
        let entry = Change::Entry(parent.outer.clone(), name.clone());
        self.created(worker, &parent, node, &[entry], (parent_lease, then), lease)
    }

    fn make_now(
        &self,
        worker: &Worker,
        parent: &Place,
        name: &Name,
        making: &Making<'_>,
    ) -> Result<Node, FsError> {
        let (tree, at) = (&parent.volume.tree, &parent.inner);
        match *making {
            Making::Directory { mode, umask } => {
                tree.make_directory(self.by(worker), at, name, mode, umask)
            }
            Making::Node {
                kind,
                mode,
                umask,
                device,
            } => tree.make_node(self.by(worker), at, name, (kind, mode, umask, device)),
            Making::Symlink { target } => tree.make_symlink(self.by(worker), at, name, target),
        }
    }

    fn link(
        &mut self,
        worker: &Worker,
        target: &Target,
        parent: &Target,
        name: &Name,
    ) -> Result<StepReply, Stop> {
        let target = self.target(target)?;
        let parent = self.changing(parent)?;
        if target.volume.id != parent.volume.id {
            return Err(FsError::CrossDevice.into());
        }
        let (parent_lease, then) = self.enter(&parent, Lease::Exclusive)?;
        let act = Act::Link {
            parent: parent.outer.clone(),
            name: name.clone(),
            target: target.outer.clone(),
        };
        let outer = |node: &Node| parent.volume.outer(&node.handle);
        let node = self.once(
            act,
            |this| {
                let tree = &parent.volume.tree;
                tree.link(this.by(worker), &target.inner, &parent.inner, name)
            },
            |node| Done::inode(outer(node)),
            |this, done| this.made_before(worker, &parent, done),
        )?;
        let changes = [
            Change::Entry(parent.outer.clone(), name.clone()),
            Change::Inode(target.outer.clone()),
        ];
        self.created(
            worker,
            &parent,
            node,
            &changes,
            (parent_lease, then),
            Lease::Read,
        )
    }

    fn remove(
        &mut self,
        worker: &Worker,
        parent: &Target,
        name: &Name,
        what: Removing<'_>,
    ) -> Result<StepReply, Stop> {
        let parent = self.changing(parent)?;
        let (parent_lease, _) = match what {
            Removing::File(Some(_)) => self.enter_ahead(&parent, Lease::Exclusive)?,
            _ => self.enter(&parent, Lease::Exclusive)?,
        };
        let parent_before = self.attributes_of(worker, &parent).ok();
        let victim = self.peek(worker, &parent, name);
        let outer = victim.as_ref().map(|v| parent.volume.outer(&v.handle));
        if let (Removing::Directory, Some(directory)) = (what, &outer) {
            // Somebody may have created in it ahead of being asked; then it is not empty.
            self.contest([directory])?;
        }
        self.hold(worker, &parent.volume, victim.as_ref());
        let act = Act::Remove {
            parent: parent.outer.clone(),
            name: name.clone(),
            victim: outer.clone(),
        };
        let gone = self.once(
            act,
            |this| {
                let tree = &parent.volume.tree;
                match what {
                    Removing::Directory => {
                        tree.remove_directory(this.by(worker), &parent.inner, name)
                    }
                    Removing::File(Some(meant))
                        if outer.as_ref() != Some(meant) && !this.is_done(&parent)? =>
                    {
                        // Why nothing was found counts for more than that it is not the one.
                        let found = tree.lookup(this.by(worker), &parent.inner, name);
                        found.and(Err(FsError::NotFound))
                    }
                    Removing::File(_) => tree.unlink(this.by(worker), &parent.inner, name),
                }
            },
            |_| Done::default(),
            |_, _| Ok(None),
        )?;
        let mut changes = vec![Change::Entry(parent.outer.clone(), name.clone())];
        let removed = gone.as_ref().map(|node| parent.volume.outer(&node.handle));
        changes.extend(removed.or(outer).map(Change::Inode));
        let then = self.core.caching.moment();
        self.changed(&changes);
        let entry = self.unnamed(worker, &parent.volume, gone, then)?;
        let parent = self.attributes_after(worker, &parent, parent_before)?;
        Ok(StepReply::Removed {
            parent,
            parent_lease,
            entry,
        })
    }

    fn rename(
        &mut self,
        worker: &Worker,
        (parent, name): (&Target, &Name),
        (to_parent, to_name): (&Target, &Name),
        mode: RenameMode,
    ) -> Result<StepReply, Stop> {
        let (from, to) = (self.changing(parent)?, self.changing(to_parent)?);
        if from.volume.id != to.volume.id {
            return Err(FsError::CrossDevice.into());
        }
        self.contest([&from.outer, &to.outer])?;
        let parents_before = [&from, &to].map(|place| self.attributes_of(worker, place).ok());
        let moved = self.peek(worker, &from, name);
        let replaced = self.peek(worker, &to, to_name);
        let directory = |n: &&Node| n.attributes.kind == FileKind::Directory;
        if let Some(replaced) = replaced.as_ref().filter(directory) {
            self.contest([&to.volume.outer(&replaced.handle)])?;
        }
        self.hold(worker, &to.volume, replaced.as_ref());
        let outer = |node: &Option<Node>| node.as_ref().map(|n| from.volume.outer(&n.handle));
        let before = [outer(&moved), outer(&replaced)];
        let act = Act::Rename {
            parent: from.outer.clone(),
            name: name.clone(),
            to_parent: to.outer.clone(),
            to_name: to_name.clone(),
            exchange: mode == RenameMode::Exchange,
            moved: before[0].clone(),
            replaced: before[1].clone(),
        };
        let renamed = self.once(
            act,
            |this| {
                let tree = &from.volume.tree;
                let (old, new) = (&from.inner, &to.inner);
                tree.rename(this.by(worker), (old, name), (new, to_name), mode_of(mode))
            },
            |_| Done::default(),
            |_, _| {
                Ok(base::Renamed {
                    moved: None,
                    replaced: None,
                })
            },
        )?;
        let after = [outer(&renamed.moved), outer(&renamed.replaced)];
        // Both, where another change has come in between.
        let after = after.into_iter().flatten();
        let after = after.filter(|handle| !before.contains(&Some(handle.clone())));
        let concerned = before.iter().flatten().cloned().chain(after);
        let mut changes: Vec<Change> = concerned.map(Change::Inode).collect();
        changes.push(Change::Entry(from.outer.clone(), name.clone()));
        changes.push(Change::Entry(to.outer.clone(), to_name.clone()));
        let then = self.core.caching.moment();
        self.changed(&changes);
        let [from_before, to_before] = parents_before;
        let (entry, replaced) = self.renamed(worker, &to, to_name, renamed, then)?;
        Ok(StepReply::Renamed {
            parent: self.attributes_after(worker, &from, from_before)?,
            to_parent: self.attributes_after(worker, &to, to_before)?,
            entry,
            replaced,
        })
    }

    /// What the answer to a rename says of the inodes, after its changes are collected.
    fn renamed(
        &mut self,
        worker: &Worker,
        to: &Place,
        to_name: &Name,
        renamed: base::Renamed,
        then: Moment,
    ) -> Result<(Entry, Option<Box<Entry>>), Stop> {
        let node = match renamed.moved {
            Some(node) => node,
            None => to.volume.tree.lookup(self.by(worker), &to.inner, to_name)?,
        };
        let entry = self.entry(worker, &to.volume, node, Lease::Read, then)?;
        self.note(entry.handle.clone());
        let replaced = self.unnamed(worker, &to.volume, renamed.replaced, then)?;
        Ok((entry, replaced.map(Box::new)))
    }

    /// Attributes of a directory in which a name was removed or moved. If the directory itself has
    /// been removed since, they are as they were before: what was asked has been done, and "stale"
    /// would have the client's kernel try it once more.
    fn attributes_after(
        &self,
        worker: &Worker,
        directory: &Place,
        before: Option<Attributes>,
    ) -> Result<Attributes, FsError> {
        match (self.attributes_of(worker, directory), before) {
            (Err(FsError::Stale), Some(before)) => Ok(before),
            (attributes, _) => attributes,
        }
    }

    /// An inode that has lost a name. Whoever took it away may not have known which inode that was,
    /// and keeps its lease on it, so it must hear how it is now.
    fn unnamed(
        &mut self,
        worker: &Worker,
        volume: &Volume,
        node: Option<Node>,
        then: Moment,
    ) -> Result<Option<Entry>, Stop> {
        let Some(node) = node else { return Ok(None) };
        if node.attributes.links > 0 && node.attributes.kind != FileKind::Directory {
            return Ok(Some(self.entry(worker, volume, node, Lease::Read, then)?));
        }
        // Its handle may lead nowhere by now, so nothing can be promised about it.
        Ok(Some(Entry {
            handle: volume.outer(&node.handle),
            attributes: node.attributes,
            lease: Lease::None,
        }))
    }

    /// Appends, once.
    pub(super) fn append(
        &mut self,
        worker: &Worker,
        place: &Place,
        file: &File,
        data: &[u8],
    ) -> Result<Result<Written, FsError>, Stop> {
        let size = file.attributes(&self.turn)?.size;
        let act = Act::Append {
            file: place.outer.clone(),
            size,
            bytes: data.len() as u64,
        };
        let outcome = self.once(
            act,
            |this| file.append(this.by(worker), data),
            |written| Done {
                written: Some((written.offset, written.bytes as u64)),
                ..Done::default()
            },
            |_, done| {
                let (offset, bytes) = done.written.ok_or_else(unknown)?;
                let bytes = usize::try_from(bytes).map_err(|_| FsError::Overflow)?;
                Ok(Written { offset, bytes })
            },
        );
        match outcome {
            Ok(written) => Ok(Ok(written)),
            Err(Stop::Error(error)) => Ok(Err(error)),
            Err(stop) => Err(stop),
        }
    }

    /// Keeps a file that is about to lose a name within reach of those who have it open.
    fn hold(&mut self, worker: &Worker, volume: &Volume, victim: Option<&Node>) {
        let file = victim.filter(|node| node.attributes.kind == FileKind::File);
        let held = file.map(|node| volume.tree.hold(self.by(worker), &node.handle));
        // One that is gone already is nobody's to reach.
        self.held.extend(held.and_then(Result::ok));
    }

    /// The next change of a namespace is this step's, and is made once.
    pub(super) fn identify(&self) {
        self.turn.begin(Some(Identity {
            session: self.session.id,
            request: self.id,
            step: u8::try_from(self.next).expect("a request has at most 64 steps"),
        }));
    }

    /// Whether an earlier copy of this request has made the change that is being made. Of an export
    /// the journal has said so before.
    fn is_done(&self, place: &Place) -> Result<bool, FsError> {
        match place.volume.tree.parallel() {
            Some(parallel) => parallel.names.is_done(&self.turn),
            None => Ok(false),
        }
    }

    /// What has a name now, if the caller may know.
    pub(super) fn peek(&self, worker: &Worker, parent: &Place, name: &Name) -> Option<Node> {
        parent
            .volume
            .tree
            .lookup(self.by(worker), &parent.inner, name)
            .ok()
    }

    pub(super) fn place_of(&self, parent: &Place, node: &Node) -> Place {
        Place {
            volume: parent.volume.clone(),
            outer: parent.volume.outer(&node.handle),
            inner: node.handle.clone(),
        }
    }

    /// The answer to a creation, after its changes are collected.
    fn created(
        &mut self,
        worker: &Worker,
        parent: &Place,
        node: Node,
        changes: &[Change],
        (parent_lease, then): (Lease, Moment),
        wanted: Lease,
    ) -> Result<StepReply, Stop> {
        let entry = self.made(worker, &parent.volume, node, changes, wanted, then)?;
        self.note(entry.handle.clone());
        let parent = self.attributes_of(worker, parent)?;
        Ok(StepReply::Created {
            entry,
            new: true,
            parent,
            parent_lease,
        })
    }
}

/// The answer when nobody can tell whether an earlier copy of the request ran.
/// Whether a file has nothing but what was written of `data`, and zeros where a page of it is lost.
fn is_part_of(found: &[u8], data: &[u8]) -> bool {
    let is_known = |(at, page): (usize, &[u8])| {
        let known = data
            .get(at * PAGE_BYTES..)
            .and_then(|data| data.get(..page.len()));
        known == Some(page) || page.iter().all(|byte| *byte == 0)
    };
    found.len() <= data.len() && found.chunks(PAGE_BYTES).enumerate().all(is_known)
}

fn make(parent: &Place, name: &Name, kind: FileKind, uid: u32, fills: bool) -> Act {
    Act::Make {
        parent: parent.outer.clone(),
        name: name.clone(),
        kind,
        uid,
        fills,
    }
}

fn mode_of(mode: RenameMode) -> base::RenameMode {
    match mode {
        RenameMode::Replace => base::RenameMode::Replace,
        RenameMode::NoReplace => base::RenameMode::NoReplace,
        RenameMode::Exchange => base::RenameMode::Exchange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_of_it_or_lost_is_part_of_a_files_contents() {
        let data: Vec<u8> = (0..10_000u32).map(|at| at as u8 | 1).collect();
        let mut lost = data.clone();
        lost[4096..8192].fill(0);
        for found in [&data[..], &data[..5000], &[], &lost, &[0; 9000]] {
            assert!(is_part_of(found, &data), "{} bytes", found.len());
        }
        let mut others = data.clone();
        others[9000] ^= 2;
        let longer = [&data[..], b"1"].concat();
        for found in [&others[..], &longer, b"what others write"] {
            assert!(!is_part_of(found, &data), "{} bytes", found.len());
        }
    }
}
