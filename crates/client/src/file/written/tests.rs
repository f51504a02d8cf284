//! What becomes of written data, by hand and against a model of a server that loses power.

mod appends;
mod behind;
mod contents;
mod lost;

use super::gathering::PIECE_BYTES_MAX;
use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

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

/// Bytes of the model's file.
const SPACE: usize = 48;

/// A change that cannot be sent again: a hole, say.
#[derive(Clone)]
struct Change {
    range: Range<usize>,
    number: u64,
    replacement: Rc<Cell<Option<Replacement>>>,
    /// Whether the server has carried it out: then it does so when it is asked again.
    is_done: bool,
}

/// A request under way: where a piece goes and what it brings, what it changes, and whether a
/// commit follows in it.
#[derive(Clone, Default)]
struct Request {
    number: u64,
    /// Those that must run before it.
    after: Vec<u64>,
    piece: Option<(u64, usize, Vec<u64>)>,
    change: Option<Change>,
    commit: Option<Covered>,
}

/// How the server carries a request out.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Done,
    /// It takes half of a piece, and refuses a change.
    Half,
}

/// A reply under way: what was carried out of what was asked for, and by which server.
struct Answer {
    request: Request,
    whole: Request,
    outcome: Outcome,
    verifier: WriteVerifier,
}

/// A call of fsync(2) that waits.
struct Sync {
    pieces: Vec<u64>,
    has_change: bool,
    /// What it will promise.
    state: [u64; SPACE],
}

/// A server with a volatile and a durable state. A byte is the number of the call that made it.
struct Model {
    written: Written,
    /// What a program reads: every write and change in the order of the calls.
    wanted: [u64; SPACE],
    /// Bytes that were changed, and the program told that the change may be lost.
    in_doubt: [bool; SPACE],
    errors: u64,
    /// Which calls were changes.
    changes: BTreeSet<u64>,
    cache: [u64; SPACE],
    disk: [u64; SPACE],
    /// What fsync(2) has promised.
    promised: [u64; SPACE],
    waiting: Vec<Sync>,
    verifier: u8,
    line: Vec<Request>,
    replies: Vec<Answer>,
    /// Commits that were answered before all that they were sent behind.
    half_heard: Vec<(Covered, WriteVerifier)>,
    calls: u64,
    requests: u64,
}

impl Model {
    fn new(order: Order) -> Self {
        Self {
            written: Written::new(order),
            wanted: [0; SPACE],
            in_doubt: [false; SPACE],
            errors: 0,
            changes: BTreeSet::new(),
            cache: [0; SPACE],
            disk: [0; SPACE],
            promised: [0; SPACE],
            waiting: Vec::new(),
            verifier: 1,
            line: Vec::new(),
            replies: Vec::new(),
            half_heard: Vec::new(),
            calls: 0,
            requests: 0,
        }
    }

    fn verifier(&self) -> WriteVerifier {
        WriteVerifier([self.verifier; 16])
    }

    /// The program waits for each of its changes.
    fn is_changing(&self) -> bool {
        let answered = self.replies.iter().map(|answer| &answer.request);
        let mut requests = self.line.iter().chain(answered);
        requests.any(|request| request.change.is_some())
    }

    fn write(&mut self, offset: usize, len: usize) {
        if self.is_changing() {
            return;
        }
        let range = offset..(offset + len).min(SPACE);
        self.calls += 1;
        self.wanted[range.clone()].fill(self.calls);
        self.in_doubt[range.clone()].fill(false);
        let data = Bytes::from(vec![u8::try_from(self.calls).unwrap(); range.len()]);
        self.written
            .push(write(offset as u64, data), Cut::Parts(PIECE_BYTES_MAX));
        self.written.seal();
    }

    fn change(&mut self, offset: usize, len: usize) {
        let range = offset..(offset + len).min(SPACE);
        if self.is_changing() || !self.written.is_stored() {
            return;
        }
        let extent = Extent::new(offset as u64, range.len() as u64);
        let replacement = self.written.replace(extent).unwrap();
        self.calls += 1;
        self.changes.insert(self.calls);
        let change = Change {
            range,
            number: self.calls,
            replacement: Rc::new(Cell::new(Some(replacement))),
            is_done: false,
        };
        self.ask(Request {
            change: Some(change),
            ..Request::default()
        });
    }

    fn ask(&mut self, request: Request) {
        self.requests += 1;
        let number = self.requests;
        if let Some((id, _, _)) = &request.piece {
            self.written.on_requested(*id, Some(RequestId(number)));
        }
        self.line.push(Request { number, ..request });
    }

    /// A program calls fsync(2).
    fn sync(&mut self) {
        if self.is_changing() {
            return;
        }
        let mut state = self.wanted;
        for byte in (0..SPACE).filter(|byte| self.in_doubt[*byte]) {
            state[byte] = 0;
        }
        self.waiting.push(Sync {
            pieces: self.written.ids(),
            has_change: self.written.changed.is_some(),
            state,
        });
    }

    /// A commit is sent behind all that is under way, if that is all that there is.
    fn send_behind(&mut self) {
        let Some(Behind { requests, covered }) = self.written.behind(&self.written.ids(), 8) else {
            return;
        };
        self.sync();
        self.ask(Request {
            after: requests.iter().map(|id| id.0).collect(),
            commit: Some(covered),
            ..Request::default()
        });
    }

    fn send(&mut self, with_commit: bool) {
        if with_commit {
            self.sync();
        }
        let piece = self.written.poll_send().map(|(id, piece)| {
            let data = piece.part_data();
            let data = data.iter().map(|byte| u64::from(*byte)).collect();
            (id, usize::try_from(piece.place()).unwrap(), data)
        });
        let covered = match &piece {
            Some((id, _, _)) => self.written.with(*id),
            None => self.written.stored(),
        };
        let commit = with_commit.then_some(covered);
        if piece.is_some() || commit.is_some() {
            self.ask(Request {
                piece,
                commit,
                ..Request::default()
            });
        }
    }

    /// The server carries one out. Its reply may be overtaken by others.
    fn execute(&mut self, index: usize, mut outcome: Outcome) {
        // What waits for others is put aside until they have run.
        let is_there = |number: &u64| self.line.iter().any(|other| other.number == *number);
        let can_run = |at: &usize| !self.line[*at].after.iter().any(is_there);
        let ready: Vec<usize> = (0..self.line.len()).filter(can_run).collect();
        let Some(at) = index.checked_rem(ready.len()) else {
            return;
        };
        let mut whole = self.line.remove(ready[at]);
        if let Some(change) = &mut whole.change {
            if change.is_done {
                outcome = Outcome::Done;
            }
            change.is_done = outcome == Outcome::Done;
        }
        let mut request = whole.clone();
        if let Some((_, offset, data)) = &mut request.piece {
            if outcome == Outcome::Half {
                data.truncate(data.len().div_ceil(2));
            }
            self.cache[*offset..*offset + data.len()].copy_from_slice(data);
        }
        if let Some(Change { range, number, .. }) = &request.change
            && outcome == Outcome::Done
        {
            self.cache[range.clone()].fill(*number);
        }
        if request.commit.is_some() {
            self.disk = self.cache;
        }
        let verifier = self.verifier();
        self.replies.push(Answer {
            request,
            whole,
            outcome,
            verifier,
        });
    }

    fn hear(&mut self, index: usize) {
        let Some(at) = index.checked_rem(self.replies.len()) else {
            return;
        };
        let Answer {
            request,
            outcome,
            verifier,
            ..
        } = self.replies.remove(at);
        if let Some((id, offset, data)) = &request.piece {
            let (offset, bytes) = (*offset as u64, data.len() as u64);
            self.written.on_stored(*id, offset, bytes, verifier);
        }
        if let Some(Change {
            range,
            number,
            replacement,
            ..
        }) = &request.change
        {
            let mut kept = Extent::default();
            if outcome == Outcome::Done {
                self.wanted[range.clone()].fill(*number);
                self.in_doubt[range.clone()].fill(false);
                self.written.on_changed(verifier);
            } else {
                kept = Extent::new(range.start as u64, range.len() as u64);
                self.written.on_verifier(verifier);
            }
            let replacement = replacement.take().unwrap();
            self.written.on_replaced(replacement, kept);
        }
        let committed = request.commit.map(|covered| (covered, verifier));
        self.half_heard.extend(committed);
        let written = &mut self.written;
        self.half_heard.retain(|(covered, verifier)| {
            let is_heard = written.is_heard(covered);
            if is_heard {
                written.on_committed(covered, *verifier);
            }
            !is_heard
        });
        self.hear_errors();
        let (written, promised) = (&self.written, &mut self.promised);
        self.waiting.retain(|sync| {
            let changed = sync.has_change && written.changed.is_some();
            let done = written.has_none_of(&sync.pieces) && !changed;
            if done {
                for (promised, wanted) in promised.iter_mut().zip(&sync.state) {
                    *promised = (*promised).max(*wanted);
                }
            }
            !done
        });
        self.check();
    }

    /// Whoever syncs is told that a change may be lost, once.
    fn hear_errors(&mut self) {
        let errors = self.written.errors.count();
        if errors > self.errors {
            self.errors = errors;
            self.waiting.clear();
            for byte in 0..SPACE {
                let wanted = self.wanted[byte];
                let is_changed = self.changes.contains(&wanted);
                self.in_doubt[byte] |= is_changed && wanted != self.cache[byte];
            }
        }
    }

    /// What survives is what was durable and any part of the rest; what was not answered is sent
    /// again by the session.
    fn lose_power(&mut self, survives: u64, told: bool) {
        for byte in 0..SPACE {
            if survives >> byte & 1 == 1 {
                self.disk[byte] = self.cache[byte];
            }
        }
        self.cache = self.disk;
        self.verifier += 1;
        self.line
            .extend(self.replies.drain(..).map(|answer| answer.whole));
        if told {
            self.written.on_verifier(self.verifier());
            self.hear_errors();
        }
        self.check();
    }

    fn check(&self) {
        for byte in 0..SPACE {
            assert!(
                self.disk[byte] >= self.promised[byte],
                "byte {byte}: {} on disk, {} promised",
                self.disk[byte],
                self.promised[byte]
            );
        }
    }

    fn finish(&mut self) {
        self.written.on_verifier(self.verifier());
        self.hear_errors();
        for _ in 0..10_000 {
            if self.written.is_empty() && self.line.is_empty() && self.replies.is_empty() {
                break;
            }
            self.send(false);
            self.send(true);
            self.execute(0, Outcome::Done);
            self.hear(0);
        }
        assert!(self.written.is_empty());
        for byte in (0..SPACE).filter(|byte| !self.in_doubt[*byte]) {
            assert_eq!(self.cache[byte], self.wanted[byte], "byte {byte}");
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_every_byte_ends_as_the_last_write_made_it(
        steps in prop::collection::vec((0..11u8, any::<u64>()), 1..120),
        order in prop_oneof![Just(Order::OldestFirst), Just(Order::NewestFirst)],
    ) {
        let mut model = Model::new(order);
        for (kind, value) in steps {
            let number = usize::try_from(value % 1009).unwrap();
            let outcome = if value % 5 == 0 { Outcome::Half } else { Outcome::Done };
            match kind {
                0 | 1 if model.calls < 250 => model.write(number % SPACE, 1 + number % 17),
                2 | 3 => model.send(value % 3 == 0),
                4 | 5 => model.execute(number, outcome),
                6 => model.hear(number),
                7 if value % 4 == 0 && model.verifier < 250 => {
                    model.lose_power(value >> 8, value % 8 == 0);
                }
                8 => model.hear(0),
                9 if model.calls < 250 => model.change(number % SPACE, 1 + number % 29),
                10 => model.send_behind(),
                _ => {}
            }
        }
        model.finish();
    }
}
