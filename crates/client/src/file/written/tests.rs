//! What becomes of written data, by hand; and against a model in `model.rs`.

mod appends;
mod behind;
mod contents;
mod lost;
mod model;

use super::gathering::PIECE_BYTES_MAX;
use super::*;
use bytes::Bytes;

const OLD: WriteVerifier = WriteVerifier([1; 16]);
const NEW: WriteVerifier = WriteVerifier([2; 16]);

fn write(offset: u64, data: Bytes) -> Write {
    Write {
        offset,
        data,
        who: Principal::root(),
        open: None,
        append: false,
        permits: Vec::new(),
    }
}

fn push(written: &mut Written, offset: u64, len: usize) {
    let data = Bytes::from(vec![7; len]);
    written.push(write(offset, data), Cut::Parts(PIECE_BYTES_MAX));
}

fn send_all(written: &mut Written) -> Vec<(u64, Extent)> {
    let mut sent = Vec::new();
    while let Some((id, piece)) = written.poll_send() {
        sent.push((id, piece.extent));
    }
    sent
}

#[test]
fn adjoining_small_writes_become_one_piece() {
    let mut written = Written::default();
    for at in 0..8 {
        push(&mut written, at * 4096, 4096);
    }
    assert_eq!(written.end(), Some(32768));
    written.seal();
    assert_eq!(send_all(&mut written), [(1, Extent::new(0, 32768))]);
}

#[test]
fn a_large_write_goes_in_parts_but_an_append_lands_together() {
    let mut written = Written::default();
    let data = || Bytes::from(vec![7; 300]);
    written.push(write(1000, data()), Cut::Parts(128));
    assert_eq!(
        send_all(&mut written),
        [
            (1, Extent::new(1000, 24)),
            (2, Extent::new(1024, 128)),
            (3, Extent::new(1152, 128)),
            (4, Extent::new(1280, 20))
        ]
    );
    let append = Write {
        append: true,
        ..write(1300, data())
    };
    written.push(append, Cut::Parts(128));
    assert_eq!(
        send_all(&mut written),
        [],
        "where it lands is not known yet"
    );
    for (id, bytes) in [(1, 24), (2, 128), (3, 128), (4, 20)] {
        written.on_stored(id, 1000, bytes, NEW);
    }
    assert_eq!(send_all(&mut written), [(5, Extent::new(1300, 300))]);
}

#[test]
fn aligned_pieces_end_where_units_do_whatever_is_written() {
    let unit = PIECE_BYTES_MAX as u64;
    let mut written = Written::default();
    let mut gathers = false;
    // Begins and ends within a unit; writes cross the ends of others.
    for at in 0..40 {
        let data = Bytes::from(vec![7; 100_000]);
        gathers = written.push(write(300_000 + at * 100_000, data), Cut::Aligned);
    }
    assert!(gathers);
    let large = Bytes::from(vec![7; 3 * PIECE_BYTES_MAX]);
    assert!(written.push(write(4_300_000, large), Cut::Aligned));
    let end = 4_300_000 + 3 * unit;
    let units = (1..end / unit).map(|number| (number + 1, Extent::new(number * unit, unit)));
    let mut expected = vec![(1, Extent::between(300_000, unit))];
    expected.extend(units);
    assert_eq!(send_all(&mut written), expected);
    written.seal();
    let last = Extent::between(end / unit * unit, end);
    assert_eq!(send_all(&mut written), [(end / unit + 1, last)]);
}

#[test]
fn a_timer_sends_nothing_that_has_just_begun() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    let timer = written.pieces_made();
    push(&mut written, 1000, 100);
    assert!(!written.seal_older(timer), "it is newer than the timer");
    assert_eq!(send_all(&mut written), [(1, Extent::new(0, 100))]);
    let timer = written.pieces_made();
    push(&mut written, 1100, 100);
    assert!(written.seal_older(timer), "it is as old as the timer");
    assert_eq!(send_all(&mut written), [(2, Extent::new(1000, 200))]);
    assert!(written.seal_older(timer), "there is nothing");
}

#[test]
fn overlapping_pieces_are_never_on_the_line_together() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    push(&mut written, 50, 100);
    push(&mut written, 500, 10);
    written.seal();
    assert_eq!(
        send_all(&mut written),
        [(1, Extent::new(0, 100)), (3, Extent::new(500, 10))]
    );
    written.on_stored(1, 0, 100, OLD);
    assert_eq!(send_all(&mut written), [(2, Extent::new(50, 100))]);
}

#[test]
fn what_may_be_lost_is_sent_again_in_order() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    push(&mut written, 50, 100);
    written.seal();
    for (id, offset) in [(1, 0), (2, 50)] {
        send_all(&mut written);
        written.on_stored(id, offset, 100, OLD);
    }
    assert!(written.is_stored());
    let covered = written.stored();
    assert!(!written.on_verifier(OLD));
    assert!(written.on_verifier(NEW));
    assert_eq!(send_all(&mut written), [(1, Extent::new(0, 100))]);
    written.on_stored(1, 0, 100, NEW);
    assert_eq!(send_all(&mut written), [(2, Extent::new(50, 100))]);
    written.on_stored(2, 50, 100, NEW);
    written.on_committed(&covered, NEW);
    assert!(
        !written.is_empty(),
        "a commit asked for before the loss covers nothing after it"
    );
    let covered = written.stored();
    written.on_committed(&covered, NEW);
    assert!(written.is_empty());
}

#[test]
fn what_is_sent_again_does_not_undo_what_came_after_it() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    send_all(&mut written);
    written.on_stored(1, 0, 100, OLD);
    push(&mut written, 30, 20);
    written.seal();
    assert_eq!(send_all(&mut written), [(2, Extent::new(30, 20))]);
    assert!(written.on_verifier(NEW));
    assert_eq!(send_all(&mut written), [], "the later one is under way");
    written.on_stored(2, 30, 20, NEW);
    let (id, piece) = written.poll_send().unwrap();
    assert_eq!((id, piece.part()), (1, Extent::new(0, 30)));
    written.on_stored(1, 0, 30, NEW);
    let (id, piece) = written.poll_send().unwrap();
    assert_eq!((id, piece.part()), (1, Extent::new(50, 50)));
    written.on_stored(1, 50, 50, NEW);
    assert!(written.is_stored());
}

#[test]
fn what_something_else_has_replaced_is_not_sent_again() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    send_all(&mut written);
    written.on_stored(1, 0, 100, OLD);
    let cut = written.replace(Extent::between(60, u64::MAX)).unwrap();
    assert!(written.on_verifier(NEW));
    let (_, piece) = written.poll_send().unwrap();
    assert_eq!(piece.part(), Extent::new(0, 60));
    written.on_stored(1, 0, 60, NEW);
    assert_eq!(send_all(&mut written), [], "the truncation is under way");
    assert!(!written.is_stored(), "and so the rest is nowhere");
    written.on_replaced(cut, Extent::between(60, u64::MAX));
    let (_, piece) = written.poll_send().unwrap();
    assert_eq!(
        piece.part(),
        Extent::new(60, 40),
        "the truncation was refused"
    );
}

#[test]
fn what_a_refused_change_would_have_replaced_is_sent_again() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    send_all(&mut written);
    written.on_stored(1, 0, 100, OLD);
    let whole = Extent::between(0, u64::MAX);
    let cut = written.replace(whole).unwrap();
    written.on_replaced(cut, whole);
    assert!(written.is_stored(), "the server still has it");
    assert!(written.on_verifier(NEW));
    let (_, piece) = written.poll_send().unwrap();
    assert_eq!(piece.part(), Extent::new(0, 100));
}

#[test]
fn nothing_is_replaced_before_what_was_lost_is_there_again() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    send_all(&mut written);
    written.on_stored(1, 0, 100, OLD);
    assert!(written.on_verifier(NEW));
    assert!(written.replace(Extent::new(0, 50)).is_none(), "it waits");
    send_all(&mut written);
    assert!(written.replace(Extent::new(0, 50)).is_none(), "under way");
    written.on_stored(1, 0, 100, NEW);
    assert!(written.replace(Extent::new(0, 50)).is_some());
}

#[test]
fn a_file_emptied_while_something_is_sent_again_is_in_doubt() {
    for lost in [false, true] {
        let mut written = Written::default();
        push(&mut written, 0, 100);
        written.seal();
        send_all(&mut written);
        written.on_stored(1, 0, 100, OLD);
        let verifier = if lost { NEW } else { OLD };
        assert_eq!(written.on_verifier(verifier), lost);
        written.on_emptied(verifier, false);
        assert_eq!(written.errors.since(0).is_err(), lost);
        assert!(written.needs_commit(), "that it is empty must be durable");
        let covered = written.stored();
        written.on_committed(&covered, verifier);
        assert_eq!(written.is_empty(), !lost);
    }
}

#[test]
fn who_waits_for_what_is_written_does_not_wait_for_what_follows() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    let wanted = written.unstored();
    push(&mut written, 100, 100);
    written.seal();
    send_all(&mut written);
    assert_eq!((written.unstored_of(&wanted), written.arrivals()), (1, 0));
    written.on_stored(2, 100, 100, OLD);
    assert_eq!((written.unstored_of(&wanted), written.arrivals()), (1, 1));
    written.on_stored(1, 0, 100, OLD);
    push(&mut written, 200, 100);
    assert_eq!(written.unstored_of(&wanted), 0);
}

#[test]
fn an_append_into_which_another_has_come_is_told_and_not_put_together_elsewhere() {
    let mut written = Written::default();
    let append = Write {
        append: true,
        ..write(0, Bytes::from(vec![7; 100]))
    };
    written.push(append, Cut::Parts(PIECE_BYTES_MAX));
    written.seal();
    send_all(&mut written);
    assert!(!written.on_stored(1, 0, 60, OLD));
    send_all(&mut written);
    assert!(written.on_stored(1, 500, 40, OLD));
    assert_eq!(written.errors.since(0), Err(FsError::Io));
    assert!(written.on_verifier(NEW));
    let (_, piece) = written.poll_send().unwrap();
    assert_eq!((piece.place(), piece.part().len), (500, 40));
}

#[test]
fn what_was_replaced_is_not_sent_again_as_nothing() {
    let mut written = Written::default();
    for offset in [0, 100] {
        push(&mut written, offset, 100);
        written.seal();
    }
    send_all(&mut written);
    written.on_stored(1, 0, 100, OLD);
    written.on_stored(2, 100, 100, OLD);
    let copied = written.replace(Extent::new(0, 200)).unwrap();
    assert!(!written.on_verifier(NEW), "all of it is replaced");
    written.on_replaced(copied, Extent::new(150, 50));
    assert_eq!(send_all(&mut written), [(2, Extent::new(100, 100))]);
    assert!(written.is_stored() || written.unstored() == [2]);
}

#[test]
fn an_append_that_lands_in_a_gap_goes_to_where_it_was_expected() {
    // The replies may come in any order.
    for lost_first in [false, true] {
        let mut written = Written::default();
        for offset in [0, 100] {
            let append = Write {
                append: true,
                ..write(offset, Bytes::from(vec![7; 100]))
            };
            written.push(append, Cut::Parts(PIECE_BYTES_MAX));
            written.seal();
        }
        assert_eq!(send_all(&mut written), [(1, Extent::new(0, 100))]);
        written.on_stored(1, 0, 100, OLD);
        assert_eq!(send_all(&mut written), [(2, Extent::new(100, 100))]);
        assert!(written.on_verifier(NEW));
        assert_eq!(send_all(&mut written), [(1, Extent::new(0, 100))]);
        if lost_first {
            written.on_stored(1, 0, 100, NEW);
        }
        written.on_stored(2, 0, 100, NEW);
        if !lost_first {
            written.on_stored(1, 0, 100, NEW);
        }
        assert_eq!(send_all(&mut written), [(2, Extent::new(100, 100))]);
    }
}

#[test]
fn what_the_server_did_not_take_is_sent_again() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    send_all(&mut written);
    written.on_stored(1, 0, 60, OLD);
    assert!(!written.is_stored());
    let (id, piece) = written.poll_send().unwrap();
    assert_eq!((id, piece.part()), (1, Extent::new(60, 40)));
    written.on_stored(1, 60, 40, OLD);
    assert!(written.is_stored());
    assert!(written.on_verifier(NEW));
    let (_, piece) = written.poll_send().unwrap();
    assert_eq!(
        piece.part(),
        Extent::new(0, 100),
        "nothing of it may be there"
    );
}

#[test]
fn the_newest_state_counts_whichever_reply_comes_last() {
    let state = |size: u64| Attributes {
        kind: base::FileKind::File,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        inode: 1,
        device: 0,
        size,
        blocks: 0,
        block_size: 4096,
        accessed: base::Timestamp::default(),
        modified: base::Timestamp::default(),
        changed: base::Timestamp::default(),
        created: None,
        protected: false,
    };
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    push(&mut written, 100, 100);
    written.seal();
    send_all(&mut written);
    written.on_attributes(state(200), 0);
    assert_eq!(written.take_settled(2, 100), None);
    written.on_stored(2, 100, 100, OLD);
    written.on_attributes(state(100), 0);
    let (settled, _) = written.take_settled(1, 100).unwrap();
    assert_eq!(settled.size, 200);
    written.on_stored(1, 0, 100, OLD);
    // Where some is lost, the server is asked, and that is the latest.
    push(&mut written, 200, 100);
    written.seal();
    push(&mut written, 300, 100);
    written.seal();
    send_all(&mut written);
    written.on_attributes(state(300), 0);
    written.on_stored(3, 200, 100, OLD);
    written.on_failed(4, FsError::NoSpace);
    assert!(written.told().is_some() && written.take_failure());
    assert_eq!(written.told(), None);
}

#[test]
fn a_piece_that_failed_is_gone_and_its_error_stays() {
    let mut written = Written::default();
    push(&mut written, 0, 10);
    written.seal();
    send_all(&mut written);
    written.on_failed(1, FsError::NoSpace);
    assert_eq!(written.errors.since(0), Err(FsError::NoSpace));
    assert!(written.is_empty());
}
