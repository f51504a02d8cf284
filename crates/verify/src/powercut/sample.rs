//! What one cut has shown, and what all cuts of a cell say together.

use super::plan::Cell;
use crate::outcome::Outcome;
use crate::statistics::{Interval, median, wilson};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// What was cut.
    pub cell: Cell,
    /// What became of the file.
    pub outcome: Outcome,
    /// Its length, as a share of what it should be.
    pub size_share: f64,
    /// Its blocks that were there and right, as a share of all.
    pub content_share: f64,
    /// How long the guest wrote.
    pub write_time: Duration,
    /// How long after it had said so it was killed: a little more than the cell's wait.
    pub cut_after: Duration,
    /// How long everything took, the wait included.
    pub time: Duration,
    /// Load of the machine over the last minute, before.
    pub load: f64,
    /// What the tool that recovers said, or why the file system cannot be used.
    pub words: String,
    /// How often the disk was told to flush, if it has a cache.
    #[serde(default)]
    pub flushes: u64,
    /// Bytes that were in its cache alone when power was lost.
    #[serde(default)]
    pub lost_bytes: u64,
}

impl Sample {
    /// Whether the file was recovered, with every byte.
    #[must_use]
    pub fn is_hit(&self) -> bool {
        self.outcome == Outcome::Intact
    }

    /// How long it took beside the time to write and the wait: to restore a machine, to make the
    /// file system, to recover it, to compare.
    #[must_use]
    pub fn beside(&self) -> Duration {
        self.time.saturating_sub(self.write_time + self.cut_after)
    }

    /// Whether the kernel had said that the file is durable, and it was not recovered.
    #[must_use]
    pub fn is_lost_acknowledgement(&self) -> bool {
        let is_promised = self.cell.how.is_acknowledged() && self.cell.file_system.keeps_names();
        is_promised && !self.is_hit()
    }
}

/// All cuts of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The cell.
    pub cell: Cell,
    /// How many cuts.
    pub cuts: u64,
    /// In how many of them the file was recovered, with every byte.
    pub hits: u64,
    /// Between which shares the true one probably lies.
    pub interval: Interval,
    /// Medians; 0 without cuts.
    pub size_share: f64,
    /// Of the content.
    pub content_share: f64,
    /// Of the time to write.
    pub write_seconds: f64,
    /// Of the time that a cut takes beside its wait and the writing.
    pub beside_seconds: f64,
    /// Of flushes that the disk was told, if it has a cache.
    pub flushes: f64,
    /// How often the file became what.
    pub outcomes: Vec<(Outcome, u64)>,
    /// Acknowledgements that were wrong.
    pub lost_acks: u64,
}

impl Summary {
    /// Cuts after which the file system could not be mounted, or not be repaired: whatever was
    /// promised of the file, of the file system that was.
    #[must_use]
    pub fn unmountable(&self) -> u64 {
        let of = |(outcome, count): &(Outcome, u64)| match outcome {
            Outcome::Unmountable => *count,
            _ => 0,
        };
        self.outcomes.iter().map(of).sum()
    }
}

/// Puts the cuts of a cell together.
#[must_use]
pub fn summary(cell: &Cell, samples: &[Sample]) -> Summary {
    let of: Vec<&Sample> = samples.iter().filter(|one| one.cell == *cell).collect();
    let count = |is: &dyn Fn(&Sample) -> bool| of.iter().filter(|one| is(one)).count() as u64;
    let middle = |value: &dyn Fn(&Sample) -> f64| {
        let values: Vec<f64> = of.iter().map(|one| value(one)).collect();
        median(&values).unwrap_or(0.0)
    };
    let (hits, cuts) = (count(&Sample::is_hit), of.len() as u64);
    let (low, high) = wilson(hits, cuts);
    let outcomes = Outcome::ALL.map(|outcome| (outcome, count(&|one| one.outcome == outcome)));
    Summary {
        cell: cell.clone(),
        cuts,
        hits,
        interval: Interval {
            low,
            high,
            confidence: 0.95,
        },
        size_share: middle(&|one| one.size_share),
        content_share: middle(&|one| one.content_share),
        write_seconds: middle(&|one| one.write_time.as_secs_f64()),
        beside_seconds: middle(&|one| one.beside().as_secs_f64()),
        flushes: middle(&|one| one.flushes as f64),
        outcomes: outcomes.into_iter().filter(|one| one.1 > 0).collect(),
        lost_acks: count(&Sample::is_lost_acknowledgement),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::subject::{DiskCache, FileSystem, How};
    use super::*;

    pub(in super::super) fn sample(how: How, outcome: Outcome, content_share: f64) -> Sample {
        Sample {
            cell: Cell {
                file_system: FileSystem::Ext4,
                bytes: 1 << 20,
                wait: Duration::from_secs(5),
                flush_time: Duration::from_secs(30),
                how,
                mount_options: String::new(),
                disk_cache: DiskCache::None,
            },
            outcome,
            size_share: 1.0,
            content_share,
            write_time: Duration::from_millis(1500),
            cut_after: Duration::from_secs(5),
            time: Duration::from_secs(9),
            load: 0.5,
            words: String::new(),
            flushes: 0,
            lost_bytes: 0,
        }
    }

    #[test]
    fn cuts_of_a_cell_are_put_together() {
        let samples = [
            sample(How::Fsync, Outcome::Intact, 1.0),
            sample(How::Fsync, Outcome::ZeroFilled, 0.25),
            sample(How::Close, Outcome::Missing, 0.0),
            sample(How::Fsync, Outcome::Intact, 1.0),
        ];
        let of = summary(&samples[0].cell, &samples);
        assert_eq!((of.cuts, of.hits, of.lost_acks), (3, 2, 1));
        assert_eq!(
            of.outcomes,
            [(Outcome::Intact, 2), (Outcome::ZeroFilled, 1)]
        );
        assert_eq!((of.size_share, of.content_share), (1.0, 1.0));
        assert!(of.interval.low > 0.2 && of.interval.high < 0.95);
        assert!((of.write_seconds - 1.5).abs() < 1e-9);
        assert!((of.beside_seconds - 2.5).abs() < 1e-9);
        // Nothing was promised of what is only closed.
        assert_eq!(summary(&samples[2].cell, &samples).lost_acks, 0);
        assert_eq!(of.unmountable(), 0);
        let gone = sample(How::Close, Outcome::Unmountable, 0.0);
        let gone = summary(&gone.cell, &[gone.clone(), samples[2].clone()]);
        assert_eq!((gone.unmountable(), gone.lost_acks), (1, 0));
        let mut ext2 = samples[1].clone();
        ext2.cell.file_system = FileSystem::Ext2;
        assert!(!ext2.is_lost_acknowledgement());
        assert_eq!(summary(&ext2.cell, &[]).interval.high, 1.0);
    }
}
