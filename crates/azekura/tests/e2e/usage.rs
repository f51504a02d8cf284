//! What needs no server.

use crate::checks::{fails, json};
use crate::common::run;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program with an empty configuration.
fn azekura(config: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
    command
        .env("AZEKURA_CONFIG_DIR", config)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command.args(arguments);
    command
}

#[test]
fn wrong_usage_ends_with_2_and_a_reason() {
    let config = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 11] = [
        &[],
        &["server"],
        &["mount", "nowhere", "/mnt"],
        &["mount", "far:7700/v", "/mnt", "-o", "compress=9"],
        &["cp", "one"],
        &["cp", "a", "far:7700/v:/a", "--continue"],
        &["join", "create", "far:7700", "--kind", "root"],
        &["volume", "list", "far:7700", "--timeout", "soon"],
        &["store", "scrub", "disk", "--rate", "0"],
        &["store", "scrub", "disk", "--rate", "5"],
        &["ls", "far:99999"],
    ];
    for arguments in wrong {
        let run = run(&mut azekura(config.path(), arguments));
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {run:#?}");
        assert!(run.stderr.contains("--help"), "{}", run.stderr);
    }
}

#[test]
fn an_unreachable_server_is_named_with_cause_hint_and_code() {
    let config = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let free = free.to_string();
    // Without a credential nothing could be said to the server anyway.
    let status = ["status", &free, "--timeout", "100ms"];
    let stranger = run(&mut azekura(config.path(), &status));
    fails(&stranger, "AZ0201");
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap();
    let cause = format!(
        "{} has no credential for {free} in {}/clusters\n",
        user.unwrap().name,
        config.path().display()
    );
    assert!(stranger.stderr.contains(&cause), "{}", stranger.stderr);
    let remedy = format!("azekura login {free} -\n");
    assert!(stranger.stderr.contains(&remedy), "{}", stranger.stderr);
    // Nobody has taken the port, so no server is about to listen there.
    let begun = std::time::Instant::now();
    let stranger = run(&mut azekura(config.path(), &status[..2]));
    fails(&stranger, "AZ0201");
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(4), "{took:?}");
    // An address that was mistyped.
    for kept in ["192.0.2.7_7000", "2001_db8__7_7000", "notes"] {
        std::fs::create_dir_all(config.path().join("clusters").join(kept)).unwrap();
    }
    let mistyped = run(&mut azekura(config.path(), &status));
    let known = "(there are credentials for 192.0.2.7:7000, [2001:db8::7]:7000)";
    assert!(mistyped.stderr.contains(known), "{}", mistyped.stderr);
    let join = "azk1-0000";
    fails(
        &run(&mut azekura(config.path(), &["login", &free, join])),
        "AZ0203",
    );
    // Before anybody is asked.
    let long = ["join", "create", &free, "--for", "1000000h"];
    fails(&run(&mut azekura(config.path(), &long)), "AZ0303");
    fails(
        &run(&mut azekura(
            config.path(),
            &["volume", "list", "no-such.invalid:1"],
        )),
        "AZ0108",
    );
}

#[test]
fn a_join_string_can_come_from_standard_input() {
    let config = tempfile::tempdir().unwrap();
    let mut command = azekura(config.path(), &["login", "127.0.0.1:1", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("begins with \"azk1-\"") && stderr.contains("AZ0203"),
        "{stderr}"
    );
}

#[test]
fn an_empty_join_string_is_called_empty() {
    let config = tempfile::tempdir().unwrap();
    let none = run(&mut azekura(config.path(), &["login", "127.0.0.1:1", "-"]));
    fails(&none, "AZ0203");
    assert!(none.stderr.contains("no join string was given"), "{none:?}");
}

#[test]
fn a_mistake_in_the_configuration_is_named() {
    let config = tempfile::tempdir().unwrap();
    std::fs::write(
        config.path().join("config.toml"),
        "timeout = \"30s\"\nplane = true\n",
    )
    .unwrap();
    let run = run(&mut azekura(config.path(), &["doctor"]));
    fails(&run, "AZ0003");
    assert!(
        run.stderr.contains("plane") && run.stderr.contains("config.toml"),
        "{}",
        run.stderr
    );
}

#[test]
fn directories_that_cannot_be_mounted_on_are_refused_before_the_server_is_asked() {
    let config = tempfile::tempdir().unwrap();
    let missing = config.path().join("missing");
    let file = config.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [missing, file] {
        let mut command = azekura(config.path(), &["mount", "127.0.0.1:1/v"]);
        fails(&run(command.arg(path)), "AZ0502");
    }
    let mut command = azekura(config.path(), &["umount"]);
    fails(&run(command.arg(config.path())), "AZ0504");
    let mut command = azekura(config.path(), &["umount"]);
    let nowhere = run(command.arg(config.path().join("nowhere")));
    fails(&nowhere, "AZ0002");
    let remedy = "findmnt -t fuse.azekura lists";
    assert!(nowhere.stderr.contains(remedy), "{nowhere:?}");
    let mut command = azekura(config.path(), &["top", "--once", "--json"]);
    fails(&run(command.arg(config.path())), "AZ0504");
}

#[test]
fn mount_8_calls_it_by_another_name() {
    let config = tempfile::tempdir().unwrap();
    let mut command = azekura(config.path(), &["127.0.0.1:1/v"]);
    command.arg0("/sbin/mount.fuse.azekura").arg(config.path());
    let refused = run(command.args(["-n", "-o", "rw,compress=9"]));
    assert_eq!(refused.status.code(), Some(32), "{refused:#?}");
    assert!(refused.stderr.contains("AZ0509"), "{}", refused.stderr);
    let mut without_port = azekura(config.path(), &["vm/data"]);
    without_port.arg0("/sbin/mount.azekura").arg(config.path());
    let refused = run(&mut without_port);
    assert_eq!(refused.status.code(), Some(32), "{refused:#?}");
    assert!(refused.stderr.contains("AZ0303"), "{refused:#?}");
    let line = "far.example:7700/genomes /mnt/g azekura";
    assert!(refused.stderr.contains(line), "{refused:#?}");
    // Forgiven; what fails then is something else.
    let sloppy = run(command.args(["-s", "-f"]));
    assert!(sloppy.status.success(), "{sloppy:#?}");
    let mut command = azekura(config.path(), &[]);
    command
        .arg0("/sbin/umount.fuse.azekura")
        .arg(config.path())
        .args(["-l", "-n"]);
    fails(&run(&mut command), "AZ0504");
    // What they say of themselves can be typed.
    for (name, usage) in [
        ("mount.azekura", "Usage: azekura mount-helper ["),
        ("umount.azekura", "Usage: azekura umount ["),
    ] {
        let mut command = azekura(config.path(), &["--help"]);
        let help = run(command.arg0(name)).ok();
        assert!(help.contains(usage), "{help}");
    }
}

#[test]
fn the_doctor_finds_and_advises() {
    let config = tempfile::tempdir().unwrap();
    let seen = run(&mut azekura(config.path(), &["doctor"]));
    for name in [
        "kernel",
        "/dev/fuse",
        "fusermount3",
        "clock",
        "TCP buffers",
        "configuration",
    ] {
        assert!(seen.stdout.contains(name), "{}", seen.stdout);
    }
    // What this machine lacks is a finding; the schema is the same.
    if seen.status.success() {
        let value = json(run(&mut azekura(config.path(), &["doctor", "--json"])));
        assert_eq!(value["ok"], true);
        assert!(value["checks"].as_array().unwrap().len() >= 10);
    }
    // A port that was forgotten.
    let told = run(&mut azekura(config.path(), &["doctor", "localhost"]));
    let advice = "-> name a directory of this machine that is mounted";
    assert!(told.stdout.contains(advice), "{told:?}");
    let top = run(&mut azekura(config.path(), &["top", "127.0.0.1:1"]));
    assert!(top.stderr.contains("azekura status HOST:PORT"), "{top:?}");
    let far = run(&mut azekura(config.path(), &["doctor", "127.0.0.1:1"]));
    assert_eq!(far.status.code(), Some(1));
    assert!(far.stdout.contains("connection refused"), "{}", far.stdout);
    assert!(far.stderr.contains("AZ0701"), "{}", far.stderr);
}

#[test]
fn shells_and_manuals_are_served() {
    let config = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&mut azekura(config.path(), &["completions", shell])).ok();
        assert!(
            script.contains("azekura") && script.contains("umount"),
            "{shell}"
        );
    }
    let manuals = config.path().join("man1");
    run(azekura(config.path(), &["man"]).arg(&manuals)).ok();
    let page = |name: &str| std::fs::read_to_string(manuals.join(name)).unwrap();
    assert!(page("azekura.1").contains("azekura"));
    assert!(page("azekura-mount.1").contains("allow"));
    assert!(page("azekura-volume-create.1").contains("export"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let config = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_azekura");
    let script = format!("set -o pipefail; {program} completions bash | head -n 1 >&2");
    let mut command = Command::new("bash");
    let run = run(command
        .arg("-c")
        .arg(script)
        .env("AZEKURA_CONFIG_DIR", config.path()));
    assert!(
        run.status.success() && !run.stderr.contains("error"),
        "{run:#?}"
    );
}
