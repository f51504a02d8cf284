//! A million and more requests to files with random POSIX ACLs on ext4, XFS and Btrfs: what the
//! kernel answers to those users and what the crate `acl` decides. Losses of power while rich ACLs
//! are being stored. And Samba over a mount, which `make test` leaves out where it is not
//! installed.

use super::Subject;
use crate::process;
use crate::tools::find;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Requests, over all file systems, unless `--cases` says how many.
const CASES: u64 = 1_200_000;
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
const RUN_LIMIT: Duration = Duration::from_secs(50 * 60);
/// By this the package is known; its modules are where the processor's libraries are.
const SAMBA_MODULES: &str = "/usr/share/doc/samba-vfs-modules/copyright";
const SAMBA_TEST: &str = "acl_tools::samba_over_a_mount_shows_and_sets_the_same_lists";
/// What that says at its end.
const SAMBA_WORDS: &str = "smbcacls, nfs4_getfacl and azekura show the same list";
/// Losses of power on each file system, and who judges what they leave.
const CRASHES: &str = "200";
const CRASH_TEST: &str =
    "rich::crashed::a_machine_that_stops_while_lists_are_stored_has_one_of_the_truths";
const TEST: &str = "judged::posix::random_lists_are_judged_as_by_the_kernel_on_each_file_system";

pub(crate) fn prepare() -> Result<Option<String>> {
    let makers = FILE_SYSTEMS.map(|name| format!("mkfs.{name}")).into_iter();
    let samba = ["smbd", "smbcacls", SAMBA_MODULES].map(str::to_owned);
    let lacking = makers.chain(samba).find(|program| find(program).is_none());
    Ok(lacking.map(|program| format!("{program} is missing: cargo xtask deps deep")))
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    judged(subject)?;
    crashed()?;
    // Of the whole workspace: with the features that `cargo xtask ci` has compiled.
    let arguments = [
        "test",
        "--locked",
        "--workspace",
        "--test",
        "e2e",
        SAMBA_TEST,
    ];
    let mut command = workspace::cargo(&arguments);
    command.args(["--", "--exact", "--nocapture"]);
    let output = process::check(&mut command, RUN_LIMIT)?;
    ensure!(
        output.contains(SAMBA_WORDS),
        "Samba was left out:\n{output}"
    );
    println!("acl: {SAMBA_WORDS}");
    Ok(())
}

/// A test of the export, for as long as a variable of its environment says.
fn served(test: &str, variable: &str, value: &str) -> Result<String> {
    let arguments = [
        "test",
        "--locked",
        "--package",
        "export",
        "--test",
        "served",
    ];
    let mut command = workspace::cargo(&arguments);
    command.args([test, "--", "--exact", "--nocapture"]);
    process::check(command.env(variable, value), RUN_LIMIT)
}

fn crashed() -> Result<()> {
    let output = served(CRASH_TEST, "AZEKURA_ACL_CRASHES", CRASHES)?;
    // "mkfs.ext4: 200 losses of power, truths of files [..]"
    let words = format!("{CRASHES} losses of power");
    let told: Vec<&str> = output
        .lines()
        .filter(|line| line.contains(&words))
        .collect();
    ensure!(told.len() == 2, "no losses of power:\n{output}");
    told.iter().for_each(|line| println!("acl: {line}"));
    Ok(())
}

fn judged(subject: &Subject) -> Result<()> {
    let cases = subject.options.cases.unwrap_or(CASES);
    let each = cases.div_ceil(FILE_SYSTEMS.len() as u64);
    let seed = subject.options.first_seed();
    let output = served(TEST, "AZEKURA_ACL_CASES", &format!("{each}:{seed}"))?;
    let mut judged = 0;
    for name in FILE_SYSTEMS {
        let requests = count(&output, name).with_context(|| format!("nothing about {name}"))?;
        println!("acl: {name}: {requests} requests, no difference");
        judged += requests;
    }
    ensure!(judged >= cases, "only {judged} requests of {cases}");
    println!("acl: {judged} requests, seed {seed}: no difference");
    Ok(())
}

/// The test's own words: "ext4: 123 allowed of 400 requests".
fn count(output: &str, file_system: &str) -> Option<u64> {
    let mut lines = output.lines().filter_map(|line| {
        let (_, said) = line.rsplit_once(&format!("{file_system}: "))?;
        said.strip_suffix(" requests")
    });
    lines.next()?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_own_words_are_counted() {
        let said = "running 1 test\next4: 7 allowed of 90 requests\n\
                    ext4: wrong rules are found out 3 and 4 times\n\
                    test x ... xfs: 8 allowed of 91 requests\nok";
        assert_eq!(count(said, "ext4"), Some(90));
        assert_eq!(count(said, "xfs"), Some(91));
        assert_eq!(count(said, "btrfs"), None);
    }
}
