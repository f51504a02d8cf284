//! Reading everything now and then: damage is to be found while there is still something to mend
//! it from.
//!
//! One thread for each store sleeps until a pass is due, which is a fixed time after the last one
//! has ended, or an administrator asks for one. A pass reads at a rate with which it takes a small
//! part of that time; each of its reads waits for its turn as background work, so it takes nothing
//! from what is reserved. When the last pass ended lies in the data directory (`scrubs.toml`): a
//! server that is started again reads no sooner for that. A pass that the server's end cuts short
//! begins anew.
//!
//! What a pass finds is in the log, object by object, and in its line of the status.

use super::Storage;
use super::clock::StorageClock;
use super::device::Device;
use crate::background::{Background, Task};
use crate::data::{DataError, file, from_hex, to_hex};
use base::limits::{SCRUB_FINDINGS_LOGGED_MAX, SERVER_STORES_MAX};
use base::{ByteSize, StoreId, Time};
use reservation::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use store::{Mend, Report, StoreError};

/// Name of the state file, without its ending.
const NAME: &str = "scrubs";
/// A pass is done within this part of the time between two.
const PART: u32 = 4;
/// The least that a pass reads a second.
const RATE_MIN: u64 = 4_000_000;
/// After a pass that could not be carried out, at the latest.
const AGAIN_TIME: Duration = Duration::from_secs(86_400);
/// How often a sleeper looks at the clock, which may be set.
const NAP: Duration = Duration::from_secs(60);

/// The state file's contents.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ScrubFile {
    #[serde(default)]
    store: Vec<ScrubRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ScrubRecord {
    id: String,
    /// The second in which the last pass ended, or the store came here.
    ended: u64,
}

/// See the module's head. Dropped, it ends its threads.
pub(crate) struct Scrubs {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    directory: PathBuf,
    clock: Arc<StorageClock>,
    /// Time between two passes; none for never.
    interval: Option<Duration>,
    state: Mutex<State>,
    bell: Condvar,
}

struct State {
    ended: BTreeMap<StoreId, u64>,
    /// Passes that were asked for, with a rate in bytes a second if one was given.
    asked: BTreeMap<StoreId, Option<u64>>,
    is_stopping: bool,
}

impl Scrubs {
    /// Starts the threads. A state file that cannot be read is begun anew: the next passes come
    /// later.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub(crate) fn start(
        storage: &Storage,
        background: &Background,
        interval: Option<Duration>,
    ) -> std::io::Result<Self> {
        let ended = load(&storage.directory).unwrap_or_else(|error| {
            tracing::warn!(%error, "when stores were last read whole is not known any more");
            BTreeMap::new()
        });
        let shared = Arc::new(Shared {
            directory: storage.directory.clone(),
            clock: storage.clock.clone(),
            interval,
            state: Mutex::new(State {
                ended,
                asked: BTreeMap::new(),
                is_stopping: false,
            }),
            bell: Condvar::new(),
        });
        let threads = storage.devices.values().map(|device| {
            let task = background.add(format!("scrub {}", device.id));
            let (shared, device) = (shared.clone(), device.clone());
            let thread = thread::Builder::new().name("scrub".to_owned());
            thread.spawn(move || shared.run(&device, &task))
        });
        // Dropped in the middle, the ones that were started end.
        let this = Self {
            shared: shared.clone(),
            threads: Mutex::default(),
        };
        for thread in threads {
            this.threads().push(thread?);
        }
        Ok(this)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a store read from now on, no faster than a rate in bytes a second if one is given.
    pub(crate) fn ask(&self, store: StoreId, bytes_per_second: Option<u64>) {
        self.shared.lock().asked.insert(store, bytes_per_second);
        self.shared.bell.notify_all();
    }

    /// Ends the threads within a step of what they are at. Blocks.
    pub(crate) fn stop(&self) {
        self.shared.lock().is_stopping = true;
        self.shared.bell.notify_all();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a scrub ended by a panic");
            }
        }
    }
}

impl Drop for Scrubs {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, device: &Device, task: &Task) {
        self.note_first(device.id);
        let (mut not_before, mut last) = (None, "not read whole yet".to_owned());
        loop {
            task.set_state(last.as_str());
            let Some(rate) = self.wait(device, not_before) else {
                return;
            };
            let report = self.pass(device, task, rate);
            if self.lock().is_stopping {
                return;
            }
            not_before = match report {
                Ok(report) => {
                    last = tell(device, &report);
                    self.note_end(device.id);
                    None
                }
                Err(error) => {
                    tracing::error!(store = %device.id, %error, "a store cannot be read whole");
                    last = format!("could not be read whole: {error}");
                    Some(self.clock.now() + AGAIN_TIME)
                }
            };
        }
    }

    /// Waits for the next pass; the rate of one that was asked for, or that of others. None at the
    /// end.
    fn wait(&self, device: &Device, not_before: Option<Time>) -> Option<Option<u64>> {
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            if let Some(rate) = state.asked.remove(&device.id) {
                return Some(rate);
            }
            let due = self.interval.map(|interval| {
                let ended = state.ended.get(&device.id).copied().unwrap_or_default();
                let due = Time::from_secs(ended) + interval;
                not_before.map_or(due, |time| time.max(due))
            });
            let left = due.map_or(NAP, |due| due.since(self.clock.now()));
            if let Some(interval) = self.interval
                && left.is_zero()
            {
                let used = device.store.status().usage.used * device.au_bytes;
                return Some(Some(usual_rate(used, interval)));
            }
            let waited = self.bell.wait_timeout(state, left.min(NAP));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pass(&self, device: &Device, task: &Task, rate: Option<u64>) -> Result<Report, StoreError> {
        let (mut told, mut percent) = (0, None);
        device.store.scrub(rate, &mut |done, all| {
            task.add(done.saturating_sub(told));
            told = told.max(done);
            let now = (done.saturating_mul(100)).checked_div(all).unwrap_or(100);
            if percent != Some(now) {
                percent = Some(now);
                task.set_state(format!("reading everything, {now} % of {}", ByteSize(all)));
            }
            match self.lock().is_stopping {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    }

    /// A store that was not here before is not read at once.
    fn note_first(&self, store: StoreId) {
        if !self.lock().ended.contains_key(&store) {
            self.note_end(store);
        }
    }

    fn note_end(&self, store: StoreId) {
        let now = Moment::at_or_before(self.clock.now()).as_secs();
        let mut state = self.lock();
        state.ended.insert(store, now);
        while state.ended.len() > SERVER_STORES_MAX {
            // Of stores that are gone; the one that has been here longest without a pass.
            let oldest = state.ended.iter().min_by_key(|(_, ended)| **ended);
            let Some(oldest) = oldest.map(|(id, _)| *id) else {
                break;
            };
            state.ended.remove(&oldest);
        }
        if let Err(error) = save(&self.directory, &state.ended) {
            tracing::warn!(%error, "a store is read whole again after the next start");
        }
    }
}

/// Bytes a second with which so many bytes are read in a part of the time between two passes.
fn usual_rate(used_bytes: u64, interval: Duration) -> u64 {
    let seconds = (interval / PART).as_secs().max(1);
    (used_bytes / seconds).max(RATE_MIN)
}

/// Logs what was found; the line for the status.
fn tell(device: &Device, report: &Report) -> String {
    let left: Vec<_> = (report.findings.iter())
        .filter(|finding| finding.mend != Mend::Done)
        .collect();
    let store = device.id;
    for finding in report.findings.iter().take(SCRUB_FINDINGS_LOGGED_MAX) {
        tracing::error!(%store, %finding, "a store is damaged");
    }
    if report.findings.len() > SCRUB_FINDINGS_LOGGED_MAX {
        let all = report.findings.len();
        tracing::error!(%store, all, "a store is damaged in more places than are logged");
    }
    let read = ByteSize(report.verified_bytes);
    match left[..] {
        [] => {
            tracing::info!(%store, %read, "a store was read whole");
            "nothing is damaged".to_owned()
        }
        [one] => format!("DAMAGED: {one}"),
        [first, ..] => format!("DAMAGED in {} places, first: {first}", left.len()),
    }
}

fn load(directory: &Path) -> Result<BTreeMap<StoreId, u64>, DataError> {
    let path = directory.join(format!("{NAME}.toml"));
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let contents: ScrubFile = file::read(directory, NAME)?;
    let record = |record: ScrubRecord| Some((StoreId(from_hex(&record.id)?), record.ended));
    let ended: Option<BTreeMap<_, _>> = contents.store.into_iter().map(record).collect();
    ended.ok_or_else(|| DataError::Damaged {
        path,
        why: "a value has the wrong form".to_owned(),
    })
}

fn save(directory: &Path, ended: &BTreeMap<StoreId, u64>) -> Result<(), DataError> {
    let record = |(id, ended): (&StoreId, &u64)| ScrubRecord {
        id: to_hex(&id.0),
        ended: *ended,
    };
    let store = ended.iter().map(record).collect();
    file::write(directory, NAME, &ScrubFile { store })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{open, with_store};
    use super::*;
    use std::time::Instant;

    const DAY: Duration = Duration::from_secs(86_400);

    fn states(background: &Background) -> Vec<String> {
        let workers = background.summaries();
        workers.into_iter().map(|worker| worker.state).collect()
    }

    #[track_caller]
    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_pass_takes_a_part_of_the_time_between_two() {
        assert_eq!(usual_rate(0, DAY), RATE_MIN);
        let used = 1 << 42;
        let rate = usual_rate(used, 14 * DAY);
        assert!(used / rate <= 14 * 86_400 / 4 + 1 && rate < 20_000_000);
    }

    #[test]
    fn a_new_store_is_read_when_that_is_due_or_asked_for_and_not_at_once_again() {
        let (directory, store) = with_store(32);
        let storage = open(&directory);
        let background = Background::default();
        let scrubs = Scrubs::start(&storage, &background, Some(14 * DAY)).unwrap();
        until("noted", || load(directory.path()).unwrap().len() == 1);
        let unread = ["not read whole yet".to_owned()];
        until("unread", || states(&background) == unread);
        scrubs.ask(store, None);
        let read = ["nothing is damaged".to_owned()];
        until("read", || states(&background) == read);
        scrubs.stop();
        drop(scrubs);
        // It is due: the last one was long ago.
        let old = BTreeMap::from([(store, 1000)]);
        save(directory.path(), &old).unwrap();
        let scrubs = Scrubs::start(&storage, &background, Some(14 * DAY)).unwrap();
        until("due", || states(&background) == read);
        assert!(load(directory.path()).unwrap()[&store] > 1000);
        drop(scrubs);
        // Never is never.
        save(directory.path(), &old).unwrap();
        let scrubs = Scrubs::start(&storage, &background, None).unwrap();
        thread::sleep(Duration::from_millis(50));
        until("unread", || states(&background) == unread);
        drop(scrubs);
        assert_eq!(load(directory.path()).unwrap(), old);
    }
}
