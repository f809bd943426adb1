//! Messages of handover and of modified tunnels equal those that pycrate has encoded.

use super::messages::{PathSwitchAnswer, Request, RequestedSession};
use super::{eps, nr};
use crate::amf::context::Connection;
use crate::amf::context::NextHop;
use crate::amf::n2::{Cause, UeInformation, UeMessage};
use crate::amf::s1::golden_tests::{
    AMBR, KEY, NR_ALGORITHMS, REQUESTED, capability, connection, restricted, without_en_dc,
};
use crate::amf::s1::ue_message;
use crate::golden::eps as golden;
use crate::smf::{self, Tunnel};
use vireo_types::{AmfUeNgapId, Guami, RanUeNgapId, Snssai, Teid};
use vireo_wire::ngap::CauseRadioNetwork as Radio;

const NEXT_HOP: NextHop = NextHop { nh: KEY, ncc: 2 };
/// End of S1-U at the S-GW: TEID and address.
const SGW: [u8; 8] = [0, 0, 1, 1, 127, 0, 0, 7];
/// Ends for forwarded packets: downlink of 8 octets, no uplink.
const FORWARDING: [u8; 10] = [8, 8, 0, 0, 0x75, 127, 0, 0, 9, 0];
/// HANDOVER REQUEST whose container ends with `last`.
fn request(forwards: bool, last: u8, nr_algorithms: Option<(u16, u16)>, information: UeInformation) -> Vec<u8> {
    let connection = connection();
    let (snssai, transfer) = (Snssai { sst: 1, sd: None }, REQUESTED.to_vec());
    let session = RequestedSession { psi: 5, snssai, transfer, forwards };
    let request = Request {
        guami: Guami { plmn: connection.tai.plmn, region: 0, set: 0, pointer: 0 },
        cause: Cause::radioNetwork(Radio::handover_desirable_for_radio_reason),
        ambr: AMBR,
        capability: capability(),
        next_hop: NEXT_HOP,
        sessions: vec![session],
        allowed: &[],
        container: &[0, 0, 0, 7, 0, 0, 0, 0, last],
        nr_algorithms,
        information,
        mapped: None,
    };
    eps::handover_request(connection.amf_id, request)
}

#[test]
fn handover_messages_equal_goldens() {
    let connection = connection();
    let none = UeInformation::default;
    assert_eq!(request(true, 0, None, none()), golden("HandoverRequest"));
    assert_eq!(request(false, 1, None, none()), golden("HandoverRequest-not-forwarded"));
    assert_eq!(request(true, 0, NR_ALGORITHMS, without_en_dc()), golden("HandoverRequest-en-dc"));
    assert_eq!(request(true, 0, None, restricted()), golden("HandoverRequest-restricted"));
    let (forwarded, lost) = (vec![(5, FORWARDING.to_vec())], vec![(6, Vec::new())]);
    assert_eq!(eps::handover_command(&connection, (&forwarded, &lost), &[0; 4], false), golden("HandoverCommand"));
    let cause = Cause::radioNetwork(Radio::no_radio_resources_available_in_target_cell);
    assert_eq!(eps::preparation_failure(&connection, &cause), golden("HandoverPreparationFailure"));
    assert_eq!(eps::cancel_acknowledge(&connection), golden("HandoverCancelAcknowledge"));
    let Ok((_, UeMessage::StatusTransfer(container))) = ue_message(&golden("ENBStatusTransfer")) else {
        panic!("a status transfer")
    };
    let transfer = eps::mme_status_transfer(connection.amf_id, connection.ran_id, &container);
    assert_eq!(transfer, golden("MMEStatusTransfer"));
    let prepared = eps::release_target(connection.amf_id, None, &Cause::nas(vireo_wire::ngap::CauseNas::deregister));
    assert_eq!(prepared, golden("UEContextReleaseCommand-mme-id"));
}

/// The confirmation of a gNB's indication equals pycrate's octets.
#[test]
fn modification_confirm_equals_golden() {
    let connection = Connection {
        ran_id: RanUeNgapId(0x00c0_ffee),
        amf_id: AmfUeNgapId::from_raw(0x0a_bc12_3007).expect("an ID"),
        ..connection()
    };
    let transfer = smf::modify_confirm_transfer(Tunnel { address: [127, 0, 0, 7].into(), teid: Teid(0x101) });
    let sent = nr::modification_confirm(&connection, vec![(5, transfer)], 1 << 6);
    assert_eq!(sent, crate::golden::nr("PDUSessionResourceModifyConfirm"));
}

#[test]
fn path_switch_messages_equal_goldens() {
    let connection = connection();
    let answer = |switched: &[u8], released: &[u8], capability| PathSwitchAnswer {
        capability,
        next_hop: NEXT_HOP,
        is_renewed: false,
        switched: vec![(5, switched.to_vec())],
        released: released.iter().map(|ebi| (*ebi, Vec::new())).collect(),
        ambr: AMBR,
        allowed: &[],
        nr_algorithms: None,
        information: UeInformation::default(),
    };
    let same = eps::path_switch_acknowledge(&connection, answer(&[], &[], None));
    assert_eq!(same, golden("PathSwitchRequestAcknowledge"));
    let corrected = answer(&[], &[], Some(capability()));
    let dual = PathSwitchAnswer { nr_algorithms: NR_ALGORITHMS, information: without_en_dc(), ..corrected };
    let dual = eps::path_switch_acknowledge(&connection, dual);
    assert_eq!(dual, golden("PathSwitchRequestAcknowledge-en-dc"));
    let moved = eps::path_switch_acknowledge(&connection, answer(&SGW, &[6], Some(capability())));
    assert_eq!(moved, golden("PathSwitchRequestAcknowledge-moved"));
    let cause = Cause::radioNetwork(Radio::unknown_local_UE_NGAP_ID);
    let failure = eps::path_switch_failure(connection.amf_id, connection.ran_id, &cause);
    assert_eq!(failure, golden("PathSwitchRequestFailure"));
    assert_eq!(eps::modification_confirm(&connection, 1 << 5, 1 << 6), golden("E-RABModificationConfirm"));
}
