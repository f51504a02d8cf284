//! Opening a store: its device, its queue, its threads.

use super::{Queued, Shared, State, Store};
use crate::core::{Core, Options};
use crate::device::{FileDevice, InOrder, Queue, Ring};
use crate::{Format, StoreError};
use base::limits::DEVICE_IN_FLIGHT_BYTES_MAX;
use base::{BlockDevice, DeviceAction, DeviceError, Extent, Time};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// What a store asks for the time.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// A clock for whoever only looks after a store: to the store it is as late as when it was used
/// last. Whatever this machine takes the time to be, nothing ends by that.
#[must_use]
pub fn stopped_clock() -> Clock {
    // A store's time never goes back.
    Arc::new(|| Time::ZERO)
}

impl Store {
    /// Makes a store of the device; whatever was there is gone.
    ///
    /// # Errors
    /// See [`Core::format`].
    pub fn format(device: &dyn BlockDevice, format: &Format) -> Result<(), StoreError> {
        Core::format(device, format)
    }

    /// Opens the store on a file or block device: with io_uring where it may be used, else with one
    /// request after the other.
    ///
    /// # Errors
    /// See [`Core::open`]; [`StoreError::Device`] if there can be no more threads.
    pub fn open(
        device: Arc<FileDevice>,
        options: Options,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let queue: Box<dyn Queue> = match Ring::new(device.clone(), DEVICE_IN_FLIGHT_BYTES_MAX) {
            Ok(ring) => Box::new(ring),
            Err(_) => Box::new(InOrder::new(device).map_err(no_threads)?),
        };
        Self::open_on(queue, options, clock)
    }

    /// Opens the store behind a queue.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn open_on(
        queue: Box<dyn Queue>,
        options: Options,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let device = Arc::new(Queued::new(queue));
        let mut core = Core::open(device.clone(), options)?;
        core.is_driven = true;
        let state = State {
            core,
            batch: 0,
            durable: 0,
            wanted: 0,
            waiters: 0,
            waiters_before: 0,
            is_gathering: false,
            batch_since: None,
            flush_time: Duration::ZERO,
            wants_checkpoint: false,
            checkpoint: None,
            checkpoints: 0,
            commits: 0,
            has_committer: true,
            is_stopping: false,
            is_alone: false,
            failure: None,
            is_loss_told: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            told: Mutex::default(),
            durable: Condvar::new(),
            committer: Condvar::new(),
            keeper: Condvar::new(),
            device,
            clock,
        });
        let mut store = Self {
            shared: shared.clone(),
            threads: Vec::new(),
        };
        let committer = shared.clone();
        let begin = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.into());
            thread.spawn(run).map_err(no_threads)
        };
        let thread = begin("commit", Box::new(move || committer.run_committer()))?;
        store.threads.push(thread);
        let thread = begin("keeper", Box::new(move || shared.run_keeper()))?;
        store.threads.push(thread);
        Ok(store)
    }
}

fn no_threads(source: io::Error) -> StoreError {
    StoreError::Device(DeviceError::Failed {
        action: DeviceAction::Read,
        extent: Extent::default(),
        source,
    })
}
