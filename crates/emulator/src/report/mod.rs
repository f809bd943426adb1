//! What a run measured: one struct for JSON, and the table for people.

mod stats;
mod timeline;

pub(crate) use stats::{Stats, Times};
pub use timeline::{Row, write_csv};

use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The procedures that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Procedure {
    /// From the REGISTRATION REQUEST (its intended time in an open loop) to the COMPLETE.
    Registration,
    /// The same for a periodic registration update.
    PeriodicUpdate,
    /// The same for a mobility registration update.
    MobilityUpdate,
    /// From the PDU SESSION ESTABLISHMENT REQUEST to the session with its tunnel.
    Session,
    /// From the REGISTRATION REQUEST to the first session.
    RegistrationAndSession,
    /// From the SERVICE REQUEST to the accept with all tunnels.
    ServiceRequest,
    /// From the PATH SWITCH REQUEST to its acknowledgement.
    XnHandover,
    /// From the HANDOVER REQUIRED to the release of the source.
    N2Handover,
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
    /// From when a connected UE was to send its data to the answer to the last packet of these.
    Data,
}

/// All procedures, in the order of the table.
pub const PROCEDURES: [Procedure; 15] = [
    Procedure::Registration,
    Procedure::PeriodicUpdate,
    Procedure::MobilityUpdate,
    Procedure::Session,
    Procedure::RegistrationAndSession,
    Procedure::ServiceRequest,
    Procedure::XnHandover,
    Procedure::N2Handover,
    Procedure::Paging,
    Procedure::Release,
    Procedure::SessionRelease,
    Procedure::Deregistration,
    Procedure::Departure,
    Procedure::Echo,
    Procedure::Data,
];

impl Procedure {
    /// Its name in the table.
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
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
    /// How many took longer than 10 ms.
    pub over_10ms: u64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        Latency {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            // Not those between this and the largest number: that is beyond the histogram, which then counts none.
            over_10ms: histogram.len() - histogram.count_between(0, 10_000),
        }
    }
}

/// Packets and octets on N3, without the outer headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserPlane {
    /// Packets sent.
    pub up_packets: u64,
    /// Octets sent.
    pub up_octets: u64,
    /// Packets received.
    pub down_packets: u64,
    /// Octets received.
    pub down_octets: u64,
    /// Packets received that were damaged or misdirected.
    pub bad_packets: u64,
    /// Packets received for a tunnel that is no longer there.
    pub late_packets: u64,
    /// Error indications of the core for tunnels that it was having released.
    pub late_errors: u64,
    /// Echoes asked for.
    pub echoes: u64,
    /// Echoes answered.
    pub echoes_answered: u64,
    /// Echoes and solicitations sent again, because no answer had come in time.
    pub resent: u64,
    /// Echoes given up.
    pub echoes_lost: u64,
    /// Of UEs that do [`crate::mix::Activity::Data`]: the longest time from one answer of the data network to the next of the same
    /// UE, in microseconds. It has the time in which nothing was due in it.
    pub longest_gap_us: u64,
    /// Tunnels for which the core named another end at a UPF (PDU SESSION RESOURCE MODIFY REQUEST).
    pub tunnels_moved: u64,
}

/// What a steady load came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Steady {
    /// Procedures that were due.
    pub procedures: u64,
    /// Those that came to their end, with nothing wrong but perhaps a repeated request.
    pub completed: u64,
    /// Those that were refused, were not done in time, cost the UE its registration, or were never begun.
    pub failed_procedures: u64,
    /// UEs that had to register again although they were registered, and how often.
    pub lost: u64,
    /// Requests repeated because there was no answer.
    pub retries: u64,
    /// Procedures for which no UE was free when they were due; their waiting is in their latency.
    pub unserved: u64,
    /// Those among them for which no UE was free until the end.
    pub never_begun: u64,
    /// How long procedures were due, in seconds.
    pub steady_seconds: f64,
    /// Procedures completed in a second.
    pub procedures_per_second: f64,
    /// When the steady load began: microseconds of Unix time. Times of the timeline count from here.
    pub steady_began_unix_us: u64,
    /// CPU of the emulator's worker threads for it, in microseconds (the SCTP stack's own threads apart).
    pub steady_cpu_us: u64,
    /// The same for each procedure.
    pub cpu_us_per_procedure: f64,
}

/// What a run measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// gNBs.
    pub gnbs: u32,
    /// UEs asked for.
    pub ues: u32,
    /// UEs that started.
    pub started: u64,
    /// UEs that did all their steps.
    pub succeeded: u64,
    /// UEs that failed.
    pub failed: u64,
    /// Registrations accepted.
    pub registered: u64,
    /// PDU sessions established.
    pub sessions: u64,
    /// Service requests accepted.
    pub service_requests: u64,
    /// Deregistrations done.
    pub deregistered: u64,
    /// Registrations and service requests put off by T3346.
    pub back_offs: u64,
    /// Associations that were lost by gNBs which had another and went on by that.
    pub associations_lost: u64,
    /// Messages that such an association had not carried as far as is known, and that were sent by another.
    pub sent_again: u64,
    /// Messages of the core that had come by such an association, and came by another once more.
    pub repeats: u64,
    /// What the steady load came to, if there was one.
    #[serde(flatten)]
    pub steady: Steady,
    /// From the first UE's start to the last UE's end, in seconds. With a steady load: of the registrations before it.
    pub seconds: f64,
    /// UEs done in a second.
    pub ues_per_second: f64,
    /// Latency by procedure, in microseconds; only procedures that happened. It counts from when the procedure was
    /// meant to begin, so in an open loop it is free of coordinated omission.
    pub latency_us: BTreeMap<Procedure, Latency>,
    /// The same from when the first message of the procedure was sent.
    pub service_us: BTreeMap<Procedure, Latency>,
    /// Latency over time, if it was asked for ([`crate::Options::timeline`]).
    #[serde(skip)]
    pub timeline: Vec<Row>,
    /// How many UEs (with a steady load: procedures) failed, by what happened.
    pub failures: BTreeMap<String, u64>,
    /// What the core did against the specifications, and how often.
    pub violations: BTreeMap<String, u64>,
    /// The first message behind each violation, in hexadecimal digits.
    pub evidence: BTreeMap<String, String>,
    /// The user plane.
    pub user_plane: UserPlane,
    /// Memory that the emulator's process took for each UE, in octets: of little meaning for few UEs, or with the core in
    /// the same process.
    pub memory_bytes_per_ue: f64,
    /// CPU of the emulator's worker threads, in microseconds (the SCTP stack's own threads apart).
    pub worker_cpu_us: u64,
    /// The misbehaviour cases, if that is what ran.
    pub cases: Vec<crate::negative::Outcome>,
    /// The campaign of mutated messages, if that is what ran. The other fields are of its good UEs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutations: Option<crate::mutate::report::Mutations>,
    /// The SCTP driver.
    pub driver: String,
}

impl Report {
    /// Whether every UE did all its steps, the core kept to the specifications, and every case was as expected.
    pub fn is_success(&self) -> bool {
        self.failed == 0
            && self.succeeded == self.started
            && self.violations.is_empty()
            && self.steady.failed_procedures == 0
            && self.steady.lost == 0
            && self.cases.iter().all(|case| case.passed())
            && self.mutations.as_ref().is_none_or(|mutations| mutations.passed())
            && (self.started > 0 || !self.cases.is_empty())
    }

    /// Latency of a procedure.
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
            "{}: {} of {} UEs on {} gNBs in {:.2} s ({:.0} UEs/s), {} failed, over {}",
            self.scenario,
            self.succeeded,
            self.ues,
            self.gnbs,
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
    fn what_took_longer_than_ten_milliseconds_is_counted() {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        (1..100).for_each(|ms| histogram.saturating_record(ms * 1000));
        assert_eq!(Latency::of(&histogram).over_10ms, 89);
    }
}
