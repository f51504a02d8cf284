//! A storage server's judgement of a ticket: alone, by its own keys, clock and list.

use super::Storage;
use base::Time;
use base::limits::TICKET_CLOCK_ERROR_MAX;
use base::ticket::{Grant, Terms, TicketError, verify};

/// Why a ticket is worth nothing here and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgeError {
    /// Its bytes say so, or what is known about it.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// The machine's clock was set by more than tickets are given as tolerance, and this one's has
    /// not come to it yet. Tickets that are open go on.
    #[error("the server's clock is not right at the moment")]
    ClockUnsure,
}

/// Whether terms are within their window now, with the tolerance that clocks are given.
pub(super) fn judge_window(terms: &Terms, now: Time) -> Result<(), TicketError> {
    let start = Time::from_secs(terms.start_secs);
    let end = Time::from_secs(terms.end_secs);
    if now + TICKET_CLOCK_ERROR_MAX < start {
        let wait = start.since(now);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        return Err(TicketError::NotYet { seconds });
    }
    if terms.end_secs != u64::MAX && end + TICKET_CLOCK_ERROR_MAX <= now {
        let seconds = now.since(end).as_secs();
        return Err(TicketError::Expired { seconds });
    }
    Ok(())
}

impl Storage {
    /// Judges the bytes of a ticket, as they are shown by a client. A ticket is good from
    /// `TICKET_CLOCK_ERROR_MAX` before its start to as long after its end.
    ///
    /// # Errors
    /// [`JudgeError`] says why it is refused.
    pub fn judge(&self, ticket: &[u8]) -> Result<Grant, JudgeError> {
        let (place, now, error) = (self.place(), self.now(), self.clock.error());
        let known = self.known();
        let is_revoked = |id, epoch| known.is_revoked(id, epoch);
        let judged = verify(
            ticket,
            &known.keys,
            &place,
            now,
            TICKET_CLOCK_ERROR_MAX,
            is_revoked,
        );
        let grant = judged?;
        // Last, so that what is wrong in any case is called so.
        if error > TICKET_CLOCK_ERROR_MAX {
            return Err(JudgeError::ClockUnsure);
        }
        Ok(grant)
    }
}
