//! The speed of file systems under one kernel: the paper's figures 2 to 4, 6 to 10 and 12, and its
//! tables 10 and 13.
//!
//! What several runs have measured stands in one figure, each with the run that it is from where
//! that is not clear. A figure for which there is no data is left out.

use super::figure::{Figure, Look, Point, Series, short};
use super::whole::{Numbered, conditions};
use super::{escape, speed};
use crate::results::{Found, Head, Speeds};
use crate::speed::{Cell, Measure, Summary, Tunable};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// The paper's table 13 is about memory up to this.
const GAIN_BYTES_MAX: u64 = 2 << 30;
const MIB: u64 = 1 << 20;

/// One measure of one cell.
pub(super) struct Known<'a> {
    pub(super) run: usize,
    pub(super) is_loaded: bool,
    /// What the run says of itself, and all that it has measured.
    pub(super) head: &'a Head,
    pub(super) speeds: &'a Speeds,
    pub(super) cell: &'a Cell,
    pub(super) summary: Summary,
}

impl Known<'_> {
    /// As people compare it: millions of bytes, or things, a second.
    fn point(&self) -> Point {
        let scale = scale(self.summary.measure);
        Point {
            value: self.summary.median / scale,
            low: self.summary.interval.low / scale,
            high: self.summary.interval.high / scale,
        }
    }
}

const fn scale(measure: Measure) -> f64 {
    if measure.is_in_bytes() { 1e6 } else { 1.0 }
}

/// Everything that speed runs have measured.
pub(super) fn known<'a>(runs: &[Numbered<'a>]) -> Vec<Known<'a>> {
    let mut known = Vec::new();
    for run in runs {
        let Found::Speed(speeds) = &run.run.found else {
            continue;
        };
        let summaries = speeds.outcome.summaries();
        known.extend(summaries.into_iter().map(|summary| Known {
            run: run.number,
            is_loaded: speeds.outcome.is_loaded,
            head: &run.run.head,
            speeds,
            cell: &speeds.outcome.cells[summary.cell],
            summary,
        }));
    }
    known
}

/// Whether everything but the file system is as the machine has it.
pub(super) fn is_plain(cell: &Cell) -> bool {
    matches!(cell.block_bytes, None | Some(4096))
        && cell.memory_bytes.is_none()
        && cell.flush_time.is_none()
        && cell.settings.is_empty()
}

/// What a cell is, without what is as it is by default.
pub(super) fn label(cell: &Cell) -> String {
    let mut label = cell.place.to_string();
    let mut more = |part: String| {
        label.push_str(", ");
        label.push_str(&part);
    };
    if let Some(bytes) = cell.block_bytes.filter(|bytes| *bytes != 4096) {
        more(format!("blocks of {bytes} B"));
    }
    if let Some(bytes) = cell.memory_bytes {
        more(format!("{} MiB", bytes / MIB));
    }
    if let Some(time) = cell.flush_time {
        more(format!("flush {} s", time.as_secs_f64()));
    }
    for setting in &cell.settings {
        more(setting.to_string());
    }
    if !cell.mount_options.is_empty() {
        more(cell.mount_options.clone());
    }
    label
}

/// A series that is being put together: of a run, and of cells that differ in one respect alone.
struct Growing {
    run: usize,
    rest: Cell,
    series: Series,
}

/// What is to the right in a figure, and what a cell is without it.
struct Across<'f> {
    places: usize,
    /// At which place something stands, if at any.
    at: &'f dyn Fn(&Known<'_>) -> Option<usize>,
    /// The cell without what is to the right.
    rest: &'f dyn Fn(&Cell) -> Cell,
    value: &'f dyn Fn(&Known<'_>) -> Option<Point>,
}

impl Across<'_> {
    fn series(&self, known: &[Known<'_>]) -> (Vec<Series>, Source) {
        let mut growing: Vec<Growing> = Vec::new();
        let mut from = Source::default();
        for one in known {
            let (Some(place), Some(point)) = ((self.at)(one), (self.value)(one)) else {
                continue;
            };
            let rest = (self.rest)(one.cell);
            let same = |other: &Growing| other.run == one.run && other.rest == rest;
            let at = growing.iter().position(same).unwrap_or_else(|| {
                growing.push(Growing {
                    run: one.run,
                    series: Series {
                        label: label(&rest),
                        is_loaded: one.is_loaded,
                        points: vec![None; self.places],
                    },
                    rest,
                });
                growing.len() - 1
            });
            growing[at].series.points[place] = Some(point);
            from.counts.insert(one.summary.count);
        }
        from.runs = sorted(growing.iter().map(|one| one.run));
        (named(growing), from)
    }
}

/// What a figure is from.
#[derive(Default)]
struct Source {
    runs: Vec<usize>,
    /// How often its values were measured.
    counts: BTreeSet<usize>,
}

impl Source {
    fn count(&self) -> String {
        match (self.counts.first(), self.counts.last()) {
            (Some(least), Some(most)) if least < most => format!("n = {least} to {most}"),
            (Some(least), _) => format!("n = {least}"),
            _ => String::new(),
        }
    }
}

/// Series by names of their own.
fn named(growing: Vec<Growing>) -> Vec<Series> {
    let labels: Vec<String> = growing.iter().map(|one| one.series.label.clone()).collect();
    let named = growing.into_iter().map(|one| {
        let mut series = one.series;
        let is_same = |label: &&String| **label == series.label;
        if labels.iter().filter(is_same).count() > 1 {
            series.label = format!("{} (run {})", series.label, one.run);
        }
        if series.is_loaded {
            series.label.push_str(" (loaded)");
        }
        series
    });
    named.collect()
}

/// Everything about speed; nothing if nothing is known of it.
pub(super) fn section(page: &mut String, runs: &[Numbered<'_>], known: &[Known<'_>]) {
    if known.is_empty() {
        return;
    }
    page.push_str("<h3>Speed</h3>\n");
    systems(page, runs, known);
    block_sizes(page, runs);
    memory(page, runs, known);
    flush_times(page, runs, known);
    parameters(page, runs, known);
    details(page, runs);
}

/// A figure with its number in the paper and what it was measured under.
fn show(
    page: &mut String,
    runs: &[Numbered<'_>],
    figure: &Figure,
    (look, from, number): (Look, &Source, &str),
) {
    if figure.is_empty() {
        return;
    }
    let title = escape(&figure.title);
    let _ = writeln!(
        page,
        "<figure>\n<figcaption><strong>{title}</strong> (the paper's {number}); {}</figcaption>",
        from.count(),
    );
    figure.show(page, look);
    conditions(page, runs, &from.runs);
    page.push_str("</figure>\n");
}

pub(super) const STREAMS: [Measure; 4] = [
    Measure::CharWrite,
    Measure::BlockWrite,
    Measure::CharRead,
    Measure::BlockRead,
];
const SMALL_FILES: [Measure; 2] = [Measure::Create, Measure::Delete];

fn words(measure: Measure) -> String {
    measure.name().replace('_', " ")
}

/// Figures 2, 3 and 4: the file systems beside each other.
fn systems(page: &mut String, runs: &[Numbered<'_>], known: &[Known<'_>]) {
    let speed = |one: &Known<'_>| Some(one.point());
    let cpu = |one: &Known<'_>| one.summary.cpu.map(|cpu| Point::alone(cpu * 100.0));
    type Value<'f> = &'f dyn Fn(&Known<'_>) -> Option<Point>;
    let figures: [(&str, &'static str, &[Measure], Value<'_>, &str); 3] = [
        (
            "Throughput of file systems",
            "MB/s",
            &STREAMS,
            &speed,
            "figure 2",
        ),
        (
            "Use of the processor",
            "% of one processor",
            &STREAMS,
            &cpu,
            "figure 3",
        ),
        ("Small files", "files/s", &SMALL_FILES, &speed, "figure 4"),
    ];
    for (title, unit, measures, value, number) in figures {
        let at = |one: &Known<'_>| {
            let place = measures.iter().position(|of| *of == one.summary.measure);
            place.filter(|_| is_plain(one.cell))
        };
        let across = Across {
            places: measures.len(),
            at: &at,
            rest: &Cell::clone,
            value,
        };
        let (series, from) = across.series(known);
        let figure = Figure {
            title: title.to_owned(),
            across: "measure",
            unit,
            places: measures.iter().map(|measure| words(*measure)).collect(),
            series,
        };
        show(page, runs, &figure, (Look::Bars, &from, number));
    }
}

/// Table 10.
fn block_sizes(page: &mut String, runs: &[Numbered<'_>]) {
    let mut rows = String::new();
    let mut of = Vec::new();
    for run in runs {
        let Found::Speed(speeds) = &run.run.found else {
            continue;
        };
        let ratios = speeds.outcome.block_ratios();
        for (number, cell) in speeds.outcome.cells.iter().enumerate() {
            let ratio = |measure| {
                let mut all = ratios.iter();
                let found = all.find(|one| one.cell == number && one.measure == measure);
                found.map(|one| one.ratio).filter(|ratio| ratio.is_finite())
            };
            let ratios = STREAMS.map(ratio);
            if ratios.iter().all(Option::is_none) {
                continue;
            }
            let mark = if speeds.outcome.is_loaded {
                " (loaded)"
            } else {
                ""
            };
            let name = escape(&format!("{}{mark}", label(cell)));
            let _ = write!(rows, "<tr><th scope=\"row\">{name}</th>");
            cells(&mut rows, &ratios);
            of.push(run.number);
        }
    }
    if rows.is_empty() {
        return;
    }
    of.dedup();
    page.push_str("<h4>Blocks of 4 KiB against blocks of 1 KiB</h4>\n");
    head(
        page,
        "Ratio of the medians (the paper's table 10)",
        "file system",
    );
    let _ = write!(page, "{rows}</tbody>\n</table>\n");
    conditions(page, runs, &of);
}

/// A table with a column for each way to read and write.
pub(super) fn head(page: &mut String, caption: &str, first: &str) {
    let _ = write!(
        page,
        "<table>\n<caption>{}</caption>\n<thead><tr><th scope=\"col\">{}</th>",
        escape(caption),
        escape(first)
    );
    for measure in STREAMS {
        let _ = write!(page, "<th scope=\"col\">{}</th>", words(measure));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
}

/// Its figures.
fn cells(rows: &mut String, values: &[Option<f64>]) {
    for value in values {
        let shown = value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let _ = write!(rows, "<td class=\"n\">{shown}</td>");
    }
    rows.push_str("</tr>\n");
}

fn sorted<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Vec<T> {
    let values: BTreeSet<T> = values.collect();
    values.into_iter().collect()
}

fn without_memory(cell: &Cell) -> Cell {
    Cell {
        memory_bytes: None,
        ..cell.clone()
    }
}

/// Figures 6, 7 and 8, and table 13.
fn memory(page: &mut String, runs: &[Numbered<'_>], known: &[Known<'_>]) {
    let sizes = sorted(known.iter().filter_map(|one| one.cell.memory_bytes));
    if sizes.len() < 2 {
        return;
    }
    let figures = [
        (Measure::BlockRead, "figure 6"),
        (Measure::BlockWrite, "figure 7"),
    ];
    for (measure, number) in figures {
        let at = |one: &Known<'_>| {
            let bytes = one.cell.memory_bytes?;
            let place = sizes.iter().position(|size| *size == bytes);
            place.filter(|_| one.summary.measure == measure)
        };
        let across = Across {
            places: sizes.len(),
            at: &at,
            rest: &without_memory,
            value: &|one| Some(one.point()),
        };
        let (series, from) = across.series(known);
        if series.is_empty() {
            continue;
        }
        let mut figure = Figure {
            title: format!("Memory and throughput, {}", words(measure)),
            across: "memory, MiB",
            unit: "MB/s",
            places: sizes.iter().map(|size| (size / MIB).to_string()).collect(),
            series,
        };
        show(page, runs, &figure, (Look::Lines, &from, number));
        figure.series = gains(&figure.series, &sizes);
        figure.title = format!("What memory gains, {}", words(measure));
        figure.unit = "as a multiple of the least memory's";
        show(page, runs, &figure, (Look::Lines, &from, "figure 8"));
    }
    table_13(page, runs, known);
}

/// Each series as a multiple of its first value, and that of memory itself.
fn gains(series: &[Series], sizes: &[u64]) -> Vec<Series> {
    let least = sizes.first().copied().unwrap_or(1).max(1) as f64;
    let sizes = sizes
        .iter()
        .map(|size| Some(Point::alone(*size as f64 / least)));
    let memory = Series {
        label: "memory itself".to_owned(),
        is_loaded: false,
        points: sizes.collect(),
    };
    let gain = |series: &Series| {
        // What has no value for the least memory cannot be compared with it.
        let first = series.points.first().copied().flatten();
        let first = first.map(|point| point.value).filter(|value| *value > 0.0);
        let points = series.points.iter().map(|point| {
            let (point, first) = ((*point)?, first?);
            Some(Point::alone(point.value / first))
        });
        Series {
            points: points.collect(),
            ..series.clone()
        }
    };
    series.iter().map(gain).chain([memory]).collect()
}

/// How much faster something is with the most memory up to 2 GiB than with the least, in percent.
fn gain(known: &[Known<'_>], run: usize, rest: &Cell, measure: Measure) -> Option<f64> {
    let of = known.iter().filter(|one| {
        one.run == run && one.summary.measure == measure && without_memory(one.cell) == *rest
    });
    let mut all: Vec<(u64, f64)> = of
        .filter_map(|one| Some((one.cell.memory_bytes?, one.summary.median)))
        .filter(|(bytes, _)| *bytes <= GAIN_BYTES_MAX)
        .collect();
    all.sort_by_key(|(bytes, _)| *bytes);
    let ((least, slow), (most, fast)) = (*all.first()?, *all.last()?);
    (least < most && slow > 0.0).then(|| (fast / slow - 1.0) * 100.0)
}

fn table_13(page: &mut String, runs: &[Numbered<'_>], known: &[Known<'_>]) {
    let mut rests: Vec<(usize, Cell, bool)> = Vec::new();
    for one in known.iter().filter(|one| one.cell.memory_bytes.is_some()) {
        let rest = without_memory(one.cell);
        if !rests
            .iter()
            .any(|(run, cell, _)| *run == one.run && *cell == rest)
        {
            rests.push((one.run, rest, one.is_loaded));
        }
    }
    let caption = "Gain from the least memory to the most up to 2 GiB, in percent (the paper's \
                   table 13)";
    head(page, caption, "file system");
    for (run, rest, is_loaded) in &rests {
        let loaded = if *is_loaded { ", loaded" } else { "" };
        let name = escape(&format!("{} (run {run}{loaded})", label(rest)));
        let _ = write!(page, "<tr><th scope=\"row\">{name}</th>");
        cells(
            page,
            &STREAMS.map(|measure| gain(known, *run, rest, measure)),
        );
    }
    page.push_str("</tbody>\n</table>\n");
    let of: Vec<usize> = sorted(rests.iter().map(|(run, ..)| *run));
    conditions(page, runs, &of);
}

/// Figures 9 and 10.
fn flush_times(page: &mut String, runs: &[Numbered<'_>], known: &[Known<'_>]) {
    let mut times: Vec<Duration> = sorted(known.iter().filter_map(|one| one.cell.flush_time));
    // The paper goes from the longest to the shortest.
    times.reverse();
    if times.len() < 2 {
        return;
    }
    let without = |cell: &Cell| Cell {
        flush_time: None,
        ..cell.clone()
    };
    let figures = [
        (Measure::BlockRead, "figure 9"),
        (Measure::BlockWrite, "figure 10"),
    ];
    for (measure, number) in figures {
        let at = |one: &Known<'_>| {
            let time = one.cell.flush_time?;
            let place = times.iter().position(|known| *known == time);
            place.filter(|_| one.summary.measure == measure)
        };
        let across = Across {
            places: times.len(),
            at: &at,
            rest: &without,
            value: &|one| Some(one.point()),
        };
        let (series, from) = across.series(known);
        let figure = Figure {
            title: format!("Flush time and throughput, {}", words(measure)),
            across: "flush time, s",
            unit: "MB/s",
            places: times
                .iter()
                .map(|time| time.as_secs_f64().to_string())
                .collect(),
            series,
        };
        show(page, runs, &figure, (Look::Lines, &from, number));
    }
}

/// Figure 12: how much is written at once, and other parameters.
fn parameters(page: &mut String, runs: &[Numbered<'_>], known: &[Known<'_>]) {
    for tunable in Tunable::ALL {
        let value = |cell: &Cell| {
            let mut settings = cell.settings.iter();
            settings
                .find(|one| one.tunable == tunable)
                .map(|one| one.value)
        };
        let values = sorted(known.iter().filter_map(|one| value(one.cell)));
        if values.len() < 2 {
            continue;
        }
        let without = |cell: &Cell| {
            let mut rest = cell.clone();
            rest.settings.retain(|one| one.tunable != tunable);
            rest
        };
        for measure in [Measure::BlockWrite, Measure::BlockRead] {
            let at = |one: &Known<'_>| {
                let own = value(one.cell)?;
                let place = values.iter().position(|known| *known == own);
                place.filter(|_| one.summary.measure == measure)
            };
            let across = Across {
                places: values.len(),
                at: &at,
                rest: &without,
                value: &|one| Some(one.point()),
            };
            let (series, from) = across.series(known);
            let figure = Figure {
                title: format!("{} and throughput, {}", tunable.name(), words(measure)),
                across: "value",
                unit: "MB/s",
                places: values.iter().map(u64::to_string).collect(),
                series,
            };
            show(page, runs, &figure, (Look::Bars, &from, "figure 12"));
        }
    }
}

/// All medians of all cells.
fn details(page: &mut String, runs: &[Numbered<'_>]) {
    for run in runs {
        let Found::Speed(speeds) = &run.run.found else {
            continue;
        };
        let outcome = &speeds.outcome;
        let summaries = outcome.summaries();
        if summaries.is_empty() {
            continue;
        }
        let _ = writeln!(page, "<h4>Every cell of run {}</h4>", run.number);
        if outcome.is_loaded {
            let _ = writeln!(
                page,
                "<p class=\"bad\">Others used the machine: load {:.2} before, {} of {} repeats \
                 disturbed. These figures are no basis for a comparison.</p>",
                outcome.load,
                outcome.disturbed(),
                outcome.samples.len(),
            );
        }
        for measure in Measure::ALL {
            let of = |summary: &&Summary| summary.measure == measure;
            let of: Vec<&Summary> = summaries.iter().filter(of).collect();
            if !of.is_empty() {
                speed::table(page, outcome, measure, &of);
            }
        }
        conditions(page, runs, &[run.number]);
    }
}

/// A median with its interval, in words.
pub(super) fn in_words(one: &Known<'_>) -> String {
    let Point { value, low, high } = one.point();
    format!("{} ({} to {})", short(value), short(low), short(high))
}
