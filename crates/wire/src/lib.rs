//! The wire: how a client and a server talk.
//!
//! Four layers, each usable without the ones above it:
//!
//! * [`frame`]: bytes. A fixed header, a checked body, a raw payload ([`payload`]: in pieces).
//! * [`message`]: what bodies say; postcard values with a bound on every list.
//! * [`session`]: the client's side of many requests in flight over several connections: which goes
//!   next, which is answered, which must be sent again. No sockets, no clock.
//! * [`link`]: tasks with sockets: TCP, TLS, reading and writing frames.
//!
//! [`identity`] makes and reads the credentials by which the two sides know each other.
//!
//! [`nbd`] is another wire, for programs that are not ours: a block device over the NBD protocol.
//!
//! A connection begins with `Hello` and `Welcome` (requests may follow `Hello` at once under TLS;
//! they wait for the proof on a plain one) and ends with `Farewell`. Any number of requests are
//! under way in between, replies come in any order. The bytes are drawn in `docs/formats/wire.md`.

mod bounded;
pub mod frame;
pub mod identity;
pub mod link;
pub mod message;
pub mod nbd;
pub mod payload;
pub mod session;
pub mod version;
