//! Which cells are measured, and in which order.
//!
//! A cell is one way to set everything: the file system, its block size, memory, flush time,
//! parameters. The cells are all combinations of what was asked for; what makes no sense in one of
//! them is left out, and that is said. Repeats are interleaved: each round measures every cell
//! once, in an order of its own, so that a machine that becomes slower makes all cells slower.

use super::tunable::{Setting, Tunable, commit_option, flush_time};
use crate::actor::Tool;
use crate::crash::Target;
use base::limits::VERIFY_SPEED_CELLS_MAX;
use serde::Deserialize;
use sim::Random;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The block size of file systems unless another one is asked for: a page.
pub const BLOCK_BYTES_DEFAULT: u64 = 4096;

/// Where is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file system that is made for it, on a loop device over a file.
    Made(Target),
    /// A directory that is there: of any file system, of a mount of ours, of somebody else's
    /// server.
    Directory(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(target) => f.write_str(target.name()),
            Self::Directory(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What is asked for: all combinations of it.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// Where.
    pub places: Vec<Place>,
    /// Block sizes of file systems that are made, in bytes.
    pub block_bytes: Vec<u64>,
    /// Memory that the programs may use; `None`: all.
    pub memory_bytes: Vec<Option<u64>>,
    /// When what was written is on its way to the disk; `None`: as the machine has it.
    pub flush_times: Vec<Option<Duration>>,
    /// Values of parameters.
    pub settings: Vec<(Tunable, Vec<u64>)>,
    /// Mount options of file systems that are made, each with commas between.
    pub mount_options: Vec<String>,
}

/// One combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Where.
    pub place: Place,
    /// The block size, where a file system is made.
    pub block_bytes: Option<u64>,
    /// See [`Matrix::memory_bytes`].
    pub memory_bytes: Option<u64>,
    /// See [`Matrix::flush_times`].
    pub flush_time: Option<Duration>,
    /// Parameters that are set.
    pub settings: Vec<Setting>,
    /// With commas between.
    pub mount_options: String,
}

impl Cell {
    /// Everything that is set on the machine while it is measured. What is set by name goes before
    /// what a flush time means.
    #[must_use]
    pub fn all_settings(&self) -> Vec<Setting> {
        let is_named = |tunable| self.settings.iter().any(|own| own.tunable == tunable);
        let target = match self.place {
            Place::Made(target) => Some(target),
            Place::Directory(_) => None,
        };
        let meant = self.flush_time.map(|time| flush_time(time, target));
        let meant = meant.into_iter().flatten();
        let meant = meant.filter(|setting| !is_named(setting.tunable));
        meant.chain(self.settings.iter().copied()).collect()
    }

    /// How a file system of this kind is mounted: with what was asked for, and with what a flush
    /// time means for its log.
    #[must_use]
    pub fn options(&self, target: Target) -> String {
        let is_commit = |option: &str| option.starts_with("commit=");
        if self.mount_options.split(',').any(is_commit) {
            return self.mount_options.clone();
        }
        let meant = self.flush_time.and_then(|time| commit_option(time, target));
        let asked = Some(self.mount_options.clone()).filter(|options| !options.is_empty());
        let both: Vec<String> = asked.into_iter().chain(meant).collect();
        both.join(",")
    }

    /// How its file system is made, if one is.
    pub(super) fn format(&self) -> Option<Tool> {
        match &self.place {
            Place::Made(target) => {
                let bytes = self.block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT);
                Some(format(*target, bytes))
            }
            Place::Directory(_) => None,
        }
    }
}

/// Something that was asked for and is not measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they were asked for.
    pub cells: Vec<Cell>,
    /// What makes no sense.
    pub left_out: Vec<LeftOut>,
}

impl Plan {
    /// All combinations of `matrix` that make sense.
    ///
    /// # Errors
    /// In words, if there are too many, or none.
    pub fn new(matrix: &Matrix) -> Result<Self, String> {
        let mut plan = Self::default();
        let settings = combinations(&matrix.settings)?;
        for place in &matrix.places {
            let blocks = plan.blocks(place, &matrix.block_bytes);
            let settings = plan.settings(place, &settings);
            let options = plan.mount_options(place, &matrix.mount_options);
            for block_bytes in blocks {
                for options in &options {
                    for memory_bytes in or_default(&matrix.memory_bytes) {
                        for flush_time in or_default(&matrix.flush_times) {
                            plan.cells.extend(settings.iter().map(|settings| Cell {
                                place: place.clone(),
                                block_bytes,
                                memory_bytes,
                                flush_time,
                                settings: settings.clone(),
                                mount_options: options.clone(),
                            }));
                            if plan.cells.len() > VERIFY_SPEED_CELLS_MAX {
                                return Err(too_many());
                            }
                        }
                    }
                }
            }
        }
        match plan.cells.is_empty() {
            true => Err("nothing of what was asked for can be measured".to_owned()),
            false => Ok(plan),
        }
    }

    fn leave_out(&mut self, place: &Place, what: impl fmt::Display, why: &str) {
        self.left_out.push(LeftOut {
            what: format!("{place}: {what}"),
            why: why.to_owned(),
        });
    }

    fn blocks(&mut self, place: &Place, asked: &[u64]) -> Vec<Option<u64>> {
        let Place::Made(target) = place else {
            if !asked.is_empty() {
                self.leave_out(place, "a block size", "no file system is made there");
            }
            return vec![None];
        };
        if *target == Target::Store {
            if !asked.is_empty() {
                self.leave_out(
                    place,
                    "a block size",
                    "a store has units of 64 KiB and more",
                );
            }
            return vec![None];
        }
        let mut blocks = Vec::new();
        for bytes in asked {
            // It has sectors of the machine's pages, or of more than this machine can test.
            if *target == Target::Btrfs && *bytes != BLOCK_BYTES_DEFAULT {
                let why = "btrfs has blocks of 4096 bytes";
                self.leave_out(place, format_args!("blocks of {bytes} bytes"), why);
                continue;
            }
            blocks.push(Some(*bytes));
        }
        match asked.is_empty() {
            true => vec![Some(BLOCK_BYTES_DEFAULT)],
            false => blocks,
        }
    }

    fn settings(&mut self, place: &Place, all: &[Vec<Setting>]) -> Vec<Vec<Setting>> {
        if matches!(place, Place::Made(_)) {
            return all.to_vec();
        }
        let mut kept: Vec<Vec<Setting>> = Vec::new();
        let mut names = Vec::new();
        for settings in all {
            let (of_device, of_machine): (Vec<Setting>, Vec<Setting>) = settings
                .iter()
                .partition(|setting| setting.tunable.is_of_a_device());
            names.extend(of_device.iter().map(|setting| setting.tunable.name()));
            if !kept.contains(&of_machine) {
                kept.push(of_machine);
            }
        }
        names.sort_unstable();
        names.dedup();
        for name in names {
            self.leave_out(place, name, "its device is not this run's");
        }
        kept
    }

    fn mount_options(&mut self, place: &Place, asked: &[String]) -> Vec<String> {
        let is_asked = asked.iter().any(|options| !options.is_empty());
        match place {
            Place::Directory(_) => {
                if is_asked {
                    self.leave_out(place, "mount options", "it is mounted already");
                }
                vec![String::new()]
            }
            Place::Made(Target::Store) if is_asked => {
                self.leave_out(place, "mount options", "a store is not mounted");
                vec![String::new()]
            }
            Place::Made(_) if asked.is_empty() => vec![String::new()],
            Place::Made(_) => asked.to_vec(),
        }
    }
}

fn too_many() -> String {
    format!("more than {VERIFY_SPEED_CELLS_MAX} combinations were asked for")
}

/// One `None` where nothing was asked for.
fn or_default<T: Copy>(asked: &[Option<T>]) -> Vec<Option<T>> {
    match asked.is_empty() {
        true => vec![None],
        false => asked.to_vec(),
    }
}

/// Each way to give every parameter one of its values.
fn combinations(asked: &[(Tunable, Vec<u64>)]) -> Result<Vec<Vec<Setting>>, String> {
    let mut all = vec![Vec::new()];
    for (tunable, values) in asked {
        if all.len().saturating_mul(values.len()) > VERIFY_SPEED_CELLS_MAX {
            return Err(too_many());
        }
        all = all
            .iter()
            .flat_map(|settings| {
                values.iter().map(move |value| {
                    let (tunable, value) = (*tunable, *value);
                    let mut settings: Vec<Setting> = settings.clone();
                    settings.push(Setting { tunable, value });
                    settings
                })
            })
            .collect();
    }
    Ok(all)
}

/// Makes a file system as its own tools do by default, but for work that would be left to be done
/// in the background while something is measured.
fn format(target: Target, block_bytes: u64) -> Tool {
    let block = block_bytes.to_string();
    let size = format!("size={block}");
    let lazy = "lazy_itable_init=0,lazy_journal_init=0";
    let arguments: Vec<&str> = match target {
        Target::Ext2 | Target::Ext3 | Target::Ext4 => {
            vec!["-q", "-F", "-b", &block, "-E", lazy, "{}"]
        }
        Target::Xfs => vec!["-q", "-f", "-b", &size, "{}"],
        Target::Btrfs => vec!["-q", "-f", "{}"],
        Target::Store | Target::Volume => return target.make(),
    };
    Tool {
        program: target.maker().0.to_owned(),
        arguments: arguments.into_iter().map(str::to_owned).collect(),
        code_max: 0,
    }
}

/// The order of `repeats` rounds: every cell once in each, by chance. Numbers of cells.
#[must_use]
pub(super) fn order(cells: usize, repeats: u32, seed: u64) -> Vec<(u32, usize)> {
    let mut random = Random::new(seed);
    let mut order = Vec::new();
    for round in 0..repeats {
        let mut left: Vec<usize> = (0..cells).collect();
        while !left.is_empty() {
            let at = random.below(left.len() as u64);
            let cell = left.swap_remove(usize::try_from(at).expect("below a length"));
            order.push((round, cell));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Place {
        Place::Directory("/mnt/far".into())
    }

    fn matrix() -> Matrix {
        Matrix {
            places: vec![Place::Made(Target::Ext4), directory()],
            block_bytes: vec![1024, 4096],
            memory_bytes: vec![Some(1 << 28), Some(1 << 29), None],
            flush_times: vec![Some(Duration::from_secs(30)), Some(Duration::from_secs(1))],
            settings: vec![
                (Tunable::DirtyRatio, vec![5, 20]),
                (Tunable::ReadAhead, vec![128, 4096]),
            ],
            mount_options: vec!["data=ordered".into()],
        }
    }

    #[test]
    fn cells_are_all_combinations_that_make_sense() {
        let plan = Plan::new(&matrix()).unwrap();
        let of = |place: &Place| {
            plan.cells
                .iter()
                .filter(|cell| cell.place == *place)
                .count()
        };
        assert_eq!(of(&Place::Made(Target::Ext4)), 2 * 3 * 2 * 4);
        // Nothing is made there, and the device is not ours.
        assert_eq!(of(&directory()), 3 * 2 * 2);
        let mut different = Vec::new();
        for cell in &plan.cells {
            assert!(!different.contains(&cell), "{cell:?}");
            different.push(cell);
        }
        let shown: Vec<&str> = plan.left_out.iter().map(|one| one.what.as_str()).collect();
        let known = [
            "/mnt/far: a block size",
            "/mnt/far: read_ahead_kb",
            "/mnt/far: mount options",
        ];
        assert_eq!(shown, known);
    }

    #[test]
    fn without_a_wish_there_is_one_cell_of_each_place() {
        let places = vec![Place::Made(Target::Xfs), directory()];
        let plan = Plan::new(&Matrix {
            places,
            ..Matrix::default()
        })
        .unwrap();
        let blocks: Vec<Option<u64>> = plan.cells.iter().map(|cell| cell.block_bytes).collect();
        assert_eq!(blocks, [Some(4096), None]);
        assert!(plan.left_out.is_empty() && plan.cells[0].all_settings().is_empty());
        let tool = plan.cells[0].format().unwrap();
        assert_eq!(tool.arguments, ["-q", "-f", "-b", "size=4096", "{}"]);
        assert_eq!(plan.cells[1].format(), None);
    }

    #[test]
    fn a_store_is_made_as_for_a_crash_run_and_has_neither_blocks_nor_mount_options() {
        let plan = Plan::new(&Matrix {
            places: vec![Place::Made(Target::Store)],
            block_bytes: vec![1024, 4096],
            mount_options: vec!["noatime".into(), "sync".into()],
            ..Matrix::default()
        });
        let plan = plan.unwrap();
        assert_eq!((plan.cells.len(), plan.left_out.len()), (1, 2));
        assert_eq!(plan.cells[0].format(), Some(Target::Store.make()));
    }

    #[test]
    fn a_flush_time_holds_for_the_log_unless_that_has_its_own() {
        let cell = |options: &str, flush_time| Cell {
            place: Place::Made(Target::Ext4),
            block_bytes: None,
            memory_bytes: None,
            flush_time,
            settings: Vec::new(),
            mount_options: options.to_owned(),
        };
        let second = Some(Duration::from_secs(1));
        let options = |options, time| cell(options, time).options(Target::Ext4);
        assert_eq!(options("", None), "");
        assert_eq!(options("", second), "commit=1");
        assert_eq!(options("noatime", second), "noatime,commit=1");
        assert_eq!(options("noatime,commit=9", second), "noatime,commit=9");
    }

    #[test]
    fn what_is_set_by_name_goes_before_what_a_flush_time_means() {
        let mut asked = matrix();
        asked.settings = vec![(Tunable::DirtyWriteback, vec![50])];
        let plan = Plan::new(&asked).unwrap();
        let shown: Vec<String> = plan.cells[0]
            .all_settings()
            .iter()
            .map(Setting::to_string)
            .collect();
        let known = [
            "dirty_expire_centisecs=3000",
            "dirty_writeback_centisecs=50",
        ];
        assert_eq!(shown, known);
    }

    #[test]
    fn what_is_nothing_or_too_much_is_refused() {
        let mut asked = matrix();
        asked.places = vec![Place::Made(Target::Btrfs)];
        asked.block_bytes = vec![1024];
        assert!(Plan::new(&asked).is_err());
        let mut asked = matrix();
        let values: Vec<u64> = (1..=100).collect();
        asked.settings = vec![
            (Tunable::DirtyRatio, values.clone()),
            (Tunable::Swappiness, values),
        ];
        assert!(Plan::new(&asked).unwrap_err().contains("more than"));
        asked.settings.truncate(1);
        asked.memory_bytes = vec![None; 100];
        assert!(Plan::new(&asked).is_err());
    }

    #[test]
    fn every_round_has_every_cell_once_in_an_order_of_its_own() {
        let order = order(20, 5, 7);
        let rounds: Vec<&[(u32, usize)]> = order.chunks(20).collect();
        assert_eq!(rounds.len(), 5);
        for (number, round) in (0..).zip(&rounds) {
            assert!(round.iter().all(|(of, _)| *of == number));
            let mut cells: Vec<usize> = round.iter().map(|(_, cell)| *cell).collect();
            assert!(!cells.is_sorted(), "{cells:?}");
            cells.sort_unstable();
            assert_eq!(cells, (0..20).collect::<Vec<_>>());
        }
        let cells = |round: &[(u32, usize)]| round.iter().map(|(_, c)| *c).collect::<Vec<_>>();
        assert_ne!(cells(rounds[0]), cells(rounds[1]));
        assert_eq!(order, super::order(20, 5, 7), "a seed is an order");
    }
}
