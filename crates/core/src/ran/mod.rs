//! RAN nodes: what is not about one UE (TS 38.413 8.7). A node's record is plain data, a step over it is pure.
//!
//! A node may have several associations with one AMF (TS 38.412 clause 7, TS 23.501 5.21.1.2). It sets NG up on one of
//! them; on each further one its first message is a RAN Configuration Update with its Global RAN Node ID, by which the
//! association becomes one of the same node's ([`named`]).

pub mod admission;
mod setup;

pub use setup::{add_associations, named, remove_associations};

use crate::config::CoreConfig;
use crate::n2::{Cause, Fault};
use crate::schedule::shed::{OverloadAction, OverloadResponse};
use serde::{Deserialize, Serialize};
use vireo_types::{AmfUeNgapId, GnbId, RanUeNgapId, Snssai, Tac, Tai};
use vireo_wire::ngap::{Message, OverloadAction as NgapAction, OverloadResponse as NgapResponse, *};

/// One RAN node that has set NG up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanNode {
    /// Global RAN Node ID.
    pub id: GnbId,
    /// RAN Node Name, as it gave it.
    pub name: String,
    /// Its tracking areas with the slices of each.
    pub areas: Vec<SupportedArea>,
}

/// A tracking area of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupportedArea {
    /// Which.
    pub tai: Tai,
    /// The slices that the node supports there.
    pub slices: Vec<Snssai>,
}

/// What a message of a node asks for beside an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RanStepRequest {
    /// These connections, or all of the node if empty, are reset: their UEs are idle.
    Reset(Vec<ResetItem>),
    /// Every UE of the node's earlier life on this association is gone: NG Setup erases it (8.7.1.1).
    Erase,
    /// The node answered our NG Reset.
    ResetAcknowledged,
    /// The node answered our AMF Configuration Update: it has no association with so many of the addresses in it.
    Updated {
        /// How many.
        failed: usize,
    },
}

/// A connection of a partial reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetItem {
    /// Our number for the UE, if the node gave it.
    pub amf_id: Option<AmfUeNgapId>,
    /// The node's number for the UE, if it gave it.
    pub ran_id: Option<RanUeNgapId>,
}

/// What a message leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RanStepOutput {
    /// The answer to the node.
    pub answer: Option<Vec<u8>>,
    /// What else is to be done.
    pub request: Option<RanStepRequest>,
    /// A fault to count.
    pub fault: Option<&'static str>,
}

/// One message of a RAN node that is not about one UE. `node` is its record, `None` if the association is no node's yet.
pub fn step(node: &mut Option<RanNode>, octets: &[u8], config: &CoreConfig) -> RanStepOutput {
    let read = NGAP_PDU::decode_borrowed(octets).map_err(|_| Fault::transfer_syntax());
    let outcome = read.and_then(|pdu| message(node, &pdu, config));
    outcome.unwrap_or_else(|fault| RanStepOutput { answer: fault.answer(), request: None, fault: Some(fault.kind) })
}

fn message(node: &mut Option<RanNode>, pdu: &NGAPPDU<'_>, config: &CoreConfig) -> Result<RanStepOutput, Box<Fault>> {
    match pdu.kind() {
        NgapPduKind::Initiating_NGSetup => Ok(setup::ng_setup(node, pdu, config)),
        // What the node is was never said here, or the association is of a node that there is none of.
        NgapPduKind::Initiating_RANConfigurationUpdate if node.is_none() => Ok(setup::unknown_node()),
        // 8.7.1.1: NG Setup is the first procedure of a node, and 8.7.2.1 RAN Configuration Update that of a further
        // association.
        _ if node.is_none() => Err(Fault::logical(
            "before-ng-setup",
            Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state),
            None,
            None,
        )),
        NgapPduKind::Initiating_RANConfigurationUpdate => Ok(setup::configuration_update(node, pdu, config)),
        NgapPduKind::Initiating_NGReset => reset(pdu),
        NgapPduKind::Successful_NGReset => {
            Ok(RanStepOutput { request: Some(RanStepRequest::ResetAcknowledged), ..RanStepOutput::default() })
        }
        NgapPduKind::Successful_AMFConfigurationUpdate => Ok(setup::updated(pdu)),
        NgapPduKind::Unsuccessful_AMFConfigurationUpdate => {
            Ok(RanStepOutput { fault: Some("amf-configuration-update-refused"), ..RanStepOutput::default() })
        }
        // Never answered with an error: two nodes would talk for ever.
        NgapPduKind::Initiating_ErrorIndication => {
            Ok(RanStepOutput { fault: Some("error-indication-received"), ..RanStepOutput::default() })
        }
        // About a UE, without its AMF-UE-NGAP-ID: that IE is mandatory.
        NgapPduKind::Initiating_UplinkNASTransport
        | NgapPduKind::Initiating_UEContextReleaseRequest
        | NgapPduKind::Successful_InitialContextSetup
        | NgapPduKind::Unsuccessful_InitialContextSetup
        | NgapPduKind::Successful_UEContextRelease
        | NgapPduKind::Successful_PDUSessionResourceSetup
        | NgapPduKind::Successful_PDUSessionResourceRelease
        | NgapPduKind::Initiating_HandoverPreparation
        | NgapPduKind::Successful_HandoverResourceAllocation
        | NgapPduKind::Unsuccessful_HandoverResourceAllocation
        | NgapPduKind::Initiating_HandoverNotification
        | NgapPduKind::Initiating_HandoverCancel
        | NgapPduKind::Initiating_UplinkRANStatusTransfer
        | NgapPduKind::Initiating_UERadioCapabilityInfoIndication => Err(Fault::of_message(pdu)),
        // Answers to what was never asked say nothing (10.4).
        _ if pdu.direction() != "InitiatingMessage" => {
            Ok(RanStepOutput { fault: Some("unexpected-outcome"), ..RanStepOutput::default() })
        }
        _ => Err(Fault::unknown_procedure(pdu)),
    }
}

/// NG RESET of the node (8.7.4.2.2): acknowledged with the connections it named.
fn reset(pdu: &NGAPPDU<'_>) -> Result<RanStepOutput, Box<Fault>> {
    let kind = pdu.ie::<ie::ResetType>().and_then(Result::ok).ok_or_else(|| Fault::of_message(pdu))?;
    let (items, named) = match kind {
        ResetType::partOfNG_Interface(list) => {
            let item = |i: &UEAssociatedLogicalNGConnectionItem| ResetItem {
                amf_id: i.amf_ue_ngap_id.as_ref().and_then(|id| AmfUeNgapId::from_raw(id.0)),
                ran_id: i.ran_ue_ngap_id.as_ref().map(|id| RanUeNgapId(id.0)),
            };
            (list.0.iter().map(item).collect(), Some(list))
        }
        ResetType::nG_Interface(_) => (Vec::new(), None),
        _ => return Err(Fault::of_message(pdu)),
    };
    Ok(RanStepOutput {
        answer: Some(reset_acknowledge(named)),
        request: Some(RanStepRequest::Reset(items)),
        fault: None,
    })
}

fn reset_acknowledge(named: Option<UEAssociatedLogicalNGConnectionList>) -> Vec<u8> {
    let ies = named.and_then(|list| build_ngap_ie!(NGResetAcknowledge, UEAssociatedLogicalNGConnectionList(list)).ok());
    let message = NGResetAcknowledge::new(ProtocolIEContainer(ies.into_iter().collect()));
    crate::n2::encode(NGAP_PDU::of_message(&message, NGResetAcknowledge::CRITICALITY))
}

/// NG RESET of the AMF for the whole interface (8.7.4.2.1).
pub fn ng_reset(cause: Cause) -> Vec<u8> {
    crate::n2::encode(build_ngap!(
        InitiatingMessage,
        NGReset,
        NGReset,
        Cause(cause),
        ResetType(ResetType::nG_Interface(ResetAll::reset_all)),
    ))
}

/// NG RESET of the AMF for some connections of a node (8.7.4.2.1).
pub fn ng_reset_part(cause: Cause, items: &[ResetItem]) -> Vec<u8> {
    let item = |i: &ResetItem| {
        let amf = i.amf_id.map(|id| AMFUENGAPID(id.get()));
        UEAssociatedLogicalNGConnectionItem::new(amf, i.ran_id.map(|id| RANUENGAPID(id.0)), None)
    };
    let list = UEAssociatedLogicalNGConnectionList(items.iter().map(item).collect());
    crate::n2::encode(build_ngap!(
        InitiatingMessage,
        NGReset,
        NGReset,
        Cause(cause),
        ResetType(ResetType::partOfNG_Interface(list)),
    ))
}

/// OVERLOAD START (8.7.7): the node shall keep UEs from us.
pub fn overload_start(relief: OverloadAction) -> Vec<u8> {
    let action = match relief.action {
        OverloadResponse::RejectSignalling => NgapAction::reject_rrc_cr_signalling,
        OverloadResponse::RejectNonEmergencyData => NgapAction::reject_non_emergency_mo_dt,
        OverloadResponse::PermitEmergencyAndTerminating => {
            NgapAction::permit_emergency_sessions_and_mobile_terminated_services_only
        }
        OverloadResponse::PermitPriorityAndTerminating => {
            NgapAction::permit_high_priority_sessions_and_mobile_terminated_services_only
        }
    };
    crate::n2::encode(build_ngap!(
        InitiatingMessage,
        OverloadStart,
        OverloadStart,
        AMFOverloadResponse(NgapResponse::overloadAction(action)),
        AMFTrafficLoadReductionIndication(TrafficLoadReductionIndication(relief.percent.clamp(1, 99))),
    ))
}

/// OVERLOAD STOP (8.7.8): it need not any more.
pub fn overload_stop() -> Vec<u8> {
    let message = OverloadStop::new(ProtocolIEContainer(Vec::new()));
    crate::n2::encode(NGAP_PDU::of_message(&message, OverloadStop::CRITICALITY))
}

/// The tracking areas of a Supported TA List.
fn areas(list: &SupportedTAList) -> Vec<SupportedArea> {
    let of_item = |item: &SupportedTAItem| {
        let tac: Tac = crate::n2::tac_of(&item.tac);
        let of_plmn = move |plmn: &BroadcastPLMNItem| SupportedArea {
            tai: Tai { plmn: vireo_types::Plmn::from_ngap(plmn.plmn_identity.0), tac },
            slices: plmn.tai_slice_support_list.0.iter().map(|s| crate::n2::snssai_of(&s.s_nssai)).collect(),
        };
        item.broadcast_plmn_list.0.iter().map(of_plmn).collect::<Vec<_>>()
    };
    list.0.iter().flat_map(of_item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The octets that pycrate encodes of the same values (tests/reference).
    fn golden(name: &str) -> Vec<u8> {
        let golden = include_str!("../../../../tests/reference/golden.txt");
        let line = golden.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("a golden");
        hex::decode(line).expect("octets")
    }

    #[test]
    fn overload_messages_have_the_octets_of_an_independent_encoder() {
        for (name, action, percent) in [
            ("OverloadStart-signalling", OverloadResponse::RejectSignalling, 40),
            ("OverloadStart-data", OverloadResponse::RejectNonEmergencyData, 1),
            ("OverloadStart-emergency", OverloadResponse::PermitEmergencyAndTerminating, 99),
            ("OverloadStart-priority", OverloadResponse::PermitPriorityAndTerminating, 50),
        ] {
            assert_eq!(overload_start(OverloadAction { action, percent }), golden(name), "{name}");
        }
        assert_eq!(overload_stop(), golden("OverloadStop"));
        assert_eq!(
            overload_start(OverloadAction { action: OverloadResponse::RejectSignalling, percent: 0 }),
            overload_start(OverloadAction { action: OverloadResponse::RejectSignalling, percent: 1 }),
        );
    }

    #[test]
    fn messages_about_associations_have_the_octets_of_an_independent_encoder() {
        let addresses = ["127.0.0.5", "2001:db8::5"].map(|address| address.parse().expect("an address"));
        assert_eq!(add_associations(&addresses), golden("AMFConfigurationUpdate-associations"));
        assert_eq!(remove_associations(&addresses), golden("AMFConfigurationUpdate-gone"));
        let refused = setup::unknown_node().answer.expect("an answer");
        assert_eq!(refused, golden("RANConfigurationUpdateFailure-no-node"));
    }

    #[test]
    fn a_further_association_says_whose_it_is() {
        let update = golden("RANConfigurationUpdate");
        let id = named(&update).expect("it names its node");
        assert_eq!((id.id, id.bits), (0x102, 24));
        assert_eq!(named(&golden("RANConfigurationUpdateAcknowledge")), None);
        assert_eq!(named(&golden("NGSetupRequest")), None, "NG Setup begins a life of the node");
        assert_eq!(named(&update[..update.len() - 1]), None);
    }

    #[test]
    fn a_node_keeps_its_identity() {
        let config = crate::session::tests::config();
        let update = golden("RANConfigurationUpdate");
        let of = |id| {
            let id = GnbId { id, ..named(&update).expect("it names its node") };
            Some(RanNode { id, name: "before".into(), areas: Vec::new() })
        };
        let mut node = of(0x103);
        let outcome = step(&mut node, &update, &config);
        assert_eq!((outcome.fault, &node), (Some("ran-configuration-update-refused"), &of(0x103)));
        assert!(outcome.answer.is_some_and(|pdu| pdu.starts_with(&[0x40, 35])), "a failure");
        let mut node = of(0x102);
        assert_eq!(step(&mut node, &update, &config).fault, None);
        assert_eq!(node.map(|node| node.name), Some("renamed".into()));
    }

    #[test]
    fn an_answer_to_further_addresses_says_how_many_are_not_used() {
        let config = crate::session::tests::config();
        let plmn = "99970".parse().expect("a PLMN");
        let id = GnbId { plmn, id: 0x102, bits: 24 };
        let mut node = Some(RanNode { id, name: String::new(), areas: Vec::new() });
        let outcome = step(&mut node, &golden("AMFConfigurationUpdateAcknowledge"), &config);
        assert_eq!((outcome.request, outcome.fault), (Some(RanStepRequest::Updated { failed: 0 }), None));
        let outcome = step(&mut node, &golden("AMFConfigurationUpdateAcknowledge-failed"), &config);
        assert_eq!((outcome.request, outcome.fault), (Some(RanStepRequest::Updated { failed: 1 }), None));
        let outcome = step(&mut node, &golden("AMFConfigurationUpdateFailure"), &config);
        assert_eq!(outcome.fault, Some("amf-configuration-update-refused"));
        let outcome = step(&mut None, &golden("AMFConfigurationUpdateAcknowledge"), &config);
        assert_eq!((outcome.request, outcome.fault), (None, Some("before-ng-setup")));
    }
}
