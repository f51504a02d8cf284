//! Requests to a cluster: how long, how often, and what its errors mean.

use crate::MetaError;
use crate::engine::Revision;
use base::limits::{META_REQUEST_TIME_MAX, META_TIME_MAX};
use etcd_client::{Error, ResponseHeader};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The pause before a request is made again, the first time; twice as long each time after.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

// Codes of gRPC, which etcd_client hands on as numbers of tonic's type.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

/// What an error says about a request.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may have happened; the same request may have an answer later.
    Passing(String),
    /// It has not happened, and may later.
    Busy(String),
    /// The answer is larger than we take; nothing has happened.
    LargeAnswer,
    /// The history that it needs has been compacted.
    Compacted,
    /// The lease that it names is over; nothing has happened.
    NoLease,
    /// It has not happened, and would not later.
    Definite(MetaError),
}

impl From<Trouble> for MetaError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Passing(text) | Trouble::Busy(text) => Self::Unavailable(text),
            Trouble::LargeAnswer => Self::Unavailable("an answer is too large".to_owned()),
            Trouble::Compacted => Self::HistoryLost {
                oldest: Revision::default(),
            },
            Trouble::NoLease => Self::Unavailable("a lease is over".to_owned()),
            Trouble::Definite(error) => error,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let Error::GRpcStatus(status) = &error else {
            return match error {
                Error::InvalidArgs(text) => Self::Definite(MetaError::Refused(text)),
                Error::InvalidUri(error) => Self::Definite(MetaError::Refused(error.to_string())),
                Error::LeaseKeepAliveError(text) if text.contains("not found") => Self::NoLease,
                other => Self::Passing(other.to_string()),
            };
        };
        let text = status.message().to_owned();
        match i32::from(status.code()) {
            OUT_OF_RANGE if text.contains("compacted") => Self::Compacted,
            OUT_OF_RANGE if text.contains("message length too large") => Self::LargeAnswer,
            RESOURCE_EXHAUSTED if text.contains("larger than max") => Self::LargeAnswer,
            RESOURCE_EXHAUSTED if text.contains("space") => Self::Definite(MetaError::Full(text)),
            RESOURCE_EXHAUSTED => Self::Busy(text),
            NOT_FOUND if text.contains("lease") => Self::NoLease,
            PERMISSION_DENIED | UNAUTHENTICATED | FAILED_PRECONDITION => {
                Self::Definite(MetaError::Refused(text))
            }
            INVALID_ARGUMENT | NOT_FOUND | OUT_OF_RANGE => Self::Definite(MetaError::Refused(text)),
            _ => Self::Passing(text),
        }
    }
}

/// Why we could not begin.
pub(super) fn refused(error: Error) -> MetaError {
    match Trouble::from(error) {
        Trouble::Passing(text) => MetaError::Unavailable(text),
        other => other.into(),
    }
}

/// One request, within its time.
pub(super) async fn once<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Trouble> {
    match timeout(META_REQUEST_TIME_MAX, request).await {
        Ok(answer) => answer.map_err(Trouble::from),
        Err(_) => Err(Trouble::Passing("no answer in time".to_owned())),
    }
}

/// Makes pauses that grow.
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) fn new() -> Self {
        Self(PAUSE_MIN)
    }

    pub(super) async fn pause(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}

/// A request that may happen twice, made until there is an answer or no time.
pub(super) async fn until_answered<T, F>(mut request: impl FnMut() -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Error>>,
{
    let end = Instant::now() + META_TIME_MAX;
    let mut pauses = Pauses::new();
    loop {
        match once(request()).await {
            Err(Trouble::Passing(_) | Trouble::Busy(_)) if Instant::now() < end => {
                pauses.pause().await;
            }
            other => return other,
        }
    }
}

/// The same for those who need not know why.
pub(super) async fn patiently<T, F>(request: impl FnMut() -> F) -> Result<T, MetaError>
where
    F: Future<Output = Result<T, Error>>,
{
    until_answered(request).await.map_err(MetaError::from)
}

/// The revision in an answer.
pub(super) fn revision_of(header: Option<&ResponseHeader>) -> Result<Revision, MetaError> {
    let header = header.ok_or_else(|| MetaError::Damaged("an answer has no header".to_owned()))?;
    Ok(Revision(header.revision().cast_unsigned()))
}
