//! A request of a transport's, as its caller sees it: what is asked, and what comes of it.

use base::{FsError, RequestId, Time, WriteVerifier};
use bytes::Bytes;
use tokio::sync::oneshot;
use wire::frame::Class;
use wire::message::{Refusal, Reply, StepReply};
use wire::payload::Payload;

/// Why a call was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No answer within the stated time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server refused the request as a whole.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// The server answered something that is no answer to this.
    #[error("the server's answer makes no sense")]
    Protocol,
    /// The transport is being closed.
    #[error("the session is closed")]
    Closed,
    /// A step failed.
    #[error("{0}")]
    Failed(#[from] FsError),
    /// A text or a list of the request is beyond its bound. It was not sent.
    #[error("a text or a list of the request is longer than servers take")]
    TooLong,
}

impl CallError {
    /// The nearest answer in the vocabulary of file operations.
    #[must_use]
    pub fn to_fs_error(self) -> FsError {
        match self {
            Self::TimedOut => FsError::TimedOut,
            Self::Failed(error) => error,
            Self::Refused(Refusal::Forbidden | Refusal::ForeignUser) => FsError::AccessDenied,
            Self::Refused(Refusal::Cancelled) => FsError::Cancelled,
            Self::Refused(Refusal::NoSession) => FsError::Stale,
            Self::Refused(Refusal::Overloaded) => FsError::WouldBlock,
            Self::TooLong => FsError::Invalid,
            Self::Refused(_) | Self::Protocol | Self::Closed => FsError::Io,
        }
    }
}

/// For how long a call is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// The stated time, and next to none in a silence that has lasted as long: a program waits, and
    /// the kernel lets others wait for it.
    Short,
    /// The stated time: data waits for this that nobody else has.
    Stated,
    /// None.
    Endless,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Call {
    /// How urgent.
    pub class: Class,
    /// Data that goes with it.
    pub payload: Bytes,
    /// Payload bytes that the reply will have at most.
    pub reply_bytes: u64,
    /// How long to wait.
    pub time_limit: TimeLimit,
    /// Since when it is waited for; none: from now on.
    pub since: Option<Time>,
}

impl Call {
    /// A call without data either way.
    #[must_use]
    pub fn metadata() -> Self {
        Self {
            class: Class::Metadata,
            payload: Bytes::new(),
            reply_bytes: 0,
            time_limit: TimeLimit::Short,
            since: None,
        }
    }

    /// A call without data that is waited for so long.
    #[must_use]
    pub fn within(time_limit: TimeLimit) -> Self {
        Self {
            time_limit,
            ..Self::metadata()
        }
    }

    /// The same call, made once more for who waits since then.
    #[must_use]
    pub fn since(self, time: Time) -> Self {
        Self {
            since: Some(time),
            ..self
        }
    }

    /// A call whose reply brings up to `bytes` of data.
    #[must_use]
    pub fn read(class: Class, bytes: u64) -> Self {
        Self {
            class,
            payload: Bytes::new(),
            reply_bytes: bytes,
            time_limit: TimeLimit::Short,
            since: None,
        }
    }

    /// A call that brings data to the server. It is not given up: what was acknowledged to a
    /// program must not be lost because the line is slow or cut. Who waits for it has a time of its
    /// own.
    #[must_use]
    pub fn write(payload: Bytes) -> Self {
        Self {
            class: Class::Write,
            payload,
            reply_bytes: 0,
            time_limit: TimeLimit::Endless,
            since: None,
        }
    }

    /// A call that goes behind all writes that were queued before it, and is given up as little.
    #[must_use]
    pub fn behind() -> Self {
        Self::write(Bytes::new())
    }
}

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// What the server says.
    pub reply: Reply,
    /// Data that came with it.
    pub payload: Payload,
    /// How many recalls had been received when the request was queued.
    pub recalls_seen: u64,
    /// Of the server that answered.
    pub verifier: WriteVerifier,
}

/// The results of a compound request.
#[derive(Debug)]
pub struct FileResponse {
    /// Per step, up to and including the first failure.
    pub results: Vec<Result<StepReply, FsError>>,
    /// Data that came with them.
    pub payload: Payload,
    /// See [`Response::recalls_seen`].
    pub recalls_seen: u64,
    /// Of the server that answered.
    pub verifier: WriteVerifier,
}

/// An answer to wait for. Dropping it does not take the request back;
/// [`Transport::cancel`](super::Transport::cancel) does.
#[derive(Debug)]
pub struct Pending {
    pub(super) id: Option<RequestId>,
    pub(super) answer: oneshot::Receiver<Result<Response, CallError>>,
}

impl Pending {
    /// One that something else than the transport answers.
    pub(crate) fn answered_elsewhere() -> (oneshot::Sender<Result<Response, CallError>>, Self) {
        let (sender, answer) = oneshot::channel();
        (sender, Self { id: None, answer })
    }

    /// The request's id, for [`Transport::cancel`](super::Transport::cancel) and
    /// [`Transport::promote`](super::Transport::promote).
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        self.id
    }

    /// Waits.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn response(self) -> Result<Response, CallError> {
        match self.answer.await {
            Ok(Ok(Response {
                reply: Reply::Refused(refusal),
                ..
            })) => Err(refusal.into()),
            Ok(answer) => answer,
            Err(_) => Err(CallError::Closed),
        }
    }

    /// Waits for the answer to a compound request.
    ///
    /// # Errors
    /// See [`CallError`]; failed steps are in the results, not here.
    pub async fn files(self) -> Result<FileResponse, CallError> {
        let Response {
            reply,
            payload,
            recalls_seen,
            verifier,
        } = self.response().await?;
        match reply {
            Reply::Files(reply) => Ok(FileResponse {
                results: reply.results,
                payload,
                recalls_seen,
                verifier,
            }),
            _ => Err(CallError::Protocol),
        }
    }
}
