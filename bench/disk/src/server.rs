//! A web server with files of a directory, which counts what it is asked for. It can be as far away
//! as it is told: each answer begins one round trip after its request, and a new connection costs
//! one more. Behind an emulated line it is told nothing, and the line does that.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// So much of a file is in memory for an answer.
const PIECE_BYTES: u64 = 256 << 10;

/// What a server has done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    in_flight: AtomicUsize,
    pub(crate) in_flight_most: AtomicUsize,
    /// How often each chunk was asked for.
    chunks: Mutex<HashMap<PathBuf, u64>>,
    is_over: AtomicBool,
}

impl Counts {
    fn chunks(&self) -> MutexGuard<'_, HashMap<PathBuf, u64>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many different chunks were asked for, and how often that one that was asked for most.
    pub(crate) fn chunks_asked(&self) -> (usize, u64) {
        let chunks = self.chunks();
        (chunks.len(), chunks.values().copied().max().unwrap_or(0))
    }

    /// Begins to count chunks anew.
    pub(crate) fn forget_chunks(&self) {
        self.chunks().clear();
    }
}

/// A server until it is dropped; its threads end with their connections.
pub(crate) struct Server {
    address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
}

impl Server {
    /// On this machine, and this far away.
    pub(crate) fn new(directory: &Path, rtt: Duration) -> io::Result<Self> {
        Self::on(TcpListener::bind("127.0.0.1:0")?, directory, rtt)
    }

    /// Where somebody listens.
    pub(crate) fn on(listener: TcpListener, directory: &Path, rtt: Duration) -> io::Result<Self> {
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
        // One behind a line is not reached from here, and ends with the process.
        drop(TcpStream::connect_timeout(
            &self.address,
            Duration::from_millis(100),
        ));
    }
}

/// What is asked for.
struct Asked {
    path: PathBuf,
    is_head: bool,
    /// First and last byte.
    range: Option<(u64, u64)>,
}

fn serve(stream: TcpStream, directory: &Path, rtt: Duration, counts: &Counts) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writing = stream.try_clone()?;
    let mut reading = BufReader::new(stream);
    let mut distance = rtt * 2;
    while let Some(asked) = request(&mut reading, directory)? {
        let now = counts.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        counts.in_flight_most.fetch_max(now, Ordering::SeqCst);
        counts.requests.fetch_add(1, Ordering::SeqCst);
        if asked.path.extension().is_some_and(|is| is == "cacnk") {
            *counts.chunks().entry(asked.path.clone()).or_default() += 1;
        }
        thread::sleep(distance);
        distance = rtt;
        counts.in_flight.fetch_sub(1, Ordering::SeqCst);
        answer(&mut writing, &asked, counts)?;
    }
    Ok(())
}

/// What the next request asks for; none at the end.
fn request(stream: &mut impl BufRead, directory: &Path) -> io::Result<Option<Asked>> {
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
    Ok(Some(Asked {
        path,
        is_head: head.starts_with("head "),
        range,
    }))
}

fn answer(to: &mut TcpStream, asked: &Asked, counts: &Counts) -> io::Result<()> {
    let opened = File::open(&asked.path).and_then(|file| Ok((file.metadata()?, file)));
    let file = opened.ok().filter(|(metadata, _)| metadata.is_file());
    let Some((metadata, file)) = file else {
        return to.write_all(b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
    };
    let length = metadata.len();
    let (status, first, end) = match asked.range {
        Some((first, last)) => ("206 Part", first.min(length), (last + 1).min(length)),
        None => ("200 All", 0, length),
    };
    let last = end.saturating_sub(1);
    let head = format!(
        "HTTP/1.1 {status}\r\nAccept-Ranges: bytes\r\n\
         Content-Range: bytes {first}-{last}/{length}\r\nContent-Length: {}\r\n\r\n",
        end - first
    );
    let mut bytes = head.into_bytes();
    let mut at = first;
    if asked.is_head {
        return to.write_all(&bytes);
    }
    counts.bytes.fetch_add(end - first, Ordering::SeqCst);
    // The head goes with the first piece.
    loop {
        let begin = bytes.len();
        let len = (end - at).min(PIECE_BYTES);
        bytes.resize(begin + len as usize, 0);
        file.read_exact_at(&mut bytes[begin..], at)?;
        to.write_all(&bytes)?;
        bytes.clear();
        at += len;
        if at >= end {
            return Ok(());
        }
    }
}
