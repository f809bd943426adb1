//! Messages of handovers between 5GS and EPS, compared with those that pycrate encodes
//! (tests/reference).

use super::messages::{self, MappedCommand, MappedRequest, Request, RequestedSession};
use crate::amf::access;
use crate::amf::context::{Connection, NextHop, RanContext, UeSecurityCapability};
use crate::amf::n2::{Cause, UeInformation, UeMessage};
use crate::subscription::Ambr;
use crate::{golden, smf};
use vireo_types::{
    AmfUeNgapId, AssocId, Dialect, EnbId, EnbKind, GnbId, Guami, NrCgi, Plmn, RanNodeId, RanUeNgapId, Snssai, Tac, Tai,
    Teid,
};
use vireo_wire::ngap::{CauseRadioNetwork as Radio, NGAP_PDU, ie};

const ALLOWED: [Snssai; 2] = [Snssai { sst: 1, sd: None }, Snssai { sst: 3, sd: Some(0xab) }];
/// Containers of gNBs and eNBs, with the smallest RRC containers.
const FROM_GNB: &str = "000200000099f9070001020030000099f9070001020030800005";
const FROM_ENB: [u8; 3] = [0, 1, 0x80];

fn plmn() -> Plmn {
    "99970".parse().expect("a PLMN")
}

fn desirable() -> Cause {
    Cause::radioNetwork(Radio::handover_desirable_for_radio_reason)
}

fn key(digits: &str) -> [u8; 32] {
    hex::decode(digits).expect("digits").try_into().expect("32 octets")
}

/// Returns the connection of a message's UE.
fn connection(dialect: Dialect) -> Connection {
    let (amf_id, ran_id) = match dialect {
        Dialect::Nr => (AmfUeNgapId::from_raw(0x0a_bc12_3007).expect("40 bits"), RanUeNgapId(0x00c0_ffee)),
        Dialect::Eps => (AmfUeNgapId::from_mme(0xa0b0_c0d0), RanUeNgapId(0)),
    };
    let assoc = AssocId(1).with_dialect(dialect);
    let tai = Tai { plmn: plmn(), tac: Tac(1) };
    Connection { assoc, ran_id, amf_id, tai, cell: NrCgi { plmn: plmn(), cell: 1 }, ran: RanContext::SetUp }
}

/// Encodes HANDOVER REQUEST to a target of this dialect.
fn request(
    to: Dialect,
    capability: &[u8],
    next_hop: NextHop,
    session: RequestedSession,
    nas: Option<[u8; 8]>,
) -> Vec<u8> {
    let connection = connection(to);
    let container = match to {
        Dialect::Nr => hex::decode(FROM_GNB).expect("digits"),
        Dialect::Eps => vec![0, 0, 0, 7, 0, 0, 0, 0, 0],
    };
    let request = Request {
        guami: Guami { plmn: plmn(), region: 2, set: 1, pointer: 3 },
        cause: desirable(),
        ambr: Ambr { uplink_bps: 1_000_000_000, downlink_bps: 2_000_000_000 },
        capability: UeSecurityCapability::new(capability),
        next_hop,
        sessions: vec![session],
        allowed: &ALLOWED,
        container: &container,
        nr_algorithms: None,
        information: UeInformation::default(),
        mapped: Some(MappedRequest { container: nas }),
    };
    messages::handover_request(connection.assoc, connection.amf_id, request)
}

#[test]
fn handover_request_equals_pycrate() {
    let nr = golden::nr("HandoverRequest-from-eps");
    let pdu = NGAP_PDU::decode(&nr).expect("a PDU");
    let list = pdu.ie::<ie::PDUSessionResourceSetupListHOReq>().expect("an IE").expect("a list");
    let transfer = list.0[0].handover_request_transfer.to_vec();
    let nh = key("383c6b76bf2a99aa2ca4c5136d4122a2b942301f0b9e07439786939cd30c4a4b");
    let session = RequestedSession { psi: 5, snssai: ALLOWED[1], transfer, forwards: true };
    let nas = [0x32, 0x56, 0x0a, 0xc7, 0x22, 0x2a, 0, 0];
    let sent = request(Dialect::Nr, &[0x70, 0x30, 0x70, 0x30], NextHop { nh, ncc: 0 }, session, Some(nas));
    assert_eq!(hex::encode(sent), hex::encode(nr));

    let nh = key("c18166e13cfde1dea842c708f6e0b3372b6896664df4e865c0c78bd270852005");
    // QCI, priority level, TEID and address.
    let transfer = vec![9, 9, 0, 0, 1, 1, 127, 0, 0, 7];
    let session = RequestedSession { psi: 5, snssai: ALLOWED[0], transfer, forwards: true };
    let sent = request(Dialect::Eps, &[0, 0, 0x70, 0x70], NextHop { nh, ncc: 2 }, session, None);
    assert_eq!(hex::encode(sent), hex::encode(golden::eps("HandoverRequest-from-5gs")));
}

#[test]
fn handover_command_equals_pycrate() {
    let command = |dialect, transfer, container: &[u8]| {
        let mapped = Some(MappedCommand { container: 0x2c });
        messages::handover_command(&connection(dialect), (vec![(5, transfer)], Vec::new()), container, mapped)
    };
    let upf = smf::Tunnel { address: [127, 0, 0, 7].into(), teid: Teid(0x102) };
    let ends = smf::ForwardingEnds { downlink: Some(upf), uplink: None };
    let transfer = |source| smf::command_with_forwarding(source, ends);
    let sent = command(Dialect::Nr, transfer(Dialect::Nr), &FROM_ENB);
    assert_eq!(hex::encode(sent), hex::encode(golden::nr("HandoverCommand-to-eps")));
    let container = [0, 0, 0, 0, 0x32, 0x56, 0x0a, 0xc7, 0x22, 0x2a, 0, 0];
    let sent = command(Dialect::Eps, transfer(Dialect::Eps), &container);
    assert_eq!(hex::encode(sent), hex::encode(golden::eps("HandoverCommand-to-5gs")));
}

#[test]
fn handover_required_is_read() {
    let enb = EnbId { plmn: plmn(), kind: EnbKind::Macro, id: 0xabc };
    let gnb = GnbId { plmn: plmn(), id: 0x102, bits: 24 };
    for (dialect, octets, target) in [
        (Dialect::Nr, golden::nr("HandoverRequired-to-eps"), RanNodeId::Enb(enb)),
        (Dialect::Eps, golden::eps("HandoverRequired-to-5gs"), RanNodeId::Gnb(gnb)),
    ] {
        let (ran_id, message) = access::ue_message(dialect, &octets).expect("a message");
        let UeMessage::HandoverRequired(required) = message else { panic!("{message:?}") };
        assert_eq!(ran_id, Some(connection(dialect).ran_id));
        assert_eq!(required.target, Some((target, Tai { plmn: plmn(), tac: Tac(7) })));
        assert_eq!(required.cause, desirable());
    }
}
