//! The pace of one promised share, and the order in which shares are due.
//!
//! Each claimant (a ticket, or one of the two floors) has two tags on the promise clock:
//!
//! * `eligible`: until when its share is used up. Its next request is due once the clock is there,
//!   and then moves the tag on by cost / share. This is mClock's reservation tag: however much a
//!   claimant asks for, by this right it gets no more than its share.
//! * `deadline`: the same, but it never begins before the claimant's queue did. What a claimant
//!   saved while it was idle makes requests due at once, but not urgent: their deadlines follow at
//!   the pace of the share from now on. So the work that has to be done before any moment is at
//!   most the sum of the shares until then, whoever comes back from a pause with however much, and
//!   earliest deadline first keeps every deadline if the sum of the shares is at most one.
//!
//! An idle claimant saves at most its burst: when it comes back, `eligible` is put to no earlier
//! than the clock less the burst. What a claimant gets of the leftover moves no tag.
//!
//! Source: mClock (Gulati, Merchant, Varman, OSDI 2010) for tags; the two curves of H-FSC (Stoica,
//! Zhang, Ng, SIGCOMM 1997) for eligibility apart from deadlines.

use super::terms::{TicketKey, WHOLE_PPM};
use std::collections::BTreeSet;

/// Who has a promised share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claimant {
    /// First, so that a commit does not wait if deadlines are the same.
    Background,
    /// All requests that are served as leftover.
    Shared,
    /// One ticket.
    Ticket(TicketKey),
}

/// See the module's head. All times are nanoseconds of the promise clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    share_ppm: u32,
    burst_nanos: u64,
    eligible: u64,
    deadline: u64,
    listed: Option<Listing>,
}

/// When the next request of a claimant is due, and by when it should be at the device.
#[derive(Clone, Copy, Debug)]
struct Listing {
    eligible: u64,
    deadline: u64,
}

impl Pace {
    pub(super) fn new(share_ppm: u32, burst_nanos: u64) -> Self {
        Self {
            share_ppm,
            burst_nanos,
            eligible: 0,
            deadline: 0,
            listed: None,
        }
    }

    /// Another share or burst from now on; what is used up stays so. To be listed anew.
    pub(super) fn change(&mut self, share_ppm: u32, burst_nanos: u64) {
        self.share_ppm = share_ppm;
        self.burst_nanos = burst_nanos;
    }

    /// Something waits now, after nothing did.
    pub(super) fn wake(&mut self, clock: u64) {
        self.eligible = self.eligible.max(clock.saturating_sub(self.burst_nanos));
        self.deadline = self.deadline.max(clock);
    }

    /// Something of this cost went to the device by right of this share.
    pub(super) fn charge(&mut self, cost_nanos: u64) {
        let step = self.time_for(cost_nanos);
        self.eligible = self.eligible.saturating_add(step);
        self.deadline = self.deadline.saturating_add(step);
    }

    /// Whether something may go now.
    pub(super) fn is_eligible(&self, clock: u64) -> bool {
        self.eligible <= clock
    }

    /// How long the share takes for a cost; for ever if there is none.
    fn time_for(&self, cost_nanos: u64) -> u64 {
        let scaled = u128::from(cost_nanos) * u128::from(WHOLE_PPM);
        let time = scaled.checked_div(u128::from(self.share_ppm));
        time.map_or(u64::MAX, |time| u64::try_from(time).unwrap_or(u64::MAX))
    }
}

/// Claimants with something waiting: those whose time has come, by deadline, and the others by when
/// it comes.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// By when they are due, with the deadlines that they will have.
    waiting: BTreeSet<(u64, Claimant, u64)>,
    /// By deadline, with the time from which on they are due.
    due: BTreeSet<(u64, Claimant, u64)>,
}

impl Agenda {
    /// Lists a claimant whose next request has this cost, or takes it off if it has none or no
    /// share.
    pub(super) fn list(&mut self, claimant: Claimant, pace: &mut Pace, next_cost: Option<u64>) {
        if let Some(old) = pace.listed.take() {
            let was_listed = self.due.remove(&(old.deadline, claimant, old.eligible))
                || self.waiting.remove(&(old.eligible, claimant, old.deadline));
            assert!(was_listed, "{claimant:?} was listed");
        }
        let Some(cost) = next_cost.filter(|_| pace.share_ppm > 0) else {
            return;
        };
        let listing = Listing {
            eligible: pace.eligible,
            deadline: pace.deadline.saturating_add(pace.time_for(cost)),
        };
        self.waiting
            .insert((listing.eligible, claimant, listing.deadline));
        pace.listed = Some(listing);
    }

    /// The claimant whose deadline is the earliest of all that are due, with its deadline.
    pub(super) fn first_due(&mut self, clock: u64) -> Option<(Claimant, u64)> {
        while let Some(&(eligible, claimant, deadline)) = self.waiting.first()
            && eligible <= clock
        {
            self.waiting.pop_first();
            self.due.insert((deadline, claimant, eligible));
        }
        while let Some(&(deadline, claimant, eligible)) = self.due.first() {
            if eligible <= clock {
                return Some((claimant, deadline));
            }
            // The clock was held back meanwhile.
            self.due.pop_first();
            self.waiting.insert((eligible, claimant, deadline));
        }
        None
    }
}
