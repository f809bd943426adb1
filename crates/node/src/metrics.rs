//! Metrics of the core as registered handles.
//!
//! On a hot path a count costs one atomic operation. Dashboards depend on names and labels, which
//! each method's documentation lists. There is no global recorder: callers hold the [`Metrics`]. No
//! metric contains a subscriber's identity.

mod log;
pub(crate) mod process;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::sync::{Mutex, PoisonError};
use vireo_core::amf::ran::admission::Refusal;
use vireo_types::Duration;

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// Upper bounds of the latency buckets in seconds: 100 us to 10 s, at most a factor of 2.5 apart.
const LATENCY_BUCKETS_S: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Defines an enum for a closed set of label values, with the list and the texts of its variants.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            pub(crate) const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Returns the label's value.
            pub const fn label(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

labels! {
    /// Procedures that are counted and timed: those of TS 23.502 and of NGAP.
    Procedure {
        /// NG Setup (TS 38.413 8.7.1).
        NgSetup = "ng-setup",
        /// NG Reset, by either side (TS 38.413 8.7.4).
        NgReset = "ng-reset",
        /// Initial registration (TS 23.502 4.2.2.2).
        Registration = "registration",
        /// Service request (TS 23.502 4.2.3).
        ServiceRequest = "service-request",
        /// AN release to CM-IDLE (TS 23.502 4.2.6).
        AnRelease = "an-release",
        /// Deregistration by the UE or the network (TS 23.502 4.2.2.3).
        Deregistration = "deregistration",
        /// PDU session establishment (TS 23.502 4.3.2).
        SessionEstablishment = "session-establishment",
        /// PDU session release (TS 23.502 4.3.4).
        SessionRelease = "session-release",
        /// Paging (TS 23.502 4.2.3.3).
        Paging = "paging",
        /// Xn handover: path switch (TS 23.502 4.9.1.2).
        PathSwitch = "path-switch",
        /// Relocation of a session to another UPF, until the old UPF has released it.
        Relocation = "relocation",
        /// N2 handover (TS 23.502 4.9.1.3).
        Handover = "n2-handover",
        /// Mobility and periodic registration update (TS 23.502 4.2.2.2).
        Mobility = "mobility-update",
    }
}

labels! {
    /// Protocol errors of peers, as `protocol-kind`.
    Fault {
        /// NGAP: the octets are not a PDU (TS 38.413 10.2).
        NgapTransferSyntax = "ngap-transfer-syntax",
        /// NGAP: a mandatory IE is missing, duplicated or not understood (TS 38.413 10.3).
        NgapAbstractSyntax = "ngap-abstract-syntax",
        /// NGAP: a message that does not fit the state (TS 38.413 10.4).
        NgapSemantic = "ngap-semantic",
        /// NGAP: unknown or inconsistent UE NGAP IDs (TS 38.413 10.6).
        NgapUnknownUe = "ngap-unknown-ue",
        /// NGAP before NG Setup.
        NgapNotSetUp = "ngap-not-set-up",
        /// SCTP: an association from an address of a UE.
        SctpFromUe = "sctp-from-ue",
        /// PFCP: a message from an address of a UE.
        PfcpFromUe = "pfcp-from-ue",
        /// SCTP: the payload protocol identifier is not that of NGAP.
        SctpPpid = "sctp-ppid",
        /// NAS: too short, unknown or malformed (TS 24.501 7).
        NasDecode = "nas-decode",
        /// NAS: the MAC is wrong (TS 24.501 4.4.3.3).
        NasIntegrity = "nas-integrity",
        /// NAS: an unprotected message that requires protection (TS 24.501 4.4.4.3).
        NasUnprotected = "nas-unprotected",
        /// NAS: a message that does not fit the state.
        NasUnexpected = "nas-unexpected",
        /// A SUCI with an unknown home network key.
        SuciKeyUnknown = "suci-key-unknown",
        /// A SUCI that cannot be de-concealed: the USIM has another home network key, or the SUCI
        /// was altered.
        SuciNotDeconcealed = "suci-not-deconcealed",
        /// The response to an Identity Request is not a SUCI.
        IdentityNotSuci = "identity-not-suci",
        /// PFCP: no such session or no association.
        PfcpUnknownSession = "pfcp-unknown-session",
        /// PFCP: a datagram from an address that is not in `n4.allow`.
        PfcpUnlisted = "pfcp-unlisted",
        /// The state region contains data that no worker writes: a worker is faulty or compromised.
        StateRegion = "state-region",
        /// A limit was reached: contexts, half-open registrations, mailboxes.
        Limit = "limit",
    }
}

labels! {
    /// Gauges of items that exist at present.
    Population {
        /// gNBs with completed NG Setup.
        Gnbs = "gnbs",
        /// UE contexts, registered or not.
        Contexts = "ue_contexts",
        /// UEs in 5GMM-REGISTERED.
        Registered = "ue_registered",
        /// UEs in CM-CONNECTED.
        Connected = "ue_connected",
        /// Established PDU sessions.
        Sessions = "pdu_sessions",
        /// UE contexts of UEs that are not authenticated yet.
        HalfOpen = "ue_half_open",
    }
}

labels! {
    /// The limit for which a half-open UE was evicted.
    Eviction {
        /// Half-open UEs of one RAN node (`half-open.max-ues-per-node`).
        NodeLimit = "node_limit",
        /// Half-open UEs of one peer address (`half-open.max-ues-per-address`).
        AddressLimit = "address_limit",
        /// Half-open UEs in all (`half-open.max-ues`).
        Limit = "limit",
        /// UEs in all (`state.ues`).
        Full = "full",
    }
}

labels! {
    /// Reason to reject a new UE with cause #22.
    TurnedAway {
        /// Messages wait too long for their steps.
        Overload = "overload",
        /// The RAN node has too many half-open UEs, and none of them may be evicted yet.
        NodeLimit = "node_limit",
        /// The RAN nodes of the peer address have too many half-open UEs, and none may be evicted
        /// yet.
        AddressLimit = "address_limit",
        /// The host has too many half-open UEs, and none of them may be evicted yet.
        Limit = "limit",
        /// The host has `state.ues` UEs, and no half-open one may be evicted.
        Full = "full",
    }
}

labels! {
    /// Resources of the state region in use.
    Usage {
        /// UE slots in use.
        Slots = "slots",
        /// UE slots that a worker holds, or with pending work.
        Busy = "slots_busy",
        /// Packets: messages in flight to UEs.
        Packets = "packets",
        /// Record buffers, including those that workers keep ready.
        Buffers = "buffers",
        /// Bytes of the heap from which buffers were allocated.
        HeapBytes = "heap_bytes",
        /// Bytes of the buffers that contain UEs' records.
        RecordBytes = "record_bytes",
        /// Addresses assigned to sessions.
        Addresses = "addresses",
    }
}

labels! {
    /// A bounded queue between two threads.
    Queue {
        /// From the endpoint to the deciding thread.
        N2Inbound = "n2-inbound",
        /// From the deciding thread to the endpoint.
        N2Outbound = "n2-outbound",
        /// PFCP messages to the UPF.
        N4 = "n4",
        /// Requests to the subscriber database.
        Subscribers = "subscribers",
    }
}

labels! {
    /// Messages by protocol and direction, from the core's viewpoint.
    Flow {
        NgapIn = "ngap-in",
        NgapOut = "ngap-out",
        /// Effects that were not sent, because a dead host had already had them sent.
        Repeats = "repeats",
        /// Copies of contexts sent to other hosts.
        CopiesOut = "copies-out",
        /// Octets of these copies.
        CopyOctetsOut = "copy-octets-out",
        /// Copies of contexts received from other hosts.
        CopiesIn = "copies-in",
        /// Contexts of a dead host's UEs that were taken over.
        Promoted = "promoted",
        /// Contexts of UEs that migrated from a live host.
        TakenOn = "taken-on",
    }
}

labels! {
    /// Network functions of SBA mode that store their state in a database.
    StateFunction {
        /// The AMF, or a core in one process.
        Amf = "amf",
        Smf = "smf",
        Upf = "upf",
    }
}

labels! {
    /// Transactions of a network function in SBA mode: one request with its response.
    Transaction {
        /// Nsmf_PDUSession_CreateSMContext (TS 29.502 5.2.2.2).
        CreateSmContext = "create-sm-context",
        /// Nsmf_PDUSession_UpdateSMContext (5.2.2.3).
        UpdateSmContext = "update-sm-context",
        /// Nsmf_PDUSession_ReleaseSMContext (5.2.2.4).
        ReleaseSmContext = "release-sm-context",
        /// Namf_Communication_N1N2MessageTransfer (TS 29.518 5.2.2.3.1), and the notification that
        /// it has not reached the UE.
        Transfer = "n1n2-transfer",
        /// PFCP Session Establishment (TS 29.244 6.3.2).
        PfcpEstablishment = "pfcp-establishment",
        /// PFCP Session Modification (6.3.3).
        PfcpModification = "pfcp-modification",
        /// PFCP Session Deletion (6.3.4).
        PfcpDeletion = "pfcp-deletion",
        /// Others: reports of UPFs, notifications, timers.
        Other = "other",
    }
}

labels! {
    /// Operations of a database of records.
    StateOperation {
        /// Load a record.
        Read = "read",
        /// Commit a record.
        Write = "write",
        /// Remove a record.
        Remove = "remove",
    }
}

labels! {
    /// Reason to refuse a request to the API.
    ApiRefusal {
        /// No token, or a wrong one.
        Token = "token",
        /// A host name that is not that of the API (DNS rebinding).
        Host = "host",
        /// A request of a browser for another web page.
        Origin = "origin",
        /// A connection that was closed for a newer one, because the maximum number was reached.
        Connections = "connections",
    }
}

/// Reason for the failure of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Rejected with this 5GMM, 5GSM or NGAP cause value.
    Cause(u8),
    /// The UE failed authentication (TS 24.501 5.4.1.3): its K or OPc differs from the
    /// subscriber's.
    Authentication,
    /// Last expiry of a timer.
    Timeout,
    /// The SCTP association or the AN connection was lost.
    Lost,
    /// Another procedure took precedence (TS 24.501 5.5.1.2.8).
    Superseded,
}

/// All metrics of one core, and their Prometheus text.
pub struct Metrics {
    /// Started, succeeded and failed procedures and their latency.
    pub procedures: Procedures,
    faults: Vec<Counter>,
    n2_refused: Vec<Counter>,
    populations: Vec<Gauge>,
    usages: Vec<Gauge>,
    depths: Vec<Gauge>,
    messages: Vec<Counter>,
    /// Octets of sessions: uplink, downlink.
    carried: Vec<Counter>,
    claims_forgotten: Counter,
    evicted: Vec<Counter>,
    turned_away: Vec<Counter>,
    api_refusals: Vec<Counter>,
    /// By function, transaction and operation: number of operations, and their time in
    /// microseconds.
    state: Vec<[Counter; 2]>,
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers all metrics with the value zero.
    pub fn new() -> Self {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_latency_seconds".into()), LATENCY_BUCKETS_S)
            .expect("the buckets are a constant that is not empty")
            .build_recorder();
        describe(&recorder);
        let handle = recorder.handle();
        let counters = |name, label, values: &mut dyn Iterator<Item = &'static str>| -> Vec<Counter> {
            values.map(|v| recorder.register_counter(&key(name, &[(label, v)]), &METADATA)).collect()
        };
        let faults = counters("vireo_faults_total", "fault", &mut Fault::ALL.iter().map(|f| f.label()));
        let n2_refused = counters("vireo_n2_refused_total", "reason", &mut Refusal::ALL.iter().map(|r| r.label()));
        let messages = counters("vireo_messages_total", "flow", &mut Flow::ALL.iter().map(|q| q.label()));
        let refusals = &mut ApiRefusal::ALL.iter().map(|r| r.label());
        let api_refusals = counters("vireo_api_refused_requests_total", "reason", refusals);
        let carried = counters("vireo_session_octets_total", "direction", &mut ["uplink", "downlink"].into_iter());
        let evicted = counters("vireo_half_open_evicted_total", "reason", &mut Eviction::ALL.iter().map(|e| e.label()));
        let reasons = &mut TurnedAway::ALL.iter().map(|reason| reason.label());
        let turned_away = counters("vireo_ue_turned_away_total", "reason", reasons);
        let state = StateFunction::ALL.iter().flat_map(|function| {
            let of = move |transaction: &Transaction, operation: &StateOperation| {
                let (transaction, operation) = (transaction.label(), operation.label());
                [("function", function.label()), ("transaction", transaction), ("operation", operation)]
            };
            Transaction::ALL.iter().flat_map(move |t| StateOperation::ALL.iter().map(move |o| of(t, o)))
        });
        let counter = |name, labels: &_| recorder.register_counter(&key(name, labels), &METADATA);
        let names = ["vireo_state_operations_total", "vireo_state_operation_microseconds_total"];
        let state = state.map(|labels| names.map(|name| counter(name, &labels[..]))).collect();
        let claims_forgotten = counter("vireo_claims_forgotten_total", &[][..]);
        let gauge = |key: Key| recorder.register_gauge(&key, &METADATA);
        let populations =
            Population::ALL.iter().map(|p| gauge(Key::from_name(format!("vireo_{}", p.label())))).collect();
        let usages = Usage::ALL.iter().map(|u| gauge(Key::from_name(format!("vireo_region_{}", u.label())))).collect();
        let depths = Queue::ALL.iter().map(|q| gauge(key("vireo_queue_depth", &[("queue", q.label())]))).collect();
        Metrics {
            procedures: Procedures::new(recorder),
            faults,
            n2_refused,
            populations,
            usages,
            depths,
            messages,
            carried,
            claims_forgotten,
            evicted,
            turned_away,
            api_refusals,
            state,
            handle,
        }
    }

    /// Counts a refused N2 peer, or a refused identity of one: `vireo_n2_refused_total{reason}`.
    pub fn n2_refused(&self, refusal: Refusal) {
        self.n2_refused[refusal as usize].increment(1);
    }

    /// Counts a protocol error of a peer: `vireo_faults_total{fault}`.
    pub fn fault(&self, fault: Fault) {
        self.faults(fault, 1);
    }

    /// Counts several protocol errors of one kind.
    pub fn faults(&self, fault: Fault, count: u64) {
        self.faults[fault as usize].increment(count);
    }

    /// Counts the volume of sessions, in octets as reported by UPFs:
    /// `vireo_session_octets_total{direction}`.
    pub fn carried(&self, uplink: u64, downlink: u64) {
        self.carried[0].increment(uplink);
        self.carried[1].increment(downlink);
    }

    /// Counts subscriber claims that were evicted before their expiry because there were too many:
    /// `vireo_claims_forgotten_total`. A claim names the host of a subscriber's newest context.
    pub fn claims_forgotten(&self, count: u64) {
        self.claims_forgotten.increment(count);
    }

    /// Counts an evicted half-open UE: `vireo_half_open_evicted_total{reason}`.
    pub fn evicted(&self, reason: Eviction) {
        self.evicted[reason as usize].increment(1);
    }

    /// Counts a new UE that was rejected with cause #22: `vireo_ue_turned_away_total{reason}`.
    pub fn turned_away(&self, reason: TurnedAway) {
        self.turned_away[reason as usize].increment(1);
    }

    /// Counts a request or connection that the API refused:
    /// `vireo_api_refused_requests_total{reason}`.
    pub(crate) fn api_refused(&self, refusal: ApiRefusal) {
        self.api_refusals[refusal as usize].increment(1);
    }

    /// Counts a database operation of a network function:
    /// `vireo_state_operations_total{function,transaction,operation}`. Its time from request to
    /// completion is added to `vireo_state_operation_microseconds_total`.
    pub fn state_operation(
        &self,
        function: StateFunction,
        transaction: Transaction,
        operation: StateOperation,
        took: std::time::Duration,
    ) {
        let [count, micros] = self.state_of(function, transaction, operation);
        count.increment(1);
        micros.increment(took.as_micros() as u64);
    }

    /// Returns both values of all operations of that kind since the start.
    pub(crate) fn state_operations(
        &self,
        function: StateFunction,
        transaction: Transaction,
        operation: StateOperation,
        (count, micros): (u64, u64),
    ) {
        let [counter, time] = self.state_of(function, transaction, operation);
        counter.absolute(count);
        time.absolute(micros);
    }

    fn state_of(&self, function: StateFunction, transaction: Transaction, operation: StateOperation) -> &[Counter; 2] {
        let (transactions, operations) = (Transaction::ALL.len(), StateOperation::ALL.len());
        let at = (function as usize * transactions + transaction as usize) * operations + operation as usize;
        &self.state[at]
    }

    /// Sets the number of existing items: `vireo_gnbs`, `vireo_ue_registered` and so on.
    pub fn population(&self, of: Population, now: usize) {
        self.populations[of as usize].set(now as f64);
    }

    /// Sets the usage of the state region: `vireo_region_slots` and so on.
    pub fn usage(&self, of: Usage, now: usize) {
        self.usages[of as usize].set(now as f64);
    }

    /// Sets the number of queued messages: `vireo_queue_depth{queue}`.
    pub fn queue_depth(&self, queue: Queue, now: usize) {
        self.depths[queue as usize].set(now as f64);
    }

    /// Counts messages: `vireo_messages_total{flow}`.
    pub fn messages(&self, flow: Flow, count: u64) {
        self.messages[flow as usize].increment(count);
    }

    /// Registers the metrics of an embedded UPF: `vireo_upf_*`.
    pub fn upf(&self) -> crate::upf::UpfMetrics {
        let recorder = self.procedures.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        crate::upf::UpfMetrics::register(&*recorder)
    }

    /// Sorts the samples since the last call into buckets. The API's thread calls it every few
    /// seconds, so that samples do not accumulate without scrapes.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// Returns all metrics in the Prometheus text format. They include `process_cpu_seconds_total`
    /// and `process_resident_memory_bytes` of this process. `vireo_log_lines_dropped_total{reason}`
    /// covers this process and its workers.
    pub fn render(&self) -> String {
        let mut text = self.handle.render();
        if let Some(process) = process::text() {
            text.push_str(&process);
        }
        text.push_str(&log::text());
        text
    }
}

/// Counters and latency per procedure.
pub struct Procedures {
    kinds: Vec<Kind>,
    /// Causes are many and rare, so their counters are created when they first occur.
    recorder: Mutex<PrometheusRecorder>,
}

struct Kind {
    started: Counter,
    succeeded: Counter,
    latency: Histogram,
}

impl std::fmt::Debug for Procedures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Procedures").finish_non_exhaustive()
    }
}

impl Procedures {
    fn new(recorder: PrometheusRecorder) -> Self {
        let kinds = Procedure::ALL
            .iter()
            .map(|p| {
                let label = ("procedure", p.label());
                Kind {
                    started: recorder.register_counter(&key("vireo_procedure_started_total", &[label]), &METADATA),
                    succeeded: recorder.register_counter(&outcome(*p, "success", ""), &METADATA),
                    latency: recorder.register_histogram(&key("vireo_procedure_latency_seconds", &[label]), &METADATA),
                }
            })
            .collect();
        Procedures { kinds, recorder: Mutex::new(recorder) }
    }

    /// Counts `vireo_procedure_started_total{procedure}`.
    pub fn started(&self, procedure: Procedure) {
        self.kinds[procedure as usize].started.increment(1);
    }

    /// Counts `vireo_procedure_total{procedure,result="success",cause=""}`, and records
    /// `vireo_procedure_latency_seconds{procedure}`.
    pub fn succeeded(&self, procedure: Procedure, latency: Duration) {
        let kind = &self.kinds[procedure as usize];
        kind.succeeded.increment(1);
        kind.latency.record(latency.as_micros() as f64 / 1e6);
    }

    /// Counts `vireo_procedure_total{procedure,result="failure",cause}`. The cause is a cause
    /// value, `authentication_failure`, `timeout`, `lost` or `superseded`. Takes a lock: failures
    /// are not the hot path.
    pub fn failed(&self, procedure: Procedure, failure: Failure) {
        let number;
        let cause = match failure {
            Failure::Cause(value) => {
                number = value.to_string();
                number.as_str()
            }
            Failure::Authentication => "authentication_failure",
            Failure::Timeout => "timeout",
            Failure::Lost => "lost",
            Failure::Superseded => "superseded",
        };
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.register_counter(&outcome(procedure, "failure", cause), &METADATA).increment(1);
    }
}

fn outcome(procedure: Procedure, result: &'static str, cause: &str) -> Key {
    let labels = vec![
        Label::new("procedure", procedure.label()),
        Label::new("result", result),
        Label::new("cause", cause.to_owned()),
    ];
    Key::from_parts("vireo_procedure_total", labels)
}

fn key(name: &'static str, labels: &[(&'static str, &'static str)]) -> Key {
    Key::from_parts(name, labels.iter().map(|(k, v)| Label::new(*k, *v)).collect::<Vec<_>>())
}

fn describe(recorder: &PrometheusRecorder) {
    let counters = [
        ("vireo_procedure_started_total", "Procedures that began."),
        (
            "vireo_procedure_total",
            "Procedures that ended, by result and cause (value, authentication_failure, timeout, lost, superseded).",
        ),
        ("vireo_faults_total", "Mistakes of peers, by protocol and kind."),
        ("vireo_n2_refused_total", "Associations, NG Setups and further associations refused on N2, by reason."),
        ("vireo_messages_total", "Messages by protocol and direction."),
        (
            "vireo_session_octets_total",
            "Octets that sessions have carried, where they are counted, as UPFs report them.",
        ),
        (
            "vireo_claims_forgotten_total",
            "Claims of subscribers that were forgotten before their time, as there were too many.",
        ),
        ("vireo_half_open_evicted_total", "Unauthenticated UEs evicted, by limit."),
        ("vireo_ue_turned_away_total", "New UEs rejected with cause #22 (congestion), by reason."),
        ("vireo_api_refused_requests_total", "Requests and connections that the API refused, by reason."),
        ("vireo_state_operations_total", "Operations of the database of records, by function and transaction."),
        ("vireo_state_operation_microseconds_total", "The time that these took, from when they were wanted."),
    ];
    for (name, text) in counters {
        recorder.describe_counter(name.into(), None, text.into());
    }
    let gauges = [
        ("vireo_gnbs", "gNBs with NG Setup done."),
        ("vireo_ue_contexts", "UE contexts held."),
        ("vireo_ue_registered", "UEs in 5GMM-REGISTERED."),
        ("vireo_ue_connected", "UEs in CM-CONNECTED."),
        ("vireo_pdu_sessions", "PDU sessions established."),
        ("vireo_ue_half_open", "UE contexts of unauthenticated UEs."),
        ("vireo_queue_depth", "Messages waiting in a queue."),
        ("vireo_region_slots", "Slots of the state region that are a UE's."),
        ("vireo_region_slots_busy", "Slots of UEs that a worker holds or that something waits for."),
        ("vireo_region_packets", "Packets of the state region in use."),
        ("vireo_region_buffers", "Buffers of records in use, those that workers keep ready among them."),
        ("vireo_region_heap_bytes", "Octets of the state region that buffers were cut from."),
        ("vireo_region_record_bytes", "Octets of the buffers that the records of UEs lie in."),
        ("vireo_region_addresses", "Addresses that sessions have."),
    ];
    for (name, text) in gauges {
        recorder.describe_gauge(name.into(), None, text.into());
    }
    let latency = "Time from the first message of a procedure to its success.";
    recorder.describe_histogram("vireo_procedure_latency_seconds".into(), None, latency.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of the series in a Prometheus text.
    fn value(text: &str, series: &str) -> Option<f64> {
        text.lines().find_map(|l| l.strip_prefix(series)?.trim().parse().ok())
    }

    #[test]
    fn counts_by_procedure_and_cause() {
        let metrics = Metrics::new();
        metrics.procedures.started(Procedure::Registration);
        metrics.procedures.succeeded(Procedure::Registration, Duration::from_millis(3));
        metrics.procedures.failed(Procedure::Registration, Failure::Cause(7));
        metrics.procedures.failed(Procedure::Registration, Failure::Cause(7));
        metrics.procedures.failed(Procedure::SessionEstablishment, Failure::Timeout);
        let text = metrics.render();
        let total = |labels| value(&text, &format!("vireo_procedure_total{{{labels}}}"));
        assert_eq!(total(r#"procedure="registration",result="success",cause="""#), Some(1.0), "{text}");
        assert_eq!(total(r#"procedure="registration",result="failure",cause="7""#), Some(2.0), "{text}");
        assert_eq!(total(r#"procedure="session-establishment",result="failure",cause="timeout""#), Some(1.0));
        let bucket = |le| {
            value(&text, &format!(r#"vireo_procedure_latency_seconds_bucket{{procedure="registration",le="{le}"}}"#))
        };
        assert_eq!((bucket("0.0025"), bucket("0.005"), bucket("10")), (Some(0.0), Some(1.0), Some(1.0)), "{text}");
    }

    #[test]
    fn the_rest_is_there_from_the_start() {
        let metrics = Metrics::new();
        let text = metrics.render();
        assert_eq!(value(&text, r#"vireo_faults_total{fault="nas-integrity"}"#), Some(0.0), "{text}");
        metrics.fault(Fault::NasIntegrity);
        metrics.population(Population::Registered, 12);
        metrics.queue_depth(Queue::N4, 3);
        metrics.messages(Flow::NgapIn, 5);
        let text = metrics.render();
        assert_eq!(value(&text, r#"vireo_faults_total{fault="nas-integrity"}"#), Some(1.0));
        assert_eq!(value(&text, "vireo_ue_registered"), Some(12.0));
        assert_eq!(value(&text, r#"vireo_queue_depth{queue="n4"}"#), Some(3.0));
        assert_eq!(value(&text, r#"vireo_messages_total{flow="ngap-in"}"#), Some(5.0));
        assert!(value(&text, "process_resident_memory_bytes").is_some_and(|v| v > 1e6), "{text}");
        assert!(value(&text, "process_cpu_seconds_total").is_some(), "{text}");
    }
}
