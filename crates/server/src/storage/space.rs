//! Space that reservations have in a store: confirmed to the manager, found again by ticket.
//!
//! A store numbers its reservations; a manager and its tickets know them by [`TicketId`]. The
//! table between the two is in the store itself, so that it cannot differ from it: two empty
//! objects in the reservation's own space, whose identities are computed, one from the ticket
//! and one from the store's number. They live exactly as long as the reservation. The first finds
//! the reservation of a ticket; the second says that it was confirmed: a reservation without it
//! was cut short by a crash before anybody heard of it, and is released when the server starts.
//!
//! Their identities begin with [`SYSTEM`], and no client may name such an object.

use super::device::Device;
use super::error::StorageError;
use base::{ObjectId, StoreId, TicketId};
use reservation::Interval;
use store::{Request, StoreError, Terms};

/// How the identities of a server's own objects begin.
pub(crate) const SYSTEM: [u8; 4] = *b"\0azk";
/// Records that the two objects take.
const OWN_RECORDS: u64 = 2;
/// Reservations that are looked at together.
const PAGE: usize = 1024;

/// What a ticket is to have in one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceRequest {
    /// Whose; the same at all servers.
    pub ticket: TicketId,
    /// From when to when.
    pub interval: Interval,
    /// Allocation units; not zero.
    pub aus: u64,
    /// Records: one for each object, eight for each attribute.
    pub records: u64,
}

/// What one store is asked about, and is not to give yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceTrial {
    /// From when to when; each is another ticket's, and they have to fit together.
    pub intervals: Vec<Interval>,
    /// Allocation units in each; not zero.
    pub aus: u64,
    /// Records in each: as in [`SpaceRequest`].
    pub records: u64,
}

/// Why space is not confirmed, or not changed.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    /// There is no such store here.
    #[error("there is no store {0} here")]
    UnknownStore(StoreId),
    /// The server has it, and could not open it when it was started.
    #[error("the store is missing: the server was started without it")]
    Missing(StoreId),
    /// The ticket has other space here already.
    #[error("the ticket has space here under other terms")]
    Conflict,
    /// The ticket has no space here.
    #[error("the ticket has no space here")]
    NotHeld,
    /// It does not fit, or the store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether an object is the server's own.
pub(crate) fn is_system(object: ObjectId) -> bool {
    object.0.starts_with(&SYSTEM)
}

fn own_object(kind: &[u8], of: &[u8]) -> ObjectId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"azekura space, version 1").update(kind);
    hasher.update(of);
    let mut id = [0; 16];
    id[..4].copy_from_slice(&SYSTEM);
    id[4..].copy_from_slice(&hasher.finalize().as_bytes()[..12]);
    ObjectId(id)
}

/// The object that finds the reservation of a ticket.
fn by_ticket(ticket: TicketId) -> ObjectId {
    own_object(b"ticket", &ticket.0)
}

/// The object that says that a reservation was confirmed.
fn by_number(reservation: u64) -> ObjectId {
    own_object(b"number", &reservation.to_le_bytes())
}

impl Device {
    /// The store's reservation for a ticket, if it has one now.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn reservation_of(&self, ticket: TicketId) -> Result<Option<u64>, StoreError> {
        match self.store.info(by_ticket(ticket)) {
            Ok(info) => Ok(info.reservation),
            Err(StoreError::NotFound(_) | StoreError::Expired(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Gives a ticket space. Durable when it returns; asked again for the same, it says yes again.
    ///
    /// # Errors
    /// [`SpaceError::Conflict`]; [`SpaceError::Store`] with [`StoreError::Refused`] if it does not
    /// fit, which says when it would.
    pub(super) fn confirm_space(&self, request: &SpaceRequest) -> Result<(), SpaceError> {
        let wanted = wanted(request.interval, request.aus, request.records);
        if let Some(number) = self.reservation_of(request.ticket)? {
            let there = self.store.reservations(number, 1)?;
            let is_same = there.first().is_some_and(|there| {
                there.reservation == number && is_same(&there.request, &wanted)
            });
            return if is_same {
                Ok(self.store.commit()?)
            } else {
                Err(SpaceError::Conflict)
            };
        }
        let number = self.store.reserve(wanted)?;
        let marked = self
            .store
            .create(by_ticket(request.ticket), Terms::Ahead(number))
            .and_then(|()| self.store.create(by_number(number), Terms::Ahead(number)));
        if let Err(error) = marked {
            // What cannot be found again by its ticket is of no use.
            self.store.release(number)?;
            return Err(error.into());
        }
        Ok(self.store.commit()?)
    }

    /// Whether tickets could be given such space; nothing is taken.
    ///
    /// # Errors
    /// [`SpaceError::Store`], as [`Self::confirm_space`] would say it.
    pub(super) fn try_space(&self, trial: &SpaceTrial) -> Result<(), SpaceError> {
        let intervals = trial.intervals.iter();
        let all: Vec<_> = intervals
            .map(|interval| wanted(*interval, trial.aus, trial.records))
            .collect();
        Ok(self.store.would_reserve(&all)?)
    }

    /// Lengthens what a ticket has. Durable when it returns.
    ///
    /// # Errors
    /// [`SpaceError::NotHeld`], [`SpaceError::Store`].
    pub(super) fn extend_space(
        &self,
        ticket: TicketId,
        end: reservation::Moment,
    ) -> Result<(), SpaceError> {
        let number = self.reservation_of(ticket)?.ok_or(SpaceError::NotHeld)?;
        self.store.extend(number, end)?;
        Ok(self.store.commit()?)
    }

    /// Takes a ticket's space back, with all objects in it. Durable when it returns; without space
    /// there is nothing to do.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn release_space(&self, ticket: TicketId) -> Result<(), SpaceError> {
        if let Some(number) = self.reservation_of(ticket)? {
            self.store.release(number)?;
        }
        Ok(self.store.commit()?)
    }

    /// Allocation units that a ticket has here and uses.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn space_used(&self, ticket: TicketId) -> Result<Option<(u64, u64)>, StoreError> {
        let Some(number) = self.reservation_of(ticket)? else {
            return Ok(None);
        };
        let there = self.store.reservations(number, 1)?;
        let there = there.first().filter(|there| there.reservation == number);
        Ok(there.map(|there| (there.request.aus, there.aus_used)))
    }

    /// Releases what was reserved and not confirmed when a run before this one was cut short.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn release_unconfirmed(&self) -> Result<(), StorageError> {
        let failed = |error| StorageError::store(&self.path)(error);
        let mut from = 0;
        loop {
            let page = self.store.reservations(from, PAGE).map_err(failed)?;
            for there in &page {
                match self.store.info(by_number(there.reservation)) {
                    Ok(_) | Err(StoreError::Expired(_)) => {}
                    Err(StoreError::NotFound(_)) => {
                        self.store.release(there.reservation).map_err(failed)?;
                    }
                    Err(other) => return Err(failed(other)),
                }
            }
            match page.last() {
                Some(last) => from = last.reservation + 1,
                None => break,
            }
        }
        self.store.commit().map_err(failed)
    }
}

/// What a ticket's space comes to in the store.
fn wanted(interval: Interval, aus: u64, records: u64) -> Request {
    Request {
        interval,
        aus,
        records: records.saturating_add(OWN_RECORDS),
    }
}

/// Whether a reservation is the one asked for. What has begun may have been lengthened since.
fn is_same(there: &Request, wanted: &Request) -> bool {
    there.aus == wanted.aus
        && there.records == wanted.records
        && there.interval.end() >= wanted.interval.end()
}
