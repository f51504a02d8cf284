//! Creations and removals answered ahead.
//!
//! In a directory that the server has leased to this session alone and whose names are all known, a
//! new file needs nobody's leave: the kernel has judged the caller by leased attributes, the name
//! is known to be free, and nobody else looks. Such a creation is answered at once. The file's
//! contents are gathered until it is closed (or grows, or a moment passes) and then sent with the
//! creation, in one request with other files (`gather`). Whatever else is done with the file first
//! waits until the server has it. So does whatever asks the server for its name: the directory's
//! lease may have gone while the creation is on its way.
//!
//! A creation that the server then refuses (no space, a quota) is reported by the next fsync of the
//! file or of its directory, by a sync of the volume, and in the log. So is a refused removal
//! ([`removals`]).

mod changes;
mod files;
mod refusals;
mod removals;

pub use refusals::DirectoryTold;

pub(super) use removals::Taken;

use super::attributes::wall_clock;
use super::change::{Creation, forget_name};
use super::gather::{Errand, Outbox, Parcel};
use super::{OpenFile, View, Volume};
use crate::cache::{Node, NodeId};
use crate::clock::now;
use crate::file::Completion;
use base::limits::INLINE_BYTES_MAX;
use base::{
    AttributeChange, Attributes, FileKind, FsError, Handle, Name, OpenId, Principal, Time,
    WriteVerifier, mode,
};
use files::Files;
use refusals::Refusals;
use removals::Removals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use wire::message::{Access, Entry, Lease, Step};

/// Files that may exist only here at once, and names that may be gone only here.
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
    /// It is on its way, or waits for company on it.
    sent: bool,
    since: Time,
    /// By which it was created, and by whose rights its contents are written.
    open: OpenId,
    completion: Completion,
}

/// All files that the server does not know yet, and what became of refused ones.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    files: Mutex<Files>,
    removals: Mutex<Removals>,
    refusals: Mutex<Refusals>,
    pub(super) outbox: Outbox,
    /// The server lets root change owners.
    gives: AtomicBool,
    /// Somebody will look for files that have stayed open for long enough.
    timer_set: AtomicBool,
}

/// What the server says of a file that was created ahead.
pub(super) struct Made {
    pub(super) entry: Entry,
    pub(super) parent: Attributes,
    pub(super) parent_lease: Lease,
    /// Recalls received when its creation was sent.
    pub(super) seen: u64,
    pub(super) verifier: WriteVerifier,
}

impl Ahead {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().expect("no panic happens under this lock")
    }

    fn removals(&self) -> MutexGuard<'_, Removals> {
        let removals = self.removals.lock();
        removals.expect("no panic happens under this lock")
    }
}

impl Volume {
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
        let is_full = self.ahead.files().len() >= AHEAD_MAX;
        if !self.transport.leases_hold() || is_full || self.is_rich() {
            return None;
        }
        let mut nodes = self.nodes();
        let known = nodes.get_mut(*parent)?;
        if known.lease != Lease::Exclusive {
            return None;
        }
        let (parent_handle, number) = (known.handle.clone()?, self.fresh_open());
        let directory = known.directory.as_ref()?;
        if directory.default_acl != Some(false) || directory.get(name)?.is_some() {
            return None;
        }
        // The server must not be told of the new file before it has let the old one go.
        if self.ahead.removals().contains(*parent, name) {
            return None;
        }
        let mut attributes = new_attributes(who, &known.attributes, *mode, *umask);
        known.attributes.modified = attributes.modified;
        known.attributes.changed = attributes.changed;
        let node = nodes.create_ahead(&mut attributes);
        nodes.note_change(*parent, name);
        nodes.set_name(*parent, name, Some(node));
        let file = AheadFile {
            parent: *parent,
            parent_handle,
            name: name.clone(),
            who: who.clone(),
            mode: *mode,
            umask: *umask,
            change: AttributeChange::default(),
            sent: false,
            since: now(),
            open: number,
            completion: Completion::default(),
        };
        // Under the same lock under which the lease was found to stand: a recall comes before both
        // or after both, and then finds what it must wait for.
        self.ahead.files().insert(node, file);
        drop(nodes);
        self.counters.created_ahead.fetch_add(1, Ordering::Relaxed);
        let open = self.open_created(who, node, (number, access), append)?;
        self.send_in_time();
        let view = View {
            node,
            attributes,
            attributes_leased: true,
            name_leased: true,
        };
        Some((view, open))
    }

    fn open_created(
        &self,
        who: &Principal,
        node: NodeId,
        (open, access): (OpenId, Access),
        append: bool,
    ) -> Option<OpenFile> {
        // Nobody changes who may open it before it is there.
        let is_noted = self.register_here(who, node, (open, access));
        debug_assert!(is_noted);
        self.file(node).ok()?.lock().on_open(open);
        self.pin(node);
        Some(OpenFile {
            node,
            open,
            access,
            append,
            who: who.clone(),
            keep_data: true,
        })
    }

    /// Learns whether a directory has a default ACL, so that later creations in it may be answered
    /// ahead.
    pub(super) fn learn_default_acl(&self, who: &Principal, directory: NodeId) {
        let wanted = self.nodes().get(directory).is_some_and(|known| {
            known.lease == Lease::Exclusive
                && known
                    .directory
                    .as_ref()
                    .is_some_and(|d| d.default_acl.is_none())
        });
        if !wanted {
            return;
        }
        let (this, who) = (self.arc(), who.clone());
        tokio::spawn(async move {
            let name = b"system.posix_acl_default";
            let Ok(target) = this.target(directory).await else {
                return;
            };
            let step = Step::GetXattr {
                target,
                name: name.to_vec(),
            };
            let changed = || {
                this.nodes()
                    .get(directory)
                    .map(|known| known.xattrs_changed)
            };
            let (seen, before) = (this.transport.recalls_seen(), changed());
            let found = match this.step(&who, step).await {
                Ok(_) => true,
                Err(FsError::NoData | FsError::NotSupported) => false,
                Err(_) => return,
            };
            let mut nodes = this.nodes();
            if !nodes.is_recalled_since(directory, seen)
                && let Some(known) = nodes.get_mut(directory)
                && known.is_leased()
                && before == Some(known.xattrs_changed)
            {
                known.directory_mut().default_acl = Some(found);
            }
        });
    }

    /// Sees to it that files that stay open are sent in time.
    fn send_in_time(&self) {
        if self.ahead.timer_set.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = self.arc();
        tokio::spawn(async move {
            while let Some(due) = this.send_due() {
                tokio::time::sleep(due).await;
            }
        });
    }

    /// Sends files that exist only here for long enough; when the next one will be due.
    fn send_due(&self) -> Option<Duration> {
        let now = now();
        let mut due = Vec::new();
        let mut next = None;
        {
            let files = self.ahead.files();
            for (node, file) in files.iter().filter(|(_, file)| !file.sent) {
                match AHEAD_TIME_MAX.checked_sub(now.since(file.since)) {
                    Some(left) if !left.is_zero() => {
                        next = Some(next.map_or(left, |next: Duration| next.min(left)));
                    }
                    _ => due.push(*node),
                }
            }
            if next.is_none() {
                // Under the lock: who comes later sets the timer again.
                self.ahead.timer_set.store(false, Ordering::Release);
            }
        }
        for node in due {
            self.send_ahead(node);
        }
        next
    }

    /// Names of a directory that lead to files that exist only here.
    pub(super) fn names_ahead(&self, directory: NodeId) -> Vec<Name> {
        let files = self.ahead.files();
        files.names(directory)
    }

    /// Whether the server has not confirmed some creation or removal.
    pub(super) fn has_ahead(&self) -> bool {
        !self.ahead.files().is_empty() || !self.ahead.removals().is_empty()
    }

    pub(super) fn refusals(&self) -> MutexGuard<'_, Refusals> {
        let refusals = self.ahead.refusals.lock();
        refusals.expect("no panic happens under this lock")
    }

    /// Whether something that was answered ahead was refused, and nobody has been told.
    pub(super) fn has_refused(&self) -> bool {
        self.refusals().is_untold()
    }

    /// Whether a file exists only here.
    pub(super) fn is_ahead(&self, node: NodeId) -> bool {
        self.ahead.files().contains_key(&node)
    }

    /// Whether the server has named a node.
    pub(super) fn is_named(&self, node: NodeId) -> bool {
        let nodes = self.nodes();
        nodes.get(node).is_some_and(|known| known.handle.is_some())
    }

    /// Whether a file exists only here and all that was written to it goes to the server with its
    /// creation: such a file is closed without waiting. What is written beyond that is waited for
    /// as in any other file, however long the creation takes.
    pub(super) fn is_wholly_ahead(&self, node: NodeId) -> bool {
        // Only while leases hold do other machines wait for the creation.
        if !self.is_ahead(node) || !self.transport.leases_hold() {
            return false;
        }
        let Ok(file) = self.file(node) else {
            return false;
        };
        let (is_empty, is_contents) = {
            let written = &mut file.lock().written;
            let is_contents = written.is_contents(self.ahead_bytes_max());
            (written.bytes() == 0, is_contents)
        };
        // After that look: what it saw is packed only when the file is on its way.
        let sent = self.ahead.files().get(&node).map(|ahead| ahead.sent);
        sent.is_some_and(|sent| is_empty || (!sent && is_contents))
    }

    /// A file that exists only here has got data: too much of it is sent at once.
    pub(super) fn grown_ahead(&self, node: NodeId, file: &crate::file::File) {
        if file.lock().written.bytes() > self.ahead_bytes_max() as u64 {
            self.send_ahead(node);
        }
    }

    /// Sends a file that exists only here, if that has not been done; with others that are sent in
    /// this moment.
    pub(super) fn send_ahead(&self, node: NodeId) {
        {
            let mut files = self.ahead.files();
            let Some(ahead) = files.get_mut(&node).filter(|ahead| !ahead.sent) else {
                return;
            };
            ahead.sent = true;
        }
        self.gather(Errand::Creation(node));
    }

    /// Contents that go with a creation. Those of a parallel volume go to its stores.
    fn ahead_bytes_max(&self) -> usize {
        match &self.stripes {
            Some(_) => 0,
            None => INLINE_BYTES_MAX as usize,
        }
    }

    /// The creation of a file that exists only here, with its contents as they are now.
    pub(super) fn pack(&self, node: NodeId) -> Option<Parcel> {
        let file = self.file(node).ok()?;
        let bytes_max = self.ahead_bytes_max();
        let (contents, permits) = file.lock().written.take_contents(bytes_max);
        let files = self.ahead.files();
        let ahead = files.get(&node)?;
        let step = Step::CreateFile {
            parent: wire::message::Target::Handle(ahead.parent_handle.clone()),
            name: ahead.name.clone(),
            mode: ahead.mode,
            umask: ahead.umask,
            change: ahead.change.clone(),
            bytes: contents.len() as u32,
        };
        Some(Parcel {
            errand: Errand::Creation(node),
            who: ahead.who.clone(),
            step,
            contents,
            permits,
            again: false,
        })
    }

    /// The server has answered a creation that was answered ahead.
    pub(super) fn created(&self, parcel: Parcel, outcome: Result<Made, FsError>) {
        let Parcel {
            errand: Errand::Creation(node),
            who,
            contents,
            permits,
            ..
        } = parcel
        else {
            return;
        };
        let Some((parent, name, open)) = self.ahead.files().place(&node) else {
            return;
        };
        // It is taken out last: whoever finds none must find what the server says of it.
        let outcome = match outcome {
            Ok(made) => {
                self.confirm_ahead(node, parent, &made);
                if let Ok(file) = self.file(node) {
                    let written = &mut file.lock().written;
                    written.add_stored(contents, (who, open), made.verifier, permits);
                }
                Ok(())
            }
            Err(error) => {
                self.refuse_ahead(node, parent, &name, error);
                Err(error)
            }
        };
        let ahead = self.ahead.files().remove(&node);
        if outcome.is_ok()
            && let Ok(file) = self.file(node)
            && !file.lock().written.is_empty()
        {
            // What was written since waits for nothing else any more.
            self.send_gathered_later(node, &file);
            self.send_written(node, &file);
            self.commit_all_soon();
        }
        if let Some(ahead) = ahead {
            ahead.completion.set(outcome);
        }
    }

    fn confirm_ahead(&self, node: NodeId, parent: NodeId, made: &Made) {
        let mut nodes = self.nodes();
        let shown = nodes.get(node).map(kept_by_the_kernel);
        nodes.confirm(node, &made.entry, made.seen);
        nodes.refresh(parent, &made.parent, made.parent_lease, made.seen);
        let found = nodes.get(node).map(kept_by_the_kernel);
        if let Some(known) = nodes.get_mut(node) {
            // The kernel's pages are what was written here.
            known.kernel_data = Some(known.attributes.changed);
        }
        drop(nodes);
        if found.map(|kept| kept.0) != shown.map(|kept| kept.0) {
            self.tell_attributes(node);
        } else if found != shown {
            self.tell_written(node);
        }
    }

    fn refuse_ahead(&self, node: NodeId, parent: NodeId, name: &Name, error: FsError) {
        // Who closes the session gives up what is on its way, and knows.
        if !self.transport.is_closed() {
            tracing::error!(%name, %error, "the server refused a file created ahead");
        }
        // Nor is anything else certain now.
        self.ahead.gives.store(false, Ordering::Release);
        let mut nodes = self.nodes();
        nodes.discard(node);
        forget_name(&mut nodes, parent, name);
        drop(nodes);
        if let Ok(file) = self.file(node) {
            file.lock().written.errors.record(error);
            self.send_written(node, &file);
        }
        self.report_ahead(parent, error);
    }

    /// What was answered ahead about a name of a directory is not so.
    fn report_ahead(&self, directory: NodeId, error: FsError) {
        self.refusals().record(directory, error);
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
        if self.is_ahead(node) {
            self.send_gathered();
        }
        let completion = self
            .ahead
            .files()
            .get(&node)
            .map(|ahead| ahead.completion.clone());
        if let Some(completion) = completion {
            self.until_told(completion).await?;
        }
        let nodes = self.nodes();
        nodes
            .get(node)
            .and_then(|node| node.handle.clone())
            .ok_or(FsError::Stale)
    }

    /// Waits for the server's word on something that was answered ahead. A slow line may take long
    /// for all that is before it; what must not be is that nothing comes to the server.
    async fn until_told(&self, completion: Completion) -> Result<(), FsError> {
        loop {
            let before = self.transport.writes_answered();
            match self.transport.in_time(now(), completion.wait()).await {
                Some(outcome) => return outcome,
                None if self.transport.writes_answered() != before => {}
                None => return Err(FsError::TimedOut),
            }
        }
    }

    /// Waits until the server knows the file of that name, if it exists only here, or that it is
    /// gone: it must not be asked about a name of which it has not heard the latest.
    pub(super) async fn settle_name(&self, parent: NodeId, name: &Name) {
        let removal = self.ahead.removals().completion(parent, name);
        if let Some(removal) = removal {
            let _ = self.settle_removal(removal).await;
        }
        let node = self.ahead.files().named(parent, name);
        if let Some(node) = node {
            // What it refuses is not there, and is for those to hear who sync.
            let _ = self.settle(node).await;
        }
    }

    /// Waits until the server knows every file of a directory, and every name that is gone.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) async fn settle_directory(&self, directory: NodeId) -> Result<(), FsError> {
        let removed = self.settle_removals(Some(directory)).await;
        let made = self.settle_where(|ahead| ahead.parent == directory).await;
        removed.and(made)
    }

    /// Waits until the server knows every file, and every name that is gone.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) async fn settle_everywhere(&self) -> Result<(), FsError> {
        let removed = self.settle_removals(None).await;
        removed.and(self.settle_where(|_| true).await)
    }

    async fn settle_where(&self, wanted: impl Fn(&AheadFile) -> bool) -> Result<(), FsError> {
        let waiting: Vec<(NodeId, Completion)> = {
            let files = self.ahead.files();
            files
                .iter()
                .filter(|(_, ahead)| wanted(ahead))
                .map(|(node, ahead)| (*node, ahead.completion.clone()))
                .collect()
        };
        for (node, _) in &waiting {
            self.send_ahead(*node);
        }
        self.send_gathered();
        let mut outcome = Ok(());
        for (_, creation) in waiting {
            let told = self.until_told(creation).await;
            outcome = outcome.and(told);
            if told == Err(FsError::TimedOut) {
                break;
            }
        }
        outcome
    }
}

/// What the kernel may keep of a file, and the server may say otherwise: mode, owner and group,
/// which last when it writes, and size and blocks.
fn kept_by_the_kernel(known: &Node) -> ((u16, u32, u32), (u64, u64)) {
    let Attributes {
        mode,
        uid,
        gid,
        size,
        blocks,
        ..
    } = known.attributes;
    ((mode, uid, gid), (size, blocks))
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
        protected: false,
    }
}
