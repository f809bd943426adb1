//! Counters of a worker, and their conversion to the report.

use super::timeline::Timeline;
use super::{IN_TIME_US, Latency, PROCEDURES, Procedure, Report};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Intended start, first message and completion of a procedure, in microseconds of the run's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) intended_us: u64,
    pub(crate) began_us: u64,
    pub(crate) ended_us: u64,
}

/// Measurements of one worker.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) report: Report,
    /// Latency from the intended start, by procedure.
    latency: Vec<Histogram<u64>>,
    /// Latency from the first message, by procedure.
    service: Vec<Histogram<u64>>,
    pub(crate) timeline: Option<Timeline>,
    /// Procedures due between these times do not count in the latencies: a steady load and the core
    /// settle.
    pub(crate) settling_us: (u64, u64),
    /// Start of the first UE and end of the last one, in microseconds of the run's clock.
    pub(crate) span: Option<(u64, u64)>,
}

/// One minute, above any reasonable timeout; longer values count as this.
const LONGEST_US: u64 = 60_000_000;

impl Stats {
    pub(crate) fn new(timeline: Option<Duration>) -> Self {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are in order");
        let histograms = || PROCEDURES.iter().map(|_| histogram()).collect();
        Stats {
            report: Report::default(),
            latency: histograms(),
            service: histograms(),
            timeline: timeline.map(Timeline::new),
            settling_us: (0, 0),
            span: None,
        }
    }

    pub(crate) fn record(&mut self, procedure: Procedure, times: Times) {
        if (self.settling_us.0..self.settling_us.1).contains(&times.intended_us) {
            return;
        }
        let latency_us = times.ended_us.saturating_sub(times.intended_us);
        self.latency[procedure as usize].saturating_record(latency_us.max(1));
        let service_us = times.ended_us.saturating_sub(times.began_us);
        self.service[procedure as usize].saturating_record(service_us.max(1));
    }

    /// Adds a procedure to the timeline.
    pub(crate) fn plot(&mut self, procedure: Procedure, times: Times) {
        if let Some(timeline) = &mut self.timeline {
            timeline.record(procedure, times.intended_us, times.ended_us.saturating_sub(times.intended_us));
        }
    }

    /// Counts a procedure of the steady load that was served in time.
    pub(crate) fn count_in_time(&mut self, times: Times) {
        let in_time = times.ended_us.saturating_sub(times.intended_us) <= IN_TIME_US;
        self.report.steady.in_time += u64::from(in_time);
    }

    /// Counts a failed procedure of the steady load, by its due time.
    pub(crate) fn fail_procedure(&mut self, procedure: Procedure, intended_us: u64) {
        self.report.steady.failed_procedures += 1;
        if let Some(timeline) = &mut self.timeline {
            timeline.fail(procedure, intended_us);
        }
    }

    /// Counts a failed procedure that cost its UE the registration.
    pub(crate) fn record_loss(&mut self, procedure: Option<Procedure>, intended_us: u64) {
        self.report.steady.lost += 1;
        if let (Some(timeline), Some(procedure)) = (&mut self.timeline, procedure) {
            timeline.record_loss(procedure, intended_us);
        }
    }

    /// Counts the reason of a failure that is counted elsewhere.
    pub(crate) fn reason(&mut self, what: String) {
        *self.report.failures.entry(what).or_default() += 1;
    }

    pub(crate) fn fail(&mut self, what: String) {
        self.report.failed += 1;
        self.reason(what);
    }

    pub(crate) fn violation(&mut self, what: String) {
        *self.report.violations.entry(what).or_default() += 1;
    }

    /// Counts a violation and stores the message that shows it.
    pub(crate) fn violation_in(&mut self, what: String, message: &[u8]) {
        let hexadecimal = || message.iter().fold(String::new(), |text, octet| text + &format!("{octet:02x}"));
        self.report.evidence.entry(what.clone()).or_insert_with(hexadecimal);
        self.violation(what);
    }

    pub(crate) fn add_lifetime(&mut self, start_us: u64, end_us: u64) {
        let (first, last) = self.span.unwrap_or((start_us, end_us));
        self.span = Some((first.min(start_us), last.max(end_us)));
    }

    /// Adds the measurements of another worker.
    pub(crate) fn merge(&mut self, other: &Stats) {
        let own = self.latency.iter_mut().chain(&mut self.service);
        for (own, theirs) in own.zip(other.latency.iter().chain(&other.service)) {
            own.add(theirs).expect("all have the same bounds");
        }
        if let (Some(own), Some(theirs)) = (&mut self.timeline, &other.timeline) {
            own.merge(theirs);
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
        a.associations_lost += b.associations_lost;
        a.sent_again += b.sent_again;
        a.repeats += b.repeats;
        a.worker_cpu_us += b.worker_cpu_us;
        if let Some(chaos) = &b.chaos {
            a.chaos.get_or_insert_default().add(chaos);
        }
        for (what, count) in &b.failures {
            *a.failures.entry(what.clone()).or_default() += count;
        }
        for (what, count) in &b.violations {
            *a.violations.entry(what.clone()).or_default() += count;
        }
        for (what, message) in &b.evidence {
            a.evidence.entry(what.clone()).or_insert_with(|| message.clone());
        }
        let (s, t) = (&mut a.steady, &b.steady);
        s.procedures += t.procedures;
        s.completed += t.completed;
        s.in_time += t.in_time;
        s.failed_procedures += t.failed_procedures;
        s.lost += t.lost;
        s.retries += t.retries;
        s.unserved += t.unserved;
        s.never_begun += t.never_begun;
        s.steady_cpu_us += t.steady_cpu_us;
        s.steady_seconds = s.steady_seconds.max(t.steady_seconds);
        s.steady_began_unix_us = s.steady_began_unix_us.max(t.steady_began_unix_us);
        let (u, v) = (&mut a.user_plane, &b.user_plane);
        u.up_packets += v.up_packets;
        u.up_octets += v.up_octets;
        u.down_packets += v.down_packets;
        u.down_octets += v.down_octets;
        u.bad_packets += v.bad_packets;
        u.late_packets += v.late_packets;
        u.late_errors += v.late_errors;
        u.echoes += v.echoes;
        u.echoes_answered += v.echoes_answered;
        u.tunnels_moved += v.tunnels_moved;
        u.qos_modified += v.qos_modified;
        u.moves.add(v.moves);
        u.resent += v.resent;
        u.echoes_lost += v.echoes_lost;
        u.longest_gap_us = u.longest_gap_us.max(v.longest_gap_us);
        if let Some((start, end)) = other.span {
            self.add_lifetime(start, end);
        }
    }

    /// Returns the report. The caller adds the values of the whole run.
    pub(crate) fn finish(mut self) -> Report {
        for (histograms, of) in
            [(&self.latency, &mut self.report.latency_us), (&self.service, &mut self.report.service_us)]
        {
            let happened = PROCEDURES.iter().zip(histograms).filter(|(_, histogram)| !histogram.is_empty());
            of.extend(happened.map(|(procedure, histogram)| (*procedure, Latency::from_histogram(histogram))));
        }
        self.report.timeline = self.timeline.as_mut().map(Timeline::rows).unwrap_or_default();
        let steady = &mut self.report.steady;
        if steady.procedures > 0 && steady.steady_seconds > 0.0 {
            steady.procedures_per_second = steady.completed as f64 / steady.steady_seconds;
            steady.cpu_us_per_procedure = steady.steady_cpu_us as f64 / steady.procedures as f64;
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
