//! How mirrors have answered, and which to ask next.
//!
//! A mirror is known by how long its answers took, smoothed, and by its failures. One that has
//! failed rests, longer each time; each good answer takes back one failure and not all of them, so
//! that a mirror that fails now and then is asked less than one that does not. One whose answer was
//! wrong rests as one that has failed often. When all rest, they are asked all the same.
//!
//! **When a second mirror is asked** as well: after the time within which nineteen of twenty
//! answers came lately, and for no more than one of ten requests, so that mirrors that are all slow
//! are not asked for everything twice.

use base::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a mirror rests after its first failure; it doubles with each.
const REST_TIME: Duration = Duration::from_millis(500);
/// Failures that are counted: 64 s of rest.
const FAILURES_MAX: u32 = 7;
/// A wrong answer counts as so many.
const WRONG_FAILURES: u32 = 5;
/// Answers by which it is judged when a second mirror is asked.
const ANSWERS_MAX: usize = 64;
const ANSWERS_MIN: usize = 8;
/// After which time it is, before there are so many.
const PATIENCE_FIRST: Duration = Duration::from_millis(500);
/// Two mirrors are hardly ever so near that less is worth it.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
const PATIENCE_MAX: Duration = Duration::from_secs(5);
/// One of so many requests may be asked of a second mirror, beyond a few at first.
const SECONDS_SHARE: u64 = 10;
const SECONDS_FIRST: u64 = 4;
/// One of so many requests goes to the second best, to see whether it still is that.
const LOOK_AROUND: u64 = 64;

/// How one mirror has answered.
#[derive(Clone, Debug, Default)]
struct Health {
    /// Smoothed; none before the first answer.
    latency: Option<Duration>,
    failures: u32,
    rests_until: Time,
    answers: u64,
    failed: u64,
    wrong: u64,
}

/// What one mirror has done, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounts {
    /// Good answers, as far as is known.
    pub answers: u64,
    /// Requests that it has not answered as it should.
    pub failed: u64,
    /// Answers that were not what they should be.
    pub wrong: u64,
    /// How long its answers take, smoothed; none before the first.
    pub latency: Option<Duration>,
}

/// All mirrors of one source.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    mirrors: Vec<Health>,
    lately: VecDeque<Duration>,
    requests: u64,
    seconds: u64,
}

impl Standing {
    pub(super) fn new(count: usize) -> Self {
        Self {
            mirrors: vec![Health::default(); count],
            lately: VecDeque::new(),
            requests: 0,
            seconds: 0,
        }
    }

    /// The mirrors in the order in which they are to be asked for one request. `is_apt` says which
    /// are fit for it; the others come last.
    pub(super) fn order(&mut self, now: Time, is_apt: impl Fn(usize) -> bool) -> Vec<usize> {
        self.requests += 1;
        let mut order: Vec<usize> = (0..self.mirrors.len()).collect();
        order.sort_by_key(|&at| {
            let health = &self.mirrors[at];
            let rest = health.rests_until.since(now);
            (!is_apt(at), rest, health.latency.unwrap_or_default())
        });
        let rests = |at: usize| !self.mirrors[at].rests_until.since(now).is_zero();
        if self.requests.is_multiple_of(LOOK_AROUND)
            && let [first, second, ..] = &mut order[..]
            && !rests(*second)
            && is_apt(*second)
        {
            std::mem::swap(first, second);
        }
        order
    }

    pub(super) fn seconds(&self) -> u64 {
        self.seconds
    }

    /// After which time a second mirror is asked; none if it shall not be.
    pub(super) fn patience(&self) -> Option<Duration> {
        if self.seconds >= self.requests / SECONDS_SHARE + SECONDS_FIRST {
            return None;
        }
        if self.lately.len() < ANSWERS_MIN {
            return Some(PATIENCE_FIRST);
        }
        let mut lately: Vec<_> = self.lately.iter().copied().collect();
        lately.sort_unstable();
        let most = lately[lately.len() * 19 / 20];
        Some(most.clamp(PATIENCE_MIN, PATIENCE_MAX))
    }

    /// A second mirror is asked.
    pub(super) fn on_second(&mut self) {
        self.seconds += 1;
    }

    pub(super) fn on_answer(&mut self, at: usize, took: Duration) {
        let health = &mut self.mirrors[at];
        health.answers += 1;
        health.failures = health.failures.saturating_sub(1);
        health.rests_until = Time::ZERO;
        health.smooth(took);
        if self.lately.len() == ANSWERS_MAX {
            self.lately.pop_front();
        }
        self.lately.push_back(took);
    }

    /// Another one was quicker; it has not answered after this time.
    pub(super) fn on_slower(&mut self, at: usize, waited: Duration) {
        let health = &mut self.mirrors[at];
        if health.latency.is_none_or(|latency| latency < waited) {
            health.smooth(waited);
        }
    }

    pub(super) fn on_failure(&mut self, now: Time, at: usize) {
        self.mirrors[at].failed += 1;
        self.mirrors[at].rest(now, 1);
    }

    /// What it gave as a good answer was none.
    pub(super) fn on_wrong(&mut self, now: Time, at: usize) {
        let health = &mut self.mirrors[at];
        health.answers = health.answers.saturating_sub(1);
        health.wrong += 1;
        health.rest(now, WRONG_FAILURES);
    }

    pub(super) fn counts(&self) -> Vec<MirrorCounts> {
        let counts = |health: &Health| MirrorCounts {
            answers: health.answers,
            failed: health.failed,
            wrong: health.wrong,
            latency: health.latency,
        };
        self.mirrors.iter().map(counts).collect()
    }
}

impl Health {
    fn smooth(&mut self, took: Duration) {
        self.latency = Some(
            self.latency
                .map_or(took, |latency| (latency * 7 + took) / 8),
        );
    }

    fn rest(&mut self, now: Time, failures: u32) {
        self.failures = (self.failures + failures).min(FAILURES_MAX);
        self.rests_until = now + REST_TIME * (1 << self.failures.min(FAILURES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn first(standing: &mut Standing, now: Time) -> usize {
        standing.order(now, |_| true)[0]
    }

    #[test]
    fn the_quickest_is_asked_and_now_and_then_the_second() {
        let mut standing = Standing::new(3);
        for (mirror, took) in [(0, 90), (1, 10), (2, 50)] {
            standing.on_answer(mirror, took * MS);
        }
        let asked: Vec<_> = (0..640).map(|_| first(&mut standing, at(0))).collect();
        assert_eq!(asked.iter().filter(|&&mirror| mirror == 2).count(), 10);
        assert_eq!(asked.iter().filter(|&&mirror| mirror == 1).count(), 630);
        // It becomes slow, and then it is not the best any more.
        for _ in 0..20 {
            standing.on_answer(1, 300 * MS);
        }
        assert_eq!(first(&mut standing, at(0)), 2);
        // Who does not fit is asked last, however quick.
        assert_eq!(standing.order(at(0), |mirror| mirror != 2), [0, 1, 2]);
    }

    #[test]
    fn who_was_never_asked_is_asked_first() {
        let mut standing = Standing::new(2);
        standing.on_answer(0, MS);
        assert_eq!(first(&mut standing, at(0)), 1);
    }

    #[test]
    fn who_fails_rests_longer_each_time_and_recovers_by_good_answers() {
        let mut standing = Standing::new(2);
        standing.on_answer(0, 10 * MS);
        standing.on_answer(1, 100 * MS);
        let mut now = 0;
        let mut rests = Vec::new();
        for _ in 0..8 {
            standing.on_failure(at(now), 0);
            let begun = now;
            while first(&mut standing, at(now)) != 0 {
                now += 100;
            }
            rests.push(now - begun);
        }
        assert_eq!(rests[..4], [1000, 2000, 4000, 8000]);
        assert_eq!(rests.last(), Some(&64_000));
        // A good answer ends the rest, and the next failure is not the first.
        standing.on_answer(0, 10 * MS);
        assert_eq!(first(&mut standing, at(now)), 0);
        standing.on_failure(at(now), 0);
        assert_eq!(first(&mut standing, at(now + 30_000)), 1);
        standing.on_wrong(at(now), 1);
        // Both rest: the one that has less to rest.
        assert_eq!(first(&mut standing, at(now)), 1);
    }

    #[test]
    fn a_second_is_asked_after_what_answers_take_and_not_for_every_request() {
        let mut standing = Standing::new(2);
        assert_eq!(standing.patience(), Some(PATIENCE_FIRST));
        for number in 0..100 {
            standing.on_answer(0, if number % 20 == 0 { 900 * MS } else { 100 * MS });
        }
        let patience = standing.patience().unwrap();
        assert!(patience >= 100 * MS && patience <= 900 * MS, "{patience:?}");
        let mut seconds = 0;
        for _ in 0..1000 {
            standing.order(at(0), |_| true);
            if standing.patience().is_some() {
                standing.on_second();
                seconds += 1;
            }
        }
        assert_eq!(seconds, 104);
    }

    #[test]
    fn who_is_overtaken_is_known_to_be_slow() {
        let mut standing = Standing::new(2);
        standing.on_answer(0, 10 * MS);
        standing.on_answer(1, 20 * MS);
        for _ in 0..10 {
            standing.on_slower(0, 400 * MS);
        }
        assert_eq!(first(&mut standing, at(0)), 1);
        assert_eq!(standing.counts()[0].answers, 1);
    }
}
