//! Logs as files.

use super::*;
use proptest::prelude::*;

fn small() -> Log {
    let mut base = Image::new(8192);
    base.write_at(4096, b"old");
    Log {
        subject: "a test".to_owned(),
        base,
        entries: vec![
            Entry::Mark(Mark::Begun(1)),
            Entry::Write {
                offset: 512,
                data: (*b"new").into(),
            },
            Entry::Zeros(Extent::new(4096, 512)),
            Entry::Flush,
            Entry::Mark(Mark::Done(1)),
        ],
    }
}

fn bytes(log: &Log) -> Vec<u8> {
    let mut bytes = Vec::new();
    log.write_to(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let log = small();
    let bytes = bytes(&log);
    assert_eq!(Log::read_from(&mut bytes.as_slice()).unwrap(), log);
}

/// The drawing in `docs/formats/crash-log.md`, byte by byte where it has no checksums.
#[test]
fn the_bytes_are_those_of_the_drawing() {
    let bytes = bytes(&small());
    assert_eq!(&bytes[..16], b"AZKC\x01\0\0\0\0\x20\0\0\0\0\0\0");
    let second_record = 32 + 32 + "a test".len();
    assert_eq!(&bytes[32..40], &[0; 8], "the first record has number 0");
    assert_eq!(bytes[32 + 24], 1, "and is the subject");
    assert_eq!(
        &bytes[second_record..second_record + 8],
        &1u64.to_le_bytes()
    );
    assert_eq!(bytes[second_record + 24], 2, "the device before");
    let digest = blake3::hash(&bytes).to_hex();
    assert_eq!(&digest[..16], GOLDEN, "of {} bytes", bytes.len());
}

/// Of the whole of version 1.
const GOLDEN: &str = "970b03e7853b2ce5";

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let log = small();
    let bytes = bytes(&log);
    // Of what was on the device before only the beginning and the end are gone through.
    let base_body = 32 + 32 + 6 + 32;
    let places = (0..base_body + 20).chain(bytes.len() - 300..bytes.len());
    for place in places {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1 << bit;
            assert!(Log::read_from(&mut damaged.as_slice()).is_err(), "{place}");
        }
        assert!(Log::read_from(&mut &bytes[..place]).is_err(), "{place}");
    }
}

/// The judge counts on it that what is done has begun, and that nobody goes back.
#[test]
fn marks_out_of_their_order_are_refused_in_both_forms() {
    let read = |marks: &[Mark]| {
        let entries = marks.iter().copied().map(Entry::Mark).collect();
        let log = Log { entries, ..small() };
        let mut exported = Vec::new();
        log.export_to(&mut exported).unwrap();
        let own = Log::read_from(&mut bytes(&log).as_slice());
        let other = Log::import_from(&mut exported.as_slice());
        assert_eq!(own.is_ok(), other.is_ok(), "{marks:?}");
        own.map(drop)
    };
    for wrong in [
        &[Mark::Done(1)][..],
        &[Mark::Begun(1), Mark::Done(2)],
        &[Mark::Begun(2), Mark::Begun(1)],
        &[Mark::Begun(2), Mark::Done(2), Mark::Done(1)],
    ] {
        assert!(
            matches!(read(wrong), Err(LogError::Damaged(_))),
            "{wrong:?}"
        );
    }
    read(&[Mark::Begun(1), Mark::Done(1), Mark::Begun(3)]).unwrap();
}

#[test]
fn a_later_version_is_said_to_be_one() {
    let mut bytes = bytes(&small());
    bytes[4] = 2;
    let error = Log::read_from(&mut bytes.as_slice()).unwrap_err();
    assert!(matches!(error, LogError::Newer(2)), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_do_harm(
        tail in prop::collection::vec(any::<u8>(), 0..200),
        keep in 0..400usize,
    ) {
        let whole = bytes(&small());
        let mut mixed = whole[..keep.min(whole.len())].to_vec();
        mixed.extend(tail);
        let _ = Log::read_from(&mut mixed.as_slice());
    }
}
