//! Metrics of the UPF:
//!
//! - `vireo_upf_sessions`
//! - `vireo_upf_buffered_bytes`
//! - `vireo_upf_packets_total{direction}`, `vireo_upf_bytes_total{direction}` (`uplink`,
//!   `downlink`)
//! - `vireo_upf_buffered_packets_total`
//! - `vireo_upf_control_packets_sent_total`
//! - `vireo_upf_worker_takeovers_total`
//! - `vireo_upf_dropped_packets_total{reason}`
//! - `vireo_upf_flow_rule_sessions{path}` (`fast`, `slow`): sessions with flow rules. The BPF
//!   program decides on the fast path, a data worker on the slow path.
//! - `vireo_upf_flow_rule_packets_total{path}` (`fast`, `slow`): packets of these sessions, only
//!   with XDP
//! - `vireo_upf_sessions_rejected_total{reason}` (`storage_full`)
//! - `vireo_upf_sessions_released_total`
//! - `vireo_upf_pfcp_requests_total{outcome}` (`accepted`, `rejected`, `discarded`, `repeated`,
//!   `unlisted`, `refused_association`, `from_ue`)
//! - `vireo_upf_pfcp_reports_total{outcome}` (`sent`, `unanswered`)
//! - `vireo_upf_known_ran_addresses`: number of addresses from which G-PDUs are accepted

use crate::server::UpfStats;
use metrics::{Counter, Gauge, Key, Label, Level, Metadata, Recorder};
use vireo_datapath::{DropReason, FlowSessions};

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// Handles of the registered metrics.
pub(crate) struct UpfMetrics {
    sessions: Gauge,
    buffered_octets: Gauge,
    packets: [Counter; 2],
    octets: [Counter; 2],
    buffered: Counter,
    answers: Counter,
    takeovers: Counter,
    drops: Vec<Counter>,
    rule_sessions: [Gauge; 2],
    rule_packets: [Counter; 2],
    no_room: Counter,
    released: Counter,
    pfcp_requests: [Counter; 7],
    pfcp_reports: [Counter; 2],
    ran_addresses: Gauge,
}

impl std::fmt::Debug for UpfMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpfMetrics").finish_non_exhaustive()
    }
}

impl UpfMetrics {
    /// Registers all metrics with the value zero.
    pub(crate) fn register(recorder: &dyn Recorder) -> Self {
        describe(recorder);
        let counter = |name: &'static str, labels: Vec<Label>| {
            recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
        };
        let gauge = |name: &'static str| recorder.register_gauge(&Key::from_name(name), &METADATA);
        let directions =
            |name| ["uplink", "downlink"].map(|direction| counter(name, vec![Label::new("direction", direction)]));
        let labels = |path: &'static str| vec![Label::new("path", path)];
        let paths = ["fast", "slow"];
        let flow_rule_sessions = |path| Key::from_parts("vireo_upf_flow_rule_sessions", labels(path));
        let rule_sessions = paths.map(|path| recorder.register_gauge(&flow_rule_sessions(path), &METADATA));
        let by_outcome = |name, outcome| counter(name, vec![Label::new("outcome", outcome)]);
        let requests = ["accepted", "rejected", "discarded", "repeated", "unlisted", "refused_association", "from_ue"];
        UpfMetrics {
            sessions: gauge("vireo_upf_sessions"),
            buffered_octets: gauge("vireo_upf_buffered_bytes"),
            packets: directions("vireo_upf_packets_total"),
            octets: directions("vireo_upf_bytes_total"),
            buffered: counter("vireo_upf_buffered_packets_total", vec![]),
            answers: counter("vireo_upf_control_packets_sent_total", vec![]),
            takeovers: counter("vireo_upf_worker_takeovers_total", vec![]),
            drops: DropReason::ALL
                .iter()
                .map(|r| counter("vireo_upf_dropped_packets_total", vec![Label::new("reason", r.name())]))
                .collect(),
            rule_sessions,
            rule_packets: paths.map(|path| counter("vireo_upf_flow_rule_packets_total", labels(path))),
            no_room: counter("vireo_upf_sessions_rejected_total", vec![Label::new("reason", "storage_full")]),
            released: counter("vireo_upf_sessions_released_total", vec![]),
            ran_addresses: gauge("vireo_upf_known_ran_addresses"),
            pfcp_requests: requests.map(|outcome| by_outcome("vireo_upf_pfcp_requests_total", outcome)),
            pfcp_reports: ["sent", "unanswered"].map(|outcome| by_outcome("vireo_upf_pfcp_reports_total", outcome)),
        }
    }

    /// Sets all metrics from the statistics.
    pub(super) fn set(&self, stats: &UpfStats) {
        self.sessions.set(stats.sessions as f64);
        self.buffered_octets.set(stats.buffered_octets as f64);
        let UpfStats { packets, pfcp, .. } = stats;
        for (n, volume) in [packets.uplink, packets.downlink].into_iter().enumerate() {
            self.packets[n].absolute(volume.packets);
            self.octets[n].absolute(volume.octets);
        }
        self.buffered.absolute(packets.buffered);
        self.answers.absolute(packets.answers);
        self.takeovers.absolute(stats.takeovers.count);
        for (counter, n) in self.drops.iter().zip(packets.drops) {
            counter.absolute(n);
        }
        let FlowSessions { all, in_kernel } = stats.flow_sessions;
        self.rule_sessions[0].set(in_kernel as f64);
        self.rule_sessions[1].set((all - in_kernel) as f64);
        self.rule_packets[0].absolute(stats.flow_packets.decided);
        self.rule_packets[1].absolute(stats.flow_packets.punted);
        self.no_room.absolute(pfcp.no_room);
        self.ran_addresses.set(stats.ran_addresses as f64);
        self.released.absolute(pfcp.released);
        let counts = [
            pfcp.accepted,
            pfcp.rejected,
            pfcp.discarded,
            pfcp.repeated,
            pfcp.unlisted,
            pfcp.refused_associations,
            pfcp.from_ues,
        ];
        for (counter, n) in self.pfcp_requests.iter().zip(counts) {
            counter.absolute(n);
        }
        self.pfcp_reports[0].absolute(pfcp.reports);
        self.pfcp_reports[1].absolute(pfcp.unanswered);
    }
}

fn describe(recorder: &dyn Recorder) {
    let counters = [
        ("vireo_upf_packets_total", "User packets forwarded, by direction."),
        ("vireo_upf_bytes_total", "Bytes of the user packets forwarded, by direction."),
        ("vireo_upf_buffered_packets_total", "Downlink packets buffered for idle UEs."),
        ("vireo_upf_control_packets_sent_total", "Echo responses, error indications and router advertisements sent."),
        ("vireo_upf_worker_takeovers_total", "Data worker processes that died and were replaced."),
        ("vireo_upf_dropped_packets_total", "Packets dropped, by reason."),
        (
            "vireo_upf_flow_rule_packets_total",
            "Packets of sessions with flow rules that arrived at XDP, by the path that decided.",
        ),
        ("vireo_upf_sessions_rejected_total", "PFCP sessions rejected, by reason."),
        ("vireo_upf_sessions_released_total", "Sessions removed because their control plane was silent for too long."),
        ("vireo_upf_pfcp_requests_total", "PFCP requests received, by outcome."),
        ("vireo_upf_pfcp_reports_total", "PFCP session reports of this UPF, by outcome."),
    ];
    for (name, text) in counters {
        recorder.describe_counter(name.into(), None, text.into());
    }
    let text = "Addresses from which G-PDUs are accepted, without prefixes.";
    recorder.describe_gauge("vireo_upf_known_ran_addresses".into(), None, text.into());
    recorder.describe_gauge("vireo_upf_sessions".into(), None, "PFCP sessions.".into());
    let text = "Sessions with flow rules, by the path that decides.";
    recorder.describe_gauge("vireo_upf_flow_rule_sessions".into(), None, text.into());
    recorder.describe_gauge("vireo_upf_buffered_bytes".into(), None, "Bytes in downlink buffers.".into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::metrics::Metrics;

    #[test]
    fn every_counter_is_rendered() {
        let metrics = Metrics::new();
        let upf = metrics.register(UpfMetrics::register);
        let mut stats = UpfStats { sessions: 3, buffered_octets: 44, ..UpfStats::default() };
        stats.packets.downlink.packets = 5;
        stats.packets.drops[DropReason::Spoofed as usize] = 6;
        (stats.pfcp.repeated, stats.pfcp.no_room, stats.pfcp.unlisted, stats.pfcp.released) = (7, 2, 11, 12);
        (stats.pfcp.from_ues, stats.ran_addresses) = (4, 12);
        stats.flow_sessions = FlowSessions { all: 9, in_kernel: 8 };
        stats.flow_packets.punted = 10;
        upf.set(&stats);
        let text = metrics.render();
        for line in [
            "vireo_upf_sessions 3",
            "vireo_upf_buffered_bytes 44",
            r#"vireo_upf_packets_total{direction="downlink"} 5"#,
            r#"vireo_upf_packets_total{direction="uplink"} 0"#,
            r#"vireo_upf_dropped_packets_total{reason="spoofed_source"} 6"#,
            r#"vireo_upf_pfcp_requests_total{outcome="repeated"} 7"#,
            r#"vireo_upf_pfcp_requests_total{outcome="unlisted"} 11"#,
            r#"vireo_upf_pfcp_requests_total{outcome="from_ue"} 4"#,
            "vireo_upf_known_ran_addresses 12",
            r#"vireo_upf_sessions_rejected_total{reason="storage_full"} 2"#,
            "vireo_upf_sessions_released_total 12",
            r#"vireo_upf_flow_rule_sessions{path="fast"} 8"#,
            r#"vireo_upf_flow_rule_sessions{path="slow"} 1"#,
            r#"vireo_upf_flow_rule_packets_total{path="slow"} 10"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in {text}");
        }
    }
}
