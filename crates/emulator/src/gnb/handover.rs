//! Handover (TS 38.413 8.4) by Xn and N2, at source and target.
//!
//! The transparent containers hold no RRC content. They hold the UE's number and its connection
//! number.

use super::request::{global_id, ng_enb_id};
use super::resource::{SetupTransfer, address_of, end_of, read_setup};
use super::{Event, Gnb, HandoverContext, Inbox, Outbox, PduRoute, Tunnel, UpProtection, downlink_teid, encode_by};
use crate::ran::{Fault, ForwardingEnd, HandoverOrder, SendError, SourceContainer, Violation};
use crate::ran::{forwarding_teid, source_container};
use vireo_types::{EnbId, RanNodeId, RanUeNgapId, Tai};
use vireo_wire::ngap::*;
use vireo_wire::ngap::{build_ngap, build_ngap_ie, extract_ngap_ies};

fn tunnel_information(n3: std::net::IpAddr, teid: vireo_types::Teid) -> UPTransportLayerInformation<'static> {
    let tunnel = GTPTunnel::new(address_of(n3), GTPTEID(teid.0.to_be_bytes()), None);
    UPTransportLayerInformation::gTPTunnel(tunnel)
}

impl Gnb {
    /// Returns this gNB's context of a UE for the target of an Xn handover.
    pub fn handover_context(&self, ran: RanUeNgapId, capability: (u8, u8)) -> Result<HandoverContext, SendError> {
        let core_id = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let owner = self.owner(ran).ok_or(SendError::NoConnection)?;
        Ok(HandoverContext {
            owner,
            core_id,
            capability,
            eutra_capability: (0, 0),
            tunnels: self.tunnels(ran).to_vec(),
        })
    }

    /// Returns this gNB's TEID of a session. It differs from a neighbour's TEID for the same UE.
    pub(super) fn teid(&self, ran: RanUeNgapId, owner: u32, psi: u8) -> vireo_types::Teid {
        let generation = ran.0 as u8;
        downlink_teid(owner, psi, (self.config().id.value() as u8 & 3) << 2 | generation & 3)
    }

    /// Sends PATH SWITCH REQUEST for a UE that arrived by Xn. It does not take over sessions that
    /// `accept` rejects.
    pub fn path_switch(
        &mut self,
        ue: HandoverContext,
        accept: impl Fn(u8) -> bool,
        out: &mut Outbox,
    ) -> Result<RanUeNgapId, SendError> {
        let ran = self.allocate(ue.owner);
        let n3 = self.config.n3;
        let mut tunnels = ue.tunnels;
        let (mut switched, mut failed) = (Vec::new(), Vec::new());
        for tunnel in &mut tunnels {
            let psi = PDUSessionID(tunnel.psi);
            if !accept(tunnel.psi) {
                let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
                let transfer = encode_open_type(&PathSwitchRequestSetupFailedTransfer::new(cause, None))?;
                failed.push(PDUSessionResourceFailedToSetupItemPSReq::new(psi, transfer, None));
                continue;
            }
            tunnel.downlink = self.teid(ran, ue.owner, tunnel.psi);
            let flow = QosFlowAcceptedItem::new(QosFlowIdentifier(u64::from(tunnel.qfi.unwrap_or_default())), None);
            let information = tunnel_information(n3, tunnel.downlink);
            let flows = QosFlowAcceptedList(vec![flow]);
            let transfer = PathSwitchRequestTransfer::new(information, None, None, flows, None);
            let transfer = encode_open_type(&transfer)?;
            switched.push(PDUSessionResourceToBeSwitchedDLItem::new(psi, transfer, None));
        }
        tunnels.retain(|tunnel| accept(tunnel.psi));
        let bits = |octet: u8| BitString::from([octet << 1, 0]);
        let capability = UESecurityCapabilities::new(
            NRencryptionAlgorithms(bits(ue.capability.0)),
            NRintegrityProtectionAlgorithms(bits(ue.capability.1)),
            EUTRAencryptionAlgorithms(bits(ue.eutra_capability.0)),
            EUTRAintegrityProtectionAlgorithms(bits(ue.eutra_capability.1)),
            None,
        );
        let list = PDUSessionResourceToBeSwitchedDLList(switched);
        let mut ies = vec![
            build_ngap_ie!(PathSwitchRequest, RAN_UE_NGAP_ID(ran.0))?,
            build_ngap_ie!(PathSwitchRequest, SourceAMF_UE_NGAP_ID(ue.core_id))?,
            build_ngap_ie!(PathSwitchRequest, UserLocationInformation(self.location()?))?,
            build_ngap_ie!(PathSwitchRequest, UESecurityCapabilities(capability))?,
            build_ngap_ie!(PathSwitchRequest, PDUSessionResourceToBeSwitchedDLList(list))?,
        ];
        if !failed.is_empty() {
            let failed = PDUSessionResourceFailedToSetupListPSReq(failed);
            ies.push(build_ngap_ie!(PathSwitchRequest, PDUSessionResourceFailedToSetupListPSReq(failed))?);
        }
        let message = PathSwitchRequest::new(ProtocolIEContainer(ies));
        let route = self.ue_route(ran);
        encode_by(out, route, NGAP_PDU::of_message(&message, PathSwitchRequest::CRITICALITY))?;
        if let Some(connection) = self.connection_mut(ran) {
            (connection.core_id, connection.tunnels) = (Some(ue.core_id), tunnels);
        }
        Ok(ran)
    }

    pub(super) fn on_path_switch_acknowledge(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, PathSwitchRequestAcknowledge,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            req context: SecurityContext = SecurityContext(context) => context,
            req list: PDUSessionResourceSwitchedList = PDUSessionResourceSwitchedList(list) => list,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        let protection = self.protection;
        if let Some(connection) = self.connection_mut(ran) {
            connection.tunnels.retain(|tunnel| list.0.iter().any(|item| item.pdu_session_id.0 == tunnel.psi));
            for item in &list.0 {
                // The UPF end may differ from the one that the source knew (9.3.4.9).
                let transfer: PathSwitchRequestAcknowledgeTransfer<'_> =
                    decode_open_type(&item.path_switch_request_acknowledge_transfer)?;
                // The policy is that of the core, not of the source (TS 33.501 6.6.1).
                if protection.is_some_and(|policy| !policy.fits(transfer.security_indication.as_ref())) {
                    return Err(Fault::Peer(Violation::Undecodable));
                }
                let end = transfer.ul_ngu_up_tnl_information.as_ref().and_then(end_of);
                let tunnel = connection.tunnels.iter_mut().find(|tunnel| tunnel.psi == item.pdu_session_id.0);
                if let (Some(tunnel), Some(end)) = (tunnel, end) {
                    (tunnel.upf, tunnel.uplink) = end;
                }
            }
        }
        let (key, chaining) = next_hop(&context)?;
        let renewed = matches!(pdu.ie::<ie::NewSecurityContextInd>(), Some(Ok(_)));
        if renewed && chaining != 0 {
            return Err(Fault::Peer(Violation::Undecodable));
        }
        inbox.events.push(Event::PathSwitched { owner, key, chaining, renewed });
        Ok(())
    }

    pub(super) fn on_path_switch_failure(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, PathSwitchRequestFailure,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
        );
        // The AMF releases the UE, or does not know it.
        let (_, owner) = self.identify(amf, ran)?;
        inbox.events.push(Event::PathSwitchFailed { owner });
        Ok(())
    }

    /// Sends HANDOVER REQUIRED towards another gNB or ng-eNB.
    pub fn require_handover(
        &self,
        ran: RanUeNgapId,
        target: RanNodeId,
        area: Tai,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        self.require_handover_with(ran, HandoverOrder { target, area, refused: false, direct: false }, out)
    }

    /// Sends HANDOVER REQUIRED towards an eNB. The emulator's eNB refuses the handover if
    /// `refused`.
    pub fn require_system_handover(
        &self,
        ran: RanUeNgapId,
        (target, area): (EnbId, Tai),
        refused: bool,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        self.require_handover_with(ran, HandoverOrder { target: target.into(), area, refused, direct: false }, out)
    }

    /// As [`Gnb::require_handover`]; the target refuses if the order says so.
    pub(crate) fn require_handover_with(
        &self,
        ran: RanUeNgapId,
        order: HandoverOrder,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let HandoverOrder { target, area, refused, direct } = order;
        let amf = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let owner = self.owner(ran).ok_or(SendError::NoConnection)?;
        let (plmn, [_, a, b, c]) = (PLMNIdentity(target.plmn().ngap()), area.tac.0.to_be_bytes());
        let (kind, target) = match target {
            RanNodeId::Gnb(_) | RanNodeId::NgEnb(_) => {
                let tai = helpers::tai(PLMNIdentity(area.plmn.ngap()), [a, b, c]);
                let target = TargetRANNodeID::new(global_id(target)?, tai, None);
                (HandoverType::intra5gs, TargetID::targetRANNodeID(target))
            }
            RanNodeId::Enb(enb) => {
                let tai = EPSTAI::new(PLMNIdentity(area.plmn.ngap()), EPSTAC([b, c]), None);
                let target = TargeteNBID::new(GlobalNgENBID::new(plmn, ng_enb_id(enb), None), tai, None);
                (HandoverType::fivegs_to_eps, TargetID::targeteNB_ID(target))
            }
        };
        let path = direct.then_some(DirectForwardingPathAvailability::direct_path_available);
        let transfer = encode_open_type(&HandoverRequiredTransfer::new(path, None))?;
        let item = |t: &Tunnel| PDUSessionResourceItemHORqd::new(PDUSessionID(t.psi), transfer.clone(), None);
        let sessions = PDUSessionResourceListHORqd(self.tunnels(ran).iter().map(item).collect());
        let container = self.container(&source_container(owner, ran, refused));
        let message = build_ngap!(
            InitiatingMessage,
            HandoverPreparation,
            HandoverRequired,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            HandoverType(kind),
            Cause(Cause::radioNetwork(CauseRadioNetwork::handover_desirable_for_radio_reason)),
            TargetID(target),
            PDUSessionResourceListHORqd(sessions),
            SourceToTarget_TransparentContainer(SourceToTargetTransparentContainer(container.into())),
        );
        Ok(encode_by(out, self.ue_route(ran), message)?)
    }

    /// Handles HANDOVER REQUEST: allocates a connection and answers, or refuses if so configured.
    pub(super) fn handover_request(
        &mut self,
        pdu: &NGAPPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, HandoverRequest,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req kind: HandoverType = HandoverType(kind) => kind,
            req context: SecurityContext = SecurityContext(context) => context,
            req list: PDUSessionResourceSetupListHOReq = PDUSessionResourceSetupListHOReq(list) => list,
            req container: SourceToTargetTransparentContainer = SourceToTarget_TransparentContainer(c) => c,
        );
        let undecodable = || Fault::Peer(Violation::Undecodable);
        let container = SourceContainer::read(container.0.as_slice()).ok_or_else(undecodable)?;
        let SourceContainer { owner, source, refused } = container;
        let mapped = kind == HandoverType::eps_to_5gs;
        let nas = mapped_container(pdu, mapped)?;
        let (key, chaining) = next_hop(&context)?;
        if self.refuses_handover || refused {
            let cause = Cause::radioNetwork(CauseRadioNetwork::no_radio_resources_available_in_target_cell);
            let failure = build_ngap!(
                UnsuccessfulOutcome,
                HandoverResourceAllocation,
                HandoverFailure,
                AMF_UE_NGAP_ID(amf),
                Cause(cause),
            );
            return Ok(encode_by(out, PduRoute { stream: 1, ..self.common() }, failure)?);
        }
        let ran = self.allocate(owner);
        let (mut tunnels, mut admitted, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for item in &list.0 {
            let psi = item.pdu_session_id.0;
            let transfer = read_setup(&item.handover_request_transfer).ok_or_else(undecodable)?;
            let SetupTransfer { upf, uplink, flows, security } = transfer;
            if !self.has_protection(security.as_ref()) {
                return Err(undecodable());
            }
            if self.refuses_session == Some(psi) {
                let cause = Cause::radioNetwork(CauseRadioNetwork::no_radio_resources_available_in_target_cell);
                let transfer =
                    encode_open_type(&HandoverResourceAllocationUnsuccessfulTransfer::new(cause, None, None))?;
                failed.push(PDUSessionResourceFailedToSetupItemHOAck::new(item.pdu_session_id, transfer, None));
                continue;
            }
            let downlink = self.teid(ran, owner, psi);
            let qfi = *flows.first().ok_or_else(undecodable)?;
            let accepted = Some(DataForwardingAccepted::data_forwarding_accepted);
            let flow =
                |qfi: &u8| QosFlowItemWithDataForwarding::new(QosFlowIdentifier(u64::from(*qfi)), accepted, None);
            let flows = QosFlowListWithDataForwarding(flows.iter().map(flow).collect());
            let information = tunnel_information(self.config.n3, downlink);
            let end = Some(tunnel_information(self.config.n3, forwarding_teid(downlink)));
            let more = self.accepts_uplink.then(|| self.uplink_end(downlink)).transpose()?;
            let result = self.protection.and_then(UpProtection::result);
            let transfer = HandoverRequestAcknowledgeTransfer::new(information, end, result, flows, None, None, more);
            let transfer = encode_open_type(&transfer)?;
            admitted.push(PDUSessionResourceAdmittedItem::new(item.pdu_session_id, transfer, None));
            tunnels.push(Tunnel { psi, qfi: Some(qfi), upf, uplink, downlink });
        }
        let container =
            TargetToSourceTransparentContainer(self.container(&[&ran.0.to_be_bytes(), &nas[..]].concat()).into());
        let admitted = PDUSessionResourceAdmittedList(admitted);
        let build = || {
            let mut ies = vec![
                build_ngap_ie!(HandoverRequestAcknowledge, AMF_UE_NGAP_ID(amf))?,
                build_ngap_ie!(HandoverRequestAcknowledge, RAN_UE_NGAP_ID(ran.0))?,
                build_ngap_ie!(HandoverRequestAcknowledge, PDUSessionResourceAdmittedList(admitted))?,
            ];
            if !failed.is_empty() {
                let failed = PDUSessionResourceFailedToSetupListHOAck(failed);
                ies.push(build_ngap_ie!(HandoverRequestAcknowledge, PDUSessionResourceFailedToSetupListHOAck(failed))?);
            }
            ies.push(build_ngap_ie!(HandoverRequestAcknowledge, TargetToSource_TransparentContainer(container))?);
            let message = HandoverRequestAcknowledge::new(ProtocolIEContainer(ies));
            NGAP_PDU::of_message(&message, HandoverRequestAcknowledge::CRITICALITY)
        };
        let answer = build();
        encode_by(out, self.ue_route(ran), answer)?;
        if let Some(connection) = self.connection_mut(ran) {
            (connection.core_id, connection.tunnels) = (Some(amf), tunnels);
        }
        inbox.events.push(Event::HandoverPrepared { owner, source, target: ran, key, chaining, mapped });
        Ok(())
    }

    /// Handles HANDOVER COMMAND: the source sends its bearer status, and the UE leaves.
    pub(super) fn handover_command(
        &mut self,
        pdu: &NGAPPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, HandoverCommand,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            req kind: HandoverType = HandoverType(kind) => kind,
            req container: TargetToSourceTransparentContainer = TargetToSource_TransparentContainer(c) => c,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        let forwarding = self.forwarding_ends(ran, pdu)?;
        let octets = container.0.as_slice().first_chunk::<4>();
        let octets = *octets.ok_or(Fault::Peer(Violation::Undecodable))?;
        let target = RanUeNgapId(u32::from_be_bytes(octets));
        if kind == HandoverType::fivegs_to_eps {
            // The bearers have no status at the target; the UE learns the NAS container.
            let nas = pdu.ie::<ie::NASSecurityParametersFromNGRAN>().and_then(Result::ok);
            let nas = nas.ok_or(Fault::Peer(Violation::Undecodable))?.0.into_vec();
            inbox.events.push(Event::HandoverCommand { owner, target, nas, forwarding });
            return Ok(());
        }
        let up = DRBStatusUL::dRBStatusUL18(DRBStatusUL18::new(COUNTValueForPDCPSN18::new(3, 0, None), None, None));
        let down = DRBStatusDL::dRBStatusDL18(DRBStatusDL18::new(COUNTValueForPDCPSN18::new(5, 0, None), None));
        let bearer = DRBsSubjectToStatusTransferItem::new(DRBID(1), up, down, None);
        let status = RANStatusTransferTransparentContainer::new(DRBsSubjectToStatusTransferList(vec![bearer]), None);
        let message = build_ngap!(
            InitiatingMessage,
            UplinkRANStatusTransfer,
            UplinkRANStatusTransfer,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            RANStatusTransfer_TransparentContainer(status),
        );
        encode_by(out, self.ue_route(ran), message)?;
        inbox.events.push(Event::HandoverCommand { owner, target, nas: Vec::new(), forwarding });
        Ok(())
    }

    /// Returns the tunnels of HANDOVER COMMAND for packets that arrive after the UE has left.
    fn forwarding_ends(&self, ran: RanUeNgapId, pdu: &NGAPPDU<'_>) -> Result<Vec<ForwardingEnd>, Fault> {
        let mut ends = Vec::new();
        for item in pdu.ie::<ie::PDUSessionResourceHandoverList>().transpose()?.map_or(Vec::new(), |list| list.0) {
            let transfer: HandoverCommandTransfer<'_> = decode_open_type(&item.handover_command_transfer)?;
            let tunnel = self.tunnels(ran).iter().find(|tunnel| tunnel.psi == item.pdu_session_id.0);
            // TS 38.413 8.4.1.2: packets of the flows and bearers that are named.
            if transfer.qos_flow_to_be_forwarded_list.is_none() && transfer.data_forwarding_response_drb_list.is_none()
            {
                continue;
            }
            let end = transfer.dl_forwarding_up_tnl_information.as_ref().and_then(end_of);
            ends.extend(tunnel.zip(end).map(|(tunnel, (to, teid))| ForwardingEnd { tunnel: *tunnel, to, teid }));
        }
        Ok(ends)
    }

    pub(super) fn handover_answer(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        let amf = pdu.ie::<ie::AMF_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0);
        let ran = pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0);
        let (Some(amf), Some(ran)) = (amf, ran) else { return Err(Fault::Peer(Violation::Undecodable)) };
        let (_, owner) = self.identify(amf, ran)?;
        inbox.events.push(match pdu.kind() {
            NgapPduKind::Unsuccessful_HandoverPreparation => {
                let cause = pdu.ie::<ie::Cause>().and_then(Result::ok);
                Event::HandoverRefused { owner, cause: cause.ok_or(Fault::Peer(Violation::Undecodable))? }
            }
            NgapPduKind::Successful_HandoverCancel => Event::HandoverCancelled { owner },
            _ => Event::StatusTransfer { owner },
        });
        Ok(())
    }

    /// Sends HANDOVER NOTIFY for a UE that has arrived.
    pub fn notify(&self, ran: RanUeNgapId, out: &mut Outbox) -> Result<(), SendError> {
        let amf = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let message = build_ngap!(
            InitiatingMessage,
            HandoverNotification,
            HandoverNotify,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            UserLocationInformation(self.location()?),
        );
        Ok(encode_by(out, self.ue_route(ran), message)?)
    }

    /// Sends HANDOVER CANCEL: the UE stays at the source.
    pub fn cancel_handover(&self, ran: RanUeNgapId, out: &mut Outbox) -> Result<(), SendError> {
        let amf = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let message = build_ngap!(
            InitiatingMessage,
            HandoverCancel,
            HandoverCancel,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            Cause(Cause::radioNetwork(CauseRadioNetwork::handover_cancelled)),
        );
        Ok(encode_by(out, self.ue_route(ran), message)?)
    }

    /// Sets whether HANDOVER REQUESTs are answered by HANDOVER FAILURE.
    pub fn refuse_handover(&mut self, refuse: bool) {
        self.refuses_handover = refuse;
    }

    /// Sets whether HANDOVER REQUEST ACKNOWLEDGE has tunnel ends for forwarded uplink packets.
    pub fn accept_uplink(&mut self, accept: bool) {
        self.accepts_uplink = accept;
    }

    /// Returns the extension with the UL Forwarding UP TNL Information: another tunnel end beside
    /// that of a session.
    fn uplink_end(&self, downlink: vireo_types::Teid) -> Result<ProtocolExtensionContainer<'static>, Error> {
        let teid = vireo_types::Teid(forwarding_teid(downlink).0 ^ 1 << 26);
        let end = encode_open_type(&tunnel_information(self.config.n3, teid))?;
        let id = ProtocolExtensionID(ID_ULFORWARDING_UP_TNLINFORMATION.0);
        Ok(ProtocolExtensionContainer(vec![ProtocolExtensionField::new(id, Criticality::reject, end)]))
    }

    /// Sets the minimum size of the containers between source and target, in octets.
    pub fn set_container(&mut self, octets: usize) {
        self.container_octets = octets;
    }

    fn container(&self, says: &[u8]) -> Vec<u8> {
        let mut container = says.to_vec();
        container.resize(says.len().max(self.container_octets), 0);
        container
    }

    /// Sets whether PDU SESSION RESOURCE MODIFY REQUESTs are refused.
    pub fn refuse_modification(&mut self, refuse: bool) {
        self.refuses_modification = refuse;
    }

    /// Sets the session that HANDOVER REQUEST ACKNOWLEDGE reports as failed.
    pub fn refuse_session(&mut self, psi: Option<u8>) {
        self.refuses_session = psi;
    }
}

/// Returns the NAS container of a HANDOVER REQUEST for a UE from EPS, which also requires the New
/// Security Context Indicator (TS 33.501 8.4.2); nothing for other UEs.
fn mapped_container(pdu: &NGAPPDU<'_>, mapped: bool) -> Result<Vec<u8>, Fault> {
    let is_new = matches!(pdu.ie::<ie::NewSecurityContextInd>(), Some(Ok(_)));
    let nas = pdu.ie::<ie::NASC>().transpose()?;
    match (mapped, is_new, nas) {
        (false, false, None) => Ok(Vec::new()),
        (true, true, Some(nas)) => Ok(nas.0.into_vec()),
        _ => Err(Fault::Peer(Violation::Undecodable)),
    }
}

fn next_hop(context: &SecurityContext<'_>) -> Result<([u8; 32], u8), Fault> {
    let key = <[u8; 32]>::try_from(context.next_hop_nh.0.as_octets());
    Ok((key.map_err(|_| Fault::Peer(Violation::Undecodable))?, context.next_hop_chaining_count.0))
}
