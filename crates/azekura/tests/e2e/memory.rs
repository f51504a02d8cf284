//! How much memory a mount takes.

use crate::checks::figures;
use crate::common::{Scene, obstacle};
use base::limits::{CLIENT_BUFFER_BYTES_MAX, CLIENT_UNWRITTEN_BYTES_MAX};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a mount has beside its bounded data: the program, its threads, requests on their way, and
/// what an allocator keeps.
const REST_BYTES_MAX: u64 = 96 << 20;
const BLOCK: usize = 1 << 20;
const READ: usize = 128 << 10;
/// Files that are begun. Of each at least a quarter of a megabyte is read ahead, however slow the
/// line seems on a busy machine; all of that is more than half of what a mount may hold.
const BEGUN: u64 = 600;
const _: () = assert!(BEGUN * (256 << 10) > CLIENT_BUFFER_BYTES_MAX / 2);

/// The most memory that the process of a mount has had.
fn most_bytes(mount: &Path) -> u64 {
    let status = format!("/proc/{}/status", figures(mount)["pid"]);
    let status = fs::read_to_string(status).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

/// A figure when it has stayed the same for a while.
fn settled(mount: &Path, figure: &str) -> u64 {
    let (mut last, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_millis(600) {
        let now = figures(mount)[figure].as_u64().unwrap();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    last
}

/// Waits until a figure is above this, which it comes to slowly on a busy machine; not for ever.
fn reaches(mount: &Path, figure: &str, least: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while figures(mount)[figure].as_u64().unwrap() <= least && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn read_ahead_and_unwritten_data_are_bounded_and_a_fast_writer_waits() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let export = scene.path("export");
    let names = || (0..BEGUN).map(|number| number.to_string());
    for name in names() {
        File::create(export.join(name))
            .unwrap()
            .set_len(8 << 20)
            .unwrap();
    }
    let mount = scene.mount("mnt", &["--timeout", "20s"]);
    // Each is read from its start, so more of it is fetched; and nobody reads on.
    let begun = names().map(|name| {
        let file = File::open(mount.join(name)).unwrap();
        for part in 0..2 {
            file.read_exact_at(&mut vec![1; READ], part * READ as u64)
                .unwrap();
        }
        file
    });
    let begun: Vec<File> = begun.collect();
    reaches(&mount, "buffered_bytes", CLIENT_BUFFER_BYTES_MAX / 2);
    let ahead = settled(&mount, "buffered_bytes");
    assert!(ahead <= CLIENT_BUFFER_BYTES_MAX, "{ahead} bytes read ahead");
    assert!(
        ahead > CLIENT_BUFFER_BYTES_MAX / 2,
        "only {ahead} bytes read ahead"
    );

    let file = File::create(mount.join("written")).unwrap();
    file.sync_all().unwrap();
    scene.signal(Signal::STOP);
    let blocks = AtomicU64::new(0);
    let wanted = (CLIENT_UNWRITTEN_BYTES_MAX / BLOCK as u64) * 3 / 2;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let block = vec![7; BLOCK];
            for number in 0..wanted {
                file.write_all_at(&block, number * BLOCK as u64).unwrap();
                blocks.store(number + 1, Ordering::Relaxed);
            }
        });
        let unwritten = settled(&mount, "unwritten_bytes");
        let taken = blocks.load(Ordering::Relaxed) * BLOCK as u64;
        let waits = !writer.is_finished();
        scene.signal(Signal::CONT);
        assert!(waits, "{wanted} blocks were taken without a server");
        assert_eq!(unwritten, taken);
        assert!(
            unwritten <= CLIENT_UNWRITTEN_BYTES_MAX,
            "{unwritten} bytes unwritten"
        );
        assert!(
            unwritten > CLIENT_UNWRITTEN_BYTES_MAX / 2,
            "only {unwritten} bytes"
        );
        writer.join().unwrap();
    });
    file.sync_all().unwrap();
    let written = fs::metadata(export.join("written")).unwrap().len();
    assert_eq!(written, wanted * BLOCK as u64);
    let bound = CLIENT_BUFFER_BYTES_MAX + CLIENT_UNWRITTEN_BYTES_MAX + REST_BYTES_MAX;
    let most = most_bytes(&mount);
    assert!(most <= bound, "{most} bytes, more than {bound}");
    drop(begun);
}
