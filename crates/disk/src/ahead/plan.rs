//! Plans: the chunks of one profile, in order, and how they are fetched.
//!
//! A plan is followed at once, or as soon as it is recognised: when a few of its first chunks are
//! read that are in no other plan. What file systems read at every mount is in all of them and says
//! nothing.
//!
//! Chunks of a pack are asked for in pieces, several chunks by one request. A gap of what is here
//! already is fetched along if it is short. A pack that has failed is not asked again.
//!
//! **The first pieces are short.** Each goes over a connection of its own, which is new, and what a
//! new connection carries doubles with each round trip. So pieces double, too: what is needed first
//! comes after one round trip, and not with all the rest after five.

use crate::chunk::ChunkSpec;
use crate::fetch::{Claim, Run};
use crate::index::Index;
use crate::name::FileName;
use crate::pack::{Front, Pack};
use crate::profile::Profile;
use base::Extent;
use base::limits::DISK_AHEAD_REQUESTS_MAX;
use std::collections::HashSet;

/// Chunks at the beginning by which a plan is recognised.
const SIGNS: usize = 64;
/// How many of these must be read.
const SIGNS_SEEN: usize = 3;
/// The first piece: what a connection carries in its first round trip, ten segments, less the head
/// of the answer.
const FIRST_PIECE_BYTES: u64 = 12 << 10;
/// Pieces of one length, until the next ones are twice as long.
const PIECES_OF_A_LENGTH: u32 = 2;
/// Largest piece: what a megabit takes for ten seconds.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// What is here already is fetched a second time if it is no longer than this and lies between two
/// chunks that are not: a request costs as much as some thousand bytes.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// The chunks of one profile in the order in which they will be needed.
#[derive(Clone, Debug)]
pub struct Plan {
    name: String,
    /// The pack in which they lie, unless it has failed.
    file: Option<FileName>,
    steps: Vec<Step>,
    next: usize,
    /// Pieces that were asked for.
    pieces: u32,
    /// Of the pack, behind `next`.
    left_bytes: u64,
    is_followed: bool,
    signs: HashSet<ChunkSpec>,
    signs_left: usize,
    all: HashSet<ChunkSpec>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    spec: ChunkSpec,
    /// In the pack; empty without one.
    place: Extent,
}

/// What a plan wants next.
pub(super) enum Wants {
    /// One chunk by itself.
    Chunk(Claim),
    /// Several of its pack.
    Run(Run),
}

impl Plan {
    /// Of a pack's chunks.
    #[must_use]
    pub fn of_pack(pack: &Pack, front: &Front) -> Self {
        let step = |chunk: &crate::pack::PackedChunk| Step {
            spec: chunk.spec,
            place: chunk.place,
        };
        let steps = front.chunks().iter().map(step).collect();
        Self::new(&pack.profile, Some(pack.file()), steps)
    }

    /// Of a profile that was recorded anywhere, for an image of which there is no pack.
    #[must_use]
    pub fn of_profile(profile: &Profile, index: &Index) -> Self {
        let zeros = index.zeros();
        let specs = profile.chunks(index).into_iter().map(|at| index.spec(at));
        let steps = specs
            .filter(|spec| !zeros.has(spec))
            .map(|spec| Step {
                spec,
                place: Extent::default(),
            })
            .collect();
        Self::new(profile.name(), None, steps)
    }

    fn new(name: &str, file: Option<FileName>, steps: Vec<Step>) -> Self {
        let signs: HashSet<_> = steps.iter().take(SIGNS).map(|step| step.spec).collect();
        Self {
            all: steps.iter().map(|step| step.spec).collect(),
            name: name.to_owned(),
            file,
            next: 0,
            pieces: 0,
            left_bytes: steps.iter().map(|step| step.place.len).sum(),
            steps,
            is_followed: false,
            signs_left: SIGNS_SEEN.min(signs.len()),
            signs,
        }
    }

    /// The profile's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every chunk of it.
    pub fn specs(&self) -> impl Iterator<Item = ChunkSpec> + '_ {
        self.steps.iter().map(|step| step.spec)
    }

    /// Follow it from now on, whatever is read.
    pub(super) fn follow(&mut self) {
        self.is_followed = true;
    }

    pub(super) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Whether it is followed, and leads to this chunk.
    pub(super) fn foresees(&self, spec: &ChunkSpec) -> bool {
        self.is_followed && self.all.contains(spec)
    }

    /// Bytes of the pack that have not been asked for.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// How long the next piece of the pack may be. Where nothing speaks for a shorter one, as long
    /// as it takes to have all of the pack under way at once, and `usual_bytes` at least.
    pub(super) fn piece_bytes(&self, usual_bytes: u64) -> u64 {
        let at_once = DISK_AHEAD_REQUESTS_MAX as u64;
        let share = self.left_bytes / (at_once - u64::from(self.pieces) % at_once);
        let doublings = (self.pieces / PIECES_OF_A_LENGTH).min(PIECE_BYTES_MAX.ilog2());
        let short_bytes = FIRST_PIECE_BYTES << doublings;
        share.max(usual_bytes).min(PIECE_BYTES_MAX).min(short_bytes)
    }

    /// Whether it is followed, and something of it was not asked for.
    pub(super) fn is_busy(&self) -> bool {
        self.is_followed && self.next < self.steps.len()
    }

    /// What is in other plans as well is no sign of this one. If everything is, anything is.
    pub(super) fn distinguish(plans: &mut [Self]) {
        let all: Vec<_> = plans.iter().map(|plan| plan.signs.clone()).collect();
        for (at, plan) in plans.iter_mut().enumerate() {
            let mut own = all[at].clone();
            for (other, signs) in all.iter().enumerate() {
                if other != at {
                    own.retain(|spec| !signs.contains(spec));
                }
            }
            if !own.is_empty() {
                plan.signs_left = SIGNS_SEEN.min(own.len());
                plan.signs = own;
            }
        }
    }

    /// A chunk was read that somebody asked for.
    pub(super) fn on_read(&mut self, spec: &ChunkSpec) {
        if !self.is_followed && self.signs.remove(spec) {
            self.signs_left = self.signs_left.saturating_sub(1);
            self.is_followed = self.signs_left == 0;
        }
    }

    /// The pack is not what it should be.
    pub(super) fn on_pack_failed(&mut self) {
        self.file = None;
    }

    pub(super) fn file(&self) -> Option<&FileName> {
        self.file.as_ref()
    }

    /// The next chunks, as many as fit into a piece of this length. What `claim` does not give is
    /// here, or on its way.
    pub(super) fn next(
        &mut self,
        piece_bytes: u64,
        gap_bytes_max: Option<u64>,
        claim: &dyn Fn(&ChunkSpec) -> Option<Claim>,
    ) -> Option<Wants> {
        let Some(file) = self.file.clone() else {
            let steps = &self.steps[self.next..];
            let claimed = steps
                .iter()
                .enumerate()
                .find_map(|(at, step)| claim(&step.spec).map(|claim| (at, claim)));
            self.next += claimed.as_ref().map_or(steps.len(), |(at, _)| at + 1);
            return claimed.map(|(_, claim)| Wants::Chunk(claim));
        };
        let gap_bytes_max = gap_bytes_max.unwrap_or(GAP_BYTES_MAX);
        let mut chunks: Vec<(Claim, Extent)> = Vec::new();
        let mut hull = Extent::default();
        while let Some(step) = self.steps.get(self.next) {
            let is_far = step.place.offset - hull.end().min(step.place.offset) > gap_bytes_max;
            let is_long = step.place.end() - hull.offset.min(step.place.end()) > piece_bytes;
            if !chunks.is_empty() && (is_far || is_long) {
                break;
            }
            self.next += 1;
            self.left_bytes -= step.place.len;
            if let Some(claim) = claim(&step.spec) {
                let start = if chunks.is_empty() {
                    step.place.offset
                } else {
                    hull.offset
                };
                hull = Extent::between(start, step.place.end());
                chunks.push((claim, step.place));
            }
        }
        self.pieces += u32::from(!chunks.is_empty());
        (!chunks.is_empty()).then_some(Wants::Run(Run { file, chunks }))
    }
}
