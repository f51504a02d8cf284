//! Who has opened a file reads on, whatever becomes of its mode, owner and ACL.

use crate::common::{obstacle, run};
use crate::rights::{OTHER, USER, Within, open_scene, posix_acl, set_mode, set_xattr, shell};
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::{Duration, Instant};

/// Neither mount has read anything when the file is closed to whoever has it open.
#[test]
fn who_has_a_file_open_reads_on_whatever_becomes_of_its_mode() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let mounts = ["m", "n"].map(|name| scene.mount(name, &["--allow-other"]));
    type Close = fn(&Path);
    let close: [(&str, Close); 3] = [
        ("chmod", |file| set_mode(file, 0o600)),
        ("chown", |file| {
            chown(file, Some(OTHER), Some(OTHER)).unwrap();
            set_mode(file, 0o600);
        }),
        ("ACL", |file| {
            set_xattr(file, "system.posix_acl_access", &posix_acl(0, 0, 0)).unwrap();
        }),
    ];
    let whole = vec![b'x'; 200_000];
    for (what, close) in close {
        for (opener, closer) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let name = format!("{what} {opener} {closer}");
            let file = mounts[0].join(&name);
            fs::write(&file, &whole).unwrap();
            set_mode(&file, 0o644);
            let script = format!("exec 7<'{name}'; read -r closed; cat <&7 | wc -c");
            let mut reader = Within::new(&mounts[opener], &script);
            let open = format!("/proc/{}/fd/7", reader.shell.id());
            let deadline = Instant::now() + Duration::from_secs(20);
            while fs::read_link(&open).is_err() {
                assert!(Instant::now() < deadline, "{name}: it is not open");
                std::thread::sleep(Duration::from_millis(1));
            }
            close(&mounts[closer].join(&name));
            reader.go_on();
            let read = reader.end();
            assert_eq!(read.stdout.trim(), "200000", "{name}: {read:?}");
            let again = run(&mut shell(
                USER,
                None,
                &mounts[opener],
                &format!("cat '{name}'"),
            ));
            assert!(!again.status.success(), "{name}");
        }
    }
}

/// Opens the file again and again until it is told to end, and reads each time where nobody has.
const OPENER: &str = r#"
exec perl -e '
    my ($opened, $denied) = (0, 0);
    until (-e "end") {
        if (!open(my $file, "<", "file")) { $denied++; next }
        else {
            $opened++;
            select(undef, undef, undef, rand(0.004));
            sysseek($file, int(rand(1 << 18)) << 12, 0);
            defined(sysread($file, my $byte, 1)) or die "after $opened opens: $!\n";
        }
    }
    print "$opened $denied";
'
"#;

#[test]
fn nobody_is_let_in_and_then_refused_while_mode_or_acl_changes() {
    let mode: fn(&Path, bool) = |file, lets_in| {
        set_mode(file, if lets_in { 0o644 } else { 0o600 });
    };
    let acl: fn(&Path, bool) = |file, lets_in| {
        let acl = posix_acl(if lets_in { 4 } else { 0 }, 4, 4);
        set_xattr(file, "system.posix_acl_access", &acl).unwrap();
    };
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let file = fs::File::create(scene.path("export/file")).unwrap();
    file.set_len(1 << 30).unwrap();
    let mounts = ["m", "n"].map(|name| scene.mount(name, &["--allow-other"]));
    let end = mounts[0].join("end");
    for change in [mode, acl] {
        let openers = [0, 1, 0, 1].map(|mount| Within::new(&mounts[mount], OPENER));
        let begun = Instant::now();
        let mut round = 0;
        while begun.elapsed() < Duration::from_secs(5) {
            for (mount, lets_in) in [(round % 2, false), (round / 2 % 2, true)] {
                change(&mounts[mount].join("file"), lets_in);
                std::thread::sleep(Duration::from_millis(8));
            }
            round += 1;
        }
        change(&mounts[0].join("file"), true);
        fs::write(&end, "").unwrap();
        for opener in openers {
            let ended = opener.end();
            assert!(ended.status.success(), "{ended:?}");
            println!("{round} rounds; opened, refused: {}", ended.stdout);
            let counts = ended.stdout.split_whitespace();
            let counts: Vec<u64> = counts.map(|count| count.parse().unwrap()).collect();
            assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
        }
        fs::remove_file(&end).unwrap();
    }
}
