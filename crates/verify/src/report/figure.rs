//! Charts with axes, as SVG within the page, and the same figures as a table.
//!
//! A chart has places to the right (a measure, a size of memory, a flush time) and at each of them
//! one value for each series, with its interval. Bars and lines are drawn from the same figures;
//! colours are classes of the page, so that it decides what they are by day, by night and on
//! paper. Nobody needs the chart to read the figures: the table below it has them all.

use super::escape;
use std::fmt::Write;

/// A value and the interval in which it lies; where nothing is known of that, the value itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Point {
    pub(super) const fn alone(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }
}

/// What is compared with others, at every place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) label: String,
    /// Others used the machine meanwhile.
    pub(super) is_loaded: bool,
    pub(super) points: Vec<Option<Point>>,
}

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Bars,
    Lines,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) title: String,
    /// What is to the right.
    pub(super) across: &'static str,
    /// And upwards.
    pub(super) unit: &'static str,
    pub(super) places: Vec<String>,
    pub(super) series: Vec<Series>,
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 708.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 250.0;
/// The legend begins here; each entry is so high, and so many stand beside each other.
const LEGEND_TOP: f64 = 304.0;
const LEGEND_HEIGHT: f64 = 18.0;
const LEGEND_BESIDE: usize = 3;
/// More than this nobody tells apart: then the table alone is shown.
const SERIES_MAX: usize = 16;
const PLACES_MAX: usize = 24;
/// Colours of the page; what comes later begins again.
const COLOURS: usize = 8;
/// A label is cut to so many letters.
const LABEL_MAX: usize = 34;

/// A figure with as many digits as matter.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 10.0 {
        format!("{value:.0}")
    } else if size >= 1.0 {
        format!("{value:.1}")
    } else if size > 0.0 {
        format!("{value:.2}")
    } else {
        "0".to_owned()
    }
}

fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// The step between ticks, so that there are three to seven of them: 1, 2 or 5 of a power of ten.
fn step(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let fits = steps.into_iter().find(|step| rough <= *step);
    fits.unwrap_or(10.0 * power)
}

/// From values to pixels.
struct Scale {
    most: f64,
    /// Between ticks.
    step: f64,
    places: usize,
}

impl Scale {
    fn up(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (value / self.most).clamp(0.0, 1.0)
    }

    /// The middle of a place.
    fn across(&self, place: usize) -> f64 {
        LEFT + self.slot() * (place as f64 + 0.5)
    }

    /// What a place has.
    fn slot(&self) -> f64 {
        (RIGHT - LEFT) / self.places.max(1) as f64
    }
}

impl Figure {
    /// Whether anything is known.
    pub(super) fn is_empty(&self) -> bool {
        let mut points = self.series.iter().flat_map(|series| &series.points);
        !points.any(Option::is_some)
    }

    /// The chart and its table.
    pub(super) fn show(&self, page: &mut String, look: Look) {
        match self.series.len() <= SERIES_MAX && self.places.len() <= PLACES_MAX {
            true => page.push_str(&self.chart(look)),
            false => page.push_str("<p>There is too much of it for a chart.</p>\n"),
        }
        self.table(page);
    }

    fn scale(&self) -> Scale {
        let points = self.series.iter().flat_map(|series| &series.points);
        let highs = points.flatten().map(|point| point.high.max(point.value));
        let most = highs.filter(|high| high.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most);
        Scale {
            most: (most / step).ceil() * step,
            step,
            places: self.places.len(),
        }
    }

    fn chart(&self, look: Look) -> String {
        let scale = self.scale();
        let rows = self.series.len().div_ceil(LEGEND_BESIDE);
        let height = LEGEND_TOP + LEGEND_HEIGHT * rows as f64;
        let title = escape(&self.title);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
             <title>{title}</title>\n"
        );
        self.axes(&mut svg, &scale);
        for (number, series) in self.series.iter().enumerate() {
            let loaded = if series.is_loaded { " loaded" } else { "" };
            let _ = write!(svg, "<g class=\"c{}{loaded}\">", number % COLOURS);
            match look {
                Look::Bars => self.bars(&mut svg, &scale, number),
                Look::Lines => lines(&mut svg, &scale, series),
            }
            legend(&mut svg, number, series);
            svg.push_str("</g>\n");
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String, scale: &Scale) {
        let ticks = (scale.most / scale.step).round() as u32;
        for tick in 0..=ticks {
            let value = f64::from(tick) * scale.step;
            let y = scale.up(value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short(value),
            );
        }
        for (place, label) in self.places.iter().enumerate() {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                scale.across(place),
                BOTTOM + 16.0,
                escape(&cut(label, LABEL_MAX / 2)),
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <text x=\"{LEFT}\" y=\"{}\">{}</text>",
            BOTTOM + 34.0,
            escape(self.across),
            BOTTOM + 34.0,
            escape(self.unit),
        );
    }

    /// The bars of one series, beside those of the others.
    fn bars(&self, svg: &mut String, scale: &Scale, number: usize) {
        let width = scale.slot() * 0.8 / self.series.len().max(1) as f64;
        for (place, point) in self.series[number].points.iter().enumerate() {
            let Some(point) = point else { continue };
            let left = scale.across(place) - scale.slot() * 0.4 + width * number as f64;
            let top = scale.up(point.value);
            let _ = write!(
                svg,
                "<rect class=\"bar\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"/>",
                (width - 1.0).max(0.5),
                BOTTOM - top,
            );
            whisker(svg, scale, left + width / 2.0, point);
        }
    }

    fn table(&self, page: &mut String) {
        let _ = write!(
            page,
            "<table>\n<thead><tr><th scope=\"col\">{}</th>",
            escape(self.unit)
        );
        for place in &self.places {
            let _ = write!(page, "<th scope=\"col\">{}</th>", escape(place));
        }
        page.push_str("</tr></thead>\n<tbody>\n");
        for series in &self.series {
            let _ = write!(page, "<tr><th scope=\"row\">{}</th>", escape(&series.label));
            for point in &series.points {
                let shown = match point {
                    None => "–".to_owned(),
                    Some(point) if point.low == point.value && point.high == point.value => {
                        short(point.value)
                    }
                    Some(Point { value, low, high }) => {
                        let ends = format!("{} to {}", short(*low), short(*high));
                        format!("{}<small>{ends}</small>", short(*value))
                    }
                };
                let _ = write!(page, "<td class=\"n\">{shown}</td>");
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</tbody>\n</table>\n");
    }
}

fn whisker(svg: &mut String, scale: &Scale, x: f64, point: &Point) {
    if point.low == point.high {
        return;
    }
    let (top, bottom) = (scale.up(point.high), scale.up(point.low));
    let _ = write!(
        svg,
        "<line class=\"whisker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>"
    );
}

/// A line from each point to the next; what is not known is a gap.
fn lines(svg: &mut String, scale: &Scale, series: &Series) {
    let mut way = String::new();
    let mut is_drawing = false;
    for (place, point) in series.points.iter().enumerate() {
        let Some(point) = point else {
            is_drawing = false;
            continue;
        };
        let letter = if is_drawing { 'L' } else { 'M' };
        is_drawing = true;
        let (x, y) = (scale.across(place), scale.up(point.value));
        let _ = write!(way, "{letter}{x:.1} {y:.1}");
        let _ = write!(
            svg,
            "<circle class=\"bar\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
        );
        whisker(svg, scale, x, point);
    }
    let _ = write!(svg, "<path class=\"line\" d=\"{way}\"/>");
}

fn legend(svg: &mut String, number: usize, series: &Series) {
    let column = (number % LEGEND_BESIDE) as f64;
    let row = (number / LEGEND_BESIDE) as f64;
    let x = LEFT + column * (RIGHT - LEFT) / LEGEND_BESIDE as f64;
    let y = LEGEND_TOP + LEGEND_HEIGHT * row;
    let _ = write!(
        svg,
        "<rect class=\"bar\" x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"/>\
         <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
        y - 9.0,
        x + 15.0,
        escape(&cut(&series.label, LABEL_MAX)),
    );
}

#[cfg(test)]
mod tests {
    use super::super::tests::is_balanced;
    use super::*;

    fn figure() -> Figure {
        let point = |value: f64| {
            Some(Point {
                value,
                low: value / 2.0,
                high: value * 1.5,
            })
        };
        Figure {
            title: "a <title>".into(),
            across: "memory",
            unit: "MB/s",
            places: vec!["1".into(), "2".into()],
            series: vec![
                Series {
                    label: "ext4".into(),
                    is_loaded: false,
                    points: vec![point(40.0), point(80.0)],
                },
                Series {
                    label: "<xfs>".into(),
                    is_loaded: true,
                    points: vec![None, point(20.0)],
                },
            ],
        }
    }

    #[test]
    fn values_are_where_the_axis_says() {
        let figure = figure();
        // 120 is the most, in steps of 50: the axis ends at 150.
        let scale = figure.scale();
        assert_eq!(
            (scale.most, scale.up(0.0), scale.up(150.0)),
            (150.0, BOTTOM, TOP)
        );
        assert_eq!(scale.up(75.0), f64::midpoint(BOTTOM, TOP));
        let (first, second) = (scale.across(0), scale.across(1));
        assert!(LEFT < first && first < second && second < RIGHT);
        let svg = figure.chart(Look::Lines);
        let y = scale.up(80.0);
        let dot = format!("cx=\"{second:.1}\" cy=\"{y:.1}\"");
        assert!(svg.contains(&dot) && svg.contains(">150<"), "{svg}");
        // What is not known is not drawn, and not zero.
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(
            figure
                .chart(Look::Bars)
                .matches("class=\"whisker\"")
                .count(),
            3
        );
    }

    #[test]
    fn steps_are_round() {
        for (most, known) in [
            (120.0, 50.0),
            (1.0, 0.2),
            (9.9, 2.0),
            (2500.0, 500.0),
            (0.03, 0.01),
        ] {
            let found = step(most);
            assert!((found - known).abs() < 1e-9, "{most}: {found}");
        }
    }

    #[test]
    fn the_table_has_what_the_chart_has() {
        let mut page = String::new();
        figure().show(&mut page, Look::Bars);
        assert!(is_balanced(&page), "{page}");
        for part in [
            "<th scope=\"row\">&lt;xfs&gt;</th><td class=\"n\">–</td>",
            "80<small>40 to 120</small>",
            "class=\"c1 loaded\"",
            "<title>a &lt;title&gt;</title>",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }

    #[test]
    fn too_much_is_a_table_alone_and_nothing_at_all_is_no_harm() {
        let mut many = figure();
        many.series = (0..20).map(|_| many.series[0].clone()).collect();
        let mut page = String::new();
        many.show(&mut page, Look::Bars);
        assert!(
            !page.contains("<svg") && page.matches("<tr>").count() == 21,
            "{page}"
        );
        let none = Figure {
            places: Vec::new(),
            series: Vec::new(),
            ..figure()
        };
        assert!(none.is_empty() && is_balanced(&none.chart(Look::Lines)));
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(
            [0.0, 0.5, 3.26, 1234.6].map(short),
            ["0", "0.50", "3.3", "1235"]
        );
    }
}
