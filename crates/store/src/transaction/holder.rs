//! Whose space a transaction uses, and how much of it.
//!
//! A reservation has so many AUs and records and not one more (S1). A pool has what it uses; its
//! part of the calendar follows when the transaction ends. If a reservation pays for what a pool
//! uses more ([`Payer`]), it has so much less, and its part of the calendar becomes the pool's.

use super::{Purpose, Transaction};
use crate::key::Key;
use crate::planted::{Mistake, planted};
use crate::record::Holder;
use crate::reserve::{Payer, Terms, is_pool, moment, pool};
use crate::{Damage, StoreError};
use reservation::{Interval, Moment};

impl Transaction<'_> {
    /// Who holds the space of a new object, and when its time is over.
    pub(super) fn admit(&mut self, terms: Terms) -> Result<(u64, Moment), StoreError> {
        let now = moment(self.staged.counters.now);
        let lifetimes = self.core.superblock().lifetimes;
        let end = match terms {
            Terms::Reserved(holder) => {
                let found: Option<Holder> = self.record(&Key::Holder(holder))?;
                let held = found.filter(|found| found.interval.contains(now) && !found.is_over);
                held.ok_or(StoreError::NotHeld(holder))?;
                return Ok((holder, Moment::FOREVER));
            }
            Terms::Ahead(holder) => {
                let found: Option<Holder> = self.record(&Key::Holder(holder))?;
                let held = found.filter(|found| now < found.interval.end() && !found.is_over);
                held.ok_or(StoreError::NotHeld(holder))?;
                return Ok((holder, Moment::FOREVER));
            }
            Terms::Within(holder, end) => {
                let found: Option<Holder> = self.record(&Key::Holder(holder))?;
                let held = found.filter(|found| found.interval.contains(now) && !found.is_over);
                let last = held.ok_or(StoreError::NotHeld(holder))?.interval.end();
                let longest_seconds = last.since(now);
                if end <= now || end > last {
                    return Err(StoreError::Lifetime { longest_seconds });
                }
                return Ok((holder, end));
            }
            Terms::Until(end) => end,
            Terms::Default => match lifetimes.default_seconds {
                Some(seconds) => now.plus(seconds),
                None => Moment::FOREVER,
            },
        };
        let longest_seconds = lifetimes.longest_seconds;
        let allowed = longest_seconds.is_none_or(|seconds| end <= now.plus(seconds));
        let refused = StoreError::Lifetime { longest_seconds };
        let holder = pool(now, end);
        let interval = Interval::new(now, holder.1);
        let (true, Ok(interval)) = (allowed && end > now, interval) else {
            return Err(refused);
        };
        let key = Key::Holder(holder.0);
        if self.value(&key)?.is_none() {
            let new = Holder {
                interval,
                aus: 0,
                records: 0,
                aus_used: 0,
                records_used: 0,
                is_over: false,
            };
            self.put(key, &new);
            self.put(Key::End(interval.end().as_secs(), holder.0), &());
        }
        Ok((holder.0, end))
    }

    /// Counts AUs that a holder uses from now on, or does not any more.
    pub(super) fn use_aus(&mut self, id: u64, more: i64) -> Result<(), StoreError> {
        if more > 0 && is_pool(id) {
            self.draw(more.unsigned_abs(), "allocation units")?;
        }
        let mut holder = self.holder(id)?;
        let used = holder.aus_used.checked_add_signed(more);
        holder.aus_used = used.ok_or(Damage::Record)?;
        let is_limited = !is_pool(id) && !planted(Mistake::UseWithoutLimit);
        if more > 0 && is_limited && holder.aus_used > holder.aus {
            return Err(StoreError::Used {
                reservation: id,
                unit: "allocation units",
                reserved: holder.aus,
            });
        }
        self.put_holder(id, &holder);
        Ok(())
    }

    /// Counts records that a holder uses from now on, or does not any more.
    pub(super) fn use_records(&mut self, id: u64, more: i64) -> Result<(), StoreError> {
        if more > 0 && is_pool(id) {
            self.draw(more.unsigned_abs(), "records")?;
        }
        let mut holder = self.holder(id)?;
        let used = holder.records_used.checked_add_signed(more);
        holder.records_used = used.ok_or(Damage::Record)?;
        if more > 0 && !is_pool(id) && holder.records_used > holder.records {
            return Err(StoreError::Used {
                reservation: id,
                unit: "records",
                reserved: holder.records,
            });
        }
        self.put_holder(id, &holder);
        Ok(())
    }

    /// Lets whoever pays give so many away, if he has them.
    fn draw(&mut self, count: u64, unit: &'static str) -> Result<(), StoreError> {
        let Some(Payer {
            reservation,
            is_limit,
        }) = self.payer
        else {
            return Ok(());
        };
        let now = moment(self.staged.counters.now);
        let key = Key::Holder(reservation);
        let found: Option<Holder> = self.record(&key)?;
        let Some(mut holder) = found.filter(|it| it.interval.contains(now) && !it.is_over) else {
            return match is_limit {
                true => Err(StoreError::NotHeld(reservation)),
                false => Ok(()),
            };
        };
        let (has, used) = match unit {
            "records" => (&mut holder.records, holder.records_used),
            _ => (&mut holder.aus, holder.aus_used),
        };
        let reserved = *has;
        match reserved.checked_sub(count).filter(|left| *left >= used) {
            Some(left) => *has = left,
            None if is_limit => {
                return Err(StoreError::Used {
                    reservation,
                    unit,
                    reserved,
                });
            }
            None => return Ok(()),
        }
        self.staged.turned.insert(reservation);
        self.put(key, &holder);
        Ok(())
    }

    /// Marks a holder whose time is over: from here on nothing of it is readable.
    pub(crate) fn bury(&mut self, id: u64) -> Result<(), StoreError> {
        let mut holder = self.holder(id)?;
        holder.is_over = true;
        self.remove(Key::End(holder.interval.end().as_secs(), id));
        self.put(Key::Holder(id), &holder);
        self.put(Key::Over(id), &());
        Ok(())
    }

    /// Writes a new reservation, or one with another end.
    pub(crate) fn put_reservation(&mut self, id: u64, holder: &Holder) -> Result<(), StoreError> {
        self.serve(Purpose::Growth);
        let before: Option<Holder> = self.record(&Key::Holder(id))?;
        match before {
            Some(before) => self.remove(Key::End(before.interval.end().as_secs(), id)),
            None => self.staged.counters.number += 1,
        }
        self.put(Key::Holder(id), holder);
        self.put(Key::End(holder.interval.end().as_secs(), id), &());
        Ok(())
    }

    fn holder(&self, id: u64) -> Result<Holder, StoreError> {
        self.record(&Key::Holder(id))?.ok_or(Damage::Record.into())
    }

    fn put_holder(&mut self, id: u64, holder: &Holder) {
        if is_pool(id) {
            self.staged.turned.insert(id);
        }
        self.put(Key::Holder(id), holder);
    }
}
