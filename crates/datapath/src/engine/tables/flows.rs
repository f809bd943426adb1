//! Flow rules of the tables: changes, and packets of marked entries.

use super::{Released, Tables};
use crate::engine::answer;
use crate::engine::counters::DropReason;
use crate::engine::entry::{DATA, UplinkEntry};
use crate::engine::event::Event;
use crate::engine::flow_rules::lists::{OffloadRefusal, RuleLists};
use crate::engine::flow_rules::state::FlowState;
use crate::engine::flow_rules::{FlowSessions, FlowTable, Metered, SessionFlows, Source, Target, relays, tunnels_of};
use crate::engine::index::DownlinkId;
use crate::engine::inner::Inner;
use crate::engine::rule::Tunnel;
use crate::engine::tunnel_target::TunnelTarget;
use crate::engine::verdict::{BufferOutcome, DownlinkVerdict, UplinkVerdict, outward};
use crate::network::Network;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vireo_types::{Instant, Teid};
use vireo_wire::gtpu::{Packet, PduSession};

/// Maximum sessions per second for which a failed offload to the kernel program is retried.
const RETRIES: usize = 64;

impl Tables {
    /// Sets or removes the flow rules of a session with the entries `tunnels` and `downlinks`.
    /// Counters stay. Buffered packets are released if the new rules forward them.
    pub fn set_flows(
        &mut self,
        session: u64,
        flows: Option<SessionFlows>,
        tunnels: &[Teid],
        downlinks: &[DownlinkId],
        released: &mut Released,
    ) {
        let before = self.flows.sessions.remove(&session);
        if before.is_none() && flows.is_none() {
            return;
        }
        self.flows.outside.remove(&session);
        let (mut state, mut lists, mut framed) = (None, None, vec![]);
        let old_peers = before.as_ref().map_or(vec![], |before| tunnels_of(&before.rules));
        self.replace_tunnels(&old_peers, &flows.as_ref().map_or(vec![], |flows| tunnels_of(&flows.rules)));
        if let Some(before) = before {
            for teid in &before.tunnels {
                self.flows.tunnels.remove(teid);
            }
            for id in &before.downlinks {
                self.flows.downlinks.remove(&id.0);
            }
            for tunnel in relays(&before.rules) {
                self.flows.relays.remove(&tunnel);
            }
            if !before.framed.is_empty() {
                self.flows.framed.retain(|(_, id)| !before.downlinks.contains(id));
                framed.extend(before.framed.iter().copied());
            }
            match (before.lists, &flows) {
                // Updates of only the quotas are common.
                (Some(same), Some(flows))
                    if flows.rules == before.rules
                        && before.state.counts(&flows.meters)
                        && before.framed.is_empty() == flows.framed.is_empty() =>
                {
                    lists = Some(same);
                }
                (Some(other), _) => other.end(&mut self.flows.cells),
                (None, _) => {}
            }
            state = Some(before.state);
        }
        let Some(flows) = flows else {
            tunnels.iter().for_each(|teid| self.point_uplink(*teid, None));
            downlinks.iter().for_each(|id| self.point_downlink(*id, None));
            state.into_iter().for_each(|state| state.end(&mut self.flows.cells));
            self.mirror_networks(&framed);
            return;
        };
        let state = FlowState::new(&flows, state, &mut self.flows.cells);
        framed.extend(flows.framed.iter().copied());
        let SessionFlows { rules, framed: behind, .. } = flows;
        let (tunnels, downlinks) = (tunnels.to_vec(), downlinks.to_vec());
        let mut table = FlowTable {
            session,
            rules,
            state,
            framed: behind,
            tunnels,
            downlinks,
            lists,
            is_error_reported: AtomicBool::new(false),
        };
        self.attach_rule_lists(&mut table);
        self.flows.tunnels.extend(table.tunnels.iter().map(|teid| (*teid, session)));
        self.flows.downlinks.extend(table.downlinks.iter().map(|id| (id.0, session)));
        self.flows.relays.extend(relays(&table.rules).map(|tunnel| (tunnel, session)));
        if let Some(id) = table.downlinks.first() {
            self.flows.framed.extend(table.framed.iter().map(|network| (*network, *id)));
            self.flows.framed.sort_by_key(|(network, _)| std::cmp::Reverse(network.length));
        }
        self.mirror_networks(&framed);
        for id in &table.downlinks {
            self.report_data_again(*id);
            self.release_by_flows(*id, &table, released);
        }
        self.flows.sessions.insert(session, table);
    }

    /// Updates these networks in the kernel program's lookups.
    fn mirror_networks(&mut self, networks: &[Network]) {
        for (n, network) in networks.iter().enumerate() {
            let same = |other: &Network| other.length == network.length && other.contains(network.address);
            if !networks[..n].iter().any(same) {
                let to = self.flows.framed.iter().find(|(other, _)| same(other)).map(|(_, id)| *id);
                self.mirror_framed(*network, to);
            }
        }
    }

    /// Creates the rule lists of a session if it has none, and points its entries to them.
    fn attach_rule_lists(&mut self, table: &mut FlowTable) {
        if table.lists.is_none() && self.flows.cells.are_shared() {
            let ue = table.downlinks.first().map_or(0, |id| self.entry(*id));
            let framed = (!table.framed.is_empty()).then_some(ue);
            match RuleLists::new(&table.rules, &table.state, framed, &mut self.flows.cells) {
                Ok(lists) => table.lists = Some(lists),
                Err(cause) => drop(self.flows.outside.insert(table.session, cause)),
            }
        }
        let head = |source| table.lists.as_ref().map_or(0, |lists| lists.head(source));
        table.tunnels.iter().for_each(|teid| self.point_uplink(*teid, Some(head(Source::Tunnel(*teid)))));
        table.downlinks.iter().for_each(|id| self.point_downlink(*id, Some(head(Source::DataNetwork))));
    }

    /// Retries the offload of rules that found no free cells, and makes freed cells available. Must
    /// be called about once a second.
    pub fn maintain_cells(&mut self) {
        self.flows.cells.recycle();
        let again = self
            .flows
            .outside
            .iter()
            .filter(|(_, cause)| **cause == OffloadRefusal::NoRoom)
            .map(|(session, _)| *session);
        for session in again.take(RETRIES).collect::<Vec<_>>() {
            let Some(mut table) = self.flows.sessions.remove(&session) else { continue };
            self.flows.outside.remove(&session);
            table.state.share(&mut self.flows.cells);
            self.attach_rule_lists(&mut table);
            self.flows.sessions.insert(session, table);
        }
    }

    /// Returns the number of sessions with flow rules.
    pub fn flow_sessions(&self) -> FlowSessions {
        let all = self.flows.sessions.len();
        let outside = if self.flows.cells.are_shared() { self.flows.outside.len() } else { all };
        FlowSessions { all, in_kernel: all - outside }
    }

    /// Returns the volume that a URR has counted since its session got flow rules.
    pub fn metered(&self, session: u64, urr: u32) -> Option<Metered> {
        let (_, meter) =
            self.flows.sessions.get(&session)?.state.meters(&self.flows.cells).find(|(id, _)| *id == urr)?;
        Some(meter.metered())
    }

    /// Sets the watch granularity of a session's URRs; see [`Tables::watch`].
    pub fn watch_meters(&self, session: u64, watch: u32) {
        if let Some(table) = self.flows.sessions.get(&session) {
            table.state.meters(&self.flows.cells).for_each(|(_, meter)| meter.set_watch(watch));
        }
    }

    /// Sends an End Marker into a tunnel that is no more used.
    pub fn end_marker(tunnel: Tunnel, released: &mut Released) {
        released.datagrams.extend(answer::end_marker(tunnel));
        released.last = true;
    }

    /// Returns the session that relays packets into a tunnel, once until its rules change.
    pub(crate) fn report_relay_error(&self, tunnel: Tunnel) -> Option<u64> {
        let session = *self.flows.relays.get(&tunnel)?;
        let table = self.flows.sessions.get(&session)?;
        (!table.is_error_reported.swap(true, Relaxed)).then_some(session)
    }

    /// Returns the entry of the UE with a framed route to the address.
    pub(crate) fn find_framed(&self, address: IpAddr) -> Option<DownlinkId> {
        self.flows.framed.iter().find(|(network, _)| network.contains(address)).map(|(_, id)| *id)
    }

    fn release_by_flows(&self, id: DownlinkId, table: &FlowTable, released: &mut Released) {
        let Released { datagrams, dropped, .. } = released;
        self.buffers().retain(id.0, |packet| {
            let target = Inner::read(packet)
                .and_then(|inner| table.find(Source::DataNetwork, None, &inner))
                .filter(|rule| rule.gate_open)
                .map_or(Target::Drop, |rule| rule.target);
            match target {
                Target::Buffer { .. } => return true,
                Target::Tunnel { tunnel, marking } => {
                    datagrams.extend(answer::g_pdu(tunnel, marking.container(None), packet));
                }
                Target::Drop | Target::DataNetwork => *dropped += 1,
            }
            false
        });
    }

    /// Classifies a packet from a marked tunnel.
    pub(crate) fn uplink_by_flows<'a>(
        &self,
        record: &UplinkEntry,
        packet: &Packet<'a>,
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        let session = self.flows.tunnels.get(&packet.teid);
        let Some(table) = session.and_then(|session| self.flows.sessions.get(session)) else {
            return UplinkVerdict::Drop(DropReason::NoRule);
        };
        let Some(inner) = Inner::read(packet.payload) else {
            return UplinkVerdict::Drop(DropReason::InnerMalformed);
        };
        let rule = table.find(Source::Tunnel(packet.teid), packet.pdu_session.map(PduSession::qfi), &inner);
        let Some(rule) = rule else {
            return UplinkVerdict::Drop(DropReason::NoRule);
        };
        let octets = match rule.target {
            // The UPF at the far end checks the source address.
            Target::Tunnel { .. } | Target::Buffer { .. } => inner.packet(),
            Target::Drop | Target::DataNetwork => {
                let framed = |source| table.framed.iter().any(|network| network.contains(source));
                let allowed = outward(record.rule().ue, &inner, framed);
                match allowed.and_then(|packet| self.arrays().check_destination(&inner).map(|()| packet)) {
                    Ok(packet) => packet,
                    Err(stop) => return self.stopped(stop, now),
                }
            }
        };
        if let Err(reason) = table.admit(rule, octets.len(), now, &self.flows.cells, notify) {
            return UplinkVerdict::Drop(reason);
        }
        record.state.count(octets.len());
        match (rule.target, table.downlinks.first().copied()) {
            (Target::DataNetwork, _) => UplinkVerdict::Forward(octets),
            (Target::Tunnel { tunnel, marking }, _) => UplinkVerdict::Relay {
                tunnel,
                marked: marking.container(packet.pdu_session),
                packet: octets,
                uplink: rule.uplink,
            },
            // Buffered packets are released towards the UE.
            (Target::Buffer { notify }, Some(id)) if !rule.uplink => {
                UplinkVerdict::Buffered(self.buffer_by_flows(id, table.session, rule.pdr, notify, octets, now))
            }
            _ => UplinkVerdict::Drop(DropReason::Action),
        }
    }

    /// Classifies an End Marker: in a relayed tunnel it passes on, after the packets (TS 29.281
    /// 7.3.2).
    pub(crate) fn end_marker_by_flows(&self, from: IpAddr, teid: Teid) -> UplinkVerdict<'static> {
        let Some(uplink) = self.find_uplink(teid).filter(|uplink| self.accepts(from, teid, uplink)) else {
            return UplinkVerdict::Nothing;
        };
        if !uplink.overflows() {
            return UplinkVerdict::Nothing;
        }
        let table = self.flows.tunnels.get(&teid).and_then(|session| self.flows.sessions.get(session));
        let mut rules = table.into_iter().flat_map(|table| &table.rules);
        let relay = rules.find_map(|rule| match rule.target {
            Target::Tunnel { tunnel, .. } if rule.source == Source::Tunnel(teid) => Some(tunnel),
            _ => None,
        });
        relay.map_or(UplinkVerdict::Nothing, UplinkVerdict::EndMarker)
    }

    /// Classifies a packet to the UE of a marked entry or to one of its framed routes.
    pub(crate) fn downlink_by_flows(
        &self,
        id: DownlinkId,
        inner: &Inner<'_>,
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> DownlinkVerdict {
        let table = self.flows.downlinks.get(&id.0).and_then(|session| self.flows.sessions.get(session));
        let Some((table, rule)) = table.and_then(|t| Some((t, t.find(Source::DataNetwork, None, inner)?))) else {
            return DownlinkVerdict::Drop(DropReason::NoRule);
        };
        let packet = inner.packet();
        if let Err(reason) = table.admit(rule, packet.len(), now, &self.flows.cells, notify) {
            return DownlinkVerdict::Drop(reason);
        }
        self.downlink(id).state.count(packet.len());
        match rule.target {
            Target::Tunnel { tunnel, marking } => {
                let target = TunnelTarget::new(tunnel, marking.container(None));
                DownlinkVerdict::Forward { target, octets: packet.len() }
            }
            Target::Buffer { notify } => {
                DownlinkVerdict::Buffered(self.buffer_by_flows(id, table.session, rule.pdr, notify, packet, now))
            }
            Target::Drop | Target::DataNetwork => DownlinkVerdict::Drop(DropReason::Action),
        }
    }

    fn buffer_by_flows(
        &self,
        id: DownlinkId,
        session: u64,
        pdr: u16,
        notify: bool,
        packet: &[u8],
        now: Instant,
    ) -> BufferOutcome {
        let pushed = self.buffers().push(id.0, packet, now);
        let first = notify && self.downlink(id).report_once(DATA);
        BufferOutcome { id, pushed, event: first.then_some(Event::DownlinkData { session, pdr }) }
    }
}
