//! `azekura status`.

use super::join::show_kind;
use super::volume::{remedy, volume_json, volume_table};
use crate::address::Address;
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, WayArgs, connect, runtime, unexpected_reply};
use crate::errors::Result;
use crate::output::{self, seconds, size};
use base::Rate;
use client::transport::{Call, Transport, TransportOptions};
use serde_json::{Value, json};
use wire::message::{
    AdminReply, AdminRequest, ClusterReply, ClusterRequest, ManagerSummary, ObjectReply,
    ObjectRequest, Reply, ServerStatus, ServerSummary, SessionSummary, StoreSummary, WorkerSummary,
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
        let (status, stores, managers) = runtime()?.block_on(self.ask(config))?;
        if self.json {
            let mut json = status_json(&self.server, &status, &stores);
            json["managers"] = managers.iter().map(manager_json).collect();
            return output::json(&json);
        }
        output::write(&page(&self.server, &status, &stores, &managers))
    }

    async fn ask(
        &self,
        config: &Config,
    ) -> Result<(ServerStatus, Vec<Stores>, Vec<ManagerSummary>)> {
        let options = TransportOptions {
            connections: 1,
            ..TransportOptions::default()
        };
        let transport = connect(config, &self.server, &self.way, options).await?;
        let status = transport.admin(AdminRequest::Status).await;
        let stores = transport.submit_object(ObjectRequest::Stores, Call::metadata());
        let stores = stores.response().await;
        let elsewhere = self.elsewhere(&transport).await;
        // Servers of earlier versions are alone, and do not know the question.
        let managers = match transport.has_managers() {
            true => transport.cluster_request(ClusterRequest::Managers).await,
            false => Ok(ClusterReply::Managers(Vec::new())),
        };
        transport.close(GOODBYE_TIME_MAX).await;
        let mut servers = elsewhere?;
        let ClusterReply::Managers(managers) = managers? else {
            return Err(unexpected_reply(&self.server));
        };
        match (status?, stores?.reply) {
            (AdminReply::Status(status), Reply::Object(ObjectReply::Stores(stores))) => {
                if let Some(own) = servers.iter_mut().find(|own| own.server.is_here) {
                    own.stores = stores;
                }
                Ok((status, servers, managers))
            }
            _ => Err(unexpected_reply(&self.server)),
        }
    }

    /// All servers of the cluster, with the stores of those that are elsewhere as the manager knows
    /// them; whoever may not see these sees how many there are.
    async fn elsewhere(&self, transport: &Transport) -> Result<Vec<Stores>> {
        let asked = transport.cluster_request(ClusterRequest::Servers).await?;
        let ClusterReply::Servers(servers) = asked else {
            return Err(unexpected_reply(&self.server));
        };
        let mut all = Vec::new();
        for server in servers {
            let mut stores = Vec::new();
            if !server.is_here {
                let request = ClusterRequest::Stores {
                    server: server.server,
                };
                if let Ok(ClusterReply::Stores(known)) = transport.cluster_request(request).await {
                    stores = known;
                }
            }
            all.push(Stores { server, stores });
        }
        Ok(all)
    }
}

/// A server with its stores.
struct Stores {
    server: ServerSummary,
    stores: Vec<StoreSummary>,
}

fn status_json(server: &Address, status: &ServerStatus, servers: &[Stores]) -> Value {
    let volumes: Vec<Value> = status.volumes.iter().map(volume_json).collect();
    let sessions: Vec<Value> = status.sessions.iter().map(session_json).collect();
    let workers: Vec<Value> = status.workers.iter().map(worker_json).collect();
    let stores = servers.iter().flat_map(|server| {
        let stores = server.stores.iter();
        stores.map(|store| store_json(&server.server, store))
    });
    let stores: Vec<Value> = stores.collect();
    let servers: Vec<Value> = servers.iter().map(|of| server_json(&of.server)).collect();
    json!({
        "address": server.to_string(),
        "version": status.version,
        "cluster": status.cluster.to_string(),
        "boot": status.boot.to_string(),
        "seconds_up": status.seconds_up,
        "volumes": volumes,
        "sessions": sessions,
        "servers": servers,
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

fn server_json(server: &ServerSummary) -> Value {
    json!({
        "id": server.server.to_string(),
        "label": server.label,
        "addresses": server.addresses,
        "is_here": server.is_here,
        "seconds_away": server.seconds_away,
        "stores": server.stores,
        "bytes": server.bytes,
        "bytes_free": server.bytes_free,
    })
}

fn manager_json(manager: &ManagerSummary) -> Value {
    json!({
        "id": manager.server.to_string(),
        "label": manager.label,
        "addresses": manager.addresses,
        "leads": manager.leads,
        "is_there": manager.is_there,
    })
}

fn store_json(server: &ServerSummary, store: &StoreSummary) -> Value {
    let by_class = |[tickets, users, own]: [u64; 3]| {
        let names = ["reserved", "unreserved", "background"];
        Value::from_iter(names.into_iter().zip([tickets, users, own]))
    };
    json!({
        "id": store.store.to_string(),
        "server": server.server.to_string(),
        "path": store.path,
        "allocation_unit_bytes": store.au_bytes,
        "allocation_units": store.au_count,
        "allocation_units_free": store.au_free,
        "allocation_units_unreserved": store.au_open,
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
fn page(
    server: &Address,
    status: &ServerStatus,
    servers: &[Stores],
    managers: &[ManagerSummary],
) -> String {
    let up = seconds(status.seconds_up);
    let version = output::plain(&status.version);
    let mut page = format!(
        "{server}: azekura {version}, up {up}, cluster {}\n",
        status.cluster
    );
    if !status.volumes.is_empty() {
        page += "\n";
        page += &volume_table(&status.volumes);
        let remedy = remedy(server, &status.volumes);
        page.extend(remedy.map(|remedy| format!("{remedy}\n")));
    }
    page += &managers_table(managers);
    if servers.len() > 1 {
        let head = ["SERVER", "ADDRESS", "STORES", "SPACE", "FREE", "STATE"];
        let rows: Vec<[String; 6]> = servers.iter().map(|of| server_row(&of.server)).collect();
        page += "\n";
        page += &output::table(head, &rows);
    }
    page += &stores_table(servers);
    if !status.sessions.is_empty() {
        let head = [
            "CLIENT", "ADDRESS", "KIND", "OPEN", "LEASES", "READ", "WRITTEN", "IDLE",
        ];
        let rows: Vec<[String; 8]> = status.sessions.iter().map(session_row).collect();
        page += "\n";
        page += &output::table(head, &rows);
    }
    if !status.workers.is_empty() {
        let row = |worker: &WorkerSummary| {
            let (name, state) = (worker.name.clone(), worker.state.clone());
            [name, state, worker.progress.to_string()]
        };
        let rows: Vec<[String; 3]> = status.workers.iter().map(row).collect();
        page += "\n";
        page += &output::table(["WORK", "STATE", "DONE"], &rows);
    }
    page
}

/// All stores, and what is to be said of some.
fn stores_table(servers: &[Stores]) -> String {
    let of_server = |of: &Stores| {
        of.stores
            .iter()
            .map(|store| store_row(&of.server, store))
            .collect()
    };
    let rows: Vec<[String; 11]> = servers.iter().flat_map::<Vec<_>, _>(of_server).collect();
    let stores = || servers.iter().flat_map(|of| &of.stores);
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "STORE",
        "SPACE",
        "FREE",
        "UNRESERVED",
        "READ",
        "WRITE",
        "TICKETS",
        "PROMISED",
        "WAITING",
        "STATE",
        "IDENTITY",
    ];
    let mut table = format!("\n{}", output::table(head, &rows));
    if stores().any(|store| store.is_quick) {
        table += &format!("measured for a moment: {QUICK_HINT}\n");
    }
    if stores().any(StoreSummary::is_missing) {
        table += &format!("missing: {MISSING_HINT}\n");
    }
    if stores().any(|store| store.is_older) {
        table += &format!("an older state: {OLDER_HINT}\n");
    }
    table
}

fn managers_table(managers: &[ManagerSummary]) -> String {
    if managers.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 3]> = managers.iter().map(manager_row).collect();
    format!(
        "\n{}",
        output::table(["MANAGER", "ADDRESS", "STATE"], &rows)
    )
}

fn manager_row(manager: &ManagerSummary) -> [String; 3] {
    let state = match (manager.leads, manager.is_there) {
        (true, _) => "leads",
        (false, true) => "stands by",
        (false, false) => "away",
    };
    [
        output::plain(&manager.label),
        output::plain(&manager.addresses.join(", ")),
        state.to_owned(),
    ]
}

fn server_row(server: &ServerSummary) -> [String; 6] {
    let (name, address) = match server.is_here {
        true => ("this one".to_owned(), String::new()),
        false => (output::plain(&server.label), server.addresses.join(", ")),
    };
    let state = match (server.seconds_away, server.addresses.is_empty()) {
        (None, _) => "there".to_owned(),
        (Some(_), true) => "was never there".to_owned(),
        (Some(away), false) => format!("away for {}", seconds(away)),
    };
    [
        name,
        output::plain(&address),
        server.stores.to_string(),
        size(server.bytes),
        size(server.bytes_free),
        state,
    ]
}

fn store_row(server: &ServerSummary, store: &StoreSummary) -> [String; 11] {
    let state = match (&store.failure, store.is_degraded) {
        (Some(failure), _) => output::plain(failure),
        (None, true) => "slower than promised".to_owned(),
        (None, false) if store.is_quick => "well, measured for a moment".to_owned(),
        (None, false) => "well".to_owned(),
    };
    let name = match store.path.is_empty() {
        true => store.store.to_string(),
        false if server.is_here => output::plain(&store.path),
        false => output::plain(&format!("{}: {}", server.label, store.path)),
    };
    let percent = f64::from(store.promised_ppm) / 10_000.0;
    if store.is_missing() {
        let mut row = std::array::from_fn(|_| "-".to_owned());
        row[0] = name;
        row[9] = state;
        row[10] = store.store.to_string();
        return row;
    }
    [
        name,
        size(store.au_bytes.saturating_mul(store.au_count)),
        size(store.au_bytes.saturating_mul(store.au_free)),
        size(store.au_bytes.saturating_mul(store.au_open)),
        Rate(store.read_bytes_per_second).to_string(),
        Rate(store.write_bytes_per_second).to_string(),
        store.tickets.to_string(),
        format!("{percent:.1} %"),
        store.waiting.to_string(),
        state,
        store.store.to_string(),
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
