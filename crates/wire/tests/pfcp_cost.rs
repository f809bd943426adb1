//! Cost of the PFCP codec for a session establishment: allocations and time.
//!
//! Time is measured on demand: `cargo test --release -p vireo-wire --test pfcp_cost -- --ignored
//! --nocapture`.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;
use vireo_types::Teid;
use vireo_wire::pfcp::*;

const SMF: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 2);

/// Returns the request of the SMF for an IPv4 session: two PDRs, two FARs, two QERs, one URR.
fn request() -> SessionEstablishmentRequest {
    let uplink = CreatePdr {
        pdr_id: PdrId(1),
        precedence: Precedence(255),
        pdi: Pdi {
            source_interface: SourceInterface::ACCESS,
            f_teid: Some(FTeid::new(Teid(0x0000_0101), SMF)),
            network_instance: Some("internet".into()),
            ue_ip_addresses: [UeIpAddress::source(Some(UE), None)].into_iter().collect(),
            qfis: [Qfi(9)].into_iter().collect(),
            ..Pdi::default()
        },
        outer_header_removal: Some(OuterHeaderRemoval::GTPU),
        far_id: Some(FarId(1)),
        urr_ids: [UrrId(1)].into_iter().collect(),
        qer_ids: [QerId(1), QerId(2)].into_iter().collect(),
        ..CreatePdr::default()
    };
    let downlink = CreatePdr {
        pdr_id: PdrId(2),
        pdi: Pdi {
            source_interface: SourceInterface::CORE,
            f_teid: None,
            ue_ip_addresses: [UeIpAddress::destination(Some(UE), None)].into_iter().collect(),
            ..uplink.pdi.clone()
        },
        outer_header_removal: None,
        far_id: Some(FarId(2)),
        ..uplink.clone()
    };
    let forward = |id, interface, creation| CreateFar {
        far_id: FarId(id),
        apply_action: ApplyAction::FORW,
        forwarding_parameters: Some(ForwardingParameters {
            destination_interface: interface,
            network_instance: Some("internet".into()),
            outer_header_creation: creation,
            ..ForwardingParameters::default()
        }),
        bar_id: None,
    };
    let qer = |id| CreateQer {
        qer_id: QerId(id),
        mbr: Some(Mbr { uplink_kbps: 200_000, downlink_kbps: 1_000_000 }),
        qfi: Some(Qfi(9)),
        ..CreateQer::default()
    };
    let urr = CreateUrr {
        urr_id: UrrId(1),
        measurement_method: MeasurementMethod::VOLUM,
        reporting_triggers: ReportingTriggers::VOLTH,
        volume_threshold: Some(VolumeThreshold { total: Some(1 << 30), ..VolumeThreshold::default() }),
        ..CreateUrr::default()
    };
    let gnb = OuterHeaderCreation::gtpu(Teid(5), SMF);
    SessionEstablishmentRequest {
        create_pdrs: [uplink, downlink].into_iter().collect(),
        create_fars: [
            forward(1, DestinationInterface::CORE, None),
            forward(2, DestinationInterface::ACCESS, Some(gnb)),
        ]
        .into_iter()
        .collect(),
        create_qers: [qer(1), qer(2)].into_iter().collect(),
        create_urrs: [urr].into_iter().collect(),
        pdn_type: Some(PdnType::IPV4),
        ..SessionEstablishmentRequest::new(SMF.into(), FSeid::new(7, SMF))
    }
}

#[test]
fn typical_session_codec_never_allocates() {
    let mut octets = Vec::with_capacity(1_024);
    let built = allocation_counter::measure(|| {
        octets.clear();
        request().emit(&mut octets, 0, 1).expect("fits");
    });
    let read = allocation_counter::measure(|| {
        let message = Message::new(&octets).expect("sound");
        black_box(SessionEstablishmentRequest::parse(&message).expect("sound"));
    });
    assert_eq!((built.count_total, read.count_total), (0, 0));
}

/// Returns the nanoseconds per call: the minimum of several rounds, to exclude other work of the
/// machine.
fn best_ns(mut call: impl FnMut()) -> u128 {
    const CALLS: u128 = 20_000;
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_nanos() / CALLS
    };
    (0..20).map(|_| round(&mut call)).min().unwrap_or(0)
}

#[test]
#[ignore = "a measurement; run it in release mode on a quiet machine"]
fn time_of_a_session_establishment_request() {
    let mut octets = Vec::with_capacity(1_024);
    let value = request();
    let fill = best_ns(|| drop(black_box(request())));
    let emit = best_ns(|| {
        octets.clear();
        black_box(&value).emit(&mut octets, 0, 1).expect("fits");
    });
    let view = best_ns(|| {
        let message = Message::new(black_box(&octets)).expect("sound");
        black_box(message.ies().flatten().flat_map(|ie| ie.ies()).count());
    });
    let parse = best_ns(|| {
        let message = Message::new(black_box(&octets)).expect("sound");
        drop(black_box(SessionEstablishmentRequest::parse(&message).expect("sound")));
    });
    let size = size_of::<SessionEstablishmentRequest>();
    println!("{} octets on the wire, {size} as a value", octets.len());
    println!("fill {fill} ns, emit {emit} ns, walk elements {view} ns, parse {parse} ns");
    let theirs = best_ns(|| drop(black_box(rs_pfcp::message::parse(black_box(&octets)).expect("sound"))));
    println!("rs-pfcp parse of the outermost elements {theirs} ns");
}
