//! Static addresses, framed routes and UP security of subscribers.

use super::*;
use crate::config::StaticPools;
use crate::subscription::{UpProtection, UpSecurity};
use UpProtection::{NotNeeded, Preferred, Required};

/// PDU Session Establishment Request as [`REQUEST`], with 64 kbit/s of integrity protected uplink
/// data.
const SLOW: &str = "2e0501c100ff91";

fn policy(integrity: UpProtection, confidentiality: UpProtection) -> Option<UpSecurity> {
    Some(UpSecurity { integrity, confidentiality })
}

fn establishment(out: &[Output]) -> pfcp::SessionEstablishmentRequest {
    let [Output::Pfcp { message, .. }] = out else { panic!("{out:?}") };
    let message = pfcp::Message::new(message).expect("a sound message");
    pfcp::SessionEstablishmentRequest::parse(&message).expect("a sound request")
}

/// Returns the bench whose data network has static addresses 10.45.128.0/17 and
/// 2001:db8:45:8000::/49.
fn bench() -> Bench {
    let mut bench = Bench::new();
    let dnn = &mut bench.config.dnns[0];
    dnn.ipv4_pool = Some(([10, 45, 0, 0].into(), 16));
    dnn.ipv6_pool = Some(("2001:db8:45::".parse().expect("a prefix"), 48));
    dnn.static_pools = StaticPools {
        ipv4: Some(([10, 45, 128, 0].into(), 17)),
        ipv6: Some(("2001:db8:45:8000::".parse().expect("a prefix"), 49)),
    };
    bench
}

#[test]
fn static_addresses_replace_allocated_ones() {
    let prefix = "2001:db8:45:8001::".parse().expect("a prefix");
    for (request, ipv4, ipv6) in [
        (REQUEST, Some([10, 45, 200, 1].into()), None),
        ("2e0501c1ffff92", None, Some(prefix)),
        ("2e0501c1ffff93", Some([10, 45, 200, 1].into()), Some(prefix)),
    ] {
        let mut bench = bench();
        bench.ids.used_up = true;
        bench.subscription.static_ipv4 = Some([10, 45, 200, 1].into());
        bench.subscription.static_ipv6_prefix = Some(prefix);
        let request = establishment(&bench.create(request));
        assert_eq!(bench.sm().address, SessionAddress { ipv4, ipv6_prefix: ipv6 });
        let ue = request.create_pdrs[1].pdi.ue_ip_addresses.first().expect("an address");
        assert_eq!(ue.ipv4, ipv4);
    }
}

#[test]
fn missing_kind_of_address_is_allocated() {
    let mut bench = bench();
    bench.subscription.static_ipv4 = Some([10, 45, 200, 1].into());
    bench.create("2e0501c1ffff93");
    let allocated = "2001:db8:45:2::".parse().ok();
    assert_eq!(bench.sm().address, SessionAddress { ipv4: Some([10, 45, 200, 1].into()), ipv6_prefix: allocated });
}

#[test]
fn address_outside_static_pool_is_refused() {
    for (address, expected) in [
        ([10, 45, 127, 255], "reject/1#38"),
        ([10, 45, 128, 0], "establishment-request"),
        ([10, 45, 255, 254], "establishment-request"),
        ([10, 45, 255, 255], "reject/1#38"),
        ([192, 0, 2, 1], "reject/1#38"),
    ] {
        let mut bench = bench();
        bench.subscription.static_ipv4 = Some(address.into());
        assert_eq!(brief(&bench.create(REQUEST)), expected, "{address:?}");
    }
    let mut bench = Bench::new();
    bench.subscription.static_ipv4 = Some([10, 45, 0, 9].into());
    assert_eq!(brief(&bench.create(REQUEST)), "reject/1#38", "a data network without static addresses");
    assert_eq!(brief(&bench.create("2e0501c1ffff92")), "establishment-request", "another session type");
}

#[test]
fn framed_routes_are_rules_of_every_upf() {
    let mut bench = bench();
    let routes = ["192.168.7.0/24", "192.168.8.1/32", "2001:db8:7::/48"].map(|text| text.parse().expect("a network"));
    bench.subscription.framed_routes = routes.to_vec();
    let check = |out: &[Output]| {
        let request = establishment(out);
        let pdi = &request.create_pdrs[1].pdi;
        let ipv4 = ["192.168.7.0/24 0.0.0.0 1", "192.168.8.1/32 0.0.0.0 1"].map(pfcp::FramedRoute::from);
        assert_eq!(pdi.framed_routes, ipv4);
        assert_eq!(pdi.framed_ipv6_routes, [pfcp::FramedIpv6Route::from("2001:db8:7::/48 :: 1")]);
        assert!(request.create_pdrs[0].pdi.framed_routes.is_empty());
    };
    check(&bench.create(REQUEST));
    bench.established();
    bench.ran_up(0x201);
    bench.modified();
    bench.step(Input::Deactivate);
    bench.modified();
    check(&bench.step(Input::UpfLost));
}

#[test]
fn tunnels_of_ipv6_n3_have_ipv6_addresses() {
    let mut bench = Bench::new();
    bench.config.upfs[0].n3_ipv6 = true;
    let request = establishment(&bench.create(REQUEST));
    let tunnel = request.create_pdrs[0].pdi.f_teid;
    assert_eq!(tunnel, Some(pfcp::FTeid::Choose { ipv4: false, ipv6: true, id: None }));
    let upf: Ipv6Addr = "2001:db8:3::1".parse().expect("an address");
    let ran: Ipv6Addr = "2001:db8:3::2".parse().expect("an address");
    bench.sm.as_mut().expect("a session").uplink = None;
    let octets = {
        use pfcp::Element;
        let mut octets = Vec::new();
        let kind = pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE;
        let mut message = pfcp::Builder::new(&mut octets, kind, Some(bench.sm().pfcp.cp_seid.0), 77);
        message.put(&pfcp::Cause::REQUEST_ACCEPTED).put(&pfcp::FSeid::new(UP_SEID, Ipv4Addr::LOCALHOST.into()));
        message.group(pfcp::CreatedPdr::ID, |pdr| {
            pdr.put(&pfcp::PdrId(1)).put(&pfcp::FTeid::new(Teid(0x101), upf.into()));
        });
        message.finish().expect("a short message");
        octets
    };
    assert_eq!(brief(&bench.step(Input::Pfcp(&octets))), "accept/1 SetupRequest");
    // A gNB with both families names both (TS 38.414 5.3).
    let both = [&[10, 3, 0, 2][..], &ran.octets()].concat();
    let tunnel = GTPTunnel::new(TransportLayerAddress(both.as_slice().into()), GTPTEID([0, 0, 2, 1]), None);
    let flows = AssociatedQosFlowList(vec![AssociatedQosFlowItem::new(QosFlowIdentifier(1), None, None)]);
    let flows = QosFlowPerTNLInformation::new(UPTransportLayerInformation::gTPTunnel(tunnel), flows, None);
    let transfer = PDUSessionResourceSetupResponseTransfer::new(flows, None, None, None, None);
    let octets = encode_open_type(&transfer).expect("a transfer encodes").to_vec();
    assert_eq!(brief(&bench.step(Input::N2(N2Sm::SetupResponse, &octets))), "modification-request");
    assert_eq!(bench.sm().downlink, Some(Tunnel { address: ran.into(), teid: Teid(0x201) }));
}

/// Returns the Security Indication of the transfer to the RAN.
fn indicated(out: &[Output]) -> Option<SecurityIndication> {
    let octets = out.iter().find_map(|o| match o {
        Output::N2(N2Sm::SetupRequest, octets) => Some(octets),
        _ => None,
    });
    let transfer = decode_open_type::<PDUSessionResourceSetupRequestTransfer<'_>>(octets.expect("a transfer"));
    let ies = transfer.expect("a sound transfer").protocol_ies.0;
    let ie = ies.into_iter().find(|ie| ie.id.0 == 138)?;
    Some(decode_open_type(&ie.value).expect("a Security Indication"))
}

#[test]
fn policy_is_indicated_with_rates_of_ue() {
    let full = MaximumIntegrityProtectedDataRate::maximum_UE_rate;
    let slow = MaximumIntegrityProtectedDataRate::bitrate64kbs;
    for (request, subscribed, configured, expected) in [
        (REQUEST, None, None, None),
        (REQUEST, policy(Required, Preferred), None, Some((0, 1, Some(full), false))),
        (REQUEST, None, policy(NotNeeded, Required), Some((2, 0, None, false))),
        (REQUEST, policy(Preferred, NotNeeded), policy(NotNeeded, Required), Some((1, 2, Some(full), false))),
        (SLOW, policy(Required, Required), None, Some((0, 0, Some(slow), true))),
    ] {
        let mut bench = Bench::new();
        bench.subscription.up_security = subscribed;
        bench.config.dnns[0].up_security = configured;
        bench.create(request);
        let found = indicated(&bench.established()).map(|one| {
            let rate = one.maximum_integrity_protected_data_rate_ul;
            let (integrity, confidentiality) =
                (one.integrity_protection_indication, one.confidentiality_protection_indication);
            (integrity as u8, confidentiality as u8, rate, one.ie_extensions.is_some())
        });
        assert_eq!(found, expected, "{subscribed:?} {configured:?}");
        // The policy stays that of the establishment.
        bench.config.dnns[0].up_security = None;
        bench.ran_up(0x201);
        bench.modified();
        let again = bench.step(Input::N2(N2Sm::HandoverRequired, &[]));
        assert_eq!(indicated(&again).is_some(), expected.is_some());
    }
}

#[test]
fn impossible_protection_ends_session_by_cause() {
    let cause = CauseRadioNetwork::up_integrity_protection_not_possible;
    let transfer = PDUSessionResourceSetupUnsuccessfulTransfer::new(Cause::radioNetwork(cause), None, None);
    let impossible = encode_open_type(&transfer).expect("a transfer encodes").to_vec();
    let mut bench = Bench::new();
    bench.subscription.up_security = policy(Required, Preferred);
    bench.create(REQUEST);
    bench.established();
    let out = bench.step(Input::N2(N2Sm::SetupUnsuccessful, &impossible));
    assert_eq!(brief(&out), "reject/1#31 deletion-request");
    let mut bench = Bench::inactive();
    bench.step(Input::Activate);
    let out = bench.step(Input::N2(N2Sm::SetupUnsuccessful, &impossible));
    assert_eq!(brief(&out), "release/0#31 deletion-request");
}

fn response(integrity: IntegrityProtectionResult) -> Vec<u8> {
    let result = SecurityResult::new(integrity, ConfidentialityProtectionResult::not_performed, None);
    let octets = setup_response(0x201);
    let mut transfer = decode_open_type::<PDUSessionResourceSetupResponseTransfer<'_>>(&octets).expect("a transfer");
    transfer.security_result = Some(result);
    encode_open_type(&transfer).expect("a transfer encodes").to_vec()
}

#[test]
fn required_protection_must_be_performed() {
    for (integrity, subscribed, expected) in [
        (IntegrityProtectionResult::performed, policy(Required, Preferred), "modification-request"),
        (IntegrityProtectionResult::not_performed, policy(Preferred, Preferred), "modification-request"),
        (
            IntegrityProtectionResult::not_performed,
            policy(Required, Preferred),
            "release/0#38 ReleaseCommand deletion-request",
        ),
        (
            IntegrityProtectionResult::performed,
            policy(Required, Required),
            "release/0#38 ReleaseCommand deletion-request",
        ),
    ] {
        let mut bench = Bench::new();
        bench.subscription.up_security = subscribed;
        bench.create(REQUEST);
        bench.established();
        let out = bench.step(Input::N2(N2Sm::SetupResponse, &response(integrity)));
        assert_eq!(brief(&out), expected, "{integrity:?} {subscribed:?}");
    }
}

#[test]
fn path_switch_returns_policy_of_session() {
    let switch = |subscribed, integrity| {
        let mut bench = Bench::new();
        bench.subscription.up_security = subscribed;
        bench.create(REQUEST);
        bench.established();
        bench.ran_up(0x201);
        bench.modified();
        let tunnel = GTPTunnel::new(TransportLayerAddress([10, 3, 0, 3].into()), GTPTEID([0, 0, 3, 1]), None);
        let flows = QosFlowAcceptedList(vec![QosFlowAcceptedItem::new(QosFlowIdentifier(1), None)]);
        let result = SecurityResult::new(integrity, ConfidentialityProtectionResult::performed, None);
        let source = SecurityIndication::new(
            IntegrityProtectionIndication::not_needed,
            ConfidentialityProtectionIndication::not_needed,
            None,
            None,
        );
        let information = UserPlaneSecurityInformation::new(result, source, None);
        let tunnel = UPTransportLayerInformation::gTPTunnel(tunnel);
        let transfer = PathSwitchRequestTransfer::new(tunnel, None, Some(information), flows, None);
        let octets = encode_open_type(&transfer).expect("a transfer encodes").to_vec();
        let out = brief(&bench.step(Input::N2(N2Sm::PathSwitchRequest, &octets)));
        let now = bench.now;
        let (kind, answer) = path_switch_answer(bench.sm.as_mut().expect("a session"), now);
        let answered = match kind {
            N2Sm::PathSwitchAcknowledge => {
                decode_open_type::<PathSwitchRequestAcknowledgeTransfer<'_>>(&answer).expect("a transfer")
            }
            _ => return (out, None),
        };
        (out, answered.security_indication.map(|one| one.integrity_protection_indication as u8))
    };
    let (done, not) = (IntegrityProtectionResult::performed, IntegrityProtectionResult::not_performed);
    assert_eq!(switch(None, not), ("modification-request".into(), None));
    assert_eq!(switch(policy(Required, Preferred), done), ("modification-request".into(), Some(0)));
    assert_eq!(switch(policy(Required, Preferred), not), ("release/0#26 deletion-request".into(), None));
}

/// The octets are those of pycrate for the same values.
#[test]
fn security_indication_equals_pycrate() {
    for (request, subscribed, octets) in [
        (REQUEST, policy(Required, Preferred), "40a0"),
        (REQUEST, policy(NotNeeded, Required), "0800"),
        (SLOW, policy(Required, Required), "600000000097400140"),
    ] {
        let mut bench = Bench::new();
        bench.subscription.up_security = subscribed;
        bench.create(request);
        let indication = indicated(&bench.established()).expect("a Security Indication");
        assert_eq!(hex::encode(encode_open_type(&indication).expect("it encodes")), octets, "{subscribed:?}");
    }
    // UP integrity protection not possible.
    let mut bench = Bench::new();
    bench.create(REQUEST);
    bench.established();
    let out = bench.step(Input::N2(N2Sm::SetupUnsuccessful, &[0x01, 0x28]));
    assert_eq!(brief(&out), "reject/1#31 deletion-request");
}
