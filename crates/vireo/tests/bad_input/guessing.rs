//! RAN nodes that guess AMF-UE-NGAP-IDs and short MACs of other RAN nodes' UEs.

use crate::assert_serves_another;
use crate::core::Core;
use crate::device::Device;
use crate::messages;
use crate::ports::free_port;
use crate::ran::Ran;
use std::net::Ipv4Addr;
use vireo_wire::ngap::{NGAPPDU, NgapPduKind};

/// Guesses until the address is refused.
const GUESSES: u64 = 32;

/// Returns true for the answer about an identifier of a UE, or of none: the sender releases what it
/// may have under it (TS 38.413 10.6).
fn is_error_or_release(pdu: &NGAPPDU<'_>) -> bool {
    [NgapPduKind::Initiating_ErrorIndication, NgapPduKind::Initiating_UEContextRelease].contains(&pdu.kind())
}

fn is_failure(pdu: &NGAPPDU<'_>) -> bool {
    pdu.kind() == NgapPduKind::Unsuccessful_PathSwitchRequest
}

/// TS 38.413 8.4.4: any RAN node that names the connection of a UE may move the UE to itself.
#[test]
fn guessed_path_switches_are_refused() {
    let mut core = Core::start(2, "");
    let mut ran = Ran::set_up(&core, 1);
    let [mut guessing, mut honest] =
        [2, 3].map(|gnb: u8| Ran::set_up_from(&core, gnb.into(), Ipv4Addr::new(127, 0, 0, gnb)));
    let mut device = Device::new(1);
    device.register(&mut ran);
    device.assert_served(&mut ran, "a registered UE");
    let refused = |core: &Core| core.metric("vireo_n2_refused_total{reason=\"guessing\"}");
    // The UE has no session that could move. A request that names its connection is no guess.
    for _ in 0..2 * GUESSES {
        honest.send(1, &messages::path_switch(device.amf_id, 9));
        honest.expect("a path switch without a session", is_failure);
    }
    // Other generations of the UE's number, and a number of no UE.
    for guess in 1..=GUESSES {
        let amf_id = if guess % 2 == 0 { device.amf_id ^ guess } else { device.amf_id ^ guess << 20 };
        guessing.send(1, &messages::path_switch(amf_id, 9));
        guessing.expect("a guess", is_error_or_release);
    }
    assert_eq!(refused(&core), 0.0);
    // Also a right one.
    for amf_id in [device.amf_id ^ 77, device.amf_id] {
        guessing.send(1, &messages::path_switch(amf_id, 9));
        guessing.expect("a request after many guesses", is_failure);
    }
    assert_eq!(refused(&core), 2.0);
    honest.send(1, &messages::path_switch(device.amf_id, 9));
    honest.expect("a path switch at another address", is_failure);
    assert_eq!(refused(&core), 2.0);
    device.assert_served(&mut ran, "after the guesses");
    assert_serves_another(&mut core, 2);
}

/// Returns an INITIAL UE MESSAGE of an eNB with SERVICE REQUEST (TS 24.301 8.2.25).
fn service_request(enb_id: u32, tmsi: u32, short_mac: u16) -> Vec<u8> {
    use vireo_wire::s1ap::*;
    let [a, b] = short_mac.to_be_bytes();
    let plmn = PLMNidentity(TBCDSTRING([0x99, 0xf9, 0x07]));
    let pdu = build_s1ap!(
        InitiatingMessage,
        initialUEMessage,
        InitialUEMessage,
        eNB_UE_S1AP_ID(enb_id),
        NAS_PDU(vec![0xc7, 0, a, b]),
        TAI(helpers::tai(plmn, [0, 1])),
        EUTRAN_CGI(EUTRANCGI::new(plmn, CellIdentity(Bits::low(1, 28)), None)),
        RRC_Establishment_Cause(RRCEstablishmentCause::mo_Data),
        S_TMSI(STMSI::new(MMECode([0x40]), MTMSI(tmsi.to_be_bytes()), None)),
    );
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

/// A short MAC has 16 bits. An eNB that found it would get the UE's context (TS 24.301 5.6.1).
#[test]
fn guessed_short_macs_are_refused() {
    let udp_port = free_port();
    let mut core = Core::start(2, &format!("[s1]\naddresses = [\"127.0.0.1\"]\nudp-port = {udp_port}\n"));
    let mut ran = Ran::set_up(&core, 1);
    let mut enb = Ran::set_up_s1(&core, udp_port, Ipv4Addr::new(127, 0, 0, 2));
    let mut device = Device::new(1);
    device.register(&mut ran);
    let tmsi = device.guti.expect("a 5G-GUTI").tmsi();
    let refused = |core: &Core| core.metric("vireo_n2_refused_total{reason=\"guessing\"}");
    let mut number = 0;
    let mut request = |tmsi: u32| {
        number += 1;
        enb.send(1, &service_request(number, tmsi, number as u16));
        // SERVICE REJECT, and UE CONTEXT RELEASE COMMAND.
        enb.expect_s1(&format!("service request {number}"), [0x00, 11]);
        enb.expect_s1(&format!("rejected UE {number}"), [0x00, 23]);
    };
    // An S-TMSI of no UE is no guess.
    for _ in 0..2 * GUESSES {
        request(!tmsi);
    }
    for _ in 0..GUESSES {
        request(tmsi);
    }
    assert_eq!(refused(&core), 0.0);
    (0..2).for_each(|_| request(tmsi));
    assert_eq!(refused(&core), 2.0);
    device.assert_served(&mut ran, "after the guesses");
    assert_serves_another(&mut core, 2);
}
