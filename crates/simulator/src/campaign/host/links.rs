//! Connections of a host to the balancers.
//!
//! Each message goes to the balancer that has its association, its input or N4. What waits for an
//! answer, and which associations are lost, is in [`vireo_core::placement::host`], as in a running
//! cluster.

use super::super::controller;
use super::super::message::{Input, Message, UnreachableBalancer};
use super::super::mutation::Mutation;
use super::super::network::{ConnectionEnd, Network, Process};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use vireo_core::placement::balance::BalancerId;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::host::{BalancerAssociations, BarrierReply, Barriers, PendingPfcp, UnackedQueue};
use vireo_types::{AssocId, Instant};

/// N4 address of the only UPF.
pub(super) const UPF: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 8805);

/// Connection to one balancer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) process: Process,
    pub(super) at: Option<ConnectionEnd>,
    pub(super) retry_at: u64,
    pub(super) associations: BalancerAssociations,
    /// Messages that the balancer has not confirmed.
    pub(super) unacked: UnackedQueue<Message>,
}

impl Link {
    /// Ends the connection. Returns the balancer's associations and the messages that it may not
    /// have sent.
    pub(super) fn end(&mut self) -> UnreachableBalancer {
        self.at = None;
        UnreachableBalancer { associations: self.associations.on_disconnect(), unsent: self.unacked.end() }
    }
}

/// Event of the connections for the host.
#[derive(Debug)]
pub(super) enum LinkEvent {
    Input(Input),
    BarrierReply(BarrierReply),
}

/// Connections of a host to the balancers.
#[derive(Debug, Default)]
pub(in super::super) struct Links {
    pub(super) links: BTreeMap<BalancerId, Link>,
    /// Balancer that holds N4.
    pub(super) holder: Option<BalancerId>,
    pub(super) pending_pfcp: PendingPfcp,
    pub(super) barriers: Barriers,
    pub(super) events: VecDeque<LinkEvent>,
}

impl Links {
    /// Returns true if a balancer is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.links.values().any(|link| link.at.is_some())
    }

    /// Returns the balancer at the other end of a connection.
    pub(super) fn balancer_at(&self, at: ConnectionEnd) -> Option<BalancerId> {
        self.links.iter().find(|(_, link)| link.at == Some(at)).map(|(balancer, _)| *balancer)
    }

    /// Sends a message to a balancer. Returns false if it is not connected.
    pub(super) fn send(&self, network: &mut Network, to: BalancerId, message: Message) -> bool {
        let at = self.links.get(&to).and_then(|link| link.at);
        at.map(|at| network.send(at, message)).is_some()
    }

    /// Sends a message to all connected balancers.
    pub(super) fn send_to_all(&self, network: &mut Network, message: &Message) {
        self.links.values().filter_map(|link| link.at).for_each(|at| network.send(at, message.clone()));
    }

    /// Sends a message to the balancer that holds N4.
    pub(super) fn send_to_holder(&self, network: &mut Network, message: Message) -> bool {
        self.holder.is_some_and(|holder| self.send(network, holder, message))
    }

    /// Sends a message about an association to its balancer.
    pub(super) fn send_about_association(&self, network: &mut Network, assoc: AssocId, message: Message) {
        self.send(network, BalancerId(assoc.balancer()), message);
    }

    /// Sends a message about an input to the balancer that numbered it.
    pub(in super::super) fn send_about_input(&self, network: &mut Network, number: u64, message: Message) {
        self.send(network, BalancerId::from_input(number), message);
    }

    /// Sends a barrier, which every connected balancer must answer.
    pub(super) fn send_barrier(&mut self, network: &mut Network, number: u64) {
        self.send_to_all(network, &Message::Sync(number));
        let connected = self.links.iter().filter(|(_, link)| link.at.is_some()).map(|(id, _)| *id);
        self.barriers.add(number, connected);
        self.complete_barriers(network);
    }

    /// Sends a barrier, which every balancer of the map must answer.
    pub(super) fn introduce(&mut self, network: &mut Network, number: u64) {
        self.barriers.introduce(number, self.links.keys().copied());
        self.send_to_all(network, &Message::Sync(number));
        self.complete_barriers(network);
    }

    pub(super) fn complete_barriers(&mut self, network: &Network) {
        while let Some(reply) = self.barriers.take_answered(now(network)) {
            self.events.push_back(LinkEvent::BarrierReply(reply));
        }
    }

    pub(super) fn on_undelivered(&mut self, network: &Network) {
        self.barriers.on_undelivered(now(network));
    }

    /// Handles the end of a balancer's connection.
    pub(super) fn on_unreachable(&mut self, network: &Network, balancer: BalancerId, mut state: UnreachableBalancer) {
        self.barriers.on_disconnect(balancer, now(network));
        if network.is(Mutation::UnsentForgotten) {
            state.unsent.clear();
        }
        if !state.associations.is_empty() {
            self.events.push_back(LinkEvent::Input(Input::BalancerUnreachable(Rc::new(state))));
        }
        if self.holder == Some(balancer) {
            self.pending_pfcp.mark_undelivered();
        }
        self.complete_barriers(network);
    }

    /// Handles that associations of unreachable balancers are lost.
    pub(super) fn on_lost(&mut self, associations: BTreeSet<AssocId>) {
        if !associations.is_empty() {
            self.events.push_back(LinkEvent::Input(Input::AssociationsLost(associations)));
        }
    }

    /// Handles a map before the host adopts it. Balancers that it lacks learn that from it.
    pub(super) fn on_map(&mut self, network: &mut Network, map: &Rc<ClusterMap>) {
        let is_gone = |id: &BalancerId, _: &mut Link| !map.has_balancer(*id);
        let gone: Vec<(BalancerId, Link)> = self.links.extract_if(.., is_gone).collect();
        for (balancer, mut link) in gone {
            if let Some(at) = link.at {
                network.send(at, Message::Map(Rc::clone(map)));
                network.close(at);
            }
            self.barriers.remove(balancer, now(network));
            let state = link.end();
            self.on_unreachable(network, balancer, state);
            self.on_lost(link.associations.take_lost());
        }
        for (balancer, address) in &map.balancers {
            let process = controller::process(*address);
            let (associations, unacked) = Default::default();
            let new = || Link { process, at: None, retry_at: 0, associations, unacked };
            self.links.entry(*balancer).or_insert_with(new);
        }
    }
}

/// Returns the exact time, by which the connections of all hosts wait.
pub(super) fn now(network: &Network) -> Instant {
    Instant(network.clock.now())
}
