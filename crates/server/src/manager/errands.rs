//! What a manager has done at storage servers: a thread that may wait for them.
//!
//! The desk never waits for a store. It sends an errand, which carries everything that is needed to
//! go on when it comes back, the answer's place included.

use super::desk::Reply;
use super::plan::{Instead, Lack, PlanDevice, Short};
use super::record::{Delivered, GUARD_SECONDS, Row, RowSlice, Told, ticket_id};
use super::servers::{Servers, StoreAt, Trouble};
use super::{ask::Wish, report};
use crate::storage::{SpaceRequest, SpaceTrial};
use base::limits::TICKET_CLOCK_ERROR_MAX;
use base::{ServerId, TicketId};
use reservation::scheduler::TicketSecond;
use reservation::{Interval, Moment};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use tokio::sync::mpsc::Sender;
use wire::message::ReportSecond;

/// Records for so many allocation units: an object for each, and some for small files. Each costs
/// a part of a page.
const RECORDS_MIN: u64 = 64;
/// Seconds after the account of a window is due within which missing space for files was lost:
/// later it may have been given back already, while the account of another server was missing.
const JUDGED_SECS: u64 = 10;

/// What is to be done.
pub(crate) enum Task {
    /// Look at all devices.
    Devices,
    /// Ask whether there would be space, and take none.
    Try {
        wish: Wish,
        /// Stores that have refused already.
        without: Vec<Lack>,
    },
    /// Find out which counter-offers stores have the space for.
    Offers {
        short: Short,
        /// Each with the row that it would be.
        offers: Vec<(Instead, Row)>,
    },
    /// Ask for space.
    Confirm {
        wish: Wish,
        /// As in `Try`.
        without: Vec<Lack>,
    },
    /// Lengthen the space with the window.
    Extend { end: Moment },
    /// Take tickets back, so that the rate can be given to others.
    Revoke,
    /// Find out whether something was written in its space.
    CheckUnused { dry_run: bool },
    /// Take tickets and space back.
    Leave {
        /// Of what nobody was told there are none, nor of what is over.
        has_tickets: bool,
        /// What was written goes, too; otherwise nothing goes if something was.
        discard: bool,
    },
    /// Account for a window that is over.
    Collect,
    /// Everything for a report.
    Report { from_second: u64 },
}

/// An errand: about which reservation, and who waits for it.
pub(crate) struct Errand {
    pub(crate) task: Task,
    pub(crate) id: TicketId,
    pub(crate) row: Option<Row>,
    pub(crate) now: Moment,
    /// Of which reign of the manager.
    pub(crate) reign: u64,
    pub(crate) reply: Option<Reply>,
    pub(crate) progress: Progress,
}

/// What is done of an errand that is sent until all servers have done their part: it is not asked
/// for again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Servers that believe its tickets no more.
    pub(crate) revoked: BTreeSet<ServerId>,
    /// Stores that have given back what they have of it.
    pub(crate) released: BTreeSet<StoreAt>,
    /// What stores have said of the window that is accounted for.
    pub(crate) told: Vec<Told>,
}

/// What it came to.
pub(crate) enum Outcome {
    Done,
    Devices(Vec<PlanDevice>),
    Delivered(Delivered),
    Report(Delivered, Vec<ReportSecond>),
    Used(u64),
    /// Offers that can be kept.
    Offers(Vec<Instead>),
}

/// An errand that is over.
pub(crate) struct Returned {
    pub(crate) errand: Errand,
    pub(crate) outcome: Result<Outcome, Trouble>,
}

/// Does errands until nobody sends any more.
pub(crate) fn run(servers: &Servers, errands: &Receiver<Errand>, back: &Sender<Returned>) {
    for mut errand in errands {
        let mut progress = std::mem::take(&mut errand.progress);
        let outcome = go(servers, &errand, &mut progress);
        errand.progress = progress;
        if back.blocking_send(Returned { errand, outcome }).is_err() {
            return;
        }
    }
}

fn go(servers: &Servers, errand: &Errand, progress: &mut Progress) -> Result<Outcome, Trouble> {
    let Some(row) = &errand.row else {
        return Ok(Outcome::Devices(servers.devices()));
    };
    let id = errand.id;
    match &errand.task {
        Task::Devices => Ok(Outcome::Devices(servers.devices())),
        Task::Try { .. } => try_space(servers, row).map(|()| Outcome::Done),
        Task::Offers { offers, .. } => {
            let kept = offers.iter();
            let kept = kept.filter(|(_, row)| try_space(servers, row).is_ok());
            Ok(Outcome::Offers(
                kept.map(|(offer, _)| offer.clone()).collect(),
            ))
        }
        Task::Confirm { .. } => confirm(servers, id, row).map(|()| Outcome::Done),
        Task::Extend { end } => {
            let end = end.plus(row.lifetime_secs);
            for slice in row.slices.iter().filter(|slice| slice.aus > 0) {
                servers.extend(slice.at(), id, end)?;
            }
            Ok(Outcome::Done)
        }
        Task::Revoke => {
            revoke(servers, id, row, errand.now, progress)?;
            if row.is_for_files() {
                give_back_unused(servers, id, row);
            }
            Ok(Outcome::Done)
        }
        Task::CheckUnused { .. } => used(servers, id, row).map(Outcome::Used),
        Task::Leave {
            has_tickets,
            discard,
        } => {
            let revoked = match has_tickets {
                true => revoke(servers, id, row, errand.now, progress),
                false => Ok(()),
            };
            leave(servers, (id, row), revoked, *discard, progress)
        }
        Task::Collect => settle(servers, id, row, errand.now, progress).map(Outcome::Delivered),
        Task::Report { from_second } => {
            let present = row.present(errand.now);
            let is_collected = present < row.delivered.windows;
            let window = (present, *from_second);
            let (told, record, asked) = collect(servers, (id, row), window, errand.now);
            if is_collected {
                return Ok(Outcome::Report(row.delivered, record));
            }
            asked?;
            Ok(Outcome::Report(row.delivered.with(present, &told), record))
        }
    }
}

/// Each window with its ticket, and the stores in which it has space.
fn spaces(id: TicketId, row: &Row) -> impl Iterator<Item = (StoreAt, SpaceRequest)> {
    let windows = (0..).zip(row.planned());
    windows.flat_map(move |(number, window)| {
        let slices = row.slices.iter().filter(|slice| slice.aus > 0);
        slices.map(move |slice| {
            let request = SpaceRequest {
                ticket: ticket_id(id, number),
                interval: row.space_interval(window),
                aus: slice.aus,
                records: records(slice.aus),
            };
            (slice.at(), request)
        })
    })
}

fn records(aus: u64) -> u64 {
    aus.max(RECORDS_MIN)
}

/// Asks each store whether it would have the space of all windows.
fn try_space(servers: &Servers, row: &Row) -> Result<(), Trouble> {
    let intervals = row.planned().map(|window| row.space_interval(window));
    let intervals: Vec<_> = intervals.collect();
    let mut slices = row.slices.iter().filter(|slice| slice.aus > 0);
    slices.try_for_each(|slice| {
        let trial = SpaceTrial {
            intervals: intervals.clone(),
            aus: slice.aus,
            records: records(slice.aus),
        };
        servers.try_space(slice.at(), &trial)
    })
}

/// Asks for all of the space, or for none: what was asked for in vain is given back.
fn confirm(servers: &Servers, id: TicketId, row: &Row) -> Result<(), Trouble> {
    let mut asked = Vec::new();
    let confirmed = spaces(id, row).try_for_each(|(at, request)| {
        let confirmed = servers.confirm(at, &request);
        // One that was not asked holds nothing, and could not be asked for it back either.
        if !matches!(confirmed, Err(Trouble::Away { .. })) {
            asked.push((at, request.ticket));
        }
        confirmed
    });
    confirmed.map_err(|trouble| {
        let mut back = asked.into_iter();
        match back.try_for_each(|(at, ticket)| servers.release(at, ticket)) {
            Ok(()) => trouble,
            Err(_) => Trouble::Left(Box::new(trouble)),
        }
    })
}

/// Does something at each of these, though it cannot be done at some: these are not tried again,
/// and keep nobody else waiting. Those where all of it was done are `done`, and are not asked at
/// all if they were before. Says what went wrong first.
fn at_each<W: Copy + Ord, T>(
    all: impl IntoIterator<Item = (W, T)>,
    done: &mut BTreeSet<W>,
    mut act: impl FnMut(W, T) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let (mut failed, mut asked) = (BTreeSet::new(), BTreeSet::new());
    let mut first = Ok(());
    for (at, what) in all {
        if failed.contains(&at) || done.contains(&at) {
            continue;
        }
        asked.insert(at);
        let acted = act(at, what);
        if acted.is_err() {
            failed.insert(at);
        }
        first = first.and(acted);
    }
    done.extend(asked.difference(&failed));
    first
}

/// Gives back what there is, at every store that can do it.
fn give_back(
    servers: &Servers,
    (id, row): (TicketId, &Row),
    progress: &mut Progress,
) -> Result<(), Trouble> {
    at_each(spaces(id, row), &mut progress.released, |at, request| {
        servers.release(at, request.ticket)
    })
}

/// Gives space back after its tickets; none of it if something was written that is to stay.
fn leave(
    servers: &Servers,
    (id, row): (TicketId, &Row),
    revoked: Result<(), Trouble>,
    discard: bool,
    progress: &mut Progress,
) -> Result<Outcome, Trouble> {
    if discard {
        // A server that cannot forget a ticket keeps nobody else's space, nor its own.
        let given = give_back(servers, (id, row), progress);
        return revoked.and(given).map(|()| Outcome::Done);
    }
    // Whoever has a ticket that is believed can still write.
    revoked?;
    match used(servers, id, row)? {
        0 => give_back(servers, (id, row), progress).map(|()| Outcome::Done),
        used => Ok(Outcome::Used(used)),
    }
}

/// Accounts for a window that is over. What of its space is nobody's any more goes whatever becomes
/// of the account: a server that is away would keep that of all others. What the others say is
/// kept, and in the end it is the account.
fn settle(
    servers: &Servers,
    id: TicketId,
    row: &Row,
    now: Moment,
    progress: &mut Progress,
) -> Result<Delivered, Trouble> {
    let number = row.delivered.windows;
    let (told, _, asked) = collect(servers, (id, row), (number, u64::MAX), now);
    // An extension that came to nothing may have made the last one longer at some stores.
    let is_over = number + 1 >= row.count && now >= row.space_end();
    let slices = row.slices.iter().filter(|slice| slice.aus > 0);
    let slices = slices.filter(|_| row.is_for_files() || is_over);
    let slices = slices.map(|slice| (slice.at(), ()));
    let ticket = ticket_id(id, number);
    let released = at_each(slices, &mut progress.released, |at, ()| {
        servers.release(at, ticket)
    });
    let delivered = row.delivered.with(number, &told);
    let missing = row.slices.len() - told.len();
    progress.told = told;
    let settled = asked.and(released);
    if let Err(trouble) = &settled
        && row.account_until().is_some_and(|until| now >= until)
    {
        // What such a store holds is given back with the rest of the reservation.
        tracing::warn!(
            reservation = %id, window = number, stores = missing, ?trouble,
            "a window is accounted for without stores that did not answer in time"
        );
        return Ok(delivered);
    }
    settled.map(|()| delivered)
}

/// Gives back space for files in which no objects of programs are: those stay until the window was
/// to end, and so does what cannot be given back now.
fn give_back_unused(servers: &Servers, id: TicketId, row: &Row) {
    let released = at_each(
        spaces(id, row),
        &mut BTreeSet::new(),
        |at, request| match servers.used(at, request.ticket)? {
            Some((_, used)) if used > 0 => Ok(()),
            _ => servers.release(at, request.ticket),
        },
    );
    if let Err(trouble) = released {
        tracing::debug!(reservation = %id, ?trouble, "some of its space is given back later");
    }
}

/// What is in use of its space, as far as stores say it: if that is something, it is no matter what
/// others do not say.
fn used(servers: &Servers, id: TicketId, row: &Row) -> Result<u64, Trouble> {
    let mut sum = 0_u64;
    let asked = at_each(spaces(id, row), &mut BTreeSet::new(), |at, request| {
        let used = servers.used(at, request.ticket)?;
        sum = sum.saturating_add(used.map_or(0, |(_, used)| used));
        Ok(())
    });
    match sum {
        0 => asked.map(|()| 0),
        used => Ok(used),
    }
}

/// Tickets are only ever issued for the window of the time and the next one, so only those that
/// are not over have to be taken back; and of one more, should the window end meanwhile.
fn revoke(
    servers: &Servers,
    id: TicketId,
    row: &Row,
    now: Moment,
    progress: &mut Progress,
) -> Result<(), Trouble> {
    let guard = TICKET_CLOCK_ERROR_MAX.as_secs();
    let issued = (0..).zip(row.planned()).take(row.present(now) as usize + 2);
    let live = issued.filter(|(_, window)| window.end().plus(guard) > now);
    let tickets: Vec<_> = live
        .map(|(number, window)| {
            let until = window.end().plus(guard + 1).as_secs();
            (ticket_id(id, number), until)
        })
        .collect();
    if tickets.is_empty() {
        return Ok(());
    }
    let servers_of = row.servers().into_iter().map(|server| (server, ()));
    at_each(servers_of, &mut progress.revoked, |server, ()| {
        servers.revoke(server, &tickets)
    })
}

/// What stores have said of one window, its single seconds from one on, and what went wrong first:
/// those that fail keep nobody from asking the others.
fn collect(
    servers: &Servers,
    (id, row): (TicketId, &Row),
    (number, from_second): (u32, u64),
    now: Moment,
) -> (Vec<Told>, Vec<ReportSecond>, Result<(), Trouble>) {
    let mut told = match number == row.delivered.windows {
        true => row.told.clone(),
        false => Vec::new(),
    };
    let mut seconds = BTreeMap::new();
    let mut silent = BTreeSet::new();
    let mut first = Ok(());
    for (slice_number, slice) in (0_u16..).zip(&row.slices) {
        let is_told = told.iter().any(|told| told.slice == slice_number);
        if silent.contains(&slice.server) || is_told && from_second == u64::MAX {
            continue;
        }
        match of_slice(servers, (id, row), (number, from_second), slice, now) {
            Ok((said, record)) => {
                report::add(&mut seconds, &record);
                let slice = slice_number;
                told.extend((!is_told).then_some(Told { slice, ..said }));
            }
            // It has said it before.
            Err(_) if is_told => {}
            Err(trouble) => {
                if trouble.is_away() {
                    silent.insert(slice.server);
                }
                first = first.and(Err(trouble));
            }
        }
    }
    told.sort_by_key(|told| told.slice);
    (told, seconds.into_values().collect(), first)
}

/// What one store says of a window.
fn of_slice(
    servers: &Servers,
    (id, row): (TicketId, &Row),
    (number, from_second): (u32, u64),
    slice: &RowSlice,
    now: Moment,
) -> Result<(Told, Vec<TicketSecond>), Trouble> {
    let ticket = ticket_id(id, number);
    let said = servers.seconds(slice.at(), ticket, from_second)?;
    let (record, totals) = said.unwrap_or_default();
    let space = row
        .occurrence(number)
        .map(|window| row.space_interval(window));
    let is_due = slice.aus > 0 && space.is_some_and(|space: Interval| space.contains(now));
    let space_lost = is_due && {
        let held = servers.used(slice.at(), ticket);
        // What cannot be asked is not lost, nor what files have taken of it.
        let is_for_files = row.is_for_files();
        let is_less = |(aus, _)| aus < slice.aus && !is_for_files;
        let is_lost = held.is_ok_and(|held| held.is_none_or(is_less));
        // It may have been given back, with the rate or after the window.
        let is_late = |window: Interval| now > window.end().plus(GUARD_SECONDS + JUDGED_SECS);
        let is_given = row.released.is_some() || row.occurrence(number).is_some_and(is_late);
        is_lost && !(is_for_files && is_given)
    };
    let told = Told {
        slice: 0,
        seconds: totals.seconds,
        kept: totals.kept,
        bytes: totals.bytes,
        space_lost,
    };
    Ok((told, record))
}
