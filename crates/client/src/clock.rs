//! The one clock of the client: monotonic, from the start of the process's first use of it.

use base::Time;
use std::sync::OnceLock;
use std::time::Instant;

/// The time now, for every `now` argument of the pure crates.
#[must_use]
pub(crate) fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    let nanos = START.get_or_init(Instant::now).elapsed().as_nanos();
    // The origin lies a minute before the first call, so that "a while ago" is always expressible.
    Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)) + std::time::Duration::from_secs(60)
}
