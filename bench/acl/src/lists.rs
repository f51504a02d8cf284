//! POSIX ACLs of all lengths, and how lengths are distributed.

use acl::{PosixAcl, PosixEntry, PosixWho};
use anyhow::{Context, Result};
use figures::Random;
use std::path::Path;

/// Entries of a list that a mode says.
pub(crate) const SHORTEST: u32 = 3;
/// The longest that ext4 and a mount take, with room to spare.
const LONGEST: u32 = 400;
/// Users and groups in lists begin here, a thousand for each list.
const FIRST: u32 = 100_000;
const EACH: u32 = 1_000;

/// The three services of the paper's Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Exponential, mean 4.
    Small,
    /// Exponential, mean 9.
    Large,
    /// Power law, mean 42.
    Social,
}

impl Service {
    pub(crate) const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Social];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "exponential, mean 4",
            Self::Large => "exponential, mean 9",
            Self::Social => "power law, mean 42",
        }
    }

    /// How often each length comes, from [`SHORTEST`] on, adding up to 1 at the last.
    pub(crate) fn lengths(self) -> Lengths {
        let weights: Vec<f64> = match self {
            Self::Small => exponential(4.0),
            Self::Large => exponential(9.0),
            Self::Social => power_law(42.0),
        };
        let all: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let share = weights.iter().map(|weight| {
            sum += weight / all;
            sum
        });
        Lengths(share.collect())
    }
}

/// Lengths from 3 on with this mean.
fn exponential(mean: f64) -> Vec<f64> {
    let ratio = (mean - f64::from(SHORTEST)) / (mean - f64::from(SHORTEST) + 1.0);
    let length = |length: u32| ratio.powi((length - SHORTEST) as i32);
    (SHORTEST..=LONGEST).map(length).collect()
}

/// Lengths from 3 to the longest, n^-a with the a that gives this mean.
fn power_law(mean: f64) -> Vec<f64> {
    let weights = |power: f64| -> Vec<f64> {
        let weight = |length: u32| f64::from(length).powf(-power);
        (SHORTEST..=LONGEST).map(weight).collect()
    };
    let mean_of = |weights: &[f64]| {
        let of_length = (SHORTEST..).zip(weights);
        let sum: f64 = of_length.map(|(n, weight)| f64::from(n) * weight).sum();
        sum / weights.iter().sum::<f64>()
    };
    let (mut low, mut high) = (0.0, 4.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if mean_of(&weights(middle)) > mean {
            low = middle;
        } else {
            high = middle;
        }
    }
    weights(low)
}

/// A distribution, summed up.
pub(crate) struct Lengths(Vec<f64>);

impl Lengths {
    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        let share = random.unit();
        let index = self.0.partition_point(|sum| *sum < share);
        SHORTEST + index.min(self.0.len() - 1) as u32
    }

    /// The share of lists that are longer than this.
    pub(crate) fn beyond(&self, length: u32) -> f64 {
        let index = length.saturating_sub(SHORTEST) as usize;
        1.0 - self.0.get(index).copied().unwrap_or(1.0)
    }
}

/// The list number `seed` of so many entries; none for what a mode says alone. Everybody who is
/// not named may read and write, and each list names people of its own.
pub(crate) fn list(entries: u32, seed: u64) -> Option<PosixAcl> {
    let named = entries.checked_sub(SHORTEST + 1)?;
    let mut random = Random::new(seed);
    let first = FIRST + (seed as u32 % 1_000_000) * EACH;
    let entry = |who, bits| PosixEntry { who, bits };
    let mut bits = || random.below(8) as u8;
    let mut all = vec![entry(PosixWho::Owner, 6)];
    let users = named.div_ceil(2);
    all.extend((0..users).map(|user| entry(PosixWho::User(first + user), bits())));
    all.push(entry(PosixWho::OwningGroup, 4));
    all.extend((users..named).map(|group| entry(PosixWho::Group(first + group), bits())));
    all.push(entry(PosixWho::Mask, 7));
    all.push(entry(PosixWho::Others, 6));
    Some(PosixAcl::new(all).expect("in order, each once"))
}

/// Gives a file a list.
pub(crate) fn give(path: &Path, list: &PosixAcl) -> Result<()> {
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "system.posix_acl_access", &list.to_xattr(), none)
        .with_context(|| format!("{} entries for {}", list.entries().len(), path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_means_of_the_papers_table() {
        for (service, mean) in Service::ALL.into_iter().zip([4.0, 9.0, 42.0]) {
            let lengths = service.lengths();
            let mut random = Random::new(1);
            let drawn = (0..200_000).map(|_| f64::from(lengths.draw(&mut random)));
            let found = drawn.sum::<f64>() / 200_000.0;
            assert!((found / mean - 1.0).abs() < 0.03, "{service:?}: {found}");
        }
        let beyond = Service::Small.lengths().beyond(35);
        assert!(beyond < 1e-6, "{beyond}");
    }

    /// In a thousand lists, those that do not lie in the inode: of XFS, ext4 with inodes of 256
    /// bytes, and of 1 KiB.
    #[test]
    fn shares_beyond_the_inode_are_those_of_the_documents() {
        let expected = [[0, 4, 0], [62, 291, 0], [371, 523, 119]];
        let found = Service::ALL.map(|service| {
            let lengths = service.lengths();
            [20, 10, 106].map(|inside| (lengths.beyond(inside) * 1000.0).round() as u32)
        });
        assert_eq!(found, expected);
        let most = Service::Social.lengths();
        assert!(most.beyond(349) < 0.01 && most.beyond(345) > 0.01);
    }

    #[test]
    fn a_list_has_as_many_entries_as_were_asked_for() {
        assert!(list(3, 1).is_none());
        for entries in [4, 5, 6, 35, 400] {
            let list = list(entries, 7).expect("it is no mode");
            assert_eq!(list.entries().len(), entries as usize);
        }
    }
}
