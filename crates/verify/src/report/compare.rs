//! File systems side by side, which is the paper's table 15 in figures, and kernels side by side,
//! which is its table 11.

use super::escape;
use super::throughput::{Known, cells, head, in_words, is_plain, known, label};
use super::whole::{Numbered, conditions};
use crate::powercut::{DiskCache, How, Summary};
use crate::results::Found;
use crate::speed::{Cell, Measure};
use crate::statistics::wilson;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// Of one file system.
#[derive(Default)]
struct Column {
    states: u64,
    bad_states: u64,
    /// Files that were synced and not whole, of how many.
    lost_acks: u64,
    synced: u64,
    /// The same where the disk lost its cache, too.
    cached_lost_acks: u64,
    cached_synced: u64,
    /// Of files that were only closed.
    closed: Vec<Summary>,
    speeds: BTreeMap<Measure, String>,
    cached: Option<f64>,
    written: Option<f64>,
}

fn columns(runs: &[Numbered<'_>], known: &[Known<'_>]) -> BTreeMap<String, Column> {
    let mut columns: BTreeMap<String, Column> = BTreeMap::new();
    for run in runs {
        match &run.run.found {
            Found::Crash(outcomes) => {
                // Other mount options make another file system of it.
                for one in outcomes.iter().filter(|one| one.mount_options.is_empty()) {
                    let column = columns.entry(one.target.clone()).or_default();
                    column.states = column.states.saturating_add(one.totals.states);
                    column.bad_states = column.bad_states.saturating_add(one.totals.bad_states);
                }
            }
            Found::Powercut(cuts) => {
                let plain = |cell: &&Summary| cell.cell.mount_options.is_empty() && cell.cuts > 0;
                for cell in cuts.cells.iter().filter(plain) {
                    let name = cell.cell.file_system.name().to_owned();
                    columns.entry(name).or_default().cut(cell);
                }
            }
            Found::Speed(_) | Found::Tune(_) => {}
        }
    }
    let is_plain = |one: &&Known<'_>| is_plain(one.cell) && one.cell.mount_options.is_empty();
    for one in known.iter().filter(is_plain) {
        let column = columns.entry(one.cell.place.to_string()).or_default();
        let loaded = if one.is_loaded { ", loaded" } else { "" };
        let shown = format!("{}{loaded}", in_words(one));
        column.speeds.insert(one.summary.measure, shown);
        match one.summary.measure {
            Measure::CachedWrite => column.cached = Some(one.summary.median),
            Measure::BlockWrite => column.written = Some(one.summary.median),
            _ => {}
        }
    }
    columns
}

/// A share with its interval.
fn share(hits: u64, of: u64) -> Option<String> {
    let (low, high) = wilson(hits, of);
    let (low, high) = (low * 100.0, high * 100.0);
    (of > 0).then(|| format!("{hits} of {of} ({low:.2} to {high:.2} %)"))
}

impl Column {
    fn cut(&mut self, cell: &Summary) {
        match (cell.cell.how, cell.cell.disk_cache) {
            (How::Fsync | How::Fdatasync, DiskCache::None) => {
                self.synced += cell.cuts;
                self.lost_acks += cell.lost_acks;
            }
            (How::Fsync | How::Fdatasync, DiskCache::Lost) => {
                self.cached_synced += cell.cuts;
                self.cached_lost_acks += cell.lost_acks;
            }
            (How::Close, DiskCache::None) => self.closed.push(cell.clone()),
            (How::Close | How::Rename, _) => {}
        }
    }

    fn whole(&self) -> Option<String> {
        let hits = self.closed.iter().map(|cell| cell.hits).sum();
        share(hits, self.closed.iter().map(|cell| cell.cuts).sum())
    }

    /// By how much the share of whole files rises from the longest flush time to the shortest, in
    /// points: what depends on it does not protect itself.
    fn dependence(&self) -> Option<String> {
        let times: BTreeSet<Duration> = self.closed.iter().map(|one| one.cell.flush_time).collect();
        let (shortest, longest) = (*times.first()?, *times.last()?);
        let share = |time: Duration| {
            let of = self.closed.iter().filter(|one| one.cell.flush_time == time);
            let (hits, cuts) = of.fold((0, 0), |sum, one| (sum.0 + one.hits, sum.1 + one.cuts));
            hits as f64 / cuts.max(1) as f64 * 100.0
        };
        let rise = share(shortest) - share(longest);
        (shortest < longest).then(|| format!("{rise:+.0} points"))
    }

    /// How much sooner a program goes on than the disk is done.
    fn cache(&self) -> Option<String> {
        let (cached, written) = (self.cached?, self.written?);
        (written > 0.0).then(|| format!("{:.1} times", cached / written))
    }

    fn speed(&self, measure: Measure) -> Option<String> {
        self.speeds.get(&measure).cloned()
    }
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
    type Figure = fn(&Column) -> Option<String>;
    let rows: [(&str, Figure); 11] = [
        ("crash states in which something is wrong", |one| {
            share(one.bad_states, one.states)
        }),
        ("cuts that lost a file that was synced", |one| {
            share(one.lost_acks, one.synced)
        }),
        ("the same, if the disk loses its cache, too", |one| {
            share(one.cached_lost_acks, one.cached_synced)
        }),
        ("files whole that were only closed", Column::whole),
        (
            "and more of them with the shortest flush time",
            Column::dependence,
        ),
        ("writing is taken sooner than done", Column::cache),
        ("block write, MB/s", |one| one.speed(Measure::BlockWrite)),
        ("block read, MB/s", |one| one.speed(Measure::BlockRead)),
        ("char write, MB/s", |one| one.speed(Measure::CharWrite)),
        ("small files made, 1/s", |one| one.speed(Measure::Create)),
        ("small files deleted, 1/s", |one| one.speed(Measure::Delete)),
    ];
    for (name, figure) in rows {
        let values: Vec<Option<String>> = columns.values().map(figure).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(page, "<tr><th scope=\"row\">{name}</th>");
        for value in values {
            let _ = write!(page, "<td>{}</td>", value.as_deref().unwrap_or("–"));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n");
    let of: Vec<usize> = runs.iter().map(|one| one.number).collect();
    conditions(page, runs, &of);
}

/// The latest median of a measure of a cell.
fn latest(known: &[Known<'_>], cell: &Cell, measure: Measure) -> Option<(usize, f64)> {
    let mut all = known.iter().rev();
    let found = all.find(|one| one.cell == cell && one.summary.measure == measure);
    found.map(|one| (one.run, one.summary.median))
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
    let measures = [
        Measure::CharWrite,
        Measure::BlockWrite,
        Measure::CharRead,
        Measure::BlockRead,
    ];
    let (mut rows, mut of, mut seen) = (String::new(), BTreeSet::new(), Vec::new());
    for one in before {
        if seen.contains(&one.cell) {
            continue;
        }
        seen.push(one.cell);
        let ratios = measures.map(|measure| {
            let (old_run, old) = latest(before, one.cell, measure)?;
            let (new_run, new) = latest(after, one.cell, measure)?;
            of.extend([old_run, new_run]);
            Some(new / old).filter(|ratio| ratio.is_finite())
        });
        if ratios.iter().any(Option::is_some) {
            let name = escape(&label(one.cell));
            let _ = write!(rows, "<tr><th scope=\"row\">{name}</th>");
            cells(&mut rows, &ratios);
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
