//! Load at which the figures of a summary were measured.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Load at which figures were taken. CPU time per procedure and latency depend on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfferedLoad {
    /// Kind of the load and meaning of the values.
    pub about: String,
    /// One value per measured load.
    pub values: Vec<f64>,
    /// Unit of the values: `1/s`, `UEs`, `frames`.
    pub unit: String,
}

impl OfferedLoad {
    /// Creates the description of loads.
    pub fn new(about: impl Into<String>, values: impl IntoIterator<Item = f64>, unit: &str) -> Self {
        OfferedLoad { about: about.into(), values: values.into_iter().collect(), unit: unit.into() }
    }
}

impl fmt::Display for OfferedLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = |value: f64| if value.abs() < 10.0 && value.fract() != 0.0 { 2 } else { 0 };
        let values: Vec<String> = self.values.iter().map(|value| format!("{value:.*}", places(*value))).collect();
        write!(f, "{}: {} {}", self.about, values.join(", "), self.unit)
    }
}
