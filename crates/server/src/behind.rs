//! Requests of one session that wait for others of it: a pure structure.
//!
//! A client sends a commit right behind the writes that it is to cover. They travel on several
//! connections and come in any order, and a connection may break on the way; so the commit names
//! them, and waits here until each has run. Who waits is put aside whole and no thread waits with
//! it. There are few of them, each for a bounded time; whoever finds no room, or has waited too
//! long, is told so and asks in another way.
//!
//! A request waits for earlier ones only, so no two wait for each other.

use base::limits::{AFTER_TIME_MAX, AFTER_WAITS_MAX};
use base::{RequestId, Time};

struct Waiting<T> {
    /// Those that have not run.
    left: Vec<RequestId>,
    since: Time,
    request: T,
}

/// See the module's head.
pub(crate) struct Behind<T> {
    waiting: Vec<Waiting<T>>,
    /// Those that wait for nothing any more.
    ready: Vec<T>,
    /// Nobody is to wait any more.
    is_closed: bool,
}

impl<T> Default for Behind<T> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            ready: Vec::new(),
            is_closed: false,
        }
    }
}

impl<T> Behind<T> {
    /// Puts a request aside until those that are `left` have run; gives it back if there are too
    /// many already.
    pub(crate) fn put(&mut self, left: Vec<RequestId>, request: T, now: Time) -> Option<T> {
        if self.waiting.len() >= AFTER_WAITS_MAX || self.is_closed {
            return Some(request);
        }
        self.waiting.push(Waiting {
            left,
            since: now,
            request,
        });
        None
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// These have run.
    pub(crate) fn on_run(&mut self, has_run: impl Fn(RequestId) -> bool) {
        for waiting in &mut self.waiting {
            waiting.left.retain(|id| !has_run(*id));
        }
        let over = self
            .waiting
            .extract_if(.., |waiting| waiting.left.is_empty());
        self.ready.extend(over.map(|waiting| waiting.request));
    }

    /// Those that wait for nothing any more, once.
    pub(crate) fn take_ready(&mut self) -> Vec<T> {
        std::mem::take(&mut self.ready)
    }

    /// Takes one out that is to wait no longer.
    pub(crate) fn take(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut waiting = self.waiting.iter();
        let place = waiting.position(|waiting| is_wanted(&waiting.request))?;
        Some(self.waiting.swap_remove(place).request)
    }

    /// Takes those out that have waited for too long.
    pub(crate) fn take_late(&mut self, now: Time) -> Vec<T> {
        let is_late = |waiting: &mut Waiting<T>| now.since(waiting.since) > AFTER_TIME_MAX;
        let late = self.waiting.extract_if(.., is_late);
        late.map(|waiting| waiting.request).collect()
    }

    /// Takes everybody out; nobody waits here any more.
    pub(crate) fn close(&mut self) -> Vec<T> {
        self.is_closed = true;
        let mut all = self.take_ready();
        all.extend(self.waiting.drain(..).map(|waiting| waiting.request));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: Time = Time::ZERO;

    fn ids(ids: &[u64]) -> Vec<RequestId> {
        ids.iter().map(|id| RequestId(*id)).collect()
    }

    fn run(behind: &mut Behind<&'static str>, id: u64) -> Vec<&'static str> {
        behind.on_run(|other| other == RequestId(id));
        behind.take_ready()
    }

    #[test]
    fn whoever_waits_goes_on_when_the_last_has_run_in_whatever_order() {
        for order in [[1, 2, 3], [3, 1, 2], [2, 3, 1]] {
            let mut behind = Behind::default();
            assert_eq!(behind.put(ids(&[1, 2, 3]), "all", NOW), None);
            assert_eq!(behind.put(ids(&[order[1]]), "one", NOW), None);
            assert!(run(&mut behind, order[0]).is_empty());
            assert_eq!(run(&mut behind, order[1]), ["one"]);
            assert!(run(&mut behind, order[1]).is_empty(), "once is once");
            assert_eq!(run(&mut behind, order[2]), ["all"]);
            assert!(behind.is_empty());
        }
    }

    #[test]
    fn there_are_few_who_wait_and_none_after_the_end() {
        let mut behind = Behind::default();
        for _ in 0..AFTER_WAITS_MAX {
            assert_eq!(behind.put(ids(&[1]), "early", NOW), None);
        }
        assert_eq!(behind.put(ids(&[1]), "late", NOW), Some("late"));
        assert_eq!(behind.take(|request| *request == "late"), None);
        assert_eq!(behind.take(|request| *request == "early"), Some("early"));
        assert_eq!(behind.put(ids(&[2]), "late", NOW), None);
        behind.on_run(|id| id == RequestId(2));
        assert_eq!(behind.close().len(), AFTER_WAITS_MAX);
        assert_eq!(behind.put(ids(&[1]), "later", NOW), Some("later"));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut behind = Behind::default();
        let later = NOW + Duration::from_secs(1);
        behind.put(ids(&[1]), "first", NOW);
        behind.put(ids(&[1]), "second", later);
        let limit = NOW + AFTER_TIME_MAX;
        assert!(behind.take_late(limit).is_empty());
        assert_eq!(
            behind.take_late(limit + Duration::from_millis(1)),
            ["first"]
        );
        assert_eq!(run(&mut behind, 1), ["second"]);
    }
}
