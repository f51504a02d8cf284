//! Attributes, extended attributes, link targets, figures of the file system.

use super::open::CAPABILITIES;
use super::{Invalidate, View, Volume};
use crate::cache::{Keeps, Node, NodeId, POSIX_ACL};
use crate::clock::now;
use crate::file::File;
use crate::transport::FileResponse;
use base::{
    AttributeChange, Attributes, Extent, FileSystemStat, FsError, OpenId, Principal, SetTime, mode,
};
use std::sync::Arc;
use wire::message::{Lease, Step, StepReply};

/// Bytes under way to the server for which somebody who asks for attributes waits: a moment's worth
/// of any line.
const SETTLE_BYTES_MAX: u64 = 1 << 20;
/// Extended attributes remembered per inode; more are asked for each time.
const XATTRS_KEPT_MAX: usize = 16;
/// Longest value remembered: ACLs and capabilities, not payloads.
const XATTR_KEPT_BYTES_MAX: usize = 4096;
/// What the kernel judges by, and keeps as long as the attributes.
const ACLS: [&[u8]; 2] = [POSIX_ACL, b"system.posix_acl_default"];
/// The rich ACL of a file.
const NFS4_ACL: &[u8] = b"system.nfs4_acl";

/// Whether an attribute says who may open a file.
fn is_acl(name: &[u8]) -> bool {
    name == POSIX_ACL || name == NFS4_ACL
}

impl Volume {
    /// The file of a node, if something written to it is on its way and will soon be there. Who
    /// asks for attributes waits for that, because then they have the server's times; times of this
    /// machine's clock would change once more although nobody touched the file, and git(1), which
    /// remembers the times between its last write and its close, would read everything again. While
    /// much is being written nobody waits: a listing shall not stand still for it.
    fn is_settling(&self, node: NodeId) -> Option<Arc<File>> {
        let file = self.nodes().get(node)?.file.clone()?;
        let unstored = file.lock().written.unstored_bytes();
        let soon = unstored > 0 && unstored <= SETTLE_BYTES_MAX && !self.is_ahead(node);
        soon.then_some(file)
    }

    /// Attributes for the kernel, which asks for them because an application does, if they may be
    /// believed.
    #[must_use]
    pub fn attributes_settled(&self, node: NodeId) -> Option<View> {
        if let Some(known) = self.nodes().get_mut(node) {
            known.kept.on_asked(now());
        }
        if self.is_settling(node).is_some() {
            return None;
        }
        self.attributes_cached(node)
    }

    /// Attributes, if they may be believed.
    #[must_use]
    pub fn attributes_cached(&self, node: NodeId) -> Option<View> {
        if !self.transport.leases_hold() {
            return None;
        }
        let mut nodes = self.nodes();
        let known = nodes.get_mut(node)?;
        let keeps = known.attributes_last();
        let believed = known.attributes_leased() || known.handle.is_none();
        believed.then(|| View::of(node, known, keeps, false))
    }

    /// Attributes.
    ///
    /// # Errors
    /// `Stale` if the inode is gone, or the server's.
    pub async fn attributes(&self, who: &Principal, node: NodeId) -> Result<View, FsError> {
        self.learn_attributes(who, node).await?;
        self.view(node)
    }

    /// Sees to it that the attributes that are here were true a moment ago.
    ///
    /// # Errors
    /// As [`Self::attributes`].
    pub(super) async fn learn_attributes(
        &self,
        who: &Principal,
        node: NodeId,
    ) -> Result<(), FsError> {
        if let Some(file) = self.is_settling(node) {
            // What goes wrong here is for those to hear who wrote.
            let _ = self.until_stored(node, &file).await;
        }
        let is_true = |known: &Node| known.attributes_leased() || known.handle.is_none();
        if self.transport.leases_hold() && self.nodes().get(node).is_some_and(is_true) {
            return Ok(());
        }
        let step = Step::Attributes {
            target: self.target(node).await?,
        };
        let (reply, response) = self.step(who, step).await?;
        self.take_attributes(node, reply, &response)
    }

    /// Takes over the attributes in a reply that brings them.
    pub(super) fn take_attributes(
        &self,
        node: NodeId,
        reply: StepReply,
        response: &FileResponse,
    ) -> Result<(), FsError> {
        let StepReply::Attributes { attributes, lease } = reply else {
            return Err(FsError::Io);
        };
        let mut nodes = self.nodes();
        nodes.refresh(node, &attributes, lease, response.recalls_seen);
        // An inode that becomes another one is none that anybody could go on using.
        let is_it = nodes.get(node).is_none() || nodes.is_kind(node, attributes.kind);
        is_it.then_some(()).ok_or(FsError::Io)
    }

    /// Takes over attributes that came without a lease of their own: the standing one stays.
    pub(super) fn note_attributes(&self, node: NodeId, attributes: &Attributes, recalls_seen: u64) {
        let mut nodes = self.nodes();
        let lease = nodes.get(node).map_or(Lease::None, |node| node.lease);
        nodes.refresh(node, attributes, lease, recalls_seen);
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// The server's, for this caller; also of earlier writes if the size changes.
    /// [`FsError::NotPermitted`] if it is to change through an open for appending alone.
    pub async fn set_attributes(
        &self,
        who: &Principal,
        node: NodeId,
        change: AttributeChange,
        open: Option<OpenId>,
    ) -> Result<View, FsError> {
        if change.size.is_some() && self.only_appends(open) {
            return Err(FsError::NotPermitted);
        }
        let handle = self.nodes().get(node).ok_or(FsError::Stale)?.handle.clone();
        let alters_rights = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
        // From here on: somebody may open it between a look and what is done.
        let mut shut = alters_rights.then(|| self.opens.shut(node));
        let shuts_out = alters_rights && self.is_open_for_others(node, change.uid);
        if handle.is_none() && !shuts_out && self.change_ahead(who, node, &change) {
            return self.view(node);
        }
        self.settle_before_change(node).await;
        if alters_rights {
            self.end_verdicts(node);
        }
        let target = self.target(node).await?;
        // A size cannot be set again should the server lose it: who syncs the file later must hear.
        let file = match change.size {
            Some(_) => Some(self.file(node)?),
            None => self.nodes().get(node).and_then(|node| node.file.clone()),
        };
        if let Some(file) = &file {
            // Written data must land before the size, and before a time that it would overwrite.
            self.drain(node, file).await?;
        }
        if let Some(shut) = &mut shut {
            self.keep_out(shut, change.uid).await?;
        }
        let (size, is_given) = (change.size, change.uid.is_some());
        let errors = file.as_ref().map(|file| file.lock().written.errors.count());
        let open = if size.is_some() {
            self.open_used_by(who, node, open).await?
        } else {
            None
        };
        let step = Step::SetAttributes {
            target,
            change,
            open,
        };
        let (reply, response) = match (&file, size) {
            (Some(_), Some(size)) => {
                let beyond = Extent::between(size, u64::MAX);
                self.replace(who, node, beyond, step).await?
            }
            _ => self.step(who, step).await?,
        };
        if let (Some(file), Some(size), Some(errors)) = (&file, size, errors) {
            let mut state = file.lock();
            let freed = state.distrust();
            if size == 0 {
                state.written.errors.on_emptied(errors);
            }
            drop(state);
            self.budget().on_freed(file.account, freed);
        }
        self.end_verdicts(node);
        if is_given {
            self.learn_giving(who);
        }
        self.take_attributes(node, reply, &response)?;
        self.view(node)
    }

    /// What was created ahead in a directory was created before its mode, owner, times or ACL
    /// change: it must be at the server first, or these would apply to it. A creation that the
    /// server refuses is for those to hear who asked for it.
    async fn settle_before_change(&self, node: NodeId) {
        let _ = self.settle_directory(node).await;
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// `Invalid` if it is none, or the server's.
    pub async fn read_link(&self, who: &Principal, node: NodeId) -> Result<Vec<u8>, FsError> {
        if self.transport.leases_hold()
            && let Some(known) = self.nodes().get(node)
            && known.is_leased()
            && let Some(target) = &known.link_target
        {
            return Ok(target.clone());
        }
        let (reply, _) = self
            .step(
                who,
                Step::ReadLink {
                    target: self.target(node).await?,
                },
            )
            .await?;
        let StepReply::LinkTarget(target) = reply else {
            return Err(FsError::Io);
        };
        if let Some(known) = self.nodes().get_mut(node)
            && known.is_leased()
        {
            known.link_target = Some(target.clone());
        }
        Ok(target)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoData` if there is none, or the server's.
    pub async fn xattr(
        &self,
        who: &Principal,
        node: NodeId,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let is_acl = ACLS.contains(&name);
        let hold = self.transport.leases_hold();
        let asked = {
            let mut nodes = self.nodes();
            let known = nodes.get_mut(node).ok_or(FsError::Stale)?;
            if known.handle.is_none() {
                // Made here a moment ago, in a directory without a default ACL: it has none yet.
                // The kernel asks for its capabilities before the first write.
                return Err(FsError::NoData);
            }
            let leased = known.is_leased() && hold;
            if leased && let Some(value) = known.xattrs.get(name).cloned() {
                if is_acl {
                    known.kept.on_acl(true, now());
                }
                return value.ok_or(FsError::NoData);
            }
            leased.then(|| (known.epoch, known.told_at()))
        };
        let step = Step::GetXattr {
            target: self.target(node).await?,
            name: name.to_vec(),
        };
        let value = match self.step(who, step).await {
            Ok((StepReply::Xattr(value), _)) => Some(value),
            Ok(_) => return Err(FsError::Io),
            Err(FsError::NoData) => None,
            Err(error) => return Err(error),
        };
        let mut nodes = self.nodes();
        let Some(known) = nodes.get_mut(node) else {
            return value.ok_or(FsError::NoData);
        };
        // Under one lease all the time: nobody else has changed it since it was read. A lease that
        // came while it was on its way says nothing of it.
        let (epoch, told_at) = (known.epoch, known.told_at());
        let leased = asked.is_some_and(|asked| asked.0 == epoch) && known.is_leased();
        if is_acl {
            known.kept.on_acl(leased, now());
        }
        if leased
            // Nor has this machine.
            && asked == Some((epoch, told_at))
            && known.xattrs.len() < XATTRS_KEPT_MAX
            && value.as_ref().is_none_or(|value| value.len() <= XATTR_KEPT_BYTES_MAX)
            // What one caller may not see must not be remembered for those who may, nor the
            // reverse; these two name spaces are readable by all who reach the inode.
            // A rich ACL can be for some to read.
            && name != NFS4_ACL
            && (name.starts_with(b"system.") || name.starts_with(b"security."))
        {
            known.xattrs.insert(name.to_vec(), value.clone());
        }
        value.ok_or(FsError::NoData)
    }

    /// Sets an extended attribute. `create`: `Some(true)` it must be new, `Some(false)` it must
    /// exist.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn set_xattr(
        &self,
        who: &Principal,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        create: Option<bool>,
    ) -> Result<(), FsError> {
        let _shut = match is_acl(name) {
            true => Some(self.shut(node, None).await?),
            false => None,
        };
        let target = self.target(node).await?;
        let (name, value) = (name.to_vec(), value.to_vec());
        let step = Step::SetXattr {
            target,
            name,
            value,
            create,
        };
        self.xattr_changed(who, node, step).await
    }

    /// Takes an extended attribute away.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn remove_xattr(
        &self,
        who: &Principal,
        node: NodeId,
        name: &[u8],
    ) -> Result<(), FsError> {
        if name == CAPABILITIES && who.uid != 0 {
            // No program of theirs comes this far with it. The kernel asks, for whoever is about to
            // write or to change the owner; that takes the capabilities away at the server.
            if let Some(known) = self.nodes().get_mut(node) {
                known.xattrs.remove(CAPABILITIES);
            }
            return Ok(());
        }
        let _shut = match is_acl(name) {
            true => Some(self.shut(node, None).await?),
            false => None,
        };
        let step = Step::RemoveXattr {
            target: self.target(node).await?,
            name: name.to_vec(),
        };
        self.xattr_changed(who, node, step).await
    }

    async fn xattr_changed(
        &self,
        who: &Principal,
        node: NodeId,
        step: Step,
    ) -> Result<(), FsError> {
        self.settle_before_change(node).await;
        self.end_verdicts(node);
        let outcome = self.step_with_room(who, step).await;
        let taken = outcome.and_then(|(reply, response)| {
            // What was asked for before this is not believed after it.
            self.take_attributes(node, reply, &response)
        });
        if let Some(known) = self.nodes().get_mut(node) {
            known.xattrs.clear();
            known.xattrs_changed = known.xattrs_changed.wrapping_add(1);
            known.end_verdicts();
            if let Some(directory) = &mut known.directory {
                directory.default_acl = None;
            }
        }
        taken?;
        // An ACL changes mode bits that the kernel keeps.
        self.tell_attributes(node);
        Ok(())
    }

    /// Names of the extended attributes, each ended by a NUL.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn xattr_names(&self, who: &Principal, node: NodeId) -> Result<Vec<u8>, FsError> {
        let step = Step::ListXattrs {
            target: self.target(node).await?,
        };
        match self.step(who, step).await? {
            (StepReply::XattrNames(names), _) => Ok(names),
            _ => Err(FsError::Io),
        }
    }

    /// Figures of the file system.
    ///
    /// # Errors
    /// The server's.
    pub async fn stat_file_system(
        &self,
        who: &Principal,
        node: NodeId,
    ) -> Result<FileSystemStat, FsError> {
        let step = Step::StatFileSystem {
            target: self.target(node).await?,
        };
        match self.step(who, step).await? {
            (StepReply::FileSystem(stat), _) => Ok(stat),
            _ => Err(FsError::Io),
        }
    }

    /// Tells the kernel that attributes have changed, if it may have kept any; whether it knows the
    /// inode then. Not otherwise: the kernel drops every answer about an inode that was asked for
    /// before it hears this, and reads no further than the size that it had then.
    pub(super) fn tell_attributes(&self, node: NodeId) -> bool {
        self.tell_kept(node, Keeps::Lasting)
    }

    /// The same where only size, blocks and times have changed, and set-id bits that a write takes
    /// away: what the kernel keeps of a file that it has written to is still true.
    pub(super) fn tell_written(&self, node: NodeId) -> bool {
        self.tell_kept(node, Keeps::All)
    }

    fn tell_kept(&self, node: NodeId, least: Keeps) -> bool {
        let Some(invalidate) = self.invalidate.get() else {
            return true;
        };
        let Some(kept) = self.nodes().get(node).map(|known| known.kept) else {
            return true;
        };
        let (what, answers) = kept.state();
        if what < least {
            return true;
        }
        if !invalidate.attributes(node) {
            // What it was told is on its way.
            return false;
        }
        if let Some(known) = self.nodes().get_mut(node) {
            known.kept.on_dropped(answers);
        }
        true
    }

    /// Whether the kernel has something of an inode that it need not drop at once, and asks for its
    /// attributes: it would drop the answer, too.
    pub(super) fn is_lasting_and_asked(&self, node: NodeId) -> bool {
        let lasting = |known: &Node| known.kept.state().0 == Keeps::Lasting;
        self.is_asked(node) && self.nodes().get(node).is_some_and(lasting)
    }

    /// The kernel is about to hear that it has written to a file: of size and times it keeps
    /// nothing then. Nothing else has changed, but for set-id bits that the write has taken away.
    pub fn on_written(&self, node: NodeId) {
        if let Some(known) = self.nodes().get_mut(node)
            && known.attributes.mode & (mode::SETUID | mode::SETGID) == 0
        {
            known.kept.on_written();
        }
    }

    /// Tells the kernel that data has changed.
    pub(super) fn tell_data(&self, node: NodeId) {
        let is_told = |invalidate: &Arc<dyn Invalidate>| invalidate.data(node);
        let mut nodes = self.nodes();
        if !self.invalidate.get().is_none_or(is_told)
            && nodes.get(node).is_some_and(Node::is_open_file)
        {
            // Too many at once. The next open would drop it, but who has it open goes on reading.
            nodes.doubt_pages(node);
        }
    }
}

/// The time that a change stands for, by the client's own clock where it says "now".
pub(super) fn resolve(time: SetTime, now: base::Timestamp) -> base::Timestamp {
    match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    }
}

/// The wall clock, for times of files that exist only here so far.
pub(super) fn wall_clock() -> base::Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    base::Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos(),
    }
}
