//! Opening a namespace, finding inodes by handle and name, and what belongs to it as a whole.

use super::cache::Cache;
use super::commit::Committer;
use super::cookie::Cookies;
use super::core::{Core, Intent};
use super::error::NamespaceError;
use super::identity::Identities;
use super::layout::{Layout, Striping, Target};
use super::pipe::{Pipe, Status};
use super::record::{Inode, ROOT, encode};
use super::rich::RichRules;
use super::seal::Seal;
use super::turn::Turn;
use super::volume::{find, free_target, load, note_version, random, targets, time_of_day};
use super::work::{Rules, State, Stop, Work};
use crate::{Condition, Engine, Leadership, MetaError, Transaction};
use base::limits::{
    LINK_TARGET_BYTES_MAX, NAME_BYTES_MAX, NAMESPACE_CACHE_ENTRIES_MAX, NAMESPACE_IN_FLIGHT_MAX,
};
use base::{
    FileSystemStat, FsError, Handle, Name, Node, Principal, QuickMap, RequestId, SessionId,
    Timestamp, VolumeId,
};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinHandle;

/// What a namespace is opened with.
pub struct NamespaceOptions {
    /// The volume.
    pub volume: VolumeId,
    /// The manager's secret for handles; the same for all managers of the volume.
    pub handle_key: [u8; 32],
    /// Transactions under way at once: one for an engine that does not keep their order.
    pub in_flight_max: usize,
    /// Most inodes and names in memory.
    pub cache_entries_max: usize,
    /// The time of day; the machine's, if there is none.
    pub clock: Option<Box<dyn Fn() -> Timestamp + Send + Sync>>,
}

impl NamespaceOptions {
    /// For an embedded engine, with the machine's clock.
    #[must_use]
    pub fn new(volume: VolumeId, handle_key: [u8; 32]) -> Self {
        Self {
            volume,
            handle_key,
            in_flight_max: NAMESPACE_IN_FLIGHT_MAX,
            cache_entries_max: NAMESPACE_CACHE_ENTRIES_MAX,
            clock: None,
        }
    }
}

/// The files of one parallel volume, as the one manager that may change them sees them. See the
/// module's head.
///
/// Every method may be called from any number of threads at once, none of them a task of the
/// runtime. Common errors: [`FsError::Stale`] for a handle that is not of this volume or whose
/// inode is gone; [`FsError::WouldBlock`] once this manager has lost its seat;
/// [`FsError::TimedOut`] if the engine does not answer.
pub struct Namespace {
    pub(super) core: Arc<Core>,
    pub(super) identities: Identities,
    root: Handle,
    striping: RwLock<Arc<Striping>>,
    targets: RwLock<Arc<BTreeMap<u16, Target>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Namespace {
    /// Opens the namespace of a volume. Whoever opens it must have the seat; nobody else may change
    /// the volume under another.
    ///
    /// # Errors
    /// [`NamespaceError::Unknown`] if it was never made; what the engine says.
    pub async fn open(
        engine: Arc<dyn Engine>,
        leadership: Arc<Leadership>,
        options: NamespaceOptions,
    ) -> Result<Self, NamespaceError> {
        let (keys, constants) = find(&*engine, options.volume).await?;
        let constants = note_version(&*engine, &leadership, (keys, constants)).await?;
        let loaded = load(&*engine, keys).await?;
        let targets = targets(&*engine, keys).await?;
        let identities = Identities::new(options.volume, &constants.hash_key);
        let rules = Rules {
            keys,
            cookies: Cookies(constants.hash_key),
            seal: Seal::new(&options.handle_key, options.volume),
            generation: u32::from_le_bytes(random()?),
            clock: options.clock.unwrap_or_else(|| Box::new(time_of_day)),
            rich: RichRules::default(),
        };
        let state = State {
            cache: Cache::new(options.cache_entries_max),
            pipe: Pipe::new(loaded.batch),
            head: loaded.head,
            outcomes: loaded.outcomes,
            edits: loaded.edits,
            holders: QuickMap::default(),
            abandoned: Vec::new(),
        };
        let in_flight_max = options.in_flight_max.max(1);
        let runtime = Runtime::current();
        let core = Core::new(engine, leadership, rules, in_flight_max, state, runtime);
        let core = Arc::new(core);
        let committer = Committer::new(Arc::clone(&core), loaded.batch);
        let tasks = vec![
            tokio::spawn(committer.run()),
            tokio::spawn(super::hold::collect(Arc::clone(&core))),
        ];
        let turn = Turn::new();
        let top = core.run_in_task(&turn, |work| work.inode(ROOT)).await;
        let top = top.map_err(|_| MetaError::Damaged("there is no top directory".to_owned()))?;
        Ok(Self {
            root: core.rules.seal.close(&top),
            core,
            identities,
            striping: RwLock::default(),
            targets: RwLock::new(Arc::new(targets)),
            tasks: Mutex::new(tasks),
        })
    }

    /// Makes what was changed durable, and ends. Nothing may be asked of it afterwards.
    pub async fn close(&self) {
        self.stop();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            // A panic in it was reported by itself.
            let _ = task.await;
        }
    }

    fn stop(&self) {
        self.core.is_closing.store(true, Ordering::Release);
        self.core.work_to_do.notify_one();
        self.core.abandoned.notify_one();
    }

    /// The handle of the top directory.
    #[must_use]
    pub fn root(&self) -> &Handle {
        &self.root
    }

    /// Why no changes are taken any more, if so.
    #[must_use]
    pub fn failure(&self) -> Option<MetaError> {
        match &self.core.lock().pipe.status {
            Status::Over(why) => Some(why.clone()),
            Status::Running | Status::Reloading => None,
        }
    }

    /// Waits until everything that the answers of a turn depend on is durable; before that nobody
    /// may be told them.
    ///
    /// # Errors
    /// [`NamespaceError::Lost`]: the answers are not true; [`NamespaceError::TimedOut`].
    pub async fn wait(&self, turn: &Turn) -> Result<(), NamespaceError> {
        self.core.wait(turn).await
    }

    /// As [`Self::wait`], for a thread.
    ///
    /// # Errors
    /// The same.
    pub fn wait_here(&self, turn: &Turn) -> Result<(), NamespaceError> {
        self.core.runtime().block_on(self.core.wait(turn))
    }

    /// Whether there is nothing to wait for.
    #[must_use]
    pub fn is_durable(&self, turn: &Turn) -> bool {
        turn.seen().is_none_or(|(first, last)| {
            let outcome = self.core.lock().pipe.outcome(first, last);
            matches!(outcome, Some(Ok(())))
        })
    }

    /// Whether the change that a turn has begun was made by an earlier copy of its request.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn is_done(&self, turn: &Turn) -> Result<bool, FsError> {
        self.look(turn, |work| Ok(work.done_before().is_some()))
    }

    /// Waits for every change that there is, of all callers.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub async fn sync_all(&self) -> Result<(), NamespaceError> {
        let turn = Turn::new();
        {
            let state = self.core.lock();
            let (durable, newest) = (state.pipe.durable(), state.pipe.newest());
            if newest > durable {
                turn.note(newest);
            }
        }
        self.core.wait(&turn).await
    }

    pub(super) fn look<T>(
        &self,
        turn: &Turn,
        operation: impl FnMut(&mut Work<'_>) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        self.core.run(turn, Intent::Look, operation)
    }

    pub(super) fn change<T>(
        &self,
        turn: &Turn,
        operation: impl FnMut(&mut Work<'_>) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        self.core.run(turn, Intent::Change, operation)
    }

    /// Finds `name` in the directory `parent`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::AccessDenied`] if the caller
    /// may not search it.
    pub fn lookup(
        &self,
        turn: &Turn,
        who: &Principal,
        parent: &Handle,
        name: &Name,
    ) -> Result<Node, FsError> {
        self.look(turn, |work| {
            let directory = work.directory(parent)?;
            work.search(&directory, who)?;
            let found = work.child(directory.number, name)?;
            let (number, _) = found.ok_or(FsError::NotFound)?;
            Ok(work.node(&work.inode(number)?))
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is something else.
    pub fn read_link(
        &self,
        turn: &Turn,
        _who: &Principal,
        handle: &Handle,
    ) -> Result<Vec<u8>, FsError> {
        self.look(turn, |work| match work.find(handle)?.content {
            super::record::Content::Link(target) => Ok(target),
            _ => Err(FsError::Invalid.into()),
        })
    }

    /// How many inodes there are. Space is a matter of the stores.
    #[must_use]
    pub fn statfs(&self) -> FileSystemStat {
        let head = self.core.lock().head;
        FileSystemStat {
            block_size: 4096,
            files: super::layout::NUMBERS_MAX - head.next + head.inodes,
            files_free: super::layout::NUMBERS_MAX - head.next,
            name_max: u32::try_from(NAME_BYTES_MAX).expect("it is 255"),
            ..FileSystemStat::default()
        }
    }

    /// Names and inodes that are in memory.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.core.lock().cache.len()
    }

    /// How new files are laid out from now on.
    pub fn set_striping(&self, striping: Striping) {
        *self
            .striping
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(striping);
    }

    pub(super) fn layout(&self, inode: u64) -> Layout {
        let striping = self.striping.read().unwrap_or_else(PoisonError::into_inner);
        striping.layout(inode)
    }

    /// The stores of the volume, by the numbers that layouts have for them.
    #[must_use]
    pub fn targets(&self) -> Arc<BTreeMap<u16, Target>> {
        Arc::clone(&self.targets.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives a store a number; the one that it has, if there is one.
    ///
    /// # Errors
    /// [`NamespaceError::Full`]; what the engine says.
    pub async fn add_target(&self, target: Target) -> Result<u16, NamespaceError> {
        let known = self.targets();
        if let Some((number, _)) = known.iter().find(|(_, other)| **other == target) {
            return Ok(*number);
        }
        let number = free_target(&known)?;
        let key = self.core.rules.keys.target(number);
        let adding = Transaction::new()
            .guarded_by(&self.core.leadership)
            .when(Condition::Absent(key.clone()))
            .put(key, encode(&target));
        self.core.engine.commit(adding).await?;
        let mut after = (*known).clone();
        after.insert(number, target);
        *self.targets.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(after);
        Ok(number)
    }

    /// Says which objects files have.
    #[must_use]
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// The client has the answers to these requests; they will not come again.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn settle(
        &self,
        session: SessionId,
        is_settled: impl Fn(RequestId) -> bool,
    ) -> Result<(), FsError> {
        self.settle_where(|key, _| key.0 == session && is_settled(key.1))
    }

    /// What requests did before this time is forgotten: of clients that never came back.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn forget_requests_before(&self, time: Timestamp) -> Result<(), FsError> {
        let before = super::record::nanos(time);
        self.settle_where(|_, at| at < before)
    }

    fn settle_where(
        &self,
        is_settled: impl Fn(&(SessionId, RequestId), i128) -> bool,
    ) -> Result<(), FsError> {
        let known = {
            let state = self.core.lock();
            let settled = state
                .outcomes
                .iter()
                .filter(|(key, what)| is_settled(key, what.at));
            settled.map(|(key, _)| *key).collect::<Vec<_>>()
        };
        // A few at a time: each is a key of a batch.
        for some in known.chunks(super::pipe::BATCH_KEYS_MAX / 2) {
            self.change(&Turn::new(), |work| {
                some.iter()
                    .for_each(|(session, request)| work.settle(*session, *request));
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Work<'_> {
    pub(super) fn node(&self, inode: &Inode) -> Node {
        Node {
            handle: self.rules.seal.close(inode),
            attributes: inode.attributes(),
        }
    }
}

/// Whether a symbolic link can lead there.
pub(super) fn check_target(target: &[u8]) -> Result<(), FsError> {
    if target.len() > LINK_TARGET_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if target.contains(&0) {
        return Err(FsError::Invalid);
    }
    match target.is_empty() {
        true => Err(FsError::NotFound),
        false => Ok(()),
    }
}
