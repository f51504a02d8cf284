//! From what was measured of a device to what may be promised of it, and how it is driven.
//!
//! A calibration says for each operation, size, depth and mixture how many bytes a second could be
//! relied on. Costs ([`CostModel`]) are taken at one *planning load*: so many requests under way as
//! the dispatcher keeps there, half of them writes if that mixture was measured. What is promised
//! must hold in the dearest company; whoever admits and whoever schedules must count alike, or a
//! share would mean two different rates. A device that does better at the moment only has more
//! leftover.
//!
//! A device that was measured for a moment only is promised with caution ([`QUICK_PPM`]): what it
//! does in some milliseconds it need not do for long, because caches and credits of disks and hosts
//! are behind it. That concerns promises alone, and not how it is driven.
//!
//! The *quantum* is what nothing interrupts: a millisecond, or what the smallest request costs at a
//! device that is slower than that. A few of them are under way at once: enough to keep the
//! device busy, and little enough that a reserved request does not wait long behind them.

use reservation::scheduler::{CostModel, Load, Measured, ModelError, Operation, Shape, WHOLE_PPM};
use std::time::Duration;
use store::device::{Capability, Direction};

/// Requests under way that costs are taken at.
const DEPTH: u32 = 4;
/// Mixture that costs are taken at, if it was measured.
const WRITE_PERCENT: u32 = 50;
/// Part of what was found that is promised of a device that was measured for a moment only, in
/// millionths: such calibrations came out up to half too high beside a minute of reading or writing
/// with fio, and this leaves a tenth.
pub const QUICK_PPM: u32 = 600_000;
/// Largest device time of one piece, unless the device needs more for the smallest.
const QUANTUM: Duration = Duration::from_millis(1);
/// Device time under way at once, in quanta: 4 ms on a device that is fast enough.
const IN_FLIGHT_QUANTA: u32 = 4;
/// Pieces under way at once. Each has a thread while it is.
pub(super) const REQUESTS_IN_FLIGHT_MAX: usize = 32;
/// Requests that promises are counted at where requests are not split: what the kernel asks a mount
/// for at once. Larger ones cost less for each byte.
const WHOLE_REQUEST_BYTES: u32 = 128 << 10;
/// The smallest request of all: a page of records.
const SMALLEST_BYTES: u32 = 4096;

/// Shares of a device that reservations never get, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floors {
    /// For users without a reservation.
    pub unreserved_ppm: u32,
    /// For commits, checkpoints and clearing up.
    pub background_ppm: u32,
}

impl Default for Floors {
    fn default() -> Self {
        Self {
            unreserved_ppm: 50_000,
            background_ppm: 50_000,
        }
    }
}

/// How a device is driven.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What requests cost.
    pub model: CostModel,
    /// At which load.
    pub load: Load,
    /// How much is under way, and the floors.
    pub shape: Shape,
    /// Pieces into which reads and writes are split.
    pub read_piece_bytes: u32,
    /// As for reads.
    pub write_piece_bytes: u32,
    /// Part of the costs' rates that is promised, in millionths.
    pub counted_ppm: u32,
}

/// The cells of a calibration, as the cost model wants them: what can be relied on, not the median.
/// A cell in which nothing was moved says nothing and is left out.
pub(super) fn cells(capability: &Capability) -> Vec<Measured> {
    let rates = capability.rates.iter();
    rates
        .filter(|rate| rate.low_bytes_per_second > 0)
        .map(|rate| Measured {
            operation: operation(rate.direction),
            size_bytes: rate.size_bytes,
            depth: rate.depth,
            write_percent: rate.write_percent,
            bytes_per_second: rate.low_bytes_per_second,
        })
        .collect()
}

fn operation(direction: Direction) -> Operation {
    match direction {
        Direction::Read => Operation::Read,
        Direction::Write => Operation::Write,
    }
}

impl Plan {
    /// The plan for a device that was measured; none if that does not say enough.
    #[must_use]
    pub fn of(capability: &Capability) -> Option<Self> {
        let plan = Self::new(&cells(capability), Floors::default()).ok()?;
        Some(Self {
            counted_ppm: match capability.is_quick() {
                true => QUICK_PPM,
                false => WHOLE_PPM,
            },
            ..plan
        })
    }

    /// The plan for a device with this calibration, all of which counts.
    ///
    /// # Errors
    /// [`ModelError`] if it does not say enough.
    pub(crate) fn new(cells: &[Measured], floors: Floors) -> Result<Self, ModelError> {
        let model = CostModel::new(cells)?;
        let is_mixed = cells.iter().any(|cell| cell.write_percent == WRITE_PERCENT);
        let load = Load {
            depth: DEPTH,
            write_percent: if is_mixed { WRITE_PERCENT } else { 100 },
        };
        let smallest = |operation| model.cost_nanos(operation, SMALLEST_BYTES, load);
        let least = smallest(Operation::Read).max(smallest(Operation::Write));
        let quantum = QUANTUM.max(Duration::from_nanos(least));
        let nanos = u64::try_from(quantum.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            read_piece_bytes: model.piece_bytes(Operation::Read, nanos, load),
            write_piece_bytes: model.piece_bytes(Operation::Write, nanos, load),
            shape: Shape {
                quantum,
                in_flight: quantum * IN_FLIGHT_QUANTA,
                requests_in_flight: REQUESTS_IN_FLIGHT_MAX,
                unreserved_floor_ppm: floors.unreserved_ppm,
                background_floor_ppm: floors.background_ppm,
                sharers: 1,
            },
            model,
            load,
            counted_ppm: WHOLE_PPM,
        })
    }

    /// The plan for a device whose requests cannot be split: the quantum has room for the largest,
    /// so that each is counted whole. Promises are counted at what small requests cost.
    pub(super) fn of_whole(capability: &Capability, largest_bytes: u32) -> Option<Self> {
        let plan = Self::of(capability)?;
        let cost = |bytes| {
            let cost = |operation| plan.model.cost_nanos(operation, bytes, plan.load);
            cost(Operation::Read).max(cost(Operation::Write))
        };
        // A small one can be dearer than a large one, where a measurement was disturbed.
        let sizes = (SMALLEST_BYTES.ilog2()..31).map(|bits| 1_u32 << bits);
        let sizes = sizes.take_while(|size| *size < largest_bytes);
        let dearest = sizes.map(cost).max().unwrap_or(0).max(cost(largest_bytes));
        let quantum = plan.shape.quantum.max(Duration::from_nanos(dearest));
        let counted = |piece: u32| piece.min(WHOLE_REQUEST_BYTES);
        Some(Self {
            read_piece_bytes: counted(plan.read_piece_bytes),
            write_piece_bytes: counted(plan.write_piece_bytes),
            shape: Shape {
                quantum,
                in_flight: quantum * IN_FLIGHT_QUANTA,
                ..plan.shape
            },
            ..plan
        })
    }

    /// The same for one of so many that lie on the same disk, each of which was measured alone: of
    /// what was measured an equal part is promised.
    #[must_use]
    pub fn shared_by(self, sharers: u32) -> Self {
        let sharers = sharers.max(1);
        Self {
            counted_ppm: (self.counted_ppm / sharers).max(1),
            shape: Shape {
                sharers,
                ..self.shape
            },
            ..self
        }
    }

    /// Device time of a request, at most a quantum.
    pub fn cost_nanos(&self, operation: Operation, bytes: u32) -> u64 {
        let cost = self.model.cost_nanos(operation, bytes, self.load);
        cost.min(u64::try_from(self.shape.quantum.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The largest piece of an operation.
    pub fn piece_bytes(&self, operation: Operation) -> u32 {
        match operation {
            Operation::Read => self.read_piece_bytes,
            Operation::Write => self.write_piece_bytes,
        }
    }

    /// What a stream takes of the device, in millionths, in the pieces that it is split into:
    /// what a ticket for it must have. `None` if that is more than the whole.
    pub fn share_ppm(&self, operation: Operation, bytes_per_second: u64) -> Option<u32> {
        let piece = self.piece_bytes(operation);
        let counted = u128::from(self.counted_ppm.max(1));
        let dearer = (u128::from(bytes_per_second) * u128::from(WHOLE_PPM)).div_ceil(counted);
        let dearer = u64::try_from(dearer).ok()?;
        self.model.share_ppm(operation, dearer, piece, self.load)
    }

    /// The highest rate in one direction that reservations can have together if they do nothing
    /// else, in bytes a second.
    pub fn promised_bytes_per_second(&self, direction: Direction) -> u64 {
        let (operation, most) = (operation(direction), self.promised_ppm_max());
        let fits = |rate: u64| {
            let share = self.share_ppm(operation, rate);
            share.is_some_and(|share| share <= most)
        };
        // Shares grow with rates, so the last rate that fits is found by halves.
        let (mut fitting, mut step) = (0, 1u64 << 62);
        while step > 0 {
            if fits(fitting + step) {
                fitting += step;
            }
            step /= 2;
        }
        fitting
    }

    /// What may be promised to reservations, in millionths.
    pub fn promised_ppm_max(&self) -> u32 {
        let floors = self.shape.unreserved_floor_ppm + self.shape.background_floor_ppm;
        WHOLE_PPM.saturating_sub(floors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::device::MeasuredRate;

    const MIB: u64 = 1 << 20;

    fn rate(direction: Direction, size: u32, depth: u32, writes: u32, rate: u64) -> MeasuredRate {
        MeasuredRate {
            direction,
            size_bytes: size,
            depth,
            write_percent: writes,
            low_bytes_per_second: rate,
            median_bytes_per_second: rate * 2,
            sample_count: 4,
        }
    }

    /// A device that does 1,000 MiB/s reading, 2,000 writing, and half of each together.
    fn capability() -> Capability {
        let mut rates = Vec::new();
        for depth in [1, 4] {
            for size in [65_536, 1 << 20] {
                rates.push(rate(Direction::Read, size, depth, 0, 1000 * MIB));
                rates.push(rate(Direction::Write, size, depth, 100, 2000 * MIB));
                rates.push(rate(Direction::Read, size, depth, 50, 250 * MIB));
                rates.push(rate(Direction::Write, size, depth, 50, 500 * MIB));
            }
        }
        Capability {
            allocation_unit_bytes: 1 << 20,
            sample_millis: 60,
            region_bytes: 1 << 30,
            rates,
        }
    }

    #[test]
    fn what_can_be_relied_on_is_what_counts_and_in_the_dearest_company() {
        let plan = Plan::new(&cells(&capability()), Floors::default()).unwrap();
        // 1 MiB alone takes a millisecond; among writes the device loses half of its time.
        assert_eq!(plan.cost_nanos(Operation::Read, 65_536), 125_000);
        assert_eq!(plan.cost_nanos(Operation::Write, 65_536), 62_500);
        assert_eq!(plan.read_piece_bytes, 512 << 10);
        assert_eq!(plan.write_piece_bytes, 1 << 20);
        assert_eq!(plan.share_ppm(Operation::Read, 100 * MIB), Some(200_000));
        assert_eq!(plan.share_ppm(Operation::Read, 501 * MIB), None);
        assert_eq!(plan.promised_ppm_max(), 900_000);
        assert_eq!(plan.shape.in_flight, Duration::from_millis(4));
    }

    #[test]
    fn what_is_shown_as_promised_can_be_reserved_and_no_more() {
        let plan = Plan::of(&capability()).unwrap();
        let quick = Capability {
            sample_millis: 8,
            ..capability()
        };
        let quick = Plan::of(&quick).unwrap();
        for direction in [Direction::Read, Direction::Write] {
            let operation = operation(direction);
            for plan in [&plan, &quick] {
                let rate = plan.promised_bytes_per_second(direction);
                let most = plan.promised_ppm_max();
                assert!(plan.share_ppm(operation, rate).unwrap() <= most);
                let more = plan.share_ppm(operation, rate + rate / 1000);
                assert!(more.is_none_or(|more| more > most));
            }
            let whole = plan.promised_bytes_per_second(direction);
            let part = quick.promised_bytes_per_second(direction);
            assert_eq!(part * 100 / whole, 60, "of a moment's measurement");
            assert_eq!(plan.cost_nanos(operation, 65_536), {
                quick.cost_nanos(operation, 65_536)
            });
        }
        // Half of 1,000 MiB among writes, but for what is nobody's to reserve.
        assert_eq!(plan.promised_bytes_per_second(Direction::Read) / MIB, 450);
    }

    #[test]
    fn a_slow_device_has_a_quantum_in_which_something_fits() {
        let rates = vec![
            rate(Direction::Read, 65_536, 1, 0, 4 * MIB),
            rate(Direction::Write, 65_536, 1, 100, 8 * MIB),
        ];
        let slow = Capability {
            rates,
            ..capability()
        };
        let plan = Plan::new(&cells(&slow), Floors::default()).unwrap();
        assert_eq!(plan.shape.quantum, Duration::from_micros(15_625));
        assert!(plan.shape.in_flight > plan.shape.quantum);
        assert_eq!(plan.read_piece_bytes, 65_536);
        for bytes in [1, 4096, 65_536] {
            let cost = plan.cost_nanos(Operation::Write, bytes);
            assert!(u128::from(cost) <= plan.shape.quantum.as_nanos());
        }
    }

    #[test]
    fn a_calibration_that_says_too_little_is_none() {
        let only_reads = Capability {
            rates: vec![rate(Direction::Read, 65_536, 1, 0, MIB)],
            ..capability()
        };
        let plan = Plan::new(&cells(&only_reads), Floors::default());
        assert_eq!(plan.unwrap_err(), ModelError::Missing(Operation::Write));
        let mut stuck = capability();
        for rate in &mut stuck.rates {
            rate.low_bytes_per_second = 0;
        }
        assert!(cells(&stuck).is_empty());
    }
}
