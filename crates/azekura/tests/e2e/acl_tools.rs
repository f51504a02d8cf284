//! What is said of rich ACLs before anything is done, and where they go: previews, copies, and
//! Samba over a mount.

use crate::acl::{AUDIT, AYA, OTHER, OWNER, Office, may, posix_of, shell};
use crate::common::{obstacle, run, text};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

#[test]
fn a_preview_says_what_would_be_before_rich_acls_are_on_and_changes_nothing() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let office = Office::new();
    let (volume, file) = (office.volume.clone(), office.file("plans/q3.xlsx"));
    let posix = posix_of(&office.export());
    let grant = format!("A::{OTHER}:r");
    let aya = AYA.to_string();
    let arguments = ["preview", &file, "--add", &grant, "--as", &aya];
    let off = office.json(&arguments);
    assert_eq!(
        (&off["enabled"], &off["origin"]),
        (&false.into(), &"posix".into())
    );
    office.acl(&["enable", &volume]);
    let on = office.json(&arguments);
    assert_eq!(on["entries"], off["entries"], "{on}");
    assert_eq!(on["changes"], off["changes"], "{on}");
    assert_eq!(on["changes"][0]["who"], format!("user {OTHER}"), "{on}");
    assert_eq!(on["changes"][0]["gained"], "r", "{on}");
    let new = on["entries"].as_array().unwrap().iter();
    assert_eq!(new.filter(|entry| entry["is_new"] == true).count(), 1);
    assert_eq!(on["users"][0]["before"], on["users"][0]["after"], "{on}");
    assert_eq!(posix_of(&office.export()), posix, "nothing was touched");

    // What was foretold comes true.
    office.acl(&["set", &file, "--add", &grant]);
    let then = office.json(&["preview", &file]);
    assert_eq!(
        (&then["origin"], &then["changes"]),
        (&"rich".into(), &serde_json::json!([]))
    );
    let texts = |value: &serde_json::Value| -> Vec<String> {
        let entries = value["entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["text"].to_string()).collect()
    };
    assert_eq!(texts(&then), texts(&on));
    let told = fs::metadata(office.export().join("plans/q3.xlsx")).unwrap();
    let mode = format!("{:04o}", told.permissions().mode() & 0o777);
    assert_eq!(on["mode"], mode, "what the file system is told");
}

/// What the kernel asks beside a list, and what nobody asks a list about.
#[test]
fn what_is_explained_is_what_happens_on_a_mount() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    office.acl(&["enable", &office.volume]);
    let mount = office.scene.mount("mnt", &["--allow-other"]);
    let script = format!(
        "cp /bin/true run; chmod 755 run; mkdir names; chmod 777 names; mkdir sticky kept; \
         chmod 1777 sticky kept; echo >own; chown {OWNER} own; echo >told; chmod 644 told"
    );
    run(&mut shell(0, None, &office.export(), &script)).ok();
    let lists = [
        (
            "run",
            "--set",
            format!("A::EVERYONE@:r,D:g:{AUDIT}:x,A::{AYA}:x"),
        ),
        ("names", "--set", format!("A::{AYA}:rwa,A::OWNER@:rwax")),
        ("kept", "--add", format!("A::{AUDIT}:y")),
        ("own", "--add", "D::OWNER@:o".to_owned()),
        ("told", "--add", format!("D::{AYA}:tnc")),
    ];
    for (path, how, list) in &lists {
        office.acl(&["set", &office.file(path), how, list]);
    }
    let cases = [
        ("run", AYA, "execute", "./run", false),
        ("run", 0, "execute", "./run", false),
        ("run", AYA, "read", "cat run", true),
        ("names", AYA, "write", "mkdir names/new", false),
        ("names", OTHER, "write", "mkdir names/new", false),
        ("sticky", AYA, "N", "setfattr -n user.k -v 1 sticky", false),
        ("kept", AYA, "N", "setfattr -n user.k -v 1 kept", false),
        ("kept", 0, "N", "setfattr -n user.k -v 1 kept", true),
        (
            "own",
            OWNER,
            "write-owner",
            &format!("chgrp {OWNER} own"),
            true,
        ),
        ("told", AYA, "read-attributes", "stat told", true),
        ("told", AYA, "read", "cat told", true),
    ];
    for (path, who, want, command, is_allowed) in cases {
        let by = office.explained(path, who, want);
        assert_eq!(by["allowed"], is_allowed, "{path}, {who}: {want}: {by}");
        let does = may(who, None, &mount, command);
        assert_eq!(does, is_allowed, "{path}, {who}: {command}");
    }
    let by = office.explained("run", AYA, "execute");
    assert_eq!(by["decided_by"], "no_execute_bit", "{by}");
    let by = office.explained("sticky", AYA, "N");
    assert_eq!(by["decided_by"], "sticky", "{by}");
}

/// What `acl get` says of a file, but for its name.
#[track_caller]
fn shown(office: &Office, path: &str) -> String {
    let shown = office.acl(&["get", &office.file(path)]);
    let lines = shown.lines().filter(|line| !line.starts_with("# file"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Copies two files with their ACLs, of which so many are told to be less; what is said of it.
#[track_caller]
fn copied(office: &Office, [from, to]: [&str; 2], reduced: u64) -> String {
    let arguments = ["cp", "-r", "--acls", "--json", from, to];
    let copied = office.scene.azekura(&arguments);
    let notes = copied.stderr.clone();
    let copied: serde_json::Value = serde_json::from_str(&copied.ok()).unwrap();
    let counted = (&copied["files"], &copied["acls_reduced"]);
    assert_eq!(counted, (&2.into(), &reduced.into()), "{notes}");
    notes
}

#[test]
fn copies_have_the_truth_of_their_source_and_what_is_lost_is_told() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let office = Office::new();
    let top = office.export();
    fs::write(top.join("plans/plain"), "words").unwrap();
    run(&mut shell(
        0,
        None,
        &top,
        &format!("chown {OWNER}:{OWNER} plans/plain"),
    ))
    .ok();
    let (volume, plans) = (office.volume.clone(), office.file("plans"));
    office.acl(&["enable", &volume]);
    let entry = format!("A::{AYA}:d");
    office.acl(&["set", &office.file("plans/q3.xlsx"), "--add", &entry]);
    let get = |path: &str| shown(&office, path);
    // Within the volume, into a directory that gives heirs other lists.
    fs::create_dir(top.join("heirs")).unwrap();
    office.acl(&[
        "set",
        &office.file("heirs"),
        "--add",
        &format!("A:fd:{AUDIT}:rwx"),
    ]);
    copied(&office, [&plans, &office.file("heirs")], 0);
    for path in ["plans/q3.xlsx", "plans/plain", "plans"] {
        assert_eq!(get(&format!("heirs/{path}")), get(path), "{path}");
    }
    assert!(get("heirs/plans/q3.xlsx").contains("origin: rich"));
    assert!(get("heirs/plans/plain").contains("origin: posix"));
    they_go_where_there_are_no_rich_acls_and_back(&office, &plans);
}

#[track_caller]
fn they_go_where_there_are_no_rich_acls_and_back(office: &Office, plans: &str) {
    let (top, here) = (office.export(), office.scene.path("here"));
    let notes = copied(office, [plans, text(&here)], 1);
    assert!(
        notes.contains("q3.xlsx") && notes.contains(&format!("{AYA} -d")),
        "{notes}"
    );
    let of = |path: &Path| fs::metadata(path).unwrap();
    for path in ["q3.xlsx", "plain"] {
        let (there, here) = (of(&top.join("plans").join(path)), of(&here.join(path)));
        assert_eq!(
            (there.mode(), there.uid()),
            (here.mode(), here.uid()),
            "{path}"
        );
    }
    let posix = run(&mut shell(0, None, &here, "getfacl -n q3.xlsx")).ok();
    assert!(posix.contains(&format!("user:{AYA}:r--")), "{posix}");
    copied(office, [text(&here), &office.file("back")], 0);
    let back = shown(office, "back/q3.xlsx");
    assert!(back.contains("origin: posix"), "{back}");
}

/// The share of the documents, and around it what a server of its own takes.
fn smb_conf(mount: &Path, own: &Path) -> String {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tasks/samba.md");
    let document = fs::read_to_string(document).unwrap();
    let (_, block) = document.split_once("```ini\n").expect("it has a section");
    let (share, _) = block.split_once("```").expect("the section ends");
    let share = share.replace("/srv/office", text(mount));
    let places = [
        "private dir",
        "lock directory",
        "state directory",
        "cache directory",
    ];
    let places = places.iter().chain(&["pid directory", "ncalrpc dir"]);
    let places: String = places
        .map(|place| format!("  {place} = {}\n", own.display()))
        .collect();
    format!(
        "[global]\n  server role = standalone server\n  interfaces = lo\n  \
         bind interfaces only = yes\n  disable netbios = yes\n  smb ports = 445\n  \
         load printers = no\n  disable spoolss = yes\n  log file = {}/log\n{places}{share}",
        own.display()
    )
}

/// Samba and its clients, in a network of their own where the usual port is free, with users who
/// have names there.
fn with_samba(own: &Path, mount: &Path, script: &str) -> String {
    let conf = own.join("smb.conf");
    fs::write(&conf, smb_conf(mount, own)).unwrap();
    let prelude = format!(
        "set -e; ip link set lo up; cd {own}; \
         cp /etc/passwd passwd; cp /etc/group group; \
         for user in owner:{OWNER} aya:{AYA}; do name=${{user%:*}} number=${{user#*:}}; \
           echo \"$name:x:$number:$number::/:/bin/false\" >> passwd; \
           echo \"$name:x:$number:\" >> group; done; \
         mount --bind passwd /etc/passwd; mount --bind group /etc/group; \
         for name in owner aya; do \
           printf 'pw\\npw\\n' | pdbedit -s smb.conf -a -t -u $name >/dev/null 2>&1; done; \
         smbd -s smb.conf -F --no-process-group >out 2>&1 & \
         for i in $(seq 200); do \
           smbclient -s {conf} //127.0.0.1/office -U owner%pw -c quit >/dev/null 2>&1 && break; \
           sleep 0.05; done; \
         acls() {{ name=$1; shift; \
           smbcacls -s {conf} //127.0.0.1/office plans/q3.xlsx -U $name%pw \"$@\"; }}; \
         cd {mount}; {script}",
        own = own.display(),
        conf = conf.display(),
        mount = mount.display()
    );
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    run(command.args(["sh", "-c", &prelude]).env("LC_ALL", "C")).ok()
}

#[test]
fn samba_over_a_mount_shows_and_sets_the_same_lists() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let needed = "command -v smbd smbcacls && ls /usr/lib/*/samba/vfs/nfs4acl_xattr.so";
    let is_there = run(Command::new("sh").args(["-c", needed]))
        .status
        .success();
    if !is_there {
        return eprintln!("skipped: samba, samba-vfs-modules or smbclient is not installed");
    }
    let mut office = Office::new();
    let volume = office.volume.clone();
    office.acl(&["enable", &volume]);
    let mount = office.scene.mount("m", &["--allow-other"]);
    let own = office.scene.path("samba");
    fs::create_dir(&own).unwrap();

    // As it is; what is not allowed; the right that smbcacls asks for; a list that it sets.
    let add = format!("'ACL:S-1-22-1-{OTHER}:ALLOWED/0x0/0x00010000'");
    let said = with_samba(
        &own,
        &mount,
        &format!(
            "acls owner; acls aya -a {add} && exit 3; \
             nfs4_setfacl -a A::OWNER@:o plans/q3.xlsx; \
             nfs4_setfacl -a D::{AUDIT}:w plans/q3.xlsx; \
             acls owner -a {add}; acls owner --numeric"
        ),
    );
    let (before, after) = said.split_once("REVISION").map_or(("", ""), |(_, rest)| {
        rest.split_once("REVISION").unwrap_or((rest, ""))
    });
    assert!(before.contains("S-1-1-0:ALLOWED"), "{said}");
    assert!(!before.contains(&format!("S-1-22-1-{OTHER}")), "{said}");
    assert!(
        after.contains(&format!("S-1-22-1-{OTHER}:0/0x0/0x00010000")),
        "{said}"
    );
    assert!(
        after.contains(&format!("S-1-22-1-{AUDIT}:1/0x0/0x00000002")),
        "{said}"
    );

    // The same list by each other tool, and at the server.
    let shown = run(&mut shell(0, None, &mount, "nfs4_getfacl plans/q3.xlsx")).ok();
    let got = office.acl(&["get", &office.file("plans/q3.xlsx")]);
    for entry in [
        format!("A::{OTHER}:d"),
        format!("D::{AUDIT}:w"),
        "A::OWNER@:o".into(),
    ] {
        assert!(
            shown.contains(&entry) && got.contains(&entry),
            "{entry}: {shown}\n{got}"
        );
    }
    let by = office.explained("plans/q3.xlsx", OTHER, "delete");
    assert_eq!(
        (&by["allowed"], &by["origin"]),
        (&true.into(), &"rich".into()),
        "{by}"
    );
    assert!(may(AYA, None, &mount, "cat plans/q3.xlsx"));
    assert!(!may(OTHER, None, &mount, "cat plans/q3.xlsx"));
    eprintln!("smbcacls, nfs4_getfacl and azekura show the same list");
    office.scene.umount(&mount);
}
