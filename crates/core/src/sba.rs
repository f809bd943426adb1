//! SBA mode as data: requests between AMF and SMF.
//!
//! The requests are those of TS 29.502 Nsmf_PDUSession and TS 29.518 Namf_Communication. This Rust
//! module uses no HTTP or JSON. Requests are effects of a step and responses are its events, like
//! everything that a step waits for.

use crate::octets;
use crate::smf::N2Sm;
use serde::{Deserialize, Serialize};
use vireo_types::{AmfUeNgapId, Dnn, GnbId, Ltmsi, NrCgi, Pei, Snssai, Supi, Tai};

/// Number of a session among all that a UE has ever had at the AMF. Responses and notifications
/// contain it, so that a late one is never attributed to a successor with the same PDU session
/// identity.
pub type SessionNumber = u32;

/// Maximum size of a piggybacked SM context, in octets.
pub const MAX_SM_CONTEXT_OCTETS: usize = 8 * 1024;
/// Piggybacked SM context (`state.carry = "piggyback"`). The SMF sends it with its messages and
/// does not store it, and the AMF returns it with its next request. Only the SMF decodes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiggybackedSmContext {
    /// Grows with every change; the receiver keeps the highest.
    pub version: u32,
    /// Opaque to the AMF.
    #[serde(with = "octets")]
    pub octets: Vec<u8>,
}

impl PiggybackedSmContext {
    /// Encodes the SM context for a message.
    pub fn encode(&self) -> Vec<u8> {
        [&self.version.to_be_bytes()[..], &self.octets].concat()
    }

    /// Decodes an SM context of a message; `None` if its length is invalid.
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let (version, octets) = octets.split_first_chunk()?;
        let fits = !octets.is_empty() && octets.len() <= MAX_SM_CONTEXT_OCTETS;
        fits.then(|| PiggybackedSmContext { version: u32::from_be_bytes(*version), octets: octets.to_vec() })
    }
}

/// Request of the AMF to the SMF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfRequest {
    /// Nsmf_PDUSession_CreateSMContext (TS 29.502 5.2.2.2).
    Create(Box<SmfCreateRequest>),
    /// Nsmf_PDUSession_UpdateSMContext (5.2.2.3).
    Update {
        /// SM context reference that the SMF assigned.
        reference: String,
        /// Change of the session that the AMF reports.
        update: SmfUpdateRequest,
    },
    /// Nsmf_PDUSession_ReleaseSMContext (5.2.2.4).
    Release {
        /// SM context reference that the SMF assigned.
        reference: String,
    },
    /// Namf_Communication_N1N2TransferFailureNotification (TS 29.518 5.2.2.3.2): the UE did not
    /// respond to paging.
    Unreached {
        /// Notification URI of the SMF.
        uri: String,
        supi: Supi,
        /// Number of the transfer that did not reach the UE.
        transfer: u64,
    },
}

/// Content of a create request: data of the AMF when a UE requests a new session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmfCreateRequest {
    pub supi: Supi,
    /// PEI of the UE.
    pub pei: Option<Pei>,
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    pub snssai: Snssai,
    pub dnn: Dnn,
    /// Location of the UE.
    pub location: Option<(Tai, NrCgi)>,
    /// 5GSM message of the UE, as received.
    pub n1: Vec<u8>,
}

/// Content of an update request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfUpdateRequest {
    /// 5GSM message of the UE.
    N1(Vec<u8>),
    /// NGAP transfer of the RAN.
    N2(N2Sm, Vec<u8>),
    /// The user plane is requested (upCnxState ACTIVATING).
    Activate,
    /// The UE has become idle (upCnxState DEACTIVATED).
    Deactivate,
    /// The UE is at another RAN node after an Xn handover: Path Switch Request Transfer and
    /// location.
    Switch(Vec<u8>, (Tai, NrCgi)),
    /// Step of an N2 handover. The AMF UE NGAP ID at the target identifies the handover, so that it
    /// is not taken for an earlier one.
    Handover(AmfUeNgapId, HandoverStep),
}

/// Step of an N2 handover (TS 29.502 5.2.2.3.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverStep {
    /// The source requests the handover (hoState PREPARING) with a Handover Required Transfer: the
    /// SMF returns the data for the target.
    Prepare {
        /// Target gNB and tracking area.
        target: (GnbId, Tai),
        /// Handover Required Transfer of the source.
        transfer: Vec<u8>,
    },
    /// The target has answered with this transfer (PREPARED): the SMF returns the data for the
    /// source.
    Prepared(N2Sm, Vec<u8>),
    /// The UE is at the target, at this location (COMPLETED).
    Complete((Tai, NrCgi)),
    /// The UE stays at the source (CANCELLED).
    Cancel,
}

impl SmfUpdateRequest {
    /// Returns the key that identifies the update among those of a handover. For a path switch it
    /// is the RAN's transfer; for an N2 handover, the handover and its step.
    pub fn handover_key(&self) -> Vec<u8> {
        match self {
            SmfUpdateRequest::Switch(transfer, _)
            | SmfUpdateRequest::N2(_, transfer)
            | SmfUpdateRequest::N1(transfer) => transfer.clone(),
            SmfUpdateRequest::Activate | SmfUpdateRequest::Deactivate => Vec::new(),
            SmfUpdateRequest::Handover(target, step) => {
                let step = match step {
                    HandoverStep::Prepare { .. } => 1,
                    HandoverStep::Prepared(..) => 2,
                    HandoverStep::Complete(_) => 3,
                    HandoverStep::Cancel => 4,
                };
                target.get().to_be_bytes().into_iter().chain([step]).collect()
            }
        }
    }

    /// Returns the N1 or N2 content of the update, if any.
    pub(crate) fn n1n2(&self) -> Option<&[u8]> {
        match self {
            SmfUpdateRequest::N1(content) | SmfUpdateRequest::N2(_, content) | SmfUpdateRequest::Switch(content, _) => {
                Some(content)
            }
            SmfUpdateRequest::Handover(
                _,
                HandoverStep::Prepare { transfer: content, .. } | HandoverStep::Prepared(_, content),
            ) => Some(content),
            SmfUpdateRequest::Activate | SmfUpdateRequest::Deactivate => None,
            SmfUpdateRequest::Handover(_, HandoverStep::Complete(_) | HandoverStep::Cancel) => None,
        }
    }

    /// Returns true if UE or RAN can cause the update as often as they like.
    pub(crate) fn is_peer_triggered(&self) -> bool {
        use HandoverStep::{Prepare, Prepared};
        matches!(
            self,
            SmfUpdateRequest::N1(_)
                | SmfUpdateRequest::N2(..)
                | SmfUpdateRequest::Switch(..)
                | SmfUpdateRequest::Handover(_, Prepare { .. } | Prepared(..))
        )
    }
}

/// Response to an [`SmfRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfResponse {
    /// The SM context was created, with this reference.
    Created(String),
    /// The request was executed or is in progress; with content for UE and RAN, if any.
    Done(N1N2Content),
    /// The request is refused; with content for UE and RAN, if any.
    Refused {
        /// Content for UE and RAN.
        content: N1N2Content,
        /// True if the SMF does not have the SM context.
        unknown: bool,
    },
    /// The SMF has sent a later SM context than the one in the request: nothing was done.
    Stale,
    /// No response arrived after all retransmissions.
    Silence,
}

/// N1 and N2 content that an SMF sends to UE and RAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2Content {
    /// 5GSM message to the UE.
    pub n1: Option<Vec<u8>>,
    /// Transfer to the RAN; sent with the N1 message.
    pub n2: Option<(N2Sm, Vec<u8>)>,
}

/// Namf_Communication_N1N2MessageTransfer (TS 29.518 5.2.2.3.1): unsolicited content of an SMF for
/// UE and RAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2Transfer {
    /// Token of the request, which [`crate::step::Effect::N1N2TransferReply`] answers.
    pub token: u64,
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    /// Content for UE and RAN.
    pub content: N1N2Content,
    /// Notification URI of the SMF in case the UE is not reached.
    pub unreached: Option<String>,
    /// Piggybacked SM context, if any.
    pub sm_context: Option<PiggybackedSmContext>,
    /// Create response that this transfer implies.
    pub created: Option<ImpliedCreateResponse>,
    /// Number and mask: nothing is transferred. The SMF requests the SM context of the session
    /// whose number equals this under the mask, because the SMF knows only its lowest bits.
    pub requested_session: Option<(SessionNumber, SessionNumber)>,
}

/// Response to [`SmfRequest::Create`], where the first [`N1N2Transfer`] implies it (`state.answer =
/// "implied"`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImpliedCreateResponse {
    pub number: SessionNumber,
    /// Key of the create request.
    pub key: u64,
    /// SM context reference that the SMF assigned.
    pub reference: String,
    /// True if no other response to the request has arrived.
    pub open: bool,
}

/// Result of an [`N1N2Transfer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum N1N2TransferResult {
    /// The content is being transferred (N1_N2_TRANSFER_INITIATED).
    Initiated,
    /// The UE is idle and is paged (ATTEMPTING_TO_REACH_UE). Content for the RAN alone is dropped:
    /// the UE answers with a service request, for which its user plane is requested.
    Attempting,
    /// The UE cannot be reached (UE_NOT_REACHABLE).
    Unreachable,
    /// There is no such UE, or it has no such session (CONTEXT_NOT_FOUND).
    Unknown,
    /// The RAN has no resources of the session to release (UE_IN_CM_IDLE_STATE).
    Idle,
}

/// Event of an SMF on its way to the UE of the AMF.
#[derive(Debug)]
pub enum SmfEvent {
    /// Response to a request, or its failure.
    Response {
        ltmsi: Ltmsi,
        /// Idempotency key of the request.
        key: u64,
        number: SessionNumber,
        /// The request that was sent.
        request: Box<SmfRequest>,
        response: SmfResponse,
        /// SM context after the request, if it is piggybacked (`state.carry = "piggyback"`).
        sm_context: Option<Box<PiggybackedSmContext>>,
        /// Number of the input that this response completes; 0 unless a balancer assigned a number
        /// and the SMF commits for the AMF.
        input: u64,
    },
    /// N1N2 transfer for a UE and its RAN node.
    Transfer {
        supi: Supi,
        /// Idempotency key of the transfer; 0 = none.
        key: u64,
        transfer: Box<N1N2Transfer>,
        /// Number of the completed input as in [`SmfEvent::Response`], if the transfer answers a
        /// request.
        input: u64,
    },
    /// The SMF has released an SM context.
    Released {
        supi: Supi,
        number: SessionNumber,
        /// Token of the notification, used for the response.
        token: u64,
    },
}
