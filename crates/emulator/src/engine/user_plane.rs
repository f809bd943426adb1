//! User plane of the UEs: echoes and the downlink packets that trigger paging.

use super::slot::{Flow, UeSlot, flag};
use super::timers::Kind;
use super::worker::Worker;
use crate::dialect::Establishment;
use crate::gnb::downlink_owner;
use crate::mix::Data;
use crate::ran::forwarded_beside;
use crate::report::{Procedure, Times};
use crate::scenario::Step;
use crate::traffic::{self, Echo, Mark, Received, ipv6};
use std::net::{IpAddr, Ipv4Addr};
use vireo_types::Teid;
use vireo_wire::gtpu::ErrorIndication;

/// Interval of the repeated paging trigger packet.
const PROVOKE_AGAIN_US: u64 = 500_000;
/// Time limit for the gNB-side release of a tunnel that the core does not know.
const RELEASED_WITHIN_US: u64 = 1_000_000;
/// Maximum number of such tunnels at a time.
const RELEASES: usize = 1024;
/// Failure text of an echo that has no encoding.
const NOT_WRITTEN: &str = "an echo could not be written: check --echo-octets";
/// Violation text of an unexpected Error Indication.
const UNKNOWN_TUNNEL: &str = "GTP-U error indication of the core for a tunnel in use";

impl Worker<'_> {
    /// Triggers paging of an idle UE: sends an echo into its former tunnel, as a late gNB may.
    pub(super) fn trigger_paging(&mut self, owner: u32) {
        if self.slots[owner as usize].ue.is_over_nas() {
            return self.trigger_paging_over_nas(owner);
        }
        let echoes = &self.options.echoes;
        let slot = &mut self.slots[owner as usize];
        let lost = self.lost_tunnels.by_ue.get(&owner);
        let session = lost.and_then(|(_, tunnel)| slot.ue.sessions().iter().find(|session| session.psi == tunnel.psi));
        let source = session.and_then(|session| session.address.ipv4);
        let (Some(source), Some(target), Some((n3, tunnel))) = (source, echoes.v4, lost) else {
            return self.fail(owner, "no session that a packet could come for: give --echo-v4".into());
        };
        let mark = Mark { identifier: 0x4000 | (owner as u16 & 0x3fff), sequence: u16::MAX };
        let echo = Echo { kind: echoes.kind, mark, octets: echoes.octets };
        let write = |frame: &mut Vec<u8>| traffic::write_echo(echo, IpAddr::V4(source), IpAddr::V4(target), frame);
        if self.n3.send(*n3, tunnel, write).is_none() {
            return self.fail(owner, "an echo could not be written: check --echo-octets".into());
        }
        // Paging is timed from the first packet.
        if !slot.has(flag::CALLED) {
            slot.flags |= flag::CALLED;
            slot.times.step_us = self.now_us;
        }
        self.timers.set(self.now_us + PROVOKE_AGAIN_US, owner, slot.sequence, Kind::Pause);
    }

    /// As [`Worker::trigger_paging`], for a UE with its packets over NAS: it sends the echo with a
    /// service request that expects nothing more, so that the answer finds it idle.
    fn trigger_paging_over_nas(&mut self, owner: u32) {
        let echoes = &self.options.echoes;
        let slot = &mut self.slots[owner as usize];
        let session = slot.ue.sessions().iter().find_map(|session| Some((session.psi, session.address.ipv4?)));
        let (Some((psi, source)), Some(target)) = (session, echoes.v4) else {
            return self.fail(owner, "no session that a packet could come for: give --echo-v4".into());
        };
        if !slot.has(flag::CALLED) {
            slot.flags |= flag::CALLED;
            slot.times.step_us = self.now_us;
        }
        self.timers.set(self.now_us + PROVOKE_AGAIN_US, owner, slot.sequence, Kind::Pause);
        if slot.ran.is_none() {
            let mark = Mark { identifier: 0x4000 | (owner as u16 & 0x3fff), sequence: u16::MAX };
            let echo = Echo { kind: echoes.kind, mark, octets: echoes.octets };
            let write = |packet: &mut Vec<u8>| traffic::write_echo(echo, source.into(), target.into(), packet);
            self.send_over_nas(owner, psi, write);
        }
    }

    /// Sends a packet over NAS.
    fn send_over_nas(&mut self, owner: u32, psi: u8, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) {
        let mut packet = Vec::new();
        if write(&mut packet).is_none() {
            return self.fail(owner, NOT_WRITTEN.into());
        }
        self.out.clear();
        let sent = self.slots[owner as usize].ue.send_data(psi, &packet, &mut self.out);
        if sent.is_ok() {
            self.n3.counts.up_packets += 1;
            self.n3.counts.up_octets += packet.len() as u64;
        }
        self.on_command_sent(owner, sent, Establishment::Data);
    }

    /// Returns the data that a UE sends when its user plane becomes available in a steady load.
    pub(super) fn data(&self, owner: u32) -> Data {
        let group = usize::from(self.slots[owner as usize].group);
        let steady = self.options.steady.as_ref().filter(|_| self.options.has_traffic());
        steady.and_then(|steady| steady.groups.get(group)).map_or(Data::default(), |group| group.data)
    }

    pub(super) fn start_traffic(&mut self, owner: u32) {
        let echoes = &self.options.echoes;
        let data = self.data(owner);
        let remaining = if data.echoes > 0 { data.echoes } else { echoes.count };
        let new = |psi, source, target, soliciting| Flow {
            psi,
            source,
            target,
            soliciting,
            remaining,
            sequence: 0,
            sent_us: 0,
            tries: 0,
            quiet_us: 0,
        };
        let is_behind = self.step(owner) == Some(Step::RoutedTraffic);
        let slot = &mut self.slots[owner as usize];
        let mut flows = Vec::new();
        for session in slot.ue.sessions() {
            if let (Some(own), Some(target)) = (session.address.ipv4, echoes.v4) {
                let source = Ipv4Addr::from_bits(own.to_bits() + if is_behind { crate::BEHIND_UE } else { 0 });
                flows.push(new(session.psi, IpAddr::V4(source), IpAddr::V4(target), None));
            }
            if let (Some(own), Some(target)) = (session.address.interface, echoes.v6) {
                flows.push(new(session.psi, IpAddr::V6(ipv6::link_local(own)), IpAddr::V6(target), Some(own)));
            }
        }
        if flows.is_empty() {
            return self.fail(owner, "no echo target of the sessions' IP version: give --echo".into());
        }
        let count = flows.len() as u8;
        slot.flows = flows;
        for flow in 0..count {
            self.send_flow(owner, flow);
        }
    }

    /// Sends the pending packet of the flow: a Router Solicitation or an echo.
    fn send_flow(&mut self, owner: u32, index: u8) {
        let timeout = self.options.echoes.answer_timeout.as_micros() as u64;
        let echoes = &self.options.echoes;
        let octets = match self.data(owner).octets {
            0 => echoes.octets,
            octets => usize::from(octets),
        };
        let slot = &mut self.slots[owner as usize];
        let link = &self.links[usize::from(slot.link)];
        let Some(flow) = slot.flows.get_mut(usize::from(index)) else { return };
        let tunnels = slot.ran.map_or(&[][..], |ran| link.node.tunnels(ran));
        let tunnel = tunnels.iter().find(|tunnel| tunnel.psi == flow.psi);
        if tunnel.is_none() && !slot.ue.is_over_nas() {
            return self.fail(owner, "no tunnel for the session".into());
        }
        if flow.tries == 0 {
            flow.sent_us = self.now_us;
            self.n3.counts.echoes += u64::from(flow.soliciting.is_none());
        }
        if flow.tries > 0 {
            self.n3.counts.resent += 1;
            flow.quiet_us = self.now_us + timeout;
        }
        flow.tries += 1;
        let mark = Mark { identifier: 0x4000 | (owner as u16 & 0x3fff), sequence: flow.sequence };
        let echo = Echo { kind: echoes.kind, mark, octets };
        let (psi, soliciting, source, target) = (flow.psi, flow.soliciting, flow.source, flow.target);
        let write = |frame: &mut Vec<u8>| match soliciting {
            Some(interface) => ipv6::write_solicitation(interface, frame),
            None => traffic::write_echo(echo, source, target, frame),
        };
        self.timers.set(self.now_us + timeout, owner, slot.sequence, Kind::Echo(index));
        match tunnel {
            None => self.send_over_nas(owner, psi, write),
            Some(tunnel) if self.n3.send(link.node.n3(), tunnel, write).is_none() => {
                self.fail(owner, NOT_WRITTEN.into());
            }
            Some(_) => {}
        }
    }

    pub(super) fn on_echo_due(&mut self, owner: u32, index: u8) {
        let timeout = self.options.echoes.answer_timeout.as_micros() as u64;
        let Some(flow) = self.slots[owner as usize].flows.get(usize::from(index)) else { return };
        let waited = self.now_us.saturating_sub(flow.sent_us);
        if flow.remaining == 0 {
            return self.end_traffic(owner);
        }
        if waited < timeout * u64::from(flow.tries) {
            return;
        }
        if flow.tries < self.options.echoes.tries {
            return self.send_flow(owner, index);
        }
        let what = if flow.soliciting.is_some() { "no router advertisement" } else { "an echo was not answered" };
        self.n3.counts.echoes_lost += 1;
        self.fail(owner, what.into());
    }

    /// Drops the tunnel of the UE's first session at its node. A downlink packet then reveals the
    /// loss.
    pub(super) fn lose_tunnel(&mut self, owner: u32) {
        let slot = &self.slots[owner as usize];
        let node = &mut self.links[usize::from(slot.link)].node;
        let n3 = node.n3();
        match slot.ran.and_then(|ran| node.lose_tunnel(ran)) {
            Some(tunnel) => {
                self.lost_tunnels.by_ue.insert(owner, (n3, tunnel));
                self.trigger_paging(owner);
            }
            None => self.fail(owner, "no tunnel that the node could lose".into()),
        }
    }

    /// Handles a session resource release that the core requested.
    pub(super) fn on_tunnel_down(&mut self, owner: u32) {
        if self.step(owner) == Some(Step::LoseTunnel) {
            self.slots[owner as usize].flags |= flag::LOST;
            // The user plane buffers the next packet and pages the UE.
            return self.trigger_paging(owner);
        }
        self.settle(owner);
    }

    /// Handles an Error Indication for a tunnel end of the core. It is correct for a tunnel in
    /// release. It is a violation for a tunnel in use.
    pub(super) fn on_error_indication(&mut self, error: Option<ErrorIndication>) {
        let Some(ErrorIndication { teid, peer }) = error else {
            return self.stats.violation("a GTP-U error indication of the core without a tunnel".into());
        };
        match self.user_of((peer, teid)).map(|(slot, psi)| slot.flows.iter().any(|flow| flow.psi == psi)) {
            Some(true) => self.stats.violation(UNKNOWN_TUNNEL.into()),
            Some(false) if self.lost_tunnels.released.len() < RELEASES => {
                self.lost_tunnels.released.push_back((self.now_us + RELEASED_WITHIN_US, (peer, teid)));
            }
            Some(false) => self.stats.violation("too many GTP-U error indications of the core".into()),
            None => self.n3.counts.late_errors += 1,
        }
    }

    /// Checks that the tunnels unknown to the core have been released in time.
    pub(super) fn check_released(&mut self, now_us: u64) {
        while let Some((_, end)) = self.lost_tunnels.released.pop_front_if(|(until, _)| *until <= now_us) {
            match self.user_of(end) {
                Some(_) => self.stats.violation(UNKNOWN_TUNNEL.into()),
                None => self.n3.counts.late_errors += 1,
            }
        }
    }

    /// Returns the UE and session that send to this tunnel end of the core.
    fn user_of(&self, (upf, teid): (IpAddr, Teid)) -> Option<(&UeSlot, u8)> {
        self.slots.iter().find_map(|slot| {
            let tunnels = slot.ran.map_or(&[][..], |ran| self.links[usize::from(slot.link)].node.tunnels(ran));
            let tunnel = tunnels.iter().find(|tunnel| (tunnel.upf, tunnel.uplink) == (upf, teid))?;
            Some((slot, tunnel.psi))
        })
    }

    pub(super) fn on_packet(&mut self, teid: Teid, range: std::ops::Range<usize>) {
        let (owner, psi) = downlink_owner(teid);
        let Some(slot) = self.slots.get_mut(owner as usize) else {
            self.n3.counts.bad_packets += 1;
            return;
        };
        let link = &self.links[usize::from(slot.link)];
        let tunnels = slot.ran.map_or(&[][..], |ran| link.node.tunnels(ran));
        let at = forwarded_beside(teid).unwrap_or(teid);
        if !tunnels.iter().any(|tunnel| tunnel.downlink == at) {
            if self.forward_packet(teid, &range) {
                return;
            }
            self.n3.counts.late_packets += 1;
            let lost = self.lost_tunnels.by_ue.get(&owner).filter(|(_, tunnel)| tunnel.downlink == teid);
            if let (Some((n3, tunnel)), Some(Step::LoseTunnel)) = (lost, self.step(owner)) {
                self.n3.indicate_error((*n3, teid), tunnel.upf);
            }
            return;
        }
        if self.waits_for_forwarded(owner, teid, &range) || self.count_ping_answer(owner, &range) {
            return;
        }
        let buffer = std::mem::take(&mut self.n3.buffer);
        self.on_user_packet(owner, psi, &buffer[range]);
        self.n3.buffer = buffer;
    }

    /// Handles a packet for a UE that has come over NAS.
    pub(super) fn on_packet_over_nas(&mut self, owner: u32, psi: u8, packet: &[u8]) {
        self.n3.counts.down_packets += 1;
        self.n3.counts.down_octets += packet.len() as u64;
        self.on_user_packet(owner, psi, packet);
    }

    /// Handles a packet for a session of a UE: an answer to its flow, or another one.
    fn on_user_packet(&mut self, owner: u32, psi: u8, packet: &[u8]) {
        let Some(slot) = self.slots.get_mut(owner as usize) else { return };
        let version = packet.first().map_or(0, |octet| octet >> 4);
        let flow = slot
            .flows
            .iter_mut()
            .zip(0u8..)
            .find(|(flow, _)| flow.psi == psi && (version == 4) == flow.source.is_ipv4() && flow.remaining > 0);
        // Packets between traffic steps (router advertisements, late answers) belong to no flow.
        let Some((flow, index)) = flow else { return };
        match traffic::read(packet, &[flow.source]) {
            Received::Echo { from, mark } if from == flow.target && mark.sequence == flow.sequence => {
                self.n3.counts.echoes_answered += 1;
                let times = Times { intended_us: flow.sent_us, began_us: flow.sent_us, ended_us: self.now_us };
                self.stats.record(Procedure::Echo, times);
                flow.remaining -= 1;
                flow.sequence = flow.sequence.wrapping_add(1);
            }
            Received::Prefix(prefix) if flow.soliciting.is_some() => {
                let interface = flow.soliciting.take().unwrap_or_default();
                flow.source = IpAddr::V6(ipv6::address(prefix, interface));
            }
            Received::Bad => {
                self.n3.counts.bad_packets += 1;
                return;
            }
            // An answer to a resent echo, or unrelated traffic.
            _ => return,
        }
        flow.tries = 0;
        if flow.remaining > 0 {
            return self.send_flow(owner, index);
        }
        if flow.quiet_us > self.now_us {
            // A second answer after the release would page the UE.
            self.timers.set(flow.quiet_us, owner, slot.sequence, Kind::Echo(index));
        }
        self.end_traffic(owner);
    }

    /// Ends the traffic step when all flows are done.
    fn end_traffic(&mut self, owner: u32) {
        let (slot, now_us) = (&mut self.slots[owner as usize], self.now_us);
        let is_done = |flow: &Flow| flow.remaining == 0 && flow.quiet_us <= now_us;
        if !slot.flows.is_empty() && slot.flows.iter().all(is_done) {
            slot.flows.clear();
            self.settle(owner);
        }
    }
}
