//! `azekura disk list`.

use super::running::list;
use crate::config::Config;
use crate::errors::{Failure, Result};
use crate::output;
use serde_json::{Value, json};

/// List the disks of this user that are in use on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura disk list --json")]
pub(in crate::cli) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let entries = list(config)?;
        if self.json {
            let disks = entries.iter().map(|entry| -> serde_json::Result<Value> {
                let mut disk = serde_json::to_value(&entry.running)?;
                disk["since"] = json!(output::moment(entry.running.since));
                Ok(disk)
            });
            let disks: serde_json::Result<Vec<Value>> = disks.collect();
            let disks = disks.map_err(|error| Failure::local("the list", error))?;
            return output::json(&json!({ "disks": disks }));
        }
        let rows: Vec<_> = entries
            .iter()
            .map(|entry| {
                let running = &entry.running;
                let mode = if running.writable {
                    "read, write"
                } else {
                    "read"
                };
                [
                    running.place.clone(),
                    running.device.clone().unwrap_or_default(),
                    format!("{} {}", running.repository, running.name),
                    mode.to_owned(),
                ]
            })
            .collect();
        output::write(&output::table(["WHERE", "DEVICE", "DISK", "FOR"], &rows))
    }
}
