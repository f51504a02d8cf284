//! All results as one page: what was run, and for each kernel what survives, how fast it is and how
//! the two go together, with the tables and figures of the paper as far as there is data.
//!
//! Results of different kernels are never in one table, but for the one that compares kernels.
//! Every table and figure says from which runs it is, and with that when, under which conditions
//! and by which command it was measured; what was measured on a loaded machine says so.

use super::{begun_with, compare, escape, survival, throughput};
use crate::results::{Found, Kind, Run};
use crate::speed::LeftOut;
use std::fmt::Write;

/// A result with its number in the report.
#[derive(Clone, Copy)]
pub(super) struct Numbered<'a> {
    pub(super) number: usize,
    pub(super) run: &'a Run,
}

/// What is not known of an old result.
const UNKNOWN: &str = "not known";

/// The page of many results; `made` is when.
#[must_use]
pub fn whole_page(runs: &[Run], made: &str) -> String {
    let runs: Vec<Numbered<'_>> = (1..)
        .zip(runs)
        .map(|(number, run)| Numbered { number, run })
        .collect();
    let kernels = kernels(&runs);
    let facts = [
        ("made", made.to_owned()),
        ("runs", runs.len().to_string()),
        ("kernels", kernels.join(", ")),
    ];
    let title = "What survives a crash, and how fast it is";
    let mut page = begun_with("Verification report", title, &facts);
    contents(&mut page, &kernels);
    table_of_runs(&mut page, &runs);
    for (number, kernel) in kernels.iter().enumerate() {
        let is_of = |one: &&Numbered<'_>| one.run.head.kernel == *kernel;
        let of: Vec<Numbered<'_>> = runs.iter().filter(is_of).copied().collect();
        let name = escape(kernel);
        let _ = writeln!(page, "<section id=\"kernel{number}\">\n<h2>{name}</h2>");
        let known = throughput::known(&of);
        compare::systems(&mut page, &of, &known);
        survival::section(&mut page, &of);
        throughput::section(&mut page, &of, &known);
        super::trade::section(&mut page, &of);
        page.push_str("</section>\n");
    }
    compare::kernels(&mut page, &runs, &kernels);
    not_done(&mut page, &runs);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Each once, in the order of the runs.
fn kernels(runs: &[Numbered<'_>]) -> Vec<String> {
    let mut kernels: Vec<String> = Vec::new();
    for run in runs {
        if !kernels.contains(&run.run.head.kernel) {
            kernels.push(run.run.head.kernel.clone());
        }
    }
    kernels
}

fn contents(page: &mut String, kernels: &[String]) {
    page.push_str("<nav aria-label=\"Contents\">\n<ul>\n<li><a href=\"#runs\">Runs</a></li>\n");
    for (number, kernel) in kernels.iter().enumerate() {
        let name = escape(kernel);
        let _ = writeln!(page, "<li><a href=\"#kernel{number}\">{name}</a></li>");
    }
    page.push_str("</ul>\n</nav>\n");
}

/// What a field of an old result says.
fn or_unknown(text: &str) -> String {
    match text {
        "" => UNKNOWN.to_owned(),
        text => escape(text),
    }
}

/// How often things were measured, and on what.
fn conditions_of(run: &Run) -> String {
    match &run.found {
        Found::Crash(outcomes) => {
            let states: u64 = outcomes.iter().map(|one| one.totals.states).sum();
            format!("{states} states")
        }
        Found::Powercut(cuts) => {
            let all: u64 = cuts.cells.iter().map(|cell| cell.cuts).sum();
            let memory = base::ByteSize(cuts.memory_bytes);
            format!("{all} cuts; machines of {memory}")
        }
        Found::Speed(speeds) => {
            let outcome = &speeds.outcome;
            let caches = if outcome.are_caches_dropped {
                ""
            } else {
                "not "
            };
            format!(
                "{} repeats of {} cells; {} processors, load {:.2} before; caches \
                 {caches}dropped; {} in blocks, {} small files",
                speeds.repeats,
                outcome.cells.len(),
                outcome.processors,
                outcome.load,
                base::ByteSize(speeds.bytes),
                speeds.files,
            )
        }
        Found::Tune(tuning) => format!(
            "{} repeats of {} points; {} processors",
            tuning.repeats,
            tuning.points.len(),
            tuning.processors
        ),
    }
}

fn remarks(run: &Run) -> String {
    let mut remarks = Vec::new();
    if run.is_loaded() {
        remarks.push("on a loaded machine");
    }
    if run.head.was_interrupted {
        remarks.push("ended early");
    }
    remarks.join(", ")
}

fn table_of_runs(page: &mut String, runs: &[Numbered<'_>]) {
    page.push_str("<section id=\"runs\">\n<h2>Runs</h2>\n<table>\n<thead><tr>");
    for word in [
        "run",
        "kind",
        "file",
        "ended",
        "kernel",
        "conditions",
        "load",
        "seed",
        "release",
        "command",
        "",
    ] {
        let _ = write!(page, "<th scope=\"col\">{word}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for Numbered { number, run } in runs {
        let head = &run.head;
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{number}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td><code>{}</code></td>\
             <td class=\"bad\">{}</td></tr>",
            head.kind.name(),
            escape(&run.name),
            or_unknown(&head.date),
            escape(&head.kernel),
            conditions_of(run),
            or_unknown(&head.load),
            head.seed,
            or_unknown(&head.release),
            or_unknown(&head.command),
            remarks(run),
        );
    }
    page.push_str("</tbody>\n</table>\n</section>\n");
}

/// How figures of a kind of run are made, in half a sentence.
const fn method(kind: Kind) -> &'static str {
    match kind {
        Kind::Crash => "intervals of shares where states were drawn by chance: Wilson, 95 %",
        Kind::Powercut => "intervals of shares: Wilson, 95 %",
        Kind::Speed => "medians; intervals by order statistics, 95 % from six repeats on",
        Kind::Tune => "medians; intervals by order statistics; rank correlation: Spearman",
    }
}

/// Says under a table or figure what it is from.
pub(super) fn conditions(page: &mut String, runs: &[Numbered<'_>], of: &[usize]) {
    page.push_str("<ul class=\"from\">\n");
    for Numbered { number, run } in runs.iter().filter(|one| of.contains(&one.number)) {
        let remarks = match remarks(run) {
            text if text.is_empty() => String::new(),
            text => format!(" <strong class=\"bad\">({text})</strong>"),
        };
        let _ = writeln!(
            page,
            "<li>Run {number}, {}, {}{remarks}: {}; {}. <code>{}</code></li>",
            or_unknown(&run.head.date),
            escape(&run.head.kernel),
            conditions_of(run),
            method(run.head.kind),
            or_unknown(&run.head.command),
        );
    }
    page.push_str("</ul>\n");
}

/// What was asked for and is not there.
fn not_done(page: &mut String, runs: &[Numbered<'_>]) {
    let mut lines = String::new();
    for Numbered { number, run } in runs {
        let (left_out, failed): (&[LeftOut], &[LeftOut]) = match &run.found {
            Found::Speed(speeds) => (&speeds.outcome.left_out, &speeds.outcome.failed),
            Found::Tune(tuning) => (&tuning.left_out, &tuning.failed),
            Found::Powercut(cuts) => (&cuts.left_out, &[]),
            Found::Crash(_) => (&[], &[]),
        };
        for (word, list) in [("left out", left_out), ("failed", failed)] {
            for LeftOut { what, why } in list {
                let (what, why) = (escape(what), escape(why));
                let _ = writeln!(lines, "<li>Run {number}: {word}: {what}: {why}</li>");
            }
        }
        if let Found::Powercut(cuts) = &run.found {
            for words in &cuts.failed {
                let _ = writeln!(lines, "<li>Run {number}: given up: {}</li>", escape(words));
            }
        }
    }
    if !lines.is_empty() {
        let _ = write!(
            page,
            "<section>\n<h2>What is not there</h2>\n<ul>\n{lines}</ul>\n</section>\n"
        );
    }
}
