//! `azekura reserve limits`.

use super::{Place, ask};
use crate::config::Config;
use crate::connect::{WayArgs, unexpected_reply};
use crate::errors::Result;
use crate::output;
use base::Rate;
use serde_json::json;
use wire::message::{ReserveLimits, ReserveReply, ReserveRequest};

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
    /// This user may reserve; may be repeated
    #[arg(long, value_name = "UID")]
    allow: Vec<u32>,
    /// This user may not any more; may be repeated
    #[arg(long, value_name = "UID")]
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
        let limits = if wanted == before {
            before
        } else {
            answer(ReserveRequest::SetLimits {
                limits: wanted,
                dry_run: self.dry_run,
            })?
        };
        self.show(&limits)
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
                "network_bytes_per_second": limits.network_bytes_per_second,
                "users": limits.users,
            }));
        }
        let percent = |ppm: u32| format!("{} %", f64::from(ppm) / 10_000.0);
        let network = match limits.network_bytes_per_second {
            0 => "not reserved".to_owned(),
            rate => Rate(rate).to_string(),
        };
        let users: Vec<String> = limits.users.iter().map(u32::to_string).collect();
        output::write(&output::table(
            ["LIMIT", "VALUE"],
            &[
                ["unreserved".to_owned(), percent(limits.unreserved_ppm)],
                ["background".to_owned(), percent(limits.background_ppm)],
                ["network".to_owned(), network],
                ["users".to_owned(), users.join(" ")],
            ],
        ))
    }
}
