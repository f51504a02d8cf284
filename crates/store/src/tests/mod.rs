//! The engine as a whole, beside a naive model.

mod blind;
mod crash;
mod cuts;
mod faults;
mod found;
mod full;
mod holes;
mod lifetimes;
mod model;
mod paid;
mod repair;
mod reserved;
mod reuse;
mod world;
