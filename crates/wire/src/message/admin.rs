//! Administration: volumes, credentials, status.

use base::limits::{
    ADMIN_TEXT_BYTES_MAX, BACKGROUND_WORKERS_MAX, CREDENTIALS_PER_REPLY_MAX, SESSIONS_MAX,
    VOLUMES_MAX,
};
use base::{BootId, ClusterId, StoreId, VolumeId};
use serde::{Deserialize, Serialize};

/// For whom a credential may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CredentialKind {
    /// Administers the cluster, and speaks for all users.
    Admin,
    /// A machine: speaks for all its users.
    Host,
    /// One user: speaks for this uid only.
    User {
        /// The user.
        uid: u32,
    },
    /// A storage server: speaks for nobody, and makes itself known to the manager.
    Server,
    /// One of several managers, while it leads: an administrator to storage servers, until they
    /// have heard of a later epoch. In a join string: a machine that is to be a manager.
    Manager {
        /// The epoch of its seat; nothing in a join string.
        epoch: u64,
    },
}

impl CredentialKind {
    /// Whether it may do what administrators may.
    #[must_use]
    pub fn is_admin(self) -> bool {
        matches!(self, Self::Admin | Self::Manager { .. })
    }
}

/// What a volume is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeKind {
    /// A directory tree of the server.
    Export {
        /// Absolute path at the server.
        #[serde(deserialize_with = "crate::bounded::text::<4095, _>")]
        path: String,
        /// Whether every change is refused.
        read_only: bool,
    },
    /// Files striped over stores.
    Parallel {
        /// Bytes of a column before the next one's turn, as a power of two; none for what suits the
        /// stores.
        unit_log2: Option<u8>,
        /// Columns of a new file; fewer if there are fewer stores.
        width: u16,
    },
}

/// Terms of a join string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTerms {
    /// What the credential will be.
    pub kind: CredentialKind,
    /// Seconds until the string is worthless.
    pub seconds_valid: u32,
}

/// What an administrator asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Answer: `Status`. Any credential may ask; only an administrator sees sessions.
    Status,
    /// Answer: `Volumes`.
    VolumeList,
    /// Answer: `Volumes` with one element.
    VolumeShow {
        /// Its name.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        name: String,
    },
    /// Answer: `Volumes` with one element.
    VolumeCreate {
        /// Its name: 1 to 63 of `a-z 0-9 - _ .`, beginning with a letter or digit.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        name: String,
        /// What it is.
        kind: VolumeKind,
        /// Only check.
        dry_run: bool,
    },
    /// Forgets the volume; an export's files stay. Answer: `Done`.
    VolumeDelete {
        /// Its name.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        name: String,
        /// Only check.
        dry_run: bool,
    },
    /// Answer: `JoinSecret`.
    JoinCreate(JoinTerms),
    /// In the order in which they were given out. Answer: `Credentials`.
    CredentialList {
        /// How many from the first one on to leave out.
        skip: u32,
    },
    /// Ends its sessions and refuses it from now on. Answer: `Done`.
    CredentialRevoke {
        /// Serial number of the certificate, in hexadecimal.
        #[serde(deserialize_with = "crate::bounded::text::<64, _>")]
        serial: String,
        /// Only check.
        dry_run: bool,
    },
    /// Has all that stores hold read and held against its checksums, beside what else they do; the
    /// status tells how far that is and what was found. Answer: `Done` when it is about to begin.
    Scrub {
        /// Which one; none for all of the server.
        store: Option<StoreId>,
        /// The most that is read.
        bytes_per_second: Option<u64>,
    },
    /// How it is with a volume's rich ACLs. Answer: `Acl`.
    AclStatus {
        /// Its name.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        name: String,
    },
    /// Turns a volume's rich ACLs on or off. Answer: `Acl`.
    AclSwitch {
        /// Its name.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        name: String,
        /// Whether they are to be on.
        on: bool,
        /// Only check.
        dry_run: bool,
    },
    /// About the views of POSIX ACLs that may lie beside a volume's files. Answer: `AclViews`.
    AclViews {
        /// Its name.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        name: String,
        /// What about them.
        ask: super::AclViewsAsk,
    },
}

/// A volume in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSummary {
    /// Identity.
    pub id: VolumeId,
    /// Name.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub name: String,
    /// What it is.
    pub kind: VolumeKind,
    /// Why it cannot be served at the moment, if so.
    #[serde(deserialize_with = "crate::bounded::optional_text::<ADMIN_TEXT_BYTES_MAX, _>")]
    pub trouble: Option<String>,
}

/// A credential in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialSummary {
    /// Serial number, in hexadecimal.
    #[serde(deserialize_with = "crate::bounded::text::<64, _>")]
    pub serial: String,
    /// For whom it speaks.
    pub kind: CredentialKind,
    /// What the client called itself.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub label: String,
    /// Seconds since 1970.
    pub issued: i64,
    /// Whether it is refused.
    pub revoked: bool,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// The client's machine.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub host: String,
    /// Its address.
    #[serde(deserialize_with = "crate::bounded::text::<64, _>")]
    pub address: String,
    /// For whom it speaks.
    pub kind: CredentialKind,
    /// Connections that stand.
    pub connections: u32,
    /// Open files.
    pub opens: u64,
    /// Locks.
    pub locks: u64,
    /// Leases.
    pub leases: u64,
    /// Requests being worked on.
    pub requests: u64,
    /// Bytes sent to it.
    pub bytes_read: u64,
    /// Bytes received from it.
    pub bytes_written: u64,
    /// Seconds since it was heard.
    pub seconds_idle: u64,
}

/// A background worker in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSummary {
    /// Name.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub name: String,
    /// What it does at the moment.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub state: String,
    /// What it has done, in its own unit.
    pub progress: u64,
}

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Program version.
    #[serde(deserialize_with = "crate::bounded::text::<64, _>")]
    pub version: String,
    /// Cluster.
    pub cluster: ClusterId,
    /// This run.
    pub boot: BootId,
    /// Seconds since it began.
    pub seconds_up: u64,
    /// Volumes.
    #[serde(deserialize_with = "crate::bounded::list::<VOLUMES_MAX, _, _>")]
    pub volumes: Vec<VolumeSummary>,
    /// Sessions; empty for all but administrators.
    #[serde(deserialize_with = "crate::bounded::list::<SESSIONS_MAX, _, _>")]
    pub sessions: Vec<SessionSummary>,
    /// Background workers.
    #[serde(deserialize_with = "crate::bounded::list::<BACKGROUND_WORKERS_MAX, _, _>")]
    pub workers: Vec<WorkerSummary>,
}

/// What an administrator is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminReply {
    /// It is done, or would be.
    Done,
    /// Status.
    Status(ServerStatus),
    /// Volumes.
    Volumes(
        #[serde(deserialize_with = "crate::bounded::list::<VOLUMES_MAX, _, _>")] Vec<VolumeSummary>,
    ),
    /// The secret part of a join string.
    JoinSecret([u8; 32]),
    /// Credentials.
    Credentials {
        /// At most 1,024.
        #[serde(deserialize_with = "crate::bounded::list::<CREDENTIALS_PER_REPLY_MAX, _, _>")]
        list: Vec<CredentialSummary>,
        /// Whether there are more behind these.
        more: bool,
    },
    /// It cannot be done, and why, in the server's words.
    Failed {
        /// Stable word for programs.
        code: AdminError,
        /// One sentence for people.
        #[serde(deserialize_with = "crate::bounded::text::<ADMIN_TEXT_BYTES_MAX, _>")]
        message: String,
    },
    /// How it is with rich ACLs, or would be.
    Acl(super::AclSummary),
    /// How it is with views, or would be.
    AclViews(Box<super::AclViews>),
}

/// Why administration failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminError {
    /// No such volume or credential.
    NotFound,
    /// The name is taken.
    Exists,
    /// The name or path is not legal.
    Invalid,
    /// Somebody uses it.
    InUse,
    /// The server's disk or file system refused.
    Io,
    /// A bound of the server is reached.
    Limit,
    /// Something is reserved for it.
    Reserved,
}
