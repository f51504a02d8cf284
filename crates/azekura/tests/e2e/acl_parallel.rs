//! Rich ACLs of a parallel volume, with the tools that people have: what is promised of exports
//! holds there, too.

use crate::acl::{AUDIT, AYA, OTHER, OWNER, Office, may, removal_is_granted, shell};
use crate::common::{Scene, obstacle, run};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A server with a parallel volume that has POSIX ACLs.
pub(crate) fn lab() -> Office {
    let mut scene = Scene::with_store("96MiB");
    let mode = Permissions::from_mode(0o755);
    fs::set_permissions(scene.path(""), mode).unwrap();
    let volume = scene.parallel();
    let mount = scene.mount_volume(&volume, "fill", &[]);
    let script = format!(
        "mkdir plans && printf figures > plans/q3.xlsx && \
         chown {OWNER}:{OWNER} plans plans/q3.xlsx && \
         setfacl -m u:{AYA}:r,o::- plans/q3.xlsx && setfacl -m u:{AYA}:rx plans"
    );
    run(&mut shell(0, None, &mount, &script)).ok();
    scene.umount(&mount);
    Office { scene, volume }
}

/// Modes and POSIX ACLs of all that is there, as a mount shows them.
fn posix_through(lab: &mut Office) -> String {
    let volume = lab.volume.clone();
    let mount = lab.scene.mount_volume(&volume, "posix", &[]);
    let script = "getfacl -R -n . 2>/dev/null";
    let shown = run(&mut shell(0, None, &mount, script)).ok();
    lab.scene.umount(&mount);
    shown
}

/// A list of so many users beside the owner: some thirty lie with the inode, more by themselves.
fn users(count: u32) -> String {
    let entries = (0..count).map(|user| format!(",A::{}:rtcy", 70_000 + user));
    format!("A::OWNER@:rwaxtTcCy{}", entries.collect::<String>())
}

#[test]
fn a_parallel_volume_moves_to_rich_acls_on_a_working_day() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut lab = lab();
    let volume = lab.volume.clone();
    let posix = posix_through(&mut lab);
    // Somebody is at work already, and stays on.
    let before = (lab.scene).mount_volume(&volume, "before", &["--allow-other"]);
    assert!(may(AYA, None, &before, "cat plans/q3.xlsx"));
    lab.acl(&["enable", &volume]);
    let by = lab.explained("plans/q3.xlsx", AYA, "read");
    assert_eq!(
        (by["allowed"].clone(), by["origin"].clone()),
        (true.into(), "posix".into())
    );
    assert_eq!(by["entry"]["text"], format!("user:{AYA}:r--"));
    let by = lab.explained("plans/q3.xlsx", AYA, "delete");
    assert_eq!(
        (by["allowed"].clone(), by["decided_at"].clone()),
        (false.into(), "directory".into())
    );
    assert_eq!(posix_through(&mut lab), posix, "nothing has changed");

    let after = lab.scene.mount_volume(&volume, "after", &["--allow-other"]);
    for mount in [&before, &after] {
        let shown = run(&mut shell(AYA, None, mount, "nfs4_getfacl plans/q3.xlsx")).ok();
        assert!(shown.contains(&format!("A::{AYA}:r")), "{shown}");
        let shown = run(&mut shell(AYA, None, mount, "getfacl -n plans/q3.xlsx")).ok();
        assert!(shown.contains(&format!("user:{AYA}:r--")), "{shown}");
    }
    removal_is_granted(&lab, &after);
    let grant = format!("g:{AUDIT}:r");
    let plan = lab.json(&["plan", &volume, "--grant", &grant, "--recursive"]);
    assert_eq!(
        (
            &plan["files"],
            &plan["would_change"],
            &plan["would_become_rich"]
        ),
        (&3.into(), &3.into(), &2.into()),
        "{plan}"
    );

    // The kernel of the mount from before judges by mode bits; of the other it does not.
    assert!(!may(AYA, None, &before, "rm -f plans/q3.xlsx"));
    assert!(!may(OTHER, None, &after, "rm -f plans/q3.xlsx"));
    assert!(may(AYA, None, &after, "rm -f plans/q3.xlsx"));
    assert!(!before.join("plans/q3.xlsx").exists());
    for mount in [before, after] {
        lab.scene.umount(&mount);
    }
}

#[test]
fn contents_are_read_and_written_by_those_who_may_and_by_nobody_else() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut lab = lab();
    let volume = lab.volume.clone();
    lab.acl(&["enable", &volume]);
    let plans = lab.file("plans");
    let entries = format!("A::OWNER@:rwaxDtTcCy,A::{AYA}:rxtcy,A:g:{AUDIT}:xtcy");
    lab.acl(&["set", &plans, "--set", &entries]);
    let mount = lab.scene.mount_volume(&volume, "m", &["--allow-other"]);
    let (read, list, enter) = ("cat plans/q3.xlsx", "ls plans", "cd plans");
    // Twice, so that the second answers come from what is known by then.
    for _ in 0..2 {
        assert!(may(AYA, None, &mount, read) && may(AYA, None, &mount, list));
        assert!(!may(OTHER, None, &mount, read) && !may(OTHER, None, &mount, list));
        assert!(!may(OTHER, None, &mount, enter));
        assert!(may(OTHER, Some(AUDIT), &mount, enter));
        assert!(!may(OTHER, Some(AUDIT), &mount, list));
        assert!(!may(OTHER, Some(AUDIT), &mount, read));
        assert!(!may(AYA, None, &mount, "echo x >> plans/q3.xlsx"));
    }
    // Between two look-ups the directory is closed to her, from elsewhere.
    let denial = format!("D::{AYA}:x");
    lab.acl(&["set", &plans, "--add", &denial]);
    assert!(!may(AYA, None, &mount, read));
    lab.acl(&["set", &plans, "--remove", &denial]);
    assert!(may(AYA, None, &mount, read));
    // Written by her right alone, over several stripes' worth.
    let file = lab.file("plans/q3.xlsx");
    let writes = format!("A::{AYA}:rwatcy,A::OWNER@:rwatTcCy");
    lab.acl(&["set", &file, "--set", &writes]);
    let script = "head -c 3000000 /dev/zero | tr '\\0' a > plans/q3.xlsx && wc -c < plans/q3.xlsx";
    let counted = run(&mut shell(AYA, None, &mount, script)).ok();
    assert_eq!(counted.trim(), "3000000");
    assert!(!may(OTHER, None, &mount, script));
    // A chmod lies over the list and is undone by chmod.
    let chmod = |mode: &str| may(OWNER, None, &mount, &format!("chmod {mode} plans/q3.xlsx"));
    let told = fs::metadata(mount.join("plans/q3.xlsx")).unwrap().mode() & 0o777;
    assert!(chmod("600") && !may(AYA, None, &mount, read));
    assert!(chmod(&format!("{told:o}")) && may(AYA, None, &mount, read));
    lab.scene.umount(&mount);
}

#[test]
fn small_and_large_lists_outlive_the_server_and_everything_goes_back_byte_by_byte() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut lab = lab();
    let volume = lab.volume.clone();
    let posix = posix_through(&mut lab);
    lab.acl(&["enable", &volume]);
    let plans = lab.file("plans");
    lab.acl(&["set", &plans, "--add", &format!("A:fd:{AYA}:rwaxtcy")]);
    lab.acl(&["set", &lab.file("plans/q3.xlsx"), "--set", &users(200)]);
    let mount = lab.scene.mount_volume(&volume, "m", &["--allow-other"]);
    heirs_are_made(&mount);
    assert!(!may(70_200, None, &mount, "cat plans/q3.xlsx"));
    for user in [70_000, 70_199] {
        assert!(may(user, None, &mount, "cat plans/q3.xlsx"));
        let by = lab.explained("plans/q3.xlsx", user, "read");
        assert_eq!(by["allowed"], true, "{by}");
    }
    lab.scene.umount(&mount);
    let status = lab.json(&["status", &volume]);
    assert_eq!(status["stored"], 2, "{status}");
    // A server that is killed loses neither the flag nor the lists nor what was written down.
    lab.scene.kill();
    lab.scene.start();
    let status = lab.json(&["status", &volume]);
    assert_eq!(
        (&status["enabled"], &status["stored"]),
        (&true.into(), &2.into()),
        "{status}"
    );
    for (user, is_allowed) in [(70_199, true), (70_200, false)] {
        let by = lab.explained("plans/q3.xlsx", user, "read");
        assert_eq!(
            (&by["allowed"], &by["origin"]),
            (&is_allowed.into(), &"rich".into()),
            "{by}"
        );
    }

    let would = lab.json(&["rollback", &volume, "--recursive", "--dry-run"]);
    assert_eq!(would["rolled_back"], 2, "{would}");
    let done = lab.json(&["rollback", &volume, "--recursive"]);
    assert_eq!(done["rolled_back"], 2, "{done}");
    let status = lab.json(&["status", &volume]);
    assert_eq!(
        (&status["stored"], &status["edits"]),
        (&0.into(), &4.into())
    );
    lab.acl(&["disable", &volume]);
    assert_eq!(posix_through(&mut lab), posix);
    let off = lab.scene.azekura(&["acl", "get", &lab.file("plans")]);
    assert!(
        !off.status.success() && off.stderr.contains("AZ1101"),
        "{}",
        off.stderr
    );
    lab.scene.end(Signal::TERM);
}

/// Aya makes files in a directory that gives heirs rights, and they go again.
#[track_caller]
fn heirs_are_made(mount: &Path) {
    let script = "umask 077; echo new > plans/new; mkdir plans/sub";
    run(&mut shell(AYA, None, mount, script)).ok();
    assert_eq!(fs::metadata(mount.join("plans/new")).unwrap().uid(), AYA);
    let shown = run(&mut shell(AYA, None, mount, "nfs4_getfacl plans/new")).ok();
    assert!(shown.contains(&AYA.to_string()), "{shown}");
    assert!(!may(OTHER, None, mount, "cat plans/new"));
    run(&mut shell(OWNER, None, mount, "rm -rf plans/new plans/sub")).ok();
}

#[test]
fn what_would_save_nothing_is_refused_and_lists_that_say_nothing_more_go() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut lab = lab();
    let volume = lab.volume.clone();
    let refused = |lab: &Office, arguments: &[&str]| {
        let all: Vec<&str> = ["acl"].iter().chain(arguments).copied().collect();
        let outcome = lab.scene.azekura(&all);
        let is_refused = !outcome.status.success() && outcome.stderr.contains("AZ1103");
        assert!(is_refused, "{arguments:?}: {}", outcome.stderr);
    };
    refused(&lab, &["enable", &volume, "--store", "always"]);
    let status = lab.json(&["status", &volume]);
    assert_eq!(status["enabled"], false, "{status}");
    lab.acl(&["enable", &volume, "--store", "measured"]);
    refused(&lab, &["calibrate", &volume]);
    let status = lab.json(&["status", &volume]);
    assert_eq!(status["views"]["policy"], "never", "{status}");
    let converted = lab.json(&["convert", &volume, "--all"]);
    assert_eq!(
        (
            &converted["state"],
            &converted["files"],
            &converted["changed"]
        ),
        (&"done".into(), &3.into(), &0.into())
    );
    // As a restored backup leaves it: a list that says what mode and POSIX ACL say.
    let file = lab.file("plans/q3.xlsx");
    let view = lab.json(&["get", &file]);
    let entries = view["entries"].as_array().unwrap().iter();
    let entries: Vec<&str> = entries
        .map(|entry| entry["text"].as_str().unwrap())
        .collect();
    lab.acl(&["set", &file, "--add", &format!("A::{OTHER}:r")]);
    lab.acl(&["set", &file, "--set", &entries.join(",")]);
    lab.acl(&[
        "set",
        &lab.file("plans"),
        "--add",
        &format!("A::{OTHER}:rx"),
    ]);
    for (arguments, changed) in [(&["--dry-run"][..], 1), (&[], 1), (&[], 0)] {
        let command = [&["compact", &volume][..], arguments].concat();
        let done = lab.json(&command);
        assert_eq!(
            (&done["files"], &done["changed"], &done["failed"]),
            (&3.into(), &changed.into(), &0.into()),
            "{done}"
        );
    }
    let by = lab.explained("plans/q3.xlsx", AYA, "read");
    assert_eq!(
        (&by["allowed"], &by["origin"]),
        (&true.into(), &"posix".into())
    );
    assert_eq!(lab.explained("plans", OTHER, "read")["origin"], "rich");
    let status = lab.json(&["status", &volume]);
    assert_eq!(
        (&status["stored"], &status["edits"]),
        (&1.into(), &4.into()),
        "{status}"
    );
    lab.scene.end(Signal::TERM);
}
