//! One thread per direction carries frames from one device to the other.
//!
//! The thread sleeps in `ppoll` until a frame comes in, the first frame in the delay line is due,
//! or the settings change. It runs in the real-time class: without that, a busy machine makes
//! deliveries milliseconds late and the rate falls by more than half.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::counters::Counters;
use crate::frame::{FRAME_BYTES_MAX, Frame};
use crate::shaper::{Shaper, WireSettings};
use crate::{LinkError, sys};

/// Above ordinary real-time work, below the kernel's own threads.
const PRIORITY: i32 = 50;
/// Frames read before deliveries are looked at again, so that a flood does not delay them.
const BATCH_FRAMES: usize = 16;

/// What the controlling side and the thread share.
struct Shared {
    wanted: Mutex<Wanted>,
    counters: Mutex<Counters>,
    has_change: AtomicBool,
    wake: OwnedFd,
}

#[derive(Clone, Copy)]
struct Wanted {
    settings: WireSettings,
    reset: bool,
    stop: bool,
}

/// The thread of one direction; dropping it stops the thread.
pub(crate) struct Carrier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    is_real_time: bool,
}

impl Carrier {
    pub(crate) fn start(
        name: &str,
        from: File,
        to: File,
        settings: WireSettings,
        seed: u64,
    ) -> Result<Self, LinkError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LinkError::io("making an event descriptor", error.into()))?;
        let shared = Arc::new(Shared {
            wanted: Mutex::new(Wanted {
                settings,
                reset: false,
                stop: false,
            }),
            counters: Mutex::new(Counters::default()),
            has_change: AtomicBool::new(false),
            wake,
        });
        let (report, real_time) = std::sync::mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let is_real_time = sys::become_real_time(PRIORITY).is_ok();
                // The starter waits for this word; it cannot be gone.
                let _ = report.send(is_real_time);
                Loop {
                    from,
                    to,
                    shaper: Shaper::new(settings, seed),
                    shared: for_thread,
                }
                .run();
            })
            .map_err(|error| LinkError::io("starting a link thread", error))?;
        let is_real_time = real_time.recv().unwrap_or(false);
        Ok(Self {
            shared,
            thread: Some(thread),
            is_real_time,
        })
    }

    pub(crate) fn is_real_time(&self) -> bool {
        self.is_real_time
    }

    pub(crate) fn set(&self, settings: WireSettings) {
        self.change(|wanted| wanted.settings = settings);
    }

    /// Sets the counters to zero; when it returns, [`Carrier::counters`] starts from zero.
    pub(crate) fn reset(&self) {
        self.change(|wanted| wanted.reset = true);
        while lock(&self.shared.wanted).reset {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        *lock(&self.shared.counters)
    }

    fn change(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut lock(&self.shared.wanted));
        self.shared.has_change.store(true, Ordering::Release);
        // Only a full counter can refuse, and then the thread is about to wake anyway.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.change(|wanted| wanted.stop = true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed by it; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

struct Loop {
    from: File,
    to: File,
    shaper: Shaper,
    shared: Arc<Shared>,
}

impl Loop {
    fn run(mut self) {
        let start = Instant::now();
        let now_ns = || start.elapsed().as_nanos() as u64;
        let mut buffer = vec![0u8; FRAME_BYTES_MAX];
        loop {
            if self.shared.has_change.swap(false, Ordering::Acquire) && self.obey(now_ns()) {
                return;
            }
            self.deliver(&now_ns);
            let read = self.take_in(&mut buffer, &now_ns);
            *lock(&self.shared.counters) = self.shaper.counters;
            if read < BATCH_FRAMES {
                self.sleep(now_ns());
            }
        }
    }

    /// Takes over changed settings; true when the thread shall end.
    fn obey(&mut self, now_ns: u64) -> bool {
        let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
        let mut wanted = lock(&self.shared.wanted);
        self.shaper.set(now_ns, wanted.settings);
        if wanted.reset {
            wanted.reset = false;
            self.shaper.counters = Counters::default();
            *lock(&self.shared.counters) = Counters::default();
        }
        wanted.stop
    }

    fn deliver(&mut self, now_ns: &impl Fn() -> u64) {
        loop {
            let now = now_ns();
            let Some((due_ns, frame)) = self.shaper.pop_due(now) else {
                return;
            };
            // One write is one packet; the device takes it whole or not at all.
            match rustix::io::write(&self.to, frame.bytes()) {
                Ok(_) => self.shaper.counters.delivered(now.saturating_sub(due_ns)),
                // The receiver's namespace refuses what it cannot take (an interface that is down,
                // no memory); a wire does not care.
                Err(_) => self.shaper.counters.refused_packets += 1,
            }
        }
    }

    /// Reads up to a batch of frames; returns how many there were.
    fn take_in(&mut self, buffer: &mut [u8], now_ns: &impl Fn() -> u64) -> usize {
        for count in 0..BATCH_FRAMES {
            match self.from.read(buffer) {
                Ok(len) => {
                    if let Some(frame) = Frame::from_device(&buffer[..len]) {
                        self.shaper.offer(now_ns(), frame);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing to read; other errors last only while the interface is down.
                Err(_) => return count,
            }
        }
        BATCH_FRAMES
    }

    fn sleep(&self, now_ns: u64) {
        let timeout = self.shaper.next_due_ns().map(|due| {
            let wait_ns = due.saturating_sub(now_ns);
            Timespec {
                tv_sec: (wait_ns / 1_000_000_000) as i64,
                tv_nsec: (wait_ns % 1_000_000_000) as _,
            }
        });
        let mut watched = [
            PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN),
        ];
        // An interrupted wait is only an early look.
        let _ = poll(&mut watched, timeout.as_ref());
    }
}
