//! Commits behind pieces that are under way.

use super::*;

/// Three pieces of which the first is stored, the others under way by requests 12 and 13, and a
/// commit behind them.
fn behind_two() -> (Written, Behind) {
    let mut written = Written::default();
    for offset in [0, 100, 200] {
        push(&mut written, offset, 100);
        written.seal();
    }
    assert!(written.behind(&[1, 2, 3], 9).is_none(), "they wait");
    for (id, _) in send_all(&mut written) {
        written.on_requested(id, Some(RequestId(10 + id)));
    }
    written.on_stored(1, 0, 100, OLD);
    assert!(written.behind(&[1, 2, 3], 1).is_none(), "too many");
    let behind = written.behind(&[1, 2, 3], 2).unwrap();
    assert_eq!(behind.requests, [RequestId(12), RequestId(13)]);
    (written, behind)
}

#[test]
fn a_commit_covers_what_it_was_sent_behind_when_all_of_that_is_answered() {
    let (mut written, Behind { covered, .. }) = behind_two();
    push(&mut written, 300, 100);
    written.seal();
    send_all(&mut written);
    written.on_stored(4, 300, 100, OLD);
    assert!(!written.is_heard(&covered));
    written.on_stored(3, 200, 100, OLD);
    assert!(!written.is_heard(&covered));
    written.on_failed(2, FsError::NoSpace);
    assert!(written.is_heard(&covered));
    written.on_committed(&covered, OLD);
    assert_eq!(written.ids(), [4], "it came after the commit");
    assert_eq!(written.errors.since(0), Err(FsError::NoSpace));
}

#[test]
fn a_commit_does_not_cover_what_was_sent_once_more() {
    let (mut written, Behind { covered, .. }) = behind_two();
    written.on_stored(2, 100, 60, OLD);
    written.on_stored(3, 200, 100, OLD);
    assert!(written.is_heard(&covered));
    assert_eq!(send_all(&mut written), [(2, Extent::new(100, 100))]);
    written.on_stored(2, 160, 40, OLD);
    written.on_committed(&covered, OLD);
    assert_eq!(written.ids(), [2], "the rest of it may have come later");
}

#[test]
fn a_commit_of_a_run_covers_nothing_that_another_run_has_stored() {
    for told in [false, true] {
        let (mut written, Behind { covered, .. }) = behind_two();
        written.on_stored(2, 100, 100, OLD);
        if told {
            assert!(written.on_verifier(NEW));
        }
        // The session has sent it again, and the new run has stored it.
        written.on_stored(3, 200, 100, NEW);
        assert!(written.is_heard(&covered));
        written.on_committed(&covered, OLD);
        assert_eq!(written.ids(), [1, 2, 3]);
    }
}
