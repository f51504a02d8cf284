//! The ledger: who holds what, on all calendars of one owner.
//!
//! A [`Ledger`] owns calendars by resource and reservations by name, and keeps them in step: what
//! the calendars say is what the reservations hold, nothing else. Both names are the owner's: a
//! store has one resource and numbers, a manager has devices and lines and tickets.
//!
//! * A reservation is admitted with all its claims or not at all, and so is each amendment of it
//!   ([`Ledger::amend`]), of which only what is new has to fit (see [`net`]).
//! * When a reservation ends, it is listed ([`Ledger::ended_by`]) and stays on the calendars for
//!   its guards; after these it counts nowhere and can be forgotten ([`Ledger::forget`]). Until
//!   then it belongs to what the owner keeps, so that a ledger made anew ([`Ledger::restore`]) has
//!   the same calendars.
//! * Nothing is durable here. The owner asks ([`Ledger::judge`]) or admits, writes it down, and
//!   only then says yes; if the writing fails, it withdraws the reservation ([`Ledger::withdraw`]).

pub(crate) mod net;
mod offers;

use crate::{CAPACITY_MAX, Calendar, Claim, Interval, Moment, Refusal};
use base::limits::RESERVATION_CLAIMS_MAX;
use net::{Need, Net};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Calendars and reservations of one owner: resources are named by `R`, reservations by `I`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger<I, R> {
    now: Moment,
    calendars: BTreeMap<R, Calendar>,
    reservations: BTreeMap<I, Box<[Claim<R>]>>,
    /// All reservations by the end of their last claim.
    ends: BTreeSet<(Moment, I)>,
}

impl<I: Copy + Ord, R: Copy + Ord + Debug> Ledger<I, R> {
    /// Neither resources nor reservations.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        Self {
            now,
            calendars: BTreeMap::new(),
            reservations: BTreeMap::new(),
            ends: BTreeSet::new(),
        }
    }

    /// Begins to keep a calendar for `resource`.
    ///
    /// # Panics
    /// If there is one, or if `capacity` is above [`CAPACITY_MAX`].
    pub fn add_resource(&mut self, resource: R, capacity: u64, guard_seconds: u64) {
        let calendar = Calendar::new(self.now, capacity, guard_seconds);
        let known = self.calendars.insert(resource, calendar);
        assert!(known.is_none(), "{resource:?} has a calendar");
    }

    /// The calendar of a resource, for questions.
    #[must_use]
    pub fn calendar(&self, resource: R) -> Option<&Calendar> {
        self.calendars.get(&resource)
    }

    /// All calendars in the order of their resources.
    pub fn calendars(&self) -> impl Iterator<Item = (R, &Calendar)> {
        self.calendars
            .iter()
            .map(|(resource, calendar)| (*resource, calendar))
    }

    /// Changes how much there is of a resource; see [`Calendar::set_capacity`].
    ///
    /// # Errors
    /// [`Refusal::UnknownResource`].
    ///
    /// # Panics
    /// If `capacity` is above [`CAPACITY_MAX`].
    pub fn set_capacity(&mut self, resource: R, capacity: u64) -> Result<(), Refusal<R>> {
        let calendar = self.calendars.get_mut(&resource);
        let calendar = calendar.ok_or(Refusal::UnknownResource { resource })?;
        calendar.set_capacity(capacity);
        Ok(())
    }

    /// The present moment, as far as the ledger has been told.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Goes on to `now`; never back.
    pub fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        for calendar in self.calendars.values_mut() {
            calendar.advance(self.now);
        }
    }

    /// What a reservation holds.
    #[must_use]
    pub fn claims(&self, id: I) -> Option<&[Claim<R>]> {
        self.reservations.get(&id).map(Box::as_ref)
    }

    /// All reservations in the order of their names.
    pub fn reservations(&self) -> impl Iterator<Item = (I, &[Claim<R>])> {
        self.reservations
            .iter()
            .map(|(id, claims)| (*id, claims.as_ref()))
    }

    /// The reservations whose last claim ends by `moment`, those that end first before others.
    pub fn ended_by(&self, moment: Moment) -> impl Iterator<Item = (Moment, I)> {
        let all = self.ends.iter().copied();
        // What has no end has not ended, whatever is asked.
        all.take_while(move |(end, _)| *end <= moment && *end < Moment::FOREVER)
    }

    /// The first moment at which nothing of a reservation counts any more.
    #[must_use]
    pub fn counts_until(&self, id: I) -> Option<Moment> {
        let occupied = self.claims(id)?.iter().map(|claim| {
            let calendar = self.calendars.get(&claim.resource);
            calendar.map_or(claim.interval, |calendar| calendar.occupied(claim.interval))
        });
        occupied.map(Interval::end).max()
    }

    /// Whether `claims` would be admitted now.
    ///
    /// # Errors
    /// As [`Self::admit`], [`Refusal::Exists`] excepted.
    pub fn judge(&self, claims: &[Claim<R>]) -> Result<(), Refusal<R>> {
        self.admissible(&[], claims).map(drop)
    }

    /// Admits a reservation with all its claims. What of them is past needs no room.
    ///
    /// # Errors
    /// [`Refusal::Short`], [`Refusal::Past`] if a claim has ended already,
    /// [`Refusal::UnknownResource`], [`Refusal::Claims`], [`Refusal::Exists`].
    pub fn admit(&mut self, id: I, claims: &[Claim<R>]) -> Result<(), Refusal<R>> {
        if self.reservations.contains_key(&id) {
            return Err(Refusal::Exists);
        }
        let net = self.admissible(&[], claims)?;
        self.apply(&net);
        self.record(id, claims);
        Ok(())
    }

    /// Puts `claims` in the place of what a reservation holds. Only what is more than it holds, at
    /// some second, has to fit. What it has held up to now has to be among them, as it was: so its
    /// guards stay.
    ///
    /// # Errors
    /// [`Refusal::Short`], [`Refusal::Past`] if the reservation has ended or its past would change,
    /// [`Refusal::UnknownResource`], [`Refusal::Claims`], [`Refusal::Unknown`].
    pub fn amend(&mut self, id: I, claims: &[Claim<R>]) -> Result<(), Refusal<R>> {
        let old = self.reservations.get(&id).ok_or(Refusal::Unknown)?;
        if end_of(old) <= self.now {
            return Err(Refusal::Past);
        }
        self.check_form(claims)?;
        let past = Net::new(old, claims, |claim| claim.interval.before(self.now));
        if past.steps().next().is_some() {
            return Err(Refusal::Past);
        }
        let net = self.net(old, claims);
        self.judge_needs(net.needs())?;
        self.apply(&net);
        self.strike(id);
        self.record(id, claims);
        Ok(())
    }

    /// Moves the end of a reservation's last claims, all of them if they end together, to `end`. An
    /// `end` that is not later changes nothing.
    ///
    /// # Errors
    /// As [`Self::amend`].
    pub fn extend(&mut self, id: I, end: Moment) -> Result<(), Refusal<R>> {
        let mut claims = self.claims(id).ok_or(Refusal::Unknown)?.to_vec();
        let old_end = end_of(&claims);
        for claim in claims
            .iter_mut()
            .filter(|claim| claim.interval.end() == old_end)
        {
            let start = claim.interval.start();
            claim.interval = Interval::new(start, end.max(old_end)).expect("it became no shorter");
        }
        self.amend(id, &claims)
    }

    /// Gives back what a reservation holds from `from` on, or from now on, if that is later. Claims
    /// that had begun keep their guards. What is left of it ends at `from`; a reservation of which
    /// nothing had begun is gone. Returns what is left.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub fn release(&mut self, id: I, from: Moment) -> Result<&[Claim<R>], Refusal<R>> {
        let from = from.max(self.now);
        let old = self.reservations.get(&id).ok_or(Refusal::Unknown)?;
        let left = before(old, from);
        let net = self.net(old, &left);
        debug_assert!(net.needs().next().is_none(), "nothing grows by a release");
        self.apply(&net);
        self.strike(id);
        if left.is_empty() {
            return Ok(&[]);
        }
        self.record(id, &left);
        Ok(self.claims(id).unwrap_or_default())
    }

    /// Takes a reservation away as if it had never been admitted, guards included: for one that
    /// nobody has heard of yet.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub fn withdraw(&mut self, id: I) -> Result<(), Refusal<R>> {
        let old = self.reservations.get(&id).ok_or(Refusal::Unknown)?;
        let net = self.net(old, &[]);
        self.apply(&net);
        self.strike(id);
        Ok(())
    }

    /// Forgets a reservation that does not count any more.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::Counts`].
    pub fn forget(&mut self, id: I) -> Result<(), Refusal<R>> {
        let until = self.counts_until(id).ok_or(Refusal::Unknown)?;
        if until > self.now || until == Moment::FOREVER {
            return Err(Refusal::Counts { until });
        }
        self.strike(id);
        Ok(())
    }

    /// Enters a reservation that was admitted in an earlier life: it is not judged, because
    /// capacity may have been lost since.
    ///
    /// # Errors
    /// [`Refusal::Short`] if the records cannot be true, because amounts add up to more than any
    /// capacity; [`Refusal::UnknownResource`], [`Refusal::Claims`], [`Refusal::Exists`].
    pub fn restore(&mut self, id: I, claims: &[Claim<R>]) -> Result<(), Refusal<R>> {
        if self.reservations.contains_key(&id) {
            return Err(Refusal::Exists);
        }
        self.check_form(claims)?;
        let net = self.net(&[], claims);
        self.judge_needs_within(net.needs(), |_| CAPACITY_MAX)?;
        self.apply(&net);
        self.record(id, claims);
        Ok(())
    }

    fn admissible(&self, old: &[Claim<R>], new: &[Claim<R>]) -> Result<Net<R>, Refusal<R>> {
        self.check_form(new)?;
        if new.iter().any(|claim| claim.interval.end() <= self.now) {
            return Err(Refusal::Past);
        }
        let net = self.net(old, new);
        self.judge_needs(net.needs())?;
        Ok(net)
    }

    fn check_form(&self, claims: &[Claim<R>]) -> Result<(), Refusal<R>> {
        if !(1..=RESERVATION_CLAIMS_MAX).contains(&claims.len()) {
            return Err(Refusal::Claims {
                count: claims.len(),
            });
        }
        let mut resources = claims.iter().map(|claim| claim.resource);
        match resources.find(|resource| !self.calendars.contains_key(resource)) {
            Some(resource) => Err(Refusal::UnknownResource { resource }),
            None => Ok(()),
        }
    }

    /// The steps from `old` to `new`, from now on.
    fn net(&self, old: &[Claim<R>], new: &[Claim<R>]) -> Net<R> {
        Net::new(old, new, |claim| {
            let occupied = self.calendars[&claim.resource].occupied(claim.interval);
            occupied.from_on(self.now)
        })
    }

    fn judge_needs(&self, needs: impl Iterator<Item = Need<R>>) -> Result<(), Refusal<R>> {
        self.judge_needs_within(needs, Calendar::capacity)
    }

    /// Judges all needs and returns the refusal where the smallest part of one is left.
    fn judge_needs_within(
        &self,
        needs: impl Iterator<Item = Need<R>>,
        capacity: impl Fn(&Calendar) -> u64,
    ) -> Result<(), Refusal<R>> {
        let mut tightest: Option<(u64, u64, Refusal<R>)> = None;
        for need in needs {
            let calendar = &self.calendars[&need.resource];
            let amount = need.amount();
            let Err(shortage) = calendar.judge(need.interval, amount, capacity(calendar)) else {
                continue;
            };
            let room = shortage.room;
            let is_tighter = tightest.as_ref().is_none_or(|(least, of, _)| {
                u128::from(room) * u128::from(*of) < u128::from(*least) * u128::from(amount)
            });
            if is_tighter {
                let refusal = Refusal::Short {
                    resource: need.resource,
                    interval: need.interval,
                    from: shortage.from,
                    amount,
                    room,
                };
                tightest = Some((room, amount, refusal));
            }
        }
        tightest.map_or(Ok(()), |(_, _, refusal)| Err(refusal))
    }

    /// Makes the steps of a net that was judged.
    fn apply(&mut self, net: &Net<R>) {
        for step in net.steps() {
            let calendar = self.calendars.get_mut(&step.resource);
            let calendar = calendar.expect("the net was made of known resources");
            let delta = i64::try_from(step.delta).expect("what fits is below any capacity");
            calendar.change(step.at, delta);
        }
    }

    fn record(&mut self, id: I, claims: &[Claim<R>]) {
        self.ends.insert((end_of(claims), id));
        self.reservations.insert(id, claims.into());
    }

    fn strike(&mut self, id: I) {
        if let Some(claims) = self.reservations.remove(&id) {
            self.ends.remove(&(end_of(&claims), id));
        }
    }
}

/// The end of the last claim.
fn end_of<R>(claims: &[Claim<R>]) -> Moment {
    let ends = claims.iter().map(|claim| claim.interval.end());
    ends.max().unwrap_or_default()
}

/// What of `claims` lies before `moment`.
fn before<R: Copy>(claims: &[Claim<R>], moment: Moment) -> Vec<Claim<R>> {
    let parts = claims.iter().filter_map(|claim| {
        let interval = claim.interval.before(moment)?;
        Some(Claim { interval, ..*claim })
    });
    parts.collect()
}
