//! Who may only append, on either kind of volume with rich ACLs: opens for appending, and changes
//! nothing that is there.

use crate::acl::{AYA, OTHER, OWNER, Office, may, shell};
use crate::acl_parallel::lab;
use crate::common::{obstacle, run};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The office's log: the owner's, to which Aya may append.
const LOG: &str = "plans/log";

fn prepared(mut office: Office, allows_reading: bool) -> (Office, PathBuf) {
    let volume = office.volume.clone();
    office.acl(&["enable", &volume]);
    let options = ["--allow-other", "--timeout", "60s"];
    let mount = office.scene.mount_volume(&volume, "m", &options);
    let script = format!("echo first > {LOG}; chmod 600 {LOG}");
    run(&mut shell(OWNER, None, &mount, &script)).ok();
    let reads = if allows_reading { "r" } else { "" };
    let entries = format!("A::{AYA}:{reads}atcy,A::OWNER@:rwatTcCy");
    office.acl(&["set", &office.file(LOG), "--set", &entries]);
    (office, mount)
}

#[track_caller]
fn contents(mount: &Path) -> String {
    run(&mut shell(OWNER, None, mount, &format!("cat {LOG}"))).ok()
}

/// What changes something that is there, or makes it shorter or longer.
const CHANGES: [&str; 10] = [
    ": > plans/log",
    "truncate -s 0 plans/log",
    "truncate -s 100 plans/log",
    "printf x | dd of=plans/log bs=1 conv=notrunc 2>/dev/null",
    "fallocate -l 4096 plans/log",
    "fallocate -p -o 0 -l 3 plans/log",
    "cp /etc/passwd plans/log",
    // Opened for appending, and then not any more; it is the write that fails.
    "perl -e 'use Fcntl; sysopen(F, \"plans/log\", O_WRONLY|O_APPEND) || exit 3; \
     fcntl(F, F_SETFL, 0) || exit 4; sysseek(F, 0, 0); \
     exit(defined(syswrite(F, \"X\")) && close(F) ? 0 : $!{EPERM} ? 5 : 6)'; test $? != 5",
    "perl -e 'use Fcntl; sysopen(F, \"plans/log\", O_WRONLY|O_APPEND) || exit 3; \
     exit(truncate(F, 0) ? 0 : $!{EPERM} ? 5 : 6)'; test $? != 5",
    "perl -e 'use Fcntl; \
     exit(sysopen(F, \"plans/log\", O_WRONLY|O_APPEND|O_TRUNC) ? 0 : 5)'; test $? != 5",
];

#[track_caller]
fn appends_and_nothing_else(office: Office) {
    let (mut office, mount) = prepared(office, false);
    let append = format!("echo hers >> {LOG}");
    assert!(!may(OTHER, None, &mount, &append));
    assert!(may(AYA, None, &mount, &append));
    assert_eq!(contents(&mount), "first\nhers\n");
    assert!(!may(AYA, None, &mount, &format!("cat {LOG}")));
    for change in CHANGES {
        assert!(!may(AYA, None, &mount, change), "{change}");
        assert_eq!(contents(&mount), "first\nhers\n", "{change}");
    }
    // Many at once land whole, hers and the owner's.
    let many = |word: &str| {
        format!("i=0; while [ $i -lt 40 ]; do echo {word} >> {LOG} || exit 1; i=$((i+1)); done")
    };
    std::thread::scope(|scope| {
        let hers = scope.spawn(|| may(AYA, None, &mount, &many("hers")));
        assert!(may(OWNER, None, &mount, &many("his")));
        assert!(hers.join().unwrap());
    });
    let all = contents(&mount);
    let count = |word: &str| all.lines().filter(|line| *line == word).count();
    assert_eq!(
        (count("first"), count("hers"), count("his")),
        (1, 41, 40),
        "{all}"
    );
    office.scene.umount(&mount);
}

#[test]
fn who_may_only_append_appends_on_an_export_and_changes_nothing() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    appends_and_nothing_else(Office::new());
}

#[test]
fn who_may_only_append_appends_on_a_parallel_volume_and_changes_nothing() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    appends_and_nothing_else(lab());
}

/// An open for appending, for reading as well, goes on when the server has been killed and has
/// begun anew; what was appended and is not durable yet is not lost.
#[track_caller]
fn goes_on_over_a_killed_server(office: Office) {
    let (mut office, mount) = prepared(office, true);
    let script = format!(
        "exec 3>>{LOG} 4<>/dev/null; echo one >&3; echo said; read go; echo two >&3; \
         exec 3>&-; cat {LOG}"
    );
    let mut appending = shell(AYA, None, &mount, &script);
    appending.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut appending = appending.spawn().unwrap();
    let mut out = BufReader::new(appending.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "said\n");
    office.scene.kill();
    office.scene.start();
    let mut go = appending.stdin.take().unwrap();
    go.write_all(b"go\n").unwrap();
    drop(go);
    let lines: Vec<String> = out.lines().map(Result::unwrap).collect();
    assert!(appending.wait().unwrap().success(), "{lines:?}");
    assert_eq!(lines, ["first", "one", "two"]);
    assert_eq!(contents(&mount), "first\none\ntwo\n");
    assert!(!may(AYA, None, &mount, ": > plans/log"));
    office.scene.umount(&mount);
}

#[test]
fn an_open_for_appending_alone_goes_on_over_a_killed_server_of_an_export() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    goes_on_over_a_killed_server(Office::new());
}

#[test]
fn an_open_for_appending_alone_goes_on_over_a_killed_server_of_a_parallel_volume() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    goes_on_over_a_killed_server(lab());
}
