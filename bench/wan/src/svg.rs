//! Line charts as SVG: axes, lines with points, and the name of each line at its end.
//!
//! No legend: a reader looks from the line to its name, not to a box. Names that would overlap
//! are moved apart and tied to their lines by thin leaders. Colours are told apart by people with
//! the common colour blindnesses (Okabe and Ito), and the page may be light or dark: the chart
//! brings its own background.

use std::fmt::Write;

/// Width of a chart and of its parts, in pixels.
pub(crate) const WIDTH: f64 = 760.0;
pub(crate) const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 52.0;
const LABEL_GAP: f64 = 15.0;

/// The vertical axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) has_dots: bool,
}

/// One chart.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    pub(crate) y_scale: Scale,
    /// Values above are drawn at this height; the label of the axis has to say so.
    pub(crate) y_cut: Option<f64>,
    pub(crate) series: Vec<Series>,
    /// A horizontal line with its name.
    pub(crate) ideal: Option<(f64, String)>,
    /// Vertical lines with their names, which may have several lines of text.
    pub(crate) marks: Vec<(f64, String)>,
}

/// From values to pixels.
struct Plane {
    x_max: f64,
    y_min: f64,
    y_max: f64,
    y_scale: Scale,
}

impl Plane {
    fn of(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let x_max = points().map(|(x, _)| *x).fold(1.0, f64::max);
        let ideal = chart.ideal.as_ref().map_or(0.0, |(y, _)| *y);
        let y_top = points().map(|(_, y)| *y).fold(ideal, f64::max).max(1e-9);
        let y_top = chart.y_cut.map_or(y_top, |cut| y_top.min(cut));
        match chart.y_scale {
            Scale::Linear => Self {
                x_max,
                y_min: 0.0,
                y_max: if chart.y_cut.is_some() {
                    y_top
                } else {
                    y_top * 1.08
                },
                y_scale: Scale::Linear,
            },
            Scale::Log => {
                let y_low = points()
                    .map(|(_, y)| *y)
                    .filter(|y| *y > 0.0)
                    .fold(y_top, f64::min);
                let y_min = 10f64.powf(y_low.log10().floor());
                let y_max = 10f64.powf(y_top.log10().ceil()).max(y_min * 10.0);
                Self {
                    x_max,
                    y_min,
                    y_max,
                    y_scale: Scale::Log,
                }
            }
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let value = value.min(self.y_max);
        let share = match self.y_scale {
            Scale::Linear => (value - self.y_min) / (self.y_max - self.y_min),
            Scale::Log => {
                (value.max(self.y_min) / self.y_min).log10() / (self.y_max / self.y_min).log10()
            }
        };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn y_ticks(&self) -> Vec<f64> {
        match self.y_scale {
            Scale::Linear => ticks(self.y_max),
            Scale::Log => {
                let decades = (self.y_max / self.y_min).log10().round() as i32;
                (0..=decades)
                    .map(|decade| self.y_min * 10f64.powi(decade))
                    .collect()
            }
        }
    }
}

/// Round steps from 0 to a maximum, about five of them.
fn ticks(max: f64) -> Vec<f64> {
    let raw = max / 5.0;
    let magnitude = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| *step >= raw)
        .unwrap_or(magnitude * 10.0);
    (0..=(max / step) as u32)
        .map(|index| f64::from(index) * step)
        .collect()
}

/// A colour that belongs to a name in every chart.
fn colour(name: &str) -> &'static str {
    match name {
        "azekura" => "#0072B2",
        "azekura-blocking" => "#56B4E9",
        "sshfs" => "#D55E00",
        "sshfs-ra16" => "#E69F00",
        "rclone-http" => "#009E73",
        "rclone-sftp" => "#CC79A7",
        _ => "#555555",
    }
}

fn number(value: f64) -> String {
    if value == 0.0 || (value.fract() == 0.0 && value.abs() >= 1.0) {
        format!("{value:.0}")
    } else {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Charts below one another in one document.
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
        let _ = writeln!(
            out,
            "<g transform=\"translate(0 {top})\">\n{}</g>",
            panel(chart)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn panel(chart: &Chart) -> String {
    let plane = Plane::of(chart);
    let mut out = String::new();
    // Writing to a String cannot fail, so results are not looked at in this file.
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"600\">{}</text>\n\
         <text x=\"{LEFT}\" y=\"42\" fill=\"#666\">{}</text>",
        escape(&chart.title),
        escape(&chart.subtitle)
    );
    axes(&mut out, chart, &plane);
    marks(&mut out, chart, &plane);
    for series in &chart.series {
        line(&mut out, series, &plane);
    }
    labels(&mut out, chart, &plane);
    out
}

fn axes(out: &mut String, chart: &Chart, plane: &Plane) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in plane.y_ticks() {
        let y = plane.y(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            number(tick)
        );
    }
    for tick in ticks(plane.x_max) {
        let x = plane.x(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"#999\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{}</text>",
            bottom + 5.0,
            bottom + 19.0,
            number(tick)
        );
    }
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#999\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"16\" y=\"{:.1}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 16 {:.1})\">{}</text>",
        (LEFT + right) / 2.0,
        bottom + 40.0,
        escape(&chart.x_label),
        (TOP + bottom) / 2.0,
        (TOP + bottom) / 2.0,
        escape(&chart.y_label)
    );
}

fn marks(out: &mut String, chart: &Chart, plane: &Plane) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    if let Some((value, _)) = &chart.ideal {
        let y = plane.y(*value);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#888\" \
             stroke-dasharray=\"5 4\"/>"
        );
    }
    for (value, name) in &chart.marks {
        let x = plane.x(*value);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#aaa\" \
             stroke-dasharray=\"2 3\"/>"
        );
        for (index, text) in name.lines().enumerate() {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#666\" font-size=\"10\">{}</text>",
                x + 4.0,
                TOP + 4.0 + 12.0 * index as f64,
                escape(text)
            );
        }
    }
}

fn line(out: &mut String, series: &Series, plane: &Plane) {
    let path: Vec<String> = series
        .points
        .iter()
        .map(|(x, y)| format!("{:.1},{:.1}", plane.x(*x), plane.y(*y)))
        .collect();
    let colour = colour(&series.name);
    let width = if series.name == "azekura" { 3.0 } else { 2.0 };
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
         stroke-linejoin=\"round\"/>",
        path.join(" ")
    );
    for (x, y) in series.points.iter().filter(|_| series.has_dots) {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{}: {}</title>\
             </circle>",
            plane.x(*x),
            plane.y(*y),
            escape(&series.name),
            number(*y)
        );
    }
}

/// Names at the ends of the lines, moved apart where they would overlap.
fn labels(out: &mut String, chart: &Chart, plane: &Plane) {
    let right = WIDTH - RIGHT;
    let mut wanted: Vec<(f64, f64, String, &str)> = chart
        .series
        .iter()
        .filter_map(|series| {
            let (x, y) = series.points.last()?;
            let name = if series.has_dots {
                format!("{} {}", series.name, number((y * 10.0).round() / 10.0))
            } else {
                series.name.clone()
            };
            Some((plane.x(*x), plane.y(*y), name, colour(&series.name)))
        })
        .collect();
    if let Some((value, name)) = &chart.ideal {
        wanted.push((right, plane.y(*value), name.clone(), "#666666"));
    }
    wanted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let heights: Vec<f64> = wanted.iter().map(|(_, y, _, _)| *y).collect();
    for ((x, y, name, colour), at) in wanted.iter().zip(spread(&heights)) {
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{at:.1}\" stroke=\"{colour}\" \
             stroke-width=\"0.8\" opacity=\"0.6\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            x + 5.0,
            right + 14.0,
            right + 17.0,
            at + 4.0,
            escape(name)
        );
    }
}

/// Sorted heights moved so that neighbours keep a distance and all stay within the plane.
fn spread(heights: &[f64]) -> Vec<f64> {
    let mut at = heights.to_vec();
    for index in 1..at.len() {
        at[index] = at[index].max(at[index - 1] + LABEL_GAP);
    }
    let mut limit = HEIGHT - BOTTOM;
    for height in at.iter_mut().rev() {
        *height = height.min(limit);
        limit = *height - LABEL_GAP;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance_and_stay_inside() {
        let at = spread(&[100.0, 101.0, 102.0, 327.0, 328.0]);
        assert!(
            at.windows(2)
                .all(|pair| pair[1] - pair[0] >= LABEL_GAP - 1e-9),
            "{at:?}"
        );
        assert!(at.last().is_some_and(|last| *last <= HEIGHT - BOTTOM));
    }

    #[test]
    fn ticks_are_round_and_cover_the_axis() {
        assert_eq!(ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(127.0), [0.0, 50.0, 100.0]);
    }

    #[test]
    fn a_chart_is_well_formed_text_with_every_name() {
        let series = |name: &str, y| Series {
            name: name.to_owned(),
            points: vec![(0.0, y), (100.0, y / 2.0)],
            has_dots: true,
        };
        let chart = Chart {
            title: "a < b".to_owned(),
            subtitle: String::new(),
            x_label: "RTT, ms".to_owned(),
            y_label: "s".to_owned(),
            y_scale: Scale::Log,
            y_cut: None,
            series: vec![series("sshfs", 30.0), series("rclone-http", 900.0)],
            ideal: None,
            marks: vec![(50.0, "step".to_owned())],
        };
        let text = document(&[chart]);
        assert!(text.contains("a &lt; b") && text.contains("sshfs 15") && !text.contains("NaN"));
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }
}
