//! PostgreSQL: initialise, load, run, stop it immediately while rows are written, recover, and let
//! its own tools judge every page.

use super::{Place, STEP_LIMIT, acks};
use crate::deep::seed::Seed;
use crate::process;
use crate::tools::find;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where Debian keeps the server's programs.
pub(crate) const INITDB: &str = "/usr/lib/postgresql/*/bin/initdb";
/// The server refuses to run as root; Debian's package makes this user.
const USER: &str = "postgres";
const STOPS: u32 = 3;

/// Otherwise pgbench empties its history first, and the sums below would not agree.
const KEEP_HISTORY: &str = "--no-vacuum";

/// All four sums of pgbench's accounts agree, whatever was running when the server stopped.
const BALANCES: &str = "SELECT count(DISTINCT s) FROM (\
    SELECT sum(abalance) AS s FROM pgbench_accounts UNION ALL \
    SELECT sum(tbalance) FROM pgbench_tellers UNION ALL \
    SELECT sum(bbalance) FROM pgbench_branches UNION ALL \
    SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS sums";

/// One database cluster on the subject, its socket in the local directory.
struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    local: PathBuf,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing to stop after an orderly run; after a failure the server must not outlive it.
        let _ = process::capture(&mut self.control(&["stop", "-m", "immediate"]), STEP_LIMIT);
    }
}

pub(crate) fn run(place: &Place) -> Result<String> {
    let initdb = find(INITDB).context("initdb")?;
    let cluster = Cluster {
        programs: initdb
            .parent()
            .context("initdb lies in a directory")?
            .to_owned(),
        data: place.directory.join("data"),
        local: place.local.clone(),
    };
    for directory in [&place.directory, &place.local] {
        process::check(Command::new("chown").arg(USER).arg(directory), STEP_LIMIT)?;
    }
    let data = cluster.data.display().to_string();
    let options = [
        "--data-checksums",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
    ];
    cluster.check("initdb", &[&options[..], &["--pgdata", &data]].concat())?;
    cluster.start()?;
    cluster.check(
        "pgbench",
        &["--initialize", "--quiet", "--scale=3", "postgres"],
    )?;
    let load = [
        KEEP_HISTORY,
        "--client=4",
        "--jobs=2",
        "--time=10",
        "postgres",
    ];
    let tps = transactions_per_second(&cluster.check("pgbench", &load)?)?;
    cluster.query("CREATE TABLE acks (id bigint PRIMARY KEY); CREATE EXTENSION amcheck")?;

    let mut seed = Seed::new(4);
    let mut next = 0;
    for stop in 1..=STOPS {
        next = stop_while_writing(&cluster, next, seed.between(1000, 3000))
            .with_context(|| format!("immediate stop {stop}"))?;
    }
    cluster.check(
        "pg_amcheck",
        &["--heapallindexed", "--parent-check", "postgres"],
    )?;
    process::check(&mut cluster.control(&["stop", "-m", "fast"]), STEP_LIMIT)?;
    let pages = cluster.check("pg_checksums", &["--check", "--pgdata", &data])?;
    ensure!(
        pages.lines().any(|line| line.trim() == "Bad checksums:  0"),
        "{pages}"
    );
    Ok(format!(
        "pgbench {tps} tps; {next} rows kept through {STOPS} immediate stops; pages good"
    ))
}

/// Writes rows beside pgbench, stops the server at once, recovers, and checks. Returns the number
/// for the next row.
fn stop_while_writing(cluster: &Cluster, first: u64, milliseconds: u64) -> Result<u64> {
    let mut load = cluster.command(
        "pgbench",
        &[KEEP_HISTORY, "--client=2", "--time=60", "postgres"],
    );
    load.stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut load = load.spawn()?;
    let mut shell = cluster.command("psql", &["-qAtX", "-v", "ON_ERROR_STOP=1", "postgres"]);
    let writer = acks::RowWriter::start(&mut shell, first)?;
    std::thread::sleep(Duration::from_millis(milliseconds));
    process::check(
        &mut cluster.control(&["stop", "-m", "immediate"]),
        STEP_LIMIT,
    )?;
    let end = writer.kill()?;
    process::kill_tree(&mut load);

    cluster.start()?;
    if end == first {
        bail!("no row was acknowledged: this proves nothing");
    }
    let rows = cluster.query("SELECT id FROM acks")?;
    acks::check(&rows, end)?;
    let sums = cluster.query(BALANCES)?;
    ensure!(
        sums.trim() == "1",
        "pgbench's balances disagree: {sums} different sums"
    );
    Ok(end.max(rows.lines().count() as u64))
}

impl Cluster {
    fn start(&self) -> Result<()> {
        let options = format!("-k {} -c listen_addresses=", self.local.display());
        let log = self.local.join("log").display().to_string();
        let mut command = self.control(&["start", "--wait", "--log", &log, "--options", &options]);
        let started = process::check(&mut command, STEP_LIMIT);
        started
            .map(drop)
            .with_context(|| std::fs::read_to_string(&log).unwrap_or_default())
    }

    fn query(&self, statement: &str) -> Result<String> {
        self.check(
            "psql",
            &[
                "-qAtX",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                statement,
                "postgres",
            ],
        )
    }

    fn control(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("pg_ctl", arguments);
        command.arg("--pgdata").arg(&self.data);
        command
    }

    fn check(&self, program: &str, arguments: &[&str]) -> Result<String> {
        process::check(&mut self.command(program, arguments), STEP_LIMIT)
    }

    /// One of PostgreSQL's programs, as its user.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("runuser");
        command
            .args(["-u", USER, "--"])
            .arg(self.programs.join(program))
            .args(arguments);
        command
            .env("PGHOST", &self.local)
            .env("PGUSER", USER)
            .env("LC_ALL", "C");
        command.current_dir(Path::new("/"));
        command
    }
}

/// The figure in `tps = 616.2 (without initial connection time)`.
fn transactions_per_second(output: &str) -> Result<u64> {
    let figure = output
        .lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
    let figure: f64 = figure.context("pgbench gives no rate")?.parse()?;
    Ok(figure as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        let output = "latency average = 1 ms\ntps = 616.248 (without initial connection time)\n";
        assert_eq!(transactions_per_second(output).unwrap(), 616);
        assert!(transactions_per_second("nothing").is_err());
    }
}
