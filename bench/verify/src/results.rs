//! What the program itself has measured for a day, and the parts of docs/verification.md that are
//! made of it: the paper's table 5, the matrix of speed, and the crash run of our store.
//!
//! ```text
//! cuts, matrix, crash -> the program's JSON in a directory -> tables -> the document
//! ```
//! Results stay in the directory, so that the tables can be made again without measuring anything.
//! Power cuts go on where an earlier run was ended.

use crate::tables;
use crate::{Cli, report};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use verify::results::{Found, Run};

/// One of these parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The paper's table 5.
    Cuts,
    /// Sections 4 and 5 of the paper.
    Matrix,
    /// Crash states of our store.
    Crash,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Cuts, Self::Matrix, Self::Crash];

    /// On the command line, and between the markers of the document.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cuts => "cuts",
            Self::Matrix => "matrix",
            Self::Crash => "crash",
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }

    /// What is measured with: words of the command line.
    fn words(self, cli: &Cli) -> Vec<String> {
        let (command, words) = match self {
            Self::Cuts => ("powercut", &cli.cuts),
            Self::Matrix => ("speed", &cli.matrix),
            Self::Crash => ("crash", &cli.crash),
        };
        let words = ["verify", command, "--json"]
            .into_iter()
            .chain(words.split(' '));
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }

    fn file(self, cli: &Cli) -> PathBuf {
        cli.results.join(format!("{}.json", self.name()))
    }

    fn table(self, run: &Run) -> Result<String> {
        match (self, &run.found) {
            (Self::Cuts, Found::Powercut(cuts)) => Ok(tables::cuts(run, cuts)),
            (Self::Matrix, Found::Speed(speeds)) => Ok(tables::matrix(run, speeds)),
            (Self::Crash, Found::Crash(outcomes)) => Ok(tables::crash(run, outcomes)),
            _ => bail!("{} is the result of something else", run.name),
        }
    }
}

/// Measures a part, and keeps what the program says.
pub(crate) fn measure(cli: &Cli, part: Part) -> Result<()> {
    fs::create_dir_all(&cli.results).context("the directory of results")?;
    let mut command = Command::new(&cli.azekura);
    command.args(part.words(cli));
    if part == Part::Cuts {
        command.arg("--state").arg(cli.results.join("cuts.jsonl"));
    }
    let output = command.output().context("the program")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // It also ends with an error if something was lost, which is then in the result.
    let run = Run::read(part.name(), &output.stdout);
    let run = run.with_context(|| format!("{}: {said}", part.name()))?;
    ensure!(!run.head.was_interrupted, "{}: {said}", part.name());
    fs::write(part.file(cli), &output.stdout).context("a result")
}

/// Makes the table of a part of what is kept.
pub(crate) fn publish(cli: &Cli, part: Part) -> Result<()> {
    let file = part.file(cli);
    let text = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    let run = Run::read(&file.display().to_string(), &text)?;
    report::publish(cli, part.name(), &part.table(&run)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn words_are_those_of_the_program() {
        let cli = Cli::parse_from(["verify", "--cuts", "--target jfs  --seed 3"]);
        let words = Part::Cuts.words(&cli).join(" ");
        assert_eq!(words, "verify powercut --json --target jfs --seed 3");
        for part in Part::ALL {
            assert_eq!(Part::by_name(part.name()), Some(part));
            assert_eq!(part.words(&cli)[2], "--json");
        }
        assert_eq!(Part::by_name("all"), None);
    }

    #[test]
    fn tables_are_made_again_of_what_was_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (results, document) = (directory.path(), directory.path().join("x.md"));
        let kept = tables::tests::crash().to_string();
        fs::write(results.join("crash.json"), kept).unwrap();
        let paths = [results, &document].map(|path| path.to_str().unwrap());
        let words = ["verify", "--results", paths[0], "--markdown", paths[1]];
        let cli = Cli::parse_from(words);
        publish(&cli, Part::Crash).unwrap();
        let text = fs::read_to_string(&document).unwrap();
        assert!(text.contains("<!-- bench crash: begin -->"), "{text}");
        assert!(text.contains("| store |"), "{text}");
        fs::write(
            results.join("cuts.json"),
            fs::read(results.join("crash.json")).unwrap(),
        )
        .unwrap();
        assert!(publish(&cli, Part::Cuts).is_err());
        assert!(publish(&cli, Part::Matrix).is_err());
    }
}
