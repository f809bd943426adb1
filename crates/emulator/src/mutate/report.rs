//! Result of a campaign of mutated messages.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Minimum share of messages that pass the ASN.1 decoder, and minimum share with valid protection.
const SHARE: f64 = 0.3;
/// Minimum number of messages for the check of shares.
const MEANINGFUL: u64 = 1000;

/// Layer at which a message was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Octets of an NGAP PDU.
    Byte,
    /// Information elements or head of an NGAP PDU.
    Asn1,
    /// Plain NAS in a valid NGAP PDU.
    Nas,
    /// NAS inside valid protection in a valid NGAP PDU.
    Protected,
    /// None: the message is valid, but at the wrong time or for another UE.
    Order,
}

/// How far the decoders read a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Depth {
    /// The ASN.1 decoder refuses the PDU or an IE.
    Transport,
    /// The ASN.1 decoder reads the whole PDU; it has no NAS, or unreadable NAS.
    Asn1,
    /// The decoder also reads plain NAS in it.
    Nas,
    /// Its NAS is validly protected under the UE's current context.
    Protected,
}

/// State of the attacking UE when the message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The message is not UE-associated.
    Node,
    /// The UE is not registered and not connected.
    NoContext,
    /// A registration has begun.
    Registering,
    /// The challenge is unanswered.
    Authenticating,
    /// SECURITY MODE COMMAND is unanswered.
    SecurityMode,
    /// REGISTRATION ACCEPT is unanswered.
    Accepted,
    /// Registered and connected, without a session.
    Registered,
    /// Registered and connected, with a session.
    Session,
    /// Registered, not connected.
    Idle,
    /// A service request is unanswered.
    Serving,
    /// A deregistration is unanswered.
    Deregistering,
    /// An N2 handover is prepared, and the UE has not arrived at the target.
    Handover,
}

/// Memory of the core's processes, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// Memory before the first message.
    pub before: u64,
    /// Memory after a tenth of the messages.
    pub after_a_tenth: u64,
    /// Memory after the last message.
    pub after: u64,
}

/// Result of the good UEs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GoodUes {
    /// Number of UEs that run the procedures in a loop concurrently.
    pub ues: u32,
    /// Initial registrations and mobility updates that the core has accepted.
    pub registrations: u64,
    /// PDU sessions that the core has established, one after each initial registration.
    pub sessions: u64,
    /// Service requests from idle that the core has accepted.
    pub service_requests: u64,
    /// Deregistrations of UEs that the core has accepted.
    pub deregistrations: u64,
    /// UEs with a procedure that was rejected or timed out.
    pub failed: u64,
    /// Registrations and service requests delayed by T3346.
    pub back_offs: u64,
    /// Failure reasons of UEs, and violations of the specifications by the core.
    pub faults: BTreeMap<String, u64>,
    /// The largest median of a procedure, in milliseconds.
    pub p50_ms: f64,
    /// The largest 99th percentile of a procedure, in milliseconds.
    pub p99_ms: f64,
    /// The longest procedure, in milliseconds.
    pub max_ms: f64,
}

/// Result of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Mutations {
    /// Seed of the messages; the same seed and core answers yield the same messages.
    pub seed: u64,
    /// Number of messages to send.
    pub requested: u64,
    /// Mutated or misplaced messages sent, without those that bring UEs to their states.
    pub messages: u64,
    /// Time from the first to the last message, in seconds.
    pub seconds: f64,
    pub messages_per_second: f64,
    /// Share of messages that the ASN.1 decoder reads.
    pub decoded: f64,
    /// Share of messages with validly protected NAS.
    pub protected: f64,
    /// Messages by level and depth.
    pub levels: BTreeMap<Level, BTreeMap<Depth, u64>>,
    /// Messages by depth, over all levels.
    pub depth: BTreeMap<Depth, u64>,
    /// Messages by state of the UE and level.
    pub states: BTreeMap<State, BTreeMap<Level, u64>>,
    /// PDUs received by the attacking gNBs, by kind. `none` counts UE-associated messages without
    /// any answer before the next one.
    pub answers: BTreeMap<String, u64>,
    /// Answered messages among those that a core must answer (RAN CONFIGURATION UPDATE).
    pub probes: u64,
    /// Messages sent alone for which TS 38.413 clause 10 requires an answer, by clause.
    pub watched: BTreeMap<String, u64>,
    /// The unanswered ones among them.
    pub silent: BTreeMap<String, u64>,
    /// First unanswered PDU of each kind and first unexpected NAS message of each kind, in
    /// hexadecimal digits.
    pub evidence: BTreeMap<String, String>,
    /// Registrations that the attacking UEs began.
    pub registrations: u64,
    /// Associations of attacking gNBs that the core ended.
    pub associations_lost: u64,
    /// Result of the UEs whose gNB sends no mutated messages.
    pub good: GoodUes,
    /// Memory of the core, if its process is known.
    pub memory_kib: Option<Growth>,
    /// Reasons for which the campaign failed.
    pub harm: Vec<String>,
}

impl Mutations {
    pub(super) fn count(&mut self, level: Level, depth: Depth, state: State) {
        self.messages += 1;
        *self.levels.entry(level).or_default().entry(depth).or_default() += 1;
        *self.depth.entry(depth).or_default() += 1;
        *self.states.entry(state).or_default().entry(level).or_default() += 1;
    }

    pub(super) fn answer(&mut self, name: String) {
        *self.answers.entry(name).or_default() += 1;
    }

    /// Stores the first message that shows a finding.
    pub(super) fn show(&mut self, what: &str, octets: &[u8]) {
        if !self.evidence.contains_key(what) {
            let digits = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            self.evidence.insert(what.into(), digits);
        }
    }

    /// Computes shares and verdict.
    pub(super) fn finish(&mut self, seconds: f64) {
        let of = |depth: Depth| self.depth.get(&depth).copied().unwrap_or(0) as f64;
        let all = self.messages.max(1) as f64;
        self.decoded = 1.0 - of(Depth::Transport) / all;
        self.protected = of(Depth::Protected) / all;
        self.seconds = seconds;
        self.messages_per_second = self.messages as f64 / seconds.max(1e-9);
        if self.messages == 0 {
            self.decoded = 0.0;
        }
        if self.messages < self.requested {
            self.harm.push(format!("stopped after {} of {} messages", self.messages, self.requested));
        }
        if self.requested >= MEANINGFUL {
            for (share, what) in [(self.decoded, "pass the ASN.1 decoder"), (self.protected, "are validly protected")] {
                if share < SHARE {
                    self.harm.push(format!("{:.1}% of the messages {what}, 30% must", share * 100.0));
                }
            }
        }
        for (why, count) in &self.silent {
            self.harm.push(format!("{count} messages were not answered: {why}"));
        }
        let good = &self.good;
        if good.failed > 0 || !good.faults.is_empty() {
            self.harm.push(format!("{} good UEs failed: {:?}", good.failed, good.faults));
        }
        if good.back_offs > 0 {
            self.harm.push(format!("good UEs were put off {} times", good.back_offs));
        }
        if good.registrations == 0 {
            self.harm.push("no good UE registered".into());
        }
    }

    /// Checks the core's memory: after a tenth of the messages it must not grow by more than `most`
    /// KiB.
    pub fn judge_memory(&mut self, memory: Growth, most: u64) {
        self.memory_kib = Some(memory);
        let growth = memory.after.saturating_sub(memory.after_a_tenth);
        if growth > most {
            self.harm.push(format!("the core's memory grew by {growth} KiB, at most {most} KiB are allowed"));
        }
    }

    /// Returns true if the campaign found no harm.
    pub fn passed(&self) -> bool {
        self.harm.is_empty()
    }
}

impl fmt::Display for Mutations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} messages in {:.1} s ({:.0}/s): {:.1}% pass the ASN.1 decoder, {:.1}% are validly protected",
            self.messages,
            self.seconds,
            self.messages_per_second,
            self.decoded * 100.0,
            self.protected * 100.0
        )?;
        for (level, depths) in &self.levels {
            writeln!(f, "level {level:?}: {depths:?}")?;
        }
        for (state, levels) in &self.states {
            writeln!(f, "state {state:?}: {}", levels.values().sum::<u64>())?;
        }
        for (answer, count) in &self.answers {
            writeln!(f, "answer: {count} x {answer}")?;
        }
        let good = &self.good;
        writeln!(
            f,
            "{} good UEs: {} registrations, {} sessions, {} service requests, {} deregistrations, {} failed; p50 {:.1} ms, \
             p99 {:.1} ms, at most {:.1} ms",
            good.ues,
            good.registrations,
            good.sessions,
            good.service_requests,
            good.deregistrations,
            good.failed,
            good.p50_ms,
            good.p99_ms,
            good.max_ms
        )?;
        if let Some(memory) = &self.memory_kib {
            let Growth { before, after_a_tenth, after } = memory;
            writeln!(f, "memory: {before} KiB before, {after_a_tenth} KiB after a tenth, {after} KiB at the end")?;
        }
        for harm in &self.harm {
            writeln!(f, "harm: {harm}")?;
        }
        Ok(())
    }
}
