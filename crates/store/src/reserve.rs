//! Space over time: reservations, lifetimes, and what becomes of space whose time is over.
//!
//! All space has an end (paper, 3.3). A *holder* has it: a reservation, which was admitted with so
//! many AUs for its interval and uses no more (S1), or a *pool*, which has the objects without a
//! reservation whose lifetimes end at about the same time, and grows as they do. The calendar
//! counts both; what it has promised is there, so a write within a reservation never runs out of
//! space (S2).
//!
//! Records need space, too: an admission counts AUs for them besides (see [`Core::claim`]), from
//! which the pages of records grow ([`crate::promises`]).
//!
//! When a holder's time is over, its objects are unreadable at once by the clock, whether or not
//! anything was written (S5). Then one record marks it as over, its objects are removed a few at a
//! time, and their AUs are free after the next superblock (S4). If somebody needs the space
//! earlier, the same happens then.

use crate::core::Core;
use crate::error::Offer;
use crate::key::Key;
use crate::layout::GROUP_BYTES;
use crate::planted::{Mistake, planted};
use crate::promises::{Claim, Turn, Turned};
use crate::record::{Holder, Onode, decode};
use crate::superblock::Lifetimes;
use crate::transaction::Staged;
use crate::{Damage, StoreError};
use base::{ObjectId, Time};
use reservation::{CAPACITY_MAX, Interval, Moment};

/// What marks the number of a pool.
const POOL: u64 = 1 << 63;
/// Parts of a lifetime to which pools' ends are rounded up: space is kept for 1/16 longer at most,
/// and there are few pools.
const POOL_PARTS: u64 = 16;
/// Record space for one object: twelve times the records of a small one, because pages of records
/// are half full at worst, and the newest, those that a checkpoint writes and those that are kept
/// free for removals (see [`Core::ensure_record_room`]) are there together.
const OBJECT_RECORD_BYTES: u64 = 1280;
/// Record space for 64 KiB of data: ten times the checksums of its pieces.
const GROUP_RECORD_BYTES: u64 = 1280;
/// Record space for an AU: ten times who has it, where, and with how much room.
const AU_RECORD_BYTES: u64 = 640;

/// What a claim and another one together may be larger than before, in AUs, when one pays for the
/// other: what their records come to is rounded up for each.
const PAYING_SLACK_AUS: u64 = 4;

/// Reservations that are read together.
const RESERVATIONS_AT_ONCE: usize = 1024;
/// Records besides one for each allocation unit, when it is said what could be reserved: a manager
/// asks for so many at least.
const RECORDS_BESIDES: u64 = 64;

/// Under which terms an object's space is had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Terms {
    /// Without a reservation, for the store's default lifetime.
    #[default]
    Default,
    /// Without a reservation, up to this moment.
    Until(Moment),
    /// From this reservation, as long as it lasts; if it is extended, the object lives longer, too.
    Reserved(u64),
    /// As `Reserved`, and already before the reservation begins: for what stays empty until then,
    /// because its space is promised from the beginning on only.
    Ahead(u64),
    /// From this reservation, up to this moment, which is not after the reservation's end.
    Within(u64, Moment),
}

/// A reservation that gives of its space to objects that are in nobody's: what they take is theirs
/// from then on for as long as they live, and the reservation has so much less. If it lasts as long
/// as they do, that always fits (S2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payer {
    /// Which.
    pub reservation: u64,
    /// Whether nothing may be taken elsewhere once it has no more.
    pub is_limit: bool,
}

/// How an object is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Who pays for what it takes, if the object is in nobody's space.
    pub payer: Option<Payer>,
    /// Of which generation the layout is by which the object was found; none: it does not matter.
    pub generation: Option<u64>,
}

impl From<Option<Payer>> for How {
    fn from(payer: Option<Payer>) -> Self {
        Self {
            payer,
            generation: None,
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// From when to when.
    pub interval: Interval,
    /// Allocation units. An object of more than a quarter of one has its own; smaller ones share.
    pub aus: u64,
    /// Records: one for each object, eight for each attribute.
    pub records: u64,
}

/// What is reserved of the space, in allocation units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// How many reservations there are, those that begin later included.
    pub count: u64,
    /// What those of now have.
    pub aus: u64,
    /// How much of that is in use.
    pub aus_used: u64,
    /// What another one could have from now on for an hour.
    pub aus_for_an_hour: u64,
    /// What another one could have from now on without end.
    pub aus_for_ever: u64,
}

/// What a reservation has and uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationInfo {
    /// Its number.
    pub reservation: u64,
    /// What it has.
    pub request: Request,
    /// Allocation units in use.
    pub aus_used: u64,
    /// Records in use.
    pub records_used: u64,
}

impl ReservationInfo {
    fn of(reservation: u64, holder: &Holder) -> Self {
        Self {
            reservation,
            request: Request {
                interval: holder.interval,
                aus: holder.aus,
                records: holder.records,
            },
            aus_used: holder.aus_used,
            records_used: holder.records_used,
        }
    }
}

/// The second in which `time` lies.
pub(crate) fn moment(time: Time) -> Moment {
    Moment::at_or_before(time)
}

/// Whether a holder is a pool.
pub(crate) fn is_pool(holder: u64) -> bool {
    holder & POOL != 0
}

/// The pool for what is over at `end`, and its own end.
pub(crate) fn pool(now: Moment, end: Moment) -> (u64, Moment) {
    let Some(seconds) = end.since(now) else {
        return (u64::MAX, Moment::FOREVER);
    };
    // A power of two, so that the same ends come again.
    let part = (seconds / POOL_PARTS).max(1).next_power_of_two();
    match end.as_secs().checked_next_multiple_of(part) {
        Some(end) if end < POOL - 1 => (POOL | end, Moment::from_secs(end)),
        _ => (u64::MAX, Moment::FOREVER),
    }
}

/// When a pool is over, as its number says.
pub(crate) fn pool_end(pool: u64) -> Moment {
    match pool {
        u64::MAX => Moment::FOREVER,
        pool => Moment::from_secs(pool & !POOL),
    }
}

/// Fails if the object's time is over, or that of whoever has its space.
pub(crate) fn check_alive(
    object: ObjectId,
    onode: &Onode,
    holder: Option<Holder>,
    now: Time,
) -> Result<(), StoreError> {
    let now = moment(now);
    let is_held = holder.is_some_and(|holder| !holder.is_over && now < holder.interval.end());
    if (is_held && now < onode.end) || planted(Mistake::NothingIsOver) {
        Ok(())
    } else {
        Err(StoreError::Expired(object))
    }
}

impl Core {
    /// Admits a reservation; durable with the next commit.
    ///
    /// # Errors
    /// [`StoreError::Refused`] with the next interval that would be admitted, those of
    /// [`Self::transact`].
    pub fn reserve(&mut self, now: Time, request: Request) -> Result<u64, StoreError> {
        self.advance(now);
        let (interval, wanted) = self.take(request)?;
        let id = self.counters.number;
        let holder = Holder {
            interval,
            aus: request.aus,
            records: request.records,
            aus_used: 0,
            records_used: 0,
            is_over: false,
        };
        let written = self.transact(now, |t| t.put_reservation(id, &holder));
        if let Err(error) = written {
            self.promises.give_back(interval, wanted, interval.start());
            return Err(error);
        }
        Ok(id)
    }

    /// Whether all of these would be admitted, one after another; nothing is taken.
    ///
    /// # Errors
    /// Those of [`Self::reserve`], for the first that would be refused.
    pub fn would_reserve(&mut self, now: Time, requests: &[Request]) -> Result<(), StoreError> {
        self.advance(now);
        self.check_writable()?;
        let mut taken = Vec::with_capacity(requests.len());
        let tried = requests.iter().try_for_each(|request| {
            taken.push(self.take(*request)?);
            Ok(())
        });
        for (interval, claim) in taken {
            self.promises.give_back(interval, claim, interval.start());
        }
        tried
    }

    /// Takes what a reservation comes to, for as much of its interval as is left.
    fn take(&mut self, request: Request) -> Result<(Interval, Claim), StoreError> {
        let wanted = self.reservation_claim(request.aus, request.records);
        let occupied = request.interval.from_on(moment(self.counters.now));
        let occupied = occupied.filter(|_| wanted.all <= CAPACITY_MAX);
        let taken = occupied.ok_or(0).and_then(|interval| {
            let taken = self.promises.take(interval, wanted);
            taken.map(|()| interval).map_err(|short| short.room)
        });
        match taken {
            Ok(interval) => Ok((interval, wanted)),
            Err(room) => Err(StoreError::Refused {
                wanted: wanted.all,
                room,
                offer: Offer(self.promises.first_fit(wanted, request.interval)),
            }),
        }
    }

    /// Lengthens a reservation; durable with the next commit.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], [`StoreError::Refused`], those of [`Self::transact`].
    pub fn extend(&mut self, now: Time, reservation: u64, end: Moment) -> Result<(), StoreError> {
        self.advance(now);
        let mut holder = self.reservation(reservation)?;
        let claim = self.reservation_claim(holder.aus, holder.records);
        let before = holder.interval;
        if end <= before.end() {
            return Ok(());
        }
        if let Err(short) = self.promises.extend(before, claim, end) {
            return Err(StoreError::Refused {
                wanted: claim.all,
                room: short.room,
                offer: Offer(None),
            });
        }
        let held = StoreError::NotHeld(reservation);
        holder.interval = Interval::new(before.start(), end).map_err(|_| held)?;
        let written = self.transact(now, |t| t.put_reservation(reservation, &holder));
        if written.is_err() {
            self.promises
                .give_back(holder.interval, claim, before.end());
        }
        written
    }

    /// Ends a reservation now; what it has made is over.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], those of [`Self::transact`].
    pub fn release(&mut self, now: Time, reservation: u64) -> Result<(), StoreError> {
        self.advance(now);
        let holder = self.reservation(reservation)?;
        self.transact(now, |t| t.bury(reservation))?;
        let claim = self.reservation_claim(holder.aus, holder.records);
        let now = moment(self.counters.now);
        self.promises.give_back(holder.interval, claim, now);
        Ok(())
    }

    /// The first `count_max` reservations from number `from` on that are not over; fewer only if
    /// there are no more.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], the device's.
    pub fn reservations(
        &self,
        from: u64,
        count_max: usize,
    ) -> Result<Vec<ReservationInfo>, StoreError> {
        let (mut found, mut from) = (Vec::new(), from);
        while found.len() < count_max {
            let left = count_max - found.len();
            let records = self.range(&Key::Holder(from), &Key::Holder(POOL), left)?;
            let is_all = records.len() < left;
            for (key, value) in records {
                let (Key::Holder(reservation), holder) = (key, decode::<Holder>(&value)?) else {
                    continue;
                };
                from = reservation + 1;
                if !holder.is_over && moment(self.counters.now) < holder.interval.end() {
                    found.push(ReservationInfo::of(reservation, &holder));
                }
            }
            if is_all {
                break;
            }
        }
        Ok(found)
    }

    /// What reservations have of the space at `now`, and what another one could have.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], the device's.
    pub fn reserved(&self, now: Time) -> Result<Reserved, StoreError> {
        let (now, mut reserved, mut from) = (moment(now), Reserved::default(), 0);
        loop {
            let some = self.reservations(from, RESERVATIONS_AT_ONCE)?;
            for one in &some {
                let interval = one.request.interval;
                reserved.count += u64::from(now < interval.end());
                if interval.contains(now) {
                    // A record may say anything.
                    reserved.aus = reserved.aus.saturating_add(one.request.aus);
                    reserved.aus_used = reserved.aus_used.saturating_add(one.aus_used);
                }
            }
            match some.last() {
                Some(last) => from = last.reservation + 1,
                None => break,
            }
        }
        let could = |end| Interval::new(now, end).map_or(0, |interval| self.reservable(interval));
        reserved.aus_for_an_hour = could(now.plus(3600));
        reserved.aus_for_ever = could(Moment::FOREVER);
        Ok(reserved)
    }

    /// Allocation units that whoever has no reservation can use at `now`, for what has no end:
    /// they are free, and kept neither for reservations nor for records.
    #[must_use]
    pub fn open_aus(&self, now: Time) -> u64 {
        let ever = Interval::new(moment(now), Moment::FOREVER);
        let promised = ever.map_or(0, |interval| self.reservable(interval));
        promised.min(self.usage().free)
    }

    /// The most allocation units that a reservation for `interval` could have, with a record for
    /// each.
    pub(crate) fn reservable(&self, interval: Interval) -> u64 {
        let Some(interval) = interval.from_on(moment(self.counters.now)) else {
            return 0;
        };
        let fits = |aus: u64| {
            let claim = self.reservation_claim(aus, aus.saturating_add(RECORDS_BESIDES));
            self.promises.has_room(interval, claim)
        };
        let (mut most, mut step) = (0, u64::from(self.layout.au_count).next_power_of_two());
        // Larger ones claim more, so the last one that fits is found by halves.
        while step > 0 {
            if fits(most + step) {
                most += step;
            }
            step /= 2;
        }
        most
    }

    /// Gives back the space of everything that is over by `now` or deleted.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], those of [`Self::transact`].
    pub fn reclaim(&mut self, now: Time) -> Result<(), StoreError> {
        self.advance(now);
        while self.reclaim_some()? {}
        Ok(())
    }

    /// One step of that; false if there was nothing to do.
    pub(crate) fn reclaim_some(&mut self) -> Result<bool, StoreError> {
        let after = Key::End(moment(self.counters.now).as_secs().saturating_add(1), 0);
        let ended = self.first_of_list(&Key::End(0, 0), &after, 1)?;
        if let Some((Key::End(second, holder), _)) = ended.first() {
            let known = self.record::<Holder>(&Key::Holder(*holder))?;
            if known.is_none_or(|known| known.interval.end().as_secs() != *second) {
                return Err(Damage::Record.into());
            }
            self.try_transact(&mut |t| t.bury(*holder))?;
            return Ok(true);
        }
        if self.first_dead()?.is_none() && self.first_over()?.is_none() {
            return Ok(false);
        }
        self.try_transact(&mut |t| t.reclaim())
    }

    /// The first holder that is over and not removed yet.
    pub(crate) fn first_over(&mut self) -> Result<Option<u64>, StoreError> {
        let over = self.first_of_list(&Key::Over(0), &Key::Over(u64::MAX), 1)?;
        Ok(over.first().and_then(|(key, _)| match key {
            Key::Over(holder) => Some(*holder),
            _ => None,
        }))
    }

    /// Gives back the AUs of all deleted objects; false if there are none.
    pub(crate) fn reclaim_dead(&mut self) -> Result<bool, StoreError> {
        let mut found = false;
        while self.first_dead()?.is_some() {
            found = true;
            self.try_transact(&mut |t| t.reclaim())?;
        }
        Ok(found)
    }

    /// Makes free what nobody needs any more; false if that gained nothing.
    pub(crate) fn make_free(&mut self) -> Result<bool, StoreError> {
        let before = self.room();
        while self.reclaim_some()? {}
        while !self.room().has_more_than(before) {
            if !self.may_have_limbo() {
                return Ok(false);
            }
            self.checkpoint()?;
        }
        Ok(true)
    }

    /// Goes on to `now`; never back.
    pub(crate) fn advance(&mut self, now: Time) {
        self.counters.now = self.counters.now.max(now);
        self.promises.advance(moment(self.counters.now));
    }

    /// Takes what a transaction's pools use more; what they use less, and what reservations have
    /// given away, is given back when that is finished.
    pub(crate) fn turn_pools(&mut self, staged: &Staged) -> Result<Turned, StoreError> {
        let now = moment(self.counters.now);
        let mut turns = Vec::new();
        let mut slack_aus = 0;
        for id in &staged.turned {
            let key = Key::Holder(*id);
            let before = self.record::<Holder>(&key)?;
            let after = staged.layer.records.get(&key).and_then(Option::as_ref);
            let after = after.map(|value| decode::<Holder>(value)).transpose()?;
            // One that is over has nothing in the calendar any more.
            let live = |holder: &Holder| holder.interval.from_on(now).filter(|_| !holder.is_over);
            let Some(interval) = after.as_ref().or(before.as_ref()).and_then(live) else {
                continue;
            };
            let claim = |holder: Option<Holder>| {
                holder.map_or(Claim::default(), |holder| self.claim_of(*id, &holder))
            };
            if !is_pool(*id) {
                slack_aus = PAYING_SLACK_AUS;
            }
            turns.push(Turn {
                interval,
                before: claim(before),
                after: claim(after),
            });
        }
        let turned = self.promises.turn(&turns, slack_aus);
        turned.map_err(|(wanted, short)| StoreError::NoSpace {
            wanted,
            free: short.room,
        })
    }

    /// Lets the object live up to `end`; durable with the next commit.
    ///
    /// # Errors
    /// Those of [`crate::Transaction::renew`] and of [`Self::transact`].
    pub fn renew(&mut self, now: Time, object: ObjectId, end: Moment) -> Result<(), StoreError> {
        self.transact(now, |t| t.renew(object, end))
    }

    /// Sets what lifetimes objects get from now on, and how often they can be renewed. Durable when
    /// it returns, in both superblocks.
    ///
    /// # Errors
    /// Those of [`Self::checkpoint`].
    pub fn set_lifetimes(&mut self, lifetimes: Lifetimes) -> Result<(), StoreError> {
        self.put_lifetimes(lifetimes)?;
        self.checkpoint()?;
        self.checkpoint()
    }

    /// Lets the next superblocks have these lifetimes. No checkpoint is under way.
    pub(crate) fn put_lifetimes(&mut self, lifetimes: Lifetimes) -> Result<(), StoreError> {
        self.check_writable()?;
        self.superblock_mut().lifetimes = lifetimes;
        Ok(())
    }

    /// Makes the calendar anew from the records.
    pub(crate) fn load_calendar(&mut self) -> Result<(), StoreError> {
        self.promises.advance(moment(self.counters.now));
        // What was admitted stays admitted, also if the records have grown since.
        self.promises.set_unlimited();
        let holders = self.range(
            &Key::Holder(0),
            &Key::Member(0, ObjectId([0; 16])),
            usize::MAX,
        )?;
        for (key, value) in holders {
            let (Key::Holder(id), holder) = (key, decode::<Holder>(&value)?) else {
                continue;
            };
            let claim = self.claim_of(id, &holder);
            let interval = holder.interval.from_on(moment(self.counters.now));
            if let Some(interval) = interval.filter(|_| !holder.is_over) {
                let taken = self.promises.take(interval, claim);
                taken.map_err(|_| crate::Damage::Record)?;
            }
        }
        self.update_capacity();
        Ok(())
    }

    /// What the records have taken cannot be promised for data.
    pub(crate) fn update_capacity(&mut self) {
        let taken = self.pages.taken().len() as u64;
        let au_count = u64::from(self.layout.au_count);
        self.promises.set_capacity(au_count, taken);
    }

    /// What so many AUs and records come to.
    fn claim(&self, aus: u64, records: u64) -> Claim {
        let au_bytes = self.layout.au_bytes;
        let per_au = au_bytes / GROUP_BYTES * GROUP_RECORD_BYTES + AU_RECORD_BYTES;
        let bytes = records
            .saturating_mul(OBJECT_RECORD_BYTES)
            .saturating_add(aus.saturating_mul(per_au));
        Claim {
            data: aus,
            all: aus.saturating_add(bytes.div_ceil(au_bytes)),
        }
    }

    /// What a holder has of the calendar.
    fn claim_of(&self, id: u64, holder: &Holder) -> Claim {
        match is_pool(id) {
            true => self.claim(holder.aus_used, holder.records_used),
            false => self.reservation_claim(holder.aus, holder.records),
        }
    }

    /// The same of a reservation: it is a record itself.
    fn reservation_claim(&self, aus: u64, records: u64) -> Claim {
        self.claim(aus, records.saturating_add(1))
    }

    fn reservation(&self, id: u64) -> Result<Holder, StoreError> {
        let holder: Option<Holder> = self.record(&Key::Holder(id))?;
        let now = moment(self.counters.now);
        holder
            .filter(|holder| !is_pool(id) && !holder.is_over && now < holder.interval.end())
            .ok_or(StoreError::NotHeld(id))
    }
}
