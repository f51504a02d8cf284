//! Admissions: clients ask a manager one after the other, each answer is durable.
//!
//! The manager is the real one, with its calendars and its ledger, on an engine in a file or on
//! three members of etcd; a server with a measured store beside it issues the tickets. Clients are
//! tasks of this process, so that no network is measured.

use crate::engine_place::Place;
use anyhow::{Context, bail};
use figures::spread;
use server::{Manager, NewStore, OpenEngine, RunningServer, Server, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::task::JoinSet;
use wire::message::{ReserveReply, ReserveRequest, ReserveTerms, ReserveWindow};

/// Size of the store that gives its device time.
const STORE_BYTES: u64 = 64 << 20;
/// Each asks for so little that the calendar does not fill up.
const BYTES_PER_SECOND: u64 = 1000;
/// Windows begin at different seconds of so many.
const SPREAD_SECONDS: u64 = 30 * 86_400;

/// What was measured on one engine.
#[derive(Debug)]
pub(crate) struct Admissions {
    pub(crate) engine: String,
    pub(crate) clients: usize,
    /// What the disk does of 4 KiB, before.
    pub(crate) flushes_per_second: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Measures on each engine with each number of clients.
pub(crate) async fn measure(
    directory: &Path,
    engines: &[String],
    clients: &[usize],
    time: Duration,
) -> anyhow::Result<Vec<Admissions>> {
    let (_data, server) = start(directory).await?;
    let mut all = Vec::new();
    for name in engines {
        for count in clients {
            let place = Arc::new(match name.as_str() {
                "embedded" => Place::embedded(directory)?,
                "etcd" => Place::etcd(directory)?,
                other => bail!("no engine {other:?}; there are: embedded, etcd"),
            });
            let flushes = place.flushes_per_second()?;
            let manager = Arc::new(manager(&server, &place).await?);
            let (times, seconds) = ask(&manager, *count, time).await?;
            all.push(row(name, (*count, flushes), times, seconds));
            // It is joined when it is dropped, which may block.
            tokio::task::spawn_blocking(move || drop(manager)).await?;
        }
    }
    server.shutdown().await;
    Ok(all)
}

async fn start(directory: &Path) -> anyhow::Result<(TempDir, RunningServer)> {
    let data = TempDir::new_in(directory)?;
    let store = NewStore {
        path: "stores/0".into(),
        size_bytes: Some(STORE_BYTES),
    };
    let path = data.path().join("srv");
    let making = path.clone();
    tokio::task::spawn_blocking(move || Server::init_with_store(&making, Some(&store))).await??;
    let server = Server::start(ServerConfig::new(path, "127.0.0.1:0".parse()?)).await?;
    Ok((data, server))
}

async fn manager(server: &RunningServer, place: &Arc<Place>) -> anyhow::Result<Manager> {
    let place = place.clone();
    let open: OpenEngine = Box::new(move || {
        let place = place.clone();
        Box::pin(async move {
            let opened = place.open().await;
            opened.map_err(|error| meta::MetaError::Unavailable(error.to_string()))
        })
    });
    let storage = server.storage().clone();
    let starting = move || Manager::on_engine(open, storage, "bench");
    Ok(tokio::task::spawn_blocking(starting).await??)
}

/// How long each took, in milliseconds, and all together in seconds.
async fn ask(
    manager: &Arc<Manager>,
    clients: usize,
    time: Duration,
) -> anyhow::Result<(Vec<f64>, f64)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let begin = Instant::now();
    let mut running = JoinSet::new();
    for client in 0..clients as u64 {
        let manager = manager.clone();
        running.spawn(async move {
            let mut times = Vec::new();
            while begin.elapsed() < time {
                let number = client << 32 | times.len() as u64;
                let begun = Instant::now();
                let reply = manager.reserve(0, create(number, now)).await;
                if !matches!(reply, ReserveReply::Reserved { .. }) {
                    bail!("not admitted: {reply:?}");
                }
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(times)
        });
    }
    let mut all = Vec::new();
    while let Some(times) = running.join_next().await {
        all.extend(times??);
    }
    Ok((all, begin.elapsed().as_secs_f64()))
}

fn create(number: u64, now: u64) -> ReserveRequest {
    let mut request = [0; 16];
    request[..8].copy_from_slice(&number.to_le_bytes());
    let start_secs = now + 60 + spread(number) % SPREAD_SECONDS;
    ReserveRequest::Create {
        request,
        volume: String::new(),
        name: String::new(),
        terms: ReserveTerms {
            read_bytes_per_second: BYTES_PER_SECOND,
            write_bytes_per_second: 0,
            burst_millis: 0,
            space_bytes: 0,
            window: ReserveWindow::At {
                start_secs,
                end_secs: start_secs + 60,
            },
            every_secs: 0,
            count: 1,
            lifetime_secs: 0,
            stores: Vec::new(),
        },
        dry_run: false,
    }
}

fn row(
    engine: &str,
    (clients, flushes_per_second): (usize, f64),
    mut times: Vec<f64>,
    seconds: f64,
) -> Admissions {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let last = times.len().saturating_sub(1);
        times.get((last as f64 * part) as usize).copied()
    };
    Admissions {
        engine: engine.to_owned(),
        clients,
        flushes_per_second,
        per_second: times.len() as f64 / seconds,
        p50_ms: at(0.5).unwrap_or_default(),
        p99_ms: at(0.99).unwrap_or_default(),
    }
}

/// A table for people.
pub(crate) fn table(all: &[Admissions]) -> String {
    let mut text =
        "| engine | clients | disk's flushes/s | durable admissions/s | p50 ms | p99 ms |\n\
        |---|---|---|---|---|---|\n"
            .to_owned();
    for one in all {
        text += &format!(
            "| {} | {} | {:.0} | {:.0} | {:.1} | {:.1} |\n",
            one.engine, one.clients, one.flushes_per_second, one.per_second, one.p50_ms, one.p99_ms
        );
    }
    text
}

/// As JSON.
pub(crate) fn json(all: &[Admissions]) -> anyhow::Result<String> {
    let rows: Vec<_> = all
        .iter()
        .map(|one| {
            serde_json::json!({
                "engine": one.engine,
                "clients": one.clients,
                "flushes_per_second": one.flushes_per_second,
                "per_second": one.per_second,
                "p50_ms": one.p50_ms,
                "p99_ms": one.p99_ms,
            })
        })
        .collect();
    serde_json::to_string(&rows).context("figures are plain data")
}
