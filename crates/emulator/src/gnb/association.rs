//! Associations of a gNB with one AMF (TS 38.412 clause 7).
//!
//! NG is set up on one association. A RAN Configuration Update with the Global RAN Node ID binds
//! each further one to it (TS 38.413 8.7.2). UE-associated signalling stays on one association
//! while that is up (TS 23.501 5.21.1.3).

use super::resource::address_of;
use super::{Event, Gnb, Inbox, NgState, Outbox, PduRoute, encode_by};
use crate::ran::{Fault, SendError};
use crate::ran::{read_address, ue_stream};
use std::net::IpAddr;
use vireo_types::RanUeNgapId;
use vireo_wire::ngap::*;
use vireo_wire::ngap::{build_ngap, build_ngap_ie, extract_ngap_ies};

/// Maximum number of associations of one gNB (TS 38.413 9.2.6.7: maxnoofTNLAssociations).
pub const MAX_ASSOCIATIONS: usize = 32;

/// State of one association.
#[derive(Clone, Copy, Debug)]
pub(super) struct Association {
    state: NgState,
    streams: u16,
}

impl Association {
    const DOWN: Association = Association { state: NgState::Down, streams: 2 };
}

impl Gnb {
    fn association(&mut self, by: u8) -> &mut Association {
        let at = usize::from(by);
        if self.associations.len() <= at {
            self.associations.resize(at + 1, Association::DOWN);
        }
        &mut self.associations[at]
    }

    /// Returns the state of one association: `Up` as soon as it carries UEs.
    pub fn association_state(&self, by: u8) -> NgState {
        self.associations.get(usize::from(by)).map_or(NgState::Down, |association| association.state)
    }

    /// Returns the number of associations that carry UEs.
    pub fn associations_up(&self) -> usize {
        self.associations.iter().filter(|association| association.state == NgState::Up).count()
    }

    /// Returns the `n`-th association that carries UEs, modulo their number.
    fn nth_up(&self, n: u32) -> Option<u8> {
        let count = self.associations_up();
        let up = (0u8..).zip(&self.associations).filter(|(_, association)| association.state == NgState::Up);
        up.map(|(by, _)| by).nth((n as usize).checked_rem(count)?)
    }

    /// Chooses the association of a UE's new connection; all are equal. It mixes the owner number,
    /// since the UE numbers of one gNB may have a common pattern.
    pub(super) fn choose(&self, owner: u32) -> u8 {
        self.nth_up(owner.wrapping_mul(0x9e37_79b9) >> 16).unwrap_or(self.current)
    }

    /// Returns association `by`, or one that is up if `by` is not.
    pub(crate) fn pick_live(&self, by: u8) -> u8 {
        if self.association_state(by) == NgState::Up { by } else { self.nth_up(0).unwrap_or(by) }
    }

    /// Returns the route of non-UE-associated messages: the association of the last received AMF
    /// message, stream 0 (TS 38.412 clause 7).
    pub(super) fn common(&self) -> PduRoute {
        PduRoute { by: self.pick_live(self.current), stream: 0 }
    }

    /// Returns the route of a UE's messages.
    pub(super) fn ue_route(&self, ran: RanUeNgapId) -> PduRoute {
        let (owner, by) = self.connection(ran).map_or((0, self.current), |c| (c.owner, c.by));
        let by = self.pick_live(by);
        let streams = self.associations.get(usize::from(by)).map_or(2, |association| association.streams);
        PduRoute { by, stream: ue_stream(owner, streams) }
    }

    /// Handles an association that is up with this number of outbound streams. On the first one it
    /// clears all state and sends NG SETUP REQUEST. On a further one it sends RAN CONFIGURATION
    /// UPDATE with the Global RAN Node ID. It sends nothing while NG Setup runs on another one:
    /// [`Event::Ready`] follows.
    pub fn attach(&mut self, by: u8, streams: u16, out: &mut Outbox) -> Result<(), SendError> {
        match self.state {
            NgState::Down => self.set_up_by(by, streams, out),
            NgState::SettingUp => Ok(()),
            NgState::Up => {
                *self.association(by) = Association { state: NgState::SettingUp, streams };
                let update = build_ngap!(
                    InitiatingMessage,
                    RANConfigurationUpdate,
                    RANConfigurationUpdate,
                    GlobalRANNodeID(self.global_id()?),
                );
                Ok(encode_by(out, PduRoute { by, stream: 0 }, update)?)
            }
        }
    }

    fn set_up_by(&mut self, by: u8, streams: u16, out: &mut Outbox) -> Result<(), SendError> {
        self.on_association_lost();
        *self.association(by) = Association { state: NgState::SettingUp, streams };
        self.current = by;
        self.request_set_up(out)?;
        self.state = NgState::SettingUp;
        Ok(())
    }

    /// Sends NG SETUP REQUEST on an association with this number of outbound streams.
    pub fn set_up(&mut self, streams: u16, out: &mut Outbox) -> Result<(), SendError> {
        self.set_up_by(0, streams, out)
    }

    /// Handles the loss of an association. Returns true if the gNB continues with another one.
    /// Otherwise every UE is idle and the interface is down.
    pub fn detach(&mut self, by: u8) -> bool {
        *self.association(by) = Association::DOWN;
        if self.state != NgState::Up || self.associations_up() == 0 {
            self.on_association_lost();
            return false;
        }
        let next = self.pick_live(by);
        self.connections.slots_mut().filter(|connection| connection.by == by).for_each(|c| c.by = next);
        true
    }

    pub(super) fn all_down(&mut self) {
        self.associations.fill(Association::DOWN);
    }

    /// Handles NG SETUP RESPONSE or FAILURE.
    pub(super) fn on_setup_answer(&mut self, taken: bool) {
        let by = self.current;
        let state = if taken { NgState::Up } else { NgState::Down };
        self.association(by).state = state;
        self.state = state;
    }

    /// Handles RAN CONFIGURATION UPDATE ACKNOWLEDGE or FAILURE.
    pub(super) fn on_update_answer(&mut self, taken: bool, inbox: &mut Inbox) {
        let by = self.current;
        if self.association(by).state == NgState::SettingUp && self.state == NgState::Up {
            self.association(by).state = if taken { NgState::Up } else { NgState::Down };
        }
        inbox.events.push(Event::ConfigurationUpdated(taken));
    }

    /// Handles AMF CONFIGURATION UPDATE. It acknowledges at once unless the AMF requests
    /// associations. Then the caller connects and calls [`Gnb::acknowledge_associations`]. The
    /// caller also closes removed associations.
    pub(super) fn amf_update(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, AMFConfigurationUpdate,
            opt add: AMFTNLAssociationToAddList = AMF_TNLAssociationToAddList(list) => list,
            opt remove: AMFTNLAssociationToRemoveList = AMF_TNLAssociationToRemoveList(list) => list,
        );
        let gone = remove.iter().flat_map(|list| &list.0);
        let gone: Vec<IpAddr> = gone.filter_map(|item| endpoint(&item.amf_tnl_association_address)).collect();
        if !gone.is_empty() {
            inbox.events.push(Event::AssociationsRemoved(gone));
        }
        let addresses = add.iter().flat_map(|list| &list.0);
        let addresses: Vec<IpAddr> = addresses.filter_map(|item| endpoint(&item.amf_tnl_association_address)).collect();
        if addresses.is_empty() {
            let answer = build_ngap!(SuccessfulOutcome, AMFConfigurationUpdate, AMFConfigurationUpdateAcknowledge,);
            return Ok(encode_by(out, self.common(), answer)?);
        }
        inbox.events.push(Event::AssociationsWanted(addresses));
        Ok(())
    }

    /// Sends AMF CONFIGURATION UPDATE ACKNOWLEDGE: for each address, whether there is an
    /// association.
    pub fn acknowledge_associations(&mut self, tried: &[(IpAddr, bool)], out: &mut Outbox) -> Result<(), SendError> {
        let of = |wanted: bool| tried.iter().filter(move |(_, up)| *up == wanted).map(|(address, _)| *address);
        let address = |address: IpAddr| CPTransportLayerInformation::endpointIPAddress(address_of(address));
        let up: Vec<_> = of(true).map(|a| AMFTNLAssociationSetupItem::new(address(a), None)).collect();
        let cause = || Cause::transport(CauseTransport::transport_resource_unavailable);
        let failed: Vec<_> = of(false).map(|a| TNLAssociationItem::new(address(a), cause(), None)).collect();
        let mut ies = Vec::new();
        if !up.is_empty() {
            let list = AMFTNLAssociationSetupList(up);
            ies.push(build_ngap_ie!(AMFConfigurationUpdateAcknowledge, AMF_TNLAssociationSetupList(list))?);
        }
        if !failed.is_empty() {
            let list = TNLAssociationList(failed);
            ies.push(build_ngap_ie!(AMFConfigurationUpdateAcknowledge, AMF_TNLAssociationFailedToSetupList(list))?);
        }
        let message = AMFConfigurationUpdateAcknowledge::new(ProtocolIEContainer(ies));
        let answer = NGAP_PDU::of_message(&message, AMFConfigurationUpdateAcknowledge::CRITICALITY);
        Ok(encode_by(out, self.common(), answer)?)
    }

    /// Binds the UE to the association of the last received AMF message (TS 23.501 5.21.1.3).
    pub(super) fn rebind(&mut self, ran: RanUeNgapId) {
        let by = self.current;
        if let Some(connection) = self.connection_mut(ran) {
            connection.by = by;
        }
    }
}

/// Returns the IP address of an endpoint.
fn endpoint(information: &CPTransportLayerInformation<'_>) -> Option<IpAddr> {
    let CPTransportLayerInformation::endpointIPAddress(address) = information else { return None };
    read_address(&address.0)
}
