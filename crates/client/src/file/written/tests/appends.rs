//! In which order appends go among other writes.

use super::{NEW, PIECE_BYTES_MAX, push, send_all, write};
use crate::file::written::{Cut, Write, Written};
use bytes::Bytes;

#[test]
fn an_append_goes_after_what_was_written_before_it_and_before_what_is_beyond() {
    let mut written = Written::default();
    let append = || Write {
        append: true,
        ..write(100, Bytes::from(vec![7; 50]))
    };
    push(&mut written, 0, 100);
    written.push(append(), Cut::Parts(PIECE_BYTES_MAX));
    push(&mut written, 150, 10);
    push(&mut written, 20, 10);
    written.seal();
    for expected in [0, 100, 150] {
        let sent = send_all(&mut written);
        assert_eq!(sent[0].1.offset, expected);
        for (id, extent) in sent {
            written.on_stored(id, extent.offset, extent.len, NEW);
        }
    }
    assert!(written.is_stored());
}

#[test]
fn an_append_does_not_wait_for_what_was_written_after_it() {
    let mut written = Written::default();
    push(&mut written, 0, 50);
    written.seal();
    let first = send_all(&mut written)[0].0;
    let append = Write {
        append: true,
        ..write(100, Bytes::from(vec![7; 50]))
    };
    written.push(append, Cut::Parts(PIECE_BYTES_MAX));
    push(&mut written, 60, 10);
    written.seal();
    assert_eq!(send_all(&mut written)[0].1.offset, 60);
    assert_eq!(written.under_way().count(), 2);
    written.on_stored(first, 0, 50, NEW);
    assert_eq!(send_all(&mut written)[0].1.offset, 100);
}
