//! gNB as a pure state machine over NGAP (TS 38.413).
//!
//! Input is NGAP PDUs; output is NGAP PDUs and events. The gNB has no SCTP, no clock and no NAS
//! decoder. NAS messages are opaque octets. The caller identifies a UE by a number of its choice
//! (the *owner*). The gNB allocates RAN-UE-NGAP-IDs and its N3 TEIDs.

mod association;
mod error;
mod handover;
mod receive;
mod request;
mod resource;

pub use association::MOST_ASSOCIATIONS;
pub use error::{SendError, Violation};
pub use handover::XnHandoverContext;

pub use crate::ran::{NOBODY, Outbox, PduRoute, Tunnel, downlink_owner, downlink_teid};

use crate::ran::{Connection, Connections};
use association::Association;
use std::net::IpAddr;
use vireo_types::{GnbId, RanUeNgapId, Snssai, Tai, Tmsi};
use vireo_wire::ngap::{Cause, CauseRadioNetwork, Error, NGAPPDU};

/// NGAP payload protocol identifier (TS 38.412 7).
pub const PPID: u32 = 60;

/// Configuration of a gNB.
#[derive(Clone, Debug)]
pub struct GnbConfig {
    pub id: GnbId,
    pub name: String,
    pub tai: Tai,
    /// Slices supported in the tracking area.
    pub slices: Vec<Snssai>,
    pub n3: IpAddr,
}

/// State of the NG interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NgState {
    /// No association, or NG SETUP REQUEST was not sent yet.
    Down,
    /// NG SETUP REQUEST was sent.
    SettingUp,
    /// NG SETUP RESPONSE was received.
    Up,
}

/// Event for the caller of the gNB.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// NG SETUP RESPONSE: the interface is up.
    Ready,
    SetupFailed(Cause),
    /// NAS message for a UE.
    Nas {
        owner: u32,
        range: std::ops::Range<usize>,
    },
    /// INITIAL CONTEXT SETUP REQUEST with the UE's security key. Its NAS follows as [`Event::Nas`].
    ContextSetup {
        owner: u32,
        key: [u8; 32],
    },
    /// The tunnel of a PDU session is set up.
    TunnelUp {
        owner: u32,
        psi: u8,
    },
    /// The tunnel of a PDU session is released.
    TunnelDown {
        owner: u32,
        psi: u8,
    },
    /// The tunnel of a PDU session has another end at the UPF.
    TunnelModified {
        owner: u32,
        psi: u8,
    },
    /// The UE's NG connection is released.
    Released {
        owner: u32,
        cause: Cause,
    },
    /// PATH SWITCH REQUEST ACKNOWLEDGE with NH and its chaining counter.
    PathSwitched {
        owner: u32,
        /// Next Hop key (NH).
        key: [u8; 32],
        /// NH chaining counter (NCC).
        chaining: u8,
    },
    /// PATH SWITCH REQUEST FAILURE: this gNB loses the UE.
    PathSwitchFailed {
        owner: u32,
    },
    /// HANDOVER REQUEST was accepted: NH and its chaining counter.
    HandoverPrepared {
        owner: u32,
        /// UE's connection at the source.
        source: RanUeNgapId,
        target: RanUeNgapId,
        /// Next Hop key (NH).
        key: [u8; 32],
        /// NH chaining counter (NCC).
        chaining: u8,
    },
    /// HANDOVER COMMAND: the UE moves to the target.
    HandoverCommand {
        owner: u32,
        /// RAN-UE-NGAP-ID at the target.
        target: RanUeNgapId,
    },
    HandoverRefused {
        owner: u32,
    },
    HandoverCancelled {
        owner: u32,
    },
    /// DOWNLINK RAN STATUS TRANSFER was received.
    StatusTransfer {
        owner: u32,
    },
    /// Paging of the UE with this 5G-S-TMSI.
    Paging(Tmsi),
    /// NG RESET ACKNOWLEDGE to the gNB's own NG RESET.
    ResetDone,
    /// RAN CONFIGURATION UPDATE ACKNOWLEDGE (true) or FAILURE (false).
    ConfigurationUpdated(bool),
    /// AMF CONFIGURATION UPDATE: the AMF requests an association with each of these addresses. The
    /// caller answers with [`Gnb::acknowledge_associations`].
    AssociationsWanted(Vec<IpAddr>),
    /// AMF CONFIGURATION UPDATE: the AMF has removed these addresses; the caller closes
    /// associations with them.
    AssociationsRemoved(Vec<IpAddr>),
    /// ERROR INDICATION of the AMF.
    ErrorIndication(ErrorReport),
    /// OVERLOAD START (true) or STOP (false).
    Overload(bool),
    /// The AMF deviated from the specification.
    Violation(Violation),
}

impl Event {
    /// Returns the UE that the event concerns, if any.
    pub fn owner(&self) -> Option<u32> {
        match self {
            Event::Nas { owner, .. }
            | Event::ContextSetup { owner, .. }
            | Event::TunnelUp { owner, .. }
            | Event::TunnelDown { owner, .. }
            | Event::TunnelModified { owner, .. }
            | Event::Released { owner, .. }
            | Event::PathSwitched { owner, .. }
            | Event::PathSwitchFailed { owner }
            | Event::HandoverPrepared { owner, .. }
            | Event::HandoverCommand { owner, .. }
            | Event::HandoverRefused { owner }
            | Event::HandoverCancelled { owner }
            | Event::StatusTransfer { owner } => Some(*owner),
            _ => None,
        }
    }
}

/// Content of an ERROR INDICATION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// AMF-UE-NGAP-ID, if the message concerns a UE.
    pub amf_id: Option<u64>,
    /// RAN-UE-NGAP-ID, if the message concerns a UE.
    pub ran_id: Option<u32>,
    /// Cause IE, if present.
    pub cause: Option<Cause>,
    /// True if Criticality Diagnostics are present.
    pub diagnostics: bool,
}

/// Result of a received PDU. Reused, so that steps do not allocate.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Octets that [`Event::Nas`] refers to.
    pub nas: Vec<u8>,
    pub events: Vec<Event>,
}

impl Inbox {
    /// Removes the content and keeps the memory.
    pub fn clear(&mut self) {
        self.nas.clear();
        self.events.clear();
    }

    fn deliver(&mut self, owner: u32, nas: &[u8]) {
        let start = self.nas.len();
        self.nas.extend_from_slice(nas);
        self.events.push(Event::Nas { owner, range: start..self.nas.len() });
    }
}

fn encode_by(out: &mut Outbox, way: PduRoute, pdu: Result<NGAPPDU<'_>, Error>) -> Result<(), Error> {
    let pdu = pdu?;
    out.encode_with(way, |octets| pdu.encode_into(octets))
}

/// One gNB with its NG interface and connections.
#[derive(Debug)]
pub struct Gnb {
    config: GnbConfig,
    state: NgState,
    associations: Vec<Association>,
    /// Association of the last received AMF message.
    current: u8,
    connections: Connections,
    refuses_handover: bool,
    /// Session that the gNB refuses in a HANDOVER REQUEST.
    refuses_session: Option<u8>,
    container_octets: usize,
    /// Abandoned connection for which the AMF has just sent its ID, so that its release can be
    /// requested.
    found: Option<RanUeNgapId>,
}

impl Gnb {
    /// Creates a gNB whose association is down.
    pub fn new(config: GnbConfig) -> Self {
        Gnb {
            config,
            state: NgState::Down,
            associations: Vec::new(),
            current: 0,
            connections: Connections::default(),
            refuses_handover: false,
            refuses_session: None,
            container_octets: 0,
            found: None,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &GnbConfig {
        &self.config
    }

    /// Returns the state of the NG interface.
    pub fn state(&self) -> NgState {
        self.state
    }

    /// Returns the number of connected UEs.
    pub fn connected(&self) -> usize {
        self.connections.len()
    }

    /// Returns the UE of a RAN-UE-NGAP-ID.
    pub fn owner(&self, ran: RanUeNgapId) -> Option<u32> {
        self.connection(ran).map(|connection| connection.owner)
    }

    /// Returns the AMF-UE-NGAP-ID of a connection, once the AMF has assigned it.
    pub fn amf_id(&self, ran: RanUeNgapId) -> Option<u64> {
        self.connection(ran)?.core_id
    }

    /// Returns the tunnels of a UE.
    pub fn tunnels(&self, ran: RanUeNgapId) -> &[Tunnel] {
        self.connections.tunnels(ran)
    }

    /// Drops the tunnel of a UE's first session. The gNB still knows the session.
    pub fn lose_tunnel(&mut self, ran: RanUeNgapId) -> Option<Tunnel> {
        let tunnels = &mut self.connection_mut(ran)?.tunnels;
        (!tunnels.is_empty()).then(|| tunnels.remove(0))
    }

    /// Handles the loss of all associations: every UE is idle and the interface is down.
    pub fn on_association_lost(&mut self) {
        self.state = NgState::Down;
        self.all_down();
        self.connections.clear();
    }

    fn connection(&self, ran: RanUeNgapId) -> Option<&Connection> {
        self.connections.get(ran)
    }

    fn connection_mut(&mut self, ran: RanUeNgapId) -> Option<&mut Connection> {
        self.connections.get_mut(ran)
    }

    /// Returns true if the UE of this connection left without signalling, also after the connection
    /// ended.
    pub fn is_abandoned(&self, ran: RanUeNgapId) -> bool {
        self.connections.is_abandoned(ran)
    }

    fn allocate(&mut self, owner: u32) -> RanUeNgapId {
        self.connections.allocate(owner, self.choose(owner))
    }

    /// Removes a connection that the AMF never answered. Returns its owner.
    pub fn forget(&mut self, ran: RanUeNgapId) -> Option<u32> {
        self.remove(ran)
    }

    /// Removes a prepared connection whose UE will not arrive. It emits no event.
    pub fn drop_prepared(&mut self, ran: RanUeNgapId) {
        if let Some(connection) = self.connection_mut(ran) {
            connection.abandoned = true;
        }
    }

    /// Abandons the connection after a radio link failure: it emits no further event for the UE.
    /// The gNB requests the release, at once or after the AMF's first answer.
    pub fn abandon(&mut self, ran: RanUeNgapId, out: &mut Outbox) -> Result<(), SendError> {
        let Some(connection) = self.connection_mut(ran) else { return Ok(()) };
        connection.abandoned = true;
        if connection.core_id.is_none() {
            return Ok(());
        }
        self.request_release(ran, Cause::radioNetwork(CauseRadioNetwork::radio_connection_with_ue_lost), out)
    }

    /// Removes a connection. Returns its owner.
    fn remove(&mut self, ran: RanUeNgapId) -> Option<u32> {
        self.connections.remove(ran)
    }
}
