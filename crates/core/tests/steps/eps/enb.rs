//! Answers of the eNB of the test network to requests for a UE context and its E-RABs.

use super::network::{ENB_ADDRESS, ENB_TEID, Network};
use vireo_wire::s1ap::*;

impl Network {
    /// Has eNB `n` release a connection and answer UE CONTEXT RELEASE COMMAND.
    pub(super) fn complete_release(&mut self, n: usize, (mme, enb): (u32, u32)) {
        self.mme_id = self.mme_id.filter(|id| (n, *id) != (self.serving, mme));
        let complete = build_s1ap!(
            SuccessfulOutcome,
            UEContextRelease,
            UEContextReleaseComplete,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(enb),
        );
        self.take_from(n, &complete.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    /// Answers INITIAL CONTEXT SETUP REQUEST, and passes its NAS message to the UE.
    pub(super) fn set_up(&mut self, pdu: &S1APPDU<'_>) {
        let key = pdu.ie::<ie::SecurityKey>().expect("an IE").expect("a key");
        assert_eq!(key.0.len(), 256);
        self.kenb = key.0.as_octets().to_vec();
        let (mut nas, mut done, mut failed) = (None, Vec::new(), Vec::new());
        for item in pdu.items::<ie::E_RABToBeSetupListCtxtSUReq>().map(|item| item.expect("an item")) {
            assert_eq!(item.transport_layer_address.0.as_octets(), [127, 0, 0, 8], "the UPF's");
            nas = nas.or(item.nas_pdu.map(|nas| nas.0.to_vec()));
            if self.refused_erab == Some(item.e_rab_id.0) {
                failed.extend(refused(item.e_rab_id).0);
                continue;
            }
            let address = TransportLayerAddress(ENB_ADDRESS.into());
            let item = ERABSetupItemCtxtSURes::new(item.e_rab_id, address, GTPTEID(ENB_TEID), None);
            done.push(build_s1ap_ie!(IGNORE E_RABSetupItemCtxtSURes(item)).expect("an item"));
        }
        if !self.enb_answers {
            return;
        }
        let mme_id = self.mme_id.expect("a connection");
        let mut ies = vec![
            build_s1ap_ie!(InitialContextSetupResponse, MME_UE_S1AP_ID(mme_id)).expect("an IE"),
            build_s1ap_ie!(InitialContextSetupResponse, eNB_UE_S1AP_ID(self.enb_id)).expect("an IE"),
        ];
        let done = ERABSetupListCtxtSURes(done);
        ies.push(build_s1ap_ie!(InitialContextSetupResponse, E_RABSetupListCtxtSURes(done)).expect("an IE"));
        if !failed.is_empty() {
            let list = ERABList(failed);
            let ie = build_s1ap_ie!(InitialContextSetupResponse, E_RABFailedToSetupListCtxtSURes(list));
            ies.push(ie.expect("an IE"));
        }
        let message = InitialContextSetupResponse::new(ProtocolIEContainer(ies));
        let response = S1AP_PDU::of_message(&message, InitialContextSetupResponse::CRITICALITY);
        self.take_from_enb(&response.and_then(|pdu| pdu.encode()).expect("it encodes"));
        if let Some(nas) = nas {
            self.bring_to_ue(&nas);
        }
    }

    /// Answers E-RAB SETUP REQUEST, and passes its NAS message to the UE.
    pub(super) fn set_up_bearer(&mut self, pdu: &S1APPDU<'_>) {
        let item = pdu.items::<ie::E_RABToBeSetupListBearerSUReq>().next().expect("a bearer").expect("an item");
        let nas = item.nas_pdu.0.to_vec();
        // An E-RAB exists with its bearer only, which the NAS message activates (TS 23.401 5.10.2).
        assert!(!nas.is_empty(), "E-RAB {} without a NAS message", item.e_rab_id.0);
        if self.refused_erab == Some(item.e_rab_id.0) {
            return self.refuse_set_up(item.e_rab_id);
        }
        let address = TransportLayerAddress(ENB_ADDRESS.into());
        let done = ERABSetupItemBearerSURes::new(item.e_rab_id, address, GTPTEID(ENB_TEID), None);
        let done = build_s1ap_ie!(IGNORE E_RABSetupItemBearerSURes(done)).expect("an item");
        let response = build_s1ap!(
            SuccessfulOutcome,
            E_RABSetup,
            ERABSetupResponse,
            MME_UE_S1AP_ID(self.mme_id.expect("a connection")),
            eNB_UE_S1AP_ID(self.enb_id),
            E_RABSetupListBearerSURes(ERABSetupListBearerSURes(vec![done])),
        );
        self.take_from_enb(&response.and_then(|pdu| pdu.encode()).expect("it encodes"));
        self.bring_to_ue(&nas);
    }

    /// Answers E-RAB SETUP REQUEST by the list of failed E-RABs. The UE gets no message.
    fn refuse_set_up(&mut self, erab: ERABID) {
        let response = build_s1ap!(
            SuccessfulOutcome,
            E_RABSetup,
            ERABSetupResponse,
            MME_UE_S1AP_ID(self.mme_id.expect("a connection")),
            eNB_UE_S1AP_ID(self.enb_id),
            E_RABFailedToSetupListBearerSURes(refused(erab)),
        );
        self.take_from_enb(&response.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    /// Answers E-RAB RELEASE COMMAND, and passes its NAS message to the UE.
    pub(super) fn release_bearer(&mut self, pdu: &S1APPDU<'_>) {
        let nas = pdu.ie::<ie::NAS_PDU>().map(|nas| nas.expect("octets").0.to_vec());
        let response = build_s1ap!(
            SuccessfulOutcome,
            E_RABRelease,
            ERABReleaseResponse,
            MME_UE_S1AP_ID(self.mme_id.expect("a connection")),
            eNB_UE_S1AP_ID(self.enb_id),
        );
        self.take_from_enb(&response.and_then(|pdu| pdu.encode()).expect("it encodes"));
        if let Some(nas) = nas {
            self.bring_to_ue(&nas);
        }
    }

    /// Answers E-RAB MODIFY REQUEST, and passes its NAS message to the UE.
    pub(super) fn modify_bearer(&mut self, pdu: &S1APPDU<'_>) {
        let item = pdu.items::<ie::E_RABToBeModifiedListBearerModReq>().next().expect("a bearer").expect("an item");
        let nas = item.nas_pdu.0.to_vec();
        if self.refused_erab == Some(item.e_rab_id.0) {
            return self.refuse_bearer(item.e_rab_id);
        }
        let done = ERABModifyItemBearerModRes::new(item.e_rab_id, None);
        let done = build_s1ap_ie!(IGNORE E_RABModifyItemBearerModRes(done)).expect("an item");
        let response = build_s1ap!(
            SuccessfulOutcome,
            E_RABModify,
            ERABModifyResponse,
            MME_UE_S1AP_ID(self.mme_id.expect("a connection")),
            eNB_UE_S1AP_ID(self.enb_id),
            E_RABModifyListBearerModRes(ERABModifyListBearerModRes(vec![done])),
        );
        self.take_from_enb(&response.and_then(|pdu| pdu.encode()).expect("it encodes"));
        self.bring_to_ue(&nas);
    }

    /// Answers E-RAB MODIFY REQUEST by the list of failed E-RABs. The UE gets no message.
    fn refuse_bearer(&mut self, erab: ERABID) {
        let response = build_s1ap!(
            SuccessfulOutcome,
            E_RABModify,
            ERABModifyResponse,
            MME_UE_S1AP_ID(self.mme_id.expect("a connection")),
            eNB_UE_S1AP_ID(self.enb_id),
            E_RABFailedToModifyList(refused(erab)),
        );
        self.take_from_enb(&response.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }
}

/// Returns the list of failed E-RABs with this one.
fn refused(erab: ERABID) -> ERABList<'static> {
    let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
    ERABList(vec![build_s1ap_ie!(IGNORE E_RABItem(ERABItem::new(erab, cause, None))).expect("an item")])
}
