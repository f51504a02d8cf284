//! The measurements.

use crate::Cli;
use crate::elsewhere::Elsewhere;
use crate::fio;
use crate::load::{Got, greedy, paced};
use crate::place::{OBJECT_BYTES, Place, Site};
use crate::report::{Reader, Report, Shared};
use anyhow::{Context, Result, bail};
use reservation::scheduler::Operation;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::device::Direction;
use tokio::task::JoinSet;

/// Tickets that reserve a device together, and how much of it.
const TICKETS: u64 = 32;
const TICKETS_PPM: u32 = 900_000;
/// Users that share what nobody has reserved.
const USERS: u64 = 8;
/// Time for clients to connect.
const LEAD: Duration = Duration::from_secs(3);
/// How long the paced reader is alone before the greedy users come.
const ALONE: Duration = Duration::from_secs(2);
/// Greedy users stand for other machines, whose processors are not the server's.
const OTHERS_NICE: i32 = 10;

pub(crate) async fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let place = Place::new(cli)?;
    // Half of the store is read and written over; the rest is room for what is written anew.
    let objects = cli.size / OBJECT_BYTES / 2;
    let known = ["reader", "tickets", "leftover"];
    if let Some(other) = cli
        .parts
        .iter()
        .find(|part| !known.contains(&part.as_str()))
    {
        bail!("no part {other:?}; there are: {}", known.join(", "));
    }
    for round in 0..cli.rounds * cli.parts.len() {
        match cli.parts[round % cli.parts.len()].as_str() {
            "reader" => {
                for is_protected in [true, false] {
                    let reader = reader(cli, &place, objects, is_protected).await?;
                    report.readers.push(reader);
                }
            }
            "tickets" => {
                let users = (TICKETS, TICKETS_PPM / TICKETS as u32);
                report
                    .tickets
                    .push(shared(cli, &place, objects, users).await?);
            }
            _ => {
                // A ticket without a share is its holder among others.
                report
                    .leftover
                    .push(shared(cli, &place, objects, (USERS, 0)).await?);
            }
        }
    }
    Ok(())
}

async fn finish(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// The rate that is asked for, what was said, or half of what the device does; and its share.
fn wanted(cli: &Cli, site: &Site) -> Result<(u64, u32)> {
    let capability = site.device.capability.as_ref();
    let capability = capability.context("the device was not measured")?;
    let best = capability.best_bytes_per_second(Direction::Read);
    let most = site.device.plan.promised_ppm_max();
    let share = |rate| {
        let share = site.device.plan.share_ppm(Operation::Read, rate);
        share.filter(|share| *share <= most)
    };
    let mut rate = cli.rate.min(best / 2);
    // A noisy calibration promises less.
    while share(rate).is_none() {
        rate = rate / 10 * 9;
    }
    Ok((rate, share(rate).context("no share")?))
}

async fn reader(cli: &Cli, place: &Place, objects: u64, is_protected: bool) -> Result<Reader> {
    let site = place.start(!is_protected).await?;
    site.fill(objects).await?;
    let (rate, share_ppm) = wanted(cli, &site)?;
    let time = Duration::from_secs(cli.seconds);
    let got = Arc::new(Got::default());
    let (site, begin) = (Arc::new(site), Instant::now() + LEAD);
    let near = Elsewhere::new("reader", 0)?;
    let far = Elsewhere::new("greedy", OTHERS_NICE)?;
    let reading = {
        let (site, got) = (site.clone(), got.clone());
        near.run(async move {
            let client = site.client(Some(share_ppm), 1_000_000).await?;
            tokio::time::sleep_until(begin.into()).await;
            paced(client, got, begin, time, (rate, objects)).await
        })
    };
    let others: Vec<Arc<Got>> = (0..cli.users).map(|_| Arc::default()).collect();
    let asking = {
        let (site, others, depth) = (site.clone(), others.clone(), cli.depth);
        far.run(async move {
            let mut clients = Vec::new();
            for user in 0..others.len() as u64 {
                clients.push(site.client(None, user).await?);
            }
            // They come all at once, while the reader is under way.
            tokio::time::sleep_until((begin + ALONE).into()).await;
            let mut tasks = JoinSet::new();
            for (user, (client, other)) in clients.iter().zip(&others).enumerate() {
                let load = (time, depth);
                greedy(
                    &mut tasks,
                    client,
                    other,
                    begin,
                    load,
                    (objects, user % 2 == 1),
                );
            }
            finish(tasks).await
        })
    };
    reading.await??;
    asking.await??;
    let others: f64 = others
        .iter()
        .flat_map(|other: &Arc<Got>| other.seconds(cli.seconds))
        .sum();
    near.end();
    far.end();
    let site = Arc::into_inner(site).context("a client is still there")?;
    site.server.shutdown().await;
    Ok(Reader::new(
        is_protected,
        rate,
        share_ppm,
        &got,
        cli.seconds,
        others / (time - ALONE).as_secs_f64(),
    ))
}

/// Some who ask for all they get, each with this share; fio and the same users without a scheduler
/// before and after.
async fn shared(
    cli: &Cli,
    place: &Place,
    objects: u64,
    (count, share_ppm): (u64, u32),
) -> Result<Shared> {
    let site = place.start(false).await?;
    site.fill(objects).await?;
    let piece = site.device.plan.read_piece_bytes;
    let cost = site.device.plan.cost_nanos(Operation::Read, piece) as f64;
    let promised = f64::from(share_ppm) / 1e6 * f64::from(piece) / (cost / 1e9);
    let file = place.file();
    let seconds = (cli.seconds / 2).max(2);
    let before = fio::read(&file, piece, seconds)?;
    let each = greedy_users(cli, &site, objects, (count, share_ppm)).await?;
    site.server.shutdown().await;
    let after = fio::read(&file, piece, seconds)?;
    let site = place.start(true).await?;
    let unscheduled = greedy_users(cli, &site, objects, (count, share_ppm)).await?;
    site.server.shutdown().await;
    let unscheduled: f64 = unscheduled.iter().map(|seconds| mean(seconds)).sum();
    Ok(Shared::new(
        promised,
        &each,
        f64::midpoint(before, after),
        unscheduled,
    ))
}

fn mean(seconds: &[f64]) -> f64 {
    seconds.iter().sum::<f64>() / seconds.len().max(1) as f64
}

/// What each of some readers had in each second.
async fn greedy_users(
    cli: &Cli,
    site: &Site,
    objects: u64,
    (count, share_ppm): (u64, u32),
) -> Result<Vec<Vec<f64>>> {
    let time = Duration::from_secs(cli.seconds);
    let mut clients = Vec::new();
    for user in 0..count {
        clients.push(site.client(Some(share_ppm), 1000 + user).await?);
    }
    let all: Vec<Arc<Got>> = clients.iter().map(|_| Arc::default()).collect();
    let (mut tasks, begin) = (JoinSet::new(), Instant::now());
    for (client, got) in clients.iter().zip(&all) {
        let load = (time, cli.depth);
        greedy(&mut tasks, client, got, begin, load, (objects, false));
    }
    finish(tasks).await?;
    Ok(all.iter().map(|got| got.seconds(cli.seconds)).collect())
}
