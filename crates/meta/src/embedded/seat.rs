//! A seat in an embedded engine: it needs no renewal, only one process has the file.

use super::Shared;
use crate::MetaError;
use crate::engine::{Answer, Revision};
use crate::leadership::Seat;
use crate::space;
use std::sync::Arc;

pub(super) struct EmbeddedSeat {
    shared: Arc<Shared>,
    seat: String,
    epoch: Revision,
}

impl EmbeddedSeat {
    pub(super) fn new(shared: Arc<Shared>, seat: &str, epoch: Revision) -> Self {
        Self {
            shared,
            seat: seat.to_owned(),
            epoch,
        }
    }
}

impl Seat for EmbeddedSeat {
    fn renew(&mut self) -> Answer<'_, ()> {
        Box::pin(async {
            let (entry, _) = self.shared.get(&space::seat(&self.seat))?;
            match entry.is_some_and(|entry| entry.revision == self.epoch) {
                true => Ok(()),
                false => Err(MetaError::Deposed {
                    seat: self.seat.clone(),
                    epoch: self.epoch,
                }),
            }
        })
    }

    fn vacate(&mut self) -> Answer<'_, ()> {
        Box::pin(self.shared.depose(&self.seat, self.epoch))
    }
}
