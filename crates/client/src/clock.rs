//! The two clocks of the client. Both only go forward.
//!
//! What this machine waits for, and how fast a line is, goes by a clock that stops while the
//! machine sleeps: a call does not run out of time because of that. What others believe of this
//! machine goes by one that does not stop: a server holds no leases for whoever sleeps.

use base::Time;
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::Instant;

/// The time now, for every `now` argument of the pure crates; from the start of the process's first
/// use of it.
#[must_use]
pub(crate) fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    let nanos = START.get_or_init(Instant::now).elapsed().as_nanos();
    // The origin lies a minute before the first call, so that "a while ago" is always expressible.
    Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)) + std::time::Duration::from_secs(60)
}

/// The time since the machine was started, its sleep included (`CLOCK_BOOTTIME`).
#[must_use]
pub(crate) fn boot_time() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Seconds that the machine has slept, in the test that runs there.
    const SLEPT: &str = "CLIENT_TEST_SLEPT_SECS";

    /// A machine that has slept, without one that sleeps: a time namespace in which the clock that
    /// does not stop is ahead of the other one.
    #[test]
    fn a_clock_goes_on_while_the_machine_sleeps() {
        if let Some(slept) = std::env::var_os(SLEPT) {
            let slept: u64 = slept.to_str().unwrap().parse().unwrap();
            let awake = clock_gettime(ClockId::Monotonic).tv_sec as u64;
            let ahead = boot_time().since(Time::from_secs(awake)).as_secs();
            assert!((slept..slept + 3600).contains(&ahead), "{ahead} s ahead");
            return println!("it goes on");
        }
        let test = std::env::current_exe().unwrap();
        let name = "clock::tests::a_clock_goes_on_while_the_machine_sleeps";
        let slept = (1 << 20).to_string();
        let outcome = Command::new("unshare")
            .args(["--time", "--boottime", &slept, "--fork"])
            .arg(test)
            .args(["--exact", name, "--nocapture"])
            .env(SLEPT, &slept)
            .output();
        let Ok(outcome) = outcome else {
            return println!("skipped: no unshare(1) here");
        };
        let said = String::from_utf8_lossy(&outcome.stdout);
        let error = String::from_utf8_lossy(&outcome.stderr);
        if error.contains("unshare") {
            return println!("skipped: no time namespace here: {error}");
        }
        assert!(said.contains("it goes on"), "{said}{error}");
    }
}
