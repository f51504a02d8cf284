//! Getting chunks: from memory, from the cache, from the repository; each at most once.
//!
//! Whoever needs a chunk that is not in memory joins its flight, or begins one. A flight looks into
//! the cache, on the thread that began it; if there is nothing, a task of the runtime fetches the
//! chunk. So a read of many chunks has all of them under way at once, and a chunk that many want is
//! fetched once: within this process by its flight, beside other processes by a lock that a task
//! takes in the cache they share.
//!
//! A flight ends, whatever happens: if its task is dropped with the runtime, it ends with an error.

use crate::cache::{Cache, FetchLock};
use crate::chunk::ChunkSpec;
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
    /// Fetched and not kept, because the cache took them not.
    pub not_kept: u64,
}

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
        let awaited = self.begin(source, specs);
        let mut chunks = Vec::with_capacity(specs.len());
        for (awaited, spec) in awaited.into_iter().zip(specs) {
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
            .spawn(async move { landing.fly(source).await });
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
    async fn fly(self, source: Arc<dyn Source>) {
        let (lock, found) = self.lock_fetch().await;
        if let Some(bytes) = found {
            self.shared
                .counts
                .from_cache
                .fetch_add(1, Ordering::Relaxed);
            return self.end(Ok(bytes));
        }
        match fetch_chunk(&*source, self.spec).await {
            Err(error) => self.end(Err(error)),
            Ok(Fetched { bytes, packed }) => {
                let counts = &self.shared.counts;
                counts.fetched.fetch_add(1, Ordering::Relaxed);
                counts
                    .fetched_bytes
                    .fetch_add(packed.len() as u64, Ordering::Relaxed);
                let keeping = Keeping::begin(&self.shared);
                // Whoever waits need not wait for the local disk.
                self.end(Ok(bytes));
                self.keep(packed, lock, keeping).await;
            }
        }
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
            let look = move || {
                let cache = shared.cache.as_ref()?;
                let locking = cache.lock_fetch(&spec.id);
                let found = cache.has(&spec.id).then(|| cache.read(&spec)).flatten();
                Some((locking, found))
            };
            let looked = tokio::task::spawn_blocking(look).await;
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
            let kept = shared
                .cache
                .as_ref()
                .map(|cache| cache.insert(&id, &packed));
            if let Some(Err(error)) = &kept {
                tracing::warn!(%error, "a chunk is not kept");
            }
            if !matches!(kept, None | Some(Ok(true))) {
                shared.counts.not_kept.fetch_add(1, Ordering::Relaxed);
            }
            drop(lock);
            drop(keeping);
        };
        // If the program ends meanwhile, the chunk is not kept.
        let _ = tokio::task::spawn_blocking(keep).await;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
