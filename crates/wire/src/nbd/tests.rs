//! What is said on the line, byte by byte, and what is made of anything else.

use super::*;
use base::limits::{NBD_OPTION_BYTES_MAX, NBD_OPTIONS_MAX, NBD_REQUEST_BYTES_MAX};
use base::{Extent, ExtentSet};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use proptest::prelude::*;

const OPTION: u64 = 0x4948_4156_454F_5054;
const REPLY: u64 = 0x0003_e889_0455_65a9;
const ACK: u32 = 1;
const UNSUP: u32 = 0x8000_0001;
const INVALID: u32 = 0x8000_0003;
const UNKNOWN: u32 = 0x8000_0006;

fn facts(is_read_only: bool) -> Facts {
    Facts {
        name: "base:1".to_owned(),
        description: "a disk".to_owned(),
        len_bytes: 1 << 30,
        block_bytes: 4096,
        is_read_only,
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(OPTION);
    bytes.put_u32(number);
    bytes.put_u32(data.len() as u32);
    bytes.put_slice(data);
    bytes
}

fn counted(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(text.len() as u32);
    bytes.put_slice(text.as_bytes());
    bytes
}

/// The data of INFO and GO.
fn info(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut bytes = counted(name);
    bytes.put_u16(wanted.len() as u16);
    wanted.iter().for_each(|kind| bytes.put_u16(*kind));
    bytes
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = counted(name);
    bytes.put_u32(queries.len() as u32);
    bytes.extend(queries.iter().flat_map(|query| counted(query)));
    bytes
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(REPLY);
    bytes.put_u32(option);
    bytes.put_u32(kind);
    bytes.put_u32(data.len() as u32);
    bytes.put_slice(data);
    bytes
}

/// What is answered to everything that a client says at once, without the greeting; how it ended.
fn negotiate(facts: &Facts, said: &[&[u8]]) -> (Result<Progress, NbdError>, Vec<u8>) {
    let mut output = BytesMut::new();
    let mut negotiation = Negotiation::begin(facts, &mut output);
    assert_eq!(output.split().len(), 18);
    let mut input = BytesMut::from(said.concat().as_slice());
    let ended = negotiation.advance(&mut input, &mut output);
    (ended, output.to_vec())
}

const FIXED: &[u8] = &[0, 0, 0, 1];
const FIXED_NO_ZEROES: &[u8] = &[0, 0, 0, 3];

#[test]
fn the_greeting_and_the_way_to_a_device_are_as_drawn() {
    let facts = facts(false);
    let mut output = BytesMut::new();
    let mut negotiation = Negotiation::begin(&facts, &mut output);
    assert_eq!(&output.split()[..], b"NBDMAGICIHAVEOPT\0\x03");
    let said = [
        FIXED_NO_ZEROES,
        &option(8, b""),
        &option(10, &queries("", &["base:allocation"])),
        &option(7, &info("base:1", &[1, 2, 3, 9])),
    ];
    let mut input = BytesMut::from(said.concat().as_slice());
    let agreed = negotiation.advance(&mut input, &mut output).unwrap();
    let agreement = Agreement {
        is_structured: true,
        tells_holes: true,
    };
    assert_eq!(agreed, Progress::Agreed(agreement));
    let expected = [
        reply(8, ACK, b""),
        reply(10, 4, b"\0\0\0\x01base:allocation"),
        reply(10, ACK, b""),
        // HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF, CAN_MULTI_CONN.
        reply(7, 3, b"\0\0\0\0\0\0\x40\0\0\0\x01\xed"),
        reply(7, 3, b"\0\x01base:1"),
        reply(7, 3, b"\0\x02a disk"),
        reply(7, 3, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0"),
        reply(7, ACK, b""),
    ];
    assert_eq!(&output[..], expected.concat());
}

#[test]
fn the_oldest_option_is_answered_by_the_device_alone() {
    let export = [0, 0, 0, 0, 0x40, 0, 0, 0, 0x01, 0x0f];
    for (flags, zeros) in [(FIXED_NO_ZEROES, 0), (FIXED, 124), (&[0; 4], 124)] {
        let (ended, output) = negotiate(&facts(true), &[flags, &option(1, b"")]);
        assert_eq!(ended.unwrap(), Progress::Agreed(Agreement::default()));
        assert_eq!(output, [&export[..], &vec![0; zeros]].concat());
    }
    for name in [&b"other"[..], b"a\0b", b"\xff"] {
        let (ended, output) = negotiate(&facts(true), &[FIXED, &option(1, name)]);
        assert!(ended.is_err() && output.is_empty());
    }
}

#[test]
fn what_cannot_be_had_is_said_and_the_client_may_go_on() {
    let facts = facts(true);
    let listed = [&counted("base:1")[..], b"a disk"].concat();
    let long = "x".repeat(4097);
    for (number, data, kind) in [
        (3, b"x".to_vec(), INVALID),
        (5, Vec::new(), UNSUP),
        (6, info("other", &[]), UNKNOWN),
        (7, info("other", &[3]), UNKNOWN),
        (6, info(&long, &[]), INVALID),
        (6, info("", &[1])[..6].to_vec(), INVALID),
        (7, [info("", &[]), vec![0]].concat(), INVALID),
        (8, b"x".to_vec(), INVALID),
        (9, queries("other", &[]), UNKNOWN),
        (10, queries("", &["base:allocation"]), INVALID),
        (9, [counted(""), vec![0xff; 4]].concat(), INVALID),
        (11, Vec::new(), UNSUP),
        (u32::MAX, b"anything".to_vec(), UNSUP),
    ] {
        let (went_on, output) =
            negotiate(&facts, &[FIXED, &option(number, &data), &option(3, b"")]);
        assert_eq!(went_on.unwrap(), Progress::Wants(16), "{number}");
        let answer = &reply(number, kind, b"")[..16];
        assert!(output.starts_with(answer), "{number}");
        let list = [reply(3, 2, &listed), reply(3, ACK, b"")].concat();
        assert!(output.ends_with(&list), "{number}");
    }
    let (ended, output) = negotiate(&facts, &[FIXED, &option(2, b"bye")]);
    assert_eq!(ended.unwrap(), Progress::Ended);
    assert_eq!(output, reply(2, ACK, b""));
}

#[test]
fn contexts_are_listed_by_name_and_namespace_and_set_by_name() {
    let facts = facts(false);
    let structured = option(8, b"");
    for (number, asked, is_found) in [
        (9, &[][..], true),
        (9, &["base:"], true),
        (9, &["other:x", "base:allocation"], true),
        (9, &["base:other"], false),
        (10, &[], false),
        (10, &["base:"], false),
        (10, &["base:other", "base:allocation"], true),
    ] {
        let said = [
            FIXED,
            &structured,
            &option(number, &queries("", asked)),
            &option(1, b""),
        ];
        let (ended, output) = negotiate(&facts, &said);
        let found = output
            .windows(15)
            .any(|window| window == b"base:allocation");
        assert_eq!(found, is_found, "{number} {asked:?}");
        let agreement = Agreement {
            is_structured: true,
            tells_holes: number == 10 && is_found,
        };
        assert_eq!(ended.unwrap(), Progress::Agreed(agreement), "{asked:?}");
    }
}

#[test]
fn whoever_speaks_otherwise_is_left() {
    let facts = facts(false);
    let mut long = option(7, b"");
    long.truncate(12);
    long.put_u32(NBD_OPTION_BYTES_MAX as u32 + 1);
    let without_end = option(3, b"").repeat(NBD_OPTIONS_MAX + 1);
    for said in [
        &[&[0, 0, 0, 4][..]][..],
        &[&[0xff; 4]],
        &[FIXED, b"GET / HTTP/1.1\r\n\r\n"],
        &[FIXED, &long],
        &[FIXED, &without_end],
    ] {
        let (ended, _) = negotiate(&facts, said);
        assert!(ended.is_err(), "{said:?}");
    }
}

fn request(flags: u16, kind: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(0x2560_9513);
    bytes.put_u16(flags);
    bytes.put_u16(kind);
    bytes.put_u64(0x0102_0304_0506_0708);
    bytes.put_u64(offset);
    bytes.put_u32(len);
    bytes
}

fn rules(is_read_only: bool, is_structured: bool) -> Rules {
    Rules {
        len_bytes: 1 << 20,
        is_read_only,
        agreement: Agreement {
            is_structured,
            tells_holes: is_structured,
        },
    }
}

#[test]
fn requests_are_read_with_what_they_say() {
    let extent = Extent::new(4096, 8192);
    let (is_durable, keeps_space) = (true, true);
    let read = |is_whole| Command::Read { extent, is_whole };
    let trim = Command::Trim {
        extent,
        is_durable: false,
    };
    let zeros = Command::WriteZeros {
        extent,
        is_durable,
        keeps_space,
    };
    let status = Command::Status {
        extent,
        is_one_enough: true,
    };
    for (flags, kind, command) in [
        (1, 0, read(false)),
        (4, 0, read(true)),
        (1, 1, Command::Write { extent, is_durable }),
        (0, 4, trim),
        (3, 6, zeros),
        (8, 7, status),
    ] {
        let parsed = Request::parse(&request(flags, kind, 4096, 8192)).unwrap();
        assert_eq!(parsed.cookie, 0x0102_0304_0506_0708);
        assert_eq!(parsed.payload_bytes(), if kind == 1 { 8192 } else { 0 });
        assert_eq!(parsed.judge(&rules(false, true)), Ok(command));
    }
    let flush = Request::parse(&request(0, 3, 0, 0)).unwrap();
    assert_eq!(flush.judge(&rules(true, false)), Ok(Command::Flush));
    let goodbye = Request::parse(&request(0, 2, 0, 0)).unwrap();
    assert!(goodbye.is_disconnect() && !flush.is_disconnect());
}

#[test]
fn every_request_is_judged_by_what_was_agreed() {
    const MIB: u64 = 1 << 20;
    for (read_only, structured, flags, kind, offset, len, errno) in [
        (false, true, 0, 0, MIB - 1, 2, Errno::Invalid),
        (false, true, 0, 0, u64::MAX, 2, Errno::Invalid),
        (false, true, 0, 0, MIB + 1, 0, Errno::Invalid),
        (false, true, 0, 1, MIB, 1, Errno::NoSpace),
        (false, true, 0, 6, MIB, u32::MAX, Errno::NoSpace),
        (false, true, 0, 4, MIB, 1, Errno::Invalid),
        (true, true, 0, 1, 0, 1, Errno::NotPermitted),
        (true, true, 0, 4, 0, 1, Errno::NotPermitted),
        (true, true, 0, 6, 0, 1, Errno::NotPermitted),
        (false, true, 2, 0, 0, 1, Errno::Invalid),
        (false, false, 4, 0, 0, 1, Errno::Invalid),
        (false, true, 4, 1, 0, 1, Errno::Invalid),
        (false, true, 1 << 15, 1, 0, 1, Errno::Invalid),
        (false, true, 0, 3, 0, 1, Errno::Invalid),
        (false, true, 0, 7, 0, 0, Errno::Invalid),
        (false, false, 0, 7, 0, 1, Errno::Invalid),
        (false, true, 0, 5, 0, 1, Errno::Invalid),
        (false, true, 0, 99, 0, 1, Errno::Invalid),
    ] {
        let parsed = Request::parse(&request(flags, kind, offset, len)).unwrap();
        let judged = parsed.judge(&rules(read_only, structured));
        assert_eq!(judged, Err(errno), "{flags} {kind} {offset} {len}");
    }
    let huge = Rules {
        len_bytes: 1 << 40,
        ..rules(false, true)
    };
    let judged = |flags| {
        let read = request(flags, 0, 0, NBD_REQUEST_BYTES_MAX + 1);
        Request::parse(&read).unwrap().judge(&huge)
    };
    assert_eq!(judged(0), Err(Errno::Invalid));
    assert_eq!(judged(4), Err(Errno::Overflow));
    assert!(Request::parse(&request(0, 1, 0, NBD_REQUEST_BYTES_MAX + 1)).is_err());
    assert!(Request::parse(&[0; 28]).is_err());
}

#[test]
fn replies_are_as_drawn() {
    let cookie = 0x1122_3344_5566_7788;
    let name = b"\x11\x22\x33\x44\x55\x66\x77\x88";
    let simple = |errno: u8| [b"\x67\x44\x66\x98\0\0\0", &[errno][..], name].concat();
    assert_eq!(simple_reply(cookie, None), simple(0));
    assert_eq!(simple_reply(cookie, Some(Errno::NoSpace)), simple(28));
    assert_eq!(error_reply(cookie, Errno::Io, "words", false), simple(5));
    let chunk = |flags: u8, kind: [u8; 2], data: &[u8]| {
        let mut chunk = [&b"\x66\x8e\x33\xef\0"[..], &[flags], &kind, name].concat();
        chunk.put_u32(data.len() as u32);
        [&chunk[..], data].concat()
    };
    let error = error_reply(cookie, Errno::Io, "words", true);
    assert_eq!(error, chunk(1, [0x80, 1], b"\0\0\0\x05\0\x05words"));
    let long = error_reply(cookie, Errno::Io, &"é".repeat(5000), true);
    assert_eq!(long.len(), 20 + 6 + 512);

    let mut holes = ExtentSet::new();
    holes.insert(Extent::new(3, 2));
    let extent = Extent::new(1, 6);
    let bytes = Bytes::from_static(b"ab\0\0ef");
    let read = read_reply(cookie, extent, bytes.clone(), &holes, true).concat();
    let expected = [
        chunk(0, [0, 1], b"\0\0\0\0\0\0\0\x01ab"),
        chunk(0, [0, 2], b"\0\0\0\0\0\0\0\x03\0\0\0\x02"),
        chunk(1, [0, 1], b"\0\0\0\0\0\0\0\x05ef"),
    ];
    assert_eq!(read, expected.concat());
    let plain = read_reply(cookie, extent, bytes, &holes, false).concat();
    assert_eq!(plain, [simple(0), b"ab\0\0ef".to_vec()].concat());
    let nothing = read_reply(cookie, Extent::default(), Bytes::new(), &holes, true).concat();
    assert_eq!(nothing, chunk(1, [0, 0], b""));

    let status = status_reply(cookie, extent, &holes, 9);
    let runs = b"\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x02\0\0\0\0";
    assert_eq!(
        status,
        chunk(1, [0, 5], &[b"\0\0\0\x01", &runs[..]].concat())
    );
    let one = status_reply(cookie, extent, &holes, 1);
    assert_eq!(one, chunk(1, [0, 5], b"\0\0\0\x01\0\0\0\x02\0\0\0\0"));
}

#[test]
fn a_read_in_too_many_runs_is_sent_as_one() {
    let mut holes = ExtentSet::new();
    (0..100).for_each(|n| holes.insert(Extent::new(2 * n, 1)));
    let extent = Extent::new(0, 200);
    let parts = read_reply(7, extent, Bytes::from(vec![0; 200]), &holes, true);
    assert_eq!(parts.len(), 2);
    assert_eq!(parts[1].len(), 200);
}

proptest! {
    /// However the bytes of a client are cut, it gets the same answers, and what it can make the
    /// server say is bounded by what it says.
    #[test]
    fn anything_is_a_client_or_refused(
        flags in prop_oneof![Just(1_u32), Just(3), any::<u32>()],
        said in prop::collection::vec((0_u32..13, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
        tail in prop::collection::vec(any::<u8>(), 0..40),
        cuts in prop::collection::vec(1_usize..50, 1..10),
    ) {
        let mut bytes = Vec::new();
        bytes.put_u32(flags);
        for (number, data) in &said {
            bytes.extend(option(*number, data));
        }
        bytes.extend(&tail);
        let facts = facts(false);
        let (whole, output) = negotiate(&facts, &[&bytes]);
        prop_assert!(output.len() <= 200 * (said.len() + 2));
        let mut cut_output = BytesMut::new();
        let mut negotiation = Negotiation::begin(&facts, &mut cut_output);
        drop(cut_output.split());
        let (mut input, mut rest) = (BytesMut::new(), &bytes[..]);
        let mut ended = Ok(Progress::Wants(4));
        for cut in cuts.iter().cycle() {
            if rest.is_empty() || !matches!(ended, Ok(Progress::Wants(_))) {
                break;
            }
            let (now, later) = rest.split_at(rest.len().min(*cut));
            rest = later;
            input.extend_from_slice(now);
            ended = negotiation.advance(&mut input, &mut cut_output);
        }
        prop_assert_eq!(ended.is_ok(), whole.is_ok());
        prop_assert_eq!(ended.ok(), whole.ok());
        prop_assert_eq!(&cut_output[..], &output[..]);
    }

    /// The runs of a reply are the extent, in order, and say what is so.
    #[test]
    fn a_status_says_of_each_byte_what_is_known(
        (offset, len) in (0_u64..60, 1_u64..60),
        holes in prop::collection::vec((0_u64..100, 0_u64..20), 0..10),
    ) {
        let mut set = ExtentSet::new();
        holes.iter().for_each(|&(offset, len)| set.insert(Extent::new(offset, len)));
        let status = status_reply(1, Extent::new(offset, len), &set, 1000);
        let mut position = offset;
        for run in status[24..].chunks(8) {
            let number = |at: usize| (&run[at..]).get_u32();
            prop_assert!(number(0) > 0);
            for _ in 0..number(0) {
                let is_hole = set.covers(Extent::new(position, 1));
                prop_assert_eq!(number(4), if is_hole { 3 } else { 0 });
                position += 1;
            }
        }
        prop_assert_eq!(position, offset + len);
    }

    #[test]
    fn any_request_is_done_refused_or_ends_the_connection(
        bytes in prop::collection::vec(any::<u8>(), 24),
        read_only in any::<bool>(),
        structured in any::<bool>(),
        has_magic in prop::bool::weighted(0.9),
    ) {
        let magic: &[u8] = if has_magic { b"\x25\x60\x95\x13" } else { b"abcd" };
        let mut bytes = [magic, &bytes].concat();
        // Small kinds and offsets are those that mean something.
        bytes[6] = 0;
        bytes[7] %= 9;
        bytes[16..21].fill(0);
        let rules = rules(read_only, structured);
        if let Ok(request) = Request::parse(&bytes) {
            prop_assert!(request.memory_bytes() <= NBD_REQUEST_BYTES_MAX);
            let device = Extent::new(0, rules.len_bytes);
            match request.judge(&rules) {
                Ok(Command::Read { extent, .. } | Command::Status { extent, .. }) => {
                    prop_assert!(device.covers(extent));
                }
                Ok(
                    Command::Write { extent, .. }
                    | Command::Trim { extent, .. }
                    | Command::WriteZeros { extent, .. },
                ) => prop_assert!(device.covers(extent) && !read_only),
                Ok(Command::Flush) | Err(_) => {}
            }
        }
    }
}
