//! The manager against a model that counts seconds, and over crashes.

mod crashes;
mod model;
mod planning;
mod rights;
mod rows;
mod world;
