//! Reservations, refusals and offers, for people and for programs.

use super::Place;
use crate::errors::{Code, Failure, Result};
use crate::output;
use base::{ByteSize, Rate, VolumeId};
use serde_json::{Value, json};
use wire::message::{
    ReservationSummary, ReserveOffer, ReserveOfferKind, ReserveShort, ReserveState, Scarce,
    ServerTicket,
};

/// What a trial without a name is called.
pub(super) const TRIAL: &str = "when";
/// What a command ends with that was refused with an offer.
const EXIT_REFUSED: u8 = 3;

/// A reservation with its tickets.
pub(super) struct Reserved {
    pub(super) summary: ReservationSummary,
    pub(super) occurrence: u32,
    pub(super) tickets: Vec<ServerTicket>,
}

impl Reserved {
    /// A reservation in `docs/reference/json.md`.
    pub(super) fn json(&self) -> Value {
        let mut value = summary_json(&self.summary);
        value["occurrence"] = json!(self.occurrence);
        let tickets = self.tickets.iter().map(|ticket| {
            json!({
                "server": ticket.server.to_string(),
                "ticket": hex(&ticket.ticket),
            })
        });
        value["tickets"] = tickets.collect();
        value
    }

    /// A few lines.
    pub(super) fn text(&self, place: &Place) -> String {
        let one = &self.summary;
        let is_trial = one.state == ReserveState::Possible;
        let head = match is_trial {
            true => format!("it fits at {place}\n"),
            false => format!(
                "reservation {} at {place}: {}\n",
                output::plain(&one.name),
                state(one.state)
            ),
        };
        let (start, end) = (moment(one.start_secs), moment(one.end_secs));
        let again = match one.count {
            1 => String::new(),
            count => {
                let every = output::seconds(one.every_secs);
                format!(", {count} times, every {every}")
            }
        };
        let mut text = format!("{head}  from {start} until {end}{again}\n  {}\n", what(one));
        let mut servers: Vec<_> = one.slices.iter().map(|slice| slice.server).collect();
        servers.dedup();
        text += &format!(
            "  on {}, {}\n",
            output::count(servers.len() as u64, "server"),
            output::count(one.slices.len() as u64, "store"),
        );
        for slice in &one.slices {
            let share = f64::from(slice.share_ppm) / 10_000.0;
            text += &format!("    store {}: {share:.1} % of its time", slice.store);
            if slice.aus > 0 {
                let units = output::count(slice.aus, "allocation unit");
                text += &format!(", {units}");
            }
            text += "\n";
        }
        if !self.tickets.is_empty() {
            text += "  its tickets: --json\n";
        }
        text
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn moment(secs: u64) -> String {
    output::moment(i64::try_from(secs).unwrap_or(i64::MAX))
}

fn what(one: &ReservationSummary) -> String {
    let mut parts = Vec::new();
    if one.read_bytes_per_second > 0 {
        parts.push(format!("reading {}", Rate(one.read_bytes_per_second)));
    }
    if one.write_bytes_per_second > 0 {
        parts.push(format!("writing {}", Rate(one.write_bytes_per_second)));
    }
    if one.space_bytes > 0 {
        let size = ByteSize(one.space_bytes);
        let is_for_files = one.volume != VolumeId([0; 16]) && one.lifetime_secs == 0;
        parts.push(match (is_for_files, output::seconds(one.lifetime_secs)) {
            (true, _) => format!("{size} of space for files"),
            (false, stays) => format!("{size} of space, {stays} longer than the window"),
        });
    }
    parts.join(", ")
}

pub(super) fn state(state: ReserveState) -> &'static str {
    match state {
        ReserveState::Planned => "planned",
        ReserveState::Active => "active",
        ReserveState::Ended => "ended",
        ReserveState::Released => "released",
        ReserveState::Possible => "possible",
    }
}

/// A reservation without its tickets.
pub(super) fn summary_json(one: &ReservationSummary) -> Value {
    let slices = one.slices.iter().map(|slice| {
        json!({
            "server": slice.server.to_string(),
            "store": slice.store.to_string(),
            "share_ppm": slice.share_ppm,
            "stripe_unit_bytes": slice.stripe_unit_bytes,
            "allocation_units": slice.aus,
        })
    });
    json!({
        "id": one.id.to_string(),
        "name": one.name,
        "volume_id": one.volume.to_string(),
        "holder": one.holder,
        "state": state(one.state),
        "read_bytes_per_second": one.read_bytes_per_second,
        "write_bytes_per_second": one.write_bytes_per_second,
        "burst_millis": one.burst_millis,
        "space_bytes": one.space_bytes,
        "start": moment(one.start_secs),
        "end": moment(one.end_secs),
        "every_seconds": one.every_secs,
        "count": one.count,
        "lifetime_seconds": one.lifetime_secs,
        "released": one.released_secs.map(moment),
        "slices": slices.collect::<Vec<_>>(),
    })
}

/// Reservations for people.
pub(super) fn table(all: &[ReservationSummary]) -> String {
    let rows: Vec<[String; 6]> = all
        .iter()
        .map(|one| {
            let times = match one.count {
                1 => moment(one.end_secs),
                count => format!("{}, {count} times", moment(one.end_secs)),
            };
            [
                one.name.clone(),
                state(one.state).to_owned(),
                moment(one.start_secs),
                times,
                one.holder.to_string(),
                what(one),
            ]
        })
        .collect();
    output::table(["NAME", "STATE", "FROM", "UNTIL", "USER", "WHAT"], &rows)
}

/// The failure that a refusal is; with `is_json` it is printed, too.
///
/// # Errors
/// Standard output's.
pub(super) fn refused(
    short: ReserveShort,
    offers: &[ReserveOffer],
    is_json: bool,
) -> Result<Failure> {
    if is_json {
        output::json(&json!({
            "refused": {
                "short": scarce(short.what).0,
                "of": scarce(short.what).1,
                "wanted": short.wanted,
                "room": short.room,
                "from": moment(short.from_secs),
                "offers": offers.iter().map(offer_json).collect::<Vec<_>>(),
            }
        }))?;
    }
    let said: Vec<String> = offers.iter().map(offer).collect();
    let hint = match said.as_slice() {
        [] => "nothing like it would be admitted within a year".to_owned(),
        said => format!("it would fit {}", said.join("; or ")),
    };
    let failure = Failure::new(Code::Refused, explain(short)).hint(hint);
    Ok(failure.exit(EXIT_REFUSED))
}

fn scarce(what: Scarce) -> (&'static str, Option<String>) {
    match what {
        Scarce::Device(store) => ("device_time", Some(store.to_string())),
        Scarce::Network(server) => ("network", Some(server.to_string())),
        Scarce::Space(store) => ("space", Some(store.to_string())),
        Scarce::Stores => ("stores", None),
    }
}

fn explain(short: ReserveShort) -> String {
    let percent = |ppm: u64| format!("{:.1} %", ppm as f64 / 10_000.0);
    let from = moment(short.from_secs);
    match short.what {
        Scarce::Device(store) => format!(
            "the time of store {store} does not suffice: {} would be needed, {} is there from \
             {from} on",
            percent(short.wanted),
            percent(short.room),
        ),
        Scarce::Network(server) => format!(
            "the network of server {server} does not suffice: {} would be needed, {} is there \
             from {from} on",
            Rate(short.wanted),
            Rate(short.room),
        ),
        Scarce::Space(store) => format!(
            "the space of store {store} does not suffice: {} would be needed, {} are there",
            output::count(short.wanted, "allocation unit"),
            short.room,
        ),
        Scarce::Stores => format!(
            "{} would be needed of which promises can be made, {} are there",
            output::count(short.wanted, "store"),
            short.room
        ),
    }
}

fn offer(offer: &ReserveOffer) -> String {
    let (start, end) = (moment(offer.start_secs), moment(offer.end_secs));
    match offer.kind {
        ReserveOfferKind::Later => format!("later, from {start} until {end}"),
        ReserveOfferKind::Earlier => format!("earlier, from {start} until {end}"),
        ReserveOfferKind::Slower => {
            let rates = [
                ("reading", offer.read_bytes_per_second),
                ("writing", offer.write_bytes_per_second),
            ];
            let rates = rates.iter().filter(|(_, rate)| *rate > 0);
            let rates: Vec<_> = rates
                .map(|(what, rate)| format!("{what} {}", Rate(*rate)))
                .collect();
            format!("at that time, {}", rates.join(" and "))
        }
    }
}

fn offer_json(offer: &ReserveOffer) -> Value {
    json!({
        "kind": match offer.kind {
            ReserveOfferKind::Later => "later",
            ReserveOfferKind::Earlier => "earlier",
            ReserveOfferKind::Slower => "slower",
        },
        "start": moment(offer.start_secs),
        "end": moment(offer.end_secs),
        "read_bytes_per_second": offer.read_bytes_per_second,
        "write_bytes_per_second": offer.write_bytes_per_second,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_short_and_what_would_fit() {
        let short = ReserveShort {
            what: Scarce::Device(base::StoreId([7; 16])),
            wanted: 500_000,
            room: 100_000,
            from_secs: 0,
        };
        let offer = |kind| ReserveOffer {
            kind,
            start_secs: 60,
            end_secs: 120,
            read_bytes_per_second: 0,
            write_bytes_per_second: 1_000_000,
        };
        let offers = [
            offer(ReserveOfferKind::Later),
            offer(ReserveOfferKind::Slower),
        ];
        let failure = refused(short, &offers, false).expect("nothing is printed");
        let said = failure.to_string();
        let parts = [
            "the time of store 07070707070707070707070707070707 does not suffice",
            "50.0 % would be needed, 10.0 % is there from 1970-01-01T00:00:00Z on\n",
            "it would fit later, from 1970-01-01T00:01:00Z until 1970-01-01T00:02:00Z; or",
            "or at that time, writing 1.0 MB/s\n",
            "code: AZ0901",
        ];
        for part in parts {
            assert!(said.contains(part), "{said}");
        }
    }
}
