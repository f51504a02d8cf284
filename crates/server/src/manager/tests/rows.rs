//! The bytes of the ledger, and what is not believed of them.

use super::super::ask::check_row;
use super::super::record::{
    Delivered, GUARD_SECONDS, Row, RowError, RowSlice, RowState, Told, decode, encode, identity,
    ticket_id,
};
use super::world::{VOLUME, id};
use base::limits::RESERVE_KEPT_TIME;
use base::{ServerId, StoreId};
use reservation::{Interval, Moment};
use wire::message::ReserveLimits;

fn row() -> Row {
    Row {
        state: RowState::Held,
        volume: VOLUME,
        holder: 1000,
        name: "run42".to_owned(),
        asked: [9; 16],
        read_bytes_per_second: 0,
        write_bytes_per_second: 20_000_000,
        burst_millis: 200,
        space_bytes: 300_000_000,
        window: Interval::new(
            Moment::from_secs(1_700_000_000),
            Moment::from_secs(1_700_000_120),
        )
        .unwrap(),
        every_secs: 86_400,
        count: 2,
        lifetime_secs: 3600,
        released: None,
        slices: vec![RowSlice {
            server: ServerId([1; 16]),
            store: StoreId([2; 16]),
            share_ppm: 100_000,
            stripe_unit_bytes: 0,
            aus: 300,
        }],
        lines: vec![(ServerId([1; 16]), 20_000_000)],
        delivered: Delivered::default(),
        told: Vec::new(),
    }
}

fn told(slice: u16) -> Told {
    Told {
        slice,
        seconds: 7,
        kept: 6,
        bytes: 5000,
        space_lost: true,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn rows_have_the_bytes_that_they_had() {
    let golden = concat!(
        "014c4a8dff0107070707070707070707070707070707e8070572756e343209090909090909090909",
        "0909090909090080dac409c80180c6868f0180e2cfaa06f8e2cfaa0680a30502901c000101010101",
        "01010101010101010101010102020202020202020202020202020202a08d0600ac02010101010101",
        "010101010101010101010180dac4090000000000"
    );
    assert_eq!(hex(&encode(&row())), golden);
    let limits = ReserveLimits {
        unreserved_ppm: 100_000,
        background_ppm: 50_000,
        network_bytes_per_second: 1 << 30,
        users: vec![1000],
    };
    assert_eq!(
        hex(&encode(&limits)),
        "011d1607c2a08d06d08603808080800401e807"
    );
    assert_eq!(decode::<ReserveLimits>(&encode(&limits)), Ok(limits));
    assert_eq!(decode::<Row>(&encode(&row())), Ok(row()));
}

#[test]
fn rows_of_the_format_before_are_read() {
    let mut bytes = encode(&row());
    bytes[0] = 1;
    assert_eq!(decode::<Row>(&bytes), Ok(row()));
    // What it had nothing behind is damaged if there is something.
    let told = Row {
        told: vec![told(0)],
        ..row()
    };
    let bytes = encode(&told);
    assert_eq!(hex(&bytes[bytes.len() - 7..]), "01000706882701");
    assert_eq!(decode::<Row>(&bytes), Ok(told));
    let mut before = bytes;
    before[0] = 1;
    assert_eq!(decode::<Row>(&before), Err(RowError::Damaged));
    let states = [
        RowState::Pending,
        RowState::Held,
        RowState::Leaving,
        RowState::Gone,
        RowState::LeavingUnused,
    ];
    for (number, state) in (0_u8..).zip(states) {
        let row = Row { state, ..row() };
        // Behind the version and the checksum.
        assert_eq!(encode(&row)[5], number);
        // A manager of the release before can take over, unless something is being cancelled.
        assert_eq!(encode(&row)[0], 1 + u8::from(number == 4));
        assert_eq!(decode::<Row>(&encode(&row)), Ok(row));
    }
}

#[test]
fn an_account_waits_until_the_next_one_is_due() {
    let mut row = row();
    let next = row.occurrence(1).unwrap().end();
    assert_eq!(row.account_until(), Some(next.plus(GUARD_SECONDS)));
    row.delivered.windows = 1;
    let kept = next.plus(RESERVE_KEPT_TIME.as_secs());
    assert_eq!(row.account_until(), Some(kept));
    row.delivered.windows = 2;
    assert_eq!(row.account_until(), None);
}

#[test]
fn identities_have_the_bytes_that_they_had() {
    assert_eq!(
        hex(&identity(1000, [3; 16]).0),
        "472392ae87e967686783a45f97485440"
    );
    assert_eq!(ticket_id(id(5), 0), id(5));
    assert_eq!(
        hex(&ticket_id(id(5), 1).0),
        "f990ee703c7e180c6f066325519e0acc"
    );
    assert_ne!(identity(1001, [3; 16]), identity(1000, [3; 16]));
}

#[test]
fn damaged_and_newer_rows_are_refused() {
    let good = encode(&row());
    for len in 0..good.len() {
        assert_eq!(decode::<Row>(&good[..len]), Err(RowError::Damaged));
    }
    for bit in 8..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode::<Row>(&bad), Err(RowError::Damaged), "bit {bit}");
    }
    let mut newer = good;
    newer[0] = 3;
    assert_eq!(decode::<Row>(&newer), Err(RowError::Newer(3)));
}

#[test]
fn rows_that_no_manager_writes_are_refused() {
    assert_eq!(check_row(&row()), Ok(()));
    let bad = |change: &dyn Fn(&mut Row)| {
        let mut row = row();
        change(&mut row);
        assert!(check_row(&row).is_err(), "{row:?}");
    };
    bad(&|row| row.slices.clear());
    bad(&|row| row.slices = vec![row.slices[0]; 2]);
    bad(&|row| row.slices[0].share_ppm = 1_000_001);
    bad(&|row| row.count = 0);
    bad(&|row| row.told = vec![told(1)]);
    bad(&|row| row.told = vec![told(0); 2]);
    bad(&|row| row.every_secs = 120);
    bad(&|row| row.lines[0].1 = u64::MAX);
    bad(&|row| row.window = Interval::unlimited(Moment::from_secs(5)).unwrap());
}

#[test]
fn the_ticket_of_a_window_says_what_the_row_says() {
    let row = row();
    let server = ServerId([1; 16]);
    let (head, terms) = row.ticket(id(1), 1, server, 4).unwrap();
    assert_eq!(
        (head.id, head.epoch, head.holder),
        (ticket_id(id(1), 1), 4, 1000)
    );
    assert_eq!(terms.start_secs, 1_700_000_000 + 86_400);
    assert_eq!(terms.end_secs, terms.start_secs + 120);
    assert_eq!(terms.lifetime_end_secs, terms.end_secs + 3600);
    assert_eq!(terms.slices[0].au_budget, 300);
    assert!(terms.is_valid());
    assert!(row.ticket(id(1), 2, server, 4).is_none());
    let released = Row {
        released: Some(Moment::from_secs(1_700_000_060)),
        ..row
    };
    assert_eq!(released.present(Moment::from_secs(1_700_000_050)), 0);
    assert!(
        released.ticket(id(1), 1, server, 4).is_none(),
        "it was given back"
    );
    assert_eq!(released.claims().len(), 2);
}
