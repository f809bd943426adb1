//! Load tests with bad input: memory stays bounded and is released.

use crate::assert_serves_another;
use crate::core::Core;
use crate::device::{Device, registration};
use crate::messages;
use crate::ngap::service_request;
use crate::ran::{ANSWER, Ran};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use vireo_wire::nas::{Nas5gsMessage, Nas5gsSecurityHeaderType};
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, UENGAPIDs, ie};

/// Registrations that stop after their first message.
const HALF_OPEN: u32 = 10_000;
/// Maximum number of registrations without an answer; with more the core may signal congestion.
const UNHEARD: u32 = 200;
/// Maximum core memory of one of them, in bytes.
const MEMORY_EACH: u64 = 8 * 1024;

#[test]
fn half_open_registrations_are_bounded_and_end() {
    // A short T3560, so that the test sees the last retransmission.
    let mut core = Core::start(HALF_OPEN + 2, "[core.timers]\nt3560 = \"1s\"\nretransmissions = 1\n");
    let mut keeper = Ran::set_up(&core, 1);
    let mut kept = Device::new(HALF_OPEN + 1);
    kept.register(&mut keeper);
    let mut ran = Ran::set_up(&core, 2);
    let before = core.resident();
    let (mut most, mut received) = (0, Received::default());
    for number in 1..=HALF_OPEN {
        ran.send(
            (1 + number % 8) as u16,
            &messages::initial_ue(number, &registration(number).encode().expect("octets"), None),
        );
        received.listen(&mut ran, number - UNHEARD.min(number));
        if number % 1000 == 0 {
            most = most.max(core.resident());
            kept.assert_served(&mut keeper, "a registered UE meanwhile");
        }
    }
    let each = most.saturating_sub(before) / u64::from(HALF_OPEN);
    assert!(each <= MEMORY_EACH, "{each} octets for each half-open registration");
    received.listen(&mut ran, HALF_OPEN);
    assert_serves_another(&mut core, HALF_OPEN + 2);
    // No UE answers: after the last retransmission the core drops each. Only the two registered UEs
    // remain.
    let deadline = Instant::now() + Duration::from_secs(60);
    while core.count("ues") > 2 {
        assert!(Instant::now() < deadline, "{} contexts are left", core.count("ues"));
        for octets in ran.receive_pending() {
            release(&mut ran, &octets);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    kept.assert_served(&mut keeper, "a registered UE afterwards");
    assert!(core.log().len() < 4 << 20, "{} octets of log", core.log().len());
}

/// Connections for which the core has sent a message.
#[derive(Default)]
struct Received(HashSet<u32>);

impl Received {
    /// Receives until the core has sent messages for this number of connections.
    fn listen(&mut self, ran: &mut Ran, connections: u32) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            for octets in ran.receive_pending() {
                let pdu = NGAP_PDU::decode(&octets).expect("a PDU");
                if let Some(Ok(id)) = pdu.ie::<ie::RAN_UE_NGAP_ID>() {
                    self.0.insert(id.0);
                }
            }
            if self.0.len() >= connections as usize {
                return;
            }
            assert!(Instant::now() < deadline, "the core has spoken of {} of {connections}", self.0.len());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Completes a release that the core requests.
fn release(ran: &mut Ran, octets: &[u8]) {
    let pdu = NGAP_PDU::decode(octets).expect("a PDU");
    if let Some(Ok(UENGAPIDs::uE_NGAP_ID_pair(pair))) = pdu.ie::<ie::UE_NGAP_IDs>() {
        ran.send(1, &messages::release_complete(pair.amf_ue_ngap_id.0, pair.ran_ue_ngap_id.0));
    }
}

/// A gNB repeats the start of one connection. The core drops each start that is not continued.
#[test]
fn repeating_gnb_leaves_no_state() {
    let mut core = Core::start(4, "[core.timers]\nt3560 = \"1s\"\nretransmissions = 0\nran-response = \"1s\"\n");
    let mut ran = Ran::set_up(&core, 1);
    let request = messages::initial_ue(7, &registration(1).encode().expect("octets"), None);
    for _ in 0..2_000 {
        ran.send(1, &request);
        ran.receive_pending();
    }
    ran.receive_until_silent();
    core.wait_for_count("ues", 0);
    assert_serves_another(&mut core, 2);
}

/// UEs of the gNB that resets connections, and connections that it names.
const OWN: u32 = 1_000;
const NAMED: u32 = 16_000;

/// TS 38.413 8.7.4.2.2: the core acknowledges NG RESET of connections that the gNB does not have.
#[test]
fn reset_of_unknown_connections_delays_none() {
    let mut core = Core::start(OWN + 1, "");
    let mut ran = Ran::set_up(&core, 1);
    let mut received = Received::default();
    for number in 1..=OWN {
        ran.send(1, &messages::initial_ue(number, &registration(number).encode().expect("octets"), None));
        received.listen(&mut ran, number - UNHEARD.min(number));
    }
    received.listen(&mut ran, OWN);
    let unknown = messages::reset_by_ran_ids(1_000_000..1_000_000 + NAMED);
    assert!((50 << 10..70 << 10).contains(&unknown.len()), "{} octets", unknown.len());
    ran.send(0, &unknown);
    assert_acknowledged(&mut ran, NAMED);
    assert_serves_another(&mut core, OWN + 1);
    assert_eq!(core.count("ues"), u64::from(OWN) + 1, "no connection of a UE is reset");
    // The gNB's own connections, some of them twice.
    ran.send(0, &messages::reset_by_ran_ids((1..=OWN).chain(1..=OWN / 2)));
    assert_acknowledged(&mut ran, OWN + OWN / 2);
    core.wait_for_count("ues", 1);
}

/// Messages about a gNB with the longest list of tracking areas.
const ABOUT_NODE: u32 = 20_000;

/// The list would cost the core more than the message.
#[test]
fn messages_about_node_with_long_list_delay_none() {
    let mut core = Core::start(1, "");
    let mut ran = Ran::connect(&core);
    ran.send(0, &messages::ng_setup_with_longest_list(1));
    ran.expect("NG Setup", |pdu| pdu.kind() == NgapPduKind::Successful_NGSetup);
    let update = messages::further_association(1);
    for _ in 0..ABOUT_NODE {
        ran.send(0, &update);
    }
    assert_serves_another(&mut core, 1);
    ran.receive_until_silent();
}

/// Waits for NG RESET ACKNOWLEDGE of this number of connections.
fn assert_acknowledged(ran: &mut Ran, connections: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let (_, octets) = ran.next(Duration::from_secs(10)).expect("NG RESET ACKNOWLEDGE");
        let pdu = NGAP_PDU::decode(&octets).expect("a PDU");
        if let Some(Ok(list)) = pdu.ie::<ie::UEAssociatedLogicalNGConnectionList>() {
            return assert_eq!(list.0.len(), connections as usize);
        }
        assert!(Instant::now() < deadline, "the reset is not acknowledged in time");
    }
}

/// Messages of a flood that a gNB sends about the UE of another one, and floods.
const FOREIGN: u32 = 2_000;
const FLOODS: u32 = 10;

/// A gNB names the UE of another one in more messages than wait of a UE.
#[test]
fn foreign_messages_displace_none_of_ue() {
    let mut core = Core::start(2, "");
    let (mut ran, mut other) = (Ran::set_up(&core, 1), Ran::set_up(&core, 2));
    let mut device = Device::new(1);
    device.register(&mut ran);
    let named = messages::uplink_nas(device.amf_id, device.ran_id, &[0x7e, 2, 0, 0, 0, 0, 9, 0x7e, 0, 0x55]);
    for flood in 0..FLOODS {
        for _ in 0..FOREIGN {
            other.send(1, &named);
        }
        device.assert_served(&mut ran, &format!("in flood {flood}"));
        other.receive_until_silent();
    }
    assert_serves_another(&mut core, 2);
}

/// A gNB names the S-TMSI of a UE in many first messages. The UE returns by another gNB.
#[test]
fn flood_of_s_tmsi_drops_no_first_message() {
    let mut core = Core::start(2, "");
    let mut ran = Ran::set_up(&core, 1);
    let [mut other, mut flooding] =
        [2, 3].map(|gnb: u8| Ran::set_up_from(&core, gnb.into(), Ipv4Addr::new(127, 0, 0, gnb)));
    let mut device = Device::new(1);
    device.register(&mut ran);
    let guti = device.guti.expect("a 5G-GUTI");
    let tmsi = Some(guti.tmsi().to_be_bytes());
    let plain = service_request(&guti);
    let forged = [&[0x7e, 1, 0xde, 0xad, 0xbe, 0xef, 0x09][..], &plain].concat();
    for flood in 0..FLOODS {
        for number in 0..FOREIGN {
            flooding.send(1, &messages::initial_ue(number, &forged, tmsi));
        }
        let Ok(request) = Nas5gsMessage::decode(&plain) else { panic!("a service request") };
        let nas = device.protect(&request, Nas5gsSecurityHeaderType::IntegrityProtected);
        other.send(1, &messages::initial_ue(100 + flood, &nas, tmsi));
        // The core releases the connection of the request before.
        let is_own = |octets: &[u8]| {
            let pdu = NGAP_PDU::decode(octets).expect("a PDU");
            pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).is_some_and(|id| id.0 == 100 + flood)
        };
        let mut answers = std::iter::from_fn(|| other.next(ANSWER));
        assert!(answers.any(|(_, octets)| is_own(&octets)), "the UE's own request is answered");
        flooding.receive_until_silent();
    }
    assert_serves_another(&mut core, 2);
}

/// The largest accepted messages, and those that are just too large, do not block other messages.
#[test]
fn largest_messages_do_not_delay_others() {
    let mut core = Core::start(2, "");
    let mut ran = Ran::set_up(&core, 1);
    let mut device = Device::new(1);
    device.register(&mut ran);
    for octets in [63 * 1024, 63 * 1024 + 1, 64 * 1024 - 6, 64 * 1024] {
        // The message names the UE and its NAS is not the UE's, so that it changes nothing.
        let message = messages::uplink_nas(device.amf_id, device.ran_id, &[0x7e, 2, 0, 0, 0, 0, 9, 0x7e, 0, 0x55]);
        ran.send(1, &messages::padded_to(&message, octets));
        device.assert_served(&mut ran, &format!("after {octets} octets"));
        assert_serves_another(&mut core, 2);
    }
}
