//! One store with its device: opening it, making it, and what there is to say of it.
//!
//! A server's first store is made with it (`--init`): a file in the data directory, every byte of
//! it written, so that its space stays its own, and measured for a few seconds. That is enough to
//! serve and to promise cautiously; `azekura store calibrate` measures longer.

use super::appends::Appends;
use super::budget::{Budgets, Scale};
use super::clock::StorageClock;
use super::commits::{Commits, Told};
use super::company::Company;
use super::dispatch::Dispatcher;
use super::error::StorageError;
use super::held::HeldTicket;
use super::model::{Floors, Plan};
use crate::data::random;
use base::limits::{DEVICE_IN_FLIGHT_BYTES_MAX, QUICK_CALIBRATION_TIME_MAX};
use base::ticket::Operations;
use base::{BlockDevice, Extent, StoreId};
use reservation::scheduler::{Measured, Operation, Source};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::device::{
    Calibration, Capability, DeviceOptions, Direction, FileDevice, InOrder, Queue, Ring, calibrate,
};
use store::{Core, Format, Lifetimes, Options, Sizes, Store};

/// Smallest allocation unit of a store.
const UNIT_BYTES_MIN: u64 = 64 << 10;
/// A new store has so many allocation units at least, if need be smaller ones than were measured.
const UNITS_MIN: u64 = 64;
/// Length of a sample where a minute is too long.
pub(super) const QUICK_SAMPLE_TIME: Duration = Duration::from_millis(8);
/// What a device that was not measured is taken to do, so that it can be driven at all. Nothing
/// is promised of it.
const UNMEASURED_BYTES_PER_SECOND: u64 = 200 << 20;
/// How long a store that somebody has is waited for when a server begins. It goes on without the
/// store after that, until it is started again; and what a killed server had under way keeps the
/// device locked for more than 2 s after its end on a busy machine.
const LOCK_TIME_MAX: Duration = Duration::from_secs(15);

/// What a manager needs to know of a device.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its store.
    pub store: StoreId,
    /// Where it is.
    pub path: PathBuf,
    /// What it can do; none if it was not measured, and then nothing can be promised of it.
    pub capability: Option<Capability>,
    /// What requests cost, and which floors there are.
    pub plan: Arc<Plan>,
    /// Size of an allocation unit.
    pub au_bytes: u64,
    /// How many there are.
    pub au_count: u64,
    /// How many of them are nobody's now.
    pub au_free: u64,
    /// How many of these whoever has no reservation can use now.
    pub au_open: u64,
    /// How long objects live of which nothing is said.
    pub lifetimes: store::Lifetimes,
    /// Whether it was too slow for what is promised in the last seconds.
    pub is_degraded: bool,
    /// Why its store takes no changes, if it does not.
    pub failure: Option<String>,
}

impl DeviceInfo {
    /// Whether all objects live until somebody removes them.
    #[must_use]
    pub fn keeps_objects(&self) -> bool {
        let lifetimes = self.lifetimes;
        let ends = lifetimes.default_seconds.or(lifetimes.longest_seconds);
        ends.is_none()
    }
}

/// A store at work.
pub(crate) struct Device {
    pub(crate) id: StoreId,
    pub(crate) path: PathBuf,
    pub(crate) store: Arc<Store>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) capability: Option<Capability>,
    pub(crate) au_bytes: u64,
    pub(crate) au_count: u64,
    pub(super) dispatcher: Dispatcher,
    pub(super) commits: Commits,
    pub(super) budgets: Arc<Budgets>,
    pub(super) scale: Scale,
    pub(super) appends: Arc<Appends>,
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Device {
    /// Opens the store `wanted` at `path`, which has been so far at least.
    ///
    /// # Errors
    /// [`StorageError`].
    pub(super) fn open(
        path: &Path,
        (wanted, least_sequence): (StoreId, u64),
        (clock, company): (&Arc<StorageClock>, Arc<Company>),
        is_first_come: bool,
    ) -> Result<Self, StorageError> {
        let file = FileDevice::open_within(path, DeviceOptions::default(), LOCK_TIME_MAX)?;
        let file = Arc::new(file);
        let options = Options {
            store: Some(wanted),
            least_sequence,
            ..Options::default()
        };
        let own = clock.clone();
        let store = store::device::ensure_whole(&*file)
            .and_then(|()| Store::open(file, options, Arc::new(move || own.now())))
            .map_err(StorageError::store(path))?;
        if store.status().is_one_superblock_lost {
            tracing::warn!(
                store = %store.id(),
                path = %path.display(),
                "one of the two superblocks was damaged and is written anew: a loss of power may \
                 leave the newer one so, and so does a disk that fails",
            );
        }
        let capability = store.capability().ok();
        let plan = capability.as_ref().and_then(Plan::of);
        let capability = capability.filter(|_| plan.is_some());
        let plan = plan.unwrap_or_else(Plan::unmeasured);
        let plan = plan.shared_by(company.sharers());
        if company.sharers() > 1 {
            tracing::info!(
                path = %path.display(),
                stores = company.sharers(),
                read_bytes_per_second = plan.promised_bytes_per_second(Direction::Read),
                write_bytes_per_second = plan.promised_bytes_per_second(Direction::Write),
                "several stores lie on one disk: an equal part of it can be reserved of each",
            );
        }
        let (layout, store, plan) = (store.layout(), Arc::new(store), Arc::new(plan));
        let dispatcher = Dispatcher::start(clock.clone(), plan.clone(), company, is_first_come);
        let dispatcher = dispatcher.map_err(StorageError::Thread)?;
        store.set_gate(dispatcher.gate());
        Ok(Self {
            id: store.id(),
            path: path.to_owned(),
            commits: Commits::start(store.clone()).map_err(StorageError::Thread)?,
            store,
            plan,
            capability,
            au_bytes: layout.au_bytes,
            au_count: u64::from(layout.au_count),
            dispatcher,
            budgets: Arc::default(),
            scale: Scale::of(layout.au_bytes, layout.log_bytes),
            appends: Arc::default(),
        })
    }

    /// Makes durable what was changed before. The store's own work for it is hurried if whoever
    /// waits has a share here ([`Dispatcher::hurry`]).
    pub(super) fn commit(&self, source: Source, ticket: Option<&HeldTicket>, told: Told) {
        // Who may only read has nothing to make durable.
        let is_writer =
            ticket.is_some_and(|held| held.terms().operations.contains(Operations::WRITE));
        let hurry = match is_writer {
            true => self.dispatcher.hurry(source),
            false => None,
        };
        self.commits.push(Box::new(move |error| {
            drop(hurry);
            told(error);
        }));
    }

    /// Ends the threads that use the store, when they have done what they are at; what waits is
    /// dropped.
    pub(super) fn stop(&self) {
        self.dispatcher.stop();
        self.commits.stop();
    }

    pub(crate) fn info(&self) -> DeviceInfo {
        let is_degraded = self.dispatcher.figures().is_degraded;
        let status = self.store.status();
        DeviceInfo {
            store: self.id,
            path: self.path.clone(),
            capability: self.capability.clone(),
            plan: self.plan.clone(),
            au_bytes: self.au_bytes,
            au_count: self.au_count,
            au_free: status.usage.free,
            au_open: status.open_aus,
            lifetimes: self.store.lifetimes(),
            is_degraded,
            failure: status.failure,
        }
    }
}

impl Plan {
    /// For a device that was not measured, of which nothing is promised.
    pub(crate) fn unmeasured() -> Self {
        Self::new(&unmeasured(), Floors::default()).expect("both directions are there")
    }
}

fn unmeasured() -> [Measured; 2] {
    [(Operation::Read, 0), (Operation::Write, 100)].map(|(operation, write_percent)| Measured {
        operation,
        size_bytes: 256 << 10,
        depth: 4,
        write_percent,
        bytes_per_second: UNMEASURED_BYTES_PER_SECOND,
    })
}

/// Makes a file of `size_bytes` with a new store in it, measured for a few seconds; says which.
/// Nothing stays behind if it fails.
///
/// # Errors
/// [`StorageError`].
pub(super) fn make(path: &Path, size_bytes: u64) -> Result<StoreId, StorageError> {
    let size_bytes = size_bytes - size_bytes % u64::from(store::device::BLOCK_BYTES);
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let options = DeviceOptions::default();
    // It has its name when there is a store in it.
    let file = Arc::new(FileDevice::create_unnamed(
        path, size_bytes, options, go_on,
    )?);
    let store = format(path, &file)?;
    file.give_name()?;
    Ok(store)
}

fn format(path: &Path, file: &Arc<FileDevice>) -> Result<StoreId, StorageError> {
    let size_bytes = file.len_bytes();
    let capability = measure(path, file)?;
    let mut unit = u64::from(capability.allocation_unit_bytes);
    while unit > UNIT_BYTES_MIN && size_bytes / unit < UNITS_MIN {
        unit /= 2;
    }
    let format = Format {
        store: StoreId(random()),
        sizes: Sizes::for_device(size_bytes, unit),
        lifetimes: Lifetimes::default(),
        capability: capability.encode(),
    };
    Core::format(&**file, &format).map_err(StorageError::store(path))?;
    Ok(format.store)
}

fn measure(path: &Path, file: &Arc<FileDevice>) -> Result<Capability, StorageError> {
    let queue: Box<dyn Queue> = match Ring::new(file.clone(), DEVICE_IN_FLIGHT_BYTES_MAX) {
        Ok(ring) => Box::new(ring),
        Err(_) => Box::new(InOrder::new(file.clone()).map_err(StorageError::Thread)?),
    };
    let calibration = Calibration {
        time_max: QUICK_CALIBRATION_TIME_MAX,
        sample_time: QUICK_SAMPLE_TIME,
        ..Calibration::new(Extent::new(0, file.len_bytes()))
    };
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let measured = calibrate(&*queue, &calibration, go_on);
    measured.map_err(|source| StorageError::Calibrate {
        path: path.to_owned(),
        source,
    })
}
