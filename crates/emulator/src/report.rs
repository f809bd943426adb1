//! What a run measured: one struct for JSON, and the table for people.

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
    /// From the PDU SESSION ESTABLISHMENT REQUEST to the session with its tunnel.
    Session,
    /// From the REGISTRATION REQUEST to the first session.
    RegistrationAndSession,
    /// From the SERVICE REQUEST to the accept with all tunnels.
    ServiceRequest,
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
}

/// All procedures, in the order of the table.
pub const PROCEDURES: [Procedure; 10] = [
    Procedure::Registration,
    Procedure::Session,
    Procedure::RegistrationAndSession,
    Procedure::ServiceRequest,
    Procedure::Paging,
    Procedure::Release,
    Procedure::SessionRelease,
    Procedure::Deregistration,
    Procedure::Departure,
    Procedure::Echo,
];

impl Procedure {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Procedure::Registration => "registration",
            Procedure::Session => "session",
            Procedure::RegistrationAndSession => "registration+session",
            Procedure::ServiceRequest => "service request",
            Procedure::Paging => "paging",
            Procedure::Release => "idle (AN release)",
            Procedure::SessionRelease => "session release",
            Procedure::Deregistration => "deregistration",
            Procedure::Departure => "departure",
            Procedure::Echo => "echo",
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
    /// Echoes asked for.
    pub echoes: u64,
    /// Echoes answered.
    pub echoes_answered: u64,
    /// Echoes given up.
    pub echoes_lost: u64,
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
    /// Registrations put off by T3346.
    pub back_offs: u64,
    /// From the first UE's start to the last UE's end, in seconds.
    pub seconds: f64,
    /// UEs done in a second.
    pub ues_per_second: f64,
    /// Latency by procedure, in microseconds; only procedures that happened.
    pub latency_us: BTreeMap<Procedure, Latency>,
    /// How many UEs failed, by what happened.
    pub failures: BTreeMap<String, u64>,
    /// What the core did against the specifications, and how often.
    pub violations: BTreeMap<String, u64>,
    /// The first message behind each violation, in hexadecimal digits.
    pub evidence: BTreeMap<String, String>,
    /// The user plane.
    pub user_plane: UserPlane,
    /// CPU of the emulator's worker threads, in microseconds (the SCTP stack's own threads apart).
    pub worker_cpu_us: u64,
    /// The misbehaviour cases, if that is what ran.
    pub cases: Vec<crate::abuse::Outcome>,
    /// The SCTP driver.
    pub driver: String,
}

impl Report {
    /// Whether every UE did all its steps, the core kept to the specifications, and every case was as expected.
    pub fn is_success(&self) -> bool {
        self.failed == 0
            && self.succeeded == self.started
            && self.violations.is_empty()
            && self.cases.iter().all(|case| case.passed())
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
        writeln!(
            f,
            "{:<22}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "latency (us)", "count", "mean", "p50", "p90", "p99", "max"
        )?;
        for (procedure, l) in &self.latency_us {
            let name = procedure.name();
            writeln!(
                f,
                "{name:<22}{:>9}{:>10.0}{:>10}{:>10}{:>10}{:>10}",
                l.count, l.mean, l.p50, l.p90, l.p99, l.max
            )?;
        }
        let u = &self.user_plane;
        if u.up_packets > 0 {
            writeln!(
                f,
                "user plane: {} packets ({} octets) up, {} ({}) down, {} bad; {} of {} echoes answered",
                u.up_packets, u.up_octets, u.down_packets, u.down_octets, u.bad_packets, u.echoes_answered, u.echoes
            )?;
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

/// What one worker gathers.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) report: Report,
    histograms: Vec<Histogram<u64>>,
    /// When the first UE started and the last one ended, in microseconds of the run's clock.
    pub(crate) span: Option<(u64, u64)>,
}

/// A minute, above any timeout worth having; longer values count as this.
const LONGEST_US: u64 = 60_000_000;

impl Stats {
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are in order");
        let histograms = PROCEDURES.iter().map(|_| histogram()).collect();
        Stats { report: Report::default(), histograms, span: None }
    }

    pub(crate) fn record(&mut self, procedure: Procedure, latency_us: u64) {
        self.histograms[procedure as usize].saturating_record(latency_us.max(1));
    }

    pub(crate) fn fail(&mut self, what: String) {
        self.report.failed += 1;
        *self.report.failures.entry(what).or_default() += 1;
    }

    pub(crate) fn violation(&mut self, what: String) {
        *self.report.violations.entry(what).or_default() += 1;
    }

    /// A violation with the message that shows it.
    pub(crate) fn violation_in(&mut self, what: String, message: &[u8]) {
        let hexadecimal = || message.iter().fold(String::new(), |text, octet| text + &format!("{octet:02x}"));
        self.report.evidence.entry(what.clone()).or_insert_with(hexadecimal);
        self.violation(what);
    }

    pub(crate) fn lived(&mut self, start_us: u64, end_us: u64) {
        let (first, last) = self.span.unwrap_or((start_us, end_us));
        self.span = Some((first.min(start_us), last.max(end_us)));
    }

    /// Takes in what another worker gathered.
    pub(crate) fn merge(&mut self, other: &Stats) {
        for (own, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            own.add(theirs).expect("all have the same bounds");
        }
        let (a, b) = (&mut self.report, &other.report);
        a.started += b.started;
        a.succeeded += b.succeeded;
        a.failed += b.failed;
        a.registered += b.registered;
        a.sessions += b.sessions;
        a.service_requests += b.service_requests;
        a.deregistered += b.deregistered;
        a.back_offs += b.back_offs;
        a.worker_cpu_us += b.worker_cpu_us;
        for (what, count) in &b.failures {
            *a.failures.entry(what.clone()).or_default() += count;
        }
        for (what, count) in &b.violations {
            *a.violations.entry(what.clone()).or_default() += count;
        }
        for (what, message) in &b.evidence {
            a.evidence.entry(what.clone()).or_insert_with(|| message.clone());
        }
        let (u, v) = (&mut a.user_plane, &b.user_plane);
        u.up_packets += v.up_packets;
        u.up_octets += v.up_octets;
        u.down_packets += v.down_packets;
        u.down_octets += v.down_octets;
        u.bad_packets += v.bad_packets;
        u.late_packets += v.late_packets;
        u.echoes += v.echoes;
        u.echoes_answered += v.echoes_answered;
        u.echoes_lost += v.echoes_lost;
        if let Some((start, end)) = other.span {
            self.lived(start, end);
        }
    }

    /// The report, with what only the whole run knows.
    pub(crate) fn finish(mut self) -> Report {
        for (procedure, histogram) in PROCEDURES.iter().zip(&self.histograms) {
            if !histogram.is_empty() {
                self.report.latency_us.insert(*procedure, Latency::of(histogram));
            }
        }
        if let Some((start, end)) = self.span {
            self.report.seconds = (end - start) as f64 / 1e6;
            if end > start {
                self.report.ues_per_second = self.report.succeeded as f64 / self.report.seconds;
            }
        }
        self.report
    }
}
