//! Result of a demo, as a table and as JSON.

use crate::emulator::{EmulatorRun, Latency};
use crate::netns::InterfaceCounters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Name of the scenario in which UEs use all procedures and deregister.
pub(super) const FULL: &str = "full";

/// Result of a demo. The names of the JSON are a contract.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Scenario that the UEs ran.
    pub(super) scenario: String,
    /// Number of requested UEs, or of negative cases.
    pub(super) ues: u64,
    /// UEs that received a Registration Accept and completed the registration.
    pub(super) registered: u64,
    pub(super) sessions: u64,
    /// UEs whose echoes were answered: the share of answered echoes, scaled to all UEs.
    pub(super) echo_ok: u64,
    /// Echoes that the data network answered.
    pub(super) echoes: u64,
    /// UEs that completed the deregistration.
    pub(super) deregistered: u64,
    /// UEs that did not complete all steps, plus violations of the specifications by the core.
    pub(super) failures: u64,
    /// UEs that did not complete all steps.
    pub(super) lost: u64,
    /// Worker processes killed during the run.
    pub(super) kills: u64,
    /// Data worker processes killed during the run.
    pub(super) data_kills: u64,
    /// Killed data workers that a successor took over from, as the user plane reports.
    pub(super) data_takeovers: u64,
    /// Longest time from the detected end of a data worker until its successor worked.
    pub(super) longest_takeover_us: u64,
    /// Upper bound of packets lost with killed data workers.
    pub(super) packets_died: u64,
    /// Migrations of users to another slice of the user plane during the run.
    pub(super) migrations: u64,
    /// Moves of connected UEs between 4G and 5G, by handover.
    pub(super) moves_connected: u64,
    /// Moves of idle UEs between 4G and 5G.
    pub(super) moves_idle: u64,
    /// Packets that UEs sent at intervals while they moved so.
    pub(super) packets_at_moves: u64,
    /// Packets without an answer among them. They are not sent again.
    pub(super) packets_lost_at_moves: u64,
    /// Packets that the sources of handovers have forwarded to the targets.
    pub(super) packets_forwarded_at_moves: u64,
    /// Answers that arrived after the answer to a later packet.
    pub(super) packets_reordered_at_moves: u64,
    /// Shards of the core; 0 if it has one process that serves UEs.
    pub(super) shards: u64,
    /// Shards killed during the run.
    pub(super) shard_kills: u64,
    /// Largest number of simultaneously registered UEs, by host.
    pub(super) hosts: Vec<u64>,
    /// Hosts that failed by fault injection.
    pub(super) failed_hosts: u64,
    /// Procedures of UEs that their owner served, summed over all hosts. A failed host counts with
    /// its numbers right before the fault.
    pub(super) served_by_owner: u64,
    /// Procedures of UEs that a replica served.
    pub(super) served_by_replica: u64,
    /// Time for which the SBA database had no successor for a killed master.
    pub(super) failover_ms: Option<u64>,
    /// Database operations of SBA processes that ran to the end, by transaction and operation. AMF
    /// and UPF prefix their names.
    pub(super) state_operations: BTreeMap<String, u64>,
    /// Packets of UEs that were sent again or never answered.
    pub(super) lost_packets: u64,
    /// Latency from the first message to Registration Complete.
    pub(super) registration_us: Latency,
    /// Latency from the request to a usable session.
    pub(super) session_us: Latency,
    /// CPU time of the core per UE: user and system time of all threads, from the kernel. Excludes
    /// the time that an injected fault's host had used.
    pub(super) core_cpu_us_per_ue: f64,
    /// CPU time of the emulator per UE.
    pub(super) emulator_cpu_us_per_ue: f64,
    /// Growth of the core's resident memory per UE, from half of the UEs registered to all of them.
    /// `None` if not measured (several hosts).
    pub(super) rss_bytes_per_ue: Option<f64>,
    /// Packets from UEs, by the kernel's count on the data network's interface.
    pub(super) n6_packets_kernel: u64,
    /// Packets to UEs, by the kernel's count on the data network's interface.
    pub(super) n6_answers_kernel: u64,
}

impl Report {
    /// Creates the report from the emulator's result and the kernel's counters.
    pub(super) fn new(
        ues: u32,
        scenario: &str,
        emulated: &EmulatorRun,
        before: InterfaceCounters,
        after: InterfaceCounters,
    ) -> Self {
        let per_ue = |total: f64| total / f64::from(ues);
        let result = &emulated.result;
        let echoes = result.user_plane;
        // In a scenario of negative cases, each case counts as a UE.
        let ues = result.ues;
        Report {
            scenario: scenario.to_owned(),
            ues,
            registered: result.registered,
            sessions: result.sessions,
            // All UEs request the same number of echoes.
            echo_ok: (echoes.echoes_answered * ues).checked_div(echoes.echoes).unwrap_or(0),
            echoes: echoes.echoes_answered,
            deregistered: result.deregistered,
            lost: ues.saturating_sub(result.succeeded),
            kills: 0,
            data_kills: 0,
            data_takeovers: 0,
            longest_takeover_us: 0,
            packets_died: 0,
            migrations: 0,
            moves_connected: echoes.moves.connected,
            moves_idle: echoes.moves.idle,
            packets_at_moves: echoes.moves.echoes,
            packets_lost_at_moves: echoes.moves.echoes_lost,
            packets_forwarded_at_moves: echoes.moves.forwarded,
            packets_reordered_at_moves: echoes.moves.echoes_reordered,
            shards: 0,
            shard_kills: 0,
            hosts: Vec::new(),
            failed_hosts: 0,
            served_by_owner: 0,
            served_by_replica: 0,
            failover_ms: None,
            state_operations: BTreeMap::new(),
            lost_packets: echoes.resent + echoes.echoes.saturating_sub(echoes.echoes_answered),
            failures: ues.saturating_sub(result.succeeded) + result.violations.values().sum::<u64>(),
            registration_us: result.latency("registration"),
            session_us: result.latency("session"),
            core_cpu_us_per_ue: per_ue(emulated.core_cpu.as_secs_f64() * 1e6),
            emulator_cpu_us_per_ue: per_ue(emulated.cpu.as_secs_f64() * 1e6),
            rss_bytes_per_ue: emulated.core_bytes_per_ue,
            n6_packets_kernel: after.rx_packets - before.rx_packets,
            n6_answers_kernel: after.tx_packets - before.tx_packets,
        }
    }

    fn data_kills(&self) -> String {
        match self.data_kills {
            0 => "0".to_owned(),
            kills => format!(
                "{kills}; {} taken over from within {:.1} ms, at most {} packets died",
                self.data_takeovers,
                self.longest_takeover_us as f64 / 1000.0,
                self.packets_died
            ),
        }
    }

    fn hosts_text(&self) -> String {
        match self.hosts.len() {
            0 if self.shards > 0 => format!("{} shards of one process tree; {} killed", self.shards, self.shard_kills),
            0 => "one process".to_owned(),
            hosts => format!("{hosts} with at most {:?} UEs; {} failed", self.hosts, self.failed_hosts),
        }
    }

    /// Returns true if every UE completed all steps. In the full scenario all counts, including the
    /// kernel's, must confirm this.
    pub(super) fn complete(&self) -> bool {
        let all = [self.registered, self.sessions, self.echo_ok, self.deregistered, self.echoes];
        // The kernel also counts address resolution. Fewer packets than echoes would mean
        // fabricated answers.
        let witnessed = self.n6_packets_kernel >= self.echoes && self.n6_answers_kernel >= self.echoes;
        self.failures == 0 && witnessed && (self.scenario != FULL || all.iter().all(|n| *n >= self.ues))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |us: u64| format!("{:.1} ms", us as f64 / 1000.0);
        let latency = |l: Latency| format!("{} (p99 {})", ms(l.p50), ms(l.p99));
        let lines = [
            ("UEs", self.ues.to_string()),
            ("registered", self.registered.to_string()),
            ("PDU sessions", self.sessions.to_string()),
            ("UEs with all echoes", self.echo_ok.to_string()),
            ("deregistered", self.deregistered.to_string()),
            ("failures", self.failures.to_string()),
            ("UEs lost", self.lost.to_string()),
            ("workers killed", self.kills.to_string()),
            ("data workers killed", self.data_kills()),
            ("users moved", self.migrations.to_string()),
            ("hosts", self.hosts_text()),
            ("packets lost", self.lost_packets.to_string()),
            ("registration takes", latency(self.registration_us)),
            ("session takes", latency(self.session_us)),
            ("core CPU per UE", format!("{:.0} us", self.core_cpu_us_per_ue)),
            ("emulator CPU per UE", format!("{:.0} us", self.emulator_cpu_us_per_ue)),
            (
                "core memory per UE",
                self.rss_bytes_per_ue.map_or("not watched".into(), |b| format!("{:.1} kB", b / 1000.0)),
            ),
            ("packets on N6", format!("{} out, {} back (kernel)", self.n6_packets_kernel, self.n6_answers_kernel)),
        ];
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in lines {
            writeln!(f, "  {name:<width$}  {value}")?;
        }
        if !self.hosts.is_empty() {
            let (owner, replica) = (self.served_by_owner, self.served_by_replica);
            writeln!(f, "  {:<width$}  {owner} by owners, {replica} by replicas", "procedures served")?;
        }
        if self.moves_connected + self.moves_idle > 0 {
            let (connected, idle) = (self.moves_connected, self.moves_idle);
            let (lost, packets) = (self.packets_lost_at_moves, self.packets_at_moves);
            let forwarded = self.packets_forwarded_at_moves;
            writeln!(f, "  {:<width$}  {connected} connected, {idle} idle", "moves between 4G, 5G")?;
            writeln!(f, "  {:<width$}  {lost} of {packets}, {forwarded} forwarded", "lost at moves")?;
        }
        if let Some(time) = self.failover_ms {
            writeln!(f, "  {:<width$}  its replica was in its place after {time} ms", "master killed")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Report {
        Report {
            scenario: FULL.into(),
            ues: 2,
            registered: 2,
            sessions: 2,
            echo_ok: 2,
            echoes: 8,
            deregistered: 2,
            n6_packets_kernel: 9,
            n6_answers_kernel: 9,
            rss_bytes_per_ue: Some(1e4),
            ..Report::default()
        }
    }

    #[test]
    fn one_ue_short_is_not_complete() {
        assert!(good().complete());
        let broken: [fn(&mut Report); 7] = [
            |r| r.registered = 1,
            |r| r.sessions = 1,
            |r| r.echo_ok = 1,
            |r| r.deregistered = 1,
            |r| r.failures = 1,
            |r| r.n6_packets_kernel = 7,
            |r| r.n6_answers_kernel = 7,
        ];
        for change in broken {
            let mut report = good();
            change(&mut report);
            assert!(!report.complete(), "{report:?}");
        }
    }

    #[test]
    fn report_json_keys_are_stable() {
        let json = serde_json::to_value(good()).unwrap();
        for name in [
            "ues",
            "registered",
            "sessions",
            "echo_ok",
            "deregistered",
            "failures",
            "lost",
            "kills",
            "shards",
            "shard_kills",
            "migrations",
            "served_by_owner",
            "served_by_replica",
            "lost_packets",
            "moves_connected",
            "moves_idle",
            "packets_at_moves",
            "packets_lost_at_moves",
            "packets_forwarded_at_moves",
            "packets_reordered_at_moves",
            "core_cpu_us_per_ue",
            "emulator_cpu_us_per_ue",
            "rss_bytes_per_ue",
            "n6_packets_kernel",
        ] {
            assert!(json[name].is_number(), "{name}");
        }
        for name in ["registration_us", "session_us"] {
            assert!(json[name]["p50"].is_number() && json[name]["p99"].is_number(), "{name}");
        }
    }
}
