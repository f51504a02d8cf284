//! File systems side by side, which is the paper's table 15 in figures, and kernels side by side,
//! which is its table 11.
//!
//! Only what was found under the same parameters is compared; where nothing was, it says so.

use super::alike::{Ratio, difference, ratio};
use super::cuts::{self, Cuts};
use super::escape;
use super::states::States;
use super::throughput::{Known, STREAMS, head, in_words, is_plain, known, label};
use super::whole::{Numbered, conditions};
use crate::crash::Target;
use crate::powercut::{DiskCache, Summary};
use crate::results::Found;
use crate::speed::{Cell, Measure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Of one file system.
#[derive(Default)]
struct Column<'a> {
    states: States,
    cuts: Cuts<'a>,
    /// In the order of the runs.
    speeds: Vec<&'a Known<'a>>,
}

type Columns<'a> = BTreeMap<String, Column<'a>>;

fn columns<'a>(runs: &[Numbered<'a>], known: &'a [Known<'a>]) -> Columns<'a> {
    let mut columns = Columns::new();
    for run in runs {
        match &run.run.found {
            Found::Crash(outcomes) => {
                // Other mount options make another file system of it.
                for one in outcomes.iter().filter(|one| one.mount_options.is_empty()) {
                    let column = columns.entry(one.target.clone()).or_default();
                    column.states.add(States::of(&one.totals));
                }
            }
            Found::Powercut(found) => {
                let plain = |cell: &&Summary| cell.cell.mount_options.is_empty() && cell.cuts > 0;
                for cell in found.cells.iter().filter(plain) {
                    let name = cell.cell.file_system.name().to_owned();
                    let column = columns.entry(name).or_default();
                    column.cuts.add(cell, found.memory_bytes);
                }
            }
            Found::Speed(_) | Found::Tune(_) => {}
        }
    }
    let is_plain = |one: &&Known<'_>| is_plain(one.cell) && one.cell.mount_options.is_empty();
    for one in known.iter().filter(is_plain) {
        let column = columns.entry(one.cell.place.to_string()).or_default();
        column.speeds.push(one);
    }
    columns
}

/// A row: its name, and a figure of each file system.
type Row = (String, Vec<Option<String>>);

fn states((name, column): (&String, &Column<'_>)) -> Option<String> {
    let share = column.states.share()?;
    let target = Target::judged_by_name(name);
    Some(match target.is_none_or(Target::keeps_promises) {
        true => share,
        false => format!("{share}, which it may lose"),
    })
}

const fn loaded(is_loaded: bool) -> &'static str {
    if is_loaded { ", loaded" } else { "" }
}

/// A row of figures, each with the speed that it is of. Where these are of runs with different
/// parameters, it says so, and from which run each is.
fn beside(name: &str, figures: &[Option<(String, &Known<'_>)>]) -> Row {
    let mut known = figures.iter().flatten().map(|(_, one)| *one);
    let first = known.next();
    let why = first.and_then(|first| known.find_map(|one| difference(first, one)));
    let shown = |(figure, one): &(String, &Known<'_>)| match &why {
        Some(_) => format!("{figure}, run {}", one.run),
        None => figure.clone(),
    };
    let values = figures.iter().map(|one| one.as_ref().map(shown)).collect();
    let name = match &why {
        Some(why) => format!("{name} (not comparable: {why})"),
        None => name.to_owned(),
    };
    (name, values)
}

/// How much sooner a program goes on than the disk is done.
fn cache<'a>(column: &Column<'a>) -> Option<(String, &'a Known<'a>)> {
    let of = &column.speeds[..];
    let found = ratio((of, Measure::CachedWrite), (of, Measure::BlockWrite))?;
    let shown = match &found.value {
        Ok(value) => format!("{value:.1} times{}", loaded(found.is_loaded())),
        Err(why) => format!("not comparable: {why}"),
    };
    Some((shown, found.of[0]))
}

/// The latest speed.
fn latest<'a>(column: &Column<'a>, measure: Measure) -> Option<(String, &'a Known<'a>)> {
    let mut speeds = column.speeds.iter().rev().copied();
    let one = speeds.find(|one| one.summary.measure == measure)?;
    Some((format!("{}{}", in_words(one), loaded(one.is_loaded)), one))
}

fn rows(columns: &Columns<'_>) -> Vec<Row> {
    let cuts: Vec<&Cuts<'_>> = columns.values().map(|column| &column.cuts).collect();
    let found = [
        (
            "crash states in which something is wrong",
            columns.iter().map(states).collect(),
        ),
        (
            "cuts that lost a file that was synced",
            cuts::lost_acks(&cuts, DiskCache::None),
        ),
        (
            "the same, if the disk loses its cache, too",
            cuts::lost_acks(&cuts, DiskCache::Lost),
        ),
        ("files whole that were only closed", cuts::whole(&cuts)),
        (
            "and more of them with the shortest flush time",
            cuts::dependence(&cuts),
        ),
    ];
    let measures = [
        ("block write, MB/s", Measure::BlockWrite),
        ("block read, MB/s", Measure::BlockRead),
        ("char write, MB/s", Measure::CharWrite),
        ("small files made, 1/s", Measure::Create),
        ("small files deleted, 1/s", Measure::Delete),
    ];
    let found = found.map(|(name, values)| (name.to_owned(), values));
    let caches: Vec<_> = columns.values().map(cache).collect();
    let caches = beside("writing is taken sooner than done", &caches);
    let measured = measures.map(|(name, measure)| {
        let speeds = columns.values().map(|column| latest(column, measure));
        beside(name, &speeds.collect::<Vec<_>>())
    });
    let found = found.into_iter().chain([caches]);
    found.chain(measured).collect()
}

/// Table 15.
pub(super) fn systems(page: &mut String, runs: &[Numbered<'_>], known: &[Known<'_>]) {
    let columns = columns(runs, known);
    if columns.is_empty() {
        return;
    }
    page.push_str(
        "<h3>File systems compared</h3>\n<table>\n<caption>What was found of each, with \
                   mount options as they are by default (the paper's table 15)</caption>\n\
                   <thead><tr><th scope=\"col\"></th>",
    );
    for name in columns.keys() {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(name));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (name, values) in rows(&columns) {
        if values.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(page, "<tr><th scope=\"row\">{}</th>", escape(&name));
        for value in values {
            let value = value.map_or("–".to_owned(), |value| escape(&value));
            let _ = write!(page, "<td>{value}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n");
    if columns.values().any(|column| !column.cuts.is_empty()) {
        page.push_str(
            "<p>Shares of power cuts are means over the cells that all file systems of the row \
             have been cut in, each with the same weight; intervals at 95 %: Wilson, and of means \
             and differences Zou, Huang and Zhang (2009), which is Newcombe's of two \
             shares.</p>\n",
        );
    }
    let of: Vec<usize> = runs.iter().map(|one| one.number).collect();
    conditions(page, runs, &of);
}

/// Table 11: what one kernel does better than another, where both were measured and everything
/// else is equal.
pub(super) fn kernels(page: &mut String, runs: &[Numbered<'_>], kernels: &[String]) {
    let of = |kernel: &String| -> Vec<Numbered<'_>> {
        let is_of = |one: &&Numbered<'_>| one.run.head.kernel == *kernel;
        runs.iter().filter(is_of).copied().collect()
    };
    for (number, from) in kernels.iter().enumerate() {
        for to in &kernels[number + 1..] {
            let (before, after) = (of(from), of(to));
            pair(page, runs, (from, &known(&before)), (to, &known(&after)));
        }
    }
}

fn pair(
    page: &mut String,
    runs: &[Numbered<'_>],
    (from, before): (&str, &[Known<'_>]),
    (to, after): (&str, &[Known<'_>]),
) {
    let before: Vec<&Known<'_>> = before.iter().collect();
    let after: Vec<&Known<'_>> = after.iter().collect();
    let (mut rows, mut of, mut seen) = (String::new(), BTreeSet::new(), Vec::new());
    for one in &before {
        if seen.contains(&one.cell) {
            continue;
        }
        seen.push(one.cell);
        let is_same = |other: &&&Known<'_>| other.cell == one.cell;
        let after: Vec<&Known<'_>> = after.iter().filter(is_same).copied().collect();
        let ratios = STREAMS.map(|measure| ratio((&after, measure), (&before, measure)));
        if ratios.iter().any(Option::is_some) {
            let both = ratios.iter().flatten().flat_map(|ratio| ratio.of);
            of.extend(both.map(|one| one.run));
            compared(&mut rows, one.cell, &ratios);
        }
    }
    if rows.is_empty() {
        return;
    }
    let (from, to) = (escape(from), escape(to));
    let _ = writeln!(page, "<section>\n<h2>From {from} to {to}</h2>");
    head(page, "Ratio of the medians (the paper's table 11)", "cell");
    let _ = write!(page, "{rows}</tbody>\n</table>\n");
    let of: Vec<usize> = of.into_iter().collect();
    conditions(page, runs, &of);
    page.push_str("</section>\n");
}

/// A row of table 11.
fn compared(rows: &mut String, cell: &Cell, ratios: &[Option<Ratio<'_>>]) {
    let is_loaded = ratios.iter().flatten().any(Ratio::is_loaded);
    let name = escape(&format!("{}{}", label(cell), loaded(is_loaded)));
    let _ = write!(rows, "<tr><th scope=\"row\">{name}</th>");
    for ratio in ratios {
        let _ = match ratio.as_ref().map(|ratio| &ratio.value) {
            Some(Ok(value)) => write!(rows, "<td class=\"n\">{value:.2}</td>"),
            Some(Err(why)) => write!(rows, "<td>not comparable: {}</td>", escape(why)),
            None => write!(rows, "<td class=\"n\">–</td>"),
        };
    }
    rows.push_str("</tr>\n");
}
