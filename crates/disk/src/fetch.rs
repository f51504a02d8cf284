//! Getting chunks: from memory, from the cache, from the repository; each at most once.
//!
//! Whoever needs a chunk that is not in memory joins its flight, or begins one. A flight looks into
//! the cache, on the thread that began it; if there is nothing, a task of the runtime fetches the
//! chunk. So a read of many chunks has all of them under way at once, and a chunk that many want is
//! fetched once: within this process by its flight, beside other processes by a lock that a task
//! takes in the cache they share.
//!
//! Whoever fetches ahead of what is read claims chunks that nobody has here or fetches, several of
//! which may come as one run of a pack (`fetch/run.rs`); those who read join these flights.
//!
//! A flight ends, whatever happens: if its task is dropped with the runtime, it ends with an error.

mod run;

pub(crate) use run::{Landed, Run};

use crate::cache::{Cache, FetchLock};
use crate::chunk::{ChunkId, ChunkSpec};
use crate::error::DiskError;
use crate::name::FileName;
use crate::recent::Recent;
use crate::source::{FetchError, Fetched, Refusal, Source, SourceError, fetch_chunk};
use base::limits::DISK_FETCH_LOCK_TIME_MAX;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How often one looks whether another process has finished, at first; it doubles up to a limit.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Gets chunks for all images of a process. Clones are the same.
#[derive(Clone, Debug)]
pub struct Fetcher(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    runtime: Handle,
    cache: Option<Cache>,
    recent: Mutex<Recent>,
    /// Taken before `recent` where both are.
    flights: Mutex<HashMap<ChunkSpec, Arc<Flight>>>,
    counts: Counters,
    /// Chunks that were delivered and are not in the cache yet.
    keeping: Mutex<usize>,
    kept: Condvar,
}

#[derive(Debug, Default)]
struct Flight {
    outcome: Mutex<Option<Result<Bytes, FetchError>>>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Counters {
    from_memory: AtomicU64,
    from_cache: AtomicU64,
    joined: AtomicU64,
    fetched: AtomicU64,
    fetched_bytes: AtomicU64,
    runs: AtomicU64,
    from_runs: AtomicU64,
    run_bytes: AtomicU64,
    inflated_bytes: AtomicU64,
    not_kept: AtomicU64,
}

/// Where chunks came from, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchCounts {
    /// From memory.
    pub from_memory: u64,
    /// From the cache, verified.
    pub from_cache: u64,
    /// Already under way for somebody else.
    pub joined: u64,
    /// From a repository.
    pub fetched: u64,
    /// Bytes of these, as they came.
    pub fetched_bytes: u64,
    /// Requests for several chunks of a pack at once.
    pub runs: u64,
    /// Chunks that came by these; they are not counted in `fetched`.
    pub from_runs: u64,
    /// Bytes of these requests, as they came.
    pub run_bytes: u64,
    /// Bytes of all chunks that came from a repository, unpacked.
    pub inflated_bytes: u64,
    /// Fetched and not kept, because the cache took them not.
    pub not_kept: u64,
}

/// What became of an attempt to be the one who fetches a chunk.
type Locking = Result<Option<FetchLock>, DiskError>;

/// A chunk for somebody who waits.
enum Awaited {
    There(Bytes),
    /// With whether the one who waits began it.
    Flying(Arc<Flight>, bool),
}

impl Fetcher {
    /// Keeps chunks in `cache`, if there is one, and the last ones in `memory_bytes_max` of memory.
    /// Fetches are tasks of `runtime`, which must have more than one thread.
    #[must_use]
    pub fn new(runtime: Handle, cache: Option<Cache>, memory_bytes_max: u64) -> Self {
        Self(Arc::new(Shared {
            runtime,
            cache,
            recent: Mutex::new(Recent::new(memory_bytes_max)),
            flights: Mutex::default(),
            counts: Counters::default(),
            keeping: Mutex::default(),
            kept: Condvar::new(),
        }))
    }

    /// Waits until what was delivered is in the cache, at most so long: before the program ends, so
    /// that the next one need not fetch it again. False if there was not time enough.
    pub fn finish(&self, limit: Duration) -> bool {
        let keeping = locked(&self.0.keeping);
        let waited = self
            .0
            .kept
            .wait_timeout_while(keeping, limit, |keeping| *keeping > 0);
        let (keeping, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *keeping == 0
    }

    /// Where chunks came from so far.
    #[must_use]
    pub fn counts(&self) -> FetchCounts {
        let counts = &self.0.counts;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FetchCounts {
            from_memory: load(&counts.from_memory),
            from_cache: load(&counts.from_cache),
            joined: load(&counts.joined),
            fetched: load(&counts.fetched),
            fetched_bytes: load(&counts.fetched_bytes),
            runs: load(&counts.runs),
            from_runs: load(&counts.from_runs),
            run_bytes: load(&counts.run_bytes),
            inflated_bytes: load(&counts.inflated_bytes),
            not_kept: load(&counts.not_kept),
        }
    }

    /// The cache, if there is one.
    #[must_use]
    pub fn cache(&self) -> Option<&Cache> {
        self.0.cache.as_ref()
    }

    /// Gets chunks, all of them under way at once. The caller's thread waits.
    ///
    /// # Errors
    /// The first [`FetchError`] in the order of `specs`.
    pub fn get(
        &self,
        source: &Arc<dyn Source>,
        specs: &[ChunkSpec],
    ) -> Result<Vec<Bytes>, FetchError> {
        let asked = self.ask(source, specs);
        self.wait(source, specs, asked)
    }

    /// Has chunks under way, all of them at once.
    pub(crate) fn ask(&self, source: &Arc<dyn Source>, specs: &[ChunkSpec]) -> Asked {
        Asked(self.begin(source, specs))
    }

    /// Waits for what was asked for.
    pub(crate) fn wait(
        &self,
        source: &Arc<dyn Source>,
        specs: &[ChunkSpec],
        asked: Asked,
    ) -> Result<Vec<Bytes>, FetchError> {
        let mut chunks = Vec::with_capacity(specs.len());
        for (awaited, spec) in asked.0.into_iter().zip(specs) {
            let chunk = match awaited {
                Awaited::There(bytes) => Ok(bytes),
                Awaited::Flying(flight, own) => match flight.wait() {
                    // Somebody else asked another repository, maybe.
                    Err(_) if !own => self.get_alone(source, spec),
                    outcome => outcome,
                },
            };
            chunks.push(chunk?);
        }
        Ok(chunks)
    }

    /// Takes on a chunk that is neither here nor on its way; its flight is the caller's, and ends
    /// with an error if the claim is dropped.
    pub(crate) fn claim(&self, spec: &ChunkSpec) -> Option<Claim> {
        let shared = &self.0;
        if shared
            .cache
            .as_ref()
            .is_some_and(|cache| cache.has(&spec.id))
        {
            return None;
        }
        let mut flights = locked(&shared.flights);
        if locked(&shared.recent).has(spec) || flights.contains_key(spec) {
            return None;
        }
        let flight: Arc<Flight> = Arc::default();
        flights.insert(*spec, Arc::clone(&flight));
        Some(Claim(Landing {
            shared: Arc::clone(shared),
            spec: *spec,
            flight,
        }))
    }

    /// Whether a chunk is in memory.
    pub(crate) fn remembers(&self, spec: &ChunkSpec) -> bool {
        locked(&self.0.recent).has(spec)
    }

    /// The most that is kept in memory.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        locked(&self.0.recent).bytes_max()
    }

    /// Where fetches run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    fn get_alone(&self, source: &Arc<dyn Source>, spec: &ChunkSpec) -> Result<Bytes, FetchError> {
        let awaited = self.begin(source, std::slice::from_ref(spec)).pop();
        match awaited.expect("one for each") {
            Awaited::There(bytes) => Ok(bytes),
            Awaited::Flying(flight, _) => flight.wait(),
        }
    }

    /// Begins the flights that are not under way. Those that are in the cache come last, because
    /// they are unpacked here: what must be fetched is under way by then.
    fn begin(&self, source: &Arc<dyn Source>, specs: &[ChunkSpec]) -> Vec<Awaited> {
        let shared = &self.0;
        let mut local = Vec::new();
        let mut awaited = Vec::with_capacity(specs.len());
        for spec in specs {
            let next = shared.join_or_begin(spec);
            if let Awaited::Flying(flight, true) = &next {
                match &shared.cache {
                    Some(cache) if cache.has(&spec.id) => local.push((Arc::clone(flight), *spec)),
                    _ => self.fly(source, *spec, Arc::clone(flight)),
                }
            }
            awaited.push(next);
        }
        for (flight, spec) in local {
            match shared.cache.as_ref().and_then(|cache| cache.read(&spec)) {
                Some(bytes) => {
                    shared.counts.from_cache.fetch_add(1, Ordering::Relaxed);
                    shared.end(&spec, &flight, Ok(bytes));
                }
                None => self.fly(source, spec, flight),
            }
        }
        awaited
    }

    fn fly(&self, source: &Arc<dyn Source>, spec: ChunkSpec, flight: Arc<Flight>) {
        let landing = Landing {
            shared: Arc::clone(&self.0),
            spec,
            flight,
        };
        let source = Arc::clone(source);
        self.0
            .runtime
            .spawn(async move { landing.fly(source, |_| ()).await });
    }
}

/// Chunks that somebody needs, and that may be under way.
pub(crate) struct Asked(Vec<Awaited>);

impl Asked {
    /// Whether some of them are not here yet.
    pub(crate) fn must_wait(&self) -> bool {
        let is_flying = |awaited: &Awaited| match awaited {
            Awaited::There(_) => false,
            Awaited::Flying(flight, _) => locked(&flight.outcome).is_none(),
        };
        self.0.iter().any(is_flying)
    }
}

/// A chunk that is to be fetched by whoever has this.
pub(crate) struct Claim(Landing);

impl Claim {
    pub(crate) fn spec(&self) -> ChunkSpec {
        self.0.spec
    }

    /// Fetches it by itself. `landed` is told how many bytes came, as soon as they have, before the
    /// cache has them.
    pub(crate) async fn fetch(self, source: Arc<dyn Source>, landed: impl FnOnce(Landed) + Send) {
        self.0.fly(source, landed).await;
    }
}

impl Shared {
    fn join_or_begin(&self, spec: &ChunkSpec) -> Awaited {
        let mut flights = locked(&self.flights);
        // In this order nobody misses a flight that has just ended: it is in memory then.
        if let Some(bytes) = locked(&self.recent).get(spec) {
            self.counts.from_memory.fetch_add(1, Ordering::Relaxed);
            return Awaited::There(bytes);
        }
        if let Some(flight) = flights.get(spec) {
            self.counts.joined.fetch_add(1, Ordering::Relaxed);
            return Awaited::Flying(Arc::clone(flight), false);
        }
        let flight = Arc::default();
        flights.insert(*spec, Arc::clone(&flight));
        Awaited::Flying(flight, true)
    }

    /// The right to fetch a chunk, if nobody else has it, and the chunk, if it is in the cache.
    fn look(&self, spec: &ChunkSpec) -> Option<(Locking, Option<Bytes>)> {
        let cache = self.cache.as_ref()?;
        let locking = cache.lock_fetch(&spec.id);
        let found = cache.has(&spec.id).then(|| cache.read(spec)).flatten();
        Some((locking, found))
    }

    fn keep(&self, id: &ChunkId, packed: &[u8]) {
        let kept = self.cache.as_ref().map(|cache| cache.insert(id, packed));
        if let Some(Err(error)) = &kept {
            tracing::warn!(%error, "a chunk is not kept");
        }
        if !matches!(kept, None | Some(Ok(true))) {
            add(&self.counts.not_kept, 1);
        }
    }

    fn end(&self, spec: &ChunkSpec, flight: &Flight, outcome: Result<Bytes, FetchError>) {
        if let Ok(bytes) = &outcome {
            locked(&self.recent).insert(*spec, bytes.clone());
        }
        locked(&self.flights).remove(spec);
        *locked(&flight.outcome) = Some(outcome);
        flight.ended.notify_all();
    }
}

impl Flight {
    fn wait(&self) -> Result<Bytes, FetchError> {
        let mut outcome = locked(&self.outcome);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            let woken = self.ended.wait(outcome);
            outcome = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A flight in the hands of a task; it lands even if the task is dropped.
struct Landing {
    shared: Arc<Shared>,
    spec: ChunkSpec,
    flight: Arc<Flight>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        if locked(&self.flight.outcome).is_none() {
            let error = SourceError {
                file: FileName::of_chunk(&self.spec.id),
                place: "nowhere".into(),
                refusal: Refusal::Failed("the program is about to end".into()),
            };
            self.shared.end(&self.spec, &self.flight, Err(error.into()));
        }
    }
}

/// One of those chunks.
struct Keeping(Arc<Shared>);

impl Keeping {
    fn begin(shared: &Arc<Shared>) -> Self {
        *locked(&shared.keeping) += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        *locked(&self.0.keeping) -= 1;
        self.0.kept.notify_all();
    }
}

impl Landing {
    async fn fly(self, source: Arc<dyn Source>, landed: impl FnOnce(Landed) + Send) {
        let (lock, found) = self.lock_fetch().await;
        if let Some(bytes) = found {
            self.end_with_cached(bytes);
            return landed(Landed::default());
        }
        self.fetch(source, lock, landed).await;
    }

    /// Fetches it; nobody else does.
    async fn fetch(
        self,
        source: Arc<dyn Source>,
        lock: Option<FetchLock>,
        landed: impl FnOnce(Landed) + Send,
    ) {
        match fetch_chunk(&*source, self.spec).await {
            Err(error) => {
                self.end(Err(error));
                landed(Landed {
                    bytes: 0,
                    failed: 1,
                });
            }
            Ok(Fetched { bytes, packed }) => {
                let counts = &self.shared.counts;
                let packed_bytes = packed.len() as u64;
                add(&counts.fetched, 1);
                add(&counts.fetched_bytes, packed_bytes);
                add(&counts.inflated_bytes, bytes.len() as u64);
                let keeping = Keeping::begin(&self.shared);
                // Whoever waits need not wait for the local disk.
                self.end(Ok(bytes));
                landed(Landed {
                    bytes: packed_bytes,
                    failed: 0,
                });
                self.keep(packed, lock, keeping).await;
            }
        }
    }

    fn end_with_cached(&self, bytes: Bytes) {
        add(&self.shared.counts.from_cache, 1);
        self.end(Ok(bytes));
    }

    fn end(&self, outcome: Result<Bytes, FetchError>) {
        self.shared.end(&self.spec, &self.flight, outcome);
    }

    /// Waits until nobody else fetches the chunk, or it is there. Another process that holds on to
    /// its lock for too long is not waited for.
    async fn lock_fetch(&self) -> (Option<FetchLock>, Option<Bytes>) {
        if self.shared.cache.is_none() {
            return (None, None);
        }
        let deadline = Instant::now() + DISK_FETCH_LOCK_TIME_MAX;
        let mut pause = PAUSE;
        loop {
            let (shared, spec) = (Arc::clone(&self.shared), self.spec);
            let looked = tokio::task::spawn_blocking(move || shared.look(&spec)).await;
            match looked.ok().flatten() {
                Some((Ok(None), None)) if Instant::now() < deadline => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Some((Ok(lock), found)) => return (lock, found),
                // An error of the cache must not keep anybody from reading.
                Some((Err(error), found)) => {
                    tracing::warn!(%error, "a chunk is fetched without its lock");
                    return (None, found);
                }
                None => return (None, None),
            }
        }
    }

    async fn keep(&self, packed: Bytes, lock: Option<FetchLock>, keeping: Keeping) {
        let (shared, id) = (Arc::clone(&self.shared), self.spec.id);
        let keep = move || {
            shared.keep(&id, &packed);
            drop(lock);
            drop(keeping);
        };
        // If the program ends meanwhile, the chunk is not kept.
        let _ = tokio::task::spawn_blocking(keep).await;
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
