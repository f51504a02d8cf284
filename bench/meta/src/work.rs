//! What is done with an engine, and how long each thing takes.

use anyhow::{Context, bail};
use figures::spread;
use meta::{Condition, Embedded, Engine, Leadership, MetaError, Transaction};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// A row of the ledger: what a reservation with a few claims takes.
const ROW_BYTES: usize = 500;
/// Transactions of a leader that are under way at once.
const LEADER_TRANSACTIONS: usize = 4;

/// What was done, and how long each took, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) times_us: Vec<f64>,
    pub(crate) seconds: f64,
}

/// Clients that do one thing after the other until the time is over; `work` is told which client
/// and which of its things it is.
async fn repeat<W, F>(clients: usize, time: Duration, work: W) -> anyhow::Result<Done>
where
    W: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let begin = Instant::now();
    let mut running = JoinSet::new();
    for client in 0..clients {
        let work = work.clone();
        running.spawn(async move {
            let mut times_us = Vec::new();
            while begin.elapsed() < time {
                let begun = Instant::now();
                work(client, times_us.len() as u64).await?;
                times_us.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            anyhow::Ok(times_us)
        });
    }
    let mut done = Done::default();
    while let Some(times_us) = running.join_next().await {
        done.times_us.extend(times_us??);
    }
    done.seconds = begin.elapsed().as_secs_f64();
    Ok(done)
}

/// Each makes an entry of 128 bytes, an index of it, and counts.
pub(crate) async fn transactions(
    engine: &Arc<dyn Engine>,
    clients: usize,
    time: Duration,
) -> anyhow::Result<Done> {
    let engine = Arc::clone(engine);
    repeat(clients, time, move |client, count| {
        let engine = Arc::clone(&engine);
        async move {
            let number = spread((clients as u64) << 48 | (client as u64) << 32 | count);
            let key = format!("entry/{number:016x}");
            let transaction = Transaction::new()
                .when(Condition::Absent(key.clone().into()))
                .put(&key, vec![1; 128])
                .put(format!("index/{clients}/{client}/{count}"), key)
                .put(format!("count/{client}"), count.to_le_bytes());
            engine.commit(transaction).await?;
            Ok(())
        }
    })
    .await
}

/// One who waits until his reservation is durable.
type Asked = (u64, oneshot::Sender<()>);

/// Clients ask for reservations one after the other; a leader writes those that have come together
/// in transactions that his epoch guards.
pub(crate) async fn admissions(
    engine: &Arc<dyn Engine>,
    clients: usize,
    rows: usize,
    time: Duration,
) -> anyhow::Result<Done> {
    let leadership = engine.lead("calendar", "bench").await?;
    let leadership = Arc::new(leadership);
    let (ask, asked) = mpsc::channel::<Asked>(clients);
    let leader = tokio::spawn(lead(
        Arc::clone(engine),
        Arc::clone(&leadership),
        asked,
        rows,
    ));
    let done = repeat(clients, time, move |client, count| {
        let ask = ask.clone();
        async move {
            let number = (clients as u64) << 48 | (client as u64) << 32 | count;
            let (answer, answered) = oneshot::channel();
            ask.send((spread(number), answer)).await?;
            answered.await.context("the leader did not write it")
        }
    })
    .await;
    leader.await??;
    match Arc::into_inner(leadership) {
        Some(leadership) => leadership.resign().await,
        None => bail!("somebody still leads"),
    }
    done
}

async fn lead(
    engine: Arc<dyn Engine>,
    leadership: Arc<Leadership>,
    mut asked: mpsc::Receiver<Asked>,
    rows: usize,
) -> anyhow::Result<()> {
    let mut under_way = JoinSet::new();
    let mut group = Vec::new();
    while asked.recv_many(&mut group, rows).await > 0 {
        if under_way.len() >= LEADER_TRANSACTIONS {
            under_way.join_next().await.context("there are some")???;
            // Whoever has asked meanwhile goes with them.
            while group.len() < rows
                && let Ok(one) = asked.try_recv()
            {
                group.push(one);
            }
        }
        let group = std::mem::take(&mut group);
        let (engine, leadership) = (Arc::clone(&engine), Arc::clone(&leadership));
        under_way.spawn(async move {
            let mut transaction = Transaction::new().guarded_by(&leadership);
            for (number, _) in &group {
                let key = format!("reservation/{number:016x}");
                transaction = transaction.put(key, vec![2; ROW_BYTES]);
            }
            engine.commit(transaction).await?;
            for (_, answer) in group {
                // A client that has gone does not wait.
                let _ = answer.send(());
            }
            anyhow::Ok(())
        });
    }
    while let Some(written) = under_way.join_next().await {
        written??;
    }
    Ok(())
}

/// Reads of entries that `transactions` has counted.
pub(crate) async fn reads(
    engine: &Arc<dyn Engine>,
    clients: usize,
    time: Duration,
) -> anyhow::Result<Done> {
    let engine = Arc::clone(engine);
    repeat(clients, time, move |client, _| {
        let engine = Arc::clone(&engine);
        async move {
            let key = format!("count/{client}");
            engine.get(key.as_bytes()).await?;
            Ok(())
        }
    })
    .await
}

/// Fills an engine with reservations, says so, and is killed.
pub(crate) async fn fill(path: &Path, count: usize) -> anyhow::Result<()> {
    let engine = Embedded::open(path).await?;
    let numbers: Vec<_> = (0..count as u64).collect();
    let mut under_way = JoinSet::new();
    for some in numbers.chunks(100) {
        let mut transaction = Transaction::new();
        for number in some {
            let key = format!("reservation/{:016x}", spread(*number));
            transaction = transaction.put(key, vec![2; ROW_BYTES]);
        }
        if under_way.len() >= 64 {
            let written: Option<Result<Result<_, MetaError>, _>> = under_way.join_next().await;
            written.context("there are some")???;
        }
        let engine = Arc::clone(&engine);
        under_way.spawn(async move { engine.commit(transaction).await });
    }
    while let Some(written) = under_way.join_next().await {
        written??;
    }
    // Without closing anything: as if killed.
    std::process::abort();
}

/// How long an engine takes to open after a process with so many reservations in it was killed.
pub(crate) fn opening(directory: &Path, count: usize) -> anyhow::Result<f64> {
    let place = TempDir::new_in(directory)?;
    let path = place.path().join("meta");
    let filled = Command::new(std::env::current_exe()?)
        .args(["--opened", &count.to_string(), "--fill"])
        .arg(&path)
        .status()?;
    if filled.code().is_some() {
        bail!("filling ended with {filled}, and not by being killed");
    }
    let runtime = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let begin = Instant::now();
        let engine = runtime.block_on(Embedded::open(&path))?;
        let seconds = begin.elapsed().as_secs_f64();
        drop(engine);
        anyhow::Ok(seconds)
    });
    match runtime.join() {
        Ok(seconds) => seconds,
        Err(_) => bail!("opening panicked"),
    }
}
