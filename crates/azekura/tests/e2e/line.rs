//! Connections of one mount that come back at different times after an outage: whichever is first,
//! no read on it has what a loss of power brought back. And answers that do not arrive.

use crate::common::{Scene, obstacle, text};
use crate::disk::Disk;
use crate::random::{Random, seed};
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of each file.
const LEN: usize = 600 << 10;
const ROUNDS: usize = 6;
/// No connection waits longer until it is made.
const DELAY_MAX_MS: u64 = 1_500;

/// Hands connections on to a server, each a random time after it was asked for.
struct Line {
    address: String,
    /// Whether the server's answers get lost; a connection that has lost one loses all others.
    loses_answers: Arc<AtomicBool>,
}

impl Line {
    fn new(server: &str, delays: Random) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = server.to_owned();
        let delays = Arc::new(Mutex::new(delays));
        let loses_answers = Arc::new(AtomicBool::new(false));
        let loses = loses_answers.clone();
        // Ends with the process: nobody connects any more when the test is over.
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let delay = delays.lock().unwrap().below(DELAY_MAX_MS);
                let (server, loses) = (server.clone(), loses.clone());
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(delay));
                    // Without a server the near end is closed.
                    if let Ok(far) = TcpStream::connect(server) {
                        connect(&near, &far, &loses);
                    }
                });
            }
        });
        Self {
            address,
            loses_answers,
        }
    }
}

/// Carries bytes both ways until both have ended.
fn connect(near: &TcpStream, far: &TcpStream, loses_answers: &AtomicBool) {
    let carry = |mut from: &TcpStream, mut to: &TcpStream, loses: Option<&AtomicBool>| {
        let mut buffer = vec![0; 256 << 10];
        let mut is_lost = false;
        // An end that fails has ended.
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            is_lost |= loses.is_some_and(|loses| loses.load(Ordering::SeqCst));
            if !is_lost && to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    };
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| carry(near, far, None));
        carry(far, near, Some(loses_answers));
    });
}

/// The credential for one address of a server, for another.
fn copy_credential(scene: &Scene, from: &str, to: &str) {
    let clusters = scene.path("config/clusters");
    let directory = |address: &str| clusters.join(address.replace(':', "_"));
    fs::create_dir(directory(to)).unwrap();
    for entry in fs::read_dir(directory(from)).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), directory(to).join(entry.file_name())).unwrap();
    }
}

/// A file with a durable zero in each byte of a page, and `A` on top of that and far beyond, which
/// is at the server and not durable.
fn file(mount: &Path, export: &Path, name: &str) -> File {
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true);
    let file = file.open(mount.join(name)).unwrap();
    file.write_all_at(&[b'0'; 4096], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[b'A'; LEN], 0).unwrap();
    for _ in 0..500 {
        let found = fs::read(export.join(name)).unwrap();
        if found.len() == LEN && found[0] == b'A' {
            return file;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{name} does not come to the server");
}

/// A mount behind a line, of a server whose machine can lose power.
struct Place {
    /// It goes first: the scene removes its directories, and this one is mounted there.
    disk: Disk,
    scene: Scene,
    line: Line,
    mount: PathBuf,
    export: PathBuf,
}

impl Place {
    fn new() -> Option<Self> {
        let mut disk = None;
        let mut scene = Scene::prepared(|export| {
            disk = Disk::new(export);
            disk.as_ref().map(|disk| disk.kernel.clone())
        });
        let Some(disk) = disk else {
            println!("skipped: no ext4 of our own here");
            return None;
        };
        let seed = seed("AZEKURA_LINE_SEED");
        println!("AZEKURA_LINE_SEED={seed}");
        let line = Line::new(scene.address(), Random(seed));
        copy_credential(&scene, scene.address(), &line.address);
        let volume = format!("{}/v", line.address);
        let mount = scene.mount_volume(&volume, "mnt", &["--timeout", "60s"]);
        let export = scene.path("export");
        Some(Self {
            disk,
            scene,
            line,
            mount,
            export,
        })
    }
}

#[test]
fn no_connection_answers_what_a_loss_of_power_brought_back() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let Some(mut place) = Place::new() else {
        return;
    };
    let Place {
        disk,
        scene,
        mount,
        export,
        ..
    } = &mut place;
    for round in 0..ROUNDS {
        let name = format!("f{round}");
        let file = file(mount, export, &name);
        scene.signal(Signal::STOP);
        // As when memory is short: what is written is asked of the server.
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut found = vec![0; 64 << 10];
                file.read_exact_at(&mut found, 0).map(|()| found)
            });
            std::thread::sleep(Duration::from_millis(300));
            scene.kill();
            disk.lose_power();
            scene.start();
            let found = reading.join().unwrap().unwrap();
            assert!(found == [b'A'; 64 << 10], "{name}: read of what was lost");
        });
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let mut found = Vec::new();
        let mut again = File::open(mount.join(&name)).unwrap();
        again.read_to_end(&mut found).unwrap();
        assert!(found == [b'A'; LEN], "{name}: read later");
        assert!(
            fs::read(export.join(&name)).unwrap() == found,
            "{name}: at the server"
        );
    }
    scene.azekura(&["sync", text(mount)]).ok();
    scene.umount(mount);
}

/// What is in a small file that is made under a lease, which comes to the server with its name.
fn contents(number: usize) -> Vec<u8> {
    format!("file {number}\n").repeat(1_000).into_bytes()
}

/// The names are on the disk when power is lost, what is in the files is not, and whoever made them
/// does not know that they were made.
#[test]
fn files_whose_answers_are_lost_are_whole_after_a_loss_of_power() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let Some(mut place) = Place::new() else {
        return;
    };
    let Place {
        disk,
        scene,
        line,
        mount,
        export,
    } = &mut place;
    fs::write(mount.join("before"), b"x").unwrap();
    scene.azekura(&["sync", text(mount)]).ok();
    line.loses_answers.store(true, Ordering::SeqCst);
    let names: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    for (number, name) in names.iter().enumerate() {
        fs::write(mount.join(name), contents(number)).unwrap();
    }
    let is_whole = |number: usize| {
        let found = fs::read(export.join(&names[number]));
        found.is_ok_and(|found| found == contents(number))
    };
    let begun = Instant::now();
    while !(0..names.len()).all(is_whole) {
        let missing: Vec<usize> = (0..names.len()).filter(|n| !is_whole(*n)).collect();
        assert!(begun.elapsed() < Duration::from_secs(20), "{missing:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    File::open(&*export).unwrap().sync_all().unwrap();
    scene.kill();
    disk.lose_power();
    line.loses_answers.store(false, Ordering::SeqCst);
    let torn = |(number, name): &(usize, &String)| disk.left[*name] != contents(*number);
    let torn = names.iter().enumerate().filter(torn).count();
    assert!(torn > 0, "nothing was lost: {:?}", disk.left.len());
    println!("{torn} of {} files have lost what was in them", names.len());
    scene.start();
    scene.azekura(&["sync", text(mount)]).ok();
    for (number, name) in names.iter().enumerate() {
        assert!(is_whole(number), "{name} at the server");
        let found = fs::read(mount.join(name)).unwrap();
        assert!(found == contents(number), "{name} in the mount");
    }
    scene.umount(mount);
}
