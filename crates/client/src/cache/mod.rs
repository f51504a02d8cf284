//! What the client knows of the volume's inodes and names, and for how long it may believe it.
//!
//! A pure table: no lock, no clock, no I/O. An answer from here is as good as one from the server
//! exactly while a lease stands: attributes of an inode under the inode's lease, presence or
//! absence of a name under the directory's. Whether leases may be believed at all (the server has
//! been heard of recently) is the caller's to check, once per operation.
//!
//! Replies and recalls travel on different connections, so a reply that grants a lease can arrive
//! after the recall of that very lease. [`RecallLog`] remembers recent recalls; a lease is taken
//! only if its inode was not recalled since the request was queued.

mod directory;
mod kept;
mod pages;
mod recalls;
mod room;
mod size;
mod verdicts;

pub use directory::{Directory, Listed, Order, Sequence};
pub use kept::{Keeps, Kept, ON_ITS_WAY_MAX};
pub use recalls::RecallLog;
pub use room::NODES_IDLE_MAX;
pub use size::count_written;
pub use verdicts::{AskedAt, Verdicts};

use crate::file::File;
use base::{Attributes, FileKind, Handle, Name, Principal, QuickMap, Timestamp};
use pages::Pages;
use room::Room;
use size::{Acknowledged, Here};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::Receiver;
use wire::message::{Entry, Lease};

/// The attribute that has a file's POSIX ACL.
pub const POSIX_ACL: &[u8] = b"system.posix_acl_access";
/// First inode number shown for files whose number at the server is not known yet; no file system
/// numbers this high.
const SYNTHETIC_INODE_FIRST: u64 = 1 << 63;

/// The client's name for an inode, valid as long as somebody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The volume's root.
    pub const ROOT: Self = Self(1);
}

/// One inode.
#[derive(Debug)]
pub struct Node {
    /// The server's name for it; `None` for a file that has been created ahead and not confirmed.
    pub handle: Option<Handle>,
    /// Last known attributes, with what was written here since.
    pub attributes: Attributes,
    /// `changed` of the latest state that the server told. The one in `attributes` may be a guess
    /// by the clock of this machine.
    told: Timestamp,
    /// The event with which it was taken over: requests that were queued later bring later states.
    told_at: u64,
    /// Size in that state. The one in `attributes` counts what was written here since.
    told_size: u64,
    /// The same of its blocks.
    told_blocks: u64,
    /// What the answer to a write has told of it since.
    acknowledged: Option<Box<Acknowledged>>,
    /// Times that were shown before the server had told its own, and the `changed` of the server's
    /// state that they belong to. See [`NodeTable::confirm`].
    shown: Option<Box<(Timestamp, ShownTimes)>>,
    /// Right to believe them.
    pub lease: Lease,
    /// Two states of the same time have been told, and one of them is not true any more. Asking
    /// again settles it.
    attributes_doubted: bool,
    /// Names have changed elsewhere: the rest of what is known of the directory stays under the
    /// lease, but its own attributes are not as they were.
    attributes_old: bool,
    /// What the kernel may keep of the attributes that it has been told.
    pub kept: Kept,
    /// How often the kernel has been told of it and not forgotten it.
    pub kernel_references: u64,
    /// Open files and other users in this process.
    pub pins: u32,
    /// What is known of its entries.
    pub directory: Option<Box<Directory>>,
    /// Its data.
    pub file: Option<Arc<File>>,
    /// Extended attributes, present or absent, as of `attributes.changed`.
    pub xattrs: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// How often this machine has changed one.
    pub xattrs_changed: u32,
    /// Where the link points, once read.
    pub link_target: Option<Vec<u8>>,
    /// The inode's `changed` when the kernel last began to fill its page cache.
    pub kernel_data: Option<Timestamp>,
    /// Bumped whenever a lease goes: what was asked for before is not believed.
    pub epoch: u64,
    /// Bumped by every change of a directory's names that is made from here. A look-up or listing
    /// that was asked for before may show the names as they were, and no recall says so.
    pub changes: u64,
    /// The directory in which it was seen last.
    pub parent: Option<NodeId>,
    /// What callers may, where only the server knows.
    verdicts: Option<Box<Verdicts>>,
}

/// Times of an inode as applications have seen them.
#[derive(Clone, Copy, Debug)]
struct ShownTimes {
    accessed: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
    created: Option<Timestamp>,
}

impl ShownTimes {
    fn of(attributes: &Attributes) -> Self {
        Self {
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
            created: attributes.created,
        }
    }

    fn put_on(self, attributes: &mut Attributes) {
        attributes.accessed = self.accessed;
        attributes.modified = self.modified;
        attributes.changed = self.changed;
        attributes.created = self.created;
    }
}

impl Node {
    fn new(handle: Option<Handle>, attributes: Attributes) -> Self {
        Self {
            handle,
            told: attributes.changed,
            told_at: 0,
            told_size: attributes.size,
            told_blocks: attributes.blocks,
            acknowledged: None,
            shown: None,
            attributes,
            lease: Lease::None,
            attributes_doubted: false,
            attributes_old: false,
            kept: Kept::default(),
            kernel_references: 0,
            pins: 0,
            directory: None,
            file: None,
            xattrs: HashMap::new(),
            xattrs_changed: 0,
            link_target: None,
            kernel_data: None,
            epoch: 0,
            changes: 0,
            parent: None,
            verdicts: None,
        }
    }

    /// Whether a caller may do all of `rights`, if the server has said so under this lease.
    #[must_use]
    pub fn verdict(&self, who: &Principal, rights: u8) -> Option<bool> {
        let verdicts = self.verdicts.as_ref().filter(|_| self.is_leased())?;
        verdicts.get(self.epoch, who, rights)
    }

    /// Whether it is known to have an ACL that decides who may open it.
    #[must_use]
    pub fn has_acl(&self) -> bool {
        matches!(self.xattrs.get(POSIX_ACL), Some(Some(_)))
    }

    /// Whether it is not known to have none.
    #[must_use]
    pub fn may_have_acl(&self) -> bool {
        !matches!(self.xattrs.get(POSIX_ACL), Some(None))
    }

    /// To be asked for before the server is; `None` if its answer could not be believed later.
    #[must_use]
    pub fn asking(&self) -> Option<AskedAt> {
        let epoch = Some(self.epoch).filter(|_| self.is_leased())?;
        Some(match &self.verdicts {
            Some(verdicts) => verdicts.asked_at(epoch),
            None => Verdicts::default().asked_at(epoch),
        })
    }

    /// Takes the server's answer over, if it is still one.
    pub fn note_verdict(&mut self, asked: AskedAt, who: &Principal, rights: u8, is_allowed: bool) {
        if self.is_leased() && asked.is_in(self.epoch) {
            let verdicts = self.verdicts.get_or_insert_default();
            verdicts.note(asked, who, rights, is_allowed);
        }
    }

    /// What decides is being changed from here: nothing that was asked for before counts.
    pub fn end_verdicts(&mut self) {
        self.verdicts.get_or_insert_default().end();
    }

    /// Whether attributes may be answered from here.
    #[must_use]
    pub fn attributes_leased(&self) -> bool {
        self.is_leased() && !self.attributes_old && !self.attributes_doubted
    }

    /// Whether the kernel may keep the attributes that are here: they are not only true now, but
    /// will be until it hears otherwise.
    #[must_use]
    pub fn attributes_last(&self) -> bool {
        let guessed = |file: &Arc<File>| file.lock().written.is_appending();
        self.attributes_leased() && !self.file.as_ref().is_some_and(guessed)
    }

    /// Whether whoever changes it elsewhere calls it back here first, or nobody there knows it.
    #[must_use]
    pub fn is_called_back(&self) -> bool {
        self.is_leased() || self.handle.is_none()
    }

    /// Its size as the server told it last.
    #[must_use]
    pub fn told_size(&self) -> u64 {
        self.told_size
    }

    /// The event with which the server's latest state was taken over.
    #[must_use]
    pub fn told_at(&self) -> u64 {
        self.told_at
    }

    /// Whether it is not gone for everybody.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.attributes.links > 0 || self.pins > 0
    }

    /// Whether data, and entries of a directory, may be answered from here.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        self.lease != Lease::None
    }

    /// Whether a state is another one than the one that was told last, of the same time. A write
    /// dates the file before it makes it longer, and clocks have ticks; then nobody can tell which
    /// is the later.
    fn is_doubtful(&self, tells: &Attributes) -> bool {
        let told = (self.attributes.mode, self.attributes.links, self.told_size);
        self.told == tells.changed && told != (tells.mode, tells.links, tells.size)
    }

    /// Whether what was read with a state of this time is what the file has now.
    #[must_use]
    pub fn is_current(&self, changed: Timestamp) -> bool {
        self.told == changed && !self.attributes_doubted
    }

    /// Whether it is a file that somebody has open here.
    #[must_use]
    pub fn is_open_file(&self) -> bool {
        self.pins > 0 && has_data(self.attributes.kind)
    }

    /// Whether it is an open file that no lease covers. One that only this machine knows of is
    /// covered by that.
    fn is_bare(&self) -> bool {
        self.is_open_file() && !self.is_leased() && self.handle.is_some()
    }

    /// Whether the kernel's pages show the file as it is with these attributes.
    fn has_pages_of(&self, attributes: &Attributes) -> bool {
        self.kernel_data == Some(attributes.changed)
    }

    fn is_idle(&self) -> bool {
        self.kernel_references == 0 && self.pins == 0
    }

    /// The directory part, made if need be.
    pub fn directory_mut(&mut self) -> &mut Directory {
        self.directory.get_or_insert_default()
    }
}

/// See the module's head.
#[derive(Debug)]
pub struct NodeTable {
    nodes: QuickMap<NodeId, Node>,
    by_handle: QuickMap<Handle, NodeId>,
    next_id: u64,
    next_synthetic: u64,
    /// Numbers recalls and states that were taken over, in one row.
    events: Arc<AtomicU64>,
    recalls: RecallLog,
    /// Recalls of the exclusive part of leases alone.
    exclusive_recalls: RecallLog,
    /// Where the sweep for idle nodes goes on.
    sweep: VecDeque<NodeId>,
    room: Room,
    pages: Pages,
}

impl NodeTable {
    /// A table with the volume's root; and what tells whenever [`Self::take_old_pages`] or
    /// [`Self::watched_pages`] have something.
    #[must_use]
    pub fn new(root: &Entry, events: Arc<AtomicU64>) -> (Self, Receiver<()>) {
        let (pages, woken) = Pages::new();
        let mut node = Node::new(Some(root.handle.clone()), root.attributes.clone());
        node.lease = root.lease;
        node.pins = 1;
        let table = Self {
            nodes: QuickMap::from_iter([(NodeId::ROOT, node)]),
            by_handle: QuickMap::from_iter([(root.handle.clone(), NodeId::ROOT)]),
            next_id: NodeId::ROOT.0 + 1,
            next_synthetic: SYNTHETIC_INODE_FIRST,
            events,
            recalls: RecallLog::default(),
            exclusive_recalls: RecallLog::default(),
            sweep: VecDeque::new(),
            room: Room::default(),
            pages,
        };
        (table, woken)
    }

    /// A node by id.
    #[must_use]
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// A node by id.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(&id)
    }

    /// The node of a handle, if it is known.
    #[must_use]
    pub fn find(&self, handle: &Handle) -> Option<NodeId> {
        self.by_handle.get(handle).copied()
    }

    /// Whether a node is of this kind.
    #[must_use]
    pub fn is_kind(&self, id: NodeId, kind: FileKind) -> bool {
        self.nodes
            .get(&id)
            .is_some_and(|node| node.attributes.kind == kind)
    }

    /// How many nodes are known.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// How many leases are held.
    #[must_use]
    pub fn lease_count(&self) -> usize {
        self.nodes.values().filter(|node| node.is_leased()).count()
    }

    /// All node ids.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// Takes over what a reply says of an inode. `recalls_seen` is that of the response.
    pub fn apply(&mut self, entry: &Entry, recalls_seen: u64) -> NodeId {
        // A handle never comes to mean an inode of another kind. Where it does all the same, that
        // is another node, and what uses the old one goes on with what that was.
        let same = |id: &NodeId| self.is_kind(*id, entry.attributes.kind);
        let id = match self.by_handle.get(&entry.handle).copied().filter(same) {
            Some(id) => id,
            None => {
                let id = self.fresh_id();
                let node = Node::new(Some(entry.handle.clone()), entry.attributes.clone());
                self.nodes.insert(id, node);
                self.by_handle.insert(entry.handle.clone(), id);
                id
            }
        };
        self.refresh(id, &entry.attributes, entry.lease, recalls_seen);
        id
    }

    /// Takes over attributes and a lease for a known node.
    pub fn refresh(
        &mut self,
        id: NodeId,
        attributes: &Attributes,
        lease: Lease,
        recalls_seen: u64,
    ) {
        let recalled = self.is_recalled_since(id, recalls_seen);
        let lease = self.believable(id, lease, recalls_seen);
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        if node.attributes.kind != attributes.kind {
            node.epoch += 1;
            node.lease = Lease::None;
            return;
        }
        // A reply with an older state has been overtaken, unless its request was queued when the
        // newer one was known: then the server's clock has been set back.
        let overlaps = recalled || recalls_seen < node.told_at;
        if overlaps && attributes.changed < node.told {
            return;
        }
        node.attributes_doubted = overlaps && node.is_doubtful(attributes);
        // A lease that stands was granted after the recall. A reply from before it may all the same
        // bring the later state: nobody is told of changes of his own.
        let lease = if recalled { node.lease } else { lease };
        if attributes.changed != node.told {
            node.xattrs.clear();
            node.link_target = None;
        }
        let inode = node.attributes.inode;
        let here = Here::of(node);
        node.attributes = attributes.clone();
        node.told = attributes.changed;
        node.told_at = self.events.fetch_add(1, Ordering::AcqRel) + 1;
        node.attributes_old &= recalled;
        match node.shown.as_deref() {
            Some((told, times)) if *told == node.told => times.put_on(&mut node.attributes),
            _ => node.shown = None,
        }
        if inode >= SYNTHETIC_INODE_FIRST {
            node.attributes.inode = inode;
        }
        here.put_on(node, recalls_seen);
        if lease == Lease::None {
            node.epoch += u64::from(node.lease != Lease::None);
            node.lease = Lease::None;
            if let Some(directory) = &mut node.directory {
                directory.forget_all();
            }
        } else if node.lease == Lease::None {
            // Names learned without a lease are not covered by the new one.
            if let Some(directory) = &mut node.directory {
                directory.forget_all();
            }
            node.lease = lease;
            // Nor are pages.
            if node.is_open_file() && !node.has_pages_of(&node.attributes) {
                self.pages.doubt(id);
            }
        } else {
            node.lease = node.lease.max(lease);
        }
    }

    /// As much of a lease as has not been recalled since its request was queued: the exclusive part
    /// can go alone.
    fn believable(&self, id: NodeId, lease: Lease, recalls_seen: u64) -> Lease {
        let handle = self.nodes.get(&id).and_then(|node| node.handle.as_ref());
        let log = &self.exclusive_recalls;
        if handle.is_none_or(|handle| log.is_recalled_since(handle, recalls_seen)) {
            lease.min(Lease::Read)
        } else {
            lease
        }
    }

    /// Takes over a lease on a directory that came without its attributes; whether its names may be
    /// believed.
    pub fn take_lease(&mut self, id: NodeId, lease: Lease, recalls_seen: u64) -> bool {
        if lease == Lease::None || self.is_recalled_since(id, recalls_seen) {
            return false;
        }
        let lease = self.believable(id, lease, recalls_seen);
        let Some(node) = self.nodes.get_mut(&id) else {
            return false;
        };
        if !node.is_leased() {
            // What was learned without a lease is not covered by the new one.
            node.attributes_old = true;
            if let Some(directory) = &mut node.directory {
                directory.forget_all();
            }
        }
        node.lease = node.lease.max(lease);
        true
    }

    /// Takes over what a reply says of an inode that has lost a name, if it is known here or has
    /// others.
    pub fn apply_lost(&mut self, entry: &Entry, recalls_seen: u64) -> Option<NodeId> {
        let wanted = entry.attributes.links > 0 || self.by_handle.contains_key(&entry.handle);
        wanted.then(|| self.apply(entry, recalls_seen))
    }

    /// A read found the end of a file earlier than expected. That is no news if the file's state
    /// was told after the read was queued, when `seen` events were known: the read may have been
    /// the earlier one at the server. Whether it is.
    pub fn shorten(&mut self, id: NodeId, end: u64, seen: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else {
            return false;
        };
        if node.attributes.size <= end || seen < node.told_at || node.is_before_write(seen) {
            return false;
        }
        node.attributes.size = end;
        node.epoch += u64::from(node.lease != Lease::None);
        node.lease = Lease::None;
        true
    }

    /// Whether a recall of the inode has been received after `recalls_seen` of them: a reply to a
    /// request that was queued before must not be believed for longer than the moment.
    #[must_use]
    pub fn is_recalled_since(&self, id: NodeId, recalls_seen: u64) -> bool {
        match self.nodes.get(&id).and_then(|node| node.handle.as_ref()) {
            Some(handle) => self.recalls.is_recalled_since(handle, recalls_seen),
            None => true,
        }
    }

    /// Makes a node for a file that the server does not know yet, and gives it an inode number.
    pub fn create_ahead(&mut self, attributes: &mut Attributes) -> NodeId {
        let id = self.fresh_id();
        attributes.inode = self.next_synthetic;
        self.next_synthetic += 1;
        self.nodes.insert(id, Node::new(None, attributes.clone()));
        id
    }

    /// The server has confirmed a file that was created ahead. Its times go on being those that
    /// were shown until then, as long as nothing else happens to it: times that change although
    /// nobody touched the file would make programs such as git(1) and tar(1) read it again.
    pub fn confirm(&mut self, id: NodeId, entry: &Entry, recalls_seen: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.handle = Some(entry.handle.clone());
            node.told = entry.attributes.changed;
            node.shown = Some(Box::new((node.told, ShownTimes::of(&node.attributes))));
            self.by_handle.insert(entry.handle.clone(), id);
            self.refresh(id, &entry.attributes, entry.lease, recalls_seen);
            // The kernel has what was written here, and nobody else has written.
            self.pages.trust(id);
        }
    }

    fn fresh_id(&mut self) -> NodeId {
        let id = NodeId(self.next_id);
        self.next_id += 1;
        self.sweep.push_back(id);
        id
    }

    /// Some of what was written to an inode is lost: what it is like, the server has to say.
    pub fn doubt_contents(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.attributes_old = true;
            node.kernel_data = None;
        }
    }

    /// Records that a name leads to a node, or to nothing, if the directory's lease allows it.
    pub fn set_name(&mut self, parent_id: NodeId, name: &Name, node: Option<NodeId>) {
        if let Some(parent) = self.nodes.get_mut(&parent_id)
            && parent.is_leased()
        {
            parent.directory_mut().set(name, node);
            self.note_names(1);
        }
        if let Some(node) = node.and_then(|node| self.nodes.get_mut(&node)) {
            node.parent = Some(parent_id);
        }
    }

    /// What a name of a directory leads to has been changed from here.
    pub fn note_change(&mut self, directory: NodeId, name: &Name) {
        if let Some(node) = self.nodes.get_mut(&directory) {
            node.changes += 1;
            if let Some(directory) = &mut node.directory {
                directory.note_own(name);
            }
        }
    }

    /// How many changes of a directory's names have been made from here.
    #[must_use]
    pub fn changes(&self, directory: NodeId) -> u64 {
        self.nodes.get(&directory).map_or(0, |node| node.changes)
    }

    /// What is known of a name: `None` if nothing, `Some(None)` if it does not exist.
    #[must_use]
    pub fn name(&self, parent: NodeId, name: &Name) -> Option<Option<NodeId>> {
        let parent = self.nodes.get(&parent)?;
        if !parent.is_leased() {
            return None;
        }
        let found = parent.directory.as_ref()?.get(name)?;
        match found {
            Some(id) if !self.nodes.contains_key(&id) => None,
            other => Some(other),
        }
    }

    /// A recall has arrived: everything about the inode.
    pub fn recall(&mut self, handle: &Handle, sequence: u64) -> Option<NodeId> {
        self.recalls.record(handle, sequence);
        let id = self.find(handle)?;
        let node = self.nodes.get_mut(&id)?;
        node.lease = Lease::None;
        node.epoch += 1;
        node.xattrs.clear();
        node.link_target = None;
        // Two changes within one tick of the server's clock look like one state, so the times
        // alone cannot tell that the kernel's data is still true.
        node.kernel_data = None;
        if let Some(directory) = &mut node.directory {
            directory.forget_all();
        }
        Some(id)
    }

    /// A recall has arrived: one name of a directory. The lease on the rest stays, but the
    /// directory's own attributes have changed.
    pub fn recall_name(&mut self, handle: &Handle, name: &Name, sequence: u64) -> Option<NodeId> {
        // What a look-up that is under way says of this directory is older than this recall.
        self.recalls.record(handle, sequence);
        let id = self.find(handle)?;
        let node = self.nodes.get_mut(&id)?;
        node.attributes_old = true;
        if let Some(directory) = &mut node.directory {
            directory.forget(name);
        }
        Some(id)
    }

    /// The exclusive part of a directory's lease is recalled.
    pub fn recall_exclusive(&mut self, handle: &Handle, sequence: u64) -> Option<NodeId> {
        self.exclusive_recalls.record(handle, sequence);
        let id = self.find(handle)?;
        let node = self.nodes.get_mut(&id)?;
        if node.lease == Lease::Exclusive {
            node.lease = Lease::Read;
        }
        Some(id)
    }

    /// The server says that there is no such inode any more: the names that lead to it here are
    /// asked for anew.
    pub fn forget_stale(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lease = Lease::None;
            node.epoch += 1;
            node.xattrs.clear();
            if node.is_bare() {
                self.pages.watch(id);
            }
        }
    }

    /// Leases are worth nothing any more (silence, or a new session).
    pub fn forget_leases(&mut self, sequence: u64) {
        self.recalls.record_all(sequence);
        for node in self.nodes.values_mut() {
            node.lease = Lease::None;
            node.epoch += 1;
            node.xattrs.clear();
            if let Some(directory) = &mut node.directory {
                directory.forget_all();
            }
        }
        let bare = self.nodes.iter().filter(|(_, node)| node.is_bare());
        bare.for_each(|(id, _)| self.pages.watch(*id));
    }

    /// The kernel reads data of the file, or keeps what it has of it: nobody takes that back
    /// without a lease.
    pub fn watch_pages(&mut self, id: NodeId) {
        if self.nodes.get(&id).is_some_and(Node::is_bare) {
            self.pages.watch(id);
        }
    }

    /// Takes the open files of which the kernel has old pages.
    pub fn take_old_pages(&mut self) -> BTreeSet<NodeId> {
        self.pages.take_old()
    }

    /// Nothing is known of a file's pages but that nobody takes them back.
    pub fn doubt_pages(&mut self, id: NodeId) {
        self.pages.doubt(id);
    }

    /// Open files of which the kernel may have pages that are not leased, `count_max` at most,
    /// others each time.
    pub fn watched_pages(&mut self, count_max: usize) -> Vec<NodeId> {
        let mut turn = self.pages.next_watched(count_max);
        turn.retain(|id| {
            let is_bare = self.nodes.get(id).is_some_and(Node::is_bare);
            if !is_bare {
                self.pages.unwatch(*id);
            }
            is_bare
        });
        turn
    }

    /// Whether there may be more of them.
    #[must_use]
    pub fn watches_pages(&self) -> bool {
        self.pages.is_watching()
    }

    /// A file without a lease is as its attributes say: if the kernel's pages are of another state,
    /// they are old.
    pub fn compare_pages(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get(&id)
            && !node.is_leased()
            && !node.has_pages_of(&node.attributes)
        {
            self.pages.doubt(id);
        }
    }

    /// Old pages of a file have been dropped: those that the kernel has are of the state at
    /// `changed` or later, if nothing has been recalled since `epoch`.
    pub fn renew_pages(&mut self, id: NodeId, changed: Timestamp, epoch: u64) {
        self.pages.unwatch(id);
        if let Some(node) = self.nodes.get_mut(&id)
            && node.epoch == epoch
        {
            node.kernel_data = Some(changed);
        }
    }

    /// The kernel has been told of the node.
    pub fn reference(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.kernel_references += 1;
        }
    }

    /// The kernel forgets `count` references.
    pub fn unreference(&mut self, id: NodeId, count: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.kernel_references = node.kernel_references.saturating_sub(count);
        }
    }

    /// As [`RecallLog::end_return`], of what [`Self::evict`] said.
    pub fn end_return(&mut self, handles: &[Handle], sequence: Option<u64>) {
        self.recalls.end_return(handles, sequence);
    }

    /// Takes a node out whose file is gone for good (its creation failed).
    pub fn discard(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lease = Lease::None;
            node.attributes.links = 0;
        }
    }
}

/// Whether a kind has data that is read and written through the server. Pipes, sockets and devices
/// are the client kernel's own.
#[must_use]
pub fn has_data(kind: FileKind) -> bool {
    kind == FileKind::File
}
