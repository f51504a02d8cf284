//! Exported directories that are reserved: each is a device of its own, with rates and no space.
//!
//! # Design
//!
//! An export becomes a device when somebody first asks to reserve it: its file system is measured
//! for some seconds in a file without a name ([`measure`]), and what was found is remembered in the
//! data directory. Its identity is made of the volume's, so the calendars of the manager mean the
//! same after any restart, and tickets for it are as tickets for a store.
//!
//! ```text
//! request of a volume ──► is a ticket in force? ── no ──► pool, as ever
//!                               │ yes
//!                               ▼
//!                          dispatcher: whose turn? ──► lane: a thread that carries it out
//! ```
//! As long as no ticket is in force, nothing of this is there: no threads, no queue, and requests
//! go the way that they go on a server where nothing is reserved. From the moment at which a ticket
//! is shown, everybody's reads, writes and flushes of that volume are given their turn by one
//! dispatcher, and carried out by its own threads: none of them waits in the pool.
//!
//! Requests are not split: a write is one for whoever reads beside it. So the quantum has room for
//! the largest ([`Plan::of_whole`]). Where the page cache has what is read, less is taken of the
//! device than is charged.

#[cfg(test)]
mod tests;

use super::StorageError;
use super::clock::StorageClock;
use super::company::Company;
use super::device::QUICK_SAMPLE_TIME;
use super::dispatch::{Dispatcher, Noted, OpenError, Task, Totals};
use super::model::Plan;
use crate::data::{DataError, file, from_hex, to_hex};
use crate::manager::PlanDevice;
use base::limits::{
    DATA_BYTES_MAX, DEVICE_IN_FLIGHT_BYTES_MAX, QUICK_CALIBRATION_TIME_MAX, TICKET_CLOCK_ERROR_MAX,
    VOLUMES_MAX,
};
use base::ticket::Grant;
use base::{BlockDevice, Extent, StoreId, TicketId, VolumeId};
use export::Worker;
use reservation::scheduler::{Operation, Rejection, Source, TicketKey, TicketSecond};
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use store::device::{
    CalibrateError, Calibration, Capability, DeviceOptions, Direction, FileDevice, InOrder,
    OpenError as FileError, Queue, Ring, calibrate,
};

/// Name of the state file, without its ending.
const NAME: &str = "exports";
/// Size of the file in which is measured, unless there is too little space for it.
const MEASURED_BYTES: u64 = 64 << 20;
/// The smallest that says something.
const MEASURED_BYTES_MIN: u64 = 16 << 20;
/// Part of the free space that is taken for it.
const FREE_PART: u64 = 8;

/// Why an exported directory cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    /// The file for it cannot be made.
    #[error("no file can be made there to measure its file system: {0}")]
    File(#[from] FileError),
    /// Less than [`MEASURED_BYTES_MIN`] would be left for it.
    #[error("there is too little free space to measure its file system")]
    Full,
    /// No thread for it.
    #[error("its file system cannot be measured: {0}")]
    System(#[from] std::io::Error),
    /// The device failed.
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    /// What was found says too little.
    #[error("what its file system does at the moment is too little to promise anything of it")]
    Nothing,
    /// It cannot be remembered.
    #[error(transparent)]
    Data(#[from] DataError),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ExportsFile {
    #[serde(default)]
    export: Vec<ExportRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ExportRecord {
    volume: String,
    /// The calibration, as a store has it.
    capability: String,
}

/// What waits for its turn; says how many bytes it has moved. Without a worker it sees to it that
/// somebody else does it.
pub(crate) type Waiting = Box<dyn FnOnce(Option<&Worker>) -> u64 + Send>;

/// In whose name, and what it costs.
pub(crate) type Cost = (Source, Operation, u32);

/// An exported directory that can be reserved.
pub(crate) struct ExportDevice {
    pub(crate) id: StoreId,
    capability: Capability,
    plan: Arc<Plan>,
    clock: Arc<StorageClock>,
    is_first_come: bool,
    /// What is known of its tickets; with threads from the first that is shown on.
    dispatcher: OnceLock<Dispatcher>,
    /// Until when a ticket is in force, in nanoseconds since 1970.
    in_force_until: AtomicU64,
    /// What found no room in the dispatcher's queue.
    behind: Mutex<Behind>,
}

/// What found no room in the queue, in the order in which it came: what comes with a ticket for
/// itself, because it is not to wait for others.
#[derive(Default)]
struct Behind {
    reserved: VecDeque<(Cost, Waiting)>,
    others: VecDeque<(Cost, Waiting)>,
    /// Whether what is reserved went first while others waited: they are next.
    is_others_turn: bool,
}

impl Behind {
    fn of(&mut self, source: Source) -> &mut VecDeque<(Cost, Waiting)> {
        match source {
            Source::Ticket(_) => &mut self.reserved,
            Source::User(_) | Source::Background => &mut self.others,
        }
    }
}

/// What became of something that was to wait for its turn.
enum Submitted {
    /// It waits.
    Queued,
    /// It goes on without: its ticket was taken back this moment.
    Gone,
}

/// See the module's head.
pub(super) struct Exports {
    directory: PathBuf,
    is_first_come: bool,
    devices: RwLock<BTreeMap<VolumeId, Arc<ExportDevice>>>,
    /// One is measured at a time.
    measuring: Mutex<()>,
    /// Whether a ticket for any of them was shown in this run.
    is_used: AtomicBool,
}

/// The identity of the device that a volume is.
fn device_id(volume: VolumeId) -> StoreId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"azekura export as a device");
    hasher.update(&volume.0);
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    StoreId(id)
}

thread_local! {
    /// The calling lane's right to act for callers; none if it has not.
    static WORKER: OnceCell<Option<Worker>> = const { OnceCell::new() };
}

fn with_worker<T>(work: impl FnOnce(Option<&Worker>) -> T) -> T {
    WORKER.with(|worker| {
        let made = worker.get_or_init(|| match Worker::new() {
            Ok(worker) => Some(worker),
            Err(error) => {
                tracing::error!(%error, "a lane cannot act for callers");
                None
            }
        });
        work(made.as_ref())
    })
}

impl ExportDevice {
    fn new(
        volume: VolumeId,
        capability: Capability,
        clock: &Arc<StorageClock>,
        is_first_come: bool,
    ) -> Option<Self> {
        let plan = Plan::of_whole(&capability, DATA_BYTES_MAX)?;
        Some(Self {
            id: device_id(volume),
            capability,
            plan: Arc::new(plan),
            clock: clock.clone(),
            is_first_come,
            dispatcher: OnceLock::new(),
            in_force_until: AtomicU64::new(0),
            behind: Mutex::default(),
        })
    }

    fn behind(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a ticket that was verified; everybody's requests take turns from then on, for as long
    /// as it is in force.
    pub(super) fn open(&self, grant: &Grant) -> Result<TicketKey, OpenError> {
        let dispatcher = self.dispatcher();
        dispatcher.begin().map_err(|error| {
            tracing::error!(%error, "there are no threads for an export that is reserved");
            OpenError::Rejected(Rejection::TooManyTickets)
        })?;
        let key = dispatcher.open(grant, self.id)?;
        let end = base::Time::from_secs(grant.terms().end_secs.min(u64::MAX / 2_000_000_000));
        let end = end + TICKET_CLOCK_ERROR_MAX;
        self.in_force_until
            .fetch_max(end.as_nanos(), Ordering::AcqRel);
        Ok(key)
    }

    /// Without threads, as long as no ticket was shown.
    fn dispatcher(&self) -> &Dispatcher {
        self.dispatcher.get_or_init(|| {
            let (clock, plan) = (self.clock.clone(), self.plan.clone());
            Dispatcher::new(clock, plan, Company::alone(), self.is_first_come)
        })
    }

    /// Whether somebody has a ticket that is in force.
    pub(crate) fn is_in_force(&self) -> bool {
        let until = self.in_force_until.load(Ordering::Acquire);
        until > 0 && self.clock.now().as_nanos() < until
    }

    /// Gives it its turn. What waits when the server stops is dropped.
    pub(crate) fn submit(self: &Arc<Self>, cost: Cost, waiting: Waiting) {
        if let Err(refused) = self.try_submit(cost, waiting) {
            self.behind().of(cost.0).push_back((cost, refused));
        }
    }

    fn try_submit(self: &Arc<Self>, cost: Cost, waiting: Waiting) -> Result<Submitted, Waiting> {
        let (source, operation, bytes) = cost;
        // What is refused is dropped, and this is what brings it back.
        let place = Arc::new(Mutex::new(Some(waiting)));
        let take = |place: &Mutex<Option<Waiting>>| {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            place.take()
        };
        let (this, own) = (Arc::downgrade(self), place.clone());
        let task: Task = Box::new(move || {
            let moved = take(&own).map_or(0, with_worker);
            if let Some(this) = this.upgrade() {
                this.take_up();
            }
            moved
        });
        match self.dispatcher().submit(source, [(operation, bytes, task)]) {
            Err(Rejection::UnknownTicket) => {
                if let Some(waiting) = take(&place) {
                    waiting(None);
                }
                Ok(Submitted::Gone)
            }
            Err(_) => take(&place).map_or(Ok(Submitted::Gone), Err),
            Ok(()) => Ok(Submitted::Queued),
        }
    }

    /// There is room for one more: first for what is reserved, but not each time while others wait,
    /// for which there may be room, too.
    fn take_up(self: &Arc<Self>) {
        let is_placed = self.goes_on_with(|behind| &mut behind.reserved);
        {
            let mut behind = self.behind();
            let waits = is_placed && !behind.others.is_empty() && !behind.is_others_turn;
            behind.is_others_turn = waits;
            if waits {
                return;
            }
        }
        self.goes_on_with(|behind| &mut behind.others);
    }

    /// Whether something that waited behind has found room; without it stays the first. What goes
    /// on without waiting does not take it.
    fn goes_on_with(
        self: &Arc<Self>,
        of: fn(&mut Behind) -> &mut VecDeque<(Cost, Waiting)>,
    ) -> bool {
        loop {
            let next = of(&mut self.behind()).pop_front();
            let Some((cost, waiting)) = next else {
                return false;
            };
            match self.try_submit(cost, waiting) {
                Ok(Submitted::Queued) => return true,
                Ok(Submitted::Gone) => {}
                Err(refused) => {
                    of(&mut self.behind()).push_front((cost, refused));
                    return false;
                }
            }
        }
    }

    fn revoke(&self, is_revoked: impl Fn(TicketId, u64) -> bool) {
        if let Some(dispatcher) = self.dispatcher.get() {
            dispatcher.revoke(is_revoked);
            self.lapse(|| dispatcher.figures().tickets > 0);
        }
    }

    /// Nothing is in force any more, unless there are tickets: also such as are opened meanwhile.
    fn lapse(&self, has_tickets: impl Fn() -> bool) {
        if has_tickets() {
            return;
        }
        let until = self.in_force_until.swap(0, Ordering::AcqRel);
        if has_tickets() {
            self.in_force_until.fetch_max(until, Ordering::AcqRel);
        }
    }

    /// The seconds of a ticket from one on, and sums over all.
    pub(super) fn record(
        &self,
        lineage: &[TicketId],
        from_second: u64,
    ) -> Option<(Vec<TicketSecond>, Totals)> {
        self.dispatcher.get()?.record(lineage, from_second)
    }

    /// Takes what an earlier run has noted of a ticket.
    pub(super) fn remember(&self, noted: Noted) {
        self.dispatcher().remember(noted);
    }

    fn plan_device(&self, server: base::ServerId) -> PlanDevice {
        let figures = self.dispatcher.get().map(Dispatcher::figures);
        PlanDevice {
            server,
            store: self.id,
            plan: self.plan.clone(),
            is_export: true,
            is_measured: true,
            is_well: figures.is_none_or(|figures| !figures.is_degraded),
            au_bytes: 1,
            au_count: 0,
        }
    }
}

impl Exports {
    /// What was measured by earlier runs.
    pub(super) fn open(
        directory: &Path,
        clock: &Arc<StorageClock>,
        is_first_come: bool,
    ) -> Result<Self, StorageError> {
        let path = directory.join(format!("{NAME}.toml"));
        let mut devices = BTreeMap::new();
        if path.exists() {
            let read: ExportsFile = file::read(directory, NAME)?;
            let one = |record: &ExportRecord| {
                let volume = VolumeId(from_hex(&record.volume)?);
                let capability = Capability::decode(&bytes_in(&record.capability)?).ok()?;
                let device = ExportDevice::new(volume, capability, clock, is_first_come)?;
                Some((volume, Arc::new(device)))
            };
            let all: Option<_> = read.export.iter().map(one).collect();
            let all = all.filter(|_| read.export.len() <= VOLUMES_MAX);
            devices = all.ok_or_else(|| DataError::Damaged {
                path,
                why: "a value has the wrong form".to_owned(),
            })?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            is_first_come,
            devices: RwLock::new(devices),
            measuring: Mutex::default(),
            is_used: AtomicBool::new(false),
        })
    }

    fn list(&self) -> Vec<Arc<ExportDevice>> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.values().cloned().collect()
    }

    fn of(&self, volume: VolumeId) -> Option<Arc<ExportDevice>> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.get(&volume).cloned()
    }

    pub(super) fn revoke(&self, is_revoked: impl Fn(TicketId, u64) -> bool) {
        for device in self.list() {
            device.revoke(&is_revoked);
        }
    }

    /// What there is to note of the tickets of each, with so many seconds of each.
    pub(super) fn noted(&self, seconds_max: usize) -> Vec<(StoreId, Vec<Noted>)> {
        let devices = self.list().into_iter();
        let noted = devices.filter_map(|device| {
            let noted = device.dispatcher.get()?.noted(seconds_max);
            Some((device.id, noted))
        });
        noted.collect()
    }

    /// Ends all threads; what waits is dropped.
    pub(super) fn stop(&self) {
        for device in self.list() {
            if let Some(dispatcher) = device.dispatcher.get() {
                dispatcher.stop();
            }
            let waiting = std::mem::take(&mut *device.behind());
            drop(waiting);
        }
    }

    /// Notes a change of what there is. Durable when it returns.
    fn put(&self, volume: VolumeId, device: Option<Arc<ExportDevice>>) -> Result<(), DataError> {
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = devices.clone();
        match device {
            Some(device) => next.insert(volume, device),
            None => next.remove(&volume),
        };
        let record = |(volume, device): (&VolumeId, &Arc<ExportDevice>)| ExportRecord {
            volume: to_hex(&volume.0),
            capability: to_hex(&device.capability.encode()),
        };
        let export = next.iter().map(record).collect();
        file::write(&self.directory, NAME, &ExportsFile { export })?;
        *devices = next;
        Ok(())
    }
}

fn bytes_in(text: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let is_whole = text.len().is_multiple_of(2);
    let bytes = (0..text.len()).step_by(2).map(byte);
    is_whole.then(|| bytes.collect())?
}

/// Finds out what can be relied on in the file system of a directory: in a file that has no name
/// but for a moment, and is gone when this returns. Takes some seconds.
fn measure(path: &Path) -> Result<Capability, MeasureError> {
    let stat = rustix::fs::statvfs(path).map_err(std::io::Error::from)?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize) / FREE_PART;
    let size_bytes = MEASURED_BYTES.min(free - free % (1 << 20));
    if size_bytes < MEASURED_BYTES_MIN {
        return Err(MeasureError::Full);
    }
    let name = format!(".azekura-measures-{}", to_hex(&crate::data::random::<8>()));
    let path = path.join(name);
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let file = FileDevice::create(&path, size_bytes, DeviceOptions::default(), go_on)?;
    std::fs::remove_file(&path)?;
    let file = Arc::new(file);
    let queue: Box<dyn Queue> = match Ring::new(file.clone(), DEVICE_IN_FLIGHT_BYTES_MAX) {
        Ok(ring) => Box::new(ring),
        Err(_) => Box::new(InOrder::new(file.clone())?),
    };
    let calibration = Calibration {
        time_max: QUICK_CALIBRATION_TIME_MAX,
        sample_time: QUICK_SAMPLE_TIME,
        ..Calibration::new(Extent::new(0, file.len_bytes()))
    };
    let go_on = &mut |_, _| ControlFlow::Continue(());
    Ok(calibrate(&*queue, &calibration, go_on)?)
}

impl super::Storage {
    /// The device that the volume exported at `path` is; it is measured if it was not. Blocks for
    /// some seconds.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub(crate) fn measured_export(
        &self,
        volume: VolumeId,
        path: &Path,
    ) -> Result<Arc<ExportDevice>, MeasureError> {
        let exports = &self.exports;
        let measuring = exports.measuring.lock();
        let _measuring = measuring.unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = exports.of(volume) {
            return Ok(known);
        }
        let capability = measure(path)?;
        let device = ExportDevice::new(volume, capability, &self.clock, exports.is_first_come);
        let device = Arc::new(device.ok_or(MeasureError::Nothing)?);
        exports.put(volume, Some(device.clone()))?;
        let rate = |direction| device.plan.promised_bytes_per_second(direction);
        tracing::info!(
            path = %path.display(),
            device = %device.id,
            read_bytes_per_second = rate(Direction::Read),
            write_bytes_per_second = rate(Direction::Write),
            "an exported directory was measured: so much of it can be reserved"
        );
        Ok(device)
    }

    /// Forgets a volume that is there no more.
    pub(crate) fn forget_export(&self, volume: VolumeId) {
        if self.exports.of(volume).is_some()
            && let Err(error) = self.exports.put(volume, None)
        {
            tracing::warn!(%error, "a deleted export is not forgotten");
        }
    }

    /// The device that a volume is, if it was measured.
    pub(crate) fn export_of(&self, volume: VolumeId) -> Option<Arc<ExportDevice>> {
        self.exports.of(volume)
    }

    /// The exported directory that is this device.
    pub(crate) fn export(&self, device: StoreId) -> Option<Arc<ExportDevice>> {
        let mut devices = self.exports.list().into_iter();
        devices.find(|export| export.id == device)
    }

    /// Whether a ticket for an exported directory was shown in this run.
    pub(crate) fn has_exports_in_use(&self) -> bool {
        self.exports.is_used.load(Ordering::Acquire)
    }

    /// The device that a volume is, if a ticket for it is in force.
    pub(crate) fn export_in_force(&self, volume: VolumeId) -> Option<Arc<ExportDevice>> {
        if !self.has_exports_in_use() {
            return None;
        }
        self.exports.of(volume).filter(|it| it.is_in_force())
    }

    /// Opens a ticket at an exported directory; none if it is for none.
    pub(super) fn open_export(
        &self,
        grant: &Grant,
        device: StoreId,
    ) -> Option<Result<TicketKey, OpenError>> {
        let export = self.export(device)?;
        if device_id(grant.head.volume) != device {
            return Some(Err(OpenError::NoSlice));
        }
        self.exports.is_used.store(true, Ordering::Release);
        Some(export.open(grant))
    }

    /// The exported directories that were measured, for planning.
    pub(crate) fn plan_exports(&self) -> Vec<PlanDevice> {
        let server = self.server();
        let devices = self.exports.list().into_iter();
        devices.map(|export| export.plan_device(server)).collect()
    }
}
