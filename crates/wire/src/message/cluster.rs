//! Servers of a cluster: who there is, where, and how one makes itself known.
//!
//! The manager knows all storage servers. Clients ask it for their addresses; a storage server says
//! after each start, and again now and then, how it is reached and under which key tickets for it
//! are issued.

use base::ServerId;
use base::limits::{
    MANAGERS_MAX, SERVER_ADDRESS_BYTES_MAX, SERVER_ADDRESSES_MAX, SERVERS_MAX, STORE_TEXT_BYTES_MAX,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is asked of a manager about servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterRequest {
    /// Which storage servers there are. Answer: `Servers`. Any credential may ask.
    Servers,
    /// A storage server makes itself known. Answer: `Registered`. For a server's credential.
    Register(Registration),
    /// The stores of one server as the manager last heard of them. Answer: `Stores`.
    Stores {
        /// Which.
        server: ServerId,
    },
    /// Which managers there are. Answer: `Managers`. Any credential may ask.
    Managers,
}

/// A key under which tickets are issued. Its `Debug` form does not show it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedKey(pub [u8; 32]);

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(..)")
    }
}

/// What a storage server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// HOST:PORT at which clients and the manager reach it; the best first.
    #[serde(deserialize_with = "addresses")]
    pub addresses: Vec<String>,
    /// Tickets of older epochs are refused there.
    pub epoch: u64,
    /// Number of the key.
    pub key_id: u32,
    /// Tickets for it are issued under this key, by the manager alone.
    pub key: SharedKey,
}

/// What a manager answers about servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterReply {
    /// All storage servers.
    Servers(
        #[serde(deserialize_with = "crate::bounded::list::<SERVERS_MAX, _, _>")] Vec<ServerSummary>,
    ),
    /// The server is known from now on.
    Registered {
        /// Another number than the last time says that the list of credentials has changed.
        credentials: u64,
    },
    /// Stores of a server.
    Stores(
        #[serde(
            deserialize_with = "crate::bounded::list::<{ base::limits::SERVER_STORES_MAX }, _, _>"
        )]
        Vec<super::StoreSummary>,
    ),
    /// There is no such server, or it cannot be recorded, in the manager's words.
    Failed(#[serde(deserialize_with = "crate::bounded::text::<STORE_TEXT_BYTES_MAX, _>")] String),
    /// All managers; none if there is one alone.
    Managers(
        #[serde(deserialize_with = "crate::bounded::list::<MANAGERS_MAX, _, _>")]
        Vec<ManagerSummary>,
    ),
}

/// A manager in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerSummary {
    /// Which.
    pub server: ServerId,
    /// Name of its machine.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub label: String,
    /// HOST:PORT at which it is reached, the best first.
    #[serde(deserialize_with = "addresses")]
    pub addresses: Vec<String>,
    /// Whether it is the one that leads, and answers.
    pub leads: bool,
    /// Whether it runs.
    pub is_there: bool,
}

/// A storage server in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSummary {
    /// Which.
    pub server: ServerId,
    /// How it called itself when it enrolled.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub label: String,
    /// Where it is, the best first; none for the one that answers.
    #[serde(deserialize_with = "addresses")]
    pub addresses: Vec<String>,
    /// Whether it is the one that answers.
    pub is_here: bool,
    /// For how many seconds it has not been reached; none if it is reached.
    pub seconds_away: Option<u64>,
    /// Its stores.
    pub stores: u32,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes of these that are nobody's.
    pub bytes_free: u64,
}

fn addresses<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct Address(
        #[serde(deserialize_with = "crate::bounded::text::<SERVER_ADDRESS_BYTES_MAX, _>")] String,
    );
    let list = crate::bounded::list::<SERVER_ADDRESSES_MAX, Address, D>(deserializer)?;
    Ok(list.into_iter().map(|address| address.0).collect())
}
