//! Data that has been written here: gathered, on its way, at the server, durable.
//!
//! ```text
//! write(2) -> gathered -> Waiting -> Sent -> Stored -> durable (gone from here)
//!                            ^                  |
//!                            +---- the server's write verifier has changed before the commit
//! ```
//!
//! Small adjoining writes are gathered into one piece (`gathering`). Pieces that overlap are never
//! on the line at the same time, because the line may carry them in any order: the later one waits.
//! A piece is kept until a commit under the same verifier covers it, so that a server whose machine
//! went down gets it again.
//!
//! What is sent again must not undo what came after it. So a piece that waits again loses what
//! later pieces have stored meanwhile, and what a truncation, a hole or a copy has replaced. These
//! changes themselves cannot be sent again: if one may be lost, whoever syncs is told.
//!
//! A piece may be lost while such a change of it is under way. Then neither is at the server, and
//! the piece cannot be sent before the outcome is known: it is [`PieceState::Held`], and whoever
//! syncs waits.
//!
//! Where contents lie at several servers, the others still have what one has lost, and somebody
//! reads there. So the last one of what was lost there goes first ([`Order`]).
//!
//! A commit covers what was stored before it was sent, and what it was sent behind: pieces under
//! way whose requests it names ([`Written::behind`]). Of these it covers what is stored in the end,
//! by the very sending that it names: what was sent once more may have come after it.

mod contents;
mod ends;
mod gathering;
mod piece;

pub use gathering::Cut;
pub use piece::{MemoryShare, Piece, PieceState, Write};

use super::Errors;
use base::{Attributes, Extent, FsError, OpenId, Principal, RequestId, WriteVerifier};
use gathering::Gathering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a commit that is sent now will cover; given by [`Written::stored`], [`Written::with`] and
/// [`Written::behind`].
#[derive(Clone, Debug)]
pub struct Covered {
    /// Pieces that came to the server up to this one.
    through: u64,
    /// And these, in order, with the sendings that run before the commit.
    before: Vec<(u64, u64)>,
}

impl Covered {
    fn covers(&self, id: u64, piece: &Piece) -> bool {
        let PieceState::Stored(order) = piece.state else {
            return false;
        };
        order <= self.through || self.runs_before(id, piece)
    }

    fn runs_before(&self, id: u64, piece: &Piece) -> bool {
        let found = self.before.binary_search_by_key(&id, |(id, _)| *id);
        found.is_ok_and(|place| self.before[place].1 == piece.sending)
    }
}

/// A commit that can be sent now, though pieces are under way; given by [`Written::behind`].
#[derive(Clone, Debug)]
pub struct Behind {
    /// The requests that must run before it.
    pub requests: Vec<RequestId>,
    /// What it covers then.
    pub covered: Covered,
}

/// Parts of stored pieces that a change under way replaces; given by [`Written::replace`] and to be
/// given back to [`Written::on_replaced`], whatever becomes of the change.
#[must_use]
#[derive(Debug)]
pub struct Replacement {
    parts: Vec<(u64, Extent)>,
}

/// In which order pieces are sent again that overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they were written.
    #[default]
    OldestFirst,
    /// The other way round: of the earlier ones goes only what the later ones leave, and nobody
    /// sees anything that was replaced already.
    NewestFirst,
}

/// One file's written data.
#[derive(Debug, Default)]
pub struct Written {
    order: Order,
    gathering: Option<Gathering>,
    pieces: BTreeMap<u64, Piece>,
    /// Id of the last piece; the first one has 1.
    next: u64,
    /// How often a piece was sent.
    sendings: u64,
    /// How many pieces have come to the server.
    arrivals: u64,
    /// Under which verifier the server has what it has.
    verifier: Option<WriteVerifier>,
    /// How often it has changed.
    losses: u64,
    /// When the last change came to the server that is no piece and not durable: a truncation, a
    /// hole, a copy; among the arrivals of pieces.
    changed: Option<u64>,
    /// Pieces that the server had and may have lost, and has not got again.
    lost: BTreeSet<u64>,
    /// What was lost, and who has been told.
    pub errors: Errors,
    /// Some of what was written is lost, and others are still on their way.
    has_failed: bool,
    /// A commit is under way.
    pub committing: bool,
    /// Somebody will soon send what is gathered.
    pub timer_set: bool,
    /// The latest state of the file that a reply to a write has told, and the recalls that had been
    /// seen when that write was queued. Replies overtake each other.
    newest: Option<(Attributes, u64)>,
}

impl Written {
    /// Nothing is written; what is lost will be sent again in this order.
    #[must_use]
    pub fn new(order: Order) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }

    /// Whether everything written is durable or reported lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gathering.is_none() && self.pieces.is_empty() && self.changed.is_none()
    }

    /// Whether something is not durable, or its loss not told.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.is_empty() || self.errors.is_untold()
    }

    /// Whether the server has something that is not durable.
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.changed.is_some() || self.pieces.values().any(Piece::is_stored)
    }

    /// Whether everything written is at the server, durable or not.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.gathering.is_none() && self.pieces.values().all(Piece::is_stored)
    }

    /// Whether all but one piece is at the server, and that one is `who`'s and can be sent.
    #[must_use]
    pub fn has_one_waiting(&self, who: &Principal) -> bool {
        let mut rest = self.pieces.values().filter(|piece| !piece.is_stored());
        let (first, second) = (rest.next(), rest.next());
        let ready = |piece: &Piece| piece.state == PieceState::Waiting && piece.who == *who;
        self.gathering.is_none() && second.is_none() && first.is_some_and(ready)
    }

    /// Pieces that are not at the server yet.
    #[must_use]
    pub fn unstored(&self) -> Vec<u64> {
        let unstored = self.pieces.iter().filter(|(_, piece)| !piece.is_stored());
        unstored.map(|(id, _)| *id).collect()
    }

    /// How many of these pieces, in order, are not at the server and not given up.
    #[must_use]
    pub fn unstored_of(&self, ids: &[u64]) -> usize {
        let is_unstored = |id: &&u64| self.pieces.get(id).is_some_and(|piece| !piece.is_stored());
        ids.iter().filter(is_unstored).count()
    }

    /// A number that changes whenever something more has come to the server.
    #[must_use]
    pub const fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Whether bytes of `extent` are not at the server yet.
    #[must_use]
    pub fn is_unstored_in(&self, extent: Extent) -> bool {
        let gathering = self.gathering.as_ref().is_some_and(|gathering| {
            Extent::new(gathering.offset, gathering.data.len() as u64).overlaps(extent)
        });
        gathering
            || self
                .pieces
                .values()
                .any(|piece| !piece.is_stored() && piece.extent.overlaps(extent))
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
        self.pieces
            .values()
            .filter(|piece| piece.is_stored())
            .map(|piece| piece.extent.len)
            .sum()
    }

    fn add(&mut self, write: Write) {
        self.next += 1;
        self.pieces.insert(self.next, Piece::new(write));
    }

    /// The next piece to be sent, marked as sent: waiting, and overlapped by none that is under way
    /// and no earlier one that waits; of what is lost, by no later one, if that is the order.
    /// Appends go one at a time, and after all that was written before them, since the server
    /// decides where each lands; what was written beyond one goes after it.
    pub fn poll_send(&mut self) -> Option<(u64, &Piece)> {
        let id = match self.order {
            Order::OldestFirst => self.next_in_order(),
            Order::NewestFirst => self.next_lost().or_else(|| self.next_in_order()),
        }?;
        let again = self.lost.contains(&id);
        self.sendings += 1;
        let piece = self.pieces.get_mut(&id).expect("found above");
        piece.again = again;
        piece.state = PieceState::Sent(piece.part());
        piece.sending = self.sendings;
        piece.request = None;
        Some((id, piece))
    }

    fn under_way(&self) -> impl Iterator<Item = &Piece> {
        let under_way = |piece: &&Piece| matches!(piece.state, PieceState::Sent(_));
        self.pieces.values().filter(under_way)
    }

    fn next_in_order(&self) -> Option<u64> {
        let mut append_out = !self.lost.is_empty();
        let note = |piece: &Piece, append_out: &mut bool| {
            *append_out |= piece.append;
            match piece.append {
                // Where it lands depends on all that is beyond its place before it comes.
                true => Extent::between(piece.extent.offset, u64::MAX),
                false => piece.extent,
            }
        };
        let mut blocked: Vec<Extent> = self
            .under_way()
            .map(|piece| note(piece, &mut append_out))
            .collect();
        // Whether all before it is at the server. What came later does not hold an append up.
        let mut is_first = true;
        for (id, piece) in &self.pieces {
            if piece.state != PieceState::Waiting {
                is_first &= !matches!(piece.state, PieceState::Sent(_));
                continue;
            }
            let overlaps = |extent: &Extent| extent.overlaps(piece.extent);
            let must_wait = match self.lost.contains(id) {
                true => self.order == Order::NewestFirst,
                false => piece.append && (append_out || !is_first),
            };
            if !must_wait && !blocked.iter().any(overlaps) {
                return Some(*id);
            }
            is_first = false;
            blocked.push(note(piece, &mut append_out));
        }
        None
    }

    /// The last of the lost ones that can go. Appends that wait come after all of them.
    fn next_lost(&self) -> Option<u64> {
        let is_first = |(id, piece): &(&u64, &Piece)| {
            piece.state == PieceState::Waiting && !piece.append && !self.lost.contains(id)
        };
        let first = self.pieces.iter().filter(is_first);
        let first: Vec<(u64, Extent)> = first.map(|(id, piece)| (*id, piece.extent)).collect();
        let mut blocked: Vec<Extent> = self.under_way().map(|piece| piece.extent).collect();
        for id in self.lost.iter().rev() {
            let Some(piece) = self.pieces.get(id) else {
                continue;
            };
            if piece.state != PieceState::Waiting {
                continue;
            }
            let overlaps = |extent: &Extent| extent.overlaps(piece.extent);
            let waits = |(other, extent): &(u64, Extent)| other < id && overlaps(extent);
            if !first.iter().any(waits) && !blocked.iter().any(overlaps) {
                return Some(*id);
            }
            blocked.push(piece.extent);
        }
        None
    }

    /// The piece that [`Self::poll_send`] has given goes by this request.
    pub fn on_requested(&mut self, id: u64, request: Option<RequestId>) {
        if let Some(piece) = self.pieces.get_mut(&id) {
            piece.request = request;
        }
    }

    /// The server has stored `bytes` more of a piece, from `offset` of the file on. If that is not
    /// all, the rest is sent again: either it fits now, or the server says why not. Whether it has
    /// all of it by that.
    pub fn on_stored(&mut self, id: u64, offset: u64, bytes: u64, verifier: WriteVerifier) -> bool {
        self.on_verifier(verifier);
        let is_moved = self.is_moved(id, offset);
        let Some(piece) = self.pieces.get_mut(&id) else {
            return false;
        };
        let PieceState::Sent(part) = piece.state else {
            return false;
        };
        piece.state = PieceState::Waiting;
        if is_moved && piece.in_doubt && offset < piece.extent.offset {
            // An append has landed where the server had lost an earlier piece. It is written once
            // more, to the place that was expected.
            piece.append = false;
            piece.on_lost();
            self.lost.insert(id);
            return false;
        }
        if is_moved {
            piece.extent.offset = offset.saturating_sub(part.offset);
            if part.offset > 0 {
                // Somebody else's append has come between its parts. What lies before is not where
                // this piece now says, so it is never sent again; and who wrote it in one is told.
                piece.replaced.insert(Extent::new(0, part.offset));
                self.errors.record(FsError::Io);
            }
        }
        let part = Extent::new(part.offset, part.len.min(bytes));
        piece.left.remove(part);
        let stored = Extent::new(piece.extent.offset + part.offset, part.len);
        self.settle(id);
        self.supersede(id, stored);
        self.pieces.get(&id).is_some_and(Piece::is_stored)
    }

    /// What piece `id` has put into `stored` of the file, earlier pieces need not put there again.
    fn supersede(&mut self, id: u64, stored: Extent) {
        let earlier: Vec<u64> = self.lost.range(..id).copied().collect();
        for id in earlier {
            if let Some(piece) = self.pieces.get_mut(&id)
                && piece.state == PieceState::Waiting
            {
                piece.left.remove(piece.part_in(stored));
                // Who covers the sendings that it had does not cover this.
                piece.sending = 0;
                self.settle(id);
            }
        }
    }

    /// A piece of which nothing is left to be sent is stored, but for what a change under way
    /// replaces.
    fn settle(&mut self, id: u64) {
        if let Some(piece) = self.pieces.get_mut(&id)
            && piece.left.is_empty()
        {
            self.arrivals += 1;
            piece.state = match piece.changing.is_empty() {
                true => PieceState::Stored(self.arrivals),
                false => PieceState::Held,
            };
            self.lost.remove(&id);
        }
    }

    /// The server has no room for a piece that is under way. Whether it may be tried again: once.
    /// Until [`Self::try_again`] it counts as under way, so that nothing overtakes it, but in no
    /// request.
    pub fn on_no_room(&mut self, id: u64) -> bool {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return false;
        };
        if !matches!(piece.state, PieceState::Sent(_)) || piece.last_try {
            return false;
        }
        piece.last_try = true;
        piece.sending = 0;
        piece.request = None;
        true
    }

    /// The server has put off a piece that is under way, for others to be answered first. Until
    /// [`Self::try_again`] it counts as with [`Self::on_no_room`], but as often as that happens.
    /// After how long it is to be sent again, if it is still wanted.
    pub fn on_put_off(&mut self, id: u64) -> Option<Duration> {
        let piece = self.pieces.get_mut(&id);
        let piece = piece.filter(|piece| matches!(piece.state, PieceState::Sent(_)))?;
        piece.sending = 0;
        piece.request = None;
        Some(piece.put_off.step())
    }

    /// There may be room now for a piece of [`Self::on_no_room`].
    pub fn try_again(&mut self, id: u64) {
        let piece = self.pieces.get_mut(&id);
        if let Some(piece) = piece.filter(|piece| matches!(piece.state, PieceState::Sent(_))) {
            piece.state = PieceState::Waiting;
        }
    }

    /// Who wrote a piece, and through which open.
    #[must_use]
    pub fn whose(&self, id: u64) -> Option<(Principal, Option<OpenId>)> {
        let piece = self.pieces.get(&id)?;
        Some((piece.who.clone(), piece.open))
    }

    /// A piece could not be stored; its data is lost and the error will be reported.
    pub fn on_failed(&mut self, id: u64, error: FsError) {
        self.forget(id);
        self.errors.record(error);
        self.has_failed = true;
    }

    /// Whether some of what was written is lost, and all the rest at the server: true once.
    pub fn take_failure(&mut self) -> bool {
        let is_over = self.has_failed && self.is_stored();
        self.has_failed &= !is_over;
        if is_over {
            // The server is asked anew. What follows may be of the same time as this.
            self.newest = None;
        }
        is_over
    }

    fn forget(&mut self, id: u64) {
        self.pieces.remove(&id);
        self.lost.remove(&id);
    }

    /// There is no such file at the server, and there will be none: nothing is kept for it.
    pub fn on_refused(&mut self) {
        if !self.is_empty() {
            self.gathering = None;
            self.pieces.clear();
            self.lost.clear();
            self.errors.record(FsError::Stale);
        }
    }

    /// The server says its write verifier. If it is another one, what was stored and not committed
    /// is to be sent again, but for what has been replaced. An append that was stored keeps its
    /// place. Whether there is anything to be sent again.
    pub fn on_verifier(&mut self, verifier: WriteVerifier) -> bool {
        let before = self.verifier.replace(verifier);
        if before.is_some_and(|before| before != verifier) {
            self.lose();
        }
        !self.lost.is_empty()
    }

    fn lose(&mut self) {
        self.losses += 1;
        if self.changed.take().is_some() {
            self.errors.record(FsError::Io);
        }
        let mut again = Vec::new();
        for (id, piece) in &mut self.pieces {
            piece.on_lost();
            piece.in_doubt = matches!(piece.state, PieceState::Sent(_));
            if piece.is_stored() || piece.state == PieceState::Held {
                piece.append = false;
                piece.state = PieceState::Waiting;
                piece.sending = 0;
                again.push(*id);
            }
        }
        self.lost.extend(&again);
        for id in again {
            self.settle(id);
        }
    }

    /// Something that is asked for now will replace `extent`, of which everything is stored. `None`
    /// if the server has lost some of it meanwhile: that must be there first, or what is sent again
    /// may come after the change.
    pub fn replace(&mut self, extent: Extent) -> Option<Replacement> {
        let is_held = |piece: &Piece| piece.state == PieceState::Held;
        if !self.lost.is_empty() || self.pieces.values().any(is_held) {
            return None;
        }
        let mut parts = Vec::new();
        for (id, piece) in self.pieces.iter_mut().filter(|(_, p)| p.is_stored()) {
            let mut known = piece.replaced.clone();
            piece.changing.iter().for_each(|part| known.insert(part));
            for part in known.missing(piece.part_in(extent)) {
                piece.changing.insert(part);
                parts.push((*id, part));
            }
        }
        Some(Replacement { parts })
    }

    /// The server has replaced everything that it had, by a change that came without warning and
    /// may be durable already.
    pub fn on_emptied(&mut self, verifier: WriteVerifier, is_durable: bool) {
        if !self.is_stored() {
            // What is on its way, or on its way again, may land in the emptied file.
            self.errors.record(FsError::Io);
        }
        for piece in self.pieces.values_mut().filter(|piece| piece.is_stored()) {
            piece.replaced.insert(Extent::new(0, piece.extent.len));
        }
        match is_durable {
            true => drop(self.on_verifier(verifier)),
            false => self.on_changed(verifier),
        }
    }

    /// Whether the server had something that it may have lost, and has not got again.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// These pieces, in order.
    #[must_use]
    pub fn lost(&self) -> Vec<u64> {
        self.lost.iter().copied().collect()
    }

    /// Whether the server has not got one of these again, in order.
    #[must_use]
    pub fn has_lost_of(&self, ids: &[u64]) -> bool {
        ids.iter().any(|id| self.lost.contains(id))
    }

    /// How often the server may have lost something. If it is another number than before a step
    /// that depended on what was stored, the step has to be repeated.
    #[must_use]
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// A change has come to the server that is no written data, and is to be made durable.
    pub fn on_changed(&mut self, verifier: WriteVerifier) {
        self.on_verifier(verifier);
        self.arrivals += 1;
        self.changed = Some(self.arrivals);
    }

    /// A change is over, and has replaced everything but `kept`: that the server may have to get
    /// again. What the change says of the server is told before, by [`Self::on_changed`] or
    /// [`Self::on_verifier`].
    pub fn on_replaced(&mut self, replacement: Replacement, kept: Extent) {
        for (id, part) in replacement.parts {
            let later = self.pieces.range(id + 1..).filter(|(_, p)| p.is_stored());
            let later: Vec<Extent> = later.map(|(_, piece)| piece.extent).collect();
            let Some(piece) = self.pieces.get_mut(&id) else {
                continue;
            };
            let kept = part.intersection(piece.part_in(kept));
            let kept = piece.replaced.missing(kept);
            piece.changing.remove(part);
            piece.replaced.insert(part);
            for kept in &kept {
                piece.replaced.remove(*kept);
            }
            if piece.is_stored() {
                continue;
            }
            // It was lost meanwhile. A commit that ran before the change covers nothing of it.
            piece.sending = 0;
            for kept in kept {
                piece.left.insert(kept);
            }
            for extent in later {
                piece.left.remove(piece.part_in(extent));
            }
            if piece.state == PieceState::Held {
                piece.state = PieceState::Waiting;
                self.lost.insert(id);
                self.settle(id);
            }
        }
    }

    /// What a commit that is sent now will cover: all that is stored. Pass it to
    /// [`Self::on_committed`].
    #[must_use]
    pub const fn stored(&self) -> Covered {
        Covered {
            through: self.arrivals,
            before: Vec::new(),
        }
    }

    /// As [`Self::stored`], of a commit that goes in the same request as piece `id`, behind it.
    #[must_use]
    pub fn with(&self, id: u64) -> Covered {
        let sending = self.pieces.get(&id).map(|piece| (id, piece.sending));
        Covered {
            before: sending.into_iter().collect(),
            ..self.stored()
        }
    }

    /// As [`Self::stored`], of a commit that is to cover all of `wanted`, in order: it can be sent
    /// if each of these is stored or under way, in at most `requests_max` requests that are known.
    #[must_use]
    pub fn behind(&self, wanted: &[u64], requests_max: usize) -> Option<Behind> {
        let mut requests = Vec::new();
        let mut covered = self.stored();
        for id in wanted {
            let Some(piece) = self.pieces.get(id).filter(|piece| !piece.is_stored()) else {
                continue;
            };
            if piece.state == PieceState::Waiting || requests.len() == requests_max {
                return None;
            }
            requests.push(piece.request?);
            covered.before.push((*id, piece.sending));
        }
        Some(Behind { requests, covered })
    }

    /// Whether all that a commit was sent behind has been answered: before, it is not known what
    /// the commit covers.
    #[must_use]
    pub fn is_heard(&self, covered: &Covered) -> bool {
        let is_under_way = |(id, _): &(u64, u64)| {
            let piece = self.pieces.get(id);
            piece.is_some_and(|piece| {
                matches!(piece.state, PieceState::Sent(_)) && covered.runs_before(*id, piece)
            })
        };
        !covered.before.iter().any(is_under_way)
    }

    /// A commit has succeeded under `verifier`: what it covered and was stored under the same is
    /// durable.
    pub fn on_committed(&mut self, covered: &Covered, verifier: WriteVerifier) {
        // What is lost by that is not covered any more.
        self.on_verifier(verifier);
        self.drop_covered(covered);
    }

    /// A commit has failed: what it covered is in doubt for good.
    pub fn on_commit_failed(&mut self, covered: &Covered, error: FsError) {
        self.errors.record(error);
        self.drop_covered(covered);
    }

    fn drop_covered(&mut self, covered: &Covered) {
        let mut durable = Vec::new();
        self.pieces.retain(|id, piece| {
            let is_covered = covered.covers(*id, piece);
            if is_covered && self.losses > 0 {
                durable.push((*id, piece.extent));
            }
            !is_covered
        });
        // Only after a loss an earlier piece comes to the server later.
        for (id, extent) in durable {
            for (_, earlier) in self.pieces.range_mut(..id) {
                let part = earlier.part_in(extent);
                earlier.replaced.insert(part);
            }
        }
        self.changed = self.changed.filter(|order| *order > covered.through);
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
}

#[cfg(test)]
mod tests;
