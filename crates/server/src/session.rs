//! Sessions: what one mounted client has at the server, over all its connections.
//!
//! A session belongs to the credential that opened it. It outlives its connections by
//! [`base::limits::SESSION_IDLE_TIME_MAX`], with its opens, locks, leases and remembered replies,
//! so that a line that was cut for a while costs the applications nothing but the wait.
//!
//! A session that has ended keeps its name, and what it had open, until no request of it is being
//! worked on. It is counted apart: however many of these a device that hangs keeps from their end,
//! there is room for sessions of clients that are there, and the other way round. There are no more
//! of them than threads that work for them.

use crate::clock::Clock;
use crate::lease::{Noted, RecallOutbox};
use crate::link::Link;
use crate::memory::Memory;
use crate::opens::{self, Opens, Room};
use crate::share::{Share, Whole};
use crate::storage::SessionTickets;
use base::limits::{
    CONNECTIONS_MAX, DISTRUST_TIME, SESSION_REST_TIME_MAX, SESSIONS_FOR_ADMINISTRATION,
    SESSIONS_MAX, SESSIONS_OF_USERS_MAX, SESSIONS_PER_CREDENTIAL_MAX,
};
use base::{SessionId, Time, VolumeId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use wire::identity::Peer;
use wire::message::{ConnectionRole, CredentialKind, Farewell, Features, Lease};

/// A session's number within this run: what tables are keyed by. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionKey(pub(crate) u32);

/// One client.
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) id: SessionId,
    /// The credential that it belongs to.
    pub(crate) peer: Peer,
    /// Name of the client's machine, as it says.
    pub(crate) host: String,
    pub(crate) opens: Opens,
    /// What its credential may hold of the server's memory.
    pub(crate) share: Arc<Share>,
    pub(crate) tickets: SessionTickets,
    memory: Mutex<Memory>,
    pub(crate) recalls: RecallOutbox,
    links: Mutex<Links>,
    /// When a frame of it was last read, in nanoseconds of the server's clock.
    heard: AtomicU64,
    /// When a change that it asked for was last carried out, likewise.
    changed: AtomicU64,
    ended: AtomicBool,
    /// When, in nanoseconds of the server's clock.
    ended_at: AtomicU64,
    work: Mutex<Work>,
    /// Whether there is a connection for notices.
    has_main: AtomicBool,
    /// Whether the client has heard that this is another session than it had: it has sent something
    /// on a main connection, after its greeting.
    is_begun: AtomicBool,
    /// What is noted of it on disk, see [`byte_of`].
    noted: AtomicU8,
    /// Abilities of client and server, as its last connection has said.
    features: AtomicU64,
    /// Volumes that it has entered.
    volumes: Mutex<HashSet<VolumeId>>,
    /// Requests being worked on.
    pub(crate) requests: AtomicU64,
    /// Bytes of connections that are closed.
    past_bytes_sent: AtomicU64,
    past_bytes_received: AtomicU64,
}

/// Workers that are at its requests now.
#[derive(Default)]
struct Work {
    count: usize,
    /// What the last one does.
    at_rest: Option<Box<dyn FnOnce() + Send>>,
}

/// A worker is at one of a session's requests.
pub(crate) struct Working(Arc<Session>);

#[derive(Default)]
struct Links {
    main: Option<Arc<Link>>,
    bulk: Vec<Arc<Link>>,
}

impl Session {
    /// Notes that the client lives.
    pub(crate) fn hear(&self, now: Time) {
        self.heard.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// The client has sent something on a main connection.
    pub(crate) fn begin(&self) {
        self.is_begun.store(true, Ordering::Release);
    }

    /// Whether the client goes on with it, and what it left there is its own.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    /// Notes that a change that the client asked for has been carried out.
    pub(crate) fn note_change(&self, now: Time) {
        self.changed.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// What is noted of it on disk.
    pub(crate) fn noted(&self) -> Noted {
        let byte = self.noted.load(Ordering::Acquire);
        let lease = match byte & !WRITES {
            0 => Lease::None,
            1 => Lease::Read,
            _ => Lease::Exclusive,
        };
        let writes = byte & WRITES != 0;
        Noted { lease, writes }
    }

    /// This is noted of it on disk. By one thread at a time.
    pub(crate) fn set_noted(&self, noted: Noted) {
        self.noted.store(byte_of(noted), Ordering::Release);
    }

    /// Abilities of client and server.
    pub(crate) fn features(&self) -> Features {
        Features(self.features.load(Ordering::Acquire))
    }

    /// A connection of the session has these.
    pub(crate) fn set_features(&self, features: Features) {
        self.features.store(features.0, Ordering::Release);
    }

    /// When a change that the client asked for was last carried out.
    pub(crate) fn changed(&self) -> Time {
        Time::from_nanos(self.changed.load(Ordering::Relaxed))
    }

    /// What it remembers of requests.
    pub(crate) fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the client was last heard.
    pub(crate) fn heard(&self) -> Time {
        Time::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    /// A worker begins, or goes on, with one of its requests. `None` if the session has ended.
    pub(crate) fn begin_work(self: &Arc<Self>) -> Option<Working> {
        let mut work = self.lock_work();
        // Under the lock: who ends the session sees this worker, or this worker the end.
        if self.has_ended() {
            return None;
        }
        work.count += 1;
        Some(Working(self.clone()))
    }

    /// Of a session that has ended: does this when no worker is at its requests any more, or one
    /// has been for so long that it is given up ([`Self::give_up`]).
    pub(crate) fn at_rest(&self, then: impl FnOnce() + Send + 'static) {
        let mut work = self.lock_work();
        if work.count > 0 {
            work.at_rest = Some(Box::new(then));
            return;
        }
        drop(work);
        then();
    }

    /// If the session has ended [`SESSION_REST_TIME_MAX`] ago and is not at rest, a worker hangs:
    /// what was to be done at rest is to be done now.
    pub(crate) fn give_up(&self, now: Time) -> Option<Box<dyn FnOnce() + Send>> {
        let ended = Time::from_nanos(self.ended_at.load(Ordering::Acquire));
        let is_late = self.has_ended() && now.since(ended) > SESSION_REST_TIME_MAX;
        is_late.then(|| self.lock_work().at_rest.take()).flatten()
    }

    /// Whether the session has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether notices can reach the client: without that it must not cache.
    fn hears_notices(&self) -> bool {
        self.has_main.load(Ordering::Acquire) && !self.has_ended()
    }

    /// Whether it may be given leases.
    pub(crate) fn may_cache(&self, now: Time) -> bool {
        self.hears_notices() && !self.share.is_distrusted(now)
    }

    /// The connection that carries notices.
    pub(crate) fn main(&self) -> Option<Arc<Link>> {
        self.lock().main.clone()
    }

    /// All connections.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let links = self.lock();
        links.main.iter().chain(&links.bulk).cloned().collect()
    }

    /// Adds an authenticated connection; a second main one replaces the first.
    ///
    /// # Errors
    /// [`Farewell::Overloaded`] if there are too many, or the session has ended meanwhile.
    pub(crate) fn join(&self, link: &Arc<Link>) -> Result<(), Farewell> {
        let mut links = self.lock();
        if self.has_ended() {
            return Err(Farewell::Overloaded);
        }
        if link.role == ConnectionRole::Main {
            self.has_main.store(true, Ordering::Release);
            if let Some(old) = links.main.replace(link.clone()) {
                drop(links);
                old.close(Some(&Farewell::Replaced));
            }
            return Ok(());
        }
        if links.bulk.len() + 1 >= CONNECTIONS_MAX {
            return Err(Farewell::Overloaded);
        }
        links.bulk.push(link.clone());
        Ok(())
    }

    /// Takes a closed connection out.
    pub(crate) fn leave(&self, link: &Arc<Link>) {
        let mut links = self.lock();
        if links
            .main
            .as_ref()
            .is_some_and(|main| Arc::ptr_eq(main, link))
        {
            links.main = None;
            self.has_main.store(false, Ordering::Release);
        }
        links.bulk.retain(|other| !Arc::ptr_eq(other, link));
        drop(links);
        let (sent, received) = link.bytes();
        self.past_bytes_sent.fetch_add(sent, Ordering::Relaxed);
        self.past_bytes_received
            .fetch_add(received, Ordering::Relaxed);
    }

    /// Bytes sent and received, over all connections so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let past = (
            self.past_bytes_sent.load(Ordering::Relaxed),
            self.past_bytes_received.load(Ordering::Relaxed),
        );
        self.links()
            .iter()
            .map(|l| l.bytes())
            .fold(past, |a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// Notes that it has entered a volume.
    pub(crate) fn attach(&self, volume: VolumeId) {
        self.volumes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(volume);
    }

    /// A volume that it has entered; a mount's has one.
    pub(crate) fn entered(&self) -> Option<VolumeId> {
        let volumes = self.volumes.lock();
        let volumes = volumes.unwrap_or_else(PoisonError::into_inner);
        volumes.iter().next().copied()
    }

    /// Whether it has entered a volume.
    pub(crate) fn uses(&self, volume: VolumeId) -> bool {
        self.volumes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&volume)
    }

    /// Lets no connection join any more. Returns those that there are, to be closed, or `None` if
    /// the session had ended before.
    pub(crate) fn end(&self, now: Time) -> Option<Vec<Arc<Link>>> {
        let mut links = self.lock();
        if !self.has_ended() {
            self.ended_at.store(now.as_nanos(), Ordering::Release);
        }
        if self.ended.swap(true, Ordering::AcqRel) {
            return None;
        }
        let main = links.main.take();
        Some(main.into_iter().chain(links.bulk.drain(..)).collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_work(&self) -> std::sync::MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut work = self.0.lock_work();
        work.count -= 1;
        let then = if work.count == 0 {
            work.at_rest.take()
        } else {
            None
        };
        drop(work);
        if let Some(then) = then {
            then();
        }
    }
}

/// In a byte with a lease: the session writes.
const WRITES: u8 = 1 << 7;

fn byte_of(noted: Noted) -> u8 {
    let writes = match noted.writes {
        true => WRITES,
        false => 0,
    };
    noted.lease as u8 | writes
}

/// Sessions by their names.
#[derive(Default)]
struct Table {
    /// Those of clients that are there, or may come back. These are counted.
    live: HashMap<SessionId, Arc<Session>>,
    /// Those that have ended and are not at rest.
    ending: HashMap<SessionId, Arc<Session>>,
}

impl Table {
    fn all(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.live.values().chain(self.ending.values())
    }
}

/// All sessions of a server.
pub(crate) struct Sessions {
    table: RwLock<Table>,
    /// Sessions whose client has said goodbye, the last ones. One of its connections may still be
    /// on its way here, and must not begin the session again.
    goodbyes: Mutex<VecDeque<SessionId>>,
    /// Credentials of which a client did not obey a recall, the last ones, and until when their
    /// clients get no leases: also if all their sessions have ended meanwhile.
    distrusted: Mutex<VecDeque<(String, Time)>>,
    last_key: AtomicU32,
    /// Those of the run before that have not come back: under which keys they will, and what is
    /// noted of them.
    former: Mutex<HashMap<SessionId, (SessionKey, Noted)>>,
    /// What their opens may take.
    room: Room,
    /// What they may hold of the memory.
    whole: Whole,
}

impl Sessions {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            table: RwLock::default(),
            goodbyes: Mutex::default(),
            distrusted: Mutex::default(),
            last_key: AtomicU32::new(0),
            former: Mutex::default(),
            room: Room::new(opens::descriptors_max()),
            whole: Whole::default(),
        }
    }

    /// Whether there is such a session.
    pub(crate) fn contains(&self, id: SessionId) -> bool {
        self.read().live.contains_key(&id)
    }

    /// Whether the client goes on with a session that it has begun; what a welcome tells. One that
    /// has ended may have been made anew by a connection of its that came before its main one.
    pub(crate) fn is_known(&self, id: SessionId) -> bool {
        self.read().live.get(&id).is_some_and(|it| it.is_begun())
    }

    /// Nobody will come back under this key; whose it was, if somebody might have.
    pub(crate) fn expect_no_longer(&self, key: SessionKey) -> Option<SessionId> {
        let mut former = self.former();
        let (id, _) = former.iter().find(|(_, (own, _))| *own == key)?;
        let id = *id;
        former.remove(&id);
        Some(id)
    }

    /// Finds or makes the session `id` for the bearer of a credential.
    ///
    /// # Errors
    /// [`Farewell::ForeignSession`], [`Farewell::Ending`], [`Farewell::Overloaded`].
    pub(crate) fn open(
        &self,
        id: SessionId,
        peer: &Peer,
        host: &str,
        clock: &Clock,
    ) -> Result<Arc<Session>, Farewell> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = table.live.get(&id).or_else(|| table.ending.get(&id)) {
            session.hear(clock.now());
            return if session.peer.serial != peer.serial {
                Err(Farewell::ForeignSession)
            } else if session.has_ended() {
                Err(Farewell::Ending)
            } else {
                Ok(session.clone())
            };
        }
        if self.goodbyes().contains(&id) {
            return Err(Farewell::ForeignSession);
        }
        let is_own = |session: &&Arc<Session>| session.peer.serial == peer.serial;
        if !has_room(&table.live, peer) {
            return Err(Farewell::Overloaded);
        }
        // What one that has ended has open still takes of it.
        let (room, share) = match table.all().find(is_own) {
            Some(own) => (own.opens.room.clone(), own.share.clone()),
            None => (self.room.of_another(), self.new_share(&peer.serial)),
        };
        let former = self.former().remove(&id);
        let (key, noted) = former.unwrap_or_else(|| (self.new_key(), Noted::NOTHING));
        let session = Arc::new(Session {
            key,
            id,
            peer: peer.clone(),
            host: host.to_owned(),
            opens: Opens::new(room),
            share,
            tickets: SessionTickets::default(),
            memory: Mutex::default(),
            recalls: RecallOutbox::default(),
            links: Mutex::default(),
            heard: AtomicU64::new(clock.now().as_nanos()),
            changed: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            ended_at: AtomicU64::new(0),
            work: Mutex::default(),
            has_main: AtomicBool::new(false),
            is_begun: AtomicBool::new(false),
            noted: AtomicU8::new(byte_of(noted)),
            features: AtomicU64::new(0),
            volumes: Mutex::default(),
            requests: AtomicU64::new(0),
            past_bytes_sent: AtomicU64::new(0),
            past_bytes_received: AtomicU64::new(0),
        });
        table.live.insert(id, session.clone());
        Ok(session)
    }

    fn new_key(&self) -> SessionKey {
        SessionKey(self.last_key.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn former(&self) -> MutexGuard<'_, HashMap<SessionId, (SessionKey, Noted)>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These had leases or wrote in the run before, and may come back: under which keys.
    pub(crate) fn expect(&self, ids: Vec<(SessionId, Noted)>) -> Vec<(SessionKey, Noted)> {
        let mut former = self.former();
        former.extend(ids.into_iter().map(|(id, had)| (id, (self.new_key(), had))));
        former.values().copied().collect()
    }

    /// The time is over in which they may come back. Those who have not.
    pub(crate) fn expect_none(&self) -> Vec<SessionId> {
        std::mem::take(&mut *self.former()).into_keys().collect()
    }

    /// The share of a credential that has no session.
    fn new_share(&self, serial: &str) -> Arc<Share> {
        let share = self.whole.share();
        let distrusted = self.distrusted();
        let own = distrusted.iter().filter(|(known, _)| known == serial);
        own.for_each(|(_, until)| share.distrust(*until));
        share
    }

    /// A session does not obey a recall: its credential gets no leases for a while.
    pub(crate) fn distrust(&self, session: &Session, now: Time) {
        let (serial, until) = (&session.peer.serial, now + DISTRUST_TIME);
        let mut distrusted = self.distrusted();
        distrusted.retain(|(known, until)| known != serial && *until > now);
        if distrusted.len() == SESSIONS_MAX {
            distrusted.pop_front();
        }
        distrusted.push_back((serial.clone(), until));
        session.share.distrust(until);
    }

    fn distrusted(&self) -> MutexGuard<'_, VecDeque<(String, Time)>> {
        let distrusted = self.distrusted.lock();
        distrusted.unwrap_or_else(PoisonError::into_inner)
    }

    /// All sessions that have not ended.
    pub(crate) fn list(&self) -> Vec<Arc<Session>> {
        self.read().live.values().cloned().collect()
    }

    /// As [`Self::list`], and those that have ended and are not at rest.
    pub(crate) fn list_all(&self) -> Vec<Arc<Session>> {
        self.read().all().cloned().collect()
    }

    /// The session with this number.
    pub(crate) fn by_key(&self, key: SessionKey) -> Option<Arc<Session>> {
        self.read().all().find(|s| s.key == key).cloned()
    }

    /// How many there are, and how many besides have ended and are not at rest.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let table = self.read();
        (table.live.len(), table.ending.len())
    }

    /// A session has ended: it is not counted any more, and keeps its name until it is removed.
    pub(crate) fn set_ending(&self, session: &Session) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let is_it = table
            .live
            .get(&session.id)
            .is_some_and(|s| s.key == session.key);
        if is_it && let Some(ended) = table.live.remove(&session.id) {
            table.ending.insert(session.id, ended);
        }
    }

    /// Forgets a session that has ended.
    pub(crate) fn remove(&self, session: &Session) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Table { live, ending } = &mut *table;
        for sessions in [live, ending] {
            if sessions
                .get(&session.id)
                .is_some_and(|s| s.key == session.key)
            {
                sessions.remove(&session.id);
            }
        }
    }

    /// The client of a session has said goodbye: there will be no other of this name.
    pub(crate) fn note_goodbye(&self, id: SessionId) {
        let mut goodbyes = self.goodbyes();
        if goodbyes.len() == SESSIONS_MAX {
            goodbyes.pop_front();
        }
        goodbyes.push_back(id);
    }

    fn goodbyes(&self) -> MutexGuard<'_, VecDeque<SessionId>> {
        self.goodbyes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one more session of this peer is to be had beside these.
fn has_room(live: &HashMap<SessionId, Arc<Session>>, peer: &Peer) -> bool {
    let is_user = |peer: &Peer| matches!(peer.kind, CredentialKind::User { .. });
    let (mut own, mut users) = (0, 0);
    for session in live.values() {
        own += usize::from(session.peer.serial == peer.serial);
        users += usize::from(is_user(&session.peer));
    }
    let kept = match peer.kind.is_admin() {
        true => 0,
        false => SESSIONS_FOR_ADMINISTRATION,
    };
    let users_max = if is_user(peer) {
        SESSIONS_OF_USERS_MAX
    } else {
        SESSIONS_MAX
    };
    live.len() + kept < SESSIONS_MAX && own < SESSIONS_PER_CREDENTIAL_MAX && users < users_max
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const ID: SessionId = SessionId([7; 16]);

    fn peer() -> Peer {
        Peer {
            kind: CredentialKind::Admin,
            serial: "01".to_owned(),
            label: "tester".to_owned(),
        }
    }

    #[test]
    fn a_session_that_ends_keeps_its_name_until_its_last_request_is_over() {
        let (sessions, clock) = (Sessions::new(), Clock::start());
        let open = || sessions.open(ID, &peer(), "tester", &clock);
        let first = open().unwrap();
        let (one, other) = (first.begin_work().unwrap(), first.begin_work().unwrap());
        assert!(first.end(clock.now()).is_some());
        let rested = Arc::new(AtomicUsize::new(0));
        let note = rested.clone();
        first.at_rest(move || {
            note.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(open().err(), Some(Farewell::Ending));
        assert!(first.begin_work().is_none(), "no other request begins");
        drop(one);
        assert_eq!(rested.load(Ordering::Relaxed), 0);
        drop(other);
        assert_eq!(rested.load(Ordering::Relaxed), 1);
        sessions.remove(&first);
        assert!(open().unwrap().key != first.key);
    }

    #[test]
    fn sessions_that_cannot_end_and_those_of_clients_that_are_there_leave_each_other_room() {
        let (sessions, clock) = (Sessions::new(), Clock::start());
        let own = |number: usize| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(number as u64).to_le_bytes());
            SessionId(id)
        };
        let open = |number: usize| {
            let serial = (number % SESSIONS_MAX / SESSIONS_PER_CREDENTIAL_MAX).to_string();
            let peer = Peer { serial, ..peer() };
            sessions.open(own(number), &peer, "tester", &clock)
        };
        let begin = |from: usize| {
            let begun = (from..from + SESSIONS_MAX).map(|number| open(number).unwrap());
            begun.collect::<Vec<_>>()
        };
        // A device hangs below one request of each.
        let hanging = begin(0);
        assert_eq!(open(SESSIONS_MAX).err(), Some(Farewell::Overloaded));
        let work: Vec<_> = hanging.iter().map(|it| it.begin_work().unwrap()).collect();
        for session in &hanging {
            session.end(clock.now());
            sessions.set_ending(session);
        }
        // None of them is in the way of as many others, of the same credentials.
        let live = begin(SESSIONS_MAX);
        assert_eq!(sessions.counts(), (SESSIONS_MAX, SESSIONS_MAX));
        assert_eq!(sessions.list_all().len(), 2 * SESSIONS_MAX);
        // Nor are these in the way of their names, and of what they keep.
        assert_eq!(open(7).err(), Some(Farewell::Ending));
        assert!(!sessions.contains(own(7)) && sessions.by_key(hanging[7].key).is_some());
        drop(work);
        hanging.iter().for_each(|session| sessions.remove(session));
        assert_eq!(sessions.counts(), (SESSIONS_MAX, 0));
        live.iter().for_each(|session| sessions.remove(session));
        assert_eq!(sessions.counts(), (0, 0));
        assert!(open(7).is_ok());
    }

    /// Those who fill a server can be revoked, and are not in the way of machines.
    #[test]
    fn users_leave_room_for_machines_and_these_for_administrators() {
        let (sessions, clock) = (Sessions::new(), Clock::start());
        let opened = std::cell::Cell::new(0_u64);
        let open = |kind, serial: u64| {
            opened.set(opened.get() + 1);
            let mut id = [0; 16];
            id[..8].copy_from_slice(&opened.get().to_le_bytes());
            let peer = Peer {
                kind,
                serial: serial.to_string(),
                ..peer()
            };
            sessions.open(SessionId(id), &peer, "tester", &clock).err()
        };
        let fill = |kind, from: u64| {
            let each = from..from + 2 * SESSIONS_MAX as u64;
            each.filter(|number| open(kind, number / 100).is_none())
                .count()
        };
        let user = CredentialKind::User { uid: 7 };
        assert_eq!(fill(user, 0), SESSIONS_OF_USERS_MAX);
        let machines = SESSIONS_MAX - SESSIONS_OF_USERS_MAX - SESSIONS_FOR_ADMINISTRATION;
        assert_eq!(fill(CredentialKind::Host, 10_000), machines);
        assert_eq!(fill(CredentialKind::Server, 20_000), 0);
        assert_eq!(
            fill(CredentialKind::Admin, 30_000),
            SESSIONS_FOR_ADMINISTRATION
        );
        assert_eq!(open(user, 0), Some(Farewell::Overloaded));
    }

    #[test]
    fn a_request_that_hangs_is_given_up() {
        let (sessions, clock) = (Sessions::new(), Clock::start());
        let session = sessions.open(ID, &peer(), "tester", &clock).unwrap();
        let hanging = session.begin_work().unwrap();
        let now = clock.now();
        let later = now + SESSION_REST_TIME_MAX + std::time::Duration::from_secs(1);
        assert!(session.give_up(later).is_none(), "it has not ended");
        session.end(now);
        let rested = Arc::new(AtomicUsize::new(0));
        let note = rested.clone();
        session.at_rest(move || {
            note.fetch_add(1, Ordering::Relaxed);
        });
        assert!(session.give_up(now).is_none(), "it may still come to rest");
        session.give_up(later).unwrap()();
        assert!(session.give_up(later).is_none());
        drop(hanging);
        assert_eq!(rested.load(Ordering::Relaxed), 1, "once");
    }
}
