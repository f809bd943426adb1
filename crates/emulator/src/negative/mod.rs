//! Negative tests: a RAN node and a UE that each break one rule.
//!
//! Every case has two nodes. One misbehaves and checks the answer that the specifications require.
//! On the other one a well-behaved UE then registers and establishes a session. This shows that no
//! other UE was affected.

mod answer;
mod case;
mod cases;
mod driver;
mod error;
mod words;

use crate::error::Error;
use crate::options::Options;
use crate::progress::{Counters, EndpointFactory, Phase, Progress};
use crate::report::Report;
use crate::scenario::Mode;
pub(crate) use answer::Answer;
pub use case::{CASES, Case, Outcome};
use driver::{CaseDriver, Device};
use std::collections::BTreeMap;
use std::time::Instant;

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
        rat: options.rats,
        gnbs: 2,
        ues: cases.len() as u32,
        driver: wire.nodes.driver(),
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
    report.started = report.cases.len() as u64;
    report.succeeded = report.cases.iter().filter(|case| case.passed()).count() as u64;
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
    outcome.association_kept = wire.nodes.is_up(bad);
    let mut device = Device::new(options, 2 * index + 1)?;
    let start = Instant::now();
    match wire.register(witness, &mut device).and_then(|()| wire.establish(witness, &mut device)) {
        Ok(()) => outcome.witness_us = Some(start.elapsed().as_micros() as u64),
        Err(why) => outcome.faults.push(format!("the well-behaved UE: {why}")),
    }
    wire.deregister(witness, &mut device);
    wire.nodes.close(bad);
    wire.nodes.close(witness);
    Ok(outcome)
}
