//! Rich ACLs of an exported volume, with the tools that people have: nfs4_getfacl and nfs4_setfacl,
//! getfacl and setfacl, and our own command.

use crate::checks::copy_program;
use crate::common::{Scene, obstacle, run, text};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Users and a group without names here.
pub(crate) const OWNER: u32 = 62_001;
pub(crate) const AYA: u32 = 62_002;
pub(crate) const OTHER: u32 = 62_003;
pub(crate) const AUDIT: u32 = 62_004;

/// A shell command as a user, in a group if one is named.
pub(crate) fn shell(uid: u32, group: Option<u32>, directory: &Path, script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}"));
    command.arg(format!("--regid={uid}"));
    match group {
        Some(group) => command.arg(format!("--groups={group}")),
        None => command.arg("--clear-groups"),
    };
    command.args(["sh", "-c", script]);
    command.current_dir(directory).env("LC_ALL", "C");
    command
}

#[track_caller]
pub(crate) fn may(uid: u32, group: Option<u32>, directory: &Path, script: &str) -> bool {
    run(&mut shell(uid, group, directory, script))
        .status
        .success()
}

/// Everything about a tree's modes and POSIX ACLs, and what lies beside its files.
pub(crate) fn posix_of(directory: &Path) -> String {
    let script = "getfacl -R -n . 2>/dev/null; find . | sort | \
                  xargs getfattr -h -d -m 'security.azekura|system' -e hex 2>/dev/null";
    run(&mut shell(0, None, directory, script)).ok()
}

/// A server with an old tree, which has POSIX ACLs.
pub(crate) struct Office {
    pub(crate) scene: Scene,
    pub(crate) volume: String,
}

impl Office {
    pub(crate) fn new() -> Self {
        let scene = Scene::new();
        let top = scene.path("export");
        for directory in ["", "export"] {
            let mode = Permissions::from_mode(0o755);
            fs::set_permissions(scene.path(directory), mode).unwrap();
        }
        fs::create_dir(top.join("plans")).unwrap();
        fs::write(top.join("plans/q3.xlsx"), "figures").unwrap();
        for path in ["plans", "plans/q3.xlsx"] {
            chown(top.join(path), Some(OWNER), Some(OWNER)).unwrap();
        }
        let script =
            format!("setfacl -m u:{AYA}:r,o::- plans/q3.xlsx; setfacl -m u:{AYA}:rx plans");
        run(&mut shell(0, None, &top, &script)).ok();
        let volume = scene.volume();
        Self { scene, volume }
    }

    pub(crate) fn export(&self) -> PathBuf {
        self.scene.path("export")
    }

    pub(crate) fn file(&self, path: &str) -> String {
        format!("{}:/{path}", self.volume)
    }

    #[track_caller]
    pub(crate) fn acl(&self, arguments: &[&str]) -> String {
        let all: Vec<&str> = ["acl"].iter().chain(arguments).copied().collect();
        self.scene.azekura(&all).ok()
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let all: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.acl(&all)).unwrap()
    }

    pub(crate) fn explained(&self, path: &str, user: u32, want: &str) -> Value {
        let (file, user) = (self.file(path), user.to_string());
        self.json(&["explain", &file, "--as", &user, "--want", want])
    }
}

#[test]
fn a_share_moves_to_rich_acls_on_a_working_day() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    // Somebody is at work already, and stays on.
    let before = office.scene.mount("before", &["--allow-other"]);
    let posix = posix_of(&office.export());
    assert!(may(AYA, None, &before, "cat plans/q3.xlsx"));
    let volume = office.volume.clone();
    office.acl(&["enable", &volume]);
    assert_eq!(posix_of(&office.export()), posix, "no file was touched");
    let by = office.explained("plans/q3.xlsx", AYA, "read");
    assert_eq!(
        (by["allowed"].clone(), by["origin"].clone()),
        (true.into(), "posix".into())
    );
    assert_eq!(by["entry"]["text"], format!("user:{AYA}:r--"));
    let by = office.explained("plans/q3.xlsx", AYA, "delete");
    assert_eq!(
        (by["allowed"].clone(), by["decided_at"].clone()),
        (false.into(), "directory".into())
    );

    let after = office.scene.mount("after", &["--allow-other"]);
    for mount in [&before, &after] {
        let shown = run(&mut shell(AYA, None, mount, "nfs4_getfacl plans/q3.xlsx")).ok();
        assert!(shown.contains(&format!("A::{AYA}:r")), "{shown}");
        let shown = run(&mut shell(AYA, None, mount, "getfacl -n plans/q3.xlsx")).ok();
        assert!(shown.contains(&format!("user:{AYA}:r--")), "{shown}");
    }
    removal_is_granted(&office, &after);

    let plan = [
        "plan",
        &volume,
        "--grant",
        &format!("g:{AUDIT}:r"),
        "--recursive",
    ];
    let plan = office.json(&plan);
    assert_eq!(
        (&plan["files"], &plan["would_change"]),
        (&3.into(), &3.into()),
        "{plan}"
    );
    assert_eq!(plan["would_become_rich"], 2, "{plan}");
    // All may read the directories as it is.
    assert_eq!(plan["without_effect"], 2, "{plan}");
    let file = office.file("plans/q3.xlsx");
    let plan = office.json(&["plan", &file, "--grant", "A::OWNER@:r"]);
    assert_eq!(
        (&plan["would_change"], &plan["without_effect"]),
        (&1.into(), &1.into()),
        "what its owner may anyway: {plan}"
    );

    // The kernel of the mount from before judges by mode bits; of the other it does not.
    assert!(!may(AYA, None, &before, "rm -f plans/q3.xlsx"));
    assert!(!may(OTHER, None, &after, "rm -f plans/q3.xlsx"));
    assert!(may(AYA, None, &after, "rm -f plans/q3.xlsx"));
    assert!(!office.export().join("plans/q3.xlsx").exists());
    for mount in [before, after] {
        office.scene.umount(&mount);
    }
}

/// The first explicit edit, by the owner's own tool: Aya may remove the file.
#[track_caller]
pub(crate) fn removal_is_granted(office: &Office, mount: &Path) {
    let grant = format!("nfs4_setfacl -a A::{AYA}:d plans/q3.xlsx");
    assert!(!may(AYA, None, mount, &grant), "not hers");
    run(&mut shell(OWNER, None, mount, &grant)).ok();
    let by = office.explained("plans/q3.xlsx", AYA, "delete");
    assert_eq!(
        (by["allowed"].clone(), by["origin"].clone()),
        (true.into(), "rich".into())
    );
    assert_eq!(by["entry"]["text"], format!("A::{AYA}:d"));
    let status = office.json(&["status", &office.volume]);
    assert_eq!(
        (&status["enabled"], &status["stored"]),
        (&true.into(), &1.into()),
        "{status}"
    );
    let line = status["last_edits"][0].as_str().unwrap();
    assert!(
        line.contains("posix->rich") && line.contains(&format!("user {AYA} +d")),
        "{line}"
    );
}

#[test]
fn no_users_answer_is_served_to_another() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let volume = office.volume.clone();
    office.acl(&["enable", &volume]);
    let plans = office.file("plans");
    let entries = format!("A::OWNER@:rwaxDtTcCy,A::{AYA}:rxtcy,A:g:{AUDIT}:xtcy");
    office.acl(&["set", &plans, "--set", &entries]);
    let mount = office.scene.mount("m", &["--allow-other"]);
    let read = "cat plans/q3.xlsx";
    let list = "ls plans";
    let enter = "cd plans";
    // Twice, so that the second answers come from what is known by then.
    for _ in 0..2 {
        assert!(may(AYA, None, &mount, read) && may(AYA, None, &mount, list));
        assert!(!may(OTHER, None, &mount, read) && !may(OTHER, None, &mount, list));
        assert!(
            !may(OTHER, None, &mount, enter) && !may(OTHER, None, &mount, "stat plans/q3.xlsx")
        );
        assert!(may(OTHER, Some(AUDIT), &mount, enter));
        assert!(!may(OTHER, Some(AUDIT), &mount, list));
        assert!(may(OTHER, Some(AUDIT), &mount, "stat plans/q3.xlsx"));
        assert!(!may(OTHER, Some(AUDIT), &mount, read));
    }
    // Between two look-ups the directory is closed to her, from elsewhere.
    office.acl(&["set", &plans, "--add", &format!("D::{AYA}:x")]);
    assert!(!may(AYA, None, &mount, read));
    office.acl(&["set", &plans, "--remove", &format!("D::{AYA}:x")]);
    assert!(may(AYA, None, &mount, read));
    // And by a program of the server's machine, which takes some milliseconds to be heard.
    let closed = office.export().join("plans");
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while may(AYA, None, &mount, read) {
        assert!(Instant::now() < deadline, "chmod 0 is not noticed");
    }
    office.scene.umount(&mount);
}

#[test]
fn programs_run_where_they_may_be_run_and_are_read_where_they_may_be_read() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let volume = office.volume.clone();
    office.acl(&["enable", &volume]);
    let program = office.export().join("program");
    copy_program("/bin/true", &program);
    chown(&program, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    let entries = format!("A::OWNER@:rwaxtTcCy,A::{AYA}:xtcy");
    office.acl(&["set", &office.file("program"), "--set", &entries]);
    let mount = office.scene.mount("m", &["--allow-other"]);
    for _ in 0..2 {
        assert!(may(AYA, None, &mount, "./program"));
        assert!(!may(AYA, None, &mount, "cat program >/dev/null"));
        assert!(!may(OTHER, None, &mount, "./program"));
        assert!(may(AYA, None, &mount, "test -x program"));
        assert!(!may(AYA, None, &mount, "test -r program"));
    }
    office.scene.umount(&mount);
}

#[test]
fn pipes_and_devices_are_opened_by_those_for_whom_they_are() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let volume = office.volume.clone();
    let script = format!(
        "cd plans && setfacl -b . && mkfifo -m 0660 pipe && mknod -m 0660 null c 1 3 && \
         mkfifo -m 0666 open && chown {OWNER}:{OWNER} pipe null && setfacl -m u:{AYA}:rw pipe null"
    );
    run(&mut shell(0, None, &office.export(), &script)).ok();
    office.acl(&["enable", &volume]);
    let mount = office.scene.mount("m", &["-o", "allow_other,dev"]);
    // Twice, so that the second answers come from what is known by then. Opened for both, a pipe
    // waits for nobody.
    for _ in 0..2 {
        for name in ["pipe", "null"] {
            let open = format!("exec 3<>plans/{name}");
            assert!(
                may(OWNER, None, &mount, &open) && may(AYA, None, &mount, &open),
                "{name}"
            );
            assert!(!may(OTHER, None, &mount, &open), "{name}");
            let read = format!("timeout 5 sh -c ': <plans/{name}'");
            assert!(!may(OTHER, None, &mount, &read), "{name}");
        }
        assert!(may(OTHER, None, &mount, "exec 3<>plans/open"));
    }
    office.acl(&[
        "set",
        &office.file("plans/pipe"),
        "--add",
        &format!("A::{OTHER}:rwa"),
    ]);
    assert!(may(OTHER, None, &mount, "exec 3<>plans/pipe"));
    office.scene.umount(&mount);
}

#[track_caller]
fn a_damaged_list_goes(office: &Office) {
    office.acl(&["set", &office.file("plans"), "--add", "A::7:r"]);
    let plans = office.export().join("plans");
    let damage = ["-n", "security.azekura.acl", "-v", "nonsense", text(&plans)];
    assert!(
        Command::new("setfattr")
            .args(damage)
            .status()
            .unwrap()
            .success()
    );
    let done = office.json(&["rollback", &office.file("plans")]);
    assert_eq!(done["rolled_back"], 1, "{done}");
}

#[test]
fn new_files_inherit_on_a_mount_and_everything_goes_back_byte_by_byte() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let volume = office.volume.clone();
    let posix = posix_of(&office.export());
    office.acl(&["enable", &volume]);
    let plans = office.file("plans");
    office.acl(&["set", &plans, "--add", &format!("A:fd:{AYA}:rwaxtcy")]);
    office.acl(&[
        "set",
        &office.file("plans/q3.xlsx"),
        "--modify",
        &format!("u:{OTHER}:rw"),
    ]);
    let mount = office.scene.mount("m", &["--allow-other"]);
    heirs_are_made(&office, &mount);
    office.scene.umount(&mount);

    let status = office.json(&["status", &volume]);
    assert_eq!(status["stored"], 2, "{status}");
    // A server that is killed loses neither the flag nor what was written down.
    office.scene.kill();
    office.scene.start();
    let status = office.json(&["status", &volume]);
    assert_eq!(
        (&status["enabled"], &status["stored"]),
        (&true.into(), &2.into()),
        "{status}"
    );
    let by = office.explained("plans/q3.xlsx", OTHER, "write");
    assert_eq!(
        (&by["allowed"], &by["origin"]),
        (&true.into(), &"rich".into()),
        "{by}"
    );

    let would = office.json(&["rollback", &volume, "--recursive", "--dry-run"]);
    assert_eq!(would["rolled_back"], 2, "{would}");
    assert_ne!(posix_of(&office.export()), posix);
    let done = office.json(&["rollback", &volume, "--recursive"]);
    assert_eq!(done["rolled_back"], 2, "{done}");
    assert_eq!(posix_of(&office.export()), posix);
    a_damaged_list_goes(&office);
    assert_eq!(posix_of(&office.export()), posix);
    office.acl(&["disable", &volume]);
    for command in ["get", "rollback"] {
        let off = office
            .scene
            .azekura(&["acl", command, &office.file("plans")]);
        assert!(
            !off.status.success() && off.stderr.contains("AZ1101"),
            "{command}: {}",
            off.stderr
        );
    }
    office.scene.end(Signal::TERM);
}

/// Aya makes files in a directory that gives heirs rights, and they go again.
#[track_caller]
fn heirs_are_made(office: &Office, mount: &Path) {
    run(&mut shell(
        AYA,
        None,
        mount,
        "umask 077; echo new > plans/new; mkdir plans/sub",
    ))
    .ok();
    let made = fs::metadata(office.export().join("plans/new")).unwrap();
    assert_eq!(made.uid(), AYA);
    let shown = run(&mut shell(AYA, None, mount, "nfs4_getfacl plans/new")).ok();
    assert!(shown.contains(&AYA.to_string()), "{shown}");
    assert!(!may(OTHER, None, mount, "cat plans/new"));
    assert!(may(OTHER, None, mount, "true"));
    run(&mut shell(
        AYA,
        None,
        mount,
        "rm -r plans/new plans/sub 2>&1; true",
    ))
    .ok();
    run(&mut shell(OWNER, None, mount, "rm -rf plans/new plans/sub")).ok();
}

/// The views of a volume, once they are as they are to be.
#[track_caller]
fn views(office: &Office, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let views = office.json(&["status", &office.volume])["views"].clone();
        if is_so(&views) {
            return views;
        }
        assert!(Instant::now() < deadline, "{what}: {views}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn views_are_stored_as_the_policy_says_and_what_is_shown_is_what_is_there() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let volume = office.volume.clone();
    let posix = posix_of(&office.export());
    let refused = office
        .scene
        .azekura(&["acl", "enable", &volume, "--store", "sometimes"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    office.acl(&["enable", &volume, "--store", "always"]);
    let file = office.file("plans/q3.xlsx");
    let mount = office.scene.mount("m", &["--allow-other"]);
    let changed = |top: &Path| {
        let found = fs::metadata(top.join("plans/q3.xlsx")).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let first = changed(&mount);
    let before = office.acl(&["get", &file]);
    let stored = views(&office, "stored", |views| views["stored"] == 1);
    assert_eq!(
        (&stored["policy"], &stored["costs"]),
        (&"always".into(), &Value::Null)
    );
    assert!(posix_of(&office.export()).contains("security.azekura.view"));
    assert_eq!(office.acl(&["get", &file]), before);
    views(&office, "used", |views| views["used"] == 1);
    // Nobody but the server has changed it, and the mount hears of that.
    let there = changed(&office.export());
    assert_ne!(there, first);
    let deadline = Instant::now() + Duration::from_secs(20);
    while changed(&mount) != there {
        assert!(
            Instant::now() < deadline,
            "the mount knows an old time of change"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    office.scene.umount(&mount);

    // Behind the server's back; the view that lies there is not that of the file any more.
    let top = office.export();
    let script = format!("setfacl -m u:{OTHER}:rw plans/q3.xlsx");
    run(&mut shell(0, None, &top, &script)).ok();
    let after = office.acl(&["get", &file]);
    assert!(after.contains(&format!("A::{OTHER}:rw")), "{after}");
    views(&office, "stored anew", |views| views["stored"] == 2);
    office.scene.kill();
    office.scene.start();
    assert_eq!(office.acl(&["get", &file]), after);
    let again = views(&office, "used after a restart", |views| views["used"] == 1);
    assert_eq!(
        (&again["policy"], &again["made"]),
        (&"always".into(), &0.into())
    );

    all_are_stored_and_removed(&office, &after);
    let script = format!("setfacl -x u:{OTHER} plans/q3.xlsx");
    run(&mut shell(0, None, &top, &script)).ok();
    assert_eq!(posix_of(&top), posix);
    office.scene.end(Signal::TERM);
}

/// With all files at once, one of which has a view already that shows what is there.
#[track_caller]
fn all_are_stored_and_removed(office: &Office, shown: &str) {
    let (volume, file) = (office.volume.as_str(), office.file("plans/q3.xlsx"));
    let would = office.json(&["compact", volume, "--dry-run"]);
    assert_eq!(
        (&would["files"], &would["changed"]),
        (&3.into(), &1.into()),
        "{would}"
    );
    let done = office.json(&["convert", volume, "--all"]);
    assert_eq!(
        (&done["state"], &done["changed"]),
        (&"done".into(), &2.into()),
        "{done}"
    );
    assert_eq!(office.acl(&["get", &file]), shown);
    // One that has become rich has no view, and keeps its list.
    office.acl(&[
        "set",
        &office.file("plans"),
        "--add",
        &format!("A::{OTHER}:rx"),
    ]);
    office.acl(&["enable", volume, "--store", "never"]);
    let compacted = office.acl(&["compact", volume]);
    assert!(
        compacted.contains("2 copies of 3 files removed"),
        "{compacted}"
    );
    assert!(!posix_of(&office.export()).contains("security.azekura.view"));
    let by = office.explained("plans", OTHER, "read");
    assert_eq!(by["origin"], "rich", "{by}");
    office.acl(&["rollback", volume, "--recursive"]);
}

#[test]
fn what_views_cost_is_measured_once_and_kept() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let volume = office.volume.clone();
    let begun = Instant::now();
    office.acl(&["enable", &volume]);
    let taken = begun.elapsed();
    assert!(
        taken < Duration::from_secs(5),
        "it waits for no measuring: {taken:?}"
    );
    let is_measured = |views: &Value| !views["costs"].is_null();
    let first = views(&office, "measured", is_measured);
    assert_eq!(first["policy"], "measured");
    let points = first["costs"]["points"].as_array().unwrap();
    assert!(points.len() > 1 && points[0]["entries"] == 3, "{first}");
    office.scene.kill();
    office.scene.start();
    let again = views(&office, "kept", is_measured);
    assert_eq!(again["costs"], first["costs"]);
    let anew = office.json(&["calibrate", &volume]);
    assert!(
        anew["measured"].as_i64() >= first["costs"]["measured"].as_i64(),
        "{anew}"
    );
    let kept = views(&office, "known", is_measured);
    assert_eq!(kept["costs"], anew);
    let table = office.acl(&["calibrate", &volume]);
    assert!(
        table.contains("STORING PAYS") && table.lines().count() > 3,
        "{table}"
    );
    let left: Vec<_> = fs::read_dir(office.export()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    office.scene.end(Signal::TERM);
}

#[test]
fn what_cannot_be_is_refused_with_its_code() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let office = Office::new();
    let volume = office.volume.clone();
    let refused = |arguments: &[&str], code: &str| {
        let all: Vec<&str> = ["acl"].iter().chain(arguments).copied().collect();
        let outcome = office.scene.azekura(&all);
        assert!(
            !outcome.status.success() && outcome.stderr.contains(code),
            "{}",
            outcome.stderr
        );
    };
    let file = office.file("plans/q3.xlsx");
    refused(&["get", &file], "AZ1101");
    refused(
        &["enable", &format!("{}/none", office.scene.address())],
        "AZ0301",
    );
    office.acl(&["enable", &volume, "--dry-run"]);
    refused(&["get", &file], "AZ1101");
    office.acl(&["enable", &volume]);
    refused(&["set", &file, "--add", "A::7:q"], "AZ1102");
    refused(&["set", &file], "AZ1102");
    refused(&["explain", &file, "--want", "fly"], "AZ1102");
    refused(&["set", &file, "--add", "u:no-such-user:r"], "AZ1104");
    refused(&["explain", &file, "--as", "no-such-user"], "AZ1104");
    refused(&["get", &office.file("none")], "AZ0401");
    let read_only = office.scene.path("still");
    fs::create_dir(&read_only).unwrap();
    let still = format!("{}/still", office.scene.address());
    let create = [
        "volume",
        "create",
        &still,
        "--export",
        text(&read_only),
        "--read-only",
    ];
    office.scene.azekura(&create).ok();
    refused(&["enable", &still, "--store", "always"], "AZ1103");
    refused(&["calibrate", &still], "AZ1103");
    refused(&["convert", &still], "AZ1103");
    office.acl(&["enable", &still]);
    let views = office.json(&["status", &still])["views"].clone();
    assert_eq!(views["policy"], "never", "{views}");
    let before = posix_of(&office.export());
    office.acl(&["set", &file, "--add", "A::7:r", "--dry-run"]);
    assert_eq!(posix_of(&office.export()), before);
    assert!(text(&office.export()).ends_with("export"));
}

#[test]
fn who_has_a_sid_or_another_name_is_said_by_a_table() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    const SID: &str = "S-1-5-21-7-8-9-1105";
    let mut office = Office::new();
    let volume = office.volume.clone();
    office.acl(&["enable", &volume]);
    let table = office.scene.path("srv/identities.toml");
    let entry = format!("[[identity]]\nuser = {AYA}\nsid = \"{SID}\"\nname = \"aya@office\"\n");
    fs::write(&table, &entry).unwrap();
    let file = office.file("plans/q3.xlsx");
    let unknown = "S-1-5-21-7-8-9-1106";
    let entries = format!("A::OWNER@:rwatTcCy,A::{SID}:d,A::aya@office:r,A::{unknown}:w");
    office.acl(&["set", &file, "--set", &entries]);
    let before = office.acl(&["get", &file]);
    assert!(
        before.contains(&format!("A::{SID}:d")),
        "not read yet: {before}"
    );
    office.scene.kill();
    office.scene.start();
    office.acl(&["set", &file, "--remove", &format!("A::{SID}:d")]);
    office.acl(&["set", &file, "--set", &entries]);
    let after = office.acl(&["get", &file]);
    for entry in [
        format!("A::{AYA}:d"),
        format!("A::{AYA}:r"),
        format!("A::{unknown}:w"),
    ] {
        assert!(after.contains(&entry), "{entry}: {after}");
    }
    let by = office.explained("plans/q3.xlsx", AYA, "delete");
    assert_eq!(by["allowed"], true, "{by}");
    let by = office.explained("plans/q3.xlsx", OTHER, "write");
    assert_eq!(by["allowed"], false, "{by}");
    // What says two things about one says nothing.
    fs::write(&table, entry.repeat(2)).unwrap();
    office.scene.kill();
    office.scene.start();
    let refused = office.scene.azekura(&["acl", "get", &file]);
    assert!(!refused.status.success(), "{}", refused.stdout);
    let listed = office
        .scene
        .azekura(&["volume", "list", office.scene.address()]);
    assert!(
        listed.stdout.contains("identities.toml"),
        "{}",
        listed.stdout
    );
}

#[test]
fn what_a_mount_keeps_no_attribute_for_is_refused_and_nothing_changes() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let before = office.scene.mount("before", &["--allow-other"]);
    office.acl(&["enable", &office.volume]);
    let after = office.scene.mount("after", &["--allow-other"]);
    let posix = posix_of(&office.export());
    let refused = |mount: &Path, script: &str, why: &str| {
        let outcome = run(&mut shell(OWNER, None, mount, script));
        assert!(
            !outcome.status.success() && outcome.stderr.contains(why),
            "{script}: {outcome:?}"
        );
    };
    let list = |users: usize| {
        let users = (10_000..10_000 + users).map(|uid| format!("u:{uid}:r"));
        let users: Vec<String> = users.collect();
        format!("u::rw,g::r,o::-,m::r,{}", users.join(","))
    };
    for mount in [&before, &after] {
        let other = "setfattr -n system.other -v x plans/q3.xlsx";
        refused(mount, other, "not supported");
        // A kernel lets 511 entries through.
        let long = format!("setfacl --set {} plans/q3.xlsx", list(508));
        refused(mount, &long, "too long");
        assert_eq!(posix_of(&office.export()), posix);
    }
    let fits = format!("setfacl --set {} plans/q3.xlsx", list(300));
    run(&mut shell(OWNER, None, &after, &fits)).ok();
    let shown = run(&mut shell(
        OWNER,
        None,
        &after,
        "nfs4_getfacl plans/q3.xlsx",
    ))
    .ok();
    assert!(shown.contains("A::10299:r"), "{shown}");
}

/// Says that it is over, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How long their requests take, `cargo xtask bench acl` says.
#[test]
fn users_go_on_while_rich_acls_are_turned_on_and_off() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let plans = office.export().join("plans");
    for number in 0..300 {
        fs::write(plans.join(format!("f{number}")), "words").unwrap();
    }
    let mount = office.scene.mount("m", &["--allow-other"]);
    // A user who is let in by a POSIX ACL and by a rich one, over a mount made while they are on.
    office.acl(&["enable", &office.volume]);
    let figures = office.file("plans/q3.xlsx");
    let entries = format!("A::OWNER@:rwatTnNcCy,A::{AYA}:rtncy");
    office.acl(&["set", &figures, "--set", &entries]);
    let hers = office.scene.mount("hers", &["--allow-other"]);
    office.acl(&["disable", &office.volume]);
    let is_over = AtomicBool::new(false);
    let done = [const { AtomicUsize::new(0) }; 3];
    thread::scope(|scope| {
        let _over = Over(&is_over);
        let go_on = |request: &dyn Fn(usize), done: &AtomicUsize| {
            while !is_over.load(Ordering::Relaxed) {
                request(done.fetch_add(1, Ordering::Relaxed));
            }
        };
        let read = |number: usize| {
            let path = mount.join(format!("plans/f{}", number * 7 % 300));
            assert_eq!(fs::metadata(&path).unwrap().len(), 5);
            assert_eq!(fs::read(&path).unwrap(), b"words");
        };
        let write = |number: usize| {
            let path = mount.join(format!("plans/own{number}"));
            fs::write(&path, "others").unwrap();
            fs::remove_file(&path).unwrap();
        };
        let as_user = |_: usize| {
            let script = "ls plans && cat plans/q3.xlsx";
            run(&mut shell(AYA, None, &hers, script)).ok();
        };
        let [reads, writes, users_own] = &done;
        let users = [
            scope.spawn(move || go_on(&read, reads)),
            scope.spawn(move || go_on(&write, writes)),
            scope.spawn(move || go_on(&as_user, users_own)),
        ];
        for round in 0..6 {
            let before = done.each_ref().map(|done| done.load(Ordering::Relaxed));
            let switch = ["enable", "disable"][round % 2];
            office.acl(&[switch, &office.volume]);
            let begun = Instant::now();
            let have_gone_on = || {
                let now = done.each_ref().map(|done| done.load(Ordering::Relaxed));
                now.iter()
                    .zip(before)
                    .all(|(now, before)| *now > before + 2)
            };
            while !have_gone_on() {
                let fails = users.iter().any(thread::ScopedJoinHandle::is_finished);
                assert!(
                    !fails && begun.elapsed() < Duration::from_secs(60),
                    "{switch}"
                );
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
}
