//! The pool: threads that carry requests out.
//!
//! File operations block; they run on threads of their own, each with an [`export::Worker`] that
//! takes on callers' identities. A few threads serve a busy page cache best; many are needed when a
//! disk or a hung mount holds them. So the pool starts small, and a supervisor adds threads while
//! requests wait although the processors have time to spare, or while all threads have been busy
//! with one request each for long. Surplus threads leave after a while.
//!
//! Less urgent classes may not take all threads ([`queue`]), so whatever hangs below predictions or
//! writes, look-ups go on; and no credential gets more of them than the others that want some.

mod queue;

use crate::link::LinkKey;
use crate::share::ShareKey;
use base::RequestId;
use base::limits::{WORKERS_MAX, WORKERS_MIN};
use export::{ExportError, Worker};
use queue::{Queued, Queues};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use queue::Queued as QueuedTask;

/// How often the supervisor looks while requests wait.
const SUPERVISE_INTERVAL: Duration = Duration::from_millis(5);
/// How long a surplus thread stays without work.
const SURPLUS_TIME: Duration = Duration::from_secs(10);
/// Name of the threads, followed by their place; what the kernel calls them in `/proc`.
const THREAD_NAME: &str = "worker-";

/// A piece of work.
pub(crate) trait Task: Queued + 'static {
    /// Carries it out. It replies by itself, or is parked until something else makes it go on.
    fn run(self: Box<Self>, worker: &Worker);
    /// Answers that it was taken back before it began.
    fn cancel(self: Box<Self>);
    /// Its connection has ended before it began. Given back if it is to be carried out all the
    /// same, for another one.
    fn lose(self: Box<Self>) -> Option<Turn>;
}

pub(crate) type Turn = Box<dyn Task>;

impl Queued for Turn {
    fn class(&self) -> wire::frame::Class {
        (**self).class()
    }

    fn link(&self) -> LinkKey {
        (**self).link()
    }

    fn share(&self) -> ShareKey {
        (**self).share()
    }

    fn request(&self) -> RequestId {
        (**self).request()
    }

    fn has_room(&self) -> bool {
        (**self).has_room()
    }
}

struct State {
    queues: Queues<Turn>,
    threads: Vec<Option<JoinHandle<()>>>,
    alive: usize,
    idle: usize,
    /// Of the idle ones, how many have been woken and are not there yet.
    waking: usize,
    /// Whether the supervisor waits to be told that requests wait.
    supervisor_rests: bool,
    /// Whether a thread has had nothing to do since the supervisor looked last.
    was_idle: bool,
    stopping: bool,
}

/// The threads and their queue.
pub(crate) struct Pool {
    state: Mutex<State>,
    work: Condvar,
    supervise: Condvar,
    done: AtomicU64,
    threads_min: usize,
}

impl Pool {
    /// Starts the pool with `threads_min` threads.
    ///
    /// # Errors
    /// [`ExportError`] if the process may not act for callers.
    pub(crate) fn start(threads_min: usize) -> Result<Arc<Self>, ExportError> {
        let threads_min = threads_min.clamp(WORKERS_MIN.min(2), WORKERS_MAX);
        let pool = Arc::new(Self {
            state: Mutex::new(State {
                queues: Queues::new(),
                threads: (0..WORKERS_MAX).map(|_| None).collect(),
                alive: 0,
                idle: 0,
                waking: 0,
                supervisor_rests: false,
                was_idle: false,
                stopping: false,
            }),
            work: Condvar::new(),
            supervise: Condvar::new(),
            done: AtomicU64::new(0),
            threads_min,
        });
        // A first worker on a thread of its own tells whether the process has the rights.
        std::thread::spawn(|| Worker::new().map(drop))
            .join()
            .unwrap_or(Ok(()))?;
        let mut state = pool.lock();
        for _ in 0..threads_min {
            pool.spawn(&mut state);
        }
        drop(state);
        let supervisor = pool.clone();
        std::thread::Builder::new()
            .name("supervisor".to_owned())
            .spawn(move || supervisor.supervise())
            .map_err(|source| ExportError::Thread {
                step: "start the supervisor",
                source,
            })?;
        Ok(pool)
    }

    /// Queues tasks.
    pub(crate) fn push(&self, tasks: impl IntoIterator<Item = Turn>) {
        let mut state = self.lock();
        for task in tasks {
            state.queues.push(task);
        }
        self.wake(&mut state);
    }

    /// Queues a task that was parked: it goes before all others, because it holds things.
    pub(crate) fn push_resumed(&self, task: Turn) {
        let mut state = self.lock();
        state.queues.push_resumed(task);
        self.wake(&mut state);
    }

    /// Wakes one more thread if there is something for it; that one wakes the next. Waking one in
    /// vain costs as much as a small request. The supervisor hears of requests that nobody takes.
    fn wake(&self, state: &mut State) {
        if state.waking < state.idle && state.queues.may_take(state.alive) {
            state.waking += 1;
            self.work.notify_one();
        }
        if state.supervisor_rests && state.idle == 0 && !state.queues.is_empty() {
            state.supervisor_rests = false;
            self.supervise.notify_one();
        }
    }

    /// Takes a queued request back; `None` if it has begun or never came.
    pub(crate) fn cancel(&self, link: LinkKey, request: RequestId) -> Option<Turn> {
        self.lock().queues.cancel(link, request)
    }

    /// Drops everything that is queued for a closed connection, but for what has come on another
    /// one, too.
    pub(crate) fn close(&self, link: LinkKey) {
        let lost = self.lock().queues.close(link);
        let moved: Vec<Turn> = lost.into_iter().filter_map(Task::lose).collect();
        if !moved.is_empty() {
            self.push(moved);
        }
    }

    /// These connections have room for replies again.
    pub(crate) fn resume(&self, links: impl IntoIterator<Item = LinkKey>) {
        let mut state = self.lock();
        for link in links {
            state.queues.resume(link);
        }
        self.wake(&mut state);
    }

    /// Requests that wait, threads, requests done.
    pub(crate) fn figures(&self) -> (usize, usize, u64) {
        let state = self.lock();
        (
            state.queues.len(),
            state.alive,
            self.done.load(Ordering::Relaxed),
        )
    }

    /// Lets the threads finish what they are at, and drops what waits. A thread that hangs in the
    /// kernel is left behind after `time_max`.
    pub(crate) fn stop(&self, time_max: Duration) {
        let mut state = self.lock();
        state.stopping = true;
        let dropped = state.queues.clear();
        let threads: Vec<_> = state.threads.iter_mut().filter_map(Option::take).collect();
        drop(state);
        drop(dropped);
        self.work.notify_all();
        self.supervise.notify_all();
        let deadline = Instant::now() + time_max;
        for thread in threads {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("a worker thread ended by a panic");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Self>, state: &mut State) {
        let free = |t: &Option<JoinHandle<()>>| t.as_ref().is_none_or(JoinHandle::is_finished);
        let Some(place) = state.threads.iter().position(free) else {
            return;
        };
        let pool = self.clone();
        let thread = std::thread::Builder::new()
            .name(format!("{THREAD_NAME}{place}"))
            .spawn(move || match Worker::new() {
                Ok(worker) => pool.work(&worker),
                Err(error) => {
                    tracing::error!(%error, "a worker thread cannot work");
                    pool.lock().alive -= 1;
                }
            });
        match thread {
            Ok(thread) => {
                state.threads[place] = Some(thread);
                state.alive += 1;
            }
            Err(error) => tracing::error!(%error, "cannot start a worker thread"),
        }
    }

    fn work(&self, worker: &Worker) {
        let mut state = self.lock();
        let mut idle_since = Instant::now();
        loop {
            if state.stopping {
                break;
            }
            let alive = state.alive;
            if let Some((task, running)) = state.queues.take(alive) {
                self.wake(&mut state);
                drop(state);
                let begun = Instant::now();
                let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| task.run(worker)));
                if outcome.is_err() {
                    // The message has gone to standard error. The request stays without a reply; a
                    // change counts as running until the session ends, so that no copy of what
                    // may be half done runs. Everybody else is served.
                    tracing::error!("a request ended by a panic");
                }
                self.done.fetch_add(1, Ordering::Relaxed);
                let took = begun.elapsed();
                state = self.lock();
                // The class may have been at its bound: this thread goes on with it, or wakes
                // another one when it takes something more urgent.
                state.queues.end(running, took);
                idle_since = Instant::now();
                continue;
            }
            let surplus = state.alive > self.threads_min;
            if surplus && idle_since.elapsed() >= SURPLUS_TIME {
                break;
            }
            state.idle += 1;
            state.was_idle = true;
            let woken = self.work.wait_timeout(state, SURPLUS_TIME);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
            // Whoever comes first does what another one was woken for.
            state.waking = state.waking.saturating_sub(1);
        }
        state.alive -= 1;
    }

    /// Adds threads while it helps.
    fn supervise(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            while !state.stopping && (state.queues.is_empty() || state.idle > 0) {
                state.supervisor_rests = true;
                state = self
                    .supervise
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state.supervisor_rests = false;
            if state.stopping {
                return;
            }
            state.was_idle = false;
            let woken = self.supervise.wait_timeout(state, SUPERVISE_INTERVAL);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            if state.was_idle || state.queues.is_empty() || state.alive >= WORKERS_MAX {
                // Some thread had time: no further one would have helped.
                continue;
            }
            drop(state);
            let blocked = blocked_threads();
            state = self.lock();
            let working = state.alive.saturating_sub(blocked);
            let waits = !state.queues.is_empty() && state.idle == 0;
            if waits && working < processors() && !state.stopping {
                self.spawn(&mut state);
            }
        }
    }
}

/// Worker threads that wait for a device at this moment. A thread that waits for a processor or for
/// another thread is not one of them: a further thread would not help it.
fn blocked_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let is_blocked = |task: std::fs::DirEntry| {
        // "17 (worker-3) D ...": a thread that ends meanwhile has no such file any more.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.split_once('(')
            .and_then(|(_, rest)| rest.strip_prefix(THREAD_NAME))
            .and_then(|rest| rest.rsplit_once(") "))
            .is_some_and(|(_, rest)| rest.starts_with('D'))
    };
    tasks
        .filter_map(Result::ok)
        .map(is_blocked)
        .filter(|blocked| *blocked)
        .count()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
