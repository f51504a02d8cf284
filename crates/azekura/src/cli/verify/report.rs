//! `azekura verify report`: results become one page.

use super::head;
use crate::errors::{Code, Context, Failure, Result, plain_io};
use crate::output;
use ::verify::report::{Row, csv, rows, whole_page};
use ::verify::results::{ResultError, Run};
use base::limits::{VERIFY_RESULT_BYTES_MAX, VERIFY_RESULTS_MAX};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What the names of results in a directory end with.
const EXTENSION: &str = "json";

/// Put results together as one report
///
/// Results are what `verify crash`, `verify speed`, `verify tune` and `verify powercut` print with
/// --json. The report has the tables and figures of all of them, each with its date, kernel,
/// conditions, command and number of repeats; medians and intervals are made anew from the repeats.
/// Results of different kernels stay apart. The page needs no network.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura verify speed --target ext4,xfs --json > results/speed.json
  azekura verify report results --out report.html
  azekura verify report old.json new.json --out report.html --csv figures.csv")]
pub(in crate::cli) struct Report {
    /// Results, or directories with such files (*.json)
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Write a page of HTML with everything
    #[arg(long, value_name = "FILE", required_unless_present_any = ["csv", "json"])]
    out: Option<PathBuf>,
    /// Write every figure as a row of CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print JSON, with every figure as a row
    #[arg(long)]
    json: bool,
}

impl Report {
    pub(super) fn run(self) -> Result<()> {
        let runs = read(&files(&self.paths)?)?;
        let rows = rows(&runs);
        if let Some(path) = &self.out {
            write_page(path, &runs)?;
        }
        if let Some(path) = &self.csv {
            std::fs::write(path, csv(&rows)).context(path.display())?;
        }
        match self.json {
            true => output::json(&shown(&runs, &rows)?),
            false => output::write(&text(&runs)),
        }
    }
}

/// Writes the page of these results.
pub(super) fn write_page(path: &Path, runs: &[Run]) -> Result<()> {
    let page = whole_page(runs, &head::now());
    std::fs::write(path, page).context(path.display())
}

/// Writes their figures as CSV.
pub(super) fn write_csv(path: &Path, runs: &[Run]) -> Result<()> {
    std::fs::write(path, csv(&rows(runs))).context(path.display())
}

/// The files that are meant: of a directory, those that can be results by their names.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut own = Vec::new();
        for entry in std::fs::read_dir(path).context(path.display())? {
            let file = entry.context(path.display())?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let is_result = file.extension().is_some_and(|end| end == EXTENSION);
            if is_result && !name.starts_with('.') {
                own.push(file);
            }
        }
        if own.is_empty() {
            let message = format!("{}: there is no result (*.json) in it", path.display());
            return Err(Failure::new(Code::ResultInvalid, output::plain(&message)));
        }
        own.sort();
        files.extend(own);
    }
    match files.len() > VERIFY_RESULTS_MAX {
        true => {
            let message = format!(
                "{} results; a report is of at most {VERIFY_RESULTS_MAX}",
                files.len()
            );
            Err(Failure::new(Code::ResultInvalid, message).hint("make several reports"))
        }
        false => Ok(files),
    }
}

/// Reads results.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Run>> {
    let mut left = VERIFY_RESULT_BYTES_MAX;
    let mut runs = Vec::new();
    let mut seen = HashSet::new();
    for path in files {
        let text = bytes(path, &mut left)?;
        let name = path.display().to_string();
        // One run counts once, however often it is named or copied.
        if seen.contains(&text) {
            output::note(format_args!(
                "{}: left out, it is there already",
                output::plain(&name)
            ));
            continue;
        }
        runs.push(Run::read(&name, &text).map_err(|error| refused(path, &error))?);
        seen.insert(text);
    }
    Ok(runs)
}

/// The bytes of a file, which are taken off what all of them may have.
fn bytes(path: &Path, left: &mut u64) -> Result<Vec<u8>> {
    let found = std::fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    // Reading a pipe would wait for somebody to write.
    if !found.is_file() {
        return Err(refused_as(
            path,
            "it is no file",
            "name files, or directories with *.json",
        ));
    }
    let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
    let mut text = Vec::new();
    let read = file.take(*left + 1).read_to_end(&mut text);
    read.map_err(|error| cannot_read(path, &error))?;
    match left.checked_sub(text.len() as u64) {
        Some(rest) => {
            *left = rest;
            Ok(text)
        }
        None => {
            let most = base::ByteSize(VERIFY_RESULT_BYTES_MAX);
            let why = format!("with it there would be more than {most} of results");
            Err(refused_as(path, &why, "make several reports"))
        }
    }
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => Code::FileNotFound,
        _ => Code::Local,
    };
    let message = format!("{}: {}", path.display(), plain_io(error));
    Failure::new(code, output::plain(&message))
}

fn refused_as(path: &Path, why: &str, hint: &str) -> Failure {
    let message = format!("{}: {why}", path.display());
    Failure::new(Code::ResultInvalid, output::plain(&message)).hint(hint)
}

fn refused(path: &Path, error: &ResultError) -> Failure {
    let hint = match error {
        ResultError::Version(_) => "use the release that wrote it or a later one",
        ResultError::Broken(_) => "was it cut off? run the command again, with --json",
        ResultError::Other => "results are what `azekura verify crash --json` and the others print",
        ResultError::Invalid(_) => "run the command again; the page of this code has more",
    };
    refused_as(path, &error.to_string(), hint)
}

/// What is particular about a result.
fn remark(run: &Run) -> &'static str {
    match (run.is_loaded(), run.head.was_interrupted) {
        (true, true) => "loaded, ended early",
        (true, false) => "loaded",
        (false, true) => "ended early",
        (false, false) => "",
    }
}

fn text(runs: &[Run]) -> String {
    let row = |(number, run): (usize, &Run)| {
        [
            number.to_string(),
            run.name.clone(),
            run.head.kind.name().to_owned(),
            run.head.date.clone(),
            run.head.kernel.clone(),
            remark(run).to_owned(),
        ]
    };
    let rows: Vec<[String; 6]> = (1..).zip(runs).map(row).collect();
    output::table(["RUN", "FILE", "KIND", "ENDED", "KERNEL", ""], &rows)
}

fn shown(runs: &[Run], rows: &[Row]) -> Result<Value> {
    let one = |(number, run): (usize, &Run)| {
        let head = &run.head;
        json!({
            "run": number,
            "file": run.name,
            "kind": head.kind.name(),
            "date": head.date,
            "command": head.command,
            "release": head.release,
            "kernel": head.kernel,
            "load": head.load,
            "seed": head.seed,
            "is_loaded": run.is_loaded(),
            "interrupted": head.was_interrupted,
        })
    };
    let rows = serde_json::to_value(rows);
    let rows = rows.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let runs: Vec<Value> = (1..).zip(runs).map(one).collect();
    Ok(json!({"runs": runs, "rows": rows}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn of_a_directory_only_what_can_be_a_result_is_read_in_order() {
        let directory = directory();
        for name in ["b.json", "a.json", ".c.json", "report.html", "x.jsonl"] {
            std::fs::write(directory.path().join(name), "{}").unwrap();
        }
        let found = files(&[directory.path().to_owned()]).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["a.json", "b.json"]);
        let error = read(&found).unwrap_err();
        assert_eq!(error.code(), Code::ResultInvalid);
        assert!(
            error.message().contains("a.json: it is no result"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_file_or_not_there_is_refused_without_waiting() {
        let directory = directory();
        let empty = files(&[directory.path().to_owned()]).unwrap_err();
        assert!(empty.message().contains("no result"), "{empty}");
        let pipe = directory.path().join("pipe.json");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let error = read(&files(&[directory.path().to_owned()]).unwrap()).unwrap_err();
        assert!(error.message().contains("no file"), "{error}");
        let none = read(&[directory.path().join("none.json")]).unwrap_err();
        assert_eq!(none.code(), Code::FileNotFound);
    }

    #[test]
    fn results_together_have_a_bound() {
        let directory = directory();
        let path = directory.path().join("long.json");
        std::fs::write(&path, "[1, 2, 3]").unwrap();
        let mut left = 10;
        assert_eq!(bytes(&path, &mut left).unwrap().len(), 9);
        let error = bytes(&path, &mut left).unwrap_err();
        assert!(
            left == 1 && error.message().contains("more than"),
            "{error}"
        );
    }
}
