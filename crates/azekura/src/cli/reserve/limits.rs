//! `azekura reserve limits`.

use super::create::invalid;
use super::known::{self, FLOOR_PPM, reservable_ppm};
use super::{Place, ask, with_server};
use crate::config::Config;
use crate::connect::{WayArgs, unexpected_reply};
use crate::errors::Result;
use crate::output;
use base::limits::RESERVE_USERS_MAX;
use base::{Rate, StoreId};
use client::transport::Transport;
use nix::unistd::User;
use serde_json::json;
use std::collections::BTreeMap;
#[cfg(test)]
use wire::message::ReserveSlice;
use wire::message::{
    ReservationSummary, ReserveLimits, ReserveReply, ReserveRequest, ReserveState,
};

/// Show or set what no reservation gets, and who may reserve
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  azekura reserve limits 127.0.0.1:7700
  azekura reserve limits 127.0.0.1:7700 --unreserved 20 --network 1GB/s --allow 1000")]
pub(in crate::cli) struct Limits {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    place: Place,
    /// Percent of each device's time that stays for users without a reservation; servers keep 5
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    unreserved: Option<u32>,
    /// Percent of each device's time that stays for background work; servers keep 5
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    background: Option<u32>,
    /// What of each server's network may be reserved; 0 if lines are not to be reserved
    #[arg(long, value_name = "RATE")]
    network: Option<Rate>,
    /// This user may reserve: a number, or a name of this machine; may be repeated
    #[arg(long, value_name = "UID", value_parser = user)]
    allow: Vec<u32>,
    /// This user may not any more; may be repeated
    #[arg(long, value_name = "UID", value_parser = user)]
    deny: Vec<u32>,
    /// Only check
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Limits {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let server = &self.place.server;
        let answer = |request| match ask(config, server, &self.way, request)? {
            ReserveReply::Limits(limits) => Ok(limits),
            _ => Err(unexpected_reply(server)),
        };
        let before = answer(ReserveRequest::Limits)?;
        let wanted = self.changed(before.clone());
        if wanted.users.len() > RESERVE_USERS_MAX {
            let why = format!("at most {RESERVE_USERS_MAX} users may reserve");
            let hint = "--deny takes the right from users who do not need it any more";
            return Err(invalid(why).hint(hint));
        }
        let limits = if wanted == before {
            before.clone()
        } else {
            answer(ReserveRequest::SetLimits {
                limits: wanted.clone(),
                dry_run: self.dry_run,
            })?
        };
        if wanted != before
            && let Some(remark) = remark(&limits, &self.reservations(config))
        {
            output::note(remark);
        }
        self.show(&limits)
    }

    /// All reservations; none if they are not told.
    fn reservations(&self, config: &Config) -> Vec<ReservationSummary> {
        let all = async |transport: &Transport, uid| known::all(transport, uid).await;
        with_server(config, &self.place.server, &self.way, all).unwrap_or_default()
    }

    fn changed(&self, mut limits: ReserveLimits) -> ReserveLimits {
        let ppm = |percent: u32| percent * 10_000;
        limits.unreserved_ppm = self.unreserved.map_or(limits.unreserved_ppm, ppm);
        limits.background_ppm = self.background.map_or(limits.background_ppm, ppm);
        let network = self.network.map(|rate| rate.0);
        limits.network_bytes_per_second = network.unwrap_or(limits.network_bytes_per_second);
        limits.users.extend(&self.allow);
        limits.users.retain(|user| !self.deny.contains(user));
        limits.users.sort_unstable();
        limits.users.dedup();
        limits
    }

    fn show(&self, limits: &ReserveLimits) -> Result<()> {
        if self.json {
            return output::json(&json!({
                "unreserved_ppm": limits.unreserved_ppm,
                "background_ppm": limits.background_ppm,
                "reservable_ppm": reservable_ppm(limits),
                "network_bytes_per_second": limits.network_bytes_per_second,
                "users": limits.users,
            }));
        }
        let network = match limits.network_bytes_per_second {
            0 => "not reserved".to_owned(),
            rate => Rate(rate).to_string(),
        };
        let users: Vec<String> = limits.users.iter().map(u32::to_string).collect();
        let reservable = format!("{} of each device", percent(reservable_ppm(limits)));
        output::write(&output::table(
            ["LIMIT", "VALUE"],
            &[
                ["unreserved".to_owned(), kept(limits.unreserved_ppm)],
                ["background".to_owned(), kept(limits.background_ppm)],
                ["can be reserved".to_owned(), reservable],
                ["network".to_owned(), network],
                ["users".to_owned(), users.join(" ")],
            ],
        ))
    }
}

fn percent(ppm: u32) -> String {
    format!("{} %", f64::from(ppm) / 10_000.0)
}

/// What is kept back, which is not less than servers keep by themselves.
fn kept(ppm: u32) -> String {
    match (ppm, ppm < FLOOR_PPM) {
        (0, _) => format!("{}, servers' own", percent(FLOOR_PPM)),
        (ppm, true) => format!(
            "{}, servers' own; {} is set",
            percent(FLOOR_PPM),
            percent(ppm)
        ),
        (ppm, false) => percent(ppm),
    }
}

/// What is to be said of limits that were set: what is promised already stays so.
fn remark(limits: &ReserveLimits, reservations: &[ReservationSummary]) -> Option<String> {
    let reservable = reservable_ppm(limits);
    if reservable == 0 {
        return Some("with these limits nothing can be reserved: all is kept back".to_owned());
    }
    let mut shares: BTreeMap<StoreId, u32> = BTreeMap::new();
    let active = |one: &&ReservationSummary| one.state == ReserveState::Active;
    for slice in reservations
        .iter()
        .filter(active)
        .flat_map(|one| &one.slices)
    {
        let share = shares.entry(slice.store).or_default();
        *share = share.saturating_add(slice.share_ppm);
    }
    let most = shares.into_values().max()?;
    (most > reservable).then(|| {
        format!(
            "{} of a device is promised at the moment, and with these limits {} can be: what is \
             promised stays so, and nothing more is until it is over",
            percent(most),
            percent(reservable),
        )
    })
}

/// A user's number, or the number of the user with a name on this machine.
fn user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        _ => {
            Err("this machine knows no such user; `id -u NAME` at another one says a number".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(unreserved_ppm: u32) -> ReserveLimits {
        ReserveLimits {
            unreserved_ppm,
            background_ppm: 0,
            network_bytes_per_second: 0,
            users: Vec::new(),
        }
    }

    #[test]
    fn what_servers_keep_by_themselves_is_said() {
        assert_eq!(reservable_ppm(&limits(0)), 900_000);
        assert_eq!(reservable_ppm(&limits(200_000)), 800_000);
        assert_eq!(kept(0), "5 %, servers' own");
        assert_eq!(kept(200_000), "20 %");
    }

    #[test]
    fn limits_below_what_is_promised_are_remarked() {
        let mut one = super::super::report::tests::example().summary;
        one.state = ReserveState::Active;
        one.slices = vec![ReserveSlice {
            server: base::ServerId([1; 16]),
            store: StoreId([2; 16]),
            share_ppm: 370_000,
            stripe_unit_bytes: 0,
            aus: 0,
        }];
        let both = [one.clone(), one];
        let said = remark(&limits(900_000), &both).expect("74 % are promised");
        assert!(said.contains("74 %") && said.contains("10 %"), "{said}");
        assert_eq!(remark(&limits(200_000), &both), None);
        assert!(remark(&limits(1_000_000), &[]).is_some());
    }

    #[test]
    fn users_have_numbers_or_names() {
        assert_eq!(user("4711"), Ok(4711));
        assert_eq!(user("root"), Ok(0));
        assert!(user("nobody of that name").is_err());
    }
}
