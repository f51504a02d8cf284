//! Storage servers, as a manager needs them.
//!
//! One trait: the storage server of this process here, those of other machines with it in
//! [`crate::cluster`]. [`StorageServers::issue`] and [`StorageServers::devices`] do not block;
//! everything else may, for as long as a store takes to make something durable, and is called by
//! the errands alone.

use super::plan::PlanDevice;
use crate::storage::{SpaceError, SpaceRequest, SpaceTrial, Storage, StorageError, Totals};
use base::ticket::{Head, Terms, Ticket};
use base::{ServerId, StoreId, TicketId, Time};
use reservation::scheduler::TicketSecond;
use reservation::{Interval, Moment};
use std::sync::Arc;
use store::StoreError;

/// Why a storage server did not do its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A store lacks space.
    Short {
        store: StoreId,
        wanted: u64,
        room: u64,
        /// When there would be so much.
        offer: Option<Interval>,
    },
    /// The server of a store is not there, and was not asked.
    Away { store: StoreId, why: String },
    /// A server does not answer, or is away, in words; what was asked may have been done.
    Silent(String),
    /// What was asked for in vain may be held in part, because that could not be given back.
    Left(Box<Self>),
    /// It remembers as many revoked tickets as it can.
    TooManyRevoked,
    /// Something else, in words.
    Failed(String),
}

impl Trouble {
    /// Whether a server did not answer: it may do its part when it is there again.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. } | Self::Silent(_))
    }
}

/// A store, with its server.
pub(crate) type StoreAt = (ServerId, StoreId);

/// See the module's head.
pub(crate) trait StorageServers: Send + Sync {
    /// The time by which windows are judged.
    fn now(&self) -> Time;

    /// All devices of all servers.
    fn devices(&self) -> Vec<PlanDevice>;

    /// A ticket of the server's present epoch; none if that server is not there.
    fn issue(&self, server: ServerId, head: &Head, terms: &Terms) -> Option<Ticket>;

    /// Whether a store would have such space; it gives none.
    fn try_space(&self, at: StoreAt, trial: &SpaceTrial) -> Result<(), Trouble>;

    /// Gives a ticket space. Durable; asked again for the same, it says yes again.
    fn confirm(&self, at: StoreAt, request: &SpaceRequest) -> Result<(), Trouble>;

    /// Lengthens a ticket's space. Durable.
    fn extend(&self, at: StoreAt, ticket: TicketId, end: Moment) -> Result<(), Trouble>;

    /// Takes a ticket's space back with everything in it. Durable; without space nothing is done.
    fn release(&self, at: StoreAt, ticket: TicketId) -> Result<(), Trouble>;

    /// Allocation units that a ticket has, and those of them that are in use.
    fn used(&self, at: StoreAt, ticket: TicketId) -> Result<Option<(u64, u64)>, Trouble>;

    /// Takes tickets of one server back, each until a second. Durable.
    fn revoke(&self, server: ServerId, tickets: &[(TicketId, u64)]) -> Result<(), Trouble>;

    /// What a ticket got from one store, from a second on; none if it was not used there.
    fn seconds(
        &self,
        at: StoreAt,
        ticket: TicketId,
        from_second: u64,
    ) -> Result<Option<(Vec<TicketSecond>, Totals)>, Trouble>;
}

impl StorageServers for Storage {
    fn now(&self) -> Time {
        Self::now(self)
    }

    fn devices(&self) -> Vec<PlanDevice> {
        let server = self.server();
        let devices = Self::devices(self).into_iter().map(|device| PlanDevice {
            server,
            store: device.store,
            plan: device.plan,
            is_export: false,
            is_measured: device.capability.is_some(),
            is_well: !device.is_degraded && device.failure.is_none(),
            au_bytes: device.au_bytes,
            au_count: device.au_count,
        });
        devices.chain(self.plan_exports()).collect()
    }

    fn issue(&self, server: ServerId, head: &Head, terms: &Terms) -> Option<Ticket> {
        let head = Head {
            epoch: self.epoch(),
            ..*head
        };
        (server == self.server()).then(|| Self::issue(self, &head, terms))
    }

    fn try_space(&self, (_, store): StoreAt, trial: &SpaceTrial) -> Result<(), Trouble> {
        Self::try_space(self, store, trial).map_err(|error| trouble(store, error))
    }

    fn confirm(&self, (_, store): StoreAt, request: &SpaceRequest) -> Result<(), Trouble> {
        self.confirm_space(store, request)
            .map_err(|error| trouble(store, error))
    }

    fn extend(&self, (_, store): StoreAt, ticket: TicketId, end: Moment) -> Result<(), Trouble> {
        let extended = self.extend_space(store, ticket, end);
        extended.map_err(|error| trouble(store, error))
    }

    fn release(&self, (_, store): StoreAt, ticket: TicketId) -> Result<(), Trouble> {
        match self.release_space(store, ticket) {
            // Its space went with it.
            Err(SpaceError::UnknownStore(_)) => Ok(()),
            released => released.map_err(|error| trouble(store, error)),
        }
    }

    fn used(&self, (_, store): StoreAt, ticket: TicketId) -> Result<Option<(u64, u64)>, Trouble> {
        if self.export(store).is_some() {
            // It has rates alone.
            return Ok(None);
        }
        self.space_used(store, ticket)
            .map_err(|error| trouble(store, error))
    }

    fn revoke(&self, server: ServerId, tickets: &[(TicketId, u64)]) -> Result<(), Trouble> {
        if server != self.server() {
            // Its tickets went with it.
            tracing::warn!(%server, "tickets of a storage server that is not there are forgotten");
            return Ok(());
        }
        Self::revoke(self, tickets).map_err(|error| match error {
            StorageError::TooManyRevoked => Trouble::TooManyRevoked,
            other => Trouble::Failed(other.to_string()),
        })
    }

    fn seconds(
        &self,
        (_, store): StoreAt,
        ticket: TicketId,
        from_second: u64,
    ) -> Result<Option<(Vec<TicketSecond>, Totals)>, Trouble> {
        Ok(Self::seconds(self, store, &[ticket], from_second))
    }
}

fn trouble(store: StoreId, error: SpaceError) -> Trouble {
    match error {
        SpaceError::Store(StoreError::Refused {
            wanted,
            room,
            offer,
        }) => Trouble::Short {
            store,
            wanted,
            room,
            offer: offer.0,
        },
        other => Trouble::Failed(format!("store {store}: {other}")),
    }
}

/// Shared by the desk, which issues tickets, and the errands.
pub(crate) type Servers = Arc<dyn StorageServers>;
