//! A report as a picture: a bar for each second, a line at the rate that was reserved. A second
//! without a server has nothing to show, and is drawn up to that line.

use wire::message::{ReserveReport, Shortfall};

const WIDTH: u64 = 900;
const HEIGHT: u64 = 240;
const MARGIN: u64 = 40;

/// The picture, as SVG.
pub(super) fn draw(report: &ReserveReport) -> String {
    let one = &report.summary;
    let rate = one.read_bytes_per_second + one.write_bytes_per_second;
    let most = report.record.iter().map(|second| second.bytes).max();
    let top = most.unwrap_or(0).max(rate).max(1);
    let height = |bytes: u64| bytes as f64 * HEIGHT as f64 / top as f64;
    let first = report.record.first().map_or(0, |second| second.second);
    let last = report.record.last().map_or(0, |second| second.second);
    let count = last - first + 1;
    let width = WIDTH as f64 / count as f64;
    let mut bars = String::new();
    for second in &report.record {
        let colour = match second.shortfall {
            None => "#3a7d44",
            Some(Shortfall::NoDemand | Shortfall::TooFewInFlight) => "#9aa5b1",
            Some(Shortfall::SlowDevice | Shortfall::Degraded) => "#c0392b",
            Some(Shortfall::ServerAway) => "#e6b0aa",
        };
        let is_away = second.shortfall == Some(Shortfall::ServerAway);
        let (tall, why) = match is_away {
            true => (height(rate.max(second.bytes)), ", the server was not there"),
            false => (height(second.bytes), ""),
        };
        bars += &format!(
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"{tall:.2}\" \
             fill=\"{colour}\"><title>{}: {}{why}</title></rect>\n",
            MARGIN as f64 + (second.second - first) as f64 * width,
            (MARGIN + HEIGHT) as f64 - tall,
            second.second,
            base::Rate(second.bytes),
        );
    }
    let line = (MARGIN + HEIGHT) as f64 - height(rate);
    let (whole_width, whole_height) = (WIDTH + 2 * MARGIN, HEIGHT + 2 * MARGIN);
    let right = MARGIN + WIDTH;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole_width} {whole_height}\" \
         font-family=\"sans-serif\" font-size=\"14\">\n\
         <title>{name}</title>\n\
         <text x=\"{MARGIN}\" y=\"24\">{name}: {kept} of {seconds} seconds kept</text>\n\
         {bars}\
         <line x1=\"{MARGIN}\" y1=\"{line:.2}\" x2=\"{right}\" y2=\"{line:.2}\" \
         stroke=\"#222\" stroke-dasharray=\"6 4\"/>\n\
         <text x=\"{right}\" y=\"{above:.2}\" text-anchor=\"end\">reserved: {reserved}</text>\n\
         </svg>\n",
        name = escaped(&one.name),
        kept = report.kept,
        seconds = report.seconds,
        above = line - 6.0,
        reserved = base::Rate(rate),
    )
}

/// Text of others, within a picture.
fn escaped(text: &str) -> String {
    let plain = crate::output::plain(text);
    plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{example, with_a_crash};
    use super::*;

    #[test]
    fn each_second_is_a_bar_and_names_cannot_draw() {
        let picture = draw(&example());
        assert_eq!(picture.matches("<rect").count(), 4);
        assert_eq!(picture.matches("#c0392b").count(), 1, "one was missed");
        assert!(picture.contains("run&lt;42&gt;") && !picture.contains("run<42>"));
        let picture = draw(&with_a_crash());
        let away = picture.lines().filter(|line| line.contains("#e6b0aa"));
        assert_eq!(away.clone().count(), 2);
        let full = "height=\"120.00\"";
        for bar in away {
            assert!(
                bar.contains(full) && bar.contains("0 B/s, the server was not"),
                "{bar}"
            );
        }
        let mut empty = example();
        empty.record.clear();
        assert_eq!(draw(&empty).matches("<rect").count(), 0);
    }
}
