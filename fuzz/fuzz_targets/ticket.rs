//! A ticket of somebody who wants more than was given.
//!
//! The first byte says what the others are: a whole ticket; what follows a good head; or the terms
//! of a link, to which this target computes the correct code, as any holder can.
#![no_main]

use azekura_fuzz::Input;
use base::ticket::{Class, Head, Operations, Place, Slice, Terms, Ticket, TicketKey, verify};
use base::{ClusterId, ServerId, StoreId, TicketId, Time, VolumeId};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

const PLACE: Place = Place {
    cluster: ClusterId([0xc1; 16]),
    server: ServerId([0x5e; 16]),
};
const HEAD_BYTES: usize = 92;
const CODE_BYTES: usize = 32;

fn key() -> TicketKey {
    TicketKey::new(7, [0x42; 32])
}

fn genuine() -> Ticket {
    let head = Head {
        class: Class::Assured,
        cluster: PLACE.cluster,
        server: PLACE.server,
        id: TicketId([0x1d; 16]),
        epoch: 3,
        holder: 1000,
        volume: VolumeId([0x70; 16]),
        key_id: 7,
    };
    let slices = [0xd1, 0xd2].map(|device| Slice {
        device: StoreId([device; 16]),
        share_ppm: 400_000,
        stripe_unit_bytes: 1 << 20,
        au_budget: 1001,
    });
    let terms = Terms {
        operations: Operations::READ_WRITE,
        burst_millis: 50,
        start_secs: 1_800_000_000,
        end_secs: 1_800_007_200,
        lifetime_end_secs: 1_800_093_600,
        slices: slices.to_vec(),
        path: b"lab/run42".to_vec(),
    };
    Ticket::issue(&key(), &head, &terms)
}

/// Whether the server takes it at any time at all.
fn is_accepted(bytes: &[u8]) -> bool {
    let Ok(ticket) = Ticket::from_bytes(bytes) else {
        return false;
    };
    assert_eq!(ticket.to_bytes(), bytes, "a ticket has one form");
    let now = Time::from_secs(ticket.terms().start_secs);
    verify(bytes, &[key()], &PLACE, now, Duration::ZERO, |_, _| false).is_ok()
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let kind = input.byte();
    let genuine = genuine();
    let bytes = genuine.to_bytes();
    match kind {
        Some(0) => assert!(!is_accepted(input.rest()), "nobody finds out a code"),
        Some(1) => {
            let forged = [&bytes[..HEAD_BYTES], input.rest()].concat();
            assert!(
                forged == bytes || !is_accepted(&forged),
                "nobody finds out a code"
            );
        }
        Some(2) => {
            // The same terms behind a head of their own are read as terms.
            let alone = [&bytes[..HEAD_BYTES], input.rest(), &[0; CODE_BYTES]].concat();
            let Ok(read) = Ticket::from_bytes(&alone) else {
                return;
            };
            let whole = genuine.terms();
            let part = genuine.narrow(TicketId([1; 16]), read.terms());
            let Ok(part) = part else {
                return;
            };
            let terms = part.terms();
            assert!(is_accepted(&part.to_bytes()));
            assert!(whole.covers(&terms.path) && whole.operations.contains(terms.operations));
            assert!(terms.start_secs >= whole.start_secs && terms.end_secs <= whole.end_secs);
            let shares = |terms: &Terms| -> u32 { terms.slices.iter().map(|s| s.share_ppm).sum() };
            assert!(shares(terms) <= shares(whole));
        }
        _ => {}
    }
});
