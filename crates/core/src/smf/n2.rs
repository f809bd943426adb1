//! NGAP transfers of a PDU session between SMF and RAN (TS 38.413 9.3.4), forwarded by the AMF.

use super::context::{ForwardingEnds, SmContext, Tunnel, ebi};
use super::interface::{Acknowledgement, N2Sm, Output};
use super::up_security;
use std::net::IpAddr;
use vireo_types::{PduSessionType, Teid, is_unicast, limits};
use vireo_wire::ngap::*;

/// QFI of the default QoS flow, the only one implemented.
pub(super) const DEFAULT_QFI: u8 = 1;

/// Builds the PDU Session Resource Setup Request Transfer. `None` before the UPF has allocated its
/// tunnel.
pub(super) fn setup_request(sm: &SmContext) -> Option<Output> {
    request(sm, None)
}

/// As [`setup_request`], for the target of a handover from EPS: the flow has the E-RAB at the
/// source, whose packets may be forwarded (TS 38.413 9.3.4.1).
pub(super) fn move_request(sm: &SmContext) -> Option<Output> {
    request(sm, Some(ERABID(ebi(sm.index)?.into())))
}

fn request(sm: &SmContext, erab: Option<ERABID>) -> Option<Output> {
    let uplink = sm.uplink?;
    let kind = match sm.kind {
        PduSessionType::Ipv4 => PDUSessionType::ipv4,
        PduSessionType::Ipv6 => PDUSessionType::ipv6,
        PduSessionType::Ipv4v6 => PDUSessionType::ipv4v6,
    };
    let ambr = ambr(sm);
    let flow = QosFlowSetupRequestItem::new(QosFlowIdentifier(DEFAULT_QFI.into()), flow_qos(sm), erab, None);
    let security = up_security::indication(sm);
    let security = security.map(|one| build_ngap_ie!(PDUSessionResourceSetupRequestTransfer, SecurityIndication(one)));
    // For the target of a handover (TS 38.413 9.3.4.1). Others ignore it.
    let no_forwarding = sm.is_relocating().then(|| {
        let value = DataForwardingNotPossible::data_forwarding_not_possible;
        build_ngap_ie!(PDUSessionResourceSetupRequestTransfer, DataForwardingNotPossible(value))
    });
    let tunnel = [
        build_ngap_ie!(PDUSessionResourceSetupRequestTransfer, PDUSessionAggregateMaximumBitRate(ambr)),
        build_ngap_ie!(
            PDUSessionResourceSetupRequestTransfer,
            UL_NGU_UP_TNLInformation(UPTransportLayerInformation::gTPTunnel(gtp_tunnel(uplink)))
        ),
    ];
    let kind = build_ngap_ie!(PDUSessionResourceSetupRequestTransfer, PDUSessionType(kind));
    let flows = build_ngap_ie!(
        PDUSessionResourceSetupRequestTransfer,
        QosFlowSetupRequestList(QosFlowSetupRequestList(vec![flow]))
    );
    let ies: Result<Vec<_>, _> =
        tunnel.into_iter().chain(no_forwarding).chain([kind]).chain(security).chain([flows]).collect();
    let transfer = PDUSessionResourceSetupRequestTransfer::new(ProtocolIEContainer(ies.ok()?));
    Some(Output::N2(N2Sm::SetupRequest, encode_open_type(&transfer).ok()?.to_vec()))
}

fn ambr(sm: &SmContext) -> PDUSessionAggregateMaximumBitRate {
    let rate = |bps: u64| BitRate(bps.min(limits::BIT_RATE));
    PDUSessionAggregateMaximumBitRate::new(rate(sm.terms.ambr.downlink_bps), rate(sm.terms.ambr.uplink_bps), None)
}

/// Returns the parameters of the default flow.
fn flow_qos(sm: &SmContext) -> QosFlowLevelQosParameters {
    let five_qi = NonDynamic5QIDescriptor::new(FiveQI(sm.terms.five_qi.into()), None, None, None, None);
    let arp = AllocationAndRetentionPriority::new(
        PriorityLevelARP(sm.terms.arp_priority.clamp(1, 15)),
        PreEmptionCapability::shall_not_trigger_pre_emption,
        PreEmptionVulnerability::not_pre_emptable,
        None,
    );
    QosFlowLevelQosParameters::new(QosCharacteristics::nonDynamic5QI(five_qi), arp, None, None, None, None)
}

/// Builds the PDU Session Resource Modify Request Transfer with the present terms.
pub(super) fn terms_request(sm: &SmContext) -> Option<Output> {
    let id = QosFlowIdentifier(DEFAULT_QFI.into());
    let flow = QosFlowAddOrModifyRequestItem::new(id, Some(flow_qos(sm)), None, None);
    let ies = [
        build_ngap_ie!(PDUSessionResourceModifyRequestTransfer, PDUSessionAggregateMaximumBitRate(ambr(sm))),
        build_ngap_ie!(
            PDUSessionResourceModifyRequestTransfer,
            QosFlowAddOrModifyRequestList(QosFlowAddOrModifyRequestList(vec![flow]))
        ),
    ];
    let ies: Result<Vec<_>, _> = ies.into_iter().collect();
    let transfer = PDUSessionResourceModifyRequestTransfer::new(ProtocolIEContainer(ies.ok()?));
    Some(Output::N2(N2Sm::ModifyRequest, encode_open_type(&transfer).ok()?.to_vec()))
}

/// Builds the PDU Session Resource Modify Request Transfer: replaces the UPF end of the tunnel with
/// RAN end `to`.
pub(super) fn modify_request(uplink: Tunnel, to: Tunnel) -> Option<Output> {
    let end = |tunnel| UPTransportLayerInformation::gTPTunnel(gtp_tunnel(tunnel));
    let item = ULNGUUPTNLModifyItem::new(end(uplink), end(to), None);
    let ie = build_ngap_ie!(
        PDUSessionResourceModifyRequestTransfer,
        UL_NGU_UP_TNLModifyList(ULNGUUPTNLModifyList(vec![item]))
    );
    let transfer = PDUSessionResourceModifyRequestTransfer::new(ProtocolIEContainer(vec![ie.ok()?]));
    Some(Output::N2(N2Sm::ModifyRequest, encode_open_type(&transfer).ok()?.to_vec()))
}

/// Builds the PDU Session Resource Release Command Transfer.
pub(super) fn release_command() -> Option<Output> {
    Some(Output::N2(N2Sm::ReleaseCommand, release_command_transfer()?))
}

/// Encodes the PDU Session Resource Release Command Transfer.
pub fn release_command_transfer() -> Option<Vec<u8>> {
    let transfer = PDUSessionResourceReleaseCommandTransfer::new(Cause::nas(CauseNas::normal_release), None);
    Some(encode_open_type(&transfer).ok()?.to_vec())
}

/// Returns the RAN end of N3 from a PDU Session Resource Setup Response Transfer; `None` if there
/// is no usable one, or a required protection is missed.
pub(super) fn setup_response(sm: &SmContext, octets: &[u8]) -> Option<Tunnel> {
    let transfer: PDUSessionResourceSetupResponseTransfer = decode_open_type(octets).ok()?;
    if up_security::is_missed(sm, transfer.security_result.as_ref()) {
        return None;
    }
    let flows = &transfer.dl_qos_flow_per_tnl_information;
    if !flows.associated_qos_flow_list.0.iter().any(|f| f.qos_flow_identifier.0 == DEFAULT_QFI.into()) {
        return None;
    }
    tunnel_of(sm, &flows.up_transport_layer_information)
}

/// Returns the RAN end of a tunnel. Of two addresses, it has that of the family of the UPF's end.
fn tunnel_of(sm: &SmContext, information: &UPTransportLayerInformation<'_>) -> Option<Tunnel> {
    let UPTransportLayerInformation::gTPTunnel(tunnel) = information else { return None };
    let octets = tunnel.transport_layer_address.0.as_octets();
    let prefers_ipv6 = sm.uplink.is_some_and(|uplink| uplink.address.is_ipv6());
    let address = address(octets.get(4..).filter(|_| prefers_ipv6 && octets.len() == 20).unwrap_or(octets))?;
    Some(Tunnel { address, teid: Teid(u32::from_be_bytes(tunnel.gtp_teid.0)) })
}

/// Returns the new RAN end of N3 from a Path Switch Request Transfer; `None` if the default flow is
/// not accepted, or a required protection is missed.
pub(super) fn path_switch_request(sm: &SmContext, octets: &[u8]) -> Option<Tunnel> {
    let transfer: PathSwitchRequestTransfer<'_> = decode_open_type(octets).ok()?;
    let result = transfer.user_plane_security_information.as_ref().map(|information| &information.security_result);
    if up_security::is_missed(sm, result) {
        return None;
    }
    let flows = &transfer.qos_flow_accepted_list.0;
    let taken = flows.iter().any(|f| f.qos_flow_identifier.0 == DEFAULT_QFI.into());
    if taken { tunnel_of(sm, &transfer.dl_ngu_up_tnl_information) } else { None }
}

/// Returns the new RAN end of N3 from a PDU Session Resource Modify Indication Transfer (9.3.4.6);
/// `None` if there is no usable one. A session has one tunnel: QoS flows at additional ones are
/// not accepted.
pub(super) fn modify_indication(sm: &SmContext, octets: &[u8]) -> Option<Tunnel> {
    let transfer: PDUSessionResourceModifyIndicationTransfer<'_> = decode_open_type(octets).ok()?;
    let flows = &transfer.dl_qos_flow_per_tnl_information;
    let has_default = flows.associated_qos_flow_list.0.iter().any(|f| f.qos_flow_identifier.0 == DEFAULT_QFI.into());
    let is_split = transfer.additional_dl_qos_flow_per_tnl_information.is_some();
    let end = tunnel_of(sm, &flows.up_transport_layer_information).filter(|_| has_default && !is_split);
    end.filter(|end| sm.may_be_at_ran(end))
}

/// Builds the PDU Session Resource Modify Confirm Transfer (9.3.4.7) with the UPF end of N3.
pub(crate) fn modify_confirm(uplink: Tunnel) -> Vec<u8> {
    let flow = QosFlowModifyConfirmItem::new(QosFlowIdentifier(DEFAULT_QFI.into()), None);
    let end = UPTransportLayerInformation::gTPTunnel(gtp_tunnel(uplink));
    let flows = QosFlowModifyConfirmList(vec![flow]);
    let transfer = PDUSessionResourceModifyConfirmTransfer::new(flows, end, None, None, None);
    encode_open_type(&transfer).map(|octets| octets.to_vec()).unwrap_or_default()
}

/// Builds the PDU Session Resource Modify Indication Unsuccessful Transfer (9.3.4.22).
pub fn modify_refusal() -> Vec<u8> {
    let cause = Cause::transport(CauseTransport::transport_resource_unavailable);
    let transfer = PDUSessionResourceModifyIndicationUnsuccessfulTransfer::new(cause, None);
    encode_open_type(&transfer).map(|octets| octets.to_vec()).unwrap_or_default()
}

/// Content of a PDU Session Resource Notify Transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notification {
    /// Number of QoS flows whose rates are fulfilled again.
    pub(super) fulfilled: u8,
    /// Number of QoS flows whose rates are not fulfilled any more.
    pub(super) not_fulfilled: u8,
    /// The RAN has released the default QoS flow.
    pub(super) releases_default: bool,
}

/// Decodes a PDU Session Resource Notify Transfer (9.3.4.5).
pub(super) fn notification(octets: &[u8]) -> Option<Notification> {
    let transfer: PDUSessionResourceNotifyTransfer = decode_open_type(octets).ok()?;
    let mut notification = Notification::default();
    for item in transfer.qos_flow_notify_list.iter().flat_map(|list| &list.0) {
        match item.notification_cause {
            NotificationCause::fulfilled => notification.fulfilled += 1,
            // A list has at most 64 items.
            _ => notification.not_fulfilled += 1,
        }
    }
    let mut released = transfer.qos_flow_released_list.iter().flat_map(|list| &list.0);
    notification.releases_default = released.any(|item| item.qos_flow_identifier.0 == DEFAULT_QFI.into());
    Some(notification)
}

/// Returns true if a Handover Required Transfer has the Direct Forwarding Path Availability.
pub(super) fn has_direct_path(octets: &[u8]) -> bool {
    let transfer = decode_open_type::<HandoverRequiredTransfer>(octets);
    transfer.is_ok_and(|transfer| transfer.direct_forwarding_path_availability.is_some())
}

/// Decodes a Handover Request Acknowledge Transfer. The command is the Handover Command Transfer
/// with the target's address for forwarded packets.
pub(super) fn handover_acknowledge(sm: &SmContext, octets: &[u8]) -> Option<Acknowledgement> {
    let transfer: HandoverRequestAcknowledgeTransfer<'_> = decode_open_type(octets).ok()?;
    let flows = &transfer.qos_flow_setup_response_list.0;
    if up_security::is_missed(sm, transfer.security_result.as_ref())
        || !flows.iter().any(|f| f.qos_flow_identifier.0 == DEFAULT_QFI.into())
    {
        return None;
    }
    let tunnel = tunnel_of(sm, &transfer.dl_ngu_up_tnl_information)?;
    let downlink = transfer.dl_forwarding_up_tnl_information.as_ref().and_then(|end| tunnel_of(sm, end));
    let uplink = uplink_forwarding(sm, transfer.ie_extensions.as_ref());
    let forwarding = ForwardingEnds { downlink, uplink };
    // The source forwards packets of the flows that are named (TS 38.413 8.4.1.2).
    let accepted = flows.iter().filter(|flow| downlink.is_some() && flow.data_forwarding_accepted.is_some());
    let accepted: Vec<_> = accepted.map(|flow| QosFlowToBeForwardedItem::new(flow.qos_flow_identifier, None)).collect();
    let command = HandoverCommandTransfer::new(
        // Not an address that no RAN node has: a source with a direct path sends there.
        transfer.dl_forwarding_up_tnl_information.filter(|_| downlink.is_some()),
        (!accepted.is_empty()).then_some(QosFlowToBeForwardedList(accepted)),
        transfer.data_forwarding_response_drb_list,
        uplink.and_then(with_uplink_forwarding),
    );
    Some(Acknowledgement { tunnel, forwarding, command: encode_open_type(&command).ok()?.to_vec() })
}

/// Returns the target's end for forwarded uplink packets: UL Forwarding UP TNL Information, an
/// extension of the transfer.
fn uplink_forwarding(sm: &SmContext, extensions: Option<&ProtocolExtensionContainer<'_>>) -> Option<Tunnel> {
    let extension = extensions?.0.iter().find(|extension| extension.id.0 == ID_ULFORWARDING_UP_TNLINFORMATION.0)?;
    tunnel_of(sm, &decode_open_type(&extension.extension_value).ok()?)
}

/// Builds the extension of [`uplink_forwarding`].
fn with_uplink_forwarding(tunnel: Tunnel) -> Option<ProtocolExtensionContainer<'static>> {
    let end = encode_open_type(&UPTransportLayerInformation::gTPTunnel(gtp_tunnel(tunnel))).ok()?;
    let id = ProtocolExtensionID(ID_ULFORWARDING_UP_TNLINFORMATION.0);
    Some(ProtocolExtensionContainer(vec![ProtocolExtensionField::new(id, Criticality::reject, end)]))
}

/// Builds the Handover Command Transfer with the UPF's tunnel ends for packets of the default flow.
pub(super) fn command_with_forwarding(ends: ForwardingEnds) -> Vec<u8> {
    let downlink = ends.downlink.map(|tunnel| UPTransportLayerInformation::gTPTunnel(gtp_tunnel(tunnel)));
    let flow = QosFlowToBeForwardedItem::new(QosFlowIdentifier(DEFAULT_QFI.into()), None);
    let flows = downlink.is_some().then(|| QosFlowToBeForwardedList(vec![flow]));
    let transfer = HandoverCommandTransfer::new(downlink, flows, None, ends.uplink.and_then(with_uplink_forwarding));
    encode_open_type(&transfer).map(|octets| octets.to_vec()).unwrap_or_default()
}

/// Builds the Handover Command Transfer if no packets are forwarded.
pub(super) fn command_without_forwarding() -> Vec<u8> {
    let transfer = HandoverCommandTransfer::new(None, None, None, None);
    encode_open_type(&transfer).map(|octets| octets.to_vec()).unwrap_or_default()
}

/// Builds the Path Switch Request Acknowledge Transfer; `uplink` is the new UPF end of N3, if it
/// changed. It has the policy of a session with one: the target compares it with that of the source
/// (TS 33.501 6.6.1).
pub(super) fn path_switch_acknowledge(sm: &SmContext, uplink: Option<Tunnel>) -> Vec<u8> {
    let uplink = uplink.map(|tunnel| UPTransportLayerInformation::gTPTunnel(gtp_tunnel(tunnel)));
    let transfer = PathSwitchRequestAcknowledgeTransfer::new(uplink, up_security::indication(sm), None);
    encode_open_type(&transfer).map(|octets| octets.to_vec()).unwrap_or_default()
}

/// Transfer by which the RAN learns that a session was not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverRefusal {
    /// Path Switch Request Unsuccessful Transfer.
    PathSwitch,
    /// Handover Preparation Unsuccessful Transfer.
    Preparation,
}

/// Builds the transfer of a session that was not taken over.
pub fn refusal(kind: HandoverRefusal) -> Vec<u8> {
    let cause = Cause::radioNetwork(CauseRadioNetwork::unspecified);
    let octets = match kind {
        HandoverRefusal::PathSwitch => encode_open_type(&PathSwitchRequestUnsuccessfulTransfer::new(cause, None)),
        HandoverRefusal::Preparation => encode_open_type(&HandoverPreparationUnsuccessfulTransfer::new(cause, None)),
    };
    octets.map(|octets| octets.to_vec()).unwrap_or_default()
}

fn gtp_tunnel(tunnel: Tunnel) -> GTPTunnel<'static> {
    let address = match tunnel.address {
        IpAddr::V4(v4) => TransportLayerAddress(v4.octets().into()),
        IpAddr::V6(v6) => TransportLayerAddress(v6.octets().into()),
    };
    GTPTunnel::new(address, GTPTEID(tunnel.teid.0.to_be_bytes()), None)
}

/// Decodes a Transport Layer Address (TS 38.414 5.3): IPv4, IPv6, or both with IPv4 first. `None`
/// for one that no node on another link has: the UPF may not check it.
pub(super) fn address(octets: &[u8]) -> Option<IpAddr> {
    let address = match octets.len() {
        4 | 20 => IpAddr::from(*octets.first_chunk::<4>()?),
        16 => IpAddr::from(*octets.first_chunk::<16>()?),
        _ => return None,
    };
    Some(address).filter(|address| is_unicast(*address))
}
