//! What the calendar is compared with: static segment trees in flat arrays, one of seconds and one
//! of minutes, range maximum and range addition without pushing marks down.
//!
//! 2^20 seconds are twelve days, 2^20 minutes two years. A minute that is partly covered counts
//! whole, and what lies beyond two years is counted in the last minute. Rolling over from minutes
//! to seconds is left out: it would only add to the cost.

/// Leaves of each tree.
const LEAVES: usize = 1 << 20;

/// One tree: for every node what was added to all of it, and the most below it.
#[derive(Debug)]
struct Tree {
    nodes: Vec<(u32, u32)>,
}

impl Tree {
    fn new() -> Self {
        Self {
            nodes: vec![(0, 0); 2 * LEAVES],
        }
    }

    fn peak(&self, (node, first, len): (usize, usize, usize), from: usize, to: usize) -> u32 {
        let (added, most) = self.nodes[node];
        if from <= first && first + len <= to {
            return added + most;
        }
        let half = len / 2;
        let mut peak = 0;
        if from < first + half {
            peak = self.peak((2 * node, first, half), from, to);
        }
        if to > first + half {
            peak = peak.max(self.peak((2 * node + 1, first + half, half), from, to));
        }
        added + peak
    }

    fn add(
        &mut self,
        (node, first, len): (usize, usize, usize),
        from: usize,
        to: usize,
        delta: i32,
    ) {
        if from <= first && first + len <= to {
            self.nodes[node].0 = self.nodes[node].0.wrapping_add_signed(delta);
            return;
        }
        let half = len / 2;
        if from < first + half {
            self.add((2 * node, first, half), from, to, delta);
        }
        if to > first + half {
            self.add((2 * node + 1, first + half, half), from, to, delta);
        }
        let below = |child: usize| self.nodes[child].0 + self.nodes[child].1;
        self.nodes[node].1 = below(2 * node).max(below(2 * node + 1));
    }
}

/// Both trees, from a moment on.
#[derive(Debug)]
pub(crate) struct Segments {
    now: u64,
    capacity: u32,
    seconds: Tree,
    minutes: Tree,
}

const ROOT: (usize, usize, usize) = (1, 0, LEAVES);

impl Segments {
    pub(crate) fn new(now: u64, capacity: u32) -> Self {
        Self {
            now,
            capacity,
            seconds: Tree::new(),
            minutes: Tree::new(),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        2 * self.seconds.nodes.capacity() * size_of::<(u32, u32)>()
    }

    /// The leaves of both trees; empty where an interval does not reach.
    fn leaves(&self, (start, end): (u64, u64)) -> [(usize, usize); 2] {
        let (start, end) = (start - self.now, end - self.now);
        let near = LEAVES as u64;
        let minutes = (start.max(near) / 60, end.div_ceil(60).min(near));
        let minutes = (minutes.0.min(near - 1) as usize, minutes.1 as usize);
        let seconds = (start.min(near) as usize, end.min(near) as usize);
        let is_far = end > near;
        [seconds, if is_far { minutes } else { (0, 0) }]
    }

    pub(crate) fn take(&mut self, interval: (u64, u64), amount: u32) -> bool {
        let leaves = self.leaves(interval);
        let peak = [&self.seconds, &self.minutes].into_iter().zip(leaves);
        let peak = peak.map(|(tree, (from, to))| match from < to {
            true => tree.peak(ROOT, from, to),
            false => 0,
        });
        let fits = peak.max().unwrap_or(0) + amount <= self.capacity;
        if fits {
            self.raise(interval, amount.cast_signed());
        }
        fits
    }

    pub(crate) fn give_back(&mut self, interval: (u64, u64), amount: u32) {
        self.raise(interval, -amount.cast_signed());
    }

    fn raise(&mut self, interval: (u64, u64), delta: i32) {
        let leaves = self.leaves(interval);
        for (tree, (from, to)) in [&mut self.seconds, &mut self.minutes]
            .into_iter()
            .zip(leaves)
        {
            if from < to {
                tree.add(ROOT, from, to, delta);
            }
        }
    }
}
