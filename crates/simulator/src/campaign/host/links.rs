//! Connections of a host to the balancers, as `cluster::link` has them.
//!
//! Each message goes to the balancer that has its association, its input or N4. The loss of a
//! balancer ends the associations that it had.

use super::super::controller;
use super::super::message::{Input, Message, NumberedInput};
use super::super::mutation::Mutation;
use super::super::network::{ConnectionEnd, Network, Process};
use super::{Host, RETRY_INTERVAL};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use vireo_core::placement::balance::BalancerId;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::host as machine;
use vireo_core::placement::message::Receiver;
use vireo_core::placement::replica::REEXECUTION_WINDOW;
use vireo_types::{AssocId, Seid};
use vireo_wire::pfcp;

/// Connection to one balancer.
#[derive(Debug)]
struct Link {
    process: Process,
    at: Option<ConnectionEnd>,
    retry_at: u64,
    /// Associations of the balancer, as far as known.
    up: BTreeSet<AssocId>,
    /// Number of messages to RAN nodes on the connection, and those that are not confirmed.
    count: u64,
    unacked: VecDeque<(u64, Message)>,
}

impl Link {
    /// Ends the connection. Returns the balancer's associations and the messages that it may not
    /// have sent.
    fn end(&mut self) -> LostBalancer {
        (self.at, self.count) = (None, 0);
        let unsent = self.unacked.drain(..).map(|(_, message)| message).collect();
        LostBalancer { associations: std::mem::take(&mut self.up), unsent }
    }
}

/// State of a lost balancer that others continue.
#[derive(Clone, Debug)]
pub(in super::super) struct LostBalancer {
    pub(in super::super) associations: BTreeSet<AssocId>,
    pub(in super::super) unsent: Vec<Message>,
}

/// PFCP request that is not answered.
#[derive(Debug)]
struct Request {
    seid: Option<Seid>,
    kind: pfcp::MessageType,
    key: u64,
    message: Message,
}

/// Event of the connections for the host.
#[derive(Debug)]
enum LinkEvent {
    Input(Input),
    BarrierReply { number: u64, is_whole: bool },
}

/// Connections of a host to the balancers.
#[derive(Debug, Default)]
pub(in super::super) struct Links {
    links: BTreeMap<BalancerId, Link>,
    /// Balancer that holds N4.
    holder: Option<BalancerId>,
    requests: Vec<Request>,
    /// Barriers by number, each with the balancers that have not answered.
    barriers: BTreeMap<u64, BTreeSet<BalancerId>>,
    /// The same of barriers that balancers without a connection must answer, too.
    introductions: BTreeMap<u64, BTreeSet<BalancerId>>,
    /// Time until which a message may have been lost.
    broken_until: u64,
    events: VecDeque<LinkEvent>,
}

impl Links {
    /// Returns true if a balancer is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.links.values().any(|link| link.at.is_some())
    }

    /// Returns the balancer at the other end of a connection.
    fn balancer_at(&self, at: ConnectionEnd) -> Option<BalancerId> {
        self.links.iter().find(|(_, link)| link.at == Some(at)).map(|(balancer, _)| *balancer)
    }

    /// Sends a message to a balancer. Returns false if it is not connected.
    fn send(&self, network: &mut Network, to: BalancerId, message: Message) -> bool {
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
        self.barriers.insert(number, connected.collect());
        self.complete_barriers(network);
    }

    /// Sends a barrier, which every balancer of the map must answer.
    pub(super) fn introduce(&mut self, network: &mut Network, number: u64) {
        self.introductions.insert(number, self.links.keys().copied().collect());
        self.send_to_all(network, &Message::Sync(number));
        self.complete_barriers(network);
    }

    fn complete_barriers(&mut self, network: &Network) {
        while let Some(first) = self.barriers.first_entry().filter(|first| first.get().is_empty()) {
            let (number, _) = first.remove_entry();
            let is_whole = network.clock.now() >= self.broken_until;
            self.events.push_back(LinkEvent::BarrierReply { number, is_whole });
        }
        let answered = self.introductions.extract_if(.., |_, waits| waits.is_empty());
        let replies = answered.map(|(number, _)| LinkEvent::BarrierReply { number, is_whole: false });
        self.events.extend(replies);
    }

    /// Handles that a balancer gives no more answers.
    fn give_up_barriers(&mut self, network: &Network, balancer: BalancerId) {
        self.barriers.values_mut().for_each(|waits| _ = waits.remove(&balancer));
        self.complete_barriers(network);
    }

    fn on_undelivered(&mut self, network: &Network) {
        self.broken_until = network.clock.now() + REEXECUTION_WINDOW.as_micros();
    }

    /// Handles the end of a balancer's connection.
    fn on_lost(&mut self, network: &Network, balancer: BalancerId, mut lost: LostBalancer) {
        self.on_undelivered(network);
        if network.is(Mutation::UnsentForgotten) {
            lost.unsent.clear();
        }
        if !lost.associations.is_empty() {
            self.events.push_back(LinkEvent::Input(Input::Gone(Rc::new(lost))));
        }
        self.give_up_barriers(network, balancer);
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
            self.introductions.values_mut().for_each(|waits| _ = waits.remove(&balancer));
            let lost = link.end();
            self.on_lost(network, balancer, lost);
        }
        for (balancer, address) in &map.balancers {
            let process = controller::process(*address);
            let (up, unacked) = (BTreeSet::new(), VecDeque::new());
            let new = || Link { process, at: None, retry_at: 0, up, count: 0, unacked };
            self.links.entry(*balancer).or_insert_with(new);
        }
    }
}

impl Host {
    /// Connects to balancers without a connection.
    pub(super) fn connect_balancers(&mut self, network: &mut Network) {
        let (Some(own), now) = (self.id(), network.clock.now()) else { return };
        let (process, mut holds) = (self.process, false);
        let Links { links, introductions, holder, .. } = &mut self.links;
        for (balancer, link) in links.iter_mut().filter(|(_, link)| link.at.is_none() && now >= link.retry_at) {
            let at = network.open(process, link.process);
            link.at = Some(at);
            network.send(at, Message::Host(own));
            if let Some(map) = &self.map {
                network.send(at, Message::Map(Rc::clone(map)));
            }
            let unanswered = introductions.iter().filter(|(_, waits)| waits.contains(balancer));
            unanswered.for_each(|(number, _)| network.send(at, Message::Sync(*number)));
            holds |= *holder == Some(*balancer);
        }
        if holds {
            self.repeat_requests(network);
        }
    }

    /// Sends a map that the host has adopted to all balancers: later messages follow it.
    pub(super) fn send_map(&mut self, network: &mut Network) {
        if let Some(map) = self.map.clone() {
            self.links.send_to_all(network, &Message::Map(map));
        }
        self.connect_balancers(network);
        let holder = self.map.as_ref().and_then(|map| map.holder());
        if std::mem::replace(&mut self.links.holder, holder) != holder {
            self.repeat_requests(network);
        }
    }

    /// Sends the requests that no UPF has answered to the balancer that holds N4.
    fn repeat_requests(&mut self, network: &mut Network) {
        if network.is(Mutation::RequestsForgotten) {
            return;
        }
        let requests: Vec<Message> = self.links.requests.iter().map(|request| request.message.clone()).collect();
        requests.into_iter().for_each(|message| self.send_request(network, message));
    }

    fn send_request(&mut self, network: &mut Network, message: Message) {
        let Message::Pfcp { key, .. } = message else { return };
        if self.links.send_to_holder(network, message)
            && let Some((host, holder)) = self.id().zip(self.links.holder)
        {
            network.oracle.on_effect_sent(key, host, (holder, None));
        } else {
            self.links.on_undelivered(network);
        }
    }

    /// Sends a message to a RAN node or UPF.
    pub(in super::super) fn send_effect(&mut self, network: &mut Network, message: Message) {
        let (assoc, is_about_ue) = match &message {
            Message::Ngap { assoc, ue, .. } => (*assoc, ue.is_some()),
            Message::Stale { assoc, .. } | Message::Abort(assoc) => (*assoc, true),
            Message::Pfcp { key, seid, message: octets, .. } => {
                if let Ok(kind) = pfcp::Message::new(octets).map(|message| message.message_type()) {
                    let (seid, key) = (*seid, *key);
                    for old in self.links.requests.extract_if(.., |old| old.seid == seid && old.kind == kind) {
                        network.oracle.on_effect_void(old.key);
                    }
                    let Message::Pfcp { message: octets, .. } = &message else { return };
                    let repeat = Message::Pfcp { key, seid, served_by: None, message: Rc::clone(octets) };
                    self.links.requests.push(Request { seid, kind, key, message: repeat });
                }
                return self.send_request(network, message);
            }
            _ => return,
        };
        let (to, key) = (BalancerId(assoc.balancer()), message.effect_key());
        let is_sent = self.links.send(network, to, message.clone());
        if matches!(message, Message::Abort(_)) {
            return;
        }
        if !is_sent {
            self.links.on_undelivered(network);
        }
        let unsent = Some(message).filter(|_| is_about_ue && network.has_several_balancers);
        match self.links.links.get_mut(&to).filter(|_| is_sent) {
            Some(link) => {
                link.count += 1;
                link.unacked.extend(unsent.map(|message| (link.count, message)));
                if let (Some(host), true) = (self.id(), is_about_ue && network.has_several_balancers) {
                    network.oracle.on_effect_sent(key, host, (to, Some(assoc)));
                }
            }
            None => self.links.events.extend(unsent.map(|message| LinkEvent::Input(Input::Unsent(Box::new(message))))),
        }
    }

    /// Sends a message that its association did not carry by another one of the RAN node, if any.
    pub(super) fn send_again(&mut self, network: &mut Network, mut message: Message) {
        let (Message::Ngap { assoc, ue: Some(ue), .. } | Message::Stale { assoc, ue, .. }) = &mut message else {
            return;
        };
        if let Some(other) = self.ues.nodes.alternative_to(*assoc, Some(*ue)) {
            *assoc = other;
            self.send_effect(network, message);
        }
    }

    /// Handles the end of a balancer's connection.
    pub(super) fn on_balancer_disconnect(&mut self, network: &mut Network, at: ConnectionEnd) {
        let Some(balancer) = self.links.balancer_at(at) else { return };
        let Some(link) = self.links.links.get_mut(&balancer) else { return };
        link.retry_at = network.clock.now() + RETRY_INTERVAL;
        let lost = link.end();
        self.links.on_lost(network, balancer, lost);
        self.handle_link_events(network);
    }

    /// Handles a message of a balancer about the connection.
    pub(super) fn on_link_message(&mut self, network: &mut Network, at: ConnectionEnd, message: &Message) {
        let Some(balancer) = self.links.balancer_at(at) else { return };
        match message {
            Message::BarrierReply(number) => {
                let Links { barriers, introductions, .. } = &mut self.links;
                for waits in [barriers.get_mut(number), introductions.get_mut(number)].into_iter().flatten() {
                    waits.remove(&balancer);
                }
                self.links.complete_barriers(network);
            }
            Message::SentCount(count) => {
                let link = self.links.links.get_mut(&balancer);
                link.into_iter().for_each(|link| link.unacked.retain(|(number, _)| number > count));
            }
            Message::Input(NumberedInput { input, .. }) => match input {
                Input::Up(assoc) => {
                    self.links.links.get_mut(&balancer).into_iter().for_each(|link| _ = link.up.insert(*assoc));
                }
                Input::Down(assoc) => {
                    self.links.links.get_mut(&balancer).into_iter().for_each(|link| _ = link.up.remove(assoc));
                }
                Input::Pfcp { seid, is_request: false, message } => self.on_response(network, *seid, message),
                _ => {}
            },
            _ => {}
        }
        self.handle_link_events(network);
    }

    /// Removes the request of a session that a response answers.
    fn on_response(&mut self, network: &mut Network, seid: Seid, message: &[u8]) {
        let Ok(answer) = pfcp::Message::new(message).map(|message| message.message_type()) else { return };
        let is_answered = |request: &mut Request| request.seid == Some(seid) && request.kind.response() == Some(answer);
        for request in self.links.requests.extract_if(.., is_answered) {
            network.oracle.on_effect_void(request.key);
        }
    }

    /// Handles the events of the connections.
    pub(super) fn handle_link_events(&mut self, network: &mut Network) {
        while let Some(event) = self.links.events.pop_front() {
            match event {
                LinkEvent::Input(input) => {
                    self.input(network, NumberedInput { number: 0, receiver: Receiver::Owner, input });
                }
                LinkEvent::BarrierReply { number, is_whole } => {
                    self.on(network, machine::Input::BarrierReply { number, is_whole });
                    self.ended |= self.machine.as_ref().is_some_and(|machine| machine.has_left());
                }
            }
        }
    }
}
