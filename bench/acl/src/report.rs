//! Figures as JSON, as tables with their conditions, and as charts.

use crate::Cli;
use anyhow::Result;
use figures::{Chart, Machine, load_average, publish, save_charts, save_json};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write;

/// What a figure is held against.
pub(crate) struct Goal {
    bound: Option<(f64, bool)>,
    words: &'static str,
}

impl Goal {
    pub(crate) fn at_least(least: f64, words: &'static str) -> Self {
        Self {
            bound: Some((least, true)),
            words,
        }
    }

    pub(crate) fn at_most(most: f64, words: &'static str) -> Self {
        Self {
            bound: Some((most, false)),
            words,
        }
    }

    pub(crate) fn none() -> Self {
        Self {
            bound: None,
            words: "",
        }
    }

    fn is_met(&self, figure: f64) -> Option<bool> {
        self.bound.map(|(bound, is_least)| match is_least {
            true => figure >= bound,
            false => figure <= bound,
        })
    }
}

/// One line of the first table.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    figures: Vec<f64>,
    /// What is held against the goal: the median.
    figure: f64,
    goal: &'static str,
    is_met: Option<bool>,
    text: String,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    machine: Machine,
    /// At the beginning and at the end.
    load: [f64; 2],
    repeat: usize,
    files: usize,
    distinct_lists: usize,
    rows: Vec<Row>,
    notes: Vec<String>,
    sections: Map<String, Value>,
    #[serde(skip)]
    tables: Vec<String>,
    #[serde(skip)]
    charts: Vec<Chart>,
}

/// The middle one; of two, the mean; of none, no number.
pub(crate) fn median(figures: &[f64]) -> f64 {
    figures::median(figures).unwrap_or(f64::NAN)
}

impl Report {
    pub(crate) fn new(cli: &Cli) -> Self {
        Self {
            machine: Machine::now(),
            load: [load_average(), 0.0],
            repeat: cli.repeat,
            files: cli.files,
            distinct_lists: cli.distinct,
            rows: Vec::new(),
            notes: Vec::new(),
            sections: Map::new(),
            tables: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// A line of the first table, its median held against a goal.
    pub(crate) fn row(&mut self, what: &str, figures: &[f64], goal: Goal, text: String) {
        eprintln!("{what}: {text}");
        let figure = median(figures);
        self.rows.push(Row {
            what: what.to_owned(),
            figures: figures.to_vec(),
            figure,
            goal: goal.words,
            is_met: goal.is_met(figure),
            text,
        });
    }

    /// A line whose figure speaks for itself.
    pub(crate) fn row_of_less(&mut self, what: &str, figures: &[f64], goal: Goal) {
        let text = format!("**{:.0}**", median(figures));
        self.row(what, figures, goal, text);
    }

    pub(crate) fn note(&mut self, note: String) {
        eprintln!("{note}");
        self.notes.push(note);
    }

    /// A table of its own, below the first.
    pub(crate) fn table(&mut self, table: &str) {
        eprintln!("{table}");
        self.tables.push(table.to_owned());
    }

    /// Figures of a part, for the JSON alone.
    pub(crate) fn section(&mut self, name: &str, figures: &impl Serialize) -> Result<()> {
        self.sections
            .insert(name.to_owned(), serde_json::to_value(figures)?);
        Ok(())
    }

    pub(crate) fn chart(&mut self, mut chart: Chart) {
        let Machine { date, kernel, .. } = &self.machine;
        chart.subtitle = format!("{}; {date}, kernel {kernel}", chart.subtitle);
        self.charts.push(chart);
    }

    pub(crate) fn write(&mut self, cli: &Cli) -> Result<()> {
        self.load[1] = load_average();
        if let Some(path) = &cli.json {
            save_json(path, self)?;
        }
        if let Some(path) = &cli.svg {
            save_charts(path, &self.charts)?;
        }
        publish(cli.markdown.as_deref(), "acl", &self.text())
    }

    fn text(&self) -> String {
        let lists = match self.distinct_lists {
            0 => "a list of its own each".to_owned(),
            lists => format!("{lists} lists among them"),
        };
        let mut out = format!(
            "{}; load average {:.2} to {:.2}; median of {} rounds, in turn; trees of {} files, \
             {lists}.\n\n| | goal | measured |\n| --- | --- | --- |\n",
            self.machine, self.load[0], self.load[1], self.repeat, self.files
        );
        for row in &self.rows {
            let missed = match row.is_met {
                Some(false) => ", missed",
                _ => "",
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
        for table in &self.tables {
            let _ = write!(out, "\n{table}");
        }
        out
    }
}
