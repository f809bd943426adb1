//! Flow rules: rules of sessions that one entry cannot hold.
//!
//! Examples are several filtered rules for one tunnel or one UE, forwarding into another tunnel,
//! quotas, and framed routes of the UE. The entries of such a session are marked. The first rule
//! that matches a packet applies. A kernel driver has the same rules as lists in [`Cells`], and
//! punts packets that exceed it to user space.

pub(crate) mod cells;
mod lists;
mod state;

use crate::answer;
use crate::counters::{DropReason, Volume};
use crate::entry::{DATA, UplinkEntry};
use crate::filter::{Filter, Flow, Network};
use crate::inner::Inner;
use crate::rate::{self, Rate};
use crate::rule::Tunnel;
use crate::tables::{DownlinkId, Released, Tables};
use crate::tunnel_target::TunnelTarget;
use crate::verdict::{DownlinkVerdict, Event, UplinkVerdict, outward};
pub(crate) use cells::Cells;
use lists::{OffloadRefusal, RuleLists};
use serde::{Deserialize, Serialize};
use state::FlowState;
use std::collections::HashMap;
use std::net::IpAddr;
use vireo_types::{Instant, Teid};
use vireo_wire::gtpu::{Packet, PduSession};

/// Source of the packets of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// N3 or N9 tunnel with this TEID.
    Tunnel(Teid),
    /// The data network.
    DataNetwork,
}

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Drop the packets.
    Drop,
    /// Forward to the data network.
    DataNetwork,
    /// Forward into a tunnel.
    Tunnel {
        tunnel: Tunnel,
        /// PDU Session Container of the sent packets. `None` = that of the received packet, if any.
        marked: Option<PduSession>,
    },
    /// Buffer the packets.
    Buffer {
        /// NOCP: report the first packet.
        notify: bool,
    },
}

/// One rule of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// PDR ID that reports carry.
    pub pdr: u16,
    /// Source of the packets.
    pub source: Source,
    /// Direction of filters, rates and counters: true for packets to the data network.
    pub uplink: bool,
    /// Allowed QoS flows of packets from tunnels, one bit each. [`crate::ALL_FLOWS`] also allows
    /// packets without a flow.
    pub flows: u64,
    /// Alternative filters. Empty = every packet matches.
    pub filters: Vec<Filter>,
    /// State of the gates of all QERs.
    pub gate_open: bool,
    /// Action for matching packets.
    pub target: Target,
    /// Maximum bit rates by QER ID. Rules of one direction that name the same QER share its rate.
    pub rates: Vec<(u32, Rate)>,
    /// IDs of the URRs that count the packets.
    pub meters: Vec<u32>,
}

/// Quota of a URR in octets (TS 29.244 5.2.2.2). `None` = unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Octets of both directions.
    pub total: Option<u64>,
    /// Uplink octets.
    pub uplink: Option<u64>,
    /// Downlink octets.
    pub downlink: Option<u64>,
}

/// Volume that a URR has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    /// Packets to the data network.
    pub uplink: Volume,
    /// Packets to the UE.
    pub downlink: Volume,
}

/// All flow rules of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFlows {
    /// Rules in matching order.
    pub rules: Vec<FlowRule>,
    /// URR IDs with their quotas. A quota is the limit of the count ([`Tables::metered`]).
    pub meters: Vec<(u32, Quota)>,
    /// Framed routes of the UE.
    pub framed: Vec<Network>,
}

/// Flow rules of a session with their counters and policers.
#[derive(Debug)]
struct FlowTable {
    session: u64,
    rules: Vec<FlowRule>,
    state: FlowState,
    framed: Vec<Network>,
    /// Entries that point to these rules.
    tunnels: Vec<Teid>,
    downlinks: Vec<DownlinkId>,
    /// Rule lists of the kernel program.
    lists: Option<RuleLists>,
}

impl FlowTable {
    fn find(&self, source: Source, flow: Option<u8>, inner: &Inner<'_>) -> Option<&FlowRule> {
        let mut read = None;
        self.rules.iter().find(|rule| {
            let of_flow = rule.flows == crate::ALL_FLOWS || flow.is_some_and(|qfi| rule.flows >> (qfi & 0x3f) & 1 == 1);
            rule.source == source
                && of_flow
                && (rule.filters.is_empty() || {
                    let flow = read.get_or_insert_with(|| Flow::read(inner));
                    rule.filters.iter().any(|filter| filter.matches(flow, rule.uplink))
                })
        })
    }

    /// Checks gate, quotas and rates, and counts the packet.
    ///
    /// # Errors
    ///
    /// Returns the reason if the packet must be dropped.
    fn admit(
        &self,
        rule: &FlowRule,
        octets: usize,
        now: Instant,
        cells: &Cells,
        tell: &mut impl FnMut(Event),
    ) -> Result<(), DropReason> {
        if !rule.gate_open {
            return Err(DropReason::GateClosed);
        }
        if rule.target == Target::Drop {
            return Err(DropReason::Action);
        }
        let counts = |(urr, meter)| rule.meters.contains(&urr).then_some(meter);
        let meters = || self.state.meters(cells).filter_map(counts);
        if let Some(spent) = meters().find(|meter| meter.spent(rule.uplink)) {
            if spent.tell() {
                tell(Event::Volume { session: self.session });
            }
            return Err(DropReason::QuotaSpent);
        }
        for (qer, rate) in &rule.rates {
            let word = self.state.policer(*qer, rule.uplink, cells);
            if word.is_some_and(|word| !rate::conforms(word, *rate, octets, now)) {
                return Err(DropReason::RateExceeded);
            }
        }
        let mut due = false;
        meters().for_each(|meter| due |= meter.count(rule.uplink, octets));
        if due {
            tell(Event::Volume { session: self.session });
        }
        Ok(())
    }
}

/// Returns the peers of the tunnels in the rules.
fn tunnels_of(rules: &[FlowRule]) -> Vec<IpAddr> {
    let address = |rule: &FlowRule| match rule.target {
        Target::Tunnel { tunnel, .. } => Some(tunnel.address),
        Target::DataNetwork | Target::Drop | Target::Buffer { .. } => None,
    };
    rules.iter().filter_map(address).collect()
}

/// Sessions with flow rules.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    sessions: HashMap<u64, FlowTable>,
    tunnels: HashMap<Teid, u64>,
    downlinks: HashMap<u32, u64>,
    /// Framed routes with the entries of their UEs, the longest prefixes first.
    framed: Vec<(Network, DownlinkId)>,
    /// Sessions whose rules the kernel program does not hold although it exists.
    outside: HashMap<u64, OffloadRefusal>,
}

/// Number of sessions with flow rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSessions {
    /// All such sessions.
    pub all: usize,
    /// Sessions whose rules the kernel program holds. User space classifies all packets of the
    /// others.
    pub in_kernel: usize,
}

/// Packets of sessions with flow rules that the kernel program received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPackets {
    /// Classified in the kernel.
    pub decided: u64,
    /// Punted to user space: buffered packets, notifications, uncommon headers, and sessions that
    /// the program does not hold.
    pub left: u64,
}

/// Maximum sessions per second for which a failed offload to the kernel program is retried.
const AGAIN: usize = 64;

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
        let led_to = before.as_ref().map_or(vec![], |before| tunnels_of(&before.rules));
        self.replace_tunnels(&led_to, &flows.as_ref().map_or(vec![], |flows| tunnels_of(&flows.rules)));
        if let Some(before) = before {
            for teid in &before.tunnels {
                self.flows.tunnels.remove(teid);
            }
            for id in &before.downlinks {
                self.flows.downlinks.remove(&id.0);
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
                (Some(other), _) => other.end(&mut self.cells),
                (None, _) => {}
            }
            state = Some(before.state);
        }
        let Some(flows) = flows else {
            tunnels.iter().for_each(|teid| self.lead_uplink(*teid, None));
            downlinks.iter().for_each(|id| self.lead_downlink(*id, None));
            state.into_iter().for_each(|state| state.end(&mut self.cells));
            self.mirror_networks(&framed);
            return;
        };
        let state = FlowState::new(&flows, state, &mut self.cells);
        framed.extend(flows.framed.iter().copied());
        let SessionFlows { rules, framed: behind, .. } = flows;
        let (tunnels, downlinks) = (tunnels.to_vec(), downlinks.to_vec());
        let mut table = FlowTable { session, rules, state, framed: behind, tunnels, downlinks, lists };
        self.attach_rule_lists(&mut table);
        self.flows.tunnels.extend(table.tunnels.iter().map(|teid| (*teid, session)));
        self.flows.downlinks.extend(table.downlinks.iter().map(|id| (id.0, session)));
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
        if table.lists.is_none() && self.cells.are_shared() {
            let ue = table.downlinks.first().map_or(0, |id| self.entry(*id));
            let framed = (!table.framed.is_empty()).then_some(ue);
            match RuleLists::new(&table.rules, &table.state, framed, &mut self.cells) {
                Ok(lists) => table.lists = Some(lists),
                Err(why) => drop(self.flows.outside.insert(table.session, why)),
            }
        }
        let head = |source| table.lists.as_ref().map_or(0, |lists| lists.head(source));
        table.tunnels.iter().for_each(|teid| self.lead_uplink(*teid, Some(head(Source::Tunnel(*teid)))));
        table.downlinks.iter().for_each(|id| self.lead_downlink(*id, Some(head(Source::DataNetwork))));
    }

    /// Retries the offload of rules that found no free cells, and makes freed cells available. Must
    /// be called about once a second.
    pub fn turn_cells(&mut self) {
        self.cells.turn();
        let again =
            self.flows.outside.iter().filter(|(_, why)| **why == OffloadRefusal::NoRoom).map(|(session, _)| *session);
        for session in again.take(AGAIN).collect::<Vec<_>>() {
            let Some(mut table) = self.flows.sessions.remove(&session) else { continue };
            self.flows.outside.remove(&session);
            table.state.share(&mut self.cells);
            self.attach_rule_lists(&mut table);
            self.flows.sessions.insert(session, table);
        }
    }

    /// Returns the number of sessions with flow rules.
    pub fn flow_sessions(&self) -> FlowSessions {
        let all = self.flows.sessions.len();
        let outside = if self.cells.are_shared() { self.flows.outside.len() } else { all };
        FlowSessions { all, in_kernel: all - outside }
    }

    /// Returns the volume that a URR has counted since its session got flow rules.
    pub fn metered(&self, session: u64, urr: u32) -> Option<Metered> {
        let (_, meter) = self.flows.sessions.get(&session)?.state.meters(&self.cells).find(|(id, _)| *id == urr)?;
        Some(meter.metered())
    }

    /// Sets the watch granularity of a session's URRs; see [`Tables::watch`].
    pub fn watch_meters(&self, session: u64, watch: u32) {
        if let Some(table) = self.flows.sessions.get(&session) {
            table.state.meters(&self.cells).for_each(|(_, meter)| meter.set_watch(watch));
        }
    }

    /// Sends an End Marker into a tunnel that is no more used.
    pub fn end_marker(tunnel: Tunnel, released: &mut Released) {
        released.datagrams.extend(answer::end_marker(tunnel));
        released.last = true;
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
                Target::Tunnel { tunnel, marked } => datagrams.extend(answer::g_pdu(tunnel, marked, packet)),
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
        tell: &mut impl FnMut(Event),
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
                match allowed.and_then(|packet| self.arrays().may_reach(&inner).map(|()| packet)) {
                    Ok(packet) => packet,
                    Err(stop) => return self.stopped(stop, now),
                }
            }
        };
        if let Err(reason) = table.admit(rule, octets.len(), now, &self.cells, tell) {
            return UplinkVerdict::Drop(reason);
        }
        record.state.count(octets.len());
        match (rule.target, table.downlinks.first().copied()) {
            (Target::DataNetwork, _) => UplinkVerdict::Forward(octets),
            (Target::Tunnel { tunnel, marked }, _) => UplinkVerdict::Relay {
                tunnel,
                marked: marked.or(packet.pdu_session),
                packet: octets,
                uplink: rule.uplink,
            },
            // Buffered packets are released towards the UE.
            (Target::Buffer { notify }, Some(id)) if !rule.uplink => {
                match self.wait(id, table.session, rule.pdr, notify, octets, now) {
                    Ok(event) => UplinkVerdict::Buffered(id, event),
                    Err(reason) => UplinkVerdict::Drop(reason),
                }
            }
            _ => UplinkVerdict::Drop(DropReason::Action),
        }
    }

    /// Classifies a packet to the UE of a marked entry or to one of its framed routes.
    pub(crate) fn downlink_by_flows(
        &self,
        id: DownlinkId,
        inner: &Inner<'_>,
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> DownlinkVerdict {
        let table = self.flows.downlinks.get(&id.0).and_then(|session| self.flows.sessions.get(session));
        let Some((table, rule)) = table.and_then(|t| Some((t, t.find(Source::DataNetwork, None, inner)?))) else {
            return DownlinkVerdict::Drop(DropReason::NoRule);
        };
        let packet = inner.packet();
        if let Err(reason) = table.admit(rule, packet.len(), now, &self.cells, tell) {
            return DownlinkVerdict::Drop(reason);
        }
        self.downlink(id).state.count(packet.len());
        match rule.target {
            Target::Tunnel { tunnel, marked } => {
                DownlinkVerdict::Forward { toward: TunnelTarget::new(tunnel, marked), octets: packet.len() }
            }
            Target::Buffer { notify } => match self.wait(id, table.session, rule.pdr, notify, packet, now) {
                Ok(event) => DownlinkVerdict::Buffered(id, event),
                Err(reason) => DownlinkVerdict::Drop(reason),
            },
            Target::Drop | Target::DataNetwork => DownlinkVerdict::Drop(DropReason::Action),
        }
    }

    fn wait(
        &self,
        id: DownlinkId,
        session: u64,
        pdr: u16,
        notify: bool,
        packet: &[u8],
        now: Instant,
    ) -> Result<Option<Event>, DropReason> {
        if !self.buffers().push(id.0, packet, now) {
            return Err(DropReason::BufferFull);
        }
        let first = notify && self.downlink(id).report_once(DATA);
        Ok(first.then_some(Event::DownlinkData { session, pdr }))
    }
}
