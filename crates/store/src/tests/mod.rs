//! The engine as a whole, beside a naive model.

mod blind;
mod crash;
mod cuts;
mod doubt;
mod faults;
mod found;
mod full;
mod growing;
mod holes;
mod hostile;
mod lifetimes;
mod many;
mod model;
mod paid;
mod repair;
mod reserved;
mod reuse;
mod stale;
mod unreadable;
mod world;
