//! Figures as JSON, as a table with its conditions, and as charts.

use anyhow::Result;
use figures::{Chart, Machine, load_average, publish, save_charts, save_json};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

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
    #[serde(flatten)]
    machine: Machine,
    /// At the beginning and at the end.
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

/// The middle one; of two, the mean; of none, no number.
pub(crate) fn median(figures: &[f64]) -> f64 {
    figures::median(figures).unwrap_or(f64::NAN)
}

fn load() -> String {
    format!("{:.2}", load_average())
}

impl Report {
    pub(crate) fn new(repeat: usize, unit_bytes: u64) -> Self {
        Self {
            machine: Machine::now(),
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

    pub(crate) fn chart(&mut self, mut chart: Chart) {
        let Machine { date, kernel, .. } = &self.machine;
        chart.subtitle = format!("{}; {date}, kernel {kernel}", chart.subtitle);
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
            save_json(path, self)?;
        }
        if let Some(path) = svg {
            save_charts(path, &self.charts)?;
        }
        publish(markdown, "store", &self.table())
    }

    fn table(&self) -> String {
        let mut out = format!(
            "{}; load average {} to {}; allocation units \
             of {} KiB; median of {} pairs, in turn.\n\n\
             | | goal | measured |\n| --- | --- | --- |\n",
            self.machine,
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
