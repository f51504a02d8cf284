//! Many requests under way at once, by io_uring.
//!
//! One thread owns the ring and everything under way. Submitters put requests into its inbox and,
//! only if it sleeps, ring its bell: an eventfd that the ring itself watches, so that the thread
//! waits in one place for completions and for news.
//!
//! ```text
//!  submit ──► room (bounded bytes) ──► inbox ──► thread ──► ring ──► device
//!                 ▲                    bell ──►   │  ▲                 │
//!                 └── permit ◄── completion ◄─────┘  └── completions ──┘
//! ```
//!
//! A flush waits in the thread until every write before it has been answered, because the kernel
//! orders nothing. Writes behind it go on: they are neither covered nor delayed.
//!
//! What the kernel has been given, and how its memory is kept: `sys.rs`.

use super::queue::{Completion, Queue, Request, Room, Submission};
use super::sys::{Kernel, Slot};
use super::{BLOCK_BYTES, FileDevice};
use base::limits::DEVICE_IN_FLIGHT_BYTES_MAX;
use base::{BlockDevice, DeviceError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// How often a request is repeated that the kernel interrupts without progress.
const TRIES_MAX: u32 = 16;

/// Carries out requests in any order, many at once.
#[derive(Debug)]
pub struct Ring {
    device: Arc<FileDevice>,
    room: Arc<Room>,
    bell: Arc<Bell>,
    /// `None` once it has been stopped.
    inbox: Mutex<Option<Sender<Submission>>>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Ring {
    /// Starts the ring's thread. `in_flight_bytes_max` is cut to [`DEVICE_IN_FLIGHT_BYTES_MAX`].
    ///
    /// # Errors
    /// If the kernel has no io_uring or does not let this process use it; if there can be no more
    /// threads or descriptors. [`super::InOrder`] works then.
    pub fn new(device: Arc<FileDevice>, in_flight_bytes_max: u64) -> io::Result<Self> {
        let eventfd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let kernel = Kernel::new(device.file(), Arc::clone(&eventfd))?;
        let bell = Arc::new(Bell {
            eventfd,
            is_asleep: AtomicBool::new(false),
        });
        let (sender, inbox) = mpsc::channel();
        let worker = Worker {
            kernel,
            device: Arc::clone(&device),
            bell: Arc::clone(&bell),
            inbox,
            is_open: true,
            sequence: 0,
            writes: BTreeSet::new(),
            flushes: VecDeque::new(),
        };
        let worker = thread::Builder::new()
            .name("device".into())
            .spawn(|| worker.run())?;
        Ok(Self {
            device,
            room: Room::new(in_flight_bytes_max.min(DEVICE_IN_FLIGHT_BYTES_MAX)),
            bell,
            inbox: Mutex::new(Some(sender)),
            worker: Mutex::new(Some(worker)),
        })
    }
}

impl Queue for Ring {
    fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn submit(&self, request: Request, completion: Completion) -> Result<(), DeviceError> {
        if self.device.is_read_only() && matches!(request, Request::Write { .. }) {
            return Err(DeviceError::ReadOnly);
        }
        let submission = Submission::new(self.device(), &self.room, request, completion)?;
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = inbox.as_ref() else {
            return Err(submission.refuse());
        };
        sender
            .send(submission)
            .map_err(|returned| returned.0.refuse())?;
        self.bell.ring();
        Ok(())
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        super::queue::read_now(self.device(), &self.room, offset, into)
    }

    fn stop(&self) -> bool {
        self.room.close();
        self.inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.bell.ring();
        super::queue::finish(&self.room, &self.worker)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Wakes the thread.
#[derive(Debug)]
struct Bell {
    eventfd: Arc<OwnedFd>,
    is_asleep: AtomicBool,
}

impl Bell {
    /// To be called after the news are there.
    fn ring(&self) {
        // With the fence in `Worker::sleep`: either this sees that the thread sleeps, or the thread
        // sees the news before it does.
        fence(Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            #[expect(
                clippy::host_endian_bytes,
                reason = "the kernel speaks the machine's order"
            )]
            let one = 1u64.to_ne_bytes();
            // It fails after 2^64 rings that nobody heard; then it has been rung.
            let _ = rustix::io::write(&*self.eventfd, &one);
        }
    }
}

struct Worker {
    kernel: Kernel,
    device: Arc<FileDevice>,
    bell: Arc<Bell>,
    inbox: Receiver<Submission>,
    /// Whether there may be more in the inbox, ever.
    is_open: bool,
    /// Of the next request.
    sequence: u64,
    /// Writes that have not been answered.
    writes: BTreeSet<u64>,
    /// Flushes that wait for writes before them.
    flushes: VecDeque<(u64, Submission)>,
}

impl Worker {
    fn run(mut self) {
        let mut completions = Vec::new();
        loop {
            while self.take_one() {}
            self.begin_flushes();
            if !self.is_open && self.kernel.is_idle() && self.flushes.is_empty() {
                return;
            }
            if self.sleep().is_err() {
                // The ring itself has failed. Whoever waits is told so by what is dropped here.
                return;
            }
            self.kernel.reap(&mut completions);
            for (slot, moved) in completions.drain(..) {
                self.complete(slot, moved);
            }
        }
    }

    /// Takes one request from the inbox, if there is one.
    fn take_one(&mut self) -> bool {
        match self.inbox.try_recv() {
            Ok(submission) => {
                self.begin(submission);
                true
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => {
                self.is_open = false;
                false
            }
        }
    }

    fn begin(&mut self, submission: Submission) {
        let sequence = self.sequence;
        self.sequence += 1;
        match submission.request {
            Request::Flush => self.flushes.push_back((sequence, submission)),
            Request::Write { .. } => {
                self.writes.insert(sequence);
                self.give(sequence, submission);
            }
            Request::Read { .. } => self.give(sequence, submission),
        }
    }

    fn begin_flushes(&mut self) {
        let oldest = self.writes.first().copied().unwrap_or(u64::MAX);
        while self
            .flushes
            .front()
            .is_some_and(|(sequence, _)| *sequence < oldest)
        {
            let (sequence, submission) = self.flushes.pop_front().expect("there is a front");
            self.give(sequence, submission);
        }
    }

    fn give(&mut self, sequence: u64, submission: Submission) {
        self.kernel.give(Slot {
            submission,
            sequence,
            done: 0,
            tries: 0,
        });
    }

    /// Hands what is new to the kernel and waits for a completion or the bell.
    fn sleep(&mut self) -> io::Result<()> {
        self.bell.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let was_open = self.is_open;
        // Also when the inbox has just been closed: then there may be nothing left to wait for.
        let has_news = self.take_one() || was_open != self.is_open;
        let outcome = self.kernel.wait(has_news);
        self.bell.is_asleep.store(false, Ordering::SeqCst);
        outcome
    }

    /// Answers a request or, if the kernel did only part of it, gives it the rest.
    fn complete(&mut self, mut slot: Slot, moved: Result<usize, Errno>) {
        match judge(&self.device, &mut slot, moved) {
            None => self.kernel.give(slot),
            Some(result) => {
                self.writes.remove(&slot.sequence);
                slot.submission.answer(result);
            }
        }
    }
}

/// What a completion means for its request; `None`: it has to go on.
fn judge(
    device: &FileDevice,
    slot: &mut Slot,
    moved: Result<usize, Errno>,
) -> Option<Result<(), DeviceError>> {
    let request = &slot.submission.request;
    let (Request::Read { buffer, .. } | Request::Write { buffer, .. }) = request else {
        return Some(device.settle_flush(moved.map(drop)));
    };
    let no_progress = match request {
        Request::Read { .. } => io::ErrorKind::UnexpectedEof,
        _ => io::ErrorKind::WriteZero,
    };
    let failure = match moved {
        Ok(bytes) if slot.done + bytes == buffer.len() => return Some(Ok(())),
        Ok(bytes) => {
            // The rest begins at a block border again, or the kernel refuses it.
            let done = slot.done + bytes;
            let done = done - done % BLOCK_BYTES as usize;
            if done > slot.done {
                (slot.done, slot.tries) = (done, 0);
                return None;
            }
            io::Error::from(no_progress)
        }
        Err(Errno::INTR | Errno::AGAIN) if slot.tries < TRIES_MAX => {
            slot.tries += 1;
            return None;
        }
        Err(errno) => errno.into(),
    };
    Some(Err(request.failed(failure)))
}
