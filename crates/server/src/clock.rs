//! The server's clock: monotonic, from its start.

use base::Time;
use std::time::Instant;

/// Tells the time since the server began. Pure tables get it as an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.0.elapsed()
    }
}
