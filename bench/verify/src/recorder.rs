//! Writes to devices in memory: plain, served, and served and recorded.

use crate::Cli;
use crate::place::{Plain, Served};
use crate::report::{Goal, Report};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use verify::{Medium, Recorder};

/// The goals, and what they are goals of.
const SEQUENTIAL_MIN: f64 = 1000.0;
const SMALL_MIN: f64 = 70_000.0;

/// What fio found of one device.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Of writes of 1 MiB, in MB/s.
    sequential: f64,
    /// Writes of 4 KiB a second.
    small: f64,
}

#[derive(Default)]
struct Turns(Vec<Turn>);

impl Turns {
    fn sequential(&self) -> Vec<f64> {
        self.0.iter().map(|turn| turn.sequential).collect()
    }

    fn small(&self) -> Vec<f64> {
        self.0.iter().map(|turn| turn.small).collect()
    }
}

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let len_bytes = cli.mebibytes << 20;
    let plain = Plain::new(len_bytes)?;
    let silent = Arc::new(Recorder::new(Arc::new(Medium::new(len_bytes))));
    let loud = Arc::new(Recorder::new(Arc::new(Medium::new(len_bytes))));
    let (silent, recorded) = (Served::new(silent)?, Served::new(loud.clone())?);
    let places = [&plain.device.path, silent.path(), recorded.path()];
    // So that none has its memory yet to get while it is measured.
    for path in places {
        write(path, "write", 1 << 20, cli.mebibytes)?;
    }
    let mut turns = [Turns::default(), Turns::default(), Turns::default()];
    for repeat in 0..cli.repeat {
        for at in 0..places.len() {
            let at = (at + repeat) % places.len();
            turns[at].0.push(turn(places[at], cli.mebibytes, &loud)?);
        }
    }
    let [plain, silent, recorded] = turns;
    let others =
        |of: fn(&Turns) -> Vec<f64>| [("loop device", of(&plain)), ("unrecorded", of(&silent))];
    let goal = Goal::at_least(SEQUENTIAL_MIN, "at least 1 GB/s");
    let what = "writes of 1 MiB, recorded";
    report.beside(
        what,
        "MB/s",
        &recorded.sequential(),
        &others(Turns::sequential),
        goal,
    );
    let goal = Goal::at_least(SMALL_MIN, "at least 70,000 a second");
    let what = "writes of 4 KiB, recorded";
    report.beside(what, "1/s", &recorded.small(), &others(Turns::small), goal);
    Ok(())
}

fn turn(path: &Path, mebibytes: u64, recorder: &Recorder) -> Result<Turn> {
    // An empty log each time; those who are not recorded pay for none of it.
    recorder.start();
    let sequential = write(path, "write", 1 << 20, mebibytes)?;
    recorder.start();
    let small = write(path, "randwrite", 4096, mebibytes / 2)?;
    drop(recorder.take());
    Ok(Turn {
        sequential: sequential.0,
        small: small.1,
    })
}

/// MB/s, and writes a second.
fn write(path: &Path, how: &str, block: u64, mebibytes: u64) -> Result<(f64, f64)> {
    let mut command = Command::new("fio");
    command.args([
        "--name=w",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=16",
    ]);
    command.args([
        "--output-format=json",
        "--randrepeat=0",
        "--allow_file_create=0",
    ]);
    command.arg(format!("--filename={}", path.display()));
    command
        .arg(format!("--rw={how}"))
        .arg(format!("--bs={block}"));
    command.arg(format!("--size={mebibytes}M"));
    let output = command.output().context("fio is not installed")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "fio failed: {text}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).context("fio's JSON")?;
    let write = &found["jobs"][0]["write"];
    let figure = |name: &str| write[name].as_f64().context("a figure of fio's");
    Ok((figure("bw_bytes")? / 1e6, figure("iops")?))
}
