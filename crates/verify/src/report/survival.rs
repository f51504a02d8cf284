//! What survives under one kernel: crash states, and the paper's table 5 of power cuts.

use super::whole::{Numbered, conditions};
use super::{coverage, escape, failures, losses, powercut, targets};
use crate::crash::Outcome;
use crate::powercut::{Cell, DiskCache, FileSystem, How, Summary};
use crate::results::{Cuts, Found};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// Of a crash run in a page with several.
const LEVEL: u8 = 4;

pub(super) fn section(page: &mut String, runs: &[Numbered<'_>]) {
    crash(page, runs);
    for run in runs {
        if let Found::Powercut(cuts) = &run.run.found {
            let _ = writeln!(page, "<h3>Power cuts, run {}</h3>", run.number);
            table_5(page, cuts);
            conditions(page, runs, &[run.number]);
            powercut::cells(page, &cuts.cells);
        }
    }
}

fn crash(page: &mut String, runs: &[Numbered<'_>]) {
    let (mut outcomes, mut of): (Vec<Outcome>, Vec<usize>) = (Vec::new(), Vec::new());
    for run in runs {
        if let Found::Crash(found) = &run.run.found {
            of.push(run.number);
            outcomes.extend(found.iter().map(|outcome| {
                let early = if outcome.was_interrupted {
                    ", ended early"
                } else {
                    ""
                };
                let target = format!("{}, run {}{early}", outcome.target, run.number);
                Outcome {
                    target,
                    ..outcome.clone()
                }
            }));
        }
    }
    if outcomes.is_empty() {
        return;
    }
    page.push_str("<h3>Crash states</h3>\n");
    targets(page, &outcomes, LEVEL);
    losses(page, &outcomes, LEVEL);
    coverage(page, &outcomes, LEVEL);
    conditions(page, runs, &of);
    failures(page, &outcomes, LEVEL);
}

/// What stands in a row of table 5.
type Row<'a> = (Reverse<Duration>, How, FileSystem, &'a str, DiskCache);

fn row(cell: &Cell) -> Row<'_> {
    let options = cell.mount_options.as_str();
    (
        Reverse(cell.flush_time),
        cell.how,
        cell.file_system,
        options,
        cell.disk_cache,
    )
}

/// Table 5: file systems and flush times down, lengths and waits across.
fn table_5(page: &mut String, cuts: &Cuts) {
    let columns: BTreeSet<(u64, Duration)> = cuts
        .cells
        .iter()
        .map(|cell| (cell.cell.bytes, cell.cell.wait))
        .collect();
    let rows: BTreeSet<Row<'_>> = cuts.cells.iter().map(|cell| row(&cell.cell)).collect();
    page.push_str(
        "<table>\n<caption>How many files were whole after the power was cut (the paper's table \
         5): of how many cuts; the interval of their share; the median length and the median of \
         what was right, as shares of what was written</caption>\n<thead>\n<tr>\
         <th scope=\"col\" rowspan=\"2\">flush time</th>\
         <th scope=\"col\" rowspan=\"2\">written by</th>\
         <th scope=\"col\" rowspan=\"2\">file system</th>",
    );
    let sizes: BTreeSet<u64> = columns.iter().map(|(bytes, _)| *bytes).collect();
    for bytes in sizes {
        let waits = columns.iter().filter(|one| one.0 == bytes).count();
        let size = base::ByteSize(bytes);
        let _ = write!(
            page,
            "<th scope=\"colgroup\" colspan=\"{waits}\">{size}</th>"
        );
    }
    page.push_str("</tr>\n<tr>");
    for (_, wait) in &columns {
        let _ = write!(page, "<th scope=\"col\">{} s</th>", wait.as_secs_f64());
    }
    page.push_str("</tr>\n</thead>\n<tbody>\n");
    for one in rows {
        let (Reverse(flush), how, file_system, options, disk_cache) = one;
        let options = match options {
            "" => String::new(),
            options => format!(" ({})", escape(options)),
        };
        let cache = match disk_cache {
            DiskCache::None => "",
            DiskCache::Lost => ", disk cache lost",
        };
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{} s</th><td>{}</td><td>{}{options}{cache}</td>",
            flush.as_secs_f64(),
            how.name(),
            file_system.name(),
        );
        for (bytes, wait) in &columns {
            let is_it = |cell: &&Summary| {
                row(&cell.cell) == one && cell.cell.bytes == *bytes && cell.cell.wait == *wait
            };
            let found = cuts.cells.iter().find(is_it);
            page.push_str(&found.map_or("<td class=\"n\">–</td>".to_owned(), share));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n");
}

/// One cell of table 5.
fn share(cell: &Summary) -> String {
    if cell.cuts == 0 {
        return "<td class=\"n\">–</td>".to_owned();
    }
    let class = if cell.lost_acks > 0 { "n bad" } else { "n" };
    format!(
        "<td class=\"{class}\">{}/{}<small>{:.0} to {:.0} %</small><small>{:.0} %, {:.0} %</small>\
         </td>",
        cell.hits,
        cell.cuts,
        cell.interval.low * 100.0,
        cell.interval.high * 100.0,
        cell.size_share * 100.0,
        cell.content_share * 100.0,
    )
}
