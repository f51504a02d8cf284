//! The scheduler in virtual time, with a device that is not always as fast as it was measured to be
//! and clients who do whatever suits them.

mod costs;
mod guarantees;
mod life;
mod model;
mod order;
mod records;
mod sharing;
mod split;
mod together;
mod world;
