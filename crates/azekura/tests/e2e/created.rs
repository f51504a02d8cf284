//! Files that exist only at the client when they are closed, removed or handed on.

use crate::common::{obstacle, run, text};
use crate::mapping::Mapping;
use crate::rights::{USER, ahead_directory, created_ahead, open_scene, set_mode};
use rustix::process::Uid;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

/// Files, each written in some order, of modes that let nobody write. Each line: the name, and what
/// the file says afterwards.
const WRITE_OUT_OF_ORDER: &str = r#"
    use Fcntl;
    my ($user) = @ARGV;
    umask 0;
    $> = $user;
    sub make {
        my ($name, $mode, $at_last, @writes) = @_;
        sysopen(my $file, $name, O_CREAT | O_EXCL | O_RDWR, $mode) or die "$name: $!";
        while (my ($offset, $data) = splice(@writes, 0, 2)) {
            sysseek($file, $offset, 0) or die $!;
            syswrite($file, $data) == length $data or die "$name: write: $!";
        }
        !defined $at_last || chmod($at_last, $file) or die $!;
        close($file) or die "$name: close: $!";
    }
    my @ways = (
        header => [0, "." x 16, 16, "d" x 5000, 0, "H" x 16],
        again => [0, "x" x 3000, 0, "y" x 3000],
        hole => [4096, "z" x 100],
        long => [0, "a" x 40000, 60000, "b" x 30000],
    );
    while (my ($name, $writes) = splice(@ways, 0, 2)) {
        make("$name-0444", 0444, undef, @$writes);
        make("$name-0000", 0000, undef, @$writes);
        make("$name-late", 0644, 0444, @$writes);
    }
"#;

fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut all: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("its contents"))
        })
        .collect();
    all.sort();
    all
}

/// The oracle is a local file system.
#[test]
fn what_is_closed_is_stored_whatever_the_mode_and_the_order_of_writes() {
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
    for top in [&local, &directory] {
        let mut perl = Command::new("perl");
        perl.args(["-e", WRITE_OUT_OF_ORDER, &USER.to_string()]);
        run(perl.current_dir(top)).ok();
    }
    scene.azekura(&["sync", text(&mount)]).ok();
    fs::write(local.join("first"), "").unwrap();
    let expected = contents(&local);
    assert_eq!(expected.len(), 13);
    for (found, wanted) in contents(&scene.path("export/ahead")).iter().zip(&expected) {
        assert_eq!(found.0, wanted.0);
        assert!(found.1 == wanted.1, "{}: {} bytes", found.0, found.1.len());
    }
    assert!(created_ahead(&mount) >= before + 12, "created ahead");
}

#[test]
fn what_is_closed_is_read_elsewhere_at_once_whatever_the_order_of_writes() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let (here, there) = (scene.mount("here", &[]), scene.mount("there", &[]));
    for round in 0..60 {
        let directory = here.join(format!("{round}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("first"), "").unwrap();
        let name = format!("{round}/file");
        let file = File::create_new(here.join(&name)).unwrap();
        let offset = if round % 2 == 0 { 0 } else { 4096 };
        file.write_all_at(&[1; 100], offset).unwrap();
        file.write_all_at(&[2; 100], offset).unwrap();
        drop(file);
        let mut expected = vec![0; offset as usize];
        expected.extend([2; 100]);
        assert!(fs::read(there.join(&name)).unwrap() == expected, "{round}");
    }
}

#[test]
fn a_temporary_file_outlives_its_name() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let mount = scene.mount("mnt", &[]);
    let directory = ahead_directory(&scene, &mount);
    let ways = [(0, 70_000), (0, 200_000), (0, 2_000_000), (20_000, 100)];
    for round in 0..80 {
        let (offset, bytes) = ways[round % ways.len()];
        let data: Vec<u8> = (0..bytes).map(|index| (index / 7) as u8).collect();
        let path = directory.join(format!("{round}"));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true);
        let file = file.open(&path).unwrap();
        file.write_all_at(&data, offset).unwrap();
        match round % 8 {
            0..4 => fs::remove_file(&path).unwrap(),
            _ => {
                let other = directory.join("other");
                fs::write(&other, "other").unwrap();
                fs::rename(&other, &path).unwrap();
            }
        }
        file.write_all_at(b"more", offset).unwrap();
        let mut found = vec![0; bytes];
        file.read_exact_at(&mut found, offset).unwrap();
        let expected = [b"more", &data[4..]].concat();
        assert!(found == expected, "round {round}: read back");
        file.sync_all().unwrap();
        file.read_exact_at(&mut found, offset).unwrap();
        assert!(found == expected, "round {round}: read back when safe");
    }
}

/// A daemon opens its file as root and gives up its rights.
const HAND_ON: &str = r#"
    use Fcntl;
    my ($user) = @ARGV;
    sysopen(my $file, "file", O_CREAT | O_EXCL | O_RDWR, 0600) or die "create: $!";
    $> = $user;
    truncate($file, 5000) or die "truncate: $!";
    close($file) or die "close: $!";
"#;

#[test]
fn a_descriptor_that_was_handed_on_may_do_what_it_was_opened_for() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let mount = scene.mount("mnt", &["--allow-other"]);
    let directory = ahead_directory(&scene, &mount);
    let mut perl = Command::new("perl");
    perl.args(["-e", HAND_ON, &USER.to_string()]);
    run(perl.current_dir(&directory)).ok();
    let found = fs::metadata(scene.path("export/ahead/file")).unwrap();
    assert_eq!(found.len(), 5000);
}

/// Makes a file that nobody may write, as another user than root, and stores into it through a
/// mapping when its descriptor is closed.
fn store_late(path: &Path) {
    let uid = Uid::from_raw(USER);
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true).mode(0o444);
    let file = options.open(path).expect("a new file");
    file.write_all_at(&[7; 300_000], 0).expect("room");
    let mut mapping = Mapping::new(&file, 300_000);
    drop(file);
    mapping.bytes()[200_000..200_004].copy_from_slice(b"late");
}

#[test]
fn what_is_stored_through_a_mapping_of_a_closed_file_has_the_rights_of_its_open() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = open_scene();
    let mount = scene.mount("mnt", &["--allow-other"]);
    let directory = ahead_directory(&scene, &mount);
    for round in 0..10 {
        let path = directory.join("mapped");
        let there = path.clone();
        std::thread::spawn(move || store_late(&there))
            .join()
            .unwrap();
        scene.azekura(&["sync", text(&mount)]).ok();
        let found = fs::read(scene.path("export/ahead/mapped")).unwrap();
        assert!(found[200_000..200_004] == *b"late", "round {round}");
        fs::remove_file(&path).unwrap();
    }
}
