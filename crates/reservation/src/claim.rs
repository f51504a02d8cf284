//! Words that those who ask and those who judge share.

use crate::{Interval, Moment};
use base::limits::RESERVATION_CLAIMS_MAX;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// So much of one resource, all the time in one interval. A reservation is a list of them that was
/// admitted as a whole: a width of four devices is four claims, a year of evenings is one for each
/// evening and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim<R> {
    /// Of what.
    pub resource: R,
    /// How much, in the unit of the resource's calendar.
    pub amount: u64,
    /// When.
    pub interval: Interval,
}

/// Why a ledger does not do it. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal<R: Debug> {
    /// There is too little. If that is so in several places, this is the one where the smallest
    /// part of what is asked for is left.
    #[error("{resource:?}: {room} left of {amount} asked for in {interval}, short from {from} on")]
    Short {
        /// What is short.
        resource: R,
        /// Seconds in which the same amount is asked for, guards included.
        interval: Interval,
        /// The first of them at which it is short.
        from: Moment,
        /// How much was asked for there, or how much more, if something was held already.
        amount: u64,
        /// The largest amount that would fit all the time.
        room: u64,
    },
    /// A claim or a reservation is past.
    #[error("its time is over")]
    Past,
    /// No calendar is kept for this resource.
    #[error("{resource:?} is not known")]
    UnknownResource {
        /// Which.
        resource: R,
    },
    /// A reservation has at least one claim and at most [`RESERVATION_CLAIMS_MAX`].
    #[error("{count} claims; a reservation has 1 to {RESERVATION_CLAIMS_MAX}")]
    Claims {
        /// How many there were.
        count: usize,
    },
    /// There is a reservation of this name already.
    #[error("it exists already")]
    Exists,
    /// There is no reservation of this name.
    #[error("there is no such reservation")]
    Unknown,
    /// It still counts, with its guards.
    #[error("it counts until {until}")]
    Counts {
        /// The first moment at which it does not.
        until: Moment,
    },
}

/// What could be had instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer<R> {
    /// In what it differs from what was asked for.
    pub kind: OfferKind,
    /// What is offered: if nothing else happens in between, it is admitted.
    pub claims: Vec<Claim<R>>,
}

/// In what an offer differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    /// All intervals are moved by the same number of seconds.
    Later,
    /// All amounts are reduced in the same proportion and rounded down.
    Smaller,
    /// It ends earlier; intervals after that are left out.
    Shorter,
}
