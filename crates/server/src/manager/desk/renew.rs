//! The next ticket, for who has one.
//!
//! A mount holds a ticket for one window. When that ends, its reservation may have another window,
//! or have been made longer. Whoever can show a ticket as it was issued gets the one that is issued
//! now, for the same server: no more than what whoever gave the ticket away has reserved. A part of
//! a ticket was made by its holder, whom no manager knows, so it ends as its maker wanted it.

use super::super::answers::failure;
use super::super::book::{Rejected, failed};
use super::super::record::{Row, RowState, ticket_id};
use super::Desk;
use base::TicketId;
use base::ticket::Ticket;
use wire::message::{ReserveError, ReserveReply, ReserveState};

impl Desk {
    /// The ticket of the present or the next window, in place of one of this reservation.
    pub(super) fn renew(
        &self,
        reservation: TicketId,
        shown: &[u8],
    ) -> Result<ReserveReply, Rejected> {
        let unknown = || {
            let why = "the ticket is of no reservation that there is, or only a part of one";
            failed(ReserveError::NotFound, why)
        };
        let ticket = Ticket::from_bytes(shown).map_err(|_| unknown())?;
        let (head, terms) = (ticket.head(), ticket.terms());
        let row = self.book.row(reservation);
        let row = row.filter(|row| row.state == RowState::Held && row.volume == head.volume);
        let row = row.ok_or_else(unknown)?;
        if !terms.is_valid() || !row.servers().contains(&head.server) {
            return Err(unknown());
        }
        let issued = self.servers.issue(head.server, head, terms);
        let Some(issued) = issued else {
            let why = format!("storage server {} is not there now", head.server);
            return Err(failed(ReserveError::Unavailable, why));
        };
        // Equal hashes are compared in equal time.
        let is_genuine = blake3::hash(&issued.to_bytes()) == blake3::hash(shown);
        let number = number_at(row, terms.start_secs);
        if !is_genuine || number.is_none_or(|it| ticket_id(reservation, it) != head.id) {
            return Err(unknown());
        }
        let mut reply = self.shown(reservation, true);
        let ReserveReply::Reserved {
            tickets, summary, ..
        } = &mut reply
        else {
            return Ok(reply);
        };
        let is_over = matches!(summary.state, ReserveState::Ended | ReserveState::Released);
        tickets.retain(|ticket| ticket.server == head.server);
        match tickets.is_empty() && !is_over {
            true => Ok(failure(
                ReserveError::Unavailable,
                "its servers are not there now",
            )),
            false => Ok(reply),
        }
    }
}

/// The number of the window that begins at a second.
fn number_at(row: &Row, start_secs: u64) -> Option<u32> {
    let after = start_secs.checked_sub(row.window.start().as_secs())?;
    let number = match row.every_secs {
        0 => (after == 0).then_some(0)?,
        every => after.is_multiple_of(every).then_some(after / every)?,
    };
    u32::try_from(number).ok().filter(|it| *it < row.count)
}
