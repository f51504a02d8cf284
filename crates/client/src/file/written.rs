//! Data that has been written here: gathered, on its way, at the server, durable.
//!
//! ```text
//! write(2) -> gathered -> Waiting -> Sent -> Stored(boot) -> durable (gone from here)
//!                            ^                  |
//!                            +---- the server's boot has changed before the commit
//! ```
//!
//! Small adjoining writes are gathered into one piece. Pieces that overlap are never on the line at
//! the same time, because the line may carry them in any order: the later one waits. A piece is
//! kept until a commit of the same boot covers it, so that a server that was killed gets it again.

use super::Errors;
use base::{Attributes, BootId, Extent, FsError, OpenId, Principal};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Largest piece: the largest payload of a frame.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// A share of the client's memory, held by every piece that keeps bytes of it.
pub type MemoryShare = Arc<OwnedSemaphorePermit>;

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceState {
    /// An earlier piece that overlaps it is not at the server yet.
    Waiting,
    /// On its way.
    Sent,
    /// At the server of this boot, not durable.
    Stored(BootId),
}

/// Written data that is sent as one.
#[derive(Debug)]
pub struct Piece {
    /// Where it goes; for an append, where it was expected to land.
    pub extent: Extent,
    /// The bytes.
    pub data: Bytes,
    /// Who wrote it.
    pub who: Principal,
    /// Through which open.
    pub open: Option<OpenId>,
    /// Whether it goes to the end, wherever that is.
    pub append: bool,
    /// Where it is.
    pub state: PieceState,
    /// Bytes from its start that are stored already: the server took only these.
    pub done: usize,
    /// What it holds of the client's memory; goes with it.
    pub permits: Vec<MemoryShare>,
}

/// What one call writes.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where it begins; for an append, where it is expected to land.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
    /// Who writes.
    pub who: Principal,
    /// Through which open.
    pub open: Option<OpenId>,
    /// Whether it goes to the end, wherever that is.
    pub append: bool,
    /// What it holds of the client's memory.
    pub permits: Vec<MemoryShare>,
}

#[derive(Debug)]
struct Gathering {
    offset: u64,
    data: BytesMut,
    who: Principal,
    open: Option<OpenId>,
    append: bool,
    permits: Vec<MemoryShare>,
}

/// One file's written data.
#[derive(Debug, Default)]
pub struct Written {
    gathering: Option<Gathering>,
    pieces: BTreeMap<u64, Piece>,
    /// Id of the last piece; the first one has 1.
    next: u64,
    /// What was lost, and who has been told.
    pub errors: Errors,
    /// A commit is under way.
    pub committing: bool,
    /// Somebody will soon send what is gathered.
    pub timer_set: bool,
    /// The latest state of the file that a reply to a write has told, and the recalls that had been
    /// seen when that write was queued. Replies overtake each other.
    newest: Option<(Attributes, u64)>,
}

impl Written {
    /// Whether everything written is durable or reported lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gathering.is_none() && self.pieces.is_empty()
    }

    /// Whether everything written is at the server, durable or not.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.gathering.is_none()
            && self
                .pieces
                .values()
                .all(|piece| matches!(piece.state, PieceState::Stored(_)))
    }

    /// Whether all but one piece is at the server, and that one is `who`'s and can be sent.
    #[must_use]
    pub fn has_one_waiting(&self, who: &Principal) -> bool {
        let stored = |piece: &&Piece| matches!(piece.state, PieceState::Stored(_));
        let mut rest = self.pieces.values().filter(|piece| !stored(piece));
        let (first, second) = (rest.next(), rest.next());
        let ready = |piece: &Piece| piece.state == PieceState::Waiting && piece.who == *who;
        self.gathering.is_none() && second.is_none() && first.is_some_and(ready)
    }

    /// Whether bytes of `extent` are not at the server yet.
    #[must_use]
    pub fn is_unstored_in(&self, extent: Extent) -> bool {
        let gathering = self.gathering.as_ref().is_some_and(|gathering| {
            Extent::new(gathering.offset, gathering.data.len() as u64).overlaps(extent)
        });
        gathering
            || self.pieces.values().any(|piece| {
                !matches!(piece.state, PieceState::Stored(_)) && piece.extent.overlaps(extent)
            })
    }

    /// End of the data that the server may not know of yet.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        // No piece has this id.
        self.end_besides(0)
    }

    /// As [`Self::end`], when the server knows piece `id`.
    #[must_use]
    pub fn end_besides(&self, id: u64) -> Option<u64> {
        let gathered = self
            .gathering
            .as_ref()
            .map(|g| g.offset + g.data.len() as u64);
        let pieces = self
            .pieces
            .iter()
            .filter(|(other, piece)| **other != id && !matches!(piece.state, PieceState::Stored(_)))
            .map(|(_, piece)| piece.extent.end());
        pieces.chain(gathered).max()
    }

    /// Whether an append is not at the server yet: where it lands, and how long the file then is,
    /// is a guess.
    #[must_use]
    pub fn is_appending(&self) -> bool {
        let unstored = |piece: &Piece| !matches!(piece.state, PieceState::Stored(_));
        self.gathering.as_ref().is_some_and(|g| g.append)
            || self
                .pieces
                .values()
                .any(|piece| piece.append && unstored(piece))
    }

    /// Bytes here that are not durable.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let gathered = self.gathering.as_ref().map_or(0, |g| g.data.len() as u64);
        gathered
            + self
                .pieces
                .values()
                .map(|piece| piece.extent.len)
                .sum::<u64>()
    }

    /// Bytes that are not at the server yet.
    #[must_use]
    pub fn unstored_bytes(&self) -> u64 {
        self.bytes() - self.stored_bytes()
    }

    /// Bytes at the server that are not durable.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        let stored = |piece: &&Piece| matches!(piece.state, PieceState::Stored(_));
        self.pieces
            .values()
            .filter(stored)
            .map(|piece| piece.extent.len)
            .sum()
    }

    /// Takes data from a write. A large write becomes pieces of at most `piece_bytes_max`, but for
    /// an append, whose bytes land together. Returns whether something is gathered that a timer
    /// should send.
    pub fn push(&mut self, write: Write, piece_bytes_max: usize) -> bool {
        let full_bytes = piece_bytes_max.min(PIECE_BYTES_MAX / 2);
        let fits = self.gathering.as_ref().is_some_and(|gathering| {
            gathering.offset + gathering.data.len() as u64 == write.offset
                && gathering.open == write.open
                && gathering.append == write.append
                && gathering.who == write.who
                && gathering.data.len() + write.data.len() <= PIECE_BYTES_MAX
        });
        if !fits {
            self.seal();
        }
        match &mut self.gathering {
            Some(gathering) => {
                gathering.data.extend_from_slice(&write.data);
                gathering.permits.extend(write.permits);
            }
            None if write.data.len() >= full_bytes => {
                self.add_parts(write, piece_bytes_max);
                return false;
            }
            None => {
                let mut data = BytesMut::with_capacity(write.data.len().max(64 << 10));
                data.extend_from_slice(&write.data);
                self.gathering = Some(Gathering {
                    offset: write.offset,
                    data,
                    who: write.who,
                    open: write.open,
                    append: write.append,
                    permits: write.permits,
                });
            }
        }
        let full = |gathering: &Gathering| gathering.data.len() >= full_bytes;
        if self.gathering.as_ref().is_some_and(full) {
            self.seal();
        }
        self.gathering.is_some()
    }

    /// Makes what is gathered a piece.
    pub fn seal(&mut self) {
        if let Some(Gathering {
            offset,
            data,
            who,
            open,
            append,
            permits,
        }) = self.gathering.take()
        {
            self.add(Write {
                offset,
                data: data.freeze(),
                who,
                open,
                append,
                permits,
            });
        }
    }

    fn add_parts(&mut self, mut rest: Write, piece_bytes_max: usize) {
        while !rest.append && rest.data.len() > piece_bytes_max {
            let part = Write {
                data: rest.data.split_to(piece_bytes_max),
                ..rest.clone()
            };
            rest.offset += part.data.len() as u64;
            self.add(part);
        }
        self.add(rest);
    }

    fn add(&mut self, write: Write) {
        let piece = Piece {
            extent: Extent::new(write.offset, write.data.len() as u64),
            data: write.data,
            who: write.who,
            open: write.open,
            append: write.append,
            state: PieceState::Waiting,
            done: 0,
            permits: write.permits,
        };
        self.next += 1;
        self.pieces.insert(self.next, piece);
    }

    /// The next piece to be sent, marked as sent: waiting, and overlapped by no earlier one that is
    /// not at the server. Appends go one at a time, since the server decides where each lands.
    pub fn poll_send(&mut self) -> Option<(u64, &Piece)> {
        let mut blocked: Vec<Extent> = Vec::new();
        let mut append_out = false;
        let mut found = None;
        for (id, piece) in &self.pieces {
            match piece.state {
                PieceState::Stored(_) => {}
                PieceState::Sent => {
                    blocked.push(piece.extent);
                    append_out |= piece.append;
                }
                PieceState::Waiting => {
                    let free = !blocked.iter().any(|extent| extent.overlaps(piece.extent));
                    if free && !(piece.append && append_out) {
                        found = Some(*id);
                        break;
                    }
                    blocked.push(piece.extent);
                    append_out |= piece.append;
                }
            }
        }
        let id = found?;
        let piece = self.pieces.get_mut(&id).expect("found above");
        piece.state = PieceState::Sent;
        Some((id, piece))
    }

    /// The server has stored `bytes` more of a piece. If that is not all, the rest is sent again:
    /// either it fits now, or the server says why not.
    pub fn on_stored(&mut self, id: u64, bytes: u64, boot: BootId) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return;
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        piece.done = piece.done.saturating_add(bytes).min(piece.data.len());
        piece.state = if piece.done == piece.data.len() {
            PieceState::Stored(boot)
        } else {
            PieceState::Waiting
        };
    }

    /// A reply to a write tells the state of the file.
    pub fn on_attributes(&mut self, attributes: Attributes, recalls_seen: u64) {
        let age = |attributes: &Attributes| (attributes.changed, attributes.size);
        let newer = |(known, _): &(Attributes, u64)| age(&attributes) >= age(known);
        if self.newest.as_ref().is_none_or(newer) {
            self.newest = Some((attributes, recalls_seen));
        }
    }

    /// The state of the file after all of its writes, if a reply to piece `id`, of which the server
    /// took `bytes`, is the last one that is waited for.
    pub fn take_settled(&mut self, id: u64, bytes: u64) -> Option<(Attributes, u64)> {
        let is_last = self.gathering.is_none()
            && self.pieces.iter().all(|(other, piece)| {
                let rest = piece.data.len() - piece.done;
                matches!(piece.state, PieceState::Stored(_))
                    || (*other == id && rest as u64 == bytes)
            });
        if is_last { self.newest.take() } else { None }
    }

    /// A piece could not be stored; its data is lost and the error will be reported.
    pub fn on_failed(&mut self, id: u64, error: FsError) {
        self.pieces.remove(&id);
        self.errors.record(error);
    }

    /// There is no such file at the server, and there will be none: nothing is kept for it.
    pub fn on_refused(&mut self) {
        if !self.is_empty() {
            self.gathering = None;
            self.pieces.clear();
            self.errors.record(FsError::Stale);
        }
    }

    /// The server runs anew: what was stored before and not committed is sent again. An append that
    /// was stored keeps its place.
    pub fn on_boot(&mut self, boot: BootId) -> bool {
        let mut any = false;
        for piece in self.pieces.values_mut() {
            if matches!(piece.state, PieceState::Stored(old) if old != boot) {
                piece.state = PieceState::Waiting;
                piece.append = false;
                piece.done = 0;
                any = true;
            }
        }
        any
    }

    /// Pieces that a commit sent now will cover: all that are stored. Pass the result to
    /// [`Self::on_committed`].
    #[must_use]
    pub fn stored(&self) -> Vec<u64> {
        let stored = |piece: &Piece| matches!(piece.state, PieceState::Stored(_));
        self.pieces
            .iter()
            .filter(|(_, piece)| stored(piece))
            .map(|(id, _)| *id)
            .collect()
    }

    /// A commit in `boot` has succeeded: what it covered and was stored in that boot is durable.
    pub fn on_committed(&mut self, covered: &[u64], boot: BootId) {
        for id in covered {
            if self
                .pieces
                .get(id)
                .is_some_and(|piece| piece.state == PieceState::Stored(boot))
            {
                self.pieces.remove(id);
            }
        }
    }

    /// A commit has failed: what it covered is in doubt for good.
    pub fn on_commit_failed(&mut self, covered: &[u64], error: FsError) {
        self.errors.record(error);
        for id in covered {
            self.pieces.remove(id);
        }
    }

    /// All pieces that are here.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        self.pieces.keys().copied().collect()
    }

    /// Whether these pieces are durable or reported lost.
    #[must_use]
    pub fn has_none_of(&self, ids: &[u64]) -> bool {
        !ids.iter().any(|id| self.pieces.contains_key(id))
    }

    /// Who wrote the oldest piece.
    #[must_use]
    pub fn writer(&self) -> Option<Principal> {
        self.pieces.values().next().map(|piece| piece.who.clone())
    }

    /// Where a piece landed, asked before [`Self::on_stored`]; whether that is elsewhere than
    /// expected (an append).
    pub fn on_moved(&mut self, id: u64, offset: u64) -> bool {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return false;
        };
        let offset = offset.saturating_sub(piece.done as u64);
        let moved = piece.extent.offset != offset;
        piece.extent = Extent::new(offset, piece.extent.len);
        moved
    }

    /// All bytes from 0 on, if they are here without gap and at most `bytes_max`: the contents of a
    /// file created ahead. The pieces are taken out.
    pub fn take_contents(&mut self, bytes_max: usize) -> Option<(Bytes, Vec<MemoryShare>)> {
        self.seal();
        let mut contents = BytesMut::new();
        for piece in self.pieces.values() {
            if piece.extent.offset != contents.len() as u64
                || contents.len() + piece.data.len() > bytes_max
            {
                return None;
            }
            contents.extend_from_slice(&piece.data);
        }
        let permits = std::mem::take(&mut self.pieces)
            .into_values()
            .flat_map(|piece| piece.permits);
        Some((contents.freeze(), permits.collect()))
    }

    /// Contents that reached the server of `boot` by another way; kept until they are durable.
    pub fn add_stored(
        &mut self,
        data: Bytes,
        who: Principal,
        boot: BootId,
        permits: Vec<MemoryShare>,
    ) {
        if data.is_empty() {
            return;
        }
        let extent = Extent::new(0, data.len() as u64);
        let state = PieceState::Stored(boot);
        let piece = Piece {
            extent,
            data,
            who,
            open: None,
            append: false,
            state,
            done: 0,
            permits,
        };
        // Before all that was written since; ids begin at 1, so there is room.
        self.next = self.next.max(1);
        let first = self.pieces.keys().next().copied().unwrap_or(self.next);
        self.pieces.insert(first - 1, piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: BootId = BootId([1; 16]);

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
        written.on_stored(1, 100, BOOT);
        assert_eq!(send_all(&mut written), [(2, Extent::new(50, 100))]);
    }

    #[test]
    fn what_an_old_boot_stored_is_sent_again_in_order() {
        let mut written = Written::default();
        push(&mut written, 0, 100);
        push(&mut written, 50, 100);
        written.seal();
        for id in 1..3 {
            send_all(&mut written);
            written.on_stored(id, 100, BOOT);
        }
        assert!(written.is_stored());
        let new = BootId([2; 16]);
        assert!(written.on_boot(new));
        assert_eq!(send_all(&mut written), [(1, Extent::new(0, 100))]);
        written.on_stored(1, 100, new);
        assert_eq!(send_all(&mut written), [(2, Extent::new(50, 100))]);
        written.on_committed(&[1, 2], BOOT);
        assert!(
            !written.is_empty(),
            "a commit of the old boot covers nothing of the new one"
        );
        written.on_stored(2, 100, new);
        let covered = written.stored();
        written.on_committed(&covered, new);
        assert!(written.is_empty());
    }

    #[test]
    fn what_the_server_did_not_take_is_sent_again() {
        let mut written = Written::default();
        push(&mut written, 0, 100);
        written.seal();
        send_all(&mut written);
        written.on_stored(1, 60, BOOT);
        assert!(!written.is_stored());
        let (id, piece) = written.poll_send().unwrap();
        assert_eq!((id, piece.done), (1, 60));
        written.on_stored(1, 40, BOOT);
        assert!(written.is_stored());
        assert!(written.on_boot(BootId([2; 16])));
        let (_, piece) = written.poll_send().unwrap();
        assert_eq!(piece.done, 0, "a new boot may have nothing of it");
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
        written.on_stored(2, 100, BOOT);
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
}
