//! `azekura reserve list|show`.

use super::{Place, Which, ask, reserved, shown};
use crate::config::Config;
use crate::connect::{WayArgs, unexpected_reply};
use crate::errors::Result;
use crate::output;
use serde_json::{Value, json};
use wire::message::{ReserveReply, ReserveRequest};

/// List reservations: all for administrators, else one's own
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl List {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let server = &self.place.server;
        let mut all = Vec::new();
        loop {
            let after = all
                .last()
                .map(|last: &wire::message::ReservationSummary| last.id);
            let reply = ask(config, server, &self.way, ReserveRequest::List { after })?;
            let ReserveReply::Reservations { list, more } = reply else {
                return Err(unexpected_reply(server));
            };
            let is_last = !more || list.is_empty();
            all.extend(list);
            if is_last {
                break;
            }
        }
        all.sort_by_key(|one| (one.start_secs, one.id));
        if self.json {
            let all: Vec<Value> = all.iter().map(shown::summary_json).collect();
            return output::json(&json!({ "reservations": all }));
        }
        output::write(&shown::table(&all))
    }
}

/// Show one reservation, with --json also its tickets
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    #[command(flatten)]
    which: Which,
    /// Print JSON, with the tickets for its present or next window
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Show {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let server = &self.which.place.server;
        let request = ReserveRequest::Show(self.which.name());
        let found = reserved(server, ask(config, server, &self.way, request)?, self.json)?;
        if self.json {
            return output::json(&found.json());
        }
        output::write(&found.text(&self.which.place))
    }
}
