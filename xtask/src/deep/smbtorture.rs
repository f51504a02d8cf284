//! smbtorture, Samba's own tests of what a server of Windows' files does, as far as they are about
//! ACLs: over a mount of a volume with rich ACLs, with the section of the documents; and beside it,
//! what the same tests say about Samba on ext4 alone (POSIX ACLs) and with its module `acl_xattr`
//! (whole security descriptors in an attribute that only Samba knows).
//!
//! A count is no goal in itself: many of these tests want what no NFSv4.0 ACL can say, as whether a
//! list was inherited automatically, or open a file that Samba's process may not open by that list.
//! So it is written down of each test how it ends on each of the three ([`EXPECTED`]), and one that
//! ends otherwise, better or worse, or is not written down, is a difference. With another version
//! of Samba than that of which this was written down, only a test that passed over a mount, and
//! does no more, is one.

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
use std::process::Command;
use std::time::Duration;

/// What the list of tests is searched for.
const TESTS: &str = "smb2\\.(acls|acls_non_canonical|sdread|create\\.(aclfile|acldir|nulldacl))\\.";
/// Shares: on ext4 alone, there with `acl_xattr`, over a mount.
const SHARES: [&str; 3] = ["plain", "acl_xattr", "office"];
const OFFICE: usize = 2;
/// The version of which it is written down.
const VERSION: &str = "4.17.";
/// Whether each test passes on each of the shares.
const EXPECTED: [(&str, [bool; SHARES.len()]); 19] = [
    ("smb2.acls.ACCESSBASED", [false, false, false]),
    ("smb2.acls.CREATOR", [false, true, true]),
    ("smb2.acls.DENY1", [false, true, false]),
    ("smb2.acls.DYNAMIC", [false, true, false]),
    ("smb2.acls.GENERIC", [false, true, false]),
    ("smb2.acls.INHERITANCE", [false, true, false]),
    ("smb2.acls.INHERITFLAGS", [false, true, false]),
    ("smb2.acls.MXAC-NOT-GRANTED", [true, true, true]),
    ("smb2.acls.OVERWRITE_READ_ONLY_FILE", [true, true, true]),
    ("smb2.acls.OWNER", [false, true, false]),
    ("smb2.acls.OWNER-RIGHTS", [false, true, false]),
    ("smb2.acls.OWNER-RIGHTS-DENY", [false, true, false]),
    ("smb2.acls.OWNER-RIGHTS-DENY1", [false, true, false]),
    ("smb2.acls.SDFLAGSVSCHOWN", [false, true, false]),
    ("smb2.acls_non_canonical.flags", [false, false, false]),
    ("smb2.create.acldir", [false, true, false]),
    ("smb2.create.aclfile", [false, true, false]),
    ("smb2.create.nulldacl", [false, true, false]),
    ("smb2.sdread", [true, true, true]),
];
/// A user of our own, without a name elsewhere.
const USER: u32 = 62_001;
const LIMIT: Duration = Duration::from_secs(25 * 60);
/// By this the package is known; its modules are where the processor's libraries are.
const MODULES: &str = "/usr/share/doc/samba-vfs-modules/copyright";
/// The section of a share.
const DOCUMENT: &str = "docs/tasks/samba.md";

pub(crate) fn prepare() -> Result<Option<String>> {
    let needed = ["smbd", "pdbedit", "smbclient", "smbtorture", MODULES];
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
    let ours = passed
        .get(SHARES[OFFICE])
        .context("no test ran over the mount")?;
    for (test, passes) in ours {
        println!("over a mount: {test} {}", word(Some(*passes)));
    }
    let mut version = Command::new("smbd");
    let version = process::check(version.arg("--version"), LIMIT)?;
    let is_known = version.contains(&format!("Version {VERSION}"));
    if !is_known {
        println!("written down of Samba {VERSION}: {}", version.trim());
    }
    let differences = differences(&passed, is_known);
    ensure!(differences.is_empty(), "{}\n{said}", differences.join("\n"));
    Ok(())
}

fn word(passes: Option<bool>) -> &'static str {
    match passes {
        Some(true) => "passed",
        Some(false) => "failed",
        None => "not run",
    }
}

/// Tests that end otherwise than is written down; of an unknown version those that passed over a
/// mount and do not.
fn differences(passed: &Passed, is_known: bool) -> Vec<String> {
    let mut all = Vec::new();
    for (place, share) in SHARES.into_iter().enumerate() {
        let none = BTreeMap::new();
        let found = passed.get(share).unwrap_or(&none);
        for (test, expected) in EXPECTED {
            let (ends, expected) = (found.get(test).copied(), expected[place]);
            let is_lost = place == OFFICE && expected;
            if ends != Some(expected) && (is_known || is_lost) {
                let (ends, expected) = (word(ends), word(Some(expected)));
                all.push(format!("{share}: {test} {ends}, and {expected} before"));
            }
        }
        let is_new = |test: &&String| EXPECTED.iter().all(|(known, _)| known != test);
        if is_known {
            let new = found.keys().filter(is_new);
            all.extend(new.map(|test| format!("{share}: {test} is not written down")));
        }
    }
    all
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
type Passed = BTreeMap<String, BTreeMap<String, bool>>;

fn passed(said: &str) -> Passed {
    let mut all = Passed::new();
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

    #[test]
    fn each_test_that_ends_otherwise_is_named() {
        let as_written = || -> Passed {
            let shares = SHARES.into_iter().enumerate();
            let of = |place: usize| EXPECTED.map(|(test, ends)| (test.to_owned(), ends[place]));
            shares
                .map(|(place, share)| (share.to_owned(), of(place).into()))
                .collect()
        };
        assert_eq!(differences(&as_written(), true), [""; 0]);
        let end = |share: &str, test: &str, passes| {
            let mut all = as_written();
            let tests = all.get_mut(share).unwrap();
            tests.insert(test.to_owned(), passes);
            [true, false].map(|is_known| differences(&all, is_known).len())
        };
        assert_eq!(end("office", "smb2.sdread", false), [1, 1], "it is lost");
        assert_eq!(
            end("office", "smb2.acls.ACCESSBASED", true),
            [1, 0],
            "gained"
        );
        assert_eq!(end("plain", "smb2.sdread", false), [1, 0]);
        assert_eq!(end("office", "smb2.acls.NEW", true), [1, 0]);
        let mut none = as_written();
        none.remove("office");
        let passing = EXPECTED.iter().filter(|(_, ends)| ends[OFFICE]).count();
        let not_run = [EXPECTED.len(), passing];
        let found = [true, false].map(|is_known| differences(&none, is_known).len());
        assert_eq!(found, not_run);
    }
}
