//! Which charts a run makes: the paper's Figures 4 and 6, small files, and the steps.

use figures::{Chart, Colour, Scale, Series};

use crate::plan::Figure;
use crate::results::{Measurement, Results, ideal_mb_per_s};

/// All charts for which there are figures.
pub(crate) fn of(results: &Results) -> Vec<Chart> {
    let over_rtt = |op, title, figure: Figure, y_scale| {
        self::over_rtt(results, op, title, figure.unit(), y_scale)
    };
    let (rate, linear) = (Figure::SteadyRate, Scale::Linear);
    let (seconds, log) = (Figure::Seconds, Scale::Log);
    let charts = [
        over_rtt("seq", "Sequential read", rate, linear),
        over_rtt("stride", "Stride: read 3 MiB, skip 6 MiB", rate, linear),
        over_rtt(
            "small",
            "2,000 files of 8 KiB, one after another",
            seconds,
            log,
        ),
        over_rtt("walk", "Walk of 10,100 entries", seconds, log),
        steps(results),
    ];
    charts.into_iter().flatten().collect()
}

/// The line of a system; the colour is its own in every chart.
fn line(system: &str, points: Vec<(f64, f64)>, has_dots: bool) -> Series {
    let colour = match system {
        "azekura" => Colour::Blue,
        "azekura-blocking" => Colour::SkyBlue,
        "sshfs" => Colour::Vermilion,
        "sshfs-ra16" => Colour::Orange,
        "rclone-http" => Colour::Green,
        "rclone-sftp" => Colour::Purple,
        _ => Colour::Grey,
    };
    Series {
        name: system.to_owned(),
        colour,
        is_bold: system == "azekura",
        has_dots,
        points,
    }
}

fn condition_line(results: &Results) -> String {
    let c = &results.conditions;
    format!(
        "{} Mbit/s, {}, median of {}, kernel {}",
        c.rate_mbit, c.queue, c.repeats, c.kernel
    )
}

/// One operation over the round trip, a line per system.
fn over_rtt(results: &Results, op: &str, title: &str, unit: &str, y_scale: Scale) -> Option<Chart> {
    let mut series: Vec<Series> = Vec::new();
    for summary in results.summary.iter().filter(|summary| summary.op == op) {
        let Some(median) = summary.median else {
            continue;
        };
        let point = (summary.rtt_ms, median);
        match series
            .iter_mut()
            .find(|series| series.name == summary.system)
        {
            Some(there) => there.points.push(point),
            None => series.push(line(&summary.system, vec![point], true)),
        }
    }
    for one in &mut series {
        one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let is_rate = unit.ends_with("B/s");
    let ideal = ideal_mb_per_s(results.conditions.rate_mbit * 1e6);
    (!series.is_empty()).then(|| Chart {
        title: title.to_owned(),
        subtitle: condition_line(results),
        x_label: "round-trip time, ms".to_owned(),
        y_label: if is_rate {
            format!("{unit}, steady")
        } else {
            format!("{unit} (log)")
        },
        y_scale,
        series,
        ideal: is_rate.then(|| (ideal, format!("line {ideal:.1}"))),
        ..Chart::default()
    })
}

/// The rate over time while the link changes: of each system, the repeat in the middle.
fn steps(results: &Results) -> Option<Chart> {
    let mut series: Vec<Series> = Vec::new();
    let mut marks = Vec::new();
    let runs: Vec<&Measurement> = results
        .measurements
        .iter()
        .filter(|m| m.op == "steps" && !m.rate_line.is_empty())
        .collect();
    for run in &runs {
        if series.iter().any(|series| series.name == run.system) {
            continue;
        }
        let mut own: Vec<&&Measurement> = runs.iter().filter(|m| m.system == run.system).collect();
        own.sort_by_key(|m| m.done);
        let middle = own[own.len() / 2];
        series.push(line(&middle.system, middle.rate_line.clone(), false));
        marks = middle
            .steps
            .iter()
            .map(|s| (s.at_s, format!("{} ms\n{} Mbit", s.rtt_ms, s.rate_mbit)))
            .collect();
    }
    let ideal = ideal_mb_per_s(results.conditions.rate_mbit * 1e6);
    (!series.is_empty()).then(|| Chart {
        title: "One sequential read while the link changes".to_owned(),
        subtitle: condition_line(results),
        x_label: "seconds".to_owned(),
        y_label: "MB/s over 200 ms, bursts cut off".to_owned(),
        y_cut: Some(1.5 * ideal),
        series,
        ideal: Some((ideal, format!("line {ideal:.1}"))),
        marks,
        ..Chart::default()
    })
}
