//! Connections of one mount that come back at different times after an outage: whichever is first,
//! no read on it has what a loss of power brought back.

use crate::common::{Scene, obstacle, text};
use crate::disk::Disk;
use crate::random::{Random, seed};
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of each file.
const LEN: usize = 600 << 10;
const ROUNDS: usize = 6;
/// No connection waits longer until it is made.
const DELAY_MAX_MS: u64 = 1_500;

/// Hands connections on to a server, each a random time after it was asked for.
struct Line {
    address: String,
}

impl Line {
    fn new(server: &str, delays: Random) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = server.to_owned();
        let delays = Arc::new(Mutex::new(delays));
        // Ends with the process: nobody connects any more when the test is over.
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let delay = delays.lock().unwrap().below(DELAY_MAX_MS);
                let server = server.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(delay));
                    // Without a server the near end is closed.
                    if let Ok(far) = TcpStream::connect(server) {
                        connect(&near, &far);
                    }
                });
            }
        });
        Self { address }
    }
}

/// Carries bytes both ways until both have ended.
fn connect(near: &TcpStream, far: &TcpStream) {
    let carry = |mut from: &TcpStream, mut to: &TcpStream| {
        let mut buffer = vec![0; 256 << 10];
        // An end that fails has ended.
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    };
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| carry(near, far));
        carry(far, near);
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

#[test]
fn no_connection_answers_what_a_loss_of_power_brought_back() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut disk = None;
    let mut scene = Scene::prepared(|export| {
        disk = Disk::new(export);
        disk.as_ref().map(|disk| disk.kernel.clone())
    });
    let Some(mut disk) = disk else {
        return println!("skipped: no ext4 of our own here");
    };
    let seed = seed("AZEKURA_LINE_SEED");
    println!("AZEKURA_LINE_SEED={seed}");
    let line = Line::new(scene.address(), Random(seed));
    copy_credential(&scene, scene.address(), &line.address);
    let volume = format!("{}/v", line.address);
    let mount = scene.mount_volume(&volume, "mnt", &["--timeout", "60s"]);
    let export = scene.path("export");
    for round in 0..ROUNDS {
        let name = format!("f{round}");
        let file = file(&mount, &export, &name);
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
    scene.azekura(&["sync", text(&mount)]).ok();
    scene.umount(&mount);
}
