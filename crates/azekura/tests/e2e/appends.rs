//! Files that several machines append to, also while one of them empties it and writes it anew:
//! what is appended lies behind what was written, or was cut off or written over.

use crate::checks::signal_mount;
use crate::common::{Scene, obstacle};
use crate::holes::fill;
use base::limits::APPEND_WAIT_TIME_MAX;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is written anew each time: longer than all that is appended meanwhile.
const BLOCK_BYTES: usize = 20_000;
const RECORD_BYTES: usize = 6;

fn block(round: usize) -> Vec<u8> {
    vec![b'A' + (round % 26) as u8; BLOCK_BYTES]
}

fn record(number: usize) -> [u8; RECORD_BYTES] {
    let mut record = [b'.'; RECORD_BYTES];
    let text = format!("{:05}", number % 100_000);
    record[..5].copy_from_slice(text.as_bytes());
    record
}

/// Opens, appends, closes.
fn append(path: &Path, number: usize) -> std::io::Result<()> {
    let mut log = OpenOptions::new().append(true).open(path)?;
    log.write_all(&record(number))?;
    // The close says what became of it.
    nix::unistd::close(log).map_err(Into::into)
}

/// Writes a block, and nothing behind it. As somebody does who empties the file, or who finds it
/// empty.
fn write_anew(path: &Path, round: usize) -> std::io::Result<()> {
    let truncates = round.is_multiple_of(2);
    if !truncates {
        nix::unistd::truncate(path, 0)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .truncate(truncates)
        .open(path)?;
    file.write_all(&block(round))?;
    nix::unistd::close(file).map_err(Into::into)
}

/// What is there after a block was written: the block, and behind it whole records, each once.
#[track_caller]
fn check(paths: [&Path; 2], round: usize) {
    let found = fs::read(paths[0]).unwrap();
    let (head, tail) = found.split_at(BLOCK_BYTES.min(found.len()));
    if head != block(round) {
        let runs = runs(&found);
        // Whether it stays, and what the other machine sees.
        thread::sleep(Duration::from_secs(1));
        let later = paths.map(|path| self::runs(&fs::read(path).unwrap()));
        panic!("round {round}: {runs}; a second later {later:?}");
    }
    let mut seen = std::collections::BTreeSet::new();
    for bytes in tail.chunks(RECORD_BYTES) {
        // It may be on its way.
        let is_record = bytes == [0; RECORD_BYTES] || (bytes[5] == b'.' && seen.insert(bytes));
        assert!(
            is_record,
            "round {round}: {:?}",
            String::from_utf8_lossy(tail)
        );
    }
}

/// Equal bytes one after the other, each with its count.
fn runs(found: &[u8]) -> String {
    let runs = found.chunk_by(|a, b| a == b);
    let texts = runs.map(|run| format!("{}x{}", run[0].escape_ascii(), run.len()));
    texts.collect::<Vec<_>>().join(" ")
}

/// Has one machine write a file anew so often while the other appends; says how much was appended.
fn fight(
    scene: &mut Scene,
    rounds: usize,
    mut between: impl FnMut(&mut Scene, usize) + Send,
) -> usize {
    let volume = scene.parallel();
    let [near, far] =
        ["near", "far"].map(|name| scene.mount_volume(&volume, name, &["--timeout", "60s"]));
    let (near, far) = (near.join("file"), far.join("file"));
    fs::write(&near, "").unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let appending = scope.spawn(|| {
            let mut numbers = 0..;
            while !is_over.load(Ordering::Relaxed) {
                // What was lost with a server, and others have changed since, is an error.
                let _ = append(&far, numbers.next().expect("there are numbers enough"));
            }
            numbers.start
        });
        let fought = scope.spawn(|| {
            for round in 0..rounds {
                between(scene, round);
                match write_anew(&near, round) {
                    Ok(()) => check([&near, &far], round),
                    Err(error) => println!("round {round}: {error}"),
                }
            }
        });
        let fought = fought.join();
        is_over.store(true, Ordering::Relaxed);
        let appended = appending.join().unwrap();
        fought.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        appended
    })
}

#[test]
fn what_is_appended_while_a_file_is_emptied_never_lands_in_what_was_written_since() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let appended = fight(&mut Scene::with_two_stores("64MiB"), 100, |_, _| {});
    assert!(appended > 50, "{appended}");
}

#[test]
fn nor_does_it_when_the_server_is_killed() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_two_stores("64MiB");
    let kill = |scene: &mut Scene, round: usize| {
        if round % 20 == 19 {
            scene.kill();
            thread::sleep(Duration::from_millis(50));
            scene.start();
        }
    };
    let appended = fight(&mut scene, 45, kill);
    assert!(appended > 20, "{appended}");
}

/// A machine dies while it appends, and another one whose calls have less time than others wait for
/// that comes behind it.
fn behind_who_has_died(scene: &mut Scene, name: &str, act: impl Fn(&Path) -> std::io::Result<()>) {
    let volume = scene.parallel();
    let near = scene.mount_volume(&volume, "near", &["--timeout", "2s"]);
    // It may die between two appends.
    for round in 0..10 {
        let name = format!("{name}-{round}");
        fs::write(near.join(&name), "").unwrap();
        let far = scene.mount_volume(&volume, "far", &[]);
        let mut log = append_to(&far.join(&name));
        let appending = thread::spawn(move || {
            let piece = vec![7; 1 << 20];
            while log.write_all(&piece).is_ok() {}
        });
        thread::sleep(Duration::from_millis(300));
        signal_mount(&far, Signal::KILL);
        appending.join().unwrap();
        scene.umount(&far);
        let begun = Instant::now();
        let acted = act(&near.join(&name));
        acted.unwrap_or_else(|error| panic!("{name}: {error} after {:?}", begun.elapsed()));
        fs::remove_file(near.join(&name)).unwrap();
        if begun.elapsed() > APPEND_WAIT_TIME_MAX / 2 {
            scene.umount(&near);
            return;
        }
    }
    panic!("no append was under way when its machine died");
}

#[test]
fn who_comes_behind_an_append_of_a_machine_that_has_died_is_not_told_that_nobody_answers() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_two_stores("256MiB");
    behind_who_has_died(&mut scene, "appended", |path| append(path, 1));
    behind_who_has_died(&mut scene, "synced", |path| {
        let mut log = append_to(path);
        log.write_all(&record(1))?;
        log.sync_all()
    });
    behind_who_has_died(&mut scene, "longer", |path| {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(1 << 30)
    });
}

/// Full stores are an error of a machine that is there: others do not wait for it, and nothing of
/// what it could not append is left.
#[test]
fn what_finds_no_room_when_it_is_appended_is_nobodys_wait() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_two_stores("32MiB");
    let volume = scene.parallel();
    let [near, far] =
        ["near", "far"].map(|name| scene.mount_volume(&volume, name, &["--timeout", "60s"]));
    fs::write(near.join("log"), "begin\n").unwrap();
    fill(&near.join("greedy"));
    let mut log = append_to(&near.join("log"));
    let outcome = log.write_all(&vec![7; 256 << 10]).and(log.sync_all());
    let error = outcome.expect_err("there is no room");
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    fs::remove_file(near.join("greedy")).unwrap();
    // What was freed can be had a moment later.
    let begun = Instant::now();
    loop {
        let tried = Instant::now();
        let appended = append(&far.join("log"), 1);
        assert!(
            tried.elapsed() < APPEND_WAIT_TIME_MAX / 2,
            "it waited for somebody"
        );
        match appended {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it is not free");
        thread::sleep(Duration::from_millis(100));
    }
    let expected = [&b"begin\n"[..], &record(1)].concat();
    for mount in [near, far] {
        let found = fs::read(mount.join("log")).unwrap();
        assert!(found == expected, "{}", runs(&found));
    }
}

/// Lines of two machines, of lengths that cross pages everywhere.
#[test]
fn lines_of_two_machines_are_whole() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    const LINES: usize = 3000;
    let mut scene = Scene::new();
    File::create(scene.path("export/log")).unwrap();
    let mounts = ["one", "two"].map(|name| scene.mount(name, &[]));
    let line = |of: usize, number: usize| {
        let filling = "x".repeat(20 + (number * 37 + of * 11) % 180);
        format!("{of} {number} {filling}\n")
    };
    thread::scope(|threads| {
        for (of, mount) in mounts.iter().enumerate() {
            threads.spawn(move || {
                let mut log = append_to(&mount.join("log"));
                for number in 0..LINES {
                    log.write_all(line(of, number).as_bytes()).unwrap();
                }
                nix::unistd::close(log).unwrap();
            });
        }
    });
    let log = fs::read_to_string(scene.path("export/log")).unwrap();
    let mut next = [0; 2];
    for found in log.split_inclusive('\n') {
        let of = usize::from(found.starts_with("1 "));
        assert_eq!(found, line(of, next[of]), "after {next:?}");
        next[of] += 1;
    }
    assert_eq!(next, [LINES; 2]);
    // Whoever appends can read, too.
    let both = OpenOptions::new()
        .read(true)
        .append(true)
        .open(mounts[0].join("log"))
        .unwrap();
    let mut begin = vec![0; 10_000];
    both.read_exact_at(&mut begin, 0).unwrap();
    assert_eq!(begin, &log.as_bytes()[..begin.len()]);
}

fn append_to(path: &Path) -> File {
    OpenOptions::new().append(true).open(path).unwrap()
}
