//! What comes to a cluster: slices of UEs, each with a rate, a pattern of arrivals, kinds of procedures and objectives. A
//! workload is a file, so that it is fixed before any policy is tried on it.

use serde::{Deserialize, Serialize};
use std::str::FromStr;
use vireo_core::schedule::kind::NfKind;
use vireo_emulator::load::Pattern;

/// Pools of a slice: one for each kind of procedure.
pub(super) const KINDS: usize = NfKind::ALL.len();
/// Slices that fit: which pools have work on a core is kept in 64 bits.
pub(super) const MOST_SLICES: usize = 64 / KINDS;

/// A kind of procedure of a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Procedure {
    /// What it is.
    pub kind: NfKind,
    /// Its part of the slice's procedures, against others' 1.
    pub part: f64,
    /// `T_t`: microseconds that it takes alone on a core, of all its messages.
    pub time_us: f64,
    /// Its messages.
    pub messages: u32,
    /// Milliseconds from one message's answer to the next message.
    #[serde(default)]
    pub between_ms: f64,
    /// The objective, of the time that its messages spend in the core.
    pub slo_ms: f64,
}

/// UEs whose procedures take longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heavy {
    /// Their part of the UEs, 0 to 1.
    pub part: f64,
    /// How many times as long theirs take.
    pub factor: f64,
}

/// A slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Its name.
    pub name: String,
    /// Procedures that begin in a second.
    pub rate: f64,
    /// When: `T1` to `T4`, as `vireo emulate --pattern` has it.
    pub pattern: String,
    /// Its UEs.
    pub ues: u32,
    /// How unevenly they are active: the UE of rank n is so in proportion to `n^-skew`. 0 = all alike.
    #[serde(default)]
    pub skew: f64,
    /// UEs whose procedures take longer.
    #[serde(default)]
    pub heavy: Option<Heavy>,
    /// What they do.
    pub procedures: Vec<Procedure>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The slices.
    pub slices: Vec<Slice>,
}

/// Why a workload is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// The number of slices.
    #[error("it has {0} slices: 1 to {MOST_SLICES} are simulated")]
    Slices(usize),
    /// A slice makes no sense.
    #[error("slice {slice}: {what}")]
    Slice {
        /// Its name.
        slice: String,
        /// What is wrong.
        what: String,
    },
}

impl Workload {
    /// Checks it; gives each slice's pattern.
    pub(super) fn patterns(&self) -> Result<Vec<Pattern>, WorkloadError> {
        if !(1..=MOST_SLICES).contains(&self.slices.len()) {
            return Err(WorkloadError::Slices(self.slices.len()));
        }
        self.slices.iter().map(Slice::checked).collect()
    }

    /// The CPU that it asks for, in cores, in the mean.
    pub fn cores(&self) -> f64 {
        self.slices.iter().map(|slice| slice.rate * slice.mean_us() / 1e6).sum()
    }

    /// The same with all rates multiplied.
    pub fn scaled(&self, factor: f64) -> Workload {
        let mut scaled = self.clone();
        scaled.slices.iter_mut().for_each(|slice| slice.rate *= factor);
        scaled
    }
}

impl Slice {
    fn checked(&self) -> Result<Pattern, WorkloadError> {
        let wrong = |what: &str| WorkloadError::Slice { slice: self.name.clone(), what: what.to_owned() };
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !positive(self.rate) || self.ues == 0 {
            return Err(wrong("rate and ues must be above 0"));
        }
        if !(0.0..=10.0).contains(&self.skew) {
            return Err(wrong("skew must be 0 to 10"));
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

    /// How long a procedure takes in the mean, alone.
    fn mean_us(&self) -> f64 {
        let parts: f64 = self.procedures.iter().map(|p| p.part).sum();
        let time: f64 = self.procedures.iter().map(|p| p.part * p.time_us).sum();
        time / parts * self.mean_factor()
    }

    /// How many times as long as `time_us` a procedure takes in the mean.
    pub(super) fn mean_factor(&self) -> f64 {
        self.heavy.map_or(1.0, |heavy| 1.0 + heavy.part * (heavy.factor - 1.0))
    }
}
