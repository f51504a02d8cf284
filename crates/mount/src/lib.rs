//! The kernel's door: a volume as a file system of the machine.
//!
//! [`kernel`] speaks FUSE with Linux and knows nothing about volumes.

pub mod kernel;
pub mod remote;
