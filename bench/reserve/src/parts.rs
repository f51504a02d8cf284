//! The measurements.

use crate::Cli;
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

pub(crate) async fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let place = Place::new(cli)?;
    // Half of the store is read and written over; the rest is room for what is written anew.
    let objects = cli.size / OBJECT_BYTES / 2;
    for part in &cli.parts {
        match part.as_str() {
            "reader" => {
                for is_protected in [true, false] {
                    let reader = reader(cli, &place, objects, is_protected).await?;
                    report.readers.push(reader);
                }
            }
            "tickets" => report.tickets = Some(tickets(cli, &place, objects).await?),
            "leftover" => report.leftover = Some(leftover(cli, &place, objects).await?),
            other => bail!("no part {other:?}; there are: reader, tickets, leftover"),
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

/// The rate that is asked for: what was said, or half of what the device does.
fn wanted(cli: &Cli, site: &Site) -> Result<u64> {
    let capability = site.device.capability.as_ref();
    let capability = capability.context("the device was not measured")?;
    let best = capability.best_bytes_per_second(Direction::Read);
    Ok(cli.rate.min(best / 2))
}

async fn reader(cli: &Cli, place: &Place, objects: u64, is_protected: bool) -> Result<Reader> {
    let site = place.start(!is_protected).await?;
    site.fill(objects).await?;
    let mut rate = wanted(cli, &site)?;
    let most = site.device.plan.promised_ppm_max();
    let share = |rate| {
        let share = site.device.plan.share_ppm(Operation::Read, rate);
        share.filter(|share| *share <= most)
    };
    // A noisy calibration promises less.
    while share(rate).is_none() {
        rate = rate / 10 * 9;
    }
    let share_ppm = share(rate).context("no share")?;
    let time = Duration::from_secs(cli.seconds);
    let (mut tasks, got) = (JoinSet::new(), Arc::new(Got::default()));
    let reserved = site.client(Some(share_ppm), 1_000_000).await?;
    let mut greedy_clients = Vec::new();
    for user in 0..cli.users as u64 {
        greedy_clients.push(site.client(None, user).await?);
    }
    let others: Vec<_> = greedy_clients.iter().map(|_| Arc::default()).collect();
    let begin = Instant::now();
    for (user, (client, other)) in greedy_clients.iter().zip(&others).enumerate() {
        let writes = user % 2 == 1;
        let load = (time, cli.depth);
        greedy(&mut tasks, client, other, begin, load, (objects, writes));
    }
    tasks.spawn(paced(reserved, got.clone(), begin, time, (rate, objects)));
    finish(tasks).await?;
    let others: f64 = others
        .iter()
        .flat_map(|other: &Arc<Got>| other.seconds(cli.seconds))
        .sum();
    site.server.shutdown().await;
    Ok(Reader::new(
        is_protected,
        rate,
        share_ppm,
        &got,
        cli.seconds,
        others / (cli.seconds - 1) as f64,
    ))
}

async fn tickets(cli: &Cli, place: &Place, objects: u64) -> Result<Shared> {
    let site = place.start(false).await?;
    site.fill(objects).await?;
    let share_ppm = TICKETS_PPM / TICKETS as u32;
    shared(cli, place, site, objects, (TICKETS, share_ppm)).await
}

async fn leftover(cli: &Cli, place: &Place, objects: u64) -> Result<Shared> {
    let site = place.start(false).await?;
    site.fill(objects).await?;
    // A ticket without a share is its holder among others.
    shared(cli, place, site, objects, (USERS, 0)).await
}

/// Some who ask for all they get, each with this share.
async fn shared(
    cli: &Cli,
    place: &Place,
    site: Site,
    objects: u64,
    (count, share_ppm): (u64, u32),
) -> Result<Shared> {
    let piece = site.device.plan.read_piece_bytes;
    let before = fio::read(&place.file(), piece, 5)?;
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
    let cost = site.device.plan.cost_nanos(Operation::Read, piece) as f64;
    let promised = f64::from(share_ppm) / 1e6 * f64::from(piece) / (cost / 1e9);
    site.server.shutdown().await;
    let after = fio::read(&place.file(), piece, 5)?;
    let seconds = cli.seconds;
    let each: Vec<Vec<f64>> = all.iter().map(|got| got.seconds(seconds)).collect();
    Ok(Shared::new(promised, &each, f64::midpoint(before, after)))
}
