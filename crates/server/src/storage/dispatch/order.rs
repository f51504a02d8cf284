//! The order at one device: the scheduler, with what a server knows of tickets around it. Pure:
//! no threads, no clock, no I/O; `now` is an argument.
//!
//! A ticket has a share from its start to its end by the server's clock. In the time before and
//! after, for which clocks are given tolerance, its requests are served in its holder's name out
//! of the leftover: a share that went on would be another's.
//!
//! Tickets are known by their lineage, so a part is opened below the whole that it was split from
//! and has its share out of that one's. A ticket that is shown again with other terms, because its
//! reservation was changed, replaces what was known: the one of the later epoch or end is newer.
//! Its record goes on: that of a ticket that is closed is kept for a while ([`super::past`]), for
//! who asks for it and for the ticket if it is shown again.
//!
//! A request that has to wait in the store for a commit or a checkpoint *stalls*: the device does
//! not have it meanwhile, and must not stand still for it, least of all because the checkpoint's
//! own I/O comes through here, too. One that waits for another request is *put aside*: the same,
//! and nobody stands still with it. What so stands aside is never a reason to hurry the store.
//!
//! While somebody with a share waits for the store, in a stall or for a commit, its own work goes
//! before what has none.

use super::super::model::Plan;
use super::history::{History, Totals};
use super::past::{Lineage, Noted, Past, seconds_of, seconds_up};
use base::limits::{SCHEDULER_PARTS_MAX, TICKET_COLLECT_INTERVAL, TICKET_KEPT_TIME};
use base::ticket::Grant;
use base::{StoreId, TicketId, Time};
use reservation::scheduler::{
    Dispatch, Operation, Rejection, RequestKey, Right, Scheduler, Source, TicketKey, TicketSecond,
    TicketTerms, UserKey, Work,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Why a ticket is not opened at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// It has no share of this device.
    NoSlice,
    /// The scheduler's reason.
    Rejected(Rejection),
}

/// Pieces without a share that may stand in the store, with those on their way there. Beyond, none
/// is given out: what has a share would find the device full of what cannot go on.
pub(crate) const SHARED_STALLS_MAX: usize = 64;

/// What was done, by whose requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Pieces: of tickets, of users, of the store.
    pub(crate) pieces: [u64; 3],
    /// Their bytes.
    pub(crate) bytes: [u64; 3],
}

/// What there is to say of a device at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) waiting: usize,
    pub(crate) in_flight: usize,
    pub(crate) tickets: usize,
    pub(crate) promised_ppm: u64,
    pub(crate) is_degraded: bool,
    pub(crate) speed_ppm: Option<u32>,
    pub(crate) done: Done,
}

/// A ticket that is open here.
#[derive(Debug)]
struct Open {
    lineage: Lineage,
    terms: TicketTerms,
    epoch: u64,
    history: History,
}

impl Open {
    /// What there is to note of it, if all seconds before `collected_at` were taken.
    fn noted(&self, collected_at: Time, seconds_max: usize) -> Noted {
        let (start, end) = (seconds_of(self.terms.start), seconds_of(self.terms.end));
        let kept_from = match self.terms.end < Time::MAX {
            true => self.terms.end,
            false => collected_at,
        };
        Noted {
            lineage: self.lineage.clone(),
            epoch: self.epoch,
            start,
            end,
            until: seconds_of(collected_at).min(end),
            kept_until: seconds_up(kept_from + TICKET_KEPT_TIME),
            share_ppm: self.terms.share_ppm,
            history: self.history.last(seconds_max),
        }
    }

    /// What is kept of it when it is closed.
    fn closed(mut self, now: Time) -> Noted {
        let history = std::mem::take(&mut self.history);
        let mut noted = self.noted(now, 0);
        noted.history = history;
        noted.cut(seconds_up(now));
        noted
    }
}

/// Where a piece is that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// At the device.
    Device,
    /// In the store, where it waits.
    Store,
    /// Put aside.
    Aside,
}

/// A piece that was given out and is not done.
#[derive(Clone, Copy, Debug)]
struct Flying {
    source: Source,
    /// Whether it came by a share of its own.
    has_share: bool,
    /// Whether its ticket has a share, by which this one came or not.
    is_of_share: bool,
    at: At,
}

impl Flying {
    /// One for what is bounded by [`SHARED_STALLS_MAX`].
    fn counts(&self) -> usize {
        usize::from(!self.has_share && self.at != At::Aside)
    }

    /// One for a piece of whoever has a share that waits for the store's own work.
    fn hurries(&self) -> usize {
        usize::from(self.is_of_share && self.at == At::Store)
    }
}

/// See the module's head. `T` is whatever the caller needs to carry a piece out.
#[derive(Debug)]
pub(crate) struct Order<T> {
    scheduler: Scheduler<T>,
    plan: Arc<Plan>,
    /// Whether whoever comes first goes first: for comparison.
    is_first_come: bool,
    by_lineage: BTreeMap<Lineage, TicketKey>,
    tickets: BTreeMap<TicketKey, Open>,
    /// How many are open of each reservation: its own ticket and all parts of it.
    of_root: BTreeMap<TicketId, usize>,
    past: Past,
    last_ticket: u64,
    flying: BTreeMap<RequestKey, Flying>,
    /// Those among them without a share that are at the device or in the store.
    without_share: usize,
    /// What was accepted and not given out.
    waiting: BTreeSet<RequestKey>,
    /// Who with a share waits for the store's own work.
    hurrying: usize,
    collected_at: Time,
    done: Done,
    /// Open tickets that were looked at one by one, to find those of a reservation.
    #[cfg(test)]
    pub(super) looked_at: std::cell::Cell<usize>,
}

impl<T> Order<T> {
    /// The order at a device with nothing to do.
    pub(crate) fn new(now: Time, plan: Arc<Plan>, is_first_come: bool) -> Self {
        Self {
            scheduler: Scheduler::new(now, &plan.shape),
            plan,
            is_first_come,
            by_lineage: BTreeMap::new(),
            tickets: BTreeMap::new(),
            of_root: BTreeMap::new(),
            past: Past::default(),
            last_ticket: 0,
            flying: BTreeMap::new(),
            without_share: 0,
            waiting: BTreeSet::new(),
            hurrying: 0,
            collected_at: now,
            done: Done::default(),
            #[cfg(test)]
            looked_at: std::cell::Cell::default(),
        }
    }

    /// Opens a ticket that was verified, and those that it was split from.
    ///
    /// # Errors
    /// [`OpenError`]; those that it was split from may be open all the same.
    pub(crate) fn open(
        &mut self,
        now: Time,
        grant: &Grant,
        store: StoreId,
    ) -> Result<TicketKey, OpenError> {
        let (mut lineage, mut parent) = (Lineage::new(), None);
        for (id, terms) in &grant.lineage {
            lineage.push(*id);
            let slice = terms.slices.iter().find(|slice| slice.device == store);
            let slice = slice.ok_or(OpenError::NoSlice)?;
            let terms = TicketTerms {
                holder: UserKey(grant.head.holder),
                share_ppm: slice.share_ppm,
                burst: Duration::from_millis(u64::from(terms.burst_millis))
                    .min(base::limits::SCHEDULER_BURST_TIME_MAX),
                start: Time::from_secs(terms.start_secs),
                end: Time::from_secs(terms.end_secs),
                parent,
            };
            let opened = self.open_one(now, &lineage, terms, grant.head.epoch);
            parent = Some(opened.map_err(OpenError::Rejected)?);
        }
        Ok(parent.expect("a ticket has terms"))
    }

    fn open_one(
        &mut self,
        now: Time,
        lineage: &Lineage,
        terms: TicketTerms,
        epoch: u64,
    ) -> Result<TicketKey, Rejection> {
        if let Some(&key) = self.by_lineage.get(lineage) {
            let known = self.tickets.get_mut(&key).expect("what is listed is open");
            let is_same = known.terms.parent == terms.parent;
            if is_same && (epoch, terms.end) > (known.epoch, known.terms.end) {
                let changed =
                    self.scheduler
                        .change_ticket(now, key, terms.share_ppm, terms.burst, terms.end);
                match changed {
                    Ok(()) => (known.terms, known.epoch) = (terms, epoch),
                    // It is over, or was when it was shown first: it begins anew below.
                    Err(Rejection::Over | Rejection::UnknownTicket) => {}
                    Err(other) => return Err(other),
                }
            }
            if now < known.terms.end || terms.end <= known.terms.end {
                return Ok(key);
            }
            self.close(now, key);
        }
        self.check_part(now, lineage)?;
        let key = TicketKey(self.last_ticket + 1);
        let opened = self.scheduler.open_ticket(now, key, &terms);
        match opened {
            Ok(()) => {}
            // In the time for which clocks are given tolerance there is no share any more.
            Err(Rejection::Over | Rejection::UnknownTicket) => {}
            Err(Rejection::TooManyTickets) => {
                self.forget_over(now, Duration::ZERO);
                self.scheduler.open_ticket(now, key, &terms)?;
            }
            Err(other) => return Err(other),
        }
        self.last_ticket += 1;
        self.by_lineage.insert(lineage.clone(), key);
        *self.of_root.entry(lineage[0]).or_default() += 1;
        let open = Open {
            lineage: lineage.clone(),
            terms,
            epoch,
            history: self.past.take(lineage).unwrap_or_default(),
        };
        self.tickets.insert(key, open);
        Ok(key)
    }

    /// Whether there is room for one more part of a ticket: nobody has more of them than are left
    /// for others, and whole tickets have room in any case.
    fn check_part(&mut self, now: Time, lineage: &Lineage) -> Result<(), Rejection> {
        let Some((_, parents @ [root, ..])) = lineage.split_last() else {
            return Ok(());
        };
        let has_room = |this: &Self| {
            let own = this.of_root.get(root).copied().unwrap_or(0);
            own + this.tickets.len() < SCHEDULER_PARTS_MAX
        };
        if has_room(self) {
            return Ok(());
        }
        self.forget_over(now, Duration::ZERO);
        // What it was split from may have been over, too.
        match has_room(self) && self.by_lineage.contains_key(parents) {
            true => Ok(()),
            false => Err(Rejection::TooManyTickets),
        }
    }

    /// A ticket and all that were split from it, each before its own parts.
    fn below<'a>(&'a self, whole: &'a [TicketId]) -> impl Iterator<Item = TicketKey> + 'a {
        let from = (Bound::Included(whole), Bound::Unbounded);
        let all = self.by_lineage.range::<[TicketId], _>(from);
        let own = all.take_while(|(lineage, _)| {
            #[cfg(test)]
            self.looked_at.set(self.looked_at.get() + 1);
            lineage.starts_with(whole)
        });
        own.map(|(_, key)| *key)
    }

    /// Takes tickets away that begin with one of a lineage: those and what was split from them.
    pub(crate) fn revoke(&mut self, now: Time, is_revoked: impl Fn(TicketId, u64) -> bool) {
        let is_gone = |open: &Open| {
            open.lineage
                .iter()
                .any(|ticket| is_revoked(*ticket, open.epoch))
        };
        let gone = self.tickets.iter().filter(|(_, open)| is_gone(open));
        for key in gone.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.close(now, key);
        }
        self.past.revoke(now, is_revoked);
    }

    /// Closes a ticket, and before it those that were split from it. What they got is kept.
    fn close(&mut self, now: Time, key: TicketKey) {
        let Some(open) = self.tickets.get(&key) else {
            return;
        };
        let all: Vec<_> = self.below(&open.lineage).collect();
        // What is above first: its own seconds are to be there before those of its parts.
        for key in self.above(&open.lineage).iter().chain(&all) {
            self.take_record(now, *key);
        }
        for key in all.into_iter().rev() {
            let rest = self.scheduler.close_ticket(now, key);
            self.add_record(key, rest.unwrap_or_default());
            if let Some(open) = self.tickets.remove(&key) {
                self.by_lineage.remove(&open.lineage);
                self.count_closed(open.lineage[0]);
                self.past.keep(now, open.closed(now));
            }
        }
    }

    /// What a ticket was split from, each before its own parts.
    fn above(&self, part: &[TicketId]) -> Vec<TicketKey> {
        (1..part.len())
            .filter_map(|depth| self.find(&part[..depth]))
            .collect()
    }

    /// Takes the seconds of a ticket that are over from the scheduler.
    fn take_record(&mut self, now: Time, key: TicketKey) {
        if let Some(seconds) = self.scheduler.take_record(now, key) {
            self.add_record(key, seconds);
        }
    }

    /// Adds seconds to what a ticket got, and to what those got that it was split from: what is
    /// asked for is what came of a reservation, whole or in parts.
    fn add_record(&mut self, key: TicketKey, seconds: Vec<TicketSecond>) {
        let Some(open) = self.tickets.get(&key) else {
            return;
        };
        for above in self.above(&open.lineage) {
            if let Some(above) = self.tickets.get_mut(&above) {
                above.history.add_parts(seconds.clone());
            }
        }
        if let Some(open) = self.tickets.get_mut(&key) {
            open.history.add(seconds);
        }
    }

    fn count_closed(&mut self, root: TicketId) {
        if let Some(count) = self.of_root.get_mut(&root) {
            *count -= 1;
            if *count == 0 {
                self.of_root.remove(&root);
            }
        }
    }

    fn forget_over(&mut self, now: Time, kept: Duration) {
        let is_over = |open: &Open| open.terms.end < Time::MAX && open.terms.end + kept <= now;
        let over = self.tickets.iter().filter(|(_, open)| is_over(open));
        for key in over.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.close(now, key);
        }
    }

    /// Device time of a piece.
    fn work(&self, operation: Operation, bytes: u32) -> Work {
        Work {
            bytes,
            cost_nanos: self.plan.cost_nanos(operation, bytes),
        }
    }

    /// Whether something waits or is at the device.
    pub(crate) fn has_work(&self) -> bool {
        !self.scheduler.is_idle()
    }

    /// Of the stores that lie on this disk, so many have something to do.
    pub(crate) fn set_busy(&mut self, stores: u32) {
        self.scheduler.set_busy(stores);
    }

    /// What the device can do.
    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Accepts a piece, or gives it back with the reason.
    ///
    /// # Errors
    /// [`Rejection`] says why not.
    pub(crate) fn submit(
        &mut self,
        now: Time,
        source: Source,
        (operation, bytes): (Operation, u32),
        content: T,
    ) -> Result<(), (Rejection, T)> {
        let work = self.work(operation, bytes);
        if self.is_first_come {
            let all = Source::User(UserKey(0));
            return self.accept(now, all, work, content);
        }
        let submitted = self.accept(now, source, work, content);
        match (submitted, source) {
            (Ok(_), _) => Ok(()),
            (
                Err((Rejection::NotYet | Rejection::Over | Rejection::UnknownTicket, content)),
                Source::Ticket(key),
            ) => {
                let Some(open) = self.tickets.get(&key) else {
                    return Err((Rejection::UnknownTicket, content));
                };
                let holder = Source::User(open.terms.holder);
                self.accept(now, holder, work, content)
            }
            (Err(refused), _) => Err(refused),
        }
    }

    fn accept(
        &mut self,
        now: Time,
        source: Source,
        work: Work,
        content: T,
    ) -> Result<(), (Rejection, T)> {
        let key = self.scheduler.submit(now, source, work, content)?;
        self.waiting.insert(key);
        Ok(())
    }

    /// The next piece for the device, if there is one that it should be given now.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Dispatch<T>> {
        if now.since(self.collected_at) >= TICKET_COLLECT_INTERVAL {
            self.collect(now);
        }
        self.scheduler
            .hold_shared(self.without_share >= SHARED_STALLS_MAX);
        self.scheduler.hurry_background(self.hurrying > 0);
        let next = self.scheduler.poll(now)?;
        let flying = Flying {
            source: next.source,
            has_share: next.right == Right::Share || next.source == Source::Background,
            is_of_share: self.is_of_share(now, next.source),
            at: At::Device,
        };
        self.without_share += flying.counts();
        self.waiting.remove(&next.key);
        self.flying.insert(next.key, flying);
        Some(next)
    }

    /// Whoever this is begins to wait for the store's own work. Whether that is hurried, for which
    /// he needs a share now; then [`Self::hurried`] follows when he waits no more.
    pub(crate) fn hurry(&mut self, now: Time, source: Source) -> bool {
        let is_of_share = self.is_of_share(now, source);
        self.hurrying += usize::from(is_of_share);
        is_of_share
    }

    /// Whether this is a ticket with a share now.
    fn is_of_share(&self, now: Time, source: Source) -> bool {
        match source {
            Source::Ticket(key) => self.tickets.get(&key).is_some_and(|open| {
                let TicketTerms {
                    share_ppm,
                    start,
                    end,
                    ..
                } = open.terms;
                share_ppm > 0 && start <= now && now < end
            }),
            Source::User(_) | Source::Background => false,
        }
    }

    #[cfg(test)]
    pub(super) fn hurrying(&self) -> usize {
        self.hurrying
    }

    /// Somebody for whom it was hurried waits no more.
    pub(crate) fn hurried(&mut self) {
        self.hurrying -= 1;
    }

    /// Takes out everything that waits: nothing of it is going to be carried out.
    pub(crate) fn take_waiting(&mut self, now: Time) -> Vec<T> {
        let waiting = std::mem::take(&mut self.waiting);
        let taken = waiting.into_iter();
        taken
            .filter_map(|key| self.scheduler.cancel(now, key))
            .collect()
    }

    /// When to ask again although nothing is in flight; none if only something new helps.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.scheduler.next_time()
    }

    /// A piece waits in the store, and gives its place at the device up.
    pub(crate) fn stall(&mut self, now: Time, key: RequestKey) {
        self.leave_device(now, key, At::Store);
    }

    /// The same with one that waits for another request, as nobody's work meanwhile.
    pub(crate) fn put_aside(&mut self, now: Time, key: RequestKey) {
        self.leave_device(now, key, At::Aside);
    }

    fn leave_device(&mut self, now: Time, key: RequestKey, at: At) {
        if let Some(flying) = self.flying.get_mut(&key) {
            self.without_share -= flying.counts();
            self.hurrying -= flying.hurries();
            let was_at = std::mem::replace(&mut flying.at, at);
            self.without_share += flying.counts();
            self.hurrying += flying.hurries();
            if was_at == At::Device {
                self.scheduler.complete(now, key, 0);
            }
        }
    }

    /// Pieces that wait in the store.
    pub(crate) fn stalled(&self) -> usize {
        self.flying
            .values()
            .filter(|flying| flying.at == At::Store)
            .count()
    }

    /// A piece is done, and has moved so many bytes; none if it failed.
    ///
    /// # Panics
    /// If it was not given out, which is a mistake in the caller's accounts.
    pub(crate) fn complete(&mut self, now: Time, key: RequestKey, bytes: u64) {
        let flying = self.flying.remove(&key).expect("it was given out once");
        self.without_share -= flying.counts();
        self.hurrying -= flying.hurries();
        let class = match flying.source {
            Source::Ticket(_) => 0,
            Source::User(_) => 1,
            Source::Background => 2,
        };
        self.done.pieces[class] += 1;
        self.done.bytes[class] += bytes;
        if flying.at == At::Device {
            self.scheduler.complete(now, key, bytes);
        } else if let Source::Ticket(ticket) = flying.source
            && let Some(open) = self.tickets.get(&ticket)
        {
            let above = self.above(&open.lineage);
            for key in above.into_iter().chain([ticket]) {
                if let Some(open) = self.tickets.get_mut(&key) {
                    open.history.credit(bytes);
                }
            }
        }
    }

    /// Takes the seconds that are over from the scheduler, before it forgets them, and forgets
    /// tickets that are over for long.
    fn collect(&mut self, now: Time) {
        self.collected_at = now;
        // What is split off has a larger key than what it is split from.
        for key in self.tickets.keys().copied().collect::<Vec<_>>() {
            self.take_record(now, key);
        }
        self.forget_over(now, TICKET_KEPT_TIME);
    }

    /// The seconds of a ticket from one on, and the sums over all; none if it is not open here.
    pub(crate) fn record(
        &mut self,
        now: Time,
        key: TicketKey,
        from_second: u64,
    ) -> Option<(Vec<TicketSecond>, Totals)> {
        self.collect(now);
        Some(self.tickets.get(&key)?.history.from(from_second))
    }

    /// As [`Self::record`], of a ticket that is open or was.
    pub(crate) fn record_of(
        &mut self,
        now: Time,
        lineage: &[TicketId],
        from_second: u64,
    ) -> Option<(Vec<TicketSecond>, Totals)> {
        if let Some(key) = self.find(lineage) {
            return self.record(now, key, from_second);
        }
        self.past.forget(now);
        Some(self.past.get(lineage)?.history.from(from_second))
    }

    /// Takes what an earlier run has noted of a ticket. The seconds of its window in which there
    /// was no server were not kept.
    pub(crate) fn remember(&mut self, now: Time, mut noted: Noted) {
        noted.miss_until(seconds_up(now));
        // Whoever asks for it may have waited for this server.
        noted.kept_until = noted.kept_until.max(seconds_up(now + TICKET_KEPT_TIME));
        self.past.keep(now, noted);
    }

    /// What there is to note of up to `count` tickets, open or not, from the one after `after` on
    /// by their lineages; of each the last seconds only.
    pub(crate) fn noted(
        &mut self,
        now: Time,
        after: Option<&[TicketId]>,
        (count, seconds_max): (usize, usize),
    ) -> Vec<Noted> {
        if after.is_none() {
            self.collect(now);
            self.past.forget(now);
        }
        let from = (
            after.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Unbounded,
        );
        let open = self.by_lineage.range::<[TicketId], _>(from).take(count);
        let open = open.map(|(lineage, key)| (lineage, Some(*key)));
        let past = self.past.after(after).take(count);
        let mut all: Vec<_> = open.chain(past.map(|lineage| (lineage, None))).collect();
        all.sort_unstable_by_key(|(lineage, _)| *lineage);
        all.truncate(count);
        let note = |(lineage, key): (&Lineage, Option<TicketKey>)| match key {
            Some(key) => Some(
                self.tickets
                    .get(&key)?
                    .noted(self.collected_at, seconds_max),
            ),
            None => Some(self.past.get(lineage)?.seen(self.collected_at, seconds_max)),
        };
        all.into_iter().filter_map(note).collect()
    }

    /// The key of an open ticket by its lineage.
    pub(crate) fn find(&self, lineage: &[TicketId]) -> Option<TicketKey> {
        self.by_lineage.get(lineage).copied()
    }

    /// How it is.
    pub(crate) fn figures(&self, now: Time) -> Figures {
        let begun = |open: &&Open| open.terms.start <= now && now < open.terms.end;
        let whole = self.tickets.values().filter(begun);
        let whole = whole.filter(|open| open.terms.parent.is_none());
        Figures {
            waiting: self.scheduler.waiting(),
            in_flight: self.flying.len(),
            tickets: self.tickets.len(),
            promised_ppm: whole.map(|open| u64::from(open.terms.share_ppm)).sum(),
            is_degraded: self.scheduler.is_degraded(),
            speed_ppm: self.scheduler.speed_ppm(),
            done: self.done,
        }
    }
}
