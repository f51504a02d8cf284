//! A parallel volume at work: its namespace, and what the manager has stores do.
//!
//! Names lie in a file of their own in the data directory, an engine for each volume, or with the
//! other managers ([`super::names`]). Contents lie in the stores of the cluster, where clients read
//! and write them without asking here; the manager says where ([`Parallel::layout`]) and is told
//! when a file has been written.
//!
//! # Cuts
//!
//! A file that becomes shorter is cut at the stores before anybody hears that it is
//! ([`Parallel::settle`]). Somebody else may be writing beyond the new end meanwhile, at the
//! stores, and not have told it here yet: his bytes may be cut off, though his write is to come
//! after the truncation; or they arrive later, where others have written by then, though they were
//! to come before it: those of an append, which was given its place before. So every layout says of
//! which *generation* it is, in the file's record. A cut begins a new one and notes it at the
//! stores, which refuse what comes under an old one from then on, without asking anybody; and
//! whoever tells that he has written under an old one is told to write again. While a cut is under
//! way nobody is told where the file lies ([`Cutting`]): a generation is in use when all stores
//! have it.
//!
//! A generation may also begin without a cut, when somebody has written where an append was given
//! its place: see `meta::namespace`.

use super::names::{Names, NamesPlace};
use super::stores::{Carried, ChoreError, Stores, layout_of};
use super::targets;
use crate::cluster::Cluster;
use crate::data::ParallelRecord;
use crate::storage::SessionTickets;
use base::limits::{LAYOUT_COLUMNS_MAX, LOCK_GRACE_TIME, META_PAGE_ENTRIES_MAX};
use base::{FileSystemStat, FsError, Handle, RequestId, SessionId, StoreId, Timestamp, VolumeId};
use meta::MetaError;
use meta::namespace::{self, Chore, Layout, Namespace, NamespaceError, Redundancy, Turn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use wire::message::{FileColumn, FileLayout};

/// How often chores are looked for if nobody says that there are some: those that failed.
const CHORES_INTERVAL: Duration = Duration::from_secs(5);
/// Groups of files whose cuts are counted together. Of two files of one group, one is not opened
/// for writing for the moment in which the other is cut.
const CUT_GROUPS: usize = 4096;
/// Groups of files of which it is heard together that something was told.
const TOLD_GROUPS: usize = 256;
/// How long whoever waits for appends does so at most until he looks again: others may have told
/// something between his look and his wait.
const TOLD_LOOK_TIME: Duration = Duration::from_millis(20);
/// How long it is known what a request has done whose client is gone, in seconds: a mount sends
/// what it has answered ahead again after an outage of a day, too.
const OUTCOME_SECONDS_MAX: i64 = 2 * 86_400;
/// What block counts of a file system are counted in.
const BLOCK_BYTES: u64 = 4096;

/// Why a parallel volume cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParallelError {
    /// There is nowhere to put contents.
    #[error("this server has no store")]
    NoStore,
    /// There would be somewhere.
    #[error("no store of this server could be opened; `azekura status` says why")]
    NoStoreLeft,
    /// Something of it is to be removed from a store that is missing.
    #[error("{0} of its removed or cut files have something in a store that is not there")]
    Left(u64),
    /// The stripe unit does not fit a store.
    #[error("a stripe unit of {unit} bytes is no multiple of {au}, the allocation unit of a store")]
    Unit { unit: u64, au: u64 },
    /// Contents would end while the file is there.
    #[error("objects of store {0} end by themselves, and files of a volume do not")]
    Lifetime(StoreId),
    /// The namespace says so.
    #[error("the names cannot be read: {0}")]
    Names(#[from] NamespaceError),
    /// The engine says so.
    #[error("the names cannot be read: {0}")]
    Engine(#[from] MetaError),
    /// What was cut in the last run cannot be cut.
    #[error("files cannot be cut at the stores: {0}")]
    Chore(#[from] ChoreError),
}

/// See the module's head.
pub(crate) struct Parallel {
    pub(crate) names: Arc<Namespace>,
    volume: VolumeId,
    /// Files that were laid out for tickets.
    laid_out: AtomicU32,
    place: Names,
    cluster: Arc<Cluster>,
    record: ParallelRecord,
    runtime: Runtime,
    cuts: Cuts,
    /// One at a time does chores.
    working: tokio::sync::Mutex<Waiting>,
    /// Cuts that were not done when they were due, and whose: until they are, nobody is told where
    /// the file lies.
    uncut: Mutex<BTreeMap<u64, u64>>,
    /// New files are laid out over these.
    spread: Mutex<BTreeSet<u16>>,
    /// Cuts that could not be done when they were due.
    late: Mutex<Vec<Cutting>>,
    /// There are chores.
    due: Arc<Notify>,
    /// Something was told of a file of the group that others may have waited for.
    told: Arc<[Notify]>,
    /// Requests since outcomes were last settled.
    unsettled: AtomicU32,
    /// Sessions that ask for nothing again.
    ended: Mutex<Vec<SessionId>>,
}

/// How many cuts of each group are under way.
#[derive(Clone)]
struct Cuts(Arc<[AtomicU32]>);

impl Cuts {
    fn new() -> Self {
        Self((0..CUT_GROUPS).map(|_| AtomicU32::new(0)).collect())
    }

    fn of(&self, handle: &Handle) -> &AtomicU32 {
        &self.0[group(handle, CUT_GROUPS)]
    }
}

/// Which of so many groups a file is in.
fn group(handle: &Handle, count: usize) -> usize {
    let hash = blake3::hash(handle.as_bytes());
    let [a, b, ..] = *hash.as_bytes();
    usize::from(u16::from_le_bytes([a, b])) % count
}

/// A cut that is under way, until this is dropped.
pub(crate) struct Cutting {
    cuts: Cuts,
    handle: Handle,
}

impl Cutting {
    /// Of which file.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Cutting {
    fn drop(&mut self) {
        self.cuts.of(&self.handle).fetch_sub(1, Ordering::AcqRel);
    }
}

/// What has become of chores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Worked {
    /// So many are done.
    done: usize,
    /// So many wait for a store that is missing or a server that is away.
    left: usize,
}

/// Chores that wait for a store that is missing or a server that is away, and are done at the
/// others.
#[derive(Default)]
struct Waiting {
    numbers: BTreeSet<u64>,
    /// Which servers were there, see [`Cluster::arrivals`].
    arrivals: u64,
}

/// Does chores, and notes those that are done.
fn carry_out(names: &Namespace, cluster: &Cluster, chores: &[(u64, Chore)]) -> Carried {
    let stores = Stores {
        cluster,
        identities: names.identities(),
        targets: &names.targets(),
    };
    let carried = stores.carry_out(chores);
    // What is not noted as done is done once more.
    if !carried.done.is_empty()
        && let Err(error) = names.chores_done(&Turn::new(), &carried.done)
    {
        tracing::debug!(%error, "chores are not noted as done");
    }
    carried
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        nanos: now.subsec_nanos(),
    }
}

impl Parallel {
    /// Opens a volume, making its names if there are none. Blocks; not within a task.
    ///
    /// # Errors
    /// [`ParallelError`].
    pub(crate) fn open(
        place: NamesPlace<'_>,
        volume: VolumeId,
        record: ParallelRecord,
        key: [u8; 32],
        cluster: &Arc<Cluster>,
        runtime: &Runtime,
    ) -> Result<Self, ParallelError> {
        runtime.block_on(Self::start(place, volume, record, key, cluster))
    }

    /// Whether files can be laid out so.
    ///
    /// # Errors
    /// [`ParallelError`].
    pub(crate) fn check(record: ParallelRecord, cluster: &Cluster) -> Result<(), ParallelError> {
        targets::check(record, cluster)
    }

    async fn start(
        place: NamesPlace<'_>,
        volume: VolumeId,
        record: ParallelRecord,
        key: [u8; 32],
        cluster: &Arc<Cluster>,
    ) -> Result<Self, ParallelError> {
        let has_others = cluster.summaries().len() > 1;
        if !has_others {
            // With others, those may come later.
            targets::check_one(record, cluster)?;
        }
        let holder = cluster.own().server().to_string();
        let place = Names::open(place, volume, &holder).await?;
        match namespace::make(&*place.engine, volume, (0, 0), now()).await {
            Ok(()) | Err(NamespaceError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let options = place.options(volume, key);
        let names = Namespace::open(place.engine.clone(), place.seat.clone(), options).await?;
        names.set_rich(record.rich);
        let spread = targets::spread(&names, record, cluster).await?;
        if spread.is_empty() {
            return Err(ParallelError::NoStore);
        }
        let this = Self {
            names: Arc::new(names),
            volume,
            laid_out: AtomicU32::new(0),
            place,
            cluster: cluster.clone(),
            record,
            runtime: Runtime::current(),
            cuts: Cuts::new(),
            working: tokio::sync::Mutex::default(),
            uncut: Mutex::default(),
            spread: Mutex::new(spread),
            late: Mutex::default(),
            due: Arc::default(),
            told: (0..TOLD_GROUPS).map(|_| Notify::new()).collect(),
            unsettled: AtomicU32::new(0),
            ended: Mutex::default(),
        };
        // Before anybody opens a file: what is written from now on is not to be cut.
        this.work(true).await?;
        Ok(this)
    }

    /// Has new files laid out over the stores that are there now.
    async fn spread(&self) {
        match targets::spread(&self.names, self.record, &self.cluster).await {
            Ok(spread) => {
                let mut known = self.spread.lock().unwrap_or_else(PoisonError::into_inner);
                if *known != spread {
                    let stores = spread.len();
                    tracing::info!(volume = %self.volume, stores, "files are laid out anew");
                    *known = spread;
                }
            }
            Err(error) => tracing::warn!(%error, "a store is not one of the volume yet"),
        }
    }

    /// Ends in order: what was changed is durable. Blocks; not within a task.
    pub(crate) fn close(&self) {
        self.runtime.block_on(async {
            self.names.close().await;
            self.place.close().await;
        });
    }

    /// Removes the names of a volume that was closed. Blocks; not within a task.
    ///
    /// # Errors
    /// The system's, or the engine's.
    pub(crate) fn remove_names(&self) -> Result<(), NamespaceError> {
        self.runtime.block_on(self.place.remove(self.volume))
    }

    /// Whether nothing is in it but the top directory, and nothing is left to do at stores. Blocks;
    /// not within a task.
    ///
    /// # Errors
    /// [`ParallelError`].
    pub(crate) fn is_empty(&self) -> Result<bool, ParallelError> {
        self.runtime.block_on(async {
            self.names.sync_all().await?;
            let worked = self.work(false).await?;
            let stat = self.names.statfs();
            match (stat.files - stat.files_free <= 1, worked.left) {
                (true, left) if left > 0 => Err(ParallelError::Left(left as u64)),
                (is_empty, _) => Ok(is_empty),
            }
        })
    }

    /// Where tasks for it run.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Space is that of the stores, inodes are those of the namespace. What is available is what
    /// somebody without a ticket can have now: of what is free, others may have reserved a part.
    pub(super) fn statfs(&self) -> FileSystemStat {
        let space = targets::space(&self.names, &self.cluster);
        FileSystemStat {
            block_size: BLOCK_BYTES as u32,
            blocks: space.all / BLOCK_BYTES,
            blocks_free: space.free / BLOCK_BYTES,
            blocks_available: space.open / BLOCK_BYTES,
            ..self.names.statfs()
        }
    }

    /// Where the contents of a file lie.
    ///
    /// # Errors
    /// [`FsError::WouldBlock`] while it is being cut; [`FsError::NotSupported`] for a layout that
    /// this version cannot use; [`FsError::Io`] if one of its stores is not there.
    pub(crate) fn layout(&self, turn: &Turn, handle: &Handle) -> Result<FileLayout, FsError> {
        let layout = self.names.layout_of(turn, handle)?;
        self.check_stores(&layout)?;
        // In this order: a cut is under way before there is a new generation.
        let is_cut = self.cuts.of(handle).load(Ordering::Acquire) > 0;
        if is_cut || self.is_uncut(layout.object) {
            return Err(FsError::WouldBlock);
        }
        if layout.redundancy != Redundancy::None || layout.columns.0.is_empty() {
            return Err(FsError::NotSupported);
        }
        let targets = self.names.targets();
        let columns = (0..).zip(layout.columns.0.iter()).map(|(column, number)| {
            let target = targets.get(number).ok_or(FsError::Io)?;
            Ok(FileColumn {
                server: target.server,
                store: target.store,
                object: self.names.identities().object(&layout, column),
            })
        });
        Ok(FileLayout {
            unit_log2: layout.unit_log2,
            generation: layout.generation,
            columns: columns.collect::<Result<_, FsError>>()?,
        })
    }

    /// Whether a file's contents can be had, and may be changed: whether all of its stores are
    /// there. Without one of them it is neither read nor written, not even at the others: what is
    /// missing is no hole, and a cut that waits for the store would take away what was written
    /// since.
    ///
    /// # Errors
    /// [`FsError::Io`] if not.
    pub(crate) fn check_reach(&self, turn: &Turn, handle: &Handle) -> Result<(), FsError> {
        self.check_stores(&self.names.layout_of(turn, handle)?)
    }

    fn check_stores(&self, layout: &namespace::Layout) -> Result<(), FsError> {
        let targets = self.names.targets();
        let stores = Stores {
            cluster: &self.cluster,
            identities: self.names.identities(),
            targets: &targets,
        };
        match stores.lacks(layout) {
            true => Err(FsError::Io),
            false => Ok(()),
        }
    }

    /// How a file is laid out that is made under tickets: over the stores of which they have a
    /// share, so that all of it is at the rate that was reserved. None without such tickets.
    pub(crate) fn layout_under(&self, tickets: &SessionTickets) -> Option<Layout> {
        let stores = tickets.stores(self.cluster.own(), self.volume);
        if stores.is_empty() {
            return None;
        }
        let targets = self.names.targets();
        let mut columns: Vec<u16> = targets
            .iter()
            .filter(|(_, target)| stores.contains(&target.store))
            .take(LAYOUT_COLUMNS_MAX)
            .map(|(number, _)| *number)
            .collect();
        // Files begin at one after the other: many small ones are not all in the first.
        let first = self.laid_out.fetch_add(1, Ordering::Relaxed) as usize;
        let count = columns.len().max(1);
        columns.rotate_left(first % count);
        let layout = Layout {
            object: 0,
            generation: 0,
            unit_log2: self.record.unit_log2,
            redundancy: Redundancy::None,
            columns: columns.into_iter().collect(),
        };
        (layout.width() > 0).then_some(layout)
    }

    /// Whether a file can be cut now, as far as that is known: whether the servers that have
    /// something of it are there. What is not cut is not to be seen again when the file becomes
    /// longer, by nobody; so a cut that would have to wait is refused.
    ///
    /// # Errors
    /// [`FsError::Io`] if not.
    pub(crate) fn check_cut(&self, turn: &Turn, handle: &Handle) -> Result<(), FsError> {
        let targets = self.names.targets();
        let stores = Stores {
            cluster: &self.cluster,
            identities: self.names.identities(),
            targets: &targets,
        };
        match self.names.layout_of(turn, handle) {
            Ok(layout) if stores.is_away(&layout) => Err(FsError::Io),
            // Whatever is wrong with the handle, the change itself says it.
            _ => Ok(()),
        }
    }

    fn uncut(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, u64>> {
        self.uncut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something of a file that was cut off is still there.
    fn is_uncut(&self, object: u64) -> bool {
        let uncut = self.uncut();
        !uncut.is_empty() && uncut.values().any(|other| *other == object)
    }

    /// A new generation of a file's layout may begin; to be kept until [`Self::settle`].
    pub(crate) fn begin_cut(&self, handle: &Handle) -> Cutting {
        self.cuts.of(handle).fetch_add(1, Ordering::AcqRel);
        Cutting {
            cuts: self.cuts.clone(),
            handle: handle.clone(),
        }
    }

    /// Waits until everything that a request's answers depend on is durable, and cut at the stores.
    ///
    /// # Errors
    /// The answers must not be given.
    pub(crate) async fn settle(
        &self,
        turn: &Turn,
        cuts: Vec<Cutting>,
    ) -> Result<(), ParallelError> {
        let is_durable = self.names.wait(turn).await;
        if cuts.is_empty() {
            return Ok(is_durable?);
        }
        let done = match is_durable {
            Ok(()) => self.work(true).await.map(drop),
            Err(error) => Err(error.into()),
        };
        if done.is_err() {
            self.cut_later(cuts);
            return done;
        }
        // What others have cut does not concern whoever asks.
        let layouts = cuts
            .iter()
            .map(|cut| self.names.layout_of(turn, &cut.handle));
        match layouts.flatten().any(|layout| self.is_uncut(layout.object)) {
            true => Err(ChoreError::Away.into()),
            false => Ok(()),
        }
    }

    /// The files are not written until the background work has cut them.
    pub(crate) fn cut_later(&self, cuts: Vec<Cutting>) {
        if !cuts.is_empty() {
            self.late().extend(cuts);
            self.due.notify_one();
        }
    }

    /// As [`Self::cut_later`], of a request that goes on; which files it has to wait for in the
    /// end, by [`Self::begin_cut`].
    pub(crate) fn cut_meanwhile(&self, cuts: Vec<Cutting>) -> Vec<Handle> {
        let handles = cuts.iter().map(|cut| cut.handle.clone()).collect();
        self.cut_later(cuts);
        handles
    }

    /// Does everything that is to be done, what was put off included.
    async fn catch_up(&self) -> Result<Worked, ParallelError> {
        let late = std::mem::take(&mut *self.late());
        let done = async {
            if !late.is_empty() {
                // What was cut off is among the chores when it is durable.
                self.names.sync_all().await?;
            }
            self.work(false).await
        };
        let done = done.await;
        if done.is_err() {
            self.late().extend(late);
        }
        done
    }

    /// There may be chores, once the changes of a request are durable.
    pub(crate) fn note_chores(&self) {
        self.due.notify_one();
    }

    /// A client has told of what it has written to a file.
    pub(crate) fn note_told(&self, handle: &Handle) {
        self.told[group(handle, TOLD_GROUPS)].notify_waiters();
    }

    /// Goes on with something when more has been told of a file, or it is time to look. Does not
    /// block.
    pub(crate) fn when_told(&self, handle: &Handle, go_on: impl FnOnce() + Send + 'static) {
        let (told, group) = (self.told.clone(), group(handle, TOLD_GROUPS));
        self.runtime.spawn(async move {
            // Either way there is another look.
            let _ = tokio::time::timeout(TOLD_LOOK_TIME, told[group].notified()).await;
            go_on();
        });
    }

    fn late(&self) -> std::sync::MutexGuard<'_, Vec<Cutting>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what stores still have to do; with `cuts_only`, what somebody waits for. What stores
    /// have to do that are missing is left for the run in which they are back, and until then
    /// nobody reads or writes files that lie there ([`Self::check_reach`]); what is to be done at
    /// servers that are away, until they come back.
    async fn work(&self, cuts_only: bool) -> Result<Worked, ParallelError> {
        let mut waiting = self.working.lock().await;
        let arrivals = self.cluster.arrivals();
        if std::mem::replace(&mut waiting.arrivals, arrivals) != arrivals {
            waiting.numbers.clear();
        }
        let (mut after, mut done) = (0, 0);
        // Files with cuts that are still to be done, which come before later ones.
        let mut uncut = BTreeSet::new();
        loop {
            let mut page = self.names.chores(after, META_PAGE_ENTRIES_MAX).await?;
            let Some((last, _)) = page.last() else {
                let left = waiting.numbers.len();
                return Ok(Worked { done, left });
            };
            after = *last;
            page.retain(|(number, chore)| {
                let is_cut = matches!(chore, Chore::Cut { .. });
                let object = layout_of(chore).object;
                if waiting.numbers.contains(number) {
                    uncut.insert(object);
                    return false;
                }
                let is_first = !is_cut || !uncut.contains(&object);
                is_first && (!cuts_only || is_cut)
            });
            if page.is_empty() {
                continue;
            }
            let (names, cluster) = (self.names.clone(), self.cluster.clone());
            let working = tokio::task::spawn_blocking(move || {
                let carried = carry_out(&names, &cluster, &page);
                (carried, page)
            });
            let (carried, page) = working
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
            self.note_cuts(&carried, &page);
            let is_undone = |number| !carried.done.contains(number);
            let undone = page.iter().filter(|(number, _)| is_undone(number));
            uncut.extend(undone.map(|(_, chore)| layout_of(chore).object));
            done += carried.done.len();
            if let Some(error) = carried.error {
                tracing::warn!(volume = %self.volume, %error, "a store has not done its part");
            }
            waiting.numbers.extend(carried.left);
        }
    }

    /// Notes which cuts are still to be done. Files in stores of this server that are missing are
    /// out of reach anyway.
    fn note_cuts(&self, carried: &Carried, page: &[(u64, Chore)]) {
        let targets = self.names.targets();
        let stores = Stores {
            cluster: &self.cluster,
            identities: self.names.identities(),
            targets: &targets,
        };
        let mut uncut = self.uncut();
        for number in &carried.done {
            uncut.remove(number);
        }
        for (number, chore) in page {
            let layout = layout_of(chore);
            let is_due = carried.failed.contains(number)
                || (carried.left.contains(number) && !stores.lacks(layout));
            if is_due && matches!(chore, Chore::Cut { .. }) {
                uncut.insert(*number, layout.object);
            }
        }
    }

    /// The client has answers of a session's requests. Now and then, because all outcomes are
    /// looked through; may block.
    pub(crate) fn settle_requests(
        &self,
        session: SessionId,
        is_settled: impl Fn(RequestId) -> bool,
    ) {
        const EVERY: u32 = 256;
        if !self
            .unsettled
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(EVERY)
        {
            return;
        }
        if let Err(error) = self.names.settle(session, is_settled) {
            tracing::debug!(%error, "outcomes of requests stay for now");
        }
    }
}

impl Parallel {
    /// A session has ended and will not come again. Does not block.
    pub(crate) fn note_goodbye(&self, session: SessionId) {
        self.ended().push(session);
        self.due.notify_one();
    }

    fn ended(&self) -> std::sync::MutexGuard<'_, Vec<SessionId>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what requests have done that nobody asks for again.
    async fn forget_outcomes(&self) {
        let ended = std::mem::take(&mut *self.ended());
        let names = self.names.clone();
        let mut before = now();
        before.seconds -= OUTCOME_SECONDS_MAX;
        let forgetting = tokio::task::spawn_blocking(move || {
            let ended = ended.into_iter();
            let settled = ended.map(|session| names.settle(session, |_| true));
            let settled: Result<(), FsError> = settled.collect();
            settled.and(names.forget_requests_before(before))
        });
        if let Ok(Err(error)) = forgetting.await {
            tracing::debug!(%error, "outcomes of requests stay for now");
        }
    }
}

/// Begins to do the chores of a volume, for as long as it lives.
pub(crate) fn start(task: Arc<crate::background::Task>, volume: &Arc<crate::volume::Volume>) {
    let Some(parallel) = volume.tree.parallel() else {
        return;
    };
    let weak = Arc::downgrade(volume);
    parallel.runtime().spawn(run(task, weak));
}

async fn run(task: Arc<crate::background::Task>, volume: Weak<crate::volume::Volume>) {
    // Whoever had a file open without a name has said so by then.
    let mut collect_at = Some(tokio::time::Instant::now() + 2 * LOCK_GRACE_TIME);
    loop {
        let Some(volume) = volume.upgrade() else {
            return;
        };
        let Some(parallel) = volume.tree.parallel() else {
            return;
        };
        if collect_at.is_some_and(|at| tokio::time::Instant::now() >= at) {
            collect_at = None;
            if let Err(error) = parallel.names.collect_orphans().await {
                tracing::warn!(volume = volume.name, %error, "files without a name stay for now");
                collect_at = Some(tokio::time::Instant::now() + LOCK_GRACE_TIME);
            }
        }
        let mut arrivals = parallel.cluster.when_arrived();
        parallel.forget_outcomes().await;
        parallel.spread().await;
        match parallel.catch_up().await {
            Ok(worked) => {
                task.add(worked.done as u64);
                task.set_state(match worked.left {
                    0 => "nothing to do".to_owned(),
                    left => format!("{left} wait for a store that is not there"),
                });
            }
            Err(error) => {
                tracing::warn!(volume = volume.name, %error, "stores have not done their part");
                task.set_state(error.to_string());
            }
        }
        // The volume is not kept while nothing is to be done.
        let due = parallel.due.clone();
        drop(volume);
        tokio::select! {
            _ = tokio::time::timeout(CHORES_INTERVAL, due.notified()) => {}
            // New files can lie there, and what it has to do can be done.
            _ = arrivals.changed() => {}
        }
    }
}
