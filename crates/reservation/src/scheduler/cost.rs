//! What a request costs: the calibration's rates, turned into device time.
//!
//! A device does so many bytes a second of one kind: reads or writes, of one size, with so many
//! under way. The cost of such a request is the part of a second that it takes of that: size /
//! rate. It is not how long the request takes (with eight under way, each takes eight times its
//! cost). Costs add up: requests that cost a second together keep the device busy for a second.
//!
//! Reads and writes at once can be slower than the same alternating. If R and W are the rates of
//! each alone and r and w those of the mixture, the part 1 - (r / R + w / W) of each second is
//! lost, and every cost in a mixture is raised so that nothing is: by 1 / (r / R + w / W).
//!
//! Between the cells that were measured, costs are never below either neighbour's: of two depths
//! and of two mixtures the dearer one counts. Between two sizes it is that of the larger one, or
//! the bytes at the slower of both rates if that is less: either holds for a device that is not
//! slower with larger requests. What is smaller than the smallest size costs as much as that. A
//! larger size never costs less than a smaller one, whatever noise the calibration had.
//!
//! Source: the cost model of iocost (Heo and others, ASPLOS 2022) and its lesson that a device has
//! no single rate; paper section 4.2, where rates depend on sizes.

use std::collections::BTreeSet;

/// What is done to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Bytes come from the device.
    Read,
    /// Bytes go to the device, and are flushed.
    Write,
}

/// One cell of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Which bytes were counted.
    pub operation: Operation,
    /// Bytes of each request.
    pub size_bytes: u32,
    /// Requests under way at once.
    pub depth: u32,
    /// Writes among a hundred requests.
    pub write_percent: u32,
    /// The rate that can be relied on, such as the 5th percentile of some samples.
    pub bytes_per_second: u64,
}

/// Among what a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests under way at once, this one included.
    pub depth: u32,
    /// Writes among a hundred requests.
    pub write_percent: u32,
}

/// Cells that say nothing about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Nothing but reads or nothing but writes was not measured.
    #[error("there is no rate of {0:?} alone")]
    Missing(Operation),
    /// A size, a depth or a rate of zero, or more writes than requests.
    #[error("a cell of the calibration is malformed")]
    Malformed,
}

/// Costs of every request. All cells are filled, so a look is a few comparisons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostModel {
    reads: Costs,
    writes: Costs,
    depths: Vec<u32>,
    /// Those at which both directions were measured, 0 and 100 included.
    mixes: Vec<u32>,
}

/// Costs of one operation, in nanoseconds by mixture, depth and size.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Costs {
    sizes: Vec<u32>,
    nanos: Vec<u64>,
}

const SECOND_NANOS: u128 = 1_000_000_000;
/// Raised costs are computed in thousandths.
const FACTOR_ONE: u128 = 1000;

impl CostModel {
    /// The model of a device with this calibration.
    ///
    /// # Errors
    /// [`ModelError`] if it does not say enough.
    pub fn new(cells: &[Measured]) -> Result<Self, ModelError> {
        let is_good = |cell: &Measured| {
            cell.size_bytes > 0
                && cell.depth > 0
                && cell.bytes_per_second > 0
                && cell.write_percent <= 100
        };
        if !cells.iter().all(is_good) {
            return Err(ModelError::Malformed);
        }
        let depths: BTreeSet<u32> = cells.iter().map(|cell| cell.depth).collect();
        let mixes: BTreeSet<u32> = cells.iter().map(|cell| cell.write_percent).collect();
        let mut model = Self {
            reads: Costs::empty(cells, Operation::Read)?,
            writes: Costs::empty(cells, Operation::Write)?,
            depths: depths.into_iter().collect(),
            mixes: mixes
                .into_iter()
                .chain([0, 100])
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        };
        for operation in [Operation::Read, Operation::Write] {
            model.fill(cells, operation);
        }
        Ok(model)
    }

    fn fill(&mut self, cells: &[Measured], operation: Operation) {
        let sizes = self.costs(operation).sizes.clone();
        let mut nanos = Vec::new();
        for mix in &self.mixes {
            for depth in &self.depths {
                let mut dearest = 0;
                for size in &sizes {
                    let alone = alone(cells, operation, *size, *depth);
                    let cost = alone * factor(cells, *size, *depth, *mix) / FACTOR_ONE;
                    dearest = dearest.max(u64::try_from(cost).unwrap_or(u64::MAX));
                    nanos.push(dearest);
                }
            }
        }
        match operation {
            Operation::Read => self.reads.nanos = nanos,
            Operation::Write => self.writes.nanos = nanos,
        }
    }

    fn costs(&self, operation: Operation) -> &Costs {
        match operation {
            Operation::Read => &self.reads,
            Operation::Write => &self.writes,
        }
    }

    /// Device time of a request, in nanoseconds; never zero.
    #[must_use]
    pub fn cost_nanos(&self, operation: Operation, bytes: u32, load: Load) -> u64 {
        let costs = self.costs(operation);
        let (depth, deeper) = neighbours(&self.depths, load.depth);
        let (mix, mixer) = neighbours(&self.mixes, load.write_percent);
        let row = |mix: usize, depth: usize| {
            let start = (mix * self.depths.len() + depth) * costs.sizes.len();
            costs.cost(&costs.nanos[start..start + costs.sizes.len()], bytes)
        };
        let rows = [
            row(mix, depth),
            row(mix, deeper),
            row(mixer, depth),
            row(mixer, deeper),
        ];
        rows.into_iter().max().unwrap_or(1).max(1)
    }

    /// The largest piece, a power of two of at least 4 KiB and at most the largest size that was
    /// measured, that costs at most `quantum_nanos`; 4 KiB if even these cost more. Requests are
    /// split into such pieces.
    #[must_use]
    pub fn piece_bytes(&self, operation: Operation, quantum_nanos: u64, load: Load) -> u32 {
        let largest = self.costs(operation).sizes.last().copied().unwrap_or(0);
        let pieces = (12..31).map(|bits| 1_u32 << bits);
        let fits = |piece: &u32| {
            *piece <= largest && self.cost_nanos(operation, *piece, load) <= quantum_nanos
        };
        pieces.take_while(fits).last().unwrap_or(4096)
    }

    /// The part of the device's time that a stream takes, in millionths, rounded up: what a ticket
    /// for it has to have. `None` if it is more than the whole.
    #[must_use]
    pub fn share_ppm(
        &self,
        operation: Operation,
        bytes_per_second: u64,
        request_bytes: u32,
        load: Load,
    ) -> Option<u32> {
        let cost = u128::from(self.cost_nanos(operation, request_bytes, load));
        let nanos = u128::from(bytes_per_second) * cost;
        let share = nanos.div_ceil(u128::from(request_bytes.max(1)) * (SECOND_NANOS / 1_000_000));
        u32::try_from(share)
            .ok()
            .filter(|share| *share <= super::WHOLE_PPM)
    }
}

impl Costs {
    /// The sizes for which there is a rate of the operation alone.
    fn empty(cells: &[Measured], operation: Operation) -> Result<Self, ModelError> {
        let alone = cells.iter().filter(|cell| is_alone(cell, operation));
        let sizes: BTreeSet<u32> = alone.map(|cell| cell.size_bytes).collect();
        if sizes.is_empty() {
            return Err(ModelError::Missing(operation));
        }
        Ok(Self {
            sizes: sizes.into_iter().collect(),
            nanos: Vec::new(),
        })
    }

    /// The cost of `bytes` by one row of costs, one for each size.
    fn cost(&self, row: &[u64], bytes: u32) -> u64 {
        let above = self.sizes.partition_point(|size| *size < bytes);
        let at = |index: usize| (u128::from(row[index]), u128::from(self.sizes[index]));
        let bytes = u128::from(bytes);
        let nanos = if above == 0 {
            u128::from(row[0])
        } else if above == self.sizes.len() {
            let (cost, size) = at(above - 1);
            (cost * bytes).div_ceil(size)
        } else {
            let ((low, small), (high, large)) = (at(above - 1), at(above));
            let at_slower_rate = (low * bytes)
                .div_ceil(small)
                .max((high * bytes).div_ceil(large));
            at_slower_rate.min(high)
        };
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

fn is_alone(cell: &Measured, operation: Operation) -> bool {
    let percent = match operation {
        Operation::Read => 0,
        Operation::Write => 100,
    };
    cell.operation == operation && cell.write_percent == percent
}

/// Cost of a request of one operation alone. A depth that was not measured for its size costs as
/// much as the nearest smaller one, which is slower, or else as the smallest one.
fn alone(cells: &[Measured], operation: Operation, size: u32, depth: u32) -> u128 {
    let of_size = |cell: &&Measured| is_alone(cell, operation) && cell.size_bytes == size;
    let cells = || cells.iter().filter(of_size);
    let shallower = cells().filter(|cell| cell.depth <= depth);
    let nearest = shallower.max_by_key(|cell| cell.depth);
    let nearest = nearest.or_else(|| cells().min_by_key(|cell| cell.depth));
    let rate = nearest.map_or(1, |cell| cell.bytes_per_second);
    (u128::from(size) * SECOND_NANOS).div_ceil(u128::from(rate))
}

/// By how much a mixture raises costs, in thousandths; the worst one that was measured at a size or
/// a depth that is not known itself.
fn factor(cells: &[Measured], size: u32, depth: u32, mix: u32) -> u128 {
    if mix == 0 || mix == 100 {
        return FACTOR_ONE;
    }
    let of_mix = cells.iter().filter(|cell| cell.write_percent == mix);
    let places: BTreeSet<_> = of_mix.map(|cell| (cell.size_bytes, cell.depth)).collect();
    let exact = places.contains(&(size, depth));
    let places = places
        .into_iter()
        .filter(|place| !exact || *place == (size, depth));
    let factors = places.map(|(size, depth)| {
        // In thousandths: how much of a second each direction would have taken alone.
        let parts = [Operation::Read, Operation::Write].map(|operation| {
            let here = |cell: &&Measured| {
                let place = (cell.size_bytes, cell.depth, cell.write_percent);
                cell.operation == operation && place == (size, depth, mix)
            };
            let rate = cells
                .iter()
                .find(here)
                .map_or(0, |cell| cell.bytes_per_second);
            let cost = alone(cells, operation, size, depth);
            u128::from(rate) * cost * FACTOR_ONE / (u128::from(size) * SECOND_NANOS)
        });
        (FACTOR_ONE * FACTOR_ONE).div_ceil(parts.iter().sum::<u128>().max(1))
    });
    factors.max().unwrap_or(FACTOR_ONE).max(FACTOR_ONE)
}

/// Places of the two cells between which a value lies; twice the same at or beyond an end.
fn neighbours(sorted: &[u32], value: u32) -> (usize, usize) {
    let above = sorted.partition_point(|cell| *cell < value);
    let last = sorted.len() - 1;
    if sorted.get(above) == Some(&value) || above == 0 {
        return (above.min(last), above.min(last));
    }
    (above - 1, above.min(last))
}
