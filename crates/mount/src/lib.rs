//! The kernel's door: a volume as a file system of the machine, a disk as one file of it.
//!
//! [`kernel`] speaks FUSE with Linux and knows nothing about volumes; [`remote`] is a volume,
//! [`disk`] any block device.

pub mod disk;
pub mod kernel;
pub mod remote;
