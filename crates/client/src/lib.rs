//! The client: volumes of a server, as a mount, a copy tool or a library uses them.
//!
//! Three layers:
//!
//! * [`transport`]: requests to one server over several connections, answered in any order, sent
//!   again when a connection breaks, refused when their time is over.
//! * [`cache`] and [`mod@file`]: what is known here and for how long it is true. Pure structures.
//! * [`volume`]: file operations, joining the two.
//! * [`object`]: one storage server, for who stripes over several.
//!
//! One read passes [`volume::Volume::read_cached`] (on the caller's own thread, no await, if the
//! data is here) or [`volume::Volume::read`]; one write is answered when it is safe in memory and
//! is durable after [`volume::Volume::commit`].

pub mod cache;
mod clock;
pub mod file;
pub mod object;
mod pause;
pub mod transport;
pub mod volume;
