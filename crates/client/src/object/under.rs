//! A ticket of a mount: it is used where it reaches, and whatever it does not reach goes without.
//!
//! For which requests it is can be told from its terms: volume and path, operations, stores. The
//! rest is the server's to judge: whether its time has come, or is over, or it was taken back. What
//! is refused with it is asked for again without, so nobody who has mounted loses more than the
//! speed; and if that may help, the ticket is shown again later.
//!
//! A ticket is for one window. When that is nearly over, and once it is, the manager is asked for
//! the ticket that there is now: its reservation may have been made longer, or have more windows
//! ([`MountTicket::next_renewal`]).
//!
//! Objects are made with it, never to end: what they take is out of the space that was reserved, as
//! far as that reaches, and stays theirs when the ticket is over (decision 15).

use super::{ObjectCallError, StorageServer};
use crate::clock::now;
use base::limits::TICKET_CLOCK_ERROR_MAX;
use base::ticket::{Head, Operations, Terms, Ticket, TicketError};
use base::{ObjectId, StoreId, TicketId, Time};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use wire::message::{
    ObjectError, ObjectStep, ReserveError, ReserveReply, ReserveRequest, TicketRefusal,
};

/// How long a ticket that may be good later is not shown again, at least and at most.
const AGAIN_TIME_MIN: Duration = Duration::from_millis(200);
const AGAIN_TIME_MAX: Duration = Duration::from_secs(30);

/// How long before a window's end the next ticket is asked for, at most.
const RENEWAL_TIME: Duration = Duration::from_secs(10);
/// After how long it is asked for after the end, longer each time: the manager's clock may be
/// behind.
const RENEWAL_AGAIN: Duration = Duration::from_secs(1);

/// See the module's head.
pub struct MountTicket {
    /// Whose it is, if that is known: then it can be renewed.
    reservation: Option<TicketId>,
    /// A part of a second after which it asks later than others: a ticket may be used by thousands.
    spread: Duration,
    state: Mutex<State>,
    /// Bytes that were moved without it and with it.
    moved: [AtomicU64; 2],
}

/// What a ticket of a mount is worth at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketState {
    /// It has not begun, or the server cannot judge it now.
    Waiting,
    /// It is used where it reaches.
    InForce,
    /// It ended, or was taken back.
    Over,
}

/// A ticket of a mount, and what has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketStatus {
    /// Whose it is.
    pub reservation: TicketId,
    /// What it is worth.
    pub state: TicketState,
    /// Its first second, since 1970 (UTC).
    pub start_secs: u64,
    /// The second that it does not have any more.
    pub end_secs: u64,
    /// Bytes that were read and written with it.
    pub bytes: u64,
    /// Bytes that were read and written at its stores without it.
    pub bytes_without: u64,
}

/// A ticket's bytes, and what they say.
struct Issued {
    bytes: Vec<u8>,
    head: Head,
    terms: Arc<Terms>,
}

impl Issued {
    fn read(bytes: &[u8]) -> Result<Self, TicketError> {
        let ticket = Ticket::from_bytes(bytes)?;
        Ok(Self {
            bytes: bytes.to_vec(),
            head: *ticket.head(),
            terms: Arc::new(ticket.terms().clone()),
        })
    }

    /// How long its window lasts yet, by this machine's wall clock.
    fn left(&self) -> Duration {
        let end = Duration::from_secs(self.terms.end_secs);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        end.saturating_sub(now.unwrap_or_default())
    }
}

/// The present one, and what the server says of it.
struct State {
    issued: Arc<Issued>,
    /// How often it was asked for another one and there was none.
    asked: u32,
    /// There will be no other one.
    is_last: bool,
    /// How the session calls it, from when it is first shown.
    number: Option<u32>,
    /// How that with the manager calls it, if that is another one.
    manager_number: Option<u32>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not shown yet.
    New,
    Good,
    /// Refused; not shown again before then.
    Later(Time),
    /// Refused for good.
    Over,
}

/// Whoever has its bytes can use it, so they are not shown.
impl std::fmt::Debug for MountTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MountTicket({})", self.head().id)
    }
}

impl MountTicket {
    /// A ticket from its bytes. Whether it is genuine is the server's to say.
    ///
    /// # Errors
    /// [`TicketError`] if these are no bytes of a ticket.
    pub fn new(bytes: &[u8]) -> Result<Self, TicketError> {
        Ok(Self {
            reservation: None,
            spread: Duration::from_millis(RandomState::new().hash_one(()) % 1000),
            state: Mutex::new(State {
                issued: Arc::new(Issued::read(bytes)?),
                asked: 0,
                is_last: false,
                number: None,
                manager_number: None,
                standing: Standing::New,
            }),
            moved: Default::default(),
        })
    }

    /// A ticket of this reservation, with which it is renewed.
    #[must_use]
    pub fn of(self, reservation: TicketId) -> Self {
        Self {
            reservation: Some(reservation),
            ..self
        }
    }

    /// Whose it is, and for what.
    #[must_use]
    pub fn head(&self) -> Head {
        self.lock().issued.head
    }

    /// What it gives.
    #[must_use]
    pub fn terms(&self) -> Arc<Terms> {
        self.lock().issued.terms.clone()
    }

    /// What the manager is asked for the next one with; none if it is not known whose it is, or
    /// there will be no other one.
    #[must_use]
    pub fn renewal(&self) -> Option<ReserveRequest> {
        let state = self.lock();
        let reservation = self.reservation.filter(|_| !state.is_last)?;
        let ticket = state.issued.bytes.clone();
        Some(ReserveRequest::Renew {
            reservation,
            ticket,
        })
    }

    /// How long until the next one is asked for.
    #[must_use]
    pub fn next_renewal(&self) -> Option<Duration> {
        self.renewal()?;
        let state = self.lock();
        let issued = &state.issued;
        let seconds = issued
            .terms
            .end_secs
            .saturating_sub(issued.terms.start_secs);
        let left = match state.standing {
            // Whatever this machine's clock says.
            Standing::Over => Duration::ZERO,
            _ => issued.left(),
        };
        let wait = match state.asked {
            0 => left
                .saturating_sub(RENEWAL_TIME.min(Duration::from_secs(seconds) / 4))
                .max(RENEWAL_AGAIN),
            // Clocks may differ by much more than they should.
            asked => left.max((RENEWAL_AGAIN * (1 << asked.min(6)) / 2).min(AGAIN_TIME_MAX)),
        };
        Some(wait + self.spread)
    }

    /// Whether its window is over, by this machine's clock.
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.lock().issued.left().is_zero()
    }

    /// The manager's answer to [`Self::renewal`]. Whether another ticket is used from now on: it is
    /// to be shown.
    pub fn renew(&self, answer: &ReserveReply) -> bool {
        let next = match answer {
            ReserveReply::Reserved { tickets, .. } => tickets.first().map(|one| &one.ticket),
            ReserveReply::Failed {
                code: ReserveError::Unavailable,
                ..
            } => {
                self.lock().asked += 1;
                return false;
            }
            _ => None,
        };
        self.take(next.map(Vec::as_slice))
    }

    /// Uses this one from now on, if it is another one; none: there is no other one any more.
    fn take(&self, next: Option<&[u8]>) -> bool {
        let next = next.map(Issued::read);
        let mut state = self.lock();
        let (server, volume) = (state.issued.head.server, state.issued.head.volume);
        let Some(Ok(next)) = next else {
            state.is_last = true;
            return false;
        };
        let is_like_it = next.head.server == server && next.head.volume == volume;
        if !is_like_it || next.bytes == state.issued.bytes {
            state.asked += 1;
            return false;
        }
        let (reservation, terms) = (next.head.id, next.terms.clone());
        let (from, until) = (terms.start_secs, terms.end_secs);
        tracing::info!(%reservation, from, until, "the ticket is another one from now on");
        state.issued = Arc::new(next);
        state.standing = Standing::New;
        state.asked = 0;
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows it now.
    ///
    /// # Errors
    /// [`ObjectError::Ticket`] says why it is refused; after [`TicketRefusal::NotYet`] it is used
    /// when its time has come.
    pub async fn show(&self, server: &StorageServer) -> Result<(), ObjectCallError> {
        let (number, issued) = {
            let mut state = self.lock();
            let new = || server.0.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
            let number = *state.number.get_or_insert_with(new);
            (number, state.issued.clone())
        };
        let shown = server.open(number, &issued.bytes).await;
        if !Arc::ptr_eq(&issued, &self.lock().issued) {
            // Another one is to be shown under this number.
            self.stand(Standing::New);
            return shown;
        }
        match &shown {
            Ok(()) => self.stand(Standing::Good),
            Err(ObjectCallError::Object(ObjectError::Ticket(refusal))) => self.note(*refusal),
            // The way there; what is asked for meanwhile will find that out, too.
            Err(_) => self.stand(Standing::Later(now() + AGAIN_TIME_MIN)),
        }
        shown
    }

    /// Shows it to a server that has forgotten it, unless that has nothing to do with it any more.
    pub async fn show_again(&self, server: &StorageServer) {
        if self.lock().standing != Standing::Over {
            // Why not is noted.
            let _ = self.show(server).await;
        }
    }

    /// Shows a ticket for another server to the manager, so that files are laid out for it.
    pub async fn show_manager(&self, manager: &StorageServer) {
        let (number, issued) = {
            let mut state = self.lock();
            if state.standing == Standing::Over {
                return;
            }
            let new = || manager.0.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
            let number = *state.manager_number.get_or_insert_with(new);
            (number, state.issued.clone())
        };
        if let Err(error) = manager.open(number, &issued.bytes).await {
            let reservation = issued.head.id;
            tracing::debug!(%reservation, %error, "files are not laid out for a ticket");
        }
    }

    /// Bytes were moved at its stores, with it or without.
    pub(super) fn count(&self, with: bool, bytes: u64) {
        self.moved[usize::from(with)].fetch_add(bytes, Ordering::Relaxed);
    }

    /// What has become of it.
    #[must_use]
    pub fn status(&self) -> TicketStatus {
        let moved = |with: usize| self.moved[with].load(Ordering::Relaxed);
        let state = self.lock();
        TicketStatus {
            reservation: self.reservation.unwrap_or(state.issued.head.id),
            state: match state.standing {
                Standing::New | Standing::Later(_) => TicketState::Waiting,
                Standing::Good => TicketState::InForce,
                Standing::Over => TicketState::Over,
            },
            start_secs: state.issued.terms.start_secs,
            end_secs: state.issued.terms.end_secs,
            bytes: moved(1),
            bytes_without: moved(0),
        }
    }

    /// How long until it should be shown again where nothing goes with it by itself; none if it is
    /// over. One that is good is shown now and then: its end, or that it was taken back, is heard
    /// by that.
    pub(crate) fn next_showing(&self) -> Option<Duration> {
        let state = self.lock();
        match state.standing {
            // There may be another one.
            Standing::Over if self.reservation.is_some() && !state.is_last => Some(AGAIN_TIME_MAX),
            Standing::Over => None,
            Standing::New => Some(Duration::ZERO),
            Standing::Later(time) => Some(time.since(now())),
            Standing::Good => {
                let left = state.issued.left() + TICKET_CLOCK_ERROR_MAX;
                Some(left.clamp(AGAIN_TIME_MIN, AGAIN_TIME_MAX))
            }
        }
    }

    /// The number under which it goes with steps for a store, if it does.
    pub(super) async fn number_for(
        &self,
        server: &StorageServer,
        store: StoreId,
        steps: &[ObjectStep],
    ) -> Option<u32> {
        if !self.reaches(store, steps) {
            return None;
        }
        let is_due = match self.lock().standing {
            Standing::Good => false,
            Standing::New => true,
            Standing::Later(time) if now() >= time => true,
            Standing::Later(_) | Standing::Over => return None,
        };
        if is_due {
            // One is enough to ask.
            self.stand(Standing::Later(now() + AGAIN_TIME_MIN));
            self.show(server).await.ok()?;
        }
        self.lock().number
    }

    /// The server has refused a request because of it; the number to try again with.
    pub(super) async fn refused(
        &self,
        server: &StorageServer,
        refusal: TicketRefusal,
    ) -> Option<u32> {
        match refusal {
            // The server has started anew.
            TicketRefusal::NotOpen => {
                self.show(server).await.ok()?;
                self.lock().number
            }
            // Of this request.
            TicketRefusal::Operation
            | TicketRefusal::Scope
            | TicketRefusal::NoSlice
            | TicketRefusal::Budget
            | TicketRefusal::Lifetime => None,
            // Of the one before, if it came too late. It is shown again, and then known.
            TicketRefusal::Expired { .. } => {
                self.stand(Standing::Later(now() + AGAIN_TIME_MIN));
                None
            }
            other => {
                self.note(other);
                None
            }
        }
    }

    /// Whether it is for all of these.
    fn reaches(&self, store: StoreId, steps: &[ObjectStep]) -> bool {
        let issued = self.lock().issued.clone();
        let (terms, volume) = (&issued.terms, issued.head.volume);
        let has_slice = terms.slices.iter().any(|slice| slice.device == store);
        let reaches = |step: &ObjectStep| match of(step) {
            Some((object, operation)) => {
                terms.operations.contains(operation) && terms.reaches(volume, object)
            }
            None => matches!(step, ObjectStep::Commit),
        };
        has_slice && steps.iter().all(reaches)
    }

    fn stand(&self, standing: Standing) {
        let before = std::mem::replace(&mut self.lock().standing, standing);
        if standing == Standing::Good && before != Standing::Good {
            tracing::info!(reservation = %self.head().id, "what was reserved is used");
        }
    }

    /// The server has refused it.
    fn note(&self, refusal: TicketRefusal) {
        use TicketRefusal as R;
        let later =
            |time: Duration| Standing::Later(now() + time.clamp(AGAIN_TIME_MIN, AGAIN_TIME_MAX));
        let standing = match refusal {
            R::NotYet { seconds } => later(Duration::from_secs(seconds)),
            R::ClockUnsure | R::TooMany | R::Oversplit { .. } | R::NotOpen => later(AGAIN_TIME_MIN),
            _ => Standing::Over,
        };
        let before = std::mem::replace(&mut self.lock().standing, standing);
        let reservation = self.head().id;
        match (before, standing) {
            (Standing::Over, _) => {}
            (_, Standing::Over) => {
                tracing::warn!(%reservation, %refusal, "what was reserved is not used any more");
            }
            (Standing::Later(_), _) => {}
            _ => tracing::warn!(%reservation, %refusal, "what was reserved is not used now"),
        }
    }
}

/// The object of a step about the contents of a file, and what is done with it.
fn of(step: &ObjectStep) -> Option<(ObjectId, Operations)> {
    match step {
        ObjectStep::Read { object, .. }
        | ObjectStep::Seek { object, .. }
        | ObjectStep::Info { object } => Some((*object, Operations::READ)),
        ObjectStep::Create {
            object,
            end_secs: Some(u64::MAX),
        }
        | ObjectStep::Write { object, .. }
        | ObjectStep::WriteUnder { object, .. }
        | ObjectStep::Truncate { object, .. }
        | ObjectStep::Allocate { object, .. }
        | ObjectStep::AllocateUnder { object, .. }
        | ObjectStep::Punch { object, .. }
        | ObjectStep::PunchUnder { object, .. } => Some((*object, Operations::WRITE)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ticket::{Class, ObjectScope, Slice, TicketKey};
    use base::{ClusterId, ServerId, VolumeId};

    const STORE: StoreId = StoreId([5; 16]);
    const VOLUME: VolumeId = VolumeId([6; 16]);

    fn ticket(operations: Operations) -> MountTicket {
        let head = Head {
            class: Class::Assured,
            cluster: ClusterId([1; 16]),
            server: ServerId([2; 16]),
            id: TicketId([3; 16]),
            epoch: 0,
            holder: 0,
            volume: VOLUME,
            key_id: 1,
        };
        let terms = Terms {
            operations,
            burst_millis: 200,
            start_secs: 100,
            end_secs: 200,
            lifetime_end_secs: 300,
            slices: vec![Slice {
                device: STORE,
                share_ppm: 1000,
                stripe_unit_bytes: 0,
                au_budget: 4,
            }],
            path: Vec::new(),
        };
        let issued = Ticket::issue(&TicketKey::new(1, [7; 32]), &head, &terms);
        MountTicket::new(&issued.to_bytes()).unwrap()
    }

    fn object(volume: VolumeId) -> ObjectId {
        ObjectScope::new(volume, b"").object([9; 8])
    }

    #[test]
    fn a_ticket_goes_with_what_it_is_for() {
        let both = ticket(Operations::READ_WRITE);
        let read = |object| ObjectStep::Read {
            object,
            offset: 0,
            bytes: 1,
        };
        let write = ObjectStep::Write {
            object: object(VOLUME),
            offset: 0,
            bytes: 1,
        };
        let create = |end_secs| ObjectStep::Create {
            object: object(VOLUME),
            end_secs,
        };
        let mine = read(object(VOLUME));
        assert!(both.reaches(STORE, &[mine.clone(), write.clone(), ObjectStep::Commit]));
        assert!(
            !both.reaches(StoreId([8; 16]), std::slice::from_ref(&mine)),
            "store"
        );
        assert!(!both.reaches(STORE, &[read(object(VolumeId([1; 16])))]));
        assert!(!both.reaches(STORE, &[create(None)]), "it would end");
        assert!(both.reaches(STORE, &[create(Some(u64::MAX))]));
        let reading = ticket(Operations::READ);
        assert!(reading.reaches(STORE, &[mine]) && !reading.reaches(STORE, &[write]));
    }

    #[test]
    fn what_was_refused_for_good_is_not_shown_again_and_what_was_too_early_is() {
        let one = ticket(Operations::READ_WRITE);
        one.note(TicketRefusal::NotYet { seconds: 1_000_000 });
        let Standing::Later(time) = one.lock().standing else {
            panic!("it is good later");
        };
        assert!(time.since(now()) <= AGAIN_TIME_MAX);
        one.note(TicketRefusal::Expired { seconds: 1 });
        assert_eq!(one.lock().standing, Standing::Over);
        for refusal in [TicketRefusal::Revoked, TicketRefusal::Forged] {
            let other = ticket(Operations::READ);
            other.note(refusal);
            assert_eq!(other.lock().standing, Standing::Over);
        }
    }

    /// A ticket of the reservation whose window begins and ends so many seconds from now.
    fn lasting(start: i64, end: i64) -> Vec<u8> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = i64::try_from(now.unwrap().as_secs()).unwrap();
        let at = |seconds: i64| u64::try_from(now + seconds).unwrap();
        let one = ticket(Operations::READ);
        let terms = Terms {
            start_secs: at(start),
            end_secs: at(end),
            lifetime_end_secs: at(end),
            ..(*one.terms()).clone()
        };
        Ticket::issue(&TicketKey::new(1, [7; 32]), &one.head(), &terms).to_bytes()
    }

    #[test]
    fn the_next_ticket_is_asked_for_before_the_end_and_then_less_and_less_often() {
        let of = |bytes: &[u8]| MountTicket::new(bytes).unwrap().of(TicketId([3; 16]));
        let wait = |one: &MountTicket| one.next_renewal().map(|wait| (wait - one.spread).as_secs());
        let long = lasting(-100, 1000);
        assert!(
            MountTicket::new(&long).unwrap().next_renewal().is_none(),
            "whose?"
        );
        let one = of(&long);
        assert!((985..=990).contains(&wait(&one).unwrap()));
        // There is none yet: again at the end.
        assert!(!one.take(Some(&long)));
        assert!((995..=1000).contains(&wait(&one).unwrap()));
        // The server's clock says that it is over.
        one.note(TicketRefusal::Expired { seconds: 1 });
        assert_eq!(wait(&one), Some(1));
        let longer = lasting(-100, 2000);
        assert!(one.take(Some(&longer)));
        assert_eq!(one.lock().standing, Standing::New);
        assert!((1985..=1990).contains(&wait(&one).unwrap()));
        // Of one that is past, for as long as the manager has no other.
        let past = lasting(-100, -1);
        let one = of(&past);
        assert!(one.is_past());
        let waits = [1, 1, 2, 4, 8, 16, 30, 30].map(|expected| {
            let found = wait(&one);
            assert!(!one.take(Some(&past)));
            (expected, found)
        });
        for (expected, found) in waits {
            assert_eq!(found, Some(expected));
        }
        let busy = ReserveReply::Failed {
            code: ReserveError::Unavailable,
            message: String::new(),
        };
        assert!(!one.renew(&busy));
        assert!(one.next_renewal().is_some());
        assert!(!one.take(None));
        assert!(one.next_renewal().is_none() && one.renewal().is_none());
        // One for another server is not used.
        let mut head = one.head();
        head.server = ServerId([9; 16]);
        let other = Ticket::issue(&TicketKey::new(1, [7; 32]), &head, &one.terms());
        assert!(!of(&long).take(Some(&other.to_bytes())));
    }

    #[test]
    fn bytes_that_are_no_ticket_are_refused() {
        let whole = ticket(Operations::READ).lock().issued.bytes.clone();
        for len in [0, 10, whole.len() - 1] {
            assert!(MountTicket::new(&whole[..len]).is_err());
        }
    }
}
