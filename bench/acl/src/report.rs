//! Figures as JSON, as tables with their conditions, and as charts. The JSON has all of it, so that
//! runs of single parts can be put together ([`Report::join`]).

use crate::Cli;
use anyhow::{Context, Result, ensure};
use figures::{Chart, Machine, load_average, publish, save_charts, save_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::fs;
use std::path::Path;

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
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    what: String,
    figures: Vec<f64>,
    /// What is held against the goal: the median.
    figure: Option<f64>,
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
    load: [f64; 2],
    repeat: usize,
    files: usize,
    distinct_lists: usize,
    rows: Vec<Row>,
    notes: Vec<String>,
    sections: Map<String, Value>,
    tables: Vec<String>,
    charts: Vec<Chart>,
}

/// What an earlier run has written.
#[derive(Debug, Deserialize)]
struct Earlier {
    kernel: String,
    load: [f64; 2],
    repeat: usize,
    files: usize,
    distinct_lists: usize,
    rows: Vec<Row>,
    notes: Vec<String>,
    sections: Map<String, Value>,
    tables: Vec<String>,
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
        let figure = figures::median(figures);
        self.rows.push(Row {
            what: what.to_owned(),
            figures: figures.to_vec(),
            figure,
            goal: goal.words.to_owned(),
            is_met: figure.and_then(|figure| goal.is_met(figure)),
            text,
        });
    }

    /// Takes in what an earlier run of other parts has found, under the same conditions.
    pub(crate) fn join(&mut self, path: &Path) -> Result<()> {
        let what = || format!("figures in {}", path.display());
        let earlier = fs::read(path).with_context(what)?;
        let earlier: Earlier = serde_json::from_slice(&earlier).with_context(what)?;
        let conditions = |kernel, repeat, files, lists| {
            format!("kernel {kernel}, {repeat} rounds, {files} files, {lists} lists")
        };
        let own = conditions(
            &self.machine.kernel,
            self.repeat,
            self.files,
            self.distinct_lists,
        );
        let its = conditions(
            &earlier.kernel,
            earlier.repeat,
            earlier.files,
            earlier.distinct_lists,
        );
        ensure!(own == its, "{}: {its}; here it is {own}", what());
        let [begin, _] = earlier.load;
        self.load[0] = self.load[0].max(begin);
        self.rows.extend(earlier.rows);
        self.notes.extend(earlier.notes);
        self.sections.extend(earlier.sections);
        self.tables.extend(earlier.tables);
        self.charts.extend(earlier.charts);
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use figures::{Colour, Series};

    #[test]
    fn runs_of_single_parts_become_one() {
        let cli = Cli::parse_from(["acl"]);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("first.json");
        let mut first = Report::new(&cli);
        let goal = || Goal::at_least(2.0, "at least 2");
        first.row("a", &[1.0], goal(), "**1**".to_owned());
        first.note("said".to_owned());
        first.table("| t |\n");
        first.section("part", &7).unwrap();
        first.chart(Chart {
            title: "of a".to_owned(),
            series: vec![Series::with_dots("s", Colour::Blue, vec![(0.0, 1.5)])],
            ..Chart::default()
        });
        save_json(&path, &first).unwrap();
        let mut both = Report::new(&cli);
        both.join(&path).unwrap();
        both.row("b", &[], goal(), "**-**".to_owned());
        let text = both.text();
        let rows = "| a | at least 2 | **1**, missed |\n| b | at least 2 | **-** |\n";
        assert!(text.contains(rows), "{text}");
        assert!(text.contains("* said\n\n| t |\n"), "{text}");
        assert_eq!(both.charts, first.charts);
        assert_eq!(both.sections, first.sections);
        let others = Cli::parse_from(["acl", "--files", "7"]);
        Report::new(&others).join(&path).expect_err("other trees");
    }
}
