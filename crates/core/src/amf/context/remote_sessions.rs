//! State of the AMF for the sessions of separate SMFs, in SBA mode.

use super::deferred::DeferredSessionMessage;
use crate::amf::procedures::service_request;
use crate::sba::{ImpliedCreateResponse, PiggybackedSmContext, SessionNumber, SmfRequest, SmfUpdateRequest};
use serde::{Deserialize, Serialize};
use vireo_types::{Dnn, Duration, Instant, Snssai};

/// Time after which an unanswered request is not waited for: longer than any sender retries.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of requests for a session that queue behind the one in flight.
const QUEUE_LIMIT: usize = 8;

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
    pub piggyback: Option<Box<PiggybackState>>,
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

/// State of the AMF in SBA mode beside the other fields of [`super::UeContext`].
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
    pub accepted: Vec<(u8, SessionNumber, Vec<u8>)>,
    /// Transfers to the RAN for sessions that are not handed over, by PDU session identity.
    pub failed: Vec<(u8, Vec<u8>)>,
    /// Message that waits for the responses.
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
    pub request: service_request::Request,
    /// Bit set of the sessions whose SMF has not answered.
    pub waiting: u16,
    /// Setup transfers for the RAN, by PDU session identity.
    pub items: Vec<(u8, Vec<u8>)>,
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
        let is_offered = |s: &&RemoteSession| matches!(s.stage, RemoteStage::Offered | RemoteStage::Established);
        self.sessions.iter().filter(is_offered).fold(0, |bits, s| bits | 1 << s.psi)
    }

    /// Returns true if a response about any session is pending.
    pub fn has_pending_response(&self) -> bool {
        self.pending_accept.is_some() || self.sessions.iter().any(|s| s.stage != RemoteStage::Established)
    }
}

impl RemoteSession {
    /// Returns true if an implied create response belongs to this session, as the first response or
    /// a repeat.
    pub(in crate::amf) fn matches_response(&self, response: &ImpliedCreateResponse) -> bool {
        let named = self.reference.as_ref().map_or(response.open, |reference| *reference == response.reference);
        named && response.number == self.number
    }

    /// Returns true if the session exists for the UE.
    pub fn is_live(&self) -> bool {
        self.stage != RemoteStage::Ending
    }

    /// Stores a received SM context, unless a later one was received before.
    pub fn store_if_newer(&mut self, sm_context: Option<PiggybackedSmContext>) {
        match (&mut self.piggyback, sm_context) {
            (_, None) => {}
            (Some(piggyback), Some(sm_context)) if piggyback.latest.version > sm_context.version => {}
            (Some(piggyback), Some(sm_context)) => piggyback.latest = sm_context,
            (piggyback @ None, Some(latest)) => {
                *piggyback =
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
    pub(in crate::amf) fn try_start(
        &mut self,
        request: SmfRequest,
        now: Instant,
    ) -> Result<(SmfRequest, PiggybackedSmContext), bool> {
        let is_in_flight = self.in_flight_since.is_some_and(|since| now.since(since) < RESPONSE_TIMEOUT);
        if is_in_flight || !self.queued.is_empty() {
            // Requests that UE and RAN can cause at will must not take the space of those that end
            // the session.
            let is_peer_triggered = matches!(&request, SmfRequest::Update { update, .. } if update.is_peer_triggered());
            let room = self.queued.len() < if is_peer_triggered { QUEUE_LIMIT } else { 2 * QUEUE_LIMIT };
            self.queued.extend(room.then_some(request));
            return Err(room);
        }
        self.in_flight_since = Some(now);
        Ok((request, self.latest.clone()))
    }

    /// Returns the next queued request, if none is in flight.
    pub(in crate::amf) fn next(&mut self, now: Instant) -> Option<(SmfRequest, PiggybackedSmContext)> {
        if self.in_flight_since.is_some() || self.queued.is_empty() {
            return None;
        }
        self.in_flight_since = Some(now);
        Some((self.queued.remove(0), self.latest.clone()))
    }
}
