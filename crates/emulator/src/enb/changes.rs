//! Changes that an eNB starts: tunnels at a secondary node (TS 36.413 8.2.4), released E-RABs
//! (8.2.3.2.2) and configuration transfer to another eNB (8.15).

use super::{ConnectionId, Enb, Event, Inbox, Outbox, encode};
use crate::ran::{Fault, SendError, Violation};
use vireo_types::{RanNodeId, Tai, Teid};
use vireo_wire::s1ap::*;
use vireo_wire::s1ap::{build_s1ap, build_s1ap_ie, extract_s1ap_ies};

/// Bit of the generation in a TEID (`downlink_teid`) that the tunnel of a secondary node has.
const SECONDARY: u32 = 1 << 31;

impl Enb {
    /// Sends E-RAB MODIFICATION INDICATION: all tunnels of the UE are at the secondary node from
    /// now on, or at this one again.
    pub fn indicate_modification(&mut self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        let mme = self.mme_id(id).ok_or(SendError::NoConnection)?;
        let address = self.address();
        let mut items = Vec::new();
        for tunnel in self.connections.get_mut(id).ok_or(SendError::NoConnection)?.tunnels.iter_mut() {
            tunnel.downlink = Teid(tunnel.downlink.0 ^ SECONDARY);
            let (erab, teid) = (ERABID(tunnel.psi.into()), GTPTEID(tunnel.downlink.0.to_be_bytes()));
            let item = ERABToBeModifiedItemBearerModInd::new(erab, address.clone(), teid, None);
            items.push(build_s1ap_ie!(REJECT E_RABToBeModifiedItemBearerModInd(item))?);
        }
        let message = build_s1ap!(
            InitiatingMessage,
            E_RABModificationIndication,
            ERABModificationIndication,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            E_RABToBeModifiedListBearerModInd(ERABToBeModifiedListBearerModInd(items)),
        );
        Ok(encode(out, self.stream(id), message)?)
    }

    /// Handles E-RAB MODIFICATION CONFIRM.
    pub(super) fn on_modification_confirm(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, ERABModificationConfirm,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
        );
        let failed = pdu.items::<ie::E_RABFailedToModifyListBearerModConf>().count();
        let (_, owner) = self.identify(mme, enb)?;
        inbox.events.push(Event::ModificationConfirmed { owner, failed });
        Ok(())
    }

    /// Sends E-RAB RELEASE INDICATION: the eNB has released this E-RAB.
    pub fn drop_session(&mut self, id: ConnectionId, erab: u8, out: &mut Outbox) -> Result<(), SendError> {
        let mme = self.mme_id(id).ok_or(SendError::NoConnection)?;
        let connection = self.connections.get_mut(id).ok_or(SendError::NoConnection)?;
        connection.tunnels.retain(|tunnel| tunnel.psi != erab);
        let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
        let item = build_s1ap_ie!(IGNORE E_RABItem(ERABItem::new(ERABID(erab.into()), cause, None)))?;
        let message = build_s1ap!(
            InitiatingMessage,
            E_RABReleaseIndication,
            ERABReleaseIndication,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            E_RABReleasedList(ERABList(vec![item])),
        );
        Ok(encode(out, self.stream(id), message)?)
    }

    /// Sends ENB CONFIGURATION TRANSFER: requests the X2 addresses of another eNB.
    pub fn request_x2_addresses(&self, target: (RanNodeId, Tai), out: &mut Outbox) -> Result<(), SendError> {
        let (RanNodeId::Enb(enb), tai) = target else { return Err(SendError::NoConnection) };
        let plmn = PLMNidentity(TBCDSTRING(enb.plmn.ngap()));
        let global = helpers::global_enb_id(plmn, helpers::EnbKind::Macro, enb.id)?;
        let [.., high, low] = tai.tac.0.to_be_bytes();
        let area = helpers::tai(PLMNidentity(TBCDSTRING(tai.plmn.ngap())), [high, low]);
        let request = SONInformation::sONInformationRequest(SONInformationRequest::x2TNL_Configuration_Info);
        self.transfer_configuration(TargeteNBID::new(global, area, None), request, out)
    }

    fn transfer_configuration(
        &self,
        target: TargeteNBID,
        information: SONInformation<'_>,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let source = SourceeNBID::new(self.global_id()?, self.tai(), None);
        let message = build_s1ap!(
            InitiatingMessage,
            eNBConfigurationTransfer,
            ENBConfigurationTransfer,
            SONConfigurationTransferECT(SONConfigurationTransfer::new(target, source, information, None)),
        );
        Ok(encode(out, self.common(), message)?)
    }

    /// Handles MME CONFIGURATION TRANSFER: answers a request with the address of this eNB.
    pub(super) fn configuration_transfer(
        &self,
        pdu: &S1APPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        let undecodable = || Fault::Peer(Violation::Undecodable);
        let son = pdu.ie::<ie::SONConfigurationTransferMCT>().transpose()?.ok_or_else(undecodable)?;
        if son.target_enb_id.global_enb_id != self.global_id()? {
            return Err(Fault::Peer(Violation::Unexpected(pdu.procedure_code())));
        }
        match &son.son_information {
            SONInformation::sONInformationRequest(_) => {
                let info = X2TNLConfigurationInfo::new(ENBX2TLAs(vec![self.address()]), None);
                let answer = SONInformation::sONInformationReply(SONInformationReply::new(Some(info), None));
                let source = son.source_enb_id;
                let to = TargeteNBID::new(source.global_enb_id, source.selected_tai, None);
                self.transfer_configuration(to, answer, out).map_err(Fault::Own)
            }
            SONInformation::sONInformationReply(_) => {
                inbox.events.push(Event::ConfigurationReceived);
                Ok(())
            }
            _ => Err(undecodable()),
        }
    }
}
