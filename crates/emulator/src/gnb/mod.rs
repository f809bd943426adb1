//! gNB as a pure state machine over NGAP (TS 38.413).
//!
//! Input is NGAP PDUs; output is NGAP PDUs and events. The gNB has no SCTP, no clock and no NAS
//! decoder. NAS messages are opaque octets. The caller identifies a UE by a number of its choice
//! (the *owner*). The gNB allocates RAN-UE-NGAP-IDs and its N3 TEIDs.

mod association;
mod changes;
mod handover;
mod protection;
mod receive;
mod request;
mod resource;

pub use association::MAX_ASSOCIATIONS;
pub use protection::UpProtection;

pub use crate::ran::HandoverContext;
pub use crate::ran::InterfaceState as NgState;
pub use crate::ran::{NOBODY, Outbox, PduRoute, SendError, Tunnel, Violation, downlink_owner, downlink_teid};

use crate::ran::{Connection, Connections};
use association::Association;
use std::net::IpAddr;
use vireo_types::{RanNodeId, RanUeNgapId, Snssai, Tai};
use vireo_wire::ngap::{Cause, CauseRadioNetwork, Error, NGAPPDU};

/// NGAP payload protocol identifier (TS 38.412 7).
pub const PPID: u32 = 60;

/// Configuration of a gNB, or of an ng-eNB, which behaves as one.
#[derive(Clone, Debug)]
pub struct GnbConfig {
    /// Identity of a gNB or ng-eNB.
    pub id: RanNodeId,
    pub name: String,
    pub tai: Tai,
    /// Slices supported in the tracking area.
    pub slices: Vec<Snssai>,
    pub n3: IpAddr,
}

/// Event for the caller of the gNB.
pub type Event = crate::ran::Event<Cause>;
/// Content of an ERROR INDICATION.
pub type ErrorReport = crate::ran::ErrorReport<Cause>;
/// Result of a received PDU. Reused, so that steps do not allocate.
pub type Inbox = crate::ran::Inbox<Cause>;

fn encode_by(out: &mut Outbox, route: PduRoute, pdu: Result<NGAPPDU<'_>, Error>) -> Result<(), Error> {
    let pdu = pdu?;
    out.encode_with(route, |octets| pdu.encode_into(octets))
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
    /// True if the gNB modifies no session.
    refuses_modification: bool,
    /// UP security policy that each session must have.
    protection: Option<UpProtection>,
    /// True if the gNB accepts forwarded uplink packets in a HANDOVER REQUEST.
    accepts_uplink: bool,
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
            refuses_modification: false,
            protection: None,
            accepts_uplink: false,
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
        self.connection_mut(ran)?.lose_tunnel()
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

    /// Abandons a connection whose UE has left or will not arrive, without a message to the core.
    /// It emits no event, and later messages about it are no violation.
    pub fn abandon_silently(&mut self, ran: RanUeNgapId) {
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

    /// Expects this policy of each session.
    pub fn expect_protection(&mut self, protection: Option<UpProtection>) {
        self.protection = protection;
    }

    /// Returns true if the Security Indication of a session has the expected policy.
    pub(super) fn has_protection(&self, indication: Option<&vireo_wire::ngap::SecurityIndication>) -> bool {
        self.protection.is_none_or(|protection| protection.fits(indication))
    }

    /// Removes a connection. Returns its owner.
    fn remove(&mut self, ran: RanUeNgapId) -> Option<u32> {
        self.connections.remove(ran)
    }
}
