//! One stream of reads: the run it is in, the runs it plans, and the credit it has earned.
//!
//! A read belongs to a stream if it extends its run, begins a run that it planned, or lies a little
//! ahead of or behind its run (requests arrive out of order within [`REORDER_BYTES`]). What a
//! stream wants next is the rest of its run, as far as the length is known, then the runs of its
//! plan; never the gaps between them. A gap that costs less than the line's delay would be
//! tempting, but it would break the bound on waste.
//!
//! Credit is the number of bytes that may be unread: small at first, it grows by two for each byte
//! that was used, so triples each round trip, and falls to a quarter when a prediction fails.

use crate::pattern::{Chain, Forecast, Recall};
use crate::streams::{Overshoot, StreamId};
use base::{Extent, ExtentSet, Time};
use std::collections::VecDeque;

/// Reads this close are the same run: a gap of one page is cheaper to read than to avoid.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// How far out of order the kernel's requests arrive.
pub(crate) const REORDER_BYTES: u64 = 1 << 20;
/// Credit of a stream of which nothing is known: two requests.
pub(crate) const CREDIT_BYTES_MIN: u64 = 256 << 10;
/// Smallest request on a guess that is not itself the end of something.
pub(crate) const PIECE_BYTES_MIN: u64 = 128 << 10;
/// Credit at the second and third adjoining read of a first run.
const CREDIT_BYTES_ADJOINING: [u64; 2] = [512 << 10, 1 << 20];
/// Used bytes after which a stream counts as proven, if few were wasted.
const PROVEN_BYTES: u64 = 256 << 10;
/// Reads after which a hole in a run is a jump, not a request that comes late.
const SETTLE_READS: u32 = 6;
/// Runs planned at most, 64 KiB of memory.
const PLAN_RUNS_MAX: usize = 4096;
/// Planned runs looked at for a read: how far small runs may come out of order.
const PLAN_RUNS_MATCHED: usize = 16;
/// Planned runs or tails passed over that may still be read, late.
const SKIPPED_MAX: usize = 16;
/// Reads after which something passed over is not late but left out.
const PASSED_OVER_READS: u64 = 4;
/// Reads of others that a stream outlives before it counts as contradicted.
const PATIENCE_READS_MIN: u64 = 3;

/// How a read belongs to a stream. Earlier variants bind more closely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Belonging {
    /// Continues the run.
    Extends,
    /// Begins the planned run with this place in the plan.
    Planned(usize),
    /// Lies in the rest of the run, a little ahead.
    Ahead,
    /// Lies in what the stream has just passed over.
    Late,
    /// Repeats what was just read.
    Again,
}

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) chain: Chain,
    pub(crate) reads_in_run: u32,
    /// Runs begun since the stream left its parent's chain.
    pub(crate) own_runs: u32,
    pub(crate) parent: Option<StreamId>,
    /// Reads since another stream was forked from this one.
    pub(crate) returns: u32,
    /// Whether the run has outgrown its plan.
    is_settled: bool,
    /// Whether the run before got its late read. A second one is another reader, who goes on there.
    tail_taken: bool,
    ahead: Vec<Extent>,
    ahead_reads: u32,
    plan: VecDeque<Extent>,
    plan_bytes: u64,
    /// First planned run that may have something missing.
    plan_cursor: usize,
    forecast: Option<Forecast>,
    /// Length that the plan was made with.
    plan_length: Option<u64>,
    /// Passed over, with the number of the read that did.
    skipped: VecDeque<(Extent, u64)>,
    pub(crate) credit_bytes: u64,
    pub(crate) unread_bytes: u64,
    pub(crate) hit_bytes: u64,
    pub(crate) wasted_bytes: u64,
    used_bytes: u64,
    born_at: Time,
    pub(crate) read_at: Time,
    /// Number, within the file, of the last read.
    pub(crate) read_number: u64,
    /// Reads of the file from one read of this stream to the next: the largest lately, times 16.
    turn_16: u64,
    /// Contradicted, and not read since.
    pub(crate) asleep: bool,
    /// What the kernel asks for past the end of its runs.
    pub(crate) overshoot: Overshoot,
}

impl Stream {
    pub(crate) fn new(id: StreamId, chain: Chain, credit_bytes: u64, now: Time) -> Self {
        Self {
            id,
            chain,
            reads_in_run: 1,
            own_runs: 1,
            parent: None,
            returns: 0,
            is_settled: false,
            tail_taken: false,
            ahead: Vec::new(),
            ahead_reads: 0,
            plan: VecDeque::new(),
            plan_bytes: 0,
            plan_cursor: 0,
            forecast: None,
            plan_length: None,
            skipped: VecDeque::new(),
            credit_bytes: credit_bytes.max(CREDIT_BYTES_MIN),
            unread_bytes: 0,
            hit_bytes: 0,
            wasted_bytes: 0,
            used_bytes: 0,
            born_at: now,
            read_at: now,
            read_number: 0,
            turn_16: 16,
            asleep: false,
            overshoot: Overshoot::default(),
        }
    }

    /// Whether its guesses have been right often enough to be trusted with a full window.
    pub(crate) fn is_proven(&self) -> bool {
        self.hit_bytes >= PROVEN_BYTES && self.hit_bytes / 4 >= self.wasted_bytes
    }

    /// Reads of the file from one of its reads to the next.
    pub(crate) fn turn_reads(&self) -> u64 {
        self.turn_16.div_ceil(16)
    }

    /// Whether it is this stream's turn, or soon will be.
    pub(crate) fn is_active(&self, read_number: u64) -> bool {
        !self.asleep && read_number - self.read_number <= 2 * (self.turn_reads() - 1)
    }

    /// Whether the readers have gone elsewhere.
    pub(crate) fn is_contradicted(&self, read_number: u64) -> bool {
        let patience = (4 * self.turn_reads()).max(PATIENCE_READS_MIN);
        !self.asleep && read_number - self.read_number > patience
    }

    /// Bytes per second that the stream was read at; at least 1.
    pub(crate) fn used_rate(&self) -> u64 {
        let nanos = self.read_at.since(self.born_at).as_nanos().max(1);
        u64::try_from(u128::from(self.used_bytes) * 1_000_000_000 / nanos)
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// How `extent` belongs to this stream, if at all.
    pub(crate) fn belonging(&self, extent: Extent, size: u64) -> Option<Belonging> {
        let run = self.chain.run;
        let near = extent.offset.saturating_add(REORDER_BYTES) >= run.end();
        let within =
            extent.offset >= run.offset && extent.offset <= run.end().saturating_add(PAGE_BYTES);
        if within && near && extent.end() > run.end() {
            return Some(Belonging::Extends);
        }
        let begins = |planned: &Extent| {
            let from = planned.offset.saturating_sub(PAGE_BYTES);
            Extent::between(from, planned.end()).contains(extent.offset)
        };
        if let Some(place) = self.plan.iter().take(PLAN_RUNS_MATCHED).position(begins) {
            return Some(Belonging::Planned(place));
        }
        if extent.offset > run.end()
            && extent.offset - run.end() <= REORDER_BYTES
            && self
                .target(size)
                .is_some_and(|target| extent.offset < target)
        {
            return Some(Belonging::Ahead);
        }
        let late = |passed: Extent| {
            Extent::new(passed.offset, passed.len.saturating_add(PAGE_BYTES)).covers(extent)
        };
        let tail = |run: Extent| {
            extent.offset.abs_diff(run.end()) <= PAGE_BYTES && extent.len <= PIECE_BYTES_MIN
        };
        if self.skipped.iter().any(|&(passed, _)| late(passed))
            || (self.own_runs > 1 && !self.tail_taken && self.chain.previous.is_some_and(tail))
        {
            return Some(Belonging::Late);
        }
        (within && near).then_some(Belonging::Again)
    }

    /// Takes a read that belongs here. Returns a run that the readers have turned out to have
    /// jumped to, if a hole of the current run was never filled.
    pub(crate) fn read(
        &mut self,
        now: Time,
        number: u64,
        extent: Extent,
        belonging: Belonging,
        size: u64,
        recall: &mut Recall,
    ) -> Option<Extent> {
        self.touch(now, number, extent.len);
        match belonging {
            Belonging::Extends => self.extend(extent),
            Belonging::Planned(place) => self.begin_planned(extent, place, size, recall),
            Belonging::Ahead => self.ahead.push(extent),
            Belonging::Late => {
                let tail = self
                    .chain
                    .previous
                    .is_some_and(|run| extent.offset >= run.offset);
                if tail {
                    self.chain.extend_previous(extent.end());
                    self.tail_taken = true;
                }
            }
            Belonging::Again => {}
        }
        if self.ahead.is_empty() {
            return None;
        }
        self.ahead_reads += 1;
        if self.ahead_reads < SETTLE_READS {
            return None;
        }
        self.ahead_reads = 0;
        let mut jump = self
            .ahead
            .iter()
            .copied()
            .min_by_key(|piece| piece.offset)?;
        for piece in std::mem::take(&mut self.ahead) {
            if jump.end().saturating_add(PAGE_BYTES) >= piece.offset {
                jump = Extent::between(jump.offset, jump.end().max(piece.end()));
            }
        }
        Some(jump)
    }

    /// Notes a read: whose turn it is and how fast the stream is used.
    pub(crate) fn touch(&mut self, now: Time, number: u64, bytes: u64) {
        let gap = number.saturating_sub(self.read_number).max(1);
        self.turn_16 = (self.turn_16 * 3 / 4).max(gap.min(1 << 20) * 16);
        self.read_number = number;
        self.read_at = now;
        self.used_bytes += bytes;
        self.returns += 1;
        self.asleep = false;
    }

    /// The first read of a stream has no turn before it.
    pub(crate) fn set_born(&mut self, number: u64, bytes: u64) {
        self.read_number = number;
        self.used_bytes = bytes;
    }

    fn extend(&mut self, extent: Extent) {
        self.reads_in_run = self.reads_in_run.saturating_add(1);
        self.grow_run(extent.end());
        if self.chain.previous.is_none() {
            let step = self.reads_in_run as usize - 2;
            let credit = CREDIT_BYTES_ADJOINING.get(step).copied().unwrap_or(0);
            self.credit_bytes = self.credit_bytes.max(credit);
        }
    }

    /// The run reaches at least to `end`, and through what lay ahead of it.
    pub(crate) fn grow_run(&mut self, end: u64) {
        let mut end = end.max(self.chain.run.end());
        while let Some(next) = self
            .ahead
            .iter()
            .position(|piece| piece.offset <= end.saturating_add(PAGE_BYTES))
        {
            end = end.max(self.ahead.swap_remove(next).end());
        }
        if self.ahead.is_empty() {
            self.ahead_reads = 0;
        }
        self.chain.run = Extent::between(self.chain.run.offset, end);
    }

    fn begin_planned(&mut self, extent: Extent, place: usize, size: u64, recall: &mut Recall) {
        let tail = Extent::between(self.chain.run.end(), self.target(size).unwrap_or(0));
        if !tail.is_empty() {
            self.skip(tail);
        }
        self.ahead.clear();
        self.ahead_reads = 0;
        for step in 0..=place {
            let Some(planned) = self.plan.pop_front() else {
                break;
            };
            self.plan_bytes -= planned.len;
            self.plan_cursor = self.plan_cursor.saturating_sub(1);
            self.own_runs = self.own_runs.saturating_add(1);
            if step < place {
                // Passed over: as likely late as left out. The pattern goes on as planned.
                self.chain.begin_run(planned, recall);
                self.skip(planned);
                continue;
            }
            let early = extent.offset.saturating_sub(planned.offset) > PAGE_BYTES;
            let run = if early {
                Extent::new(planned.offset, 0)
            } else {
                extent
            };
            self.chain.begin_run(run, recall);
            if early {
                self.ahead.push(extent);
            }
        }
        self.reads_in_run = 1;
        self.is_settled = false;
        self.tail_taken = false;
        let length = self.chain.length(None).map(|guess| guess.bytes);
        if self.plan_length != length || self.plan.is_empty() {
            self.replan();
        }
    }

    fn skip(&mut self, extent: Extent) {
        if self.skipped.len() < SKIPPED_MAX {
            self.skipped.push_back((extent, self.read_number));
        } else if let Some((last, _)) = self.skipped.back_mut() {
            *last = Extent::between(last.offset.min(extent.offset), last.end().max(extent.end()));
        }
    }

    /// The next extent that was passed over and, by now, left out.
    pub(crate) fn pop_passed_over(&mut self) -> Option<Extent> {
        let &(extent, number) = self.skipped.front()?;
        if self.read_number - number < PASSED_OVER_READS * self.turn_reads() {
            return None;
        }
        self.skipped.pop_front();
        Some(extent)
    }

    /// Forgets the plan and forecasts anew from the chain.
    pub(crate) fn replan(&mut self) {
        self.plan.clear();
        self.plan_bytes = 0;
        self.plan_cursor = 0;
        self.plan_length = self.chain.length(None).map(|guess| guess.bytes);
        self.forecast = Some(self.chain.forecast());
    }

    /// Whether it plans runs that are all as long.
    pub(crate) fn is_steady(&self) -> bool {
        let length = self.chain.length(None);
        self.has_plan() && length.is_some_and(|length| length.bytes == length.bytes_max)
    }

    /// Whether it knows where its next run begins, or will when it plans.
    pub(crate) fn has_plan(&self) -> bool {
        !self.plan.is_empty() || self.forecast.is_some()
    }

    /// The last `bytes` of each planned run that is `length` long.
    pub(crate) fn planned_tails(&self, length: u64, bytes: u64) -> Vec<Extent> {
        let alike = self.plan.iter().filter(|run| run.len == length);
        alike
            .map(|run| Extent::between(run.end().saturating_sub(bytes), run.end()))
            .collect()
    }

    /// Forgets the plan.
    pub(crate) fn clear_plan(&mut self) {
        self.replan();
        self.forecast = None;
    }

    /// Whether the run has just become so much longer than those before it that the readers stay
    /// here: once in a run. What was planned beyond it was a guess about another pattern.
    pub(crate) fn outgrows_its_plan(&mut self) -> bool {
        let length = self.chain.length(None);
        let outgrown = !self.is_settled
            && length
                .is_some_and(|length| self.chain.run.len >= length.bytes_max.saturating_mul(2));
        self.is_settled |= outgrown;
        outgrown
    }

    /// Looks for missing pieces from the start again: something was dropped.
    pub(crate) fn rewind(&mut self) {
        self.plan_cursor = 0;
    }

    /// How far the current run will go at least, as far as it is known.
    pub(crate) fn target(&self, size: u64) -> Option<u64> {
        let run = self.chain.run;
        let adjoining = self.reads_in_run >= 2;
        let Some(length) = self.chain.length(None) else {
            return (adjoining || run.offset == 0).then_some(size);
        };
        let begun_from = |bytes: u64| Some(run.offset.saturating_add(bytes).min(size));
        if length.alike && run.len <= length.bytes.saturating_add(PAGE_BYTES) {
            return begun_from(length.bytes);
        }
        if !adjoining {
            return None;
        }
        if run.len >= length.bytes_max.saturating_mul(2) {
            return Some(size);
        }
        if length.alike && run.len < length.bytes_max {
            return begun_from(length.bytes_max);
        }
        // Longer than ever before: by a quarter each time while it may still end as the others did,
        // by doubling where lengths tell nothing.
        let growth = if length.alike { run.len / 4 } else { run.len };
        begun_from(run.len.saturating_add(growth.max(PIECE_BYTES_MIN)))
    }

    /// Whether it has anything to fetch on a guess.
    pub(crate) fn has_goal(&self, size: u64) -> bool {
        !self.plan.is_empty() || self.forecast.is_some() || self.target(size).is_some()
    }

    /// Whether `extent` is part of what it wants.
    pub(crate) fn expects(&self, extent: Extent, size: u64) -> bool {
        let rest = Extent::between(self.chain.run.end(), self.target(size).unwrap_or(0));
        rest.overlaps(extent) || self.plan.iter().any(|planned| planned.overlaps(extent))
    }

    /// Plans runs until `depth_bytes` are planned or nothing more can be guessed.
    pub(crate) fn extend_plan(&mut self, depth_bytes: u64, size: u64, recall: &Recall) {
        while self.plan_bytes < depth_bytes && self.plan.len() < PLAN_RUNS_MAX {
            let Some(forecast) = &mut self.forecast else {
                return;
            };
            let before = self
                .plan
                .back()
                .map_or(self.chain.run.offset, |planned| planned.offset);
            let next = forecast.next(&self.chain, recall, size);
            // A run that overlaps the one before would be fetched twice.
            let next = next
                .map(|run| Extent::new(run.offset, run.len.min(run.offset.abs_diff(before))))
                .filter(|run| !run.is_empty());
            match next {
                Some(run) => {
                    self.plan.push_back(run);
                    self.plan_bytes += run.len;
                }
                None => self.forecast = None,
            }
        }
    }

    /// The next piece of at most `unit_bytes` that is wanted and not `covered`, in order of use.
    /// A piece that would reach beyond `depth_bytes` is not cut there while there is something
    /// unread: a request costs the same whatever its size, and room for all of it will come.
    pub(crate) fn next_piece(
        &mut self,
        covered: &ExtentSet,
        size: u64,
        depth_bytes: u64,
        unit_bytes: u64,
    ) -> Option<Extent> {
        let run = self.chain.run;
        let target = self.target(size).unwrap_or(0);
        let depth_end = run.end().saturating_add(depth_bytes);
        let reach_end = target.min(depth_end.saturating_add(unit_bytes));
        for gap in covered.missing(Extent::between(run.end(), reach_end)) {
            let Some(gap) = self.without_ahead(gap) else {
                continue;
            };
            let piece = cut(gap, unit_bytes);
            if piece.end() <= depth_end {
                return Some(piece);
            }
            if piece.offset >= depth_end {
                break;
            }
            let within = Extent::between(piece.offset, depth_end);
            return (self.unread_bytes == 0).then_some(within);
        }
        self.next_planned_piece(covered, unit_bytes)
    }

    /// The same of the planned runs alone.
    pub(crate) fn next_planned_piece(
        &mut self,
        covered: &ExtentSet,
        unit_bytes: u64,
    ) -> Option<Extent> {
        while let Some(&planned) = self.plan.get(self.plan_cursor) {
            let Some(&gap) = covered.missing(planned).first() else {
                self.plan_cursor += 1;
                continue;
            };
            if gap != planned || planned.len >= unit_bytes {
                return Some(cut(gap, unit_bytes));
            }
            return Some(self.joined(planned, covered, unit_bytes));
        }
        None
    }

    /// A small planned run together with those after it that adjoin it, as in reverse reading.
    fn joined(&self, planned: Extent, covered: &ExtentSet, unit_bytes: u64) -> Extent {
        let mut joined = planned;
        for next in self.plan.iter().skip(self.plan_cursor + 1) {
            let adjoins = next.end() == joined.offset || next.offset == joined.end();
            if !adjoins || joined.len + next.len > unit_bytes || covered.overlaps(*next) {
                break;
            }
            joined = Extent::new(joined.offset.min(next.offset), joined.len + next.len);
        }
        joined
    }

    /// The first part of `gap` that was not read ahead of its turn: such bytes may be used and
    /// gone.
    fn without_ahead(&self, gap: Extent) -> Option<Extent> {
        let mut gap = gap;
        let mut pieces = self.ahead.clone();
        pieces.sort_unstable_by_key(|piece| piece.offset);
        for piece in pieces {
            if !piece.overlaps(gap) {
                continue;
            }
            if piece.offset > gap.offset {
                return Some(Extent::between(gap.offset, piece.offset));
            }
            gap = Extent::between(piece.end(), gap.end());
        }
        (!gap.is_empty()).then_some(gap)
    }
}

/// The front of `gap`, cut at a multiple of `unit_bytes`, so that pieces do not drift.
fn cut(gap: Extent, unit_bytes: u64) -> Extent {
    let aligned = (gap.offset / unit_bytes)
        .saturating_add(1)
        .saturating_mul(unit_bytes);
    Extent::between(gap.offset, aligned.min(gap.end()))
}
