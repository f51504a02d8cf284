//! The engine as a whole, beside a naive model.

#![expect(
    clippy::unwrap_used,
    reason = "a test's helpers end it as its own lines do"
)]

mod crash;
mod faults;
mod model;
mod reserved;
mod world;
