//! RAN node and UE of either dialect, behind one interface for the engine.
//!
//! What the dialects share is in [`crate::ran`] and in the events of [`crate::ue`]. Handovers exist
//! only between gNBs.

use crate::enb::{self, Enb};
use crate::gnb::{self, Gnb, NgState};
use crate::options::Options;
use crate::ran::{ConnectionId, Outbox, Tunnel};
use crate::rat::Rat;
use crate::ue::eps::LteUe;
use crate::ue::{CommandError, Fault, MmState, Registration, Service, Session, Ue, UeOutput};
use crate::usim::Usim;
use std::net::IpAddr;
use vireo_types::{Guti, PduSessionType};
use vireo_wire::{ngap, s1ap};

/// Reason for which a node could not send a message.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeError {
    #[error(transparent)]
    Gnb(#[from] gnb::SendError),
    #[error(transparent)]
    Enb(#[from] enb::SendError),
}

/// Reason of a UE for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Establishment {
    Signalling,
    Data,
    /// The answer to a page.
    Paged,
}

/// Reason of a node for the release of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseReason {
    Inactivity,
    RadioLinkLost,
}

/// gNB or eNB of a worker.
#[derive(Debug)]
pub(super) enum Node {
    Gnb(Box<Gnb>),
    Enb(Box<Enb>),
}

impl Node {
    /// Returns node `number` of a dialect.
    pub(super) fn new(options: &Options, rat: Rat, number: u32) -> Self {
        match rat {
            Rat::Nr => Node::Gnb(Box::new(Gnb::new(options.gnb_config(number)))),
            Rat::Eps => Node::Enb(Box::new(Enb::new(options.enb_config(number)))),
        }
    }

    pub(super) fn rat(&self) -> Rat {
        match self {
            Node::Gnb(_) => Rat::Nr,
            Node::Enb(_) => Rat::Eps,
        }
    }

    /// Returns the payload protocol identifier of the dialect.
    pub(super) fn ppid(&self) -> u32 {
        match self {
            Node::Gnb(_) => gnb::PPID,
            Node::Enb(_) => enb::PPID,
        }
    }

    /// Returns the gNB, for what only gNBs do.
    pub(super) fn gnb(&mut self) -> Result<&mut Gnb, gnb::SendError> {
        match self {
            Node::Gnb(gnb) => Ok(gnb),
            Node::Enb(_) => Err(gnb::SendError::NoConnection),
        }
    }

    /// Returns the address of the node's tunnels.
    pub(super) fn n3(&self) -> IpAddr {
        match self {
            Node::Gnb(gnb) => gnb.config().n3,
            Node::Enb(enb) => enb.config().s1u,
        }
    }

    /// Returns true if NG or S1 is set up.
    pub(super) fn is_up(&self) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.state() == NgState::Up,
            Node::Enb(enb) => enb.state() == enb::S1State::Up,
        }
    }

    /// Returns true if neither NG nor S1 is set up or in set-up.
    pub(super) fn is_down(&self) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.state() == NgState::Down,
            Node::Enb(enb) => enb.state() == enb::S1State::Down,
        }
    }

    /// Returns the state of one association.
    pub(super) fn association_state(&self, by: u8) -> NgState {
        match self {
            Node::Gnb(gnb) => gnb.association_state(by),
            Node::Enb(enb) => match enb.association_state(by) {
                enb::S1State::Down => NgState::Down,
                enb::S1State::SettingUp => NgState::SettingUp,
                enb::S1State::Up => NgState::Up,
            },
        }
    }

    /// Returns the number of associations that carry UEs.
    pub(super) fn associations_up(&self) -> usize {
        match self {
            Node::Gnb(gnb) => gnb.associations_up(),
            Node::Enb(enb) => enb.associations_up(),
        }
    }

    /// Returns association `by`, or one that is up if `by` is not.
    pub(super) fn pick_live(&self, by: u8) -> u8 {
        match self {
            Node::Gnb(gnb) => gnb.pick_live(by),
            Node::Enb(enb) => enb.pick_live(by),
        }
    }

    /// Starts NG or S1 Setup, or binds a further association of a gNB. S1 is set up on each one.
    pub(super) fn attach(&mut self, by: u8, streams: u16, out: &mut Outbox) -> Result<(), NodeError> {
        match self {
            Node::Gnb(gnb) => Ok(gnb.attach(by, streams, out)?),
            Node::Enb(enb) => Ok(enb.attach(by, streams, out)?),
        }
    }

    /// Handles the loss of an association. Returns true if the node continues with another one. The
    /// connections of an eNB end with their association.
    pub(super) fn detach(&mut self, by: u8) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.detach(by),
            Node::Enb(enb) => {
                enb.detach(by);
                enb.associations_up() > 0
            }
        }
    }

    /// Returns true if a UE has this connection.
    pub(super) fn has(&self, id: ConnectionId) -> bool {
        match self {
            Node::Gnb(gnb) => gnb.owner(id).is_some(),
            Node::Enb(enb) => enb.owner(id).is_some(),
        }
    }

    pub(super) fn tunnels(&self, id: ConnectionId) -> &[Tunnel] {
        match self {
            Node::Gnb(gnb) => gnb.tunnels(id),
            Node::Enb(enb) => enb.tunnels(id),
        }
    }

    pub(super) fn initial_ue(
        &mut self,
        owner: u32,
        nas: &[u8],
        guti: Option<Guti>,
        reason: Establishment,
        out: &mut Outbox,
    ) -> Result<ConnectionId, NodeError> {
        match self {
            Node::Gnb(gnb) => {
                let cause = match reason {
                    Establishment::Signalling => ngap::RRCEstablishmentCause::mo_Signalling,
                    Establishment::Data => ngap::RRCEstablishmentCause::mo_Data,
                    Establishment::Paged => ngap::RRCEstablishmentCause::mt_Access,
                };
                Ok(gnb.initial_ue(owner, nas, guti, cause, out)?)
            }
            Node::Enb(enb) => {
                let cause = match reason {
                    Establishment::Signalling => s1ap::RRCEstablishmentCause::mo_Signalling,
                    Establishment::Data => s1ap::RRCEstablishmentCause::mo_Data,
                    Establishment::Paged => s1ap::RRCEstablishmentCause::mt_Access,
                };
                Ok(enb.initial_ue(owner, nas, guti, cause, out)?)
            }
        }
    }

    pub(super) fn uplink_nas(&self, id: ConnectionId, nas: &[u8], out: &mut Outbox) -> Result<(), NodeError> {
        match self {
            Node::Gnb(gnb) => Ok(gnb.uplink_nas(id, nas, out)?),
            Node::Enb(enb) => Ok(enb.uplink_nas(id, nas, out)?),
        }
    }

    pub(super) fn request_release(
        &self,
        id: ConnectionId,
        reason: ReleaseReason,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
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

    /// Resets a connection.
    pub(super) fn reset(&mut self, id: ConnectionId, out: &mut Outbox) -> Result<(), NodeError> {
        match self {
            Node::Gnb(gnb) => gnb.reset(Some(&[id]), out)?,
            Node::Enb(enb) => enb.reset(Some(&[id]), out)?,
        };
        Ok(())
    }

    /// Removes a connection that the core never answered.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        match self {
            Node::Gnb(gnb) => gnb.forget(id),
            Node::Enb(enb) => enb.forget(id),
        };
    }

    /// Abandons a connection after a radio link failure.
    pub(super) fn abandon(&mut self, id: ConnectionId, out: &mut Outbox) -> Result<(), NodeError> {
        match self {
            Node::Gnb(gnb) => Ok(gnb.abandon(id, out)?),
            Node::Enb(enb) => Ok(enb.abandon(id, out)?),
        }
    }
}

/// UE of either dialect.
#[derive(Debug)]
pub(super) enum Device {
    Nr(Ue),
    Eps(LteUe),
}

/// Calls the same method of either UE.
macro_rules! either {
    ($device:expr, $ue:ident => $call:expr) => {
        match $device {
            Device::Nr($ue) => $call,
            Device::Eps($ue) => $call,
        }
    };
}

impl Device {
    pub(super) fn new(rat: Rat, usim: Usim) -> Self {
        match rat {
            Rat::Nr => Device::Nr(Ue::new(usim)),
            Rat::Eps => Device::Eps(LteUe::new(usim)),
        }
    }

    pub(super) fn rat(&self) -> Rat {
        match self {
            Device::Nr(_) => Rat::Nr,
            Device::Eps(_) => Rat::Eps,
        }
    }

    /// Returns the name of the mobility management protocol, for texts.
    pub(super) fn mm_name(&self) -> &'static str {
        match self {
            Device::Nr(_) => "5GMM",
            Device::Eps(_) => "EMM",
        }
    }

    pub(super) fn mm(&self) -> MmState {
        either!(self, ue => ue.mm())
    }

    pub(super) fn usim(&self) -> &Usim {
        either!(self, ue => ue.usim())
    }

    pub(super) fn guti(&self) -> Option<Guti> {
        either!(self, ue => ue.guti())
    }

    /// Returns the GUTI whose S-TMSI the UE sends in RRC, if any.
    pub(super) fn access_guti(&self) -> Option<Guti> {
        match self {
            Device::Nr(ue) => ue.guti(),
            Device::Eps(ue) => ue.access_guti(),
        }
    }

    pub(super) fn sessions(&self) -> &[Session] {
        either!(self, ue => ue.sessions())
    }

    /// Returns true if every active session has a tunnel.
    pub(super) fn has_tunnels(&self, tunnels: &[Tunnel]) -> bool {
        let has = |psi: u8| tunnels.iter().any(|tunnel| tunnel.psi == psi);
        either!(self, ue => ue.active_sessions().all(has))
    }

    /// Returns true if session `psi` is active with its tunnel. An EPS UE has only its default
    /// bearer, which its attach activates.
    pub(super) fn is_established(&self, psi: u8, tunnels: &[Tunnel]) -> bool {
        match self {
            Device::Nr(ue) => {
                ue.active_sessions().any(|active| active == psi) && tunnels.iter().any(|tunnel| tunnel.psi == psi)
            }
            Device::Eps(ue) => ue.active_sessions().next().is_some() && self.has_tunnels(tunnels),
        }
    }

    /// Returns true if a registration of this kind is complete on the RAN side. The default bearer
    /// of an attach needs its tunnel.
    pub(super) fn is_registered(&self, registration: Registration, tunnels: &[Tunnel]) -> bool {
        match (self, registration) {
            (Device::Nr(_), _) | (_, Registration::Periodic) => true,
            (Device::Eps(_), _) => self.has_tunnels(tunnels),
        }
    }

    pub(super) fn inject(&mut self, fault: Fault) {
        either!(self, ue => ue.inject(fault));
    }

    pub(super) fn connection_released(&mut self) {
        either!(self, ue => ue.connection_released());
    }

    pub(super) fn forget_session(&mut self, psi: u8) {
        either!(self, ue => ue.forget_session(psi));
    }

    pub(super) fn detach(&mut self) {
        either!(self, ue => ue.detach());
    }

    pub(super) fn register(
        &mut self,
        options: &Options,
        registration: Registration,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        match self {
            Device::Nr(ue) => ue.register(&options.profile, registration, out),
            Device::Eps(ue) => ue.register(&options.profile, registration, options.session_type, out),
        }
    }

    /// Starts the establishment of a session. An EPS UE has its default bearer already.
    pub(super) fn establish(
        &mut self,
        options: &Options,
        psi: u8,
        kind: Option<PduSessionType>,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        match self {
            Device::Nr(ue) => ue.establish(&options.profile, psi, kind.unwrap_or(options.session_type), out),
            Device::Eps(ue) if ue.active_sessions().next().is_some() => Ok(()),
            Device::Eps(_) => Err(CommandError::Session(psi)),
        }
    }

    pub(super) fn release(&mut self, psi: u8, out: &mut UeOutput) -> Result<(), CommandError> {
        match self {
            Device::Nr(ue) => ue.release(psi, out),
            Device::Eps(_) => Err(CommandError::Session(psi)),
        }
    }

    pub(super) fn service_request(&mut self, service: Service, out: &mut UeOutput) -> Result<(), CommandError> {
        either!(self, ue => ue.service_request(service, out))
    }

    pub(super) fn deregister(
        &mut self,
        options: &Options,
        switch_off: bool,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        match self {
            Device::Nr(ue) => ue.deregister(&options.profile, switch_off, out),
            Device::Eps(ue) => ue.deregister(switch_off, out),
        }
    }

    pub(super) fn receive(&mut self, options: &Options, nas: &[u8], out: &mut UeOutput) {
        either!(self, ue => ue.receive(&options.profile, nas, out));
    }

    pub(super) fn check_access_key(&mut self, key: &[u8], out: &mut UeOutput) {
        either!(self, ue => ue.check_access_key(key, out));
    }

    pub(super) fn check_next_hop(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        if let Device::Nr(ue) = self {
            ue.check_next_hop(key, chaining, out);
        }
    }

    /// Returns true if a registration also activates the first session.
    pub(super) fn attaches_with_session(&self) -> bool {
        matches!(self, Device::Eps(_))
    }
}
