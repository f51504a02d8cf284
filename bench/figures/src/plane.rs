//! From values to pixels: the size of a chart, its axes, and names that would overlap moved apart.

use crate::chart::{Chart, Scale};

/// Size of a chart, in pixels.
pub(crate) const WIDTH: f64 = 760.0;
pub(crate) const HEIGHT: f64 = 380.0;
/// Where the axes begin and end; there is room for names of lines at the right.
pub(crate) const LEFT: f64 = 64.0;
pub(crate) const RIGHT: f64 = WIDTH - 170.0;
pub(crate) const TOP: f64 = 62.0;
pub(crate) const BOTTOM: f64 = HEIGHT - 52.0;
/// Names of lines are at least so far apart.
const NAME_GAP: f64 = 15.0;
/// Room above the highest value, as a factor.
const HEADROOM: f64 = 1.08;

/// Both axes of a chart.
pub(crate) struct Plane {
    x_max: f64,
    y_min: f64,
    y_max: f64,
    y_scale: Scale,
}

impl Plane {
    pub(crate) fn of(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let x_max = points().map(|(x, _)| *x).fold(1.0, f64::max);
        let ideal = chart.ideal.as_ref().map_or(0.0, |(y, _)| *y);
        let y_top = points().map(|(_, y)| *y).fold(ideal, f64::max).max(1e-9);
        let y_top = chart.y_cut.map_or(y_top, |cut| y_top.min(cut));
        let (y_min, y_max) = match chart.y_scale {
            Scale::Linear if chart.y_cut.is_some() => (0.0, y_top),
            Scale::Linear => (0.0, y_top * HEADROOM),
            Scale::Log => {
                let above_0 = points().map(|(_, y)| *y).filter(|y| *y > 0.0);
                let y_min = decade(above_0.fold(y_top, f64::min).log10().floor());
                (y_min, decade(y_top.log10().ceil()).max(y_min * 10.0))
            }
        };
        Self {
            x_max,
            y_min,
            y_max,
            y_scale: chart.y_scale,
        }
    }

    pub(crate) fn x(&self, value: f64) -> f64 {
        LEFT + value / self.x_max * (RIGHT - LEFT)
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        let value = value.min(self.y_max);
        let share = match self.y_scale {
            Scale::Linear => (value - self.y_min) / (self.y_max - self.y_min),
            Scale::Log => {
                (value.max(self.y_min) / self.y_min).log10() / (self.y_max / self.y_min).log10()
            }
        };
        BOTTOM - share * (BOTTOM - TOP)
    }

    pub(crate) fn x_ticks(&self) -> Vec<f64> {
        ticks(self.x_max)
    }

    pub(crate) fn y_ticks(&self) -> Vec<f64> {
        match self.y_scale {
            Scale::Linear => ticks(self.y_max),
            Scale::Log => {
                let decades = (self.y_max / self.y_min).log10().round();
                (0..=decades as u32)
                    .map(|power| self.y_min * decade(f64::from(power)))
                    .collect()
            }
        }
    }
}

fn decade(power: f64) -> f64 {
    10f64.powf(power)
}

/// Round steps from 0 to a maximum, about five of them.
fn ticks(max: f64) -> Vec<f64> {
    let raw = max / 5.0;
    let magnitude = decade(raw.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0].map(|factor| factor * magnitude);
    let step = steps.into_iter().find(|step| *step >= raw);
    let step = step.unwrap_or(magnitude * 10.0);
    (0..=(max / step) as u32)
        .map(|index| f64::from(index) * step)
        .collect()
}

/// Heights of names, from the top down, moved so that neighbours keep their distance and none is
/// below the axis. With too many names the upper ones leave the plane.
pub(crate) fn moved_apart(heights: &[f64]) -> Vec<f64> {
    let mut at = heights.to_vec();
    for index in 1..at.len() {
        at[index] = at[index].max(at[index - 1] + NAME_GAP);
    }
    let mut limit = BOTTOM;
    for height in at.iter_mut().rev() {
        *height = height.min(limit);
        limit = *height - NAME_GAP;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Colour, Series};

    fn chart(y_scale: Scale, points: &[(f64, f64)]) -> Chart {
        Chart {
            y_scale,
            series: vec![Series::with_dots("a", Colour::Blue, points.to_vec())],
            ..Chart::default()
        }
    }

    #[test]
    fn names_keep_their_distance_and_stay_inside() {
        let at = moved_apart(&[100.0, 101.0, 200.0, BOTTOM - 1.0, BOTTOM]);
        let is_apart = |pair: &[f64]| pair[1] - pair[0] >= NAME_GAP - 1e-9;
        assert!(at.windows(2).all(is_apart), "{at:?}");
        assert_eq!((at[0], at[2], at[4]), (100.0, 200.0, BOTTOM));
    }

    #[test]
    fn ticks_are_round_and_cover_the_axis() {
        assert_eq!(ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(127.0), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(1.2), [0.0, 0.25, 0.5, 0.75, 1.0]);
    }

    #[test]
    fn values_lie_between_the_ends_of_their_axis() {
        let plane = Plane::of(&chart(Scale::Linear, &[(0.0, 0.0), (40.0, 10.0)]));
        assert_eq!((plane.x(0.0), plane.x(40.0)), (LEFT, RIGHT));
        assert_eq!(plane.y(0.0), BOTTOM);
        assert!(
            plane.y(10.0) > TOP && plane.y(11.0) == TOP,
            "cut at the top"
        );
    }

    #[test]
    fn a_log_axis_has_whole_decades_and_draws_nothing_below_them() {
        let plane = Plane::of(&chart(Scale::Log, &[(0.0, 0.0), (1.0, 0.5), (2.0, 30.0)]));
        let expected = [0.1, 1.0, 10.0, 100.0];
        let is_near = |(a, b): (f64, f64)| (a / b - 1.0).abs() < 1e-9;
        assert!(plane.y_ticks().into_iter().zip(expected).all(is_near));
        assert_eq!(plane.y_ticks().len(), expected.len());
        assert_eq!(plane.y(0.0), BOTTOM);
    }
}
