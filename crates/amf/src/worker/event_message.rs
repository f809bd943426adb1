//! Events in transit to a worker: content of a packet of the region.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_core::amf::engine::Event;
use vireo_core::postcard_writer;
use vireo_core::sba::{N1N2Transfer, PiggybackedSmContext, SessionNumber, SmfRequest, SmfResponse};
use vireo_core::subscription::{AuthenticationError, AuthenticationInfo};
use vireo_ops::metrics::Transaction;
use vireo_types::{AmfUeNgapId, AssocId, Instant, RanUeNgapId, Seid};

/// An event for one UE, encoded for another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum EventMessage<'a> {
    /// The first message of an NG connection.
    Initial {
        /// RAN node number (the association of its NG Setup).
        assoc: AssocId,
        /// True if the UE was found by the 5G-TMSI in the message: its identity must still be
        /// proved.
        named: bool,
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// The first message of an NG connection whose UE is rejected for lack of room.
    Congested {
        /// RAN node number (the association of its NG Setup).
        assoc: AssocId,
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// A message on the UE's NG connection.
    Ngap {
        /// RAN node number (the association of its NG Setup).
        assoc: AssocId,
        /// AMF UE NGAP ID in the message.
        amf_id: AmfUeNgapId,
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// Authentication result of the home network.
    Authentication(Box<Result<AuthenticationInfo, AuthenticationError>>),
    /// A PFCP message.
    Pfcp {
        upf: SocketAddr,
        seid: Seid,
        /// True if the message is a request and requires a response.
        request: bool,
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// A PFCP request received no response.
    PfcpTimeout { seid: Seid },
    /// A UPF lost its sessions.
    UpfLost { upf: SocketAddr },
    /// The context's deadline has expired.
    Deadline,
    /// The UE's NG connection is lost.
    ConnectionLost {
        /// RAN node number (the association of its NG Setup).
        assoc: AssocId,
    },
    /// The RAN node reuses the UE's RAN UE NGAP ID for another connection.
    RanIdReused {
        /// RAN node number (the association of its NG Setup).
        assoc: AssocId,
        ran_id: RanUeNgapId,
    },
    /// Another context of the subscriber is valid.
    Superseded,
    /// The UE's slot is needed for other UEs, unless the UE has been authenticated.
    Evicted,
    /// Operator command: deregister the UE.
    Deregister {
        /// True if the UE is to register again.
        reregister: bool,
    },
    /// Operator command: relocate the UE's sessions to another UPF.
    Relocate { upf: SocketAddr },
    /// SBA mode: the SMF's response to a request, or its failure.
    Smf {
        /// Idempotency key of the request.
        key: u64,
        number: SessionNumber,
        /// The request that was sent.
        request: Box<SmfRequest>,
        answer: SmfResponse,
        /// SM context after the request, if it is piggybacked.
        sm_context: Option<PiggybackedSmContext>,
    },
    /// SBA mode: an N1N2 transfer of an SMF.
    Transfer {
        /// Idempotency key of the transfer; 0 = none.
        key: u64,
        transfer: Box<N1N2Transfer>,
    },
    /// SBA mode: an SMF has released an SM context.
    SmContextReleased { number: SessionNumber },
}

/// An event that was decoded, with its origin.
#[derive(Debug)]
pub(crate) struct ReceivedEvent<'a> {
    /// Time of arrival at this core.
    pub(crate) arrived: Instant,
    /// Balancer's number of the input; 0 = none.
    pub(crate) input: u64,
    pub(crate) event: EventMessage<'a>,
}

/// Key by which a repeat of an SBA event is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatKey {
    /// The event has no key.
    No,
    /// Response to the request with this key.
    Answer(u64),
    /// Transfer with this key. The token identifies the response to it.
    Transfer(u64, u64),
}

impl<'a> EventMessage<'a> {
    /// Returns the key by which a repeat is recognised.
    pub(crate) fn repeat_key(&self) -> RepeatKey {
        match self {
            EventMessage::Smf { key, .. } => RepeatKey::Answer(*key),
            EventMessage::Transfer { key, transfer } if *key != 0 => RepeatKey::Transfer(*key, transfer.token),
            _ => RepeatKey::No,
        }
    }

    /// Appends the encoding: time of arrival at this core, balancer's input number (0 = none),
    /// event.
    pub(crate) fn encode(&self, arrived: Instant, input: u64, mut to: Vec<u8>) -> Vec<u8> {
        to.extend_from_slice(&arrived.0.to_le_bytes());
        to.extend_from_slice(&input.to_le_bytes());
        // Every event message has an encoding.
        match postcard_writer::to_vec(self, &mut to) {
            Ok(()) => to,
            Err(_) => Vec::new(),
        }
    }

    /// Decodes an event of this release. `None` is a bug of this build.
    pub(crate) fn decode(octets: &'a [u8]) -> Option<ReceivedEvent<'a>> {
        let (arrived, octets) = octets.split_first_chunk()?;
        let (input, octets) = octets.split_first_chunk()?;
        let event = postcard::from_bytes(octets).ok()?;
        let (arrived, input) = (Instant(u64::from_le_bytes(*arrived)), u64::from_le_bytes(*input));
        Some(ReceivedEvent { arrived, input, event })
    }

    /// Returns the SBA transaction that the event completes or starts.
    pub(crate) fn transaction(&self) -> Transaction {
        match self {
            EventMessage::Smf { request, .. } => match **request {
                SmfRequest::Create(_) => Transaction::CreateSmContext,
                SmfRequest::Update { .. } => Transaction::UpdateSmContext,
                SmfRequest::Release { .. } => Transaction::ReleaseSmContext,
                SmfRequest::Unreached { .. } => Transaction::Transfer,
            },
            EventMessage::Transfer { .. } => Transaction::Transfer,
            _ => Transaction::Other,
        }
    }

    /// Returns the event of the step. Returns `None` for first messages of connections, which need
    /// further decoding.
    pub(crate) fn into_event(self) -> Option<Event<'a>> {
        Some(match self {
            EventMessage::Initial { .. } | EventMessage::Congested { .. } => return None,
            EventMessage::Ngap { assoc, amf_id, pdu } => Event::Ngap { assoc, amf_id, pdu },
            EventMessage::Authentication(answer) => Event::Authentication(*answer),
            EventMessage::Pfcp { seid, message, .. } => Event::Pfcp { seid, message },
            EventMessage::PfcpTimeout { seid } => Event::PfcpTimeout { seid },
            EventMessage::UpfLost { upf } => Event::UpfLost { upf },
            EventMessage::Deadline => Event::Deadline,
            EventMessage::ConnectionLost { assoc } => Event::ConnectionLost { assoc },
            EventMessage::RanIdReused { assoc, ran_id } => Event::RanIdReused { assoc, ran_id },
            EventMessage::Superseded => Event::Superseded,
            EventMessage::Evicted => Event::Evicted,
            EventMessage::Deregister { reregister } => Event::Deregister { reregister },
            EventMessage::Relocate { upf } => Event::Relocate { upf },
            EventMessage::Smf { number, request, answer, sm_context, .. } => {
                Event::Smf { number, request: *request, response: answer, sm_context }
            }
            EventMessage::Transfer { transfer, .. } => Event::Transfer(*transfer),
            EventMessage::SmContextReleased { number } => Event::SmContextReleased { number },
        })
    }
}
