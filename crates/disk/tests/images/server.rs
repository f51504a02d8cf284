//! A web server on loopback that does what a test tells it, over TLS if it is given a certificate.
//!
//! HTTP/1.1 with connections that stay open, one thread each. Dropping the server ends its threads.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A request.
pub(crate) struct Asked {
    pub(crate) path: String,
    /// First and last byte.
    pub(crate) range: Option<(u64, u64)>,
    /// How many requests for this path came before.
    pub(crate) before: usize,
    /// All headers, in lower case.
    pub(crate) headers: String,
}

/// What the server does.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whole lines, each with its end.
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    /// Sent of the body; then the connection is closed.
    pub(crate) cut_at: Option<usize>,
    /// The body comes with this pause behind each of its bytes.
    pub(crate) pause: Duration,
    /// Nothing is answered, and the connection stays open.
    pub(crate) is_silent: bool,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            headers: String::new(),
            body: Vec::new(),
            cut_at: None,
            pause: Duration::ZERO,
            is_silent: false,
        }
    }

    pub(crate) fn body(body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..Self::status(200)
        }
    }

    /// A file below a directory, or the part of it that was asked for.
    pub(crate) fn file(directory: &Path, asked: &Asked) -> Self {
        let Ok(body) = std::fs::read(directory.join(&asked.path[1..])) else {
            return Self::status(404);
        };
        match asked.range {
            None => Self::body(body),
            Some((first, last)) if (first as usize) < body.len() => {
                let end = body.len().min(last as usize + 1);
                Self {
                    headers: format!(
                        "Content-Range: bytes {first}-{}/{}\r\n",
                        end - 1,
                        body.len()
                    ),
                    status: 206,
                    ..Self::body(&body[first as usize..end])
                }
            }
            Some(_) => Self::status(416),
        }
    }
}

type Behaviour = dyn Fn(&Asked) -> Answer + Send + Sync;

struct Shared {
    behaviour: Box<Behaviour>,
    /// How often each path was asked for.
    counts: Mutex<BTreeMap<String, usize>>,
    in_flight: AtomicUsize,
    in_flight_most: AtomicUsize,
    /// Before each answer.
    delay: Duration,
    is_over: AtomicBool,
    connections: Mutex<Vec<(TcpStream, JoinHandle<()>)>>,
    tls: Option<Arc<rustls::ServerConfig>>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(behaviour: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(Box::new(behaviour), Duration::ZERO, None)
    }

    /// Files of a directory, each answer after a delay.
    pub(crate) fn files(directory: impl Into<PathBuf>, delay: Duration) -> Self {
        let directory = directory.into();
        let behaviour = move |asked: &Asked| Answer::file(&directory, asked);
        Self::start(Box::new(behaviour), delay, None)
    }

    pub(crate) fn start(
        behaviour: Box<Behaviour>,
        delay: Duration,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            behaviour,
            counts: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            in_flight_most: AtomicUsize::new(0),
            delay,
            is_over: AtomicBool::new(false),
            connections: Mutex::default(),
            tls,
        });
        let sharing = Arc::clone(&shared);
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { break };
                if sharing.is_over.load(Ordering::SeqCst) {
                    break;
                }
                let serving = Arc::clone(&sharing);
                let kept = stream.try_clone().unwrap();
                let thread = thread::spawn(move || serving.connection(stream));
                sharing.connections.lock().unwrap().push((kept, thread));
            }
        });
        Self {
            address,
            shared,
            listening: Some(listening),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// How often each path was asked for.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        self.shared.counts.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.counts().values().sum()
    }

    /// The most requests that were under way at once.
    pub(crate) fn in_flight_most(&self) -> usize {
        self.shared.in_flight_most.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Whoever waits for the next connection gets one.
        drop(TcpStream::connect(self.address));
        if let Some(listening) = self.listening.take() {
            listening.join().unwrap();
        }
        for (stream, thread) in self.shared.connections.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
            drop(thread.join());
        }
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Shared {
    fn connection(&self, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        match &self.tls {
            None => self.serve(stream),
            Some(config) => {
                let session = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
                self.serve(rustls::StreamOwned::new(session, stream));
            }
        }
    }

    /// Serves until either side has enough; errors are the test's doing.
    fn serve(&self, stream: impl Stream) {
        let mut stream = BufReader::new(stream);
        while let Some(asked) = self.request(&mut stream) {
            let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.in_flight_most.fetch_max(now, Ordering::SeqCst);
            thread::sleep(self.delay);
            let answer = (self.behaviour)(&asked);
            // Whoever has the last byte may ask again at once.
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            let answered = self.answer(stream.get_mut(), &answer);
            if answered.is_err() || answer.cut_at.is_some() {
                return;
            }
        }
    }

    fn request(&self, stream: &mut impl BufRead) -> Option<Asked> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let path = head.split(' ').nth(1)?.to_owned();
        let headers = head.to_lowercase();
        let range = headers.split("range: bytes=").nth(1).map(|range| {
            let (first, last) = range.split_once("\r\n").unwrap().0.split_once('-').unwrap();
            (first.parse().unwrap(), last.parse().unwrap())
        });
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(path.clone()).or_default();
        *count += 1;
        Some(Asked {
            path,
            range,
            before: *count - 1,
            headers,
        })
    }

    fn answer(&self, stream: &mut impl Write, answer: &Answer) -> std::io::Result<()> {
        if answer.is_silent {
            while !self.is_over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let (status, headers) = (answer.status, &answer.headers);
        let length = answer.body.len();
        write!(stream, "HTTP/1.1 {status} X\r\n{headers}")?;
        if !headers.contains("chunked") {
            write!(stream, "Content-Length: {length}\r\n")?;
        }
        stream.write_all(b"\r\n")?;
        let body = &answer.body[..answer.cut_at.unwrap_or(length)];
        if answer.pause.is_zero() {
            stream.write_all(body)?;
        } else {
            for byte in body {
                stream.write_all(&[*byte])?;
                stream.flush()?;
                thread::sleep(answer.pause);
            }
        }
        stream.flush()
    }
}
