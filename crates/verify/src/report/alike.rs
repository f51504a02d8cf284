//! Which speeds may be compared: those of runs that did as much, in the same way, on a machine with
//! as many processors.
//!
//! What is set for a cell is in the cell; here is what is set for a whole run.

use super::throughput::Known;
use crate::speed::{Group, Measure};
use base::ByteSize;
use std::fmt;

/// Something that is set for a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Bytes(u64),
    Count(u64),
    Word(&'static str),
    /// It was not given.
    Default,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}", ByteSize(*bytes)),
            Self::Count(count) => write!(f, "{count}"),
            Self::Word(word) => f.write_str(word),
            Self::Default => f.write_str("the default"),
        }
    }
}

/// What a measure depends on.
fn facts(one: &Known<'_>) -> Vec<(&'static str, Value)> {
    let (speeds, command) = (one.speeds, one.head.command.as_str());
    let amounts = match one.summary.measure.group() {
        Group::Block => vec![
            ("written in blocks", Value::Bytes(speeds.bytes)),
            ("by one call", option(command, "--io-size")),
        ],
        Group::Char => vec![("character by character", option(command, "--char-size"))],
        Group::Files => vec![("small files", Value::Count(speeds.files))],
    };
    let caches = match speeds.outcome.are_caches_dropped {
        true => "dropped",
        false => "kept",
    };
    let processors = speeds.outcome.processors as u64;
    let machine = [
        ("caches", Value::Word(caches)),
        ("processors", Value::Count(processors)),
    ];
    amounts.into_iter().chain(machine).collect()
}

/// The size that an option of a command has: results do not say it otherwise.
fn option(command: &str, name: &str) -> Value {
    let mut words = command.split(' ');
    let value = words.find_map(|word| match word.strip_prefix(name)? {
        "" => Some(None),
        rest => rest.strip_prefix('=').map(Some),
    });
    let value = value.and_then(|value| value.or_else(|| words.next()));
    let size = value.and_then(|value| value.parse::<ByteSize>().ok());
    size.map_or(Value::Default, |size| Value::Bytes(size.0))
}

/// Why two speeds cannot be compared, if they cannot.
pub(super) fn difference(one: &Known<'_>, other: &Known<'_>) -> Option<String> {
    let (own, others) = (facts(one), facts(other));
    let mut both = own.iter().zip(&others);
    let (first, second) = both.find(|(first, second)| first != second)?;
    Some(format!("{}: {} and {}", first.0, first.1, second.1))
}

/// How much faster something is than something else.
#[derive(Clone)]
pub(super) struct Ratio<'a> {
    /// The two.
    pub(super) of: [&'a Known<'a>; 2],
    /// The ratio of the medians, or why there is none.
    pub(super) value: Result<f64, String>,
}

impl Ratio<'_> {
    /// Whether others used a machine meanwhile.
    pub(super) fn is_loaded(&self) -> bool {
        self.of.iter().any(|one| one.is_loaded)
    }
}

/// The ratio of a measure to another one of the same cell: of the latest two that can be compared.
/// `None` if there are no two.
pub(super) fn ratio<'a>(
    (above, measure): (&[&'a Known<'a>], Measure),
    (below, other): (&[&'a Known<'a>], Measure),
) -> Option<Ratio<'a>> {
    let mut refused = None;
    for one in above.iter().rev() {
        for two in below.iter().rev() {
            let is_asked = (one.summary.measure, two.summary.measure) == (measure, other);
            if !is_asked || one.cell != two.cell {
                continue;
            }
            let found = |value| Ratio {
                of: [*one, *two],
                value,
            };
            let value = one.summary.median / two.summary.median;
            match difference(two, one) {
                None if value.is_finite() => return Some(found(Ok(value))),
                None => {}
                Some(why) => refused = refused.or_else(|| Some(found(Err(why)))),
            }
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::super::throughput::known;
    use super::super::whole::Numbered;
    use super::*;
    use crate::results::{Run, tests as samples};
    use serde_json::{Value as Json, json};

    /// A run with a cell that has one rate of each of these measures.
    fn run(measures: &[&str], rate: f64, more: &Json) -> Run {
        let rates = [rate];
        let measures: Vec<(&str, &[f64])> = measures.iter().map(|one| (*one, &rates[..])).collect();
        let mut value = samples::speed("L", &[samples::cell("ext4", json!({}), &measures)]);
        for (key, more) in more.as_object().unwrap() {
            value[key] = more.clone();
        }
        samples::read(&value).unwrap()
    }

    #[derive(Debug, PartialEq)]
    struct Found {
        runs: [usize; 2],
        is_loaded: bool,
        value: Result<f64, String>,
    }

    /// A measure of the last run over another one of those before it.
    fn found(runs: &[Run], measure: Measure, other: Measure) -> Option<Found> {
        let numbered = (1..).zip(runs);
        let numbered: Vec<Numbered<'_>> = numbered
            .map(|(number, run)| Numbered { number, run })
            .collect();
        let known = known(&numbered);
        let last = runs.len();
        let (above, below): (Vec<&Known<'_>>, Vec<&Known<'_>>) =
            known.iter().partition(|one| one.run == last);
        let found = ratio((&above, measure), (&below, other))?;
        Some(Found {
            runs: found.of.map(|one| one.run),
            is_loaded: found.is_loaded(),
            value: found.value,
        })
    }

    fn words(one: &Json, other: &Json) -> String {
        let runs = [
            run(&["block_write", "char_read", "create"], 10.0, one),
            run(&["block_write", "char_read", "create"], 30.0, other),
        ];
        let measures = [Measure::BlockWrite, Measure::CharRead, Measure::Create];
        let said = measures.map(|measure| {
            let ratio = found(&runs, measure, measure).unwrap();
            match ratio.value {
                Ok(value) => value.to_string(),
                Err(why) => why,
            }
        });
        said.join("; ")
    }

    #[test]
    fn only_runs_with_the_same_parameters_are_compared() {
        let none = json!({});
        assert_eq!(words(&none, &none), "3; 3; 3");
        let more = json!({"size_bytes": 10 << 20});
        let why = "written in blocks: 1.0 MiB and 10.0 MiB; 3; 3";
        assert_eq!(words(&none, &more), why);
        let why = "3; 3; small files: 7 and 100";
        assert_eq!(words(&json!({"files": 7}), &none), why);
        let why = ["caches: dropped and kept"; 3].join("; ");
        assert_eq!(words(&none, &json!({"caches_dropped": false})), why);
        let why = ["processors: 2 and 64"; 3].join("; ");
        assert_eq!(words(&none, &json!({"processors": 64})), why);
    }

    #[test]
    fn what_results_do_not_say_is_in_their_commands() {
        let command = |text: &str| json!({"command": format!("azekura verify speed {text}")});
        let (one, two) = (command("--char-size 1MiB"), command("--char-size=4MiB"));
        let why = "3; character by character: 1.0 MiB and 4.0 MiB; 3";
        assert_eq!(words(&one, &two), why);
        assert_eq!(
            words(&one, &command("--char-size 1024KiB --json")),
            "3; 3; 3"
        );
        let why = "by one call: the default and 64.0 KiB; 3; 3";
        assert_eq!(
            words(&json!({"command": ""}), &command("--io-size 64KiB")),
            why
        );
        for odd in [
            "",
            "--io-size",
            "--io-size x",
            "--io-sizes 7",
            "x --io-size=",
        ] {
            assert_eq!(option(odd, "--io-size"), Value::Default, "{odd}");
        }
    }

    #[test]
    fn the_latest_that_can_be_compared_are() {
        let runs = [
            run(&["block_write"], 10.0, &json!({})),
            run(&["block_write"], 20.0, &json!({"is_loaded": true})),
            run(&["block_write"], 1.0, &json!({"size_bytes": 7})),
            run(&["block_write", "cached_write"], 30.0, &json!({})),
        ];
        let write = Measure::BlockWrite;
        let ratio = found(&runs, write, write).unwrap();
        assert_eq!((ratio.runs, ratio.value), ([4, 2], Ok(1.5)));
        assert!(ratio.is_loaded);
        // Two measures of the same cell, too.
        let ratio = found(&runs, Measure::CachedWrite, write).unwrap();
        assert_eq!((ratio.runs, ratio.value), ([4, 2], Ok(1.5)));
        assert_eq!(found(&runs, write, Measure::Create), None);
        // Nothing is infinitely faster.
        let stopped = [
            run(&["create"], 0.0, &json!({})),
            run(&["create"], 1.0, &json!({})),
        ];
        assert_eq!(found(&stopped, Measure::Create, Measure::Create), None);
        let other = [run(&["block_write"], 1.0, &json!({})), {
            let cell = json!({"block_bytes": 1024});
            let cell = samples::cell("ext4", cell, &[("block_write", &[1.0])]);
            samples::read(&samples::speed("L", &[cell])).unwrap()
        }];
        assert_eq!(found(&other, write, write), None);
    }
}
