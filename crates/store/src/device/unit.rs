//! The choice of the allocation unit from noisy rates.
//!
//! The unit is the smallest size that reaches 95 % of the best. Rates on a shared machine move by
//! 20 % within seconds and stand still for a while, and some devices have a peak at one size in one
//! hour and at another in the next; taken literally, the choice would be a throw of dice. Three
//! things make it repeatable:
//!
//! * The best is a level and not a peak: a size is compared with the median of all larger ones. The
//!   largest of eight noisy numbers is always too large.
//! * Sizes are compared within a round, whose samples follow each other closely, and rounds vote: a
//!   size is passed over if three rounds of five find it below 95 %. How far below does not count,
//!   so a round that was disturbed is one vote and no more; and with two rounds of five for it, the
//!   smaller size is as good as the larger one for anybody who cannot measure better than this.
//! * Whoever is near the border is measured more ([`Choice::is_contested`]).
//!
//! Tried on the rounds of 17 runs (a virtual disk, as a file and as a loop device, on a busy
//! machine and on a quiet one): 256 KiB each time, and again in 7 calibrations made after the
//! rule. With a peak as the best, and medians of rates instead of votes, four of eight whole
//! calibrations chose something else.

/// Share of the level that is enough.
const ENOUGH: f64 = 0.95;
/// Share of the rounds that must find a size too slow.
const AGAINST: f64 = 0.6;
/// A share that is nearer to that border is contested.
const MARGIN: f64 = 0.15;

/// Sizes of one direction in each round, in bytes a second, smallest size first.
pub(super) type Rounds = Vec<Vec<f64>>;

/// A size by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) size: usize,
    /// Whether more rounds could change it.
    pub(super) is_contested: bool,
}

/// The smallest size that is enough in every direction.
pub(super) fn choose(directions: &[Rounds]) -> Choice {
    let votes: Vec<Vec<f64>> = directions.iter().map(against).collect();
    let first = |against: &Vec<f64>| {
        let enough = against.iter().position(|share| *share < AGAINST);
        enough.unwrap_or(0)
    };
    let size = votes.iter().map(first).max().unwrap_or(0);
    // The choice hangs on the size itself and on the next smaller one.
    let near = |against: &Vec<f64>| {
        let deciding = &against[size.saturating_sub(1)..=size];
        deciding
            .iter()
            .any(|share| (share - AGAINST).abs() < MARGIN)
    };
    Choice {
        size,
        is_contested: votes.iter().any(near),
    }
}

/// For each size, the share of the rounds that find it too slow; nothing is said against the
/// largest.
fn against(rounds: &Rounds) -> Vec<f64> {
    let sizes = rounds.first().map_or(0, Vec::len);
    let is_slow = |round: &Vec<f64>, size: usize| {
        size + 1 < sizes && round[size] < ENOUGH * median(round[size + 1..].to_vec())
    };
    let share = |size| {
        let slow = rounds.iter().filter(|round| is_slow(round, size)).count();
        slow as f64 / rounds.len() as f64
    };
    (0..sizes).map(share).collect()
}

/// The middle one, or the mean of the middle two; not of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Places;
    use super::*;

    /// Rounds of a device with these true rates on a machine that is up to 20 % slower or faster
    /// from round to round, 8 % from sample to sample, and stands still now and then.
    fn noisy(truth: &[f64], rounds: usize, places: &mut Places) -> Rounds {
        let mut noise = |width: f64| 1.0 + width * (places.below(2001) as f64 / 1000.0 - 1.0);
        (0..rounds)
            .map(|_| {
                let machine = noise(0.2);
                let mut rate = |truth: &f64| {
                    let pause = if noise(1.0) > 1.95 { 0.4 } else { 1.0 };
                    truth * machine * noise(0.08) * pause
                };
                truth.iter().map(&mut rate).collect()
            })
            .collect()
    }

    fn share_of(expected: usize, truths: &[&[f64]]) -> f64 {
        let mut places = Places::new(11);
        let hits = (0..300).filter(|_| {
            // As a calibration does it: sixteen rounds, and eight more if it is contested.
            let mut more = |rounds| -> Vec<Rounds> {
                truths
                    .iter()
                    .map(|truth| noisy(truth, rounds, &mut places))
                    .collect()
            };
            let mut rounds = more(16);
            if choose(&rounds).is_contested {
                let added = more(8);
                rounds
                    .iter_mut()
                    .zip(added)
                    .for_each(|(rounds, more)| rounds.extend(more));
            }
            choose(&rounds).size == expected
        });
        hits.count() as f64 / 300.0
    }

    /// A disk with arms: 8 ms to get there, then 150 MB/s.
    fn disk_with_arms() -> Vec<f64> {
        (0..8)
            .map(|power| f64::from(65536 << power))
            .map(|size| size / (0.008 + size / 150e6))
            .collect()
    }

    #[test]
    fn repeated_runs_choose_the_same_unit_on_a_noisy_machine() {
        // As measured here: a level from 256 KiB on that falls off a little.
        let write: &[f64] = &[0.49, 0.74, 1.05, 1.0, 0.94, 0.87, 0.85, 0.84];
        let read: &[f64] = &[0.70, 0.91, 1.08, 1.0, 0.96, 0.93, 0.92, 0.92];
        let flat: &[f64] = &[1.0; 8];
        let cases: [(usize, &[&[f64]]); 4] = [
            (2, &[write, read]),
            (7, &[&disk_with_arms()]),
            (0, &[flat, flat]),
            (2, &[flat, write]),
        ];
        for (expected, truths) in cases {
            let share = share_of(expected, truths);
            assert!(share >= 0.98, "{expected}: {share}");
        }
    }

    #[test]
    fn the_best_is_a_level_and_not_a_peak() {
        let peak = vec![vec![0.5, 0.8, 0.97, 1.3, 1.0, 1.0, 1.0, 1.0]];
        assert_eq!(choose(&[peak]).size, 2);
        let rising = vec![vec![0.1, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0]];
        assert_eq!(
            choose(&[rising]),
            Choice {
                size: 7,
                is_contested: false
            }
        );
    }

    #[test]
    fn a_narrow_vote_is_contested() {
        let voting = |slow: usize| -> Rounds {
            let round = |number| vec![0.5, if number < slow { 0.9 } else { 1.0 }, 1.0, 1.0];
            (0..20).map(round).collect()
        };
        let choices = [0, 8, 10, 11, 12, 14, 16, 20].map(|slow| {
            let choice = choose(&[voting(slow)]);
            (slow, choice.size, choice.is_contested)
        });
        assert_eq!(
            choices,
            [
                (0, 1, false),
                (8, 1, false),
                (10, 1, true),
                (11, 1, true),
                (12, 2, true),
                (14, 2, true),
                (16, 2, false),
                (20, 2, false),
            ]
        );
        let both = choose(&[voting(0), voting(20)]);
        assert_eq!(both.size, 2, "a size must be enough in both directions");
    }

    #[test]
    fn few_sizes_are_enough_to_choose_from() {
        assert_eq!(choose(&[vec![vec![1.0]]]).size, 0);
        assert_eq!(choose(&[vec![vec![0.5, 1.0]]]).size, 1);
        assert_eq!(choose(&[vec![vec![0.99, 1.0]]]).size, 0);
    }
}
