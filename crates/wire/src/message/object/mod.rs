//! Objects of a storage server, and the tickets under which they are used.
//!
//! A *batch* is for one store and comes with one ticket or none. Its steps run in order and stop
//! at the first failure; steps of different batches run at once. Data travels in the payload of
//! the frame as with file steps: the parts of all steps one after another, each of the length that
//! its step states.
//!
//! A ticket is shown once in a session ([`ObjectRequest::OpenTicket`]), with a number that the
//! client chooses for it; batches name the number.
//!
//! What was changed is durable after a [`ObjectStep::Commit`] that was answered with the same
//! [`ObjectReply::Results::verifier`] as the change. Another verifier says that the server has
//! started anew in between: what was not committed may be gone.

mod expected;

pub use expected::ExpectedObjects;

use super::file::{SeekWhat, Settled};
use base::limits::{
    CAPABILITY_BYTES_MAX, COMPOUND_STEPS_MAX, DATA_BYTES_MAX, OBJECT_ATTRIBUTE_BYTES_MAX,
    OBJECT_ATTRIBUTE_NAME_BYTES_MAX, OBJECT_ATTRIBUTES_MAX, OBJECTS_PER_PAGE_MAX,
    RESERVE_SPACE_COUNT_MAX, REVOKED_TICKETS_MAX, SERVER_STORES_MAX, STORE_TEXT_BYTES_MAX,
    TICKET_BYTES_MAX, TICKET_LINKS_MAX, TICKET_RECORD_PAGE_MAX,
};
use base::{Extent, ObjectId, StoreId, TicketId, WriteVerifier};
use serde::{Deserialize, Serialize};

/// What is asked of a storage server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectRequest {
    /// Which stores there are, and how they are. Answer: `Stores`.
    Stores,
    /// Shows a ticket. Shown again under the same number, it takes the place of the one before.
    /// Answer: `Ticket`.
    OpenTicket {
        /// How this session calls it from now on.
        number: u32,
        /// Its bytes.
        #[serde(deserialize_with = "crate::bounded::list::<TICKET_BYTES_MAX, _, _>")]
        ticket: Vec<u8>,
    },
    /// The number is free again; what is under way with it goes on. Answer: `Done`.
    CloseTicket {
        /// As it was opened.
        number: u32,
    },
    /// What a ticket of this session got from one store, second by second. Answer: `Record`.
    TicketRecord {
        /// As it was opened.
        number: u32,
        /// Of which of its stores.
        store: StoreId,
        /// Seconds before this one are not wanted again.
        from_second: u64,
    },
    /// Steps. Answer: `Results`.
    Batch(ObjectBatch),
    /// Which stores there are, and what may be promised of them. For managers, with an
    /// administrator's credential, as all below. Answer: `Devices`.
    Devices,
    /// As `TicketRecord`, of a ticket that the manager knows by its number. Answer: `Record`.
    LineageRecord {
        /// Of which store.
        store: StoreId,
        /// The reservation's ticket, and the parts on the way to the one that is meant.
        #[serde(deserialize_with = "crate::bounded::list::<LINEAGE_MAX, _, _>")]
        lineage: Vec<TicketId>,
        /// Seconds before this one are not wanted again.
        from_second: u64,
    },
    /// Takes tickets back, each until a second from which on it is over anyway; durable when
    /// answered. Answer: `Done`, or `Failed` with `TooManyRevoked`.
    Revoke {
        /// Which, and until when.
        #[serde(deserialize_with = "crate::bounded::list::<REVOKED_TICKETS_MAX, _, _>")]
        tickets: Vec<(TicketId, u64)>,
    },
}

/// Tickets in a lineage: the whole, and each part on the way down.
const LINEAGE_MAX: usize = TICKET_LINKS_MAX + 1;

/// Intervals that one step asks about: all windows of a reservation with space.
const SPACE_INTERVALS_MAX: usize = RESERVE_SPACE_COUNT_MAX as usize;

/// Steps for one store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectBatch {
    /// Which.
    pub store: StoreId,
    /// The number of the ticket with which it comes; none for the leftover.
    pub ticket: Option<u32>,
    /// What the server kept in order to answer it again, and can forget.
    pub settled: Settled,
    /// What to do, in order.
    #[serde(deserialize_with = "crate::bounded::list::<COMPOUND_STEPS_MAX, _, _>")]
    pub steps: Vec<ObjectStep>,
}

/// Name and contents of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectAttribute {
    /// 1 to 64 bytes.
    #[serde(deserialize_with = "crate::bounded::list::<OBJECT_ATTRIBUTE_NAME_BYTES_MAX, _, _>")]
    pub name: Vec<u8>,
    /// At most 1,024 bytes.
    #[serde(deserialize_with = "crate::bounded::list::<OBJECT_ATTRIBUTE_BYTES_MAX, _, _>")]
    pub contents: Vec<u8>,
}

/// One thing to do in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectStep {
    /// Makes an object without bytes; with a ticket that has space there, in that space. Answer:
    /// `Done`.
    Create {
        /// Its identity; see the ticket's scope in `docs/formats/wire.md`.
        object: ObjectId,
        /// The second at which its time is over; none for as long as its space lasts, or the
        /// store's default.
        end_secs: Option<u64>,
    },
    /// Writes data of the payload. Answer: `Done`.
    Write {
        /// Where to.
        object: ObjectId,
        /// From which byte on.
        offset: u64,
        /// Length of its part of the payload.
        bytes: u32,
    },
    /// Writes data of the payload at the end. Answer: `Appended`.
    Append {
        /// Where to.
        object: ObjectId,
        /// Length of its part of the payload.
        bytes: u32,
    },
    /// Answer: `Data`.
    Read {
        /// Of what.
        object: ObjectId,
        /// From which byte on.
        offset: u64,
        /// How many at most; fewer at the end of the object.
        bytes: u32,
    },
    /// Makes it so long. Answer: `Done`.
    Truncate {
        /// What.
        object: ObjectId,
        /// How long.
        size_bytes: u64,
    },
    /// Makes bytes zeros and gives back whole allocation units. Answer: `Done`.
    Punch {
        /// Where.
        object: ObjectId,
        /// Which.
        hole: Extent,
    },
    /// Gives an attribute these contents. Answer: `Done`.
    SetAttribute {
        /// Of what.
        object: ObjectId,
        /// Which, and to what.
        attribute: ObjectAttribute,
    },
    /// Answer: `Done`.
    RemoveAttribute {
        /// Of what.
        object: ObjectId,
        /// Which.
        #[serde(
            deserialize_with = "crate::bounded::list::<OBJECT_ATTRIBUTE_NAME_BYTES_MAX, _, _>"
        )]
        name: Vec<u8>,
    },
    /// Answer: `Attributes`.
    Attributes {
        /// Of what.
        object: ObjectId,
    },
    /// Answer: `Info`.
    Info {
        /// Of what.
        object: ObjectId,
    },
    /// Answer: `Done`.
    Delete {
        /// What.
        object: ObjectId,
    },
    /// Objects in the order of their identities. Answer: `Objects`. Not for users' credentials.
    List {
        /// From which on.
        from: ObjectId,
        /// How many at most.
        count_max: u32,
    },
    /// Everything that was answered before is durable when this is. Answer: `Done`.
    Commit,
    /// Gives a ticket space from one second to another; durable when answered. For managers, with
    /// an administrator's credential. Answer: `Done`.
    ConfirmSpace {
        /// Whose.
        ticket: TicketId,
        /// The first second.
        start_secs: u64,
        /// The second after the last one; the largest number means for ever.
        end_secs: u64,
        /// Allocation units.
        aus: u64,
        /// Records: one for each object, eight for each attribute.
        records: u64,
    },
    /// Lengthens a ticket's space; as `ConfirmSpace`. Answer: `Done`.
    ExtendSpace {
        /// Whose.
        ticket: TicketId,
        /// The second after the last one.
        end_secs: u64,
    },
    /// Takes a ticket's space back with all that is in it; as `ConfirmSpace`. Answer: `Done`.
    ReleaseSpace {
        /// Whose.
        ticket: TicketId,
    },
    /// How much space a ticket has, and how much of it is in use; as `ConfirmSpace`. Answer:
    /// `Space`.
    SpaceUsed {
        /// Whose.
        ticket: TicketId,
    },
    /// Makes it so long if it is longer; nothing if it is not there. Answer: `Done`.
    Cut {
        /// What.
        object: ObjectId,
        /// How long at most.
        size_bytes: u64,
    },
    /// Removes it if it is there. Answer: `Done`.
    Discard {
        /// What.
        object: ObjectId,
    },
    /// Gives it the space for bytes, written or not, and makes it that long if it is shorter.
    /// Answer: `Done`.
    Allocate {
        /// What.
        object: ObjectId,
        /// Which bytes.
        extent: Extent,
        /// Whether those that are there become zeros.
        is_cleared: bool,
    },
    /// The next data or hole at or after an offset; what lies behind the end is a hole. Answer:
    /// `Sought`.
    Seek {
        /// Of what.
        object: ObjectId,
        /// From which byte on.
        offset: u64,
        /// What is looked for.
        what: SeekWhat,
    },
    /// As `Write`, by a layout of this generation; `Superseded` if the object is of a newer one.
    WriteUnder {
        /// Where to.
        object: ObjectId,
        /// That of the layout.
        generation: u64,
        /// From which byte on.
        offset: u64,
        /// Length of its part of the payload.
        bytes: u32,
    },
    /// As `Punch`, in the same way.
    PunchUnder {
        /// Where.
        object: ObjectId,
        /// That of the layout.
        generation: u64,
        /// Which bytes.
        hole: Extent,
    },
    /// As `Allocate`, in the same way.
    AllocateUnder {
        /// What.
        object: ObjectId,
        /// That of the layout.
        generation: u64,
        /// Which bytes.
        extent: Extent,
        /// Whether those that are there become zeros.
        is_cleared: bool,
    },
    /// Makes it so long if it is longer, and refuses what comes by a layout of an older generation
    /// from now on. If it is not there, it is made for that, and does not end. If it is of this
    /// generation already, or of a later one, it stays as it is. Answer: `Done`.
    CutUnder {
        /// What.
        object: ObjectId,
        /// The generation that begins with this.
        generation: u64,
        /// How long at most.
        size_bytes: u64,
    },
    /// Whether tickets could be given space, each for one of these intervals and all together;
    /// nothing is taken. Who may ask, and what is refused: as `ConfirmSpace`. Answer: `Done`.
    TrySpace {
        /// The first second of each, and the second after the last one.
        #[serde(deserialize_with = "crate::bounded::list::<SPACE_INTERVALS_MAX, _, _>")]
        intervals: Vec<(u64, u64)>,
        /// Allocation units in each.
        aus: u64,
        /// Records in each, as in `ConfirmSpace`.
        records: u64,
    },
}

impl ObjectStep {
    /// Bytes of payload that go with it.
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        match self {
            Self::Write { bytes, .. }
            | Self::WriteUnder { bytes, .. }
            | Self::Append { bytes, .. } => *bytes,
            _ => 0,
        }
    }

    /// Bytes of payload that its reply has at most.
    #[must_use]
    pub fn reply_bytes(&self) -> u32 {
        match self {
            Self::Read { bytes, .. } => *bytes,
            _ => 0,
        }
    }

    /// Whether its reply depends on which bytes an object has.
    #[must_use]
    pub fn reads_bytes(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Seek { .. })
    }

    /// Whether it must not run again if its reply is lost: a second time it would fail, or do more.
    #[must_use]
    pub fn must_run_once(&self) -> bool {
        matches!(
            self,
            Self::Create { .. } | Self::Append { .. } | Self::Delete { .. }
        )
    }
}

/// What a storage server answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectReply {
    /// It is done.
    Done,
    /// The stores.
    Stores(
        #[serde(deserialize_with = "crate::bounded::list::<SERVER_STORES_MAX, _, _>")]
        Vec<StoreSummary>,
    ),
    /// The ticket is good.
    Ticket {
        /// The server's clock, in nanoseconds since 1970, by which windows are judged.
        now_nanos: u64,
    },
    /// Seconds of a ticket, oldest first.
    Record {
        /// Those that are over; more are asked for page by page.
        #[serde(deserialize_with = "crate::bounded::list::<TICKET_RECORD_PAGE_MAX, _, _>")]
        seconds: Vec<RecordSecond>,
        /// All seconds since it was opened, as far as they are over.
        total: RecordTotal,
    },
    /// To steps.
    Results {
        /// Of this run of the store's server.
        verifier: WriteVerifier,
        /// One result per step carried out, up to and including the first failure.
        #[serde(deserialize_with = "crate::bounded::list::<COMPOUND_STEPS_MAX, _, _>")]
        results: Vec<Result<ObjectStepReply, ObjectError>>,
        /// Time at the server from the request's arrival to this reply, in microseconds.
        server_micros: u32,
    },
    /// To a request that is not a batch: it failed.
    Failed(ObjectError),
    /// The stores, for a manager.
    Devices(
        #[serde(deserialize_with = "crate::bounded::list::<SERVER_STORES_MAX, _, _>")]
        Vec<DeviceSummary>,
    ),
}

/// What one step is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectStepReply {
    /// It is done.
    Done,
    /// Where the data begins.
    Appended {
        /// In bytes.
        offset: u64,
    },
    /// Data, in the payload.
    Data {
        /// How much.
        bytes: u32,
    },
    /// All attributes.
    Attributes(
        #[serde(deserialize_with = "crate::bounded::list::<OBJECT_ATTRIBUTES_MAX, _, _>")]
        Vec<ObjectAttribute>,
    ),
    /// One object.
    Info(ObjectSummary),
    /// Some objects.
    Objects {
        /// These.
        #[serde(deserialize_with = "crate::bounded::list::<OBJECTS_PER_PAGE_MAX, _, _>")]
        list: Vec<ObjectSummary>,
        /// From where to go on; none at the end.
        next: Option<ObjectId>,
    },
    /// Space of a ticket.
    Space {
        /// Allocation units that it has, and those of them that are in use; none if it has none.
        held: Option<(u64, u64)>,
    },
    /// What was looked for is here, or there is none.
    Sought {
        /// Where; none if it is not before `next`.
        found: Option<u64>,
        /// From where on nothing was looked at; none if there is no more.
        next: Option<u64>,
    },
}

/// What there is to say of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectSummary {
    /// Which.
    pub object: ObjectId,
    /// Its length.
    pub size_bytes: u64,
    /// The second at which its time is over; the largest number means never.
    pub end_secs: u64,
    /// Whether it has space of a reservation.
    pub is_reserved: bool,
}

/// One store, in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSummary {
    /// Which.
    pub store: StoreId,
    /// Where it is, for administrators; else empty.
    #[serde(deserialize_with = "crate::bounded::text::<STORE_TEXT_BYTES_MAX, _>")]
    pub path: String,
    /// Size of an allocation unit.
    pub au_bytes: u64,
    /// How many there are; none if the store is missing.
    pub au_count: u64,
    /// How many of them are nobody's.
    pub au_free: u64,
    /// How many of these whoever has no reservation can use now: the others are kept for
    /// reservations, and for the store's own records.
    pub au_open: u64,
    /// The highest rates that reservations can get of it when it has nothing else to do, in bytes a
    /// second; zero if it was not measured.
    pub read_bytes_per_second: u64,
    /// As for reading.
    pub write_bytes_per_second: u64,
    /// Into pieces of this size the server cuts reads for its device.
    pub read_piece_bytes: u32,
    /// As for reading.
    pub write_piece_bytes: u32,
    /// What may be promised to reservations, in millionths of its time.
    pub promised_ppm_max: u32,
    /// What tickets that are open have of it now.
    pub promised_ppm: u32,
    /// Tickets that are open.
    pub tickets: u32,
    /// Pieces that wait, and pieces at the device.
    pub waiting: u32,
    /// See `waiting`.
    pub in_flight: u32,
    /// Pieces done since the start: of tickets, of users, of the store itself.
    pub done: [u64; 3],
    /// Bytes of these.
    pub done_bytes: [u64; 3],
    /// What the device did when it last had as much to do as it could, in millionths of what was
    /// measured.
    pub speed_ppm: Option<u32>,
    /// Whether it has been slower than what is promised for some seconds.
    pub is_degraded: bool,
    /// Whether it was measured for a moment only, so that less is promised than was found.
    pub is_quick: bool,
    /// Whether it is missing because what is there is an older state of it.
    pub is_older: bool,
    /// Why the store takes no changes, if it does not.
    #[serde(deserialize_with = "crate::bounded::optional_text::<STORE_TEXT_BYTES_MAX, _>")]
    pub failure: Option<String>,
}

impl StoreSummary {
    /// A store that the server could not open when it was started: it has no allocation units.
    #[must_use]
    pub fn missing(store: StoreId) -> Self {
        Self {
            store,
            path: String::new(),
            au_bytes: 0,
            au_count: 0,
            au_free: 0,
            au_open: 0,
            read_bytes_per_second: 0,
            write_bytes_per_second: 0,
            read_piece_bytes: DATA_BYTES_MAX,
            write_piece_bytes: DATA_BYTES_MAX,
            promised_ppm_max: 0,
            promised_ppm: 0,
            tickets: 0,
            waiting: 0,
            in_flight: 0,
            done: [0; 3],
            done_bytes: [0; 3],
            speed_ppm: None,
            is_degraded: false,
            is_quick: false,
            is_older: false,
            failure: None,
        }
    }

    /// Whether it is one of those.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.au_count == 0
    }
}

/// One store, for a manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// As in any list.
    pub summary: StoreSummary,
    /// What was measured, as the store keeps it (`docs/formats/store.md`); empty if it was not.
    #[serde(deserialize_with = "crate::bounded::list::<CAPABILITY_BYTES_MAX, _, _>")]
    pub capability: Vec<u8>,
    /// Whether all objects live until somebody removes them.
    pub keeps_objects: bool,
    /// How many stores of this server lie on the same disk, this one included.
    pub sharers: u32,
}

/// One second of a ticket at one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSecond {
    /// Since 1970, by the server's clock.
    pub second: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Device time of these, in microseconds.
    pub served_micros: u32,
    /// Device time that was promised.
    pub promised_micros: u32,
    /// Why it was less than promised; none if it was not.
    pub shortfall: Option<Shortfall>,
}

/// Sums over the seconds of a ticket at one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordTotal {
    /// Seconds that are over.
    pub seconds: u64,
    /// Those in which it had what was promised, or did not want it.
    pub kept: u64,
    /// Bytes that were moved.
    pub bytes: u64,
}

/// Why a second brought less than promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shortfall {
    /// Nothing was asked for.
    NoDemand,
    /// Too little was asked for at once.
    TooFewInFlight,
    /// The device was slower than it was measured to be.
    SlowDevice,
    /// It had been too slow for what is promised for several seconds.
    Degraded,
    /// The server was not there.
    ServerAway,
}

/// Why a ticket is worth nothing here and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum TicketRefusal {
    /// Bytes are missing.
    #[error("the ticket is cut off")]
    Truncated,
    /// These are not the bytes of a ticket.
    #[error("the ticket is malformed")]
    Malformed,
    /// Another release wrote it.
    #[error("the ticket has version {0}, which the server does not know")]
    UnknownVersion(u16),
    /// It was issued by another cluster.
    #[error("the ticket is one of another cluster")]
    OtherCluster,
    /// It is to be shown to another server.
    #[error("the ticket is for another server")]
    OtherServer,
    /// The server has no such key, or not any more.
    #[error("the ticket is under key {0}, which the server does not have")]
    UnknownKey(u32),
    /// Its code is not that of its bytes.
    #[error("the ticket is not genuine")]
    Forged,
    /// Whoever split it gave more than there was.
    #[error("a part of the ticket is wider than the whole")]
    Widened,
    /// It was taken back.
    #[error("the ticket was revoked")]
    Revoked,
    /// It is too early.
    #[error("the ticket begins {seconds} s from now")]
    NotYet {
        /// By the server's clock.
        seconds: u64,
    },
    /// It is too late.
    #[error("the ticket ended {seconds} s ago")]
    Expired {
        /// By the server's clock.
        seconds: u64,
    },
    /// The server's clock was set, and it does not know the time well enough to judge.
    #[error("the server's clock is not right at the moment")]
    ClockUnsure,
    /// Parts of the same ticket have its share already.
    #[error("{room_ppm} millionths are left of the ticket that it was split from")]
    Oversplit {
        /// What is left.
        room_ppm: u32,
    },
    /// The server has too many open.
    #[error("the server has too many tickets open")]
    TooMany,
    /// None is open under this number.
    #[error("no ticket is open under this number")]
    NotOpen,
    /// It does not allow this operation.
    #[error("the ticket does not allow this operation")]
    Operation,
    /// The object is not one of its volume or path.
    #[error("the object is outside the ticket's volume or path")]
    Scope,
    /// It has no share of this store.
    #[error("the ticket has no share of this store")]
    NoSlice,
    /// Its allocation units are all drawn.
    #[error("all allocation units of the ticket are drawn")]
    Budget,
    /// The object would live longer than the ticket allows.
    #[error("the ticket does not allow so long a lifetime")]
    Lifetime,
}

/// Why something was not done in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ObjectError {
    /// There is no such store.
    #[error("the server has no such store")]
    UnknownStore,
    /// There is no such object.
    #[error("there is no such object")]
    NotFound,
    /// There is one already.
    #[error("the object exists already")]
    Exists,
    /// The object's time is over.
    #[error("the object's time is over")]
    Expired,
    /// No space is free that nobody has reserved.
    #[error("no space is left that nobody has reserved")]
    NoSpace,
    /// The reservation's space is all used.
    #[error("the reservation's space is all in use")]
    SpaceUsed,
    /// There is no such reservation of space now.
    #[error("there is no such reservation of space now")]
    NotHeld,
    /// The ticket has space here under other terms.
    #[error("the ticket has space here under other terms")]
    Conflict,
    /// Space is not admitted; the next interval of that length in which it would be.
    #[error("the space does not fit")]
    Refused {
        /// From when to when, in seconds; none: never.
        offer_secs: Option<(u64, u64)>,
    },
    /// A lifetime that the store does not allow.
    #[error("the store does not allow such a lifetime")]
    Lifetime,
    /// Longer than an object can be, or beyond its last byte.
    #[error("the object would be too long")]
    TooLong,
    /// An attribute of wrong sizes, or too many.
    #[error("the attribute is too long, or there are too many")]
    Attribute,
    /// An argument that makes no sense.
    #[error("the request makes no sense")]
    Invalid,
    /// What lies on the device is not what was written there.
    #[error("the data is damaged")]
    Damaged,
    /// The store takes no changes since its device failed.
    #[error("the store takes no changes since its device failed")]
    ReadOnly,
    /// The device failed.
    #[error("the device failed")]
    Device,
    /// The credential does not allow it.
    #[error("the credential does not allow this")]
    Forbidden,
    /// The class's share of the server's memory or queues is full; later may do.
    #[error("too much is under way already")]
    Busy,
    /// The ticket.
    #[error(transparent)]
    Ticket(TicketRefusal),
    /// As many revoked tickets are remembered as can be.
    #[error("the server remembers as many revoked tickets as it can")]
    TooManyRevoked,
    /// As `Refused`, to a manager.
    #[error("{wanted} allocation units are wanted, and there are {room}")]
    NoRoom {
        /// Allocation units, or records.
        wanted: u64,
        /// How many there are in that interval.
        room: u64,
        /// As in `Refused`.
        offer_secs: Option<(u64, u64)>,
    },
    /// The object is of a newer generation than the layout by which it was found.
    #[error("the file was cut since its layout was told")]
    Superseded,
    /// The server has begun anew, and others have not written again yet what its stores may have
    /// lost: a batch that reads is to be sent once more. Nothing of it was done. Only to clients
    /// that have [`Features::WRITE_AGAIN`](super::Features::WRITE_AGAIN).
    #[error("others have not written again yet what a restart may have lost")]
    NotYet,
}
