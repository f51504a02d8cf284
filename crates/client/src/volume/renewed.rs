//! Tickets whose window ends: the next one is asked for in time, and used.

use super::Volume;
use crate::object::{MountTicket, TicketState};
use crate::transport::CallError;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it is looked whether the volume is still there; and the longest pause while the
/// manager cannot be asked.
const LOOK_TIME: Duration = Duration::from_secs(30);
/// The shortest of these pauses.
const PAUSE: Duration = Duration::from_secs(1);

impl Volume {
    /// Asks for the ticket that there is now. Whether it is another one.
    async fn renew(&self, ticket: &MountTicket) -> Result<bool, CallError> {
        let Some(request) = ticket.renewal() else {
            return Ok(false);
        };
        // A ticket speaks for itself, whoever shows it.
        let answer = self.transport.reserve(0, request).await?;
        Ok(ticket.renew(&answer))
    }

    /// Before tickets are shown for the first time: who mounts every week with the same file has
    /// the ticket of the first week in it.
    pub(super) async fn renew_before_use(&self, tickets: &[MountTicket]) {
        for ticket in tickets {
            if ticket.is_past()
                && let Err(error) = self.renew(ticket).await
            {
                tracing::debug!(%error, "the manager cannot be asked for another ticket");
            }
        }
    }

    /// Uses the next tickets, too, for as long as the volume is there.
    pub(super) fn keep_renewed(&self, tickets: &[Arc<MountTicket>]) {
        for ticket in tickets {
            tokio::spawn(keep_renewed(self.this.clone(), ticket.clone()));
        }
    }

    async fn show_renewed(&self, ticket: &MountTicket) {
        // Why not is noted.
        let _ = match self.booked_at() {
            Some(server) => ticket.show(server).await,
            None => self.show_ticket(ticket).await,
        };
    }
}

async fn keep_renewed(volume: Weak<Volume>, ticket: Arc<MountTicket>) {
    let mut pause = PAUSE;
    while let Some(wait) = ticket.next_renewal() {
        tokio::time::sleep(wait.min(LOOK_TIME)).await;
        let Some(volume) = volume.upgrade() else {
            return;
        };
        if wait > LOOK_TIME {
            continue;
        }
        match volume.renew(&ticket).await {
            Ok(is_new) => {
                pause = PAUSE;
                if is_new {
                    volume.show_renewed(&ticket).await;
                }
            }
            Err(error) => {
                drop(volume);
                tracing::debug!(%error, "the manager cannot be asked for another ticket");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LOOK_TIME);
            }
        }
    }
    let status = ticket.status();
    if status.state != TicketState::Over {
        tracing::debug!(reservation = %status.reservation, "there is no other ticket after this");
    }
}
