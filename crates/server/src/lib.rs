//! The server of a cluster. Its roles: volumes that are exports, and stores with reserved I/O.
//!
//! # Design
//!
//! ```text
//! socket -> connection (reader task) -> pool (threads) -> steps -> export
//!        <- connection (writer task) <- link (outbox)  <-
//! ```
//! Sockets are tokio tasks; file operations block and run on threads of their own ([`pool`]), each
//! with the identity of the caller it works for. A request carries everything it holds with it,
//! permits included, from the socket to the socket; where it must wait for a client (a recall, a
//! lock), it is parked whole and no thread waits.
//!
//! What the server promises, and where:
//!
//! * *Nobody believes what has changed* ([`lease`]): a change is answered only when every client
//!   that caches what it changed has let go.
//! * *Nothing runs twice* ([`memory`], [`journal`]): a request that is sent again after a broken
//!   connection, or after a crash of the server, is answered and not repeated.
//! * *Nobody speaks for others* ([`judge`]): a user's credential is one uid with the groups that
//!   this machine knows.
//! * *Nobody costs more than his bound* ([`link`], `base::limits`): requests, replies, handshakes,
//!   sessions, locks, leases.
//! * *An error never turns into an acknowledgement* ([`volume`]): a file whose fsync failed is not
//!   called durable again.
//!
//! | file | owns |
//! |---|---|
//! | `server` | starting, accepting, stopping |
//! | `connection`, `link` | one connection: handshake, frames; where its replies wait |
//! | `pending` | connections that are not authenticated yet |
//! | `pool` | threads and the order of requests |
//! | `steps` | carrying requests out |
//! | `session`, `opens`, `memory`, `behind` | what one client has here |
//! | `lease`, `watch` | who caches what; changes behind the server's back |
//! | `locks` | advisory locks |
//! | `journal` | what must not run twice, over a crash |
//! | `again` | who may send again what was lost |
//! | `volume` | exports, handles on the wire |
//! | `judge` | for whom the server acts |
//! | `storage` | stores, tickets, one dispatcher for each device |
//! | `enrol` | credentials for join secrets |
//! | `cluster` | storage servers of other machines |
//! | `lead` | several managers: who leads, who stands by |
//! | `manager` | reservations: calendars, their ledger, who gets which ticket |
//! | `data` | the data directory |
//! | `rich`, `views` | rich ACLs: turning on, writing down; views of POSIX ACLs that are stored |
//! | `admin`, `background`, `reaper` | administration, visible work, what time does |

mod admin;
mod again;
mod background;
mod behind;
mod buffers;
mod clock;
mod cluster;
mod compact;
mod connection;
mod core;
mod data;
mod enrol;
mod error;
mod identities;
mod journal;
mod judge;
mod lead;
mod lease;
mod link;
mod locks;
mod manager;
mod memory;
mod opens;
mod overlap;
mod pending;
mod pool;
mod reaper;
mod rich;
mod seldom;
mod server;
mod session;
mod share;
mod steps;
mod storage;
mod tree;
mod views;
mod volume;
mod walks;
mod watch;

pub use cluster::{Answer, Elsewhere, Line};
pub use data::{DataError, Joining, JoiningManager, MetaAddress, MetaAddressError};
pub use error::ServerError;
pub use manager::{
    LedgerError, MANAGER_FORMAT_VERSION, Manager, ManagerError, Open as OpenEngine,
    Opening as OpeningEngine,
};
pub use server::{BoundServer, InitOutcome, RunningServer, Server, ServerConfig};
pub use storage::{
    DeviceInfo, Floors, JudgeError, MissingStore, NewStore, Plan, QUICK_PPM, SpaceError,
    SpaceRequest, SpaceTrial, Storage, StorageError, Totals,
};
