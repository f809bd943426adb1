//! Modules: source addresses of packets that the UPF originates.
//!
//! The source is the N3 address in the F-TEID of the session.

use crate::world::*;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use vireo_datapath::Module;
use vireo_types::Teid;
use vireo_upf::{UpfConfig, XdpConfig, XdpMode};
use vireo_wire::gtpu::{self, MessageType};
use vireo_wire::pfcp::*;

const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TUNNEL: Teid = Teid(0x51);
const NEXT_TUNNEL: Teid = Teid(0x52);

/// Returns a configuration with two modules, of which the second has its own, unused link.
fn two_modules(w: &World) -> UpfConfig {
    let (ran, upf) = (w.name("ran"), w.name("upf"));
    sh(&format!(
        "ip -n {upf} address add {SECOND}/24 dev n3
         ip -n {upf} link add m3 type veth peer name m2 netns {ran}; ip -n {upf} link set m3 up"
    ));
    let module = |n3: Ipv4Addr, interfaces: &[&str]| Module {
        n3: n3.into(),
        interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
        next_hops: vec![],
        cores: vec![],
    };
    let modules = vec![module(UPF, &["n3", "n6"]), module(SECOND, &["m3"])];
    let interfaces = ["n3", "n6", "m3"].map(str::to_owned).to_vec();
    let xdp = XdpConfig { interfaces, modules, mode: XdpMode::Generic, ..XdpConfig::default() };
    UpfConfig { n3: vec![UPF.into(), SECOND.into()], xdp: Some(xdp), ..config() }
}

/// Returns the source, type and tunnel of the next datagram for the gNB.
fn next(w: &World) -> (SocketAddr, MessageType, Teid) {
    let mut buffer = [0; 2048];
    let (length, from) = w.gnb.recv_from(&mut buffer).expect("a datagram for the gNB");
    let packet = gtpu::Packet::parse(&buffer[..length]).expect("sound");
    (from, packet.kind, packet.teid)
}

#[test]
fn buffered_packets_leave_from_session_address() {
    let mut w = World::new();
    let config = two_modules(&w);
    let _upf = w.start(config).expect("started");
    w.associate();
    let host = w.inside("dn", || UdpSocket::bind((HOST, 4000))).expect("bound");
    for (n, own) in [UPF, SECOND, UPF, SECOND].into_iter().enumerate() {
        let ue = Ipv4Addr::new(10, 45, 0, 2 + n as u8);
        let mut request = establishment(ue, PREFIX);
        request.create_pdrs[1].pdi.ue_ip_addresses = [UeIpAddress::destination(Some(ue), None)].into_iter().collect();
        let response: SessionEstablishmentResponse = w.request(|out, sequence| request.emit(out, 0, sequence));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
        assert_eq!(response.created_pdrs[0].f_teid.and_then(|f_teid| f_teid.address()), Some(IpAddr::V4(own)));
        let seid = response.up_f_seid.expect("accepted").seid;

        host.send_to(b"wait", (ue, 5000)).expect("sent");
        // the packet is buffered once it is reported
        let mut buffer = [0; 2048];
        let (length, from) = w.smf.recv_from(&mut buffer).expect("a report");
        let report = Message::new(&buffer[..length]).expect("sound");
        let mut answer = vec![];
        SessionReportResponse::new(Cause::REQUEST_ACCEPTED).emit(&mut answer, seid, report.sequence()).expect("short");
        w.smf.send_to(&answer, from).expect("sent");
        let from = SocketAddr::from((own, gtpu::PORT));
        w.downlink_to(seid, Some((TUNNEL, GNB.into())));
        assert_eq!(next(&w), (from, MessageType::GPdu, TUNNEL), "what waited");

        let mut request = SessionModificationRequest::default();
        request.update_fars.push(UpdateFar {
            far_id: FarId(2),
            update_forwarding_parameters: Some(UpdateForwardingParameters {
                destination_interface: Some(DestinationInterface::ACCESS),
                outer_header_creation: Some(OuterHeaderCreation::gtpu(NEXT_TUNNEL, GNB.into())),
                flags: Some(SmReqFlags::SNDEM),
                ..UpdateForwardingParameters::default()
            }),
            ..UpdateFar::default()
        });
        let response: SessionModificationResponse = w.request(|out, sequence| request.emit(out, seid, sequence));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
        assert_eq!(next(&w), (from, MessageType::EndMarker, TUNNEL));
    }
}
