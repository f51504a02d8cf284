//! Figures as JSON, and as a table with their conditions.

use crate::Cli;
use anyhow::Result;
use figures::{Machine, load_average, save_json};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a figure is held against.
pub(crate) struct Goal {
    bound: Option<(f64, bool)>,
    words: &'static str,
}

impl Goal {
    pub(crate) fn at_least(least: f64, words: &'static str) -> Self {
        let bound = Some((least, true));
        Self { bound, words }
    }

    pub(crate) fn at_most(most: f64, words: &'static str) -> Self {
        let bound = Some((most, false));
        Self { bound, words }
    }

    pub(crate) fn none() -> Self {
        Self {
            bound: None,
            words: "",
        }
    }
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    figures: Vec<f64>,
    /// What is held against the goal: the median.
    figure: f64,
    /// What was measured in turns with it.
    beside: BTreeMap<&'static str, Vec<f64>>,
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
    mebibytes: u64,
    points: u64,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Puts a table where the markers of this name are in the document, or prints it.
pub(crate) fn publish(cli: &Cli, name: &str, table: &str) -> Result<()> {
    figures::publish(cli.markdown.as_deref(), name, table.trim_end())
}

fn median(figures: &[f64]) -> f64 {
    figures::median(figures).unwrap_or(f64::NAN)
}

impl Report {
    pub(crate) fn new(cli: &Cli) -> Self {
        Self {
            machine: Machine::now(),
            load: [load_average(), 0.0],
            repeat: cli.repeat,
            mebibytes: cli.mebibytes,
            points: cli.points,
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A line: its median, those of what took turns with it, and the medians of the ratios.
    pub(crate) fn beside(
        &mut self,
        what: &str,
        unit: &'static str,
        figures: &[f64],
        others: &[(&'static str, Vec<f64>)],
        goal: Goal,
    ) {
        let figure = median(figures);
        let mut text = format!("**{figure:.0}** {unit}");
        for (name, of) in others {
            let ratios: Vec<f64> = figures.iter().zip(of).map(|(one, two)| one / two).collect();
            let share = median(&ratios) * 100.0;
            let _ = write!(text, "; {name}: {:.0}, {share:.0} % of it", median(of));
        }
        eprintln!("{what}: {text}");
        self.rows.push(Row {
            what: what.to_owned(),
            unit,
            figures: figures.to_vec(),
            figure,
            beside: others.iter().cloned().collect(),
            goal: goal.words,
            is_met: goal.bound.map(|(bound, is_least)| match is_least {
                true => figure >= bound,
                false => figure <= bound,
            }),
            text,
        });
    }

    pub(crate) fn note(&mut self, note: String) {
        eprintln!("{note}");
        self.notes.push(note);
    }

    pub(crate) fn write(&mut self, cli: &Cli) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.load[1] = load_average();
        if let Some(path) = &cli.json {
            save_json(path, self)?;
        }
        publish(cli, "verify", &self.text())
    }

    fn text(&self) -> String {
        let [before, after] = self.load;
        let mut text = format!(
            "{}; load {before:.2} before, {after:.2} after; medians of {}\n\n\
             | what | found | goal | |\n| --- | --- | --- | --- |\n",
            self.machine, self.repeat
        );
        for row in &self.rows {
            let is_met = match row.is_met {
                Some(true) => "met",
                Some(false) => "missed",
                None => "",
            };
            let (what, found, goal) = (&row.what, &row.text, row.goal);
            let _ = writeln!(text, "| {what} | {found} | {goal} | {is_met} |");
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}.\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_row_has_its_median_and_those_of_the_ratios() {
        let mut report = Report::new(&Cli::parse_from(["verify"]));
        let plain = vec![200.0, 400.0, 100.0];
        let goal = Goal::at_least(60.0, "at least 60");
        report.beside(
            "writes",
            "MB/s",
            &[100.0, 50.0, 60.0],
            &[("loop", plain)],
            goal,
        );
        report.beside(
            "all",
            "s",
            &[901.0],
            &[],
            Goal::at_most(900.0, "at most 900"),
        );
        let text = report.text();
        let known = "| writes | **60** MB/s; loop: 200, 50 % of it | at least 60 | met |";
        assert!(text.contains(known), "{text}");
        assert!(text.contains("| at most 900 | missed |"), "{text}");
    }
}
