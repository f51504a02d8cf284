//! The client's session in a simulated world: lines that lose, delay, reorder and break, and a
//! server that answers in any order.
//!
//! | file | is |
//! |---|---|
//! | `client` | what the client's transport does around the session, without sockets |
//! | `server` | a model of a server: service times, the exactly-once table, cancellation |
//! | `world` | both, joined by `sim` connections, and the faults |
//! | `exactly_once` | thousands of seeds of trouble: every request ends once, none runs twice |
//! | `line` | a full line: throughput, demand beside it, how soon a changed one is full |
//!
//! A failure prints its seed; `SIM_SEED=17` runs that one alone, `SIM_SEED=0..100000` many.
#![expect(
    clippy::unwrap_used,
    reason = "a panic in a model is a failed test, and says where"
)]

mod client;
mod exactly_once;
mod line;
mod server;
mod world;

/// The seeds of a test, or those that the environment asks for.
fn seeds(command: &'static str, count: u64) -> sim::Seeds {
    sim::Seeds::new(command, 0..count).replay(std::env::var("SIM_SEED").ok().as_deref())
}
