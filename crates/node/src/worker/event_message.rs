//! Events on their way to a worker: what a packet of the region holds.

use crate::metrics::Transaction;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_core::engine::Event;
use vireo_core::postcard_writer;
use vireo_core::sba::{N1N2Transfer, PiggybackedSmContext, SessionNumber, SmfRequest, SmfResponse};
use vireo_core::subscription::{AuthenticationError, AuthenticationInfo};
use vireo_types::{AmfUeNgapId, AssocId, Instant, RanUeNgapId, Seid};

/// An event for one UE, as it crosses into another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum EventMessage<'a> {
    /// The first message of an NG connection.
    Initial {
        /// The RAN node's association.
        assoc: AssocId,
        /// The UE was found by the 5G-TMSI that the message names: it has to prove that it is the one.
        named: bool,
        /// The PDU.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// The same of a UE that there is no room for.
    Congested {
        /// The RAN node's association.
        assoc: AssocId,
        /// The PDU.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// A message on the UE's NG connection.
    Ngap {
        /// The RAN node's association.
        assoc: AssocId,
        /// The number it names.
        amf_id: AmfUeNgapId,
        /// The PDU.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// The home network's answer.
    Authentication(Box<Result<AuthenticationInfo, AuthenticationError>>),
    /// A PFCP message.
    Pfcp {
        /// The UPF.
        upf: SocketAddr,
        /// The session.
        seid: Seid,
        /// Whether it is a request, which is owed an answer.
        request: bool,
        /// The message.
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// A PFCP request got no answer.
    PfcpTimeout {
        /// The session.
        seid: Seid,
    },
    /// A UPF lost its sessions.
    UpfLost {
        /// The UPF.
        upf: SocketAddr,
    },
    /// The context's deadline has passed.
    Deadline,
    /// The UE's NG connection is gone.
    ConnectionLost {
        /// Its association.
        assoc: AssocId,
    },
    /// The RAN node has given the UE's number to another connection.
    RanIdReused {
        /// Its association.
        assoc: AssocId,
        /// The number.
        ran_id: RanUeNgapId,
    },
    /// Another context is the subscriber's.
    Superseded,
    /// The UE's room is needed for others, if it has proved nothing.
    Evicted,
    /// The operator wants the UE gone.
    Deregister {
        /// Whether it shall register again.
        again: bool,
    },
    /// The operator wants its sessions at another UPF.
    Relocate {
        /// The UPF.
        upf: SocketAddr,
    },
    /// Of a service-based chain: what has become of a question to the SMF.
    Smf {
        /// What the question was known by.
        key: u64,
        /// The session.
        number: SessionNumber,
        /// The question.
        ask: Box<SmfRequest>,
        /// The answer.
        answer: SmfResponse,
        /// The SM context as it is then, if it travels.
        carried: Option<PiggybackedSmContext>,
    },
    /// Of a service-based chain: an SMF has something for UE and RAN.
    Transfer {
        /// By what it is known when it is asked for again; 0: by nothing.
        key: u64,
        /// That.
        transfer: Box<N1N2Transfer>,
    },
    /// Of a service-based chain: an SMF has a session no more.
    SmContextReleased {
        /// The session.
        number: SessionNumber,
    },
}

/// By what an event of a service-based chain is known when it comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatKey {
    /// It is none of these.
    No,
    /// An answer to the question of that key.
    Answer(u64),
    /// A transfer of that key, to be answered under this token.
    Transfer(u64, u64),
}

impl<'a> EventMessage<'a> {
    /// By what it is known when it comes again.
    pub(crate) fn again(&self) -> RepeatKey {
        match self {
            EventMessage::Smf { key, .. } => RepeatKey::Answer(*key),
            EventMessage::Transfer { key, transfer } if *key != 0 => RepeatKey::Transfer(*key, transfer.token),
            _ => RepeatKey::No,
        }
    }

    /// Its octets, appended; before them when it came to this core and the input that it is of, if a cluster's balancer
    /// has given that a number (0 = none).
    pub(crate) fn encode(&self, arrived: Instant, input: u64, mut to: Vec<u8>) -> Vec<u8> {
        to.extend_from_slice(&arrived.0.to_le_bytes());
        to.extend_from_slice(&input.to_le_bytes());
        // Nothing of a parcel has no encoding.
        match postcard_writer::to_vec(self, &mut to) {
            Ok(()) => to,
            Err(_) => Vec::new(),
        }
    }

    /// Of its octets. They were written by this release: `None` is a fault of this build.
    pub(crate) fn decode(octets: &'a [u8]) -> Option<(Instant, u64, Self)> {
        let (arrived, octets) = octets.split_first_chunk()?;
        let (input, octets) = octets.split_first_chunk()?;
        let parcel = postcard::from_bytes(octets).ok()?;
        Some((Instant(u64::from_le_bytes(*arrived)), u64::from_le_bytes(*input), parcel))
    }

    /// The transaction of a service-based chain that it ends or begins.
    pub(crate) fn transaction(&self) -> Transaction {
        match self {
            EventMessage::Smf { ask, .. } => match **ask {
                SmfRequest::Create(_) => Transaction::CreateSmContext,
                SmfRequest::Update { .. } => Transaction::UpdateSmContext,
                SmfRequest::Release { .. } => Transaction::ReleaseSmContext,
                SmfRequest::Unreached { .. } => Transaction::Transfer,
            },
            EventMessage::Transfer { .. } => Transaction::Transfer,
            _ => Transaction::Other,
        }
    }

    /// The event, for what is one as it stands; the first messages of connections are read further.
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
            EventMessage::Deregister { again } => Event::Deregister { again },
            EventMessage::Relocate { upf } => Event::Relocate { upf },
            EventMessage::Smf { number, ask, answer, carried, .. } => Event::Smf { number, ask: *ask, answer, carried },
            EventMessage::Transfer { transfer, .. } => Event::Transfer(*transfer),
            EventMessage::SmContextReleased { number } => Event::SmContextReleased { number },
        })
    }
}
