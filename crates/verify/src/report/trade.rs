//! What speed costs in files: every way to set the machine as a point between the two.

use super::chart::scatter;
use super::escape;
use super::throughput::label;
use super::whole::{Numbered, conditions};
use crate::results::{Found, Tuning};
use std::fmt::Write;

pub(super) fn section(page: &mut String, runs: &[Numbered<'_>]) {
    for run in runs {
        if let Found::Tune(tuning) = &run.run.found {
            let _ = writeln!(page, "<h3>Speed and recovery, run {}</h3>", run.number);
            table(page, tuning);
            conditions(page, runs, &[run.number]);
        }
    }
}

fn table(page: &mut String, tuning: &Tuning) {
    let (scale, unit) = match tuning.by.is_in_bytes() {
        true => (1e6, "MB/s"),
        false => (1.0, "1/s"),
    };
    let measure = tuning.by.name().replace('_', " ");
    let _ = write!(
        page,
        "<table>\n<caption>Share of the bytes that were there after a loss of power, and speed \
         ({measure})</caption>\n<thead><tr><th scope=\"col\">point</th>\
         <th scope=\"col\">set to</th><th scope=\"col\">recovered, %</th>\
         <th scope=\"col\">after each wait, %</th><th scope=\"col\">{unit}</th>\
         <th scope=\"col\">n</th><th scope=\"col\"></th></tr></thead>\n<tbody>\n"
    );
    let mut shown = Vec::new();
    for (number, (point, is_on_front)) in (1..).zip(tuning.points.iter().zip(tuning.front())) {
        let (Some(recovery), Some(speed)) = (point.recovery, point.speed) else {
            continue;
        };
        shown.push((number, speed.median, recovery.median, is_on_front));
        let after = point.after.iter().map(|(wait, share)| {
            let share = share.map_or("–".to_owned(), |share| {
                format!("{:.0}", share.median * 100.0)
            });
            format!("{} s: {share}", wait.as_secs_f64())
        });
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{number}</th><td>{}</td>\
             <td class=\"n\">{:.1}<small>{:.1} to {:.1}</small></td><td>{}</td>\
             <td class=\"n\">{:.1}<small>{:.1} to {:.1}</small></td><td class=\"n\">{}</td>\
             <td>{}</td></tr>",
            escape(&label(&point.cell)),
            recovery.median * 100.0,
            recovery.interval.low * 100.0,
            recovery.interval.high * 100.0,
            after.collect::<Vec<_>>().join("; "),
            speed.median / scale,
            speed.interval.low / scale,
            speed.interval.high / scale,
            speed.count,
            if is_on_front { "front" } else { "" },
        );
    }
    page.push_str("</tbody>\n</table>\n");
    let _ = writeln!(
        page,
        "<p>{}</p>\n<p>Speed to the right, recovery rate upwards, by their points; \
         filled: the Pareto front.</p>",
        scatter(&shown)
    );
    match tuning.trade_off() {
        Some(found) => {
            let between = found.interval.map_or(String::new(), |interval| {
                format!(" ({:.2} to {:.2})", interval.low, interval.high)
            });
            let _ = writeln!(
                page,
                "<p>Rank correlation of the two over {} points: {:.2}{between}.</p>",
                found.count, found.rho
            );
        }
        None => page.push_str("<p>One of the two is the same everywhere.</p>\n"),
    }
}
