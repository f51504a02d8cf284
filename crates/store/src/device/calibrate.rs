//! How fast a device is: the table that admission is computed from, and the allocation unit.
//!
//! Measured are reads and writes of 64 KiB to 8 MiB, 1 to 16 at once (as far as the bound on bytes
//! under way lets them), alone and half and half, at places that are multiples of the size: as a
//! store uses its device. The region is written first, with bytes that cannot be compressed: new
//! space and zeros are faster than anything a store will see.
//!
//! A table has about a hundred cells, and an administrator waits: there is half a second for each.
//! So a sample takes 60 ms instead of a second, and a cell gets several, each in another round. A
//! round goes through all cells in a new order, so that whatever else happens on the machine is
//! spread over all of them and not over one. What is promised is the 5th percentile of the samples
//! (with fewer than twenty: the lowest). Short samples spread more widely than long ones, so this
//! errs towards promising less. After a sample with writes comes a flush, whose time counts: speed
//! into a volatile cache is no speed.
//!
//! The allocation unit is chosen from extra samples at the engine's depth: `unit.rs`. Where the
//! device is slow and time runs out, they go before the second half of the rounds: a table of fewer
//! samples is less certain and can be measured anew, but the unit is for ever.
//!
//! **Everything in the region is lost.** Source: paper section 3.3.1 (the unit is measured when a
//! store is formatted) and 4.4.

use super::sample::{Load, Places, Sample, sample};
use super::unit::{Choice, Rounds, choose};
use super::{AlignedBuffer, Pending, Progress, Queue, Request};
use base::limits::{CALIBRATION_TIME_MAX, DEVICE_IN_FLIGHT_BYTES_MAX};
use base::{DeviceError, Extent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Powers of two, so that every unit is a multiple of every smaller one.
const SIZES_BYTES: [u32; 8] = [
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
];
const DEPTHS: [u32; 5] = [1, 2, 4, 8, 16];
const MIXES_PERCENT: [u32; 3] = [0, 50, 100];
/// The engine keeps about this many requests under way; the unit is chosen at this depth.
const UNIT_DEPTH: u32 = 4;
const SAMPLE_TIME: Duration = Duration::from_millis(60);
/// Who has measured each load for less than this has measured it for a moment. The rounds before
/// the unit is chosen come to more, and all of a calibration to at least twice as much.
const QUICK_TIME: Duration = Duration::from_millis(100);
/// Rounds through the whole table before the unit is chosen.
const ROUNDS: u32 = 2;
/// Rounds for the unit after each of those.
const UNIT_ROUNDS: u32 = 8;
/// Rounds for the unit that are added while it is contested, and again after the rest.
const CONTESTED_ROUNDS: u32 = 8;
/// Rounds through the whole table in the time that is left.
const MORE_ROUNDS: u32 = 2;
/// Bytes measured at most: more than the caches of most disks, written in seconds.
const REGION_BYTES_MAX: u64 = 2 << 30;
/// Time for writing the region; what is written by then is the region.
const FILL_TIME: Duration = Duration::from_secs(8);
/// Pieces in which it is written.
const FILL_BYTES: u32 = 4 << 20;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Which bytes may be overwritten. At least 16 MiB make sense; no more than 2 GiB are used.
    pub region: Extent,
    /// When to be done, whatever is missing; each cell is measured once even so.
    pub time_max: Duration,
    /// Length of one sample. Longer ones need more time in all.
    pub sample_time: Duration,
    /// Of the order of samples and the places.
    pub seed: u64,
}

impl Calibration {
    /// Measures in `region`, within the time that an administrator is asked to wait.
    #[must_use]
    pub fn new(region: Extent) -> Self {
        Self {
            region,
            time_max: CALIBRATION_TIME_MAX,
            sample_time: SAMPLE_TIME,
            seed: 0,
        }
    }
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The region has not even room for the smallest size.
    #[error("{region} has no room for a measurement of {} bytes", SIZES_BYTES[0])]
    TooSmall {
        /// What was given.
        region: Extent,
    },
    /// Whoever watched the progress has had enough.
    #[error("cancelled")]
    Cancelled,
    /// The device failed.
    #[error("the device failed while it was measured")]
    Device(#[from] DeviceError),
}

/// Whether bytes come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// One cell: what a device does under one kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredRate {
    /// Which bytes are counted.
    pub direction: Direction,
    /// Bytes of each request.
    pub size_bytes: u32,
    /// Requests under way at once.
    pub depth: u32,
    /// How many of a hundred requests were writes.
    pub write_percent: u32,
    /// 5th percentile of the samples: what can be promised.
    pub low_bytes_per_second: u64,
    /// Median of the samples.
    pub median_bytes_per_second: u64,
    /// How many samples there were.
    pub sample_count: u32,
}

/// What was measured of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The smallest size that reaches 95 % of the best, in both directions; a power of two.
    pub allocation_unit_bytes: u32,
    /// Length of one sample, in milliseconds.
    pub sample_millis: u32,
    /// Bytes of the device that were used.
    pub region_bytes: u64,
    /// All cells, by direction, mixture, size and depth.
    pub rates: Vec<MeasuredRate>,
}

impl Capability {
    /// The cell of this load, if it was measured.
    #[must_use]
    pub fn rate(
        &self,
        direction: Direction,
        size_bytes: u32,
        depth: u32,
        write_percent: u32,
    ) -> Option<&MeasuredRate> {
        self.rates.iter().find(|rate| {
            (rate.direction, rate.size_bytes) == (direction, size_bytes)
                && (rate.depth, rate.write_percent) == (depth, write_percent)
        })
    }

    /// For how long each load was measured at least, over all its samples.
    #[must_use]
    pub fn least_time(&self) -> Duration {
        let least = self.rates.iter().map(|rate| rate.sample_count).min();
        Duration::from_millis(u64::from(self.sample_millis)) * least.unwrap_or(0)
    }

    /// Whether it was measured for a moment only, of which a device's behaviour for long does not
    /// follow: caches and credits below it may have answered.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.least_time() < QUICK_TIME
    }

    /// The highest rate of a direction alone that was found, in bytes a second.
    #[must_use]
    pub fn best_bytes_per_second(&self, direction: Direction) -> u64 {
        let alone = match direction {
            Direction::Read => 0,
            Direction::Write => 100,
        };
        let is_alone = |rate: &&MeasuredRate| rate.write_percent == alone;
        let rates = self.rates.iter().filter(|rate| rate.direction == direction);
        let rates = rates.filter(is_alone);
        rates
            .map(|rate| rate.low_bytes_per_second)
            .max()
            .unwrap_or(0)
    }
}

/// Measures a device through its queue. Progress counts milliseconds.
///
/// # Errors
/// [`CalibrateError`]; the region's content is lost in any case.
pub fn calibrate(
    queue: &dyn Queue,
    calibration: &Calibration,
    progress: &mut Progress<'_>,
) -> Result<Capability, CalibrateError> {
    Run::new(queue, calibration, progress)?.run()
}

/// Mixture, size and depth of a load, in the order of the table.
type Key = (u32, u32, u32);

struct Run<'a, 'p> {
    queue: &'a dyn Queue,
    region: Extent,
    sizes_bytes: Vec<u32>,
    places: Places,
    /// Bytes that are written, as long as the largest request.
    noise: AlignedBuffer,
    begin: Instant,
    time_max: Duration,
    sample_time: Duration,
    /// How long the last sample took, with its flush.
    last_sample_took: Duration,
    progress: &'a mut Progress<'p>,
    samples: BTreeMap<Key, Vec<Sample>>,
    /// Of reads and of writes.
    unit_rounds: [Rounds; 2],
}

impl<'a, 'p> Run<'a, 'p> {
    fn new(
        queue: &'a dyn Queue,
        calibration: &Calibration,
        progress: &'a mut Progress<'p>,
    ) -> Result<Self, CalibrateError> {
        let region = calibration.region;
        queue.device().check_inside(region)?;
        let largest = u64::from(SIZES_BYTES[SIZES_BYTES.len() - 1]);
        let start = region.offset.next_multiple_of(largest);
        let len = region.end().saturating_sub(start).min(REGION_BYTES_MAX);
        // Whole pieces of the largest size, or in a tiny region of the largest that fits.
        let fits = |size: &u32| len >= u64::from(*size);
        let sizes_bytes: Vec<u32> = SIZES_BYTES.into_iter().filter(fits).collect();
        let Some(&size) = sizes_bytes.last() else {
            return Err(CalibrateError::TooSmall { region });
        };
        let mut places = Places::new(calibration.seed);
        let mut noise = AlignedBuffer::new(size.max(FILL_BYTES) as usize);
        noise
            .chunks_mut(8)
            .for_each(|word| word.copy_from_slice(&places.next().to_le_bytes()));
        Ok(Self {
            queue,
            region: Extent::new(start, len - len % u64::from(size)),
            sizes_bytes,
            places,
            noise,
            begin: Instant::now(),
            time_max: calibration.time_max,
            sample_time: calibration.sample_time,
            last_sample_took: calibration.sample_time,
            progress,
            samples: BTreeMap::new(),
            unit_rounds: [Vec::new(), Vec::new()],
        })
    }

    fn run(mut self) -> Result<Capability, CalibrateError> {
        self.fill()?;
        for _ in 0..ROUNDS {
            self.round()?;
            for _ in 0..UNIT_ROUNDS {
                self.unit_round()?;
            }
        }
        self.settle()?;
        for _ in 0..MORE_ROUNDS {
            self.round()?;
        }
        let choice = self.settle()?;
        let region_bytes = self.region.len;
        Ok(Capability {
            allocation_unit_bytes: self.sizes_bytes[choice.size],
            sample_millis: u32::try_from(self.sample_time.as_millis()).unwrap_or(u32::MAX),
            region_bytes,
            rates: table(&self.samples),
        })
    }

    /// Chooses the unit, and measures more while another round could change it.
    fn settle(&mut self) -> Result<Choice, CalibrateError> {
        let mut choice = choose(&self.unit_rounds);
        for _ in 0..CONTESTED_ROUNDS {
            if !choice.is_contested || self.is_late() {
                break;
            }
            self.unit_round()?;
            choice = choose(&self.unit_rounds);
        }
        Ok(choice)
    }

    /// Whether another sample would end after the time.
    fn is_late(&self) -> bool {
        self.begin.elapsed() + self.last_sample_took >= self.time_max
    }

    fn tell(&mut self) -> Result<(), CalibrateError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (done, all) = (millis(self.begin.elapsed()), millis(self.time_max));
        match (self.progress)(done.min(all), all).is_break() {
            true => Err(CalibrateError::Cancelled),
            false => Ok(()),
        }
    }

    /// Writes the region from end to end, as much as there is time for.
    fn fill(&mut self) -> Result<(), CalibrateError> {
        let mut started: Vec<Pending> = Vec::new();
        let largest = u64::from(*self.sizes_bytes.last().expect("there is a size"));
        let mut done = 0;
        while done < self.region.len {
            let is_time_up = self.begin.elapsed() > FILL_TIME.min(self.time_max / 4);
            // A region has room for a few requests of every size.
            if is_time_up && done >= 4 * largest && done.is_multiple_of(largest) {
                break;
            }
            let piece = (self.region.len - done).min(u64::from(FILL_BYTES));
            let buffer = AlignedBuffer::from(&self.noise[..piece as usize]);
            let offset = self.region.offset + done;
            if started.len() == UNIT_DEPTH as usize {
                started.remove(0).wait()?;
            }
            started.push(self.queue.start(Request::Write { offset, buffer })?);
            done += piece;
            self.tell()?;
        }
        for pending in started {
            pending.wait()?;
        }
        self.queue.start(Request::Flush)?.wait()?;
        self.region.len = done;
        Ok(())
    }

    /// One sample of every cell, in a new order. Late, only of those that have none.
    fn round(&mut self) -> Result<(), CalibrateError> {
        let mut loads = loads(&self.sizes_bytes);
        self.places.shuffle(&mut loads);
        for load in loads {
            let key = (load.write_percent, load.size_bytes, load.depth);
            if !self.is_late() || !self.samples.contains_key(&key) {
                self.sample(load)?;
            }
        }
        Ok(())
    }

    /// One sample of every size in each direction, close together. Late, only if there is none.
    fn unit_round(&mut self) -> Result<(), CalibrateError> {
        for (direction, write_percent) in [(0, 0), (1, 100)] {
            if self.is_late() && !self.unit_rounds[direction].is_empty() {
                continue;
            }
            let mut order: Vec<usize> = (0..self.sizes_bytes.len()).collect();
            self.places.shuffle(&mut order);
            let mut rates = vec![0.0; order.len()];
            for size in order {
                let size_bytes = self.sizes_bytes[size];
                let fit = (DEVICE_IN_FLIGHT_BYTES_MAX / u64::from(size_bytes)) as u32;
                let load = Load {
                    size_bytes,
                    depth: UNIT_DEPTH.min(fit),
                    write_percent,
                };
                let sample = self.sample(load)?;
                let bytes = sample.read_bytes + sample.written_bytes;
                rates[size] = bytes as f64 / sample.busy.as_secs_f64();
            }
            self.unit_rounds[direction].push(rates);
        }
        Ok(())
    }

    fn sample(&mut self, load: Load) -> Result<Sample, CalibrateError> {
        let buffer = || AlignedBuffer::from(&self.noise[..load.size_bytes as usize]);
        let buffers = (0..load.depth).map(|_| buffer()).collect();
        let begin = Instant::now();
        let measured = sample(
            self.queue,
            self.region,
            load,
            self.sample_time,
            buffers,
            &mut self.places,
        )?;
        self.last_sample_took = begin.elapsed();
        let key = (load.write_percent, load.size_bytes, load.depth);
        self.samples.entry(key).or_default().push(measured);
        self.tell()?;
        Ok(measured)
    }
}

/// Every cell with these sizes, as far as the bound on bytes under way goes.
fn loads(sizes_bytes: &[u32]) -> Vec<Load> {
    let mut loads = Vec::new();
    for write_percent in MIXES_PERCENT {
        for &size_bytes in sizes_bytes {
            let fits = |depth: &u32| u64::from(depth * size_bytes) <= DEVICE_IN_FLIGHT_BYTES_MAX;
            for depth in DEPTHS.into_iter().filter(fits) {
                loads.push(Load {
                    size_bytes,
                    depth,
                    write_percent,
                });
            }
        }
    }
    loads
}

/// Cells of the largest table.
#[cfg(test)]
pub(super) fn cells_max() -> usize {
    let loads = loads(&SIZES_BYTES);
    let has_both = |load: &&Load| !matches!(load.write_percent, 0 | 100);
    loads.len() + loads.iter().filter(has_both).count()
}

fn table(samples: &BTreeMap<Key, Vec<Sample>>) -> Vec<MeasuredRate> {
    let mut rates = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        for (&(write_percent, size_bytes, depth), samples) in samples {
            let has_any = match direction {
                Direction::Read => write_percent < 100,
                Direction::Write => write_percent > 0,
            };
            if has_any {
                let mut each: Vec<u64> = samples.iter().map(|s| rate_of(s, direction)).collect();
                each.sort_unstable();
                rates.push(MeasuredRate {
                    direction,
                    size_bytes,
                    depth,
                    write_percent,
                    low_bytes_per_second: each[(each.len() * 5).div_ceil(100) - 1],
                    median_bytes_per_second: each[each.len() / 2],
                    sample_count: u32::try_from(each.len()).expect("a few"),
                });
            }
        }
    }
    rates
}

fn rate_of(sample: &Sample, direction: Direction) -> u64 {
    let (bytes, time) = match direction {
        Direction::Read => (sample.read_bytes, sample.busy),
        Direction::Write => (sample.written_bytes, sample.busy + sample.flush),
    };
    (u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::super::InOrder;
    use super::*;
    use base::BlockDevice;
    use sim::{CrashDisk, Effect, Failure, Fault};
    use std::ops::ControlFlow;
    use std::sync::Arc;

    fn measure(
        disk: &CrashDisk,
        region: Extent,
        progress: &mut Progress<'_>,
    ) -> Result<Capability, CalibrateError> {
        let queue = InOrder::new(Arc::new(disk.clone())).unwrap();
        let (time_max, sample_time) = (Duration::from_millis(1), Duration::from_millis(1));
        calibrate(
            &queue,
            &Calibration {
                region,
                time_max,
                sample_time,
                seed: 1,
            },
            progress,
        )
    }

    #[test]
    fn even_without_time_every_cell_is_measured_once_within_its_region() {
        let disk = CrashDisk::new(9 << 20);
        let last_byte = (9 << 20) - 1;
        disk.write_at(last_byte, &[7]).unwrap();
        let mut last = (0, 0);
        let capability = measure(
            &disk,
            Extent::new(1 << 20, (8 << 20) - 1),
            &mut |done, all| {
                last = (done, all);
                ControlFlow::Continue(())
            },
        );
        let capability = capability.unwrap();
        assert_eq!(last, (1, 1));
        // From 8 MiB, the next multiple of the largest size, almost to 9 MiB: four sizes fit, and
        // of each there are reads and writes, alone and together.
        assert_eq!(capability.region_bytes, 512 << 10);
        assert_eq!(capability.rates.len(), 4 * 5 * 4);
        assert!(capability.rates.iter().all(|rate| rate.sample_count >= 1));
        let rate = capability
            .rate(Direction::Write, 512 << 10, 4, 100)
            .unwrap();
        assert!(rate.low_bytes_per_second <= rate.median_bytes_per_second);
        assert!(capability.best_bytes_per_second(Direction::Read) > 0);
        assert!(capability.allocation_unit_bytes.is_power_of_two());
        let mut edges = [0; 2];
        disk.image().read_at((8 << 20) - 1, &mut edges[..1]);
        disk.image().read_at(last_byte, &mut edges[1..]);
        assert_eq!(edges, [0, 7], "nothing outside is touched");
    }

    #[test]
    fn no_load_exceeds_the_bytes_that_may_be_under_way() {
        let loads = loads(&SIZES_BYTES);
        assert_eq!(loads.len(), (5 * 5 + 4 + 3 + 2) * 3);
        let bytes = |load: &Load| u64::from(load.size_bytes) * u64::from(load.depth);
        assert!(
            loads
                .iter()
                .all(|load| bytes(load) <= DEVICE_IN_FLIGHT_BYTES_MAX)
        );
    }

    #[test]
    fn errors_and_impatience_end_it() {
        let disk = CrashDisk::new(16 << 20);
        let region = Extent::new(0, 16 << 20);
        let mut go = |_, _| ControlFlow::Continue(());
        let outside = measure(&disk, Extent::new(0, 17 << 20), &mut go);
        assert!(matches!(
            outside,
            Err(CalibrateError::Device(DeviceError::Outside { .. }))
        ));
        let tiny = measure(&disk, Extent::new(0, 4096), &mut go);
        assert!(matches!(tiny, Err(CalibrateError::TooSmall { .. })));
        let cancelled = measure(&disk, region, &mut |_, _| ControlFlow::Break(()));
        assert!(matches!(cancelled, Err(CalibrateError::Cancelled)));
        let fails = Effect::Fails(Failure::InputOutput);
        disk.arm(Fault::once(base::DeviceAction::Read, 3, fails));
        let failed = measure(&disk, region, &mut go);
        assert!(matches!(
            failed,
            Err(CalibrateError::Device(DeviceError::Failed { .. }))
        ));
    }

    #[test]
    fn the_low_rate_is_the_fifth_percentile_and_a_flush_counts_for_writes_alone() {
        let sample = |number: u64| Sample {
            read_bytes: 1000 * number,
            written_bytes: 1000 * number,
            busy: Duration::from_millis(500),
            flush: Duration::from_millis(500),
        };
        let cell =
            |count: u64| BTreeMap::from([((50, 65536, 1), (1..=count).map(sample).collect())]);
        let low = |count| -> Vec<u64> {
            table(&cell(count))
                .iter()
                .map(|rate| rate.low_bytes_per_second)
                .collect()
        };
        assert_eq!(low(5), [2000, 1000]);
        assert_eq!(low(20), [2000, 1000]);
        assert_eq!(low(100), [10_000, 5000]);
    }
}
