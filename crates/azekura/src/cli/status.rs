//! `azekura status`.

use super::join::show_kind;
use super::volume::{volume_json, volume_table};
use crate::address::Address;
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, WayArgs, connect, runtime, unexpected_reply};
use crate::errors::Result;
use crate::output::{self, seconds, size};
use base::Rate;
use client::transport::{Call, TransportOptions};
use serde_json::{Value, json};
use wire::message::{
    AdminReply, AdminRequest, ObjectReply, ObjectRequest, Reply, ServerStatus, SessionSummary,
    StoreSummary, WorkerSummary,
};

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
        let (status, stores) = runtime()?.block_on(self.ask(config))?;
        if self.json {
            return output::json(&status_json(&self.server, &status, &stores));
        }
        output::write(&page(&self.server, &status, &stores))
    }

    async fn ask(&self, config: &Config) -> Result<(ServerStatus, Vec<StoreSummary>)> {
        let options = TransportOptions {
            connections: 1,
            ..TransportOptions::default()
        };
        let transport = connect(config, &self.server, &self.way, options).await?;
        let status = transport.admin(AdminRequest::Status).await;
        let stores = transport.submit_object(ObjectRequest::Stores, Call::metadata());
        let stores = stores.response().await;
        transport.close(GOODBYE_TIME_MAX).await;
        match (status?, stores?.reply) {
            (AdminReply::Status(status), Reply::Object(ObjectReply::Stores(stores))) => {
                Ok((status, stores))
            }
            _ => Err(unexpected_reply(&self.server)),
        }
    }
}

fn status_json(server: &Address, status: &ServerStatus, stores: &[StoreSummary]) -> Value {
    let volumes: Vec<Value> = status.volumes.iter().map(volume_json).collect();
    let sessions: Vec<Value> = status.sessions.iter().map(session_json).collect();
    let workers: Vec<Value> = status.workers.iter().map(worker_json).collect();
    let stores: Vec<Value> = stores.iter().map(store_json).collect();
    json!({
        "address": server.to_string(),
        "version": status.version,
        "cluster": status.cluster.to_string(),
        "boot": status.boot.to_string(),
        "seconds_up": status.seconds_up,
        "volumes": volumes,
        "sessions": sessions,
        "stores": stores,
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

fn store_json(store: &StoreSummary) -> Value {
    let by_class = |[tickets, users, own]: [u64; 3]| {
        let names = ["reserved", "unreserved", "background"];
        Value::from_iter(names.into_iter().zip([tickets, users, own]))
    };
    json!({
        "id": store.store.to_string(),
        "path": store.path,
        "allocation_unit_bytes": store.au_bytes,
        "allocation_units": store.au_count,
        "allocation_units_free": store.au_free,
        "read_bytes_per_second": store.read_bytes_per_second,
        "write_bytes_per_second": store.write_bytes_per_second,
        "read_piece_bytes": store.read_piece_bytes,
        "write_piece_bytes": store.write_piece_bytes,
        "promised_ppm_max": store.promised_ppm_max,
        "promised_ppm": store.promised_ppm,
        "tickets": store.tickets,
        "waiting": store.waiting,
        "in_flight": store.in_flight,
        "done": by_class(store.done),
        "done_bytes": by_class(store.done_bytes),
        "speed_ppm": store.speed_ppm,
        "is_degraded": store.is_degraded,
        "is_quick": store.is_quick,
        "is_missing": store.is_missing(),
        "is_older": store.is_older,
        "failure": store.failure,
    })
}

fn worker_json(worker: &WorkerSummary) -> Value {
    json!({ "name": worker.name, "state": worker.state, "progress": worker.progress })
}

/// What to do about a store that was measured for a moment.
const QUICK_HINT: &str = "little is promised; `azekura store calibrate` measures for a minute, \
                          while the server does not run";

/// What a store that is missing means.
const MISSING_HINT: &str = "files that lie there are EIO until the store is back and the server \
                            is started again; AZ0811 says more";

/// What to do about a store that was set back.
const OLDER_HINT: &str = "put the newest one back, or give up what was written since; AZ0812 says \
                          how";

/// The status for people.
fn page(server: &Address, status: &ServerStatus, stores: &[StoreSummary]) -> String {
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
    if !stores.is_empty() {
        let head = [
            "STORE", "SPACE", "FREE", "READ", "WRITE", "TICKETS", "PROMISED", "WAITING", "STATE",
        ];
        let rows: Vec<[String; 9]> = stores.iter().map(store_row).collect();
        page += "\n";
        page += &output::table(head, &rows);
        if stores.iter().any(|store| store.is_quick) {
            page += &format!("measured for a moment: {QUICK_HINT}\n");
        }
        if stores.iter().any(StoreSummary::is_missing) {
            page += &format!("missing: {MISSING_HINT}\n");
        }
        if stores.iter().any(|store| store.is_older) {
            page += &format!("an older state: {OLDER_HINT}\n");
        }
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

fn store_row(store: &StoreSummary) -> [String; 9] {
    let state = match (&store.failure, store.is_degraded) {
        (Some(failure), _) => output::plain(failure),
        (None, true) => "slower than promised".to_owned(),
        (None, false) if store.is_quick => "well, measured for a moment".to_owned(),
        (None, false) => "well".to_owned(),
    };
    let name = match store.path.is_empty() {
        true => store.store.to_string(),
        false => output::plain(&store.path),
    };
    let percent = f64::from(store.promised_ppm) / 10_000.0;
    if store.is_missing() {
        let mut row = std::array::from_fn(|_| "-".to_owned());
        row[0] = name;
        row[8] = state;
        return row;
    }
    [
        name,
        size(store.au_bytes.saturating_mul(store.au_count)),
        size(store.au_bytes.saturating_mul(store.au_free)),
        Rate(store.read_bytes_per_second).to_string(),
        Rate(store.write_bytes_per_second).to_string(),
        store.tickets.to_string(),
        format!("{percent:.1} %"),
        store.waiting.to_string(),
        state,
    ]
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
