//! Words that the scheduler and its caller share.

use base::Time;
use base::limits::{
    SCHEDULER_BURST_TIME_MAX, SCHEDULER_QUEUE_REQUESTS_MAX, SCHEDULER_SHARED_REQUESTS_MAX,
    SCHEDULER_TICKETS_MAX, SCHEDULER_USERS_MAX,
};
use std::time::Duration;

/// All of a device's time, in millionths.
pub const WHOLE_PPM: u32 = 1_000_000;

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    };
}

key! {
    /// A ticket that is open at this device. The caller chooses the number and keeps what it means.
    TicketKey
}
key! {
    /// Whose requests are shared fairly with those of others. The caller chooses the number.
    UserKey
}
key! {
    /// A request that was accepted. The scheduler chooses the number; none is used twice.
    RequestKey
}

/// What an administrator and the calibration decide about one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The largest cost of one request, in device time. Larger ones are split by the caller
    /// ([`super::CostModel::piece_bytes`]), because nothing interrupts a device.
    pub quantum: Duration,
    /// Device time that the device holds at once, at least a quantum. Its own queue knows no
    /// tickets, so what waits there delays whoever has one.
    pub in_flight: Duration,
    /// Requests that it holds at once, at least one.
    pub requests_in_flight: usize,
    /// Share of the unreserved requests if reserved ones ask for everything, in millionths.
    pub unreserved_floor_ppm: u32,
    /// Share of background work if others ask for everything, in millionths. While others wait it
    /// is never more.
    pub background_floor_ppm: u32,
    /// How many schedulers have the device together, at least one. Each promises shares of an equal
    /// part of it, and has no more of it when all of them have something to do
    /// ([`super::Scheduler::set_busy`]).
    pub sharers: u32,
}

/// What one ticket says about this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketTerms {
    /// Who shares with others what this ticket's requests take beyond its share.
    pub holder: UserKey,
    /// Share of the device's time, or of the scheduler's part of it, in millionths.
    pub share_ppm: u32,
    /// For how long an idle ticket saves its share: what comes at once after a pause.
    pub burst: Duration,
    /// When the share begins.
    pub start: Time,
    /// When it is over.
    pub end: Time,
    /// The ticket that this one was split from; its share is taken out of that one's.
    pub parent: Option<TicketKey>,
}

/// What is known about a user. Who is not named is [`UserTerms::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserTerms {
    /// What it gets beside others, as a proportion; not zero.
    pub weight: u32,
    /// The most of the device's time that it gets beyond reservations, also if nobody else wants
    /// it.
    pub cap_ppm: Option<u32>,
}

impl Default for UserTerms {
    fn default() -> Self {
        Self {
            weight: 1,
            cap_ppm: None,
        }
    }
}

/// In whose name a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// With a ticket.
    Ticket(TicketKey),
    /// Without one.
    User(UserKey),
    /// Commits, checks and clearing up: the storage server's own work.
    Background,
}

/// One request, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What it moves.
    pub bytes: u32,
    /// Device time that it takes, as calibrated, in nanoseconds; at most a quantum.
    pub cost_nanos: u64,
}

/// By what right a request goes to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// It is due by its ticket's share.
    Share,
    /// It is due by the floor of the unreserved requests or of background work.
    Floor,
    /// Nothing was due.
    Leftover,
}

/// A request for the device.
#[derive(Debug, PartialEq, Eq)]
pub struct Dispatch<T> {
    /// To be named when it is done.
    pub key: RequestKey,
    /// In whose name.
    pub source: Source,
    /// By what right.
    pub right: Right,
    /// What it is.
    pub work: Work,
    /// What the caller gave with it.
    pub content: T,
}

/// Why a request or a ticket is not accepted. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The request has to be split.
    #[error(
        "the request takes {cost_nanos} ns of device time, of which {quantum_nanos} go at once"
    )]
    TooLarge {
        /// What it costs.
        cost_nanos: u64,
        /// What the device is given in one piece.
        quantum_nanos: u64,
    },
    /// One source has too much waiting.
    #[error("{SCHEDULER_QUEUE_REQUESTS_MAX} requests of the same source wait")]
    QueueFull,
    /// All without tickets together have too much waiting.
    #[error("{SCHEDULER_SHARED_REQUESTS_MAX} requests without a ticket wait")]
    SharedFull,
    /// More users than are remembered.
    #[error("{SCHEDULER_USERS_MAX} users are known")]
    TooManyUsers,
    /// More tickets than are kept.
    #[error("{SCHEDULER_TICKETS_MAX} tickets are open")]
    TooManyTickets,
    /// There is no such ticket.
    #[error("this ticket is not open here")]
    UnknownTicket,
    /// The ticket's share has not begun.
    #[error("the ticket begins later")]
    NotYet,
    /// The ticket's share is over.
    #[error("the ticket is over")]
    Over,
    /// The ticket is there already.
    #[error("this ticket is open already")]
    Exists,
    /// Siblings have the parent's share already.
    #[error("{room_ppm} millionths are left of the ticket that it was split from")]
    Oversplit {
        /// What of the parent's share is left.
        room_ppm: u32,
    },
    /// An interval without a second, a share above the whole or a burst above the bound.
    #[error(
        "no ticket has such terms: a share is at most {WHOLE_PPM} millionths, a burst at most \
         {SCHEDULER_BURST_TIME_MAX:?}, and the end is after the start"
    )]
    BadTerms,
}

impl TicketTerms {
    pub(super) fn check(&self) -> Result<(), Rejection> {
        let is_good = self.share_ppm <= WHOLE_PPM
            && self.burst <= SCHEDULER_BURST_TIME_MAX
            && self.start < self.end;
        is_good.then_some(()).ok_or(Rejection::BadTerms)
    }
}

/// A duration of at most 584 years in nanoseconds; a longer one is that.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
