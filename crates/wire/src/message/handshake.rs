//! How a connection begins and ends.

use crate::version::WireVersion;
use base::limits::SERVER_ADDRESS_BYTES_MAX;
use base::{BootId, ClusterId, SessionId, WriteVerifier};
use serde::{Deserialize, Serialize};

/// Optional abilities; both sides name theirs and use what both have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features(pub u64);

impl Features {
    /// A server that may be one of several managers says which there are
    /// ([`ClusterRequest::Managers`](super::ClusterRequest::Managers)).
    pub const MANAGERS: Self = Self(1);
    /// A server that lets a request wait for others of its session
    /// ([`Step::After`](super::Step::After)).
    pub const AFTER: Self = Self(2);
    /// A client that writes again when it is asked to
    /// ([`Notice::WriteAgain`](super::Notice::WriteAgain)), and reads later what others are still
    /// to write again ([`ObjectError::NotYet`](super::ObjectError::NotYet)).
    pub const WRITE_AGAIN: Self = Self(4);
    /// A server that knows opens that only append ([`Access::Append`](super::Access::Append)).
    pub const APPEND: Self = Self(8);
    /// A server that takes the place of an append back
    /// ([`Step::GivePlaceUp`](super::Step::GivePlaceUp)).
    pub const GIVE_PLACE_UP: Self = Self(16);
    /// All that this build has.
    pub const OURS: Self = Self::MANAGERS
        .with(Self::AFTER)
        .with(Self::WRITE_AGAIN)
        .with(Self::APPEND)
        .with(Self::GIVE_PLACE_UP);

    /// Whether all of these are among them.
    #[must_use]
    pub const fn have(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The abilities of both.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConnectionRole {
    /// Metadata, demand reads, notices. One per session; opening a second one replaces the first.
    Main,
    /// Bulk data.
    Bulk,
    /// One request for a credential, by a client that has none.
    Enrolment,
}

/// First message of a client on every connection. Requests may follow at once, before the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest version the client speaks.
    pub version_min: WireVersion,
    /// Newest version the client speaks.
    pub version_max: WireVersion,
    /// Its abilities.
    pub features: Features,
    /// The session that this connection belongs to.
    pub session: SessionId,
    /// What the connection is for.
    pub role: ConnectionRole,
    /// The cluster that the client wants, if it knows it.
    pub cluster: Option<ClusterId>,
    /// The boot that the client talked to last in this session, if any.
    pub last_boot: Option<BootId>,
    /// Name of the client's machine, for lists.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub host: String,
}

/// The server's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version spoken from here on.
    pub version: WireVersion,
    /// Abilities of both.
    pub features: Features,
    /// The server's cluster.
    pub cluster: ClusterId,
    /// This run of the server.
    pub boot: BootId,
    /// Whether what was written and not committed is still there.
    pub write_verifier: WriteVerifier,
    /// The same of what was written into objects of its stores.
    pub store_verifier: WriteVerifier,
    /// Whether the server knew the session: its opens, locks and leases still stand.
    pub session_known: bool,
    /// On a connection without TLS: what the client must sign before anything else is answered.
    pub challenge: Option<[u8; 32]>,
}

/// On a connection without TLS: the client's credential and its signature over
/// `"azekura-proof-1" || challenge || session id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The credential, DER.
    #[serde(deserialize_with = "crate::bounded::list::<8192, _, _>")]
    pub certificate: Vec<u8>,
    /// ECDSA P-256 with SHA-256, ASN.1.
    #[serde(deserialize_with = "crate::bounded::list::<512, _, _>")]
    pub signature: Vec<u8>,
}

/// Why a connection ends; the last frame on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Farewell {
    /// No version in common.
    #[error("no common protocol version (the server speaks {min} to {max})")]
    Version {
        /// Oldest that the server speaks.
        min: WireVersion,
        /// Newest that the server speaks.
        max: WireVersion,
    },
    /// Not the cluster that the client wanted.
    #[error("this server belongs to another cluster")]
    Cluster,
    /// No credential, an unknown, expired or revoked one, or a bad proof.
    #[error("not authenticated")]
    Unauthenticated,
    /// The session belongs to another credential.
    #[error("the session belongs to somebody else")]
    ForeignSession,
    /// A frame that cannot be read, or one out of order.
    #[error("protocol error")]
    Protocol,
    /// Too many connections or sessions.
    #[error("the server is at its limit of connections")]
    Overloaded,
    /// The server stops.
    #[error("the server is stopping")]
    Stopping,
    /// Another connection has taken this one's place.
    #[error("replaced by another connection of the session")]
    Replaced,
    /// The session has ended, and a request of it is still under way; it may be begun anew after
    /// that.
    #[error("a request of the session that has ended is still under way")]
    Ending,
    /// Another manager leads; this one is ready to take its place.
    #[error("this manager stands by{}", leading(leader))]
    Standby {
        /// HOST:PORT of the one that leads; empty if nobody does at the moment.
        #[serde(deserialize_with = "crate::bounded::text::<SERVER_ADDRESS_BYTES_MAX, _>")]
        leader: String,
    },
}

fn leading(leader: &str) -> String {
    match leader {
        "" => ", and no other one leads at the moment".to_owned(),
        leader => format!("; {} leads", leader.escape_debug()),
    }
}
