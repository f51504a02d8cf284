//! Creating, removing and renaming.

use super::{DirectoryTold, OpenFile, View, Volume};
use crate::cache::{Node, NodeId, NodeTable};
use crate::transport::FileResponse;
use base::{Attributes, FileKind, FsError, Handle, Name, Principal};
use wire::message::{Access, Lease, RenameMode, Step, StepReply};

/// What a creation asks for.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The directory.
    pub parent: NodeId,
    /// The name.
    pub name: Name,
    /// Permission bits before the mask.
    pub mode: u16,
    /// The caller's mask.
    pub umask: u16,
}

impl Volume {
    /// Makes a regular file and opens it; opens what is there unless `exclusive`.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn create(
        &self,
        who: &Principal,
        creation: &Creation,
        exclusive: bool,
        access: Access,
        truncate: bool,
        append: bool,
    ) -> Result<(View, OpenFile), FsError> {
        if let Some(created) = self.try_create_ahead(who, creation, access, append) {
            return Ok(created);
        }
        let Creation {
            parent,
            name,
            mode,
            umask,
        } = creation;
        let open = self.fresh_open();
        let used = self.used(Some(open));
        let target = self.target_with(*parent, name).await?;
        let step = |access| Step::Create {
            parent: target.clone(),
            name: name.clone(),
            mode: *mode,
            umask: *umask,
            exclusive,
            open: Some((open, access, truncate)),
        };
        let outcome = self.try_create(who, step, access, append && !exclusive);
        let outcome = outcome
            .await
            .inspect_err(|error| self.doubt_name(*parent, name, *error));
        let (reply, response, access) = outcome?;
        let is_new = matches!(reply, StepReply::Created { new: true, .. });
        let view = self.take_created(*parent, name, reply, &response)?;
        if is_new {
            self.note_capabilities(view.node, None);
        }
        self.learn_default_acl(who, *parent);
        let file = self.file(view.node)?;
        if !is_new && !truncate {
            // What is here may be from before this open, and no lease has covered it.
            self.distrust_data(view.node);
        }
        if truncate {
            let mut state = file.lock();
            let freed = state.distrust();
            if !is_new {
                let is_durable = self.stripes.is_some();
                state.written.on_emptied(response.verifier, is_durable);
            }
            drop(state);
            self.budget().on_freed(file.account, freed);
            self.commit_the_rest();
        }
        self.register(who, view.node, (open, access), used);
        file.lock().on_open(open);
        let keep_data = self.pin(view.node);
        let open = OpenFile {
            node: view.node,
            open,
            access,
            append,
            who: who.clone(),
            keep_data,
        };
        Ok((view, open))
    }

    /// Creates, or opens what is there: for appending alone where that is all that is allowed and
    /// enough. Returns what the open may do, too.
    async fn try_create(
        &self,
        who: &Principal,
        step: impl Fn(Access) -> Step,
        access: Access,
        may_append: bool,
    ) -> Result<(StepReply, FileResponse, Access), FsError> {
        match self.step_with_room(who, step(access)).await {
            Err(FsError::AccessDenied) if may_append && self.may_append_alone(access) => {}
            outcome => return outcome.map(|(reply, response)| (reply, response, access)),
        }
        let access = access.appending();
        match self.step_with_room(who, step(access)).await {
            Err(FsError::NotSupported) => Err(FsError::AccessDenied),
            outcome => outcome.map(|(reply, response)| (reply, response, access)),
        }
    }

    /// Takes over a creation's reply.
    fn take_created(
        &self,
        parent: NodeId,
        name: &Name,
        reply: StepReply,
        response: &FileResponse,
    ) -> Result<View, FsError> {
        let StepReply::Created {
            entry,
            new,
            parent: attributes,
            parent_lease,
        } = reply
        else {
            return Err(FsError::Io);
        };
        let seen = response.recalls_seen;
        let mut nodes = self.nodes();
        let node = nodes.apply(&entry, seen);
        let is_overtaken = match nodes.name(parent, name) {
            None => false,
            Some(None) => !new,
            Some(Some(known)) => known != node,
        };
        nodes.note_change(parent, name);
        nodes.refresh(parent, &attributes, parent_lease, seen);
        let believed =
            !is_overtaken && is_leased(&nodes, parent) && !nodes.is_recalled_since(parent, seen);
        if believed {
            nodes.set_name(parent, name, Some(node));
        } else {
            forget_name(&mut nodes, parent, name);
        }
        let is_directory = entry.attributes.kind == FileKind::Directory;
        let plain = nodes
            .get(parent)
            .and_then(|parent| parent.directory.as_ref())
            .is_some_and(|directory| directory.default_acl == Some(false));
        if new
            && is_directory
            && let Some(known) = nodes.get_mut(node)
            && known.is_leased()
        {
            let directory = known.directory_mut();
            directory.complete_empty();
            // Default ACLs are inherited, and nothing else makes one.
            directory.default_acl = plain.then_some(false);
        }
        drop(nodes);
        if is_overtaken {
            self.on_overtaken(&[parent]);
        }
        self.tell_attributes(parent);
        let mut view = self.view(node)?;
        view.name_leased = believed && self.transport.leases_hold();
        Ok(view)
    }

    /// Carries out a step that makes a name.
    async fn make(
        &self,
        who: &Principal,
        parent: NodeId,
        name: &Name,
        step: Step,
    ) -> Result<View, FsError> {
        let outcome = self.step_with_room(who, step).await;
        let (reply, response) =
            outcome.inspect_err(|error| self.doubt_name(parent, name, *error))?;
        self.take_created(parent, name, reply, &response)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn make_directory(
        &self,
        who: &Principal,
        creation: &Creation,
    ) -> Result<View, FsError> {
        let Creation {
            parent,
            name,
            mode,
            umask,
        } = creation.clone();
        let target = self.target_with(parent, &name).await?;
        let step = Step::MakeDirectory {
            parent: target,
            name: name.clone(),
            mode,
            umask,
        };
        self.make(who, parent, &name, step).await
    }

    /// Makes a pipe, socket, device or empty regular file.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn make_node(
        &self,
        who: &Principal,
        creation: &Creation,
        kind: FileKind,
        device: u64,
    ) -> Result<View, FsError> {
        let Creation {
            parent,
            name,
            mode,
            umask,
        } = creation.clone();
        let target = self.target_with(parent, &name).await?;
        let step = match kind {
            FileKind::File => Step::Create {
                parent: target,
                name: name.clone(),
                mode,
                umask,
                exclusive: true,
                open: None,
            },
            FileKind::Directory | FileKind::Symlink => return Err(FsError::Invalid),
            _ => Step::MakeNode {
                parent: target,
                name: name.clone(),
                kind,
                mode,
                umask,
                device,
            },
        };
        self.make(who, parent, &name, step).await
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn make_symlink(
        &self,
        who: &Principal,
        parent: NodeId,
        name: &Name,
        link_target: &[u8],
    ) -> Result<View, FsError> {
        let target = self.target_with(parent, name).await?;
        let link_target = link_target.to_vec();
        let step = Step::MakeSymlink {
            parent: target,
            name: name.clone(),
            link_target,
        };
        self.make(who, parent, name, step).await
    }

    /// Gives an inode another name.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn link(
        &self,
        who: &Principal,
        node: NodeId,
        parent: NodeId,
        name: &Name,
    ) -> Result<View, FsError> {
        let target = self.target(node).await?;
        let parent_target = self.target_with(parent, name).await?;
        let step = Step::Link {
            target,
            parent: parent_target,
            name: name.clone(),
        };
        // The answer brings the inode's new state to the kernel, which counts links by itself from
        // there on; it would not take it if it were told just before that it knows nothing.
        self.make(who, parent, name, step).await
    }

    /// Takes a name away; `directory` says which kind is meant.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn remove(
        &self,
        who: &Principal,
        parent: NodeId,
        name: &Name,
        directory: bool,
    ) -> Result<(), FsError> {
        if !directory && self.try_remove_ahead(who, parent, name) {
            return Ok(());
        }
        let target = self.target_with(parent, name).await?;
        let victim = self.nodes().name(parent, name).flatten();
        if let Some(victim) = victim {
            self.keep_open(victim).await?;
        }
        if directory {
            self.settle_replaced(victim).await;
        }
        let step = if directory {
            Step::RemoveDirectory {
                parent: target,
                name: name.clone(),
            }
        } else {
            Step::Remove {
                parent: target,
                name: name.clone(),
                file: None,
            }
        };
        let (reply, response) = match self.step(who, step).await {
            Ok(done) => done,
            Err(error) => {
                self.doubt_name(parent, name, error);
                return Err(error);
            }
        };
        let StepReply::Removed {
            parent: attributes,
            parent_lease,
            entry,
        } = reply
        else {
            return Err(FsError::Io);
        };
        let seen = response.recalls_seen;
        let mut nodes = self.nodes();
        let left = entry.as_ref().map(|entry| nodes.apply_lost(entry, seen));
        let is_overtaken = match (left, nodes.name(parent, name)) {
            (Some(left), Some(known)) => known.is_none() || left != known,
            _ => false,
        };
        nodes.note_change(parent, name);
        nodes.refresh(parent, &attributes, parent_lease, seen);
        set_or_forget(&mut nodes, parent, name, None, seen);
        drop(nodes);
        if is_overtaken {
            self.on_overtaken(&[parent]);
        }
        if !directory {
            self.learn_removal(who, parent);
        }
        self.tell_attributes(parent);
        for node in [left.flatten(), victim].into_iter().flatten() {
            self.tell_attributes(node);
        }
        Ok(())
    }

    /// A change failed, and it may have been made all the same (the line was cut, time ran out), or
    /// shows that what was known is wrong: nothing is known of the name any more.
    fn doubt_name(&self, parent: NodeId, name: &Name, error: FsError) {
        let is_otherwise = matches!(
            error,
            FsError::NotFound
                | FsError::Exists
                | FsError::NotDirectory
                | FsError::IsDirectory
                | FsError::Loop
                | FsError::TooManyOpen
                | FsError::NoMemory
                | FsError::Stale
                | FsError::TimedOut
                | FsError::Interrupted
                | FsError::Io
        );
        {
            let mut nodes = self.nodes();
            nodes.note_change(parent, name);
            forget_name(&mut nodes, parent, name);
        }
        if is_otherwise {
            self.recall_here(&[parent], |nodes, handle, sequence| {
                nodes.recall_name(handle, name, sequence)
            });
        }
    }

    /// A change has found names otherwise than leases here have them. If leases are right as a
    /// rule, another one has made a change just before, and the recall is still on its way, on
    /// another connection: it is obeyed now. Before the kernel hears what became of the change: it
    /// moves its own entry of a name to another one, whatever inode it believes to be there, and
    /// would go on believing that.
    fn on_overtaken(&self, directories: &[NodeId]) {
        self.recall_here(directories, NodeTable::recall);
    }

    /// Obeys a recall that has not come, or never will: of what `recall` takes of each directory.
    fn recall_here(
        &self,
        directories: &[NodeId],
        recall: impl Fn(&mut NodeTable, &Handle, u64) -> Option<NodeId>,
    ) {
        let sequence = self.transport.next_recall();
        {
            let mut nodes = self.nodes();
            for directory in directories {
                let known = nodes.get(*directory);
                let handle = known.and_then(|directory| directory.handle.clone());
                if let Some(handle) = handle {
                    recall(&mut nodes, &handle, sequence);
                }
            }
        }
        self.tell_names();
        for directory in directories {
            self.tell_attributes(*directory);
        }
    }

    /// Nothing that the kernel knows of names is to be believed any more.
    pub fn tell_names(&self) {
        if let Some(invalidate) = self.invalidate.get() {
            invalidate.names();
        }
    }

    /// Renames.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn rename(
        &self,
        who: &Principal,
        parent: NodeId,
        name: &Name,
        to_parent: NodeId,
        to_name: &Name,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let from = self.target_with(parent, name).await?;
        let to = self.target_with(to_parent, to_name).await?;
        let known = {
            let nodes = self.nodes();
            [nodes.name(parent, name), nodes.name(to_parent, to_name)]
        };
        let replaced = known[1].flatten();
        self.before_rename(parent, name, replaced, mode).await?;
        let step = Step::Rename {
            parent: from,
            name: name.clone(),
            to_parent: to,
            to_name: to_name.clone(),
            mode,
        };
        let (reply, response) = match self.step(who, step).await {
            Ok(done) => done,
            Err(error) => {
                self.doubt_name(parent, name, error);
                self.doubt_name(to_parent, to_name, error);
                return Err(error);
            }
        };
        let places = [(parent, name), (to_parent, to_name)];
        self.take_renamed(places, known, mode, reply, response.recalls_seen)
    }

    /// Takes over what became of a rename; `known` is what was known of both names before.
    fn take_renamed(
        &self,
        [(parent, name), (to_parent, to_name)]: [(NodeId, &Name); 2],
        known: [Option<Option<NodeId>>; 2],
        mode: RenameMode,
        reply: StepReply,
        seen: u64,
    ) -> Result<(), FsError> {
        let StepReply::Renamed {
            parent: attributes,
            to_parent: to_attributes,
            entry,
            replaced: there,
        } = reply
        else {
            return Err(FsError::Io);
        };
        let replaced = known[1].flatten();
        let mut nodes = self.nodes();
        let node = nodes.apply(&entry, seen);
        nodes.note_change(parent, name);
        nodes.note_change(to_parent, to_name);
        keep_refreshed(&mut nodes, parent, &attributes, seen);
        keep_refreshed(&mut nodes, to_parent, &to_attributes, seen);
        set_or_forget(&mut nodes, to_parent, to_name, Some(node), seen);
        let is_replaced = there.is_some();
        let there = there.and_then(|entry| nodes.apply_lost(&entry, seen));
        let is_unknown = known[0].is_none() && is_leased(&nodes, parent);
        let is_overtaken = known[0].is_some_and(|from| from != Some(node))
            || match known[1] {
                None => false,
                Some(None) => is_replaced,
                to => to != Some(there),
            };
        match (mode, there.or(replaced)) {
            (RenameMode::Exchange, Some(other)) => {
                set_or_forget(&mut nodes, parent, name, Some(other), seen);
            }
            (RenameMode::Exchange, None) => forget_name(&mut nodes, parent, name),
            _ if (parent, name) == (to_parent, to_name) => {}
            // Two names of one file: POSIX says that nothing happens, and both stay.
            (_, Some(other)) if there.is_some() && other == node => {
                set_or_forget(&mut nodes, parent, name, Some(node), seen);
            }
            _ => set_or_forget(&mut nodes, parent, name, None, seen),
        }
        drop(nodes);
        if is_overtaken {
            self.on_overtaken(&[parent, to_parent]);
        } else if is_unknown {
            self.tell_names();
        }
        for node in [Some(parent), Some(to_parent), Some(node), replaced, there]
            .into_iter()
            .flatten()
        {
            self.tell_attributes(node);
        }
        Ok(())
    }

    /// Sees to it that the server knows all that a rename is about.
    async fn before_rename(
        &self,
        parent: NodeId,
        name: &Name,
        replaced: Option<NodeId>,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let moved = self.nodes().name(parent, name).flatten();
        for node in [moved, replaced].into_iter().flatten() {
            self.handle(node).await?;
        }
        if let Some(replaced) = replaced {
            self.keep_open(replaced).await?;
        }
        if mode == RenameMode::Replace {
            self.settle_replaced(replaced).await;
        }
        Ok(())
    }

    /// A directory is about to go: what was created in it ahead must be there, so that it is found
    /// not to be empty. Which directory it is may not be known.
    async fn settle_replaced(&self, directory: Option<NodeId>) {
        // A refusal is reported to whoever syncs.
        let _ = match directory {
            Some(directory) => self.settle_directory(directory).await,
            None => self.settle_everywhere().await,
        };
    }

    /// A directory is opened: what [`Self::sync_directory`] is to tell through it.
    #[must_use]
    pub fn open_directory(&self) -> DirectoryTold {
        self.refusals().open()
    }

    /// Makes a directory's entries durable.
    ///
    /// # Errors
    /// The server's, or that of a creation in it that was answered ahead and refused.
    pub async fn sync_directory(
        &self,
        who: &Principal,
        node: NodeId,
        told: &DirectoryTold,
    ) -> Result<(), FsError> {
        let settled = self.settle_directory(node).await;
        let refused = self.refusals().take(node, told);
        // An error that has been found is reported even if all else goes well.
        let synced = self
            .step(
                who,
                Step::SyncDirectory {
                    target: self.target(node).await?,
                },
            )
            .await;
        refused.and(settled).and(synced.map(|_| ()))
    }
}

fn is_leased(nodes: &NodeTable, id: NodeId) -> bool {
    nodes.get(id).is_some_and(Node::is_leased)
}

pub(super) fn forget_name(nodes: &mut NodeTable, parent: NodeId, name: &Name) {
    if let Some(directory) = nodes
        .get_mut(parent)
        .and_then(|node| node.directory.as_mut())
    {
        directory.forget(name);
    }
}

/// Records what a name leads to, unless a recall says that it may be otherwise by now.
fn set_or_forget(
    nodes: &mut NodeTable,
    parent: NodeId,
    name: &Name,
    node: Option<NodeId>,
    seen: u64,
) {
    if nodes.is_recalled_since(parent, seen) {
        forget_name(nodes, parent, name);
    } else {
        nodes.set_name(parent, name, node);
    }
}

/// New attributes under the lease that stands.
fn keep_refreshed(nodes: &mut NodeTable, id: NodeId, attributes: &Attributes, seen: u64) {
    let lease = nodes.get(id).map_or(Lease::None, |node| node.lease);
    nodes.refresh(id, attributes, lease, seen);
}
