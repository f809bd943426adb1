//! SBA mode as data: requests between AMF and SMF, and the AMF's state of remote sessions.
//!
//! The requests are those of TS 29.502 Nsmf_PDUSession and TS 29.518 Namf_Communication. This Rust
//! module uses no HTTP or JSON. Requests are effects of a step and responses are its events, like
//! everything that a step waits for.

use crate::amf::context::octets;
use crate::amf::procedures::common::user_plane::DeferredSessionMessage;
use crate::smf::N2Sm;
use serde::{Deserialize, Serialize};
use vireo_types::{AmfUeNgapId, Dnn, Duration, GnbId, Instant, NrCgi, Pei, Snssai, Supi, Tai};

/// Number of a session among all that a UE has ever had at the AMF. Responses and notifications
/// contain it, so that a late one is never attributed to a successor with the same PDU session
/// identity.
pub type SessionNumber = u32;

/// Maximum size of a piggybacked SM context, in octets.
pub const CARRIED_OCTETS: usize = 8 * 1024;
/// Time after which an unanswered request is not waited for: longer than any sender retries.
const ASKED: Duration = Duration::from_secs(60);
/// Maximum number of requests for a session that queue behind the one in flight.
const DUE: usize = 8;

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
        let fits = !octets.is_empty() && octets.len() <= CARRIED_OCTETS;
        fits.then(|| PiggybackedSmContext { version: u32::from_be_bytes(*version), octets: octets.to_vec() })
    }
}

/// State of the AMF for a session with a piggybacked SM context. Each request carries the context.
/// Requests are therefore sent one at a time, with the context from the previous response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiggybackState {
    /// Latest known SM context.
    pub latest: PiggybackedSmContext,
    /// Time at which the request in flight was sent.
    pub in_flight_since: Option<Instant>,
    /// Requests queued behind the one in flight.
    pub queued: Vec<SmfRequest>,
    /// Number of consecutive responses that the SMF has already sent a later SM context.
    pub repeats: u8,
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
            SmfUpdateRequest::N1(said) | SmfUpdateRequest::N2(_, said) | SmfUpdateRequest::Switch(said, _) => {
                Some(said)
            }
            SmfUpdateRequest::Handover(
                _,
                HandoverStep::Prepare { transfer: said, .. } | HandoverStep::Prepared(_, said),
            ) => Some(said),
            SmfUpdateRequest::Activate | SmfUpdateRequest::Deactivate => None,
            SmfUpdateRequest::Handover(_, HandoverStep::Complete(_) | HandoverStep::Cancel) => None,
        }
    }

    /// Returns true if UE or RAN can cause the update as often as they like.
    fn is_said(&self) -> bool {
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
        told: N1N2Content,
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
    pub told: N1N2Content,
    /// Notification URI of the SMF in case the UE is not reached.
    pub unreached: Option<String>,
    /// Piggybacked SM context, if any.
    pub carried: Option<PiggybackedSmContext>,
    /// Create response that this transfer implies.
    pub created: Option<ImpliedCreateResponse>,
    /// Number and mask: nothing is transferred. The SMF requests the SM context of the session
    /// whose number equals this under the mask, because the SMF knows only its lowest bits.
    pub wants: Option<(SessionNumber, SessionNumber)>,
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

impl ImpliedCreateResponse {
    /// Returns true if the response belongs to this session, as the first response or a repeat.
    pub(crate) fn is_of(&self, session: &RemoteSession) -> bool {
        let named = session.reference.as_ref().map_or(self.open, |reference| *reference == self.reference);
        named && session.number == self.number
    }
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

/// PDU session in the AMF whose SM context is at a remote SMF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSession {
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    pub number: SessionNumber,
    pub snssai: Snssai,
    pub dnn: Dnn,
    /// SM context reference that the SMF assigned; `None` before.
    pub reference: Option<String>,
    /// Updates from before the reference arrived: the SMF's first message for UE and RAN may arrive
    /// earlier than its create response.
    pub early: Vec<SmfUpdateRequest>,
    pub stage: RemoteStage,
    /// True if the RAN has the user plane, or setup was requested.
    pub up: bool,
    /// Notification URI of the SMF and number of the transfer, in case the UE does not respond to
    /// paging.
    pub unreached: Option<(String, u64)>,
    /// State of the piggybacked SM context, if the SMF uses one.
    pub carriage: Option<Box<PiggybackState>>,
    /// Time at which the UE requested the session or its user plane; start of latency measurements.
    pub since: Instant,
}

/// Stage of a [`RemoteSession`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteStage {
    /// The create request is pending.
    Creating,
    /// The SMF has the session, and the RAN has not set it up for the first time yet.
    Offered,
    /// The UE has the session.
    Established,
    /// The session is released at the UE; the response of the SMF is pending.
    Ending,
}

/// State of the AMF in SBA mode beside the other fields of [`crate::amf::context::UeContext`].
/// Empty in a core that has its sessions itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSessions {
    pub sessions: Vec<RemoteSession>,
    /// Answer to a service request that waits for N2 content of the SMFs.
    pub pending_accept: Option<PendingServiceAccept>,
    /// Messages that wait until the UE leaves idle state or has a context in the RAN.
    pub deferred: Vec<DeferredSessionMessage>,
    /// SMF requests of a handover in progress.
    pub handover: Option<Box<HandoverSmfState>>,
}

/// SMF requests and responses for the sessions of a UE in handover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverSmfState {
    /// Sessions whose SMF has not answered, with the key of the request: one handover may directly
    /// follow another.
    pub waiting: Vec<(SessionNumber, Vec<u8>)>,
    /// Transfers to the RAN for sessions that are handed over, by PDU session identity and number.
    pub taken: Vec<(u8, SessionNumber, Vec<u8>)>,
    /// Transfers to the RAN for sessions that are not handed over, by PDU session identity.
    pub lost: Vec<(u8, Vec<u8>)>,
    /// Message that waits for the responses. It must stay the last field: the encoding of the
    /// previous release ends before it, and that release knows path switches only.
    #[serde(default)]
    pub stage: HandoverSmfStage,
}

/// Message that waits for the SMFs of a UE in handover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverSmfStage {
    /// Answer to a path switch.
    #[default]
    Switching,
    /// Request to the target of an N2 handover.
    Preparing {
        /// Cause of the source, encoded as in NGAP.
        cause: Vec<u8>,
        /// Source to Target Transparent Container.
        container: Vec<u8>,
    },
    /// Command to the source.
    Prepared {
        /// Target to Source Transparent Container.
        container: Vec<u8>,
    },
    /// Release of the source, which the UE has left.
    Completed,
}

/// Pending answer to a service request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingServiceAccept {
    /// Service request of the UE.
    pub request: crate::amf::procedures::service_request::Request,
    /// Bit set of the sessions whose SMF has not answered.
    pub waiting: u16,
    /// Setup transfers for the RAN, by PDU session identity.
    pub items: Vec<(u8, Vec<u8>)>,
}

impl RemoteSessions {
    /// Returns true if there is no state.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.pending_accept.is_none() && self.deferred.is_empty() && self.handover.is_none()
    }

    /// Returns the session with a PDU session identity that the UE has or has requested.
    pub fn by_psi(&mut self, psi: u8) -> Option<&mut RemoteSession> {
        self.sessions.iter_mut().find(|s| s.psi == psi && s.is_live())
    }

    /// Returns the session with a number.
    pub fn by_number(&mut self, number: SessionNumber) -> Option<&mut RemoteSession> {
        self.sessions.iter_mut().find(|s| s.number == number)
    }

    /// Returns the sessions of the UE as a bit set (PDU session status, TS 24.501 9.11.3.44).
    pub fn status(&self) -> u16 {
        let there = |s: &&RemoteSession| matches!(s.stage, RemoteStage::Offered | RemoteStage::Established);
        self.sessions.iter().filter(there).fold(0, |bits, s| bits | 1 << s.psi)
    }

    /// Returns true if a response about any session is pending.
    pub fn has_pending_response(&self) -> bool {
        self.pending_accept.is_some() || self.sessions.iter().any(|s| s.stage != RemoteStage::Established)
    }
}

impl RemoteSession {
    /// Returns true if the session exists for the UE.
    pub fn is_live(&self) -> bool {
        self.stage != RemoteStage::Ending
    }

    /// Stores a received SM context, unless a later one was received before.
    pub fn store_if_newer(&mut self, carried: Option<PiggybackedSmContext>) {
        match (&mut self.carriage, carried) {
            (_, None) => {}
            (Some(carriage), Some(carried)) if carriage.latest.version > carried.version => {}
            (Some(carriage), Some(carried)) => carriage.latest = carried,
            (carriage @ None, Some(latest)) => {
                *carriage =
                    Some(Box::new(PiggybackState { latest, in_flight_since: None, queued: Vec::new(), repeats: 0 }));
            }
        }
    }
}

impl PiggybackState {
    /// Returns the request with the latest SM context if no other request is in flight; else queues
    /// it if there is room.
    ///
    /// # Errors
    ///
    /// Returns an error if another request is in flight; the value is true if this one was queued.
    pub(crate) fn try_start(
        &mut self,
        ask: SmfRequest,
        now: Instant,
    ) -> Result<(SmfRequest, PiggybackedSmContext), bool> {
        let asked = self.in_flight_since.is_some_and(|since| now.since(since) < ASKED);
        if asked || !self.queued.is_empty() {
            // Requests that UE and RAN can cause at will must not take the space of those that end
            // the session.
            let said = matches!(&ask, SmfRequest::Update { update, .. } if update.is_said());
            let room = self.queued.len() < if said { DUE } else { 2 * DUE };
            self.queued.extend(room.then_some(ask));
            return Err(room);
        }
        self.in_flight_since = Some(now);
        Ok((ask, self.latest.clone()))
    }

    /// Returns the next queued request, if none is in flight.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(SmfRequest, PiggybackedSmContext)> {
        if self.in_flight_since.is_some() || self.queued.is_empty() {
            return None;
        }
        self.in_flight_since = Some(now);
        Some((self.queued.remove(0), self.latest.clone()))
    }
}
