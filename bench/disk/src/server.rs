//! A web server with files of a directory, as far away as it is told: each answer begins one round
//! trip after its request, and a new connection costs one more.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What a server has done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    in_flight: AtomicUsize,
    pub(crate) in_flight_most: AtomicUsize,
    is_over: AtomicBool,
}

/// A server until it is dropped; its threads end with their connections.
pub(crate) struct Server {
    address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
}

impl Server {
    pub(crate) fn new(directory: &Path, rtt: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let counts: Arc<Counts> = Arc::default();
        let (directory, counting) = (directory.to_owned(), Arc::clone(&counts));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if counting.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let (directory, counts) = (directory.clone(), Arc::clone(&counting));
                // Whoever goes away in the midst of an answer is no error.
                thread::spawn(move || stream.and_then(|s| serve(s, &directory, rtt, &counts)));
            }
        });
        Ok(Self { address, counts })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn serve(stream: TcpStream, directory: &Path, rtt: Duration, counts: &Counts) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writing = stream.try_clone()?;
    let mut reading = BufReader::new(stream);
    let mut distance = rtt * 2;
    while let Some((path, range)) = request(&mut reading, directory)? {
        let now = counts.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        counts.in_flight_most.fetch_max(now, Ordering::SeqCst);
        counts.requests.fetch_add(1, Ordering::SeqCst);
        thread::sleep(distance);
        distance = rtt;
        counts.in_flight.fetch_sub(1, Ordering::SeqCst);
        answer(&mut writing, &path, range, counts)?;
    }
    Ok(())
}

type Range = Option<(u64, u64)>;

/// The file and the first and last byte that the next request asks for; none at the end.
fn request(stream: &mut impl BufRead, directory: &Path) -> io::Result<Option<(PathBuf, Range)>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let bad = || io::Error::from(ErrorKind::InvalidData);
    let path = head.split(' ').nth(1).ok_or_else(bad)?;
    let path = directory.join(path.trim_start_matches('/'));
    let head = head.to_lowercase();
    let range = head.split("range: bytes=").nth(1);
    let range = range.and_then(|range| range.lines().next()?.split_once('-'));
    let range = range.and_then(|(first, last)| first.parse().ok().zip(last.trim().parse().ok()));
    Ok(Some((path, range)))
}

fn answer(to: &mut TcpStream, path: &Path, range: Range, counts: &Counts) -> io::Result<()> {
    let Ok(file) = File::open(path) else {
        return to.write_all(b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
    };
    let length = file.metadata()?.len();
    let (status, first, end) = match range {
        Some((first, last)) => ("206 Part", first.min(length), (last + 1).min(length)),
        None => ("200 All", 0, length),
    };
    let mut body = vec![0; (end - first) as usize];
    file.read_exact_at(&mut body, first)?;
    counts.bytes.fetch_add(end - first, Ordering::SeqCst);
    let last = end.saturating_sub(1);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Range: bytes {first}-{last}/{length}\r\n\
         Content-Length: {}\r\n\r\n",
        end - first
    );
    to.write_all(head.as_bytes())?;
    to.write_all(&body)
}
