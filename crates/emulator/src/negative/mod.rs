//! Negative tests: a gNB and a UE that each break one rule.
//!
//! Every case has two gNBs. One misbehaves and checks the answer that the specifications require.
//! On the other one a well-behaved UE then registers and establishes a session. This shows that no
//! other UE was affected.

mod cases;
mod driver;

use crate::engine::{Counters, EndpointFactory, Error, Phase, Progress};
use crate::options::Options;
use crate::report::Report;
use crate::scenario::Mode;
pub(crate) use driver::Answer;
use driver::{CaseDriver, Device};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

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
    /// Many registrations that stop after the first message (`--ues` sets their number).
    HalfOpen,
    /// No misbehaviour: RAN CONFIGURATION UPDATE, and NG RESET of one UE and of all. Not in
    /// [`CASES`].
    Node,
}

/// All cases of misbehaviour.
pub const CASES: [Case; 13] = [
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

/// Runs the cases of the scenario.
pub(crate) fn run(
    options: &Options,
    open: EndpointFactory<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, Error> {
    let cases = match options.scenario.mode {
        Mode::Abuse(case) => vec![case],
        _ => CASES.to_vec(),
    };
    let begun = Instant::now();
    let mut wire = CaseDriver::new(options, open)?;
    let mut report = Report {
        scenario: options.scenario.name.into(),
        gnbs: 2,
        ues: cases.len() as u32,
        driver: wire.driver(),
        ..Report::default()
    };
    let stopped = Counters::default();
    for (index, case) in cases.iter().enumerate() {
        if options.stop.as_ref().is_some_and(|stop| stop.load(std::sync::atomic::Ordering::Relaxed)) {
            stopped.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            break;
        }
        progress(Progress {
            phase: Phase::Running,
            ues: cases.len() as u64,
            started: index as u64 + 1,
            done: index as u64,
            failed: report.cases.iter().filter(|case| !case.passed()).count() as u64,
            registered: 0,
            sessions: 0,
            procedures: 0,
            lost: 0,
            elapsed: begun.elapsed(),
        });
        report.cases.push(one(options, &mut wire, *case, index as u32)?);
    }
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

fn one(options: &Options, wire: &mut CaseDriver<'_>, case: Case, index: u32) -> Result<Outcome, Error> {
    let mut outcome = Outcome {
        case,
        sent: 0,
        answers: BTreeMap::new(),
        faults: Vec::new(),
        association_kept: false,
        witness_us: None,
    };
    let witness = wire.connect(options.first_gnb_id)?;
    wire.set_up(witness)?;
    let bad = wire.connect(options.first_gnb_id + 1)?;
    cases::play(case, wire, bad, index, &mut outcome);
    outcome.association_kept = wire.is_up(bad);
    let mut device = Device::new(options, 2 * index + 1)?;
    let start = Instant::now();
    match wire.register(witness, &mut device).and_then(|()| wire.establish(witness, &mut device)) {
        Ok(()) => outcome.witness_us = Some(start.elapsed().as_micros() as u64),
        Err(why) => outcome.faults.push(format!("the well-behaved UE: {why}")),
    }
    wire.leave(witness, &mut device);
    wire.close(bad);
    wire.close(witness);
    Ok(outcome)
}
