//! The choice of the allocation unit from noisy rates.
//!
//! The unit is the smallest size that reaches 95 % of the best. Rates on a shared machine move by
//! 20 % within seconds, so that taken literally the choice would be a throw of dice. Three things
//! make it repeatable:
//!
//! * Sizes are compared within a round, whose samples follow each other closely: each rate counts
//!   relative to the median of its round, and a size by the median of its rounds.
//! * The best is a level and not a peak: the highest value that a size shares with a neighbour (the
//!   median of three sizes in a row). The largest of eight noisy numbers is always too large. Only
//!   a curve that still rises clearly at its end ends where it ends.
//! * Whoever is near the border is measured more ([`Choice::is_contested`]).
//!
//! Measured on a virtual disk (14 runs of 12 rounds, a file and a loop device over it): 256 KiB
//! each time; by the peak instead of the level 12 times.

/// Share of the best that is enough.
const ENOUGH: f64 = 0.95;
/// What is nearer to the border than this is contested, and what rises by more rises clearly.
const MARGIN: f64 = 0.02;

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
    let levels: Vec<Vec<f64>> = directions.iter().map(relative).collect();
    let first = |above: &Vec<f64>| above.iter().position(|value| *value >= 0.0).unwrap_or(0);
    let size = levels.iter().map(first).max().unwrap_or(0);
    let near = |above: &Vec<f64>| {
        let deciding = above[size.saturating_sub(1)..=size].iter();
        deciding.into_iter().any(|value| value.abs() < MARGIN)
    };
    Choice {
        size,
        is_contested: levels.iter().any(near),
    }
}

/// How far each size lies above the border, as a logarithm.
fn relative(rounds: &Rounds) -> Vec<f64> {
    let sizes = rounds.first().map_or(0, Vec::len);
    let mut logs: Rounds = rounds.clone();
    for round in &mut logs {
        round
            .iter_mut()
            .for_each(|rate| *rate = rate.max(f64::MIN_POSITIVE).ln());
        let middle = median(round.clone());
        round.iter_mut().for_each(|rate| *rate -= middle);
    }
    let level = |size: usize| median(logs.iter().map(|round| round[size]).collect());
    let levels: Vec<f64> = (0..sizes).map(level).collect();
    let border = best(&levels) + ENOUGH.ln();
    levels.iter().map(|value| value - border).collect()
}

fn best(levels: &[f64]) -> f64 {
    let shared = levels.windows(3).map(|three| median(three.to_vec()));
    let ends = levels.windows(2).map(|two| two[0].min(two[1]));
    let mut best = shared.chain(ends).fold(f64::NEG_INFINITY, f64::max);
    if let [.., before, last_but_one, last] = levels
        && last_but_one - before > MARGIN
        && last - last_but_one > MARGIN
    {
        best = best.max(*last);
    }
    if best == f64::NEG_INFINITY {
        levels.first().copied().unwrap_or(0.0)
    } else {
        best
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[odd / 2],
        even => f64::midpoint(values[even / 2 - 1], values[even / 2]),
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
    fn what_is_near_the_border_is_contested() {
        let at = |value: f64| vec![vec![0.5, value, 1.0, 1.0, 1.0, 1.0]];
        assert_eq!(
            choose(&[at(0.96)]),
            Choice {
                size: 1,
                is_contested: true
            }
        );
        assert_eq!(
            choose(&[at(0.94)]),
            Choice {
                size: 2,
                is_contested: true
            }
        );
        assert_eq!(
            choose(&[at(0.99)]),
            Choice {
                size: 1,
                is_contested: false
            }
        );
        assert_eq!(
            choose(&[at(0.90)]),
            Choice {
                size: 2,
                is_contested: false
            }
        );
    }

    #[test]
    fn few_sizes_are_enough_to_choose_from() {
        assert_eq!(choose(&[vec![vec![1.0]]]).size, 0);
        assert_eq!(
            choose(&[vec![vec![0.5, 1.0]]]).size,
            0,
            "two sizes share the smaller level"
        );
    }
}
