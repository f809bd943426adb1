//! RAN nodes that guess the AMF-UE-NGAP-IDs of other RAN nodes' UEs.

use crate::assert_serves_another;
use crate::core::Core;
use crate::device::Device;
use crate::messages;
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
