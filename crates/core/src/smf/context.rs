//! SM context: the state of one PDU session, as plain data.

use super::terms::SessionTerms;
use crate::subscription::Ambr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::{IpAddr, SocketAddr};
use vireo_types::{Dialect, Dnn, Instant, Ltmsi, PduSessionType, Seid, SessionAddress, SessionIndex, Snssai, Teid};

/// SM context: one PDU session as the SMF stores it. Plain data, loaded and stored with its UE at
/// every step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmContext {
    /// PDU session identity, 1 to 15. 0 for a PDN connection to which the UE has assigned none; it
    /// cannot move to 5G. [`SmContext::id`] is the identity that UE and RAN use.
    pub psi: u8,
    /// Dialect of the UE that has the session. It is not stored: the context that has the session
    /// sets it when it is loaded.
    #[serde(skip)]
    pub dialect: Dialect,
    /// Index in the UE's context.
    pub index: SessionIndex,
    pub terms: SessionTerms,
    pub kind: PduSessionType,
    /// Addresses assigned to the UE.
    pub address: SessionAddress,
    /// True for an always-on PDU session (TS 24.501 6.1.4.2).
    pub always_on: bool,
    /// Maximum data rate per UE for user data integrity protection, as received (TS 24.501
    /// 9.11.4.7).
    pub integrity_rate: u16,
    pub pfcp: PfcpSession,
    /// UPF end of N3, to which the RAN sends.
    pub uplink: Option<Tunnel>,
    /// RAN end of N3, to which the UPF must forward; `None` if the UPF must buffer.
    pub downlink: Option<Tunnel>,
    /// Handover in progress, or completed a short time ago.
    #[serde(default, rename = "target")]
    pub handover: SessionHandover,
    /// True if the UPF must send an end marker to the previous RAN node (TS 29.281 7.3.2).
    pub end_marker: bool,
    /// State towards the UE.
    pub stage: Stage,
    /// State towards the RAN.
    pub ran: RanState,
    /// State towards the UPF.
    pub n4: N4State,
    /// Volume carried, as far as reported.
    pub usage: Usage,
    /// Relocation to another UPF in progress.
    pub relocation: Option<Box<Relocation>>,
    /// Time at which [`super::Input::Deadline`] is due.
    pub deadline: Option<Instant>,
    /// Time at which the UE requested the session or its user plane; start of latency measurements.
    pub since: Instant,
}

/// Change of the QoS of a session by the network, in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermsChange {
    pub upf: UpfUpdate,
    pub command: ModificationCommand,
    /// Time at which the change began.
    pub since: Instant,
    #[serde(default)]
    pub ran: RanTerms,
}

/// QoS of a session that the RAN node applies during a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RanTerms {
    /// Accepted terms that another change has replaced since.
    #[default]
    Unknown,
    /// The terms before the change, or those of the change once the RAN node has accepted it.
    Applied(QosTerms),
    /// The RAN node has refused the change: the session has its former terms, of which the UE is
    /// to learn.
    Refused,
}

/// Terms of a session of which the RAN node learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosTerms {
    /// Session aggregate maximum bit rate.
    pub ambr: Ambr,
    /// 5QI of the default QoS flow.
    pub five_qi: u8,
    /// ARP priority of the default QoS flow.
    pub arp_priority: u8,
}

/// State of a change towards the UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpfUpdate {
    /// It is sent once no other request is outstanding.
    Due,
    Outstanding {
        /// True if the rate has changed since it was sent.
        stale: bool,
    },
    /// The UPF applies the terms.
    Done,
}

/// State of a change towards the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModificationCommand {
    /// It is sent once the UE is connected.
    Due,
    /// It was sent, and T3591 or T3486 runs.
    Sent {
        repeats: u8,
        deadline: Instant,
        /// True if the terms have changed since.
        stale: bool,
    },
    /// The UE has confirmed it.
    Done,
    /// The UE has rejected it, or does not answer.
    Failed,
}

impl TermsChange {
    /// Returns the time of the next retransmission of the command.
    pub fn deadline(&self) -> Option<Instant> {
        match self.command {
            ModificationCommand::Sent { deadline, .. } => Some(deadline),
            ModificationCommand::Due | ModificationCommand::Done | ModificationCommand::Failed => None,
        }
    }
}

/// Name of a session's PFCP session: the UPF, and the SEIDs at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PfcpSession {
    /// PFCP endpoint of the UPF.
    pub upf: SocketAddr,
    /// SEID at the SMF.
    pub cp_seid: Seid,
    /// SEID at the UPF; 0 until the UPF has answered.
    pub up_seid: u64,
    /// True if the other end of its tunnel is at the control plane, which sends user data over NAS
    /// (control plane CIoT EPS optimisation). It is set like [`SmContext::dialect`], and means
    /// nothing in 5GS.
    #[serde(skip)]
    pub over_nas: bool,
}

/// One end of a GTP-U tunnel (F-TEID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Address of the receiving node.
    pub address: IpAddr,
    /// TEID allocated by the receiving node.
    pub teid: Teid,
}

/// Handover of a session, as far as it concerns the session alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionHandover {
    /// N3 end of the target RAN node of a handover in progress.
    pub target: Option<Tunnel>,
    /// Forwarding of packets by the source. A separate SMF (SBA mode) has none.
    pub forwarding: Option<Box<Forwarding>>,
}

/// Stored form of [`SessionHandover`] in formats that name the fields. Release 0.2.0 has the target
/// alone, as do formats without names: the UE's context and the record of a separate SMF have
/// `forwarding` apart, or none.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NamedHandover {
    /// The first one: absent fields of the other are none.
    Target(Option<Tunnel>),
    Forwarding {
        target: Option<Tunnel>,
        forwarding: Option<Box<Forwarding>>,
    },
}

impl Serialize for SessionHandover {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let SessionHandover { target, forwarding } = self;
        if forwarding.is_none() || !s.is_human_readable() {
            return target.serialize(s);
        }
        NamedHandover::Forwarding { target: *target, forwarding: forwarding.clone() }.serialize(s)
    }
}

impl<'de> Deserialize<'de> for SessionHandover {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let form = match d.is_human_readable() {
            true => NamedHandover::deserialize(d)?,
            false => NamedHandover::Target(Option::deserialize(d)?),
        };
        Ok(match form {
            NamedHandover::Forwarding { target, forwarding } => SessionHandover { target, forwarding },
            NamedHandover::Target(target) => SessionHandover { target, forwarding: None },
        })
    }
}

/// Forwarding of packets from the source RAN node of a handover to its target (TS 23.502 4.9.1.3.2
/// steps 8 and 11, TS 23.401 5.5.1.2.2 steps 6 and 8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    pub step: ForwardingStep,
    /// Rules of forwarding tunnels that the UPF has, of this handover or the one before.
    pub installed: Option<ForwardingRules>,
    /// Request about these rules that the UPF has not answered.
    pub request: Option<ForwardingRequest>,
    /// Time at which the rules are removed.
    pub deadline: Option<Instant>,
}

/// Ends of the tunnels for forwarded packets of each direction of the UE's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardingEnds {
    pub downlink: Option<Tunnel>,
    pub uplink: Option<Tunnel>,
}

impl ForwardingEnds {
    /// Returns true if no packets are forwarded.
    pub fn is_empty(&self) -> bool {
        self.downlink.is_none() && self.uplink.is_none()
    }
}

/// Rules of forwarding tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardingRules {
    /// Dialect of the target.
    pub target: Dialect,
    /// Directions that have a tunnel.
    pub downlink: bool,
    pub uplink: bool,
}

/// Step of [`Forwarding`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForwardingStep {
    /// The source requires the handover.
    Required {
        /// True if the source has a direct path to the target.
        is_direct: bool,
    },
    /// The target is ready. The UPF allocates tunnels for the source.
    Preparing {
        /// Ends of the tunnels for forwarded packets at the target.
        to: ForwardingEnds,
        /// Dialect of the target.
        dialect: Dialect,
    },
    /// The command to the source has these octets ([`super::N2Sm::HandoverCommand`]).
    Ready(Vec<u8>),
    /// No packets are forwarded, or no more.
    Ended,
}

/// Request to the UPF about forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForwardingRequest {
    /// Create these rules.
    Create(ForwardingRules),
    Remove,
}

/// State of a session towards the UE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The UE has requested the session and has no answer yet.
    Requested {
        /// PTI of the request.
        pti: u8,
        /// Cause of the accept: #50, #51 or #52 (EPS) if one of two address types is assigned.
        cause: Option<u8>,
        /// Protocol configuration options of the accept; empty = none. In EPS, those of the
        /// extended IE have a mark (`smf/options.rs`).
        options: Vec<u8>,
    },
    /// The accept was sent, with the setup of the user plane.
    Accepted {
        /// PTI of the request.
        pti: u8,
    },
    /// The UE has the session.
    Established,
    /// PDU SESSION RELEASE COMMAND, or DEACTIVATE EPS BEARER CONTEXT REQUEST, was sent, and T3592
    /// or T3495 runs.
    Releasing {
        /// PTI of the UE's request; 0 if the network releases.
        pti: u8,
        /// 5GSM or ESM cause of the command.
        cause: u8,
        /// Number of retransmissions of the command.
        repeats: u8,
    },
    /// The session is released at the UE; only the UPF has not answered.
    Ended,
    /// EPS, outside an attach: the activation request was sent with the set-up of the user plane,
    /// and T3485 runs (TS 24.301 6.4.1.6 a).
    Activating {
        /// PTI of the request.
        pti: u8,
        request: Vec<u8>,
        repeats: u8,
    },
}

/// State of a session towards the RAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RanState {
    /// The RAN has no resources of the session.
    Idle,
    /// Setup starts as soon as the UPF has allocated its tunnel.
    AwaitingUpf,
    /// The set-up of the PDU session resources, or of the E-RAB, is outstanding.
    SettingUp,
    /// The user plane is set up.
    Up,
    /// Release is outstanding; `again`: setup follows, because the UPF's tunnel has changed.
    Releasing {
        /// True if setup follows.
        then_setup: bool,
    },
}

/// State of a session towards the UPF. At most one request is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum N4State {
    /// A session establishment is outstanding.
    Establishing,
    /// The UPF has the session and applies [`SmContext::downlink`].
    #[serde(rename = "Told")]
    Synced,
    /// A session modification is outstanding; `stale` if `downlink` has changed since it was sent.
    #[serde(rename = "Telling")]
    Updating {
        /// True if another modification must follow.
        stale: bool,
    },
    /// A session deletion is outstanding.
    Deleting,
    /// The session is deleted at the UPF.
    Deleted,
    /// A session establishment (while the SEID at the UPF is 0) or modification is outstanding. The
    /// session has moved to the other dialect since, so that another modification must follow.
    Converting,
}

/// Volume that a session has carried, in octets of user packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Octets from the UE.
    pub uplink: u64,
    /// Octets to the UE.
    pub downlink: u64,
    /// True if the UPF's granted volume is used up.
    pub spent: bool,
    /// True if the outstanding request to the UPF concerns charging only.
    pub is_requested: bool,
}

/// Relocation of a session from one UPF to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relocation {
    /// Session at the UPF that is not [`SmContext::pfcp`]'s: first the target, then the source.
    pub pfcp: PfcpSession,
    pub step: RelocationStep,
    /// End of the time for packets in transit, or of the wait for the RAN's answer.
    pub deadline: Option<Instant>,
    /// Time of the request.
    pub since: Instant,
}

/// Step of a relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelocationStep {
    /// The source is asked for the carried volume, because the quota must be divided.
    QueryingUsage,
    /// The source is limited to this part of the quota, in octets.
    SplittingQuota(u64),
    /// The target is asked to establish the session.
    Preparing,
    /// The target has established it with this tunnel end; the source must answer another request
    /// first.
    Prepared(Tunnel),
    /// The session is at the target. The source is asked to send the End Marker to the RAN.
    Ending {
        /// RAN end of the tunnel.
        to: Tunnel,
        /// True if an answer of the RAN is outstanding.
        ran: bool,
        /// True if the target has buffered a downlink packet.
        waits: bool,
    },
    /// Packets in transit pass through the source.
    Draining {
        /// True if an answer of the RAN is outstanding.
        ran: bool,
        /// True if the source buffers downlink packets for an idle UE.
        waits: bool,
    },
    /// A session deletion is outstanding at the UPF that the session has left.
    Deleting {
        /// True if the session has moved: the deletion completes the relocation. Else the
        /// relocation failed.
        done: bool,
    },
}

impl RelocationStep {
    pub(super) fn ran(&mut self) -> Option<&mut bool> {
        match self {
            RelocationStep::Ending { ran, .. } | RelocationStep::Draining { ran, .. } => Some(ran),
            _ => None,
        }
    }
}

/// Status of one session for the status interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// PDU session identity, 1 to 15, or EPS bearer identity, 5 to 15.
    pub psi: u8,
    pub snssai: Snssai,
    pub dnn: Dnn,
    pub kind: PduSessionType,
    /// Addresses assigned to the UE.
    pub address: SessionAddress,
    /// Session aggregate maximum bit rate.
    pub ambr: Ambr,
    /// 5QI of the default QoS flow.
    pub five_qi: u8,
    /// PFCP endpoint of the UPF.
    pub upf: SocketAddr,
    pub state: SessionState,
}

/// Activity of a session, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// The UE has no accept yet.
    Establishing,
    /// The user plane is set up.
    Active,
    /// The session exists without user plane.
    Inactive,
    /// The session is being released.
    Releasing,
}

/// EPS bearer identity of the session with index 0 (TS 24.007 11.2.3.1.5: 5 to 15).
const FIRST_EBI: u8 = 5;

/// Returns the EPS bearer identity of the default bearer of the session with this index. `None` if
/// the UE has no bearer left for it: EPS has 11 bearers.
///
/// It follows from the index, so that a session has it from its start on, in both dialects.
pub fn ebi(index: SessionIndex) -> Option<u8> {
    index.checked_add(FIRST_EBI).filter(|ebi| *ebi <= 15)
}

impl SmContext {
    /// Returns the identity by which UE and RAN know the session: the PDU session identity, or the
    /// EPS bearer identity in EPS.
    pub fn id(&self) -> u8 {
        self.id_in(self.dialect)
    }

    /// Returns true unless the RAN has named an address of the UPF as its end. Packets would return
    /// to the UPF.
    pub(super) fn may_be_at_ran(&self, end: &Tunnel) -> bool {
        self.uplink.is_none_or(|own| own.address != end.address)
    }

    /// Returns the identity that the session has in a dialect; 0 if it has none there.
    pub fn id_in(&self, dialect: Dialect) -> u8 {
        match dialect {
            Dialect::Nr => self.psi,
            Dialect::Eps => ebi(self.index).unwrap_or_default(),
        }
    }

    /// Returns true if user data of the session are sent over NAS.
    pub fn is_over_nas(&self) -> bool {
        self.pfcp.over_nas && self.dialect == Dialect::Eps
    }

    /// Returns true if the session is also at another UPF than that of [`SmContext::pfcp`].
    pub fn is_relocating(&self) -> bool {
        self.relocation.is_some()
    }

    /// Returns the session for the status interface.
    pub fn summary(&self) -> SessionStatus {
        SessionStatus {
            psi: self.id(),
            snssai: self.terms.snssai,
            dnn: self.terms.dnn.clone(),
            kind: self.kind,
            address: self.address,
            ambr: self.terms.ambr,
            five_qi: self.terms.five_qi,
            upf: self.pfcp.upf,
            state: self.state(),
        }
    }

    /// Returns the SEID at the SMF that the session has with a UPF.
    pub fn seid_at(&self, upf: SocketAddr) -> Seid {
        self.relocation.as_ref().map(|other| other.pfcp).filter(|other| other.upf == upf).unwrap_or(self.pfcp).cp_seid
    }

    /// Returns true if the session is at a UPF under an SMF SEID, also during a relocation to or
    /// from that UPF.
    pub fn is_at(&self, upf: SocketAddr, seid: Seid) -> bool {
        let is_it = |pfcp: &PfcpSession| (pfcp.upf, pfcp.cp_seid) == (upf, seid);
        is_it(&self.pfcp) || self.relocation.as_deref().is_some_and(|other| is_it(&other.pfcp))
    }

    /// Returns the session's SEIDs at the SMF, including that for the other UPF of a relocation.
    pub fn seids(&self) -> impl Iterator<Item = Seid> {
        std::iter::once(self.pfcp.cp_seid).chain(self.relocation.as_ref().map(|other| other.pfcp.cp_seid))
    }

    /// Returns true if the UE has the session.
    pub fn is_established(&self) -> bool {
        self.stage == Stage::Established
    }

    /// Returns true if the accept was sent, and the session is not established yet.
    pub fn is_offered(&self) -> bool {
        matches!(self.stage, Stage::Accepted { .. } | Stage::Activating { .. })
    }

    /// Returns true if the RAN has set the user plane up. For a new session, the UPF's last answer
    /// may still be outstanding.
    pub fn is_up(&self) -> bool {
        self.ran == RanState::Up && (self.is_offered() || self.is_established())
    }

    /// Returns true if the user plane setup at the RAN is outstanding.
    pub fn is_setting_up(&self) -> bool {
        self.ran == RanState::SettingUp && (self.is_offered() || self.is_established())
    }

    /// Returns true if the session exists for the UE. An ended session only waits for the UPF.
    pub fn is_live(&self) -> bool {
        self.stage != Stage::Ended
    }

    /// Returns true if the session exists for the UE, and is not being released.
    pub fn remains(&self) -> bool {
        self.is_live() && !matches!(self.stage, Stage::Releasing { .. })
    }

    /// Returns the activity of the session.
    pub fn state(&self) -> SessionState {
        match (&self.stage, self.ran) {
            (Stage::Requested { .. } | Stage::Accepted { .. } | Stage::Activating { .. }, _) => {
                SessionState::Establishing
            }
            (Stage::Established, RanState::Up) => SessionState::Active,
            (Stage::Established, _) => SessionState::Inactive,
            (Stage::Releasing { .. } | Stage::Ended, _) => SessionState::Releasing,
        }
    }
}

/// Returns the time at which the session expects [`super::Input::Deadline`].
pub fn deadline(sm: &SmContext) -> Option<Instant> {
    let relocation = sm.relocation.as_ref().and_then(|relocation| relocation.deadline);
    let forwarding = sm.handover.forwarding.as_ref().and_then(|forwarding| forwarding.deadline);
    let command = sm.terms.change.as_ref().and_then(TermsChange::deadline);
    sm.deadline.into_iter().chain(relocation).chain(forwarding).chain(command).min()
}

/// Returns the session's SEID at the SMF.
pub fn seid(ltmsi: Ltmsi, index: SessionIndex, generation: u32) -> Seid {
    Seid::new(ltmsi, index, generation)
}
