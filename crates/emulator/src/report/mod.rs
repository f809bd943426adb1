//! Report of a run: one struct for JSON, and the table for people.

mod chaos;
mod stats;
mod timeline;

pub use chaos::{ChaosReport, SessionAtEnd, UeAtEnd};
pub(crate) use stats::{Stats, Times};
pub use timeline::{Row, write_csv};

use crate::rat::Rats;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Timed procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Procedure {
    /// From the REGISTRATION REQUEST (its intended time in an open loop) to the COMPLETE; in EPS
    /// from the ATTACH REQUEST, with the default bearer.
    Registration,
    /// As `Registration`, for a periodic registration update or periodic TAU.
    PeriodicUpdate,
    /// As `Registration`, for a mobility registration update or a TAU with the active flag.
    MobilityUpdate,
    /// From the PDU SESSION ESTABLISHMENT REQUEST to the active session with its tunnel.
    Session,
    /// From the REGISTRATION REQUEST to the first session. In EPS one attach is both.
    RegistrationAndSession,
    /// From the SERVICE REQUEST to the accept with all tunnels.
    ServiceRequest,
    /// From the PATH SWITCH REQUEST to its acknowledgement.
    XnHandover,
    /// From the HANDOVER REQUIRED to the release of the source.
    N2Handover,
    /// As `N2Handover`, to the other system, with the registration there.
    SystemHandover,
    /// From a packet for an idle UE to its paging.
    Paging,
    /// From the UE CONTEXT RELEASE REQUEST to the command.
    Release,
    /// From the PDU SESSION RELEASE REQUEST to the command.
    SessionRelease,
    /// From the DEREGISTRATION REQUEST to the accept.
    Deregistration,
    /// From the DEREGISTRATION REQUEST to the UE CONTEXT RELEASE COMMAND that ends the connection.
    Departure,
    /// From an echo to its answer.
    Echo,
    /// From the intended data transmission of a connected UE to the answer to its last packet.
    Data,
}

/// All procedures, in the order of the table.
pub const PROCEDURES: [Procedure; 16] = [
    Procedure::Registration,
    Procedure::PeriodicUpdate,
    Procedure::MobilityUpdate,
    Procedure::Session,
    Procedure::RegistrationAndSession,
    Procedure::ServiceRequest,
    Procedure::XnHandover,
    Procedure::N2Handover,
    Procedure::SystemHandover,
    Procedure::Paging,
    Procedure::Release,
    Procedure::SessionRelease,
    Procedure::Deregistration,
    Procedure::Departure,
    Procedure::Echo,
    Procedure::Data,
];

impl Procedure {
    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Procedure::Registration => "registration",
            Procedure::PeriodicUpdate => "periodic update",
            Procedure::MobilityUpdate => "mobility update",
            Procedure::Session => "session",
            Procedure::RegistrationAndSession => "registration+session",
            Procedure::ServiceRequest => "service request",
            Procedure::XnHandover => "Xn handover",
            Procedure::N2Handover => "N2 handover",
            Procedure::SystemHandover => "system handover",
            Procedure::Paging => "paging",
            Procedure::Release => "idle (AN release)",
            Procedure::SessionRelease => "session release",
            Procedure::Deregistration => "deregistration",
            Procedure::Departure => "departure",
            Procedure::Echo => "echo",
            Procedure::Data => "data",
        }
    }
}

/// Latency of one procedure, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub count: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
    /// Number of procedures that took longer than 10 ms.
    pub over_10ms: u64,
    /// Number of procedures that took longer than 50 ms.
    pub over_50ms: u64,
}

impl Latency {
    fn from_histogram(histogram: &Histogram<u64>) -> Self {
        Latency {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            // Counting up to the largest number would exceed the histogram's range and yield 0.
            over_10ms: histogram.len() - histogram.count_between(0, 10_000),
            over_50ms: histogram.len() - histogram.count_between(0, 50_000),
        }
    }
}

/// Packets and octets on N3, without the outer headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserPlane {
    pub up_packets: u64,
    pub up_octets: u64,
    pub down_packets: u64,
    pub down_octets: u64,
    /// Packets received that were damaged or misdirected.
    pub bad_packets: u64,
    /// Packets received for a tunnel that has been released.
    pub late_packets: u64,
    /// Error Indications of the core for tunnels in release.
    pub late_errors: u64,
    pub echoes: u64,
    pub echoes_answered: u64,
    /// Echoes and solicitations sent again because no answer arrived in time.
    pub resent: u64,
    pub echoes_lost: u64,
    /// Maximum time between two answers of the data network to one UE, in microseconds, for UEs
    /// with [`crate::mix::Activity::Data`]. It includes time in which nothing was due.
    pub longest_gap_us: u64,
    /// Tunnels for which the core named another UPF end (PDU SESSION RESOURCE MODIFY REQUEST).
    pub tunnels_moved: u64,
    /// Moves to the other system, with the echoes that UEs sent meanwhile.
    pub moves: Moves,
}

/// Moves of UEs between 4G and 5G, and echoes that they sent at intervals while they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moves {
    /// Moves of idle UEs.
    pub idle: u64,
    /// Moves of connected UEs, by handover.
    pub connected: u64,
    pub echoes: u64,
    pub echoes_answered: u64,
    /// Echoes without an answer. Neither side repeats them.
    pub echoes_lost: u64,
    /// Answers that arrived after the answer to a later echo.
    pub echoes_reordered: u64,
    /// Packets that the sources of handovers have forwarded.
    pub forwarded: u64,
    /// End Markers that the targets have received from the sources.
    pub end_markers: u64,
}

impl Moves {
    fn add(&mut self, other: Moves) {
        self.idle += other.idle;
        self.connected += other.connected;
        self.echoes += other.echoes;
        self.echoes_answered += other.echoes_answered;
        self.echoes_lost += other.echoes_lost;
        self.echoes_reordered += other.echoes_reordered;
        self.forwarded += other.forwarded;
        self.end_markers += other.end_markers;
    }
}

/// Time from when a procedure is due within which it is served in time, in microseconds.
pub(crate) const IN_TIME_US: u64 = 200_000;

/// Result of a steady load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Steady {
    /// Number of procedures that were due.
    pub procedures: u64,
    /// Completed procedures; retried requests do not count as errors.
    pub completed: u64,
    /// Procedures that were served within [`IN_TIME_US`] of when they were due.
    pub in_time: u64,
    /// Procedures that were refused, timed out, cost the UE its registration, or never began.
    pub failed_procedures: u64,
    /// Number of times that a registered UE had to register again.
    pub lost: u64,
    /// Requests retried because there was no answer.
    pub retries: u64,
    /// Procedures for which no UE was free when they were due; the latency includes their wait.
    pub unserved: u64,
    /// Unserved procedures for which no UE was free until the end.
    pub never_begun: u64,
    /// Time in which procedures were due, in seconds.
    pub steady_seconds: f64,
    /// Completed procedures per second.
    pub procedures_per_second: f64,
    /// Start of the steady load, in microseconds of Unix time. Timeline times count from here.
    pub steady_began_unix_us: u64,
    /// CPU time of the emulator's worker threads in the steady load, in microseconds, without the
    /// SCTP stack's own threads.
    pub steady_cpu_us: u64,
    /// CPU time per procedure, in microseconds.
    pub cpu_us_per_procedure: f64,
}

/// Measurements of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    pub scenario: String,
    pub rat: Rats,
    /// gNBs, or eNBs; with both technologies, of each.
    pub gnbs: u32,
    pub ues: u32,
    pub started: u64,
    /// UEs that completed all steps.
    pub succeeded: u64,
    pub failed: u64,
    pub registered: u64,
    pub sessions: u64,
    pub service_requests: u64,
    pub deregistered: u64,
    /// Registrations and service requests delayed by T3346.
    pub back_offs: u64,
    /// Lost associations of gNBs that continued on another one.
    pub associations_lost: u64,
    /// Messages unacknowledged on such an association and resent on another one.
    pub sent_again: u64,
    /// Repeats: AMF messages received on such an association and again on another one.
    pub repeats: u64,
    /// Result of the steady load, if there was one.
    #[serde(flatten)]
    pub steady: Steady,
    /// Seconds from the first UE's start to the last UE's end. With a steady load: of the
    /// registrations before it.
    pub seconds: f64,
    /// Completed UEs per second.
    pub ues_per_second: f64,
    /// Latency by procedure, in microseconds; only procedures that occurred. It counts from the
    /// intended start, so an open loop has no coordinated omission.
    pub latency_us: BTreeMap<Procedure, Latency>,
    /// Latency by procedure from the transmission of its first message.
    pub service_us: BTreeMap<Procedure, Latency>,
    /// Latency over time, if requested ([`crate::Options::timeline`]).
    #[serde(skip)]
    pub timeline: Vec<Row>,
    /// Failed UEs (with a steady load: procedures), by reason.
    pub failures: BTreeMap<String, u64>,
    /// Violations of the specifications by the core, with their counts.
    pub violations: BTreeMap<String, u64>,
    /// First message behind each violation, in hexadecimal digits.
    pub evidence: BTreeMap<String, String>,
    pub user_plane: UserPlane,
    /// Memory of the emulator's process per UE, in bytes. It is inaccurate for few UEs, or with the
    /// core in the same process.
    pub memory_bytes_per_ue: f64,
    /// CPU time of the emulator's worker threads, in microseconds, without the SCTP stack's own
    /// threads.
    pub worker_cpu_us: u64,
    /// Results of the negative cases, if they ran.
    pub cases: Vec<crate::negative::Outcome>,
    /// Result of the campaign of mutated messages, if it ran. The other fields then describe its
    /// good UEs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutations: Option<crate::mutate::report::Mutations>,
    /// What happened in a run with faults, and what its UEs then had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chaos: Option<ChaosReport>,
    pub driver: String,
}

impl Report {
    /// Returns true if every UE completed all steps, the core had no violation, and every case
    /// passed.
    pub fn is_success(&self) -> bool {
        if let Some(chaos) = &self.chaos {
            // Procedures may fail by a fault.
            return chaos.unsettled == 0 && !chaos.ues.is_empty() && self.violations.is_empty();
        }
        self.failed == 0
            && self.succeeded == self.started
            && self.violations.is_empty()
            && self.steady.failed_procedures == 0
            && self.steady.lost == 0
            && self.cases.iter().all(|case| case.passed())
            && self.mutations.as_ref().is_none_or(|mutations| mutations.passed())
            && (self.started > 0 || !self.cases.is_empty())
    }

    /// Returns the latency of a procedure.
    pub fn latency(&self, procedure: Procedure) -> Option<&Latency> {
        self.latency_us.get(&procedure)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cases.is_empty() {
            for case in &self.cases {
                writeln!(f, "{case}")?;
            }
            return Ok(());
        }
        if let Some(mutations) = &self.mutations {
            return mutations.fmt(f);
        }
        writeln!(
            f,
            "{}: {} of {} UEs on {} {} in {:.2} s ({:.0} UEs/s), {} failed, over {}",
            self.scenario,
            self.succeeded,
            self.ues,
            self.gnbs,
            match self.rat {
                Rats::Nr => "gNBs",
                Rats::Eps => "eNBs",
                Rats::Both => "gNBs and as many eNBs",
            },
            self.seconds,
            self.ues_per_second,
            self.failed,
            self.driver
        )?;
        let s = &self.steady;
        if s.procedures > 0 {
            writeln!(
                f,
                "{} procedures in {:.2} s ({:.0}/s): {} completed, {} failed, {} retries; {} UEs lost; {} found no free \
                 UE, {} never; {:.1} us of emulator CPU each",
                s.procedures,
                s.steady_seconds,
                s.procedures_per_second,
                s.completed,
                s.failed_procedures,
                s.retries,
                s.lost,
                s.unserved,
                s.never_begun,
                s.cpu_us_per_procedure
            )?;
        }
        if self.associations_lost > 0 {
            writeln!(
                f,
                "{} associations lost by gNBs that had another, by which {} messages were sent again, and {} came once more",
                self.associations_lost, self.sent_again, self.repeats
            )?;
        }
        latencies(f, "latency (us)", &self.latency_us)?;
        if s.procedures > 0 {
            latencies(f, "from first message (us)", &self.service_us)?;
        }
        let u = &self.user_plane;
        if u.up_packets > 0 {
            writeln!(
                f,
                "user plane: {} packets ({} octets) up, {} ({}) down, {} bad; {} of {} echoes answered",
                u.up_packets, u.up_octets, u.down_packets, u.down_octets, u.bad_packets, u.echoes_answered, u.echoes
            )?;
            if u.moves.forwarded > 0 {
                writeln!(
                    f,
                    "handovers: {} packets forwarded by sources, {} end markers; of {} echoes {} lost, {} out of order",
                    u.moves.forwarded,
                    u.moves.end_markers,
                    u.moves.echoes,
                    u.moves.echoes_lost,
                    u.moves.echoes_reordered
                )?;
            }
            if u.moves.idle + u.moves.connected > 0 {
                writeln!(
                    f,
                    "moves between 4G and 5G: {} connected, {} idle; {} of {} echoes lost meanwhile",
                    u.moves.connected, u.moves.idle, u.moves.echoes_lost, u.moves.echoes
                )?;
            }
            if u.longest_gap_us > 0 {
                writeln!(f, "longest time without an answer: {:.0} ms", u.longest_gap_us as f64 / 1e3)?;
            }
        }
        for (what, count) in &self.failures {
            writeln!(f, "failed: {count} x {what}")?;
        }
        for (what, count) in &self.violations {
            writeln!(f, "violation: {count} x {what}")?;
            if let Some(message) = self.evidence.get(what) {
                writeln!(f, "           the first in {message}")?;
            }
        }
        Ok(())
    }
}

fn latencies(f: &mut fmt::Formatter<'_>, title: &str, of: &BTreeMap<Procedure, Latency>) -> fmt::Result {
    writeln!(f, "{title:<24}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}", "count", "mean", "p50", "p90", "p99", "max")?;
    for (procedure, l) in of {
        let name = procedure.name();
        writeln!(f, "{name:<24}{:>9}{:>10.0}{:>10}{:>10}{:>10}{:>10}", l.count, l.mean, l.p50, l.p90, l.p99, l.max)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Latency;
    use hdrhistogram::Histogram;

    #[test]
    fn latency_above_10_ms_is_counted() {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        (1..100).for_each(|ms| histogram.saturating_record(ms * 1000));
        assert_eq!(Latency::from_histogram(&histogram).over_10ms, 89);
    }
}
