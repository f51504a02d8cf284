//! A ticket: what the holder of a reservation shows to one server, and what that server believes.
//!
//! The manager and each server share a key. A ticket is a *head* (who, where, which volume),
//! *terms* (what, how much, when) and a *code* of all that under the server's key, so a server
//! judges a ticket alone, without asking anybody ([`verify()`]). Whoever has the ticket's bytes can
//! use it: they are a secret, and [`Debug`](std::fmt::Debug) forms do not show the code.
//!
//! # Splitting
//!
//! A holder divides a ticket among workers without asking anybody, either ([`Ticket::narrow`],
//! [`Ticket::split`]). A *link* is added: a name for the worker's part, and its terms. The new code
//! is that of the link under the old code as its key, and the old code is left out. So whoever has
//! the part can narrow it further, but cannot compute the code of anything before it: a link cannot
//! be changed or taken off. A link with wider terms than those before it has a correct code, and is
//! refused for what it says.
//!
//! # Sums
//!
//! Each link alone is within its parent, but nothing in the bytes keeps a holder from giving the
//! whole of a ticket to each of ten workers. That is the server's to see, and it does, because it
//! is the place where all of them come: a verified ticket names its whole lineage with the terms of
//! each generation ([`Grant::lineage`]). The server opens all of these, charges a child's share to
//! its parent's slice for as long as the child is open, and refuses a child for which no share is
//! left; allocation units that are drawn with a child are drawn from every ancestor's budget. So
//! siblings have together what their parent has, whatever they were told. One account per
//! (ticket, device) is enough, and siblings need not know of each other.
//!
//! # What is not in here
//!
//! Revocation is by a number that the manager raises (the epoch) and by a list of names, both known
//! to the server. Replay is not an attack: the same ticket shown twice is one account. A ticket of
//! one server is refused by another because the head names the server, and would be without that,
//! because its key is another.
//!
//! Source: macaroons (Birgisson and others, NDSS 2014) for the chain. The bytes are drawn in
//! `docs/formats/ticket.md`; why the codes are keyed BLAKE3, in decision 12.

mod bytes;
mod scope;
mod terms;
#[cfg(test)]
mod tests;
mod verify;

pub use scope::ObjectScope;
pub use terms::{Class, Coordinate, Head, Operations, Slice, Terms};
pub use verify::{Grant, Place, TicketError, TicketKey, verify};

use crate::TicketId;
use crate::limits::TICKET_LINKS_MAX;
use bytes::Parts;
use std::fmt;

/// A ticket as its holder has it: nobody but its server can tell whether it is genuine.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    head: Head,
    /// The terms of the reservation, and of each part that was split from the one before.
    lineage: Vec<(TicketId, Terms)>,
    code: [u8; 32],
}

/// Why a ticket is not split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The part would allow what the whole does not.
    #[error("{0} would be wider than in the ticket that is split")]
    Widened(Coordinate),
    /// It was split too often.
    #[error("a ticket is split at most {TICKET_LINKS_MAX} times one after another")]
    TooManyLinks,
    /// No terms are like these.
    #[error("no ticket has such terms")]
    BadTerms,
}

impl Ticket {
    /// The ticket of a reservation at one server.
    ///
    /// # Panics
    /// If the terms are none ([`Terms::is_valid`]).
    #[must_use]
    pub fn issue(key: &TicketKey, head: &Head, terms: &Terms) -> Self {
        assert!(terms.is_valid(), "{terms:?}");
        let head = Head {
            key_id: key.id(),
            ..*head
        };
        let mut root = Vec::new();
        bytes::put_head(&mut root, &head);
        bytes::put_terms(&mut root, terms);
        Self {
            code: key.code(&root),
            lineage: vec![(head.id, terms.clone())],
            head,
        }
    }

    /// Reads the bytes of a ticket, without judging them.
    ///
    /// # Errors
    /// [`TicketError::Truncated`], [`TicketError::UnknownVersion`], [`TicketError::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TicketError> {
        let parts = Parts::read(bytes)?;
        Ok(Self {
            head: parts.head,
            lineage: parts.lineage,
            code: parts.code,
        })
    }

    /// The bytes that the server wants to see.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes::put_head(&mut bytes, &self.head);
        for (generation, (id, terms)) in self.lineage.iter().enumerate() {
            if generation > 0 {
                bytes.extend(id.0);
            }
            bytes::put_terms(&mut bytes, terms);
        }
        bytes.extend(self.code);
        bytes
    }

    /// Whose, where, which volume.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What it allows.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        let (_, terms) = self.lineage.last().expect("a ticket has terms");
        terms
    }

    /// A part of it, for a worker: `id` tells it from its siblings.
    ///
    /// # Errors
    /// [`SplitError`] says why not.
    pub fn narrow(&self, id: TicketId, terms: &Terms) -> Result<Self, SplitError> {
        if !terms.is_valid() {
            return Err(SplitError::BadTerms);
        }
        if self.lineage.len() > TICKET_LINKS_MAX {
            return Err(SplitError::TooManyLinks);
        }
        terms.within(self.terms()).map_err(SplitError::Widened)?;
        Ok(self.link(id, terms))
    }

    /// Adds a link, whatever it says.
    fn link(&self, id: TicketId, terms: &Terms) -> Self {
        let mut link = id.0.to_vec();
        bytes::put_terms(&mut link, terms);
        let mut part = self.clone();
        part.code = verify::code(&self.code, &link);
        part.lineage.push((id, terms.clone()));
        part
    }

    /// Equal parts, one for each id, that are together exactly the whole: the first ones have what
    /// cannot be divided.
    ///
    /// # Errors
    /// [`SplitError::TooManyLinks`].
    pub fn split(&self, ids: &[TicketId]) -> Result<Vec<Self>, SplitError> {
        let count = ids.len() as u64;
        let part_of = |whole: u64, index: u64| whole / count + u64::from(index < whole % count);
        let parts = ids.iter().zip(0..).map(|(id, index)| {
            let mut terms = self.terms().clone();
            for slice in &mut terms.slices {
                let share = part_of(u64::from(slice.share_ppm), index);
                slice.share_ppm = u32::try_from(share).expect("a part is no more than the whole");
                slice.au_budget = part_of(slice.au_budget, index);
            }
            self.narrow(*id, &terms)
        });
        parts.collect()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("head", &self.head)
            .field("lineage", &self.lineage)
            .finish_non_exhaustive()
    }
}
