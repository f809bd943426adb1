//! Network namespaces in a row, with a control plane, a RAN node and a server.
//!
//! ```text
//!   ran  192.0.2.9, .5 (SMF) --- n3  192.0.2.1  upf  n6  198.51.100.1 --- 198.51.100.7  dn
//! ```

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vireo_datapath::StartError;
use vireo_types::Teid;
use vireo_upf::{Pool, UpfConfig, UpfError, UpfHandle, UpfStats};
use vireo_wire::gtpu::{self, PduSession};
use vireo_wire::pfcp::*;

pub(crate) const UPF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const SMF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 5);
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
pub(crate) const UPF6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x200, 0, 0, 0, 0, 1);
pub(crate) const GNB6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x200, 0, 0, 0, 0, 9);
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub(crate) const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 7);
pub(crate) const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 2);
pub(crate) const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x45, 2, 0, 0, 0, 0);
pub(crate) const RAN_TEID: Teid = Teid(0x0badcafe);
pub(crate) const QFI: u8 = 9;
pub(crate) const TUN: &str = "vireo0";

/// Network namespaces of one test, which are removed with it.
pub(crate) struct World {
    tag: String,
    pub(crate) gnb: UdpSocket,
    pub(crate) smf: UdpSocket,
    /// The UPF that receives the requests.
    pub(crate) upf: Ipv4Addr,
    sequence: u32,
}

impl Drop for World {
    fn drop(&mut self) {
        for side in ["ran", "upf", "dn"] {
            let _ = Command::new("ip").args(["netns", "delete", &self.name(side)]).status();
        }
    }
}

/// Runs a command line. Panics with its standard error if it fails.
pub(crate) fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-ec", line]).output().expect("sh");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts a UPF, and retries while an address is in use. A program that another test is starting
/// holds this process's sockets, closed ones too, until it is loaded.
pub(crate) fn start(config: &UpfConfig) -> Result<UpfHandle, UpfError> {
    let mut started = vireo_upf::start(config.clone());
    for _ in 0..20 {
        if let Err(UpfError::N4InUse(_) | UpfError::Datapath(StartError::N3InUse(_))) = started {
            std::thread::sleep(Duration::from_millis(50));
            started = vireo_upf::start(config.clone());
        }
    }
    started
}

fn inside<T: Send>(namespace: &str, f: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace");
    std::thread::scope(|scope| {
        let run = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root");
            f()
        };
        scope.spawn(run).join().expect("no panic inside the namespace")
    })
}

impl World {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let tag = format!("vupf{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        sh(&format!(
            "for s in ran upf dn; do ip netns add {tag}-$s; ip -n {tag}-$s link set lo up; done
             ip -n {tag}-ran link add n2 type veth peer name n3 netns {tag}-upf
             ip -n {tag}-dn link add eth type veth peer name n6 netns {tag}-upf
             ip -n {tag}-ran address add {GNB}/24 dev n2; ip -n {tag}-ran address add {SMF}/24 dev n2
             ip -n {tag}-upf address add {UPF}/24 dev n3; ip -n {tag}-upf address add 198.51.100.1/24 dev n6
             ip -n {tag}-ran address add {GNB6}/64 dev n2 nodad; ip -n {tag}-upf address add {UPF6}/64 dev n3 nodad
             ip -n {tag}-upf address add 2001:db8:100::1/64 dev n6 nodad
             ip -n {tag}-dn address add {HOST}/24 dev eth; ip -n {tag}-dn address add {HOST6}/64 dev eth nodad
             for l in ran:n2 upf:n3 upf:n6 dn:eth; do ip -n {tag}-${{l%%:*}} link set ${{l##*:}} up; done
             ip -n {tag}-dn route add 10.45.0.0/16 via 198.51.100.1
             ip -n {tag}-dn route add 2001:db8:45::/48 via 2001:db8:100::1"
        ));
        let bind = |address: SocketAddr| {
            let socket = inside(&format!("{tag}-ran"), || UdpSocket::bind(address)).expect("bound");
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
            socket
        };
        let (gnb, smf) = (bind((GNB, gtpu::PORT).into()), bind((SMF, PORT).into()));
        World { tag, gnb, smf, upf: UPF, sequence: 0 }
    }

    pub(crate) fn name(&self, side: &str) -> String {
        format!("{}-{side}", self.tag)
    }

    /// Runs a command line in one of the namespaces.
    pub(crate) fn run(&self, side: &str, line: &str) -> String {
        sh(&format!("ip netns exec {} sh -ec '{line}'", self.name(side)))
    }

    pub(crate) fn inside<T: Send>(&self, side: &str, f: impl FnOnce() -> T + Send) -> T {
        inside(&self.name(side), f)
    }

    /// Starts a UPF in its namespace.
    pub(crate) fn start(&self, config: UpfConfig) -> Result<UpfHandle, UpfError> {
        self.inside("upf", || start(&config))
    }

    /// Returns the kernel's counters of an interface: packets and bytes, received and sent.
    pub(crate) fn counters(&self, side: &str, interface: &str) -> [(u64, u64); 2] {
        let text = self.run(side, "cat /proc/net/dev");
        let prefix = format!("{interface}:");
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&prefix)).expect("the interface");
        let n: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        [(n[1], n[0]), (n[9], n[8])]
    }

    /// Sends a request as the SMF and returns the response.
    pub(crate) fn request<T: Body>(&mut self, emit: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), TooLong>) -> T {
        self.sequence += 1;
        let mut octets = vec![];
        emit(&mut octets, self.sequence).expect("short");
        self.smf.send_to(&octets, (self.upf, PORT)).expect("sent");
        let mut buffer = [0; 2048];
        loop {
            let (length, _) = self.smf.recv_from(&mut buffer).expect("an answer");
            let message = Message::new(&buffer[..length]).expect("sound");
            // A heartbeat of the UPF.
            if message.message_type() == MessageType::HEARTBEAT_REQUEST {
                continue;
            }
            assert_eq!(message.sequence(), self.sequence);
            return T::parse(&message).expect("the answer to this request");
        }
    }

    pub(crate) fn associate(&mut self) {
        let request = AssociationSetupRequest {
            node_id: NodeId::Ipv4(SMF),
            recovery_time_stamp: RecoveryTimeStamp(1),
            up_function_features: None,
            cp_function_features: None,
            session_retention: None,
        };
        let response: AssociationSetupResponse = self.request(|out, sequence| request.emit(out, sequence));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
    }

    /// Creates the session of the UE, for both families, with buffered downlink. Returns its SEID
    /// and uplink TEID.
    pub(crate) fn establish(&mut self) -> (u64, Teid) {
        self.associate();
        self.establish_for(UE, PREFIX)
    }

    /// Does the same for another UE.
    pub(crate) fn establish_for(&mut self, ue: Ipv4Addr, prefix: Ipv6Addr) -> (u64, Teid) {
        let request = establishment(ue, prefix);
        let response: SessionEstablishmentResponse = self.request(|out, sequence| request.emit(out, 0, sequence));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
        let f_teid = response.created_pdrs[0].f_teid.expect("chosen");
        assert_eq!(f_teid.address(), Some(IpAddr::V4(self.upf)));
        (response.up_f_seid.expect("accepted").seid, f_teid.teid().expect("chosen"))
    }

    /// Changes the downlink FAR: forward to the gNB, or buffer.
    pub(crate) fn downlink(&mut self, seid: u64, forward: bool) {
        self.downlink_to(seid, forward.then_some((RAN_TEID, GNB.into())));
    }

    /// Changes the downlink FAR: forward to a tunnel, or buffer.
    pub(crate) fn downlink_to(&mut self, seid: u64, tunnel: Option<(Teid, IpAddr)>) {
        let mut request = SessionModificationRequest::default();
        let mut far = UpdateFar { far_id: FarId(2), ..UpdateFar::default() };
        if let Some((teid, address)) = tunnel {
            far.apply_action = Some(ApplyAction::FORW);
            far.update_forwarding_parameters = Some(UpdateForwardingParameters {
                destination_interface: Some(DestinationInterface::ACCESS),
                outer_header_creation: Some(OuterHeaderCreation::gtpu(teid, address)),
                ..UpdateForwardingParameters::default()
            });
        } else {
            far.apply_action = Some(ApplyAction::BUFF | ApplyAction::NOCP);
        }
        request.update_fars.push(far);
        let response: SessionModificationResponse = self.request(|out, sequence| request.emit(out, seid, sequence));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
    }

    /// Creates a session with downlink to the gNB, and consumes the first router advertisement.
    pub(crate) fn active_session(&mut self) -> (u64, Teid) {
        let (seid, teid) = self.establish();
        self.downlink(seid, true);
        assert_eq!(self.tunnel_down()[40], 134, "the UE is told its prefix");
        (seid, teid)
    }

    /// Sends a packet of the UE through the tunnel.
    pub(crate) fn tunnel_up(&self, teid: Teid, packet: &[u8]) {
        let session = PduSession::Uplink { qfi: QFI };
        let mut datagram = gtpu::g_pdu_header(teid, session, packet.len()).expect("short").to_vec();
        datagram.extend(packet);
        self.gnb.send_to(&datagram, (self.upf, gtpu::PORT)).expect("sent");
    }

    /// Returns the next datagram for the gNB.
    pub(crate) fn for_gnb(&self) -> Vec<u8> {
        let mut buffer = vec![0; 4096];
        let (length, from) = self.gnb.recv_from(&mut buffer).expect("a datagram for the gNB");
        assert_eq!(from, SocketAddr::from((self.upf, gtpu::PORT)));
        buffer.truncate(length);
        buffer
    }

    /// Returns the next packet for the UE, after checking its tunnel and QoS flow.
    pub(crate) fn tunnel_down(&self) -> Vec<u8> {
        let datagram = self.for_gnb();
        let packet = gtpu::Packet::parse(&datagram).expect("sound");
        assert_eq!((packet.kind, packet.teid), (gtpu::MessageType::GPdu, RAN_TEID));
        assert_eq!(packet.pdu_session, Some(PduSession::Downlink { qfi: QFI, rqi: false }));
        packet.payload.to_vec()
    }

    /// Sends an echo request of the UE to the server, and checks that the reply has the same data.
    pub(crate) fn ping(&self, teid: Teid, sequence: u16) {
        self.tunnel_up(teid, &echo(UE, HOST, sequence));
        let reply = self.tunnel_down();
        assert_eq!((&reply[12..16], &reply[16..20]), (&HOST.octets()[..], &UE.octets()[..]));
        assert_eq!((reply[20], &reply[24..]), (0, &echo(UE, HOST, sequence)[24..]));
    }
}

/// Returns the UPF's statistics once they are as expected. A worker updates them after sending.
pub(crate) fn counted(upf: &UpfHandle, expected: impl Fn(&UpfStats) -> bool) -> UpfStats {
    for _ in 0..100 {
        let stats = upf.stats();
        if expected(&stats) {
            return stats;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not what was expected: {:?}", upf.stats())
}

pub(crate) fn config() -> UpfConfig {
    let pool = Pool {
        dnn: "internet".parse().expect("a name"),
        ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
        ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 48)),
        mtu: 1400,
        dns: vec!["2001:db8:100::53".parse().expect("an address")],
        isolated: false,
    };
    UpfConfig {
        n4: (UPF, PORT).into(),
        n3: vec![UPF.into()],
        tun: TUN.to_owned(),
        pools: vec![pool],
        ..UpfConfig::default()
    }
}

pub(crate) fn establishment(ue: Ipv4Addr, prefix: Ipv6Addr) -> SessionEstablishmentRequest {
    let mut request = SessionEstablishmentRequest::new(NodeId::Ipv4(SMF), FSeid::new(0x77, SMF.into()));
    let pdr = |id, pdi| CreatePdr {
        pdr_id: PdrId(id),
        precedence: Precedence(255),
        pdi,
        far_id: Some(FarId(u32::from(id))),
        qer_ids: std::iter::once(QerId(1)).collect(),
        ..CreatePdr::default()
    };
    let mut access = Pdi { source_interface: SourceInterface::ACCESS, ..Pdi::default() };
    access.f_teid = Some(FTeid::Choose { ipv4: true, ipv6: false, id: None });
    access.qfis.push(Qfi(QFI));
    let mut uplink = pdr(1, access);
    uplink.outer_header_removal = Some(OuterHeaderRemoval::GTPU);
    request.create_pdrs.push(uplink);
    let mut core = Pdi { source_interface: SourceInterface::CORE, ..Pdi::default() };
    core.ue_ip_addresses.push(UeIpAddress::destination(Some(ue), Some(prefix)));
    request.create_pdrs.push(pdr(2, core));
    request.create_fars.push(CreateFar {
        far_id: FarId(1),
        apply_action: ApplyAction::FORW,
        forwarding_parameters: Some(ForwardingParameters {
            destination_interface: DestinationInterface::CORE,
            ..ForwardingParameters::default()
        }),
        bar_id: None,
    });
    request.create_fars.push(CreateFar {
        far_id: FarId(2),
        apply_action: ApplyAction::BUFF | ApplyAction::NOCP,
        ..CreateFar::default()
    });
    request.create_qers.push(CreateQer { qer_id: QerId(1), qfi: Some(Qfi(QFI)), ..CreateQer::default() });
    request
}

fn checksum(octets: &[u8]) -> [u8; 2] {
    let mut sum: u32 = octets.chunks(2).map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| u32::from(*b))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Returns an IPv4 ICMP echo request with 56 bytes of data.
pub(crate) fn echo(source: Ipv4Addr, destination: Ipv4Addr, sequence: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 84, 0, 0, 0x40, 0, 64, 1, 0, 0];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    let mut message = vec![8, 0, 0, 0, 0x12, 0x34];
    message.extend(sequence.to_be_bytes());
    message.extend(0..56);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    packet.extend(message);
    packet
}

/// Returns a UDP packet from port 4000, without UDP checksum.
pub(crate) fn udp(source: Ipv4Addr, destination: Ipv4Addr, port: u16, data: &[u8]) -> Vec<u8> {
    let length = 28 + data.len() as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend(4000_u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend((length - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(data);
    packet
}

/// Returns an IPv6 packet with an ICMPv6 message and hop limit 255.
pub(crate) fn icmpv6(source: Ipv6Addr, destination: Ipv6Addr, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(body);
    let mut pseudo = source.octets().to_vec();
    pseudo.extend(destination.octets());
    pseudo.extend((message.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    pseudo.extend(&message);
    let sum = checksum(&pseudo);
    message[2..4].copy_from_slice(&sum);
    let mut packet = vec![0x60, 0, 0, 0, 0, message.len() as u8, 58, 255];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(message);
    packet
}
