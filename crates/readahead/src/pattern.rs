//! Where the next run of reads will start and how long it will be.
//!
//! A run is a stretch of adjoining reads. What matters is the distance from one run's start to the
//! next (delta) and the run's length; a [`Chain`] keeps both for the last runs of one stream.
//! Deltas are kept as groups of equal ones, so a stride is one group whatever its length, and a
//! two-level stride is `(inner, n) (outer, 1) (inner, n) (outer, 1) ...`. The next delta is guessed
//! by the first of these that has an opinion:
//!
//! 1. *Group match*: the earlier place whose groups agree longest with the latest ones; what
//!    followed there follows here. Covers constant and reverse strides, nesting, and any periodic
//!    order. The beginning of the chain agrees with anything, so the second inner group is known to
//!    end where the first did.
//! 2. *Two equal deltas* (three runs): the same again.
//! 3. *First jump after a stride*: the inner stride again, from the new place.
//! 4. *Recall*: an earlier pass had the same two deltas in a row; see [`Recall`].
//! 5. *Majority* of the last 4, 8 or 16 deltas (Boyer and Moore), which survives noise.
//!
//! Lengths are guessed from runs that began with the same delta. They may vary: the guess is the
//! longest of them that would have fetched at most [`TAIL_WASTE_PERCENT`] too much.
//!
//! Source: paper section 4 and figure 5 (stride detection); Maruf and Chowdhury, Leap (ATC 2020),
//! for the majority over doubling windows.

use base::Extent;
use std::collections::{BTreeMap, VecDeque};

/// Groups kept: twelve turns of a two-level stride.
const GROUPS_MAX: usize = 24;
/// Completed runs whose lengths are kept.
const LENGTHS_MAX: usize = 16;
/// Groups compared when two places of the history are matched.
const MATCH_GROUPS_MAX: usize = 8;
/// Deltas that the majority looks at.
const DELTAS_MAX: usize = 16;
/// Too much fetched at the ends of runs, in percent of what was read, when lengths vary. With the
/// kernel's over-read of 4 % on a 3 MiB run it stays within a tenth.
const TAIL_WASTE_PERCENT: u64 = 8;
/// Steps of an irregular pass that a file remembers: 160 KiB of memory at most.
const RECALL_STEPS_MAX: usize = 4096;

/// Equal deltas in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    delta: i64,
    count: u32,
}

/// The latest runs of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    groups: VecDeque<Group>,
    /// Whether `groups` begins with the stream's first delta.
    whole: bool,
    deltas: VecDeque<i64>,
    /// Delta before, and length of, each completed run.
    lengths: VecDeque<(i64, u64)>,
    /// The run that is being read.
    pub(crate) run: Extent,
    /// The run before it.
    pub(crate) previous: Option<Extent>,
}

/// How long a run will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LengthGuess {
    /// Bytes that pay on average.
    pub(crate) bytes: u64,
    /// The longest seen.
    pub(crate) bytes_max: u64,
    /// Whether the lengths seen are alike; a single one is.
    pub(crate) alike: bool,
}

fn delta_of(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

impl Chain {
    pub(crate) fn new(run: Extent) -> Self {
        Self {
            groups: VecDeque::new(),
            whole: true,
            deltas: VecDeque::new(),
            lengths: VecDeque::new(),
            run,
            previous: None,
        }
    }

    /// The current run is complete; `run` is the next.
    pub(crate) fn begin_run(&mut self, run: Extent, recall: &mut Recall) {
        let delta = delta_of(self.run.offset, run.offset);
        let before = self.deltas.back().copied();
        recall.learn(&self.deltas, self.run.len);
        push_bounded(
            &mut self.lengths,
            (before.unwrap_or(0), self.run.len),
            LENGTHS_MAX,
        );
        self.push_delta(delta);
        self.previous = Some(self.run);
        self.run = run;
    }

    /// The first reads of the current run came out of order: it starts at `start`.
    pub(crate) fn move_start(&mut self, start: u64) {
        let end = self.run.end();
        self.run = Extent::between(start, end);
        let (Some(previous), Some(_)) = (self.previous, self.deltas.pop_back()) else {
            return;
        };
        if let Some(last) = self.groups.back_mut() {
            last.count -= 1;
            if last.count == 0 {
                self.groups.pop_back();
            }
        }
        self.push_delta(delta_of(previous.offset, start));
    }

    /// A late read belonged to the run before, which ends at `end`.
    pub(crate) fn extend_previous(&mut self, end: u64) {
        let Some(previous) = self.previous.filter(|previous| previous.end() < end) else {
            return;
        };
        let longer = Extent::between(previous.offset, end);
        self.previous = Some(longer);
        if let Some((_, len)) = self.lengths.back_mut() {
            *len = longer.len;
        }
    }

    /// Forgets all but the current run.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.run);
    }

    fn push_delta(&mut self, delta: i64) {
        push_bounded(&mut self.deltas, delta, DELTAS_MAX);
        self.whole &= push_group(&mut self.groups, delta);
    }

    /// How long a run is that begins with `delta`, the current one by default; `None` before one
    /// run is complete.
    pub(crate) fn length(&self, delta: Option<i64>) -> Option<LengthGuess> {
        let delta = delta.or(self.deltas.back().copied());
        let same = self
            .lengths
            .iter()
            .filter(|(before, _)| Some(*before) == delta);
        let mut lengths: Vec<u64> = same.map(|&(_, len)| len).collect();
        if lengths.is_empty() {
            lengths = self.lengths.iter().map(|&(_, len)| len).collect();
        }
        lengths.sort_unstable();
        let (&least, &most) = (lengths.first()?, lengths.last()?);
        let allowed = lengths.iter().sum::<u64>() / 100 * TAIL_WASTE_PERCENT;
        let waste = |guess: u64| {
            lengths
                .iter()
                .map(|len| guess.saturating_sub(*len))
                .sum::<u64>()
        };
        let bytes = lengths
            .iter()
            .rev()
            .copied()
            .find(|&len| waste(len) <= allowed)?;
        Some(LengthGuess {
            bytes,
            bytes_max: most,
            alike: most <= least.saturating_mul(3) / 2,
        })
    }

    /// The length that the last two runs had which began as the current one did, or else the last
    /// two of all, if they had the same.
    pub(crate) fn steady_length(&self) -> Option<u64> {
        let delta = self.deltas.back().copied();
        let latest = self.lengths.iter().rev();
        let same = latest
            .clone()
            .filter(|(before, _)| Some(*before) == delta)
            .map(|&(_, len)| len);
        let mut lengths: Vec<u64> = same.take(2).collect();
        if lengths.len() < 2 {
            lengths = latest.map(|&(_, len)| len).take(2).collect();
        }
        match lengths[..] {
            [one, two] if one == two => Some(one),
            _ => None,
        }
    }

    /// Runs of `from` bytes were really `to` bytes long. Whether there were any.
    pub(crate) fn shorten(&mut self, from: u64, to: u64) -> bool {
        let mut any = false;
        for (_, len) in self.lengths.iter_mut().filter(|(_, len)| *len == from) {
            *len = to;
            any = true;
        }
        any
    }

    /// The runs to come, as far as they can be guessed.
    pub(crate) fn forecast(&self) -> Forecast {
        Forecast {
            groups: self.groups.clone(),
            whole: self.whole,
            last_deltas: [
                self.deltas.iter().nth_back(1).copied(),
                self.deltas.back().copied(),
            ],
            majority: self.majority(),
            start: self.run.offset,
        }
    }

    /// The delta that more than half of the last 4, 8 or 16 have.
    fn majority(&self) -> Option<i64> {
        [4, 8, DELTAS_MAX].into_iter().find_map(|window| {
            if self.deltas.len() < window {
                return None;
            }
            let latest = || self.deltas.iter().rev().take(window);
            let (mut candidate, mut votes) = (0, 0);
            for &delta in latest() {
                if votes == 0 {
                    candidate = delta;
                }
                votes += if delta == candidate { 1 } else { -1 };
            }
            (latest().filter(|&&delta| delta == candidate).count() * 2 > window)
                .then_some(candidate)
        })
    }
}

/// Adds a delta; `false` if the oldest group had to go.
fn push_group(groups: &mut VecDeque<Group>, delta: i64) -> bool {
    if let Some(last) = groups.back_mut()
        && last.delta == delta
    {
        last.count = last.count.saturating_add(1);
        return true;
    }
    let kept = groups.len() < GROUPS_MAX;
    push_bounded(groups, Group { delta, count: 1 }, GROUPS_MAX);
    kept
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, max: usize) {
    if queue.len() == max {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// Iterates over guessed runs: each guess is taken for granted by the next.
#[derive(Clone, Debug)]
pub(crate) struct Forecast {
    groups: VecDeque<Group>,
    whole: bool,
    last_deltas: [Option<i64>; 2],
    majority: Option<i64>,
    start: u64,
}

impl Forecast {
    /// The next run; `None` when there is no guess or it lies outside the file.
    pub(crate) fn next(&mut self, chain: &Chain, recall: &Recall, size: u64) -> Option<Extent> {
        let matched = self.matched_delta();
        let (delta, len) = match matched {
            Some(delta) => (delta, chain.length(Some(delta))?.bytes),
            None => match recall.next(self.last_deltas) {
                Some((delta, len)) => (delta, len),
                None => (self.majority?, chain.length(self.majority)?.bytes),
            },
        };
        let start = self
            .start
            .checked_add_signed(delta)
            .filter(|&start| start < size)?;
        self.start = start;
        self.last_deltas = [self.last_deltas[1], Some(delta)];
        self.whole &= push_group(&mut self.groups, delta);
        Some(Extent::new(start, len.min(size - start)))
    }

    /// Guesses 1 to 3 of the module head.
    fn matched_delta(&self) -> Option<i64> {
        let last = *self.groups.back()?;
        let latest = self.groups.len() - 1;
        let mut best: Option<(usize, i64)> = None;
        for place in (0..latest).rev() {
            let group = self.groups[place];
            if group.delta != last.delta || group.count < last.count {
                continue;
            }
            let agreeing = (0..place.min(MATCH_GROUPS_MAX))
                .take_while(|back| self.groups[place - 1 - back] == self.groups[latest - 1 - back])
                .count();
            let from_start = self.whole && agreeing == place;
            let evidence = last.count >= 2 || agreeing >= 1 || (from_start && group.count >= 2);
            let score = 2 * agreeing + usize::from(from_start);
            if evidence && best.is_none_or(|(other, _)| score > other) {
                let ends = group.count == last.count;
                let next = if ends {
                    self.groups[place + 1].delta
                } else {
                    last.delta
                };
                best = Some((score, next));
            }
        }
        if let Some((_, delta)) = best {
            return Some(delta);
        }
        if last.count >= 2 {
            return Some(last.delta);
        }
        let inner = *self.groups.get(latest.checked_sub(1)?)?;
        (inner.count >= 2).then_some(inner.delta)
    }
}

/// What followed two deltas in a row, anywhere in the file: repeats an irregular pass.
///
/// The first pass over a file in no order that a formula gives teaches it; in the second pass two
/// deltas, so three runs, find the place. When full it starts anew: a pass longer than
/// [`RECALL_STEPS_MAX`] is not worth more memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recall {
    /// Two deltas to the next one; a run's last delta to the run's length.
    next: BTreeMap<[i64; 2], Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    delta: i64,
    len: u64,
}

impl Recall {
    /// A run of `len` bytes is complete that began with the last of `deltas`.
    fn learn(&mut self, deltas: &VecDeque<i64>, len: u64) {
        let mut latest = deltas.iter().rev().copied();
        let (Some(delta), Some(one), Some(two)) = (latest.next(), latest.next(), latest.next())
        else {
            return;
        };
        // A constant stride is known without a table, and would not teach it anything.
        if delta == one && one == two {
            return;
        }
        if self.next.len() >= RECALL_STEPS_MAX {
            self.next.clear();
        }
        self.next.insert([two, one], Step { delta, len });
    }

    fn next(&self, last_deltas: [Option<i64>; 2]) -> Option<(i64, u64)> {
        let [Some(two), Some(one)] = last_deltas else {
            return None;
        };
        self.next
            .get(&[two, one])
            .map(|step| (step.delta, step.len))
    }
}
