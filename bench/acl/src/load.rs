//! Response time against throughput, and how the one's gain goes with the other's (the paper's
//! Figure 8): several clients at once make the operations of [`crate::mix`], with looks at lists.
//!
//! Each rule is measured without a pause between operations, which gives the throughput that it
//! can have, and under the same load for all rules: operations come at times that are fixed
//! beforehand, at some shares of what the rule `always` (the paper's conventional one) could do.
//! A response time counts from when an operation was due, if its client was still busy with
//! another one then; a client that wakes up late makes no server slow. What is shown of a gain is
//! a quotient: 1 is as with `always`, 2 is twice as good.
//!
//! Every run begins with a copy of the same image, mounted anew, so all of them are cold.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information, 4.3.

use crate::Cli;
use crate::lists::Service;
use crate::mix::{
    ALWAYS, Client, LOOKS_POSIX, MEASURED, MODES, Mode, NEVER, SIX, calibrate, drawn, set,
    store_meanwhile,
};
use crate::place::{Kind, open_keeping, served};
use crate::report::{Report, median};
use crate::tree::Tree;
use acl::Costs;
use anyhow::{Context, Result, ensure};
use figures::{Chart, Colour, Random, Series};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Clients at once.
const CLIENTS: usize = 4;
/// The rules, `always` last.
const RULES: [usize; 5] = [LOOKS_POSIX, MEASURED, NEVER, SIX, ALWAYS];
/// Loads, as shares of what `always` can do.
const LOADS: [f64; 3] = [0.3, 0.6, 0.9];
/// The one at which rules are compared.
const COMPARED: usize = 1;
/// For all clients to be there before the first operation is due.
const BEFORE: Duration = Duration::from_millis(50);
/// Loads and the throughput without a pause are measured again so often, as in the paper.
const ROUNDS_MAX: usize = 3;

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Loaded {
    per_second: f64,
    response_ms: f64,
}

/// One rule: by round, without a pause and under each load.
#[derive(Clone, Debug, Default, Serialize)]
struct OfRule {
    rule: &'static str,
    fastest: Vec<Loaded>,
    loads: [Vec<Loaded>; LOADS.len()],
}

/// A file system with a service.
#[derive(Serialize)]
struct Case {
    file_system: Kind,
    service: &'static str,
    clients: usize,
    rules: Vec<OfRule>,
}

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let mut cases = Vec::new();
    for kind in &cli.file_systems {
        for service in Service::ALL {
            eprintln!("load: {kind}, {}", service.name());
            let case = Case::measure(cli, *kind, service)?;
            report.table(&case.markdown());
            cases.push(case);
        }
    }
    for service in Service::ALL {
        let of_service = || cases.iter().filter(|case| case.service == service.name());
        if let Some(first) = of_service().next() {
            report.chart(first.chart());
        }
        let gains: Vec<_> = of_service().map(Case::gains).collect();
        let together: Vec<(f64, f64)> = gains.iter().flatten().copied().collect();
        if let Some(correlation) = correlation(&together) {
            report.note(format!(
                "{}: gains in response time (under the same load) and in throughput have a \
                 correlation of {correlation:.2} over {} points",
                service.name(),
                together.len()
            ));
        }
        let kinds = of_service().map(|case| case.file_system);
        report.chart(figure_8(service, kinds.zip(gains)));
    }
    report.section("load", &cases)
}

impl Case {
    fn measure(cli: &Cli, kind: Kind, service: Service) -> Result<Self> {
        let tree = Tree::new(cli, kind, service)?;
        let costs = calibrate(&tree)?;
        let operations = crate::mix::operations(cli);
        ensure!(operations >= CLIENTS, "too few files for {CLIENTS} clients");
        let of_rule = |rule: &usize| OfRule {
            rule: MODES[*rule].name,
            ..OfRule::default()
        };
        let mut rules: Vec<OfRule> = RULES.iter().map(of_rule).collect();
        for round in 0..cli.repeat.min(ROUNDS_MAX) {
            for turn in 0..RULES.len() {
                let index = (turn + round) % RULES.len();
                let fastest = run(&tree, &MODES[RULES[index]], &costs, operations, None)?;
                rules[index].fastest.push(fastest);
            }
            let conventional = rules.last().expect("there are rules").per_second();
            for turn in 0..RULES.len() * LOADS.len() {
                let (index, load) = ((turn + round) % RULES.len(), turn / RULES.len());
                let offered = Some(LOADS[load] * conventional);
                let loaded = run(&tree, &MODES[RULES[index]], &costs, operations, offered)?;
                rules[index].loads[load].push(loaded);
            }
        }
        Ok(Self {
            file_system: kind,
            service: service.name(),
            clients: CLIENTS,
            rules,
        })
    }

    /// How much better than `always` the other rules are: response times under the same load, and
    /// throughput without a pause.
    fn gains(&self) -> Vec<(f64, f64)> {
        let (always, others) = self.rules.split_last().expect("there are rules");
        let gain = |rule: &OfRule| {
            let response = always.response_ms(COMPARED) / rule.response_ms(COMPARED);
            (response, rule.per_second() / always.per_second())
        };
        let mut gains: Vec<_> = others.iter().map(gain).collect();
        gains.sort_by(|a, b| a.0.total_cmp(&b.0));
        gains
    }

    fn markdown(&self) -> String {
        let mut out = format!(
            "**{}, {}**, {CLIENTS} clients, cold: operations a second without a pause, and \
             milliseconds of a response under loads that are shares of what `always` can do\n\n\
             | rule | operations/s |",
            self.file_system, self.service
        );
        for load in LOADS {
            out.push_str(&format!(" ms at {:.0} % |", load * 100.0));
        }
        out.push_str("\n| --- | --- |");
        out.push_str(&" --- |".repeat(LOADS.len()));
        out.push('\n');
        for rule in &self.rules {
            out.push_str(&format!("| {} | {:.0} |", rule.rule, rule.per_second()));
            for load in 0..LOADS.len() {
                out.push_str(&format!(" {:.3} |", rule.response_ms(load)));
            }
            out.push('\n');
        }
        out
    }

    /// Response time against throughput.
    fn chart(&self) -> Chart {
        let colours = [
            Colour::Grey,
            Colour::Blue,
            Colour::SkyBlue,
            Colour::Green,
            Colour::Vermilion,
        ];
        let series = self.rules.iter().zip(colours).map(|(rule, colour)| {
            let loads = rule.loads.iter().chain([&rule.fastest]);
            let mut points: Vec<_> = loads
                .map(|all| {
                    let of = |figure: fn(&Loaded) -> f64| {
                        median(&all.iter().map(figure).collect::<Vec<_>>())
                    };
                    (of(|l| l.per_second), of(|l| l.response_ms))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series::with_dots(rule.rule, colour, points)
        });
        Chart {
            title: format!(
                "Response time against throughput, cold: {}, {}",
                self.file_system, self.service
            ),
            subtitle: format!("{CLIENTS} clients; three fixed loads, and as fast as it goes"),
            x_label: "operations a second".to_owned(),
            y_label: "mean response time, ms".to_owned(),
            series: series.collect(),
            ..Chart::default()
        }
    }
}

impl OfRule {
    fn per_second(&self) -> f64 {
        let all = self.fastest.iter().map(|loaded| loaded.per_second);
        median(&all.collect::<Vec<_>>())
    }

    fn response_ms(&self, load: usize) -> f64 {
        let all = self.loads[load].iter().map(|loaded| loaded.response_ms);
        median(&all.collect::<Vec<_>>())
    }
}

fn figure_8(service: Service, all: impl Iterator<Item = (Kind, Vec<(f64, f64)>)>) -> Chart {
    let colours = [Colour::Blue, Colour::Vermilion, Colour::Green];
    let series = all.zip(colours);
    let series = series.map(|((kind, gains), colour)| {
        let name = kind.to_string();
        Series::with_dots(&name, colour, gains)
    });
    Chart {
        title: format!(
            "Gain in throughput by gain in response time: {}",
            service.name()
        ),
        subtitle: format!(
            "each rule beside `always`, response under {:.0} % load; as in the paper's Figure 8",
            LOADS[COMPARED] * 100.0
        ),
        x_label: "response time of `always` / of the rule".to_owned(),
        y_label: "throughput of the rule / of `always`".to_owned(),
        series: series.collect(),
        ..Chart::default()
    }
}

/// All clients at once; as fast as it goes, or so many operations a second are offered.
fn run(
    tree: &Tree,
    mode: &Mode,
    costs: &Costs,
    operations: usize,
    offered: Option<f64>,
) -> Result<Loaded> {
    let image = tree.image.copy()?;
    let mounted = image.mount()?;
    let export = open_keeping(mounted.path(), mode.is_kept)?;
    set(&export, mode, costs);
    let is_over = AtomicBool::new(false);
    let each = operations / CLIENTS;
    let begin = Instant::now() + BEFORE;
    let all = thread::scope(|scope| {
        let storing = scope.spawn(|| store_meanwhile(&export, &is_over));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (export, found) = (&export, &tree.found);
                scope.spawn(move || {
                    served(export, |worker| {
                        let mut client = Client::new(export, worker, found, mode);
                        let due = |turn: usize| {
                            let rate = offered?;
                            let seconds = (turn * CLIENTS + number) as f64 / rate;
                            Some(begin + Duration::from_secs_f64(seconds))
                        };
                        sleep_until(begin);
                        work(&mut client, number, each, due)
                    })
                })
            })
            .collect();
        let ended = clients
            .into_iter()
            .map(|client| client.join().expect("a thread does not panic"));
        let ended: Result<Vec<_>> = ended.collect();
        is_over.store(true, Ordering::Relaxed);
        storing.join().expect("a thread does not panic")?;
        ended
    });
    drop(export);
    let all = all.with_context(|| format!("rule {}", mode.name))?;
    let end = all.iter().map(|(_, end)| *end).max().unwrap_or(begin);
    let waited: Duration = all.iter().map(|(waited, _)| *waited).sum();
    let count = (each * CLIENTS) as f64;
    Ok(Loaded {
        per_second: count / end.saturating_duration_since(begin).as_secs_f64(),
        response_ms: waited.as_secs_f64() * 1e3 / count,
    })
}

/// The sum of the response times, and when the last one was there.
fn work(
    client: &mut Client<'_>,
    number: usize,
    operations: usize,
    due: impl Fn(usize) -> Option<Instant>,
) -> Result<(Duration, Instant)> {
    let mut random = Random::new(2012 + number as u64);
    let mut waited = Duration::ZERO;
    for turn in 0..operations {
        let (file, op) = (client.file(&mut random), drawn(&mut random));
        let now = Instant::now();
        let since = match due(turn) {
            Some(due) if due > now => {
                sleep_until(due);
                Instant::now()
            }
            Some(due) => due,
            None => now,
        };
        // What clients make has their numbers.
        client
            .make(op, file, (number, turn))
            .with_context(|| format!("{op:?} of file {file}"))?;
        waited += since.elapsed();
    }
    Ok((waited, Instant::now()))
}

fn sleep_until(then: Instant) {
    thread::sleep(then.saturating_duration_since(Instant::now()));
}

/// Pearson's coefficient; none of less than three points, or where nothing differs.
fn correlation(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 3 {
        return None;
    }
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points
            .iter()
            .map(|point| of(point.0 - x, point.1 - y))
            .sum()
    };
    let spread = (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt();
    (spread > 0.0).then(|| sum(&|x, y| x * y) / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_together_has_a_correlation_of_one() {
        let line = [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)];
        let found = correlation(&line).expect("three points");
        assert!((found - 1.0).abs() < 1e-9, "{found}");
        let against = line.map(|(x, y)| (x, -y));
        let found = correlation(&against).expect("three points");
        assert!((found + 1.0).abs() < 1e-9, "{found}");
        assert_eq!(correlation(&line[..2]), None);
        assert_eq!(correlation(&[(1.0, 1.0); 5]), None);
    }

    #[test]
    fn a_rule_that_is_twice_as_good_gains_two() {
        let rule = |rule, per_second, response_ms| {
            let loaded = Loaded {
                per_second,
                response_ms,
            };
            OfRule {
                rule,
                fastest: vec![loaded],
                loads: std::array::from_fn(|_| vec![loaded]),
            }
        };
        let case = Case {
            file_system: Kind::Ext4,
            service: Service::Small.name(),
            clients: CLIENTS,
            rules: vec![
                rule("never", 300.0, 0.5),
                rule("6+", 200.0, 1.0),
                rule("always", 100.0, 2.0),
            ],
        };
        assert_eq!(case.gains(), [(2.0, 2.0), (4.0, 3.0)]);
        assert!(
            case.markdown()
                .contains("| never | 300 | 0.500 | 0.500 | 0.500 |")
        );
    }
}
