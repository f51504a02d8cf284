//! `azekura status`.

use super::join::show_kind;
use super::volume::{volume_json, volume_table};
use crate::address::Address;
use crate::config::Config;
use crate::connect::{WayArgs, admin, runtime, unexpected_reply};
use crate::errors::Result;
use crate::output::{self, seconds, size};
use serde_json::{Value, json};
use wire::message::{AdminReply, AdminRequest, ServerStatus, SessionSummary, WorkerSummary};

/// Show how a server is: volumes, sessions, background work
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura status 127.0.0.1:7700")]
pub(super) struct Status {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    server: Address,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Status {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let asked = admin(config, &self.server, &self.way, AdminRequest::Status);
        let AdminReply::Status(status) = runtime()?.block_on(asked)? else {
            return Err(unexpected_reply(&self.server));
        };
        if self.json {
            return output::json(&status_json(&self.server, &status));
        }
        output::write(&page(&self.server, &status))
    }
}

fn status_json(server: &Address, status: &ServerStatus) -> Value {
    let volumes: Vec<Value> = status.volumes.iter().map(volume_json).collect();
    let sessions: Vec<Value> = status.sessions.iter().map(session_json).collect();
    let workers: Vec<Value> = status.workers.iter().map(worker_json).collect();
    json!({
        "address": server.to_string(),
        "version": status.version,
        "cluster": status.cluster.to_string(),
        "boot": status.boot.to_string(),
        "seconds_up": status.seconds_up,
        "volumes": volumes,
        "sessions": sessions,
        "workers": workers,
    })
}

fn session_json(session: &SessionSummary) -> Value {
    json!({
        "host": session.host,
        "address": session.address,
        "kind": show_kind(session.kind),
        "connections": session.connections,
        "opens": session.opens,
        "locks": session.locks,
        "leases": session.leases,
        "requests": session.requests,
        "bytes_read": session.bytes_read,
        "bytes_written": session.bytes_written,
        "seconds_idle": session.seconds_idle,
    })
}

fn worker_json(worker: &WorkerSummary) -> Value {
    json!({ "name": worker.name, "state": worker.state, "progress": worker.progress })
}

/// The status for people.
fn page(server: &Address, status: &ServerStatus) -> String {
    let up = seconds(status.seconds_up);
    let version = output::plain(&status.version);
    let mut page = format!(
        "{server}: azekura {version}, up {up}, cluster {}\n",
        status.cluster
    );
    if !status.volumes.is_empty() {
        page += "\n";
        page += &volume_table(&status.volumes);
    }
    if !status.sessions.is_empty() {
        let head = [
            "CLIENT", "ADDRESS", "KIND", "OPEN", "LEASES", "SENT", "RECEIVED", "IDLE",
        ];
        let rows: Vec<[String; 8]> = status.sessions.iter().map(session_row).collect();
        page += "\n";
        page += &output::table(head, &rows);
    }
    if !status.workers.is_empty() {
        let rows: Vec<[String; 3]> = status
            .workers
            .iter()
            .map(|worker| {
                [
                    worker.name.clone(),
                    worker.state.clone(),
                    worker.progress.to_string(),
                ]
            })
            .collect();
        page += "\n";
        page += &output::table(["WORK", "STATE", "DONE"], &rows);
    }
    page
}

fn session_row(session: &SessionSummary) -> [String; 8] {
    [
        session.host.clone(),
        session.address.clone(),
        show_kind(session.kind),
        session.opens.to_string(),
        session.leases.to_string(),
        size(session.bytes_read),
        size(session.bytes_written),
        seconds(session.seconds_idle),
    ]
}
