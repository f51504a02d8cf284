//! Tickets against forgers, wideners, other servers, wrong clocks and the drawing of their bytes.

use super::*;
use crate::{ClusterId, ServerId, StoreId, Time, VolumeId};
use proptest::prelude::*;
use std::time::Duration;

const START: u64 = 1_800_000_000;
const END: u64 = START + 7200;
const NOW: Time = Time::from_secs(START + 60);
const CLOCK_ERROR: Duration = Duration::from_millis(500);
const PLACE: Place = Place {
    cluster: ClusterId([0xc1; 16]),
    server: ServerId([0x5e; 16]),
};

fn key() -> TicketKey {
    TicketKey::new(7, [0x42; 32])
}

fn head() -> Head {
    Head {
        class: Class::Assured,
        cluster: PLACE.cluster,
        server: PLACE.server,
        id: TicketId([0x1d; 16]),
        epoch: 3,
        holder: 1000,
        volume: VolumeId([0x70; 16]),
        key_id: 7,
    }
}

fn slice(device: u8) -> Slice {
    Slice {
        device: StoreId([device; 16]),
        share_ppm: 400_000,
        stripe_unit_bytes: 1 << 20,
        au_budget: 1001,
    }
}

fn terms() -> Terms {
    Terms {
        operations: Operations::READ_WRITE,
        burst_millis: 50,
        start_secs: START,
        end_secs: END,
        lifetime_end_secs: END + 86_400,
        slices: vec![slice(0xd1), slice(0xd2)],
        path: b"lab/run42".to_vec(),
    }
}

fn ticket() -> Ticket {
    Ticket::issue(&key(), &head(), &terms())
}

fn id(number: u8) -> TicketId {
    TicketId([number; 16])
}

fn judge(bytes: &[u8]) -> Result<Grant, TicketError> {
    verify(bytes, &[key()], &PLACE, NOW, CLOCK_ERROR, |_, _| false)
}

/// A part with half of everything.
fn half() -> Terms {
    let mut half = terms();
    half.operations = Operations::READ;
    half.end_secs -= 3600;
    half.path = b"lab/run42/raw".to_vec();
    for slice in &mut half.slices {
        slice.share_ppm /= 2;
        slice.au_budget /= 2;
    }
    half
}

#[test]
fn the_bytes_are_those_of_the_drawing() {
    let part = Terms {
        operations: Operations::READ,
        slices: vec![slice(0xd2)],
        path: b"lab/run42/raw".to_vec(),
        ..terms()
    };
    let ticket = ticket().narrow(id(0xaa), &part).unwrap();
    let mut golden = Vec::new();
    golden.extend(b"AZTK");
    golden.extend([1, 0, 1, 0]);
    golden.extend([[0xc1; 16], [0x5e; 16], [0x1d; 16], [0x70; 16]].concat());
    golden.extend([3, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([0xe8, 3, 0, 0, 0, 0, 0, 0]);
    golden.extend([7, 0, 0, 0]);
    assert_eq!(golden.len(), 92);
    golden.extend([3, 2, 9, 0, 50, 0, 0, 0]);
    golden.extend([0x00, 0xd2, 0x49, 0x6b, 0, 0, 0, 0]);
    golden.extend([0x20, 0xee, 0x49, 0x6b, 0, 0, 0, 0]);
    golden.extend([0xa0, 0x3f, 0x4b, 0x6b, 0, 0, 0, 0]);
    let slice = |device| {
        let numbers = [0x80, 0x1a, 6, 0, 0, 0, 0x10, 0, 0xe9, 3, 0, 0, 0, 0, 0, 0];
        [[device; 16], numbers].concat()
    };
    golden.extend(slice(0xd1));
    golden.extend(slice(0xd2));
    golden.extend(b"lab/run42");
    golden.extend([0xaa; 16]);
    golden.extend([1, 1, 13, 0, 50, 0, 0, 0]);
    golden.extend([0x00, 0xd2, 0x49, 0x6b, 0, 0, 0, 0]);
    golden.extend([0x20, 0xee, 0x49, 0x6b, 0, 0, 0, 0]);
    golden.extend([0xa0, 0x3f, 0x4b, 0x6b, 0, 0, 0, 0]);
    golden.extend(slice(0xd2));
    golden.extend(b"lab/run42/raw");
    // Computed by an implementation of BLAKE3 that was written from its specification: the code of
    // head and terms under the key, then that of the link under the first.
    let code = "7a858152a04ec4d0a5de7709e0c4271e7fef87ee82ce9cee768e2fd4e937d214";
    let bytes = ticket.to_bytes();
    let (body, last) = bytes.split_at(bytes.len() - 32);
    assert_eq!(body, golden);
    let hex: String = last.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, code);
    assert_eq!(Ticket::from_bytes(&bytes).unwrap(), ticket);
}

#[test]
fn a_genuine_ticket_is_believed_with_its_lineage() {
    let grant = judge(&ticket().to_bytes()).unwrap();
    assert_eq!((grant.head, grant.terms()), (head(), &terms()));
    let part = ticket().narrow(id(1), &half()).unwrap();
    let mut smaller = half();
    smaller.slices.remove(0);
    let grant = judge(&part.narrow(id(2), &smaller).unwrap().to_bytes()).unwrap();
    let expected = [(head().id, terms()), (id(1), half()), (id(2), smaller)];
    assert_eq!(grant.lineage, expected);
}

#[test]
fn every_reason_is_named() {
    let bytes = ticket().to_bytes();
    let at = |now, is_revoked| {
        verify(&bytes, &[key()], &PLACE, now, CLOCK_ERROR, |_, _| {
            is_revoked
        })
        .unwrap_err()
    };
    assert_eq!(at(NOW, true), TicketError::Revoked);
    let early = Time::from_secs(START - 10);
    assert_eq!(at(early, false), TicketError::NotYet { seconds: 10 });
    let late = Time::from_secs(END + 10);
    assert_eq!(at(late, false), TicketError::Expired { seconds: 10 });
    let other = |place: &Place, key: TicketKey| {
        verify(&bytes, &[key], place, NOW, CLOCK_ERROR, |_, _| false).unwrap_err()
    };
    let cluster = Place {
        cluster: ClusterId([0; 16]),
        ..PLACE
    };
    assert_eq!(
        other(&cluster, key()),
        TicketError::OtherCluster(PLACE.cluster)
    );
    let server = Place {
        server: ServerId([0; 16]),
        ..PLACE
    };
    assert_eq!(
        other(&server, key()),
        TicketError::OtherServer(PLACE.server)
    );
    let key_of_the_number = |id| TicketKey::new(id, [0x43; 32]);
    assert_eq!(
        other(&PLACE, key_of_the_number(8)),
        TicketError::UnknownKey(7)
    );
    assert_eq!(other(&PLACE, key_of_the_number(7)), TicketError::Forged);
    let mut newer = bytes.clone();
    newer[4] = 2;
    assert_eq!(judge(&newer), Err(TicketError::UnknownVersion(2)));
    assert_eq!(
        judge(&bytes[..bytes.len() - 1]),
        Err(TicketError::Truncated)
    );
    assert_eq!(judge(b"AZTX"), Err(TicketError::Malformed));
    assert_eq!(judge(b""), Err(TicketError::Truncated));
}

#[test]
fn clocks_may_be_as_wrong_as_they_may_be() {
    let bytes = ticket().to_bytes();
    let is_good = |millis: u64| {
        let now = Time::from_millis(millis);
        verify(&bytes, &[key()], &PLACE, now, CLOCK_ERROR, |_, _| false).is_ok()
    };
    let edges = [
        START * 1000 - 501,
        START * 1000 - 500,
        END * 1000 + 499,
        END * 1000 + 500,
    ];
    assert_eq!(edges.map(is_good), [false, true, true, false]);
    let forever = Terms {
        end_secs: u64::MAX,
        ..terms()
    };
    let bytes = Ticket::issue(&key(), &head(), &forever).to_bytes();
    let judged = verify(
        &bytes,
        &[key()],
        &PLACE,
        Time::MAX,
        Duration::ZERO,
        |_, _| false,
    );
    assert!(judged.is_ok());
}

#[test]
fn every_name_of_the_lineage_can_be_revoked() {
    let bytes = ticket()
        .narrow(id(1), &half())
        .unwrap()
        .narrow(id(2), &half())
        .unwrap()
        .to_bytes();
    for revoked in [head().id, id(1), id(2), id(3)] {
        let judged = verify(&bytes, &[key()], &PLACE, NOW, CLOCK_ERROR, |id, epoch| {
            assert_eq!(epoch, 3);
            id == revoked
        });
        assert_eq!(judged.is_ok(), revoked == id(3), "{revoked:?}");
    }
}

#[test]
fn keys_are_changed_while_old_tickets_are_about() {
    let (old, new) = (key(), TicketKey::new(8, [0x44; 32]));
    for key in [&old, &new] {
        let bytes = Ticket::issue(key, &head(), &terms()).to_bytes();
        let keys = [new.clone(), old.clone()];
        assert!(verify(&bytes, &keys, &PLACE, NOW, CLOCK_ERROR, |_, _| false).is_ok());
    }
}

/// Terms that are wider than `terms()` in one coordinate each.
fn wider() -> Vec<(Coordinate, Terms)> {
    let with = |change: &dyn Fn(&mut Terms)| {
        let mut wider = terms();
        change(&mut wider);
        wider
    };
    vec![
        (Coordinate::Burst, with(&|terms| terms.burst_millis += 1)),
        (Coordinate::Window, with(&|terms| terms.start_secs -= 1)),
        (Coordinate::Window, with(&|terms| terms.end_secs += 1)),
        (
            Coordinate::Lifetime,
            with(&|terms| terms.lifetime_end_secs += 1),
        ),
        (
            Coordinate::Devices,
            with(&|terms| terms.slices.insert(0, slice(1))),
        ),
        (
            Coordinate::Devices,
            with(&|terms| terms.slices[1].stripe_unit_bytes *= 2),
        ),
        (
            Coordinate::Share,
            with(&|terms| terms.slices[1].share_ppm += 1),
        ),
        (
            Coordinate::Space,
            with(&|terms| terms.slices[0].au_budget += 1),
        ),
        (
            Coordinate::Path,
            with(&|terms| terms.path = b"lab".to_vec()),
        ),
        (
            Coordinate::Path,
            with(&|terms| terms.path = b"lab/run421".to_vec()),
        ),
        (Coordinate::Path, with(&|terms| terms.path = Vec::new())),
    ]
}

#[test]
fn a_part_is_never_wider_than_the_whole() {
    for (coordinate, wider) in wider() {
        let widened = SplitError::Widened(coordinate);
        assert_eq!(ticket().narrow(id(1), &wider), Err(widened));
        // A holder who does it all the same makes a correct code.
        let forged = ticket().link(id(1), &wider);
        assert_eq!(
            judge(&forged.to_bytes()),
            Err(TicketError::Widened(coordinate))
        );
        // Nor than what came between.
        let between = ticket().narrow(id(1), &half()).unwrap();
        assert!(matches!(
            judge(&between.link(id(2), &wider).to_bytes()),
            Err(TicketError::Widened(_))
        ));
        let back = between.link(id(2), &terms());
        assert!(matches!(
            judge(&back.to_bytes()),
            Err(TicketError::Widened(_))
        ));
    }
    let readers = Terms {
        operations: Operations::READ,
        ..terms()
    };
    let readers = Ticket::issue(&key(), &head(), &readers);
    let widened = SplitError::Widened(Coordinate::Operations);
    assert_eq!(readers.narrow(id(1), &terms()), Err(widened));
    let forged = readers.link(id(1), &terms()).to_bytes();
    assert_eq!(
        judge(&forged),
        Err(TicketError::Widened(Coordinate::Operations))
    );
}

#[test]
fn a_ticket_is_split_only_so_often() {
    let mut part = ticket();
    for number in 0..crate::limits::TICKET_LINKS_MAX {
        part = part.narrow(id(number as u8), &terms()).unwrap();
    }
    assert!(judge(&part.to_bytes()).is_ok());
    assert_eq!(part.narrow(id(99), &terms()), Err(SplitError::TooManyLinks));
    let forged = part.link(id(99), &terms());
    assert_eq!(judge(&forged.to_bytes()), Err(TicketError::Malformed));
    let bad = Terms {
        slices: Vec::new(),
        ..terms()
    };
    assert_eq!(ticket().narrow(id(1), &bad), Err(SplitError::BadTerms));
}

#[test]
fn equal_parts_are_together_the_whole() {
    for count in [1, 3, 7, 128] {
        let ids: Vec<_> = (0..count).map(|number| TicketId([number; 16])).collect();
        let parts = ticket().split(&ids).unwrap();
        for device in 0..2 {
            let slices = || parts.iter().map(|part| part.terms().slices[device]);
            assert_eq!(slices().map(|slice| slice.share_ppm).sum::<u32>(), 400_000);
            assert_eq!(slices().map(|slice| slice.au_budget).sum::<u64>(), 1001);
            let least = slices().map(|slice| slice.share_ppm).min().unwrap();
            assert!(slices().all(|slice| slice.share_ppm - least <= 1));
        }
        assert!(parts.iter().all(|part| judge(&part.to_bytes()).is_ok()));
    }
}

#[test]
fn terms_that_mean_nothing_are_not_read() {
    let with = |change: &dyn Fn(&mut Terms)| {
        let mut bad = terms();
        change(&mut bad);
        assert!(!bad.is_valid(), "{bad:?}");
        // With a correct code nevertheless.
        let mut bytes = Vec::new();
        bytes::put_head(&mut bytes, &head());
        bytes::put_terms(&mut bytes, &bad);
        let code = key().code(&bytes);
        bytes.extend(code);
        assert_eq!(judge(&bytes), Err(TicketError::Malformed), "{bad:?}");
    };
    with(&|terms| terms.end_secs = terms.start_secs);
    with(&|terms| terms.slices.clear());
    with(&|terms| terms.slices.swap(0, 1));
    // Two slices of one device would add up to more than one.
    with(&|terms| terms.slices[1] = terms.slices[0]);
    with(&|terms| terms.slices[0].share_ppm = 1_000_001);
    with(&|terms| terms.slices = (0..17).map(slice).collect());
    for path in [
        &b"/lab"[..],
        b"lab/",
        b"lab//x",
        b"lab/../x",
        b".",
        b"a\0b",
        &[b'x'; 256],
    ] {
        with(&|terms| terms.path = path.to_vec());
    }
    with(&|terms| terms.path = [&[b'x'; 200][..]; 6].join(&b'/'));
}

#[test]
fn a_path_is_covered_with_what_is_below() {
    let covers = |path: &str| terms().covers(path.as_bytes());
    assert!(covers("lab/run42") && covers("lab/run42/a/b"));
    for other in ["lab", "lab/run421", "lab/run4", "", "other/lab/run42"] {
        assert!(!covers(other), "{other}");
    }
    let whole = Terms {
        path: Vec::new(),
        ..terms()
    };
    assert!(whole.covers(b"") && whole.covers(b"anything/at/all"));
}

#[test]
fn secrets_are_not_shown() {
    let secret = "66, 66";
    let shown = format!("{:?} {:?}", key(), ticket());
    let code = ticket().code[..4].to_vec();
    let code = format!("{code:?}").trim_matches(['[', ']']).to_owned();
    assert!(!shown.contains(secret) && !shown.contains(&code), "{shown}");
    assert!(shown.starts_with("TicketKey(7)"));
}

/// Chance from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }
}

#[test]
fn of_a_hundred_thousand_forged_tickets_none_is_accepted() {
    let part = ticket().narrow(id(1), &half()).unwrap();
    let other_part = ticket().narrow(id(2), &half()).unwrap();
    let elsewhere = Head {
        server: ServerId([9; 16]),
        ..head()
    };
    let other_server = Ticket::issue(&TicketKey::new(7, [9; 32]), &elsewhere, &terms());
    let later = Ticket::issue(&key(), &Head { epoch: 4, ..head() }, &terms());
    let genuine = [ticket(), part, other_part, later].map(|ticket| ticket.to_bytes());
    let mut pool: Vec<Vec<u8>> = genuine.to_vec();
    pool.push(other_server.to_bytes());
    let tried = std::cell::Cell::new(0_u32);
    let refuse = |bytes: &[u8]| {
        if genuine.iter().all(|real| real != bytes) {
            tried.set(tried.get() + 1);
            assert!(judge(bytes).is_err(), "{bytes:?}");
        }
    };
    for real in &pool {
        // Every bit flipped, every cut, every byte taken out or doubled.
        for at in 0..real.len() {
            for bit in 0..8 {
                let mut flipped = real.clone();
                flipped[at] ^= 1 << bit;
                refuse(&flipped);
            }
            refuse(&real[..at]);
            refuse(&real[at..]);
            let mut shorter = real.clone();
            let byte = shorter.remove(at);
            refuse(&shorter);
            let mut longer = real.clone();
            longer.insert(at, byte.wrapping_add(1));
            refuse(&longer);
        }
        // The front of one and the end of another.
        for other in &pool {
            for at in 0..real.len() {
                let end = other.len().saturating_sub(real.len() - at);
                refuse(&[&real[..at], &other[end..]].concat());
                refuse(&[&real[..at], &other[at.min(other.len())..]].concat());
            }
        }
    }
    for (_, wider) in wider() {
        for parent in [ticket(), ticket().narrow(id(1), &half()).unwrap()] {
            refuse(&parent.link(id(3), &wider).to_bytes());
        }
    }
    let mut chance = Chance(0x5eed);
    while tried.get() < 100_000 {
        let mut bytes = pool[chance.below(pool.len())].clone();
        for _ in 0..=chance.below(6) {
            let at = chance.below(bytes.len());
            bytes[at] = chance.below(256) as u8;
        }
        // And a code of some key that the forger has, or that of another ticket.
        let body = bytes.len() - 32;
        if chance.below(2) == 0 {
            let code = TicketKey::new(7, [chance.below(256) as u8; 32].map(|byte| byte | 0x80));
            let code = code.code(&bytes[..body]);
            bytes[body..].copy_from_slice(&code);
        }
        refuse(&bytes);
    }
    for real in &genuine {
        assert!(judge(real).is_ok(), "and the genuine ones are");
    }
}

prop_compose! {
    fn any_terms()(
        operations in 1..=3_u8,
        burst_millis in 0..100_u32,
        start in 0..100_u64,
        length in 1..100_u64,
        lifetime_end_secs in 0..300_u64,
        slices in prop::collection::btree_map(0..3_u8, (0..4_u32, 1..3_u32, 0..4_u64), 1..4),
        path in prop::collection::vec(prop_oneof![Just("a"), Just("b"), Just("ab")], 0..3),
    ) -> Terms {
        Terms {
            operations: Operations::from_bits(operations).unwrap(),
            burst_millis,
            start_secs: start,
            end_secs: start + length,
            lifetime_end_secs,
            slices: slices.into_iter().map(|(device, (share_ppm, unit, au_budget))| Slice {
                device: StoreId([device; 16]),
                share_ppm,
                stripe_unit_bytes: unit,
                au_budget,
            }).collect(),
            path: path.join("/").into_bytes(),
        }
    }
}

/// Everything that some terms allow, written out one by one.
fn points(terms: &Terms) -> std::collections::BTreeSet<String> {
    let mut points = std::collections::BTreeSet::new();
    for (operation, name) in [(Operations::READ, "read"), (Operations::WRITE, "write")] {
        if terms.operations.contains(operation) {
            points.insert(name.to_owned());
        }
    }
    points.extend((0..=terms.burst_millis).map(|burst| format!("burst {burst}")));
    points.extend((terms.start_secs..terms.end_secs).map(|second| format!("second {second}")));
    points.extend((0..=terms.lifetime_end_secs).map(|second| format!("object {second}")));
    for slice in &terms.slices {
        let device = format!("{} {}", slice.device, slice.stripe_unit_bytes);
        points.extend((0..=slice.share_ppm).map(|share| format!("{device} share {share}")));
        points.extend((0..=slice.au_budget).map(|units| format!("{device} space {units}")));
    }
    let below = ["", "/a", "/b", "/ab", "/a/a"].map(|end| {
        let path = [&terms.path[..], end.as_bytes()].concat();
        format!(
            "path {}",
            String::from_utf8(path).unwrap().trim_start_matches('/')
        )
    });
    points.extend(below);
    if terms.path.is_empty() {
        points.extend(
            ["ab/ab", "ab/a", "ab/b", "b/a", "b/b", "b/ab"].map(|path| format!("path {path}")),
        );
    }
    points
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_was_narrowed_allows_nothing_more(parent in any_terms(), child in any_terms()) {
        let whole = Ticket::issue(&key(), &head(), &parent);
        let forced = whole.link(id(1), &child);
        prop_assert_eq!(Ticket::from_bytes(&forced.to_bytes()).unwrap(), forced.clone());
        let judged = verify(
            &forced.to_bytes(), &[key()], &PLACE, Time::from_secs(child.start_secs),
            Duration::ZERO, |_, _| false,
        );
        match whole.narrow(id(1), &child) {
            Ok(part) => {
                prop_assert_eq!(judged.unwrap().lineage.len(), 2);
                prop_assert_eq!(part, forced);
                // A path with the same name twice reaches below what is written out.
                let depth = |terms: &Terms| terms.path.split(|byte| *byte == b'/').count();
                if depth(&child) < 2 || depth(&parent) < 2 {
                    let more = points(&child);
                    let whole = points(&parent);
                    let more: Vec<_> = more.difference(&whole)
                        .filter(|point| !point.starts_with("path")).collect();
                    prop_assert!(more.is_empty(), "{more:?}");
                }
                prop_assert!(parent.covers(&child.path));
            }
            Err(SplitError::Widened(coordinate)) => {
                prop_assert_eq!(judged, Err(TicketError::Widened(coordinate)));
                let more = points(&child);
                prop_assert!(!more.is_subset(&points(&parent)), "{coordinate}");
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn no_bytes_whatsoever_make_it_fall(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(judge(&bytes).is_err());
        let behind = [&b"AZTK\x01\0\0\0"[..], &bytes].concat();
        prop_assert!(judge(&behind).is_err());
        if let Ok(ticket) = Ticket::from_bytes(&behind) {
            prop_assert_eq!(ticket.to_bytes(), behind);
        }
    }
}
