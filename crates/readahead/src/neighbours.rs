//! Which files of a directory will be opened next, and which sibling directories listed.
//!
//! Programs that walk a tree take the entries either as the server listed them or sorted by name.
//! The client gives each entry's index in both orders; the one in which the last two steps went
//! forward by one is the one that the program follows. A step may leave out a few entries (a program
//! that wants `*.c`). After two steps the next `k` entries are named, once each; `k` doubles with
//! every step that was foreseen, up to what the caller allows, and falls back to nothing when a step
//! contradicts. So a program that stops early costs at most as many fetches as it made use of.
//!
//! Source: paper section 5 leaves metadata open; see `docs/performance.md` for the small-file rows.

use std::ops::Range;

/// Entries that a step may leave out and still count as forward.
const SKIP_MAX: usize = 4;
/// Entries named after the first two steps.
const AHEAD_INITIAL: usize = 4;

/// The order in which a program goes through a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the server listed the entries.
    Listed,
    /// Sorted by name, bytewise.
    Sorted,
}

/// Progress along one order.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    last: Option<usize>,
    /// Steps forward in a row.
    steps: u32,
}

impl Walk {
    /// Whether the step to `index` went forward.
    fn step(&mut self, index: usize) -> bool {
        let forward = self
            .last
            .is_some_and(|last| index > last && index - last <= 1 + SKIP_MAX);
        let again = self.last == Some(index);
        self.last = Some(index);
        if forward {
            self.steps = self.steps.saturating_add(1);
        } else if !again {
            self.steps = 0;
        }
        forward || again
    }
}

/// One kind of step through one directory: opening files, or listing subdirectories.
#[derive(Clone, Debug, Default)]
struct Forecast {
    listed: Walk,
    sorted: Walk,
    ahead: usize,
    /// Order that `named_until` counts in, while a forecast stands.
    order: Option<Order>,
    /// First index not named yet.
    named_until: usize,
}

impl Forecast {
    fn on_step(&mut self, listed: usize, sorted: usize) -> bool {
        let forward = [self.listed.step(listed), self.sorted.step(sorted)];
        let kept = match self.order {
            Some(Order::Listed) => forward[0],
            Some(Order::Sorted) => forward[1],
            None => true,
        };
        if !kept {
            self.order = None;
            self.ahead = 0;
        } else if self.order.is_some() {
            self.ahead = self.ahead.saturating_mul(2);
        }
        if self.order.is_none() {
            let walks = [(Order::Sorted, self.sorted), (Order::Listed, self.listed)];
            let Some((order, walk)) = walks.into_iter().find(|(_, walk)| walk.steps >= 2) else {
                return kept;
            };
            self.order = Some(order);
            self.ahead = AHEAD_INITIAL;
            self.named_until = walk.last.map_or(0, |last| last + 1);
        }
        kept
    }

    fn next(&mut self, len: usize, count_max: usize) -> Option<(Order, Range<usize>)> {
        let order = self.order?;
        let walk = if order == Order::Listed {
            self.listed
        } else {
            self.sorted
        };
        let position = walk.last? + 1;
        // Without the cap here a long walk would double the count beyond sense.
        self.ahead = self.ahead.min(count_max.max(1));
        let start = self.named_until.max(position);
        let end = position.saturating_add(self.ahead.min(count_max)).min(len);
        if start >= end {
            return None;
        }
        self.named_until = end;
        Some((order, start..end))
    }
}

/// What is read next in one directory. See the module head.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    files: Forecast,
    directories: Forecast,
}

impl Neighbours {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The file with these indexes was opened. Both count the directory's *files* alone, from zero:
    /// `listed` as the server listed them, `sorted` by name. Returns `false` if that contradicts the
    /// files named so far: those not opened yet will hardly be used.
    pub fn on_open(&mut self, listed: usize, sorted: usize) -> bool {
        self.files.on_step(listed, sorted)
    }

    /// The subdirectory with these indexes, which count the directory's *subdirectories* alone, was
    /// listed. Returns as [`on_open`](Self::on_open).
    pub fn on_list(&mut self, listed: usize, sorted: usize) -> bool {
        self.directories.on_step(listed, sorted)
    }

    /// Files to fetch whole now, each named once: at most those within `count_max` of the last
    /// opened. `len` is the number of files of the directory; `count_max` the window divided by
    /// their mean size.
    pub fn next_files(&mut self, len: usize, count_max: usize) -> Option<(Order, Range<usize>)> {
        self.files.next(len, count_max)
    }

    /// Subdirectories to list ahead, as [`next_files`](Self::next_files); `len` is their number.
    pub fn next_directories(
        &mut self,
        len: usize,
        count_max: usize,
    ) -> Option<(Order, Range<usize>)> {
        self.directories.next(len, count_max)
    }
}
