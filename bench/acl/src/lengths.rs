//! Three kinds of access to a rich ACL, by the length of the POSIX ACL that it is a view of (the
//! paper's Figure 3), and beside them the kernel's own judgement, which every access takes.
//!
//! | | access |
//! |---|---|
//! | T_A | to a view that is stored: POSIX ACL and view are read, and held against each other |
//! | T_C | that converts |
//! | T_CW | that converts and stores; the program does the latter off the request's way |
//! | T_K | access(2) of somebody whom the list does not name, which reads the POSIX ACL |
//!
//! Nothing is kept in memory but what the kernel keeps, as in the paper's section 3.2.
//! Each file is looked at once after a mount, its inode first, so that what is timed and whose
//! reads are counted is what lies beyond it. Warm is a second time at once. What is shown is the
//! least, as in the paper, and the median.

use crate::Cli;
use crate::lists::{SHORTEST, give, list};
use crate::place::{Image, Kind, Mounted, open_keeping, permissions, served};
use crate::report::{Report, median};
use crate::tree::{FILE_BYTES, somebody};
use acl::{Costs, Policy};
use anyhow::{Result, ensure};
use base::{Handle, Name, Principal, Rights};
use export::{Export, Worker};
use figures::{Chart, Colour, Random, Scale, Series};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

/// Close where file systems have their steps.
const LENGTHS: [u32; 26] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 21, 24, 28, 34, 35, 48, 64, 83, 100, 150,
    200,
];
const NFS4: &[u8] = b"system.nfs4_acl";
const ROOM_BYTES: u64 = 1 << 30;
/// For storing the views of all files before the first round.
const STORING_TIME: Duration = Duration::from_millis(1);

/// A kind of access; see the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Stored,
    Converted,
    Storing,
    Judged,
}

impl Access {
    const ALL: [Self; 4] = [Self::Stored, Self::Converted, Self::Storing, Self::Judged];

    fn name(self) -> &'static str {
        ["T_A", "T_C", "T_CW", "T_K"][self as usize]
    }
}

/// A file that is looked at in one way: each round, or in one round alone.
struct Probe {
    access: Access,
    length: usize,
    round: Option<usize>,
    is_warm: bool,
    handle: Handle,
}

/// What was measured of one length and kind of access.
#[derive(Default, Serialize)]
struct Cell {
    cold_us: Vec<f64>,
    reads: Vec<f64>,
    warm_us: Vec<f64>,
}

impl Cell {
    fn least(times: &[f64]) -> f64 {
        times.iter().copied().fold(f64::NAN, f64::min)
    }

    fn reads(&self) -> f64 {
        median(&self.reads)
    }
}

/// All of a file system.
#[derive(Serialize)]
struct Table {
    file_system: Kind,
    lengths: Vec<u32>,
    /// By length, then T_A, T_C, T_CW, T_K.
    cells: Vec<[Cell; 4]>,
    /// Lengths of which no view is stored because the file system has no room for it.
    without_room: Vec<u32>,
}

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    for kind in &cli.file_systems {
        let (table, costs) = Table::measure(cli, *kind)?;
        report.chart(table.chart());
        report.table(&table.markdown());
        for note in table.steps() {
            report.note(note);
        }
        report.note(table.foreseen(&costs));
        report.section(&format!("lengths_{kind}"), &table)?;
    }
    Ok(())
}

impl Table {
    fn measure(cli: &Cli, kind: Kind) -> Result<(Self, Costs)> {
        eprintln!("lengths: {kind}");
        let image = Image::new(&cli.directory, kind, ROOM_BYTES, 20_000)?;
        let mut table = Self {
            file_system: kind,
            lengths: LENGTHS.to_vec(),
            cells: LENGTHS.iter().map(|_| Default::default()).collect(),
            without_room: Vec::new(),
        };
        let (mut probes, costs) = table.prepare(cli, &image.mount()?)?;
        for round in 0..cli.repeat {
            shuffle(&mut probes, round as u64);
            let mounted = image.mount()?;
            let export = open_keeping(mounted.path(), false)?;
            export.set_rich(true);
            served(&export, |worker| {
                let of_round = |probe: &&Probe| probe.round.is_none_or(|only| only == round);
                for probe in probes.iter().filter(of_round) {
                    table.look(&export, worker, &mounted, probe)?;
                }
                Ok(())
            })?;
            drop(export);
        }
        Ok((table, costs))
    }

    /// Makes the files, and stores the views of those that are to have one.
    fn prepare(&mut self, cli: &Cli, mounted: &Mounted) -> Result<(Vec<Probe>, Costs)> {
        let export = open_keeping(mounted.path(), false)?;
        let mut probes = Vec::new();
        let mut names = Vec::new();
        for (length, entries) in LENGTHS.into_iter().enumerate() {
            for access in Access::ALL {
                // A file's view is stored once, so each round has files of its own for that.
                let rounds = match access {
                    Access::Storing => (0..cli.repeat).map(Some).collect(),
                    _ => vec![None],
                };
                for round in rounds {
                    for same in 0..cli.same {
                        let name = format!("f{:06}", names.len());
                        make(mounted, &name, entries, names.len() as u64)?;
                        names.push(Name::new(name)?);
                        probes.push(Probe {
                            access,
                            length,
                            round,
                            is_warm: access != Access::Storing || same % 2 == 1,
                            handle: export.root().clone(),
                        });
                    }
                }
            }
        }
        mounted.sync()?;
        export.set_rich(true);
        export.set_storing(Policy::Always, Costs::default());
        let (probes, costs) = served(&export, |worker| {
            let root = Principal::root();
            for (probe, name) in probes.iter_mut().zip(&names) {
                let found = export.lookup(worker, &root, export.root(), name)?;
                probe.handle = found.handle;
                if probe.access == Access::Stored {
                    export.get_xattr(worker, &root, &probe.handle, NFS4)?;
                    let stored = export.store_views(worker, STORING_TIME);
                    if stored.is_empty() {
                        self.without_room.push(LENGTHS[probe.length]);
                    }
                }
            }
            let costs = export.calibrate_views(worker)?.costs;
            Ok((probes, costs))
        })?;
        self.without_room.dedup();
        mounted.sync()?;
        drop(export);
        Ok((probes, costs))
    }

    fn look(
        &mut self,
        export: &Export,
        worker: &Worker,
        mounted: &Mounted,
        probe: &Probe,
    ) -> Result<()> {
        let Probe {
            access, ref handle, ..
        } = *probe;
        let stores = matches!(access, Access::Stored | Access::Storing);
        if stores && self.without_room.contains(&LENGTHS[probe.length]) {
            return Ok(());
        }
        let root = Principal::root();
        export.attributes(worker, &root, handle)?;
        let once = |time: &mut Option<f64>| -> Result<u64> {
            let reads = mounted.reads()?;
            let begin = Instant::now();
            access.run(export, worker, handle)?;
            *time = Some(begin.elapsed().as_secs_f64() * 1e6);
            Ok(mounted.reads()? - reads)
        };
        let cell = &mut self.cells[probe.length][access as usize];
        let mut time = None;
        match (access, probe.is_warm) {
            // Its view is stored at the first time, so it is warmed by a look at the list alone.
            (Access::Storing, true) => {
                Access::Converted.run(export, worker, handle)?;
                once(&mut time)?;
                cell.warm_us.extend(time);
            }
            (_, is_warm) => {
                cell.reads.push(once(&mut time)? as f64);
                cell.cold_us.extend(time);
                if is_warm {
                    once(&mut time)?;
                    cell.warm_us.extend(time);
                }
            }
        }
        Ok(())
    }

    fn markdown(&self) -> String {
        let mut out = format!(
            "**{}**: microseconds of an access, least / median, cold [reads of the device] and \
             warm\n\n| entries |",
            self.file_system
        );
        for access in Access::ALL {
            let _ = write!(out, " {} cold | warm |", access.name());
        }
        let _ = writeln!(out, "\n| --- |{}", " --- | --- |".repeat(4));
        for (length, cells) in self.lengths.iter().zip(&self.cells) {
            let _ = write!(out, "| {length} |");
            for cell in cells {
                if cell.cold_us.is_empty() {
                    out.push_str(" no room | |");
                    continue;
                }
                let least = Cell::least(&cell.cold_us);
                let (cold, reads) = (median(&cell.cold_us), cell.reads());
                let warm = median(&cell.warm_us);
                let _ = write!(out, " {least:.1} / {cold:.1} [{reads}] | {warm:.1} |");
            }
            out.push('\n');
        }
        out
    }

    /// Where reads begin to be others.
    fn steps(&self) -> Vec<String> {
        let steps = [Access::Stored, Access::Converted].map(|access| {
            let mut text = format!("{}, {}: ", self.file_system, access.name());
            let mut before = None;
            for (length, cells) in self.lengths.iter().zip(&self.cells) {
                let cell = &cells[access as usize];
                if cell.cold_us.is_empty() {
                    let _ = write!(text, "; no room from {length} entries on");
                    break;
                }
                let reads = cell.reads();
                if before != Some(reads) {
                    let comma = if before.is_some() { ", " } else { "" };
                    let _ = write!(text, "{comma}{reads} reads from {length}");
                }
                before = Some(reads);
            }
            text
        });
        steps.into()
    }

    /// Whether calibration says the same about reads.
    fn foreseen(&self, costs: &Costs) -> String {
        let mut wrong = Vec::new();
        let mut count = 0;
        for point in costs.points() {
            let Some(length) = self.lengths.iter().position(|l| *l == point.entries) else {
                continue;
            };
            let cells = &self.cells[length];
            if cells[0].cold_us.is_empty() {
                continue;
            }
            count += 1;
            let foreseen = [point.stored_reads, point.converted_reads].map(f64::from);
            if foreseen != [cells[0].reads(), cells[1].reads()] {
                wrong.push(point.entries.to_string());
            }
        }
        let right = count - wrong.len();
        let wrong = match wrong.is_empty() {
            true => String::new(),
            false => format!("; not at {}", wrong.join(", ")),
        };
        format!(
            "{}: `acl calibrate` foresees the reads of T_A and T_C at {right} of {count} lengths\
             {wrong}",
            self.file_system
        )
    }

    fn chart(&self) -> Chart {
        let colours = [
            Colour::Vermilion,
            Colour::Blue,
            Colour::Purple,
            Colour::Grey,
        ];
        let series = Access::ALL
            .into_iter()
            .zip(colours)
            .map(|(access, colour)| {
                let cells = self.cells.iter().map(|cells| &cells[access as usize]);
                let points = (0..).map(f64::from).zip(cells);
                let points = points.filter(|(_, cell)| !cell.cold_us.is_empty());
                let points = points.map(|(x, cell)| (x, Cell::least(&cell.cold_us)));
                Series::without_dots(access.name(), colour, points.collect())
            });
        let named = |length: &u32| match length {
            3 | 6 | 10 | 14 | 20 | 28 | 35 | 64 | 100 | 200 => length.to_string(),
            _ => String::new(),
        };
        Chart {
            title: format!("An access to a rich ACL, cold, {}", self.file_system),
            subtitle: "least of all tries, as in the paper's Figure 3".to_owned(),
            x_label: "entries of the POSIX ACL".to_owned(),
            x_names: self.lengths.iter().map(named).collect(),
            y_label: "microseconds".to_owned(),
            y_scale: Scale::Log,
            series: series.collect(),
            ..Chart::default()
        }
    }
}

impl Access {
    fn run(self, export: &Export, worker: &Worker, handle: &Handle) -> Result<()> {
        let root = Principal::root();
        let policy = match self {
            Self::Converted | Self::Judged => Policy::Never,
            Self::Stored | Self::Storing => Policy::Always,
        };
        export.set_storing(policy, Costs::default());
        match self {
            Self::Judged => {
                let read = Rights {
                    read: true,
                    ..Rights::default()
                };
                Ok(export.check_access(worker, &somebody(), handle, read)?)
            }
            Self::Stored | Self::Converted => {
                export.get_xattr(worker, &root, handle, NFS4)?;
                Ok(())
            }
            Self::Storing => {
                export.get_xattr(worker, &root, handle, NFS4)?;
                // On a file whose view is stored by now nothing waits.
                export.store_views(worker, Duration::ZERO);
                Ok(())
            }
        }
    }
}

fn make(mounted: &Mounted, name: &str, entries: u32, seed: u64) -> Result<()> {
    ensure!(entries >= SHORTEST, "a mode has {SHORTEST} entries");
    let path = mounted.path().join(name);
    fs::write(&path, [7; FILE_BYTES])?;
    fs::set_permissions(&path, permissions(0o666))?;
    match list(entries, seed) {
        Some(list) => give(&path, &list),
        None => Ok(()),
    }
}

/// Another order for each seed (Fisher and Yates).
pub(crate) fn shuffle<T>(all: &mut [T], seed: u64) {
    let mut random = Random::new(seed);
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last as u64 + 1) as usize);
    }
}
