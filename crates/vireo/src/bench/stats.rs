//! A number that was measured several times.

use serde::Serialize;
use std::fmt;

/// The measurements and what they come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Measured {
    /// The middle one (of an even number, the mean of the two in the middle).
    pub(super) median: f64,
    /// The smallest.
    pub(super) min: f64,
    /// The largest.
    pub(super) max: f64,
    /// All, in order of time.
    pub(super) runs: Vec<f64>,
}

impl Measured {
    /// `None` if there are no measurements.
    pub(super) fn of(runs: Vec<f64>) -> Option<Self> {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Measured { median, min, max, runs })
    }
}

impl fmt::Display for Measured {
    /// `median (min to max)`, rounded to what is meant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} ({:.0} to {:.0})", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        let odd = Measured::of(vec![9.0, 1.0, 4.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (4.0, 1.0, 9.0));
        assert_eq!(odd.to_string(), "4 (1 to 9)");
        assert_eq!(odd.runs, [9.0, 1.0, 4.0]);
        assert_eq!(Measured::of(vec![4.0, 1.0, 9.0, 2.0]).unwrap().median, 3.0);
        assert_eq!(Measured::of(vec![]), None);
    }
}
