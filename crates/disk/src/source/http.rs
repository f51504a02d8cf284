//! A repository on a web server.
//!
//! Any server will do: files are asked for whole, and where a part is wanted, a server that does
//! not know ranges may send everything. What may get better is tried again (no answer, an answer
//! that breaks off, statuses that say "later") after a pause that doubles; what will not is an
//! error at once. A redirection is followed a few times. Proxies are used if the caller names one;
//! this crate does not look into the environment.
//!
//! Time: a connection has [`HttpOptions::connect_time`], silence is at most
//! [`HttpOptions::silence_time`], one try [`HttpOptions::try_time`], and more if it may bring much.
//! A server that sends a byte now and then is given up by the last.

use super::{Part, Reading, Refusal, Source, SourceError, Wanted, shown};
use crate::name::FileName;
use base::Extent;
use base::limits::{DISK_CHUNK_BYTES_MAX, DISK_REQUESTS_MAX, DISK_TRIES_MAX};
use bytes::{Bytes, BytesMut};
use reqwest::header::{CACHE_CONTROL, CONTENT_RANGE, HeaderMap, RANGE};
use reqwest::{Client, Proxy, Response, StatusCode, Url, redirect};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Most redirections of one request.
const REDIRECTIONS_MAX: usize = 5;
/// One try has time for so much: for the longest chunk. For what may be longer, as an index may, it
/// has the time in which the rest comes over a slow line.
const TRY_BYTES: u64 = DISK_CHUNK_BYTES_MAX as u64;
const SLOW_BYTES_PER_SECOND: u64 = 64 << 10;
/// A header is not kept in a message that is longer than this.
const REASON_BYTES_MAX: usize = 300;

/// How a web server is asked.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// For a connection, TLS included.
    pub connect_time: Duration,
    /// Between two arrivals of bytes.
    pub silence_time: Duration,
    /// For one try, from its beginning to the last byte, of a file that has up to 4 MiB. One that
    /// may be longer has a second more for each 64 KiB.
    pub try_time: Duration,
    /// Before the second try; it doubles each time.
    pub pause_time: Duration,
    /// Requests that are under way at once; others wait.
    pub in_flight_max: usize,
    /// Certificates (DER) that are believed beside those of the system.
    pub authorities: Vec<Vec<u8>>,
    /// The proxy's URL.
    pub proxy: Option<String>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_time: Duration::from_secs(10),
            silence_time: Duration::from_secs(10),
            try_time: Duration::from_secs(60),
            pause_time: Duration::from_millis(100),
            in_flight_max: DISK_REQUESTS_MAX,
            authorities: Vec::new(),
            proxy: None,
        }
    }
}

/// Files below a URL. Clones share connections.
#[derive(Clone)]
pub struct Http {
    asking: Arc<Asking>,
    runtime: Handle,
}

struct Asking {
    client: Client,
    base: Url,
    try_time: Duration,
    pause_time: Duration,
    permits: Semaphore,
    /// It has answered as one who knows no ranges.
    ignores_ranges: AtomicBool,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Http({})", self.place())
    }
}

/// An address or option with which no server can be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read from {url}: {reason}")]
pub struct BadAddress {
    /// As it was given, without a password.
    pub url: String,
    /// What is wrong.
    pub reason: String,
}

impl Http {
    /// The files below `url`, which begins with `http://` or `https://`. Sockets are served by
    /// `runtime`. Nobody is asked yet.
    ///
    /// # Errors
    /// [`BadAddress`] if `url` or an option cannot be used.
    pub fn new(url: &str, options: &HttpOptions, runtime: Handle) -> Result<Self, BadAddress> {
        let bad = |reason: String| BadAddress {
            url: shown(url),
            reason,
        };
        let mut base = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(bad("only http and https are read".into()));
        }
        // Joining a name to a URL would replace what is behind its last slash.
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let asking = Asking {
            client: client(options).map_err(bad)?,
            base,
            try_time: options.try_time,
            pause_time: options.pause_time,
            permits: Semaphore::new(options.in_flight_max.max(1)),
            ignores_ranges: AtomicBool::new(false),
        };
        Ok(Self {
            asking: Arc::new(asking),
            runtime,
        })
    }
}

/// A client with these limits, proxy and certificates.
pub(crate) fn client(options: &HttpOptions) -> Result<Client, String> {
    let mut builder = Client::builder()
        .user_agent("azekura")
        .connect_timeout(options.connect_time)
        .read_timeout(options.silence_time)
        .timeout(options.try_time)
        .redirect(redirect::Policy::limited(REDIRECTIONS_MAX))
        .pool_max_idle_per_host(options.in_flight_max)
        .tls_backend_preconfigured(tls(&options.authorities)?)
        .no_proxy();
    if let Some(proxy) = &options.proxy {
        let proxy = Proxy::all(proxy).map_err(|error| error.to_string())?;
        builder = builder.proxy(proxy);
    }
    builder.build().map_err(|error| error.to_string())
}

impl Asking {
    async fn read(&self, file: &FileName, wanted: Wanted) -> Result<Bytes, SourceError> {
        let read = self.read_file(file, wanted).await;
        read.map_err(|refusal| self.refused(file, refusal))
    }

    fn refused(&self, file: &FileName, refusal: Refusal) -> SourceError {
        SourceError {
            file: file.clone(),
            place: self.place(),
            refusal,
        }
    }

    fn place(&self) -> String {
        shown(self.base.as_str())
    }

    async fn read_file(&self, file: &FileName, wanted: Wanted) -> Result<Bytes, Refusal> {
        let url = self.base.join(file.as_str());
        let url = url.map_err(|error| Refusal::Address(error.to_string()))?;
        let mut tries = 0;
        loop {
            let permit = self.permits.acquire().await;
            let tried = self.try_once(url.clone(), wanted).await;
            drop(permit);
            tries += 1;
            match tried {
                Ok(bytes) => return Ok(bytes),
                Err(Failure::Final(refusal)) => return Err(refusal),
                Err(Failure::Later(reason)) if tries >= DISK_TRIES_MAX => {
                    return Err(Refusal::Unavailable { reason, tries });
                }
                Err(Failure::Later(_)) => tokio::time::sleep(pause(self.pause_time, tries)).await,
            }
        }
    }

    fn time_for(&self, part: Part) -> Duration {
        let bytes = match part {
            Part::Whole { bytes_max } => bytes_max,
            // All that is before it comes as well.
            Part::Extent(extent) if self.ignores_ranges.load(Ordering::Relaxed) => extent.end(),
            Part::Extent(extent) => extent.len,
        };
        let more = bytes.saturating_sub(TRY_BYTES) / SLOW_BYTES_PER_SECOND;
        self.try_time.saturating_add(Duration::from_secs(more))
    }

    async fn try_once(&self, url: Url, wanted: Wanted) -> Result<Bytes, Failure> {
        if matches!(wanted.part, Part::Extent(extent) if extent.is_empty()) {
            return Ok(Bytes::new());
        }
        let mut request = self.client.get(url).timeout(self.time_for(wanted.part));
        if let Part::Extent(extent) = wanted.part {
            let last = extent.end() - 1;
            request = request.header(RANGE, format!("bytes={}-{last}", extent.offset));
        }
        if wanted.past_caches {
            request = request.header(CACHE_CONTROL, "no-cache");
        }
        let response = request.send().await.map_err(Failure::from)?;
        match (response.status(), wanted.part) {
            (StatusCode::OK, Part::Whole { bytes_max }) => {
                let too_long = Refusal::TooLong { bytes_max };
                collect(response, 0, bytes_max, Some(too_long)).await
            }
            // The server knows no ranges: what comes before the part is thrown away.
            (StatusCode::OK, Part::Extent(extent)) => {
                self.ignores_ranges.store(true, Ordering::Relaxed);
                let bytes = collect(response, extent.offset, extent.len, None).await?;
                whole_part(bytes, extent)
            }
            (StatusCode::PARTIAL_CONTENT, Part::Extent(extent)) => {
                if range_start(response.headers()) != Some(extent.offset) {
                    return Err(Failure::Later("the server sends another range".into()));
                }
                whole_part(collect(response, 0, extent.len, None).await?, extent)
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, Part::Extent(extent)) => {
                Err(Failure::Final(Refusal::TooShort(extent)))
            }
            (StatusCode::NOT_FOUND | StatusCode::GONE, _) => Err(Failure::Final(Refusal::NotFound)),
            (status, _) if is_temporary(status) => {
                let reason = format!("the server answers with status {}", status.as_u16());
                Err(Failure::Later(reason))
            }
            (status, _) => Err(Failure::Final(Refusal::Status(status.as_u16()))),
        }
    }
}

/// What became of one try.
enum Failure {
    Final(Refusal),
    Later(String),
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        let text = describe(&error);
        if error.is_redirect() || error.is_builder() {
            Self::Final(Refusal::Address(text))
        } else {
            Self::Later(text)
        }
    }
}

/// An error with its causes; the library names only the outermost. Without the URL, which may have
/// a password.
fn describe(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".into();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().chars().take(REASON_BYTES_MAX).collect()
}

fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

fn whole_part(bytes: Bytes, extent: Extent) -> Result<Bytes, Failure> {
    if (bytes.len() as u64) < extent.len {
        return Err(Failure::Final(Refusal::TooShort(extent)));
    }
    Ok(bytes)
}

/// The first byte of a `Content-Range: bytes 5-9/100`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (start, _) = range.strip_prefix("bytes ")?.split_once('-')?;
    start.trim().parse().ok()
}

/// Reads a body: skips some bytes, then keeps at most `bytes_max`. Where there are more, it is an
/// error if there is one for it; else the rest is left unread.
async fn collect(
    mut response: Response,
    mut skip: u64,
    bytes_max: u64,
    too_long: Option<Refusal>,
) -> Result<Bytes, Failure> {
    let length = response.content_length().unwrap_or(0);
    if let Some(too_long) = too_long.as_ref().filter(|_| length > bytes_max) {
        return Err(Failure::Final(too_long.clone()));
    }
    // What the server says is not worth memory before it comes.
    let mut bytes = BytesMut::with_capacity(length.min(bytes_max).min(64 << 10) as usize);
    while let Some(arrived) = response.chunk().await.map_err(Failure::from)? {
        let skipped = skip.min(arrived.len() as u64);
        skip -= skipped;
        let arrived = &arrived[skipped as usize..];
        let room = bytes_max - bytes.len() as u64;
        let kept = room.min(arrived.len() as u64) as usize;
        bytes.extend_from_slice(&arrived[..kept]);
        match &too_long {
            Some(too_long) if kept < arrived.len() => return Err(Failure::Final(too_long.clone())),
            None if bytes.len() as u64 == bytes_max => break,
            _ => {}
        }
    }
    Ok(bytes.freeze())
}

/// Before the next try: doubled each time, and not the same for all who wait.
fn pause(first: Duration, tries: u32) -> Duration {
    let pause = first * 2_u32.pow(tries.min(8) - 1);
    let chance = (RandomState::new().hash_one(tries) % 1000) as u32;
    pause / 2 + pause * chance / 1000
}

fn tls(authorities: &[Vec<u8>]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        let added = roots.add(CertificateDer::from(certificate.as_slice()));
        added.map_err(|error| format!("an authority's certificate: {error}"))?;
    }
    // Certificates of the system that this library does not read are as good as not there: whoever
    // needs one of them is told that the server's is not known.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

impl Source for Http {
    fn read<'a>(&'a self, file: &'a FileName, wanted: Wanted) -> Reading<'a> {
        Box::pin(self.asking.read(file, wanted))
    }

    fn read_now(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError> {
        let (asking, name) = (Arc::clone(&self.asking), file.clone());
        let wanted = Wanted {
            part,
            past_caches: false,
        };
        let (sender, receiver) = mpsc::channel();
        // Whoever has gone does not want to know.
        self.runtime
            .spawn(async move { drop(sender.send(asking.read(&name, wanted).await)) });
        // Each try has its time, so an answer comes, unless the runtime ends before it.
        receiver.recv().unwrap_or_else(|_| {
            let refusal = Refusal::Failed("the program is about to end".into());
            Err(self.asking.refused(file, refusal))
        })
    }

    fn gives_parts(&self) -> bool {
        !self.asking.ignores_ranges.load(Ordering::Relaxed)
    }

    fn place(&self) -> String {
        self.asking.place()
    }
}
