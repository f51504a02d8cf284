//! A server that is far away, over a line that counts round trips.

use crate::common::{Scene, VOLUME};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An alert of TLS 1.3, encrypted.
const TLS_END_BYTES: usize = 24;

/// How long a line takes each way that nobody wants otherwise.
pub(crate) const ONE_WAY: Duration = Duration::from_millis(40);

/// A line in front of a server, over which everything takes a while.
pub(crate) struct Far {
    pub(crate) address: String,
    /// How often the client has spoken after having listened: round trips that it waited for.
    pub(crate) turns: Arc<AtomicUsize>,
    lines: Arc<Mutex<Vec<TcpStream>>>,
}

impl Far {
    pub(crate) fn new(server: String, one_way: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = Self {
            address: listener.local_addr().unwrap().to_string(),
            turns: Arc::default(),
            lines: Arc::default(),
        };
        let (turns, lines) = (this.turns.clone(), this.lines.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&server).unwrap());
                lines.lock().unwrap().push(near.try_clone().unwrap());
                join((near, far), turns.clone(), one_way);
            }
        });
        this
    }

    /// Breaks all connections.
    pub(crate) fn cut(&self) {
        for line in self.lines.lock().unwrap().drain(..) {
            // Some have ended by themselves.
            let _ = line.shutdown(Shutdown::Both);
        }
    }
}

fn join((near, far): (TcpStream, TcpStream), turns: Arc<AtomicUsize>, one_way: Duration) {
    let listened = Arc::new(AtomicBool::new(true));
    let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let spoke = listened.clone();
    let up = move |bytes| {
        // The end of the encryption is no request, and not always sent.
        if bytes > TLS_END_BYTES && spoke.swap(false, Ordering::SeqCst) {
            turns.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::spawn(move || carry((near, far), one_way, up, || {}));
    let hears = move || listened.store(true, Ordering::SeqCst);
    std::thread::spawn(move || carry((far2, near2), one_way, |_| {}, hears));
}

fn carry(
    (mut from, mut to): (TcpStream, TcpStream),
    one_way: Duration,
    read: impl Fn(usize),
    writes: impl Fn(),
) {
    let mut buffer = [0; 65536];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        read(bytes);
        std::thread::sleep(one_way);
        // Before: the answer to what is written may come at once.
        writes();
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A credential for another way to the scene's server.
pub(crate) fn log_in(scene: &Scene, address: &str) {
    let create = ["join", "create", scene.address(), "--json"];
    let join: serde_json::Value = serde_json::from_str(&scene.azekura(&create).ok()).unwrap();
    let string = join["join_string"].as_str().unwrap();
    scene.azekura(&["login", address, string]).ok();
}

/// A mount whose requests take 80 ms to be answered.
pub(crate) fn far_mount(scene: &mut Scene) -> (Far, PathBuf) {
    mount_over(scene, ONE_WAY)
}

/// The same with another line.
pub(crate) fn mount_over(scene: &mut Scene, one_way: Duration) -> (Far, PathBuf) {
    let far = Far::new(scene.address().to_owned(), one_way);
    log_in(scene, &far.address);
    let volume = format!("{}/{VOLUME}", far.address);
    let mount = scene.mount_volume(&volume, "mnt", &["--timeout", "60s"]);
    (far, mount)
}
