//! One request after the other, on any device.
//!
//! For devices without a descriptor, such as a simulated disk whose power is cut, and for kernels
//! that refuse io_uring. A thread of its own takes requests in the order of their submission, so
//! the device's history is the engine's.

use super::queue::{Completion, Queue, Request, Room, Submission};
use base::limits::DEVICE_IN_FLIGHT_BYTES_MAX;
use base::{BlockDevice, DeviceError};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Carries out requests in the order in which they are submitted.
#[derive(Debug)]
pub struct InOrder<D: BlockDevice + 'static> {
    device: Arc<D>,
    room: Arc<Room>,
    /// `None` once it has been stopped.
    sender: Mutex<Option<Sender<Submission>>>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl<D: BlockDevice + 'static> InOrder<D> {
    /// Starts the queue's thread.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn new(device: Arc<D>) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let below = Arc::clone(&device);
        let run = move || run(&*below, &receiver);
        let worker = thread::Builder::new().name("device".into()).spawn(run)?;
        Ok(Self {
            device,
            room: Room::new(DEVICE_IN_FLIGHT_BYTES_MAX),
            sender: Mutex::new(Some(sender)),
            worker: Mutex::new(Some(worker)),
        })
    }
}

fn run(device: &dyn BlockDevice, submissions: &Receiver<Submission>) {
    for mut submission in submissions {
        let result = match &mut submission.request {
            Request::Read { offset, buffer } => device.read_at(*offset, buffer),
            Request::Write { offset, buffer } => device.write_at(*offset, buffer),
            Request::Flush => device.flush(),
        };
        submission.answer(result);
    }
}

impl<D: BlockDevice + 'static> Queue for InOrder<D> {
    fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn submit(&self, request: Request, completion: Completion) -> Result<(), DeviceError> {
        let submission = Submission::new(self.device(), &self.room, request, completion)?;
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        match sender.as_ref() {
            Some(sender) => sender
                .send(submission)
                .map_err(|returned| returned.0.refuse()),
            None => Err(submission.refuse()),
        }
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        super::queue::read_now(self.device(), &self.room, offset, into)
    }

    fn stop(&self) -> bool {
        self.room.close();
        // The thread ends when it has taken what is in the channel.
        self.sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        super::queue::finish(&self.room, &self.worker)
    }
}

impl<D: BlockDevice + 'static> Drop for InOrder<D> {
    fn drop(&mut self) {
        self.stop();
    }
}
