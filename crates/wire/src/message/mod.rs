//! Messages: what the bodies of frames say.
//!
//! Each message is one postcard value; its bytes are pinned by golden tests, because a reordered
//! enum would silently change the wire. New variants go to the end; what they need is negotiated as
//! a [`Features`] bit, and a changed meaning raises [`crate::version::WireVersion`].

mod access;
mod acl;
mod admin;
mod change;
mod cluster;
mod expected;
mod file;
mod handshake;
mod layout;
mod notice;
mod object;
mod reserve;

pub use access::Access;
pub use acl::{
    AclCost, AclCosts, AclEntryText, AclGrounds, AclLine, AclSummary, AclUnstored, AclViewWork,
    AclViews, AclViewsAsk, AclWork, AclWorkState, Explanation,
};
pub use admin::{
    AdminError, AdminReply, AdminRequest, CredentialKind, CredentialSummary, JoinTerms,
    ServerStatus, SessionSummary, VolumeKind, VolumeSummary, WorkerSummary,
};
pub use cluster::{
    ClusterReply, ClusterRequest, ManagerSummary, Registration, ServerSummary, SharedKey,
};
pub use expected::{Expected, Unexpected};
pub use file::{
    AllocateMode, Compound, CompoundReply, DirectoryEntry, Entry, FileRef, Lease, LockKind,
    LockMode, LockRange, RenameMode, SeekWhat, Settled, Step, StepReply, Target, WriteAt,
};
pub use handshake::{ConnectionRole, Farewell, Features, Hello, Proof, Welcome};
pub use layout::{FileColumn, FileLayout, LayoutPurpose, StoredWhat};
pub use notice::{Notice, Recall, RecallItem};
pub use object::{
    DeviceSummary, ExpectedObjects, ObjectAttribute, ObjectBatch, ObjectError, ObjectReply,
    ObjectRequest, ObjectStep, ObjectStepReply, ObjectSummary, RecordSecond, RecordTotal,
    Shortfall, StoreSummary, TicketRefusal,
};
pub use reserve::{
    ReportSecond, ReservationSummary, ReserveError, ReserveLimits, ReserveName, ReserveOffer,
    ReserveOfferKind, ReserveReply, ReserveReport, ReserveRequest, ReserveShort, ReserveSlice,
    ReserveState, ReserveTerms, ReserveWindow, Scarce, ServerTicket,
};

use crate::frame::{Class, Frame, FrameKind};
use crate::payload::Payload;
use base::limits::META_ADDRESS_BYTES_MAX;
use base::{Handle, RequestId, ServerId};
use serde::{Deserialize, Serialize};

/// What a client asks; the body of a request frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Nothing: proves the line and renews the session's leases.
    Ping,
    /// File operations in order.
    Files(Compound),
    /// These are not cached any more.
    ReturnLeases(#[serde(deserialize_with = "crate::bounded::list::<4096, _, _>")] Vec<Handle>),
    /// The recall with this number has been obeyed.
    RecallDone(u64),
    /// The session ends: its opens, locks and leases go.
    EndSession,
    /// Administration; needs an administrator's credential.
    Admin(AdminRequest),
    /// A one-time join secret for a credential; the only request without one.
    Enrol {
        /// The secret part of the join string.
        secret: [u8; 32],
        /// Certificate signing request, DER.
        #[serde(deserialize_with = "crate::bounded::list::<8192, _, _>")]
        signing_request: Vec<u8>,
        /// How the client calls itself, for the administrator's list.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        label: String,
    },
    /// Bytes without meaning, at most [`base::limits::WARM_BYTES_MAX`] each way: a new connection
    /// over distance learns from them how fast it may send before somebody waits for it. The
    /// request's payload is dropped. Answer: `Done` with zeros as payload.
    Warm {
        /// How many bytes the answer is to have.
        bytes: u32,
    },
    /// The client measures that the line has become another one: the connection that carries this
    /// is to find its rate anew ([`crate::link::BulkSocket::restart`]). Answer: `Done`.
    LineChanged {
        /// Whether the round trip has grown, or the rate.
        is_longer: bool,
    },
    /// Something of a storage server.
    Object(ObjectRequest),
    /// Something of a manager.
    Reserve {
        /// The user for whom it is asked.
        uid: u32,
        /// What.
        request: ReserveRequest,
    },
    /// Something about the servers of the cluster.
    Cluster(ClusterRequest),
    /// As `Enrol`, for a server that is to keep objects. Answer: `Enrolled`.
    EnrolServer {
        /// The secret part of the join string.
        secret: [u8; 32],
        /// Certificate signing request, DER.
        #[serde(deserialize_with = "crate::bounded::list::<8192, _, _>")]
        signing_request: Vec<u8>,
        /// How the server calls itself, for the administrator's list.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        label: String,
        /// The identity that it has chosen.
        server: ServerId,
    },
    /// A one-time join secret for a machine that is to be a manager. Answer: `ManagerEnrolled`.
    EnrolManager {
        /// The secret part of the join string.
        secret: [u8; 32],
        /// Certificate signing request for its administrator's credential, DER.
        #[serde(deserialize_with = "crate::bounded::list::<8192, _, _>")]
        signing_request: Vec<u8>,
        /// How the machine calls itself, for the administrator's list.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        label: String,
    },
}

/// What a server answers; the body of a reply frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To ping, returned leases, obeyed recalls, the session's end.
    Done,
    /// To file operations.
    Files(CompoundReply),
    /// To administration.
    Admin(AdminReply),
    /// To enrolment.
    Enrolled {
        /// The credential, DER.
        #[serde(deserialize_with = "crate::bounded::list::<8192, _, _>")]
        certificate: Vec<u8>,
    },
    /// The request was not carried out at all.
    Refused(Refusal),
    /// Of a storage server.
    Object(ObjectReply),
    /// Of a manager.
    Reserve(Box<ReserveReply>),
    /// About servers.
    Cluster(ClusterReply),
    /// To the enrolment of a manager: all that managers of a cluster have in common.
    ManagerEnrolled(Box<ManagerSecrets>),
}

/// What one manager needs to act in another one's place. It goes over a connection whose server has
/// proven to be of the cluster that a join string pins, and nowhere else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerSecrets {
    /// The administrator's credential of its machine, DER.
    #[serde(deserialize_with = "crate::bounded::list::<8192, _, _>")]
    pub certificate: Vec<u8>,
    /// The authority's certificate, PEM.
    #[serde(deserialize_with = "crate::bounded::text::<8192, _>")]
    pub authority: String,
    /// The authority's key, PEM.
    #[serde(deserialize_with = "crate::bounded::text::<8192, _>")]
    pub authority_key: String,
    /// The key for handles and for the lists of the cluster.
    pub handle_key: SharedKey,
    /// Where the cluster's metadata are.
    #[serde(deserialize_with = "crate::bounded::text::<META_ADDRESS_BYTES_MAX, _>")]
    pub meta: String,
}

impl std::fmt::Debug for ManagerSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManagerSecrets")
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The body is not a message of this version.
    #[error("the request could not be read")]
    Malformed,
    /// The credential does not allow it.
    #[error("the credential does not allow this")]
    Forbidden,
    /// The request names a user for whom the credential does not speak.
    #[error("the credential does not speak for this user")]
    ForeignUser,
    /// Cancelled before it was begun.
    #[error("cancelled")]
    Cancelled,
    /// The session is not known (any more): opens, locks and leases are gone.
    #[error("the session has ended")]
    NoSession,
    /// A bound of the server (sessions, opens, queue) is reached; later may do.
    #[error("the server is at a limit")]
    Overloaded,
    /// A join secret that is unknown, used or expired.
    #[error("the join string is unknown, used or expired")]
    JoinString,
    /// A resent request whose outcome the server can no longer tell.
    #[error("the outcome of the first try is not known")]
    OutcomeUnknown,
}

/// What the body of a frame can be. Its coding is compiled in this crate, and not once more in each
/// one that sends or reads frames.
pub trait Body: Sized {
    /// The bytes of a body.
    fn encode(&self) -> bytes::Bytes;

    /// Reads a body, all of it.
    ///
    /// # Errors
    /// [`BodyError`].
    fn decode(body: &[u8]) -> Result<Self, BodyError>;
}

macro_rules! bodies {
    ($($message:ty)*) => {$(
        impl Body for $message {
            fn encode(&self) -> bytes::Bytes {
                postcard::to_stdvec(self)
                    .expect("messages are plain data")
                    .into()
            }

            fn decode(body: &[u8]) -> Result<Self, BodyError> {
                match postcard::take_from_bytes(body) {
                    Ok((message, [])) => Ok(message),
                    Ok(_) | Err(_) => Err(BodyError),
                }
            }
        }
    )*};
}

// `()` is that of a frame whose kind says everything.
bodies!(() Hello Welcome Proof Farewell Request Reply Notice);

/// Encodes a message for a frame's body.
#[must_use]
pub fn encode<T: Body>(message: &T) -> bytes::Bytes {
    message.encode()
}

/// A frame that carries a message and nothing else, in the class of metadata.
#[must_use]
pub fn frame<T: Body>(kind: FrameKind, request: RequestId, message: &T) -> Frame {
    Frame {
        kind,
        class: Class::Metadata,
        resent: false,
        request,
        body: encode(message),
        payload: Payload::new(),
    }
}

/// A body that is not the message expected, or has bytes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not a valid message")]
pub struct BodyError;

/// Decodes a frame's body, all of it.
///
/// # Errors
/// [`BodyError`].
pub fn decode<T: Body>(body: &[u8]) -> Result<T, BodyError> {
    T::decode(body)
}
