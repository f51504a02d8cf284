//! Every kind of request is understood; and what becomes of it when it is cut, extended or garbled.

use super::super::request::Operation;
use super::fixtures::{Body, UNIQUE, bytes, fixtures, message, request, text, u32s, u64s};
use super::*;
use proptest::prelude::*;
use rustix::fs::XattrFlags;
use zerocopy::IntoBytes;

const PARSER: Parser = Parser { setxattr_ext: true };

#[test]
fn every_kind_of_request_is_understood() {
    let fixtures = fixtures();
    for opcode in Opcode::ALL {
        let known = fixtures
            .iter()
            .filter(|fixture| fixture.0 == *opcode)
            .count();
        assert_eq!(known, 1, "{opcode:?} needs a fixture");
    }
    for (opcode, body, expected) in fixtures {
        let bytes = message(opcode as u32, &body.0, &[]);
        assert_eq!(PARSER.parse(&bytes), Ok(expected.clone()), "{opcode:?}");
        assert_eq!(
            PARSER.parse_shared(&Bytes::from(bytes)),
            Ok(expected),
            "{opcode:?}"
        );
    }
}

#[test]
fn a_request_cut_anywhere_is_an_error() {
    for (opcode, body, _) in fixtures() {
        let whole = message(opcode as u32, &body.0, &[]);
        for len in 0..whole.len() {
            let parsed = PARSER.parse(&whole[..len]);
            let flaw = parsed.expect_err("its header states the whole length").flaw;
            let expected = if len < size_of::<InHeader>() {
                Flaw::Truncated
            } else {
                Flaw::Length
            };
            assert_eq!(flaw, expected, "{opcode:?} cut to {len}");
        }
        for len in 0..body.0.len() {
            let cut = message(opcode as u32, &body.0[..len], &[]);
            let parsed = PARSER.parse(&cut);
            // An old kernel's offer is shorter.
            if opcode == Opcode::Init && len >= input::INIT_IN_BYTES_OLD {
                assert!(matches!(parsed, Ok(Message::Init(_))));
                continue;
            }
            let error = parsed.expect_err("something is missing");
            let cut = matches!(error.flaw, Flaw::Truncated | Flaw::Unterminated);
            assert!(cut, "{opcode:?} with a body of {len}: {error}");
            let answered = !matches!(
                opcode,
                Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt
            );
            assert_eq!(
                error.unique,
                answered.then_some(Unique(UNIQUE)),
                "{opcode:?}"
            );
        }
    }
}

#[test]
fn a_request_with_something_behind_it_is_an_error() {
    for (opcode, body, _) in fixtures() {
        let parsed = PARSER.parse(&message(opcode as u32, &body.text(b"x").0, &[]));
        match opcode {
            // A newer kernel may append to its offer.
            Opcode::Init => assert!(parsed.is_ok()),
            _ => assert_eq!(parsed.unwrap_err().flaw, Flaw::Trailing, "{opcode:?}"),
        }
    }
}

#[test]
fn numbers_and_names_without_meaning_are_errors() {
    let lock = u64s(&[5, 6, 10, 20]).u32(&[3, 0, 0, 0]);
    let time = u32s(&[1 << 10, 0])
        .u64(&[0; 6])
        .u32(&[0, 0, 1_000_000_000, 0, 0, 0, 0, 0]);
    let cases = [
        (Opcode::SetLk as u32, lock, Flaw::BadNumber),
        (Opcode::SetAttr as u32, time, Flaw::BadNumber),
        (
            Opcode::Lseek as u32,
            u64s(&[5, 6]).u32(&[5, 0]),
            Flaw::BadNumber,
        ),
        (
            Opcode::MkNod as u32,
            u32s(&[0o030_644, 0, 0, 0]).text(b"name\0"),
            Flaw::BadNumber,
        ),
        (Opcode::Lookup as u32, text(b"\0"), Flaw::BadName),
        (Opcode::Unlink as u32, text(b"a/b\0"), Flaw::BadName),
        (
            Opcode::BatchForget as u32,
            u32s(&[u32::MAX, 0]).u64(&[1, 1]),
            Flaw::Truncated,
        ),
        (4096, Body::default(), Flaw::UnknownOperation),
        (0, Body::default(), Flaw::UnknownOperation),
    ];
    for (opcode, body, flaw) in cases {
        let error = PARSER.parse(&message(opcode, &body.0, &[])).unwrap_err();
        assert_eq!((error.opcode, error.flaw), (opcode, flaw));
    }
}

#[test]
fn the_old_forms_of_the_offer_and_of_setxattr_are_understood() {
    let offer = message(Opcode::Init as u32, &u32s(&[7, 31, 4096, 2]).0, &[]);
    let Ok(Message::Init(offer)) = PARSER.parse(&offer) else {
        panic!("no offer")
    };
    assert_eq!((offer.minor, offer.flags), (31, InitFlags::POSIX_LOCKS));
    let body = u32s(&[2, 2]).text(b"user.a\0xy");
    let set = message(Opcode::SetXattr as u32, &body.0, &[]);
    let expected = request(Operation::SetXattr {
        name: bytes(b"user.a"),
        value: bytes(b"xy"),
        flags: XattrFlags::REPLACE,
        acl_kill_sgid: false,
    });
    assert_eq!(
        Parser {
            setxattr_ext: false
        }
        .parse(&set),
        Ok(expected)
    );
}

#[test]
fn groups_and_labels_follow_a_creation() {
    let labels = u32s(&[8 + 8 + 2 + 5 + 1, 1, 5, 0]).text(b"a\0label\0");
    let groups = u32s(&[8 + 4 + 4, 32, 1, 2000]);
    let unknown = u32s(&[16, 99, 1, 2]);
    let extensions = [labels.0, groups.0, unknown.0].concat();
    let body = u32s(&[0o755, 0]).text(b"name\0");
    let whole = message(Opcode::MkDir as u32, &body.0, &extensions);
    let Ok(Message::Request(request)) = PARSER.parse(&whole) else {
        panic!("no request")
    };
    assert_eq!(request.groups, [2000]);
    let label = SecurityLabel {
        name: bytes(b"a"),
        value: bytes(b"label"),
    };
    assert_eq!(request.security, [label]);

    // A claim of more than there is.
    for bad in [
        u32s(&[16, 32, u32::MAX, 0]),
        u32s(&[7, 32]),
        u32s(&[64, 32]),
        u32s(&[8, 31]),
    ] {
        let whole = message(Opcode::MkDir as u32, &body.0, &bad.0);
        assert_eq!(PARSER.parse(&whole).unwrap_err().flaw, Flaw::Truncated);
    }
}

#[test]
fn a_repeated_request_is_marked() {
    let mut whole = message(Opcode::StatFs as u32, &[], &[]);
    let unique = UNIQUE | UNIQUE_RESEND;
    whole[8..16].copy_from_slice(unique.as_bytes());
    let Ok(Message::Request(request)) = PARSER.parse(&whole) else {
        panic!("no request")
    };
    assert!(request.resent);
    // The answer names the mark too.
    assert_eq!(request.unique, Unique(unique));
}

#[test]
fn data_of_a_shared_write_is_not_copied_but_names_are() {
    let body = u64s(&[5, 0])
        .u32(&[4096, 0])
        .u64(&[0])
        .u32(&[0, 0])
        .text(&[7; 4096]);
    let whole = Bytes::from(message(Opcode::Write as u32, &body.0, &[]));
    let Ok(Message::Request(request)) = PARSER.parse_shared(&whole) else {
        panic!("no request")
    };
    let Operation::Write(write) = request.operation else {
        panic!("no write")
    };
    assert_eq!(write.data.as_ptr(), whole[80..].as_ptr());
    let whole = Bytes::from(message(Opcode::Lookup as u32, b"name\0", &[]));
    let Ok(Message::Request(request)) = PARSER.parse_shared(&whole) else {
        panic!("no request")
    };
    let Operation::Lookup { name } = request.operation else {
        panic!("no lookup")
    };
    assert!(!whole.as_ptr_range().contains(&name.as_ptr()));
}

proptest! {
    #[test]
    fn anything_can_be_parsed(
        opcode in 0u32..60,
        body in prop::collection::vec(any::<u8>(), 0..200),
        extensions in prop::collection::vec(any::<u64>(), 0..4),
        setxattr_ext: bool,
    ) {
        let whole = message(opcode, &body, extensions.as_bytes());
        // The property is that it returns; what it says is the other tests' affair.
        let parsed = Parser { setxattr_ext }.parse(&whole);
        prop_assert_eq!(parsed, Parser { setxattr_ext }.parse_shared(&Bytes::from(whole)));
    }

    #[test]
    fn a_garbled_request_does_not_panic(
        which in 0usize..1000,
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let fixtures = fixtures();
        let (opcode, body, _) = &fixtures[which % fixtures.len()];
        let mut whole = message(*opcode as u32, &body.0, &[]);
        let at = at.index(whole.len());
        whole[at] = byte;
        let parsed = PARSER.parse(&whole);
        prop_assert_eq!(parsed, PARSER.parse_shared(&Bytes::from(whole)));
    }
}
