//! What becomes of written data, by hand and against a model of a server that loses power.

use super::*;
use proptest::prelude::*;

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
    written.push(write(offset, data), PIECE_BYTES_MAX);
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
    written.push(write(1000, data()), 128);
    assert_eq!(
        send_all(&mut written),
        [
            (1, Extent::new(1000, 128)),
            (2, Extent::new(1128, 128)),
            (3, Extent::new(1256, 44))
        ]
    );
    let append = Write {
        append: true,
        ..write(1300, data())
    };
    written.push(append, 128);
    assert_eq!(send_all(&mut written), [(4, Extent::new(1300, 300))]);
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
    written.on_committed(covered, NEW);
    assert!(
        !written.is_empty(),
        "a commit asked for before the loss covers nothing after it"
    );
    let covered = written.stored();
    written.on_committed(covered, NEW);
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
    let cut = written.replace(Extent::between(60, u64::MAX));
    assert!(written.on_verifier(NEW));
    let (_, piece) = written.poll_send().unwrap();
    assert_eq!(piece.part(), Extent::new(0, 60));
    written.on_stored(1, 0, 60, NEW);
    assert!(written.is_stored());
    written.on_not_replaced(cut, Extent::between(60, u64::MAX));
    let (_, piece) = written.poll_send().unwrap();
    assert_eq!(
        piece.part(),
        Extent::new(60, 40),
        "the truncation was refused"
    );
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
            written.push(append, PIECE_BYTES_MAX);
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

/// A request under way: where it goes, what it brings, and whether a commit follows in it.
#[derive(Clone, Debug)]
struct Request {
    piece: Option<(u64, usize, Vec<u64>)>,
    commit: Option<Covered>,
}

/// A server with a volatile and a durable state. A byte is the number of the write that made it.
struct Model {
    written: Written,
    /// What a program reads: every write in the order of the calls.
    wanted: [u64; SPACE],
    cache: [u64; SPACE],
    disk: [u64; SPACE],
    /// What fsync(2) has promised.
    promised: [u64; SPACE],
    /// Calls of fsync(2) that wait: for which pieces, and what they will promise.
    waiting: Vec<(Vec<u64>, [u64; SPACE])>,
    verifier: u8,
    line: Vec<Request>,
    writes: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            written: Written::default(),
            wanted: [0; SPACE],
            cache: [0; SPACE],
            disk: [0; SPACE],
            promised: [0; SPACE],
            waiting: Vec::new(),
            verifier: 1,
            line: Vec::new(),
            writes: 0,
        }
    }

    fn verifier(&self) -> WriteVerifier {
        WriteVerifier([self.verifier; 16])
    }

    fn write(&mut self, offset: usize, len: usize) {
        let end = (offset + len).min(SPACE);
        self.writes += 1;
        self.wanted[offset..end].fill(self.writes);
        let data = Bytes::from(vec![u8::try_from(self.writes).unwrap(); end - offset]);
        self.written
            .push(write(offset as u64, data), PIECE_BYTES_MAX);
        self.written.seal();
    }

    fn send(&mut self, with_commit: bool) {
        if with_commit {
            self.waiting.push((self.written.ids(), self.wanted));
        }
        let covered = self.written.stored();
        let commit_alone = || Request {
            piece: None,
            commit: Some(covered),
        };
        let request = match self.written.poll_send() {
            Some((id, piece)) => {
                let data = piece.part_data();
                let data = data.iter().map(|byte| u64::from(*byte)).collect();
                let place = usize::try_from(piece.place()).unwrap();
                Request {
                    piece: Some((id, place, data)),
                    commit: with_commit.then(|| covered.with(id)),
                }
            }
            None if with_commit => commit_alone(),
            None => return,
        };
        self.line.push(request);
    }

    /// The server carries one out.
    fn execute(&mut self, index: usize, heard: bool) {
        let Some(at) = index.checked_rem(self.line.len()) else {
            return;
        };
        let request = self.line[at].clone();
        if let Some((_, offset, data)) = &request.piece {
            self.cache[*offset..offset + data.len()].copy_from_slice(data);
        }
        if request.commit.is_some() {
            self.disk = self.cache;
        }
        if heard {
            self.line.remove(at);
            self.answer(&request);
        }
    }

    fn answer(&mut self, request: &Request) {
        let verifier = self.verifier();
        if let Some((id, offset, data)) = &request.piece {
            let (offset, bytes) = (*offset as u64, data.len() as u64);
            self.written.on_stored(*id, offset, bytes, verifier);
        }
        if let Some(covered) = request.commit {
            self.written.on_committed(covered, verifier);
        }
        let (written, promised) = (&self.written, &mut self.promised);
        self.waiting.retain(|(pieces, state)| {
            let done = written.has_none_of(pieces);
            if done {
                for (promised, wanted) in promised.iter_mut().zip(state) {
                    *promised = (*promised).max(*wanted);
                }
            }
            !done
        });
        self.check();
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
        if told {
            self.written.on_verifier(self.verifier());
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
        for _ in 0..10_000 {
            if self.written.is_empty() && self.line.is_empty() {
                break;
            }
            self.send(false);
            self.send(true);
            self.execute(0, true);
        }
        assert!(self.written.is_empty());
        self.disk = self.cache;
        assert_eq!(self.disk, self.wanted);
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_every_byte_ends_as_the_last_write_made_it(
        steps in prop::collection::vec((0..8u8, any::<u64>()), 1..120)
    ) {
        let mut model = Model::new();
        for (kind, value) in steps {
            let number = usize::try_from(value % 1009).unwrap();
            match kind {
                0 | 1 if model.writes < 250 => model.write(number % SPACE, 1 + number % 17),
                2 | 3 => model.send(value % 3 == 0),
                4 => model.execute(number, false),
                5 | 6 => model.execute(number, true),
                7 if value % 4 == 0 && model.verifier < 250 => {
                    model.lose_power(value >> 8, value % 8 == 0);
                }
                _ => {}
            }
        }
        model.finish();
    }
}
