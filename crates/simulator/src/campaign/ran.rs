//! Environment of the cluster, which does not fail.
//!
//! It has the emulator's gNBs, eNBs and UEs with timers and random procedures, a UPF that answers,
//! and the home network.

mod associations;
mod dialect;
mod handover_outcome;
mod home;
mod moves;

pub(super) use associations::{OpenBalancer, address, assoc, node_numbers};
pub(super) use home::authenticate;

use super::message::Input;
use super::network::{CLOCK_DIFFERENCE, Event, MS, Network, Process};
use super::oracle::Violation;
use associations::{Link, dialect_of, gnb_of, neighbour};
use dialect::{Node, NodeEvent, Phone, kind_of, requested_target, uplink_nas_of};
use handover_outcome::Move;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use vireo_core::config::{
    Charging, CiotConfig, CoreConfig, DnnConfig, EpsConfig, KeyLifetime, NetworkInformation, NodeName, PagingConfig,
    SecurityConfig, SliceConfig, SliceProfile, StaticPools, Timers, UpfConfig,
};
use vireo_core::placement::balance::BalancerId;
use vireo_emulator::gnb::{GnbConfig, Outbox};
use vireo_emulator::ue::{self, Cause, MmState, Profile, Registration, Service, UeOutput};
use vireo_emulator::usim::{Keys, Usim};
use vireo_emulator::{LAB_K, LAB_OPC, Rats};
use vireo_types::{
    AssocId, Dialect, Dnn, Duration, GnbId, PduSessionType, Plmn, RanUeNgapId, Seid, SessionAddress, Snssai, Supi, Tac,
    Tai, Teid,
};
use vireo_wire::pfcp::{self, Element};
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

const SLICE: Snssai = Snssai { sst: 1, sd: None };
/// RAN nodes of each dialect.
const GNBS: usize = 2;
/// RAN nodes of both dialects: the gNBs, then the eNBs.
pub(super) const NODES: usize = 2 * GNBS;
/// Time after which a UE abandons a procedure and retries on another connection.
const PROCEDURE_TIMEOUT: u64 = 1_500 * MS;

/// Event of the environment.
#[derive(Clone, Debug)]
pub(super) enum RanEvent {
    /// A gNB's PDU reaches its balancer.
    Uplink {
        assoc: AssocId,
        pdu: Rc<[u8]>,
    },
    /// A PDU with the name of its effect reaches a gNB.
    Downlink {
        assoc: AssocId,
        key: u64,
        pdu: Rc<[u8]>,
    },
    /// A gNB learns that an association has ended.
    Down(AssocId),
    /// A PFCP message of a balancer reaches the UPF, and its answer the balancer.
    Pfcp {
        by: Process,
        key: u64,
        seid: Option<Seid>,
        message: Rc<[u8]>,
    },
    Answer {
        by: Process,
        key: u64,
        seid: Seid,
        message: Rc<[u8]>,
    },
    /// An uplink PDU reaches the balancer again, if the gNB still has this connection.
    Replay {
        assoc: AssocId,
        ran: RanUeNgapId,
        pdu: Rc<[u8]>,
    },
    /// The balancer releases a connection without a context.
    Stale {
        assoc: AssocId,
        ran: RanUeNgapId,
        pdu: Rc<[u8]>,
    },
    /// The UPF reports downlink data of a session.
    Report,
    /// The RAN nodes start NG Setup or S1 Setup.
    SetUp,
    /// A UE starts a procedure.
    StartProcedure(usize),
    /// The timeout of a UE's procedure with this turn number.
    Timeout(usize, u32),
}

/// Event that a UE waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UeWait {
    Registered,
    Served,
    SessionUp(u8),
    SessionReleased(u8),
    Deregistered,
    Released,
    Switched,
    /// The command of a handover to the other system.
    Moved,
}

#[derive(Debug)]
struct Device {
    ue: Phone,
    at: usize,
    ran: Option<RanUeNgapId>,
    wait: Option<UeWait>,
    /// Associations of the gNB from which the UE was handed over last.
    source: Vec<AssocId>,
    moving: Option<Move>,
    /// True after a handover to the other system, until the UE has registered there.
    is_arriving: bool,
    /// Time of the last registration.
    registered: u64,
    attempt: u32,
    done: u64,
    last_done: u64,
}

/// All RAN nodes, UEs and the UPF.
#[derive(Debug)]
pub(super) struct Ran {
    /// All nodes; without associations those of a dialect that the simulation lacks.
    nodes: Vec<Node>,
    devices: Vec<Device>,
    profile: Profile,
    /// Answers of the UPF by the names of the requests.
    answered: BTreeMap<u64, Rc<[u8]>>,
    /// Number of requests of the UPF and to it.
    requests: u64,
    /// Sessions of the UPF.
    sessions: BTreeSet<Seid>,
    /// Associations of each gNB.
    links: [Vec<Link>; NODES],
    /// Addresses of balancers to which each gNB opens associations: all that are true, or one of
    /// them if both are false.
    configured: [[bool; 2]; NODES],
    /// Number of associations that the gNBs have opened.
    opened: u32,
    /// Names of the effects that the gNBs have received.
    received: BTreeSet<u64>,
    /// Commands to release connections that the AMF does not know, as sent.
    stale: BTreeSet<Rc<[u8]>>,
    /// Connections that the core has requested for handovers: RAN nodes and identifiers of the
    /// core.
    requested: BTreeSet<(usize, u64)>,
    /// Number of UEs that were handed over to the other system.
    moves: u64,
}

fn plmn() -> Plmn {
    "99970".parse().expect("5 digits")
}

fn internet() -> Dnn {
    "internet".parse().expect("a label")
}

/// Returns the core's configuration for these radio access technologies.
pub(super) fn config_of_rats(rats: Rats) -> CoreConfig {
    CoreConfig { eps: EpsConfig { interworks: rats == Rats::Both, ..EpsConfig::default() }, ..config() }
}

/// Returns the configuration with timers that expire within a simulation.
pub(super) fn config_with_short_timers(rats: Rats) -> CoreConfig {
    config_with_timers(rats, (Duration::from_millis(500), Duration::from_millis(900)))
}

/// Returns the configuration with timers that expire while a host is slow or a link is cut.
///
/// The fifth expiry of T3450 ends the registration of a 4G UE (TS 24.301 5.5.1.2.7), that of T3550
/// does not (TS 24.501 5.5.1.2.8). Effects wait for a dead replica for up to 200 ms.
pub(super) fn config_with_shortest_timers(rats: Rats) -> CoreConfig {
    let t35xx = if rats == Rats::Nr { 40 } else { 120 };
    config_with_timers(rats, (Duration::from_millis(60), Duration::from_millis(t35xx)))
}

fn config_with_timers(rats: Rats, (t3513, t35xx): (Duration, Duration)) -> CoreConfig {
    let timers = Timers { t3513, t3550: t35xx, t3560: t35xx, t3570: t35xx, t3522: t35xx, ..Timers::default() };
    CoreConfig { timers, ..config_of_rats(rats) }
}

/// Returns the core's configuration.
pub(crate) fn config() -> CoreConfig {
    CoreConfig {
        name: "vireo".into(),
        plmns: vec![plmn()],
        tacs: vec![Tac(1), Tac(2)],
        amf_region: 2,
        amf_set: 1,
        amf_pointer: 0,
        relative_capacity: 255,
        slices: vec![SliceConfig {
            name: "phones".into(),
            snssai: SLICE,
            profile: SliceProfile::Full,
            charging: Charging::default(),
        }],
        dnns: vec![DnnConfig {
            name: internet(),
            slices: Vec::new(),
            types: vec![PduSessionType::Ipv4],
            ipv4_pool: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
            ipv6_pool: None,
            dns: Vec::new(),
            p_cscf: Vec::new(),
            mtu: 1400,
            static_pools: StaticPools::default(),
            up_security: None,
        }],
        security: SecurityConfig {
            integrity: vec![IntegrityAlgorithm::NIA2],
            ciphering: vec![CipheringAlgorithm::NEA2],
            key_lifetime: KeyLifetime::default(),
        },
        timers: Timers::default(),
        paging: PagingConfig::default(),
        ciot: CiotConfig::default(),
        upfs: vec![UpfConfig {
            name: "upf".into(),
            n4: SocketAddr::from((UPF, 8805)),
            dnns: Vec::new(),
            n3_ipv6: false,
        }],
        n4_address: Ipv4Addr::LOCALHOST.into(),
        n4_node: NodeName::Address(Ipv4Addr::LOCALHOST.into()),
        ran: Default::default(),
        smf_is_remote: false,
        eps: EpsConfig::default(),
        information: NetworkInformation::default(),
    }
}

/// Returns the keys of all subscribers.
fn keys() -> Keys {
    Keys { k: LAB_K, opc: LAB_OPC }
}

const UPF: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 8);

/// Returns an address of a host's pool partition.
pub(super) fn session_address(host: u16, number: u16) -> SessionAddress {
    let [high, low] = number.to_be_bytes();
    SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45 + host as u8, high, low)), ipv6_prefix: None }
}

/// Sends a PDU with the name of its effect on an association, in order.
pub(super) fn down(network: &mut Network, assoc: AssocId, key: u64, pdu: Rc<[u8]>) {
    let last = network.down.get(&assoc).copied().unwrap_or_default();
    let at = (network.clock.now() + network.random.random_range(50..300)).max(last + 1);
    network.down.insert(assoc, at);
    network.clock.at(at, Event::Ran(RanEvent::Downlink { assoc, key, pdu }));
}

impl Ran {
    pub(super) fn new(network: &mut Network, ues: usize) -> Self {
        let config = |n: usize| GnbConfig {
            id: GnbId { plmn: plmn(), id: 1 + n as u32, bits: 24 }.into(),
            name: format!("gnb-{n}"),
            tai: Tai { plmn: plmn(), tac: Tac(1 + (n % GNBS) as u32) },
            slices: vec![SLICE],
            n3: Ipv4Addr::new(127, 0, 1, 1 + n as u8).into(),
        };
        let device = |n: usize| {
            let supi: Supi = format!("99970{:010}", n + 1).parse().expect("15 digits");
            let (dialect, at) = associations::place_of_ue(network.rats, n);
            let ue = Phone::new(dialect, Usim::new(supi, keys()));
            Device {
                ue,
                at,
                ran: None,
                wait: None,
                source: Vec::new(),
                moving: None,
                is_arriving: false,
                registered: 0,
                attempt: 0,
                done: 0,
                last_done: 0,
            }
        };
        let mut profile = Profile::new(plmn(), SLICE, internet());
        profile.interworks = network.config.eps.interworks;
        if network.has_several_balancers {
            network.clock.after(100 * MS, Event::Connect);
        } else {
            network.clock.after(100 * MS, Event::Ran(RanEvent::SetUp));
        }
        for n in 0..ues {
            let at = network.random.random_range(300 * MS..500 * MS);
            network.clock.after(at, Event::Ran(RanEvent::StartProcedure(n)));
        }
        Ran {
            nodes: (0..NODES).map(|n| if n < GNBS { Node::gnb(config(n)) } else { Node::enb(config(n)) }).collect(),
            devices: (0..ues).map(device).collect(),
            profile,
            answered: BTreeMap::new(),
            requests: 0,
            sessions: BTreeSet::new(),
            links: associations::first_links(network),
            configured: associations::draw_configured(network),
            opened: 0,
            received: BTreeSet::new(),
            stale: BTreeSet::new(),
            requested: BTreeSet::new(),
            moves: 0,
        }
    }

    /// Returns the number of UEs that were handed over to the other system.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// Returns the number of completed procedures.
    pub(super) fn procedures(&self) -> u64 {
        self.devices.iter().map(|device| device.done).sum()
    }

    /// Returns a UE that has completed no procedure since `time`.
    pub(super) fn stuck_since(&self, time: u64) -> Option<usize> {
        self.devices.iter().position(|device| device.last_done < time)
    }

    /// Handles an event. Returns the input of a balancer; without a process, of the one that holds
    /// N4.
    pub(super) fn on_event(&mut self, network: &mut Network, event: RanEvent) -> Option<(Option<Process>, Input)> {
        match event {
            RanEvent::Uplink { assoc, pdu } => return self.on_uplink(network, assoc, pdu),
            RanEvent::Replay { assoc, ran, pdu } => {
                let stays = self.nodes[gnb_of(assoc)].owner(ran).is_some();
                return stays.then(|| self.on_uplink(network, assoc, pdu)).flatten();
            }
            RanEvent::Down(assoc) => self.association_lost(network, assoc),
            RanEvent::Stale { assoc: of, ran, pdu } => {
                let connected = |device: &Device| device.at == gnb_of(of) && device.ran == Some(ran);
                let is_lost = network.oracle.is_gone(BalancerId(of.balancer()));
                if let Some(n) = self.devices.iter().position(connected).filter(|_| !is_lost)
                    && !self.has_lost_source(network, n)
                {
                    network.oracle.record_violation(Violation::Disconnected(n));
                }
                self.stale.insert(Rc::clone(&pdu));
                down(network, of, 0, pdu);
            }
            RanEvent::Answer { by, key, seid, message } => {
                if let Some(until) = network.stopped_until(by) {
                    network.clock.at(until, Event::Ran(RanEvent::Answer { by, key, seid, message }));
                } else if network.is_alive(by) {
                    network.oracle.on_effect_void(key);
                    return Some((Some(by), Input::Pfcp { seid, is_request: false, message }));
                }
            }
            RanEvent::Report => return self.report(network).map(|report| (None, report)),
            RanEvent::Downlink { assoc, key, pdu } => self.on_downlink(network, assoc, key, &pdu),
            RanEvent::Pfcp { by, key, seid, message } => self.upf(network, (by, key), seid, &message),
            RanEvent::SetUp => {
                for n in node_numbers(network.rats) {
                    let mut out = Outbox::default();
                    self.nodes[n].attach(0, 4, &mut out);
                    self.send(network, n, &out);
                }
            }
            RanEvent::StartProcedure(n) => self.start_procedure(network, n),
            RanEvent::Timeout(n, attempt) => {
                if self.devices[n].attempt == attempt && self.devices[n].wait.is_some() {
                    self.on_ue_timeout(network, n);
                }
            }
        }
        None
    }

    /// Sends a gNB's PDUs to the balancer in order.
    fn send(&mut self, network: &mut Network, gnb: usize, out: &Outbox) {
        for (way, pdu) in out.routes() {
            let Some(link) = self.links[gnb].iter_mut().find(|link| link.by == way.by) else { continue };
            let at = link.arrival(network);
            let (assoc, pdu): (AssocId, Rc<[u8]>) = (link.assoc, pdu.into());
            if let Some(ran) = uplink_nas_of(assoc.dialect(), &pdu)
                && network.clock.now() < network.faulty_until
                && network.random.random_bool(0.05)
            {
                // An attacker replays a message of the UE.
                let later = at + network.random.random_range(MS..300 * MS);
                network.clock.at(later, Event::Ran(RanEvent::Replay { assoc, ran, pdu: Rc::clone(&pdu) }));
            }
            network.clock.at(at, Event::Ran(RanEvent::Uplink { assoc, pdu }));
        }
    }

    /// Sends the messages of a UE.
    fn send_ue_messages(&mut self, network: &mut Network, n: usize, mut out: UeOutput) {
        for event in std::mem::take(&mut out.events) {
            self.on_ue_event(network, n, event);
        }
        let mut sent = Outbox::default();
        let device = &mut self.devices[n];
        let node = &mut self.nodes[device.at];
        for nas in out.messages() {
            match device.ran {
                Some(ran) => node.uplink_nas(ran, nas, &mut sent),
                None => device.ran = node.initial_ue(n as u32, nas, device.ue.access_guti(), &mut sent),
            }
        }
        let at = device.at;
        self.send(network, at, &sent);
    }

    /// Handles an event of a UE.
    fn on_ue_event(&mut self, network: &mut Network, n: usize, event: ue::Event) {
        let lost = |network: &mut Network| {
            network.trace(format!("UE {n}: {event:?}"));
            network.oracle.record_violation(Violation::Lost(n));
        };
        let is = match event {
            ue::Event::Registered { .. } => {
                (self.devices[n].is_arriving, self.devices[n].registered) = (false, network.clock.now());
                UeWait::Registered
            }
            ue::Event::ServiceAccepted => UeWait::Served,
            ue::Event::SessionUp { psi, .. } => UeWait::SessionUp(psi),
            ue::Event::SessionReleased { psi } => UeWait::SessionReleased(psi),
            ue::Event::Deregistered => UeWait::Deregistered,
            ue::Event::Violation(violation) => return network.oracle.record_violation(Violation::Ue(n, violation)),
            // #9: UE identity cannot be derived by the network; #10: implicitly deregistered; #40
            // in EMM: no EPS bearer context activated.
            ue::Event::ServiceRejected { cause: 9 | 10 | 40, .. }
            | ue::Event::RegistrationRejected { cause: 9 | 10 | 40, .. }
            | ue::Event::DeregisteredByNetwork { .. } => {
                return lost(network);
            }
            ue::Event::SessionRejected { cause: Cause::Mm(9 | 10), .. } | ue::Event::AuthenticationRejected => {
                return lost(network);
            }
            ue::Event::RegistrationRejected { .. }
            | ue::Event::ServiceRejected { .. }
            | ue::Event::SessionRejected { .. } => return self.complete(network, n, false),
            _ => return,
        };
        if self.devices[n].wait == Some(is) {
            self.complete(network, n, true);
        }
    }

    /// Completes a UE's procedure and schedules the next one.
    fn complete(&mut self, network: &mut Network, n: usize, is_successful: bool) {
        self.end_move(n);
        let device = &mut self.devices[n];
        device.wait = None;
        device.attempt += 1;
        if is_successful {
            device.done += 1;
            device.last_done = network.clock.now();
        }
        let after = network.random.random_range(20 * MS..250 * MS);
        network.clock.after(after, Event::Ran(RanEvent::StartProcedure(n)));
    }

    /// Handles the timeout of a UE's procedure: the UE abandons its connection and tries a
    /// procedure on another one.
    fn on_ue_timeout(&mut self, network: &mut Network, n: usize) {
        let (at, ran) = (self.devices[n].at, self.devices[n].ran.take());
        let mut out = Outbox::default();
        if let Some(ran) = ran {
            self.nodes[at].abandon(ran, &mut out);
        }
        self.devices[n].ue.connection_released();
        self.send(network, at, &out);
        self.complete(network, n, false);
    }

    fn start_procedure(&mut self, network: &mut Network, n: usize) {
        let device = &mut self.devices[n];
        // Hosts compare the times of a subscriber's registrations, each by its own clock.
        let is_too_early = device.ue.mm() == MmState::Deregistered
            && device.registered != 0
            && network.clock.now() < device.registered + CLOCK_DIFFERENCE;
        if device.wait.is_some() || is_too_early || !self.nodes[device.at].is_up() {
            network.clock.after(50 * MS, Event::Ran(RanEvent::StartProcedure(n)));
            return;
        }
        device.attempt += 1;
        let attempt = device.attempt;
        network.clock.after(PROCEDURE_TIMEOUT, Event::Ran(RanEvent::Timeout(n, attempt)));
        let choice = network.random.random_range(0..100);
        match (device.ue.mm(), device.ran) {
            (MmState::Registered, _) if device.is_arriving => self.register_after_move(network, n),
            (MmState::Registered, None) => self.start_idle_procedure(network, n, choice),
            (MmState::Registered, Some(ran)) if device.ue.dialect() == Dialect::Eps => {
                self.start_connected_procedure_of_eps(network, n, ran, choice);
            }
            (MmState::Registered, Some(ran)) => self.start_connected_procedure(network, n, ran, choice),
            (MmState::Deregistered, None) => {
                let kind = if choice < 20 { Registration::Fresh } else { Registration::Initial };
                self.start(network, n, UeWait::Registered, |ue, p, out| ue.register(p, kind, out).is_ok());
            }
            // A connection that is not released yet.
            _ => self.on_ue_timeout(network, n),
        }
    }

    /// Starts a procedure of an idle UE.
    fn start_idle_procedure(&mut self, network: &mut Network, n: usize, choice: u32) {
        match choice {
            0..60 => {
                self.start(network, n, UeWait::Served, |ue, _, out| ue.service_request(Service::Data, out).is_ok())
            }
            60..80 => {
                self.devices[n].at = neighbour(self.devices[n].at);
                self.start(network, n, UeWait::Registered, |ue, p, out| {
                    ue.register(p, Registration::Mobility, out).is_ok()
                });
            }
            80..90 => {
                self.start(network, n, UeWait::Registered, |ue, p, out| {
                    ue.register(p, Registration::Periodic, out).is_ok()
                });
            }
            _ => self.start(network, n, UeWait::Deregistered, |ue, p, out| ue.deregister(p, out).is_ok()),
        }
    }

    /// Starts a procedure of a connected UE.
    fn start_connected_procedure(&mut self, network: &mut Network, n: usize, ran: RanUeNgapId, choice: u32) {
        match (choice, self.devices[n].ue.active_session()) {
            (0..30, None) => {
                self.start(network, n, UeWait::SessionUp(1), |ue, p, out| ue.establish(p, 1, out).is_ok());
            }
            (0..10, Some(psi)) => {
                self.start(network, n, UeWait::SessionReleased(psi), |ue, _, out| ue.release(psi, out).is_ok());
            }
            (10..25, Some(_)) if self.has_moves(network) => self.system_handover(network, n, ran),
            (10..45, Some(_)) => self.xn_handover(network, n, ran),
            (0..55, _) => {
                self.start(network, n, UeWait::Deregistered, |ue, p, out| ue.deregister(p, out).is_ok());
            }
            _ => self.release(network, n, ran),
        }
    }

    /// Starts a procedure of a connected UE of EPS.
    fn start_connected_procedure_of_eps(&mut self, network: &mut Network, n: usize, ran: RanUeNgapId, choice: u32) {
        match choice {
            0..15 => self.start(network, n, UeWait::Deregistered, |ue, p, out| ue.deregister(p, out).is_ok()),
            15..35 => self.reset(network, self.devices[n].at, Some(&[ran])),
            35..38 => self.reset(network, self.devices[n].at, None),
            38..50 if self.has_moves(network) => self.system_handover(network, n, ran),
            38..60 => self.xn_handover(network, n, ran),
            // A radio link failure.
            60..66 => self.on_ue_timeout(network, n),
            _ => self.release(network, n, ran),
        }
    }

    /// Releases the connection of an inactive UE.
    fn release(&mut self, network: &mut Network, n: usize, ran: RanUeNgapId) {
        let (at, mut out) = (self.devices[n].at, Outbox::default());
        let is_requested = self.nodes[at].request_release(ran, &mut out);
        self.devices[n].wait = Some(UeWait::Released);
        self.send(network, at, &out);
        if !is_requested {
            self.on_ue_timeout(network, n);
        }
    }

    /// Resets these connections of an eNB, or all.
    fn reset(&mut self, network: &mut Network, at: usize, ues: Option<&[RanUeNgapId]>) {
        let mut out = Outbox::default();
        let owners = self.nodes[at].reset(ues, &mut out);
        self.send(network, at, &out);
        if ues.is_none() {
            // The core may receive the reset of a source before the path switch.
            let links: Vec<AssocId> = self.links[at].iter().map(|link| link.assoc).collect();
            self.devices.iter_mut().for_each(|device| device.source.retain(|assoc| !links.contains(assoc)));
        }
        let count = self.devices.len();
        for n in owners.into_iter().map(|owner| owner as usize).filter(|n| *n < count) {
            // An abandoned connection is none of its UE any more.
            let is_gone = |ran: RanUeNgapId| self.nodes[at].owner(ran).is_none();
            if self.devices[n].at == at && self.devices[n].ran.is_some_and(is_gone) {
                self.devices[n].ran = None;
                self.devices[n].ue.connection_released();
                self.complete(network, n, false);
            }
        }
    }

    /// Hands the UE over to the other RAN node of its dialect, by Xn or X2. A node whose NG or S1
    /// Setup is not answered yet accepts none. With two balancers there is no X2 handover.
    fn xn_handover(&mut self, network: &mut Network, n: usize, ran: RanUeNgapId) {
        let (at, to) = (self.devices[n].at, neighbour(self.devices[n].at));
        // An eNB asks the MME of the UE for the path switch. The emulator's eNB uses any.
        let is_other_mme = network.has_several_balancers && dialect_of(at) == Dialect::Eps;
        if is_other_mme || !self.nodes[to].is_up() {
            return self.on_ue_timeout(network, n);
        }
        let capability = (self.profile.ciphering, self.profile.integrity);
        let Some(mut handover) = self.nodes[at].take_handover_context(ran, capability) else {
            return self.on_ue_timeout(network, n);
        };
        if self.profile.interworks {
            handover.eutra_capability = capability;
        }
        let mut out = Outbox::default();
        let source = self.links[at].iter().map(|link| link.assoc).collect();
        let device = &mut self.devices[n];
        (device.at, device.source) = (to, source);
        device.ran = self.nodes[to].path_switch(handover, &mut out);
        device.wait = Some(UeWait::Switched);
        self.send(network, to, &out);
    }

    fn start(
        &mut self,
        network: &mut Network,
        n: usize,
        wait: UeWait,
        act: impl FnOnce(&mut Phone, &Profile, &mut UeOutput) -> bool,
    ) {
        let mut out = UeOutput::default();
        self.devices[n].wait = Some(wait);
        if act(&mut self.devices[n].ue, &self.profile, &mut out) {
            self.send_ue_messages(network, n, out);
        } else {
            self.on_ue_timeout(network, n);
        }
    }

    fn on_downlink(&mut self, network: &mut Network, assoc: AssocId, key: u64, pdu: &[u8]) {
        let mut out = Outbox::default();
        let gnb = gnb_of(assoc);
        let Some(by) = self.links[gnb].iter().find(|link| link.assoc == assoc).map(|link| link.by) else { return };
        // A gNB recognises the repeat of a message that another balancer has sent.
        if network.has_several_balancers && key != 0 && !self.received.insert(key) {
            return;
        }
        self.requested.extend(requested_target(dialect_of(gnb), pdu).map(|id| (gnb, id)));
        let events = self.nodes[gnb].receive_by((gnb, by), pdu, &mut out);
        self.send(network, gnb, &out);
        for (owner, event) in events {
            let owner = owner.map(|owner| owner as usize).filter(|n| *n < self.devices.len());
            match (event, owner) {
                (NodeEvent::Violation(violation), _) if violation.is_unknown_ue() && self.stale.contains(pdu) => {
                    // A later procedure by another RAN node overtook this one's messages on their
                    // way to the owner, and it has released the UE meanwhile.
                }
                (NodeEvent::Violation(violation), _)
                    if violation.is_unknown_ue() && self.is_release_crossed(gnb, pdu) => {}
                (NodeEvent::Violation(violation), _) => {
                    let kind = kind_of(dialect_of(gnb), pdu);
                    let doing = self.devices.iter().map(|device| (device.at, device.ran, device.wait));
                    let doing: Vec<_> = doing.collect();
                    network.trace(format!("RAN node {gnb} is sent {kind} {pdu:02x?}; UEs are at {doing:?}"));
                    network.oracle.record_violation(Violation::Node(violation));
                }
                (NodeEvent::Paging(tmsi), _) => self.paged(network, gnb, tmsi),
                (NodeEvent::HandoverPrepared(prepared), Some(n)) => self.on_prepared(network, n, gnb, prepared),
                (event, Some(n)) if self.devices[n].at == gnb => self.on_node_event(network, n, &event),
                _ => {}
            }
        }
    }

    fn on_node_event(&mut self, network: &mut Network, n: usize, event: &NodeEvent) {
        let mut out = UeOutput::default();
        match event {
            NodeEvent::Nas(nas) => self.devices[n].ue.receive(&self.profile, nas, &mut out),
            NodeEvent::ContextSetup(key) => self.devices[n].ue.check_access_key(key, &mut out),
            NodeEvent::PathSwitched { key, chaining, renewed } => {
                let ue = &mut self.devices[n].ue;
                match *renewed {
                    true => ue.check_access_key(key, &mut out),
                    false => ue.check_next_hop(key, *chaining, &mut out),
                }
                if self.devices[n].wait == Some(UeWait::Switched) {
                    self.complete(network, n, true);
                }
            }
            NodeEvent::HandoverCommand { target, nas } => self.on_command(network, n, *target, nas),
            NodeEvent::HandoverRefused | NodeEvent::HandoverCancelled
                if self.devices[n].wait == Some(UeWait::Moved) =>
            {
                self.complete(network, n, *event == NodeEvent::HandoverCancelled);
            }
            NodeEvent::PathSwitchFailed | NodeEvent::Released => {
                if let Some(ran) = self.devices[n].ran.take() {
                    // Its release may follow.
                    self.nodes[self.devices[n].at].drop_connection(ran);
                }
                self.devices[n].ue.connection_released();
                let is_successful = self.devices[n].wait == Some(UeWait::Released);
                if self.devices[n].wait.is_some() {
                    self.complete(network, n, is_successful);
                }
            }
            _ => {}
        }
        self.send_ue_messages(network, n, out);
    }

    fn paged(&mut self, network: &mut Network, gnb: usize, tmsi: vireo_types::Tmsi) {
        let is_paged = |device: &Device| {
            let named = device.ue.guti().is_some_and(|guti| guti.tmsi == tmsi);
            let is_idle = device.ran.is_none() && device.wait.is_none() && !device.is_arriving;
            named && device.at == gnb && is_idle
        };
        if let Some(n) =
            self.devices.iter().position(|device| is_paged(device) && device.ue.mm() == MmState::Registered)
        {
            let attempt = self.devices[n].attempt + 1;
            self.devices[n].attempt = attempt;
            network.clock.after(PROCEDURE_TIMEOUT, Event::Ran(RanEvent::Timeout(n, attempt)));
            self.start(network, n, UeWait::Served, |ue, _, out| ue.service_request(Service::Paged, out).is_ok());
        }
    }

    /// Schedules the UPF's first report.
    pub(super) fn start_reports(network: &mut Network) {
        network.clock.after(500 * MS, Event::Ran(RanEvent::Report));
    }

    /// Returns the UPF's report of downlink data for any session.
    fn report(&mut self, network: &mut Network) -> Option<Input> {
        let after = network.random.random_range(2 * MS..150 * MS);
        network.clock.after(after, Event::Ran(RanEvent::Report));
        let which = network.random.random_range(0..self.sessions.len().max(1));
        let seid = *self.sessions.iter().nth(which)?;
        self.requests += 1;
        let (mut octets, kind) = (Vec::new(), pfcp::MessageType::SESSION_REPORT_REQUEST);
        let mut report = pfcp::Builder::new(&mut octets, kind, Some(seid.0), self.requests as u32);
        report.put(&pfcp::ReportType::DLDR);
        report.group(pfcp::DownlinkDataReport::ID, |data| {
            data.put(&pfcp::PdrId(2));
        });
        report.finish().ok()?;
        Some(Input::Pfcp { seid, is_request: true, message: octets.into() })
    }

    /// Executes a PFCP request once. The UPF answers each repeat of it.
    fn upf(&mut self, network: &mut Network, (by, key): (Process, u64), seid: Option<Seid>, request: &[u8]) {
        let Some(seid) = seid else { return };
        let answer = match self.answered.get(&key) {
            Some(answer) => Rc::clone(answer),
            None => {
                self.requests += 1;
                let Some(answer) = answer(seid, request, self.requests) else { return };
                match pfcp::Message::new(request).map(|message| message.message_type()) {
                    Ok(pfcp::MessageType::SESSION_ESTABLISHMENT_REQUEST) => drop(self.sessions.insert(seid)),
                    Ok(pfcp::MessageType::SESSION_DELETION_REQUEST) => drop(self.sessions.remove(&seid)),
                    _ => {}
                }
                self.answered.entry(key).or_insert_with(|| answer.into()).clone()
            }
        };
        let after = network.delay();
        network.clock.after(after, Event::Ran(RanEvent::Answer { by, key, seid, message: answer }));
    }
}

/// Returns a UPF's answer to a session request.
fn answer(seid: Seid, request: &[u8], number: u64) -> Option<Vec<u8>> {
    let message = pfcp::Message::new(request).ok()?;
    let kind = match message.message_type() {
        pfcp::MessageType::SESSION_ESTABLISHMENT_REQUEST => pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE,
        pfcp::MessageType::SESSION_MODIFICATION_REQUEST => pfcp::MessageType::SESSION_MODIFICATION_RESPONSE,
        pfcp::MessageType::SESSION_DELETION_REQUEST => pfcp::MessageType::SESSION_DELETION_RESPONSE,
        _ => return None,
    };
    let mut octets = Vec::new();
    let mut answer = pfcp::Builder::new(&mut octets, kind, Some(seid.0), 0);
    answer.put(&pfcp::NodeId::Ipv4(UPF)).put(&pfcp::Cause::REQUEST_ACCEPTED);
    if kind == pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE {
        let address = IpAddr::from(UPF);
        answer.put(&pfcp::FSeid::new(number, address));
        answer.group(pfcp::CreatedPdr::ID, |pdr| {
            pdr.put(&pfcp::PdrId(1)).put(&pfcp::FTeid::new(Teid(0x100 + number as u32), address));
        });
    }
    answer.finish().ok()?;
    Some(octets)
}
