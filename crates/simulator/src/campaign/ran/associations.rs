//! Associations of the RAN nodes with the balancers.
//!
//! With two balancers, a gNB has an association with each or only with one. It loses an association
//! with its balancer. Then it continues by the other one, or its UEs become idle and it sets up NG
//! with the other balancer. An eNB sets up S1 on each association; the UEs of a lost one become
//! idle.

use super::dialect::opened_connection;
use super::{Device, GNBS, MS, NODES, Network, Process, Ran, RanEvent, UeWait};
use crate::campaign::message::Input;
use crate::campaign::network::Event;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use vireo_core::placement::balance::BalancerId;
use vireo_core::placement::message::PeerEvent;
use vireo_emulator::Rats;
use vireo_emulator::gnb::{NgState, Outbox};
use vireo_types::{AssocId, Dialect, RanUeNgapId};

/// Distinguishes the random stream from that of the network.
const STREAM: u64 = 0xa550_c1a7;
/// Probability that a gNB has associations with both balancers.
const BOTH: f64 = 0.6;
/// Outbound streams of an association.
const STREAMS: u16 = 4;
/// Time for which a gNB keeps a PDU, because SCTP does not acknowledge it at once.
const UNACKNOWLEDGED: u64 = 3 * MS;
/// Age from which all hosts know an association.
const KNOWN_FROM: u64 = 400 * MS;

/// Association of a gNB with a balancer.
#[derive(Debug)]
pub(super) struct Link {
    /// Number of the balancer's address.
    pub(super) by: u8,
    pub(super) assoc: AssocId,
    balancer: Process,
    /// Time since which it carries UEs, as far as noticed.
    up_since: Option<u64>,
    /// Arrival time of the last PDU at the balancer.
    last: u64,
    /// PDUs that the balancer may not have received, each with the time of its arrival.
    unacknowledged: VecDeque<(u64, Rc<[u8]>)>,
}

impl Link {
    fn new(by: u8, assoc: AssocId, balancer: Process) -> Self {
        Link { by, assoc, balancer, up_since: None, last: 0, unacknowledged: VecDeque::new() }
    }

    /// Returns the arrival time of the next PDU, after all earlier ones.
    pub(super) fn arrival(&mut self, network: &mut Network) -> u64 {
        self.last = (network.clock.now() + network.random.random_range(50..300)).max(self.last + 1);
        self.last
    }
}

/// Balancer that gNBs can open associations with.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct OpenBalancer {
    pub(in super::super) process: Process,
    pub(in super::super) id: BalancerId,
    /// Number of its address.
    pub(in super::super) by: usize,
}

/// Returns the numbers of the RAN nodes in a simulation of these technologies.
pub(in super::super) fn node_numbers(rats: Rats) -> Range<usize> {
    match rats {
        Rats::Nr => 0..GNBS,
        Rats::Eps => GNBS..NODES,
        Rats::Both => 0..NODES,
    }
}

/// Returns the dialect of a RAN node.
pub(super) fn dialect_of(node: usize) -> Dialect {
    if node < GNBS { Dialect::Nr } else { Dialect::Eps }
}

/// Returns the dialect of a UE, and its first RAN node.
pub(super) fn place_of_ue(rats: Rats, ue: usize) -> (Dialect, usize) {
    match rats {
        Rats::Nr => (Dialect::Nr, ue % GNBS),
        Rats::Eps => (Dialect::Eps, GNBS + ue % GNBS),
        Rats::Both if ue.is_multiple_of(2) => (Dialect::Nr, ue / 2 % GNBS),
        Rats::Both => (Dialect::Eps, GNBS + ue / 2 % GNBS),
    }
}

/// Returns the other RAN node of the same dialect.
pub(super) fn neighbour(node: usize) -> usize {
    node / GNBS * GNBS + (node + 1) % GNBS
}

/// Returns the association of a RAN node with the only balancer, which does not end.
pub(in super::super) fn assoc(node: usize) -> AssocId {
    AssocId::at(0, 1 + (node % GNBS) as u32).with_dialect(dialect_of(node))
}

/// Returns the RAN node of an association.
pub(super) fn gnb_of(assoc: AssocId) -> usize {
    let first = if assoc.dialect() == Dialect::Nr { 0 } else { GNBS };
    first + ((assoc.0 & AssocId::OWN) as usize - 1) % GNBS
}

/// Returns the address of a RAN node.
pub(in super::super) fn address(gnb: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 1, 1 + gnb as u8), 38412))
}

/// Returns the associations with the only balancer, or none.
pub(super) fn first_links(network: &Network) -> [Vec<Link>; NODES] {
    let link = |node| Link::new(0, assoc(node), Process(1));
    let has = |node| !network.has_several_balancers && node_numbers(network.rats).contains(&node);
    std::array::from_fn(|node| if has(node) { vec![link(node)] } else { Vec::new() })
}

/// Draws the balancers that each RAN node has associations with.
pub(super) fn draw_configured(network: &Network) -> [[bool; 2]; NODES] {
    let mut random = StdRng::seed_from_u64(network.seed ^ STREAM);
    std::array::from_fn(|gnb| match random.random_bool(BOTH) {
        true => [true; 2],
        false => [gnb % 2 == 0, gnb % 2 == 1],
    })
}

impl Ran {
    fn link_mut(&mut self, assoc: AssocId) -> Option<&mut Link> {
        self.links[gnb_of(assoc)].iter_mut().find(|link| link.assoc == assoc)
    }

    /// Opens the associations that gNBs lack. Returns what their balancers handle.
    pub(in super::super) fn connect(
        &mut self,
        network: &mut Network,
        balancers: &[OpenBalancer],
    ) -> Vec<(Process, PeerEvent)> {
        let mut up = Vec::new();
        for gnb in node_numbers(network.rats) {
            for balancer in balancers {
                let links = &mut self.links[gnb];
                let is_configured =
                    self.configured[gnb][balancer.by] && (links.is_empty() || self.configured[gnb] == [true; 2]);
                // Without the balancer that it prefers, a gNB takes the other one.
                let is_other = links.is_empty() && !balancers.iter().any(|of| self.configured[gnb][of.by]);
                let has = links.iter().any(|link| usize::from(link.by) == balancer.by);
                if has || !is_configured && !is_other {
                    continue;
                }
                self.opened += 1;
                let own = 1 + (gnb % GNBS) as u32 + GNBS as u32 * self.opened;
                let assoc = AssocId::at(balancer.id.0, own).with_dialect(dialect_of(gnb));
                links.push(Link::new(balancer.by as u8, assoc, balancer.process));
                up.push((balancer.process, PeerEvent::Up { assoc, peer: address(gnb) }));
            }
            for link in &mut self.links[gnb] {
                let is_up = self.nodes[gnb].association_state(link.by) == NgState::Up;
                link.up_since = is_up.then(|| link.up_since.unwrap_or(network.clock.now()));
            }
            let idle = self.links[gnb].iter().map(|link| link.by);
            let idle: Vec<u8> = idle.filter(|by| self.nodes[gnb].association_state(*by) == NgState::Down).collect();
            for by in idle {
                let mut out = Outbox::default();
                self.nodes[gnb].attach(by, STREAMS, &mut out);
                self.send(network, gnb, &out);
            }
        }
        up
    }

    /// Passes a PDU to the balancer of its association. A PDU that reaches no balancer waits until
    /// the gNB learns that the association has ended.
    pub(super) fn on_uplink(
        &mut self,
        network: &mut Network,
        assoc: AssocId,
        pdu: Rc<[u8]>,
    ) -> Option<(Option<Process>, Input)> {
        let now = network.clock.now();
        let Some(link) = self.link_mut(assoc) else {
            self.repeat(network, gnb_of(assoc), pdu);
            return None;
        };
        let balancer = link.balancer;
        if let Some(until) = network.stopped_until(balancer) {
            network.clock.at(until, Event::Ran(RanEvent::Uplink { assoc, pdu }));
            return None;
        }
        let is_alive = network.is_alive(balancer);
        if network.has_several_balancers {
            link.unacknowledged.retain(|(at, _)| at.saturating_add(UNACKNOWLEDGED) >= now);
            link.unacknowledged.push_back((if is_alive { now } else { u64::MAX }, Rc::clone(&pdu)));
        }
        is_alive.then_some((Some(balancer), Input::Ngap { assoc, bucket: None, answers: true, pdu }))
    }

    /// Sends a PDU again by another association of a gNB, if it has one. That of an eNB was for the
    /// MME of its association.
    ///
    /// The first message of a connection may have reached a host, where a repeat would open the
    /// connection again: the UE tries another one.
    fn repeat(&mut self, network: &mut Network, gnb: usize, pdu: Rc<[u8]>) {
        if dialect_of(gnb) == Dialect::Eps {
            return;
        }
        if let Some(ran) = opened_connection(&pdu) {
            let is_opened = |device: &Device| device.at == gnb && device.ran == Some(ran);
            if let Some(n) = self.devices.iter().position(is_opened)
                && !self.nodes[gnb].is_answered(ran)
            {
                self.on_ue_timeout(network, n);
            }
            return;
        }
        let is_up = |link: &&mut Link| self.nodes[gnb].association_state(link.by) == NgState::Up;
        if let Some(link) = self.links[gnb].iter_mut().find(is_up) {
            let at = link.arrival(network);
            network.clock.at(at, Event::Ran(RanEvent::Uplink { assoc: link.assoc, pdu }));
        }
    }

    /// Returns the associations with a balancer.
    pub(in super::super) fn associations_with(&self, balancer: Process) -> Vec<AssocId> {
        self.links.iter().flatten().filter(|link| link.balancer == balancer).map(|link| link.assoc).collect()
    }

    /// Returns all associations.
    pub(in super::super) fn all_associations(&self) -> Vec<AssocId> {
        self.links.iter().flatten().map(|link| link.assoc).collect()
    }

    /// Returns true if the gNB of an association has another one that all hosts know.
    pub(in super::super) fn has_other_association(&self, network: &Network, lost: AssocId) -> bool {
        let gnb = gnb_of(lost);
        // For each MME an eNB is a RAN node of its own.
        if lost.dialect() == Dialect::Eps {
            return false;
        }
        let is_known = |link: &Link| link.up_since.is_some_and(|since| since + KNOWN_FROM <= network.clock.now());
        self.links[gnb].iter().any(|link| link.assoc != lost && is_known(link))
    }

    /// Returns true if the path switch or the arrival of a UE is not answered and its source has
    /// lost all associations or has reset all connections. The core may have made the UE idle
    /// before it receives the path switch or HANDOVER NOTIFY. It then releases the UE at the
    /// target. Seed 432 with two balancers does so.
    pub(super) fn has_lost_source(&self, network: &Network, n: usize) -> bool {
        let device = &self.devices[n];
        let is_up = |assoc: &AssocId| self.links[gnb_of(*assoc)].iter().any(|link| link.assoc == *assoc);
        let is_lost = |assoc: &AssocId| !is_up(assoc) || network.oracle.is_gone(BalancerId(assoc.balancer()));
        let is_moving = device.wait == Some(UeWait::Switched) || device.is_arriving;
        is_moving && device.source.iter().all(is_lost)
    }

    /// Handles the end of an association.
    pub(super) fn association_lost(&mut self, network: &mut Network, assoc: AssocId) {
        let gnb = gnb_of(assoc);
        let Some(at) = self.links[gnb].iter().position(|link| link.assoc == assoc) else { return };
        let link = self.links[gnb].remove(at);
        if self.nodes[gnb].detach(link.by) {
            let now = network.clock.now();
            let pdus = link.unacknowledged.into_iter().filter(|(at, _)| at.saturating_add(UNACKNOWLEDGED) >= now);
            pdus.for_each(|(_, pdu)| self.repeat(network, gnb, pdu));
            return;
        }
        let is_eps = dialect_of(gnb) == Dialect::Eps;
        network.oracle.on_node_gone(|of| if is_eps { of == assoc } else { gnb_of(of) == gnb });
        for n in 0..self.devices.len() {
            let device = &mut self.devices[n];
            // An eNB keeps the connections to its other MME.
            let has_ended = |ran: &mut RanUeNgapId| self.nodes[gnb].owner(*ran).is_none();
            if device.at == gnb && device.ran.take_if(has_ended).is_some() {
                device.ue.connection_released();
                if device.wait.is_some() {
                    self.complete(network, n, false);
                }
            }
        }
    }
}
