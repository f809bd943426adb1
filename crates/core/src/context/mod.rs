//! The state of one UE: everything the network knows of a device, as plain data that can be stored, copied and moved.
//!
//! A context holds no lock, timer, handle or pointer: a timer is a stored deadline, a RAN node is an association
//! number. Perpetual state changes when a procedure ends; ephemeral state is what a running procedure or a signalling
//! connection needs, and is dropped with it (seed 1).

mod codec;
mod layout4;
pub(crate) mod octets;
mod packed;
mod parts;
mod resume;
mod security;
mod shared;

pub use codec::{
    CodecError, EncodedContext, IncrementalEncoder, LAYOUT_VERSION, OLDEST_LAYOUT, Versions, decode, encode,
    encode_after,
};
pub use resume::Counts;
pub use security::{NasSecurity, NextHop, NextHopChain, SecurityFault};

use crate::procedures::common::user_plane::DeferredSessionMessage;
use crate::procedures::{deregistration, handover, paging, registration, service_request};
use crate::sba::RemoteSessions;
use crate::session::SmContext;
use crate::subscription::{Ambr, Subscription};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::sync::Arc;
use vireo_types::{AmfUeNgapId, AssocId, Guti, Instant, Ltmsi, NrCgi, Pei, RanUeNgapId, Snssai, Supi, Tac, Tai, Tmsi};

/// One UE. Its stored form is [`encode`]'s; the one of serde, field by field, is for databases that an operator reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UeContext {
    /// Its number in the cluster.
    pub ltmsi: Ltmsi,
    /// The input that this state is the result of; a repeated input at or below it changes nothing.
    pub sequence: u64,
    /// Whom it belongs to.
    pub identity: Identity,
    /// 5GMM state of the UE in the network (TS 24.501 5.1.3.3).
    pub registration: Registration,
    /// The NAS security context in use.
    pub security: Option<NasSecurity>,
    /// UE security capability (TS 24.501 9.11.3.54), as the UE last gave it under integrity protection.
    pub security_capability: UeSecurityCapability,
    /// What the subscriber may do; there once authenticated. It is replaced, never changed: copies of the context share it, and two
    /// that do are known to be the same without a look at it.
    #[serde(default, with = "shared")]
    pub subscription: Option<Arc<Subscription>>,
    /// Allowed NSSAI.
    pub allowed: SmallVec<[Snssai; 2]>,
    /// UE Radio Capability, opaque (TS 38.413 9.3.1.74): given back to the RAN at every context set-up.
    pub radio_capability: Vec<u8>,
    /// PDU sessions.
    pub sessions: Vec<SmContext>,
    /// The sessions that an SMF elsewhere has, if that is so ([`crate::sba`]).
    pub chain: RemoteSessions,
    /// The number of the next session, for SEIDs.
    pub next_session: u32,
    /// The NG connection: there while the UE is CM-CONNECTED.
    pub connection: Option<Connection>,
    /// Generation of the latest AMF-UE-NGAP-ID, 1 to 4095; 0: there was none.
    pub connections: u16,
    /// The 5GMM procedure that runs.
    pub procedure: Option<Procedure>,
    /// A handover in progress: it goes on beside the 5GMM procedure.
    pub handover: Option<handover::Handover>,
    /// What sessions have to say to UE and RAN while the UE is on its way from one RAN node to another.
    pub held: Vec<DeferredSessionMessage>,
    /// The RAN node that the UE has left by a handover, until it has released the UE.
    pub source: Option<handover::SourceNode>,
    /// The registration area: where an idle UE is paged (TS 23.501 5.3.2.3).
    pub area: SmallVec<[Tai; 4]>,
    /// What the network wants of the UE as soon as it can be reached.
    pub wanted: PendingWork,
    /// The mobile reachable timer has expired: the UE is not paged any more (TS 24.501 5.3.7).
    pub unreachable: bool,
    /// When a UE that is not heard of is taken for gone (mobile reachable and implicit deregistration timers,
    /// TS 24.501 5.3.7), or when a deregistered context is forgotten.
    pub expires: Option<Instant>,
}

/// What the network wants of a UE that is idle or not yet ready for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingWork {
    /// Sessions whose user plane is wanted, a bit each.
    pub sessions: u16,
    /// A session has a NAS message for the UE.
    pub signalling: bool,
    /// The UE is to be deregistered; whether it shall register again.
    pub deregister: Option<bool>,
}

/// Who a UE is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its SUPI, once authenticated.
    pub supi: Option<Supi>,
    /// Its IMEISV.
    pub pei: Option<Pei>,
    /// Its 5G-TMSI.
    pub tmsi: Option<Tmsi>,
    /// The 5G-TMSI it had: both are valid until the UE completes the change.
    pub old_tmsi: Option<Tmsi>,
}

/// 5GMM state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    /// 5GMM-DEREGISTERED.
    #[default]
    Deregistered,
    /// 5GMM-REGISTERED.
    Registered,
}

/// UE security capability: the IE's octets (2 to 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeSecurityCapability {
    octets: [u8; 8],
    length: u8,
}

impl UeSecurityCapability {
    /// The capability of an IE's octets; what is beyond the 8 that TS 24.501 defines is cut.
    pub fn new(ie: &[u8]) -> Self {
        let length = ie.len().min(8);
        let mut octets = [0; 8];
        octets[..length].copy_from_slice(&ie[..length]);
        UeSecurityCapability { octets, length: length as u8 }
    }

    /// The octets of the IE.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.length).min(8)]
    }

    /// 5G-EA bits, EA0 the highest.
    pub fn ea(&self) -> u8 {
        self.octets[0]
    }

    /// 5G-IA bits, IA0 the highest.
    pub fn ia(&self) -> u8 {
        self.octets[1]
    }

    /// EEA bits, zero if the UE has no EPS capability.
    pub fn eea(&self) -> u8 {
        self.octets[2]
    }

    /// EIA bits.
    pub fn eia(&self) -> u8 {
        self.octets[3]
    }
}

/// The NG connection of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The RAN node, by the association on which it has set NG up (`RanNodes`); what it is sent may take another one.
    pub assoc: AssocId,
    /// The RAN node's number for the UE.
    pub ran_id: RanUeNgapId,
    /// Ours.
    pub amf_id: AmfUeNgapId,
    /// Where the UE is.
    pub tai: Tai,
    /// Its cell.
    pub cell: NrCgi,
    /// How far the UE context in the RAN is.
    pub ran: RanContext,
}

/// The UE context in the RAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RanContext {
    /// None yet: NAS transport only. The network has sent no ciphered message on the connection.
    None,
    /// Initial Context Setup Request sent.
    SettingUp {
        /// Until when its answer is waited for.
        deadline: Instant,
    },
    /// There.
    SetUp,
    /// UE Context Release Command sent.
    Releasing {
        /// Until when its answer is waited for.
        deadline: Instant,
    },
    /// None yet, and the secure exchange of NAS messages is established on the connection (TS 24.501 4.4.2.5), as it is
    /// in every state but [`RanContext::None`].
    Secured,
}

impl RanContext {
    /// Returns true if the RAN has no UE context and was not asked to set one up.
    pub fn is_none(self) -> bool {
        matches!(self, RanContext::None | RanContext::Secured)
    }
}

/// The 5GMM procedure that runs; each state owns what it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Procedure {
    /// Registration.
    Registration(Box<registration::Registering>),
    /// UE-triggered service request.
    ServiceRequest(service_request::ServiceRequestPending),
    /// Deregistration by the network.
    Deregistration(deregistration::Deregistering),
    /// Paging.
    Paging(paging::Paging),
}

impl Procedure {
    /// A registration in progress.
    pub fn registration(registering: registration::Registering) -> Self {
        Procedure::Registration(Box::new(registering))
    }
}

/// A retransmission timer as data: when the message is sent again, and how often it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// When.
    pub deadline: Instant,
    /// How often it was sent again.
    pub repeats: u8,
}

impl Retry {
    /// A first transmission at `now` with the timer's `period`.
    pub fn start(now: Instant, period: vireo_types::Duration) -> Self {
        Retry { deadline: now + period, repeats: 0 }
    }

    /// The next transmission, or `None` when `limit` repeats were made.
    pub fn next(self, now: Instant, period: vireo_types::Duration, limit: u8) -> Option<Self> {
        (self.repeats < limit).then(|| Retry { deadline: now + period, repeats: self.repeats + 1 })
    }
}

impl UeContext {
    /// A UE that was just heard of for the first time.
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
            chain: RemoteSessions::default(),
            next_session: 0,
            connection: None,
            connections: 0,
            procedure: None,
            handover: None,
            held: Vec::new(),
            source: None,
            area: SmallVec::new(),
            wanted: PendingWork::default(),
            unreachable: false,
            expires: None,
        }
    }

    /// Whether a step may act on NAS messages of the UE as its own: it has proved to hold the keys.
    pub fn is_registered(&self) -> bool {
        self.registration == Registration::Registered
    }

    /// Whether the UE has been sent from one RAN node to another and is at neither, as far as is known.
    pub fn is_between_nodes(&self) -> bool {
        self.handover.as_ref().and_then(handover::Handover::target).is_some_and(handover::N2Handover::is_commanded)
    }

    /// The AMF-UE-NGAP-IDs that messages about the UE may have: of its connection, of the target of a handover, and of
    /// the source that has not released it yet. Their LTMSIs are references to the context.
    pub fn amf_ids(&self) -> impl Iterator<Item = AmfUeNgapId> {
        let target = self.handover.as_ref().and_then(handover::Handover::target).map(|m| m.amf_id);
        let source = self.source.map(|s| s.connection.amf_id);
        self.connection.map(|c| c.amf_id).into_iter().chain(target).chain(source)
    }

    /// The associations of the nodes that the UE is connected by, or is about to be.
    pub fn associations(&self) -> impl Iterator<Item = AssocId> {
        let target = self.handover.as_ref().and_then(handover::Handover::target).map(|target| target.assoc);
        self.connection.map(|connection| connection.assoc).into_iter().chain(target)
    }

    /// UE aggregate maximum bit rate of the subscription.
    pub fn ambr(&self) -> Ambr {
        self.subscription.as_ref().map(|s| s.ambr).unwrap_or_default()
    }

    /// The session of a PDU session identity.
    pub fn session(&mut self, psi: u8) -> Option<&mut SmContext> {
        self.sessions.iter_mut().find(|s| s.psi == psi && s.is_live())
    }

    /// The earliest stored deadline.
    pub fn deadline(&self) -> Option<Instant> {
        let procedure = match &self.procedure {
            None => None,
            Some(Procedure::Registration(r)) => r.deadline(),
            Some(Procedure::ServiceRequest(s)) => Some(s.deadline()),
            Some(Procedure::Deregistration(d)) => Some(d.deadline()),
            Some(Procedure::Paging(p)) => Some(p.deadline()),
        };
        let ran = self.connection.and_then(|c| match c.ran {
            RanContext::SettingUp { deadline } | RanContext::Releasing { deadline } => Some(deadline),
            RanContext::None | RanContext::Secured | RanContext::SetUp => None,
        });
        let sessions = self.sessions.iter().filter_map(crate::session::deadline).min();
        let handover = self.handover.as_ref().and_then(handover::Handover::deadline);
        let source = self.source.map(|s| s.deadline());
        [procedure, ran, sessions, handover, source, self.expires].into_iter().flatten().min()
    }

    /// The 5G-GUTI of a 5G-TMSI.
    pub fn guti(config: &crate::config::CoreConfig, tmsi: Tmsi) -> Guti {
        Guti { guami: config.guami(), tmsi }
    }
}

/// The tracking area of the configuration that a TAI is, if it is served.
pub fn is_served(config: &crate::config::CoreConfig, tai: Tai) -> bool {
    config.plmns.contains(&tai.plmn) && config.tacs.contains(&Tac(tai.tac.0))
}
