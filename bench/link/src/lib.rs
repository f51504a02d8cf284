//! A network link in user space, for tests and measurements that need distance.
//!
//! Kernels without `netem` cannot delay packets. This crate joins two network namespaces by two
//! TUN devices and carries the packets between them itself, with a round-trip time, a wire rate, a
//! drop-tail queue, loss, jitter, asymmetric rates and a cut. Real TCP of unmodified programs runs
//! over it: slow start, windows and congestion control are the kernel's own.
//!
//! * [`Link`]: namespaces, devices and carriers; [`Link::command`] starts a program at one end
//! * [`LinkSettings`], [`Command`]: what the link is, and how it is changed while it runs
//! * [`LinkCounters`]: bytes on the wire, drops, and how late the link itself was
//! * [`Schedule`]: settings that change at stated times
//! * [`probe`]: round trips and goodput measured over the link, to check it
//! * [`why_not`]: says in one line why no link can be made here
//!
//! Inside: `frame` (segments of super-packets), `shaper` (pure arithmetic of queue, wire and
//! delay), `carrier` (one real-time thread per direction), `namespace`, `control` (Unix socket).

mod carrier;
pub mod control;
mod counters;
mod frame;
mod link;
mod namespace;
pub mod probe;
mod schedule;
mod settings;
mod shaper;
pub mod sys;
pub mod units;

pub use counters::{Counters, LinkCounters};
pub use link::{CLIENT_ADDRESS, Link, LinkOptions, SERVER_ADDRESS, Side};
pub use namespace::{Namespace, TcpTuning};
pub use schedule::Schedule;
pub use settings::{Command, DIRECTIONS, Direction, LinkSettings, Queue, Way};

/// What can go wrong with a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The system refused something.
    #[error("{doing}: {error}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        error: std::io::Error,
    },
    /// A duration, rate, size or share that cannot be read.
    #[error("`{0}` is no number with a known unit")]
    Unit(String),
    /// An unknown command.
    #[error("`{0}` is no command of the link")]
    Command(String),
    /// A line of a schedule that cannot be read.
    #[error("schedule line {line}: {why}")]
    Schedule {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl LinkError {
    pub(crate) fn io(doing: &'static str, error: std::io::Error) -> Self {
        Self::Io { doing, error }
    }
}

/// Why no link can be made here, or `None` when it can. It tries the first steps for real.
pub fn why_not() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a link needs root (network namespaces and TUN devices)".to_owned());
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun (kernel module tun)".to_owned());
    }
    Link::start(&LinkOptions::default())
        .err()
        .map(|error| error.to_string())
}
