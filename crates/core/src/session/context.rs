use super::charging::Usage;
use super::relocate::Relocation;
use crate::subscription::Ambr;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use vireo_types::{Dnn, Instant, PduSessionType, Seid, SessionAddress, SessionIndex, Snssai, Teid};

/// One PDU session as the SMF keeps it: plain data, loaded and stored with its UE at every step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmContext {
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    /// Its position in the UE's context.
    pub index: SessionIndex,
    /// The slice.
    pub snssai: Snssai,
    /// The data network.
    pub dnn: Dnn,
    /// The selected session type.
    pub kind: PduSessionType,
    /// The addresses given.
    pub address: SessionAddress,
    /// Session aggregate maximum bit rate.
    pub ambr: Ambr,
    /// 5QI of the default QoS flow.
    pub five_qi: u8,
    /// ARP priority of the default QoS flow.
    pub arp_priority: u8,
    /// An always-on session (TS 24.501 6.1.4.2).
    pub always_on: bool,
    /// Maximum data rate per UE for integrity protection of user data, as received (TS 24.501 9.11.4.7).
    pub integrity_rate: u16,
    /// The UPF's PFCP endpoint.
    pub upf: SocketAddr,
    /// The control plane's SEID for this session.
    pub cp_seid: Seid,
    /// The UPF's SEID for it; 0 until the UPF has answered.
    pub up_seid: u64,
    /// The UPF's end of N3, which the RAN sends to.
    pub uplink: Option<Tunnel>,
    /// The RAN's end of N3, which the UPF shall forward to; `None` while it shall buffer.
    pub downlink: Option<Tunnel>,
    /// The end of N3 of the RAN node that the UE is being handed over to.
    pub target: Option<Tunnel>,
    /// The UPF is to end the path to the RAN node before (end marker, TS 29.281 7.3.2).
    pub end_marker: bool,
    /// Where the session stands towards the UE.
    pub stage: Stage,
    /// Where it stands towards the RAN.
    pub ran: RanState,
    /// Where it stands towards the UPF.
    pub n4: N4State,
    /// What it has carried, as far as reported.
    pub usage: Usage,
    /// The session is on its way from one UPF to another.
    pub relocation: Option<Box<Relocation>>,
    /// When [`super::Input::Deadline`] is due.
    pub deadline: Option<Instant>,
    /// When the UE asked for the session, or for its user plane: what a latency is measured from.
    pub since: Instant,
}

/// One end of a GTP-U tunnel (an F-TEID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// The address of the node that receives.
    pub address: IpAddr,
    /// The TEID it gave.
    pub teid: Teid,
}

/// Where a session stands towards the UE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The UE asked for the session and has no answer yet.
    Requested {
        /// PTI of the request.
        pti: u8,
        /// The 5GSM cause of the accept: #50 or #51 where one of two address kinds is given.
        cause: Option<u8>,
        /// The extended protocol configuration options of the accept; empty = none.
        options: Vec<u8>,
    },
    /// The accept is on its way, with the set-up of the user plane.
    Accepted {
        /// PTI of the request.
        pti: u8,
    },
    /// The UE has the session.
    Established,
    /// PDU Session Release Command is sent and T3592 runs.
    Releasing {
        /// PTI of the UE's request; 0 if the network releases.
        pti: u8,
        /// The 5GSM cause told.
        cause: u8,
        /// How often the command was sent again.
        repeats: u8,
    },
    /// The UE has the session no more; only the UPF is waited for.
    Ended,
}

/// Where a session stands towards the RAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RanState {
    /// No resources there.
    Idle,
    /// To be set up as soon as the UPF has given its tunnel.
    Wanted,
    /// PDU Session Resource Setup is asked for.
    Asked,
    /// Set up.
    Up,
    /// Release is asked for; if `again`, to be set up anew afterwards (the UPF's tunnel has changed).
    Releasing {
        /// Whether to set it up anew.
        again: bool,
    },
}

/// Where a session stands towards the UPF. At most one request is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum N4State {
    /// A session establishment is outstanding.
    Establishing,
    /// The UPF has the session and knows what [`SmContext::downlink`] says.
    Told,
    /// A session modification is outstanding; `stale` if `downlink` has changed since it was sent.
    Telling {
        /// Whether to tell it once more.
        stale: bool,
    },
    /// A session deletion is outstanding.
    Deleting,
    /// The UPF has the session no more.
    Deleted,
}

/// One session for the status interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// PDU session identity.
    pub psi: u8,
    /// The slice.
    pub snssai: Snssai,
    /// The data network.
    pub dnn: Dnn,
    /// The selected session type.
    pub kind: PduSessionType,
    /// The addresses given.
    pub address: SessionAddress,
    /// Session aggregate maximum bit rate.
    pub ambr: Ambr,
    /// 5QI of the default QoS flow.
    pub five_qi: u8,
    /// The UPF's PFCP endpoint.
    pub upf: SocketAddr,
    /// What it is doing.
    pub state: SessionState,
}

/// What a session is doing, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// On its way to the UE.
    Establishing,
    /// Usable.
    Active,
    /// Kept while the UE has no user plane.
    Inactive,
    /// On its way out.
    Releasing,
}

impl SmContext {
    /// The session for the status interface.
    pub fn summary(&self) -> SessionStatus {
        SessionStatus {
            psi: self.psi,
            snssai: self.snssai,
            dnn: self.dnn.clone(),
            kind: self.kind,
            address: self.address,
            ambr: self.ambr,
            five_qi: self.five_qi,
            upf: self.upf,
            state: self.state(),
        }
    }

    /// The control plane's SEID for the session at that UPF.
    pub fn seid_at(&self, upf: SocketAddr) -> Seid {
        self.relocation.as_ref().filter(|other| other.upf == upf).map_or(self.cp_seid, |other| other.cp_seid)
    }

    /// Returns true if the session is at that UPF under that SEID of the control plane, also while it moves there or away.
    pub fn is_at(&self, upf: SocketAddr, seid: Seid) -> bool {
        let moves = |other: &Relocation| (other.upf, other.cp_seid) == (upf, seid);
        (self.upf, self.cp_seid) == (upf, seid) || self.relocation.as_deref().is_some_and(moves)
    }

    /// The control plane's SEIDs for the session, also at a UPF that it goes to or comes from.
    pub fn seids(&self) -> impl Iterator<Item = Seid> {
        std::iter::once(self.cp_seid).chain(self.relocation.as_ref().map(|other| other.cp_seid))
    }

    /// Whether the UE has the session.
    pub fn is_established(&self) -> bool {
        self.stage == Stage::Established
    }

    /// Whether it has its user plane at the RAN: of a new session, the UPF's last answer may still be on its way.
    pub fn is_up(&self) -> bool {
        self.ran == RanState::Up && matches!(self.stage, Stage::Accepted { .. } | Stage::Established)
    }

    /// Whether the RAN was asked to set its user plane up and has not answered.
    pub fn is_asked(&self) -> bool {
        self.ran == RanState::Asked && matches!(self.stage, Stage::Accepted { .. } | Stage::Established)
    }

    /// Whether the session is anything to the UE: one that has ended is only waiting for the UPF.
    pub fn is_live(&self) -> bool {
        self.stage != Stage::Ended
    }

    /// What the session is doing.
    pub fn state(&self) -> SessionState {
        match (&self.stage, self.ran) {
            (Stage::Requested { .. } | Stage::Accepted { .. }, _) => SessionState::Establishing,
            (Stage::Established, RanState::Up) => SessionState::Active,
            (Stage::Established, _) => SessionState::Inactive,
            (Stage::Releasing { .. } | Stage::Ended, _) => SessionState::Releasing,
        }
    }
}
