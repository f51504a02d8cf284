//! What clients do, and what is noted of it.

use crate::place::{OBJECT_BYTES, object};
use anyhow::Result;
use bytes::Bytes;
use client::object::StoreClient;
use figures::spread;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Requests that a paced reader has under way at most: half a second of it.
const PACED_REQUESTS_MAX: usize = 400;

/// What one client got: bytes by second, and how long each request took.
#[derive(Debug, Default)]
pub(crate) struct Got {
    seconds: Mutex<Vec<u64>>,
    micros: Mutex<Vec<f64>>,
    next: AtomicU64,
}

impl Got {
    fn note(&self, begin: Instant, asked: Instant, bytes: u64) {
        let second = begin.elapsed().as_secs() as usize;
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        if seconds.len() <= second {
            seconds.resize(second + 1, 0);
        }
        seconds[second] += bytes;
        drop(seconds);
        let micros = asked.elapsed().as_secs_f64() * 1e6;
        let mut all = self.micros.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(micros);
    }

    /// Bytes of each whole second but the first one, in which the load begins.
    pub(crate) fn seconds(&self, seconds: u64) -> Vec<f64> {
        let noted = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |second: u64| noted.get(second as usize).copied().unwrap_or(0) as f64;
        (1..seconds).map(of).collect()
    }

    /// Milliseconds below which so many of a hundred requests lie.
    pub(crate) fn millis(&self, share: f64) -> f64 {
        let mut micros = self.micros.lock().unwrap_or_else(PoisonError::into_inner);
        micros.sort_by(f64::total_cmp);
        figures::quantile(&micros, share).unwrap_or_default() / 1000.0
    }
}

/// Where the next piece of a client lies.
fn place(next: u64, piece: u32, objects: u64) -> (base::ObjectId, u64) {
    let pieces = OBJECT_BYTES / u64::from(piece);
    let at = spread(next);
    (
        object(at % objects),
        at / objects % pieces * u64::from(piece),
    )
}

/// Asks for as much as it gets.
pub(crate) fn greedy(
    tasks: &mut JoinSet<Result<()>>,
    client: &StoreClient,
    got: &Arc<Got>,
    begin: Instant,
    (time, depth): (Duration, usize),
    (objects, writes): (u64, bool),
) {
    let piece = match writes {
        true => client.write_piece_bytes(),
        false => client.read_piece_bytes(),
    };
    let data = Bytes::from(vec![0x5a; piece as usize]);
    let seed = Arc::as_ptr(got).addr() as u64;
    for _ in 0..depth {
        let (client, got, data) = (client.clone(), got.clone(), data.clone());
        tasks.spawn(async move {
            while begin.elapsed() < time {
                let asked = Instant::now();
                let next = got.next.fetch_add(1, Ordering::Relaxed);
                let (object, offset) = place(seed.wrapping_add(next), piece, objects);
                if writes {
                    client.write(object, offset, data.clone()).await?;
                } else {
                    client.read(object, offset, u64::from(piece)).await?;
                }
                got.note(begin, asked, u64::from(piece));
            }
            Ok(())
        });
    }
}

/// Asks for one piece after the other at a rate, whether the ones before have come or not.
pub(crate) async fn paced(
    client: StoreClient,
    got: Arc<Got>,
    begin: Instant,
    time: Duration,
    (rate, objects): (u64, u64),
) -> Result<()> {
    let piece = client.read_piece_bytes();
    let interval = Duration::from_secs_f64(f64::from(piece) / rate as f64);
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    let mut next = 0_u32;
    while begin.elapsed() < time {
        let due = begin + interval * next;
        tokio::time::sleep_until(due.into()).await;
        // Late by as much as the timer is: those that are due go together.
        while begin + interval * next <= Instant::now() {
            let asked = begin + interval * next;
            let (object, offset) = place(u64::from(next), piece, objects);
            let (client, got) = (client.clone(), got.clone());
            tasks.spawn(async move {
                client.read(object, offset, u64::from(piece)).await?;
                got.note(begin, asked, u64::from(piece));
                Ok(())
            });
            next += 1;
        }
        while let Some(done) = tasks.try_join_next() {
            done??;
        }
        while tasks.len() > PACED_REQUESTS_MAX {
            if let Some(done) = tasks.join_next().await {
                done??;
            }
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
