//! Tickets at one device: how they come, change, are split and end while requests wait.

use super::Scheduler;
use super::device::Health;
use super::flow::Flow;
use super::pace::{Claimant, Pace};
use super::record::{Record, TicketSecond};
use super::terms::{Rejection, RequestKey, Source, TicketKey, TicketTerms, UserKey, nanos};
use base::Time;
use base::limits::{SCHEDULER_BURST_TIME_MAX, SCHEDULER_TICKETS_MAX};
use std::time::Duration;

/// Where a ticket is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Open,
    Over,
}

/// One ticket.
#[derive(Debug)]
pub(super) struct Ticket<T> {
    pub(super) holder: UserKey,
    parent: Option<TicketKey>,
    stage: Stage,
    /// When it begins and ends, in nanoseconds of the scheduler's time.
    interval: (u64, u64),
    burst_nanos: u64,
    /// Its whole share, and what of it its children have.
    share_ppm: u32,
    split_ppm: u32,
    /// Of what its children have not.
    pub(super) pace: Pace,
    pub(super) flow: Flow<T>,
    pub(super) in_flight: usize,
    pub(super) record: Record,
    /// Requests up to this one are not its own: its key may have been another ticket's before.
    opened_after: RequestKey,
}

impl<T> Ticket<T> {
    fn new(
        time: u64,
        interval: (u64, u64),
        (terms, burst_nanos): (&TicketTerms, u64),
        opened_after: RequestKey,
    ) -> Self {
        Self {
            holder: terms.holder,
            parent: terms.parent,
            stage: Stage::Before,
            interval,
            burst_nanos,
            share_ppm: terms.share_ppm,
            split_ppm: 0,
            pace: Pace::new(terms.share_ppm, burst_nanos),
            flow: Flow::new(),
            in_flight: 0,
            record: Record::new(time, interval, terms.share_ppm),
            opened_after,
        }
    }

    /// Whether requests can come with it.
    pub(super) fn check_open(&self) -> Result<(), Rejection> {
        match self.stage {
            Stage::Before => Err(Rejection::NotYet),
            Stage::Open => Ok(()),
            Stage::Over => Err(Rejection::Over),
        }
    }

    /// A request is back from the device. The record was brought up to the present.
    pub(super) fn land(&mut self, key: RequestKey, bytes: u64, cost_nanos: u64) {
        if key <= self.opened_after {
            return;
        }
        self.in_flight -= 1;
        self.record.serve(bytes, cost_nanos);
        self.note_demand();
    }

    pub(super) fn note_demand(&mut self) {
        self.record.set_demand(self.flow.len(), self.in_flight);
    }

    /// What its children have not.
    fn own_ppm(&self) -> u32 {
        self.share_ppm - self.split_ppm
    }

    /// Shares or burst have changed; to be listed anew.
    fn apply(&mut self, time: u64, health: &Health) {
        self.record.advance(time, health);
        self.record.change(self.own_ppm(), self.interval.1);
        self.pace.change(self.own_ppm(), self.burst_nanos);
    }
}

impl<T> Scheduler<T> {
    /// A ticket takes part from its start on, until its end. The caller has verified it, and has
    /// widened its interval by how wrong clocks may be.
    ///
    /// That the sum of all shares and floors is at most the whole is admission's duty. If it is
    /// not, all get less in proportion, and records say so.
    ///
    /// # Errors
    /// [`Rejection::BadTerms`], [`Rejection::Exists`], [`Rejection::TooManyTickets`],
    /// [`Rejection::Over`]; for a child also [`Rejection::UnknownTicket`], and
    /// [`Rejection::Oversplit`] if its siblings have the share already; it has at most its parent's
    /// interval.
    pub fn open_ticket(
        &mut self,
        now: Time,
        key: TicketKey,
        terms: &TicketTerms,
    ) -> Result<(), Rejection> {
        self.advance(now);
        terms.check()?;
        if self.tickets.contains_key(&key) {
            return Err(Rejection::Exists);
        }
        if self.tickets.len() >= SCHEDULER_TICKETS_MAX {
            return Err(Rejection::TooManyTickets);
        }
        let mut interval = (self.time_of(terms.start), self.time_of(terms.end));
        if interval.1 <= self.time {
            return Err(Rejection::Over);
        }
        if let Some(parent) = terms.parent {
            let of = self.take_from(parent, terms.share_ppm)?;
            interval = (interval.0.max(of.0), interval.1.min(of.1));
            if interval.0 >= interval.1 {
                self.give_to(parent, terms.share_ppm);
                return Err(Rejection::BadTerms);
            }
        }
        let given = (terms, self.burst_nanos(terms.burst));
        let ticket = Ticket::new(self.time, interval, given, RequestKey(self.last_key));
        self.tickets.insert(key, ticket);
        self.children
            .extend(terms.parent.map(|parent| (parent, key)));
        self.stages.insert((interval.0.max(self.time), key));
        // One that has begun takes part at once.
        self.advance(now);
        Ok(())
    }

    /// Changes a ticket's share, burst and end from now on, as after an extension, an early release
    /// or a new plan. Requests that wait stay where they are.
    ///
    /// # Errors
    /// [`Rejection::UnknownTicket`], [`Rejection::Over`]; [`Rejection::BadTerms`] also for an end
    /// that is not after now or less than its children have; [`Rejection::Oversplit`] for a child.
    pub fn change_ticket(
        &mut self,
        now: Time,
        key: TicketKey,
        share_ppm: u32,
        burst: Duration,
        end: Time,
    ) -> Result<(), Rejection> {
        self.advance(now);
        let end = self.time_of(end);
        let ticket = self.tickets.get(&key).ok_or(Rejection::UnknownTicket)?;
        let (old_end, old_ppm, parent) = (ticket.interval.1, ticket.share_ppm, ticket.parent);
        if ticket.stage == Stage::Over {
            return Err(Rejection::Over);
        }
        let is_good = share_ppm <= super::WHOLE_PPM
            && share_ppm >= ticket.split_ppm
            && burst <= SCHEDULER_BURST_TIME_MAX
            && end > self.time.max(ticket.interval.0);
        if !is_good {
            return Err(Rejection::BadTerms);
        }
        let mut end_max = u64::MAX;
        if let Some(parent) = parent {
            match share_ppm.checked_sub(old_ppm) {
                Some(more) => end_max = self.take_from(parent, more)?.1,
                None => self.give_to(parent, old_ppm - share_ppm),
            }
        }
        let burst_nanos = self.burst_nanos(burst);
        let ticket = self.tickets.get_mut(&key).expect("it was there");
        let is_open = ticket.stage == Stage::Open;
        ticket.share_ppm = share_ppm;
        ticket.burst_nanos = burst_nanos;
        ticket.interval.1 = end.min(end_max);
        ticket.apply(self.time, &self.health);
        if is_open {
            self.stages.remove(&(old_end, key));
            self.stages.insert((end.min(end_max), key));
            if parent.is_none() {
                self.promised_ppm = self.promised_ppm - u64::from(old_ppm) + u64::from(share_ppm);
            }
            self.list(Source::Ticket(key));
        }
        Ok(())
    }

    /// Forgets a ticket, with its children, and returns the rest of its record. What waits goes on
    /// in the name of its holder, without a share. `None` if there is no such ticket.
    pub fn close_ticket(&mut self, now: Time, key: TicketKey) -> Option<Vec<TicketSecond>> {
        self.advance(now);
        self.tickets.get(&key)?;
        self.end(key);
        let mut ticket = self.tickets.remove(&key)?;
        if let Some(parent) = ticket.parent {
            self.children.remove(&(parent, key));
        }
        Some(ticket.record.finish(&self.health))
    }

    /// The seconds of a ticket that are over and were not taken before. The last
    /// [`base::limits::SCHEDULER_RECORD_SECONDS_MAX`] are kept.
    pub fn take_record(&mut self, now: Time, key: TicketKey) -> Option<Vec<TicketSecond>> {
        self.advance(now);
        self.touch(Source::Ticket(key));
        Some(self.tickets.get_mut(&key)?.record.take())
    }

    /// By the promise clock.
    fn burst_nanos(&self, burst: Duration) -> u64 {
        nanos(burst) / u64::from(self.health.sharers())
    }

    /// What is left of a ticket's share for children that come, in millionths.
    #[must_use]
    pub fn room_ppm(&self, key: TicketKey) -> Option<u32> {
        self.tickets.get(&key).map(Ticket::own_ppm)
    }

    /// A ticket begins, or ends.
    pub(super) fn on_stage(&mut self, key: TicketKey) {
        let ticket = self.tickets.get_mut(&key).expect("it has stages to come");
        match ticket.stage {
            Stage::Before => {
                ticket.stage = Stage::Open;
                self.stages.insert((ticket.interval.1, key));
                if ticket.parent.is_none() {
                    self.promised_ppm += u64::from(ticket.share_ppm);
                }
            }
            Stage::Open => self.end(key),
            Stage::Over => unreachable!("nothing comes after its end"),
        }
    }

    /// Ends a ticket, and its children before it. Its record stays.
    fn end(&mut self, key: TicketKey) {
        let ticket = &self.tickets[&key];
        if ticket.stage == Stage::Over {
            return;
        }
        let children = (key, TicketKey(0))..=(key, TicketKey(u64::MAX));
        let children = self.children.range(children).map(|(_, child)| *child);
        for child in children.collect::<Vec<_>>() {
            // Some are over already, also those of a ticket that had the same key before.
            self.end(child);
        }
        self.touch(Source::Ticket(key));
        let ticket = self.tickets.get_mut(&key).expect("it is being ended");
        let next_stage = match ticket.stage {
            Stage::Before => ticket.interval.0,
            _ => ticket.interval.1,
        };
        self.stages.remove(&(next_stage, key));
        if ticket.stage == Stage::Open && ticket.parent.is_none() {
            self.promised_ppm -= u64::from(ticket.share_ppm);
        }
        ticket.stage = Stage::Over;
        ticket.interval.1 = ticket.interval.1.min(self.time);
        ticket.record.change(0, ticket.interval.1);
        let (parent, share_ppm) = (ticket.parent, ticket.share_ppm);
        self.agenda
            .list(Claimant::Ticket(key), &mut ticket.pace, None);
        self.release_requests(key);
        if let Some(parent) = parent {
            self.give_to(parent, share_ppm);
        }
    }

    /// What waits with a ticket goes on in the name of its holder: whoever accepted it has judged
    /// it, and will be answered.
    fn release_requests(&mut self, key: TicketKey) {
        let ticket = self.tickets.get_mut(&key).expect("it is being ended");
        let holder = ticket.holder;
        if ticket.flow.is_empty() {
            return;
        }
        if let Some(turn) = ticket.flow.turn.take() {
            self.users.remove_flow(holder, turn);
        }
        let own = Source::User(holder);
        let flow = self.flows.entry(holder).or_insert_with(Flow::new);
        let was_empty = flow.is_empty();
        let moved = flow.absorb(&mut ticket.flow);
        ticket.note_demand();
        self.shared_waiting += moved.len();
        for request in moved {
            self.waiting.insert(request, own);
        }
        if was_empty {
            self.on_woken(own);
        }
    }

    /// Takes a part of a ticket's share for a child and returns the ticket's interval.
    fn take_from(&mut self, parent: TicketKey, share_ppm: u32) -> Result<(u64, u64), Rejection> {
        let ticket = self.tickets.get_mut(&parent);
        let ticket = ticket.ok_or(Rejection::UnknownTicket)?;
        if ticket.stage == Stage::Over {
            return Err(Rejection::Over);
        }
        let room_ppm = ticket.own_ppm();
        if share_ppm > room_ppm {
            return Err(Rejection::Oversplit { room_ppm });
        }
        ticket.split_ppm += share_ppm;
        ticket.apply(self.time, &self.health);
        let interval = ticket.interval;
        self.list(Source::Ticket(parent));
        Ok(interval)
    }

    /// Gives a part of a ticket's share back that a child had.
    fn give_to(&mut self, parent: TicketKey, share_ppm: u32) {
        if let Some(ticket) = self.tickets.get_mut(&parent) {
            ticket.split_ppm -= share_ppm;
            ticket.apply(self.time, &self.health);
            self.list(Source::Ticket(parent));
        }
    }

    /// A time of the caller's clock on the scheduler's own.
    fn time_of(&self, at: Time) -> u64 {
        let ahead = nanos(at.since(self.now));
        let behind = nanos(self.now.since(at));
        self.time.saturating_add(ahead).saturating_sub(behind)
    }
}
