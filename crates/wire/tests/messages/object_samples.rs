//! Samples of what is said about objects.

use super::samples::{Sample, encoded};
use base::{Extent, ObjectId, RequestId, StoreId, TicketId, WriteVerifier};
use std::collections::BTreeSet;
use wire::message::*;

const STORE: StoreId = StoreId([0x51; 16]);
const OBJECT: ObjectId = ObjectId([0x52; 16]);
const TICKET: TicketId = TicketId([0x53; 16]);

pub(crate) fn batch() -> ObjectRequest {
    ObjectRequest::Batch(ObjectBatch {
        store: STORE,
        ticket: Some(300),
        settled: Settled::all_below(RequestId(9)),
        steps: vec![ObjectStep::Commit, ObjectStep::Info { object: OBJECT }],
    })
}

pub(crate) fn results() -> ObjectReply {
    ObjectReply::Results {
        verifier: WriteVerifier([0x54; 16]),
        results: vec![
            Ok(ObjectStepReply::Done),
            Err(ObjectError::Ticket(TicketRefusal::Budget)),
        ],
        server_micros: 1234,
    }
}

fn requests() -> Vec<Sample> {
    let samples = vec![
        ObjectRequest::Stores,
        ObjectRequest::OpenTicket {
            number: 300,
            ticket: vec![0x41, 0x5a],
        },
        ObjectRequest::CloseTicket { number: 300 },
        ObjectRequest::TicketRecord {
            number: 300,
            store: STORE,
            from_second: 1 << 31,
        },
        batch(),
        ObjectRequest::Devices,
        ObjectRequest::LineageRecord {
            store: STORE,
            lineage: vec![TICKET],
            from_second: 1 << 31,
        },
        ObjectRequest::Revoke {
            tickets: vec![(TICKET, 1 << 31)],
        },
    ];
    names!(samples, ObjectRequest: Stores OpenTicket CloseTicket TicketRecord Batch Devices
        LineageRecord Revoke)
}

fn attribute() -> ObjectAttribute {
    ObjectAttribute {
        name: b"user.a".to_vec(),
        contents: vec![1, 2, 3],
    }
}

fn steps() -> Vec<Sample> {
    let object = OBJECT;
    let mut samples = vec![
        ObjectStep::Create {
            object,
            end_secs: Some(1 << 31),
        },
        ObjectStep::Write {
            object,
            offset: 1 << 40,
            bytes: 1 << 20,
        },
        ObjectStep::Append { object, bytes: 300 },
        ObjectStep::Read {
            object,
            offset: 300,
            bytes: 1 << 19,
        },
        ObjectStep::Truncate {
            object,
            size_bytes: 300,
        },
        ObjectStep::Punch {
            object,
            hole: Extent::new(300, 400),
        },
        ObjectStep::SetAttribute {
            object,
            attribute: attribute(),
        },
        ObjectStep::RemoveAttribute {
            object,
            name: b"user.a".to_vec(),
        },
        ObjectStep::Attributes { object },
        ObjectStep::Info { object },
        ObjectStep::Delete { object },
        ObjectStep::List {
            from: object,
            count_max: 300,
        },
        ObjectStep::Commit,
    ];
    samples.extend(later_steps());
    names!(samples, ObjectStep:
        Create Write Append Read Truncate Punch SetAttribute RemoveAttribute Attributes Info Delete
        List Commit ConfirmSpace ExtendSpace ReleaseSpace SpaceUsed Cut Discard
        Allocate Seek WriteUnder PunchUnder AllocateUnder CutUnder TrySpace
    )
}

fn later_steps() -> Vec<ObjectStep> {
    let object = OBJECT;
    vec![
        ObjectStep::ConfirmSpace {
            ticket: TICKET,
            start_secs: 1 << 31,
            end_secs: u64::MAX,
            aus: 300,
            records: 400,
        },
        ObjectStep::ExtendSpace {
            ticket: TICKET,
            end_secs: 1 << 32,
        },
        ObjectStep::ReleaseSpace { ticket: TICKET },
        ObjectStep::SpaceUsed { ticket: TICKET },
        ObjectStep::Cut {
            object,
            size_bytes: 300,
        },
        ObjectStep::Discard { object },
        ObjectStep::Allocate {
            object,
            extent: Extent::new(300, 400),
            is_cleared: true,
        },
        ObjectStep::Seek {
            object,
            offset: 300,
            what: SeekWhat::Hole,
        },
        ObjectStep::WriteUnder {
            object,
            generation: 300,
            offset: 1 << 40,
            bytes: 1 << 20,
        },
        ObjectStep::PunchUnder {
            object,
            generation: 300,
            hole: Extent::new(300, 400),
        },
        ObjectStep::AllocateUnder {
            object,
            generation: 300,
            extent: Extent::new(300, 400),
            is_cleared: true,
        },
        ObjectStep::CutUnder {
            object,
            generation: 300,
            size_bytes: 400,
        },
        ObjectStep::TrySpace {
            intervals: vec![(1 << 31, u64::MAX), (300, 400)],
            aus: 300,
            records: 400,
        },
    ]
}

fn summary() -> ObjectSummary {
    ObjectSummary {
        object: OBJECT,
        size_bytes: 300,
        end_secs: 1 << 31,
        is_reserved: true,
    }
}

fn step_replies() -> Vec<Sample> {
    let samples = vec![
        ObjectStepReply::Done,
        ObjectStepReply::Appended { offset: 300 },
        ObjectStepReply::Data { bytes: 300 },
        ObjectStepReply::Attributes(vec![attribute()]),
        ObjectStepReply::Info(summary()),
        ObjectStepReply::Objects {
            list: vec![summary()],
            next: Some(OBJECT),
        },
        ObjectStepReply::Space {
            held: Some((300, 200)),
        },
        ObjectStepReply::Sought {
            found: Some(300),
            next: None,
        },
    ];
    names!(samples, ObjectStepReply: Done Appended Data Attributes Info Objects Space Sought)
}

pub(crate) fn store() -> StoreSummary {
    StoreSummary {
        store: STORE,
        path: "stores/0".into(),
        au_bytes: 1 << 20,
        au_count: 300,
        au_free: 200,
        au_open: 150,
        read_bytes_per_second: 1 << 30,
        write_bytes_per_second: 1 << 31,
        read_piece_bytes: 1 << 18,
        write_piece_bytes: 1 << 19,
        promised_ppm_max: 900_000,
        promised_ppm: 300_000,
        tickets: 3,
        waiting: 4,
        in_flight: 5,
        done: [6, 7, 8],
        done_bytes: [1 << 33, 1 << 34, 1 << 35],
        speed_ppm: Some(1_100_000),
        is_degraded: true,
        is_quick: false,
        is_older: false,
        failure: Some("failed".into()),
    }
}

fn replies() -> Vec<Sample> {
    let samples = vec![
        ObjectReply::Done,
        ObjectReply::Stores(vec![store()]),
        ObjectReply::Ticket { now_nanos: 1 << 60 },
        ObjectReply::Record {
            seconds: vec![RecordSecond {
                second: 1 << 31,
                bytes: 1 << 28,
                served_micros: 400_000,
                promised_micros: 500_000,
                shortfall: Some(Shortfall::SlowDevice),
            }],
            total: RecordTotal {
                seconds: 10,
                kept: 9,
                bytes: 1 << 33,
            },
        },
        results(),
        ObjectReply::Failed(ObjectError::Busy),
        ObjectReply::Devices(vec![DeviceSummary {
            summary: store(),
            capability: vec![1, 2, 3],
            keeps_objects: true,
            sharers: 4,
        }]),
    ];
    names!(samples, ObjectReply: Done Stores Ticket Record Results Failed Devices)
}

fn refusals() -> Vec<Sample> {
    use TicketRefusal as T;
    let samples = vec![
        T::Truncated,
        T::Malformed,
        T::UnknownVersion(300),
        T::OtherCluster,
        T::OtherServer,
        T::UnknownKey(300),
        T::Forged,
        T::Widened,
        T::Revoked,
        T::NotYet { seconds: 300 },
        T::Expired { seconds: 300 },
        T::ClockUnsure,
        T::Oversplit { room_ppm: 300 },
        T::TooMany,
        T::NotOpen,
        T::Operation,
        T::Scope,
        T::NoSlice,
        T::Budget,
        T::Lifetime,
    ];
    names!(samples, TicketRefusal:
        Truncated Malformed UnknownVersion OtherCluster OtherServer UnknownKey Forged Widened
        Revoked NotYet Expired ClockUnsure Oversplit TooMany NotOpen Operation Scope NoSlice Budget
        Lifetime
    )
}

fn errors() -> Vec<Sample> {
    use ObjectError as E;
    let samples = vec![
        E::UnknownStore,
        E::NotFound,
        E::Exists,
        E::Expired,
        E::NoSpace,
        E::SpaceUsed,
        E::NotHeld,
        E::Conflict,
        E::Refused {
            offer_secs: Some((300, 400)),
        },
        E::Lifetime,
        E::TooLong,
        E::Attribute,
        E::Invalid,
        E::Damaged,
        E::ReadOnly,
        E::Device,
        E::Forbidden,
        E::Busy,
        E::Ticket(TicketRefusal::Scope),
        E::TooManyRevoked,
        E::NoRoom {
            wanted: 300,
            room: 200,
            offer_secs: Some((300, 400)),
        },
        E::Superseded,
        E::NotYet,
    ];
    names!(samples, ObjectError:
        UnknownStore NotFound Exists Expired NoSpace SpaceUsed NotHeld Conflict Refused Lifetime
        TooLong Attribute Invalid Damaged ReadOnly Device Forbidden Busy Ticket TooManyRevoked
        NoRoom Superseded NotYet
    )
}

/// All of them, by the name of their golden file.
pub(crate) fn all() -> Vec<(&'static str, Vec<Sample>)> {
    vec![
        ("object_request", requests()),
        ("object_step", steps()),
        ("object_step_reply", step_replies()),
        ("object_reply", replies()),
        ("object_error", errors()),
        ("ticket_refusal", refusals()),
        (
            "object_word",
            words!(Shortfall: NoDemand TooFewInFlight SlowDevice Degraded ServerAway),
        ),
    ]
}
