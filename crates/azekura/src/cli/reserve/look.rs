//! `azekura reserve list|show`.

use super::{Place, Which, ask_for_one, known, shown, with_server};
use crate::config::Config;
use crate::connect::WayArgs;
use crate::errors::{Code, Failure, Result};
use crate::output;
use serde_json::{Value, json};
use wire::message::ReserveRequest;

/// List reservations: all for administrators, else one's own
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// HOST:PORT, or HOST:PORT/VOLUME for those of one volume
    #[arg(value_name = "ADDR[/VOLUME]")]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl List {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let Place { server, volume } = &self.place;
        let (mut all, names) = with_server(config, server, &self.way, async |transport, uid| {
            let all = known::all(transport, uid).await?;
            Ok((all, known::Names::ask(transport).await))
        })?;
        if !volume.is_empty() {
            let id = names.volume(volume).ok_or_else(|| {
                let why = format!("there is no volume {:?}", output::plain(volume));
                Failure::new(Code::NotFound, why).hint(format!(
                    "`azekura volume list {server}` shows what there is"
                ))
            })?;
            all.retain(|one| one.volume == id);
        }
        all.sort_by_key(|one| (one.start_secs, one.id));
        if self.json {
            let json = |one| shown::listed_json(one, &names);
            let all: Vec<Value> = all.iter().map(json).collect();
            return output::json(&json!({ "reservations": all }));
        }
        output::write(&shown::table(&all, &names))
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
        let found = ask_for_one(config, server, &self.way, request, self.json)?;
        if self.json {
            return output::json(&found.json());
        }
        output::write(&found.text(&self.which.place))
    }
}
