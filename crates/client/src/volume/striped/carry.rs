//! Carrying steps out at stores.

use super::append::Given;
use super::behind::waits_for_appends;
use super::map::{Part, parts};
use super::{Stripes, Volume, fs_error, place};
use crate::cache::NodeId;
use crate::clock::now;
use crate::object::{ObjectCallError, StoreClient, Written};
use crate::transport::{Call, CallError, OVER, TimeLimit};
use crate::volume::sync::worse;
use base::limits::{COMMIT_TRIES_MAX, DATA_BYTES_MAX, PIECE_CHANGES_MAX};
use base::{Extent, FsError, Handle, ObjectId, Principal, ServerId, Time, WriteVerifier};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use wire::message::{
    FileColumn, FileLayout, FileRef, LayoutPurpose, ObjectError, ObjectStep, Refusal, Step,
    StepReply, StoredWhat, Target, WriteAt,
};
use wire::payload::Payload;

/// The end of objects of files: they have none.
const NEVER_SECS: u64 = u64::MAX;
/// Longest pause before something is tried once more.
const PAUSE_MAX: Duration = Duration::from_millis(250);

pub(super) type Result<T, E = FsError> = std::result::Result<T, E>;
type Results = Vec<Result<StepReply>>;

/// Largest part of an object in one request; of writes it may be less. The server cuts it for its
/// device, and what it takes is counted whole (see [`crate::object`]).
const PART_BYTES_MAX: u64 = DATA_BYTES_MAX as u64;

/// The run of a server in which something was done.
pub(super) type Run = (ServerId, WriteVerifier);

/// What was done, and in which runs of the storage servers.
pub(super) type Done<T> = (T, Vec<Run>);

/// What the manager is told of a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// The file reaches up to here at least.
    pub(super) end: u64,
    /// What was changed.
    pub(super) extent: Extent,
    pub(super) what: StoredWhat,
    /// The place, if it is an append.
    pub(super) place: Option<u64>,
}

/// One request under way.
pub(super) struct Carrying<'a> {
    pub(super) volume: &'a Volume,
    stripes: &'a Stripes,
    pub(super) node: NodeId,
    pub(super) who: &'a Principal,
    /// Of what the manager is asked.
    pub(super) time_limit: TimeLimit,
    seen: Seen,
    /// How long it has waited for appends of others, in nanoseconds.
    pub(super) waited_nanos: AtomicU64,
}

/// How many recalls had been received before what is answered was found out.
#[derive(Debug)]
struct Seen {
    /// Before the last question.
    last: AtomicU64,
    /// Before the first one whose answer tells a state of the file. What is asked later, for other
    /// steps of a request, makes neither that state nor its lease any younger.
    state: AtomicU64,
}

impl Seen {
    fn new(seen: u64) -> Self {
        Self {
            last: AtomicU64::new(seen),
            state: AtomicU64::new(u64::MAX),
        }
    }

    /// A request begins, or does so once more.
    fn begin(&self) {
        self.state.store(u64::MAX, Ordering::Relaxed);
    }

    fn on_asked(&self, seen: u64) {
        self.last.store(seen, Ordering::Relaxed);
    }

    /// What was asked last tells a state.
    fn on_state(&self) {
        let last = self.last.load(Ordering::Relaxed);
        self.state.fetch_min(last, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        let last = self.last.load(Ordering::Relaxed);
        last.min(self.state.load(Ordering::Relaxed))
    }
}

impl<'a> Carrying<'a> {
    pub(super) fn new(
        volume: &'a Volume,
        stripes: &'a Stripes,
        (node, who): (NodeId, &'a Principal),
        (time_limit, recalls_seen): (TimeLimit, u64),
    ) -> Self {
        Self {
            volume,
            stripes,
            node,
            who,
            time_limit,
            seen: Seen::new(recalls_seen),
            waited_nanos: AtomicU64::new(0),
        }
    }

    pub(super) fn recalls_seen(&self) -> u64 {
        self.seen.get()
    }

    /// Carries all steps out, in the run of each server that is the latest when all is done: what
    /// was done in one before may be lost, and what was read there may have been; for as long as a
    /// request may be tried again. Says which verifier all runs have together, if it got so far.
    pub(super) async fn all(
        &self,
        mut steps: Vec<Step>,
        payload: Bytes,
    ) -> (Results, Payload, Option<WriteVerifier>) {
        let mut places = BTreeMap::new();
        let mut tries = 0;
        let done = loop {
            let was_heard = self.volume.transport.is_heard();
            let done = match self.give_places(&mut steps, &mut places).await {
                Ok(()) => {
                    let payload = payload.clone();
                    self.in_one_run(&steps, &mut places, payload).await
                }
                Err(error) => (vec![Err(error)], Payload::new(), None),
            };
            let is_late = matches!(done.0.last(), Some(Err(FsError::TimedOut)));
            let failed = steps.get(done.0.len().saturating_sub(1));
            let is_write = matches!(failed, Some(Step::Write { .. }));
            if !is_late || !is_write || !self.keeps(was_heard) {
                break done;
            }
            pause(tries).await;
            tries += 1;
        };
        // Before anybody is told that it failed.
        self.give_places_up(&steps, &places).await;
        done
    }

    /// Whether what was written and could not be stored in its time is kept and tried once more,
    /// an append in its place. `was_heard` says whether the manager was heard when that began. As
    /// long as it is not, nobody goes on. While a storage server is away, others do, and want
    /// memory for what they write.
    fn keeps(&self, was_heard: bool) -> bool {
        let (volume, transport) = (self.volume, &self.volume.transport);
        let is_heard = was_heard && transport.is_heard();
        let is_endless = self.time_limit == TimeLimit::Endless && !transport.is_closed();
        is_endless && (!is_heard || volume.has_memory_to_keep())
    }

    async fn in_one_run(
        &self,
        steps: &[Step],
        places: &mut BTreeMap<usize, Given>,
        payload: Bytes,
    ) -> (Results, Payload, Option<WriteVerifier>) {
        // It begins when a server has begun anew: until then it was waited for.
        let mut patience = None;
        loop {
            let (results, data, runs) = self.once(steps, places, payload.clone()).await;
            let current = self.stripes.servers.runs.current(&runs);
            if current.is_some() {
                return (results, data, current);
            }
            if matches!(results.last(), Some(Err(_))) {
                // What was stored before that is lost.
                return (results, data, Some(OVER));
            }
            let patience = patience.get_or_insert_with(|| self.patience());
            if let Err(error) = patience.wait().await {
                return (vec![Err(error)], Payload::new(), None);
            }
        }
    }

    async fn once(
        &self,
        steps: &[Step],
        places: &mut BTreeMap<usize, Given>,
        mut payload: Bytes,
    ) -> (Results, Payload, Vec<Run>) {
        let (mut results, mut runs, mut out) = (Vec::new(), Vec::new(), Payload::new());
        self.seen.begin();
        for (index, step) in steps.iter().enumerate() {
            let result = match step {
                Step::Read {
                    file,
                    offset,
                    bytes,
                } => {
                    let extent = Extent::new(*offset, u64::from(*bytes));
                    self.read(file, extent).await.map(|(data, runs)| {
                        let reply = StepReply::Data {
                            bytes: data.len() as u32,
                            end_of_file: (data.len() as u64) < extent.len,
                        };
                        out = data;
                        (reply, runs)
                    })
                }
                Step::Write { file, at, bytes } => {
                    let data = payload.split_to((*bytes as usize).min(payload.len()));
                    match places.get_mut(&index) {
                        Some(given) => self.append(file, given, data).await,
                        None => self.write(file, *at, data).await,
                    }
                }
                Step::Allocate { file, mode, extent } => self.allocate(file, *mode, *extent).await,
                Step::Seek { file, offset, what } => self.seek(file, *offset, *what).await,
                Step::Commit { .. } | Step::SyncFileSystem { .. } => self.commit(step).await,
                other => self.ask(other.clone()).await.map(|reply| (reply, vec![])),
            };
            if !matches!(step, Step::Read { .. } | Step::Seek { .. }) {
                self.seen.on_state();
            }
            match result {
                Ok((reply, done_in)) => {
                    results.push(Ok(reply));
                    runs.extend(done_in);
                }
                Err(error) => {
                    results.push(Err(error));
                    break;
                }
            }
        }
        (results, out, runs)
    }

    /// Asks the manager.
    pub(super) async fn ask(&self, step: Step) -> Result<StepReply> {
        let (reply, response) = match waits_for_appends(&step) {
            true => self.ask_behind_appends(step).await?,
            false => {
                let call = Call::within(self.time_limit);
                self.volume.step_by(self.who, step, call).await?
            }
        };
        self.seen.on_asked(response.recalls_seen);
        Ok(reply)
    }

    /// Whether nothing but appending is allowed.
    pub(super) fn only_appends(&self, file: &FileRef) -> bool {
        self.volume.only_appends(file.open)
    }

    pub(super) async fn layout(
        &self,
        file: &FileRef,
        purpose: LayoutPurpose,
    ) -> Result<std::sync::Arc<FileLayout>> {
        let asked = (purpose, self.time_limit);
        let layout = self.volume.layout(self.stripes, self.who, file, asked);
        layout.await
    }

    pub(super) async fn store(&self, column: &FileColumn) -> Result<StoreClient> {
        self.stripes.store(self.volume, column).await
    }

    pub(super) async fn true_size(&self, file: &FileRef) -> Result<u64> {
        self.volume.true_size(self.node, self.who, file).await
    }

    /// What no object has is a hole, if the file is still there.
    pub(super) async fn check_there(&self, file: &FileRef) -> Result<()> {
        let target = file.target.clone();
        self.ask(Step::Attributes { target }).await.map(drop)
    }

    /// How long a request may be tried again.
    pub(super) fn patience(&self) -> Patience {
        self.volume.patience()
    }

    /// A layout is not true any more.
    pub(super) fn forget(&self, handle: &Handle) {
        self.stripes.forget(handle);
    }

    async fn read(&self, file: &FileRef, extent: Extent) -> Result<Done<Payload>> {
        let size = self.true_size(file).await?;
        let wanted = extent.intersection(Extent::new(0, size));
        if wanted.is_empty() {
            return Ok((Payload::new(), Vec::new()));
        }
        let layout = self.layout(file, LayoutPurpose::Read).await?;
        let parts = parts(&layout, wanted, PART_BYTES_MAX);
        let mut reading = JoinSet::new();
        for (index, part) in parts.iter().copied().enumerate() {
            let store = self.store(&part.column).await?;
            reading.spawn(async move { (index, read_part(&store, part).await) });
        }
        let mut found = vec![Payload::new(); parts.len()];
        let (mut runs, mut lacks_object) = (Vec::new(), false);
        while let Some(read) = reading.join_next().await {
            let (index, read) = read.map_err(|_| FsError::Io)?;
            match read {
                Ok((data, run)) => {
                    runs.push((parts[index].column.server, run));
                    found[index] = data;
                }
                Err(ObjectCallError::Object(ObjectError::NotFound)) => lacks_object = true,
                Err(error) => return Err(fs_error(error)),
            }
        }
        if lacks_object {
            self.check_there(file).await?;
        }
        let mut whole = Payload::new();
        for (mut data, part) in found.into_iter().zip(&parts) {
            let len = part.file.len as usize;
            data.truncate(len);
            let missing = len - data.len();
            whole.append(data);
            whole.push_zeros(missing);
        }
        Ok((whole, runs))
    }

    pub(super) async fn write(
        &self,
        file: &FileRef,
        at: WriteAt,
        data: Bytes,
    ) -> Result<Done<StepReply>> {
        let offset = match at {
            WriteAt::Offset(offset) | WriteAt::Again(offset) => offset,
            WriteAt::End => return Err(FsError::Invalid),
        };
        let extent = Extent::new(offset, data.len() as u64);
        let purpose = match at {
            WriteAt::Again(_) => LayoutPurpose::WritePartAgain(extent),
            _ => LayoutPurpose::Write,
        };
        let act = |store: StoreClient, generation: u64, part: Part| {
            let data = data_of(&data, offset, part.file);
            async move { write_part(&store, generation, part, data).await }
        };
        let pieces = |layout: &FileLayout| self.pieces(layout, extent);
        let told = Told {
            end: extent.end(),
            extent,
            what: StoredWhat::Data,
            place: None,
        };
        let (reply, runs) = self.change(file, (purpose, told), pieces, act).await?;
        let StepReply::Attributes { attributes, .. } = reply else {
            return Err(FsError::Io);
        };
        let reply = StepReply::Written {
            offset,
            bytes: extent.len,
            attributes,
        };
        Ok((reply, runs))
    }

    /// The parts in which bytes of a file are written.
    pub(super) fn pieces(&self, layout: &FileLayout, extent: Extent) -> Vec<(FileColumn, Part)> {
        let known = layout.columns.iter();
        let known = known.filter_map(|column| self.stripes.known_store(column));
        let part_bytes = known.map(|store| store.write_part_bytes()).min();
        let part_bytes = part_bytes.unwrap_or(PART_BYTES_MAX);
        let parts = parts(layout, extent, part_bytes).into_iter();
        parts.map(|part| (part.column, part)).collect()
    }

    /// Changes pieces of a file at the stores, and tells the manager.
    pub(super) async fn change<P, F>(
        &self,
        file: &FileRef,
        (purpose, told): (LayoutPurpose, Told),
        pieces: impl Fn(&FileLayout) -> Vec<(FileColumn, P)>,
        act: impl Fn(StoreClient, u64, P) -> F,
    ) -> Result<Done<StepReply>>
    where
        F: Future<Output = Result<Option<WriteVerifier>, ObjectCallError>> + Send + 'static,
    {
        let Target::Handle(handle) = &file.target else {
            return Err(FsError::Invalid);
        };
        let mut patience = self.patience();
        loop {
            let layout = self.layout(file, purpose).await?;
            let pieces = pieces(&layout);
            let changed = self.try_change(file, (layout.generation, told), pieces, &act);
            match changed.await {
                // It is being cut, or was; or another manager takes over.
                Err(FsError::WouldBlock) => patience.pardon(self.take_waited()),
                other => return other,
            }
            self.forget(handle);
            patience.wait().await?;
        }
    }

    /// The same by a layout of this generation.
    ///
    /// # Errors
    /// [`FsError::WouldBlock`] if a new one has begun.
    pub(super) async fn try_change<P, F>(
        &self,
        file: &FileRef,
        (generation, told): (u64, Told),
        pieces: Vec<(FileColumn, P)>,
        act: &impl Fn(StoreClient, u64, P) -> F,
    ) -> Result<Done<StepReply>>
    where
        F: Future<Output = Result<Option<WriteVerifier>, ObjectCallError>> + Send + 'static,
    {
        let mut changing = JoinSet::new();
        let mut runs = Vec::new();
        let mut pieces = pieces.into_iter();
        let mut failed = Ok(());
        loop {
            let next = match failed.is_ok() && changing.len() < PIECE_CHANGES_MAX {
                true => pieces.next(),
                false => None,
            };
            if let Some((column, piece)) = next {
                match self.store(&column).await {
                    Ok(store) => {
                        let place = place(&column);
                        self.stripes.dirty().on_write(place);
                        let changing_piece = act(store, generation, piece);
                        changing.spawn(async move { (place, changing_piece.await) });
                    }
                    Err(error) => failed = Err(error),
                }
                continue;
            }
            // Also after an error: a piece that is on its way would land upon what comes later.
            let Some(changed) = changing.join_next().await else {
                break;
            };
            let (place, run) = changed.map_err(|_| FsError::Io)?;
            self.stripes.dirty().on_write(place);
            match run {
                Ok(run) => runs.extend(run.map(|run| (place.0, run))),
                Err(error) => failed = failed.and(Err(fs_error(error))),
            }
        }
        failed?;
        let noted = self.ask(Step::Stored {
            file: file.clone(),
            generation,
            end: told.end,
            extent: told.extent,
            what: told.what,
            place: told.place,
        });
        Ok((noted.await?, runs))
    }

    /// Makes durable what is at the stores, then asks the manager for the rest.
    async fn commit(&self, step: &Step) -> Result<Done<StepReply>> {
        let layout = match step {
            Step::Commit { file, .. } => self.stripes.known_layout(file),
            _ => None,
        };
        let due: Vec<(FileColumn, Option<u64>)> = match layout {
            // Of the stores in which nothing of the file lies, nothing is asked.
            Some(layout) => layout
                .columns
                .iter()
                .map(|column| (*column, None))
                .collect(),
            None => {
                let column = |((server, store), last)| {
                    let object = ObjectId([0; 16]);
                    let column = FileColumn {
                        server,
                        store,
                        object,
                    };
                    (column, Some(last))
                };
                self.stripes.dirty().all().into_iter().map(column).collect()
            }
        };
        let runs = self.commit_at(due).await?;
        Ok((self.ask(step.clone()).await?, runs))
    }

    /// Makes durable what is at stores; of each, which write is the last that is covered if all of
    /// them are.
    pub(super) async fn commit_at(&self, due: Vec<(FileColumn, Option<u64>)>) -> Result<Vec<Run>> {
        let mut committing = JoinSet::new();
        for (column, last) in due {
            let store = self.store(&column).await?;
            let place = place(&column);
            committing.spawn(async move { (place, last, store.commit().await) });
        }
        let (mut runs, mut outcome) = (Vec::new(), Ok(()));
        while let Some(committed) = committing.join_next().await {
            let (place, last, committed) = committed.map_err(|_| FsError::Io)?;
            match committed {
                Ok(committed) => {
                    if let Some(last) = last {
                        self.stripes.dirty().on_committed(place, last);
                    }
                    runs.push((place.0, committed.verifier));
                }
                Err(error) => outcome = worse(outcome, Err(flush_error(error))),
            }
        }
        outcome.map(|()| runs)
    }
}

/// What became of a flush. A session that broke, or a store that puts it off, does not say that it
/// has failed: all that it was to cover stays here, and is flushed once more.
fn flush_error(error: ObjectCallError) -> FsError {
    use Refusal::{Cancelled, NoSession, Overloaded};
    match error {
        ObjectCallError::Call(
            CallError::Closed | CallError::Refused(NoSession | Overloaded | Cancelled),
        ) => FsError::TimedOut,
        error => fs_error(error),
    }
}

async fn read_part(
    store: &StoreClient,
    part: Part,
) -> Result<(Payload, WriteVerifier), ObjectCallError> {
    let step = ObjectStep::Read {
        object: part.column.object,
        offset: part.offset,
        bytes: part.file.len as u32,
    };
    let (_, data, verifier) = store.batch(vec![step], Bytes::new()).await?;
    Ok((data, verifier))
}

/// The bytes for a part of a file, of those that begin at an offset there.
pub(super) fn data_of(data: &Bytes, offset: u64, part: Extent) -> Bytes {
    let from = (part.offset - offset) as usize;
    data.slice(from..from + part.len as usize)
}

pub(super) async fn write_part(
    store: &StoreClient,
    generation: u64,
    part: Part,
    data: Bytes,
) -> Result<Option<WriteVerifier>, ObjectCallError> {
    let object = part.column.object;
    made(store, object, || {
        store.write_under(object, generation, part.offset, data.clone())
    })
    .await
}

/// Changes an object, which is made first if it is not there.
pub(super) async fn made<F>(
    store: &StoreClient,
    object: ObjectId,
    change: impl Fn() -> F,
) -> Result<Option<WriteVerifier>, ObjectCallError>
where
    F: Future<Output = Result<Written, ObjectCallError>>,
{
    let mut attempt = 0;
    let changed = loop {
        match change().await {
            Err(ObjectCallError::Object(ObjectError::NotFound)) if attempt < COMMIT_TRIES_MAX => {
                if attempt > 1 {
                    pause(attempt).await;
                }
                match store.create(object, Some(NEVER_SECS)).await {
                    // Somebody else was first.
                    Ok(_) | Err(ObjectCallError::Object(ObjectError::Exists)) => {}
                    Err(error) => return Err(error),
                }
                // A server that starts anew may lose it before it is changed.
                attempt += 1;
            }
            changed => break changed,
        }
    };
    Ok(Some(changed?.verifier))
}

/// How long something is tried again that is not possible yet: as long as a request waits for a
/// server that is away. A cut takes what the stores take to flush.
pub(super) struct Patience {
    attempt: usize,
    begin: Time,
    limit: Duration,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            attempt: 0,
            begin: now(),
            limit,
        }
    }

    /// So much of the time does not count.
    pub(super) fn pardon(&mut self, time: Duration) {
        self.begin = self.begin + time;
    }

    /// Waits a little before the next try, longer each time.
    ///
    /// # Errors
    /// [`FsError::TimedOut`].
    pub(super) async fn wait(&mut self) -> Result<()> {
        if now().since(self.begin) >= self.limit {
            return Err(FsError::TimedOut);
        }
        pause(self.attempt).await;
        self.attempt += 1;
        Ok(())
    }
}

/// Waits a little before something is tried once more, longer each time.
async fn pause(attempt: usize) {
    let pause = Duration::from_millis(1 << attempt.min(10)).min(PAUSE_MAX);
    tokio::time::sleep(pause).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recall that comes between a lease and the size that is asked for the read behind it.
    #[test]
    fn a_state_is_no_younger_for_what_is_asked_after_it() {
        let seen = Seen::new(3);
        assert_eq!(seen.get(), 3);
        // The attributes, with a lease; then the size, for the read.
        seen.begin();
        seen.on_asked(5);
        seen.on_state();
        seen.on_asked(6);
        assert_eq!(seen.get(), 5);
        // All of it once more, because a store has begun anew.
        seen.begin();
        seen.on_asked(7);
        seen.on_state();
        seen.on_asked(8);
        assert_eq!(seen.get(), 7);
        // A read alone is as young as what it was read by.
        seen.begin();
        seen.on_asked(9);
        assert_eq!(seen.get(), 9);
    }
}
