//! What is done again, because a server has not done its part: when, and what need not be asked for
//! any more.
//!
//! Each reservation waits twice as long as the time before, so that a server that is away for long
//! costs little, and is tried soon when the look at the devices finds one of its servers there
//! again. Those that wait are tried in the order of their times, a few at once: errands of people
//! who wait for an answer are never behind more than these.

use super::super::errands::{Errand, Progress, Task};
use super::super::plan::PlanDevice;
use super::super::record::{GUARD_SECONDS, Row, RowState};
use super::Desk;
use base::{ServerId, TicketId};
use reservation::Moment;
use std::collections::{BTreeSet, HashMap};

/// After how long something is done again for the first time.
pub(super) const PAUSE_SECS: u64 = 5;
/// After how long at most.
pub(super) const PAUSE_SECS_MAX: u64 = 300;
/// How many errands are out at once that were out before.
pub(super) const OUT_MAX: usize = 8;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Again {
    rows: HashMap<TicketId, Attempt>,
    waiting: BTreeSet<(Moment, TicketId)>,
    /// Those that are out again.
    out: BTreeSet<TicketId>,
}

#[derive(Debug, Default)]
struct Attempt {
    /// When it is done again; none while it is out.
    at: Option<Moment>,
    pause_secs: u64,
    progress: Progress,
}

impl Again {
    /// Whether something about it is out, or is done again later.
    pub(super) fn knows(&self, id: TicketId) -> bool {
        self.rows.contains_key(&id)
    }

    /// It is out for the first time.
    pub(super) fn begin(&mut self, id: TicketId) {
        self.forget(id);
        self.rows.insert(id, Attempt::default());
    }

    /// Nothing of it is to be done again.
    pub(super) fn forget(&mut self, id: TicketId) {
        self.out.remove(&id);
        if let Some(Attempt { at: Some(at), .. }) = self.rows.remove(&id) {
            self.waiting.remove(&(at, id));
        }
    }

    /// It is done again after a pause, but not later than at a time.
    pub(super) fn put_off(
        &mut self,
        id: TicketId,
        (now, latest): (Moment, Moment),
        progress: Progress,
    ) {
        let before = self.rows.get(&id).map_or(0, |attempt| attempt.pause_secs);
        self.forget(id);
        let pause_secs = (2 * before).clamp(PAUSE_SECS, PAUSE_SECS_MAX);
        let at = now.plus(pause_secs).min(latest.max(now.plus(1)));
        self.waiting.insert((at, id));
        let attempt = Attempt {
            at: Some(at),
            pause_secs,
            progress,
        };
        self.rows.insert(id, attempt);
    }

    /// Those that are done again now, the one that has waited longest first. They are out.
    pub(super) fn take(&mut self, now: Moment, room: usize) -> Vec<(TicketId, Progress)> {
        let room = room.min(OUT_MAX.saturating_sub(self.out.len()));
        let due = self.waiting.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<_> = due.take(room).copied().collect();
        let taken = due.into_iter().filter_map(|(at, id)| {
            self.waiting.remove(&(at, id));
            self.out.insert(id);
            let attempt = self.rows.get_mut(&id)?;
            attempt.at = None;
            Some((id, std::mem::take(&mut attempt.progress)))
        });
        taken.collect()
    }

    /// Those that wait and for which it is worthwhile now are done again at once.
    fn hurry(&mut self, now: Moment, is_it: impl Fn(TicketId) -> bool) {
        let ids = self.waiting.iter().map(|(_, id)| *id);
        let ids: Vec<_> = ids.filter(|id| is_it(*id)).collect();
        for id in ids {
            let Some(attempt) = self.rows.get_mut(&id) else {
                continue;
            };
            if let Some(at) = attempt.at.replace(now) {
                self.waiting.remove(&(at, id));
            }
            attempt.pause_secs = 0;
            self.waiting.insert((now, id));
        }
    }
}

impl Desk {
    /// Something about a row is done again.
    pub(super) fn put_off(&mut self, id: TicketId, progress: Progress) {
        let latest = match self.book.row(id) {
            Some(row) if row.is_held() => row.account_until(),
            _ => None,
        };
        let times = (self.book.now(), latest.unwrap_or(Moment::FOREVER));
        self.again.put_off(id, times, progress);
    }

    /// An errand that was not sent, or what it came to, is not written down.
    pub(super) fn set_aside(&mut self, errand: &Errand) {
        match errand.task {
            // If it leaves no more, the tick sees that.
            Task::Leave { .. } | Task::Confirm { .. } | Task::Collect
                if self.again.knows(errand.id) =>
            {
                self.put_off(errand.id, errand.progress.clone());
            }
            Task::Leave { .. } | Task::Confirm { .. } => drop(self.stuck.insert(errand.id)),
            _ => {}
        }
    }

    /// Sends again what has waited for long enough.
    pub(super) fn try_again(&mut self, room: usize) {
        let now = self.book.now();
        for (id, progress) in self.again.take(now, room) {
            let row = self.book.row(id).cloned();
            let is_due = |row: &Row| {
                let end = row.account_end();
                row.is_held() && end.is_some_and(|end| end.plus(GUARD_SECONDS) <= now)
            };
            let task = match &row {
                Some(row) if row.state.is_unfinished() => leaving(row),
                Some(row) if is_due(row) => Task::Collect,
                _ => {
                    self.again.forget(id);
                    continue;
                }
            };
            self.errand(id, row, task, None);
            if let Some(errand) = self.after.last_mut() {
                errand.progress = progress;
            }
        }
    }

    /// Takes over how the devices are: what waits for a server that is there again is done again.
    pub(super) fn looked(&mut self, devices: Vec<PlanDevice>) {
        let well = devices.iter().filter(|device| device.is_well);
        let well: BTreeSet<ServerId> = well.map(|device| device.server).collect();
        let come: BTreeSet<_> = well.difference(&self.well).copied().collect();
        if !come.is_empty() {
            let book = &self.book;
            let is_there = |row: &Row| row.slices.iter().any(|one| come.contains(&one.server));
            self.again
                .hurry(book.now(), |id| book.row(id).is_some_and(is_there));
        }
        self.well = well;
        self.book.set_devices(devices);
    }
}

/// What is still to be done about a row that is neither held nor gone.
pub(super) fn leaving(row: &Row) -> Task {
    Task::Leave {
        has_tickets: row.state.is_leaving(),
        discard: row.state != RowState::LeavingUnused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> TicketId {
        TicketId([number; 16])
    }

    fn put_off(again: &mut Again, number: u8, now: u64) {
        let times = (Moment::from_secs(now), Moment::FOREVER);
        again.put_off(id(number), times, Progress::default());
    }

    fn taken(again: &mut Again, now: u64) -> Vec<TicketId> {
        let taken = again.take(Moment::from_secs(now), usize::MAX);
        taken.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut again = Again::default();
        again.begin(id(1));
        let mut now = 1000;
        for pause in [5, 10, 20, 40, 80, 160, 300, 300] {
            put_off(&mut again, 1, now);
            assert_eq!(taken(&mut again, now + pause - 1), []);
            now += pause;
            assert_eq!(taken(&mut again, now), [id(1)], "after {pause}");
            assert_eq!(taken(&mut again, now + 1000), [], "it is out");
        }
        // Not later than when its account is given up.
        let times = (Moment::from_secs(now), Moment::from_secs(now + 7));
        again.put_off(id(1), times, Progress::default());
        assert_eq!(taken(&mut again, now + 7), [id(1)]);
        again.forget(id(1));
        put_off(&mut again, 1, now);
        assert_eq!(taken(&mut again, now + PAUSE_SECS), [id(1)]);
    }

    #[test]
    fn a_few_are_out_at_once_and_who_waits_longest_is_next() {
        let mut again = Again::default();
        for number in (1..=20).rev() {
            put_off(&mut again, number, 100 - u64::from(number));
        }
        let first: Vec<_> = (13..=20).rev().map(id).collect();
        assert_eq!(taken(&mut again, 1000), first);
        assert_eq!(taken(&mut again, 1000), []);
        put_off(&mut again, 20, 1000);
        again.forget(id(19));
        assert_eq!(taken(&mut again, 2000), [id(12), id(11)]);
    }

    #[test]
    fn who_waits_for_a_server_that_is_there_again_is_next() {
        let mut again = Again::default();
        (1..=3).for_each(|number| put_off(&mut again, number, 100));
        again.hurry(Moment::from_secs(101), |one| one == id(2));
        assert_eq!(taken(&mut again, 101), [id(2)]);
        put_off(&mut again, 2, 101);
        assert_eq!(taken(&mut again, 106), [id(1), id(3), id(2)]);
    }
}
