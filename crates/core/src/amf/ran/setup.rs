//! NG Setup, RAN and AMF Configuration Update (TS 38.413 8.7.1 to 8.7.3).

use super::{RanNode, RanStepOutput, RanStepRequest, SupportedArea, areas};
use crate::amf::n2::{self, Cause, plmn_to, snssai_to};
use crate::config::CoreConfig;
use std::net::IpAddr;
use vireo_types::RanNodeId;
use vireo_wire::ngap::{self, Message, *};

/// Reason why a RAN node is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Plmn,
    Slice,
    TrackingArea,
}

impl Refusal {
    fn cause(self) -> Cause {
        match self {
            Refusal::Plmn => Cause::misc(CauseMisc::unknown_PLMN_or_SNPN),
            // 9.3.1.2 has no specific cause: no slice of the RAN node can be used.
            Refusal::Slice => Cause::radioNetwork(CauseRadioNetwork::slice_not_supported),
            Refusal::TrackingArea => Cause::misc(CauseMisc::unspecified),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Refusal::Plmn => "ng-setup-unknown-plmn",
            Refusal::Slice => "ng-setup-no-common-slice",
            Refusal::TrackingArea => "ng-setup-unknown-tac",
        }
    }
}

/// Checks that a RAN node supports a served PLMN, tracking area and slice.
fn check(areas: &[SupportedArea], config: &CoreConfig) -> Result<(), Refusal> {
    let plmn = |a: &&SupportedArea| config.plmns.contains(&a.tai.plmn);
    let tac = |a: &&SupportedArea| plmn(a) && config.tacs.contains(&a.tai.tac);
    let slice = |a: &&SupportedArea| tac(a) && a.slices.iter().any(|snssai| config.serves_slice(*snssai));
    if !areas.iter().any(|a| plmn(&a)) {
        return Err(Refusal::Plmn);
    }
    if !areas.iter().any(|a| tac(&a)) {
        return Err(Refusal::TrackingArea);
    }
    if !areas.iter().any(|a| slice(&a)) {
        return Err(Refusal::Slice);
    }
    Ok(())
}

/// Processes NG SETUP REQUEST.
pub(super) fn ng_setup(node: &mut Option<RanNode>, pdu: &NGAPPDU<'_>, config: &CoreConfig) -> RanStepOutput {
    let id = pdu.ie::<ie::GlobalRANNodeID>().and_then(Result::ok);
    let supported = pdu.ie::<ie::SupportedTAList>().and_then(Result::ok);
    let (Some(id), Some(supported)) = (id, supported) else {
        return failure(pdu, None, "ng-setup-malformed");
    };
    if n2::has_fault_to_reject(pdu) {
        return failure(pdu, None, "ng-setup-not-understood");
    }
    let id = match n2::ran_node_of(&id) {
        // The service-based interface to a separate SMF has locations of NR cells only.
        Ok(RanNodeId::NgEnb(_)) if config.smf_is_remote => Err("ng-enb"),
        id => id,
    };
    let id = match id {
        Ok(id) => id,
        Err(kind) => return failure(pdu, Some(Cause::misc(CauseMisc::unspecified)), unserved(kind)),
    };
    let areas = areas(&supported);
    if let Err(refusal) = check(&areas, config) {
        return failure(pdu, Some(refusal.cause()), refusal.kind());
    }
    *node = Some(RanNode { id, name: name(pdu).unwrap_or_default(), areas: areas.into() });
    RanStepOutput { answer: Some(response(config)), request: Some(RanStepRequest::Erase), fault: None }
}

/// Returns the label of the fault of a node whose kind is not served. 9.3.1.2 has no cause for it.
fn unserved(kind: &str) -> &'static str {
    match kind {
        "n3iwf" => "ng-setup-of-n3iwf",
        "tngf" => "ng-setup-of-tngf",
        "twif" => "ng-setup-of-twif",
        "w-agf" => "ng-setup-of-w-agf",
        "ng-enb" => "ng-setup-of-ng-enb-in-sba-mode",
        _ => "ng-setup-of-unknown-kind",
    }
}

/// Returns the RAN Node Name, whose type limits it to 150 characters. A name that does not decode
/// counts as absent (criticality ignore).
fn name(pdu: &NGAPPDU<'_>) -> Option<String> {
    pdu.ie::<ie::RANNodeName>().and_then(Result::ok).map(|n| n.0.into_owned())
}

fn failure(pdu: &NGAPPDU<'_>, cause: Option<Cause>, kind: &'static str) -> RanStepOutput {
    let deviations = pdu.check().unwrap_or_default();
    let (cause, diagnostics) = match cause {
        Some(cause) => (cause, None),
        None => {
            let cause = deviations.iter().find_map(ngap::Deviation::cause).unwrap_or(CauseProtocol::semantic_error);
            (Cause::protocol(cause), Some(pdu.criticality_diagnostics_for_response(&deviations)))
        }
    };
    let mut ies: Vec<_> = build_ngap_ie!(NGSetupFailure, Cause(cause)).into_iter().collect();
    // RAN nodes retry by themselves; one minute limits the rate of a misconfigured one.
    ies.extend(build_ngap_ie!(NGSetupFailure, TimeToWait(TimeToWait::v60s)));
    ies.extend(diagnostics.and_then(|d| build_ngap_ie!(NGSetupFailure, CriticalityDiagnostics(d)).ok()));
    let message = NGSetupFailure::new(ProtocolIEContainer(ies));
    let answer = n2::encode(NGAP_PDU::of_message(&message, NGSetupFailure::CRITICALITY));
    RanStepOutput { answer: Some(answer), request: None, fault: Some(kind) }
}

fn response(config: &CoreConfig) -> Vec<u8> {
    let slices = || {
        let item = |s: &crate::config::SliceConfig| SliceSupportItem::new(snssai_to(s.snssai), None);
        SliceSupportList(config.slices.iter().map(item).collect())
    };
    let guami = config.guami();
    let served = ngap::helpers::guami(plmn_to(guami.plmn), guami.region, guami.set, guami.pointer)
        .map(|g| ServedGUAMIList(vec![ServedGUAMIItem::new(g, None, None)]));
    let support = config.plmns.iter().take(12).map(|p| PLMNSupportItem::new(plmn_to(*p), slices(), None)).collect();
    n2::encode(served.and_then(|served| {
        build_ngap!(
            SuccessfulOutcome,
            NGSetup,
            NGSetupResponse,
            AMFName(config.name.clone()),
            ServedGUAMIList(served),
            RelativeAMFCapacity(RelativeAMFCapacity(config.relative_capacity)),
            PLMNSupportList(PLMNSupportList(support)),
        )
    }))
}

/// Processes RAN CONFIGURATION UPDATE. Absent IEs leave the values unchanged.
pub(super) fn configuration_update(
    node: &mut Option<RanNode>,
    pdu: &NGAPPDU<'_>,
    config: &CoreConfig,
) -> RanStepOutput {
    if n2::has_fault_to_reject(pdu) {
        return update_failure(Cause::protocol(CauseProtocol::abstract_syntax_error_reject));
    }
    let supported = match pdu.ie::<ie::SupportedTAList>() {
        None => None,
        Some(Ok(list)) => Some(areas(&list)),
        Some(Err(_)) => return update_failure(Cause::protocol(CauseProtocol::abstract_syntax_error_reject)),
    };
    if let Some(Err(refusal)) = supported.as_deref().map(|a| check(a, config)) {
        return update_failure(refusal.cause());
    }
    // 8.7.2.2: the identity names the RAN node of the association. It cannot be updated.
    let id = pdu.ie::<ie::GlobalRANNodeID>().and_then(Result::ok);
    let is_other = |node: &RanNode| id.as_ref().is_some_and(|id| n2::ran_node_of(id) != Ok(node.id));
    if node.as_ref().is_some_and(is_other) {
        return update_failure(Cause::protocol(CauseProtocol::semantic_error));
    }
    if let Some(node) = node {
        node.name = name(pdu).unwrap_or_else(|| std::mem::take(&mut node.name));
        if let Some(areas) = supported {
            node.areas = areas.into();
        }
    }
    let message = RANConfigurationUpdateAcknowledge::new(ProtocolIEContainer(Vec::new()));
    let answer = n2::encode(NGAP_PDU::of_message(&message, RANConfigurationUpdateAcknowledge::CRITICALITY));
    RanStepOutput { answer: Some(answer), request: None, fault: None }
}

/// Returns the RAN node that an additional association belongs to, from its first message: a RAN
/// CONFIGURATION UPDATE with the Global RAN Node ID (8.7.2.2). Returns `None` for every other
/// message.
pub fn claimed_node(octets: &[u8]) -> Option<RanNodeId> {
    let pdu = NGAP_PDU::decode_borrowed(octets).ok()?;
    if pdu.kind() != NgapPduKind::Initiating_RANConfigurationUpdate {
        return None;
    }
    n2::ran_node_of(&pdu.ie::<ie::GlobalRANNodeID>()?.ok()?).ok()
}

/// Returns RAN CONFIGURATION UPDATE FAILURE for an association without a RAN node: the node may not
/// be known here yet, or it must set up NG.
pub(super) fn unknown_node() -> RanStepOutput {
    let answer = n2::encode(build_ngap!(
        UnsuccessfulOutcome,
        RANConfigurationUpdate,
        RANConfigurationUpdateFailure,
        Cause(Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state)),
        TimeToWait(TimeToWait::v1s),
    ));
    RanStepOutput { answer: Some(answer), request: None, fault: Some("ran-configuration-update-of-no-node") }
}

/// Encodes AMF CONFIGURATION UPDATE that requests an association with each of these addresses, for
/// all messages (9.2.6.7). The port of NGAP is always 38412 (TS 38.412 clause 7).
pub fn add_associations(addresses: &[IpAddr]) -> Vec<u8> {
    let item = |address: &IpAddr| {
        // All associations have the same weight.
        let (usage, weight) = (TNLAssociationUsage::both, TNLAddressWeightFactor(128));
        AMFTNLAssociationToAddItem::new(endpoint(*address), Some(usage), weight, None)
    };
    let list = AMFTNLAssociationToAddList(addresses.iter().take(32).map(item).collect());
    n2::encode(build_ngap!(
        InitiatingMessage,
        AMFConfigurationUpdate,
        AMFConfigurationUpdate,
        AMF_TNLAssociationToAddList(list),
    ))
}

/// Encodes AMF CONFIGURATION UPDATE that has a RAN node remove its associations with these
/// addresses (8.7.3.2). Their endpoints are gone, which the RAN node may otherwise detect much
/// later.
pub fn remove_associations(addresses: &[IpAddr]) -> Vec<u8> {
    let item = |address: &IpAddr| AMFTNLAssociationToRemoveItem::new(endpoint(*address), None);
    let list = AMFTNLAssociationToRemoveList(addresses.iter().take(32).map(item).collect());
    n2::encode(build_ngap!(
        InitiatingMessage,
        AMFConfigurationUpdate,
        AMFConfigurationUpdate,
        AMF_TNLAssociationToRemoveList(list),
    ))
}

fn endpoint(address: IpAddr) -> CPTransportLayerInformation<'static> {
    CPTransportLayerInformation::endpointIPAddress(match address {
        IpAddr::V4(v4) => TransportLayerAddress(v4.octets().into()),
        IpAddr::V6(v6) => TransportLayerAddress(v6.octets().into()),
    })
}

/// Processes AMF CONFIGURATION UPDATE ACKNOWLEDGE. Lists that do not decode count as absent
/// (criticality ignore).
pub(super) fn on_update_acknowledge(pdu: &NGAPPDU<'_>) -> RanStepOutput {
    let failed = pdu.ie::<ie::AMF_TNLAssociationFailedToSetupList>().and_then(Result::ok);
    let failed = failed.map_or(0, |list| list.0.len());
    RanStepOutput { request: Some(RanStepRequest::Updated { failed }), ..RanStepOutput::default() }
}

fn update_failure(cause: Cause) -> RanStepOutput {
    let answer = n2::encode(build_ngap!(
        UnsuccessfulOutcome,
        RANConfigurationUpdate,
        RANConfigurationUpdateFailure,
        Cause(cause),
        TimeToWait(TimeToWait::v60s),
    ));
    RanStepOutput { answer: Some(answer), request: None, fault: Some("ran-configuration-update-refused") }
}
