//! What a run has found out.

use super::machine::Others;
use super::plan::{Cell, LeftOut, Place};
use super::work::{Measure, Value};
use crate::statistics::{Interval, median, median_interval};
use std::time::Duration;

/// Repeats that are further apart than this share of their median are not steady.
const STEADY_SHARE: f64 = 0.1;

/// One repeat of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its place in the outcome's cells.
    pub cell: usize,
    /// The round, from 0.
    pub round: u32,
    /// What was measured, with processor time.
    pub values: Vec<Value>,
    /// How busy others kept the machine meanwhile.
    pub others: Others,
    /// The load average of one minute before it.
    pub load: f64,
    /// How long it took.
    pub time: Duration,
}

/// What a run has found out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was measured.
    pub cells: Vec<Cell>,
    /// The repeats that were finished, in their order.
    pub samples: Vec<Sample>,
    /// What made no sense, or needs what is not there.
    pub left_out: Vec<LeftOut>,
    /// Cells that failed.
    pub failed: Vec<LeftOut>,
    /// Processors of the machine.
    pub processors: usize,
    /// The load average of one minute before the run.
    pub load: f64,
    /// Whether that, or what others did meanwhile, makes the figures doubtful.
    pub is_loaded: bool,
    /// Whether the kernel's caches could be emptied before something was read.
    pub are_caches_dropped: bool,
    /// It was ended early.
    pub was_interrupted: bool,
    /// How long it took.
    pub time: Duration,
}

/// All repeats of one measure of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The place of its cell.
    pub cell: usize,
    /// Of what.
    pub measure: Measure,
    /// How often it was measured.
    pub count: usize,
    /// In bytes or things a second.
    pub median: f64,
    /// Where the median probably lies.
    pub interval: Interval,
    /// Processor time, as a share of one processor.
    pub cpu: Option<f64>,
    /// Whether all repeats are within a tenth of the median.
    pub is_steady: bool,
}

/// How much faster something is with blocks of 4 KiB than with blocks of 1 KiB.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRatio {
    /// Of the cell with larger blocks, its place.
    pub cell: usize,
    /// Of what.
    pub measure: Measure,
    /// The medians' ratio.
    pub ratio: f64,
}

impl Outcome {
    /// The measures of each cell, in their order.
    #[must_use]
    pub fn summaries(&self) -> Vec<Summary> {
        let mut summaries = Vec::new();
        for cell in 0..self.cells.len() {
            let values: Vec<Value> = self
                .samples
                .iter()
                .filter(|sample| sample.cell == cell)
                .flat_map(|sample| sample.values.iter().copied())
                .collect();
            for measure in Measure::ALL {
                let of: Vec<Value> = values
                    .iter()
                    .copied()
                    .filter(|value| value.measure == measure)
                    .collect();
                summaries.extend(summary(cell, measure, &of));
            }
        }
        summaries
    }

    /// How many repeats others have disturbed.
    #[must_use]
    pub fn disturbed(&self) -> usize {
        let busy = self.samples.iter().filter(|sample| sample.others.is_busy());
        busy.count()
    }

    /// The paper's table 10: what blocks of 4 KiB give over blocks of 1 KiB, where both were
    /// measured and everything else is equal.
    #[must_use]
    pub fn block_ratios(&self) -> Vec<BlockRatio> {
        let summaries = self.summaries();
        let mut ratios = Vec::new();
        for large in &summaries {
            let cell = &self.cells[large.cell];
            if cell.block_bytes != Some(4096) {
                continue;
            }
            let other = Cell {
                block_bytes: Some(1024),
                ..cell.clone()
            };
            let small = summaries
                .iter()
                .find(|small| small.measure == large.measure && self.cells[small.cell] == other);
            ratios.extend(small.map(|small| BlockRatio {
                cell: large.cell,
                measure: large.measure,
                ratio: large.median / small.median,
            }));
        }
        ratios
    }

    /// A name for a cell that tells it from the others: what all have in common is left out, but
    /// for the place.
    #[must_use]
    pub fn name(&self, cell: &Cell) -> String {
        let mut name = cell.place.to_string();
        let differs = |of: &dyn Fn(&Cell) -> String| {
            let own = of(cell);
            self.cells
                .iter()
                .any(|other| of(other) != own)
                .then_some(own)
        };
        let part = |of: &dyn Fn(&Cell) -> String| differs(of).filter(|part| !part.is_empty());
        let block = |cell: &Cell| cell.block_bytes.map_or(String::new(), |b| format!("{b} B"));
        let memory = |cell: &Cell| match cell.memory_bytes {
            Some(bytes) => format!("{} MiB", bytes >> 20),
            None => "all memory".to_owned(),
        };
        let flush = |cell: &Cell| match cell.flush_time {
            Some(time) => format!("flush {} s", time.as_secs_f64()),
            None => "flush as it is".to_owned(),
        };
        let settings = |cell: &Cell| {
            let words: Vec<String> = cell.settings.iter().map(ToString::to_string).collect();
            words.join(" ")
        };
        let options = |cell: &Cell| cell.mount_options.clone();
        for of in [
            &block as &dyn Fn(&Cell) -> String,
            &memory,
            &flush,
            &settings,
            &options,
        ] {
            if let Some(more) = part(of) {
                name.push_str(", ");
                name.push_str(&more);
            }
        }
        name
    }

    /// Whether any cell is of a file system that was made.
    #[must_use]
    pub fn has_made(&self) -> bool {
        let mut cells = self.cells.iter();
        cells.any(|cell| matches!(cell.place, Place::Made(_)))
    }
}

fn summary(cell: usize, measure: Measure, values: &[Value]) -> Option<Summary> {
    let rates: Vec<f64> = values.iter().map(|value| value.rate).collect();
    let shares: Vec<f64> = values.iter().filter_map(|value| value.cpu).collect();
    let middle = median(&rates)?;
    let is_near = |rate: &f64| (rate - middle).abs() <= STEADY_SHARE * middle;
    Some(Summary {
        cell,
        measure,
        count: rates.len(),
        median: middle,
        interval: median_interval(&rates)?,
        cpu: median(&shares),
        is_steady: rates.iter().all(is_near),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::Target;

    fn cell(block_bytes: u64) -> Cell {
        Cell {
            place: Place::Made(Target::Ext4),
            block_bytes: Some(block_bytes),
            memory_bytes: None,
            flush_time: None,
            settings: Vec::new(),
            mount_options: String::new(),
        }
    }

    fn sample(cell: usize, round: u32, rate: f64) -> Sample {
        let value = |measure, rate, cpu| Value { measure, rate, cpu };
        Sample {
            cell,
            round,
            values: vec![
                value(Measure::BlockWrite, rate, Some(rate / 1000.0)),
                value(Measure::Create, 10.0, None),
            ],
            others: Others::default(),
            load: 0.1,
            time: Duration::from_secs(1),
        }
    }

    fn outcome() -> Outcome {
        let rates = [
            [100.0, 105.0, 102.0, 98.0, 101.0],
            [200.0, 210.0, 190.0, 205.0, 400.0],
        ];
        let mut samples = Vec::new();
        for (cell, rates) in rates.iter().enumerate() {
            let rounds = (0..).zip(rates);
            samples.extend(rounds.map(|(round, rate)| sample(cell, round, *rate)));
        }
        samples[3].others.steal = 0.5;
        Outcome {
            cells: vec![cell(1024), cell(4096)],
            samples,
            ..Outcome::default()
        }
    }

    #[test]
    fn repeats_become_medians_with_intervals() {
        let outcome = outcome();
        let summaries = outcome.summaries();
        assert_eq!(summaries.len(), 4);
        let writes = summaries[0];
        assert_eq!((writes.cell, writes.measure), (0, Measure::BlockWrite));
        assert_eq!((writes.count, writes.median), (5, 101.0));
        assert_eq!((writes.interval.low, writes.interval.high), (98.0, 105.0));
        assert_eq!(writes.cpu, Some(0.101));
        assert!(writes.is_steady && !summaries[2].is_steady);
        assert_eq!(summaries[1].cpu, None);
        assert_eq!(outcome.disturbed(), 1);
    }

    #[test]
    fn block_sizes_are_compared_where_all_else_is_equal() {
        let mut outcome = outcome();
        let ratios = outcome.block_ratios();
        assert_eq!((ratios.len(), ratios[0].cell), (2, 1));
        assert!((ratios[0].ratio - 205.0 / 101.0).abs() < 1e-12);
        outcome.cells[0].memory_bytes = Some(1 << 28);
        assert!(outcome.block_ratios().is_empty());
    }

    #[test]
    fn cells_are_named_by_what_tells_them_apart() {
        let mut outcome = outcome();
        let names = |outcome: &Outcome| -> Vec<String> {
            outcome
                .cells
                .iter()
                .map(|cell| outcome.name(cell))
                .collect()
        };
        assert_eq!(names(&outcome), ["ext4, 1024 B", "ext4, 4096 B"]);
        outcome.cells[1].block_bytes = Some(1024);
        outcome.cells[1].flush_time = Some(Duration::from_secs(1));
        outcome.cells[1].memory_bytes = Some(256 << 20);
        let known = [
            "ext4, all memory, flush as it is",
            "ext4, 256 MiB, flush 1 s",
        ];
        assert_eq!(names(&outcome), known);
    }
}
