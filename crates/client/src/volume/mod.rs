//! A volume as a mount or a program uses it.
//!
//! [`Volume`] answers file operations, from what is known under leases where possible and from the
//! server where not. All operations are given the caller's identity, for which the server judges.
//! Answers out of the cache are given to any caller: the kernel has judged its search and open
//! permissions by the leased attributes before it asks (see `docs/semantics.md`).
//!
//! Locks: the node table, the memory budget and each file's state have a lock of their own, held
//! for state changes and never over an await. Order where two are needed: table, then file, then
//! budget, then the transport's.
//!
//! | file | operations |
//! |---|---|
//! | `names` | look-up |
//! | `listing` | listing, what is listed ahead |
//! | `attributes` | attributes, extended attributes, links, file system figures |
//! | `open` | open, close, small files ahead |
//! | `read` | reading: demand, prediction, cancellation |
//! | `overshoot` | what the kernel reads past the end of a run |
//! | `write` | write-behind |
//! | `commit` | what makes it durable; replay |
//! | `sync` | the same of all files at once |
//! | `again` | what storage servers have lost |
//! | `behind` | commits that are sent right behind the writes |
//! | `striped` | contents of parallel volumes, at their stores |
//! | `booked` | tickets for an export |
//! | `renewed` | the next tickets, of exports and of parallel volumes |
//! | `space` | allocation, holes, copies within the server |
//! | `change` | creating, removing, renaming |
//! | `freeing` | space that is about to become free |
//! | `ahead` | creations answered before the server knows |
//! | `gather` | those creations on their way |
//! | `locks` | advisory locks |
//! | `told` | listings on their way into the kernel |
//! | `rights` | volumes with rich ACLs: what a caller may |
//! | `recall` | leases that the server takes back, reconnection |

mod again;
mod ahead;
mod asked;
mod attributes;
mod behind;
mod booked;
mod change;
mod commit;
mod freeing;
mod gather;
mod listing;
mod locks;
mod names;
mod open;
mod opens;
mod overshoot;
mod pages;
mod read;
mod recall;
mod renewed;
mod rights;
mod space;
mod striped;
mod sync;
mod told;
mod write;

pub use ahead::DirectoryTold;
pub use asked::Question;
pub use change::Creation;
pub use listing::{Listing, ListingEntry};
pub use open::OpenFile;
pub use overshoot::Overshoot;
pub use read::Pieces;
pub use readahead::Advice as ReadAdvice;

use crate::cache::{Keeps, Node, NodeId, NodeTable};
use crate::clock::now;
use crate::file::{File, Order};
use crate::pause::Pause;
use crate::transport::{Call, CallError, FileResponse, Transport};
use base::limits::{CLIENT_BUFFER_BYTES_MAX, CLIENT_UNWRITTEN_BYTES_MAX, LEASE_RETURNS_MAX};
use base::{Attributes, FsError, Handle, Name, OpenId, Principal, Time, VolumeId};
use readahead::Budget;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use tokio::sync::{Semaphore, watch};
use wire::message::{Refusal, Step, StepReply, Target};

/// Unit in which memory for written data is counted, so that a count fits a semaphore.
const WRITE_MEMORY_UNIT: u64 = 4096;

/// Who keeps answers of ours and must be told when they stop being true: the kernel, through the
/// mount. None of these may block.
pub trait Invalidate: Send + Sync {
    /// No cached name may be believed without asking again.
    fn names(&self);
    /// The attributes of an inode may have changed; whether the inode is known there.
    fn attributes(&self, node: NodeId) -> bool;
    /// The data of an inode may have changed; whether it will be dropped: not if too much is to be.
    fn data(&self, node: NodeId) -> bool;
    /// As [`Self::data`]; ready when nothing of it is left.
    fn data_now(&self, node: NodeId) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// An inode as the caller of an operation gets it.
#[derive(Clone, Debug)]
pub struct View {
    /// Its name here.
    pub node: NodeId,
    /// Its attributes.
    pub attributes: Attributes,
    /// Whether they may be believed until they are invalidated.
    pub attributes_leased: bool,
    /// Whether the name that led here may be believed until names are invalidated, and also what
    /// the kernel knows of the inode that it never asks for before it judges by it: the owner.
    pub name_leased: bool,
}

impl View {
    /// An inode as it is; `keeps` if the attributes may be believed until they are invalidated,
    /// which must be done from then on.
    fn of(node: NodeId, known: &mut Node, keeps: bool, name_leased: bool) -> Self {
        let keeps = keeps && known.kept.may_keep();
        if keeps {
            known.kept.on_answer(Keeps::All);
        }
        Self {
            node,
            attributes: known.attributes.clone(),
            attributes_leased: keeps,
            name_leased: name_leased && known.is_called_back(),
        }
    }
}

/// What was counted since the volume was attached.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes asked for by readers.
    pub read_bytes: AtomicU64,
    /// Of these, bytes that were here or under way when asked for.
    pub hit_bytes: AtomicU64,
    /// Bytes fetched and dropped unread.
    pub wasted_bytes: AtomicU64,
    /// Bytes written by applications.
    pub written_bytes: AtomicU64,
    /// Look-ups.
    pub lookups: AtomicU64,
    /// Look-ups answered from here.
    pub lookup_hits: AtomicU64,
    /// Recalls obeyed.
    pub recalls: AtomicU64,
    /// Creations answered ahead.
    pub created_ahead: AtomicU64,
    /// Removals answered ahead.
    pub removed_ahead: AtomicU64,
}

/// See the module's head.
pub struct Volume {
    transport: Transport,
    id: VolumeId,
    name: String,
    read_only: bool,
    /// Of a parallel volume.
    stripes: Option<striped::Stripes>,
    /// Whether mode bits do not say all, and only the server knows what a caller may.
    rich: AtomicBool,
    /// Of an export.
    booked: booked::Booked,
    nodes: Mutex<NodeTable>,
    budget: Mutex<Budget>,
    write_memory: Arc<Semaphore>,
    write_memory_units: u64,
    invalidate: OnceLock<Arc<dyn Invalidate>>,
    asked: asked::Asked,
    told_listings: told::ToldListings,
    /// How often the kernel is being told to forget everything.
    forgetting: watch::Sender<usize>,
    next_open: AtomicU64,
    locks: Mutex<locks::HeldLocks>,
    opens: opens::Opens,
    ahead: ahead::Ahead,
    freeing: Arc<freeing::Freeing>,
    /// A commit of everything is due.
    group_commit: AtomicBool,
    recalls_under_way: AtomicUsize,
    lease_returns: AtomicUsize,
    /// Memory that listings hold.
    listings_bytes: Arc<AtomicU64>,
    counters: Counters,
    this: Weak<Self>,
    unheard: sync::Unheard,
}

impl Volume {
    /// Enters the volume `name`.
    ///
    /// # Errors
    /// `NotFound` for an unknown volume, otherwise what the server or the way there says.
    pub async fn attach(transport: Transport, name: &str) -> Result<Arc<Self>, CallError> {
        let response = transport.enter(name).await?;
        let recalls_seen = response.recalls_seen;
        let mut results = response.results.into_iter();
        let StepReply::Attached {
            volume,
            root,
            read_only,
            parallel,
        } = results.next().ok_or(CallError::Protocol)??
        else {
            return Err(CallError::Protocol);
        };
        let stripes = match parallel {
            true => Some(striped::Stripes::open(&transport).await?),
            false => None,
        };
        let (nodes, woken) = NodeTable::new(&root, transport.events());
        let write_memory_units = CLIENT_UNWRITTEN_BYTES_MAX / WRITE_MEMORY_UNIT;
        let this = Arc::new_cyclic(|this| Self {
            transport: transport.clone(),
            id: volume,
            name: name.to_owned(),
            read_only,
            stripes,
            rich: AtomicBool::new(false),
            booked: booked::Booked::default(),
            nodes: Mutex::new(nodes),
            budget: Mutex::new(Budget::new(CLIENT_BUFFER_BYTES_MAX)),
            write_memory: Arc::new(Semaphore::new(write_memory_units as usize)),
            write_memory_units,
            invalidate: OnceLock::new(),
            asked: asked::Asked::default(),
            told_listings: told::ToldListings::default(),
            forgetting: watch::Sender::default(),
            next_open: AtomicU64::new(1),
            locks: Mutex::default(),
            opens: opens::Opens::default(),
            ahead: ahead::Ahead::default(),
            freeing: Arc::default(),
            group_commit: AtomicBool::new(false),
            unheard: sync::Unheard::default(),
            recalls_under_way: AtomicUsize::new(0),
            lease_returns: AtomicUsize::new(0),
            listings_bytes: Arc::default(),
            counters: Counters::default(),
            this: this.clone(),
        });
        // Whoever may enter need not be able to list.
        if let Some(Ok(listing)) = results.next() {
            this.take_first_listing(listing, recalls_seen);
        }
        transport.set_listener(Arc::new(recall::Ear::new(&this)));
        tokio::spawn(pages::look_after(Arc::downgrade(&this), woken));
        Ok(this)
    }

    /// Sets who is told of invalid answers; once, before the first operation.
    pub fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        let _ = self.invalidate.set(invalidate);
    }

    /// The session below.
    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the server refuses every change of it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of read-ahead held or under way.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.budget().held_bytes()
    }

    /// Bytes written here that are not durable at the server, but those of files that are gone.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        let files = self.files_that_last();
        let bytes = |(_, file): &(NodeId, Arc<File>)| file.lock().written.bytes();
        files.iter().map(bytes).sum()
    }

    /// Whether anything would be lost, or an error stay untold, if the volume ended now.
    #[must_use]
    pub fn has_unwritten(&self) -> bool {
        let is_due = |(_, file): &(NodeId, Arc<File>)| file.lock().written.is_due();
        self.has_ahead()
            || self.has_refused()
            || self.unheard.is_some()
            || self.files_that_last().iter().any(is_due)
    }

    /// Nodes known and leases held.
    #[must_use]
    pub fn cache_size(&self) -> (usize, usize) {
        let nodes = self.nodes();
        (nodes.node_count(), nodes.lease_count())
    }

    fn files(&self) -> Vec<Arc<File>> {
        let files = self.files_by_node().into_iter();
        files.map(|(_, file)| file).collect()
    }

    /// Files but those that are gone for everybody: what became of their data concerns nobody.
    fn files_that_last(&self) -> Vec<(NodeId, Arc<File>)> {
        let nodes = self.nodes();
        let with_file = |id| {
            let node = nodes.get(id).filter(|node| node.lasts())?;
            Some((id, node.file.clone()?))
        };
        nodes.ids().filter_map(with_file).collect()
    }

    fn files_by_node(&self) -> Vec<(NodeId, Arc<File>)> {
        let nodes = self.nodes();
        let with_file = |id| Some((id, nodes.get(id)?.file.clone()?));
        nodes.ids().filter_map(with_file).collect()
    }

    fn nodes(&self) -> MutexGuard<'_, NodeTable> {
        self.nodes.lock().expect("no panic happens under this lock")
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget
            .lock()
            .expect("no panic happens under this lock")
    }

    fn arc(&self) -> Arc<Self> {
        self.this
            .upgrade()
            .expect("a method runs on a living volume")
    }

    fn fresh_open(&self) -> OpenId {
        OpenId(self.next_open.fetch_add(1, Ordering::Relaxed))
    }

    /// The file of a node, made if need be.
    fn file(&self, node: NodeId) -> Result<Arc<File>, FsError> {
        let mut nodes = self.nodes();
        let node = nodes.get_mut(node).ok_or(FsError::Stale)?;
        if !crate::cache::has_data(node.attributes.kind) {
            return Err(FsError::Invalid);
        }
        let order = match &self.stripes {
            Some(_) => Order::NewestFirst,
            None => Order::OldestFirst,
        };
        let file = node.file.get_or_insert_with(|| File::new(order));
        Ok(Arc::clone(file))
    }

    /// The server's name for a node; waits for a file created ahead.
    async fn handle(&self, node: NodeId) -> Result<Handle, FsError> {
        let known = self.nodes().get(node).ok_or(FsError::Stale)?.handle.clone();
        match known {
            Some(handle) => Ok(handle),
            None => self.settle(node).await,
        }
    }

    async fn target(&self, node: NodeId) -> Result<Target, FsError> {
        Ok(Target::Handle(self.handle(node).await?))
    }

    /// The directory for a step that says something about one of its names.
    async fn target_with(&self, parent: NodeId, name: &Name) -> Result<Target, FsError> {
        self.settle_name(parent, name).await;
        self.target(parent).await
    }

    /// Carries out steps; an error of any of them is the outcome.
    async fn steps(
        &self,
        who: &Principal,
        steps: Vec<Step>,
        call: Call,
    ) -> Result<(Vec<StepReply>, FileResponse), FsError> {
        let count = steps.len();
        let ask = |since| {
            let call = call.clone().since(since);
            let pending = self.transport.submit_steps(who, steps.clone(), call);
            pending.files()
        };
        Self::replied(count, self.patiently(ask).await)
    }

    /// Asks once more, for as long as a request may take since it was asked first, if nothing was
    /// done for others to be answered first. After that there is no answer.
    pub(super) async fn patiently<F>(
        &self,
        ask: impl Fn(Time) -> F,
    ) -> Result<FileResponse, CallError>
    where
        F: Future<Output = Result<FileResponse, CallError>>,
    {
        let (begun, mut pause) = (now(), Pause::put_off());
        loop {
            match ask(begun).await {
                Err(CallError::Refused(Refusal::Overloaded)) => {}
                outcome => return outcome,
            }
            if now().since(begun) + pause.next() >= self.transport.request_time_max() {
                return Err(CallError::TimedOut);
            }
            pause.wait().await;
        }
    }

    /// What steps were answered; an error of any of them is the outcome.
    async fn replies(
        count: usize,
        pending: crate::transport::Pending,
    ) -> Result<(Vec<StepReply>, FileResponse), FsError> {
        Self::replied(count, pending.files().await)
    }

    fn replied(
        count: usize,
        response: Result<FileResponse, CallError>,
    ) -> Result<(Vec<StepReply>, FileResponse), FsError> {
        let mut response = response.map_err(CallError::to_fs_error)?;
        let mut replies = Vec::with_capacity(count);
        for result in std::mem::take(&mut response.results) {
            replies.push(result?);
        }
        if replies.len() < count {
            return Err(FsError::Io);
        }
        Ok((replies, response))
    }

    /// Carries out one step.
    async fn step(
        &self,
        who: &Principal,
        step: Step,
    ) -> Result<(StepReply, FileResponse), FsError> {
        self.step_by(who, step, Call::metadata()).await
    }

    async fn step_by(
        &self,
        who: &Principal,
        step: Step,
        call: Call,
    ) -> Result<(StepReply, FileResponse), FsError> {
        let (mut replies, response) = self.steps(who, vec![step], call).await?;
        Ok((replies.pop().expect("as many as steps"), response))
    }

    /// What the table says of a node.
    fn view(&self, node: NodeId) -> Result<View, FsError> {
        let hold = self.transport.leases_hold();
        let mut nodes = self.nodes();
        let known = nodes.get_mut(node).ok_or(FsError::Stale)?;
        let keeps = hold && known.attributes_last();
        Ok(View::of(node, known, keeps, false))
    }

    /// The inode number that applications see.
    #[must_use]
    pub fn inode(&self, node: NodeId) -> Option<u64> {
        self.nodes().get(node).map(|node| node.attributes.inode)
    }

    /// The inode number of the directory in which a node was seen last.
    #[must_use]
    pub fn parent_inode(&self, node: NodeId) -> Option<u64> {
        let nodes = self.nodes();
        let parent = nodes.get(node)?.parent?;
        nodes.get(parent).map(|node| node.attributes.inode)
    }

    /// A node is held as if the kernel had been told of it.
    pub fn reference(&self, node: NodeId) {
        self.nodes().reference(node);
    }

    /// The kernel is about to be told of a node: how it is now. From here on a recall finds that
    /// the kernel may know the node, and tells it. One that came since `view` was made did not, so
    /// what might have been kept then is looked at again.
    #[must_use]
    pub fn introduce(&self, view: &View) -> View {
        let hold = self.transport.leases_hold();
        let mut nodes = self.nodes();
        nodes.reference(view.node);
        match nodes.get_mut(view.node) {
            Some(known) if view.attributes_leased => {
                let keeps = known.handle.is_none() || (hold && known.attributes_last());
                View::of(view.node, known, keeps, view.name_leased)
            }
            known => View {
                attributes_leased: false,
                name_leased: view.name_leased && known.is_some_and(|known| known.is_called_back()),
                ..view.clone()
            },
        }
    }

    /// The kernel forgets references.
    pub fn forget(&self, forgotten: &[(NodeId, u64)]) {
        let mut nodes = self.nodes();
        for (node, count) in forgotten {
            nodes.unreference(*node, *count);
        }
        let returned = nodes.evict();
        drop(nodes);
        self.return_leases(returned);
    }

    /// Gives leases back that are not used any more. The server need not take them as fast as they
    /// come; it loses nothing if it never hears of some.
    fn return_leases(&self, mut handles: Vec<Handle>) {
        while !handles.is_empty() && self.lease_returns.load(Ordering::Relaxed) < LEASE_RETURNS_MAX
        {
            let rest = handles.split_off(handles.len().min(4096));
            let request = wire::message::Request::ReturnLeases(handles.clone());
            let pending = self.transport.submit(&request, Call::metadata());
            self.lease_returns.fetch_add(1, Ordering::Relaxed);
            let this = self.arc();
            tokio::spawn(async move {
                // Whatever came of it: the server may have taken them.
                let _ = pending.response().await;
                let mut nodes = this.nodes();
                let sequence = this.transport.next_recall();
                nodes.end_return(&handles, Some(sequence));
                drop(nodes);
                this.lease_returns.fetch_sub(1, Ordering::Relaxed);
            });
            handles = rest;
        }
        if !handles.is_empty() {
            self.nodes().end_return(&handles, None);
        }
    }

    fn count_hit(&self, extent_bytes: u64, hit_bytes: u64) {
        self.counters
            .read_bytes
            .fetch_add(extent_bytes, Ordering::Relaxed);
        self.counters
            .hit_bytes
            .fetch_add(hit_bytes, Ordering::Relaxed);
    }

    /// Ends the session: writes everything back, within `time_max`, and closes.
    ///
    /// # Errors
    /// What could not be written.
    pub async fn detach(&self, time_max: std::time::Duration) -> Result<(), FsError> {
        let begun = now();
        let synced = tokio::time::timeout(time_max, self.sync(self.transport.own())).await;
        let left = time_max.saturating_sub(now().since(begun));
        let left = left.min(std::time::Duration::from_secs(2));
        if let Some(stripes) = &self.stripes {
            stripes.close(left).await;
        }
        self.transport.close(left).await;
        synced.unwrap_or(Err(FsError::TimedOut))
    }
}
