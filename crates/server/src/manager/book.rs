//! The book: all rows of the ledger with the calendars that follow from them.
//!
//! Pure: no I/O, no clock; `now` comes with [`Book::advance`]. Every step changes the book at once
//! and says what it has changed ([`Change`]). Whoever owns the book makes that durable, and then
//! answers; if it cannot be made durable, it is undone ([`Book::undo`]), the last change first. A
//! row determines its claims, so undoing is putting the row before back, and the calendars are
//! again what they were, as they are if they are made anew from the rows.

use super::Resource;
use super::ask::{self, Wish};
use super::plan::{Ask, Instead, Lack, PlanDevice, Planner, Short, Width};
use super::record::{Delivered, GUARD_SECONDS, Row, RowState, Told, digest};
use base::limits::{
    RESERVE_CONFIRMATIONS_MAX, RESERVE_HOLDER_LIVE_MAX, RESERVE_HOLDER_RECORDS_MAX,
    RESERVE_KEPT_TIME, RESERVE_RECORDS_MAX, RESERVE_WINDOWS_MAX,
};
use base::{ServerId, StoreId, TicketId, VolumeId};
use reservation::scheduler::WHOLE_PPM;
use reservation::{CAPACITY_MAX, Interval, Ledger, Moment, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use wire::message::{ReserveError, ReserveLimits, ReserveWindow};

/// How far in the future counter-offers are looked for.
pub(super) const OFFER_SECONDS_MAX: u64 = 366 * 86_400;

/// What one step has changed, and how it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// One reservation.
    Row {
        id: TicketId,
        before: Option<Box<Row>>,
        after: Option<Box<Row>>,
    },
    /// The limits.
    Limits {
        before: ReserveLimits,
        after: ReserveLimits,
    },
}

/// Why a step is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// It does not fit; what would.
    Short { short: Short, offers: Vec<Instead> },
    /// Another reason, in words.
    Failed(ReserveError, String),
}

/// What has become of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// It was admitted.
    New(Change),
    /// It was admitted when it was asked before.
    Again,
}

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    ledger: Ledger<TicketId, Resource>,
    devices: BTreeMap<StoreId, PlanDevice>,
    limits: ReserveLimits,
    rows: BTreeMap<TicketId, Box<Row>>,
    names: BTreeMap<(VolumeId, String), BTreeSet<TicketId>>,
    /// Whose a row is, and when its tickets, or that they were revoked, need no more be remembered.
    holders: BTreeMap<(u32, TicketId), Moment>,
    /// When something has to be done about a row because of the time.
    due: BTreeSet<(Moment, TicketId)>,
    /// How many windows are planned, and until when each row counts with its own.
    windows: u64,
    windows_max: u64,
    counted: BTreeSet<(Moment, TicketId)>,
    /// Servers that believe no tickets of what is being given back, or there are none: nothing of
    /// theirs is claimed. Not in the ledger: who reads it asks them again.
    freed: BTreeMap<TicketId, BTreeSet<ServerId>>,
}

impl PartialEq for Book {
    /// Whether rows and calendars are the same: those of devices without rows may differ.
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
            && self.limits == other.limits
            && self.names == other.names
            && self.holders == other.holders
            && self.ledger == other.ledger
    }
}

pub(crate) fn failed(code: ReserveError, why: impl Into<String>) -> Rejected {
    Rejected::Failed(code, why.into())
}

impl Book {
    /// Without rows.
    pub(crate) fn new(now: Moment, limits: ReserveLimits) -> Self {
        Self {
            ledger: Ledger::new(now),
            devices: BTreeMap::new(),
            limits,
            rows: BTreeMap::new(),
            names: BTreeMap::new(),
            holders: BTreeMap::new(),
            due: BTreeSet::new(),
            windows: 0,
            windows_max: RESERVE_WINDOWS_MAX,
            counted: BTreeSet::new(),
            freed: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.ledger.now()
    }

    pub(crate) fn limits(&self) -> &ReserveLimits {
        &self.limits
    }

    #[cfg(test)]
    pub(crate) fn ledger(&self) -> &Ledger<TicketId, Resource> {
        &self.ledger
    }

    /// A reservation's row.
    pub(crate) fn row(&self, id: TicketId) -> Option<&Row> {
        self.rows.get(&id).map(Box::as_ref)
    }

    /// All rows in the order of their identities, those after one.
    pub(crate) fn rows_after(
        &self,
        after: Option<TicketId>,
    ) -> impl Iterator<Item = (TicketId, &Row)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let rows = self.rows.range((from, Unbounded));
        rows.map(|(id, row)| (*id, row.as_ref()))
    }

    /// All rows of a user in the order of their identities, those after one.
    pub(crate) fn rows_of(
        &self,
        holder: u32,
        after: Option<TicketId>,
    ) -> impl Iterator<Item = (TicketId, &Row)> {
        let own = self.entries_of(holder, after);
        own.map(|(id, _)| (id, self.rows[&id].as_ref()))
    }

    fn entries_of(
        &self,
        holder: u32,
        after: Option<TicketId>,
    ) -> impl Iterator<Item = (TicketId, Moment)> {
        use std::ops::Bound::{Excluded, Included};
        let first = Included((holder, TicketId([0; 16])));
        let from = after.map_or(first, |after| Excluded((holder, after)));
        let to = Included((holder, TicketId([u8::MAX; 16])));
        let own = self.holders.range((from, to));
        own.map(|((_, id), until)| (*id, *until))
    }

    /// Whether a user has room for one more: nobody fills the ledger, or what servers remember of
    /// revoked tickets, for all others.
    ///
    /// # Errors
    /// [`ReserveError::Limit`].
    pub(crate) fn check_holder(&self, holder: u32) -> Result<(), Rejected> {
        let own = self.entries_of(holder, None);
        let kept = own.take(RESERVE_HOLDER_RECORDS_MAX).count();
        if kept >= RESERVE_HOLDER_RECORDS_MAX {
            let days = RESERVE_KEPT_TIME.as_secs() / 86_400;
            let why = format!(
                "user {holder} has {kept} reservations, with those of the last {days} days; \
                 an administrator may reserve more"
            );
            return Err(failed(ReserveError::Limit, why));
        }
        let now = self.now();
        let live = self.entries_of(holder, None);
        let live = live.filter(|(_, until)| *until > now).count();
        if live >= RESERVE_HOLDER_LIVE_MAX {
            let why = format!(
                "user {holder} has {live} reservations whose windows are not over, with those \
                 that were cancelled; an administrator may reserve more"
            );
            return Err(failed(ReserveError::Limit, why));
        }
        Ok(())
    }

    /// The reservation of this name in a volume: the one that ends last.
    pub(crate) fn named(&self, volume: VolumeId, name: &str) -> Option<TicketId> {
        let ids = self.names.get(&(volume, name.to_owned()))?;
        ids.iter().copied().max_by_key(|id| self.rows[id].end())
    }

    /// The shortest name after its identity that nobody else has: of a hundred thousand
    /// reservations, some have the same first eight digits.
    pub(crate) fn name_for(&self, volume: VolumeId, id: TicketId) -> String {
        let digits = id.to_string();
        let mut names = [8, 12, 16, 32]
            .map(|len| format!("r-{}", &digits[..len]))
            .into_iter();
        let is_free = |name: &String| self.named(volume, name).is_none_or(|whose| whose == id);
        names.find(is_free).unwrap_or_else(|| format!("r-{digits}"))
    }

    /// Goes on to `now`: what does not count any more leaves the calendars.
    pub(crate) fn advance(&mut self, now: Moment) {
        self.ledger.advance(now);
        let ended = self.ledger.ended_by(now).map(|(_, id)| id);
        for id in ended.collect::<Vec<_>>() {
            self.forget_if_over(id);
        }
        while let Some((until, id)) = self.counted.first().copied()
            && until <= now
        {
            self.counted.remove(&(until, id));
            self.windows -= windows(&self.rows[&id]);
        }
    }

    /// How many windows all rows have that are not over.
    #[cfg(test)]
    pub(crate) fn windows(&self) -> u64 {
        self.windows
    }

    /// Sets another bound than [`RESERVE_WINDOWS_MAX`].
    #[cfg(test)]
    pub(crate) fn set_windows_max(&mut self, most: u64) {
        self.windows_max = most;
    }

    /// Whether so many more windows can be planned: whoever reads the ledger plans them all anew.
    fn check_windows(&self, more: u64) -> Result<(), Rejected> {
        if self.windows.saturating_add(more) <= self.windows_max {
            return Ok(());
        }
        let why = format!(
            "{} windows are planned, and all reservations together have at most {}: ask for fewer \
             windows in the series",
            self.windows, self.windows_max
        );
        Err(failed(ReserveError::Limit, why))
    }

    fn forget_if_over(&mut self, id: TicketId) {
        match self.ledger.forget(id) {
            // It counts for its guard, and is looked at again when the time goes on.
            Ok(()) | Err(Refusal::Counts { .. } | Refusal::Unknown) => {}
            Err(other) => unreachable!("forgetting cannot fail with {other}"),
        }
    }

    /// Whether a device was there when they were last looked at.
    pub(crate) fn knows(&self, store: StoreId) -> bool {
        self.devices.contains_key(&store)
    }

    /// Takes over what devices there are and how they are. One that is gone stays on the calendars
    /// of those who hold it, and nothing more is promised of it.
    pub(crate) fn set_devices(&mut self, devices: Vec<PlanDevice>) {
        self.devices = devices
            .into_iter()
            .map(|device| (device.store, device))
            .collect();
        let all: Vec<_> = self
            .devices
            .values()
            .map(|device| (device.store, device.server))
            .collect();
        for (store, server) in all {
            self.keep(Resource::Device(store));
            self.keep(Resource::Line(server));
        }
        self.set_capacities();
    }

    /// Sees to it that there is a calendar.
    fn keep(&mut self, resource: Resource) {
        if self.ledger.calendar(resource).is_none() {
            let capacity = self.capacity(resource);
            self.ledger.add_resource(resource, capacity, GUARD_SECONDS);
        }
    }

    fn capacity(&self, resource: Resource) -> u64 {
        let headroom = self
            .limits
            .unreserved_ppm
            .saturating_add(self.limits.background_ppm);
        match resource {
            Resource::Device(store) => self.devices.get(&store).map_or(0, |device| {
                let own = device.plan.promised_ppm_max();
                u64::from(own.min(WHOLE_PPM.saturating_sub(headroom)))
            }),
            Resource::Line(_) => match self.limits.network_bytes_per_second {
                0 => CAPACITY_MAX,
                most => most.min(CAPACITY_MAX),
            },
        }
    }

    fn set_capacities(&mut self) {
        let all: Vec<_> = self
            .ledger
            .calendars()
            .map(|(resource, _)| resource)
            .collect();
        for resource in all {
            let capacity = self.capacity(resource);
            let known = self.ledger.set_capacity(resource, capacity);
            known.expect("it was just listed");
        }
    }

    /// Sets the limits. What was admitted stays, even where it is more than could be now.
    ///
    /// # Errors
    /// [`ReserveError::Invalid`].
    pub(crate) fn set_limits(&mut self, limits: ReserveLimits) -> Result<Change, Rejected> {
        ask::check_limits(&limits)?;
        let before = std::mem::replace(&mut self.limits, limits.clone());
        self.set_capacities();
        Ok(Change::Limits {
            before,
            after: limits,
        })
    }

    fn planner(&self) -> Planner<'_> {
        Planner {
            devices: &self.devices,
            ledger: &self.ledger,
            has_lines: self.limits.network_bytes_per_second > 0,
        }
    }

    /// The row that a question would be, were it asked so.
    pub(crate) fn row_of(&self, wish: &Wish, ask: &Ask) -> Option<Row> {
        let width = self.planner().width(ask).ok()?;
        Some(row(wish, ask, width))
    }

    /// Whether devices and lines could carry it.
    pub(crate) fn fits(&self, ask: &Ask) -> bool {
        self.planner().width(ask).is_ok()
    }

    /// Puts a row in the place of what is there, without judging it.
    fn put(&mut self, id: TicketId, row: Option<Box<Row>>) -> Option<Box<Row>> {
        if self.ledger.claims(id).is_some() {
            self.ledger.withdraw(id).expect("it is there");
        }
        if let Some(row) = &row {
            let freed = self.freed.get(&id).filter(|_| row.state.is_unfinished());
            let claims = row.claims_without(freed.unwrap_or(&BTreeSet::new()));
            for claim in &claims {
                self.keep(claim.resource);
            }
            if !claims.is_empty() {
                let restored = self.ledger.restore(id, &claims);
                restored.expect("rows are bounded when they are read and when they are made");
                self.forget_if_over(id);
            }
        }
        self.note(id, row)
    }

    /// Everything but the calendars.
    fn note(&mut self, id: TicketId, row: Option<Box<Row>>) -> Option<Box<Row>> {
        if !row.as_ref().is_some_and(|row| row.state.is_unfinished()) {
            self.freed.remove(&id);
        }
        let before = self.rows.remove(&id);
        if let Some(before) = &before {
            self.due.remove(&(due(before), id));
            if self.counted.remove(&(before.end(), id)) {
                self.windows -= windows(before);
            }
            self.holders.remove(&(before.holder, id));
            let name = (before.volume, before.name.clone());
            if let Some(ids) = self.names.get_mut(&name) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.names.remove(&name);
                }
            }
        }
        if let Some(row) = row {
            // What is given back, whenever that can be done, has its name no more.
            let is_named = matches!(row.state, RowState::Held | RowState::Pending);
            if is_named && !row.name.is_empty() {
                let name = (row.volume, row.name.clone());
                self.names.entry(name).or_default().insert(id);
            }
            self.due.insert((due(&row), id));
            if row.end() > self.now() && self.counted.insert((row.end(), id)) {
                self.windows += windows(&row);
            }
            let until = row.last_end().plus(GUARD_SECONDS);
            self.holders.insert((row.holder, id), until);
            self.rows.insert(id, row);
        }
        before
    }

    fn change(&mut self, id: TicketId, after: Option<Row>) -> Change {
        let after = after.map(Box::new);
        let before = self.put(id, after.clone());
        Change::Row { id, before, after }
    }

    /// A change whose claims are on the calendars already.
    fn noted(&mut self, id: TicketId, row: Row) -> Change {
        let after = Some(Box::new(row));
        let before = self.note(id, after.clone());
        Change::Row { id, before, after }
    }

    /// Takes a change back that could not be made durable; the last one first.
    pub(crate) fn undo(&mut self, change: Change) {
        match change {
            Change::Row { id, before, .. } => drop(self.put(id, before)),
            Change::Limits { before, .. } => {
                self.limits = before;
                self.set_capacities();
            }
        }
    }

    /// Takes over a row of the ledger.
    ///
    /// # Errors
    /// What is wrong with it: such a row was not written by a manager.
    pub(crate) fn restore(&mut self, id: TicketId, row: Row) -> Result<(), &'static str> {
        ask::check_row(&row)?;
        if self.rows.contains_key(&id) {
            return Err("it is there twice");
        }
        self.put(id, Some(Box::new(row)));
        Ok(())
    }

    /// Judges a question and admits it.
    ///
    /// # Errors
    /// [`Rejected`].
    pub(crate) fn create(
        &mut self,
        id: TicketId,
        wish: &Wish,
        without: &[Lack],
    ) -> Result<Created, Rejected> {
        if let Some(row) = self.rows.get(&id) {
            return match row.state {
                _ if row.asked != digest(wish) => Err(failed(
                    ReserveError::Exists,
                    "this number was used for another question",
                )),
                RowState::Held => Ok(Created::Again),
                RowState::Gone => Err(failed(ReserveError::Over, "it was cancelled since")),
                RowState::Pending | RowState::Leaving | RowState::LeavingUnused => Err(failed(
                    ReserveError::Unavailable,
                    "it is being decided; ask again",
                )),
            };
        }
        if self.rows.len() >= RESERVE_RECORDS_MAX {
            let why = format!("there are {RESERVE_RECORDS_MAX} reservations already");
            return Err(failed(ReserveError::Limit, why));
        }
        let row = self.judge(wish, without)?;
        ask::check_row(&row).map_err(|why| failed(ReserveError::Limit, why))?;
        let claims = row.claims();
        if !claims.is_empty() {
            self.ledger.admit(id, &claims).map_err(short_of)?;
        }
        Ok(Created::New(self.noted(id, row)))
    }

    /// What it would be, were it admitted now.
    ///
    /// # Errors
    /// [`Rejected`].
    pub(crate) fn judge(&self, wish: &Wish, without: &[Lack]) -> Result<Row, Rejected> {
        ask::check(wish, self.now())?;
        let taken = self.named(wish.volume, &wish.name);
        if taken.is_some_and(|id| self.rows[&id].end() > self.now()) {
            let why = format!("there is a reservation {:?} already", wish.name);
            return Err(failed(ReserveError::Exists, why));
        }
        self.check_windows(wish.terms.count.into())?;
        let planner = self.planner();
        let (ask, latest) = self.first_ask(wish, without)?;
        let found = match latest {
            None => planner.width(&ask).map(|width| (ask.clone(), width)),
            Some(latest) => match planner.first(&ask, ask.window.start(), latest) {
                Some(moved) => planner.width(&moved).map(|width| (moved, width)),
                None => Err(planner
                    .width(&ask)
                    .err()
                    .unwrap_or(Short::Stores { wanted: 1, room: 0 })),
            },
        };
        match found {
            Ok((ask, width)) => {
                check_confirmations(&ask, &width)?;
                Ok(row(wish, &ask, width))
            }
            Err(short) => {
                let horizon = self.now().max(ask.window.end()).plus(OFFER_SECONDS_MAX);
                let offers = planner.instead(&ask, self.now(), horizon);
                Err(Rejected::Short { short, offers })
            }
        }
    }

    /// The question at its first start, and until when it may end if it is not fixed.
    fn first_ask(&self, wish: &Wish, without: &[Lack]) -> Result<(Ask, Option<Moment>), Rejected> {
        let (start, end, latest) = match wish.terms.window {
            ReserveWindow::At {
                start_secs,
                end_secs,
            } => (start_secs.max(self.now().as_secs()), end_secs, None),
            ReserveWindow::Within {
                earliest_secs,
                latest_secs,
                duration_secs,
            } => {
                let start = earliest_secs.max(self.now().as_secs());
                let latest = Some(Moment::from_secs(latest_secs));
                (start, start.saturating_add(duration_secs), latest)
            }
        };
        let window = Interval::new(Moment::from_secs(start), Moment::from_secs(end));
        let window = window.map_err(|_| failed(ReserveError::Over, "the window is over"))?;
        let ask = Ask {
            read: wish.terms.read_bytes_per_second,
            write: wish.terms.write_bytes_per_second,
            space_bytes: wish.terms.space_bytes,
            window,
            every_secs: wish.terms.every_secs,
            count: wish.terms.count,
            stores: wish.terms.stores.clone(),
            among: wish.among.clone(),
            without: without.to_vec(),
        };
        Ok((ask, latest))
    }

    /// Space was confirmed by all stores.
    pub(crate) fn confirm(&mut self, id: TicketId) -> Option<Change> {
        self.turn(id, RowState::Held)
    }

    /// Whatever is to be done about it, its name is another's to have.
    pub(crate) fn unname(&mut self, id: TicketId) -> Option<Change> {
        let row = Row {
            name: String::new(),
            ..self.row(id)?.clone()
        };
        Some(self.change(id, Some(row)))
    }

    /// Strikes a row.
    pub(crate) fn remove(&mut self, id: TicketId) -> Option<Change> {
        self.rows.get(&id)?;
        Some(self.change(id, None))
    }

    /// From now on nobody is told of it, until everything is given back: also what was written, or
    /// only if nothing was.
    pub(crate) fn leave(&mut self, id: TicketId, discard: bool) -> Option<Change> {
        self.turn(
            id,
            match discard {
                true => RowState::Leaving,
                false => RowState::LeavingUnused,
            },
        )
    }

    /// Something was written before its tickets were taken back: it stays, without its rate.
    pub(crate) fn keep_written(&mut self, id: TicketId) -> Option<Change> {
        let now = self.now();
        let row = self.row(id)?;
        if row.state != RowState::LeavingUnused {
            return None;
        }
        let is_live = row.released.is_none() && row.end() > now;
        let kept = Row {
            state: RowState::Held,
            released: row.released.or(is_live.then_some(now)),
            ..row.clone()
        };
        Some(self.change(id, Some(kept)))
    }

    /// Everything was given back.
    pub(crate) fn gone(&mut self, id: TicketId) -> Option<Change> {
        self.turn(id, RowState::Gone)
    }

    fn turn(&mut self, id: TicketId, state: RowState) -> Option<Change> {
        let row = Row {
            state,
            ..self.row(id)?.clone()
        };
        Some(self.change(id, Some(row)))
    }

    /// Moves the end of a single window, or lets a series go on up to it. Only what is added has to
    /// fit.
    ///
    /// # Errors
    /// [`Rejected`].
    pub(crate) fn extend(&mut self, id: TicketId, end: Moment) -> Result<Change, Rejected> {
        let gone = || failed(ReserveError::NotFound, "there is no such reservation");
        // One that is being given back is nobody's to make longer.
        let row = self.row(id).filter(|row| row.is_held()).ok_or_else(gone)?;
        let longer = row
            .longer(end)
            .map_err(|why| failed(ReserveError::Invalid, why))?;
        if row.end() <= self.now() || row.released.is_some() {
            return Err(failed(ReserveError::Over, "its window is over"));
        }
        ask::check_row(&longer).map_err(|why| failed(ReserveError::Invalid, why))?;
        self.check_windows(windows(&longer).saturating_sub(windows(row)))?;
        let claims = longer.claims();
        if !claims.is_empty() {
            self.ledger.amend(id, &claims).map_err(short_of)?;
        }
        Ok(self.noted(id, longer))
    }

    /// Gives the rate back from now on.
    ///
    /// # Errors
    /// [`Rejected::Failed`].
    pub(crate) fn release(&mut self, id: TicketId) -> Result<Change, Rejected> {
        let row = self.judge_release(id)?;
        Ok(self.change(id, Some(row)))
    }

    /// The row as it would be if its rate were given back.
    ///
    /// # Errors
    /// [`Rejected::Failed`].
    pub(crate) fn judge_release(&self, id: TicketId) -> Result<Row, Rejected> {
        let gone = || failed(ReserveError::NotFound, "there is no such reservation");
        let row = self.row(id).filter(|row| row.is_held()).ok_or_else(gone)?;
        if row.end() <= self.now() || row.released.is_some() {
            return Err(failed(ReserveError::Over, "its window is over"));
        }
        Ok(Row {
            released: Some(self.now()),
            ..row.clone()
        })
    }

    /// Servers believe no tickets of what is being given back: others may have its rate there.
    pub(crate) fn free(&mut self, id: TicketId, servers: &BTreeSet<ServerId>) {
        let row = self.rows.get(&id).filter(|row| row.state.is_unfinished());
        let Some(row) = row.cloned() else {
            return;
        };
        let freed = self.freed.entry(id).or_default();
        let before = freed.len();
        freed.extend(servers);
        if freed.len() > before {
            self.put(id, Some(row));
        }
    }

    /// Notes what was delivered in a window that is over.
    pub(crate) fn deliver(&mut self, id: TicketId, delivered: Delivered) -> Option<Change> {
        let row = self.row(id)?;
        let noted = Row {
            delivered,
            told: Vec::new(),
            ..row.clone()
        };
        Some(self.change(id, Some(noted)))
    }

    /// Notes what stores have said of a window of which others have said nothing yet: they forget
    /// it before those are there again.
    pub(crate) fn note_told(&mut self, id: TicketId, told: Vec<Told>) -> Option<Change> {
        let row = self.row(id).filter(|row| row.told != told)?;
        let noted = Row {
            told,
            ..row.clone()
        };
        Some(self.noted(id, noted))
    }

    /// The rows about which something has to be done by `now`.
    pub(crate) fn due(&self, now: Moment) -> impl Iterator<Item = TicketId> {
        let due = self.due.iter().take_while(move |(at, _)| *at <= now);
        due.map(|(_, id)| *id)
    }
}

/// How many windows of a row are planned.
fn windows(row: &Row) -> u64 {
    match row.state {
        RowState::Gone => 0,
        _ => row.count.into(),
    }
}

/// Whether stores can be asked for its space without that all others wait for long.
fn check_confirmations(ask: &Ask, width: &Width) -> Result<(), Rejected> {
    let (stores, windows) = (width.slices.len(), ask.count as usize);
    let all = stores.saturating_mul(windows);
    if ask.space_bytes > 0 && all > RESERVE_CONFIRMATIONS_MAX {
        let why = format!(
            "{stores} stores would be asked for the space of {windows} windows each, and \
             {RESERVE_CONFIRMATIONS_MAX} times is the most: ask for fewer windows at once"
        );
        return Err(failed(ReserveError::Limit, why));
    }
    Ok(())
}

/// When the time next asks for something: an account of what was delivered in a window that is
/// over, or that the row is forgotten.
fn due(row: &Row) -> Moment {
    match row.state {
        RowState::Held => {}
        RowState::Gone => return row.last_end().plus(GUARD_SECONDS),
        RowState::Pending | RowState::Leaving | RowState::LeavingUnused => {
            return Moment::FOREVER;
        }
    }
    match row.account_end() {
        Some(end) => end.plus(GUARD_SECONDS),
        None => forgotten(row),
    }
}

/// When a row is struck from the ledger.
pub(crate) fn forgotten(row: &Row) -> Moment {
    row.space_end().plus(RESERVE_KEPT_TIME.as_secs())
}

fn row(wish: &Wish, ask: &Ask, width: Width) -> Row {
    Row {
        state: match wish.terms.space_bytes {
            0 => RowState::Held,
            _ => RowState::Pending,
        },
        volume: wish.volume,
        holder: wish.holder,
        name: wish.name.clone(),
        asked: digest(wish),
        read_bytes_per_second: ask.read,
        write_bytes_per_second: ask.write,
        burst_millis: wish.terms.burst_millis,
        space_bytes: ask.space_bytes,
        window: ask.window,
        every_secs: ask.every_secs,
        count: ask.count,
        lifetime_secs: wish.terms.lifetime_secs,
        released: None,
        slices: width.slices,
        lines: width.lines,
        delivered: Delivered::default(),
        told: Vec::new(),
    }
}

fn short_of(refusal: Refusal<Resource>) -> Rejected {
    match refusal {
        Refusal::Short {
            resource,
            from,
            amount,
            room,
            ..
        } => Rejected::Short {
            short: Short::Of {
                resource,
                wanted: amount,
                room,
                from,
            },
            offers: Vec::new(),
        },
        Refusal::Past => failed(ReserveError::Over, "its window is over"),
        other => failed(ReserveError::Invalid, other.to_string()),
    }
}
