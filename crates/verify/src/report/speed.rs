//! A speed run as a page: for each measure the cells beside each other, with their intervals.

use super::chart::interval;
use super::{Conditions, begun, escape};
use crate::speed::{Measure, Outcome, Summary};
use std::fmt::Write;

/// The page of a speed run.
#[must_use]
pub fn speed_page(outcome: &Outcome, conditions: Conditions<'_>) -> String {
    let mut page = begun("Speed run", "How fast file systems are", conditions);
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
    let summaries = outcome.summaries();
    for measure in Measure::ALL {
        let of = |summary: &&Summary| summary.measure == measure;
        let of: Vec<&Summary> = summaries.iter().filter(of).collect();
        if !of.is_empty() {
            table(&mut page, outcome, measure, &of);
        }
    }
    ratios(&mut page, outcome);
    for (title, list) in [("Left out", &outcome.left_out), ("Failed", &outcome.failed)] {
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(page, "<h2>{title}</h2>\n<ul>");
        for one in list {
            let _ = writeln!(page, "<li>{}: {}</li>", escape(&one.what), escape(&one.why));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Bytes in millions, so that figures can be compared at a glance.
fn shown(measure: Measure, rate: f64) -> String {
    match measure.is_in_bytes() {
        true => format!("{:.1}", rate / 1e6),
        false => format!("{rate:.0}"),
    }
}

/// A table with the medians of one measure.
pub(super) fn table(
    page: &mut String,
    outcome: &Outcome,
    measure: Measure,
    summaries: &[&Summary],
) {
    let unit = if measure.is_in_bytes() { "MB/s" } else { "1/s" };
    let _ = writeln!(
        page,
        "<table>\n<caption>{}{}</caption>\n<tr><th>cell</th><th>median, {unit}</th>\
         <th>interval</th><th>confidence</th><th>CPU</th><th>n</th><th></th><th></th></tr>",
        measure.name().replace('_', " "),
        match measure.is_from_cache() {
            true => ", from memory as far as that has room",
            false => "",
        },
    );
    let highs = summaries.iter().map(|summary| summary.interval.high);
    let most = highs.fold(f64::MIN_POSITIVE, f64::max);
    for summary in summaries {
        let cpu = summary
            .cpu
            .map_or(String::new(), |cpu| format!("{:.0} %", cpu * 100.0));
        let Summary { interval: ends, .. } = summary;
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{} to {}</td>\
             <td class=\"n\">{:.1} %</td><td class=\"n\">{cpu}</td><td class=\"n\">{}</td>\
             <td>{}</td><td>{}</td></tr>",
            escape(&outcome.name(&outcome.cells[summary.cell])),
            shown(measure, summary.median),
            shown(measure, ends.low),
            shown(measure, ends.high),
            ends.confidence * 100.0,
            summary.count,
            interval(summary.median / most, ends.low / most, ends.high / most),
            if summary.is_steady { "" } else { "unsteady" },
        );
    }
    page.push_str("</table>\n");
}

fn ratios(page: &mut String, outcome: &Outcome) {
    let ratios = outcome.block_ratios();
    if ratios.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Blocks of 4 KiB over blocks of 1 KiB</h2>\n<table>\n<tr><th>cell</th>\
         <th>measure</th><th>ratio of the medians</th></tr>\n",
    );
    for ratio in ratios {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{:.2}</td></tr>",
            escape(&outcome.name(&outcome.cells[ratio.cell])),
            ratio.measure.name().replace('_', " "),
            ratio.ratio,
        );
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::super::tests::is_balanced;
    use super::*;
    use crate::crash::Target;
    use crate::speed::machine::Others;
    use crate::speed::{Cell, LeftOut, Place, Sample, Value};
    use std::time::Duration;

    fn outcome() -> Outcome {
        let cell = |block_bytes| Cell {
            place: Place::Made(Target::Ext4),
            block_bytes: Some(block_bytes),
            memory_bytes: None,
            flush_time: None,
            settings: Vec::new(),
            mount_options: "<odd>".into(),
        };
        let sample = |cell, rate| Sample {
            cell,
            round: 0,
            values: vec![Value {
                measure: Measure::BlockWrite,
                rate,
                cpu: Some(0.25),
            }],
            others: Others::default(),
            load: 0.0,
            time: Duration::from_secs(1),
        };
        Outcome {
            cells: vec![cell(1024), cell(4096)],
            samples: vec![sample(0, 1e8), sample(1, 2.5e8)],
            failed: vec![LeftOut {
                what: "xfs".into(),
                why: "mkfs said <no>".into(),
            }],
            is_loaded: true,
            load: 3.5,
            ..Outcome::default()
        }
    }

    #[test]
    fn a_page_has_every_figure_and_is_well_formed() {
        let page = speed_page(&outcome(), &[("kernel", "6.1 <x>".to_owned())]);
        assert!(is_balanced(&page), "{page}");
        for part in [
            "6.1 &lt;x&gt;",
            "load 3.50 before",
            "block write",
            "<td class=\"n\">250.0</td>",
            "<td class=\"n\">2.50</td>",
            "mkfs said &lt;no&gt;",
            "25 %",
            "<svg",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("http"), "nothing is fetched");
    }
}
