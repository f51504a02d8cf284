//! The crash states of one stretch between two flushes.
//!
//! Every state is one choice per sector: what is certain, or one of the versions that were written
//! since. Choosing sector by sector is the whole set: torn writes, lost writes and any order of
//! arrival come to the same choices, each once, because equal versions of a sector are one choice.
//!
//! States are only taken at the end of a stretch. What power loss may leave in its middle it may
//! leave at its end as well, and at the end more has been acknowledged, so more must be there.
//!
//! A state is known by its index alone, chance included, so it can be made again without those
//! before it. The families, in this order:
//!
//! | window | states |
//! |---|---|
//! | at most `exhaustive_states_max` states in all | each of them, once |
//! | few enough changes | every subset of whole changes |
//! | more | every prefix; each change missing alone; each change there alone |
//! | both of these | every prefix with its last change torn in three ways; sampled subsets |

use super::image::Image;
use super::log::{Certainty, SECTOR_BYTES, Version};
use super::states::Policy;
use crate::Random;
use std::collections::BTreeMap;

/// Ways to tear the last change of a prefix: only its head, only its tail, any half.
const TEARS: u64 = 3;

/// Which choice each sector of a window takes, in the window's order of sectors.
pub(super) type Choices = Vec<u32>;

/// The choice of a sector at one end of the window.
type End = fn(&Sector) -> u32;

#[derive(Debug)]
pub(super) struct Window {
    /// How many operations had returned when the stretch ended.
    pub(super) position: u64,
    settled: Image,
    /// With every change of the stretch.
    full: Image,
    sectors: Vec<Sector>,
    changes: Vec<Pending>,
    families: Vec<(Family, u64)>,
}

/// A sector that is not certain.
#[derive(Debug)]
struct Sector {
    number: u64,
    /// What it may be, oldest first; choice 0 is what is certain and is not listed.
    versions: Vec<Version>,
    /// For every choice, the newest operation of the window that left the sector so.
    positions: Vec<Option<u64>>,
    newest: u32,
}

/// One operation's part in a window.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) position: u64,
    /// Index into the window's sectors, and the choice that this change made.
    parts: Vec<(usize, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Exact,
    Subsets,
    Prefixes,
    OneMissing,
    OneAlone,
    Torn,
    Sampled,
}

impl Window {
    pub(super) fn new(position: u64, certainty: &Certainty, policy: &Policy) -> Self {
        let mut full = certainty.image.clone();
        let mut sectors = Vec::with_capacity(certainty.pending.len());
        let mut parts: BTreeMap<u64, Vec<(usize, u32)>> = BTreeMap::new();
        for (&number, versions) in &certainty.pending {
            let sector = Sector::new(number, versions, &certainty.image, |position, choice| {
                parts
                    .entry(position)
                    .or_default()
                    .push((sectors.len(), choice));
            });
            sector.write(&mut full, sector.newest);
            sectors.push(sector);
        }
        let changes = parts.into_iter();
        let mut window = Self {
            position,
            settled: certainty.image.clone(),
            full,
            sectors,
            changes: changes
                .map(|(position, parts)| Pending { position, parts })
                .collect(),
            families: Vec::new(),
        };
        window.families = window.plan(policy);
        window
    }

    pub(super) fn state_count(&self) -> u64 {
        self.families
            .iter()
            .fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
    }

    fn plan(&self, policy: &Policy) -> Vec<(Family, u64)> {
        let max = policy.exhaustive_states_max;
        let choices = self
            .sectors
            .iter()
            .map(|sector| sector.versions.len() as u64 + 1);
        let exact = choices.fold(1, u64::saturating_mul);
        if exact <= max.max(1) {
            return vec![(Family::Exact, exact)];
        }
        let changes = self.changes.len() as u64;
        let mut families = match 1u64.checked_shl(u32::try_from(changes).unwrap_or(u32::MAX)) {
            Some(subsets) if subsets <= max => vec![(Family::Subsets, subsets)],
            _ => vec![
                (Family::Prefixes, changes + 1),
                (Family::OneMissing, changes),
                (Family::OneAlone, changes),
            ],
        };
        let tearable = self.tearable().count() as u64;
        families.push((Family::Torn, tearable * TEARS));
        families.push((Family::Sampled, policy.sampled_states));
        families
    }

    /// The changes with more than one sector.
    fn tearable(&self) -> impl Iterator<Item = usize> {
        (0..self.changes.len()).filter(|&change| self.changes[change].parts.len() > 1)
    }

    /// The choices of state `index`, which must be below [`Self::state_count`].
    pub(super) fn choices(&self, policy: &Policy, index: u64) -> Choices {
        let mut random = Random::new(policy.seed ^ self.position.rotate_left(40) ^ index);
        let mut rest = index;
        for &(family, count) in &self.families {
            if rest < count {
                return self.choices_of(family, rest, &mut random);
            }
            rest -= count;
        }
        unreachable!("state {index} of a window of {}", self.state_count())
    }

    fn choices_of(&self, family: Family, index: u64, random: &mut Random) -> Choices {
        let changes = self.changes.len();
        let which = index as usize;
        match family {
            Family::Exact => {
                let mut rest = index;
                let mut digit = |sector: &Sector| {
                    let base = sector.versions.len() as u64 + 1;
                    let digit = (rest % base) as u32;
                    rest /= base;
                    digit
                };
                self.sectors.iter().map(&mut digit).collect()
            }
            Family::Subsets => self.with(|change, _| index >> change & 1 == 1),
            Family::Prefixes => self.with(|change, _| change < which),
            Family::OneMissing => self.with(|change, _| change != which % changes),
            Family::OneAlone => self.with(|change, _| change == which % changes),
            Family::Torn => {
                let torn = self
                    .tearable()
                    .nth(which / TEARS as usize)
                    .expect("counted");
                let cut = random.within(1..self.changes[torn].parts.len() as u64) as usize;
                self.with(|change, part| match index % TEARS {
                    _ if change != torn => change < torn,
                    0 => part < cut,
                    1 => part >= cut,
                    _ => random.chance(0.5),
                })
            }
            Family::Sampled => self.sample(random),
        }
    }

    /// Much, little or half of what was written, up to some point or all of it, in whole changes
    /// or sector by sector.
    fn sample(&self, random: &mut Random) -> Choices {
        let density = *random.pick(&[0.1, 0.5, 0.9]);
        let by_sector = random.chance(0.5);
        let end = match random.chance(0.5) {
            true => self.changes.len(),
            false => random.below(self.changes.len() as u64 + 1) as usize,
        };
        let mut whole = false;
        self.with(|change, part| {
            if part == 0 || by_sector {
                whole = random.chance(density);
            }
            whole && change < end
        })
    }

    /// The choices if exactly those parts of changes that `is_there` names (number of the change,
    /// number of its sector) arrived, in their order.
    fn with(&self, mut is_there: impl FnMut(usize, usize) -> bool) -> Choices {
        let mut choices = vec![0; self.sectors.len()];
        for (number, change) in self.changes.iter().enumerate() {
            for (part, &(sector, choice)) in change.parts.iter().enumerate() {
                if is_there(number, part) {
                    choices[sector] = choice;
                }
            }
        }
        choices
    }

    /// The disk with these choices, made from whichever end is nearer.
    pub(super) fn image(&self, choices: &[u32]) -> Image {
        let differ = |from: End| {
            let pairs = self.sectors.iter().zip(choices);
            pairs.filter(move |(sector, choice)| from(sector) != **choice)
        };
        let (settled, newest): (End, End) = (|_| 0, |sector| sector.newest);
        let (mut image, from) = if differ(settled).count() <= differ(newest).count() {
            (self.settled.clone(), settled)
        } else {
            (self.full.clone(), newest)
        };
        for (sector, &choice) in differ(from) {
            if choice == 0 {
                let mut certain = [0; SECTOR_BYTES];
                self.settled.read_at(sector.offset(), &mut certain);
                image.write_at(sector.offset(), &certain);
            } else {
                sector.write(&mut image, choice);
            }
        }
        image
    }

    /// The changes that are not wholly there with these choices: which, its sectors, and how many
    /// of them are missing. A sector that something newer has overwritten is not missing.
    pub(super) fn lacks<'a>(
        &'a self,
        choices: &'a [u32],
    ) -> impl Iterator<Item = (&'a Pending, usize, usize)> + 'a {
        let lacks = move |change: &'a Pending| {
            let missing = change.parts.iter().filter(|(sector, _)| {
                self.sectors[*sector].positions[choices[*sector] as usize] < Some(change.position)
            });
            (change, change.parts.len(), missing.count())
        };
        self.changes
            .iter()
            .map(lacks)
            .filter(|(_, _, missing)| *missing > 0)
    }

    /// First byte that the change touches.
    pub(super) fn offset_of(&self, change: &Pending) -> u64 {
        self.sectors[change.parts[0].0].offset()
    }

    pub(super) fn change_count(&self) -> usize {
        self.changes.len()
    }
}

impl Sector {
    /// Tells `made` which choice each operation made.
    fn new(
        number: u64,
        versions: &[Version],
        settled: &Image,
        mut made: impl FnMut(u64, u32),
    ) -> Self {
        let mut sector = Self {
            number,
            versions: Vec::new(),
            positions: vec![None],
            newest: 0,
        };
        let mut certain = [0; SECTOR_BYTES];
        settled.read_at(sector.offset(), &mut certain);
        for version in versions {
            let equal = |known: &Version| known.bytes() == version.bytes();
            let choice = if version.bytes() == certain {
                0
            } else if let Some(index) = sector.versions.iter().position(equal) {
                index + 1
            } else {
                sector.versions.push(version.clone());
                sector.positions.push(None);
                sector.versions.len()
            };
            sector.positions[choice] = Some(version.position);
            sector.newest = u32::try_from(choice).expect("fewer versions than bytes of memory");
            made(version.position, sector.newest);
        }
        sector
    }

    fn offset(&self) -> u64 {
        self.number * SECTOR_BYTES as u64
    }

    /// Puts the sector into `image` as `choice`, which must not be 0, has it.
    fn write(&self, image: &mut Image, choice: u32) {
        if choice > 0 {
            image.write_at(self.offset(), self.versions[choice as usize - 1].bytes());
        }
    }
}
