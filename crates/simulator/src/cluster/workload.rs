//! Workload of a cluster: slices of UEs.
//!
//! Each slice has a rate, an arrival pattern, kinds of procedures and objectives. A workload is a
//! file, so that it is fixed before any policy is tried on it.

use serde::{Deserialize, Serialize};
use std::str::FromStr;
use vireo_core::schedule::kind::NfKind;
use vireo_emulator::load::Pattern;

/// Pools of a slice: one for each kind of procedure.
pub(super) const KINDS: usize = NfKind::ALL.len();
/// Maximum number of slices: the pools with work on a core are a set of 64 bits.
pub(super) const MOST_SLICES: usize = 64 / KINDS;

/// Number of UE ranks that are summed one by one for mean times.
const COUNTED_RANKS: u32 = 10_000;

/// Kind of procedure of a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Procedure {
    pub kind: NfKind,
    /// Weight among the slice's procedures; the default is 1.
    pub part: f64,
    /// `T_t`: microseconds of all its messages, alone on a core.
    pub time_us: f64,
    pub messages: u32,
    /// Milliseconds from one message's answer to the next message.
    #[serde(default)]
    pub between_ms: f64,
    /// Objective for the total time of its messages in the core, in milliseconds.
    pub slo_ms: f64,
}

fn constant() -> String {
    "T1".into()
}

/// UEs with longer procedures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeavyUes {
    /// Their share of the UEs, 0 to 1.
    pub part: f64,
    /// Factor of their procedure times.
    pub factor: f64,
}

/// Slice of UEs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    pub name: String,
    /// Procedures that begin per second.
    pub rate: f64,
    /// Arrival pattern: `T1` to `T4`, in the syntax of `vireo emulate --pattern`.
    #[serde(default = "constant")]
    pub pattern: String,
    pub ues: u32,
    /// Skew of the activity: the UE of rank n is active in proportion to `n^-skew`. 0 means
    /// uniform.
    #[serde(default)]
    pub skew: f64,
    /// Maximum activity relative to the least. It gives activity a Pareto distribution of shape `1
    /// / skew` with a cut there, independent of the number of UEs.
    #[serde(default)]
    pub cap: Option<f64>,
    /// UEs with longer procedures, if any.
    #[serde(default)]
    pub heavy: Option<HeavyUes>,
    pub procedures: Vec<Procedure>,
}

/// Workload of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub slices: Vec<Slice>,
}

/// Reason for which a workload is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// The number of slices is invalid.
    #[error("it has {0} slices: 1 to {MOST_SLICES} are simulated")]
    Slices(usize),
    /// A slice is inconsistent.
    #[error("slice {slice}: {problem}")]
    Slice { slice: String, problem: String },
}

impl Workload {
    /// Checks the workload. Returns each slice's pattern.
    pub(super) fn patterns(&self) -> Result<Vec<Pattern>, WorkloadError> {
        if !(1..=MOST_SLICES).contains(&self.slices.len()) {
            return Err(WorkloadError::Slices(self.slices.len()));
        }
        self.slices.iter().map(Slice::checked).collect()
    }

    /// Returns the mean CPU demand, in cores.
    pub fn cores(&self) -> f64 {
        self.slices.iter().map(|slice| slice.rate * slice.mean_us() / 1e6).sum()
    }

    /// Returns the workload with all rates multiplied.
    pub fn scaled(&self, factor: f64) -> Workload {
        let mut scaled = self.clone();
        scaled.slices.iter_mut().for_each(|slice| slice.rate *= factor);
        scaled
    }
}

impl Slice {
    fn checked(&self) -> Result<Pattern, WorkloadError> {
        let wrong = |problem: &str| WorkloadError::Slice { slice: self.name.clone(), problem: problem.to_owned() };
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !positive(self.rate) || self.ues == 0 {
            return Err(wrong("rate and ues must be above 0"));
        }
        if !(0.0..=10.0).contains(&self.skew) {
            return Err(wrong("skew must be 0 to 10"));
        }
        if self.cap.is_some_and(|cap| !(1.1..=1e6).contains(&cap) || self.skew < 0.05) {
            return Err(wrong("cap must be 1.1 to 1000000, with a skew of 0.05 at least"));
        }
        if self.procedures.is_empty() {
            return Err(wrong("it has no procedures"));
        }
        for p in &self.procedures {
            let pause = p.between_ms.is_finite() && p.between_ms >= 0.0;
            if ![p.part, p.time_us, p.slo_ms].into_iter().all(positive) || p.messages == 0 || !pause {
                let kind = p.kind.name();
                return Err(wrong(&format!("{kind}: part, time-us, messages and slo-ms must be above 0")));
            }
        }
        let kinds = self.procedures.iter().map(|p| p.kind).collect::<std::collections::HashSet<_>>();
        if kinds.len() < self.procedures.len() {
            return Err(wrong("each kind of procedure is named once"));
        }
        if self.heavy.is_some_and(|heavy| !(0.0..=1.0).contains(&heavy.part) || !positive(heavy.factor)) {
            return Err(wrong("heavy: part must be 0 to 1 and factor above 0"));
        }
        Pattern::from_str(&self.pattern).map_err(|error| wrong(&error.to_string()))
    }

    /// Returns the mean duration of a procedure, alone.
    fn mean_us(&self) -> f64 {
        let parts: f64 = self.procedures.iter().map(|p| p.part).sum();
        let time: f64 = self.procedures.iter().map(|p| p.part * p.time_us).sum();
        time / parts * self.mean_factor()
    }

    /// Returns the factor on `time_us` for the UE of a rank. UEs with longer procedures are spread
    /// evenly over the ranks, so that the demand of a workload does not depend on the seed.
    pub(super) fn factor(&self, rank: u32) -> f64 {
        let before = |rank: u32, part: f64| (f64::from(rank) * part).floor();
        self.heavy.map_or(1.0, |HeavyUes { part, factor }| {
            let heavy = rank < u32::MAX && before(rank + 1, part) > before(rank, part);
            if heavy { factor } else { 1.0 }
        })
    }

    /// Returns the mean factor over all procedures.
    pub(super) fn mean_factor(&self) -> f64 {
        let first = self.ues.min(COUNTED_RANKS);
        let of = |rank: u32| (self.activity(f64::from(rank) + 1.0) - self.activity(rank.into())) * self.factor(rank);
        let rest = self.heavy.map_or(1.0, |heavy| 1.0 + heavy.part * (heavy.factor - 1.0));
        (0..first).map(of).sum::<f64>() + (1.0 - self.activity(first.into())) * rest
    }

    /// Returns the share of procedures of the UEs below this rank, from a continuous distribution.
    fn activity(&self, rank: f64) -> f64 {
        let (count, first, power) = (f64::from(self.ues), self.first(), 1.0 - self.skew);
        if self.skew == 0.0 {
            rank / count
        } else if power.abs() < 1e-9 {
            (rank / first).ln_1p() / (count / first).ln_1p()
        } else {
            ((rank + first).powf(power) - first.powf(power)) / ((count + first).powf(power) - first.powf(power))
        }
    }

    /// Returns the rank below which UEs begin this share of procedures: the inverse of
    /// [`Slice::activity`].
    pub(super) fn rank(&self, part: f64) -> f64 {
        let (count, first, power) = (f64::from(self.ues), self.first(), 1.0 - self.skew);
        if self.skew == 0.0 {
            part * count
        } else if power.abs() < 1e-9 {
            first * ((count / first + 1.0).powf(part) - 1.0)
        } else {
            let (low, high) = (first.powf(power), (count + first).powf(power));
            ((high - low) * part + low).powf(1.0 / power) - first
        }
    }

    /// Returns the offset of ranks, which limits the activity of the first rank. It is 1, or the
    /// value at which the cap holds between the most and the least active UE.
    fn first(&self) -> f64 {
        self.cap.map_or(1.0, |cap| f64::from(self.ues) / (cap.powf(1.0 / self.skew) - 1.0))
    }
}
