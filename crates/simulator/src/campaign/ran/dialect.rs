//! RAN node and UE of either dialect, behind one interface.

use crate::campaign::oracle::NodeViolation;
use vireo_core::amf::n2;
use vireo_emulator::enb::{self, Enb, EnbConfig, S1State};
use vireo_emulator::gnb::{self, Gnb, GnbConfig, HandoverContext, NgState, Outbox};
use vireo_emulator::ue::eps::LteUe;
use vireo_emulator::ue::{CommandError, MmState, Profile, Registration, Service, Ue, UeOutput};
use vireo_emulator::usim::Usim;
use vireo_types::{Dialect, EnbId, EnbKind, Guti, PduSessionType, RanUeNgapId, Supi, Tmsi};
use vireo_wire::{ngap, s1ap};

/// Event of a RAN node, as far as the campaign handles it.
#[derive(Debug, PartialEq)]
pub(super) enum NodeEvent {
    Nas(Vec<u8>),
    ContextSetup([u8; 32]),
    PathSwitched {
        key: [u8; 32],
        chaining: u8,
        renewed: bool,
    },
    PathSwitchFailed,
    HandoverPrepared(PreparedTarget),
    HandoverCommand {
        target: RanUeNgapId,
        nas: Vec<u8>,
    },
    HandoverRefused,
    HandoverCancelled,
    Released,
    Paging(Tmsi),
    Violation(NodeViolation),
    /// Any other event.
    Other,
}

/// Connection that a RAN node has prepared for a UE of the other system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreparedTarget {
    /// UE's connection at the source.
    pub(super) source: RanUeNgapId,
    pub(super) target: RanUeNgapId,
    pub(super) key: [u8; 32],
    pub(super) chaining: u8,
}

/// gNB or eNB.
#[derive(Debug)]
pub(super) enum Node {
    Gnb(Box<Gnb>),
    Enb(Box<Enb>),
}

impl Node {
    pub(super) fn gnb(config: GnbConfig) -> Self {
        Node::Gnb(Box::new(Gnb::new(config)))
    }

    /// Creates an eNB with the identity and the cell of a gNB's configuration.
    pub(super) fn enb(GnbConfig { id, name, tai, n3, .. }: GnbConfig) -> Self {
        Node::Enb(Box::new(Enb::new(EnbConfig { id: id.value(), name, tai, s1u: n3 })))
    }

    /// Returns true if NG or S1 is set up.
    pub(super) fn is_up(&self) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.state() == NgState::Up,
            Node::Enb(enb) => enb.state() == S1State::Up,
        }
    }

    /// Returns the state of one association.
    pub(super) fn association_state(&self, by: u8) -> NgState {
        match self {
            Node::Gnb(gnb) => gnb.association_state(by),
            Node::Enb(enb) => match enb.association_state(by) {
                S1State::Down => NgState::Down,
                S1State::SettingUp => NgState::SettingUp,
                S1State::Up => NgState::Up,
            },
        }
    }

    /// Starts NG or S1 Setup, or binds a further association of a gNB.
    pub(super) fn attach(&mut self, by: u8, streams: u16, out: &mut Outbox) {
        match self {
            Node::Gnb(gnb) => drop(gnb.attach(by, streams, out)),
            Node::Enb(enb) => drop(enb.attach(by, streams, out)),
        }
    }

    /// Handles the loss of an association. Returns true if the UEs of the node continue by another
    /// one. Those of an eNB do not: their MME is lost.
    pub(super) fn detach(&mut self, by: u8) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.detach(by),
            Node::Enb(enb) => {
                enb.detach(by);
                false
            }
        }
    }

    /// Returns the UE of a connection.
    pub(super) fn owner(&self, ran: RanUeNgapId) -> Option<u32> {
        match self {
            Node::Gnb(gnb) => gnb.owner(ran),
            Node::Enb(enb) => enb.owner(ran),
        }
    }

    /// Returns true if the core has sent a message on a connection of a gNB.
    pub(super) fn is_answered(&self, ran: RanUeNgapId) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.amf_id(ran).is_some(),
            Node::Enb(_) => false,
        }
    }

    /// Opens a connection with the first NAS message of a UE.
    pub(super) fn initial_ue(
        &mut self,
        owner: u32,
        nas: &[u8],
        guti: Option<Guti>,
        out: &mut Outbox,
    ) -> Option<RanUeNgapId> {
        match self {
            Node::Gnb(gnb) => gnb.initial_ue(owner, nas, guti, ngap::RRCEstablishmentCause::mo_Signalling, out).ok(),
            Node::Enb(enb) => enb.initial_ue(owner, nas, guti, s1ap::RRCEstablishmentCause::mo_Signalling, out).ok(),
        }
    }

    pub(super) fn uplink_nas(&self, ran: RanUeNgapId, nas: &[u8], out: &mut Outbox) {
        match self {
            Node::Gnb(gnb) => drop(gnb.uplink_nas(ran, nas, out)),
            Node::Enb(enb) => drop(enb.uplink_nas(ran, nas, out)),
        }
    }

    /// Requests the release of an inactive UE. Returns false if the core has not answered yet.
    pub(super) fn request_release(&self, ran: RanUeNgapId, out: &mut Outbox) -> bool {
        match self {
            Node::Gnb(gnb) => {
                let cause = ngap::Cause::radioNetwork(ngap::CauseRadioNetwork::user_inactivity);
                gnb.request_release(ran, cause, out).is_ok()
            }
            Node::Enb(enb) => {
                let cause = s1ap::Cause::radioNetwork(s1ap::CauseRadioNetwork::user_inactivity);
                enb.request_release(ran, cause, out).is_ok()
            }
        }
    }

    /// Abandons a connection after a radio link failure.
    pub(super) fn abandon(&mut self, ran: RanUeNgapId, out: &mut Outbox) {
        match self {
            Node::Gnb(gnb) => drop(gnb.abandon(ran, out)),
            Node::Enb(enb) => drop(enb.abandon(ran, out)),
        }
    }

    /// Resets these connections of an eNB, or all. Returns the UEs. The gNBs reset none.
    pub(super) fn reset(&mut self, ues: Option<&[RanUeNgapId]>, out: &mut Outbox) -> Vec<u32> {
        match self {
            Node::Gnb(_) => Vec::new(),
            Node::Enb(enb) => enb.reset(ues, out).unwrap_or_default(),
        }
    }

    /// Takes a UE out of a RAN node for a handover by Xn or X2.
    pub(super) fn take_handover_context(&mut self, ran: RanUeNgapId, capability: (u8, u8)) -> Option<HandoverContext> {
        let handover = match self {
            Node::Gnb(gnb) => gnb.handover_context(ran, capability),
            Node::Enb(enb) => enb.handover_context(ran, capability),
        };
        let handover = handover.ok()?;
        match self {
            Node::Gnb(gnb) => {
                gnb.abandon_silently(ran);
                gnb.forget(ran);
            }
            Node::Enb(enb) => {
                enb.abandon_silently(ran);
                enb.forget(ran);
            }
        }
        Some(handover)
    }

    /// Requests the path switch of a UE that was handed over to this RAN node.
    pub(super) fn path_switch(&mut self, handover: HandoverContext, out: &mut Outbox) -> Option<RanUeNgapId> {
        match self {
            Node::Gnb(gnb) => gnb.path_switch(handover, |_| true, out).ok(),
            Node::Enb(enb) => enb.path_switch(handover, |_| true, out).ok(),
        }
    }

    /// Requires the handover of a UE to a RAN node of the other system, which refuses it if
    /// `refused`.
    pub(super) fn require_system_handover(
        &self,
        ran: RanUeNgapId,
        target: &Node,
        refused: bool,
        out: &mut Outbox,
    ) -> bool {
        let required = match (self, target) {
            (Node::Gnb(gnb), Node::Enb(enb)) => {
                let EnbConfig { id, tai, .. } = enb.config();
                let target = EnbId { plmn: tai.plmn, kind: EnbKind::Macro, id: *id };
                gnb.require_system_handover(ran, (target, *tai), refused, out)
            }
            (Node::Enb(enb), Node::Gnb(gnb)) => {
                enb.require_system_handover(ran, (gnb.config().id, gnb.config().tai), refused, out)
            }
            _ => return false,
        };
        required.is_ok()
    }

    pub(super) fn cancel_handover(&self, ran: RanUeNgapId, out: &mut Outbox) {
        match self {
            Node::Gnb(gnb) => drop(gnb.cancel_handover(ran, out)),
            Node::Enb(enb) => drop(enb.cancel_handover(ran, out)),
        }
    }

    pub(super) fn notify(&self, ran: RanUeNgapId, out: &mut Outbox) {
        match self {
            Node::Gnb(gnb) => drop(gnb.notify(ran, out)),
            Node::Enb(enb) => drop(enb.notify(ran, out)),
        }
    }

    /// Marks a connection whose UE is or will be at another node. It emits no further event.
    pub(super) fn drop_connection(&mut self, ran: RanUeNgapId) {
        match self {
            Node::Gnb(gnb) => gnb.abandon_silently(ran),
            Node::Enb(enb) => enb.abandon_silently(ran),
        }
    }

    /// Handles a PDU of the core. `number` is the node's. Returns the events, each with its UE.
    pub(super) fn receive_by(
        &mut self,
        (number, by): (usize, u8),
        pdu: &[u8],
        out: &mut Outbox,
    ) -> Vec<(Option<u32>, NodeEvent)> {
        match self {
            Node::Gnb(gnb) => {
                let mut inbox = gnb::Inbox::default();
                let _ = gnb.receive_by(by, pdu, &mut inbox, out);
                let gnb::Inbox { nas, events, .. } = inbox;
                let event = |event: gnb::Event| (event.owner(), event_of_gnb(number, event, &nas));
                events.into_iter().map(event).collect()
            }
            Node::Enb(enb) => {
                let mut inbox = enb::Inbox::default();
                let _ = enb.receive_by(by, pdu, &mut inbox, out);
                let enb::Inbox { nas, events } = inbox;
                let event = |event: enb::Event| (event.owner(), event_of_enb(number, event, &nas));
                events.into_iter().map(event).collect()
            }
        }
    }
}

fn event_of_gnb(number: usize, event: gnb::Event, nas: &[u8]) -> NodeEvent {
    match event {
        gnb::Event::Nas { range, .. } => nas.get(range).map_or(NodeEvent::Other, |nas| NodeEvent::Nas(nas.to_vec())),
        gnb::Event::ContextSetup { key, .. } => NodeEvent::ContextSetup(key),
        gnb::Event::PathSwitched { key, chaining, renewed, .. } => NodeEvent::PathSwitched { key, chaining, renewed },
        gnb::Event::PathSwitchFailed { .. } => NodeEvent::PathSwitchFailed,
        gnb::Event::HandoverPrepared { source, target, key, chaining, .. } => {
            NodeEvent::HandoverPrepared(PreparedTarget { source, target, key, chaining })
        }
        gnb::Event::HandoverCommand { target, nas, .. } => NodeEvent::HandoverCommand { target, nas },
        gnb::Event::HandoverRefused { .. } => NodeEvent::HandoverRefused,
        gnb::Event::HandoverCancelled { .. } => NodeEvent::HandoverCancelled,
        gnb::Event::Released { .. } => NodeEvent::Released,
        gnb::Event::Paging(tmsi) => NodeEvent::Paging(tmsi),
        gnb::Event::Violation(violation) => NodeEvent::Violation(NodeViolation::Gnb(number, violation)),
        _ => NodeEvent::Other,
    }
}

fn event_of_enb(number: usize, event: enb::Event, nas: &[u8]) -> NodeEvent {
    match event {
        enb::Event::Nas { range, .. } => nas.get(range).map_or(NodeEvent::Other, |nas| NodeEvent::Nas(nas.to_vec())),
        enb::Event::ContextSetup { key, .. } => NodeEvent::ContextSetup(key),
        enb::Event::PathSwitched { key, chaining, renewed, .. } => NodeEvent::PathSwitched { key, chaining, renewed },
        enb::Event::PathSwitchFailed { .. } => NodeEvent::PathSwitchFailed,
        enb::Event::HandoverPrepared { source, target, key, chaining, .. } => {
            NodeEvent::HandoverPrepared(PreparedTarget { source, target, key, chaining })
        }
        enb::Event::HandoverCommand { target, nas, .. } => NodeEvent::HandoverCommand { target, nas },
        enb::Event::HandoverRefused { .. } => NodeEvent::HandoverRefused,
        enb::Event::HandoverCancelled { .. } => NodeEvent::HandoverCancelled,
        enb::Event::Released { .. } => NodeEvent::Released,
        enb::Event::Paging(tmsi) => NodeEvent::Paging(tmsi),
        enb::Event::Violation(violation) => NodeEvent::Violation(NodeViolation::Enb(number, violation)),
        _ => NodeEvent::Other,
    }
}

/// Returns the kind of a PDU and the RAN node's identifier of its UE, if it transports an uplink
/// NAS message.
pub(super) fn uplink_nas_of(dialect: Dialect, pdu: &[u8]) -> Option<RanUeNgapId> {
    let is_uplink_nas = match dialect {
        Dialect::Nr => ngap::NGAP_PDU::decode_borrowed(pdu)
            .is_ok_and(|pdu| pdu.kind() == ngap::NgapPduKind::Initiating_UplinkNASTransport),
        Dialect::Eps => s1ap::S1AP_PDU::decode_borrowed(pdu)
            .is_ok_and(|pdu| pdu.kind() == s1ap::S1apPduKind::Initiating_uplinkNASTransport),
    };
    vireo_core::amf::access::ue_ids(dialect, pdu).1.filter(|_| is_uplink_nas).map(RanUeNgapId)
}

/// Returns the identifier of the connection that a PDU of a gNB opens, if it does.
pub(super) fn opened_connection(pdu: &[u8]) -> Option<RanUeNgapId> {
    match n2::route(pdu).ok()? {
        n2::Route::Initial { ran_id, .. } => Some(ran_id),
        _ => None,
    }
}

/// Returns the core's identifier of the connection that a HANDOVER REQUEST asks of a RAN node.
pub(super) fn requested_target(dialect: Dialect, pdu: &[u8]) -> Option<u64> {
    let is_request = match dialect {
        Dialect::Nr => ngap::NGAP_PDU::decode_borrowed(pdu)
            .is_ok_and(|pdu| pdu.kind() == ngap::NgapPduKind::Initiating_HandoverResourceAllocation),
        Dialect::Eps => s1ap::S1AP_PDU::decode_borrowed(pdu)
            .is_ok_and(|pdu| pdu.kind() == s1ap::S1apPduKind::Initiating_HandoverResourceAllocation),
    };
    vireo_core::amf::access::ue_ids(dialect, pdu).0.filter(|_| is_request)
}

/// Returns the core's identifier of the connection that UE CONTEXT RELEASE COMMAND releases, if it
/// names the connection by this alone.
pub(super) fn target_released(dialect: Dialect, pdu: &[u8]) -> Option<u64> {
    match dialect {
        Dialect::Nr => match ngap::NGAP_PDU::decode_borrowed(pdu).ok()?.ie::<ngap::ie::UE_NGAP_IDs>()?.ok()? {
            ngap::UENGAPIDs::aMF_UE_NGAP_ID(id) => Some(id.0),
            _ => None,
        },
        Dialect::Eps => match s1ap::S1AP_PDU::decode_borrowed(pdu).ok()?.ie::<s1ap::ie::UE_S1AP_IDs>()?.ok()? {
            s1ap::UES1APIDs::mME_UE_S1AP_ID(id) => Some(id.0.into()),
            _ => None,
        },
    }
}

/// Returns the kind of a PDU, for the analysis of a seed.
pub(super) fn kind_of(dialect: Dialect, pdu: &[u8]) -> String {
    match dialect {
        Dialect::Nr => format!("{:?}", ngap::NGAP_PDU::decode_borrowed(pdu).map(|pdu| pdu.kind())),
        Dialect::Eps => format!("{:?}", s1ap::S1AP_PDU::decode_borrowed(pdu).map(|pdu| pdu.kind())),
    }
}

/// UE of 5GS or EPS.
#[derive(Debug)]
pub(super) enum Phone {
    Nr(Box<Ue>),
    Eps(Box<LteUe>),
}

/// Calls the same method of either UE.
macro_rules! either {
    ($phone:expr, $ue:ident => $call:expr) => {
        match $phone {
            Phone::Nr($ue) => $call,
            Phone::Eps($ue) => $call,
        }
    };
}

impl Phone {
    pub(super) fn new(dialect: Dialect, usim: Usim) -> Self {
        match dialect {
            Dialect::Nr => Phone::Nr(Box::new(Ue::new(usim))),
            Dialect::Eps => Phone::Eps(Box::new(LteUe::new(usim))),
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Phone::Nr(_) => Dialect::Nr,
            Phone::Eps(_) => Dialect::Eps,
        }
    }

    pub(super) fn supi(&self) -> Supi {
        either!(self, ue => ue.usim().supi())
    }

    pub(super) fn mm(&self) -> MmState {
        either!(self, ue => ue.mm())
    }

    pub(super) fn guti(&self) -> Option<Guti> {
        either!(self, ue => ue.guti())
    }

    /// Returns the GUTI whose S-TMSI the UE sends in RRC, if any.
    pub(super) fn access_guti(&self) -> Option<Guti> {
        either!(self, ue => ue.access_guti())
    }

    /// Returns the first active session, if any.
    pub(super) fn active_session(&self) -> Option<u8> {
        either!(self, ue => ue.active_sessions().next())
    }

    pub(super) fn connection_released(&mut self) {
        either!(self, ue => ue.connection_released());
    }

    pub(super) fn register(
        &mut self,
        profile: &Profile,
        kind: Registration,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        match self {
            Phone::Nr(ue) => ue.register(profile, kind, out),
            Phone::Eps(ue) => ue.register(profile, kind, PduSessionType::Ipv4, out),
        }
    }

    /// Starts the establishment of a session. A UE of EPS has its default bearer since its attach.
    pub(super) fn establish(&mut self, profile: &Profile, psi: u8, out: &mut UeOutput) -> Result<(), CommandError> {
        match self {
            Phone::Nr(ue) => ue.establish(profile, psi, PduSessionType::Ipv4, out),
            Phone::Eps(_) => Err(CommandError::Session(psi)),
        }
    }

    pub(super) fn release(&mut self, psi: u8, out: &mut UeOutput) -> Result<(), CommandError> {
        match self {
            Phone::Nr(ue) => ue.release(psi, out),
            Phone::Eps(_) => Err(CommandError::Session(psi)),
        }
    }

    pub(super) fn service_request(&mut self, service: Service, out: &mut UeOutput) -> Result<(), CommandError> {
        either!(self, ue => ue.service_request(service, out))
    }

    pub(super) fn deregister(&mut self, profile: &Profile, out: &mut UeOutput) -> Result<(), CommandError> {
        match self {
            Phone::Nr(ue) => ue.deregister(profile, false, out),
            Phone::Eps(ue) => ue.deregister(false, out),
        }
    }

    pub(super) fn receive(&mut self, profile: &Profile, nas: &[u8], out: &mut UeOutput) {
        either!(self, ue => ue.receive(profile, nas, out));
    }

    pub(super) fn check_access_key(&mut self, key: &[u8], out: &mut UeOutput) {
        either!(self, ue => ue.check_access_key(key, out));
    }

    /// Hands the connected UE over to the other system, with the value of the NAS transparent
    /// container in its command. It is `spare` if it cannot move, and false is returned.
    pub(super) fn apply_handover_command(&mut self, container: &[u8], spare: Phone) -> bool {
        let moved = match std::mem::replace(self, spare) {
            Phone::Nr(ue) => ue.into_eps(container).map(|ue| Phone::Eps(Box::new(ue))),
            Phone::Eps(ue) => ue.into_nr(container).map(|ue| Phone::Nr(Box::new(ue))),
        };
        moved.map(|ue| *self = ue).is_some()
    }

    /// Compares the key that the target of such a handover received with the UE's own.
    pub(super) fn check_mapped_key(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        either!(self, ue => ue.check_mapped_key(key, chaining, out));
    }

    pub(super) fn check_next_hop(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        either!(self, ue => ue.check_next_hop(key, chaining, out));
    }
}
