//! A run as one page of HTML that needs nothing else: no script, no font, no network.
//!
//! Figures come with what they were counted from, shares with their interval (Wilson, 95 %), and
//! every failure with the command that tries it again.

mod chart;
mod powercut;
mod speed;
mod tune;

pub use powercut::powercut_page;
pub use speed::speed_page;
pub use tune::tune_page;

use crate::crash::{Failure, Outcome};
use crate::statistics::wilson;
use chart::bar;
use std::fmt::Write;

/// What was given and where it ran, as pairs of a word and a value.
pub type Conditions<'a> = &'a [(&'a str, String)];

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:left;\
border-bottom:1px solid #ccc}td.n{text-align:right}code{font-size:13px}\
h2{margin-top:2em}.bad{color:#a40000}";

/// The page of a crash run.
#[must_use]
pub fn crash_page(outcomes: &[Outcome], conditions: Conditions<'_>) -> String {
    let mut page = begun("Crash run", "What survives a loss of power", conditions);
    targets(&mut page, outcomes);
    losses(&mut page, outcomes);
    coverage(&mut page, outcomes);
    failures(&mut page, outcomes);
    page.push_str("</body>\n</html>\n");
    page
}

/// A page up to its conditions.
fn begun(title: &str, heading: &str, conditions: Conditions<'_>) -> String {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n");
    let _ = write!(
        page,
        "<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<h1>{heading}</h1>\n"
    );
    page.push_str("<table>\n");
    for (word, value) in conditions {
        let (word, value) = (escape(word), escape(value));
        let _ = writeln!(page, "<tr><th>{word}</th><td>{value}</td></tr>");
    }
    page.push_str("</table>\n");
    page
}

fn targets(page: &mut String, outcomes: &[Outcome]) {
    page.push_str(
        "<h2>States</h2>\n<table>\n<tr><th>target</th><th>states</th><th>as promised</th>\
         <th>something wrong, of all</th><th></th></tr>\n",
    );
    for outcome in outcomes {
        let (states, bad) = (outcome.totals.states, outcome.totals.bad_states);
        let (low, high) = wilson(bad, states);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"n\">{states}</td><td class=\"n\">{}</td>\
             <td>{bad} ({:.2} % to {:.2} %)</td><td>{}</td></tr>",
            name(outcome),
            states - bad.min(states),
            low * 100.0,
            high * 100.0,
            bar(states - bad.min(states), bad),
        );
    }
    page.push_str("</table>\n");
}

fn losses(page: &mut String, outcomes: &[Outcome]) {
    page.push_str("<h2>What became of what was promised</h2>\n<table>\n<tr><th>target</th>");
    for kind in crate::oracle::Outcome::ALL {
        let _ = write!(page, "<th>{}</th>", kind.name().replace('_', " "));
    }
    page.push_str("<th>unmountable</th><th>lost acknowledgements</th></tr>\n");
    for outcome in outcomes {
        let _ = write!(page, "<tr><td>{}</td>", name(outcome));
        for kind in crate::oracle::Outcome::ALL {
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

fn coverage(page: &mut String, outcomes: &[Outcome]) {
    page.push_str(
        "<h2>Coverage</h2>\n<table>\n<tr><th>target</th><th>workloads</th><th>steps</th>\
         <th>writes</th><th>flushes</th><th>different states</th><th>left out as equal</th>\
         <th>drawn by chance</th><th>in recoveries</th><th>states/s</th></tr>\n",
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

fn failures(page: &mut String, outcomes: &[Outcome]) {
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
    page.push_str("<h2>Failures</h2>\n");
    for (outcome, failure) in all {
        let _ = write!(
            page,
            "<h3>{}, {}, state {}</h3>\n<p><code>{}</code></p>\n<ul>\n",
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
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::{Place, Totals};
    use crate::states::Said;

    fn outcome() -> Outcome {
        let failure = Failure {
            workload: "one:<3>".into(),
            steps: "rename a b".into(),
            state: "3/prefix:1".parse().unwrap(),
            recovery: None,
            said: Said { begun: 2, done: 1 },
            findings: vec!["A/foo missing".into()],
            reduced: "3/missing:4".parse().unwrap(),
            writes: vec![Place {
                number: 4,
                offset: 4096,
                len: 512,
            }],
            replay: "azekura verify crash --target ext4 --mount-options a&b".into(),
        };
        Outcome {
            target: "ext4".into(),
            mount_options: "nobarrier".into(),
            totals: Totals {
                states: 100,
                bad_states: 25,
                lost_acks: 30,
                ..Totals::default()
            },
            failures: vec![failure],
            ..Outcome::default()
        }
    }

    /// Every element that is opened is closed, in order: the page is also well-formed XML but for
    /// its doctype and `meta`.
    pub(super) fn is_balanced(page: &str) -> bool {
        let mut open = Vec::new();
        for part in page.split('<').skip(1) {
            let (tag, _) = part.split_once('>').expect("a tag ends");
            let word = tag.split([' ', '/']).find(|word| !word.is_empty());
            let word = word.unwrap_or_default();
            match tag {
                _ if tag.starts_with('!') || word == "meta" || tag.ends_with('/') => {}
                _ if tag.starts_with('/') => {
                    if open.pop() != Some(word) {
                        return false;
                    }
                }
                _ => open.push(word),
            }
        }
        open.is_empty()
    }

    #[test]
    fn a_page_has_every_figure_and_is_well_formed() {
        let conditions = [("kernel", "6.1 <x>".to_owned())];
        let page = crash_page(&[outcome()], &conditions);
        assert!(is_balanced(&page), "{page}");
        for part in [
            "ext4 (nobarrier)",
            "<td class=\"n\">75</td>",
            "25 (17.55 % to 34.30 %)",
            "one:&lt;3&gt;",
            "4 at 4096+512",
            "a&amp;b",
            "6.1 &lt;x&gt;",
            "<td class=\"n bad\">30</td>",
            "<svg",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("http"), "nothing is fetched");
    }

    #[test]
    fn a_good_run_says_so() {
        let good = Outcome {
            failures: Vec::new(),
            ..outcome()
        };
        let page = crash_page(&[good], &[]);
        assert!(
            page.contains("Nothing that was promised was lost"),
            "{page}"
        );
    }
}
