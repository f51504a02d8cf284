//! Results of power cuts: the cuts are taken, and what they come to is found out anew.

use super::{ResultError, count, figure, invalid, share, time};
use crate::outcome::Outcome;
use crate::powercut::{Cell, DiskCache, FileSystem, How, Sample, Summary, summary};
use crate::speed::LeftOut;
use base::limits::{VERIFY_POWERCUT_CELLS_MAX, VERIFY_POWERCUT_CUTS_MAX};
use serde::Deserialize;

/// A file is hardly longer than it should be; the paper has seen 103 %.
const SIZE_SHARE_MAX: f64 = 1e6;
/// No machine has more processors that wait.
const LOAD_MAX: f64 = 1e6;

/// A run of power cuts.
#[derive(Clone, Debug)]
pub struct Cuts {
    /// What was found of each cell.
    pub cells: Vec<Summary>,
    /// Cells that were given up, in words.
    pub failed: Vec<String>,
    /// File systems that were not cut, and why.
    pub left_out: Vec<LeftOut>,
    /// Memory of each machine.
    pub memory_bytes: u64,
}

#[derive(Deserialize)]
pub(super) struct Form {
    cells: Vec<CellForm>,
    failed: Vec<String>,
    #[serde(default)]
    left_out: Vec<LeftOut>,
    memory_bytes: u64,
}

#[derive(Deserialize)]
struct CellForm {
    target: FileSystem,
    how: How,
    size_bytes: u64,
    wait_seconds: f64,
    flush_seconds: f64,
    mount_options: String,
    #[serde(default)]
    disk_cache: DiskCache,
    samples: Vec<SampleForm>,
}

#[derive(Deserialize)]
struct SampleForm {
    outcome: Outcome,
    size_share: f64,
    content_share: f64,
    write_seconds: f64,
    cut_after_seconds: f64,
    seconds: f64,
    load_before: f64,
    words: String,
    #[serde(default)]
    flushes: u64,
    #[serde(default)]
    lost_bytes: u64,
}

pub(super) fn read(form: Form) -> Result<Cuts, ResultError> {
    if form.cells.len() > VERIFY_POWERCUT_CELLS_MAX {
        return Err(invalid(format!("it has {} cells", form.cells.len())));
    }
    let mut cells: Vec<Summary> = Vec::new();
    for form in form.cells {
        let one = cell(form)?;
        if cells.iter().any(|other| other.cell == one.cell) {
            return Err(invalid("it has the same cell twice"));
        }
        cells.push(one);
    }
    Ok(Cuts {
        cells,
        failed: form.failed,
        left_out: form.left_out,
        memory_bytes: count("memory_bytes", form.memory_bytes)?,
    })
}

fn cell(form: CellForm) -> Result<Summary, ResultError> {
    let cell = Cell {
        file_system: form.target,
        bytes: count("size_bytes", form.size_bytes)?,
        wait: time(form.wait_seconds)?,
        flush_time: time(form.flush_seconds)?,
        how: form.how,
        mount_options: form.mount_options,
        disk_cache: form.disk_cache,
    };
    if form.samples.len() as u64 > VERIFY_POWERCUT_CUTS_MAX {
        let cuts = form.samples.len();
        return Err(invalid(format!("it has {cuts} cuts of a cell")));
    }
    let samples = form.samples.into_iter().map(|form| {
        Ok(Sample {
            cell: cell.clone(),
            outcome: form.outcome,
            size_share: figure("size_share", form.size_share, SIZE_SHARE_MAX)?,
            content_share: share("content_share", form.content_share)?,
            write_time: time(form.write_seconds)?,
            cut_after: time(form.cut_after_seconds)?,
            time: time(form.seconds)?,
            load: figure("a load", form.load_before, LOAD_MAX)?,
            words: form.words,
            flushes: count("flushes", form.flushes)?,
            lost_bytes: count("lost_bytes", form.lost_bytes)?,
        })
    });
    let samples: Vec<Sample> = samples.collect::<Result<_, ResultError>>()?;
    Ok(summary(&cell, &samples))
}
