//! The manager against a model that counts seconds, and over crashes.

mod again;
mod away;
mod crashes;
mod crowds;
mod desks;
mod fake;
mod holders;
mod model;
mod planning;
mod renewals;
mod rights;
mod rows;
mod trials;
mod world;
