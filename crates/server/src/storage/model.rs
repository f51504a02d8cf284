//! From what was measured of a device to what may be promised of it, and how it is driven.
//!
//! A calibration says for each operation, size, depth and mixture how many bytes a second could be
//! relied on. Costs ([`CostModel`]) are taken at one *planning load*: so many requests under way as
//! the dispatcher keeps there, half of them writes if that mixture was measured. What is promised
//! must hold in the dearest company; whoever admits and whoever schedules must count alike, or a
//! share would mean two different rates. A device that does better at the moment only has more
//! leftover.
//!
//! The *quantum* is what nothing interrupts: a millisecond, or what the smallest request costs at a
//! device that is slower than that. A few of them are under way at once: enough to keep the
//! device busy, and little enough that a reserved request does not wait long behind them.

use reservation::scheduler::{CostModel, Load, Measured, ModelError, Operation, Shape};
use std::time::Duration;
use store::device::{Capability, Direction};

/// Requests under way that costs are taken at.
const DEPTH: u32 = 4;
/// Mixture that costs are taken at, if it was measured.
const WRITE_PERCENT: u32 = 50;
/// Largest device time of one piece, unless the device needs more for the smallest.
const QUANTUM: Duration = Duration::from_millis(1);
/// Device time under way at once, in quanta: 4 ms on a device that is fast enough.
const IN_FLIGHT_QUANTA: u32 = 4;
/// Pieces under way at once. Each has a thread while it is.
pub(super) const REQUESTS_IN_FLIGHT_MAX: usize = 32;
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
}

/// The cells of a calibration, as the cost model wants them: what can be relied on, not the median.
/// A cell in which nothing was moved says nothing and is left out.
pub(super) fn cells(capability: &Capability) -> Vec<Measured> {
    let rates = capability.rates.iter();
    rates
        .filter(|rate| rate.low_bytes_per_second > 0)
        .map(|rate| Measured {
            operation: match rate.direction {
                Direction::Read => Operation::Read,
                Direction::Write => Operation::Write,
            },
            size_bytes: rate.size_bytes,
            depth: rate.depth,
            write_percent: rate.write_percent,
            bytes_per_second: rate.low_bytes_per_second,
        })
        .collect()
}

impl Plan {
    /// The plan for a device with this calibration.
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
            },
            model,
            load,
        })
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
        self.model
            .share_ppm(operation, bytes_per_second, piece, self.load)
    }

    /// What may be promised to reservations, in millionths.
    pub fn promised_ppm_max(&self) -> u32 {
        let floors = self.shape.unreserved_floor_ppm + self.shape.background_floor_ppm;
        reservation::scheduler::WHOLE_PPM.saturating_sub(floors)
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
