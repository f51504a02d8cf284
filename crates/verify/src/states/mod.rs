//! Crash states: what a disk may be found as, made from a log.
//!
//! A log is cut at its flushes into stretches. Whatever a loss of power may leave in the middle of
//! a stretch it may leave at its end as well, before the flush, so states are made there. But what
//! had been said differs: at the end more has been promised, so more must be there, and more has
//! been begun, so more may be gone. A state is judged at every moment at which power can be lost
//! so, from when the last of its changes was made to the end ([`Plan::said`]). Of the changes of
//! one stretch these sets arrive:
//!
//! | pattern | arrives |
//! |---|---|
//! | prefix | the first so many; none of them is "everything since the flush is lost" |
//! | without | all but one |
//! | head, tail | the first so many, and of the next one only its first sectors, or all but those |
//! | pair | all but two, drawn by chance |
//!
//! A stretch whose changes all arrived is the next one with none of them, where more is promised;
//! it is taken there. Other states that have equal bytes in every sector are one: that which can
//! be found first, which is judged at all moments of the others. How many were left out so is
//! counted ([`Plan::pruned`]), and so is what was left to chance ([`Plan::by_chance`]).
//!
//! Why not `sim::CrashDisk`: it chooses sector by sector, which is the whole set for the few
//! sectors of a unit test and would draw most states of a file system by chance. Here the sets are
//! those in which disks are known to fail, gone through completely, and a state can be named in a
//! few words.

mod stretch;
#[cfg(test)]
mod tests;

use crate::log::Entry;
use base::limits::{VERIFY_PAIRS_MAX, VERIFY_TEARS_MAX};
use sim::{Image, Random};
use std::collections::HashSet;
use std::fmt;
use stretch::{Found, Stretch};

/// The unit of changes, in bytes, and the smallest of tearing.
pub const SECTOR_BYTES: u64 = 512;

/// Which states to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Of what is left to chance.
    pub seed: u64,
    /// What the disk keeps whole when power is lost, in bytes: writes are torn at its borders. A
    /// multiple of [`SECTOR_BYTES`].
    pub sector_bytes: u64,
    /// Tears of one write; of a write with more sectors so many are drawn. 0: none.
    pub tears_max: u64,
    /// Pairs of changes that are left out of a stretch. 0: none.
    pub pairs_max: u64,
}

impl Policy {
    /// As many as the limits allow, of a disk that tears at 512 bytes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            sector_bytes: SECTOR_BYTES,
            tears_max: VERIFY_TEARS_MAX,
            pairs_max: VERIFY_PAIRS_MAX,
        }
    }
}

/// Which changes of a stretch arrive. Changes are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// The first so many.
    Prefix(u32),
    /// All but this one.
    Without(u32),
    /// All before this one, and its first so many sectors.
    Head(u32, u32),
    /// All before this one, and it without its first so many sectors.
    Tail(u32, u32),
    /// All but these, in rising order: pairs, and what a failure was reduced to.
    Missing(Vec<u32>),
    /// These alone, in rising order: what a failure was reduced to.
    Only(Vec<u32>),
}

impl Pattern {
    /// Whether a sector of a change arrives.
    fn has(&self, change: u32, sector: u32) -> bool {
        match self {
            Self::Prefix(end) => change < *end,
            Self::Without(missing) => change != *missing,
            Self::Head(torn, sectors) => change < *torn || (change == *torn && sector < *sectors),
            Self::Tail(torn, sectors) => change < *torn || (change == *torn && sector >= *sectors),
            Self::Missing(missing) => missing.binary_search(&change).is_err(),
            Self::Only(there) => there.binary_search(&change).is_ok(),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |numbers: &[u32]| {
            let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
            words.join(",")
        };
        match self {
            Self::Prefix(end) => write!(f, "prefix:{end}"),
            Self::Without(missing) => write!(f, "without:{missing}"),
            Self::Head(torn, sectors) => write!(f, "head:{torn}:{sectors}"),
            Self::Tail(torn, sectors) => write!(f, "tail:{torn}:{sectors}"),
            Self::Missing(missing) => write!(f, "missing:{}", list(missing)),
            Self::Only(there) => write!(f, "only:{}", list(there)),
        }
    }
}

/// A state by name: its stretch, counted from 0, and what of it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The stretch.
    pub stretch: u32,
    /// What arrived.
    pub pattern: Pattern,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stretch, self.pattern)
    }
}

impl std::str::FromStr for State {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a state is written as 3/prefix:5, 3/without:2 or 3/head:4:1";
        let number = |text: &str| text.parse::<u32>().map_err(|_| WRONG);
        let (stretch, pattern) = text.split_once('/').ok_or(WRONG)?;
        let (name, rest) = pattern.split_once(':').ok_or(WRONG)?;
        let torn = || -> Result<(u32, u32), Self::Err> {
            let (change, sectors) = rest.split_once(':').ok_or(WRONG)?;
            Ok((number(change)?, number(sectors)?))
        };
        let list = || -> Result<Vec<u32>, Self::Err> {
            let words = rest.split(',').filter(|word| !word.is_empty());
            let numbers: Vec<u32> = words.map(number).collect::<Result<_, _>>()?;
            let is_rising = numbers.windows(2).all(|pair| pair[0] < pair[1]);
            is_rising.then_some(numbers).ok_or(WRONG)
        };
        let pattern = match name {
            "prefix" => Pattern::Prefix(number(rest)?),
            "without" => Pattern::Without(number(rest)?),
            "head" => torn().map(|(change, sectors)| Pattern::Head(change, sectors))?,
            "tail" => torn().map(|(change, sectors)| Pattern::Tail(change, sectors))?,
            "missing" => Pattern::Missing(list()?),
            "only" => Pattern::Only(list()?),
            _ => return Err(WRONG),
        };
        let stretch = number(stretch)?;
        Ok(Self { stretch, pattern })
    }
}

/// What had been said when power was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The last step that had begun; 0 if none.
    pub begun: u32,
    /// The last step that was done; 0 if none.
    pub done: u32,
}

/// The crash states of one log.
#[derive(Clone, Debug)]
pub struct Plan {
    stretches: Vec<Stretch>,
    states: Vec<State>,
    possible: u64,
    pruned: u64,
    drawn: HashSet<State>,
}

impl Plan {
    /// Finds the states of `entries`, which happened to a device with this content.
    ///
    /// # Panics
    /// If an entry is not on the device.
    #[must_use]
    pub fn new(base: &Image, entries: &[Entry], policy: &Policy) -> Self {
        let stretches = stretch::cut(base, entries);
        let mut plan = Self {
            stretches,
            states: Vec::new(),
            possible: 0,
            pruned: 0,
            drawn: HashSet::new(),
        };
        let last = plan.stretches.len() - 1;
        for (number, stretch) in plan.stretches.iter().enumerate() {
            let mut random = Random::new(policy.seed ^ (number as u64).rotate_left(32));
            let Found { patterns, possible } =
                stretch.patterns(policy, number == last, &mut random);
            plan.possible += possible;
            plan.pruned += possible - patterns.len() as u64;
            for (pattern, by_chance) in patterns {
                let stretch = number as u32;
                let state = State { stretch, pattern };
                if by_chance {
                    plan.drawn.insert(state.clone());
                }
                plan.states.push(state);
            }
        }
        plan
    }

    /// All of them, each different from every other of its stretch, unless that has more sectors
    /// than can be compared.
    #[must_use]
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// How many patterns there were before equal states were left out.
    #[must_use]
    pub fn possible(&self) -> u64 {
        self.possible
    }

    /// How many were left out because another state has the same bytes.
    #[must_use]
    pub fn pruned(&self) -> u64 {
        self.pruned
    }

    /// How many of the states were drawn by chance.
    #[must_use]
    pub fn by_chance(&self) -> u64 {
        self.drawn.len() as u64
    }

    /// Whether a state was drawn by chance.
    #[must_use]
    pub fn is_by_chance(&self, state: &State) -> bool {
        self.drawn.contains(state)
    }

    /// At most `count` of the states: all of them in their order, or as many drawn. These are in an
    /// order by chance as well, so that whoever stops early has a sample of the whole log and not
    /// its beginning.
    #[must_use]
    pub fn sample(&self, count: u64, seed: u64) -> Vec<State> {
        let mut left = self.states.len() as u64;
        if count >= left {
            return self.states.clone();
        }
        // Each is taken with the chance that makes every choice of `count` equally likely.
        let (mut random, mut wanted) = (Random::new(seed), count);
        let mut chosen = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        for state in &self.states {
            if random.below(left) < wanted {
                chosen.push(state.clone());
                wanted -= 1;
            }
            left -= 1;
        }
        // Fisher and Yates: each order is equally likely.
        for end in (1..chosen.len()).rev() {
            let at = random.below(end as u64 + 1);
            chosen.swap(end, usize::try_from(at).expect("below a length"));
        }
        chosen
    }

    /// The disk of a state; `None` if the log has no such stretch.
    #[must_use]
    pub fn image(&self, state: &State) -> Option<Image> {
        let stretch = self.stretches.get(state.stretch as usize)?;
        Some(stretch.image(&state.pattern))
    }

    /// What had been said at each moment at which power can be lost in this state, as far as it
    /// makes a difference; the last one is the end of its stretch. Empty if there is no such.
    #[must_use]
    pub fn said(&self, state: &State) -> &[Said] {
        let stretch = self.stretches.get(state.stretch as usize);
        stretch.map_or(&[], |stretch| stretch.said(&state.pattern))
    }

    /// How many changes the stretch of a state has.
    #[must_use]
    pub fn change_count(&self, state: &State) -> u32 {
        let stretch = self.stretches.get(state.stretch as usize);
        stretch.map_or(0, |stretch| stretch.changes.len() as u32)
    }

    /// Which changes of its stretch do not, or not wholly, arrive in a state.
    #[must_use]
    pub fn missing(&self, state: &State) -> Vec<u32> {
        let Some(stretch) = self.stretches.get(state.stretch as usize) else {
            return Vec::new();
        };
        let changes = stretch.changes.iter().zip(0..);
        let lacks = changes.filter(|(change, number)| {
            (0..change.sector_count()).any(|sector| !state.pattern.has(*number, sector))
        });
        lacks.map(|(_, number)| number).collect()
    }

    /// Where a change of a state's stretch is: offset and length in bytes.
    #[must_use]
    pub fn place(&self, state: &State, change: u32) -> Option<(u64, u64)> {
        let stretch = self.stretches.get(state.stretch as usize)?;
        let change = stretch.changes.get(change as usize)?;
        Some((
            change.first_sector * SECTOR_BYTES,
            u64::from(change.sector_count()) * SECTOR_BYTES,
        ))
    }
}
