//! A tuning run as a page: every cell as a point between recovery rate and speed.

use super::chart::scatter;
use super::{Conditions, begun, escape};
use crate::speed::Outcome;
use crate::tune::{Point, front, trade_off};
use std::fmt::Write;

/// The page of a tuning run.
#[must_use]
pub fn tune_page(speeds: &Outcome, points: &[Point], conditions: Conditions<'_>) -> String {
    let mut page = begun(
        "Tuning run",
        "What is fast, and what is recovered",
        conditions,
    );
    if speeds.is_loaded {
        page.push_str(
            "<p class=\"bad\">Others used the machine. These speeds are no basis for a \
             comparison.</p>\n",
        );
    }
    let fronts = front(points);
    page.push_str(
        "<table>\n<tr><th></th><th>cell</th><th>recovered</th><th>interval</th><th>speed</th>\
         <th>interval</th><th></th></tr>\n",
    );
    let mut shown = Vec::new();
    for (number, (point, is_on_front)) in (1..).zip(points.iter().zip(&fronts)) {
        let (Some(recovery), Some(speed)) = (point.recovery(), point.speed) else {
            continue;
        };
        shown.push((number, speed.median, recovery.median, *is_on_front));
        let scale = if speed.measure.is_in_bytes() {
            1e6
        } else {
            1.0
        };
        let unit = if speed.measure.is_in_bytes() {
            "MB/s"
        } else {
            "/s"
        };
        let _ = writeln!(
            page,
            "<tr><td class=\"n\">{number}</td><td>{}</td><td class=\"n\">{:.1} %</td>\
             <td class=\"n\">{:.1} to {:.1}</td><td class=\"n\">{:.1} {unit}</td>\
             <td class=\"n\">{:.1} to {:.1}</td><td>{}</td></tr>",
            escape(&speeds.name(&point.cell)),
            recovery.median * 100.0,
            recovery.interval.low * 100.0,
            recovery.interval.high * 100.0,
            speed.median / scale,
            speed.interval.low / scale,
            speed.interval.high / scale,
            if *is_on_front { "front" } else { "" },
        );
    }
    page.push_str("</table>\n");
    let _ = writeln!(page, "<p>{}</p>", scatter(&shown));
    page.push_str("<p>Speed to the right, recovery rate upwards; filled: the Pareto front.</p>\n");
    match trade_off(points) {
        Some(found) => {
            let _ = write!(
                page,
                "<p>Rank correlation of the two over {} cells: {:.2}",
                found.count, found.rho
            );
            if let Some(interval) = found.interval {
                let _ = write!(page, " ({:.2} to {:.2})", interval.low, interval.high);
            }
            page.push_str(".</p>\n");
        }
        None => page.push_str("<p>One of the two is the same everywhere.</p>\n"),
    }
    page.push_str("</body>\n</html>\n");
    page
}

#[cfg(test)]
mod tests {
    use super::super::tests::is_balanced;
    use super::*;
    use crate::crash::Target;
    use crate::speed::{Cell, Measure, Place, Summary};
    use crate::statistics::median_interval;
    use crate::tune::recovery::{Cut, Recovered};
    use std::time::Duration;

    fn point(flush_seconds: u64, speed: f64, share: f64) -> Point {
        let cut = Cut {
            wait: Duration::ZERO,
            bytes: share,
            whole_files: 1,
            is_mountable: true,
        };
        Point {
            cell: Cell {
                place: Place::Made(Target::Ext4),
                block_bytes: Some(4096),
                memory_bytes: None,
                flush_time: Some(Duration::from_secs(flush_seconds)),
                settings: Vec::new(),
                mount_options: String::new(),
            },
            speed: Some(Summary {
                cell: 0,
                measure: Measure::BlockWrite,
                count: 1,
                median: speed,
                interval: median_interval(&[speed]).expect("of one value"),
                cpu: None,
                is_steady: true,
            }),
            recovered: vec![Recovered { cuts: vec![cut] }],
        }
    }

    #[test]
    fn a_page_has_every_point_and_is_well_formed() {
        let points = [point(30, 2e8, 0.25), point(1, 1e8, 0.75)];
        let speeds = Outcome {
            cells: points.iter().map(|point| point.cell.clone()).collect(),
            ..Outcome::default()
        };
        let page = tune_page(&speeds, &points, &[("kernel", "6.1 <x>".to_owned())]);
        assert!(is_balanced(&page), "{page}");
        for part in [
            "ext4, flush 30 s",
            "75.0 %",
            "200.0 MB/s",
            "front",
            "<svg",
            "-1.00",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        let nothing = tune_page(&Outcome::default(), &[], &[]);
        assert!(is_balanced(&nothing) && nothing.contains("the same everywhere"));
    }
}
