//! Servers, volumes and credentials.

use crate::checks::{copy_program, fails, figures, json};
use crate::common::{Scene, VOLUME, obstacle, run, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The program as a user of another machine, with a configuration of its own.
fn elsewhere(scene: &Scene, arguments: &[&str]) -> Command {
    let mut command = scene.command();
    command
        .env("AZEKURA_CONFIG_DIR", scene.path("elsewhere"))
        .args(arguments);
    command
}

fn join(scene: &Scene, kind: &str) -> String {
    let value = json(scene.azekura(&["join", "create", scene.address(), "--kind", kind, "--json"]));
    assert_eq!(value["kind"], kind);
    value["join_string"].as_str().unwrap().to_owned()
}

#[test]
fn volumes_are_made_listed_and_deleted() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    fs::create_dir(scene.path("more")).unwrap();
    let more = format!("{}/more", scene.address());
    let create = ["volume", "create", &more, "--export", "more", "--read-only"];
    let dry: Vec<&str> = create.iter().copied().chain(["--dry-run"]).collect();
    scene.azekura(&dry).ok();
    let tried = json(scene.azekura(&[&dry[..], &["--json"]].concat()));
    assert_eq!(tried["dry_run"], true, "{tried}");
    let names = || {
        let list = json(scene.azekura(&["volume", "list", scene.address(), "--json"]));
        let names = list["volumes"].as_array().unwrap().iter();
        names
            .map(|volume| volume["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), [VOLUME], "a dry run makes nothing");
    scene.azekura(&create).ok();
    assert_eq!(names(), ["more", VOLUME]);
    fails(&scene.azekura(&create), "AZ0302");
    let shown = json(scene.azekura(&["volume", "show", &more, "--json"]));
    let path = scene.path("more").canonicalize().unwrap();
    assert_eq!(
        (&shown["read_only"], &shown["path"]),
        (&true.into(), &text(&path).into())
    );
    scene
        .azekura(&["volume", "delete", &more, "--dry-run"])
        .ok();
    scene.azekura(&["volume", "delete", &more]).ok();
    fails(&scene.azekura(&["volume", "delete", &more]), "AZ0301");
    assert!(scene.path("more").is_dir(), "the files stay");
    let data = scene.path("srv");
    let refused = [
        ("more", "missing"),
        ("Upper", "more"),
        ("keys", text(&data)),
    ];
    for (name, export) in refused {
        let volume = format!("{}/{name}", scene.address());
        fails(
            &scene.azekura(&["volume", "create", &volume, "--export", export]),
            "AZ0303",
        );
    }
}

#[test]
fn a_directory_is_one_volumes() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    for name in ["x/nest/deep", "xy"] {
        fs::create_dir_all(scene.path(name)).unwrap();
    }
    std::os::unix::fs::symlink(scene.path("x/nest"), scene.path("link")).unwrap();
    let name = |name: &str| format!("{}/{name}", scene.address());
    let create = |volume: &str, export: &str| {
        let (volume, export) = (name(volume), scene.path(export));
        scene.azekura(&["volume", "create", &volume, "--export", text(&export)])
    };
    create("nst", "x/nest").ok();
    let real = |path: &str| scene.path(path).canonicalize().unwrap();
    let (top, nest, deep) = (real("x"), real("x/nest"), real("x/nest/deep"));
    let (top, nest, deep) = (text(&top), text(&nest), text(&deep));
    let same = format!("{nest} is exported already, as volume nst; mount nst, or delete it first");
    let inner = format!(
        "{deep} lies in {nest}, which volume nst exports already; mount nst and use its directory \
         deep, or delete nst first"
    );
    let outer =
        format!("{nest}, which volume nst exports already, lies in {top}; delete nst first");
    for (export, why) in [
        ("x/nest", &same),
        ("link", &same),
        ("x/nest/deep", &inner),
        ("link/deep", &inner),
        ("x", &outer),
    ] {
        let refused = create("w", export);
        fails(&refused, "AZ0303");
        assert!(refused.stderr.contains(why), "{export}: {refused:?}");
    }
    let (volume, export) = (name("w"), scene.path("x"));
    let trial = ["volume", "create", &volume, "--export", text(&export)];
    let dry: Vec<&str> = trial.iter().copied().chain(["--dry-run"]).collect();
    fails(&scene.azekura(&dry), "AZ0303");
    // Whole names count, and what is deleted is in nobody's way.
    create("y", "xy").ok();
    scene.azekura(&["volume", "delete", &name("nst")]).ok();
    create("w", "x").ok();
    fails(&create("nst", "x/nest"), "AZ0303");
    assert!(!scene.log().contains("export the same files"));
}

#[test]
fn volumes_that_overlap_already_are_served_and_the_log_says_it() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    for name in ["export/nest", "other"] {
        fs::create_dir(scene.path(name)).unwrap();
    }
    fs::write(scene.path("export/nest/file"), "x").unwrap();
    let nest = format!("{}/nest", scene.address());
    let export = scene.path("other");
    let create = ["volume", "create", &nest, "--export", text(&export)];
    scene.azekura(&create).ok();
    scene.end(rustix::process::Signal::TERM);
    assert!(!scene.log().contains("export the same files"));
    // By another path than before, as an older version took it: the directory is still the same.
    fs::rename(scene.path("other"), scene.path("export/nest/other")).unwrap();
    let there = scene.path("export/nest/other");
    std::os::unix::fs::symlink(there, scene.path("other")).unwrap();
    fs::write(scene.path("export/nest/other/file"), "y").unwrap();
    scene.start();
    let log = scene.log();
    assert!(log.contains("export the same files"), "{log}");
    let listed = scene.azekura(&["ls", &nest]).ok();
    assert!(listed.contains("file"), "{listed}");
    scene.azekura(&["ls", &scene.volume()]).ok();
}

#[test]
fn a_volume_that_is_mounted_is_not_deleted_also_after_a_restart() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::create_dir(scene.path("more")).unwrap();
    let more = format!("{}/more", scene.address());
    let export = scene.path("more");
    let create = ["volume", "create", &more, "--export", text(&export)];
    scene.azekura(&create).ok();
    let volume = scene.volume();
    let mount = scene.mount("mnt", &[]);
    let delete = ["volume", "delete", &volume];
    fails(&scene.azekura(&delete), "AZ0304");
    for _ in 0..2 {
        scene.kill();
        scene.start();
        // Before the mount is back, and when everybody has had the time for it.
        fails(&scene.azekura(&delete), "AZ0304");
        std::thread::sleep(Duration::from_secs(8));
        fails(&scene.azekura(&delete), "AZ0304");
    }
    // Another volume is in nobody's use.
    scene.azekura(&["volume", "delete", &more]).ok();
    fs::write(mount.join("file"), "x").unwrap();
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"x");
    scene.umount(&mount);
    scene.azekura(&delete).ok();
}

#[test]
fn init_is_repeatable_and_the_volumes_stay() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let cluster = |scene: &Scene| {
        let status = json(scene.azekura(&["status", scene.address(), "--json"]));
        assert_eq!(status["volumes"][0]["name"], VOLUME);
        (status["cluster"].clone(), status["boot"].clone())
    };
    let (before, first_boot) = cluster(&scene);
    scene.kill();
    scene.start();
    let (after, second_boot) = cluster(&scene);
    assert_eq!(before, after);
    assert_ne!(first_boot, second_boot);
}

#[test]
fn a_directory_that_cannot_be_exported_is_one_of_the_servers_machine() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let other = format!("{}/other", scene.address());
    let refused = scene.azekura(&["volume", "create", &other, "--export", "nothere"]);
    fails(&refused, "AZ0303");
    let path = scene.path("nothere");
    let cause = format!(
        "at {}: {}: No such file or directory\n",
        scene.address(),
        path.display()
    );
    assert!(refused.stderr.contains(&cause), "{refused:?}");
    assert!(
        refused.stderr.contains("the server's machine"),
        "{refused:?}"
    );
    // A name that is none has nothing to do with the directory.
    let other = format!("{}/Other", scene.address());
    let refused = scene.azekura(&["volume", "create", &other, "--export", "."]);
    fails(&refused, "AZ0303");
    assert!(refused.stderr.contains("a volume's name"), "{refused:?}");
    assert!(!refused.stderr.contains("--export"), "{refused:?}");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let server = |arguments: &[&str]| {
        let all: Vec<&str> = ["server"]
            .into_iter()
            .chain(arguments.iter().copied())
            .collect();
        scene.azekura(&all)
    };
    fails(
        &server(&["--data", "srv", "--listen", "127.0.0.1:0"]),
        "AZ0603",
    );
    fails(
        &server(&["--data", "new", "--listen", "127.0.0.1:0"]),
        "AZ0601",
    );
    fails(
        &server(&["--data", "new", "--listen", scene.address(), "--init"]),
        "AZ0604",
    );
    assert!(!scene.path("new").exists(), "it has made nothing");
    // And has taken nothing away from who administers the server that is there.
    scene.azekura(&["status", scene.address()]).ok();
    fs::create_dir(scene.path("full")).unwrap();
    fs::write(scene.path("full/mine"), "x").unwrap();
    fails(
        &server(&["--data", "full", "--listen", "127.0.0.1:0", "--init"]),
        "AZ0602",
    );
    server(&[
        "--data",
        "newer",
        "--listen",
        "127.0.0.1:0",
        "--init",
        "--dry-run",
    ])
    .ok();
    assert!(!scene.path("newer").exists(), "a dry run makes nothing");
    let file = ["--data", "full/mine", "--listen", "127.0.0.1:0", "--init"];
    let no_directory = server(&file);
    fails(&no_directory, "AZ0602");
    assert!(
        no_directory.stderr.contains("--data names a directory"),
        "{no_directory:?}"
    );
    fails(&server(&[&file[..], &["--dry-run"]].concat()), "AZ0602");
}

#[test]
fn who_may_not_see_the_data_directory_is_not_told_to_make_a_cluster() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    // A copy that other users can run; the data directory is its owner's.
    let program = scene.path("program");
    copy_program(env!("CARGO_BIN_EXE_azekura"), &program);
    let open = fs::Permissions::from_mode(0o755);
    for path in [scene.path("."), program.clone()] {
        fs::set_permissions(path, open.clone()).unwrap();
    }
    let as_another = |data: &Path, more: &[&str]| {
        let mut command = Command::new(&program);
        command.uid(65534).gid(65534).current_dir("/");
        command.env("AZEKURA_CONFIG_DIR", scene.path("none"));
        command.args(["server", "--listen", "127.0.0.1:0", "--data"]);
        run(command.arg(data).args(more))
    };
    for more in [
        &[][..],
        &["--dry-run"],
        &["--init"],
        &["--init", "--dry-run"],
    ] {
        let denied = as_another(&scene.path("srv"), more);
        fails(&denied, "AZ0602");
        let cause = "srv: permission denied";
        assert!(denied.stderr.contains(cause), "{more:?}: {denied:?}");
        assert!(!denied.stderr.contains("--init"), "{denied:?}");
    }
    // It says what else would be made.
    let data = scene.path("dry");
    let tried = ["server", "--data", text(&data), "--listen", "127.0.0.1:0"];
    for (more, store) in [("1GiB", true), ("0", false)] {
        let more = ["--init", "--dry-run", "--store-size", more];
        let said = scene.azekura(&[&tried[..], &more].concat()).ok();
        assert_eq!(said.contains("with a store of 1.0 GiB"), store, "{said}");
        assert!(!data.exists());
    }
    // Nor does a dry run promise what the rights do not give.
    let denied = as_another(&scene.path("new"), &["--init", "--dry-run"]);
    fails(&denied, "AZ0602");
    // Where this user may make one, a server could not start, and nothing is left of the attempt.
    let own = scene.path("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    for more in [&["--init"][..], &["--init", "--dry-run"]] {
        fails(&as_another(&own.join("srv"), more), "AZ0605");
    }
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
}

#[test]
fn others_get_in_by_a_join_string_once() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let address = scene.address();
    fails(
        &run(&mut elsewhere(&scene, &["ls", &scene.volume()])),
        "AZ0201",
    );
    let string = join(&scene, "host");
    run(&mut elsewhere(
        &scene,
        &["login", address, &string, "--dry-run"],
    ))
    .ok();
    run(&mut elsewhere(
        &scene,
        &["login", address, &string, "--label", "lab"],
    ))
    .ok();
    run(&mut elsewhere(&scene, &["ls", &scene.volume()])).ok();
    // It was good for one.
    fails(
        &run(&mut elsewhere(&scene, &["login", address, &string])),
        "AZ0204",
    );
    // A host's credential sees what there is to mount and administers nothing.
    let volumes = run(&mut elsewhere(&scene, &["volume", "list", address])).ok();
    assert!(volumes.contains("export"), "{volumes}");
    let mut create = elsewhere(&scene, &["join", "create", address]);
    fails(&run(&mut create), "AZ0205");

    let list = json(scene.azekura(&["credential", "list", address, "--json"]));
    let credentials = list["credentials"].as_array().unwrap();
    let lab = credentials
        .iter()
        .find(|credential| credential["label"] == "lab")
        .unwrap();
    assert_eq!(
        (&lab["kind"], &lab["revoked"]),
        (&"host".into(), &false.into())
    );
    let serial = lab["serial"].as_str().unwrap();
    scene
        .azekura(&["credential", "revoke", address, serial, "--dry-run"])
        .ok();
    run(&mut elsewhere(&scene, &["ls", &scene.volume()])).ok();
    scene
        .azekura(&["credential", "revoke", address, serial])
        .ok();
    fails(
        &run(&mut elsewhere(&scene, &["ls", &scene.volume()])),
        "AZ0103",
    );
    let unknown = scene.azekura(&["credential", "revoke", address, "00"]);
    fails(&unknown, "AZ0301");
    assert!(
        unknown.stderr.contains("credential list"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn nobody_revokes_the_credential_with_which_they_ask() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let address = scene.address();
    let list = json(scene.azekura(&["credential", "list", address, "--json"]));
    let credentials = list["credentials"].as_array().unwrap();
    let admins = credentials.iter().filter(|one| one["kind"] == "admin");
    let own: Vec<&str> = admins.map(|one| one["serial"].as_str().unwrap()).collect();
    assert_eq!(own.len(), 1);
    for trial in [&["--dry-run"][..], &[]] {
        let last = scene.azekura(&[&["credential", "revoke", address, own[0]][..], trial].concat());
        fails(&last, "AZ0304");
        assert!(last.stderr.contains("--kind admin"), "{}", last.stderr);
    }
}

#[test]
fn a_mount_with_the_credential_of_before_is_to_be_made_anew() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let (address, volume) = (scene.address().to_owned(), scene.volume());
    let login = |scene: &Scene| {
        let string = join(scene, "host");
        run(&mut elsewhere(
            scene,
            &["login", &address, &string, "--label", "lab"],
        ))
        .ok();
    };
    login(&scene);
    let mount = scene.path("mnt");
    fs::create_dir(&mount).unwrap();
    run(&mut elsewhere(&scene, &["mount", &volume, text(&mount)])).ok();
    let list = json(scene.azekura(&["credential", "list", &address, "--json"]));
    let all = list["credentials"].as_array().unwrap();
    let lab = all.iter().find(|one| one["label"] == "lab").unwrap();
    let serial = lab["serial"].as_str().unwrap();
    scene
        .azekura(&["credential", "revoke", &address, serial])
        .ok();
    let begun = Instant::now();
    while figures(&mount)["connected"] == true {
        assert!(begun.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let connection = |scene: &Scene| {
        let said = run(&mut elsewhere(scene, &["doctor", text(&mount), "--json"]));
        let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
        let checks = said["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == "connection");
        check.unwrap().clone()
    };
    let anew = format!("umount --force {}", text(&mount));
    let found = connection(&scene);
    let advice = found["advice"].as_str().unwrap();
    assert!(
        advice.contains("does not come back") && advice.contains(&anew),
        "{found}"
    );
    login(&scene);
    let found = connection(&scene);
    assert!(
        found["found"].as_str().unwrap().contains("AZ0103"),
        "{found}"
    );
    assert!(found["advice"].as_str().unwrap().contains(&anew), "{found}");
    scene.azekura(&["umount", "--force", text(&mount)]).ok();
    run(&mut elsewhere(&scene, &["mount", &volume, text(&mount)])).ok();
    assert_eq!(connection(&scene)["state"], "ok");
    scene.umount(&mount);
}

#[test]
fn a_mount_whose_credential_is_revoked_lists_nothing_when_its_leases_are_over() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    fs::write(scene.path("export/file"), "x").unwrap();
    let (address, string) = (scene.address(), join(&scene, "host"));
    let login = ["login", address, &string, "--label", "lab"];
    run(&mut elsewhere(&scene, &login)).ok();
    let mount = scene.path("mnt");
    fs::create_dir(&mount).unwrap();
    let volume = scene.volume();
    let arguments = ["mount", &volume, text(&mount), "--timeout", "1s"];
    run(&mut elsewhere(&scene, &arguments)).ok();
    let listed = || -> std::io::Result<usize> {
        let entries = fs::read_dir(&mount)?;
        entries.map(|entry| entry.map(|_| 1)).sum()
    };
    let before = listed();
    let list = json(scene.azekura(&["credential", "list", address, "--json"]));
    let all = list["credentials"].as_array().unwrap();
    let lab = all.iter().find(|one| one["label"] == "lab").unwrap();
    let revoke = [
        "credential",
        "revoke",
        address,
        lab["serial"].as_str().unwrap(),
    ];
    scene.azekura(&revoke).ok();
    let begun = Instant::now();
    let far_too_long = base::limits::LEASE_TIME * 3;
    while listed().is_ok() && begun.elapsed() < far_too_long {
        std::thread::sleep(Duration::from_millis(50));
    }
    let took = begun.elapsed();
    scene.azekura(&["umount", "--force", text(&mount)]).ok();
    assert_eq!(before.unwrap(), 1);
    // The leases, and the time of the request that gets no answer.
    assert!(took < base::limits::LEASE_TIME * 2, "{took:?}");
}

#[test]
fn another_cluster_at_the_same_address_is_not_believed() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let string = join(&scene, "host");
    run(&mut elsewhere(&scene, &["login", scene.address(), &string])).ok();
    scene.kill();
    fs::rename(scene.path("srv"), scene.path("old")).unwrap();
    scene.start();
    fails(
        &run(&mut elsewhere(&scene, &["ls", &scene.volume()])),
        "AZ0105",
    );
    // Its own user follows.
    scene.azekura(&["status", scene.address()]).ok();
}

#[test]
fn a_join_string_that_another_server_has_made_is_called_so() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let string = join(&scene, "host");
    scene.kill();
    fs::rename(scene.path("srv"), scene.path("old")).unwrap();
    scene.start();
    let address = scene.address();
    for more in [&[][..], &["--dry-run"]] {
        let login = ["login", address, &string];
        let refused = run(&mut elsewhere(&scene, &[&login[..], more].concat()));
        fails(&refused, "AZ0204");
        let cause = format!("error: the join string was made by another server than {address}\n");
        assert!(refused.stderr.contains(&cause), "{refused:?}");
        let hint = format!("ask an administrator of {address} for one");
        assert!(refused.stderr.contains(&hint), "{refused:?}");
    }
}

#[test]
fn secrets_are_for_their_owner_alone() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let string = join(&scene, "host");
    run(&mut elsewhere(
        &scene,
        &["-vv", "login", scene.address(), &string],
    ))
    .ok();
    for directory in ["config", "elsewhere", "srv"] {
        for path in files(&scene.path(directory)) {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            let has_key = fs::read(&path)
                .unwrap()
                .windows(11)
                .any(|w| w == b"PRIVATE KEY");
            assert!(
                !has_key || mode & 0o077 == 0,
                "{} has mode {mode:o}",
                path.display()
            );
        }
    }
    let log = fs::read_to_string(scene.path("server.log")).unwrap();
    assert!(
        !log.contains("PRIVATE KEY") && !log.contains(&string[5..20]),
        "{log}"
    );
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn plain_connections_work_where_the_server_allows_them() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let plain = ["ls", &scene.volume(), "--plain", "--timeout", "5s"];
    fails(&scene.azekura(&plain), "AZ0107");
    scene.end(rustix::process::Signal::TERM);
    scene.start_with(&["--plain"]);
    let said = scene.log();
    assert!(!said.contains("without TLS"), "not on loopback: {said}");
    fs::write(scene.path("export/file"), "contents").unwrap();
    let listed = scene.azekura(&["ls", &scene.volume(), "--plain"]);
    assert!(listed.stdout.contains("file"), "{listed:?}");
    let mount = scene.mount("mnt", &["--plain"]);
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"contents");
    fs::write(mount.join("other"), vec![7; 3_000_000]).unwrap();
    let found = fs::read(scene.path("export/other")).unwrap();
    assert!(found == vec![7; 3_000_000]);
    scene.umount(&mount);
    // Who does not ask for it is still encrypted.
    scene.azekura(&["ls", &scene.volume()]).ok();
}

#[test]
fn the_service_manager_is_told() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let socket = scene.path("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    manager
        .set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    let mut command = scene.command();
    command.args([
        "server",
        "--init",
        "--store-size",
        "0",
        "--data",
        "other",
        "--listen",
        "127.0.0.1:0",
    ]);
    let mut server = command.env("NOTIFY_SOCKET", &socket).spawn().unwrap();
    let mut buffer = [0; 64];
    let ready = manager.recv(&mut buffer).map(|len| buffer[..len].to_vec());
    let pid = rustix::process::Pid::from_raw(server.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let stopping = manager.recv(&mut buffer).map(|len| buffer[..len].to_vec());
    assert!(server.wait().unwrap().success(), "SIGTERM ends it in order");
    assert_eq!(ready.unwrap(), b"READY=1");
    assert_eq!(stopping.unwrap(), b"STOPPING=1");
}

#[test]
fn a_volume_that_does_not_exist_is_found_out() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let state = |volume: &str| {
        let said = scene.azekura(&["doctor", volume, "--json"]).stdout;
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let checks = said["checks"].as_array().unwrap().clone();
        let check = checks.into_iter().find(|check| check["name"] == "volume");
        check.map(|check| check["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(state(&scene.volume()).as_deref(), Some("ok"));
    let missing = format!("{}/none", scene.address());
    assert_eq!(state(&missing).as_deref(), Some("failed"));
    assert_eq!(state(scene.address()), None);
    assert!(!scene.azekura(&["doctor", &missing]).status.success());
}

#[test]
fn a_new_server_has_a_store_and_says_what_it_can_do() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let begin = std::time::Instant::now();
    let mut command = scene.command();
    command.args([
        "server",
        "--init",
        "--store-size",
        "96MiB",
        "--data",
        "stored",
    ]);
    command.args(["--listen", "127.0.0.1:7799"]);
    let mut server = command.spawn().unwrap();
    let status = scene.azekura(&["status", "127.0.0.1:7799", "--json"]).ok();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(begin.elapsed() < std::time::Duration::from_secs(30));
    let store = &status["stores"][0];
    assert!(
        store["read_bytes_per_second"].as_u64().unwrap() > 0,
        "{status}"
    );
    assert!(store["allocation_units_free"].as_u64().unwrap() > 0);
    assert_eq!(store["promised_ppm_max"], 900_000);
    assert!(store["path"].as_str().unwrap().ends_with("stores/0"));
    assert!(scene.path("stored/storage.toml").exists());
}
