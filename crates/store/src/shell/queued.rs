//! The device as a store's core sees it: writes of data do not wait.
//!
//! The core writes data in place while it holds the lock, and calls it durable only after a flush.
//! So a write is handed to the queue, and only a flush has to know what became of it: it waits for
//! every write before it, and fails for ever once one of them has failed. Only the flush of an
//! entry of the log, which speaks of data that has been flushed, waits for none. Reads and further
//! writes of bytes that are being written wait for these. Small reads, small writes and those of
//! part of a block are carried out at once; the reads count among what the device is given at once.
//!
//! What is written from a *payload*, a buffer that was handed over whole, goes down as a share of
//! it; other data is copied once.

use super::gate::{Gate, Pass, Passes};
use crate::device::{AlignedBuffer, BLOCK_BYTES, Direction, Done, Pending, Queue, Request};
use base::limits::{DEVICE_TIME_MAX, STORE_WRITES_BYTES_MAX};
use base::{BlockDevice, DeviceAction, DeviceError, Extent};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Writes from this length on are queued: whole blocks, such as the pieces of a checkpoint, many
/// of which lie at random places.
const QUEUED_BYTES_MIN: usize = BLOCK_BYTES as usize;
/// Up to this length a write is small, and so many of them are under way at once: what a disk's
/// own queue holds. The queue has room for more, so that data does not wait for checkpoints.
const SMALL_BYTES_MAX: usize = 64 << 10;
const SMALL_MAX: usize = 32;
/// Longest request; more gains nothing and keeps others waiting.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A device whose writes are under way when they return.
pub(crate) struct Queued {
    queue: Box<dyn Queue>,
    writes: Arc<Writes>,
    lent: Mutex<Lent>,
    gate: OnceLock<Arc<dyn Gate>>,
    passes: Mutex<Passes>,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
}

/// What comes with the writes of one change.
#[derive(Clone, Default)]
pub(crate) struct Lent {
    /// What is written may be a share of this.
    pub(crate) payload: Option<AlignedBuffer>,
    /// A share of it is held by each write until it is done.
    pub(crate) landing: Option<Sender<()>>,
}

#[derive(Default)]
struct Writes {
    state: Mutex<State>,
    changed: Condvar,
    /// Half of many have been done.
    few: Condvar,
}

#[derive(Default)]
struct State {
    /// By their order; whole blocks.
    under_way: BTreeMap<u64, Extent>,
    next: u64,
    bytes: u64,
    has_failed: bool,
    waiters: usize,
    waiters_for_few: usize,
}

impl Writes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as `busy` says so, at most `DEVICE_TIME_MAX`.
    fn wait(&self, busy: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, io::Error> {
        let mut state = self.lock();
        state.waiters += 1;
        let waited = self
            .changed
            .wait_timeout_while(state, DEVICE_TIME_MAX, |state| busy(state));
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        if timeout.timed_out() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(state)
    }

    /// If many are under way, waits until half of them are done: who woke for each of them would
    /// cost more than the write.
    fn wait_for_few(&self) -> Result<(), io::Error> {
        let mut state = self.lock();
        if state.under_way.len() < SMALL_MAX {
            return Ok(());
        }
        state.waiters_for_few += 1;
        let busy = |state: &mut State| state.under_way.len() > SMALL_MAX / 2;
        let waited = self.few.wait_timeout_while(state, DEVICE_TIME_MAX, busy);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiters_for_few -= 1;
        match timeout.timed_out() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    fn end(&self, number: u64, is_written: bool) {
        let mut state = self.lock();
        if let Some(extent) = state.under_way.remove(&number) {
            state.bytes -= extent.len;
        }
        state.has_failed |= !is_written;
        let is_waited_for = state.waiters > 0;
        let are_few = state.waiters_for_few > 0 && state.under_way.len() <= SMALL_MAX / 2;
        drop(state);
        if are_few {
            self.few.notify_all();
        }
        if is_waited_for {
            self.changed.notify_all();
        }
    }
}

impl State {
    fn touches(&self, extent: Extent) -> bool {
        let touches = |other: &Extent| other.offset < extent.end() && extent.offset < other.end();
        self.under_way.values().any(touches)
    }
}

impl Queued {
    pub(crate) fn new(queue: Box<dyn Queue>) -> Self {
        Self {
            queue,
            writes: Arc::default(),
            lent: Mutex::default(),
            gate: OnceLock::new(),
            passes: Mutex::default(),
            written_bytes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        }
    }

    /// What is written from now on comes with this.
    pub(crate) fn lend(&self, lent: Lent) {
        *self.lent.lock().unwrap_or_else(PoisonError::into_inner) = lent;
    }

    /// Lets a gate decide when the store's own threads write. The first one stays.
    pub(crate) fn set_gate(&self, gate: Arc<dyn Gate>) {
        // There is one who shares the device among users, or two that cannot know of each other.
        let _ = self.gate.set(gate);
    }

    /// The calling thread waits for a commit or a checkpoint.
    pub(crate) fn on_stall(&self) {
        if let Some(gate) = self.gate.get()
            && !Passes::is_needed()
        {
            gate.on_stall();
        }
    }

    /// Asks for a write of the store's own threads.
    fn pass(&self, bytes: usize) -> Option<Arc<Pass>> {
        let gate = self.gate.get().filter(|_| Passes::is_needed())?;
        let (bytes, passes) = (bytes as u64, || {
            self.passes.lock().unwrap_or_else(PoisonError::into_inner)
        });
        if let Some(pass) = passes().use_up(bytes) {
            return Some(pass);
        }
        let pass = gate.enter(Direction::Write, Passes::wanted(bytes));
        Some(passes().put(pass, bytes))
    }

    /// How much may be read at once for a scrub, if anybody says so.
    pub(crate) fn read_bytes_max(&self) -> Option<u64> {
        let max = |gate: &Arc<dyn Gate>| gate.pass_bytes_max(Direction::Read);
        self.gate.get().map(max)
    }

    /// Waits until so many bytes may be read for a scrub; to be called without a lock. What is
    /// returned is dropped when they are read.
    pub(crate) fn turn_to_read(&self, bytes: u64) -> Option<Pass> {
        let enter = |gate: &Arc<dyn Gate>| {
            let bytes = bytes.min(gate.pass_bytes_max(Direction::Read));
            gate.enter(Direction::Read, bytes)
        };
        self.gate.get().map(enter)
    }

    /// Waits until so much more may be written without waiting for the device; to be called
    /// without a lock.
    pub(crate) fn wait_for_room(&self, bytes: usize) -> Result<(), DeviceError> {
        let busy =
            |state: &State| state.bytes > 0 && state.bytes + bytes as u64 > STORE_WRITES_BYTES_MAX;
        let extent = Extent::new(0, bytes as u64);
        let waited = self.writes.wait(busy).map(drop);
        waited.map_err(|source| failed(DeviceAction::Write, extent, source))
    }

    /// Begins to read whole blocks.
    pub(crate) fn start_read(&self, offset: u64, len: usize) -> Result<Pending, DeviceError> {
        self.wait_for(DeviceAction::Read, Extent::new(offset, len as u64))?;
        let buffer = AlignedBuffer::new(len);
        self.queue.start(Request::Read { offset, buffer })
    }

    /// Bytes of writes under way.
    pub(crate) fn under_way_bytes(&self) -> u64 {
        self.writes.lock().bytes
    }

    /// Bytes written and flushes carried out so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.written_bytes), read(&self.flushes))
    }

    /// See [`Queue::stop`].
    pub(crate) fn stop(&self) -> bool {
        self.queue.stop()
    }

    /// Waits until nothing of these blocks is being written.
    fn wait_for(&self, action: DeviceAction, extent: Extent) -> Result<(), DeviceError> {
        let blocks = blocks_around(extent);
        let waited = self.writes.wait(|state| state.touches(blocks)).map(drop);
        waited.map_err(|source| failed(action, extent, source))
    }

    /// Writes in the caller's thread, which waits for nothing else: an entry of the log, say.
    pub(crate) fn write_now(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.written_bytes
            .fetch_add(from.len() as u64, Ordering::Relaxed);
        let bytes = from.len() as u64;
        let enter = |gate: &Arc<dyn Gate>| gate.enter(Direction::Write, bytes);
        let _pass = self.gate.get().map(enter);
        self.write_through(offset, from)
    }

    /// Makes durable what was written by [`Self::write_now`]. It does not wait for other writes
    /// that are under way: those of a checkpoint, many at once, would make each commit beside it as
    /// slow as they are. Once one of them has failed, this fails as well.
    pub(crate) fn flush_now(&self) -> Result<(), DeviceError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let has_failed = self.writes.lock().has_failed;
        self.flush_device(has_failed)
    }

    fn flush_device(&self, has_failed: bool) -> Result<(), DeviceError> {
        if has_failed {
            let source = io::Error::other("a write before it has failed");
            return Err(failed(DeviceAction::Flush, Extent::default(), source));
        }
        self.queue.device().flush()
    }

    fn write_through(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.wait_for(DeviceAction::Write, Extent::new(offset, from.len() as u64))?;
        self.queue.device().write_at(offset, from)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: AlignedBuffer,
        landing: Option<Sender<()>>,
    ) -> Result<(), DeviceError> {
        let pass = self.pass(buffer.len());
        let extent = Extent::new(offset, buffer.len() as u64);
        if buffer.len() <= SMALL_BYTES_MAX {
            self.writes
                .wait_for_few()
                .map_err(|source| failed(DeviceAction::Write, extent, source))?;
        }
        let number = {
            let mut state = self
                .writes
                .wait(|state| state.touches(extent))
                .map_err(|source| failed(DeviceAction::Write, extent, source))?;
            let number = state.next;
            state.next += 1;
            state.bytes += extent.len;
            state.under_way.insert(number, extent);
            number
        };
        let writes = Arc::clone(&self.writes);
        let tell = Box::new(move |done: Done| {
            writes.end(number, done.result.is_ok());
            drop((pass, landing));
        });
        let submitted = self.queue.submit(Request::Write { offset, buffer }, tell);
        if submitted.is_err() {
            self.writes.end(number, false);
        }
        submitted
    }
}

fn blocks_around(extent: Extent) -> Extent {
    let start = extent.offset - extent.offset % BLOCK;
    Extent::between(start, extent.end().next_multiple_of(BLOCK))
}

fn failed(action: DeviceAction, extent: Extent, source: io::Error) -> DeviceError {
    DeviceError::Failed {
        action,
        extent,
        source,
    }
}

impl BlockDevice for Queued {
    fn len_bytes(&self) -> u64 {
        self.queue.device().len_bytes()
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.wait_for(DeviceAction::Read, Extent::new(offset, into.len() as u64))?;
        self.queue.read_now(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.written_bytes
            .fetch_add(from.len() as u64, Ordering::Relaxed);
        let lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let Lent { payload, landing } = match Passes::is_needed() {
            // What a checkpoint writes meanwhile is not part of that change.
            true => Lent::default(),
            false => lent.clone(),
        };
        // Another thread's change must not wait for this one's room at the device.
        drop(lent);
        let is_queued = from.len() >= QUEUED_BYTES_MIN && offset.is_multiple_of(BLOCK);
        let whole = match is_queued {
            true => from.len() - from.len() % BLOCK as usize,
            false => 0,
        };
        for (index, part) in from[..whole].chunks(REQUEST_BYTES_MAX).enumerate() {
            let share = payload.as_ref().and_then(|payload| payload.share_of(part));
            let buffer = share.unwrap_or_else(|| AlignedBuffer::from(part));
            let at = offset + (index * REQUEST_BYTES_MAX) as u64;
            self.submit(at, buffer, landing.clone())?;
        }
        let (offset, rest) = (offset + whole as u64, &from[whole..]);
        if rest.is_empty() {
            return Ok(());
        }
        let _pass = self.pass(rest.len());
        self.write_through(offset, rest)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        if Passes::is_needed() {
            let passes = self.passes.lock();
            passes.unwrap_or_else(PoisonError::into_inner).give_back();
        }
        let error = |source| failed(DeviceAction::Flush, Extent::default(), source);
        let before = self.writes.lock().next;
        let oldest = |state: &State| state.under_way.first_key_value().map(|(number, _)| *number);
        let busy = |state: &State| oldest(state).is_some_and(|oldest| oldest < before);
        let has_failed = self.writes.wait(busy).map_err(error)?.has_failed;
        self.flush_device(has_failed)
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.wait_for(DeviceAction::Trim, extent)?;
        self.queue.device().trim(extent)
    }
}
