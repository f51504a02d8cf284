//! What becomes of written data, against a model of a server that loses power.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

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
