//! Tickets that a session has shown, and memory that each class of requests has.

use super::Storage;
use super::judge::{JudgeError, judge_window};
use crate::link::Link;
use base::limits::{
    OBJECT_CLASS_BYTES_MAX, OBJECT_CONNECTION_BYTES_MAX, OBJECT_REQUESTS_MAX,
    SCHEDULER_TICKETS_MAX, SESSION_TICKETS_MAX,
};
use base::ticket::{Grant, Operations, Terms, TicketError};
use base::{StoreId, TicketId, Time, VolumeId};
use reservation::scheduler::{Rejection, TicketKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::message::TicketRefusal;

use super::dispatch::OpenError;

/// A ticket that was judged once, and is good for as long as nothing says otherwise.
#[derive(Debug)]
pub(crate) struct HeldTicket {
    pub(super) grant: Grant,
    /// How each device of this server that it has a share of calls it; none for one that is for
    /// another server.
    pub(super) keys: BTreeMap<StoreId, TicketKey>,
}

impl HeldTicket {
    pub(super) fn terms(&self) -> &Terms {
        self.grant.terms()
    }

    pub(super) fn volume(&self) -> VolumeId {
        self.grant.head.volume
    }

    /// The reservation's ticket and the parts on the way to this one.
    pub(super) fn lineage(&self) -> Vec<TicketId> {
        self.grant.lineage.iter().map(|(id, _)| *id).collect()
    }

    /// Whether it is still good now.
    pub(super) fn check(&self, storage: &Storage, now: Time) -> Result<(), TicketRefusal> {
        let epoch = self.grant.head.epoch;
        let known = storage.known();
        let is_revoked = |id: &TicketId| known.is_revoked(*id, epoch);
        // Of another server's, only that one knows.
        let is_own = !self.keys.is_empty();
        if is_own && self.grant.lineage.iter().any(|(id, _)| is_revoked(id)) {
            return Err(TicketRefusal::Revoked);
        }
        judge_window(self.terms(), now).map_err(refusal)
    }
}

/// A session's tickets, by its own numbers.
#[derive(Debug, Default)]
pub(crate) struct SessionTickets(Mutex<HashMap<u32, Arc<HeldTicket>>>);

impl SessionTickets {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<HeldTicket>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a ticket and opens it at every device that it has a share of.
    pub(super) fn open(
        &self,
        storage: &Storage,
        number: u32,
        ticket: &[u8],
    ) -> Result<(), TicketRefusal> {
        let grant = storage.judge(ticket).map_err(|error| match error {
            JudgeError::Ticket(error) => refusal(error),
            JudgeError::ClockUnsure => TicketRefusal::ClockUnsure,
        })?;
        let mut held = self.lock();
        if held.len() >= SESSION_TICKETS_MAX && !held.contains_key(&number) {
            return Err(TicketRefusal::TooMany);
        }
        let mut keys = BTreeMap::new();
        for slice in &grant.terms().slices {
            let Some(device) = storage.device(slice.device) else {
                if let Some(opened) = storage.open_export(&grant, slice.device) {
                    keys.insert(slice.device, opened.map_err(open_refusal)?);
                }
                continue;
            };
            let opened = device.dispatcher.open(&grant, slice.device);
            keys.insert(slice.device, opened.map_err(open_refusal)?);
            let (budgets, dispatcher) = (&device.budgets, &device.dispatcher);
            budgets.tidy(2 * SCHEDULER_TICKETS_MAX, |lineage| {
                dispatcher.is_open(lineage)
            });
        }
        if keys.is_empty() {
            return Err(TicketRefusal::NoSlice);
        }
        held.insert(number, Arc::new(HeldTicket { grant, keys }));
        Ok(())
    }

    /// Keeps a ticket for another server of the cluster, which was judged by its key: files are
    /// laid out for it here, and it opens nothing.
    pub(crate) fn note(
        &self,
        number: u32,
        judged: Result<Grant, TicketError>,
    ) -> Result<(), TicketRefusal> {
        let grant = judged.map_err(refusal)?;
        let mut held = self.lock();
        if held.len() >= SESSION_TICKETS_MAX && !held.contains_key(&number) {
            return Err(TicketRefusal::TooMany);
        }
        let keys = BTreeMap::new();
        held.insert(number, Arc::new(HeldTicket { grant, keys }));
        Ok(())
    }

    /// The stores of which the tickets for writing to a volume have a share now.
    pub(crate) fn stores(&self, storage: &Storage, volume: VolumeId) -> BTreeSet<StoreId> {
        let held = self.lock();
        let now = storage.now();
        let writing = held.values().filter(|held| {
            let operations = held.terms().operations;
            held.volume() == volume
                && operations.contains(Operations::WRITE)
                && held.check(storage, now).is_ok()
        });
        let stores = writing.flat_map(|held| held.terms().slices.iter().map(|slice| slice.device));
        stores.collect()
    }

    /// How the device that a volume is calls the ticket that the session has for an operation
    /// there; none if it has none that is good.
    pub(crate) fn for_export(
        &self,
        storage: &Storage,
        (volume, device): (VolumeId, StoreId),
        operation: Operations,
    ) -> Option<TicketKey> {
        let held = self.lock();
        let now = storage.now();
        // A path restricts objects, and a file here has none.
        let is_for = |held: &&Arc<HeldTicket>| {
            let terms = held.terms();
            held.volume() == volume && terms.operations.contains(operation) && terms.path.is_empty()
        };
        let mut own = held.values().filter(is_for);
        own.find_map(|held| {
            let key = held.keys.get(&device)?;
            held.check(storage, now).is_ok().then_some(*key)
        })
    }

    /// Whether one of them is for an exported directory, and good now.
    pub(crate) fn has_export(&self, storage: &Storage) -> bool {
        if !storage.has_exports_in_use() {
            return false;
        }
        let now = storage.now();
        let held = self.lock();
        let mut of_exports = held
            .values()
            .filter(|it| storage.export_of(it.volume()).is_some());
        of_exports.any(|held| held.check(storage, now).is_ok())
    }

    pub(super) fn close(&self, number: u32) {
        self.lock().remove(&number);
    }

    pub(super) fn get(&self, number: u32) -> Result<Arc<HeldTicket>, TicketRefusal> {
        self.lock()
            .get(&number)
            .cloned()
            .ok_or(TicketRefusal::NotOpen)
    }
}

pub(super) fn refusal(error: TicketError) -> TicketRefusal {
    match error {
        TicketError::Truncated => TicketRefusal::Truncated,
        TicketError::Malformed => TicketRefusal::Malformed,
        TicketError::UnknownVersion(version) => TicketRefusal::UnknownVersion(version),
        TicketError::OtherCluster(_) => TicketRefusal::OtherCluster,
        TicketError::OtherServer(_) => TicketRefusal::OtherServer,
        TicketError::UnknownKey(key) => TicketRefusal::UnknownKey(key),
        TicketError::Forged => TicketRefusal::Forged,
        TicketError::Widened(_) => TicketRefusal::Widened,
        TicketError::Revoked => TicketRefusal::Revoked,
        TicketError::NotYet { seconds } => TicketRefusal::NotYet { seconds },
        TicketError::Expired { seconds } => TicketRefusal::Expired { seconds },
    }
}

fn open_refusal(error: OpenError) -> TicketRefusal {
    match error {
        OpenError::NoSlice => TicketRefusal::NoSlice,
        OpenError::Rejected(Rejection::Oversplit { room_ppm }) => {
            TicketRefusal::Oversplit { room_ppm }
        }
        OpenError::Rejected(Rejection::TooManyTickets | Rejection::TooManyUsers) => {
            TicketRefusal::TooMany
        }
        OpenError::Rejected(_) => TicketRefusal::Malformed,
    }
}

/// Whose memory a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryClass {
    Reserved = 0,
    Unreserved = 1,
}

/// What the object requests of one connection take, by class.
#[derive(Debug, Default)]
pub(crate) struct ObjectShare([Used; 2]);

#[derive(Debug, Default)]
struct Used {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// What those of all connections take.
#[derive(Debug, Default)]
pub(super) struct ClassBytes([AtomicUsize; 2]);

/// What one request takes, until the socket has its reply.
pub(crate) struct Charge {
    link: Arc<Link>,
    all: Arc<ClassBytes>,
    class: usize,
    bytes: usize,
}

impl Charge {
    /// Takes it, or nothing if there is no room: who has filled his share is told so, and does not
    /// make others wait who come behind on the same connection.
    pub(super) fn take(
        link: &Arc<Link>,
        all: &Arc<ClassBytes>,
        class: MemoryClass,
        bytes: usize,
    ) -> Option<Self> {
        let class = class as usize;
        let (own, whole) = (&link.objects.0[class], &all.0[class]);
        // Counted in any case, so that what is given back is what was taken.
        let charge = Self {
            link: link.clone(),
            all: all.clone(),
            class,
            bytes,
        };
        let requests = own.requests.fetch_add(1, Ordering::Relaxed);
        let of_link = own.bytes.fetch_add(bytes, Ordering::Relaxed);
        let of_all = whole.fetch_add(bytes, Ordering::Relaxed);
        let fits = requests < OBJECT_REQUESTS_MAX
            && of_link + bytes <= OBJECT_CONNECTION_BYTES_MAX
            && of_all + bytes <= OBJECT_CLASS_BYTES_MAX;
        fits.then_some(charge)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let own = &self.link.objects.0[self.class];
        own.requests.fetch_sub(1, Ordering::Relaxed);
        own.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.all.0[self.class].fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkKey;
    use crate::share::Whole;
    use std::sync::Weak;
    use wire::message::ConnectionRole;

    fn link(key: u64) -> Arc<Link> {
        let address = "127.0.0.1:1".parse().unwrap();
        let share = Whole::default().share();
        Link::new(
            LinkKey(key),
            address,
            ConnectionRole::Main,
            share,
            Weak::new(),
        )
    }

    #[test]
    fn who_has_filled_one_class_has_room_in_the_other() {
        let (link, all) = (link(1), Arc::new(ClassBytes::default()));
        let take = |class, bytes| Charge::take(&link, &all, class, bytes);
        let many: Vec<_> = (0..OBJECT_REQUESTS_MAX)
            .map(|_| take(MemoryClass::Unreserved, 1).unwrap())
            .collect();
        assert!(take(MemoryClass::Unreserved, 1).is_none());
        let reserved = take(MemoryClass::Reserved, OBJECT_CONNECTION_BYTES_MAX).unwrap();
        assert!(take(MemoryClass::Reserved, 1).is_none());
        drop((many, reserved));
        let large = take(MemoryClass::Unreserved, OBJECT_CONNECTION_BYTES_MAX);
        assert!(large.is_some(), "what is refused takes nothing");
    }

    #[test]
    fn all_connections_together_have_a_bound_of_each_class() {
        let all = Arc::new(ClassBytes::default());
        let count = OBJECT_CLASS_BYTES_MAX / OBJECT_CONNECTION_BYTES_MAX;
        let take = |key, class| Charge::take(&link(key), &all, class, OBJECT_CONNECTION_BYTES_MAX);
        let many: Vec<_> = (0..count as u64)
            .map(|key| take(key, MemoryClass::Unreserved).unwrap())
            .collect();
        assert!(take(1000, MemoryClass::Unreserved).is_none());
        assert!(take(1000, MemoryClass::Reserved).is_some());
        drop(many);
        assert!(take(1001, MemoryClass::Unreserved).is_some());
    }
}
