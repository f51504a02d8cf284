//! A block device for other programs: the server's side of the NBD protocol.
//!
//! ```text
//! server        listens, bounds connections, ends in order          server.rs
//!  connection    reads requests, has them done, writes replies       connection.rs
//!   work          a request on a device, by a bounded set of threads  work.rs
//!    request       what a client may ask of the device                 request.rs
//!    reply         what it is told                                     reply.rs
//!   negotiation   which device, and what both sides can               negotiation.rs
//!    option        one step of that                                    option.rs
//! ```
//!
//! Negotiation, requests and replies are bytes in and bytes out, without sockets; the rest is a
//! thin shell. Any [`BlockDevice`] is served: where it knows its holes, they
//! are told and not sent.
//!
//! Requests of a connection are under way together and answered in any order, as they get done. A
//! device call blocks, so it has a thread; reads and writes have their own, so that a flush does
//! not wait until a distant server has answered reads. Bytes and requests of a connection are
//! bounded: beyond, it is not read from.
//!
//! What the protocol says is in its own description; which part of it is spoken, and the numbers,
//! in `docs/formats/nbd.md`. There is no TLS and no authentication here: whoever reaches the socket
//! has the disk.

mod connection;
mod negotiation;
mod option;
mod reply;
mod request;
mod server;
#[cfg(test)]
mod tests;
mod work;

pub use negotiation::{Agreement, Facts, Negotiation, Progress};
pub use reply::{error_reply, read_reply, simple_reply, status_reply};
pub use request::{Command, Errno, Request, Rules};
pub use server::{Listener, Server};

use base::BlockDevice;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The version of what is spoken, as `docs/formats/nbd.md` says it. The protocol itself has none:
/// both sides name what they can.
pub const NBD_FORMAT_VERSION: u16 = 1;

/// A device, as clients see it.
#[derive(Clone)]
pub struct Export {
    /// The name by which clients may ask for it, beside the empty one.
    pub name: String,
    /// What people are told about it.
    pub description: String,
    /// What is served.
    pub device: Arc<dyn BlockDevice>,
    /// Every change is refused.
    pub is_read_only: bool,
}

/// Why a connection ended otherwise than by agreement.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The socket failed.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The client closed the connection within a message.
    #[error("connection ended within a message")]
    CutOff,
    /// Nothing moved for too long.
    #[error("no progress for {0:?}")]
    Stalled(Duration),
    /// What came is not of this protocol.
    #[error("not the NBD protocol: {0}")]
    Protocol(&'static str),
    /// More than a client may send.
    #[error("{what} of {bytes} bytes is more than is taken")]
    TooLong {
        /// Of what.
        what: &'static str,
        /// How much.
        bytes: u64,
    },
    /// A client of the old kind asked for a device that is not here, and cannot be told.
    #[error("there is no such device")]
    UnknownExport,
}
