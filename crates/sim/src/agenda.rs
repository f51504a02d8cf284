//! A virtual clock and what is to happen.

use base::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// One entry of an [`Agenda`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    at: Time,
    order: u64,
}

/// Events in order of time; those of one moment in the order in which they were entered.
#[derive(Clone, Debug)]
pub struct Agenda<E> {
    now: Time,
    events: BTreeMap<EventId, E>,
    entered: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self {
            now: Time::ZERO,
            events: BTreeMap::new(),
            entered: 0,
        }
    }
}

impl<E> Agenda<E> {
    /// An empty one, at time zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Enters an event. A time in the past means "at once, after what is due already".
    pub fn at(&mut self, at: Time, event: E) -> EventId {
        let id = EventId {
            at: at.max(self.now),
            order: self.entered,
        };
        self.entered += 1;
        self.events.insert(id, event);
        id
    }

    /// Enters an event `wait` from now.
    pub fn after(&mut self, wait: Duration, event: E) -> EventId {
        self.at(self.now + wait, event)
    }

    /// Takes an event out again, if it has not happened.
    pub fn cancel(&mut self, id: EventId) -> Option<E> {
        self.events.remove(&id)
    }

    /// When the next event is due.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.events.first_key_value().map(|(id, _)| id.at)
    }

    /// The next event, if it is due at `now` or was before. The clock moves to its time, and to
    /// `now` if there is none.
    pub fn poll(&mut self, now: Time) -> Option<E> {
        match self.events.first_entry() {
            Some(entry) if entry.key().at <= now => {
                self.now = self.now.max(entry.key().at);
                Some(entry.remove())
            }
            _ => {
                self.now = self.now.max(now);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_in_order_of_time_and_then_of_entry() {
        let mut agenda = Agenda::new();
        agenda.at(Time::from_secs(2), "late");
        agenda.at(Time::from_secs(1), "first");
        agenda.at(Time::from_secs(1), "second");
        let dropped = agenda.at(Time::from_secs(1), "dropped");
        assert_eq!(agenda.cancel(dropped), Some("dropped"));
        assert_eq!(agenda.poll(Time::ZERO), None);
        assert_eq!(agenda.poll(Time::from_secs(5)), Some("first"));
        assert_eq!(agenda.now(), Time::from_secs(1));
        agenda.after(Duration::ZERO, "at once");
        let rest: Vec<_> = std::iter::from_fn(|| agenda.poll(Time::from_secs(5))).collect();
        assert_eq!(rest, ["second", "at once", "late"]);
        assert_eq!(agenda.now(), Time::from_secs(5));
        assert_eq!(agenda.next_time(), None);
    }
}
