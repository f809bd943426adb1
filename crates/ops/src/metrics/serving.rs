//! Metrics of the choice of serving hosts: choices at balancers, procedures and proposals at hosts.

use super::{METADATA, Metrics, key};
use metrics::{Counter, Recorder};

const CHOICES: &str = "vireo_serving_host_choices_total";
const VIOLATIONS: &str = "vireo_serving_host_violations_total";
const RECALLED: &str = "vireo_inputs_recalled_total";
const SERVED: &str = "vireo_procedures_served_total";
const PROPOSALS: &str = "vireo_proposals_total";

/// Role of a serving host for a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServedBy {
    Owner,
    Replica,
}

impl ServedBy {
    const ALL: [ServedBy; 2] = [ServedBy::Owner, ServedBy::Replica];

    /// Returns the label's value.
    pub const fn label(self) -> &'static str {
        match self {
            ServedBy::Owner => "owner",
            ServedBy::Replica => "replica",
        }
    }
}

/// Decision of an owner about a proposal of a serving replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProposalResult {
    Committed,
    Refused,
}

impl ProposalResult {
    const ALL: [ProposalResult; 2] = [ProposalResult::Committed, ProposalResult::Refused];

    /// Returns the label's value.
    pub const fn label(self) -> &'static str {
        match self {
            ProposalResult::Committed => "committed",
            ProposalResult::Refused => "refused",
        }
    }
}

/// Counters of serving hosts.
pub(super) struct Serving {
    choices: [Counter; 2],
    violations: Counter,
    recalled: Counter,
    served: [Counter; 2],
    proposals: [Counter; 2],
}

impl Serving {
    /// Registers the counters with the value zero.
    pub(super) fn new(recorder: &impl Recorder) -> Self {
        let describe = [
            (CHOICES, "Serving hosts chosen for procedures of known UEs, by role."),
            (VIOLATIONS, "Choices in which no host was expected to meet the latency objective."),
            (RECALLED, "Inputs not done in time by a serving host, which the owner got."),
            (SERVED, "Procedures that ended, by the role of the host that served the last step."),
            (PROPOSALS, "Proposals of serving replicas that the owner decided, by result."),
        ];
        describe.into_iter().for_each(|(name, text)| recorder.describe_counter(name.into(), None, text.into()));
        let counter = |name, labels: &_| recorder.register_counter(&key(name, labels), &METADATA);
        let by_role = |name, label| ServedBy::ALL.map(|role| counter(name, &[(label, role.label())][..]));
        Serving {
            choices: by_role(CHOICES, "role"),
            violations: counter(VIOLATIONS, &[][..]),
            recalled: counter(RECALLED, &[][..]),
            served: by_role(SERVED, "role"),
            proposals: ProposalResult::ALL.map(|result| counter(PROPOSALS, &[("result", result.label())][..])),
        }
    }
}

impl Metrics {
    /// Counts the choice of a serving host by a balancer:
    /// `vireo_serving_host_choices_total{role}`. `violation`: no host was expected to meet the
    /// latency objective (`vireo_serving_host_violations_total`).
    pub fn serving_host_chosen(&self, role: ServedBy, violation: bool) {
        self.serving.choices[role as usize].increment(1);
        self.serving.violations.increment(violation.into());
    }

    /// Counts inputs that a balancer gave to owners because serving hosts had not done them in
    /// time: `vireo_inputs_recalled_total`.
    pub fn inputs_recalled(&self, count: u64) {
        self.serving.recalled.increment(count);
    }

    /// Counts a procedure that ended, at the owner of the UE, by the role of the host that served
    /// its last step: `vireo_procedures_served_total{role}`.
    pub fn served(&self, by: ServedBy) {
        self.serving.served[by as usize].increment(1);
    }

    /// Counts a proposal that an owner has decided: `vireo_proposals_total{result}`.
    pub fn proposal(&self, result: ProposalResult) {
        self.serving.proposals[result as usize].increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serving_series_count_by_role_and_result() {
        let metrics = Metrics::new();
        metrics.serving_host_chosen(ServedBy::Owner, false);
        metrics.serving_host_chosen(ServedBy::Replica, true);
        metrics.serving_host_chosen(ServedBy::Replica, true);
        metrics.inputs_recalled(3);
        metrics.served(ServedBy::Replica);
        metrics.proposal(ProposalResult::Committed);
        let text = metrics.render();
        for series in [
            "vireo_serving_host_choices_total{role=\"owner\"} 1",
            "vireo_serving_host_choices_total{role=\"replica\"} 2",
            "vireo_serving_host_violations_total 2",
            "vireo_inputs_recalled_total 3",
            "vireo_procedures_served_total{role=\"owner\"} 0",
            "vireo_procedures_served_total{role=\"replica\"} 1",
            "vireo_proposals_total{result=\"committed\"} 1",
            "vireo_proposals_total{result=\"refused\"} 0",
        ] {
            assert!(text.lines().any(|line| line == series), "{series}: {text}");
        }
    }
}
