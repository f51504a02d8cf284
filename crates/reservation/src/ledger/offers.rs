//! Counter-offers: the nearest claims to those that were refused that would be admitted.

use super::net::{Need, Net};
use super::{Ledger, before};
use crate::{Claim, Moment, Offer, OfferKind};
use base::limits::RESERVATION_PROBES_MAX;
use std::fmt::Debug;

impl<I: Copy + Ord, R: Copy + Ord + Debug> Ledger<I, R> {
    /// What could be had instead of `claims`: later (but over by `latest_end`), smaller, shorter,
    /// in this order, as far as there is such an offer. Each is admissible as it is.
    #[must_use]
    pub fn counter_offers(&self, claims: &[Claim<R>], latest_end: Moment) -> Vec<Offer<R>> {
        let offer =
            |kind, claims: Option<Vec<Claim<R>>>| claims.map(|claims| Offer { kind, claims });
        let offers = [
            offer(OfferKind::Later, self.first_fit(claims, latest_end)),
            offer(OfferKind::Smaller, self.largest_fit(claims)),
            offer(OfferKind::Shorter, self.longest_fit(claims)),
        ];
        offers.into_iter().flatten().collect()
    }

    /// `claims` as soon as they fit: all moved by the same number of seconds, the smallest one,
    /// with all ends up to `latest_end`. Nothing begins before now.
    ///
    /// Also `None` if calendars have been asked [`RESERVATION_PROBES_MAX`] times, as may happen if
    /// many resources have gaps, but none in common.
    #[must_use]
    pub fn first_fit(&self, claims: &[Claim<R>], latest_end: Moment) -> Option<Vec<Claim<R>>> {
        self.check_form(claims).ok()?;
        let first = claims.iter().map(|claim| claim.interval.start()).min()?;
        let last = super::end_of(claims);
        let delay_max = match (last, latest_end) {
            (Moment::FOREVER, Moment::FOREVER) => u64::MAX,
            (Moment::FOREVER, _) => return None,
            // Who ends at all ends before the end of time.
            (last, latest) => {
                let latest = latest.as_secs().min(u64::MAX - 1);
                latest.checked_sub(last.as_secs())?
            }
        };
        let net = Net::new(&[], claims, |claim| {
            Some(self.calendars[&claim.resource].occupied(claim.interval))
        });
        let needs: Vec<_> = net.needs().collect();
        let mut delay = self.now.since(first).filter(|past| *past <= delay_max)?;
        let mut in_a_row = 0;
        for need in needs.iter().cycle().take(RESERVATION_PROBES_MAX) {
            let found = self.delay_for(need, delay, delay_max)?;
            in_a_row = if found == delay { in_a_row + 1 } else { 1 };
            delay = found;
            if in_a_row == needs.len() {
                break;
            }
        }
        if in_a_row < needs.len() {
            return None;
        }
        let moved = claims.iter().map(|claim| {
            let interval = claim.interval.later_by(delay)?;
            Some(Claim { interval, ..*claim })
        });
        moved.collect()
    }

    /// The smallest delay between `from` and `to` with which one need fits.
    fn delay_for(&self, need: &Need<R>, from: u64, to: u64) -> Option<u64> {
        let calendar = &self.calendars[&need.resource];
        let start = need.interval.start();
        let starts = (start.plus(from), start.plus(to));
        let length = need.interval.duration_seconds();
        calendar
            .first_run(starts, need.amount(), length)?
            .since(start)
    }

    /// `claims` with all amounts reduced in the same proportion, the smallest reduction with which
    /// they fit. `None` if one of them would come to nothing, or if together they ask for more than
    /// 64 bits can say.
    #[must_use]
    pub fn largest_fit(&self, claims: &[Claim<R>]) -> Option<Vec<Claim<R>>> {
        let needs = self.needs_from_now(claims)?;
        let (mut room, mut asked) = (1, 1);
        for need in needs {
            let calendar = &self.calendars[&need.resource];
            let free = u128::from(calendar.room_within(need.interval));
            let amount = u128::from(u64::try_from(need.amount).ok()?);
            // Amounts are below 2^64 and rooms below 2^63, so neither product overflows.
            if free < amount && free * asked < room * amount {
                (room, asked) = (free, amount);
            }
        }
        let reduced = claims.iter().map(|claim| {
            let amount = u128::from(claim.amount) * room / asked;
            let amount = u64::try_from(amount).expect("a part is no more than the whole");
            let is_something = amount > 0 || claim.amount == 0;
            is_something.then_some(Claim { amount, ..*claim })
        });
        reduced.collect()
    }

    /// `claims` up to the moment at which they first do not fit, so that their guards fit as well.
    /// For a single claim there is no longer interval with this start.
    #[must_use]
    pub fn longest_fit(&self, claims: &[Claim<R>]) -> Option<Vec<Claim<R>>> {
        let ends = self.needs_from_now(claims)?.into_iter().filter_map(|need| {
            let calendar = &self.calendars[&need.resource];
            let short = calendar.first_short(need.interval.start(), need.amount())?;
            let is_within = need.interval.contains(short);
            is_within.then(|| short.minus(calendar.guard_seconds()))
        });
        let kept = before(claims, ends.min().unwrap_or(Moment::FOREVER));
        let lasts = |claim: &Claim<R>| claim.interval.end() > self.now;
        (!kept.is_empty() && kept.iter().all(lasts)).then_some(kept)
    }

    /// What `claims` need from now on; `None` if they could not be admitted whatever is free.
    fn needs_from_now(&self, claims: &[Claim<R>]) -> Option<Vec<Need<R>>> {
        self.check_form(claims).ok()?;
        let is_past = |claim: &Claim<R>| claim.interval.end() <= self.now;
        if claims.iter().any(is_past) {
            return None;
        }
        Some(self.net(&[], claims).needs().collect())
    }
}
