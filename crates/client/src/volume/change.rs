//! Creating, removing and renaming, and creations answered ahead.
//!
//! In a directory that the server has leased to this session alone and whose names are all known,
//! a new file needs nobody's leave: the kernel has judged the caller by leased attributes, the name
//! is known to be free, and nobody else looks. Such a creation is answered at once. The file's
//! contents are gathered until it is closed (or grows, or a moment passes) and then sent with the
//! creation in one request. Whatever else is done with the file first waits until the server has it.
//!
//! A creation that the server then refuses (no space, a quota) is reported by the next fsync of the
//! file or of its directory, by a sync of the volume, and in the log.

use super::attributes::{resolve, wall_clock};
use super::{OpenFile, View, Volume};
use crate::cache::{NodeId, NodeTable};
use crate::file::Completion;
use crate::transport::{Call, CallError, FileResponse};
use base::limits::INLINE_BYTES_MAX;
use base::{AttributeChange, Attributes, FileKind, FsError, Handle, Name, Principal, mode};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use wire::frame::Class;
use wire::message::{Access, Entry, Lease, RenameMode, Step, StepReply};

/// Files that may exist only here at once.
const AHEAD_MAX: usize = 4096;
/// How long a file that stays open may exist only here.
const AHEAD_TIME_MAX: Duration = Duration::from_millis(50);

/// A file that the server does not know yet.
#[derive(Debug)]
struct AheadFile {
    parent: NodeId,
    parent_handle: Handle,
    name: Name,
    who: Principal,
    mode: u16,
    umask: u16,
    change: AttributeChange,
    sent: bool,
    completion: Completion,
}

/// All files that the server does not know yet, and what became of refused ones.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    files: Mutex<HashMap<NodeId, AheadFile>>,
    /// Errors of refused creations by directory, for its next fsync.
    errors: Mutex<HashMap<NodeId, FsError>>,
}

impl Ahead {
    fn files(&self) -> MutexGuard<'_, HashMap<NodeId, AheadFile>> {
        self.files.lock().expect("no panic happens under this lock")
    }
}

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
        let step = Step::Create {
            parent: self.target(*parent).await?,
            name: name.clone(),
            mode: *mode,
            umask: *umask,
            exclusive,
            open: Some((open, access, truncate)),
        };
        let (reply, response) = self.step(who, step).await?;
        let view = self.take_created(*parent, name, reply, &response)?;
        let file = self.file(view.node)?;
        if truncate {
            let freed = file.lock().distrust();
            self.budget().on_freed(file.account, freed);
        }
        self.register(who, view.node, open, access, true);
        file.lock().opens += 1;
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
        nodes.refresh(parent, &attributes, parent_lease, seen);
        let believed = nodes.get(parent).is_some_and(|parent| parent.is_leased())
            && !nodes.is_recalled_since(parent, seen);
        if believed {
            nodes.set_name(parent, name, Some(node));
        } else {
            forget_name(&mut nodes, parent, name);
        }
        let is_directory = entry.attributes.kind == FileKind::Directory;
        if new
            && is_directory
            && let Some(known) = nodes.get_mut(node)
            && known.is_leased()
        {
            known.directory_mut().complete_empty();
        }
        drop(nodes);
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
        let (reply, response) = self.step(who, step).await?;
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
        let target = self.target(parent).await?;
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
        let target = self.target(parent).await?;
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
        let target = self.target(parent).await?;
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
        let parent_target = self.target(parent).await?;
        let step = Step::Link {
            target,
            parent: parent_target,
            name: name.clone(),
        };
        let view = self.make(who, parent, name, step).await?;
        self.tell_attributes(view.node);
        Ok(view)
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
        let victim = self.nodes().name(parent, name).flatten();
        if let Some(victim) = victim {
            self.keep_open(victim).await?;
        }
        let target = self.target(parent).await?;
        let step = if directory {
            Step::RemoveDirectory {
                parent: target,
                name: name.clone(),
            }
        } else {
            Step::Remove {
                parent: target,
                name: name.clone(),
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
            entry,
        } = reply
        else {
            return Err(FsError::Io);
        };
        let seen = response.recalls_seen;
        let mut nodes = self.nodes();
        let left = entry.as_ref().map(|entry| nodes.apply(entry, seen));
        keep_refreshed(&mut nodes, parent, &attributes, seen);
        set_or_forget(&mut nodes, parent, name, None, seen);
        if left.is_none()
            && let Some(victim) = victim.and_then(|victim| nodes.get_mut(victim))
        {
            victim.attributes.links = 0;
        }
        drop(nodes);
        self.tell_attributes(parent);
        if let Some(node) = left.or(victim) {
            self.tell_attributes(node);
        }
        Ok(())
    }

    /// An error says that what was known of a name is wrong.
    fn doubt_name(&self, parent: NodeId, name: &Name, error: FsError) {
        if matches!(
            error,
            FsError::NotFound | FsError::NotDirectory | FsError::IsDirectory
        ) {
            forget_name(&mut self.nodes(), parent, name);
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
        let moved = self.nodes().name(parent, name).flatten();
        let replaced = self.nodes().name(to_parent, to_name).flatten();
        for node in [moved, replaced].into_iter().flatten() {
            self.handle(node).await?;
        }
        if let Some(replaced) = replaced {
            self.keep_open(replaced).await?;
        }
        let step = Step::Rename {
            parent: self.target(parent).await?,
            name: name.clone(),
            to_parent: self.target(to_parent).await?,
            to_name: to_name.clone(),
            mode,
        };
        let (reply, response) = match self.step(who, step).await {
            Ok(done) => done,
            Err(error) => {
                self.doubt_name(parent, name, error);
                return Err(error);
            }
        };
        let StepReply::Renamed {
            parent: attributes,
            to_parent: to_attributes,
            entry,
        } = reply
        else {
            return Err(FsError::Io);
        };
        let seen = response.recalls_seen;
        let mut nodes = self.nodes();
        let node = nodes.apply(&entry, seen);
        keep_refreshed(&mut nodes, parent, &attributes, seen);
        keep_refreshed(&mut nodes, to_parent, &to_attributes, seen);
        set_or_forget(&mut nodes, to_parent, to_name, Some(node), seen);
        match (mode, replaced) {
            (RenameMode::Exchange, Some(other)) => {
                set_or_forget(&mut nodes, parent, name, Some(other), seen);
            }
            (RenameMode::Exchange, None) => forget_name(&mut nodes, parent, name),
            _ if (parent, name) == (to_parent, to_name) => {}
            _ => set_or_forget(&mut nodes, parent, name, None, seen),
        }
        if mode != RenameMode::Exchange
            && let Some(replaced) = replaced.filter(|replaced| *replaced != node)
            && let Some(gone) = nodes.get_mut(replaced)
        {
            gone.attributes.links = gone.attributes.links.saturating_sub(1);
            gone.lease = Lease::None;
        }
        drop(nodes);
        for node in [Some(parent), Some(to_parent), Some(node), replaced]
            .into_iter()
            .flatten()
        {
            self.tell_attributes(node);
        }
        Ok(())
    }

    /// A file is about to lose a name: opens that only we know of are made at the server, so that
    /// its data can be read on.
    pub(super) async fn keep_open(&self, node: NodeId) -> Result<(), FsError> {
        self.handle(node).await?;
        let here: Vec<_> = {
            let opens = self.opens.lock().expect("no panic happens under this lock");
            let ours = opens
                .iter()
                .filter(|(_, open)| open.node == node && !open.known);
            ours.map(|(id, _)| *id).collect()
        };
        for open in here {
            self.open_at_server(node, Some(open)).await;
        }
        Ok(())
    }

    /// Makes a directory's entries durable.
    ///
    /// # Errors
    /// The server's, or that of a creation in it that was answered ahead and refused.
    pub async fn sync_directory(&self, who: &Principal, node: NodeId) -> Result<(), FsError> {
        let settled = self.settle_directory(node).await;
        let refused = {
            let mut errors = self
                .ahead
                .errors
                .lock()
                .expect("no panic happens under this lock");
            errors.remove(&node)
        };
        // An error that has been found is reported even if all else goes well.
        let synced = self
            .step(
                who,
                Step::SyncDirectory {
                    target: self.target(node).await?,
                },
            )
            .await;
        refused
            .map_or(Ok(()), Err)
            .and(settled)
            .and(synced.map(|_| ()))
    }

    /// Answers a creation ahead, if it may be.
    #[must_use]
    pub fn try_create_ahead(
        &self,
        who: &Principal,
        creation: &Creation,
        access: Access,
        append: bool,
    ) -> Option<(View, OpenFile)> {
        let Creation {
            parent,
            name,
            mode,
            umask,
        } = creation;
        if !self.transport.leases_hold() || self.ahead.files().len() >= AHEAD_MAX {
            return None;
        }
        let mut nodes = self.nodes();
        let known = nodes.get_mut(*parent)?;
        if known.lease != Lease::Exclusive {
            return None;
        }
        let parent_handle = known.handle.clone()?;
        if known.directory.as_ref()?.get(name)?.is_some() {
            return None;
        }
        let attributes = new_attributes(who, &known.attributes, *mode, *umask);
        known.attributes.modified = attributes.modified;
        known.attributes.changed = attributes.changed;
        let node = nodes.create_ahead(attributes.clone());
        nodes.set_name(*parent, name, Some(node));
        drop(nodes);
        let file = AheadFile {
            parent: *parent,
            parent_handle,
            name: name.clone(),
            who: who.clone(),
            mode: *mode,
            umask: *umask,
            change: AttributeChange::default(),
            sent: false,
            completion: Completion::default(),
        };
        self.ahead.files().insert(node, file);
        self.counters.created_ahead.fetch_add(1, Ordering::Relaxed);
        let open = self.fresh_open();
        self.register(who, node, open, access, false);
        if let Ok(file) = self.file(node) {
            file.lock().opens += 1;
        }
        self.pin(node);
        self.send_later(node);
        let view = View {
            node,
            attributes,
            attributes_leased: true,
            name_leased: true,
        };
        let open = OpenFile {
            node,
            open,
            access,
            append,
            who: who.clone(),
            keep_data: true,
        };
        Some((view, open))
    }

    fn send_later(&self, node: NodeId) {
        let this = self.arc();
        tokio::spawn(async move {
            tokio::time::sleep(AHEAD_TIME_MAX).await;
            this.send_ahead(node);
        });
    }

    /// Whether a file exists only here.
    pub(super) fn is_ahead(&self, node: NodeId) -> bool {
        self.ahead.files().contains_key(&node)
    }

    /// Attributes of a file that exists only here are changed here, unless it is on its way.
    pub(super) fn change_ahead(&self, node: NodeId, change: &AttributeChange) -> bool {
        if change.size.is_some() {
            return false;
        }
        let mut files = self.ahead.files();
        let Some(file) = files.get_mut(&node).filter(|file| !file.sent) else {
            return false;
        };
        let pending = &mut file.change;
        pending.mode = change.mode.or(pending.mode);
        pending.uid = change.uid.or(pending.uid);
        pending.gid = change.gid.or(pending.gid);
        pending.accessed = change.accessed.or(pending.accessed);
        pending.modified = change.modified.or(pending.modified);
        drop(files);
        let now = wall_clock();
        if let Some(known) = self.nodes().get_mut(node) {
            let attributes = &mut known.attributes;
            attributes.mode = change.mode.unwrap_or(attributes.mode);
            attributes.uid = change.uid.unwrap_or(attributes.uid);
            attributes.gid = change.gid.unwrap_or(attributes.gid);
            let accessed = change.accessed.map(|time| resolve(time, now));
            attributes.accessed = accessed.unwrap_or(attributes.accessed);
            let modified = change.modified.map(|time| resolve(time, now));
            attributes.modified = modified.unwrap_or(attributes.modified);
            attributes.changed = now;
        }
        true
    }

    /// A file that exists only here has got data: too much of it is sent at once.
    pub(super) fn grown_ahead(&self, node: NodeId, file: &crate::file::File) {
        if file.lock().written.bytes() > u64::from(INLINE_BYTES_MAX) {
            self.send_ahead(node);
        }
    }

    /// Sends a file that exists only here, if that has not been done.
    pub(super) fn send_ahead(&self, node: NodeId) {
        let Ok(file) = self.file(node) else { return };
        let (step, who) = {
            let mut files = self.ahead.files();
            let Some(ahead) = files.get_mut(&node).filter(|ahead| !ahead.sent) else {
                return;
            };
            ahead.sent = true;
            let step = Step::CreateFile {
                parent: wire::message::Target::Handle(ahead.parent_handle.clone()),
                name: ahead.name.clone(),
                mode: ahead.mode,
                umask: ahead.umask,
                change: ahead.change.clone(),
                bytes: 0,
            };
            (step, ahead.who.clone())
        };
        let contents = file.lock().written.take_contents(INLINE_BYTES_MAX as usize);
        let (payload, permits) = contents.unwrap_or_default();
        let step = match step {
            Step::CreateFile {
                parent,
                name,
                mode,
                umask,
                change,
                ..
            } => {
                let bytes = payload.len() as u32;
                Step::CreateFile {
                    parent,
                    name,
                    mode,
                    umask,
                    change,
                    bytes,
                }
            }
            other => other,
        };
        let call = Call {
            class: Class::Write,
            payload: payload.clone(),
            ..Call::metadata()
        };
        let pending = self.transport.submit_steps(&who, vec![step], call);
        let this = self.arc();
        tokio::spawn(async move {
            let outcome = pending.files().await.map_err(CallError::to_fs_error);
            this.created(node, outcome, payload, permits);
        });
    }

    /// The server has answered a creation that was answered ahead.
    fn created(
        &self,
        node: NodeId,
        outcome: Result<FileResponse, FsError>,
        contents: Bytes,
        permits: Vec<OwnedSemaphorePermit>,
    ) {
        let outcome =
            outcome.and_then(
                |mut response| match response.results.pop().ok_or(FsError::Io)? {
                    Ok(StepReply::Created {
                        entry,
                        parent,
                        parent_lease,
                        ..
                    }) => Ok((
                        entry,
                        parent,
                        parent_lease,
                        response.recalls_seen,
                        response.boot,
                    )),
                    Ok(_) => Err(FsError::Io),
                    Err(error) => Err(error),
                },
            );
        let Some(ahead) = self.ahead.files().remove(&node) else {
            return;
        };
        let outcome = match outcome {
            Ok((entry, parent, parent_lease, seen, boot)) => {
                self.confirm_ahead(node, &ahead, &entry, &parent, parent_lease, seen);
                if let Ok(file) = self.file(node) {
                    let mut state = file.lock();
                    state
                        .written
                        .add_stored(contents, ahead.who.clone(), boot, permits);
                    drop(state);
                    self.send_written(node, &file);
                    self.commit_all_soon();
                }
                Ok(())
            }
            Err(error) => {
                self.refuse_ahead(node, &ahead, error);
                Err(error)
            }
        };
        ahead.completion.set(outcome);
    }

    fn confirm_ahead(
        &self,
        node: NodeId,
        ahead: &AheadFile,
        entry: &Entry,
        parent: &Attributes,
        parent_lease: Lease,
        seen: u64,
    ) {
        let mut nodes = self.nodes();
        let local = nodes.get(node).map(|known| known.attributes.clone());
        nodes.confirm(node, entry, seen);
        nodes.refresh(ahead.parent, parent, parent_lease, seen);
        let changed = nodes.get(node).is_some_and(|known| {
            local.as_ref().is_none_or(|local| {
                (local.mode, local.uid, local.gid, local.size)
                    != (
                        known.attributes.mode,
                        known.attributes.uid,
                        known.attributes.gid,
                        known.attributes.size,
                    )
            })
        });
        if let Some(known) = nodes.get_mut(node) {
            // The kernel's pages are what was written here.
            known.kernel_data = Some(known.attributes.changed);
        }
        drop(nodes);
        if changed {
            self.tell_attributes(node);
        }
    }

    fn refuse_ahead(&self, node: NodeId, ahead: &AheadFile, error: FsError) {
        tracing::error!(name = %ahead.name, %error, "a file created ahead was refused by the server");
        let mut nodes = self.nodes();
        nodes.discard(node);
        forget_name(&mut nodes, ahead.parent, &ahead.name);
        drop(nodes);
        if let Ok(file) = self.file(node) {
            file.lock().written.set_error(error);
        }
        let mut errors = self
            .ahead
            .errors
            .lock()
            .expect("no panic happens under this lock");
        errors.entry(ahead.parent).or_insert(error);
        drop(errors);
        if let Some(invalidate) = self.invalidate.get() {
            invalidate.names();
        }
    }

    /// Waits until the server knows a file; its handle.
    ///
    /// # Errors
    /// Why the server refused it.
    pub(super) async fn settle(&self, node: NodeId) -> Result<Handle, FsError> {
        self.send_ahead(node);
        let completion = self
            .ahead
            .files()
            .get(&node)
            .map(|ahead| ahead.completion.clone());
        if let Some(completion) = completion {
            completion.wait().await?;
        }
        let nodes = self.nodes();
        nodes
            .get(node)
            .and_then(|node| node.handle.clone())
            .ok_or(FsError::Stale)
    }

    /// Waits until the server knows every file of a directory.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) async fn settle_directory(&self, directory: NodeId) -> Result<(), FsError> {
        self.settle_where(|ahead| ahead.parent == directory).await
    }

    /// Waits until the server knows every file.
    ///
    /// # Errors
    /// The first refusal, now or since the last time.
    pub(super) async fn settle_all(&self) -> Result<(), FsError> {
        let settled = self.settle_where(|_| true).await;
        let mut errors = self
            .ahead
            .errors
            .lock()
            .expect("no panic happens under this lock");
        let refused = errors.drain().next().map(|(_, error)| error);
        refused.map_or(settled, Err)
    }

    async fn settle_where(&self, wanted: impl Fn(&AheadFile) -> bool) -> Result<(), FsError> {
        let nodes: Vec<NodeId> = {
            let files = self.ahead.files();
            files
                .iter()
                .filter(|(_, ahead)| wanted(ahead))
                .map(|(node, _)| *node)
                .collect()
        };
        for node in &nodes {
            self.send_ahead(*node);
        }
        let mut outcome = Ok(());
        for node in nodes {
            outcome = outcome.and(self.settle(node).await.map(|_| ()));
        }
        outcome
    }
}

/// The attributes of a file that `who` makes in `parent`, as the server will find them.
fn new_attributes(who: &Principal, parent: &Attributes, mode: u16, umask: u16) -> Attributes {
    let now = wall_clock();
    let inherits = parent.mode & mode::SETGID != 0;
    let gid = if inherits { parent.gid } else { who.gid };
    let mut bits = mode & !umask & mode::ALL;
    if bits & mode::SETGID != 0 && who.uid != 0 && !who.is_member(gid) {
        bits &= !mode::SETGID;
    }
    Attributes {
        kind: FileKind::File,
        mode: bits,
        links: 1,
        uid: who.uid,
        gid,
        inode: 0,
        device: 0,
        size: 0,
        blocks: 0,
        block_size: parent.block_size,
        accessed: now,
        modified: now,
        changed: now,
        created: Some(now),
    }
}

fn forget_name(nodes: &mut NodeTable, parent: NodeId, name: &Name) {
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
