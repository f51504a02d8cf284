//! The manager against a model that counts seconds, and over crashes.

mod crashes;
mod crowds;
mod model;
mod planning;
mod renewals;
mod rights;
mod rows;
mod trials;
mod world;
