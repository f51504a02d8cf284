//! What a chart is: lines over a horizontal axis, their names, and what else stands in it.
//!
//! No legend: a reader looks from the line to its name, not to a box. Colours are told apart by
//! people with the common colour blindnesses.

use serde::{Deserialize, Serialize};

/// The vertical axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum Scale {
    /// From 0.
    #[default]
    Linear,
    /// Whole decades; what is not above 0 is drawn at the lower end.
    Log,
}

/// Colours of lines. Source: Okabe and Ito, Color Universal Design, 2008.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "a colour's name says what it is")]
pub enum Colour {
    Blue,
    SkyBlue,
    Vermilion,
    Orange,
    Green,
    Purple,
    Grey,
}

impl Colour {
    pub(crate) fn hex(self) -> &'static str {
        match self {
            Self::Blue => "#0072B2",
            Self::SkyBlue => "#56B4E9",
            Self::Vermilion => "#D55E00",
            Self::Orange => "#E69F00",
            Self::Green => "#009E73",
            Self::Purple => "#CC79A7",
            Self::Grey => "#555555",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Stands at the end of the line, in its colour.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// Drawn thicker: the line that the chart is about.
    pub is_bold: bool,
    /// Few points: each has a dot, and the last one's value stands behind the name.
    pub has_dots: bool,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A line through few points.
    pub fn with_dots(name: &str, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self {
            has_dots: true,
            ..Self::without_dots(name, colour, points)
        }
    }

    /// A line through many points.
    pub fn without_dots(name: &str, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            colour,
            is_bold: false,
            has_dots: false,
            points,
        }
    }
}

/// One chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Conditions, and what a point is.
    pub subtitle: String,
    /// What the horizontal axis says, with its unit; it begins at 0.
    pub x_label: String,
    /// What stands below 0, 1, 2 and so on; numbers if empty.
    pub x_names: Vec<String>,
    /// What the vertical axis says, with its unit.
    pub y_label: String,
    /// How the vertical axis is divided.
    pub y_scale: Scale,
    /// Values above are drawn at this height; the label of the axis has to say so.
    pub y_cut: Option<f64>,
    /// The lines.
    pub series: Vec<Series>,
    /// A horizontal line with its name.
    pub ideal: Option<(f64, String)>,
    /// Vertical lines with their names, which may have several lines of text.
    pub marks: Vec<(f64, String)>,
}
