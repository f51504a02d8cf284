//! Chance, from a seed.

use std::ops::Range;
use std::time::Duration;

/// SplitMix64: one addition and a mixing function per number. Not for secrets; good enough for
/// every statistic that a test looks at, and any seed, 0 included, is as good as another.
///
/// Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

/// The odd number nearest to 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A sequence of its own for a part of the world, so that one more number drawn here does not
    /// change what happens there.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        // Mixed twice: the child's states are not a stretch of the parent's.
        Self::new(mix(self.next_u64()))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number below `end`, which must not be 0. The bias is `end / 2^64`.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        let wide = u128::from(self.next_u64()) * u128::from(end);
        (wide >> 64) as u64
    }

    /// A number of `range`, which must not be empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "{range:?} is empty");
        range.start + self.below(range.end - range.start)
    }

    /// True this often: 0 never, 1 always.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits, as many as a float below 1 can tell apart.
        ((self.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A time up to and including `max`.
    pub fn up_to(&mut self, max: Duration) -> Duration {
        let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.below(nanos.saturating_add(1)))
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The reference implementation's first numbers for seed 1234567.
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, published);
    }

    #[test]
    fn every_number_of_a_small_interval_comes_about_equally_often() {
        let mut random = Random::new(0);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_600..10_400).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn never_and_always_are_exact() {
        let mut random = Random::new(3);
        assert!((0..10_000).all(|_| !random.chance(0.0) && random.chance(1.0)));
        assert!((0..100).all(|_| random.up_to(Duration::ZERO).is_zero()));
    }

    #[test]
    fn what_a_fork_draws_changes_nothing_elsewhere() {
        let draw = |drawn_by_fork: usize| {
            let mut random = Random::new(9);
            let mut fork = random.fork();
            (0..drawn_by_fork).for_each(|_| _ = fork.next_u64());
            random.next_u64()
        };
        assert_eq!(draw(0), draw(100));
    }
}
