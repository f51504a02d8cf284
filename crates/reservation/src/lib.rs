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
//!
//! # What is guaranteed
//!
//! * At no second is more taken than there is, except after [`Calendar::set_capacity`] has taken
//!   capacity away; then nothing is added until it fits again.
//! * Every answer is the one that an array with an entry for each second of all time would give
//!   (`tests/calendar.rs`). There is no horizon and no rounding beyond the second.
//! * What is given back is exactly what was taken: a calendar equals one that is made anew from the
//!   claims that live.
//! * A counter-offer can be taken as it is.
//! * Memory follows the number of different seconds at which something begins or ends, not the
//!   length of time: a calendar with three claims has some hundred bytes.
//!
//! Source: Tanimura and others, design of an object-based storage with reservations, section 3.3.1:
//! the table of free allocation units by time, of which [`Calendar::changes`] are the rows.

mod calendar;
mod levels;
mod moment;

pub use calendar::{CAPACITY_MAX, Calendar, Overfull, Shortage};
pub use moment::{EmptyInterval, Interval, Moment};
