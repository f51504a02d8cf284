//! Tickets that a session has shown, and memory that each class of requests has.

use super::Storage;
use super::judge::{JudgeError, judge_window};
use crate::link::Link;
use crate::share::ShareKey;
use base::limits::{
    OBJECT_ADMIN_BYTES_ALWAYS, OBJECT_CLASS_BYTES_BEYOND, OBJECT_CLASS_BYTES_MAX,
    OBJECT_CONNECTION_BYTES_MAX, OBJECT_OWNER_BYTES_ALWAYS, OBJECT_REQUESTS_MAX,
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
    /// Whether it was opened at an exported directory.
    is_export: bool,
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
pub(crate) struct SessionTickets {
    held: Mutex<HashMap<u32, Arc<HeldTicket>>>,
    /// How many of them are for exported directories.
    of_exports: AtomicUsize,
}

impl SessionTickets {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<HeldTicket>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, held: &mut HashMap<u32, Arc<HeldTicket>>, number: u32, ticket: HeldTicket) {
        held.insert(number, Arc::new(ticket));
        self.count(held);
    }

    fn count(&self, held: &HashMap<u32, Arc<HeldTicket>>) {
        let of_exports = held.values().filter(|it| it.is_export).count();
        self.of_exports.store(of_exports, Ordering::Release);
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
        let (mut keys, mut is_export) = (BTreeMap::new(), false);
        for slice in &grant.terms().slices {
            let Some(device) = storage.device(slice.device) else {
                if let Some(opened) = storage.open_export(&grant, slice.device) {
                    keys.insert(slice.device, opened.map_err(open_refusal)?);
                    is_export = true;
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
        let ticket = HeldTicket {
            grant,
            keys,
            is_export,
        };
        self.insert(&mut held, number, ticket);
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
        let ticket = HeldTicket {
            grant,
            keys: BTreeMap::new(),
            is_export: false,
        };
        self.insert(&mut held, number, ticket);
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

    /// Whether one of them is for an exported directory, and good now. Asked for each request: who
    /// has none waits for nobody here.
    pub(crate) fn has_export(&self, storage: &Storage) -> bool {
        if self.of_exports.load(Ordering::Acquire) == 0 {
            return false;
        }
        let now = storage.now();
        let held = self.lock();
        let mut of_exports = held
            .values()
            .filter(|it| it.is_export && storage.export_of(it.volume()).is_some());
        of_exports.any(|held| held.check(storage, now).is_ok())
    }

    pub(super) fn close(&self, number: u32) {
        let mut held = self.lock();
        if held.remove(&number).is_some() {
            self.count(&held);
        }
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
            Self::Ticket(_) | Self::Credential(_) => OBJECT_OWNER_BYTES_ALWAYS,
        }
    }

    /// How far a class goes beyond its bound for that.
    fn beyond(self) -> usize {
        match self {
            Self::Admin(_) => usize::MAX - OBJECT_CLASS_BYTES_MAX,
            Self::Ticket(_) | Self::Credential(_) => OBJECT_CLASS_BYTES_BEYOND,
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
/// So whoever does not read replies leaves room for those who come. Many who do not leave less to
/// each who comes, but never less than some requests take, up to a bound of its own.
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
        let has_always = own <= owner.always_bytes()
            && self.all.saturating_add(bytes) <= OBJECT_CLASS_BYTES_MAX + owner.beyond();
        let fits = own <= left || has_always;
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
    use super::super::tests::{open, with_store};
    use super::*;
    use crate::link::LinkKey;
    use crate::share::Whole;
    use base::ticket::{Class, Head};
    use base::{ClusterId, ServerId};
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
    fn who_has_no_ticket_for_an_export_is_not_asked_about_each() {
        let (directory, _) = with_store(16);
        let storage = open(&directory);
        let session = SessionTickets::default();
        let ticket = |is_export| {
            let (head, terms) = (head(), terms());
            let lineage = vec![(head.id, terms)];
            HeldTicket {
                grant: Grant { head, lineage },
                keys: BTreeMap::new(),
                is_export,
            }
        };
        let of_exports = || session.of_exports.load(Ordering::Relaxed);
        session.insert(&mut session.lock(), 1, ticket(false));
        assert_eq!(of_exports(), 0);
        let held = session.lock();
        assert!(!session.has_export(&storage), "without a look at them");
        drop(held);
        session.insert(&mut session.lock(), 1, ticket(true));
        session.insert(&mut session.lock(), 2, ticket(true));
        assert_eq!(of_exports(), 2);
        session.insert(&mut session.lock(), 2, ticket(false));
        session.close(1);
        session.close(1);
        assert_eq!(of_exports(), 0);
    }

    fn head() -> Head {
        Head {
            class: Class::Standard,
            cluster: ClusterId([0; 16]),
            server: ServerId([0; 16]),
            id: TicketId([1; 16]),
            epoch: 0,
            holder: 1000,
            volume: VolumeId([7; 16]),
            key_id: 1,
        }
    }

    fn terms() -> Terms {
        Terms {
            operations: Operations::READ_WRITE,
            burst_millis: 0,
            start_secs: 1,
            end_secs: 2,
            lifetime_end_secs: 2,
            slices: Vec::new(),
            path: Vec::new(),
        }
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
    fn those_who_come_to_many_who_read_nothing_have_some_requests_up_to_a_bound() {
        let all = Arc::new(ClassBytes::default());
        let bytes = 1 << 20;
        let take = |key, owner| Charge::take(&link(key), &all, owner, bytes);
        let takes_all = |owner, links: u64| {
            let mut taken = Vec::new();
            for key in 0..links {
                taken.extend(std::iter::from_fn(|| take(key, owner)));
            }
            taken
        };
        let ticket = |number: u64| {
            let mut id = [7; 16];
            id[..8].copy_from_slice(&number.to_le_bytes());
            Owner::Ticket(TicketId(id))
        };
        let owners: [fn(u64) -> Owner; 2] = [user, ticket];
        for owner in owners {
            let links = (OBJECT_CLASS_BYTES_MAX / OBJECT_CONNECTION_BYTES_MAX) as u64;
            let mut held: Vec<_> = (0..12).map(|it| takes_all(owner(it), links)).collect();
            let always = OBJECT_OWNER_BYTES_ALWAYS / bytes;
            assert_eq!(takes_all(owner(100), 1).len(), always, "a newcomer");
            held.extend((200..1000).map(|it| takes_all(owner(it), 1)));
            let count: usize = held.iter().map(Vec::len).sum();
            let most = OBJECT_CLASS_BYTES_MAX + OBJECT_CLASS_BYTES_BEYOND;
            assert_eq!(count * bytes, most, "all of them together");
        }
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
