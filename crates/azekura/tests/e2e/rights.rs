//! Who may do what on a mount: what others were told is nobody else's answer, who gets in, extended
//! attributes, and what is left to whom a directory was closed.

use crate::checks::copy_program;
use crate::common::{Run, Scene, obstacle, run, text};
use rustix::fs::{AtFlags, StatxFlags, XattrFlags, statx};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Users and a group without names here.
pub(crate) const USER: u32 = 61_001;
pub(crate) const OTHER: u32 = 61_002;
const GROUP: u32 = 61_003;

/// A shell command as a user with one supplementary group, or none.
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

/// A server whose directory everybody may pass.
pub(crate) fn open_scene() -> Scene {
    let scene = Scene::new();
    set_mode(&scene.path(""), 0o711);
    set_mode(&scene.path("export"), 0o755);
    scene
}

#[track_caller]
pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Everything that can be found out in a directory, each with whether it was.
const LOOK: &str = r#"
for file in open closed listed acl group users dir/in shut/in link; do
    echo "$file: $(cat $file 2>&1)"
done
for dir in . dir shut; do
    echo "$dir: $(ls $dir 2>&1 | sed 's/.*: //')"
done
for name in user.k trusted.k; do
    for file in open closed; do
        echo "$file $name: $(getfattr --only-values -n $name $file 2>&1 | sed 's/.*: //')"
    done
done
echo "shut/none: $(stat -c %n shut/none 2>&1)"
"#;

/// A tree with something for everybody.
fn make_tree(top: &Path) {
    for (name, mode) in [("dir", 0o711), ("shut", 0o700)] {
        fs::create_dir(top.join(name)).unwrap();
        set_mode(&top.join(name), mode);
    }
    let files = [
        ("open", 0o644, 0),
        ("closed", 0o600, 0),
        ("listed", 0o600, 0),
        ("acl", 0o664, 0),
        ("group", 0o640, 0),
        ("users", 0o600, USER),
        ("dir/in", 0o644, 0),
        ("shut/in", 0o644, 0),
    ];
    for (name, mode, owner) in files {
        fs::write(top.join(name), format!("contents of {name}")).unwrap();
        let group = if name == "group" { GROUP } else { 0 };
        chown(top.join(name), Some(owner), Some(group)).unwrap();
        set_mode(&top.join(name), mode);
    }
    symlink("closed", top.join("link")).unwrap();
    for (name, acl) in [("acl", "---"), ("listed", "r--")] {
        let entry = format!("u:{USER}:{acl}");
        let path = top.join(name);
        run(Command::new("setfacl").args(["-m", &entry, text(&path)])).ok();
    }
    for name in ["open", "closed"] {
        for key in ["user.k", "trusted.k"] {
            let value = format!("{key} of {name}");
            let flags = XattrFlags::empty();
            rustix::fs::setxattr(top.join(name), key, value.as_bytes(), flags).unwrap();
        }
    }
}

/// The oracle is the kernel on the exported directory itself.
#[test]
fn nobody_gets_what_was_cached_for_another() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let export = scene.path("export");
    make_tree(&export);
    let mount = scene.mount("mnt", &["--allow-other"]);
    // Who may have most comes between the others, and what they were refused he gets.
    let callers = [
        (USER, None),
        (USER, Some(GROUP)),
        (0, None),
        (USER, None),
        (OTHER, None),
        (USER, Some(GROUP)),
        (0, None),
    ];
    for (uid, group) in callers {
        let [there, here] =
            [&export, &mount].map(|directory| run(&mut shell(uid, group, directory, LOOK)).ok());
        assert!(there.contains("open: contents of open\n"), "{there}");
        assert_eq!(here, there, "for {uid} with group {group:?}");
    }
    let hits = crate::checks::figures(&mount)["lookup_hit_rate"].as_f64();
    assert!(hits > Some(0.1), "nothing was answered from here: {hits:?}");
}

/// Makes files, directories and links in directories with and without a group of their own, and
/// says what they are.
const MAKE: &str = r#"
umask 027
for dir in own shared; do
    cd $dir
    perl -MFcntl -e '
        sub make { sysopen(my $file, $_[0], O_CREAT | O_WRONLY | O_EXCL, $_[1]) or die "$_[0] $!" }
        make("plain", 0666); make("suid", 04777); make("sgid", 02777); make("both", 06755);
        mkdir("sub", 0777) or die $!; make("sub/in", 02775); symlink("plain", "link") or die $!'
    stat -c '%n %A %u %g' plain suid sgid both sub sub/in link
    cd ..
done
"#;

/// What is created ahead of the server gets its owner, group and mode here; it must be what the
/// server's file system gives.
#[test]
fn what_is_created_ahead_belongs_to_whom_it_belongs_on_the_server() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let local = scene.path("local");
    for top in [&scene.path("export"), &local] {
        fs::create_dir_all(top).unwrap();
        set_mode(top, 0o755);
        for user in ["own", "member", "other"] {
            fs::create_dir(top.join(user)).unwrap();
            set_mode(&top.join(user), 0o777);
            for (name, mode) in [("own", 0o777), ("shared", 0o2777)] {
                let directory = top.join(user).join(name);
                fs::create_dir(&directory).unwrap();
                chown(&directory, None, Some(GROUP)).unwrap();
                set_mode(&directory, mode);
            }
        }
    }
    let mount = scene.mount("mnt", &["--allow-other"]);
    for (name, uid, group) in [
        ("own", 0, None),
        ("member", USER, Some(GROUP)),
        ("other", USER, None),
    ] {
        let make = |top: &Path| run(&mut shell(uid, group, &top.join(name), MAKE)).ok();
        let expected = make(&local);
        assert_eq!(expected.lines().count(), 14, "{expected}");
        assert_eq!(make(&mount), expected, "{name}, before the server has it");
        scene.azekura(&["sync", text(&mount)]).ok();
        let look = MAKE
            .lines()
            .filter(|line| !line.contains("make") && !line.contains("perl"));
        let look = look
            .filter(|line| !line.contains("mkdir"))
            .collect::<Vec<_>>()
            .join("\n");
        for top in [&mount, &scene.path("export")] {
            let seen = run(&mut shell(0, None, &top.join(name), &look)).ok();
            assert_eq!(seen, expected, "{name}, at {}", top.display());
        }
    }
    let ahead = crate::checks::figures(&mount)["created_ahead"].as_u64();
    assert!(ahead > Some(20), "created ahead: {ahead:?}");
}

/// A directory of a mount in which everybody may create, and creations are answered ahead.
#[track_caller]
pub(crate) fn ahead_directory(scene: &Scene, mount: &Path) -> PathBuf {
    let directory = mount.join("ahead");
    fs::create_dir(&directory).unwrap();
    set_mode(&directory, 0o777);
    // The first creation finds out that there is no default ACL.
    fs::write(directory.join("first"), "").unwrap();
    scene.azekura(&["sync", text(mount)]).ok();
    directory
}

#[track_caller]
pub(crate) fn created_ahead(mount: &Path) -> u64 {
    let figures = crate::checks::figures(mount);
    figures["created_ahead"].as_u64().unwrap()
}

/// As Samba does where the owner is inherited: a user's file is given to somebody else by root, and
/// written by the user.
const GIVE: &str = r#"
    use Fcntl;
    my ($name, $user, $owner, $group) = @ARGV;
    $> = $user;
    sysopen(my $file, $name, O_CREAT | O_EXCL | O_WRONLY, 0644) or die "create: $!";
    syswrite($file, "by the user, ") or die "write: $!";
    $> = 0;
    chown($owner, $group, $file) == 1 or die "chown: $!";
    $> = $user;
    syswrite($file, "and by the user") or die "write: $!";
    close($file) or die "close: $!";
"#;

#[test]
fn a_file_created_ahead_can_be_given_away_by_another_user_than_its_creator() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let mount = scene.mount("mnt", &["--allow-other"]);
    let directory = ahead_directory(&scene, &mount);
    let before = created_ahead(&mount);
    let cases = [
        ("user", OTHER, u32::MAX, (OTHER, 0)),
        ("group", u32::MAX, GROUP, (USER, GROUP)),
        ("both", OTHER, GROUP, (OTHER, GROUP)),
    ];
    for (name, owner, group, belongs) in cases {
        // -1, which changes nothing.
        let number = |id: u32| id.cast_signed().to_string();
        let (owner, group) = (number(owner), number(group));
        let mut perl = Command::new("perl");
        perl.args(["-e", GIVE, name, &USER.to_string(), &owner, &group]);
        run(perl.current_dir(&directory)).ok();
        scene.azekura(&["sync", text(&mount)]).ok();
        for top in [&directory, &scene.path("export/ahead")] {
            let found = fs::metadata(top.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), belongs, "{}", top.display());
            let contents = fs::read(top.join(name)).unwrap();
            assert_eq!(contents, b"by the user, and by the user");
        }
    }
    assert!(created_ahead(&mount) >= before + 3, "created ahead");
}

/// Gives files with set-id bits away, in any order, and says what they are then.
const GIVE_RIGHTS: &str = r#"
    use Fcntl;
    my ($owner, $group) = @ARGV;
    umask 022;
    sub make {
        my ($name, $mode, @changes) = @_;
        sysopen(my $file, $name, O_CREAT | O_EXCL | O_WRONLY, $mode) or die "$name: $!";
        for my $change (@changes) {
            my ($kind, @of) = @$change;
            my $done = $kind eq "chmod" ? chmod($of[0], $file) : chown(@of, $file);
            $done == 1 or die "$name: $kind: $!";
        }
        close($file) or die "$name: close: $!";
        print join(" ", $name, (map { sprintf "%o", $_ } (stat $name)[2]), (stat $name)[4, 5]);
        print "\n";
    }
    my ($user, $others) = (["chown", $owner, -1], ["chown", -1, $group]);
    my $both = ["chown", $owner, $group];
    # The first that root gives away is changed at the server, and those after it ahead.
    make("once", 0644, $user);
    make("user", 0644, ["chmod", 04755], $user);
    make("group", 0644, ["chmod", 02755], $others);
    make("both", 0644, ["chmod", 06755], $both);
    make("locks", 0644, ["chmod", 06745], $user);
    make("made", 06755, $user);
    make("after", 0644, $both, ["chmod", 06755]);
    make("again", 0644, $user, ["chmod", 04755], $others);
"#;

/// The oracle is a local file system.
#[test]
fn set_id_bits_do_not_outlive_a_change_of_owner_of_a_file_created_ahead() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let local = scene.path("local");
    fs::create_dir(&local).unwrap();
    let mount = scene.mount("mnt", &["--allow-other"]);
    let directory = ahead_directory(&scene, &mount);
    let before = created_ahead(&mount);
    let make = |top: &Path| {
        let mut perl = Command::new("perl");
        perl.args(["-e", GIVE_RIGHTS, &USER.to_string(), &GROUP.to_string()]);
        run(perl.current_dir(top)).ok()
    };
    let expected = make(&local);
    assert!(
        expected.contains(&format!("user 100755 {USER} 0\n")),
        "{expected}"
    );
    assert!(expected.contains("after 106755 "), "{expected}");
    assert_eq!(make(&directory), expected, "before the server has it");
    scene.azekura(&["sync", text(&mount)]).ok();
    for top in [&directory, &scene.path("export/ahead")] {
        for line in expected.lines() {
            let name = line.split(' ').next().unwrap();
            let found = fs::metadata(top.join(name)).unwrap();
            let found = format!("{name} {:o} {} {}", found.mode(), found.uid(), found.gid());
            assert_eq!(found, line, "{}", top.display());
        }
    }
    let ahead = created_ahead(&mount) - before;
    assert!(ahead >= 6, "{ahead} created ahead");
}

/// A program that says whose rights it has, and a device, on the export.
fn make_special(export: &Path) {
    let program = export.join("whoami");
    copy_program("/usr/bin/id", &program);
    set_mode(&program, 0o4755);
    let mut device = Command::new("mknod");
    run(device.args(["-m", "666", text(&export.join("null")), "c", "1", "3"])).ok();
}

#[test]
fn only_who_mounted_enters_and_special_files_have_no_effect_unless_root_asks() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    make_special(&scene.path("export"));
    let top = scene.path("");
    let as_user = |script: &str| run(&mut shell(USER, None, &top, script));

    let mount = scene.mount("mnt", &[]);
    assert!(mount.join("whoami").exists());
    for script in ["ls mnt", "cat mnt/whoami", "mnt/whoami -u", "stat mnt/null"] {
        let refused = as_user(script);
        assert!(!refused.status.success(), "{refused:?}");
        let says = refused.stderr.to_ascii_lowercase();
        assert!(says.contains("permission denied"), "{refused:?}");
    }
    scene.umount(&mount);

    let mount = scene.mount("mnt", &["--allow-other"]);
    assert_eq!(as_user("mnt/whoami -u").ok(), format!("{USER}\n"));
    let opened = File::open(mount.join("null")).unwrap_err();
    assert_eq!(opened.kind(), std::io::ErrorKind::PermissionDenied);
    scene.umount(&mount);

    let mount = scene.mount("mnt", &["--allow-other", "-o", "suid,dev"]);
    assert_eq!(as_user("mnt/whoami -u").ok(), "0\n");
    assert_eq!(fs::read(mount.join("null")).unwrap(), b"");
}

#[test]
fn a_program_that_a_user_has_written_to_has_no_other_rights_than_his() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    make_special(&scene.path("export"));
    set_mode(&scene.path("export/whoami"), 0o4777);
    scene.mount("mnt", &["--allow-other", "-o", "suid"]);
    let top = scene.path("");
    let as_user = |script: &str| run(&mut shell(USER, None, &top, script)).ok();
    assert_eq!(as_user("mnt/whoami -u"), "0\n");
    // What is behind the end of a program does not matter to it.
    let written = as_user("printf end >> mnt/whoami; mnt/whoami -u");
    assert_eq!(written, format!("{USER}\n"));
}

/// Creates files as root, or as the caller says, and writes to them as others; says what they are.
const WRITE_ON: &str = r#"
    use Fcntl;
    my ($user) = @ARGV;
    umask 0;
    sub make {
        my ($name, $creator, $writer, $mode, $change) = @_;
        $> = $creator;
        sysopen(my $file, $name, O_CREAT | O_EXCL | O_RDWR, $mode) or die "$name: $!";
        $change->($file) if $change;
        $> = 0;
        $> = $writer;
        syswrite($file, "x" x 70000) == 70000 or die "$name: write: $!";
        $> = 0;
        close($file) or die "$name: close: $!";
        my @is = stat $name;
        printf "%s %o %d %d %s\n", $name, @is[2, 4, 7], $is[9] > 2000 ? "now" : "old";
    }
    make("handed", 0, $user, 0600);
    make("own", $user, $user, 0400);
    make("program", $user, $user, 0755, sub { chmod(06755, $_[0]) == 1 or die $! });
    make("made", $user, $user, 06755);
    make("root", 0, 0, 0755, sub { chmod(06755, $_[0]) == 1 or die $! });
    make("dated", $user, $user, 0644, sub { utime(1000, 1000, $_[0]) == 1 or die $! });
"#;

/// The oracle is a local file system.
#[test]
fn what_is_written_to_a_file_created_ahead_is_judged_as_locally() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let local = scene.path("local");
    fs::create_dir(&local).unwrap();
    set_mode(&local, 0o777);
    let mount = scene.mount("mnt", &["--allow-other"]);
    let directory = ahead_directory(&scene, &mount);
    let before = created_ahead(&mount);
    let make = |top: &Path| {
        let mut perl = Command::new("perl");
        perl.args(["-e", WRITE_ON, &USER.to_string()]);
        run(perl.current_dir(top)).ok()
    };
    let expected = make(&local);
    assert!(
        expected.contains("handed 100600 0 70000 now\n"),
        "{expected}"
    );
    assert_eq!(make(&directory), expected);
    scene.azekura(&["sync", text(&mount)]).ok();
    for line in expected.lines() {
        let name = line.split(' ').next().unwrap();
        let found = fs::metadata(scene.path("export/ahead").join(name)).unwrap();
        let when = if found.mtime() > 2000 { "now" } else { "old" };
        let (mode, uid, size) = (found.mode(), found.uid(), found.len());
        assert_eq!(format!("{name} {mode:o} {uid} {size} {when}"), line);
    }
    assert!(created_ahead(&mount) >= before + 6, "created ahead");
}

#[test]
fn who_writes_to_a_file_is_shut_out_of_it_by_others_at_once() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    fs::write(scene.path("export/file"), "text\n").unwrap();
    let name = "system.posix_acl_access";
    set_xattr(&scene.path("export/file"), name, &posix_acl(6, 6, 0)).unwrap();
    for mount in ["here", "there"] {
        scene.mount(mount, &["--allow-other"]);
    }
    let top = scene.path("");
    let as_user = |script: &str| run(&mut shell(USER, None, &top, script));
    // The kernel has his rights from the first look, and keeps them when he writes.
    as_user("cat here/file && echo more >> here/file").ok();
    set_xattr(&scene.path("there/file"), name, &posix_acl(0, 6, 0)).unwrap();
    let refused = as_user("cat here/file");
    assert!(!refused.status.success(), "{}", refused.stdout);
    assert!(
        refused.stderr.contains("Permission denied"),
        "{}",
        refused.stderr
    );

    // Nor does a file that stays open have a mode of before.
    let path = scene.path("here/file");
    let mut open = File::options().write(true).open(path).unwrap();
    open.metadata().unwrap();
    let mode = |open: &File| {
        let (flags, mask) = (AtFlags::EMPTY_PATH, StatxFlags::MODE);
        statx(open, "", flags, mask).unwrap().stx_mode & 0o7777
    };
    assert_eq!(mode(&open), 0o660);
    open.write_all(b"end\n").unwrap();
    set_mode(&scene.path("there/file"), 0o600);
    assert_eq!(mode(&open), 0o600);
}

#[test]
fn who_has_been_given_a_file_elsewhere_owns_it_here_whoever_writes_to_it() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    // These the kernel judges by what it knows of the file, and asks nobody.
    let scripts = [
        ("chmod", "chmod 0600 here/chmod/file"),
        ("rm", "rm here/rm/file"),
        ("mv", "mv here/mv/file here/mv/moved"),
        ("touch", "touch -d 2020-01-01 here/touch/file"),
    ];
    for (name, _) in scripts {
        let directory = scene.path("export").join(name);
        fs::create_dir(&directory).unwrap();
        set_mode(&directory, 0o1777);
        fs::write(directory.join("file"), "text").unwrap();
    }
    for mount in ["here", "there"] {
        scene.mount(mount, &["--allow-other"]);
    }
    let top = scene.path("");
    for (name, script) in scripts {
        let path = |mount: &str| scene.path(mount).join(name).join("file");
        // Of what others write to there is no lease here, and nothing is called back.
        let writer = File::options().write(true).open(path("there")).unwrap();
        assert_eq!(fs::metadata(path("here")).unwrap().uid(), 0);
        chown(path("there"), Some(USER), None).unwrap();
        run(&mut shell(USER, None, &top, script)).ok();
        drop(writer);
    }
}

/// The value of an attribute, if there is one.
fn xattr(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1 << 16];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty())
}

fn names(path: &Path) -> Vec<String> {
    let mut list = vec![0; 1 << 16];
    let len = rustix::fs::listxattr(path, &mut list[..]).unwrap();
    let names = list[..len].split(|byte| *byte == 0);
    let mut names: Vec<_> = names
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    names.sort();
    names
}

/// `CAP_NET_BIND_SERVICE`, permitted and effective (capabilities(7)).
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Owner, a named user, group, mask and others (acl(5)); of a file that everybody may read.
fn acl() -> Vec<u8> {
    posix_acl(4, 4, 4)
}

pub(crate) fn posix_acl(user: u16, mask: u16, others: u16) -> Vec<u8> {
    let entry = |tag: u16, rights: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &rights.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let entries = [
        entry(0x01, 6, u32::MAX),
        entry(0x02, user, USER),
        entry(0x04, 4, u32::MAX),
        entry(0x10, mask, u32::MAX),
        entry(0x20, others, u32::MAX),
    ];
    [&2_u32.to_le_bytes()[..], &entries.concat()].concat()
}

#[test]
fn extended_attributes_are_the_servers_and_labels_are_not_passed_through() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let export = scene.path("export");
    let mount = scene.mount("mnt", &["--allow-other"]);
    for name in ["here", "there"] {
        fs::write(mount.join(name), "x").unwrap();
    }
    // The server's tree has them, too: they may have been created ahead.
    scene.azekura(&["sync", text(&mount)]).ok();
    let acl = acl();
    let values: [(&str, &[u8]); 4] = [
        ("user.k", b"a value"),
        ("trusted.k", b"root's"),
        ("security.capability", &CAPABILITY),
        ("system.posix_acl_access", &acl),
    ];
    // Set on one side, found on the other.
    for (name, value) in values {
        for (from, to, file) in [(&mount, &export, "here"), (&export, &mount, "there")] {
            set_xattr(&from.join(file), name, value).unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            while xattr(&to.join(file), name).as_deref() != Ok(value) {
                let late = Instant::now() >= deadline;
                assert!(!late, "{name} of {file}: {:?}", xattr(&to.join(file), name));
            }
        }
    }
    for file in ["here", "there"] {
        assert_eq!(names(&mount.join(file)), names(&export.join(file)));
        assert_eq!(names(&mount.join(file)).len(), values.len());
    }
    let as_user = |script: &str| run(&mut shell(USER, None, &mount, script));
    let listed = as_user("getfattr -m - here").ok();
    assert!(
        listed.contains("user.k") && !listed.contains("trusted"),
        "{listed}"
    );
    assert!(
        !as_user("setfattr -n trusted.mine -v x here")
            .status
            .success()
    );
    rustix::fs::removexattr(mount.join("here"), "user.k").unwrap();
    assert_eq!(xattr(&export.join("here"), "user.k"), Err(Errno::NODATA));

    // Labels: none comes from the server, none gets there.
    let label = "security.selinux";
    let refused = set_xattr(&mount.join("here"), label, b"a:b:c:d");
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
    // Any name that no module of this machine claims does for the way back.
    let label = "security.label";
    set_xattr(&export.join("here"), label, b"of the server").unwrap();
    assert_eq!(xattr(&mount.join("here"), label), Err(Errno::OPNOTSUPP));
    assert!(!names(&mount.join("here")).iter().any(|name| name == label));
}

/// A shell that works in a directory and does the next thing when it is told to.
pub(crate) struct Within {
    pub(crate) shell: std::process::Child,
}

impl Within {
    pub(crate) fn new(directory: &Path, script: &str) -> Self {
        let shell = shell(USER, None, directory, script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { shell }
    }

    pub(crate) fn go_on(&mut self) {
        self.shell.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    }

    pub(crate) fn end(mut self) -> Run {
        drop(self.shell.stdin.take());
        let output = self.shell.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Run {
            status: output.status,
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

#[test]
fn who_has_reached_a_file_goes_on_although_the_way_there_is_closed() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let export = scene.path("export");
    let within: PathBuf = export.join("above/within");
    fs::create_dir_all(&within).unwrap();
    chown(&within, Some(USER), Some(USER)).unwrap();
    fs::write(within.join("file"), "contents").unwrap();
    let mount = scene.mount("mnt", &["--allow-other"]);
    let script = format!(
        r#"
        exec 7<file
        for round in 1 2; do
            read -r closed
            cat file || exit 2
            cat <&7 || exit 3
            cat /proc/self/fd/7 >/dev/null || exit 4
            mkdir made$round && echo new >made$round/new && cat made$round/new || exit 5
            if cat {0}/above/within/file || cat ../within/file || ls ..; then exit 6; fi
        done 2>&1
        "#,
        text(&mount)
    );
    let mut shell = Within::new(&mount.join("above/within"), &script);
    // Through the mount, so that this machine knows of it at once.
    set_mode(&mount.join("above"), 0o700);
    shell.go_on();
    let made = |name: &str| fs::metadata(within.join(name).join("new")).is_ok();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !made("made1") {
        assert!(Instant::now() < deadline, "the shell does not go on");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Another server finds by their handles what nobody walks to any more.
    scene.kill();
    scene.start();
    shell.go_on();
    let ended = shell.end();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(
        ended.stdout.matches("ermission denied").count(),
        6,
        "{ended:?}"
    );
    assert!(made("made2"));
    assert_eq!(
        fs::metadata(export.join("above")).unwrap().mode() & 0o777,
        0o700
    );
}

/// As a local file system does it: whoever may write a program may write it, and its capabilities
/// are gone.
#[test]
fn who_is_not_root_writes_a_program_and_its_capabilities_are_gone() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let export = scene.path("export");
    for name in ["there", "here"] {
        let path = export.join(name);
        fs::write(&path, "program").unwrap();
        std::os::unix::fs::chown(&path, Some(USER), None).unwrap();
        set_xattr(&path, "security.capability", &CAPABILITY).unwrap();
    }
    let mount = scene.mount("mnt", &["--allow-other"]);
    let known = xattr(&mount.join("here"), "security.capability");
    assert_eq!(known.as_deref(), Ok(&CAPABILITY[..]));
    for name in ["there", "here"] {
        let script = format!("echo more >> {name} && cat {name}");
        let said = run(&mut shell(USER, None, &mount, &script)).ok();
        assert_eq!(said, "programmore\n");
        for top in [&mount, &export] {
            let left = xattr(&top.join(name), "security.capability");
            assert_eq!(left, Err(Errno::NODATA), "{name}");
        }
    }
}
