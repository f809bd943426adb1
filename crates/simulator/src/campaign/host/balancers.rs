//! Messages between a host and the balancers.

use super::super::message::{Input, Message, NumberedInput};
use super::super::mutation::Mutation;
use super::super::network::{ConnectionEnd, Network};
use super::super::ues::UeKey;
use super::links::{LinkEvent, Links, Request};
use super::{Host, RETRY_INTERVAL};
use std::rc::Rc;
use vireo_core::placement::balance::BalancerId;
use vireo_core::placement::host as machine;
use vireo_core::placement::message::Receiver;
use vireo_types::Seid;
use vireo_wire::pfcp;

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
        if let Some(other) = self.ues.nodes.alternative_to(*assoc, self.ues.slot_of(*ue).map(UeKey::Own)) {
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
        lost.unsent.iter().for_each(|message| network.oracle.on_unconfirmed(message.effect_key()));
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
                Input::Up { assoc, .. } => {
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
