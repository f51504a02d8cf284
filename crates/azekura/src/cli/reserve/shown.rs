//! Reservations, refusals and offers, for people and for programs.

use super::Place;
use super::known::{Known, Names};
use crate::address::Address;
use crate::cli::tickets::hex;
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
/// What is said of a trial that came off.
pub(super) const FITS: &str = "it fits";
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
        self.text_of(place, FITS)
    }

    /// A few lines; `possible` says of a trial what could be done.
    pub(super) fn text_of(&self, place: &Place, possible: &str) -> String {
        let one = &self.summary;
        let is_trial = one.state == ReserveState::Possible;
        let head = match is_trial {
            true => format!("{possible} at {place}\n"),
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
        if let (Some(released), false) = (one.released_secs, is_trial) {
            text += &format!("  its rate was given back at {}\n", moment(released));
        }
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

pub(super) fn moment(secs: u64) -> String {
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

/// A reservation of a list, with what its volume is called.
pub(super) fn listed_json(one: &ReservationSummary, names: &Names) -> Value {
    let mut value = summary_json(one);
    value["volume"] = json!(names.name(one.volume));
    value
}

/// Reservations for people.
pub(super) fn table(all: &[ReservationSummary], names: &Names) -> String {
    let rows: Vec<[String; 7]> = all
        .iter()
        .map(|one| {
            let until = match (one.released_secs, one.count) {
                (Some(released), _) => format!("released {}", moment(released)),
                (None, 1) => moment(one.end_secs),
                (None, count) => format!("{}, {count} times", moment(one.end_secs)),
            };
            let volume = match (names.name(one.volume), one.volume == VolumeId([0; 16])) {
                (Some(name), _) => output::plain(name),
                (None, true) => "-".to_owned(),
                (None, false) => one.volume.to_string(),
            };
            [
                one.name.clone(),
                volume,
                state(one.state).to_owned(),
                moment(one.start_secs),
                until,
                one.holder.to_string(),
                what(one),
            ]
        })
        .collect();
    let head = ["NAME", "VOLUME", "STATE", "FROM", "UNTIL", "USER", "WHAT"];
    output::table(head, &rows)
}

/// An answer that says no, with what explains it.
pub(super) struct Refusal<'a> {
    pub(super) server: &'a Address,
    pub(super) short: ReserveShort,
    pub(super) offers: &'a [ReserveOffer],
    pub(super) known: Known,
    /// Whether several windows were asked for.
    pub(super) is_series: bool,
}

impl Refusal<'_> {
    /// The failure that it is; with `is_json` it is printed, too.
    ///
    /// # Errors
    /// Standard output's.
    pub(super) fn failure(&self, is_json: bool) -> Result<Failure> {
        if is_json {
            output::json(&self.json())?;
        }
        let failure = Failure::new(Code::Refused, self.explain()).hint(self.hint());
        Ok(failure.exit(EXIT_REFUSED))
    }

    fn json(&self) -> Value {
        let short = self.short;
        let unit = self.known.unit_bytes;
        json!({
            "refused": {
                "short": scarce(short.what).0,
                "of": scarce(short.what).1,
                "wanted": short.wanted,
                "room": short.room,
                "allocation_unit_bytes": unit,
                "from": self.has_time().then(|| moment(short.from_secs)),
                "offers": self.offers.iter().map(offer_json).collect::<Vec<_>>(),
            }
        })
    }

    /// Whether there is a second from which on it is short.
    fn has_time(&self) -> bool {
        self.short.from_secs > 0
    }

    fn hint(&self) -> String {
        let said: Vec<String> = self.offers.iter().map(offer).collect();
        let mut hint = match (said.as_slice(), self.short.what) {
            ([], Scarce::Space(_)) => "a smaller --space would fit, or a larger store".to_owned(),
            ([], _) => "nothing like it would be admitted within a year".to_owned(),
            (said, _) => format!("it would fit {}", said.join("; or ")),
        };
        if let Some(ppm) = self.known.limited_ppm {
            hint += &format!(
                "; limits leave {} of each device to reservations: `azekura reserve limits {}`",
                percent(u64::from(ppm)),
                self.server
            );
        }
        hint
    }

    fn explain(&self) -> String {
        let mut text = explain(self.short, self.known.unit_bytes);
        if self.is_series && matches!(self.short.what, Scarce::Space(_)) {
            text += "; the space of all windows of a series adds up";
        }
        text
    }
}

fn percent(ppm: u64) -> String {
    format!("{:.1} %", ppm as f64 / 10_000.0)
}

fn scarce(what: Scarce) -> (&'static str, Option<String>) {
    match what {
        Scarce::Device(store) => ("device_time", Some(store.to_string())),
        Scarce::Network(server) => ("network", Some(server.to_string())),
        Scarce::Space(store) => ("space", Some(store.to_string())),
        Scarce::Stores => ("stores", None),
    }
}

fn explain(short: ReserveShort, unit_bytes: Option<u64>) -> String {
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
            "the space of store {store} does not suffice: {} would be needed, {} there",
            units(short.wanted, unit_bytes),
            match (short.room, unit_bytes) {
                (room, None) => format!("{room} are"),
                (room, Some(_)) => format!("{} are", units(room, unit_bytes)),
            },
        ),
        Scarce::Stores => format!(
            "{} would be needed of which promises can be made, {} are there",
            output::count(short.wanted, "store"),
            short.room
        ),
    }
}

fn units(count: u64, unit_bytes: Option<u64>) -> String {
    let units = output::count(count, "allocation unit");
    match unit_bytes {
        Some(bytes) => format!("{} ({units})", ByteSize(count.saturating_mul(bytes))),
        None => units,
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
        let server = "far:7700".parse().expect("an address");
        let mut refusal = Refusal {
            server: &server,
            short,
            offers: &offers,
            known: Known::default(),
            is_series: false,
        };
        let failure = refusal.failure(false).expect("nothing is printed");
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
        refusal.known.limited_ppm = Some(100_000);
        let said = refusal.hint();
        assert!(
            said.contains("limits leave 10.0 % of each device"),
            "{said}"
        );
    }

    #[test]
    fn short_space_is_said_in_bytes_and_has_no_time() {
        let server = "far:7700".parse().expect("an address");
        let refusal = Refusal {
            server: &server,
            short: ReserveShort {
                what: Scarce::Space(base::StoreId([7; 16])),
                wanted: 2048,
                room: 1006,
                from_secs: 0,
            },
            offers: &[],
            known: Known {
                limited_ppm: None,
                unit_bytes: Some(65_536),
            },
            is_series: true,
        };
        let said = refusal.explain();
        assert!(
            said.contains("128.0 MiB (2048 allocation units) would be needed"),
            "{said}"
        );
        assert!(
            said.contains("62.9 MiB (1006 allocation units) are there"),
            "{said}"
        );
        assert!(said.contains("adds up"), "{said}");
        assert_eq!(refusal.json()["refused"]["from"], Value::Null);
    }
}
