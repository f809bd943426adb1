//! SBI of the AMF with the SMF.
//!
//! Sends requests of steps to the SMF. Passes its responses and requests to the host, through a
//! [`SmfEventQueue`].

mod events;

pub(crate) use events::SmfEventQueue;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vireo_core::config::{CoreConfig, StateAnswer, StateCarry};
use vireo_core::sba::{
    HandoverStep, ImpliedCreateResponse, N1N2Content, N1N2Transfer, N1N2TransferResult, PiggybackedSmContext,
    SessionNumber, SmfCreateRequest, SmfEvent, SmfRequest, SmfResponse, SmfUpdateRequest,
};
use vireo_core::smf::N2Sm;
use vireo_fabric::identity::CertificateRole;
use vireo_ops::config::StateConfig;
use vireo_ops::sbi::translate::{
    self, STALE, message_uri, n1n2_content, parse_supi, references, reply_with_piggyback, supi_text, transfer_reply,
    unknown_ue, with_delegated_commit, with_parts, with_piggyback,
};
use vireo_ops::sbi::{SbiConfig, SbiError, is_uri};
use vireo_ops::shared_record::DelegatedCommit;
use vireo_sbi::amf::{self, CreatedSmContext, N1N2MessageTransferReqData, Resource, TransferCause};
use vireo_sbi::common::{Guami, NgRanTargetId, PlmnId, ProblemDetails, UserLocation};
use vireo_sbi::smf::{
    HoState, Operation, RELEASED, SM_CONTEXTS, SmContextCreateData, SmContextError, SmContextReleaseData,
    SmContextStatusNotification, SmContextUpdateData, SmContextUpdatedData, UpCnxState,
};
use vireo_sbi::{CancelHandle, Client, ClientError, Endpoint, IncomingRequest, Message, Outgoing, Reply, ReplyTo};
use vireo_types::{Ltmsi, Supi};

/// Maximum length in octets of an SM context URI and of a callback URI. The UE context stores them.
const MAX_URI_OCTETS: usize = 256;
/// Number of pending replies above which abandoned ones are removed.
const MAX_PENDING_REPLIES: usize = 4096;

/// A request of an SMF that waits for the host's result.
#[derive(Debug)]
struct PendingReply {
    supi: Supi,
    reply: ReplyTo,
    /// Key of the create request that the transfer answers, if the host accepts it.
    pending: Option<String>,
}

/// Pending replies by token.
type PendingReplies = Arc<Mutex<HashMap<u64, PendingReply>>>;
/// Unanswered create requests by idempotency key. A transfer may answer them.
type UnansweredCreates = Arc<Mutex<HashMap<String, PendingRequest>>>;

/// A request that a transfer may answer instead of its response.
#[derive(Debug)]
struct PendingRequest {
    /// The host's key of the request.
    key: u64,
    /// Number of the input that the request belongs to; 0 = none.
    input: u64,
    withdrawal: CancelHandle,
}

/// Identity of this AMF in messages.
#[derive(Debug)]
struct AmfIdentity {
    /// Root of the URIs of this AMF.
    own: String,
    smf: String,
    guami: Guami,
    network: PlmnId,
    /// NF instance ID (TS 29.571 NfInstanceId: a UUID).
    instance: String,
    /// Prefix of idempotency keys that are unique to this process.
    nonce: u64,
    /// True if the AMF stores piggybacked SM contexts.
    piggybacks: bool,
    /// True if the SMF's first transfer may replace the create response.
    implies: bool,
}

/// Additional content of a request to the SMF.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestExtras<'a> {
    /// SM context to piggyback, if any.
    pub(crate) sm_context: Option<&'a PiggybackedSmContext>,
    /// With a shared UE record: its number, and the AMF part for the SMF to commit.
    pub(crate) delegated_commit: Option<&'a DelegatedCommit>,
    /// Number of the input that the response completes; 0 = none.
    pub(crate) input: u64,
}

/// SBI of the AMF with the SMF.
#[derive(Debug)]
pub(crate) struct SmfLink {
    names: AmfIdentity,
    client: Client,
    events: Arc<dyn SmfEventQueue>,
    waiting: PendingReplies,
    unanswered: UnansweredCreates,
    /// True if another AMF may take over pending requests. Their idempotency keys then derive from
    /// their steps.
    shared: bool,
    /// Dropping it stops the endpoint.
    _endpoint: Endpoint,
}

impl SmfLink {
    /// Starts the SBI endpoint, whose requests arrive in the host's queue (`events`).
    pub(crate) fn start(
        config: &SbiConfig,
        core: &CoreConfig,
        state: &StateConfig,
        events: Arc<dyn SmfEventQueue>,
        shared: bool,
    ) -> Result<Self, SbiError> {
        let settings = config.endpoint(CertificateRole::Amf, config.own_amf())?;
        let nonce = settings.nonce;
        let (waiting, unanswered) = (PendingReplies::default(), UnansweredCreates::default());
        let handler = SmfRequestHandler {
            // Transfer tokens are part of URIs, so they must differ after a restart.
            tokens: AtomicU64::new(nonce >> 1),
            events: Arc::clone(&events),
            waiting: Arc::clone(&waiting),
            unanswered: Arc::clone(&unanswered),
            smf: config.root(config.smf),
            shared,
        };
        let endpoint = Endpoint::start(settings, move |call| handler.take(call))?;
        let guami = core.guami();
        let names = AmfIdentity {
            own: config.root(endpoint.address()),
            smf: config.root(config.smf),
            guami: guami.into(),
            network: guami.plmn.into(),
            instance: uuid(nonce),
            nonce,
            piggybacks: state.carry == StateCarry::Piggyback,
            implies: state.answer == StateAnswer::Implied,
        };
        Ok(SmfLink { names, client: endpoint.client(), events, waiting, unanswered, shared, _endpoint: endpoint })
    }

    /// Sends a request of step `key` to the SMF. The response arrives in the host's queue.
    pub(crate) fn send_request(
        &self,
        (ltmsi, key): (Ltmsi, u64),
        number: SessionNumber,
        smf_request: SmfRequest,
        with: RequestExtras<'_>,
    ) {
        let (uri, message) = encode_request(&self.names, number, &smf_request);
        let RequestExtras { sm_context, delegated_commit, input } = with;
        let message = with_delegated_commit(with_piggyback(message, sm_context), delegated_commit);
        let lane = u64::from(ltmsi.get()) << 32 | u64::from(number);
        let (events, root) = (Arc::clone(&self.events), self.names.smf.clone());
        let implied = self.names.implies && matches!(smf_request, SmfRequest::Create(_));
        let name = match (self.shared, implied) {
            (true, _) => Some(format!("{key:016x}")),
            (false, true) => Some(format!("{:08x}-{key:016x}", self.names.nonce as u32)),
            (false, false) => None,
        };
        let pending = name.clone().filter(|_| implied).map(|name| {
            let (withdrawal, withdrawn) = CancelHandle::new();
            let pending = PendingRequest { key, input, withdrawal };
            lock_unanswered(&self.unanswered).insert(name.clone(), pending);
            ((name, Arc::clone(&self.unanswered)), withdrawn)
        });
        let (pending, withdrawn) = pending.unzip();
        let done = Box::new(move |result: Result<Reply, ClientError>| {
            let unanswered = pending.as_ref().map(|(name, unanswered)| (name, lock_unanswered(unanswered)));
            if unanswered.is_some_and(|(name, unanswered)| !unanswered.contains_key(name)) {
                // A transfer has answered the request.
                return;
            }
            let sm_context = result.as_ref().ok().map(|reply| translate::piggybacked(&reply.message)).transpose();
            let sm_context = sm_context.unwrap_or_else(|problem| {
                tracing::warn!(detail = problem.detail, "answer of the SMF not valid");
                None
            });
            let answer = answer(&root, &smf_request, result);
            events.send(SmfEvent::Response {
                ltmsi,
                key,
                number,
                request: Box::new(smf_request),
                response: answer,
                sm_context: sm_context.flatten().map(Box::new),
                input,
            });
            // Removed last: a transfer that arrives before then precedes the response in the host's
            // queue.
            pending.inspect(|(name, unanswered)| drop(lock_unanswered(unanswered).remove(name)));
        });
        self.client.send(Outgoing { uri, fallbacks: Vec::new(), message, key: name, lane, withdrawn, done });
    }

    /// Answers a notification that a session has ended. `is_here` = this AMF has the UE.
    pub(crate) fn answer_notification(&self, token: u64, is_here: bool) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        if let Some(PendingReply { reply, .. }) = waiting {
            reply.send(if is_here { Reply::done() } else { Reply::problem(&unknown_ue()) });
        }
    }

    /// Answers a transfer and cancels the create request that it answers. If the session is
    /// unknown, the request stays: its response names the SM context to release.
    pub(crate) fn answer_transfer(
        &self,
        token: u64,
        result: N1N2TransferResult,
        sm_context: Option<&PiggybackedSmContext>,
    ) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        if let Some(PendingReply { supi, reply, pending }) = waiting {
            let accepted = pending.filter(|_| result != N1N2TransferResult::Unknown);
            if let Some(pending) = accepted.and_then(|name| lock_unanswered(&self.unanswered).remove(&name)) {
                pending.withdrawal.withdraw();
            }
            reply.send(reply_with_piggyback(transfer_reply(&self.names.own, (supi, token), result), sm_context));
        }
    }
}

fn lock_unanswered(unanswered: &UnansweredCreates) -> MutexGuard<'_, HashMap<String, PendingRequest>> {
    unanswered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Formats a random number as a UUID (RFC 9562 5.8: version 8).
fn uuid(n: u64) -> String {
    let (a, b, c) = (n >> 32, n >> 16 & 0xffff, n & 0xfff);
    format!("{a:08x}-{b:04x}-8{c:03x}-8000-{:012x}", n & 0xffff_ffff_ffff)
}

/// Returns URI and message of a request.
fn encode_request(names: &AmfIdentity, number: SessionNumber, smf_request: &SmfRequest) -> (String, Message) {
    match smf_request {
        SmfRequest::Create(create) => {
            let content = N1N2Content { n1: Some(create.n1.clone()), n2: None };
            let message = Message::new(create_data(names, number, create, &content));
            (format!("{}{SM_CONTEXTS}", names.smf), with_parts(message, content))
        }
        SmfRequest::Update { reference, update } => {
            let (data, content) = update_data(update);
            (Operation::Modify.uri(reference), with_parts(Message::new(data), content))
        }
        SmfRequest::Release { reference } => {
            (Operation::Release.uri(reference), Message::new(SmContextReleaseData { cause: None }))
        }
        SmfRequest::Unreached { uri, supi, transfer } => {
            // The Location header of the transfer's response.
            let notification = amf::N1N2MsgTxfrFailureNotification {
                cause: TransferCause::UeNotResponding,
                n1n2_msg_data_uri: message_uri(&names.own, *supi, *transfer),
            };
            (uri.clone(), Message::new(notification))
        }
    }
}

/// Returns the update data for an event of a session, and its N1 and N2 content.
fn update_data(update: &SmfUpdateRequest) -> (SmContextUpdateData, N1N2Content) {
    let n2 = |kind, octets: &Vec<u8>| N1N2Content { n1: None, n2: Some((kind, octets.clone())) };
    let base = SmContextUpdateData::default();
    let (data, content) = match update {
        SmfUpdateRequest::N1(n1) => (base, N1N2Content { n1: Some(n1.clone()), n2: None }),
        SmfUpdateRequest::N2(kind, octets) => {
            let failed_to_be_switched = (*kind == N2Sm::PathSwitchSetupFailed).then_some(true);
            (SmContextUpdateData { failed_to_be_switched, ..base }, n2(*kind, octets))
        }
        SmfUpdateRequest::Activate => {
            (SmContextUpdateData { up_cnx_state: Some(UpCnxState::Activating), ..base }, N1N2Content::default())
        }
        SmfUpdateRequest::Deactivate => {
            (SmContextUpdateData { up_cnx_state: Some(UpCnxState::Deactivated), ..base }, N1N2Content::default())
        }
        SmfUpdateRequest::Switch(octets, (tai, cell)) => {
            let ue_location = Some(UserLocation::new(*tai, *cell));
            let data = SmContextUpdateData { ue_location, to_be_switched: Some(true), ..base };
            (data, n2(N2Sm::PathSwitchRequest, octets))
        }
        SmfUpdateRequest::Handover(_, step) => handover_data(step),
    };
    let (n1_sm_msg, n2_sm_info, n2_sm_info_type) = references(&content);
    (SmContextUpdateData { n1_sm_msg, n2_sm_info, n2_sm_info_type, ..data }, content)
}

/// Returns the update data for a stage of an N2 handover (TS 29.502 5.2.2.3.4).
fn handover_data(step: &HandoverStep) -> (SmContextUpdateData, N1N2Content) {
    let n2 = |kind, octets: &Vec<u8>| N1N2Content { n1: None, n2: Some((kind, octets.clone())) };
    let at = |state| SmContextUpdateData { ho_state: Some(state), ..SmContextUpdateData::default() };
    match step {
        HandoverStep::Prepare { target: (gnb, tai), transfer } => {
            let target_id = Some(NgRanTargetId::new(*gnb, *tai));
            (SmContextUpdateData { target_id, ..at(HoState::Preparing) }, n2(N2Sm::HandoverRequired, transfer))
        }
        HandoverStep::Prepared(kind, transfer) => (at(HoState::Prepared), n2(*kind, transfer)),
        HandoverStep::Complete((tai, cell)) => {
            let ue_location = Some(UserLocation::new(*tai, *cell));
            (SmContextUpdateData { ue_location, ..at(HoState::Completed) }, N1N2Content::default())
        }
        HandoverStep::Cancel => (at(HoState::Cancelled), N1N2Content::default()),
    }
}

fn create_data(
    names: &AmfIdentity,
    number: SessionNumber,
    create: &SmfCreateRequest,
    content: &N1N2Content,
) -> SmContextCreateData {
    let supi = supi_text(create.supi);
    SmContextCreateData {
        sm_context_status_uri: format!("{}{}", names.own, amf::status_callback_uri(&supi, number)),
        supi,
        pei: create.pei.map(|pei| format!("imeisv-{:016}", pei.0)),
        pdu_session_id: create.psi,
        dnn: create.dnn.as_str().to_owned(),
        s_nssai: create.snssai.into(),
        serving_nf_id: names.instance.clone(),
        guami: names.guami.clone(),
        serving_network: names.network.clone(),
        request_type: Some("INITIAL_REQUEST".into()),
        n1_sm_msg: references(content).0,
        an_type: "3GPP_ACCESS".into(),
        rat_type: Some("NR".into()),
        ue_location: create.location.map(|(tai, cell)| UserLocation::new(tai, cell)),
        vireo_piggyback: names.piggybacks.then_some(number),
        vireo_implied: names.implies.then_some(number),
    }
}

/// Converts the SMF's response.
fn answer(root: &str, smf_request: &SmfRequest, result: Result<Reply, ClientError>) -> SmfResponse {
    let reply = match result {
        Ok(reply) => reply,
        Err(error) => {
            tracing::warn!(%error, "the SMF does not answer");
            return SmfResponse::Silence;
        }
    };
    match smf_request {
        SmfRequest::Create(_) if reply.is_success() => reply
            .location
            .and_then(|location| reference(root, location))
            .map_or(SmfResponse::Silence, SmfResponse::Created),
        _ if reply.is_success() => {
            if reply.message.is_body_empty() {
                return SmfResponse::Done(N1N2Content::default());
            }
            let data = reply.message.value::<SmContextUpdatedData>().map_err(|e| ProblemDetails::unreadable(&e));
            let content =
                data.and_then(|d| n1n2_content(&reply.message, &(d.n1_sm_msg, d.n2_sm_info, d.n2_sm_info_type)));
            content.map_or_else(unreadable, SmfResponse::Done)
        }
        _ if reply.status == STALE => SmfResponse::Stale,
        _ => {
            let error = reply.message.value::<SmContextError>();
            // A plain ProblemDetails has no further members.
            let plain = || reply.message.value().map(|error| SmContextError { error, ..SmContextError::default() });
            let error = error.or_else(|_| plain());
            let error = error.unwrap_or_default();
            let cause = error.error.cause.clone().unwrap_or_default();
            tracing::debug!(status = reply.status, cause, "the SMF refuses");
            let content = n1n2_content(&reply.message, &(error.n1_sm_msg, error.n2_sm_info, error.n2_sm_info_type));
            let unknown = reply.status == 404;
            SmfResponse::Refused { content: content.unwrap_or_default(), unknown }
        }
    }
}

/// Returns the absolute URI of an SM context from a Location header.
fn reference(root: &str, location: String) -> Option<String> {
    // The Location may be relative to the SMF's root (RFC 9110 10.2.2).
    if location.starts_with('/') && location.len() < MAX_URI_OCTETS - root.len() {
        return Some(format!("{root}{location}"));
    }
    let good = is_uri(&location) && location.len() <= MAX_URI_OCTETS;
    if !good {
        tracing::warn!("SMF created an SM context without a usable name");
    }
    good.then_some(location)
}

fn unreadable(problem: ProblemDetails) -> SmfResponse {
    tracing::warn!(detail = problem.detail, "answer of the SMF not valid");
    SmfResponse::Refused { content: N1N2Content::default(), unknown: false }
}

/// Handler of SMF requests.
struct SmfRequestHandler {
    tokens: AtomicU64,
    events: Arc<dyn SmfEventQueue>,
    waiting: PendingReplies,
    unanswered: UnansweredCreates,
    /// Root of the SMF's URIs.
    smf: String,
    shared: bool,
}

/// An N1N2MessageTransfer for the host.
struct ReceivedTransfer {
    supi: Supi,
    transfer: N1N2Transfer,
    /// Key of the create request that the transfer answers, if it answers one.
    pending: Option<String>,
}

impl SmfRequestHandler {
    /// Handles a request of an SMF: passes it to the host, which answers.
    fn take(&self, call: IncomingRequest) {
        let IncomingRequest { path, message, key, reply, .. } = call;
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        match amf::resource(&path) {
            Some(Resource::Messages(supi)) => match self.transfer(supi, token, &message) {
                Err(problem) => reply.send(Reply::problem(&problem)),
                Ok(ReceivedTransfer { supi, transfer, pending }) => {
                    let key = key.map_or(0, |key| name_of(&key));
                    let asked =
                        pending.as_ref().and_then(|name| lock_unanswered(&self.unanswered).get(name).map(|q| q.input));
                    let (transfer, input) = (Box::new(transfer), asked.unwrap_or(0));
                    let waiter = PendingReply { supi, reply, pending };
                    self.put(SmfEvent::Transfer { supi, key, transfer, input }, (token, waiter));
                }
            },
            Some(Resource::HeldSmContext(supi, number)) => match parse_supi(supi) {
                Err(problem) => reply.send(Reply::problem(&problem)),
                Ok(supi) => {
                    let mask = (1 << amf::NUMBER_BITS) - 1;
                    let requested_session = Some((number & mask, mask));
                    let (content, unreached, sm_context, created) = (N1N2Content::default(), None, None, None);
                    let transfer =
                        N1N2Transfer { token, psi: 0, content, unreached, sm_context, created, requested_session };
                    let event = SmfEvent::Transfer { supi, key: 0, transfer: Box::new(transfer), input: 0 };
                    self.put(event, (token, PendingReply { supi, reply, pending: None }));
                }
            },
            Some(Resource::Status(supi, number)) => match status(supi, &message) {
                Err(problem) => reply.send(Reply::problem(&problem)),
                Ok(None) => reply.send(Reply::done()),
                Ok(Some(supi)) => {
                    let waiter = PendingReply { supi, reply, pending: None };
                    self.put(SmfEvent::Released { supi, number, token }, (token, waiter));
                }
            },
            None => reply.send(Reply::problem(&ProblemDetails::new(
                404,
                "RESOURCE_URI_STRUCTURE_NOT_FOUND",
                "this AMF has N1/N2 messages of UEs, and the callbacks that it has named",
            ))),
        }
    }

    /// Parses an N1N2MessageTransfer, and finds the request that it answers.
    fn transfer(&self, supi: &str, token: u64, message: &Message) -> Result<ReceivedTransfer, ProblemDetails> {
        let DecodedTransfer { supi, mut transfer, created } = transfer(supi, token, message)?;
        let Some(CreatedSmContext { key: name, number, sm_context_ref }) = created else {
            return Ok(ReceivedTransfer { supi, transfer, pending: None });
        };
        let asked = lock_unanswered(&self.unanswered).get(&name).map(|asked| asked.key);
        // The UE's record knows the requests of another AMF.
        let key = asked.or_else(|| u64::from_str_radix(&name, 16).ok().filter(|_| self.shared));
        // Without a usable reference, the SMF's own response must answer the request.
        let reference = reference(&self.smf, format!("{SM_CONTEXTS}/{sm_context_ref}"));
        let open = key.is_some();
        let created =
            reference.map(|reference| ImpliedCreateResponse { number, key: key.unwrap_or(0), reference, open });
        let pending = created.as_ref().map(|_| name);
        transfer.created = created;
        Ok(ReceivedTransfer { supi, transfer, pending })
    }

    /// Passes an SMF request to the host, or refuses it if the host's queue is full.
    fn put(&self, event: SmfEvent, (token, waiter): (u64, PendingReply)) {
        let mut calls = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() >= MAX_PENDING_REPLIES {
            calls.retain(|_, waiter| !waiter.reply.is_closed());
        }
        calls.insert(token, waiter);
        drop(calls);
        if self.events.try_send(event) {
            return;
        }
        let refused = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        if let Some(PendingReply { reply, .. }) = refused {
            reply.send(congestion_reply());
        }
    }
}

/// Returns a nonzero hash (FNV-1a) of an idempotency key, to recognise a repeated transfer.
fn name_of(key: &str) -> u64 {
    let hash = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    key.bytes().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
}

fn congestion_reply() -> Reply {
    Reply::problem(&ProblemDetails::new(503, "NF_CONGESTION", "this AMF has too much to do"))
}

/// An N1N2MessageTransfer as its message has it.
struct DecodedTransfer {
    supi: Supi,
    transfer: N1N2Transfer,
    /// Description of a new SM context, if the message has one.
    created: Option<CreatedSmContext>,
}

/// Parses an N1N2MessageTransfer.
fn transfer(supi: &str, token: u64, message: &Message) -> Result<DecodedTransfer, ProblemDetails> {
    let supi = parse_supi(supi)?;
    let data: N1N2MessageTransferReqData = message.value().map_err(|e| ProblemDetails::unreadable(&e))?;
    let n1 = data.n1_message_container;
    let n2 = data.n2_info_container;
    let classes = n1.as_ref().is_none_or(|n1| n1.n1_message_class == amf::SM)
        && n2.as_ref().is_none_or(|n2| n2.n2_information_class == amf::SM);
    if !classes || n1.is_none() && n2.is_none() {
        return Err(ProblemDetails::incorrect("messages of class SM are transferred, one at least"));
    }
    let sm = n2.and_then(|n2| n2.sm_info);
    let psi = data.pdu_session_id.or(sm.as_ref().map(|sm| sm.pdu_session_id));
    let psi = psi.filter(|psi| (1..=15).contains(psi));
    let psi = psi.ok_or_else(|| ProblemDetails::incorrect("pduSessionId is 1 to 15"))?;
    let content = sm.and_then(|sm| sm.n2_info_content);
    let kind = content.as_ref().and_then(|content| content.ngap_ie_type);
    let parts = (n1.map(|n1| n1.n1_message_content), content.map(|content| content.ngap_data), kind);
    let content = translate::n1n2_content(message, &parts)?;
    // Responses to the RAN's messages arrive as responses, not as transfers.
    let is_order = |kind| matches!(kind, N2Sm::SetupRequest | N2Sm::ReleaseCommand | N2Sm::ModifyRequest);
    if content.n2.as_ref().is_some_and(|(kind, _)| !is_order(*kind)) {
        return Err(ProblemDetails::incorrect(
            "what is transferred to the RAN sets a session up, modifies it or releases it",
        ));
    }
    let unreached = data.failure_uri.filter(|uri| uri.len() <= MAX_URI_OCTETS);
    let sm_context = translate::piggybacked(message)?;
    let transfer = N1N2Transfer { token, psi, content, unreached, sm_context, created: None, requested_session: None };
    Ok(DecodedTransfer { supi, transfer, created: data.vireo_created })
}

/// Parses an SMContextStatusNotify. Returns the SUPI if the session was released.
fn status(supi: &str, message: &Message) -> Result<Option<Supi>, ProblemDetails> {
    let supi = parse_supi(supi)?;
    let data: SmContextStatusNotification = message.value().map_err(|e| ProblemDetails::unreadable(&e))?;
    Ok((data.status_info.resource_status == RELEASED).then_some(supi))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, Sender, bounded};
    use std::sync::mpsc;
    use std::time::Duration;
    use vireo_sbi::Settings;
    use vireo_sbi::common::N2SmInfoType;
    use vireo_types::{AmfUeNgapId, Dnn, GnbId, Snssai};

    const SOON: Duration = Duration::from_secs(60);

    fn core() -> CoreConfig {
        CoreConfig { smf_is_remote: true, ..CoreConfig::lab() }
    }

    impl SmfEventQueue for Sender<SmfEvent> {
        fn send(&self, event: SmfEvent) {
            self.send(event).unwrap();
        }

        fn try_send(&self, event: SmfEvent) -> bool {
            self.try_send(event).is_ok()
        }
    }

    /// The AMF's link, with the test as SMF.
    struct World {
        link: SmfLink,
        inputs: Receiver<SmfEvent>,
        smf: Endpoint,
        requests: mpsc::Receiver<IncomingRequest>,
        amf: String,
        supi: Supi,
    }

    impl World {
        fn new(answer: StateAnswer, shared: bool) -> Self {
            let (sender, requests) = mpsc::sync_channel(8);
            let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let sbi = SbiConfig { timeout: SOON, attempts: 1, ..SbiConfig::default() };
            let settings: Settings = sbi.endpoint(CertificateRole::Smf, local).unwrap();
            let smf = Endpoint::start(settings, move |call| drop(sender.send(call))).unwrap();
            let sbi = SbiConfig { amf: vec![local], smf: smf.address(), ..sbi };
            let (events, inputs) = bounded(16);
            let state = StateConfig { answer, ..StateConfig::default() };
            let link = SmfLink::start(&sbi, &core(), &state, Arc::new(events), shared).unwrap();
            let (amf, supi) = (link.names.own.clone(), "999700000000001".parse().unwrap());
            World { link, inputs, smf, requests, amf, supi }
        }

        /// Creates a session by input 9. Returns the request that the SMF receives.
        fn create(&self, number: SessionNumber, key: u64) -> IncomingRequest {
            let (supi, n1, snssai) = (self.supi, vec![0x2e, 5, 1, 0xc1], Snssai { sst: 1, sd: None });
            let dnn: Dnn = "internet".parse().unwrap();
            let create = SmfCreateRequest { supi, pei: None, psi: 5, snssai, dnn, location: None, n1 };
            let with = RequestExtras { input: 9, ..RequestExtras::default() };
            self.link.send_request((Ltmsi::from_raw(7), key), number, SmfRequest::Create(Box::new(create)), with);
            self.requests.recv_timeout(SOON).expect("a request")
        }

        /// Transfers a message of the SMF. Returns the host's input; the host replies `result`.
        fn transfer(
            &self,
            created: Option<CreatedSmContext>,
            result: N1N2TransferResult,
        ) -> (u64, Option<ImpliedCreateResponse>) {
            let n1 = N1N2Content { n1: Some(vec![0x2e]), n2: None };
            let data = N1N2MessageTransferReqData {
                n1_message_container: Some(amf::N1MessageContainer {
                    n1_message_class: amf::SM.into(),
                    n1_message_content: references(&n1).0.unwrap(),
                }),
                pdu_session_id: Some(5),
                vireo_created: created,
                ..N1N2MessageTransferReqData::default()
            };
            let uri = format!("{}{}", self.amf, amf::message_transfer_uri(&supi_text(self.supi)));
            let message = with_parts(Message::new(data), n1);
            let (key, lane, withdrawn, done) = (None, rand::random(), None, Box::new(|_| ()));
            self.smf.client().send(Outgoing { uri, fallbacks: Vec::new(), message, key, lane, withdrawn, done });
            match self.inputs.recv_timeout(SOON) {
                Ok(SmfEvent::Transfer { transfer, input, .. }) => {
                    self.link.answer_transfer(transfer.token, result, None);
                    (input, transfer.created)
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn made(key: &str, reference: &str) -> Option<CreatedSmContext> {
        Some(CreatedSmContext { key: key.into(), number: 3, sm_context_ref: reference.into() })
    }

    fn answer() -> Reply {
        Reply { location: Some("/x".into()), ..Reply::new(201, vireo_sbi::smf::SmContextCreatedData::default()) }
    }

    /// TS 29.502 5.2.2.3.3.
    #[test]
    fn path_switch_request_has_location() {
        let world = World::new(StateAnswer::Explicit, false);
        let plmn = "99970".parse().unwrap();
        let (tai, cell) =
            (vireo_types::Tai { plmn, tac: vireo_types::Tac(2) }, vireo_types::NrCgi { plmn, cell: 0x20 });
        let reference = format!("{}{SM_CONTEXTS}/x", world.link.names.smf);
        let smf_request = SmfRequest::Update { reference, update: SmfUpdateRequest::Switch(vec![1, 2], (tai, cell)) };
        world.link.send_request((Ltmsi::from_raw(7), 1), 3, smf_request, RequestExtras::default());
        let call = world.requests.recv_timeout(SOON).expect("a request");
        let data: SmContextUpdateData = call.message.value().unwrap();
        assert_eq!(data.ue_location, Some(UserLocation::new(tai, cell)));
        assert_eq!((data.to_be_switched, data.n2_sm_info_type), (Some(true), Some(N2SmInfoType::PathSwitchReq)));
    }

    /// TS 29.502 5.2.2.3.4: handover state, target and location.
    #[test]
    fn n2_handover_request_has_state_and_target() {
        let plmn = "99970".parse().unwrap();
        let (tai, cell) =
            (vireo_types::Tai { plmn, tac: vireo_types::Tac(2) }, vireo_types::NrCgi { plmn, cell: 0x20 });
        let gnb = GnbId { plmn, id: 2, bits: 22 };
        let target = NgRanTargetId::new(gnb, tai);
        let prepare = HandoverStep::Prepare { target: (gnb, tai), transfer: vec![1] };
        let accepted = HandoverStep::Prepared(N2Sm::HandoverRequestAcknowledge, vec![2]);
        let not_taken = HandoverStep::Prepared(N2Sm::HandoverAllocationUnsuccessful, vec![2]);
        let located = Some(UserLocation::new(tai, cell));
        let cases = [
            (prepare, (HoState::Preparing, Some(N2SmInfoType::HandoverRequired), Some(target), None)),
            (accepted, (HoState::Prepared, Some(N2SmInfoType::HandoverReqAck), None, None)),
            (not_taken, (HoState::Prepared, Some(N2SmInfoType::HandoverResAllocFail), None, None)),
            (HandoverStep::Complete((tai, cell)), (HoState::Completed, None, None, located)),
            (HandoverStep::Cancel, (HoState::Cancelled, None, None, None)),
        ];
        for (step, (state, kind, target, located)) in cases {
            let (data, content) =
                update_data(&SmfUpdateRequest::Handover(AmfUeNgapId::new(Ltmsi::from_raw(7), 2), step));
            let expected = SmContextUpdateData {
                ho_state: Some(state),
                n2_sm_info_type: kind,
                n2_sm_info: data.n2_sm_info.clone(),
                target_id: target,
                ue_location: located,
                ..SmContextUpdateData::default()
            };
            assert_eq!(data, expected);
            assert_eq!((data.n2_sm_info.is_some(), content.n2.is_some()), (kind.is_some(), kind.is_some()));
        }
    }

    #[test]
    fn transfer_replaces_the_create_response() {
        for shared in [false, true] {
            let world = World::new(StateAnswer::Implied, shared);
            let call = world.create(3, 0x57);
            let data: SmContextCreateData = call.message.value().unwrap();
            let name = call.key.clone().expect("a key");
            assert_eq!(data.vireo_implied, Some(3));
            let (input, created) = world.transfer(made(&name, "x"), N1N2TransferResult::Initiated);
            let reference = format!("{}{SM_CONTEXTS}/x", world.link.names.smf);
            assert_eq!(
                (input, created),
                (9, Some(ImpliedCreateResponse { number: 3, key: 0x57, reference, open: true }))
            );
            // The late response is dropped; the next request uses the same lane.
            call.reply.send(answer());
            let next = world.create(3, 0x58);
            assert!(next.key.is_some_and(|key| key != name));
            assert!(world.inputs.is_empty(), "{:?}", world.inputs.try_recv());
            assert_eq!(world.link.unanswered.lock().unwrap().len(), 1);
        }
    }

    /// The UE no longer has the session: only the response names the SM context to release.
    #[test]
    fn refused_transfer_leaves_the_response() {
        for shared in [false, true] {
            let world = World::new(StateAnswer::Implied, shared);
            let call = world.create(3, 0x57);
            let name = call.key.clone().expect("a key");
            let (_, created) = world.transfer(made(&name, "x"), N1N2TransferResult::Unknown);
            assert!(created.is_some_and(|created| created.open));
            call.reply.send(answer());
            let Ok(SmfEvent::Response { response: SmfResponse::Created(_), key: 0x57, input: 9, .. }) =
                world.inputs.recv_timeout(SOON)
            else {
                panic!("no answer");
            };
        }
    }

    #[test]
    fn unrelated_transfer_leaves_the_response() {
        let world = World::new(StateAnswer::Implied, false);
        let call = world.create(3, 0x57);
        let name = call.key.clone().expect("a key");
        // A transfer for another request, one with an unusable reference, and one without a new SM
        // context.
        let is_open =
            |(input, created): (u64, Option<ImpliedCreateResponse>)| (input, created.map(|created| created.open));
        let long = "x".repeat(MAX_URI_OCTETS);
        for (created, seen) in [(made("else", "x"), Some(false)), (made(&name, &long), None), (None, None)] {
            assert_eq!(is_open(world.transfer(created, N1N2TransferResult::Initiated)), (0, seen));
        }
        call.reply.send(answer());
        let Ok(SmfEvent::Response { response: SmfResponse::Created(_), key: 0x57, input: 9, .. }) =
            world.inputs.recv_timeout(SOON)
        else {
            panic!("no answer");
        };
        // A transfer after the response answers nothing.
        let deadline = std::time::Instant::now() + SOON;
        while !world.link.unanswered.lock().unwrap().is_empty() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(is_open(world.transfer(made(&name, "x"), N1N2TransferResult::Initiated)), (0, Some(false)));
        // The UE's record knows a request of another AMF that died.
        let world = World::new(StateAnswer::Implied, true);
        let (input, created) = world.transfer(made("0000000000000059", "x"), N1N2TransferResult::Initiated);
        assert_eq!((input, created.map(|created| (created.key, created.open))), (0, Some((0x59, true))));
        // Without implied responses, the AMF does not ask for them.
        let world = World::new(StateAnswer::Explicit, false);
        let data: SmContextCreateData = world.create(3, 0x57).message.value().unwrap();
        assert_eq!(data.vireo_implied, None);
        assert!(world.link.unanswered.lock().unwrap().is_empty());
    }
}
