//! Samples of what is said about reservations.

use super::samples::{Sample, encoded};
use base::{ServerId, StoreId, TicketId, VolumeId};
use std::collections::BTreeSet;
use wire::message::*;

const STORE: StoreId = StoreId([0x61; 16]);
const SERVER: ServerId = ServerId([0x62; 16]);
const TICKET: TicketId = TicketId([0x63; 16]);

fn which() -> ReserveName {
    ReserveName {
        volume: "lab".into(),
        name: "run42".into(),
    }
}

fn limits() -> ReserveLimits {
    ReserveLimits {
        unreserved_ppm: 100_000,
        background_ppm: 50_000,
        network_bytes_per_second: 1 << 30,
        users: vec![1000],
    }
}

fn create(window: ReserveWindow) -> ReserveRequest {
    ReserveRequest::Create {
        request: [0x64; 16],
        volume: "lab".into(),
        name: "run42".into(),
        terms: ReserveTerms {
            read_bytes_per_second: 0,
            write_bytes_per_second: 20_000_000,
            burst_millis: 200,
            space_bytes: 300_000_000,
            window,
            every_secs: 86_400,
            count: 2,
            lifetime_secs: 3600,
            stores: vec![STORE],
        },
        dry_run: true,
    }
}

pub(crate) fn request() -> ReserveRequest {
    create(ReserveWindow::At {
        start_secs: 1_700_000_000,
        end_secs: 1_700_000_120,
    })
}

fn requests() -> Vec<Sample> {
    let samples = vec![
        request(),
        create(ReserveWindow::Within {
            earliest_secs: 1_700_000_000,
            latest_secs: 1_700_001_000,
            duration_secs: 120,
        }),
        ReserveRequest::List {
            after: Some(TICKET),
        },
        ReserveRequest::Show(which()),
        ReserveRequest::Extend {
            which: which(),
            end_secs: 1_700_000_240,
            dry_run: false,
        },
        ReserveRequest::Release {
            which: which(),
            dry_run: true,
        },
        ReserveRequest::Cancel {
            which: which(),
            discard: true,
            dry_run: false,
        },
        ReserveRequest::Report {
            which: which(),
            from_second: 1 << 31,
        },
        ReserveRequest::Limits,
        ReserveRequest::SetLimits {
            limits: limits(),
            dry_run: true,
        },
        ReserveRequest::Renew {
            reservation: TICKET,
            ticket: vec![7; 3],
        },
    ];
    names!(samples, ReserveRequest: Create List Show Extend Release Cancel Report Limits SetLimits
        Renew)
}

fn summary(state: ReserveState) -> ReservationSummary {
    ReservationSummary {
        id: TICKET,
        name: "run42".into(),
        volume: VolumeId([0x65; 16]),
        holder: 1000,
        state,
        read_bytes_per_second: 0,
        write_bytes_per_second: 20_000_000,
        burst_millis: 200,
        space_bytes: 300_000_000,
        start_secs: 1_700_000_000,
        end_secs: 1_700_000_120,
        every_secs: 86_400,
        count: 2,
        lifetime_secs: 3600,
        released_secs: Some(1_700_000_060),
        slices: vec![ReserveSlice {
            server: SERVER,
            store: STORE,
            share_ppm: 100_000,
            stripe_unit_bytes: 1 << 20,
            aus: 300,
        }],
    }
}

fn offer(kind: ReserveOfferKind) -> ReserveOffer {
    ReserveOffer {
        kind,
        start_secs: 1_700_000_000,
        end_secs: 1_700_000_120,
        read_bytes_per_second: 1,
        write_bytes_per_second: 2,
    }
}

fn refused(what: Scarce) -> ReserveReply {
    use ReserveOfferKind::{Earlier, Later, Slower};
    ReserveReply::Refused {
        short: ReserveShort {
            what,
            wanted: 500,
            room: 499,
            from_secs: 1_700_000_050,
        },
        offers: [Later, Earlier, Slower].map(offer).to_vec(),
    }
}

fn report() -> ReserveReport {
    ReserveReport {
        summary: summary(ReserveState::Ended),
        seconds: 120,
        kept: 119,
        bytes: 1 << 31,
        space_kept: true,
        record: vec![ReportSecond {
            second: 1_700_000_000,
            bytes: 20_000_000,
            promised_micros: 100_000,
            served_micros: 99_000,
            shortfall: Some(Shortfall::SlowDevice),
        }],
    }
}

pub(crate) fn reply() -> ReserveReply {
    refused(Scarce::Device(STORE))
}

fn replies() -> Vec<Sample> {
    let samples = vec![
        ReserveReply::Done,
        ReserveReply::Reserved {
            summary: summary(ReserveState::Active),
            occurrence: 1,
            tickets: vec![ServerTicket {
                server: SERVER,
                ticket: vec![0x41, 0x5a],
            }],
        },
        ReserveReply::Reservations {
            list: vec![summary(ReserveState::Planned)],
            more: true,
        },
        reply(),
        refused(Scarce::Network(SERVER)),
        refused(Scarce::Space(STORE)),
        refused(Scarce::Stores),
        ReserveReply::Report(report()),
        ReserveReply::Limits(limits()),
        ReserveReply::Failed {
            code: ReserveError::InUse,
            message: "no".into(),
        },
        ReserveReply::Later {
            message: "away".into(),
        },
    ];
    names!(samples, ReserveReply: Done Reserved Reservations Refused Report Limits Failed Later)
}

fn words() -> Vec<Sample> {
    let mut all = words!(ReserveState: Planned Active Ended Released Possible);
    all.extend(words!(ReserveOfferKind: Later Earlier Slower));
    all.extend(
        words!(ReserveError: NotFound Exists Invalid Forbidden Over InUse Unreservable
        Unavailable Limit Storage Away NoVolume),
    );
    all
}

pub(crate) fn all() -> Vec<(&'static str, Vec<Sample>)> {
    vec![
        ("reserve_request", requests()),
        ("reserve_reply", replies()),
        ("reserve_word", words()),
    ]
}
