//! Opening and closing, and small files ahead.
//!
//! A file opened only for reading under a lease is opened here alone: the lease says that nobody
//! changes it, and the kernel has judged the caller by leased attributes. Everything else is opened
//! at the server. When the lease is recalled, files that were opened here alone are opened at the
//! server before the recall is obeyed, so that a file that somebody else removes can be read on.

use super::Volume;
use crate::cache::{Node, NodeId};
use crate::file::File;
use crate::transport::{Call, CallError};
use base::limits::INLINE_BYTES_MAX;
use base::{Attributes, FileKind, FsError, Handle, OpenId, Principal, Timestamp};
use bytes::Bytes;
use std::sync::Arc;
use wire::frame::Class;
use wire::message::{Access, Step, StepReply};

/// Contents in one request for small files.
const FETCH_BYTES_MAX: u64 = base::limits::FRAME_PAYLOAD_BYTES_MAX as u64;
/// Small files fetched ahead at once, whatever the window.
const FILES_AHEAD_MAX: usize = 2048;

/// Attribute that holds a program's capabilities, which a write takes away.
pub(super) const CAPABILITIES: &[u8] = b"security.capability";

/// An open file.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The inode.
    pub node: NodeId,
    /// Its id in the session.
    pub open: OpenId,
    /// What it may do.
    pub access: Access,
    /// Whether writes go to the end.
    pub append: bool,
    /// Who opened it.
    pub who: Principal,
    /// Whether what the kernel has of the file's data is still true.
    pub keep_data: bool,
}

/// Whether the mode lets a caller read or execute a file, or an ACL that it has may do so.
fn may_open(who: &Principal, known: &Node) -> bool {
    let Attributes { mode, uid, gid, .. } = known.attributes;
    let bits = match who {
        who if who.uid == uid => mode >> 6,
        who if who.is_member(gid) => mode >> 3,
        _ => mode,
    };
    who.uid == 0 || known.has_acl() || bits & 0o5 != 0
}

impl Volume {
    /// Opens a file that exists.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn open(
        &self,
        who: &Principal,
        node: NodeId,
        access: Access,
        append: bool,
    ) -> Result<OpenFile, FsError> {
        let file = self.file(node)?;
        let open = self.fresh_open();
        let here = !access.writes() && self.open_here(who, node, (open, access));
        let open = if here { open } else { self.fresh_open() };
        let used = self.used(Some(open));
        let was_leased = self.is_leased(node);
        let access = match here {
            true => access,
            false => {
                self.open_at_server(who, node, (open, access), append)
                    .await?
            }
        };
        if !here {
            self.register(who, node, (open, access), used);
        }
        if !here && !was_leased {
            // What was read without a lease, or is on its way, may be from before this open.
            self.distrust_data(node);
        }
        let is_bare = !here && !self.is_leased(node);
        let mut state = file.lock();
        state.lease_refused |= is_bare;
        state.on_open(open);
        drop(state);
        let keep_data = self.pin(node);
        if !access.writes() {
            self.fetch_neighbours(who, node);
        }
        Ok(OpenFile {
            node,
            open,
            access,
            append,
            who: who.clone(),
            keep_data,
        })
    }

    /// Opens a file at the server; says what it can be used for. Who may not write it may be
    /// allowed to append.
    async fn open_at_server(
        &self,
        who: &Principal,
        node: NodeId,
        (open, access): (OpenId, Access),
        append: bool,
    ) -> Result<Access, FsError> {
        match self.try_open(who, node, open, access).await {
            Err(FsError::AccessDenied) if append && self.may_append_alone(access) => {
                let access = access.appending();
                match self.try_open(who, node, open, access).await {
                    // It does not know such opens.
                    Err(FsError::NotSupported) => Err(FsError::AccessDenied),
                    opened => opened.map(|()| access),
                }
            }
            opened => opened.map(|()| access),
        }
    }

    /// Whether an open that was refused may be allowed to append.
    pub(super) fn may_append_alone(&self, access: Access) -> bool {
        access.writes() && self.is_rich()
    }

    /// Whether nothing but appending is allowed through an open.
    pub(super) fn only_appends(&self, open: Option<OpenId>) -> bool {
        self.opens
            .get(open)
            .is_some_and(|entry| entry.access.only_appends())
    }

    async fn try_open(
        &self,
        who: &Principal,
        node: NodeId,
        open: OpenId,
        access: Access,
    ) -> Result<(), FsError> {
        let target = self.target(node).await?;
        let capabilities = access.writes().then(|| Step::GetXattr {
            target: target.clone(),
            name: CAPABILITIES.to_vec(),
        });
        let step = Step::Open {
            target,
            open,
            access,
            truncate: false,
        };
        let steps = std::iter::once(step).chain(capabilities).collect();
        let told_at = || self.nodes().get(node).map(Node::told_at);
        let asked = told_at();
        let pending = self.transport.submit_steps(who, steps, Call::metadata());
        let mut response = pending.files().await.map_err(CallError::to_fs_error)?;
        let mut results = std::mem::take(&mut response.results).into_iter();
        let reply = match results.next().ok_or(FsError::Io)? {
            Err(FsError::Stale) => {
                // Whoever tries once more is to ask for the name as well.
                self.nodes().forget_stale(node);
                return Err(FsError::Stale);
            }
            reply => reply?,
        };
        // Neither has been changed since it was asked for, here or elsewhere.
        let is_news = asked == told_at();
        self.take_attributes(node, reply, &response)?;
        if !is_news || self.nodes().is_recalled_since(node, response.recalls_seen) {
            return Ok(());
        }
        match results.next() {
            Some(Ok(StepReply::Xattr(value))) => self.note_capabilities(node, Some(value)),
            Some(Err(FsError::NoData)) => self.note_capabilities(node, None),
            _ => {}
        }
        Ok(())
    }

    /// Remembers a file's capabilities: the kernel asks for them before the first write through an
    /// open, which would otherwise wait for a round trip of its own.
    pub(super) fn note_capabilities(&self, node: NodeId, value: Option<Vec<u8>>) {
        if let Some(known) = self.nodes().get_mut(node)
            && known.is_leased()
        {
            known.xattrs.insert(CAPABILITIES.to_vec(), value);
        }
    }

    /// Opens a file for reading, if nobody needs to be asked.
    #[must_use]
    pub fn open_cached(&self, who: &Principal, node: NodeId) -> Option<OpenFile> {
        let file = self.file(node).ok()?;
        let (open, access) = (self.fresh_open(), Access::Read);
        if !self.open_here(who, node, (open, access)) {
            return None;
        }
        file.lock().on_open(open);
        let keep_data = self.pin(node);
        self.fetch_neighbours(who, node);
        Some(OpenFile {
            node,
            open,
            access,
            append: false,
            who: who.clone(),
            keep_data,
        })
    }

    /// Whether closing a descriptor has nothing to wait for, nothing to report and nothing to make
    /// durable for others.
    #[must_use]
    pub fn is_clean(&self, open: &OpenFile) -> bool {
        if !open.access.writes() || self.is_wholly_ahead(open.node) {
            return true;
        }
        if self.is_ahead(open.node) {
            return false;
        }
        let is_leased = self.is_leased(open.node);
        self.file(open.node).is_ok_and(|file| {
            let state = file.lock();
            state.written.is_stored()
                && (is_leased || !state.written.needs_commit())
                && !state.written.errors.waits_for(open.open)
        })
    }

    /// Whether a file can be opened for reading without the server. The kernel has judged, but
    /// maybe by what it had before: it drops an answer if a program here writes to the file just
    /// then. So whom the mode that is true now gives nothing, the server judges.
    pub(super) fn opens_here(&self, who: &Principal, node: NodeId) -> bool {
        if !self.transport.leases_hold() {
            return false;
        }
        self.nodes()
            .get(node)
            .is_some_and(|known| match known.handle {
                Some(_) => known.attributes_leased() && may_open(who, known),
                None => who.uid == known.attributes.uid || may_open(who, known),
            })
    }

    /// Notes an open; whether the kernel's data of the file is still true.
    pub(super) fn pin(&self, node: NodeId) -> bool {
        let mut nodes = self.nodes();
        let Some(known) = nodes.get_mut(node) else {
            return false;
        };
        known.pins += 1;
        let changed: Timestamp = known.attributes.changed;
        // Without a lease, two changes within one tick of the server's clock look like one state.
        let sure = known.is_leased() || known.handle.is_none();
        let keep = sure && known.kernel_data == Some(changed);
        known.kernel_data = Some(changed);
        nodes.watch_pages(node);
        keep
    }

    /// An application closes one of its descriptors: everything written so far is at the server
    /// when this returns.
    ///
    /// # Errors
    /// What became of the writes. It is only looked at: a process that closes must not take it away
    /// from another that has the same open and asks by [`Self::commit`].
    pub async fn flush(&self, open: &OpenFile) -> Result<(), FsError> {
        if !open.access.writes() || self.is_wholly_ahead(open.node) {
            return Ok(());
        }
        let file = self.file(open.node)?;
        let drained = self.drained_for_others(open.node, &file).await;
        let looked = file.lock().written.errors.look(open.open);
        looked.and(drained)
    }

    /// As [`Self::flush`], for somebody who passes on for certain what it says: no sync of the
    /// volume tells it again.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub async fn flush_heard(&self, open: &OpenFile) -> Result<(), FsError> {
        let flushed = self.flush(open).await;
        if let Ok(file) = self.file(open.node) {
            let told = file.lock().written.errors.take(Some(open.open));
            return flushed.and(told);
        }
        flushed
    }

    /// The last descriptor of an open is closed.
    pub fn release(&self, open: &OpenFile) {
        let told = self.opens.remove(open.open);
        if let Some(node) = self.nodes().get_mut(open.node) {
            node.pins = node.pins.saturating_sub(1);
        }
        if let Ok(file) = self.file(open.node) {
            let last = file.lock().on_close(open.open);
            if last {
                self.closed(open, &file);
            }
        }
        if told {
            self.close_at_server(&open.who, open.open);
        }
    }

    /// Nobody has the file open any more.
    fn closed(&self, open: &OpenFile, file: &Arc<File>) {
        self.stop_reading(file);
        if self.is_ahead(open.node) {
            self.send_ahead(open.node);
        } else if !file.lock().written.is_empty() {
            self.commit_all_soon();
        }
    }

    /// A small file's contents came along with something else.
    pub(super) fn keep_contents(
        &self,
        node: NodeId,
        contents: Bytes,
        changed: Timestamp,
        recalls_seen: u64,
    ) {
        let Ok(file) = self.file(node) else { return };
        {
            let nodes = self.nodes();
            let Some(known) = nodes.get(node) else { return };
            let whole = known.attributes.size == contents.len() as u64;
            let current = known.is_current(changed) && !nodes.is_recalled_since(node, recalls_seen);
            if !whole || !known.is_leased() || !current {
                return;
            }
        }
        let bytes = contents.len() as u64;
        let mut state = file.lock();
        if bytes == 0 || !state.written.is_empty() || state.held.bytes() > 0 {
            return;
        }
        if self.budget().room_bytes(crate::clock::now(), file.account) < bytes {
            return;
        }
        let freed = state.held.insert(0, contents);
        state.streams.on_demanded(base::Extent::new(0, bytes));
        let mut budget = self.budget();
        budget.on_taken(file.account, bytes);
        budget.on_freed(file.account, freed);
    }

    /// A file of a directory is opened: if files are opened in order, fetch the next ones'
    /// contents.
    fn fetch_neighbours(&self, who: &Principal, node: NodeId) {
        let (line, room, _) = self.transport.download_room();
        let wanted: Vec<(NodeId, Handle, u64)> = {
            let mut nodes = self.nodes();
            let Some(parent) = nodes.get(node).and_then(|node| node.parent) else {
                return;
            };
            let Some(directory) = nodes
                .get_mut(parent)
                .and_then(|parent| parent.directory.as_mut())
            else {
                return;
            };
            directory.opens = directory.opens.saturating_add(1);
            let Some(order) = directory.order() else {
                return;
            };
            let sequence = &order.files;
            let Some((listed, sorted)) = sequence.position.get(&node) else {
                return;
            };
            directory.neighbours.on_open(*listed, *sorted);
            let count = sequence.listed.len();
            let mean = u64::from(INLINE_BYTES_MAX) / 8;
            let ahead = (line.window_bytes.max(room) / mean).clamp(8, FILES_AHEAD_MAX as u64);
            let picked = match directory.neighbours.next_files(count, ahead as usize) {
                Some((readahead::Order::Listed, range)) => &sequence.listed[range],
                Some((readahead::Order::Sorted, range)) => &sequence.sorted[range],
                None => return,
            };
            picked
                .iter()
                .filter_map(|node| self.fetchable(&nodes, *node))
                .collect()
        };
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (node, handle, size) in wanted {
            if bytes + size > FETCH_BYTES_MAX && !batch.is_empty() {
                self.fetch_small(who, std::mem::take(&mut batch), bytes);
                bytes = 0;
            }
            bytes += size;
            batch.push((node, handle));
        }
        if !batch.is_empty() {
            self.fetch_small(who, batch, bytes);
        }
    }

    fn fetchable(
        &self,
        nodes: &crate::cache::NodeTable,
        node: NodeId,
    ) -> Option<(NodeId, Handle, u64)> {
        let known = nodes.get(node)?;
        let size = known.attributes.size;
        let small = self.stripes.is_none()
            && known.attributes.kind == FileKind::File
            && size > 0
            && size <= u64::from(INLINE_BYTES_MAX);
        let cached = known.kernel_data == Some(known.attributes.changed)
            || known
                .file
                .as_ref()
                .is_some_and(|file| file.lock().held.bytes() > 0);
        (small && !cached).then(|| known.handle.clone().map(|handle| (node, handle, size)))?
    }

    /// Fetches the contents of small files in the background.
    fn fetch_small(&self, who: &Principal, batch: Vec<(NodeId, Handle)>, bytes: u64) {
        let (this, who) = (self.arc(), who.clone());
        let (nodes, handles): (Vec<NodeId>, Vec<Handle>) = batch.into_iter().unzip();
        // Readers that come before the contents wait for them instead of asking again.
        let completions: Vec<_> = nodes
            .iter()
            .map(|node| self.announce_contents(*node))
            .collect();
        tokio::spawn(async move {
            let step = Step::Fetch {
                handles,
                bytes_max: INLINE_BYTES_MAX,
            };
            let call = Call::read(Class::Prediction, bytes);
            let outcome = this.steps(&who, vec![step], call).await;
            if let Ok((mut replies, response)) = outcome
                && let Some(StepReply::Contents { files }) = replies.pop()
            {
                let payload = response.payload.into_bytes();
                let mut at = 0;
                for (node, found) in nodes.iter().zip(files) {
                    let Some((len, attributes, lease)) = found else {
                        continue;
                    };
                    let end = (at + len as usize).min(payload.len());
                    // A copy: one small file must not keep a megabyte alive.
                    let contents = Bytes::copy_from_slice(&payload[at..end]);
                    at = end;
                    this.nodes()
                        .refresh(*node, &attributes, lease, response.recalls_seen);
                    let changed = attributes.changed;
                    this.keep_contents(*node, contents, changed, response.recalls_seen);
                }
            }
            for (node, completion) in nodes.iter().zip(completions) {
                this.contents_arrived(*node, completion);
            }
        });
    }

    /// Takes a program's advice about how it will read a file.
    ///
    /// # Errors
    /// `Stale` or `Invalid` for a node that is no file.
    pub fn advise(&self, node: NodeId, advice: readahead::Advice) -> Result<(), FsError> {
        let file = self.file(node)?;
        file.lock().streams.advise(advice);
        self.pump(node, &file);
        Ok(())
    }

    /// Looks up and reads ahead what a program says it will need.
    ///
    /// # Errors
    /// `Stale` or `Invalid` for a node that is no file.
    pub fn will_read(
        &self,
        who: &Principal,
        node: NodeId,
        extents: &[base::Extent],
    ) -> Result<(), FsError> {
        let file = self.file(node)?;
        {
            let mut state = file.lock();
            state.streams.will_read(extents);
            state.reader.get_or_insert((who.clone(), None));
        }
        self.pump(node, &file);
        Ok(())
    }
}
