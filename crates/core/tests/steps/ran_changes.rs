//! Changes that a gNB starts: notifications and other tunnel ends of sessions, reports on the UE.

use crate::golden::nr as golden;
use crate::lab::Lab;
use std::net::IpAddr;
use vireo_core::amf::context::Connection;
use vireo_core::amf::n2::UeMessage;
use vireo_core::amf::{access, n2};
use vireo_core::step::Note;
use vireo_types::*;
use vireo_wire::ngap::{self, NGAP_PDU, NgapPduKind, *};

/// Returns a connected UE with these sessions at gNB 0.
fn connected(sessions: &[u8]) -> Lab {
    let mut lab = Lab::new();
    lab.register();
    sessions.iter().for_each(|psi| lab.session(*psi));
    lab.pfcp.clear();
    lab.sent.clear();
    lab.notes.clear();
    lab
}

fn connection(lab: &Lab) -> Connection {
    lab.context().and_then(|c| c.connection).expect("a connection")
}

fn encoded(pdu: Result<NGAPPDU<'_>, Error>) -> Vec<u8> {
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

fn transfer<T: aper::Encode>(transfer: &T) -> Vec<u8> {
    encode_open_type(transfer).expect("it encodes").to_vec()
}

/// Returns a tunnel end of a secondary node.
fn end(teid: u32) -> UPTransportLayerInformation<'static> {
    let address = TransportLayerAddress([127, 0, 0, 99].into());
    UPTransportLayerInformation::gTPTunnel(GTPTunnel::new(address, GTPTEID(teid.to_be_bytes()), None))
}

/// Returns a PDU Session Resource Modify Indication Transfer of this QoS flow.
fn indication(teid: u32, qfi: u64, is_split: bool) -> Vec<u8> {
    let flows = |qfi| AssociatedQosFlowList(vec![AssociatedQosFlowItem::new(QosFlowIdentifier(qfi), None, None)]);
    let more = QosFlowPerTNLInformation::new(end(teid + 1), flows(2), None);
    let more = is_split.then(|| QosFlowPerTNLInformationList(vec![QosFlowPerTNLInformationItem::new(more, None)]));
    let own = QosFlowPerTNLInformation::new(end(teid), flows(qfi), None);
    transfer(&PDUSessionResourceModifyIndicationTransfer::new(own, more, None))
}

/// Sends PDU SESSION RESOURCE MODIFY INDICATION.
fn indicate(lab: &mut Lab, sessions: &[(u8, Vec<u8>)]) {
    let c = connection(lab);
    let item = |(psi, transfer): &(u8, Vec<u8>)| {
        PDUSessionResourceModifyItemModInd::new(PDUSessionID(*psi), transfer.clone().into(), None)
    };
    let list = PDUSessionResourceModifyListModInd(sessions.iter().map(item).collect());
    let pdu = encoded(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceModifyIndication,
        PDUSessionResourceModifyIndication,
        AMF_UE_NGAP_ID(c.amf_id.get()),
        RAN_UE_NGAP_ID(c.ran_id.0),
        PDUSessionResourceModifyListModInd(list),
    ));
    lab.take_from_gnb(0, &pdu);
    lab.settle();
}

/// Returns the sessions of the last PDU SESSION RESOURCE MODIFY CONFIRM: modified, and not.
fn confirmed(lab: &Lab) -> Option<(Vec<u8>, Vec<u8>)> {
    let pdus = lab.sent.iter().rev().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let confirm = pdus.into_iter().find(|p| p.kind() == NgapPduKind::Successful_PDUSessionResourceModifyIndication)?;
    let modified = confirm.ie::<ngap::ie::PDUSessionResourceModifyListModCfm>().map(|list| list.expect("a list"));
    let modified = modified.iter().flat_map(|list| &list.0).map(|item| {
        let transfer: PDUSessionResourceModifyConfirmTransfer<'_> =
            decode_open_type(&item.pdu_session_resource_modify_confirm_transfer).expect("a transfer");
        let UPTransportLayerInformation::gTPTunnel(tunnel) = &transfer.ul_ngu_up_tnl_information else { panic!() };
        let context = lab.context().expect("a context");
        let session = context.sessions.iter().find(|s| s.psi == item.pdu_session_id.0).expect("a session");
        assert_eq!(session.uplink.map(|own| own.teid.0.to_be_bytes()), Some(tunnel.gtp_teid.0));
        item.pdu_session_id.0
    });
    let modified = modified.collect();
    let failed = confirm.ie::<ngap::ie::PDUSessionResourceFailedToModifyListModCfm>();
    let failed = failed.map(|list| list.expect("a list").0.iter().map(|item| item.pdu_session_id.0).collect());
    Some((modified, failed.unwrap_or_default()))
}

/// Returns the RAN end of a session's tunnel as the UPF has it.
fn tunnel(lab: &Lab, psi: u8) -> Option<(IpAddr, u32)> {
    let context = lab.context().expect("a context");
    let session = context.sessions.iter().find(|s| s.psi == psi)?;
    session.downlink.map(|end| (end.address, end.teid.0))
}

fn has_fault(lab: &Lab, word: &'static str) -> bool {
    lab.notes.contains(&Note::fault(word))
}

/// The UPF has the new end before the confirmation, and sends an End Marker to the old one.
#[test]
fn modify_indication_moves_tunnel() {
    let mut lab = connected(&[1, 2]);
    let before = tunnel(&lab, 2);
    lab.upf_answers = false;
    indicate(&mut lab, &[(1, indication(0x77, 1, false))]);
    assert_eq!(confirmed(&lab), None, "the UPF has not answered");
    lab.upf_catches_up();
    assert_eq!(confirmed(&lab), Some((vec![1], vec![])));
    assert_eq!(tunnel(&lab, 1), Some(([127, 0, 0, 99].into(), 0x77)));
    assert_eq!(tunnel(&lab, 2), before, "a session that is not named stays as it is");
    assert!(lab.context().is_some_and(|c| c.handover.is_none()));
    // And back to the master node.
    lab.upf_answers = true;
    indicate(&mut lab, &[(1, indication(0x78, 1, false)), (2, indication(0x79, 1, false))]);
    assert_eq!(confirmed(&lab), Some((vec![1, 2], vec![])));
    assert_eq!([1, 2].map(|psi| tunnel(&lab, psi).map(|end| end.1)), [Some(0x78), Some(0x79)]);
}

/// A session that cannot be modified keeps its tunnel: an unknown one, one without the default QoS
/// flow, one with a second tunnel, and octets that do not decode.
#[test]
fn unusable_indication_leaves_tunnel() {
    for unusable in [indication(0x77, 2, false), indication(0x77, 1, true), vec![0xff]] {
        let mut lab = connected(&[1, 2]);
        let before = tunnel(&lab, 1);
        indicate(&mut lab, &[(1, unusable), (2, indication(0x79, 1, false)), (9, indication(0x80, 1, false))]);
        assert_eq!(confirmed(&lab), Some((vec![2], vec![1, 9])));
        assert_eq!((tunnel(&lab, 1), tunnel(&lab, 2).map(|end| end.1)), (before, Some(0x79)));
    }
    let mut lab = connected(&[1]);
    let before = tunnel(&lab, 1);
    indicate(&mut lab, &[(1, indication(0x77, 1, false)), (1, indication(0x78, 1, false))]);
    assert!(has_fault(&lab, "session-modification-twice"));
    assert_eq!(confirmed(&lab), None);
    assert!(lab.context().is_some_and(|c| c.connection.is_none()), "the UE context is released");
    assert_ne!(before, None);
}

/// Sends PDU SESSION RESOURCE NOTIFY.
fn notify(lab: &mut Lab, notified: &[(u8, PDUSessionResourceNotifyTransfer)], released: &[u8]) {
    let c = connection(lab);
    let mut ies = vec![
        build_ngap_ie!(PDUSessionResourceNotify, AMF_UE_NGAP_ID(c.amf_id.get())),
        build_ngap_ie!(PDUSessionResourceNotify, RAN_UE_NGAP_ID(c.ran_id.0)),
    ];
    if !notified.is_empty() {
        let item = |(psi, content): &(u8, PDUSessionResourceNotifyTransfer)| {
            PDUSessionResourceNotifyItem::new(PDUSessionID(*psi), transfer(content).into(), None)
        };
        let list = PDUSessionResourceNotifyList(notified.iter().map(item).collect());
        ies.push(build_ngap_ie!(PDUSessionResourceNotify, PDUSessionResourceNotifyList(list)));
    }
    if !released.is_empty() {
        let cause = ngap::Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
        let content = transfer(&PDUSessionResourceNotifyReleasedTransfer::new(cause, None));
        let item = |psi: &u8| PDUSessionResourceReleasedItemNot::new(PDUSessionID(*psi), content.clone().into(), None);
        let list = PDUSessionResourceReleasedListNot(released.iter().map(item).collect());
        ies.push(build_ngap_ie!(PDUSessionResourceNotify, PDUSessionResourceReleasedListNot(list)));
    }
    let ies = ies.into_iter().collect::<Result<Vec<_>, _>>().expect("they build");
    let message = PDUSessionResourceNotify::new(ProtocolIEContainer(ies));
    let pdu = encoded(NGAP_PDU::of_message(&message, PDUSessionResourceNotify::CRITICALITY));
    lab.take_from_gnb(0, &pdu);
    lab.settle();
}

fn sends(lab: &Lab, kind: NgapPduKind) -> bool {
    lab.sent.iter().any(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind() == kind)
}

/// The RAN has released the session: the UE learns it, and the RAN is sent no release.
#[test]
fn session_released_by_ran_ends() {
    let mut lab = connected(&[1, 2]);
    notify(&mut lab, &[], &[1]);
    let context = lab.context().expect("a context");
    assert_eq!(context.sessions.iter().map(|s| s.psi).collect::<Vec<_>>(), [2]);
    assert!(!sends(&lab, NgapPduKind::Initiating_PDUSessionResourceRelease));
    assert!(sends(&lab, NgapPduKind::Initiating_DownlinkNASTransport), "PDU Session Release Command");
    assert_eq!(lab.ue.active_sessions().collect::<Vec<_>>(), [2]);
    notify(&mut lab, &[], &[9]);
    assert!(has_fault(&lab, "session-unknown"));
}

#[test]
fn notified_flows_are_counted() {
    let mut lab = connected(&[1]);
    let flow = |qfi, cause| QosFlowNotifyItem::new(QosFlowIdentifier(qfi), cause, None);
    let flows = QosFlowNotifyList(vec![
        flow(1, NotificationCause::not_fulfilled),
        flow(2, NotificationCause::not_fulfilled),
        flow(3, NotificationCause::fulfilled),
    ]);
    notify(&mut lab, &[(1, PDUSessionResourceNotifyTransfer::new(Some(flows), None, None))], &[]);
    assert!(lab.notes.contains(&Note::QosFlowsNotified { fulfilled: 1, not_fulfilled: 2 }), "{:?}", lab.notes);
    assert!(tunnel(&lab, 1).is_some() && lab.sent.is_empty());
    // Another flow than the default one, which the core does not have.
    let released = |qfi| {
        let cause = ngap::Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
        let item = QosFlowWithCauseItem::new(QosFlowIdentifier(qfi), cause, None);
        PDUSessionResourceNotifyTransfer::new(None, Some(QosFlowListWithCause(vec![item])), None)
    };
    notify(&mut lab, &[(1, released(2))], &[]);
    assert!(tunnel(&lab, 1).is_some() && lab.sent.is_empty());
    // Without the default QoS flow the session ends, also at the RAN.
    notify(&mut lab, &[(1, released(1))], &[]);
    assert!(sends(&lab, NgapPduKind::Initiating_PDUSessionResourceRelease));
    assert!(lab.context().is_some_and(|c| c.sessions.is_empty()));
}

/// Sends a message about the UE with these IEs after its identifiers.
macro_rules! send {
    ($lab:ident, $direction:ident, $procedure:ident, $message:ident, $($ie:ident ($value:expr)),*) => {{
        let c = connection(&$lab);
        let pdu = build_ngap!(
            $direction,
            $procedure,
            $message,
            AMF_UE_NGAP_ID(c.amf_id.get()),
            RAN_UE_NGAP_ID(c.ran_id.0),
            $($ie($value)),*
        );
        $lab.take_from_gnb(0, &encoded(pdu));
        $lab.settle();
    }};
}

/// Returns a location in a cell of an ng-eNB.
fn eutra(cell: u32) -> UserLocationInformation<'static> {
    let plmn = helpers::plmn("999", "70").expect("a PLMN");
    let id = EUTRACellIdentity(aper::Bits::low(cell.into(), 28));
    let location =
        UserLocationInformationEUTRA::new(EUTRACGI::new(plmn, id, None), helpers::tai(plmn, [0, 0, 2]), None, None);
    UserLocationInformation::userLocationInformationEUTRA(location)
}

fn place(lab: &Lab) -> (Tac, u64) {
    let c = connection(lab);
    (c.tai.tac, c.cell.cell)
}

#[test]
fn reports_update_location() {
    let mut lab = connected(&[1]);
    send!(
        lab,
        InitiatingMessage,
        RRCInactiveTransitionReport,
        RRCInactiveTransitionReport,
        RRCState(RRCState::inactive),
        UserLocationInformation(eutra(0x123_4501))
    );
    assert_eq!(place(&lab), (Tac(2), 0x123_4501));
    let kind = LocationReportingRequestType::new(EventType::direct, ReportArea::cell, None, None, None);
    send!(
        lab,
        InitiatingMessage,
        LocationReport,
        LocationReport,
        UserLocationInformation(eutra(0x123_4502)),
        LocationReportingRequestType(kind)
    );
    assert_eq!(place(&lab), (Tac(2), 0x123_4502));
    assert!(lab.sent.is_empty() && lab.notes.is_empty(), "{:?}", lab.notes);
}

#[test]
fn failures_without_consequence_are_counted() {
    let mut lab = connected(&[1]);
    let cause = || ngap::Cause::radioNetwork(CauseRadioNetwork::unspecified);
    send!(
        lab,
        InitiatingMessage,
        LocationReportingFailureIndication,
        LocationReportingFailureIndication,
        Cause(cause())
    );
    assert!(has_fault(&lab, "location-reporting-failure"));
    send!(lab, UnsuccessfulOutcome, UEContextModification, UEContextModificationFailure, Cause(cause()));
    assert!(has_fault(&lab, "context-modification-failure"));
    assert!(lab.sent.is_empty() && connection(&lab).ran == vireo_core::amf::context::RanContext::SetUp);
}

/// Outcomes of procedures that the core does not start are ignored (TS 38.413 10.4).
#[test]
fn capability_check_response_is_ignored() {
    let mut lab = connected(&[1]);
    send!(
        lab,
        SuccessfulOutcome,
        UERadioCapabilityCheck,
        UERadioCapabilityCheckResponse,
        IMSVoiceSupportIndicator(IMSVoiceSupportIndicator::supported)
    );
    assert!(lab.sent.is_empty() && lab.notes.is_empty(), "{:?}", lab.notes);
}

/// A request that only an AMF sends is a logical error (TS 38.413 10.4).
#[test]
fn requests_of_an_amf_are_refused() {
    let error = |pdu: &[u8]| {
        let pdu = NGAP_PDU::decode_borrowed(pdu).expect("a PDU");
        assert_eq!(pdu.kind(), NgapPduKind::Initiating_ErrorIndication);
        let ids = (pdu.ie::<ngap::ie::AMF_UE_NGAP_ID>().is_some(), pdu.ie::<ngap::ie::RAN_UE_NGAP_ID>().is_some());
        (pdu.ie::<ngap::ie::Cause>().expect("an IE").expect("a cause"), ids)
    };
    let cause = ngap::Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state);
    // About a UE.
    for name in ["RerouteNASRequest", "DownlinkNASTransport", "InitialContextSetupRequest", "HandoverRequest-from-eps"]
    {
        let fault = access::ue_message(Dialect::Nr, &golden(name)).expect_err("a fault");
        let (answered, ids) = error(&fault.answer().expect("an answer"));
        assert_eq!((fault.kind, answered), ("request-of-an-amf", cause.clone()), "{name}");
        assert_eq!(ids, (true, name != "HandoverRequest-from-eps"));
    }
    // About the interface.
    let mut lab = connected(&[1]);
    for name in
        ["AMFStatusIndication", "AMFConfigurationUpdate", "Paging", "OverloadStart", "DownlinkRANConfigurationTransfer"]
    {
        let outcome = vireo_core::amf::ran::step(&mut lab.nodes.0[0].1, &golden(name), &lab.config);
        assert_eq!((outcome.request, outcome.fault), (None, Some("request-of-an-amf")), "{name}");
        assert_eq!(error(&outcome.answer.expect("an answer")), (cause.clone(), (false, false)), "{name}");
    }
    let message = n2::ue_message(&golden("LocationReport")).expect("a message").1;
    assert!(matches!(message, UeMessage::Location(Some((_, cell))) if cell.cell == 0x123_4501));
}
