//! Metrics of the core as registered handles.
//!
//! On a hot path a count costs one atomic operation. Dashboards depend on names and labels, which
//! each method's documentation lists. There is no global recorder: callers hold the [`Metrics`]. No
//! metric contains a subscriber's identity.

mod log;
pub mod process;
mod rebalancing;
mod serving;
mod volume;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use rebalancing::Rebalancing;
use serving::Serving;
pub use serving::{ProposalResult, ServedBy};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use vireo_core::amf::ran::admission::Refusal;
use vireo_types::Duration;
use volume::Volumes;

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
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

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
        NgSetup = "ng_setup",
        /// NG Reset, by either side (TS 38.413 8.7.4).
        NgReset = "ng_reset",
        /// Initial registration (TS 23.502 4.2.2.2).
        Registration = "registration",
        /// Service request (TS 23.502 4.2.3).
        ServiceRequest = "service_request",
        /// AN release to CM-IDLE (TS 23.502 4.2.6).
        AnRelease = "an_release",
        /// Deregistration by the UE or the network (TS 23.502 4.2.2.3).
        Deregistration = "deregistration",
        /// PDU session establishment (TS 23.502 4.3.2).
        SessionEstablishment = "session_establishment",
        /// PDU session release (TS 23.502 4.3.4).
        SessionRelease = "session_release",
        /// Paging (TS 23.502 4.2.3.3).
        Paging = "paging",
        /// Xn handover: path switch (TS 23.502 4.9.1.2).
        PathSwitch = "path_switch",
        /// Relocation of a session to another UPF, until the old UPF has released it.
        Relocation = "relocation",
        /// Change of the QoS of a session by the network, until UPF and UE have confirmed it.
        SessionModification = "session_modification",
        /// Configuration update or GUTI reallocation, until the UE has confirmed it.
        ConfigurationUpdate = "configuration_update",
        /// Authentication of a registered UE, before a service request or while it is connected.
        Authentication = "authentication",
        /// N2 handover (TS 23.502 4.9.1.3).
        Handover = "n2_handover",
        /// Mobility and periodic registration update (TS 23.502 4.2.2.2).
        Mobility = "mobility_update",
    }
}

labels! {
    /// Protocol errors of peers, and damage and limits of the own host.
    Fault {
        /// NGAP: the octets are not a PDU (TS 38.413 10.2).
        NgapTransferSyntax = "transfer_syntax",
        /// NGAP: a mandatory IE is missing, duplicated or not understood (TS 38.413 10.3).
        NgapAbstractSyntax = "abstract_syntax",
        /// NGAP: a message that does not fit the state (TS 38.413 10.4).
        NgapSemantic = "semantic",
        /// NGAP: unknown or inconsistent UE NGAP IDs (TS 38.413 10.6).
        NgapUnknownUe = "unknown_ue",
        /// NGAP before NG Setup.
        NgapNotSetUp = "not_set_up",
        /// SCTP: an association from an address of a UE.
        SctpFromUe = "from_ue",
        /// PFCP: a message from an address of a UE.
        PfcpFromUe = "from_ue",
        /// SCTP: the payload protocol identifier is not that of NGAP.
        SctpPpid = "ppid",
        /// NAS: too short, unknown or malformed (TS 24.501 7).
        NasDecode = "decode",
        /// NAS: the MAC is wrong (TS 24.501 4.4.3.3).
        NasIntegrity = "integrity",
        /// NAS: an unprotected message that requires protection (TS 24.501 4.4.4.3).
        NasUnprotected = "unprotected",
        /// NAS: a message that does not fit the state.
        NasUnexpected = "unexpected",
        /// NAS: containers of services that the core does not have (TS 24.501 5.4.5.2.5).
        NasSms = "sms_container",
        NasLocation = "location_container",
        NasCiot = "ciot_container",
        NasContainer = "other_container",
        /// A SUCI with an unknown home network key.
        SuciKeyUnknown = "key_unknown",
        /// A SUCI that cannot be de-concealed: the USIM has another home network key, or the SUCI
        /// was altered.
        SuciNotDeconcealed = "not_deconcealed",
        /// The response to an Identity Request is not a SUCI.
        IdentityNotSuci = "identity_not_suci",
        /// PFCP: no such session or no association.
        PfcpUnknownSession = "unknown_session",
        /// PFCP: a datagram from an address that is not in `n4.allow`.
        PfcpUnlisted = "unlisted",
        /// The state region contains data that no worker writes: a worker is faulty or compromised.
        StateRegion = "state_region",
        /// A limit was reached: contexts, half-open registrations, mailboxes.
        Limit = "limit",
    }
}

labels! {
    /// Gauges of items that exist at present.
    Population {
        /// RAN nodes with completed NG Setup.
        Gnbs = "ran_nodes",
        /// UE contexts, registered or not.
        Contexts = "ue_contexts",
        /// UEs in 5GMM-REGISTERED.
        Registered = "ues_registered",
        /// UEs in CM-CONNECTED.
        Connected = "ues_connected",
        /// Established PDU sessions.
        Sessions = "pdu_sessions",
        /// UE contexts of UEs that are not authenticated yet.
        HalfOpen = "ues_half_open",
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
        Slots = "region_slots_in_use",
        /// UE slots that a worker holds, or with pending work.
        Busy = "region_slots_busy",
        /// Packets: messages in flight to UEs.
        Packets = "region_packets_in_use",
        /// Record buffers, including those that workers keep ready.
        Buffers = "region_buffers_in_use",
        /// Bytes of the heap from which buffers were allocated.
        HeapBytes = "region_heap_bytes",
        /// Bytes of the buffers that contain UEs' records.
        RecordBytes = "region_commit_record_bytes",
        /// Addresses assigned to sessions.
        Addresses = "ue_addresses_in_use",
    }
}

labels! {
    /// A bounded queue between two threads.
    Queue {
        /// From the endpoint to the deciding thread.
        N2Inbound = "n2_inbound",
        /// From the deciding thread to the endpoint.
        N2Outbound = "n2_outbound",
        /// Requests to the subscriber database.
        Subscribers = "subscribers",
        /// Changed subscribers whose UEs are still to be looked for.
        SubscriberChanges = "subscriber_changes",
    }
}

/// What the core exchanges with RAN nodes and other hosts, from its own viewpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// NGAP messages received.
    NgapIn,
    /// NGAP messages sent.
    NgapOut,
    /// Effects that were not sent, because a dead host had already had them sent.
    Repeats,
    /// Copies of contexts sent to other hosts.
    CopiesOut,
    /// Bytes of these copies.
    CopyOctetsOut,
    /// Copies of contexts received from other hosts.
    CopiesIn,
    /// Contexts of a dead host's UEs that were taken over.
    Promoted,
    /// Contexts of UEs that migrated from a live host.
    TakenOn,
}

impl Flow {
    const ALL: &'static [Flow] = &[
        Flow::NgapIn,
        Flow::NgapOut,
        Flow::Repeats,
        Flow::CopiesOut,
        Flow::CopyOctetsOut,
        Flow::CopiesIn,
        Flow::Promoted,
        Flow::TakenOn,
    ];

    fn key(self) -> Key {
        let directed = |name, direction| key(name, &[("direction", direction)]);
        match self {
            Flow::NgapIn => directed("vireo_ngap_messages_total", "in"),
            Flow::NgapOut => directed("vireo_ngap_messages_total", "out"),
            Flow::Repeats => key("vireo_effects_deduplicated_total", &[]),
            Flow::CopiesOut => directed("vireo_replication_copies_total", "out"),
            Flow::CopyOctetsOut => key("vireo_replication_sent_bytes_total", &[]),
            Flow::CopiesIn => directed("vireo_replication_copies_total", "in"),
            Flow::Promoted => key("vireo_ues_taken_over_total", &[]),
            Flow::TakenOn => key("vireo_ues_migrated_in_total", &[]),
        }
    }
}

impl Fault {
    fn key(self) -> Key {
        let protocol = match self {
            Fault::StateRegion => return key("vireo_region_errors_total", &[]),
            Fault::Limit => return key("vireo_limits_reached_total", &[]),
            Fault::NgapTransferSyntax
            | Fault::NgapAbstractSyntax
            | Fault::NgapSemantic
            | Fault::NgapUnknownUe
            | Fault::NgapNotSetUp => "ngap",
            Fault::SctpFromUe | Fault::SctpPpid => "sctp",
            Fault::PfcpFromUe | Fault::PfcpUnknownSession | Fault::PfcpUnlisted => "pfcp",
            Fault::NasDecode
            | Fault::NasIntegrity
            | Fault::NasUnprotected
            | Fault::NasUnexpected
            | Fault::NasSms
            | Fault::NasLocation
            | Fault::NasCiot
            | Fault::NasContainer
            | Fault::IdentityNotSuci => "nas",
            Fault::SuciKeyUnknown | Fault::SuciNotDeconcealed => "suci",
        };
        key("vireo_peer_errors_total", &[("protocol", protocol), ("kind", self.label())])
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
        CreateSmContext = "create_sm_context",
        /// Nsmf_PDUSession_UpdateSMContext (5.2.2.3).
        UpdateSmContext = "update_sm_context",
        /// Nsmf_PDUSession_ReleaseSMContext (5.2.2.4).
        ReleaseSmContext = "release_sm_context",
        /// Namf_Communication_N1N2MessageTransfer (TS 29.518 5.2.2.3.1), and the notification that
        /// it has not reached the UE.
        Transfer = "n1n2_transfer",
        /// PFCP Session Establishment (TS 29.244 6.3.2).
        PfcpEstablishment = "pfcp_establishment",
        /// PFCP Session Modification (6.3.3).
        PfcpModification = "pfcp_modification",
        /// PFCP Session Deletion (6.3.4).
        PfcpDeletion = "pfcp_deletion",
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
    /// Ended without a cause: the SCTP association or the AN connection was lost, a timer expired
    /// for the last time, or another procedure took precedence (TS 24.501 5.5.1.2.8).
    Lost,
}

const OPERATIONS: &str = "vireo_database_operations_total";

/// Number and time of the database operations of one kind.
struct DatabaseOperations {
    labels: [(&'static str, &'static str); 3],
    count: Counter,
    /// Time from request to completion, in microseconds. The recorder's counters are integers, so
    /// that a counter in seconds has to be written here.
    micros: AtomicU64,
}

impl DatabaseOperations {
    fn new(count: Counter, labels: [(&'static str, &'static str); 3]) -> Self {
        DatabaseOperations { labels, count, micros: AtomicU64::new(0) }
    }

    fn render_time(&self, text: &mut String) {
        let labels: Vec<_> = self.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let seconds = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        text.push_str(&format!("vireo_database_operation_seconds_total{{{}}} {seconds}\n", labels.join(",")));
    }
}

/// All metrics of one core, and their Prometheus text.
pub struct Metrics {
    /// Started, succeeded and failed procedures and their latency.
    pub procedures: Procedures,
    /// Weights of hosts, in the process of the controller.
    pub rebalancing: Rebalancing,
    serving: Serving,
    faults: Vec<Counter>,
    n2_refused: Vec<Counter>,
    populations: Vec<Gauge>,
    usages: Vec<Gauge>,
    depths: Vec<Gauge>,
    messages: Vec<Counter>,
    /// Octets of user packets.
    pub volumes: Volumes,
    claims_evicted: Counter,
    evicted: Vec<Counter>,
    turned_away: Vec<Counter>,
    api_refusals: Vec<Counter>,
    alarms: [Gauge; 4],
    /// By function, transaction and operation.
    state: Vec<DatabaseOperations>,
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
            .set_buckets_for_metric(Matcher::Suffix("_duration_seconds".into()), LATENCY_BUCKETS_S)
            .expect("the buckets are a constant that is not empty")
            .build_recorder();
        describe(&recorder);
        let handle = recorder.handle();
        let counters = |name, label, values: &mut dyn Iterator<Item = &'static str>| -> Vec<Counter> {
            values.map(|v| recorder.register_counter(&key(name, &[(label, v)]), &METADATA)).collect()
        };
        let faults = Fault::ALL.iter().map(|fault| recorder.register_counter(&fault.key(), &METADATA)).collect();
        let n2_refused = counters("vireo_n2_refused_total", "reason", &mut Refusal::ALL.iter().map(|r| r.label()));
        let messages = Flow::ALL.iter().map(|flow| recorder.register_counter(&flow.key(), &METADATA)).collect();
        let refusals = &mut ApiRefusal::ALL.iter().map(|r| r.label());
        let api_refusals = counters("vireo_api_refused_requests_total", "reason", refusals);
        let evicted =
            counters("vireo_half_open_ues_evicted_total", "reason", &mut Eviction::ALL.iter().map(|e| e.label()));
        let reasons = &mut TurnedAway::ALL.iter().map(|reason| reason.label());
        let turned_away = counters("vireo_ues_turned_away_total", "reason", reasons);
        let state = StateFunction::ALL.iter().flat_map(|function| {
            let of = move |transaction: &Transaction, operation: &StateOperation| {
                let (transaction, operation) = (transaction.label(), operation.label());
                [("function", function.label()), ("transaction", transaction), ("operation", operation)]
            };
            Transaction::ALL.iter().flat_map(move |t| StateOperation::ALL.iter().map(move |o| of(t, o)))
        });
        let counter = |name, labels: &_| recorder.register_counter(&key(name, labels), &METADATA);
        let state = state.map(|labels| DatabaseOperations::new(counter(OPERATIONS, &labels[..]), labels)).collect();
        let claims_evicted = counter("vireo_subscriber_claims_evicted_total", &[][..]);
        let gauge = |key: Key| recorder.register_gauge(&key, &METADATA);
        let populations =
            Population::ALL.iter().map(|p| gauge(Key::from_name(format!("vireo_{}", p.label())))).collect();
        let usages = Usage::ALL.iter().map(|u| gauge(Key::from_name(format!("vireo_{}", u.label())))).collect();
        let depths = Queue::ALL.iter().map(|q| gauge(key("vireo_queue_depth", &[("queue", q.label())]))).collect();
        let alarms = SEVERITIES.map(|severity| gauge(key("vireo_alarms", &[("severity", severity)])));
        Metrics {
            alarms,
            serving: Serving::new(&recorder),
            volumes: Volumes::new(&recorder),
            procedures: Procedures::new(recorder),
            rebalancing: Rebalancing::default(),
            faults,
            n2_refused,
            populations,
            usages,
            depths,
            messages,
            claims_evicted,
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

    /// Counts a protocol error of a peer: `vireo_peer_errors_total{protocol,kind}`; damage of the
    /// state region: `vireo_region_errors_total`; a limit: `vireo_limits_reached_total`.
    pub fn fault(&self, fault: Fault) {
        self.faults(fault, 1);
    }

    /// Counts several protocol errors of one kind.
    pub fn faults(&self, fault: Fault, count: u64) {
        self.faults[fault as usize].increment(count);
    }

    /// Counts subscriber claims that were evicted before their expiry because there were too many:
    /// `vireo_subscriber_claims_evicted_total`. A claim names the host of a subscriber's newest
    /// context.
    pub fn claims_evicted(&self, count: u64) {
        self.claims_evicted.increment(count);
    }

    /// Counts an evicted half-open UE: `vireo_half_open_ues_evicted_total{reason}`.
    pub fn evicted(&self, reason: Eviction) {
        self.evicted[reason as usize].increment(1);
    }

    /// Counts a new UE that was rejected with cause #22: `vireo_ues_turned_away_total{reason}`.
    pub fn turned_away(&self, reason: TurnedAway) {
        self.turned_away[reason as usize].increment(1);
    }

    /// Counts a request or connection that the API refused:
    /// `vireo_api_refused_requests_total{reason}`.
    pub fn api_refused(&self, refusal: ApiRefusal) {
        self.api_refusals[refusal as usize].increment(1);
    }

    /// Sets the active alarms by severity, the highest first: `vireo_alarms{severity}`.
    pub fn alarms(&self, active: [usize; 4]) {
        self.alarms.iter().zip(active).for_each(|(gauge, active)| gauge.set(active as f64));
    }

    /// Counts a database operation of a network function:
    /// `vireo_database_operations_total{function,transaction,operation}`. Its time from request to
    /// completion is added to `vireo_database_operation_seconds_total`.
    pub fn state_operation(
        &self,
        function: StateFunction,
        transaction: Transaction,
        operation: StateOperation,
        took: std::time::Duration,
    ) {
        let operations = self.state_of(function, transaction, operation);
        operations.count.increment(1);
        operations.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    /// Returns both values of all operations of that kind since the start.
    pub fn state_operations(
        &self,
        function: StateFunction,
        transaction: Transaction,
        operation: StateOperation,
        (count, micros): (u64, u64),
    ) {
        let operations = self.state_of(function, transaction, operation);
        operations.count.absolute(count);
        operations.micros.store(micros, Ordering::Relaxed);
    }

    fn state_of(
        &self,
        function: StateFunction,
        transaction: Transaction,
        operation: StateOperation,
    ) -> &DatabaseOperations {
        let (transactions, operations) = (Transaction::ALL.len(), StateOperation::ALL.len());
        let at = (function as usize * transactions + transaction as usize) * operations + operation as usize;
        &self.state[at]
    }

    /// Sets the number of existing items: `vireo_ran_nodes`, `vireo_ues_registered` and so on.
    pub fn population(&self, of: Population, now: usize) {
        self.populations[of as usize].set(now as f64);
    }

    /// Sets the usage of the state region: `vireo_region_slots_in_use` and so on.
    pub fn usage(&self, of: Usage, now: usize) {
        self.usages[of as usize].set(now as f64);
    }

    /// Sets the number of queued messages: `vireo_queue_depth{queue}`.
    pub fn queue_depth(&self, queue: Queue, now: usize) {
        self.depths[queue as usize].set(now as f64);
    }

    /// Counts messages, copies of contexts, UEs, or bytes; each has a metric of its own.
    pub fn messages(&self, flow: Flow, count: u64) {
        self.messages[flow as usize].increment(count);
    }

    /// Registers the metrics of another part of the process, which [`Metrics::render`] then
    /// includes.
    pub fn register<T>(&self, register: impl FnOnce(&dyn Recorder) -> T) -> T {
        let recorder = self.procedures.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        register(&*recorder)
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
        text.push_str(&crate::traces::metrics());
        self.rebalancing.render(&mut text);
        text.push_str(
            "# HELP vireo_database_operation_seconds_total Time of these operations, from request to completion.\n",
        );
        text.push_str("# TYPE vireo_database_operation_seconds_total counter\n");
        self.state.iter().for_each(|operations| operations.render_time(&mut text));
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
                    started: recorder.register_counter(&key("vireo_procedures_started_total", &[label]), &METADATA),
                    succeeded: recorder.register_counter(&outcome(*p, "success", ""), &METADATA),
                    latency: recorder.register_histogram(&key("vireo_procedure_duration_seconds", &[label]), &METADATA),
                }
            })
            .collect();
        Procedures { kinds, recorder: Mutex::new(recorder) }
    }

    /// Counts `vireo_procedures_started_total{procedure}`.
    pub fn started(&self, procedure: Procedure) {
        self.kinds[procedure as usize].started.increment(1);
    }

    /// Counts `vireo_procedures_completed_total{procedure,result="success",cause=""}`, and records
    /// `vireo_procedure_duration_seconds{procedure}`.
    pub fn succeeded(&self, procedure: Procedure, latency: Duration) {
        let kind = &self.kinds[procedure as usize];
        kind.succeeded.increment(1);
        kind.latency.record(latency.as_micros() as f64 / 1e6);
    }

    /// Counts `vireo_procedures_completed_total{procedure,result="failure",cause}`. The cause is a
    /// cause value, `authentication_failure` or `lost`. Takes a lock: failures are not the hot
    /// path.
    pub fn failed(&self, procedure: Procedure, failure: Failure) {
        let number;
        let cause = match failure {
            Failure::Cause(value) => {
                number = value.to_string();
                number.as_str()
            }
            Failure::Authentication => "authentication_failure",
            Failure::Lost => "lost",
        };
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.register_counter(&outcome(procedure, "failure", cause), &METADATA).increment(1);
    }
}

/// Severities of alarms, the highest first.
const SEVERITIES: [&str; 4] = ["critical", "major", "minor", "warning"];

fn outcome(procedure: Procedure, result: &'static str, cause: &str) -> Key {
    let labels = vec![
        Label::new("procedure", procedure.label()),
        Label::new("result", result),
        Label::new("cause", cause.to_owned()),
    ];
    Key::from_parts("vireo_procedures_completed_total", labels)
}

fn key(name: &'static str, labels: &[(&'static str, &'static str)]) -> Key {
    Key::from_parts(name, labels.iter().map(|(k, v)| Label::new(*k, *v)).collect::<Vec<_>>())
}

fn describe(recorder: &PrometheusRecorder) {
    let counters = [
        ("vireo_procedures_started_total", "Procedures that began."),
        (
            "vireo_procedures_completed_total",
            "Procedures that ended, by result and cause (value, authentication_failure, lost).",
        ),
        ("vireo_peer_errors_total", "Protocol errors of peers, by protocol and kind."),
        ("vireo_region_errors_total", "Damaged words found in the state region."),
        ("vireo_limits_reached_total", "Limits reached: contexts, half-open registrations, mailboxes."),
        (
            "vireo_n2_refused_total",
            "Associations, NG Setups, bindings, path switches and service requests refused on N2, by reason.",
        ),
        ("vireo_ngap_messages_total", "NGAP messages, by direction."),
        ("vireo_effects_deduplicated_total", "Effects not sent, because a dead host or the next owner had sent them."),
        ("vireo_replication_copies_total", "Copies of contexts, by direction."),
        ("vireo_replication_sent_bytes_total", "Bytes of the copies sent."),
        ("vireo_ues_taken_over_total", "UE contexts taken over from dead hosts."),
        ("vireo_ues_migrated_in_total", "UE contexts migrated here from live hosts."),
        (
            "vireo_subscriber_claims_evicted_total",
            "Subscriber claims evicted before their expiry, because there were too many.",
        ),
        ("vireo_half_open_ues_evicted_total", "Unauthenticated UEs evicted, by limit."),
        ("vireo_ues_turned_away_total", "New UEs rejected with cause #22 (congestion), by reason."),
        ("vireo_api_refused_requests_total", "Requests and connections that the API refused, by reason."),
        (OPERATIONS, "Operations of the database of records, by function and transaction."),
    ];
    for (name, text) in counters {
        recorder.describe_counter(name.into(), None, text.into());
    }
    let gauges = [
        ("vireo_ran_nodes", "RAN nodes with NG Setup done."),
        ("vireo_ue_contexts", "UE contexts held."),
        ("vireo_ues_registered", "UEs in 5GMM-REGISTERED."),
        ("vireo_ues_connected", "UEs in CM-CONNECTED."),
        ("vireo_pdu_sessions", "PDU sessions established."),
        ("vireo_ues_half_open", "UE contexts of unauthenticated UEs."),
        ("vireo_alarms", "Active alarms, by severity."),
        ("vireo_queue_depth", "Messages waiting in a queue."),
        ("vireo_region_slots_in_use", "UE slots in use."),
        ("vireo_region_slots_busy", "UE slots that a worker holds, or with pending work."),
        ("vireo_region_packets_in_use", "Packets (stored events) in use."),
        ("vireo_region_buffers_in_use", "Record buffers in use, including those that workers keep ready."),
        ("vireo_region_heap_bytes", "Bytes of the heap from which buffers were allocated."),
        ("vireo_region_commit_record_bytes", "Bytes of the buffers that contain the commit records of UEs."),
        ("vireo_ue_addresses_in_use", "Addresses assigned to sessions."),
    ];
    for (name, text) in gauges {
        recorder.describe_gauge(name.into(), None, text.into());
    }
    let latency = "Time from the first message of a procedure to its success.";
    recorder.describe_histogram("vireo_procedure_duration_seconds".into(), None, latency.into());
}

#[cfg(test)]
mod tests;
