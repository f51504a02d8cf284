//! Line charts as SVG, below one another. The name of a line stands at its end, in its colour;
//! colours are told apart with the common colour blindnesses.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 48.0;
/// Names of lines are at least so far apart.
const NAME_GAP: f64 = 15.0;

/// One line.
#[derive(Debug)]
pub(crate) struct Series {
    name: String,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

impl Series {
    pub(crate) fn new(name: &str, colour: &'static str, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            colour,
            points,
        }
    }
}

/// One chart; its vertical axis begins at 0.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x_label: String,
    /// What stands below 0, 1, 2, ...; numbers if empty.
    pub(crate) x_names: Vec<String>,
    pub(crate) y_label: String,
    pub(crate) series: Vec<Series>,
}

/// The charts as one document.
pub(crate) fn document(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (index, chart) in charts.iter().enumerate() {
        let top = index as f64 * HEIGHT;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "<g transform=\"translate(0 {top})\">\n{}</g>",
            panel(chart)
        );
    }
    out + "</svg>\n"
}

fn panel(chart: &Chart) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x_max = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let y_max = points().map(|(_, y)| *y).fold(1.0, f64::max) * 1.05;
    let x = |value: f64| LEFT + value / x_max * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / y_max * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<text x=\"{LEFT}\" y=\"24\" font-size=\"15\" font-weight=\"600\">{}</text>\n\
         <text x=\"{LEFT}\" y=\"{}\" fill=\"#666\">{}</text>\n\
         <text x=\"8\" y=\"{TOP}\" fill=\"#666\">{}</text>\n",
        chart.title,
        HEIGHT - 12.0,
        chart.x_label,
        chart.y_label
    );
    for tick in ticks(y_max) {
        let at = y(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick:.0}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    let numbers = ticks(x_max)
        .into_iter()
        .map(|tick| (tick, format!("{tick:.0}")));
    let names = chart.x_names.iter().cloned().enumerate();
    let below: Vec<_> = match chart.x_names.is_empty() {
        true => numbers.collect(),
        false => names.map(|(at, name)| (at as f64, name)).collect(),
    };
    for (value, name) in below {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            x(value),
            HEIGHT - BOTTOM + 18.0
        );
    }
    for series in &chart.series {
        let path: Vec<_> = series
            .points
            .iter()
            .map(|(px, py)| format!("{:.1},{:.1}", x(*px), y(*py)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            path.join(" "),
            series.colour
        );
    }
    names_of_lines(&mut out, chart, &y);
    out
}

/// The names at the lines' ends, moved apart where they would overlap.
fn names_of_lines(out: &mut String, chart: &Chart, y: &dyn Fn(f64) -> f64) {
    let ends = chart
        .series
        .iter()
        .filter_map(|series| Some((y(series.points.last()?.1), series)));
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut lowest = f64::MIN;
    for (end, series) in ends {
        let at = end.max(lowest + NAME_GAP);
        lowest = at;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
            WIDTH - RIGHT + 8.0,
            at + 4.0,
            series.colour,
            series.name
        );
    }
}

/// Round steps from 0 to a maximum, about five of them.
fn ticks(max: f64) -> Vec<f64> {
    let raw = max / 5.0;
    let magnitude = 10f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0].map(|factor| factor * magnitude);
    let step = steps.into_iter().find(|step| *step >= raw);
    let step = step.unwrap_or(magnitude * 10.0);
    (0..=(max / step) as u32)
        .map(|index| f64::from(index) * step)
        .collect()
}
