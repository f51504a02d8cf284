//! The role of a storage server: reserved I/O that is kept.
//!
//! # Design
//!
//! ```text
//! connection ─► request: whose (ticket or user), which store, room in the class's memory, or no
//!                 │
//!                 ▼  pieces of at most a quantum of device time
//!             dispatcher, one per device: the scheduler decides, threads carry out     dispatch
//!                 │                          ▲
//!                 ▼                          │ asks before its own I/O
//!               store ── commits, checkpoints, clearing up ──► gate
//! ```
//!
//! A store that cannot be opened when the server starts is *missing*: the server serves the others,
//! says which one is missing and why, and answers whoever asks for it with an error. A store that
//! comes back is taken in by the next start: what was put off until then
//! ([`crate::tree::Parallel`]) comes before anything that is written from then on. A store that is
//! there in an older state (`seen`) is missing, too, unless the administrator accepts that. One
//! that the administrator gives up is *lost*: nothing waits for it, what lay there cannot be read
//! any more, and it is never taken in again.
//!
//! Nothing waits in front of the scheduler: a request is in it or refused. Classes have memory of
//! their own; whoever has filled his is refused and not made to wait, so what follows on the
//! same connection is read.
//!
//! | file | owns |
//! |---|---|
//! | `state` | who the server is, its keys, what is revoked: on disk |
//! | `clock` | by what windows are judged |
//! | `seen` | how far each store has been: on disk |
//! | `judge` | what a ticket is worth |
//! | `device` | a store with its device |
//! | `company` | which of them lie on one disk |
//! | `added` | making a store, or taking one over |
//! | `model` | what may be promised of a device, and how it is driven |
//! | `dispatch` | the order at a device, and the threads that carry it out |
//! | `request` | what comes from a connection: whose it is, whether there is room |
//! | `job`, `piece` | carrying a batch of steps out; the pieces of a step |
//! | `appends` | the order of appends to one object |
//! | `exports` | exported directories that are reserved |
//! | `held` | a session's tickets; memory by class |
//! | `commits` | durability, for all who ask at the time |
//! | `scrub` | reading everything now and then |
//! | `records` | what tickets got: on disk |
//! | `space`, `budget` | the space of a ticket in a store; what parts of it have drawn |
//!
//! # What a manager in the same process uses
//!
//! [`Storage::server`], [`Storage::place`], [`Storage::issue`] or [`Storage::ticket_key`],
//! [`Storage::devices`] (capability, costs, floors, units), [`Storage::confirm_space`],
//! [`Storage::extend_space`] and [`Storage::release_space`], [`Storage::revoke`] and
//! [`Storage::raise_epoch`]. All of them may block.

mod added;
mod appends;
mod budget;
mod clock;
mod commits;
mod company;
mod device;
mod dispatch;
mod error;
mod exports;
mod held;
mod holes;
mod job;
mod judge;
mod model;
mod piece;
mod records;
mod request;
mod scrub;
mod seen;
mod space;
mod state;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::with_store;

pub(crate) use added::{add_store, try_store};
pub use error::StorageError;

pub(crate) use device::Device;
pub use device::DeviceInfo;
pub use dispatch::Totals;
pub(crate) use exports::ExportDevice;
pub(crate) use held::{ObjectShare, SessionTickets};
pub use judge::JudgeError;
pub use model::{Floors, Plan, QUICK_PPM};
pub(crate) use request::{ObjectIncoming, user};
pub(crate) use scrub::Scrubs;
pub use space::{SpaceError, SpaceRequest, SpaceTrial};

use base::ticket::{Head, Place, Terms, Ticket, TicketKey};
use base::{ClusterId, ObjectId, ServerId, StoreId, TicketId, Time, WriteVerifier};
use clock::StorageClock;
use company::Company;
use held::ClassBytes;
use reservation::Moment;
use reservation::scheduler::TicketSecond;
use seen::Seen;
use state::StorageState;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A store that a server is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStore {
    /// Where: a new file, to be made with [`Self::size_bytes`]; or what has a store already.
    /// Relative to the data directory.
    pub path: PathBuf,
    /// Size of a file that is to be made; none if there is a store at the path.
    pub size_bytes: Option<u64>,
}

/// See the module's head. A server without a store has one with no devices.
pub struct Storage {
    cluster: ClusterId,
    directory: PathBuf,
    clock: Arc<StorageClock>,
    /// What is on the disk; held while that is written.
    state: Mutex<StorageState>,
    /// The same for all who only look.
    known: RwLock<Arc<StorageState>>,
    /// Of this run: what was not committed before it may be gone.
    verifier: WriteVerifier,
    memory: Arc<ClassBytes>,
    devices: BTreeMap<StoreId, Arc<Device>>,
    missing: BTreeMap<StoreId, MissingStore>,
    /// Stores that were given up.
    lost: BTreeSet<StoreId>,
    /// How far the stores are known to be.
    seen: Mutex<Seen>,
    /// Exported directories that were measured.
    exports: exports::Exports,
    /// What tickets got, on the disk.
    records: Mutex<records::Records>,
    /// Who writes that; none when it ends.
    keeper: Mutex<Option<records::Keeper>>,
}

/// A store that could not be opened when the server was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingStore {
    /// Which.
    pub store: StoreId,
    /// Where it should be.
    pub path: PathBuf,
    /// Why it is not there.
    pub why: String,
    /// Whether it is there, in an older state.
    pub is_older: bool,
}

/// How the stores of a server are opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// Devices serve who comes first, whatever was reserved.
    pub(crate) is_first_come: bool,
    /// Stores that are taken as they are, though they were further once.
    pub(crate) older_accepted: Vec<StoreId>,
    /// Stores that are missing and are not waited for any more.
    pub(crate) given_up: Vec<StoreId>,
}

/// The identity of the server whose data directory this is; a new one if it has none.
///
/// # Errors
/// [`StorageError::Data`].
pub(crate) fn identity(directory: &Path) -> Result<ServerId, StorageError> {
    Ok(StorageState::open(directory)?.server)
}

impl Storage {
    /// Opens all stores of the server. One that cannot be opened is missing.
    ///
    /// # Errors
    /// [`StorageError`] of the server itself; [`StorageError::NotOlder`].
    pub(crate) fn open(
        directory: &Path,
        cluster: ClusterId,
        opening: &Opening,
    ) -> Result<Arc<Self>, StorageError> {
        let mut state = StorageState::open(directory)?;
        let mut seen = Seen::open(directory)?;
        seen.retain(|store| state.stores.contains_key(&store));
        let accepted = opening.older_accepted.iter();
        if let Some(unknown) = accepted.copied().find(|id| !state.stores.contains_key(id)) {
            return Err(StorageError::NotOlder(unknown));
        }
        let clock = Arc::new(StorageClock::start());
        let (mut devices, mut missing) = (BTreeMap::new(), BTreeMap::new());
        for (id, path, company) in with_company(&state, directory) {
            match open_store(&path, (id, &seen), (&clock, company), opening) {
                Ok(device) => {
                    devices.insert(id, Arc::new(device));
                }
                Err(error) if error.is_of_one_store() => {
                    let is_older = error.is_older();
                    let (store, why) = (id, error.whole());
                    tracing::error!(%store, why, "a store is missing; the others are served");
                    let one = MissingStore {
                        store,
                        path,
                        why,
                        is_older,
                    };
                    missing.insert(store, one);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(store) = opening.given_up.iter().find(|id| !missing.contains_key(id)) {
            return Err(StorageError::NotMissing(*store));
        }
        state.give_up(&opening.given_up)?;
        for store in &opening.given_up {
            missing.remove(store);
            tracing::warn!(%store, "given up: what lay in this store is lost");
        }
        let exports = exports::Exports::open(directory, &clock, opening.is_first_come)?;
        let (records, noted) = records::Records::open(directory);
        let this = Self {
            cluster,
            directory: directory.to_owned(),
            clock,
            known: RwLock::new(Arc::new(state.clone())),
            verifier: WriteVerifier(crate::data::random()),
            memory: Arc::default(),
            devices,
            missing,
            lost: state.lost.clone(),
            seen: Mutex::new(seen),
            exports,
            records: Mutex::new(records),
            keeper: Mutex::default(),
            state: Mutex::new(state),
        };
        // What was accepted is not to be accepted again.
        this.note_seen()?;
        let this = Arc::new(this);
        this.keep_records(noted);
        Ok(this)
    }

    /// Remembers how far the stores are, so that an older state of one is noticed. Blocks.
    ///
    /// # Errors
    /// [`StorageError::Data`]; it is tried again with the next call.
    pub(crate) fn note_seen(&self) -> Result<(), StorageError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = self.devices.values();
        // First what is durable, then the note of it.
        let sequences = devices.map(|device| (device.id, device.store.durable_sequence()));
        Ok(seen.note(sequences)?)
    }

    fn state(&self) -> MutexGuard<'_, StorageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> Arc<StorageState> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// Lets everybody see what the state has become, and devices forget what was taken back.
    fn publish(&self, state: &StorageState) {
        let known = Arc::new(state.clone());
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        for device in self.devices.values() {
            device
                .dispatcher
                .revoke(|ticket, epoch| state.is_revoked(ticket, epoch));
        }
        self.exports
            .revoke(|ticket, epoch| state.is_revoked(ticket, epoch));
    }

    /// Says the same as long as nothing that was written is lost without having been committed.
    pub fn verifier(&self) -> WriteVerifier {
        self.verifier
    }

    /// Ends all threads in order. Whether everything that was written is durable then. Blocks.
    pub(crate) fn stop(&self) -> bool {
        self.exports.stop();
        let mut is_durable = true;
        for device in self.devices.values() {
            device.stop();
            if let Err(error) = device.store.checkpoint() {
                tracing::error!(path = %device.path.display(), %error, "a store ends uncleanly");
                is_durable = false;
            }
        }
        self.end_records();
        if let Err(error) = self.note_seen() {
            tracing::warn!(%error, "how far stores are is not noted");
        }
        is_durable
    }

    /// Which server it is: tickets name it.
    pub fn server(&self) -> ServerId {
        self.known().server
    }

    /// Who judges tickets here.
    pub fn place(&self) -> Place {
        Place {
            cluster: self.cluster,
            server: self.server(),
        }
    }

    /// The key that tickets for this server are issued under.
    pub fn ticket_key(&self) -> TicketKey {
        self.known().key().clone()
    }

    /// Number and secret of that key, and the epoch: what a manager issues tickets with.
    pub(crate) fn shared_key(&self) -> (u32, [u8; 32], u64) {
        let known = self.known();
        let (id, secret) = known.shared_key();
        (id, secret, known.epoch)
    }

    /// Tickets of older epochs are refused.
    pub fn epoch(&self) -> u64 {
        self.known().epoch
    }

    /// The ticket of a reservation for this server; server, cluster and key are set here.
    ///
    /// # Panics
    /// If the terms are none ([`Terms::is_valid`]).
    pub fn issue(&self, head: &Head, terms: &Terms) -> Ticket {
        let state = self.known();
        let head = Head {
            cluster: self.cluster,
            server: state.server,
            ..*head
        };
        Ticket::issue(state.key(), &head, terms)
    }

    /// The time by which windows are judged here: the wall's, without its jumps.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// All devices, and what may be promised of them.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let devices = self.devices.values();
        devices.map(|device| device.info()).collect()
    }

    /// One device.
    pub(crate) fn device(&self, store: StoreId) -> Option<&Arc<Device>> {
        self.devices.get(&store)
    }

    /// The stores that could not be opened.
    pub fn missing(&self) -> &BTreeMap<StoreId, MissingStore> {
        &self.missing
    }

    /// Whether a store was given up: nothing is waited for that should happen there, and nothing
    /// of what lay there comes back.
    pub fn is_lost(&self, store: StoreId) -> bool {
        self.lost.contains(&store)
    }

    fn device_or(&self, store: StoreId) -> Result<&Arc<Device>, SpaceError> {
        let is_missing = self.missing.contains_key(&store);
        self.device(store).ok_or(match is_missing {
            true => SpaceError::Missing(store),
            false => SpaceError::UnknownStore(store),
        })
    }

    /// Gives a ticket space in one store. Durable when it returns; asked again for the same, it
    /// says yes again.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn confirm_space(&self, store: StoreId, request: &SpaceRequest) -> Result<(), SpaceError> {
        self.device_or(store)?.confirm_space(request)
    }

    /// Whether tickets could be given such space in one store; nothing is taken.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn try_space(&self, store: StoreId, trial: &SpaceTrial) -> Result<(), SpaceError> {
        self.device_or(store)?.try_space(trial)
    }

    /// Lengthens a ticket's space. Durable when it returns.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn extend_space(
        &self,
        store: StoreId,
        ticket: TicketId,
        end: Moment,
    ) -> Result<(), SpaceError> {
        self.device_or(store)?.extend_space(ticket, end)
    }

    /// Takes a ticket's space back, with all objects in it. Durable when it returns.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn release_space(&self, store: StoreId, ticket: TicketId) -> Result<(), SpaceError> {
        self.device_or(store)?.release_space(ticket)
    }

    /// Allocation units that a ticket has in one store, and those that it uses; none if it has no
    /// space there.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn space_used(
        &self,
        store: StoreId,
        ticket: TicketId,
    ) -> Result<Option<(u64, u64)>, SpaceError> {
        Ok(self.device_or(store)?.space_used(ticket)?)
    }

    /// Makes an object so long if it is longer, and has it refuse what comes by a layout of an
    /// older generation; one that is not there is made for that. Blocks.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub(crate) fn cut_object(
        &self,
        store: StoreId,
        object: ObjectId,
        size_bytes: u64,
        generation: u64,
    ) -> Result<(), SpaceError> {
        let store = &self.device_or(store)?.store;
        let is_gone = || matches!(store.info(object), Err(store::StoreError::NotFound(_)));
        match store.cut(object, size_bytes, generation) {
            // A full store is to be cut, too, and whoever is late can make nothing there, either.
            Err(store::StoreError::NoSpace { .. }) if is_gone() => Ok(()),
            cut => unless_gone(cut),
        }
    }

    /// Makes an object so long if it is longer. One that is not there is not. Blocks.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub(crate) fn shorten_object(
        &self,
        store: StoreId,
        object: ObjectId,
        size_bytes: u64,
    ) -> Result<(), SpaceError> {
        let store = &self.device_or(store)?.store;
        let cut = match store.info(object) {
            Ok(info) if info.size_bytes > size_bytes => store.truncate(object, size_bytes),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        unless_gone(cut)
    }

    /// Removes an object, if it is there. Blocks.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub(crate) fn delete_object(&self, store: StoreId, object: ObjectId) -> Result<(), SpaceError> {
        unless_gone(self.device_or(store)?.store.delete(object))
    }

    /// Makes durable what was changed in a store. Blocks.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub(crate) fn commit_store(&self, store: StoreId) -> Result<(), SpaceError> {
        Ok(self.device_or(store)?.store.commit()?)
    }

    /// What a ticket got from one store, second by second from one on, oldest first, and sums over
    /// all its seconds; none if it was not shown there. `lineage` is the reservation's ticket, and
    /// the parts on the way to the one that is meant.
    pub fn seconds(
        &self,
        store: StoreId,
        lineage: &[TicketId],
        from_second: u64,
    ) -> Option<(Vec<TicketSecond>, Totals)> {
        match self.device(store) {
            Some(device) => device.dispatcher.record(lineage, from_second),
            None => self.export(store)?.record(lineage, from_second),
        }
    }

    /// Takes single tickets back, each until a second from which on it is over anyway. Durable when
    /// it returns.
    ///
    /// # Errors
    /// [`StorageError::TooManyRevoked`]: raise the epoch instead. [`StorageError::Data`].
    pub fn revoke(&self, tickets: &[(TicketId, u64)]) -> Result<(), StorageError> {
        let now = Moment::at_or_before(self.clock.now()).as_secs();
        let mut state = self.state();
        let revoked = state.revoke(tickets, now);
        self.publish(&state);
        revoked
    }

    /// Takes back all tickets of epochs before `epoch`. Durable when it returns; never lowered.
    ///
    /// # Errors
    /// [`StorageError::Data`].
    pub fn raise_epoch(&self, epoch: u64) -> Result<(), StorageError> {
        let mut state = self.state();
        let raised = state.raise_epoch(epoch);
        self.publish(&state);
        raised
    }

    /// Where the server keeps what it knows.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Which stores there are, where, and in which company.
fn with_company(
    state: &StorageState,
    directory: &Path,
) -> impl Iterator<Item = (StoreId, PathBuf, Arc<Company>)> + use<> {
    let stores = state.stores.iter();
    let stores = stores.map(|(id, path)| (*id, directory.join(path)));
    let stores: Vec<(StoreId, PathBuf)> = stores.collect();
    let companies = Company::of(stores.iter().map(|(_, path)| path.as_path()));
    let all = stores.into_iter().zip(companies);
    all.map(|((id, path), company)| (id, path, company))
}

/// Opens one store that has been seen before, or not.
fn open_store(
    path: &Path,
    (id, seen): (StoreId, &Seen),
    (clock, company): (&Arc<StorageClock>, Arc<Company>),
    opening: &Opening,
) -> Result<Device, StorageError> {
    let is_accepted = opening.older_accepted.contains(&id);
    let open = |least| {
        let shared = (clock, company.clone());
        Device::open(path, (id, least), shared, opening.is_first_come)
    };
    let device = match open(seen.least_sequence(id)) {
        Err(error) if error.is_older() && is_accepted => {
            tracing::warn!(store = %id, %error, "accepted: what was written since is lost");
            open(0)?
        }
        // Whoever leaves the word there for good would accept whatever comes.
        _ if is_accepted => return Err(StorageError::NotOlder(id)),
        opened => opened?,
    };
    device.release_unconfirmed()?;
    Ok(device)
}

fn unless_gone(outcome: Result<(), store::StoreError>) -> Result<(), SpaceError> {
    match outcome {
        Err(store::StoreError::NotFound(_) | store::StoreError::Expired(_)) => Ok(()),
        other => Ok(other?),
    }
}
