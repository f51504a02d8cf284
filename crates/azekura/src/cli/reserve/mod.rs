//! `azekura reserve create|when|split|list|show|extend|release|cancel|report|limits`.
//!
//! * [`create`]: asking, with or without taking
//! * [`split`]: parts of a ticket for workers
//! * [`change`]: extend, release, cancel
//! * [`look`]: list, show
//! * [`report`]: what was delivered; [`chart`] draws it
//! * [`limits`]: what is kept back, who may reserve
//! * [`time`]: when, as people write it
//! * [`known`]: what else explains an answer; [`remedy`]: what to do about a refusal
//! * [`shown`]: reservations, refusals and offers for people and programs

mod change;
mod chart;
mod create;
mod known;
mod limits;
mod look;
mod remedy;
mod report;
mod shown;
mod split;
mod time;

use crate::address::{Address, AddressError, VolumeAddress};
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, WayArgs, connect, principal, runtime, unexpected_reply};
use crate::errors::{Code, Result};
use base::limits::RESERVE_NAME_BYTES_MAX;
use client::transport::{Transport, TransportOptions};
use std::fmt;
use std::str::FromStr;
use wire::message::{ReserveName, ReserveReply, ReserveRequest};

/// Reserve speed and space for a window of time
#[derive(Debug, clap::Subcommand)]
pub(super) enum Reserve {
    Create(create::Create),
    When(create::When),
    Split(split::Split),
    List(look::List),
    Show(look::Show),
    Extend(change::Extend),
    Release(change::Release),
    Cancel(change::Cancel),
    Report(report::Report),
    Limits(limits::Limits),
}

impl Reserve {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        match self {
            Self::Create(command) => command.run(config),
            Self::When(command) => command.run(config),
            Self::Split(command) => command.run(),
            Self::List(command) => command.run(config),
            Self::Show(command) => command.run(config),
            Self::Extend(command) => command.run(config),
            Self::Release(command) => command.run(config),
            Self::Cancel(command) => command.run(config),
            Self::Report(command) => command.run(config),
            Self::Limits(command) => command.run(config),
        }
    }
}

/// Where something is reserved: for a volume, or for objects that programs keep themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Place {
    server: Address,
    /// Empty for none.
    volume: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.volume.as_str() {
            "" => self.server.fmt(f),
            volume => write!(f, "{}/{volume}", self.server),
        }
    }
}

impl FromStr for Place {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('/') {
            let VolumeAddress { server, volume } = text.parse()?;
            return Ok(Self { server, volume });
        }
        Ok(Self {
            server: text.parse()?,
            volume: String::new(),
        })
    }
}

/// A reservation that is there already.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Which {
    /// HOST:PORT or HOST:PORT/VOLUME
    #[arg(value_name = "ADDR[/VOLUME]")]
    place: Place,
    /// Name or identity
    #[arg(value_name = "RESERVATION", value_parser = bounded_name)]
    name: String,
}

/// A name that can be asked about; whether one can be called so, the manager says.
fn bounded_name(text: &str) -> Result<String, String> {
    match text.len() > RESERVE_NAME_BYTES_MAX {
        true => Err(format!("a name has at most {RESERVE_NAME_BYTES_MAX} bytes")),
        false => Ok(text.to_owned()),
    }
}

impl Which {
    fn name(&self) -> ReserveName {
        ReserveName {
            volume: self.place.volume.clone(),
            name: self.name.clone(),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reservation {}", crate::output::plain(&self.name))
    }
}

/// Asks the manager of a server, for this user.
fn ask(
    config: &Config,
    server: &Address,
    way: &WayArgs,
    request: ReserveRequest,
) -> Result<ReserveReply> {
    let which = named(&request);
    with_server(config, server, way, async |transport, uid| match transport
        .reserve(uid, request)
        .await?
    {
        ReserveReply::Failed { code, message } => {
            let failure = remedy::failure(code, message);
            match (failure.code(), which) {
                (Code::NoReservation, Some(which)) => {
                    let places = known::elsewhere(transport, uid, &which).await;
                    Err(failure.hint(where_it_is(server, &which, &places)))
                }
                _ => Err(failure),
            }
        }
        reply => Ok(reply),
    })
}

/// Connects to a server for questions of this user.
fn with_server<T>(
    config: &Config,
    server: &Address,
    way: &WayArgs,
    run: impl AsyncFnOnce(&Transport, u32) -> Result<T>,
) -> Result<T> {
    let options = TransportOptions {
        connections: 1,
        ..TransportOptions::default()
    };
    runtime()?.block_on(async {
        let transport = connect(config, server, way, options).await?;
        let outcome = match principal(&transport) {
            Ok(who) => run(&transport, who.uid).await,
            Err(error) => Err(error),
        };
        transport.close(GOODBYE_TIME_MAX).await;
        outcome
    })
}

/// The reservation that a question names.
fn named(request: &ReserveRequest) -> Option<ReserveName> {
    match request {
        ReserveRequest::Show(which)
        | ReserveRequest::Extend { which, .. }
        | ReserveRequest::Release { which, .. }
        | ReserveRequest::Cancel { which, .. }
        | ReserveRequest::Report { which, .. } => Some(which.clone()),
        _ => None,
    }
}

/// What to name instead of a reservation that is not there.
fn where_it_is(server: &Address, which: &ReserveName, places: &[String]) -> String {
    let place = places.iter().map(|volume| Place {
        server: server.clone(),
        volume: volume.clone(),
    });
    let places: Vec<String> = place.map(|place| format!("`{place}`")).collect();
    match places.as_slice() {
        [] => format!("`azekura reserve list {server}` shows what there is"),
        places => format!(
            "one of this name is there as {} {}",
            places.join(" and "),
            crate::output::plain(&which.name)
        ),
    }
}

/// Asks for one reservation, with what explains a refusal.
fn ask_for_one(
    config: &Config,
    server: &Address,
    way: &WayArgs,
    request: ReserveRequest,
    is_json: bool,
) -> Result<shown::Reserved> {
    let is_series = matches!(&request, ReserveRequest::Create { terms, .. } if terms.count > 1);
    let reply = ask(config, server, way, request)?;
    match reply {
        ReserveReply::Reserved {
            summary,
            occurrence,
            tickets,
        } => Ok(shown::Reserved {
            summary,
            occurrence,
            tickets,
        }),
        ReserveReply::Refused { short, offers } => {
            let known = with_server(config, server, way, async |transport, uid| {
                Ok(known::Known::of(transport, uid, short).await)
            });
            // The refusal is known, whatever else is not.
            let known = known.unwrap_or_default();
            let refusal = shown::Refusal {
                server,
                short,
                offers: &offers,
                known,
                is_series,
            };
            Err(refusal.failure(is_json)?)
        }
        _ => Err(unexpected_reply(server)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_server_or_a_volume_of_it() {
        let place = |text: &str| text.parse::<Place>();
        assert_eq!(place("far:7700").unwrap().volume, "");
        assert_eq!(place("far:7700/lab").unwrap().volume, "lab");
        assert_eq!(place("far:7700/lab").unwrap().to_string(), "far:7700/lab");
        assert!(place("far").is_err() && place("far:7700/").is_err());
    }
}
