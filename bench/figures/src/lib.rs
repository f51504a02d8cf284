//! What every measurement needs before and after it measures, so that all of them mean the same by
//! a seed, a median, a table in a document and a chart.
//!
//! ```text
//! contained                           namespaces that end with a measurement
//! Random, spread                      places and sizes drawn from a seed
//! Machine, memory_mib, load_average   under what the figures were taken
//! median, quantile                    many figures become one
//! save_json, save_charts, publish     where they go: JSON, SVG, the marked part of a document
//! Chart, Series, Colour, Scale        lines with their names (plane: geometry, svg: drawing)
//! ```
//! What is measured, which rows a table has and whose colour is which, the measurements themselves
//! say. The product does not use this crate.

mod chart;
mod contain;
mod machine;
mod output;
mod plane;
mod random;
mod statistics;
mod svg;

pub use chart::{Chart, Colour, Scale, Series};
pub use contain::contained;
pub use machine::{Machine, load_average, memory_mib};
pub use output::{publish, save_charts, save_json};
pub use random::{Random, spread};
pub use statistics::{median, quantile};
