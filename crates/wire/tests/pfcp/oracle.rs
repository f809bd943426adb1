//! Cross-check with the `rs-pfcp` crate in both directions.
//!
//! The crate shares no code with Vireo.

use crate::samples;
use rs_pfcp::ie::{self as theirs, Ie, IeType};
use rs_pfcp::message::Message as _;
use std::net::Ipv4Addr;
use vireo_types::Teid;
use vireo_wire::pfcp::*;

/// Returns Vireo's value of a message as text, to compare messages of all types.
fn value(octets: &[u8]) -> String {
    let message = Message::new(octets).expect("sound header");
    fn text<T: Body + std::fmt::Debug>(message: &Message<'_>) -> String {
        format!("{:?}", T::parse(message).expect("sound message"))
    }
    match message.message_type().0 {
        1 => text::<HeartbeatRequest>(&message),
        2 => text::<HeartbeatResponse>(&message),
        5 => text::<AssociationSetupRequest>(&message),
        6 => text::<AssociationSetupResponse>(&message),
        7 => text::<AssociationUpdateRequest>(&message),
        8 => text::<AssociationUpdateResponse>(&message),
        9 => text::<AssociationReleaseRequest>(&message),
        10 => text::<AssociationReleaseResponse>(&message),
        11 => text::<VersionNotSupportedResponse>(&message),
        12 => text::<NodeReportRequest>(&message),
        13 => text::<NodeReportResponse>(&message),
        14 => text::<SessionSetDeletionRequest>(&message),
        15 => text::<SessionSetDeletionResponse>(&message),
        50 => text::<SessionEstablishmentRequest>(&message),
        51 => text::<SessionEstablishmentResponse>(&message),
        52 => text::<SessionModificationRequest>(&message),
        53 => text::<SessionModificationResponse>(&message),
        54 => text::<SessionDeletionRequest>(&message),
        55 => text::<SessionDeletionResponse>(&message),
        56 => text::<SessionReportRequest>(&message),
        57 => text::<SessionReportResponse>(&message),
        other => panic!("no sample of {other}"),
    }
}

#[test]
fn oracle_reads_and_rewrites_messages() {
    for (kind, octets) in samples::all() {
        // `rs-pfcp` requires a UP F-SEID also in a rejection (TS 29.244 table 7.5.3.1-1: only if
        // the session exists)
        let refused = Message::new(&octets).is_ok_and(|m| m.get() == Ok(Some(Cause::MANDATORY_IE_INCORRECT)));
        if refused && kind.is_session() {
            continue;
        }
        let read = rs_pfcp::message::parse(&octets).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        let ours = Message::new(&octets).expect("sound");
        assert_eq!(read.msg_type() as u8, kind.0);
        assert_eq!(u32::from(read.sequence()), ours.sequence(), "{kind:?}");
        assert_eq!(read.seid().map(u64::from), ours.header().seid, "{kind:?}");
        assert_eq!(value(&read.marshal()), value(&octets), "{kind:?}");
    }
}

/// Decodes Vireo's element with `rs-pfcp`, encodes the result with it, and decodes that with Vireo.
macro_rules! crossed {
    ($ours:expr, $theirs:ty) => {{
        let ours = $ours;
        let mut octets = Vec::new();
        ours.encode(&mut octets);
        let read = <$theirs>::unmarshal(&octets).unwrap_or_else(|e| panic!("{ours:?}: {e}"));
        let written = read.marshal();
        assert_eq!(Element::decode(written.as_ref()), Ok(ours));
        read
    }};
}

#[test]
fn grouped_elements_cross_over() {
    let read = crossed!(samples::uplink_pdr(), theirs::create_pdr::CreatePdr);
    assert_eq!((read.pdr_id.value, read.precedence.value, read.qer_ids.len()), (1, 255, 2));
    let mut downlink = samples::downlink_pdr();
    downlink.pdi.sdf_filters = vec![SdfFilter::new("permit out ip from any to assigned")];
    let read = crossed!(downlink, theirs::create_pdr::CreatePdr);
    assert_eq!(read.pdi.sdf_filters[0].flow_description, "permit out ip from any to assigned");
    let mut urr = samples::urr();
    urr.quota_validity_time = Some(QuotaValidityTime(60));
    let read = crossed!(urr, theirs::create_urr::CreateUrr);
    assert_eq!(read.volume_quota.and_then(|quota| quota.total_volume), Some(2_000_000));
    let request = samples::establishment();
    for far in request.create_fars {
        crossed!(far, theirs::create_far::CreateFar);
    }
    crossed!(request.create_qers[0].clone(), theirs::create_qer::CreateQer);
    let parameters = ForwardingParameters {
        destination_interface: DestinationInterface::ACCESS,
        outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(0x0a0b_0c0d), samples::GNB.into())),
        ..ForwardingParameters::default()
    };
    let read = crossed!(parameters, theirs::forwarding_parameters::ForwardingParameters);
    assert_eq!(read.outer_header_creation.and_then(|o| o.teid).map(u32::from), Some(0x0a0b_0c0d));
}

#[test]
fn single_elements_cross_over() {
    let dual = FSeid { seid: 5, ipv4: Some(samples::SMF), ipv6: Some(samples::UE6) };
    let read = crossed!(dual, theirs::fseid::Fseid);
    assert_eq!((u64::from(read.seid), read.ipv6_address), (5, Some(samples::UE6)));
    crossed!(
        FTeid::Allocated { teid: Teid(7), ipv4: Some(samples::UPF), ipv6: Some(samples::UE6) },
        theirs::f_teid::Fteid
    );
    crossed!(FTeid::Choose { ipv4: true, ipv6: true, id: Some(3) }, theirs::f_teid::Fteid);
    let prefix = UeIpAddress { prefix_length: Some(56), ..UeIpAddress::destination(None, Some(samples::UE6)) };
    let read = crossed!(prefix, theirs::ue_ip_address::UeIpAddress);
    assert_eq!(read.ipv6_prefix_length, Some(56));
    let mbr = crossed!(Mbr { uplink_kbps: 1 << 39, downlink_kbps: 3 }, theirs::mbr::Mbr);
    assert_eq!((mbr.uplink, mbr.downlink), (1 << 39, 3));
    let udp = OuterHeaderCreation { ipv4: Some(samples::GNB), port: Some(99), ..OuterHeaderCreation::default() };
    let read = crossed!(udp, theirs::outer_header_creation::OuterHeaderCreation);
    assert!(read.description.udp_ipv4 && read.port_number == Some(99));
    crossed!(NodeId::fqdn("upf1.example.org").expect("good labels"), theirs::node_id::NodeId);
    crossed!(ReportType::DLDR | ReportType::UPIR, theirs::report_type::ReportType);
    crossed!(PdnType::IPV4V6, theirs::pdn_type::PdnType);
    crossed!(ReportingTriggers::VOLTH | ReportingTriggers::QUVTI, theirs::reporting_triggers::ReportingTriggers);
    crossed!(UsageReportTrigger::TERMR | UsageReportTrigger::TEBUR, theirs::usage_report_trigger::UsageReportTrigger);
    crossed!(MeasurementMethod::VOLUM | MeasurementMethod::EVENT, theirs::measurement_method::MeasurementMethod);
}

#[test]
fn oracle_built_messages_are_read() {
    use theirs::create_far::{CreateFar as Far, FarAction};
    let ue = theirs::ue_ip_address::UeIpAddress::new(Some(samples::UE), None);
    let pdi = theirs::pdi::PdiBuilder::uplink_access()
        .f_teid(theirs::f_teid::Fteid::ipv4(0x0102_0304_u32, samples::UPF))
        .ue_ip_address(ue)
        .build()
        .expect("complete");
    let pdr = theirs::create_pdr::CreatePdrBuilder::new(theirs::pdr_id::PdrId::new(7))
        .precedence(theirs::precedence::Precedence::new(9))
        .pdi(pdi)
        .far_id(theirs::far_id::FarId::new(3))
        .build()
        .expect("complete");
    let far = Far::with_action(theirs::far_id::FarId::new(3), FarAction::Drop);
    let node = theirs::node_id::NodeId::new_ipv4(samples::SMF);
    let seid = theirs::fseid::Fseid::new(0x77_u64, Some(samples::SMF), None);
    let octets =
        rs_pfcp::message::session_establishment_request::SessionEstablishmentRequestBuilder::new(0_u64, 42_u32)
            .node_id_ie(node.to_ie())
            .fseid_ie(Ie::new(IeType::Fseid, seid.marshal()))
            .create_pdrs(vec![pdr.to_ie()])
            .create_fars(vec![far.to_ie()])
            .build()
            .expect("complete")
            .marshal();
    let message = Message::new(&octets).expect("sound header");
    assert_eq!((message.seid(), message.sequence()), (0, 42));
    let request = SessionEstablishmentRequest::parse(&message).expect("sound");
    assert_eq!(request.node_id.address(), Some(samples::SMF.into()));
    assert_eq!(request.cp_f_seid, FSeid::new(0x77, samples::SMF.into()));
    let pdr = &request.create_pdrs[0];
    assert_eq!((pdr.pdr_id, pdr.precedence, pdr.far_id), (PdrId(7), Precedence(9), Some(FarId(3))));
    assert_eq!(pdr.pdi.source_interface, SourceInterface::ACCESS);
    assert_eq!(pdr.pdi.f_teid, Some(FTeid::new(Teid(0x0102_0304), samples::UPF.into())));
    assert_eq!(pdr.pdi.ue_ip_addresses[0].ipv4, Some(Ipv4Addr::new(10, 45, 0, 2)));
    assert_eq!(request.create_fars[0].apply_action, ApplyAction::DROP);
}
