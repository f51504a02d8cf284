//! Reading workloads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use figures::Random;
use serde::{Deserialize, Serialize};

use super::{Clock, Latencies, Outcome, Workload};
use crate::content::{Verify, differs_at};

/// Distance of samples in a time line.
const SAMPLE_S: f64 = 0.005;
/// Pages are where random reads start.
const PAGE_BYTES: u64 = 4096;

/// The order in which a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Pattern {
    /// From the start.
    Sequential { bytes: u64 },
    /// Blocks of one call from the end to the start of the first `bytes`.
    Reverse { bytes: u64 },
    /// `runs` runs of `run_bytes`, each `step_bytes` after the one before.
    Stride {
        runs: u64,
        run_bytes: u64,
        step_bytes: u64,
    },
    /// Groups of such runs, each group `group_bytes` after the one before.
    Nested {
        groups: u64,
        group_bytes: u64,
        runs: u64,
        run_bytes: u64,
        step_bytes: u64,
    },
    /// Streams in turn, one call each, `apart_bytes` from one another.
    Interleaved {
        streams: u64,
        apart_bytes: u64,
        bytes_each: u64,
    },
}

impl Pattern {
    /// Offset and length of each call.
    pub(crate) fn calls(&self, call_bytes: u64) -> Vec<(u64, u64)> {
        let run = |start: u64, bytes: u64| {
            (0..bytes.div_ceil(call_bytes)).map(move |index| {
                let at = index * call_bytes;
                (start + at, call_bytes.min(bytes - at))
            })
        };
        match *self {
            Self::Sequential { bytes } => run(0, bytes).collect(),
            Self::Reverse { bytes } => {
                let mut calls: Vec<_> = run(0, bytes).collect();
                calls.reverse();
                calls
            }
            Self::Stride {
                runs,
                run_bytes,
                step_bytes,
            } => (0..runs)
                .flat_map(|index| run(index * step_bytes, run_bytes))
                .collect(),
            Self::Nested {
                groups,
                group_bytes,
                runs,
                run_bytes,
                step_bytes,
            } => (0..groups)
                .flat_map(|group| (0..runs).map(move |r| group * group_bytes + r * step_bytes))
                .flat_map(|start| run(start, run_bytes))
                .collect(),
            Self::Interleaved {
                streams,
                apart_bytes,
                bytes_each,
            } => run(0, bytes_each)
                .flat_map(|(at, len)| (0..streams).map(move |s| (s * apart_bytes + at, len)))
                .collect(),
        }
    }
}

/// Reads `len` bytes at `offset` and checks them.
fn read_checked(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    seed: u64,
    verify: Verify,
) -> anyhow::Result<()> {
    let mut read = 0;
    while read < buffer.len() {
        let at = offset + read as u64;
        match file
            .read_at(&mut buffer[read..], at)
            .with_context(|| format!("reading at {at}"))?
        {
            0 => bail!("the file ends at {at}"),
            len => read += len,
        }
    }
    match differs_at(seed, offset, buffer, verify) {
        Some(at) => bail!("wrong content at {at}"),
        None => Ok(()),
    }
}

/// Calls one after another.
pub(crate) fn in_pattern(
    path: &str,
    seed: u64,
    calls: &[(u64, u64)],
    verify: Verify,
    clock: Clock,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::out_of(calls.iter().map(|(_, len)| len).sum());
    let file = File::open(path).with_context(|| format!("opening {path}"))?;
    let mut buffer = vec![0u8; calls.iter().map(|(_, len)| *len).max().unwrap_or(0) as usize];
    let mut samples: Vec<(f64, u64)> = vec![(clock.elapsed_s(), 0)];
    for &(offset, len) in calls {
        read_checked(&file, &mut buffer[..len as usize], offset, seed, verify)?;
        outcome.done += len;
        let now_s = clock.elapsed_s();
        outcome.first_byte_s.get_or_insert(now_s);
        if now_s - samples.last().map_or(0.0, |(time_s, _)| *time_s) >= SAMPLE_S {
            samples.push((now_s, outcome.done));
        }
        if clock.is_over() {
            break;
        }
    }
    outcome.seconds = clock.elapsed_s();
    samples.push((outcome.seconds, outcome.done));
    outcome.steady_bytes_per_s = steady(&samples);
    outcome.timeline = samples;
    Ok(outcome)
}

/// Rate from the moment when half of the bytes were there until the end.
pub(crate) fn steady(samples: &[(f64, u64)]) -> Option<f64> {
    let (end_s, end_bytes) = *samples.last()?;
    let (half_s, half_bytes) = *samples.iter().find(|(_, bytes)| *bytes >= end_bytes / 2)?;
    (end_s > half_s).then(|| (end_bytes - half_bytes) as f64 / (end_s - half_s))
}

/// Readers at random places, each one call at a time.
pub(crate) fn at_random(workload: &Workload, clock: Clock) -> anyhow::Result<Outcome> {
    let Workload::Random {
        file,
        seed,
        file_bytes,
        call_bytes,
        readers,
        reads_each,
        draw,
    } = workload
    else {
        bail!("not a random workload");
    };
    let one = |reader: u32| -> anyhow::Result<Vec<f64>> {
        let file = File::open(file).with_context(|| format!("opening {file}"))?;
        let mut random = Random::new(draw.wrapping_mul(1000) + u64::from(reader));
        let mut buffer = vec![0u8; *call_bytes as usize];
        let mut times = Vec::new();
        for _ in 0..*reads_each {
            let page = random.below((file_bytes - call_bytes) / PAGE_BYTES);
            let start = Instant::now();
            read_checked(&file, &mut buffer, page * PAGE_BYTES, *seed, Verify::Full)?;
            times.push(start.elapsed().as_secs_f64());
            if clock.is_over() {
                break;
            }
        }
        Ok(times)
    };
    let times: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..*readers)
            .map(|reader| scope.spawn(move || one(reader)))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().expect("a reader returns its errors")?);
        }
        Ok::<_, anyhow::Error>(all)
    })?;
    Ok(Outcome {
        done: times.len() as u64 * call_bytes,
        total: u64::from(*readers) * u64::from(*reads_each) * call_bytes,
        seconds: clock.elapsed_s(),
        latency: Latencies::of(times),
        ..Outcome::default()
    })
}

/// Small reads while bulk runs: the bulk reader gets 2 s to come up to speed.
pub(crate) fn on_demand(workload: &Workload, clock: Clock) -> anyhow::Result<Outcome> {
    const LEAD: Duration = Duration::from_secs(2);
    const GAP: Duration = Duration::from_millis(100);
    const CALL_BYTES: u64 = 4096;
    let Workload::Demand {
        bulk,
        bulk_seed,
        bulk_bytes,
        file,
        seed,
        file_bytes,
        reads,
        draw,
    } = workload
    else {
        bail!("not a demand workload");
    };
    let stop = AtomicBool::new(false);
    let bulk_done = AtomicU64::new(0);
    let stream = || read_bulk(bulk, *bulk_seed, *bulk_bytes, &stop, &bulk_done);
    let demand = || -> anyhow::Result<(Vec<f64>, f64)> {
        let file = File::open(file).with_context(|| format!("opening {file}"))?;
        let mut random = Random::new(*draw);
        let mut buffer = vec![0u8; CALL_BYTES as usize];
        let mut times = Vec::new();
        std::thread::sleep(LEAD);
        let (from_s, from_bytes) = (clock.elapsed_s(), bulk_done.load(Ordering::Relaxed));
        for _ in 0..*reads {
            let page = random.below(file_bytes / PAGE_BYTES - 1);
            let start = Instant::now();
            read_checked(&file, &mut buffer, page * PAGE_BYTES, *seed, Verify::Full)?;
            times.push(start.elapsed().as_secs_f64());
            if clock.is_over() {
                break;
            }
            std::thread::sleep(GAP);
        }
        let bytes = bulk_done.load(Ordering::Relaxed) - from_bytes;
        Ok((times, bytes as f64 / (clock.elapsed_s() - from_s)))
    };
    let (times, bulk_bytes_per_s) = std::thread::scope(|scope| {
        let streaming = scope.spawn(stream);
        let asked = demand();
        stop.store(true, Ordering::Relaxed);
        streaming
            .join()
            .expect("the bulk reader returns its errors")?;
        asked
    })?;
    Ok(Outcome {
        done: times.len() as u64,
        total: u64::from(*reads),
        seconds: clock.elapsed_s(),
        steady_bytes_per_s: Some(bulk_bytes_per_s),
        latency: Latencies::of(times),
        ..Outcome::default()
    })
}

/// Reads a file from front to back until it ends or `stop` is set, counting bytes in `done`.
fn read_bulk(
    path: &str,
    seed: u64,
    bytes: u64,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| format!("opening {path}"))?;
    let mut buffer = vec![0u8; 128 << 10];
    let calls = Pattern::Sequential { bytes }.calls(buffer.len() as u64);
    for (offset, len) in calls {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let part = &mut buffer[..len as usize];
        read_checked(&file, part, offset, seed, Verify::Full)?;
        done.fetch_add(len, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_make_the_calls_they_name() {
        assert_eq!(
            Pattern::Sequential { bytes: 5 }.calls(2),
            [(0, 2), (2, 2), (4, 1)]
        );
        assert_eq!(Pattern::Reverse { bytes: 4 }.calls(2), [(2, 2), (0, 2)]);
        let stride = Pattern::Stride {
            runs: 2,
            run_bytes: 3,
            step_bytes: 9,
        };
        assert_eq!(stride.calls(3), [(0, 3), (9, 3)]);
        let nested = Pattern::Nested {
            groups: 2,
            group_bytes: 100,
            runs: 2,
            run_bytes: 1,
            step_bytes: 3,
        };
        assert_eq!(nested.calls(1), [(0, 1), (3, 1), (100, 1), (103, 1)]);
        let interleaved = Pattern::Interleaved {
            streams: 2,
            apart_bytes: 50,
            bytes_each: 4,
        };
        assert_eq!(interleaved.calls(2), [(0, 2), (50, 2), (2, 2), (52, 2)]);
    }

    #[test]
    fn the_steady_rate_leaves_the_start_out() {
        let samples = [(0.0, 0), (5.0, 10), (6.0, 60), (7.0, 110)];
        assert_eq!(steady(&samples), Some(50.0));
    }
}
