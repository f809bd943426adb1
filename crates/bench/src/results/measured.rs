//! Quantity with repeated measurements.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Measurements with their statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Median (of an even number, the mean of the two middle values).
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// All values in order of time.
    pub runs: Vec<f64>,
}

impl Measured {
    /// Returns the statistics; `None` if there are no measurements, or if one is not a number.
    pub fn from_runs(runs: Vec<f64>) -> Option<Self> {
        if runs.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Measured { median, min, max, runs })
    }

    /// Returns the statistics of `value` over the runs.
    pub fn each<T>(runs: &[T], value: impl Fn(&T) -> f64) -> Option<Self> {
        Measured::from_runs(runs.iter().map(value).collect())
    }

    /// Returns the mean.
    pub fn mean(&self) -> f64 {
        self.runs.iter().sum::<f64>() / self.runs.len() as f64
    }

    /// Returns half the width of the 95% confidence interval of the mean (Student's t); NaN for
    /// fewer than two runs.
    pub fn interval(&self) -> f64 {
        let freedom = self.runs.len().saturating_sub(1);
        let mean = self.mean();
        let squares: f64 = self.runs.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / freedom as f64).sqrt();
        student(freedom) * deviation / (self.runs.len() as f64).sqrt()
    }
}

/// Returns the 97.5th percentile of Student's distribution by degrees of freedom.
fn student(freedom: usize) -> f64 {
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match freedom {
        0 => f64::NAN,
        1..=10 => FEW[freedom - 1],
        // Expansion in 1/n beyond the table, accurate to three digits there.
        n => 1.96 + 2.372 / n as f64 + 2.823 / (n * n) as f64,
    }
}

impl fmt::Display for Measured {
    /// Formats `median (min to max)` with three significant digits and at most three decimal
    /// places.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = match self.median.abs() {
            size if size >= 100.0 || size == 0.0 => 0,
            size if size >= 10.0 => 1,
            size if size >= 1.0 => 2,
            _ => 3,
        };
        write!(f, "{:.places$} ({:.places$} to {:.places$})", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_interval_matches_student() {
        let measured = Measured::from_runs(vec![9.0, 10.0, 11.0]).unwrap();
        // 4.303 * 1 / sqrt(3)
        assert!((measured.mean() - 10.0).abs() < 1e-9 && (measured.interval() - 2.484).abs() < 1e-3);
        assert!(Measured::from_runs(vec![1.0]).unwrap().interval().is_nan());
        let (twenty, thirty) = (super::student(20), super::student(30));
        assert!((twenty - 2.086).abs() < 2e-3 && (thirty - 2.042).abs() < 2e-3, "{twenty} {thirty}");
    }

    #[test]
    fn medians_and_spreads() {
        let odd = Measured::from_runs(vec![9.0, 1.0, 4.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (4.0, 1.0, 9.0));
        assert_eq!(odd.to_string(), "4.00 (1.00 to 9.00)");
        assert_eq!(odd.runs, [9.0, 1.0, 4.0]);
        assert_eq!(Measured::from_runs(vec![4.0, 1.0, 9.0, 2.0]).unwrap().median, 3.0);
        assert_eq!(Measured::from_runs(vec![]), None);
        assert_eq!(Measured::from_runs(vec![1.0, f64::NAN]), None);
        assert_eq!(Measured::from_runs(vec![1234.4, 0.2]).unwrap().to_string(), "617 (0 to 1234)");
    }
}
