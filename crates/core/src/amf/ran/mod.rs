//! RAN nodes, and procedures that are not about one UE (TS 38.413 8.7; eNBs: TS 36.413 8.7).
//!
//! The state of a RAN node is plain data; a step of it is a pure function.
//!
//! A RAN node may have several associations with one AMF (TS 38.412 clause 7, TS 23.501 5.21.1.2).
//! It sets up NG on one of them. On each additional one it first sends a RAN Configuration Update
//! with its Global RAN Node ID. The association thereby joins the RAN node ([`named`]).

pub mod admission;
mod offered;
mod s1;
mod setup;
mod shared_areas;

pub use offered::offered;
pub use setup::{add_associations, claimed_node, remove_associations};

use crate::amf::n2::{Cause, Fault};
use crate::config::CoreConfig;
use crate::schedule::shed::{OverloadAction, OverloadResponse};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vireo_types::{AmfUeNgapId, AssocId, Dialect, RanNodeId, RanUeNgapId, Snssai, Tac, Tai};
use vireo_wire::ngap::{Message, OverloadAction as NgapAction, OverloadResponse as NgapResponse, *};

/// RAN node that has completed NG Setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanNode {
    /// Global RAN Node ID.
    pub id: RanNodeId,
    /// RAN Node Name; empty if the RAN node sent none.
    pub name: String,
    /// Supported tracking areas, one item per PLMN and TAC. There may be thousands, which copies of
    /// the RAN node share: each message of the node copies it.
    #[serde(with = "shared_areas")]
    pub areas: Arc<[SupportedArea]>,
}

/// Supported TA List item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupportedArea {
    pub tai: Tai,
    /// Slices that the RAN node supports in this tracking area.
    pub slices: Vec<Snssai>,
}

impl RanNode {
    /// Returns the slices that the RAN node supports in a tracking area; `None` if it does not
    /// serve the area.
    pub fn slices(&self, tai: Tai) -> Option<&[Snssai]> {
        slices_in(&self.areas, tai)
    }
}

/// Returns the slices of a tracking area in a list.
pub fn slices_in(areas: &[SupportedArea], tai: Tai) -> Option<&[Snssai]> {
    areas.iter().find(|area| area.tai == tai).map(|area| &area.slices[..])
}

/// Returns true if a tracking area lacks one of the slices: most of its RAN nodes do. `nodes` has
/// the slices of each of them.
///
/// A slice is available in a whole tracking area or not at all (TS 23.501 5.15.8). One RAN node
/// that contradicts the others does not decide for their UEs.
pub fn area_lacks<'a>(nodes: impl Iterator<Item = &'a [Snssai]>, slices: &[Snssai]) -> bool {
    let (mut all, mut lacking) = (0_usize, 0_usize);
    for supported in nodes {
        all += 1;
        lacking += usize::from(slices.iter().any(|snssai| !supported.contains(snssai)));
    }
    lacking > all / 2
}

/// Action that a message requests besides the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RanStepRequest {
    /// These connections are reset, or all of the RAN node if empty: their UEs become idle.
    Reset(Vec<ResetItem>),
    /// All UEs that the RAN node had on this association are released: NG Setup erases them
    /// (8.7.1.1).
    Erase,
    /// The RAN node acknowledged an NG Reset of the AMF.
    ResetAcknowledged,
    /// The message is for another RAN node.
    Relay {
        target: RanNodeId,
        /// PDU to the target.
        pdu: Vec<u8>,
    },
    /// The RAN node acknowledged an AMF or MME Configuration Update.
    Updated {
        /// Number of the update's addresses to which it has no association.
        failed: usize,
    },
}

/// Connection of a partial reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetItem {
    /// AMF-UE-NGAP-ID, if the RAN node sent it.
    pub amf_id: Option<AmfUeNgapId>,
    /// RAN-UE-NGAP-ID, if the RAN node sent it.
    pub ran_id: Option<RanUeNgapId>,
}

/// Result of a step of a RAN node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RanStepOutput {
    /// NGAP PDU to the RAN node.
    pub answer: Option<Vec<u8>>,
    pub request: Option<RanStepRequest>,
    /// Label of a fault to count.
    pub fault: Option<&'static str>,
}

/// As [`step`], for a message of an association, by its dialect. An eNB is answered by the MME that
/// the association is with.
pub fn step_of(assoc: AssocId, node: &mut Option<RanNode>, octets: &[u8], config: &CoreConfig) -> RanStepOutput {
    match assoc.dialect() {
        Dialect::Nr => step(node, octets, config),
        Dialect::Eps => s1::step(node, octets, (config, config.mme(assoc.balancer()))),
    }
}

/// Encodes the reset of all connections with a RAN node.
pub fn reset_all(dialect: Dialect, cause: Cause) -> Vec<u8> {
    match dialect {
        Dialect::Nr => ng_reset(cause),
        Dialect::Eps => s1::reset_all(&cause),
    }
}

/// Encodes the reset of some connections with a RAN node.
pub fn reset_part(dialect: Dialect, cause: Cause, items: &[ResetItem]) -> Vec<u8> {
    match dialect {
        Dialect::Nr => ng_reset_part(cause, items),
        Dialect::Eps => s1::reset_part(&cause, items),
    }
}

/// Encodes Overload Start, or Overload Stop without an action.
pub fn overload(dialect: Dialect, relief: Option<OverloadAction>) -> Vec<u8> {
    match (dialect, relief) {
        (Dialect::Nr, Some(relief)) => overload_start(relief),
        (Dialect::Nr, None) => overload_stop(),
        (Dialect::Eps, Some(relief)) => s1::overload_start(relief),
        (Dialect::Eps, None) => s1::overload_stop(),
    }
}

/// Encodes the failure of NG Setup or S1 Setup for a RAN node that may not use its identity, or not
/// yet.
pub fn setup_refused(dialect: Dialect, refusal: admission::Refusal) -> Vec<u8> {
    match dialect {
        Dialect::Nr => admission::setup_refused(refusal),
        Dialect::Eps => s1::setup_refused(refusal),
    }
}

/// Processes one message of a gNB that is not about one UE. `node` is `None` if the association
/// belongs to no RAN node yet.
pub fn step(node: &mut Option<RanNode>, octets: &[u8], config: &CoreConfig) -> RanStepOutput {
    let read = NGAP_PDU::decode_borrowed(octets).map_err(|_| Fault::transfer_syntax());
    let outcome = read.and_then(|pdu| message(node, &pdu, config));
    outcome.unwrap_or_else(|fault| RanStepOutput { answer: fault.answer(), request: None, fault: Some(fault.kind) })
}

fn message(node: &mut Option<RanNode>, pdu: &NGAPPDU<'_>, config: &CoreConfig) -> Result<RanStepOutput, Box<Fault>> {
    match pdu.kind() {
        NgapPduKind::Initiating_NGSetup => Ok(setup::ng_setup(node, pdu, config)),
        // The RAN node never sent its identity here, or the association names a node that is not
        // set up.
        NgapPduKind::Initiating_RANConfigurationUpdate if node.is_none() => Ok(setup::unknown_node()),
        // NG Setup is the first procedure of a RAN node (8.7.1.1); RAN Configuration Update is the
        // first on an additional association (8.7.2.1).
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
        NgapPduKind::Initiating_UplinkRANConfigurationTransfer => Ok(configuration_transfer(pdu)),
        NgapPduKind::Successful_AMFConfigurationUpdate => Ok(setup::on_update_acknowledge(pdu)),
        NgapPduKind::Unsuccessful_AMFConfigurationUpdate => {
            Ok(RanStepOutput { fault: Some("amf-configuration-update-refused"), ..RanStepOutput::default() })
        }
        // Never answered with an error, which could cause an endless exchange.
        NgapPduKind::Initiating_ErrorIndication => {
            Ok(RanStepOutput { fault: Some("error-indication-received"), ..RanStepOutput::default() })
        }
        kind if crate::amf::n2::is_for_ran(&kind) => Err(Fault::wrong_direction(pdu)),
        // UE-associated messages without AMF-UE-NGAP-ID, which is mandatory.
        NgapPduKind::Initiating_UplinkNASTransport
        | NgapPduKind::Initiating_UEContextReleaseRequest
        | NgapPduKind::Successful_InitialContextSetup
        | NgapPduKind::Unsuccessful_InitialContextSetup
        | NgapPduKind::Successful_UEContextRelease
        | NgapPduKind::Successful_PDUSessionResourceSetup
        | NgapPduKind::Successful_PDUSessionResourceRelease
        | NgapPduKind::Initiating_PDUSessionResourceModifyIndication
        | NgapPduKind::Initiating_PDUSessionResourceNotify
        | NgapPduKind::Initiating_RRCInactiveTransitionReport
        | NgapPduKind::Initiating_LocationReport
        | NgapPduKind::Initiating_LocationReportingFailureIndication
        | NgapPduKind::Initiating_HandoverPreparation
        | NgapPduKind::Successful_HandoverResourceAllocation
        | NgapPduKind::Unsuccessful_HandoverResourceAllocation
        | NgapPduKind::Initiating_HandoverNotification
        | NgapPduKind::Initiating_HandoverCancel
        | NgapPduKind::Initiating_UplinkRANStatusTransfer
        | NgapPduKind::Initiating_UERadioCapabilityInfoIndication => Err(Fault::from_message(pdu)),
        // Outcomes without a request are ignored (10.4).
        _ if pdu.direction() != "InitiatingMessage" => {
            Ok(RanStepOutput { fault: Some("unexpected-outcome"), ..RanStepOutput::default() })
        }
        _ => Err(Fault::unknown_procedure(pdu)),
    }
}

/// Processes UPLINK RAN CONFIGURATION TRANSFER (8.8.1): its SON information goes to the RAN node
/// that it names. An IE that does not decode counts as absent (criticality ignore). SON information
/// for the other system is not relayed.
fn configuration_transfer(pdu: &NGAPPDU<'_>) -> RanStepOutput {
    let son = pdu.ie::<ie::SONConfigurationTransferUL>().and_then(Result::ok);
    let target = |son: &SONConfigurationTransfer<'_>| {
        crate::amf::n2::ran_node_of(&son.target_ran_node_id_son.global_ran_node_id)
    };
    let Some((Ok(target), son)) = son.map(|son| (target(&son), son)) else {
        let is_other = pdu.ie::<ie::ENDC_SONConfigurationTransferUL>().is_some()
            || pdu.ie::<ie::IntersystemSONConfigurationTransferUL>().is_some();
        let fault = match is_other {
            true => "ran-configuration-transfer-to-eps",
            false => "ran-configuration-transfer-without-target",
        };
        return RanStepOutput { fault: Some(fault), ..RanStepOutput::default() };
    };
    let pdu = crate::amf::n2::encode(build_ngap!(
        InitiatingMessage,
        DownlinkRANConfigurationTransfer,
        DownlinkRANConfigurationTransfer,
        SONConfigurationTransferDL(son),
    ));
    RanStepOutput { request: Some(RanStepRequest::Relay { target, pdu }), ..RanStepOutput::default() }
}

/// Processes NG RESET of the RAN node (8.7.4.2.2). The acknowledgement lists the connections of the
/// request.
fn reset(pdu: &NGAPPDU<'_>) -> Result<RanStepOutput, Box<Fault>> {
    let kind = pdu.ie::<ie::ResetType>().and_then(Result::ok).ok_or_else(|| Fault::from_message(pdu))?;
    let (items, named) = match kind {
        ResetType::partOfNG_Interface(list) => {
            let item = |i: &UEAssociatedLogicalNGConnectionItem| ResetItem {
                amf_id: i.amf_ue_ngap_id.as_ref().and_then(|id| AmfUeNgapId::from_raw(id.0)),
                ran_id: i.ran_ue_ngap_id.as_ref().map(|id| RanUeNgapId(id.0)),
            };
            (list.0.iter().map(item).collect(), Some(list))
        }
        ResetType::nG_Interface(_) => (Vec::new(), None),
        _ => return Err(Fault::from_message(pdu)),
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
    crate::amf::n2::encode(NGAP_PDU::of_message(&message, NGResetAcknowledge::CRITICALITY))
}

/// Encodes NG RESET of the AMF for the whole interface (8.7.4.2.1).
pub fn ng_reset(cause: Cause) -> Vec<u8> {
    crate::amf::n2::encode(build_ngap!(
        InitiatingMessage,
        NGReset,
        NGReset,
        Cause(cause),
        ResetType(ResetType::nG_Interface(ResetAll::reset_all)),
    ))
}

/// Encodes NG RESET of the AMF for some connections of a RAN node (8.7.4.2.1).
pub fn ng_reset_part(cause: Cause, items: &[ResetItem]) -> Vec<u8> {
    let item = |i: &ResetItem| {
        let amf = i.amf_id.map(|id| AMFUENGAPID(id.get()));
        UEAssociatedLogicalNGConnectionItem::new(amf, i.ran_id.map(|id| RANUENGAPID(id.0)), None)
    };
    let list = UEAssociatedLogicalNGConnectionList(items.iter().map(item).collect());
    crate::amf::n2::encode(build_ngap!(
        InitiatingMessage,
        NGReset,
        NGReset,
        Cause(cause),
        ResetType(ResetType::partOfNG_Interface(list)),
    ))
}

/// Encodes OVERLOAD START (8.7.7), which has the RAN node reduce signalling.
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
    crate::amf::n2::encode(build_ngap!(
        InitiatingMessage,
        OverloadStart,
        OverloadStart,
        AMFOverloadResponse(NgapResponse::overloadAction(action)),
        AMFTrafficLoadReductionIndication(TrafficLoadReductionIndication(relief.percent.clamp(1, 99))),
    ))
}

/// Encodes OVERLOAD STOP (8.7.8).
pub fn overload_stop() -> Vec<u8> {
    let message = OverloadStop::new(ProtocolIEContainer(Vec::new()));
    crate::amf::n2::encode(NGAP_PDU::of_message(&message, OverloadStop::CRITICALITY))
}

/// Returns the tracking areas of a Supported TA List.
fn areas(list: &SupportedTAList) -> Vec<SupportedArea> {
    let of_item = |item: &SupportedTAItem| {
        let tac: Tac = crate::amf::n2::tac_of(&item.tac);
        let of_plmn = move |plmn: &BroadcastPLMNItem| SupportedArea {
            tai: Tai { plmn: vireo_types::Plmn::from_ngap(plmn.plmn_identity.0), tac },
            slices: plmn.tai_slice_support_list.0.iter().map(|s| crate::amf::n2::snssai_of(&s.s_nssai)).collect(),
        };
        item.broadcast_plmn_list.0.iter().map(of_plmn).collect::<Vec<_>>()
    };
    list.0.iter().flat_map(of_item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::nr as golden;
    use vireo_types::{EnbId, EnbKind, GnbId};

    #[test]
    fn overload_messages_equal_independent_encoding() {
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
    fn association_messages_equal_independent_bytes() {
        let addresses = ["127.0.0.5", "2001:db8::5"].map(|address| address.parse().expect("an address"));
        assert_eq!(add_associations(&addresses), golden("AMFConfigurationUpdate-associations"));
        assert_eq!(remove_associations(&addresses), golden("AMFConfigurationUpdate-gone"));
        let refused = setup::unknown_node().answer.expect("an answer");
        assert_eq!(refused, golden("RANConfigurationUpdateFailure-no-node"));
    }

    #[test]
    fn further_association_names_its_node() {
        let update = golden("RANConfigurationUpdate");
        let id = claimed_node(&update).expect("it names its node");
        let expected = GnbId { plmn: id.plmn(), id: 0x102, bits: 24 };
        assert_eq!(id, expected.into());
        assert_eq!(claimed_node(&golden("RANConfigurationUpdateAcknowledge")), None);
        assert_eq!(claimed_node(&golden("NGSetupRequest")), None, "NG Setup begins a life of the node");
        assert_eq!(claimed_node(&update[..update.len() - 1]), None);
    }

    #[test]
    fn node_id_change_is_refused() {
        let config = crate::smf::tests::config();
        let update = golden("RANConfigurationUpdate");
        let plmn = claimed_node(&update).expect("it names its node").plmn();
        let of = |id| {
            let id = GnbId { plmn, id, bits: 24 };
            Some(RanNode { id: id.into(), name: "before".into(), areas: [].into() })
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
    fn each_gnb_and_ng_enb_identity_sets_up() {
        let config = crate::smf::tests::config();
        let set_up = |name: &str| {
            let mut node = None;
            let outcome = step(&mut node, &golden(name), &config);
            assert_eq!((outcome.request, outcome.fault), (Some(RanStepRequest::Erase), None), "{name}");
            assert!(outcome.answer.is_some_and(|pdu| pdu.starts_with(&[0x20, 21])), "{name}");
            node.expect("a node").id
        };
        let plmn = "99970".parse().expect("a PLMN");
        for bits in 22..=32 {
            let id = GnbId { plmn, id: 1 << (bits - 1) | 0x1234, bits };
            assert_eq!(set_up(&format!("NGSetupRequest-gnb-{bits}")), id.into());
        }
        for (name, kind, id) in [
            ("NGSetupRequest-ng-enb-macro", EnbKind::Macro, 0x1_2345),
            ("NGSetupRequest-ng-enb-short", EnbKind::ShortMacro, 0x1_2345),
            ("NGSetupRequest-ng-enb-long", EnbKind::LongMacro, 0x11_2345),
        ] {
            assert_eq!(set_up(name), RanNodeId::NgEnb(EnbId { plmn, kind, id }), "{name}");
        }
    }

    #[test]
    fn other_kinds_of_node_are_refused_by_name() {
        let config = crate::smf::tests::config();
        let separate = CoreConfig { smf_is_remote: true, ..config.clone() };
        for (kind, config, fault) in [
            ("n3iwf", &config, "ng-setup-of-n3iwf"),
            ("tngf", &config, "ng-setup-of-tngf"),
            ("twif", &config, "ng-setup-of-twif"),
            ("w-agf", &config, "ng-setup-of-w-agf"),
            ("ng-enb-macro", &separate, "ng-setup-of-ng-enb-in-sba-mode"),
        ] {
            let mut node = None;
            let outcome = step(&mut node, &golden(&format!("NGSetupRequest-{kind}")), config);
            assert_eq!((node, outcome.request, outcome.fault), (None, None, Some(fault)));
            assert_eq!(outcome.answer, Some(golden("NGSetupFailure-unspecified")), "{kind}");
        }
    }

    #[test]
    fn configuration_transfer_is_for_named_node() {
        let config = crate::smf::tests::config();
        let mut node = None;
        step(&mut node, &golden("NGSetupRequest"), &config);
        let uplink = golden("UplinkRANConfigurationTransfer");
        let outcome = step(&mut node, &uplink, &config);
        let Some(RanStepRequest::Relay { target, pdu }) = outcome.request else { panic!("{outcome:?}") };
        let plmn = "99970".parse().expect("a PLMN");
        assert_eq!(target, RanNodeId::NgEnb(EnbId { plmn, kind: EnbKind::Macro, id: 0x1_2345 }));
        assert_eq!((outcome.answer, outcome.fault), (None, None));
        assert_eq!(pdu, golden("DownlinkRANConfigurationTransfer"));
        assert_eq!(step(&mut None, &uplink, &config).fault, Some("before-ng-setup"));
        // An IE that does not decode, of criticality ignore, counts as absent.
        let mut unnamed = uplink;
        let at = unnamed.windows(2).position(|two| two == [0, 99]).expect("the IE");
        unnamed[at + 4] |= 0x60;
        let outcome = step(&mut node, &unnamed, &config);
        assert_eq!((outcome.request, outcome.answer), (None, None));
        assert_eq!(outcome.fault, Some("ran-configuration-transfer-without-target"));
    }

    #[test]
    fn further_addresses_unused_are_reported() {
        let config = crate::smf::tests::config();
        let plmn = "99970".parse().expect("a PLMN");
        let id = GnbId { plmn, id: 0x102, bits: 24 };
        let mut node = Some(RanNode { id: id.into(), name: String::new(), areas: [].into() });
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
