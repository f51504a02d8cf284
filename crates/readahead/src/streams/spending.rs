//! How much may be fetched for whom, and what is given up: the part of [`FileStreams`] that
//! decides.

use super::{
    Advice, CREDIT_BYTES_MIN, CREDIT_INITIAL_BYTES, DEPTH_BYTES_MIN, DOUBT_SHARE, Entry, Extent,
    Fetch, FileStreams, HINT_TIME_MAX, HINTED, Line, PAGE_BYTES, PIECE_BYTES_MIN, Stream, Time,
    UNREAD_TIME_MIN, WASTE_SHARE,
};
use std::time::Duration;

/// What streams without proof may have beyond their allowance in runs that follow from jumps which
/// repeat: short runs, each taken for the beginning of a long one, have used up the rest before
/// that is known.
const REGULAR_BYTES: u64 = 512 << 10;

/// What one wrong guess about a whole pattern may cost: two BDP, or the window where the BDP is
/// too small to matter.
fn pipe_bytes(line: &Line) -> u64 {
    line.bdp_bytes().saturating_mul(2).max(line.window_bytes)
}

/// The part of `piece` to ask for when there is room for `room_bytes`. Less than the advised
/// `unit_bytes` is worth a request only for a stream that has none: room for more will come, and
/// what is cut into small requests once stays so, because each makes room for another.
fn fitting(piece: Extent, unit_bytes: u64, room_bytes: u64, has_none: bool) -> Option<Extent> {
    if piece.len <= room_bytes {
        return Some(piece);
    }
    let least_bytes = if has_none {
        PIECE_BYTES_MIN / 2
    } else {
        unit_bytes
    };
    let fits = room_bytes >= least_bytes.max(PAGE_BYTES);
    fits.then(|| Extent::new(piece.offset, room_bytes / PAGE_BYTES * PAGE_BYTES))
}

impl FileStreams {
    /// Bytes that the file may have unread: see the head of `streams`.
    pub(super) fn depth_bytes(&self, line: &Line) -> u64 {
        let link_bytes = line.window_bytes.saturating_mul(3) / 2;
        let reach = (line.rtt + line.rtt_deviation * 2 + line.server_time) * 3 / 2;
        let horizon_bytes = self
            .appetite
            .horizon_bytes(reach)
            .saturating_add(DEPTH_BYTES_MIN);
        link_bytes
            .min(horizon_bytes)
            .max(DEPTH_BYTES_MIN.min(link_bytes))
    }

    /// The next fetch for a hint.
    pub(super) fn poll_hint(&mut self, line: &Line, room_bytes: u64) -> Option<Fetch> {
        let size = self.size.unwrap_or(u64::MAX);
        while let Some(&hint) = self.hints.front() {
            let wanted = hint.intersection(Extent::new(0, size));
            let Some(&gap) = self.covered.missing(wanted).first() else {
                self.hints.pop_front();
                continue;
            };
            let piece = Extent::new(gap.offset, gap.len.min(line.extent_bytes));
            let depth_bytes = line.window_bytes.saturating_mul(3) / 2;
            let left_bytes = depth_bytes.saturating_sub(self.hint_unread_bytes);
            let room_bytes = room_bytes.min(left_bytes);
            let extent = fitting(piece, line.extent_bytes, room_bytes, false)?;
            self.covered.insert(extent);
            self.ledger.insert(extent, HINTED, false);
            self.hint_unread_bytes += extent.len;
            // Each byte once: what nobody came for is not fetched again.
            self.hints[0] = Extent::between(extent.end(), hint.end());
            return Some(Fetch {
                extent,
                stream: HINTED,
            });
        }
        None
    }

    /// The next fetch for one stream, if its credit, its depth, the bounds on waste and the room
    /// allow one.
    pub(super) fn poll_stream(
        &mut self,
        at: usize,
        size: u64,
        turns: u64,
        line: &Line,
        room_bytes: u64,
    ) -> Option<Fetch> {
        let mut depth_bytes = self.depth_bytes(line);
        if self.streams[at].is_steady() {
            // A pattern can end with any run, and all that is unread then is lost; a file that is
            // read through ends where all know it.
            depth_bytes = depth_bytes.min(line.window_bytes / 8 * 9);
        }
        let share_bytes = (depth_bytes / turns).max(2 * PIECE_BYTES_MIN);
        let doubted = self.is_doubted(&self.streams[at]);
        let waste_bytes = self.waste_room_bytes(doubted, 0, line);
        let regular_bytes = self.waste_room_bytes(doubted, REGULAR_BYTES, line);
        let stream = &mut self.streams[at];
        // Above this, credit would only delay the effect of a contradiction.
        stream.credit_bytes = stream
            .credit_bytes
            .min(line.window_bytes.max(CREDIT_BYTES_MIN) * 2);
        let mut depth_bytes = stream.credit_bytes.min(share_bytes);
        if doubted {
            // The small allowance is for all of them.
            let fair_bytes = CREDIT_INITIAL_BYTES / turns;
            depth_bytes = depth_bytes.min(fair_bytes.max(PIECE_BYTES_MIN));
        }
        let room_bytes = depth_bytes
            .saturating_sub(stream.unread_bytes)
            .min(room_bytes);
        if room_bytes.min(regular_bytes) == 0 {
            return None;
        }
        // Many requests within the credit, so that they flow while it grows: over connections in
        // slow start a large one takes several round trips, and the reader waits for its first
        // byte.
        let even_bytes = (stream.credit_bytes / 16).max(PIECE_BYTES_MIN);
        let unit_bytes = line.extent_bytes.min(1 << even_bytes.ilog2());
        stream.extend_plan(depth_bytes.saturating_add(unit_bytes), size, &self.recall);
        let has_none = stream.unread_bytes == 0;
        let fits = |piece: Option<Extent>, waste_bytes: u64| {
            fitting(piece?, unit_bytes, room_bytes.min(waste_bytes), has_none)
        };
        let piece = stream.next_piece(&self.covered, size, depth_bytes, unit_bytes);
        let mut extent = fits(piece, waste_bytes);
        if extent.is_none() && piece.is_some() && doubted {
            let planned = stream.next_planned_piece(&self.covered, unit_bytes);
            extent = fits(planned, regular_bytes);
        }
        let extent = extent?;
        stream.unread_bytes += extent.len;
        self.tally.unread_bytes += extent.len;
        self.doubt_unread_bytes += if doubted { extent.len } else { 0 };
        self.covered.insert(extent);
        self.ledger.insert(extent, stream.id, doubted);
        Some(Fetch {
            extent,
            stream: stream.id,
        })
    }

    fn is_doubted(&self, stream: &Stream) -> bool {
        !stream.is_proven() && self.advice != Some(Advice::Sequential)
    }

    /// Bytes that may still be asked for without breaking a bound, were all unread ones lost.
    /// Streams without proof have `more_bytes` beyond their allowance.
    fn waste_room_bytes(&self, doubted: bool, more_bytes: u64, line: &Line) -> u64 {
        let useful_bytes = self.tally.useful_bytes;
        let allowed_bytes = CREDIT_INITIAL_BYTES
            .saturating_add(useful_bytes / WASTE_SHARE)
            .saturating_add(pipe_bytes(line))
            .saturating_add(self.change_bytes);
        let at_stake_bytes = self.tally.wasted_bytes + self.tally.unread_bytes;
        let room_bytes = allowed_bytes.saturating_sub(at_stake_bytes);
        if !doubted {
            return room_bytes;
        }
        let doubt_allowed_bytes = CREDIT_INITIAL_BYTES + more_bytes + useful_bytes / DOUBT_SHARE;
        let doubt_stake_bytes = self.doubt_wasted_bytes + self.doubt_unread_bytes;
        room_bytes.min(doubt_allowed_bytes.saturating_sub(doubt_stake_bytes))
    }

    /// The application read what was asked for on a guess.
    pub(super) fn count_hit(&mut self, entry: Entry) {
        let bytes = entry.extent.len;
        if entry.stream == HINTED {
            self.hint_unread_bytes -= bytes;
            return;
        }
        self.tally.hit_bytes += bytes;
        self.tally.unread_bytes -= bytes;
        self.doubt_unread_bytes -= if entry.doubted { bytes } else { 0 };
        if let Some(at) = self.at(entry.stream) {
            let stream = &mut self.streams[at];
            let was_proven = stream.is_proven();
            stream.unread_bytes -= bytes;
            stream.hit_bytes += bytes;
            stream.credit_bytes = stream.credit_bytes.saturating_add(2 * bytes);
            if !was_proven && stream.is_proven() {
                // What it has under way is no longer a doubtful guess: that allowance is free for
                // the streams that still have to prove themselves.
                self.doubt_unread_bytes -= self.ledger.trust(entry.stream);
            }
        }
    }

    /// What was asked for on a guess is gone unread.
    pub(super) fn count_waste(&mut self, entry: Entry) {
        let bytes = entry.extent.len;
        if entry.stream == HINTED {
            self.hint_unread_bytes -= bytes;
            return;
        }
        self.tally.wasted_bytes += bytes;
        self.tally.unread_bytes -= bytes;
        if entry.doubted {
            self.doubt_unread_bytes -= bytes;
            self.doubt_wasted_bytes += bytes;
        }
        let Some(at) = self.at(entry.stream) else {
            return;
        };
        let stream = &mut self.streams[at];
        stream.unread_bytes -= bytes;
        stream.wasted_bytes += bytes;
        stream.credit_bytes = stream
            .credit_bytes
            .saturating_sub(bytes)
            .max(CREDIT_BYTES_MIN);
    }

    /// Gives up what of `extent` is unread; `poll_cancel` will name it.
    pub(super) fn give_up(&mut self, extent: Extent) {
        for entry in self.ledger.take(extent) {
            self.cancelled.push_back(entry.extent);
            self.count_waste(entry);
        }
    }

    /// Takes `extent` out of what the client will be told to give up: it is read now, or gone.
    pub(super) fn keep(&mut self, extent: Extent) {
        if !self
            .cancelled
            .iter()
            .any(|given_up| given_up.overlaps(extent))
        {
            return;
        }
        let rest = |given_up: Extent| {
            let before = Extent::between(given_up.offset, extent.offset.min(given_up.end()));
            let after = Extent::between(extent.end().max(given_up.offset), given_up.end());
            [before, after]
                .into_iter()
                .filter(|piece| !piece.is_empty())
        };
        self.cancelled = self.cancelled.drain(..).flat_map(rest).collect();
    }

    /// Gives up all that a stream has unread; it sleeps until it is read again.
    pub(super) fn give_up_stream(&mut self, at: usize) {
        self.streams[at].asleep = true;
        let unread: Vec<Entry> = self.ledger.of(self.streams[at].id).collect();
        for entry in unread {
            self.give_up(entry.extent);
        }
    }

    pub(super) fn hints_expire_at(&self) -> Option<Time> {
        (self.hint_unread_bytes > 0).then(|| self.hinted_at + HINT_TIME_MAX)
    }

    /// Gives up hinted data that nobody came for, so that later hints find room.
    pub(super) fn give_up_hinted(&mut self) {
        let unread: Vec<Entry> = self.ledger.of(HINTED).collect();
        for entry in unread {
            self.give_up(entry.extent);
        }
    }

    /// When the unread data of a stream has waited four times as long as its use should have taken.
    pub(super) fn expires_at(&self, stream: &Stream) -> Option<Time> {
        if stream.unread_bytes == 0 {
            return None;
        }
        let nanos =
            u128::from(stream.unread_bytes) * 1_000_000_000 / u128::from(stream.used_rate());
        let rtt = self.line.map_or(Duration::ZERO, |line| line.rtt);
        let use_time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).max(rtt);
        Some(stream.read_at + use_time.saturating_mul(4).max(UNREAD_TIME_MIN))
    }

    /// Gives up what streams have passed over and not come back to.
    pub(super) fn release_passed_over(&mut self) {
        for at in 0..self.streams.len() {
            while let Some(extent) = self.streams[at].pop_passed_over() {
                let stream = &self.streams[at];
                let theirs: Vec<Extent> = self
                    .ledger
                    .of(stream.id)
                    .map(|entry| entry.extent.intersection(extent))
                    .filter(|rest| !rest.is_empty() && !stream.expects(*rest, u64::MAX))
                    .collect();
                for rest in theirs {
                    self.give_up(rest);
                }
            }
        }
    }

    /// Notices the streams that the readers have left, and cancels what they have under way.
    pub(super) fn judge_streams(&mut self, size: u64) {
        for at in 0..self.streams.len() {
            if self.streams[at].is_contradicted(self.read_count) {
                self.contradict(at, size);
            }
        }
    }

    fn contradict(&mut self, at: usize, size: u64) {
        let id = self.streams[at].id;
        if self.streams[at].is_proven() && self.streams[at].has_goal(size) {
            self.tally.pattern_changes += 1;
            let pipe_bytes = self.line.as_ref().map_or(0, pipe_bytes);
            self.change_bytes = self.change_bytes.saturating_add(pipe_bytes);
        }
        let in_flight: Vec<Entry> = self.ledger.of(id).filter(|entry| !entry.fetched).collect();
        for entry in in_flight {
            let heir = self.streams.iter().position(|other| {
                other.id != id && !other.asleep && other.expects(entry.extent, size)
            });
            match heir {
                Some(heir) => {
                    self.ledger
                        .hand_over(entry.extent.offset, self.streams[heir].id);
                    self.streams[heir].unread_bytes += entry.extent.len;
                    self.streams[at].unread_bytes -= entry.extent.len;
                }
                None => self.give_up(entry.extent),
            }
        }
        let stream = &mut self.streams[at];
        stream.credit_bytes = (stream.credit_bytes / 4).max(CREDIT_BYTES_MIN);
        // It must prove itself anew.
        stream.hit_bytes = 0;
        stream.wasted_bytes = 0;
        stream.clear_plan();
        stream.asleep = true;
    }
}
