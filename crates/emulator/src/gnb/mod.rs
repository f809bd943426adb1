//! A gNB as a pure state machine over NGAP (TS 38.413): NGAP PDUs in, NGAP PDUs and events out.
//!
//! It knows no SCTP, no clock and no NAS: what it carries for a UE are octets, and the UE is a number that its caller
//! chose (the *owner*). It allocates RAN-UE-NGAP-IDs and the TEIDs of its side of N3.

mod association;
mod handover;
mod receive;
mod request;
mod resource;

pub use association::{MOST_ASSOCIATIONS, PduRoute};
pub use request::SendError;

pub use handover::XnHandoverContext;

use association::Association;
use std::collections::VecDeque;
use std::net::IpAddr;
use vireo_types::{GnbId, RanUeNgapId, Snssai, Tai, Teid, Tmsi};
use vireo_wire::ngap::{Cause, CauseRadioNetwork, Error};

/// NGAP's payload protocol identifier (TS 38.412 7).
pub const PPID: u32 = 60;

/// What a gNB is.
#[derive(Clone, Debug)]
pub struct GnbConfig {
    /// Global gNB ID.
    pub id: GnbId,
    /// RAN Node Name.
    pub name: String,
    /// Its tracking area.
    pub tai: Tai,
    /// The slices it serves there.
    pub slices: Vec<Snssai>,
    /// Its address on N3.
    pub n3: IpAddr,
}

/// One PDU session's tunnel on N3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// PDU session identity.
    pub psi: u8,
    /// QoS flow that uplink packets take.
    pub qfi: u8,
    /// The UPF's address.
    pub upf: IpAddr,
    /// The UPF's TEID.
    pub uplink: Teid,
    /// The gNB's TEID.
    pub downlink: Teid,
}

/// State of the NG interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NgState {
    /// No association, or no NG SETUP yet.
    Down,
    /// NG SETUP REQUEST was sent.
    SettingUp,
    /// NG SETUP RESPONSE came.
    Up,
}

/// What happened, for whoever drives the gNB.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// NG SETUP RESPONSE: the interface is up.
    Ready,
    /// NG SETUP FAILURE.
    SetupFailed(Cause),
    /// NAS for a UE: the range of [`Inbox::nas`].
    Nas {
        /// The UE.
        owner: u32,
        /// Where its octets are.
        range: std::ops::Range<usize>,
    },
    /// INITIAL CONTEXT SETUP: the key that the gNB was given. Its NAS follows as [`Event::Nas`].
    ContextSetup {
        /// The UE.
        owner: u32,
        /// Security Key.
        key: [u8; 32],
    },
    /// A PDU session has its tunnel.
    TunnelUp {
        /// The UE.
        owner: u32,
        /// PDU session identity.
        psi: u8,
    },
    /// A PDU session's tunnel is gone.
    TunnelDown {
        /// The UE.
        owner: u32,
        /// PDU session identity.
        psi: u8,
    },
    /// A PDU session's tunnel has another end at the UPF.
    TunnelModified {
        /// The UE.
        owner: u32,
        /// PDU session identity.
        psi: u8,
    },
    /// The UE's NG connection is gone.
    Released {
        /// The UE.
        owner: u32,
        /// Why.
        cause: Cause,
    },
    /// PATH SWITCH REQUEST ACKNOWLEDGE: the NH that was given, and its chaining counter.
    PathSwitched {
        /// The UE.
        owner: u32,
        /// NH.
        key: [u8; 32],
        /// NCC.
        chaining: u8,
    },
    /// PATH SWITCH REQUEST FAILURE: the UE is lost here.
    PathSwitchFailed {
        /// The UE.
        owner: u32,
    },
    /// HANDOVER REQUEST was accepted: the NH that was given, and its chaining counter.
    HandoverPrepared {
        /// The UE.
        owner: u32,
        /// Its connection at the source.
        source: RanUeNgapId,
        /// Its connection here.
        target: RanUeNgapId,
        /// NH.
        key: [u8; 32],
        /// NCC.
        chaining: u8,
    },
    /// HANDOVER COMMAND: the UE goes to the target.
    HandoverCommand {
        /// The UE.
        owner: u32,
        /// The target's number for it.
        target: RanUeNgapId,
    },
    /// HANDOVER PREPARATION FAILURE.
    HandoverRefused {
        /// The UE.
        owner: u32,
    },
    /// HANDOVER CANCEL ACKNOWLEDGE.
    HandoverCancelled {
        /// The UE.
        owner: u32,
    },
    /// DOWNLINK RAN STATUS TRANSFER.
    StatusTransfer {
        /// The UE.
        owner: u32,
    },
    /// A UE is paged.
    Paging(Tmsi),
    /// NG RESET ACKNOWLEDGE to the gNB's own NG RESET.
    ResetDone,
    /// RAN CONFIGURATION UPDATE ACKNOWLEDGE or FAILURE.
    ConfigurationUpdated(bool),
    /// AMF CONFIGURATION UPDATE: the AMF wants an association with each of these addresses, and to be answered by
    /// [`Gnb::acknowledge_associations`].
    AssociationsWanted(Vec<IpAddr>),
    /// AMF CONFIGURATION UPDATE: nobody is at these addresses of the AMF any more; associations with them are to end.
    AssociationsRemoved(Vec<IpAddr>),
    /// ERROR INDICATION of the AMF.
    ErrorIndication(ErrorReport),
    /// OVERLOAD START (true) or STOP (false).
    Overload(bool),
    /// The AMF deviated from the specification.
    Violation(Violation),
}

impl Event {
    /// The UE that it is about.
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

/// What an ERROR INDICATION tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// AMF-UE-NGAP-ID, if it is about a UE.
    pub amf_id: Option<u64>,
    /// RAN-UE-NGAP-ID, if it is about a UE.
    pub ran_id: Option<u32>,
    /// Why, if it tells.
    pub cause: Option<Cause>,
    /// Criticality Diagnostics are there.
    pub diagnostics: bool,
}

/// What the AMF did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Violation {
    /// A PDU does not decode, or lacks what it must have.
    #[error("an NGAP PDU of the AMF does not decode")]
    Undecodable,
    /// A procedure that an AMF does not start or that the state does not allow.
    #[error("procedure {0} of the AMF is not expected")]
    Unexpected(u8),
    /// RAN-UE-NGAP-ID of nobody, or with another AMF-UE-NGAP-ID than before.
    #[error("the AMF used UE NGAP IDs that do not belong together")]
    UnknownUe,
}

/// What a received PDU gave. Reused, so that steps do not allocate.
#[derive(Debug, Default)]
pub struct Inbox {
    /// The octets that [`Event::Nas`] points into.
    pub nas: Vec<u8>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

impl Inbox {
    /// Forgets everything but the memory.
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

/// The PDUs that are to be sent, in order, each with its association and SCTP stream. Reused, so that steps do not
/// allocate.
#[derive(Debug, Default)]
pub struct Outbox {
    octets: Vec<u8>,
    pdus: Vec<(PduRoute, usize)>,
}

impl Outbox {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.pdus.clear();
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.pdus.is_empty()
    }

    /// The PDUs with their streams, of a gNB that has one association.
    pub fn pdus(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.routes().map(|(way, pdu)| (way.stream, pdu))
    }

    /// The PDUs with their associations and streams.
    pub fn routes(&self) -> impl Iterator<Item = (PduRoute, &[u8])> {
        let starts = std::iter::once(0).chain(self.pdus.iter().map(|(_, end)| *end));
        starts.zip(&self.pdus).map(|(start, (way, end))| (*way, &self.octets[start..*end]))
    }

    /// Adds a PDU that is already encoded, for the first association.
    pub fn push(&mut self, stream: u16, pdu: &[u8]) {
        self.push_by(PduRoute { by: 0, stream }, pdu);
    }

    /// Adds a PDU that is already encoded, by a way.
    pub(crate) fn push_by(&mut self, way: PduRoute, pdu: &[u8]) {
        self.octets.extend_from_slice(pdu);
        self.pdus.push((way, self.octets.len()));
    }

    fn encode_by(&mut self, way: PduRoute, pdu: Result<vireo_wire::ngap::NGAPPDU<'_>, Error>) -> Result<(), Error> {
        pdu?.encode_into(&mut self.octets)?;
        self.pdus.push((way, self.octets.len()));
        Ok(())
    }
}

/// How many ends of abandoned connections are remembered.
const ENDED: usize = 4096;

const FREE: u32 = u32::MAX;
/// The owner that events of a connection have which was abandoned.
pub const NOBODY: u32 = u32::MAX - 1;

/// A UE's NG connection.
#[derive(Debug)]
struct Connection {
    owner: u32,
    generation: u8,
    /// The association that it takes.
    by: u8,
    amf_id: Option<u64>,
    tunnels: Vec<Tunnel>,
    /// The UE has left without a word.
    abandoned: bool,
}

/// One gNB.
#[derive(Debug)]
pub struct Gnb {
    config: GnbConfig,
    state: NgState,
    associations: Vec<Association>,
    /// The association by which the AMF was heard last.
    current: u8,
    connections: Vec<Connection>,
    free: Vec<u32>,
    refuses_handover: bool,
    /// A session that comes by HANDOVER REQUEST and is not taken.
    refuses_session: Option<u8>,
    container_octets: usize,
    /// Abandoned connections that have ended, the oldest first: what crosses their end is no fault of the AMF.
    ended: VecDeque<RanUeNgapId>,
    /// An abandoned connection that the AMF has just made known, so that its release can be asked for.
    found: Option<RanUeNgapId>,
}

impl Gnb {
    /// A gNB whose association is not up.
    pub fn new(config: GnbConfig) -> Self {
        Gnb {
            config,
            state: NgState::Down,
            associations: Vec::new(),
            current: 0,
            connections: Vec::new(),
            free: Vec::new(),
            refuses_handover: false,
            refuses_session: None,
            container_octets: 0,
            ended: VecDeque::new(),
            found: None,
        }
    }

    /// What it is.
    pub fn config(&self) -> &GnbConfig {
        &self.config
    }

    /// State of the NG interface.
    pub fn state(&self) -> NgState {
        self.state
    }

    /// How many UEs are connected.
    pub fn connected(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// The UE of a RAN-UE-NGAP-ID.
    pub fn owner(&self, ran: RanUeNgapId) -> Option<u32> {
        self.connection(ran).map(|connection| connection.owner)
    }

    /// The AMF-UE-NGAP-ID of a connection, once the AMF has given it.
    pub fn amf_id(&self, ran: RanUeNgapId) -> Option<u64> {
        self.connection(ran)?.amf_id
    }

    /// The tunnels of a UE.
    pub fn tunnels(&self, ran: RanUeNgapId) -> &[Tunnel] {
        self.connection(ran).map_or(&[], |connection| &connection.tunnels)
    }

    /// Loses the tunnel of a UE's first session; the session itself stays known.
    pub fn lose_tunnel(&mut self, ran: RanUeNgapId) -> Option<Tunnel> {
        let tunnels = &mut self.connection_mut(ran)?.tunnels;
        (!tunnels.is_empty()).then(|| tunnels.remove(0))
    }

    /// All associations are lost: every UE is idle and the interface is down.
    pub fn lost(&mut self) {
        self.state = NgState::Down;
        self.all_down();
        self.connections.clear();
        self.free.clear();
    }

    /// RAN-UE-NGAP-ID: index 24 | generation 8, so that a late message of an earlier use is recognised.
    fn connection(&self, ran: RanUeNgapId) -> Option<&Connection> {
        let connection = self.connections.get((ran.0 >> 8) as usize)?;
        (connection.owner != FREE && connection.generation == ran.0 as u8).then_some(connection)
    }

    fn connection_mut(&mut self, ran: RanUeNgapId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut((ran.0 >> 8) as usize)?;
        (connection.owner != FREE && connection.generation == ran.0 as u8).then_some(connection)
    }

    /// Whether the UE of this connection has left without a word, or had before the connection ended.
    pub fn is_abandoned(&self, ran: RanUeNgapId) -> bool {
        self.connection(ran).map_or_else(|| self.ended.contains(&ran), |connection| connection.abandoned)
    }

    fn allocate(&mut self, owner: u32) -> RanUeNgapId {
        let by = self.choose(owner);
        let index = self.free.pop().unwrap_or_else(|| {
            let connection =
                Connection { owner: FREE, generation: 0, by: 0, amf_id: None, tunnels: Vec::new(), abandoned: false };
            self.connections.push(connection);
            self.connections.len() as u32 - 1
        });
        let connection = &mut self.connections[index as usize];
        (connection.owner, connection.by) = (owner, by);
        connection.amf_id = None;
        connection.abandoned = false;
        RanUeNgapId(index << 8 | u32::from(connection.generation))
    }

    /// Forgets a connection that the AMF never answered; gives its owner.
    pub fn forget(&mut self, ran: RanUeNgapId) -> Option<u32> {
        self.remove(ran)
    }

    /// The UE will not come: nothing is told of the connection that was prepared for it.
    pub fn drop_prepared(&mut self, ran: RanUeNgapId) {
        if let Some(connection) = self.connection_mut(ran) {
            connection.abandoned = true;
        }
    }

    /// The UE is gone without a word (radio link failure): nothing more is told of the connection, and its release is
    /// asked for, at once or as soon as the AMF has answered for the first time.
    pub fn abandon(&mut self, ran: RanUeNgapId, out: &mut Outbox) -> Result<(), SendError> {
        let Some(connection) = self.connection_mut(ran) else { return Ok(()) };
        connection.abandoned = true;
        if connection.amf_id.is_none() {
            return Ok(());
        }
        self.request_release(ran, Cause::radioNetwork(CauseRadioNetwork::radio_connection_with_ue_lost), out)
    }

    /// Forgets a connection; gives its owner.
    fn remove(&mut self, ran: RanUeNgapId) -> Option<u32> {
        let connection = self.connection_mut(ran)?;
        let owner = std::mem::replace(&mut connection.owner, FREE);
        connection.generation = connection.generation.wrapping_add(1);
        connection.tunnels.clear();
        if connection.abandoned {
            if self.ended.len() >= ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back(ran);
        }
        self.free.push(ran.0 >> 8);
        Some(owner)
    }
}

/// The gNB's TEID of a UE's PDU session: generation 4 | owner 24 | PSI 4. A caller can tell from it whose packet came
/// without a table, as long as owners are unique on one N3 address.
pub fn downlink_teid(owner: u32, psi: u8, generation: u8) -> Teid {
    Teid(u32::from(generation) << 28 | (owner & 0x00ff_ffff) << 4 | u32::from(psi & 0xf))
}

/// The owner and the PDU session of a gNB's TEID.
pub fn downlink_owner(teid: Teid) -> (u32, u8) {
    (teid.0 >> 4 & 0x00ff_ffff, (teid.0 & 0xf) as u8)
}
