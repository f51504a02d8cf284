//! Figures as JSON, as tables with their conditions, and as charts.

use super::Options;
use anyhow::Result;
use figures::{Chart, Machine, load_average, publish, save_charts, save_json};
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// What a figure is held against.
pub(super) struct Goal {
    bound: f64,
    is_least: bool,
    words: &'static str,
}

impl Goal {
    pub(super) fn at_least(bound: f64, words: &'static str) -> Self {
        Self {
            bound,
            is_least: true,
            words,
        }
    }

    pub(super) fn at_most(bound: f64, words: &'static str) -> Self {
        Self {
            is_least: false,
            ..Self::at_least(bound, words)
        }
    }
}

/// One line of the first table.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    goal: &'static str,
    figure: f64,
    is_met: bool,
    text: String,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    machine: Machine,
    /// At the beginning and at the end.
    load: [f64; 2],
    seed: u64,
    rows: Vec<Row>,
    notes: Vec<String>,
    /// Parts that could not be measured, and why.
    failed: Vec<String>,
    sections: Map<String, Value>,
    #[serde(skip)]
    tables: Vec<String>,
    #[serde(skip)]
    charts: Vec<Chart>,
}

impl Report {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            machine: Machine::now(),
            load: [load_average(), 0.0],
            seed: options.seed,
            rows: Vec::new(),
            notes: Vec::new(),
            failed: Vec::new(),
            sections: Map::new(),
            tables: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// A line of the first table.
    pub(super) fn row(&mut self, what: &str, goal: Goal, figure: f64, text: String) {
        eprintln!("{what}: {text}");
        let is_met = match goal.is_least {
            true => figure >= goal.bound,
            false => figure <= goal.bound,
        };
        self.rows.push(Row {
            what: what.to_owned(),
            goal: goal.words,
            figure,
            is_met,
            text,
        });
    }

    pub(super) fn note(&mut self, note: String) {
        eprintln!("{note}");
        self.notes.push(note);
    }

    /// A table of its own, below the first.
    pub(super) fn table(&mut self, table: &str) {
        eprintln!("{table}");
        self.tables.push(table.to_owned());
    }

    /// Figures of a part, for the JSON alone.
    pub(super) fn section(&mut self, name: &str, figures: &impl Serialize) -> Result<()> {
        let figures = serde_json::to_value(figures)?;
        self.sections.insert(name.to_owned(), figures);
        Ok(())
    }

    pub(super) fn chart(&mut self, mut chart: Chart) {
        let Machine { date, kernel, .. } = &self.machine;
        chart.subtitle = format!("{}; {date}, kernel {kernel}", chart.subtitle);
        self.charts.push(chart);
    }

    /// A part that could not be measured.
    pub(super) fn failed(&mut self, part: &str, error: &anyhow::Error) {
        eprintln!("{part}: {error:#}");
        self.failed.push(format!("{part}: {error:#}"));
    }

    /// Writes everything.
    ///
    /// # Errors
    /// Files cannot be written, or a part could not be measured.
    pub(super) fn write(&mut self, options: &Options) -> Result<()> {
        self.load[1] = load_average();
        if let Some(path) = &options.json {
            save_json(path, self)?;
        }
        if let Some(path) = &options.svg {
            save_charts(path, &self.charts)?;
        }
        publish(options.markdown.as_deref(), "disk", &self.text())?;
        anyhow::ensure!(self.failed.is_empty(), "{}", self.failed.join("; "));
        Ok(())
    }

    fn text(&self) -> String {
        let mut out = format!(
            "{}; load average {:.2} to {:.2}.\n\n| | goal | measured |\n| --- | --- | --- |\n",
            self.machine, self.load[0], self.load[1]
        );
        for row in &self.rows {
            let missed = if row.is_met { "" } else { ", missed" };
            out += &format!("| {} | {} | {}{missed} |\n", row.what, row.goal, row.text);
        }
        out.push('\n');
        for note in self.notes.iter().chain(&self.failed) {
            out += &format!("* {note}\n");
        }
        for table in &self.tables {
            out += &format!("\n{table}");
        }
        out
    }
}

/// A time for people.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
