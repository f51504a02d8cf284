//! `azekura reserve create|when|list|show|extend|release|cancel|report|limits`.
//!
//! * [`create`]: asking, with or without taking
//! * [`change`]: extend, release, cancel
//! * [`look`]: list, show
//! * [`report`]: what was delivered; [`chart`] draws it
//! * [`limits`]: what is kept back, who may reserve
//! * [`time`]: when, as people write it
//! * [`shown`]: reservations, refusals and offers for people and programs

mod change;
mod chart;
mod create;
mod limits;
mod look;
mod report;
mod shown;
mod time;

use crate::address::{Address, AddressError, VolumeAddress};
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, WayArgs, connect, principal, runtime, unexpected_reply};
use crate::errors::{Code, Failure, Result};
use client::transport::TransportOptions;
use std::fmt;
use std::str::FromStr;
use wire::message::{ReserveError, ReserveName, ReserveReply, ReserveRequest};

/// Reserve speed and space for a window of time
#[derive(Debug, clap::Subcommand)]
pub(super) enum Reserve {
    Create(create::Create),
    When(create::When),
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
    #[arg(value_name = "RESERVATION")]
    name: String,
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
    let options = TransportOptions {
        connections: 1,
        ..TransportOptions::default()
    };
    let reply = runtime()?.block_on(async {
        let transport = connect(config, server, way, options).await?;
        let reply = match principal(&transport) {
            Ok(who) => transport
                .reserve(who.uid, request)
                .await
                .map_err(Failure::from),
            Err(error) => Err(error),
        };
        transport.close(GOODBYE_TIME_MAX).await;
        reply
    })?;
    match reply {
        ReserveReply::Failed { code, message } => Err(failure(server, code, message)),
        reply => Ok(reply),
    }
}

fn failure(server: &Address, error: ReserveError, message: String) -> Failure {
    let code = match error {
        ReserveError::NotFound if message.contains("volume") => Code::NotFound,
        ReserveError::NotFound => Code::NoReservation,
        ReserveError::Exists | ReserveError::Invalid => Code::ReserveInvalid,
        ReserveError::Forbidden => Code::MayNotReserve,
        ReserveError::Over => Code::ReserveOver,
        ReserveError::InUse => Code::SpaceInUse,
        ReserveError::Unreservable => Code::Unreservable,
        ReserveError::Unavailable => Code::ManagerDown,
        ReserveError::Limit => Code::ServerLimit,
        ReserveError::Storage => Code::LedgerFailed,
    };
    let failure = Failure::new(code, message);
    match code {
        Code::NoReservation => failure.hint(format!(
            "`azekura reserve list {server}` shows what there is"
        )),
        _ => failure,
    }
}

/// The one reservation of an answer.
fn reserved(server: &Address, reply: ReserveReply, is_json: bool) -> Result<shown::Reserved> {
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
        ReserveReply::Refused { short, offers } => Err(shown::refused(short, &offers, is_json)?),
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
