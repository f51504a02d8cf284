//! What can be said of counts and of repeated measurements.

/// The two-sided 95 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// The Wilson interval at 95 % for `hits` of `trials`: between which shares the true one probably
/// lies. With no trials it is everything.
///
/// Source: Wilson, Probable inference, the law of succession, and statistical inference, 1927.
/// Unlike the textbook interval it is of use for few trials and for shares near 0 and 1.
#[must_use]
pub fn wilson(hits: u64, trials: u64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let (n, share) = (trials as f64, hits as f64 / trials as f64);
    let scale = 1.0 + Z * Z / n;
    let middle = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
    let low = if hits == 0 { 0.0 } else { middle - half };
    let high = if hits == trials { 1.0 } else { middle + half };
    (low.max(0.0), high.min(1.0))
}

/// The median; of an even number the mean of the middle two, of none `None`.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(found: (f64, f64), known: (f64, f64)) {
        let near = |one: f64, two: f64| (one - two).abs() < 5e-5;
        assert!(
            near(found.0, known.0) && near(found.1, known.1),
            "{found:?}"
        );
    }

    #[test]
    fn intervals_are_those_of_the_literature() {
        // Newcombe, Two-sided confidence intervals for the single proportion, 1998, table I:
        // method 3 without continuity correction.
        is_near(wilson(81, 263), (0.2553, 0.3662));
        is_near(wilson(15, 148), (0.0624, 0.1605));
        is_near(wilson(0, 20), (0.0, 0.1611));
        is_near(wilson(1, 29), (0.0061, 0.1718));
        is_near(wilson(20, 20), (0.8389, 1.0));
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
    }
}
