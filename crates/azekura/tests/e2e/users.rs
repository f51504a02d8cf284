//! Credentials that speak for one user.

use crate::checks::{copy_program, fails, json};
use crate::common::{Run, Scene, obstacle, run};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The one user other than root that every machine has.
const UID: u32 = 65_534;

/// Somebody without any credential.
const STRANGER: u32 = 61_001;

/// A server, and the configuration of a user who is enrolled there.
struct Enrolled {
    scene: Scene,
    /// The program in a place where the user may run it.
    program: PathBuf,
}

impl Enrolled {
    fn new() -> Self {
        let scene = Scene::new();
        let list = [
            "join",
            "create",
            scene.address(),
            "--kind",
            &format!("user:{UID}"),
            "--json",
        ];
        let string = json(scene.azekura(&list));
        fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o711)).unwrap();
        fs::set_permissions(scene.path("export"), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["user", "export/mine", "mnt"] {
            fs::create_dir(scene.path(name)).unwrap();
            chown(scene.path(name), Some(UID), Some(UID)).unwrap();
        }
        fs::write(scene.path("export/roots"), "r").unwrap();
        fs::set_permissions(
            scene.path("export/roots"),
            fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        let program = scene.path("azekura");
        copy_program(env!("CARGO_BIN_EXE_azekura"), &program);
        let this = Self { scene, program };
        let string = string["join_string"].as_str().unwrap();
        this.as_user(&["login", this.scene.address(), string]).ok();
        this
    }

    /// The program with the user's configuration.
    fn command(&self, uid: u32, program: &Path) -> Command {
        let user = self.scene.path("user");
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={uid}"))
            .arg("--clear-groups")
            .arg(program)
            .env("HOME", &user)
            .env("AZEKURA_CONFIG_DIR", user.join("config"))
            .env_remove("XDG_STATE_HOME")
            .env_remove("RUST_LOG")
            .current_dir(self.scene.path(""))
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn as_user(&self, arguments: &[&str]) -> Run {
        run(self.command(UID, &self.program).args(arguments))
    }

    /// Root with the user's credential.
    #[track_caller]
    fn as_root(&self, arguments: &[&str]) -> Run {
        run(self.command(0, &self.program).args(arguments))
    }

    /// What a shell does as a user where `/dev/fuse` has such a mode, which differs between
    /// machines. It has a table of mounts of its own, in which everything is that it mounts.
    #[track_caller]
    fn shell(&self, uid: u32, device_mode: &str, script: &str) -> Run {
        const PREPARE: &str = "mknod user/fuse c 10 229; chmod \"$1\" user/fuse; shift
            mount --bind user/fuse /dev/fuse; rm user/fuse; exec \"$@\"";
        let shell = self.command(uid, Path::new("sh"));
        let variables = shell
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-ec", PREPARE, "sh", device_mode])
            .arg(shell.get_program())
            .args(shell.get_args())
            .args(["-ec", script])
            .envs(variables)
            .current_dir(self.scene.path(""))
            .stdin(Stdio::null());
        run(&mut command)
    }
}

#[test]
fn a_users_credential_lists_and_copies_as_that_user() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let enrolled = Enrolled::new();
    let volume = enrolled.scene.volume();
    let (mine, roots) = (format!("{volume}:/mine"), format!("{volume}:/roots"));
    for (number, copy) in [Enrolled::as_user, Enrolled::as_root].iter().enumerate() {
        assert_eq!(copy(&enrolled, &["ls", &volume]).ok(), "mine\nroots\n");
        let name = format!("user/copied{number}");
        fs::write(enrolled.scene.path(&name), "copied").unwrap();
        copy(&enrolled, &["cp", &name, &mine]).ok();
        let copied =
            fs::metadata(enrolled.scene.path(&format!("export/mine/copied{number}"))).unwrap();
        assert_eq!((copied.len(), copied.uid()), (6, UID));
        // What belongs to root there stays closed, also to root here.
        fails(&copy(&enrolled, &["cp", &roots, "user/stolen"]), "AZ0405");
        assert!(
            !enrolled.scene.path("user/stolen").exists(),
            "and nothing is made"
        );
    }
}

#[test]
fn a_users_credential_mounts_for_that_user_and_for_root() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let enrolled = Enrolled::new();
    let volume = enrolled.scene.volume();
    let script = format!(
        "./azekura mount {volume} mnt
        cd mnt
        ls -l . mine; echo written > mine/file; sync mine/file; sync mine; cat mine/file
        if cat roots; then exit 9; fi
        mkdir mine/d; rm -r mine/d
        cd ..
        ./azekura umount mnt"
    );
    for uid in [UID, 0] {
        let worked = enrolled.shell(uid, "666", &script).ok();
        assert!(worked.contains("\nwritten\n"), "{worked}");
        let file = enrolled.scene.path("export/mine/file");
        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.len(), found.uid()), (8, UID));
        fs::remove_file(file).unwrap();
    }
}

/// Creates a file in the directory, and tries to give it to somebody else.
const GIVE: &str = r#"
    use Fcntl;
    sysopen(my $file, "given", O_CREAT | O_EXCL | O_WRONLY, 0644) or die "create: $!";
    syswrite($file, "written") or die "write: $!";
    chown($ARGV[0], -1, $file) == 0 or die "it is given away";
    print "$!\n";
    close($file) or die "close: $!";
"#;

#[test]
fn a_file_created_ahead_that_may_not_be_given_away_stays() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let enrolled = Enrolled::new();
    let script = format!(
        "export LC_ALL=C
        ./azekura mount {} mnt
        trap './azekura umount mnt' EXIT
        mkdir mnt/mine/new
        # The first creation finds out that there is no default ACL.
        touch mnt/mine/new/first
        ./azekura sync mnt >/dev/null
        (cd mnt/mine/new; perl -e '{GIVE}' {STRANGER})
        ./azekura sync mnt >/dev/null
        stat -c %i mnt/mine/new/given
        cat mnt/mine/new/given",
        enrolled.scene.volume()
    );
    // To its own kernel root may do that, and to the server it is the user.
    let worked = enrolled.shell(0, "666", &script).ok();
    let said: Vec<_> = worked.lines().rev().take(3).collect();
    let [contents, inode, refused] = said[..] else {
        panic!("{worked}");
    };
    assert_eq!(refused, "Operation not permitted", "{worked}");
    assert_eq!(contents, "written");
    let inode: u64 = inode.parse().unwrap();
    assert!(inode >= 1 << 63, "not created ahead: {inode}");
    let found = fs::metadata(enrolled.scene.path("export/mine/new/given")).unwrap();
    assert_eq!((found.len(), found.uid()), (7, UID));
}

#[test]
fn a_stranger_on_a_users_mount_has_nothing_of_what_is_cached() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let enrolled = Enrolled::new();
    let export = enrolled.scene.path("export");
    fs::write(export.join("large"), vec![b'x'; 300_000]).unwrap();
    symlink("large", export.join("link")).unwrap();
    let script = format!(
        "./azekura mount {} mnt --allow-other
        trap './azekura umount mnt' EXIT
        as() {{ id=$1; shift; setpriv --reuid=$id --regid=$id --clear-groups \"$@\"; }}
        stranger() {{ as {STRANGER} \"$@\"; }}
        look='cat mnt/large mnt/link | wc -c; ls mnt; ls mnt/mine; getfattr -d mnt/large
            stat -c %s mnt/large; readlink mnt/link'
        for round in 1 2; do
            sh -c \"$look\"; as {UID} sh -c \"$look\"
            for file in large link; do
                if stranger cat mnt/$file; then exit 9; fi
            done
            if stranger ls mnt || stranger ls mnt/mine; then exit 8; fi
            if stranger stat -c %s mnt/large || stranger readlink mnt/link; then exit 5; fi
            if stranger touch mnt/mine/new; then exit 7; fi
        done
        chmod 777 mnt/mine; touch mnt/mine/first; ls mnt/mine
        if stranger touch mnt/mine/new; then exit 6; fi
        # What he was handed he may use.
        stranger wc -c < mnt/large",
        enrolled.scene.volume()
    );
    let worked = enrolled.shell(0, "666", &script).ok();
    assert_eq!(worked.matches("600000\n").count(), 4, "{worked}");
    assert!(worked.ends_with("\n300000\n"), "{worked}");
    assert!(!export.join("mine/new").exists());
}

#[test]
fn a_users_mount_lets_nobody_else_in_unless_the_machine_allows_it() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let enrolled = Enrolled::new();
    fs::write(enrolled.scene.path("user/fuse.conf"), "user_allow_other\n").unwrap();
    fs::write(enrolled.scene.path("user/none.conf"), "").unwrap();
    let script = format!(
        "user() {{ setpriv --reuid={UID} --regid={UID} --clear-groups \"$@\"; }}
        trap 'user ./azekura umount mnt' EXIT
        mount --bind user/none.conf /etc/fuse.conf
        user ./azekura mount {volume} mnt -o suid,dev
        user ls mnt; grep \"$PWD/mnt \" /proc/self/mounts
        if ls mnt; then exit 9; fi
        user ./azekura umount mnt
        if user ./azekura mount {volume} mnt --allow-other; then exit 8; fi
        mount --bind user/fuse.conf /etc/fuse.conf
        user ./azekura mount {volume} mnt --allow-other
        ls mnt",
        volume = enrolled.scene.volume()
    );
    let worked = enrolled.shell(0, "666", &script);
    let refused = "user_allow_other";
    assert!(worked.stderr.contains(refused), "{worked:?}");
    let worked = worked.ok();
    assert!(worked.contains("nosuid,nodev"), "{worked}");
    assert!(worked.ends_with("mine\nroots\n"), "{worked}");
}

#[test]
fn who_may_not_open_the_device_is_told_so() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let enrolled = Enrolled::new();
    let volume = enrolled.scene.volume();
    let refused = enrolled.shell(UID, "600", &format!("./azekura mount {volume} mnt"));
    fails(&refused, "AZ0501");
    let cause = "error: cannot open /dev/fuse: permission denied\n";
    assert!(refused.stderr.contains(cause), "{refused:?}");
}

#[test]
fn who_may_read_a_mount_may_sync_it_and_is_told_what_he_may_not() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut enrolled = Enrolled::new();
    let mount = enrolled.scene.mount("all", &["--allow-other"]);
    fs::write(mount.join("written"), "x").unwrap();
    enrolled.as_user(&["sync", "all"]).ok();
    // What root mounted is root's to take off.
    let umount = enrolled.as_user(&["umount", "all"]);
    fails(&umount, "AZ0402");
    assert!(
        umount.stderr.contains("the user who mounted it"),
        "{umount:?}"
    );
    assert_eq!(fs::read(mount.join("written")).unwrap(), b"x");
    let volume = enrolled.scene.volume();
    let refused = enrolled.as_user(&["mount", &volume, "export"]);
    fails(&refused, "AZ0502");
    assert!(refused.stderr.contains("mkdir -p ~/mnt"), "{refused:?}");
    let missing = enrolled.as_user(&["mount", &volume, "user/none"]);
    fails(&missing, "AZ0502");
    assert!(missing.stderr.contains("mkdir -p user/none"), "{missing:?}");
}
