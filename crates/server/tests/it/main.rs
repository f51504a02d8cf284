//! The server over real sockets on loopback, with a client that knows frames and nothing else.
//!
//! Exports act for callers, which takes root: elsewhere every test says that it is skipped.

mod access;
mod client;
mod files;
mod hostile;
mod leases;
mod sessions;
mod world;
