//! Results of speed runs: the repeats are taken, and what they come to is found out anew.

use super::{ResultError, count, figure, invalid, rate, time};
use crate::crash::Target;
use crate::speed::machine::Others;
use crate::speed::{Cell, LeftOut, Measure, Outcome, Place, Sample, Setting, Tunable, Value};
use base::limits::{VERIFY_SPEED_CELLS_MAX, VERIFY_SPEED_REPEATS_MAX};
use serde::Deserialize;
use std::time::Duration;

/// Load averages and shares of processors: no machine has more of them.
const PROCESSORS_MAX: f64 = 1e6;

/// A speed run.
#[derive(Clone, Debug)]
pub struct Speeds {
    /// What was found.
    pub outcome: Outcome,
    /// How often each cell was to be measured.
    pub repeats: u32,
    /// What was written and read in blocks.
    pub bytes: u64,
    /// Small files that were made.
    pub files: u64,
}

#[derive(Deserialize)]
pub(super) struct Form {
    cells: Vec<MeasuredForm>,
    left_out: Vec<LeftOut>,
    failed: Vec<LeftOut>,
    is_loaded: bool,
    caches_dropped: bool,
    processors: u32,
    load_before: f64,
    repeats: u32,
    size_bytes: u64,
    files: u64,
    seconds: f64,
    interrupted: bool,
}

#[derive(Deserialize)]
struct MeasuredForm {
    #[serde(flatten)]
    cell: CellForm,
    samples: Vec<SampleForm>,
}

/// A cell, which tuning runs have, too.
#[derive(Deserialize)]
pub(super) struct CellForm {
    target: String,
    block_bytes: Option<u64>,
    memory_bytes: Option<u64>,
    flush_seconds: Option<f64>,
    settings: Vec<SettingForm>,
    mount_options: String,
}

#[derive(Deserialize)]
struct SettingForm {
    name: String,
    value: u64,
}

#[derive(Deserialize)]
struct SampleForm {
    round: u32,
    values: Vec<ValueForm>,
    others_cpu: f64,
    steal: f64,
    load_before: f64,
    seconds: f64,
}

#[derive(Deserialize)]
struct ValueForm {
    measure: String,
    rate: f64,
    cpu: Option<f64>,
}

pub(super) fn read(form: Form) -> Result<Speeds, ResultError> {
    if form.cells.len() > VERIFY_SPEED_CELLS_MAX {
        return Err(invalid(format!("it has {} cells", form.cells.len())));
    }
    let (mut cells, mut samples) = (Vec::new(), Vec::new());
    for (number, measured) in form.cells.into_iter().enumerate() {
        let cell = cell(measured.cell)?;
        if cells.contains(&cell) {
            return Err(invalid("it has the same cell twice"));
        }
        cells.push(cell);
        if measured.samples.len() > VERIFY_SPEED_REPEATS_MAX as usize {
            let repeats = measured.samples.len();
            return Err(invalid(format!("it has {repeats} repeats of a cell")));
        }
        for form in measured.samples {
            samples.push(sample(number, form)?);
        }
    }
    let outcome = Outcome {
        cells,
        samples,
        left_out: form.left_out,
        failed: form.failed,
        processors: form.processors as usize,
        load: figure("a load", form.load_before, PROCESSORS_MAX)?,
        is_loaded: form.is_loaded,
        are_caches_dropped: form.caches_dropped,
        was_interrupted: form.interrupted,
        time: time(form.seconds)?,
    };
    Ok(Speeds {
        // Who measured beside others and does not say so is found out by the repeats.
        outcome: Outcome {
            is_loaded: outcome.is_loaded || outcome.disturbed() > 0,
            ..outcome
        },
        repeats: form.repeats,
        bytes: count("size_bytes", form.size_bytes)?,
        files: count("files", form.files)?,
    })
}

fn sample(cell: usize, form: SampleForm) -> Result<Sample, ResultError> {
    let values = form.values.into_iter().map(|value| {
        Ok(Value {
            measure: measure(&value.measure)?,
            rate: rate(value.rate)?,
            cpu: cpu(value.cpu)?,
        })
    });
    Ok(Sample {
        cell,
        round: form.round,
        values: values.collect::<Result<_, ResultError>>()?,
        others: Others {
            programs: figure("others_cpu", form.others_cpu, PROCESSORS_MAX)?,
            steal: figure("steal", form.steal, 1.0)?,
        },
        load: figure("a load", form.load_before, PROCESSORS_MAX)?,
        time: time(form.seconds)?,
    })
}

pub(super) fn cpu(share: Option<f64>) -> Result<Option<f64>, ResultError> {
    let share = share.map(|share| figure("cpu", share, PROCESSORS_MAX));
    share.transpose()
}

pub(super) fn measure(name: &str) -> Result<Measure, ResultError> {
    let measure = Measure::by_name(name);
    measure.ok_or_else(|| invalid(format!("there is no measure {name:?}")))
}

pub(super) fn cell(form: CellForm) -> Result<Cell, ResultError> {
    let place = match Target::by_name(&form.target) {
        Some(target) => Place::Made(target),
        None if form.target.contains('/') => Place::Directory(form.target.into()),
        None => return Err(invalid(format!("there is no target {:?}", form.target))),
    };
    let settings = form.settings.iter().map(|setting| {
        let tunable = Tunable::by_name(&setting.name);
        let none = || invalid(format!("there is no parameter {:?}", setting.name));
        Ok(Setting {
            tunable: tunable.ok_or_else(none)?,
            value: count("a parameter", setting.value)?,
        })
    });
    let optional = |bytes: Option<u64>| bytes.map(|bytes| count("a size", bytes)).transpose();
    let flush_time: Option<Duration> = form.flush_seconds.map(time).transpose()?;
    Ok(Cell {
        place,
        block_bytes: optional(form.block_bytes)?,
        memory_bytes: optional(form.memory_bytes)?,
        flush_time,
        settings: settings.collect::<Result<_, ResultError>>()?,
        mount_options: form.mount_options,
    })
}
