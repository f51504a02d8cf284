//! Many figures become one.

/// The middle one; of an even number, the mean of the two in the middle. `None` of none.
pub fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[half]),
        _ => Some(f64::midpoint(sorted[half - 1], sorted[half])),
    }
}

/// The one of `sorted` that is nearest to this share of the way from the first to the last: always
/// a figure that was measured. `None` of none.
pub fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    assert!((0.0..=1.0).contains(&share), "{share} is no share");
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * share).round() as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_in_whatever_order_the_figures_came() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_quantile_is_one_of_the_figures() {
        let figures: Vec<u32> = (1..=101).collect();
        let of = |share| quantile(&figures, share);
        assert_eq!((of(0.0), of(0.5), of(1.0)), (Some(1), Some(51), Some(101)));
        assert_eq!((of(0.9), of(0.999)), (Some(91), Some(101)));
        assert_eq!(quantile::<u32>(&[], 0.5), None);
    }
}
