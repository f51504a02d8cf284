//! Which questions make sense, whatever is free; and which rows.

use super::book::{Rejected, failed};
use super::record::{GUARD_SECONDS, Row};
use base::limits::{
    RESERVATION_CLAIMS_MAX, RESERVE_COUNT_MAX, RESERVE_NAME_BYTES_MAX, RESERVE_SLICES_MAX,
    RESERVE_SPACE_COUNT_MAX, SCHEDULER_BURST_TIME_MAX, TICKET_SLICES_MAX,
};
use base::{StoreId, TicketId, VolumeId};
use reservation::Moment;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::message::{ReserveError, ReserveLimits, ReserveTerms, ReserveWindow};

/// The highest rate that is asked for, in bytes a second: 1 TB/s. A million reservations of it are
/// less than a calendar can add up.
const RATE_MAX: u64 = 1 << 40;
/// The largest space that is asked for, in bytes: 1 EiB.
const SPACE_BYTES_MAX: u64 = 1 << 60;
/// The longest window, lifetime and distance between windows: ten years.
const SECONDS_MAX: u64 = 10 * 366 * 86_400;
/// No window ends later: the year 9000. Sums of times stay far from where numbers end.
const END_SECONDS_MAX: u64 = 222_000_000_000;
/// A millionth is the unit of shares.
const WHOLE_PPM: u32 = reservation::scheduler::WHOLE_PPM;

/// A question, with what is known about who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Wish {
    pub(crate) volume: VolumeId,
    pub(crate) holder: u32,
    pub(crate) name: String,
    pub(crate) terms: ReserveTerms,
    /// The stores in which the files of the volume can lie; none if any can. No part of the
    /// question: asked again, it is the same, whatever has joined.
    #[serde(skip)]
    pub(crate) among: Option<Arc<BTreeSet<StoreId>>>,
}

/// A text that is an identity.
pub(crate) fn identity_in(text: &str) -> Option<TicketId> {
    crate::data::from_hex(text).map(TicketId)
}

/// Whether a question makes sense.
///
/// # Errors
/// [`ReserveError::Invalid`], [`ReserveError::Unreservable`], [`ReserveError::Over`].
pub(crate) fn check(wish: &Wish, now: Moment) -> Result<(), Rejected> {
    let terms = &wish.terms;
    let (length, end) = length_and_end(terms.window)?;
    let stores: BTreeSet<_> = terms.stores.iter().collect();
    let rules = [
        (
            is_name(&wish.name),
            "a name has 1 to 63 bytes, not spaces alone, no slash, no control characters and none \
             that cannot be seen or turn the text round, and is no identity",
        ),
        (
            terms.read_bytes_per_second > 0
                || terms.write_bytes_per_second > 0
                || terms.space_bytes > 0,
            "nothing is asked for: neither a rate nor space",
        ),
        (
            terms.read_bytes_per_second <= RATE_MAX && terms.write_bytes_per_second <= RATE_MAX,
            "a rate is at most 1 TiB/s",
        ),
        (
            terms.space_bytes <= SPACE_BYTES_MAX,
            "space is at most 1 EiB",
        ),
        (
            u128::from(terms.burst_millis) <= SCHEDULER_BURST_TIME_MAX.as_millis(),
            "an idle share is saved for at most a second",
        ),
        (length <= SECONDS_MAX, "a window lasts at most ten years"),
        (end <= END_SECONDS_MAX, "a window ends before the year 9000"),
        (
            terms.lifetime_secs <= SECONDS_MAX,
            "a lifetime is at most ten years",
        ),
        (stores.len() == terms.stores.len(), "a store is named twice"),
        (
            terms.stores.len() <= RESERVE_SLICES_MAX,
            "at most 64 stores carry a reservation",
        ),
    ];
    if let Some((_, why)) = rules.iter().find(|(is_kept, _)| !is_kept) {
        return Err(failed(ReserveError::Invalid, *why));
    }
    check_count(terms, length)?;
    let is_outside = |store: &&StoreId| {
        let among = wish.among.as_ref();
        among.is_some_and(|among| !among.contains(store))
    };
    if let Some(store) = terms.stores.iter().find(is_outside) {
        let why = format!(
            "no files of the volume lie in store {store}: it keeps no objects that stay, or its \
             allocation units do not divide the volume's unit"
        );
        return Err(failed(ReserveError::Unreservable, why));
    }
    if end <= now.as_secs() {
        return Err(failed(ReserveError::Over, "the window is over"));
    }
    Ok(())
}

fn check_count(terms: &ReserveTerms, length: u64) -> Result<(), Rejected> {
    let apart = length.saturating_add(GUARD_SECONDS);
    let count_max = match terms.space_bytes {
        0 => RESERVE_COUNT_MAX,
        _ => RESERVE_SPACE_COUNT_MAX,
    };
    if !(1..=count_max).contains(&terms.count) {
        let why = format!("1 to {count_max} windows are reserved at once");
        return Err(failed(ReserveError::Invalid, why));
    }
    if terms.count > 1 && !(apart..=SECONDS_MAX).contains(&terms.every_secs) {
        let why = format!(
            "a window begins at least {GUARD_SECONDS} s after the end of the one before, and at \
             most ten years after its start"
        );
        return Err(failed(ReserveError::Invalid, why));
    }
    if terms.count == 1 && terms.every_secs != 0 {
        return Err(failed(
            ReserveError::Invalid,
            "one window does not come again",
        ));
    }
    Ok(())
}

/// How long one window is, and the latest end of the first.
fn length_and_end(window: ReserveWindow) -> Result<(u64, u64), Rejected> {
    let parts = match window {
        ReserveWindow::At {
            start_secs,
            end_secs,
        } => end_secs
            .checked_sub(start_secs)
            .map(|length| (length, end_secs)),
        ReserveWindow::Within {
            earliest_secs,
            latest_secs,
            duration_secs,
        } => latest_secs
            .checked_sub(earliest_secs)
            .filter(|room| *room >= duration_secs)
            .map(|_| (duration_secs, latest_secs)),
    };
    let parts = parts.filter(|(length, _)| *length > 0);
    parts.ok_or_else(|| failed(ReserveError::Invalid, "a window ends after its start"))
}

fn is_name(name: &str) -> bool {
    (1..=RESERVE_NAME_BYTES_MAX).contains(&name.len())
        && !name.trim().is_empty()
        && !name.chars().any(|c| base::is_unseen(c) || c == '/')
        && identity_in(name).is_none()
}

/// Whether limits can be kept.
///
/// # Errors
/// [`ReserveError::Invalid`].
pub(crate) fn check_limits(limits: &ReserveLimits) -> Result<(), Rejected> {
    let headroom = limits.unreserved_ppm.checked_add(limits.background_ppm);
    if headroom.is_none_or(|headroom| headroom > WHOLE_PPM) {
        return Err(failed(
            ReserveError::Invalid,
            "more than all of a device is kept back",
        ));
    }
    if limits.network_bytes_per_second > RATE_MAX {
        return Err(failed(
            ReserveError::Invalid,
            "a line carries at most 1 TiB/s",
        ));
    }
    Ok(())
}

/// Whether a row of the ledger can have been written by a manager.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_row(row: &Row) -> Result<(), &'static str> {
    let length = row.window.duration_seconds().unwrap_or(u64::MAX);
    let ordered = row.slices.windows(2).all(|pair| {
        let place = |at: usize| (pair[at].server, pair[at].store);
        place(0) < place(1)
    });
    let per_server = row.slices.chunk_by(|a, b| a.server == b.server);
    let claims = (row.slices.len() + row.lines.len()).saturating_mul(row.count as usize);
    let rules = [
        (length <= SECONDS_MAX, "a window of more than ten years"),
        (
            row.window.end().as_secs() <= END_SECONDS_MAX,
            "a window that ends too late",
        ),
        (
            (1..=RESERVE_COUNT_MAX).contains(&row.count),
            "no number of windows",
        ),
        (
            row.count == 1
                || (length.saturating_add(GUARD_SECONDS)..=SECONDS_MAX).contains(&row.every_secs),
            "windows that overlap",
        ),
        (
            row.lifetime_secs <= SECONDS_MAX,
            "a lifetime of more than ten years",
        ),
        (
            (1..=RESERVE_SLICES_MAX).contains(&row.slices.len()),
            "no number of devices",
        ),
        (ordered, "devices out of order"),
        (
            per_server
                .into_iter()
                .all(|own| own.len() <= TICKET_SLICES_MAX),
            "more devices of a server than a ticket has",
        ),
        (
            row.slices.iter().all(|slice| slice.share_ppm <= WHOLE_PPM),
            "more than the whole of a device",
        ),
        (
            row.lines.iter().all(|(_, rate)| *rate <= 2 * RATE_MAX),
            "a rate that no line has",
        ),
        (
            row.lines.len() <= row.slices.len(),
            "more lines than servers",
        ),
        (
            row.told.is_sorted_by(|a, b| a.slice < b.slice)
                && row
                    .told
                    .last()
                    .is_none_or(|last| usize::from(last.slice) < row.slices.len()),
            "accounts of devices that it does not have",
        ),
        (
            claims <= RESERVATION_CLAIMS_MAX,
            "more windows and devices than are kept at once",
        ),
    ];
    match rules.iter().find(|(is_kept, _)| !is_kept) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}
