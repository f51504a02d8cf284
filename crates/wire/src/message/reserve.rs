//! Reservations: what is asked of a manager, and what it says.
//!
//! A reservation is of device time and space in stores, and of the network of their servers, for a
//! window of time or for a row of equal ones. Who has one gets a ticket for each server, which is
//! shown to that server alone; data never passes the manager.
//!
//! All times are seconds since 1970 (UTC). Rates are bytes per second.

use base::limits::{
    ADMIN_TEXT_BYTES_MAX, RESERVE_LIST_MAX, RESERVE_NAME_BYTES_MAX, RESERVE_OFFERS_MAX,
    RESERVE_SLICES_MAX, RESERVE_USERS_MAX, TICKET_BYTES_MAX, TICKET_RECORD_PAGE_MAX,
};
use base::{ServerId, StoreId, TicketId, VolumeId};
use serde::{Deserialize, Serialize};

use super::object::Shortfall;

/// When it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReserveWindow {
    /// Then and at no other time.
    At {
        /// The first second.
        start_secs: u64,
        /// The second after the last one.
        end_secs: u64,
    },
    /// As early as it fits.
    Within {
        /// It does not begin before.
        earliest_secs: u64,
        /// It ends by then.
        latest_secs: u64,
        /// So long.
        duration_secs: u64,
    },
}

/// What is to be reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveTerms {
    /// Rate of reading; zero for none.
    pub read_bytes_per_second: u64,
    /// Rate of writing; zero for none.
    pub write_bytes_per_second: u64,
    /// For how long an idle share is saved, in milliseconds.
    pub burst_millis: u32,
    /// Space for what is written; zero for none.
    pub space_bytes: u64,
    /// When, the first time.
    pub window: ReserveWindow,
    /// Seconds from one start to the next, if there are several.
    pub every_secs: u64,
    /// How often; not zero. All of them or none are admitted.
    pub count: u32,
    /// For how long what was written stays after the end of its window.
    pub lifetime_secs: u64,
    /// If not empty, these stores, all of them: those on which a file lies that is to be read.
    #[serde(deserialize_with = "crate::bounded::list::<RESERVE_SLICES_MAX, _, _>")]
    pub stores: Vec<StoreId>,
}

/// Shares of all devices and lines that no reservation gets, and who may reserve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveLimits {
    /// Part of each device's time that stays for users without a reservation, in millionths. A
    /// server keeps at least its own floor.
    pub unreserved_ppm: u32,
    /// Part of each device's time that stays for background work, in millionths.
    pub background_ppm: u32,
    /// What may be reserved of each server's network; zero: it is not reserved.
    pub network_bytes_per_second: u64,
    /// Users who may reserve besides administrators.
    #[serde(deserialize_with = "crate::bounded::list::<RESERVE_USERS_MAX, _, _>")]
    pub users: Vec<u32>,
}

/// What is asked of a manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReserveRequest {
    /// Reserves. Sent again with the same number, it is answered as before. Answer: `Reserved` or
    /// `Refused`.
    Create {
        /// Chosen at random by whoever asks.
        request: [u8; 16],
        /// Name of the volume; empty for objects that belong to none.
        #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
        volume: String,
        /// How it is to be called; not twice at a time in a volume.
        #[serde(deserialize_with = "crate::bounded::text::<RESERVE_NAME_BYTES_MAX, _>")]
        name: String,
        /// What.
        terms: ReserveTerms,
        /// Only look whether it would be admitted. Answer without tickets.
        dry_run: bool,
    },
    /// Those in the order of their identities: all for administrators, else one's own. Answer:
    /// `Reservations`.
    List {
        /// Those after this one; none: from the first on.
        after: Option<TicketId>,
    },
    /// Answer: `Reserved`, with tickets for those whose it is.
    Show(ReserveName),
    /// Moves the end of the window. Answer: `Reserved` or `Refused`.
    Extend {
        /// Which.
        which: ReserveName,
        /// Its new end, later than the present one.
        end_secs: u64,
        /// Only look whether it would be admitted.
        dry_run: bool,
    },
    /// Gives the rate back from now on; what was written stays. Answer: `Reserved`.
    Release {
        /// Which.
        which: ReserveName,
        /// Only look whether it could be done.
        dry_run: bool,
    },
    /// Gives everything back, with what was written. Answer: `Done` or `Later`.
    Cancel {
        /// Which.
        which: ReserveName,
        /// Also if something was written in its space.
        discard: bool,
        /// Only look whether it could be done.
        dry_run: bool,
    },
    /// What was delivered. Answer: `Report`.
    Report {
        /// Which.
        which: ReserveName,
        /// From which second on single seconds are wanted.
        from_second: u64,
    },
    /// Answer: `Limits`.
    Limits,
    /// Sets them. For administrators. What is reserved already stays. Answer: `Limits`.
    SetLimits {
        /// All of them.
        limits: ReserveLimits,
        /// Only check.
        dry_run: bool,
    },
    /// The ticket for the present or the next window, for who has that of an earlier one, or of the
    /// same before it was made longer. Answer: `Reserved`, with the ticket for the same server, or
    /// with none if the reservation is over.
    Renew {
        /// Whose the ticket is.
        reservation: TicketId,
        /// The ticket, as it was issued: no part of one.
        #[serde(deserialize_with = "crate::bounded::list::<TICKET_BYTES_MAX, _, _>")]
        ticket: Vec<u8>,
    },
}

/// A reservation of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveName {
    /// Name of the volume; empty for none.
    #[serde(deserialize_with = "crate::bounded::text::<255, _>")]
    pub volume: String,
    /// Its name, or its identity in hexadecimal.
    #[serde(deserialize_with = "crate::bounded::text::<RESERVE_NAME_BYTES_MAX, _>")]
    pub name: String,
}

/// How a reservation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReserveState {
    /// Its first window has not begun.
    Planned,
    /// It has begun and is not over.
    Active,
    /// Its last window is over.
    Ended,
    /// Its rate was given back before the end.
    Released,
    /// It would be admitted.
    Possible,
}

/// A device's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveSlice {
    /// The server.
    pub server: ServerId,
    /// Its store.
    pub store: StoreId,
    /// Share of the device's time, in millionths.
    pub share_ppm: u32,
    /// Bytes in a row that lie on it; zero for what is not striped.
    pub stripe_unit_bytes: u32,
    /// Allocation units.
    pub aus: u64,
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationSummary {
    /// Identity; that of its first ticket.
    pub id: TicketId,
    /// Name.
    #[serde(deserialize_with = "crate::bounded::text::<RESERVE_NAME_BYTES_MAX, _>")]
    pub name: String,
    /// The volume; zeros for none.
    pub volume: VolumeId,
    /// The user whose it is.
    pub holder: u32,
    /// How it is.
    pub state: ReserveState,
    /// Rate of reading.
    pub read_bytes_per_second: u64,
    /// Rate of writing.
    pub write_bytes_per_second: u64,
    /// For how long an idle share is saved, in milliseconds.
    pub burst_millis: u32,
    /// Space.
    pub space_bytes: u64,
    /// First second of the first window.
    pub start_secs: u64,
    /// The second after the last one of the first window.
    pub end_secs: u64,
    /// Seconds from one start to the next.
    pub every_secs: u64,
    /// Windows.
    pub count: u32,
    /// For how long what was written stays after the end of its window.
    pub lifetime_secs: u64,
    /// From when on its rate was given back, if it was.
    pub released_secs: Option<u64>,
    /// Where; as many servers as are named here carry it.
    #[serde(deserialize_with = "crate::bounded::list::<RESERVE_SLICES_MAX, _, _>")]
    pub slices: Vec<ReserveSlice>,
}

/// A ticket for one server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerTicket {
    /// Which.
    pub server: ServerId,
    /// The bytes that it wants to see: a secret.
    #[serde(deserialize_with = "crate::bounded::list::<TICKET_BYTES_MAX, _, _>")]
    pub ticket: Vec<u8>,
}

impl std::fmt::Debug for ServerTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerTicket({})", self.server)
    }
}

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scarce {
    /// The time of a store's device; amounts are millionths.
    Device(StoreId),
    /// A server's network; amounts are bytes per second.
    Network(ServerId),
    /// A store's space; amounts are allocation units.
    Space(StoreId),
    /// Stores that promises can be made of; the amounts are how many there are.
    Stores,
}

/// Why something is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveShort {
    /// What is short, where it is closest to enough.
    pub what: Scarce,
    /// How much of that would be needed.
    pub wanted: u64,
    /// How much there is all the time.
    pub room: u64,
    /// From when on there is too little.
    pub from_secs: u64,
}

/// In what an offer differs from what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReserveOfferKind {
    /// It begins later.
    Later,
    /// It begins earlier.
    Earlier,
    /// It is slower.
    Slower,
}

/// What would be admitted instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveOffer {
    /// In what it differs.
    pub kind: ReserveOfferKind,
    /// First second of the first window.
    pub start_secs: u64,
    /// The second after its last one.
    pub end_secs: u64,
    /// Rate of reading.
    pub read_bytes_per_second: u64,
    /// Rate of writing.
    pub write_bytes_per_second: u64,
}

/// One second of a report: sums over all devices, and the worst cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportSecond {
    /// Which.
    pub second: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Device time that was promised, in microseconds.
    pub promised_micros: u32,
    /// Device time that was had, in microseconds.
    pub served_micros: u32,
    /// Why it was too little, if it was.
    pub shortfall: Option<Shortfall>,
}

/// What was delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveReport {
    /// Which.
    pub summary: ReservationSummary,
    /// Seconds of its windows that are accounted for, added up over its devices.
    pub seconds: u64,
    /// Those of them in which it had what was promised, or did not want it.
    pub kept: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Whether all its stores have all its space, or had until its end.
    pub space_kept: bool,
    /// Single seconds, oldest first: the last ones of the present or last window.
    #[serde(deserialize_with = "crate::bounded::list::<TICKET_RECORD_PAGE_MAX, _, _>")]
    pub record: Vec<ReportSecond>,
}

/// What a manager answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReserveReply {
    /// It is done, or could be.
    Done,
    /// The reservation, as it is or would be.
    Reserved {
        /// It.
        summary: ReservationSummary,
        /// The window that the tickets are for, counted from 0: the present or the next one.
        occurrence: u32,
        /// One for each server.
        #[serde(deserialize_with = "crate::bounded::list::<RESERVE_SLICES_MAX, _, _>")]
        tickets: Vec<ServerTicket>,
    },
    /// Some of them.
    Reservations {
        /// In the order of their identities.
        #[serde(deserialize_with = "crate::bounded::list::<RESERVE_LIST_MAX, _, _>")]
        list: Vec<ReservationSummary>,
        /// Whether there are more behind these.
        more: bool,
    },
    /// It is not admitted.
    Refused {
        /// Why.
        short: ReserveShort,
        /// What would be.
        #[serde(deserialize_with = "crate::bounded::list::<RESERVE_OFFERS_MAX, _, _>")]
        offers: Vec<ReserveOffer>,
    },
    /// What was delivered.
    Report(ReserveReport),
    /// The limits.
    Limits(ReserveLimits),
    /// It cannot be done, and why, in the manager's words.
    Failed {
        /// Stable word for programs.
        code: ReserveError,
        /// One sentence for people.
        #[serde(deserialize_with = "crate::bounded::text::<ADMIN_TEXT_BYTES_MAX, _>")]
        message: String,
    },
    /// It is done, but for what a storage server holds that is away: that follows by itself.
    Later {
        /// Which server is away, in the manager's words.
        #[serde(deserialize_with = "crate::bounded::text::<ADMIN_TEXT_BYTES_MAX, _>")]
        message: String,
    },
}

/// Why a manager does not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReserveError {
    /// No such reservation.
    NotFound,
    /// The name is taken.
    Exists,
    /// It makes no sense.
    Invalid,
    /// Who asks may not.
    Forbidden,
    /// Its time is over.
    Over,
    /// Something was written in its space.
    InUse,
    /// The files of the volume lie on no store.
    Unreservable,
    /// The manager cannot write at the moment, or somebody else is the manager.
    Unavailable,
    /// A bound is reached.
    Limit,
    /// A storage server did not do its part.
    Storage,
    /// A storage server is away, or does not answer.
    Away,
    /// No such volume.
    NoVolume,
}
