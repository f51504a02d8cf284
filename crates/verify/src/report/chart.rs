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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bad_is_seen() {
        assert!(bar(10, 0).contains("width=\"0\""));
        assert!(bar(1_000_000, 1).contains("width=\"2\""));
        assert!(bar(0, 5).contains("x=\"0\" width=\"200\""));
        assert!(bar(1, 1).contains("x=\"100\" width=\"100\""));
    }
}
