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
