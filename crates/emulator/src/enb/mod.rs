//! eNB as a pure state machine over S1AP (TS 36.413).
//!
//! The counterpart of [`crate::gnb`]: input is S1AP PDUs; output is S1AP PDUs and events. The eNB
//! has no SCTP, no clock and no NAS decoder. It has one association with each MME of a pool (TS
//! 36.412 7, S1-Flex), and one macro cell.

mod association;
mod bearer;
mod changes;
mod handover;
mod receive;
mod request;

pub use crate::ran::HandoverContext;
pub use crate::ran::InterfaceState as S1State;
pub use crate::ran::{ConnectionId, Outbox, SendError, Tunnel, Violation};

use crate::ran::{Connections, PduRoute, downlink_teid};
use association::Association;
use std::net::IpAddr;
use vireo_types::Tai;
use vireo_wire::s1ap::{Cause, CauseRadioNetwork, Error, S1APPDU};

/// S1AP payload protocol identifier (TS 36.412 7).
pub const PPID: u32 = 18;

/// Configuration of an eNB.
#[derive(Clone, Debug)]
pub struct EnbConfig {
    /// Macro eNB ID, 20 bits.
    pub id: u32,
    pub name: String,
    /// Tracking area of the cell; its code has 16 bits.
    pub tai: Tai,
    pub s1u: IpAddr,
}

/// Event for the caller of the eNB.
pub type Event = crate::ran::Event<Cause>;
/// Content of an ERROR INDICATION.
pub type ErrorReport = crate::ran::ErrorReport<Cause>;
/// Result of a received PDU. Reused, so that steps do not allocate.
pub type Inbox = crate::ran::Inbox<Cause>;

fn encode(out: &mut Outbox, way: PduRoute, pdu: Result<S1APPDU<'_>, Error>) -> Result<(), Error> {
    let pdu = pdu?;
    out.encode_with(way, |octets| pdu.encode_into(octets))
}

/// One eNB with its S1 interface and connections.
#[derive(Debug)]
pub struct Enb {
    config: EnbConfig,
    /// One with each MME.
    associations: Vec<Association>,
    /// Association of the last received message.
    current: u8,
    /// An eNB-UE-S1AP-ID has 24 bits, so that there are at most 65,536 connections.
    connections: Connections,
    /// Abandoned connection for which the MME has just sent its ID, so that its release can be
    /// requested.
    found: Option<ConnectionId>,
}

impl Enb {
    /// Creates an eNB whose association is down.
    pub fn new(config: EnbConfig) -> Self {
        Enb { config, associations: Vec::new(), current: 0, connections: Connections::default(), found: None }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &EnbConfig {
        &self.config
    }

    /// Returns the state of the S1 interface: up as soon as one MME serves the eNB.
    pub fn state(&self) -> S1State {
        let has = |state| self.associations.iter().any(|association| association.state == state);
        [S1State::Up, S1State::SettingUp].into_iter().find(|state| has(*state)).unwrap_or(S1State::Down)
    }

    /// Returns the number of connected UEs.
    pub fn connected(&self) -> usize {
        self.connections.len()
    }

    /// Returns the owner of a connection.
    pub fn owner(&self, id: ConnectionId) -> Option<u32> {
        self.connections.get(id).map(|connection| connection.owner)
    }

    /// Returns the MME-UE-S1AP-ID of a connection, once the MME has assigned it.
    pub fn mme_id(&self, id: ConnectionId) -> Option<u32> {
        // It was received as 32 bits.
        self.connections.get(id)?.core_id.map(|core| core as u32)
    }

    /// Returns the tunnels of a UE.
    pub fn tunnels(&self, id: ConnectionId) -> &[Tunnel] {
        self.connections.tunnels(id)
    }

    /// Drops the tunnel of a UE's first E-RAB. The eNB still knows the E-RAB.
    pub fn lose_tunnel(&mut self, id: ConnectionId) -> Option<Tunnel> {
        self.connections.get_mut(id)?.lose_tunnel()
    }

    /// Handles the loss of all associations: every UE is idle and the interface is down.
    pub fn on_association_lost(&mut self) {
        self.associations.clear();
        self.connections.clear();
    }

    /// Returns true if the UE of this connection left without signalling, also after the connection
    /// ended.
    pub fn is_abandoned(&self, id: ConnectionId) -> bool {
        self.connections.is_abandoned(id)
    }

    /// Removes a connection that the MME never answered. Returns its owner.
    pub fn forget(&mut self, id: ConnectionId) -> Option<u32> {
        self.connections.remove(id)
    }

    /// Abandons a connection whose UE has left or will not arrive, without a message to the core.
    /// It emits no event, and later messages about it are no violation.
    pub fn abandon_silently(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.abandoned = true;
        }
    }

    /// Abandons the connection after a radio link failure: it emits no further event for the UE.
    /// The eNB requests the release, at once or after the MME's first answer.
    pub fn abandon(&mut self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        let Some(connection) = self.connections.get_mut(id) else { return Ok(()) };
        connection.abandoned = true;
        if connection.core_id.is_none() {
            return Ok(());
        }
        self.request_release(id, Cause::radioNetwork(CauseRadioNetwork::radio_connection_with_ue_lost), out)
    }

    /// Returns this eNB's TEID of an E-RAB. It differs from a neighbour's TEID for the same UE.
    fn teid(&self, id: ConnectionId, owner: u32, erab: u8) -> vireo_types::Teid {
        downlink_teid(owner, erab, (self.config.id as u8 & 3) << 2 | id.0 as u8 & 3)
    }
}
