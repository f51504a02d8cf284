//! The client.
mod clock;
pub mod transport;
