//! One SM context and its pending messages.
//!
//! The messages of a transaction are stored with the SM context. After a failure, the next SMF that
//! loads the SM context can send them again.

mod transaction;

pub(super) use transaction::carry_out;

use super::addresses::Addresses;
use super::wire::{self, CreateRequest, ResponseState, TransferredSession, UpdateRequest};
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_core::config::CoreConfig;
use vireo_core::sba::{MAX_SM_CONTEXT_OCTETS, N1N2Content, N1N2TransferResult};
use vireo_core::smf::{N4State, RanState, SmContext, Stage};
use vireo_core::subscription::DnnSubscription;
use vireo_sbi::amf::CreatedSmContext;
use vireo_sbi::smf::HoState;
use vireo_sbi::{Message, Reply};
use vireo_store::Version;
use vireo_store::records::{Codec, Format, RecordBase, StoredRecord};
use vireo_types::{Dnn, Duration, Instant, Ltmsi, SessionAddress, Supi};

/// Version of the stored fields.
const FORMAT: u8 = 7;
/// Age up to which messages to the AMF are repeated after a recovery. It is longer than the
/// previous SMF would have retried.
const MAX_REPEAT_AGE: Duration = Duration::from_secs(10);

/// A response to the AMF that waits for the UPF (TS 23.502 4.3.2.2.1 step 16, 4.2.6 step 6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingAnswer {
    /// Idempotency key of the request.
    key: Option<String>,
    content: N1N2Content,
    response_state: ResponseState,
    /// True if the RAN has requested a path switch.
    switches: bool,
}

/// A PFCP request without a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PendingPfcpRequest {
    upf: SocketAddr,
    key: u64,
    #[serde(with = "serde_bytes")]
    message: Vec<u8>,
}

/// A transfer that the AMF has not acknowledged, as far as this SMF knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PendingTransfer {
    number: u32,
    at: Instant,
    /// True if a downlink packet caused the transfer.
    calls: bool,
    content: N1N2Content,
}

/// Implied create response: the AMF accepts the first transfer as response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ImpliedCreate {
    /// The AMF's session number.
    number: u32,
    /// Number of the first transfer; `None` before it.
    by: Option<u32>,
}

/// State of an SM context towards the AMF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AmfState {
    /// The create request is unanswered, with piggyback or an implied response (TS 29.502 5.2.2.2).
    ///
    /// The response follows once the UPF has the session. If the SMF dies earlier, the AMF repeats
    /// the request. Afterwards the AMF has the complete state.
    Creating,
    /// The AMF has the SM context.
    Active,
    /// The AMF has a transfer for a downlink packet and has not replied whether the UE is reachable
    /// (TS 23.502 4.2.3.3 step 3).
    AwaitingReachability,
    /// The AMF has released the SM context or no longer has it (TS 29.502 5.2.2.4). The UPF may
    /// still have the session.
    Releasing,
    /// The SM context has ended, and the AMF must still be notified (TS 29.502 5.2.2.5).
    Ended,
}

/// Location where an SM context is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Location {
    /// In a record of its own, or in memory.
    Own,
    /// In the UE record with this number.
    UeRecord(u64),
    /// At the AMF (piggyback).
    Amf,
}

/// An SM context and its pending messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    /// [`FORMAT`]. The first field, so that it can be read in every version.
    format: u8,
    pub(super) sm: SmContext,
    pub(super) supi: Supi,
    status_uri: String,
    /// Idempotency key of the create request.
    made_by: Option<String>,
    pending: Option<PendingAnswer>,
    /// Key and content of the last response.
    answered: Option<(String, N1N2Content, ResponseState)>,
    amf: AmfState,
    /// Number of the last outgoing message.
    last: u32,
    to_upf: Vec<PendingPfcpRequest>,
    to_amf: Vec<PendingTransfer>,
    location: Location,
    /// Set if the AMF accepts the first transfer as create response.
    implied: Option<ImpliedCreate>,
    /// Key of the last request that completed an N2 handover. Its repeats are answered but not
    /// executed, even after other requests. The target's tunnel is used only once, and a session
    /// without it counts as not handed over.
    completed: Option<String>,
}

/// A stored SM context of a previous SMF.
#[derive(Debug)]
pub(super) struct RecoveredSession {
    pub(super) ltmsi: Ltmsi,
    pub(super) session: Box<Session>,
    pub(super) version: Version,
}

impl RecoveredSession {
    pub(super) fn new(session: Box<Session>, version: Version) -> Self {
        RecoveredSession { ltmsi: session.sm.pfcp.cp_seid.ltmsi(), session, version }
    }
}

/// An event on an SM context.
#[derive(Debug)]
pub(super) enum SmEvent {
    /// The AMF creates the SM context.
    Create(Box<(CreateRequest, DnnSubscription)>),
    /// The AMF updates the SM context.
    Update(UpdateRequest),
    /// The AMF releases the SM context.
    Release,
    /// The AMF could not deliver a message to the UE.
    Unreached,
    /// The AMF no longer has the SM context: it creates the same session again.
    Forgotten,
    /// A PFCP message arrives.
    Pfcp(SocketAddr, Vec<u8>),
    /// The UPF has not responded.
    PfcpTimeout,
    /// The UPF has lost its sessions.
    UpfLost,
    /// The AMF reports the result of a transfer.
    Transferred(N1N2TransferResult),
    /// The AMF has acknowledged the end of the session, or cannot be notified.
    Notified,
    /// A deadline has expired.
    Deadline,
}

/// An effect of a transaction, executed after its commit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OutgoingMessage {
    /// Send a PFCP message. `key` identifies a request.
    Pfcp { upf: SocketAddr, key: u64, message: Vec<u8> },
    /// Ask the AMF for an N1N2 transfer.
    Transfer { number: u32, calls: bool, message: Message },
    /// Notify the AMF that the SM context has ended.
    Notify { uri: String, message: Message },
    /// Free a UE address.
    Free(Dnn, SessionAddress),
}

/// Result of a transaction.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The new SM context; `None` = it is removed.
    pub(super) session: Option<Box<Session>>,
    /// True if the SM context differs from the previous one.
    pub(super) changed: bool,
    pub(super) leaves: Vec<OutgoingMessage>,
    /// Immediate response to the request of this transaction; `None` = the request waits.
    pub(super) own: Option<Reply>,
    /// Response to a request that was waiting and is superseded by this one.
    pub(super) earlier: Option<Reply>,
    /// Response to the request that waits after this transaction.
    pub(super) answer: Option<Reply>,
    /// Like `answer`, but sent after the AMF has replied to the outgoing transfer. If the transfer
    /// is an implied response, this is sent only if the AMF does not accept it.
    pub(super) after_transfer: Option<Reply>,
}

/// Environment of transactions.
#[derive(Debug)]
pub(super) struct TransactionEnv {
    pub(super) config: CoreConfig,
    /// Root of this SMF's URIs.
    pub(super) root: String,
    pub(super) addresses: Addresses,
    pub(super) rng: StdRng,
    /// True if another SMF may load the SM contexts later. Pending messages are then stored with
    /// them.
    pub(super) stored: bool,
    /// True if an SMF may not know the SM contexts of other sessions (piggyback).
    pub(super) piggybacks: bool,
    /// True if UPFs have parts in the UE records.
    pub(super) with_upf: bool,
}

impl Session {
    /// Returns the URI for the notification of the end.
    pub(super) fn status_uri(&self) -> &str {
        &self.status_uri
    }

    /// Decodes a stored SM context. Also returns the base of the next commit.
    pub(super) fn decode_stored(codec: Codec, found: StoredRecord) -> Option<(Box<Self>, RecordBase)> {
        let (session, known) = codec.decode_stored::<Box<Session>>(found).ok()?;
        (session.format == FORMAT).then_some((session, known))
    }

    /// Decodes an SM context from a part of a shared record.
    pub(super) fn from_part(format: Format, octets: &[u8]) -> Option<Box<Self>> {
        format.decode::<Box<Session>>(octets).ok().filter(|session| session.format == FORMAT)
    }

    /// Encodes the SM context for piggybacking, without messages to the AMF, which are sent along.
    /// `None` = too long.
    pub(super) fn encode_for_piggyback(&self) -> Option<Vec<u8>> {
        let amf = if self.is_creating() { AmfState::Active } else { self.amf };
        let session = Session { pending: None, answered: None, to_amf: Vec::new(), amf, implied: None, ..self.clone() };
        postcard::to_stdvec(&session).ok().filter(|octets| octets.len() <= MAX_SM_CONTEXT_OCTETS)
    }

    /// Decodes a piggybacked SM context.
    pub(super) fn decode(octets: &[u8]) -> Option<Box<Self>> {
        Session::from_part(Format::Binary, octets)
    }

    /// Returns true if the session has ended and only the notification of the AMF is pending.
    pub(super) fn has_ended(&self) -> bool {
        self.amf == AmfState::Ended
    }

    /// Returns true while the create request is unanswered.
    pub(super) fn is_creating(&self) -> bool {
        self.amf == AmfState::Creating
    }

    /// Returns true if the AMF stores the SM context.
    pub(super) fn is_piggybacked(&self) -> bool {
        self.location == Location::Amf
    }

    /// Returns the number of the UE record that contains the SM context, if there is one.
    pub(super) fn record(&self) -> Option<u64> {
        if let Location::UeRecord(record) = self.location { Some(record) } else { None }
    }

    /// Returns true if no procedure is in progress.
    pub(super) fn rests(&self) -> bool {
        let sm = &self.sm;
        let settled = sm.n4 == N4State::Synced
            && sm.stage == Stage::Established
            && matches!(sm.ran, RanState::Idle | RanState::Up);
        self.has_ended() || settled && self.pending.is_none() && self.amf != AmfState::AwaitingReachability
    }

    /// Returns the idempotency key of the create request.
    pub(super) fn made_by(&self) -> Option<&str> {
        self.made_by.as_deref()
    }

    /// Returns true if the first transfer is an implied create response.
    pub(super) fn is_implied(&self) -> bool {
        self.implied.is_some()
    }

    /// Returns the pending messages for a repeat after recovery. Peers recognise repeats by their
    /// keys.
    pub(super) fn pending_messages(&self, root: &str, now: Instant) -> Vec<OutgoingMessage> {
        let pfcp = |PendingPfcpRequest { upf, key, message }: &PendingPfcpRequest| OutgoingMessage::Pfcp {
            upf: *upf,
            key: *key,
            message: message.clone(),
        };
        let new = |to_amf: &&PendingTransfer| now.since(to_amf.at) <= MAX_REPEAT_AGE;
        let transfers = self.to_amf.iter().filter(new).map(|PendingTransfer { number, calls, content, .. }| {
            OutgoingMessage::Transfer {
                number: *number,
                calls: *calls,
                message: self.transfer_message(root, *number, content.clone()),
            }
        });
        let notify = || OutgoingMessage::Notify { uri: self.status_uri.clone(), message: wire::released() };
        self.to_upf.iter().map(pfcp).chain(transfers).chain(self.has_ended().then(notify)).collect()
    }

    /// Removes the transfers up to `number`, which the AMF has received.
    pub(super) fn acknowledge_transfers(&mut self, number: u32) {
        self.to_amf.retain(|to_amf| to_amf.number > number);
    }

    fn transfer_message(&self, root: &str, name: u32, content: N1N2Content) -> Message {
        let (seid, psi, snssai) = (self.sm.pfcp.cp_seid, self.sm.psi, self.sm.terms.snssai);
        let message = wire::transfer(root, TransferredSession { seid, psi, snssai }, content);
        self.with_created(name, message)
    }

    /// Adds the implied create response to a transfer, if the transfer has that role.
    fn with_created(&self, name: u32, message: Message) -> Message {
        match (&self.implied, &self.made_by) {
            (Some(ImpliedCreate { number, by: Some(by) }), Some(key)) if *by == name => {
                let (key, sm_context_ref) = (key.clone(), wire::reference(self.sm.pfcp.cp_seid));
                wire::with_created(message, CreatedSmContext { key, number: *number, sm_context_ref })
            }
            _ => message,
        }
    }

    /// Returns `None` for a new request. For a repeat, returns its response, or `Some(None)` if
    /// that is pending.
    fn repeats(&self, key: Option<&str>) -> Option<Option<Reply>> {
        let key = key?;
        if self.pending.as_ref().is_some_and(|pending| pending.key.as_deref() == Some(key)) {
            return Some(None);
        }
        if let Some((_, content, response_state)) = self.answered.as_ref().filter(|(answered, ..)| answered == key) {
            return Some(Some(wire::completed_reply(content.clone(), *response_state)));
        }
        let response_state = ResponseState { state: None, handover: Some(HoState::Completed) };
        (self.completed.as_deref() == Some(key))
            .then(|| Some(wire::completed_reply(N1N2Content::default(), response_state)))
    }
}
