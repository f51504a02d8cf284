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

/// Between which values the true one probably lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How probably, 0 to 1.
    pub confidence: f64,
}

/// The interval for the median that needs no assumption on how the values are distributed: the
/// narrowest pair of sorted values, as many from below as from above, between which the median
/// lies with 95 % or more. Fewer than six values cannot tell so much: then it is the least and the
/// greatest, and what these are worth (of five, 93.75 %). Of no values `None`.
///
/// Source: Conover, Practical Nonparametric Statistics, 3rd edition, 1999, section 3.2: the number
/// of values below the median is binomial.
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    if count == 0 {
        return None;
    }
    // How probable it is that at most `below` values lie below the median, of each side.
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut tail, mut below) = (term, 0);
    while below + 1 < count / 2 {
        term *= (count - below) as f64 / (below + 1) as f64;
        if 2.0 * (tail + term) > 0.05 {
            break;
        }
        tail += term;
        below += 1;
    }
    Some(Interval {
        low: sorted[below],
        high: sorted[count - 1 - below],
        confidence: 1.0 - 2.0 * tail,
    })
}

/// A share that was counted, and how much of it goes into a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighted {
    /// By what it is multiplied; it may be below 0.
    pub weight: f64,
    /// How often it was so,
    pub hits: u64,
    /// of how often it was tried.
    pub trials: u64,
}

/// A sum of shares that were counted apart from each other, and its interval at 95 %: with equal
/// weights it is their mean, with 1 and -1 a difference. `None` of no shares, and if one of them
/// was never tried.
///
/// Source: Zou, Huang and Zhang, A note on confidence interval estimation for a linear function of
/// binomial proportions, 2009; of a difference it is the hybrid score interval of Newcombe,
/// Interval estimation for the difference between independent proportions, 1998.
#[must_use]
pub fn weighted_sum(shares: &[Weighted]) -> Option<(f64, Interval)> {
    if shares.is_empty() || shares.iter().any(|one| one.trials == 0) {
        return None;
    }
    let (mut sum, mut below, mut above) = (0.0, 0.0, 0.0);
    for one in shares {
        let (low, high) = wilson(one.hits, one.trials);
        let ends = (one.weight * low, one.weight * high);
        let part = one.weight * (one.hits as f64 / one.trials as f64);
        sum += part;
        below += (part - ends.0.min(ends.1)).powi(2);
        above += (ends.0.max(ends.1) - part).powi(2);
    }
    let interval = Interval {
        low: sum - below.sqrt(),
        high: sum + above.sqrt(),
        confidence: 0.95,
    };
    Some((sum, interval))
}

/// The ranks of values, from 1; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, two| values[*one].total_cmp(&values[*two]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let value = values[order[from]];
        let same = order[from..].iter();
        let len = same.take_while(|at| values[**at] == value).count().max(1);
        let rank = (2 * from + len + 1) as f64 / 2.0;
        for at in &order[from..from + len] {
            ranks[*at] = rank;
        }
        from += len;
    }
    ranks
}

/// Spearman's rank correlation: 1 if one grows whenever the other does, -1 if it falls. `None` of
/// fewer than two pairs, or if one of them is always the same.
///
/// Source: Spearman, The proof and measurement of association between two things, 1904; with ties
/// it is the correlation of the mean ranks.
#[must_use]
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let (one, two): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (one, two) = (ranks(&one), ranks(&two));
    let middle = (pairs.len() as f64 + 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        let terms = a.iter().zip(b);
        terms.map(|(a, b)| (a - middle) * (b - middle)).sum()
    };
    let scale = (product(&one, &one) * product(&two, &two)).sqrt();
    (scale > 0.0).then(|| product(&one, &two) / scale)
}

/// The interval at 95 % for a rank correlation of `count` pairs; `None` of fewer than four, and at
/// both ends, where the approximation says nothing.
///
/// Source: Bonett and Wright, Sample size requirements for estimating Pearson, Kendall and Spearman
/// correlations, 2000: Fisher's transformation with a wider error.
#[must_use]
pub fn spearman_interval(rho: f64, count: usize) -> Option<Interval> {
    if count < 4 || rho.abs() > 1.0 - 1e-9 {
        return None;
    }
    let error = ((1.0 + rho * rho / 2.0) / (count as f64 - 3.0)).sqrt();
    let middle = rho.atanh();
    Some(Interval {
        low: (middle - Z * error).tanh(),
        high: (middle + Z * error).tanh(),
        confidence: 0.95,
    })
}

/// Which of these points are on the Pareto front: no other one is better in one respect and as good
/// in the other. More is better in both.
#[must_use]
pub fn pareto_front(points: &[(f64, f64)]) -> Vec<bool> {
    let is_beaten = |point: &(f64, f64)| {
        let mut others = points.iter();
        others.any(|other| other.0 >= point.0 && other.1 >= point.1 && other != point)
    };
    points.iter().map(|point| !is_beaten(point)).collect()
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

    fn weighted(weight: f64, hits: u64, trials: u64) -> Weighted {
        Weighted {
            weight,
            hits,
            trials,
        }
    }

    #[test]
    fn intervals_of_differences_are_those_of_the_literature() {
        // Newcombe, Interval estimation for the difference between independent proportions, 1998,
        // table II: method 10 without continuity correction.
        let known = [
            ((56, 70), (48, 80), (0.0524, 0.3339)),
            ((9, 10), (3, 10), (0.1705, 0.8090)),
            ((6, 7), (2, 7), (0.0582, 0.8062)),
            ((5, 56), (0, 29), (-0.0381, 0.1926)),
            ((0, 10), (0, 20), (-0.1611, 0.2775)),
            ((0, 10), (0, 10), (-0.2775, 0.2775)),
            ((10, 10), (0, 20), (0.6791, 1.0)),
            ((10, 10), (0, 10), (0.6075, 1.0)),
        ];
        for ((hits, trials), (less, of), ends) in known {
            let both = [weighted(1.0, hits, trials), weighted(-1.0, less, of)];
            let (value, interval) = weighted_sum(&both).unwrap();
            let shares = hits as f64 / trials as f64 - less as f64 / of as f64;
            assert!((value - shares).abs() < 1e-12, "{value}");
            is_near((interval.low, interval.high), ends);
        }
    }

    #[test]
    fn means_do_not_lean_to_what_was_tried_more_often() {
        // By hand: of 6 of 6 and 46 of 93, the sum of all would be 0.525.
        let cells = [weighted(0.5, 6, 6), weighted(0.5, 46, 93)];
        let (mean, interval) = weighted_sum(&cells).unwrap();
        assert!((mean - 0.747_312).abs() < 1e-6, "{mean}");
        is_near((interval.low, interval.high), (0.5459, 0.7972));
        // Of one share it is the share itself.
        let (share, interval) = weighted_sum(&[weighted(1.0, 15, 148)]).unwrap();
        assert!((share - 15.0 / 148.0).abs() < 1e-12);
        is_near((interval.low, interval.high), wilson(15, 148));
        assert_eq!(weighted_sum(&[]), None);
        assert_eq!(weighted_sum(&[cells[0], weighted(0.5, 0, 0)]), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
    }

    #[test]
    fn intervals_of_medians_are_those_of_the_binomial_tables() {
        // Ranks and coverage: Conover, table A3; also Hollander and Wolfe, section 3.6.
        let known = [
            (1, 1, 1, 0.0),
            (2, 1, 2, 0.5),
            (5, 1, 5, 0.9375),
            (6, 1, 6, 0.968_75),
            (8, 1, 8, 0.992_187_5),
            (9, 2, 8, 0.960_937_5),
            (10, 2, 9, 0.978_515_6),
            (11, 2, 10, 0.988_281_3),
            (15, 4, 12, 0.964_843_8),
            (20, 6, 15, 0.958_610_5),
        ];
        for (count, low, high, confidence) in known {
            // The values are their ranks, given in no order.
            let mut values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            values.swap(0, usize::try_from(count / 2).unwrap());
            let found = median_interval(&values).unwrap();
            let ends = (found.low, found.high);
            assert_eq!(ends, (f64::from(low), f64::from(high)), "of {count}");
            assert!((found.confidence - confidence).abs() < 1e-6, "{found:?}");
        }
        assert_eq!(median_interval(&[]), None);
        let many = median_interval(&vec![1.0; 1000]).unwrap();
        assert!((0.95..1.0).contains(&many.confidence), "{many:?}");
    }

    #[test]
    fn rank_correlations_are_those_of_the_literature() {
        // Hours of television and IQ, the worked example of many textbooks: -29/165.
        let known = [
            (106.0, 7.0),
            (100.0, 27.0),
            (86.0, 2.0),
            (101.0, 50.0),
            (99.0, 28.0),
            (103.0, 29.0),
            (97.0, 20.0),
            (113.0, 12.0),
            (112.0, 6.0),
            (110.0, 17.0),
        ];
        let rho = spearman(&known).unwrap();
        assert!((rho + 29.0 / 165.0).abs() < 1e-12, "{rho}");
        let interval = spearman_interval(rho, known.len()).unwrap();
        assert!(interval.low < rho && rho < interval.high, "{interval:?}");
        assert!(interval.low > -1.0 && interval.high < 1.0);
        // By hand: atanh(0.5) is 0.549306, the error sqrt(1.125 / 22) is 0.226134.
        let interval = spearman_interval(0.5, 25).unwrap();
        is_near((interval.low, interval.high), (0.1057, 0.7584));
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 9.0]), [2.5, 1.0, 2.5, 4.0]);
        assert_eq!(spearman(&[(1.0, 2.0), (2.0, 4.0), (3.0, 9.0)]), Some(1.0));
        assert_eq!(spearman(&[(1.0, 2.0), (2.0, 2.0)]), None);
        assert_eq!((spearman(&[]), spearman_interval(0.5, 3)), (None, None));
    }

    #[test]
    fn the_front_is_what_nothing_beats() {
        let points = [(1.0, 9.0), (5.0, 5.0), (4.0, 5.0), (9.0, 1.0), (5.0, 5.0)];
        assert_eq!(pareto_front(&points), [true, true, false, true, true]);
        assert!(pareto_front(&[]).is_empty());
    }
}
