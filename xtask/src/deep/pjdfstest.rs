//! pjdfstest: 398 tests of what POSIX says about system calls on files.
//!
//! The same configuration runs on ext4 and on the subject, and the two are compared test by test. A
//! test that ends otherwise than on ext4 is a difference; each is printed with what the test said,
//! and only differences in [`EXPLAINED`] pass. The C original runs thousands of assertions in
//! fewer, larger scripts; the rewrite in Rust needs no perl and names single cases.

use super::loop_disk::LoopDisk;
use super::{Subject, install};
use crate::process;
use crate::scratch::Scratch;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const VERSION: &str = "0.2.2";
/// Seconds are usual on an idle machine, 90 s were seen on a busy one.
const RUN_LIMIT: Duration = Duration::from_secs(9 * 60);

/// Where both file systems are seen in turn, in this suite's own mount namespace: the paths are the
/// same, and short enough for sockets, whose names have at most 107 bytes.
const PLACE: &str = "/mnt";

/// Two users that every Debian has, instead of new ones. The features are Linux's; remounting is
/// left out, because it would change a mount that is not ours.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Tests that may differ from ext4, each with its reason.
const EXPLAINED: [(&str, &str); 1] = [(
    "link::link_count_max",
    "the C library answers pathconf(_PC_LINK_MAX) from its own table of file system types, in \
     which no FUSE file system is, so the test skips itself; the limit is the server's (EMLINK)",
)];

pub(crate) fn prepare() -> Result<Option<String>> {
    install::install("pjdfstest", VERSION, "")?;
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let configuration = subject.scratch.join("pjdfstest.toml");
    std::fs::write(&configuration, CONFIGURATION)?;
    let scratch = Scratch::new("pjdfstest")?;
    let disk = LoopDisk::new(&scratch)?;
    // Links and renames across file systems need a second one.
    let second = scratch.directory("second")?;
    let mut command = Command::new("mount");
    process::check(
        command.args(["-t", "tmpfs", "none"]).arg(&second),
        RUN_LIMIT,
    )?;
    let run_on = |directory: &Path| run_on(directory, &second, &configuration);
    let baseline = run_on(disk.path())?;
    println!("ext4:    {}", summary(&baseline));
    let found = run_on(&subject.directory)?;
    println!("subject: {}", summary(&found));
    let differences = compare(&baseline, &found);
    for (name, text) in &differences {
        println!("{name}: {text}");
    }
    let unexplained = differences
        .iter()
        .filter(|(name, _)| reason(name).is_none())
        .count();
    println!(
        "{} differences, {unexplained} of them unexplained",
        differences.len()
    );
    if unexplained > 0 {
        bail!("{unexplained} tests end otherwise than on ext4");
    }
    Ok(())
}

/// How one test ended and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    result: String,
    detail: String,
}

type Verdicts = BTreeMap<String, Verdict>;

/// Runs the tests on `directory`, seen at [`PLACE`].
fn run_on(directory: &Path, second: &Path, configuration: &Path) -> Result<Verdicts> {
    let mut bind = Command::new("mount");
    process::check(bind.arg("--bind").arg(directory).arg(PLACE), RUN_LIMIT)?;
    let mut command = Command::new(install::path("pjdfstest"));
    command.arg("-c").arg(configuration).args(["-p", PLACE]);
    command.arg("-s").arg(second).env("NO_COLOR", "1");
    let outcome = process::capture(&mut command, RUN_LIMIT);
    process::check(Command::new("umount").arg(PLACE), RUN_LIMIT)?;
    let outcome = outcome?;
    let verdicts = parse(&outcome.output);
    // Failed tests give a failing exit status; a run that did not finish gives no summary.
    if !outcome.output.contains("Summary") || verdicts.is_empty() {
        bail!(
            "pjdfstest did not finish: {}\n{}",
            outcome.end,
            outcome.output
        );
    }
    Ok(verdicts)
}

/// Lines such as `chmod::enoent   ok`, followed by indented remarks.
fn parse(output: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    let mut latest: Option<String> = None;
    for line in output.lines() {
        let mut words = line.split_whitespace();
        let (name, result) = (words.next(), words.next());
        if let (Some(name), Some(result), None) = (name, result, words.next())
            && matches!(result, "ok" | "FAILED" | "skipped")
        {
            let verdict = Verdict {
                result: result.to_owned(),
                detail: String::new(),
            };
            verdicts.insert(name.to_owned(), verdict);
            latest = Some(name.to_owned());
        } else if line.starts_with('\t')
            && let Some(verdict) = latest.as_ref().and_then(|name| verdicts.get_mut(name))
        {
            verdict.detail += line.trim();
            verdict.detail.push(' ');
        }
    }
    verdicts
}

fn summary(verdicts: &Verdicts) -> String {
    let count = |result| {
        verdicts
            .values()
            .filter(|verdict| verdict.result == result)
            .count()
    };
    let (passed, failed, skipped) = (count("ok"), count("FAILED"), count("skipped"));
    format!(
        "{passed} passed, {failed} failed, {skipped} skipped of {}",
        verdicts.len()
    )
}

fn compare(baseline: &Verdicts, found: &Verdicts) -> Vec<(String, String)> {
    let names = baseline
        .keys()
        .chain(found.keys().filter(|name| !baseline.contains_key(*name)));
    let result = |verdicts: &Verdicts, name: &str| {
        verdicts
            .get(name)
            .map_or("not run", |verdict| verdict.result.as_str())
            .to_owned()
    };
    let mut differences = Vec::new();
    for name in names {
        let (there, here) = (result(baseline, name), result(found, name));
        if there != here {
            let detail = found.get(name).map_or("", |verdict| verdict.detail.trim());
            let because = reason(name)
                .map(|why| format!(" ({why})"))
                .unwrap_or_default();
            differences.push((
                name.clone(),
                format!("ext4 {there}, here {here}{because}: {detail}"),
            ));
        }
    }
    differences
}

fn reason(name: &str) -> Option<&'static str> {
    EXPLAINED
        .iter()
        .find(|(explained, _)| *explained == name)
        .map(|&(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_read_and_compared() {
        let ext4 = parse(
            "a::b   ok\nc::d   ok\ne::f   skipped\n\trequires features: x\n\nSummary: 0 failed\n",
        );
        assert_eq!(summary(&ext4), "2 passed, 0 failed, 1 skipped of 3");
        assert_eq!(ext4["e::f"].detail.trim(), "requires features: x");
        let here = parse("a::b   ok\nc::d   FAILED\n\tEPERM expected\n");
        let differences = compare(&ext4, &here);
        let names: Vec<_> = differences.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["c::d", "e::f"]);
        assert_eq!(differences[0].1, "ext4 ok, here FAILED: EPERM expected");
        assert!(compare(&ext4, &ext4).is_empty());
    }
}
