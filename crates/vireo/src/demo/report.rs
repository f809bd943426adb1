//! What a demo came to: the table a person reads and the JSON a program reads.

use crate::lab::emulator::{Emulated, Latency};
use crate::lab::netns::InterfaceCounters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The scenario in which UEs do everything, and leave.
pub(super) const FULL: &str = "full";

/// The result. The names of the JSON are a contract.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// What the UEs did.
    pub(super) scenario: String,
    /// UEs asked for.
    pub(super) ues: u64,
    /// UEs that got a Registration Accept and completed it.
    pub(super) registered: u64,
    /// PDU sessions established.
    pub(super) sessions: u64,
    /// UEs whose echoes the data network answered: the share of echoes answered, of all UEs.
    pub(super) echo_ok: u64,
    /// Echoes that the data network answered.
    pub(super) echoes: u64,
    /// UEs that left in good order.
    pub(super) deregistered: u64,
    /// UEs that did not do all their steps, and what the core did against the specifications.
    pub(super) failures: u64,
    /// UEs that did not do all their steps.
    pub(super) lost: u64,
    /// Worker processes that were killed meanwhile.
    pub(super) kills: u64,
    /// Data workers' processes that were killed meanwhile.
    pub(super) data_kills: u64,
    /// Of them, those that the next one has taken over from, as the user plane says.
    pub(super) data_takeovers: u64,
    /// The longest time from when it saw the end of one until the next one worked.
    pub(super) longest_takeover_us: u64,
    /// Packets that died with them, at most.
    pub(super) packets_died: u64,
    /// Times that a user was moved to another slice of the user plane meanwhile.
    pub(super) migrations: u64,
    /// The most UEs that each host of a cluster held registered at a time.
    pub(super) hosts: Vec<u64>,
    /// Hosts that were made to fail meanwhile.
    pub(super) failed_hosts: u64,
    /// For how long the database of a chain had nobody in the place of a master that was killed.
    pub(super) failover_ms: Option<u64>,
    /// What the functions of a chain that ran to the end have asked their database, by transaction and operation; of AMF and UPF with
    /// their names in front.
    pub(super) state_operations: BTreeMap<String, u64>,
    /// Packets of UEs that had to be sent again or were never answered.
    pub(super) lost_packets: u64,
    /// From the first message to Registration Complete.
    pub(super) registration_us: Latency,
    /// From the request to the session's being usable.
    pub(super) session_us: Latency,
    /// CPU time of the core for one UE, all that it did: kernel's count of all threads, user and system; without what a host
    /// of a cluster had used that was made to fail.
    pub(super) core_cpu_us_per_ue: f64,
    /// CPU time of the emulator for one UE.
    pub(super) emulator_cpu_us_per_ue: f64,
    /// Resident memory that the core grew by for one UE, between half of the UEs registered and all of them; `None` where it
    /// was not watched (several hosts).
    pub(super) rss_bytes_per_ue: Option<f64>,
    /// Packets from the UEs that the kernel counted on the data network's interface.
    pub(super) n6_packets_kernel: u64,
    /// Packets to the UEs that the kernel counted there.
    pub(super) n6_answers_kernel: u64,
}

impl Report {
    /// From what the emulator and the kernel say.
    pub(super) fn new(
        ues: u32,
        scenario: &str,
        emulated: &Emulated,
        before: InterfaceCounters,
        after: InterfaceCounters,
    ) -> Self {
        let per_ue = |total: f64| total / f64::from(ues);
        let result = &emulated.result;
        let echoes = result.user_plane;
        let ues = u64::from(ues);
        Report {
            scenario: scenario.to_owned(),
            ues,
            registered: result.registered,
            sessions: result.sessions,
            // All UEs ask for equally many.
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
            hosts: Vec::new(),
            failed_hosts: 0,
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

    fn of_hosts(&self) -> String {
        match self.hosts.len() {
            0 => "one process".to_owned(),
            hosts => format!("{hosts} with at most {:?} UEs; {} failed", self.hosts, self.failed_hosts),
        }
    }

    /// Whether every UE did everything. In the full scenario all counts must say so too, the kernel's among them.
    pub(super) fn complete(&self) -> bool {
        let all = [self.registered, self.sessions, self.echo_ok, self.deregistered, self.echoes];
        // The kernel counts address resolution too; fewer than the echoes would mean that somebody made them up.
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
            ("hosts", self.of_hosts()),
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
    fn the_json_has_the_names_of_the_contract() {
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
            "migrations",
            "lost_packets",
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
