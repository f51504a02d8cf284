//! What must not run twice, over a crash of the server.
//!
//! A creation, removal, rename or append that is sent again after a reconnection is answered from
//! the session's memory ([`crate::memory`]). That memory dies with the process. So each such step
//! leaves an *intent* here before it runs, with what is needed to tell from the tree whether it
//! ran, and its *end* afterwards. Both are plain writes into the page cache, a microsecond each:
//! they survive `kill -9`. A machine that loses power may lose them, or the unsynced changes that
//! they speak of; so after that an append counts as run only if the file still has it, and contents
//! that went with a creation are looked at and go in again.
//!
//! At the start, every intent without an end is resolved against the tree at once, before any
//! client can change anything ([`resolve`]). A step that is sent again then finds its verdict: it
//! ran (and its answer is made up again), it did not (and runs now), or nobody can tell, and the
//! client is told just that. Two open intents about one name are not told apart.
//!
//! The log is two files used in turns ([`ring`]); what clients have settled is not carried over.
//! How far they have is noted now and then, and at their goodbye: there is room for a few thousand
//! open steps only, and a run that begins must not take for open what was settled long ago.

mod record;
mod resolve;
mod ring;

pub(crate) use record::{Act, Done, Intent, Key};

use crate::data::DataError;
use crate::volume::Volumes;
use base::limits::{JOURNAL_AGE_MAX, JOURNAL_ENTRIES_MAX, SESSION_IDLE_TIME_MAX};
use base::{FsError, RequestId, SessionId};
use record::{Record, State};
use ring::Ring;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use wire::message::Settled;

/// What is known of an earlier copy of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// It has not run.
    NotDone,
    /// It ran.
    Done(Done),
    /// It ran and failed.
    Failed(FsError),
    /// Nobody can tell.
    Unknown,
}

struct Entry {
    intent: Intent,
    state: State,
}

type Entries = HashMap<SessionId, BTreeMap<(RequestId, u8), Entry>>;

/// Steps of a session that are settled before the log hears of it.
const SETTLED_STEPS: usize = 64;

/// Requests that a record of what is settled excepts.
const EXCEPT_MAX: usize = 256;

/// How far a session is settled, as the log does not know yet.
struct Floor {
    below: RequestId,
    /// Steps that were settled since the log heard of it last.
    steps: usize,
}

struct Inner {
    ring: Ring,
    entries: Entries,
    count: usize,
    floors: HashMap<SessionId, Floor>,
}

/// The journal of a server.
pub(crate) struct Journal(Mutex<Inner>);

impl Journal {
    /// Reads what the runs before left behind, resolves it, and begins anew with what is still
    /// open. `lost_unflushed`: since then the machine may have lost what was not flushed.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub(crate) fn open(
        directory: &Path,
        volumes: &Volumes,
        lost_unflushed: bool,
    ) -> Result<Self, DataError> {
        let (mut ring, records) = Ring::open(directory)?;
        let mut entries = Entries::new();
        for record in records {
            apply(&mut entries, record);
        }
        drop_old(&mut entries, unix_time(), JOURNAL_AGE_MAX);
        if lost_unflushed {
            forget_lost_appends(&mut entries, volumes);
            doubt_contents(&mut entries);
        }
        resolve_all(&mut entries, volumes);
        let count = entries.values().map(BTreeMap::len).sum();
        ring.begin(records_of(&entries))?;
        Ok(Self(Mutex::new(Inner {
            ring,
            entries,
            count,
            floors: HashMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step is about to run. Unless the answer is [`Past::NotDone`] it must not. Only a request
    /// that was `resent` can have a past.
    ///
    /// # Errors
    /// [`FsError::Io`] if the intent cannot be written; [`FsError::NoMemory`] if there are too many
    /// that clients have not settled.
    pub(crate) fn begin(&self, key: Key, intent: Intent, resent: bool) -> Result<Past, FsError> {
        let mut inner = self.lock();
        let session = inner.entries.get(&key.session).filter(|_| resent);
        let past = session.and_then(|entries| entries.get(&(key.request, key.step)));
        match past.map(|entry| &entry.state) {
            None | Some(State::NotDone) => {}
            Some(State::Done(done)) => return Ok(Past::Done(done.clone())),
            Some(State::Failed(error)) => return Ok(Past::Failed(*error)),
            // Begun and not ended in this run: a step whose worker died in the middle.
            Some(State::Unknown | State::Begun) => return Ok(Past::Unknown),
        }
        if inner.count >= JOURNAL_ENTRIES_MAX {
            // Clients that vanished leave what they had not settled. Make room among the oldest.
            inner.drop_old(SESSION_IDLE_TIME_MAX);
            if inner.count >= JOURNAL_ENTRIES_MAX {
                return Err(FsError::NoMemory);
            }
        }
        let entry = Entry {
            intent,
            state: State::Begun,
        };
        let record = Record::Intent {
            key,
            intent: entry.intent.clone(),
        };
        inner.write(&record)?;
        let session = inner.entries.entry(key.session).or_default();
        if session.insert((key.request, key.step), entry).is_none() {
            inner.count += 1;
        }
        Ok(Past::NotDone)
    }

    /// A step that an earlier copy has not brought to its end goes on: it counts as begun until it
    /// ends. What it does meanwhile is then not taken for what others have done.
    pub(crate) fn again(&self, key: Key) -> Result<(), FsError> {
        let mut inner = self.lock();
        let session = inner.entries.get(&key.session);
        let entry = session.and_then(|entries| entries.get(&(key.request, key.step)));
        let intent = entry.ok_or(FsError::Io)?.intent.clone();
        inner.write(&Record::Intent { key, intent })?;
        let session = inner.entries.get_mut(&key.session);
        if let Some(entry) = session.and_then(|e| e.get_mut(&(key.request, key.step))) {
            entry.state = State::Begun;
        }
        Ok(())
    }

    /// A step has run.
    pub(crate) fn end(&self, key: Key, outcome: Result<Done, FsError>) {
        let state = match outcome {
            Ok(done) => State::Done(done),
            Err(error) => State::Failed(error),
        };
        let mut inner = self.lock();
        if let Err(error) = inner.write(&Record::End {
            key,
            state: state.clone(),
        }) {
            // The step has run and will be answered; should the server be killed before the client
            // has the answer, the tree will have to tell.
            tracing::error!(%error, "cannot write to the journal");
        }
        let session = inner.entries.get_mut(&key.session);
        if let Some(entry) = session.and_then(|e| e.get_mut(&(key.request, key.step))) {
            entry.state = state;
        }
    }

    /// The client has the answers to what is settled.
    pub(crate) fn settle(&self, session: SessionId, settled: &Settled) {
        let mut inner = self.lock();
        let mut steps = 0;
        if let Some(entries) = inner.entries.get_mut(&session) {
            let gone: Vec<_> = entries
                .range(..(settled.below, 0))
                .map(|(key, _)| *key)
                .filter(|(id, _)| settled.covers(*id))
                .collect();
            for key in &gone {
                entries.remove(key);
            }
            if entries.is_empty() {
                inner.entries.remove(&session);
            }
            steps = gone.len();
        }
        inner.count -= steps;
        inner.note_settled(session, settled, steps);
    }
}

impl Inner {
    /// Lets the log know how far a session is settled, if that is worth a record.
    fn note_settled(&mut self, session: SessionId, settled: &Settled, steps: usize) {
        if steps == 0 && !self.floors.contains_key(&session) {
            return;
        }
        let below = settled.below;
        let floor = self.floors.entry(session);
        let floor = floor.or_insert(Floor { below, steps: 0 });
        floor.below = floor.below.max(below);
        floor.steps += steps;
        let below = floor.below;
        if floor.steps >= SETTLED_STEPS || below.0 == u64::MAX {
            self.floors.remove(&session);
            let record = self.settled(session, below);
            // Without it a later run takes some steps for open that are not.
            let _ = self.write(&record);
        }
    }

    /// What is settled below a number: all but what has still an entry. A request may wait for
    /// hours, for a lock, and what came after it is settled.
    fn settled(&self, session: SessionId, below: RequestId) -> Record {
        let mut except = Vec::new();
        let entries = self.entries.get(&session).into_iter();
        for (id, _) in entries.flat_map(|entries| entries.range(..(below, 0)).map(|(key, _)| *key))
        {
            if except.last() == Some(&id) {
                continue;
            }
            if except.len() == EXCEPT_MAX {
                return Record::SettledBut {
                    session,
                    below: id,
                    except,
                };
            }
            except.push(id);
        }
        Record::SettledBut {
            session,
            below,
            except,
        }
    }

    fn drop_old(&mut self, age_max: Duration) {
        drop_old(&mut self.entries, unix_time(), age_max);
        self.count = self.entries.values().map(BTreeMap::len).sum();
    }

    fn write(&mut self, record: &Record) -> Result<(), FsError> {
        if self.ring.is_full() {
            self.drop_old(JOURNAL_AGE_MAX);
            // The other file may have what is not open any more.
            let floors = std::mem::take(&mut self.floors).into_iter();
            // With its exceptions, though they follow: a power loss may leave only the beginning.
            let settled: Vec<_> = floors
                .map(|(session, floor)| self.settled(session, floor.below))
                .collect();
            self.ring
                .begin(settled.into_iter().chain(records_of(&self.entries)))
                .map_err(|error| {
                    tracing::error!(%error, "cannot begin the journal's next file");
                    FsError::Io
                })?;
        }
        self.ring.append(record).map_err(|error| {
            tracing::error!(%error, "cannot write to the journal");
            FsError::Io
        })
    }
}

fn apply(entries: &mut Entries, record: Record) {
    match record {
        Record::Intent { key, intent } => {
            let entry = Entry {
                intent,
                state: State::Begun,
            };
            entries
                .entry(key.session)
                .or_default()
                .insert((key.request, key.step), entry);
        }
        Record::End { key, state } => {
            let session = entries.get_mut(&key.session);
            if let Some(entry) = session.and_then(|e| e.get_mut(&(key.request, key.step))) {
                entry.state = state;
            }
        }
        Record::Settled { session, below } => {
            if let Some(entries) = entries.get_mut(&session) {
                *entries = entries.split_off(&(below, 0));
            }
        }
        Record::SettledBut {
            session,
            below,
            except,
        } => {
            if let Some(entries) = entries.get_mut(&session) {
                entries.retain(|(id, _), _| *id >= below || except.binary_search(id).is_ok());
            }
        }
    }
}

/// Forgets what no client will ask about any more.
fn drop_old(entries: &mut Entries, now: Duration, age_max: Duration) {
    for session in entries.values_mut() {
        session.retain(|_, entry| {
            let age = now.saturating_sub(Duration::from_secs(entry.intent.unix_seconds()));
            age < age_max || entry.state == State::Begun
        });
    }
    entries.retain(|_, session| !session.is_empty());
}

fn records_of(entries: &Entries) -> impl Iterator<Item = Record> {
    entries.iter().flat_map(|(session, entries)| {
        entries.iter().flat_map(|((request, step), entry)| {
            let key = Key {
                session: *session,
                request: *request,
                step: *step,
            };
            let intent = Record::Intent {
                key,
                intent: entry.intent.clone(),
            };
            let end = (entry.state != State::Begun).then(|| Record::End {
                key,
                state: entry.state.clone(),
            });
            std::iter::once(intent).chain(end)
        })
    })
}

/// What was appended and is not in its file any more has not been appended.
fn forget_lost_appends(entries: &mut Entries, volumes: &Volumes) {
    let all = entries.values_mut().flat_map(BTreeMap::values_mut);
    let (mut appends, mut ends) = (Vec::new(), Vec::new());
    for entry in all {
        if let (Act::Append { file, .. }, State::Done(done)) = (&entry.intent.act, &entry.state)
            && let Some((offset, bytes)) = done.written
        {
            ends.push((file.clone(), offset + bytes));
            appends.push(entry);
        }
    }
    for (entry, is_there) in appends.into_iter().zip(resolve::reach(&ends, volumes)) {
        if !is_there {
            entry.state = State::NotDone;
        }
    }
}

/// Files that were made with contents may be there without them: they are looked at anew.
fn doubt_contents(entries: &mut Entries) {
    for entry in entries.values_mut().flat_map(BTreeMap::values_mut) {
        let fills = matches!(entry.intent.act, Act::Make { fills: true, .. });
        if fills && matches!(entry.state, State::Done(_)) {
            entry.state = State::Begun;
        }
    }
}

/// Gives every open intent a verdict.
fn resolve_all(entries: &mut Entries, volumes: &Volumes) {
    let open: Vec<&mut Entry> = entries
        .values_mut()
        .flat_map(BTreeMap::values_mut)
        .filter(|entry| entry.state == State::Begun)
        .collect();
    if open.is_empty() {
        return;
    }
    tracing::info!(
        count = open.len(),
        "looking what became of interrupted requests"
    );
    let intents: Vec<Intent> = open.iter().map(|entry| entry.intent.clone()).collect();
    let verdicts = resolve::resolve(&intents, volumes);
    for (entry, verdict) in open.into_iter().zip(verdicts) {
        entry.state = verdict;
    }
}

fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
