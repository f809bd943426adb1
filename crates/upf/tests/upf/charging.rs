//! Policy and charging by slice.
//!
//! Users of two slices have gates, rates, thresholds and quotas. They migrate between the slices'
//! workers while they have traffic. The reported volume of each user must equal its traffic to the
//! octet, as counted by the remote sockets. The total must equal the IP octet counters of the RAN's
//! and the data network's kernels.

use crate::life::by;
use crate::world::*;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_datapath::SliceWorkers;
use vireo_ops::api::{MoveRequest, UserSelector};
use vireo_types::{Snssai, Teid};
use vireo_upf::{DataSlice, LeanSlice, UpfConfig, UpfHandle};
use vireo_wire::gtpu::{self, PduSession};
use vireo_wire::pfcp::*;

const N4: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 8);
const CONTROL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);
const SLICES: [&str; 2] = ["phones", "meters"];
const PORT: u16 = 5000;
/// Maximum packet size, and overhead of a tunnel: IPv4, UDP, and GTP-U with the QoS flow; in bytes.
const LONGEST: u64 = 1_300;
const TUNNEL: u64 = 20 + 8 + 16;
/// Duration of the traffic.
const SPAN: Duration = Duration::from_millis(1_500);
const THRESHOLD: u64 = 40_000;
const QUOTA: u64 = 60_000;
/// Number of times that a renewed plan gets another quota.
const GRANTS: u32 = 3;
const KBPS: u64 = 1_000;
/// Burst in bytes beyond that rate: 50 ms of it, or two long packets.
const BURST: u64 = 7_000;

/// Plan of a user. Each slice has one user of each plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Reported at each [`THRESHOLD`].
    Threshold,
    /// One quota, after which packets are dropped.
    Quota,
    /// The quota is renewed [`GRANTS`] times.
    Renewed,
    /// Limited to [`KBPS`] in each direction.
    Rate,
    /// The downlink gate is closed.
    UplinkOnly,
}

const PLANS: [Plan; 5] = [Plan::Threshold, Plan::Quota, Plan::Renewed, Plan::Rate, Plan::UplinkOnly];
const USERS: usize = PLANS.len() * SLICES.len();

fn plan(user: usize) -> Plan {
    PLANS[user % PLANS.len()]
}

fn ue(user: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(UE.to_bits() + user as u32)
}

/// Octets and packets of one user, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    up: (u64, u64),
    down: (u64, u64),
}

fn add(sum: &mut (u64, u64), octets: u64, packets: u64) {
    *sum = (sum.0 + octets, sum.1 + packets);
}

fn all(counts: &[Count]) -> Count {
    counts.iter().fold(Count::default(), |mut sum, count| {
        add(&mut sum.up, count.up.0, count.up.1);
        add(&mut sum.down, count.down.0, count.down.1);
        sum
    })
}

/// Reported usage of a user.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedUsage {
    seid: u64,
    count: Count,
    reports: u32,
    thresholds: u32,
    quotas: u32,
    granted: u32,
}

/// A control plane that answers reports and adds up their usage.
struct Charging {
    socket: UdpSocket,
    sequence: u32,
    reported: [ReportedUsage; USERS],
}

impl Charging {
    fn new(w: &World) -> Self {
        let socket = w.inside("upf", || UdpSocket::bind((CONTROL, vireo_wire::pfcp::PORT)).expect("bound"));
        let mut charging = Charging { socket, sequence: 0, reported: [ReportedUsage::default(); USERS] };
        let request = AssociationSetupRequest {
            node_id: NodeId::Ipv4(CONTROL),
            recovery_time_stamp: RecoveryTimeStamp(1),
            up_function_features: None,
            cp_function_features: None,
            session_retention: None,
        };
        let response: AssociationSetupResponse = charging.request(|out, sequence| request.emit(out, sequence));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
        charging
    }

    /// Sends a request and returns the response. Processes reports that arrive before it.
    fn request<T: Body>(&mut self, emit: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), TooLong>) -> T {
        self.sequence += 1;
        let mut octets = vec![];
        emit(&mut octets, self.sequence).expect("short");
        self.socket.send_to(&octets, (N4, vireo_wire::pfcp::PORT)).expect("sent");
        let mut buffer = [0; 4096];
        self.socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        loop {
            let (length, _) = self.socket.recv_from(&mut buffer).expect("an answer");
            let message = Message::new(&buffer[..length]).expect("sound");
            if message.message_type() == T::KIND && message.sequence() == self.sequence {
                return T::parse(&message).expect("the answer to this request");
            }
            self.report(&message);
        }
    }

    /// Processes reports for a time, and renews quotas.
    fn attend(&mut self, span: Duration) {
        let (until, mut buffer) = (Instant::now() + span, [0; 4096]);
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.socket.set_read_timeout(Some(left)).expect("set");
            if let Ok((length, _)) = self.socket.recv_from(&mut buffer) {
                self.report(&Message::new(&buffer[..length]).expect("sound"));
            }
        }
        for user in (0..USERS).filter(|user| plan(*user) == Plan::Renewed) {
            let ReportedUsage { seid, quotas, granted, .. } = self.reported[user];
            if quotas > granted && granted < GRANTS {
                self.reported[user].granted += 1;
                let mut request = SessionModificationRequest::default();
                let volume_quota = Some(VolumeQuota { total: Some(QUOTA), ..VolumeQuota::default() });
                request.update_urrs.push(UpdateUrr { urr_id: UrrId(3), volume_quota, ..UpdateUrr::default() });
                let response: SessionModificationResponse =
                    self.request(|out, sequence| request.emit(out, seid, sequence));
                assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
            }
        }
    }

    /// Handles a request of the UPF: a report or a heartbeat.
    fn report(&mut self, message: &Message<'_>) {
        if message.message_type() == HeartbeatRequest::KIND {
            let mut octets = vec![];
            let response = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(1) };
            response.emit(&mut octets, message.sequence()).expect("short");
            self.socket.send_to(&octets, (N4, vireo_wire::pfcp::PORT)).expect("sent");
            return;
        }
        let request = SessionReportRequest::parse(message).expect("a report");
        assert_eq!(request.report_type, ReportType::USAR);
        for report in &request.usage_reports {
            self.count(message.seid() as usize - 1, report);
        }
        let mut octets = vec![];
        let seid = self.reported[message.seid() as usize - 1].seid;
        SessionReportResponse::new(Cause::REQUEST_ACCEPTED).emit(&mut octets, seid, message.sequence()).expect("short");
        self.socket.send_to(&octets, (N4, vireo_wire::pfcp::PORT)).expect("sent");
    }

    fn count(&mut self, user: usize, report: &UsageReport) {
        let reported = &mut self.reported[user];
        assert_eq!(report.ur_seqn, UrSeqn(reported.reports), "none is missing, none comes twice");
        reported.reports += 1;
        reported.thresholds += u32::from(report.trigger.contains(UsageReportTrigger::VOLTH));
        reported.quotas += u32::from(report.trigger.contains(UsageReportTrigger::VOLQU));
        let volume = report.volume.expect("a volume");
        add(&mut reported.count.up, volume.uplink.expect("reported"), volume.uplink_packets.expect("reported"));
        add(&mut reported.count.down, volume.downlink.expect("reported"), volume.downlink_packets.expect("reported"));
        assert_eq!(volume.total, Some(volume.uplink.unwrap_or(0) + volume.downlink.unwrap_or(0)));
    }

    /// Creates a user's session, and returns its uplink TEID.
    fn establish(&mut self, user: usize) -> Teid {
        let mut request = establishment(ue(user), PREFIX);
        (request.node_id, request.cp_f_seid) = (NodeId::Ipv4(CONTROL), FSeid::new(user as u64 + 1, CONTROL.into()));
        request.snssai = Some(SliceId(Snssai { sst: 1 + (user / PLANS.len()) as u8, sd: None }));
        request.create_pdrs[1].pdi.ue_ip_addresses =
            std::iter::once(UeIpAddress::destination(Some(ue(user)), None)).collect();
        request.create_pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.push(UrrId(3)));
        request.create_fars[1].apply_action = ApplyAction::FORW;
        request.create_fars[1].forwarding_parameters = Some(ForwardingParameters {
            destination_interface: DestinationInterface::ACCESS,
            outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(1 + user as u32), GNB.into())),
            ..ForwardingParameters::default()
        });
        let mut urr = CreateUrr {
            urr_id: UrrId(3),
            measurement_method: MeasurementMethod::VOLUM,
            measurement_information: Some(MeasurementInformation::MNOP),
            ..CreateUrr::default()
        };
        let qer = &mut request.create_qers[0];
        match plan(user) {
            Plan::Threshold => {
                urr.reporting_triggers = ReportingTriggers::VOLTH;
                urr.volume_threshold = Some(VolumeThreshold { total: Some(THRESHOLD), ..VolumeThreshold::default() });
            }
            Plan::Quota | Plan::Renewed => {
                urr.reporting_triggers = ReportingTriggers::VOLQU;
                urr.volume_quota = Some(VolumeQuota { total: Some(QUOTA), ..VolumeQuota::default() });
            }
            Plan::Rate => qer.mbr = Some(Mbr { uplink_kbps: KBPS, downlink_kbps: KBPS }),
            Plan::UplinkOnly => qer.gate_status = GateStatus { uplink_closed: false, downlink_closed: true },
        }
        request.create_urrs.push(urr);
        let response: SessionEstablishmentResponse = self.request(|out, sequence| request.emit(out, 0, sequence));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
        self.reported[user].seid = response.up_f_seid.expect("accepted").seid;
        response.created_pdrs[0].f_teid.and_then(|f_teid| f_teid.teid()).expect("chosen")
    }

    /// Deletes a user's session, with its last report.
    fn delete(&mut self, user: usize) {
        let seid = self.reported[user].seid;
        let response: SessionDeletionResponse =
            self.request(|out, sequence| (SessionDeletionRequest {}).emit(out, seid, sequence));
        assert_eq!((response.cause, response.usage_reports.len()), (Cause::REQUEST_ACCEPTED, 1));
        self.count(user, &response.usage_reports[0].0);
    }
}

/// Returns the octets and packets of IPv4 that the kernel of a namespace has received.
fn received(w: &World, side: &str) -> (u64, u64) {
    let text = w.run(side, "cat /proc/net/snmp /proc/net/netstat");
    let value = |table: &str, name: &str| -> u64 {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(table)?.strip_prefix(": "));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let place = names.split(' ').position(|word| word == name).expect("the counter");
        values.split(' ').nth(place).and_then(|word| word.parse().ok()).expect("a number")
    };
    (value("IpExt", "InOctets"), value("Ip", "InReceives"))
}

/// Gives a socket a buffer for all packets of a test, so that a busy machine loses none.
pub(crate) fn takes_all(socket: &UdpSocket) {
    rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, 64 << 20).expect("root");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
}

/// Receives until `stop` is set and no more packets arrive.
fn receive(socket: &UdpSocket, stop: &AtomicBool, mut each: impl FnMut(SocketAddr, &[u8])) {
    let mut buffer = [0; 2048];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => each(from, &buffer[..length]),
            Err(_) if stop.load(Relaxed) => return,
            Err(_) => {}
        }
    }
}

/// Sends packets of all users in turn, with all lengths, for [`SPAN`].
fn send(mut one: impl FnMut(usize, usize)) -> u64 {
    let (began, mut rounds) = (Instant::now(), 0);
    while began.elapsed() < SPAN {
        for user in 0..USERS {
            one(user, 60 + (rounds as usize * 37 + user * 101) % (LONGEST as usize - 60));
        }
        rounds += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    rounds
}

/// Stops the receiving threads on drop, also if a check fails.
pub(crate) struct Receiving<'a>(pub(crate) &'a AtomicBool);

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs traffic in both directions while users migrate. Returns the counters of the remote sockets,
/// and the number of migrations.
fn traffic(w: &World, upf: &UpfHandle, charging: &mut Charging, teids: &[Teid]) -> ([Count; USERS], u64) {
    let server = w.inside("dn", || UdpSocket::bind((HOST, PORT)).expect("bound"));
    takes_all(&server);
    takes_all(&w.gnb);
    let stop = AtomicBool::new(false);
    let mut seen = [Count::default(); USERS];
    let mut moved = 0;
    std::thread::scope(|scope| {
        let at_server = scope.spawn(|| {
            let mut up = [(0, 0); USERS];
            receive(&server, &stop, |from, data| {
                let IpAddr::V4(from) = from.ip() else { return };
                add(&mut up[(from.to_bits() - UE.to_bits()) as usize], data.len() as u64 + 28, 1);
            });
            up
        });
        let at_gnb = scope.spawn(|| {
            let mut down = [(0, 0); USERS];
            receive(&w.gnb, &stop, |_, datagram| {
                let packet = gtpu::Packet::parse(datagram).expect("sound");
                assert_eq!(packet.kind, gtpu::MessageType::GPdu);
                add(&mut down[packet.teid.0 as usize - 1], packet.payload.len() as u64, 1);
            });
            down
        });
        let uplink = scope.spawn(|| {
            send(|user, octets| {
                let packet = udp(ue(user), HOST, PORT, &vec![0x5a; octets - 28]);
                let header = gtpu::g_pdu_header(teids[user], PduSession::Uplink { qfi: QFI }, octets).expect("short");
                w.gnb.send_to(&[&header[..], &packet].concat(), (UPF, gtpu::PORT)).expect("sent");
            })
        });
        let downlink = scope.spawn(|| {
            send(|user, octets| {
                server.send_to(&vec![0x5a; octets - 28], (ue(user), PORT)).expect("sent");
            })
        });
        let receiving = Receiving(&stop);
        let mut turn = 0;
        while !(uplink.is_finished() && downlink.is_finished()) {
            let user = turn % USERS;
            // each user migrates to the other slice and back
            let to = SLICES[(user / PLANS.len() + turn / USERS + 1) % SLICES.len()].to_owned();
            let users = UserSelector::Addresses(ue(user).into(), ue(user).into());
            moved += upf.move_users(&MoveRequest { users, to, worker: None }).expect("moved").moved;
            turn += 1;
            charging.attend(Duration::from_millis(1));
        }
        // packets and reports in flight arrive
        charging.attend(Duration::from_millis(200));
        drop(receiving);
        let (up, down) = (at_server.join().expect("no panic"), at_gnb.join().expect("no panic"));
        for (user, count) in seen.iter_mut().enumerate() {
            *count = Count { up: up[user], down: down[user] };
        }
        assert!(uplink.join().expect("no panic") > 300 && downlink.join().expect("no panic") > 300, "enough was sent");
    });
    (seen, moved)
}

/// Checks that a user's traffic matches its plan.
fn judge(user: usize, reported: &ReportedUsage) {
    let Count { up, down } = reported.count;
    let total = up.0 + down.0;
    let within = |quotas: u64| (quotas * QUOTA..quotas * QUOTA + quotas * LONGEST).contains(&total);
    match plan(user) {
        Plan::Threshold => {
            let due = total / (THRESHOLD + LONGEST);
            assert!(due > 3 && u64::from(reported.thresholds) >= due, "{reported:?}");
        }
        Plan::Quota => assert!(reported.quotas == 1 && within(1), "{reported:?}"),
        Plan::Renewed => {
            assert!(reported.quotas == GRANTS + 1 && within(u64::from(GRANTS) + 1), "{reported:?}");
        }
        Plan::Rate => {
            let most = SPAN.as_millis() as u64 * KBPS / 8;
            for (octets, _) in [up, down] {
                assert!((most / 2..most * 3 / 2 + BURST).contains(&octets), "{octets} of {most}: {reported:?}");
            }
        }
        Plan::UplinkOnly => assert!(down == (0, 0) && up.1 > 300, "{reported:?}"),
    }
}

/// Runs the test with a driver and a hot table for `hot_users` users. With a hot table the second
/// slice is an IoT slice, whose sessions are counted nevertheless if requested.
fn charged(driver: &str, hot_users: usize) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if driver == "xdp" && cpus < SLICES.len() {
        eprintln!("skipped: slices have a processor each with XDP");
        return;
    }
    let w = World::new();
    let slice = |sst: u8| DataSlice {
        name: SLICES[usize::from(sst) - 1].to_owned(),
        snssai: Some(Snssai { sst, sd: None }),
        dnns: vec![],
        // XDP assigns packets to processors
        workers: SliceWorkers { workers: 1, cores: if driver == "xdp" { vec![usize::from(sst) - 1] } else { vec![] } },
    };
    let base = if driver == "sockets" { config() } else { by(driver) };
    let simple = LeanSlice { snssai: Some(Snssai { sst: 2, sd: None }), dnns: vec![], is_only_slice: false };
    let lean = if hot_users > 0 { vec![simple] } else { vec![] };
    let upf = w
        .start(UpfConfig {
            n4: (N4, vireo_wire::pfcp::PORT).into(),
            slices: vec![slice(1), slice(2)],
            lean,
            hot_users,
            ..base
        })
        .expect("started");
    let mut charging = Charging::new(&w);
    let teids: Vec<Teid> = (0..USERS).map(|user| charging.establish(user)).collect();
    let before = [received(&w, "dn"), received(&w, "ran")];
    let (seen, moved) = traffic(&w, &upf, &mut charging, &teids);
    let after = [received(&w, "dn"), received(&w, "ran")];
    assert!(moved > 100, "{moved} users have moved");
    (0..USERS).for_each(|user| charging.delete(user));

    let [up, down] = [0, 1].map(|n| (after[n].0 - before[n].0, after[n].1 - before[n].1));
    let kernel = Count { up, down: (down.0 - TUNNEL * down.1, down.1) };
    let reported = charging.reported.map(|reported| reported.count);
    assert_eq!(all(&reported), kernel, "what was reported is what the kernels have counted");
    assert_eq!(reported, seen, "of each user");
    for (user, reported) in charging.reported.iter().enumerate() {
        judge(user, reported);
    }
    let stats = upf.stats();
    let forwarded = Count {
        up: (stats.packets.uplink.octets, stats.packets.uplink.packets),
        down: (stats.packets.downlink.octets, stats.packets.downlink.packets),
    };
    assert_eq!(forwarded, kernel, "so has the user plane");
    upf.stop();
}

#[test]
fn reported_usage_matches_packets_with_sockets() {
    charged("sockets", 0);
}

#[test]
fn reported_usage_matches_packets_with_rings() {
    charged("af-packet", 0);
}

#[test]
fn reported_usage_matches_packets_with_xdp() {
    charged("xdp", 0);
}

#[test]
fn usage_matches_packets_in_hot_table_by_sockets() {
    charged("sockets", 4);
}

#[test]
fn usage_matches_packets_in_hot_table_by_rings() {
    charged("af-packet", 4);
}
