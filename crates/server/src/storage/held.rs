//! Tickets that a session has shown, and memory that each class of requests has.

use super::Storage;
use super::judge::{JudgeError, judge_window};
use crate::link::Link;
use crate::share::ShareKey;
use base::limits::{
    OBJECT_ADMIN_BYTES_ALWAYS, OBJECT_CLASS_BYTES_MAX, OBJECT_CONNECTION_BYTES_MAX,
    OBJECT_REQUESTS_MAX, SCHEDULER_TICKETS_MAX, SESSION_TICKETS_MAX,
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

/// On whose account it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A reservation's ticket, with all parts of it.
    Ticket(TicketId),
    /// A credential.
    Credential(ShareKey),
    /// One of those who administer: something is always left for them.
    Admin(ShareKey),
}

impl Owner {
    fn class(self) -> MemoryClass {
        match self {
            Self::Ticket(_) => MemoryClass::Reserved,
            Self::Credential(_) | Self::Admin(_) => MemoryClass::Unreserved,
        }
    }

    fn always_bytes(self) -> usize {
        match self {
            Self::Admin(_) => OBJECT_ADMIN_BYTES_ALWAYS,
            Self::Ticket(_) | Self::Credential(_) => 0,
        }
    }
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
///
/// Nobody has more than is left for the others: one alone has half of a class, two a third each.
/// So whoever does not read replies leaves room for those who come.
#[derive(Debug, Default)]
pub(super) struct ClassBytes([Mutex<OwnerBytes>; 2]);

#[derive(Debug, Default)]
struct OwnerBytes {
    all: usize,
    /// Of those who have some.
    owners: HashMap<Owner, usize>,
}

impl OwnerBytes {
    /// Takes so many, or nothing if there is no room.
    fn take(&mut self, owner: Owner, bytes: usize) -> bool {
        let own = self.owners.get(&owner).map_or(0, |own| *own) + bytes;
        let left = OBJECT_CLASS_BYTES_MAX.saturating_sub(self.all);
        let fits = own <= left.max(owner.always_bytes());
        if fits {
            self.all += bytes;
            self.owners.insert(owner, own);
        }
        fits
    }

    fn give_back(&mut self, owner: Owner, bytes: usize) {
        self.all -= bytes;
        if let Some(own) = self.owners.get_mut(&owner) {
            *own -= bytes;
            if *own == 0 {
                self.owners.remove(&owner);
            }
        }
    }
}

impl ClassBytes {
    fn of(&self, owner: Owner) -> MutexGuard<'_, OwnerBytes> {
        let class = &self.0[owner.class() as usize];
        class.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one request takes, until the socket has its reply.
pub(crate) struct Charge {
    link: Arc<Link>,
    all: Arc<ClassBytes>,
    owner: Owner,
    bytes: usize,
    /// Of all connections.
    taken: usize,
}

impl Charge {
    /// Takes it, or nothing if there is no room: who has filled his share is told so, and does not
    /// make others wait who come behind on the same connection.
    pub(super) fn take(
        link: &Arc<Link>,
        all: &Arc<ClassBytes>,
        owner: Owner,
        bytes: usize,
    ) -> Option<Self> {
        let own = &link.objects.0[owner.class() as usize];
        // Counted in any case, so that what is given back is what was taken.
        let mut charge = Self {
            link: link.clone(),
            all: all.clone(),
            owner,
            bytes,
            taken: 0,
        };
        let requests = own.requests.fetch_add(1, Ordering::Relaxed);
        let of_link = own.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = requests < OBJECT_REQUESTS_MAX
            && of_link + bytes <= OBJECT_CONNECTION_BYTES_MAX
            && all.of(owner).take(owner, bytes);
        charge.taken = if fits { bytes } else { 0 };
        fits.then_some(charge)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let own = &self.link.objects.0[self.owner.class() as usize];
        own.requests.fetch_sub(1, Ordering::Relaxed);
        own.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.taken > 0 {
            self.all.of(self.owner).give_back(self.owner, self.taken);
        }
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

    const RESERVED: Owner = Owner::Ticket(TicketId([1; 16]));

    fn user(number: u64) -> Owner {
        Owner::Credential(ShareKey(number))
    }

    #[test]
    fn who_has_filled_one_class_has_room_in_the_other() {
        let (link, all) = (link(1), Arc::new(ClassBytes::default()));
        let take = |owner, bytes| Charge::take(&link, &all, owner, bytes);
        let many: Vec<_> = (0..OBJECT_REQUESTS_MAX)
            .map(|_| take(user(1), 1).unwrap())
            .collect();
        assert!(take(user(1), 1).is_none());
        let reserved = take(RESERVED, OBJECT_CONNECTION_BYTES_MAX).unwrap();
        assert!(take(RESERVED, 1).is_none());
        drop((many, reserved));
        let large = take(user(1), OBJECT_CONNECTION_BYTES_MAX);
        assert!(large.is_some(), "what is refused takes nothing");
    }

    #[test]
    fn all_connections_together_have_a_bound_of_each_class() {
        let all = Arc::new(ClassBytes::default());
        let count = OBJECT_CLASS_BYTES_MAX / OBJECT_CONNECTION_BYTES_MAX;
        let take = |key, owner| Charge::take(&link(key), &all, owner, OBJECT_CONNECTION_BYTES_MAX);
        let many: Vec<_> = (0..count as u64)
            .map(|key| take(key, user(key)).unwrap())
            .collect();
        assert!(take(1000, user(1000)).is_none());
        assert!(take(1000, RESERVED).is_some());
        drop(many);
        assert!(take(1001, user(1001)).is_some());
    }

    #[test]
    fn who_takes_all_that_there_is_leaves_room_for_those_who_come() {
        let all = Arc::new(ClassBytes::default());
        let bytes = OBJECT_CONNECTION_BYTES_MAX / 4;
        let take = |key, owner| Charge::take(&link(key), &all, owner, bytes);
        let takes_all = |owner| (0..).map_while(|key| take(key, owner)).collect::<Vec<_>>();
        let ticket = |number: u64| Owner::Ticket(TicketId([number as u8; 16]));
        let owners: [fn(u64) -> Owner; 2] = [user, ticket];
        for owner in owners {
            let hogs: Vec<_> = (0..4).map(|hog| takes_all(owner(hog))).collect();
            assert!(hogs[0].len() * bytes >= OBJECT_CLASS_BYTES_MAX / 2, "alone");
            assert!(take(1000, owner(1000)).is_some());
            drop(hogs);
            let again = takes_all(owner(5));
            assert_eq!(again.len() * bytes, OBJECT_CLASS_BYTES_MAX / 2);
        }
        assert!(
            all.0
                .iter()
                .all(|class| class.lock().unwrap().owners.is_empty())
        );
    }

    #[test]
    fn those_who_administer_have_some_of_a_class_that_is_full() {
        let all = Arc::new(ClassBytes::default());
        let take = |key, owner, bytes| Charge::take(&link(key), &all, owner, bytes);
        let count = (OBJECT_CLASS_BYTES_MAX / OBJECT_CONNECTION_BYTES_MAX) as u64;
        let full = |key| take(key, user(key), OBJECT_CONNECTION_BYTES_MAX).unwrap();
        let _full: Vec<_> = (0..count).map(full).collect();
        let admin = Owner::Admin(ShareKey(1000));
        let always = take(1000, admin, OBJECT_ADMIN_BYTES_ALWAYS).unwrap();
        assert!(take(1000, admin, 1).is_none());
        drop(always);
        assert!(take(1000, admin, OBJECT_ADMIN_BYTES_ALWAYS).is_some());
    }
}
