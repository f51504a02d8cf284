//! `cp` and `ls`: without a mount.

use crate::checks::{fails, json};
use crate::common::{Scene, obstacle, run, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// A tree with what makes copies go wrong: odd names, empty files, modes, links, depth.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er/est")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for index in 0..200 {
        fs::write(
            root.join(format!("deep/{index}")),
            vec![index as u8; index * 7],
        )
        .unwrap();
    }
    let large: Vec<u8> = (0..3_000_001_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(root.join("large"), large).unwrap();
    fs::write(root.join("deep/er/est/with blank\nand line end"), "x").unwrap();
    symlink("deep/7", root.join("link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    fs::set_permissions(root.join("large"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("deep/er"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o1777)).unwrap();
}

/// A tree as lines that can be compared; times where they are to be the same.
fn describe(root: &Path, with_times: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap();
            let kind = metadata.file_type();
            let content = if kind.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if kind.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            let times = if with_times {
                format!("{} {}", metadata.mtime(), metadata.mtime_nsec())
            } else {
                String::new()
            };
            let sum = content
                .iter()
                .fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            lines.push(format!(
                "{name:?} {:o} {} {sum} {times}",
                metadata.mode(),
                content.len()
            ));
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_tree_goes_there_and_back_unchanged() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    make_tree(&scene.path("tree"));
    let root = format!("{}:/", scene.volume());
    scene.azekura(&["cp", "-r", "-p", "tree", &root]).ok();
    let wanted = describe(&scene.path("tree"), true);
    assert_eq!(describe(&scene.path("export/tree"), true), wanted);

    let there = format!("{}:/tree", scene.volume());
    let copied = json(scene.azekura(&["cp", "-r", "-p", "--json", &there, "back"]));
    assert_eq!(describe(&scene.path("back"), true), wanted);
    assert_eq!(
        (&copied["files"], &copied["links"], &copied["failed"]),
        (&202.into(), &2.into(), &0.into())
    );
    // From volume to volume, into a new name.
    let twin = format!("{}:/twin", scene.volume());
    scene.azekura(&["cp", "-r", "-p", &there, &twin]).ok();
    assert_eq!(describe(&scene.path("export/twin"), true), wanted);
    // Without -p, the mask of this process is applied.
    let mut masked = std::process::Command::new("sh");
    masked.arg("-c").arg(format!(
        "umask 077; AZEKURA_CONFIG_DIR={} {} cp {} {}:/masked",
        scene.path("config").display(),
        env!("CARGO_BIN_EXE_azekura"),
        scene.path("tree/large").display(),
        scene.volume()
    ));
    run(&mut masked).ok();
    let mode = fs::metadata(scene.path("export/masked"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[test]
fn an_interrupted_copy_goes_on() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    make_tree(&scene.path("tree"));
    let root = format!("{}:/", scene.volume());
    scene.azekura(&["cp", "-r", "-p", "tree", &root]).ok();
    // As after an interruption: one file is missing, one was cut short.
    fs::remove_file(scene.path("export/tree/deep/7")).unwrap();
    fs::write(scene.path("export/tree/large"), "beginning").unwrap();
    let arguments = ["cp", "-r", "-p", "--continue", "--json", "tree", &root];
    let copied = json(scene.azekura(&arguments));
    assert_eq!(
        (&copied["files"], &copied["present"]),
        (&2.into(), &200.into())
    );
    assert_eq!(
        describe(&scene.path("export/tree"), true),
        describe(&scene.path("tree"), true)
    );
}

#[test]
fn what_cannot_be_copied_is_named_and_the_rest_is_copied() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    make_tree(&scene.path("tree"));
    make_pipe(&scene.path("tree/pipe"));
    // A directory is in the way of a file.
    fs::create_dir_all(scene.path("export/tree/deep/7")).unwrap();
    let root = format!("{}:/", scene.volume());
    let run = scene.azekura(&["cp", "-r", "tree", &root]);
    fails(&run, "AZ0405");
    assert!(
        run.stderr.contains("not copied: tree/pipe: "),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("not copied: tree/deep/7: "),
        "{}",
        run.stderr
    );
    assert_eq!(fs::read(scene.path("export/tree/deep/8")).unwrap(), [8; 56]);
    fails(&scene.azekura(&["cp", "tree", &root]), "AZ0303");
    let missing = scene.azekura(&["cp", "missing", &root]);
    fails(&missing, "AZ0401");
    assert!(
        missing.stderr.contains("HOST:PORT/VOLUME:/PATH"),
        "{missing:?}"
    );
    let missing = scene.azekura(&["cp", &format!("{root}tree/missing"), "here"]);
    fails(&missing, "AZ0401");
    let remedy = format!("azekura ls {root}tree shows what is there");
    assert!(missing.stderr.contains(&remedy), "{missing:?}");
    fails(
        &scene.azekura(&["cp", "tree/large", "tree/link", &format!("{root}new")]),
        "AZ0303",
    );
    let same = format!("{}:/tree/large", scene.volume());
    let onto_itself = scene.azekura(&["cp", &same, &same]);
    fails(&onto_itself, "AZ0405");
    assert!(
        !onto_itself.stderr.contains("--continue"),
        "there is no rest: {onto_itself:?}"
    );
    assert_eq!(
        fs::metadata(scene.path("export/tree/large")).unwrap().len(),
        3_000_001
    );
}

fn make_pipe(path: &Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).unwrap();
}

#[test]
fn what_is_never_copied_is_not_to_be_tried_again() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).unwrap();
    make_pipe(&scene.path("tree/pipe"));
    let root = format!("{}:/", scene.volume());
    let run = scene.azekura(&["cp", "-r", "tree", &root]);
    fails(&run, "AZ0405");
    assert!(!run.stderr.contains("--continue"), "{}", run.stderr);
}

#[test]
fn an_interruption_says_how_far_it_came_and_how_it_goes_on() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).unwrap();
    for number in 0..3000 {
        fs::write(scene.path(&format!("tree/{number}")), vec![1; 8192]).unwrap();
    }
    let root = format!("{}:/", scene.volume());
    let log = fs::File::create(scene.path("said")).unwrap();
    let mut copying = scene
        .command()
        .args(["cp", "-r", "-p", "tree", &root])
        .stderr(log)
        .spawn()
        .unwrap();
    while !scene.path("export/tree/7").exists() {
        assert!(copying.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // Many files are on their way now, and will not arrive.
    scene.signal(Signal::STOP);
    let pid = Pid::from_child(&copying);
    kill_process(pid, Signal::INT).unwrap();
    let status = copying.wait().unwrap();
    scene.signal(Signal::CONT);
    let said = fs::read_to_string(scene.path("said")).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].starts_with("error: interrupted after "), "{said}");
    assert!(lines[1].contains("--continue"), "{said}");
    assert!(lines[2].contains("AZ0004"), "{said}");
}

#[test]
fn an_interruption_in_the_first_file_speaks_of_no_last_one() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    fs::write(scene.path("large"), vec![1; 200_000_000]).unwrap();
    let target = format!("{}:/large", scene.volume());
    let log = fs::File::create(scene.path("said")).unwrap();
    let mut command = scene.command();
    command.args(["cp", "large", &target]).stderr(log);
    let mut copying = command.spawn().unwrap();
    while !scene.path("export/large").exists() {
        assert!(copying.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // It does not arrive before the signal.
    scene.signal(Signal::STOP);
    kill_process(Pid::from_child(&copying), Signal::INT).unwrap();
    let status = copying.wait().unwrap();
    scene.signal(Signal::CONT);
    let said = fs::read_to_string(scene.path("said")).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("error: interrupted before the first file was complete; "),
        "{said}"
    );
}

#[test]
fn a_server_that_is_killed_under_a_copy_is_waited_for_once() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("large"), vec![1; 200_000_000]).unwrap();
    let target = format!("{}:/large", scene.volume());
    let log = fs::File::create(scene.path("said")).unwrap();
    // Longer than anything is believed of a server that is not heard.
    let arguments = ["cp", "large", &target, "--timeout", "6s"];
    let mut command = scene.command();
    let mut copying = command.args(arguments).stderr(log).spawn().unwrap();
    while !scene.path("export/large").exists() {
        assert!(copying.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    scene.kill();
    let begun = std::time::Instant::now();
    let status = copying.wait().unwrap();
    let took = begun.elapsed();
    let said = fs::read_to_string(scene.path("said")).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        took < std::time::Duration::from_secs(12),
        "{took:?}: {said}"
    );
    let cause = format!(
        "error: cannot reach {}: connection refused",
        scene.address()
    );
    assert!(said.contains(&cause), "{said}");
    assert!(said.contains("is the server running there?"), "{said}");
    assert!(said.contains("AZ0101") && !said.contains("WARN"), "{said}");
}

#[test]
fn a_dry_run_copies_nothing() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    make_tree(&scene.path("tree"));
    let root = format!("{}:/", scene.volume());
    let said = scene
        .azekura(&["cp", "-r", "--dry-run", "tree", &root])
        .ok();
    assert!(said.contains("would copy 204 files"), "{said}");
    make_pipe(&scene.path("tree/pipe"));
    let told = json(scene.azekura(&["cp", "-r", "--dry-run", "--json", "tree", &root]));
    assert_eq!((&told["files"], &told["failed"]), (&204.into(), &1.into()));
    let told = scene.azekura(&["cp", "-r", "--dry-run", "tree", &root]);
    assert!(told.stderr.contains("would not be copied: tree/pipe: "));
    assert!(told.ok().contains("would copy 204 files"));
    assert_eq!(fs::read_dir(scene.path("export")).unwrap().count(), 0);
}

#[test]
fn a_link_at_the_target_is_not_followed_within_a_tree() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    fs::create_dir_all(scene.path("export/tree/sub")).unwrap();
    fs::write(scene.path("export/tree/sub/file"), "from the server").unwrap();
    fs::create_dir_all(scene.path("outside")).unwrap();
    fs::create_dir_all(scene.path("here/tree")).unwrap();
    symlink(scene.path("outside"), scene.path("here/tree/sub")).unwrap();
    let tree = format!("{}:/tree", scene.volume());
    fails(&scene.azekura(&["cp", "-r", &tree, "here"]), "AZ0405");
    assert_eq!(fs::read_dir(scene.path("outside")).unwrap().count(), 0);
}

#[test]
fn listings_show_what_is_there() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    make_tree(&scene.path("export/tree"));
    let tree = format!("{}:/tree", scene.volume());
    let names = scene.azekura(&["ls", &tree]).ok();
    assert_eq!(names, "dangling\ndeep\nempty\nlarge\nlink\n");
    let long = scene.azekura(&["ls", "-l", &tree]).ok();
    assert!(
        long.contains("-rw-r-----") && long.contains("drwxrwxrwt"),
        "{long}"
    );
    assert!(long.contains("link -> deep/7"), "{long}");
    let list = json(scene.azekura(&["ls", "--json", &tree]));
    let large = &list["entries"][3];
    assert_eq!(
        (&large["size"], &large["mode"]),
        (&3_000_001.into(), &"0640".into())
    );
    assert!(large["modified"].as_str().unwrap().ends_with('Z'));
    // A name cannot move the cursor.
    fs::write(scene.path("export/\u{1b}[2J"), "").unwrap();
    let names = scene.azekura(&["ls", &scene.volume()]).ok();
    assert!(!names.contains('\u{1b}'), "{names:?}");
    for missing in ["missing", "missing/deeper"] {
        let missing = scene.azekura(&["ls", &format!("{tree}/{missing}")]);
        fails(&missing, "AZ0401");
        let remedy = format!("azekura ls {tree} shows what is there");
        assert!(missing.stderr.contains(&remedy), "{missing:?}");
    }
    fails(
        &scene.azekura(&["ls", &format!("{}/missing", scene.address())]),
        "AZ0301",
    );
    let volumes = scene.azekura(&["ls", scene.address()]).ok();
    assert!(volumes.contains("export"), "{volumes}");
}

#[test]
fn a_file_copied_onto_itself_by_another_way_stays_whole() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let (whole, root) = (vec![7; 300_000], format!("{}:/", scene.volume()));
    fs::write(scene.path("export/old"), &whole).unwrap();
    let mount = scene.mount("mnt", &[]);
    let there = |name: &str| format!("{root}{name}");
    let refused = |source: &str, target: &str| {
        let run = scene.azekura(&["cp", source, target]);
        fails(&run, "AZ0405");
        assert!(run.stderr.contains("the same file"), "{}", run.stderr);
    };
    // The exported directory on the server's machine, and the mount, in both directions.
    for name in ["export/old", "mnt/old"] {
        refused(name, &there("old"));
        refused(&there("old"), name);
        assert_eq!(fs::read(scene.path("export/old")).unwrap(), whole);
    }
    // A file created ahead has a number that is the mount's own.
    for (name, from_mount) in [("up", true), ("down", false)] {
        fs::write(mount.join(name), &whole).unwrap();
        let (here, there) = (format!("mnt/{name}"), there(name));
        if from_mount {
            refused(&here, &there);
        } else {
            refused(&there, &here);
        }
        assert_eq!(fs::read(scene.path("export").join(name)).unwrap(), whole);
    }
    // A twin with the same size and times is another file.
    let twin = there("twin");
    scene.azekura(&["cp", "-p", "mnt/old", &twin]).ok();
    scene.azekura(&["cp", "-p", "mnt/old", &twin]).ok();
    scene.azekura(&["cp", "-p", "export/old", &twin]).ok();
    assert_eq!(fs::read(scene.path("export/twin")).unwrap(), whole);
}

/// What an archive must keep beside what [`describe`] shows.
fn describe_rest(root: &Path) -> String {
    let script = "cd \"$0\"; find . -type l -printf '%p %U:%G\\n' | sort; getfacl -R -n -s .
        getfattr -R -h -d -m 'user.|security.capability' .
        stat -c '%n %h %b' holes one two; [ one -ef two ]; find . -links +1 -type f | sort";
    run(std::process::Command::new("sh").args(["-ec", script, text(root)])).ok()
}

#[test]
fn a_target_is_what_its_name_says() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let place = |name: &str| format!("{}:/{name}", scene.volume());
    fs::write(scene.path("file"), "new").unwrap();
    // A name with a slash is a directory's, on both sides.
    fails(&scene.azekura(&["cp", "file", &place("made/")]), "AZ0303");
    assert!(!scene.path("export/made").exists());
    scene.azekura(&["cp", "file", &place("made")]).ok();
    fails(&scene.azekura(&["cp", &place("made"), "here/"]), "AZ0303");
    assert!(!scene.path("here").exists());
    // A link that is named is written through, if that is to a file.
    fs::write(scene.path("behind"), "older").unwrap();
    symlink("behind", scene.path("link")).unwrap();
    scene.azekura(&["cp", &place("made"), "link"]).ok();
    assert!(scene.path("link").is_symlink());
    assert_eq!(fs::read(scene.path("behind")).unwrap(), b"new");
    symlink("nowhere", scene.path("dangling")).unwrap();
    fails(
        &scene.azekura(&["cp", &place("made"), "dangling"]),
        "AZ0401",
    );
    assert!(!scene.path("nowhere").exists());
    symlink("/dev/null", scene.path("device")).unwrap();
    fails(&scene.azekura(&["cp", &place("made"), "device"]), "AZ0303");
}

#[test]
fn an_archive_keeps_holes_hard_links_acls_and_attributes() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    make_tree(&scene.path("tree"));
    let prepare = "cd \"$0\"; echo x > one; ln one two; ln one deep/three
        truncate -s 64M holes; echo data | dd of=holes bs=1 seek=20M conv=notrunc 2>&1
        setfacl -m u:4711:rw,g:4712:r one; setfacl -d -m u:4711:rwx deep
        setfattr -n user.note -v kept one; setfattr -n user.note -v kept deep
        chown -h 4711:4712 link; touch -h -d 2001-02-03 link
        cp /bin/true tool; setcap cap_net_raw+ep tool";
    let tree = scene.path("tree");
    run(std::process::Command::new("sh").args(["-ec", prepare, text(&tree)])).ok();
    let wanted = describe_rest(&tree);
    let root = format!("{}:/", scene.volume());
    let copied = json(scene.azekura(&["cp", "-a", "--json", "tree", &root]));
    assert_eq!(
        (&copied["failed"], &copied["links"]),
        (&0.into(), &4.into())
    );
    assert_eq!(describe_rest(&scene.path("export/tree")), wanted);
    let there = format!("{}:/tree", scene.volume());
    scene.azekura(&["cp", "-a", &there, "back"]).ok();
    assert_eq!(describe_rest(&scene.path("back")), wanted);
    let twin = format!("{}:/twin", scene.volume());
    scene.azekura(&["cp", "-a", &there, &twin]).ok();
    assert_eq!(describe_rest(&scene.path("export/twin")), wanted);
    // Again: what is there is no obstacle.
    scene
        .azekura(&["cp", "-a", "--continue", "tree", &root])
        .ok();
    assert_eq!(describe_rest(&scene.path("export/tree")), wanted);
    assert_eq!(
        describe(&scene.path("export/tree"), true),
        describe(&tree, true)
    );
}
