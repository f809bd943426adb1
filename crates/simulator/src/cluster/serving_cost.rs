//! CPU time of a procedure that a replica serves.

use std::fmt;
use std::str::FromStr;

/// CPU time of a procedure that a replica serves, as parts of that of a procedure that the owner
/// serves.
///
/// The text form is `TOTAL,OWNER`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServingCost {
    /// CPU time of both hosts.
    pub total: f64,
    /// CPU time of the owner, which judges and commits the proposal.
    pub owner: f64,
}

impl ServingCost {
    /// Medians that `vireo bench cluster` measured with one replica, with two decimals. With two
    /// replicas it measured less.
    ///
    /// A test compares them with `results/bench-cluster/summary.json`.
    pub const MEASURED: ServingCost = ServingCost { total: 1.3, owner: 0.5 };

    /// Returns the CPU time of the serving host.
    pub(super) fn serving_host(self) -> f64 {
        (self.total - self.owner).max(0.0)
    }
}

impl Default for ServingCost {
    /// Returns the measured cost.
    fn default() -> Self {
        ServingCost::MEASURED
    }
}

impl fmt::Display for ServingCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.total, self.owner)
    }
}

/// A text is no [`ServingCost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two positive numbers are wanted, the second at most the first, as in 1.54,0.57")]
pub struct ServingCostError;

impl FromStr for ServingCost {
    type Err = ServingCostError;

    fn from_str(text: &str) -> Result<Self, ServingCostError> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        let (total, owner) = text.split_once(',').ok_or(ServingCostError)?;
        match (number(total), number(owner)) {
            (Some(total), Some(owner)) if owner <= total => Ok(ServingCost { total, owner }),
            _ => Err(ServingCostError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = include_str!("../../../../results/bench-cluster/summary.json");

    #[test]
    fn default_cost_matches_record() {
        let record: serde_json::Value = serde_json::from_str(RECORD).unwrap();
        let median = |name: &str| {
            let figures = record["figures"].as_array().unwrap();
            figures.iter().find(|figure| figure["name"] == name).unwrap()["ours"]["median"].as_f64().unwrap() / 100.0
        };
        let total = 1.0 + median("CPU beyond that of the owner, served by the replica of 1");
        let owner = median("CPU of the owner, of what it needs to serve, served by the replica of 1");
        let ServingCost { total: own_total, owner: own } = ServingCost::MEASURED;
        assert!(
            (own_total - total).abs() <= 0.005 && (own - owner).abs() <= 0.005,
            "results/bench-cluster has {total:.2},{owner:.2}: change ServingCost::MEASURED, and record the simulated \
             figures again"
        );
    }

    #[test]
    fn text_of_cost_is_read_back() {
        let cost = ServingCost { total: 1.15, owner: 0.4 };
        assert_eq!((cost.to_string().parse(), cost.to_string()), (Ok(cost), "1.15,0.4".to_owned()));
        for wrong in ["", "1.15", "1,2", "1,0", "-1,-2", "NaN,1", "1,x"] {
            assert_eq!(wrong.parse::<ServingCost>(), Err(ServingCostError), "{wrong}");
        }
    }
}
