//! Storage servers of other machines, as reservations need them.

use super::objects::ActError;
use super::{AwayError, Cluster, Far};
use crate::manager::{PlanDevice, StorageServers, Trouble};
use crate::storage::{Plan, SpaceRequest, SpaceTrial, Totals};
use base::ticket::{Head, Terms, Ticket};
use base::{ServerId, StoreId, TicketId, Time};
use reservation::scheduler::{Cause, TicketSecond};
use reservation::{Interval, Moment};
use std::sync::Arc;
use wire::message::{
    ObjectError, ObjectReply, ObjectRequest, ObjectStep, ObjectStepReply, RecordSecond, Shortfall,
    TicketRefusal,
};

impl Cluster {
    /// One step at a store of another server.
    fn step(
        &self,
        (server, store): (ServerId, StoreId),
        step: ObjectStep,
    ) -> Result<ObjectStepReply, ActError> {
        let far = self.find(server)?;
        let (mut replies, _) = self.steps(&far, store, vec![step])?;
        let none = || AwayError::Failed(server, "the answer makes no sense".to_owned());
        Ok(replies.pop().ok_or_else(none)?)
    }

    /// A server that has joined. Of one that has not, or has another identity since, nothing that a
    /// reservation had there is left, and nobody need wait for it.
    fn joined(&self, server: ServerId) -> Option<Arc<Far>> {
        let far = self.find(server).ok();
        if far.is_none() {
            tracing::warn!(%server, "a reservation is of a storage server that has not joined");
        }
        far
    }

    /// What a store did not do.
    fn trouble(&self, store: StoreId, error: ActError) -> Trouble {
        match error {
            ActError::There(
                _,
                ObjectError::NoRoom {
                    wanted,
                    room,
                    offer_secs,
                },
            ) => Trouble::Short {
                store,
                wanted,
                room,
                offer: offer_secs.and_then(|(start, end)| {
                    Interval::new(Moment::from_secs(start), Moment::from_secs(end)).ok()
                }),
            },
            ActError::Away(error @ (AwayError::Away(_) | AwayError::Unknown(_))) => Trouble::Away {
                store,
                why: self.why(&error),
            },
            ActError::Away(error @ AwayError::Failed(..)) => Trouble::Silent(self.why(&error)),
            other => Trouble::Failed(other.to_string()),
        }
    }

    /// Why a server has not answered, with the name by which people know it.
    fn why(&self, error: &AwayError) -> String {
        let (AwayError::Unknown(server) | AwayError::Away(server) | AwayError::Failed(server, _)) =
            error;
        match self.find(*server).map(|far| far.label()) {
            Ok(label) if !label.is_empty() => format!("{error} ({label})"),
            _ => error.to_string(),
        }
    }

    fn is_own(&self, server: ServerId) -> bool {
        server == self.own.server()
    }
}

impl StorageServers for Cluster {
    fn now(&self) -> Time {
        Self::now(self)
    }

    fn devices(&self) -> Vec<PlanDevice> {
        let devices = Self::devices(self).into_iter().map(|device| PlanDevice {
            server: device.server,
            store: device.store,
            is_export: false,
            is_measured: device.plan.is_some(),
            plan: device.plan.unwrap_or_else(|| Arc::new(Plan::unmeasured())),
            is_well: device.is_well,
            au_bytes: device.au_bytes,
            au_count: device.au_count,
        });
        devices.chain(self.own.plan_exports()).collect()
    }

    fn issue(&self, server: ServerId, head: &Head, terms: &Terms) -> Option<Ticket> {
        if self.is_own(server) {
            return StorageServers::issue(&*self.own, server, head, terms);
        }
        let (key, epoch) = self.find(server).ok()?.key()?;
        let head = Head {
            cluster: self.own.place().cluster,
            server,
            epoch,
            ..*head
        };
        Some(Ticket::issue(&key, &head, terms))
    }

    fn try_space(
        &self,
        (server, store): (ServerId, StoreId),
        trial: &SpaceTrial,
    ) -> Result<(), Trouble> {
        if self.is_own(server) {
            return StorageServers::try_space(&*self.own, (server, store), trial);
        }
        let intervals = trial.intervals.iter();
        let intervals = intervals.map(|one| (one.start().as_secs(), one.end().as_secs()));
        let step = ObjectStep::TrySpace {
            intervals: intervals.collect(),
            aus: trial.aus,
            records: trial.records,
        };
        let done = self.step((server, store), step);
        done.map(drop).map_err(|error| self.trouble(store, error))
    }

    fn confirm(
        &self,
        (server, store): (ServerId, StoreId),
        request: &SpaceRequest,
    ) -> Result<(), Trouble> {
        if self.is_own(server) {
            return self.own.confirm((server, store), request);
        }
        let step = ObjectStep::ConfirmSpace {
            ticket: request.ticket,
            start_secs: request.interval.start().as_secs(),
            end_secs: request.interval.end().as_secs(),
            aus: request.aus,
            records: request.records,
        };
        let done = self.step((server, store), step);
        done.map(drop).map_err(|error| self.trouble(store, error))
    }

    fn extend(
        &self,
        (server, store): (ServerId, StoreId),
        ticket: TicketId,
        end: Moment,
    ) -> Result<(), Trouble> {
        if self.is_own(server) {
            return self.own.extend((server, store), ticket, end);
        }
        let end_secs = end.as_secs();
        let step = ObjectStep::ExtendSpace { ticket, end_secs };
        let done = self.step((server, store), step);
        done.map(drop).map_err(|error| self.trouble(store, error))
    }

    fn release(
        &self,
        (server, store): (ServerId, StoreId),
        ticket: TicketId,
    ) -> Result<(), Trouble> {
        if self.is_own(server) {
            return self.own.release((server, store), ticket);
        }
        match self.step((server, store), ObjectStep::ReleaseSpace { ticket }) {
            // Its space went with the store, or was given back already.
            Err(ActError::There(_, ObjectError::UnknownStore | ObjectError::NotHeld)) => Ok(()),
            // So did a server that never came to anything.
            Err(ActError::Away(AwayError::Unknown(_))) => Ok(()),
            done => done.map(drop).map_err(|error| self.trouble(store, error)),
        }
    }

    fn used(
        &self,
        (server, store): (ServerId, StoreId),
        ticket: TicketId,
    ) -> Result<Option<(u64, u64)>, Trouble> {
        if self.is_own(server) {
            return self.own.used((server, store), ticket);
        }
        if self.joined(server).is_none() {
            return Ok(None);
        }
        match self.step((server, store), ObjectStep::SpaceUsed { ticket }) {
            Ok(ObjectStepReply::Space { held }) => Ok(held),
            Ok(_) => Err(Trouble::Failed("the answer makes no sense".to_owned())),
            Err(error) => Err(self.trouble(store, error)),
        }
    }

    fn revoke(&self, server: ServerId, tickets: &[(TicketId, u64)]) -> Result<(), Trouble> {
        if self.is_own(server) {
            return StorageServers::revoke(&*self.own, server, tickets);
        }
        let failed = |error: AwayError| Trouble::Silent(self.why(&error));
        let Some(far) = self.joined(server) else {
            return Ok(());
        };
        let tickets = tickets.to_vec();
        let reply = self.ask_blocking(&far, ObjectRequest::Revoke { tickets });
        match reply.map_err(failed)? {
            ObjectReply::Done => Ok(()),
            ObjectReply::Failed(ObjectError::TooManyRevoked) => Err(Trouble::TooManyRevoked),
            other => Err(Trouble::Failed(format!("server {server}: {other:?}"))),
        }
    }

    fn seconds(
        &self,
        (server, store): (ServerId, StoreId),
        ticket: TicketId,
        from_second: u64,
    ) -> Result<Option<(Vec<TicketSecond>, Totals)>, Trouble> {
        if self.is_own(server) {
            return StorageServers::seconds(&*self.own, (server, store), ticket, from_second);
        }
        let failed = |error: AwayError| Trouble::Silent(self.why(&error));
        let Some(far) = self.joined(server) else {
            return Ok(None);
        };
        let request = ObjectRequest::LineageRecord {
            store,
            lineage: vec![ticket],
            from_second,
        };
        match self.ask_blocking(&far, request).map_err(failed)? {
            ObjectReply::Record { seconds, total } => {
                let totals = Totals {
                    seconds: total.seconds,
                    kept: total.kept,
                    bytes: total.bytes,
                };
                let seconds = seconds.into_iter().map(second).collect();
                Ok(Some((seconds, totals)))
            }
            // It was not shown there.
            ObjectReply::Failed(ObjectError::Ticket(TicketRefusal::NotOpen)) => Ok(None),
            other => Err(Trouble::Failed(format!("server {server}: {other:?}"))),
        }
    }
}

fn second(second: RecordSecond) -> TicketSecond {
    TicketSecond {
        second: second.second,
        bytes: second.bytes,
        served_nanos: u64::from(second.served_micros) * 1000,
        promised_nanos: u64::from(second.promised_micros) * 1000,
        shortfall: second.shortfall.map(|cause| match cause {
            Shortfall::NoDemand => Cause::NoDemand,
            Shortfall::TooFewInFlight => Cause::TooFewInFlight,
            Shortfall::SlowDevice => Cause::SlowDevice,
            Shortfall::Degraded => Cause::Degraded,
            Shortfall::ServerAway => Cause::ServerAway,
        }),
    }
}
