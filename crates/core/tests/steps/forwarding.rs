//! Forwarding of packets through the UPF in an N2 handover (TS 23.502 4.9.1.3), with its refusals.

use crate::lab::{FORWARDING_TEID, Lab};
use vireo_core::amf::engine::Event;
use vireo_core::smf::{ForwardingStep, N4State};
use vireo_core::step::{Kind, Note};
use vireo_types::*;
use vireo_wire::ngap::{self, NGAP_PDU, NgapPduKind, *};
use vireo_wire::pfcp::{self, Element};

/// Returns a connected UE with one session at gNB 0.
fn connected() -> Lab {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.pfcp.clear();
    lab
}

/// Returns address and TEID of a tunnel end.
fn end(information: &UPTransportLayerInformation<'_>) -> (Vec<u8>, u32) {
    let UPTransportLayerInformation::gTPTunnel(tunnel) = information else { panic!("a tunnel") };
    (tunnel.transport_layer_address.0.as_octets().to_vec(), u32::from_be_bytes(tunnel.gtp_teid.0))
}

/// Returns the Handover Command Transfer of the last HANDOVER COMMAND.
fn command(lab: &Lab) -> HandoverCommandTransfer<'static> {
    let pdus = lab.sent.iter().rev().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let command = pdus.into_iter().find(|pdu| pdu.kind() == NgapPduKind::Successful_HandoverPreparation);
    let command = command.expect("a command");
    let list = command.ie::<ngap::ie::PDUSessionResourceHandoverList>().expect("an IE");
    let item = list.expect("a list").0.remove(0);
    let transfer: HandoverCommandTransfer<'_> = decode_open_type(&item.handover_command_transfer).expect("a transfer");
    transfer.into_owned()
}

/// Returns the end for forwarded downlink packets in the last HANDOVER COMMAND, and the flows.
fn commanded(lab: &Lab) -> Option<((Vec<u8>, u32), usize)> {
    let transfer = command(lab);
    let flows = transfer.qos_flow_to_be_forwarded_list.as_ref().map_or(0, |list| list.0.len());
    transfer.dl_forwarding_up_tnl_information.as_ref().map(|information| (end(information), flows))
}

fn is_commanded(lab: &Lab) -> bool {
    lab.context().and_then(|c| c.handover?.target().copied()).is_some_and(|target| target.is_commanded())
}

/// Returns the numbers of groups of these kinds in the PFCP messages so far.
fn groups(lab: &Lab, ids: [u16; 2]) -> [usize; 2] {
    let count = |id| {
        let all = lab.pfcp.iter().map(|message| pfcp::Message::new(message).expect("a message"));
        all.map(|message| message.ies().map_while(Result::ok).filter(|ie| ie.id == id).count()).sum()
    };
    ids.map(count)
}

/// Returns the numbers of PDRs that were created and removed.
fn pdrs(lab: &Lab) -> [usize; 2] {
    groups(lab, [pfcp::CreatePdr::ID, pfcp::RemovePdr::ID])
}

fn is_without_forwarding(lab: &Lab) -> bool {
    lab.context().is_some_and(|c| c.sessions.iter().all(|s| s.handover.forwarding.is_none()))
}

#[test]
fn n2_handover_forwards_by_upf_for_some_time() {
    let mut lab = connected();
    lab.n2(2);
    assert_eq!(commanded(&lab), Some(((vec![127, 0, 0, 8], FORWARDING_TEID), 1)));
    let request = pfcp::Message::new(&lab.pfcp[0]).expect("a message");
    let request = <pfcp::SessionModificationRequest as pfcp::Body>::parse(&request).expect("a request");
    let (pdr, far) = (&request.create_pdrs[0], &request.create_fars[0]);
    assert_eq!(pdr.pdi.source_interface, pfcp::SourceInterface::ACCESS);
    assert_eq!(pdr.outer_header_removal, Some(pfcp::OuterHeaderRemoval::GTPU), "the container stays");
    assert_eq!((request.create_qers.len(), request.create_qers[0].qfi), (1, None));
    let to = far.forwarding_parameters.as_ref().expect("parameters");
    assert_eq!(to.destination_interface, pfcp::DestinationInterface::ACCESS);
    let header = to.outer_header_creation.as_ref().expect("a header");
    let own = lab.gnbs[1].tunnels(lab.ran.expect("a connection"))[0].downlink;
    assert_eq!(header.peer(), Some([127, 0, 0, 3].into()));
    assert_eq!(header.teid.map(|teid| teid.0 & !(1 << 27)), Some(own.0), "beside the tunnel of the session");
    assert_ne!(header.teid, Some(own));

    assert_eq!(lab.context().map(|c| c.sessions[0].downlink.map(|t| t.teid)), Some(Some(own)), "the UE is there");
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([1, 0], false));
    lab.wait(Duration::from_secs(4));
    assert_eq!(pdrs(&lab), [1, 0]);
    lab.wait(Duration::from_secs(2));
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([1, 1], true));
}

/// Returns the end for forwarded uplink packets in the last HANDOVER COMMAND.
fn commanded_uplink(lab: &Lab) -> Option<(Vec<u8>, u32)> {
    let extensions = command(lab).ie_extensions?.0;
    let extension = extensions.iter().find(|extension| extension.id.0 == 164)?;
    Some(end(&decode_open_type(&extension.extension_value).expect("an end")))
}

#[test]
fn uplink_is_forwarded_if_target_accepts_it() {
    let mut lab = connected();
    lab.gnbs[1].accept_uplink(true);
    lab.n2(2);
    let ends = [commanded(&lab).map(|(end, _)| end), commanded_uplink(&lab)];
    assert_eq!(ends, [0, 1].map(|n| Some((vec![127, 0, 0, 8], FORWARDING_TEID + n))));
    let request = pfcp::Message::new(&lab.pfcp[0]).expect("a message");
    let request = <pfcp::SessionModificationRequest as pfcp::Body>::parse(&request).expect("a request");
    let own = lab.gnbs[1].tunnels(lab.ran.expect("a connection"))[0].downlink;
    let mut ends = Vec::new();
    for far in &request.create_fars {
        let to = far.forwarding_parameters.as_ref().expect("parameters");
        assert_eq!(to.destination_interface, pfcp::DestinationInterface::ACCESS);
        let header = to.outer_header_creation.as_ref().expect("a header");
        assert_eq!(header.peer(), Some([127, 0, 0, 3].into()));
        ends.push(header.teid.expect("a TEID").0 ^ own.0);
    }
    assert_eq!(ends, [1 << 27, 3 << 26], "beside the tunnel of the session");
    lab.wait(Duration::from_secs(6));
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([2, 2], true));
    // A direct path: both ends are the target's.
    let mut lab = connected();
    lab.arrives = false;
    lab.gnbs[1].accept_uplink(true);
    require_directly(&mut lab);
    let ends = [commanded(&lab).map(|(end, _)| end), commanded_uplink(&lab)];
    assert!(ends.iter().all(|end| end.as_ref().is_some_and(|(address, _)| address == &[127, 0, 0, 3])), "{ends:?}");
    assert_eq!(pdrs(&lab), [0, 0]);
}

#[test]
fn second_handover_replaces_forwarding_tunnel() {
    let mut lab = connected();
    lab.n2(2);
    lab.n2(1);
    assert_eq!(pdrs(&lab), [2, 1], "the second request replaces the tunnel of the first");
    assert!(commanded(&lab).is_some());
    lab.wait(Duration::from_secs(6));
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([2, 2], true));
    let handovers = lab.notes.iter().filter(|n| matches!(n, Note::Succeeded(Kind::Handover, _))).count();
    assert_eq!(handovers, 2);
}

/// The command waits for the UPF, whose refusal or silence does not end the handover.
#[test]
fn refused_tunnel_leaves_handover_without_it() {
    for refuses in [true, false] {
        let mut lab = connected();
        lab.upf_answers = false;
        lab.arrives = false;
        lab.n2(2);
        assert!(!is_commanded(&lab), "the UPF has not answered");
        assert_eq!(lab.context().map(|c| c.sessions[0].n4), Some(N4State::Updating { stale: false }));
        match refuses {
            true => lab.upf_refuses(),
            false => {
                let seid = lab.context().expect("a context").sessions[0].pfcp.cp_seid;
                lab.event(Event::PfcpTimeout { seid });
                lab.settle();
            }
        }
        assert_eq!((commanded(&lab), is_commanded(&lab), is_without_forwarding(&lab)), (None, true, true));
        lab.upf_answers = true;
        lab.arrive();
        let context = lab.context().expect("a context");
        assert_eq!((context.sessions[0].n4, pdrs(&lab)), (N4State::Synced, [1, 0]));
    }
}

/// Removes what the UPF has if the UE does not arrive, and if it leaves the target.
#[test]
fn ended_handover_removes_forwarding_tunnel() {
    let mut lab = connected();
    lab.arrives = false;
    lab.n2(2);
    assert_eq!(pdrs(&lab), [1, 0]);
    lab.gnb_does(|gnb, ran, out| gnb.cancel_handover(ran, out).expect("a request"));
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([1, 1], true));

    let mut lab = connected();
    lab.arrives = false;
    lab.n2(2);
    lab.wait(Duration::from_secs(12));
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([1, 1], true), "the UE has not arrived in time");

    let mut lab = connected();
    lab.n2(2);
    lab.idle();
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([1, 1], true), "the UE is idle");

    let mut lab = connected();
    lab.n2(2);
    lab.ue_does(|ue, _, out| ue.release(1, out).expect("a request"));
    assert_eq!(pdrs(&lab), [1, 0], "the rules end with the session");
    assert!(lab.context().is_some_and(|c| c.sessions.is_empty()));
}

/// The cancellation crosses the UPF's answer.
#[test]
fn tunnel_of_cancelled_handover_is_removed() {
    let mut lab = connected();
    lab.upf_answers = false;
    lab.n2(2);
    lab.gnb_does(|gnb, ran, out| gnb.cancel_handover(ran, out).expect("a request"));
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([1, 0], false));
    lab.upf_catches_up();
    assert_eq!((pdrs(&lab), is_without_forwarding(&lab)), ([1, 1], true));
    assert!(lab.context().is_some_and(|c| c.handover.is_none() && c.remote_sessions.is_empty()));
}

#[test]
fn upf_restart_ends_forwarding() {
    let mut lab = connected();
    lab.n2(2);
    let upf = lab.context().expect("a context").sessions[0].pfcp.upf;
    lab.event(Event::UpfLost { upf });
    lab.settle();
    assert_eq!((pdrs(&lab)[1], is_without_forwarding(&lab)), (0, true));
}

/// HANDOVER REQUIRED of gNB 0 towards gNB 1, which has a direct path.
fn require_directly(lab: &mut Lab) {
    let connection = lab.context().and_then(|c| c.connection).expect("a connection");
    let target = lab.gnbs[1].config().id;
    let plmn = PLMNIdentity(target.plmn().ngap());
    let id = helpers::global_gnb_id(plmn, target.value(), 24).expect("an ID");
    let tai = helpers::tai(plmn, [0, 0, 2]);
    let target = TargetRANNodeID::new(GlobalRANNodeID::globalGNB_ID(id), tai, None);
    let path = Some(DirectForwardingPathAvailability::direct_path_available);
    let transfer = encode_open_type(&HandoverRequiredTransfer::new(path, None)).expect("it encodes");
    let item = PDUSessionResourceItemHORqd::new(PDUSessionID(1), transfer, None);
    // The emulator's container: UE 1, its connection, no refusal.
    let container = [&1_u32.to_be_bytes()[..], &connection.ran_id.0.to_be_bytes(), &[0]].concat();
    let pdu = build_ngap!(
        InitiatingMessage,
        HandoverPreparation,
        HandoverRequired,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        HandoverType(HandoverType::intra5gs),
        Cause(ngap::Cause::radioNetwork(CauseRadioNetwork::handover_desirable_for_radio_reason)),
        TargetID(TargetID::targetRANNodeID(target)),
        PDUSessionResourceListHORqd(PDUSessionResourceListHORqd(vec![item])),
        SourceToTarget_TransparentContainer(SourceToTargetTransparentContainer(container.into())),
    );
    lab.take_from_gnb(0, &pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
    lab.settle();
}

#[test]
fn direct_path_needs_no_upf() {
    let mut lab = connected();
    lab.arrives = false;
    require_directly(&mut lab);
    let context = lab.context().expect("a context");
    let forwarding = context.sessions[0].handover.forwarding.as_ref().expect("forwarding");
    assert!(matches!(forwarding.step, ForwardingStep::Ready(_)) && forwarding.installed.is_none());
    let ((address, _), _) = commanded(&lab).expect("an end");
    assert_eq!((address, pdrs(&lab)), (vec![127, 0, 0, 3], [0, 0]), "the target's");
    lab.arrive();
    assert!(is_without_forwarding(&lab));
}
