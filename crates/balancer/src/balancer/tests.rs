//! Tests of a balancer with in-memory peers and without a host.

use super::*;
use std::net::{Ipv4Addr, SocketAddr};

use vireo_sctp::memory::Network;
use vireo_sctp::{Config, Event as Sctp};
use vireo_types::{AmfUeNgapId, Network as Pool};
use vireo_wire::pfcp::RecoveryTimeStamp;

const POOL: Pool = Pool::new(IpAddr::V4(Ipv4Addr::new(10, 45, 0, 0)), 16);
const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 7, 7);
const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const AMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 38412);
const S1_PORT: u16 = 36412;

fn n2(address: IpAddr, port: u16) -> Config {
    Config { addresses: vec![address], port, listen: port != 0, ..Config::default() }
}

/// Returns a balancer without UPFs, and the inputs for its host. Both ends must outlive it.
fn without_host(endpoint: Box<dyn Endpoint>) -> (BalancerParts, Receiver<Input>) {
    let config = n4::Config::new(Ipv4Addr::LOCALHOST.into(), vec![], RecoveryTimeStamp(1), 1);
    let n4 = n4::Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), config, None).expect("a UDP port");
    let (input_sender, inputs) = HostSender::without_host();
    let parts = Balancer::with_local_host(endpoint, n4, input_sender, Arc::new(Metrics::new())).expect("it starts");
    (parts, inputs)
}

/// Returns the numbers of `Up` and `Down` events of a peer's association.
fn count_events(peer: &mut dyn Endpoint) -> (usize, usize) {
    let (mut up, mut down) = (0, 0);
    let polled = peer.poll(Some(Duration::ZERO), &mut |event| match event {
        Sctp::Up { .. } => up += 1,
        Sctp::Down { .. } => down += 1,
        _ => {}
    });
    polled.expect("it is polled");
    (up, down)
}

/// A UE could otherwise run NG Setup from its session's address, like a RAN node.
#[test]
fn association_from_ue_pool_is_aborted() {
    let network = Network::new();
    let endpoint = network.bind(&n2(AMF.ip(), AMF.port())).expect("it binds");
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let config = n4::Config::new(Ipv4Addr::LOCALHOST.into(), vec![], RecoveryTimeStamp(1), 1);
    let n4 = n4::Endpoint::bind(local, n4::Config { ue_pools: vec![POOL], ..config }, None).expect("a UDP port");
    let (input_sender, inputs) = HostSender::without_host();
    let metrics = Arc::new(Metrics::new());
    let parts = Balancer::with_local_host(endpoint, n4, input_sender, Arc::clone(&metrics)).expect("it starts");
    let BalancerParts { mut balancer, commands: _outbound, .. } = parts;
    let (named, nodes) = crossbeam_channel::bounded(16);
    balancer.set_node_callback(move |address, there| named.send((address, there)).expect("the test listens"));
    let [mut ue, mut node] = [UE, NODE].map(|address| network.bind(&n2(address.into(), 0)).expect("it binds"));
    let [from_ue, from_node] = [&mut ue, &mut node].map(|peer| peer.connect(AMF).expect("it connects"));
    // Messages of the aborted association must not be read either.
    let _ = ue.send(from_ue, 0, crate::PPID_NGAP, &[1]);
    let (mut ue_events, mut node_events) = ((0, 0), (0, 0));
    let deadline = Monotonic::now() + Duration::from_secs(10);
    while ue_events.1 == 0 || node_events.0 == 0 {
        assert!(Monotonic::now() < deadline, "{ue_events:?} {node_events:?}");
        balancer.poll(Duration::ZERO).expect("it polls");
        for (peer, sum) in [(&mut ue, &mut ue_events), (&mut node, &mut node_events)] {
            let (up, down) = count_events(&mut **peer);
            *sum = (sum.0 + up, sum.1 + down);
        }
    }
    balancer.poll(Duration::ZERO).expect("it polls");
    assert_eq!(node_events, (1, 0), "the RAN node stays");
    let inputs: Vec<Input> = inputs.try_iter().collect();
    let is_from_node = |input: &Input| match input {
        Input::Peer { envelope, .. } => {
            matches!(envelope.event, PeerEvent::Up { peer, .. } if peer.ip() == IpAddr::V4(NODE))
        }
        _ => false,
    };
    assert!(inputs.len() == 1 && inputs.iter().all(is_from_node), "the host hears of the RAN node alone: {inputs:?}");
    assert!(metrics.render().contains(r#"{protocol="sctp",kind="from_ue"} 1"#), "{}", metrics.render());
    assert_eq!(nodes.try_iter().collect::<Vec<_>>(), [(NODE.into(), true)]);
    node.shutdown(from_node);
    while !matches!(nodes.try_recv(), Ok((address, false)) if address == IpAddr::V4(NODE)) {
        assert!(Monotonic::now() < deadline, "the end of the association is not told");
        count_events(&mut *node);
        balancer.poll(Duration::ZERO).expect("it polls");
    }
}

/// The host gets the messages of both interfaces with a view in the protocol of the association,
/// and each answer leaves by its association under the identifier of its protocol.
#[test]
fn enb_and_gnb_share_balancer() {
    use vireo_core::amf::n2::Route;
    use vireo_types::{Dialect, Tmsi};
    let network = Network::new();
    let [ngap, s1ap] = [AMF.port(), S1_PORT].map(|port| network.bind(&n2(AMF.ip(), port)).expect("it binds"));
    let endpoint = vireo_sctp::pair(ngap, s1ap).expect("a pair");
    let (BalancerParts { mut balancer, commands: _outbound, .. }, inputs) = without_host(endpoint);
    let mut enb = network.bind(&n2(NODE.into(), 0)).expect("it binds");
    let own = enb.connect(SocketAddr::new(AMF.ip(), S1_PORT)).expect("it connects");
    balancer.poll(Duration::ZERO).expect("it polls");
    assert_eq!(count_events(&mut *enb), (1, 0));
    // An INITIAL UE MESSAGE with a SERVICE REQUEST, whose S-TMSI is in S1AP alone.
    let initial = {
        use vireo_wire::s1ap::*;
        let plmn = PLMNidentity(TBCDSTRING([0x99, 0xf9, 0x07]));
        let pdu = build_s1ap!(
            InitiatingMessage,
            initialUEMessage,
            InitialUEMessage,
            eNB_UE_S1AP_ID(7),
            NAS_PDU(vec![0xc7, 0, 1, 2]),
            TAI(helpers::tai(plmn, [0, 1])),
            EUTRAN_CGI(EUTRANCGI::new(plmn, CellIdentity(Bits::low(1, 28)), None)),
            RRC_Establishment_Cause(RRCEstablishmentCause::mo_Data),
            S_TMSI(STMSI::new(MMECode([3]), MTMSI([0xde, 0xad, 0xbe, 0xef]), None)),
        );
        pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
    };
    enb.send(own, 1, crate::PPID_NGAP, &initial).expect("it is sent");
    enb.send(own, 1, crate::PPID_S1AP, &initial).expect("it is sent");
    balancer.poll(Duration::ZERO).expect("it polls");
    let inputs: Vec<Input> = inputs.try_iter().collect();
    let [Input::Peer { .. }, Input::Peer { envelope, .. }] = &inputs[..] else { panic!("{inputs:?}") };
    let PeerEvent::Ngap { assoc, view: Some(view), pdu } = &envelope.event else { panic!("{envelope:?}") };
    assert_eq!((assoc.dialect(), pdu), (Dialect::Eps, &initial), "NGAP's identifier is another protocol's");
    assert!(matches!(view.route, Route::Initial { s_tmsi: Some((_, 3, Tmsi(0xdead_beef))), .. }), "{view:?}");
    balancer.execute(RanOutput::Ngap { assoc: *assoc, ue: None, pdu: vec![0x00, 15], key: 0 });
    let mut answer = None;
    let polled = enb.poll(Some(Duration::ZERO), &mut |event| {
        if let Sctp::Message { ppid, data, .. } = event {
            answer = Some((ppid, data.to_vec()));
        }
    });
    polled.expect("it is polled");
    assert_eq!(answer, Some((crate::PPID_S1AP, vec![0x00, 15])));
}

/// Associations of a peer that reads nothing, and MiB that wait for each.
const SILENT: usize = 21;
const WAITING: usize = 13;

/// A peer with hundreds of associations would otherwise use up the memory.
#[test]
fn unread_messages_are_limited_in_total() {
    let network = Network::new();
    let endpoint = network.bind(&n2(AMF.ip(), AMF.port())).expect("it binds");
    let (BalancerParts { mut balancer, commands: _outbound, .. }, inputs) = without_host(endpoint);
    let [mut node, mut silent] = [NODE, UE].map(|address| network.bind(&n2(address.into(), 0)).expect("it binds"));
    node.connect(AMF).expect("it connects");
    for _ in 0..SILENT {
        silent.connect(AMF).expect("it connects");
    }
    balancer.poll(Duration::ZERO).expect("it polls");
    let up = |event| match event {
        PeerEvent::Up { assoc, peer, .. } => (assoc, peer.ip() == IpAddr::V4(NODE)),
        other => panic!("{other:?}"),
    };
    let mut associations: Vec<(AssocId, bool)> = Vec::new();
    for _ in 0..2 {
        // The queue has room for 16.
        associations.extend(inputs.try_iter().map(event).map(up));
        balancer.release_deferred();
    }
    assert_eq!(associations.len(), SILENT + 1);
    for (assoc, is_node) in &associations {
        // The send buffer takes 16 messages.
        let (filled, waiting) = ([64 << 10; 17], if *is_node { WAITING / 3 } else { WAITING });
        for octets in filled.into_iter().chain(std::iter::repeat_n(1 << 20, waiting)) {
            balancer.execute(RanOutput::Ngap { assoc: *assoc, ue: None, pdu: vec![0; octets], key: 0 });
        }
    }
    balancer.poll(Duration::ZERO).expect("it polls");
    let total: usize = balancer.associations.values().map(|association| association.unsent_octets).sum();
    assert!(total <= unsent::TOTAL_LIMIT && balancer.associations.len() == SILENT - 1, "{total} bytes");
    for ended in inputs.try_iter().map(event) {
        let PeerEvent::Down { assoc, .. } = ended else { panic!("{ended:?}") };
        assert!(associations.contains(&(assoc, false)), "the peer with the most unread messages loses associations");
    }
}

/// Another RAN node determines size and number of the containers that a RAN node gets.
#[test]
fn relayed_containers_end_no_association() {
    use vireo_core::amf::n2::ShallowView;
    let network = Network::new();
    let endpoint = network.bind(&n2(AMF.ip(), AMF.port())).expect("it binds");
    let (BalancerParts { mut balancer, commands: _outbound, .. }, inputs) = without_host(endpoint);
    let mut node = network.bind(&n2(NODE.into(), 0)).expect("it binds");
    node.connect(AMF).expect("it connects");
    balancer.poll(Duration::ZERO).expect("it polls");
    let Some(PeerEvent::Up { assoc, .. }) = inputs.try_iter().map(event).next() else { panic!("no association") };
    let id = AmfUeNgapId::new(Ltmsi::from_raw(9), 3);
    let request = {
        use vireo_wire::ngap::*;
        let pdu = build_ngap!(
            InitiatingMessage,
            HandoverResourceAllocation,
            HandoverRequest,
            AMF_UE_NGAP_ID(id.get()),
            SourceToTarget_TransparentContainer(SourceToTargetTransparentContainer(vec![0; 60 << 10].into())),
        );
        pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
    };
    let send = |balancer: &mut Balancer, pdu: &[u8]| {
        balancer.execute(RanOutput::Ngap { assoc, ue: Some(id.ltmsi()), key: 0, pdu: pdu.to_vec() });
        balancer.associations.values().map(|association| association.unsent_octets).sum::<usize>()
    };
    // The send buffer of 1 MiB and the queue take some; the node reads none.
    for _ in 0..400 {
        send(&mut balancer, &request);
    }
    let unsent = send(&mut balancer, &request);
    assert!((2 << 20..3 << 20).contains(&unsent), "{unsent} bytes");
    let failures: Vec<PeerEvent> = inputs.try_iter().map(event).collect();
    let is_failure = |event: &PeerEvent| match event {
        PeerEvent::Ngap { assoc: target, view: Some(ShallowView { route, .. }), pdu } => {
            (*target, *route) == (assoc, Route::Ue(id)) && pdu.starts_with(&[0x40, 13])
        }
        _ => false,
    };
    assert!(!failures.is_empty() && failures.iter().all(is_failure), "{failures:?}");
    // DOWNLINK RAN STATUS TRANSFER has no answer, and DOWNLINK NAS TRANSPORT relays nothing.
    let answers = balancer.deferred.len();
    assert_eq!(send(&mut balancer, &[0x00, 7, 0x40, 0]), unsent);
    assert!(send(&mut balancer, &[0x00, 4, 0x40, 0]) > unsent);
    assert_eq!(balancer.deferred.len(), answers);
}

/// A machine that has all associations keeps no RAN node away.
#[test]
fn full_balancer_accepts_other_machine() {
    let network = Network::new();
    let endpoint = network.bind(&n2(AMF.ip(), AMF.port())).expect("it binds");
    let (BalancerParts { mut balancer, commands: _outbound, .. }, _inputs) = without_host(endpoint);
    balancer.admission.total = 3;
    let [mut node, mut other] = [NODE, UE].map(|address| network.bind(&n2(address.into(), 0)).expect("it binds"));
    for _ in 0..3 {
        other.connect(AMF).expect("it connects");
    }
    balancer.poll(Duration::ZERO).expect("it polls");
    node.connect(AMF).expect("it connects");
    balancer.poll(Duration::ZERO).expect("it polls");
    balancer.abort_overdue();
    balancer.poll(Duration::ZERO).expect("it polls");
    assert_eq!((count_events(&mut *node), count_events(&mut *other)), ((1, 0), (3, 1)));
    assert_eq!(balancer.associations.len(), 3);
    let metrics = balancer.metrics.render();
    assert!(metrics.contains(r#"vireo_n2_refused_total{reason="full"} 1"#), "{metrics}");
}

/// Host on the thread of the balancer that reads no inputs.
#[derive(Debug)]
struct IdleHost;

impl LocalHost for IdleHost {
    fn run_once(&mut self) -> HostTurn {
        HostTurn::Idle
    }

    fn sleep(&mut self) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn awake(&mut self) {}

    fn end(self: Box<Self>) {}
}

/// While inputs wait, the balancer reads no socket.
#[test]
fn deferred_inputs_reach_host_on_thread() {
    let network = Network::new();
    let endpoint = network.bind(&n2(AMF.ip(), AMF.port())).expect("it binds");
    let (BalancerParts { mut balancer, commands: _outbound, .. }, inputs) = without_host(endpoint);
    balancer.run_on_thread(Box::new(IdleHost));
    let mut node = network.bind(&n2(NODE.into(), 0)).expect("it binds");
    for _ in 0..SILENT {
        node.connect(AMF).expect("it connects");
    }
    balancer.poll(Duration::ZERO).expect("it polls");
    // The queue has room for 16.
    let first = inputs.try_iter().count();
    balancer.release_deferred();
    assert_eq!((first, inputs.try_iter().count()), (16, SILENT - 16));
}

/// A RAN node's message may follow from what the UPF did: the host gets the UPF's response first.
#[test]
fn responses_of_upf_precede_n2_and_s1() {
    responses_precede(AMF.port());
    responses_precede(S1_PORT);
}

/// Checks the order of a response and a message of a RAN node at a port of the balancer.
fn responses_precede(port: u16) {
    let upf = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP port");
    upf.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
    let address = upf.local_addr().expect("an address");
    let network = Network::new();
    let [ngap, s1ap] = [AMF.port(), S1_PORT].map(|port| network.bind(&n2(AMF.ip(), port)).expect("it binds"));
    let endpoint = vireo_sctp::pair(ngap, s1ap).expect("a pair");
    let config = n4::Config::new(Ipv4Addr::LOCALHOST.into(), vec![address], RecoveryTimeStamp(1), 1);
    let n4 = n4::Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), config, None).expect("a UDP port");
    let (input_sender, inputs) = HostSender::without_host();
    let parts = Balancer::with_local_host(endpoint, n4, input_sender, Arc::new(Metrics::new())).expect("it starts");
    let BalancerParts { mut balancer, commands: _outbound, .. } = parts;
    let mut node = network.bind(&n2(NODE.into(), 0)).expect("it binds");
    let own = node.connect(SocketAddr::new(AMF.ip(), port)).expect("it connects");
    balancer.poll(Duration::ZERO).expect("it polls");
    assert_eq!(count_events(&mut *node), (1, 0));
    balancer.poll_n4().expect("it polls");
    let mut request = [0; 512];
    let (_, from) = upf.recv_from(&mut request).expect("an association setup request");
    assert_eq!(request[..2], [0x20, 5]);
    // Association Setup Response (TS 29.244 table 7.4.4.2-1): Node ID, Cause, Recovery Time Stamp.
    let mut response = vec![0x20, 6, 0, 26, request[4], request[5], request[6], 0];
    response.extend([0, 60, 0, 5, 0, 127, 0, 0, 1]);
    response.extend([0, 19, 0, 1, 1]);
    response.extend([0, 96, 0, 4, 0, 0, 0, 9]);
    let ppid = if port == S1_PORT { crate::PPID_S1AP } else { crate::PPID_NGAP };
    node.send(own, 0, ppid, &[0, 15]).expect("it is sent");
    upf.send_to(&response, from).expect("it is sent");
    balancer.poll(Duration::ZERO).expect("it polls");
    let events: Vec<PeerEvent> = inputs.try_iter().map(event).collect();
    assert!(
        matches!(&events[..], [PeerEvent::Up { .. }, PeerEvent::Upf { up: true, .. }, PeerEvent::Ngap { .. }]),
        "{events:?}"
    );
}

fn event(input: Input) -> PeerEvent {
    match input {
        Input::Peer { envelope, .. } => envelope.event,
        other => panic!("{other:?}"),
    }
}
