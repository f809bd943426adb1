//! PDU session resources and the initial context (TS 38.413 8.2, 8.3.1).

use super::{Event, Gnb, Inbox, Outbox, Tunnel, UpProtection, encode_by};
use crate::ran::{Fault, Violation, is_reported_capability, read_address};
use std::net::IpAddr;
use vireo_types::{RanUeNgapId, Teid};
use vireo_wire::ngap::*;
use vireo_wire::ngap::{build_ngap, build_ngap_ie, extract_ngap_ies};

/// One PDU session of an AMF request.
struct RequestedSession<'a> {
    psi: u8,
    nas: Option<NASPDU<'a>>,
    transfer: &'a [u8],
}

/// Results for the sessions of one request: response transfers and failed sessions.
#[derive(Default)]
struct SessionResponses {
    up: Vec<(u8, Vec<u8>)>,
    failed: Vec<(u8, Vec<u8>)>,
}

impl SessionResponses {
    /// Returns a test for sessions that are set up. The UE gets no NAS message of another one (TS
    /// 38.413 8.2.1.2).
    fn success(&self) -> impl Fn(u8) -> bool + use<> {
        let up: Vec<u8> = self.up.iter().map(|(psi, _)| *psi).collect();
        move |psi| up.contains(&psi)
    }
}

impl Gnb {
    pub(super) fn initial_context_setup(
        &mut self,
        pdu: &NGAPPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, InitialContextSetupRequest,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            req key: SecurityKey = SecurityKey(key) => key,
            opt nas: NASPDU = NAS_PDU(nas) => nas,
            opt radio: UERadioCapability = UERadioCapability(radio) => radio,
            opt list: PDUSessionResourceSetupListCxtReq = PDUSessionResourceSetupListCxtReq(list) => list,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        let key = <[u8; 32]>::try_from(key.0.as_octets()).map_err(|_| Fault::Peer(Violation::Undecodable))?;
        inbox.events.push(Event::ContextSetup { owner, key });
        let is_returned = radio.is_some_and(|radio| is_reported_capability(owner, radio.0.as_slice()));
        inbox.events.extend(is_returned.then_some(Event::CapabilityReturned { owner }));
        let list = list.map(|list| list.0).unwrap_or_default();
        let mut answers = SessionResponses::default();
        for item in &list {
            let transfer: &[u8] = &item.pdu_session_resource_setup_request_transfer;
            self.add_tunnel(ran, owner, item.pdu_session_id.0, transfer, &mut answers, inbox);
        }
        let is_up = answers.success();
        self.answer_context(amf, ran, answers, out)?;
        if let Some(nas) = nas {
            inbox.deliver(owner, &nas.0);
        }
        for nas in list.iter().filter(|item| is_up(item.pdu_session_id.0)).filter_map(|item| item.nas_pdu.as_ref()) {
            inbox.deliver(owner, &nas.0);
        }
        Ok(())
    }

    fn answer_context(
        &self,
        amf: u64,
        ran: RanUeNgapId,
        answers: SessionResponses,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        let up = answers.up.into_iter();
        let up = up.map(|(psi, t)| PDUSessionResourceSetupItemCxtRes::new(PDUSessionID(psi), t.into(), None));
        let up = PDUSessionResourceSetupListCxtRes(up.collect());
        let failed = answers.failed.into_iter();
        let failed =
            failed.map(|(psi, t)| PDUSessionResourceFailedToSetupItemCxtRes::new(PDUSessionID(psi), t.into(), None));
        let failed = PDUSessionResourceFailedToSetupListCxtRes(failed.collect());
        let answer = match (up.0.is_empty(), failed.0.is_empty()) {
            (true, true) => build_ngap!(
                SuccessfulOutcome,
                InitialContextSetup,
                InitialContextSetupResponse,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
            ),
            (false, true) => build_ngap!(
                SuccessfulOutcome,
                InitialContextSetup,
                InitialContextSetupResponse,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                PDUSessionResourceSetupListCxtRes(up),
            ),
            (true, false) => build_ngap!(
                SuccessfulOutcome,
                InitialContextSetup,
                InitialContextSetupResponse,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                PDUSessionResourceFailedToSetupListCxtRes(failed),
            ),
            (false, false) => build_ngap!(
                SuccessfulOutcome,
                InitialContextSetup,
                InitialContextSetupResponse,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                PDUSessionResourceSetupListCxtRes(up),
                PDUSessionResourceFailedToSetupListCxtRes(failed),
            ),
        };
        Ok(encode_by(out, self.ue_route(ran), answer)?)
    }

    pub(super) fn resource_setup(
        &mut self,
        pdu: &NGAPPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, PDUSessionResourceSetupRequest,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            opt nas: NASPDU = NAS_PDU(nas) => nas,
            req list: PDUSessionResourceSetupListSUReq = PDUSessionResourceSetupListSUReq(list) => list,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        let mut answers = SessionResponses::default();
        let asked = list.0.iter().map(|item| RequestedSession {
            psi: item.pdu_session_id.0,
            nas: item.pdu_session_nas_pdu.clone(),
            transfer: &item.pdu_session_resource_setup_request_transfer,
        });
        let asked: Vec<_> = asked.collect();
        for session in &asked {
            self.add_tunnel(ran, owner, session.psi, session.transfer, &mut answers, inbox);
        }
        let is_up = answers.success();
        let up = answers.up.into_iter();
        let up = up.map(|(psi, t)| PDUSessionResourceSetupItemSURes::new(PDUSessionID(psi), t.into(), None));
        let up = PDUSessionResourceSetupListSURes(up.collect());
        let failed = answers.failed.into_iter();
        let failed =
            failed.map(|(psi, t)| PDUSessionResourceFailedToSetupItemSURes::new(PDUSessionID(psi), t.into(), None));
        let failed = PDUSessionResourceFailedToSetupListSURes(failed.collect());
        let answer = match (up.0.is_empty(), failed.0.is_empty()) {
            (false, true) => build_ngap!(
                SuccessfulOutcome,
                PDUSessionResourceSetup,
                PDUSessionResourceSetupResponse,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                PDUSessionResourceSetupListSURes(up),
            ),
            (true, _) => build_ngap!(
                SuccessfulOutcome,
                PDUSessionResourceSetup,
                PDUSessionResourceSetupResponse,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                PDUSessionResourceFailedToSetupListSURes(failed),
            ),
            (false, false) => build_ngap!(
                SuccessfulOutcome,
                PDUSessionResourceSetup,
                PDUSessionResourceSetupResponse,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                PDUSessionResourceSetupListSURes(up),
                PDUSessionResourceFailedToSetupListSURes(failed),
            ),
        };
        encode_by(out, self.ue_route(ran), answer)?;
        let of_sessions = asked.iter().filter(|session| is_up(session.psi)).filter_map(|session| session.nas.as_ref());
        for nas in nas.iter().chain(of_sessions) {
            inbox.deliver(owner, &nas.0);
        }
        Ok(())
    }

    /// Decodes a set-up request transfer and sets the tunnel up. Otherwise it answers with the
    /// cause.
    fn add_tunnel(
        &mut self,
        ran: RanUeNgapId,
        owner: u32,
        psi: u8,
        transfer: &[u8],
        answers: &mut SessionResponses,
        inbox: &mut Inbox,
    ) {
        let n3 = self.config.n3;
        let downlink = self.teid(ran, owner, psi);
        let protection = self.protection;
        let set_up = read_setup(transfer).filter(|transfer| self.has_protection(transfer.security.as_ref()));
        if set_up.is_some() && protection == Some(UpProtection::Impossible) {
            let cause = Cause::radioNetwork(CauseRadioNetwork::up_integrity_protection_not_possible);
            let failure = encode_open_type(&PDUSessionResourceSetupUnsuccessfulTransfer::new(cause, None, None));
            return answers.failed.extend(failure.ok().map(|failure| (psi, failure.to_vec())));
        }
        let Some(connection) = self.connection_mut(ran) else { return };
        // TS 38.413 8.2.1.4
        if connection.tunnels.iter().any(|known| known.psi == psi) {
            let cause = Cause::radioNetwork(CauseRadioNetwork::multiple_PDU_session_ID_instances);
            let failure = encode_open_type(&PDUSessionResourceSetupUnsuccessfulTransfer::new(cause, None, None));
            return answers.failed.extend(failure.ok().map(|failure| (psi, failure.to_vec())));
        }
        let set_up = set_up.and_then(|SetupTransfer { upf, uplink, flows, security: _ }| {
            let qfi = *flows.first()?;
            let answer = setup_response((n3, downlink), &flows, protection.and_then(UpProtection::result))?;
            Some((Tunnel { psi, qfi: Some(qfi), upf, uplink, downlink }, answer))
        });
        match set_up {
            Some((tunnel, answer)) => {
                connection.tunnels.reserve_exact(1);
                connection.tunnels.push(tunnel);
                answers.up.push((psi, answer));
                inbox.events.push(Event::TunnelUp { owner, psi });
            }
            None => {
                let cause = Cause::protocol(CauseProtocol::semantic_error);
                let failure = encode_open_type(&PDUSessionResourceSetupUnsuccessfulTransfer::new(cause, None, None));
                answers.failed.extend(failure.ok().map(|failure| (psi, failure.to_vec())));
                inbox.events.push(Event::Violation(Violation::Undecodable));
            }
        }
    }

    pub(super) fn resource_release(
        &mut self,
        pdu: &NGAPPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, PDUSessionResourceReleaseCommand,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            opt nas: NASPDU = NAS_PDU(nas) => nas,
            req list: PDUSessionResourceToReleaseListRelCmd = PDUSessionResourceToReleaseListRelCmd(list) => list,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        let transfer = encode_open_type(&PDUSessionResourceReleaseResponseTransfer::new(None))?;
        let mut released = Vec::with_capacity(list.0.len());
        for item in &list.0 {
            let psi = item.pdu_session_id.0;
            if let Some(connection) = self.connection_mut(ran) {
                connection.tunnels.retain(|tunnel| tunnel.psi != psi);
            }
            released.push(PDUSessionResourceReleasedItemRelRes::new(PDUSessionID(psi), transfer.clone(), None));
            inbox.events.push(Event::TunnelDown { owner, psi });
        }
        let answer = build_ngap!(
            SuccessfulOutcome,
            PDUSessionResourceRelease,
            PDUSessionResourceReleaseResponse,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            PDUSessionResourceReleasedListRelRes(PDUSessionResourceReleasedListRelRes(released)),
        );
        encode_by(out, self.ue_route(ran), answer)?;
        if let Some(nas) = nas {
            inbox.deliver(owner, &nas.0);
        }
        Ok(())
    }

    pub(super) fn resource_modify(
        &mut self,
        pdu: &NGAPPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, PDUSessionResourceModifyRequest,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            req list: PDUSessionResourceModifyListModReq = PDUSessionResourceModifyListModReq(list) => list,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        let (mut modified, mut failed, mut nas) = (Vec::new(), Vec::new(), Vec::new());
        for item in &list.0 {
            let (psi, transfer) = (item.pdu_session_id, &item.pdu_session_resource_modify_request_transfer);
            let result = match self.refuses_modification {
                true => Err(Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available)),
                false => self.modify(ran, psi.0, transfer),
            };
            match result {
                Ok(Modified { tunnel, flows }) => {
                    nas.extend(item.nas_pdu.as_ref());
                    let flow = |qfi| QosFlowAddOrModifyResponseItem::new(QosFlowIdentifier(qfi), None);
                    let flows = (!flows.is_empty())
                        .then(|| QosFlowAddOrModifyResponseList(flows.into_iter().map(flow).collect()));
                    inbox.events.extend(flows.as_ref().map(|_| Event::QosModified { owner, psi: psi.0 }));
                    inbox.events.extend(tunnel.then_some(Event::TunnelModified { owner, psi: psi.0 }));
                    let answer = PDUSessionResourceModifyResponseTransfer::new(None, None, flows, None, None, None);
                    modified.push(PDUSessionResourceModifyItemModRes::new(psi, encode_open_type(&answer)?, None));
                }
                Err(cause) => {
                    let why = PDUSessionResourceModifyUnsuccessfulTransfer::new(cause, None, None);
                    failed.push(PDUSessionResourceFailedToModifyItemModRes::new(psi, encode_open_type(&why)?, None));
                }
            }
        }
        let mut ies = vec![
            build_ngap_ie!(PDUSessionResourceModifyResponse, AMF_UE_NGAP_ID(amf))?,
            build_ngap_ie!(PDUSessionResourceModifyResponse, RAN_UE_NGAP_ID(ran.0))?,
        ];
        if !modified.is_empty() {
            let list = PDUSessionResourceModifyListModRes(modified);
            ies.push(build_ngap_ie!(PDUSessionResourceModifyResponse, PDUSessionResourceModifyListModRes(list))?);
        }
        if !failed.is_empty() {
            let list = PDUSessionResourceFailedToModifyListModRes(failed);
            ies.push(build_ngap_ie!(
                PDUSessionResourceModifyResponse,
                PDUSessionResourceFailedToModifyListModRes(list)
            )?);
        }
        let message = PDUSessionResourceModifyResponse::new(ProtocolIEContainer(ies));
        let answer = NGAP_PDU::of_message(&message, PDUSessionResourceModifyResponse::CRITICALITY);
        encode_by(out, self.ue_route(ran), answer)?;
        // The UE gets no message of a session that is not modified.
        for nas in nas {
            inbox.deliver(owner, &nas.0);
        }
        Ok(())
    }

    /// Applies a PDU Session Resource Modify Request Transfer (TS 38.413 9.3.4.3). Each tunnel pair
    /// names an end of this gNB and its new UPF end.
    fn modify(&mut self, ran: RanUeNgapId, psi: u8, transfer: &[u8]) -> Result<Modified, Cause> {
        let n3 = self.config.n3;
        let unknown = Cause::radioNetwork(CauseRadioNetwork::unknown_PDU_session_ID);
        let wrong = Cause::protocol(CauseProtocol::semantic_error);
        let tunnels = self.connection_mut(ran).map(|connection| &mut connection.tunnels);
        let tunnel = tunnels.and_then(|all| all.iter_mut().find(|tunnel| tunnel.psi == psi)).ok_or(unknown)?;
        let transfer: PDUSessionResourceModifyRequestTransfer<'_> =
            decode_open_type(transfer).map_err(|_| wrong.clone())?;
        let flows = transfer.ie::<ie::QosFlowAddOrModifyRequestList>().transpose().map_err(|_| wrong.clone())?;
        let flows = flows.map(|list| list.0.iter().map(|flow| flow.qos_flow_identifier.0).collect());
        let flows: Vec<u64> = flows.unwrap_or_default();
        if flows.iter().any(|qfi| Some(*qfi) != tunnel.qfi.map(u64::from)) {
            return Err(wrong);
        }
        let Some(list) = transfer.ie::<ie::UL_NGU_UP_TNLModifyList>() else {
            return Ok(Modified { tunnel: false, flows });
        };
        for pair in list.map_err(|_| wrong.clone())?.0 {
            let own = end_of(&pair.dl_ngu_up_tnl_information).ok_or_else(|| wrong.clone())?;
            let upf = end_of(&pair.ul_ngu_up_tnl_information).ok_or_else(|| wrong.clone())?;
            if own != (n3, tunnel.downlink) {
                return Err(wrong);
            }
            (tunnel.upf, tunnel.uplink) = upf;
        }
        Ok(Modified { tunnel: true, flows })
    }
}

/// What a PDU Session Resource Modify Request Transfer has changed.
struct Modified {
    /// True if the tunnel has another UPF end.
    tunnel: bool,
    /// QFIs of the QoS flows with other parameters.
    flows: Vec<u64>,
}

/// Content of a PDU Session Resource Setup Request Transfer.
pub(super) struct SetupTransfer {
    /// N3 address of the UPF.
    pub(super) upf: IpAddr,
    pub(super) uplink: Teid,
    /// QFIs of the QoS flows.
    pub(super) flows: Vec<u8>,
    pub(super) security: Option<SecurityIndication>,
}

/// Decodes a PDU Session Resource Setup Request Transfer; `None` if it is malformed.
pub(super) fn read_setup(transfer: &[u8]) -> Option<SetupTransfer> {
    let transfer: PDUSessionResourceSetupRequestTransfer<'_> = decode_open_type(transfer).ok()?;
    let tunnel = transfer.ie::<ie::UL_NGU_UP_TNLInformation>()?.ok()?;
    let (upf, uplink) = end_of(&tunnel)?;
    let flows = transfer.ie::<ie::QosFlowSetupRequestList>()?.ok()?;
    let flows = flows.0.iter().filter_map(|flow| u8::try_from(flow.qos_flow_identifier.0).ok()).collect();
    let security = transfer.ie::<ie::SecurityIndication>().transpose().ok()?;
    Some(SetupTransfer { upf, uplink, flows, security })
}

/// Returns the address and TEID of a tunnel end.
pub(super) fn end_of(end: &UPTransportLayerInformation<'_>) -> Option<(IpAddr, Teid)> {
    let UPTransportLayerInformation::gTPTunnel(tunnel) = end else { return None };
    let address = read_address(&tunnel.transport_layer_address.0)?;
    Some((address, Teid(u32::from_be_bytes(tunnel.gtp_teid.0))))
}

/// Encodes a PDU Session Resource Setup Response Transfer with all flows in one tunnel.
fn setup_response((n3, teid): (IpAddr, Teid), flows: &[u8], security: Option<SecurityResult>) -> Option<Vec<u8>> {
    let tunnel = GTPTunnel::new(address_of(n3), GTPTEID(teid.0.to_be_bytes()), None);
    let flows =
        flows.iter().map(|qfi| AssociatedQosFlowItem::new(QosFlowIdentifier(u64::from(*qfi)), None, None)).collect();
    let tunnel = UPTransportLayerInformation::gTPTunnel(tunnel);
    let flows = QosFlowPerTNLInformation::new(tunnel, AssociatedQosFlowList(flows), None);
    let transfer = PDUSessionResourceSetupResponseTransfer::new(flows, None, security, None, None);
    encode_open_type(&transfer).ok().map(|octets| octets.to_vec())
}

pub(super) fn address_of(n3: IpAddr) -> TransportLayerAddress<'static> {
    match n3 {
        IpAddr::V4(v4) => TransportLayerAddress(v4.octets().into()),
        IpAddr::V6(v6) => TransportLayerAddress(v6.octets().into()),
    }
}
