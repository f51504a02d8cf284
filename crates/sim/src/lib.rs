//! A simulated world for code without I/O: clock, network, disk and faults, all from one seed.
//!
//! Code on floor 1, and every state machine that takes `now` as an argument, can be run by a test
//! through years and disasters in milliseconds, and every failure can be run again. Four nouns,
//! each usable without those below it:
//!
//! | noun | is |
//! |---|---|
//! | [`Random`] | the only source of chance; forks give parts of a world chances of their own |
//! | [`Agenda`] | a virtual clock with what is to happen; taking an event moves the clock |
//! | [`Network`] | nodes joined by [`Lane`]s, one for each direction |
//! | [`Connections`] | ordered, reliable frames that share lanes, break and linger, as TCP's do |
//!
//! and, beside them, [`CrashDisk`]: a device that makes every content a loss of power may leave.
//!
//! A lane has delay, jitter (so that datagrams overtake each other), loss, duplication, a rate with
//! a queue that drops at its end, and can be cut.
//!
//! A world is a loop of the test's own: ask every part for its next time, go to the earliest, let
//! that part act. Nothing here calls back, and nothing remembers a global clock:
//!
//! ```
//! use base::Time;
//! use sim::{NodeId, Shape, Random, Network};
//!
//! let (a, b) = (NodeId(0), NodeId(1));
//! let mut network = Network::new(Random::new(7));
//! network.join(a, b, Shape::ideal());
//! network.send(Time::ZERO, a, b, 100, "hello");
//! let at = network.next_time().expect("a datagram is under way");
//! let datagram = network.poll(at).expect("it is there at this time");
//! assert_eq!((datagram.to, datagram.content, datagram.arrived), (b, "hello", true));
//! ```
//!
//! [`Seeds`] runs a test over many seeds. When one fails it says which, and the line that runs this
//! one again.
//!
//! Equal seed, equal world: maps are ordered, ties in time are broken by order of insertion, and no
//! float is accumulated. What is not modelled: congestion control (the window under test stands in
//! for it), handshakes (a test delays what it makes), and the loss of single bits (frames have
//! checksums for that; see the tests of `wire`).

mod agenda;
mod connection;
mod disk;
mod lane;
mod network;
mod random;
mod seeds;

pub use agenda::{Agenda, EventId};
pub use connection::{Arrival, ConnectionId, Connections, Segment};
pub use disk::{
    CrashDisk, CrashState, CrashStates, DiskCounts, Effect, Failure, Fault, Image, Plant, Planted,
    Policy, Which,
};
pub use lane::{Lane, LaneCounts, Outcome, Shape};
pub use network::{Datagram, Network, NodeId};
pub use random::Random;
pub use seeds::Seeds;
