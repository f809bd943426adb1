//! RAN node of either dialect.

use super::{Establishment, ReleaseReason, TargetBehaviour};
use crate::enb::{self, Enb};
use crate::gnb::{self, Gnb, GnbConfig};
use crate::options::Options;
use crate::ran::{self, ConnectionId, HandoverContext, HandoverOrder, InterfaceState, Outbox, SendError, Tunnel};
use crate::rat::Rat;
use std::fmt;
use std::net::IpAddr;
use vireo_types::{EnbId, EnbKind, GnbId, Guti, Plmn, RanNodeId, Snssai, Tai};
use vireo_wire::{ngap, s1ap};

/// Cause of either dialect.
#[derive(Clone, PartialEq)]
pub(crate) enum Cause {
    Ng(ngap::Cause),
    S1(s1ap::Cause),
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Ng(cause) => cause.fmt(f),
            Cause::S1(cause) => cause.fmt(f),
        }
    }
}

impl Cause {
    /// Returns true if the core does not know the UE IDs of a message.
    pub(crate) fn is_unknown_ue(&self) -> bool {
        match self {
            Cause::Ng(ngap::Cause::radioNetwork(cause)) => {
                use ngap::CauseRadioNetwork as Cause;
                [Cause::unknown_local_UE_NGAP_ID, Cause::inconsistent_remote_UE_NGAP_ID].contains(cause)
            }
            Cause::S1(s1ap::Cause::radioNetwork(cause)) => {
                use s1ap::CauseRadioNetwork as Cause;
                [Cause::unknown_mme_ue_s1ap_id, Cause::unknown_enb_ue_s1ap_id, Cause::unknown_pair_ue_s1ap_id]
                    .contains(cause)
            }
            _ => false,
        }
    }
}

/// Result of a received PDU.
pub(crate) type Inbox = ran::Inbox<Cause>;

/// Difference of the identifier of a node that does not exist.
const UNKNOWN: u32 = 1 << 17;

/// gNB or eNB.
#[derive(Debug)]
pub(crate) enum Node {
    Gnb(Box<Gnb>),
    Enb(Box<Enb>),
}

impl Node {
    /// Returns node `number` of a dialect.
    pub(crate) fn new(options: &Options, rat: Rat, number: u32) -> Self {
        match rat {
            Rat::Nr => {
                let mut gnb = Gnb::new(options.gnb_config(number));
                gnb.expect_protection(options.scenario.protection());
                Node::Gnb(Box::new(gnb))
            }
            Rat::Eps => Node::Enb(Box::new(Enb::new(options.enb_config(number)))),
        }
    }

    /// Returns a node with this identifier and the configuration of the run.
    pub(crate) fn with_id(options: &Options, rat: Rat, id: u32) -> Self {
        match rat {
            Rat::Nr => {
                let mut config = options.gnb_config(0);
                let id = GnbId { plmn: config.id.plmn(), id: id & 0x00ff_ffff, bits: 24 };
                (config.id, config.name) = (id.into(), format!("gnb-{}", id.id));
                Node::Gnb(Box::new(Gnb::new(config)))
            }
            Rat::Eps => {
                let mut config = options.enb_config(0);
                config.id = id & 0x000f_ffff;
                config.name = format!("enb-{}", config.id);
                Node::Enb(Box::new(Enb::new(config)))
            }
        }
    }

    /// Returns a node of the same configuration without an association.
    pub(crate) fn twin(&self) -> Self {
        match self {
            Node::Gnb(gnb) => Node::Gnb(Box::new(Gnb::new(gnb.config().clone()))),
            Node::Enb(enb) => Node::Enb(Box::new(Enb::new(enb.config().clone()))),
        }
    }

    /// Changes the network of the node's tracking area.
    pub(crate) fn change_network(&mut self, plmn: Plmn) {
        match self {
            Node::Gnb(gnb) => {
                let mut config = gnb.config().clone();
                config.tai.plmn = plmn;
                **gnb = Gnb::new(config);
            }
            Node::Enb(enb) => {
                let mut config = enb.config().clone();
                config.tai.plmn = plmn;
                **enb = Enb::new(config);
            }
        }
    }

    /// Changes the slices of a gNB.
    pub(crate) fn change_slices(&mut self, slices: Vec<Snssai>) {
        if let Node::Gnb(gnb) = self {
            **gnb = Gnb::new(GnbConfig { slices, ..gnb.config().clone() });
        }
    }

    pub(crate) fn rat(&self) -> Rat {
        match self {
            Node::Gnb(_) => Rat::Nr,
            Node::Enb(_) => Rat::Eps,
        }
    }

    /// Returns the payload protocol identifier of the dialect.
    pub(crate) fn ppid(&self) -> u32 {
        match self {
            Node::Gnb(_) => gnb::PPID,
            Node::Enb(_) => enb::PPID,
        }
    }

    /// Returns the gNB, for what only gNBs do.
    pub(crate) fn gnb(&mut self) -> Result<&mut Gnb, SendError> {
        match self {
            Node::Gnb(gnb) => Ok(gnb),
            Node::Enb(_) => Err(SendError::NoConnection),
        }
    }

    /// Returns the address of the node's tunnels.
    pub(crate) fn n3(&self) -> IpAddr {
        match self {
            Node::Gnb(gnb) => gnb.config().n3,
            Node::Enb(enb) => enb.config().s1u,
        }
    }

    /// Returns the state of NG or S1.
    pub(crate) fn state(&self) -> InterfaceState {
        match self {
            Node::Gnb(gnb) => gnb.state(),
            Node::Enb(enb) => enb.state(),
        }
    }

    /// Returns true if NG or S1 is set up.
    pub(crate) fn is_up(&self) -> bool {
        self.state() == InterfaceState::Up
    }

    /// Returns true if neither NG nor S1 is set up or in set-up.
    pub(crate) fn is_down(&self) -> bool {
        self.state() == InterfaceState::Down
    }

    /// Returns the state of one association.
    pub(crate) fn association_state(&self, by: u8) -> InterfaceState {
        match self {
            Node::Gnb(gnb) => gnb.association_state(by),
            Node::Enb(enb) => enb.association_state(by),
        }
    }

    /// Returns the number of associations that carry UEs.
    pub(crate) fn associations_up(&self) -> usize {
        match self {
            Node::Gnb(gnb) => gnb.associations_up(),
            Node::Enb(enb) => enb.associations_up(),
        }
    }

    /// Returns association `by`, or one that is up if `by` is not.
    pub(crate) fn pick_live(&self, by: u8) -> u8 {
        match self {
            Node::Gnb(gnb) => gnb.pick_live(by),
            Node::Enb(enb) => enb.pick_live(by),
        }
    }

    /// Starts NG or S1 Setup, or binds a further association of a gNB. S1 is set up on each one.
    pub(crate) fn attach(&mut self, by: u8, streams: u16, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.attach(by, streams, out),
            Node::Enb(enb) => enb.attach(by, streams, out),
        }
    }

    /// Handles the loss of an association. Returns true if the node continues with another one. The
    /// connections of an eNB end with their association.
    pub(crate) fn detach(&mut self, by: u8) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.detach(by),
            Node::Enb(enb) => {
                enb.detach(by);
                enb.associations_up() > 0
            }
        }
    }

    /// Handles one PDU of the first association. Answers go to `out`. If an answer does not encode,
    /// the events are lost.
    pub(crate) fn receive(&mut self, octets: &[u8], out: &mut Outbox) -> Result<Inbox, SendError> {
        match self {
            Node::Gnb(gnb) => {
                let mut inbox = gnb::Inbox::default();
                gnb.receive(octets, &mut inbox, out)?;
                let events = inbox.events.into_iter().map(|event| event.map(Cause::Ng)).collect();
                Ok(Inbox { nas: inbox.nas, events })
            }
            Node::Enb(enb) => {
                let mut inbox = enb::Inbox::default();
                enb.receive(octets, &mut inbox, out)?;
                let events = inbox.events.into_iter().map(|event| event.map(Cause::S1)).collect();
                Ok(Inbox { nas: inbox.nas, events })
            }
        }
    }

    /// Sends NG or S1 SETUP REQUEST on an association with this number of outbound streams.
    pub(crate) fn set_up(&mut self, streams: u16, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.set_up(streams, out),
            Node::Enb(enb) => enb.set_up(streams, out),
        }
    }

    /// Sends RAN or ENB CONFIGURATION UPDATE.
    pub(crate) fn update_configuration(&mut self, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.update_configuration(out),
            Node::Enb(enb) => enb.update_configuration(out),
        }
    }

    /// Handles the loss of all associations.
    pub(crate) fn on_association_lost(&mut self) {
        match self {
            Node::Gnb(gnb) => gnb.on_association_lost(),
            Node::Enb(enb) => enb.on_association_lost(),
        }
    }

    /// Returns the core's identifier of a connection, once the core has assigned it.
    pub(crate) fn core_id(&self, id: ConnectionId) -> Option<u64> {
        match self {
            Node::Gnb(gnb) => gnb.amf_id(id),
            Node::Enb(enb) => enb.mme_id(id).map(u64::from),
        }
    }

    /// Returns the UE of a connection.
    pub(crate) fn owner(&self, id: ConnectionId) -> Option<u32> {
        match self {
            Node::Gnb(gnb) => gnb.owner(id),
            Node::Enb(enb) => enb.owner(id),
        }
    }

    /// Returns true if the UE of this connection left without signalling, also after the connection
    /// ended.
    pub(crate) fn is_abandoned(&self, id: ConnectionId) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.is_abandoned(id),
            Node::Enb(enb) => enb.is_abandoned(id),
        }
    }

    /// Drops the tunnel of a UE's first session.
    pub(crate) fn lose_tunnel(&mut self, id: ConnectionId) -> Option<Tunnel> {
        match self {
            Node::Gnb(gnb) => gnb.lose_tunnel(id),
            Node::Enb(enb) => enb.lose_tunnel(id),
        }
    }

    pub(crate) fn tunnels(&self, id: ConnectionId) -> &[Tunnel] {
        match self {
            Node::Gnb(gnb) => gnb.tunnels(id),
            Node::Enb(enb) => enb.tunnels(id),
        }
    }

    pub(crate) fn initial_ue(
        &mut self,
        owner: u32,
        nas: &[u8],
        guti: Option<Guti>,
        reason: Establishment,
        out: &mut Outbox,
    ) -> Result<ConnectionId, SendError> {
        match self {
            Node::Gnb(gnb) => {
                let cause = match reason {
                    Establishment::Signalling => ngap::RRCEstablishmentCause::mo_Signalling,
                    Establishment::Data => ngap::RRCEstablishmentCause::mo_Data,
                    Establishment::Paged => ngap::RRCEstablishmentCause::mt_Access,
                };
                gnb.initial_ue(owner, nas, guti, cause, out)
            }
            Node::Enb(enb) => {
                let cause = match reason {
                    Establishment::Signalling => s1ap::RRCEstablishmentCause::mo_Signalling,
                    Establishment::Data => s1ap::RRCEstablishmentCause::mo_Data,
                    Establishment::Paged => s1ap::RRCEstablishmentCause::mt_Access,
                };
                enb.initial_ue(owner, nas, guti, cause, out)
            }
        }
    }

    pub(crate) fn uplink_nas(&self, id: ConnectionId, nas: &[u8], out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.uplink_nas(id, nas, out),
            Node::Enb(enb) => enb.uplink_nas(id, nas, out),
        }
    }

    pub(crate) fn request_release(
        &self,
        id: ConnectionId,
        reason: ReleaseReason,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => {
                let cause = match reason {
                    ReleaseReason::Inactivity => ngap::CauseRadioNetwork::user_inactivity,
                    ReleaseReason::RadioLinkLost => ngap::CauseRadioNetwork::radio_connection_with_ue_lost,
                };
                Ok(gnb.request_release(id, ngap::Cause::radioNetwork(cause), out)?)
            }
            Node::Enb(enb) => {
                let cause = match reason {
                    ReleaseReason::Inactivity => s1ap::CauseRadioNetwork::user_inactivity,
                    ReleaseReason::RadioLinkLost => s1ap::CauseRadioNetwork::radio_connection_with_ue_lost,
                };
                Ok(enb.request_release(id, s1ap::Cause::radioNetwork(cause), out)?)
            }
        }
    }

    /// Returns the context of a UE for the target of an Xn or X2 handover, and removes its
    /// connection. Until the path switch the core may still address the UE here.
    pub(crate) fn take_handover_context(
        &mut self,
        id: ConnectionId,
        capability: (u8, u8),
    ) -> Result<HandoverContext, SendError> {
        let context = match self {
            Node::Gnb(gnb) => gnb.handover_context(id, capability),
            Node::Enb(enb) => enb.handover_context(id, capability),
        }?;
        self.abandon_silently(id);
        self.forget(id);
        Ok(context)
    }

    /// Sends PATH SWITCH REQUEST for a UE that arrived by Xn or X2.
    pub(crate) fn path_switch(&mut self, ue: HandoverContext, out: &mut Outbox) -> Result<ConnectionId, SendError> {
        match self {
            Node::Gnb(gnb) => gnb.path_switch(ue, |_| true, out),
            Node::Enb(enb) => enb.path_switch(ue, |_| true, out),
        }
    }

    /// Moves the tunnels of a UE to a secondary node, or back.
    pub(crate) fn indicate_modification(&mut self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.indicate_modification(id, out),
            Node::Enb(enb) => enb.indicate_modification(id, out),
        }
    }

    /// Releases the session or E-RAB of a UE whose tunnel has this identity.
    pub(crate) fn drop_session(&mut self, id: ConnectionId, psi: u8, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.drop_session(id, psi, out),
            Node::Enb(enb) => enb.drop_session(id, psi, out),
        }
    }

    /// Reports the radio capability of a UE.
    pub(crate) fn report_capability(&self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.report_capability(id, out),
            Node::Enb(enb) => enb.report_capability(id, out),
        }
    }

    /// Requests the Xn or X2 addresses of another node by the core.
    pub(crate) fn request_addresses(&self, target: &Node, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.request_xn_addresses(target.identity(), out),
            Node::Enb(enb) => enb.request_x2_addresses(target.identity(), out),
        }
    }

    /// Abandons a connection whose UE has left or will not arrive, without a message to the core.
    /// It emits no event, and later messages about it are no violation.
    pub(crate) fn abandon_silently(&mut self, id: ConnectionId) {
        match self {
            Node::Gnb(gnb) => gnb.abandon_silently(id),
            Node::Enb(enb) => enb.abandon_silently(id),
        }
    }

    /// Returns the identity and the tracking area of the node.
    fn identity(&self) -> (RanNodeId, Tai) {
        match self {
            Node::Gnb(gnb) => (gnb.config().id, gnb.config().tai),
            Node::Enb(enb) => {
                let tai = enb.config().tai;
                (EnbId { plmn: tai.plmn, kind: EnbKind::Macro, id: enb.config().id }.into(), tai)
            }
        }
    }

    /// Sends HANDOVER REQUIRED towards another node, of either dialect.
    pub(crate) fn require_handover(
        &self,
        id: ConnectionId,
        target: &Node,
        behaviour: TargetBehaviour,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let (mut target, area) = target.identity();
        if behaviour == TargetBehaviour::Unknown {
            match &mut target {
                RanNodeId::Gnb(gnb) => gnb.id ^= UNKNOWN,
                RanNodeId::Enb(enb) | RanNodeId::NgEnb(enb) => enb.id ^= UNKNOWN,
            }
        }
        let direct = match (self.identity().0, target) {
            // Half of the handovers between two nodes of one system have a direct path.
            (RanNodeId::Gnb(own), RanNodeId::Gnb(other)) => own.id > other.id,
            (RanNodeId::Enb(own), RanNodeId::Enb(other)) => own.id > other.id,
            (RanNodeId::NgEnb(own), RanNodeId::NgEnb(other)) => own.id > other.id,
            _ => false,
        };
        let order = HandoverOrder { target, area, refused: behaviour == TargetBehaviour::Refuses, direct };
        match self {
            Node::Gnb(gnb) => gnb.require_handover_with(id, order, out),
            Node::Enb(enb) => enb.require_handover(id, order, out),
        }
    }

    /// Sends HANDOVER CANCEL: the UE stays at the source.
    pub(crate) fn cancel_handover(&self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.cancel_handover(id, out),
            Node::Enb(enb) => enb.cancel_handover(id, out),
        }
    }

    /// Sends HANDOVER NOTIFY for a UE that has arrived.
    pub(crate) fn notify(&self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.notify(id, out),
            Node::Enb(enb) => enb.notify(id, out),
        }
    }

    /// Resets the interface (`None`) or these connections.
    pub(crate) fn reset(&mut self, ues: Option<&[ConnectionId]>, out: &mut Outbox) -> Result<Vec<u32>, SendError> {
        match self {
            Node::Gnb(gnb) => gnb.reset(ues, out),
            Node::Enb(enb) => enb.reset(ues, out),
        }
    }

    /// Removes a connection that the core never answered.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        match self {
            Node::Gnb(gnb) => gnb.forget(id),
            Node::Enb(enb) => enb.forget(id),
        };
    }

    /// Abandons a connection after a radio link failure.
    pub(crate) fn abandon(&mut self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        match self {
            Node::Gnb(gnb) => gnb.abandon(id, out),
            Node::Enb(enb) => enb.abandon(id, out),
        }
    }
}
