//! Messages for the tests: one of each kind, and any number at random.
#![allow(
    clippy::allow_attributes,
    dead_code,
    clippy::unwrap_used,
    reason = "each test binary uses its part; a panic is a failed test"
)]

pub(crate) mod generate;
#[macro_use]
pub(crate) mod samples;
pub(crate) mod acl_samples;
pub(crate) mod cluster_samples;
pub(crate) mod object_samples;
pub(crate) mod place_samples;
pub(crate) mod reserve_samples;
