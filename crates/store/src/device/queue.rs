//! Requests to a device, and the bound on what is under way.

use super::{AlignedBuffer, BLOCK_BYTES};
use base::limits::{DEVICE_REQUESTS_MAX, DEVICE_TIME_MAX};
use base::{BlockDevice, DeviceAction, DeviceError, Extent};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// What a device is to do. Offsets and lengths are whole blocks of [`BLOCK_BYTES`].
#[derive(Debug)]
pub enum Request {
    /// Fill the buffer from `offset`.
    Read {
        /// Where on the device, in bytes.
        offset: u64,
        /// As many bytes as it is long; at least one block.
        buffer: AlignedBuffer,
    },
    /// Write the buffer at `offset`.
    Write {
        /// Where on the device, in bytes.
        offset: u64,
        /// At least one block.
        buffer: AlignedBuffer,
    },
    /// Make every write durable that was submitted before.
    Flush,
}

/// A request that has been carried out, or not. A buffer that was to be filled has any content if
/// the result is an error.
#[derive(Debug)]
pub struct Done {
    /// The request, with its buffer.
    pub request: Request,
    /// What came of it.
    pub result: Result<(), DeviceError>,
}

/// Is called on the queue's own thread: it hands the outcome on and returns. It must not submit,
/// because the room for what it submits is made by this thread.
pub type Completion = Box<dyn FnOnce(Done) + Send>;

/// A device that carries out requests without making their submitter wait. The rules are in the
/// module's head.
pub trait Queue: Send + Sync {
    /// What is below; for its length, and for trims, which are not queued.
    fn device(&self) -> &dyn BlockDevice;

    /// Hands over a request; waits while too much is under way. `completion` is called exactly
    /// once if the request was taken.
    ///
    /// # Errors
    /// [`DeviceError`]: the request was not taken and `completion` is not called. It is not on the
    /// device or not in whole blocks; the queue has been stopped; or there was no room for it for
    /// `DEVICE_TIME_MAX`.
    fn submit(&self, request: Request, completion: Completion) -> Result<(), DeviceError>;

    /// Reads at once, on the caller's thread: what is small, and needed before anything else can be
    /// done. It counts among what is under way.
    ///
    /// # Errors
    /// As the device says; [`DeviceError::Failed`] if the queue has been stopped or there was no
    /// room for `DEVICE_TIME_MAX`.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError>;

    /// Takes nothing more and waits until everything that was taken has been answered, at most
    /// `DEVICE_TIME_MAX`. The device's lock is given back with the last share of it. False: the
    /// device does not answer. Also done when the queue is dropped.
    fn stop(&self) -> bool;

    /// Hands over a request whose outcome is waited for later.
    ///
    /// # Errors
    /// See [`Self::submit`].
    fn start(&self, request: Request) -> Result<Pending, DeviceError> {
        let about = (request.action(), request.extent());
        let (sender, outcome) = mpsc::sync_channel(1);
        // Nobody may be waiting any more; then nobody wants to know.
        let tell = move |done| drop(sender.try_send(done));
        self.submit(request, Box::new(tell))?;
        Ok(Pending { about, outcome })
    }
}

/// The outcome of a request that was started.
#[derive(Debug)]
pub struct Pending {
    about: (DeviceAction, Extent),
    outcome: Receiver<Done>,
}

impl Pending {
    /// Waits for it, at most `DEVICE_TIME_MAX`.
    ///
    /// # Errors
    /// As the device says; [`DeviceError::Failed`] with [`io::ErrorKind::TimedOut`] if it does not
    /// answer. The buffer is gone then.
    pub fn wait(self) -> Result<Request, DeviceError> {
        let reason = match self.outcome.recv_timeout(DEVICE_TIME_MAX) {
            Ok(done) => return done.result.map(|()| done.request),
            Err(RecvTimeoutError::Timeout) => io::ErrorKind::TimedOut,
            Err(RecvTimeoutError::Disconnected) => io::ErrorKind::BrokenPipe,
        };
        let (action, extent) = self.about;
        Err(DeviceError::Failed {
            action,
            extent,
            source: reason.into(),
        })
    }
}

impl Request {
    /// What it asks for.
    #[must_use]
    pub fn action(&self) -> DeviceAction {
        match self {
            Self::Read { .. } => DeviceAction::Read,
            Self::Write { .. } => DeviceAction::Write,
            Self::Flush => DeviceAction::Flush,
        }
    }

    /// Where; empty for a flush.
    #[must_use]
    pub fn extent(&self) -> Extent {
        match self {
            Self::Read { offset, buffer } | Self::Write { offset, buffer } => {
                Extent::new(*offset, buffer.len() as u64)
            }
            Self::Flush => Extent::default(),
        }
    }

    /// The buffer; a flush has none.
    #[must_use]
    pub fn into_buffer(self) -> Option<AlignedBuffer> {
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => Some(buffer),
            Self::Flush => None,
        }
    }

    /// Whether a device of this length can be asked.
    pub(super) fn check(&self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        let (Self::Read { offset, buffer } | Self::Write { offset, buffer }) = self else {
            return Ok(());
        };
        let extent = device.extent_at(*offset, buffer.len())?;
        let numbers = extent.offset | extent.len;
        if extent.is_empty() || !numbers.is_multiple_of(u64::from(BLOCK_BYTES)) {
            let reason = io::Error::new(io::ErrorKind::InvalidInput, "not in whole blocks");
            return Err(self.failed(reason));
        }
        Ok(())
    }

    pub(super) fn failed(&self, source: io::Error) -> DeviceError {
        DeviceError::Failed {
            action: self.action(),
            extent: self.extent(),
            source,
        }
    }

    pub(super) fn failed_as(&self, kind: io::ErrorKind) -> DeviceError {
        self.failed(kind.into())
    }
}

/// How much may be under way. Shared by a queue and the permits it has given.
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: u64,
    used: Mutex<Used>,
    /// Something has come to an end, or the queue has been stopped.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Used {
    bytes: u64,
    requests: usize,
    /// Who waits for a change: nobody is told that nobody waits for.
    waiting: usize,
    is_closed: bool,
}

/// Room for one request. It goes with the request and gives the room back when dropped.
pub(super) struct Permit {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub(super) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            used: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Waits for room. A request larger than all room goes alone.
    pub(super) fn enter(self: &Arc<Self>, bytes: u64) -> Result<Permit, io::ErrorKind> {
        let end = Instant::now() + DEVICE_TIME_MAX;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if used.is_closed {
                return Err(io::ErrorKind::BrokenPipe);
            }
            let fits = used.bytes + bytes <= self.bytes_max || used.bytes == 0;
            if fits && used.requests < DEVICE_REQUESTS_MAX {
                used.bytes += bytes;
                used.requests += 1;
                return Ok(Permit {
                    room: Arc::clone(self),
                    bytes,
                });
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut);
            }
            used.waiting += 1;
            let waited = self.changed.wait_timeout(used, left);
            used = waited.unwrap_or_else(PoisonError::into_inner).0;
            used.waiting -= 1;
        }
    }

    /// Gives nobody room any more.
    pub(super) fn close(&self) {
        self.used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until all permits are back, at most `DEVICE_TIME_MAX`.
    pub(super) fn wait_until_empty(&self) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.waiting += 1;
        let busy = |used: &mut Used| used.requests > 0;
        let waited = self.changed.wait_timeout_while(used, DEVICE_TIME_MAX, busy);
        let (mut used, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        used.waiting -= 1;
        !timeout.timed_out()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut used = self
            .room
            .used
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        used.bytes -= self.bytes;
        used.requests -= 1;
        let is_awaited = used.waiting > 0;
        drop(used);
        if is_awaited {
            self.room.changed.notify_all();
        }
    }
}

/// Reads on the caller's thread when there is room for it.
pub(super) fn read_now(
    device: &dyn BlockDevice,
    room: &Arc<Room>,
    offset: u64,
    into: &mut [u8],
) -> Result<(), DeviceError> {
    let extent = device.extent_at(offset, into.len())?;
    let _permit = room.enter(extent.len).map_err(|kind| DeviceError::Failed {
        action: DeviceAction::Read,
        extent,
        source: kind.into(),
    })?;
    device.read_at(offset, into)
}

/// Waits until a queue that takes nothing more has answered everything, and then for its thread,
/// which holds a share of the device. False: the device does not answer.
pub(super) fn finish(room: &Room, worker: &Mutex<Option<JoinHandle<()>>>) -> bool {
    let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(handle) = worker.take() else {
        return true;
    };
    if handle.thread().id() == thread::current().id() {
        // A completion held the last share of its queue: the thread ends when it returns.
        return true;
    }
    let is_empty = room.wait_until_empty();
    if is_empty {
        // It has nothing left to do; a panic there has been printed there.
        drop(handle.join());
    }
    is_empty
}

/// A request on its way through a queue. Whatever happens to it, its completion is called: dropped
/// without an answer, it says that the queue has failed.
pub(super) struct Submission {
    pub(super) request: Request,
    /// `None` once it has been called, or will not be.
    completion: Option<Completion>,
    /// Given back last: who waits for an empty queue has then seen every answer.
    _permit: Permit,
}

impl Submission {
    /// Checks the request and waits for room for it.
    pub(super) fn new(
        device: &dyn BlockDevice,
        room: &Arc<Room>,
        request: Request,
        completion: Completion,
    ) -> Result<Self, DeviceError> {
        request.check(device)?;
        match room.enter(request.extent().len) {
            Ok(permit) => Ok(Self {
                request,
                completion: Some(completion),
                _permit: permit,
            }),
            Err(kind) => Err(request.failed_as(kind)),
        }
    }

    /// Answers. A completion that panics is a bug of its own and must not take the queue, with
    /// everybody else's buffers, along.
    pub(super) fn answer(mut self, result: Result<(), DeviceError>) {
        self.call(result);
    }

    /// Is not taken after all: the submitter is told, the completion is not called.
    pub(super) fn refuse(mut self) -> DeviceError {
        self.completion = None;
        self.request.failed_as(io::ErrorKind::BrokenPipe)
    }

    fn call(&mut self, result: Result<(), DeviceError>) {
        if let Some(completion) = self.completion.take() {
            let request = std::mem::replace(&mut self.request, Request::Flush);
            let call = AssertUnwindSafe(|| completion(Done { request, result }));
            // The panic's text has been printed where it happened.
            drop(catch_unwind(call));
        }
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        let lost = self.request.failed_as(io::ErrorKind::BrokenPipe);
        self.call(Err(lost));
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_lost_is_answered_and_one_that_is_refused_is_not() {
        let room = Room::new(1);
        let (sender, answers) = mpsc::channel();
        let submission = || {
            let sender = sender.clone();
            Submission {
                request: Request::Flush,
                completion: Some(Box::new(move |done: Done| {
                    sender.send(done.result).unwrap()
                })),
                _permit: room.enter(0).unwrap(),
            }
        };
        drop(submission());
        let lost = answers.try_recv().unwrap().unwrap_err();
        let DeviceError::Failed { source, .. } = lost else {
            panic!("{lost}")
        };
        assert_eq!(source.kind(), io::ErrorKind::BrokenPipe);
        submission().refuse();
        assert!(answers.try_recv().is_err());
        submission().answer(Ok(()));
        assert!(answers.try_recv().unwrap().is_ok());
        assert!(answers.try_recv().is_err(), "once");
        assert!(room.wait_until_empty());
    }

    #[test]
    fn a_small_read_waits_for_room_like_everything_else() {
        let device = crate::memory::MemoryDevice::new(1 << 20);
        let room = Room::new(4096);
        let full = room.enter(4096).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let read = read_now(&device, &room, 512, &mut [0; 100]);
                (read.is_ok(), Instant::now())
            });
            thread::sleep(std::time::Duration::from_millis(30));
            let given_back = Instant::now();
            drop(full);
            let (is_read, at) = reader.join().unwrap();
            assert!(is_read && at >= given_back);
        });
        assert!(room.wait_until_empty());
        room.close();
        assert!(read_now(&device, &room, 0, &mut [0; 1]).is_err());
    }

    #[test]
    fn room_is_bounded_given_back_and_closed() {
        let room = Room::new(100);
        let large = room.enter(500).unwrap();
        let waiter = Arc::clone(&room);
        let waiting = thread::spawn(move || waiter.enter(60).map(|_| Instant::now()));
        let given_back = Instant::now();
        drop(large);
        assert!(waiting.join().unwrap().unwrap() >= given_back);
        let some = room.enter(60).unwrap();
        let waiter = Arc::clone(&room);
        let waiting = thread::spawn(move || waiter.enter(60).map(drop));
        room.close();
        assert_eq!(waiting.join().unwrap(), Err(io::ErrorKind::BrokenPipe));
        drop(some);
        assert!(room.wait_until_empty());
    }
}
