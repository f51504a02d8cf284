//! For how long leases are believed.
//!
//! The server holds them for [`base::limits::LEASE_TIME`] after it has heard the session. What is
//! known of that here are answers: a request that is answered was heard after it was sent. So
//! leases are believed for [`LEASE_TRUST_TIME`] after the latest request that was answered had been
//! *sent*, however late the answer comes; what the server says by itself proves nothing. The time
//! is that of a clock that goes on while the machine sleeps.
//!
//! Once that time is over, the server may have let others change what was leased, and the next
//! answer does not bring it back: everything must be forgotten before anything is believed again.
//! Whoever finds first that it is over does that.

use base::Time;
use base::limits::LEASE_TRUST_TIME;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Somebody is about to forget everything.
const FORGETTING: u64 = 0;
/// Nothing is believed, and everything is forgotten.
const FORGOTTEN: u64 = 1;

/// When the latest request was sent that has been answered, in nanoseconds since the machine's
/// start; or one of the two above, which are earlier than any process.
#[derive(Debug)]
pub(super) struct Trust(AtomicU64);

impl Trust {
    /// From now on, as if something had been sent now and answered.
    pub(super) fn new(now: Time) -> Self {
        Self(AtomicU64::new(now.as_nanos().max(FORGOTTEN + 1)))
    }

    fn since(&self) -> Option<Time> {
        let nanos = self.0.load(Ordering::Acquire);
        (nanos > FORGOTTEN).then(|| Time::from_nanos(nanos))
    }

    /// For how long leases are believed if nothing more is answered; zero if they are not.
    pub(super) fn left(&self, now: Time) -> Duration {
        let left = |since| LEASE_TRUST_TIME.saturating_sub(now.since(since));
        self.since().map_or(Duration::ZERO, left)
    }

    /// How long ago the server has heard something at the latest.
    pub(super) fn age(&self, now: Time) -> Duration {
        self.since().map_or(Duration::MAX, |since| now.since(since))
    }

    /// Whether the caller is to forget everything, because trust is over: then it does, and says
    /// that it has ([`Self::on_forgotten`]).
    #[must_use]
    pub(super) fn is_over(&self, now: Time) -> bool {
        let over = |nanos| {
            let is_over = nanos > FORGOTTEN && is_over(nanos, now);
            is_over.then_some(FORGETTING)
        };
        let ordering = Ordering::AcqRel;
        let forgets = self.0.fetch_update(ordering, Ordering::Acquire, over);
        forgets.is_ok()
    }

    /// Everything is forgotten that was believed when [`Self::is_over`] said that it is over.
    pub(super) fn on_forgotten(&self) {
        self.0.store(FORGOTTEN, Ordering::Release);
    }

    /// A request has been answered that was sent at `sent`.
    pub(super) fn on_answered(&self, sent: Time, now: Time) {
        let sent = sent.as_nanos().max(FORGOTTEN + 1);
        let later = |nanos| match nanos {
            // Not before all of it is forgotten.
            FORGETTING => None,
            // So late an answer says nothing.
            _ if is_over(sent, now) => None,
            FORGOTTEN => Some(sent),
            // To be found to be over.
            since if is_over(since, now) => None,
            since => (sent > since).then_some(sent),
        };
        let ordering = Ordering::AcqRel;
        // What does not change it changes nothing.
        let _ = self.0.fetch_update(ordering, Ordering::Acquire, later);
    }
}

fn is_over(since_nanos: u64, now: Time) -> bool {
    now.since(Time::from_nanos(since_nanos)) >= LEASE_TRUST_TIME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(1_000_000 + millis)
    }

    fn left(trust: &Trust, millis: u64) -> u128 {
        trust.left(at(millis)).as_millis()
    }

    #[test]
    fn an_answer_is_worth_the_time_from_its_request_on() {
        let trust = Trust::new(at(0));
        // Sent at once, answered three seconds later.
        trust.on_answered(at(10), at(3000));
        assert_eq!(left(&trust, 3000), 1510);
        assert_eq!(trust.age(at(3000)).as_millis(), 2990);
        // One that was sent before and comes after it takes nothing away.
        trust.on_answered(at(5), at(3100));
        trust.on_answered(at(2000), at(3200));
        assert_eq!(left(&trust, 4000), 2500);
        assert!(!trust.is_over(at(6499)));
        assert_eq!(left(&trust, 6500), 0);
        assert!(trust.is_over(at(6500)));
    }

    #[test]
    fn who_was_asleep_believes_nothing_before_everything_is_forgotten() {
        let trust = Trust::new(at(0));
        // The answer to what was asked before the sleep, and to what was asked after it.
        for (sent, now) in [(10, 60_000), (60_001, 60_100)] {
            trust.on_answered(at(sent), at(now));
            assert_eq!(left(&trust, now), 0, "the leases were another's meanwhile");
        }
        assert!(trust.is_over(at(60_101)));
        assert!(!trust.is_over(at(60_102)), "one forgets");
        trust.on_answered(at(60_050), at(60_103));
        assert_eq!(left(&trust, 60_103), 0, "it is not done yet");
        trust.on_forgotten();
        assert_eq!(left(&trust, 60_104), 0);
        trust.on_answered(at(20), at(60_105));
        assert_eq!(left(&trust, 60_105), 0, "it was heard a minute ago");
        trust.on_answered(at(60_050), at(60_106));
        assert_eq!(left(&trust, 60_106), 4444);
        assert!(!trust.is_over(at(60_107)));
    }

    #[test]
    fn an_answer_that_comes_too_late_is_none() {
        let trust = Trust::new(at(0));
        for second in 1..100_u64 {
            // Everything is answered, each time after five seconds.
            trust.on_answered(at(second * 1000), at(second * 1000 + 5000));
            let is_over = trust.is_over(at(second * 1000 + 5000));
            assert_eq!(is_over, second == 1);
            if is_over {
                trust.on_forgotten();
            }
            assert_eq!(left(&trust, second * 1000 + 5000), 0);
        }
    }
}
