//! Where in an engine what lies. A key there begins with one byte that says what it is of.
//!
//! ```text
//! k KEY                entries of the program
//! s SEAT               who has a seat; written at its epoch
//! t INSTANCE SLOT      etcd: the last transaction that went through a slot (etcd/slots.rs)
//! f                    etcd: the version of the format
//! ```
//! Nothing of the program begins with another byte, so it cannot touch seats and slots.

use crate::KeyRange;
use crate::range::successor;

/// Bytes before a key of the program.
pub(crate) const TAG_BYTES: usize = 1;

const ENTRY: u8 = b'k';
const SEAT: u8 = b's';

/// Where a key of the program lies.
pub(crate) fn entry(key: &[u8]) -> Vec<u8> {
    [&[ENTRY], key].concat()
}

/// The key of the program that lies there.
pub(crate) fn key(entry: &[u8]) -> &[u8] {
    &entry[TAG_BYTES..]
}

/// Where a range of the program lies. One without keys stays one.
pub(crate) fn entries(range: &KeyRange) -> KeyRange {
    let end = range.end().map_or_else(|| vec![ENTRY + 1], entry);
    KeyRange::new(entry(range.start()), end)
}

/// Where it is written who has a seat.
pub(crate) fn seat(name: &str) -> Vec<u8> {
    [&[SEAT], name.as_bytes()].concat()
}

/// All seats.
pub(crate) fn seats() -> KeyRange {
    KeyRange::prefix([SEAT])
}

/// One key as a range.
pub(crate) fn only(key: &[u8]) -> KeyRange {
    KeyRange::new(key, [key, &[0]].concat())
}

/// `range` below a prefix.
pub(crate) fn below(prefix: &[u8], range: &KeyRange) -> KeyRange {
    let start = [prefix, range.start()].concat();
    match range.end() {
        Some(end) => KeyRange::new(start, [prefix, end].concat()),
        None => match successor(prefix) {
            Some(end) => KeyRange::new(start, end),
            None => KeyRange::from(start),
        },
    }
}
