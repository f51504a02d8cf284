//! Power cuts of file systems beside each other.
//!
//! A cell is cut until its interval is narrow enough, so what ends in turns is cut more often than
//! what always ends alike, and a sum of all cuts would lean to the former. Here every cell counts
//! the same, and of each file system those cells alone count that all file systems of a row have.

use super::powercut::is_promised;
use crate::powercut::{DiskCache, How, Summary};
use crate::statistics::{Interval, Weighted, weighted_sum};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// In place of a share of what nobody has promised: to count it would look like a measured 0.
const NOT_PROMISED: &str = "– (not judged: fsync does not keep the name of a new file there)";
const NOT_COMPARABLE: &str = "not comparable: there is no cell that all of them have";

/// A cell without its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    how: How,
    disk_cache: DiskCache,
    bytes: u64,
    wait: Duration,
    flush_time: Duration,
    /// Of the machine.
    memory_bytes: u64,
}

/// What was cut of one file system.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts<'a> {
    cells: BTreeMap<Way, &'a Summary>,
}

/// What a figure is the mean of: each with the way in which it was cut, and with the flush time to
/// which it is compared, if it is.
type Parts = BTreeMap<(Way, Option<Duration>), Vec<Weighted>>;

/// A mean over cells.
struct Mean {
    cells: usize,
    hits: u64,
    cuts: u64,
    value: f64,
    interval: Interval,
}

fn counted(weight: f64, hits: u64, trials: u64) -> Weighted {
    Weighted {
        weight,
        hits,
        trials,
    }
}

impl<'a> Cuts<'a> {
    /// Of a cell that several runs have the last one counts: if it went on where one before it
    /// had ended, it has the cuts of that one as well.
    pub(super) fn add(&mut self, cell: &'a Summary, memory_bytes: u64) {
        let way = Way {
            how: cell.cell.how,
            disk_cache: cell.cell.disk_cache,
            bytes: cell.cell.bytes,
            wait: cell.cell.wait,
            flush_time: cell.cell.flush_time,
            memory_bytes,
        };
        if cell.cuts > 0 {
            self.cells.insert(way, cell);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    fn synced(&self, disk_cache: DiskCache) -> impl Iterator<Item = (&Way, &&'a Summary)> {
        let cells = self.cells.iter();
        cells.filter(move |(way, _)| way.how.is_acknowledged() && way.disk_cache == disk_cache)
    }

    /// Of synced files those that were not whole.
    fn lost(&self, disk_cache: DiskCache) -> Parts {
        let judged = self
            .synced(disk_cache)
            .filter(|(_, one)| is_promised(&one.cell));
        judged
            .map(|(way, one)| ((*way, None), vec![counted(1.0, one.lost_acks, one.cuts)]))
            .collect()
    }

    fn closed(&self) -> impl Iterator<Item = (&Way, &&'a Summary)> {
        let is_it = |way: &Way| way.how == How::Close && way.disk_cache == DiskCache::None;
        self.cells.iter().filter(move |(way, _)| is_it(way))
    }

    /// Files that were only closed and are whole.
    fn whole(&self) -> Parts {
        self.closed()
            .map(|(way, one)| ((*way, None), vec![counted(1.0, one.hits, one.cuts)]))
            .collect()
    }

    /// By how much the share of these rises from the longest flush time to the shortest, of cells
    /// that differ in nothing else: what depends on it does not protect itself.
    fn rise(&self) -> Parts {
        let times: BTreeSet<Duration> = self.closed().map(|(way, _)| way.flush_time).collect();
        let (Some(shortest), Some(longest)) = (times.first(), times.last()) else {
            return Parts::new();
        };
        let at_shortest = self
            .closed()
            .filter(|(way, _)| way.flush_time == *shortest && shortest < longest);
        let pairs = at_shortest.filter_map(|(way, one)| {
            let other = self.cells.get(&Way {
                flush_time: *longest,
                ..*way
            })?;
            let both = vec![
                counted(1.0, one.hits, one.cuts),
                counted(-1.0, other.hits, other.cuts),
            ];
            Some(((*way, Some(*longest)), both))
        });
        pairs.collect()
    }
}

/// The means of some file systems, over the parts that all have which have any.
fn means(all: &[Parts], show: fn(&Mean) -> String) -> Vec<Option<String>> {
    let known = || all.iter().filter(|parts| !parts.is_empty());
    let mean = |parts: &Parts| {
        let shared = parts
            .iter()
            .filter(|(key, _)| known().all(|parts| parts.contains_key(key)));
        let shared: Vec<&Vec<Weighted>> = shared.map(|(_, shares)| shares).collect();
        let shares = shared.iter().copied().flatten().map(|one| Weighted {
            weight: one.weight / shared.len() as f64,
            ..*one
        });
        let shares: Vec<Weighted> = shares.collect();
        let (value, interval) = weighted_sum(&shares)?;
        Some(Mean {
            cells: shared.len(),
            hits: shares.iter().map(|one| one.hits).sum(),
            cuts: shares.iter().map(|one| one.trials).sum(),
            value,
            interval,
        })
    };
    let shown = |parts: &Parts| mean(parts).map_or(NOT_COMPARABLE.to_owned(), |mean| show(&mean));
    let figure = |parts: &Parts| (!parts.is_empty()).then(|| shown(parts));
    all.iter().map(figure).collect()
}

fn share(mean: &Mean) -> String {
    let Mean {
        cells, hits, cuts, ..
    } = mean;
    let (low, high) = (mean.interval.low * 100.0, mean.interval.high * 100.0);
    match cells {
        1 => format!("{hits} of {cuts} ({low:.2} to {high:.2} %)"),
        _ => {
            let value = mean.value * 100.0;
            format!(
                "{value:.2} % ({low:.2} to {high:.2} %), the mean of {cells} cells; \
                 {hits} of {cuts} cuts"
            )
        }
    }
}

fn points(mean: &Mean) -> String {
    let Interval { low, high, .. } = mean.interval;
    let doubt = match (low..=high).contains(&0.0) {
        true => ", not distinguishable from 0",
        false => "",
    };
    let [value, low, high] = [mean.value, low, high].map(|one| one * 100.0);
    format!("{value:+.1} points ({low:+.1} to {high:+.1}){doubt}")
}

/// How often what was synced was not whole, of each file system.
pub(super) fn lost_acks(all: &[&Cuts<'_>], disk_cache: DiskCache) -> Vec<Option<String>> {
    let parts: Vec<Parts> = all.iter().map(|one| one.lost(disk_cache)).collect();
    let figures = means(&parts, share).into_iter().zip(all);
    let reason = |cuts: &Cuts<'_>| {
        let is_synced = cuts.synced(disk_cache).next().is_some();
        is_synced.then(|| NOT_PROMISED.to_owned())
    };
    figures
        .map(|(figure, cuts)| figure.or_else(|| reason(cuts)))
        .collect()
}

/// How often what was only closed was whole.
pub(super) fn whole(all: &[&Cuts<'_>]) -> Vec<Option<String>> {
    let parts: Vec<Parts> = all.iter().map(|one| one.whole()).collect();
    means(&parts, share)
}

/// How much more often with the shortest flush time than with the longest.
pub(super) fn dependence(all: &[&Cuts<'_>]) -> Vec<Option<String>> {
    let parts: Vec<Parts> = all.iter().map(|one| one.rise()).collect();
    means(&parts, points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercut::{Cell, FileSystem, summary};

    const MEMORY: u64 = 512 << 20;

    /// A cell whose flush time is so long, of which so many of so many cuts were whole.
    fn cell(file_system: FileSystem, how: How, seconds: u64, counts: (u64, u64)) -> Summary {
        let cell = Cell {
            file_system,
            bytes: 1 << 20,
            wait: Duration::from_secs(5),
            flush_time: Duration::from_secs(seconds),
            how,
            mount_options: String::new(),
            disk_cache: DiskCache::None,
        };
        let mut of = summary(&cell, &[]);
        (of.hits, of.cuts) = counts;
        if is_promised(&cell) {
            of.lost_acks = of.cuts - of.hits;
        }
        of
    }

    fn cuts(cells: &[Summary]) -> Cuts<'_> {
        let mut cuts = Cuts::default();
        cells.iter().for_each(|cell| cuts.add(cell, MEMORY));
        cuts
    }

    fn ext4(seconds: u64, counts: (u64, u64)) -> Summary {
        cell(FileSystem::Ext4, How::Close, seconds, counts)
    }

    #[test]
    fn what_nobody_promised_is_not_counted_as_kept() {
        let ext2 = [cell(FileSystem::Ext2, How::Fsync, 30, (0, 20))];
        let ext3 = [cell(FileSystem::Ext3, How::Fsync, 30, (20, 20))];
        let xfs = [cell(FileSystem::Xfs, How::Close, 30, (20, 20))];
        let all = [&cuts(&ext2), &cuts(&ext3), &cuts(&xfs)];
        let found = lost_acks(&all, DiskCache::None);
        assert_eq!(found[0].as_deref(), Some(NOT_PROMISED));
        assert_eq!(found[1].as_deref(), Some("0 of 20 (0.00 to 16.11 %)"));
        // Nothing was synced, and with a cache nothing was cut.
        assert_eq!(found[2], None);
        assert_eq!(lost_acks(&all, DiskCache::Lost), [None, None, None]);
    }

    #[test]
    fn every_cell_counts_the_same() {
        let both = [ext4(30, (6, 6)), ext4(1, (46, 93))];
        let found = whole(&[&cuts(&both)]);
        let shown = "74.73 % (54.59 to 79.72 %), the mean of 2 cells; 52 of 99 cuts";
        assert_eq!(found, [Some(shown.to_owned())]);
        // What was never cut is no cell.
        let one = [ext4(30, (15, 148)), ext4(1, (0, 0))];
        let shown = "15 of 148 (6.24 to 16.05 %)";
        assert_eq!(whole(&[&cuts(&one)]), [Some(shown.to_owned())]);
        assert!(Cuts::default().is_empty() && cuts(&one[1..]).is_empty());
    }

    #[test]
    fn of_the_same_cell_the_last_run_counts_and_other_memory_makes_another_cell() {
        let (early, late) = (ext4(30, (1, 10)), ext4(30, (2, 20)));
        let mut all = Cuts::default();
        all.add(&early, MEMORY);
        all.add(&late, MEMORY);
        let said = whole(&[&all])[0].clone().unwrap();
        assert!(said.starts_with("2 of 20 ("), "{said}");
        all.add(&early, 2 * MEMORY);
        let said = whole(&[&all])[0].clone().unwrap();
        assert!(said.ends_with("mean of 2 cells; 3 of 30 cuts"), "{said}");
    }

    #[test]
    fn only_cells_that_all_have_are_compared() {
        let xfs = |seconds, counts| cell(FileSystem::Xfs, How::Close, seconds, counts);
        let wide = [ext4(30, (10, 20)), ext4(1, (20, 20))];
        let narrow = [xfs(30, (5, 20))];
        let nothing = Cuts::default();
        let found = whole(&[&cuts(&wide), &cuts(&narrow), &nothing]);
        let said = |number: usize| found[number].clone().unwrap();
        assert!(said(0).starts_with("10 of 20 (") && said(1).starts_with("5 of 20 ("));
        assert_eq!(found[2], None);
        let other = [xfs(3, (5, 20))];
        let found = whole(&[&cuts(&wide), &cuts(&other)]);
        let none = Some(NOT_COMPARABLE.to_owned());
        assert_eq!(found, [none.clone(), none]);
    }

    #[test]
    fn a_difference_says_how_far_it_is_to_be_believed() {
        // Newcombe 1998: the wider ends of the two.
        let clear = [ext4(30, (3, 10)), ext4(3, (0, 10)), ext4(1, (9, 10))];
        let shown = "+60.0 points (+17.1 to +80.9)";
        assert_eq!(dependence(&[&cuts(&clear)]), [Some(shown.to_owned())]);
        let same = [ext4(30, (0, 10)), ext4(1, (0, 10))];
        let shown = "+0.0 points (-27.8 to +27.8), not distinguishable from 0";
        assert_eq!(dependence(&[&cuts(&same)]), [Some(shown.to_owned())]);
        // Of one flush time there is no difference, nor of cells that differ in more.
        let mut longer = [ext4(30, (3, 10)), ext4(1, (9, 10))];
        longer[0].cell.bytes = 10 << 20;
        assert_eq!(dependence(&[&cuts(&longer)]), [None]);
        assert_eq!(dependence(&[&cuts(&clear[..1])]), [None]);
        assert_eq!(dependence(&[&Cuts::default()]), [None]);
    }
}
