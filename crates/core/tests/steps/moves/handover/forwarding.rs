//! Forwarding of packets through the UPF in a handover between 4G and 5G (TS 23.502 4.11.1.2).

use super::*;
use crate::lab::FORWARDING_TEID;
use vireo_types::Teid;
use vireo_wire::pfcp;

/// Returns the last request that creates a PDR.
fn creation(phone: &Phone) -> pfcp::SessionModificationRequest {
    let messages = phone.lab.pfcp.iter().rev().map(|octets| pfcp::Message::new(octets).expect("a message"));
    let modifications = messages.filter(|m| m.message_type() == pfcp::MessageType::SESSION_MODIFICATION_REQUEST);
    let mut decoded =
        modifications.map(|m| <pfcp::SessionModificationRequest as pfcp::Body>::parse(&m).expect("a request"));
    decoded.find(|request| !request.create_pdrs.is_empty()).expect("a request")
}

/// Asserts that packets are relayed to the target, with this QFI and without the extension headers
/// of these bits.
fn is_relayed(phone: &Phone, qfi: Option<u8>, deletion: Option<u8>) {
    let request = creation(phone);
    let removal = request.create_pdrs[0].outer_header_removal.expect("a removal");
    assert_eq!((removal.description, removal.extension_deletion), (6, deletion));
    assert_eq!(request.create_qers[0].qfi.map(|qfi| qfi.0), qfi);
    let to = request.create_fars[0].forwarding_parameters.as_ref().expect("parameters");
    let header = to.outer_header_creation.as_ref().expect("a header");
    let end = (header.teid, header.peer());
    assert_eq!(end, (Some(Teid(u32::from_be_bytes(pdus::FORWARDED))), Some([127, 0, 0, 4].into())));
}

/// Returns the QoS flows that the last modification permits for uplink packets, if it has any such
/// rule.
fn uplink_flows(phone: &Phone) -> Option<Vec<u8>> {
    let octets = phone.lab.pfcp.last().expect("a message");
    let message = pfcp::Message::new(octets).expect("a message");
    let request = <pfcp::SessionModificationRequest as pfcp::Body>::parse(&message).expect("a request");
    let pdr = request.update_pdrs.iter().find(|pdr| pdr.pdr_id == pfcp::PdrId(1))?;
    Some(pdr.pdi.as_ref()?.qfis.iter().map(|qfi| qfi.0).collect())
}

fn has_forwarding(phone: &Phone) -> bool {
    phone.context().sessions.iter().any(|session| session.handover.forwarding.is_some())
}

#[test]
fn packets_to_4g_lose_their_container() {
    let mut phone = in_5g();
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::forwarded_by_enb(mme, &[5]));
    is_relayed(&phone, None, Some(1));
    assert_eq!(uplink_flows(&phone), Some(vec![]), "the eNB may send before the UPF has the rules of EPS");
    let command = to_gnb(&phone, NgapPduKind::Successful_HandoverPreparation).expect("a command");
    assert_eq!(command.check().expect("it decodes"), vec![]);
    let list = command.ie::<ngap::ie::PDUSessionResourceHandoverList>().expect("an IE").expect("a list");
    assert_eq!(list.0[0].pdu_session_id.0, 3);
    let transfer: ngap::HandoverCommandTransfer<'_> =
        ngap::decode_open_type(&list.0[0].handover_command_transfer).expect("a transfer");
    let Some(ngap::UPTransportLayerInformation::gTPTunnel(tunnel)) = transfer.dl_forwarding_up_tnl_information else {
        panic!("a tunnel")
    };
    assert_eq!(tunnel.gtp_teid.0, FORWARDING_TEID.to_be_bytes());
    let flows = transfer.qos_flow_to_be_forwarded_list.expect("flows").0;
    assert_eq!(flows.iter().map(|flow| flow.qos_flow_identifier.0).collect::<Vec<_>>(), [1]);

    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    assert!(phone.is_all_of(Dialect::Eps) && has_forwarding(&phone));
    phone.lab.wait(Duration::from_secs(6));
    assert!(!has_forwarding(&phone));
    assert_eq!((succeeded(&phone, Kind::Handover), failed(&phone)), (1, 0));
}

#[test]
fn packets_to_5g_get_their_flow() {
    let mut phone = in_4g();
    require_5g(&mut phone, GNB_ID);
    let amf = requested_amf_id(&phone);
    phone.lab.take_from_gnb(0, &pdus::forwarded_by_gnb(amf, &[3]));
    is_relayed(&phone, Some(1), None);
    assert_eq!(uplink_flows(&phone), None);
    let command = to_enb(&phone, S1apPduKind::Successful_HandoverPreparation).expect("a command");
    assert_eq!(command.check().expect("it decodes"), vec![]);
    let item = command.items::<s1ap::ie::E_RABSubjecttoDataForwardingList>().next().expect("an item").expect("an item");
    let teid = item.dl_gtp_teid.map(|teid| u32::from_be_bytes(teid.0));
    assert_eq!((item.e_rab_id.0, teid, item.ul_gtp_teid), (5, Some(FORWARDING_TEID), None));

    phone.lab.take_from_gnb(0, &pdus::notified_by_gnb(amf));
    assert!(phone.is_all_of(Dialect::Nr) && has_forwarding(&phone));
    phone.lab.wait(Duration::from_secs(6));
    assert!(!has_forwarding(&phone));
}

/// The UE stays, and the UPF has nothing left of the handover.
#[test]
fn failed_handover_ends_forwarding() {
    let mut phone = in_5g();
    let before = phone.context();
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::forwarded_by_enb(mme, &[5]));
    cancel_by_gnb(&mut phone, mme);
    is_unharmed(&phone, &before);
    assert_eq!(uplink_flows(&phone), Some(vec![1]), "as before");

    // A procedure begins before the UPF has answered.
    phone.lab.upf_answers = false;
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::forwarded_by_enb(mme, &[5]));
    phone.lab.sent.clear();
    begin_update(&mut phone);
    phone.lab.upf_catches_up();
    let failure = to_gnb(&phone, NgapPduKind::Unsuccessful_HandoverPreparation).expect("a failure");
    let reason = ngap::CauseRadioNetwork::interaction_with_other_procedure;
    assert_eq!(failure.ie::<ngap::ie::Cause>().map(|c| c.expect("a cause")), Some(ngap::Cause::radioNetwork(reason)));
    assert!(phone.context().handover.is_none() && !has_forwarding(&phone));
}
