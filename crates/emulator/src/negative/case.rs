//! Kinds of misbehaviour, and the result of one.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One kind of misbehaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Random octets as NGAP.
    Random,
    /// NGAP messages cut at every length.
    Truncated,
    Ppid,
    /// UE-associated signalling on stream 0, and NG SETUP on another stream.
    Stream,
    /// Unknown procedure code with each criticality.
    Procedure,
    /// Messages without a mandatory IE.
    MissingIe,
    /// UE NGAP IDs of no UE, or IDs that do not belong together.
    UeIds,
    /// NAS with a wrong MAC.
    NasMac,
    /// NAS with a COUNT that was used before.
    Replay,
    /// Messages of procedures that were not started.
    Order,
    /// Random octets as NAS.
    NasGarbage,
    /// NG SETUP of another network and without a common slice, and signalling before any NG SETUP.
    Setup,
    /// Requests for services that the core does not have, and requests that are cut short.
    Unserved,
    /// Many registrations that stop after the first message (`--ues` sets their number).
    HalfOpen,
    /// No misbehaviour: RAN CONFIGURATION UPDATE, and NG RESET of one UE and of all. Not in
    /// [`CASES`].
    Node,
}

/// All cases of misbehaviour.
pub const CASES: [Case; 14] = [
    Case::Random,
    Case::Truncated,
    Case::Ppid,
    Case::Stream,
    Case::Procedure,
    Case::MissingIe,
    Case::UeIds,
    Case::NasMac,
    Case::Replay,
    Case::Order,
    Case::NasGarbage,
    Case::Setup,
    Case::Unserved,
    Case::HalfOpen,
];

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub case: Case,
    /// Number of bad messages sent.
    pub sent: u64,
    /// Answers with their counts.
    pub answers: BTreeMap<String, u64>,
    /// Deviations from the specifications.
    pub faults: Vec<String>,
    /// True if the association of the misbehaving gNB survived.
    pub association_kept: bool,
    /// Time of the well-behaved UE's registration and session afterwards, in microseconds; `None`
    /// if it failed.
    pub witness_us: Option<u64>,
}

impl Outcome {
    /// Returns true if the case had no fault and the well-behaved UE was served.
    pub fn passed(&self) -> bool {
        self.faults.is_empty() && self.association_kept && self.witness_us.is_some()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed() { "ok  " } else { "FAIL" };
        write!(f, "{verdict} {:<12} {:>6} sent", format!("{:?}", self.case), self.sent)?;
        for (answer, count) in &self.answers {
            write!(f, "; {count} x {answer}")?;
        }
        match self.witness_us {
            Some(us) => write!(f, "; another UE served in {us} us")?,
            None => write!(f, "; ANOTHER UE WAS NOT SERVED")?,
        }
        if !self.association_kept {
            write!(f, "; THE ASSOCIATION WAS LOST")?;
        }
        for fault in &self.faults {
            write!(f, "\n       {fault}")?;
        }
        Ok(())
    }
}
