//! What was delivered, second by second, over all devices of a reservation.

use super::record::{Delivered, Row};
use base::TicketId;
use base::limits::TICKET_RECORD_PAGE_MAX;
use reservation::scheduler::{Cause, TicketSecond};
use std::collections::BTreeMap;
use wire::message::{ReportSecond, ReservationSummary, ReserveReport, Shortfall};

/// Adds the seconds of one device.
pub(super) fn add(seconds: &mut BTreeMap<u64, ReportSecond>, record: &[TicketSecond]) {
    for own in record {
        let sum = seconds.entry(own.second).or_insert(ReportSecond {
            second: own.second,
            bytes: 0,
            promised_micros: 0,
            served_micros: 0,
            shortfall: None,
        });
        sum.bytes = sum.bytes.saturating_add(own.bytes);
        sum.promised_micros = sum
            .promised_micros
            .saturating_add(micros(own.promised_nanos));
        sum.served_micros = sum.served_micros.saturating_add(micros(own.served_nanos));
        sum.shortfall = worse(sum.shortfall, own.shortfall.map(shortfall));
    }
}

fn micros(nanos: u64) -> u32 {
    u32::try_from(nanos / 1000).unwrap_or(u32::MAX)
}

fn shortfall(cause: Cause) -> Shortfall {
    match cause {
        Cause::NoDemand => Shortfall::NoDemand,
        Cause::TooFewInFlight => Shortfall::TooFewInFlight,
        Cause::SlowDevice => Shortfall::SlowDevice,
        Cause::Degraded => Shortfall::Degraded,
        Cause::ServerAway => Shortfall::ServerAway,
    }
}

/// The device's fault before the client's.
fn worse(a: Option<Shortfall>, b: Option<Shortfall>) -> Option<Shortfall> {
    let rank = |shortfall: &Option<Shortfall>| match shortfall {
        None => 0,
        Some(Shortfall::NoDemand) => 1,
        Some(Shortfall::TooFewInFlight) => 2,
        Some(Shortfall::SlowDevice) => 3,
        Some(Shortfall::Degraded) => 4,
        Some(Shortfall::ServerAway) => 5,
    };
    if rank(&b) > rank(&a) { b } else { a }
}

/// The report of a reservation.
pub(super) fn report(
    summary: ReservationSummary,
    delivered: Delivered,
    mut record: Vec<ReportSecond>,
) -> ReserveReport {
    let surplus = record.len().saturating_sub(TICKET_RECORD_PAGE_MAX);
    record.drain(..surplus);
    ReserveReport {
        seconds: delivered.seconds,
        kept: delivered.kept,
        bytes: delivered.bytes,
        space_kept: !delivered.space_lost,
        record,
        summary,
    }
}

/// A reservation as it is told, in the state that it has at `now`.
pub(super) fn summary(id: TicketId, row: &Row, now: reservation::Moment) -> ReservationSummary {
    use wire::message::{ReserveSlice, ReserveState};
    let state = if row.released.is_some() {
        ReserveState::Released
    } else if now < row.window.start() {
        ReserveState::Planned
    } else if now < row.end() {
        ReserveState::Active
    } else {
        ReserveState::Ended
    };
    let slices = row.slices.iter().map(|slice| ReserveSlice {
        server: slice.server,
        store: slice.store,
        share_ppm: slice.share_ppm,
        stripe_unit_bytes: slice.stripe_unit_bytes,
        aus: slice.aus,
    });
    ReservationSummary {
        id,
        name: row.name.clone(),
        volume: row.volume,
        holder: row.holder,
        state,
        read_bytes_per_second: row.read_bytes_per_second,
        write_bytes_per_second: row.write_bytes_per_second,
        burst_millis: row.burst_millis,
        space_bytes: row.space_bytes,
        start_secs: row.window.start().as_secs(),
        end_secs: row.window.end().as_secs(),
        every_secs: row.every_secs,
        count: row.count,
        lifetime_secs: row.lifetime_secs,
        released_secs: row.released.map(reservation::Moment::as_secs),
        slices: slices.collect(),
    }
}
