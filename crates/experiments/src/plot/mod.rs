//! Plots as SVG: lines over time or load ([`Chart`]) and groups of bars ([`Bars`]).
//!
//! Text stays text in the SVG, so the plots need no fonts of the machine. Values of a paper are
//! dashed.

mod axis;
mod bars;
mod chart;
mod frame;

pub use axis::{Axis, Scale};
pub use bars::{BarSeries, Bars};
pub use chart::{Chart, Mark, MarkPosition, Series, Style};

/// Reason for which a plot cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The plot has no content.
    #[error("the plot {0:?} has no values")]
    Empty(String),
    #[error("drawing {title:?}: {reason}")]
    Drawing { title: String, reason: String },
}

/// Returns the points of a cumulative distribution: for ascending values, the share of values that
/// are not larger. It has at most a few hundred points, including the largest value.
pub fn cdf(values: &[f64]) -> Vec<(f64, f64)> {
    const POINTS: usize = 400;
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let step = sorted.len().div_ceil(POINTS).max(1);
    let share = |index: usize| (index + 1) as f64 / sorted.len() as f64;
    let last = sorted.len().wrapping_sub(1);
    let kept = sorted.iter().enumerate().filter(|(index, _)| index % step == 0 || *index == last);
    kept.map(|(index, value)| (*value, share(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_ends_at_largest_value() {
        let points = cdf(&(0..10_000).rev().map(f64::from).collect::<Vec<_>>());
        assert!(points.len() < 500, "{}", points.len());
        assert_eq!(points.last(), Some(&(9999.0, 1.0)));
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        assert_eq!(cdf(&[2.0, 1.0]), [(1.0, 0.5), (2.0, 1.0)]);
        assert_eq!(cdf(&[]), []);
    }
}
