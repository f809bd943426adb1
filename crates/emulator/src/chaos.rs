//! Faults of radio and RAN nodes during a steady load, and the state of the UEs after it.
//!
//! In a load with [`Chaos`], NAS messages are lost or repeated between UE and node, and nodes
//! restart without notice. Then the faults end, and each UE registers or sends a service request,
//! so that UE and core agree about its sessions. [`crate::ChaosReport::ues`] is what the UEs then
//! have: the core must have the same.

use crate::load::Pattern;
use crate::mix::{Activity, Steady};
use std::time::Duration;

/// Faults of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chaos {
    /// Probability that a NAS message is lost.
    pub loss: f64,
    /// Probability that an uplink NAS message is sent twice.
    pub repetition: f64,
    /// Mean time between two restarts of nodes.
    pub restart: Duration,
}

impl Default for Chaos {
    fn default() -> Self {
        Chaos { loss: 0.02, repetition: 0.02, restart: Duration::from_secs(2) }
    }
}

/// Time that a UE of the load stays connected after a procedure.
const DWELL: Duration = Duration::from_millis(50);
/// Procedures and their weights.
const KINDS: [(Activity, f64); 8] = [
    (Activity::ServiceRequest, 4.0),
    (Activity::PeriodicUpdate, 1.0),
    (Activity::MobilityUpdate, 2.0),
    (Activity::XnHandover, 2.0),
    (Activity::N2Handover, 2.0),
    (Activity::Session, 2.0),
    (Activity::Registration, 1.0),
    (Activity::RegistrationSession, 2.0),
];

impl Chaos {
    /// Returns the load: all procedures, at this rate per second.
    pub fn load(rate: f64) -> Steady {
        Steady::weighted(&KINDS, rate, Pattern::Constant, DWELL)
    }
}
