//! What is sent again while other servers still have it.

use super::*;

fn lost(writes: &[(u64, usize)]) -> Written {
    let mut written = Written::new(Order::NewestFirst);
    for (index, (offset, len)) in writes.iter().enumerate() {
        push(&mut written, *offset, *len);
        written.seal();
        send_all(&mut written);
        written.on_stored(index as u64 + 1, *offset, *len as u64, OLD);
    }
    assert!(written.is_stored());
    assert!(written.on_verifier(NEW));
    written
}

fn poll(written: &mut Written) -> Option<(u64, Extent)> {
    let (id, piece) = written.poll_send()?;
    Some((id, Extent::new(piece.place(), piece.part().len)))
}

#[test]
fn nobody_sees_again_what_was_replaced_before_the_loss() {
    let mut written = lost(&[(0, 100), (50, 100), (70, 10), (300, 10)]);
    assert_eq!(poll(&mut written), Some((4, Extent::new(300, 10))));
    assert_eq!(poll(&mut written), Some((3, Extent::new(70, 10))));
    assert_eq!(poll(&mut written), None, "they overlap");
    // What is written since comes after all of them.
    push(&mut written, 0, 300);
    written.seal();
    assert_eq!(poll(&mut written), None);
    written.on_stored(3, 70, 10, NEW);
    assert_eq!(poll(&mut written), Some((2, Extent::new(50, 20))));
    written.on_stored(2, 50, 20, NEW);
    assert_eq!(poll(&mut written), Some((2, Extent::new(80, 70))));
    written.on_stored(2, 80, 70, NEW);
    assert_eq!(poll(&mut written), Some((1, Extent::new(0, 50))));
    assert_eq!(poll(&mut written), None);
    written.on_stored(1, 0, 50, NEW);
    assert_eq!(poll(&mut written), Some((5, Extent::new(0, 300))));
    assert_eq!(written.lost(), [4]);
}

#[test]
fn of_what_the_last_one_leaves_when_it_fails_the_one_before_is_sent() {
    let mut written = lost(&[(0, 100), (0, 100)]);
    assert_eq!(poll(&mut written), Some((2, Extent::new(0, 100))));
    written.on_failed(2, FsError::Io);
    assert_eq!(poll(&mut written), Some((1, Extent::new(0, 100))));
}

#[test]
fn no_commit_covers_what_was_lost_under_a_change_before_that_is_over() {
    for is_done in [true, false] {
        let mut written = Written::default();
        push(&mut written, 0, 100);
        written.seal();
        send_all(&mut written);
        written.on_stored(1, 0, 100, OLD);
        let hole = Extent::new(20, 50);
        let replacement = written.replace(hole).unwrap();
        assert!(written.on_verifier(NEW));
        let parts = [Extent::new(0, 20), Extent::new(70, 30)];
        let mut covered = Vec::new();
        for part in parts {
            assert_eq!(poll(&mut written), Some((1, part)));
            covered.push(written.with(1));
            written.on_stored(1, part.offset, part.len, NEW);
        }
        covered.push(written.stored());
        assert!(written.behind(&[1], 8).is_none(), "nobody can send it");
        assert!(written.replace(hole).is_none(), "one after the other");
        // These commits may have run before the change.
        for covered in &covered {
            written.on_committed(covered, NEW);
            assert_eq!(written.ids(), [1]);
        }
        if is_done {
            written.on_changed(NEW);
            written.on_replaced(replacement, Extent::default());
        } else {
            written.on_replaced(replacement, hole);
            assert_eq!(poll(&mut written), Some((1, hole)));
            written.on_stored(1, hole.offset, hole.len, NEW);
        }
        assert!(written.is_stored());
        for covered in &covered {
            written.on_committed(covered, NEW);
        }
        assert_eq!(written.ids(), [1]);
        let covered = written.stored();
        written.on_committed(&covered, NEW);
        assert!(written.is_empty());
    }
}

#[test]
fn what_a_refused_change_left_does_not_undo_what_was_written_since() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    send_all(&mut written);
    written.on_stored(1, 0, 100, OLD);
    let whole = Extent::new(0, 100);
    let replacement = written.replace(whole).unwrap();
    assert!(!written.on_verifier(NEW), "it is not known what to send");
    for (id, offset) in [(2, 10), (3, 40)] {
        push(&mut written, offset, 20);
        written.seal();
        assert_eq!(poll(&mut written), Some((id, Extent::new(offset, 20))));
        let covered = written.with(id);
        written.on_stored(id, offset, 20, NEW);
        if id == 2 {
            written.on_committed(&covered, NEW);
        }
    }
    written.on_replaced(replacement, whole);
    for (offset, len) in [(0, 10), (30, 10), (60, 40)] {
        assert_eq!(poll(&mut written), Some((1, Extent::new(offset, len))));
        written.on_stored(1, offset, len, NEW);
    }
    assert!(written.is_stored());
}

#[test]
fn nothing_comes_back_into_an_emptied_file_if_another_change_is_refused() {
    let mut written = Written::default();
    push(&mut written, 0, 100);
    written.seal();
    send_all(&mut written);
    written.on_stored(1, 0, 100, OLD);
    let hole = Extent::new(20, 50);
    let replacement = written.replace(hole).unwrap();
    written.on_emptied(OLD, false);
    written.on_replaced(replacement, hole);
    written.on_verifier(NEW);
    assert_eq!(poll(&mut written), None);
    assert!(written.is_stored());
    assert!(written.errors.since(0).is_err(), "the emptying may be lost");
}
