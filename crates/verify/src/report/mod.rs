//! A run as one page of HTML that needs nothing else: no script, no font, no network.
//!
//! Figures come with what they were counted from, shares of what was left to chance with their
//! interval (Wilson, 95 %), and every failure with the command that tries it again. Several results
//! together are one page as well ([`whole_page`]), with the tables and figures of the paper.
//!
//! Text that comes from elsewhere (results may) is escaped where it is written.

mod alike;
mod chart;
mod compare;
mod cuts;
mod figure;
mod powercut;
mod rows;
mod speed;
mod states;
mod style;
mod survival;
#[cfg(test)]
mod tests;
mod throughput;
mod trade;
mod tune;
mod whole;

pub use powercut::powercut_page;
pub use rows::{Row, csv, rows};
pub use speed::speed_page;
pub use tune::tune_page;
pub use whole::whole_page;

use crate::crash::{Failure, Outcome};
use chart::bar;
use states::States;
use std::fmt::Write;

/// What was given and where it ran, as pairs of a word and a value.
pub type Conditions<'a> = &'a [(&'a str, String)];

/// The page of a crash run.
#[must_use]
pub fn crash_page(outcomes: &[Outcome], conditions: Conditions<'_>) -> String {
    let mut page = begun("Crash run", "What survives a loss of power", conditions);
    targets(&mut page, outcomes, 2);
    losses(&mut page, outcomes, 2);
    coverage(&mut page, outcomes, 2);
    failures(&mut page, outcomes, 2);
    page.push_str("</body>\n</html>\n");
    page
}

/// A page up to its conditions.
fn begun(title: &str, heading: &str, conditions: Conditions<'_>) -> String {
    opened(title, heading, "", conditions)
}

/// The same, with one main part.
fn begun_with(title: &str, heading: &str, conditions: Conditions<'_>) -> String {
    opened(title, heading, "<main>\n", conditions)
}

fn opened(title: &str, heading: &str, main: &str, conditions: Conditions<'_>) -> String {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n");
    let _ = write!(
        page,
        "<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{}</style>\n</head>\n<body>\n{main}<h1>{heading}</h1>\n",
        style::STYLE,
    );
    page.push_str("<table>\n");
    for (word, value) in conditions {
        let (word, value) = (escape(word), escape(value));
        let _ = writeln!(page, "<tr><th>{word}</th><td>{value}</td></tr>");
    }
    page.push_str("</table>\n");
    page
}

fn targets(page: &mut String, outcomes: &[Outcome], level: u8) {
    let _ = writeln!(
        page,
        "<h{level}>States</h{level}>\n<table>\n<tr><th>target</th><th>states</th>\
         <th>as promised</th><th>something wrong, of all</th><th></th></tr>",
    );
    for outcome in outcomes {
        let (states, bad) = (outcome.totals.states, outcome.totals.bad_states);
        let words = States::of(&outcome.totals).words();
        let words = words.map_or(String::new(), |words| format!(" ({words})"));
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"n\">{states}</td><td class=\"n\">{}</td>\
             <td>{bad}{words}</td><td>{}</td></tr>",
            name(outcome),
            states - bad.min(states),
            bar(states - bad.min(states), bad),
        );
    }
    page.push_str("</table>\n");
}

fn losses(page: &mut String, outcomes: &[Outcome], level: u8) {
    let _ = write!(
        page,
        "<h{level}>What became of what was promised</h{level}>\n<table>\n<tr><th>target</th>"
    );
    for kind in crate::outcome::Outcome::WRONG {
        let _ = write!(page, "<th>{}</th>", kind.name().replace('_', " "));
    }
    page.push_str("<th>unmountable</th><th>lost acknowledgements</th></tr>\n");
    for outcome in outcomes {
        let _ = write!(page, "<tr><td>{}</td>", name(outcome));
        for kind in crate::outcome::Outcome::WRONG {
            let count = outcome.outcomes.get(&kind).copied().unwrap_or(0);
            page.push_str(&figure(count));
        }
        page.push_str(&figure(outcome.totals.unmountable));
        page.push_str(&figure(outcome.totals.lost_acks));
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// A count that is 0 in a good run.
fn figure(count: u64) -> String {
    let class = if count > 0 { "n bad" } else { "n" };
    format!("<td class=\"{class}\">{count}</td>")
}

fn coverage(page: &mut String, outcomes: &[Outcome], level: u8) {
    let _ = writeln!(
        page,
        "<h{level}>Coverage</h{level}>\n<table>\n<tr><th>target</th><th>workloads</th>\
         <th>steps</th><th>writes</th><th>flushes</th><th>different states</th>\
         <th>left out as equal</th><th>drawn by chance</th><th>in recoveries</th>\
         <th>states/s</th></tr>",
    );
    for outcome in outcomes {
        let totals = &outcome.totals;
        let _ = write!(page, "<tr><td>{}</td>", name(outcome));
        for count in [
            totals.workloads,
            totals.steps,
            totals.writes,
            totals.flushes,
            totals.distinct,
            totals.pruned,
            totals.sampled,
            totals.recovery_states,
        ] {
            let _ = write!(page, "<td class=\"n\">{count}</td>");
        }
        let rate = totals.states as f64 / outcome.time.as_secs_f64().max(1e-9);
        let _ = writeln!(page, "<td class=\"n\">{rate:.0}</td></tr>");
    }
    page.push_str("</table>\n");
}

fn failures(page: &mut String, outcomes: &[Outcome], level: u8) {
    let all: Vec<(&Outcome, &Failure)> = outcomes
        .iter()
        .flat_map(|outcome| {
            outcome
                .failures
                .iter()
                .map(move |failure| (outcome, failure))
        })
        .collect();
    if all.is_empty() {
        page.push_str("<p>Nothing that was promised was lost.</p>\n");
        return;
    }
    let _ = writeln!(page, "<h{level}>Failures</h{level}>");
    let below = level + 1;
    for (outcome, failure) in all {
        let _ = write!(
            page,
            "<h{below}>{}, {}, state {}</h{below}>\n<p><code>{}</code></p>\n<ul>\n",
            name(outcome),
            escape(&failure.workload),
            escape(&failure.state.to_string()),
            escape(&failure.steps),
        );
        for finding in &failure.findings {
            let _ = writeln!(page, "<li class=\"bad\">{}</li>", escape(finding));
        }
        let _ = write!(
            page,
            "</ul>\n<p>Power was lost when step {} had begun and step {} was done",
            failure.said.begun, failure.said.done,
        );
        if let Some(recovery) = &failure.recovery {
            let _ = write!(page, ", and again in the recovery ({recovery})");
        }
        let places: Vec<String> = failure
            .writes
            .iter()
            .map(|place| format!("{} at {}+{}", place.number, place.offset, place.len))
            .collect();
        let _ = write!(
            page,
            ". It is enough that: {}; changes {}.</p>\n<p><code>{}</code></p>\n",
            escape(&failure.reduced.to_string()),
            escape(&places.join(", ")),
            escape(&failure.replay),
        );
    }
}

fn name(outcome: &Outcome) -> String {
    match outcome.mount_options.as_str() {
        "" => escape(&outcome.target),
        options => escape(&format!("{} ({options})", outcome.target)),
    }
}

/// Text as HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || is_turning(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Whether it changes the direction of the text behind it, which would then read as something else.
const fn is_turning(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
