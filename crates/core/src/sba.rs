//! The service-based chain as data: what AMF and SMF ask each other when they are functions of their own (TS 29.502
//! Nsmf_PDUSession, TS 29.518 Namf_Communication), and what an AMF keeps of a session that an SMF elsewhere has.
//!
//! Nothing here knows HTTP or JSON: asks are effects of a step and answers its events, like everything that a step waits for.

use crate::context::octets;
use crate::procedures::common::user_plane::DeferredSessionMessage;
use crate::session::N2Sm;
use serde::{Deserialize, Serialize};
use vireo_types::{AmfUeNgapId, Dnn, Duration, GnbId, Instant, NrCgi, Pei, Snssai, Supi, Tai};

/// The number of a session among those that a UE has ever had at the AMF. Answers and notifications name it, so that a late
/// one is never taken for the successor's, whose PDU session identity may be the same.
pub type SessionNumber = u32;

/// Octets of an SM context that travels, at the most.
pub const CARRIED_OCTETS: usize = 8 * 1024;
/// After so long a question is not waited for any more: longer than anybody goes on asking.
const ASKED: Duration = Duration::from_secs(60);
/// Questions about a session that wait for the answer to another one, at the most.
const DUE: usize = 8;

/// An SM context that travels (`state.carry = "piggyback"`): the SMF gives it away with what it says, and the AMF gives it back
/// with what it asks next. What it holds, the SMF alone knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiggybackedSmContext {
    /// Which it is of those that the session has had: a later one is greater.
    pub version: u32,
    /// It.
    #[serde(with = "octets")]
    pub octets: Vec<u8>,
}

impl PiggybackedSmContext {
    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        [&self.version.to_be_bytes()[..], &self.octets].concat()
    }

    /// Of what has travelled; `None` if it is too short or too long to be one.
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let (version, octets) = octets.split_first_chunk()?;
        let fits = !octets.is_empty() && octets.len() <= CARRIED_OCTETS;
        fits.then(|| PiggybackedSmContext { version: u32::from_be_bytes(*version), octets: octets.to_vec() })
    }
}

/// What the AMF keeps of a session whose SM context travels. Each question takes it along, so there is one at a time, with what
/// the answer to the one before has brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiggybackState {
    /// The latest that is known.
    pub latest: PiggybackedSmContext,
    /// Since when a question is under way.
    pub in_flight_since: Option<Instant>,
    /// Questions that wait for the answer to it.
    pub queued: Vec<SmfRequest>,
    /// How often in a row the SMF has said that it has given a later one away.
    pub repeats: u8,
}

/// What the AMF asks the SMF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfRequest {
    /// Nsmf_PDUSession_CreateSMContext (TS 29.502 5.2.2.2).
    Create(Box<SmfCreateRequest>),
    /// Nsmf_PDUSession_UpdateSMContext (5.2.2.3).
    Update {
        /// The SM context, as the SMF has named it.
        reference: String,
        /// What has happened.
        update: SmfUpdateRequest,
    },
    /// Nsmf_PDUSession_ReleaseSMContext (5.2.2.4).
    Release {
        /// The SM context.
        reference: String,
    },
    /// Namf_Communication_N1N2TransferFailureNotification (TS 29.518 5.2.2.3.2): the UE did not answer to paging.
    Unreached {
        /// Where the SMF wants to hear of it.
        uri: String,
        /// The UE.
        supi: Supi,
        /// The message that did not reach it.
        transfer: u64,
    },
}

/// What the AMF knows when a UE asks for a new session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmfCreateRequest {
    /// The UE.
    pub supi: Supi,
    /// Its equipment.
    pub pei: Option<Pei>,
    /// PDU session identity.
    pub psi: u8,
    /// The slice chosen.
    pub snssai: Snssai,
    /// The data network chosen.
    pub dnn: Dnn,
    /// Where the UE is.
    pub location: Option<(Tai, NrCgi)>,
    /// Its 5GSM message, as received.
    pub n1: Vec<u8>,
}

/// What has happened to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfUpdateRequest {
    /// The UE has said this (5GSM).
    N1(Vec<u8>),
    /// The RAN has said this.
    N2(N2Sm, Vec<u8>),
    /// The user plane is wanted (upCnxState ACTIVATING).
    Activate,
    /// The UE has gone idle (upCnxState DEACTIVATED).
    Deactivate,
    /// The UE has come by Xn to a RAN node that has said this (Path Switch Request Transfer), and is there.
    Switch(Vec<u8>, (Tai, NrCgi)),
    /// A handover by N2, which is known by the UE's number at its target: none is taken for the one before.
    Handover(AmfUeNgapId, HandoverStep),
}

/// How far a handover by N2 is (TS 29.502 5.2.2.3.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverStep {
    /// The source wants it (hoState PREPARING), and says this (Handover Required Transfer): the SMF has what the target needs.
    Prepare {
        /// The target.
        target: (GnbId, Tai),
        /// That.
        transfer: Vec<u8>,
    },
    /// The target has answered by this (PREPARED): the SMF has what the source is told.
    Prepared(N2Sm, Vec<u8>),
    /// The UE is at the target, and there (COMPLETED).
    Complete((Tai, NrCgi)),
    /// The UE stays where it is (CANCELLED).
    Cancel,
}

impl SmfUpdateRequest {
    /// By what it is known among what an SMF is asked of a session that is handed over: by what the RAN has said of a path switch; by
    /// the handover and how far that is of one by N2.
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

    /// What UE or RAN have said, if it is that.
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

    /// Whether UE and RAN can say it as often as they like.
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

/// What comes of an [`SmfRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfResponse {
    /// The SM context is there, under this name.
    Created(String),
    /// What was asked is done, or under way; with what the UE and the RAN are to be told, if anything.
    Done(N1N2Content),
    /// It is refused; with what the UE and the RAN are to be told, if anything.
    Refused {
        /// That.
        told: N1N2Content,
        /// The SMF has no such SM context (any more).
        unknown: bool,
    },
    /// The SMF has given a later SM context away than the one that came with the question: nothing was done.
    Stale,
    /// There is no answer, after all repetitions.
    Silence,
}

/// What an SMF has for the UE and the RAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2Content {
    /// For the UE (5GSM).
    pub n1: Option<Vec<u8>>,
    /// For the RAN; travels with the other.
    pub n2: Option<(N2Sm, Vec<u8>)>,
}

/// Namf_Communication_N1N2MessageTransfer (TS 29.518 5.2.2.3.1): what an SMF has for the UE and the RAN without being asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2Transfer {
    /// The request that is answered by [`crate::step::Effect::N1N2TransferReply`].
    pub token: u64,
    /// PDU session identity.
    pub psi: u8,
    /// What it has.
    pub told: N1N2Content,
    /// Where the SMF wants to hear that the UE was not reached.
    pub unreached: Option<String>,
    /// The SM context, if it travels.
    pub carried: Option<PiggybackedSmContext>,
    /// The question for the session has been answered by it.
    pub created: Option<ImpliedCreateResponse>,
    /// Nothing is transferred: the SMF wants the SM context back of the session whose number is this under that mask: the
    /// SMF knows its lowest bits.
    pub wants: Option<(SessionNumber, SessionNumber)>,
}

/// The answer to [`SmfRequest::SmfCreateRequest`], where the first [`N1N2Transfer`] implies it (`state.answer = "implied"`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImpliedCreateResponse {
    /// The session.
    pub number: SessionNumber,
    /// What the question was known by.
    pub key: u64,
    /// The SM context, as the SMF has named it.
    pub reference: String,
    /// Nothing else has answered the question.
    pub open: bool,
}

impl ImpliedCreateResponse {
    /// Whether it is said of this session: by the answer to the question for it, or once more.
    pub(crate) fn is_of(&self, session: &RemoteSession) -> bool {
        let named = session.reference.as_ref().map_or(self.open, |reference| *reference == self.reference);
        named && session.number == self.number
    }
}

/// What becomes of a [`N1N2Transfer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum N1N2TransferResult {
    /// It is on its way (N1_N2_TRANSFER_INITIATED).
    Initiated,
    /// The UE is idle and is paged (ATTEMPTING_TO_REACH_UE). What is for the RAN alone is not kept: the UE comes back by a
    /// service request, by which its user plane is asked for.
    Attempting,
    /// The UE cannot be reached (UE_NOT_REACHABLE).
    Unreachable,
    /// There is no such UE, or it has no such session (CONTEXT_NOT_FOUND).
    Unknown,
    /// The RAN has nothing of the session that could be released (UE_IN_CM_IDLE_STATE).
    Idle,
}

/// A PDU session as the AMF knows it, that an SMF elsewhere has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSession {
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    /// Its number.
    pub number: SessionNumber,
    /// The slice.
    pub snssai: Snssai,
    /// The data network.
    pub dnn: Dnn,
    /// The SM context, as the SMF has named it; `None` before.
    pub reference: Option<String>,
    /// What has happened before the SMF has named it: its first message for UE and RAN may be faster than its name.
    pub early: Vec<SmfUpdateRequest>,
    /// How far it is.
    pub stage: RemoteStage,
    /// The RAN has its user plane, or was asked to.
    pub up: bool,
    /// The SMF wants to hear there that the UE does not answer to paging, of which message.
    pub unreached: Option<(String, u64)>,
    /// Of one whose SM context travels: that.
    pub carriage: Option<Box<PiggybackState>>,
    /// When the UE asked for the session, or for its user plane: what a latency is measured from.
    pub since: Instant,
}

/// How far a [`RemoteSession`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteStage {
    /// The SMF was asked for it.
    Creating,
    /// The SMF has it, and the RAN has not set it up for the first time yet.
    Offered,
    /// The UE has it.
    Established,
    /// The UE has it no more: the SMF's word is waited for.
    Ending,
}

/// What the AMF of a service-based chain keeps of a UE beside [`crate::context::UeContext`]'s other fields. Empty in a core
/// that has its sessions itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSessions {
    /// Its sessions.
    pub sessions: Vec<RemoteSession>,
    /// The answer to a service request, which waits for what the SMF has for the RAN.
    pub pending_accept: Option<PendingServiceAccept>,
    /// What waits for the UE: to come back from idle, or for its context in the RAN.
    pub deferred: Vec<DeferredSessionMessage>,
    /// What SMFs are asked because the UE is handed over.
    pub handover: Option<Box<HandoverSmfState>>,
}

/// What SMFs are asked about the sessions of a UE that is handed over, and have said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverSmfState {
    /// Sessions whose SMF has not answered, with what the question is known by: one handover may follow another at once.
    pub waiting: Vec<(SessionNumber, Vec<u8>)>,
    /// What the RAN is told of sessions that go along, by PDU session identity and number.
    pub taken: Vec<(u8, SessionNumber, Vec<u8>)>,
    /// The same of sessions that do not, by PDU session identity.
    pub lost: Vec<(u8, Vec<u8>)>,
    /// What waits for their answers. The last of what is stored: the release before knew path switches only, and said nothing of it.
    #[serde(default)]
    pub stage: HandoverSmfStage,
}

/// What waits for the SMFs of a UE that is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverSmfStage {
    /// The answer to a path switch.
    #[default]
    Switching,
    /// The request to the target of a handover by N2.
    Preparing {
        /// Why the source wants it, as NGAP encodes that.
        cause: Vec<u8>,
        /// Source to Target Transparent Container.
        container: Vec<u8>,
    },
    /// The command to the source.
    Prepared {
        /// Target to Source Transparent Container.
        container: Vec<u8>,
    },
    /// The release of the source, which the UE has left.
    Completed,
}

/// The answer to a service request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingServiceAccept {
    /// What the UE has asked for.
    pub request: crate::procedures::service_request::Request,
    /// Sessions whose SMF has not answered, a bit each.
    pub waiting: u16,
    /// What the RAN is to set up.
    pub items: Vec<(u8, Vec<u8>)>,
}

impl RemoteSessions {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.pending_accept.is_none() && self.deferred.is_empty() && self.handover.is_none()
    }

    /// The session of a PDU session identity that the UE has, or is about to.
    pub fn by_psi(&mut self, psi: u8) -> Option<&mut RemoteSession> {
        self.sessions.iter_mut().find(|s| s.psi == psi && s.is_live())
    }

    /// The session of a number.
    pub fn by_number(&mut self, number: SessionNumber) -> Option<&mut RemoteSession> {
        self.sessions.iter_mut().find(|s| s.number == number)
    }

    /// The sessions that the UE has, a bit each (PDU session status, TS 24.501 9.11.3.44).
    pub fn status(&self) -> u16 {
        let there = |s: &&RemoteSession| matches!(s.stage, RemoteStage::Offered | RemoteStage::Established);
        self.sessions.iter().filter(there).fold(0, |bits, s| bits | 1 << s.psi)
    }

    /// Whether somebody is still to say something about a session.
    pub fn has_pending_response(&self) -> bool {
        self.pending_accept.is_some() || self.sessions.iter().any(|s| s.stage != RemoteStage::Established)
    }
}

impl RemoteSession {
    /// Whether the session is anything to the UE.
    pub fn is_live(&self) -> bool {
        self.stage != RemoteStage::Ending
    }

    /// Keeps an SM context that has come, unless a later one has come before.
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
    /// What goes with this question, if it can be asked now; else it waits, if there is room.
    ///
    /// # Errors
    ///
    /// Whether it waits.
    pub(crate) fn try_start(
        &mut self,
        ask: SmfRequest,
        now: Instant,
    ) -> Result<(SmfRequest, PiggybackedSmContext), bool> {
        let asked = self.in_flight_since.is_some_and(|since| now.since(since) < ASKED);
        if asked || !self.queued.is_empty() {
            // What UE and RAN say as often as they like does not take the place of what ends the session.
            let said = matches!(&ask, SmfRequest::Update { update, .. } if update.is_said());
            let room = self.queued.len() < if said { DUE } else { 2 * DUE };
            self.queued.extend(room.then_some(ask));
            return Err(room);
        }
        self.in_flight_since = Some(now);
        Ok((ask, self.latest.clone()))
    }

    /// The question that is to be asked next, if none is under way.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(SmfRequest, PiggybackedSmContext)> {
        if self.in_flight_since.is_some() || self.queued.is_empty() {
            return None;
        }
        self.in_flight_since = Some(now);
        Some((self.queued.remove(0), self.latest.clone()))
    }
}
