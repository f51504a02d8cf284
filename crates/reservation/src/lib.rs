//! What is promised to whom, and when: capacity over time, admission, counter-offers.
//!
//! Pure: no I/O, no clock, no thread, no randomness; integers only. `now` is an argument. The
//! object store counts its space here, in allocation units; who keeps the time of devices and lines
//! counts that, in millionths.
//!
//! | noun | one per | says |
//! |---|---|---|
//! | [`Moment`], [`Interval`] | | whole seconds of common time, also without an end |
//! | [`Calendar`] | resource | how much is taken when, whether more fits, when it would fit |
//! | [`Claim`] | | so much of a resource in an interval; a reservation is a list of them |
//! | [`Ledger`] | owner of resources | who holds what; admits and amends as a whole or not at all |
//! | [`Refusal`], [`Offer`] | | what is short, and where; what could be had instead |
//!
//! and, for who has to keep the promise at a device, second by second: [`scheduler`].
//!
//! The store has one calendar, with its allocation units, and a ledger with one or a few claims per
//! reservation. Who only needs room and keeps accounts elsewhere uses a calendar alone.
//!
//! # Call order
//!
//! ```text
//! ledger.advance(now)                         before every question that is about now
//! ledger.admit(id, &claims)                   or a Refusal: ledger.counter_offers(&claims, latest)
//!     write it down; if that fails:           ledger.withdraw(id)
//! ledger.extend, amend, release               while it lasts; write ledger.claims(id) down
//! for (end, id) in ledger.ended_by(now)       refuse its holder, clear what it leaves
//! ledger.forget(id)                           after its guards; strike it from the records, too
//! ```
//!
//! After a start: `add_resource`, then `restore` with every record.
//!
//! # What is guaranteed
//!
//! * At no second is more taken than there is, except after [`Calendar::set_capacity`] has taken
//!   capacity away; then nothing is added until it fits again.
//! * Every answer is the one that an array with an entry for each second of all time would give
//!   (`tests/seconds/`). There is no horizon and no rounding beyond the second.
//! * A reservation is admitted with all its claims or not at all, and so is every amendment.
//! * What is given back is exactly what was taken: calendars equal those that are made anew from
//!   the records.
//! * A counter-offer is admitted as it is, if nothing else happens in between.
//! * Memory follows the number of different seconds at which something begins or ends, not the
//!   length of time: a calendar with three claims has some hundred bytes.
//!
//! Source: Tanimura and others, design of an object-based storage with reservations, section 3.3.1:
//! the table of free allocation units by time, of which [`Calendar::changes`] are the rows.

mod calendar;
mod claim;
mod ledger;
mod levels;
mod moment;
pub mod scheduler;

pub use calendar::{CAPACITY_MAX, Calendar, DamagedChanges, Overfull, Shortage};
pub use claim::{Claim, Offer, OfferKind, Refusal};
pub use ledger::Ledger;
pub use moment::{EmptyInterval, Interval, Moment};
