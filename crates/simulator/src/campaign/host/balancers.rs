//! Messages between a host and the balancers.

use super::super::message::{Input, Message, NumberedInput};
use super::super::mutation::Mutation;
use super::super::network::{ConnectionEnd, Network};
use super::super::ues::UeKey;
use super::links::{self, LinkEvent, Links};
use super::{Host, RETRY_INTERVAL};
use std::collections::BTreeSet;
use std::rc::Rc;
use vireo_core::placement::balance::BalancerId;
use vireo_core::placement::host::{self as machine, BarrierReply, PfcpRequest};
use vireo_core::placement::message::{RanOutput, Receiver};
use vireo_wire::pfcp;

impl Host {
    /// Connects to balancers without a connection.
    pub(super) fn connect_balancers(&mut self, network: &mut Network) {
        let (Some(own), now) = (self.id(), network.clock.now()) else { return };
        let (process, mut holds) = (self.process, false);
        let Links { links, barriers, holder, .. } = &mut self.links;
        for (balancer, link) in links.iter_mut().filter(|(_, link)| link.at.is_none() && now >= link.retry_at) {
            let at = network.open(process, link.process);
            link.at = Some(at);
            network.send(at, Message::Host(own));
            if let Some(map) = &self.map {
                network.send(at, Message::Map(Rc::clone(map)));
            }
            barriers.unanswered_by(*balancer).for_each(|number| network.send(at, Message::Sync(number)));
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
            self.links.pending_pfcp.mark_undelivered();
            self.repeat_requests(network);
        }
    }

    /// Sends the requests that no UPF has answered to the balancer that holds N4.
    fn repeat_requests(&mut self, network: &mut Network) {
        if network.is(Mutation::RequestsForgotten) {
            return;
        }
        let is_connected = self.links.holder.and_then(|holder| self.links.links.get(&holder)?.at).is_some();
        if !is_connected {
            return;
        }
        let requests: Vec<RanOutput> = self.links.pending_pfcp.take_for_resend(links::now(network)).collect();
        for request in requests {
            if let RanOutput::Pfcp { key, seid, served_by, message, .. } = request {
                self.send_request(network, Message::Pfcp { key, seid, served_by, message: message.into() });
            }
        }
    }

    /// Sends a request to the balancer that holds N4. Returns false if it is not connected.
    fn send_request(&mut self, network: &mut Network, message: Message) -> bool {
        let key = message.effect_key();
        let is_sent = self.links.send_to_holder(network, message);
        if let Some((host, holder)) = self.id().zip(self.links.holder).filter(|_| is_sent) {
            network.oracle.on_effect_sent(key, host, (holder, None));
        }
        is_sent
    }

    /// Sends a PFCP message. A request is stored until it is answered; a UPF repeats its own
    /// requests.
    fn send_pfcp(&mut self, network: &mut Network, message: Message) {
        let Message::Pfcp { key, seid, message: octets, .. } = &message else { return };
        let (key, seid, octets) = (*key, *seid, Rc::clone(octets));
        let is_request = pfcp::Message::new(&octets).is_ok_and(|message| message.message_type().is_request());
        let is_sent = match is_request {
            true => self.send_request(network, message),
            false => self.links.send_to_holder(network, message),
        };
        let request = PfcpRequest { upf: links::UPF, key, seid, message: &octets };
        let replaced = self.links.pending_pfcp.add(links::now(network), request, is_sent);
        replaced.into_iter().filter(|old| *old != key).for_each(|old| network.oracle.on_effect_void(old));
        if !is_sent {
            self.links.on_undelivered(network);
        }
    }

    /// Sends a message to a RAN node or UPF.
    pub(in super::super) fn send_effect(&mut self, network: &mut Network, message: Message) {
        let (assoc, is_about_ue) = match &message {
            Message::Ngap { assoc, ue, .. } => (*assoc, ue.is_some()),
            Message::Stale { assoc, .. } | Message::Abort(assoc) => (*assoc, true),
            Message::Pfcp { .. } => return self.send_pfcp(network, message),
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
                link.unacked.add(unsent);
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
        let state = link.end();
        state.unsent.iter().for_each(|message| network.oracle.on_unconfirmed(message.effect_key()));
        self.links.on_unreachable(network, balancer, state);
        self.handle_link_events(network);
    }

    /// Handles a message of a balancer about the connection.
    pub(super) fn on_link_message(&mut self, network: &mut Network, at: ConnectionEnd, message: &Message) {
        let Some(balancer) = self.links.balancer_at(at) else { return };
        let Some(link) = self.links.links.get_mut(&balancer) else { return };
        let lost =
            if matches!(message, Message::SentCount(_)) { BTreeSet::new() } else { link.associations.take_lost() };
        self.links.on_lost(lost);
        match message {
            Message::BarrierReply(number) => {
                self.links.barriers.on_answer(balancer, *number);
                self.links.complete_barriers(network);
            }
            Message::SentCount(count) => {
                self.links.links.get_mut(&balancer).into_iter().for_each(|link| link.unacked.on_sent(*count));
            }
            Message::Input(NumberedInput { input, .. }) => match input {
                Input::Up { assoc, .. } => {
                    let link = self.links.links.get_mut(&balancer);
                    link.into_iter().for_each(|link| link.associations.on_up(*assoc));
                }
                Input::Down(assoc) => {
                    let link = self.links.links.get_mut(&balancer);
                    link.into_iter().for_each(|link| link.associations.on_down(*assoc));
                }
                Input::Pfcp { seid, is_request: false, message } => {
                    let answered = self.links.pending_pfcp.on_response(*seid, message);
                    answered.into_iter().for_each(|key| network.oracle.on_effect_void(key));
                }
                _ => {}
            },
            _ => {}
        }
        self.handle_link_events(network);
    }

    /// Handles the events of the connections.
    pub(super) fn handle_link_events(&mut self, network: &mut Network) {
        while let Some(event) = self.links.events.pop_front() {
            match event {
                LinkEvent::Input(input) => {
                    self.input(network, NumberedInput { number: 0, receiver: Receiver::Owner, input });
                }
                LinkEvent::BarrierReply(BarrierReply { number, is_whole }) => {
                    self.on(network, machine::Input::BarrierReply { number, is_whole });
                    self.ended |= self.machine.as_ref().is_some_and(|machine| machine.has_left());
                }
            }
        }
    }
}
