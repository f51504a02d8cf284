//! A server's judgement of a ticket: what it allows, or the reason why nothing.

use super::bytes::{CODE_BYTES, Parts};
use super::terms::{Coordinate, Head, Terms};
use crate::{ClusterId, ServerId, TicketId, Time};
use std::fmt;
use std::time::Duration;

/// A key that the manager and one server share.
#[derive(Clone)]
pub struct TicketKey {
    id: u32,
    secret: [u8; 32],
}

impl TicketKey {
    /// A key with the number under which tickets name it.
    #[must_use]
    pub fn new(id: u32, secret: [u8; 32]) -> Self {
        Self { id, secret }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn code(&self, bytes: &[u8]) -> [u8; CODE_BYTES] {
        code(&self.secret, bytes)
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKey({})", self.id)
    }
}

/// The code of some bytes under a key, which may be the code before it.
pub(super) fn code(key: &[u8; 32], bytes: &[u8]) -> [u8; CODE_BYTES] {
    *blake3::keyed_hash(key, bytes).as_bytes()
}

/// Who judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Itself.
    pub server: ServerId,
}

/// What a genuine ticket allows at this server, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose, and for which volume.
    pub head: Head,
    /// The reservation's ticket and every part on the way to this one, which is the last. Each has
    /// an account of its own; a part is charged to all before it.
    pub lineage: Vec<(TicketId, Terms)>,
}

impl Grant {
    /// What it allows.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        let (_, terms) = self.lineage.last().expect("a ticket has terms");
        terms
    }
}

/// Why a ticket is worth nothing here and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// Bytes are missing.
    #[error("the ticket is cut off")]
    Truncated,
    /// These are not the bytes of a ticket.
    #[error("the ticket is malformed")]
    Malformed,
    /// Another release wrote it.
    #[error("the ticket has version {0}, which this release does not know")]
    UnknownVersion(u16),
    /// It was issued by another cluster.
    #[error("the ticket is one of the cluster {0}")]
    OtherCluster(ClusterId),
    /// It is to be shown to another server.
    #[error("the ticket is for the server {0}")]
    OtherServer(ServerId),
    /// The server has no such key, or not any more.
    #[error("the ticket is under key {0}, which this server does not have")]
    UnknownKey(u32),
    /// Its code is not that of its bytes.
    #[error("the ticket is not genuine")]
    Forged,
    /// Whoever split it gave more than there was.
    #[error("a part of the ticket is wider than the whole: {0}")]
    Widened(Coordinate),
    /// It was taken back.
    #[error("the ticket was revoked")]
    Revoked,
    /// It is too early.
    #[error("the ticket begins {seconds} s from now")]
    NotYet {
        /// Until then, as this server's clock has it, rounded up.
        seconds: u64,
    },
    /// It is too late.
    #[error("the ticket ended {seconds} s ago")]
    Expired {
        /// Since then, rounded down.
        seconds: u64,
    },
}

/// Judges a ticket, alone: with the server's own keys (the present one and those before it that are
/// still good), its clock (`now`, wall time, right up to `clock_error`) and what it knows to be
/// revoked, by a ticket's number and epoch. Every number of the lineage is asked about.
///
/// A ticket is good from `clock_error` before its start to `clock_error` after its end: nobody is
/// refused because of a clock that is as right as it has to be.
///
/// # Errors
/// [`TicketError`] says why it is refused. Until the code is known to be right, the reason is what
/// the bytes claim.
pub fn verify(
    bytes: &[u8],
    keys: &[TicketKey],
    place: &Place,
    now: Time,
    clock_error: Duration,
    is_revoked: impl Fn(TicketId, u64) -> bool,
) -> Result<Grant, TicketError> {
    let parts = Parts::read(bytes)?;
    let head = parts.head;
    if head.cluster != place.cluster {
        return Err(TicketError::OtherCluster(head.cluster));
    }
    if head.server != place.server {
        return Err(TicketError::OtherServer(head.server));
    }
    let key = keys.iter().find(|key| key.id == head.key_id);
    let key = key.ok_or(TicketError::UnknownKey(head.key_id))?;
    let expected = parts
        .signed
        .iter()
        .fold(key.secret, |key, part| code(&key, part));
    // This comparison takes the same time wherever the first difference is.
    if blake3::Hash::from_bytes(expected) != blake3::Hash::from_bytes(parts.code) {
        return Err(TicketError::Forged);
    }
    for pair in parts.lineage.windows(2) {
        pair[1].1.within(&pair[0].1).map_err(TicketError::Widened)?;
    }
    if parts
        .lineage
        .iter()
        .any(|(id, _)| is_revoked(*id, head.epoch))
    {
        return Err(TicketError::Revoked);
    }
    let grant = Grant {
        head,
        lineage: parts.lineage,
    };
    judge_time(grant.terms(), now, clock_error)?;
    Ok(grant)
}

fn judge_time(terms: &Terms, now: Time, clock_error: Duration) -> Result<(), TicketError> {
    let (start, end) = (
        Time::from_secs(terms.start_secs),
        Time::from_secs(terms.end_secs),
    );
    if now + clock_error < start {
        let wait = start.since(now);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        return Err(TicketError::NotYet { seconds });
    }
    // The largest number is no time at all.
    if terms.end_secs != u64::MAX && end + clock_error <= now {
        let seconds = now.since(end).as_secs();
        return Err(TicketError::Expired { seconds });
    }
    Ok(())
}
