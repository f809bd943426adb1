//! Report of a load.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Upper bound of the recorded latency: one minute, in ns.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Packet counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DirectionReport {
    /// Packets sent into the user plane.
    pub sent: u64,
    /// Octets of the sent packets, from their IP headers on.
    pub octets: u64,
    /// Packets received from the user plane.
    pub received: u64,
    /// Packets sent and not received.
    pub lost: u64,
    /// Share of lost packets in percent.
    pub lost_percent: f64,
    /// Received packets per second.
    pub rate_pps: f64,
}

/// Round-trip time of packets in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Minimum of all packets.
    pub min: f64,
    /// Mean of all packets.
    pub mean: f64,
    pub p50: f64,
    /// 99th percentile of all packets.
    pub p99: f64,
    /// 99.9th percentile of all packets.
    pub p999: f64,
    /// Maximum of all packets.
    pub max: f64,
}

impl Latency {
    fn from_histogram(histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Latency {
            min: us(histogram.min()),
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: us(histogram.max()),
        }
    }
}

/// The report of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Time from the first to the last sent packet, in seconds.
    pub seconds: f64,
    /// Configured packets per second. `None` in a closed loop.
    pub offered_pps: Option<f64>,
    /// Packets that were due but not sent: the generator could not keep up.
    pub skipped: u64,
    /// Packets that the kernel refused to send.
    pub refused: u64,
    /// Error of the last refused packet.
    pub refusal: Option<String>,
    /// From the RAN to the mirror, which counts its received packets.
    pub uplink: DirectionReport,
    /// From the mirror to the RAN.
    pub downlink: DirectionReport,
    /// Packets that returned after their timeout or more than once.
    pub late_or_twice: u64,
    /// Packets received by another cell or tunnel than that of their user, or with changed
    /// contents.
    pub astray: u64,
    /// Error Indications (TS 29.281 7.3.1): the UPF does not know a tunnel.
    pub error_indications: u64,
    /// Datagrams of any other kind.
    #[serde(rename = "others")]
    pub unrelated: u64,
    /// Round-trip times in microseconds.
    pub latency_us: Latency,
}

/// Counters of one thread.
#[derive(Debug)]
pub(super) struct ThreadCounters {
    pub(super) sent: u64,
    pub(super) octets: u64,
    pub(super) received: u64,
    pub(super) mirrored: u64,
    pub(super) skipped: u64,
    pub(super) refused: u64,
    pub(super) refusal: Option<String>,
    pub(super) late: u64,
    pub(super) astray: u64,
    pub(super) error_indications: u64,
    pub(super) unrelated: u64,
    pub(super) seconds: f64,
    pub(super) latency: Histogram<u64>,
}

impl ThreadCounters {
    pub(super) fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(ThreadCounters {
            sent: 0,
            octets: 0,
            received: 0,
            mirrored: 0,
            skipped: 0,
            refused: 0,
            refusal: None,
            late: 0,
            astray: 0,
            error_indications: 0,
            unrelated: 0,
            seconds: 0.0,
            latency: Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)?,
        })
    }

    /// Adds the counters of another thread.
    pub(super) fn add(&mut self, other: ThreadCounters) {
        self.sent += other.sent;
        self.octets += other.octets;
        self.received += other.received;
        // A count of the complete run, of which each thread has seen a part.
        self.mirrored = self.mirrored.max(other.mirrored);
        self.skipped += other.skipped;
        self.refused += other.refused;
        self.refusal = other.refusal.or(self.refusal.take());
        self.late += other.late;
        self.astray += other.astray;
        self.error_indications += other.error_indications;
        self.unrelated += other.unrelated;
        self.seconds = self.seconds.max(other.seconds);
        // Both histograms have the same bounds.
        let _ = self.latency.add(other.latency);
    }

    pub(super) fn report(self, offered_pps: Option<f64>) -> Report {
        // Packets received in one direction were sent in the other. A returned packet has passed
        // the mirror.
        let mirrored = self.mirrored.max(self.received);
        let mean = if self.sent > 0 { self.octets as f64 / self.sent as f64 } else { 0.0 };
        Report {
            seconds: self.seconds,
            offered_pps,
            skipped: self.skipped,
            refused: self.refused,
            refusal: self.refusal,
            uplink: direction_report(self.sent, self.octets, mirrored, self.seconds),
            downlink: direction_report(mirrored, (mean * mirrored as f64) as u64, self.received, self.seconds),
            late_or_twice: self.late,
            astray: self.astray,
            error_indications: self.error_indications,
            unrelated: self.unrelated,
            latency_us: if self.latency.is_empty() {
                Latency::default()
            } else {
                Latency::from_histogram(&self.latency)
            },
        }
    }
}

fn direction_report(sent: u64, octets: u64, received: u64, seconds: f64) -> DirectionReport {
    let lost = sent.saturating_sub(received);
    DirectionReport {
        sent,
        octets,
        received,
        lost,
        lost_percent: if sent > 0 { lost as f64 / sent as f64 * 100.0 } else { 0.0 },
        rate_pps: if seconds > 0.0 { received as f64 / seconds } else { 0.0 },
    }
}

impl Report {
    /// Returns the share of sent packets that did not return, in percent.
    pub fn lost_percent(&self) -> f64 {
        let lost = self.uplink.sent.saturating_sub(self.downlink.received);
        if self.uplink.sent > 0 { lost as f64 / self.uplink.sent as f64 * 100.0 } else { 0.0 }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {:<10} {:>12} {:>12} {:>10} {:>9} {:>12}",
            "", "sent", "received", "lost", "lost %", "packets/s"
        )?;
        for (way, DirectionReport { sent, received, lost, lost_percent, rate_pps, .. }) in
            [("uplink", self.uplink), ("downlink", self.downlink)]
        {
            writeln!(f, "  {way:<10} {sent:>12} {received:>12} {lost:>10} {lost_percent:>9.4} {rate_pps:>12.0}")?;
        }
        let Latency { p50, p99, max, .. } = self.latency_us;
        writeln!(f, "  there and back: p50 {p50:.1} us, p99 {p99:.1} us, max {max:.1} us")?;
        if let Some(offered) = self.offered_pps {
            writeln!(f, "  {offered:.0} packets/s offered for {:?}", Duration::from_secs_f64(self.seconds))?;
        }
        let notes = [
            (self.skipped, "were due and not sent: this generator could not keep up"),
            (self.refused, "were refused by the kernel"),
            (self.late_or_twice, "came back too late or twice"),
            (self.astray, "came back in a wrong tunnel, at a wrong cell or changed"),
            (self.error_indications, "error indications: the UPF does not know these tunnels"),
            (self.unrelated, "datagrams were none of this load's"),
        ];
        for (count, what) in notes.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(f, "  {count} {what}")?;
        }
        self.refusal.as_ref().map_or(Ok(()), |refusal| writeln!(f, "  the last refusal: {refusal}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_count_for_their_direction() {
        let tally = |sent, mirrored, received| {
            let mut tally = ThreadCounters::new().unwrap();
            (tally.sent, tally.octets, tally.mirrored, tally.received) = (sent, sent * 100, mirrored, received);
            tally.seconds = 2.0;
            tally.latency.record_n(received * 10, received).unwrap();
            tally
        };
        let mut all = tally(600, 950, 500);
        all.add(tally(400, 940, 400));
        let report = all.report(Some(500.0));
        assert_eq!((report.uplink.lost, report.downlink.lost), (50, 50));
        assert_eq!((report.downlink.octets, report.downlink.rate_pps), (95_000, 450.0));
        assert!((report.lost_percent() - 10.0).abs() < 1e-9);
        assert!((report.latency_us.max - 5.0).abs() < 0.01, "{:?}", report.latency_us);
        let text = report.to_string();
        assert!(text.contains("500 packets/s offered for 2s") && !text.contains("refused"), "{text}");
        assert_eq!(ThreadCounters::new().unwrap().report(None).latency_us, Latency::default());
    }
}
