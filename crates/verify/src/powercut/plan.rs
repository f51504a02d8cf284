//! Cells, and which of them is cut next: how often each is, follows from what was found.

use super::subject::{DiskCache, FileSystem, How};
use crate::statistics::wilson;
use base::limits::VERIFY_POWERCUT_CELLS_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One combination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The file system.
    pub file_system: FileSystem,
    /// How long the file is.
    pub bytes: u64,
    /// How long after it was written power is lost.
    pub wait: Duration,
    /// When the guest's kernel sends what was written to the disk.
    pub flush_time: Duration,
    /// In which way it is written.
    pub how: How,
    /// Options of the mount, with commas between.
    pub mount_options: String,
    /// What becomes of what the disk was given.
    #[serde(default)]
    pub disk_cache: DiskCache,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, how) = (self.file_system.name(), self.how.name());
        write!(f, "{name} {how} {}", base::ByteSize(self.bytes))?;
        let (wait, flush) = (self.wait.as_secs_f64(), self.flush_time.as_secs_f64());
        write!(f, ", cut after {wait} s, flush time {flush} s")?;
        if !self.mount_options.is_empty() {
            write!(f, ", {}", self.mount_options)?;
        }
        match self.disk_cache {
            DiskCache::None => Ok(()),
            DiskCache::Lost => f.write_str(", disk cache lost"),
        }
    }
}

/// What is asked for: all combinations of it.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// File systems.
    pub file_systems: Vec<FileSystem>,
    /// Lengths of the file.
    pub bytes: Vec<u64>,
    /// Times to the cut.
    pub waits: Vec<Duration>,
    /// Flush times.
    pub flush_times: Vec<Duration>,
    /// Ways to write.
    pub hows: Vec<How>,
    /// Mount options; none is one without any.
    pub mount_options: Vec<String>,
    /// What disks do; none is disks without a cache.
    pub disk_caches: Vec<DiskCache>,
}

impl Matrix {
    /// All its cells, in the order in which they were asked for, each once.
    ///
    /// # Errors
    /// In words, if there are none, or too many.
    pub fn cells(&self) -> Result<Vec<Cell>, String> {
        let none = [String::new()];
        let options = match self.mount_options.is_empty() {
            true => &none[..],
            false => &self.mount_options[..],
        };
        let caches = match self.disk_caches.is_empty() {
            true => &[DiskCache::None][..],
            false => &self.disk_caches[..],
        };
        let mut cells: Vec<Cell> = Vec::new();
        for file_system in &self.file_systems {
            for mount_options in options {
                for how in &self.hows {
                    for bytes in &self.bytes {
                        for flush_time in &self.flush_times {
                            let of = caches.iter().flat_map(|disk_cache| {
                                self.waits.iter().map(|wait| Cell {
                                    file_system: *file_system,
                                    bytes: *bytes,
                                    wait: *wait,
                                    flush_time: *flush_time,
                                    how: *how,
                                    mount_options: mount_options.clone(),
                                    disk_cache: *disk_cache,
                                })
                            });
                            add_new(&mut cells, of)?;
                        }
                    }
                }
            }
        }
        match cells.is_empty() {
            true => Err("nothing of what was asked for can be cut".to_owned()),
            false => Ok(cells),
        }
    }
}

/// Adds those that are not there yet.
fn add_new(cells: &mut Vec<Cell>, more: impl Iterator<Item = Cell>) -> Result<(), String> {
    for cell in more {
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    let most = VERIFY_POWERCUT_CELLS_MAX;
    match cells.len() > most {
        true => Err(format!("more than {most} cells were asked for")),
        false => Ok(()),
    }
}

/// When a cell has been cut often enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Half the width that the interval of its share may have.
    pub half_width: f64,
    /// At the most so often.
    pub cuts_max: u64,
}

impl Bound {
    /// Whether a cell needs another cut, of which `hits` of `cuts` have been recovered. One is
    /// needed in any case.
    #[must_use]
    pub fn is_wanting(&self, hits: u64, cuts: u64) -> bool {
        let (low, high) = wilson(hits, cuts);
        cuts == 0 || cuts < self.cuts_max && (high - low) / 2.0 > self.half_width
    }

    /// How often a cell is cut at the least, which is if all its cuts end alike.
    #[must_use]
    pub fn cuts_min(&self) -> u64 {
        let mut cuts = 0;
        while self.is_wanting(cuts, cuts) {
            cuts += 1;
        }
        cuts
    }
}

/// Counts of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    hits: u64,
    cuts: u64,
    /// Being cut.
    in_flight: u64,
    is_given_up: bool,
}

/// Says which cell is next: the one with the fewest cuts, so that a machine that becomes slower
/// makes all cells slower.
#[derive(Clone, Debug)]
pub struct Schedule {
    bound: Bound,
    counts: Vec<Count>,
}

impl Schedule {
    /// For so many cells.
    #[must_use]
    pub fn new(cells: usize, bound: Bound) -> Self {
        Self {
            bound,
            counts: vec![Count::default(); cells],
        }
    }

    /// Notes the end of a cut of a cell that was made in an earlier run.
    pub fn note(&mut self, cell: usize, is_hit: bool) {
        self.counts[cell].cuts += 1;
        self.counts[cell].hits += u64::from(is_hit);
    }

    /// The cell to be cut next and the number of this cut; `None` if nothing more is to be begun.
    #[must_use]
    pub fn begin(&mut self) -> Option<(usize, u64)> {
        let is_open = |count: &Count| {
            let begun = count.cuts + count.in_flight;
            // What is in flight will probably be enough.
            !count.is_given_up
                && begun < self.bound.cuts_min().max(count.cuts + 1)
                && begun < self.bound.cuts_max
                && self.bound.is_wanting(count.hits, count.cuts)
        };
        let open = self.counts.iter().enumerate();
        let open = open.filter(|(_, count)| is_open(count));
        let (cell, _) = open.min_by_key(|(_, count)| count.cuts + count.in_flight)?;
        let count = &mut self.counts[cell];
        count.in_flight += 1;
        Some((cell, count.cuts + count.in_flight - 1))
    }

    /// Takes the end of a cut that [`Schedule::begin`] gave out.
    pub fn done(&mut self, cell: usize, is_hit: bool) {
        self.counts[cell].in_flight -= 1;
        self.note(cell, is_hit);
    }

    /// Takes a cut that [`Schedule::begin`] gave out and that came to no end. A cell that is given
    /// up is not cut any more.
    pub fn failed(&mut self, cell: usize, is_given_up: bool) {
        self.counts[cell].in_flight -= 1;
        self.counts[cell].is_given_up |= is_given_up;
    }

    /// Cells that are done.
    #[must_use]
    pub fn cells_done(&self) -> u64 {
        let is_done = |count: &&Count| !self.bound.is_wanting(count.hits, count.cuts);
        self.counts.iter().filter(is_done).count() as u64
    }

    /// How many cuts there will be, if nothing that is to come changes a share: of those that were
    /// made and those that are left.
    #[must_use]
    pub fn expected(&self) -> (u64, u64) {
        let (mut made, mut all) = (0, 0);
        for count in &self.counts {
            made += count.cuts;
            let mut cuts = count.cuts;
            let share = count.hits as f64 / (count.cuts as f64).max(1.0);
            while self
                .bound
                .is_wanting((share * cuts as f64).round() as u64, cuts)
            {
                cuts += 1;
            }
            all += cuts;
        }
        (made, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let seconds = |all: &[u64]| all.iter().copied().map(Duration::from_secs).collect();
        Matrix {
            file_systems: FileSystem::ALL.to_vec(),
            bytes: vec![1 << 20, 10 << 20],
            waits: seconds(&[0, 5, 10, 5]),
            flush_times: seconds(&[30, 1]),
            hows: How::ALL.to_vec(),
            mount_options: Vec::new(),
            disk_caches: DiskCache::ALL.to_vec(),
        }
    }

    #[test]
    fn cells_are_all_combinations_each_once() {
        let cells = matrix().cells().unwrap();
        assert_eq!(cells.len(), 7 * 2 * 3 * 2 * 4 * 2);
        let lost = cells[3].to_string();
        assert!(
            lost.ends_with("after 0 s, flush time 30 s, disk cache lost"),
            "{lost}"
        );
        let shown = "ext2 close 1.0 MiB, cut after 5 s, flush time 30 s";
        assert_eq!(cells[1].to_string(), shown);
        let mut asked = matrix();
        asked.hows.clear();
        assert!(asked.cells().is_err());
        asked = matrix();
        asked.waits = (0..VERIFY_POWERCUT_CELLS_MAX as u64)
            .map(Duration::from_millis)
            .collect();
        assert!(asked.cells().unwrap_err().contains("more than"));
    }

    const BOUND: Bound = Bound {
        half_width: 0.1,
        cuts_max: 60,
    };

    #[test]
    fn a_cell_is_cut_until_its_interval_is_narrow_enough() {
        // 3.8415 / (n + 3.8415) / 2 is at most 0.1 from 16 on, if all end alike.
        assert!(BOUND.is_wanting(0, 15) && !BOUND.is_wanting(0, 16));
        assert_eq!(BOUND.cuts_min(), 16);
        // Half of them need 93; the maximum comes before.
        assert!(BOUND.is_wanting(30, 59) && !BOUND.is_wanting(30, 60));
        let wide = Bound {
            cuts_max: 200,
            ..BOUND
        };
        assert!(wide.is_wanting(46, 92) && !wide.is_wanting(47, 93));
    }

    #[test]
    fn cells_have_turns_and_end_when_they_are_known() {
        let mut schedule = Schedule::new(2, BOUND);
        let mut order = Vec::new();
        // The first cell always ends alike, the second one in turns.
        while let Some((cell, number)) = schedule.begin() {
            schedule.done(cell, cell == 1 && number % 2 == 0);
            order.push(cell);
        }
        let count = |of: usize| order.iter().filter(|cell| **cell == of).count();
        assert_eq!((count(0), count(1)), (16, 60));
        assert_eq!(order[..4], [0, 1, 0, 1]);
        assert_eq!((schedule.cells_done(), schedule.expected()), (2, (76, 76)));
    }

    #[test]
    fn what_is_in_flight_is_not_begun_twice_and_what_was_cut_before_counts() {
        let mut schedule = Schedule::new(1, BOUND);
        (0..14).for_each(|_| schedule.note(0, true));
        assert_eq!(schedule.begin(), Some((0, 14)));
        assert_eq!(schedule.begin(), Some((0, 15)));
        assert_eq!(schedule.begin(), None);
        schedule.done(0, true);
        schedule.done(0, true);
        assert_eq!(schedule.begin(), None);
        let mut schedule = Schedule::new(1, BOUND);
        (0..16).for_each(|_| schedule.note(0, true));
        assert_eq!(schedule.begin(), None);
    }
}
