//! smbtorture, Samba's own tests of what a server of Windows' files does, as far as they are about
//! ACLs: over a mount of a volume with rich ACLs, with the section of the documents; and beside it,
//! what the same tests say about Samba on ext4 alone (POSIX ACLs) and with its module `acl_xattr`
//! (whole security descriptors in an attribute that only Samba knows).
//!
//! A count is no goal in itself: many of these tests want what no NFSv4.0 ACL can say, as whether a
//! list was inherited automatically, or open a file that Samba's process may not open by that list.
//! So those that passed when this was written must go on to, and all are told.

use super::Subject;
use super::playground::{Playground, VolumeKind};
use crate::process;
use crate::sandbox::{self, Network};
use crate::scratch::Scratch;
use crate::tools::find;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// What the list of tests is searched for.
const TESTS: &str = "smb2\\.(acls|acls_non_canonical|sdread|create\\.(aclfile|acldir|nulldacl))\\.";
/// Tests that pass over a mount.
const PASSING: [&str; 4] = [
    "smb2.acls.CREATOR",
    "smb2.acls.MXAC-NOT-GRANTED",
    "smb2.acls.OVERWRITE_READ_ONLY_FILE",
    "smb2.sdread",
];
const SHARES: [&str; 3] = ["plain", "acl_xattr", "office"];
/// A user of our own, without a name elsewhere.
const USER: u32 = 62_001;
const LIMIT: Duration = Duration::from_secs(25 * 60);
/// By this the package is known; its modules are where the processor's libraries are.
const MODULES: &str = "/usr/share/doc/samba-vfs-modules/copyright";
/// The section of a share.
const DOCUMENT: &str = "docs/tasks/samba.md";

pub(crate) fn prepare() -> Result<Option<String>> {
    let needed = ["smbd", "smbclient", "smbtorture", MODULES];
    let lacking = needed.into_iter().find(|program| find(program).is_none());
    Ok(lacking.map(|program| format!("{program} is missing: cargo xtask deps deep")))
}

pub(crate) fn run(_: &Subject) -> Result<()> {
    let binary = workspace::build_azekura(true)?;
    let playground = Playground::start(&binary, VolumeKind::Export)?;
    playground.enable_rich_acls()?;
    let scratch = Scratch::new("smbtorture")?;
    std::fs::write(
        scratch.path().join("smb.conf"),
        configuration(&playground, &scratch)?,
    )?;
    let script = script(&playground, scratch.path());
    let mut command = sandbox::command(Network::Loopback, "bash");
    let said = process::check(command.args(["-c", &script]).env("LC_ALL", "C"), LIMIT)?;
    playground.stop()?;
    let passed = passed(&said);
    for (share, tests) in &passed {
        let good = tests.values().filter(|passes| **passes).count();
        println!("{share}: {good} of {} tests passed", tests.len());
    }
    let ours = passed.get("office").context("no test ran over the mount")?;
    for (test, passes) in ours {
        let word = if *passes { "passed" } else { "failed" };
        println!("over a mount: {test} {word}");
    }
    let lost = PASSING
        .into_iter()
        .filter(|test| ours.get(*test) != Some(&true));
    let lost: Vec<_> = lost.collect();
    ensure!(
        lost.is_empty(),
        "passed once, and no more: {lost:?}\n{said}"
    );
    Ok(())
}

/// The share of the documents, two on ext4, and what a server of its own takes.
fn configuration(playground: &Playground, scratch: &Scratch) -> Result<String> {
    let document = std::fs::read_to_string(workspace::root().join(DOCUMENT))?;
    let share = document
        .split_once("```ini\n")
        .and_then(|(_, block)| block.split_once("```"));
    let (share, _) = share.with_context(|| format!("{DOCUMENT} has no section"))?;
    let own = scratch.path().display();
    let mut out = "[global]\n  server role = standalone server\n  interfaces = lo\n  \
                   bind interfaces only = yes\n  disable netbios = yes\n  smb ports = 445\n  \
                   load printers = no\n  disable spoolss = yes\n"
        .to_owned();
    let places = [
        "private dir",
        "lock directory",
        "state directory",
        "cache directory",
        "pid directory",
        "ncalrpc dir",
    ];
    // Writing to a String cannot fail.
    let _ = writeln!(out, "  log file = {own}/log");
    for place in places {
        let _ = writeln!(out, "  {place} = {own}");
    }
    out += &share.replace("/srv/office", &playground.mount().to_string_lossy());
    for name in ["plain", "acl_xattr"] {
        let path = playground.disk().join(name);
        let _ = writeln!(
            out,
            "\n[{name}]\n  path = {}\n  read only = no",
            path.display()
        );
    }
    Ok(out + "  vfs objects = acl_xattr\n")
}

/// Samba and its tests, in a network of their own where the usual port is free. Each test finds an
/// empty share. A line for each: share, test, how it ended.
fn script(playground: &Playground, own: &Path) -> String {
    let (own, disk) = (own.display(), playground.disk().display());
    let shares = SHARES.join(" ");
    format!(
        "set -eu; cd {own}; cp /etc/passwd passwd; cp /etc/group group; \
         echo tester:x:{USER}:{USER}::/:/bin/false >> passwd; echo tester:x:{USER}: >> group; \
         mount --bind passwd /etc/passwd; mount --bind group /etc/group; \
         mkdir {disk}/plain {disk}/acl_xattr; \
         chown {USER}:{USER} {disk}/plain {disk}/acl_xattr {disk}/export; \
         printf 'pw\\npw\\n' | pdbedit -s smb.conf -a -t -u tester >/dev/null; \
         smbd -s smb.conf -F --no-process-group >out 2>&1 & \
         cd {own}; \
         for i in $(seq 200); do \
           smbclient -s smb.conf //127.0.0.1/office -U tester%pw -c quit >/dev/null 2>&1 && break; \
           sleep 0.05; done; \
         tests=$(smbtorture --list | grep -E '{TESTS}' | sed 's/^ *//; s/\\.[^.]*$//' | sort -u); \
         for share in {shares}; do for test in $tests; do \
           top=$share; [ $share = office ] && top=export; \
           find {disk}/$top -mindepth 1 -delete; \
           timeout 60 smbtorture -s smb.conf //127.0.0.1/$share -U tester%pw $test >said 2>&1 \
             || true; \
           end=$(grep -m1 -oE '^(success|failure|error|skip)' said || echo none); \
           echo \"smbtorture: $share $test $end\"; done; done"
    )
}

/// By share and test, whether it passed.
fn passed(said: &str) -> BTreeMap<String, BTreeMap<String, bool>> {
    let mut all = BTreeMap::<String, BTreeMap<String, bool>>::new();
    for line in said.lines() {
        let Some(rest) = line.strip_prefix("smbtorture: ") else {
            continue;
        };
        let words: Vec<&str> = rest.split(' ').collect();
        if let [share, test, end] = words[..] {
            let tests = all.entry(share.to_owned()).or_default();
            tests.insert(test.to_owned(), end == "success");
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tests_are_counted_by_share() {
        let said = "noise\nsmbtorture: plain smb2.sdread success\nsmbtorture: plain x failure\n\
                    smbtorture: office smb2.sdread none\n";
        let all = passed(said);
        assert_eq!(all.len(), 2);
        assert!(all["plain"]["smb2.sdread"]);
        assert!(!all["plain"]["x"]);
        assert!(!all["office"]["smb2.sdread"]);
    }
}
