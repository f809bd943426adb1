//! X2 and S1 handover of a UE between two eNBs, with their refusals and races.

use super::network::{ENB_ID, Network, TUNNEL, assoc};
use super::pdus::{self, ADDRESS, ALGORITHMS, FORWARDING_TEID, TARGET_ID, TEID};
use super::{attached, kdf, succeeded};
use std::net::IpAddr;
use vireo_core::amf::context::RanContext;
use vireo_core::amf::engine::Event;
use vireo_core::smf::RanState;
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::Ambr;
use vireo_types::*;
use vireo_wire::nas_eps::UpdateType;
use vireo_wire::pfcp;
use vireo_wire::s1ap::{S1AP_PDU, S1APPDU, S1apPduKind as Pdu, ie, *};

/// eNB ID of the second eNB.
const TARGET: u32 = 0x12346;
const THERE: (IpAddr, u32) = (IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 3)), u32::from_be_bytes(TEID));

/// Returns a network with two eNBs and an attached UE at the first one.
fn two_enbs() -> Network {
    let mut network = attached();
    network.set_up_enb(1);
    network.sent.clear();
    network
}

fn failed(network: &Network, kind: Kind) -> usize {
    network.notes.iter().filter(|n| matches!(n, Note::Failed(k, _) if *k == kind)).count()
}

/// Returns the last PDU of a kind to eNB `n`.
fn sent(network: &Network, n: usize, kind: Pdu) -> Option<S1APPDU<'_>> {
    let pdus = network.sent.iter().rev().filter(|(to, _)| *to == n);
    pdus.map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU")).find(|pdu| pdu.kind() == kind)
}

fn cause(pdu: &S1APPDU<'_>) -> Cause {
    pdu.ie::<ie::Cause>().expect("an IE").expect("a cause")
}

fn key(security: &SecurityContext<'_>) -> (u8, Vec<u8>) {
    (security.next_hop_chaining_count, security.next_hop_parameter.0.as_octets().to_vec())
}

/// Returns the KeNB of the connection, derived from KASME alone.
fn kenb(network: &Network) -> [u8; 32] {
    let keys = (0..16).map(|count| kdf::kenb(&network.ue.kasme, count));
    keys.into_iter().find(|key| key[..] == network.kenb[..]).expect("a KeNB of a NAS COUNT")
}

fn ids(network: &Network) -> (u32, u32) {
    (network.mme_id.expect("a connection"), network.enb_id)
}

fn end_markers(network: &Network) -> usize {
    let flags = |m: &[u8]| m.windows(5).any(|w| w == [0, 49, 0, 1, 2]);
    network.effects.iter().filter(|e| matches!(e, Effect::Pfcp { message, .. } if flags(message))).count()
}

/// Moves the UE to the second eNB by X2.
pub(super) fn x2(network: &mut Network, erabs: &[u8], algorithms: (u8, u8)) {
    let mme = network.mme_id.expect("a connection");
    (network.serving, network.enb_id) = (1, TARGET_ID);
    network.take_from(1, &pdus::path_switch(mme, 2, erabs, algorithms));
}

/// Sends HANDOVER REQUIRED, and returns the MME UE S1AP ID in HANDOVER REQUEST.
pub(super) fn require(network: &mut Network, direct: bool) -> u32 {
    let ids = ids(network);
    network.take_from_enb(&pdus::required(ids, TARGET, direct));
    let request = sent(network, 1, Pdu::Initiating_HandoverResourceAllocation).expect("a request");
    request.ie::<ie::MME_UE_S1AP_ID>().expect("an IE").expect("an ID").0
}

fn is_at_source(network: &Network) {
    let context = network.context().expect("a context");
    assert!(context.handover.is_none() && context.sessions[0].handover.target.is_none());
    assert_eq!(context.connection.map(|c| (c.assoc, c.ran_id)), Some((assoc(0), RanUeNgapId(ENB_ID))));
    assert_eq!(network.tunnel(), Some(TUNNEL));
}

fn is_at_target(network: &Network) {
    let context = network.context().expect("a context");
    let connection = context.connection.expect("it is connected");
    assert_eq!((connection.assoc, connection.ran_id, connection.tai.tac), (assoc(1), RanUeNgapId(TARGET_ID), Tac(2)));
    assert!(context.handover.is_none() && context.source.is_none(), "{context:?}");
    assert_eq!((context.sessions[0].ran, network.tunnel()), (RanState::Up, Some(THERE)));
}

#[test]
fn x2_handover_switches_tunnel_and_keys() {
    let mut network = two_enbs();
    let (mme, kasme) = (network.mme_id, network.ue.kasme);
    let mut chain = kdf::next_hop(&kasme, &kenb(&network));
    // The chaining counter has 3 bits; the chain has no end.
    for hop in 2..12_u8 {
        x2(&mut network, &[5], ALGORITHMS);
        chain = kdf::next_hop(&kasme, &chain);
        let answer = sent(&network, 1, Pdu::Successful_PathSwitchRequest).expect("an acknowledgement");
        let security = answer.ie::<ie::SecurityContext>().expect("an IE").expect("a context");
        assert_eq!(key(&security), (hop & 7, chain.to_vec()), "hop {hop}");
        assert!(answer.ie::<ie::UESecurityCapabilities>().is_none(), "the eNB has them");
        assert!(answer.ie::<ie::E_RABToBeSwitchedULList>().is_none(), "the tunnel of the S-GW stays");
        network.sent.clear();
    }
    is_at_target(&network);
    assert_eq!((network.mme_id, end_markers(&network)), (mme, 1), "the eNB's end changed once");
    assert_eq!((succeeded(&network, Kind::PathSwitch), failed(&network, Kind::PathSwitch)), (10, 0));
    // The UE is served at its new eNB.
    network.idle();
    network.service_request();
    assert_eq!(succeeded(&network, Kind::ServiceRequest), 1, "{:?}", network.notes);
}

#[test]
fn path_switch_corrects_algorithms_of_enb() {
    let mut network = two_enbs();
    x2(&mut network, &[5], (0, 0x80));
    assert!(network.notes.contains(&Note::fault("security-capability-mismatch")));
    let answer = sent(&network, 1, Pdu::Successful_PathSwitchRequest).expect("an acknowledgement");
    let own = answer.ie::<ie::UESecurityCapabilities>().expect("an IE").expect("capabilities");
    assert_eq!(own.encryption_algorithms.0.as_octets()[0], ALGORITHMS.0);
    assert_eq!(own.integrity_protection_algorithms.0.as_octets()[0], ALGORITHMS.1);
}

/// The command to release the UE is on its way to the eNB, which has no UE context after it.
#[test]
fn handover_during_release_is_not_answered() {
    let mut network = two_enbs();
    let ids = ids(&network);
    let deadline = network.now + Duration::from_secs(10);
    network.change(|ue| ue.connection.as_mut().expect("a connection").ran = RanContext::Releasing { deadline });
    network.take_from_enb(&pdus::required(ids, TARGET, false));
    assert!(network.sent.is_empty(), "{:?}", network.kinds);
    assert_eq!(failed(&network, Kind::Handover), 1);
}

#[test]
fn unusable_path_switch_changes_nothing() {
    for (erabs, tac, reason) in [
        (&[9][..], 2, CauseRadioNetwork::unknown_E_RAB_ID),
        (&[5, 5], 2, CauseRadioNetwork::multiple_E_RAB_ID_instances),
        (&[5], 77, CauseRadioNetwork::ho_target_not_allowed),
    ] {
        let mut network = two_enbs();
        let mme = network.mme_id.expect("a connection");
        network.take_from(1, &pdus::path_switch(mme, tac, erabs, ALGORITHMS));
        let answer = sent(&network, 1, Pdu::Unsuccessful_PathSwitchRequest).expect("a failure");
        assert_eq!(cause(&answer), Cause::radioNetwork(reason));
        assert_eq!(failed(&network, Kind::PathSwitch), 1);
        is_at_source(&network);
    }
}

/// TS 36.413 9.2.3.38.
#[test]
fn target_gets_masked_imeisv() {
    let mut network = two_enbs();
    network.change(|ue| ue.identity.pei = Some(Pei(3_512_345_678_901_234)));
    require(&mut network, false);
    let request = sent(&network, 1, Pdu::Initiating_HandoverResourceAllocation).expect("a request");
    let masked = request.ie::<ie::Masked_IMEISV>().expect("an IE").expect("a value");
    assert_eq!(masked.0.value(), 0x3512_3456_78ff_ff34);
}

/// Returns a network with two eNBs and a connected UE with new NAS keys, whose eNB has not answered
/// the request to take the key into use that follows; and the NH of a path switch under the former
/// keys.
fn rekeying() -> (Network, [u8; 32]) {
    let mut network = two_enbs();
    let kasme = network.ue.kasme;
    let first = kdf::next_hop(&kasme, &kenb(&network));
    network.change(|ue| ue.pending.authenticate = true);
    network.update(UpdateType::TaUpdating);
    assert_ne!(network.ue.kasme, kasme, "{:?}", network.notes);
    assert!(network.context().and_then(|ue| ue.connection).is_some_and(|c| c.ran.is_rekeying()));
    (network, kdf::next_hop(&kasme, &first))
}

/// TS 33.401 7.2.10: the NH is of the former keys, and the target then gets the key of the new
/// ones. Until it has answered, another path switch would get an NH of keys that it need not have.
#[test]
fn path_switch_during_renewal_has_former_hop() {
    let (mut network, hop) = rekeying();
    x2(&mut network, &[5], ALGORITHMS);
    let answer = sent(&network, 1, Pdu::Successful_PathSwitchRequest).expect("an acknowledgement");
    let security = answer.ie::<ie::SecurityContext>().expect("an IE").expect("a context");
    assert_eq!(key(&security), (2, hop.to_vec()));
    let request = sent(&network, 1, Pdu::Initiating_UEContextModification).expect("a request");
    let renewed = request.ie::<ie::SecurityKey>().expect("an IE").expect("a key");
    // The COUNT of SECURITY MODE COMPLETE.
    assert_eq!(renewed.0.as_octets(), kdf::kenb(&network.ue.kasme, 0));
    is_at_target(&network);
    let mme = network.mme_id.expect("a connection");
    network.take_from(0, &pdus::path_switch(mme, 2, &[5], ALGORITHMS));
    let answer = sent(&network, 0, Pdu::Unsuccessful_PathSwitchRequest).expect("a failure");
    assert_eq!(cause(&answer), Cause::radioNetwork(CauseRadioNetwork::interaction_with_other_procedure));
    is_at_target(&network);
    // The target does not take the key into use.
    let ids = ids(&network);
    network.take_from(1, &pdus::modification_failure(ids, CauseRadioNetwork::unspecified));
    assert!(sent(&network, 1, Pdu::Initiating_UEContextRelease).is_some(), "{:?}", network.kinds);
}

/// TS 36.413 8.3.4.3: the source refuses the key because it hands the UE over.
#[test]
fn failure_for_x2_handover_awaits_target() {
    let (mut network, hop) = rekeying();
    let ids = ids(&network);
    network.take_from_enb(&pdus::modification_failure(ids, CauseRadioNetwork::x2_handover_triggered));
    assert!(sent(&network, 0, Pdu::Initiating_UEContextRelease).is_none(), "{:?}", network.kinds);
    x2(&mut network, &[5], ALGORITHMS);
    let answer = sent(&network, 1, Pdu::Successful_PathSwitchRequest).expect("an acknowledgement");
    assert_eq!(key(&answer.ie::<ie::SecurityContext>().expect("an IE").expect("a context")), (2, hop.to_vec()));
}

/// Another UE may have the eNB UE S1AP ID at its eNB, and a message may name a connection that has
/// ended.
#[test]
fn message_with_ids_of_other_ue_changes_nothing() {
    let mut network = two_enbs();
    let (mme, enb) = ids(&network);
    network.take_from(1, &pdus::path_switch(mme ^ 1, 2, &[5], ALGORITHMS));
    let (amf_id, ran_id) = (AmfUeNgapId::from_mme(mme ^ 1), RanUeNgapId(TARGET_ID));
    let stale = Effect::ReleaseStale { assoc: assoc(1), amf_id, ran_id };
    assert_eq!(network.effects.last(), Some(&stale), "the UE is not served on a connection of before");
    for pdu in
        [pdus::required((mme, enb), TARGET, true), pdus::released((mme, enb), 5), pdus::modified((mme, enb), &[5])]
    {
        network.take_from(1, &pdu);
    }
    network.event(Event::ConnectionLost { assoc: assoc(1) });
    network.event(Event::RanIdReused { assoc: assoc(1), ran_id: RanUeNgapId(enb) });
    is_at_source(&network);
}

/// The MME UE S1AP ID is a possible AMF UE NGAP ID.
#[test]
fn gnb_cannot_take_over_connection_of_enb() {
    use vireo_wire::ngap::{self, *};
    let mut network = two_enbs();
    let amf_id = network.context().and_then(|c| c.connection).expect("a connection").amf_id;
    let item = PDUSessionResourceToBeSwitchedDLItem::new(PDUSessionID(5), vec![0].into(), None);
    let request = ngap::build_ngap!(
        InitiatingMessage,
        PathSwitchRequest,
        PathSwitchRequest,
        RAN_UE_NGAP_ID(7_u32),
        SourceAMF_UE_NGAP_ID(amf_id.get()),
        PDUSessionResourceToBeSwitchedDLList(PDUSessionResourceToBeSwitchedDLList(vec![item])),
    );
    let pdu = request.and_then(|pdu| pdu.encode()).expect("it encodes");
    network.event(Event::Ngap { assoc: AssocId(3), amf_id, pdu: &pdu });
    assert!(network.notes.contains(&Note::fault("path-switch-unknown-ue")), "{:?}", network.notes);
    is_at_source(&network);
}

#[test]
fn path_switch_overtakes_answer_of_source() {
    let mut network = two_enbs();
    network.idle();
    network.enb_answers = false;
    network.service_request();
    assert_eq!(network.tunnel(), None);
    let source = ids(&network);
    x2(&mut network, &[5], ALGORITHMS);
    is_at_target(&network);
    assert_eq!(succeeded(&network, Kind::ServiceRequest), 1, "{:?}", network.notes);
    assert_eq!(end_markers(&network), 0, "there was no path to the source");
    // Its bearer is released there, not here.
    network.take_from(0, &pdus::released(source, 5));
    is_at_target(&network);
}

#[test]
fn path_switch_answer_waits_for_user_plane() {
    let mut network = two_enbs();
    network.upf_answers = false;
    x2(&mut network, &[5], ALGORITHMS);
    assert!(sent(&network, 1, Pdu::Successful_PathSwitchRequest).is_none());
    // A second path switch meanwhile replaces the first one.
    x2(&mut network, &[5], ALGORITHMS);
    network.upf_catches_up();
    assert!(sent(&network, 1, Pdu::Successful_PathSwitchRequest).is_some());
    assert_eq!((succeeded(&network, Kind::PathSwitch), failed(&network, Kind::PathSwitch)), (1, 1));
    is_at_target(&network);
}

/// As [`handover_during_release_is_not_answered`], with a release while the UPF is updated.
#[test]
fn path_switch_is_not_answered_in_release() {
    let mut network = two_enbs();
    network.upf_answers = false;
    x2(&mut network, &[5], ALGORITHMS);
    let deadline = network.now + Duration::from_secs(10);
    network.change(|ue| ue.connection.as_mut().expect("a connection").ran = RanContext::Releasing { deadline });
    network.sent.clear();
    network.upf_catches_up();
    assert!(network.sent.is_empty(), "{:?}", network.kinds);
    assert!(network.context().is_some_and(|context| context.handover.is_none()));
    assert_eq!((succeeded(&network, Kind::PathSwitch), failed(&network, Kind::PathSwitch)), (0, 1));
}

#[test]
fn ue_without_switched_bearer_is_detached() {
    let mut network = two_enbs();
    network.upf_answers = false;
    x2(&mut network, &[5], ALGORITHMS);
    let seid = network.context().expect("a context").sessions[0].pfcp.cp_seid;
    network.event(Event::PfcpTimeout { seid });
    network.settle();
    let answer = sent(&network, 1, Pdu::Unsuccessful_PathSwitchRequest).expect("a failure");
    assert_eq!(cause(&answer), Cause::transport(CauseTransport::transport_resource_unavailable));
    assert_eq!(network.mme_id, None, "the connection is released");
    assert!(network.context().is_some_and(|c| !c.is_registered() && c.procedure.is_none()));
}

#[test]
fn s1_handover_moves_ue_and_tunnel() {
    let mut network = two_enbs();
    let (source, kasme) = (ids(&network), network.ue.kasme);
    let mme = require(&mut network, true);
    assert_ne!(mme, source.0, "an ID of its own");
    let ltmsi = network.context().map(|context| context.ltmsi);
    assert_eq!(Some(AmfUeNgapId::from_mme(mme).ltmsi()), ltmsi, "of the same UE");
    let request = sent(&network, 1, Pdu::Initiating_HandoverResourceAllocation).expect("a request");
    let security = request.ie::<ie::SecurityContext>().expect("an IE").expect("a context");
    let chain = kdf::next_hop(&kasme, &kdf::next_hop(&kasme, &kenb(&network)));
    assert_eq!(key(&security), (2, chain.to_vec()));
    assert_eq!(cause(&request), Cause::radioNetwork(CauseRadioNetwork::time_critical_handover));
    let [erab] = &request.items::<ie::E_RABToBeSetupListHOReq>().map(|i| i.expect("an item")).collect::<Vec<_>>()[..]
    else {
        panic!("one E-RAB")
    };
    assert_eq!((erab.e_rab_id.0, erab.transport_layer_address.0.as_octets()), (5, &[127, 0, 0, 8][..]));
    assert_eq!(erab.ie_extensions, None, "packets are forwarded");

    network.take_from(1, &pdus::acknowledge(mme, &[5]));
    let command = sent(&network, 0, Pdu::Initiating_HandoverPreparation);
    assert!(command.is_none());
    let command = sent(&network, 0, Pdu::Successful_HandoverPreparation).expect("a command");
    let forwarded: Vec<_> =
        command.items::<ie::E_RABSubjecttoDataForwardingList>().map(|i| i.expect("an item")).collect();
    assert_eq!(forwarded.len(), 1);
    assert_eq!(forwarded[0].dl_gtp_teid, Some(GTPTEID(FORWARDING_TEID)));
    assert_eq!(
        forwarded[0].dl_transport_layer_address.as_ref().map(|a| a.0.as_octets().to_vec()),
        Some(ADDRESS.to_vec())
    );
    assert_eq!(forwarded[0].ul_gtp_teid, None);
    assert_eq!(
        command.ie::<ie::Target_ToSource_TransparentContainer>().map(|c| c.expect("octets").0.to_vec()),
        Some(vec![4, 5])
    );
    assert_eq!(network.tunnel(), Some(TUNNEL), "the UE is not there yet");

    network.take_from(0, &pdus::status(source));
    network.take_from(0, &pdus::status(source));
    assert_eq!(network.kinds.iter().filter(|kind| **kind == Pdu::Initiating_MMEStatusTransfer).count(), 1, "once");
    let status = sent(&network, 1, Pdu::Initiating_MMEStatusTransfer).expect("a status");
    assert_eq!(status.ie::<ie::eNB_UE_S1AP_ID>().map(|id| id.expect("an ID").0), Some(TARGET_ID));
    assert!(status.ie::<ie::eNB_StatusTransfer_TransparentContainer>().is_some_and(|container| container.is_ok()));

    (network.serving, network.enb_id, network.mme_id) = (1, TARGET_ID, Some(mme));
    network.take_from(1, &pdus::notify(mme));
    is_at_target(&network);
    let release = sent(&network, 0, Pdu::Initiating_UEContextRelease).expect("a release");
    assert_eq!(cause(&release), Cause::radioNetwork(CauseRadioNetwork::successful_handover));
    assert_eq!((succeeded(&network, Kind::Handover), end_markers(&network)), (1, 1));
    network.update(vireo_wire::nas_eps::UpdateType::TaUpdating);
    assert_eq!(succeeded(&network, Kind::Mobility), 1, "the UE updates its area at the target: {:?}", network.notes);
}

/// The eNB limits the UE by the sum of the APN-AMBRs of its bearers (TS 23.401 4.7.3).
#[test]
fn target_gets_ambr_of_admitted_bearers() {
    let downlink = |pdu: &S1APPDU<'_>| {
        let ambr = pdu.ie::<ie::uEaggregateMaximumBitrate>().expect("an IE").expect("rates");
        ambr.ue_aggregate_maximum_bit_rate_dl.0
    };
    let mut network = Network::new();
    let rates = |downlink_bps| Ambr { uplink_bps: 9_000_000, downlink_bps };
    network.subscription.ambr = rates(50_000_000);
    network.subscription.slices[0].dnns[0].ambr = rates(30_000_000);
    network.subscribe("ims");
    network.subscription.slices[0].dnns[1].ambr = rates(30_000_000);
    network.attach();
    network.set_up_enb(1);
    network.connect(2, Some("ims"));
    let mme = require(&mut network, true);
    let request = sent(&network, 1, Pdu::Initiating_HandoverResourceAllocation).expect("a request");
    assert_eq!(downlink(&request), 50_000_000);
    network.take_from(1, &pdus::acknowledge(mme, &[5]));
    (network.serving, network.enb_id, network.mme_id) = (1, TARGET_ID, Some(mme));
    network.take_from(1, &pdus::notify(mme));
    let change = sent(&network, 1, Pdu::Initiating_UEContextModification).expect("a change");
    assert_eq!(downlink(&change), 30_000_000);
    assert!(network.context().is_some_and(|c| c.sessions.iter().filter(|s| s.remains()).count() == 1));
}

#[test]
fn source_without_direct_path_forwards_by_upf() {
    let mut network = two_enbs();
    let mme = require(&mut network, false);
    let request = sent(&network, 1, Pdu::Initiating_HandoverResourceAllocation).expect("a request");
    let erab = request.items::<ie::E_RABToBeSetupListHOReq>().next().expect("an E-RAB").expect("an item");
    assert_eq!(erab.ie_extensions, None, "packets are forwarded");
    network.take_from(1, &pdus::acknowledge(mme, &[5]));
    let command = sent(&network, 0, Pdu::Successful_HandoverPreparation).expect("a command");
    let forwarded = command.items::<ie::E_RABSubjecttoDataForwardingList>().next().expect("an item").expect("an item");
    assert_eq!(forwarded.e_rab_id.0, 5);
    let teid = forwarded.dl_gtp_teid.map(|teid| u32::from_be_bytes(teid.0));
    let address = forwarded.dl_transport_layer_address.map(|address| address.0.as_octets().to_vec());
    assert_eq!((teid, address), (Some(crate::lab::FORWARDING_TEID), Some(vec![127, 0, 0, 8])), "of the UPF");
    (network.serving, network.enb_id, network.mme_id) = (1, TARGET_ID, Some(mme));
    network.take_from(1, &pdus::notify(mme));
    is_at_target(&network);
    assert!(network.context().is_some_and(|context| context.sessions[0].handover.forwarding.is_some()));
    network.now = network.now + Duration::from_secs(6);
    network.event(Event::Deadline);
    network.settle();
    assert!(network.context().is_some_and(|context| context.sessions[0].handover.forwarding.is_none()));
}

/// TS 23.401 5.5.1.2.2 steps 6 and 8: each direction that the target has an end for.
#[test]
fn upf_forwards_each_direction_with_target_end() {
    const UPLINK: [u8; 4] = [6, 6, 6, 6];
    type Case = ([Option<[u8; 4]>; 2], &'static [u16], [Option<u32>; 2]);
    let upf = crate::lab::FORWARDING_TEID;
    let cases: [Case; 3] = [
        ([Some(FORWARDING_TEID), Some(UPLINK)], &[3, 4], [Some(upf), Some(upf + 1)]),
        ([None, Some(UPLINK)], &[4], [None, Some(upf + 1)]),
        ([None, None], &[], [None, None]),
    ];
    for (ends, rules, ours) in cases {
        let mut network = two_enbs();
        let mme = require(&mut network, false);
        network.effects.clear();
        network.take_from(1, &pdus::acknowledge_with(mme, &[5], ends));
        let requests = modifications(&network);
        let created: Vec<_> = requests.iter().flat_map(|request| &request.create_pdrs).collect();
        assert_eq!(created.iter().map(|pdr| pdr.pdr_id.0).collect::<Vec<_>>(), rules);
        let fars: Vec<_> = requests.iter().flat_map(|request| &request.create_fars).collect();
        let header = |far: &&pfcp::CreateFar| {
            far.forwarding_parameters.as_ref()?.outer_header_creation.as_ref()?.teid.map(|teid| teid.0.to_be_bytes())
        };
        assert_eq!(fars.iter().filter_map(header).collect::<Vec<_>>(), ends.into_iter().flatten().collect::<Vec<_>>());

        let command = sent(&network, 0, Pdu::Successful_HandoverPreparation).expect("a command");
        let item = command.items::<ie::E_RABSubjecttoDataForwardingList>().next().map(|item| item.expect("an item"));
        let teid = |teid: Option<GTPTEID>| teid.map(|teid| u32::from_be_bytes(teid.0));
        let told = item.map_or([None, None], |item| [teid(item.dl_gtp_teid), teid(item.ul_gtp_teid)]);
        assert_eq!(told, ours);

        (network.serving, network.enb_id, network.mme_id) = (1, TARGET_ID, Some(mme));
        network.take_from(1, &pdus::notify(mme));
        is_at_target(&network);
        network.effects.clear();
        network.now = network.now + Duration::from_secs(6);
        network.event(Event::Deadline);
        network.settle();
        let requests = modifications(&network);
        let removed = requests.iter().flat_map(|request| &request.remove_pdrs).map(|pdr| pdr.pdr_id.0);
        assert_eq!(removed.collect::<Vec<_>>(), rules, "what was created is removed");
        assert!(network.context().is_some_and(|context| context.sessions[0].handover.forwarding.is_none()));
    }
}

/// Returns the requests to the UPF, of which all are modifications.
fn modifications(network: &Network) -> Vec<pfcp::SessionModificationRequest> {
    let messages = network.effects.iter().filter_map(|effect| match effect {
        Effect::Pfcp { message, .. } => Some(pfcp::Message::new(message).expect("a message")),
        _ => None,
    });
    messages.map(|m| <pfcp::SessionModificationRequest as pfcp::Body>::parse(&m).expect("a request")).collect()
}

#[test]
fn relocating_session_is_not_forwarded() {
    let mut network = two_enbs();
    network.change(|ue| {
        let pfcp = vireo_core::smf::PfcpSession { upf: ([127, 0, 0, 9], 8805).into(), ..ue.sessions[0].pfcp };
        let (step, since) = (vireo_core::smf::RelocationStep::Preparing, ue.sessions[0].since);
        let relocation = vireo_core::smf::Relocation { pfcp, step, deadline: None, since };
        ue.sessions[0].relocation = Some(Box::new(relocation));
    });
    require(&mut network, false);
    let request = sent(&network, 1, Pdu::Initiating_HandoverResourceAllocation).expect("a request");
    let erab = request.items::<ie::E_RABToBeSetupListHOReq>().next().expect("an E-RAB").expect("an item");
    let extensions = erab.ie_extensions.expect("extensions").0;
    let marks: Vec<_> = extensions.iter().map(|e| (e.id.0, e.criticality)).collect();
    assert_eq!(marks, [(143, Criticality::ignore)], "Data Forwarding Not Possible");
}

#[test]
fn unknown_target_is_refused_with_cause() {
    let mut network = two_enbs();
    let source = ids(&network);
    network.take_from_enb(&pdus::required(source, 0x77, true));
    let answer = sent(&network, 0, Pdu::Unsuccessful_HandoverPreparation).expect("a failure");
    assert_eq!(cause(&answer), Cause::radioNetwork(CauseRadioNetwork::unknown_targetID));
    is_at_source(&network);
}

/// How a target, whose MME UE S1AP ID is given, ends a preparation.
type Refuse = fn(&mut Network, u32);

#[test]
fn refusal_of_target_fails_preparation() {
    let none = |network: &mut Network, mme| network.take_from(1, &pdus::acknowledge(mme, &[9]));
    let failure = |network: &mut Network, mme| network.take_from(1, &pdus::failure(mme));
    let lost = |network: &mut Network, _| {
        network.event(Event::ConnectionLost { assoc: assoc(1) });
        network.settle();
    };
    let silent = |network: &mut Network, _| {
        network.now = network.now + Duration::from_secs(11);
        network.event(Event::Deadline);
        network.settle();
    };
    let of_target = CauseRadioNetwork::ho_failure_in_target_EPC_eNB_or_target_system;
    let cases: [(Refuse, CauseRadioNetwork); 4] = [
        (none, of_target),
        (failure, CauseRadioNetwork::no_radio_resources_available_in_target_cell),
        (lost, of_target),
        (silent, of_target),
    ];
    for (refuse, reason) in cases {
        let mut network = two_enbs();
        let mme = require(&mut network, true);
        refuse(&mut network, mme);
        let answer = sent(&network, 0, Pdu::Unsuccessful_HandoverPreparation).expect("a failure");
        assert_eq!(cause(&answer), Cause::radioNetwork(reason));
        assert_eq!(failed(&network, Kind::Handover), 1);
        is_at_source(&network);
        // A late answer of the target changes nothing, and the next handover works.
        network.take_from(1, &pdus::acknowledge(mme, &[5]));
        is_at_source(&network);
        let again = require(&mut network, true);
        network.take_from(1, &pdus::acknowledge(again, &[5]));
        (network.serving, network.enb_id, network.mme_id) = (1, TARGET_ID, Some(again));
        network.take_from(1, &pdus::notify(again));
        is_at_target(&network);
    }
}

#[test]
fn cancelled_preparation_releases_target() {
    for acknowledges in [false, true] {
        let mut network = two_enbs();
        let source = ids(&network);
        let mme = require(&mut network, true);
        if acknowledges {
            network.take_from(1, &pdus::acknowledge(mme, &[5]));
        }
        network.take_from_enb(&pdus::cancel(source));
        assert!(sent(&network, 0, Pdu::Successful_HandoverCancel).is_some());
        let release = sent(&network, 1, Pdu::Initiating_UEContextRelease).expect("a release");
        let ids = release.ie::<ie::UE_S1AP_IDs>().expect("an IE").expect("IDs");
        assert_eq!(matches!(ids, UES1APIDs::uE_S1AP_ID_pair(_)), acknowledges);
        is_at_source(&network);
        // The target's acknowledgement or the UE's arrival crosses the cancellation.
        network.take_from(1, &pdus::acknowledge(mme, &[5]));
        network.take_from(1, &pdus::notify(mme));
        is_at_source(&network);
        assert_eq!((failed(&network, Kind::Handover), succeeded(&network, Kind::Handover)), (1, 0));
    }
}

#[test]
fn loss_of_source_in_preparation_releases_target() {
    let mut network = two_enbs();
    let mme = require(&mut network, true);
    network.take_from(1, &pdus::acknowledge(mme, &[5]));
    network.event(Event::ConnectionLost { assoc: assoc(0) });
    network.settle();
    let context = network.context().expect("a context");
    assert!(context.handover.is_none() && context.connection.is_none() && context.is_registered());
    assert!(sent(&network, 1, Pdu::Initiating_UEContextRelease).is_some());
    assert_eq!(network.tunnel(), None, "the UPF buffers");
}

#[test]
fn second_handover_request_waits_for_first() {
    let mut network = two_enbs();
    let source = ids(&network);
    let mme = require(&mut network, true);
    network.take_from_enb(&pdus::required(source, TARGET, true));
    let answer = sent(&network, 0, Pdu::Unsuccessful_HandoverPreparation).expect("a failure");
    assert_eq!(cause(&answer), Cause::radioNetwork(CauseRadioNetwork::interaction_with_other_procedure));
    network.take_from(1, &pdus::acknowledge(mme, &[5]));
    // A repeated acknowledgement commands nothing a second time.
    network.sent.clear();
    network.take_from(1, &pdus::acknowledge(mme, &[5]));
    assert!(sent(&network, 0, Pdu::Successful_HandoverPreparation).is_none());
    (network.serving, network.enb_id, network.mme_id) = (1, TARGET_ID, Some(mme));
    network.take_from(1, &pdus::notify(mme));
    is_at_target(&network);
}

/// The host that continues a handover has only the committed context.
#[test]
fn committed_handover_continues_elsewhere() {
    let mut network = two_enbs();
    let mme = require(&mut network, true);
    let context = network.context().expect("a context");
    let mut elsewhere = two_enbs();
    elsewhere.change(|ue| *ue = context);
    elsewhere.take_from(1, &pdus::acknowledge(mme, &[5]));
    assert!(sent(&elsewhere, 0, Pdu::Successful_HandoverPreparation).is_some());
    (elsewhere.serving, elsewhere.enb_id, elsewhere.mme_id) = (1, TARGET_ID, Some(mme));
    elsewhere.take_from(1, &pdus::notify(mme));
    is_at_target(&elsewhere);
}
