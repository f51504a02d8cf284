//! The cost model: exact at what was measured, never below it between.

use proptest::prelude::*;
use reservation::scheduler::{CostModel, Load, Measured, ModelError, Operation};

const SIZES: [u32; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
const DEPTHS: [u32; 3] = [1, 4, 16];

fn cell(operation: Operation, size_bytes: u32, depth: u32, percent: u32, rate: u64) -> Measured {
    Measured {
        operation,
        size_bytes,
        depth,
        write_percent: percent,
        bytes_per_second: rate,
    }
}

/// A device with a setup time, some parallelism and a penalty for mixing.
fn cells() -> Vec<Measured> {
    let mut cells = Vec::new();
    for size in SIZES {
        for depth in DEPTHS {
            if size == 4 << 20 && depth == 16 {
                continue; // Too much to be under way.
            }
            let rate = |per_second: u64| {
                let nanos =
                    100_000 / u64::from(depth) + u64::from(size) * 1_000_000_000 / per_second;
                u64::from(size) * 1_000_000_000 / nanos
            };
            let (read, write) = (rate(2_000_000_000), rate(1_000_000_000));
            cells.push(cell(Operation::Read, size, depth, 0, read));
            cells.push(cell(Operation::Write, size, depth, 100, write));
            // A quarter of the time is lost by mixing; requests are half and half.
            let both = 3 * read * write / (4 * (read + write));
            cells.push(cell(Operation::Read, size, depth, 50, both));
            cells.push(cell(Operation::Write, size, depth, 50, both));
        }
    }
    cells
}

fn alone(depth: u32) -> Load {
    Load {
        depth,
        write_percent: 0,
    }
}

#[test]
fn a_second_of_what_was_measured_costs_a_second() {
    let cells = cells();
    let model = CostModel::new(&cells).unwrap();
    for cell in cells.iter().filter(|cell| cell.write_percent != 50) {
        let load = Load {
            depth: cell.depth,
            write_percent: cell.write_percent,
        };
        let cost = model.cost_nanos(cell.operation, cell.size_bytes, load);
        let second = cost * cell.bytes_per_second / u64::from(cell.size_bytes);
        assert!(
            second.abs_diff(1_000_000_000) < 1_000_000,
            "{cell:?}: {second}"
        );
    }
    for pair in cells.chunks(4) {
        let load = Load {
            depth: pair[2].depth,
            write_percent: 50,
        };
        let second: u64 = pair[2..]
            .iter()
            .map(|cell| {
                let cost = model.cost_nanos(cell.operation, cell.size_bytes, load);
                cost * cell.bytes_per_second / u64::from(cell.size_bytes)
            })
            .sum();
        // Never less than the whole second; rounded by thousandths.
        assert!((999_000_000..1_010_000_000).contains(&second), "{second}");
    }
}

#[test]
fn what_was_not_measured_costs_as_much_as_its_dearer_neighbour() {
    let model = CostModel::new(&cells()).unwrap();
    let read = |bytes, load| model.cost_nanos(Operation::Read, bytes, load);
    assert_eq!(
        read(1, alone(4)),
        read(64 << 10, alone(4)),
        "smaller than measured"
    );
    assert_eq!(
        read(8 << 20, alone(4)),
        2 * read(4 << 20, alone(4)),
        "larger than measured"
    );
    assert_eq!(
        read(64 << 10, alone(2)),
        read(64 << 10, alone(1)),
        "between two depths"
    );
    assert_eq!(
        read(64 << 10, alone(99)),
        read(64 << 10, alone(16)),
        "deeper than measured"
    );
    assert_eq!(
        read(4 << 20, alone(16)),
        read(4 << 20, alone(4)),
        "a depth that is missing"
    );
    let mixed = |write_percent| {
        read(
            1 << 20,
            Load {
                depth: 4,
                write_percent,
            },
        )
    };
    assert_eq!(mixed(1), mixed(50));
    assert_eq!(mixed(99), mixed(50));
    assert!(mixed(50) > mixed(0) * 5 / 4);
}

#[test]
fn shares_are_rounded_up_and_pieces_fit_the_quantum() {
    let model = CostModel::new(&cells()).unwrap();
    let cost = model.cost_nanos(Operation::Read, 1 << 20, alone(4));
    let share = model
        .share_ppm(Operation::Read, 100 << 20, 1 << 20, alone(4))
        .unwrap();
    assert!(u64::from(share) * 1000 >= 100 * cost && u64::from(share) * 1000 < 100 * cost + 1000);
    assert_eq!(
        model.share_ppm(Operation::Read, 4 << 30, 1 << 20, alone(4)),
        None
    );
    let piece = model.piece_bytes(Operation::Read, 300_000, alone(4));
    assert_eq!(piece, 256 << 10);
    assert!(model.cost_nanos(Operation::Read, piece, alone(4)) <= 300_000);
    assert!(model.cost_nanos(Operation::Read, 2 * piece, alone(4)) > 300_000);
    assert_eq!(model.piece_bytes(Operation::Read, 1, alone(4)), 4096);
    assert_eq!(
        model.piece_bytes(Operation::Read, u64::MAX, alone(4)),
        4 << 20
    );
}

#[test]
fn a_calibration_that_says_too_little_is_refused() {
    let read = cell(Operation::Read, 4096, 1, 0, 1000);
    let write = cell(Operation::Write, 4096, 1, 100, 1000);
    assert!(CostModel::new(&[read, write]).is_ok());
    assert_eq!(
        CostModel::new(&[read]),
        Err(ModelError::Missing(Operation::Write))
    );
    let mixed = Measured {
        write_percent: 50,
        ..read
    };
    assert_eq!(
        CostModel::new(&[mixed, write]),
        Err(ModelError::Missing(Operation::Read))
    );
    for bad in [
        Measured {
            bytes_per_second: 0,
            ..read
        },
        Measured {
            size_bytes: 0,
            ..read
        },
        Measured { depth: 0, ..read },
        Measured {
            write_percent: 101,
            ..read
        },
    ] {
        assert_eq!(
            CostModel::new(&[read, write, bad]),
            Err(ModelError::Malformed)
        );
    }
}

proptest! {
    #[test]
    fn costs_grow_with_size_and_are_never_below_the_neighbours(
        rates in prop::collection::vec(1_000_000..4_000_000_000_u64, 24),
        bytes in 1..16_000_000_u32,
        more in 0..4_000_000_u32,
        depth in 1..40_u32,
    ) {
        // Rates as noisy as can be.
        let places = SIZES.iter().flat_map(|size| DEPTHS.map(|depth| (*size, depth)));
        let cells: Vec<_> = places.zip(rates.chunks(2)).flat_map(|((size, depth), rates)| [
            cell(Operation::Read, size, depth, 0, rates[0]),
            cell(Operation::Write, size, depth, 100, rates[1]),
        ]).collect();
        let model = CostModel::new(&cells).unwrap();
        let cost = model.cost_nanos(Operation::Read, bytes, alone(depth));
        prop_assert!(cost > 0);
        // Within a row costs grow; the dearest of rows that grow grows.
        let larger = bytes.saturating_add(more);
        prop_assert!(cost <= model.cost_nanos(Operation::Read, larger, alone(depth)));
        for cell in cells.iter().filter(|cell| cell.operation == Operation::Read) {
            let below = DEPTHS.into_iter().filter(|at| *at <= depth).max();
            let above = DEPTHS.into_iter().find(|at| *at >= depth).or(below);
            let is_near = below == Some(cell.depth) || above == Some(cell.depth);
            let size = u128::from(cell.size_bytes);
            let exact = size * 1_000_000_000 / u128::from(cell.bytes_per_second);
            if is_near && cell.size_bytes <= bytes {
                prop_assert!(u128::from(cost) >= exact, "{cost} {cell:?}");
            }
        }
    }
}
