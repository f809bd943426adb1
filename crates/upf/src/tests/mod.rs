//! Scripted control plane and RAN for the state machine and an in-memory datapath.

mod access;
mod control_planes;
mod habits;
mod limits;
mod misuse;
mod modules;
mod nodes;
mod refusals;
mod reports;
mod rules;
mod scale;
mod sessions;
mod slices;
mod stored;
mod takeover;

use crate::config::N3;
use crate::machine::Upf;
use crate::machine::control_planes::{AssociationConfig, ControlPlane};
use crate::machine::exchange::Outgoing;
use crate::machine::settings::{Settings, Timestamps};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use vireo_datapath::{Limits, Memory, Pool, Tables};
use vireo_types::{Duration, Instant, Teid};
use vireo_wire::gtpu::{self, Packet, PduSession};
use vireo_wire::pfcp::{self, *};

const UPF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SMF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 5);
const GNB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const STARTED: u32 = 3_900_000_000;
/// The control plane's SEID of the session.
const CP_SEID: u64 = 0x77;
const RAN_TEID: Teid = Teid(0xbeef);

struct Bench {
    upf: Upf,
    plane: Memory,
    now: Timestamps,
    sequence: u32,
    /// Source address of requests.
    from: SocketAddr,
}

fn bench() -> Bench {
    bench_with(vec![])
}

/// Creates a test bench with address pools of the UPF.
fn bench_with(pools: Vec<crate::Pool>) -> Bench {
    bench_of(pools, Limits::default())
}

fn bench_of(pools: Vec<crate::Pool>, limits: Limits) -> Bench {
    let pool = Pool {
        ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
        ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 48)),
        mtu: 1400,
        ..Pool::default()
    };
    let limits = Limits { records: 64, ..limits };
    let settings = Settings {
        address: UPF.into(),
        n3: vec![N3 { ipv4: Some(UPF), ipv6: None }],
        n3_addresses: vec![UPF.into()],
        max_sessions: 4,
        pools,
        framed: vec![(Ipv4Addr::new(10, 45, 64, 0).into(), 18)],
        slices: vec![],
        lean: vec![],
        response_time: Duration::from_secs(3),
        attempts: 3,
        path_check: Some(Duration::from_secs(60)),
        associations: AssociationConfig::default(),
        started: STARTED,
        seed: seed(),
        record_octets: None,
        room: None,
    };
    Bench {
        upf: Upf::new(settings),
        plane: plane(pool, limits),
        now: Timestamps { instant: Instant(1_000_000), ntp: STARTED + 100 },
        sequence: 0,
        from: Bench::smf(),
    }
}

/// A user plane that knows the gNB from N2.
fn plane(pool: Pool, limits: Limits) -> Memory {
    let mut tables = Tables::new(vec![pool], limits);
    tables.set_peer(GNB.into(), vireo_datapath::Use::Node, true);
    Memory::new(tables, UPF.into())
}

impl Bench {
    fn smf() -> SocketAddr {
        (SMF, 8805).into()
    }

    /// Sends a message as the SMF, and returns the messages of the UPF.
    fn deliver(&mut self, octets: &[u8]) -> Outgoing {
        let mut out = vec![];
        self.upf.receive(self.from, octets, self.now, &mut self.plane, &mut out);
        out
    }

    /// Sends a request and returns its only response.
    fn request<T: Body>(&mut self, emit: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), TooLong>) -> (Header, T) {
        self.sequence += 1;
        let mut octets = vec![];
        emit(&mut octets, self.sequence).expect("short");
        let out = self.deliver(&octets);
        assert_eq!((out.len(), out[0].0), (1, self.from), "one answer to where the request came from");
        let message = Message::new(&out[0].1).expect("a sound answer");
        assert_eq!(message.sequence(), self.sequence);
        (*message.header(), T::parse(&message).expect("the answer to this request"))
    }

    fn associate(&mut self) -> AssociationSetupResponse {
        self.associate_as(1_000)
    }

    fn associate_as(&mut self, recovery: u32) -> AssociationSetupResponse {
        let request = AssociationSetupRequest {
            node_id: node(),
            recovery_time_stamp: RecoveryTimeStamp(recovery),
            up_function_features: None,
            cp_function_features: None,
            session_retention: None,
        };
        self.request(|out, sequence| request.emit(out, sequence)).1
    }

    fn establish(&mut self, request: &SessionEstablishmentRequest) -> SessionEstablishmentResponse {
        let (header, response) = self.request(|out, sequence| request.emit(out, 0, sequence));
        assert_eq!(header.seid, Some(request.cp_f_seid.seid));
        response
    }

    fn modify(&mut self, seid: u64, request: &SessionModificationRequest) -> SessionModificationResponse {
        self.request(|out, sequence| request.emit(out, seid, sequence)).1
    }

    fn delete(&mut self, seid: u64) -> SessionDeletionResponse {
        self.request(|out, sequence| (SessionDeletionRequest {}).emit(out, seid, sequence)).1
    }

    /// Sets up an association and the default session, whose UE is idle. Returns its SEID and
    /// uplink TEID.
    fn session(&mut self) -> (u64, Teid) {
        self.associate();
        let response = self.establish(&request());
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
        established(&response)
    }

    fn uplink(&mut self, teid: Teid, packet: &[u8]) {
        let mut datagram =
            gtpu::g_pdu_header(teid, PduSession::Uplink { qfi: 1 }, packet.len()).expect("short").to_vec();
        datagram.extend(packet);
        self.plane.receive_n3((GNB, 2152).into(), &datagram, self.now.instant);
    }

    /// Returns the packets sent into tunnels since the last call, with their TEIDs.
    fn tunnelled(&mut self) -> Vec<(Teid, Vec<u8>)> {
        let sent = std::mem::take(&mut self.plane.n3);
        let read = |(to, datagram): &(SocketAddr, Vec<u8>)| {
            assert_eq!(*to, SocketAddr::from((GNB, 2152)));
            let packet = Packet::parse(datagram).expect("sound");
            (packet.teid, packet.payload.to_vec())
        };
        sent.iter().map(read).collect()
    }

    /// Passes the datapath's events to the state machine.
    fn events(&mut self) -> Outgoing {
        let mut out = vec![];
        for event in std::mem::take(&mut self.plane.events) {
            self.upf.event(event, self.now, &mut self.plane, &mut out);
        }
        out
    }

    fn advance(&mut self, seconds: u64) {
        self.now.instant = self.now.instant + Duration::from_secs(seconds);
        self.now.ntp += seconds as u32;
    }
}

/// Returns a different seed for each UPF.
fn seed() -> [u8; 32] {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    [NEXT.fetch_add(1, Ordering::Relaxed); 32]
}

fn node() -> NodeId {
    NodeId::Ipv4(SMF)
}

fn established(response: &SessionEstablishmentResponse) -> (u64, Teid) {
    let f_seid = response.up_f_seid.expect("accepted");
    assert_eq!(f_seid.ipv4, Some(UPF));
    let f_teid = response.created_pdrs[0].f_teid.expect("chosen");
    assert_eq!((response.created_pdrs.len(), f_teid.address()), (1, Some(UPF.into())));
    (f_seid.seid, f_teid.teid().expect("chosen"))
}

fn uplink_pdr(id: u16, f_teid: FTeid) -> CreatePdr {
    CreatePdr {
        pdr_id: PdrId(id),
        precedence: Precedence(255),
        pdi: Pdi { source_interface: SourceInterface::ACCESS, f_teid: Some(f_teid), ..Pdi::default() },
        outer_header_removal: Some(OuterHeaderRemoval::GTPU),
        far_id: Some(FarId(1)),
        qer_ids: std::iter::once(QerId(1)).collect(),
        ..CreatePdr::default()
    }
}

fn downlink_pdr(id: u16, ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>) -> CreatePdr {
    CreatePdr {
        pdr_id: PdrId(id),
        precedence: Precedence(255),
        pdi: Pdi {
            source_interface: SourceInterface::CORE,
            ue_ip_addresses: std::iter::once(UeIpAddress::destination(ipv4, ipv6)).collect(),
            ..Pdi::default()
        },
        far_id: Some(FarId(2)),
        qer_ids: std::iter::once(QerId(1)).collect(),
        ..CreatePdr::default()
    }
}

const CHOOSE: FTeid = FTeid::Choose { ipv4: true, ipv6: false, id: None };

/// The session that an SMF requests: uplink forwarded, downlink buffered, one QER.
fn request() -> SessionEstablishmentRequest {
    let mut request = SessionEstablishmentRequest::new(node(), FSeid::new(CP_SEID, SMF.into()));
    request.create_pdrs.push(uplink_pdr(1, CHOOSE));
    request.create_pdrs.push(downlink_pdr(2, Some(UE), None));
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
    request.create_qers.push(CreateQer { qer_id: QerId(1), qfi: Some(Qfi(1)), ..CreateQer::default() });
    request
}

/// Forwards downlink packets to this tunnel of the gNB.
fn forward(teid: Teid) -> SessionModificationRequest {
    forward_to(teid, GNB.into(), None)
}

fn forward_to(teid: Teid, address: IpAddr, flags: Option<SmReqFlags>) -> SessionModificationRequest {
    let mut request = SessionModificationRequest::default();
    request.update_fars.push(UpdateFar {
        far_id: FarId(2),
        apply_action: Some(ApplyAction::FORW),
        update_forwarding_parameters: Some(UpdateForwardingParameters {
            destination_interface: Some(DestinationInterface::ACCESS),
            outer_header_creation: Some(OuterHeaderCreation::gtpu(teid, address)),
            flags,
            ..UpdateForwardingParameters::default()
        }),
        bar_id: None,
    });
    request
}

fn buffer() -> SessionModificationRequest {
    let mut request = SessionModificationRequest::default();
    request.update_fars.push(UpdateFar {
        far_id: FarId(2),
        apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP),
        ..UpdateFar::default()
    });
    request
}

fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, octets: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&octets.to_be_bytes());
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = packet.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
    let checksum = !(sum % 0xffff) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.resize(usize::from(octets), 0xa5);
    packet
}
