//! Charts drawn as SVG. The page may be light or dark: a chart brings its own background. Names
//! that were moved apart are tied to their lines by thin leaders.

use crate::chart::{Chart, Series};
use crate::plane::{BOTTOM, HEIGHT, LEFT, Plane, RIGHT, TOP, WIDTH, moved_apart};
use std::fmt::Write;

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
    for tick in plane.y_ticks() {
        let y = plane.y(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            number(tick)
        );
    }
    for (value, name) in below(chart, plane) {
        let x = plane.x(value);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\" stroke=\"#999\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{}</text>",
            BOTTOM + 5.0,
            BOTTOM + 19.0,
            escape(&name)
        );
    }
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\" stroke=\"#999\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"16\" y=\"{:.1}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 16 {:.1})\">{}</text>",
        (LEFT + RIGHT) / 2.0,
        BOTTOM + 40.0,
        escape(&chart.x_label),
        (TOP + BOTTOM) / 2.0,
        (TOP + BOTTOM) / 2.0,
        escape(&chart.y_label)
    );
}

/// What stands below the horizontal axis, and where.
fn below(chart: &Chart, plane: &Plane) -> Vec<(f64, String)> {
    if chart.x_names.is_empty() {
        let ticks = plane.x_ticks().into_iter();
        ticks.map(|tick| (tick, number(tick))).collect()
    } else {
        let names = chart.x_names.iter().enumerate();
        names.map(|(at, name)| (at as f64, name.clone())).collect()
    }
}

fn marks(out: &mut String, chart: &Chart, plane: &Plane) {
    if let Some((value, _)) = &chart.ideal {
        let y = plane.y(*value);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#888\" \
             stroke-dasharray=\"5 4\"/>"
        );
    }
    for (value, name) in &chart.marks {
        let x = plane.x(*value);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\" stroke=\"#aaa\" \
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
    let colour = series.colour.hex();
    let width = if series.is_bold { 3.0 } else { 2.0 };
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
            Some((plane.x(*x), plane.y(*y), name, series.colour.hex()))
        })
        .collect();
    if let Some((value, name)) = &chart.ideal {
        wanted.push((RIGHT, plane.y(*value), name.clone(), "#666666"));
    }
    wanted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let heights: Vec<f64> = wanted.iter().map(|(_, y, _, _)| *y).collect();
    for ((x, y, name, colour), at) in wanted.iter().zip(moved_apart(&heights)) {
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{at:.1}\" stroke=\"{colour}\" \
             stroke-width=\"0.8\" opacity=\"0.6\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            x + 5.0,
            RIGHT + 14.0,
            RIGHT + 17.0,
            at + 4.0,
            escape(name)
        );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Colour, Scale};

    #[test]
    fn a_chart_is_well_formed_text_with_every_name() {
        let chart = Chart {
            title: "a < b".to_owned(),
            y_scale: Scale::Log,
            series: vec![
                Series::with_dots("sshfs", Colour::Green, vec![(0.0, 30.0), (2.0, 15.0)]),
                Series::without_dots("null & void", Colour::Grey, vec![(0.0, 900.0), (2.0, 0.0)]),
            ],
            ideal: Some((117.7, "line 117.7".to_owned())),
            marks: vec![(1.0, "100 ms\n10 Mbit".to_owned())],
            ..Chart::default()
        };
        let text = document(&[chart.clone(), chart]);
        for name in [
            "a &lt; b",
            ">sshfs 15<",
            ">null &amp; void<",
            ">line 117.7<",
            ">10 Mbit<",
        ] {
            assert_eq!(text.matches(name).count(), 2, "{name} in {text}");
        }
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn names_below_the_axis_take_the_place_of_numbers() {
        let chart = |x_names: &[&str]| Chart {
            x_names: x_names.iter().map(|name| (*name).to_owned()).collect(),
            series: vec![Series::without_dots(
                "a",
                Colour::Blue,
                vec![(0.0, 1.0), (2.0, 9.0)],
            )],
            ..Chart::default()
        };
        let named = document(&[chart(&["64K", "128K", "256K"])]);
        let middle = format!("x=\"{:.1}\"", (LEFT + RIGHT) / 2.0);
        let line = named.lines().find(|line| line.contains(">128K<"));
        assert!(line.is_some_and(|line| line.contains(&middle)), "{named}");
        let numbered = document(&[chart(&[])]);
        assert!(numbered.contains(">1.5<") && !named.contains(">1.5<"));
    }
}
