//! Changes that a gNB starts: tunnels at a secondary node (TS 38.413 8.2.5), released sessions
//! (8.2.4) and configuration transfer to another node (8.8).

use super::request::global_id;
use super::resource::address_of;
use super::{Event, Gnb, Inbox, Outbox, encode_by};
use crate::ran::{Fault, SendError, Violation, radio_capability};
use vireo_types::{RanNodeId, RanUeNgapId, Tai, Teid};
use vireo_wire::ngap::*;
use vireo_wire::ngap::{build_ngap, extract_ngap_ies};

/// Bit of the generation in a TEID (`downlink_teid`) that the tunnel of a secondary node has.
const SECONDARY: u32 = 1 << 31;

impl Gnb {
    /// Sends PDU SESSION RESOURCE MODIFY INDICATION: all tunnels of the UE are at the secondary
    /// node from now on, or at this one again.
    pub fn indicate_modification(&mut self, ran: RanUeNgapId, out: &mut Outbox) -> Result<(), SendError> {
        let amf = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let n3 = self.config.n3;
        let mut items = Vec::new();
        for tunnel in self.connection_mut(ran).ok_or(SendError::NoConnection)?.tunnels.iter_mut() {
            tunnel.downlink = Teid(tunnel.downlink.0 ^ SECONDARY);
            let qfi = QosFlowIdentifier(u64::from(tunnel.qfi.unwrap_or_default()));
            let flows = AssociatedQosFlowList(vec![AssociatedQosFlowItem::new(qfi, None, None)]);
            let end = GTPTunnel::new(address_of(n3), GTPTEID(tunnel.downlink.0.to_be_bytes()), None);
            let end = UPTransportLayerInformation::gTPTunnel(end);
            let flows = QosFlowPerTNLInformation::new(end, flows, None);
            let transfer = encode_open_type(&PDUSessionResourceModifyIndicationTransfer::new(flows, None, None))?;
            items.push(PDUSessionResourceModifyItemModInd::new(PDUSessionID(tunnel.psi), transfer, None));
        }
        let message = build_ngap!(
            InitiatingMessage,
            PDUSessionResourceModifyIndication,
            PDUSessionResourceModifyIndication,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            PDUSessionResourceModifyListModInd(PDUSessionResourceModifyListModInd(items)),
        );
        Ok(encode_by(out, self.ue_route(ran), message)?)
    }

    /// Handles PDU SESSION RESOURCE MODIFY CONFIRM. A confirmed session has the UPF end that the
    /// gNB knows.
    pub(super) fn on_modification_confirm(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, PDUSessionResourceModifyConfirm,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            opt list: PDUSessionResourceModifyListModCfm = PDUSessionResourceModifyListModCfm(list) => list,
            opt failed: PDUSessionResourceFailedToModifyListModCfm =
                PDUSessionResourceFailedToModifyListModCfm(list) => list,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        let undecodable = || Fault::Peer(Violation::Undecodable);
        for item in list.iter().flat_map(|list| &list.0) {
            let transfer: PDUSessionResourceModifyConfirmTransfer<'_> =
                decode_open_type(&item.pdu_session_resource_modify_confirm_transfer)?;
            let end = super::resource::end_of(&transfer.ul_ngu_up_tnl_information).ok_or_else(undecodable)?;
            let connection = self.connection_mut(ran).ok_or_else(undecodable)?;
            let tunnel = connection.tunnels.iter_mut().find(|tunnel| tunnel.psi == item.pdu_session_id.0);
            let tunnel = tunnel.ok_or_else(undecodable)?;
            (tunnel.upf, tunnel.uplink) = end;
        }
        let failed = failed.map_or(0, |list| list.0.len());
        inbox.events.push(Event::ModificationConfirmed { owner, failed });
        Ok(())
    }

    /// Sends PDU SESSION RESOURCE NOTIFY: the gNB has released this session.
    pub fn drop_session(&mut self, ran: RanUeNgapId, psi: u8, out: &mut Outbox) -> Result<(), SendError> {
        let amf = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let connection = self.connection_mut(ran).ok_or(SendError::NoConnection)?;
        connection.tunnels.retain(|tunnel| tunnel.psi != psi);
        let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
        let transfer = encode_open_type(&PDUSessionResourceNotifyReleasedTransfer::new(cause, None))?;
        let item = PDUSessionResourceReleasedItemNot::new(PDUSessionID(psi), transfer, None);
        let message = build_ngap!(
            InitiatingMessage,
            PDUSessionResourceNotify,
            PDUSessionResourceNotify,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            PDUSessionResourceReleasedListNot(PDUSessionResourceReleasedListNot(vec![item])),
        );
        Ok(encode_by(out, self.ue_route(ran), message)?)
    }

    /// Sends UE RADIO CAPABILITY INFO INDICATION with [`radio_capability`].
    pub fn report_capability(&self, ran: RanUeNgapId, out: &mut Outbox) -> Result<(), SendError> {
        let amf = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let owner = self.owner(ran).ok_or(SendError::NoConnection)?;
        let message = build_ngap!(
            InitiatingMessage,
            UERadioCapabilityInfoIndication,
            UERadioCapabilityInfoIndication,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            UERadioCapability(radio_capability(owner)),
        );
        Ok(encode_by(out, self.ue_route(ran), message)?)
    }

    /// Handles LOCATION REPORTING CONTROL: reports the cell of the UE (TS 38.413 8.12.1, 8.12.3).
    pub(super) fn on_location_request(
        &mut self,
        pdu: &NGAPPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, LocationReportingControl,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            req kind: LocationReportingRequestType = LocationReportingRequestType(kind) => kind,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        let report = build_ngap!(
            InitiatingMessage,
            LocationReport,
            LocationReport,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            UserLocationInformation(self.location()?),
            LocationReportingRequestType(kind),
        );
        encode_by(out, self.ue_route(ran), report)?;
        inbox.events.push(Event::LocationRequested { owner });
        Ok(())
    }

    /// Sends UPLINK RAN CONFIGURATION TRANSFER: requests the Xn addresses of another node.
    pub fn request_xn_addresses(&self, target: (RanNodeId, Tai), out: &mut Outbox) -> Result<(), SendError> {
        let request = SONInformation::sONInformationRequest(SONInformationRequest::xn_TNL_configuration_info);
        self.transfer_configuration((global_id(target.0)?, tai(target.1)), request, out)
    }

    fn transfer_configuration(
        &self,
        (target, area): (GlobalRANNodeID, TAI),
        information: SONInformation<'_>,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let target = TargetRANNodeIDSON::new(target, area, None);
        let source = SourceRANNodeID::new(self.global_id()?, tai(self.config.tai), None);
        let son = SONConfigurationTransfer::new(target, source, information, None, None);
        let message = build_ngap!(
            InitiatingMessage,
            UplinkRANConfigurationTransfer,
            UplinkRANConfigurationTransfer,
            SONConfigurationTransferUL(son),
        );
        Ok(encode_by(out, self.common(), message)?)
    }

    /// Handles DOWNLINK RAN CONFIGURATION TRANSFER: answers a request with the address of this
    /// node.
    pub(super) fn configuration_transfer(
        &self,
        pdu: &NGAPPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        let undecodable = || Fault::Peer(Violation::Undecodable);
        let son = pdu.ie::<ie::SONConfigurationTransferDL>().transpose()?.ok_or_else(undecodable)?;
        if son.target_ran_node_id_son.global_ran_node_id != self.global_id()? {
            return Err(Fault::Peer(Violation::Unexpected(pdu.procedure_code())));
        }
        match &son.son_information {
            SONInformation::sONInformationRequest(_) => {
                let addresses = XnTLAs(vec![address_of(self.config.n3)]);
                let info = XnTNLConfigurationInfo::new(addresses, None, None);
                let answer = SONInformation::sONInformationReply(SONInformationReply::new(Some(info), None));
                let source = son.source_ran_node_id;
                let to = (source.global_ran_node_id, source.selected_tai);
                self.transfer_configuration(to, answer, out).map_err(Fault::Own)
            }
            SONInformation::sONInformationReply(_) => {
                inbox.events.push(Event::ConfigurationReceived);
                Ok(())
            }
            SONInformation::choice_Extensions(_) => Err(undecodable()),
        }
    }
}

fn tai(tai: Tai) -> TAI {
    let [_, a, b, c] = tai.tac.0.to_be_bytes();
    helpers::tai(PLMNIdentity(tai.plmn.ngap()), [a, b, c])
}
