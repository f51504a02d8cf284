//! A seat in a cluster: an entry that goes with a lease.

use super::Shared;
use super::call::{once, patiently, revision_of, until_answered};
use super::slots::{grant, is_renewed};
use crate::engine::{Answer, Revision};
use crate::leadership::Seat;
use crate::{MetaError, space};
use base::limits::META_SEAT_TIME;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse};
use std::sync::Arc;
use tokio::time::Instant;

pub(super) struct EtcdSeat {
    shared: Arc<Shared>,
    seat: String,
    epoch: Revision,
    lease: i64,
}

impl EtcdSeat {
    /// Takes a seat that is vacant: the seat, its epoch, and when that was asked for.
    pub(super) async fn take(
        shared: &Arc<Shared>,
        seat: &str,
        holder: &str,
    ) -> Result<(Self, Revision, Instant), MetaError> {
        let since = Instant::now();
        let lease = grant(&shared.client, META_SEAT_TIME).await?;
        match write(shared, seat, holder, lease).await {
            Ok(epoch) => {
                let taken = Self {
                    shared: Arc::clone(shared),
                    seat: seat.to_owned(),
                    epoch,
                    lease,
                };
                Ok((taken, epoch, since))
            }
            Err(error) => {
                // Without its lease a request that is still on its way comes to nothing.
                let _ = revoke(shared, lease).await;
                Err(error)
            }
        }
    }
}

/// Writes the entry if there is none. Asked again, it is the same lease that tells.
async fn write(
    shared: &Shared,
    seat: &str,
    holder: &str,
    lease: i64,
) -> Result<Revision, MetaError> {
    let place = shared.place(&space::seat(seat));
    let vacant = Compare::create_revision(place.clone(), CompareOp::Equal, 0);
    let with = PutOptions::new().with_lease(lease);
    let taking = Txn::new()
        .when([vacant])
        .and_then([TxnOp::put(place.clone(), holder, Some(with))])
        .or_else([TxnOp::get(place, None)]);
    let answer = until_answered(|| {
        let (mut client, taking) = (shared.client.kv_client(), taking.clone());
        async move { client.txn(taking).await }
    })
    .await?;
    if answer.succeeded() {
        return revision_of(answer.header());
    }
    let told = answer.op_responses();
    let held = match told.first() {
        Some(TxnOpResponse::Get(held)) => held.kvs().first(),
        _ => None,
    };
    match held {
        Some(held) if held.lease() == lease => Ok(Revision(held.mod_revision().cast_unsigned())),
        held => Err(MetaError::Held {
            seat: seat.to_owned(),
            holder: held.map_or_else(String::new, |held| {
                String::from_utf8_lossy(held.value()).into()
            }),
        }),
    }
}

async fn revoke(shared: &Shared, lease: i64) -> Result<(), MetaError> {
    let mut client = shared.client.lease_client();
    once(client.revoke(lease)).await?;
    Ok(())
}

/// Takes a seat away from whoever has it at this epoch.
pub(super) async fn depose(shared: &Shared, seat: &str, epoch: Revision) -> Result<(), MetaError> {
    let place = shared.place(&space::seat(seat));
    let held = Compare::mod_revision(place.clone(), CompareOp::Equal, epoch.0.cast_signed());
    let leaving = Txn::new()
        .when([held])
        .and_then([TxnOp::delete(place, None)]);
    // An epoch never comes back, so this may happen twice.
    patiently(|| {
        let (mut client, leaving) = (shared.client.kv_client(), leaving.clone());
        async move { client.txn(leaving).await }
    })
    .await?;
    Ok(())
}

impl Seat for EtcdSeat {
    fn renew(&mut self) -> Answer<'_, ()> {
        Box::pin(async {
            match is_renewed(&self.shared.client, self.lease).await? {
                true => Ok(()),
                false => Err(MetaError::Deposed {
                    seat: self.seat.clone(),
                    epoch: self.epoch,
                }),
            }
        })
    }

    fn vacate(&mut self) -> Answer<'_, ()> {
        Box::pin(revoke(&self.shared, self.lease))
    }
}
