//! Axis of a plot: label, range and ticks.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// Mapping of values to positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear; starts at 0 if no value is negative.
    Linear,
    /// Logarithmic; shows only values above 0.
    Log,
}

/// Requested axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Quantity with its unit: `latency (ms)`.
    pub label: String,
    pub scale: Scale,
    /// Range; derived from the values if `None`.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// Returns a linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Axis { label: label.into(), scale: Scale::Linear, range: None }
    }

    /// Returns a logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Axis { label: label.into(), scale: Scale::Log, range: None }
    }

    /// Sets the range.
    #[must_use]
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }

    /// Returns true if the axis can show the value.
    pub(super) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// Returns the drawn axis for these values.
    pub(super) fn span(&self, values: impl Iterator<Item = f64>) -> Span {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| self.takes(*value)) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        let (low, high) = self.range.unwrap_or(match self.scale {
            Scale::Linear => (low.min(0.0), high + (high - low.min(0.0)) * 0.06),
            Scale::Log => (10_f64.powf(low.log10().floor()), 10_f64.powf((high * 1.05).log10().ceil())),
        });
        let high = if high > low { high } else { low + 1.0 };
        Span { ticks: if self.scale == Scale::Log { Ticks::Log } else { Ticks::Linear }, low, high }
    }
}

/// Positions of the ticks.
#[derive(Clone, Debug)]
enum Ticks {
    Linear,
    Log,
    /// One in the middle of each unit.
    Names(Vec<String>),
}

/// Axis as drawn.
#[derive(Clone, Debug)]
pub(super) struct Span {
    ticks: Ticks,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Span {
    /// Creates an axis with one unit for each name.
    pub(super) fn names(names: &[String]) -> Self {
        Span { ticks: Ticks::Names(names.to_vec()), low: 0.0, high: names.len() as f64 }
    }

    /// Returns the lowest drawable value, as the base of bars.
    pub(super) fn floor(&self) -> f64 {
        if matches!(self.ticks, Ticks::Log) { self.low } else { self.low.max(0.0) }
    }

    /// Returns the value, or the nearest end of the axis.
    pub(super) fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }

    fn linear_ticks(&self, most: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / most.max(2) as f64;
        let magnitude = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * magnitude).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(10.0 * magnitude);
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step + 1e-9).floor() as i64);
        (first..=last).map(|n| n as f64 * step).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within: &[f64] = if high - low <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((high - low) / 8 + 1) as usize;
        let decades = (low..=high).step_by(every).map(|n| 10_f64.powi(n));
        let all = decades.flat_map(|decade| within.iter().map(move |n| n * decade));
        all.filter(|tick| (self.low * 0.999..=self.high * 1.001).contains(tick)).collect()
    }
}

/// A range without a name is linear; the plotting library requires this conversion.
impl From<Range<f64>> for Span {
    fn from(range: Range<f64>) -> Self {
        Span { ticks: Ticks::Linear, low: range.start, high: range.end }
    }
}

impl Ranged for Span {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let place = match self.ticks {
            Ticks::Log => (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10()),
            _ => (value - self.low) / (self.high - self.low),
        };
        limit.0 + (f64::from(limit.1 - limit.0) * place).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        match &self.ticks {
            Ticks::Linear => self.linear_ticks(hint.max_num_points()),
            Ticks::Log => self.log_ticks(),
            Ticks::Names(names) => (0..names.len()).map(|n| n as f64 + 0.5).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Span {
    fn format_ext(&self, value: &f64) -> String {
        match &self.ticks {
            Ticks::Names(names) => names.get(*value as usize).cloned().unwrap_or_default(),
            _ => number(*value),
        }
    }
}

/// Formats a number as short as possible.
fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.4}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::coord::ranged1d::BoldPoints;

    #[test]
    fn ticks_are_round_numbers() {
        let span = Axis::linear("x").span([3.0, 97.0].into_iter());
        assert_eq!(span.key_points(BoldPoints(6)), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let span = Axis::log("x").span([0.0, 0.3, 700.0].into_iter());
        assert_eq!(span.range(), 0.1..1000.0);
        assert_eq!(span.key_points(BoldPoints(6)), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(span.map(&1.0, (0, 100)), 25);
        let span = Axis::linear("x").within(1.0, 3.0).span([9.0].into_iter());
        assert_eq!(span.range(), 1.0..3.0);
        assert_eq!(span.map(&2.0, (100, 0)), 50);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (0.25, "0.25"), (-3.0, "-3"), (1500.0, "1500"), (20_000.0, "20k"), (2.5e6, "2.5M")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn axis_without_values_is_drawn() {
        for axis in [Axis::linear("x"), Axis::log("x")] {
            let span = axis.span([f64::NAN].into_iter());
            assert!(span.low < span.high && !span.key_points(BoldPoints(5)).is_empty());
        }
    }
}
