//! The test suite of the package `acl` itself (getfacl, setfacl, and whom the kernel lets in), of a
//! fixed version, with the programs that are installed here.
//!
//! Each of its commands runs on ext4, on the subject, and on a mount with rich ACLs, and ends the
//! same on all: one that ends otherwise is a difference. Its users and groups are known by files of
//! its own, which stand in the place of this machine's meanwhile, in this suite's own mount
//! namespace.

use super::Subject;
use super::loop_disk::LoopDisk;
use super::playground::{Playground, VolumeKind};
use crate::process;
use crate::scratch::Scratch;
use crate::tools::find;
use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const VERSION: &str = "2.3.1";
const ARCHIVE: &str = "acl_2.3.1.orig.tar.xz";
const ARCHIVE_SHA256: &str = "c0234042e17f11306c23c038b08e5e070edb7be44bef6697fb8734dcff1c66b1";
/// All but those for NFS.
const TESTS: [&str; 13] = [
    "cp.test",
    "getfacl-lfs.test",
    "getfacl-noacl.test",
    "getfacl-recursive.test",
    "malformed-restore.test",
    "misc.test",
    "root/getfacl.test",
    "root/permissions.test",
    "root/restore.test",
    "root/setfacl.test",
    "sbits-restore.test",
    "setfacl-X.test",
    "utf8-filenames.test",
];
/// Seconds are usual.
const LIMIT: Duration = Duration::from_secs(5 * 60);
/// Where both file systems are seen in turn: other users come there, and the paths are the same.
const PLACE: &str = "/mnt";

/// The commands of all tests that end well, and those that do not with what they said, by test and
/// line.
type Verdicts = BTreeMap<String, Result<(), String>>;

pub(crate) fn prepare() -> Result<Option<String>> {
    let needed = ["setfacl", "perl", "curl", "xz", "sha256sum"];
    if let Some(program) = needed.into_iter().find(|program| find(program).is_none()) {
        return Ok(Some(format!("{program} is missing: cargo xtask deps deep")));
    }
    let archive = archive();
    if is_right(&archive) {
        return Ok(None);
    }
    let directory = archive.parent().expect("it lies in a directory");
    std::fs::create_dir_all(directory)?;
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--show-error",
        "--fail",
        "--location",
        "--output",
    ]);
    let Some(place) = place()? else {
        return Ok(Some(
            "apt does not know where the package acl comes from: apt-get update".to_owned(),
        ));
    };
    let place = format!("{place}/{ARCHIVE}");
    let fetched = process::capture(command.arg(&archive).arg(place), LIMIT)?;
    if !fetched.success {
        return Ok(Some(format!("{ARCHIVE}: {}", fetched.output.trim())));
    }
    ensure!(is_right(&archive), "{ARCHIVE} is not what it was");
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let scratch = Scratch::new("acl-tests")?;
    let disk = LoopDisk::new(&scratch)?;
    let own = scratch.directory("own")?;
    unpack(&own)?;
    let known = ["passwd", "group"];
    for name in known {
        let mut command = Command::new("mount");
        command
            .arg("--bind")
            .arg(own.join("test").join(format!("test.{name}")));
        process::check(command.arg(format!("/etc/{name}")), LIMIT)?;
    }
    let all = run_on(disk.path()).and_then(|ext4| Ok((ext4, run_on_each(subject)?)));
    for name in known {
        process::check(Command::new("umount").arg(format!("/etc/{name}")), LIMIT)?;
    }
    let (ext4, found) = all?;
    let passed = |all: &Verdicts| all.values().filter(|verdict| verdict.is_ok()).count();
    println!("ext4: {} of {} commands passed", passed(&ext4), ext4.len());
    let mut others = 0;
    for (name, all) in &found {
        println!("{name}: {} of {} commands passed", passed(all), all.len());
        let differences = compare(&ext4, all);
        for difference in &differences {
            println!("{name}: {difference}");
        }
        others += differences.len();
    }
    ensure!(others == 0, "{others} commands end otherwise than on ext4");
    Ok(())
}

/// On the subject; and, where that is an export of our own, on another one whose rich ACLs are on.
fn run_on_each(subject: &Subject) -> Result<Vec<(&'static str, Verdicts)>> {
    let mut all = vec![("subject", run_on(&subject.directory)?)];
    if subject.options.volume == Some(VolumeKind::Export) {
        let binary = workspace::build_azekura(true)?;
        let playground = Playground::start(&binary, VolumeKind::Export)?;
        playground.enable_rich_acls()?;
        let directory = playground.mount().join("acl-tests");
        std::fs::create_dir(&directory)?;
        all.push(("with rich ACLs", run_on(&directory)?));
        playground.stop()?;
    }
    Ok(all)
}

fn archive() -> PathBuf {
    let name = format!("tools/acl-{VERSION}.tar.xz");
    workspace::target().join(name)
}

/// Where this machine's apt gets the package from: its sources lie beside it.
fn place() -> Result<Option<String>> {
    let mut command = Command::new("apt-get");
    let asked = process::capture(command.args(["download", "--print-uris", "acl"]), LIMIT)?;
    let address = asked.output.split('\'').nth(1);
    let place = address.and_then(|address| address.rsplit_once('/'));
    Ok(place.map(|(place, _)| place.to_owned()))
}

fn is_right(archive: &Path) -> bool {
    let output = process::capture(Command::new("sha256sum").arg(archive), LIMIT);
    output.is_ok_and(|output| output.output.starts_with(ARCHIVE_SHA256))
}

fn unpack(directory: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command.arg("--extract").arg("--file").arg(archive());
    command.args(["--strip-components=1", "--no-same-owner", "--directory"]);
    command.arg(directory).arg(format!("acl-{VERSION}/test"));
    process::check(&mut command, LIMIT)?;
    Ok(())
}

fn run_on(directory: &Path) -> Result<Verdicts> {
    let mut bind = Command::new("mount");
    process::check(bind.arg("--bind").arg(directory).arg(PLACE), LIMIT)?;
    let verdicts = unpack(Path::new(PLACE)).and_then(|()| run_all());
    process::check(Command::new("umount").arg(PLACE), LIMIT)?;
    verdicts
}

fn run_all() -> Result<Verdicts> {
    // Others are to reach the directory of a test.
    let mut open = Command::new("chmod");
    process::check(
        open.args(["755", PLACE]).arg(format!("{PLACE}/test")),
        LIMIT,
    )?;
    let mut verdicts = Verdicts::new();
    for test in TESTS {
        let mut command = Command::new("perl");
        command.args(["-w", "-U"]).arg(format!("{PLACE}/test/run"));
        command.arg(format!("{PLACE}/test/{test}"));
        command.current_dir(PLACE).env("LC_ALL", "C.UTF-8");
        // A command that fails gives a failing exit status.
        let outcome = process::capture(&mut command, LIMIT)?;
        let commands = parse(&outcome.output)
            .with_context(|| format!("{test}: {}\n{}", outcome.end, outcome.output))?;
        let named = commands
            .into_iter()
            .map(|(line, verdict)| (format!("{test}:{line}"), verdict));
        verdicts.extend(named);
    }
    Ok(verdicts)
}

/// Lines such as `[12] $ touch f -- ok`; behind one that failed, what it said and should have.
/// A test that has not come to its end is none.
fn parse(output: &str) -> Result<Vec<(u32, Result<(), String>)>> {
    let mut all: Vec<(u32, Result<(), String>)> = Vec::new();
    let mut counted = None;
    for line in output.lines() {
        let begun = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("] $ "));
        let number = begun.and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
        if let Some((number, rest)) = number {
            let (command, end) = rest.rsplit_once(" -- ").unwrap_or((rest, ""));
            // A change of the group says in between which it is now.
            let verdict = match end.ends_with("ok") {
                true => Ok(()),
                false => Err(format!("{command}\n")),
            };
            all.push((number, verdict));
        } else if let Some((count, _)) = line.split_once(" commands (") {
            counted = count.parse::<usize>().ok();
        } else if let Some((_, Err(said))) = all.last_mut() {
            *said += line;
            said.push('\n');
        }
    }
    match counted {
        Some(count) if count == all.len() && count > 0 => Ok(all),
        _ => bail!("the test has not come to its end"),
    }
}

fn compare(ext4: &Verdicts, found: &Verdicts) -> Vec<String> {
    let names = ext4.keys().chain(found.keys());
    let names: std::collections::BTreeSet<&String> = names.collect();
    let word = |verdict: Option<&Result<(), String>>| match verdict {
        None => "not run".to_owned(),
        Some(Ok(())) => "passed".to_owned(),
        Some(Err(said)) => format!("failed: {said}"),
    };
    let differs = |name: &&&String| {
        let is_ok = |all: &Verdicts| all.get(**name).map(Result::is_ok);
        is_ok(ext4) != is_ok(found)
    };
    let names = names.iter().filter(differs);
    let told = names.map(|name| {
        let [on_ext4, here] = [ext4, found].map(|all| word(all.get(*name)));
        format!("{name}: on ext4 {on_ext4}; here {here}")
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "[3] $ touch f -- ok\n[4] $ cat f -- failed\nroot      != other\n\
                        2 commands (1 passed, 1 failed)\n";

    #[test]
    fn a_tests_own_words_are_its_commands() {
        let all = parse(SAID).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], (3, Ok(())));
        let (line, Err(said)) = &all[1] else {
            panic!("{all:?}");
        };
        assert!(*line == 4 && said.contains("root      != other"), "{said}");
        assert!(parse(&SAID.replace("2 commands", "3 commands")).is_err());
        assert!(parse("[3] $ touch f -- ok\n").is_err(), "it has no end");
    }

    #[test]
    fn what_ends_otherwise_is_named() {
        let of = |verdict| Verdicts::from([("misc.test:4".to_owned(), verdict)]);
        let (good, bad) = (of(Ok(())), of(Err("why".to_owned())));
        assert!(compare(&good, &good).is_empty() && compare(&bad, &bad).is_empty());
        assert!(compare(&good, &bad)[0].contains("here failed: why"));
        assert_eq!(compare(&bad, &good).len(), 1);
        assert!(compare(&good, &Verdicts::new())[0].contains("not run"));
    }
}
