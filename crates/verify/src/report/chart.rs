//! Small charts, as SVG within the page.

use std::fmt::Write;

/// Width of a bar in pixels.
const WIDTH: u64 = 200;

/// A bar of what is good and what is not. What is not good is seen, however little it is.
pub(super) fn bar(good: u64, bad: u64) -> String {
    let whole = (good + bad).max(1);
    let mut red = (u128::from(WIDTH) * u128::from(bad) / u128::from(whole)) as u64;
    if bad > 0 {
        red = red.max(2);
    }
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"12\" role=\"img\" aria-label=\"{good} good, {bad} not\">"
    );
    let _ = write!(
        svg,
        "<rect width=\"{}\" height=\"12\" fill=\"#4e9a06\"/>",
        WIDTH - red
    );
    let _ = write!(
        svg,
        "<rect x=\"{}\" width=\"{red}\" height=\"12\" fill=\"#a40000\"/></svg>",
        WIDTH - red
    );
    svg
}

/// A bar from 0 to a median, with a line over its interval: shares of the whole width.
pub(super) fn interval(median: f64, low: f64, high: f64) -> String {
    let place = |share: f64| (share.clamp(0.0, 1.0) * WIDTH as f64).round();
    let (median, low, high) = (place(median), place(low), place(high));
    format!(
        "<svg width=\"{WIDTH}\" height=\"12\" role=\"img\" aria-label=\"{median} of {WIDTH}\">\
         <rect width=\"{median}\" height=\"12\" fill=\"#729fcf\"/>\
         <rect x=\"{low}\" y=\"5\" width=\"{}\" height=\"2\" fill=\"#204a87\"/></svg>",
        (high - low).max(1.0)
    )
}

/// Width and height of a chart of points, in pixels.
const SIDE: f64 = 320.0;

/// Points with their numbers: to the right as a share of the greatest, upwards as a share of 1;
/// filled or not.
pub(super) fn scatter(points: &[(usize, f64, f64, bool)]) -> String {
    let most = points.iter().map(|point| point.1);
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = format!(
        "<svg width=\"{0}\" height=\"{0}\" role=\"img\" aria-label=\"points\">\
         <rect width=\"{0}\" height=\"{0}\" fill=\"#f6f6f6\"/>",
        SIDE + 20.0
    );
    for (number, x, y, is_filled) in points {
        let place = |share: f64| (share.clamp(0.0, 1.0) * (SIDE - 20.0)).round() + 20.0;
        let (x, y) = (place(x / most), SIDE + 20.0 - place(*y));
        let fill = if *is_filled { "#204a87" } else { "#ffffff" };
        let _ = write!(
            svg,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" stroke=\"#204a87\" fill=\"{fill}\"/>\
             <text x=\"{}\" y=\"{}\" font-size=\"11\">{number}</text>",
            x - 16.0,
            y - 4.0,
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fast_is_to_the_right_and_what_is_recovered_above() {
        let shown = scatter(&[(1, 50.0, 0.0, false), (2, 100.0, 1.0, true)]);
        let first = shown.find("cx=\"170\" cy=\"320\"").expect(&shown);
        let second = shown.find("cx=\"320\" cy=\"20\"").expect(&shown);
        assert!(first < second && shown.matches("#ffffff").count() == 1);
    }

    #[test]
    fn an_interval_is_within_its_bar() {
        let shown = interval(0.5, 0.25, 1.0);
        assert!(
            shown.contains("<rect width=\"100\"")
                && shown.contains("x=\"50\" y=\"5\" width=\"150\"")
        );
        assert!(interval(2.0, -1.0, f64::NAN).contains("x=\"0\""));
    }

    #[test]
    fn what_is_bad_is_seen() {
        assert!(bar(10, 0).contains("width=\"0\""));
        assert!(bar(1_000_000, 1).contains("width=\"2\""));
        assert!(bar(0, 5).contains("x=\"0\" width=\"200\""));
        assert!(bar(1, 1).contains("x=\"100\" width=\"100\""));
    }
}
