//! UE context: the state of one UE as plain data.
//!
//! A context can be stored, copied and moved. It holds no lock, timer, handle or pointer. A timer
//! is a stored deadline; a RAN node is an association number. Perpetual state changes when a
//! procedure ends. Ephemeral state belongs to a procedure in progress or a signalling connection,
//! and is dropped with it (MMLite).

mod capability;
mod ciot;
mod codec;
mod connection;
mod deferred;
mod mapped;
mod packed;
mod paging_info;
mod parts;
mod pending;
mod remote_sessions;
mod resume;
mod retry;
mod security;
mod shared;

pub use capability::UeSecurityCapability;
pub use ciot::{Ciot, CiotFeatures};
pub use codec::{
    CodecError, ContextDecoder, EncodedContext, IncrementalEncoder, LAYOUT_VERSION, OLDEST_LAYOUT, Versions, decode,
    encode, encode_after, without_radio_capability,
};
pub use connection::{Connection, RanContext};
pub use deferred::DeferredSessionMessage;
pub use mapped::{HandoverKeys, S1_TO_N1_OCTETS};
pub use paging_info::{DrxCycle, ExtendedDrx, PagingInfo, PowerSaving, RadioCapability};
pub(crate) use paging_info::{extended_drx_values, hashed_id, paging_priority};
pub use pending::PendingWork;
pub use remote_sessions::{
    HandoverSmfStage, HandoverSmfState, PendingServiceAccept, PiggybackState, RemoteSession, RemoteSessions,
    RemoteStage,
};
pub use resume::{SKIPPED_STEPS, StoredCounts, skip};
pub use retry::Retry;
pub(crate) use security::PARTIALLY_CIPHERED;
pub use security::{KeySet, NasSecurity, NextHop, NextHopChain, SecurityFault};

use crate::amf::procedures::common::security_setup::{AwaitedResponse, SecuritySetup};
use crate::amf::procedures::{
    authentication, configuration_update, deregistration, handover, paging, registration, service_request,
};
use crate::config::CoreConfig;
use crate::smf::SmContext;
use crate::subscription::{Ambr, AreaRestrictions, Subscription};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::num::NonZeroU16;
use std::sync::Arc;
use vireo_types::{AmfUeNgapId, AssocId, Dialect, Guti, Instant, Ltmsi, Pei, Snssai, Supi, Tac, Tai, Tmsi};

/// Context of one UE. [`encode`] defines its stored form. The field-by-field serde form is for
/// databases that an operator reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UeContext {
    /// UE number in the cluster.
    pub ltmsi: Ltmsi,
    /// Sequence number of the last input of this state. An input at or below it is a repeat and
    /// changes nothing.
    pub sequence: u64,
    pub identity: Identity,
    /// 5GMM state of the UE in the network (TS 24.501 5.1.3.3).
    pub registration: Registration,
    /// NAS security context in use.
    pub security: Option<NasSecurity>,
    /// UE security capability (TS 24.501 9.11.3.54), as last received under integrity protection.
    pub security_capability: UeSecurityCapability,
    /// Subscription of the authenticated subscriber; `None` before. It is replaced, never modified:
    /// copies of the context share it, and equal pointers mean equal values without a comparison.
    #[serde(default, with = "shared")]
    pub subscription: Option<Arc<Subscription>>,
    /// Allowed NSSAI, the S-NSSAI of the home slice first.
    pub allowed: SmallVec<[Snssai; 2]>,
    /// UE Radio Capability, opaque (TS 38.413 9.3.1.74), in the coding of [`PagingInfo::coding`].
    /// Sent to the RAN node at every context set-up.
    pub radio_capability: Vec<u8>,
    pub sessions: Vec<SmContext>,
    /// Sessions of a separate SMF, in SBA mode ([`crate::sba`]).
    pub remote_sessions: RemoteSessions,
    /// Number of the next session, used in SEIDs.
    pub next_session: u32,
    /// NG connection. Present while the UE is CM-CONNECTED.
    pub connection: Option<Connection>,
    /// Generation of the latest AMF-UE-NGAP-ID, 1 to 4095; 0 = none so far.
    pub connections: u16,
    /// 5GMM procedure in progress.
    pub procedure: Option<Procedure>,
    /// Handover in progress, or the keys of one that has ended without HANDOVER NOTIFY. It runs
    /// concurrently with the 5GMM procedure.
    pub handover: Option<handover::Handover>,
    /// Messages of sessions to UE and RAN, deferred while the UE moves from one RAN node to
    /// another.
    pub deferred: Vec<DeferredSessionMessage>,
    /// RAN node that the UE has left by a handover, until that node has released the UE.
    pub source: Option<handover::SourceNode>,
    /// Work queued until the UE is reachable.
    pub pending: PendingWork,
    pub reachability: Reachability,
}

/// Where and until when a UE without connection is reachable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reachability {
    /// Registration area, in which an idle UE is paged (TS 23.501 5.3.2.3).
    pub area: SmallVec<[Tai; 4]>,
    /// True after the mobile reachable timer has expired: the UE is not paged (TS 24.501 5.3.7).
    pub unreachable: bool,
    /// Expiry of the mobile reachable or implicit deregistration timer (TS 24.501 5.3.7), or of the
    /// security context of a deregistered UE. For a UE in power saving mode, expiry of the active
    /// timer precedes (TS 24.301 5.3.11).
    pub expires: Option<Instant>,
    #[serde(default)]
    pub paging: PagingInfo,
    /// Association of the RAN node of the last connection, while the UE is idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_node: Option<AssocId>,
    /// Information on Recommended Cells and RAN Nodes for Paging of that node (TS 38.413
    /// 9.3.1.100), or on Recommended Cells and eNBs for Paging (TS 36.413 9.1.4.7), with its PER
    /// encoding; empty if there is none.
    #[serde(default, with = "crate::octets", skip_serializing_if = "Vec::is_empty")]
    pub recommended: Vec<u8>,
}

/// Identifiers of a UE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Known once the UE is authenticated.
    pub supi: Option<Supi>,
    pub pei: Option<Pei>,
    pub tmsi: Option<Tmsi>,
    /// Previous 5G-TMSI. Both are valid until the UE completes the 5G-GUTI change.
    pub old_tmsi: Option<Tmsi>,
    /// Balancers that were the MMEs of the GUTIs with these TMSIs, 0 to 15; 0 in 5GS. They are
    /// stored apart.
    #[serde(skip)]
    pub mmes: [u8; 2],
}

impl Identity {
    /// Returns the GUTIs of the UE in EPS.
    pub fn gutis_of_eps(&self, config: &CoreConfig) -> impl Iterator<Item = Guti> + use<> {
        let mmes = self.mmes.map(|mme| config.mme(mme));
        let gutis = [self.tmsi, self.old_tmsi].into_iter().zip(mmes);
        gutis.filter_map(|(tmsi, guami)| Some(Guti { guami, tmsi: tmsi? }))
    }
}

/// 5GMM state of the UE in the network (TS 24.501 5.1.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    #[default]
    Deregistered,
    Registered,
    /// Registered for emergency services alone (TS 23.501 5.16.4.1). Release 0.2.0 cannot
    /// read it.
    Emergency,
}

/// 5GMM procedure in progress, with its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Procedure {
    Registration(Box<registration::Registering>),
    /// UE-triggered service request (TS 23.502 4.2.3.2).
    ServiceRequest(service_request::ServiceRequestPending),
    /// Deregistration by the network.
    Deregistration(deregistration::Deregistering),
    Paging(paging::Paging),
    /// Configuration update or GUTI reallocation. Release 0.2.0 does not read it.
    ConfigurationUpdate(configuration_update::Updating),
    /// Authentication of a registered UE. Release 0.2.0 does not read it.
    Authentication(Box<authentication::Authenticating>),
}

impl Procedure {
    /// Wraps a registration in progress.
    pub fn registration(registering: registration::Registering) -> Self {
        Procedure::Registration(Box::new(registering))
    }

    /// Returns the security sub-procedure while it is in progress.
    pub fn securing(&mut self) -> Option<&mut SecuritySetup> {
        match self {
            Procedure::Registration(registering) => registering.securing(),
            Procedure::Authentication(authenticating) => Some(&mut authenticating.securing),
            _ => None,
        }
    }

    /// Returns true if the security sub-procedure is in progress, which gives the UE other keys.
    pub fn is_securing(&self) -> bool {
        match self {
            Procedure::Registration(registering) => registering.is_securing(),
            procedure => matches!(procedure, Procedure::Authentication(_)),
        }
    }

    /// Returns the response of the security sub-procedure that the network waits for.
    pub fn awaited(&self) -> AwaitedResponse {
        match self {
            Procedure::Registration(registering) => registering.awaited(),
            Procedure::Authentication(authenticating) => authenticating.securing.awaited(),
            _ => AwaitedResponse::Nothing,
        }
    }
}

impl UeContext {
    /// Returns the context of a UE that is not registered.
    pub fn new(ltmsi: Ltmsi) -> Self {
        UeContext {
            ltmsi,
            sequence: 0,
            identity: Identity::default(),
            registration: Registration::Deregistered,
            security: None,
            security_capability: UeSecurityCapability::default(),
            subscription: None,
            allowed: SmallVec::new(),
            radio_capability: Vec::new(),
            sessions: Vec::new(),
            remote_sessions: RemoteSessions::default(),
            next_session: 0,
            connection: None,
            connections: 0,
            procedure: None,
            handover: None,
            deferred: Vec::new(),
            source: None,
            pending: PendingWork::default(),
            reachability: Reachability::default(),
        }
    }

    /// Returns the dialect of the UE: that of its connection, else that of its keys.
    pub fn dialect(&self) -> Dialect {
        let of_keys = || self.security.as_ref().map(NasSecurity::dialect);
        self.connection.map(|connection| connection.assoc.dialect()).or_else(of_keys).unwrap_or_default()
    }

    /// Returns the dialect of the UE's sessions: that of its keys, else that of its connection. It
    /// differs from [`UeContext::dialect`] while a UE moves to the other dialect and has not taken
    /// the keys of that one into use.
    pub fn session_dialect(&self) -> Dialect {
        self.security.as_ref().map_or_else(|| self.dialect(), NasSecurity::dialect)
    }

    /// Returns true if the UE is registered, and has thus proved that it has the keys.
    pub fn is_registered(&self) -> bool {
        self.registration != Registration::Deregistered
    }

    /// Returns true if a handover is in progress.
    pub fn is_in_handover(&self) -> bool {
        self.handover.as_ref().is_some_and(handover::Handover::is_in_progress)
    }

    /// Returns true if a path switch is in progress: its request has no answer yet.
    pub fn is_switching_path(&self) -> bool {
        matches!(self.handover, Some(handover::Handover::Switching(_)))
    }

    /// Returns true if the UE was commanded from one RAN node to another and is not known to have
    /// arrived.
    pub fn is_between_nodes(&self) -> bool {
        self.handover.as_ref().and_then(handover::Handover::target).is_some_and(handover::N2Handover::is_commanded)
    }

    /// Returns true if messages of sessions to UE and RAN wait: the UE is between two RAN nodes, or
    /// takes other keys into use, or an attach sends them in its own answer.
    pub fn defers_session_messages(&self) -> bool {
        let waits = match &self.procedure {
            Some(Procedure::Registration(registering)) => registering.awaits_bearer(),
            Some(procedure @ Procedure::Authentication(_)) => procedure.awaited() == AwaitedResponse::SecurityMode,
            _ => false,
        };
        waits || self.is_between_nodes()
    }

    /// Returns the AMF-UE-NGAP-IDs that messages about the UE may have: of its connection, of the
    /// handover target, and of a source node that has not released it. Their LTMSIs refer to this
    /// context.
    pub fn amf_ids(&self) -> impl Iterator<Item = AmfUeNgapId> {
        let target = self.handover.as_ref().and_then(handover::Handover::target).map(|m| m.amf_id);
        let source = self.source.map(|s| s.connection.amf_id);
        self.connection.map(|c| c.amf_id).into_iter().chain(target).chain(source)
    }

    /// Returns the associations of the RAN node of the connection and of the handover target.
    pub fn associations(&self) -> impl Iterator<Item = AssocId> {
        let target = self.handover.as_ref().and_then(handover::Handover::target).map(|target| target.assoc);
        self.connection.map(|connection| connection.assoc).into_iter().chain(target)
    }

    /// Returns the UE-AMBR for the RAN node of the UE.
    pub fn ambr(&self) -> Ambr {
        self.ambr_in(self.dialect())
    }

    /// Returns the UE-AMBR for a RAN node of this dialect. A gNB limits the subscribed one to the
    /// sum of the Session-AMBRs by itself (TS 23.501 5.7.1.8); in EPS the MME does (TS 23.401
    /// 4.7.3).
    pub(crate) fn ambr_in(&self, dialect: Dialect) -> Ambr {
        let subscribed = self.subscription.as_ref().map(|s| s.ambr).unwrap_or_default();
        if dialect == Dialect::Nr {
            return subscribed;
        }
        let used = self.sessions.iter().filter(|session| session.remains()).map(|session| session.terms.ambr);
        let sum = used.fold(Ambr { uplink_bps: 0, downlink_bps: 0 }, |sum, ambr| Ambr {
            uplink_bps: sum.uplink_bps.saturating_add(ambr.uplink_bps),
            downlink_bps: sum.downlink_bps.saturating_add(ambr.downlink_bps),
        });
        Ambr {
            uplink_bps: subscribed.uplink_bps.min(sum.uplink_bps),
            downlink_bps: subscribed.downlink_bps.min(sum.downlink_bps),
        }
    }

    /// Returns the Index to RAT/Frequency Selection Priority of the subscriber.
    pub fn rfsp(&self) -> Option<NonZeroU16> {
        self.subscription.as_ref().and_then(|subscription| subscription.rfsp)
    }

    /// Returns the restrictions of the subscriber by tracking area. A UE that is registered for
    /// emergency services alone has none (TS 23.501 5.16.4.1).
    pub fn areas(&self) -> Option<&AreaRestrictions> {
        let subscription = self.subscription.as_ref().filter(|_| self.registration != Registration::Emergency)?;
        Some(&subscription.areas)
    }

    /// Returns true if the UE has an emergency PDU session or PDN connection.
    pub fn has_emergency_session(&self, config: &CoreConfig) -> bool {
        self.sessions.iter().any(|session| session.is_live() && config.is_emergency(&session.terms.dnn))
    }

    /// Returns true if the UE may not use NR as secondary RAT, by subscription or configuration.
    pub fn restricts_dcnr(&self, config: &CoreConfig) -> bool {
        config.eps.restricts_dcnr || self.subscription.as_ref().is_some_and(|s| s.restricts_dcnr)
    }

    /// Returns the live session with this PDU session ID, or EPS bearer identity in EPS.
    pub fn session(&mut self, psi: u8) -> Option<&mut SmContext> {
        self.sessions.iter_mut().find(|s| s.id() == psi && s.is_live())
    }

    /// Returns the earliest stored deadline.
    pub fn deadline(&self) -> Option<Instant> {
        let procedure = match &self.procedure {
            None => None,
            Some(Procedure::Registration(r)) => r.deadline(),
            Some(Procedure::ServiceRequest(s)) => Some(s.deadline()),
            Some(Procedure::Deregistration(d)) => Some(d.deadline()),
            Some(Procedure::Paging(p)) => Some(p.deadline()),
            Some(Procedure::ConfigurationUpdate(u)) => Some(u.deadline()),
            Some(Procedure::Authentication(a)) => Some(a.deadline()),
        };
        let ran = self.connection.and_then(|c| match c.ran {
            RanContext::SettingUp { deadline }
            | RanContext::Rekeying { deadline, .. }
            | RanContext::Releasing { deadline } => Some(deadline),
            RanContext::None | RanContext::Secured | RanContext::SetUp => None,
        });
        let sessions = self.sessions.iter().filter_map(crate::smf::deadline).min();
        let handover = self.handover.as_ref().and_then(handover::Handover::deadline);
        let source = self.source.map(|s| s.deadline());
        [procedure, ran, sessions, handover, source, self.reachability.expires].into_iter().flatten().min()
    }

    /// Returns the 5G-GUTI with this 5G-TMSI.
    pub fn guti(config: &CoreConfig, tmsi: Tmsi) -> Guti {
        Guti { guami: config.guami(), tmsi }
    }
}

/// Returns true if the configuration serves the TAI.
pub fn is_served(config: &CoreConfig, tai: Tai) -> bool {
    config.plmns.contains(&tai.plmn) && config.tacs.contains(&Tac(tai.tac.0))
}
