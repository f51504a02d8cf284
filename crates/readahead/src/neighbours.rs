//! Which files of a directory will be opened next, and which sibling directories listed.
//!
//! Programs that walk a tree take the entries either as the server listed them or sorted by name.
//! The client gives each entry's index in both orders; the one in which the last two steps went
//! forward by one is the one that the program follows. A step may leave out a few entries (a
//! program that wants `*.c`). After two steps the next `k` entries are named, once each; `k` is
//! twice the steps made so far, up to what the caller allows, and nothing after a step that
//! contradicts. So the number under way triples each round trip, and a program that stops early
//! costs at most twice the fetches that it made use of, and four.
//!
//! Listings are small, and a tree is walked or it is not: after one step forward among
//! subdirectories as many are named as the caller allows, which is what the line holds in one round
//! trip. A program that stops early costs that one round trip of the line.
//!
//! Source: the paper measures one large file (section 3.1); over distance small files suffer more.

use std::ops::Range;

/// Entries that a step may leave out and still count as forward.
const SKIP_MAX: usize = 4;
/// Entries named ahead at least, once an order is known.
const AHEAD_MIN: usize = 4;

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
#[derive(Clone, Debug)]
struct Forecast {
    /// Steps forward before anything is named.
    patience: u32,
    /// Name as many as allowed at once.
    eager: bool,
    listed: Walk,
    sorted: Walk,
    /// Order that `named_until` counts in, while a forecast stands.
    order: Option<Order>,
    /// First index not named yet.
    named_until: usize,
}

impl Forecast {
    fn new(patience: u32, eager: bool) -> Self {
        Self {
            patience,
            eager,
            listed: Walk::default(),
            sorted: Walk::default(),
            order: None,
            named_until: 0,
        }
    }

    fn on_step(&mut self, listed: usize, sorted: usize) -> bool {
        let forward = [self.listed.step(listed), self.sorted.step(sorted)];
        let kept = match self.order {
            Some(Order::Listed) => forward[0],
            Some(Order::Sorted) => forward[1],
            None => true,
        };
        if !kept {
            self.order = None;
        }
        if self.order.is_none() {
            let walks = [(Order::Sorted, self.sorted), (Order::Listed, self.listed)];
            let patience = self.patience;
            let mut walks = walks.into_iter();
            let Some((order, walk)) = walks.find(|(_, walk)| walk.steps >= patience) else {
                return kept;
            };
            self.order = Some(order);
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
        let grown = (2 * walk.steps as usize).max(AHEAD_MIN);
        let ahead = if self.eager {
            count_max
        } else {
            grown.min(count_max)
        };
        let start = self.named_until.max(position);
        let end = position.saturating_add(ahead).min(len);
        if start >= end {
            return None;
        }
        self.named_until = end;
        Some((order, start..end))
    }
}

/// What is read next in one directory. See the module head.
#[derive(Clone, Debug)]
pub struct Neighbours {
    files: Forecast,
    directories: Forecast,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self::new()
    }
}

impl Neighbours {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            files: Forecast::new(2, false),
            directories: Forecast::new(1, true),
        }
    }

    /// The file with these indexes was opened. Both count the directory's *files* alone, from zero:
    /// `listed` as the server listed them, `sorted` by name. Returns `false` if that contradicts
    /// the files named so far: those not opened yet will hardly be used.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Opens the files in the order given; returns how many had been named before.
    fn foreseen(opens: &[(usize, usize)], order: Order, len: usize) -> (usize, usize) {
        let mut neighbours = Neighbours::new();
        let mut named = BTreeSet::new();
        let mut foreseen = 0;
        for &(listed, sorted) in opens {
            let index = if order == Order::Listed {
                listed
            } else {
                sorted
            };
            foreseen += usize::from(named.contains(&index));
            neighbours.on_open(listed, sorted);
            while let Some((found, range)) = neighbours.next_files(len, 256) {
                assert!(range.end <= len && !range.is_empty());
                for index in range {
                    let new = named.insert(index);
                    assert!(new || found != order, "{index} named twice");
                }
            }
        }
        (foreseen, named.len())
    }

    /// A permutation: the sorted place of each listed file.
    fn sorted_place(listed: usize) -> usize {
        listed * 7919 % 2000
    }

    #[test]
    fn files_opened_in_listing_order_are_named_from_the_third_on() {
        let opens: Vec<_> = (0..2000)
            .map(|listed| (listed, sorted_place(listed)))
            .collect();
        let (foreseen, named) = foreseen(&opens, Order::Listed, 2000);
        assert_eq!((foreseen, named), (1997, 1997));
    }

    #[test]
    fn files_opened_by_name_are_named_from_the_third_on() {
        let mut opens: Vec<_> = (0..2000)
            .map(|listed| (listed, sorted_place(listed)))
            .collect();
        opens.sort_by_key(|&(_, sorted)| sorted);
        assert_eq!(foreseen(&opens, Order::Sorted, 2000), (1997, 1997));
    }

    #[test]
    fn a_program_that_leaves_out_some_files_is_followed() {
        let opens: Vec<_> = (0..600).map(|at| (at * 3, sorted_place(at * 3))).collect();
        let (foreseen, _) = foreseen(&opens, Order::Listed, 2000);
        assert!(foreseen >= 590, "{foreseen}");
    }

    #[test]
    fn random_opens_name_next_to_nothing() {
        let opens: Vec<_> = (0..2000)
            .map(|at| (at * 1103 % 2000, sorted_place(at) * 3 % 2000))
            .collect();
        let (_, named) = foreseen(&opens, Order::Listed, 2000);
        assert!(named <= 40, "{named} of 2000 files named");
    }

    #[test]
    fn a_walk_that_ends_early_names_at_most_twice_what_it_used() {
        for used in 3..200 {
            let opens: Vec<_> = (0..used)
                .map(|listed| (listed, sorted_place(listed)))
                .collect();
            let (foreseen, named) = foreseen(&opens, Order::Listed, 2000);
            let in_vain = named - foreseen;
            assert!(
                in_vain <= 2 * used + 4,
                "{used} opened, {in_vain} named in vain"
            );
        }
    }

    #[test]
    fn a_step_back_ends_the_forecast_and_says_so() {
        let mut neighbours = Neighbours::new();
        assert!((0..5).all(|at| neighbours.on_open(at, 1999 - at)));
        assert!(neighbours.next_files(2000, 64).is_some());
        assert!(!neighbours.on_open(1000, 7));
        assert_eq!(neighbours.next_files(2000, 64), None);
    }

    #[test]
    fn sibling_directories_are_named_on_their_own() {
        let mut neighbours = Neighbours::new();
        for at in 0..3 {
            neighbours.on_list(at, 50 + at);
            neighbours.on_open(at * 100, at * 17);
        }
        assert_eq!(
            neighbours.next_directories(100, 8),
            Some((Order::Sorted, 53..61)),
            "a walk is given as many as the line holds"
        );
        assert_eq!(neighbours.next_directories(100, 8), None);
        assert_eq!(neighbours.next_files(100, 8), None);
    }

    #[test]
    fn one_step_among_subdirectories_shows_a_walk_and_a_contradiction_ends_it() {
        let mut neighbours = Neighbours::new();
        neighbours.on_list(0, 0);
        assert_eq!(neighbours.next_directories(100, 64), None);
        neighbours.on_list(1, 57);
        assert_eq!(
            neighbours.next_directories(100, 64),
            Some((Order::Listed, 2..66))
        );
        assert!(!neighbours.on_list(90, 3));
        assert_eq!(neighbours.next_directories(100, 64), None);
    }
}
