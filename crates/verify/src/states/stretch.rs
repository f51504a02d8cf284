//! One stretch between two flushes.
//!
//! A change is whole sectors, as they were to be after it: where less was written, with what was
//! around it. A device that tears at sectors leaves one or the other.
//!
//! Two states of a stretch are equal if every sector is: a state's key is the sum, over all sectors
//! that differ from how they were before the stretch, of a digest of place and content. Sums do not
//! depend on an order, so nothing needs to be sorted.

use super::{Pattern, Policy, SECTOR_BYTES, Said};
use crate::log::{Entry, Mark};
use base::Extent;
use base::limits::{VERIFY_LOG_BYTES_MAX, VERIFY_PRUNE_SECTORS_MAX};
use sim::{Image, Random};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Sectors of a stretch of which keys are made, in memory, some hundred bytes for each: as many as
/// a log has room for. Ranges of zeros take no room in a log and may have any number; where they
/// are more, states are drawn and not compared.
const KEY_SECTORS_MAX: u64 = VERIFY_LOG_BYTES_MAX / SECTOR_BYTES;

/// See the module's head.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// The disk before.
    base: Image,
    pub(super) changes: Vec<Change>,
    /// What had been said meanwhile, from when the disk was as before: for each step that was the
    /// last to have begun, the most that was done then. The fewer steps had begun, the less may be
    /// there; the more of them were done, the more must be.
    said: Vec<Said>,
}

/// Consecutive sectors with what they become.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) first_sector: u64,
    sectors: u32,
    /// `None`: zeros.
    bytes: Option<Arc<[u8]>>,
    /// When it was made: a place in what had been said.
    moment: usize,
}

/// The states of a stretch.
pub(super) struct Found {
    /// Each, and whether it was drawn by chance.
    pub(super) patterns: Vec<(Pattern, bool)>,
    /// With those that equal another.
    pub(super) possible: u64,
}

/// Cuts a log at its flushes. There is at least one stretch, the last of which is what came after
/// the last flush, if only a promise.
pub(super) fn cut(base: &Image, entries: &[Entry]) -> Vec<Stretch> {
    let mut now = base.clone();
    let mut stretches = Vec::new();
    let mut open = Stretch {
        base: base.clone(),
        changes: Vec::new(),
        said: vec![Said::default()],
    };
    for entry in entries {
        match entry {
            Entry::Write { offset, data } => {
                let change = Change::write(&now, *offset, data);
                change.apply(&mut now, |_| true);
                open.take(change);
            }
            Entry::Zeros(extent) => {
                let changes = Change::zeros(&mut now, *extent);
                changes.into_iter().for_each(|change| open.take(change));
            }
            Entry::Mark(mark) => open.hear(*mark),
            Entry::Flush if open.changes.is_empty() => {}
            Entry::Flush => {
                // All of it had arrived when the last change was made, if nothing was lost.
                let last = open.changes.last().map_or(0, |change| change.moment);
                let next = Stretch {
                    base: now.clone(),
                    changes: Vec::new(),
                    said: open.said[last..].to_vec(),
                };
                stretches.push(std::mem::replace(&mut open, next));
            }
        }
    }
    stretches.push(open);
    stretches
}

impl Change {
    /// The whole sectors of a write to a disk that is `now` so.
    fn write(now: &Image, offset: u64, data: &Arc<[u8]>) -> Self {
        let first_sector = offset / SECTOR_BYTES;
        let end = (offset + data.len() as u64).div_ceil(SECTOR_BYTES);
        let sectors = u32::try_from(end - first_sector).expect("a write is at most a megabyte");
        let whole_bytes = sectors as usize * SECTOR_BYTES as usize;
        let bytes = if data.len() == whole_bytes {
            Arc::clone(data)
        } else {
            let mut whole = vec![0; whole_bytes];
            now.read_at(first_sector * SECTOR_BYTES, &mut whole);
            whole[(offset % SECTOR_BYTES) as usize..][..data.len()].copy_from_slice(data);
            whole.into()
        };
        Self {
            first_sector,
            sectors,
            bytes: Some(bytes),
            moment: 0,
        }
    }

    /// Makes a range zeros. Whole sectors are one change; what is left at its ends is a write of
    /// what then is in these sectors.
    fn zeros(now: &mut Image, extent: Extent) -> Vec<Self> {
        let first = extent.offset.div_ceil(SECTOR_BYTES) * SECTOR_BYTES;
        let end = extent.end() / SECTOR_BYTES * SECTOR_BYTES;
        let mut changes = Vec::new();
        if first < end {
            changes.push(Self {
                first_sector: first / SECTOR_BYTES,
                sectors: u32::try_from((end - first) / SECTOR_BYTES).unwrap_or(u32::MAX),
                bytes: None,
                moment: 0,
            });
        }
        let head = Extent::between(extent.offset, first.min(extent.end()));
        let tail = Extent::between(end.max(head.end()), extent.end());
        for part in [head, tail].into_iter().filter(|part| !part.is_empty()) {
            let zeros: Arc<[u8]> = vec![0; part.len as usize].into();
            changes.push(Self::write(now, part.offset, &zeros));
        }
        crate::medium::zero(now, extent);
        changes
    }

    pub(super) fn sector_count(&self) -> u32 {
        self.sectors
    }

    /// What one of its sectors becomes.
    fn sector(&self, number: u32) -> &[u8] {
        static ZEROS: [u8; SECTOR_BYTES as usize] = [0; SECTOR_BYTES as usize];
        let start = number as usize * SECTOR_BYTES as usize;
        let bytes = self.bytes.as_ref();
        bytes.map_or(&ZEROS[..], |bytes| &bytes[start..][..SECTOR_BYTES as usize])
    }

    /// Puts those sectors into `image` that `has` says.
    fn apply(&self, image: &mut Image, mut has: impl FnMut(u32) -> bool) {
        let mut next = 0;
        while next < self.sectors {
            let first = next;
            let arrives = has(first);
            next += 1;
            while next < self.sectors && has(next) == arrives {
                next += 1;
            }
            if !arrives {
                continue;
            }
            let offset = (self.first_sector + u64::from(first)) * SECTOR_BYTES;
            let len = u64::from(next - first) * SECTOR_BYTES;
            match &self.bytes {
                Some(bytes) => {
                    let start = first as usize * SECTOR_BYTES as usize;
                    image.write_at(offset, &bytes[start..][..len as usize]);
                }
                None => crate::medium::zero(image, Extent::new(offset, len)),
            }
        }
    }
}

impl Stretch {
    fn take(&mut self, change: Change) {
        let moment = self.said.len().saturating_sub(1);
        self.changes.push(Change { moment, ..change });
    }

    fn hear(&mut self, mark: Mark) {
        let before = self.said.last().copied().unwrap_or_default();
        let said = match mark {
            Mark::Begun(begun) => Said { begun, ..before },
            Mark::Done(done) => Said { done, ..before },
        };
        match self.said.last_mut() {
            Some(last) if last.begun == said.begun => *last = said,
            _ => self.said.push(said),
        }
    }

    /// From which moment on power can be lost so: when the last change that arrives was made.
    fn moment(&self, pattern: &Pattern) -> usize {
        let count = self.changes.len() as u32;
        let last = match pattern {
            Pattern::Prefix(end) => (*end).min(count).checked_sub(1),
            Pattern::Head(torn, _) | Pattern::Tail(torn, _) => Some(*torn),
            Pattern::Without(missing) => (0..count).rev().find(|change| change != missing),
            Pattern::Missing(missing) => (0..count)
                .rev()
                .find(|change| missing.binary_search(change).is_err()),
            Pattern::Only(there) => there.last().copied(),
        };
        let change = last.and_then(|last| self.changes.get(last as usize));
        change.map_or(0, |change| change.moment)
    }

    /// What had been said at every moment at which power can be lost so.
    pub(super) fn said(&self, pattern: &Pattern) -> &[Said] {
        &self.said[self.moment(pattern)..]
    }

    pub(super) fn image(&self, pattern: &Pattern) -> Image {
        let mut image = self.base.clone();
        for (change, number) in self.changes.iter().zip(0..) {
            change.apply(&mut image, |sector| pattern.has(number, sector));
        }
        image
    }

    /// The patterns whose states differ from each other. That in which everything arrived belongs
    /// to the next stretch, if there is one.
    pub(super) fn patterns(&self, policy: &Policy, is_last: bool, random: &mut Random) -> Found {
        let count = self.changes.len() as u32;
        let mut candidates = Vec::new();
        for change in 0..count {
            candidates.push((Pattern::Prefix(change), false));
            self.tears(change, policy, random, &mut candidates);
        }
        if is_last || count == 0 {
            candidates.push((Pattern::Prefix(count), false));
        }
        candidates.extend((0..count).map(|change| (Pattern::Without(change), false)));
        let pairs = u64::from(count) * u64::from(count.saturating_sub(1)) / 2;
        for pair in draw(pairs, policy.pairs_max, random) {
            let by_chance = pairs > policy.pairs_max;
            candidates.push((Pattern::Missing(pair_of(pair)), by_chance));
        }
        self.prune(candidates, is_last, random)
    }

    fn tears(
        &self,
        change: u32,
        policy: &Policy,
        random: &mut Random,
        candidates: &mut Vec<(Pattern, bool)>,
    ) {
        let torn = &self.changes[change as usize];
        // A border of the disk's sectors is behind the first so many of ours, and then every so
        // many.
        let every = (policy.sector_bytes / SECTOR_BYTES).max(1);
        let first = every - torn.first_sector % every;
        let cuts = u64::from(torn.sectors)
            .saturating_sub(first)
            .div_ceil(every);
        let by_chance = cuts > policy.tears_max;
        for cut in draw(cuts, policy.tears_max, random) {
            let sectors = u32::try_from(first + cut * every).expect("a number of sectors");
            candidates.push((Pattern::Head(change, sectors), by_chance));
            candidates.push((Pattern::Tail(change, sectors), by_chance));
        }
    }

    /// Leaves out what equals something that can be found as early or, if there is a next stretch,
    /// that one's beginning; of a stretch with too many sectors to compare, nothing but what is too
    /// much to be tried.
    fn prune(
        &self,
        mut candidates: Vec<(Pattern, bool)>,
        is_last: bool,
        random: &mut Random,
    ) -> Found {
        candidates.sort_by_cached_key(|(pattern, _)| self.moment(pattern));
        let possible = candidates.len() as u64;
        let sectors = self.changes.iter().map(|change| u64::from(change.sectors));
        let sectors: u64 = sectors.sum();
        let affordable = (VERIFY_PRUNE_SECTORS_MAX / sectors.max(1)).max(1);
        let is_sampled = possible > affordable;
        let kept: HashSet<u64> = draw(possible, affordable, random).into_iter().collect();
        let mut numbered = (0..).zip(candidates);
        let drawn = std::iter::from_fn(|| {
            let (_, (pattern, by_chance)) = numbered.find(|(number, _)| kept.contains(number))?;
            Some((pattern, by_chance || is_sampled))
        });
        let mut found = Found {
            patterns: Vec::new(),
            possible: kept.len() as u64,
        };
        if sectors > KEY_SECTORS_MAX {
            found.patterns.extend(drawn);
            return found;
        }
        let keys = Keys::new(self);
        let mut seen = HashSet::new();
        let whole = Pattern::Prefix(self.changes.len() as u32);
        let has_next = !is_last && !self.changes.is_empty();
        let next = has_next.then(|| (keys.of(&whole), self.moment(&whole)));
        for (pattern, by_chance) in drawn {
            let key = keys.of(&pattern);
            if next != Some((key, self.moment(&pattern))) && seen.insert(key) {
                found.patterns.push((pattern, by_chance));
            }
        }
        found
    }
}

/// At most `count` different numbers below `end`, in rising order.
fn draw(end: u64, count: u64, random: &mut Random) -> Vec<u64> {
    if end <= count {
        return (0..end).collect();
    }
    // Floyd's way: each choice of `count` numbers is equally likely, in `count` steps.
    let mut chosen = std::collections::BTreeSet::new();
    for top in end - count..end {
        let number = random.below(top + 1);
        if !chosen.insert(number) {
            chosen.insert(top);
        }
    }
    chosen.into_iter().collect()
}

/// The pair with this number, in rising order: (0,1), (0,2), (1,2), (0,3), ...
pub(super) fn pair_of(number: u64) -> Vec<u32> {
    let mut high = ((2 * number) as f64).sqrt() as u64;
    // The root is near; the right row has its first number at or below.
    while high * (high + 1) / 2 > number {
        high -= 1;
    }
    while (high + 1) * (high + 2) / 2 <= number {
        high += 1;
    }
    let low = number - high * (high + 1) / 2;
    vec![low as u32, high as u32 + 1]
}

/// Makes keys of a stretch's states.
struct Keys {
    /// For each change, for each of its sectors: its place in `before`, and what it adds to a key.
    changes: Vec<Vec<(u32, u128)>>,
    /// How many sectors are ever changed.
    places: usize,
}

impl Keys {
    /// Of a stretch with at most [`KEY_SECTORS_MAX`] sectors: each takes memory.
    fn new(stretch: &Stretch) -> Self {
        let mut places: HashMap<u64, (u32, u128)> = HashMap::new();
        let mut before = [0; SECTOR_BYTES as usize];
        let mut keys = Self {
            changes: Vec::with_capacity(stretch.changes.len()),
            places: 0,
        };
        for change in &stretch.changes {
            let mut parts = Vec::with_capacity(change.sectors as usize);
            for number in 0..change.sectors {
                let sector = change.first_sector + u64::from(number);
                let next = places.len() as u32;
                let (place, old) = *places.entry(sector).or_insert_with(|| {
                    stretch.base.read_at(sector * SECTOR_BYTES, &mut before);
                    (next, digest(sector, &before))
                });
                // How a sector was adds nothing, so that a state which changes nothing has key 0.
                let new = digest(sector, change.sector(number));
                parts.push((place, if new == old { 0 } else { new }));
            }
            keys.changes.push(parts);
        }
        keys.places = places.len();
        keys
    }

    fn of(&self, pattern: &Pattern) -> u128 {
        let mut sectors = vec![0; self.places];
        for (parts, change) in self.changes.iter().zip(0..) {
            for ((place, adds), sector) in parts.iter().zip(0..) {
                if pattern.has(change, sector) {
                    sectors[*place as usize] = *adds;
                }
            }
        }
        let add = |sum: u128, adds: &u128| sum.wrapping_add(*adds);
        sectors.iter().fold(0, add)
    }
}

/// Half of a digest of a sector's place and content.
fn digest(sector: u64, bytes: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&sector.to_le_bytes());
    hasher.update(bytes);
    let whole = hasher.finalize();
    u128::from_le_bytes(whole.as_bytes()[..16].try_into().expect("a digest has 32"))
}
