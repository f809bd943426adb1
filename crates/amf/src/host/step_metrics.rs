//! Counters of the notes of steps and of UE states.

use super::slo_tracker::SloTracker;
use crate::worker::outbox::Summary;
use std::sync::Arc;
use vireo_core::amf::engine::UNKNOWN_PATH_SWITCH;
use vireo_core::schedule::kind::NfKind;
use vireo_core::smf::DOWNLINK_FAULT;
use vireo_core::step::{Kind, Note, RefusedRequest};
use vireo_ops::clock::clock;
use vireo_ops::config::SliceRuntime;
use vireo_ops::metrics::{Failure, Fault, Metrics, Procedure};
use vireo_ops::traces::{Outcome, tracer};
use vireo_types::{DeviceLimit, Instant, Ltmsi, Supi};

/// Totals over all contexts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) registered: usize,
    pub(super) connected: usize,
    pub(super) sessions: usize,
    pub(super) contexts: usize,
    /// Contexts of UEs that have not been authenticated.
    pub(super) unknown: usize,
}

impl Totals {
    /// Applies the change of a context; `None` = no context.
    pub(super) fn change(&mut self, before: Option<Summary>, after: Option<Summary>) {
        for (summary, add) in [(before, false), (after, true)] {
            let Some(s) = summary else { continue };
            let step = |total: &mut usize, by: usize| {
                *total = if add { *total + by } else { total.saturating_sub(by) };
            };
            step(&mut self.registered, usize::from(s.registered));
            step(&mut self.connected, usize::from(s.connection.is_some()));
            step(&mut self.sessions, usize::from(s.sessions));
            step(&mut self.contexts, 1);
            step(&mut self.unknown, usize::from(!s.known));
        }
    }
}

/// Counts notes and logs faults.
#[derive(Debug)]
pub(super) struct StepMetrics {
    pub(super) metrics: Arc<Metrics>,
    /// Procedure latencies by slice and kind.
    pub(super) slo_tracker: SloTracker,
    /// Limit of lines about refused devices.
    refused: DeviceLimit,
}

impl StepMetrics {
    pub(super) fn new(metrics: Arc<Metrics>, slices: &[SliceRuntime]) -> Self {
        StepMetrics { metrics, slo_tracker: SloTracker::new(slices), refused: DeviceLimit::default() }
    }

    /// Replaces the latency objectives.
    pub(super) fn set_objectives(&mut self, slices: &[SliceRuntime]) {
        self.slo_tracker.set_objectives(slices);
    }

    /// Counts a note of a step at `now`. Slice 0 = unknown, else 1 + its position.
    pub(super) fn note(&mut self, note: &Note, now: Instant, slice: usize, whom: impl std::fmt::Display) {
        let procedures = &self.metrics.procedures;
        match note {
            Note::Started(kind) => {
                if let Some(procedure) = procedure(*kind) {
                    procedures.started(procedure);
                }
            }
            Note::Succeeded(kind, since) => {
                if let Some(procedure) = procedure(*kind) {
                    procedures.succeeded(procedure, now.since(*since));
                }
                if let Some(kind) = nf_kind(*kind) {
                    self.slo_tracker.record(slice, kind, now, now.since(*since));
                }
            }
            Note::Failed(kind, cause) => {
                if let Some(procedure) = procedure(*kind) {
                    let failure = if *cause == 0 { Failure::Lost } else { Failure::Cause(*cause) };
                    procedures.failed(procedure, failure);
                }
                tracing::debug!(ue = %whom, procedure = ?kind, cause, "a procedure failed");
            }
            Note::NotAuthenticated(kind) => {
                if let Some(procedure) = procedure(*kind) {
                    procedures.failed(procedure, Failure::Authentication);
                }
                tracing::debug!(ue = %whom, procedure = ?kind, "UE not authenticated");
            }
            Note::UsageReported { uplink, downlink } => self.metrics.volumes.sessions(*uplink, *downlink),
            Note::SecondaryRatUsage { uplink, downlink } => {
                self.metrics.volumes.secondary_rats(*uplink, *downlink);
            }
            Note::Refused(request) => self.log_refusal(request, now, whom),
            Note::QosFlowsNotified { fulfilled, not_fulfilled } => {
                self.metrics.volumes.qos_flows(*fulfilled, *not_fulfilled);
            }
            Note::Fault(word) => self.fault(word, now, whom),
        }
    }

    /// Records the procedures that a step has ended, and the step itself. Its effects have been
    /// executed.
    pub(super) fn trace(notes: &[Note], (ltmsi, key): (Ltmsi, u64), at: Instant) {
        let Some(tracer) = tracer() else { return };
        for note in notes {
            let (kind, outcome) = match note {
                Note::Succeeded(kind, since) => (*kind, Outcome::Succeeded(*since)),
                Note::Failed(kind, cause) => (*kind, Outcome::Failed(*cause)),
                Note::NotAuthenticated(kind) => (*kind, Outcome::Failed(0)),
                _ => continue,
            };
            if let Some(procedure) = procedure(kind) {
                tracer.record_procedure(ltmsi, procedure.label(), outcome, at);
            }
        }
        tracer.record_step((ltmsi, key), at, clock());
    }

    /// Logs a refused device, once in a minute. Devices whose subscriber is not known count as one.
    fn log_refusal(&mut self, request: &RefusedRequest, now: Instant, whom: impl std::fmt::Display) {
        let RefusedRequest { supi, procedure, cause, reason } = request;
        let supi = supi.map(Supi::as_u64);
        // AUTHENTICATION REJECT has no cause.
        let cause = Some(*cause).filter(|cause| *cause != 0);
        if self.refused.admits(supi.unwrap_or_default(), now) {
            tracing::info!(ue = %whom, supi, procedure = ?procedure, cause, reason = reason.as_ref(), "device refused");
        }
    }

    /// Counts and logs a fault.
    pub(super) fn fault(&self, word: &str, _at: Instant, peer: impl std::fmt::Display) {
        self.metrics.fault(kind(word));
        tracing::warn!(fault = word, %peer, "a message was at fault");
    }
}

fn procedure(kind: Kind) -> Option<Procedure> {
    Some(match kind {
        Kind::Registration => Procedure::Registration,
        Kind::Session => Procedure::SessionEstablishment,
        Kind::SessionRelease => Procedure::SessionRelease,
        Kind::ServiceRequest => Procedure::ServiceRequest,
        Kind::Deregistration => Procedure::Deregistration,
        Kind::Release => Procedure::AnRelease,
        Kind::Paging => Procedure::Paging,
        Kind::PathSwitch => Procedure::PathSwitch,
        Kind::Handover => Procedure::Handover,
        Kind::Relocation => Procedure::Relocation,
        Kind::Modification => Procedure::SessionModification,
        Kind::ConfigurationUpdate => Procedure::ConfigurationUpdate,
        Kind::Authentication => Procedure::Authentication,
        Kind::Mobility => Procedure::Mobility,
        // A part of a service request, whose latency is counted as a whole.
        Kind::Activation => return None,
    })
}

/// Returns the kind of NF whose latency objective applies. Releases have no objective of their own.
fn nf_kind(kind: Kind) -> Option<NfKind> {
    Some(match kind {
        Kind::Registration => NfKind::Registration,
        Kind::Mobility => NfKind::Mobility,
        Kind::Session | Kind::SessionRelease => NfKind::Session,
        Kind::ServiceRequest => NfKind::ServiceRequest,
        Kind::Deregistration => NfKind::Deregistration,
        Kind::PathSwitch | Kind::Handover => NfKind::Handover,
        Kind::Paging => NfKind::Paging,
        Kind::Release => NfKind::StateManagement,
        Kind::ConfigurationUpdate | Kind::Authentication => NfKind::StateManagement,
        // Most of their time is waiting: until no packets are in transit, or an idle UE connects.
        Kind::Activation | Kind::Relocation | Kind::Modification => return None,
    })
}

/// Returns the counter of a fault.
fn kind(word: &str) -> Fault {
    match word {
        "transfer-syntax-error" => Fault::NgapTransferSyntax,
        "abstract-syntax-error" | "unknown-procedure" | "unexpected-outcome" => Fault::NgapAbstractSyntax,
        "unknown-local-ue-ngap-id" | "inconsistent-remote-ue-ngap-id" | UNKNOWN_PATH_SWITCH => Fault::NgapUnknownUe,
        "before-ng-setup" | "before-s1-setup" => Fault::NgapNotSetUp,
        "sctp-ppid" => Fault::SctpPpid,
        "nas-malformed" | "nas-header" | "nas-truncated" | "nas-not-5gmm" => Fault::NasDecode,
        "nas-bad-mac" | "nas-count-exhausted" => Fault::NasIntegrity,
        "nas-unprotected" => Fault::NasUnprotected,
        "nas-out-of-place"
        | "nas-initial-unexpected"
        | "nas-transport-session"
        | "nas-unproved-deregistration"
        | "nas-during-deregistration"
        | "nas-during-detach"
        | "nas-request-repeated"
        | "eap-discarded" => Fault::NasUnexpected,
        "nas-transport-sms" => Fault::NasSms,
        "nas-transport-location" => Fault::NasLocation,
        "nas-transport-ciot" => Fault::NasCiot,
        "nas-transport-other" => Fault::NasContainer,
        "suci-key-unknown" => Fault::SuciKeyUnknown,
        "suci-not-deconcealed" => Fault::SuciNotDeconcealed,
        "identity-not-suci" => Fault::IdentityNotSuci,
        "pfcp-unknown-session" | "session-unknown" | DOWNLINK_FAULT => Fault::PfcpUnknownSession,
        "limit" => Fault::Limit,
        _ => Fault::NgapSemantic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};

    /// Names of the fields of each line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<Fields>>>);

    #[derive(Default)]
    struct Fields(Vec<&'static str>);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, _: &dyn std::fmt::Debug) {
            self.0.push(field.name());
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.0.lock().expect("a lock").push(fields);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// AUTHENTICATION REJECT has no cause. A device is logged once in a minute.
    #[test]
    fn refusal_is_logged_with_cause_if_any() {
        let refusal = |supi: &str, cause| {
            let supi = Some(supi.parse().expect("a SUPI"));
            let request = RefusedRequest { supi, procedure: Kind::Registration, cause, reason: "MAC failure".into() };
            Note::Refused(Box::new(request))
        };
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let mut account = StepMetrics::new(Arc::new(Metrics::new()), &[]);
            for (supi, cause) in [("999700000000001", 0), ("999700000000002", 3), ("999700000000001", 3)] {
                account.note(&refusal(supi, cause), Instant(1), 0, "a UE");
            }
        });
        let lines = lines.0.lock().expect("a lock");
        let [without, with] = &lines[..] else { panic!("{} lines", lines.len()) };
        let has = |fields: &Fields, names: &[&str]| names.iter().all(|name| fields.0.contains(name));
        assert!(has(without, &["ue", "supi", "procedure", "reason"]) && !has(without, &["cause"]));
        assert!(has(with, &["ue", "supi", "procedure", "reason", "cause"]));
    }

    #[test]
    fn failures_count_by_cause_and_faults_by_kind() {
        let mut account = StepMetrics::new(Arc::new(Metrics::new()), &[]);
        let faults = [
            "suci-key-unknown",
            "suci-not-deconcealed",
            "identity-not-suci",
            "nas-unprotected",
            "nas-transport-sms",
            "nas-transport-location",
            "nas-transport-ciot",
            "nas-transport-other",
            "before-s1-setup",
        ];
        let notes = [Note::NotAuthenticated(Kind::Registration), Note::Failed(Kind::Session, 26)];
        for note in notes.into_iter().chain(faults.map(Note::fault)) {
            account.note(&note, Instant(1), 0, "a UE");
        }
        let text = account.metrics.render();
        let total = |labels: &str| text.contains(&format!("vireo_procedures_completed_total{{{labels}}} 1\n"));
        assert!(total(r#"procedure="registration",result="failure",cause="authentication_failure""#), "{text}");
        assert!(total(r#"procedure="session_establishment",result="failure",cause="26""#), "{text}");
        let kinds = [
            ("suci", "key_unknown"),
            ("suci", "not_deconcealed"),
            ("nas", "identity_not_suci"),
            ("nas", "unprotected"),
            ("nas", "sms_container"),
            ("nas", "location_container"),
            ("nas", "ciot_container"),
            ("nas", "other_container"),
            ("ngap", "not_set_up"),
        ];
        for (protocol, kind) in kinds {
            let line = format!("vireo_peer_errors_total{{protocol=\"{protocol}\",kind=\"{kind}\"}} 1\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
    }
}
