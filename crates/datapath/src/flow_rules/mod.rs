//! Sessions whose rules one record does not hold: several filtered rules for one tunnel or one UE, packets that go on
//! into another tunnel, quotas, routes behind the UE. Their records are marked, and their packets are decided on here,
//! by the first rule that matches. A driver in the kernel has the same rules as lists in [`Cells`], and leaves to user
//! space what it cannot do.

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

/// Where the packets of a rule come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By this tunnel.
    Tunnel(Teid),
    /// From the data network.
    DataNetwork,
}

/// What becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing.
    Drop,
    /// They go to the data network.
    DataNetwork,
    /// They go into a tunnel.
    Tunnel {
        /// The tunnel.
        tunnel: Tunnel,
        /// The PDU Session Container; `None` = the one they came with, if any.
        marked: Option<PduSession>,
    },
    /// They wait.
    Buffer {
        /// NOCP: the first is reported.
        notify: bool,
    },
}

/// One rule of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// The PDR, for reports.
    pub pdr: u16,
    /// Where its packets come from.
    pub source: Source,
    /// Whether they are on their way to the data network: filters, rates and counts are of that direction.
    pub uplink: bool,
    /// The QoS flows of packets from tunnels, a bit each; [`crate::ALL_FLOWS`] also lets packets without a flow pass.
    pub flows: u64,
    /// Any of these matches; none = every packet.
    pub filters: Vec<Filter>,
    /// Whether the gates are open.
    pub gate_open: bool,
    /// What becomes of its packets.
    pub target: Target,
    /// Maximum bit rates, each shared by the rules of this direction that name the same QER.
    pub rates: Vec<(u32, Rate)>,
    /// The URRs that count its packets.
    pub meters: Vec<u32>,
}

/// Octets that may pass until a URR has new ones (TS 29.244 5.2.2.2); `None` = any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Of both directions.
    pub total: Option<u64>,
    /// Uplink.
    pub uplink: Option<u64>,
    /// Downlink.
    pub downlink: Option<u64>,
}

/// What a URR has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    /// To the data network.
    pub uplink: Volume,
    /// To the UE.
    pub downlink: Volume,
}

/// All rules of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFlows {
    /// The rules, the one that is matched first in front.
    pub rules: Vec<FlowRule>,
    /// Each URR, and how much its count ([`Tables::metered`]) may grow to.
    pub meters: Vec<(u32, Quota)>,
    /// Networks behind the UE.
    pub framed: Vec<Network>,
}

/// The rules of a session with the state that packets leave behind.
#[derive(Debug)]
struct FlowTable {
    session: u64,
    rules: Vec<FlowRule>,
    state: FlowState,
    framed: Vec<Network>,
    /// The records that lead here.
    tunnels: Vec<Teid>,
    downlinks: Vec<DownlinkId>,
    /// The rules as the kernel's program has them.
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

/// Where the tunnels of rules lead to.
fn tunnels_of(rules: &[FlowRule]) -> Vec<IpAddr> {
    let address = |rule: &FlowRule| match rule.target {
        Target::Tunnel { tunnel, .. } => Some(tunnel.address),
        Target::DataNetwork | Target::Drop | Target::Buffer { .. } => None,
    };
    rules.iter().filter_map(address).collect()
}

/// The sessions of marked records.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    sessions: HashMap<u64, FlowTable>,
    tunnels: HashMap<Teid, u64>,
    downlinks: HashMap<u32, u64>,
    /// Networks behind UEs, with the records of these; the longest prefixes in front.
    framed: Vec<(Network, DownlinkId)>,
    /// Sessions that the kernel's program leaves to user space though there is one.
    outside: HashMap<u64, OffloadRefusal>,
}

/// Sessions with rules of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSessions {
    /// All.
    pub all: usize,
    /// Of these, whose rules a program in the kernel holds. User space decides on all packets of the others.
    pub in_kernel: usize,
}

/// Packets of sessions with rules of their own that came to the program in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPackets {
    /// It decided on these.
    pub decided: u64,
    /// It left these to user space: what waits, what must be told, unusual headers, and sessions that it does not hold.
    pub left: u64,
}

/// Sessions that found no room with the kernel's program and are looked at again in one second.
const AGAIN: usize = 64;

impl Tables {
    /// Gives a session rules of its own beside its records, which are `tunnels` and `downlinks`, or takes them away.
    /// What was counted stays. What waits is let go as far as the rules then say.
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
                // other quotas for the same rules are common
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

    /// Tells the kernel's program where these networks lie now.
    fn mirror_networks(&mut self, networks: &[Network]) {
        for (n, network) in networks.iter().enumerate() {
            let same = |other: &Network| other.length == network.length && other.contains(network.address);
            if !networks[..n].iter().any(same) {
                let to = self.flows.framed.iter().find(|(other, _)| same(other)).map(|(_, id)| *id);
                self.mirror_framed(*network, to);
            }
        }
    }

    /// Makes the lists of a session's rules, if it has none, and leads its records to them.
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

    /// Lets the kernel's program have rules that there was no room for, and what was given back be used again. To be
    /// called about once a second.
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

    /// How many sessions have rules of their own.
    pub fn flow_sessions(&self) -> FlowSessions {
        let all = self.flows.sessions.len();
        let outside = if self.cells.are_shared() { self.flows.outside.len() } else { all };
        FlowSessions { all, in_kernel: all - outside }
    }

    /// What a URR of a session with rules of its own has counted since it has had them.
    pub fn metered(&self, session: u64, urr: u32) -> Option<Metered> {
        let (_, meter) = self.flows.sessions.get(&session)?.state.meters(&self.cells).find(|(id, _)| *id == urr)?;
        Some(meter.metered())
    }

    /// As [`Tables::watch`], for the counts of a session's URRs.
    pub fn watch_meters(&self, session: u64, watch: u32) {
        if let Some(table) = self.flows.sessions.get(&session) {
            table.state.meters(&self.cells).for_each(|(_, meter)| meter.set_watch(watch));
        }
    }

    /// Ends a tunnel that is not used any more.
    pub fn end_marker(tunnel: Tunnel, released: &mut Released) {
        released.datagrams.extend(answer::end_marker(tunnel));
        released.last = true;
    }

    /// The record of the UE that a network lies behind.
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

    /// Decides on a packet that came by a marked tunnel.
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
            // the UPF that they go on to looks whose they are
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
            // what waits is let go towards the UE
            (Target::Buffer { notify }, Some(id)) if !rule.uplink => {
                match self.wait(id, table.session, rule.pdr, notify, octets, now) {
                    Ok(event) => UplinkVerdict::Buffered(id, event),
                    Err(reason) => UplinkVerdict::Drop(reason),
                }
            }
            _ => UplinkVerdict::Drop(DropReason::Action),
        }
    }

    /// Decides on a packet for the UE of a marked record, or for a network behind it.
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
