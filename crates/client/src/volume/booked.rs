//! Tickets for an export.
//!
//! They are shown to the server at the session's start, and what the session reads and writes of
//! the volume then goes in their name: requests say nothing of them. So a ticket whose time has not
//! come is shown again when it has, and one that is good now and then, to hear whether it still is.

use super::Volume;
use crate::object::{MountTicket, ObjectCallError, StorageServer};
use crate::transport::CallError;
use base::FsError;
use std::sync::{Arc, OnceLock};

/// What is shown, and to whom.
#[derive(Default)]
pub(super) struct Booked(OnceLock<(StorageServer, Vec<Arc<MountTicket>>)>);

impl Volume {
    /// Uses tickets for this export from now on.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) async fn use_at_export(
        &self,
        tickets: Vec<MountTicket>,
    ) -> Result<(), ObjectCallError> {
        let server = StorageServer::over(self.transport.clone()).await?;
        let tickets: Vec<Arc<MountTicket>> = tickets.into_iter().map(Arc::new).collect();
        if self
            .booked
            .0
            .set((server.clone(), tickets.clone()))
            .is_err()
        {
            return Err(CallError::Failed(FsError::Invalid).into());
        }
        self.keep_renewed(&tickets);
        let mut outcome = Ok(());
        for ticket in tickets {
            outcome = outcome.and(ticket.show(&server).await);
            tokio::spawn(keep_shown(self.this.clone(), server.clone(), ticket));
        }
        outcome
    }

    /// Shows the tickets to a server that does not know them any more.
    pub(super) fn show_again_at_export(&self) {
        for ticket in self.export_tickets() {
            let (ticket, this) = (ticket.clone(), self.arc());
            tokio::spawn(async move {
                if let Some((server, _)) = this.booked.0.get() {
                    ticket.show_again(server).await;
                }
            });
        }
    }

    /// Where tickets for this export are shown, if there are any.
    pub(super) fn booked_at(&self) -> Option<&StorageServer> {
        self.booked.0.get().map(|(server, _)| server)
    }

    /// The tickets for this export.
    pub(super) fn export_tickets(&self) -> impl Iterator<Item = &Arc<MountTicket>> {
        self.booked.0.get().into_iter().flat_map(|(_, all)| all)
    }
}

/// Shows a ticket whenever that may help, for as long as the volume is there.
async fn keep_shown(
    volume: std::sync::Weak<Volume>,
    server: StorageServer,
    ticket: Arc<MountTicket>,
) {
    while let Some(wait) = ticket.next_showing() {
        tokio::time::sleep(wait).await;
        if volume.strong_count() == 0 {
            return;
        }
        ticket.show_again(&server).await;
    }
}
