//! A store of objects on one device, whose space and speed can be reserved.

pub mod device;
