//! The AMF's end of the chain: carries what steps ask the SMF, and brings what the SMF answers and asks before the host.

use super::translate::{
    self, references, reply_with_carried, supi_of, supi_text, told, with_carried, with_parts, with_travels,
};
use super::{SbiConfig, SbiError, is_uri};
use crate::host::{Door, Input};
use crate::shared::Travels;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vireo_core::chain::{Answer, Ask, Carried, Create, SessionNumber, Told, Transfer, Transferred, Update};
use vireo_core::config::{CoreConfig, StateCarry};
use vireo_sbi::amf::{self, N1N2MessageTransferReqData, N1N2MessageTransferRspData, Resource, TransferCause};
use vireo_sbi::common::{Guami, PlmnId, ProblemDetails, UserLocation};
use vireo_sbi::smf::{
    Operation, RELEASED, SM_CONTEXTS, SmContextCreateData, SmContextError, SmContextReleaseData,
    SmContextStatusNotification, SmContextUpdateData, SmContextUpdatedData, UpCnxState,
};
use vireo_sbi::{Call, Client, ClientError, Endpoint, Message, Outgoing, Reply, ReplyTo};
use vireo_types::{Ltmsi, Supi};

/// Octets of an SM context's URI, and of one that an SMF gives to be told something, at the most: they are in the UE's context.
const URI_OCTETS: usize = 256;
/// The status of an answer that a later SM context has been given away than the one that came (RFC 9110 15.5.13).
pub(super) const STALE: u16 = 412;
/// Calls that wait for the host's word, before it is looked which of them nobody waits for any more.
const WAITING: usize = 4096;

/// What waits for the host's word.
type Waiting = Arc<Mutex<HashMap<u64, (Supi, ReplyTo)>>>;

/// What is told of this AMF.
#[derive(Debug)]
struct Names {
    /// Roots of URIs.
    own: String,
    smf: String,
    guami: Guami,
    network: PlmnId,
    /// Of this instance (TS 29.571 NfInstanceId: a UUID).
    instance: String,
    /// Whether SM contexts may be left here.
    carries: bool,
}

/// What goes with a question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct With<'a> {
    /// The SM context, if it travels.
    pub(crate) carried: Option<&'a Carried>,
    /// Of a UE whose record is shared: which one it is, and what is to be committed there.
    pub(crate) travels: Option<&'a Travels>,
    /// The input that is carried out when there is an answer, if a balancer has given that a number.
    pub(crate) input: u64,
}

/// The way to the SMF.
#[derive(Debug)]
pub(crate) struct SmfLink {
    names: Names,
    client: Client,
    door: Door,
    waiting: Waiting,
    /// Whether another AMF may go on with what is asked here: questions have the names of the steps that ask them then.
    shared: bool,
    /// Ends with the link.
    _endpoint: Endpoint,
}

impl SmfLink {
    /// Listens for SMFs; what they ask comes through the door. Another AMF may go on with what is asked here (`shared`).
    pub(crate) fn start(
        config: &SbiConfig,
        core: &CoreConfig,
        carry: StateCarry,
        door: Door,
        shared: bool,
    ) -> Result<Self, SbiError> {
        let settings = config.endpoint("AMF", config.own_amf())?;
        let nonce = settings.nonce;
        let waiting = Waiting::default();
        // Names of transfers are in URIs: after a restart they are others.
        let tokens = AtomicU64::new(nonce >> 1);
        let (inputs, calls) = (door.clone(), Arc::clone(&waiting));
        let endpoint = Endpoint::start(settings, move |call| take(call, &tokens, &inputs, &calls))?;
        let guami = core.guami();
        let names = Names {
            own: config.root(endpoint.address()),
            smf: config.root(config.smf),
            guami: guami.into(),
            network: guami.plmn.into(),
            instance: uuid(nonce),
            carries: carry == StateCarry::Piggyback,
        };
        Ok(SmfLink { names, client: endpoint.client(), door, waiting, shared, _endpoint: endpoint })
    }

    /// Asks the SMF about a session of a UE, by the name of what has been decided; the answer comes through the door.
    pub(crate) fn ask(&self, (ltmsi, key): (Ltmsi, u64), number: SessionNumber, ask: Ask, with: With<'_>) {
        let (uri, message) = request(&self.names, number, &ask);
        let With { carried, travels, input } = with;
        let message = with_travels(with_carried(message, carried), travels);
        let lane = u64::from(ltmsi.get()) << 32 | u64::from(number);
        let (door, root) = (self.door.clone(), self.names.smf.clone());
        let done = Box::new(move |result: Result<Reply, ClientError>| {
            let carried = result.as_ref().ok().map(|reply| translate::carried(&reply.message)).transpose();
            let carried = carried.unwrap_or_else(|problem| {
                tracing::warn!(detail = problem.detail, "the SMF's answer cannot be read");
                None
            });
            let answer = answer(&root, &ask, result);
            // The host is gone when the AMF stops.
            let _ = door.send(Input::Smf {
                ltmsi,
                key,
                number,
                ask: Box::new(ask),
                answer,
                carried: carried.flatten().map(Box::new),
                input,
            });
        });
        let key = self.shared.then(|| format!("{key:016x}"));
        self.client.ask(Outgoing { uri, others: Vec::new(), message, key, lane, done });
    }

    /// Answers the notification that a session has ended: whether its UE is here.
    pub(crate) fn notified(&self, token: u64, is_here: bool) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        if let Some((_, reply)) = waiting {
            reply.send(if is_here { Reply::done() } else { Reply::problem(&unknown()) });
        }
    }

    /// Answers a transfer.
    pub(crate) fn transferred(&self, token: u64, result: Transferred, carried: Option<&Carried>) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        if let Some((supi, reply)) = waiting {
            reply.send(reply_with_carried(transfer_reply(&self.names.own, (supi, token), result), carried));
        }
    }
}

/// A UUID of a random number (RFC 9562 5.8: version 8).
fn uuid(n: u64) -> String {
    let (a, b, c) = (n >> 32, n >> 16 & 0xffff, n & 0xfff);
    format!("{a:08x}-{b:04x}-8{c:03x}-8000-{:012x}", n & 0xffff_ffff_ffff)
}

/// Where a question goes, and what it says.
fn request(names: &Names, number: SessionNumber, ask: &Ask) -> (String, Message) {
    match ask {
        Ask::Create(create) => {
            let told = Told { n1: Some(create.n1.clone()), n2: None };
            let message = Message::of(create_data(names, number, create, &told));
            (format!("{}{SM_CONTEXTS}", names.smf), with_parts(message, told))
        }
        Ask::Update { reference, update } => {
            let (told, up_cnx_state) = match update {
                Update::N1(n1) => (Told { n1: Some(n1.clone()), n2: None }, None),
                Update::N2(kind, octets) => (Told { n1: None, n2: Some((*kind, octets.clone())) }, None),
                Update::Activate => (Told::default(), Some(UpCnxState::Activating)),
                Update::Deactivate => (Told::default(), Some(UpCnxState::Deactivated)),
            };
            let (n1_sm_msg, n2_sm_info, n2_sm_info_type) = references(&told);
            let data = SmContextUpdateData { up_cnx_state, n1_sm_msg, n2_sm_info, n2_sm_info_type };
            (Operation::Modify.of(reference), with_parts(Message::of(data), told))
        }
        Ask::Release { reference } => {
            (Operation::Release.of(reference), Message::of(SmContextReleaseData { cause: None }))
        }
        Ask::Unreached { uri, supi, transfer } => {
            // The Location that the transfer's answer had.
            let notification = amf::N1N2MsgTxfrFailureNotification {
                cause: TransferCause::UeNotResponding,
                n1n2_msg_data_uri: message_uri(&names.own, *supi, *transfer),
            };
            (uri.clone(), Message::of(notification))
        }
    }
}

fn create_data(names: &Names, number: SessionNumber, create: &Create, told: &Told) -> SmContextCreateData {
    let supi = supi_text(create.supi);
    SmContextCreateData {
        sm_context_status_uri: format!("{}{}", names.own, amf::status_of(&supi, number)),
        supi,
        pei: create.pei.map(|pei| format!("imeisv-{:016}", pei.0)),
        pdu_session_id: create.psi,
        dnn: create.dnn.as_str().to_owned(),
        s_nssai: create.snssai.into(),
        serving_nf_id: names.instance.clone(),
        guami: names.guami.clone(),
        serving_network: names.network.clone(),
        request_type: Some("INITIAL_REQUEST".into()),
        n1_sm_msg: references(told).0,
        an_type: "3GPP_ACCESS".into(),
        rat_type: Some("NR".into()),
        ue_location: create.location.map(|(tai, cell)| UserLocation::of(tai, cell)),
        vireo_carried: names.carries.then_some(number),
    }
}

/// What the SMF's answer comes to.
fn answer(root: &str, ask: &Ask, result: Result<Reply, ClientError>) -> Answer {
    let reply = match result {
        Ok(reply) => reply,
        Err(error) => {
            tracing::warn!(%error, "the SMF does not answer");
            return Answer::Silence;
        }
    };
    match ask {
        Ask::Create(_) if reply.is_success() => match reply.location {
            // It may be relative to the SMF's own address (RFC 9110 10.2.2).
            Some(path) if path.starts_with('/') && path.len() < URI_OCTETS - root.len() => {
                Answer::Created(format!("{root}{path}"))
            }
            Some(uri) if is_uri(&uri) && uri.len() <= URI_OCTETS => Answer::Created(uri),
            _ => {
                tracing::warn!("the SMF has made an SM context without a name that can be used");
                Answer::Silence
            }
        },
        _ if reply.is_success() => {
            if reply.message.says_nothing() {
                return Answer::Done(Told::default());
            }
            let data = reply.message.value::<SmContextUpdatedData>().map_err(|e| ProblemDetails::unreadable(&e));
            let told = data.and_then(|d| told(&reply.message, &(d.n1_sm_msg, d.n2_sm_info, d.n2_sm_info_type)));
            told.map_or_else(unreadable, Answer::Done)
        }
        _ if reply.status == STALE => Answer::Stale,
        _ => {
            let error = reply.message.value::<SmContextError>();
            // A problem by itself has no further members.
            let error = error.or_else(|_| {
                Ok::<_, String>(SmContextError { error: reply.message.value()?, ..SmContextError::default() })
            });
            let error = error.unwrap_or_default();
            let cause = error.error.cause.clone().unwrap_or_default();
            tracing::debug!(status = reply.status, cause, "the SMF refuses");
            let told = told(&reply.message, &(error.n1_sm_msg, error.n2_sm_info, error.n2_sm_info_type));
            let unknown = reply.status == 404;
            Answer::Refused { told: told.unwrap_or_default(), unknown }
        }
    }
}

fn unreadable(problem: ProblemDetails) -> Answer {
    tracing::warn!(detail = problem.detail, "the SMF's answer cannot be read");
    Answer::Refused { told: Told::default(), unknown: false }
}

/// Takes what an SMF asks: the host answers.
fn take(call: Call, tokens: &AtomicU64, door: &Door, waiting: &Waiting) {
    let Call { path, message, key, reply, .. } = call;
    let token = tokens.fetch_add(1, Ordering::Relaxed);
    match amf::resource(&path) {
        Some(Resource::Messages(supi)) => match transfer(supi, token, &message) {
            Err(problem) => reply.send(Reply::problem(&problem)),
            Ok((supi, transfer)) => {
                let key = key.map_or(0, |key| name_of(&key));
                let input = Input::Transfer { supi, key, transfer: Box::new(transfer) };
                put(input, (token, supi, reply), door, waiting);
            }
        },
        Some(Resource::Left(supi, number)) => match supi_of(supi) {
            Err(problem) => reply.send(Reply::problem(&problem)),
            Ok(supi) => {
                let mask = (1 << amf::NUMBER_BITS) - 1;
                let wants = Some((number & mask, mask));
                let (told, unreached, carried) = (Told::default(), None, None);
                let transfer = Box::new(Transfer { token, psi: 0, told, unreached, carried, wants });
                put(Input::Transfer { supi, key: 0, transfer }, (token, supi, reply), door, waiting);
            }
        },
        Some(Resource::Status(supi, number)) => match status(supi, &message) {
            Err(problem) => reply.send(Reply::problem(&problem)),
            Ok(None) => reply.send(Reply::done()),
            Ok(Some(supi)) => {
                put(Input::SmContextReleased { supi, number, token }, (token, supi, reply), door, waiting);
            }
        },
        None => reply.send(Reply::problem(&ProblemDetails::new(
            404,
            "RESOURCE_URI_STRUCTURE_NOT_FOUND",
            "this AMF has N1/N2 messages of UEs, and the callbacks that it has named",
        ))),
    }
}

/// Puts what an SMF asks before the host.
fn put(input: Input, (token, supi, reply): (u64, Supi, ReplyTo), door: &Door, waiting: &Waiting) {
    let mut calls = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if calls.len() >= WAITING {
        calls.retain(|_, (_, reply)| !reply.is_closed());
    }
    calls.insert(token, (supi, reply));
    drop(calls);
    if door.try_put(input).is_ok() {
        return door.ring();
    }
    let refused = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
    if let Some((_, reply)) = refused {
        reply.send(congested());
    }
}

/// The number by which a transfer is known that comes again, by its key (FNV-1a); never 0.
fn name_of(key: &str) -> u64 {
    let hash = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    key.bytes().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
}

fn unknown() -> ProblemDetails {
    ProblemDetails::new(404, "CONTEXT_NOT_FOUND", "there is no such UE, or it has no such session")
}

fn congested() -> Reply {
    Reply::problem(&ProblemDetails::new(503, "NF_CONGESTION", "this AMF has too much to do"))
}

/// Reads an N1N2MessageTransfer.
fn transfer(supi: &str, token: u64, message: &Message) -> Result<(Supi, Transfer), ProblemDetails> {
    let supi = supi_of(supi)?;
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
    let told = translate::told(message, &parts)?;
    let unreached = data.failure_uri.filter(|uri| uri.len() <= URI_OCTETS);
    let carried = translate::carried(message)?;
    Ok((supi, Transfer { token, psi, told, unreached, carried, wants: None }))
}

/// Reads an SMContextStatusNotify: whose session has ended, if one has.
fn status(supi: &str, message: &Message) -> Result<Option<Supi>, ProblemDetails> {
    let supi = supi_of(supi)?;
    let data: SmContextStatusNotification = message.value().map_err(|e| ProblemDetails::unreadable(&e))?;
    Ok((data.status_info.resource_status == RELEASED).then_some(supi))
}

/// What a message is called that waits for its UE.
fn message_uri(own: &str, supi: Supi, token: u64) -> String {
    format!("{own}{}/{token}", amf::messages_of(&supi_text(supi)))
}

fn transfer_reply(own: &str, (supi, token): (Supi, u64), result: Transferred) -> Reply {
    let error = |status, cause: &str, detail: &str| {
        let error = ProblemDetails::new(status, cause, detail);
        Reply::of(status, amf::N1N2MessageTransferError { error })
    };
    match result {
        Transferred::Initiated => Reply::of(200, N1N2MessageTransferRspData { cause: TransferCause::Initiated }),
        Transferred::Attempting => {
            let answer = N1N2MessageTransferRspData { cause: TransferCause::AttemptingToReachUe };
            Reply { location: Some(message_uri(own, supi, token)), ..Reply::of(202, answer) }
        }
        Transferred::Unreachable => error(504, "UE_NOT_REACHABLE", "the UE was not heard of for too long"),
        Transferred::Unknown => Reply::of(404, amf::N1N2MessageTransferError { error: unknown() }),
    }
}
