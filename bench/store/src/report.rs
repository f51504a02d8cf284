//! Figures as JSON, as a table with its conditions, and as charts.

use crate::chart::{self, Chart};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: String,
    ours: Vec<f64>,
    other: String,
    theirs: Vec<f64>,
    /// What is held against the goal.
    figure: f64,
    goal: String,
    is_met: Option<bool>,
    text: String,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    date: String,
    kernel: String,
    processors: String,
    load: [String; 2],
    repeat: usize,
    unit_bytes: u64,
    rows: Vec<Row>,
    notes: Vec<String>,
    #[serde(skip)]
    charts: Vec<Chart>,
}

/// A goal: the least figure, and the words for it.
type Goal = Option<(f64, &'static str)>;

/// What is held against a goal.
struct Judged {
    figure: f64,
    goal: String,
    is_met: Option<bool>,
    text: String,
}

impl Judged {
    fn at_least(figure: f64, goal: Goal, text: String) -> Self {
        Self {
            figure,
            goal: goal.map_or("", |goal| goal.1).into(),
            is_met: goal.map(|goal| figure >= goal.0),
            text,
        }
    }
}

/// The middle one; of two, the mean.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn load() -> String {
    let load = read("/proc/loadavg");
    load.split(' ').next().unwrap_or_default().to_owned()
}

impl Report {
    pub(crate) fn new(repeat: usize, unit_bytes: u64) -> Self {
        let date = Command::new("date")
            .args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])
            .output();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let model = model
            .unwrap_or_default()
            .trim_start_matches(['\t', ':', ' ']);
        let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        Self {
            date: date
                .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
                .unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease"),
            processors: format!("{count} x {model}"),
            load: [load(), String::new()],
            repeat,
            unit_bytes,
            rows: Vec::new(),
            notes: Vec::new(),
            charts: Vec::new(),
        }
    }

    fn row(&mut self, what: &str, ours: &[f64], judged: Judged) -> &mut Row {
        eprintln!("{what}: {}", judged.text);
        self.rows.push(Row {
            what: what.to_owned(),
            unit: "share".to_owned(),
            ours: ours.to_vec(),
            other: String::new(),
            theirs: Vec::new(),
            figure: judged.figure,
            goal: judged.goal,
            is_met: judged.is_met,
            text: judged.text,
        });
        self.rows.last_mut().expect("it was just pushed")
    }

    /// Ours over theirs, pair by pair; the goal is a ratio.
    pub(crate) fn ratio(
        &mut self,
        what: &str,
        (unit, ours): (&str, &[f64]),
        (other, theirs): (&str, &[f64]),
        goal: Goal,
    ) {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        let figure = median(&ratios);
        let text = format!(
            "{:.0} {unit}; {other}: {:.0}; **{:.0} %**",
            median(ours),
            median(theirs),
            figure * 100.0
        );
        let row = self.row(what, ours, Judged::at_least(figure, goal, text));
        (row.unit, row.other, row.theirs) = (unit.into(), other.into(), theirs.to_vec());
    }

    /// Ours beside theirs; the goal is about ours.
    pub(crate) fn rate(
        &mut self,
        what: &str,
        (unit, ours): (&str, &[f64]),
        (other, theirs): (&str, &[f64]),
        goal: Goal,
    ) {
        let figure = median(ours);
        let text = format!("**{figure:.0} {unit}**; {other}: {:.0}", median(theirs));
        let row = self.row(what, ours, Judged::at_least(figure, goal, text));
        (row.unit, row.other, row.theirs) = (unit.into(), other.into(), theirs.to_vec());
    }

    /// A share of which more is better.
    pub(crate) fn share(&mut self, what: &str, shares: &[f64], goal: Goal) {
        let figure = median(shares);
        let text = format!("**{:.1} %**", figure * 100.0);
        self.row(what, shares, Judged::at_least(figure, goal, text));
    }

    /// A share of which less is better.
    pub(crate) fn share_at_most(&mut self, what: &str, shares: &[f64], most: f64) {
        let figure = median(shares);
        let judged = Judged {
            figure,
            goal: format!("at most {} %", most * 100.0),
            is_met: Some(figure <= most),
            text: format!("**{:.3} %**", figure * 100.0),
        };
        self.row(what, shares, judged);
    }

    /// A time of which less is better.
    pub(crate) fn time(&mut self, what: &str, seconds: &[f64], most: f64) {
        let figure = median(seconds);
        let judged = Judged {
            figure,
            goal: format!("at most {most} s"),
            is_met: Some(figure <= most),
            text: format!("**{figure:.2} s**"),
        };
        self.row(what, seconds, judged).unit = "s".into();
    }

    pub(crate) fn note(&mut self, note: String) {
        eprintln!("{note}");
        self.notes.push(note);
    }

    pub(crate) fn chart(&mut self, chart: Chart) {
        self.charts.push(chart);
    }

    pub(crate) fn write(
        &mut self,
        json: Option<&Path>,
        markdown: Option<&Path>,
        svg: Option<&Path>,
    ) -> Result<()> {
        self.load[1] = load();
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(self)?;
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        if let Some(path) = svg {
            let text = chart::document(&self.charts);
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        let table = self.table();
        match markdown {
            Some(path) => replace_in(path, &table),
            None => {
                use std::io::Write;
                Ok(std::io::stdout().write_all(table.as_bytes())?)
            }
        }
    }

    fn table(&self) -> String {
        let mut out = format!(
            "{}, kernel {}, {}; load average {} to {}; allocation units \
             of {} KiB; median of {} pairs, in turn.\n\n\
             | | goal | measured |\n| --- | --- | --- |\n",
            self.date,
            self.kernel,
            self.processors,
            self.load[0],
            self.load[1],
            self.unit_bytes >> 10,
            self.repeat
        );
        for row in &self.rows {
            let missed = if row.is_met == Some(false) {
                ", missed"
            } else {
                ""
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "| {} | {} | {}{missed} |",
                row.what, row.goal, row.text
            );
        }
        out.push('\n');
        for note in &self.notes {
            let _ = writeln!(out, "* {note}");
        }
        out
    }
}

/// Replaces what stands between the markers, or appends markers and table.
fn replace_in(path: &Path, table: &str) -> Result<()> {
    const BEGIN: &str = "<!-- bench store: begin -->";
    const END: &str = "<!-- bench store: end -->";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let block = format!("{BEGIN}\n{table}\n{END}");
    let replaced = match (text.find(BEGIN), text.find(END)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{block}{}", &text[..from], &text[to + END.len()..])
        }
        _ => format!("{text}\n{block}\n"),
    };
    std::fs::write(path, replaced).with_context(|| format!("writing {}", path.display()))
}
