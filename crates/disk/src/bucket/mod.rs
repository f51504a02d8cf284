//! A repository in a bucket of S3, or of a server that speaks as S3 does.
//!
//! ```text
//! read     files of it, whole or in part             a crate::source::Source
//! write    files that appear whole or not at all     what crate::repository does with them
//! ```
//!
//! A bucket has neither locks nor renames, and needs none of them here. A file that is put is there
//! whole and durable, or not there. Files that never change are put only if there is none of their
//! name and length. Those that change, tags and trainings, are put only over what was read before
//! (`If-Match`); whoever comes second reads again. Nothing is deleted but tags: who deletes chunks
//! must know that nobody is about to rely on one, and a bucket cannot say so. [`crate::gc`]
//! refuses.
//!
//! A server that does not know conditions (`aws_conditional_put=disabled`) is written to without;
//! then one publisher at a time is the caller's care.
//!
//! Credentials, region and endpoint are settings by name, as the usual environment variables have
//! them; this crate does not look into the environment.

mod read;
mod write;

pub(crate) use write::{Stamp, Upload};

use crate::error::DiskError;
use crate::name::FileName;
use crate::source::{BadAddress, HttpOptions, client, shown};
use base::limits::DISK_TRIES_MAX;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{BackoffConfig, Error, RetryConfig};
use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// With what an address of a bucket begins.
pub const SCHEME: &str = "s3://";
/// An answer is waited for while a piece of a pack is sent over a slow line: 5 MiB at 40 kB/s.
const WRITE_TIME_MAX: Duration = Duration::from_secs(130);
/// Before a try after another one; it doubles in between.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// An error is not kept longer; servers send pages of XML.
const REASON_CHARS_MAX: usize = 300;

/// How a bucket is reached.
#[derive(Clone, Debug, Default)]
pub struct BucketOptions {
    /// Settings of S3 by the names of their environment variables, such as `aws_access_key_id`;
    /// upper or lower case. Names that mean nothing here are passed over.
    pub settings: Vec<(String, String)>,
    /// Connections, and how long is waited for them.
    pub http: HttpOptions,
}

/// Files below a prefix in a bucket. Clones share connections.
#[derive(Clone)]
pub struct Bucket {
    shared: Arc<Shared>,
    runtime: Handle,
}

struct Shared {
    reader: AmazonS3,
    /// The same; it waits longer for an answer, because a request may be long.
    writer: AmazonS3,
    /// The path of the repository, without a slash at its ends; may be empty.
    prefix: String,
    /// For people.
    place: String,
    permits: Semaphore,
    /// Whether the server knows conditions.
    is_conditional: bool,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.shared.place)
    }
}

impl Bucket {
    /// The files below `url`, `s3://BUCKET/PREFIX`. Sockets are served by `runtime`. Nobody is
    /// asked yet.
    ///
    /// # Errors
    /// [`BadAddress`] if `url` or a setting cannot be used.
    pub fn new(url: &str, options: &BucketOptions, runtime: Handle) -> Result<Self, BadAddress> {
        let bad = |reason: String| BadAddress {
            url: shown(url),
            reason,
        };
        let rest = url.strip_prefix(SCHEME);
        let rest = rest.ok_or_else(|| bad(format!("it does not begin with {SCHEME}")))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(bad("it names no bucket".into()));
        }
        if bucket.contains([':', '@']) {
            let reason = "no bucket is called so; keys come from AWS_ACCESS_KEY_ID and \
                          AWS_SECRET_ACCESS_KEY, not from the address";
            return Err(bad(reason.into()));
        }
        let prefix = Path::parse(prefix.trim_matches('/'));
        let prefix = prefix.map_err(|error| bad(error.to_string()))?.to_string();
        let settings = settings(&options.settings);
        let disabled = |(key, value): &(AmazonS3ConfigKey, String)| {
            matches!(key, AmazonS3ConfigKey::ConditionalPut) && value.trim() == "disabled"
        };
        let is_conditional = !settings.iter().any(disabled);
        let patient = HttpOptions {
            silence_time: WRITE_TIME_MAX,
            try_time: WRITE_TIME_MAX,
            ..options.http.clone()
        };
        let store = |http: &HttpOptions| store(bucket, &settings, http, &runtime).map_err(bad);
        let shared = Shared {
            reader: store(&options.http)?,
            writer: store(&patient)?,
            place: shown(url).trim_end_matches('/').to_owned(),
            prefix,
            permits: Semaphore::new(options.http.in_flight_max.max(1)),
            is_conditional,
        };
        Ok(Self {
            shared: Arc::new(shared),
            runtime,
        })
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> &str {
        &self.shared.place
    }

    /// Does something with the bucket for a thread that has nothing else to do.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = mpsc::channel();
        // Whoever has gone does not want to know.
        self.runtime
            .spawn(async move { drop(sender.send(work.await)) });
        // Each try has its time, so an answer comes, unless the runtime ends before it.
        receiver.recv().unwrap_or_else(|_| {
            Err(Error::Generic {
                store: "S3",
                source: "the program is about to end".into(),
            })
        })
    }

    fn failed(&self, action: &'static str, file: &str, error: &Error) -> DiskError {
        DiskError::Bucket {
            action,
            place: format!("{}/{file}", self.shared.place),
            reason: reason(error),
        }
    }
}

impl Shared {
    fn path_of(&self, file: &FileName) -> Path {
        self.path(file.as_str())
    }

    /// A path below the prefix, of components that need no quoting.
    fn path(&self, below: &str) -> Path {
        let path = match self.prefix.is_empty() {
            true => below.to_owned(),
            false => format!("{}/{below}", self.prefix),
        };
        Path::parse(path).expect("a prefix and names are paths")
    }
}

fn settings(named: &[(String, String)]) -> Vec<(AmazonS3ConfigKey, String)> {
    let known = named.iter().filter_map(|(name, value)| {
        let name = name.to_ascii_lowercase();
        let key: AmazonS3ConfigKey = name.starts_with("aws_").then(|| name.parse().ok())??;
        // Which bucket it is, the address says.
        (key != AmazonS3ConfigKey::Bucket).then(|| (key, value.clone()))
    });
    known.collect()
}

fn store(
    bucket: &str,
    settings: &[(AmazonS3ConfigKey, String)],
    http: &HttpOptions,
    runtime: &Handle,
) -> Result<AmazonS3, String> {
    let mut builder = AmazonS3Builder::new();
    for (key, value) in settings {
        builder = builder.with_config(*key, value);
    }
    let client = client(http)?;
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: http.pause_time,
            max_backoff: PAUSE_MAX,
            base: 2.0,
        },
        max_retries: DISK_TRIES_MAX as usize - 1,
        retry_timeout: http.try_time * DISK_TRIES_MAX,
    };
    let connected = Connected {
        client,
        runtime: runtime.clone(),
    };
    builder
        .with_bucket_name(bucket)
        // Servers on the same machine or network speak no TLS.
        .with_allow_http(true)
        .with_retry(retry)
        .with_http_connector(connected)
        .build()
        .map_err(|error| error.to_string())
}

/// The client of all other sources, so that certificates, proxies and limits are the same.
struct Connected {
    client: reqwest::Client,
    runtime: Handle,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connected")
    }
}

impl HttpConnector for Connected {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let _sockets = self.runtime.enter();
        Ok(HttpClient::new(self.client.clone()))
    }
}

/// What the server or the line says, in one line.
fn reason(error: &Error) -> String {
    let text = match error {
        Error::NotFound { .. } => "there is no such file or no such bucket".to_owned(),
        Error::PermissionDenied { .. } => "the server does not allow it".to_owned(),
        Error::Unauthenticated { .. } => "the server does not know these credentials".to_owned(),
        error => error.to_string(),
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
