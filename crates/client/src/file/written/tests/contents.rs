//! What goes with the creation of a file, and what after it.

use super::{NEW, push, write};
use crate::file::written::{Cut, Written};
use base::{OpenId, Principal};
use bytes::Bytes;
use proptest::prelude::*;

const MAX: usize = 64;

fn fill(written: &mut Written, offset: u64, len: usize, byte: u8) {
    let data = Bytes::from(vec![byte; len]);
    written.push(write(offset, data), Cut::Parts(16));
}

#[test]
fn a_header_that_is_written_last_goes_with_the_creation() {
    let mut written = Written::default();
    fill(&mut written, 4, 8, 1);
    assert!(!written.is_contents(MAX), "there is a hole");
    fill(&mut written, 0, 4, 2);
    fill(&mut written, 2, 4, 3);
    assert!(written.is_contents(MAX));
    let (contents, _) = written.take_contents(MAX);
    assert_eq!(contents[..], [2, 2, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1]);
    assert!(written.is_empty());
    assert!(written.is_contents(MAX), "nothing is left behind");
}

#[test]
fn what_was_looked_at_goes_whatever_is_written_later() {
    let mut written = Written::default();
    push(&mut written, 0, 8);
    assert!(written.is_contents(MAX));
    // Adjoining, but too much.
    push(&mut written, 8, MAX);
    assert!(!written.is_contents(MAX));
    let (contents, _) = written.take_contents(MAX);
    assert_eq!(contents.len(), 8);
    let writer = (Principal::root(), OpenId(1));
    written.add_stored(contents, writer, NEW, Vec::new());
    let mut sent = Vec::new();
    while let Some((_, piece)) = written.poll_send() {
        sent.push(piece.extent.offset);
    }
    assert_eq!(sent[0], 8);
}

proptest! {
    /// Whatever is written: what goes with the creation and what goes after it are the file, and
    /// after a look that says so nothing of it goes after it.
    #[test]
    fn contents_and_the_rest_are_what_was_written(
        writes in prop::collection::vec((0u64..80, 1usize..40), 1..12),
        look in 0usize..12,
    ) {
        let (mut written, mut model) = (Written::default(), Vec::new());
        let mut whole = None;
        for (index, (offset, len)) in writes.into_iter().enumerate() {
            if index == look && written.is_contents(MAX) {
                whole = Some(model.len());
            }
            let byte = index as u8 + 1;
            fill(&mut written, offset, len, byte);
            let (begin, end) = (offset as usize, offset as usize + len);
            model.resize(model.len().max(end), 0);
            model[begin..end].fill(byte);
        }
        let is_contents = written.is_contents(MAX);
        let (contents, _) = written.take_contents(MAX);
        prop_assert!(contents.len() <= MAX);
        prop_assert!(whole.is_none_or(|bytes| contents.len() >= bytes));
        prop_assert_eq!(is_contents, written.is_empty());
        let mut found = contents.to_vec();
        written.add_stored(contents, (Principal::root(), OpenId(1)), NEW, Vec::new());
        while let Some((id, piece)) = written.poll_send() {
            let (begin, data) = (piece.place() as usize, piece.part_data());
            let (offset, end) = (piece.place(), begin + data.len());
            found.resize(found.len().max(end), 0);
            found[begin..end].copy_from_slice(&data);
            written.on_stored(id, offset, data.len() as u64, NEW);
        }
        prop_assert_eq!(found, model);
    }
}
